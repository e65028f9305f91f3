//! `leasehold watch` in a pipe. What it draws on a terminal is tested where it is drawn.

use serde_json::json;

use crate::support::{DEV, Server, Talker, code_of, signal};

#[test]
fn in_a_pipe_every_event_is_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, DEV);
    let mut all = Talker::start(&mut server.command_as("user-b", &["watch", "--json"]));
    let mut one = Talker::start(&mut server.command_as("user-b", &["watch", "minutes"]));
    assert_eq!(all.json(), json!({ "event": "snapshot", "documents": [], "more": false }));
    assert!(one.line().ends_with("Z minutes is free"));
    server.run_as("user-a", &["acquire", "notes"]);
    server.run_as("user-a", &["acquire", "minutes"]);
    server.run_as("user-a", &["release", "minutes"]);
    let told: Vec<_> = (0..3).map(|_| all.json()).collect();
    assert_eq!((&told[0]["event"], &told[0]["roomId"]), (&json!("DocumentLocked"), &json!("notes")));
    assert_eq!((&told[1]["event"], &told[1]["roomId"]), (&json!("DocumentLocked"), &json!("minutes")));
    assert_eq!((&told[2]["event"], &told[2]["reason"]), (&json!("DocumentUnlocked"), &json!("released")));
    assert!(one.line().contains("Z minutes: locked by Anna (fence "));
    assert!(one.line().contains("Z minutes: released by Anna (fence "));
    for watcher in [&mut all, &mut one] {
        signal(&watcher.child, "TERM");
        assert_eq!(code_of(&mut watcher.child), Some(0));
    }
}

#[test]
fn it_outlives_a_restart_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--store", "leases.db", "--audit-file", "audit.jsonl"];
    let server = Server::start(&folder, &args);
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut watcher = Talker::start(&mut server.command_as("nobody", &["watch", "--json"]));
    assert_eq!(watcher.json()["event"], "snapshot");
    server.run_as("nobody", &["acquire", "minutes"]);
    assert_eq!(watcher.json()["event"], "DocumentLocked");
    server.kill();
    assert_eq!(watcher.json()["event"], "interrupted");
    let server = Server::start(&folder, &[&args[..], &["--listen", &address]].concat());
    server.run_as("nobody", &["release", "minutes"]);
    let unlocked = loop {
        let told = watcher.json();
        if told["event"] == "DocumentUnlocked" {
            break told;
        }
        assert!(matches!(told["event"].as_str(), Some("interrupted" | "snapshot")), "{told}");
        if told["event"] == "snapshot" && told["documents"] == json!([]) {
            return; // it came back after the release
        }
    };
    assert_eq!(unlocked["roomId"], "minutes");
}

#[test]
fn it_ends_when_nobody_reads_any_more_or_nobody_may() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, DEV);
    let mut watcher = Talker::start(&mut server.command_as("user-a", &["watch", "--json"]));
    watcher.json();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut unread = server.command_as("user-a", &["watch", "--json"]).stdout(writer).spawn().unwrap();
    drop(reader);
    server.run_as("user-a", &["acquire", "minutes"]);
    assert_eq!(code_of(&mut unread), Some(0));
    let refused = server.run_as("nobody", &["watch"]);
    assert_eq!(refused.code, 77, "{}", refused.err);
}
