//! Another process: this test program again, playing the part of one of its tests.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

pub struct Child {
    process: std::process::Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Set in a process that plays a part.
const PART: &str = "LEASEHOLD_TEST_PART";

/// Whether this process was started to play a part, and is not the test run itself.
pub fn is_child() -> bool {
    std::env::var_os(PART).is_some()
}

/// What the test that started this process says, line by line, until it is gone.
pub fn orders() -> impl Iterator<Item = String> {
    io::stdin().lines().map_while(Result::ok)
}

/// Says something to the test that started this process, on a line of its own: the test runner leaves one open.
pub fn tell(what: &str) {
    println!("\n> {what}");
}

impl Child {
    /// Starts the test `name` in a process of its own.
    pub fn start(name: &str) -> Self {
        Self::of(part(Command::new(std::env::current_exe().unwrap()), name))
    }

    /// The same as the user `nobody`, which only root can do.
    pub fn start_as_nobody(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skipped("what another user sees: only root can start a process of another user");
            return None;
        }
        // By this name, because nobody may not be able to reach the place where the program is.
        let mut command = part(Command::new("/proc/self/exe"), name);
        command.uid(NOBODY).gid(NOBODY);
        Some(Self::of(command))
    }

    fn of(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, lines }
    }

    pub fn order(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
    }

    /// Waits for what it says next.
    pub fn told(&mut self) -> String {
        let told = self.lines.find_map(|line| line.unwrap().strip_prefix("> ").map(str::to_owned));
        told.expect("the process ended without a word")
    }

    /// SIGKILL: it gets to do nothing any more.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The user without rights, and its group.
pub const NOBODY: u32 = 65_534;

fn part(mut command: Command, name: &str) -> Command {
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(PART, "1");
    command
}

/// Says what is not tested here, and why. Not through `eprintln!`, which the test runner would keep to itself.
pub fn skipped(what: &str) {
    io::stderr().write_all(format!("\nSKIPPED: {what}\n").as_bytes()).unwrap();
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
