//! What operators get beside the program: alert rules and a dashboard. They name metrics that exist, and each alert has its part
//! of the runbook.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::skipped;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap()
}

/// The metrics of a server, without labels, and as a histogram is asked for.
fn metrics() -> BTreeSet<String> {
    let names = include_str!("metric-names.txt").lines();
    let bare = names.map(|line| line.split('{').next().unwrap().to_owned());
    bare.chain(["leasehold_http_request_duration_seconds_bucket".to_owned()]).collect()
}

/// The metrics that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_word(c)).filter(|word| word.starts_with("leasehold_"));
    words.map(str::to_owned).collect()
}

#[test]
fn the_alerts_name_metrics_that_exist_and_parts_of_the_runbook() {
    let alerts = read("packaging/prometheus-alerts.yml");
    let (known, used) = (metrics(), named(&alerts));
    assert!(used.len() > 10, "{used:?}");
    assert_eq!(used.difference(&known).collect::<Vec<_>>(), [""; 0]);
    let runbook = read("docs/runbook.md");
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(runbook.lines().any(|line| line == format!("### {name}")), "{name} is not in the runbook");
        assert!(
            alerts.contains(&format!("runbook.md#{}", name.to_lowercase())),
            "{name} names no part of it"
        );
    }
}

#[test]
fn the_dashboard_names_metrics_that_exist_and_shows_all_of_them() {
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    let (known, used) = (metrics(), named(&expressions.join("\n")));
    assert_eq!(used.difference(&known).collect::<Vec<_>>(), [""; 0]);
    let is_shown = |name: &&String| {
        let base = name.trim_end_matches("_count").trim_end_matches("_sum");
        used.contains(*name) || used.contains(&format!("{base}_bucket"))
    };
    // Facts about a server that its panels do not need.
    let left_out = ["leasehold_jobs_only", "leasehold_other_servers"];
    let missing: Vec<_> =
        known.iter().filter(|name| !is_shown(name) && !left_out.contains(&name.as_str())).collect();
    assert_eq!(missing, [""; 0]);
}

/// The expressions of the dashboard, with the variables of Grafana filled in, are rules that promtool can check.
fn dashboard_as_rules() -> String {
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana-dashboard.json")).unwrap();
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let filled =
                expression.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*");
            let quoted = serde_json::to_string(&filled).unwrap();
            rules += &format!(
                "  - record: p{}:{}\n    expr: {quoted}\n",
                panel["id"],
                target["refId"].as_str().unwrap()
            );
        }
    }
    rules
}

#[test]
fn promtool_accepts_the_alerts_and_the_dashboard() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return skipped("the alert rules with promtool, because it is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let dashboard = folder.path().join("dashboard.yml");
    std::fs::write(&dashboard, dashboard_as_rules()).unwrap();
    let promtool = |args: &[&str], file: &Path| {
        let output = Command::new("promtool").args(args).arg(file).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    };
    promtool(&["check", "rules"], &repository("packaging/prometheus-alerts.yml"));
    promtool(&["check", "rules"], &dashboard);
    promtool(&["test", "rules"], &repository("packaging/prometheus-alerts.test.yml"));
}
