//! Worlds of tabs with the real machine.

use leasehold_sim::tabs::{Counts, Mistake, run};

/// So many worlds, of a quarter of an hour each.
const SEEDS: u64 = 150;

#[test]
fn one_owner_in_every_world_of_tabs() {
    let mut all = Counts::default();
    for seed in 0..SEEDS {
        let run = run(seed, None);
        let story = run.story.iter().map(|line| format!("{line}\n")).collect::<String>();
        assert_eq!(run.wrong, None, "in the world of seed {seed}, which ended so:\n{story}");
        all.granted += run.counts.granted;
        all.saved += run.counts.saved;
        all.refused += run.counts.refused;
        all.stale += run.counts.stale;
        all.readonly += run.counts.readonly;
        all.crashed += run.counts.crashed;
        all.paused += run.counts.paused;
        all.handed_over += run.counts.handed_over;
        all.silent += run.counts.silent;
    }
    println!("{SEEDS} worlds: {all:?}");
    assert!(
        all.granted > 1_000 && all.saved > 10_000 && all.refused > 10 && all.stale > 100 && all.crashed > 100,
        "{all:?}"
    );
    assert!(all.handed_over > 100 && all.silent > 10, "{all:?}");
}

#[test]
fn a_save_that_is_not_checked_under_the_guard_is_found_out() {
    let caught = (0..SEEDS).find_map(|seed| run(seed, Some(Mistake::Unfenced)).wrong);
    let caught = caught.expect("a lost save");
    assert!(caught.contains("saved with fence"), "{caught}");
}

/// A tab that had loaded "v1" became the holder after another one had saved "v2", and put its "v1!" over it.
#[test]
fn a_save_that_skips_its_base_is_found_out() {
    let caught = (0..SEEDS).find_map(|seed| run(seed, Some(Mistake::Baseless)).wrong);
    let caught = caught.expect("a lost save");
    assert!(caught.contains("which it is not made from"), "{caught}");
}

/// The holder was frozen, and knew nothing of the countdown that it lost the project by.
#[test]
fn a_countdown_that_begins_before_the_holder_was_told_is_found_out() {
    let caught = (0..SEEDS).find_map(|seed| run(seed, Some(Mistake::Hasty)).wrong);
    let caught = caught.expect("a holder that was not told");
    assert!(caught.contains("by a silent holder"), "{caught}");
}

#[test]
fn the_same_seed_gives_the_same_world() {
    assert_eq!(run(5, None).counts, run(5, None).counts);
}
