//! A database that is killed and started again, five times under load: what was acknowledged is there each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::lease::Proof;
use leasehold_core::{Command, Fence, Key, Outcome};
use leasehold_store::conformance::{JobHarness, Restart};
use leasehold_store::{JobStore, Postgres, Retry};

use super::harness::{PostgresHarness, Way};
use crate::harness::{DEADLINE, bid, key};

const TASKS: u64 = 8;

/// What must have gone on between two kills.
const CYCLES_BETWEEN: u64 = 40;

/// What the tasks have done, and whether they are to go on.
#[derive(Default)]
struct Load {
    cycles: AtomicU64,
    over: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_postgresql_loses_nothing_acknowledged() {
    let Some(harness) = PostgresHarness::start(Way::Direct).await else { return };
    let kills = if std::env::var_os("LEASEHOLD_SOAK").is_some() { 50 } else { 5 };
    let (store, load) = (Arc::new(harness.another()), Arc::new(Load::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..TASKS {
        tasks.spawn(work(store.clone(), load.clone(), number));
    }
    for _ in 0..kills {
        go_on(&load).await;
        assert!(harness.restart(Restart::Crash).await);
    }
    go_on(&load).await;
    load.over.store(true, Ordering::SeqCst);
    tasks.join_all().await;
}

/// Waits until the load has gone on for a while: it does so by itself, once the database is back.
async fn go_on(load: &Load) {
    let (from, start) = (load.cycles.load(Ordering::SeqCst), Instant::now());
    while load.cycles.load(Ordering::SeqCst) < from + CYCLES_BETWEEN {
        assert!(start.elapsed() < DEADLINE, "it did not go on after the kill");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Acquires, renews and releases one key. A lost grant would show in the renewal, a lost release in the next acquire.
async fn work(store: Arc<Postgres>, load: Arc<Load>, number: u64) {
    let key = key(&format!("killed-under-load-{number}"));
    let mut last: Option<Fence> = None;
    for turn in 0.. {
        if load.over.load(Ordering::SeqCst) {
            return;
        }
        let bid = bid("anna", number << 32 | turn, Duration::from_secs(3_600));
        let lease_id = bid.lease_id;
        let fence = match send(&store, &key, Command::Acquire(bid)).await {
            Outcome::Granted { lease, .. } => lease.fence,
            other => panic!("{key}: a release is gone: {other:?}"),
        };
        assert!(last.is_none_or(|last| fence > last), "{key}: {fence} after {last:?}");
        last = Some(fence);
        let claim = Proof { lease_id, fence };
        let renewed = send(&store, &key, Command::Renew { claim: claim.into(), ttl: None }).await;
        assert!(matches!(renewed, Outcome::Renewed(_)), "{key}: a grant is gone: {renewed:?}");
        // Repeated because nobody knew whether it was done, it finds the lease gone.
        let released = send(&store, &key, Command::Release(claim.into())).await;
        assert!(
            matches!(released, Outcome::Released | Outcome::Lost { held: None, .. }),
            "{key}: {released:?}"
        );
        load.cycles.fetch_add(1, Ordering::SeqCst);
    }
}

/// Sends a command until it is answered.
async fn send(store: &Postgres, key: &Key, command: Command) -> Outcome {
    loop {
        match store.apply(key, command.clone()).await {
            Ok(applied) => return applied.outcome,
            Err(error) => assert_ne!(error.retry(), Retry::No, "{key}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
