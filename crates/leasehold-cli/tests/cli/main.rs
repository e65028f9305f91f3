//! What people see: the real binary, its words, its JSON and its exit codes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod documents;
mod hardness;
mod help;
mod jobs;
mod local;
mod project;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod run_on_a_server;
#[cfg(target_os = "linux")]
mod run_worst_days;
mod serve;
mod support;
mod watch;
