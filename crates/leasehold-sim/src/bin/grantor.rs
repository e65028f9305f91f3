//! A process that grants, renews and releases under load, and says so: it is there to be killed.
//!
//! Each key has one task, which writes a line after every acknowledged command and sends the next one only when the line
//! is out. Whoever reads the lines therefore knows what was acknowledged, and that at most one command per key was under
//! way when the process died.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold_core::lease::{Bid, Proof};
use leasehold_core::{Command, Key, Meta, Outcome, Owner, Ttl};
use leasehold_sim::lease_ids::lease_id;
use leasehold_store::{Applied, Retry, Store};

/// How many keys are worked on at a time.
const KEYS: u64 = 16;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: grantor STORE-URL RUN-NUMBER";
    let url = args.next().context(usage)?;
    let run: u64 = args.next().context(usage)?.parse()?;
    let store = leasehold_store::open(&url)?;
    for number in 0..KEYS {
        report_state(store.as_ref(), number).await?;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..KEYS {
        tasks.spawn(work(store.clone(), number, run));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

fn key(number: u64) -> Result<Key> {
    Ok(Key::parse(&format!("run/key-{number}"))?)
}

/// What the store holds at the start: `state KEY FENCE`, with 0 for a free key.
async fn report_state(store: &dyn Store, number: u64) -> Result<()> {
    let key = key(number)?;
    let slot = store.read(&key).await?.slot;
    say(&format!("state {key} {}", slot.lease.map_or(0, |lease| lease.fence.get())))
}

async fn work(store: Arc<dyn Store>, number: u64, run: u64) -> Result<()> {
    let key = key(number)?;
    clear(store.as_ref(), &key).await?;
    for turn in 0_u64.. {
        let lease_id = lease_id(run * KEYS + number, turn);
        let owner = Owner::parse(&format!("run-{run}"))?;
        let bid = Bid { tab: None, lease_id, owner, ttl: Ttl::MAX, meta: Meta::default() };
        let Outcome::Granted { lease, .. } =
            apply(store.as_ref(), &key, Command::Acquire(bid)).await?.outcome
        else {
            bail!("{key} was not granted");
        };
        say(&format!("granted {key} {}", lease.fence))?;
        let claim = Proof { lease_id, fence: lease.fence };
        apply(store.as_ref(), &key, Command::Renew { claim: claim.into(), ttl: None }).await?;
        say(&format!("renewed {key} {}", lease.fence))?;
        apply(store.as_ref(), &key, Command::Release(claim.into())).await?;
        say(&format!("released {key} {}", lease.fence))?;
    }
    Ok(())
}

/// Ends the lease that the run before may have left.
async fn clear(store: &dyn Store, key: &Key) -> Result<()> {
    if let Some(lease) = store.read(key).await?.slot.lease {
        let claim = lease.proof();
        apply(store, key, Command::Release(claim.into())).await?;
        say(&format!("released {key} {}", lease.fence))?;
    }
    Ok(())
}

/// Sends a command until it is answered: with the same lease id, repeating it is safe.
async fn apply(store: &dyn Store, key: &Key, command: Command) -> Result<Applied> {
    loop {
        match store.apply(key, command.clone()).await {
            Ok(applied) => return Ok(applied),
            Err(error) if error.retry() == Retry::No => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Writes a line in one piece, and returns when it is out of this process.
fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    Ok(out.flush()?)
}
