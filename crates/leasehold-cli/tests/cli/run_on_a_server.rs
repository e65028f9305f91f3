//! `leasehold run NAME` with the lease on a server: the lines of the README, the grants of a token, and that no two commands
//! run at the same time. The same name on a file, a server and PostgreSQL.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use leasehold_server::auth::{Subject, mint};
use serde_json::Value;
use tempfile::TempDir;

use crate::postgres_server;
use crate::run::{alive, guardian_of, overlap, read, wait_for, wait_until_gone, worker, working};
use crate::support::{DEV, Holder, Run, Server, Talker, code_of, command, run, skipped};

/// A line of the README that begins like this.
fn line_of_the_readme(start: &str) -> String {
    let readme = include_str!("../../../../README.md");
    readme.lines().find(|line| line.starts_with(start)).unwrap().to_owned()
}

/// README's `run` line was refused after README's own `export`: the line leases `run/nightly-report`, and a server kept
/// documents only.
#[test]
fn the_lines_of_the_readme_work_in_an_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut server =
        Talker::start(&mut command(folder.path(), &["serve", "--dev", "--listen", "127.0.0.1:0"]));
    let export = loop {
        let line = server.line();
        if line.trim_start().starts_with("export LEASEHOLD_URL=") {
            break line;
        }
    };
    std::fs::write(folder.path().join("report.sh"), "#!/bin/sh\necho \"$LEASEHOLD_KEY is mine\"\n").unwrap();
    let line = line_of_the_readme("leasehold run run/nightly-report");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
    let path = format!("export PATH=\"{}:$PATH\"", binary.display());
    let script = format!("{path}\n{export}\nchmod +x report.sh\n{line}");
    let ran = Run::of(Command::new("sh").args(["-c", &script]).current_dir(folder.path()));
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (0, "run/nightly-report is mine", ""),
        "{script}"
    );
}

/// The script of the guide, exactly as it is printed there.
#[test]
fn the_script_of_the_guide_acquires_renews_and_releases() {
    let folder = tempfile::tempdir().unwrap();
    if Command::new("curl").arg("--version").output().is_err() {
        return skipped("the script of docs/leases.md, because curl is not installed");
    }
    let server = Server::start(&folder, DEV);
    let guide = include_str!("../../../../docs/leases.md");
    let script = guide.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let run = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(folder.path());
        shell.env("LEASEHOLD_URL", server.url()).env("LEASEHOLD_TOKEN", server.token("user-a").unwrap());
        Run::of(&mut shell)
    };
    let ran = run();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let renewed: Value = serde_json::from_str(&read(&folder.path().join("renewed.json"))).unwrap();
    assert_eq!((&ran.json()["fence"], &renewed["ttl_seconds"]), (&renewed["fence"], &60.into()), "{renewed}");
    assert_eq!(server.run_as("user-a", &["ls", "run/nightly-report"]).out, "✓ no leases");
    // While another has it, it ends as `leasehold run` would.
    let hold = ["run", "nightly-report", "--", "sh", "-c", "echo acquired; exec sleep 1000"];
    let _other = Holder::of(&mut server.command_as("user-b", &hold));
    assert_eq!(run().code, 75);
}

#[test]
fn a_bare_name_stands_for_a_key_of_the_leases_door() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, DEV);
    let tell = ["--", "sh", "-c", "echo $LEASEHOLD_KEY"];
    for name in ["nightly", "run/nightly"] {
        let args = [&["run", name][..], &tell].concat();
        for ran in [run(&folder, &args), server.run_as("user-a", &args)] {
            assert_eq!((ran.code, ran.out.as_str()), (0, "run/nightly"), "{}", ran.err);
        }
    }
    let nested = server.run_as("user-a", &[&["run", "run/deploy/eu"][..], &tell].concat());
    assert_eq!((nested.code, nested.out.as_str()), (0, "run/deploy/eu"), "{}", nested.err);
    assert_eq!(run(&folder, &["run", "", "--", "true"]).code, 2);
}

#[test]
fn the_other_one_is_told_who_has_it_and_the_exit_code_goes_through() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, DEV);
    let script = "echo acquired; exec sleep 1000";
    let hold = ["run", "nightly", "--owner", "machine-7", "--ttl", "1h", "--", "sh", "-c", script];
    let _one = Holder::of(&mut server.command_as("user-a", &hold));
    let two = server.run_as("user-b", &["run", "nightly", "--", "touch", "ran"]);
    assert_eq!(two.code, 75, "{}", two.err);
    assert!(
        two.err.starts_with("leasehold: run/nightly is held by user-a (fence N), for another "),
        "{}",
        two.err
    );
    assert!(!folder.path().join("ran").exists());
    let look = server.run_as("user-b", &["ls", "run/nightly"]);
    assert!(look.out.contains("run/nightly") && look.out.contains("machine-7"), "{}{}", look.out, look.err);
    let json = server.run_as("user-a", &["ls", "run/nightly", "--json"]).json();
    assert_eq!((&json["name"], &json["held"]["same_user"]), (&"nightly".into(), &true.into()), "{json}");
    assert_eq!(server.run_as("user-b", &["ls", "run/weekly"]).out, "✓ no leases");
    let all = server.run_as("user-b", &["ls", "run/"]);
    assert_eq!((all.code, all.err.contains("name a single one")), (2, true), "{}", all.err);
    let code = server.run_as("user-b", &["run", "weekly", "--", "sh", "-c", "exit 7"]).code;
    assert_eq!(code, 7);
}

/// The same command line on a file, a server and PostgreSQL.
#[test]
fn a_name_works_alike_on_a_file_a_server_and_postgresql() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, DEV);
    check_alike("a file", &|args| command(folder.path(), args));
    check_alike("a server", &|args| server.command_as("user-a", args));
    let Some(postgres) = postgres_server::server() else { return };
    let url = postgres.url("postgres");
    check_alike("PostgreSQL", &|args| {
        let mut command = command(folder.path(), args);
        command.env("LEASEHOLD_STORE", &url);
        command
    });
}

fn check_alike(place: &str, on: &dyn Fn(&[&str]) -> Command) {
    let run = |args: &[&str]| Run::of(&mut on(args));
    let ran = run(&["run", "alike", "--ttl", "5s", "--", "sh", "-c", "echo $LEASEHOLD_KEY; exit 7"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (7, "run/alike", ""), "{place}");
    let hold =
        ["run", "alike", "--owner", "one", "--ttl", "5s", "--", "sh", "-c", "echo acquired; exec sleep 1000"];
    let one = Holder::of(&mut on(&hold));
    let refused = run(&["run", "run/alike", "--", "true"]);
    assert_eq!(
        (refused.code, refused.err.contains("run/alike is held by")),
        (75, true),
        "{place}: {}",
        refused.err
    );
    // A killed supervisor takes its command along; its lease runs out.
    drop(one);
    let next = run(&["run", "alike", "--wait", "1m", "--", "true"]);
    assert_eq!((next.code, next.err.as_str()), (0, ""), "{place}");
}

/// A server on a file, without tokens, at an address that it has again after a restart.
fn lasting_server(folder: &TempDir, listen: &str) -> Server {
    Server::start(folder, &["--store", "server.db", "--listen", listen])
}

/// What the server says about the lease, over HTTP as it is.
fn look(server: &Server) -> Value {
    let mut stream = TcpStream::connect(server.url().trim_start_matches("http://")).unwrap();
    let request = "GET /api/leases/nightly HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

const ONE: &[&str] = &["run", "nightly", "--json", "--ttl", "2s"];
const TWO: &[&str] = &["run", "nightly", "--json", "--ttl", "2s", "--wait", "5m"];

#[test]
fn no_two_commands_at_once_when_the_supervisor_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, DEV);
    let mut one = worker(&mut server.command_as("user-a", ONE), "one");
    let at_work = working(&folder, "one");
    let guardian = guardian_of(&one.0);
    let mut two = worker(&mut server.command_as("user-a", TWO), "two");
    one.0.kill().unwrap();
    wait_until_gone(at_work.pid);
    wait_until_gone(guardian);
    assert_eq!(overlap(&folder, "supervisor killed, lease on a server", &mut two), 0.0);
}

#[test]
fn a_server_that_is_killed_and_started_again_disturbs_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let server = lasting_server(&folder, "127.0.0.1:0");
    let listen = server.url().trim_start_matches("http://").to_owned();
    let ttl = &["run", "nightly", "--json", "--ttl", "20s"];
    let mut one = worker(&mut server.command_as("", ttl), "one");
    working(&folder, "one");
    let mut two = worker(&mut server.command_as("", TWO), "two");
    server.kill();
    let server = lasting_server(&folder, &listen);
    // The first one goes on, under the lease that it had: the second gets it when the first has ended.
    let said = read(&folder.path().join("one.err"));
    let kept = look(&server);
    let fence = kept["held"]["fence"].as_u64().unwrap();
    assert!(said.contains(&format!("\"fence\":{fence}")), "{said} {kept}");
    let mut lowest = u64::MAX;
    wait_for("a renewal that reached the new server", || {
        let left = look(&server)["held"]["expires_in_ms"].as_u64().unwrap();
        lowest = lowest.min(left);
        (left > lowest + 500).then_some(())
    });
    assert!(alive(&folder, "two").is_none(), "{}", read(&folder.path().join("one.err")));
    std::fs::write(folder.path().join("stop"), "").unwrap();
    assert_eq!(code_of(&mut one.0), Some(0), "{}", read(&folder.path().join("one.err")));
    assert_eq!(code_of(&mut two.0), Some(0), "{}", read(&folder.path().join("two.err")));
}

#[test]
fn no_two_commands_at_once_when_the_server_is_gone_for_longer_than_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let server = lasting_server(&folder, "127.0.0.1:0");
    let listen = server.url().trim_start_matches("http://").to_owned();
    let mut one = worker(&mut server.command_as("", ONE), "one");
    working(&folder, "one");
    let mut two = worker(&mut server.command_as("", TWO), "two");
    server.kill();
    assert_eq!(code_of(&mut one.0), Some(76));
    let _server = lasting_server(&folder, &listen);
    assert_eq!(overlap(&folder, "server killed for longer than the lease", &mut two), 0.0);
}

#[test]
fn a_token_without_a_grant_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "a secret of at least thirty-two bytes";
    std::fs::write(folder.path().join("secret"), secret).unwrap();
    let server = Server::start(&folder, &["--store", "memory:", "--jwt-secret-file", "secret"]);
    let day = Duration::from_secs(86_400);
    let token = |leases: &[(&str, &str)]| {
        let all: &[(&str, &str)] = &[("*", "force")];
        let subject = Subject { id: "cron-1", name: "cron-1", documents: all, jobs: all, leases };
        mint(secret.as_bytes(), &subject, day).unwrap()
    };
    let run = |leases: &[(&str, &str)]| {
        let mut command = server.command_as("", &["run", "nightly", "--", "echo", "ran"]);
        Run::of(command.env("LEASEHOLD_TOKEN", token(leases)))
    };
    let refused = run(&[("weekly", "force"), ("nightly/*", "force")]);
    let expected =
        "it has no grant for run/nightly; issue it with \"nightly\": \"lock\" in its claim `leases`";
    assert_eq!((refused.code, refused.err.contains(expected)), (77, true), "{}", refused.err);
    let only_read = run(&[("nightly", "read")]);
    let expected = "it allows read on this lease, and this needs lock";
    assert_eq!((only_read.code, only_read.err.contains(expected)), (77, true), "{}", only_read.err);
    let ran = run(&[("night*", "lock")]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "ran"), "{}", ran.err);
    let nobody = Run::of(&mut server.command_as("", &["run", "nightly", "--", "true"]));
    assert_eq!((nobody.code, nobody.err.contains("LEASEHOLD_TOKEN")), (77, true), "{}", nobody.err);
}
