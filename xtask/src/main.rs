//! `cargo xtask <command>`: starts the server itself, and hands every other command to the package `chores`.
//!
//! It has no dependencies. Built as part of the chores, `serve` would first compile what only the others need, some of it
//! a second time for the server with other features.

mod demo;
mod serve;

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let ended = match arguments.split_first() {
        Some((first, more)) if first == "serve" && !asks_for_help(more) => serve::run(more),
        Some((first, [server, log])) if first == demo::COMMAND => {
            demo::run(&server.to_string_lossy(), log.as_ref())
        }
        _ => chores(&arguments),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Only before `--`: after it, the help is the server's.
fn asks_for_help(arguments: &[OsString]) -> bool {
    arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument == "--help" || argument == "-h")
}

fn chores(arguments: &[OsString]) -> io::Result<ExitCode> {
    become_it(chores_command(arguments))
}

fn chores_command(arguments: &[OsString]) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "chores", "--"]).args(arguments);
    command
}

/// The cargo that started this program, so that a chosen toolchain stays chosen.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What cargo told this program about itself would make some build scripts run again, and once more without it.
    let told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(told)) {
        command.env_remove(name);
    }
    command
}

/// Replaces this process: a signal to it reaches the other program, whose exit code is passed on.
#[cfg(unix)]
fn become_it(mut command: Command) -> io::Result<ExitCode> {
    Err(std::os::unix::process::CommandExt::exec(&mut command))
}

#[cfg(not(unix))]
fn become_it(mut command: Command) -> io::Result<ExitCode> {
    let code = command.status()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_after_two_dashes_is_the_servers() {
        let cases: [(&[&str], bool); 4] =
            [(&[], false), (&["--help"], true), (&["-h"], true), (&["--", "--help"], false)];
        for (arguments, expected) in cases {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            assert_eq!(asks_for_help(&arguments), expected, "{arguments:?}");
        }
    }
}
