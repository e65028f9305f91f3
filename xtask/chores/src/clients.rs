//! The clients in other languages, `clients/`, each against a real server that its tests start: in memory, and on Firestore
//! documents with Google's own client for the language beside them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::tally::{Report, Skip};
use crate::tools::{self, Workspace};
use crate::{services, web};

/// Google's clients. Pinned: a verdict must not change without a commit.
const FIRESTORE_FOR_PYTHON: &str = "google-cloud-firestore==2.34.1";
const FIRESTORE_FOR_NODE: &str = "@google-cloud/firestore@7.11.6";

/// Runs the tests of all clients.
pub fn stage(workspace: &Workspace) -> Result<Report> {
    let program = tools::leasehold(workspace)?;
    let mut report = services::ensure()?;
    for client in [python(workspace)?, node(workspace)?, echo()] {
        report.add(&client.test(workspace, &program)?);
    }
    report.add(&web::types(workspace, "clients/node/test")?);
    Ok(report)
}

/// A client, and how its tests are run.
struct Client {
    language: &'static str,
    /// Whether what they need is there.
    probe: Command,
    needs: &'static str,
    tests: Command,
    /// Reads what became of the tests from what they print.
    count: fn(&str) -> Option<Report>,
}

/// A Python with Google's client for Firestore; where it cannot be had, the tests that need it say so.
pub fn python_with_firestore(workspace: &Workspace) -> Result<Option<PathBuf>> {
    tools::python_program(workspace, FIRESTORE_FOR_PYTHON, "python", &["-c", "import google.cloud.firestore"])
}

fn python(workspace: &Workspace) -> Result<Client> {
    let program = python_with_firestore(workspace)?.unwrap_or_else(|| "python3".into());
    let mut probe = Command::new(&program);
    probe.args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]);
    let mut tests = Command::new(&program);
    tests.args(["-m", "unittest", "discover", "-t", "clients/python", "-s", "clients/python/tests"]);
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(Client { language: "Python", probe, needs: "python3, 3.9 or newer", tests, count: count_unittest })
}

fn node(workspace: &Workspace) -> Result<Client> {
    let mut probe = Command::new("node");
    probe.args(["-e", "process.exit(Number(process.versions.node.split('.')[0]) < 18 ? 1 : 0)"]);
    let mut tests = Command::new("node");
    tests.args(["--test", "--test-reporter=tap"]);
    tests.args(["jobs", "docs", "firestore"].map(|name| format!("clients/node/test/{name}.test.js")));
    if let Some(folder) = tools::npm_package(workspace, FIRESTORE_FOR_NODE)? {
        tests.env("LEASEHOLD_FIRESTORE_NODE", folder);
    }
    Ok(Client { language: "Node", probe, needs: "node, 18 or newer", tests, count: count_tap })
}

/// The clients of the WebSocket door, which are not ours: pusher-js, Laravel Echo and npm's `pusher`.
fn echo() -> Client {
    // It installs them first. `npm ci` refuses a lock file without the optional packages of other systems.
    let install = "npm install --silent --no-audit --no-fund --ignore-scripts";
    let mut probe = Command::new("sh");
    probe.args(["-c", &format!("cd clients/echo && {install} && node --test-force-exit -e 0")]);
    let mut tests = Command::new("node");
    // A client of pusher-js that was disconnected has a timer of 30 s left, which nobody waits for.
    tests.args(["--test", "--test-force-exit", "--test-reporter=tap"]);
    tests.arg("clients/echo/test/echo.test.js");
    Client {
        language: "Echo",
        probe,
        needs: "node, 20.14 or newer, and pusher-js and laravel-echo from npm",
        tests,
        count: count_tap,
    }
}

impl Client {
    fn test(mut self, workspace: &Workspace, program: &std::path::Path) -> Result<Report> {
        if !tools::works(self.probe.current_dir(&workspace.root)) {
            let what = format!("the {} client", self.language);
            return Ok(Report::skip(&what, &format!("it needs {}, which is not here", self.needs)));
        }
        let finished = tools::watch(self.tests.current_dir(&workspace.root).env("LEASEHOLD_BIN", program))?;
        if !finished.ok {
            println!("{}", finished.output);
        }
        // A run that says nothing about its tests has not run them.
        let mut report = (self.count)(&finished.output).unwrap_or_else(|| Report::check(false));
        if !finished.ok {
            report.failed = report.failed.max(1);
        }
        Ok(report)
    }
}

/// Reads `Ran 19 tests in 18.9s` and `OK`, or `FAILED (failures=1, errors=2, skipped=3)`.
fn count_unittest(output: &str) -> Option<Report> {
    let ran: u64 =
        output.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok())?;
    let verdict = output.lines().rev().find(|line| line.starts_with("OK") || line.starts_with("FAILED"))?;
    let named = |name: &str| -> u64 {
        let after = verdict.split_once(&format!("{name}=")).map_or("", |(_, after)| after);
        after.split(|c: char| !c.is_ascii_digit()).next().and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let (failed, skipped) = (named("failures") + named("errors"), named("skipped"));
    Some(counted(ran.saturating_sub(failed + skipped), failed, skipped))
}

/// Reads the last lines of a TAP report: `# pass 18`, `# fail 0`, `# skipped 0`.
fn count_tap(output: &str) -> Option<Report> {
    let named = |name: &str| -> Option<u64> {
        let start = format!("# {name} ");
        output.lines().rev().find_map(|line| line.strip_prefix(&start)?.trim().parse().ok())
    };
    let left_out = named("skipped").unwrap_or(0) + named("todo").unwrap_or(0);
    Some(counted(named("pass")?, named("fail")? + named("cancelled").unwrap_or(0), left_out))
}

fn counted(passed: u64, failed: u64, skipped: u64) -> Report {
    let skip = Skip { what: "a test of a client".into(), why: "it says so itself".into() };
    Report { passed, failed, skipped: (0..skipped).map(|_| skip.clone()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(report: Option<Report>) -> Option<(u64, u64, usize)> {
        report.map(|report| (report.passed, report.failed, report.skipped.len()))
    }

    #[test]
    fn the_tests_of_both_are_counted() {
        assert_eq!(numbers(count_unittest("...\nRan 19 tests in 18.906s\n\nOK\n")), Some((19, 0, 0)));
        let failed = "Ran 19 tests in 1s\n\nFAILED (failures=1, errors=2, skipped=3)\n";
        assert_eq!(numbers(count_unittest(failed)), Some((13, 3, 3)));
        assert_eq!(numbers(count_tap("ok 1\n# tests 3\n# pass 1\n# fail 1\n# skipped 1\n")), Some((1, 1, 1)));
    }

    #[test]
    fn what_says_nothing_about_its_tests_has_not_run_them() {
        assert_eq!(count_unittest("ModuleNotFoundError"), None);
        assert_eq!(count_tap("SyntaxError"), None);
    }
}
