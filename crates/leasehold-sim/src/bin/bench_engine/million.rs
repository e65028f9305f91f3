//! A million live leases: how much memory they take, how soon a killed store serves again, and whether anybody notices
//! when they all expire at once.
//!
//! Each part runs in a process of its own, so that memory and start-up are those of a store and not of a benchmark.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use leasehold_core::{Command, Key, Outcome, Owner};
use leasehold_sim::lease_ids::lease_id;
use leasehold_store::{Embedded, JobStore, Store};

use crate::cycles::{bid, percentile};

pub struct Million {
    pub leases: u64,
    pub rss_mib: f64,
    pub restart_s: f64,
    pub storm_acquire_p99_ms: f64,
    pub storm_s: f64,
}

/// All leases expire at this moment of the lease clock, which begins at zero and stands still while the store is down.
const ALL_EXPIRE_AT: Duration = Duration::from_secs(120);

/// How many acquire while the others expire.
const STORM_CALLERS: u64 = 16;

/// How many leases one owner gets.
const PER_OWNER: u64 = 1_000;

pub fn measure(folder: &Path, leases: u64) -> Result<Million> {
    eprintln!("{leases} leases: acquiring them");
    let mut filling = start("fill", folder, leases)?;
    let rss_mib = answer(&mut filling.lines, "rss_mib")?;
    // Killed, not stopped: what counts is how soon it serves again after the worst end.
    filling.process.kill()?;
    filling.process.wait()?;
    eprintln!("{leases} leases: {rss_mib:.0} MiB; killed, starting again");
    let mut serving = start("serve", folder, leases)?;
    let restart_s = answer(&mut serving.lines, "restart_s")?;
    eprintln!("{leases} leases: serving after {restart_s:.2} s; now they all expire at once");
    let rss_again = answer(&mut serving.lines, "rss_mib")?;
    let storm_acquire_p99_ms = answer(&mut serving.lines, "storm_acquire_p99_ms")?;
    let storm_s = answer(&mut serving.lines, "storm_s")?;
    serving.process.wait()?;
    Ok(Million { leases, rss_mib: rss_mib.max(rss_again), restart_s, storm_acquire_p99_ms, storm_s })
}

struct Child {
    process: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

fn start(role: &str, folder: &Path, leases: u64) -> Result<Child> {
    let mut process = Process::new(std::env::current_exe()?)
        .args(["--child", role, "--leases", &leases.to_string(), "--folder"])
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(process.stdout.take().context("the child has no output")?).lines();
    Ok(Child { process, lines })
}

/// The child's next line, which is `name value`.
fn answer(lines: &mut impl Iterator<Item = std::io::Result<String>>, name: &str) -> Result<f64> {
    let line = lines.next().with_context(|| format!("the child ended before it said its {name}"))??;
    let value = line.strip_prefix(name).with_context(|| format!("expected {name}, heard {line}"))?;
    Ok(value.trim().parse()?)
}

/// What a child process does.
pub fn child(role: &str, folder: &Path, leases: u64) -> Result<()> {
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let store = Arc::new(Embedded::open(folder.join("million"))?);
    match role {
        "fill" => runtime.block_on(fill(store, leases)),
        "serve" => runtime.block_on(serve(store, leases, started)),
        other => bail!("there is no role {other}"),
    }
}

async fn fill(store: Arc<Embedded>, leases: u64) -> Result<()> {
    const FILLERS: u64 = 512;
    let mut tasks = tokio::task::JoinSet::new();
    for filler in 0..FILLERS {
        let store = store.clone();
        tasks.spawn(async move {
            for number in (filler..leases).step_by(FILLERS as usize) {
                acquire_until_the_end(&store, number).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    println!("rss_mib {}", resident_mib()?);
    std::future::pending().await
}

async fn acquire_until_the_end(store: &Embedded, number: u64) -> Result<()> {
    // 32 bytes.
    let key = Key::parse(&format!("run/{number:028}"))?;
    let owner = Owner::parse(&format!("worker-{}", number / PER_OWNER))?;
    let left = ALL_EXPIRE_AT.saturating_sub(Duration::from_millis(store.read(&key).await?.now.as_millis()));
    let ttl = u64::try_from(left.as_millis())?;
    match store.apply(&key, Command::Acquire(bid(lease_id(number, 1), &owner, ttl)?)).await?.outcome {
        Outcome::Granted { .. } => Ok(()),
        other => bail!("{key} was not granted: {other:?}"),
    }
}

async fn serve(store: Arc<Embedded>, leases: u64, started: Instant) -> Result<()> {
    acquire_and_release(&store, 0, 0).await?;
    println!("restart_s {}", started.elapsed().as_secs_f64());
    println!("rss_mib {}", resident_mib()?);
    let almost = ALL_EXPIRE_AT.saturating_sub(Duration::from_millis(500));
    tokio::time::sleep(almost.saturating_sub(Duration::from_millis(store.now().await?.as_millis()))).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..STORM_CALLERS {
        callers.spawn(acquire_during_the_storm(store.clone(), caller, over.clone()));
    }
    let storm = sweep(&store, leases).await?;
    over.store(true, Ordering::SeqCst);
    let mut times = Vec::new();
    while let Some(done) = callers.join_next().await {
        times.extend(done??);
    }
    times.sort_unstable();
    println!("storm_acquire_p99_ms {}", percentile(&times, 99));
    println!("storm_s {}", storm.as_secs_f64());
    Ok(())
}

/// Settles all of the leases, as a server's sweeper does; answers how long that took from the first to the last. They do not end in
/// the very same millisecond: a turn in which nothing is due is not the end.
async fn sweep(store: &Embedded, leases: u64) -> Result<Duration> {
    let (mut first, mut ended) = (None, 0);
    while ended < leases {
        let settled = store.settle_due(256).await?.keys as u64;
        if settled == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else {
            first.get_or_insert_with(Instant::now);
        }
        ended += settled;
    }
    first.map(|first| first.elapsed()).context("there were leases")
}

async fn acquire_during_the_storm(
    store: Arc<Embedded>,
    caller: u64,
    over: Arc<AtomicBool>,
) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    while !over.load(Ordering::SeqCst) {
        times.push(acquire_and_release(&store, caller, times.len() as u64 + 1).await?);
    }
    Ok(times)
}

/// How long the acquire took.
async fn acquire_and_release(store: &Embedded, caller: u64, number: u64) -> Result<Duration> {
    let key = Key::parse(&format!("run/storm-{caller}"))?;
    let owner = Owner::parse(&format!("storm-{caller}"))?;
    let lease_id = lease_id(1 << 40 | caller, number);
    let start = Instant::now();
    let applied = store.apply(&key, Command::Acquire(bid(lease_id, &owner, 30_000)?)).await?;
    let took = start.elapsed();
    if !matches!(applied.outcome, Outcome::Granted { .. }) {
        bail!("{key} was not granted: {:?}", applied.outcome);
    }
    store.apply(&key, Command::Withdraw { lease_id, owner }).await?;
    Ok(took)
}

/// The memory of this process.
fn resident_mib() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1_024.0)
}
