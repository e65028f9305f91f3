//! `leasehold telemetry report`: what a server has counted, as a table, as JSON and as a page.

use std::path::Path;

use leasehold_core::flags::PhaseName;
use leasehold_core::telemetry::Event;
use leasehold_server::telemetry::{Collector, Keep};
use leasehold_store::clock::unix_millis;
use serde_json::Value;

use crate::support::run;

/// Counts of the last minutes: in phase beta 8 of 40 sessions became read-only, 2 more beside a live second tab.
fn count(folder: &Path) {
    let collector = Collector::open(&folder.join("telemetry"), Keep::default()).unwrap();
    let phase = PhaseName::parse("beta").unwrap();
    let now = unix_millis() - 60_000;
    let readonly = |reason, code| Event::lock("lock:readonly-entered", Some(reason), Some(code));
    collector.record(&phase, &[Event::session(); 40], now);
    collector.record(&phase, &[readonly("renew-failed", "renew-failed"); 8], now);
    collector.record(&phase, &[readonly("acquire-timeout", "fallback-conflict"); 2], now);
    collector.record(&phase, &[Event::lock("lock:acquired", Some("file-lock"), None).took(12); 40], now);
    collector.record(&PhaseName::parse("off").unwrap(), &[Event::session(); 3], now);
    collector.flush(now).unwrap();
}

#[test]
fn a_report_judges_the_current_phase_and_after_a_rollback_the_previous_one() {
    let folder = tempfile::tempdir().unwrap();
    count(folder.path());
    run(&folder, &["flags", "init", "--phases", "off:off,beta", "--by", "anna"]);
    run(&folder, &["flags", "advance", "--by", "anna"]);
    let report =
        || -> Value { serde_json::from_str(&run(&folder, &["telemetry", "report", "--json"]).raw).unwrap() };
    let before = report();
    assert_eq!(
        (&before["phase"], &before["judged"]["read_only_rate"]),
        (&"beta".into(), &0.2.into()),
        "{before}"
    );
    assert_eq!(
        (&before["judged"]["second_tab"], &before["judged"]["acquire_p95_ms"]),
        (&2.into(), &15.into())
    );
    assert_eq!(before["judged"]["fallback_rate"], 1.0);
    run(&folder, &["flags", "rollback", "--phase", "prev", "--by", "anna"]);
    let after = report();
    assert_eq!((&after["phase"], &after["judged"]["sessions"]), (&"off".into(), &3.into()), "{after}");
    assert_eq!(after["changes"].as_array().unwrap().len(), 2);
    assert_eq!((&after["changes"][1]["to"], &after["changes"][1]["rollback"]), (&"off".into(), &true.into()));
}

#[test]
fn a_report_is_a_table_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    count(folder.path());
    let shown =
        run(&folder, &["telemetry", "report", "--window", "1d", "--phase", "beta", "--html", "report.html"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    for words in [
        "read-only rate 20.0 % (8 in 40 sessions), threshold 5.0 %",
        "renew-failed",
        "counted apart",
        "report.html",
    ] {
        assert!(shown.raw.contains(words), "{words}\n{}", shown.raw);
    }
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("above the threshold of 5.0 %") && page.contains("8 in 40 sessions"), "{page}");
}

#[test]
fn what_cannot_be_reported_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let missing = run(&folder, &["telemetry", "report"]);
    assert_eq!(missing.code, 1);
    assert!(
        missing.err.contains("telemetry cannot be read") && missing.err.contains("--folder"),
        "{}",
        missing.err
    );
    let window = run(&folder, &["telemetry", "report", "--window", "soon"]);
    assert_eq!(window.code, 2, "{}", window.err);
    std::fs::create_dir(folder.path().join("telemetry")).unwrap();
    let empty = run(&folder, &["telemetry", "report"]);
    assert!(empty.code == 0 && empty.raw.contains("no sessions were counted"), "{}", empty.raw);
    assert_eq!(run(&folder, &["telemetry", "report", "--phase", "No Phase"]).code, 2);
}
