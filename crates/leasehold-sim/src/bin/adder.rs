//! A process that adds numbers to a shared set under a lease: it is there to be stopped at the worst moment.
//!
//! It reads the whole set, adds its number, checks its lease, says that it is about to write, and writes the whole set
//! back. Between the check and the write nothing can save it but the fence.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_client::{AcquireOptions, Lease, Leasehold};
use leasehold_sim::shared_set::SharedSet;

/// How long a write takes: time enough to be stopped in.
const WRITE_TAKES: Duration = Duration::from_millis(30);

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: adder STORE-URL SET-FILE WORKER-NUMBER fenced|unfenced";
    let leasehold = Leasehold::open(&args.next().context(usage)?)?;
    let set = SharedSet::new(Path::new(&args.next().context(usage)?));
    let worker: u64 = args.next().context(usage)?.parse()?;
    let fenced = args.next().context(usage)? == "fenced";
    let options = || AcquireOptions::owner(format!("worker-{worker}")).ttl(Duration::from_secs(2));
    for turn in 0.. {
        let lease = leasehold.acquire("run/set", options()).await?;
        add(&lease, &set, worker * 1_000_000 + turn, fenced).await?;
        // Whether it was still ours or not: there is nothing more to do with it.
        let _ = lease.release().await;
    }
    Ok(())
}

async fn add(lease: &Lease, set: &SharedSet, number: u64, fenced: bool) -> Result<()> {
    let mut numbers = set.read()?;
    numbers.push(number);
    let Ok(fence) = lease.check() else { return Ok(()) };
    say(&format!("writing {number}"))?;
    std::thread::sleep(WRITE_TAKES);
    if set.write(&numbers, fenced.then_some(fence.get()))? {
        say(&format!("added {number}"))?;
    } else {
        say(&format!("refused {number}"))?;
    }
    Ok(())
}

/// Writes a line in one piece, and returns when it is out of this process.
fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    Ok(out.flush()?)
}
