//! Work that is to be done once: a lease that keeps the result of the work.
//!
//! [`decide`] must stay pure, like [`crate::lease::decide`], and never knows better than it: who holds a job, and until
//! when, is decided there and only there. What is added here is the job itself: whether there is one, whether it is
//! finished, how often it was tried, and its result or error.

use std::time::Duration;

use crate::event::Event;
use crate::json::{Json, JsonError};
use crate::lease::{self, Bid, Claim, Command, Context, Decision, Held, Lease, LossReason, Outcome, Slot};
use crate::name::{Fence, Invalid, Key, LeaseId, Owner};
use crate::time::{StoreTime, Ttl};

/// How long a finished job is kept, so that a late copy of its task finds out that nothing is left to be done.
pub const KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A payload, a result or an error, as text. A payload or a result stands for a JSON value: [`Json::of_text`].
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct JobText(Box<str>);

impl JobText {
    /// The longest text, in bytes.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// A payload or a result in the one form that it has on every store: JSON as [`Json`] writes it, and text that is no
    /// JSON as it is. JSON that has a key twice is refused.
    pub fn value(text: &str) -> Result<Self, Invalid> {
        match Json::parse(text) {
            Ok(json) => Self::parse(&json.to_text()),
            Err(JsonError::NotJson) => Self::parse(text),
            Err(error) => {
                let fix = "or send it as a JSON string, if it is meant as text";
                Err(Invalid::new("job value", "(not shown)", error.to_string(), fix))
            }
        }
    }

    /// Takes the text as it is, if every store can keep it.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.contains('\0') {
            let rule = "it holds a NUL character, which databases cannot keep in a text";
            return Err(Invalid::new("job text", "(not shown)", rule, "leave it out, or send it as JSON"));
        }
        if text.len() > Self::MAX_BYTES {
            let rule = format!("at most {} bytes, this one has {}", Self::MAX_BYTES, text.len());
            let shown: String = text.chars().take(40).collect();
            return Err(Invalid::new("job text", &shown, rule, "keep it elsewhere, and its address here"));
        }
        Ok(Self(text.into()))
    }

    /// Takes the beginning of the text, up to 8 KiB, which are few enough in every store and on every way there: for the
    /// words of an error, which must not be lost because they are too many.
    pub fn clipped(text: &str) -> Self {
        let end = text.floor_char_boundary(Self::MAX_BYTES / 8);
        Self(text.get(..end).unwrap_or_default().replace('\0', " ").into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both texts stand for the same JSON value, in whatever form they were stored.
    pub fn is_same_value(&self, other: &Self) -> bool {
        self == other || Json::of_text(&self.0) == Json::of_text(&other.0)
    }
}

impl std::fmt::Debug for JobText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It may be long, and is user data.
        write!(f, "JobText({} bytes)", self.0.len())
    }
}

/// What is kept about a job, beside its lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// What is to be done. The same id with another payload is another job, and refused.
    pub payload: JobText,
    /// Whether it is done.
    pub status: Status,
    /// How many attempts were begun and not given back.
    pub attempts: u32,
    /// How many attempts there may be; unlimited when absent.
    pub max_attempts: Option<u32>,
    /// Whether an attempt was begun and has not ended. Without a live lease, its worker vanished.
    pub begun: bool,
    /// Since when it has been in this status.
    pub changed_at: StoreTime,
}

/// The status of a job. Whether a worker has it follows from its lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// To be done.
    Queued,
    /// Done.
    Ready {
        /// The result.
        result: JobText,
        /// The fence of the attempt that finished it.
        by: Fence,
    },
    /// Given up.
    Failed {
        /// Why.
        error: JobText,
        /// The fence of the attempt that failed it; absent when its attempts were used up.
        by: Option<Fence>,
    },
}

impl Job {
    /// A new job.
    fn new(payload: JobText, max_attempts: Option<u32>, now: StoreTime) -> Self {
        Self { payload, status: Status::Queued, attempts: 0, max_attempts, begun: false, changed_at: now }
    }

    /// Whether it is ready or failed.
    pub fn is_finished(&self) -> bool {
        self.status != Status::Queued
    }

    /// Whether it has been finished for so long that the store may forget it.
    pub fn is_forgettable(&self, now: StoreTime) -> bool {
        self.is_finished() && self.changed_at + KEPT <= now
    }

    /// The fence of the attempt that finished it.
    fn finished_by(&self) -> Option<Fence> {
        match &self.status {
            Status::Queued => None,
            Status::Ready { by, .. } => Some(*by),
            Status::Failed { by, .. } => *by,
        }
    }

    fn has_attempts_left(&self) -> bool {
        self.max_attempts.is_none_or(|most| self.attempts < most)
    }

    fn finish(&mut self, status: Status, now: StoreTime) {
        self.status = status;
        self.changed_at = now;
    }
}

/// Everything a store keeps under the key of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its lease, and the number of its last event.
    pub slot: Slot,
    /// The job, if there is one.
    pub job: Option<Job>,
}

/// Everything that can be asked of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobCommand {
    /// Make the job, unless it is there.
    Create {
        /// What is to be done.
        payload: JobText,
        /// How many attempts there may be.
        max_attempts: Option<u32>,
    },
    /// Begin an attempt, if the job is neither finished nor held.
    Acquire(Bid),
    /// Go on with it.
    Refresh {
        /// Whose attempt it is.
        claim: Claim,
        /// A new TTL from now on.
        ttl: Option<Ttl>,
    },
    /// Give it back unfinished. The attempt does not count.
    Release(Claim),
    /// Cancels everything under this lease id: an attempt that was begun with it, as if it had been given back, and an
    /// acquire that is still on its way.
    Withdraw {
        /// The lease id of the acquire.
        lease_id: LeaseId,
        /// Who acquired.
        owner: Owner,
    },
    /// It is done.
    Complete {
        /// Whose attempt it is.
        claim: Claim,
        /// The result.
        result: JobText,
    },
    /// The attempt failed.
    Fail {
        /// Whose attempt it is.
        claim: Claim,
        /// Why.
        error: JobText,
        /// Whether to try again, as long as there are attempts left.
        retryable: bool,
    },
    /// Queue it again, whatever its status.
    Reset,
    /// Do what is due, and nothing else.
    Settle,
}

impl JobCommand {
    /// The lease id that the command comes with: a store says whether it remembers that one as ended.
    pub fn lease_id(&self) -> Option<&LeaseId> {
        match self {
            Self::Acquire(bid) => Some(&bid.lease_id),
            Self::Refresh { claim, .. }
            | Self::Release(claim)
            | Self::Complete { claim, .. }
            | Self::Fail { claim, .. } => claim.lease_id(),
            Self::Withdraw { lease_id, .. } => Some(lease_id),
            Self::Create { .. } | Self::Reset | Self::Settle => None,
        }
    }

    /// The owner that would get a lease by this command; the store compares its number of leases with the limit.
    pub fn bidder(&self) -> Option<&Owner> {
        match self {
            Self::Acquire(bid) => Some(&bid.owner),
            _ => None,
        }
    }
}

/// The answer to a command. Not getting a job is a value like any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// The job is there now.
    Created,
    /// It was there before, with the same payload.
    Exists,
    /// There is a job with this id, and it is another one.
    Differs,
    /// There is no such job.
    Missing,
    /// The attempt is yours.
    Acquired {
        /// The lease.
        lease: Lease,
        /// Whether the worker before vanished.
        recovered: bool,
    },
    /// It is finished: the job has the result or the error.
    AlreadyFinished,
    /// Another worker has it.
    Locked(Held),
    /// You have it for another while.
    Refreshed(Lease),
    /// It was given back.
    Released,
    /// Nothing is left of the lease id.
    Withdrawn,
    /// The result is stored.
    Completed,
    /// The failure is stored.
    Failed {
        /// Whether there will be another attempt.
        again: bool,
    },
    /// The attempt is not yours, or not any more.
    Lost {
        /// Why.
        because: LossReason,
        /// The worker that has it now, if there is one.
        held: Option<Held>,
    },
    /// The lease id is right, and it is another worker's: the caller does not work on this job.
    NotYours(Held),
    /// It is to be done again.
    Reset,
    /// What was due has been done.
    Settled,
    /// The worker already holds as many leases as it may.
    OwnerIsFull,
    /// The store has given out its last fence.
    FencesExhausted,
}

/// The changes of one command. A store writes them atomically, and publishes nothing before that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDecision {
    /// The answer to the command.
    pub outcome: JobOutcome,
    /// The record as it is from now on.
    pub record: Record,
    /// Whether the job in it is another one than before.
    pub job_changed: bool,
    /// What was decided about its lease, for a store to take in like any other decision; its outcome says nothing.
    pub lease: Decision,
}

/// Decides one command on one job.
pub fn decide(key: &Key, record: &Record, command: &JobCommand, context: &Context) -> JobDecision {
    let mut step = Step {
        key,
        context: *context,
        lease_id: command.lease_id().copied(),
        record: record.clone(),
        events: Vec::new(),
        ended: Vec::new(),
    };
    step.ask(&Command::Settle);
    let outcome = match command {
        JobCommand::Create { payload, max_attempts } => step.create(payload, *max_attempts),
        JobCommand::Acquire(bid) => step.acquire(bid),
        JobCommand::Refresh { claim, ttl } => step.refresh(claim.clone(), *ttl),
        JobCommand::Release(claim) => step.release(claim.clone()),
        JobCommand::Withdraw { lease_id, owner } => step.withdraw(*lease_id, owner),
        JobCommand::Complete { claim, result } => step.complete(claim, result),
        JobCommand::Fail { claim, error, retryable } => step.fail(claim, error, *retryable),
        JobCommand::Reset => step.reset(),
        JobCommand::Settle => JobOutcome::Settled,
    };
    let Step { record: after, events, ended, context, .. } = step;
    let slot = (after.slot != record.slot).then(|| after.slot.clone());
    let lease = Decision { outcome: Outcome::Settled, slot, events, ended, last_fence: context.last_fence };
    JobDecision { outcome, job_changed: after.job != record.job, record: after, lease }
}

/// One decision in the making. A lease that is there is live: what was due has been settled first.
struct Step<'a> {
    key: &'a Key,
    context: Context,
    lease_id: Option<LeaseId>,
    record: Record,
    events: Vec<Event>,
    ended: Vec<(LeaseId, LossReason)>,
}

impl Step<'_> {
    /// Lets the rules of leases decide, and takes in what they say.
    fn ask(&mut self, command: &Command) -> Outcome {
        let decision = lease::decide(self.key, &self.record.slot, command, &self.context);
        if let Some(slot) = decision.slot {
            self.record.slot = slot;
        }
        self.context.last_fence = decision.last_fence;
        let own = decision.ended.iter().find(|(id, _)| Some(*id) == self.lease_id);
        self.context.remembered = own.map(|(_, because)| *because).or(self.context.remembered);
        self.events.extend(decision.events);
        self.ended.extend(decision.ended);
        decision.outcome
    }

    fn create(&mut self, payload: &JobText, max_attempts: Option<u32>) -> JobOutcome {
        match &self.record.job {
            Some(job) if job.payload.is_same_value(payload) => JobOutcome::Exists,
            Some(_) => JobOutcome::Differs,
            None => {
                self.record.job = Some(Job::new(payload.clone(), max_attempts, self.context.now));
                JobOutcome::Created
            }
        }
    }

    fn acquire(&mut self, bid: &Bid) -> JobOutcome {
        let holds = self.record.slot.lease.as_ref().is_some_and(|lease| lease.lease_id == bid.lease_id);
        let Some(job) = &mut self.record.job else { return JobOutcome::Missing };
        if job.is_finished() {
            return JobOutcome::AlreadyFinished;
        }
        if self.record.slot.lease.is_none() && !job.has_attempts_left() {
            let error = JobText(format!("given up after {} attempts", job.attempts).into());
            job.finish(Status::Failed { error, by: None }, self.context.now);
            return JobOutcome::AlreadyFinished;
        }
        match self.ask(&Command::Acquire(bid.clone())) {
            Outcome::Granted { lease, .. } => {
                JobOutcome::Acquired { lease, recovered: !holds && self.begin_attempt() }
            }
            other => refused(other),
        }
    }

    /// Counts an attempt; answers whether the one before it never said how it ended.
    fn begin_attempt(&mut self) -> bool {
        self.record.job.as_mut().is_some_and(|job| {
            job.attempts = job.attempts.saturating_add(1);
            std::mem::replace(&mut job.begun, true)
        })
    }

    fn refresh(&mut self, claim: Claim, ttl: Option<Ttl>) -> JobOutcome {
        match self.ask(&Command::Renew { claim, ttl }) {
            Outcome::Renewed(lease) => JobOutcome::Refreshed(lease),
            other => refused(other),
        }
    }

    fn release(&mut self, claim: Claim) -> JobOutcome {
        match self.ask(&Command::Release(claim)) {
            Outcome::Released => {
                self.give_back();
                JobOutcome::Released
            }
            other => refused(other),
        }
    }

    fn withdraw(&mut self, lease_id: LeaseId, owner: &Owner) -> JobOutcome {
        let holds = self.record.slot.lease.as_ref().is_some_and(|lease| lease.lease_id == lease_id);
        match self.ask(&Command::Withdraw { lease_id, owner: owner.clone() }) {
            Outcome::Withdrawn => {
                if holds {
                    self.give_back();
                }
                JobOutcome::Withdrawn
            }
            other => refused(other),
        }
    }

    fn complete(&mut self, claim: &Claim, result: &JobText) -> JobOutcome {
        match self.end_attempt(claim) {
            Ended::Now(by) => {
                self.set_status(Status::Ready { result: result.clone(), by });
                JobOutcome::Completed
            }
            Ended::Before(Status::Ready { result: kept, .. }) if kept.is_same_value(result) => {
                JobOutcome::Completed
            }
            Ended::Before(_) => contradicted(),
            Ended::Not(refusal) => refusal,
        }
    }

    fn fail(&mut self, claim: &Claim, error: &JobText, retryable: bool) -> JobOutcome {
        match self.end_attempt(claim) {
            Ended::Now(by) => {
                let again = retryable && self.record.job.as_ref().is_some_and(Job::has_attempts_left);
                if !again {
                    self.set_status(Status::Failed { error: error.clone(), by: Some(by) });
                }
                JobOutcome::Failed { again }
            }
            Ended::Before(Status::Failed { error: kept, .. }) if kept == *error => {
                JobOutcome::Failed { again: false }
            }
            Ended::Before(_) => contradicted(),
            // Failed before, with attempts left, or given back: it is queued either way, unless another finished it.
            Ended::Not(JobOutcome::Lost { because: LossReason::Released, .. }) if retryable => {
                JobOutcome::Failed { again: self.record.job.as_ref().is_some_and(|job| !job.is_finished()) }
            }
            Ended::Not(refusal) => refusal,
        }
    }

    /// Ends the attempt, if the claim is to the one that is going on. A worker that repeats itself, because the answer
    /// got lost, does not hear that it lost the job which it finished.
    fn end_attempt(&mut self, claim: &Claim) -> Ended {
        let Some(job) = self.record.job.clone() else { return Ended::Not(JobOutcome::Missing) };
        let fence = self.record.slot.lease.as_ref().map(|lease| lease.fence);
        match (self.ask(&Command::Release(claim.clone())), fence) {
            (Outcome::Released, Some(fence)) => {
                self.attempt_is_over();
                // A program that does not know of leases may have written its own result meanwhile, which stays.
                if job.is_finished() { Ended::Not(JobOutcome::AlreadyFinished) } else { Ended::Now(fence) }
            }
            (Outcome::Lost { because: LossReason::Released, .. }, _)
                if claim.fence().is_some() && job.finished_by() == claim.fence() =>
            {
                Ended::Before(job.status)
            }
            (other, _) => Ended::Not(refused(other)),
        }
    }

    /// The worker has not worked on the job: the attempt does not count.
    fn give_back(&mut self) {
        if let Some(job) = &mut self.record.job {
            job.attempts = job.attempts.saturating_sub(1);
        }
        self.attempt_is_over();
    }

    fn attempt_is_over(&mut self) {
        if let Some(job) = &mut self.record.job {
            job.begun = false;
        }
    }

    fn set_status(&mut self, status: Status) {
        if let Some(job) = &mut self.record.job {
            job.finish(status, self.context.now);
        }
    }

    fn reset(&mut self) -> JobOutcome {
        let now = self.context.now;
        if let Some(lease) = &self.record.slot.lease {
            return JobOutcome::Locked(Held::from(lease));
        }
        let Some(job) = &mut self.record.job else { return JobOutcome::Missing };
        *job = Job::new(job.payload.clone(), job.max_attempts, now);
        JobOutcome::Reset
    }
}

/// What came of ending an attempt.
enum Ended {
    /// The fence of the attempt.
    Now(Fence),
    /// It had ended already, and finished the job like this.
    Before(Status),
    Not(JobOutcome),
}

/// The attempt has reported another result before, which stays.
fn contradicted() -> JobOutcome {
    JobOutcome::Lost { because: LossReason::Released, held: None }
}

/// A refusal of the lease, in the words of jobs.
fn refused(outcome: Outcome) -> JobOutcome {
    match outcome {
        Outcome::Held(held) => JobOutcome::Locked(held),
        Outcome::Lost { because, held } => JobOutcome::Lost { because, held },
        Outcome::NotYours(held) => JobOutcome::NotYours(held),
        Outcome::OwnerIsFull => JobOutcome::OwnerIsFull,
        Outcome::FencesExhausted => JobOutcome::FencesExhausted,
        // Nothing else is ever answered to an acquire, a renewal or a release.
        _ => JobOutcome::Lost { because: LossReason::Unknown, held: None },
    }
}
