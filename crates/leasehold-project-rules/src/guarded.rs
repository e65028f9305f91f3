//! What happens inside the guard: the one function that decides about `project/.lock`. A shell takes the guard, reads,
//! asks here, does what it is told in the order it is told, and lets the guard go. It must never decide anything itself.
//!
//! The order of [`Step`]s is chosen so that a crash between any two leaves the folder safe:
//!
//! 1. **The fence into the guard.** A fence that was given out and never used is no harm; one that is used twice is.
//! 2. **The own held file.** It is open before `.lock` says so: a record that names a free held file belongs to a dead
//!    holder, always. (A crash in between leaves a file that nobody names; the next holder sweeps it.)
//! 3. **`.lock`, by a temporary file that takes its place.** From here on the lock is taken. A crash now closes the held
//!    file, so the next one who asks sees at once that the holder is dead.
//!
//! Releasing goes the other way: `.lock` is removed first, the held file closed after it.

use leasehold_core::lease::{self, Bid, Claim, Command, Context, Held, Lease, Slot};
use leasehold_core::name::{Fence, Key, LeaseId, Owner, Reason};
use leasehold_core::time::{StoreTime, Ttl};

use super::record::{self, Content, End, Record};

/// What is wanted of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take the lock, if it is free.
    Acquire(Bid),
    /// Keep it.
    Renew {
        /// Whose it is.
        claim: Claim,
        /// For how long from now on.
        ttl: Ttl,
    },
    /// Give it back.
    Release(Claim),
    /// Take it from whoever has it.
    TakeOver {
        /// The fence of the lease that is to be taken, as the taker saw it; whichever it is when absent.
        seen: Option<Fence>,
        /// Who takes it.
        bid: Bid,
        /// Why.
        reason: Reason,
    },
    /// May this holder save? Asked in the same guarded section that saves.
    Commit(Claim),
    /// Is it free? Changes nothing.
    Look,
}

/// What was read under the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// `.lock`.
    pub lock: LockFile,
    /// The text of the guard; empty when it is new.
    pub guard: String,
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

/// What a look at a held file said: tried to open exclusively, and closed again if that worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Probe {
    /// It was not asked for, is missing, or cannot be told: time alone decides.
    #[default]
    Unknown,
    /// Nobody has it open: its holder is dead.
    Free,
    /// Somebody has it open: its holder lives, or is frozen.
    Busy,
}

impl Probe {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 3] =
        [(Self::Unknown, "unknown"), (Self::Free, "free"), (Self::Busy, "busy")];
}

/// A guarded section, after reading and before deciding.
#[derive(Clone, Debug)]
pub struct Section {
    action: Action,
    lock: Read,
    last_fence: Option<u64>,
}

/// What was made of `.lock`.
#[derive(Clone, Debug)]
enum Read {
    Missing,
    Record {
        record: Record,
        modified: StoreTime,
    },
    /// Somebody's, who is not known: damaged, or not readable although one sees when it was modified.
    Unknown {
        modified: StoreTime,
        unreadable: Option<String>,
    },
    Newer {
        version: u64,
    },
    Unreadable {
        said: String,
    },
}

/// What to do, in this order, and what it comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What to do. If a step fails that may not ([`Step::may_fail`]), stop, close [`held`](Self::held), and report the error
    /// instead of the outcome.
    pub steps: Vec<Step>,
    /// What it comes to, once all steps are done.
    pub outcome: Outcome,
    /// Whether some clock is wrong.
    pub skewed: bool,
}

/// Something to be done in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write this into the guard, in place, and flush it.
    StoreFence {
        /// The text.
        text: String,
    },
    /// Create and open the held file of this fence exclusively, and keep it open; fine if this tab already does.
    OpenHeld(Fence),
    /// Write this to a temporary file, flush it, and let it take the place of `.lock`. It must not say `held` if the held file
    /// of this section could not be opened.
    WriteLock(Record),
    /// Remove `.lock`; fine if it is gone.
    RemoveLock,
    /// Close the held file of this fence and remove it.
    CloseHeld(Fence),
    /// Remove every other held file that nobody has open.
    SweepHeld {
        /// All but this one.
        keep: Fence,
    },
}

impl Step {
    /// Whether it goes on if this step fails.
    pub const fn may_fail(&self) -> bool {
        matches!(self, Self::OpenHeld(_) | Self::CloseHeld(_) | Self::SweepHeld { .. })
    }
}

/// What a guarded section comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is yours.
    Granted(Grant),
    /// It still is.
    Renewed(Grant),
    /// It is anybody's.
    Released,
    /// Somebody else has it.
    Held(Other),
    /// It is not yours any more.
    Lost(Loss),
    /// Yours: save now, before the guard is let go.
    MayCommit,
    /// Nobody has it.
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
    /// Whom it was taken from, if somebody had it.
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

/// Somebody else, who has the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Who.
    pub owner: Owner,
    /// Its fence, for a take-over to name.
    pub fence: Fence,
    /// Until when, unless it is renewed, by the wall clock.
    pub until: StoreTime,
}

/// Why a lease is not yours any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Its time ran out.
    Expired,
    /// `.lock` is somebody else's.
    Replaced,
    /// There is no `.lock`.
    Missing,
}

impl Section {
    /// What is wanted, and what was read.
    pub fn new(action: Action, found: &Found) -> Self {
        let lock = match &found.lock {
            LockFile::Missing => Read::Missing,
            LockFile::Read { content, modified } => match content {
                Content::Record(record) => Read::Record { record: record.clone(), modified: *modified },
                Content::Damaged => Read::Unknown { modified: *modified, unreadable: None },
                Content::Newer { version } => Read::Newer { version: *version },
            },
            LockFile::Unreadable { modified: Some(modified), said } => {
                Read::Unknown { modified: *modified, unreadable: Some(said.clone()) }
            }
            LockFile::Unreadable { modified: None, said } => Read::Unreadable { said: said.clone() },
        };
        Self { action, lock, last_fence: record::read_guard(&found.guard) }
    }

    /// The held file to look at before deciding, if that would tell anything: the one that the record names, when it is
    /// somebody else's.
    pub fn probe(&self) -> Option<Fence> {
        let Read::Record { record, .. } = &self.lock else { return None };
        let own = match &self.action {
            Action::Acquire(bid) | Action::TakeOver { bid, .. } => bid.lease_id == record.lease_id,
            Action::Look => false,
            Action::Renew { .. } | Action::Release(_) | Action::Commit(_) => true,
        };
        record.fence.filter(|_| record.held && !own)
    }

    /// What to do, given what the probe said.
    pub fn decide(&self, probe: Probe, now: StoreTime) -> Verdict {
        match &self.lock {
            Read::Newer { version } => Verdict::without_steps(Outcome::Newer { version: *version }),
            Read::Unreadable { said } => Verdict::without_steps(Outcome::Unreadable { said: said.clone() }),
            Read::Unknown { modified, unreadable: Some(said) } if now < End::untold(*modified).at => {
                Verdict::without_steps(Outcome::Unreadable { said: said.clone() })
            }
            Read::Missing => Deciding::new(self, None, probe, now).decide(),
            Read::Record { record, modified } => {
                let end = End::of(record, *modified, now);
                Deciding::new(self, Some((record.clone(), end)), probe, now).decide()
            }
            Read::Unknown { modified, .. } => {
                let found = (record::unknown(*modified), End::untold(*modified));
                Deciding::new(self, Some(found), probe, now).decide()
            }
        }
    }
}

impl Verdict {
    /// The held file to close when a step has failed. It must not be removed: if `.lock` names it after all, because the
    /// step took effect before it failed or the old `.lock` could not be removed, it then belongs to a dead holder, and
    /// can be taken at once. (Who reads `.lock` again and does not find it named there may remove it.)
    pub fn held(&self) -> Option<Fence> {
        self.steps.iter().find_map(|step| match step {
            Step::OpenHeld(fence) | Step::CloseHeld(fence) => Some(*fence),
            _ => None,
        })
    }

    fn without_steps(outcome: Outcome) -> Self {
        Self { steps: Vec::new(), outcome, skewed: false }
    }
}

/// One decision in the making.
struct Deciding<'a> {
    action: &'a Action,
    found: Option<Record>,
    slot: Slot,
    dead: bool,
    skewed: bool,
    last_fence: u64,
    now: StoreTime,
}

impl<'a> Deciding<'a> {
    fn new(section: &'a Section, found: Option<(Record, End)>, probe: Probe, now: StoreTime) -> Self {
        let in_record = found.as_ref().and_then(|(record, _)| record.fence).map_or(0, Fence::get);
        // A new or damaged guard: fences begin at the wall clock, so that they grow even if the folder was made anew.
        let last_fence = section.last_fence.unwrap_or_else(|| now.as_millis()).max(in_record);
        let dead = probe == Probe::Free;
        let skewed = found.as_ref().is_some_and(|(_, end)| end.skewed);
        let slot = match &found {
            None => Slot::unknown(0),
            // A dead holder's lease is over now, whatever it was promised.
            Some((record, end)) => record::slot(record, if dead { now } else { end.at }, last_fence),
        };
        let found = found.map(|(record, _)| record);
        Self { action: &section.action, found, slot, dead, skewed, last_fence, now }
    }

    fn decide(self) -> Verdict {
        match self.action {
            Action::Acquire(bid) => self.granted(&Command::Acquire(bid.clone())),
            Action::TakeOver { seen, bid, reason } => self.take_over(*seen, bid, reason),
            Action::Renew { claim, ttl } => self.renew(*claim, *ttl),
            Action::Release(claim) => self.release(*claim),
            Action::Commit(claim) => self.commit(*claim),
            Action::Look => self.look(),
        }
    }

    fn take_over(&self, seen: Option<Fence>, bid: &Bid, reason: &Reason) -> Verdict {
        let current = self.slot.lease.as_ref().map(|lease| lease.fence);
        match seen.or(current) {
            None => self.granted(&Command::Acquire(bid.clone())),
            Some(seen) => self.granted(&Command::TakeOver { seen, bid: bid.clone(), reason: reason.clone() }),
        }
    }

    fn granted(&self, command: &Command) -> Verdict {
        let decision = self.ask(command);
        match decision.outcome {
            lease::Outcome::Granted { lease, extended } => {
                let mut steps = Vec::new();
                if !extended {
                    let text = record::guard_text(decision.last_fence);
                    steps.push(Step::StoreFence { text });
                }
                steps.push(Step::OpenHeld(lease.fence));
                steps.push(self.write(&lease, true));
                steps.push(Step::SweepHeld { keep: lease.fence });
                self.verdict(steps, Outcome::Granted(self.grant(&lease, extended)))
            }
            lease::Outcome::Held(held) => self.verdict(Vec::new(), Outcome::Held(other(&held))),
            lease::Outcome::Lost { held: Some(held), .. } => {
                self.verdict(Vec::new(), Outcome::Held(other(&held)))
            }
            // Its own lease id, expired just now: it may not be granted again.
            lease::Outcome::Lost { held: None, .. } => self.verdict(Vec::new(), Outcome::Lost(Loss::Expired)),
            _ => self.verdict(Vec::new(), Outcome::FencesExhausted),
        }
    }

    fn renew(&self, claim: Claim, ttl: Ttl) -> Verdict {
        match self.ask(&Command::Renew { claim, ttl: Some(ttl) }).outcome {
            lease::Outcome::Renewed(lease) => {
                let held = self.found.as_ref().is_some_and(|record| record.held);
                let steps = vec![self.write(&lease, held)];
                self.verdict(steps, Outcome::Renewed(self.grant(&lease, true)))
            }
            _ => self.verdict(Vec::new(), Outcome::Lost(self.loss(claim))),
        }
    }

    /// Whoever releases lets go of its held file in any case: if `.lock` stays, it belongs to a dead holder.
    fn release(&self, claim: Claim) -> Verdict {
        let close = Step::CloseHeld(claim.fence);
        match self.ask(&Command::Release(claim)).outcome {
            lease::Outcome::Released => self.verdict(vec![Step::RemoveLock, close], Outcome::Released),
            // Expired, and nobody has come since: it may as well be gone.
            _ if self.loss(claim) == Loss::Expired => {
                self.verdict(vec![Step::RemoveLock, close], Outcome::Lost(Loss::Expired))
            }
            _ => self.verdict(vec![close], Outcome::Lost(self.loss(claim))),
        }
    }

    /// A holder may save as long as it could renew.
    fn commit(&self, claim: Claim) -> Verdict {
        match self.ask(&Command::Renew { claim, ttl: None }).outcome {
            lease::Outcome::Renewed(_) => self.verdict(Vec::new(), Outcome::MayCommit),
            _ => self.verdict(Vec::new(), Outcome::Lost(self.loss(claim))),
        }
    }

    fn look(&self) -> Verdict {
        let outcome = match self.slot.live(self.now) {
            Some(lease) => Outcome::Held(other(&Held::from(lease))),
            None if self.last_fence >= Fence::MAX.get() => Outcome::FencesExhausted,
            None => Outcome::Free,
        };
        self.verdict(Vec::new(), outcome)
    }

    fn ask(&self, command: &Command) -> lease::Decision {
        let context =
            Context { now: self.now, last_fence: self.last_fence, remembered: None, owner_is_full: false };
        lease::decide(&key(), &self.slot, command, &context)
    }

    fn write(&self, lease: &Lease, held: bool) -> Step {
        let seq = self.found.as_ref().map_or(0, |record| record.seq).saturating_add(1);
        Step::WriteLock(Record::of(lease, seq, held))
    }

    fn grant(&self, lease: &Lease, extended: bool) -> Grant {
        let after = match &self.slot.lease {
            None => None,
            Some(_) if extended => None,
            Some(_) if self.dead => Some(After::Dead),
            Some(before) if before.is_expired(self.now) => Some(After::Expired),
            Some(_) => Some(After::TakenOver),
        };
        let ttl = Ttl::new(lease.expires_at.since(lease.renewed_at)).unwrap_or(lease.ttl);
        Grant { lease_id: lease.lease_id, fence: lease.fence, ttl, at: lease.renewed_at, after }
    }

    fn loss(&self, claim: Claim) -> Loss {
        match &self.slot.lease {
            None => Loss::Missing,
            Some(lease) if lease.lease_id == claim.lease_id && lease.fence == claim.fence => Loss::Expired,
            Some(_) => Loss::Replaced,
        }
    }

    fn verdict(&self, steps: Vec<Step>, outcome: Outcome) -> Verdict {
        Verdict { steps, outcome, skewed: self.skewed }
    }
}

fn other(held: &Held) -> Other {
    Other { owner: held.by.clone(), fence: held.fence, until: held.until }
}

fn key() -> Key {
    // `expect` would bring the means to show the error, which is part of what a page has to load.
    Key::parse("project/folder").unwrap_or_else(|_| unreachable!("a constant that parses"))
}
