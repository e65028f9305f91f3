//! The guarded sections of one tab: one at a time, in the order in which they were asked for. What is wanted of each, and
//! what it comes to, is the rest of the machine's; how each goes is [`Section`]'s.

use leasehold_core::lease::Proof;
use leasehold_core::time::HolderTime;

use super::{ProjectLock, stir};
use crate::clock::Now;
use crate::effect::{CallId, IoError, Save, Ticket};
use crate::guarded::Action;
use crate::section::{Conclusion, IoReply, IoStep, Section, take_first};
use crate::version::{Version, Versions};

/// What a section is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// An acquire, a renewal, a release or a look.
    Machine(Ticket),
    /// A save.
    Save(CallId, Box<Save>),
    /// None: the application has read this version of a file. It waits for its turn, because the saves that were asked for
    /// before were made from an older one.
    Saw(String, Version),
}

/// The section that is under way, and those that wait for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sections {
    waiting: Vec<(Purpose, Action)>,
    current: Option<(Purpose, Section)>,
    /// Whether the step of the current one was polled, and not answered yet.
    is_out: bool,
    spread: u64,
    /// What this tab has read and written.
    pub(super) versions: Versions,
}

impl Sections {
    pub(super) fn new(seed: &[u8; 16]) -> Self {
        let seed = u128::from_le_bytes(*seed);
        Self { spread: (seed >> 64) as u64 ^ seed as u64, ..Self::default() }
    }

    pub(super) fn push(&mut self, purpose: Purpose, action: Action) {
        self.waiting.push((purpose, action));
    }

    /// Forgets a section that waits for its turn, or for the guard.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        let is_it = |purpose: &Purpose| matches!(purpose, Purpose::Machine(waits) if *waits == ticket);
        self.waiting.retain(|(purpose, _)| !is_it(purpose));
        self.current.take_if(|(purpose, section)| is_it(purpose) && section.poll_timeout().is_some());
    }

    /// Takes the force out of a section that waits, or has not begun to write. Answers whether none is left.
    pub(super) fn call_off_force(&mut self, ticket: Ticket) -> bool {
        for (purpose, action) in &mut self.waiting {
            if let (Purpose::Machine(waits), Action::TakeOver { bid, .. }) = (purpose, &*action)
                && *waits == ticket
            {
                *action = Action::Acquire(bid.clone());
            }
        }
        match &mut self.current {
            Some((Purpose::Machine(runs), section)) if *runs == ticket => section.call_off_force(),
            _ => true,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.waiting.is_empty()
    }

    /// The next step. A page that is frozen finishes what is under way, and takes no guard.
    pub(super) fn poll_step(&mut self, frozen: bool) -> Option<IoStep> {
        while self.current.is_none() {
            if frozen {
                return None;
            }
            let (purpose, action) = take_first(&mut self.waiting)?;
            self.begin(purpose, action);
        }
        let (_, section) = self.current.as_ref().filter(|_| !self.is_out)?;
        let step = section.poll_step()?;
        if frozen && matches!(step, IoStep::TakeGuard { .. }) {
            return None;
        }
        self.is_out = true;
        Some(step)
    }

    /// What is expected of the files is settled now: a save that came before has changed it.
    fn begin(&mut self, purpose: Purpose, action: Action) {
        let files = match &purpose {
            Purpose::Save(_, save) => {
                self.versions.replaceable(&save.path, &save.base, &save.version).into_iter().collect()
            }
            Purpose::Machine(_) if action.acquires() => self.versions.all(),
            Purpose::Machine(_) => Vec::new(),
            Purpose::Saw(path, version) => return self.versions.saw(path, version),
        };
        self.spread = stir(self.spread);
        let section = Section::new(action, self.spread as u32).expecting(files);
        self.current = Some((purpose, section));
    }

    pub(super) fn poll_timeout(&self) -> Option<HolderTime> {
        self.current.as_ref()?.1.poll_timeout()
    }

    /// An answer to nothing is dropped.
    pub(super) fn handle(&mut self, reply: IoReply, now: Now) {
        if let (true, Some((_, section))) = (std::mem::take(&mut self.is_out), &mut self.current) {
            section.handle(reply, now);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Now) {
        if let Some((_, section)) = &mut self.current {
            section.handle_timeout(now);
        }
    }

    /// The claim of the save that is under way.
    fn save(&mut self) -> Option<(Proof, &mut Section)> {
        match &mut self.current {
            Some((Purpose::Save(_, save), section)) => Some((save.claim, section)),
            _ => None,
        }
    }

    /// What the current section came to, if it is over.
    fn take_result(&mut self) -> Option<(Purpose, Result<Conclusion, IoError>)> {
        let (purpose, section) = self.current.take()?;
        match section.result() {
            Some(result) => Some((purpose, result.clone())),
            None => {
                self.current = Some((purpose, section));
                None
            }
        }
    }
}

impl ProjectLock {
    /// A step of the current section was answered: hears what the section came to, if it is over.
    pub(super) fn go_on_with_section(&mut self, now: Now) {
        let may_save = self.claim(now);
        if let Some((claim, section)) = self.out.sections.save()
            && may_save != Some(claim)
        {
            // The holder's own deadline has passed while the save waited for the guard.
            section.call_off_save();
        }
        let Some((purpose, result)) = self.out.sections.take_result() else { return };
        match (purpose, result) {
            (Purpose::Machine(ticket), Ok(conclusion)) => self.handle_guarded(ticket, conclusion, now),
            (Purpose::Machine(ticket), Err(error)) => self.handle_io_error(ticket, &error, now),
            (Purpose::Save(call, save), result) => self.saved(call, &save, result, now),
            (Purpose::Saw(..), _) => {}
        }
    }
}
