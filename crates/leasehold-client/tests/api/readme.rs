//! The Rust program of the repository's first page, as it is printed there.

use std::process::Command;

/// The program. It is in a file of its own, so that it is compiled with the tests.
mod example {
    include!("readme_example.rs");

    pub(super) fn run() {
        main().unwrap();
    }
}

/// Says that this process is the program.
const INSIDE: &str = "LEASEHOLD_README_RUNS";

#[test]
fn the_program_of_the_readme_is_the_one_that_is_tested() {
    let readme = include_str!("../../../../README.md");
    let printed = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(printed, include_str!("readme_example.rs"));
}

/// It names a file of the folder that it is started in, so it runs in a process of its own: this test, started with [`INSIDE`].
#[test]
fn the_program_of_the_readme_runs_as_it_is_printed() {
    if std::env::var_os(INSIDE).is_some() {
        return example::run();
    }
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["readme::the_program_of_the_readme_runs_as_it_is_printed", "--exact", "--nocapture"]);
    let ended = program.env(INSIDE, "1").current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{said}");
    assert!(said.contains("writing the report with fence ") && said.contains("1 passed"), "{said}");
    assert!(folder.path().join("leases.db").is_file());
}
