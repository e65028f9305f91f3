//! Programs that fork while they have a project, and go on in both processes.

use std::path::Path;
use std::time::Duration;

use leasehold_project::testing::MockFolder;
use leasehold_project::{
    Clock, Driver, Folder, GuardTry, Options, Owner, Profile, Project, ProjectFolder, SystemClock,
};
use leasehold_project_rules::guarded::Probe;
use leasehold_project_rules::{Folder as Kind, Strategy, Surroundings};
use rustix::process::{Pid, Signal, kill_process};

use crate::child::{self, Child};
use crate::forks::{fork, fork_idle, has_succeeded};

/// One attempt, so that a test does not wait for the others.
fn once() -> Options {
    let mut options = Options { strategy: Strategy::FileLock, ..Options::of(Profile::Service) };
    options.retry.max_attempts = Some(1);
    options
}

fn end(process: &str) {
    let process = Pid::from_raw(process.parse().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}

#[test]
fn what_is_let_go_of_is_free_though_a_process_inherited_it() {
    // On a busy machine a guard was still locked after it had been let go of: closing a file unlocks it only when no other process
    // has it open, and a process that was just being started had inherited it, for the moment until its program began.
    let place = tempfile::tempdir().unwrap();
    let mut program = Child::start("forked::child_that_lets_go");
    program.order(place.path().to_str().unwrap());
    let idle = program.told();
    let mut folder = ProjectFolder::open(place.path()).unwrap();
    let fence = leasehold_core::Fence::new(7).unwrap();
    assert_eq!(folder.take_guard(false).unwrap(), GuardTry::Taken);
    assert_eq!(folder.probe(fence), Probe::Free);
    end(&idle);
}

#[test]
fn child_that_lets_go() {
    if !child::is_child() {
        return;
    }
    let mut orders = child::orders();
    let mut folder = ProjectFolder::open(orders.next().unwrap()).unwrap();
    let fence = leasehold_core::Fence::new(7).unwrap();
    assert_eq!(folder.take_guard(false).unwrap(), GuardTry::Taken);
    folder.open_held(fence).unwrap();
    let idle = fork_idle();
    folder.drop_guard();
    folder.drop_held(fence);
    child::tell(&idle.to_string());
    orders.next();
}

#[test]
fn a_forked_process_has_no_part_in_its_parents_project() {
    // A forked process that asked its copy of the project waited for ever: the thread that keeps the lease was not there. And when it
    // ended, what its parent had locked must not be unlocked.
    let place = tempfile::tempdir().unwrap();
    let mut program = Child::start("forked::child_that_edits_and_forks");
    program.order(place.path().to_str().unwrap());
    assert_eq!(program.told(), "the forked process was refused");
    assert_eq!(program.told(), "the parent saved");
}

#[test]
fn a_project_is_free_when_its_time_is_over_though_a_forked_process_lives() {
    // The parent is killed. The forked process keeps the held file open, so the holder does not look dead: time decides.
    let place = tempfile::tempdir().unwrap();
    let mut program = Child::start("forked::child_that_holds_and_forks");
    program.order(place.path().to_str().unwrap());
    let idle = program.told();
    program.kill();
    let clock = MockFolder::new().clock().clone();
    clock.set_wall(SystemClock.now().wall);
    let mut next = driver(place.path(), clock, 2);
    next.acquire(&once());
    assert!(next.lease().is_none(), "the forked process has the held file");
    next.clock().advance(Duration::from_secs(60));
    next.acquire(&once());
    assert!(next.lease().is_some(), "its time is over: {:?}", next.poll_event());
    end(&idle);
}

/// Without a thread of its own: no guarded section is under way while it forks.
fn driver<C: Clock>(place: &Path, clock: C, number: u8) -> Driver<ProjectFolder, C> {
    let owner = Owner::parse(&format!("program {number}")).unwrap();
    let surroundings =
        Surroundings { owner, root: "project".into(), folder: Kind::Guarded, seed: [number; 16] };
    Driver::new(ProjectFolder::open(place).unwrap(), clock, surroundings)
}

#[test]
fn child_that_holds_and_forks() {
    if !child::is_child() {
        return;
    }
    let mut orders = child::orders();
    let mut holder = driver(Path::new(&orders.next().unwrap()), SystemClock, 1);
    holder.acquire(&once());
    assert!(holder.lease().is_some());
    child::tell(&fork_idle().to_string());
    orders.next();
}

#[test]
fn child_that_edits_and_forks() {
    if !child::is_child() {
        return;
    }
    let mut orders = child::orders();
    let project = Project::open(orders.next().unwrap()).unwrap();
    let mut guard = Some(project.acquire(once()).unwrap());
    let forked = fork(|| {
        let guard = guard.take().unwrap();
        let is_refused = guard.save("plan.json", b"theirs").is_err() && project.look().is_err();
        drop(guard);
        is_refused
    });
    child::tell(if has_succeeded(forked) { "the forked process was refused" } else { "it was not refused" });
    guard.unwrap().save("plan.json", b"ours").unwrap();
    child::tell("the parent saved");
    orders.next();
}
