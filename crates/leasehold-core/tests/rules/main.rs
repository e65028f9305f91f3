//! The rules of the lease, law by law: `decide` through one small [`world::World`], the holder's side through one
//! small simulation. Nothing here reads a clock; every test says what time it is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod audit;
mod handover;
mod holder;
mod jobs;
mod model;
mod names;
mod table;
mod telemetry;
mod world;

use proptest::test_runner::Config as ProptestConfig;

/// So many cases of a property, unless `LEASEHOLD_CASES` says otherwise. A failing one is printed, and kept nowhere.
fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("LEASEHOLD_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}
