//! The file for several processes of one machine: nothing is kept in memory, every command is one transaction.
//!
//! All processes see the same clock: the machine's, which runs on while it sleeps. It is tied to the lease clock by an
//! offset in the file, anew after each boot. A process that may read another time does not get here (`Clock::differs`).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::job::{self, Job, JobCommand, Record};
use leasehold_core::lease::{LossReason, REMEMBERED};
use leasehold_core::time::whole_millis;
use leasehold_core::{Command, Key, LeaseId, Owner, Position, Published, Slot, StoreTime};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::journal;
use super::journal_file::JournalFile;
use super::mode_lock::ModeLock;
use super::rows::{self, Header, RowError};
use super::{Mode, disk, epoch, file};
use crate::changes::{Changes, Known};
use crate::clock::Clock;
use crate::{
    Applied, ENDINGS_KEPT, EVENTS_KEPT, Error, Feed, JobApplied, JobStore, Limits, MAX_EVENTS, Page, Range,
    Reading,
};
use crate::{Result, Retry, Settled, Standing, Store, standing};

/// How often a consumer of events looks whether another process has written some.
const POLL: Duration = Duration::from_millis(50);

/// How often, and how long apart, a process that joins others looks whether the file is theirs.
const LOOKS: u32 = 400;
const PAUSE: Duration = Duration::from_millis(5);

/// How many keys are forgotten along with a command, at most: more than one command can add.
const FORGET_PER_COMMAND: i64 = 4;

/// What only this mode looks rows up by. The other one has them in memory, and drops these to write less.
const INDEXES: [(&str, &str); 5] = [
    ("slot_due", "slot (due_at) WHERE due_at IS NOT NULL"),
    ("slot_owner", "slot (owner) WHERE owner IS NOT NULL"),
    ("slot_vacant", "slot (vacant_since) WHERE owner IS NULL"),
    ("ending_lease_id", "ending (lease_id)"),
    ("job_finished", "job (changed_at) WHERE status <> 'queued'"),
];

pub(super) fn drop_indexes(db: &Connection) -> rusqlite::Result<()> {
    INDEXES.iter().try_for_each(|(name, _)| db.execute_batch(&format!("DROP INDEX IF EXISTS {name}")))
}

fn make_indexes(db: &Connection) -> rusqlite::Result<()> {
    INDEXES
        .iter()
        .try_for_each(|(name, on)| db.execute_batch(&format!("CREATE INDEX IF NOT EXISTS {name} ON {on}")))
}

/// The lease clock, if it is tied to this boot of the machine.
pub(super) fn running_clock(header: &Header, clock: &dyn Clock) -> Option<StoreTime> {
    let tied = !header.boot.is_empty() && header.boot == clock.boot();
    tied.then(|| StoreTime::from_millis(clock.millis().saturating_add_signed(header.clock_offset)))
}

pub(super) struct Shared(Arc<Open>);

/// The open file. When the last one who uses it is gone, it is put in order.
struct Open {
    path: PathBuf,
    db: Mutex<Connection>,
    lock: ModeLock,
    place: file::Place,
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// The epoch of the file when it was last looked at.
    epoch: AtomicU64,
    /// Whether the log may end in a commit of this process that failed to sync.
    unclean: AtomicBool,
}

impl Shared {
    pub(super) fn open(path: &Path, lock: ModeLock, clock: Arc<dyn Clock>, limits: Limits) -> Result<Self> {
        let mut db = file::connect(path)?;
        verify(path, &db).map_err(|error| file::row_trouble(path, error))?;
        file::begin_log(&db).map_err(|error| file::trouble(path, &error))?;
        let (was_in_use, epoch) = begin(path, &mut db, &lock, clock.as_ref())?;
        let epoch = AtomicU64::new(epoch);
        if !was_in_use {
            // Into the file itself, not only its log: see `Header::in_use`.
            file::checkpoint(&db).map_err(|error| file::trouble(path, &error))?;
        }
        let (place, path) = (file::Place::of(path, Mode::Shared), path.to_owned());
        let (db, unclean) = (Mutex::new(db), AtomicBool::new(false));
        Ok(Self(Arc::new(Open { path, db, lock, place, clock, limits, epoch, unclean })))
    }

    /// Runs `work` on a thread that may wait for the disk and for other processes.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Open, &mut Connection) -> Result<T, RowError> + Send + 'static,
    ) -> Result<T> {
        let open = self.0.clone();
        let worked = tokio::task::spawn_blocking(move || {
            let mut db = open.lock();
            open.place.check()?;
            // As soon as it can be done: what is shown from here on must not change by a crash.
            open.try_to_begin_anew(&mut db);
            let worked = work(&open, &mut db);
            open.try_to_begin_anew(&mut db);
            worked.map_err(|error| match error {
                RowError::Replaced => open.lock.replaced(),
                other => file::row_trouble(&open.path, other),
            })
        });
        worked.await.unwrap_or_else(|error| {
            if error.is_cancelled() {
                // The runtime shuts down, and the caller with it.
                return Err(Error::Closed);
            }
            let what = format!("the command was broken off: {error}");
            Err(Error::Unavailable { what, retry: Retry::Unknown })
        })
    }
}

impl Open {
    /// Whether this process may write the file. Processes that share it meet at the same lock, and the first of them gives
    /// the file a new epoch. One that has lost its lock file must not go on when the epoch changes: another process may
    /// have the file to itself.
    fn may_write(&self, header: &Header) -> bool {
        let known = self.epoch.swap(header.epoch, Ordering::Relaxed);
        if known == header.epoch || self.lock.is_in_force() {
            return true;
        }
        self.epoch.store(known, Ordering::Relaxed);
        false
    }

    /// Takes note of a commit that failed. If it is unknown what became of it, its frames may be in the log.
    fn failed(&self, error: rusqlite::Error) -> RowError {
        if file::trouble(&self.path, &error).retry() == Retry::Unknown {
            self.unclean.store(true, Ordering::Relaxed);
        }
        error.into()
    }

    /// Begins a new log after a commit that failed to sync: what is left of it would come back after a crash, and what is left
    /// of several would look like damage. The log is written into the file, and the header begins the new one.
    fn begin_anew(&self, db: &mut Connection) -> Result<(), RowError> {
        if !self.unclean.load(Ordering::Relaxed) {
            return Ok(());
        }
        let is_busy: bool = db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0))?;
        if is_busy {
            let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            return Err(rusqlite::Error::SqliteFailure(busy, None).into());
        }
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let header = rows::read_header(&transaction)?;
        if !self.may_write(&header) {
            return Err(RowError::Replaced);
        }
        rows::write_header(&transaction, &header)?;
        transaction.commit()?;
        self.unclean.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The same where reading goes on if it fails. The next command tries again.
    fn try_to_begin_anew(&self, db: &mut Connection) {
        if let Err(error) = self.begin_anew(db) {
            tracing::debug!(?error, path = %self.path.display(), "a new log could not be begun yet");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A transaction that panicked was rolled back when it was dropped.
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self, header: &Header) -> StoreTime {
        running_clock(header, self.clock.as_ref()).map_or(header.clock, |now| now.max(header.clock))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.lock.is_in_force() || !self.lock.is_last() || self.place.check().is_err() {
            return;
        }
        let db = self.lock();
        let ended = end_use(&self.path, &db, self.clock.as_ref());
        if let Err(error) = ended {
            tracing::warn!(%error, path = %self.path.display(), "the store was closed, but its log could not be written back");
        }
    }
}

#[async_trait]
impl JobStore for Shared {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        let key = key.clone();
        self.run(move |open, db| Work::in_transaction(open, db, |work| work.apply(&key, &command))).await
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        let key = key.clone();
        self.run(move |open, db| Work::in_transaction(open, db, |work| work.apply_job(&key, &command))).await
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        loop {
            let wanted = key.clone();
            let reading = self.run(move |open, db| read(open, db, &wanted)).await?;
            if reading.slot.due_at().is_none_or(|due| due > reading.now) {
                return Ok(reading);
            }
            self.apply(key, Command::Settle).await?;
        }
    }
}

#[async_trait]
impl Store for Shared {
    async fn now(&self) -> Result<StoreTime> {
        self.run(|open, db| Ok(open.now(&rows::read_header(db)?))).await
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        let range = range.clone();
        self.run(move |open, db| list(&open.path, db, &range, |header| open.now(header))).await
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        loop {
            if let Some(feed) = self.run(move |_, db| events_after(db, after, limit)).await? {
                return Ok(feed);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        self.run(move |open, db| Work::in_transaction(open, db, |work| work.settle_due(limit))).await
    }
}

/// One transaction in the making.
struct Work<'a> {
    db: Transaction<'a>,
    header: Header,
    now: StoreTime,
    limits: Limits,
    changed: bool,
}

impl<'a> Work<'a> {
    /// Does `work` in one transaction, which is committed if anything changed.
    fn in_transaction<T>(
        open: &Open,
        db: &mut Connection,
        work: impl FnOnce(&mut Work<'_>) -> Result<T, RowError>,
    ) -> Result<T, RowError> {
        open.begin_anew(db)?;
        Work::attempt(open, db, work)
    }

    fn attempt<T>(
        open: &Open,
        db: &'a mut Connection,
        work: impl FnOnce(&mut Self) -> Result<T, RowError>,
    ) -> Result<T, RowError> {
        // Write access from the start: a decision is made on what nobody else can change any more.
        let db = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let header = rows::read_header(&db)?;
        if !open.may_write(&header) {
            return Err(RowError::Replaced);
        }
        let now = open.now(&header);
        let mut this = Self { db, header, now, limits: open.limits, changed: false };
        let answer = work(&mut this)?;
        if this.changed {
            this.tidy()?;
            this.header.clock = now;
            rows::write_header(&this.db, &this.header)?;
            this.db.commit().map_err(|error| open.failed(error))?;
        }
        Ok(answer)
    }

    fn apply(&mut self, key: &Key, command: &Command) -> Result<Applied, RowError> {
        let before = rows::read_slot(&self.db, key)?;
        let mut known = self.known(key, command.lease_id(), command.bidder())?;
        let slot = before.clone().unwrap_or_else(|| Slot::unknown(self.header.counters.seq_floor));
        known.asker_is_full = slot.asker().map_or(Ok(false), |asker| self.is_full(asker))?;
        let mut changes = Changes::new(self.now, self.header.counters.last_fence);
        let outcome = changes.decide(key, &slot, command, known);
        self.write(before.as_ref(), None, changes)?;
        Ok(Applied { outcome, now: self.now, position: self.header.counters.position })
    }

    fn apply_job(&mut self, key: &Key, command: &JobCommand) -> Result<JobApplied, RowError> {
        let (slot, job) = (rows::read_slot(&self.db, key)?, rows::read_job(&self.db, key)?);
        let known = self.known(key, command.lease_id(), command.bidder())?;
        let before_slot = slot.clone().unwrap_or_else(|| Slot::unknown(self.header.counters.seq_floor));
        let before = Record { slot: before_slot, job };
        let mut changes = Changes::new(self.now, self.header.counters.last_fence);
        let (outcome, record) = changes.decide_job(key, &before, command, known);
        self.write(slot.as_ref(), before.job.as_ref(), changes)?;
        Ok(JobApplied { outcome, record, now: self.now, position: self.header.counters.position })
    }

    fn replace_job(&mut self, key: &Key, before: Option<&Job>, after: Option<&Job>) -> Result<(), RowError> {
        let before = before.map_or(0, |job| u64::from(rows::job_sum(key, job)));
        let after = match after {
            Some(job) => u64::from(rows::write_job(&self.db, key, job)?),
            None => rows::delete_job(&self.db, key).map(|()| 0)?,
        };
        self.header.job_sums = self.header.job_sums.wrapping_sub(before).wrapping_add(after);
        self.changed = true;
        Ok(())
    }

    fn settle_due(&mut self, limit: usize) -> Result<Settled, RowError> {
        let due = self.due_keys(limit)?;
        for key in &due {
            self.apply(key, &Command::Settle)?;
        }
        let next_due: Option<i64> = self
            .db
            .prepare_cached("SELECT min(due_at) FROM slot WHERE due_at IS NOT NULL")?
            .query_row([], |row| row.get(0))?;
        let next_due = next_due.map(|due| StoreTime::from_millis(due.cast_unsigned()));
        Ok(Settled { keys: due.len(), next_due, now: self.now })
    }

    fn due_keys(&self, limit: usize) -> Result<Vec<Key>, RowError> {
        let sql = "SELECT key FROM slot WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.keys(sql, params![self.now.as_millis().cast_signed(), limit])
    }

    fn keys(&self, sql: &str, params: impl rusqlite::Params) -> Result<Vec<Key>, RowError> {
        let mut statement = self.db.prepare_cached(sql)?;
        let texts = statement.query_map(params, |row| row.get::<_, String>(0))?;
        texts.map(|text| Key::parse(&text?).map_err(|error| RowError::Bad(error.to_string()))).collect()
    }

    /// Writes the changes of a key whose slot and job were these.
    fn write(&mut self, slot: Option<&Slot>, job: Option<&Job>, changes: Changes) -> Result<(), RowError> {
        self.changed |= !changes.is_empty();
        self.header.counters.last_fence = changes.last_fence;
        for event in changes.events {
            self.header.counters.position.0 += 1;
            rows::write_events(&self.db, &[Published { position: self.header.counters.position, event }])?;
        }
        rows::write_endings(&self.db, &changes.endings)?;
        for (key, after) in &changes.jobs {
            self.replace_job(key, job, Some(after))?;
        }
        for (key, after) in &changes.slots {
            let sum = rows::write_slot(&self.db, key, after)?;
            self.replace_sum(key, slot, u64::from(sum));
        }
        Ok(())
    }

    fn known(
        &self,
        key: &Key,
        lease_id: Option<&LeaseId>,
        bidder: Option<&Owner>,
    ) -> Result<Known, RowError> {
        let remembered = lease_id.map_or(Ok(None), |id| self.remembered(key, id))?;
        let owner_is_full = bidder.map_or(Ok(false), |owner| self.is_full(owner))?;
        Ok(Known { remembered, owner_is_full, ..Known::default() })
    }

    fn replace_sum(&mut self, key: &Key, before: Option<&Slot>, after: u64) {
        let before = before.map_or(0, |slot| u64::from(rows::slot_sum(key, slot)));
        self.header.slot_sums = self.header.slot_sums.wrapping_sub(before).wrapping_add(after);
        self.changed = true;
    }

    fn remembered(&self, key: &Key, lease_id: &LeaseId) -> Result<Option<LossReason>, RowError> {
        let sql = "SELECT because FROM ending WHERE lease_id = ?1 AND key = ?2 AND at > ?3 ORDER BY id DESC LIMIT 1";
        let word: Option<String> = self
            .db
            .prepare_cached(sql)?
            .query_row(params![lease_id.as_bytes(), key.as_str(), self.oldest_remembered()], |row| row.get(0))
            .optional()?;
        Ok(word.map(|word| LossReason::parse(&word).unwrap_or(LossReason::Unknown)))
    }

    /// The last moment of what is not remembered any more; below every moment while the store is young.
    fn oldest_remembered(&self) -> i64 {
        let remembered = i64::try_from(REMEMBERED.as_millis()).unwrap_or(i64::MAX);
        self.now.as_millis().cast_signed() - remembered
    }

    fn is_full(&self, owner: &Owner) -> Result<bool, RowError> {
        let sql = "SELECT count(*) FROM slot WHERE owner = ?1";
        let leases: i64 = self.db.prepare_cached(sql)?.query_row([owner.as_str()], |row| row.get(0))?;
        Ok(leases >= i64::from(self.limits.leases_per_owner))
    }

    /// Deletes what is not kept any more.
    fn tidy(&mut self) -> Result<(), RowError> {
        let oldest_event = self.header.counters.position.0.saturating_sub(EVENTS_KEPT as u64);
        self.db
            .prepare_cached("DELETE FROM event WHERE position <= ?1")?
            .execute([oldest_event.cast_signed()])?;
        let sql = "DELETE FROM ending WHERE id <= (SELECT max(id) FROM ending) - ?1 \
                   OR id IN (SELECT id FROM ending WHERE at <= ?2 ORDER BY id LIMIT 8)";
        self.db.prepare_cached(sql)?.execute(params![ENDINGS_KEPT as i64, self.oldest_remembered()])?;
        let sql =
            "SELECT key FROM slot WHERE owner IS NULL AND vacant_since <= ?1 ORDER BY vacant_since LIMIT ?2";
        for key in self.keys(sql, params![self.oldest_remembered(), FORGET_PER_COMMAND])? {
            self.forget(&key)?;
        }
        let sql =
            "SELECT key FROM job WHERE status <> 'queued' AND changed_at <= ?1 ORDER BY changed_at LIMIT ?2";
        let oldest = self.now.as_millis().cast_signed() - whole_millis(job::KEPT).cast_signed();
        for key in self.keys(sql, params![oldest, FORGET_PER_COMMAND])? {
            self.forget_job(&key)?;
        }
        Ok(())
    }

    fn forget_job(&mut self, key: &Key) -> Result<(), RowError> {
        match rows::read_job(&self.db, key)?.filter(|job| job.is_forgettable(self.now)) {
            Some(job) => self.replace_job(key, Some(&job), None),
            None => Ok(()),
        }
    }

    fn forget(&mut self, key: &Key) -> Result<(), RowError> {
        if let Some(slot) = rows::read_slot(&self.db, key)?.filter(|slot| slot.is_forgettable(self.now)) {
            self.header.counters.seq_floor = self.header.counters.seq_floor.max(slot.seq);
            rows::delete_slot(&self.db, key)?;
            self.replace_sum(key, Some(&slot), 0);
        }
        Ok(())
    }
}

fn read(open: &Open, db: &mut Connection, key: &Key) -> Result<Reading, RowError> {
    let snapshot = db.transaction()?;
    let header = rows::read_header(&snapshot)?;
    let slot = rows::read_slot(&snapshot, key)?;
    let slot = slot.unwrap_or_else(|| Slot::unknown(header.counters.seq_floor));
    Ok(Reading { slot, now: open.now(&header), position: header.counters.position })
}

/// A page of the file's live leases at the time that `now` makes of the header.
pub(super) fn list(
    path: &Path,
    db: &Connection,
    range: &Range,
    now: impl FnOnce(&Header) -> StoreTime,
) -> Result<Page, RowError> {
    let (snapshot, header, journal) = journal::snapshot(path, db)?;
    let (counters, now) = journal.latest.unwrap_or_else(|| (header.counters, now(&header)));
    let limit = range.limit.clamp(1, Range::MAX_LIMIT);
    let sql = format!(
        "SELECT {} FROM slot WHERE key >= ?1 AND key > ?2 AND expires_at > ?3 ORDER BY key LIMIT ?4",
        rows::SLOT_COLUMNS
    );
    let after = range.after.as_ref().map_or("", Key::as_str);
    let mut statement = snapshot.prepare_cached(&sql)?;
    // So many that enough are left without those that the journal knows better.
    let enough = (limit + 1 + journal.slots.len()) as i64;
    let mut found = statement.query(params![range.prefix, after, now.as_millis().cast_signed(), enough])?;
    let mut slots = Vec::new();
    while let Some(row) = found.next()? {
        let (key, slot) = rows::slot_from(row)?;
        if !key.as_str().starts_with(&range.prefix) {
            break;
        }
        if !journal.slots.contains_key(&key) {
            slots.push((key, slot));
        }
    }
    let newer = journal.slots.into_iter().filter_map(|(key, slot)| Some((key, slot?)));
    slots.extend(newer.filter(|(key, slot)| range.has(key) && slot.live(now).is_some()));
    slots.sort_by(|(a, _), (b, _)| a.cmp(b));
    let more = slots.len() > limit;
    slots.truncate(limit);
    Ok(Page { slots, more, now, position: counters.position })
}

fn events_after(db: &mut Connection, after: Position, limit: usize) -> Result<Option<Feed>, RowError> {
    let snapshot = db.transaction()?;
    let newest = rows::read_header(&snapshot)?.counters.position;
    let oldest: Option<i64> =
        snapshot.prepare_cached("SELECT min(position) FROM event")?.query_row([], |row| row.get(0))?;
    let oldest = oldest.map(|position| Position(position.cast_unsigned()));
    match standing(after, oldest, newest) {
        Standing::UpToDate => return Ok(None),
        Standing::Gap => return Ok(Some(Feed::Gap { resume_from: newest })),
        Standing::Behind => {}
    }
    let sql =
        format!("SELECT {} FROM event WHERE position > ?1 ORDER BY position LIMIT ?2", rows::EVENT_COLUMNS);
    let mut statement = snapshot.prepare_cached(&sql)?;
    let mut found = statement.query(params![after.0.cast_signed(), limit.clamp(1, MAX_EVENTS) as i64])?;
    let mut events = Vec::new();
    while let Some(row) = found.next()? {
        events.push(rows::event_from(row)?);
    }
    Ok(Some(Feed::Events(events)))
}

/// Looks at all slots, all endings and their indexes once. Later on, a command looks only for what it is about, and what
/// damage keeps it from finding would be free for it.
fn verify(path: &Path, db: &Connection) -> Result<(), RowError> {
    let (snapshot, header, _) = journal::snapshot(path, db)?;
    for table in ["slot", "job"] {
        rows::check_pages(&snapshot, table)?;
    }
    disk::load_slots(&snapshot, &header)?;
    disk::load_jobs(&snapshot, &header)?;
    disk::load_endings(&snapshot).map(drop)
}

/// Begins to use the file; answers whether it was in use before, and its epoch. The first process gives it a new one.
fn begin(path: &Path, db: &mut Connection, lock: &ModeLock, clock: &dyn Clock) -> Result<(bool, u64)> {
    let trouble = |error| file::row_trouble(path, error);
    if !lock.was_alone() {
        meet(path, db, lock)?;
        return begin_use(path, db, None, clock).map_err(trouble);
    }
    let old = rows::read_header(db).map_err(trouble)?.epoch;
    let is_copy = epoch::is_copy(path, old);
    let begun = epoch::renew(path, (!is_copy).then_some(old), |epoch| {
        begin_use(path, db, Some((epoch, is_copy)), clock).map(Some).map_err(trouble)
    })?;
    begun.ok_or_else(|| lock.replaced())
}

/// Makes sure that this is the file that the others have open, and no copy that was put in its place since: two files would give
/// out the same lease twice.
fn meet(path: &Path, db: &Connection, lock: &ModeLock) -> Result<()> {
    for _ in 0..LOOKS {
        let epoch = rows::read_epoch(db).map_err(|error| file::trouble(path, &error))?;
        if !epoch::is_another(path, epoch) {
            return Ok(());
        }
        // The process that was first may be recording it this moment.
        std::thread::sleep(PAUSE);
    }
    Err(lock.displaced())
}

/// Marks the file as in use, and ties the lease clock to this boot. `alone` has the new epoch, and whether it is a copy.
fn begin_use(
    path: &Path,
    db: &mut Connection,
    alone: Option<(u64, bool)>,
    clock: &dyn Clock,
) -> Result<(bool, u64), RowError> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut header = rows::read_header(&transaction)?;
    let was_in_use = header.in_use;
    header.in_use = true;
    let journal = settle(path, &transaction, &mut header, alone.is_some())?;
    journal::unpack_all(&transaction)?;
    if let Some((epoch, is_copy)) = alone {
        header.epoch = epoch;
        epoch::move_ahead(&transaction, &mut header, is_copy)?;
    }
    if running_clock(&header, clock).is_none() {
        header.boot = clock.boot();
        header.clock_offset = header.clock.as_millis().cast_signed() - clock.millis().cast_signed();
    }
    make_indexes(&transaction)?;
    rows::write_header(&transaction, &header)?;
    transaction.commit()?;
    journal.into_iter().for_each(|journal| journal.remove());
    Ok((was_in_use, header.epoch))
}

/// Writes what a process has left in its journal that had the file alone; answers that journal's file, to be removed. The process may
/// also have left a file with nothing that is needed.
fn settle(
    path: &Path,
    db: &Connection,
    header: &mut Header,
    is_alone: bool,
) -> Result<Option<JournalFile>, RowError> {
    if header.journal == 0 {
        return if is_alone { JournalFile::take(path) } else { Ok(None) };
    }
    let file = JournalFile::take(path)?;
    journal::Recorded::read(path, db, header)?.contents(db, header)?.write(db, header)?;
    header.journal = 0;
    Ok(file)
}

fn end_use(path: &Path, db: &Connection, clock: &dyn Clock) -> Result<()> {
    let trouble = |error| file::row_trouble(path, error);
    let mut header = rows::read_header(db).map_err(trouble)?;
    header.in_use = false;
    header.clock = running_clock(&header, clock).map_or(header.clock, |now| now.max(header.clock));
    epoch::renew(path, Some(header.epoch), |epoch| {
        let header = Header { epoch, ..header };
        let ended = rows::write_header(db, &header).and_then(|()| file::end_orderly(db));
        ended.map(Some).map_err(|error| file::trouble(path, &error))
    })?;
    Ok(())
}
