//! `cargo xtask soak`: the simulator on fresh seeds for half of the time, three tabs at work in real browsers, then the
//! tests that draw their cases at random or kill processes, and the API with requests that nobody has seen, again and again
//! until time is up.
//!
//! It stops at the first failure, because that is what it looks for.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::tally::{Report, count};
use crate::tools::{self, Finished, Workspace};
use crate::{fuzz_api, mutants, sim, web};

/// The cases of each property test in one round.
const CASES: &str = "5000";

/// Parts of the names of the tests that are worth repeating.
const WORTH_REPEATING: [&str; 5] = ["differential", "fuzzed", "killed", "paused", "racing"];

/// How often a log is told that nothing is stuck: some of the tests take minutes and say nothing meanwhile.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

/// How long to go on.
#[derive(Args)]
pub struct Options {
    /// Start no new round after this many minutes; there is always one
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Only the browsers: 10,000 rounds of four tabs in each, 1,000 crashes, a tab hidden for ten minutes; takes hours
    #[arg(long, conflicts_with = "minutes")]
    browsers: bool,
    /// Only three tabs of the guide's page in each browser, for five minutes; SEED=N in the environment repeats a run
    #[arg(long, conflicts_with_all = ["minutes", "browsers"])]
    work: bool,
    /// Only renderers that are killed while an autosave saves: 1,000, or CRASHES=N in the environment
    #[arg(long, conflicts_with_all = ["minutes", "browsers", "work"])]
    autosave: bool,
    /// Only small changes to the rules, as `cargo xtask mutants` makes them; takes hours
    #[arg(long, conflicts_with_all = ["minutes", "browsers", "work", "autosave"])]
    mutants: bool,
}

/// Repeats the tests; answers whether all rounds passed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    if options.browsers {
        return while_alive("the browsers", || web::soak(workspace)).map(|report| report.is_fine());
    }
    if options.autosave {
        return while_alive("killed renderers", || web::soak_autosave(workspace))
            .map(|report| report.is_fine());
    }
    if options.mutants {
        return mutants::run(workspace, &mutants::Options::default());
    }
    let work = || while_alive("three tabs", || web::soak_work(workspace)).map(|report| report.is_fine());
    if options.work {
        return work();
    }
    let start = Instant::now();
    let time = Duration::from_secs(options.minutes * 60);
    if !while_alive("the simulator", || sim::soak(workspace, options.minutes.div_ceil(2)))? {
        return Ok(false);
    }
    if !work()? {
        return Ok(false);
    }
    for round in 1.. {
        let finished = while_alive(&format!("round {round} of the tests"), || one_round(workspace))?;
        if !is_fine(round, &finished)? || !fuzz_api::soak(workspace)?.is_fine() {
            return Ok(false);
        }
        if start.elapsed() >= time {
            break;
        }
    }
    Ok(true)
}

fn one_round(workspace: &Workspace) -> Result<Finished> {
    let mut command = workspace.cargo(&["test", "--workspace", "--release", "--"]);
    command.args(WORTH_REPEATING).env("LEASEHOLD_SOAK", "1").env("LEASEHOLD_CASES", CASES);
    tools::watch(&mut command)
}

/// Does `work`, and says now and then how long it has been at it. On a terminal there is a spinner instead.
fn while_alive<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        if !std::io::stderr().is_terminal() {
            scope.spawn(move || {
                while is_done.recv_timeout(SIGN_OF_LIFE) == Err(RecvTimeoutError::Timeout) {
                    println!("     {what}: {} min so far", start.elapsed().as_secs() / 60);
                }
            });
        }
        let worked = work();
        drop(done);
        worked
    })
}

fn is_fine(round: u32, finished: &Finished) -> Result<bool> {
    let report = count(&finished.output, finished.ok);
    if !report.is_fine() {
        println!("{}\nround {round}: {report}\n{}", finished.output, how_to_replay());
    } else if report == Report::default() {
        bail!("no test is named after any of: {}", WORTH_REPEATING.join(", "));
    } else {
        println!("round {round}: {report}");
    }
    Ok(report.is_fine())
}

fn how_to_replay() -> String {
    format!(
        "To replay:
- a property test kept its failing seed in a file under `proptest-regressions`: `cargo test NAME` tries it first, on
  every run from now on. Commit the file with the fix.
- a process test depends on timing: run it alone, several times, with the same settings:
  LEASEHOLD_SOAK=1 LEASEHOLD_CASES={CASES} cargo test --workspace --release -- NAME"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(ok: bool, result: &str) -> Finished {
        Finished { ok, output: format!("test result: {result} 0 ignored;") }
    }

    #[test]
    fn a_round_without_a_test_is_an_error() {
        assert!(is_fine(1, &finished(true, "ok. 0 passed; 0 failed;")).is_err());
    }

    #[test]
    fn a_round_passes_or_fails_with_its_tests() {
        assert!(is_fine(1, &finished(true, "ok. 2 passed; 0 failed;")).unwrap());
        assert!(!is_fine(1, &finished(false, "FAILED. 2 passed; 1 failed;")).unwrap());
    }
}
