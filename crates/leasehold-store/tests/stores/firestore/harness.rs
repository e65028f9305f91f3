//! Firestore documents under a clock that only the test moves.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::clock::{ManualClock, unix_millis};
use leasehold_store::conformance::{JobHarness, Restart};
use leasehold_store::{Firestore, FirestoreUrl, JobStore};

use super::emulator::{Emulator, emulator};

pub struct FirestoreHarness {
    url: FirestoreUrl,
    clock: Arc<ManualClock>,
    /// As if each were in a process of its own: they take turns only where Firestore makes them.
    stores: Mutex<Vec<Arc<Firestore>>>,
}

/// How many want the same thing at once. The emulator sorts out one conflict in about two seconds.
const RACERS: u8 = 4;

/// A project of one's own: nobody else sees its documents.
pub fn project() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// The documents of a project in the emulator, on Firestore's own clock.
pub fn url(emulator: &Emulator, project: &str) -> FirestoreUrl {
    FirestoreUrl::new(project).unwrap().with("emulator", &emulator.host).unwrap()
}

impl FirestoreHarness {
    pub fn start() -> Option<Self> {
        Some(Self::with(url(emulator()?, &project())))
    }

    pub fn with(url: FirestoreUrl) -> Self {
        let clock = Arc::new(ManualClock::default());
        // Its times are of this century, as Firestore's are.
        clock.advance(Duration::from_millis(unix_millis()));
        let harness = Self { url, clock, stores: Mutex::default() };
        harness.open();
        harness
    }

    /// Opens all stores anew.
    fn open(&self) {
        let anew = || Arc::new(Firestore::options().clock(self.clock.clone()).open(&self.url));
        *self.stores.lock().unwrap() = (0..RACERS).map(|_| anew()).collect();
    }
}

#[async_trait]
impl JobHarness for FirestoreHarness {
    fn job_store(&self) -> Arc<dyn JobStore> {
        let mut stores = self.stores.lock().unwrap();
        stores.rotate_left(1);
        stores[0].clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// What ends is the worker. Firestore itself is Google's to keep running.
    async fn restart(&self, how: Restart) -> bool {
        if matches!(how, Restart::Restore | Restart::DownForAnHour) {
            return false;
        }
        self.open();
        true
    }

    fn racers(&self) -> u8 {
        RACERS
    }
}
