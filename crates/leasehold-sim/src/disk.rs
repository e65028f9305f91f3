//! What outlives a crash: the rows that the embedded store would have in its file.

use std::collections::BTreeMap;

use leasehold_core::lease::REMEMBERED;
use leasehold_core::{Key, Published, Slot, StoreTime};
use leasehold_store::resident::{Counters, Ending, Resident, Staged};

/// How many endings are kept before the old ones are deleted.
const TRIM: usize = 500;

/// Everything durable. A transaction is written whole or not at all.
#[derive(Debug, Default)]
pub struct Disk {
    /// The numbers that were given out.
    pub counters: Counters,
    /// The lease clock, as it was last written.
    pub clock: StoreTime,
    /// The slots.
    pub slots: BTreeMap<Key, Slot>,
    endings: Vec<Ending>,
    events: Vec<Published>,
}

impl Disk {
    /// A new file, whose first fence comes after `last_fence`.
    pub fn new(last_fence: u64) -> Self {
        Self { counters: Counters { last_fence, ..Counters::default() }, ..Self::default() }
    }

    /// Makes a transaction durable.
    pub fn write(&mut self, staged: &Staged) {
        self.counters = staged.counters;
        self.clock = staged.now;
        for (key, slot) in &staged.slots {
            match slot {
                Some(slot) => self.slots.insert(key.clone(), slot.clone()),
                None => self.slots.remove(key),
            };
        }
        self.events.extend(staged.events.iter().cloned());
        self.endings.extend(staged.endings.iter().cloned());
        if self.endings.len() > TRIM {
            let now = self.clock;
            self.endings.retain(|ending| ending.at + REMEMBERED > now);
        }
    }

    /// Deletes all but the newest events, as a store does in time.
    pub fn forget_events(&mut self, keep: usize) {
        let excess = self.events.len().saturating_sub(keep);
        self.events.drain(..excess);
    }

    /// The state as a server reads it when it starts.
    pub fn load(&self) -> Resident {
        let slots = self.slots.iter().map(|(key, slot)| (key.clone(), slot.clone()));
        Resident::load(self.counters, slots, [], self.endings.clone(), self.events.clone())
    }
}
