//! What is decided inside the guard: one pure function of what is wanted and what was read. The machine in
//! [`section`](crate::section) asks it, and has the [`IoStep`]s done; no shell decides anything.
//!
//! The order of the steps is chosen so that a crash between any two leaves the folder safe:
//!
//! 1. **The fence into the guard.** A fence that was given out and never used is no harm; one that is used twice is.
//! 2. **The own held file.** It is open before `.lock` says so: a record that names a free held file belongs to a dead
//!    holder, always. (A crash in between leaves a file that no record names; the next holder sweeps it.)
//! 3. **`.lock`, by a temporary file that takes its place.** From here on the lock is taken. A crash now closes the held
//!    file, so the next caller sees at once that the holder is dead.
//!
//! Releasing goes the other way: `.lock` is removed first, the held file closed after it.

use leasehold_core::lease::{self, Bid, Context, Lease, Proof, Slot};
use leasehold_core::name::{Fence, Key, LeaseId, Meta, Owner, Reason};
use leasehold_core::time::{StoreTime, Ttl};

use super::effect::CallId;
use super::record::{self, Content, End, Record};
use super::section::IoStep;

/// What is wanted of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take the lock, if it is free.
    Acquire(Bid),
    /// Keep it.
    Renew {
        /// Whose it is.
        claim: Proof,
        /// For how long from now on.
        ttl: Ttl,
    },
    /// Give it back.
    Release(Proof),
    /// Take it from its holder.
    TakeOver {
        /// The fence of the lease that is to be taken, as the taker saw it; any lease when absent.
        seen: Option<Fence>,
        /// Who takes it.
        bid: Bid,
        /// Why.
        reason: Reason,
        /// Whether also where clocks disagree, so that nobody knows whether the holder lives.
        despite_skew: bool,
    },
    /// Replace a file of the project, if the claim is good: checked in the same guarded section that swaps the file.
    Save {
        /// Whose lease.
        claim: Proof,
        /// The call that saves; the shell has its file.
        call: CallId,
    },
    /// Is it free? Changes nothing.
    Look,
}

impl Action {
    /// Whether it is to get the lock.
    pub(crate) const fn acquires(&self) -> bool {
        matches!(self, Self::Acquire(_) | Self::TakeOver { .. })
    }
}

/// What was read under the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// `.lock`.
    pub lock: LockFile,
    /// The last fence that the guard has; absent when the guard is new or damaged.
    pub last_fence: Option<u64>,
}

/// What was read of `.lock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockFile {
    /// There is none.
    Missing,
    /// It was read.
    Read {
        /// What it says.
        content: Content,
        /// When the file was last modified, by the wall clock.
        modified: StoreTime,
    },
    /// It is there and cannot be read.
    Unreadable {
        /// When it was last modified, if that is known.
        modified: Option<StoreTime>,
        /// What the system said.
        said: String,
    },
}

impl LockFile {
    /// Whether a `.lock` that names the held file of this fence may be there. One that cannot be read may.
    pub(crate) fn may_name(&self, fence: Fence) -> bool {
        match self {
            Self::Missing => false,
            Self::Read { content: Content::Record(record), .. } => record.fence == Some(fence),
            Self::Read { .. } => false,
            Self::Unreadable { .. } => true,
        }
    }
}

/// What a look at a held file said: tried to open exclusively, and closed again if that worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Probe {
    /// It was not asked for, is missing, or cannot be told: time alone decides.
    #[default]
    Unknown,
    /// It is not open: its holder is dead.
    Free,
    /// It is open: its holder lives, or is frozen.
    Busy,
}

impl Probe {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 3] =
        [(Self::Unknown, "unknown"), (Self::Free, "free"), (Self::Busy, "busy")];
}

/// The steps to take, in this order, and what they come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The steps.
    pub steps: Vec<IoStep>,
    /// What it comes to, once all steps are done.
    pub outcome: Outcome,
    /// Whether some clock is wrong.
    pub skewed: bool,
    /// Who has the project instead, where a lease is lost.
    pub holder: Option<Box<Holder>>,
}

/// What a guarded section comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock was granted.
    Granted(Grant),
    /// The lease was renewed.
    Renewed(Grant),
    /// The lock was released.
    Released,
    /// Another holder has it.
    Held(Holder),
    /// The lease of the claim is over.
    Lost(Loss),
    /// The claim was good, and the file was replaced.
    Saved,
    /// The claim was good. The file has another version than the save was made from, and was not replaced.
    StaleBase,
    /// There is no holder.
    Free,
    /// `.lock` cannot be read, and is too young to be replaced.
    Unreadable {
        /// What the system said.
        said: String,
    },
    /// `.lock` was written by a newer version. It is not touched.
    Newer {
        /// Which.
        version: u64,
    },
    /// There is no fence left to give.
    FencesExhausted,
}

/// A lease as `.lock` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose.
    pub lease_id: LeaseId,
    /// Its fence.
    pub fence: Fence,
    /// How long it lasts in `.lock`.
    pub ttl: Ttl,
    /// When it was written.
    pub at: StoreTime,
    /// Whom it was taken from, if there was a holder.
    pub after: Option<After>,
}

/// Whom a lease was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum After {
    /// A holder whose time had run out.
    Expired,
    /// A holder that is dead.
    Dead,
    /// A live one, by force.
    TakenOver,
}

/// Who holds the project, as `.lock` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub owner: Owner,
    /// What the holder calls itself; [`label_text`](record::label_text) has the text.
    pub label: Meta,
    /// Its fence, for a take-over to name.
    pub fence: Fence,
    /// Since when, by the wall clock.
    pub since: StoreTime,
    /// Until when, unless it is renewed, by the wall clock.
    pub until: StoreTime,
}

/// Why a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Its time ran out.
    Expired,
    /// `.lock` names another lease.
    Replaced,
    /// There is no `.lock`.
    Missing,
}

/// The held file to look at before deciding, if that would tell anything: the one that the record names, when it is
/// another holder's.
pub fn probe(action: &Action, found: &Found) -> Option<Fence> {
    let LockFile::Read { content: Content::Record(record), .. } = &found.lock else { return None };
    let own = match action {
        Action::Acquire(bid) | Action::TakeOver { bid, .. } => bid.lease_id == record.lease_id,
        Action::Look => false,
        Action::Renew { .. } | Action::Release(_) | Action::Save { .. } => true,
    };
    record.fence.filter(|_| record.held && !own)
}

/// What to do about what was read, given what the probe said.
pub fn decide(action: &Action, found: &Found, probe: Probe, now: StoreTime) -> Verdict {
    let (record, end) = match &found.lock {
        LockFile::Missing => return Deciding::new(action, found, None, probe, now).decide(),
        LockFile::Read { content: Content::Newer { version }, .. } => {
            return Verdict::without_steps(Outcome::Newer { version: *version });
        }
        LockFile::Unreadable { modified, said }
            if modified.is_none_or(|modified| now < End::untold(modified).at) =>
        {
            return Verdict::without_steps(Outcome::Unreadable { said: said.clone() });
        }
        LockFile::Read { content: Content::Record(record), modified } => {
            (record.clone(), End::of(record, *modified, now))
        }
        // A holder that is not known: damaged, or not readable although one sees when it was modified.
        LockFile::Read { modified, .. } => (record::unknown(*modified), End::untold(*modified)),
        LockFile::Unreadable { modified, .. } => {
            let modified = modified.unwrap_or_default();
            (record::unknown(modified), End::untold(modified))
        }
    };
    Deciding::new(action, found, Some((record, end)), probe, now).decide()
}

impl Verdict {
    /// The held file that these steps are about.
    pub(crate) fn held(&self) -> Option<Fence> {
        self.steps.iter().find_map(|step| match step {
            IoStep::OpenHeld(fence) | IoStep::CloseHeld(fence) => Some(*fence),
            _ => None,
        })
    }

    fn without_steps(outcome: Outcome) -> Self {
        Self { steps: Vec::new(), outcome, skewed: false, holder: None }
    }
}

/// One decision in the making.
struct Deciding<'a> {
    action: &'a Action,
    found: Option<Record>,
    key: Key,
    slot: Slot,
    context: Context,
    dead: bool,
    skewed: bool,
}

impl<'a> Deciding<'a> {
    fn new(
        action: &'a Action,
        read: &Found,
        found: Option<(Record, End)>,
        probe: Probe,
        now: StoreTime,
    ) -> Self {
        let in_record = found.as_ref().and_then(|(record, _)| record.fence).map_or(0, Fence::get);
        // A new or damaged guard: fences begin at the wall clock, so that they grow even if the folder was made anew. A
        // guard that is whole may still be older than the record, when it came from a backup.
        let last_fence = read.last_fence.unwrap_or_else(|| now.as_millis()).max(in_record);
        let dead = probe == Probe::Free;
        let skewed = found.as_ref().is_some_and(|(_, end)| end.skewed);
        let slot = match &found {
            None => Slot::unknown(0),
            // A dead holder's lease is over now, whatever it was promised.
            Some((record, end)) => record::slot(record, if dead { now } else { end.at }, last_fence),
        };
        let found = found.map(|(record, _)| record);
        let context =
            Context { now, last_fence, remembered: None, owner_is_full: false, asker_is_full: false };
        Self { action, found, key: Key::of_project_folder(), slot, context, dead, skewed }
    }

    fn decide(self) -> Verdict {
        match self.action {
            Action::Acquire(bid) => self.acquire(bid),
            Action::TakeOver { despite_skew: false, .. } if self.skewed => self.look(),
            Action::TakeOver { seen, bid, reason, .. } => self.take_over(*seen, bid, reason),
            Action::Renew { claim, ttl } => self.renew(*claim, *ttl),
            Action::Release(claim) => self.release(*claim),
            Action::Save { claim, call } => self.save(*claim, *call),
            Action::Look => self.look(),
        }
    }

    fn acquire(&self, bid: &Bid) -> Verdict {
        self.granted(lease::acquire(&self.key, &self.slot, bid, &self.context))
    }

    fn take_over(&self, seen: Option<Fence>, bid: &Bid, reason: &Reason) -> Verdict {
        let current = self.slot.lease.as_ref().map(|lease| lease.fence);
        let Some(seen) = seen.or(current) else { return self.acquire(bid) };
        self.granted(lease::take_over(&self.key, &self.slot, seen, bid, reason, &self.context))
    }

    fn granted(&self, decision: lease::Decision) -> Verdict {
        match decision.outcome {
            lease::Outcome::Granted { lease, extended } => {
                let mut steps = Vec::new();
                if !extended {
                    steps.push(IoStep::WriteGuard(decision.last_fence));
                }
                steps.push(IoStep::OpenHeld(lease.fence));
                steps.push(self.write(&lease, true));
                steps.push(IoStep::SweepHeld { keep: lease.fence });
                self.verdict(steps, Outcome::Granted(self.grant(&lease, extended)))
            }
            lease::Outcome::Held(_) | lease::Outcome::Lost { held: Some(_), .. } => self.look(),
            // Its own lease id, expired just now: it may not be granted again.
            lease::Outcome::Lost { held: None, .. } => self.verdict(Vec::new(), Outcome::Lost(Loss::Expired)),
            _ => self.verdict(Vec::new(), Outcome::FencesExhausted),
        }
    }

    fn renew(&self, claim: Proof, ttl: Ttl) -> Verdict {
        match self.renewed(claim, Some(ttl)) {
            lease::Outcome::Renewed(lease) => {
                let held = self.found.as_ref().is_some_and(|record| record.held);
                let steps = vec![self.write(&lease, held)];
                self.verdict(steps, Outcome::Renewed(self.grant(&lease, true)))
            }
            _ => self.verdict(Vec::new(), Outcome::Lost(self.loss(claim))),
        }
    }

    /// A release closes the held file in any case: if `.lock` stays, it belongs to a dead holder.
    fn release(&self, claim: Proof) -> Verdict {
        let close = IoStep::CloseHeld(claim.fence);
        match lease::release(&self.key, &self.slot, &claim.into(), &self.context).outcome {
            lease::Outcome::Released => self.verdict(vec![IoStep::RemoveLock, close], Outcome::Released),
            // Expired, and no other holder has come since: it may as well be gone.
            _ if self.loss(claim) == Loss::Expired => {
                self.verdict(vec![IoStep::RemoveLock, close], Outcome::Lost(Loss::Expired))
            }
            _ => self.verdict(vec![close], Outcome::Lost(self.loss(claim))),
        }
    }

    /// A holder may save as long as it could renew.
    fn save(&self, claim: Proof, call: CallId) -> Verdict {
        match self.renewed(claim, None) {
            lease::Outcome::Renewed(_) => self.verdict(vec![IoStep::Save(call)], Outcome::Saved),
            _ => self.verdict(Vec::new(), Outcome::Lost(self.loss(claim))),
        }
    }

    fn look(&self) -> Verdict {
        let outcome = match self.slot.live(self.context.now) {
            Some(lease) => Outcome::Held(Holder::of(lease)),
            None if self.context.last_fence >= Fence::MAX.get() => Outcome::FencesExhausted,
            None => Outcome::Free,
        };
        self.verdict(Vec::new(), outcome)
    }

    fn renewed(&self, claim: Proof, ttl: Option<Ttl>) -> lease::Outcome {
        lease::renew(&self.key, &self.slot, &claim.into(), ttl, &self.context).outcome
    }

    fn write(&self, lease: &Lease, held: bool) -> IoStep {
        let seq = self.found.as_ref().map_or(0, |record| record.seq).saturating_add(1);
        IoStep::WriteLock(Record::of(lease, seq, held))
    }

    fn grant(&self, lease: &Lease, extended: bool) -> Grant {
        let after = match &self.slot.lease {
            None => None,
            Some(_) if extended => None,
            Some(_) if self.dead => Some(After::Dead),
            Some(before) if before.is_expired(self.context.now) => Some(After::Expired),
            Some(_) => Some(After::TakenOver),
        };
        let ttl = Ttl::new(lease.expires_at.since(lease.renewed_at)).unwrap_or(lease.ttl);
        Grant { lease_id: lease.lease_id, fence: lease.fence, ttl, at: lease.renewed_at, after }
    }

    fn loss(&self, claim: Proof) -> Loss {
        match &self.slot.lease {
            None => Loss::Missing,
            Some(lease) if lease.lease_id == claim.lease_id && lease.fence == claim.fence => Loss::Expired,
            Some(_) => Loss::Replaced,
        }
    }

    fn verdict(&self, steps: Vec<IoStep>, outcome: Outcome) -> Verdict {
        let instead = self.slot.live(self.context.now).filter(|_| outcome == Outcome::Lost(Loss::Replaced));
        let holder = instead.map(|lease| Box::new(Holder::of(lease)));
        Verdict { steps, outcome, skewed: self.skewed, holder }
    }
}

impl Holder {
    fn of(lease: &Lease) -> Self {
        Self {
            owner: lease.owner.clone(),
            label: lease.meta.clone(),
            fence: lease.fence,
            since: lease.acquired_at,
            until: lease.expires_at,
        }
    }
}
