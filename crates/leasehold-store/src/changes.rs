//! What a transaction changes: the one way from decisions to what a store has to write.
//!
//! A store brings the slot and what it knows about the caller, [`Changes`] has the rules decide, and collects what follows:
//! new slots and jobs, lease ids to remember as ended, events, and the fence counter. It is plain data: each store lays it
//! out in rows or fields of its own.

use leasehold_core::job::{self, Job, JobCommand, JobOutcome, Record};
use leasehold_core::lease::LossReason;
use leasehold_core::{Command, Context, Decision, Event, Key, LeaseId, Outcome, Slot, StoreTime, decide};

/// A lease id that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub at: StoreTime,
    pub key: Key,
    pub lease_id: LeaseId,
    pub because: LossReason,
}

/// What a store knows about the caller of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Why the command's lease id is over, if the store remembers that it is.
    pub remembered: Option<LossReason>,
    /// Whether the command's bidder already holds as many leases as it may.
    pub owner_is_full: bool,
    /// Whether the asker of a pending request to hand over does.
    pub asker_is_full: bool,
}

/// What one transaction writes: whole or not at all.
#[derive(Debug)]
pub struct Changes {
    /// When it was decided.
    pub now: StoreTime,
    /// The last fence given out.
    pub last_fence: u64,
    /// The new slots.
    pub slots: Vec<(Key, Slot)>,
    /// The new jobs.
    pub jobs: Vec<(Key, Job)>,
    /// The lease ids to remember as ended.
    pub endings: Vec<Ending>,
    /// What has happened, in order.
    pub events: Vec<Event>,
}

impl Changes {
    /// Nothing so far, at `now`, when `last_fence` is the last one given out.
    #[inline]
    pub fn new(now: StoreTime, last_fence: u64) -> Self {
        let (slots, jobs, endings, events) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { now, last_fence, slots, jobs, endings, events }
    }

    /// Decides a command on a key whose slot is `slot`, and adds what follows.
    #[inline]
    pub fn decide(&mut self, key: &Key, slot: &Slot, command: &Command, known: Known) -> Outcome {
        let decision = decide(key, slot, command, &self.context(known));
        self.take_in(key, decision)
    }

    /// The same for a command about a job; answers the record as it is then, too.
    #[inline]
    pub fn decide_job(
        &mut self,
        key: &Key,
        record: &Record,
        command: &JobCommand,
        known: Known,
    ) -> (JobOutcome, Record) {
        let decided = job::decide(key, record, command, &self.context(known));
        let changed = decided.record.job.as_ref().filter(|_| decided.job_changed);
        self.jobs.extend(changed.map(|job| (key.clone(), job.clone())));
        self.take_in(key, decided.lease);
        (decided.outcome, decided.record)
    }

    /// Whether there is nothing to write.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.jobs.is_empty() && self.endings.is_empty()
    }

    #[inline]
    fn context(&self, known: Known) -> Context {
        let Known { remembered, owner_is_full, asker_is_full } = known;
        Context { now: self.now, last_fence: self.last_fence, remembered, owner_is_full, asker_is_full }
    }

    #[inline]
    fn take_in(&mut self, key: &Key, decision: Decision) -> Outcome {
        let at = self.now;
        self.last_fence = decision.last_fence;
        self.slots.extend(decision.slot.map(|slot| (key.clone(), slot)));
        let ended = decision.ended.into_iter();
        self.endings.extend(ended.map(|(lease_id, because)| Ending {
            at,
            key: key.clone(),
            lease_id,
            because,
        }));
        self.events.extend(decision.events);
        decision.outcome
    }
}
