//! Every state of small jobs.

use leasehold_sim::job_model::{Bounds, JobBug, walk};
use leasehold_sim::walk::Walk;

const TWO: Bounds =
    Bounds { workers: 2, steps: 5, asks: 1, retries: 1, copies: 1, crashes: 1, failures: 1, max_attempts: 2 };
const TWO_TWICE: Bounds = Bounds { asks: 2, copies: 0, retries: 0, steps: 4, max_attempts: 3, ..TWO };
const THREE: Bounds = Bounds { workers: 3, retries: 0, copies: 0, ..TWO };

fn all_states_are_right(bounds: Bounds) {
    let Walk { states, counterexample } = walk(bounds, None);
    println!("{bounds:?}: {states} states");
    assert_eq!(counterexample, None);
    assert!(states > 10_000, "only {states} states: the bounds leave nothing to walk through");
}

#[test]
fn two_workers() {
    all_states_are_right(TWO);
}

#[test]
fn two_workers_that_come_back() {
    all_states_are_right(TWO_TWICE);
}

#[test]
fn three_workers() {
    all_states_are_right(THREE);
}

fn finds(bug: JobBug, expected: &str) {
    let Walk { states, counterexample } = walk(TWO, Some(bug));
    let (wrong, trace) = counterexample.expect("a counterexample");
    println!("{bug:?} after {states} states: {wrong}\n  {}", trace.join("\n  "));
    assert!(wrong.contains(expected), "{wrong}");
}

#[test]
fn a_walk_finds_a_late_result_that_counts() {
    finds(JobBug::CompleteWithoutCompare, "which is over");
}

#[test]
fn a_walk_finds_a_finished_job_that_is_done_again() {
    finds(JobBug::FinishedNotChecked, "a job that was Ready");
}

#[test]
fn a_walk_finds_a_repeated_request_that_counts_as_another_attempt() {
    finds(JobBug::RetryIsAnotherAttempt, "attempts were granted");
}

#[test]
fn a_walk_finds_a_failure_that_ends_the_job_too_early() {
    finds(JobBug::FailureForgets, "was given up after 1 attempts");
}

#[test]
fn a_walk_finds_a_job_that_is_forgotten() {
    finds(JobBug::VanishedKeepsIt, "the job is forgotten");
}
