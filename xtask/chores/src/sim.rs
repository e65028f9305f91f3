//! `cargo xtask sim`: lives through simulated worlds. The program that does so is `sim` of `leasehold-sim`. In the
//! development profile it and the crates it drives are optimised, and their assertions are on; only a soak, which runs
//! for minutes, is worth a release build.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::tally::Report;
use crate::tools::{self, Workspace};

/// How many simulated hours the test command lives through.
const HOURS: &str = "1000";

/// What to tell the simulator.
#[derive(Args)]
pub struct Options {
    /// Passed on: --seed N, --hours H, --minutes M, --bug NAME, --quiet; --help explains them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    args: Vec<String>,
}

/// Runs the simulator on this terminal; answers whether all laws held.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    let run = ["run", "--quiet", "--profile", "test", "--package", "leasehold-sim", "--bin", "sim", "--"];
    let status = workspace.cargo(&run).args(&options.args).status().context("cannot start cargo")?;
    Ok(status.success())
}

/// A thousand simulated hours, as one check.
pub fn stage(workspace: &Workspace) -> Result<Report> {
    let simulator = tools::built_with_tests(workspace, "proof", "sim")?;
    let finished = tools::watch(Command::new(simulator).args(["--hours", HOURS]))?;
    match finished.output.lines().last() {
        Some(summary) if finished.ok => println!("   {summary}"),
        _ => println!("{}", finished.output),
    }
    Ok(Report::check(finished.ok))
}

/// Fresh worlds for this many minutes; answers whether all laws held. Failing seeds are kept.
pub fn soak(workspace: &Workspace, minutes: u64) -> Result<bool> {
    let kept = failing_seeds(workspace)?;
    let release = ["run", "--quiet", "--release", "--package", "leasehold-sim", "--bin", "sim", "--"];
    let mut command = workspace.cargo(&release);
    command.args(["--fresh", "--minutes", &minutes.to_string(), "--keep"]).arg(&kept);
    let finished = tools::watch(&mut command)?;
    match finished.output.lines().last() {
        Some(summary) if finished.ok => println!("simulator: {summary}"),
        _ => println!(
            "{}\nthe failing seeds are in {}, as the commands that replay them",
            finished.output,
            kept.display()
        ),
    }
    Ok(finished.ok)
}

fn failing_seeds(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.target_directory()?.join("failing-seeds.txt"))
}
