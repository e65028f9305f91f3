//! `cargo xtask bench …`: figures, each with what it is to be compared with from the same run.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;

use crate::services;
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
    /// The server over loopback, beside a durable Redis and a PostgreSQL
    Server {
        /// Print one JSON object on the last line
        #[arg(long)]
        json: bool,
        /// For the benchmark itself
        #[arg(last = true)]
        options: Vec<String>,
    },
}

/// Builds and runs the benchmark, on this terminal.
pub fn run(workspace: &Workspace, bench: &Bench) -> Result<bool> {
    match bench {
        Bench::Engine { json, options } => start(workspace, "bench_engine", *json, options),
        Bench::Server { json, options } => {
            services::ensure_rivals()?;
            let program = shipped(workspace)?.display().to_string();
            let options = [&["--program".to_owned(), program][..], options].concat();
            start(workspace, "bench_server", *json, &options)
        }
    }
}

fn start(workspace: &Workspace, name: &str, json: bool, options: &[String]) -> Result<bool> {
    let mut command =
        workspace.cargo(&["run", "--quiet", "--release", "--package", "leasehold-sim", "--bin", name, "--"]);
    command.args(json.then_some("--json")).args(options);
    Ok(command.status()?.success())
}

/// The program as it is packaged: with every feature, optimised.
fn shipped(workspace: &Workspace) -> Result<PathBuf> {
    let build =
        ["build", "--release", "--package", "leasehold-cli", "--bin", "leasehold", "--features", "full"];
    let built = workspace.cargo(&build).status().context("cannot start cargo")?;
    ensure!(built.success(), "leasehold does not build");
    Ok(workspace
        .target_directory()?
        .join("release")
        .join(format!("leasehold{}", std::env::consts::EXE_SUFFIX)))
}
