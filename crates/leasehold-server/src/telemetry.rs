//! The collector: counts of what locks and autosaves do, one line of JSON every few seconds, in a folder of its own.
//!
//! Recording never waits and never fails: counts gather in memory, within a bound, and a task writes them. What does not fit
//! is dropped, and how much is itself counted. A full disk never stops the server; what is gathered is written once there is
//! room again. Nothing is written outside of the folder, and no file of a project is ever read: all that comes in are events.

mod folder;
mod read;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::flags::PhaseName;
use leasehold_core::telemetry::{Counts, Event};
use leasehold_core::wire::telemetry::TelemetryLine;
use tokio_util::sync::CancellationToken;

use crate::config::WallClock;
use crate::files::ConfigError;
use crate::metrics::Metrics;
use folder::Folder;
pub use folder::Keep;
pub use read::{Recorded, read, read_by};

/// A line has what was counted in so many milliseconds.
pub const SLOT_MS: u64 = 10_000;

/// How often the server writes what has gathered.
const WRITE_EVERY: Duration = Duration::from_millis(SLOT_MS);

/// How many slots may wait for a disk that cannot be written: an hour.
const MOST_SLOTS: usize = 360;

/// How many counts may wait in all. Honest senders fill a few dozen a slot.
const MOST_COUNTS: usize = 20_000;

/// Counts into a folder.
pub struct Collector {
    pending: Mutex<Pending>,
    folder: Mutex<Folder>,
    metrics: OnceLock<Metrics>,
}

/// What is not written yet.
#[derive(Default)]
struct Pending {
    slots: BTreeMap<u64, Counts>,
    /// How many events were dropped since the last line.
    dropped: u64,
}

impl Collector {
    /// Opens the folder, or creates it. One with other files in it, or one that another process collects into, is refused.
    pub fn open(folder: &Path, keep: Keep) -> Result<Self, ConfigError> {
        let folder = Folder::open(folder, keep)?;
        Ok(Self { pending: Mutex::default(), folder: Mutex::new(folder), metrics: OnceLock::new() })
    }

    /// Counts in these metrics, too, from now on.
    pub(crate) fn report_to(&self, metrics: &Metrics) {
        let _ = self.metrics.set(metrics.clone());
    }

    /// Counts events that happen in `phase` at `now`.
    pub fn record(&self, phase: &PhaseName, events: &[Event], now: u64) {
        let mut counts = Counts::default();
        events.iter().for_each(|event| counts.add(phase, event, 1));
        self.add(&counts, now);
    }

    /// Counts what was counted elsewhere.
    pub fn add(&self, counts: &Counts, now: u64) {
        let dropped = self.lock().add(counts, now - now % SLOT_MS);
        let Some(metrics) = self.metrics.get() else { return };
        metrics.telemetry_counted(&counts.summary(None), counts.total());
        metrics.telemetry_dropped(dropped);
    }

    /// Writes what has gathered. What cannot be written stays for the next time.
    pub fn flush(&self, now: u64) -> io::Result<()> {
        // One at a time: the order of lines is that of the slots.
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        folder.remove_old(now);
        let Pending { mut slots, mut dropped } = std::mem::take(&mut *self.lock());
        let mut failed = Ok(());
        while let Some((at, counts)) = slots.pop_first() {
            match folder.append(&TelemetryLine::new(at, &counts, dropped)) {
                Ok(true) => dropped = 0,
                Ok(false) => {
                    let lost = counts.total();
                    dropped = dropped.saturating_add(lost);
                    self.metrics.get().inspect(|metrics| metrics.telemetry_dropped(lost));
                }
                Err(error) => {
                    slots.insert(at, counts);
                    failed = Err(error);
                    break;
                }
            }
        }
        self.lock().put_back(slots, dropped);
        failed
    }

    /// Writes every few seconds until the shutdown, and then once more.
    pub(crate) async fn run(self: Arc<Self>, wall_clock: WallClock, shutdown: CancellationToken) {
        let mut is_failing = false;
        loop {
            let is_over = tokio::select! {
                () = shutdown.cancelled() => true,
                () = tokio::time::sleep(WRITE_EVERY) => false,
            };
            let (collector, now) = (self.clone(), wall_clock());
            // Writing a file blocks, so it runs on a thread of its own.
            let written = tokio::task::spawn_blocking(move || collector.flush(now)).await;
            let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
            if let Err(error) = &written {
                self.metrics.get().inspect(|metrics| metrics.telemetry_failed());
                if !is_failing {
                    tracing::warn!(%error, "telemetry cannot be written; it gathers in memory, and is tried again");
                }
            }
            is_failing = written.is_err();
            if is_over {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// Adds counts to a slot; answers how many events were dropped for it.
    fn add(&mut self, counts: &Counts, slot: u64) -> u64 {
        let mut lost = 0;
        if self.slots.len() >= MOST_SLOTS && !self.slots.contains_key(&slot) {
            // The newest say how things are now.
            lost += self.slots.pop_first().map_or(0, |(_, oldest)| oldest.total());
        }
        let waiting: usize = self.slots.values().map(Counts::len).sum();
        if waiting + counts.len() > MOST_COUNTS {
            lost += counts.total();
        } else {
            self.slots.entry(slot).or_default().merge(counts);
        }
        self.dropped = self.dropped.saturating_add(lost);
        lost
    }

    /// Puts back what could not be written, in front of what came meanwhile.
    fn put_back(&mut self, slots: BTreeMap<u64, Counts>, dropped: u64) {
        self.dropped = self.dropped.saturating_add(dropped);
        for (slot, counts) in slots {
            self.slots.entry(slot).or_default().merge(&counts);
        }
    }
}

#[cfg(test)]
mod tests;
