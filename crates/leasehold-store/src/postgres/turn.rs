//! One transaction that decides something: lock the key and read, decide in Rust, write and commit. Two trips.
//!
//! ```text
//!   trip 1   BEGIN · lock the key · slot, ending, counters, time        ──►  decide
//!   trip 2   slots, endings, events, NOTIFY · COMMIT                    ──►  answer
//! ```
//!
//! Both are functions in the database (`migrations/`), which only move rows.
//!
//! **Locks.** A key is locked by an advisory lock on its hash, because its row may not exist yet. The row is read by a
//! statement of its own after that: a statement sees what was committed before it *began*, and the one that waited for
//! the lock began too early.
//!
//! **Positions.** The feed is without gaps and in the order of the commits. A number drawn from a sequence would be
//! neither: a transaction may draw early and commit late, or not at all. So positions are counted in the store's one
//! row, whose lock is held from there to the end of the commit. Only transactions with events wait for each
//! other there, and those do so anyway: NOTIFY takes a lock of the same extent. Renewals have no event. A transaction that
//! has the row waits for nothing else, so there is no deadlock.
//!
//! **Fences.** A fence is larger than the last one committed before the key was locked, and than the lease clock, which
//! is the database's wall clock in milliseconds. The first makes them grow with every grant of a key. The second keeps
//! them growing when the database is dropped and made anew, or put back to a backup. Two grants of *different* keys at
//! the same moment may have the same fence: fences are compared within a key.

use std::collections::HashMap;

use leasehold_core::job::{JobCommand, Record};
use leasehold_core::lease::{Command, LossReason, REMEMBERED};
use leasehold_core::{Key, LeaseId, Owner, Position, Slot, StoreTime};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::batch::FoundAll;
use super::connect::{self, BEGIN, Connection, Param, Phase};
use super::rows::{SLOT, SLOT_COLUMNS, Uuid};
use super::trouble::{Trouble, TroubleResult};
use super::{Inner, rows, schema};
use crate::changes::{Changes, Known};
use crate::{Applied, JobApplied};

/// Reads the clock once for the whole statement.
pub(super) const CLOCK: &str = "clock AS MATERIALIZED (SELECT leasehold.clock_ms() AS raw)";

/// What [`Header::from_row`] reads, from `clock` and from `leasehold.store s`.
pub(super) const HEADER: &str = "s.version, s.position, s.seq_floor, s.last_fence, s.clock, s.clock_offset, s.timeline, leasehold.timeline(s.timeline), \
     clock.raw";

/// How many columns that is.
pub(super) const HEADER_COLUMNS: usize = 9;

/// The time on the lease clock: see [`Header`].
pub(super) const NOW: &str = "greatest(clock.raw + s.clock_offset, s.clock)";

/// What is known about the store as a whole at some moment.
///
/// The lease clock is the database's clock plus an offset. It never falls behind `clock`, the time of the last event:
/// when the database's clock goes back, or another machine takes over whose clock is behind, the offset grows so that
/// time goes on from there. An offset rather than a mere limit: with that, time would stand still for as long as the
/// clock went back, and nothing would ever expire. What the database's clock is set ahead is taken off the offset: see
/// `steps.rs`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) position: Position,
    pub(super) seq_floor: u64,
    pub(super) now: StoreTime,
    last_fence: u64,
    is_behind: bool,
}

/// How far the lease clock is ahead, and the offset that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    by: u64,
    offset: i64,
}

impl Header {
    /// The header in a row that was asked for after the moment `sent`, on this process's clock.
    pub(super) fn from_row(inner: &Inner, sent: u64, row: &Row) -> TroubleResult<Self> {
        let number = |index| row.try_get::<_, i64>(index);
        schema::check_version(inner, number(0)?)?;
        inner.timelines.look(row.try_get(6)?, row.try_get(7)?)?;
        let (clock, offset) = (number(4)?, number(5)?);
        let running = number(8)?.saturating_add(offset);
        let now = running.max(clock).cast_unsigned();
        // It cannot be held back further than to the last event.
        if let Some(by) = inner.steps.look(now, sent)
            && running > clock
        {
            return Err(Trouble::clock_went_ahead(Ahead { by, offset }));
        }
        Ok(Self {
            position: Position(number(1)?.cast_unsigned()),
            seq_floor: number(2)?.cast_unsigned(),
            now: StoreTime::from_millis(now),
            last_fence: number(3)?.cast_unsigned().max(now),
            is_behind: running < clock,
        })
    }

    /// Nothing so far, on top of what is committed.
    pub(super) fn changes(&self) -> Changes {
        Changes::new(self.now, self.last_fence)
    }
}

/// Takes off the lease clock what it is ahead, unless another process was faster.
pub(super) async fn hold_clock(inner: &Inner, ahead: Ahead) -> TroubleResult<()> {
    let sql = "UPDATE leasehold.store SET clock_offset = clock_offset - $1 WHERE clock_offset = $2";
    let by = ahead.by.cast_signed();
    let params: [Param<'_>; 2] = [(&by, Type::INT8), (&ahead.offset, Type::INT8)];
    let connection = Connection::new(inner).await?;
    let db = connection.get()?;
    connect::timely(async { Ok(db.query_typed(sql, &params).await?) }, Phase::Before).await?;
    connection.keep();
    tracing::warn!(
        database = inner.shown,
        by,
        "the database's clock was set ahead; the lease clock does not follow"
    );
    Ok(())
}

/// Ties the lease clock to the database's anew, if that one went back.
pub(super) async fn tie_clock(inner: &Inner) -> TroubleResult<()> {
    let sql = "WITH clock AS MATERIALIZED (SELECT leasehold.clock_ms() AS raw) \
               UPDATE leasehold.store s SET clock_offset = s.clock - clock.raw FROM clock \
               WHERE clock.raw + s.clock_offset < s.clock RETURNING s.clock_offset";
    let connection = Connection::new(inner).await?;
    let db = connection.get()?;
    let tied = connect::timely(async { Ok(db.query_typed_opt(sql, &[]).await?) }, Phase::Before).await?;
    if let Some(row) = tied {
        let offset: i64 = row.try_get(0)?;
        tracing::warn!(
            database = inner.shown,
            offset,
            "the database's clock went back; the lease clock goes on"
        );
    }
    connection.keep();
    Ok(())
}

/// An open transaction. Dropping it unfinished closes its connection, and with that undoes it.
pub(super) struct Turn<'a> {
    inner: &'a Inner,
    connection: Connection,
    /// When it was begun, on this process's clock.
    sent: u64,
}

/// What a decision on one key needs.
pub(super) struct Found {
    header: Header,
    pub(super) record: Record,
    ended: Option<(StoreTime, LossReason)>,
    leases: i64,
}

impl Found {
    /// What is known about the caller, who was granted `more` leases in the same transaction already.
    pub(super) fn known(&self, inner: &Inner, more: i64) -> Known {
        let now = self.header.now;
        let remembered = self.ended.filter(|(at, _)| *at + REMEMBERED > now).map(|(_, because)| because);
        let owner_is_full = self.leases + more >= i64::from(inner.limits.leases_per_owner);
        Known { remembered, owner_is_full, ..Known::default() }
    }
}

/// How many leases the askers of pending requests hold, in the course of a transaction.
pub(super) struct LeasesOfAskers {
    limit: i64,
    leases: HashMap<String, i64>,
}

impl LeasesOfAskers {
    pub(super) fn is_full(&self, asker: Option<&Owner>) -> bool {
        asker.is_some_and(|asker| self.leases.get(asker.as_str()).copied().unwrap_or(0) >= self.limit)
    }

    /// Takes in that a key was one owner's before, and is another's now.
    pub(super) fn moved(&mut self, before: Option<&Owner>, after: Option<&Owner>) {
        for (owner, by) in [(before, -1), (after, 1)] {
            if let Some(owner) = owner {
                *self.leases.entry(owner.as_str().to_owned()).or_insert(0) += by;
            }
        }
    }
}

impl<'a> Turn<'a> {
    async fn new(inner: &'a Inner) -> TroubleResult<Self> {
        let sent = inner.steps.own();
        Ok(Self { inner, connection: Connection::new(inner).await?, sent })
    }

    /// Decides one command.
    pub(super) async fn apply(inner: &'a Inner, key: &Key, command: &Command) -> TroubleResult<Applied> {
        let turn = Self::new(inner).await?;
        let found = turn.lock_and_read(key, command.lease_id(), command.bidder(), false).await?;
        let (slot, mut known) = (&found.record.slot, found.known(inner, 0));
        known.asker_is_full = turn.leases_of_askers([slot]).await?.is_full(slot.asker());
        let mut changes = found.header.changes();
        let outcome = changes.decide(key, slot, command, known);
        let position = turn.commit(&changes).await?.unwrap_or(found.header.position);
        Ok(Applied { outcome, now: found.header.now, position })
    }

    /// Decides one command about a job, in the same two trips.
    pub(super) async fn apply_job(
        inner: &'a Inner,
        key: &Key,
        command: &JobCommand,
    ) -> TroubleResult<JobApplied> {
        let turn = Self::new(inner).await?;
        let found = turn.lock_and_read(key, command.lease_id(), command.bidder(), true).await?;
        let mut changes = found.header.changes();
        let (outcome, record) = changes.decide_job(key, &found.record, command, found.known(inner, 0));
        let position = turn.commit(&changes).await?.unwrap_or(found.header.position);
        Ok(JobApplied { outcome, record, now: found.header.now, position })
    }

    /// Begins a transaction and runs a first statement, in one trip.
    pub(super) async fn begin(
        inner: &'a Inner,
        sql: &str,
        params: &[Param<'_>],
    ) -> TroubleResult<(Self, Vec<Row>)> {
        let turn = Self::new(inner).await?;
        let db = turn.connection.get()?;
        let begun = async {
            let (begun, rows) = tokio::join!(biased; db.batch_execute(BEGIN), db.query_typed(sql, params));
            begun?;
            Ok(rows?)
        };
        let rows = connect::timely(begun, Phase::Before).await?;
        Ok((turn, rows))
    }

    /// Locks the key and reads what a decision on it needs. The row of a job is read by a statement of its own after the
    /// key was locked.
    async fn lock_and_read(
        &self,
        key: &Key,
        lease_id: Option<&LeaseId>,
        bidder: Option<&Owner>,
        with_job: bool,
    ) -> TroubleResult<Found> {
        let wanted = Wanted::new(self.inner, [(key, lease_id, bidder)].into_iter(), true);
        let key = key.as_str();
        let job_params: [Param<'_>; 1] = [(&key, Type::TEXT)];
        let db = self.connection.get()?;
        let read_job =
            async { if with_job { db.query_typed_opt(READ_JOB, &job_params).await } else { Ok(None) } };
        let params = wanted.params();
        let trip = async {
            let (begun, row, job) = tokio::join!(
                biased;
                db.batch_execute(BEGIN),
                db.query_typed_one(LOCK_AND_READ, &params),
                read_job,
            );
            begun?;
            Ok((row?, job?))
        };
        let (row, job) = connect::timely(trip, Phase::Before).await?;
        self.found(self.header(&row)?, &row, job.as_ref())
    }

    /// Begins a transaction that locks those of the keys that no other has locked, and reads what decisions on them need.
    pub(super) async fn try_lock_and_read(
        inner: &'a Inner,
        commands: &[(&Key, &Command)],
    ) -> TroubleResult<(Self, FoundAll)> {
        let commands = commands.iter().map(|(key, command)| (*key, command.lease_id(), command.bidder()));
        let wanted = Wanted::new(inner, commands, false);
        let (turn, rows) = Self::begin(inner, LOCK_AND_READ, &wanted.params()).await?;
        let found = turn.found_all(&rows)?;
        Ok((turn, found))
    }

    fn found_all(&self, rows: &[Row]) -> TroubleResult<FoundAll> {
        let mut header = None;
        let mut keys = Vec::with_capacity(rows.len());
        for row in rows {
            if !row.try_get::<_, bool>(KNOWN + 3)? {
                keys.push(None);
                continue;
            }
            // One statement reads all rows: what is about the store as a whole is the same in each.
            let header = match header {
                Some(header) => header,
                None => *header.insert(self.header(row)?),
            };
            keys.push(Some(self.found(header, row, None)));
        }
        Ok(FoundAll { header, keys })
    }

    fn found(&self, header: Header, row: &Row, job: Option<&Row>) -> TroubleResult<Found> {
        let at: Option<i64> = row.try_get(KNOWN)?;
        let because: Option<&str> = row.try_get(KNOWN + 1)?;
        let because = because.map(|word| LossReason::parse(word).unwrap_or(LossReason::Unknown));
        let slot = rows::slot_from(row, HEADER_COLUMNS)?;
        let slot = slot.map_or_else(|| Slot::unknown(header.seq_floor), |(_, slot)| slot);
        let job = job.map(|row| rows::job_from(row.try_get(0)?)).transpose()?;
        Ok(Found {
            header,
            record: Record { slot, job },
            ended: at.map(|at| StoreTime::from_millis(at.cast_unsigned())).zip(because),
            leases: row.try_get(KNOWN + 2)?,
        })
    }

    /// The header in a row, if a decision can be made on it.
    fn header(&self, row: &Row) -> TroubleResult<Header> {
        let header = Header::from_row(self.inner, self.sent, row)?;
        if header.is_behind { Err(Trouble::clock_went_back()) } else { Ok(header) }
    }

    /// How many leases the askers of pending requests hold. It takes a trip of its own, but only where there are requests.
    pub(super) async fn leases_of_askers(
        &self,
        slots: impl IntoIterator<Item = &Slot>,
    ) -> TroubleResult<LeasesOfAskers> {
        let limit = i64::from(self.inner.limits.leases_per_owner);
        let askers: Vec<&str> = slots.into_iter().filter_map(Slot::asker).map(Owner::as_str).collect();
        if askers.is_empty() {
            return Ok(LeasesOfAskers { limit, leases: HashMap::new() });
        }
        let sql = "SELECT owner, count(*) FROM leasehold.slot WHERE owner = ANY($1) GROUP BY owner";
        let db = self.connection.get()?;
        let params: [Param<'_>; 1] = [(&askers, Type::TEXT_ARRAY)];
        let rows = connect::timely(async { Ok(db.query_typed(sql, &params).await?) }, Phase::Before).await?;
        let count = |row: &Row| -> TroubleResult<(String, i64)> { Ok((row.try_get(0)?, row.try_get(1)?)) };
        let leases = rows.iter().map(count).collect::<TroubleResult<_>>()?;
        Ok(LeasesOfAskers { limit, leases })
    }

    /// Runs a statement that locks keys and answers which.
    pub(super) async fn lock_keys(&self, sql: &str, params: &[Param<'_>]) -> TroubleResult<Vec<String>> {
        let db = self.connection.get()?;
        let found = connect::timely(async { Ok(db.query_typed(sql, params).await?) }, Phase::Before).await?;
        Ok(found.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Reads the slots of keys that this transaction has locked by an earlier statement.
    pub(super) async fn read_locked(&self, keys: &[String]) -> TroubleResult<(Header, Vec<(Key, Slot)>)> {
        let sql = format!(
            "WITH {CLOCK} SELECT {HEADER}, {SLOT} FROM clock, leasehold.store s \
             LEFT JOIN leasehold.slot k ON k.key = ANY($1)"
        );
        let db = self.connection.get()?;
        let params: [Param<'_>; 1] = [(&keys, Type::TEXT_ARRAY)];
        let found =
            connect::timely(async { Ok(db.query_typed(&sql, &params).await?) }, Phase::Before).await?;
        let first = found.first().ok_or_else(|| Trouble::bad_row("leasehold.store"))?;
        let header = self.header(first)?;
        let slots = found.iter().filter_map(|row| rows::slot_from(row, HEADER_COLUMNS).transpose());
        let slots = slots.collect::<TroubleResult<_>>()?;
        Ok((header, slots))
    }

    /// Writes and commits. Answers the position of the last event, if there is one among the changes.
    pub(super) async fn commit(self, changes: &Changes) -> TroubleResult<Option<Position>> {
        if changes.is_empty() {
            self.end().await?;
            return Ok(None);
        }
        let (last_fence, now) = (changes.last_fence.cast_signed(), changes.now.as_millis().cast_signed());
        let events = rows::laid_flat(&changes.events);
        let columns = [
            rows::slot_columns(&changes.slots),
            rows::ending_columns(&changes.endings),
            rows::event_columns(&events),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
        let mut params: Vec<Param<'_>> = vec![(&now, Type::INT8), (&last_fence, Type::INT8)];
        params.extend(columns.iter().map(rows::Column::param));
        let job = changes.jobs.first().map(|(key, job)| rows::job_row(key, job).to_string());
        let row = self.write_and_commit(job, WRITE, &params).await?;
        let position: Option<i64> = row.try_get(0)?;
        Ok(position.map(|position| Position(position.cast_unsigned())))
    }

    /// Writes the row of a job, if there is one, runs the last statement and commits, in one trip. If one of them fails, so
    /// does what comes after it in the same transaction, and the commit is none.
    pub(super) async fn write_and_commit(
        self,
        job: Option<String>,
        sql: &str,
        params: &[Param<'_>],
    ) -> TroubleResult<Row> {
        let db = self.connection.get()?;
        let job_params: [Param<'_>; 1] = [(&job, Type::TEXT)];
        let write_job =
            async { if job.is_some() { db.query_typed_opt(WRITE_JOB, &job_params).await } else { Ok(None) } };
        let trip = async {
            let (job, row, committed) =
                tokio::join!(biased; write_job, db.query_typed_one(sql, params), db.batch_execute("COMMIT"));
            let failed = |error: tokio_postgres::Error| Trouble::new(&error, Phase::Committing);
            job.map_err(failed)?;
            let row = row.map_err(failed)?;
            committed.map_err(failed)?;
            Ok(row)
        };
        let row = connect::timely(trip, Phase::Committing).await?;
        self.connection.keep();
        Ok(row)
    }

    /// Ends a transaction that has changed nothing.
    pub(super) async fn end(self) -> TroubleResult<()> {
        let db = self.connection.get()?;
        connect::timely(async { Ok(db.batch_execute("COMMIT").await?) }, Phase::Before).await?;
        self.connection.keep();
        Ok(())
    }
}

/// What the first trip takes: for each command its key, its lease id and its bidder.
struct Wanted<'a> {
    keys: Vec<&'a str>,
    lease_ids: Vec<Option<Uuid>>,
    bidders: Vec<Option<&'a str>>,
    /// The most leases of a bidder that count.
    most: i64,
    /// Whether to wait for a key that another transaction has locked.
    waits: bool,
}

impl<'a> Wanted<'a> {
    fn new(
        inner: &Inner,
        commands: impl Iterator<Item = (&'a Key, Option<&'a LeaseId>, Option<&'a Owner>)>,
        waits: bool,
    ) -> Self {
        let most = i64::from(inner.limits.leases_per_owner);
        let (keys, lease_ids, bidders) = (Vec::new(), Vec::new(), Vec::new());
        let mut wanted = Self { keys, lease_ids, bidders, most, waits };
        for (key, lease_id, bidder) in commands {
            wanted.keys.push(key.as_str());
            wanted.lease_ids.push(lease_id.copied().map(Uuid));
            wanted.bidders.push(bidder.map(Owner::as_str));
        }
        wanted
    }

    fn params(&self) -> [Param<'_>; 5] {
        [
            (&self.keys, Type::TEXT_ARRAY),
            (&self.lease_ids, Type::UUID_ARRAY),
            (&self.bidders, Type::TEXT_ARRAY),
            (&self.most, Type::INT8),
            (&self.waits, Type::BOOL),
        ]
    }
}

/// Lock and read: see [`Wanted`] for the parameters.
const LOCK_AND_READ: &str = "SELECT * FROM leasehold.lock_and_read($1, $2, $3, $4, $5)";

/// Where in a row of it, after the header and the slot, stands what else is known: when and why the lease id ended, the
/// leases of the bidder, and whether the key is locked.
const KNOWN: usize = HEADER_COLUMNS + SLOT_COLUMNS;

/// `$1` the key.
const READ_JOB: &str = "SELECT to_jsonb(j)::text FROM leasehold.job j WHERE j.key = $1";

/// `$1` the row.
const WRITE_JOB: &str = "\
INSERT INTO leasehold.job SELECT * FROM jsonb_populate_record(NULL::leasehold.job, $1::jsonb)
ON CONFLICT (key) DO UPDATE SET payload = excluded.payload, status = excluded.status, note = excluded.note,
  by = excluded.by, attempts = excluded.attempts, max_attempts = excluded.max_attempts, begun = excluded.begun,
  changed_at = excluded.changed_at";

/// `$1` the time, `$2` the last fence, then the columns of slots, endings and events.
const WRITE: &str = "SELECT leasehold.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
    $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30)";
