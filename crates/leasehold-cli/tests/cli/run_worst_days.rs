//! `leasehold run` on its worst days: two of its processes killed or stopped at once, the whole group stopped and continued,
//! commands whose children leave the group, and processes with another clock. Each test opens with what was seen before.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::run::{
    SHORT_TTL, Supervised, alive, children_of, first_line, in_a_file, is_running, overlap, read, send,
    wait_for, wait_until_gone, worker, worker_by, working,
};
use crate::support::{Run, code_of, command, signal, skipped};

/// The guardian and the second guardian of a supervisor, in the order in which they were started.
fn guardians_of(supervisor: &Child) -> (i32, i32) {
    wait_for("both guardians", || match children_of(supervisor)[..] {
        [guardian, second, ..] => Some((guardian, second)),
        _ => None,
    })
}

/// A worker under a lease in a file, and another one that waits for the lease.
fn one_and_two(
    folder: &TempDir,
    start: impl Fn(&mut Command, &str) -> Supervised,
) -> (Supervised, Supervised) {
    let one = start(&mut in_a_file(folder, &["--grace", "200ms"]), "one");
    working(folder, "one");
    let two = worker(&mut in_a_file(folder, &["--wait", "5m"]), "two");
    (one, two)
}

// Two of three.

/// The supervisor was stopped and the guardian killed. The kernel killed the command; what that had started wrote for 3 s past
/// its lease.
#[test]
fn no_two_commands_at_once_when_the_supervisor_is_stopped_and_the_guardian_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = one_and_two(&folder, worker);
    let pid = alive(&folder, "one").unwrap().pid;
    let (guardian, _) = guardians_of(&one.0);
    signal(&one.0, "STOP");
    send(guardian, Signal::KILL);
    // At once, and not when the lease runs out.
    wait_until_gone(pid);
    assert_eq!(overlap(&folder, "supervisor stopped, guardian killed", &mut two), 0.0);
    signal(&one.0, "CONT");
    assert_eq!(code_of(&mut one.0), Some(76));
}

/// Nobody was left to end the group when the guardian was stopped and the supervisor killed.
#[test]
fn no_two_commands_at_once_when_the_supervisor_is_killed_and_the_guardian_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = one_and_two(&folder, worker);
    let pid = alive(&folder, "one").unwrap().pid;
    let (guardian, second) = guardians_of(&one.0);
    // The supervisor would continue it.
    signal(&one.0, "STOP");
    send(guardian, Signal::STOP);
    one.0.kill().unwrap();
    for gone in [pid, guardian, second] {
        wait_until_gone(gone);
    }
    assert_eq!(overlap(&folder, "supervisor killed, guardian stopped", &mut two), 0.0);
}

/// With both of them stopped, nothing ended the command: `docs/run.md` named it as a limit.
#[test]
fn no_two_commands_at_once_when_supervisor_and_guardian_are_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = one_and_two(&folder, worker);
    let (guardian, _) = guardians_of(&one.0);
    signal(&one.0, "STOP");
    send(guardian, Signal::STOP);
    assert_eq!(overlap(&folder, "supervisor and guardian stopped", &mut two), 0.0);
    signal(&one.0, "CONT");
    assert_eq!(code_of(&mut one.0), Some(76));
}

/// The second guardian is there for the first: without it, the command does not go on either.
#[test]
fn the_command_ends_when_the_second_guardian_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = worker(&mut in_a_file(&folder, &[]), "one");
    let pid = working(&folder, "one").pid;
    send(guardians_of(&one.0).1, Signal::KILL);
    assert_eq!(code_of(&mut one.0), Some(137));
    assert!(!is_running(pid));
}

// Stopped and continued.

/// The guardian was stopped, and the command ended: the supervisor renewed the lease without end, and the exit code was lost.
#[test]
fn the_exit_code_goes_through_when_the_guardian_was_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo ready > ready; until [ -e go ]; do sleep 0.02; done; exit 7";
    for stopped in [0, 1] {
        let mut one = in_a_file(&folder, &["--", "sh", "-c", script]).stderr(Stdio::null()).spawn().unwrap();
        first_line(&folder.path().join("ready"));
        let (guardian, second) = guardians_of(&one);
        send([guardian, second][stopped], Signal::STOP);
        std::fs::write(folder.path().join("go"), "").unwrap();
        assert_eq!(code_of(&mut one), Some(7));
        for file in ["ready", "go"] {
            std::fs::remove_file(folder.path().join(file)).unwrap();
        }
    }
}

/// The whole group was stopped and continued: the guardian went by the deadline that it had known before, although the
/// supervisor had renewed the lease all the while, and killed a healthy command.
#[test]
fn a_group_that_was_stopped_and_continued_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, _two) = one_and_two(&folder, worker);
    let group = Pid::from_raw(guardians_of(&one.0).0).unwrap();
    kill_process_group(group, Signal::STOP).unwrap();
    // Real time is the subject: more than the lease lasts without a renewal.
    std::thread::sleep(SHORT_TTL * 2);
    let stopped = alive(&folder, "one").unwrap();
    assert!(is_running(stopped.pid) && alive(&folder, "two").is_none(), "the lease is kept meanwhile");
    kill_process_group(group, Signal::CONT).unwrap();
    wait_for("that it goes on", || alive(&folder, "one").filter(|alive| alive.looks > stopped.looks + 20));
    std::fs::write(folder.path().join("stop"), "").unwrap();
    assert_eq!(code_of(&mut one.0), Some(0), "{}", read(&folder.path().join("one.err")));
}

/// A machine that is suspended stops everything at once, and nobody on it can end the command in time. Here all that belongs to the run
/// is stopped, and another run gets the lease, as one on another machine would. (That clocks run on while a machine sleeps
/// is the kernel's part: nothing here can put a machine to sleep.)
#[test]
fn a_run_that_was_stopped_as_a_whole_beyond_its_lease_is_ended_when_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = one_and_two(&folder, worker);
    let pid = alive(&folder, "one").unwrap().pid;
    let (guardian, second) = guardians_of(&one.0);
    let group = Pid::from_raw(guardian).unwrap();
    signal(&one.0, "STOP");
    send(second, Signal::STOP);
    kill_process_group(group, Signal::STOP).unwrap();
    working(&folder, "two");
    let stopped = alive(&folder, "one").unwrap();
    // What is continued first ends the rest.
    let _ = kill_process_group(group, Signal::CONT);
    let _ = kill_process(Pid::from_raw(second).unwrap(), Signal::CONT);
    signal(&one.0, "CONT");
    wait_until_gone(pid);
    assert_eq!(code_of(&mut one.0), Some(76), "{}", read(&folder.path().join("one.err")));
    let after = alive(&folder, "one").unwrap().looks - stopped.looks;
    println!("the command looked {after} more times");
    std::fs::write(folder.path().join("stop"), "").unwrap();
    assert_eq!(
        code_of(&mut two.0),
        Some(0),
        "the lease stayed the other's: {}",
        read(&folder.path().join("two.err"))
    );
}

// What leaves the group.

/// Starts a worker that has left the group of the command, which waits for it.
fn outside(run: &mut Command, name: &str) -> Supervised {
    worker_by(
        run,
        name,
        "trap '' TERM; setsid \"$0\" --exact run::a_worker_for_the_tests_below > /dev/null & wait",
    )
}

/// A grandchild in a session of its own (`setsid`) was in no process group that `run` killed: it overlapped the next run for 499 of
/// 500 ms.
#[test]
fn no_two_at_once_when_a_child_has_left_the_group_and_the_supervisor_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = one_and_two(&folder, outside);
    one.0.kill().unwrap();
    assert_eq!(overlap(&folder, "outside the group, supervisor killed", &mut two), 0.0);
}

/// The same when the supervisor is stopped.
#[test]
fn no_two_at_once_when_a_child_has_left_the_group_and_the_supervisor_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (one, mut two) = one_and_two(&folder, outside);
    signal(&one.0, "STOP");
    assert_eq!(overlap(&folder, "outside the group, supervisor stopped", &mut two), 0.0);
}

/// The same when the guardian is killed.
#[test]
fn no_two_at_once_when_a_child_has_left_the_group_and_the_guardian_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = one_and_two(&folder, outside);
    send(guardians_of(&one.0).0, Signal::KILL);
    assert_eq!(code_of(&mut one.0), Some(137));
    assert_eq!(overlap(&folder, "outside the group, guardian killed", &mut two), 0.0);
}

/// The same when the command ends and leaves a daemon behind: the lease was released while that went on.
#[test]
fn a_daemon_ends_with_the_command_that_left_it_behind() {
    let folder = tempfile::tempdir().unwrap();
    // Its parent is gone as well: nothing but the subreaper knows whose it was.
    let daemon = "trap '' TERM; (setsid \"$0\" --exact run::a_worker_for_the_tests_below > /dev/null &)
        until [ -s alive ]; do sleep 0.02; done; exit 3";
    let mut one = worker_by(&mut in_a_file(&folder, &["--grace", "200ms"]), "one", daemon);
    assert_eq!(code_of(&mut one.0), Some(3), "{}", read(&folder.path().join("one.err")));
    assert!(!is_running(alive(&folder, "one").unwrap().pid));
    let polite = "(setsid sh -c 'trap \"echo asked > asked; exit\" TERM; echo ready > ready; while :; do sleep 0.02; done' &)
        until [ -s ready ]; do sleep 0.02; done; exit 4";
    let args = ["--grace", "1m", "--", "sh", "-c", polite];
    let ran = Run::of(&mut in_a_file(&folder, &args));
    assert_eq!((ran.code, read(&folder.path().join("asked")).as_str()), (4, "asked\n"), "{}", ran.err);
}

/// Not everything that is a child of the supervisor came of its command: a shell that becomes `leasehold run` may have started
/// something before.
#[test]
fn what_was_there_before_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_leasehold");
    let script =
        format!("sleep 1000 > /dev/null 2>&1 & echo $! > before; exec {binary} run run/x -- sh -c 'exit 5'");
    let ran = Run::of(
        Command::new("sh")
            .args(["-c", &script])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null()),
    );
    let before: i32 = first_line(Path::new(&folder.path().join("before"))).parse().unwrap();
    assert_eq!((ran.code, is_running(before)), (5, true), "{}", ran.err);
    send(before, Signal::KILL);
}

// Other clocks.

/// A command in a time namespace of its own, whose clock is an hour ahead; `None`, loudly, where that is not permitted.
fn an_hour_ahead(folder: &TempDir, args: &[&str]) -> Option<Run> {
    let may = Command::new("unshare").args(["-T", "--boottime", "3600", "true"]).output();
    if !may.is_ok_and(|tried| tried.status.success()) {
        skipped("processes in other time namespaces, because `unshare -T` is not permitted here");
        return None;
    }
    let run = command(folder.path(), args);
    let mut inside = Command::new("unshare");
    inside.args(["-T", "--boottime", "3600"]).arg(run.get_program()).args(run.get_args());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    Some(Run::of(inside.current_dir(folder.path()).stdin(Stdio::null())))
}

/// A process under `unshare -T --boottime 3600` took every lease in the file for expired, and so ran at the same time as the
/// holder. Then the file's clock stood still for the others until they had caught up: an hour in which nothing expired.
#[test]
fn a_process_in_another_time_namespace_goes_by_the_same_clock() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = worker(&mut in_a_file(&folder, &[]), "one");
    working(&folder, "one");
    let Some(refused) = an_hour_ahead(&folder, &["run", "run/x", "--", "touch", "ran"]) else { return };
    assert_eq!((refused.code, folder.path().join("ran").exists()), (75, false), "{}", refused.err);
    // It writes the file's clock, too.
    let other =
        an_hour_ahead(&folder, &["run", "run/other", "--ttl", "2s", "--", "sh", "-c", "sleep 3; exit 6"]);
    assert_eq!(other.unwrap().code, 6, "it keeps a lease of its own for longer than the TTL");
    // And for the others, leases still run out.
    one.0.kill().unwrap();
    let next = Run::of(&mut in_a_file(&folder, &["--wait", "20s", "--", "echo", "ran"]));
    assert_eq!((next.code, next.out.as_str()), (0, "ran"), "{}", next.err);
}

/// Without `/proc/sys` a process could not tell which start of the machine it was in: it left the file without a clock, and no
/// lease ever expired.
#[test]
fn a_file_is_not_shared_by_a_process_that_cannot_tell_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_leasehold");
    let may = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/proc/sys"]).output();
    if !may.is_ok_and(|tried| tried.status.success()) {
        return skipped(
            "a process without /proc/sys, because `unshare -m` and `mount` are not permitted here",
        );
    }
    let script = format!("mount -t tmpfs none /proc/sys && exec {binary} run x -- touch ran");
    let inside = |script: &str| {
        Run::of(Command::new("unshare").args(["-m", "sh", "-c", script]).current_dir(folder.path()))
    };
    for _ in 0..2 {
        let refused = inside(&script);
        let expected =
            "cannot be shared with other processes from here: /proc/sys/kernel/random/boot_id cannot be read";
        assert_eq!((refused.code, refused.err.contains(expected)), (1, true), "{}", refused.err);
        assert!(refused.err.contains("run it where /proc is mounted whole"), "{}", refused.err);
        // Also when the file is there.
        assert_eq!(Run::of(&mut in_a_file(&folder, &["--", "true"])).code, 0);
    }
    assert!(!folder.path().join("ran").exists());
}
