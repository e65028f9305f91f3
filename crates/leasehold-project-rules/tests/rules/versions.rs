//! Base versions: a tab that comes back cannot put its old memory over what another one has saved.

use leasehold_project_rules::event::Event;
use leasehold_project_rules::{Base, IoStep, Options, Profile, Version};

use crate::world::{FILE, Trouble, Web, World};

fn autosave() -> Options {
    Options { auto_resume: Some(true), ..Options::of(Profile::Autosave) }
}

/// Two tabs that have both read `v1`. The first one holds.
fn two() -> World {
    let mut world = World::new(&[Web::Works, Web::Works]);
    world.folder.file = "v1".into();
    world.read(0);
    world.read(1);
    world.acquire(0, &autosave());
    world
}

/// Whether the tab was told that the project had changed, at each of its acquires.
fn changes(world: &World, tab: usize) -> Vec<bool> {
    let changed = |event: &Event| match event {
        Event::Acquired { changed, .. } => Some(*changed),
        _ => None,
    };
    world.tabs[tab].events.iter().filter_map(changed).collect()
}

/// Tab B had loaded "v1"; A saved "v2" and was closed; B became the holder, and one key in it stored "v1!".
#[test]
fn a_tab_that_gets_the_project_later_does_not_overwrite_what_was_saved() {
    let mut world = two();
    let call = world.save(0, world.claim(0), "v2", Base::LastSeen);
    assert_eq!(world.saved(0, call), "saved");
    world.acquire(1, &autosave());
    world.release(0);
    world.advance(2_000);
    assert!(world.holds(1));
    assert_eq!(changes(&world, 1), [true]);
    let call = world.save(1, world.claim(1), "v1!", Base::LastSeen);
    assert_eq!((world.saved(1, call), world.folder.file.as_str()), ("stale-base", "v2"));
    // It is still the holder, and what it could lose was made from v1.
    assert!(world.holds(1));
    let base = world.tabs[1].machine.unsaved(FILE, &Version::new("v1!"));
    assert_eq!(base, Some(Version::new("v1")));
    world.read(1);
    let call = world.save(1, world.claim(1), "v3", Base::LastSeen);
    assert_eq!((world.saved(1, call), world.folder.file.as_str()), ("saved", "v3"));
    assert_eq!(world.tabs[1].machine.unsaved(FILE, &Version::new("v3")), None);
}

#[test]
fn a_tab_that_was_frozen_is_told_whether_the_project_changed() {
    for saves in [false, true] {
        let mut world = two();
        world.tab(0, |machine, _, now| machine.handle_frozen(now));
        world.acquire(1, &autosave());
        if saves {
            world.save(1, world.claim(1), "v2", Base::LastSeen);
        }
        world.release(1);
        world.tab(0, |machine, _, now| machine.handle_resumed(now));
        world.advance(6_000);
        assert!(world.holds(0));
        assert_eq!(changes(&world, 0), [false, saves]);
        let call = world.save(0, world.claim(0), "v1!", Base::LastSeen);
        assert_eq!(world.saved(0, call), if saves { "stale-base" } else { "saved" });
    }
}

#[test]
fn a_save_replaces_the_version_that_it_was_made_from() {
    let none = || Base::Exactly(Version::NO_FILE);
    let exactly = |version: &str| Base::Exactly(Version::new(version));
    for (there, read, base, expected) in [
        ("", false, Base::LastSeen, "saved"),
        ("v1", false, Base::LastSeen, "stale-base"),
        ("v1", false, Base::Overwrite, "saved"),
        ("v1", false, exactly("v1"), "saved"),
        ("v1", true, Base::LastSeen, "saved"),
        ("v1", true, exactly("v0"), "stale-base"),
        ("v1", true, none(), "stale-base"),
        ("", true, none(), "saved"),
        ("", true, exactly("v1"), "stale-base"),
        // What is to be saved is there already.
        ("new", false, Base::LastSeen, "saved"),
    ] {
        let mut world = World::new(&[Web::Unsupported]);
        world.folder.file = there.into();
        if read {
            world.read(0);
        }
        world.acquire(0, &autosave());
        let call = world.save(0, world.claim(0), "new", base.clone());
        assert_eq!(world.saved(0, call), expected, "{there:?}, read: {read}, {base:?}");
        let left = if expected == "saved" { "new" } else { there };
        assert_eq!(world.folder.file, left, "{there:?}, read: {read}, {base:?}");
    }
}

/// A save was reported as failed although it had taken effect. The next one, with one more word in it, was refused as if another
/// tab had saved.
#[test]
fn a_save_that_may_have_taken_effect_does_not_stand_in_the_way_of_the_next() {
    let mut world = two();
    world.folder.trouble = Some(Trouble::SaveUnknown);
    for version in ["v2", "v3"] {
        let call = world.save(0, world.claim(0), version, Base::LastSeen);
        assert_eq!((world.saved(0, call), world.folder.file.as_str()), ("write", version));
    }
    world.folder.trouble = None;
    let call = world.save(0, world.claim(0), "v4", Base::LastSeen);
    assert_eq!(world.saved(0, call), "saved");
}

/// Whether the file had changed was not known, because it could not be read. Had the save been refused as made from an old
/// version, the application would have shown a conflict that nobody had caused.
#[test]
fn a_save_that_cannot_look_at_the_file_is_an_error_and_no_conflict() {
    let mut world = two();
    world.folder.trouble = Some(Trouble::Version);
    let call = world.save(0, world.claim(0), "v2", Base::LastSeen);
    assert_eq!((world.saved(0, call), world.folder.file.as_str()), ("read", "v1"));
    world.folder.trouble = None;
    let call = world.save(0, world.claim(0), "v2", Base::LastSeen);
    assert_eq!((world.saved(0, call), world.folder.file.as_str()), ("saved", "v2"));
}

/// The application asked for a save, and then read the newer file before the save had its turn: the save counted as made from
/// what was read.
#[test]
fn a_save_is_made_from_what_was_read_before_it_was_asked_for() {
    let mut world = two();
    world.folder.file = "v2".into();
    world.folder.guarded_by = Some(7);
    let call = world.save(0, world.claim(0), "v1!", Base::LastSeen);
    world.read(0);
    let next = world.save(0, world.claim(0), "v3", Base::LastSeen);
    world.folder.guarded_by = None;
    world.advance(100);
    assert_eq!((world.saved(0, call), world.saved(0, next)), ("stale-base", "saved"));
    assert_eq!(world.folder.file, "v3");
}

#[test]
fn the_version_is_compared_under_the_guard_of_the_save_and_after_that_of_an_acquire() {
    let mut world = two();
    world.release(0);
    let steps = |world: &mut World| std::mem::take(&mut world.folder.steps);
    steps(&mut world);
    world.acquire(0, &autosave());
    let read = |step: &IoStep| matches!(step, IoStep::ReadVersion(_));
    let taken = steps(&mut world);
    let at = taken.iter().position(read).expect("a look at the file");
    assert_eq!(taken[at - 1], IoStep::DropGuard);
    world.save(0, world.claim(0), "v2", Base::LastSeen);
    let taken = steps(&mut world);
    let at = taken.iter().position(read).expect("a look at the file");
    assert!(matches!(taken[at + 1], IoStep::Save(_)), "{taken:?}");
    assert_eq!(taken.iter().filter(|step| **step == IoStep::DropGuard).count(), 1);
}

#[test]
fn a_tab_that_is_refused_looks_at_no_file() {
    let mut world = two();
    world.folder.steps.clear();
    world.acquire(1, &autosave());
    world.advance(10_000);
    assert!(!world.folder.steps.is_empty());
    assert!(!world.folder.steps.iter().any(|step| matches!(step, IoStep::ReadVersion(_))));
}
