//! How a server does as it grows: 10,000 to 1,000,000 live leases, and 1 to 10,000 watched documents. Memory for each and
//! time for a call are to stay what they are.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_sim::load::ForeignLoad;

use crate::calls::{Filler, Target, watch};
use crate::report::{Figures, print_load};
use crate::servers::Servers;
use crate::{Args, turn};

/// With so many connections.
const CONNECTIONS: usize = 64;

const LEASES: [usize; 4] = [0, 10_000, 100_000, 1_000_000];
const WATCHED: [usize; 6] = [0, 1, 10, 100, 1_000, 10_000];

/// How the server does with so many of something.
struct Size {
    count: usize,
    figures: Figures,
    memory: f64,
}

/// Measures both, and draws them.
pub async fn growth(args: &Args) -> Result<()> {
    let load = ForeignLoad::start();
    let leases = leases(args).await?;
    let watched = watched(args).await?;
    print("live leases", &leases);
    print("watched documents", &watched);
    print_load(load.cores());
    if let Some(file) = &args.plot {
        let picture = svg(&[("live leases", &leases), ("watched documents", &watched)]);
        std::fs::write(file, picture).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

async fn leases(args: &Args) -> Result<Vec<Size>> {
    let mut servers = Servers::none()?;
    servers.leasehold(
        &args.program,
        "leases",
        &["--log", "warn", "--ttl", "86400", "--heartbeat", "3600"],
    )?;
    let target = servers.named("leases")?;
    let mut sizes = Vec::new();
    for (before, count) in [0].into_iter().chain(LEASES).zip(LEASES) {
        fill(target, before..count).await?;
        sizes.push(measure(args, target, count).await?);
    }
    Ok(sizes)
}

async fn watched(args: &Args) -> Result<Vec<Size>> {
    let mut servers = Servers::none()?;
    servers.leasehold(&args.program, "watched", &["--log", "warn"])?;
    let target = servers.named("watched")?;
    let (mut sizes, mut streams) = (Vec::new(), Vec::new());
    for count in WATCHED {
        while streams.len() < count {
            streams.push(watch(target, streams.len()).await?);
        }
        sizes.push(measure(args, target, count).await?);
    }
    Ok(sizes)
}

/// Locks the documents of these numbers, over many connections.
async fn fill(target: &Target, numbers: std::ops::Range<usize>) -> Result<()> {
    let (next, end) = (Arc::new(AtomicUsize::new(numbers.start)), numbers.end);
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        let (mut filler, next) = (Filler::connect(target).await?, next.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return anyhow::Ok(());
                }
                filler.lock(number).await?;
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn measure(args: &Args, target: &Target, count: usize) -> Result<Size> {
    let figures = turn(target, CONNECTIONS, Duration::from_secs(args.seconds)).await?;
    Ok(Size { count, figures, memory: memory(target.process)? })
}

/// What a process has in memory, in bytes.
pub fn memory(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim_end_matches("kB").trim().parse::<f64>()? * 1_024.0)
}

fn print(what: &str, sizes: &[Size]) {
    println!("\n{what:>17}    cycles/s        p50        p99     memory   for each");
    let least = sizes.first().map_or(0.0, |size| size.memory);
    for Size { count, figures, memory } in sizes {
        let each = (memory - least) / (*count).max(1) as f64;
        println!(
            "{count:>17}  {:>10.0}  {:>6.2} ms  {:>6.2} ms  {:>5.0} MiB  {each:>7.0} B",
            figures.cycles_per_s,
            figures.p50_ms,
            figures.p99_ms,
            memory / 1_048_576.0
        );
    }
}

/// One panel for each: the median time of a call over the count, with the memory beside it.
fn svg(panels: &[(&str, &[Size])]) -> String {
    let all = panels.iter().flat_map(|(_, sizes)| sizes.iter());
    let longest = all.map(|size| size.figures.p50_ms).fold(0.1, f64::max);
    let rows: usize = panels.iter().map(|(_, sizes)| sizes.len() + 1).sum();
    let height = 40 + rows * 24;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" viewBox="0 0 760 {height}" font-family="system-ui, DejaVu Sans, sans-serif" font-size="13" role="img" aria-label="Median time of a call as leases and watched documents grow">
<rect width="760" height="{height}" fill="#ffffff"/>
<text x="16" y="24" font-weight="bold" fill="#1f2328">median time of a call with 64 connections, and memory of the server</text>
"##
    );
    let mut top = 40;
    for (what, sizes) in panels {
        let _ = writeln!(
            svg,
            r##"<text x="150" y="{}" text-anchor="end" fill="#57606a">{what}</text>"##,
            top + 14
        );
        for Size { count, figures, memory } in *sizes {
            top += 24;
            let (width, line) = (figures.p50_ms / longest * 400.0, top + 14);
            let _ = writeln!(
                svg,
                r##"<text x="150" y="{line}" text-anchor="end" fill="#1f2328">{count}</text><rect x="160" y="{top}" width="{width:.0}" height="18" rx="3" fill="#2da44e"/><text x="{:.0}" y="{line}" fill="#1f2328">{:.2} ms <tspan fill="#57606a">{:.0} MiB</tspan></text>"##,
                168.0 + width,
                figures.p50_ms,
                memory / 1_048_576.0
            );
        }
        top += 24;
    }
    svg + "</svg>\n"
}
