//! Every state of small worlds.

use leasehold_sim::bug::Bug;
use leasehold_sim::model::{Bounds, walk};
use leasehold_sim::walk::Walk;

const TWO: Bounds =
    Bounds { clients: 2, steps: 6, attempts: 1, retries: 1, copies: 1, crashes: 1, renewals: 1 };
const TWO_TWICE: Bounds =
    Bounds { clients: 2, steps: 5, attempts: 2, retries: 0, copies: 1, crashes: 1, renewals: 0 };
const THREE: Bounds =
    Bounds { clients: 3, steps: 5, attempts: 1, retries: 0, copies: 1, crashes: 1, renewals: 0 };

fn all_states_are_right(bounds: Bounds) {
    let Walk { states, counterexample } = walk(bounds, None);
    println!("{bounds:?}: {states} states");
    assert_eq!(counterexample, None);
    assert!(states > 10_000, "only {states} states: the bounds leave nothing to walk through");
}

#[test]
fn two_clients() {
    all_states_are_right(TWO);
}

#[test]
fn two_clients_that_come_back() {
    all_states_are_right(TWO_TWICE);
}

#[test]
fn three_clients() {
    all_states_are_right(THREE);
}

fn finds(bug: Bug, bounds: Bounds, expected: &str) {
    let Walk { states, counterexample } = walk(bounds, Some(bug));
    let (wrong, trace) = counterexample.expect("a counterexample");
    println!("{} after {states} states: {wrong}\n  {}", bug.name(), trace.join("\n  "));
    assert!(wrong.contains(expected), "{wrong}");
}

#[test]
fn a_walk_finds_a_deadline_that_counts_from_the_answer() {
    finds(Bug::DeadlineFromAnswer, TWO, "which the store does not hold");
}

#[test]
fn a_walk_finds_a_release_without_compare() {
    finds(Bug::ReleaseWithoutCompare, TWO_TWICE, "which the store does not hold");
}

#[test]
fn a_walk_finds_a_second_grant() {
    finds(Bug::RetryGrantsTwice, TWO, "was granted with fence");
}

#[test]
fn a_walk_finds_a_fence_that_is_used_twice() {
    finds(Bug::FenceResetOnRelease, TWO_TWICE, "not larger than all before");
}

#[test]
fn a_walk_finds_a_revived_lease() {
    finds(Bug::ExpiredRevived, TWO, "had expired and was extended");
}
