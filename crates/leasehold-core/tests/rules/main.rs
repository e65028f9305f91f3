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
mod world;
