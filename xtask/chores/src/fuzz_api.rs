//! Schemathesis over the server's OpenAPI document: valid requests are accepted, invalid ones refused, nothing answers
//! what the document does not say, and nothing answers 5xx.
//!
//! It comes from Python's package index, into a folder of its own in the target folder.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::tally::Report;
use crate::tools::{self, Workspace};

/// Another version may know other checks: a verdict must not change without a commit.
const PACKAGE: &str = "schemathesis==4.32.5";

/// How many requests are made up for each call, in each direction.
const EXAMPLES: &str = "25";

/// What the test command draws its requests from: the same commit always gets the same verdict. A soak draws anew.
const SEED: &str = "20261115";

/// Event streams do not end, which is not what this program expects of an answer.
const WITHOUT: &str = "/events$";

/// Starts a server and lets schemathesis loose on it.
pub fn stage(workspace: &Workspace) -> Result<Report> {
    try_api(workspace, &["--seed", SEED])
}

/// The same with requests that nobody has seen.
pub fn soak(workspace: &Workspace) -> Result<Report> {
    try_api(workspace, &[])
}

fn try_api(workspace: &Workspace, options: &[&str]) -> Result<Report> {
    let Some(program) = tools::python_program(workspace, PACKAGE, "st", &["--version"])? else {
        let why = "schemathesis could not be installed: it needs python3 with venv, and the package index";
        return Ok(Report::skip("the API against its description", why));
    };
    let server = Server::start(workspace)?;
    let mut report = Report::default();
    // Apart from each other: in one run it takes some requests that it spoilt on purpose for valid ones.
    for mode in ["positive", "negative"] {
        report.add(&Report::check(run(workspace, &program, &server, mode, options)?));
    }
    Ok(report)
}

fn run(workspace: &Workspace, program: &Path, server: &Server, mode: &str, options: &[&str]) -> Result<bool> {
    let settings = workspace.root.join("crates/leasehold-server/tests/schemathesis.toml");
    let mut command = Command::new(program);
    // It writes what it found into the folder that it runs in.
    command.current_dir(workspace.target_directory()?).arg("--config-file").arg(settings);
    command.args([
        "run",
        &format!("{}/openapi.json", server.url),
        "--mode",
        mode,
        "--max-examples",
        EXAMPLES,
    ]);
    command.args(["--phases", "examples,coverage,fuzzing,stateful", "--exclude-path-regex", WITHOUT]);
    command.args(["--suppress-health-check", "all", "--request-timeout", "10", "--no-color"]).args(options);
    // By the environment: a process list, and our own progress, show arguments.
    let finished = tools::watch(command.env("LEASEHOLD_TOKEN", &server.token))?;
    if !finished.ok {
        println!("{}", finished.output);
    }
    Ok(finished.ok)
}

/// A server with made-up users and nothing to lose.
struct Server {
    child: Child,
    url: String,
    token: String,
}

impl Server {
    fn start(workspace: &Workspace) -> Result<Self> {
        let mut command = Command::new(tools::leasehold(workspace)?);
        command.args([
            "serve",
            "--dev",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--store",
            "memory:",
            "--log",
            "error",
        ]);
        command.args(["--limits-requests-per-second", "1000000", "--limits-burst", "1000000"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("it has no output")?).read_line(&mut line)?;
        let started: Value = serde_json::from_str(&line).context("the server did not say where it is")?;
        let text = |pointer: &str| Some(started.pointer(pointer)?.as_str()?.to_owned());
        let url = text("/url").context("the server did not name its address")?;
        Ok(Self { child, url, token: text("/tokens/user-a").context("the server made no token")? })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
