//! The commands that talk to a server, each against a real one.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{DEV, Holder, Run, Server, code_of, command, run, signal, skipped};

fn dev() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, DEV);
    (folder, server)
}

#[test]
fn acquire_shows_the_lease_id_once_and_the_lock_to_everybody() {
    let (_folder, server) = dev();
    let acquired = server.run_as("user-a", &["acquire", "minutes"]);
    assert_eq!(acquired.code, 0, "{}", acquired.err);
    let lines: Vec<&str> = acquired.raw.lines().collect();
    assert!(
        acquired.out.starts_with("✓ minutes is yours for 30.0s, as Anna with fence N\n"),
        "{}",
        acquired.out
    );
    let lease_id = lines[1].strip_prefix("  lease id ").unwrap();
    assert_eq!(lease_id.len(), 36);

    let refused = server.run_as("user-b", &["acquire", "minutes"]);
    assert_eq!(refused.code, 75);
    assert!(
        refused.out.starts_with("! minutes is held by Anna (fence N)\n  it runs out in 2"),
        "{}",
        refused.out
    );
    let json = server.run_as("user-b", &["acquire", "minutes", "--json"]);
    let held = json.json();
    assert_eq!((json.code, &held["event"], &held["roomId"]), (75, &json!("held"), &json!("minutes")));
    assert_eq!((&held["holder"]["id"], &held["same_user"]), (&json!("user-a"), &json!(false)));
    let tab = server.run_as("user-a", &["acquire", "minutes", "--tab", "second"]);
    assert!(
        tab.out.starts_with("! minutes is held by you, in another tab or terminal (fence N)"),
        "{}",
        tab.out
    );

    let listed = server.run_as("user-b", &["ls", "--json"]);
    assert_eq!(listed.json()[0]["roomId"], "minutes");
    for shown in [&refused.raw, &json.raw, &listed.raw, &server.log()] {
        assert!(!shown.contains(lease_id), "{shown}");
    }
}

#[test]
fn a_lock_is_renewed_and_released_by_its_lease_id_or_by_its_tab() {
    let (folder, server) = dev();
    let lock = server.run_as("user-a", &["acquire", "minutes", "--lease-id-file", "lease", "--json"]).json();
    assert_eq!(
        (&lock["event"], lock.get("lease_id")),
        (&json!("acquired"), None),
        "it is in the file instead"
    );
    let file = folder.path().join("lease");
    let lease_id = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    let with_file = ["renew", "minutes", "--tab", "elsewhere", "--lease-id-file", "lease"];
    let renewed = server.run_as("user-a", &with_file);
    assert!(
        renewed.out.starts_with("✓ minutes is yours for another 30.0s (fence N)"),
        "{}{}",
        renewed.out,
        renewed.err
    );
    let mut by_variable = server.command_as("user-a", &["renew", "minutes", "--tab", "elsewhere", "--json"]);
    assert_eq!(Run::of(by_variable.env("LEASEHOLD_LEASE_ID", &lease_id)).json()["event"], "renewed");
    let mut by_pipe = server.command_as("user-a", &["renew", "minutes", "--lease-id-file", "-"]);
    assert_eq!(Run::of(by_pipe.stdin(std::fs::File::open(&file).unwrap())).code, 0);
    assert_eq!(server.run_as("user-a", &["renew", "minutes"]).code, 0, "the tab alone is enough");

    let elsewhere = server.run_as("user-a", &["renew", "minutes", "--tab", "elsewhere"]);
    assert_eq!((elsewhere.code, elsewhere.out.starts_with("✗ minutes: ")), (76, true), "{}", elsewhere.out);
    assert_eq!(server.run_as("user-b", &["release", "minutes"]).code, 76);
    let released = server.run_as("user-a", &["release", "minutes"]);
    assert_eq!((released.code, released.out.as_str()), (0, "✓ minutes is free"));
    let again = server.run_as("user-a", &["release", "minutes", "--json"]);
    assert_eq!((again.code, &again.json()["event"]), (76, &json!("lost")));
}

#[test]
fn hold_keeps_a_lock_until_it_is_asked_to_end() {
    let (_folder, server) = dev();
    let mut holder =
        Holder::of(&mut server.command_as("user-a", &["acquire", "minutes", "--hold", "--json"]));
    let same_user = server.run_as("user-a", &["acquire", "minutes", "--json"]);
    assert_eq!(
        (same_user.code, &same_user.json()["same_user"]),
        (75, &json!(true)),
        "two terminals are two holders"
    );
    signal(&holder.0, "INT");
    assert_eq!(code_of(&mut holder.0), Some(0));
    assert_eq!(server.run_as("user-b", &["acquire", "minutes"]).code, 0);
}

#[test]
fn a_holder_whose_lock_is_taken_ends_with_76() {
    let (_folder, server) = dev();
    let args = ["acquire", "minutes", "--hold", "--json"];
    let mut holder = Holder::of(&mut server.command_as("user-a", &args));
    assert_eq!(server.run_as("user-b", &["take-over", "minutes", "--reason", "deadline"]).code, 0);
    assert_eq!(code_of(&mut holder.0), Some(76));
}

#[test]
fn acquire_waits_until_the_holder_lets_go() {
    let (_folder, server) = dev();
    server.run_as("user-a", &["acquire", "minutes"]);
    let mut waiting = server.command_as("user-b", &["acquire", "minutes", "--wait", "25s"]);
    let mut waiting = waiting.stdout(Stdio::null()).spawn().unwrap();
    // It may ask before or after this; either way it gets the lock long before the lock would run out.
    assert_eq!(server.run_as("user-a", &["release", "minutes"]).code, 0);
    let start = std::time::Instant::now();
    assert_eq!(code_of(&mut waiting), Some(0));
    assert!(start.elapsed().as_secs() < 15, "{:?}", start.elapsed());
    let impatient = server.run_as("user-a", &["acquire", "minutes", "--wait", "50ms"]);
    assert_eq!(impatient.code, 75, "{}", impatient.err);
}

#[test]
fn a_lock_is_taken_over_ended_by_force_and_both_are_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, &["--dev", "--store", "leases.db"]);
    let first = server.run_as("user-a", &["acquire", "minutes", "--json"]).json();
    let taken = server.run_as("user-b", &["take-over", "minutes", "--reason", "the deadline", "--json"]);
    let second = taken.json();
    assert_eq!(
        (taken.code, &second["event"], &second["holder"]["name"]),
        (0, &json!("acquired"), &json!("Ben"))
    );
    assert!(second["fence"].as_u64() > first["fence"].as_u64());

    let stale = first["fence"].to_string();
    let late = server.run_as("user-a", &["take-over", "minutes", "--reason", "mine", "--fence", &stale]);
    assert_eq!(late.code, 75, "whoever saw an older lock takes nothing: {}", late.err);
    let check = server.run_as("user-a", &["check", "minutes", &stale]);
    assert_eq!(check.code, 3);
    assert_eq!(
        check.out,
        "✗ fence N of minutes is not current: refuse what comes with it\n  Ben holds it, with fence N"
    );
    let check = server.run_as("user-a", &["check", "minutes", &second["fence"].to_string(), "--json"]);
    assert_eq!((check.code, &check.json()["current"]), (0, &json!(true)));

    let force = ["release", "minutes", "--force", "--reason", "he went home"];
    let forced = server.run_as("user-a", &force);
    assert_eq!(
        (forced.code, forced.out.as_str()),
        (0, "✓ minutes is free; its holder is notified with the reason"),
        "{}",
        forced.err
    );
    let again = server.run_as("user-a", &force);
    assert_eq!(
        (again.code, again.out.as_str()),
        (76, "✗ minutes: it is not held, so there is nothing to end"),
        "{}",
        again.err
    );
    assert_eq!(server.run_as("user-a", &["release", "minutes", "--force"]).code, 2, "a reason is needed");

    let audit = audit_of(&server, 2);
    let entries: Vec<_> = audit
        .iter()
        .map(|entry| [&entry["action"], &entry["holder"], &entry["by"], &entry["reason"]])
        .collect();
    assert_eq!(entries[0], ["taken_over", "user-a", "user-b", "the deadline"]);
    assert_eq!(entries[1], ["force_released", "user-b", "user-a", "he went home"]);
    let table = server.run_as("user-a", &["audit"]).out;
    let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NUMBER", "AT", "WHAT", "DOCUMENT", "FENCE", "HOLDER", "BY", "REASON"]);
    assert!(table.contains("ended by force") && table.contains("he went home"), "{table}");
    let number = |entry: usize| audit[entry]["number"].to_string();
    assert_eq!(table.lines().nth(1).unwrap().split_whitespace().next(), Some(number(0).as_str()));
    let rest = server.run_as("user-a", &["audit", "--after", &number(0), "--json"]).json();
    assert_eq!(rest, json!([audit[1]]));
    let nothing = server.run_as("user-a", &["audit", "--after", &number(1)]);
    let words = format!("✓ no take-overs or forced releases since entry {}", number(1));
    assert_eq!(nothing.out, words, "{}", nothing.err);
}

/// On a server that keeps no audit it said that nobody had taken anything, right after a take-over.
#[test]
fn without_an_audit_nobody_is_told_that_nothing_happened() {
    let (_folder, server) = dev();
    server.run_as("user-a", &["acquire", "minutes"]);
    server.run_as("user-b", &["take-over", "minutes", "--reason", "deadline"]);
    let audit = server.run_as("user-a", &["audit"]);
    assert_eq!((audit.code, audit.err.contains("keeps no audit")), (1, true), "{}{}", audit.out, audit.err);
}

/// The audit, once so many entries are in it: they are written after the answer.
fn audit_of(server: &Server, entries: usize) -> Vec<serde_json::Value> {
    let start = std::time::Instant::now();
    loop {
        let audit = server.run_as("user-a", &["audit", "--json"]).json();
        let audit = audit.as_array().unwrap().clone();
        if audit.len() >= entries {
            return audit;
        }
        assert!(start.elapsed().as_secs() < 20, "{audit:?}");
    }
}

#[test]
fn ls_says_who_holds_what() {
    let (folder, server) = dev();
    for room in ["team-a.plan", "team-a.minutes", "team-b.notes"] {
        server.run_as("user-a", &["acquire", room]);
    }
    let table = server.run_as("user-b", &["ls", "team-a."]).out;
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["DOCUMENT", "HOLDER", "FENCE", "HELD", "FOR", "EXPIRES", "IN", "NOTE"]);
    assert_eq!((words.len(), words[1][0], words[1][1]), (3, "team-a.minutes", "Anna"));
    let own = server.run_as("user-a", &["ls", "team-b."]).out;
    assert!(own.lines().nth(1).unwrap().ends_with("yours"), "{own}");

    // A file named on the command line counts more than a server in the environment, and the other way round.
    run(&folder, &["try", "run/a", "--owner", "anna", "--hold", "0s"]);
    let file = server.run_as("user-a", &["ls", "--store", "leases.db"]);
    assert_eq!(file.out, "✓ no leases", "{}", file.err);
    let mut both = server.command_as("user-a", &["ls", "team-b.", "--json"]);
    let both = Run::of(both.env("LEASEHOLD_STORE", "leases.db"));
    assert_eq!(both.json()[0]["roomId"], "team-b.notes");
    assert!(both.err.contains("this is the server"), "{}", both.err);
    assert_eq!(run(&folder, &["ls", "--store", "leases.db", "--url", server.url()]).code, 2);
}

#[test]
fn trouble_has_its_own_exit_codes() {
    let (folder, server) = dev();
    let without_token = run(&folder, &["ls", "--url", server.url()]);
    assert_eq!(without_token.code, 77, "{}", without_token.err);
    let words = "error: the server does not accept the token: the request has no token";
    assert!(without_token.err.starts_with(words), "what is wrong comes first: {}", without_token.err);
    assert!(without_token.err.contains("LEASEHOLD_TOKEN"), "{}", without_token.err);
    std::fs::write(folder.path().join("token"), "nonsense").unwrap();
    let nonsense = run(&folder, &["acquire", "minutes", "--url", server.url(), "--token-file", "token"]);
    assert_eq!((nonsense.code, nonsense.err.contains("nonsense")), (77, false), "{}", nonsense.err);
    std::fs::write(folder.path().join("token"), format!("{}\n", server.token("user-a").unwrap())).unwrap();
    let good = run(&folder, &["acquire", "minutes", "--url", server.url(), "--token-file", "token"]);
    assert_eq!(good.code, 0, "{}", good.err);

    let nobody = run(&folder, &["ls", "--url", "http://127.0.0.1:1"]);
    assert_eq!((nobody.code, nobody.err.contains("unavailable")), (69, true), "{}", nobody.err);
    let cases: [&[&str]; 5] = [
        &["acquire", "no/such/name"],
        &["acquire"],
        &["check", "minutes", "first"],
        &["take-over", "minutes"],
        &["acquire", "minutes", "--token", "x"],
    ];
    for args in cases {
        assert_eq!(run(&folder, args).code, 2, "{args:?}");
    }
    let url = run(&folder, &["ls", "--url", "redis://x", "--json"]);
    assert_eq!((url.code, url.err.starts_with("{\"error\":")), (1, true), "{}", url.err);
    let lease_id =
        Run::of(server.command_as("user-a", &["renew", "minutes"]).env("LEASEHOLD_LEASE_ID", "hunter2"));
    assert_eq!((lease_id.code, lease_id.err.contains("hunter2")), (1, false), "{}", lease_id.err);
}

#[test]
fn the_lines_that_dev_prints_can_be_copied() {
    let (folder, server) = dev();
    let line = format!(
        "curl -sS -X POST {}/api/documents/minutes/lock -H 'Authorization: Bearer {}'",
        server.url(),
        server.token("user-a").unwrap()
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    if output.status.code() == Some(127) {
        return skipped("the lines that --dev prints, because curl is not installed");
    }
    let lock: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(lock["holder"]["name"], "Anna");
    let held = Run::of(
        command(folder.path(), &["acquire", "minutes"])
            .env("LEASEHOLD_URL", server.url())
            .env("LEASEHOLD_TOKEN", server.token("user-b").unwrap()),
    );
    assert_eq!(held.code, 75);
}
