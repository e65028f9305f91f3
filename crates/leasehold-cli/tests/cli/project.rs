//! `leasehold project`: a folder on disk, locked by processes.

use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{Holder, Talker, code_of, command, run, signal};

#[test]
fn project_lock_is_seen_respected_and_given_back() {
    let folder = house();
    assert_eq!(run(&folder, &["project", "status", "house"]).code, 0);
    assert_eq!(fs::read_dir(folder.path().join("house")).unwrap().count(), 0, "a look makes no file");
    let anna = Holder::start(&folder, &["project", "lock", "house", "--owner", "anna", "--json"]);
    let status = run(&folder, &["project", "status", "house"]);
    assert_eq!(status.code, 75, "{}{}", status.out, status.err);
    assert!(status.out.starts_with("! house is held by anna\n"), "{}", status.out);
    let refused = run(&folder, &["project", "lock", "house", "--owner", "ben"]);
    assert_eq!(refused.code, 75, "{}{}", refused.out, refused.err);
    assert!(refused.out.starts_with("! house is held by anna (fence N)"), "{}", refused.out);
    let kept = run(&folder, &["project", "unlock", "house"]);
    assert_eq!(kept.code, 75, "{}", kept.out);
    drop(anna); // killed: nothing was released, and it is noticed at once
    let status = run(&folder, &["project", "status", "house", "--json"]);
    assert_eq!((status.code, status.out.as_str()), (0, "{\"locked\":false}"));
    assert!(folder.path().join("house/.lock").exists(), "a look changes nothing");
    let unlocked = run(&folder, &["project", "unlock", "house"]);
    assert_eq!((unlocked.code, unlocked.out.as_str()), (0, "✓ house is free"));
    assert!(!folder.path().join("house/.lock").exists());
}

/// `leasehold project` with this on standard input: its exit code, and its output to the letter.
fn project(folder: &TempDir, args: &[&str], input: &str) -> (i32, String) {
    let mut command = command(folder.path(), &[&["project"], args].concat());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn parsed(out: &str) -> serde_json::Value {
    serde_json::from_str(out).unwrap()
}

/// A script that had read "v1" wrote its result over the "v2" that another program had saved in between.
#[test]
fn project_save_never_overwrites_what_was_not_read() {
    let folder = house();
    let save = |args: &[&str], content: &str| {
        project(&folder, &[&["save", "house", "plan.txt"], args].concat(), content)
    };
    let read = |args: &[&str]| project(&folder, &[&["read", "house"], args].concat(), "");
    let drafts = |args: &[&str]| project(&folder, &[&["drafts", "house"], args].concat(), "");
    let (code, out) = save(&["--json"], "v1");
    assert_eq!(code, 0, "{out}");
    let first = parsed(&out)["version"].as_str().unwrap().to_owned();
    assert_eq!(save(&[], "unseen").0, 3, "it exists");
    let found = parsed(&read(&["plan.txt", "--json"]).1);
    assert_eq!(found, serde_json::json!({ "version": first, "content": "v1" }));
    assert_eq!(save(&["--base", &first], "v2").0, 0);
    let (code, out) = save(&["--base", &first, "--json"], "v1!");
    assert_eq!((code, out.trim()), (3, "{\"reason\":\"stale-base\",\"saved\":false}"));
    assert_eq!(read(&["plan.txt"]), (0, "v2".to_owned()));
    let kept = parsed(&drafts(&["--json"]).1);
    assert_eq!([&kept[0]["bytes"], &kept[1]["bytes"]], [6, 3]);
    let id = kept[1]["id"].as_str().unwrap();
    assert_eq!(drafts(&["--show", id]), (0, "v1!".to_owned()));
    assert_eq!(drafts(&["--discard", id]).0, 0);
    assert!(!drafts(&[]).1.contains(id));
    assert_eq!((save(&["--overwrite"], "v3").0, read(&["plan.txt"]).1), (0, "v3".to_owned()));
    assert_eq!((read(&["missing"]).0, drafts(&["--show", "missing"]).0), (1, 1));
    let anna = Holder::start(&folder, &["project", "lock", "house", "--owner", "anna", "--json"]);
    assert_eq!(save(&["--overwrite"], "v4").0, 75);
    drop(anna);
}

#[test]
fn project_watch_keeps_the_versions_of_a_file_and_restore_brings_one_back() {
    let folder = house();
    let file = folder.path().join("plan.txt");
    let history = || parsed(&project(&folder, &["history", "house", "--json"], "").1);
    for text in ["one", "two, longer"] {
        fs::write(&file, text).unwrap();
        let mut watch =
            Talker::start(&mut command(folder.path(), &["project", "watch", "house", "plan.txt", "--json"]));
        while watch.json()["state"] != "saved" {}
        signal(&watch.child, "INT");
        assert_eq!(code_of(&mut watch.child), Some(0));
    }
    let versions = history();
    let bytes: Vec<_> =
        versions.as_array().unwrap().iter().map(|one| one["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, [11, 3]);
    let first = versions[1]["ts"].as_str().unwrap();
    assert_eq!(project(&folder, &["history", "house", "--show", first], ""), (0, "one".to_owned()));
    let anna = Holder::start(&folder, &["project", "lock", "house", "--owner", "anna", "--json"]);
    assert_eq!(project(&folder, &["restore", "house", first], "").0, 75);
    drop(anna);
    let (code, out) = project(&folder, &["restore", "house", first, "--json"], "");
    assert_eq!((code, parsed(&out)["restored"].as_bool()), (0, Some(true)));
    assert_eq!(project(&folder, &["read", "house", "autosave/current.json"], "").1, "one");
    assert_eq!(history().as_array().unwrap().len(), 3, "what was there before is still there");
    let (code, _) = project(&folder, &["restore", "house", "2026-01-01T00:00:00.000Z"], "");
    assert_eq!((code, project(&folder, &["restore", "house", "yesterday"], "").0), (1, 2));
}

/// A folder `house` that can be locked.
fn house() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("house")).unwrap();
    folder
}

fn locks(folder: &TempDir, owner: &str) -> Talker {
    let args = ["project", "lock", "house", "--json", "--wait", "60s", "--owner", owner];
    Talker::start(&mut command(folder.path(), &args))
}

// A user who ended `project lock` by Ctrl-C after another had unlocked the folder by force read that it was released,
// or got exit code 1, and not 76.
#[test]
fn project_unlock_by_force_is_noticed_by_the_holder() {
    for and_locked_by_ben in [false, true] {
        let folder = house();
        let mut anna = locks(&folder, "anna");
        assert_eq!(anna.json()["event"], "acquired");
        let forced = run(&folder, &["project", "unlock", "house", "--force"]);
        assert_eq!((forced.code, forced.out.as_str()), (0, "✓ house is free"), "{}", forced.err);
        assert_eq!(run(&folder, &["project", "status", "house"]).code, 0);
        let ben = and_locked_by_ben
            .then(|| Holder::start(&folder, &["project", "lock", "house", "--json", "--owner", "ben"]));
        signal(&anna.child, "INT");
        let lost = anna.json();
        let because = if ben.is_some() { "ben has it now" } else { "it was unlocked from outside" };
        assert_eq!((lost["event"].as_str(), lost["because"].as_str()), (Some("lost"), Some(because)));
        assert_eq!(code_of(&mut anna.child), Some(76));
        let status = run(&folder, &["project", "status", "house"]);
        assert_eq!(status.code, if ben.is_some() { 75 } else { 0 }, "{}", status.out);
    }
}

#[test]
fn project_lock_waits_and_is_given_back_by_ctrl_c() {
    let folder = house();
    let mut anna = locks(&folder, "anna");
    assert_eq!(anna.json()["event"], "acquired");
    let mut ben = locks(&folder, "ben");
    wait_until_signals_are_heard(&ben.child);
    signal(&anna.child, "INT");
    assert_eq!(anna.json()["event"], "released");
    assert_eq!(code_of(&mut anna.child), Some(0));
    let acquired = ben.json();
    assert_eq!((acquired["event"].as_str(), acquired["owner"].as_str()), (Some("acquired"), Some("ben")));
}

fn asks(folder: &TempDir, more: &[&str]) -> Talker {
    let args = ["project", "lock", "house", "--json", "--owner", "ben", "--reason", "a typo"];
    Talker::start(&mut command(folder.path(), &[&args, more].concat()))
}

#[test]
fn project_lock_asks_the_holder_who_hands_it_over_by_ctrl_c() {
    let folder = house();
    let mut anna = locks(&folder, "anna");
    assert_eq!(anna.json()["event"], "acquired");
    let mut ben = asks(&folder, &["--ask", "60s"]);
    let asked = anna.json();
    assert_eq!(
        (&asked["event"], &asked["by"], &asked["reason"]),
        (&"asked".into(), &"ben".into(), &"a typo".into())
    );
    assert_eq!((&asked["countdown_ms"], &asked["silence_grants"]), (&60_000.into(), &false.into()));
    signal(&anna.child, "INT");
    assert_eq!(anna.json()["event"], "released");
    let acquired = ben.json();
    assert_eq!((acquired["event"].as_str(), acquired["owner"].as_str()), (Some("acquired"), Some("ben")));
}

#[test]
fn project_lock_that_is_not_handed_over_says_why() {
    let folder = house();
    let mut anna = locks(&folder, "anna");
    assert_eq!(anna.json()["event"], "acquired");
    let mut ben = asks(&folder, &["--ask", "1s"]);
    let held = ben.json();
    assert_eq!((held["event"].as_str(), held["owner"].as_str()), (Some("held"), Some("anna")));
    assert!(held["because"].as_str().unwrap().contains("silent"), "{held}");
    assert_eq!(code_of(&mut ben.child), Some(75));
    // The same holder is asked again, by a program for which silence is consent.
    let mut ben = asks(&folder, &["--ask", "1s", "--silence-grants"]);
    assert_eq!([anna.json()["event"].clone(), anna.json()["event"].clone()], ["asked", "asked"]);
    assert_eq!(ben.json()["event"], "acquired");
    assert_eq!(anna.json()["event"], "lost");
    assert_eq!(code_of(&mut anna.child), Some(76));
}

// Ctrl-C while `project lock --wait` waited did nothing before the time was over.
#[test]
fn project_lock_that_waits_is_given_up_by_ctrl_c() {
    let folder = house();
    let mut anna = locks(&folder, "anna");
    assert_eq!(anna.json()["event"], "acquired");
    let mut ben = locks(&folder, "ben");
    wait_until_signals_are_heard(&ben.child);
    signal(&ben.child, "INT");
    assert_eq!(code_of(&mut ben.child), Some(75));
    assert_eq!(run(&folder, &["project", "status", "house"]).code, 75, "it is still anna's");
}

/// Until then a signal would end it on the spot.
fn wait_until_signals_are_heard(child: &Child) {
    let heard = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (2 - 1)) != 0
    };
    let start = Instant::now();
    while !heard() {
        assert!(start.elapsed() < Duration::from_secs(30), "it does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// `project lock` said that `.lock` could not be read and would be replaced, when a program was stopped inside its guard.
#[test]
fn project_says_that_a_guard_is_stuck() {
    let folder = house();
    assert_eq!(run(&folder, &["project", "unlock", "house"]).code, 0);
    let guard = fs::File::open(folder.path().join("house/.lock.guard")).unwrap();
    guard.lock().unwrap();
    for command in ["lock", "status", "unlock"] {
        let refused = run(&folder, &["project", command, "house"]);
        assert_eq!(refused.code, 1, "{}", refused.out);
        let expected = "error: unavailable(guard-busy): another tab or program has had .lock.guard for 2 s";
        assert!(refused.err.starts_with(expected), "{command}: {}", refused.err);
    }
}

#[test]
fn project_says_what_is_in_the_way_and_what_to_do() {
    let most = "9007199254740991";
    for (make, expected) in [
        ("folder", ".lock is a folder, not a file; move it away"),
        ("fences", "delete both files"),
        ("newer", "upgrade Leasehold"),
    ] {
        let folder = house();
        let file = |name: &str| folder.path().join("house").join(name);
        match make {
            "folder" => fs::create_dir(file(".lock")).unwrap(),
            "fences" => fs::write(file(".lock.guard"), format!("{most} {most}\n")).unwrap(),
            _ => fs::write(file(".lock"), "{\"version\": 2}").unwrap(),
        }
        for command in [&["status"][..], &["lock"], &["unlock"], &["unlock", "--force"]] {
            let refused = run(&folder, &[&["project"], command, &["house"]].concat());
            assert_eq!(refused.code, 1, "{make}, {command:?}: {}", refused.out);
            assert!(refused.err.contains(expected), "{make}, {command:?}: {}", refused.err);
        }
    }
}

#[test]
fn project_refuses_folders_that_are_not_its_own() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("collector")).unwrap();
    for (name, expected) in
        [("collector", "never inside collector/"), ("nowhere", "name a folder that exists")]
    {
        let refused = run(&folder, &["project", "lock", name]);
        assert_eq!(refused.code, 1, "{}", refused.out);
        assert!(refused.err.contains(expected), "{}", refused.err);
    }
}
