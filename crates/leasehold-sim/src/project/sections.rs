//! The guarded sections of the walk: each is the real [`Section`], given replies in small numbers. A walk asks the same
//! thing a million times, so that each section is kept once and each answer is remembered.

use std::collections::HashMap;

use leasehold_core::name::Reason;
use leasehold_core::time::HolderTime;
use leasehold_project_rules::guarded::{Action, Outcome, Probe};
use leasehold_project_rules::{CallId, Expected, IoReply, IoStep, Now, Section, Version};

use super::numbers::{NOW, bid, claim, lock_file, small, small_fence, small_lock, store_time, ttl};
use super::state::{Lock, Want};

/// A section at some point of its way.
pub(super) type SectionId = u32;

/// A step in small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Do {
    TakeGuard,
    ReadGuard,
    ReadLock,
    ProbeHeld(u8),
    WriteGuard(u8),
    OpenHeld(u8),
    WriteLock(Lock),
    RemoveLock,
    ReadVersion,
    Save,
    CloseHeld(u8),
    DropHeld(u8),
    Sweep(u8),
    DropGuard,
}

/// What came of a step, in small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Done,
    Failed,
    Guard(u8),
    /// `.lock`, without its time, and how many steps of time ago it was written.
    Lock(Option<Lock>, u8),
    /// Whether the held file is open, if it is there.
    Held(Option<bool>),
    /// What is in the file of the project.
    Version(u8),
}

/// What a section came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ComesTo {
    Granted(u8),
    Renewed,
    Released,
    Saved,
    /// The file was not made from what the tab has seen.
    StaleBase,
    Refused,
    /// A step failed.
    Failed,
}

struct Known {
    section: Section,
    step: Option<Do>,
    comes_to: Option<ComesTo>,
}

/// All sections that were met.
#[derive(Default)]
pub(super) struct Sections {
    begun: HashMap<(Want, u8, u8, u8, Option<u8>), SectionId>,
    answered: HashMap<(SectionId, Reply), SectionId>,
    all: Vec<Known>,
    /// Those that are at the same step, or came to the same.
    alike: HashMap<(Option<Do>, Option<ComesTo>), Vec<SectionId>>,
}

impl Sections {
    /// A section that has not begun. A save is made from `base`, or from whatever is there.
    pub(super) fn begin(
        &mut self,
        want: Want,
        tab: u8,
        attempt: u8,
        fence: u8,
        base: Option<u8>,
    ) -> SectionId {
        let base = base.filter(|_| want == Want::Save);
        let key = (want, tab, attempt, fence, base);
        if let Some(known) = self.begun.get(&key) {
            return *known;
        }
        let action = match want {
            Want::Acquire => Action::Acquire(bid(tab, attempt)),
            Want::TakeOver => Action::TakeOver {
                seen: None,
                bid: bid(tab, attempt),
                reason: Reason::default(),
                despite_skew: true,
            },
            Want::Renew => Action::Renew { claim: claim(tab, attempt, fence), ttl: ttl() },
            Want::Save => Action::Save { claim: claim(tab, attempt, fence), call: CallId(0) },
            Want::Release => Action::Release(claim(tab, attempt, fence)),
        };
        let files = base.map(|base| Expected::new("current.json", &version(base)));
        let id = self.keep(Section::new(action, 0).expecting(files.into_iter().collect()));
        self.begun.insert(key, id);
        id
    }

    /// What the section wants to have done; none when it is over.
    pub(super) fn step(&self, id: SectionId) -> Option<Do> {
        self.all.get(id as usize)?.step
    }

    /// What it came to, once it is over.
    pub(super) fn comes_to(&self, id: SectionId) -> Option<ComesTo> {
        self.all.get(id as usize)?.comes_to
    }

    /// The section after this reply.
    pub(super) fn answer(&mut self, id: SectionId, reply: Reply) -> SectionId {
        if let Some(known) = self.answered.get(&(id, reply)) {
            return *known;
        }
        let Some(known) = self.all.get(id as usize) else { return id };
        let mut section = known.section.clone();
        section.handle(real(reply), Now { wall: store_time(NOW), steady: HolderTime::ZERO });
        let next = self.keep(section);
        self.answered.insert((id, reply), next);
        next
    }

    fn keep(&mut self, section: Section) -> SectionId {
        let step = section.poll_step().as_ref().map(small_step);
        let comes_to = section.result().map(|result| match result {
            Ok(conclusion) => come_to(&conclusion.outcome),
            Err(_) => ComesTo::Failed,
        });
        let alike = self.alike.entry((step, comes_to)).or_default();
        // What became of a section that is over is all that can be told apart of it.
        let all = &self.all;
        let is_known = |id: &&SectionId| {
            step.is_none() || all.get(**id as usize).is_some_and(|known| known.section == section)
        };
        if let Some(known) = alike.iter().find(is_known) {
            return *known;
        }
        let id = SectionId::try_from(self.all.len()).unwrap_or(SectionId::MAX);
        alike.push(id);
        self.all.push(Known { section, step, comes_to });
        id
    }
}

fn real(reply: Reply) -> IoReply {
    match reply {
        Reply::Done => IoReply::Done,
        Reply::Failed => IoReply::Failed { said: String::new() },
        Reply::Guard(fence) => IoReply::Guard(Some(u64::from(fence))),
        Reply::Lock(lock, age) => IoReply::Lock(lock_file(lock, age)),
        Reply::Held(None) => IoReply::Probe(Probe::Unknown),
        Reply::Held(Some(true)) => IoReply::Probe(Probe::Busy),
        Reply::Held(Some(false)) => IoReply::Probe(Probe::Free),
        Reply::Version(content) => IoReply::Version(version(content)),
    }
}

fn version(content: u8) -> Version {
    if content == 0 { Version::NO_FILE } else { Version::new(&content.to_string()) }
}

fn small_step(step: &IoStep) -> Do {
    match step {
        IoStep::TakeGuard { .. } => Do::TakeGuard,
        IoStep::ReadGuard => Do::ReadGuard,
        IoStep::ReadLock => Do::ReadLock,
        IoStep::ProbeHeld(fence) => Do::ProbeHeld(small_fence(*fence)),
        IoStep::WriteGuard(fence) => Do::WriteGuard(small(*fence)),
        IoStep::OpenHeld(fence) => Do::OpenHeld(small_fence(*fence)),
        IoStep::WriteLock(record) => Do::WriteLock(small_lock(record)),
        IoStep::RemoveLock => Do::RemoveLock,
        IoStep::ReadVersion(_) => Do::ReadVersion,
        IoStep::Save(_) => Do::Save,
        IoStep::CloseHeld(fence) => Do::CloseHeld(small_fence(*fence)),
        IoStep::DropHeld(fence) => Do::DropHeld(small_fence(*fence)),
        IoStep::SweepHeld { keep } => Do::Sweep(small_fence(*keep)),
        IoStep::DropGuard => Do::DropGuard,
    }
}

fn come_to(outcome: &Outcome) -> ComesTo {
    match outcome {
        Outcome::Granted(grant) => ComesTo::Granted(small_fence(grant.fence)),
        Outcome::Renewed(_) => ComesTo::Renewed,
        Outcome::Released => ComesTo::Released,
        Outcome::Saved => ComesTo::Saved,
        Outcome::StaleBase => ComesTo::StaleBase,
        _ => ComesTo::Refused,
    }
}
