//! The project lock: the machine among other tabs, the guarded section, and the tables of the sources.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod autosave;
mod events_page;
mod guard;
mod handover;
mod machine;
mod section;
mod tables;
mod telemetry;
mod versions;
mod world;
