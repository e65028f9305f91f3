//! Real processes that are killed and stopped. Names begin with what is done to them: the soak command repeats them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod killed;
mod paused;

use std::io::Write;

fn is_soak() -> bool {
    std::env::var_os("LEASEHOLD_SOAK").is_some()
}

/// A number that a soak makes larger.
fn times(in_a_test: u32, in_a_soak: u32) -> u32 {
    if is_soak() { in_a_soak } else { in_a_test }
}

/// Says now and then how far a soak has come, which takes minutes. Not through `eprintln!`, which the test runner would
/// keep to itself.
fn how_far(done: u32, of: u32, what: &str) {
    if is_soak() && done.is_multiple_of((of / 20).max(1)) {
        std::io::stderr().write_all(format!("{done} of {of} {what}\n").as_bytes()).unwrap();
    }
}
