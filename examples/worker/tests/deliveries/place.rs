//! Where the jobs of a test are, and what can be expected there.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::emulator::emulator;
use crate::server::server;

pub struct Place {
    folder: TempDir,
    /// The store's URL.
    pub store: String,
    /// How many deliveries come at once.
    pub deliveries: usize,
    /// How long an attempt lasts without being refreshed.
    pub ttl: Duration,
}

impl Place {
    fn new(store: String, deliveries: usize) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store, deliveries, ttl: Duration::from_secs(2) }
    }

    /// A file that all workers share.
    pub fn file() -> Self {
        let mut place = Self::new(String::new(), 50);
        place.store = format!("embedded:{}?mode=shared", place.folder.path().join("leases.db").display());
        place
    }

    /// A database of one's own.
    pub async fn postgres() -> Option<Self> {
        let server = server()?;
        Some(Self::new(server.url(&server.create_database().await), 50))
    }

    /// A project of one's own. The emulator takes seconds where several write at once: fewer deliveries, and longer
    /// attempts.
    pub fn firestore() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let store = format!("firestore:worker-{}-{number}?emulator={}", std::process::id(), emulator()?.host);
        Some(Self { ttl: Duration::from_secs(5), ..Self::new(store, 4) })
    }

    /// A Firestore that is not there.
    pub fn nowhere() -> Self {
        Self::new("firestore:nowhere?emulator=https://127.0.0.1:1".to_owned(), 1)
    }

    /// Where the workers write down what they do.
    pub fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}
