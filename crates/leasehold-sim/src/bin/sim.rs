//! Lives through simulated worlds: one, told in full, or as many as fill so many hours.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use leasehold_sim::bug::Bug;
use leasehold_sim::checker::Counts;
use leasehold_sim::world::{self, Run};

/// How much of the story of a failed world is shown.
const LAST_LINES: usize = 30;

const HOUR: u64 = 3_600_000;

/// Lives through simulated worlds and says which law did not hold in one.
#[derive(Parser)]
struct Options {
    /// The world to tell of; with --hours or --minutes, the first of many
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Live through worlds until this many simulated hours have passed
    #[arg(long, value_name = "H")]
    hours: Option<u64>,
    /// Live through worlds for this many minutes, of real time
    #[arg(long, value_name = "M", conflicts_with = "hours")]
    minutes: Option<u64>,
    /// Begin at a seed that nobody has chosen
    #[arg(long)]
    fresh: bool,
    /// Put this mistake into the world
    #[arg(long, value_name = "NAME")]
    bug: Option<Bug>,
    /// Append the seeds of failed worlds to this file, and go on after a failure
    #[arg(long, value_name = "FILE")]
    keep: Option<std::path::PathBuf>,
    /// Tell only how it ended
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let fine = match (options.hours, options.minutes) {
        (None, None) => one(&options),
        _ => many(&options),
    };
    match fine {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One world, told in full.
fn one(options: &Options) -> Result<bool> {
    let run = world::run(options.seed, options.bug, !options.quiet);
    let mut out = std::io::stdout().lock();
    let colour = out.is_terminal();
    for line in &run.story {
        // Somebody who has seen enough closes the pipe.
        if writeln!(out, "{}", if colour { coloured(line) } else { line.clone() }).is_err() {
            return Ok(run.violation.is_none());
        }
    }
    let hours = run.lasted as f64 / HOUR as f64;
    match &run.violation {
        None => writeln!(
            out,
            "seed {}: all laws held for {hours:.2} hours; {}",
            options.seed,
            shown(&run.counts)
        )?,
        Some(broken) => writeln!(
            out,
            "seed {}: broke {} after {:.3} s: {}",
            options.seed,
            broken.law,
            broken.at as f64 / 1_000.0,
            broken.what
        )?,
    }
    Ok(run.violation.is_none())
}

/// What many worlds have in common.
struct Tour {
    next_seed: AtomicU64,
    lived: AtomicU64,
    worlds: AtomicU64,
    failed: AtomicBool,
    counts: Mutex<Counts>,
}

/// Worlds on all cores until enough time has passed. The first failure ends it, unless failing seeds are collected.
fn many(options: &Options) -> Result<bool> {
    let first = if options.fresh { fresh_seed() } else { options.seed };
    let start = Instant::now();
    let tour = Tour {
        next_seed: AtomicU64::new(first),
        lived: AtomicU64::new(0),
        worlds: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        counts: Mutex::new(Counts::default()),
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        let guides: Vec<_> = (0..cores).map(|_| scope.spawn(|| travel(options, &tour, start))).collect();
        guides
            .into_iter()
            .try_for_each(|guide| guide.join().unwrap_or_else(|_| anyhow::bail!("a world panicked")))
    })?;
    let failed = tour.failed.load(Ordering::SeqCst);
    let (lived, took) =
        (tour.lived.load(Ordering::SeqCst) as f64 / HOUR as f64, start.elapsed().as_secs_f64());
    let counts = tour.counts.lock().map(|counts| *counts).unwrap_or_default();
    let verdict = if failed { "FAILED" } else { "all laws held" };
    println!(
        "{} worlds from seed {first}, {lived:.0} simulated hours in {took:.1} s ({:.0} per second): {verdict}; {}",
        tour.worlds.load(Ordering::SeqCst),
        lived / took.max(0.001),
        shown(&counts)
    );
    Ok(!failed)
}

fn travel(options: &Options, tour: &Tour, start: Instant) -> Result<()> {
    let enough = || match (options.hours, options.minutes) {
        (Some(hours), _) => tour.lived.load(Ordering::SeqCst) >= hours * HOUR,
        (None, minutes) => start.elapsed() >= Duration::from_secs(60 * minutes.unwrap_or(0)),
    };
    let goes_on = || options.keep.is_some() || !tour.failed.load(Ordering::SeqCst);
    while !enough() && goes_on() {
        let seed = tour.next_seed.fetch_add(1, Ordering::SeqCst);
        let run = world::run(seed, options.bug, false);
        tour.lived.fetch_add(run.lasted, Ordering::SeqCst);
        tour.worlds.fetch_add(1, Ordering::SeqCst);
        if let Ok(mut counts) = tour.counts.lock() {
            counts.add(&run.counts);
        }
        if run.violation.is_some() {
            tour.failed.store(true, Ordering::SeqCst);
            report(options, seed, &world::run(seed, options.bug, true))?;
        }
    }
    Ok(())
}

/// What to know about a failed world: the law, how it came to that, and how to see it again.
fn report(options: &Options, seed: u64, run: &Run) -> Result<()> {
    let Some(broken) = &run.violation else { return Ok(()) };
    let bug = options.bug.map(|bug| format!(" --bug {}", bug.name())).unwrap_or_default();
    let last = run.story.len().saturating_sub(LAST_LINES);
    let story = run.story.get(last..).unwrap_or_default().join("\n");
    println!(
        "seed {seed} broke {}\n  {}\n{story}\nreplay it with: cargo xtask sim --seed {seed}{bug}\n",
        broken.law, broken.what
    );
    if let Some(path) = &options.keep {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot keep the seed in {}", path.display()))?;
        writeln!(file, "cargo xtask sim --seed {seed}{bug}  # {}", broken.law)?;
        println!("its seed is kept in {}", path.display());
    }
    Ok(())
}

fn shown(counts: &Counts) -> String {
    let Counts { decided, granted, expired, written, refused, told } = counts;
    format!(
        "{decided} commands, {granted} grants, {expired} expiries, {told} events told, {written} fenced writes, \
         {refused} refused"
    )
}

fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos() & u128::from(u32::MAX)).unwrap_or(0) << 16
}

/// What the store does is bold, what goes wrong is yellow, and a broken law red.
fn coloured(line: &str) -> String {
    let code = if line.contains("!!!") {
        "31;1"
    } else if ["CRASHES", "PAUSED", "CUT OFF", "FAILS"].iter().any(|word| line.contains(word)) {
        "33"
    } else if line.contains("store: ") {
        "1"
    } else {
        return line.to_owned();
    };
    format!("\u{1b}[{code}m{line}\u{1b}[0m")
}
