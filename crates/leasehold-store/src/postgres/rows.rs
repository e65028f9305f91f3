//! How slots, events and endings stand in the tables. A row travels as one JSON object, named like its columns.

use leasehold_core::event::Event;
use leasehold_core::job::{Job, JobText};
use leasehold_core::lease::Lease;
use leasehold_core::{Fence, Key, LeaseId, Owner, Position, Published, Slot, StoreTime, TabId};
use serde_json::{Map, Value, json};

use super::trouble::{Trouble, TroubleResult};
use crate::changes::Ending;
use crate::columns::{Flat, FlatStatus, meta_text, parse_meta, parse_request, parse_tab, request_text, ttl};

pub(super) fn slot_row(key: &Key, slot: &Slot) -> Value {
    let mut row = json!({
        "key": key.as_str(),
        "seq": slot.seq,
        "vacant_since": slot.vacant_since.as_millis(),
        "due_at": slot.due_at().map(StoreTime::as_millis),
    });
    if let (Some(row), Some(lease)) = (row.as_object_mut(), &slot.lease) {
        add_lease(row, lease);
    }
    row
}

fn add_lease(row: &mut Map<String, Value>, lease: &Lease) {
    let columns = [
        ("owner", json!(lease.owner.as_str())),
        ("tab", json!(lease.tab.as_ref().map(TabId::as_str))),
        ("lease_id", json!(lease.lease_id.reveal())),
        ("fence", json!(lease.fence.get())),
        ("acquired_at", json!(lease.acquired_at.as_millis())),
        ("renewed_at", json!(lease.renewed_at.as_millis())),
        ("expires_at", json!(lease.expires_at.as_millis())),
        ("ttl_ms", json!(lease.ttl.as_millis())),
        ("leaving", json!(lease.leaving)),
        ("meta", json!(meta_text(&lease.meta))),
        ("request", json!(lease.request.as_deref().map(request_text))),
    ];
    row.extend(columns.map(|(name, value)| (name.to_owned(), value)));
}

pub(super) fn slot_from(text: &str) -> TroubleResult<(Key, Slot)> {
    parse_slot(text).ok_or_else(|| Trouble::bad_row("a row of leasehold.slot"))
}

fn parse_slot(text: &str) -> Option<(Key, Slot)> {
    let row = Columns(serde_json::from_str(text).ok()?);
    let lease = match row.text("owner") {
        None => None,
        Some(owner) => Some(Lease {
            owner: Owner::parse(owner).ok()?,
            tab: parse_tab(row.text("tab"))?,
            lease_id: LeaseId::parse(row.text("lease_id")?).ok()?,
            fence: Fence::new(row.number("fence")?).ok()?,
            acquired_at: row.time("acquired_at")?,
            renewed_at: row.time("renewed_at")?,
            expires_at: row.time("expires_at")?,
            ttl: ttl(row.number("ttl_ms")?)?,
            leaving: row.0.get("leaving")?.as_bool()?,
            meta: parse_meta(row.text("meta"))?,
            request: parse_request(row.text("request"))?,
        }),
    };
    let slot = Slot { seq: row.number("seq")?, lease, vacant_since: row.time("vacant_since")? };
    Some((Key::parse(row.text("key")?).ok()?, slot))
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
    let row = Columns(serde_json::from_str(text).ok()?);
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

/// `number` is its place among the events of its transaction, from 1.
pub(super) fn event_row(number: usize, event: &Event) -> Value {
    let flat = Flat::from(&event.kind);
    json!({
        "position": number,
        "key": event.key.as_str(),
        "seq": event.seq,
        "at": event.at.as_millis(),
        "fence": event.fence.get(),
        "owner": event.owner.as_str(),
        "kind": flat.kind,
        "until": flat.until.map(StoreTime::as_millis),
        "party": flat.party,
        "note": flat.note,
        "meta": flat.meta,
    })
}

pub(super) fn event_from(text: &str) -> TroubleResult<Published> {
    parse_event(text).ok_or_else(|| Trouble::bad_row("a row of leasehold.event"))
}

fn parse_event(text: &str) -> Option<Published> {
    let row = Columns(serde_json::from_str(text).ok()?);
    let flat = Flat {
        kind: row.text("kind")?,
        until: row.time("until"),
        party: row.text("party"),
        note: row.text("note"),
        meta: row.text("meta").map(str::to_owned),
    };
    let event = Event {
        key: Key::parse(row.text("key")?).ok()?,
        seq: row.number("seq")?,
        at: row.time("at")?,
        fence: Fence::new(row.number("fence")?).ok()?,
        owner: Owner::parse(row.text("owner")?).ok()?,
        kind: flat.parse()?,
    };
    Some(Published { position: Position(row.number("position")?), event })
}

pub(super) fn ending_row(ending: &Ending) -> Value {
    let (lease_id, because) = (ending.lease_id.reveal(), ending.because.as_str());
    json!({ "at": ending.at.as_millis(), "key": ending.key.as_str(), "lease_id": lease_id, "because": because })
}

/// A row that was read; a column that is NULL is not there.
struct Columns(Map<String, Value>);

impl Columns {
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
