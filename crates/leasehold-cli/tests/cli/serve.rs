//! `leasehold serve`: how it starts, how it refuses to, and how it ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::json;

use crate::support::{DEV, Run, Server, Talker, code_of, command, run, signal, skipped};

#[test]
fn the_first_line_says_where_it_is_and_who_may_come_in() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder, DEV);
    let started = server.started.as_object().unwrap().clone();
    assert_eq!(started.keys().collect::<Vec<_>>(), ["pusher", "tokens", "url"]);
    assert_eq!(started["tokens"].as_object().unwrap().keys().collect::<Vec<_>>(), ["user-a", "user-b"]);
    assert_eq!(
        started["pusher"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["app_id", "key", "secret"]
    );
    assert!(
        server.url().starts_with("http://127.0.0.1:") && !server.url().ends_with(":0"),
        "{}",
        server.url()
    );
    assert_eq!(server.run_as("user-a", &["ls"]).out, "✓ no leases");
    assert_eq!(server.terminate(), Some(0), "{}", server.log());
}

#[test]
fn without_dev_there_are_no_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, &["--store", "memory:"]);
    assert_eq!(server.started, json!({ "url": server.url() }));
    let acquired = server.run_as("nobody", &["acquire", "minutes"]);
    assert!(
        acquired.out.starts_with("✓ minutes is yours for 30.0s, as anonymous with fence N"),
        "{}",
        acquired.out
    );
}

/// Documents have no lists and no events. Nothing is asked of Firestore before a request comes.
#[test]
fn a_server_on_firestore_says_that_it_has_jobs_only() {
    let folder = tempfile::tempdir().unwrap();
    let store = "firestore:demo?emulator=127.0.0.1:1";
    let with_audit =
        run(&folder, &["serve", "--listen", "127.0.0.1:0", "--store", store, "--audit-file", "audit"]);
    if with_audit.err.contains("built without Firestore") {
        skipped("the server on Firestore, because this command was built without it");
        return;
    }
    assert_eq!(with_audit.code, 2, "{}", with_audit.err);
    assert!(with_audit.err.contains("jobs only; leave it out"), "{}", with_audit.err);
    let args = ["serve", "--dev", "--listen", "127.0.0.1:0", "--store", store];
    let mut server = Talker::start(command(folder.path(), &args).stderr(std::process::Stdio::null()));
    let first = server.line();
    assert!(first.starts_with("✓ Leasehold "), "{first}");
    assert_eq!(server.line(), "  store           Firestore documents of demo");
    assert_eq!(
        server.line(),
        "  serves          jobs only: this store has no lists and no events, so there are no documents"
    );
    let curl = loop {
        let line = server.line();
        if line.contains("curl") {
            break line;
        }
    };
    assert!(curl.contains("-X PUT") && curl.contains("/api/jobs/analyses/42"), "{curl}");
}

#[test]
fn people_get_lines_to_copy() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["serve", "--dev", "--listen", "127.0.0.1:0", "--store", "leases.db"];
    let mut server = Talker::start(command(folder.path(), &args).stderr(std::process::Stdio::null()));
    let first = server.line();
    let url = first.rsplit(' ').next().unwrap().to_owned();
    assert!(first.starts_with("✓ Leasehold ") && url.starts_with("http://127.0.0.1:"), "{first}");
    let facts: Vec<String> = (0..6).map(|_| server.line()).collect();
    assert_eq!(facts[0], "  store           leases.db");
    assert_eq!(facts[1], "  audit           leases.db.audit.jsonl");
    assert_eq!(facts[2], "  who may come in Anna and Ben, who are made up (--dev): user-a and user-b");
    assert_eq!(facts[3], format!("  page            {url}/"));
    assert_eq!(facts[4], format!("  demo            {url}/demo"));
    assert_eq!(facts[5], format!("  API page        {url}/docs"));
    let curl = loop {
        let line = server.line();
        if line.contains("curl") {
            break line;
        }
    };
    assert!(curl.starts_with(&format!(
        "  curl -X POST {url}/api/documents/minutes/lock -H 'Authorization: Bearer ey"
    )));
    signal(&server.child, "INT");
    assert_eq!(code_of(&mut server.child), Some(0));
}

/// The last line was refused: the lock that the first one had made was in its way for 30 seconds.
#[test]
fn the_lines_work_in_the_order_in_which_they_are_printed() {
    if Command::new("curl").arg("--version").output().is_err() {
        skipped("the printed lines, because curl is not installed");
        return;
    }
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let args = ["serve", "--dev", "--listen", "127.0.0.1:0"];
    let mut server = Talker::start(command(folder.path(), &args).stderr(std::process::Stdio::null()));
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains(" acquire ")) {
        lines.push(server.line());
    }
    let to_copy: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("  "))
        .skip_while(|line| !line.starts_with("curl"))
        .collect();
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(elsewhere.path());
        shell
    };
    let said = |line: &str| String::from_utf8(shell(line).output().unwrap().stdout).unwrap();
    assert!(said(to_copy[0]).contains("\"lease_id\""), "{lines:?}");
    let told = said(to_copy[1]);
    assert!(told.contains("\"code\":\"held\"") && told.contains("\"name\":\"Anna\""), "{told}");
    let mut holder = Talker::start(&mut shell(&format!("{}\nexec {}", to_copy[2], to_copy[3])));
    let held = holder.line();
    assert!(held.starts_with("✓ plan is yours, as Anna with fence "), "{held}");
    signal(&holder.child, "INT");
    assert_eq!(code_of(&mut holder.child), Some(0));
}

/// A restart made a new secret, and every page and terminal had to be given another token.
#[test]
fn a_restart_with_made_up_users_keeps_their_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--dev", "--store", "leases.db"];
    let mut server = Server::start(&folder, &args);
    let (token, pusher) = (server.token("user-a").unwrap().to_owned(), server.started["pusher"].clone());
    assert_eq!(server.terminate(), Some(0), "{}", server.log());
    let server = Server::start(&folder, &args);
    assert_eq!(server.started["pusher"], pusher);
    let acquired = Run::of(
        command(folder.path(), &["acquire", "minutes", "--url", server.url()]).env("LEASEHOLD_TOKEN", token),
    );
    assert!(
        acquired.out.starts_with("✓ minutes is yours for 30.0s, as Anna"),
        "{} {}",
        acquired.out,
        acquired.err
    );
}

#[test]
fn without_auth_it_stays_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = run(&folder, &["serve", "--store", "memory:", "--listen", listen]);
        assert_eq!(refused.code, 2, "{listen}: {}", refused.err);
        for word in [listen, "no authentication is configured", "--jwt-secret-file", "127.0.0.1"] {
            assert!(refused.err.contains(word), "{listen}: {}", refused.err);
        }
        let refused = run(&folder, &["serve", "--dev", "--store", "memory:", "--listen", listen, "--json"]);
        assert_eq!((refused.code, refused.raw.as_str()), (2, ""), "{listen}: {}", refused.err);
        assert!(
            refused.err.starts_with("{\"error\":") && refused.err.contains("leave out --dev"),
            "{}",
            refused.err
        );
    }
    assert_eq!(run(&folder, &["serve", "--store", "memory:", "--listen", "nonsense"]).code, 2);
    let refused = run(&folder, &["serve", "--dev", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "nothing is made by a server that does not start"
    );
}

#[test]
fn with_auth_it_may_listen_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let args = ["--store", "memory:", "--listen", "0.0.0.0:0", "--jwt-secret-file", "secret"];
    let mut server = Server::start(&folder, &args);
    assert_eq!(server.started, json!({ "url": server.url() }));
    let port = server.url().rsplit(':').next().unwrap().to_owned();
    let refused =
        Run::of(command(folder.path(), &["ls", "--url", &format!("http://127.0.0.1:{port}")]).env("X", "y"));
    assert_eq!(refused.code, 77, "{}", refused.err);
    assert_eq!(server.terminate(), Some(0));
    let both = run(&folder, &["serve", "--dev", "--store", "memory:", "--jwt-secret-file", "secret"]);
    assert_eq!((both.code, both.err.contains("leave out one of them")), (2, true), "{}", both.err);
    let missing = run(&folder, &["serve", "--store", "memory:", "--jwt-secret-file", "missing"]);
    assert_eq!((missing.code, missing.err.contains("missing")), (2, true), "{}", missing.err);
}

#[test]
fn a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file.toml"), "ttl = '40s'\nheartbeat = 7\n").unwrap();
    let cases: [(&[&str], Option<&str>, u64, u64); 4] = [
        (&[], None, 30, 10),
        (&["--config", "file.toml"], None, 40, 7),
        (&["--config", "file.toml"], Some("50s"), 50, 7),
        (&["--config", "file.toml", "--ttl", "60s"], Some("50s"), 60, 7),
    ];
    for (flags, environment, ttl, heartbeat) in cases {
        let mut command = Server::command(&folder, &[DEV, flags].concat());
        if let Some(value) = environment {
            command.env("LEASEHOLD_TTL", value);
        }
        let server = Server::of(&folder, &mut command);
        let lock = server.run_as("user-a", &["acquire", "minutes", "--json"]).json();
        assert_eq!(
            (&lock["ttl_seconds"], &lock["heartbeat_seconds"]),
            (&json!(ttl), &json!(heartbeat)),
            "{flags:?}"
        );
    }
}

#[test]
fn settings_that_cannot_be_are_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| std::fs::write(folder.path().join("file.toml"), text).unwrap();
    let cases = [
        ("tll = '1s'", "file.toml: there is no setting \"tll\"; did you mean `ttl`?"),
        ("[limits]\nboddy = 1", "there is no setting \"boddy\" in [limits]; did you mean `body`?"),
        ("ttl = 'soon'", "file.toml: line 1: "),
        ("ttl = '10s'", "choose a heartbeat of at most half the ttl"),
        ("this is not TOML", "file.toml: line 1: "),
        ("[tls]\ncertificate = 'c.pem'", "both tls.certificate and tls.key"),
        ("heartbeat = '700ms'", "whole seconds"),
        ("cors_origins = ['app.example.com']", "it has no scheme"),
        ("[limits]\nstream_backlog = 0", "limits.stream_backlog 0: it must be between 1 and "),
        ("[limits]\nstream_backlog = 1000000000000000", "limits.stream_backlog"),
        ("[limits]\nhead_time = 0", "limits.head_time 0s: it must be between 100ms and 1h"),
        ("log = '!!!'", "cannot log"),
    ];
    for (text, expected) in cases {
        file(text);
        let refused = run(&folder, &["serve", "--store", "memory:", "--config", "file.toml"]);
        assert_eq!((refused.code, refused.err.contains(expected)), (2, true), "{text}: {}", refused.err);
    }
    let missing = run(&folder, &["serve", "--config", "missing.toml"]);
    assert_eq!(
        (missing.code, missing.err.contains("missing.toml: cannot be read")),
        (2, true),
        "{}",
        missing.err
    );
    assert_eq!(run(&folder, &["serve", "--ttl", "soon"]).code, 2);
    assert_eq!(run(&folder, &["serve", "--jwt-secret", "x"]).code, 2, "a secret is never a flag");
}

#[test]
fn a_store_that_cannot_be_opened_is_told_as_the_store_tells_it() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Server::start(&folder, &["--dev", "--store", "leases.db"]);
    let second = run(&folder, &["serve", "--dev", "--listen", "127.0.0.1:0", "--store", "leases.db"]);
    assert_eq!((second.code, second.err.contains("leases.db is in use by")), (1, true), "{}", second.err);
    std::fs::write(folder.path().join("other.db"), "not a store at all, not any more").unwrap();
    let other = run(&folder, &["serve", "--dev", "--listen", "127.0.0.1:0", "--store", "other.db"]);
    assert_eq!((other.code, other.err.contains("is not a Leasehold store")), (1, true), "{}", other.err);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let first = Server::start(&folder, DEV);
    let address = first.url().trim_start_matches("http://");
    let second = run(&folder, &["serve", "--dev", "--store", "memory:", "--listen", address]);
    let words = format!("cannot listen on {}", crate::support::normalised(address));
    assert_eq!((second.code, second.err.contains(&words)), (1, true), "{}", second.err);
}

#[test]
fn leases_outlive_a_killed_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, &["--dev", "--store", "leases.db"]);
    let lock = server.run_as("user-a", &["acquire", "minutes", "--json"]).json();
    server.kill();
    let server = Server::start(&folder, &["--dev", "--store", "leases.db"]);
    let held = server.run_as("user-b", &["acquire", "minutes", "--json"]);
    assert_eq!((held.code, &held.json()["fence"]), (75, &lock["fence"]));
    let mut renew = server.command_as("user-a", &["renew", "minutes", "--json"]);
    let renewed = Run::of(renew.env("LEASEHOLD_LEASE_ID", lock["lease_id"].as_str().unwrap()));
    assert_eq!((renewed.code, &renewed.json()["fence"]), (0, &lock["fence"]));
}

#[test]
fn a_server_whose_file_was_deleted_grants_nothing_and_says_so_at_its_end() {
    // It granted leases into a file without a name, ended with "nothing that was acknowledged is lost", and the next
    // server knew none of them.
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder, &["--dev", "--store", "leases.db"]);
    std::fs::remove_file(folder.path().join("leases.db")).unwrap();
    let refused = server.run_as("user-a", &["acquire", "minutes"]);
    assert_eq!(refused.code, 69, "{}{}", refused.out, refused.err);
    assert_ne!(server.terminate(), Some(0), "{}", server.log());
    assert!(server.log().contains("deleted or replaced while it was open"), "{}", server.log());
}

#[test]
fn a_store_is_backed_up_while_it_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, &["--dev", "--store", "leases.db"]);
    server.run_as("user-a", &["acquire", "minutes"]);
    let backup = run(&folder, &["store", "backup", "leases.db", "copy.db"]);
    assert_eq!(backup.code, 0, "{}", backup.err);
    for file in ["leases.db", "copy.db"] {
        let listed = run(&folder, &["ls", "--store", file, "--json"]).json();
        assert_eq!(
            (&listed[0]["key"], &listed[0]["owner"]),
            (&json!("doc/minutes"), &json!("user-a")),
            "{file}"
        );
    }
    assert_eq!(server.run_as("user-a", &["renew", "minutes"]).code, 0, "it still serves");
}

#[test]
fn the_log_is_structured_and_holds_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder, &[DEV, &["--log", "trace"]].concat());
    let lock = server.run_as("user-a", &["acquire", "minutes", "--json"]).json();
    server.run_as("user-a", &["renew", "minutes"]);
    server.run_as("user-a", &["release", "minutes"]);
    assert_eq!(server.terminate(), Some(0));
    let log = server.log();
    assert!(!log.is_empty());
    for line in log.lines() {
        let entry: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(entry["level"].is_string() && entry["timestamp"].is_string(), "{line}");
    }
    let pusher = server.started["pusher"]["secret"].as_str().unwrap();
    for secret in [lock["lease_id"].as_str().unwrap(), server.token("user-a").unwrap(), pusher] {
        assert!(!log.contains(secret), "a secret is in the log");
    }
}

#[test]
fn a_second_signal_does_not_wait_for_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let mut server =
        Server::start(&folder, &["--store", "memory:", "--limits-body-time", "1h", "--limits-drain", "1h"]);
    let mut slow = TcpStream::connect(server.url().trim_start_matches("http://")).unwrap();
    let head = "POST /api/documents/minutes/lock HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 100\r\nExpect: 100-continue\r\n\r\n";
    slow.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100", "the server waits for the body now");
    signal(&server.talker.child, "TERM");
    signal(&server.talker.child, "INT");
    // Two signals may be taken in either order; both end it.
    assert!(matches!(code_of(&mut server.talker.child), Some(130 | 143)));
}

#[test]
fn over_https_it_is_reached_by_those_who_trust_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out certificate.pem \
                -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let made = Command::new("sh").args(["-c", make]).current_dir(folder.path()).output().unwrap();
    if made.status.code() == Some(127) {
        return skipped("HTTPS on the command line, because openssl is not installed");
    }
    assert!(made.status.success(), "{made:?}");
    let args = ["--store", "memory:", "--tls-certificate", "certificate.pem", "--tls-key", "key.pem"];
    let mut server = Server::start(&folder, &args);
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    assert_eq!(server.run_as("nobody", &["acquire", "minutes", "--ca-file", "certificate.pem"]).code, 0);
    let stranger = server.run_as("nobody", &["ls"]);
    assert_eq!((stranger.code, stranger.err.contains("certificate")), (69, true), "{}", stranger.err);
    assert_eq!(server.terminate(), Some(0));
}

/// The unit was shipped, and nothing had ever read it.
#[test]
fn the_systemd_unit_is_one_that_systemd_accepts() {
    let unit = include_str!("../../../../packaging/leasehold.service");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leasehold.service");
    std::fs::write(&file, unit.replace("/usr/local/bin/leasehold", env!("CARGO_BIN_EXE_leasehold"))).unwrap();
    let Ok(verified) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output()
    else {
        return skipped("the systemd unit, because systemd-analyze is not installed");
    };
    let words = String::from_utf8_lossy(&verified.stderr);
    let about_ours: Vec<&str> = words.lines().filter(|line| line.contains("leasehold.service")).collect();
    assert_eq!(about_ours, [""; 0], "{words}");
}
