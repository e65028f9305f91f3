//! `leasehold project`: a folder on disk, locked by processes.

use std::fs;

use crate::support::{Holder, run};

#[test]
fn project_lock_is_seen_respected_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("house")).unwrap();
    assert_eq!(run(&folder, &["project", "status", "house"]).code, 0);
    let anna = Holder::start(&folder, &["project", "lock", "house", "--owner", "anna", "--json"]);
    let status = run(&folder, &["project", "status", "house"]);
    assert_eq!(status.code, 75, "{}{}", status.out, status.err);
    assert!(status.out.starts_with("! house is held by anna\n"), "{}", status.out);
    let refused = run(&folder, &["project", "lock", "house", "--owner", "ben"]);
    assert_eq!(refused.code, 75, "{}{}", refused.out, refused.err);
    assert!(refused.out.starts_with("! house is held by anna (fence N)"), "{}", refused.out);
    let kept = run(&folder, &["project", "unlock", "house"]);
    assert_eq!(kept.code, 75, "{}", kept.out);
    drop(anna); // killed: nothing was released, and it is noticed at once
    let status = run(&folder, &["project", "status", "house", "--json"]);
    assert_eq!((status.code, status.out.as_str()), (0, "{\"locked\":false}"));
    assert!(folder.path().join("house/.lock").exists(), "a look changes nothing");
    let unlocked = run(&folder, &["project", "unlock", "house"]);
    assert_eq!((unlocked.code, unlocked.out.as_str()), (0, "✓ house is free"));
    assert!(!folder.path().join("house/.lock").exists());
}

#[test]
fn project_unlock_by_force_is_noticed_by_the_holder() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("house")).unwrap();
    let _anna = Holder::start(&folder, &["project", "lock", "house", "--owner", "anna", "--json"]);
    let forced = run(&folder, &["project", "unlock", "house", "--force"]);
    assert_eq!((forced.code, forced.out.as_str()), (0, "✓ house is free"), "{}", forced.err);
    assert_eq!(run(&folder, &["project", "status", "house"]).code, 0);
}

#[test]
fn project_refuses_folders_that_are_not_its_own() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("collector")).unwrap();
    for (name, expected) in
        [("collector", "never inside collector/"), ("nowhere", "name a folder that exists")]
    {
        let refused = run(&folder, &["project", "lock", name]);
        assert_eq!(refused.code, 1, "{}", refused.out);
        assert!(refused.err.contains(expected), "{}", refused.err);
    }
}
