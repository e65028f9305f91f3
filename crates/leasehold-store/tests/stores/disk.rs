//! A disk that is full, that cannot be written, or that fails to sync. What was acknowledged stays, whatever happens.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Output};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::lease::Bid;
use leasehold_core::{Command, Key, Outcome, Slot};
use leasehold_store::clock::ManualClock;
use leasehold_store::{Embedded, Error, JobStore, Mode, Retry, Store, embedded};
use tempfile::TempDir;

use crate::harness::{Child, DEADLINE, bid, key, leases, meta, must_acquire, part, skipped, tell, wait_for};

const HOUR: Duration = Duration::from_secs(3_600);
const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

// --- a small disk ---

/// A disk of its own, for as long as this value lives.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where one may not mount anything.
    fn of_megabytes(size: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={size}m");
        let mounted =
            run(Process::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()));
        match mounted {
            Ok(_) => Some(Self(folder)),
            Err(why) => {
                skipped(&format!("a small disk cannot be mounted here: {why}"));
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Takes up space that can be given back.
    fn load_ballast(&self, megabytes: usize) {
        fs::write(self.path("ballast"), vec![0; megabytes << 20]).unwrap();
    }

    fn drop_ballast(&self) {
        fs::remove_file(self.path("ballast")).unwrap();
    }

    fn make_read_only(&self) {
        run(Process::new("mount").args(["-o", "remount,ro"]).arg(self.0.path())).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // After a panic, too; and even if something on it is still open.
        let unmounted = run(Process::new("umount").arg("-l").arg(self.0.path()));
        if let Err(why) = unmounted {
            eprintln!("{} could not be unmounted: {why}", self.0.path().display());
        }
    }
}

fn run(command: &mut Process) -> Result<Output, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(output) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

// --- full ---

/// Enough for a log that is not yet written back, and for one that is, several times.
const SIZES: [u32; 2] = [6, 24];
const BALLAST: usize = 3;

fn heavy_bid(id: u64) -> Bid {
    Bid { meta: meta(3_500), ..bid("anna", id, HOUR) }
}

fn name(id: u64) -> Key {
    key(&format!("{id:06}"))
}

/// Acquires until the disk is full; answers the first lease id that was refused.
async fn fill(store: &Embedded) -> u64 {
    for id in 0.. {
        match store.apply(&name(id), Command::Acquire(heavy_bid(id))).await {
            Ok(applied) => assert!(matches!(applied.outcome, Outcome::Granted { .. })),
            Err(error) => {
                assert_full(&error);
                return id;
            }
        }
    }
    unreachable!()
}

fn assert_full(error: &Error) {
    assert!(matches!(error, Error::Unavailable { .. }) && error.retry() != Retry::No, "{error:?}");
    assert!(error.to_string().contains("full"), "{error}");
}

/// Everything that was acknowledged is there, seen in every way.
async fn assert_all_there(store: &Embedded, acknowledged: u64) -> Vec<(Key, Slot)> {
    let found = leases(store).await.unwrap();
    let names: Vec<_> = found.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(names, (0..acknowledged).map(name).collect::<Vec<_>>());
    for (key, slot) in &found {
        assert_eq!(&store.read(key).await.unwrap().slot, slot);
    }
    found
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_works_again_once_there_is_room() {
    for (size, mode) in SIZES.into_iter().flat_map(|size| MODES.map(|mode| (size, mode))) {
        let Some(disk) = SmallDisk::of_megabytes(size) else { return };
        disk.load_ballast(BALLAST);
        let path = disk.path("leases.db");
        let store = Embedded::options().mode(mode).open(&path).unwrap();
        let refused = fill(&store).await;
        let before = assert_all_there(&store, refused).await;
        for _ in 0..3 {
            let error = store.apply(&name(refused), Command::Acquire(heavy_bid(refused))).await.unwrap_err();
            assert_full(&error);
            assert_eq!(assert_all_there(&store, refused).await, before, "reading goes on");
        }
        disk.drop_ballast();
        let last_fence =
            before.iter().filter_map(|(_, slot)| slot.lease.as_ref()).map(|lease| lease.fence).max();
        let lease = must_acquire(&store, &name(refused), &heavy_bid(refused)).await;
        assert!(Some(lease.fence) > last_fence, "without opening it again");
        let before = assert_all_there(&store, refused + 1).await;
        drop(store);
        assert_eq!(embedded::check(&path).unwrap().problems, [""; 0]);
        let store = Embedded::options().mode(mode).open(&path).unwrap();
        assert_eq!(assert_all_there(&store, refused + 1).await, before);
    }
}

#[tokio::test]
async fn a_store_that_ends_on_a_full_disk_comes_back_whole() {
    for mode in MODES {
        let Some(disk) = SmallDisk::of_megabytes(6) else { return };
        disk.load_ballast(BALLAST);
        let path = disk.path("leases.db");
        let store = Embedded::options().mode(mode).open(&path).unwrap();
        let refused = fill(&store).await;
        let before = assert_all_there(&store, refused).await;
        drop(store);
        if let Err(error) = Embedded::options().mode(mode).open(&path) {
            assert_full(&error);
        }
        disk.drop_ballast();
        let store = Embedded::options().mode(mode).open(&path).unwrap();
        assert_eq!(assert_all_there(&store, refused).await, before);
    }
}

/// A journal that is overwritten is faster than one that grows, but not worth the last room on a disk.
#[tokio::test]
async fn the_journal_leaves_room_to_others() {
    let Some(disk) = SmallDisk::of_megabytes(6) else { return };
    disk.load_ballast(BALLAST);
    let path = disk.path("leases.db");
    let store = Embedded::open(&path).unwrap();
    for id in 0..120 {
        must_acquire(&store, &name(id), &bid("anna", id, HOUR)).await;
    }
    fs::write(disk.path("another"), vec![1; 1 << 20]).expect("there is room for others");
    must_acquire(&store, &name(120), &bid("anna", 120, HOUR)).await;
    assert_all_there(&store, 121).await;
    assert_eq!(embedded::check(&path).unwrap().problems, [""; 0]);
}

#[tokio::test]
async fn law_10_nobody_loses_a_lease_because_the_disk_was_full() {
    // Once, the lease clock ran on while nothing could be written: when there was room again, everybody who had not been
    // able to renew had expired.
    let Some(disk) = SmallDisk::of_megabytes(6) else { return };
    disk.load_ballast(BALLAST);
    let clock = Arc::new(ManualClock::default());
    let store = Embedded::options().clock(clock.clone()).open(disk.path("leases.db")).unwrap();
    let (held, short) = (key("held"), bid("ben", 1_000_000, Duration::from_secs(30)));
    let lease = must_acquire(&store, &held, &short).await;
    fill(&store).await;
    let claim = lease.proof();
    let renew = Command::Renew { claim: claim.into(), ttl: None };
    let mut refused = 0;
    // What has no room for a long command may have some for a few short ones.
    for _ in 0..200 {
        clock.advance(Duration::from_secs(1));
        refused += u32::from(store.apply(&held, renew.clone()).await.is_err());
    }
    assert!(refused > 100, "the disk was full, and yet only {refused} were refused");
    disk.drop_ballast();
    let renewed = store.apply(&held, renew).await.unwrap().outcome;
    assert!(matches!(renewed, Outcome::Renewed(_)), "{renewed:?}");
}

// --- read-only ---

#[test]
fn a_disk_that_cannot_be_written_is_said_to_be_so() {
    let Some(disk) = SmallDisk::of_megabytes(6) else { return };
    let path = disk.path("leases.db");
    drop(Embedded::open(&path).unwrap());
    let bytes = fs::read(&path).unwrap();
    disk.make_read_only();
    for (mode, path) in MODES.into_iter().flat_map(|mode| [(mode, path.clone()), (mode, disk.path("new.db"))])
    {
        let error = Embedded::options().mode(mode).open(&path).err().expect("there is nothing to write to");
        assert!(matches!(error, Error::Unavailable { retry: Retry::No, .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()) && message.contains("ead-only"), "{message}");
    }
    assert!(fs::read(&path).unwrap() == bytes);
}

// --- a disk that does not sync ---

/// Fails every sync while the file named by `LEASEHOLD_TEST_NO_SYNC` is there.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int fails(void) {
    const char *sign = getenv("LEASEHOLD_TEST_NO_SYNC");
    return sign && access(sign, F_OK) == 0;
}

static int sync_or_fail(const char *name, int file) {
    if (fails()) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(file);
}

int fsync(int file) { return sync_or_fail("fsync", file); }
int fdatasync(int file) { return sync_or_fail("fdatasync", file); }
"#;

/// Compiles the shim; `None` where there is no compiler.
fn shim(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    fs::write(&source, SHIM).unwrap();
    match run(Process::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl")) {
        Ok(_) => Some(library),
        Err(why) => {
            skipped(&format!("a failing sync needs a C compiler: {why}"));
            None
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_failed_sync_leaves_it_unknown_and_the_store_recovers_before_it_is_killed() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = shim(folder.path()) else { return };
        let (path, sign) = (folder.path().join("leases.db"), folder.path().join("no-sync"));
        let told =
            [("SYNC", path.to_str().unwrap()), ("NO_SYNC", sign.to_str().unwrap()), ("MODE", mode.as_str())];
        let mut child = Child::start_with("disk::child_with_failing_sync", &told, |process| {
            process.env("LD_PRELOAD", &library);
        });
        let fences: Vec<u64> = (0..4).map(|_| child.told("fence").parse().unwrap()).collect();
        child.kill();
        assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "{fences:?}");
        let store = Embedded::options().mode(mode).open(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found = runtime.block_on(leases(&store)).unwrap();
        let found: Vec<_> = found.iter().map(|(_, slot)| slot.lease.as_ref().unwrap().fence.get()).collect();
        assert_eq!(found, fences, "{mode:?}: all that was acknowledged");
        let next = runtime.block_on(must_acquire(&store, &name(9), &bid("anna", 9, HOUR)));
        assert!(next.fence.get() > fences[3]);
    }
}

/// The mode that a child was told.
fn mode_part() -> Mode {
    if part("MODE").unwrap() == "shared" { Mode::Shared } else { Mode::Exclusive }
}

/// Two leases, one during which syncs fail, and one after that. Tells each fence once it is acknowledged.
#[test]
fn child_with_failing_sync() {
    let (Some(path), Some(sign)) = (part("SYNC"), part("NO_SYNC")) else { return };
    let mode = mode_part();
    let store = Embedded::options().mode(mode).open(path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let acquire = |id| runtime.block_on(store.apply(&name(id), Command::Acquire(bid("anna", id, HOUR))));
    let fence = |outcome| match outcome {
        Outcome::Granted { lease, .. } => lease.fence.to_string(),
        other => panic!("{other:?}"),
    };
    tell("fence", &fence(acquire(0).unwrap().outcome));
    tell("fence", &fence(acquire(1).unwrap().outcome));
    fs::write(&sign, "").unwrap();
    for _ in 0..5 {
        let error = acquire(2).unwrap_err();
        assert!(matches!(error, Error::Unavailable { retry: Retry::Unknown, .. }), "{error:?}");
        let known = runtime.block_on(leases(&store)).unwrap();
        assert_eq!(known.len(), 2, "what is not durable is not seen");
    }
    fs::remove_file(&sign).unwrap();
    let again = wait_for("the store to recover", || acquire(2).ok());
    tell("fence", &fence(again.outcome));
    tell("fence", &fence(acquire(3).unwrap().outcome));
    std::thread::sleep(DEADLINE);
}

#[test]
#[cfg(target_os = "linux")]
fn what_failed_to_sync_and_was_seen_undone_stays_undone() {
    // A failed sync leaves the whole transaction in SQLite's log. The store reads its state anew, and shows it without
    // that transaction. Two ways were found to break this, and no test failed: to go on without reading the state, and
    // to read it without beginning a new log. Both times a killed server came back with a lease that it had shown as
    // free.
    // The processes that share a file did neither.
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = shim(folder.path()) else { return };
        let (path, sign) = (folder.path().join("leases.db"), folder.path().join("no-sync"));
        let told = [
            ("UNDONE", path.to_str().unwrap()),
            ("NO_SYNC", sign.to_str().unwrap()),
            ("MODE", mode.as_str()),
        ];
        let mut child = Child::start_with("disk::child_that_sees_a_failed_sync_undone", &told, |process| {
            process.env("LD_PRELOAD", &library);
        });
        let seen: usize = child.told("leases").parse().unwrap();
        child.kill();
        assert_eq!(seen, 1, "{mode:?}: the failed acquire was not carried out");
        let store = Embedded::options().mode(mode).open(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found = runtime.block_on(leases(&store)).unwrap();
        let found: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
        assert_eq!(found, [name(0)], "{mode:?}: the failed acquire came back");
    }
}

/// One lease, another one during which syncs fail, and then a look at what there is, without writing anything. The clock
/// stands still, so that the store has no reason to write either.
#[test]
fn child_that_sees_a_failed_sync_undone() {
    let (Some(path), Some(sign)) = (part("UNDONE"), part("NO_SYNC")) else { return };
    let (mode, clock) = (mode_part(), Arc::new(ManualClock::default()));
    let store = Embedded::options().mode(mode).clock(clock).open(path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let acquire = |id| runtime.block_on(store.apply(&name(id), Command::Acquire(bid("anna", id, HOUR))));
    assert!(matches!(acquire(0).unwrap().outcome, Outcome::Granted { .. }));
    fs::write(&sign, "").unwrap();
    let error = acquire(1).unwrap_err();
    assert_eq!(error.retry(), Retry::Unknown, "{error}");
    fs::remove_file(&sign).unwrap();
    wait_for("the store to recover", || runtime.block_on(store.now()).ok());
    tell("leases", &runtime.block_on(leases(&store)).unwrap().len().to_string());
    std::thread::sleep(DEADLINE);
}

#[test]
#[cfg(target_os = "linux")]
fn what_failed_syncs_leave_in_a_shared_file_is_not_taken_for_damage() {
    // The log of a file held a long commit that had failed to sync, over its beginning a shorter one that had failed too, and
    // over the beginning of that a short one that succeeded. After a crash the two remains were taken for commits that damage
    // had made unreadable, and the file did not open any more.
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = shim(folder.path()) else { return };
    let (path, sign) = (folder.path().join("leases.db"), folder.path().join("no-sync"));
    let told = [("REMAINS", path.to_str().unwrap()), ("NO_SYNC", sign.to_str().unwrap())];
    let mut child = Child::start_with("disk::child_whose_syncs_fail_twice", &told, |process| {
        process.env("LD_PRELOAD", &library);
    });
    let fence: u64 = child.told("fence").parse().unwrap();
    child.kill();
    let store = Embedded::options().mode(Mode::Shared).open(&path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = runtime.block_on(store.read(&name(0))).unwrap().slot.lease.unwrap();
    assert_eq!(found.fence.get(), fence);
}

/// Many leases that run out in one long commit whose sync fails, an acquire of some length that fails, too, and a renewal
/// that succeeds. Tells the fence of what was renewed.
#[test]
fn child_whose_syncs_fail_twice() {
    let (Some(path), Some(sign)) = (part("REMAINS"), part("NO_SYNC")) else { return };
    let clock = Arc::new(ManualClock::default());
    let store = Embedded::options().mode(Mode::Shared).clock(clock.clone()).open(path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kept = runtime.block_on(must_acquire(&store, &name(0), &bid("anna", 0, HOUR)));
    for id in 1..100 {
        let short = Bid { meta: meta(3_500), ..bid("anna", id, Duration::from_secs(1)) };
        runtime.block_on(must_acquire(&store, &name(id), &short));
    }
    clock.advance(Duration::from_secs(1));
    fs::write(&sign, "").unwrap();
    assert_eq!(runtime.block_on(store.settle_due(200)).unwrap_err().retry(), Retry::Unknown);
    let acquired = runtime.block_on(store.apply(&name(200), Command::Acquire(heavy_bid(200))));
    assert_eq!(acquired.unwrap_err().retry(), Retry::Unknown);
    fs::remove_file(&sign).unwrap();
    let claim = kept.proof().into();
    let renewed = runtime.block_on(store.apply(&name(0), Command::Renew { claim, ttl: None })).unwrap();
    assert!(matches!(renewed.outcome, Outcome::Renewed(_)), "{:?}", renewed.outcome);
    tell("fence", &kept.fence.to_string());
    std::thread::sleep(DEADLINE);
}

// --- SQLite's own lock ---

/// Whether a process has a lock on the file itself, as SQLite takes it for as long as it has one open. The kernel's list is read
/// in pieces, and leaves a lock out if others go in between: so more than one look.
#[cfg(target_os = "linux")]
fn is_locked(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
    let is_listed = || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("POSIX") && line.contains(&inode))
    };
    (0..100).any(|_| is_listed())
}

#[test]
#[cfg(target_os = "linux")]
fn a_store_that_has_recovered_from_a_failed_sync_has_sqlites_lock() {
    // After a failed sync the store opened its file once more, to see what it was, and closed it. With that the kernel
    // dropped every lock that the process had on the file, SQLite's among them. `sqlite3 leases.db 'PRAGMA
    // integrity_check'` then took itself for the last user of the file and removed the log under the running server: a
    // grant that was acknowledged was lost.
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = shim(folder.path()) else { return };
    let (path, sign) = (folder.path().join("leases.db"), folder.path().join("no-sync"));
    let told = [("RECOVERS", path.to_str().unwrap()), ("NO_SYNC", sign.to_str().unwrap())];
    let mut child = Child::start_with("disk::child_that_recovers", &told, |process| {
        process.env("LD_PRELOAD", &library);
    });
    child.told("recovered");
    assert!(is_locked(&path));
    child.kill();
    assert!(!is_locked(&path), "the lock is the store's");
}

/// One lease, another one during which syncs fail at first. The clock stands still, so that nothing else is written.
#[test]
fn child_that_recovers() {
    let (Some(path), Some(sign)) = (part("RECOVERS"), part("NO_SYNC")) else { return };
    let store = Embedded::options().clock(Arc::new(ManualClock::default())).open(path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let acquire = |id| runtime.block_on(store.apply(&name(id), Command::Acquire(bid("anna", id, HOUR))));
    assert!(matches!(acquire(0).unwrap().outcome, Outcome::Granted { .. }));
    fs::write(&sign, "").unwrap();
    acquire(1).unwrap_err();
    fs::remove_file(&sign).unwrap();
    wait_for("the store to recover", || acquire(1).ok());
    tell("recovered", "yes");
    std::thread::sleep(DEADLINE);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn looking_at_a_file_in_the_process_that_has_it_open_keeps_sqlites_lock() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let store = Embedded::options().mode(mode).open(&path).unwrap();
        must_acquire(&store, &name(0), &bid("anna", 0, HOUR)).await;
        assert!(is_locked(&path), "{mode:?}");
        embedded::check(&path).unwrap();
        embedded::backup(&path, folder.path().join("backup.db")).unwrap();
        assert!(is_locked(&path), "{mode:?}");
    }
}

// --- a store that has nothing to do ---

#[tokio::test]
async fn the_clock_is_written_while_nobody_asks_for_anything() {
    // Once, a writer that wrote its clock only along with other changes passed all tests. After a crash, a lease that
    // had been abandoned for hours would have been held for its whole TTL once more.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let clock = Arc::new(ManualClock::default());
    let store = Embedded::options().clock(clock.clone()).open(&path).unwrap();
    let lease = must_acquire(&store, &name(0), &bid("anna", 0, HOUR)).await;
    let on_disk = || embedded::peek(&path, &leasehold_store::Range::all()).unwrap().now;
    for seconds in 1..=3 {
        clock.advance(Duration::from_secs(1));
        let expected = lease.acquired_at + Duration::from_secs(seconds);
        wait_for("the clock to be written", || (on_disk() == expected).then_some(()));
    }
}
