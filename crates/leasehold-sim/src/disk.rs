//! What outlives a crash: the rows that the embedded store would have in its file, behind the port through which the
//! product's own writer reaches its disk. The world says what becomes of each commit before it takes place.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use leasehold_core::{Key, Published, Slot, StoreTime};
use leasehold_store::changes::Ending;
use leasehold_store::resident::{Counters, JUMP, Resident, Staged};
use leasehold_store::writer::{self, Batch, Failure, Loaded, Trim};
use leasehold_store::{Error, Result, Retry};

use crate::bug::Bug;

/// Everything durable. A transaction is written whole or not at all.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The numbers that were given out.
    pub counters: Counters,
    /// The lease clock, as it was last written.
    pub clock: StoreTime,
    /// The slots.
    pub slots: BTreeMap<Key, Slot>,
    /// Which opening of the file the last commit belongs to.
    epoch: u64,
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

    /// What the embedded store does to a file that it opens, which may be a copy.
    fn reopen(&mut self, is_copy: bool, wall_clock: u64) {
        self.counters = self.counters.reopened(is_copy, wall_clock);
        if is_copy {
            self.events.clear();
            self.slots.values_mut().for_each(|slot| slot.seq += JUMP);
        }
    }

    /// The state as a server reads it when it starts.
    pub fn load(&self) -> Loaded {
        let slots = self.slots.iter().map(|(key, slot)| (key.clone(), slot.clone()));
        let resident = Resident::load(self.counters, slots, [], &self.endings, self.events.clone());
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

/// The disk in the hands of the world, which decides its fate, and of the writers, which use it.
#[derive(Clone, Default)]
pub struct Disk {
    state: Rc<RefCell<State>>,
    /// The epoch of the writer that has this in its hands.
    epoch: u64,
}

#[derive(Default)]
struct State {
    rows: Rows,
    /// The epoch that is recorded beside the file.
    recorded: u64,
    last_epoch: u64,
    fate: Fate,
    unreadable: bool,
    bug: Option<Bug>,
}

impl Disk {
    /// A disk with an empty file on it; some of the mistakes are its own.
    pub fn new(last_fence: u64, bug: Option<Bug>) -> Self {
        let state = State { rows: Rows::new(last_fence), bug, ..State::default() };
        Self { state: Rc::new(RefCell::new(state)), epoch: 0 }
    }

    /// The same disk for a writer that begins with it now, at this time of the wall clock. Every other writer is replaced.
    pub fn open(&self, wall_clock: u64) -> Self {
        let mut state = self.state.borrow_mut();
        let is_copy = state.rows.epoch != state.recorded;
        let last_fence = state.rows.counters.last_fence;
        state.rows.reopen(is_copy, wall_clock);
        if state.bug == Some(Bug::CopyRepeatsFences) {
            state.rows.counters.last_fence = last_fence;
        }
        state.last_epoch += 1;
        (state.rows.epoch, state.recorded) = (state.last_epoch, state.last_epoch);
        Self { state: self.state.clone(), epoch: state.last_epoch }
    }

    /// Puts an earlier copy in the place of the file. `None` if the record beside the file would not tell: the file has not
    /// been opened anew since.
    pub fn put_back(&self, copy: &Rows) -> Option<()> {
        let mut state = self.state.borrow_mut();
        if copy.epoch == state.recorded {
            return None;
        }
        state.rows = copy.clone();
        Some(())
    }

    /// Whether what this writer commits is taken.
    pub fn takes(&self) -> bool {
        let state = self.state.borrow();
        state.rows.epoch == self.epoch || state.bug == Some(Bug::EpochNotCompared)
    }

    /// What is on it.
    pub fn rows(&self) -> Ref<'_, Rows> {
        Ref::map(self.state.borrow(), |state| &state.rows)
    }

    /// What is on it, to be changed behind the back of the writer.
    pub fn rows_mut(&self) -> RefMut<'_, Rows> {
        RefMut::map(self.state.borrow_mut(), |state| &mut state.rows)
    }

    /// Says what becomes of the next commit.
    pub fn set_fate(&self, fate: Fate) {
        self.state.borrow_mut().fate = fate;
    }

    /// Says whether it can be read at present.
    pub fn set_unreadable(&self, unreadable: bool) {
        self.state.borrow_mut().unreadable = unreadable;
    }
}

impl writer::Disk for Disk {
    fn still_alone(&mut self) -> Result<()> {
        if self.takes() { Ok(()) } else { Err(replaced()) }
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Failure> {
        if !self.takes() {
            return Err(Failure { error: replaced(), undone: true });
        }
        let mut state = self.state.borrow_mut();
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
        self.still_alone()?;
        let state = self.state.borrow();
        if state.unreadable {
            return Err(trouble());
        }
        let loaded = state.rows.load();
        let forgets_time = state.bug == Some(Bug::ReloadForgetsTheClock);
        Ok(Loaded { clock: if forgets_time { StoreTime::ZERO } else { loaded.clock }, ..loaded })
    }

    fn end(&mut self, clock: StoreTime) -> Result<()> {
        self.still_alone()?;
        self.state.borrow_mut().rows.clock = clock;
        Ok(())
    }
}

fn replaced() -> Error {
    let (path, by) = ("the simulated file".into(), "another server".to_owned());
    Error::InUse { path, by, fix: "stop one of them".to_owned() }
}

fn trouble() -> Error {
    Error::Unavailable { what: "the simulated disk fails".to_owned(), retry: Retry::Unknown }
}
