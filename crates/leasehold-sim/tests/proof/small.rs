//! Every state of small worlds.

use leasehold_sim::bug::Bug;
use leasehold_sim::client::ClaimBy;
use leasehold_sim::model::{Bounds, walk};
use leasehold_sim::walk::Walk;

const TWO: Bounds = Bounds {
    clients: 2,
    claims: ClaimBy::Proof,
    steps: 6,
    attempts: 1,
    retries: 1,
    copies: 1,
    crashes: 1,
    renewals: 1,
};
const TWO_TWICE: Bounds = Bounds { steps: 5, attempts: 2, retries: 0, renewals: 0, ..TWO };
const THREE: Bounds = Bounds { clients: 3, attempts: 1, ..TWO_TWICE };
/// One attempt each: by tab, a late release ends the same tab's next lease too, and its holder learns that afterwards.
const BY_TAB: Bounds = Bounds { claims: ClaimBy::Tab, retries: 0, steps: 5, ..TWO };
const THREE_BY_TAB: Bounds = Bounds { claims: ClaimBy::Tab, steps: 4, ..THREE };
const BY_HOLDER: Bounds = Bounds { claims: ClaimBy::Holder, ..TWO_TWICE };

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

#[test]
fn two_clients_that_claim_by_owner_and_lease_id() {
    all_states_are_right(BY_HOLDER);
}

#[test]
fn two_clients_that_claim_by_owner_and_tab() {
    all_states_are_right(BY_TAB);
}

#[test]
fn three_clients_that_claim_by_owner_and_tab() {
    all_states_are_right(THREE_BY_TAB);
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
fn a_walk_finds_a_claim_by_tab_without_its_owner() {
    finds(Bug::TabWithoutOwner, BY_TAB, "which the store does not hold");
}

#[test]
fn a_walk_finds_a_claim_that_is_copied_out_of_the_record() {
    finds(Bug::ClaimFromRecord, BY_HOLDER, "which the store does not hold");
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
