//! SQLite behind the writer of the exclusive store: a batch is one transaction, synced before it is acknowledged.

use std::path::{Path, PathBuf};

use leasehold_core::job::Job;
use leasehold_core::{Key, Published, Slot, StoreTime};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::mode_lock::ModeLock;
use super::rows::{self, Header, RowError};
use super::{epoch, file};
use crate::changes::Ending;
use crate::clock::Clock;
use crate::resident::{Resident, Staged};
use crate::writer::{Batch, Disk, Failure, Loaded, Trim};
use crate::{Error, Result, Retry};

/// After how many commits a store is taken for a busy one, which is worth a log of full length.
const BUSY: u32 = 100;

/// The open file, and what its header says.
pub(super) struct SqliteDisk {
    path: PathBuf,
    db: Connection,
    header: Header,
    lock: ModeLock,
    place: file::Place,
    /// Whether another process has opened the file since.
    replaced: bool,
    /// How many transactions were written since the store was opened.
    commits: u32,
}

/// How often the file is read again because another process has written it meanwhile.
const ATTEMPTS: u32 = 10;

impl SqliteDisk {
    /// Reads the whole file, and marks it as in use by this process: every other one that has it open is replaced.
    pub(super) fn open(path: &Path, lock: ModeLock, clock: &dyn Clock) -> Result<(Self, Loaded)> {
        for _ in 0..ATTEMPTS {
            let (mut db, found, resident) = load(path)?;
            let clock = resumed(&found, clock);
            let is_copy = epoch::is_copy(path, found.epoch);
            let begun = epoch::renew(path, (!is_copy).then_some(found.epoch), |epoch| {
                let header = Header { boot: String::new(), in_use: true, clock, epoch, ..found.clone() };
                begin_use(&mut db, &found, header, is_copy).map_err(|error| file::row_trouble(path, error))
            })?;
            let Some(header) = begun else { continue };
            let resident = match is_copy {
                true => load_rows(&db).map_err(|error| file::row_trouble(path, error))?.1,
                false => resident.with_counters(header.counters),
            };
            let (place, path) = (file::Place::of(path), path.to_owned());
            let disk = Self { path, db, header, lock, place, replaced: false, commits: 0 };
            return Ok((disk, Loaded { resident, clock }));
        }
        Err(lock.replaced())
    }

    /// Writes a batch; answers whether the file was still this process's.
    fn write(&mut self, before: &Resident, batch: &Batch<'_>) -> rusqlite::Result<bool> {
        let staged = batch.staged;
        let mut header = Header { counters: staged.counters, clock: staged.now, ..self.header.clone() };
        let transaction = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate)?;
        if rows::read_epoch(&transaction)? != header.epoch {
            return Ok(false);
        }
        write_slots(&transaction, &mut header, before, staged)?;
        write_jobs(&transaction, &mut header, before, staged)?;
        rows::write_events(&transaction, &staged.events)?;
        staged.endings.iter().try_for_each(|ending| rows::write_ending(&transaction, ending))?;
        if let Some(trim) = batch.trim {
            delete_old(&transaction, trim)?;
        }
        rows::write_header(&transaction, &header)?;
        transaction.commit()?;
        self.header = header;
        self.count_commit();
        Ok(true)
    }

    /// From now on, everything is refused.
    fn be_replaced(&mut self) -> Error {
        self.replaced = true;
        self.lock.replaced()
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
}

impl Disk for SqliteDisk {
    fn still_alone(&mut self) -> Result<()> {
        if self.replaced {
            return Err(self.be_replaced());
        }
        self.place.check()?;
        if !self.lock.keep_in_force()? {
            return Ok(());
        }
        match rows::read_epoch(&self.db) {
            Ok(epoch) if epoch == self.header.epoch => Ok(()),
            Ok(_) => Err(self.be_replaced()),
            Err(error) => Err(file::trouble(&self.path, &error)),
        }
    }

    fn commit(&mut self, before: &Resident, batch: &Batch<'_>) -> Result<(), Failure> {
        match self.write(before, batch) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure { error: self.be_replaced(), undone: true }),
            Err(error) => {
                let error = file::trouble(&self.path, &error);
                let undone = error.retry() == Retry::Safe && self.db.is_autocommit();
                Err(Failure { error, undone })
            }
        }
    }

    fn reload(&mut self) -> Result<Loaded> {
        let (db, header, resident) = load(&self.path)?;
        if header.epoch != self.header.epoch {
            return Err(self.be_replaced());
        }
        // After a failed sync the log may look written and not be. Writing it into the file makes it so.
        // The header then begins a new log, in which nothing is left of what failed.
        file::checkpoint(&db)
            .and_then(|()| rows::write_header(&db, &header))
            .map_err(|error| file::trouble(&self.path, &error))?;
        let clock = header.clock;
        self.db = db;
        self.header = header;
        Ok(Loaded { resident, clock })
    }

    fn end(&mut self, clock: StoreTime) -> Result<()> {
        debug_assert!(self.lock.is_last(), "an exclusive store is alone");
        self.place.check()?;
        let (db, path, old) = (&self.db, &self.path, self.header.epoch);
        let ended = epoch::renew(path, Some(old), |epoch| {
            let header = Header { clock, in_use: false, epoch, ..self.header.clone() };
            end_use(db, old, &header).map_err(|error| file::trouble(path, &error))
        })?;
        ended.map_or_else(|| Err(self.be_replaced()), Ok)
    }
}

/// Writes the header for the last time and puts the file in order, if its epoch is still this process's `own`.
fn end_use(db: &Connection, own: u64, header: &Header) -> rusqlite::Result<Option<()>> {
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    if rows::read_epoch(&transaction)? != own {
        return Ok(None);
    }
    rows::write_header(&transaction, header)?;
    transaction.commit()?;
    file::end_orderly(db).map(Some)
}

fn write_slots(
    db: &Connection,
    header: &mut Header,
    before: &Resident,
    staged: &Staged,
) -> rusqlite::Result<()> {
    let mut statement = rows::slot_statement(db)?;
    for (key, slot) in &staged.slots {
        let before = before.committed(key).map_or(0, |slot| u64::from(rows::slot_sum(key, slot)));
        let after = match slot {
            Some(slot) => rows::write_slot_by(&mut statement, key, slot)?,
            None => rows::delete_slot(db, key).map(|()| 0)?,
        };
        header.slot_sums = header.slot_sums.wrapping_sub(before).wrapping_add(u64::from(after));
    }
    Ok(())
}

fn write_jobs(
    db: &Connection,
    header: &mut Header,
    before: &Resident,
    staged: &Staged,
) -> rusqlite::Result<()> {
    for (key, job) in &staged.jobs {
        let before = before.committed_job(key).map_or(0, |job| u64::from(rows::job_sum(key, job)));
        let after = match job {
            Some(job) => rows::write_job(db, key, job)?,
            None => rows::delete_job(db, key).map(|()| 0)?,
        };
        header.job_sums = header.job_sums.wrapping_sub(before).wrapping_add(u64::from(after));
    }
    Ok(())
}

fn delete_old(db: &Connection, trim: Trim) -> rusqlite::Result<()> {
    let events_up_to = trim.events_up_to.0.cast_signed();
    db.prepare_cached("DELETE FROM event WHERE position <= ?1")?.execute([events_up_to])?;
    let sql = "DELETE FROM ending WHERE id <= (SELECT max(id) FROM ending) - ?1";
    db.prepare_cached(sql)?.execute([i64::try_from(trim.endings_kept).unwrap_or(i64::MAX)])?;
    Ok(())
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
    Ok((header.clone(), Resident::load(header.counters, slots, jobs, &endings, events)))
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
fn check_events(header: &Header, events: &[Published]) -> std::result::Result<(), RowError> {
    let gapless = events.windows(2).all(|pair| matches!(pair, [a, b] if a.position.0 + 1 == b.position.0));
    let complete = events.last().is_none_or(|last| last.position == header.counters.position);
    if gapless && complete { Ok(()) } else { Err(RowError::Bad("some of its events are missing".into())) }
}

/// Where the lease clock goes on. In shared mode it ran with the machine's; in exclusive mode it stood still.
fn resumed(header: &Header, clock: &dyn Clock) -> StoreTime {
    let running = super::shared::running_clock(header, clock);
    running.map_or(header.clock, |now| now.max(header.clock))
}

/// Marks the file as in use, in the file itself and not only in its log: a mark without a log means that the log was
/// lost. Drops the indexes that only shared mode needs. Answers the header as it was written, if the file was still as it
/// had been `found`.
fn begin_use(
    db: &mut Connection,
    found: &Header,
    mut header: Header,
    is_copy: bool,
) -> std::result::Result<Option<Header>, RowError> {
    file::begin_log(db)?;
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if rows::read_header(&transaction)? != *found {
        return Ok(None);
    }
    super::shared::drop_indexes(&transaction)?;
    epoch::move_ahead(&transaction, &mut header, is_copy)?;
    rows::write_header(&transaction, &header)?;
    transaction.commit()?;
    file::checkpoint(db)?;
    Ok(Some(header))
}
