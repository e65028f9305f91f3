//! `leasehold telemetry`: what the locks and autosaves of pages do, from the folders that servers count into. It only reads.

mod chart;
mod page;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_core::Invalid;
use leasehold_core::flags::{Flags, PhaseName};
use leasehold_core::time::parse_duration;
use leasehold_core::wire::telemetry::{SummaryView, TelemetryReport};
use leasehold_server::telemetry::{Recorded, read_by};
use leasehold_store::clock::unix_millis;

use crate::Ending;
use crate::out::Out;
use crate::serve::WrongUsage;
use report::{Asked, Scale, duration, percent, report, time};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Report the read-only rate against its threshold, and how long acquires and saves take.
    Report(Args),
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How far back: 15m, 24h or 7d.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = parse_window)]
    window: Duration,
    /// The folders that servers count into; once for each.
    #[arg(long, value_name = "FOLDER", env = "LEASEHOLD_TELEMETRY_FOLDER", default_value = "telemetry")]
    folder: Vec<PathBuf>,
    /// The flag file, for the current phase, its threshold and the changes [default: flags.json, if it is there]
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_FLAGS_FILE")]
    flags_file: Option<PathBuf>,
    /// The phase to judge [default: the current one of the flag file]
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_PHASE")]
    phase: Option<String>,
    /// Write the report as a page with plots: one file that loads nothing.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The flag file that is used if it is there.
const FLAGS_FILE: &str = "flags.json";

/// The longest window: as long as telemetry can be kept.
const LONGEST: Duration = Duration::from_secs(3_650 * 24 * 3_600);

/// Reads a window: a duration, or a number of days.
fn parse_window(text: &str) -> Result<Duration, Invalid> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    let window = match days {
        Some(days) => Duration::from_secs(days.saturating_mul(24 * 3_600)),
        None => parse_duration("window", text)?,
    };
    if (Duration::from_secs(60)..=LONGEST).contains(&window) {
        return Ok(window);
    }
    Err(Invalid::new("window", text, "a window lies between 1m and 3650d", "write it like 15m, 24h or 7d"))
}

pub(crate) fn run(command: &Command, out: &Out) -> Result<Ending> {
    let Command::Report(args) = command;
    let flags = flags(args.flags_file.as_deref())?;
    let named = args.phase.as_deref().map(PhaseName::parse).transpose();
    let named = named.map_err(|error| WrongUsage(error.to_string()))?;
    let (phase, _) = leasehold_core::flags::resolve(named.as_ref(), flags.as_ref())
        .map_err(|error| WrongUsage(error.to_string()))?;
    let asked = Asked { now: unix_millis(), window: args.window, phase, flags };
    let report = report(&asked, &recorded(&args.folder, &asked)?);
    if let Some(path) = &args.html {
        std::fs::write(path, page::page(&report, asked.scale()))
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    if out.is_json() {
        out.value(&report);
    } else {
        show(&report, out);
        if let Some(path) = &args.html {
            out.good(&format!("the page is {}", path.display()));
        }
    }
    Ok(Ending::Done)
}

fn flags(file: Option<&Path>) -> Result<Option<Flags>> {
    let there = Path::new(FLAGS_FILE);
    let file = file.or_else(|| there.exists().then_some(there));
    Ok(file.map(leasehold_server::flags::read).transpose()?)
}

fn recorded(folders: &[PathBuf], asked: &Asked) -> Result<Recorded> {
    let mut all = Recorded::default();
    for folder in folders {
        let recorded = read_by(folder, asked.range(), asked.scale().step).with_context(|| {
            let what = "cannot be read as the folder of a server's telemetry";
            format!("{} {what}; name it with --folder", folder.display())
        })?;
        all.merge(&recorded);
    }
    Ok(all)
}

fn show(report: &TelemetryReport, out: &Out) {
    let Scale { with_days, .. } = Scale::of(report);
    let at = |millis| time(millis, with_days);
    let judged = &report.judged;
    out.plain(&format!("phase {}, {} to {} UTC", report.phase, at(report.from), at(report.to)));
    let threshold = percent(Some(report.threshold));
    let verdict = format!(
        "read-only rate {} ({} in {} sessions), threshold {threshold}",
        percent(judged.read_only_rate),
        judged.read_only,
        judged.sessions
    );
    match judged.read_only_rate {
        None => out.notice(&format!("no sessions were counted in this phase; threshold {threshold}")),
        Some(rate) if rate > report.threshold => out.bad(&verdict),
        Some(_) => out.good(&verdict),
    }
    let header = [
        "PHASE",
        "SESSIONS",
        "READ-ONLY",
        "RATE",
        "SECOND TAB",
        "ACQUIRE P50",
        "P95",
        "FALLBACK",
        "SAVE P95",
        "RESTORED",
    ];
    if !report.phases.is_empty() {
        out.plain("");
        out.table(&header, report.phases.iter().map(|(phase, summary)| row(phase, summary)).collect());
    }
    if !report.reasons.is_empty() {
        out.plain("");
        let rows = report.reasons.iter().map(|reason| {
            let apart = if reason.second_tab { "counted apart" } else { "" };
            vec![reason.reason.clone(), reason.code.clone(), reason.n.to_string(), apart.to_owned()]
        });
        out.table(&["READ-ONLY BECAUSE OF", "LAST ERROR", "TIMES", "LIVE SECOND TAB"], rows.collect());
    }
    for change in &report.changes {
        let how = if change.rollback { "rolled back" } else { "changed" };
        out.notice(&format!("{}: {how} from {} to {}", at(change.at), change.from, change.to));
    }
    if report.dropped > 0 {
        out.notice(&format!(
            "{} events were dropped for lack of room: the rates are estimates",
            report.dropped
        ));
    }
    if report.damaged > 0 {
        out.notice(&format!("{} lines could not be read and are left out", report.damaged));
    }
}

fn row(phase: &str, summary: &SummaryView) -> Vec<String> {
    let millis = |given, count| duration(given, count);
    vec![
        phase.to_owned(),
        summary.sessions.to_string(),
        summary.read_only.to_string(),
        percent(summary.read_only_rate),
        summary.second_tab.to_string(),
        millis(summary.acquire_p50_ms, summary.acquires_timed),
        millis(summary.acquire_p95_ms, summary.acquires_timed),
        percent(summary.fallback_rate),
        millis(summary.save_p95_ms, summary.saves_timed),
        percent(summary.restore_success),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_duration_or_days() {
        let seconds = |text: &str| parse_window(text).map(|window| window.as_secs()).ok();
        assert_eq!((seconds("15m"), seconds("24h"), seconds("7d")), (Some(900), Some(86_400), Some(604_800)));
        for text in ["", "d", "-1d", "0d", "59s", "4000d", "1w", "99999999999999999999d"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
