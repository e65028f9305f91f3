//! Jobs behind a server.

use std::time::Duration;

use leasehold_core::holder::{Reply, Terms};
use leasehold_core::job::{JobText, Status};
use leasehold_core::lease::{Bid, LossReason};
use leasehold_core::wire::jobs::{
    JobAcquired, JobGranted, JobHold, JobRefusal, JobRefused, JobState, JobStatus,
};
use leasehold_core::{Invalid, JobId, Json, Key, WorkerName};
use leasehold_store::Retry;

use super::{Remote, fence, in_the_way, invalid_answer, lease_id, owner, ttl};
use crate::Error;
use crate::backend::{Begun, Claim, Finished, Granted, JobCall, JobLook, JobReply};
use crate::http;

impl Remote {
    pub(super) async fn call_job(&self, id: &JobId, call: JobCall) -> Result<JobReply, Error> {
        self.answered(id, call).await.or_else(refusal)
    }

    /// The renewal that the guard of an attempt sends.
    pub(super) async fn refresh(&self, key: &Key, claim: Claim) -> Result<Reply, Error> {
        match self.0.refresh_job(&job_of(key)?, &claim, None).await {
            Ok(hold) => Ok(Reply::Kept(terms(&hold)?)),
            Err(error) => match refusal(error)? {
                JobReply::Lost(because) => Ok(Reply::Lost(because)),
                // The job itself is gone.
                _ => Ok(Reply::Lost(LossReason::Unknown)),
            },
        }
    }

    async fn answered(&self, id: &JobId, call: JobCall) -> Result<JobReply, http::Error> {
        let server = &self.0;
        Ok(match call {
            JobCall::Create { payload, max_attempts } => {
                let (is_new, _) =
                    server.create_job(id, Json::of_text(payload.as_str()), max_attempts).await?;
                if is_new { JobReply::Created } else { JobReply::Exists }
            }
            JobCall::Look => JobReply::Looked(look(&server.job(id).await?)?),
            JobCall::Acquire(Bid { lease_id, owner, ttl, .. }) => {
                let worker = WorkerName::parse(owner.as_str()).ok();
                let worker = worker.as_ref().map(WorkerName::as_str);
                match server.acquire_job(id, &lease_id, worker, Some(ttl)).await? {
                    JobAcquired::Granted(granted) => JobReply::Begun(Box::new(begun(&granted)?)),
                    JobAcquired::Refused(refused) => not_acquired(&refused)?,
                }
            }
            JobCall::Refresh { claim, ttl } => {
                let hold = server.refresh_job(id, &claim, ttl).await?;
                JobReply::Refreshed(Duration::from_millis(hold.expires_in_ms))
            }
            JobCall::Release(claim) => {
                server.release_job(id, &claim).await?;
                JobReply::Released
            }
            JobCall::Withdraw { lease_id, .. } => {
                server.withdraw_job(id, &lease_id).await?;
                JobReply::Withdrawn
            }
            JobCall::Complete { claim, result } => {
                server.complete_job(id, &claim, Json::of_text(result.as_str())).await?;
                JobReply::Completed
            }
            JobCall::Fail { claim, error, retryable } => {
                JobReply::Failed { again: server.fail_job(id, &claim, error.as_str(), retryable).await? }
            }
            JobCall::Reset => {
                server.reset_job(id).await?;
                JobReply::Reset
            }
        })
    }
}

/// The job that a key stands for.
pub(super) fn job_of(key: &Key) -> Result<JobId, Invalid> {
    JobId::parse(key.as_str().strip_prefix(JobId::DOOR).unwrap_or_default())
}

fn begun(granted: &JobGranted) -> Result<Begun, http::Error> {
    Ok(Begun {
        granted: Granted {
            owner: owner(&granted.hold.holder)?,
            claim: Claim { lease_id: lease_id(&granted.lease_id)?, fence: fence(granted.fence)? },
            terms: terms(&granted.hold)?,
        },
        payload: granted.payload.to_text(),
        attempt: granted.attempt,
        recovered: granted.recovered,
    })
}

fn terms(hold: &JobHold) -> Result<Terms, http::Error> {
    Ok(Terms::of(ttl(hold.expires_in_ms)?))
}

fn not_acquired(refused: &JobRefused) -> Result<JobReply, http::Error> {
    match (refused.reason, &refused.held) {
        (JobRefusal::Locked, Some(held)) => Ok(JobReply::Locked(in_the_way(held)?)),
        (JobRefusal::Locked, None) => {
            Err(http::Error::unavailable("it does not say who works on the job", Retry::Unknown))
        }
        (JobRefusal::AlreadyFinished, _) => {
            let (result, error) = (refused.result.as_ref(), refused.error.as_deref());
            let finished = Finished::of(&status(refused.status, result, error, refused.finished_by)?);
            let unclear = || http::Error::unavailable("it does not say what the job came to", Retry::Unknown);
            Ok(JobReply::AlreadyFinished(finished.ok_or_else(unclear)?))
        }
    }
}

fn look(state: &JobState) -> Result<JobLook, http::Error> {
    Ok(JobLook {
        payload: state.payload.to_text(),
        status: status(state.status, state.result.as_ref(), state.error.as_deref(), state.finished_by)?,
        attempts: state.attempts,
        max_attempts: state.max_attempts,
        held: state.held.as_ref().map(in_the_way).transpose()?,
    })
}

fn status(
    status: JobStatus,
    result: Option<&Json>,
    error: Option<&str>,
    finished_by: Option<u64>,
) -> Result<Status, http::Error> {
    let by = finished_by.map(fence).transpose()?;
    Ok(match (status, by) {
        (JobStatus::Queued | JobStatus::Running, _) => Status::Queued,
        (JobStatus::Failed, by) => Status::Failed { error: text(error.unwrap_or_default())?, by },
        // A result that is `null` reads as none.
        (JobStatus::Ready, Some(by)) => {
            let result = result.map_or_else(|| "null".to_owned(), Json::to_text);
            Status::Ready { result: text(&result)?, by }
        }
        (JobStatus::Ready, None) => {
            let what = "it does not say which attempt finished the job";
            return Err(http::Error::unavailable(what, Retry::Unknown));
        }
    })
}

fn text(text: &str) -> Result<JobText, http::Error> {
    JobText::parse(text).map_err(|error| invalid_answer(&error))
}

/// A refusal that the rules know is a reply.
fn refusal(error: http::Error) -> Result<JobReply, Error> {
    Ok(match error {
        http::Error::JobNotFound => JobReply::Missing,
        http::Error::JobDiffers => JobReply::Differs,
        http::Error::JobRunning(held) => JobReply::Locked(in_the_way(&held)?),
        http::Error::LeaseOver { because, .. } => JobReply::Lost(because),
        http::Error::NotHolder { .. } => JobReply::Lost(LossReason::Unknown),
        http::Error::TooManyLeases { .. } => JobReply::OwnerIsFull,
        error => return Err(error.into()),
    })
}
