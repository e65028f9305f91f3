//! Work that must not run twice: a job is acquired, worked on under a lease that refreshes itself, and finished once.
//!
//! Not getting a job is a value. A job that is finished says what it came to; one that another worker has says
//! which. A worker hears of the loss of its lease at once, and what it reports afterwards is refused.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::job::JobText;
use leasehold_core::lease::{Bid, LossReason};
use leasehold_core::{HolderTime, Key, LeaseId, Lost, Owner, RetryPolicy, Ttl};
use leasehold_store::Retry;

use crate::acquire::{AcquireOptions, pause_or_give_up, retries};
use crate::backend::{Answered, Begun, Claim, Finished, Held, JobCall, JobLook, JobReply};
use crate::guard::{Guard, Lease};
use crate::{Error, Inner, Leasehold};

/// How long an attempt lasts without being refreshed, unless the options say otherwise.
pub(crate) const TTL: Duration = Duration::from_secs(300);

/// The jobs of a store, or of a server.
#[derive(Clone)]
pub struct Jobs {
    pub(crate) inner: Arc<Inner>,
}

/// Whether a job was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is there now.
    New,
    /// It was there before, with the same payload.
    Before,
}

/// The outcome of an attempt to get a job.
#[derive(Debug)]
pub enum JobAttempt {
    /// It is ours.
    Acquired(JobGuard),
    /// Nothing is left to be done.
    AlreadyFinished(Finished),
    /// Another worker has it.
    Locked(Held),
}

impl JobAttempt {
    /// The job, if we got it.
    pub fn acquired(self) -> Option<JobGuard> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::AlreadyFinished(_) | Self::Locked(_) => None,
        }
    }

    /// Why not, in the words of *Job lock: rules* (`docs/sources.md`); `None` if it was acquired.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Acquired(_) => None,
            Self::AlreadyFinished(_) => Some("already_finished"),
            Self::Locked(_) => Some("locked"),
        }
    }
}

/// What [`Jobs::run`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRun {
    /// We did it.
    Done {
        /// What it came to.
        result: String,
    },
    /// We tried, and it did not work.
    Failed {
        /// Why.
        error: String,
        /// Whether the job will be tried again.
        again: bool,
    },
    /// Nothing was left to be done.
    AlreadyFinished(Finished),
    /// Another worker has it.
    Locked(Held),
}

impl Leasehold {
    /// The jobs of the store, or of the server. Behind a server, the token says who owns an attempt, and
    /// [`AcquireOptions::owner`] is the name of the worker that others see; payloads and results are JSON there, and text
    /// that is no JSON passes as a JSON string.
    pub fn jobs(&self) -> Result<Jobs, Error> {
        Ok(Jobs { inner: self.inner.clone() })
    }
}

/// The key of a job: `analyses/42` is `job/analyses/42`.
fn key(id: &str) -> Result<Key, Error> {
    Ok(Key::parse(&format!("job/{id}"))?)
}

impl Jobs {
    /// Makes a job. The same id with another payload is refused: it would be another job. JSON is kept in one form, without
    /// spaces and with its keys in order; numbers keep their digits, and text that is no JSON stays as it is.
    pub async fn create(&self, id: &str, payload: &str, max_attempts: Option<u32>) -> Result<Created, Error> {
        let call = JobCall::Create { payload: JobText::value(payload)?, max_attempts };
        match self.call(&key(id)?, call).await? {
            JobReply::Created => Ok(Created::New),
            JobReply::Exists => Ok(Created::Before),
            other => Err(refused(id, other)),
        }
    }

    /// What is known about a job, and who is working on it.
    pub async fn look(&self, id: &str) -> Result<Option<JobLook>, Error> {
        match self.call(&key(id)?, JobCall::Look).await? {
            JobReply::Looked(look) => Ok(Some(look)),
            JobReply::Missing => Ok(None),
            other => Err(refused(id, other)),
        }
    }

    /// Begins with a job, if it is neither finished nor held by another worker. An attempt lasts 300 s without being
    /// refreshed and is refreshed every 100 s, unless the options say otherwise; their wait and cancel do not count here.
    pub async fn acquire(&self, id: &str, options: AcquireOptions) -> Result<JobAttempt, Error> {
        let key = key(id)?;
        let (bid, heartbeat) = options.job_bid(self.inner.backend.is_server(), TTL)?;
        let owner = bid.owner.to_string();
        let (sent, (reply, position)) = self.send_acquire(&key, bid).await?;
        match reply {
            JobReply::Begun(begun) => {
                let Begun { granted, payload, attempt, recovered } = *begun;
                let guard = Guard::new(&self.inner, key, granted, sent, position, heartbeat);
                let guard = Some(guard);
                Ok(JobAttempt::Acquired(JobGuard { jobs: self.clone(), guard, payload, attempt, recovered }))
            }
            JobReply::Locked(held) => Ok(JobAttempt::Locked(held)),
            JobReply::AlreadyFinished(finished) => Ok(JobAttempt::AlreadyFinished(finished)),
            JobReply::OwnerIsFull => Err(Error::OwnerIsFull { owner }),
            other => Err(refused(id, other)),
        }
    }

    /// Does `work` if the job is ours to do, and finishes it with what that comes to: `Ok` is its result, `Err` its error,
    /// which is tried again as long as there are attempts left. The work is cancelled when the lease is lost. A result that
    /// cannot be kept fails the job for good: the next attempt would come to the same.
    pub async fn run<W>(
        &self,
        id: &str,
        options: AcquireOptions,
        work: impl FnOnce(Lease, String) -> W,
    ) -> Result<JobRun, Error>
    where
        W: Future<Output = Result<String, String>>,
    {
        let guard = match self.acquire(id, options).await? {
            JobAttempt::Acquired(guard) => guard,
            JobAttempt::AlreadyFinished(finished) => return Ok(JobRun::AlreadyFinished(finished)),
            JobAttempt::Locked(held) => return Ok(JobRun::Locked(held)),
        };
        let (lease, payload) = (Lease::clone(&guard), guard.payload().to_owned());
        lease.check().map_err(Error::Lost)?;
        let lost = lease.lost();
        let done = tokio::select! {
            // Being lost comes first: work that was paused for too long gets no further.
            biased;
            lost = lost => return Err(Error::Lost(lost)),
            done = work(lease, payload) => done,
        };
        let (error, retryable) = match done {
            Ok(result) => match JobText::value(&result) {
                Ok(_) => {
                    guard.complete(&result).await?;
                    return Ok(JobRun::Done { result });
                }
                Err(invalid) => (format!("the result cannot be kept: {invalid}"), false),
            },
            Err(error) => (error, true),
        };
        let again = guard.fail(&error, retryable).await?;
        Ok(JobRun::Failed { error, again })
    }

    /// Queues a job again, whatever it came to. Returns the worker that has it, if one does: then nothing changes.
    pub async fn reset(&self, id: &str) -> Result<Option<Held>, Error> {
        match self.call(&key(id)?, JobCall::Reset).await? {
            JobReply::Reset => Ok(None),
            JobReply::Locked(held) => Ok(Some(held)),
            other => Err(refused(id, other)),
        }
    }

    async fn call(&self, key: &Key, call: JobCall) -> Result<JobReply, Error> {
        self.send(key, call).await.map(|(_, (reply, _))| reply)
    }

    /// Makes a call, which may be repeated, until it is answered or it makes no sense to go on. Answers when the one that
    /// was answered was sent.
    async fn send(&self, key: &Key, call: JobCall) -> Result<(HolderTime, Answered<JobReply>), Error> {
        let mut retries = retries(RetryPolicy::CALL);
        loop {
            let sent = self.inner.now();
            match self.inner.backend.job(key, call.clone()).await {
                Ok((reply, _)) if self.is_too_late(sent, &reply) && retries.failed().is_some() => {}
                Ok(answered) => return Ok((sent, answered)),
                Err(error) => pause_or_give_up(&mut retries, error).await?,
            }
        }
    }

    /// Sends an acquire, and withdraws it if this is dropped, or fails, with an attempt possibly begun: otherwise an attempt
    /// that nobody works on would count.
    async fn send_acquire(&self, key: &Key, bid: Bid) -> Result<(HolderTime, Answered<JobReply>), Error> {
        let (jobs, key) = (self.clone(), key.clone());
        let mut unanswered =
            Unanswered { jobs, key, lease_id: bid.lease_id, owner: bid.owner.clone(), under_way: true };
        let answered = self.send(&unanswered.key, JobCall::Acquire(bid)).await;
        unanswered.under_way = matches!(&answered, Err(error) if error.retry() != Retry::No);
        answered
    }

    fn is_too_late(&self, sent: HolderTime, reply: &JobReply) -> bool {
        matches!(reply, JobReply::Begun(begun) if begun.granted.is_too_late(sent, self.inner.now()))
    }
}

/// An acquire that has not been answered.
struct Unanswered {
    jobs: Jobs,
    key: Key,
    lease_id: LeaseId,
    owner: Owner,
    under_way: bool,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        // Outside a runtime it cannot be sent: the attempt runs out, and counts.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.under_way {
            return;
        }
        let (jobs, key) = (self.jobs.clone(), self.key.clone());
        let call = JobCall::Withdraw { lease_id: self.lease_id, owner: self.owner.clone() };
        runtime.spawn(async move {
            if let Err(error) = jobs.call(&key, call).await {
                tracing::warn!(%key, %error, "an abandoned acquire could not be withdrawn; its attempt will run out");
            }
        });
    }
}

/// Attempts without a guard, for those who keep the claim elsewhere: see [`JobGuard::into_claim`].
impl Jobs {
    /// Goes on with an attempt, for as long as before or for this long. Answers how long it has now.
    pub async fn refresh(&self, id: &str, claim: Claim, ttl: Option<Duration>) -> Result<Duration, Error> {
        let ttl = ttl.map(Ttl::new).transpose()?;
        match self.call(&key(id)?, JobCall::Refresh { claim, ttl }).await? {
            JobReply::Refreshed(left) => Ok(left),
            other => Err(refused(id, other)),
        }
    }

    /// The job is done. All later calls for it get this result.
    pub async fn complete(&self, id: &str, claim: Claim, result: &str) -> Result<(), Error> {
        let call = JobCall::Complete { claim, result: JobText::value(result)? };
        match self.call(&key(id)?, call).await? {
            JobReply::Completed => Ok(()),
            other => Err(refused(id, other)),
        }
    }

    /// The attempt failed; of a long error the beginning is kept. Answers whether the job will be tried again.
    pub async fn fail(&self, id: &str, claim: Claim, error: &str, retryable: bool) -> Result<bool, Error> {
        let call = JobCall::Fail { claim, error: JobText::clipped(error), retryable };
        match self.call(&key(id)?, call).await? {
            JobReply::Failed { again } => Ok(again),
            other => Err(refused(id, other)),
        }
    }

    /// Gives the job back unfinished.
    pub async fn release(&self, id: &str, claim: Claim) -> Result<(), Error> {
        match self.call(&key(id)?, JobCall::Release(claim)).await? {
            JobReply::Released => Ok(()),
            other => Err(refused(id, other)),
        }
    }
}

/// An attempt at a job, refreshed in the background until it is finished, given back, dropped or lost.
///
/// Dropping it gives the job back; it does not fail it.
#[must_use = "a job is given back when its guard is dropped"]
#[derive(Debug)]
pub struct JobGuard {
    jobs: Jobs,
    guard: Option<Guard>,
    payload: String,
    attempt: u32,
    recovered: bool,
}

impl JobGuard {
    /// What is to be done.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// The number of this attempt; 1 is the first.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether the worker before vanished: it may have done part of the job.
    pub fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// The job is done. All later calls for it get this result.
    pub async fn complete(mut self, result: &str) -> Result<(), Error> {
        let done = self.jobs.complete(self.id(), self.claim(), result).await;
        self.ended(done)
    }

    /// The attempt failed. Answers whether the job will be tried again.
    pub async fn fail(mut self, error: &str, retryable: bool) -> Result<bool, Error> {
        let failed = self.jobs.fail(self.id(), self.claim(), error, retryable).await;
        self.ended(failed)
    }

    /// Gives the job back unfinished. That it was lost before is fine.
    pub async fn release(mut self) -> Result<(), Error> {
        let released = match self.jobs.release(self.id(), self.claim()).await {
            Err(Error::Lost(_)) => Ok(()),
            released => released,
        };
        self.ended(released)
    }

    /// Stops refreshing the attempt, without giving it back, and answers what proves that it is ours: for those who go on
    /// with it by [`Jobs::refresh`] and say themselves how it ended. Otherwise it runs out.
    pub fn into_claim(mut self) -> Claim {
        let claim = self.claim();
        self.guard.take().map_or(claim, Guard::let_go)
    }

    fn id(&self) -> &str {
        self.key().name()
    }

    /// Lets go of the lease when it is written down, or known to be lost, how the attempt ended.
    fn ended<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        if (answer.is_ok() || matches!(answer, Err(Error::Lost(_))))
            && let Some(guard) = self.guard.take()
        {
            guard.let_go();
        }
        answer
    }
}

/// Why a call about a job did not come to what was asked for.
fn refused(id: &str, reply: JobReply) -> Error {
    match reply {
        JobReply::Lost(because) => Error::Lost(Lost::Told(because)),
        // Another program finished it meanwhile, and its result stays.
        JobReply::AlreadyFinished(_) => Error::Lost(Lost::Told(LossReason::Released)),
        JobReply::Missing => Error::NoSuchJob { id: id.to_owned() },
        JobReply::Differs => Error::JobDiffers { id: id.to_owned() },
        JobReply::FencesExhausted => Error::FencesExhausted,
        other => {
            let what = format!("its answer, {other:?}, does not belong to the call");
            Error::Store(leasehold_store::Error::Unavailable { what, retry: Retry::No })
        }
    }
}

impl Deref for JobGuard {
    type Target = Lease;

    #[allow(clippy::expect_used)] // it is taken out only by what consumes or drops the guard
    fn deref(&self) -> &Lease {
        self.guard.as_deref().expect("the lease is there as long as the guard is")
    }
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        // Outside a runtime it cannot be sent: the lease runs out, and the job counts as abandoned.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (jobs, key, claim) = (self.jobs.clone(), guard.key().clone(), guard.claim());
        runtime.spawn(async move {
            if let Err(error) = jobs.call(&key, JobCall::Release(claim)).await {
                tracing::warn!(%key, %error, "a job that was dropped could not be given back; its lease will run out");
            }
            // Only now: it is refreshed until then.
            guard.let_go();
        });
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Jobs")
    }
}
