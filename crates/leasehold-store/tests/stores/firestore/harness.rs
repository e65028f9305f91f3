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
    store: Mutex<Arc<Firestore>>,
}

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
        let store = Mutex::new(Arc::new(Firestore::options().clock(clock.clone()).open(&url)));
        Self { url, clock, store }
    }
}

#[async_trait]
impl JobHarness for FirestoreHarness {
    fn job_store(&self) -> Arc<dyn JobStore> {
        self.store.lock().unwrap().clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// What ends is the worker. Firestore itself is Google's to keep running.
    async fn restart(&self, how: Restart) -> bool {
        if matches!(how, Restart::Restore | Restart::DownForAnHour) {
            return false;
        }
        let anew = Firestore::options().clock(self.clock.clone()).open(&self.url);
        *self.store.lock().unwrap() = Arc::new(anew);
        true
    }

    /// The emulator sorts out one conflict in about two seconds.
    fn racers(&self) -> u8 {
        4
    }
}
