//! What outlives a crash: the rows that the embedded store would have in its file, behind the port through which the
//! product's own writer reaches its disk. The world says what becomes of each commit before it takes place.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use leasehold_core::{Key, Published, Slot, StoreTime};
use leasehold_store::changes::Ending;
use leasehold_store::resident::{Counters, Resident, Staged};
use leasehold_store::writer::{self, Batch, Failure, Loaded, Trim};
use leasehold_store::{Error, Result, Retry};

use crate::bug::Bug;

/// Everything durable. A transaction is written whole or not at all.
#[derive(Debug, Default)]
pub struct Rows {
    /// The numbers that were given out.
    pub counters: Counters,
    /// The lease clock, as it was last written.
    pub clock: StoreTime,
    /// The slots.
    pub slots: BTreeMap<Key, Slot>,
    endings: Vec<Ending>,
    events: Vec<Published>,
}

impl Rows {
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
    }

    fn trim(&mut self, trim: Trim) {
        self.events.retain(|published| published.position > trim.events_up_to);
        let excess = self.endings.len().saturating_sub(trim.endings_kept);
        self.endings.drain(..excess);
    }

    /// Deletes all but the newest events, as a store does in time.
    pub fn forget_events(&mut self, keep: usize) {
        let excess = self.events.len().saturating_sub(keep);
        self.events.drain(..excess);
    }

    /// The state as a server reads it when it starts.
    pub fn load(&self) -> Loaded {
        let slots = self.slots.iter().map(|(key, slot)| (key.clone(), slot.clone()));
        let resident = Resident::load(self.counters, slots, [], self.endings.clone(), self.events.clone());
        Loaded { resident, clock: self.clock }
    }
}

/// What becomes of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It is durable.
    #[default]
    Written,
    /// It failed, and nothing of it was written.
    Failed,
    /// It failed, and only the disk knows whether it was written.
    Unknown {
        /// Whether it was.
        written: bool,
    },
}

impl Fate {
    /// Whether the disk has it afterwards.
    pub fn writes(self) -> bool {
        matches!(self, Self::Written | Self::Unknown { written: true })
    }
}

/// The disk in the hands of the world, which decides its fate, and of the writer, which uses it.
#[derive(Clone, Default)]
pub struct Disk(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    rows: Rows,
    fate: Fate,
    unreadable: bool,
    bug: Option<Bug>,
}

impl Disk {
    /// A disk with an empty file on it; some of the mistakes are its own.
    pub fn new(last_fence: u64, bug: Option<Bug>) -> Self {
        let state = State { rows: Rows::new(last_fence), bug, ..State::default() };
        Self(Rc::new(RefCell::new(state)))
    }

    /// What is on it.
    pub fn rows(&self) -> Ref<'_, Rows> {
        Ref::map(self.0.borrow(), |state| &state.rows)
    }

    /// What is on it, to be changed behind the back of the writer.
    pub fn rows_mut(&self) -> RefMut<'_, Rows> {
        RefMut::map(self.0.borrow_mut(), |state| &mut state.rows)
    }

    /// Says what becomes of the next commit.
    pub fn set_fate(&self, fate: Fate) {
        self.0.borrow_mut().fate = fate;
    }

    /// Says whether it can be read at present.
    pub fn set_unreadable(&self, unreadable: bool) {
        self.0.borrow_mut().unreadable = unreadable;
    }
}

impl writer::Disk for Disk {
    fn commit(&mut self, _: &Resident, batch: &Batch<'_>) -> Result<(), Failure> {
        let mut state = self.0.borrow_mut();
        if state.bug == Some(Bug::IdleClockNotWritten) && batch.staged.is_empty() {
            return Ok(());
        }
        let fate = state.fate;
        if fate.writes() {
            state.rows.write(batch.staged);
            batch.trim.into_iter().for_each(|trim| state.rows.trim(trim));
        }
        let undone = fate == Fate::Failed || state.bug == Some(Bug::NoReloadAfterUnknownWrite);
        if fate == Fate::Written { Ok(()) } else { Err(Failure { error: trouble(), undone }) }
    }

    fn reload(&mut self) -> Result<Loaded> {
        let state = self.0.borrow();
        if state.unreadable {
            return Err(trouble());
        }
        let loaded = state.rows.load();
        let forgets_time = state.bug == Some(Bug::ReloadForgetsTheClock);
        Ok(Loaded { clock: if forgets_time { StoreTime::ZERO } else { loaded.clock }, ..loaded })
    }

    fn end(&mut self, clock: StoreTime) -> Result<()> {
        self.0.borrow_mut().rows.clock = clock;
        Ok(())
    }
}

fn trouble() -> Error {
    Error::Unavailable { what: "the simulated disk fails".to_owned(), retry: Retry::Unknown }
}
