//! The rules of Leasehold.
//!
//! A lease is a promise with a deadline: holder H may act on key K, with fence F, until T. This crate decides
//! every transition of a lease ([`lease::decide`]) and plans what a holder does about its own ([`holder::Keeper`]).
//!
//! It must never read a clock, sleep, draw a random number, or do IO: `now` and randomness are arguments. That is
//! why the same code runs in the server, in a worker, in the command line and, compiled to WebAssembly, in a tab.

#![forbid(unsafe_code)]

pub mod backoff;
pub mod event;
pub mod flags;
pub mod holder;
pub mod job;
pub mod json;
pub mod lease;
pub mod name;
pub mod reporter;
pub mod telemetry;
pub mod time;
pub mod wire;

pub use backoff::{Backoff, Retries, RetryPolicy};
pub use event::{EndReason, Event, EventKind, Position, Published, Seq};
pub use holder::{Keeper, Lost};
pub use job::{Job, JobCommand, JobOutcome};
pub use json::{Json, JsonError};
pub use lease::{
    Claim, Command, Context, Decision, Held, Lease, OnSilence, Outcome, Proof, Right, Slot, decide,
};
pub use name::{
    Fence, Invalid, JobId, Key, LeaseId, LeaseName, Meta, Owner, Reason, RoomId, TabId, WorkerName,
};
pub use time::{HolderTime, StoreTime, Ttl};
