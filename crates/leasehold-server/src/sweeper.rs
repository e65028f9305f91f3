//! The sweeper: settles what is due, so that expiries are published within a second; and once a minute a round over
//! everything.
//!
//! Of several servers on one store, one sweeps: the one that holds the lease `server/sweeper`. If it is killed, another takes
//! over within 4 s; if it is stopped, at once.
//!
//! No decision depends on it: an expired lock is free whether or not it was swept. It only makes watchers hear of expiries
//! in time.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, Owner, Retries, RetryPolicy, Ttl};
use leasehold_store::clock::Clock;
use leasehold_store::{Error, Settled, Store, jitter};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::server_lease::{Acquired, DOOR, Wanted};

/// How many keys are settled at a time.
const AT_A_TIME: usize = 512;

/// The longest pause between two sweeps: half of the second within which expiries are published.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How often the background job cleans up.
const CLEANING: Duration = Duration::from_secs(60);

/// How long a server that was killed is still the one that sweeps.
const SWEEPER_TTL: Duration = Duration::from_secs(3);

/// Sweeps until the server shuts down, unless another server on the same store does.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    nodes: Nodes,
    metrics: Metrics,
    stop: CancellationToken,
) {
    if store.bus().is_none() {
        metrics.sweeping(true);
        return sweep_and_clean(store, metrics, stop).await;
    }
    let wanted = match wanted(&store, clock) {
        Ok(wanted) => wanted,
        // It is made of constants, which a test has tried.
        Err(error) => return tracing::error!(%error, "this server does not sweep"),
    };
    let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
    let mut departures = nodes.departures();
    while !stop.is_cancelled() {
        departures.mark_unchanged();
        let wait = match take_turn(&wanted, &metrics, &stop).await {
            Ok(wait) => {
                retries.succeeded();
                wait
            }
            Err(error) => {
                metrics.store_failed();
                tracing::warn!(%error, "cannot ask which server sweeps; trying again");
                retries.pause()
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            // The one that has left may be the one that swept.
            _ = departures.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn wanted(store: &Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Wanted, Error> {
    Ok(Wanted {
        store: store.clone(),
        clock,
        key: Key::parse(&format!("{DOOR}sweeper"))?,
        owner: Owner::parse("the server that sweeps")?,
        ttl: Ttl::new(SWEEPER_TTL)?,
    })
}

/// Sweeps as long as this server holds the lease. Returns how long to wait before it asks for it again.
async fn take_turn(wanted: &Wanted, metrics: &Metrics, stop: &CancellationToken) -> Result<Duration, Error> {
    let mut lease = match wanted.acquire().await? {
        Acquired::Ours(lease) => lease,
        Acquired::Held(left) => return Ok(left),
    };
    tracing::info!("this server sweeps");
    metrics.sweeping(true);
    tokio::select! {
        () = stop.cancelled() => {}
        () = lease.keep() => tracing::warn!("this server does not sweep any more: it could not renew its lease"),
        () = sweep_and_clean(wanted.store.clone(), metrics.clone(), stop.clone()) => {}
    }
    metrics.sweeping(false);
    lease.release().await;
    Ok(Duration::ZERO)
}

async fn sweep_and_clean(store: Arc<dyn Store>, metrics: Metrics, stop: CancellationToken) {
    tokio::join!(sweep(store.clone(), metrics.clone(), stop.clone()), clean(store, metrics, stop),);
}

/// Settles what is due until the server shuts down.
async fn sweep(store: Arc<dyn Store>, metrics: Metrics, stop: CancellationToken) {
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
async fn clean(store: Arc<dyn Store>, metrics: Metrics, stop: CancellationToken) {
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
    use leasehold_core::{Command, EventKind, LeaseId, Meta, Position};
    use leasehold_store::{Feed, JobStore, Limits, MAX_EVENTS, Memory};

    use super::*;
    use crate::nodes::tests::{Node, World};
    use crate::server_lease::tests::TokioClock;

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
            store
                .apply(&Key::parse(&format!("doc/d{number}")).unwrap(), Command::Acquire(bid(number, 30)))
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

    fn bid(number: usize, ttl: u64) -> Bid {
        Bid {
            tab: None,
            lease_id: LeaseId::from_random(u128::to_be_bytes(number as u128)),
            owner: Owner::parse("anna").unwrap(),
            ttl: Ttl::from_secs(ttl).unwrap(),
            meta: Meta::default(),
        }
    }

    /// A server that sweeps if it is the one.
    fn sweeping(world: &World, node: &Node) -> (Metrics, tokio::task::JoinHandle<()>) {
        let metrics = Metrics::new();
        let (store, nodes, stop) = (node.store.clone(), node.nodes.clone(), node.stop.clone());
        (metrics.clone(), tokio::spawn(run(store, world.clock.clone(), nodes, metrics, stop)))
    }

    fn is_sweeping(metrics: &Metrics) -> bool {
        metrics.render().lines().any(|line| line == "leasehold_sweeping 1")
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_three_servers_sweeps_and_another_takes_over_in_time() {
        let world = World::new();
        let nodes = [world.node(), world.node(), world.node()];
        let servers = nodes.each_ref().map(|node| sweeping(&world, node));
        let the_one = async |alive: &[usize]| {
            let sweeping = |alive: &&usize| is_sweeping(&servers[**alive].0);
            let found: Vec<usize> = alive.iter().filter(sweeping).copied().collect();
            assert!(found.len() <= 1, "{found:?}");
            found.first().copied()
        };
        tokio::time::sleep(Duration::from_secs(60)).await;
        let first = the_one(&[0, 1, 2]).await.expect("one sweeps");
        // Stopped, it hands over at once, and nothing is announced late.
        let key = Key::parse("doc/short").unwrap();
        world.memory.apply(&key, Command::Acquire(bid(1, 1))).await.unwrap();
        nodes[first].stop.cancel();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(expired(world.memory.as_ref()).await, 1);
        let alive: Vec<usize> = (0..3).filter(|server| *server != first).collect();
        let second = the_one(&alive).await.expect("another sweeps");
        // Killed, it is replaced when its lease has run out.
        servers[second].1.abort();
        world.memory.apply(&key, Command::Acquire(bid(2, 1))).await.unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        let third = the_one(&alive.into_iter().filter(|server| *server != second).collect::<Vec<_>>()).await;
        assert!(third.is_some());
        assert!(expired(world.memory.as_ref()).await >= 2);
    }
}
