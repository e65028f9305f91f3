//! The server, called as its callers do. What is about time runs on virtual time: a test of five minutes takes none.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::needless_pass_by_value)] // a test fails by panicking

mod api;
mod audit;
mod connections;
mod flags;
mod harness;
mod jobs;
mod leases;
mod matrix;
mod openapi;
mod operators;
mod ownership;
mod page;
mod socket_page;
mod sockets;
mod stores;
mod streams;
mod telemetry;
mod timelines;
mod tokens;
mod trouble;
mod webhooks;

// The PostgreSQL that the tests of the store start, too.
#[allow(dead_code)] // the store's own tests use more of it
#[path = "../../../leasehold-store/tests/stores/postgres/server.rs"]
mod postgres_server;
