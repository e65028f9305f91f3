//! Locking a document: acquire, heartbeat, release, look, and what surrounds them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, ETAG, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use leasehold_core::lease::Claim;
use leasehold_core::wire::documents::{
    AcquireBody, CheckBody, Checked, ForceReleaseBody, Grant, Heartbeat, HeartbeatOf, HeartbeatResult,
    Heartbeats, HeartbeatsBody, LockState, ReleaseBody, ResumeBody, SoftReleased, TakeOverBody,
};
use leasehold_core::{Command, Fence, LeaseId, Outcome, Reason, Right, RoomId};
use leasehold_store::Applied;

use super::{HolderHeaders, RoomPath, is_known, new_lease_id, not_held, refused};
use crate::App;
use crate::caller::Level;
use crate::error::{Code, Failure, refusal};
use crate::rates::Who;
use crate::session::{BeaconBody, Body, OptionalBody, SenderAddress, Session};
use crate::views::{self, Moment};

/// How many heartbeats one call may carry.
const MOST_HEARTBEATS: usize = 500;

/// Lock a document
///
/// Repeating the call is safe: the holder (the same user in the same tab, or a caller with its lease id) gets its lock again,
/// extended.
#[utoipa::path(
    post, path = "/api/documents/{roomId}/lock", tag = "Locks",
    params(RoomPath, HolderHeaders),
    request_body = Option<AcquireBody>,
    responses((status = 200, body = Grant),
              refusal::Held, refusal::LeaseOver)
)]
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
    OptionalBody(body): OptionalBody<AcquireBody>,
) -> Result<Json<Grant>, Failure> {
    let room = session.document(&room, Level::Lock)?;
    let command = match session.lease_id(body.lease_id.as_ref())? {
        Some(lease_id) => Command::Acquire(session.bid(&app, lease_id)?),
        None => Command::AcquireInTab(session.bid(&app, new_lease_id()?)?),
    };
    let applied = app.apply_by(&session, &room, command).await?;
    granted(&app, &session, applied)
}

fn granted(app: &App, session: &Session, applied: Applied) -> Result<Json<Grant>, Failure> {
    match applied.outcome {
        Outcome::Granted { lease, .. } => Ok(Json(views::grant(app, &lease, Moment::new(app, applied.now)))),
        _ => Err(refused(app, session, applied)),
    }
}

/// Keep a lock: the heartbeat
///
/// Every 10 seconds by default. The answer also carries a pending hand-over request of another user.
#[utoipa::path(
    put, path = "/api/documents/{roomId}/lock", tag = "Locks",
    params(RoomPath, HolderHeaders),
    responses((status = 200, body = Heartbeat),
              refusal::NotHolder, refusal::LockNotFound)
)]
pub(crate) async fn renew(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
) -> Result<Json<Heartbeat>, Failure> {
    let room = session.document(&room, Level::Lock)?;
    renew_claimed(&app, &session, &room, session.claim()).await.map(Json)
}

async fn renew_claimed(
    app: &App,
    session: &Session,
    room: &RoomId,
    claim: Claim,
) -> Result<Heartbeat, Failure> {
    let applied = app.apply(room, Command::Renew { claim, ttl: None }).await?;
    match applied.outcome {
        Outcome::Renewed(lease) => {
            app.metrics.renewed();
            Ok(views::heartbeat(app, &lease, Moment::new(app, applied.now)))
        }
        _ => Err(not_held(app, session, applied)),
    }
}

/// Release a lock
#[utoipa::path(
    delete, path = "/api/documents/{roomId}/lock", tag = "Locks",
    params(RoomPath, HolderHeaders),
    responses((status = 204, description = "It is free"),
              refusal::NotHolder, refusal::LockNotFound)
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
) -> Result<StatusCode, Failure> {
    let room = session.document(&room, Level::Lock)?;
    let applied = app.apply_by(&session, &room, Command::Release(session.claim())).await?;
    match applied.outcome {
        Outcome::Released => Ok(StatusCode::NO_CONTENT),
        _ => Err(not_held(&app, &session, applied)),
    }
}

/// Look at a lock
#[utoipa::path(
    get, path = "/api/documents/{roomId}/lock", tag = "Locks",
    params(RoomPath, HolderHeaders,
           ("If-None-Match" = Option<String>, Header, description = "An ETag that you have")),
    responses((status = 200, body = LockState, headers(("ETag" = String))), (status = 304, description = "As you know it"))
)]
pub(crate) async fn look(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let room = session.document(&room, Level::Read)?;
    let reading = app.read(&room).await?;
    let etag = views::etag(&room, &reading.slot, &session.caller, &session.claim());
    let unchanged = is_known(&headers, &etag);
    let fixed = [
        (ETAG, etag),
        (CACHE_CONTROL, "private, no-cache".to_owned()),
        (VARY, "Authorization, Lease-Id, X-Tab-ID".to_owned()),
    ];
    if unchanged {
        return Ok((StatusCode::NOT_MODIFIED, fixed).into_response());
    }
    let moment = Moment::new(&app, reading.now);
    let state = views::lock_state(&room, &reading.slot, &session.caller, &session.claim(), moment);
    Ok((fixed, Json(state)).into_response())
}

/// Release a lock softly
///
/// For a page that is closed or reloaded, which look the same: the lock is cut to 5 seconds, within which the page can
/// resume it. The lease id is the proof, so that `navigator.sendBeacon` can send this; no token is looked at.
#[utoipa::path(
    post, path = "/api/documents/{roomId}/lock/release", tag = "Locks", security(()),
    params(RoomPath),
    request_body = ReleaseBody,
    responses((status = 200, body = SoftReleased))
)]
pub(crate) async fn soft_release(
    State(app): State<Arc<App>>,
    sender: SenderAddress,
    Path(room): Path<String>,
    BeaconBody(body): BeaconBody<ReleaseBody>,
) -> Result<Json<SoftReleased>, Failure> {
    app.slow_down(Who::Address(sender.0))?;
    let (room, lease_id) = (RoomId::parse(&room)?, LeaseId::parse(&body.lease_id.0)?);
    let applied = app.apply(&room, Command::SoftRelease { lease_id, grace: app.config.grace }).await?;
    match applied.outcome {
        Outcome::Shortened(lease) => {
            let expires_in_ms = leasehold_core::time::whole_millis(lease.expires_at.since(applied.now));
            Ok(Json(SoftReleased { expires_in_ms }))
        }
        // No token was looked at: whether there is another's lock is not said.
        _ => Err(Failure::new(Code::LockNotFound)),
    }
}

/// Resume a lock
///
/// For a page that was reloaded. The old lease id is over from then on: a copied tab cannot use it.
#[utoipa::path(
    post, path = "/api/documents/{roomId}/lock/resume", tag = "Locks",
    params(RoomPath),
    request_body = ResumeBody,
    responses((status = 200, body = Grant),
              refusal::NotHolder, refusal::LockNotFound)
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
    Body(body): Body<ResumeBody>,
) -> Result<Json<Grant>, Failure> {
    let room = session.document(&room, Level::Lock)?;
    let lease_id = LeaseId::parse(&body.lease_id.0)?;
    let next = body.next_lease_id.map(|next| LeaseId::parse(&next.0)).transpose()?;
    // The old one may have been copied along with the page: it is never the next one, even if the caller says so.
    let next = next.filter(|next| *next != lease_id).map_or_else(new_lease_id, Ok)?;
    let applied =
        app.apply_by(&session, &room, Command::Resume { claim: session.claim_to(lease_id), next }).await?;
    match applied.outcome {
        Outcome::Granted { .. } => granted(&app, &session, applied),
        _ => Err(not_held(&app, &session, applied)),
    }
}

/// Take a lock from its holder
///
/// Needs `force` on the document, or that it is your own in another tab.
#[utoipa::path(
    post, path = "/api/documents/{roomId}/lock/take-over", tag = "Locks",
    params(RoomPath, HolderHeaders),
    request_body = TakeOverBody,
    responses((status = 200, body = Grant),
              refusal::Held, refusal::LeaseOver)
)]
pub(crate) async fn take_over(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
    Body(body): Body<TakeOverBody>,
) -> Result<Json<Grant>, Failure> {
    let room = session.document(&room, Level::Lock)?;
    let (seen, reason) = (Fence::new(body.fence)?, given_reason(&body.reason)?);
    let may_force = session.caller.grants.level(&room) >= Some(Level::Force);
    let right = if may_force { Right::Force } else { Right::SameOwner };
    let command = match session.lease_id(body.lease_id.as_ref())? {
        Some(lease_id) => Command::TakeOver { seen, bid: session.bid(&app, lease_id)?, reason, right },
        None => Command::TakeOverInTab { seen, bid: session.bid(&app, new_lease_id()?)?, reason, right },
    };
    let applied = app.apply_by(&session, &room, command).await?;
    match &applied.outcome {
        Outcome::Held(held) if !may_force && held.by != session.caller.subject => {
            let detail = "taking another's lock needs force on the document";
            Err(Failure::new(Code::NotAllowed).because_of(detail))
        }
        _ => granted(&app, &session, applied),
    }
}

/// End a lock by force
///
/// Nobody holds it afterwards. Needs `force` on the document.
#[utoipa::path(
    post, path = "/api/documents/{roomId}/lock/force-release", tag = "Locks",
    params(RoomPath),
    request_body = ForceReleaseBody,
    responses((status = 204, description = "It is free"),
              refusal::LockNotFound, refusal::Held)
)]
pub(crate) async fn force_release(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
    Body(body): Body<ForceReleaseBody>,
) -> Result<StatusCode, Failure> {
    let room = session.document(&room, Level::Force)?;
    let (seen, reason) = (Fence::new(body.fence)?, given_reason(&body.reason)?);
    let by = session.caller.subject.clone();
    // No event carries the name of a caller who ends a lock and does not get it.
    app.hub.learn_name(&by, session.caller.name.as_str());
    let applied = app.apply_by(&session, &room, Command::ForceRelease { seen, by, reason }).await?;
    match applied.outcome {
        Outcome::Released => Ok(StatusCode::NO_CONTENT),
        Outcome::Lost { .. } => Err(Failure::new(Code::LockNotFound)),
        _ => Err(refused(&app, &session, applied)),
    }
}

/// The reason for acting on another holder's lock. It is recorded in the audit, so it is required.
fn given_reason(text: &str) -> Result<Reason, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::invalid("the reason is empty; say why, the holder will see it"));
    }
    Ok(Reason::parse(text)?)
}

/// Is this fence still current?
///
/// Advice for the service that stores the document; the real guard is a conditional write (`… WHERE lock_fence <= :fence`).
#[utoipa::path(
    post, path = "/api/documents/{roomId}/lock/check", tag = "Locks",
    params(RoomPath),
    request_body = CheckBody,
    responses((status = 200, body = Checked))
)]
pub(crate) async fn check(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
    Body(body): Body<CheckBody>,
) -> Result<Json<Checked>, Failure> {
    let room = session.document(&room, Level::Read)?;
    let applied = app.apply(&room, Command::Check { fence: Fence::new(body.fence)? }).await?;
    match applied.outcome {
        Outcome::Checked { current, held } => Ok(Json(views::checked(current, held.as_ref()))),
        _ => Err(refused(&app, &session, applied)),
    }
}

/// Keep many locks with one call
///
/// Each is answered as its own heartbeat would be.
#[utoipa::path(
    post, path = "/api/documents/heartbeat", tag = "Locks",
    request_body = HeartbeatsBody,
    responses((status = 200, body = Heartbeats))
)]
pub(crate) async fn renew_many(
    State(app): State<Arc<App>>,
    session: Session,
    Body(body): Body<HeartbeatsBody>,
) -> Result<Json<Heartbeats>, Failure> {
    if body.locks.len() > MOST_HEARTBEATS {
        let rule =
            format!("{} locks in one call, and at most {MOST_HEARTBEATS} are allowed", body.locks.len());
        return Err(Failure::invalid(format!("{rule}; send several calls")));
    }
    let locks: Vec<(RoomId, LeaseId)> = body.locks.iter().map(parsed).collect::<Result<_, _>>()?;
    // Together they are not cheaper for the store than one by one.
    app.slow_down_by(Who::Caller(session.caller.subject.as_str()), locks.len())?;
    // At the same time, so that they share one commit.
    let locks =
        join_all(locks.into_iter().map(|(room, lease_id)| renew_one(&app, &session, room, lease_id))).await;
    Ok(Json(Heartbeats { locks }))
}

fn parsed(lock: &HeartbeatOf) -> Result<(RoomId, LeaseId), Failure> {
    Ok((RoomId::parse(&lock.room_id)?, LeaseId::parse(&lock.lease_id.0)?))
}

async fn renew_one(app: &App, session: &Session, room: RoomId, lease_id: LeaseId) -> HeartbeatResult {
    let room_id = room.to_string();
    match try_renew(app, session, &room, lease_id).await {
        Ok(heartbeat) => HeartbeatResult { room_id, status: 200, lock: Some(heartbeat), code: None },
        Err(failure) => HeartbeatResult {
            room_id,
            status: failure.code.status().as_u16(),
            lock: None,
            code: Some(failure.code.word().to_owned()),
        },
    }
}

async fn try_renew(
    app: &App,
    session: &Session,
    room: &RoomId,
    lease_id: LeaseId,
) -> Result<Heartbeat, Failure> {
    let room = session.document(room.as_str(), Level::Lock)?;
    renew_claimed(app, session, &room, session.claim_to(lease_id)).await
}
