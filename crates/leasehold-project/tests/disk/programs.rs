//! Programs and their project: what `Project` promises, on a real disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use leasehold_project::testing::{FakeProject, MockFolder};
use leasehold_project::{
    Base, Cancel, Clock, Event, Fault, IoKind, Options, Outcome, Owner, Profile, Project, Reason,
    ReleaseReason, SaveError, State, SystemClock, version_of,
};

use crate::child::{self, Child};

/// One attempt, so that a test does not wait for the others.
fn once() -> Options {
    let mut options = Options::of(Profile::Autosave);
    options.retry.max_attempts = Some(1);
    options
}

#[test]
fn one_program_edits_and_the_others_know_it() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (Project::open(place.path()).unwrap(), Project::open(place.path()).unwrap());
    let events = other.subscribe();
    let guard = one.acquire(Options::default()).unwrap();
    assert!(guard.is_held());
    guard.save("plan.json", b"{\"rooms\": 3}").unwrap();
    assert!(matches!(other.look().unwrap(), Outcome::Held(held) if held.owner.as_str().contains("process")));
    let refused = other.acquire(once()).unwrap_err();
    assert_eq!((refused.fault, refused.code()), (Fault::Exhausted, "acquire-timeout"));
    assert_eq!((one.state(), other.state()), (State::Acquired, State::Readonly));
    let seen: Vec<Event> = events.try_iter().collect();
    assert!(seen.iter().any(|event| matches!(event, Event::ReadonlyEntered { .. })), "{seen:?}");
    guard.release().unwrap();
    let next = other.acquire(once()).unwrap();
    assert_eq!(other.read("plan.json").unwrap().unwrap().content, b"{\"rooms\": 3}");
    next.save("plan.json", b"{\"rooms\": 4}").unwrap();
    assert_eq!(fs::read(place.path().join("plan.json")).unwrap(), b"{\"rooms\": 4}");
}

#[test]
fn leases_and_events_name_their_folder() {
    let top = tempfile::tempdir().unwrap();
    for name in ["house", "garden"] {
        let place = top.path().join(name);
        fs::create_dir(&place).unwrap();
        let project = Project::open(&place).unwrap();
        let events = project.subscribe();
        let guard = project.acquire(once()).unwrap();
        assert_eq!(Path::new(&*guard.lease().root), project.path());
        let acquired = events.try_iter().find_map(|event| match event {
            Event::Acquired { lease, .. } => Some(lease),
            _ => None,
        });
        assert_eq!(acquired.as_ref(), Some(guard.lease()));
    }
}

/// Drafts were called by the time and by the hash of their content. Two files that could not be saved in the same millisecond,
/// with the same content, had one draft between them: that of the other file was overwritten.
#[test]
fn drafts_of_two_files_with_the_same_content_are_two() {
    let folder = MockFolder::new();
    let mut program = FakeProject::open(&folder, "one");
    for name in ["a.json", "b.json"] {
        program.save(name, b"{}").unwrap_err();
    }
    let drafts = program.drafts().unwrap();
    assert_eq!(
        drafts.iter().map(|draft| draft.path.as_str()).collect::<BTreeSet<_>>(),
        BTreeSet::from(["a.json", "b.json"])
    );
}

/// *AutoSave* 8: whatever the lock does, it touches its own files and the file that is saved, and nothing else. Among the others
/// are names that look like its own.
#[test]
fn only_the_files_of_the_lock_are_touched() {
    let top = tempfile::tempdir().unwrap();
    let others = [
        "notes.txt",
        ".lock",
        "collector/current.json",
        "workflow-cookbook/logs/today.log",
        "other/.lock",
        "other/.lock.guard",
        "other/.lock.held.1",
        "project/plan.json",
        "project/.lockfile",
        "project/lock",
        "project/.lock.bak",
        "project/.lock.heldover",
        "project/.lock.held",
        "project/.lock.saved",
        "project/notes/.lock",
        "project/notes/.lock.held.1",
        "project/notes/.lock.tmp",
    ];
    for name in others {
        let path = top.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    fs::create_dir(top.path().join("project/autosave")).unwrap();
    let before = everything_below(top.path());
    let root = top.path().join("project");
    let (one, two) = (Project::open(&root).unwrap(), Project::open(&root).unwrap());
    for name in ["current.json", "autosave/current.json"] {
        let guard = one.acquire(once()).unwrap();
        guard.save(name, b"{}").unwrap();
        guard.renew(None).unwrap();
        two.acquire(once()).unwrap_err();
        let taken = two.take_over(once(), None, Reason::default()).unwrap();
        guard.save(name, b"late").unwrap_err();
        drop(guard);
        taken.release().unwrap();
    }
    // What a crash leaves is swept: a held file, and its record.
    fs::write(root.join(".lock.held.7"), "").unwrap();
    one.acquire(once()).unwrap().release().unwrap();
    assert!(!root.join(".lock.held.7").exists());
    // What was refused is kept beside the project's files, until it is discarded.
    let drafts = one.drafts().unwrap();
    assert_eq!(drafts.len(), 2);
    drafts.iter().for_each(|draft| one.discard_draft(&draft.id).unwrap());
    let after = everything_below(top.path());
    let changed = |name: &&String| before.get(*name) != after.get(*name);
    let changed: BTreeSet<_> =
        before.keys().chain(after.keys()).filter(changed).map(String::as_str).collect();
    let expected = ["project/.lock.guard", "project/autosave/current.json", "project/current.json"];
    assert_eq!(changed, BTreeSet::from(expected));
}

/// Every file below a folder: its path, its content and when it was written.
fn everything_below(folder: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            let written = fs::metadata(&path).unwrap().modified().unwrap();
            found.insert(name, (fs::read(&path).unwrap(), written));
        }
    }
    found
}

#[test]
fn a_release_says_why() {
    let place = tempfile::tempdir().unwrap();
    let project = Project::open(place.path()).unwrap();
    let events = project.subscribe();
    project.acquire(once()).unwrap().release_because(ReleaseReason::Aborted).unwrap();
    drop(project.acquire(once()).unwrap());
    project.acquire(once()).unwrap().release().unwrap();
    let reasons: Vec<_> = events
        .try_iter()
        .filter_map(|event| match event {
            Event::ReleaseRequested { reason, .. } => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["aborted", "aborted", "completed"]);
}

#[test]
fn a_dropped_guard_gives_the_project_back() {
    let place = tempfile::tempdir().unwrap();
    let project = Project::open(place.path()).unwrap();
    drop(project.acquire(once()).unwrap());
    // The same thread gives it back and answers this.
    assert_eq!(project.look().unwrap(), Outcome::Free);
    let fence = project.with_lock(once(), |guard| guard.lease().fence).unwrap();
    assert!(project.acquire(once()).unwrap().lease().fence > fence);
}

#[test]
fn a_program_that_was_taken_from_cannot_save() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (Project::open(place.path()).unwrap(), Project::open(place.path()).unwrap());
    let guard = one.acquire(once()).unwrap();
    guard.save("plan.json", b"first").unwrap();
    let seen = Some(guard.lease().fence);
    let taken = other.take_over(once(), seen, Reason::parse("the other window hangs").unwrap()).unwrap();
    other.read("plan.json").unwrap();
    taken.save("plan.json", b"second").unwrap();
    assert!(matches!(guard.save("plan.json", b"late"), Err(SaveError::Lost)));
    assert!(!guard.is_held(), "and it knows it now");
    assert_eq!(drafts(&one), [("plan.json".to_owned(), b"late".to_vec())]);
    assert_eq!(fs::read(place.path().join("plan.json")).unwrap(), b"second");
}

// A program that waited for a project could not be talked out of it: Ctrl-C, or a closed window, had to wait too.
#[test]
fn an_acquire_that_waits_is_given_up_when_it_is_cancelled() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (Project::open(place.path()).unwrap(), Project::open(place.path()).unwrap());
    let guard = one.acquire(once()).unwrap();
    let mut patient = once();
    patient.retry.max_attempts = None;
    let (cancel, events) = (Cancel::new(), other.subscribe());
    let waiting = std::thread::spawn({
        let (other, cancel) = (other.clone(), cancel.clone());
        move || other.acquire_unless(patient, &cancel)
    });
    assert!(events.iter().any(|event| matches!(event, Event::Waiting { .. })));
    cancel.cancel();
    assert_eq!(waiting.join().unwrap().unwrap_err().fault, Fault::Aborted);
    guard.release().unwrap();
    // It stays cancelled; the project is as good as new.
    assert_eq!(other.acquire_unless(once(), &cancel).unwrap_err().fault, Fault::Aborted);
    other.acquire_unless(once(), &Cancel::new()).unwrap().release().unwrap();
}

#[test]
fn work_is_told_when_the_project_is_lost_and_its_answer_is_why() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (Project::open(place.path()).unwrap(), Project::open(place.path()).unwrap());
    let done = one.with_lock(once(), |guard| {
        let lost = guard.lost();
        assert!(lost.try_recv().is_err());
        let reason = Reason::parse("the other window hangs").unwrap();
        let taken = other.take_over(once(), Some(guard.lease().fence), reason).unwrap();
        assert!(matches!(guard.save("plan.json", b"late"), Err(SaveError::Lost)));
        assert_eq!(lost.recv().unwrap().fault, Fault::Stale);
        assert_eq!(guard.lost().recv().unwrap().fault, Fault::Expired, "who asks later hears it too");
        taken
    });
    assert_eq!(done.unwrap_err().fault, Fault::Stale);
}

// What the work had come to was thrown away when the release failed.
#[test]
fn a_release_that_fails_does_not_hide_what_the_work_came_to() {
    let place = tempfile::tempdir().unwrap();
    let project = Project::open(place.path()).unwrap();
    let events = project.subscribe();
    let done = project.with_lock(once(), |guard| {
        fs::remove_file(place.path().join(".lock")).unwrap();
        fs::create_dir(place.path().join(".lock")).unwrap();
        guard.lease().fence
    });
    assert!(done.is_ok(), "{done:?}");
    let failed = |event| matches!(event, Event::Error { error, .. } if error.fault == Fault::ReleaseFailed);
    assert!(events.try_iter().any(failed));
}

#[test]
fn a_lease_that_is_shared_is_given_back_by_the_last_or_by_one_for_all() {
    let place = tempfile::tempdir().unwrap();
    let project = Project::open(place.path()).unwrap();
    let shared = Options { reentrant: true, ..once() };
    let guards = [project.acquire(shared).unwrap(), project.acquire(shared).unwrap()];
    let lost = guards[0].lost();
    let [one, other] = guards;
    one.release().unwrap();
    assert!(other.is_held());
    let again = project.acquire(shared).unwrap();
    again.release_from_all().unwrap();
    assert!(!other.is_held());
    assert_eq!(project.look().unwrap(), Outcome::Free);
    assert!(lost.recv().is_err(), "it was given back, not lost");
}

// A program that was stopped in the middle of its guarded section (a debugger, a closed lid) made the others say that
// `.lock` could not be read and would be replaced, which was wrong twice.
#[test]
fn a_stuck_guard_is_told_as_such() {
    let place = tempfile::tempdir().unwrap();
    let project = Project::open(place.path()).unwrap();
    project.acquire(once()).unwrap().release().unwrap();
    let stopped = fs::File::open(place.path().join(".lock.guard")).unwrap();
    stopped.lock().unwrap();
    let error = project.acquire(once()).unwrap_err().to_string();
    assert!(error.contains("unavailable(guard-busy)"), "{error}");
    let error = project.look().unwrap_err();
    assert_eq!(error.kind, IoKind::GuardBusy);
    assert!(error.said.contains("let it go on, or end it"), "{}", error.said);
    drop(stopped);
    project.acquire(once()).unwrap().release().unwrap();
}

#[test]
fn nothing_is_saved_outside_of_the_project() {
    let place = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let project = Project::open(place.path()).unwrap();
    let guard = project.acquire(once()).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), place.path().join("link")).unwrap();
    for name in ["../x", "/etc/x", "link/x", ".lock", ".lock.guard", "", "a//b", "missing/x"] {
        assert!(matches!(guard.save(name, b"no"), Err(SaveError::Folder(_))), "{name:?}");
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    fs::create_dir(place.path().join("pages")).unwrap();
    guard.save("pages/1.json", b"yes").unwrap();
    assert_eq!(fs::read(place.path().join("pages/1.json")).unwrap(), b"yes");
    assert!(guard.is_held(), "a bad name is no reason to lose the project");
}

/// `browser.lock.json` is what the npm package wrote, at the beginning of 2026; the others are the shapes of
/// *Project lock service* 7 and *AutoSave* 3.3.
#[test]
fn a_browsers_lock_that_was_copied_to_disk_is_understood() {
    let now = Clock::now(&SystemClock).wall.as_millis();
    let iso = format!("{:.3}", jiff::Timestamp::from_millisecond(i64::try_from(now).unwrap()).unwrap());
    let written = include_str!("browser.lock.json")
        .replace("2026-01-01T00:00:00.000Z", &iso)
        .replace("1767225630000", &(now + 30_000).to_string());
    assert_ne!(written, include_str!("browser.lock.json"));
    let id = "22222222-2222-4222-8222-222222222222";
    let shapes = [
        (written, "2a6627a508c419fe71d6c11c2081f1c9"),
        (format!(r#"{{"leaseId":"{id}","owner":"tab","expiresAt":{}}}"#, now + 15_000), "tab"),
        (format!(r#"{{"leaseId":"{id}","updatedAt":"{iso}","ttlSeconds":30}}"#), "unknown"),
    ];
    for (shape, owner) in shapes {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(".lock"), &shape).unwrap();
        let project = Project::open(place.path()).unwrap();
        let seen = project.look().unwrap();
        assert!(matches!(&seen, Outcome::Held(held) if held.owner.as_str() == owner), "{shape}: {seen:?}");
        assert!(project.acquire(once()).is_err(), "{shape}");
    }
}

#[test]
fn a_browsers_lock_whose_time_is_over_is_taken() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join(".lock"), include_str!("browser.lock.json")).unwrap();
    let file = fs::File::options().write(true).open(place.path().join(".lock")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(120)).unwrap();
    let project = Project::open(place.path()).unwrap();
    assert_eq!(project.look().unwrap(), Outcome::Free);
    let guard = project.acquire(once()).unwrap();
    assert!(guard.lease().fence.get() > 1_767_225_600_001, "fences go on");
}

/// `desktop.lock.json` is what the tests of the browser package read: a program must write the like of it.
#[test]
fn what_a_program_writes_is_what_browsers_are_tested_with() {
    let place = tempfile::tempdir().unwrap();
    let guard = Project::open_as(place.path(), Owner::parse("anna").unwrap());
    let guard = guard.unwrap().acquire(once()).unwrap();
    let written = fs::read_to_string(place.path().join(".lock")).unwrap();
    assert_eq!(shape(&written), shape(include_str!("desktop.lock.json").trim_end()));
    assert!(written.contains(&guard.lease().lease_id.reveal()));
}

/// The text without what differs from run to run.
fn shape(text: &str) -> String {
    let mut last = ' ';
    let digits = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c });
    let id = text.find("leaseId").map_or(0, |at| at + 10);
    let digits = digits.enumerate().map(|(at, c)| if at >= id && at < id + 36 && c != '-' { '0' } else { c });
    digits.filter(|c| std::mem::replace(&mut last, *c) != '0' || *c != '0').collect()
}

#[test]
fn killed_holder_is_taken_over_from_in_well_under_a_second() {
    let place = tempfile::tempdir().unwrap();
    let mut holder = Child::start("programs::child_that_edits");
    holder.order(place.path().to_str().unwrap());
    assert_eq!(holder.told(), "editing");
    let project = Project::open(place.path()).unwrap();
    assert!(project.acquire(once()).is_err());
    holder.kill();
    let start = Instant::now();
    let guard = project.acquire(once()).unwrap();
    println!("taken over {:?} after the holder was killed", start.elapsed());
    project.read("plan.json").unwrap();
    guard.save("plan.json", b"mine").unwrap();
}

#[test]
fn child_that_edits() {
    if !child::is_child() {
        return;
    }
    let mut guards = Vec::new();
    for path in child::orders() {
        let guard = Project::open(path).unwrap().acquire(once()).unwrap();
        guard.save("plan.json", b"theirs").unwrap();
        guards.push(guard);
        child::tell("editing");
    }
}

fn drafts(project: &Project) -> Vec<(String, Vec<u8>)> {
    project.drafts().unwrap().into_iter().map(|draft| (draft.path, draft.content)).collect()
}

// A program had read the first version; another one saved the second and went away. The first program acquired the folder, and
// its next save put what it had made of the first version over the second.
#[test]
fn a_program_that_comes_back_does_not_overwrite_what_another_saved() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (Project::open(place.path()).unwrap(), Project::open(place.path()).unwrap());
    fs::write(place.path().join("plan.json"), "first").unwrap();
    one.read("plan.json").unwrap();
    other.read("plan.json").unwrap();
    let second = other.acquire(once()).unwrap();
    assert_eq!(second.save("plan.json", b"second").unwrap(), version_of(b"second"));
    second.release().unwrap();

    let events = one.subscribe();
    let guard = one.acquire(once()).unwrap();
    let changed = |event: Event| matches!(event, Event::Acquired { changed: true, .. });
    assert!(events.try_iter().any(changed), "an event says that the folder has changed");
    let refused = guard.save("plan.json", b"first!").unwrap_err();
    assert!(matches!(&refused, SaveError::StaleBase { path } if path == "plan.json"), "{refused}");
    assert_eq!(fs::read(place.path().join("plan.json")).unwrap(), b"second");
    assert!(guard.is_held(), "it can go on");
    // More of the same work takes the place of the draft. Any program sees it.
    assert!(guard.save("plan.json", b"first!!").is_err());
    assert_eq!(drafts(&other), [("plan.json".to_owned(), b"first!!".to_vec())]);

    assert_eq!(one.read("plan.json").unwrap().unwrap().content, b"second");
    guard.save("plan.json", b"third").unwrap();
    let draft = other.drafts().unwrap().remove(0);
    assert_eq!(draft.base, version_of(b"first"), "it is still offered");
    other.discard_draft(&draft.id).unwrap();
    assert!(drafts(&one).is_empty());
    assert!(other.discard_draft("plan.json").is_err(), "a file of the project is no draft");
}

// A save that could not be written was left to the program to try again, and the program ended before it did.
#[test]
fn what_could_not_be_written_is_kept_until_it_is_saved() {
    let place = tempfile::tempdir().unwrap();
    let project = Project::open(place.path()).unwrap();
    let guard = project.acquire(once()).unwrap();
    fs::create_dir(place.path().join("plan.json")).unwrap();
    let refused = guard.save_from("plan.json", b"work", Base::Overwrite).unwrap_err();
    assert!(matches!(refused, SaveError::Folder(_)), "{refused}");
    assert_eq!(drafts(&project), [("plan.json".to_owned(), b"work".to_vec())]);
    fs::remove_dir(place.path().join("plan.json")).unwrap();
    guard.save("plan.json", b"work and more").unwrap();
    assert!(drafts(&project).is_empty());
}

// Another program, which does not know the lock.
#[test]
fn a_file_that_was_changed_from_outside_is_not_overwritten_unless_told_so() {
    let place = tempfile::tempdir().unwrap();
    let project = Project::open(place.path()).unwrap();
    let guard = project.acquire(once()).unwrap();
    guard.save("plan.json", b"mine").unwrap();
    fs::write(place.path().join("plan.json"), "an editor's").unwrap();
    assert!(matches!(guard.save("plan.json", b"mine again"), Err(SaveError::StaleBase { .. })));
    let base = Base::Exactly(version_of(b"an editor's"));
    guard.save_from("plan.json", b"merged", base).unwrap();
    fs::write(place.path().join("plan.json"), "an editor's again").unwrap();
    guard.save_from("plan.json", b"mine at last", Base::Overwrite).unwrap();
    assert_eq!(fs::read(place.path().join("plan.json")).unwrap(), b"mine at last");
    fs::remove_file(place.path().join("plan.json")).unwrap();
    assert!(matches!(guard.save("plan.json", b"mine"), Err(SaveError::StaleBase { .. })));
}

#[test]
fn twenty_drafts_are_kept_and_what_is_none_is_passed_over() {
    let place = tempfile::tempdir().unwrap();
    let project = Project::open(place.path()).unwrap();
    fs::write(place.path().join("a"), "read").unwrap();
    project.read("a").unwrap();
    project.keep_draft("a", b"read").unwrap();
    project.keep_draft("a", b"").unwrap();
    assert!(drafts(&project).is_empty(), "neither could be lost");
    for number in 0..25_u8 {
        project.keep_draft(&format!("pages/{number}"), &[number]).unwrap();
    }
    fs::write(place.path().join(".lock.draft.1.nonsense"), "no draft").unwrap();
    let kept: Vec<u8> = project.drafts().unwrap().iter().map(|draft| draft.content[0]).collect();
    assert_eq!(kept.len(), 20, "{kept:?}");
    assert!(project.keep_draft("../outside", b"x").is_err());
}

// --- the same with doubles, where time costs nothing ---

#[test]
fn a_lease_is_kept_for_hours_and_ends_when_its_holder_sleeps() {
    let folder = MockFolder::new();
    let (mut one, mut other) = (FakeProject::open(&folder, "one"), FakeProject::open(&folder, "other"));
    one.acquire(Options::default()).unwrap();
    for _ in 0..6 {
        one.pass(Duration::from_secs(600));
        assert!(other.acquire(once()).is_err(), "it is renewed all the time");
    }
    folder.clock().advance(Duration::from_secs(60));
    other.acquire(once()).unwrap();
    one.turn();
    assert_eq!(one.state(), State::Readonly);
    assert!(one.take_events().iter().any(|event| matches!(event, Event::ReadonlyEntered { .. })));
    assert!(matches!(one.save("a", b""), Err(SaveError::Lost)));
    other.save("a", b"mine").unwrap();
    assert_eq!(folder.file("a").unwrap(), b"mine");
}

#[test]
fn a_disk_that_fails_makes_the_program_read_only_and_loses_nothing() {
    let folder = MockFolder::new();
    let mut one = FakeProject::open(&folder, "one");
    one.acquire(Options::default()).unwrap();
    one.save("a", b"1").unwrap();
    folder.set_fault(Some((IoKind::Write, "no space left")));
    assert!(matches!(one.save("a", b"2"), Err(SaveError::Folder(error)) if error.said == "no space left"));
    one.pass(Duration::from_secs(60));
    assert_eq!(one.state(), State::Readonly);
    assert_eq!(folder.file("a").unwrap(), b"1");
    folder.set_fault(None);
    one.acquire(Options::default()).unwrap();
    one.save("a", b"2").unwrap();
}

// The folder's sync failed after the rename, and the error said that what was there before was still there.
#[test]
fn a_save_whose_folder_cannot_be_synced_says_what_is_in_the_file() {
    let folder = MockFolder::new();
    let mut one = FakeProject::open(&folder, "one");
    one.acquire(Options::default()).unwrap();
    one.save("a", b"1").unwrap();
    folder.set_syncs_fail(true);
    let error = one.save("a", b"2").unwrap_err();
    assert!(matches!(error, SaveError::Undurable(_)), "{error}");
    assert!(error.to_string().contains("the new content is in place"), "{error}");
    assert_eq!(folder.file("a").unwrap(), b"2");
    folder.set_syncs_fail(false);
    one.save("a", b"2").expect("the same again");
    one.save("a", b"3").unwrap();
}

#[test]
fn a_wall_clock_that_jumps_ahead_lets_another_in_and_no_save_is_lost() {
    let folder = MockFolder::new();
    let (mut one, mut other) = (FakeProject::open(&folder, "one"), FakeProject::open(&folder, "other"));
    one.acquire(once()).unwrap();
    one.save("a", b"1").unwrap();
    let clock = folder.clock();
    let before = Clock::now(clock);
    clock.set_wall(before.wall + Duration::from_secs(3_600));
    assert_eq!(Clock::now(clock).steady, before.steady, "no time has passed");
    other.acquire(once()).unwrap();
    assert!(matches!(one.save("a", b"2"), Err(SaveError::Lost)));
    clock.set_wall(before.wall);
    assert_eq!(other.read("a").unwrap().unwrap(), b"1");
    other.save("a", b"3").unwrap();
    assert_eq!(folder.file("a").unwrap(), b"3");
}

// A write of `.lock` that was reported as failed and had happened left a lock that nobody could take before its time ran
// out, because the held file was removed along with being closed: nobody could tell any more that its holder was gone.
#[test]
fn a_lock_that_was_written_by_a_write_that_failed_is_in_nobodys_way() {
    let folder = MockFolder::new();
    let (mut one, mut other) = (FakeProject::open(&folder, "one"), FakeProject::open(&folder, "other"));
    folder.fail_after_writing();
    assert!(one.acquire(once()).is_err());
    assert!(folder.lock_text().is_some(), "it has happened");
    other.acquire(once()).unwrap();
}
