//! One file, one history: what happens when two programs that know nothing of each other have it open.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Command, Outcome};
use leasehold_store::clock::ManualClock;
use leasehold_store::{Embedded, Error, JobStore, Mode, Store, embedded};

use crate::harness::{acquire, beside, bid, key, leases, must_acquire, wait_for};

const TTL: Duration = Duration::from_secs(30);
const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// A store on a clock that only the test moves.
fn open(path: &Path, mode: Mode, clock: &Arc<ManualClock>) -> Result<Embedded, Error> {
    Embedded::options().mode(mode).clock(clock.clone()).open(path)
}

/// Opens the file beside the program that has it open, by deleting the lock file. The other program makes it anew as soon
/// as it notices, so this may take several attempts.
fn open_in_spite_of(path: &Path, mode: Mode, clock: &Arc<ManualClock>) -> Embedded {
    wait_for("the second program to get in", || {
        let _ = fs::remove_file(beside(path, ".lock"));
        open(path, mode, clock).ok()
    })
}

#[tokio::test]
async fn a_program_whose_lock_file_was_deleted_changes_nothing_once_another_has_the_file() {
    // `leases.db.lock` was deleted while a server ran, and a second server was started on the same file. The second one
    // let the lease expire and granted it to another holder, while the first went on renewing it, four times, from its
    // memory. In the end the file did not open any more.
    for (first_mode, second_mode) in MODES.into_iter().flat_map(|one| MODES.map(|other| (one, other))) {
        if (first_mode, second_mode) == (Mode::Shared, Mode::Shared) {
            continue; // Both work on the file itself: they may.
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let clock = Arc::new(ManualClock::default());
        let first = open(&path, first_mode, &clock).unwrap();
        let anna = must_acquire(&first, &key("plan"), &bid("anna", 1, TTL)).await;
        let second = open_in_spite_of(&path, second_mode, &clock);
        for _ in 0..31 {
            clock.advance(Duration::from_secs(1));
            second.now().await.unwrap();
        }
        let ben = must_acquire(&second, &key("plan"), &bid("ben", 2, TTL)).await;
        assert!(ben.fence > anna.fence);
        let words = format!("{first_mode:?}, then {second_mode:?}");
        for _ in 0..4 {
            let renewal = Command::Renew { claim: anna.proof().into(), ttl: None };
            let error = first.apply(&key("plan"), renewal).await.expect_err(&words);
            assert!(matches!(error, Error::InUse { .. }), "{words}: {error:?}");
        }
        assert!(matches!(acquire_error(&first).await, Error::InUse { .. }), "{words}");
        if first_mode == Mode::Exclusive {
            let stale = first.read(&key("plan")).await.map(|reading| reading.slot);
            assert!(matches!(stale, Err(Error::InUse { .. })), "{words}: {stale:?}");
            assert!(matches!(leases(&first).await, Err(Error::InUse { .. })), "{words}");
        }
        drop(first);
        let renewal = Command::Renew { claim: ben.proof().into(), ttl: None };
        let renewed = second.apply(&key("plan"), renewal).await.unwrap().outcome;
        assert!(matches!(renewed, Outcome::Renewed(_)), "{words}: {renewed:?}");
        drop(second);
        assert_eq!(embedded::check(&path).unwrap().problems, Vec::<String>::new(), "{words}");
        let third = open(&path, Mode::Exclusive, &clock).unwrap();
        let held = leases(&third).await.unwrap();
        assert_eq!(held[0].1.lease.as_ref().unwrap().fence, ben.fence, "{words}");
    }
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
    wait_for("the lock file to be made anew", || lock.exists().then_some(()));
    // It may be there and not yet be locked.
    wait_for("the second program to be refused", || {
        matches!(open(&path, Mode::Exclusive, &clock), Err(Error::InUse { .. })).then_some(())
    });
    let granted = acquire(&store, &key("plan"), &bid("anna", 1, TTL)).await;
    assert!(matches!(granted, Outcome::Granted { .. }), "{granted:?}");
}
