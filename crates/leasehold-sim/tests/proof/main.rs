//! The proof, as far as there is one: simulated worlds, and a walk through every state of small ones. `docs/proof.md` is the guide.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bites;
mod project;
mod small;
mod small_jobs;
mod tabs;
mod worlds;
