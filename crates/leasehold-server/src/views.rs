//! Turns leases, jobs and events into the wire format. Only the answers to a lease's own holder carry its id.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::event::{EndReason, Event, EventKind};
use leasehold_core::job::{Job, Record, Status};
use leasehold_core::lease::{self, Claim, Lease, Request};
use leasehold_core::time::whole_millis;
use leasehold_core::wire::Secret;
use leasehold_core::wire::documents::{
    Access, Asked, Checked, DocumentEvent, EventName, Grant, HandoverRequest, Heartbeat, Held, Holder,
    LockState, LockView, Me, UnlockReason,
};
use leasehold_core::wire::jobs::{JobGranted, JobHold, JobRefusal, JobRefused, JobState, JobStatus};
use leasehold_core::wire::leases::{LeaseGrant, LeaseHold, LeaseState};
use leasehold_core::{JobId, Json, LeaseId, LeaseName, Meta, Owner, RoomId, Slot, StoreTime};
use leasehold_store::JobStore;

use crate::App;
use crate::caller::{Caller, Level, shown_name};

/// How far the store's clock is from the wall clock, which people read.
///
/// The difference is taken once and kept, so that one time of the store reads the same in every answer: taken anew for each, it
/// would move with every millisecond that an answer is on its way. A store that counts from 1970 has none, and so shows
/// the same on all servers.
pub(crate) struct ShownClock {
    counts_from_1970: bool,
    difference: Mutex<Option<i64>>,
}

/// How far the clocks may move apart before the difference is taken anew: a wall clock that was set, or a lease clock that stood
/// still. Two clocks that only run at different rates get there in hours.
const APART: u64 = 2_000;

impl ShownClock {
    pub(crate) fn new(store: &dyn JobStore) -> Self {
        Self { counts_from_1970: store.counts_from_1970(), difference: Mutex::default() }
    }

    /// What to add to a time of the store, whose clock reads `now`, to get one of the wall clock.
    fn difference(&self, now: StoreTime, wall_millis: u64) -> i64 {
        if self.counts_from_1970 {
            return 0;
        }
        let measured = wall_millis.cast_signed().saturating_sub(now.as_millis().cast_signed());
        let mut kept = self.difference.lock().unwrap_or_else(PoisonError::into_inner);
        let difference = kept.filter(|kept| kept.abs_diff(measured) <= APART).unwrap_or(measured);
        *kept = Some(difference);
        difference
    }
}

/// The time of an answer, on the store's clock and on the wall clock.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    now: StoreTime,
    /// What to add to a time of the store to get one of the wall clock.
    difference: i64,
}

impl Moment {
    pub(crate) fn new(app: &App, now: StoreTime) -> Self {
        Self { now, difference: app.shown.difference(now, (app.config.wall_clock)()) }
    }

    fn left(&self, until: StoreTime) -> Duration {
        until.since(self.now)
    }

    /// A time of the store on the wall clock.
    fn shown(&self, time: StoreTime) -> String {
        rfc3339(time.as_millis().saturating_add_signed(self.difference))
    }
}

/// Milliseconds since 1970 in the format of RFC 3339.
pub(crate) fn rfc3339(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX).to_string()
}

pub(crate) fn holder(owner: &Owner, meta: &Meta) -> Holder {
    Holder { id: owner.to_string(), name: shown_name(owner, meta).to_owned() }
}

pub(crate) fn grant(app: &App, lease: &Lease, moment: Moment) -> Grant {
    Grant { lease_id: secret(lease.lease_id), lock: heartbeat(app, lease, moment) }
}

fn secret(lease_id: LeaseId) -> Secret {
    Secret(lease_id.reveal())
}

pub(crate) fn heartbeat(app: &App, lease: &Lease, moment: Moment) -> Heartbeat {
    Heartbeat {
        fence: lease.fence.get(),
        expires_at: moment.shown(lease.expires_at),
        expires_in_ms: whole_millis(moment.left(lease.expires_at)),
        ttl_seconds: lease.ttl.as_millis() / 1_000,
        heartbeat_seconds: app.config.heartbeat.as_secs(),
        holder: holder(&lease.owner, &lease.meta),
        request: lease.request.as_deref().map(|request| handover_request(request, moment)),
    }
}

fn handover_request(request: &Request, moment: Moment) -> HandoverRequest {
    HandoverRequest {
        id: request.seq,
        by: holder(&request.bid.owner, &request.bid.meta),
        on_silence: request.on_silence.into(),
        countdown_ms: request.countdown.as_millis(),
        ends_in_ms: request.silence_ends_at().map(|end| whole_millis(moment.left(end))),
        lapses_in_ms: whole_millis(moment.left(request.lapses_at)),
    }
}

pub(crate) fn asked(held: &lease::Held, request: &Request, moment: Moment) -> Asked {
    Asked {
        lease_id: secret(request.bid.lease_id),
        request: handover_request(request, moment),
        holder: holder(&held.by, &held.meta),
        fence: held.fence.get(),
        expires_in_ms: whole_millis(moment.left(held.until)),
    }
}

/// The holder that the caller's request met.
pub(crate) fn held(held: &lease::Held, caller: &Caller, moment: Moment) -> Held {
    Held {
        holder: holder(&held.by, &held.meta),
        fence: held.fence.get(),
        expires_at: moment.shown(held.until),
        expires_in_ms: whole_millis(moment.left(held.until)),
        same_user: held.by == caller.subject,
    }
}

/// A document's lock as the caller may see it. The lease in the slot, if any, is live.
pub(crate) fn lock_state(
    room: &RoomId,
    slot: &Slot,
    caller: &Caller,
    claim: &Claim,
    moment: Moment,
) -> LockState {
    let lock = slot.lease.as_ref().map(|lease| LockView {
        holder: holder(&lease.owner, &lease.meta),
        fence: lease.fence.get(),
        held_for_ms: whole_millis(moment.now.since(lease.acquired_at)),
        expires_at: moment.shown(lease.expires_at),
        expires_in_ms: whole_millis(moment.left(lease.expires_at)),
        same_user: lease.owner == caller.subject,
        yours: claim.fits(lease),
        leaving: lease.leaving,
        request: lease.request.as_deref().map(|request| handover_request(request, moment)),
    });
    let may = caller.grants.level(room).map(access).unwrap_or_default();
    LockState { room_id: room.to_string(), locked: lock.is_some(), seq: slot.seq, may, lock }
}

fn access(level: Level) -> Access {
    match level {
        Level::Read => Access::Read,
        Level::Lock => Access::Lock,
        Level::Force => Access::Force,
    }
}

/// The caller, as it is known here.
pub(crate) fn me(caller: &Caller, wall_millis: u64) -> Me {
    Me {
        id: caller.subject.to_string(),
        name: caller.name.as_str().to_owned(),
        expires_in_ms: caller.left(wall_millis).map(whole_millis),
    }
}

/// Changes whenever [`lock_state`] for this caller changes other than by the passing of time. It is weak: two answers with
/// the same meaning need not have the same bytes.
pub(crate) fn etag(room: &RoomId, slot: &Slot, caller: &Caller, claim: &Claim) -> String {
    let whose = match &slot.lease {
        Some(lease) if claim.fits(lease) => "yours",
        Some(lease) if lease.owner == caller.subject => "same-user",
        _ => "other",
    };
    let until = slot.lease.as_ref().map_or(0, |lease| lease.expires_at.as_millis());
    let request = slot.lease.as_ref().and_then(|lease| lease.request.as_deref());
    // Repeating a request extends it without an event.
    let lapses = request.map_or(0, |request| request.lapses_at.as_millis());
    let may = caller.grants.level(room).map_or("none", Level::as_str);
    format!("W/\"{}-{until}-{lapses}-{whose}-{may}\"", slot.seq)
}

pub(crate) fn checked(current: bool, held: Option<&lease::Held>) -> Checked {
    Checked {
        current,
        locked: held.is_some(),
        fence: held.map(|held| held.fence.get()),
        holder: held.map(|held| holder(&held.by, &held.meta)),
    }
}

/// An event, as shown to every caller who may see the document. `name_of` knows display names.
pub(crate) fn document_event<'a>(
    room: &RoomId,
    event: &Event,
    name_of: impl Fn(&Owner) -> Option<&'a str>,
) -> DocumentEvent {
    let by = other_party(&event.kind);
    let name = name_of(&event.owner).unwrap_or(event.owner.as_str()).to_owned();
    let mut view = DocumentEvent {
        event: EventName::DocumentLocked,
        room_id: room.to_string(),
        seq: event.seq,
        fence: event.fence.get(),
        holder: Holder { id: event.owner.to_string(), name },
        expires_in_ms: None,
        reason: None,
        force_released: false,
        by: by.map(Owner::to_string),
        by_name: by.and_then(name_of).map(str::to_owned),
        note: None,
        on_silence: None,
        ends_in_ms: None,
    };
    tell(&mut view, event);
    view
}

/// The user beside the holder that an event is about: who asks for the lock, took it, got it or ended it.
fn other_party(kind: &EventKind) -> Option<&Owner> {
    match kind {
        EventKind::Granted { .. } | EventKind::Shortened { .. } | EventKind::Resumed { .. } => None,
        EventKind::HandoverRequested { by, .. }
        | EventKind::HandoverTold { by, .. }
        | EventKind::HandoverRefused { by, .. }
        | EventKind::HandoverWithdrawn { by } => Some(by),
        EventKind::Ended { because } => match because {
            EndReason::Released | EndReason::Expired | EndReason::Disconnected => None,
            EndReason::TakenOver { by, .. } | EndReason::ForceReleased { by, .. } => Some(by),
            EndReason::HandedOver { to } => Some(to),
        },
    }
}

/// The current state of a locked document, as the event of its grant.
pub(crate) fn locked_event(room: &RoomId, seq: u64, lease: &Lease, now: StoreTime) -> DocumentEvent {
    let (owner, kind) = (lease.owner.clone(), granted_kind(lease));
    let event = Event { key: room.key().clone(), seq, at: now, fence: lease.fence, owner, kind };
    document_event(room, &event, |_| Some(shown_name(&lease.owner, &lease.meta)))
}

fn granted_kind(lease: &Lease) -> EventKind {
    EventKind::Granted { expires_at: lease.expires_at, meta: lease.meta.clone() }
}

fn tell(view: &mut DocumentEvent, event: &Event) {
    let in_ms = |time: &StoreTime| Some(whole_millis(time.since(event.at)));
    match &event.kind {
        EventKind::Granted { expires_at, .. } => view.expires_in_ms = in_ms(expires_at),
        EventKind::Ended { because } => {
            view.event = EventName::DocumentUnlocked;
            tell_end(view, because);
        }
        EventKind::Shortened { expires_at } => {
            (view.event, view.expires_in_ms) = (EventName::DocumentLeaving, in_ms(expires_at));
        }
        EventKind::Resumed { expires_at } => {
            (view.event, view.expires_in_ms) = (EventName::DocumentResumed, in_ms(expires_at));
        }
        EventKind::HandoverRequested { on_silence, .. } => {
            view.event = EventName::HandoverRequested;
            view.on_silence = Some((*on_silence).into());
        }
        EventKind::HandoverTold { ends_at, .. } => {
            (view.event, view.ends_in_ms) = (EventName::HandoverTold, in_ms(ends_at));
        }
        EventKind::HandoverRefused { .. } => view.event = EventName::HandoverRefused,
        EventKind::HandoverWithdrawn { .. } => view.event = EventName::HandoverWithdrawn,
    }
}

fn tell_end(view: &mut DocumentEvent, because: &EndReason) {
    let (reason, note) = match because {
        EndReason::Released => (UnlockReason::Released, None),
        EndReason::Expired => (UnlockReason::Expired, None),
        EndReason::Disconnected => (UnlockReason::Disconnected, None),
        EndReason::HandedOver { .. } => (UnlockReason::HandedOver, None),
        EndReason::TakenOver { reason, .. } | EndReason::ForceReleased { reason, .. } => {
            (UnlockReason::TakenOver, Some(reason))
        }
    };
    view.reason = Some(reason);
    view.force_released = matches!(because, EndReason::ForceReleased { .. });
    view.note = note.map(|note| note.as_str().to_owned());
}

// --- jobs ---

/// A job as the caller may see it. The lease in the record, if any, is live.
pub(crate) fn job_state(id: &JobId, job: &Job, slot: &Slot, caller: &Caller, moment: Moment) -> JobState {
    let Finished { result, error, finished_by } = finished(job);
    JobState {
        collection: id.collection().to_owned(),
        id: id.id().to_owned(),
        status: job_status(job, slot),
        payload: Json::of_text(job.payload.as_str()),
        attempts: job.attempts,
        max_attempts: job.max_attempts,
        result,
        error,
        finished_by,
        held: slot.lease.as_ref().map(|lease| held(&lease::Held::from(lease), caller, moment)),
    }
}

/// Whether a worker is running it follows from its lease.
fn job_status(job: &Job, slot: &Slot) -> JobStatus {
    match &job.status {
        Status::Ready { .. } => JobStatus::Ready,
        Status::Failed { .. } => JobStatus::Failed,
        Status::Queued if slot.lease.is_some() => JobStatus::Running,
        Status::Queued => JobStatus::Queued,
    }
}

/// The result or the error of a job.
#[derive(Default)]
struct Finished {
    result: Option<Json>,
    error: Option<String>,
    finished_by: Option<u64>,
}

fn finished(job: &Job) -> Finished {
    match &job.status {
        Status::Queued => Finished::default(),
        Status::Ready { result, by } => {
            let result = Some(Json::of_text(result.as_str()));
            Finished { result, error: None, finished_by: Some(by.get()) }
        }
        Status::Failed { error, by } => {
            let error = Some(error.as_str().to_owned());
            Finished { result: None, error, finished_by: by.map(leasehold_core::Fence::get) }
        }
    }
}

pub(crate) fn job_granted(lease: &Lease, job: &Job, recovered: bool, moment: Moment) -> JobGranted {
    JobGranted {
        acquired: true,
        lease_id: secret(lease.lease_id),
        fence: lease.fence.get(),
        hold: job_hold(lease, moment),
        attempt: job.attempts,
        max_attempts: job.max_attempts,
        recovered,
        payload: Json::of_text(job.payload.as_str()),
    }
}

pub(crate) fn job_refused(
    reason: JobRefusal,
    job: &Job,
    record: &Record,
    caller: &Caller,
    moment: Moment,
) -> JobRefused {
    let lease = record.slot.lease.as_ref();
    let Finished { result, error, finished_by } = finished(job);
    JobRefused {
        acquired: false,
        reason,
        status: job_status(job, &record.slot),
        result,
        error,
        finished_by,
        held: lease.map(|lease| held(&lease::Held::from(lease), caller, moment)),
    }
}

pub(crate) fn job_hold(lease: &Lease, moment: Moment) -> JobHold {
    let left = moment.left(lease.expires_at);
    JobHold {
        expires_at: moment.shown(lease.expires_at),
        expires_in_ms: whole_millis(left),
        ttl_seconds: lease.ttl.as_millis() / 1_000,
        refresh_after_ms: whole_millis(leasehold_core::holder::renew_after(lease.ttl)),
        stop_after_ms: whole_millis(leasehold_core::holder::stop_after(left, lease.ttl)),
        holder: holder(&lease.owner, &lease.meta),
    }
}

// --- leases of programs ---

pub(crate) fn lease_grant(lease: &Lease, moment: Moment) -> LeaseGrant {
    LeaseGrant { lease_id: secret(lease.lease_id), hold: lease_hold(lease, moment) }
}

pub(crate) fn lease_hold(lease: &Lease, moment: Moment) -> LeaseHold {
    let JobHold { expires_at, expires_in_ms, ttl_seconds, refresh_after_ms, stop_after_ms, holder } =
        job_hold(lease, moment);
    let (fence, renew_after_ms) = (lease.fence.get(), refresh_after_ms);
    LeaseHold { fence, expires_at, expires_in_ms, ttl_seconds, renew_after_ms, stop_after_ms, holder }
}

/// A lease as the caller may see it. The lease in the slot, if any, is live.
pub(crate) fn lease_state(name: &LeaseName, slot: &Slot, caller: &Caller, moment: Moment) -> LeaseState {
    let held = slot.lease.as_ref().map(|lease| held(&lease::Held::from(lease), caller, moment));
    LeaseState { name: name.to_string(), seq: slot.seq, held }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_store_reads_the_same_until_a_clock_was_set() {
        let clock = ShownClock { counts_from_1970: false, difference: Mutex::default() };
        let at = |now, wall| clock.difference(StoreTime::from_millis(now), wall);
        assert_eq!(at(1_000, 500_000), 499_000);
        for late in [1, 40, 1_999, 2_000] {
            assert_eq!(
                at(2_000, 501_000 + late),
                499_000,
                "the answer took a while, or the clocks run apart"
            );
        }
        assert_eq!(at(3_000, 504_500), 501_500, "the lease clock stood still");
        assert_eq!(at(4_000, 100_000), 96_000, "the wall clock was set");
        let clock = ShownClock { counts_from_1970: true, difference: Mutex::default() };
        assert_eq!(clock.difference(StoreTime::from_millis(7), 500_000), 0);
    }
}
