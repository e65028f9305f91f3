//! Builds the page at `/demo` while the server already answers. `cargo xtask serve` starts this program a second time and becomes the
//! server; the second one builds, and ends with the server. It never holds the server up: without Node.js, or if the build fails, the
//! server has no demo, and its page says why.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

/// The argument by which the second program knows what it is for.
pub const COMMAND: &str = "build-demo-beside";

/// What the page is built from, below the root of the repository.
const SOURCES: [&str; 7] = [
    "web/demo",
    "web/src",
    "web/scripts",
    "web/package-lock.json",
    "crates/leasehold-core/src",
    "crates/leasehold-project-rules/src",
    "crates/leasehold-wasm/src",
];

/// The file that is written last.
const BUILT: &str = "web/dist/demo/index.html";

/// How often it is looked whether the server is still there.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

/// Starts the second program, if the page is older than what it is built from. It writes its log into this folder.
pub fn build_beside_server(folder: &Path) -> io::Result<()> {
    if is_new(&root()) {
        return Ok(());
    }
    let mut builder = Command::new(std::env::current_exe()?);
    builder.args([COMMAND, &std::process::id().to_string()]).arg(folder.join("demo.log"));
    builder.stdin(Stdio::null()).stdout(Stdio::null());
    // A group of its own: Ctrl-C ends the server, and the group is ended after it as a whole.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut builder, 0);
    builder.spawn().map(drop)
}

/// The second program: builds the page for as long as the server lives.
pub fn run(server: &str, log: &Path) -> io::Result<ExitCode> {
    let file = File::create(log)?;
    let mut npm = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
    let version = npm.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        eprintln!("/demo is not built: there is no npm; install Node.js 20 or newer");
        return Ok(ExitCode::SUCCESS);
    }
    let mut build = crate::chores_command(&["web".into()]);
    build.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let ok = watch(build.spawn()?, server)?;
    if ok {
        eprintln!("/demo is built");
    } else {
        eprintln!("/demo could not be built: see {}", log.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the build. If the server ends first, so does everything in this program's group.
fn watch(mut build: Child, server: &str) -> io::Result<bool> {
    loop {
        if let Some(status) = build.try_wait()? {
            return Ok(status.success());
        }
        if has_ended(server) {
            let group = format!("-{}", std::process::id());
            Command::new("kill").args(["-TERM", "--", &group]).status()?;
        }
        thread::sleep(LOOKS_EVERY);
    }
}

/// Whether the server has ended. It is the parent of this program, whose parent is another one afterwards.
#[cfg(unix)]
fn has_ended(server: &str) -> bool {
    std::os::unix::process::parent_id().to_string() != server
}

#[cfg(not(unix))]
fn has_ended(_server: &str) -> bool {
    false
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Whether the page is newer than everything that it is built from.
fn is_new(root: &Path) -> bool {
    let built = newest(&root.join(BUILT));
    let changed = SOURCES.iter().filter_map(|source| newest(&root.join(source))).max();
    built.is_some() && built >= changed
}

/// When a file, or the last one in a folder, was changed.
fn newest(path: &Path) -> Option<SystemTime> {
    if !path.is_dir() {
        return path.metadata().and_then(|data| data.modified()).ok();
    }
    std::fs::read_dir(path).ok()?.flatten().filter_map(|entry| newest(&entry.path())).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_absent_or_older_than_a_source_is_built() {
        let root = std::env::temp_dir().join(format!("leasehold-demo-{}", std::process::id()));
        let write = |name: &str, seconds: u64| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = File::create(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        write("web/src/elements/words.ts", 1_000);
        assert!(!is_new(&root));
        write(BUILT, 1_001);
        assert!(is_new(&root));
        write("crates/leasehold-core/src/lease.rs", 1_002);
        assert!(!is_new(&root));
        std::fs::remove_dir_all(root).unwrap();
    }
}
