//! What people see: the real binary, its words, its JSON and its exit codes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod documents;
mod flags;
mod hardness;
mod help;
mod jobs;
mod local;
#[cfg(target_os = "linux")]
mod nodes;
mod project;
mod reporter;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod run_on_a_file;
#[cfg(target_os = "linux")]
mod run_on_a_server;
#[cfg(target_os = "linux")]
mod run_worst_days;
mod serve;
mod support;
mod telemetry;
mod watch;

/// What the PostgreSQL of the store's tests needs of the program that it is in.
#[cfg(target_os = "linux")]
mod harness {
    pub use crate::run::wait_for;
    pub use crate::support::skipped;
}

// The full disk that the tests of projects have, too.
#[cfg(target_os = "linux")]
#[allow(dead_code)] // those use more of it
#[path = "../../../leasehold-project/tests/disk/small_disk.rs"]
mod small_disk;

// The PostgreSQL that the tests of the store start, too.
#[cfg(target_os = "linux")]
#[allow(dead_code)] // the store's own tests use more of it
#[path = "../../../leasehold-store/tests/stores/postgres/server.rs"]
mod postgres_server;
