//! `cargo xtask bench …`: figures, each with what it is to be compared with from the same run.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;

use crate::tools::{self, Workspace};
use crate::{services, web};

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
    /// How soon 10,000 watchers hear of a lock, and how soon 10,000 ends are announced
    Live {
        /// Print one JSON object on the last line
        #[arg(long)]
        json: bool,
        /// For the benchmark itself
        #[arg(last = true)]
        options: Vec<String>,
    },
    /// An autosave in Chromium, and on disk beside a plain write, sync and rename
    Autosave {
        /// Print one JSON object on the last line
        #[arg(long)]
        json: bool,
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
        Bench::Live { json, options } => {
            let program = shipped(workspace)?.display().to_string();
            let fixed = ["--what", "live", "--program", &program].map(str::to_owned);
            start(workspace, "bench_server", *json, &[&fixed[..], options].concat())
        }
        Bench::Autosave { json } => autosave(workspace, *json),
    }
}

/// The browser's figures, and then the disk's: at the same time they would measure each other.
fn autosave(workspace: &Workspace, json: bool) -> Result<bool> {
    services::ensure_browsers()?;
    web::build(workspace)?;
    let place = workspace.target_directory()?.join("bench-autosave");
    let on_disk = place.display().to_string();
    let mut figures = serde_json::Map::new();
    let build =
        ["build", "--quiet", "--release", "--package", "leasehold-project", "--example", "bench_autosave"];
    let mut run = build;
    run[0] = "run";
    ensure!(workspace.cargo(&build).status()?.success(), "the benchmark does not build");
    for command in
        [&mut web::script(workspace, "bench-autosave.mjs"), workspace.cargo(&run).args(["--", &on_disk])]
    {
        let output = command.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "`{}` failed", tools::shown(command));
        let printed: serde_json::Map<_, _> = serde_json::from_slice(&output.stdout)?;
        figures.extend(printed);
    }
    let _ = std::fs::remove_dir_all(&place);
    if json {
        println!("{}", serde_json::Value::Object(figures));
    } else {
        figures.iter().for_each(|(name, value)| println!("{name:32} {value}"));
    }
    Ok(true)
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
