//! Every state of small worlds around a project folder; and the algorithms that are known to be bad, each found out in the
//! same worlds.

use std::time::Instant;

use leasehold_sim::project::{Algorithm, Bounds, Walk, walk};

const WEB: bool = true;
const NO_WEB: bool = false;

const TWO: Bounds = Bounds {
    tabs: &[NO_WEB, NO_WEB],
    stale: false,
    steps: 4,
    attempts: 2,
    renewals: 1,
    saves: 1,
    crashes: 1,
    failures: 1,
    take_overs: 0,
};
const THREE: Bounds = Bounds { tabs: &[NO_WEB, NO_WEB, NO_WEB], attempts: 1, ..TWO };

fn all_states_are_right(bounds: Bounds) {
    let began = Instant::now();
    let Walk { states, recoveries, counterexample } = walk(&bounds, Algorithm::Ours);
    println!("{bounds:?}: {states} states, {recoveries} recoveries, {:?}", began.elapsed());
    if let Some((wrong, trace)) = counterexample {
        panic!("{wrong}\n  {}", trace.join("\n  "));
    }
    assert!(states > 10_000, "only {states} states: the bounds leave nothing to walk through");
    assert!(recoveries > 100, "only {recoveries} states with a lock that is to be recovered");
}

#[test]
fn two_tabs_without_web_locks() {
    all_states_are_right(TWO);
}

#[test]
fn two_tabs_with_web_locks() {
    all_states_are_right(Bounds { tabs: &[WEB, WEB], failures: 0, ..TWO });
}

#[test]
fn two_tabs_one_with_web_locks() {
    all_states_are_right(Bounds { tabs: &[WEB, NO_WEB], ..TWO });
}

#[test]
fn two_tabs_and_a_lock_taken_over_by_force() {
    all_states_are_right(Bounds { take_overs: 1, failures: 0, ..TWO });
}

#[test]
fn three_tabs_without_web_locks() {
    all_states_are_right(THREE);
}

#[test]
fn three_tabs_with_web_locks() {
    all_states_are_right(Bounds { tabs: &[WEB, WEB, WEB], failures: 0, ..THREE });
}

#[test]
fn three_tabs_one_without_web_locks() {
    all_states_are_right(Bounds { tabs: &[WEB, WEB, NO_WEB], failures: 0, ..THREE });
}

fn finds(algorithm: Algorithm, bounds: Bounds, expected: &str) {
    let Walk { states, counterexample, .. } = walk(&bounds, algorithm);
    let (wrong, trace) = counterexample.expect("a counterexample");
    println!("{algorithm:?} after {states} states: {wrong}\n  {}", trace.join("\n  "));
    assert!(wrong.contains(expected), "{wrong}");
}

#[test]
fn a_walk_finds_out_read_check_write() {
    finds(Algorithm::ReadCheckWrite, TWO, "both believe");
}

#[test]
fn a_walk_finds_out_write_then_verify() {
    finds(Algorithm::WriteThenVerify, TWO, "both believe");
}

#[test]
fn a_walk_finds_out_rename_claim() {
    finds(Algorithm::RenameClaim, Bounds { stale: true, ..TWO }, "both believe");
}

#[test]
fn a_walk_finds_out_a_guard_without_fenced_commit() {
    finds(Algorithm::UnfencedCommit, Bounds { failures: 0, ..TWO }, "saves with fence");
}

#[test]
fn a_walk_finds_out_a_commit_without_its_base() {
    finds(
        Algorithm::BaselessCommit,
        Bounds { failures: 0, ..TWO },
        "overwrites save 1 with what it made from 0",
    );
}

#[test]
fn a_walk_finds_out_the_web_lock_as_ownership() {
    finds(Algorithm::WebLockAsOwnership, Bounds { tabs: &[WEB, NO_WEB], saves: 0, ..TWO }, "both believe");
}

#[test]
fn a_walk_finds_out_one_shared_held_file() {
    finds(Algorithm::SharedHeld, THREE, "both believe");
}
