//! `leasehold run` on the worst days of its file: a copy in its place, a full disk, and another version of the program.

use std::fs;
use std::path::Path;

use crate::run::{
    first_line, in_a_file, is_running, overlap, read, wait_until_gone, worker, worker_by, working,
};
use crate::small_disk::SmallDisk;
use crate::support::{Run, code_of, skipped};

/// An old copy was put in the place of the file while a command ran. The next run took the copy for the file that the first had
/// open, got the same lease with a smaller fence, and both commands ran at once.
#[test]
fn no_two_commands_at_once_when_a_copy_is_put_in_the_place_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name);
    assert_eq!(Run::of(&mut in_a_file(&folder, &["--", "true"])).code, 0);
    fs::copy(in_folder("leases.db"), in_folder("old.db")).unwrap();
    let script = "echo $LEASEHOLD_FENCE > fence; trap '' TERM; \
        \"$0\" --exact run::a_worker_for_the_tests_below > /dev/null & wait";
    let mut one = worker_by(&mut in_a_file(&folder, &["--grace", "200ms"]), "one", script);
    let pid = working(&folder, "one").pid;
    for name in ["leases.db-wal", "leases.db-shm"] {
        fs::remove_file(in_folder(name)).unwrap();
    }
    fs::rename(in_folder("old.db"), in_folder("leases.db")).unwrap();
    let refused = Run::of(&mut in_a_file(&folder, &["--", "touch", "ran"]));
    // It looks again for a while, in which the first may have ended.
    assert_eq!((refused.code, in_folder("ran").exists()), (1, false), "{}", refused.err);
    assert!(refused.err.contains("replaced while they have it open"), "{}", refused.err);
    assert_eq!(code_of(&mut one.0), Some(76), "{}", read(&in_folder("one.err")));
    assert!(!is_running(pid));
    let next = Run::of(&mut in_a_file(&folder, &["--", "sh", "-c", "echo $LEASEHOLD_FENCE"]));
    let fences = [first_line(&in_folder("fence")), next.raw.trim().to_owned()];
    let [before, after] = fences.map(|fence| fence.parse::<u64>().unwrap());
    assert!(after > before + (1 << 31), "{after} after {before}");
}

/// On a full disk a lease cannot be renewed, and none can be given to another.
#[test]
fn no_two_commands_at_once_when_the_disk_is_full() {
    let Some(disk) = SmallDisk::of_kilobytes(512) else {
        return skipped("a full disk below `run`: this user, or this container, may not mount one");
    };
    let folder = tempfile::tempdir().unwrap();
    let path = disk.path().join("leases.db");
    let on_disk = ["--store", path.to_str().unwrap()];
    let mut one = worker(&mut in_a_file(&folder, &[&on_disk[..], &["--grace", "200ms"]].concat()), "one");
    let pid = working(&folder, "one").pid;
    disk.fill();
    let refused = Run::of(&mut in_a_file(&folder, &[&on_disk[..], &["--", "touch", "ran"]].concat()));
    // It says that the disk is full, or, if it could open the file all the same, who has the lease.
    assert!([1, 75].contains(&refused.code) && !folder.path().join("ran").exists(), "{}", refused.err);
    assert_eq!(code_of(&mut one.0), Some(76), "{}", read(&folder.path().join("one.err")));
    wait_until_gone(pid);
    disk.make_room();
    let mut two = worker(&mut in_a_file(&folder, &[&on_disk[..], &["--wait", "5m"]].concat()), "two");
    assert_eq!(overlap(&folder, "disk full", &mut two), 0.0);
}

/// A program of another version has the file open, or had it: neither reads what the other wrote as something else.
#[test]
fn another_version_of_the_file_is_left_alone_or_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ran) = (folder.path().join("leases.db"), folder.path().join("ran"));
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../leasehold-store/tests/fixtures");
    fs::copy(fixtures.join("schema-1.sqlite"), &path).unwrap();
    let before = fs::read(&path).unwrap();
    // As a program of that version does while it runs.
    let older = fs::File::create(folder.path().join("leases.db.lock")).unwrap();
    older.lock_shared().unwrap();
    let run = |args: &[&str]| Run::of(&mut in_a_file(&folder, args));
    let refused = run(&["--", "touch", "ran"]);
    assert_eq!((refused.code, ran.exists()), (1, false), "{}", refused.err);
    assert!(refused.err.contains("in use by a program of an older version"), "{}", refused.err);
    assert_eq!(fs::read(&path).unwrap(), before, "it was left as it is");
    drop(older);
    let updated = run(&["--", "true"]);
    assert_eq!(updated.code, 0, "{}", updated.err);
    // The schema is the number at byte 60 of an SQLite file.
    let mut newer = fs::read(&path).unwrap();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&path, &newer).unwrap();
    let refused = run(&["--", "touch", "ran"]);
    assert_eq!((refused.code, ran.exists()), (1, false), "{}", refused.err);
    assert!(refused.err.contains("has schema 99, and this version knows schemas up to"), "{}", refused.err);
    assert_eq!(fs::read(&path).unwrap(), newer, "it was left as it is");
}
