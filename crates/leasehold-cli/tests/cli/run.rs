//! `leasehold run`: the command's own life (exit code, signals, input, environment), and that no two commands run at the
//! same time, whatever happens to the server, the network, the supervisor or the guardian.
//!
//! The commands that must not meet write down when they are alive, every few milliseconds on one clock. They do not care
//! for SIGTERM, and they are children of the command that was started, so that only the end of the whole group ends them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Holder, Run, Server, code_of, command, run, signal, skipped};

/// How long anything may take before it counts as never.
pub const LONG: Duration = Duration::from_secs(60);

/// Waits for something to happen.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < LONG, "not seen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A line of a file, once it is there and whole.
pub fn first_line(path: &Path) -> String {
    wait_for(&format!("a line in {}", path.display()), || {
        read(path).split_once('\n').map(|(line, _)| line.to_owned())
    })
}

pub fn is_running(pid: i32) -> bool {
    let status = read(Path::new(&format!("/proc/{pid}/status")));
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
}

pub fn wait_until_gone(pid: i32) {
    wait_for(&format!("the end of {pid}"), || (!is_running(pid)).then_some(()));
}

pub fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The guardian of a supervisor.
pub fn guardian_of(supervisor: &Child) -> i32 {
    wait_for("the guardian", || children_of(supervisor).first().copied())
}

/// The children of a process, in the order in which they were started.
pub fn children_of(process: &Child) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", process.id())) else { return Vec::new() };
    let children = tasks.flatten().map(|task| read(&task.path().join("children"))).collect::<String>();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

// The life of one command.

#[test]
fn the_exit_code_of_the_command_goes_through() {
    let folder = tempfile::tempdir().unwrap();
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
    {
        let ran = run(&folder, &["run", "run/x", "--", "sh", "-c", script]);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (code, "", ""), "{script}");
    }
    let free = run(&folder, &["try", "run/x", "--hold", "0s"]);
    assert_eq!(free.code, 0, "released: {}", free.out);
}

#[test]
fn a_command_that_cannot_be_run_is_told_as_shells_do() {
    let folder = tempfile::tempdir().unwrap();
    let missing = run(&folder, &["run", "run/x", "--", "no-such-command"]);
    assert_eq!(
        (missing.code, missing.err.contains("cannot run no-such-command")),
        (127, true),
        "{}",
        missing.err
    );
    std::fs::write(folder.path().join("text"), "no program").unwrap();
    let text = run(&folder, &["run", "run/x", "--", "./text"]);
    assert_eq!((text.code, text.err.contains("cannot run ./text")), (126, true), "{}", text.err);
    assert_eq!(run(&folder, &["run", "run/x"]).code, 2, "without a command");
    assert_eq!(run(&folder, &["run-part", "guardian", "--", "true"]).code, 1, "not by hand");
}

#[test]
fn standard_input_and_output_are_the_commands_own() {
    let folder = tempfile::tempdir().unwrap();
    let script = "cat; echo to-stderr >&2";
    let mut child = command(folder.path(), &["run", "run/x", "-v", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"hello\n");
    let err = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = err.lines().collect();
    assert!(lines[0].starts_with("leasehold: run/x is ours, as leasehold-"), "{err}");
    assert!(lines[1].starts_with("leasehold: the command runs as process "), "{err}");
    assert_eq!(lines[2..], ["to-stderr", "leasehold: the command ended with 0"]);
}

#[test]
fn the_command_inherits_no_more_files_than_without_us() {
    let folder = tempfile::tempdir().unwrap();
    let list = ["sh", "-c", "exec ls /proc/self/fd"];
    let with = run(&folder, &[&["run", "run/x", "--"][..], &list].concat());
    let without = Run::of(Command::new(list[0]).args(&list[1..]).stdin(Stdio::null()));
    assert_eq!(with.raw, without.raw);
}

#[test]
fn the_command_knows_its_key_its_fence_and_its_first_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let script = "printf '%s %s %s' $LEASEHOLD_KEY $LEASEHOLD_FENCE $LEASEHOLD_DEADLINE";
    let before = jiff::Timestamp::now();
    let ran = run(&folder, &["run", "run/x", "--ttl", "20s", "--json", "--", "sh", "-c", script]);
    let after = jiff::Timestamp::now();
    let [key, fence, deadline] = ran.raw.split(' ').collect::<Vec<_>>()[..] else { panic!("{}", ran.raw) };
    assert_eq!(key, "run/x");
    let fence: u64 = fence.parse().unwrap();
    let deadline: jiff::Timestamp = deadline.parse().unwrap();
    // 20 s less a tenth, counted from when it was asked for.
    let usable = Duration::from_secs(18) - Duration::from_millis(2);
    assert!(before + usable <= deadline && deadline <= after + Duration::from_secs(18), "{deadline}");
    let err = Run::of(&mut command(folder.path(), &["run", "run/x", "--json", "--", "true"])).err;
    let events: Vec<Value> =
        err.replace(":N", ":7").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["acquired", "started", "ended"], "{err}");
    assert!(fence > 1_000 && events[2]["code"] == 0, "{err}");
}

#[test]
fn it_skips_when_somebody_else_has_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let _anna = Holder::start(&folder, &["try", "run/x", "--owner", "anna", "--json"]);
    let skipped = run(&folder, &["run", "run/x", "--", "touch", "ran"]);
    assert_eq!((skipped.code, skipped.out.as_str()), (75, ""));
    assert!(
        skipped.err.starts_with("leasehold: run/x is held by anna (fence N), for another 2"),
        "{}",
        skipped.err
    );
    let json = Run::of(&mut command(folder.path(), &["run", "run/x", "--json", "--", "touch", "ran"]));
    assert_eq!((json.code, json.raw.as_str()), (75, ""));
    assert!(
        json.err.contains("\"event\":\"held\"") && json.err.contains("\"owner\":\"anna\""),
        "{}",
        json.err
    );
    let quiet = run(&folder, &["run", "run/x", "--quiet", "--", "touch", "ran"]);
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (75, "", ""));
    assert!(!folder.path().join("ran").exists());
}

#[test]
fn it_waits_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let anna = Holder::start(&folder, &["try", "run/x", "--owner", "anna", "--json", "--hold", "300ms"]);
    let waited = run(&folder, &["run", "run/x", "--owner", "ben", "--wait", "1m", "--", "echo", "ran"]);
    assert_eq!((waited.code, waited.out.as_str()), (0, "ran"), "{}", waited.err);
    drop(anna);
    let _cora = Holder::start(&folder, &["try", "run/x", "--owner", "cora", "--json"]);
    let start = Instant::now();
    let gave_up = run(&folder, &["run", "run/x", "--wait", "300ms", "--", "echo", "ran"]);
    assert_eq!((gave_up.code, gave_up.out.as_str()), (75, ""), "{}", gave_up.err);
    assert!(start.elapsed() >= Duration::from_millis(300) && gave_up.err.contains("cora"), "{}", gave_up.err);
}

#[test]
fn a_signal_ends_the_wait() {
    let folder = tempfile::tempdir().unwrap();
    let _anna = Holder::start(&folder, &["try", "run/x", "--owner", "anna", "--json"]);
    let mut waiting =
        command(folder.path(), &["run", "run/x", "--wait", "1h", "--", "touch", "ran"]).spawn().unwrap();
    // It listens when it catches the signal; before that, the signal would end it without a word.
    let status = PathBuf::from(format!("/proc/{}/status", waiting.id()));
    wait_for("a handler for SIGTERM", || catches(&read(&status), Signal::TERM).then_some(()));
    signal(&waiting, "TERM");
    assert_eq!(code_of(&mut waiting), Some(143));
    assert!(!folder.path().join("ran").exists());
}

fn catches(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn signals_go_through_to_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    let script = "for s in HUP INT QUIT USR1 USR2 WINCH; do trap \"echo $s >> said\" $s; done
        trap 'echo TERM >> said; exit 9' TERM; echo ready > ready
        while :; do sleep 0.02; done";
    let mut child = command(folder.path(), &["run", "run/x", "--", "sh", "-c", script]).spawn().unwrap();
    first_line(&folder.path().join("ready"));
    for (number, name) in ["HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "TERM"].into_iter().enumerate() {
        signal(&child, name);
        wait_for(name, || (read(&said).lines().nth(number) == Some(name)).then_some(()));
    }
    assert_eq!(code_of(&mut child), Some(9));
    assert_eq!(read(&said).lines().count(), 7, "each of them once: {}", read(&said));
}

#[test]
fn what_was_ignored_before_stays_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "trap '' HUP; exec {} run run/x -- grep SigIgn /proc/self/status",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let ran = Run::of(Command::new("sh").args(["-c", &script]).current_dir(folder.path()));
    let mask = u64::from_str_radix(ran.raw.split_whitespace().nth(1).unwrap(), 16).unwrap();
    assert_eq!(mask & 1, 1, "as with nohup: {}{}", ran.raw, ran.err);
    let plain = run(&folder, &["run", "run/x", "--", "grep", "SigIgn", "/proc/self/status"]);
    let mask = u64::from_str_radix(plain.raw.split_whitespace().nth(1).unwrap(), 16).unwrap();
    let ours = [Signal::HUP, Signal::INT, Signal::TERM, Signal::PIPE, Signal::TSTP, Signal::TTIN];
    assert!(ours.iter().all(|signal| mask >> (signal.as_raw() - 1) & 1 == 0), "{mask:x}");
}

#[test]
fn a_command_that_reads_from_the_terminal_is_told_about() {
    let folder = tempfile::tempdir().unwrap();
    if Command::new("script").arg("--version").output().is_err() {
        return skipped("a command that reads from a terminal, because script(1) is not installed");
    }
    let line = format!("env --default-signal {} run run/x -- cat", env!("CARGO_BIN_EXE_leasehold"));
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command", &line, "typescript"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let shown = folder.path().join("typescript");
    wait_for("the warning", || read(&shown).contains("wants to use the terminal").then_some(()));
    // Ctrl-C ends it, stopped as it is.
    terminal.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    assert_eq!(code_of(&mut terminal), Some(130), "{}", read(&shown));
}

#[test]
fn what_the_command_leaves_behind_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        "sleep 1000 & echo $! > left; exit 3",
        "(trap '' TERM; echo started > ready; sleep 1000; sleep 1000) & echo $! > left; until [ -s ready ]; do :; done; exit 3",
        "(sh -c 'echo $$ > left; exec sleep 1000' &) ; until [ -s left ]; do :; done; exit 3",
    ];
    for script in cases {
        let ran = run(&folder, &["run", "run/x", "--grace", "200ms", "--", "sh", "-c", script]);
        assert_eq!(ran.code, 3, "{script}: {}", ran.err);
        let left: i32 = read(&folder.path().join("left")).trim().parse().unwrap();
        assert!(!is_running(left), "{script}: it is gone before the lease is released");
        std::fs::remove_file(folder.path().join("left")).unwrap();
    }
}

#[test]
fn what_the_command_leaves_behind_is_asked_before_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let left = "trap 'echo asked > asked; exit' TERM; echo ready > ready; while :; do sleep 0.02; done";
    let script = format!("({left}) & until [ -s ready ]; do sleep 0.02; done; exit 3");
    let ran = run(&folder, &["run", "run/x", "--grace", "1m", "--", "sh", "-c", &script]);
    assert_eq!((ran.code, read(&folder.path().join("asked")).as_str()), (3, "asked\n"), "{}", ran.err);
}

#[test]
fn files_and_servers_have_their_own_options() {
    let folder = tempfile::tempdir().unwrap();
    let memory = run(&folder, &["run", "run/x", "--store", "memory:", "--", "true"]);
    assert_eq!(
        (memory.code, memory.err.contains("is not visible to other processes")),
        (2, true),
        "{}",
        memory.err
    );
    let both =
        run(&folder, &["run", "run/x", "--url", "http://127.0.0.1:1", "--store", "x.db", "--", "true"]);
    assert_eq!(both.code, 2, "{}", both.err);
    let nobody = run(&folder, &["run", "doc/x", "--url", "http://127.0.0.1:1", "--", "true"]);
    assert_eq!(nobody.code, 69, "{}", nobody.err);
    let server = Server::start(&folder, &["--dev", "--store", "memory:"]);
    let wrong = server.run_as("user-a", &["run", "doc/x", "--owner", "me", "--", "true"]);
    assert_eq!((wrong.code, wrong.err.contains("leave out --owner")), (2, true), "{}", wrong.err);
    let door = server.run_as("user-a", &["run", "deploy/x", "--", "true"]);
    assert_eq!((door.code, door.err.contains("write `run/nightly`")), (1, true), "{}", door.err);
    let ran = server.run_as("user-a", &["run", "doc/minutes", "--", "sh", "-c", "exit 5"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert_eq!(server.run_as("user-a", &["ls"]).out, "✓ no leases");
    let own = server.run_as("user-a", &["run", "doc/minutes", "--store", "own.db", "--", "true"]);
    assert_eq!((own.code, folder.path().join("own.db").exists()), (0, true), "{}", own.err);
}

#[test]
fn it_is_tried_from_a_line_of_a_crontab() {
    let folder = tempfile::tempdir().unwrap();
    // As cron does it: by `sh -c`, with next to nothing in the environment, and without a terminal.
    let line = format!(
        "{} run run/nightly --store leases.db --quiet -- sh -c 'echo \"with fence $LEASEHOLD_FENCE\" >> nightly.log'",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let ran = Run::of(
        Command::new("/bin/sh")
            .args(["-c", &line])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir(folder.path()),
    );
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "cron sends no mail");
    assert!(first_line(&folder.path().join("nightly.log")).starts_with("with fence "));
}

// No two commands at once.

/// Says where a worker writes and under which name; this test binary, started with it, is one.
const WORKER: &str = "LEASEHOLD_TEST_WORKER";

/// Not a test: what the tests below run under a lease. It ends when somebody makes the file `stop`.
#[test]
fn a_worker_for_the_tests_below() {
    let Ok(name) = std::env::var(WORKER) else { return };
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open("alive").unwrap();
    let mut write = |what: &str| {
        log.write_all(format!("{name} {} {what} {}\n", std::process::id(), nanos()).as_bytes()).unwrap();
    };
    write("start");
    let start = Instant::now();
    while !Path::new("stop").exists() {
        // A test that failed made nothing, and waits for nobody.
        assert!(start.elapsed() < LONG * 3);
        write("alive");
        std::thread::sleep(Duration::from_millis(1));
    }
    write("end");
}

fn nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// Makes `run` start a worker, as a child of a child that ignores SIGTERM as it does itself.
pub fn worker(run: &mut Command, name: &str) -> Supervised {
    worker_by(run, name, "trap '' TERM; \"$0\" --exact run::a_worker_for_the_tests_below > /dev/null & wait")
}

/// The same by another script, whose `$0` is the worker.
pub fn worker_by(run: &mut Command, name: &str, script: &str) -> Supervised {
    let itself = std::env::current_exe().unwrap();
    let log = run.get_current_dir().unwrap().join(format!("{name}.err"));
    run.env(WORKER, name).args(["--", "sh", "-c", script]).arg(itself);
    Supervised(run.stderr(std::fs::File::create(log).unwrap()).spawn().unwrap())
}

/// A supervisor, whose group does not outlive the test.
pub struct Supervised(pub Child);

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// When a worker was alive.
#[derive(Clone, Copy, Debug)]
pub struct Alive {
    pub pid: i32,
    from: u64,
    to: u64,
    pub looks: usize,
    ended: bool,
}

pub fn alive(folder: &TempDir, name: &str) -> Option<Alive> {
    let log = read(&folder.path().join("alive"));
    let mut alive: Option<Alive> = None;
    // The last line may be half written.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        let [who, pid, what, at] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        if who == name {
            let (pid, at) = (pid.parse().unwrap(), at.parse().unwrap());
            let alive = alive.get_or_insert(Alive { pid, from: at, to: at, looks: 0, ended: false });
            assert_eq!(alive.pid, pid, "{name} ran once");
            (alive.to, alive.looks, alive.ended) = (at, alive.looks + 1, what == "end");
        }
    }
    alive
}

pub fn working(folder: &TempDir, name: &str) -> Alive {
    wait_for(&format!("{name} at work"), || alive(folder, name).filter(|alive| alive.looks > 20))
}

/// The milliseconds in which both workers were alive, once the second has worked to its end.
pub fn overlap(folder: &TempDir, case: &str, second: &mut Supervised) -> f64 {
    working(folder, "two");
    std::fs::write(folder.path().join("stop"), "").unwrap();
    assert_eq!(code_of(&mut second.0), Some(0), "{}", read(&folder.path().join("two.err")));
    let (one, two) = (alive(folder, "one").unwrap(), alive(folder, "two").unwrap());
    assert!(two.ended && !one.ended && one.from < two.from, "{case}: {one:?} {two:?}");
    assert!(!is_running(one.pid), "{case}");
    let between = (two.from as f64 - one.to as f64) / 1e6;
    let line = format!("{case}: the second began {between:.0} ms after the first was last alive\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    (-between).max(0.0)
}

/// How a run says that it lost the lease.
fn says_lost(folder: &TempDir, because: &str) {
    let said = read(&folder.path().join("one.err"));
    let lost = said.lines().filter(|line| line.contains("\"event\":\"lost\"")).collect::<Vec<_>>();
    assert_eq!((lost.len(), lost[0].contains(because)), (1, true), "{said}");
}

pub const SHORT_TTL: Duration = Duration::from_secs(2);

/// A server whose leases are short.
fn server(folder: &TempDir) -> Server {
    Server::start(folder, &["--dev", "--store", "memory:", "--ttl", "2s", "--heartbeat", "1s"])
}

const WITHOUT_WAITING: &[&str] = &["run", "doc/minutes", "--json"];
const WAITING: &[&str] = &["run", "doc/minutes", "--json", "--wait", "5m"];

#[test]
fn no_two_commands_at_once_when_the_server_is_stopped_for_longer_than_the_ttl() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let mut one = worker(&mut server.command_as("user-a", WITHOUT_WAITING), "one");
    working(&folder, "one");
    let mut two = worker(&mut server.command_as("user-b", WAITING), "two");
    signal(&server.talker.child, "STOP");
    let stopped = Instant::now();
    assert_eq!(code_of(&mut one.0), Some(76));
    says_lost(&folder, "not_renewed_in_time");
    std::thread::sleep((SHORT_TTL * 2).saturating_sub(stopped.elapsed()));
    assert!(alive(&folder, "two").is_none(), "nobody can have given it the lease");
    signal(&server.talker.child, "CONT");
    assert_eq!(overlap(&folder, "server stopped", &mut two), 0.0);
}

#[test]
fn no_two_commands_at_once_when_the_connection_is_cut() {
    for how in [CLOSES, SWALLOWS] {
        let folder = tempfile::tempdir().unwrap();
        let server = server(&folder);
        let proxy = Proxy::to(server.url().trim_start_matches("http://").parse().unwrap());
        let through = format!("http://{}", proxy.address);
        let mut one =
            worker(server.command_as("user-a", WITHOUT_WAITING).env("LEASEHOLD_URL", through), "one");
        working(&folder, "one");
        let mut two = worker(&mut server.command_as("user-b", WAITING), "two");
        proxy.how.store(how, Ordering::SeqCst);
        assert_eq!(overlap(&folder, "connection cut", &mut two), 0.0);
        assert_eq!(code_of(&mut one.0), Some(76));
        says_lost(&folder, "not_renewed_in_time");
    }
}

#[test]
fn no_two_commands_at_once_when_the_supervisor_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let mut one = worker(&mut server.command_as("user-a", WITHOUT_WAITING), "one");
    working(&folder, "one");
    let mut two = worker(&mut server.command_as("user-b", WAITING), "two");
    one.0.kill().unwrap();
    assert_eq!(overlap(&folder, "supervisor killed", &mut two), 0.0);
}

/// The commands of the tests that need no server.
pub fn in_a_file(folder: &TempDir, more: &[&str]) -> Command {
    command(folder.path(), &[&["run", "run/x", "--json", "--ttl", "2s"], more].concat())
}

#[test]
fn no_two_commands_at_once_when_the_supervisor_is_killed_on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = worker(&mut in_a_file(&folder, &[]), "one");
    let at_work = working(&folder, "one");
    let guardian = guardian_of(&one.0);
    let mut two = worker(&mut in_a_file(&folder, &["--wait", "5m"]), "two");
    one.0.kill().unwrap();
    wait_until_gone(at_work.pid);
    wait_until_gone(guardian);
    assert_eq!(overlap(&folder, "supervisor killed, file", &mut two), 0.0);
}

#[test]
fn no_two_commands_at_once_when_the_supervisor_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = worker(&mut in_a_file(&folder, &[]), "one");
    working(&folder, "one");
    let mut two = worker(&mut in_a_file(&folder, &["--wait", "5m"]), "two");
    signal(&one.0, "STOP");
    assert_eq!(overlap(&folder, "supervisor stopped", &mut two), 0.0);
    signal(&one.0, "CONT");
    assert_eq!(code_of(&mut one.0), Some(76));
    says_lost(&folder, "not_renewed_in_time");
}

#[test]
fn no_two_commands_at_once_when_the_guardian_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = worker(&mut command(folder.path(), &["run", "run/x", "--json"]), "one");
    working(&folder, "one");
    let waiting = &["run", "run/x", "--json", "--wait", "5m"];
    let mut two = worker(&mut command(folder.path(), waiting), "two");
    send(guardian_of(&one.0), Signal::KILL);
    assert_eq!(code_of(&mut one.0), Some(137));
    assert_eq!(overlap(&folder, "guardian killed", &mut two), 0.0);
    let said = read(&folder.path().join("one.err"));
    assert!(said.contains("the guardian of the command was killed"), "{said}");
}

#[test]
fn no_two_commands_at_once_when_the_guardian_is_stopped_and_the_server_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let mut one = worker(&mut server.command_as("user-a", WITHOUT_WAITING), "one");
    working(&folder, "one");
    let mut two = worker(&mut server.command_as("user-b", WAITING), "two");
    send(guardian_of(&one.0), Signal::STOP);
    signal(&server.talker.child, "STOP");
    assert_eq!(code_of(&mut one.0), Some(76));
    signal(&server.talker.child, "CONT");
    assert_eq!(overlap(&folder, "guardian and server stopped", &mut two), 0.0);
}

#[test]
fn the_command_dies_even_when_supervisor_and_guardian_are_killed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo $$ > pid; exec sleep 1000";
    let mut child = in_a_file(&folder, &["--", "sh", "-c", script]).stderr(Stdio::null()).spawn().unwrap();
    let pid = first_line(&folder.path().join("pid")).parse().unwrap();
    let guardian = guardian_of(&child);
    // Neither can do anything any more when the first of them dies.
    send(guardian, Signal::STOP);
    signal(&child, "STOP");
    send(guardian, Signal::KILL);
    wait_until_gone(pid);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_take_over_ends_the_command_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, &["--dev", "--store", "memory:"]);
    let mut one = worker(&mut server.command_as("user-a", WITHOUT_WAITING), "one");
    let at_work = working(&folder, "one");
    let taken = server.run_as("user-b", &["take-over", "minutes", "--reason", "it is noon", "--json"]);
    assert_eq!(taken.code, 0, "{}", taken.err);
    let before = nanos();
    // The TTL is 30 s: it did not wait for a heartbeat to find out, nor for a grace.
    assert_eq!(code_of(&mut one.0), Some(76));
    assert!(!is_running(at_work.pid));
    let late = alive(&folder, "one").unwrap().to.saturating_sub(before) / 1_000_000;
    assert!(late < 5_000, "{late} ms");
    says_lost(&folder, "taken_over");
}

#[test]
fn a_command_is_asked_before_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder, &["--dev", "--store", "memory:", "--ttl", "8s", "--heartbeat", "1s"]);
    let script = "trap 'echo asked > asked; exit 0' TERM; echo ready > ready; while :; do sleep 0.02; done";
    let mut one = server.command_as("user-a", WITHOUT_WAITING);
    let mut one = one.args(["--", "sh", "-c", script]).stderr(Stdio::null()).spawn().unwrap();
    first_line(&folder.path().join("ready"));
    signal(&server.talker.child, "STOP");
    assert_eq!(code_of(&mut one), Some(76), "not the command's own");
    assert_eq!(read(&folder.path().join("asked")), "asked\n");
    signal(&server.talker.child, "CONT");
}

#[test]
fn a_short_trouble_of_the_server_does_not_disturb_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        Server::start(&folder, &["--dev", "--store", "memory:", "--ttl", "20s", "--heartbeat", "1s"]);
    let proxy = Proxy::to(server.url().trim_start_matches("http://").parse().unwrap());
    let through = format!("http://{}", proxy.address);
    let mut one = worker(server.command_as("user-a", WITHOUT_WAITING).env("LEASEHOLD_URL", through), "one");
    working(&folder, "one");
    proxy.how.store(CLOSES, Ordering::SeqCst);
    let err = folder.path().join("one.err");
    wait_for("a renewal that failed", || read(&err).contains("a renewal failed").then_some(()));
    proxy.how.store(PASSES_ON, Ordering::SeqCst);
    let renewed = || {
        let listed = server.run_as("user-a", &["ls", "--json"]).json();
        listed[0]["expires_in_ms"].as_u64().filter(|left| *left > 19_000)
    };
    wait_for("a renewal that succeeded", renewed);
    std::fs::write(folder.path().join("stop"), "").unwrap();
    assert_eq!(code_of(&mut one.0), Some(0), "{}", read(&err));
    assert!(alive(&folder, "one").unwrap().ended);
}

/// A network between a client and a server.
struct Proxy {
    address: SocketAddr,
    how: Arc<AtomicU8>,
}

const PASSES_ON: u8 = 0;
/// Closes connections, and new ones at once.
const CLOSES: u8 = 1;
/// Leaves connections open and lets nothing through.
const SWALLOWS: u8 = 2;

impl Proxy {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let how = Arc::new(AtomicU8::new(PASSES_ON));
        let shared = how.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.load(Ordering::SeqCst) == CLOSES {
                    continue;
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let how = shared.clone();
                    std::thread::spawn(move || pass_on(from, to, &how));
                }
            }
        });
        Self { address, how }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, how: &AtomicU8) {
    from.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut buffer = [0; 16 * 1024];
    while how.load(Ordering::SeqCst) != CLOSES {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(_) if how.load(Ordering::SeqCst) == SWALLOWS => {}
            Ok(read) => {
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}
