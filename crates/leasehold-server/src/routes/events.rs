//! What happens, as it happens: server-sent events, of one document or of all that the caller may see.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use leasehold_core::wire::documents::{DocumentEvent, LockState, Ticket};
use leasehold_core::{Position, RoomId};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use utoipa::{IntoParams, ToSchema};

use super::{RoomPath, lists};
use crate::App;
use crate::caller::{Caller, Level};
use crate::error::{Code, Failure};
use crate::hub::{Missed, Note, Notes, RoomNotes};
use crate::rates::{StreamPermit, Who};
use crate::session::{Asked, Session, address, authenticate};
use crate::views::{self, Moment};

/// How often a silent stream shows that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How many locks one event of a snapshot carries.
const SNAPSHOT: usize = 500;

/// How a stream is begun. What else stands in the address is left alone: stand-ins for `EventSource` add things of their own.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamQuery {
    /// Go on after this event; the header `Last-Event-ID` does the same
    last_event_id: Option<String>,
    /// Instead of a token
    ticket: Option<String>,
}

/// Somebody who listens.
pub(crate) struct Listener {
    session: Session,
    after: Option<u64>,
    permit: StreamPermit,
}

impl FromRequestParts<Arc<App>> for Listener {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let Asked(query) = Asked::<StreamQuery>::from_request_parts(parts, app).await?;
        let caller = match &query.ticket {
            Some(ticket) => redeem(app, ticket, parts)?,
            None => authenticate(app, &parts.headers, address(parts))?,
        };
        app.slow_down(Who::Caller(caller.subject.as_str()))?;
        not_expired(app, &caller)?;
        // What the browser adds when it reconnects is newer than what stands in the address.
        let header =
            parts.headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let last = header.or(query.last_event_id).filter(|last| !last.is_empty());
        // An id that is none of ours gets a snapshot, like one that is too old.
        let after = last.and_then(|last| last.parse().ok());
        let permit = app.streams.open(caller.subject.as_str()).ok_or_else(too_many)?;
        Ok(Self { session: lists::listener(caller), after, permit })
    }
}

fn redeem(app: &App, ticket: &str, parts: &Parts) -> Result<Caller, Failure> {
    app.tickets.redeem(ticket, (app.config.wall_clock)()).ok_or_else(|| {
        app.metrics.auth_failed();
        app.slow_down(Who::Address(address(parts))).err().unwrap_or_else(|| {
            let detail = "the ticket is not ours, older than a minute, or its token has expired; get a new one from POST \
                          /api/tickets";
            Failure::new(Code::Unauthenticated).because_of(detail)
        })
    })
}

/// A token is let in a few seconds longer than it lasts, because clocks differ; a stream ends with it, and so does not begin.
fn not_expired(app: &App, caller: &Caller) -> Result<(), Failure> {
    match caller.left((app.config.wall_clock)()) {
        Some(Duration::ZERO) => {
            app.metrics.auth_failed();
            Err(Failure::new(Code::Unauthenticated).because_of("the token has expired; get a new one"))
        }
        _ => Ok(()),
    }
}

fn too_many() -> Failure {
    Failure::new(Code::TooManyStreams)
        .because_of("close one that you do not need; one stream of /api/events carries all documents")
        .retry_after(Duration::from_secs(10))
}

/// Get a ticket for an event stream
///
/// `EventSource` cannot send a token. A ticket in the address stands in for it, for a minute or until the token ends.
#[utoipa::path(post, path = "/api/tickets", tag = "Events", responses((status = 200, body = Ticket)))]
pub(crate) async fn ticket(State(app): State<Arc<App>>, session: Session) -> Result<Json<Ticket>, Failure> {
    not_expired(&app, &session.caller)?;
    Ok(Json(app.tickets.issue(&session.caller, (app.config.wall_clock)())))
}

/// Follow a document
///
/// Begins with a `snapshot` (its data is a `LockState`), or where `Last-Event-ID` left off; then a `DocumentEvent` for
/// everything that happens, and an `EndOfStream` as `end`. The ids are the document's own sequence, each one more than the
/// one before.
#[utoipa::path(
    get, path = "/api/documents/{roomId}/events", tag = "Events",
    params(RoomPath, StreamQuery, ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event")),
    responses((status = 200, content_type = "text/event-stream", body = RoomData, description = "A stream of events"))
)]
pub(crate) async fn of_room(
    State(app): State<Arc<App>>,
    listener: Listener,
    Path(room): Path<String>,
) -> Result<Response, Failure> {
    let room = listener.session.document(&room, Level::Read)?;
    // From this moment on nothing is missed, however late the first byte is asked for.
    let begun = listen_to_room(&app, &room, listener.after).await;
    Ok(sse(room_stream(app, listener, room, begun)))
}

/// Follow all documents that you may see
///
/// Begins with a `snapshot` in one or more parts (each a `SnapshotOfAll`; only the last has an id), or where
/// `Last-Event-ID` left off; then as for a single document. The ids grow, with gaps where something happened that you may
/// not see.
#[utoipa::path(
    get, path = "/api/events", tag = "Events",
    params(StreamQuery, ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event")),
    responses((status = 200, content_type = "text/event-stream", body = AllData, description = "A stream of events"))
)]
pub(crate) async fn of_all(State(app): State<Arc<App>>, listener: Listener) -> Response {
    let begun = listen_to_all(&app, listener.after.map(Position)).await;
    sse(all_stream(app, listener, begun))
}

fn sse(stream: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    let headers = [("x-accel-buffering", "no"), ("cache-control", "no-store")];
    (headers, Sse::new(stream).keep_alive(KeepAlive::new().interval(HEARTBEAT))).into_response()
}

/// The data of an event about one document.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // describes it
enum RoomData {
    Event(DocumentEvent),
    Snapshot(LockState),
    End(EndOfStream),
}

/// The data of an event about all documents.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // describes it
enum AllData {
    Event(DocumentEvent),
    Snapshot(SnapshotOfAll),
    End(EndOfStream),
}

/// The last event of a stream that the server ends.
#[derive(Serialize, ToSchema)]
struct EndOfStream {
    /// Why.
    reason: End,
}

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    TokenExpired,
    TooSlow,
    ShuttingDown,
}

impl End {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::TokenExpired => "token_expired",
            Self::TooSlow => "too_slow",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// What a stream has to do next.
enum Next {
    Note(Arc<Note>),
    /// The channel was closed under it: some events were missed.
    Broken,
    End(End),
}

/// The next thing that happens to a stream.
async fn next(app: &App, notes: &mut Notes, expired: impl Future<Output = ()>) -> Next {
    match unless_over(app, expired, notes.recv()).await {
        Ok(Ok(note)) => Next::Note(note),
        Ok(Err(RecvError::Lagged(_))) => Next::End(End::TooSlow),
        Ok(Err(RecvError::Closed)) => Next::Broken,
        Err(end) => Next::End(end),
    }
}

/// What comes of something that a stream waits for, unless the stream has to end before.
async fn unless_over<T>(
    app: &App,
    expired: impl Future<Output = ()>,
    awaited: impl Future<Output = T>,
) -> Result<T, End> {
    tokio::select! {
        biased;
        () = app.stop.cancelled() => Err(End::ShuttingDown),
        () = expired => Err(End::TokenExpired),
        done = awaited => Ok(done),
    }
}

/// Completes when the caller's token ends; at once if it has.
async fn expiry(app: Arc<App>, caller: Caller) {
    match caller.left((app.config.wall_clock)()) {
        None => std::future::pending().await,
        // Even a sleep of no length is not over when it is first looked at.
        Some(Duration::ZERO) => {}
        Some(left) => tokio::time::sleep(left).await,
    }
}

/// Begins to listen. Whoever seems to have missed something may only be ahead of the feed: it gets a moment to catch up.
async fn listen_to_room(app: &App, room: &RoomId, after: Option<u64>) -> (RoomNotes, Missed) {
    let begun = app.hub.listen_to_room(room, after);
    let (Missed::Unknown, Some(after)) = (&begun.1, after) else { return begun };
    match app.read(room).await {
        Ok(reading) if reading.slot.seq == after => (begun.0, Missed::Events(Vec::new())),
        Ok(reading) if reading.slot.seq > after => {
            app.hub.catch_up(reading.position).await;
            app.hub.listen_to_room(room, Some(after))
        }
        _ => begun,
    }
}

/// The same for all documents.
async fn listen_to_all(app: &App, after: Option<Position>) -> (Notes, Missed) {
    let begun = app.hub.listen_to_all(after);
    let (Missed::Unknown, Some(after)) = (&begun.1, after) else { return begun };
    match lists::newest(app).await {
        Ok(newest) if newest >= after => {
            app.hub.catch_up(after).await;
            app.hub.listen_to_all(Some(after))
        }
        _ => begun,
    }
}

fn room_stream(
    app: Arc<App>,
    listener: Listener,
    room: RoomId,
    begun: (RoomNotes, Missed),
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    async_stream::stream! {
        let Listener { session, mut after, permit: _permit } = listener;
        let mut expired = std::pin::pin!(expiry(app.clone(), session.caller.clone()));
        let mut begun = Some(begun);
        loop {
            let (mut room_notes, missed) = begun.take().unwrap_or_else(|| app.hub.listen_to_room(&room, after));
            match missed {
                Missed::Events(events) => for note in events {
                    if let Err(end) = unless_over(&app, expired.as_mut(), std::future::ready(())).await {
                        yield Ok(ended(&app, end));
                        return;
                    }
                    after = Some(note.seq);
                    yield Ok(shown(note.seq, &note.event));
                },
                Missed::Unknown => {
                    let state = room_snapshot(&app, &session, &room);
                    match unless_over(&app, expired.as_mut(), state).await {
                        Ok(Some(state)) => {
                            after = Some(state.seq);
                            yield Ok(snapshot(Some(state.seq), &state));
                        }
                        Ok(None) => continue,
                        Err(end) => {
                            yield Ok(ended(&app, end));
                            return;
                        }
                    }
                }
            }
            let end = loop {
                match next(&app, &mut room_notes.notes, expired.as_mut()).await {
                    Next::End(end) => break Some(end),
                    Next::Broken => break None,
                    Next::Note(note) => match after {
                        // The snapshot, or what was missed, contains it.
                        Some(known) if note.seq <= known => {}
                        Some(known) if note.seq != known + 1 => break None,
                        _ => {
                            after = Some(note.seq);
                            yield Ok(shown(note.seq, &note.event));
                        }
                    },
                }
            };
            if let Some(end) = end {
                yield Ok(ended(&app, end));
                return;
            }
            // Continuity is broken: begin anew with a snapshot.
            after = None;
        }
    }
}

/// What is there now; `None` after a while if the store does not say.
async fn room_snapshot(app: &App, session: &Session, room: &RoomId) -> Option<LockState> {
    let Ok(reading) = app.read(room).await else { return pause().await };
    let moment = Moment::new(app, reading.now);
    Some(views::lock_state(room, &reading.slot, &session.caller, &session.holds(), moment))
}

fn all_stream(
    app: Arc<App>,
    listener: Listener,
    begun: (Notes, Missed),
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    async_stream::stream! {
        let Listener { session, after, permit: _permit } = listener;
        let mut after = after.map(Position);
        let mut expired = std::pin::pin!(expiry(app.clone(), session.caller.clone()));
        let mut begun = Some(begun);
        loop {
            let (mut notes, missed) = begun.take().unwrap_or_else(|| app.hub.listen_to_all(after));
            // The numbers up to which the snapshot already contains the events of a document.
            let mut contained: HashMap<String, u64> = HashMap::new();
            match missed {
                Missed::Events(events) => for note in events {
                    if let Err(end) = unless_over(&app, expired.as_mut(), std::future::ready(())).await {
                        yield Ok(ended(&app, end));
                        return;
                    }
                    after = Some(note.position);
                    if sees(&session, &note) { yield Ok(shown(note.position.0, &note.event)); }
                },
                Missed::Unknown => {
                    let (mut from, mut begin) = (None, None);
                    loop {
                        let page = snapshot_part(&app, &session, from.clone());
                        let page = match unless_over(&app, expired.as_mut(), page).await {
                            Ok(Some(page)) => page,
                            Ok(None) => continue,
                            Err(end) => {
                                yield Ok(ended(&app, end));
                                return;
                            }
                        };
                        let position = *begin.get_or_insert(page.position);
                        from = page.states.last().and_then(|last| RoomId::parse(&last.room_id).ok());
                        contained.extend(page.states.iter().map(|state| (state.room_id.clone(), state.seq)));
                        let part = SnapshotOfAll { documents: page.states, more: page.more };
                        // Only with all parts is it a place to go on from.
                        yield Ok(snapshot((!part.more).then_some(position.0), &part));
                        if !part.more { break; }
                    }
                    after = begin;
                }
            }
            let end = loop {
                match next(&app, &mut notes, expired.as_mut()).await {
                    Next::End(end) => break Some(end),
                    Next::Broken => break None,
                    Next::Note(note) => {
                        let known = after.is_some_and(|after| note.position <= after)
                            || contained.get(note.room.as_str()).is_some_and(|seq| note.seq <= *seq);
                        if !known && sees(&session, &note) {
                            contained.remove(note.room.as_str());
                            yield Ok(shown(note.position.0, &note.event));
                        }
                        after = after.max(Some(note.position));
                    }
                }
            };
            if let Some(end) = end {
                yield Ok(ended(&app, end));
                return;
            }
            after = None;
        }
    }
}

/// The locks after `from`; `None` after a while if the store does not say.
async fn snapshot_part(app: &App, session: &Session, from: Option<RoomId>) -> Option<lists::VisiblePage> {
    match lists::visible_page(app, session, "", from, SNAPSHOT).await {
        Ok(page) => Some(page),
        Err(_) => pause().await,
    }
}

/// Part of the locks that the caller may see.
#[derive(Serialize, ToSchema)]
struct SnapshotOfAll {
    /// The locks, by name.
    documents: Vec<LockState>,
    /// Whether another part follows.
    more: bool,
}

fn sees(session: &Session, note: &Note) -> bool {
    session.caller.grants.level(&note.room).is_some()
}

/// Waits for the store to get better.
async fn pause<T>() -> Option<T> {
    tokio::time::sleep(Duration::from_millis(500)).await;
    None
}

fn shown(id: u64, event: &DocumentEvent) -> Event {
    written(Event::default().id(id.to_string()).event(event.event.as_str()), event)
}

fn snapshot(id: Option<u64>, state: &impl Serialize) -> Event {
    let event = Event::default().event("snapshot");
    written(id.map_or(event.clone(), |id| event.id(id.to_string())), state)
}

fn ended(app: &App, end: End) -> Event {
    app.metrics.stream_ended(end.as_str());
    written(Event::default().event("end"), &EndOfStream { reason: end })
}

fn written(event: Event, data: &impl Serialize) -> Event {
    // Our own types always have a JSON form.
    event.json_data(data).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Method, Request};
    use leasehold_store::Memory;
    use tower::ServiceExt;

    use crate::auth::Auth;
    use crate::{Config, Server};

    /// The hub was told that a listener had left by the stream that the listener reads. Whoever never read a byte of it,
    /// as after a `HEAD`, left the document's channel behind for ever: ten kilobytes each.
    #[tokio::test(start_paused = true)]
    async fn whoever_leaves_before_the_first_event_leaves_nothing_behind() {
        let server = Server::start(std::sync::Arc::new(Memory::new()), Config::new(Auth::Open)).unwrap();
        for (number, method) in [Method::HEAD, Method::GET].into_iter().cycle().take(20).enumerate() {
            let request = Request::builder()
                .method(method)
                .uri(format!("/api/documents/d{number}/events?last_event_id={}", number % 3));
            let answer = server.router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), axum::http::StatusCode::OK);
            drop(answer);
            assert_eq!(server.app.hub.rooms(), 0);
        }
        server.end().await;
    }
}
