//! The sweeper: settles what is due, so that expiries are published within a second; and once a minute a round over
//! everything.
//!
//! No decision depends on it: an expired lock is free whether or not it was swept. It only makes watchers hear of expiries
//! in time.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Retries, RetryPolicy};
use leasehold_store::jitter;
use leasehold_store::{Settled, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// How many keys are settled at a time.
const AT_A_TIME: usize = 512;

/// The longest pause between two sweeps: half of the second within which expiries are published.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How often the background job cleans up.
const CLEANING: Duration = Duration::from_secs(60);

/// Settles what is due until the server shuts down.
pub(crate) async fn sweep(store: Arc<dyn Store>, metrics: Metrics, stop: CancellationToken) {
    let (mut since, mut pause) = (Instant::now(), Duration::ZERO);
    let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let due = since + pause;
        let settled = tokio::select! {
            () = stop.cancelled() => return,
            settled = store.settle_due(AT_A_TIME) => settled,
        };
        metrics.swept(due.elapsed());
        since = Instant::now();
        pause = match settled {
            Ok(settled) => {
                retries.succeeded();
                next_look(&settled)
            }
            Err(error) => {
                metrics.store_failed();
                tracing::warn!(%error, "cannot settle expired leases; trying again");
                retries.pause()
            }
        };
    }
}

/// How long until something is due; zero when there may be more at once.
fn next_look(settled: &Settled) -> Duration {
    if settled.keys >= AT_A_TIME {
        return Duration::ZERO;
    }
    settled.next_due.map_or(LONGEST_PAUSE, |due| due.since(settled.now).min(LONGEST_PAUSE))
}

/// The background job of every minute: publishes every expiry that was not published yet.
pub(crate) async fn clean(store: Arc<dyn Store>, metrics: Metrics, stop: CancellationToken) {
    let mut minutes = tokio::time::interval(CLEANING);
    minutes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = minutes.tick() => {}
        }
        let cleaned = tokio::select! {
            () = stop.cancelled() => return,
            cleaned = clean_once(store.as_ref()) => cleaned,
        };
        match cleaned {
            Ok(keys) => tracing::debug!(keys, "cleaned up"),
            Err(error) => {
                metrics.store_failed();
                tracing::warn!(%error, "the cleaning of this minute failed; the next one continues");
            }
        }
    }
}

async fn clean_once(store: &dyn Store) -> leasehold_store::Result<usize> {
    let mut keys = 0;
    loop {
        let settled = store.settle_due(AT_A_TIME).await?;
        keys += settled.keys;
        if settled.keys < AT_A_TIME {
            return Ok(keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::event::EndReason;
    use leasehold_core::lease::Bid;
    use leasehold_core::{Command, EventKind, Key, LeaseId, Meta, Owner, Position, Ttl};
    use leasehold_store::clock::Clock;
    use leasehold_store::{Feed, Limits, MAX_EVENTS, Memory};

    use super::*;

    /// tokio's clock as a store's.
    struct TokioClock(Instant);

    impl Clock for TokioClock {
        fn millis(&self) -> u64 {
            u64::try_from(self.0.elapsed().as_millis()).unwrap()
        }

        fn boot(&self) -> String {
            "virtual".into()
        }
    }

    /// More than are settled at a time.
    const LOCKS: usize = AT_A_TIME + 100;

    async fn expired(store: &dyn Store) -> usize {
        let (mut position, mut count) = (Position(0), 0);
        while let Ok(Ok(Feed::Events(events))) =
            tokio::time::timeout(Duration::from_millis(1), store.events(position, MAX_EVENTS)).await
        {
            let is_expiry =
                |kind: &EventKind| matches!(kind, EventKind::Ended { because: EndReason::Expired });
            count += events.iter().filter(|published| is_expiry(&published.event.kind)).count();
            position = events.last().map_or(position, |last| last.position);
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn every_minute_all_that_has_expired_is_told_also_without_the_sweeper() {
        let store: Arc<dyn Store> =
            Arc::new(Memory::with(Arc::new(TokioClock(Instant::now())), Limits::default(), 0));
        let stop = CancellationToken::new();
        let job = tokio::spawn(clean(store.clone(), Metrics::new(), stop.clone()));
        for number in 0..LOCKS {
            let bid = Bid {
                tab: None,
                lease_id: LeaseId::from_random(u128::to_be_bytes(number as u128)),
                owner: Owner::parse("anna").unwrap(),
                ttl: Ttl::from_secs(30).unwrap(),
                meta: Meta::default(),
            };
            store
                .apply(&Key::parse(&format!("doc/d{number}")).unwrap(), Command::Acquire(bid))
                .await
                .unwrap();
        }
        tokio::time::sleep(Duration::from_secs(58)).await;
        assert_eq!(expired(store.as_ref()).await, 0, "nobody has looked yet");
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(expired(store.as_ref()).await, LOCKS);
        stop.cancel();
        job.await.unwrap();
    }
}
