//! Commands about jobs: each becomes a call of the jobs door, and its answer the outcome that the rules know.

use std::time::Duration;

use leasehold_core::job::{Job, JobText, Record, Status};
use leasehold_core::lease::{Bid, Lease, LossReason};
use leasehold_core::wire::documents as wire;
use leasehold_core::wire::jobs::{
    JobAcquired, JobFinished, JobGranted, JobHold, JobRefusal, JobRefused, JobState, JobStatus, text_of,
    value_of,
};
use leasehold_core::{
    Command, Invalid, JobCommand, JobId, JobOutcome, Key, LeaseId, Outcome, Position, Slot, StoreTime, Ttl,
    WorkerName,
};
use leasehold_store::{Applied, JobApplied, Retry};

use super::{Remote, UNKNOWN, against_the_rules, fence, held_by, lease_id_of, meta, owner};
use crate::http::Error;

/// What a server answered, as the rules would have.
type Answered = (JobOutcome, Record);

impl Remote {
    pub(crate) async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied, Error> {
        let id = job_of(key)?;
        let answered = self.call_job(&id, command).await;
        let now = self.now();
        let (outcome, record) = match answered {
            Ok(answer) => answered_by(answer, now)?,
            Err(refused) => (refusal(refused, now)?, Record::default()),
        };
        Ok(JobApplied { outcome, record, now, position: Position::default() })
    }

    /// A command about the lease of a job, such as its guard sends.
    pub(super) async fn apply_to_job(&self, key: &Key, command: Command) -> Result<Applied, Error> {
        let command = match command {
            Command::Renew { claim, ttl } => JobCommand::Refresh { claim, ttl },
            Command::Release(claim) => JobCommand::Release(claim),
            _ => {
                let rule = "behind a server, a job is acquired as a job";
                return Err(Invalid::new("key", key.as_str(), rule, "use Leasehold::jobs").into());
            }
        };
        let JobApplied { outcome, now, position, .. } = self.apply_job(key, command).await?;
        let outcome = match outcome {
            JobOutcome::Refreshed(lease) => Outcome::Renewed(lease),
            JobOutcome::Released => Outcome::Released,
            JobOutcome::Lost { because, held } => Outcome::Lost { because, held },
            // The job itself is gone.
            _ => Outcome::Lost { because: LossReason::Unknown, held: None },
        };
        Ok(Applied { outcome, now, position })
    }

    async fn call_job(&self, id: &JobId, command: JobCommand) -> Result<Answer, Error> {
        let server = &self.documents;
        match command {
            JobCommand::Create { payload, max_attempts } => {
                let made = server.create_job(id, value_of(payload.as_str()), max_attempts).await;
                made.map(|(is_new, state)| Answer::Created(is_new, state))
            }
            JobCommand::Acquire(Bid { lease_id, owner, ttl, .. }) => {
                let worker = WorkerName::parse(owner.as_str()).ok();
                let worker = worker.as_ref().map(WorkerName::as_str);
                server.acquire_job(id, &lease_id, worker, Some(ttl)).await.map(Answer::Acquired)
            }
            JobCommand::Refresh { claim, ttl } => {
                let refreshed = server.refresh_job(id, &claim, ttl).await?;
                Ok(Answer::Refreshed(claim.lease_id, claim.fence.get(), refreshed))
            }
            JobCommand::Release(claim) => {
                server.release_job(id, &claim).await.map(|()| Answer::Plain(JobOutcome::Released))
            }
            JobCommand::Complete { claim, result } => {
                let done = server.complete_job(id, &claim, value_of(result.as_str())).await;
                done.map(|()| Answer::Plain(JobOutcome::Completed))
            }
            JobCommand::Fail { claim, error, retryable } => {
                let failed = server.fail_job(id, &claim, error.as_str(), retryable).await;
                failed.map(|again| Answer::Plain(JobOutcome::Failed { again }))
            }
            JobCommand::Reset => server.reset_job(id).await.map(Answer::Reset),
            JobCommand::Settle => server.job(id).await.map(Answer::Looked),
        }
    }
}

/// What a server answered when it did as it was asked.
enum Answer {
    Plain(JobOutcome),
    Created(bool, JobState),
    Acquired(JobAcquired),
    Refreshed(LeaseId, u64, JobHold),
    Reset(JobState),
    Looked(JobState),
}

/// The job that a key stands for.
pub(crate) fn job_of(key: &Key) -> Result<JobId, Invalid> {
    JobId::parse(key.as_str().strip_prefix(JobId::DOOR).unwrap_or_default())
}

fn answered_by(answer: Answer, now: StoreTime) -> Result<Answered, Error> {
    Ok(match answer {
        Answer::Plain(outcome) => (outcome, Record::default()),
        Answer::Created(true, state) => (JobOutcome::Created, record(&state, now)?),
        Answer::Created(false, state) => (JobOutcome::Exists, record(&state, now)?),
        Answer::Acquired(JobAcquired::Granted(granted)) => acquired(&granted, now)?,
        Answer::Acquired(JobAcquired::Refused(refused)) => not_acquired(&refused, now)?,
        Answer::Refreshed(lease_id, fence, hold) => {
            (JobOutcome::Refreshed(lease(lease_id, fence, &hold, now)?), Record::default())
        }
        Answer::Reset(state) => (JobOutcome::Reset, record(&state, now)?),
        Answer::Looked(state) => (JobOutcome::Settled, record(&state, now)?),
    })
}

fn acquired(granted: &JobGranted, now: StoreTime) -> Result<Answered, Error> {
    let lease = lease(lease_id_of(&granted.lease_id)?, granted.fence, &granted.hold, now)?;
    let job = Job {
        payload: text(&text_of(&granted.payload))?,
        status: Status::Queued,
        attempts: granted.attempt,
        max_attempts: granted.max_attempts,
        begun: true,
        changed_at: now,
    };
    let slot = Slot { lease: Some(lease.clone()), ..Slot::default() };
    let outcome = JobOutcome::Acquired { lease, recovered: granted.recovered };
    Ok((outcome, Record { slot, job: Some(job) }))
}

fn not_acquired(refused: &JobRefused, now: StoreTime) -> Result<Answered, Error> {
    match (refused.reason, &refused.held) {
        (JobRefusal::Locked, Some(held)) => Ok((JobOutcome::Locked(held_by(held, now)?), Record::default())),
        (JobRefusal::Locked, None) => {
            Err(Error::unavailable("it does not say who works on the job", Retry::Unknown))
        }
        (JobRefusal::AlreadyFinished, _) => {
            let job = Job {
                // What was to be done is not told again: nothing is left of it.
                payload: JobText::default(),
                status: status(refused.status, &refused.finished)?,
                attempts: 0,
                max_attempts: None,
                begun: false,
                changed_at: now,
            };
            Ok((JobOutcome::AlreadyFinished, Record { slot: Slot::default(), job: Some(job) }))
        }
    }
}

fn record(state: &JobState, now: StoreTime) -> Result<Record, Error> {
    let lease = state.held.as_ref().map(|held| lease_of_another(held, now)).transpose()?;
    let job = Job {
        payload: text(&text_of(&state.payload))?,
        status: status(state.status, &state.finished)?,
        attempts: state.attempts,
        max_attempts: state.max_attempts,
        begun: lease.is_some(),
        changed_at: now,
    };
    Ok(Record { slot: Slot { lease, ..Slot::default() }, job: Some(job) })
}

fn status(status: JobStatus, finished: &JobFinished) -> Result<Status, Error> {
    let by = finished.finished_by.map(fence).transpose()?;
    Ok(match (status, by) {
        (JobStatus::Queued | JobStatus::Running, _) => Status::Queued,
        (JobStatus::Failed, by) => {
            Status::Failed { error: text(finished.error.as_deref().unwrap_or_default())?, by }
        }
        // A result that is `null` reads as none.
        (JobStatus::Ready, Some(by)) => {
            let result = finished.result.as_ref().unwrap_or(&serde_json::Value::Null);
            Status::Ready { result: text(&text_of(result))?, by }
        }
        (JobStatus::Ready, None) => {
            return Err(Error::unavailable("it does not say which attempt finished the job", Retry::Unknown));
        }
    })
}

fn lease(lease_id: LeaseId, number: u64, hold: &JobHold, now: StoreTime) -> Result<Lease, Error> {
    let left = Duration::from_millis(hold.expires_in_ms);
    Ok(Lease {
        owner: owner(&hold.holder)?,
        lease_id,
        fence: fence(number)?,
        acquired_at: now,
        renewed_at: now,
        expires_at: now + left,
        ttl: Ttl::new(left.min(Ttl::MAX.as_duration())).map_err(|error| against_the_rules(&error))?,
        leaving: false,
        meta: meta(&hold.holder),
        request: None,
    })
}

fn lease_of_another(held: &wire::Held, now: StoreTime) -> Result<Lease, Error> {
    let expires_at = now + Duration::from_millis(held.expires_in_ms);
    Ok(Lease {
        owner: owner(&held.holder)?,
        lease_id: UNKNOWN,
        fence: fence(held.fence)?,
        acquired_at: now,
        renewed_at: now,
        expires_at,
        ttl: Ttl::MIN,
        leaving: false,
        meta: meta(&held.holder),
        request: None,
    })
}

fn text(text: &str) -> Result<JobText, Error> {
    JobText::parse(text).map_err(|error| against_the_rules(&error))
}

/// A refusal that the rules know is an outcome.
fn refusal(error: Error, now: StoreTime) -> Result<JobOutcome, Error> {
    match error {
        Error::JobNotFound => Ok(JobOutcome::Missing),
        Error::JobDiffers => Ok(JobOutcome::Differs),
        Error::JobRunning(held) => Ok(JobOutcome::Locked(held_by(&held, now)?)),
        Error::LeaseOver { because, held } => {
            let held = held.map(|held| held_by(&held, now)).transpose()?;
            Ok(JobOutcome::Lost { because, held })
        }
        Error::NotHolder { .. } => Ok(JobOutcome::Lost { because: LossReason::Unknown, held: None }),
        Error::TooManyLeases { .. } => Ok(JobOutcome::OwnerIsFull),
        error => Err(error),
    }
}
