//! The laws, run by every store; the stores against each other; and what only a file can suffer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod damage;
mod differential;
mod disk;
mod epoch;
#[cfg(feature = "firestore")]
mod firestore;
mod forks;
mod harness;
mod laws;
mod migration;
#[cfg(feature = "postgres")]
mod postgres;
mod processes;
mod waiting;
