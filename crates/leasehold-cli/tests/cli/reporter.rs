//! `leasehold reporter` and `leasehold drill`: a phase that hurts is noticed and rolled back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use leasehold_core::flags::PhaseName;
use leasehold_core::telemetry::Event;
use leasehold_server::telemetry::{Collector, Keep};
use leasehold_store::clock::unix_millis;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Run, command, run};

/// Counts sessions of a phase, of which some became read-only, a minute ago.
fn count(folder: &TempDir, phase: &str, sessions: usize, read_only: usize) {
    let collector = Collector::open(&folder.path().join("telemetry"), Keep::default()).unwrap();
    let failed = Event::lock("lock:readonly-entered", Some("renew-failed"), Some("renew-failed"));
    let mut events = vec![Event::session(); sessions];
    events.extend(vec![failed; read_only]);
    let now = unix_millis();
    collector.record(&PhaseName::parse(phase).unwrap(), &events, now - 60_000);
    collector.flush(now).unwrap();
}

/// In phase `all`, which began long ago as far as the Reporter is concerned.
fn flags() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"version": 1, "phase": "all", "phases": [
        {"name": "off", "autosave": false}, {"name": "beta", "autosave": true}, {"name": "all", "autosave": true}]}"#;
    std::fs::write(folder.path().join("flags.json"), text).unwrap();
    folder
}

const ONCE: [&str; 5] = ["reporter", "--once", "--json", "--looks", "1"];

fn phase(folder: &TempDir) -> String {
    run(folder, &["flags", "show", "--json"]).json()["phase"].as_str().unwrap().to_owned()
}

/// Takes JSON over HTTP, and answers with success.
fn receiver() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, messages) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.get_mut().write_all(answer).unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (url, messages)
}

#[test]
fn without_apply_it_only_says_what_it_would_do() {
    let folder = flags();
    count(&folder, "all", 40, 4);
    let looked = run(&folder, &ONCE);
    let json = looked.json();
    assert_eq!(
        (looked.code, json["decision"].as_str(), json["to"].as_str()),
        (3, Some("roll_back"), Some("beta"))
    );
    assert_eq!((json["sessions"].as_u64(), json["read_only"].as_u64()), (Some(40), Some(4)));
    assert_eq!(phase(&folder), "all");
    assert!(!folder.path().join("incidents/incidents.jsonl").exists());
    let words = run(&folder, &["reporter", "--once", "--looks", "1", "--apart", "0s"]).out;
    assert!(words.contains("leasehold flags rollback --phase beta"), "{words}");
}

#[test]
fn with_apply_it_rolls_back_once_writes_it_down_and_tells_slack_and_pagerduty() {
    let folder = flags();
    count(&folder, "all", 40, 4);
    let (url, messages) = receiver();
    let apply = || {
        let mut command = command(folder.path(), &[&ONCE[..], &["--apply"]].concat());
        command.env("LEASEHOLD_SLACK_URL", &url).env("LEASEHOLD_PAGERDUTY_KEY", "hunter2");
        Run::of(command.env("LEASEHOLD_PAGERDUTY_URL", &url))
    };
    let applied = apply();
    assert_eq!((applied.code, phase(&folder).as_str()), (0, "beta"), "{}", applied.err);
    let next = || messages.recv_timeout(Duration::from_secs(30)).unwrap();
    let (slack, pagerduty) = (next(), next());
    assert!(slack["text"].as_str().unwrap().contains("4 of 40 sessions read-only (10.0 %)"), "{slack}");
    assert_eq!(pagerduty["routing_key"], "hunter2");
    assert_eq!(pagerduty["payload"]["custom_details"]["result"], "rolled back from all to beta");
    let log = std::fs::read_to_string(folder.path().join("incidents/incidents.jsonl")).unwrap();
    let line: Value = serde_json::from_str(log.trim()).unwrap();
    assert_eq!(line["command"], "leasehold flags rollback --phase beta");
    assert_eq!(
        (line["result"].as_str(), line["told"]["slack"].as_str()),
        (Some("rolled back from all to beta"), Some("sent"))
    );
    assert!(!log.contains("hunter2") && !applied.raw.contains("hunter2"));
    // What the phase before did is none of the new one's business.
    let again = apply();
    assert_eq!((again.code, again.json()["decision"].as_str()), (0, Some("settling")), "{}", again.err);
    assert_eq!((again.json()["sessions"].as_u64(), phase(&folder).as_str()), (Some(0), "beta"));
    assert!(messages.try_recv().is_err());
}

#[test]
fn a_breach_must_be_seen_again_and_a_few_sessions_prove_nothing() {
    let folder = flags();
    count(&folder, "all", 19, 19);
    assert_eq!(run(&folder, &ONCE).json()["decision"], "too_few");
    count(&folder, "all", 21, 0);
    let twice = ["reporter", "--once", "--json", "--apply"];
    assert_eq!(run(&folder, &twice).json()["decision"], "unconfirmed");
    assert_eq!(run(&folder, &twice).json()["decision"], "too_soon");
    assert_eq!(phase(&folder), "all");
}

#[test]
fn templates_of_ones_own_are_used_and_checked_before_anything_burns() {
    let folder = flags();
    count(&folder, "all", 40, 4);
    let templates = folder.path().join("templates");
    std::fs::create_dir(&templates).unwrap();
    let args = [&ONCE[..], &["--templates", "templates"]].concat();
    std::fs::write(templates.join("slack.json"), r#"{"text": "{{phaze}}"}"#).unwrap();
    let refused = run(&folder, &args);
    assert_eq!((refused.code, refused.err.contains("{{phaze}}")), (1, true), "{}", refused.err);
    std::fs::write(templates.join("slack.json"), r#"{"text": "{{phase}} → {{to}}"}"#).unwrap();
    let (url, messages) = receiver();
    let mut command = command(folder.path(), &[&args[..], &["--apply"]].concat());
    assert_eq!(Run::of(command.env("LEASEHOLD_SLACK_URL", url)).code, 0);
    assert_eq!(messages.recv_timeout(Duration::from_secs(30)).unwrap()["text"], "all → beta");
}

#[test]
fn the_rollback_drill_needs_an_empty_folder_and_sees_every_step() {
    let folder = tempfile::tempdir().unwrap();
    let drill = run(&folder, &["drill", "rollback", "drill", "--json"]);
    let json = drill.json();
    assert_eq!((drill.code, json["passed"].as_bool()), (0, Some(true)), "{}{}", drill.raw, drill.err);
    assert!(json["steps"].as_array().unwrap().len() >= 9, "{json}");
    let incidents = folder.path().join("drill/incidents");
    let pages = std::fs::read_dir(incidents).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<_> = pages.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    let page = std::fs::read_to_string(pages.first().expect("an incident")).unwrap();
    assert!(page.contains("rolled back from all to beta") && page.contains("--window 15m"), "{page}");
    let again = run(&folder, &["drill", "rollback", "drill"]);
    assert_eq!((again.code, again.err.contains("needs an empty folder")), (1, true), "{}", again.err);
}

#[test]
fn a_drill_in_which_something_is_missing_fails() {
    for (left_out, missing) in [("rollback", "the Reporter rolled back"), ("faults", "became read-only")] {
        let folder = tempfile::tempdir().unwrap();
        let drill = run(&folder, &["drill", "rollback", "drill", "--leave-out", left_out]);
        assert_eq!(drill.code, 3, "{}{}", drill.raw, drill.err);
        let line = drill.raw.lines().find(|line| line.contains(missing)).unwrap_or_default();
        assert!(line.contains("not seen"), "{left_out}: {}", drill.raw);
    }
}
