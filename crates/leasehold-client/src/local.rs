//! Leases in a store of this program: commands go to the store, and what it decided comes back in the words of
//! `backend.rs`.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::holder::{Reply, Terms};
use leasehold_core::job::{Record, Status};
use leasehold_core::lease::{self, Bid};
use leasehold_core::{Command, JobCommand, JobOutcome, Key, Outcome, Right, Seq, StoreTime};
use leasehold_store::{Applied, JobApplied, JobStore, Retry};

use crate::Error;
use crate::backend::{
    AnswerReply, Answered, Backend, Begun, BidReply, Claim, Finished, Granted, Held, JobCall, JobLook,
    JobReply, Way,
};

pub(crate) struct Local(pub(crate) Arc<dyn JobStore>);

impl Local {
    async fn holders(&self, key: &Key, command: Command, request: Seq) -> Result<Reply, Error> {
        let Applied { outcome, now, .. } = self.0.apply(key, command).await?;
        Reply::in_store(&outcome, now, request).ok_or_else(|| unexpected(&outcome))
    }
}

#[async_trait]
impl Backend for Local {
    async fn bid(&self, key: &Key, bid: &Bid, way: &Way) -> Result<Answered<BidReply>, Error> {
        let bid = bid.clone();
        let command = match way.clone() {
            Way::Acquire => Command::Acquire(bid),
            Way::TakeOver { seen, reason } => Command::TakeOver { seen, bid, reason, right: Right::Force },
            Way::RequestHandover { seen, on_silence, countdown, patience } => {
                Command::RequestHandover { seen, bid, on_silence, countdown, patience }
            }
        };
        let Applied { outcome, now, position } = self.0.apply(key, command).await?;
        let reply = match outcome {
            Outcome::Granted { lease, .. } => BidReply::Granted(granted(&lease, now)),
            Outcome::Held(held) => BidReply::Held(in_the_way(&held, now)),
            Outcome::Requested { .. } => BidReply::Requested,
            Outcome::RequestedByAnother { held, .. } => {
                BidReply::RequestedByAnother(Some(in_the_way(&held, now)))
            }
            Outcome::OwnerIsFull => BidReply::OwnerIsFull,
            Outcome::FencesExhausted => BidReply::FencesExhausted,
            Outcome::Lost { because, .. } => BidReply::Lost(because),
            other => return Err(unexpected(&other)),
        };
        Ok((reply, Some(position)))
    }

    async fn renew(&self, key: &Key, claim: Claim) -> Result<Reply, Error> {
        self.holders(key, Command::Renew { claim: claim.into(), ttl: None }, 0).await
    }

    async fn release(&self, key: &Key, claim: Claim) -> Result<(), Error> {
        self.0.apply(key, Command::Release(claim.into())).await?;
        Ok(())
    }

    async fn withdraw(&self, key: &Key, bid: &Bid) -> Result<(), Error> {
        let (lease_id, owner) = (bid.lease_id, bid.owner.clone());
        self.0.apply(key, Command::Withdraw { lease_id, owner }).await?;
        Ok(())
    }

    async fn confirm(&self, key: &Key, claim: Claim, request: Seq) -> Result<Reply, Error> {
        self.holders(key, Command::HandoverTold { claim: claim.into(), request }, request).await
    }

    async fn answer(
        &self,
        key: &Key,
        claim: Claim,
        request: Seq,
        hand_over: bool,
    ) -> Result<AnswerReply, Error> {
        let command = Command::AnswerHandover { claim: claim.into(), request, hand_over };
        match self.0.apply(key, command).await?.outcome {
            Outcome::HandedOver { to, .. } => Ok(AnswerReply::HandedOver { to }),
            Outcome::Refused => Ok(AnswerReply::Refused),
            Outcome::NoRequest => Ok(AnswerReply::NoRequest),
            Outcome::Lost { because, .. } => Ok(AnswerReply::Lost(because)),
            other => Err(unexpected(&other)),
        }
    }

    async fn job(&self, key: &Key, call: JobCall) -> Result<Answered<JobReply>, Error> {
        let applied = self.0.apply_job(key, command(call)).await?;
        let position = applied.position;
        Ok((job_reply(applied)?, Some(position)))
    }

    fn is_server(&self) -> bool {
        false
    }
}

impl From<Claim> for lease::Claim {
    fn from(Claim { lease_id, fence }: Claim) -> Self {
        Self::Proof(lease::Proof { lease_id, fence })
    }
}

fn granted(lease: &lease::Lease, now: StoreTime) -> Granted {
    Granted {
        owner: lease.owner.clone(),
        claim: Claim { lease_id: lease.lease_id, fence: lease.fence },
        terms: Terms::in_store(lease, now),
    }
}

fn in_the_way(held: &lease::Held, now: StoreTime) -> Held {
    Held {
        by: held.by.clone(),
        name: held.meta.get("name").unwrap_or(held.by.as_str()).to_owned(),
        fence: held.fence,
        left: held.until.since(now),
    }
}

fn command(call: JobCall) -> JobCommand {
    match call {
        JobCall::Create { payload, max_attempts } => JobCommand::Create { payload, max_attempts },
        JobCall::Look => JobCommand::Settle,
        JobCall::Acquire(bid) => JobCommand::Acquire(bid),
        JobCall::Refresh { claim, ttl } => JobCommand::Refresh { claim: claim.into(), ttl },
        JobCall::Release(claim) => JobCommand::Release(claim.into()),
        JobCall::Withdraw { lease_id, owner } => JobCommand::Withdraw { lease_id, owner },
        JobCall::Complete { claim, result } => JobCommand::Complete { claim: claim.into(), result },
        JobCall::Fail { claim, error, retryable } => {
            JobCommand::Fail { claim: claim.into(), error, retryable }
        }
        JobCall::Reset => JobCommand::Reset,
    }
}

fn job_reply(applied: JobApplied) -> Result<JobReply, Error> {
    let JobApplied { outcome, record, now, .. } = applied;
    Ok(match outcome {
        JobOutcome::Created => JobReply::Created,
        JobOutcome::Exists => JobReply::Exists,
        JobOutcome::Differs => JobReply::Differs,
        JobOutcome::Settled => match look(record, now) {
            Some(look) => JobReply::Looked(look),
            None => JobReply::Missing,
        },
        JobOutcome::Acquired { lease, recovered } => {
            let Some(job) = record.job else { return Err(unexpected(&JobOutcome::Missing)) };
            JobReply::Begun(Box::new(Begun {
                granted: granted(&lease, now),
                payload: job.payload.as_str().to_owned(),
                attempt: job.attempts,
                recovered,
            }))
        }
        JobOutcome::Locked(held) => JobReply::Locked(in_the_way(&held, now)),
        JobOutcome::AlreadyFinished => {
            let finished = record.job.and_then(|job| Finished::of(&job.status));
            JobReply::AlreadyFinished(finished.ok_or_else(|| unexpected(&JobOutcome::AlreadyFinished))?)
        }
        JobOutcome::Refreshed(lease) => JobReply::Refreshed(lease.expires_at.since(now)),
        JobOutcome::Released => JobReply::Released,
        JobOutcome::Withdrawn => JobReply::Withdrawn,
        JobOutcome::Completed => JobReply::Completed,
        JobOutcome::Failed { again } => JobReply::Failed { again },
        JobOutcome::Reset => JobReply::Reset,
        JobOutcome::Missing => JobReply::Missing,
        JobOutcome::OwnerIsFull => JobReply::OwnerIsFull,
        JobOutcome::FencesExhausted => JobReply::FencesExhausted,
        JobOutcome::Lost { because, .. } => JobReply::Lost(because),
        JobOutcome::NotYours(_) => JobReply::Lost(lease::LossReason::Unknown),
    })
}

fn look(record: Record, now: StoreTime) -> Option<JobLook> {
    let held = record.slot.lease.as_ref().map(|lease| in_the_way(&lease::Held::from(lease), now));
    record.job.map(|job| JobLook {
        payload: job.payload.as_str().to_owned(),
        status: job.status,
        attempts: job.attempts,
        max_attempts: job.max_attempts,
        held,
    })
}

impl Finished {
    /// What a job with this status came to; `None` while it is not finished.
    pub(crate) fn of(status: &Status) -> Option<Self> {
        match status {
            Status::Ready { result, .. } => Some(Self::Ready { result: result.as_str().to_owned() }),
            Status::Failed { error, .. } => Some(Self::Failed { error: error.as_str().to_owned() }),
            Status::Queued => None,
        }
    }
}

/// A store that keeps the rules never answers like this.
fn unexpected(outcome: &dyn std::fmt::Debug) -> Error {
    let what = format!("its answer, {outcome:?}, does not belong to the command");
    Error::Store(leasehold_store::Error::Unavailable { what, retry: Retry::No })
}
