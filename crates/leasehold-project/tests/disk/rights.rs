//! Who may do what with the files: a lock is for everybody who may use its folder, and a save changes nobody's rights.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use leasehold_project::{Options, Project, ProjectFolder};
use leasehold_project_rules::guarded::{Action, Outcome};
use tempfile::TempDir;

use crate::child::{self, Child, NOBODY};
use crate::folder::{claim, must_acquire, names};
use crate::racing::bid;

/// A folder with these rights, which others can reach.
fn folder_with(mode: u32) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("project");
    fs::create_dir(&folder).unwrap();
    set_mode(place.path(), 0o755);
    set_mode(&folder, mode);
    (place, folder)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

fn lock_and_unlock(folder: &Path) {
    let mut folder = ProjectFolder::open(folder).unwrap();
    let grant = must_acquire(&mut folder, 1);
    folder.guarded(Action::Release(claim(&grant))).unwrap();
}

fn ask(other: &mut Child, what: &str, folder: &Path) -> String {
    other.order(&format!("{what} {}", folder.display()));
    other.told()
}

/// Plays another user, who looks at folders and locks them.
#[test]
fn child_of_another_user() {
    if !child::is_child() {
        return;
    }
    for order in child::orders() {
        let (what, path) = order.split_once(' ').unwrap();
        let mut folder = ProjectFolder::open(path).unwrap();
        let action = if what == "look" { Action::Look } else { Action::Acquire(bid(9)) };
        child::tell(&match folder.guarded(action).map(|verdict| verdict.outcome) {
            Ok(Outcome::Granted(_)) => "granted".into(),
            Ok(Outcome::Held(other)) => format!("held by {}", other.owner),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.said,
        });
    }
}

// `leasehold project status`, called by root in a folder that everybody may write to, made `.lock.guard` with root's owner
// and umask; from then on nobody else could lock the folder.
#[test]
fn a_look_makes_no_file() {
    let (_place, folder) = folder_with(0o1777);
    assert_eq!(ProjectFolder::open(&folder).unwrap().look().unwrap(), Outcome::Free);
    assert!(names(&folder).is_empty(), "{:?}", names(&folder));
    let Some(mut other) = Child::start_as_nobody("rights::child_of_another_user") else { return };
    assert_eq!(ask(&mut other, "lock", &folder), "granted");
}

#[test]
fn whoever_may_write_to_the_folder_may_lock_it_after_others() {
    let Some(mut other) = Child::start_as_nobody("rights::child_of_another_user") else { return };
    for rights in [0o777, 0o1777] {
        let (_place, folder) = folder_with(rights);
        lock_and_unlock(&folder);
        assert_eq!(mode(&folder.join(".lock.guard")), 0o666, "whatever the umask is");
        assert_eq!(ask(&mut other, "lock", &folder), "granted", "in a folder with {rights:o}");
    }
    // Root has looked after the folder of somebody else, which is private.
    let (_place, folder) = folder_with(0o700);
    chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    lock_and_unlock(&folder);
    assert_eq!(mode(&folder.join(".lock.guard")), 0o600);
    assert_eq!(ask(&mut other, "lock", &folder), "granted");
}

/// What `docs/desktop.md` says about `/tmp`.
#[test]
fn what_another_user_left_in_a_sticky_folder_is_in_the_way() {
    let Some(mut other) = Child::start_as_nobody("rights::child_of_another_user") else { return };
    let (_place, folder) = folder_with(0o1777);
    must_acquire(&mut ProjectFolder::open(&folder).unwrap(), 1);
    let left = names(&folder);
    for _ in 0..3 {
        let refused = ask(&mut other, "lock", &folder);
        assert!(refused.contains("Operation not permitted"), "{refused}");
    }
    assert_eq!(names(&folder), left, "it leaves nothing of its own");
    lock_and_unlock(&folder);
    assert_eq!(ask(&mut other, "lock", &folder), "granted");
}

// `leasehold project status` failed in a folder that one may only read, because it wanted to make a guard.
#[test]
fn a_look_needs_no_right_to_write() {
    let Some(mut other) = Child::start_as_nobody("rights::child_of_another_user") else { return };
    let (_place, folder) = folder_with(0o755);
    assert_eq!(ask(&mut other, "look", &folder), "Free", "nobody was ever here");
    let mut holder = ProjectFolder::open(&folder).unwrap();
    must_acquire(&mut holder, 1);
    let held = format!("held by process {}", std::process::id());
    assert_eq!(ask(&mut other, "look", &folder), held);
    let refused = ask(&mut other, "lock", &folder);
    assert!(refused.starts_with(".lock.guard: Permission denied"), "{refused}");
    drop(holder);
    assert_eq!(ask(&mut other, "look", &folder), "Free", "it is seen to be dead");
}

// A file that only its owner could read (0600) was readable by everybody (0644) after a save.
#[test]
fn a_save_leaves_the_rights_of_a_file_as_they_were() {
    let place = tempfile::tempdir().unwrap();
    let guard = Project::open(place.path()).unwrap().acquire(Options::default()).unwrap();
    let file = place.path().join("plan.json");
    for rights in [0o600, 0o640, 0o444, 0o755] {
        fs::write(&file, "old").unwrap();
        set_mode(&file, rights);
        guard.project().read("plan.json").unwrap();
        guard.save("plan.json", b"new").unwrap();
        assert_eq!((fs::read(&file).unwrap().as_slice(), mode(&file)), (&b"new"[..], rights));
        fs::remove_file(&file).unwrap();
    }
    guard.project().read("plan.json").unwrap();
    guard.save("plan.json", b"new").unwrap();
    let usual = place.path().join("usual");
    fs::write(&usual, "").unwrap();
    assert_eq!(mode(&file), mode(&usual), "a new file is like every other");
    if chown(&file, Some(NOBODY), Some(NOBODY)).is_err() {
        return child::skipped("a save by root leaves the owner of a file as it was: this is not root");
    }
    guard.save("plan.json", b"newer").unwrap();
    let now = fs::metadata(&file).unwrap();
    assert_eq!((now.uid(), now.gid()), (NOBODY, NOBODY));
}
