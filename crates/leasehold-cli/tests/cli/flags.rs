//! `leasehold flags`: the phases of a roll-out in a file.

use std::process::Stdio;

use tempfile::TempDir;

use crate::support::{Run, command, run};

fn made() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = run(&folder, &["flags", "init", "--by", "anna"]);
    assert_eq!((made.code, made.out.contains("the phase is off")), (0, true), "{}{}", made.out, made.err);
    folder
}

fn phase(folder: &TempDir) -> String {
    run(folder, &["flags", "show", "--json"]).json()["phase"].as_str().unwrap().to_owned()
}

#[test]
fn flags_go_on_and_back_and_every_change_is_kept() {
    let folder = made();
    assert_eq!(run(&folder, &["flags", "advance", "--by", "anna"]).code, 0);
    assert_eq!(run(&folder, &["flags", "advance", "--by", "anna", "--reason", "all is well"]).code, 0);
    assert_eq!(phase(&folder), "all");
    // As the manual of the roll-out writes it.
    let back = run(&folder, &["flags", "rollback", "--phase", "PREV", "--by", "reporter"]);
    assert_eq!((back.code, back.out.contains("rolled back from all to beta")), (0, true), "{}", back.out);
    let shown = run(&folder, &["flags", "show"]).raw;
    for part in ["phase beta: pages autosave", "all is well", "rolled back", "reporter", "5 %"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = run(&folder, &["flags", "show", "--json"]).json();
    assert_eq!(json["history"].as_array().unwrap().len(), 4);
    assert_eq!(json["resolved"]["source"], "file");
    let trail = std::fs::read_to_string(folder.path().join("flags.json.history.jsonl")).unwrap();
    assert_eq!(trail.lines().count(), 4, "{trail}");
}

#[test]
fn flags_are_refused_with_what_to_do() {
    let folder = made();
    let again = run(&folder, &["flags", "init"]);
    assert_eq!((again.code, again.err.contains("already")), (1, true), "{}", again.err);
    let missing = run(&folder, &["flags", "show", "--flags-file", "other.json"]);
    assert_eq!((missing.code, missing.err.contains("leasehold flags init")), (1, true), "{}", missing.err);
    for args in [&["rollback"][..], &["rollback", "--phase", "prev"], &["advance", "--phase", "gamma"]] {
        let refused = run(&folder, &[&["flags"], args].concat());
        assert_eq!((refused.code, refused.err.is_empty()), (1, false), "{args:?}");
    }
    let same = run(&folder, &["flags", "rollback", "--phase", "off", "--json"]);
    assert_eq!((same.code, same.json()["changed"].as_bool()), (0, Some(false)), "{}", same.err);
    std::fs::write(folder.path().join("flags.json"), "{\"version\": 1").unwrap();
    let bad = run(&folder, &["flags", "advance"]);
    assert_eq!((bad.code, bad.err.contains("correct it by hand")), (1, true), "{}", bad.err);
    assert_eq!(std::fs::read_to_string(folder.path().join("flags.json")).unwrap(), "{\"version\": 1");
}

#[test]
fn an_option_counts_more_than_the_environment_and_that_more_than_the_file() {
    let folder = made();
    let resolved = |variable: Option<&str>, args: &[&str]| {
        let mut command = command(folder.path(), &[&["flags", "show", "--json"], args].concat());
        variable.map(|phase| command.env("LEASEHOLD_PHASE", phase));
        Run::of(&mut command).json()["resolved"]["phase"].as_str().unwrap().to_owned()
    };
    assert_eq!(resolved(None, &[]), "off");
    assert_eq!(resolved(Some("beta"), &[]), "beta");
    assert_eq!(resolved(Some("beta"), &["--phase", "all"]), "all");
}

#[test]
fn of_several_that_roll_back_at_once_one_makes_the_change_and_all_succeed() {
    let folder = made();
    assert_eq!(run(&folder, &["flags", "advance", "--phase", "all"]).code, 0);
    let start = |_| {
        let mut command = command(folder.path(), &["flags", "rollback", "--phase", "beta", "--json"]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..6).map(start).collect();
    let changed = all.into_iter().map(|child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["changed"].as_bool().unwrap()
    });
    assert_eq!(changed.filter(|changed| *changed).count(), 1);
    let json = run(&folder, &["flags", "show", "--json"]).json();
    assert_eq!((json["phase"].as_str(), json["history"].as_array().unwrap().len()), (Some("beta"), 3));
}
