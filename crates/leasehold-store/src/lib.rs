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
//! | `firestore:PROJECT` | jobs in the fields of their own Firestore documents (a [`JobStore`]; feature `firestore`) |

pub mod clock;
mod columns;
pub mod conformance;
pub mod embedded;
mod error;
pub mod faulty;
#[cfg(feature = "firestore")]
pub mod firestore;
pub mod history;
pub mod memory;
pub mod postgres;
pub mod random;
#[doc(hidden)]
pub mod resident;

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::job::Record;
use leasehold_core::{
    Command, JobCommand, JobOutcome, Key, Outcome, Position, Published, Slot, StoreTime, lease,
};

pub use embedded::{Embedded, Mode};
pub use error::{Error, Result, Retry};
#[cfg(feature = "firestore")]
pub use firestore::{Firestore, FirestoreUrl};
pub use memory::Memory;
pub use postgres::{Postgres, PostgresUrl};

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

/// Opens the store that `url` names.
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    match open_any(url)? {
        Opened::Store(store) => Ok(store),
        Opened::Jobs(_) => Err(not_a_whole_store(url)),
    }
}

/// Why documents cannot be used where a whole store is needed, and what to do.
pub fn not_a_whole_store(url: &str) -> Error {
    let rule = "documents can hold jobs, but no lists and no events";
    let fix = "use it for jobs, and a file or PostgreSQL for everything else";
    leasehold_core::Invalid::new("store URL", url, rule, fix).into()
}

/// Opens the store that `url` names, for jobs: any store can hold them, and so can Firestore.
pub fn open_jobs(url: &str) -> Result<Arc<dyn JobStore>> {
    match open_any(url)? {
        Opened::Store(store) => Ok(store),
        Opened::Jobs(store) => Ok(store),
    }
}

/// Opens the store that `url` names, of whichever level it is.
pub fn open_any(url: &str) -> Result<Opened> {
    Ok(match StoreUrl::parse(url)? {
        StoreUrl::Memory => Opened::Store(Arc::new(Memory::new())),
        StoreUrl::Embedded { path, mode } => {
            Opened::Store(Arc::new(Embedded::options().mode(mode).open(path)?))
        }
        StoreUrl::Postgres(url) => Opened::Store(Arc::new(Postgres::options().open(&url)?)),
        #[cfg(feature = "firestore")]
        StoreUrl::Firestore(url) => Opened::Jobs(Arc::new(Firestore::options().open(&url))),
    })
}

/// An open store.
#[derive(Clone)]
pub enum Opened {
    /// Of the upper level.
    Store(Arc<dyn Store>),
    /// Of the lower level only.
    Jobs(Arc<dyn JobStore>),
}

/// A store's URL, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `memory:`
    Memory,
    /// `embedded:PATH`, with `?mode=exclusive` (the default) or `?mode=shared`; or a bare path.
    Embedded {
        /// The file.
        path: std::path::PathBuf,
        /// How it is opened.
        mode: Mode,
    },
    /// `postgres://…` or `postgresql://…`
    Postgres(PostgresUrl),
    /// `firestore:…`
    #[cfg(feature = "firestore")]
    Firestore(FirestoreUrl),
}

impl StoreUrl {
    /// Reads a URL, or says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self> {
        let refuse = |rule: &str, fix: &str| {
            // A password would stand before an `@`: such a URL is not repeated.
            let shown = if url.contains('@') { "(hidden, it may hold a password)" } else { url };
            Err(Error::Invalid(leasehold_core::Invalid::new("store URL", shown, rule, fix)))
        };
        let known = "write memory:, embedded:PATH, embedded:PATH?mode=shared, postgres://USER:PASSWORD@HOST/DATABASE, or \
                     firestore:PROJECT for jobs";
        match url.split_once(':') {
            _ if url.trim().is_empty() => refuse("it is empty", known),
            _ if url.contains('\0') => refuse("it holds a NUL character", known),
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("memory", _)) => refuse("nothing follows memory:", "write memory:"),
            Some(("embedded", rest)) => match parse_embedded(rest) {
                Some(parsed) => Ok(parsed),
                None => refuse("embedded: takes a path and at most ?mode=exclusive or ?mode=shared", known),
            },
            Some(_) if postgres::is_postgres(url) => PostgresUrl::parse(url).map(Self::Postgres),
            #[cfg(feature = "firestore")]
            Some(("firestore", _)) => FirestoreUrl::parse(url).map(Self::Firestore),
            #[cfg(not(feature = "firestore"))]
            Some(("firestore", _)) => {
                refuse("this program was built without Firestore", "build it with the feature `firestore`")
            }
            Some((scheme, _)) if looks_like_a_scheme(scheme) => {
                refuse("there is no such kind of store", known)
            }
            _ => Ok(Self::Embedded { path: url.into(), mode: Mode::Exclusive }),
        }
    }
}

fn parse_embedded(rest: &str) -> Option<StoreUrl> {
    let (path, mode) = match rest.split_once('?') {
        None => (rest, Mode::Exclusive),
        Some((path, "mode=exclusive")) => (path, Mode::Exclusive),
        Some((path, "mode=shared")) => (path, Mode::Shared),
        Some(_) => return None,
    };
    (!path.is_empty()).then(|| StoreUrl::Embedded { path: path.into(), mode })
}

/// One letter is a Windows drive, and a slash before the colon makes it a path.
fn looks_like_a_scheme(scheme: &str) -> bool {
    scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedded(path: &str, mode: Mode) -> StoreUrl {
        StoreUrl::Embedded { path: path.into(), mode }
    }

    #[test]
    fn a_url_names_a_store() {
        let cases = [
            ("memory:", StoreUrl::Memory),
            ("leases.db", embedded("leases.db", Mode::Exclusive)),
            ("./a:b/leases.db", embedded("./a:b/leases.db", Mode::Exclusive)),
            ("embedded:leases.db", embedded("leases.db", Mode::Exclusive)),
            ("embedded:/var/lib/leases.db?mode=shared", embedded("/var/lib/leases.db", Mode::Shared)),
        ];
        for (url, expected) in cases {
            assert_eq!(StoreUrl::parse(url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn a_bad_url_says_what_to_write() {
        for url in [
            "",
            " ",
            "memory:x",
            "embedded:",
            "embedded:a?mode=both",
            "embedded:?mode=shared",
            "redis://h",
            "postgres:h",
            "a\0b",
        ] {
            let error = StoreUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains("memory:"), "{url:?}: {error}");
        }
        let error = StoreUrl::parse("redis://me:hunter2@host/db").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
