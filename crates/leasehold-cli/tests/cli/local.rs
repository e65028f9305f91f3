//! The commands on a local file: `try`, `ls` and `store`.

use std::process::Command;

use crate::support::{Holder, command, run};

#[test]
fn try_gets_holds_and_releases() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(&folder, &["try", "run/hello", "--owner", "anna", "--hold", "0s"]);
    let lines: Vec<_> = run.out.lines().collect();
    assert_eq!(
        (run.code, lines[0]),
        (0, "✓ run/hello is yours, as anna with fence N"),
        "{}{}",
        run.out,
        run.err
    );
    assert!(lines[1].starts_with("✓ run/hello released after"), "{}", run.out);
}

#[test]
fn try_says_who_holds_it_and_exits_with_75() {
    let folder = tempfile::tempdir().unwrap();
    let _anna = Holder::start(&folder, &["try", "run/hello", "--owner", "anna", "--json"]);
    let refused = run(&folder, &["try", "run/hello", "--owner", "ben"]);
    assert_eq!(refused.code, 75);
    assert!(
        refused.out.starts_with("! run/hello is held by anna (fence N)\n  it runs out in 29."),
        "{}",
        refused.out
    );
    let json = run(&folder, &["try", "run/hello", "--owner", "ben", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json.out.replace('N', "7")).unwrap();
    assert_eq!((json.code, &value["event"], &value["owner"]), (75, &"held".into(), &"anna".into()));
}

#[test]
fn try_waits_until_the_holder_lets_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut anna =
        Holder::start(&folder, &["try", "run/hello", "--owner", "anna", "--json", "--hold", "300ms"]);
    let ben =
        run(&folder, &["try", "run/hello", "--owner", "ben", "--wait", "20s", "--hold", "0s", "--json"]);
    assert_eq!(ben.code, 0, "{}{}", ben.out, ben.err);
    assert_eq!(anna.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_killed_holder_frees_the_key_when_its_ttl_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let anna = Holder::start(&folder, &["try", "run/hello", "--owner", "anna", "--json", "--ttl", "1s"]);
    drop(anna); // killed: nothing was released
    let ben = run(&folder, &["try", "run/hello", "--owner", "ben", "--wait", "20s", "--hold", "0s"]);
    assert_eq!(ben.code, 0, "{}{}", ben.out, ben.err);
}

#[test]
fn a_terminated_holder_releases_before_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut anna = Holder::start(&folder, &["try", "run/hello", "--owner", "anna", "--json"]);
    let kill = Command::new("kill").arg(anna.0.id().to_string()).status().unwrap();
    assert!(kill.success());
    assert_eq!(anna.0.wait().unwrap().code(), Some(0));
    assert_eq!(run(&folder, &["try", "run/hello", "--hold", "0s"]).code, 0);
}

#[test]
fn ls_lists_what_is_held_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&folder, &["ls"]).code, 1, "there is no file yet");
    let _anna = Holder::start(&folder, &["try", "run/a", "--owner", "anna", "--meta", "name=Anna", "--json"]);
    let _ben = Holder::start(&folder, &["try", "job/b", "--owner", "ben", "--json"]);
    let table = run(&folder, &["ls"]).out;
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["KEY", "OWNER", "FENCE", "HELD", "FOR", "EXPIRES", "IN", "NOTE"]);
    assert_eq!((words[1][0], words[1][1]), ("job/b", "ben"));
    assert_eq!((words[2][0], words[2][1]), ("run/a", "anna"));
    assert!(table.contains("name: Anna"), "{table}");
    let json = command(folder.path(), &["ls", "run/", "--json"]).output().unwrap().stdout;
    let leases: Vec<leasehold_core::wire::LeaseView> = serde_json::from_slice(&json).unwrap();
    assert_eq!(leases.iter().map(|lease| lease.key.as_str()).collect::<Vec<_>>(), ["run/a"]);
    assert!(!String::from_utf8(json).unwrap().contains("lease_id"));
}

#[test]
fn store_check_finds_nothing_wrong_with_a_good_file_and_something_with_a_bad_one() {
    let folder = tempfile::tempdir().unwrap();
    run(&folder, &["try", "run/a", "--hold", "0s"]);
    let good = run(&folder, &["store", "check"]);
    assert_eq!(good.code, 0);
    assert!(good.out.ends_with("✓ no problems found"), "{}", good.out);
    let path = folder.path().join("leases.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(5).rposition(|window| window == b"run/a").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let bad = run(&folder, &["store", "check"]);
    assert_eq!(bad.code, 3, "{}", bad.out);
    assert!(bad.out.contains("✗") && bad.out.contains("leasehold store repair leases.db"), "{}", bad.out);
}

#[test]
fn a_file_goes_through_backup_restore_and_repair() {
    let folder = tempfile::tempdir().unwrap();
    run(&folder, &["try", "run/a", "--hold", "0s"]);
    let backup = run(&folder, &["store", "backup", "leases.db", "backup.db"]);
    assert_eq!(backup.code, 0, "{}", backup.err);
    assert!(backup.out.starts_with("✓ leases.db backed up to backup.db"), "{}", backup.out);
    let again = run(&folder, &["store", "backup", "leases.db", "backup.db"]);
    assert_eq!((again.code, again.err.contains("already exists")), (1, true), "{}", again.err);
    let restored = run(&folder, &["store", "restore", "backup.db", "leases.db"]);
    assert!(restored.out.contains("the old file is kept as leases.db.before-restore-N"), "{}", restored.out);
    std::fs::write(folder.path().join("leases.db"), "not a store at all, not any more").unwrap();
    let refused = run(&folder, &["try", "run/a", "--hold", "0s"]);
    assert_eq!((refused.code, refused.err.contains("not a Leasehold store")), (1, true), "{}", refused.err);
    assert_eq!(run(&folder, &["store", "repair", "leases.db"]).code, 1, "nothing is readable");
    assert_eq!(run(&folder, &["store", "repair", "leases.db", "--start-empty"]).code, 0);
    assert_eq!(run(&folder, &["try", "run/a", "--hold", "0s"]).code, 0);
}

#[test]
fn errors_name_the_thing_the_rule_and_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["try", "hello"], 1, "write `run/hello`"),
        (&["try", "run/a", "--ttl", "1ms"], 1, "a TTL lies between 1s and 24h"),
        (&["try", "run/a", "--ttl", "soon"], 2, "write it like Nms, 30s, 5m or 24h"),
        (&["try", "run/a", "--meta", "x"], 2, "NAME=VALUE"),
        (&["try", "run/a", "--store", "redis://x"], 1, "write memory:, embedded:PATH"),
        (&["try", "run/a", "--store", "no/such/folder/leases.db"], 1, "make it first"),
        (&["store", "check", "missing.db"], 1, "missing.db does not exist"),
        (&["frobnicate"], 2, "unrecognized subcommand"),
    ];
    for (args, code, words) in cases {
        let run = run(&folder, args);
        assert_eq!((run.code, run.err.contains(words)), (code, true), "{args:?}: {}", run.err);
    }
    let json = run(&folder, &["try", "hello", "--json"]);
    assert!(json.err.starts_with("{\"error\":"), "{}", json.err);
}
