//! Running the real binary, and a real server.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// What a run of the binary came to.
pub struct Run {
    pub code: i32,
    /// With long numbers as N.
    pub out: String,
    pub err: String,
    /// As it was.
    pub raw: String,
}

impl Run {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.raw).unwrap_or_else(|error| panic!("{error}: {}{}", self.raw, self.err))
    }

    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let raw = text(&output.stdout);
        let err = normalised(&text(&output.stderr));
        Self { code: output.status.code().unwrap(), out: normalised(&raw), err, raw }
    }
}

/// The binary, in a world where nobody has set anything.
pub fn command(folder: &Path, args: &[&str]) -> Command {
    // Whoever starts the tests may ignore signals (`nohup` does), and what is ignored stays so in every child.
    let mut command = Command::new("env");
    command
        .arg("--default-signal")
        .arg(env!("CARGO_BIN_EXE_leasehold"))
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null());
    let ours =
        |name: &str| name.starts_with("LEASEHOLD_") || name == "RUST_LOG" || name.starts_with("CLICOLOR");
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command
}

pub fn run(folder: &TempDir, args: &[&str]) -> Run {
    Run::of(&mut command(folder.path(), args))
}

/// Long numbers (fences, sizes, times of day) become N, process ids too, spaces at line ends go.
pub fn normalised(text: &str) -> String {
    let mut shown = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        shown.push_str(if digits.len() > 3 { "N" } else { &digits });
        digits.clear();
        shown.push(c);
    }
    shown.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// A process that holds a lease, once it has said so.
pub struct Holder(pub Child);

impl Holder {
    pub fn start(folder: &TempDir, args: &[&str]) -> Self {
        Self::of(&mut command(folder.path(), args))
    }

    pub fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("acquired"), "{line}");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Sends a signal, such as `TERM`.
pub fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

/// The exit code of a process that is about to end.
pub fn code_of(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process whose standard output is read line by line.
pub struct Talker {
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talker {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line; waits for it.
    pub fn line(&mut self) -> String {
        self.lines.next().expect("it has ended").unwrap()
    }

    pub fn json(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A server that listens.
pub struct Server {
    pub talker: Talker,
    pub started: Value,
    folder: PathBuf,
}

/// Two made-up users, and nothing that lasts.
pub const DEV: &[&str] = &["--dev", "--store", "memory:"];

impl Server {
    /// Starts one on a free port, and waits until it listens. Its log goes to `server.log`.
    pub fn start(folder: &TempDir, args: &[&str]) -> Self {
        Self::of(folder, &mut Self::command(folder, args))
    }

    pub fn command(folder: &TempDir, args: &[&str]) -> Command {
        let mut all = vec!["serve", "--json"];
        if !args.contains(&"--listen") {
            all.extend(["--listen", "127.0.0.1:0"]);
        }
        all.extend(args);
        command(folder.path(), &all)
    }

    pub fn of(folder: &TempDir, command: &mut Command) -> Self {
        let log = std::fs::File::create(folder.path().join("server.log")).unwrap();
        let mut talker = Talker::start(command.stderr(log));
        let started = match talker.lines.next() {
            Some(line) => serde_json::from_str(&line.unwrap()).unwrap(),
            None => panic!("{}", std::fs::read_to_string(folder.path().join("server.log")).unwrap()),
        };
        Self { talker, started, folder: folder.path().to_owned() }
    }

    pub fn url(&self) -> &str {
        self.started["url"].as_str().unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap()
    }

    pub fn token(&self, user: &str) -> Option<&str> {
        self.started["tokens"][user].as_str()
    }

    /// The key with which Pusher clients connect, on a server that has made-up users.
    pub fn pusher_key(&self) -> &str {
        self.started["pusher"]["key"].as_str().unwrap()
    }

    /// A command as this user, or without a token on a server that has no users.
    pub fn command_as(&self, user: &str, args: &[&str]) -> Command {
        let mut command = command(&self.folder, args);
        command.env("LEASEHOLD_URL", self.url());
        if let Some(token) = self.token(user) {
            command.env("LEASEHOLD_TOKEN", token);
        }
        command
    }

    pub fn run_as(&self, user: &str, args: &[&str]) -> Run {
        Run::of(&mut self.command_as(user, args))
    }

    /// Asks it to end, and waits until it has.
    pub fn terminate(&mut self) -> Option<i32> {
        signal(&self.talker.child, "TERM");
        code_of(&mut self.talker.child)
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        end(&mut self.talker.child);
    }
}

/// Compares with a file beside the tests; `LEASEHOLD_SNAPSHOTS=write` writes it.
pub fn snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/snapshots").join(name);
    if std::env::var("LEASEHOLD_SNAPSHOTS").is_ok_and(|how| how == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{name} is not what it was; if that is meant, run again with \
        LEASEHOLD_SNAPSHOTS=write and look at the difference\n{text}"
    );
}

/// Says what is not tested here, and why. Not through `eprintln!`, which the test runner would keep to itself.
pub fn skipped(what: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {what}\n").as_bytes()).unwrap();
}
