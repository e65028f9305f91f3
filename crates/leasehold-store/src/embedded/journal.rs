//! The journal of the exclusive store: rows that are durable, and not in their tables yet.
//!
//! A commit of a few commands changes as many pages as it has rows, all over the file, and every page goes into SQLite's log
//! whole. So it is put into the journal, one value of [`LENGTH`] bytes in a row of its own that is overwritten in place: its
//! rows lie side by side there, on a page or two. Once the journal is full, the commit writes all of it into the tables, and the
//! journal begins anew: a slot that changed many times is written once, and all events go into one row as they are, a [`Pack`],
//! and so do all endings.
//!
//! ```text
//!   journal   record 7 │ record 8 │ … │ record 41 │ end: 42 │ what was there before
//!   record    length, checksum, number │ row │ row │ …
//!   row       what it is │ cell │ cell │ …          (the cells that its table has, the row's own checksum among them)
//! ```
//!
//! The store's own row says which record is the first, and the last one is followed by an end that has the next number and a
//! checksum: so a damaged journal is not mistaken for a shorter one. All of this happens in SQLite's transactions. A file that was closed in an orderly way has no journal; one in shared mode has no packs either.

use std::collections::{BTreeMap, HashMap};

use leasehold_core::{Job, Key, Position, Slot, StoreTime};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, Cells, Header, RowError, RowResult, Sink};
use crate::resident::{Counters, Staged};
use crate::writer::Trim;

/// How long the journal of a busy store is. A longer one saves more pages, and holds up the commit for longer that writes it into
/// the tables. Tests fill it within a few commands.
const LENGTH: usize = if cfg!(test) { 4 * 1024 } else { 256 * 1024 };

/// How long it is at first: a program that asks for one lease is not to write more than that.
const FIRST_LENGTH: usize = LENGTH / 16;

/// How long the journal is that follows a full one.
fn next_length(length: usize) -> usize {
    (4 * length).min(LENGTH)
}

/// The longest record. What a longer one has would be written twice, once here and soon again into the tables, and it has enough rows
/// for each page that it changes there.
const LONGEST: usize = LENGTH / 4;

/// What stands before the rows of a record: its length, its checksum and its number.
const RECORD_HEADER: usize = 4 + 4 + 8;

/// How the tables are described in the file. A pack has the position of its last event, or the number of its last ending.
pub(super) const CREATE: [&str; 3] = [
    "CREATE TABLE journal (id INTEGER PRIMARY KEY CHECK (id = 1), records BLOB NOT NULL)",
    "CREATE TABLE event_pack (last INTEGER PRIMARY KEY, rows BLOB NOT NULL)",
    "CREATE TABLE ending_pack (last INTEGER PRIMARY KEY, rows BLOB NOT NULL)",
];

/// What is in the journal, as far as it is newer than the tables.
#[derive(Default)]
pub(super) struct Journal {
    pub(super) contents: Contents,
    /// How long it is.
    length: usize,
    /// Where the next record begins.
    at: usize,
    /// Its number.
    next: u64,
    /// The record that was appended last, and the end behind it.
    record: Records,
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
    /// Reads the journal of a file whose own row is `header`.
    pub(super) fn read(db: &Connection, header: &Header) -> RowResult<Self> {
        let (mut journal, damage) = Self::salvage(db, Some(header));
        damage.map_or(Ok(()), Err)?;
        journal.contents.ended += last_ending(db)?;
        Ok(journal)
    }

    /// Reads as much of it as can be read, and answers what was wrong there. Without a header its first record may have any
    /// number.
    pub(super) fn salvage(db: &Connection, header: Option<&Header>) -> (Self, Option<RowError>) {
        let mut journal = Self { next: header.map_or(0, |header| header.journal), ..Self::default() };
        if header.is_some_and(|header| header.journal == 0) {
            return (journal, None);
        }
        let sql = "SELECT records FROM journal WHERE id = 1";
        let damage = match db.query_row(sql, [], |row| row.get::<_, Vec<u8>>(0)).optional() {
            Ok(Some(bytes)) => {
                if header.is_none() {
                    journal.next = number_of(&bytes).unwrap_or(0);
                }
                journal.replay(&bytes).err()
            }
            Ok(None) => header.map(|_| RowError::Bad("its journal is missing".into())),
            Err(error) => Some(error.into()),
        };
        (journal, damage)
    }

    /// The number of the record that comes next: two processes that have read the same have the same.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Begins an empty journal. The caller writes the header.
    pub(super) fn begin(db: &Connection, header: &mut Header) -> rusqlite::Result<Self> {
        make_row(db, FIRST_LENGTH)?;
        let contents = Contents { ended: last_ending(db)?, ..Contents::default() };
        let journal = Self { contents, length: FIRST_LENGTH, next: 1, ..Self::default() };
        journal.begin_anew(db, header)?;
        Ok(journal)
    }

    /// Writes what is in the journal into the tables, and removes it. The caller writes the header.
    pub(super) fn settle(db: &Connection, header: &mut Header) -> RowResult<()> {
        if header.journal != 0 {
            Self::read(db, header)?.contents.write(db, header)?;
            Self::end(db, header)?;
        }
        Ok(())
    }

    /// Removes it: what was in it is in the tables by now. The caller writes the header.
    pub(super) fn end(db: &Connection, header: &mut Header) -> rusqlite::Result<()> {
        header.journal = 0;
        db.execute("DELETE FROM journal", []).map(drop)
    }

    /// Begins at the journal's beginning again, with the number that comes next anyway: if this is not committed, the journal goes on
    /// as if nothing had been.
    fn begin_anew(&self, db: &Connection, header: &mut Header) -> rusqlite::Result<()> {
        let mut end = Records::default();
        end.make_end(self.next);
        overwrite(db, 0, &end.bytes)?;
        header.journal = self.next;
        Ok(())
    }

    /// Puts changes into the journal, if there is room for them and they are not too many. [`Journal::accept`] follows their commit.
    pub(super) fn append(&mut self, db: &Connection, staged: &Staged) -> rusqlite::Result<bool> {
        self.record.make(self.next, |record| record.put_all(staged))?;
        let length = self.record.bytes.len();
        let has_room = length <= LONGEST && self.at + length <= self.length;
        if has_room {
            overwrite(db, self.at, &self.record.bytes)?;
        }
        Ok(has_room)
    }

    /// The changes that were appended last are committed.
    pub(super) fn accept(&mut self, staged: &Staged) {
        self.at += self.record.bytes.len() - RECORD_HEADER;
        self.next += 1;
        self.contents.add(staged, &self.record);
    }

    /// Writes everything into the tables, also the changes for which there was no room, and begins anew. The caller writes the
    /// header, and [`Journal::accept_all`] follows the commit.
    pub(super) fn write_out(
        &mut self,
        db: &Connection,
        header: &mut Header,
        staged: &Staged,
    ) -> rusqlite::Result<()> {
        self.contents.write(db, header)?;
        let mut newest = Contents { ended: self.contents.ended, ..Contents::default() };
        newest.add(staged, &self.record);
        newest.write(db, header)?;
        if self.length < LENGTH {
            make_row(db, next_length(self.length))?;
        }
        self.begin_anew(db, header)
    }

    /// What was written out last is committed.
    pub(super) fn accept_all(&mut self, staged: &Staged) {
        (self.at, self.length) = (0, next_length(self.length));
        self.record.bytes.shrink_to(LENGTH);
        let ended = self.contents.ended + staged.endings.len() as u64;
        self.contents = Contents { ended, ..Contents::default() };
    }

    /// Deletes what is not kept any more, once all else is in the tables. A pack goes when all of it does.
    pub(super) fn delete_old(&self, db: &Connection, trim: Trim, newly_ended: usize) -> rusqlite::Result<()> {
        let ended = self.contents.ended + newly_ended as u64;
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

    /// Reads records up to the end.
    fn replay(&mut self, bytes: &[u8]) -> RowResult<()> {
        let damaged = || RowError::Bad("its journal is damaged".into());
        loop {
            let record =
                bytes.get(self.at..).and_then(|bytes| checked(bytes, self.next)).ok_or_else(damaged)?;
            if record.is_empty() {
                return Ok(());
            }
            let mut rest = record;
            while !rest.is_empty() {
                let row = PackedRow::take(&mut rest).ok_or_else(damaged)?;
                self.contents.add_row(&row)?;
            }
            self.at += RECORD_HEADER + record.len();
            self.next += 1;
        }
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

/// Makes the journal's row, so long, in the place of another one.
fn make_row(db: &Connection, length: usize) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO journal (id, records) VALUES (1, zeroblob(?1))";
    db.execute(sql, [i64::try_from(length).unwrap_or(i64::MAX)]).map(drop)
}

/// Writes into the journal, in place.
fn overwrite(db: &Connection, at: usize, bytes: &[u8]) -> rusqlite::Result<()> {
    db.blob_open(rusqlite::MAIN_DB, "journal", "records", 1, false)?.write_at(bytes, at)
}

impl Contents {
    /// Adds changes, and their events and endings as they are in the record.
    fn add(&mut self, staged: &Staged, record: &Records) {
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
    let number = |index| match row.cell(index) {
        Some(ValueRef::Integer(number)) => Ok(number.cast_unsigned()),
        _ => Err(RowError::Bad("its journal holds counters that were never written".into())),
    };
    let counters = Counters { last_fence: number(0)?, position: Position(number(1)?), seq_floor: number(2)? };
    Ok((counters, StoreTime::from_millis(number(3)?)))
}

/// What a row of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counters,
    Slot,
    /// A key that is forgotten.
    NoSlot,
    Job,
    NoJob,
    Ending,
    Event,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Counters, Self::Slot, Self::NoSlot, Self::Job, Self::NoJob, Self::Ending, Self::Event];

    /// The byte that stands for it.
    fn mark(self) -> u8 {
        match self {
            Self::Counters => b'C',
            Self::Slot => b'S',
            Self::NoSlot => b's',
            Self::Job => b'J',
            Self::NoJob => b'j',
            Self::Ending => b'L',
            Self::Event => b'E',
        }
    }
}

/// Marks of cells: what follows them are the length and the bytes of a text or a blob, or as many bytes of a number as it needs.
const NULL: u8 = 0;
const TEXT: u8 = 1;
const BLOB: u8 = 2;
const NUMBER: u8 = 8;

/// Records in the making, side by side.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    /// Where the endings of the only record begin, where its events do, and where they end.
    parts: [usize; 3],
}

impl Records {
    /// Makes room for the header of the next record, and answers where it begins.
    fn open(&mut self) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER]);
        start
    }

    /// Fills in the header of the record that begins at `start` and has all of its rows by now.
    fn seal(&mut self, start: usize, number: u64) {
        let rows = self.bytes.get(start + RECORD_HEADER..).unwrap_or_default();
        let length = u32::try_from(rows.len()).unwrap_or(u32::MAX).to_le_bytes();
        let sum = sum_of_record(number, rows).to_le_bytes();
        let header = length.into_iter().chain(sum).chain(number.to_le_bytes());
        self.bytes.splice(start..start + RECORD_HEADER, header);
    }

    /// The only record, with the end behind it.
    fn make(
        &mut self,
        number: u64,
        rows: impl FnOnce(&mut Self) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.bytes.clear();
        let start = self.open();
        rows(self)?;
        self.seal(start, number);
        self.make_end(number + 1);
        Ok(())
    }

    /// The end: a record without rows.
    fn make_end(&mut self, number: u64) {
        let start = self.open();
        self.seal(start, number);
    }

    fn put_all(&mut self, staged: &Staged) -> rusqlite::Result<()> {
        let counters = staged.counters;
        self.row(Kind::Counters).put(params![
            counters.last_fence.cast_signed(),
            counters.position.0.cast_signed(),
            counters.seq_floor.cast_signed(),
            staged.now.as_millis().cast_signed(),
        ])?;
        for (key, slot) in &staged.slots {
            match slot {
                Some(slot) => rows::put_slot(self.row(Kind::Slot), key, slot).map(drop)?,
                None => self.row(Kind::NoSlot).put(params![key.as_str()])?,
            }
        }
        for (key, job) in &staged.jobs {
            match job {
                Some(job) => rows::put_job(self.row(Kind::Job), key, job).map(drop)?,
                None => self.row(Kind::NoJob).put(params![key.as_str()])?,
            }
        }
        let endings = self.bytes.len();
        staged.endings.iter().try_for_each(|ending| rows::put_ending(self.row(Kind::Ending), ending))?;
        let events = self.bytes.len();
        staged.events.iter().try_for_each(|event| rows::put_event(self.row(Kind::Event), event))?;
        self.parts = [endings, events, self.bytes.len()];
        Ok(())
    }

    fn endings(&self) -> &[u8] {
        self.bytes.get(self.parts[0]..self.parts[1]).unwrap_or_default()
    }

    fn events(&self) -> &[u8] {
        self.bytes.get(self.parts[1]..self.parts[2]).unwrap_or_default()
    }

    /// Where the cells of a row of this kind are put next.
    fn row(&mut self, kind: Kind) -> &mut Self {
        self.bytes.push(kind.mark());
        self
    }
}

impl Sink for Records {
    fn put(&mut self, cells: &[&dyn ToSql]) -> rusqlite::Result<()> {
        self.bytes.push(u8::try_from(cells.len()).unwrap_or(u8::MAX));
        cells.iter().try_for_each(|cell| match cell.to_sql()? {
            ToSqlOutput::Borrowed(value) => put_cell(&mut self.bytes, value),
            ToSqlOutput::Owned(value) => put_cell(&mut self.bytes, ValueRef::from(&value)),
            _ => Err(no_cell()),
        })
    }
}

fn no_cell() -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure("no row has such a value".into())
}

fn put_cell(bytes: &mut Vec<u8>, value: ValueRef<'_>) -> rusqlite::Result<()> {
    match value {
        ValueRef::Null => bytes.push(NULL),
        ValueRef::Integer(number) => {
            let used = 8 - number.cast_unsigned().leading_zeros() / 8;
            bytes.push(NUMBER + used as u8);
            bytes.extend(number.to_le_bytes().into_iter().take(used as usize));
        }
        ValueRef::Text(text) => put_bytes(bytes, TEXT, text),
        ValueRef::Blob(blob) => put_bytes(bytes, BLOB, blob),
        ValueRef::Real(_) => return Err(no_cell()),
    }
    Ok(())
}

fn put_bytes(bytes: &mut Vec<u8>, mark: u8, value: &[u8]) {
    bytes.push(mark);
    bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(value);
}

fn sum_of_record(number: u64, rows: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&number.to_le_bytes());
    sum.update(rows);
    sum.finalize()
}

/// The number of the record that begins here.
fn number_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(8..RECORD_HEADER)?.try_into().ok()?))
}

/// The rows of the record with this number, if it begins here and is whole.
fn checked(bytes: &[u8], number: u64) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let rows = bytes.get(RECORD_HEADER..)?.get(..usize::try_from(word(0)?).ok()?)?;
    (number_of(bytes)? == number && word(4)? == sum_of_record(number, rows)).then_some(rows)
}

/// A row of a record or a pack, as it is read.
struct PackedRow<'a> {
    kind: Kind,
    cells: Vec<ValueRef<'a>>,
    /// All of it.
    bytes: &'a [u8],
}

impl Cells for PackedRow<'_> {
    fn cell(&self, index: usize) -> Option<ValueRef<'_>> {
        self.cells.get(index).copied()
    }
}

impl<'a> PackedRow<'a> {
    /// Takes the next row from `rest`; `None` when what is there was never written.
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let all = *rest;
        let (mark, count) = (take_byte(rest)?, take_byte(rest)?);
        let kind = Kind::ALL.into_iter().find(|kind| kind.mark() == mark)?;
        let cells = (0..count).map(|_| take_cell(rest)).collect::<Option<_>>()?;
        Some(Self { kind, cells, bytes: all.get(..all.len() - rest.len())? })
    }
}

fn take_cell<'a>(rest: &mut &'a [u8]) -> Option<ValueRef<'a>> {
    match take_byte(rest)? {
        NULL => Some(ValueRef::Null),
        TEXT => take_bytes(rest).map(ValueRef::Text),
        BLOB => take_bytes(rest).map(ValueRef::Blob),
        mark => {
            let used = usize::from(mark.checked_sub(NUMBER)?);
            let mut number = [0; 8];
            number.get_mut(..used)?.copy_from_slice(take(rest, used)?);
            Some(ValueRef::Integer(i64::from_le_bytes(number)))
        }
    }
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    take(rest, usize::try_from(length).ok()?)
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    take(rest, 1)?.first().copied()
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, others) = rest.split_at_checked(count)?;
    *rest = others;
    Some(taken)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test fails by panicking
mod tests {
    use super::*;

    fn packed(cells: &[&dyn ToSql]) -> Vec<u8> {
        let mut records = Records::default();
        records.row(Kind::Slot).put(cells).unwrap();
        records.bytes
    }

    #[test]
    fn a_row_is_read_as_it_was_put() {
        let numbers = [0, 1, -1, 255, 256, 1 << 40, i64::MAX, i64::MIN];
        let (text, blob, nothing) = ("日本語 and \0", &[0_u8, 255][..], None::<i64>);
        let mut cells: Vec<&dyn ToSql> = numbers.iter().map(|number| number as &dyn ToSql).collect();
        cells.extend([&text as &dyn ToSql, &blob, &nothing, &true, &u32::MAX]);
        let bytes = packed(&cells);
        let mut rest = &bytes[..];
        let row = PackedRow::take(&mut rest).unwrap();
        assert!(rest.is_empty() && row.kind == Kind::Slot && row.bytes == bytes);
        let mut expected: Vec<_> = numbers.map(ValueRef::Integer).to_vec();
        expected.extend([ValueRef::Text(text.as_bytes()), ValueRef::Blob(blob), ValueRef::Null]);
        expected.extend([ValueRef::Integer(1), ValueRef::Integer(u32::MAX.into())]);
        assert_eq!(row.cells, expected);
    }

    #[test]
    fn half_a_row_is_none() {
        let bytes = packed(params!["run/1", 7, &[1_u8, 2, 3][..]]);
        for length in 0..bytes.len() {
            assert!(PackedRow::take(&mut &bytes[..length]).is_none(), "{length} of {} bytes", bytes.len());
        }
        for (at, wrong) in [(0, b'?'), (2, 3), (2, 17)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(PackedRow::take(&mut &bytes[..]).is_none(), "{wrong} at {at}");
        }
    }

    #[test]
    fn a_record_counts_only_whole_and_in_its_turn() {
        let mut records = Records::default();
        let row = |record: &mut Records| record.row(Kind::NoSlot).put(params!["run/1"]);
        records.make(7, row).unwrap();
        let rows = checked(&records.bytes, 7).unwrap().to_vec();
        assert_eq!(rows.first(), Some(&b's'));
        assert!(checked(&records.bytes, 8).is_none(), "the one after it has another number");
        let end = records.bytes.get(RECORD_HEADER + rows.len()..).unwrap();
        assert_eq!(checked(end, 8), Some(&[][..]), "behind it is the end");
        for at in 0..RECORD_HEADER + rows.len() {
            let mut flipped = records.bytes.clone();
            flipped[at] ^= 1;
            assert!(checked(&flipped, 7).is_none(), "byte {at}");
        }
        assert!(checked(&[0; 64], 0).is_none() && checked(&[], 7).is_none());
    }
}
