//! Jobs from a script, on a real server and in a file: the same words, the same JSON, the same exit codes.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{DEV, Run, Server, command};

const JOB: &str = "analyses/42";

/// Where the jobs are.
struct Place {
    folder: TempDir,
    server: Option<Server>,
}

impl Place {
    /// A server, and a file.
    fn both() -> [Self; 2] {
        let folder = tempfile::tempdir().unwrap();
        let server = Some(Server::start(&folder, DEV));
        [Self { folder, server }, Self { folder: tempfile::tempdir().unwrap(), server: None }]
    }

    fn run(&self, args: &[&str]) -> Run {
        self.run_with(args, None)
    }

    /// With what `acquire` said in the environment, as a script would.
    fn run_with(&self, args: &[&str], attempt: Option<&Value>) -> Run {
        let mut command = self.command(args);
        if let Some(attempt) = attempt {
            command.env("LEASEHOLD_LEASE_ID", attempt["lease_id"].as_str().unwrap());
            command.env("LEASEHOLD_FENCE", attempt["fence"].to_string());
        }
        Run::of(&mut command)
    }

    /// With another standard output.
    fn run_into(&self, args: &[&str], output: Stdio) -> Run {
        Run::of(self.command(args).stdout(output))
    }

    fn command(&self, args: &[&str]) -> Command {
        let args: Vec<&str> = ["job"].iter().chain(args).copied().collect();
        match &self.server {
            Some(server) => server.command_as("user-a", &args),
            None => command(self.folder.path(), &args),
        }
    }

    fn acquire(&self) -> Value {
        let acquired = self.run(&["acquire", JOB, "--worker", "machine-7", "--json"]);
        assert_eq!(acquired.code, 0, "{}{}", acquired.raw, acquired.err);
        acquired.json()
    }
}

#[test]
fn a_job_from_its_making_to_its_result() {
    for place in Place::both() {
        let missing = place.run(&["show", JOB]);
        assert_eq!(
            (missing.code, missing.err.contains("there is no job analyses/42")),
            (1, true),
            "{}",
            missing.err
        );
        let made = place.run(&["create", JOB, "{\"page\": 7}", "--max-attempts", "3"]);
        assert_eq!(
            (made.code, made.out.as_str()),
            (0, "✓ analyses/42 is there now, to be done"),
            "{}",
            made.err
        );
        let again = place.run(&["create", JOB, "{ \"page\":7}", "--json"]);
        assert_eq!(again.json(), json!({ "event": "created", "job": JOB, "new": false }));
        let other = place.run(&["create", JOB, "{\"page\": 8}"]);
        assert_eq!((other.code, other.err.contains("another payload")), (1, true), "{}", other.err);

        let acquired = place.acquire();
        let lease_id = acquired["lease_id"].as_str().unwrap();
        assert_eq!((&acquired["event"], &acquired["payload"]), (&json!("acquired"), &json!({ "page": 7 })));
        assert_eq!((&acquired["attempt"], &acquired["recovered"]), (&json!(1), &json!(false)));
        let second = place.run(&["acquire", JOB]);
        assert_eq!(second.code, 75);
        assert!(
            second.err.contains("machine-7 is working on analyses/42 (fence N), for another 4m 5"),
            "{}",
            second.err
        );
        let second = place.run(&["acquire", JOB, "--json"]);
        assert_eq!((second.code, &second.json()["holder"]["name"]), (75, &json!("machine-7")));
        let shown = place.run(&["show", JOB]);
        assert!(shown.out.starts_with("! analyses/42 is RUNNING\n"), "{}", shown.out);
        for said in [&second.raw, &shown.raw] {
            assert!(!said.contains(lease_id), "{said}");
        }

        let refreshed = place.run_with(&["refresh", JOB, "--ttl", "10m"], Some(&acquired));
        assert_eq!(
            (refreshed.code, refreshed.out.as_str()),
            (0, "✓ analyses/42 is yours for another 10m 00s"),
            "{}",
            refreshed.err
        );
        let reset = place.run(&["reset", JOB]);
        assert_eq!((reset.code, reset.err.contains("machine-7 is working on")), (75, true), "{}", reset.err);
        let done = place.run_with(&["complete", JOB, "{\"pages\": 3}", "--json"], Some(&acquired));
        assert_eq!((done.code, done.json()), (0, json!({ "event": "completed", "job": JOB })));
        let finished = place.run(&["acquire", JOB, "--json"]);
        let expected =
            json!({ "event": "already_finished", "job": JOB, "status": "READY", "result": { "pages": 3 } });
        assert_eq!((finished.code, finished.json()), (4, expected));
        let shown = place.run(&["show", JOB, "--json"]).json();
        let expected = json!({ "job": JOB, "status": "READY", "payload": { "page": 7 }, "attempts": 1, "max_attempts": 3,
            "result": { "pages": 3 }, "finished_by": acquired["fence"] });
        assert_eq!(shown, expected);
        let late = place.run_with(&["refresh", JOB, "--json"], Some(&acquired));
        assert_eq!(
            (late.code, late.json()),
            (76, json!({ "event": "lost", "job": JOB, "because": "released" }))
        );
        let late = place.run_with(&["release", JOB], Some(&acquired));
        assert_eq!(
            (late.code, late.out.as_str()),
            (76, "✗ analyses/42: the attempt is over (released); nothing was changed")
        );

        assert_eq!(place.run(&["reset", JOB]).out, "✓ analyses/42 is to be done again");
        assert_eq!(place.acquire()["attempt"], 1);
    }
}

#[test]
fn an_attempt_fails_and_is_tried_again_as_often_as_it_may() {
    for place in Place::both() {
        place.run(&["create", JOB, "--max-attempts", "2"]);
        let first = place.acquire();
        let failed = place.run_with(&["fail", JOB, "no disk"], Some(&first));
        assert_eq!(
            (failed.code, failed.out.as_str()),
            (0, "✓ analyses/42 will be tried again"),
            "{}",
            failed.err
        );
        let second = place.acquire();
        let failed = place.run_with(&["fail", JOB, "no disk", "--json"], Some(&second));
        assert_eq!(failed.json(), json!({ "event": "failed", "job": JOB, "again": false }));
        let finished = place.run(&["acquire", JOB]);
        assert_eq!((finished.code, finished.err.as_str()), (4, "! analyses/42 has failed already: no disk"));

        place.run(&["create", "analyses/43"]);
        let acquired = place.run(&["acquire", "analyses/43", "--json"]).json();
        let failed = place.run_with(&["fail", "analyses/43", "never", "--final"], Some(&acquired));
        assert_eq!(failed.out, "✓ analyses/43 has failed");
        place.run(&["create", "analyses/44", "just text"]);
        let acquired = place.run(&["acquire", "analyses/44", "--json"]).json();
        assert_eq!(acquired["payload"], "just text");
        assert_eq!(place.run_with(&["release", "analyses/44"], Some(&acquired)).code, 0);
        assert!(place.run(&["show", "analyses/44"]).out.starts_with("! analyses/44 is QUEUED"));
    }
}

#[test]
fn a_shell_script_goes_on_with_what_acquire_exports() {
    for place in Place::both() {
        place.run(&["create", JOB]);
        let exported = place.run(&["acquire", JOB, "--export"]);
        assert_eq!(exported.raw.lines().count(), 1, "{}", exported.raw);
        let line = exported.raw.trim().strip_prefix("export ").unwrap();
        let pairs: Vec<(&str, &str)> = line.split(' ').map(|pair| pair.split_once('=').unwrap()).collect();
        let attempt = json!({ "lease_id": pairs[0].1, "fence": pairs[1].1.parse::<u64>().unwrap() });
        assert_eq!([pairs[0].0, pairs[1].0], ["LEASEHOLD_LEASE_ID", "LEASEHOLD_FENCE"]);
        let refused = place.run(&["acquire", JOB, "--export"]);
        assert_eq!((refused.code, refused.raw.as_str()), (75, ""), "nothing that a shell would run");
        assert_eq!(place.run_with(&["complete", JOB, "done"], Some(&attempt)).code, 0);
    }
}

#[test]
fn a_lease_id_can_stand_in_a_file() {
    for place in Place::both() {
        place.run(&["create", JOB]);
        let acquired = place.run(&["acquire", JOB, "--lease-id-file", "lease", "--json"]).json();
        assert_eq!(acquired.get("lease_id"), None);
        let fence = acquired["fence"].to_string();
        let done = place.run(&["complete", JOB, "--lease-id-file", "lease", "--fence", &fence]);
        assert_eq!((done.code, done.out.as_str()), (0, "✓ analyses/42 is done"), "{}", done.err);
    }
}

/// The job was taken, its lease id went nowhere, and nobody could do it for five minutes.
#[test]
fn a_job_whose_lease_id_has_nowhere_to_go_is_not_taken() {
    for place in Place::both() {
        place.run(&["create", JOB]);
        let link = place.folder.path().join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        for file in ["absent/lease", ".", "link"] {
            let refused = place.run(&["acquire", JOB, "--lease-id-file", file]);
            assert_eq!(
                (refused.code, refused.err.contains("nothing was acquired")),
                (1, true),
                "{}",
                refused.err
            );
        }
        assert!(!place.folder.path().join("target").exists());
        for args in [&["acquire", JOB, "--export"][..], &["acquire", JOB], &["acquire", JOB, "--json"]] {
            let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            let lost = place.run_into(args, full.into());
            assert_eq!(
                (lost.code, lost.err.contains("analyses/42 was given back")),
                (1, true),
                "{}",
                lost.err
            );
        }
        assert!(place.run(&["show", JOB]).out.starts_with("! analyses/42 is QUEUED"));
        assert_eq!(place.acquire()["recovered"], false);
    }
}

/// A lease id stood in a file that everybody could read, because everybody could before.
#[test]
fn a_lease_id_goes_into_a_file_that_only_its_owner_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let [_, place] = Place::both();
    place.run(&["create", JOB]);
    let file = place.folder.path().join("lease");
    std::fs::write(&file, "older").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let mut seen_before = std::fs::File::open(&file).unwrap();
    assert_eq!(place.run(&["acquire", JOB, "--lease-id-file", "lease"]).code, 0);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim().len(), 36);
    assert_eq!(std::io::read_to_string(&mut seen_before).unwrap(), "older");
    let left = std::fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(".tmp")));
}

#[test]
fn what_begins_with_a_hyphen_can_be_said() {
    let [_, place] = Place::both();
    assert_eq!(place.run(&["create", JOB, "-5"]).code, 0);
    let acquired = place.acquire();
    assert_eq!(acquired["payload"], -5);
    assert_eq!(place.run_with(&["complete", JOB, "--jsno"], Some(&acquired)).code, 2, "no flag, and no text");
    assert_eq!(place.run_with(&["complete", JOB, "--json", "--", "- 12 pages"], Some(&acquired)).code, 0);
    assert_eq!(place.run(&["show", JOB, "--json"]).json()["result"], "- 12 pages");
}

#[test]
fn an_answer_that_could_not_be_printed_is_a_failure() {
    let [_, place] = Place::both();
    place.run(&["create", JOB]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let shown = place.run_into(&["show", JOB], full.into());
    assert_eq!(
        (shown.code, shown.err.contains("standard output cannot be written")),
        (1, true),
        "{}",
        shown.err
    );
    // A reader that has seen enough is none.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(place.run_into(&["show", JOB], writer.into()).code, 0);
}

#[test]
fn wrong_usage_says_what_is_missing() {
    let [_, place] = Place::both();
    for (args, said) in [
        (&["complete", JOB][..], "LEASEHOLD_LEASE_ID"),
        (&["show", "42"], "analyses/42"),
        (&["create", JOB, "--max-attempts", "0"], "0"),
        (&["show", JOB, "--store", "memory:"], "name a file with --store"),
        (&["acquire", JOB, "--export", "--json"], "cannot be used with"),
    ] {
        let refused = place.run(args);
        assert_eq!((refused.code, refused.err.contains(said)), (2, true), "{args:?}: {}", refused.err);
    }
    let [server, _] = Place::both();
    let mut stranger = command(server.folder.path(), &["job", "show", JOB]);
    let refused = Run::of(stranger.env("LEASEHOLD_URL", server.server.as_ref().unwrap().url()));
    assert_eq!((refused.code, refused.err.contains("LEASEHOLD_TOKEN")), (77, true), "{}", refused.err);
}
