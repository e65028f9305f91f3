//! The report as a page: one file that loads nothing, light or dark as the reader has it, with every number of its plots in a
//! table, too.

use std::fmt::Write;

use leasehold_core::wire::telemetry::{SummaryView, TelemetryReport};

use super::chart;
use super::report::{Scale, duration, percent, time};

const STYLE: &str = include_str!("page.css");

/// The page.
pub(super) fn page(report: &TelemetryReport, scale: Scale) -> String {
    let phases: Vec<&str> = report.phases.keys().map(String::as_str).collect();
    let at = |millis| time(millis, scale.with_days);
    let (from, to) = (time(report.from, true), time(report.to, true));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Leasehold telemetry: {phase}, {to} UTC</title>\n<style>\n{STYLE}</style>\n<main>\n<h1>Telemetry of phase <b>{phase}</b></h1>\n\
         <p class=\"window\">{from} to {to} UTC</p>\n",
        phase = escape(&report.phase),
    );
    html.push_str(&verdict(report));
    html.push_str(&tiles(&report.judged));
    html.push_str("<h2>Read-only rate over time</h2>\n<p class=\"note\">Read-only entries per autosave session, over the 15 minutes before each point. A live second tab is not counted.</p>\n");
    html.push_str(&legend(&phases, report.threshold));
    html.push_str(&chart::rates(report, &phases));
    if !report.changes.is_empty() {
        html.push_str("\n<ul class=\"changes\">");
        for change in &report.changes {
            let what = if change.rollback { "Rolled back" } else { "Changed" };
            let (from, to) = (escape(&change.from), escape(&change.to));
            let _ = write!(html, "<li><b>{what}</b> from {from} to {to} at {} UTC</li>", at(change.at));
        }
        html.push_str("</ul>");
    }
    html.push_str(&reasons(report));
    html.push_str(&phase_table(report, &phases));
    html.push_str(&footer(report));
    html.push_str("</main>\n</html>\n");
    html
}

fn verdict(report: &TelemetryReport) -> String {
    let threshold = percent(Some(report.threshold));
    let (class, words) = match report.judged.read_only_rate {
        None => ("none", "No sessions were counted in this phase.".to_owned()),
        Some(rate) if rate > report.threshold => {
            ("bad", format!("The read-only rate is above the threshold of {threshold}."))
        }
        Some(_) => ("good", format!("The read-only rate is within the threshold of {threshold}.")),
    };
    let sign = match class {
        "good" => "✓",
        "bad" => "✗",
        _ => "–",
    };
    format!("<p class=\"verdict {class}\"><span aria-hidden=\"true\">{sign}</span> {words}</p>\n")
}

fn tiles(judged: &SummaryView) -> String {
    let tiles = [
        (
            "Read-only rate",
            percent(judged.read_only_rate),
            format!("{} in {} sessions", judged.read_only, judged.sessions),
        ),
        ("Live second tab", judged.second_tab.to_string(), "counted apart".to_owned()),
        (
            "Acquire p95",
            duration(judged.acquire_p95_ms, judged.acquires_timed),
            format!(
                "p50 {}, {} acquires",
                duration(judged.acquire_p50_ms, judged.acquires_timed),
                judged.acquires
            ),
        ),
        ("Without the Web Lock", percent(judged.fallback_rate), "of the acquires".to_owned()),
        (
            "Save p95",
            duration(judged.save_p95_ms, judged.saves_timed),
            format!("{} saves, {} failed", judged.saves, judged.save_failures),
        ),
        (
            "Restores that succeeded",
            percent(judged.restore_success),
            format!("{} of {}", judged.restores, judged.restores + judged.restore_failures),
        ),
    ];
    let mut html = String::from("<dl class=\"tiles\">");
    for (name, value, note) in tiles {
        let _ = write!(html, "<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>");
    }
    html + "</dl>\n"
}

fn legend(phases: &[&str], threshold: f64) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for (number, phase) in phases.iter().enumerate() {
        let _ = write!(html, "<span><i class=\"c{}\"></i>{}</span>", number % chart::COLOURS, escape(phase));
    }
    html + &format!("<span><i class=\"dash\"></i>threshold {}</span></p>\n", percent(Some(threshold)))
}

fn reasons(report: &TelemetryReport) -> String {
    let mut html = String::from("\n<h2>Why pages became read-only</h2>\n");
    if report.reasons.is_empty() {
        return html + "<p class=\"note\">None did, in this phase.</p>\n";
    }
    let most = report.reasons.iter().map(|reason| reason.n).max().unwrap_or(1) as f64;
    html.push_str("<div class=\"wide\"><table><tr><th>Reason</th><th>Last error</th><th class=\"n\">Times</th><th class=\"plotted\"></th></tr>");
    for reason in &report.reasons {
        let class = if reason.second_tab { "apart" } else { "counted" };
        let note = if reason.second_tab { "<small>live second tab</small>" } else { "" };
        let _ = write!(
            html,
            "<tr><td>{}{note}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escape(&reason.reason),
            escape(&reason.code),
            reason.n,
            chart::bar(reason.n as f64 / most, class, None)
        );
    }
    html + "</table></div>\n"
}

fn phase_table(report: &TelemetryReport, phases: &[&str]) -> String {
    let mut html = String::from("<h2>Phases</h2>\n");
    if phases.is_empty() {
        return html + "<p class=\"note\">Nothing was counted in this window.</p>\n";
    }
    let rates = report.phases.values().filter_map(|summary| summary.read_only_rate);
    let axis = chart::Axis::up_to(rates.fold(report.threshold * 2.0, f64::max));
    html.push_str("<div class=\"wide\"><table><tr><th>Phase</th><th class=\"plotted\">Read-only rate</th><th class=\"n\">Rate</th><th class=\"n\">Sessions</th><th class=\"n\">Read-only</th><th class=\"n\">Second tab</th><th class=\"n\">Acquire p95</th><th class=\"n\">Fallback</th><th class=\"n\">Save p95</th></tr>");
    for (number, (phase, summary)) in report.phases.iter().enumerate() {
        let bar = chart::bar(
            summary.read_only_rate.unwrap_or(0.0) / axis.top,
            &format!("c{}", number % chart::COLOURS),
            Some(report.threshold / axis.top),
        );
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{bar}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(phase),
            percent(summary.read_only_rate),
            summary.sessions,
            summary.read_only,
            summary.second_tab,
            duration(summary.acquire_p95_ms, summary.acquires_timed),
            percent(summary.fallback_rate),
            duration(summary.save_p95_ms, summary.saves_timed),
        );
    }
    html + "</table></div>\n"
}

fn footer(report: &TelemetryReport) -> String {
    let mut html = String::new();
    if report.dropped > 0 {
        let words = "events were dropped for lack of room: the rates are estimates.";
        let _ = writeln!(html, "<p class=\"note\">{} {words}</p>", report.dropped);
    }
    if report.damaged > 0 {
        let words = "lines could not be read and are left out.";
        let _ = writeln!(html, "<p class=\"note\">{} {words}</p>", report.damaged);
    }
    html + "<footer>Counts of events only: no user, no project, no lease and no content was recorded.</footer>\n"
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use leasehold_core::telemetry::Summary;
    use leasehold_core::wire::telemetry::{PhaseChange, RatePoint, ReasonView};

    use super::*;

    fn report() -> TelemetryReport {
        let summary = Summary { sessions: 40, read_only: 4, second_tab: 2, ..Summary::default() };
        let view = SummaryView::from(&summary);
        let point = |at, rate| RatePoint { at, phase: "beta".into(), sessions: 40, rate };
        TelemetryReport {
            from: 0,
            to: 900_000,
            phase: "beta".into(),
            threshold: 0.05,
            judged: view.clone(),
            phases: BTreeMap::from([("beta".into(), view)]),
            reasons: vec![ReasonView {
                reason: "renew-failed".into(),
                code: "<b>".into(),
                n: 4,
                second_tab: false,
            }],
            series: vec![point(0, 0.0), point(10_000, 0.1), point(400_000, 0.2)],
            changes: vec![PhaseChange { at: 450_000, from: "beta".into(), to: "off".into(), rollback: true }],
            dropped: 3,
            damaged: 0,
        }
    }

    fn made(report: &TelemetryReport) -> String {
        page(report, Scale::of(report))
    }

    #[test]
    fn the_page_says_what_the_report_does() {
        let html = made(&report());
        for words in [
            "above the threshold of 5.0 %",
            "10.0 %<small>4 in 40 sessions",
            "<b>Rolled back</b> from beta to off at 00:07:30 UTC",
            "class=\"rollback\" d=\"M50.00 0V100\"",
            "&lt;b&gt;",
            "3 events were dropped",
        ] {
            assert!(html.contains(words), "{words}\n{html}");
        }
        assert!(!html.contains("<td><b>"), "what comes from files is text");
        // Two points that belong together, and one after a gap.
        assert_eq!(
            html.matches("class=\"line c0\" d=\"M0.00 100.00H0.00L1.11 50.00M44.04 0.00H44.44\"").count(),
            1,
            "{html}"
        );
    }

    #[test]
    fn the_page_loads_nothing() {
        let html = made(&report());
        for word in ["http", "src=", "href", "url(", "@import", "<script"] {
            assert!(!html.contains(word), "{word}");
        }
    }

    #[test]
    fn a_page_about_nothing_is_a_page() {
        let none = SummaryView::from(&Summary::default());
        let empty = TelemetryReport {
            judged: none,
            phases: BTreeMap::new(),
            reasons: Vec::new(),
            series: Vec::new(),
            changes: Vec::new(),
            ..report()
        };
        let html = made(&empty);
        assert!(
            html.contains("No sessions were counted") && !html.contains("NaN") && !html.contains("inf"),
            "{html}"
        );
    }
}
