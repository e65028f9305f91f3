//! `cargo xtask web`: builds the npm package into `web/dist`; and the stages that test it, in node and in real browsers.
//!
//! What the package needs comes from its lock file. Nothing is installed outside of `web/node_modules`, except browsers,
//! which are Debian's packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::services;
use crate::tally::{Report, Skip};
use crate::tools::{self, Workspace};

const TARGET: &str = "wasm32-unknown-unknown";

/// What is installed, as of the last install: a copy of the lock file.
const INSTALLED: &str = "node_modules/.installed";

/// The linker leaves room in every call for a larger number than it writes; this takes it out, a tenth of the module.
const COMPRESS: &str = "-C link-arg=--compress-relocations";

const NO_NODE: &str = "there is no npm: install Node.js 20 or newer";

/// Builds `web/dist`.
pub fn run(workspace: &Workspace) -> Result<bool> {
    if !has_npm() {
        bail!("{NO_NODE}");
    }
    build(workspace)?;
    println!("built {}", folder(workspace).join("dist").display());
    Ok(true)
}

/// Builds the package, and tests what needs no browser: types, sizes, the cases on the doubles.
pub fn stage(workspace: &Workspace) -> Result<Report> {
    if !has_npm() {
        return Ok(Report::skip("web", NO_NODE));
    }
    build(workspace)?;
    let mut report = Report::check(done(&mut tool(workspace, "tsc", &["--noEmit"]))?);
    report.add(&vitest(workspace, "vitest.config.ts", "", &[])?);
    Ok(report)
}

/// Compiles the TypeScript of another folder, with the compiler of this package.
pub fn types(workspace: &Workspace, project: &str) -> Result<Report> {
    if !has_npm() {
        return Ok(Report::skip(&format!("the types in {project}"), NO_NODE));
    }
    install(workspace)?;
    let project = workspace.root.join(project);
    Ok(Report::check(done(tool(workspace, "tsc", &["--project"]).arg(project))?))
}

/// Tests the package in Chromium and Firefox.
pub fn browsers_stage(workspace: &Workspace) -> Result<Report> {
    browsers(workspace, "", &[])
}

/// The same with many more rounds, deaths and crashes, and a tab that is hidden for ten minutes. It takes hours.
pub fn soak(workspace: &Workspace) -> Result<Report> {
    let many = [
        ("SOAK", "1"),
        ("CHROMIUM_ROUNDS", "10000"),
        ("FIREFOX_ROUNDS", "10000"),
        ("PATIENT_ROUNDS", "300"),
        ("DEATHS", "200"),
        CRASHES,
        ("DOCUMENT_ROUNDS", "100"),
        WORK,
    ];
    browsers(workspace, "", &many)
}

/// Three tabs of the guide's page in each browser, for five minutes: closed, crashed, reloaded, frozen, taken over at random. A
/// failure prints its seed; `SEED=…` in the environment repeats it.
pub fn soak_work(workspace: &Workspace) -> Result<Report> {
    browsers(workspace, "tests/browsers/work.spec.ts", &[("SOAK", "1"), WORK])
}

/// Renderers that are killed in the middle of a save.
pub fn soak_autosave(workspace: &Workspace) -> Result<Report> {
    let crashes = std::env::var("CRASHES").unwrap_or_else(|_| CRASHES.1.into());
    browsers(workspace, "tests/browsers/autosave.spec.ts", &[(CRASHES.0, &crashes)])
}

/// How many renderers are killed.
const CRASHES: (&str, &str) = ("CRASHES", "1000");

/// How long three tabs work.
const WORK: (&str, &str) = ("WORK_SECONDS", "300");

/// Runs the tests in browsers whose files have this in their names.
fn browsers(workspace: &Workspace, files: &str, settings: &[(&str, &str)]) -> Result<Report> {
    if !has_npm() {
        return Ok(Report::skip("browsers", NO_NODE));
    }
    let mut report = services::ensure_browsers()?;
    build(workspace)?;
    // The page at `/` is tested with the server that it is part of.
    let program = tools::leasehold(workspace)?.display().to_string();
    let settings = [settings, &[("LEASEHOLD_PROGRAM", program.as_str())]].concat();
    report.add(&vitest(workspace, "vitest.browsers.config.ts", files, &settings)?);
    Ok(report)
}

/// Builds the package.
pub fn build(workspace: &Workspace) -> Result<()> {
    install(workspace)?;
    write_border(workspace)?;
    compile_rules(workspace)?;
    must(&mut npm(workspace, &["run", "--silent", "build"]))
}

/// Writes the TypeScript side of the border to WebAssembly, as Rust declares it. A test of that crate fails if what is in the
/// repository is another.
fn write_border(workspace: &Workspace) -> Result<()> {
    write_declarations(workspace, "lock", "src/border.ts")?;
    write_declarations(workspace, "autosave", "src/autosave/border.ts")?;
    write_declarations(workspace, "documents", "src/documents/border.ts")
}

fn write_declarations(workspace: &Workspace, of: &str, path: &str) -> Result<()> {
    let mut print =
        workspace.cargo(&["run", "--quiet", "-p", "leasehold-wasm", "--example", "border", "--", of]);
    let printed = print.stderr(Stdio::inherit()).output()?;
    if !printed.status.success() {
        bail!("`{}` failed", tools::shown(&print));
    }
    let path = folder(workspace).join(path);
    if std::fs::read(&path).is_ok_and(|known| known == printed.stdout) {
        return Ok(());
    }
    Ok(std::fs::write(path, printed.stdout)?)
}

/// Compiles the rules to WebAssembly and puts them where the package expects them.
fn compile_rules(workspace: &Workspace) -> Result<()> {
    tools::ensure_target(workspace, TARGET)?;
    compile_module(workspace, &[], "leasehold.wasm")?;
    compile_module(workspace, &["--features", "autosave"], "leasehold-autosave.wasm")?;
    compile_module(workspace, &["--features", "documents"], "leasehold-documents.wasm")
}

fn compile_module(workspace: &Workspace, features: &[&str], name: &str) -> Result<()> {
    let mut build =
        workspace.cargo(&["build", "-p", "leasehold-wasm", "--target", TARGET, "--profile", "wasm"]);
    build.args(features);
    must(build.env("RUSTFLAGS", format!("{COMPRESS} {}", without_machine_paths())))?;
    let built = workspace.target_directory()?.join(TARGET).join("wasm/leasehold_wasm.wasm");
    let dist = folder(workspace).join("dist");
    std::fs::create_dir_all(&dist)?;
    std::fs::copy(&built, dist.join(name)).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(())
}

/// Keeps the folders of this machine out of what is published: a panic names the file that it happened in.
fn without_machine_paths() -> String {
    let home = |name: &str, folder: &str| {
        std::env::var(name).ok().or_else(|| Some(format!("{}/{folder}", std::env::var("HOME").ok()?)))
    };
    let folders = [home("CARGO_HOME", ".cargo"), home("RUSTUP_HOME", ".rustup")];
    let flags = folders.into_iter().flatten().map(|folder| format!("--remap-path-prefix={folder}=rust"));
    flags.collect::<Vec<_>>().join(" ")
}

/// A script of the package, which runs in node.
pub fn script(workspace: &Workspace, name: &str) -> Command {
    let mut node = Command::new("node");
    node.arg(format!("scripts/{name}")).current_dir(folder(workspace));
    node
}

fn install(workspace: &Workspace) -> Result<()> {
    let wanted = std::fs::read(folder(workspace).join("package-lock.json"))?;
    let mark = folder(workspace).join(INSTALLED);
    if std::fs::read(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    // `npm install` would write the lock file again, in its own way.
    must(&mut npm(workspace, &["ci", "--no-audit", "--no-fund", "--ignore-scripts"]))?;
    Ok(std::fs::write(mark, wanted)?)
}

/// Runs the tests of one configuration, and counts them.
fn vitest(workspace: &Workspace, config: &str, files: &str, settings: &[(&str, &str)]) -> Result<Report> {
    let results = workspace.target_directory()?.join("vitest.json");
    // What an earlier run left must not count for this one.
    let _ = std::fs::remove_file(&results);
    let output = format!("--outputFile.json={}", results.display());
    let args = ["run", "--config", config, "--reporter=verbose", "--reporter=json", &output];
    let args = args.into_iter().chain(Some(files).filter(|files| !files.is_empty())).collect::<Vec<_>>();
    let ok = done(tool(workspace, "vitest", &args).envs(settings.iter().copied()))?;
    let results = std::fs::read_to_string(&results).unwrap_or_default();
    Ok(count(&serde_json::from_str(&results).unwrap_or_default(), ok))
}

/// Counts vitest's results. A run that fails without a failed test, or without any test, is one failure.
fn count(results: &Value, ok: bool) -> Report {
    let number = |name: &str| results.get(name).and_then(Value::as_u64).unwrap_or_default();
    let (passed, failed) = (number("numPassedTests"), number("numFailedTests"));
    let wrong = u64::from(!ok || results.is_null());
    Report { passed, failed: failed.max(wrong), skipped: skipped(results) }
}

fn skipped(results: &Value) -> Vec<Skip> {
    let list =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let tests = list(results, "testResults").into_iter().flat_map(|file| list(&file, "assertionResults"));
    let is_skipped = |test: &Value| {
        test.get("status")
            .and_then(Value::as_str)
            .is_some_and(|status| ["pending", "skipped"].contains(&status))
    };
    let name = |test: &Value| test.get("fullName").and_then(Value::as_str).unwrap_or("a test").to_string();
    let why = "the browser that it needs is not here";
    tests.filter(is_skipped).map(|test| Skip { what: name(&test), why: why.into() }).collect()
}

fn has_npm() -> bool {
    tools::works(Command::new("npm").arg("--version"))
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.root.join("web")
}

fn npm(workspace: &Workspace, args: &[&str]) -> Command {
    in_web(workspace, Path::new("npm"), args)
}

fn tool(workspace: &Workspace, name: &str, args: &[&str]) -> Command {
    in_web(workspace, &folder(workspace).join("node_modules/.bin").join(name), args)
}

fn in_web(workspace: &Workspace, program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    // Colours would be noise in a log.
    command.args(args).current_dir(folder(workspace)).env("NO_COLOR", "1");
    command
}

/// Runs a command; shows its output when it fails.
fn done(command: &mut Command) -> Result<bool> {
    let finished = tools::watch(command)?;
    if !finished.ok {
        println!("{}", finished.output);
    }
    Ok(finished.ok)
}

fn must(command: &mut Command) -> Result<()> {
    if !done(command)? {
        bail!("`{}` failed", tools::shown(command));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(results: &str, ok: bool) -> String {
        count(&serde_json::from_str(results).unwrap_or_default(), ok).to_string()
    }

    #[test]
    fn the_tests_of_a_run_are_counted() {
        let results = r#"{"numPassedTests": 3, "numFailedTests": 1, "testResults": [{"assertionResults": [
            {"fullName": "firefox a", "status": "pending"}, {"fullName": "b", "status": "passed"}]}]}"#;
        assert_eq!(counted(results, false), "3 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_run_that_fails_without_a_failed_test_is_a_failure() {
        assert_eq!(
            counted(r#"{"numPassedTests": 3, "numFailedTests": 0}"#, false),
            "3 passed, 1 failed, 0 skipped"
        );
        assert_eq!(counted("", true), "0 passed, 1 failed, 0 skipped");
    }
}
