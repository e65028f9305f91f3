//! The three functions of *Job lock: API* (`docs/sources.md`), under their own names, over the jobs of a collection
//! (`analyses` there). Nothing happens in the background: a lock is refreshed when the program says so.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::lease::LossReason;
use leasehold_core::{HolderTime, Lost, Ttl, holder};

use crate::Error;
use crate::acquire::AcquireOptions;
use crate::backend::Claim;
use crate::jobs::{Jobs, TTL};

/// The locks of the jobs of a collection.
///
/// A lock is released under the name that acquired it *and from the same program*: a name alone, reused by a worker that
/// was started again, would free its successor's lock.
pub struct AnalysisLocks {
    jobs: Jobs,
    collection: String,
    held: Mutex<HashMap<(String, String), HeldLock>>,
}

/// A lock that this program has acquired.
#[derive(Clone, Copy)]
struct HeldLock {
    claim: Claim,
    /// When the worker has to stop, unless it refreshes before; `None` when the store said that the lock is lost.
    deadline: Option<HolderTime>,
}

/// The result of `acquire_analysis_lock`, as *Job lock: API* has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockAnswer {
    /// Whether the lock is ours.
    pub acquired: bool,
    /// Why not: `already_finished` or `locked`.
    pub reason: Option<&'static str>,
}

impl AnalysisLocks {
    /// The locks of the jobs of `collection`.
    pub fn new(jobs: Jobs, collection: &str) -> Self {
        Self { jobs, collection: collection.to_owned(), held: Mutex::default() }
    }

    /// Acquires the lock of an analysis for `ttl`, 300 s unless given. It is refreshed only by
    /// [`refresh_analysis_lock`](Self::refresh_analysis_lock), every 60 to 120 s for long work.
    pub async fn acquire_analysis_lock(
        &self,
        analysis_id: &str,
        owner: &str,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<LockAnswer, Error> {
        let options = AcquireOptions::owner(owner).ttl(ttl.into().unwrap_or(TTL));
        let attempt = self.jobs.acquire(&self.id(analysis_id), options).await?;
        let reason = attempt.reason();
        if let Some(guard) = attempt.acquired() {
            let deadline = Some(self.jobs.inner.now() + guard.time_left());
            self.keep(analysis_id, owner, HeldLock { claim: guard.into_claim(), deadline });
        }
        Ok(LockAnswer { acquired: reason.is_none(), reason })
    }

    /// Releases the lock of an analysis, if this program holds it in this name. A failure is a warning: the lock runs out.
    pub async fn release_analysis_lock(&self, analysis_id: &str, owner: &str) {
        let Some(held) = self.lock().remove(&key(analysis_id, owner)) else {
            tracing::warn!(analysis_id, owner, "there is no such lock to release");
            return;
        };
        if let Err(error) = self.jobs.release(&self.id(analysis_id), held.claim).await {
            tracing::warn!(analysis_id, %error, "the lock could not be released and will run out");
        }
    }

    /// Extends the lock of an analysis by `ttl` from now, 300 s unless given, if this program holds it in this name.
    pub async fn refresh_analysis_lock(
        &self,
        analysis_id: &str,
        owner: &str,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<(), Error> {
        let ttl = Ttl::new(ttl.into().unwrap_or(TTL))?;
        let held = self.lock().get(&key(analysis_id, owner)).copied();
        let claim = held.ok_or(Error::Lost(Lost::Told(LossReason::Unknown)))?.claim;
        let sent = self.jobs.inner.now();
        let refreshed = self.jobs.refresh(&self.id(analysis_id), claim, Some(ttl.as_duration())).await;
        let deadline = match &refreshed {
            Ok(left) => Some(sent + holder::stop_after(*left, ttl)),
            Err(Error::Lost(_)) => None,
            // Not known: the deadline of before still holds.
            Err(_) => return refreshed.map(drop),
        };
        self.keep(analysis_id, owner, HeldLock { claim, deadline });
        refreshed.map(drop)
    }

    /// Whether the lock is lost, or was never acquired here: the worker has to stop, because another may begin. Ask before
    /// every act that others can see.
    pub fn is_lost(&self, analysis_id: &str, owner: &str) -> bool {
        let deadline = self.lock().get(&key(analysis_id, owner)).and_then(|held| held.deadline);
        deadline.is_none_or(|deadline| self.jobs.inner.now() >= deadline)
    }

    fn id(&self, analysis_id: &str) -> String {
        format!("{}/{analysis_id}", self.collection)
    }

    fn keep(&self, analysis_id: &str, owner: &str, held: HeldLock) {
        self.lock().insert(key(analysis_id, owner), held);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), HeldLock>> {
        // Nothing that could panic is done while it is locked.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(analysis_id: &str, owner: &str) -> (String, String) {
    (analysis_id.to_owned(), owner.to_owned())
}
