//! The double of a folder does what a real one does: the same questions, put to both.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_core::time::{StoreTime, Ttl};
use leasehold_core::{Fence, LeaseId, Meta, Owner};
use leasehold_project::testing::{FakeClock, MockFolder, OpenedMock};
use leasehold_project::{Clock, Driver, Folder, GuardTry, ProjectFolder};
use leasehold_project_rules::guarded::{LockFile, Probe};
use leasehold_project_rules::record::{Content, Record};
use leasehold_project_rules::{Folder as Kind, Now, Options, ReleaseReason, Strategy, Surroundings};

fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

fn record(owner: &str) -> Record {
    Record {
        lease_id: LeaseId::from_random([7; 16]),
        owner: Owner::parse(owner).unwrap(),
        label: Meta::default(),
        acquired_at: StoreTime::from_millis(1_794_747_600_000),
        updated_at: StoreTime::from_millis(1_794_747_600_000),
        ttl: Ttl::from_secs(30).unwrap(),
        fence: Some(fence(1)),
        seq: 1,
        held: false,
    }
}

/// `open` gives another program's view of the same, empty folder.
fn behaves_like_a_folder<F: Folder>(open: impl Fn() -> F) {
    let (mut one, mut other) = (open(), open());
    guard_keeps_its_text(&mut one, &mut other);
    lock_is_written_as_a_whole_and_removed(&one, &other);
    held_file_tells_whether_its_holder_lives(&mut one, &other);
    drop(one);
    held_file_of_one_that_died_is_free_and_swept(&open, &other);
    names_outside_of_the_project_are_refused(&other);
}

fn guard_keeps_its_text<F: Folder>(one: &mut F, other: &mut F) {
    one.drop_guard();
    assert_eq!(one.take_guard(true).unwrap(), GuardTry::Absent, "a look makes nothing");
    assert_eq!(one.take_guard(false).unwrap(), GuardTry::Taken);
    assert_eq!(one.read_guard().unwrap(), "");
    one.write_guard("a longer text").unwrap();
    one.write_guard("7").unwrap();
    for look in [true, false] {
        assert_eq!(other.take_guard(look).unwrap(), GuardTry::Busy);
    }
    one.drop_guard();
    for look in [true, false] {
        assert_eq!(other.take_guard(look).unwrap(), GuardTry::Taken);
        assert_eq!(other.read_guard().unwrap(), "7", "the shorter one, and nothing of the longer");
        other.drop_guard();
    }
}

fn lock_is_written_as_a_whole_and_removed<F: Folder>(one: &F, other: &F) {
    assert_eq!(other.read_lock().unwrap(), LockFile::Missing);
    one.write_lock(&record("the longer name of an owner")).unwrap();
    one.write_lock(&record("owner")).unwrap();
    let LockFile::Read { content, .. } = other.read_lock().unwrap() else { panic!("it was written") };
    assert_eq!(content, Content::Record(record("owner")), "and nothing of the longer one");
    one.remove_lock().unwrap();
    one.remove_lock().expect("removing what is gone is fine");
    assert_eq!(other.read_lock().unwrap(), LockFile::Missing);
}

fn held_file_tells_whether_its_holder_lives<F: Folder>(one: &mut F, other: &F) {
    assert_eq!(other.probe(fence(1)), Probe::Unknown, "there is none");
    one.open_held(fence(1)).unwrap();
    one.open_held(fence(1)).expect("it is open already");
    assert_eq!(other.probe(fence(1)), Probe::Busy);
    one.drop_held(fence(1));
    assert_eq!(other.probe(fence(1)), Probe::Free, "closed, and left there");
    one.open_held(fence(2)).unwrap();
    one.close_held(fence(2));
    assert_eq!(other.probe(fence(2)), Probe::Unknown, "closed, and removed");
    one.open_held(fence(2)).unwrap();
    one.drop_held(fence(2));
    one.close_held(fence(2));
    assert_eq!(other.probe(fence(2)), Probe::Unknown, "closed before, and removed all the same");
}

fn held_file_of_one_that_died_is_free_and_swept<F: Folder>(open: &impl Fn() -> F, other: &F) {
    let (mut dead, mut alive) = (open(), open());
    dead.open_held(fence(3)).unwrap();
    alive.open_held(fence(4)).unwrap();
    drop(dead);
    assert_eq!(other.probe(fence(3)), Probe::Free);
    other.sweep_held(fence(5)).unwrap();
    assert_eq!(other.probe(fence(3)), Probe::Unknown, "swept");
    assert_eq!(other.probe(fence(1)), Probe::Unknown, "swept as well");
    assert_eq!(other.probe(fence(4)), Probe::Busy, "somebody has it open");
}

fn names_outside_of_the_project_are_refused<F: Folder>(folder: &F) {
    for name in ["../x", "/x", "", "a//b", ".", ".lock", ".lock.guard"] {
        let error = folder.save(name, b"no", None).expect_err(name);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
    }
    folder.save("plan.json", b"yes", None).unwrap();
}

#[test]
fn a_real_folder_behaves_like_one() {
    let place = tempfile::tempdir().unwrap();
    behaves_like_a_folder(|| ProjectFolder::open(place.path()).unwrap());
}

#[test]
fn the_double_behaves_like_one() {
    let folder = MockFolder::new();
    behaves_like_a_folder(|| folder.open());
}

/// Another program's guarded section, which is over once this clock has been waited for.
struct BusyUntilWaitedFor {
    clock: FakeClock,
    other: Mutex<OpenedMock>,
}

impl Clock for BusyUntilWaitedFor {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn wait(&self, time: Duration) {
        self.other.lock().unwrap().drop_guard();
        self.clock.advance(time);
    }
}

/// A program that ended right after it dropped its guard must still have released the project, even if another program was
/// in the guard just then.
#[test]
fn a_release_that_waits_for_the_guard_is_finished() {
    let folder = MockFolder::new();
    let clock = BusyUntilWaitedFor { clock: folder.clock().clone(), other: Mutex::new(folder.open()) };
    let owner = Owner::parse("program").unwrap();
    let surroundings = Surroundings { owner, root: "project".into(), folder: Kind::Guarded, seed: [1; 16] };
    let mut driver = Driver::new(folder.open(), clock, surroundings);
    driver.acquire(&Options { strategy: Strategy::FileLock, ..Options::default() });
    let lease_id = driver.lease().expect("a lease").lease_id;
    assert_eq!(driver.clock().other.lock().unwrap().take_guard(false).unwrap(), GuardTry::Taken);
    driver.release(lease_id, ReleaseReason::Completed, false);
    assert!(folder.lock_text().is_some(), "it waits for the guard");
    driver.finish();
    assert_eq!(folder.lock_text(), None);
}
