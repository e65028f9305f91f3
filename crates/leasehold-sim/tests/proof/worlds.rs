//! Worlds without a mistake.

use leasehold_sim::world;

/// So many worlds here; `cargo xtask test` lives through a thousand hours of them, optimised.
const SEEDS: u64 = 20;

#[test]
fn all_laws_hold_in_every_world() {
    for seed in 0..SEEDS {
        let run = world::run(seed, None, false);
        assert_eq!(run.violation, None, "replay it with: cargo xtask sim --seed {seed}");
        assert!(run.counts.granted > 0 && run.counts.written > 0, "nothing happened in world {seed}");
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let (first, second) = (world::run(3, None, true), world::run(3, None, true));
    assert!(first.story.len() > 1_000);
    assert_eq!(first.story, second.story);
    let untold = world::run(3, None, false);
    assert_eq!((untold.counts, untold.lasted), (first.counts, first.lasted), "telling changes nothing");
}

#[test]
fn another_seed_tells_another_story() {
    assert_ne!(world::run(3, None, true).story, world::run(4, None, true).story);
}
