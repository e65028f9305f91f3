//! The candidates. Each makes a batch durable before it returns, and can read all slots back.

pub mod fjall;
pub mod floor;
pub mod log;
pub mod redb;
pub mod sqlite;

use std::path::Path;

use anyhow::Result;

use crate::workload::{Batch, Key, Slot};

/// How much memory redb and fjall may use as a cache. SQLite has the 16 MiB that the store gives it.
const CACHE_BYTES: usize = 64 << 20;

pub trait Engine {
    /// Returns when all of the batch is durable.
    fn commit(&mut self, batch: &Batch) -> Result<()>;

    /// Shows every slot, checked against its checksum.
    fn load(&mut self, visit: &mut dyn FnMut(Key, Slot)) -> Result<()>;

    /// Waits for what the engine still does in the background, so that the next candidate does not pay for it.
    fn settle(&mut self) {}
}

/// Opens an engine in a folder of its own, and makes it if there is none yet.
pub type Open = fn(&Path) -> Result<Box<dyn Engine>>;

/// What is measured under one name.
pub struct Candidate {
    pub name: &'static str,
    pub open: Open,
    /// With how many callers it is measured.
    pub callers: &'static [usize],
}

const GROUPS: &[usize] = &[1, 16, 64, 1_024];

/// The candidate that all others are compared with.
pub const UNIT: &str = "sqlite, one commit per op";

pub static CANDIDATES: [Candidate; 8] = [
    Candidate { name: "append 256 B + fdatasync", open: floor::append, callers: &[1] },
    Candidate { name: "overwrite 256 B + fdatasync", open: floor::overwrite, callers: &[1] },
    Candidate { name: UNIT, open: sqlite::single, callers: &[1] },
    Candidate { name: "sqlite, group commit", open: sqlite::columns, callers: GROUPS },
    Candidate { name: "sqlite, group, blob values", open: sqlite::blobs, callers: GROUPS },
    Candidate { name: "redb, group commit", open: redb::open, callers: GROUPS },
    Candidate { name: "fjall, group commit", open: fjall::open, callers: GROUPS },
    Candidate { name: "own log, group commit", open: log::ring, callers: GROUPS },
];

/// Those whose restart is measured.
pub const RESTARTED: [(&str, Open); 4] =
    [("sqlite", sqlite::columns), ("redb", redb::open), ("fjall", fjall::open), ("own log", log::growing)];
