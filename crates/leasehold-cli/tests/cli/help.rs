//! What is told about the command itself: help, completions, manual pages.

use std::process::Command;

use crate::support::{Run, run, skipped, snapshot};

/// Every command, as it stands in the help of the whole.
fn commands(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn help_lists_the_commands_and_the_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let help = run(&folder, &["--help"]).raw;
    let mut all = help.clone();
    for command in commands(&help).iter().filter(|name| *name != "help") {
        let short = run(&folder, &[command, "-h"]);
        assert_eq!(short.code, 0, "{command}");
        all.push_str(&format!("\n--- leasehold {command} -h\n\n{}", short.raw));
    }
    let trimmed: String = all.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    snapshot("help.txt", &trimmed);
}

#[test]
fn nothing_shows_a_password_that_the_environment_holds() {
    let folder = tempfile::tempdir().unwrap();
    for args in [["serve", "--help"], ["ls", "--help"], ["store", "--help"], ["ls", "x"], ["store", "check"]]
    {
        let mut command = crate::support::command(folder.path(), &args);
        let shown = Run::of(command.env("LEASEHOLD_STORE", "postgres://me:hunter2@h/d"));
        assert!(!shown.raw.contains("hunter2") && !shown.err.contains("hunter2"), "{args:?}");
        let refused = shown.code == 1 && shown.err.contains("not a file");
        assert_eq!(args[1] != "--help", refused, "{args:?}: {}", shown.err);
    }
}

/// `leasehold completions bash | head -3` ended with a panic: the reader had gone.
#[test]
fn completions_may_be_read_in_part() {
    let script = "\"$1\" completions bash 2>errors | head -n 1; cat errors";
    let folder = tempfile::tempdir().unwrap();
    let shown = Command::new("bash")
        .args(["-c", &format!("set -o pipefail; {script}"), "bash", env!("CARGO_BIN_EXE_leasehold")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert_eq!((shown.status.code(), text.lines().count()), (Some(0), 1), "{text}");
}

/// With `--json` a script that reads standard error found plain text there whenever it had made a mistake.
#[test]
fn wrong_usage_is_told_in_json_to_those_who_ask_for_it() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["acquire", "--json"][..],
        &["--json", "acquire", "no/such/name"],
        &["take-over", "minutes", "--reason", " ", "--json"],
        &["release", "minutes", "--force", "--reason", "", "--json"],
    ] {
        let wrong = run(&folder, args);
        let error: serde_json::Value = serde_json::from_str(&wrong.err).unwrap_or_default();
        let words = error["error"].as_str().unwrap_or_default();
        assert_eq!(
            (wrong.code, words.is_empty(), words.starts_with("error")),
            (2, false, false),
            "{args:?}: {}",
            wrong.err
        );
    }
    assert!(run(&folder, &["acquire"]).err.starts_with("error: "));
    let help = run(&folder, &["acquire", "--help", "--json"]);
    assert_eq!((help.code, help.out.contains("Usage:")), (0, true), "{}", help.err);
}

#[test]
fn completions_are_scripts_that_their_shells_accept() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&folder, &["completions", shell]);
        assert_eq!(script.code, 0, "{shell}: {}", script.err);
        assert!(script.raw.contains("take-over"), "{shell}");
    }
    let script = folder.path().join("leasehold.bash");
    std::fs::write(&script, run(&folder, &["completions", "bash"]).raw).unwrap();
    let check = "source leasehold.bash; COMP_WORDS=(leasehold take); COMP_CWORD=1; \
                 _leasehold leasehold take leasehold; echo \"${COMPREPLY[@]}\"";
    let bash =
        Command::new("bash").args(["--norc", "-c", check]).current_dir(folder.path()).output().unwrap();
    assert_eq!(
        (String::from_utf8_lossy(&bash.stdout).trim(), bash.status.success()),
        ("take-over", true),
        "{bash:?}"
    );
    assert_eq!(run(&folder, &["completions", "cmd"]).code, 2);
}

#[test]
fn every_command_has_a_manual_page_that_man_can_show() {
    let folder = tempfile::tempdir().unwrap();
    let written = run(&folder, &["man", "pages/man1"]);
    assert_eq!(written.code, 0, "{}", written.err);
    let commands = commands(&run(&folder, &["--help"]).raw);
    let pages = commands.iter().filter(|name| *name != "help").map(|name| format!("leasehold-{name}.1"));
    let can_show = Command::new("man").arg("--version").output().is_ok();
    if !can_show {
        skipped("how man shows the manual pages, because it is not installed");
    }
    for page in pages.chain(["leasehold.1".to_owned(), "leasehold-store-check.1".to_owned()]) {
        let path = folder.path().join("pages/man1").join(&page);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".TH ") && text.contains(".SH NAME"), "{page}");
        if !can_show {
            continue;
        }
        let shown = Command::new("man").arg("-l").arg(&path).env("MANPAGER", "cat").output().unwrap();
        assert!(shown.status.success(), "{page}: {}", String::from_utf8_lossy(&shown.stderr));
        assert!(String::from_utf8_lossy(&shown.stdout).contains("leasehold"), "{page}");
    }
}
