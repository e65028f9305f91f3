//! How slots, events and endings stand in the tables. Rows are read column by column, and written as one array for each column.
//! A job travels as one JSON object, named like its columns: there is one in a command at most.

use std::error::Error;

use bytes::BytesMut;
use leasehold_core::event::Event;
use leasehold_core::job::{Job, JobText};
use leasehold_core::lease::Lease;
use leasehold_core::{Fence, Key, LeaseId, Owner, Position, Published, Slot, StoreTime, TabId};
use serde_json::{Map, Value, json};
use tokio_postgres::Row;

use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use super::connect::Param;
use super::trouble::{Trouble, TroubleResult};
use crate::changes::Ending;
use crate::columns::{Flat, FlatStatus, meta_text, parse_meta, parse_request, parse_tab, request_text, ttl};

/// What [`slot_from`] reads, from `leasehold.slot k`.
pub(super) const SLOT: &str = "k.key, k.seq, k.vacant_since, k.owner, k.tab, k.lease_id, k.fence, k.acquired_at, \
     k.renewed_at, k.expires_at, k.ttl_ms, k.leaving, k.meta, k.request";

/// How many columns that is.
pub(super) const SLOT_COLUMNS: usize = 14;

/// What [`event_from`] reads, from `leasehold.event e`.
pub(super) const EVENT: &str =
    "e.position, e.key, e.seq, e.at, e.fence, e.owner, e.kind, e.until, e.party, e.note, e.meta";

/// The slot whose columns begin at `first`; none where they are those of no row.
pub(super) fn slot_from(row: &Row, first: usize) -> TroubleResult<Option<(Key, Slot)>> {
    let columns = Columns { row, first };
    let Some(key) = columns.get(0) else { return Ok(None) };
    parse_slot(key, &columns).map(Some).ok_or_else(|| Trouble::bad_row("a row of leasehold.slot"))
}

fn parse_slot(key: &str, columns: &Columns<'_>) -> Option<(Key, Slot)> {
    let lease = match columns.get(3) {
        None => None,
        Some(owner) => Some(Lease {
            owner: Owner::parse(owner).ok()?,
            tab: parse_tab(columns.get(4))?,
            lease_id: columns.get::<Uuid>(5)?.0,
            fence: Fence::new(columns.number(6)?).ok()?,
            acquired_at: columns.time(7)?,
            renewed_at: columns.time(8)?,
            expires_at: columns.time(9)?,
            ttl: ttl(columns.number(10)?)?,
            leaving: columns.get(11)?,
            meta: parse_meta(columns.get(12))?,
            request: parse_request(columns.get(13))?,
        }),
    };
    let slot = Slot { seq: columns.number(1)?, lease, vacant_since: columns.time(2)? };
    Some((Key::parse(key).ok()?, slot))
}

/// The event whose columns begin at `first`.
pub(super) fn event_from(row: &Row, first: usize) -> TroubleResult<Published> {
    parse_event(&Columns { row, first }).ok_or_else(|| Trouble::bad_row("a row of leasehold.event"))
}

fn parse_event(columns: &Columns<'_>) -> Option<Published> {
    let flat = Flat {
        kind: columns.get(6)?,
        until: columns.time(7),
        party: columns.get(8),
        note: columns.get(9),
        meta: columns.get(10),
    };
    let event = Event {
        key: Key::parse(columns.get::<&str>(1)?).ok()?,
        seq: columns.number(2)?,
        at: columns.time(3)?,
        fence: Fence::new(columns.number(4)?).ok()?,
        owner: Owner::parse(columns.get::<&str>(5)?).ok()?,
        kind: flat.parse()?,
    };
    Some(Published { position: Position(columns.number(0)?), event })
}

/// Some of the columns of a row that was read.
struct Columns<'a> {
    row: &'a Row,
    first: usize,
}

impl<'a> Columns<'a> {
    /// The value of a column; nothing if it is NULL or of another type.
    fn get<T: FromSql<'a>>(&self, column: usize) -> Option<T> {
        self.row.try_get::<_, Option<T>>(self.first + column).ok().flatten()
    }

    fn number(&self, column: usize) -> Option<u64> {
        self.get::<i64>(column).map(i64::cast_unsigned)
    }

    fn time(&self, column: usize) -> Option<StoreTime> {
        self.number(column).map(StoreTime::from_millis)
    }
}

/// The values of one column of all rows that are written.
pub(super) struct Column<'a>(Box<dyn ToSql + Sync + Send + 'a>, Type);

impl<'a> Column<'a> {
    fn new<R, V: ToSql + Sync + Send + 'a>(rows: &'a [R], array: Type, value: impl Fn(&'a R) -> V) -> Self {
        Self(Box::new(rows.iter().map(value).collect::<Vec<V>>()), array)
    }

    pub(super) fn param(&self) -> Param<'_> {
        (&*self.0, self.1.clone())
    }
}

/// The columns of slots, in the order of `leasehold.write`.
pub(super) fn slot_columns(slots: &[(Key, Slot)]) -> Vec<Column<'_>> {
    let text = |of: fn(&Lease) -> Option<&str>| {
        Column::new(slots, Type::TEXT_ARRAY, move |(_, slot)| slot.lease.as_ref().and_then(of))
    };
    let owned_text = |of: fn(&Lease) -> Option<String>| {
        Column::new(slots, Type::TEXT_ARRAY, move |(_, slot)| slot.lease.as_ref().and_then(of))
    };
    let number = |of: fn(&Lease) -> u64| {
        Column::new(slots, Type::INT8_ARRAY, move |(_, slot)| {
            slot.lease.as_ref().map(|lease| of(lease).cast_signed())
        })
    };
    vec![
        Column::new(slots, Type::TEXT_ARRAY, |(key, _)| key.as_str()),
        Column::new(slots, Type::INT8_ARRAY, |(_, slot)| slot.seq.cast_signed()),
        Column::new(slots, Type::INT8_ARRAY, |(_, slot)| millis(slot.vacant_since)),
        Column::new(slots, Type::INT8_ARRAY, |(_, slot)| slot.due_at().map(millis)),
        text(|lease| Some(lease.owner.as_str())),
        text(|lease| lease.tab.as_ref().map(TabId::as_str)),
        Column::new(slots, Type::UUID_ARRAY, |(_, slot)| {
            slot.lease.as_ref().map(|lease| Uuid(lease.lease_id))
        }),
        number(|lease| lease.fence.get()),
        number(|lease| lease.acquired_at.as_millis()),
        number(|lease| lease.renewed_at.as_millis()),
        number(|lease| lease.expires_at.as_millis()),
        number(|lease| lease.ttl.as_millis()),
        Column::new(slots, Type::BOOL_ARRAY, |(_, slot)| slot.lease.as_ref().map(|lease| lease.leaving)),
        owned_text(|lease| meta_text(&lease.meta)),
        owned_text(|lease| lease.request.as_deref().map(request_text)),
    ]
}

/// The columns of endings, in the order of `leasehold.write`. All of them are of the moment of the decision.
pub(super) fn ending_columns(endings: &[Ending]) -> Vec<Column<'_>> {
    vec![
        Column::new(endings, Type::TEXT_ARRAY, |ending| ending.key.as_str()),
        Column::new(endings, Type::UUID_ARRAY, |ending| Uuid(ending.lease_id)),
        Column::new(endings, Type::TEXT_ARRAY, |ending| ending.because.as_str()),
    ]
}

/// The columns of events, in the order of `leasehold.write`. Their positions are counted there.
pub(super) fn event_columns<'a>(events: &'a [(&'a Event, Flat<'a>)]) -> Vec<Column<'a>> {
    vec![
        Column::new(events, Type::TEXT_ARRAY, |(event, _)| event.key.as_str()),
        Column::new(events, Type::INT8_ARRAY, |(event, _)| event.seq.cast_signed()),
        Column::new(events, Type::INT8_ARRAY, |(event, _)| millis(event.at)),
        Column::new(events, Type::INT8_ARRAY, |(event, _)| event.fence.get().cast_signed()),
        Column::new(events, Type::TEXT_ARRAY, |(event, _)| event.owner.as_str()),
        Column::new(events, Type::TEXT_ARRAY, |(_, flat)| flat.kind),
        Column::new(events, Type::INT8_ARRAY, |(_, flat)| flat.until.map(millis)),
        Column::new(events, Type::TEXT_ARRAY, |(_, flat)| flat.party),
        Column::new(events, Type::TEXT_ARRAY, |(_, flat)| flat.note),
        Column::new(events, Type::TEXT_ARRAY, |(_, flat)| flat.meta.as_deref()),
    ]
}

/// What differs between the kinds of these events, laid flat.
pub(super) fn laid_flat(events: &[Event]) -> Vec<(&Event, Flat<'_>)> {
    events.iter().map(|event| (event, Flat::from(&event.kind))).collect()
}

fn millis(time: StoreTime) -> i64 {
    time.as_millis().cast_signed()
}

/// A lease id as PostgreSQL's `uuid`.
#[derive(Debug)]
pub(super) struct Uuid(pub(super) LeaseId);

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(LeaseId::from_bytes(raw.try_into()?).ok_or("not a UUID of version 4")?))
    }

    accepts!(UUID);
}

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

pub(super) fn job_row(key: &Key, job: &Job) -> Value {
    let flat = FlatStatus::from(&job.status);
    json!({
        "key": key.as_str(),
        "payload": job.payload.as_str(),
        "status": flat.word,
        "note": flat.note,
        "by": flat.by,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "begun": job.begun,
        "changed_at": job.changed_at.as_millis(),
    })
}

pub(super) fn job_from(text: &str) -> TroubleResult<Job> {
    parse_job(text).ok_or_else(|| Trouble::bad_row("a row of leasehold.job"))
}

fn parse_job(text: &str) -> Option<Job> {
    let row = Members(serde_json::from_str(text).ok()?);
    let small = |name: &str| row.number(name).map(u32::try_from).transpose().ok();
    let status = FlatStatus { word: row.text("status")?, note: row.text("note"), by: row.number("by") };
    Some(Job {
        payload: JobText::parse(row.text("payload")?).ok()?,
        status: status.parse()?,
        attempts: small("attempts")??,
        max_attempts: small("max_attempts")?,
        begun: row.0.get("begun")?.as_bool()?,
        changed_at: row.time("changed_at")?,
    })
}

/// The members of a row that was read as JSON; a column that is NULL is not there.
struct Members(Map<String, Value>);

impl Members {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    fn time(&self, name: &str) -> Option<StoreTime> {
        self.number(name).map(StoreTime::from_millis)
    }
}
