//! `cargo xtask serve`: from a clone to a running server with one command. It only builds `leasehold` and becomes it; the page of
//! the demo is built beside the server (`demo.rs`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::demo;

/// Builds the program and starts it as a server, with made-up users and its store in the target folder.
pub fn run(more: &[OsString]) -> io::Result<ExitCode> {
    // Cargo talks on standard error: the first line on standard output is the server's own.
    let built =
        crate::cargo().args(["build", "--package", "leasehold-cli", "--bin", "leasehold"]).status()?;
    if !built.success() {
        return Ok(ExitCode::FAILURE);
    }
    let programs = folder_of_programs()?;
    let folder = programs.join("serve");
    std::fs::create_dir_all(&folder)?;
    let mut server = Command::new(programs.join(format!("leasehold{}", std::env::consts::EXE_SUFFIX)));
    let arguments = arguments(folder.join("leases.db").as_os_str(), more);
    if arguments.iter().any(|argument| argument == "--dev") {
        demo::build_beside_server(&folder)?;
    }
    server.args(arguments);
    crate::become_it(server)
}

/// Where cargo puts programs, whatever the target folder and platform are: beside this one.
fn folder_of_programs() -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    this.parent().map(Path::to_path_buf).ok_or_else(|| io::Error::other("this program is in no folder"))
}

/// The arguments of `leasehold`. An option that was given is not added a second time.
fn arguments(store: &OsStr, more: &[OsString]) -> Vec<OsString> {
    let more: Vec<&OsString> = more.iter().skip_while(|argument| *argument == "--").collect();
    let text = |argument: &OsString| argument.to_string_lossy().into_owned();
    let given =
        |flag: &str| more.iter().any(|arg| text(arg) == flag || text(arg).starts_with(&format!("{flag}=")));
    let mut arguments: Vec<OsString> = vec!["serve".into()];
    if !more.iter().any(|arg| text(arg).starts_with("--jwt-")) && !given("--config") && !given("--dev") {
        arguments.push("--dev".into());
    }
    if !given("--store") && !given("--config") {
        arguments.extend(["--store".into(), store.to_owned()]);
    }
    arguments.extend(more.into_iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_not_added_again() {
        let cases: [(&[&str], &[&str]); 6] = [
            (&[], &["serve", "--dev", "--store", "s"]),
            (&["--json"], &["serve", "--dev", "--store", "s", "--json"]),
            (&["--", "--json"], &["serve", "--dev", "--store", "s", "--json"]),
            (&["--store", "memory:"], &["serve", "--dev", "--store", "memory:"]),
            (&["--store=memory:", "--dev"], &["serve", "--store=memory:", "--dev"]),
            (&["--jwt-secret-file", "f"], &["serve", "--store", "s", "--jwt-secret-file", "f"]),
        ];
        for (more, expected) in cases {
            let more: Vec<OsString> = more.iter().map(OsString::from).collect();
            assert_eq!(arguments(OsStr::new("s"), &more), expected);
        }
    }
}
