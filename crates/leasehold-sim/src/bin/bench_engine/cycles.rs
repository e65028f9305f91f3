//! Acquire, renew, release: as fast as the disk's syncs allow, as a plain SQLite does it, and as the embedded store does.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use leasehold_core::lease::{Bid, Proof};
use leasehold_core::{Command, Key, LeaseId, Meta, Outcome, Owner, Ttl};
use leasehold_sim::lease_ids::lease_id;
use leasehold_store::{Embedded, JobStore};
use rusqlite::{Connection, params};

/// What was measured for a number of callers. The times are those of whole cycles.
pub struct Figures {
    pub cycles_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Appends and syncs, one after the other: what the machine's disk allows.
pub fn sync_floor(folder: &Path, turn: Duration) -> Result<f64> {
    let path = fresh(folder, "floor");
    let mut file = std::fs::File::create(&path)?;
    let (start, mut syncs) = (Instant::now(), 0_u32);
    while start.elapsed() < turn {
        file.write_all(&[u8::try_from(syncs % 251)?; 256])?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(f64::from(syncs) / start.elapsed().as_secs_f64())
}

/// What one would write first: a table of locks, and a commit for every operation.
pub fn plain_sqlite(folder: &Path, turn: Duration) -> Result<f64> {
    let db = Connection::open(fresh(folder, "plain"))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.execute_batch(
        "CREATE TABLE lock (key TEXT PRIMARY KEY, owner TEXT, fence INTEGER, expires_at INTEGER)",
    )?;
    let acquire = "INSERT INTO lock VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO UPDATE SET owner = ?2, fence = ?3, expires_at = ?4";
    let renew = "UPDATE lock SET expires_at = ?2 WHERE key = ?1";
    let release = "DELETE FROM lock WHERE key = ?1";
    let (start, mut cycles) = (Instant::now(), 0_i64);
    while start.elapsed() < turn {
        let key = format!("run/key-{:024}", cycles % 64);
        db.prepare_cached(acquire)?.execute(params![key, "worker-1", cycles, cycles + 30])?;
        db.prepare_cached(renew)?.execute(params![key, cycles + 60])?;
        db.prepare_cached(release)?.execute(params![key])?;
        cycles += 1;
    }
    Ok(cycles as f64 / start.elapsed().as_secs_f64())
}

/// The embedded store, with so many callers at a time, each on a key of its own.
pub fn embedded(folder: &Path, callers: usize, turn: Duration) -> Result<Figures> {
    let store = Arc::new(Embedded::open(fresh(folder, &format!("embedded-{callers}")))?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let start = Instant::now();
    let until = start + turn;
    let mut times = runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..callers {
            tasks.spawn(cycle_until(store.clone(), caller, until));
        }
        let mut times = Vec::new();
        while let Some(done) = tasks.join_next().await {
            times.extend(done??);
        }
        anyhow::Ok(times)
    })?;
    let cycles_per_s = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort_unstable();
    Ok(Figures { cycles_per_s, p50_ms: percentile(&times, 50), p99_ms: percentile(&times, 99) })
}

async fn cycle_until(store: Arc<Embedded>, caller: usize, until: Instant) -> Result<Vec<Duration>> {
    let key = Key::parse(&format!("run/key-{caller:024}"))?;
    let owner = Owner::parse(&format!("worker-{caller}"))?;
    let mut times = Vec::new();
    while Instant::now() < until {
        let lease_id = lease_id(caller as u64, times.len() as u64);
        let start = Instant::now();
        cycle(store.as_ref(), &key, &owner, lease_id).await?;
        times.push(start.elapsed());
    }
    Ok(times)
}

async fn cycle(store: &Embedded, key: &Key, owner: &Owner, lease_id: LeaseId) -> Result<()> {
    let fence = match store.apply(key, Command::Acquire(bid(lease_id, owner, 30_000)?)).await?.outcome {
        Outcome::Granted { lease, .. } => lease.fence,
        other => bail!("{key} was not granted: {other:?}"),
    };
    let claim = Proof { lease_id, fence };
    // With another TTL: a renewal in the millisecond of the acquire would change nothing, and what changes nothing might
    // not have to be synced.
    let ttl = Some(Ttl::new(Duration::from_millis(31_000))?);
    store.apply(key, Command::Renew { claim: claim.into(), ttl }).await?;
    store.apply(key, Command::Release(claim.into())).await?;
    Ok(())
}

pub fn bid(lease_id: LeaseId, owner: &Owner, ttl_ms: u64) -> Result<Bid> {
    let ttl = Ttl::new(Duration::from_millis(ttl_ms))?;
    Ok(Bid { tab: None, lease_id, owner: owner.clone(), ttl, meta: Meta::default() })
}

/// The time that so many percent stay below, in milliseconds.
pub fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
}

/// A path at which there is nothing.
fn fresh(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    for suffix in ["", "-wal", "-shm", ".lock", ".journal"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    path
}
