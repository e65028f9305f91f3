//! Where leases are kept.
//!
//! A store is thin: it brings a key's slot and its own time to [`leasehold_core::decide`], makes the decision durable,
//! and only then lets anybody see it. No lease rule lives here.
//!
//! There are two levels. [`JobStore`] is what a mere document can hold: one record, changed atomically, on the store's
//! own clock. [`Store`] adds what needs the whole store: lists, a feed of events, and noticing what is due. Each law
//! of [`conformance`] says which level it needs.
//!
//! | URL | store |
//! |---|---|
//! | `memory:` | gone with the process; the reference that the others are compared with |
//! | `embedded:PATH` or just `PATH` | one file, one process, everything durable before it is acknowledged |
//! | `embedded:PATH?mode=shared` | the same file, shared by several processes of one machine |
//! | `postgres://USER:PASSWORD@HOST/DATABASE` | a PostgreSQL database, shared by servers on several machines |
//! | `firestore:PROJECT` | jobs in the fields of their own Firestore documents (a [`JobStore`]) |
//!
//! All but the first are behind the features `embedded`, `postgres` (both on by default) and `firestore`. The traits
//! and the store in memory are always there. The feature `conformance` adds what tests of a store need: the laws,
//! faults on purpose, and the check of histories.

pub mod bus;
#[doc(hidden)]
pub mod changes;
pub mod clock;
#[cfg(any(feature = "embedded", feature = "postgres", feature = "firestore"))]
#[cfg_attr(
    not(any(feature = "embedded", feature = "postgres")),
    allow(dead_code, reason = "Firestore uses only some of the columns")
)]
mod columns;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
#[cfg(feature = "conformance")]
pub mod faulty;
#[cfg(feature = "firestore")]
pub mod firestore;
#[cfg(feature = "conformance")]
pub mod history;
mod jitter;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod random;
#[doc(hidden)]
pub mod resident;
mod url;
#[cfg(feature = "embedded")]
#[doc(hidden)]
pub mod writer;

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::job::Record;
use leasehold_core::{
    Command, JobCommand, JobOutcome, Key, Outcome, Position, Published, Slot, StoreTime, lease,
};

pub use bus::Bus;
#[cfg(feature = "embedded")]
pub use embedded::{Embedded, Mode};
pub use error::{Error, Result, Retry};
#[cfg(feature = "firestore")]
pub use firestore::{Firestore, FirestoreUrl};
pub use jitter::jitter;
pub use memory::Memory;
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresUrl};
pub use url::{Kind, Opened, StoreUrl, not_a_whole_store, open, open_any, open_jobs};

/// The lower level: what a single document can hold.
#[async_trait]
pub trait JobStore: Send + Sync + 'static {
    /// Decides `command` on `key`, and answers once the decision is durable. An error's [`Retry`] says what is known
    /// about a command that was not answered.
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied>;

    /// What is there under `key`. An expiry that is due has been told before it is seen here.
    async fn read(&self, key: &Key) -> Result<Reading>;

    /// The same as [`JobStore::apply`] for a job: its lease and what is kept about it change together, or not at all.
    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied>;

    /// Whether the store's clock counts the milliseconds since 1970, so that its times can be shown to people as they are.
    fn counts_from_1970(&self) -> bool {
        false
    }
}

/// The upper level: a store that knows all of its keys.
#[async_trait]
pub trait Store: JobStore {
    /// The time on the store's clock.
    async fn now(&self) -> Result<StoreTime>;

    /// A page of the keys with a live lease, in the order of the keys.
    async fn list(&self, range: &Range) -> Result<Page>;

    /// The events after `after`, at most `limit` of them; waits until there is one. Dropping the future is safe.
    async fn events(&self, after: Position, limit: usize) -> Result<Feed>;

    /// Settles what is due by itself on at most `limit` keys: expiries are told, silent hand-overs take place.
    async fn settle_due(&self, limit: usize) -> Result<Settled>;

    /// What servers that share this store say to each other; `None` for a store that one server has to itself.
    fn bus(&self) -> Option<Arc<dyn Bus>> {
        None
    }
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// What was decided.
    pub outcome: Outcome,
    /// When, on the store's clock.
    pub now: StoreTime,
    /// Every event up to here had been told when it was decided.
    pub position: Position,
}

/// The answer to a command about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobApplied {
    /// What was decided.
    pub outcome: JobOutcome,
    /// The lease of the job and what is kept about it, as they are now. The lease is live.
    pub record: Record,
    /// When, on the store's clock.
    pub now: StoreTime,
    /// Every event up to here had been told when it was decided.
    pub position: Position,
}

/// What is there under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The slot; the lease in it is live.
    pub slot: Slot,
    /// When it was read, on the store's clock.
    pub now: StoreTime,
    /// Every event up to here is contained in what was read.
    pub position: Position,
}

/// Which part of the keys to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Only keys that begin like this; everything when empty.
    pub prefix: String,
    /// Only keys after this one.
    pub after: Option<Key>,
    /// At most so many, and never more than [`Range::MAX_LIMIT`].
    pub limit: usize,
}

impl Range {
    /// The longest page.
    pub const MAX_LIMIT: usize = 1_000;

    /// The first page of everything.
    pub fn all() -> Self {
        Self::prefix("")
    }

    /// The first page of the keys that begin with `prefix`.
    pub fn prefix(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), after: None, limit: Self::MAX_LIMIT }
    }

    /// Whether it has this key.
    #[cfg(feature = "embedded")]
    fn has(&self, key: &Key) -> bool {
        key.as_str().starts_with(&self.prefix) && self.after.as_ref().is_none_or(|after| key > after)
    }
}

/// Some of the keys with a live lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The slots, by key.
    pub slots: Vec<(Key, Slot)>,
    /// Whether there may be more: ask again with `after` set to the last key of this page.
    pub more: bool,
    /// When it was read, on the store's clock.
    pub now: StoreTime,
    /// Every event up to here is contained in this page. Who pages through the store follows the feed from the
    /// position of the *first* page, and skips what a slot's `seq` already contains.
    pub position: Position,
}

/// What the feed of events answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The next events, in order, without gaps. Never empty.
    Events(Vec<Published>),
    /// The events after the position asked for are not all there any more. List the store, then go on from
    /// `resume_from`.
    Gap {
        /// The position of the newest event.
        resume_from: Position,
    },
}

/// Where a consumer stands that has seen the events up to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is nothing new.
    UpToDate,
    /// There are events for it.
    Behind,
    /// Some of its events are gone, or it comes from another history of the store.
    Gap,
}

/// Compares the position `after` with the events that are kept.
#[inline]
pub(crate) fn standing(after: Position, oldest: Option<Position>, newest: Position) -> Standing {
    let oldest = oldest.map_or(newest.0 + 1, |position| position.0);
    match after {
        _ if after == newest => Standing::UpToDate,
        _ if after > newest || after.0 + 1 < oldest => Standing::Gap,
        _ => Standing::Behind,
    }
}

/// The longest batch of events.
pub const MAX_EVENTS: usize = 1_000;

/// What was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// On how many keys something was due.
    pub keys: usize,
    /// When something will be due next, as far as is known now.
    pub next_due: Option<StoreTime>,
    /// When this was, on the store's clock.
    pub now: StoreTime,
}

/// The limits of a store that somebody may want to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many leases one owner may hold.
    pub leases_per_owner: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { leases_per_owner: lease::LEASES_PER_OWNER }
    }
}

/// How many events a store keeps for its feed; older ones make a [`Feed::Gap`].
pub const EVENTS_KEPT: usize = 100_000;

/// How many ended lease ids, and how many free keys, a store remembers at most, however young they are.
pub const ENDINGS_KEPT: usize = 1_000_000;
