//! A disk that is really full.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold_project::{Fault, Options, Project, SaveError};

use crate::child::skipped;
use crate::folder::names;

/// A file system of its own with room for a few pages, gone when it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "leasehold-test"]).arg(place.path());
        let mounted = mount.stderr(Stdio::null()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            skipped("a full disk: this user, or this container, may not mount one");
            return None;
        }
        Some(Self(place))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves no room for another byte.
    fn fill(&self) {
        let mut size = 64 * 1024;
        let mut number = 0;
        while size > 0 {
            number += 1;
            let name = self.path().join(format!("filler-{number}"));
            if fs::write(&name, vec![0; size]).is_err() {
                fs::remove_file(&name).unwrap();
                size /= 2;
            }
        }
    }

    fn make_room(&self) {
        for name in names(self.path()).iter().filter(|name| name.starts_with("filler")) {
            fs::remove_file(self.path().join(name)).unwrap();
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the thread of a project that was dropped a moment ago may have it open still.
        let unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()) || std::thread::panicking(),
            "it stays mounted"
        );
    }
}

fn without_filler(place: &Path) -> Vec<String> {
    names(place).into_iter().filter(|name| !name.starts_with("filler")).collect()
}

// A save that failed for want of room left its temporary file behind, which took even more of it.
#[test]
fn on_a_full_disk_nothing_is_lost_and_nothing_is_left_behind() {
    let Some(disk) = SmallDisk::new() else { return };
    let project = Project::open(disk.path()).unwrap();
    let guard = project.acquire(Options::default()).unwrap();
    guard.save("plan.json", b"old").unwrap();
    let before = without_filler(disk.path());
    disk.fill();
    let refused = guard.save("plan.json", b"new").unwrap_err();
    assert!(matches!(&refused, SaveError::NoSpace(error) if error.said.contains("No space")), "{refused}");
    assert_eq!(fs::read(disk.path().join("plan.json")).unwrap(), b"old");
    assert_eq!(without_filler(disk.path()), before);
    assert!(guard.is_held(), "it goes on as soon as there is room");
    disk.make_room();
    guard.save("plan.json", b"new").unwrap();
    assert_eq!(fs::read(disk.path().join("plan.json")).unwrap(), b"new");
}

#[test]
fn attempts_on_a_full_disk_leave_nothing_behind() {
    let Some(disk) = SmallDisk::new() else { return };
    let project = Project::open(disk.path()).unwrap();
    project.acquire(Options::default()).unwrap().release().unwrap();
    disk.fill();
    let refused = project.acquire(Options::default()).unwrap_err();
    assert_eq!(refused.fault, Fault::Exhausted);
    assert!(refused.to_string().contains("No space"), "{refused}");
    assert_eq!(without_filler(disk.path()), [".lock.guard"]);
    disk.make_room();
    project.acquire(Options::default()).unwrap().save("plan.json", b"new").unwrap();
}
