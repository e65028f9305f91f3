//! How slots, jobs, events and endings stand in the rows of the file, each with a checksum of its own.
//!
//! SQLite notices a torn page, but not a flipped bit inside a value: a fence that silently changed would be worse than
//! a file that does not open. Every row therefore carries a checksum, and the store's own row carries the sums over all
//! slots and all jobs, so that a missing row is noticed too.
//!
//! A row goes into its table or, before that, into a record of the [journal](super::journal): [`Sink`] is where it is put, and
//! [`Cells`] where it is read from.

use leasehold_core::event::Event;
use leasehold_core::job::{Job, JobText};
use leasehold_core::lease::{Lease, LossReason};
use leasehold_core::{Fence, Key, LeaseId, Owner, Position, Published, Slot, StoreTime, TabId};
use rusqlite::types::{FromSql, ToSql, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use crate::changes::Ending;
use crate::columns::{Flat, FlatStatus, meta_text, parse_meta, parse_request, parse_tab, request_text, ttl};
use crate::resident::Counters;

/// What reading a row can come to: SQLite's own trouble, or a row that cannot be right.
#[derive(Debug)]
pub(super) enum RowError {
    Sqlite(rusqlite::Error),
    /// Which row, and what is wrong with it.
    Bad(String),
    /// A file beside it could not be read or written: then it is unknown what it holds.
    Io(std::io::Error),
    /// Another process has opened the file alone, although this one had it open.
    Replaced,
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<std::io::Error> for RowError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

pub(super) type RowResult<T> = Result<T, RowError>;

/// What takes a row.
pub(super) trait Sink {
    fn put(&mut self, cells: &[&dyn ToSql]) -> rusqlite::Result<()>;
}

/// The statement that writes it into its table.
impl Sink for CachedStatement<'_> {
    fn put(&mut self, cells: &[&dyn ToSql]) -> rusqlite::Result<()> {
        self.execute(cells).map(drop)
    }
}

/// What a row is read from.
pub(super) trait Cells {
    /// The cell in this column; `None` when there is none.
    fn cell(&self, index: usize) -> Option<ValueRef<'_>>;
}

impl Cells for Row<'_> {
    fn cell(&self, index: usize) -> Option<ValueRef<'_>> {
        self.get_ref(index).ok()
    }
}

// --- the store's own row ---

/// The one row about the store as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) counters: Counters,
    /// The lease clock when this was written.
    pub(super) clock: StoreTime,
    /// Which boot `clock_offset` is about; empty when the clock stands still.
    pub(super) boot: String,
    /// In that boot, the lease clock is the raw clock plus this.
    pub(super) clock_offset: i64,
    /// The sum of the checksums of all slots.
    pub(super) slot_sums: u64,
    /// The sum of the checksums of all jobs.
    pub(super) job_sums: u64,
    /// Whether a process is using the file, or was when it ended: then the write-ahead log must be there.
    pub(super) in_use: bool,
    /// A random number that changes whenever a process opens the file alone. A process that finds another one than its own
    /// has been replaced. 0 in a new file, and in one of a schema that had no epochs.
    pub(super) epoch: u64,
    /// The number of the first record in the journal; 0 when there is no journal. This row is as old as that record.
    pub(super) journal: u64,
}

impl Header {
    /// Whether a journal that goes with the other header goes with this one: none was written into the tables in between.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        (self.journal == 0 && other.journal == 0) || self == other
    }

    fn sum(&self) -> u32 {
        let sum = Sum::new()
            .number(self.counters.last_fence)
            .number(self.counters.position.0)
            .number(self.counters.seq_floor)
            .number(self.clock.as_millis())
            .text(&self.boot)
            .number(self.clock_offset.cast_unsigned())
            .number(self.slot_sums)
            .number(self.job_sums)
            .number(u64::from(self.in_use));
        // Without a journal, or an epoch, it has the checksum that it had before there were any.
        match (self.epoch, self.journal) {
            (0, 0) => sum.finish(),
            (epoch, 0) => sum.number(epoch).finish(),
            (epoch, journal) => sum.number(epoch).number(journal).finish(),
        }
    }
}

const READ_HEADER: &str = "SELECT last_fence, position, seq_floor, clock, boot, clock_offset, slot_sums, job_sums, \
                           in_use, sum, epoch, journal FROM store WHERE id = 1";

pub(super) fn read_header(db: &Connection) -> RowResult<Header> {
    let found = db
        .prepare_cached(READ_HEADER)?
        .query_row([], |row| {
            let counters = Counters {
                last_fence: number(row, 0)?,
                position: Position(number(row, 1)?),
                seq_floor: number(row, 2)?,
            };
            let header = Header {
                counters,
                clock: StoreTime::from_millis(number(row, 3)?),
                boot: row.get(4)?,
                clock_offset: row.get(5)?,
                slot_sums: number(row, 6)?,
                job_sums: number(row, 7)?,
                in_use: row.get(8)?,
                epoch: number(row, 10)?,
                journal: number(row, 11)?,
            };
            Ok((header, row.get::<_, u32>(9)?))
        })
        .optional()?;
    match found {
        Some((header, sum)) if header.sum() == sum => Ok(header),
        Some(_) => Err(RowError::Bad("the store's own row does not match its checksum".into())),
        None => Err(RowError::Bad("the store's own row is missing".into())),
    }
}

pub(super) fn write_header(db: &Connection, header: &Header) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO store \
               (id, last_fence, position, seq_floor, clock, boot, clock_offset, slot_sums, job_sums, in_use, sum, \
                epoch, journal) VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    db.prepare_cached(sql)?.execute(params![
        header.counters.last_fence.cast_signed(),
        header.counters.position.0.cast_signed(),
        header.counters.seq_floor.cast_signed(),
        header.clock.as_millis().cast_signed(),
        header.boot,
        header.clock_offset,
        header.slot_sums.cast_signed(),
        header.job_sums.cast_signed(),
        header.in_use,
        header.sum(),
        header.epoch.cast_signed(),
        header.journal.cast_signed(),
    ])?;
    Ok(())
}

/// Writes that no process uses the file, and the epoch if there is one: this works with every schema.
pub(super) fn write_not_in_use(db: &Connection, header: &Header) -> rusqlite::Result<()> {
    if header.epoch != 0 {
        db.execute("UPDATE main.store SET epoch = ?1", [header.epoch.cast_signed()])?;
    }
    db.execute("UPDATE main.store SET in_use = 0, sum = ?1", [header.sum()]).map(|_| ())
}

/// The epoch of the file as it is now.
pub(super) fn read_epoch(db: &Connection) -> rusqlite::Result<u64> {
    db.prepare_cached("SELECT epoch FROM store WHERE id = 1")?.query_row([], |row| number(row, 0))
}

// --- slots ---

/// The columns of a slot, in the order in which [`slot_from`] reads them.
pub(super) const SLOT_COLUMNS: &str = "key, seq, vacant_since, owner, lease_id, fence, acquired_at, renewed_at, expires_at, ttl_ms, leaving, meta, \
     request, sum, due_at, tab";

pub(super) fn read_slot(db: &Connection, key: &Key) -> RowResult<Option<Slot>> {
    let sql = format!("SELECT {SLOT_COLUMNS} FROM slot WHERE key = ?1");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([key.as_str()])?;
    rows.next()?.map(|row| slot_from(row).map(|(_, slot)| slot)).transpose()
}

/// It replaces the row. `ON CONFLICT … DO UPDATE` would read the old one first, column by column: a sixth of all that SQLite does.
const WRITE_SLOT: &str = "INSERT OR REPLACE INTO slot \
        (key, seq, vacant_since, owner, lease_id, fence, acquired_at, renewed_at, expires_at, ttl_ms, leaving, meta, \
         request, sum, due_at, tab) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

/// The statement of [`write_slot`]. To find it takes a good part of the time that it takes to run, so a batch does so once.
pub(super) fn slot_statement(db: &Connection) -> rusqlite::Result<CachedStatement<'_>> {
    db.prepare_cached(WRITE_SLOT)
}

/// Writes a slot, and answers the checksum of its row.
pub(super) fn write_slot(db: &Connection, key: &Key, slot: &Slot) -> rusqlite::Result<u32> {
    put_slot(&mut slot_statement(db)?, key, slot)
}

/// The same wherever rows go.
pub(super) fn put_slot(sink: &mut impl Sink, key: &Key, slot: &Slot) -> rusqlite::Result<u32> {
    let sum = slot_sum(key, slot);
    let lease = slot.lease.as_ref();
    let time = |pick: fn(&Lease) -> StoreTime| lease.map(|lease| pick(lease).as_millis().cast_signed());
    sink.put(params![
        key.as_str(),
        slot.seq.cast_signed(),
        slot.vacant_since.as_millis().cast_signed(),
        lease.map(|lease| lease.owner.as_str()),
        lease.map(|lease| lease.lease_id.as_bytes()),
        lease.map(|lease| lease.fence.get().cast_signed()),
        time(|lease| lease.acquired_at),
        time(|lease| lease.renewed_at),
        time(|lease| lease.expires_at),
        lease.map(|lease| lease.ttl.as_millis().cast_signed()),
        lease.map(|lease| lease.leaving),
        lease.and_then(|lease| meta_text(&lease.meta)),
        lease.and_then(|lease| lease.request.as_deref()).map(request_text),
        sum,
        slot.due_at().map(|due| due.as_millis().cast_signed()),
        lease.and_then(|lease| lease.tab.as_ref()).map(TabId::as_str),
    ])?;
    Ok(sum)
}

pub(super) fn delete_slot(db: &Connection, key: &Key) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM slot WHERE key = ?1")?.execute([key.as_str()])?;
    Ok(())
}

/// The checksum in the row of `key` in `table`, slot or job; 0 when there is no such row.
pub(super) fn sum_of(db: &Connection, table: &str, key: &Key) -> rusqlite::Result<u64> {
    let sql = match table {
        "job" => "SELECT sum FROM job WHERE key = ?1",
        _ => "SELECT sum FROM slot WHERE key = ?1",
    };
    let sum: Option<u32> = db.prepare_cached(sql)?.query_row([key.as_str()], |row| row.get(0)).optional()?;
    Ok(sum.map_or(0, u64::from))
}

/// The slot in a row, if it is what was once written there.
pub(super) fn slot_from(row: &dyn Cells) -> RowResult<(Key, Slot)> {
    let shown = shown_key(row);
    let bad = |what: &str| RowError::Bad(format!("the slot of key {shown:?} {what}"));
    let (key, slot, sum) = parse_slot(row).ok_or_else(|| bad("holds values that were never written"))?;
    if slot_sum(&key, &slot) != sum {
        return Err(bad("does not match its checksum"));
    }
    Ok((key, slot))
}

fn parse_slot(row: &dyn Cells) -> Option<(Key, Slot, u32)> {
    let time = |index| Some(StoreTime::from_millis(number_in(row, index)?));
    let lease = match text_or_null(row, 3)? {
        None => None,
        Some(owner) => Some(Lease {
            owner: Owner::parse(owner).ok()?,
            tab: parse_tab(text_or_null(row, 15)?)?,
            lease_id: lease_id(row, 4)?,
            fence: Fence::new(number_in(row, 5)?).ok()?,
            acquired_at: time(6)?,
            renewed_at: time(7)?,
            expires_at: time(8)?,
            ttl: ttl(number_in(row, 9)?)?,
            leaving: get(row, 10)?,
            meta: parse_meta(text_or_null(row, 11)?)?,
            request: parse_request(text_or_null(row, 12)?)?,
        }),
    };
    let slot = Slot { seq: number_in(row, 1)?, lease, vacant_since: time(2)? };
    // Not in the checksum: it follows from the rest.
    let due_at = get::<Option<i64>>(row, 14)?.map(i64::cast_unsigned);
    if due_at != slot.due_at().map(StoreTime::as_millis) {
        return None;
    }
    Some((key_from(row)?, slot, get(row, 13)?))
}

/// Stands before a tab in a checksum. A slot without one has the checksum that it had before there were tabs.
const TAB_MARK: u64 = u64::from_le_bytes(*b"tab\0\0\0\0\0");

/// The checksum of a slot's row.
pub(super) fn slot_sum(key: &Key, slot: &Slot) -> u32 {
    let mut sum = Sum::new().text(key.as_str()).number(slot.seq).number(slot.vacant_since.as_millis());
    if let Some(lease) = &slot.lease {
        sum = sum
            .text(lease.owner.as_str())
            .bytes(lease.lease_id.as_bytes())
            .number(lease.fence.get())
            .number(lease.acquired_at.as_millis())
            .number(lease.renewed_at.as_millis())
            .number(lease.expires_at.as_millis())
            .number(lease.ttl.as_millis())
            .number(u64::from(lease.leaving));
        sum = lease.meta.iter().fold(sum, |sum, (name, value)| sum.text(name).text(value));
        if let Some(tab) = &lease.tab {
            sum = sum.number(TAB_MARK).text(tab.as_str());
        }
        if let Some(request) = &lease.request {
            sum = sum.text(&request_text(request));
        }
    }
    sum.finish()
}

// --- jobs ---

/// The columns of a job, in the order in which [`job_from`] reads them.
pub(super) const JOB_COLUMNS: &str =
    "key, payload, status, note, by, attempts, max_attempts, begun, changed_at, sum";

pub(super) fn read_job(db: &Connection, key: &Key) -> RowResult<Option<Job>> {
    let sql = format!("SELECT {JOB_COLUMNS} FROM job WHERE key = ?1");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([key.as_str()])?;
    rows.next()?.map(|row| job_from(row).map(|(_, job)| job)).transpose()
}

/// Writes a job, and answers the checksum of its row.
pub(super) fn write_job(db: &Connection, key: &Key, job: &Job) -> rusqlite::Result<u32> {
    let sql = "INSERT OR REPLACE INTO job \
        (key, payload, status, note, by, attempts, max_attempts, begun, changed_at, sum) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    put_job(&mut db.prepare_cached(sql)?, key, job)
}

/// The same wherever rows go.
pub(super) fn put_job(sink: &mut impl Sink, key: &Key, job: &Job) -> rusqlite::Result<u32> {
    let (sum, flat) = (job_sum(key, job), FlatStatus::from(&job.status));
    sink.put(params![
        key.as_str(),
        job.payload.as_str(),
        flat.word,
        flat.note,
        flat.by.map(u64::cast_signed),
        job.attempts,
        job.max_attempts,
        job.begun,
        job.changed_at.as_millis().cast_signed(),
        sum,
    ])?;
    Ok(sum)
}

pub(super) fn delete_job(db: &Connection, key: &Key) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM job WHERE key = ?1")?.execute([key.as_str()])?;
    Ok(())
}

/// The job in a row, if it is what was once written there.
pub(super) fn job_from(row: &dyn Cells) -> RowResult<(Key, Job)> {
    let shown = shown_key(row);
    let bad = |what: &str| RowError::Bad(format!("the job of key {shown:?} {what}"));
    let (key, job, sum) = parse_job(row).ok_or_else(|| bad("holds values that were never written"))?;
    if job_sum(&key, &job) != sum {
        return Err(bad("does not match its checksum"));
    }
    Ok((key, job))
}

fn parse_job(row: &dyn Cells) -> Option<(Key, Job, u32)> {
    let by = get::<Option<i64>>(row, 4)?.map(i64::cast_unsigned);
    let status = FlatStatus { word: text(row, 2)?, note: text_or_null(row, 3)?, by };
    let job = Job {
        payload: JobText::parse(text(row, 1)?).ok()?,
        status: status.parse()?,
        attempts: get(row, 5)?,
        max_attempts: get(row, 6)?,
        begun: get(row, 7)?,
        changed_at: StoreTime::from_millis(number_in(row, 8)?),
    };
    Some((key_from(row)?, job, get(row, 9)?))
}

/// The checksum of a job's row.
pub(super) fn job_sum(key: &Key, job: &Job) -> u32 {
    let flat = FlatStatus::from(&job.status);
    Sum::new()
        .text(key.as_str())
        .text(job.payload.as_str())
        .text(flat.word)
        .text(flat.note.unwrap_or_default())
        .number(flat.by.unwrap_or(0))
        .number(u64::from(job.attempts))
        .number(job.max_attempts.map_or(u64::MAX, u64::from))
        .number(u64::from(job.begun))
        .number(job.changed_at.as_millis())
        .finish()
}

// --- events ---

/// The columns of an event, in the order in which [`event_from`] reads them.
pub(super) const EVENT_COLUMNS: &str =
    "position, key, seq, at, fence, owner, kind, until, party, note, meta, sum";

const WRITE_EVENT: &str = "INSERT INTO event \
    (position, key, seq, at, fence, owner, kind, until, party, note, meta, sum) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

pub(super) fn write_events(db: &Connection, events: &[Published]) -> rusqlite::Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    let mut statement = db.prepare_cached(WRITE_EVENT)?;
    events.iter().try_for_each(|event| put_event(&mut statement, event))
}

/// Puts an event wherever rows go.
pub(super) fn put_event(sink: &mut impl Sink, published: &Published) -> rusqlite::Result<()> {
    let event = &published.event;
    let flat = Flat::from(&event.kind);
    sink.put(params![
        published.position.0.cast_signed(),
        event.key.as_str(),
        event.seq.cast_signed(),
        event.at.as_millis().cast_signed(),
        event.fence.get().cast_signed(),
        event.owner.as_str(),
        flat.kind,
        flat.until.map(|until| until.as_millis().cast_signed()),
        flat.party,
        flat.note,
        flat.meta,
        event_sum(published, &flat),
    ])
}

/// The event in a row, if it is what was once written there.
pub(super) fn event_from(row: &dyn Cells) -> RowResult<Published> {
    let position = number_in(row, 0).unwrap_or(0);
    let bad = || RowError::Bad(format!("event {position} does not match its checksum"));
    let (published, sum) = parse_event(row).ok_or_else(bad)?;
    if event_sum(&published, &Flat::from(&published.event.kind)) != sum {
        return Err(bad());
    }
    Ok(published)
}

fn parse_event(row: &dyn Cells) -> Option<(Published, u32)> {
    let event = Event {
        key: Key::parse(text(row, 1)?).ok()?,
        seq: number_in(row, 2)?,
        at: StoreTime::from_millis(number_in(row, 3)?),
        fence: Fence::new(number_in(row, 4)?).ok()?,
        owner: Owner::parse(text(row, 5)?).ok()?,
        kind: flat_from(row)?.parse()?,
    };
    Some((Published { position: Position(number_in(row, 0)?), event }, get(row, 11)?))
}

fn flat_from(row: &dyn Cells) -> Option<Flat<'_>> {
    Some(Flat {
        kind: text(row, 6)?,
        until: get::<Option<i64>>(row, 7)?.map(|until| StoreTime::from_millis(until.cast_unsigned())),
        party: text_or_null(row, 8)?,
        note: text_or_null(row, 9)?,
        meta: text_or_null(row, 10)?.map(str::to_owned),
    })
}

fn event_sum(published: &Published, flat: &Flat<'_>) -> u32 {
    let event = &published.event;
    Sum::new()
        .number(published.position.0)
        .text(event.key.as_str())
        .number(event.seq)
        .number(event.at.as_millis())
        .number(event.fence.get())
        .text(event.owner.as_str())
        .text(flat.kind)
        .number(flat.until.map_or(u64::MAX, StoreTime::as_millis))
        .text(flat.party.unwrap_or_default())
        .text(flat.note.unwrap_or_default())
        .text(flat.meta.as_deref().unwrap_or_default())
        .finish()
}

// --- endings ---

/// The columns of an ending, in the order in which [`ending_from`] reads them.
pub(super) const ENDING_COLUMNS: &str = "at, key, lease_id, because, sum";

pub(super) fn write_endings(db: &Connection, endings: &[Ending]) -> rusqlite::Result<()> {
    if endings.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO ending (at, key, lease_id, because, sum) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut statement = db.prepare_cached(sql)?;
    endings.iter().try_for_each(|ending| put_ending(&mut statement, ending))
}

/// Puts an ending wherever rows go.
pub(super) fn put_ending(sink: &mut impl Sink, ending: &Ending) -> rusqlite::Result<()> {
    sink.put(params![
        ending.at.as_millis().cast_signed(),
        ending.key.as_str(),
        ending.lease_id.as_bytes(),
        ending.because.as_str(),
        ending_sum(ending),
    ])
}

/// The ending in a row, if it is what was once written there.
pub(super) fn ending_from(row: &dyn Cells) -> RowResult<Ending> {
    let bad = || RowError::Bad("the record of an ended lease does not match its checksum".into());
    let (ending, sum) = parse_ending(row).ok_or_else(bad)?;
    if ending_sum(&ending) != sum { Err(bad()) } else { Ok(ending) }
}

fn parse_ending(row: &dyn Cells) -> Option<(Ending, u32)> {
    let ending = Ending {
        at: StoreTime::from_millis(number_in(row, 0)?),
        key: Key::parse(text(row, 1)?).ok()?,
        lease_id: lease_id(row, 2)?,
        because: LossReason::parse(text(row, 3)?)?,
    };
    Some((ending, get(row, 4)?))
}

fn ending_sum(ending: &Ending) -> u32 {
    let sum = Sum::new().number(ending.at.as_millis()).text(ending.key.as_str());
    sum.bytes(ending.lease_id.as_bytes()).text(ending.because.as_str()).finish()
}

// --- values ---

/// Looks at the pages of a table and of its indexes. A row that damage hides has no checksum that could fail.
pub(super) fn check_pages(db: &Connection, table: &str) -> RowResult<()> {
    let sql = format!("PRAGMA integrity_check({table})");
    let found: String = db.query_row(&sql, [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(RowError::Bad(found)) }
}

/// All rows of a table, in order, each read by `read`.
pub(super) fn all<T>(
    db: &Connection,
    table: &str,
    columns: &str,
    order: &str,
    mut read: impl FnMut(&dyn Cells) -> RowResult<T>,
) -> RowResult<Vec<T>> {
    let mut statement = db.prepare(&format!("SELECT {columns} FROM {table} ORDER BY {order}"))?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn number(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(index).map(i64::cast_unsigned)
}

fn get<T: FromSql>(row: &dyn Cells, index: usize) -> Option<T> {
    T::column_result(row.cell(index)?).ok()
}

fn number_in(row: &dyn Cells, index: usize) -> Option<u64> {
    get::<i64>(row, index).map(i64::cast_unsigned)
}

fn text(row: &dyn Cells, index: usize) -> Option<&str> {
    row.cell(index)?.as_str().ok()
}

fn text_or_null(row: &dyn Cells, index: usize) -> Option<Option<&str>> {
    row.cell(index)?.as_str_or_null().ok()
}

fn lease_id(row: &dyn Cells, index: usize) -> Option<LeaseId> {
    LeaseId::from_bytes(row.cell(index)?.as_blob().ok()?.try_into().ok()?)
}

/// The key of a row that begins with it.
pub(super) fn key_from(row: &dyn Cells) -> Option<Key> {
    Key::parse(text(row, 0)?).ok()
}

fn shown_key(row: &dyn Cells) -> String {
    text(row, 0).unwrap_or("(unreadable)").to_owned()
}

/// A checksum over values whose borders matter: `ab`, `c` is not `a`, `bc`. The values are laid side by side first: summing
/// up many small pieces takes several times as long.
struct Sum(Vec<u8>);

impl Sum {
    fn new() -> Self {
        Self(Vec::with_capacity(256))
    }

    fn number(self, number: u64) -> Self {
        self.raw(&number.to_le_bytes())
    }

    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        self.number(bytes.len() as u64).raw(bytes)
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn finish(self) -> u32 {
        crc32fast::hash(&self.0)
    }
}
