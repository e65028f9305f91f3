//! The store that is gone with the process: the reference and oracle for the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Command, JobCommand, Key, Position, StoreTime};
use tokio::sync::watch;

use crate::clock::{Clock, LeaseClock, SystemClock, unix_millis};
use crate::resident::{Counters, Resident, Staged};
use crate::{Applied, Feed, JobApplied, JobStore, Limits, Page, Range, Reading, Result, Settled, Store};

/// How many keys are forgotten along with a command, at most: more than one command can add.
const FORGET_PER_COMMAND: usize = 4;

/// All leases in memory.
pub struct Memory {
    clock: Arc<dyn Clock>,
    limits: Limits,
    state: Mutex<State>,
    position: watch::Sender<Position>,
}

struct State {
    resident: Resident,
    clock: LeaseClock,
}

impl Memory {
    /// An empty store on the machine's clock.
    pub fn new() -> Self {
        Self::with(Arc::new(SystemClock), Limits::default(), unix_millis())
    }

    /// An empty store on `clock`, whose first fence comes after `last_fence`.
    pub fn with(clock: Arc<dyn Clock>, limits: Limits, last_fence: u64) -> Self {
        let counters = Counters { last_fence, ..Counters::default() };
        let resident = Resident::load(counters, [], [], &[], Vec::new());
        // This store cannot outlive a stall of its own process, so its clock forgives none.
        let lease_clock = LeaseClock::new(StoreTime::ZERO, clock.millis(), Duration::MAX);
        let state = Mutex::new(State { resident, clock: lease_clock });
        Self { clock, limits, state, position: watch::Sender::new(Position(0)) }
    }

    /// Runs one change from staging to commit.
    fn change<T>(&self, change: impl FnOnce(&Resident, &mut Staged) -> T) -> (T, StoreTime, Position) {
        let mut state = self.lock();
        let now = state.clock.turn(self.clock.millis());
        (self.change_locked(&mut state, now, change), now, state.resident.counters.position)
    }

    fn change_locked<T>(
        &self,
        state: &mut State,
        now: StoreTime,
        change: impl FnOnce(&Resident, &mut Staged) -> T,
    ) -> T {
        let mut staged = state.resident.stage(now);
        let answer = change(&state.resident, &mut staged);
        state.resident.forget(&mut staged, FORGET_PER_COMMAND);
        state.resident.commit(staged);
        let position = state.resident.counters.position;
        self.position.send_if_modified(|known| std::mem::replace(known, position) != position);
        answer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is done to the state while the lock is held that could leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl JobStore for Memory {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        let (outcome, now, position) =
            self.change(|resident, staged| resident.decide(staged, key, &command, &self.limits));
        Ok(Applied { outcome, now, position })
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        let ((outcome, record), now, position) =
            self.change(|resident, staged| resident.decide_job(staged, key, &command, &self.limits));
        Ok(JobApplied { outcome, record, now, position })
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        let mut state = self.lock();
        let now = state.clock.turn(self.clock.millis());
        self.change_locked(&mut state, now, |resident, staged| {
            resident.decide(staged, key, &Command::Settle, &self.limits)
        });
        Ok(Reading { slot: state.resident.slot(key), now, position: state.resident.counters.position })
    }
}

#[async_trait]
impl Store for Memory {
    async fn now(&self) -> Result<StoreTime> {
        Ok(self.lock().clock.turn(self.clock.millis()))
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        let mut state = self.lock();
        let now = state.clock.turn(self.clock.millis());
        let (slots, more) = state.resident.page(range, now);
        Ok(Page { slots, more, now, position: state.resident.counters.position })
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        let mut changes = self.position.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(feed) = self.lock().resident.events_after(after, limit) {
                return Ok(feed);
            }
            // The sender lives as long as the store does.
            let _ = changes.changed().await;
        }
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        let (keys, now, _) = self.change(|resident, staged| resident.settle_due(staged, limit, &self.limits));
        Ok(Settled { keys, next_due: self.lock().resident.next_due(), now })
    }
}
