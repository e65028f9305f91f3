//! `cargo xtask bench server`: the server beside a durable Redis and a PostgreSQL, over loopback, in one run.
//!
//! One generator drives all three in turns: a closed loop, one request in flight for each connection, keys of its own for
//! each. A cycle is acquire, renew, release. Only ratios within one run count; the load of other programs is measured too.
//! `--what` chooses another comparison, in which nobody but Leasehold takes part: see `alone.rs`.

mod alone;
mod calls;
mod growth;
mod live;
mod mixed;
mod report;
mod servers;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

use calls::{Caller, Target};
use leasehold_sim::load::{ForeignLoad, seconds_of_tree};
use report::{Figures, Report};
use servers::Servers;

/// Measures the server.
#[derive(Parser)]
struct Args {
    /// Print one JSON object, on the last line.
    #[arg(long)]
    json: bool,
    /// What is measured.
    #[arg(long, value_enum, default_value_t = What::Rivals)]
    what: What,
    /// How many turns everything gets; the medians count.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long a turn takes, in seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Measure with these numbers of connections only.
    #[arg(long, value_delimiter = ',', default_values_t = CONNECTIONS)]
    connections: Vec<usize>,
    /// The program `leasehold`.
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// Another build of it, for `--what builds`.
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
    /// Draw what was measured into this SVG file as well.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Leasehold, a durable Redis and a PostgreSQL
    Rivals,
    /// Two builds of Leasehold, `--beside` the other, and Redis
    Builds,
    /// The default log, and a thousand watchers, beside a server without them
    Extras,
    /// Minute by minute, as many as there are rounds
    Minutes,
    /// A server on PostgreSQL, beside a loop of two trips on the same database
    Database,
    /// What a renewal alone costs
    Renewals,
    /// What HTTP alone costs, and a hundred renewals or commands of all kinds in a call
    Ceiling,
    /// With more and more live leases, and more and more watched documents
    Growth,
    /// How soon 10,000 watchers hear of a lock, and 10,000 ends are announced
    Live,
}

/// How many connections at a time are measured.
const CONNECTIONS: [usize; 4] = [1, 16, 64, 256];

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let have_bars = args.connections.iter().all(|connections| CONNECTIONS.contains(connections));
    ensure!(
        have_bars,
        "--connections takes some of {CONNECTIONS:?}: for others there are no bars to compare with"
    );
    match args.what {
        What::Rivals => rivals(&args).await,
        What::Builds => alone::builds(&args).await,
        What::Extras => alone::extras(&args).await,
        What::Minutes => alone::minutes(&args).await,
        What::Database => alone::database(&args).await,
        What::Renewals => alone::renewals(&args).await,
        What::Ceiling => alone::ceiling(&args).await,
        What::Growth => growth::growth(&args).await,
        What::Live => live::live(&args).await,
    }
}

async fn rivals(args: &Args) -> Result<()> {
    let servers = Servers::rivals(&args.program)?;
    let load = ForeignLoad::start();
    let mut report = Report::new();
    for round in 1..=args.rounds {
        eprintln!(
            "round {round} of {}: {:?} connections to each server in turn",
            args.rounds, args.connections
        );
        for &connections in &args.connections {
            for target in &servers.targets {
                let figures = turn(target, connections, Duration::from_secs(args.seconds)).await?;
                report.add(target.name, connections, figures);
            }
        }
    }
    report.foreign_load = load.cores();
    drop(servers);
    if let Some(file) = &args.plot {
        std::fs::write(file, report.svg()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    report.print(args.json)
}

/// Drives one server by so many connections for a while.
async fn turn(target: &Target, connections: usize, time: Duration) -> Result<Figures> {
    let mut callers = Vec::new();
    for number in 0..connections {
        callers.push(
            Caller::connect(target, number).await.with_context(|| format!("cannot call {}", target.name))?,
        );
    }
    drive(target, callers, time).await
}

/// Has these callers do their cycles for a while.
async fn drive(target: &Target, callers: Vec<Caller>, time: Duration) -> Result<Figures> {
    let stop = Arc::new(AtomicBool::new(false));
    let busy = seconds_of_tree(target.process);
    let start = Instant::now();
    let tasks: Vec<_> = callers.into_iter().map(|caller| tokio::spawn(cycle(caller, stop.clone()))).collect();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    Figures::of(times, start.elapsed().as_secs_f64(), seconds_of_tree(target.process) - busy)
}

/// Acquires, renews and releases until `stop` is set; answers how long each request took, in microseconds.
async fn cycle(mut caller: Caller, stop: Arc<AtomicBool>) -> Result<Vec<u32>> {
    let mut times = Vec::with_capacity(100_000);
    while !stop.load(Ordering::Relaxed) {
        for step in 0..calls::STEPS {
            let sent = Instant::now();
            caller.call(step).await?;
            times.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
    }
    Ok(times)
}
