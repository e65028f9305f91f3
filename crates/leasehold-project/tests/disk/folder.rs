//! One folder: what is written where, what is understood, and what is not followed.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use leasehold_core::lease::Proof;
use leasehold_project::{Fence, Folder, ProjectFolder, Version, version_of};
use leasehold_project_rules::guarded::{Action, After, Grant, Loss, Outcome};
use leasehold_project_rules::{IoKind, record};
use tempfile::TempDir;

use crate::child::{self, Child};
use crate::racing::{bid, leave_a_stale_lock};

fn folder() -> (TempDir, ProjectFolder) {
    let place = tempfile::tempdir().unwrap();
    let folder = ProjectFolder::open(place.path()).unwrap();
    (place, folder)
}

fn acquire(folder: &mut ProjectFolder, lease_id: u128) -> Outcome {
    folder.guarded(Action::Acquire(bid(lease_id))).unwrap().outcome
}

pub fn must_acquire(folder: &mut ProjectFolder, lease_id: u128) -> Grant {
    match acquire(folder, lease_id) {
        Outcome::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

pub fn claim(grant: &Grant) -> Proof {
    Proof { lease_id: grant.lease_id, fence: grant.fence }
}

pub fn names(place: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_lock_is_taken_kept_out_of_and_given_back() {
    let (place, mut one) = folder();
    let mut other = ProjectFolder::open(place.path()).unwrap();
    let grant = must_acquire(&mut one, 1);
    let held = format!(".lock.held.{}", grant.fence);
    assert_eq!(names(place.path()), [".lock", ".lock.guard", held.as_str()]);
    assert!(matches!(acquire(&mut other, 2), Outcome::Held(_)));
    let renewed = one.guarded(Action::Renew { claim: claim(&grant), ttl: grant.ttl }).unwrap();
    assert!(matches!(renewed.outcome, Outcome::Renewed(_)));
    let released = one.guarded(Action::Release(claim(&grant))).unwrap();
    assert_eq!(released.outcome, Outcome::Released);
    assert_eq!(names(place.path()), [".lock.guard"]);
    let next = must_acquire(&mut other, 2);
    assert!(next.fence > grant.fence && next.after.is_none());
}

#[test]
fn a_dead_holder_is_noticed_at_once() {
    let (place, mut other) = folder();
    let mut holder = Child::start("folder::child_that_holds");
    holder.order(place.path().to_str().unwrap());
    let fence: u64 = holder.told().parse().unwrap();
    assert!(matches!(acquire(&mut other, 2), Outcome::Held(_)));
    holder.kill();
    let grant = must_acquire(&mut other, 2);
    assert_eq!(grant.after, Some(After::Dead));
    assert!(grant.fence.get() > fence);
    // What it left behind is swept.
    assert_eq!(names(place.path()), [".lock", ".lock.guard", &format!(".lock.held.{}", grant.fence)]);
}

#[test]
fn child_that_holds() {
    if !child::is_child() {
        return;
    }
    let mut held = Vec::new();
    for path in child::orders() {
        let mut folder = ProjectFolder::open(path).unwrap();
        child::tell(&must_acquire(&mut folder, 1).fence.to_string());
        held.push(folder);
    }
}

/// The wall clock.
fn millis() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()
}

#[test]
fn fences_grow_whatever_happens_to_the_files() {
    let (place, mut folder) = folder();
    let mut last = 0;
    for (number, harm) in [".lock", ".lock.guard", ".lock", "both", "damage"].iter().enumerate() {
        let grant = must_acquire(&mut folder, 10 + number as u128);
        assert!(grant.fence.get() > last, "{} after {last}, before harm to {harm}", grant.fence);
        last = grant.fence.get();
        let file = |name: &str| place.path().join(name);
        // Where no file tells the last fence, the next one begins at the wall clock: it must be past it.
        while u128::from(last) >= millis() {
            std::thread::yield_now();
        }
        match *harm {
            "both" => [".lock", ".lock.guard"].iter().for_each(|name| fs::remove_file(file(name)).unwrap()),
            "damage" => fs::write(file(".lock.guard"), "\u{0}garbage").unwrap(),
            name => fs::remove_file(file(name)).unwrap(),
        }
        folder = ProjectFolder::open(place.path()).unwrap();
        if harm.contains("guard") || *harm == "damage" {
            assert_eq!(
                folder.guarded(Action::Release(claim(&grant))).unwrap().outcome,
                Outcome::Released,
                "{harm}"
            );
        }
    }
}

#[test]
fn a_stopped_holder_cannot_save_after_its_time() {
    let (place, mut one) = folder();
    let grant = must_acquire(&mut one, 1);
    let saved = one.guarded_save(claim(&grant), "plan.json", b"first", &Version::NO_FILE).unwrap();
    assert_eq!(saved, Outcome::Saved);
    // Two minutes pass on every clock: its record is as old as that, and another program comes.
    leave_a_stale_lock(place.path());
    let mut other = ProjectFolder::open(place.path()).unwrap();
    let next = must_acquire(&mut other, 2);
    let refused = one.guarded_save(claim(&grant), "plan.json", b"late", &version_of(b"first")).unwrap();
    assert_eq!(refused, Outcome::Lost(Loss::Replaced));
    assert_eq!(fs::read(place.path().join("plan.json")).unwrap(), b"first");
    assert_eq!(
        other.guarded_save(claim(&next), "plan.json", b"second", &version_of(b"first")).unwrap(),
        Outcome::Saved
    );
    assert_eq!(fs::read(place.path().join("plan.json")).unwrap(), b"second");
}

#[test]
fn no_link_is_followed() {
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("precious");
    for name in [".lock", ".lock.guard", ".lock.tmp"] {
        let (place, mut folder) = folder();
        fs::write(&target, "precious").unwrap();
        symlink(&target, place.path().join(name)).unwrap();
        match (name, folder.guarded(Action::Acquire(bid(1)))) {
            // The guard cannot be taken at all, and is never bypassed.
            (".lock.guard", Err(error)) => {
                assert_eq!(error.kind, IoKind::Open);
                assert!(error.said.contains("symbolic link"), "{}", error.said);
            }
            (".lock", Ok(verdict)) => {
                assert!(matches!(verdict.outcome, Outcome::Unreadable { .. }), "{:?}", verdict.outcome);
            }
            (".lock.tmp", Ok(verdict)) => assert!(matches!(verdict.outcome, Outcome::Granted(_))),
            (name, other) => panic!("{name}: {other:?}"),
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious", "{name} was followed");
    }
}

// A hard link at `.lock.guard` to any file of the user had the fence written into that file.
#[test]
fn no_hard_link_is_written_through() {
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("precious");
    for name in [".lock", ".lock.guard", ".lock.tmp", ".lock.held.42", "plan.json"] {
        let (place, mut folder) = folder();
        fs::write(&target, "precious").unwrap();
        if name != ".lock.guard" {
            fs::write(place.path().join(".lock.guard"), record::guard_text(41)).unwrap();
        }
        fs::hard_link(&target, place.path().join(name)).unwrap();
        match (name, folder.guarded(Action::Acquire(bid(1)))) {
            (".lock.guard", Err(error)) => {
                assert_eq!(error.kind, IoKind::Open);
                assert!(error.said.contains("hard link"), "{}", error.said);
            }
            // Somebody's, who is not known, until it is old.
            (".lock", Ok(verdict)) => assert!(matches!(verdict.outcome, Outcome::Held(_))),
            (_, Ok(verdict)) => assert!(matches!(verdict.outcome, Outcome::Granted(_))),
            (name, other) => panic!("{name}: {other:?}"),
        }
        let lock = fs::read_to_string(place.path().join(".lock")).unwrap_or_default();
        assert_eq!(
            lock.contains("\"held\":false"),
            name == ".lock.held.42",
            "the proof of life is not that file"
        );
        folder.save("plan.json", b"saved", None).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious", "{name} was written through");
    }
}

// A folder with the name `.lock` was called free once it was old, and could not be locked for ever; every try left
// another held file.
#[test]
fn a_folder_in_the_way_is_told_and_nothing_is_left_behind() {
    let (place, mut folder) = folder();
    let way = place.path().join(".lock");
    fs::create_dir(&way).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(120);
    File::open(&way).unwrap().set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    for action in [Action::Look, Action::Acquire(bid(1)), Action::Acquire(bid(2))] {
        let error = folder.guarded(action).unwrap_err();
        assert_eq!(
            (error.kind, error.said.as_str()),
            (IoKind::Open, ".lock is a folder, not a file; move it away")
        );
    }
    assert_eq!(names(place.path()), [".lock", ".lock.guard"]);
    fs::remove_dir(&way).unwrap();
    must_acquire(&mut folder, 3);
}

// On a disk on which `.lock` could not be written every attempt left a held file; a program that wanted to resume left
// three each second.
#[test]
fn attempts_that_fail_leave_no_held_files() {
    let (place, mut folder) = folder();
    fs::create_dir(place.path().join(".lock.tmp")).unwrap();
    for attempt in 1..4 {
        assert_eq!(folder.guarded(Action::Acquire(bid(attempt))).unwrap_err().kind, IoKind::Write);
    }
    assert_eq!(names(place.path()), [".lock.guard", ".lock.tmp"]);
}

#[test]
fn a_save_that_fails_leaves_nothing_behind() {
    let (place, folder) = folder();
    fs::create_dir_all(place.path().join("pages/1.json")).unwrap();
    assert!(folder.save("pages/1.json", b"a folder has this name", None).is_err());
    assert_eq!(names(&place.path().join("pages")), ["1.json"]);
}

// A guard with the largest fence there is (damaged, or forged) was called free, and could not be locked for ever.
#[test]
fn a_folder_without_fences_left_is_not_called_free() {
    let (place, mut folder) = folder();
    fs::write(place.path().join(".lock.guard"), record::guard_text(Fence::MAX.get())).unwrap();
    assert_eq!(folder.look().unwrap(), Outcome::FencesExhausted);
    assert_eq!(acquire(&mut folder, 1), Outcome::FencesExhausted);
    // What people are told to do.
    fs::remove_file(place.path().join(".lock.guard")).unwrap();
    assert!(must_acquire(&mut folder, 1).fence < Fence::MAX);
}

#[test]
fn folders_of_others_and_folders_that_are_not_there_are_refused() {
    let place = tempfile::tempdir().unwrap();
    for (name, expected) in [("collector", "never inside"), ("logs", "never inside")] {
        fs::create_dir(place.path().join(name)).unwrap();
        let error = ProjectFolder::open(place.path().join(name)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // Also behind a link with a harmless name.
    symlink(place.path().join("collector"), place.path().join("project")).unwrap();
    assert!(ProjectFolder::open(place.path().join("project")).is_err());
    let error = ProjectFolder::open(place.path().join("nowhere")).unwrap_err().to_string();
    assert!(error.contains("name a folder that exists"), "{error}");
    fs::write(place.path().join("file"), "").unwrap();
    assert!(ProjectFolder::open(place.path().join("file")).is_err());
}

#[test]
fn a_pipe_in_the_place_of_a_file_holds_nobody_up() {
    let (place, mut folder) = folder();
    let made = std::process::Command::new("mkfifo").arg(place.path().join(".lock")).status().unwrap();
    assert!(made.success());
    let outcome = acquire(&mut folder, 1);
    assert!(matches!(outcome, Outcome::Unreadable { .. }), "{outcome:?}");
}
