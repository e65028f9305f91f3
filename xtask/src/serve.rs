//! `cargo xtask serve`: from a clone to a running server with one command. It only builds `leasehold` and becomes it.

use std::process::Command;

use anyhow::{Context, Result};

use crate::tools::{self, Workspace};

/// What is passed on.
#[derive(clap::Args)]
pub struct Options {
    /// Further arguments for `leasehold serve`, such as `-- --listen 127.0.0.1:0 --json`
    #[arg(last = true, value_name = "ARGUMENTS")]
    more: Vec<String>,
}

/// Builds the program and starts it as a server, with made-up users and its store in the target folder.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    // Cargo talks on standard error: the first line on standard output is the server's own.
    let build = ["build", "--package", "leasehold-cli", "--bin", "leasehold"];
    let built = workspace.cargo(&build).status().context("cannot start cargo")?;
    if !built.success() {
        return Ok(false);
    }
    let target = workspace.target_directory()?;
    let folder = target.join("serve");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let program = target.join("debug").join(format!("leasehold{}", std::env::consts::EXE_SUFFIX));
    let mut server = Command::new(program);
    server.args(arguments(&folder.join("leases.db").to_string_lossy(), &options.more));
    become_it(server)
}

/// The arguments: what somebody adds themselves is not said twice.
fn arguments(store: &str, more: &[String]) -> Vec<String> {
    let given = |flag: &str| more.iter().any(|arg| arg == flag || arg.starts_with(&format!("{flag}=")));
    let mut arguments = vec!["serve".to_owned()];
    if !more.iter().any(|arg| arg.starts_with("--jwt-")) && !given("--config") && !given("--dev") {
        arguments.push("--dev".to_owned());
    }
    if !given("--store") && !given("--config") {
        arguments.extend(["--store".to_owned(), store.to_owned()]);
    }
    arguments.extend_from_slice(more);
    arguments
}

/// Puts the server in the place of this process: whoever ends this one, by Ctrl-C or a signal, ends the server, and
/// gets its exit code.
#[cfg(unix)]
fn become_it(mut server: Command) -> Result<bool> {
    let error = std::os::unix::process::CommandExt::exec(&mut server);
    Err(error).with_context(|| format!("cannot start `{}`", tools::shown(&server)))
}

#[cfg(not(unix))]
fn become_it(mut server: Command) -> Result<bool> {
    let ended = server.status().with_context(|| format!("cannot start `{}`", tools::shown(&server)))?;
    Ok(ended.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_not_said_twice() {
        let cases: [(&[&str], &[&str]); 5] = [
            (&[], &["serve", "--dev", "--store", "s"]),
            (&["--json"], &["serve", "--dev", "--store", "s", "--json"]),
            (&["--store", "memory:"], &["serve", "--dev", "--store", "memory:"]),
            (&["--store=memory:", "--dev"], &["serve", "--store=memory:", "--dev"]),
            (&["--jwt-secret-file", "f"], &["serve", "--store", "s", "--jwt-secret-file", "f"]),
        ];
        for (more, expected) in cases {
            let more: Vec<String> = more.iter().map(|&arg| arg.to_owned()).collect();
            assert_eq!(arguments("s", &more), expected);
        }
    }
}
