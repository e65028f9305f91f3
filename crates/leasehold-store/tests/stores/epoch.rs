//! One file, one history: what happens when two programs that know nothing of each other have it open.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::job::JobText;
use leasehold_core::{Command, JobCommand, JobOutcome, Key, Outcome, Position};
use leasehold_store::clock::{ManualClock, unix_millis};
use leasehold_store::{Embedded, Error, Feed, JobStore, Mode, Store, embedded};

use crate::harness::{acquire, beside, bid, key, leases, must_acquire, wait_for};

const TTL: Duration = Duration::from_secs(30);
const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// A store on a clock that only the test moves.
fn open(path: &Path, mode: Mode, clock: &Arc<ManualClock>) -> Result<Embedded, Error> {
    Embedded::options().mode(mode).clock(clock.clone()).open(path)
}

#[tokio::test]
async fn a_program_that_shared_the_file_and_lost_its_lock_file_changes_nothing_once_another_has_the_file() {
    // `leases.db.lock` was deleted while a program ran, and a server was started on the same file. The server let the lease
    // expire and granted it to another holder, while the first program went on renewing it, four times.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let clock = Arc::new(ManualClock::default());
    let first = open(&path, Mode::Shared, &clock).unwrap();
    let anna = must_acquire(&first, &key("plan"), &bid("anna", 1, TTL)).await;
    fs::remove_file(beside(&path, ".lock")).unwrap();
    let second = open(&path, Mode::Exclusive, &clock).unwrap();
    for _ in 0..31 {
        clock.advance(Duration::from_secs(1));
        second.now().await.unwrap();
    }
    let ben = must_acquire(&second, &key("plan"), &bid("ben", 2, TTL)).await;
    assert!(ben.fence > anna.fence);
    for _ in 0..4 {
        let renewal = Command::Renew { claim: anna.proof().into(), ttl: None };
        let error = first.apply(&key("plan"), renewal).await.unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error:?}");
    }
    assert!(matches!(acquire_error(&first).await, Error::InUse { .. }));
    drop(first);
    let renewal = Command::Renew { claim: ben.proof().into(), ttl: None };
    let renewed = second.apply(&key("plan"), renewal).await.unwrap().outcome;
    assert!(matches!(renewed, Outcome::Renewed(_)), "{renewed:?}");
    drop(second);
    assert_eq!(embedded::check(&path).unwrap().problems, Vec::<String>::new());
    let third = open(&path, Mode::Exclusive, &clock).unwrap();
    let held = leases(&third).await.unwrap();
    assert_eq!(held[0].1.lease.as_ref().unwrap().fence, ben.fence);
}

#[tokio::test]
async fn a_deleted_lock_file_lets_nobody_in_beside_the_program_that_has_the_file_alone() {
    // A second server was once let in on the file of the first, whose lock file had been deleted. The two granted one lease to
    // two holders, and in the end the file did not open any more. Later the second replaced the first. Now it is refused.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let clock = Arc::new(ManualClock::default());
    let first = open(&path, Mode::Exclusive, &clock).unwrap();
    let anna = must_acquire(&first, &key("plan"), &bid("anna", 1, TTL)).await;
    for mode in MODES.into_iter().cycle().take(6) {
        let _ = fs::remove_file(beside(&path, ".lock"));
        let error = open(&path, mode, &clock).err().expect("the file is another program's");
        assert!(matches!(error, Error::InUse { .. }), "{mode:?}: {error:?}");
        let error = embedded::repair(&path, false).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error:?}");
    }
    let renewal = Command::Renew { claim: anna.proof().into(), ttl: None };
    let renewed = first.apply(&key("plan"), renewal).await.unwrap().outcome;
    assert!(matches!(renewed, Outcome::Renewed(_)), "{renewed:?}");
    drop(first);
    assert_eq!(embedded::check(&path).unwrap().problems, Vec::<String>::new());
    let next = open(&path, Mode::Exclusive, &clock).unwrap();
    assert_eq!(leases(&next).await.unwrap()[0].1.lease.as_ref().unwrap().fence, anna.fence);
}

async fn acquire_error(store: &Embedded) -> Error {
    let acquired = store.apply(&key("other"), Command::Acquire(bid("anna", 3, TTL))).await;
    acquired.expect_err("the file is another program's")
}

#[tokio::test]
async fn a_lock_file_that_was_deleted_is_made_anew_by_the_program_that_has_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("leases.db"), Arc::new(ManualClock::default()));
    let store = open(&path, Mode::Exclusive, &clock).unwrap();
    let lock = beside(&path, ".lock");
    fs::remove_file(&lock).unwrap();
    // It is locked before the note is written. Once, the second program was let in between the two calls that make and lock it,
    // and rightly had the file then.
    wait_for("the lock file to be made anew, with its note", || {
        fs::read(&lock).ok().filter(|note| !note.is_empty())
    });
    let second = open(&path, Mode::Exclusive, &clock).err();
    assert!(matches!(second, Some(Error::InUse { .. })), "{second:?}");
    let granted = acquire(&store, &key("plan"), &bid("anna", 1, TTL)).await;
    assert!(matches!(granted, Outcome::Granted { .. }), "{granted:?}");
}

/// Copies the file and its log, and what is beside them if there is anything, as `cp` would.
fn copy(from: &Path, to: &Path, suffixes: &[&str]) {
    for suffix in suffixes {
        match fs::copy(beside(from, suffix), beside(to, suffix)) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{suffix}: {error}"),
        }
    }
}

async fn next_fence(store: &Embedded, id: u64) -> u64 {
    must_acquire(store, &key(&format!("job-{id}")), &bid("anna", id, TTL)).await.fence.get()
}

#[tokio::test]
async fn law_02_a_copy_is_not_joined_while_others_have_the_file_that_was_there_before() {
    // An old copy was put in the place of a shared file while a program held a lease in it. The next program took the copy for the
    // file that the first had open: it got the same lease, with a smaller fence, and both worked at once.
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("leases.db"), Arc::new(ManualClock::default()));
    let shared = || open(&path, Mode::Shared, &clock);
    drop(shared().unwrap());
    let old = folder.path().join("old.db");
    fs::copy(&path, &old).unwrap();
    let first = shared().unwrap();
    let anna = must_acquire(&first, &key("plan"), &bid("anna", 1, TTL)).await;
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(beside(&path, suffix)).unwrap();
    }
    fs::rename(&old, &path).unwrap();
    let refused = shared().err().expect("the first has another file open");
    assert!(matches!(refused, Error::InUse { .. }) && refused.to_string().contains("replaced"), "{refused}");
    assert!(acquire_error(&first).await.to_string().contains("replaced"));
    drop(first);
    let ben = must_acquire(&shared().unwrap(), &key("plan"), &bid("ben", 2, TTL)).await;
    assert!(
        ben.fence.get() > anna.fence.get() + embedded::JUMP / 2,
        "{:?} after {:?}",
        ben.fence,
        anna.fence
    );
}

/// How a file can be put back to what it was before.
#[derive(Clone, Copy, Debug)]
enum PutBack {
    /// A copy of the closed file.
    Closed,
    /// A copy of the file while it was open, with its log.
    Open,
    /// A backup by `leasehold store backup`, put in place with `cp` instead of `leasehold store restore`.
    Backup,
    /// The same on a new machine, where nothing is recorded of the file yet.
    BackupElsewhere,
    /// Everything that belongs to the closed file, as a snapshot of the whole machine would.
    Everything,
}

/// SQLite keeps the log under the name that a file was opened by: two programs that have one file by two names would each have a
/// log of their own, and overwrite each other.
#[tokio::test]
async fn a_hard_link_to_a_file_that_is_open_is_refused_and_the_file_goes_on() {
    for (first, second) in MODES.into_iter().flat_map(|one| MODES.map(|other| (one, other))) {
        let words = format!("{first:?}, then {second:?}");
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("leases.db"), folder.path().join("link.db"));
        let clock = Arc::new(ManualClock::default());
        let store = open(&path, first, &clock).unwrap();
        let anna = must_acquire(&store, &key("plan"), &bid("anna", 1, TTL)).await;
        fs::hard_link(&path, &link).unwrap();
        // Another process hears that the log is missing; in the same one, SQLite refuses it by itself.
        assert!(open(&link, second, &clock).is_err(), "{words}");
        let renewal = Command::Renew { claim: anna.proof().into(), ttl: None };
        let renewed = store.apply(&key("plan"), renewal).await.unwrap().outcome;
        assert!(matches!(renewed, Outcome::Renewed(_)), "{words}: {renewed:?}");
        drop(store);
        assert_eq!(embedded::check(&path).unwrap().problems, Vec::<String>::new(), "{words}");
        let reopened = open(&path, first, &clock).unwrap();
        assert_eq!(
            reopened.read(&key("plan")).await.unwrap().slot.lease.unwrap().fence,
            anna.fence,
            "{words}"
        );
    }
}

/// What a job came to after a copy was made is gone with it, and no store can know that. Its next attempt has a larger fence, and
/// the attempt from before the copy was put back has no say.
#[tokio::test]
async fn a_job_that_was_finished_after_a_copy_was_made_runs_again_with_a_larger_fence() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let (path, saved) = (folder.path().join("leases.db"), folder.path().join("saved.db"));
        let clock = Arc::new(ManualClock::default());
        let job = Key::parse("job/analyses/42").unwrap();
        let text = |text: &str| JobText::parse(text).unwrap();
        let create = || JobCommand::Create { payload: text("payload"), max_attempts: None };
        let acquire = async |store: &Embedded, id: u64| match store
            .apply_job(&job, JobCommand::Acquire(bid("w1", id, TTL)))
            .await
            .unwrap()
            .outcome
        {
            JobOutcome::Acquired { lease, .. } => lease.proof(),
            other => panic!("{mode:?}: {other:?}"),
        };
        let store = open(&path, mode, &clock).unwrap();
        assert_eq!(store.apply_job(&job, create()).await.unwrap().outcome, JobOutcome::Created);
        drop(store);
        copy(&path, &saved, &[""]);
        let store = open(&path, mode, &clock).unwrap();
        let first = acquire(&store, 1).await;
        let complete = |result: &str| JobCommand::Complete { claim: first.into(), result: text(result) };
        assert_eq!(store.apply_job(&job, complete("42")).await.unwrap().outcome, JobOutcome::Completed);
        drop(store);
        copy(&saved, &path, &[""]);
        let store = open(&path, mode, &clock).unwrap();
        assert_eq!(store.apply_job(&job, create()).await.unwrap().outcome, JobOutcome::Exists, "{mode:?}");
        let second = acquire(&store, 2).await;
        assert!(second.fence > first.fence, "{mode:?}: {second:?} after {first:?}");
        let late = store.apply_job(&job, complete("42")).await.unwrap().outcome;
        assert!(matches!(late, JobOutcome::Lost { .. }), "{mode:?}: {late:?}");
    }
}

#[tokio::test]
async fn law_02_fences_grow_through_a_copy_that_was_put_in_place_with_cp() {
    // `leases.db` was copied with `cp`, the server went on and granted leases, and then the copy was put back with `cp`,
    // without `leasehold store restore`. The server started without a word and gave out the same fences once more: what
    // they protect could not tell the old holders from the new ones.
    let ways =
        [PutBack::Closed, PutBack::Open, PutBack::Backup, PutBack::BackupElsewhere, PutBack::Everything];
    for (way, mode) in ways.into_iter().flat_map(|way| MODES.map(|mode| (way, mode))) {
        let folder = tempfile::tempdir().unwrap();
        let (path, saved) = (folder.path().join("leases.db"), folder.path().join("saved.db"));
        let clock = Arc::new(ManualClock::default());
        let store = open(&path, mode, &clock).unwrap();
        next_fence(&store, 0).await;
        match way {
            PutBack::Open => copy(&path, &saved, &["", "-wal", ".journal"]),
            PutBack::Backup | PutBack::BackupElsewhere => drop(embedded::backup(&path, &saved).unwrap()),
            PutBack::Closed | PutBack::Everything => {}
        }
        let store = match way {
            PutBack::Closed | PutBack::Everything => {
                drop(store);
                copy(&path, &saved, &["", ".epoch"]);
                open(&path, mode, &clock).unwrap()
            }
            PutBack::Open | PutBack::Backup | PutBack::BackupElsewhere => store,
        };
        let mut last = 0;
        for id in 1..=20 {
            last = next_fence(&store, id).await;
        }
        drop(store);
        let path = match way {
            PutBack::BackupElsewhere => folder.path().join("elsewhere.db"),
            _ => path,
        };
        let put_back: &[&str] = match way {
            PutBack::Closed | PutBack::Backup | PutBack::BackupElsewhere => &[""],
            PutBack::Open => &["", "-wal", ".journal"],
            PutBack::Everything => &["", ".epoch"],
        };
        copy(&saved, &path, put_back);
        if matches!(way, PutBack::Everything) {
            // Nothing but the time is different now; there are fewer than a thousand grants a second.
            wait_for("the time to pass", || (unix_millis() > last).then_some(()));
        }
        let store = open(&path, mode, &clock).unwrap();
        let next = next_fence(&store, 21).await;
        assert!(next > last, "{way:?} {mode:?}: {next} after {last}");
        assert!(next < 1 << 53, "{way:?} {mode:?}: {next}");
        let jumped = next > last + (1 << 32) - 1_000_000;
        assert_eq!(jumped, !matches!(way, PutBack::Everything), "{way:?} {mode:?}: {next} after {last}");
        assert!(matches!(store.events(Position(3), 10).await.unwrap(), Feed::Gap { .. }) || !jumped);
        // A watcher that has seen sequence numbers of the file before must not take the next ones for old.
        let seq = store.read(&key("job-0")).await.unwrap().slot.seq;
        assert_eq!(
            seq > 1 << 32,
            jumped,
            "{way:?} {mode:?}: the sequence of a document that was not touched is {seq}"
        );
        drop(store);
        assert_eq!(embedded::check(&path).unwrap().problems, Vec::<String>::new());
        // That was once: from now on it is a file like any other.
        let store = open(&path, mode, &clock).unwrap();
        let after = next_fence(&store, 22).await;
        assert!(after > next && after - next < 1 << 31, "{way:?} {mode:?}: {after} after {next}");
    }
}

#[tokio::test]
async fn a_store_whose_file_was_deleted_acknowledges_nothing_more() {
    // `leases.db` was deleted while a server ran. It went on granting leases into a file without a name, and said at its
    // end that nothing was lost; at the next start all of them were.
    let files = MODES.into_iter().flat_map(|mode| ["", "-wal"].map(|name| (mode, name)));
    for (mode, deleted) in files.chain([(Mode::Exclusive, ".journal")]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let clock = Arc::new(ManualClock::default());
        let store = open(&path, mode, &clock).unwrap();
        let anna = must_acquire(&store, &key("plan"), &bid("anna", 1, TTL)).await;
        let (from, aside) = (beside(&path, deleted), folder.path().join("aside"));
        fs::rename(&from, &aside).unwrap();
        let words = format!("{mode:?}, {}", from.display());
        for command in
            [Command::Acquire(bid("ben", 2, TTL)), Command::Renew { claim: anna.proof().into(), ttl: None }]
        {
            let error = store.apply(&key("plan"), command).await.expect_err(&words);
            assert!(error.to_string().contains("deleted or replaced while it was open"), "{words}: {error}");
        }
        fs::rename(&aside, &from).unwrap();
        let renewal = Command::Renew { claim: anna.proof().into(), ttl: None };
        let renewed = store.apply(&key("plan"), renewal).await.unwrap().outcome;
        assert!(matches!(renewed, Outcome::Renewed(_)), "moved back, {words}: {renewed:?}");
    }
}

#[tokio::test]
async fn a_file_that_was_deleted_is_not_made_anew_while_others_have_it_open() {
    // The file was deleted under `leasehold run`, and the next run made a new one: two commands at once for as long as
    // the first one took.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let clock = Arc::new(ManualClock::default());
    let first = open(&path, Mode::Shared, &clock).unwrap();
    must_acquire(&first, &key("nightly"), &bid("anna", 1, TTL)).await;
    fs::remove_file(&path).unwrap();
    for mode in MODES {
        let refused = open(&path, mode, &clock).err().expect("a second holder");
        assert!(matches!(refused, Error::InUse { .. }), "{mode:?}: {refused:?}");
        assert!(!path.exists(), "{mode:?}");
    }
    drop(first);
    let _ = fs::remove_file(beside(&path, "-wal"));
    open(&path, Mode::Shared, &clock).unwrap();
}

#[tokio::test]
async fn fences_begin_at_the_wall_clock_however_often_the_file_is_deleted() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let mut last = 0;
        for round in 1..=3 {
            let began = unix_millis();
            let store = Embedded::options().mode(mode).open(&path).unwrap();
            let lease = must_acquire(&store, &key("plan"), &bid("anna", round, TTL)).await;
            assert!(
                lease.fence.get() > last && lease.fence.get() >= began,
                "{mode:?}: {last}, then {}",
                lease.fence.get()
            );
            last = lease.fence.get();
            drop(store);
            fs::remove_dir_all(folder.path()).unwrap();
            fs::create_dir(folder.path()).unwrap();
        }
    }
}
