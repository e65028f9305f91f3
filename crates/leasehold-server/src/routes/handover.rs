//! Requesting that a lock be handed over, and answering such a request.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use leasehold_core::holder::shortest_countdown;
use leasehold_core::time::whole_millis;
use leasehold_core::wire::documents::{
    AnswerBody, Answered, Asked, Grant, Holder, RequestBody, Told, ToldBody,
};
use leasehold_core::{Command, Fence, OnSilence, Outcome, Ttl};

use super::{HolderHeaders, RoomPath, new_lease_id, not_held, refused};
use crate::App;
use crate::caller::Level;
use crate::error::{Failure, refusal};
use crate::session::{Body, Session};
use crate::views::{self, Moment};

/// How long the holder has to answer, and how long a request stands, unless the asker says otherwise.
const SECONDS: u64 = 30;

/// Request that the holder hands over
///
/// Repeat it with the same lease id while you wait, before it lapses; once it is granted, the answer is the lock.
#[utoipa::path(
    post, path = "/api/documents/{roomId}/lock/request", tag = "Hand-over",
    params(RoomPath, HolderHeaders),
    request_body = RequestBody,
    responses((status = 200, body = Grant, description = "It is yours"), (status = 202, body = Asked, description = "The holder is being asked"),
              refusal::Held, refusal::RequestedByAnother, refusal::LeaseOver)
)]
pub(crate) async fn request(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
    Body(body): Body<RequestBody>,
) -> Result<Response, Failure> {
    let room = session.document(&room, Level::Lock)?;
    let seconds = |given: Option<u64>| Ttl::from_secs(given.unwrap_or(SECONDS));
    let lease_id = session.lease_id(body.lease_id.as_ref())?.map_or_else(new_lease_id, Ok)?;
    let on_silence = body.on_silence.map_or(OnSilence::Refuse, OnSilence::from);
    let countdown = seconds(body.countdown_seconds)?;
    let countdown = if on_silence == OnSilence::Grant { fair(&app, countdown) } else { countdown };
    let command = Command::RequestHandover {
        seen: Fence::new(body.fence)?,
        bid: session.bid(&app, lease_id)?,
        on_silence,
        countdown,
        patience: seconds(body.patience_seconds)?,
    };
    let applied = app.apply_by(&session, &room, command).await?;
    let moment = Moment::new(&app, applied.now);
    match applied.outcome {
        Outcome::Requested { held, request } => {
            Ok((StatusCode::ACCEPTED, Json(views::asked(&held, &request, moment))).into_response())
        }
        Outcome::Granted { lease, .. } => Ok(Json(views::grant(&app, &lease, moment)).into_response()),
        _ => Err(refused(&app, &session, applied)),
    }
}

/// A request that silence grants is no take-over in disguise: the holder gets time to read it and to answer.
fn fair(app: &App, countdown: Ttl) -> Ttl {
    Ttl::new(shortest_countdown(app.config.ttl)).map_or(countdown, |shortest| countdown.max(shortest))
}

/// Withdraw a request
#[utoipa::path(
    delete, path = "/api/documents/{roomId}/lock/request", tag = "Hand-over",
    params(RoomPath,
           ("Lease-Id" = String, Header, description = "The lease id of the request", format = "uuid")),
    responses((status = 204, description = "Whatever the lease id stood for is over"),
              refusal::NotHolder)
)]
pub(crate) async fn withdraw(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
) -> Result<StatusCode, Failure> {
    let room = session.document(&room, Level::Lock)?;
    let Some(lease_id) = session.lease_id(None)? else {
        return Err(Failure::invalid("send the lease id of the request in the header Lease-Id"));
    };
    let owner = session.caller.subject.clone();
    let applied = app.apply_by(&session, &room, Command::Withdraw { lease_id, owner }).await?;
    match applied.outcome {
        Outcome::Withdrawn => Ok(StatusCode::NO_CONTENT),
        _ => Err(refused(&app, &session, applied)),
    }
}

/// Say that you know of a request
///
/// From then on your silence counts, as the request says.
#[utoipa::path(
    post, path = "/api/documents/{roomId}/lock/request/told", tag = "Hand-over",
    params(RoomPath, HolderHeaders),
    request_body = ToldBody,
    responses((status = 200, body = Told),
              refusal::NotHolder, refusal::LockNotFound, refusal::NoRequest)
)]
pub(crate) async fn told(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
    Body(body): Body<ToldBody>,
) -> Result<Json<Told>, Failure> {
    let room = session.document(&room, Level::Lock)?;
    let command = Command::HandoverTold { claim: session.claim(), request: body.request };
    let applied = app.apply_by(&session, &room, command).await?;
    match applied.outcome {
        Outcome::Told { ends_at } => Ok(Json(Told { ends_in_ms: whole_millis(ends_at.since(applied.now)) })),
        _ => Err(not_held(&app, &session, applied)),
    }
}

/// Answer a request
#[utoipa::path(
    post, path = "/api/documents/{roomId}/lock/request/answer", tag = "Hand-over",
    params(RoomPath, HolderHeaders),
    request_body = AnswerBody,
    responses((status = 200, body = Answered),
              refusal::NotHolder, refusal::LockNotFound, refusal::NoRequest)
)]
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
    Body(body): Body<AnswerBody>,
) -> Result<Json<Answered>, Failure> {
    let room = session.document(&room, Level::Lock)?;
    let AnswerBody { request, hand_over } = body;
    let command = Command::AnswerHandover { claim: session.claim(), request, hand_over };
    let applied = app.apply_by(&session, &room, command).await?;
    match applied.outcome {
        Outcome::HandedOver { to, meta } => {
            Ok(Json(Answered { handed_over: true, holder: views::holder(&to, &meta) }))
        }
        Outcome::Refused => {
            let caller = &session.caller;
            let holder = Holder { id: caller.subject.to_string(), name: caller.name.as_str().to_owned() };
            Ok(Json(Answered { handed_over: false, holder }))
        }
        _ => Err(not_held(&app, &session, applied)),
    }
}
