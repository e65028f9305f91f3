//! `cargo xtask bench engine`: the embedded store beside the machine's sync floor and a plain SQLite, in one run.
//!
//! Everything is measured in the same run, in turns, because these machines are noisy: only ratios count. The load that
//! other programs make meanwhile is measured too, and figures taken under it are marked.

mod cycles;
mod million;
mod plot;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use cycles::Figures;
use leasehold_sim::load::ForeignLoad;

/// Measures the engine.
#[derive(Parser)]
struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// How many turns everything gets; the medians count.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many leases are live at scale; 0 leaves that part out.
    #[arg(long, default_value_t = 1_000_000)]
    leases: u64,
    /// Where the files go; a new folder in the system's temporary one by default.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Draw what was measured into this SVG file as well.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Used by the benchmark itself.
    #[arg(long, hide = true)]
    child: Option<String>,
}

/// How many callers at a time are measured.
const CALLERS: [usize; 4] = [1, 16, 64, 1_024];

/// How long each measurement takes.
const TURN: Duration = Duration::from_millis(1_500);

fn main() -> Result<()> {
    let args = Args::parse();
    let folder = args
        .folder
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("leasehold-bench-{}", std::process::id())));
    if let Some(role) = &args.child {
        return million::child(role, &folder, args.leases);
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let report = measure(&args, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    let report = report?;
    if let Some(file) = &args.plot {
        std::fs::write(file, plot::svg(&report))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    report.print(args.json)
}

fn measure(args: &Args, folder: &Path) -> Result<report::Report> {
    let load = ForeignLoad::start();
    let mut rounds = Rounds::default();
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}: sync floor, SQLite, embedded with {CALLERS:?} callers", args.rounds);
        rounds.floor.push(cycles::sync_floor(folder, TURN)?);
        rounds.sqlite.push(cycles::plain_sqlite(folder, TURN)?);
        for (index, callers) in CALLERS.into_iter().enumerate() {
            let figures = cycles::embedded(folder, callers, TURN)?;
            rounds.embedded.get_mut(index).context("a row per number of callers")?.push(figures);
        }
    }
    let foreign_load = load.cores();
    let million = match args.leases {
        0 => None,
        leases => Some(million::measure(folder, leases)?),
    };
    rounds.into_report(foreign_load, million)
}

#[derive(Default)]
struct Rounds {
    floor: Vec<f64>,
    sqlite: Vec<f64>,
    embedded: [Vec<Figures>; CALLERS.len()],
}

impl Rounds {
    fn into_report(self, foreign_load: f64, million: Option<million::Million>) -> Result<report::Report> {
        let middle = |figures: Vec<Figures>| -> Result<Figures> {
            Ok(Figures {
                cycles_per_s: median(figures.iter().map(|f| f.cycles_per_s).collect())?,
                p50_ms: median(figures.iter().map(|f| f.p50_ms).collect())?,
                p99_ms: median(figures.iter().map(|f| f.p99_ms).collect())?,
            })
        };
        let embedded: Result<Vec<_>> = CALLERS
            .into_iter()
            .zip(self.embedded)
            .map(|(callers, figures)| Ok((callers, middle(figures)?)))
            .collect();
        Ok(report::Report {
            foreign_load,
            floor: median(self.floor)?,
            sqlite: median(self.sqlite)?,
            embedded: embedded?,
            million,
        })
    }
}

fn median(mut values: Vec<f64>) -> Result<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().context("nothing was measured: --rounds is at least 1")
}
