//! Real processes that are killed and stopped. Names begin with what is done to them: the soak command repeats them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod killed;
mod paused;

/// A number that a soak makes larger.
fn times(in_a_test: u32, in_a_soak: u32) -> u32 {
    if std::env::var_os("LEASEHOLD_SOAK").is_some() { in_a_soak } else { in_a_test }
}
