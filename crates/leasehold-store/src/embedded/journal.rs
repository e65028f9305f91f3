//! The journal of the exclusive store: rows that are durable, and not in their tables yet.
//!
//! A commit of a few commands changes as many pages as it has rows, all over the file, and every page goes into SQLite's log
//! whole. So it is appended to the journal, a [file](super::journal_file) of its own, with one write and one sync. Once a region of
//! the file is full, the journal goes on in another one, and meanwhile a thread writes what is in the first into the tables: a slot
//! that changed many times is written once, and all events go into one row as they are, a [`Pack`], and so do all endings.
//!
//! ```text
//!   file      record 32 │ record 33 │ … │ record 41 │ what was there before │ record 7 │ … │ record 31 │ what was there before
//!             └ a region; its records are next to each other                └ another one, whose records are in the tables by now
//! ```
//!
//! The store's own row names the first record that the tables do not have. It is the first of a region, says how long the region is,
//! and is durable before the row names it. The journal ends at the first record that is not whole: the process ended while it wrote
//! that one. If a record with a larger number is found anywhere, the missing one was whole once, and the journal is damaged. The
//! epoch of the store is part of every checksum, so that records of another opening or another store do not count.
//!
//! A commit that is too long goes into the tables at once, and the journal begins anew behind it, with a [`Mark::Begins`].
//!
//! A file that was closed in an orderly way has no journal; one in shared mode has no packs either.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use leasehold_core::{Job, Key, Position, Slot, StoreTime};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::journal_file::{self, JournalFile};
use super::packed::{Kind, NUMBER_AT, PackedRow, RECORD_HEADER, Record, checked, number_of};
use super::rows::{self, Cells, Header, RowError, RowResult};
use super::{epoch, migrate};
use crate::resident::{Counters, Staged};
use crate::writer::Trim;

/// The length of a region in a busy store. A longer one is written into the tables less often, and leaves more to read after a crash.
/// Tests fill it within a few commands.
const LENGTH: usize = if cfg!(test) { 4 * 1024 } else { 1024 * 1024 };

/// The length of the first region: a program that asks for one lease should not write more than that.
const FIRST_LENGTH: usize = if cfg!(test) { 256 } else { 16 * 1024 };

/// Regions begin at multiples of this.
const STEP: usize = FIRST_LENGTH;

/// The longest record. A longer one would be written twice, once here and soon again into the tables, and it has enough rows for each
/// page that it changes there.
const LONGEST: usize = LENGTH / 4;

/// The number of the first record of a journal.
pub(super) const FIRST_RECORD: u64 = 1;

/// How the tables are described in the file. A pack has the position of its last event, or the number of its last ending.
pub(super) const CREATE: [&str; 2] = [
    "CREATE TABLE event_pack (last INTEGER PRIMARY KEY, rows BLOB NOT NULL)",
    "CREATE TABLE ending_pack (last INTEGER PRIMARY KEY, rows BLOB NOT NULL)",
];

/// The journal of the process that writes it.
pub(super) struct Journal {
    file: JournalFile,
    /// The epoch of the store.
    epoch: u64,
    contents: Contents,
    region: Region,
    /// The length of the last record with which a region begins.
    mark_length: usize,
    /// Where in the file the next record begins.
    at: usize,
    /// Its number.
    next: u64,
    /// The record made last.
    record: Record,
    /// Whether its write or sync has failed, so that any part of it may be in the file.
    in_doubt: bool,
}

/// How the first record of a region follows the records before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Directly.
    Continues,
    /// After a commit that only the tables have, or as the first of all.
    Begins,
}

/// Where a record fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Here,
    InTheNextRegion,
    /// It is too long: the commit goes into the tables.
    Nowhere,
}

/// A part of the file with records next to each other.
#[derive(Clone, Copy)]
struct Region {
    start: usize,
    length: usize,
}

impl Region {
    const FIRST: Self = Self { start: 0, length: FIRST_LENGTH };

    fn end(self) -> usize {
        self.start + self.length
    }

    /// The region after this one. It is four times as long, up to a limit, and does not overlap with this one.
    fn next(self) -> Self {
        let length = (4 * self.length).min(LENGTH);
        Self { start: if length <= self.start { 0 } else { self.end() }, length }
    }
}

/// Changes, in the order of their making; of a slot or a job only the last one.
#[derive(Default)]
pub(super) struct Contents {
    /// The counters and the clock after the last of them; none when there are no changes.
    pub(super) latest: Option<(Counters, StoreTime)>,
    /// The new slots; `None` for a key that is forgotten.
    pub(super) slots: HashMap<Key, Option<Slot>>,
    /// The new jobs; `None` for one that is forgotten.
    pub(super) jobs: HashMap<Key, Option<Job>>,
    pub(super) events: Pack,
    pub(super) endings: Pack,
    /// The number of the last ending, those in the tables included. It begins anew when none is left.
    pub(super) ended: u64,
}

/// Rows of one kind, side by side.
#[derive(Default)]
pub(super) struct Pack {
    rows: Vec<u8>,
    count: u64,
}

impl Journal {
    /// A journal in this file, for the opening with this epoch. It has to be begun.
    pub(super) fn new(file: JournalFile, epoch: u64) -> Self {
        let (contents, region, record) = (Contents::default(), Region::FIRST, Record::default());
        Self {
            file,
            epoch,
            contents,
            region,
            mark_length: 0,
            at: 0,
            next: FIRST_RECORD,
            record,
            in_doubt: false,
        }
    }

    /// Begins anew, now that the tables have everything. The caller writes into the header that the journal begins with
    /// [`FIRST_RECORD`].
    pub(super) fn begin(&mut self, db: &Connection) -> RowResult<()> {
        self.contents = Contents { ended: last_ending(db)?, ..Contents::default() };
        self.file.wipe(Region::FIRST.length as u64)?;
        self.next = FIRST_RECORD;
        self.mark(Region::FIRST, Mark::Begins)?;
        self.go_on_in(Region::FIRST);
        Ok(())
    }

    /// Goes on after the mark in this region.
    fn go_on_in(&mut self, region: Region) {
        self.region = region;
        self.at = region.start + self.mark_length;
        self.next += 1;
    }

    /// Writes the record with which a region begins.
    fn mark(&mut self, region: Region, mark: Mark) -> RowResult<()> {
        self.file.lengthen(region.end() as u64)?;
        let mut record = Record::default();
        record.make_mark(self.epoch, self.next, region.length, mark == Mark::Begins)?;
        self.file.write(region.start as u64, record.bytes())?;
        self.mark_length = record.bytes().len();
        Ok(())
    }

    /// Makes these changes the next record, and answers where it fits.
    pub(super) fn prepare(&mut self, staged: &Staged) -> RowResult<Fit> {
        self.record.make(self.epoch, self.next, staged)?;
        let (length, next) = (self.record.bytes().len(), self.region.next());
        Ok(if length > LONGEST {
            Fit::Nowhere
        } else if self.at + length <= self.region.end() {
            Fit::Here
        } else if 2 * length <= next.length {
            Fit::InTheNextRegion
        } else {
            Fit::Nowhere
        })
    }

    /// Appends the record that was prepared, for which there is room. Then it is durable.
    pub(super) fn append(&mut self, staged: &Staged) -> RowResult<()> {
        self.in_doubt = true;
        self.file.write(self.at as u64, self.record.bytes())?;
        self.in_doubt = false;
        self.at += self.record.bytes().len();
        self.next += 1;
        self.contents.add(staged, &self.record);
        Ok(())
    }

    /// Goes on in the next region. Answers the contents of this one, which the caller writes into the tables, and the number of the first
    /// record that is still needed then. Everything before this region is in the tables already.
    pub(super) fn turn_over(&mut self, staged: &Staged) -> RowResult<(Contents, u64)> {
        let (region, first) = (self.region.next(), self.next);
        self.mark(region, Mark::Continues)?;
        self.go_on_in(region);
        let contents = self.take_contents();
        // It has another number now.
        self.record.make(self.epoch, self.next, staged)?;
        Ok((contents, first))
    }

    /// Leaves a record as a failed sync does.
    #[cfg(test)]
    pub(super) fn append_in_doubt(&mut self, staged: &Staged) -> RowResult<()> {
        self.record.make(self.epoch, self.next, staged)?;
        self.in_doubt = true;
        Ok(self.file.write(self.at as u64, self.record.bytes())?)
    }

    /// Makes sure that a record whose write or sync has failed is not found: its callers were told of the failure.
    pub(super) fn discard_what_is_in_doubt(&mut self) -> RowResult<()> {
        if self.in_doubt {
            self.file.write(self.at as u64, &[0; RECORD_HEADER])?;
            self.in_doubt = false;
        }
        Ok(())
    }

    /// The changes for which there was no room, as contents of their own that follow the journal's.
    pub(super) fn beyond(&self, staged: &Staged) -> Contents {
        let mut contents = Contents { ended: self.contents.ended, ..Contents::default() };
        contents.add(staged, &self.record);
        contents
    }

    /// Writes where the journal goes on once everything is in the tables, and answers the number of its first record.
    /// [`Journal::accept_all`] follows when it is.
    pub(super) fn mark_next(&mut self) -> RowResult<u64> {
        self.mark(self.region.next(), Mark::Begins)?;
        Ok(self.next)
    }

    /// Takes the contents out, to be written into the tables.
    pub(super) fn take_contents(&mut self) -> Contents {
        let anew = Contents { ended: self.contents.ended, ..Contents::default() };
        std::mem::replace(&mut self.contents, anew)
    }

    /// Takes contents back that could not be written into the tables.
    pub(super) fn put_back(&mut self, contents: Contents) {
        self.contents = contents;
    }

    /// Everything is in the tables, and so many endings of the last commit with it.
    pub(super) fn accept_all(&mut self, ended: usize) {
        self.go_on_in(self.region.next());
        self.record.shrink_to(LENGTH);
        self.contents = Contents { ended: self.contents.ended + ended as u64, ..Contents::default() };
    }

    /// Removes its file: what was in it is in the tables by now, and the header says so.
    pub(super) fn remove(&self) {
        self.file.remove();
    }
}

/// Deletes what is not kept any more, once the tables have the ending with number `ended` and all before. A pack goes when all of it
/// does.
pub(super) fn delete_old(db: &Connection, trim: Trim, ended: u64) -> rusqlite::Result<()> {
    let endings_up_to = ended.saturating_sub(trim.endings_kept as u64);
    for (sql, last) in [
        ("DELETE FROM event WHERE position <= ?1", trim.events_up_to.0),
        ("DELETE FROM event_pack WHERE last <= ?1", trim.events_up_to.0),
        ("DELETE FROM ending WHERE id <= ?1", endings_up_to),
        ("DELETE FROM ending_pack WHERE last <= ?1", endings_up_to),
    ] {
        db.prepare_cached(sql)?.execute([last.cast_signed()])?;
    }
    Ok(())
}

// --- reading ---

/// How often a file is read again because another process writes it meanwhile.
const ATTEMPTS: u32 = 100;

/// A snapshot of the tables, its header, and what the journal has beyond them. This works beside the process that writes them.
pub(super) fn snapshot<'a>(
    store: &Path,
    db: &'a Connection,
) -> RowResult<(Transaction<'a>, Header, Contents)> {
    for _ in 0..ATTEMPTS {
        let (before, recorded) = read_whole(store, db)?;
        let snapshot = db.unchecked_transaction()?;
        let header = rows::read_header(&snapshot)?;
        if header.goes_with(&before) {
            let contents = recorded.contents(&snapshot, &header)?;
            return Ok((snapshot, header, contents));
        }
    }
    Err(busy())
}

/// The header, and the journal that goes with it. While another process writes the journal, a read may find an older state of its
/// beginning than of its end. So it is damaged only if two reads in a row find the same.
fn read_whole(store: &Path, db: &Connection) -> RowResult<(Header, Recorded)> {
    let mut damage = None;
    for _ in 0..ATTEMPTS {
        let header = rows::read_header(db)?;
        let (recorded, error) = match Recorded::read(store, db, &header) {
            Ok(recorded) => match recorded.contents(db, &header) {
                Ok(_) => return Ok((header, recorded)),
                Err(error) => (Some(recorded), error),
            },
            Err(error) => (None, error),
        };
        let seen = Some((header, recorded));
        if !matches!(error, RowError::Bad(_)) || damage == seen {
            return Err(error);
        }
        damage = seen;
    }
    Err(busy())
}

fn busy() -> RowError {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None).into()
}

/// What the journal of a file holds, whole records and remains of others.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Recorded {
    bytes: Vec<u8>,
    /// Whether it is that of a file of schema 4, which has it in a row of its own.
    in_a_row: bool,
}

impl Recorded {
    /// Reads the journal that a header tells of.
    pub(super) fn read(store: &Path, db: &Connection, header: &Header) -> RowResult<Self> {
        if header.journal == 0 { Ok(Self::default()) } else { Self::read_any(store, db) }
    }

    fn read_any(store: &Path, db: &Connection) -> RowResult<Self> {
        let missing = |of| RowError::Bad(format!("its journal{of} is missing"));
        if migrate::has_journal_row(db)? {
            let sql = "SELECT records FROM journal WHERE id = 1";
            let bytes = db.query_row(sql, [], |row| row.get::<_, Vec<u8>>(0)).optional()?;
            return Ok(Self { bytes: bytes.ok_or_else(|| missing(""))?, in_a_row: true });
        }
        match journal_file::read(store) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(missing(" (the file ending in .journal)"))
            }
            read => Ok(Self { bytes: read?, in_a_row: false }),
        }
    }

    /// What is in it beyond the tables of `db`, whose own row is `header`.
    pub(super) fn contents(&self, db: &Connection, header: &Header) -> RowResult<Contents> {
        let mut contents = Contents::default();
        if header.journal != 0 {
            let epoch = (!self.in_a_row).then_some(header.epoch);
            self.replay(epoch, header.journal, &mut contents)?;
        }
        contents.ended += last_ending(db)?;
        Ok(contents)
    }

    /// Adds the records from number `first` on to `contents`, up to the end or to what is damaged.
    fn replay(&self, epoch: Option<u64>, first: u64, contents: &mut Contents) -> RowResult<()> {
        let damaged = || RowError::Bad("its journal is damaged".into());
        let (mut at, mut number) = (self.region_of(epoch, first).ok_or_else(damaged)?, first);
        while let Some((start, rows)) = self.record(epoch, at, number) {
            let mut rest = rows;
            while !rest.is_empty() {
                let row = PackedRow::take(&mut rest).ok_or_else(damaged)?;
                match row.kind {
                    Kind::Region => {
                        let mark = self.mark_in(start, &row).ok_or_else(damaged)?;
                        if mark == Mark::Begins && number != first {
                            // The tables do not have what it follows.
                            return if self.has_later(epoch, number) { Err(damaged()) } else { Ok(()) };
                        }
                    }
                    _ => contents.add_row(&row)?,
                }
            }
            (at, number) = (start + RECORD_HEADER + rows.len(), number + 1);
            if rows.is_empty() && self.in_a_row {
                // There the last record was followed by one without rows.
                return Ok(());
            }
        }
        let is_end = !self.in_a_row && !self.has_later(epoch, number);
        if is_end { Ok(()) } else { Err(damaged()) }
    }

    /// What the region says that begins here; `None` if it was cut off.
    fn mark_in(&self, start: usize, row: &PackedRow<'_>) -> Option<Mark> {
        let length = usize::try_from(row.number(0)?).ok()?;
        let mark = if row.number(1)? == 1 { Mark::Begins } else { Mark::Continues };
        (start.checked_add(length)? <= self.bytes.len()).then_some(mark)
    }

    /// Where the record with this number begins, and its rows. It is at `at`, or the first of another region.
    fn record(&self, epoch: Option<u64>, at: usize, number: u64) -> Option<(usize, &[u8])> {
        let here = |at| Some((at, checked(self.bytes.get(at..)?, epoch, number)?));
        here(at).or_else(|| self.region_of(epoch, number).and_then(here))
    }

    /// Where the region begins whose first record has this number.
    fn region_of(&self, epoch: Option<u64>, number: u64) -> Option<usize> {
        let is_it =
            |at: &usize| self.bytes.get(*at..).and_then(|rest| checked(rest, epoch, number)).is_some();
        (0..self.bytes.len()).step_by(STEP).find(is_it)
    }

    /// Whether there is a record with a larger number anywhere. One is written once the one before it is durable.
    fn has_later(&self, epoch: Option<u64>, number: u64) -> bool {
        // No journal has as many records as this: what claims it is no record.
        let later = number + 1..number.saturating_add(1 << 32);
        let is_whole =
            |at: usize, found| self.bytes.get(at..).and_then(|rest| checked(rest, epoch, found)).is_some();
        self.bytes.windows(8).enumerate().skip(NUMBER_AT).any(|(at, word)| {
            let found = word.try_into().map_or(0, u64::from_le_bytes);
            later.contains(&found) && is_whole(at - NUMBER_AT, found)
        })
    }
}

/// As much of the journal of a damaged store as can be read, and what was wrong with it. Without a header, the journal may begin with
/// any record, in any epoch recorded for the store.
pub(super) fn salvage(
    store: &Path,
    db: &Connection,
    header: Option<&Header>,
) -> (Contents, Option<RowError>) {
    let mut contents = Contents::default();
    if header.is_some_and(|header| header.journal == 0) {
        return (contents, None);
    }
    let recorded = match Recorded::read_any(store, db) {
        Ok(recorded) => recorded,
        // A store whose own row is damaged may have been a closed one.
        Err(RowError::Bad(_)) if header.is_none() => return (contents, None),
        Err(error) => return (contents, Some(error)),
    };
    let epochs: Vec<Option<u64>> = match header {
        _ if recorded.in_a_row => vec![None],
        Some(header) => vec![Some(header.epoch)],
        None => epoch::recorded(store).into_iter().map(Some).collect(),
    };
    let firsts = epochs.into_iter().filter_map(|epoch| {
        let first = header.map(|header| header.journal);
        Some((epoch, first.or_else(|| recorded.best_first(epoch))?))
    });
    let damage = match Vec::from_iter(firsts).first() {
        Some((epoch, first)) => recorded.replay(*epoch, *first, &mut contents).err(),
        None => Some(RowError::Bad("its journal is damaged".into())),
    };
    (contents, damage)
}

impl Recorded {
    /// The first record of a journal of which no header tells: the last one that begins a journal and is followed by another, or else
    /// the first one that is left. Records that are in the tables by now may follow.
    fn best_first(&self, epoch: Option<u64>) -> Option<u64> {
        if self.in_a_row {
            return number_of(&self.bytes);
        }
        let starts = (0..self.bytes.len()).step_by(STEP).filter_map(|at| {
            let rest = self.bytes.get(at..)?;
            let number = number_of(rest)?;
            let mut rows = checked(rest, epoch, number)?;
            let behind = rest.get(RECORD_HEADER + rows.len()..)?;
            let mark = self.mark_in(at, &PackedRow::take(&mut rows)?)?;
            Some((number, mark == Mark::Begins && checked(behind, epoch, number + 1).is_some()))
        });
        let starts: Vec<(u64, bool)> = starts.collect();
        let begun = starts.iter().filter(|(_, begins)| *begins).map(|(number, _)| *number).max();
        begun.or_else(|| starts.iter().map(|(number, _)| *number).min())
    }
}

/// The number of the last ending in the tables.
fn last_ending(db: &Connection) -> rusqlite::Result<u64> {
    let sql =
        "SELECT max(ifnull((SELECT max(id) FROM ending), 0), ifnull((SELECT max(last) FROM ending_pack), 0))";
    db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

/// Puts events and endings that are in packs into the tables of their own, where processes that share the file find them.
pub(super) fn unpack_all(db: &Connection) -> RowResult<()> {
    let events = all_packed(db, "event_pack", rows::event_from)?;
    rows::write_events(db, &events)?;
    let endings = all_packed(db, "ending_pack", rows::ending_from)?;
    rows::write_endings(db, &endings)?;
    Ok(db.execute_batch("DELETE FROM event_pack; DELETE FROM ending_pack")?)
}

impl Contents {
    /// Adds changes, and their events and endings as they are in the record.
    fn add(&mut self, staged: &Staged, record: &Record) {
        self.latest = Some((staged.counters, staged.now));
        self.slots.extend(staged.slots.iter().map(|(key, slot)| (key.clone(), slot.clone())));
        self.jobs.extend(staged.jobs.iter().map(|(key, job)| (key.clone(), job.clone())));
        self.events.add(record.events(), staged.events.len());
        self.endings.add(record.endings(), staged.endings.len());
        self.ended += staged.endings.len() as u64;
    }

    fn add_row(&mut self, row: &PackedRow<'_>) -> RowResult<()> {
        let forgotten =
            || rows::key_from(row).ok_or_else(|| RowError::Bad("its journal forgets no key".into()));
        match row.kind {
            Kind::Counters => self.latest = Some(counters_from(row)?),
            Kind::Slot => self.slots.extend([rows::slot_from(row).map(|(key, slot)| (key, Some(slot)))?]),
            Kind::Job => self.jobs.extend([rows::job_from(row).map(|(key, job)| (key, Some(job)))?]),
            Kind::NoSlot => self.slots.extend([(forgotten()?, None)]),
            Kind::NoJob => self.jobs.extend([(forgotten()?, None)]),
            Kind::Ending => {
                rows::ending_from(row).map(drop)?;
                self.endings.add(row.bytes, 1);
                self.ended += 1;
            }
            Kind::Event => {
                rows::event_from(row).map(drop)?;
                self.events.add(row.bytes, 1);
            }
            Kind::Region => return Err(RowError::Bad("its journal begins in the middle".into())),
        }
        Ok(())
    }

    /// Writes the changes into the tables. The caller writes the header.
    pub(super) fn write(&self, db: &Connection, header: &mut Header) -> rusqlite::Result<()> {
        let Some((counters, clock)) = self.latest else { return Ok(()) };
        (header.counters, header.clock) = (counters, clock);
        let mut statement = rows::slot_statement(db)?;
        for (key, slot) in &self.slots {
            let before = rows::sum_of(db, "slot", key)?;
            let after = match slot {
                Some(slot) => rows::put_slot(&mut statement, key, slot)?,
                None => rows::delete_slot(db, key).map(|()| 0)?,
            };
            header.slot_sums = header.slot_sums.wrapping_sub(before).wrapping_add(u64::from(after));
        }
        for (key, job) in &self.jobs {
            let before = rows::sum_of(db, "job", key)?;
            let after = match job {
                Some(job) => rows::write_job(db, key, job)?,
                None => rows::delete_job(db, key).map(|()| 0)?,
            };
            header.job_sums = header.job_sums.wrapping_sub(before).wrapping_add(u64::from(after));
        }
        let sql = "INSERT INTO event_pack (last, rows) VALUES (?1, ?2)";
        self.events.write(db, sql, counters.position.0)?;
        let sql = "INSERT INTO ending_pack (last, rows) VALUES (?1, ?2)";
        self.endings.write(db, sql, self.ended)
    }
}

impl Pack {
    fn add(&mut self, rows: &[u8], count: usize) {
        self.rows.extend_from_slice(rows);
        self.count += count as u64;
    }

    fn write(&self, db: &Connection, sql: &str, last: u64) -> rusqlite::Result<()> {
        if self.count > 0 {
            db.prepare_cached(sql)?.execute(params![last.cast_signed(), self.rows])?;
        }
        Ok(())
    }

    /// What is in it, each row read by `read`.
    pub(super) fn unpack<T>(&self, read: impl Fn(&dyn Cells) -> RowResult<T>) -> RowResult<Vec<T>> {
        unpack(&self.rows, read)
    }
}

fn unpack<T>(rows: &[u8], read: impl Fn(&dyn Cells) -> RowResult<T>) -> RowResult<Vec<T>> {
    let mut found = Vec::new();
    for_each_row(rows, |row| {
        found.push(read(row)?);
        Ok(())
    })?;
    Ok(found)
}

fn for_each_row(mut rest: &[u8], mut each: impl FnMut(&PackedRow<'_>) -> RowResult<()>) -> RowResult<()> {
    while !rest.is_empty() {
        let bad = || RowError::Bad("a pack of rows holds something that was never written".into());
        each(&PackedRow::take(&mut rest).ok_or_else(bad)?)?;
    }
    Ok(())
}

/// Everything in the packs of a table, in order, each row read by `read`. None is missing between two others.
pub(super) fn all_packed<T>(
    db: &Connection,
    table: &str,
    read: impl Fn(&dyn Cells) -> RowResult<T>,
) -> RowResult<Vec<T>> {
    let (mut found, mut last_before) = (Vec::new(), None::<i64>);
    for_each_pack(db, table, "ASC", |last, rows| {
        let rows = unpack(rows, &read)?;
        let length = |before: i64| last.checked_sub(before).and_then(|length| usize::try_from(length).ok());
        let is_next = last_before.is_none_or(|before| length(before) == Some(rows.len()));
        if !is_next || rows.is_empty() {
            return Err(RowError::Bad(format!("a part of the table {table} is missing")));
        }
        found.extend(rows);
        last_before = Some(last);
        Ok(())
    })?;
    Ok(found)
}

/// What can still be read of the packs of a table, row by row and from both ends; what cannot is added to `lost`.
pub(super) fn salvage_packed<T>(
    db: &Connection,
    table: &str,
    read: impl Fn(&dyn Cells) -> RowResult<T>,
    lost: &mut Vec<RowError>,
) -> Vec<T> {
    let mut packs = BTreeMap::new();
    let mut pass = |order, lost: &mut Vec<RowError>| {
        for_each_pack(db, table, order, |last, rows| {
            let salvage = || {
                let mut found = Vec::new();
                let outcome = for_each_row(rows, |row| {
                    match read(row) {
                        Ok(row) => found.push(row),
                        Err(error) => lost.push(error),
                    }
                    Ok(())
                });
                lost.extend(outcome.err());
                found
            };
            packs.entry(last).or_insert_with(salvage);
            Ok(())
        })
    };
    if let Err(error) = pass("ASC", lost) {
        lost.push(error);
        // The same damage ends this pass too; it has been reported.
        let _ = pass("DESC", lost);
    }
    packs.into_values().flatten().collect()
}

fn for_each_pack(
    db: &Connection,
    table: &str,
    order: &str,
    mut each: impl FnMut(i64, &[u8]) -> RowResult<()>,
) -> RowResult<()> {
    let mut statement = db.prepare(&format!("SELECT last, rows FROM {table} ORDER BY last {order}"))?;
    let mut packs = statement.query([])?;
    while let Some(pack) = packs.next()? {
        each(pack.get(0)?, pack.get_ref(1)?.as_blob().unwrap_or(b"?"))?;
    }
    Ok(())
}

fn counters_from(row: &PackedRow<'_>) -> RowResult<(Counters, StoreTime)> {
    let bad = || RowError::Bad("its journal holds counters that were never written".into());
    let number = |index| row.number(index).ok_or_else(bad);
    let counters = Counters { last_fence: number(0)?, position: Position(number(1)?), seq_floor: number(2)? };
    Ok((counters, StoreTime::from_millis(number(3)?)))
}
