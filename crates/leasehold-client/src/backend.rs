//! Where the leases are: in a store (`local.rs`), or behind a server (`remote.rs`). Both decide by the same rules; each
//! translates what was decided into the words of this file, which know no clock but the holder's.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::holder::{Reply, Terms};
use leasehold_core::job::{JobText, Status};
use leasehold_core::lease::{Bid, LossReason};
use leasehold_core::{Fence, HolderTime, Keeper, Key, LeaseId, OnSilence, Owner, Position, Reason, Seq, Ttl};

use crate::Error;

/// What proves that a lease, or an attempt at a job, is one's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The secret.
    pub lease_id: LeaseId,
    /// The fence of the grant.
    pub fence: Fence,
}

/// The holder that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who holds the lease.
    pub by: Owner,
    /// Their name to show; the owner, if there is no other.
    pub name: String,
    /// The fence of their lease, for a take-over or a request to name.
    pub fence: Fence,
    /// How long they have it, unless they renew it.
    pub left: Duration,
}

/// A lease that was granted.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) owner: Owner,
    pub(crate) claim: Claim,
    pub(crate) terms: Terms,
}

impl Granted {
    /// Whether the answer took so long that the lease cannot be used any more. Asking again under the same lease id
    /// extends it.
    pub(crate) fn is_too_late(&self, sent: HolderTime, now: HolderTime) -> bool {
        !Keeper::new(sent, self.terms.ttl).is_held(now)
    }
}

/// How a lease is sought.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Acquire,
    TakeOver { seen: Fence, reason: Reason },
    RequestHandover { seen: Fence, on_silence: OnSilence, countdown: Ttl, patience: Ttl },
}

/// What a bid for a lease came to.
#[derive(Clone, Debug)]
pub(crate) enum BidReply {
    Granted(Granted),
    Held(Held),
    /// The holder was asked to hand over, and has not answered yet.
    Requested,
    /// Another has requested it before.
    RequestedByAnother(Option<Held>),
    OwnerIsFull,
    FencesExhausted,
    Lost(LossReason),
}

/// What the holder's answer to a request came to.
#[derive(Clone, Debug)]
pub(crate) enum AnswerReply {
    HandedOver { to: Owner },
    Refused,
    NoRequest,
    Lost(LossReason),
}

/// What is known about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLook {
    /// What is to be done.
    pub payload: String,
    /// Whether it is done, and what it came to.
    pub status: Status,
    /// How many attempts there have been.
    pub attempts: u32,
    /// How many there may be; unlimited when absent.
    pub max_attempts: Option<u32>,
    /// Who is working on it.
    pub held: Option<Held>,
}

/// What a finished job came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It is done.
    Ready {
        /// What it came to.
        result: String,
    },
    /// It was given up.
    Failed {
        /// Why.
        error: String,
    },
}

/// An attempt at a job that has begun.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) granted: Granted,
    pub(crate) payload: String,
    pub(crate) attempt: u32,
    pub(crate) recovered: bool,
}

/// What can be asked about a job.
#[derive(Clone, Debug)]
pub(crate) enum JobCall {
    Create {
        payload: JobText,
        max_attempts: Option<u32>,
    },
    Look,
    Acquire(Bid),
    Refresh {
        claim: Claim,
        ttl: Option<Ttl>,
    },
    Release(Claim),
    /// Cancels an acquire whose answer is not known.
    Withdraw {
        lease_id: LeaseId,
        owner: Owner,
    },
    Complete {
        claim: Claim,
        result: JobText,
    },
    Fail {
        claim: Claim,
        error: JobText,
        retryable: bool,
    },
    Reset,
}

/// What a call about a job came to.
#[derive(Clone, Debug)]
pub(crate) enum JobReply {
    Created,
    Exists,
    Differs,
    Looked(JobLook),
    Begun(Box<Begun>),
    Locked(Held),
    AlreadyFinished(Finished),
    /// The attempt lasts for so long from now on.
    Refreshed(Duration),
    Released,
    Withdrawn,
    Completed,
    Failed {
        again: bool,
    },
    Reset,
    Missing,
    OwnerIsFull,
    FencesExhausted,
    Lost(LossReason),
}

/// An answer, and where the events of the store stood at that moment: there is nothing to say about those of a server,
/// or of single documents.
pub(crate) type Answered<T> = (T, Option<Position>);

/// Keeps leases. An error's [`retry`](Error::retry) says what is known about a call that was not answered.
#[async_trait]
pub(crate) trait Backend: Send + Sync + 'static {
    /// Seeks a lease. Repeating it with the same bid is safe.
    async fn bid(&self, key: &Key, bid: &Bid, way: &Way) -> Result<Answered<BidReply>, Error>;

    /// Keeps a lease for another TTL.
    async fn renew(&self, key: &Key, claim: Claim) -> Result<Reply, Error>;

    /// Gives a lease back. That it was lost before is fine.
    async fn release(&self, key: &Key, claim: Claim) -> Result<(), Error>;

    /// Cancels everything under the lease id of a bid.
    async fn withdraw(&self, key: &Key, bid: &Bid) -> Result<(), Error>;

    /// The holder knows of a request to hand over: from now on, its silence counts.
    async fn confirm(&self, key: &Key, claim: Claim, request: Seq) -> Result<Reply, Error>;

    /// The holder answers a request to hand over.
    async fn answer(
        &self,
        key: &Key,
        claim: Claim,
        request: Seq,
        hand_over: bool,
    ) -> Result<AnswerReply, Error>;

    /// A call about a job. All of them may be repeated.
    async fn job(&self, key: &Key, call: JobCall) -> Result<Answered<JobReply>, Error>;

    /// Whether a server keeps the leases: it says who the owner is and how long the lock of a document lasts, and events
    /// are cheap.
    fn is_server(&self) -> bool;
}
