//! `cargo xtask test`: every check there is, in stages; a failed stage does not stop the ones after it.
//!
//! To add a stage, write a function from [`Workspace`] to [`Report`] and add a line to [`STAGES`]. A stage that cannot
//! run here answers with a skip and the reason, never with a quiet pass.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use comfy_table::{Table, presets};

use crate::scratch::Scratch;
use crate::tally::{Report, count};
use crate::tools::{self, Workspace};
use crate::{clients, fuzz_api, services, sim, tidy, wasm, web};

/// Which stages to run.
#[derive(Args)]
pub struct Options {
    /// Run only this stage; may be given several times
    #[arg(long, value_name = "STAGE", value_parser = stage_names())]
    only: Vec<String>,
    /// List the stages and run none
    #[arg(long)]
    list: bool,
}

/// One part of the whole.
struct Stage {
    name: &'static str,
    about: &'static str,
    run: fn(&Workspace) -> Result<Report>,
}

/// Cheap ones first, so that a slip shows early.
const STAGES: &[Stage] = &[
    Stage { name: "format", about: "the code is formatted", run: format },
    Stage { name: "tidy", about: "the house rules that the compiler does not know", run: tidy::stage },
    Stage { name: "lint", about: "clippy finds nothing", run: lint },
    Stage { name: "tests", about: "unit, integration and documentation tests; examples compile", run: tests },
    Stage {
        name: "api",
        about: "the server answers as its OpenAPI document says, and never with 5xx",
        run: fuzz_api::stage,
    },
    Stage {
        name: "clients",
        about: "the clients in Python and Node, against a real server",
        run: clients::stage,
    },
    Stage { name: "sim", about: "all laws hold for a thousand simulated hours", run: sim::stage },
    Stage { name: "docs", about: "the documentation builds without a warning", run: docs },
    Stage { name: "wasm", about: "the rules need nothing from a WebAssembly host", run: wasm::stage },
    Stage { name: "web", about: "the npm package: types, sizes, cases on the doubles", run: web::stage },
    Stage {
        name: "browsers",
        about: "the npm package in Chromium and Firefox, packed by three bundlers; the server's own page",
        run: web::browsers_stage,
    },
    Stage { name: "deny", about: "licences, bans and sources of the dependencies", run: deny },
];

/// A stage that has run.
struct Done {
    name: &'static str,
    report: Report,
    time: Duration,
}

/// Runs the stages; answers whether nothing failed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    if options.list {
        STAGES.iter().for_each(|stage| println!("{:8} {}", stage.name, stage.about));
        return Ok(true);
    }
    let chosen =
        |stage: &&Stage| options.only.is_empty() || options.only.iter().any(|only| only == stage.name);
    let done: Vec<Done> = STAGES.iter().filter(chosen).map(|stage| run_stage(workspace, stage)).collect();
    println!("\n{}\n", table(&done));
    let total = sum(&done);
    say_what_was_left_out(&total, &done);
    println!("{total}");
    Ok(total.is_fine())
}

fn run_stage(workspace: &Workspace, stage: &Stage) -> Done {
    println!("\n== {}: {}", stage.name, stage.about);
    let start = Instant::now();
    let report = (stage.run)(workspace).unwrap_or_else(|error| {
        println!("error: {error:#}");
        Report::check(false)
    });
    let done = Done { name: stage.name, report, time: start.elapsed() };
    println!("   {} in {}", verdict(&done.report), seconds(done.time));
    done
}

fn format(workspace: &Workspace) -> Result<Report> {
    tools::ensure_component(workspace, "fmt", "rustfmt")?;
    whole(&mut workspace.cargo(&["fmt", "--all", "--check"]))
}

fn lint(workspace: &Workspace) -> Result<Report> {
    tools::ensure_component(workspace, "clippy", "clippy")?;
    let mut report =
        whole(&mut workspace.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // The client by itself: elsewhere in the workspace all of its features are on.
    for features in ["", "http"] {
        let client =
            ["clippy", "--package", "leasehold-client", "--no-default-features", "--features", features];
        report.add(&whole(workspace.cargo(&client).args(["--", "-D", "warnings"]))?);
    }
    Ok(report)
}

/// Without a choice of targets, cargo runs unit, integration and documentation tests, builds the examples, and leaves
/// the benchmarks alone.
fn tests(workspace: &Workspace) -> Result<Report> {
    let mut report = services::ensure()?;
    let scratch = Scratch::new()?;
    let mut tests = workspace.cargo(&["test", "--workspace", "--no-fail-fast"]);
    tests.env("RUST_TEST_THREADS", threads().to_string());
    if let Some(scratch) = &scratch {
        tests.env("TMPDIR", scratch.path());
    }
    if let Some(python) = clients::python_with_firestore(workspace)? {
        tests.env("LEASEHOLD_FIRESTORE_PYTHON", python);
    }
    let finished = tools::watch(&mut tests)?;
    if !finished.ok {
        println!("{}", finished.output);
    }
    report.add(&count(&finished.output, finished.ok));
    Ok(report)
}

/// Twice as many tests at a time as there are cores: many of them wait, for a lease to end or for a process.
fn threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from)
}

fn docs(workspace: &Workspace) -> Result<Report> {
    whole(workspace.cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Another version may know other checks: a verdict must not change without a commit.
const CARGO_DENY: &str = "0.20.2";

/// Advisories are left out: their database comes from the network, and a verdict must not change without a commit.
fn deny(workspace: &Workspace) -> Result<Report> {
    let Some(program) = tools::built_program(workspace, "cargo-deny", CARGO_DENY)? else {
        let why = "cargo-deny could not be installed: it needs the package registry, and a few minutes";
        return Ok(Report::skip("deny", why));
    };
    whole(Command::new(program).args(["check", "bans", "licenses", "sources"]).current_dir(&workspace.root))
}

/// A command that passes or fails as one check; its output is shown when it fails.
fn whole(command: &mut Command) -> Result<Report> {
    let finished = tools::watch(command)?;
    if !finished.ok {
        println!("{}", finished.output);
    }
    Ok(Report::check(finished.ok))
}

fn stage_names() -> PossibleValuesParser {
    PossibleValuesParser::new(STAGES.iter().map(|stage| stage.name))
}

fn sum(done: &[Done]) -> Report {
    let mut total = Report::default();
    done.iter().for_each(|stage| total.add(&stage.report));
    total
}

fn verdict(report: &Report) -> &'static str {
    match report {
        Report { failed: 1.., .. } => "FAILED",
        Report { passed: 0, .. } => "SKIPPED",
        _ => "ok",
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn table(done: &[Done]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["stage", "result", "tests", "time"]);
    for Done { name, report, time } in done {
        table.add_row([name.to_string(), verdict(report).into(), report.to_string(), seconds(*time)]);
    }
    table
}

fn say_what_was_left_out(total: &Report, done: &[Done]) {
    for skip in &total.skipped {
        println!("!!! SKIPPED {}: {}", skip.what, skip.why);
    }
    let ran = |stage: &&Stage| done.iter().any(|done| done.name == stage.name);
    let left_out: Vec<_> = STAGES.iter().filter(|stage| !ran(stage)).map(|stage| stage.name).collect();
    if !left_out.is_empty() {
        println!("!!! NOT RUN, because of --only: {}", left_out.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nowhere() -> Workspace {
        Workspace { root: ".".into() }
    }

    #[test]
    fn a_stage_that_breaks_is_a_failure() {
        let stage = Stage { name: "broken", about: "", run: |_| anyhow::bail!("no such thing") };
        assert_eq!(run_stage(&nowhere(), &stage).report, Report::check(false));
    }

    #[test]
    fn a_stage_that_ran_nothing_is_not_called_ok() {
        assert_eq!(verdict(&Report::default()), "SKIPPED");
        assert_eq!(verdict(&Report::skip("deny", "not installed")), "SKIPPED");
        assert_eq!(verdict(&Report { passed: 9, failed: 1, skipped: vec![] }), "FAILED");
        assert_eq!(verdict(&Report::check(true)), "ok");
    }

    #[test]
    fn the_total_is_the_sum_of_the_stages() {
        let done = |report| Done { name: "x", report, time: Duration::ZERO };
        let total =
            sum(&[done(Report::check(true)), done(Report::skip("a", "b")), done(Report::check(false))]);
        assert_eq!(total.to_string(), "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn every_stage_has_a_name_of_its_own() {
        let mut names: Vec<_> = STAGES.iter().map(|stage| stage.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STAGES.len());
    }
}
