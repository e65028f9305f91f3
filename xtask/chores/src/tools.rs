//! What several chores need: the workspace, commands with live progress, and the parts of a toolchain.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

/// How long a command may be silent in a log before a line of its output is shown as a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);

/// The folder with the root `Cargo.toml`; every command runs there.
pub struct Workspace {
    /// Where it is.
    pub root: PathBuf,
}

/// How a command ended.
pub struct Finished {
    /// Whether its exit code was 0.
    pub ok: bool,
    /// Everything it printed, on both streams, in order.
    pub output: String,
}

impl Workspace {
    /// Asks cargo at run time. A path fixed at compile time would be another clone's if clones share a target folder.
    pub fn find() -> Result<Self> {
        let mut command = Command::new(cargo_program());
        command.args(["locate-project", "--workspace", "--message-format", "plain"]);
        let manifest = PathBuf::from(stdout_of(&mut command)?.trim());
        let root = manifest.parent().context("cargo named a manifest without a folder")?;
        Ok(Self { root: root.to_path_buf() })
    }

    /// A cargo command, not yet started.
    pub fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo_program());
        command.args(args).current_dir(&self.root);
        // What cargo told this program about itself would make some build scripts run again, and once more without it.
        let told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        std::env::vars().filter(|(name, _)| told(name)).for_each(|(name, _)| {
            command.env_remove(name);
        });
        command
    }

    /// Where cargo puts what it builds, whatever `CARGO_TARGET_DIR` or a configuration file says.
    pub fn target_directory(&self) -> Result<PathBuf> {
        let metadata = stdout_of(&mut self.cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
        let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
        let folder = metadata.get("target_directory").and_then(|value| value.as_str());
        folder.map(PathBuf::from).context("cargo metadata names no target_directory")
    }

    /// The files that are committed or would be: what git tracks, and what it does not ignore.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut command = Command::new("git");
        command.args(["ls-files", "-co", "--exclude-standard", "-z"]).current_dir(&self.root);
        let mut files: Vec<String> =
            stdout_of(&mut command)?.split_terminator('\0').map(String::from).collect();
        files.sort();
        Ok(files)
    }
}

/// The cargo that started this program, so that a chosen toolchain stays chosen.
fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// Runs a command to its end with live progress.
pub fn watch(command: &mut Command) -> Result<Finished> {
    watch_as(&shown(command), command)
}

/// The same, under another title than the command as one would type it.
pub fn watch_as(title: &str, command: &mut Command) -> Result<Finished> {
    let mut progress = Progress::start(title);
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start `{title}`"))?;
    // The command still owns two ends for writing: with them open, the reader would wait for ever.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let output = read_lines(reader, &mut progress)?;
    let ok = child.wait()?.success();
    progress.end();
    Ok(Finished { ok, output })
}

fn read_lines(reader: impl Read, progress: &mut Progress) -> Result<String> {
    let mut reader = BufReader::new(reader);
    let (mut output, mut line) = (String::new(), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        progress.line(text.trim());
        output.push_str(&text);
        line.clear();
    }
    Ok(output)
}

/// What a command prints, without progress; an error when it fails.
fn stdout_of(command: &mut Command) -> Result<String> {
    let title = shown(command);
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{title}`"))?;
    if !output.status.success() {
        bail!("`{title}` failed");
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{title}` printed something other than UTF-8"))
}

/// Whether a command can be started and succeeds.
pub fn works(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A command as one would type it.
pub fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or_default().to_string();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(name).chain(args).collect::<Vec<_>>().join(" ")
}

/// Builds the program `leasehold`, and says where it is.
pub fn leasehold(workspace: &Workspace) -> Result<PathBuf> {
    built_with_tests(workspace, "cli", "leasehold")
}

/// Builds a program exactly as the tests of the workspace do, and says where it is. A plain `cargo build` would choose
/// other features of the dependencies, and build most of them a second time.
pub fn built_with_tests(workspace: &Workspace, test: &str, program: &str) -> Result<PathBuf> {
    let built = watch(&mut workspace.cargo(&["test", "--workspace", "--no-run", "--test", test]))?;
    anyhow::ensure!(built.ok, "{}", built.output);
    let program = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    Ok(workspace.target_directory()?.join("debug").join(program))
}

/// Makes sure that `cargo <subcommand>` works, which comes with a component of the toolchain.
pub fn ensure_component(workspace: &Workspace, subcommand: &str, component: &str) -> Result<()> {
    if works(&mut workspace.cargo(&[subcommand, "--version"])) {
        return Ok(());
    }
    rustup(workspace, &["component", "add", component])
}

/// Makes sure that code can be compiled for a target.
pub fn ensure_target(workspace: &Workspace, target: &str) -> Result<()> {
    let mut command = Command::new("rustc");
    command.args(["--print", "target-libdir", "--target", target]).current_dir(&workspace.root);
    let folder = stdout_of(&mut command)?;
    if PathBuf::from(folder.trim()).is_dir() {
        return Ok(());
    }
    rustup(workspace, &["target", "add", target])
}

fn rustup(workspace: &Workspace, args: &[&str]) -> Result<()> {
    let mut command = Command::new("rustup");
    let finished = watch(command.args(args).current_dir(&workspace.root))?;
    if !finished.ok {
        bail!("`{}` failed:\n{}", shown(&command), finished.output);
    }
    Ok(())
}

/// Shows that a command is alive: a spinner on a terminal, now and then a line elsewhere.
struct Progress {
    spinner: Option<ProgressBar>,
    last_shown: Instant,
}

impl Progress {
    fn start(title: &str) -> Self {
        let spinner = std::io::stderr().is_terminal().then(|| spinner(title));
        if spinner.is_none() {
            println!("   $ {title}");
        }
        Self { spinner, last_shown: Instant::now() }
    }

    fn line(&mut self, line: &str) {
        match &self.spinner {
            Some(spinner) => spinner.set_message(line.to_string()),
            None if is_milestone(line) || self.last_shown.elapsed() > SIGN_OF_LIFE => self.print(line),
            None => {}
        }
    }

    fn print(&mut self, line: &str) {
        println!("     {line}");
        self.last_shown = Instant::now();
    }

    fn end(self) {
        if let Some(spinner) = self.spinner {
            spinner.finish_and_clear();
        }
    }
}

fn spinner(title: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_prefix(title.to_string());
    if let Ok(style) = ProgressStyle::with_template("   {spinner} {elapsed} {prefix}: {wide_msg}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// A program of a Python package, in a folder of its own in the target folder, installed if it is not yet; `None` when it
/// cannot be had. `probe` are arguments with which it ends well.
pub fn python_program(
    workspace: &Workspace,
    package: &str,
    program: &str,
    probe: &[&str],
) -> Result<Option<PathBuf>> {
    let folder = workspace.target_directory()?.join("tools").join(package);
    let program = folder.join("bin").join(program);
    if works(Command::new(&program).args(probe)) {
        return Ok(Some(program));
    }
    let mut make = Command::new("python3");
    let mut fill = Command::new(folder.join("bin/pip"));
    let made = is_done(make.args(["-m", "venv", "--clear"]).arg(&folder));
    Ok((made && is_done(fill.args(["install", "--quiet", package]))).then_some(program))
}

/// A folder of its own in the target folder whose `node_modules` has an npm package, installed if it is not yet; `None` when it
/// cannot be had.
pub fn npm_package(workspace: &Workspace, package: &str) -> Result<Option<PathBuf>> {
    let folder = workspace.target_directory()?.join("tools").join(package.replace('/', "-"));
    // npm writes this file last.
    if folder.join("node_modules/.package-lock.json").exists() {
        return Ok(Some(folder));
    }
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("package.json"), "{ \"private\": true }\n")?;
    let mut install = Command::new("npm");
    install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", package]).current_dir(&folder);
    Ok(is_done(&mut install).then_some(folder))
}

/// A subcommand of cargo, in the same way; cargo builds it, which takes minutes the first time.
pub fn built_program(workspace: &Workspace, name: &str, version: &str) -> Result<Option<PathBuf>> {
    let folder = workspace.target_directory()?.join("tools").join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if works(Command::new(&program).args([name.trim_start_matches("cargo-"), "--version"])) {
        return Ok(Some(program));
    }
    let mut install =
        workspace.cargo(&["install", "--debug", "--locked", "--version", version, name, "--root"]);
    // Built quickly rather than to be quick, and in a folder that goes away: it has nothing in common with what we build.
    Ok(is_done(install.arg(&folder).env_remove("CARGO_TARGET_DIR")).then_some(program))
}

/// Does a step of an installation, and shows what it said if that did not work.
fn is_done(step: &mut Command) -> bool {
    let Ok(finished) = watch(step) else { return false };
    if !finished.ok {
        println!("{}", finished.output);
    }
    finished.ok
}

/// The lines of cargo's output that say how far it has come.
fn is_milestone(line: &str) -> bool {
    ["Running ", "Doc-tests ", "test result: "].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_command_gives_both_streams_and_how_it_ended() {
        let finished = watch(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert!(!finished.ok);
        assert_eq!(finished.output, "out\nerr\n");
    }

    #[test]
    fn a_command_that_does_not_exist_is_named() {
        let error = watch(&mut Command::new("no-such-program")).err().unwrap();
        assert_eq!(error.to_string(), "cannot start `no-such-program`");
        assert!(!works(&mut Command::new("no-such-program")));
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        assert_eq!(
            shown(Command::new("/usr/bin/cargo").args(["test", "--workspace"])),
            "cargo test --workspace"
        );
    }

    #[test]
    fn milestones_are_shown_in_a_log_and_noise_is_not() {
        assert!(is_milestone("Running unittests src/lib.rs (target/debug/deps/leasehold_core-1)"));
        assert!(is_milestone("test result: ok. 3 passed; 0 failed"));
        assert!(!is_milestone("test lease::tests::racing ... ok"));
    }
}
