//! `cargo xtask bench …`: figures, each with what it is to be compared with from the same run.

use anyhow::Result;
use clap::Subcommand;

use crate::tools::Workspace;

/// What can be measured. Options behind `--` go to the benchmark: `cargo xtask bench engine -- --json`.
#[derive(Subcommand)]
pub enum Bench {
    /// The embedded store beside the disk's sync floor and a plain SQLite, and a million leases
    Engine {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// For the benchmark itself
        #[arg(last = true)]
        options: Vec<String>,
    },
}

/// Builds and runs the benchmark, on this terminal.
pub fn run(workspace: &Workspace, bench: &Bench) -> Result<bool> {
    let Bench::Engine { options, json } = bench;
    let package =
        ["run", "--quiet", "--release", "--package", "leasehold-sim", "--bin", "bench_engine", "--"];
    let mut command = workspace.cargo(&package);
    command.args(json.then_some("--json")).args(options);
    Ok(command.status()?.success())
}
