//! Event streams: parses the request, and answers with a subscription as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::response::Response;
use leasehold_core::wire::documents::{AllData, RoomData, Ticket};
use serde::Deserialize;
use utoipa::IntoParams;

use super::RoomPath;
use crate::App;
use crate::caller::{Caller, Level};
use crate::error::{Code, Failure, TOKEN_EXPIRED};
use crate::rates::{StreamPermit, Who};
use crate::session::{QueryString, Session, address, authenticate};
use crate::sse;
use crate::subscription::{Subscription, Topic};

/// How a stream is opened. Unknown parameters are ignored: replacements for `EventSource` add some of their own.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamQuery {
    /// Resume after the event with this id; the header `Last-Event-ID` does the same
    last_event_id: Option<String>,
    /// A ticket, instead of a token
    ticket: Option<String>,
}

/// A request to open a stream, by a caller who may have one more.
pub(crate) struct Watcher {
    session: Session,
    after: Option<u64>,
    permit: StreamPermit,
}

impl FromRequestParts<Arc<App>> for Watcher {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let QueryString(query) = QueryString::<StreamQuery>::from_request_parts(parts, app).await?;
        let caller = match &query.ticket {
            Some(ticket) => Arc::new(redeem(app, ticket, parts)?),
            None => authenticate(app, &parts.headers, address(parts))?,
        };
        app.slow_down(Who::Caller(caller.subject.as_str()))?;
        not_expired(app, &caller)?;
        // A browser that reconnects adds the header to the original address, so the header is newer.
        let header =
            parts.headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let last = header.or(query.last_event_id).filter(|last| !last.is_empty());
        // An id that is not a number gets a snapshot, like one that is too old.
        let after = last.and_then(|last| last.parse().ok());
        let permit = app.streams.open(caller.subject.as_str()).ok_or_else(too_many)?;
        Ok(Self { session: Session::new(caller), after, permit })
    }
}

fn redeem(app: &App, ticket: &str, parts: &Parts) -> Result<Caller, Failure> {
    app.tickets.redeem(ticket, (app.config.wall_clock)()).ok_or_else(|| {
        app.metrics.auth_failed();
        app.slow_down(Who::Address(address(parts))).err().unwrap_or_else(|| {
            let detail = "this server did not issue the ticket, it is older than a minute, or its token has expired; \
                          get a new one from POST /api/tickets";
            Failure::new(Code::Unauthenticated).because_of(detail)
        })
    })
}

/// Calls accept a token for a few seconds after it has expired, because clocks differ. A stream ends exactly with its
/// token, so it must not begin after it either.
pub(super) fn not_expired(app: &App, caller: &Caller) -> Result<(), Failure> {
    match caller.left((app.config.wall_clock)()) {
        Some(Duration::ZERO) => {
            app.metrics.auth_failed();
            Err(Failure::new(Code::Unauthenticated).because_of(TOKEN_EXPIRED))
        }
        _ => Ok(()),
    }
}

fn too_many() -> Failure {
    Failure::new(Code::TooManyStreams)
        .because_of("close a stream that you do not need; one stream of /api/events carries all documents")
        .retry_after(Duration::from_secs(10))
}

/// Get a ticket for an event stream
///
/// `EventSource` cannot send a token. A ticket in the address replaces it, for a minute or until the token expires.
#[utoipa::path(post, path = "/api/tickets", tag = "Events", responses((status = 200, body = Ticket)))]
pub(crate) async fn ticket(State(app): State<Arc<App>>, session: Session) -> Result<Json<Ticket>, Failure> {
    not_expired(&app, &session.caller)?;
    Ok(Json(app.tickets.issue(&session.caller, (app.config.wall_clock)())))
}

/// Watch a document
///
/// Begins with a `snapshot` (its data is a `LockState`), or resumes after `Last-Event-ID`; then a `DocumentEvent` for
/// every event, and an `EndOfStream` as `end` when the server ends the stream. The ids are the document's own sequence, each
/// one more than the one before.
#[utoipa::path(
    get, path = "/api/documents/{roomId}/events", tag = "Events",
    params(RoomPath, StreamQuery, ("Last-Event-ID" = Option<String>, Header, description = "Resume after the event with this id")),
    responses((status = 200, content_type = "text/event-stream", body = RoomData, description = "A stream of events"))
)]
pub(crate) async fn of_room(
    State(app): State<Arc<App>>,
    watcher: Watcher,
    Path(room): Path<String>,
) -> Result<Response, Failure> {
    let room = watcher.session.document(&room, Level::Read)?;
    Ok(stream(&app, watcher, Topic::Document(room)).await)
}

/// Watch all documents that you may see
///
/// Begins with a `snapshot` in one or more parts (each a `SnapshotOfAll`; only the last may have an id), or resumes after
/// `Last-Event-ID`; then as for a single document. The ids have no order: send back the last one as it came.
#[utoipa::path(
    get, path = "/api/events", tag = "Events",
    params(StreamQuery, ("Last-Event-ID" = Option<String>, Header, description = "Resume after the event with this id")),
    responses((status = 200, content_type = "text/event-stream", body = AllData, description = "A stream of events"))
)]
pub(crate) async fn of_all(State(app): State<Arc<App>>, watcher: Watcher) -> Response {
    stream(&app, watcher, Topic::Visible).await
}

async fn stream(app: &Arc<App>, watcher: Watcher, topic: Topic) -> Response {
    let looking = match &topic {
        Topic::Document(room) => Some(app.watchers.follow(room, &watcher.session.caller)),
        Topic::Visible => None,
    };
    let subscription = Subscription::open(app, watcher.session, topic, watcher.after).await;
    sse::response(subscription, (watcher.permit, looking))
}
