//! Which store a URL names, and how it is opened. A program that was built without a kind of store says how to get it.

use std::sync::Arc;

use leasehold_core::Invalid;

#[cfg(feature = "embedded")]
use crate::embedded::{Embedded, Mode};
use crate::error::{Error, Result};
#[cfg(feature = "firestore")]
use crate::firestore::{Firestore, FirestoreUrl};
use crate::memory::Memory;
#[cfg(feature = "postgres")]
use crate::postgres::{Postgres, PostgresUrl};
use crate::{JobStore, Limits, Store};

/// Opens the store that `url` names.
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    StoreUrl::parse(url)?.open(Limits::default())?.whole(url)
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
    StoreUrl::parse(url)?.open(Limits::default())
}

/// An open store.
#[derive(Clone)]
pub enum Opened {
    /// Of the upper level.
    Store(Arc<dyn Store>),
    /// Of the lower level only.
    Jobs(Arc<dyn JobStore>),
}

impl Opened {
    /// The store, if it is of the upper level. `shown` is its URL as an error may repeat it.
    pub fn whole(self, shown: &str) -> Result<Arc<dyn Store>> {
        match self {
            Self::Store(store) => Ok(store),
            Self::Jobs(_) => Err(not_a_whole_store(shown)),
        }
    }
}

/// Why documents cannot be used where a whole store is needed, and what to do.
pub fn not_a_whole_store(url: &str) -> Error {
    let rule = "documents can hold jobs, but no lists and no events";
    let fix = "use it for jobs, and a file or PostgreSQL for everything else";
    Invalid::new("store URL", url, rule, fix).into()
}

/// The kinds of store. All of them have a name here, also those that this program was built without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In memory, gone with the process.
    Memory,
    /// One file.
    Embedded,
    /// A PostgreSQL database.
    Postgres,
    /// Firestore documents, for jobs.
    Firestore,
}

/// A store's URL, understood. There is one variant for each kind of store that this program was built with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `memory:`
    Memory,
    /// `embedded:PATH`, with `?mode=exclusive` (the default) or `?mode=shared`; or a bare path.
    #[cfg(feature = "embedded")]
    Embedded {
        /// The file.
        path: std::path::PathBuf,
        /// How it is opened.
        mode: Mode,
    },
    /// `postgres://…` or `postgresql://…`
    #[cfg(feature = "postgres")]
    Postgres(PostgresUrl),
    /// `firestore:…`
    #[cfg(feature = "firestore")]
    Firestore(FirestoreUrl),
}

const KNOWN: &str = "write memory:, embedded:PATH, embedded:PATH?mode=shared, \
                     postgres://USER:PASSWORD@HOST/DATABASE, or firestore:PROJECT for jobs";

impl StoreUrl {
    /// Reads a URL, or says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self> {
        match url.split_once(':') {
            _ if url.trim().is_empty() => refuse(url, "it is empty", KNOWN),
            _ if url.contains('\0') => refuse(url, "it holds a NUL character", KNOWN),
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("memory", _)) => refuse(url, "nothing follows memory:", "write memory:"),
            Some(("embedded", rest)) => parse_embedded(url, rest),
            Some(_) if is_postgres(url) => parse_postgres(url),
            Some(("firestore", _)) => parse_firestore(url),
            Some((scheme, _)) if looks_like_a_scheme(scheme) => {
                refuse(url, "there is no such kind of store", KNOWN)
            }
            _ => parse_embedded(url, url),
        }
    }

    /// Which kind of store it names.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Memory => Kind::Memory,
            #[cfg(feature = "embedded")]
            Self::Embedded { .. } => Kind::Embedded,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Kind::Postgres,
            #[cfg(feature = "firestore")]
            Self::Firestore(_) => Kind::Firestore,
        }
    }

    /// The file, if it names one.
    pub fn file(&self) -> Option<&std::path::Path> {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Opens the store, of whichever level it is.
    pub fn open(&self, limits: Limits) -> Result<Opened> {
        Ok(match self {
            Self::Memory => {
                let (clock, fence) = (Arc::new(crate::clock::SystemClock), crate::clock::unix_millis());
                Opened::Store(Arc::new(Memory::with(clock, limits, fence)))
            }
            #[cfg(feature = "embedded")]
            Self::Embedded { path, mode } => {
                Opened::Store(Arc::new(Embedded::options().mode(*mode).limits(limits).open(path)?))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => Opened::Store(Arc::new(Postgres::options().limits(limits).open(url)?)),
            #[cfg(feature = "firestore")]
            Self::Firestore(url) => Opened::Jobs(Arc::new(Firestore::options().open(url))),
        })
    }
}

fn refuse(url: &str, rule: &str, fix: &str) -> Result<StoreUrl> {
    // A password would be before an `@`: such a URL is not repeated.
    let shown = if url.contains('@') { "(hidden, it may hold a password)" } else { url };
    Err(Error::Invalid(Invalid::new("store URL", shown, rule, fix)))
}

/// Refuses a kind of store that this program was built without.
#[cfg(not(all(feature = "embedded", feature = "postgres", feature = "firestore")))]
fn built_without(url: &str, what: &str, feature: &str) -> Result<StoreUrl> {
    let fix = format!("build it with `--features {feature}`; the packaged programs have every kind of store");
    refuse(url, &format!("this program was built without {what}"), &fix)
}

#[cfg(feature = "embedded")]
fn parse_embedded(url: &str, rest: &str) -> Result<StoreUrl> {
    let is_bare_path = rest.len() == url.len();
    let (path, mode) = match rest.split_once('?') {
        _ if is_bare_path => (rest, Mode::Exclusive),
        None => (rest, Mode::Exclusive),
        Some((path, "mode=exclusive")) => (path, Mode::Exclusive),
        Some((path, "mode=shared")) => (path, Mode::Shared),
        Some(_) => ("", Mode::Exclusive),
    };
    if path.is_empty() {
        return refuse(url, "embedded: takes a path and at most ?mode=exclusive or ?mode=shared", KNOWN);
    }
    Ok(StoreUrl::Embedded { path: path.into(), mode })
}

#[cfg(not(feature = "embedded"))]
fn parse_embedded(url: &str, _: &str) -> Result<StoreUrl> {
    built_without(url, "the embedded file", "embedded")
}

#[cfg(feature = "postgres")]
fn parse_postgres(url: &str) -> Result<StoreUrl> {
    PostgresUrl::parse(url).map(StoreUrl::Postgres)
}

#[cfg(not(feature = "postgres"))]
fn parse_postgres(url: &str) -> Result<StoreUrl> {
    built_without(url, "PostgreSQL", "postgres")
}

#[cfg(feature = "firestore")]
fn parse_firestore(url: &str) -> Result<StoreUrl> {
    FirestoreUrl::parse(url).map(StoreUrl::Firestore)
}

#[cfg(not(feature = "firestore"))]
fn parse_firestore(url: &str) -> Result<StoreUrl> {
    built_without(url, "Firestore", "firestore")
}

/// Whether the URL is one of PostgreSQL's.
pub(crate) fn is_postgres(url: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
}

/// One letter is a Windows drive, and a slash before the colon makes it a path.
fn looks_like_a_scheme(scheme: &str) -> bool {
    scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(all(test, feature = "embedded"))]
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
