//! A project folder on a real disk, with real processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod autosave;
mod child;
mod doubles;
mod folder;
mod forked;
mod handover;
mod lock_files;
mod programs;
mod racing;
mod rights;
mod small_disk;
mod space;

#[path = "../../../leasehold-store/tests/stores/forks.rs"]
mod forks;

/// A number that a soak makes larger.
fn times(in_a_test: u32, in_a_soak: u32) -> u32 {
    if std::env::var_os("LEASEHOLD_SOAK").is_some() { in_a_soak } else { in_a_test }
}
