//! A disk that is really full.

use std::fs;
use std::path::Path;

use leasehold_project::{Fault, Options, Project, SaveError};

use crate::child::skipped;
use crate::folder::names;
use crate::small_disk::SmallDisk;

fn small_disk() -> Option<SmallDisk> {
    let disk = SmallDisk::of_kilobytes(64);
    if disk.is_none() {
        skipped("a full disk: this user, or this container, may not mount one");
    }
    disk
}

fn without_filler(place: &Path) -> Vec<String> {
    names(place).into_iter().filter(|name| !name.starts_with("filler")).collect()
}

// A save that failed for want of room left its temporary file behind, which took even more of it.
#[test]
fn on_a_full_disk_nothing_is_lost_and_nothing_is_left_behind() {
    let Some(disk) = small_disk() else { return };
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
    let Some(disk) = small_disk() else { return };
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
