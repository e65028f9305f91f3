//! Weighs the storage engines that could stand below the embedded store: the same work for each, in one run.
//!
//! ```text
//! cargo run --release --manifest-path benches/engines/Cargo.toml
//! ```
//!
//! Run it from inside the repository, whose settings for building SQLite count for both.
//!
//! Only the ratios within one run mean something: the machine, its disk and its neighbours are in every figure.
//! Nothing here is used by Leasehold itself.

mod engines;
mod load;
mod measure;
mod report;
mod workload;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;

/// Weighs storage engines against each other with the work of a lease store.
#[derive(Parser)]
struct Args {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,

    /// The folder to work in; its disk is the one that is measured [default: the folder for temporary files]
    #[arg(long)]
    dir: Option<PathBuf>,

    /// How many slots there are while the speed is measured
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(10_000..=1_000_000))]
    slots: u64,

    /// Fill the store of one candidate, and wait to be killed
    #[arg(long, hide = true)]
    fill: Option<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let parent = args.dir.unwrap_or_else(std::env::temp_dir);
    if let Some(name) = &args.fill {
        return measure::fill_and_wait(&parent, name);
    }
    let folder = tempfile::Builder::new()
        .prefix("leasehold-engines-")
        .tempdir_in(&parent)
        .with_context(|| format!("no folder could be made in {}", parent.display()))?;
    let (begun, load) = (Instant::now(), load::Load::now());
    let report = report::Report {
        cores: std::thread::available_parallelism()?.get(),
        slots: args.slots,
        speeds: measure::speeds(folder.path(), args.slots)?,
        restarts: measure::restarts(folder.path())?,
        foreign_cores: load.foreign_cores(),
        seconds: begun.elapsed().as_secs_f64(),
    };
    if args.json {
        println!("{}", report.json());
    } else {
        report.print();
    }
    Ok(())
}
