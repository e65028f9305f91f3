//! Limits per caller: requests a second, and concurrent event streams.
//!
//! The memory for it is bounded, however many callers there are or pretend to be.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use crate::config::Limits;
use crate::metrics::Metrics;

/// How many callers are distinguished. Beyond that, some share a limit.
const CALLERS: usize = 65_536;

/// After so many requests, idle callers are forgotten.
const TIDY_EVERY: usize = 4_096;

/// Whose limit counts. A subject that looks like an address does not share that address's limit.
#[derive(Clone, Copy, Debug, Hash)]
pub enum Who<'a> {
    /// An authenticated caller, by its subject.
    Caller(&'a str),
    /// An unauthenticated caller, by its address.
    Address(IpAddr),
}

type Limiter = RateLimiter<u64, DashMapStateStore<u64>, DefaultClock>;

/// Counts requests.
pub struct Rates {
    /// `None` when there is no limit.
    limiter: Option<Limiter>,
    burst: Option<NonZeroU32>,
    clock: DefaultClock,
    /// Callers are kept as keyed hashes: they are small, and no caller can provoke a collision with another.
    hash: RandomState,
    since_tidied: AtomicUsize,
}

impl Rates {
    /// The limits of `requests_per_second` and `burst`; zero means no limit.
    pub fn new(limits: &Limits) -> Self {
        let clock = DefaultClock::default();
        let rate = NonZeroU32::new(limits.requests_per_second);
        let burst = rate.map(|rate| NonZeroU32::new(limits.burst).unwrap_or(rate));
        let quota = rate.zip(burst).map(|(rate, burst)| Quota::per_second(rate).allow_burst(burst));
        let limiter = quota.map(|quota| RateLimiter::dashmap_with_clock(quota, clock.clone()));
        Self { limiter, burst, clock, hash: RandomState::new(), since_tidied: AtomicUsize::new(0) }
    }

    /// Counts a request of `who`; returns how long to wait if it is one too many.
    pub fn check(&self, who: impl Hash) -> Result<(), Duration> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        if self.since_tidied.fetch_add(1, Ordering::Relaxed) >= TIDY_EVERY {
            self.since_tidied.store(0, Ordering::Relaxed);
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        limiter
            .check_key(&self.key(limiter, who))
            .map_err(|not_until| not_until.wait_time_from(self.clock.now()))
    }

    /// Counts what a request of `who` asks for beyond one thing, which is as much as so many requests. A request that asks for
    /// more than the burst at once is counted as the burst: otherwise it could never be answered.
    pub fn check_more(&self, who: impl Hash, more: usize) -> Result<(), Duration> {
        let (Some(limiter), Some(burst)) = (&self.limiter, self.burst) else { return Ok(()) };
        let more = u32::try_from(more).unwrap_or(u32::MAX).min(burst.get().saturating_sub(1));
        let Some(more) = NonZeroU32::new(more) else { return Ok(()) };
        match limiter.check_key_n(&self.key(limiter, who), more) {
            Ok(counted) => counted.map_err(|not_until| not_until.wait_time_from(self.clock.now())),
            // It is never more than the burst.
            Err(_) => Ok(()),
        }
    }

    fn key(&self, limiter: &Limiter, who: impl Hash) -> u64 {
        let key = self.hash.hash_one(who);
        if limiter.len() >= CALLERS { key % CALLERS as u64 } else { key }
    }

    /// About how many callers are remembered.
    #[cfg(test)]
    fn remembered(&self) -> usize {
        self.limiter.as_ref().map_or(0, RateLimiter::len)
    }
}

/// Counts the open event streams of every caller.
#[derive(Clone)]
pub struct Streams {
    open: Arc<Mutex<HashMap<String, usize>>>,
    per_caller: usize,
    metrics: Metrics,
}

impl Streams {
    /// The limit of `streams_per_caller`.
    pub fn new(limits: &Limits, metrics: &Metrics) -> Self {
        Self { open: Arc::default(), per_caller: limits.streams_per_caller, metrics: metrics.clone() }
    }

    /// One more stream of `who`, open until the permit is dropped; `None` if it would be one too many.
    pub fn open(&self, who: &str) -> Option<StreamPermit> {
        let mut open = self.lock();
        let count = open.get(who).copied().unwrap_or(0);
        if count >= self.per_caller {
            return None;
        }
        open.insert(who.to_owned(), count + 1);
        self.metrics.stream_opened();
        Some(StreamPermit { streams: self.clone(), who: who.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open event stream.
pub struct StreamPermit {
    streams: Streams,
    who: String,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        match open.get_mut(&self.who) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.who)),
        }
        self.streams.metrics.stream_closed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(requests_per_second: u32, burst: u32) -> Limits {
        Limits { requests_per_second, burst, streams_per_caller: 2, ..Limits::default() }
    }

    #[test]
    fn after_the_burst_one_has_to_wait_and_others_do_not() {
        // So slow that no time in between counts.
        let rates = Rates::new(&limits(1, 3));
        for _ in 0..3 {
            rates.check("anna").unwrap();
        }
        let wait = rates.check("anna").unwrap_err();
        assert!(wait > Duration::ZERO && wait <= Duration::from_secs(1), "{wait:?}");
        rates.check("ben").unwrap();
    }

    #[test]
    fn zero_is_no_limit() {
        let rates = Rates::new(&limits(0, 0));
        assert!((0..10_000).all(|_| rates.check("anna").is_ok()));
    }

    #[test]
    fn a_flood_of_callers_takes_a_bounded_room() {
        // One request a second: nobody is forgotten while the test runs.
        let rates = Rates::new(&limits(1, 1_000));
        for caller in 0..3 * CALLERS {
            // Those who share may be told to wait.
            let _ = rates.check(format!("caller-{caller}"));
        }
        assert!(rates.remembered() <= 2 * CALLERS, "{}", rates.remembered());
    }

    #[test]
    fn quiet_callers_are_forgotten() {
        let rates = Rates::new(&limits(1_000_000, 1));
        for caller in 0..2 * TIDY_EVERY {
            rates.check(format!("caller-{caller}")).unwrap();
        }
        assert!(rates.remembered() < TIDY_EVERY * 3 / 2, "{}", rates.remembered());
    }

    #[test]
    fn streams_count_while_they_are_open() {
        let metrics = Metrics::new();
        let streams = Streams::new(&limits(1, 1), &metrics);
        let (first, second) = (streams.open("anna"), streams.open("anna"));
        assert!(first.is_some() && second.is_some() && streams.open("anna").is_none());
        assert!(streams.open("ben").is_some());
        assert!(metrics.render().contains("leasehold_streams_open 2"));
        drop(first);
        assert!(streams.open("anna").is_some());
        drop(second);
        assert!(streams.lock().is_empty());
        assert!(metrics.render().contains("leasehold_streams_open 0"));
    }
}
