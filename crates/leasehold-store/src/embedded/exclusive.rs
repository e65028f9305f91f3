//! The file for one process: all slots in memory, and one writer thread that gives many callers one sync.
//!
//! Every turn of the writer takes what has queued up, decides it on a staged overlay, writes the overlay in one
//! transaction and syncs. Only then does it become visible, is told, and is answered. When the write fails the overlay
//! is dropped, and it is as if the turn had not been; when even that is not certain, the state is read anew.
//!
//! The writer alone moves the lease clock. While it is held up, time stands still: nobody loses a lease because a disk
//! was slow to take the renewal.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold_core::job::{Job, Record};
use leasehold_core::{Command, JobCommand, JobOutcome, Key, Outcome, Position, Slot, StoreTime};
use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot, watch};

use super::file;
use super::mode_lock::ModeLock;
use super::rows::{self, Header, RowError};
use crate::clock::{Clock, LONGEST_STEP, LeaseClock};
use crate::resident::{Ending, Resident, Staged};
use crate::{
    Applied, EVENTS_KEPT, Error, Feed, JobApplied, JobStore, Limits, Page, Range, Reading, Result, Retry,
    Settled, Store,
};

/// How long the writer waits for work before it moves the clock on by itself.
const TICK: Duration = Duration::from_millis(200);

/// How long the writer looks out for the next request, and a caller that is alone for its answer, before they sleep:
/// waking a thread takes a good part of the time that a sync does.
const LOOK_OUT: Duration = Duration::from_micros(200);

/// How much time may pass on the lease clock before it is written down, while there are leases.
const CLOCK_WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// How many commands may wait; more callers than this wait their turn to queue.
const QUEUE: usize = 8_192;

/// How many commands one transaction takes at most.
const BATCH: usize = 2_048;

/// After how many commits a store is taken for a busy one, which is worth a log of full length.
const BUSY: u32 = 100;

/// How many keys are forgotten in one turn at most, beyond two for each command.
const FORGET_PER_TURN: usize = 256;

/// How many events and endings are written before those that are not kept any more are deleted.
const TRIM: usize = 1_000;

pub(super) struct Exclusive {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

/// What the callers and the writer have in common.
struct Shared {
    resident: RwLock<Resident>,
    /// The lease clock as of the writer's last turn.
    now: AtomicU64,
    position: watch::Sender<Position>,
    queue: Queue,
    room: Semaphore,
}

impl Exclusive {
    pub(super) fn open(path: &Path, lock: ModeLock, clock: Arc<dyn Clock>, limits: Limits) -> Result<Self> {
        let writer = Writer::open(path, lock, clock, limits)?;
        let shared = writer.shared.clone();
        let writer =
            std::thread::Builder::new().name("leasehold-writer".into()).spawn(move || writer.run()).map_err(
                |error| Error::Unavailable { what: format!("no thread: {error}"), retry: Retry::Safe },
            )?;
        Ok(Self { shared, writer: Some(writer) })
    }

    /// Puts a request into the queue and waits for the answer.
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<Result<T>>) -> Request) -> Result<T> {
        // The permit is given back when the answer is there, or when the caller has stopped waiting for it.
        let _permit = self.shared.room.acquire().await.map_err(|_| Error::Closed)?;
        let (answer, answered) = oneshot::channel();
        self.shared.queue.push(request(answer));
        self.look_out(&answered).await;
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Looks out for the answer for a moment, if nobody else is waiting for one.
    async fn look_out<T>(&self, answered: &oneshot::Receiver<T>) {
        let alone = self.shared.room.available_permits() == QUEUE - 1;
        let start = Instant::now();
        while alone && answered.is_empty() && start.elapsed() < LOOK_OUT {
            // The writer may need this very processor, and other tasks this thread.
            std::thread::yield_now();
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the writer thread of the embedded store had panicked");
        }
    }
}

#[async_trait]
impl JobStore for Exclusive {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        let key = key.clone();
        self.ask(|answer| Request::Apply { key, command, answer }).await
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        let key = key.clone();
        self.ask(|answer| Request::ApplyJob { key, command, answer }).await
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        loop {
            let reading = self.shared.reading(key);
            if reading.slot.due_at().is_none_or(|due| due > reading.now) {
                return Ok(reading);
            }
            // What is due is told first: nobody sees it undone if the machine fails right now.
            self.apply(key, Command::Settle).await?;
        }
    }
}

#[async_trait]
impl Store for Exclusive {
    async fn now(&self) -> Result<StoreTime> {
        self.ask(|answer| Request::Now { answer }).await
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        let resident = self.shared.resident();
        let now = self.shared.now();
        let (slots, more) = resident.page(range, now);
        Ok(Page { slots, more, now, position: resident.counters.position })
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        let mut changes = self.shared.position.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(feed) = self.shared.resident().events_after(after, limit) {
                return Ok(feed);
            }
            if changes.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        self.ask(|answer| Request::SettleDue { limit, answer }).await
    }
}

impl Shared {
    fn resident(&self) -> RwLockReadGuard<'_, Resident> {
        // A commit that panicked half-way would take the writer down with it, and every later request is refused.
        self.resident.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> StoreTime {
        StoreTime::from_millis(self.now.load(Ordering::Acquire))
    }

    fn reading(&self, key: &Key) -> Reading {
        let resident = self.resident();
        Reading { slot: resident.slot(key), now: self.now(), position: resident.counters.position }
    }
}

/// What callers ask of the writer.
enum Request {
    Apply { key: Key, command: Command, answer: oneshot::Sender<Result<Applied>> },
    ApplyJob { key: Key, command: JobCommand, answer: oneshot::Sender<Result<JobApplied>> },
    Now { answer: oneshot::Sender<Result<StoreTime>> },
    SettleDue { limit: usize, answer: oneshot::Sender<Result<Settled>> },
}

impl Request {
    fn refuse(self, error: Error) {
        // A caller that has stopped waiting does not mind.
        let _ = match self {
            Self::Apply { answer, .. } => answer.send(Err(error)).is_ok(),
            Self::ApplyJob { answer, .. } => answer.send(Err(error)).is_ok(),
            Self::Now { answer } => answer.send(Err(error)).is_ok(),
            Self::SettleDue { answer, .. } => answer.send(Err(error)).is_ok(),
        };
    }
}

/// An answer that waits for the commit.
enum Answer {
    Applied(oneshot::Sender<Result<Applied>>, Outcome),
    JobApplied(oneshot::Sender<Result<JobApplied>>, JobOutcome, Record),
    Now(oneshot::Sender<Result<StoreTime>>),
    Settled(oneshot::Sender<Result<Settled>>, usize),
}

/// The requests that wait for the writer.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
    /// How many requests are in the queue, for a look without the lock.
    length: AtomicUsize,
}

#[derive(Default)]
struct QueueState {
    requests: Vec<Request>,
    closed: bool,
}

impl Queue {
    fn push(&self, request: Request) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            drop(state);
            return request.refuse(Error::Closed);
        }
        state.requests.push(request);
        let was_empty = state.requests.len() == 1;
        self.length.store(state.requests.len(), Ordering::Release);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Takes what is there, after waiting a tick for something to be there. `None` when closed and empty.
    fn take(&self) -> Option<Vec<Request>> {
        self.look_out();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = |state: &mut QueueState| state.requests.is_empty() && !state.closed;
        let (mut state, _) =
            self.filled.wait_timeout_while(state, TICK, nothing).unwrap_or_else(PoisonError::into_inner);
        if state.requests.is_empty() && state.closed {
            return None;
        }
        let rest = if state.requests.len() > BATCH { state.requests.split_off(BATCH) } else { Vec::new() };
        self.length.store(rest.len(), Ordering::Release);
        Some(std::mem::replace(&mut state.requests, rest))
    }

    /// Looks out for the next request for a moment: a caller that was just answered often has another one.
    fn look_out(&self) {
        let start = Instant::now();
        while self.length.load(Ordering::Acquire) == 0 && start.elapsed() < LOOK_OUT {
            // The caller may need this very processor.
            std::thread::yield_now();
        }
    }

    /// From now on nothing is taken in. What waits is still answered.
    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.filled.notify_all();
    }

    /// Nobody is there any more to answer what waits.
    fn abandon(&self) {
        self.close();
        let waiting = std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).requests);
        waiting.into_iter().for_each(|request| request.refuse(Error::Closed));
    }
}

/// The one thread that writes.
struct Writer {
    path: PathBuf,
    db: Connection,
    header: Header,
    lock: ModeLock,
    clock: Arc<dyn Clock>,
    lease_clock: LeaseClock,
    limits: Limits,
    /// How many events and endings were written since the old ones were last deleted.
    untrimmed: usize,
    /// How many transactions were written since the store was opened.
    commits: u32,
    /// Whether memory is known to agree with the disk.
    healthy: bool,
    shared: Arc<Shared>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After a panic, too: callers get an error, and do not wait for ever.
        self.shared.queue.abandon();
    }
}

impl Writer {
    fn open(path: &Path, lock: ModeLock, clock: Arc<dyn Clock>, limits: Limits) -> Result<Self> {
        let (mut db, mut header, resident) = load(path)?;
        let start = resumed(&header, clock.as_ref());
        header.boot.clear();
        header.in_use = true;
        header.clock = start;
        begin_use(&mut db, &header).map_err(|error| file::trouble(path, &error))?;
        let shared = Arc::new(Shared {
            now: AtomicU64::new(start.as_millis()),
            position: watch::Sender::new(resident.counters.position),
            resident: RwLock::new(resident),
            queue: Queue::default(),
            room: Semaphore::new(QUEUE),
        });
        let lease_clock = LeaseClock::new(start, clock.millis(), LONGEST_STEP);
        let path = path.to_owned();
        let (untrimmed, commits, healthy) = (0, 0, true);
        Ok(Self { path, db, header, lock, clock, lease_clock, limits, untrimmed, commits, healthy, shared })
    }

    fn run(mut self) {
        while let Some(requests) = self.shared.queue.take() {
            self.turn(requests);
        }
        if let Err(error) = self.end() {
            tracing::warn!(%error, path = %self.path.display(), "the store was closed, but its log could not be written back");
        }
    }

    fn turn(&mut self, requests: Vec<Request>) {
        if !self.healthy
            && let Err(error) = self.reload()
        {
            requests.into_iter().for_each(|request| request.refuse(error.clone()));
            return;
        }
        let before = self.lease_clock.now();
        let now = self.lease_clock.turn(self.clock.millis());
        let shared = self.shared.clone();
        let resident = shared.resident();
        let mut staged = resident.stage(now);
        let forget = FORGET_PER_TURN + 2 * requests.len();
        let answers: Vec<Answer> =
            requests.into_iter().map(|request| self.stage(&resident, &mut staged, request)).collect();
        resident.forget(&mut staged, forget);
        let written = self.write(&resident, &staged);
        drop(resident);
        match written {
            Ok(()) => self.publish(staged, answers),
            Err(error) => {
                // While nothing can be written nobody can renew: such time does not count.
                self.lease_clock.stand_still_at(before);
                self.fail(&error, answers);
            }
        }
    }

    fn stage(&self, resident: &Resident, staged: &mut Staged, request: Request) -> Answer {
        match request {
            Request::Apply { key, command, answer } => {
                Answer::Applied(answer, resident.decide(staged, &key, &command, &self.limits))
            }
            Request::ApplyJob { key, command, answer } => {
                let (outcome, record) = resident.decide_job(staged, &key, &command, &self.limits);
                Answer::JobApplied(answer, outcome, record)
            }
            Request::Now { answer } => Answer::Now(answer),
            Request::SettleDue { limit, answer } => {
                Answer::Settled(answer, resident.settle_due(staged, limit.min(BATCH), &self.limits))
            }
        }
    }

    /// Makes what was staged durable, if there is anything that has to be.
    fn write(&mut self, resident: &Resident, staged: &Staged) -> rusqlite::Result<()> {
        let clock_is_due = resident.has_leases() && staged.now >= self.header.clock + CLOCK_WRITTEN_EVERY;
        if staged.is_empty() && !clock_is_due {
            return Ok(());
        }
        let mut header = Header { counters: staged.counters, clock: staged.now, ..self.header.clone() };
        let transaction = self.db.unchecked_transaction()?;
        for (key, slot) in &staged.slots {
            let before = resident.committed(key).map_or(0, |slot| u64::from(rows::slot_sum(key, slot)));
            let after = match slot {
                Some(slot) => rows::write_slot(&transaction, key, slot)?,
                None => rows::delete_slot(&transaction, key).map(|()| 0)?,
            };
            header.slot_sums = header.slot_sums.wrapping_sub(before).wrapping_add(u64::from(after));
        }
        for (key, job) in &staged.jobs {
            let before = resident.committed_job(key).map_or(0, |job| u64::from(rows::job_sum(key, job)));
            let after = match job {
                Some(job) => rows::write_job(&transaction, key, job)?,
                None => rows::delete_job(&transaction, key).map(|()| 0)?,
            };
            header.job_sums = header.job_sums.wrapping_sub(before).wrapping_add(u64::from(after));
        }
        staged.events.iter().try_for_each(|event| rows::write_event(&transaction, event))?;
        staged.endings.iter().try_for_each(|ending| rows::write_ending(&transaction, ending))?;
        let trimmed = trim(&transaction, resident, staged, self.untrimmed)?;
        rows::write_header(&transaction, &header)?;
        transaction.commit()?;
        self.untrimmed = trimmed;
        self.header = header;
        self.count_commit();
        Ok(())
    }

    /// Gives the log its full length once the store has turned out to be a busy one.
    fn count_commit(&mut self) {
        self.commits = self.commits.saturating_add(1);
        if self.commits == BUSY
            && let Err(error) = file::lengthen_log(&self.path)
        {
            tracing::debug!(%error, path = %self.path.display(), "the log grows as it goes, which is slower");
        }
    }

    /// What was staged is durable: show it, tell it, and answer.
    fn publish(&self, staged: Staged, answers: Vec<Answer>) {
        let now = staged.now;
        let mut resident = self.shared.resident.write().unwrap_or_else(PoisonError::into_inner);
        resident.commit(staged);
        let (position, next_due) = (resident.counters.position, resident.next_due());
        self.shared.now.store(now.as_millis(), Ordering::Release);
        drop(resident);
        self.shared.position.send_if_modified(|known| std::mem::replace(known, position) != position);
        for answer in answers {
            // A caller that has stopped waiting does not mind.
            let _ = match answer {
                Answer::Applied(answer, outcome) => {
                    answer.send(Ok(Applied { outcome, now, position })).is_ok()
                }
                Answer::JobApplied(answer, outcome, record) => {
                    answer.send(Ok(JobApplied { outcome, record, now, position })).is_ok()
                }
                Answer::Now(answer) => answer.send(Ok(now)).is_ok(),
                Answer::Settled(answer, keys) => answer.send(Ok(Settled { keys, next_due, now })).is_ok(),
            };
        }
    }

    /// What was staged is dropped. Memory and disk are compared anew unless SQLite took it back for certain.
    fn fail(&mut self, error: &rusqlite::Error, answers: Vec<Answer>) {
        let error = file::trouble(&self.path, error);
        tracing::error!(%error, "a group commit failed");
        self.healthy = error.retry() == Retry::Safe && self.db.is_autocommit();
        for answer in answers {
            let _ = match answer {
                Answer::Applied(answer, _) => answer.send(Err(error.clone())).is_ok(),
                Answer::JobApplied(answer, ..) => answer.send(Err(error.clone())).is_ok(),
                Answer::Now(answer) => answer.send(Err(error.clone())).is_ok(),
                Answer::Settled(answer, _) => answer.send(Err(error.clone())).is_ok(),
            };
        }
    }

    /// Reads the state anew from disk.
    fn reload(&mut self) -> Result<()> {
        let (db, header, resident) = load(&self.path)?;
        // After a failed sync the log may look written and not be. Writing it into the file makes it so.
        // The header then begins a new log, in which nothing is left of what failed.
        file::checkpoint(&db)
            .and_then(|()| rows::write_header(&db, &header))
            .map_err(|error| file::trouble(&self.path, &error))?;
        let position = resident.counters.position;
        *self.shared.resident.write().unwrap_or_else(PoisonError::into_inner) = resident;
        self.shared.position.send_replace(position);
        self.lease_clock.stand_still_at(self.lease_clock.now().max(header.clock));
        self.db = db;
        self.header = header;
        self.healthy = true;
        tracing::info!(path = %self.path.display(), "the store was read anew from disk");
        Ok(())
    }

    /// Writes the clock and everything back, and leaves the file as one file.
    fn end(&mut self) -> Result<()> {
        if !self.healthy {
            self.reload()?;
        }
        self.header.clock = self.lease_clock.turn(self.clock.millis());
        self.header.in_use = false;
        let ended = rows::write_header(&self.db, &self.header).and_then(|()| file::end_orderly(&self.db));
        debug_assert!(self.lock.is_last(), "an exclusive store is alone");
        ended.map_err(|error| file::trouble(&self.path, &error))
    }
}

/// Deletes the rows of what is not kept any more, once enough have been written; answers how many were since then.
fn trim(
    db: &Connection,
    resident: &Resident,
    staged: &Staged,
    written_before: usize,
) -> rusqlite::Result<usize> {
    let written = written_before + staged.endings.len() + staged.events.len();
    if written < TRIM {
        return Ok(written);
    }
    let oldest_kept = staged.counters.position.0.saturating_sub(EVENTS_KEPT as u64);
    db.prepare_cached("DELETE FROM event WHERE position <= ?1")?.execute([oldest_kept.cast_signed()])?;
    let endings_kept = resident.endings() + staged.endings.len();
    let sql = "DELETE FROM ending WHERE id <= (SELECT max(id) FROM ending) - ?1";
    db.prepare_cached(sql)?.execute([i64::try_from(endings_kept).unwrap_or(i64::MAX)])?;
    Ok(0)
}

/// What the file holds, every row of it checked.
fn load(path: &Path) -> Result<(Connection, Header, Resident)> {
    let db = file::connect(path)?;
    let (header, resident) = load_rows(&db).map_err(|error| file::row_trouble(path, error))?;
    Ok((db, header, resident))
}

pub(super) fn load_rows(db: &Connection) -> std::result::Result<(Header, Resident), RowError> {
    let header = rows::read_header(db)?;
    let slots = load_slots(db, &header)?;
    let jobs = load_jobs(db, &header)?;
    let endings = load_endings(db)?;
    let events = rows::all(db, "event", rows::EVENT_COLUMNS, "position", rows::event_from)?;
    check_events(&header, &events)?;
    Ok((header.clone(), Resident::load(header.counters, slots, jobs, endings, events)))
}

/// All slots, none of them missing.
pub(super) fn load_slots(
    db: &Connection,
    header: &Header,
) -> std::result::Result<Vec<(Key, Slot)>, RowError> {
    let mut sums = 0_u64;
    let slots = rows::all(db, "slot", rows::SLOT_COLUMNS, "key", |row| {
        let (key, slot) = rows::slot_from(row)?;
        sums = sums.wrapping_add(u64::from(rows::slot_sum(&key, &slot)));
        Ok((key, slot))
    })?;
    if sums != header.slot_sums {
        return Err(RowError::Bad("some of its slots are missing or stand there twice".into()));
    }
    Ok(slots)
}

/// All jobs, none of them missing.
pub(super) fn load_jobs(db: &Connection, header: &Header) -> std::result::Result<Vec<(Key, Job)>, RowError> {
    let mut sums = 0_u64;
    let jobs = rows::all(db, "job", rows::JOB_COLUMNS, "key", |row| {
        let (key, job) = rows::job_from(row)?;
        sums = sums.wrapping_add(u64::from(rows::job_sum(&key, &job)));
        Ok((key, job))
    })?;
    if sums != header.job_sums {
        return Err(RowError::Bad("some of its jobs are missing or stand there twice".into()));
    }
    Ok(jobs)
}

/// All endings, none of them missing: their pages tell, for there is no sum over them.
pub(super) fn load_endings(db: &Connection) -> std::result::Result<Vec<Ending>, RowError> {
    rows::check_pages(db, "ending")?;
    rows::all(db, "ending", rows::ENDING_COLUMNS, "id", rows::ending_from)
}

/// Events stand one after the other up to the last position.
fn check_events(header: &Header, events: &[leasehold_core::Published]) -> std::result::Result<(), RowError> {
    let gapless = events.windows(2).all(|pair| matches!(pair, [a, b] if a.position.0 + 1 == b.position.0));
    let complete = events.last().is_none_or(|last| last.position == header.counters.position);
    if gapless && complete { Ok(()) } else { Err(RowError::Bad("some of its events are missing".into())) }
}

/// Where the lease clock goes on. In shared mode it ran with the machine's; in exclusive mode it stood still.
fn resumed(header: &Header, clock: &dyn Clock) -> StoreTime {
    let running = super::shared::running_clock(header, clock);
    running.map_or(header.clock, |now| now.max(header.clock))
}

/// Marks the file as in use, in the file itself and not only in its log: whoever finds the mark and no log knows that
/// something is missing. What only shared processes need goes.
fn begin_use(db: &mut Connection, header: &Header) -> rusqlite::Result<()> {
    file::begin_log(db)?;
    let transaction = db.transaction()?;
    super::shared::drop_indexes(&transaction)?;
    rows::write_header(&transaction, header)?;
    transaction.commit()?;
    file::checkpoint(db)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::embedded::Mode;

    #[test]
    fn after_a_commit_of_unknown_fate_the_clock_goes_on_from_the_later_of_the_two() {
        // Once, a reload that left the lease clock as it was passed all tests. If the commit had got through after all,
        // with its time, the clock then went back behind what was on disk.
        for (on_disk, expected) in [(9_000, 9_000), (2_000, 5_000)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("leases.db");
            let lock = ModeLock::take(&path, Mode::Exclusive, true, |_| Ok(())).unwrap();
            file::create_if_missing(&path).unwrap();
            let mut writer =
                Writer::open(&path, lock, Arc::new(ManualClock::default()), Limits::default()).unwrap();
            writer.lease_clock.stand_still_at(StoreTime::from_millis(5_000));
            let header = Header { clock: StoreTime::from_millis(on_disk), ..writer.header.clone() };
            rows::write_header(&writer.db, &header).unwrap();
            writer.healthy = false;
            writer.turn(Vec::new());
            assert!(writer.healthy);
            assert_eq!(writer.lease_clock.now(), StoreTime::from_millis(expected));
        }
    }
}
