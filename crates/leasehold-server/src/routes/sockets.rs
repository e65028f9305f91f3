//! The WebSocket door: opens connections, and signs channels for the holders of tokens.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Path, Request, State, WebSocketUpgrade};
use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::App;
use crate::caller::{Caller, Level};
use crate::error::{Code, Failure};
use crate::pusher::channel::{ChannelName, Kind};
use crate::pusher::conversation::keys;
use crate::pusher::message::Refusal;
use crate::pusher::signature::Signed;
use crate::pusher::{self, Pusher, SocketId};
use crate::session::{QueryString, Session, is_json, read};

/// How much is read at once from a socket: most messages of clients are far smaller, and there may be many sockets.
const READ_BUFFER: usize = 4 * 1024;

/// How many bytes may wait to be written to a socket besides its queue.
const WRITE_BUFFER: usize = 64 * 1024;

/// How a client connects. What else it says of itself is ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectQuery {
    protocol: Option<String>,
}

/// Opens a socket: `GET /app/{key}`.
///
/// What is wrong is told in the protocol's own way, by a close code: it tells clients whether to come back.
pub(crate) async fn connect(
    State(app): State<Arc<App>>,
    key: Result<Path<String>, PathRejection>,
    QueryString(query): QueryString<ConnectQuery>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let upgrade =
        upgrade.map_err(|_| Failure::invalid("a WebSocket is opened here; connect with a Pusher client"))?;
    let key = key.map(|Path(key)| key).unwrap_or_default();
    let origin = headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or("null"));
    let admitted = admit(app.pusher.as_ref(), &key, &query, origin);
    let longest = app.pusher.as_ref().map_or(READ_BUFFER, |pusher| pusher.settings.message);
    let upgrade = upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_BUFFER)
        .max_message_size(longest)
        .max_frame_size(longest);
    Ok(match admitted {
        Ok(pusher) => {
            let (tasks, pusher) = (pusher.tasks().clone(), pusher.clone());
            upgrade.on_upgrade(move |socket| tasks.track_future(pusher::serve(pusher, app, socket)))
        }
        Err(refusal) => upgrade.on_upgrade(|socket| pusher::refuse(socket, refusal)),
    })
}

fn admit<'a>(
    pusher: Option<&'a Arc<Pusher>>,
    key: &str,
    query: &ConnectQuery,
    origin: Option<&str>,
) -> Result<&'a Arc<Pusher>, Refusal> {
    let pusher = pusher.ok_or(Refusal::DISABLED)?;
    if pusher.settings.app.key != key {
        return Err(Refusal::NO_APP);
    }
    if !matches!(query.protocol.as_deref(), None | Some("5" | "6" | "7")) {
        return Err(Refusal::PROTOCOL);
    }
    if !pusher.settings.allows(origin) {
        return Err(Refusal::ORIGIN);
    }
    Ok(pusher)
}

/// What a client wants to subscribe to.
#[derive(Debug, Deserialize)]
struct ChannelRequest {
    socket_id: String,
    channel_name: String,
}

/// A signature for a channel.
#[derive(Debug, Serialize)]
pub(crate) struct ChannelAuth {
    auth: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel_data: Option<String>,
}

/// Signs a document's channel for the holder of a token: `POST /broadcasting/auth` and `/pusher/auth`.
///
/// The subscription ends with the token.
pub(crate) async fn authorize(
    State(app): State<Arc<App>>,
    session: Session,
    request: Request,
) -> Result<Json<ChannelAuth>, Failure> {
    let pusher = app.pusher()?;
    super::events::not_expired(&app, &session.caller)?;
    let wanted = channel_request(&app, request).await?;
    let socket = SocketId::parse(&wanted.socket_id)
        .ok_or_else(|| Failure::invalid("socket_id is not the id of a socket, such as 123.456"))?;
    let channel = ChannelName::parse(&wanted.channel_name).map_err(Failure::invalid)?;
    let (Some(room), true) = (channel.document(), channel.kind() != Kind::Public) else {
        let detail = "only channels of documents are signed here, such as private-document.42; \
                      the web application signs its own";
        return Err(Failure::new(Code::NotAllowed).because_of(detail));
    };
    session.document(room.as_str(), Level::Read)?;
    let channel_data = (channel.kind() == Kind::Presence).then(|| user_data(&session.caller));
    let what = Signed { socket, channel: &channel, channel_data: channel_data.as_deref() };
    let auth = keys(&pusher.settings).sign(what, session.caller.expires_at);
    Ok(Json(ChannelAuth { auth, channel_data }))
}

/// What the other subscribers of a presence channel see of the caller.
fn user_data(caller: &Caller) -> String {
    json!({ "user_id": caller.subject.as_str(), "user_info": { "name": caller.name.as_str() } }).to_string()
}

/// The body is a form, or JSON for clients that prefer it.
async fn channel_request(app: &App, request: Request) -> Result<ChannelRequest, Failure> {
    let is_json = is_json(request.headers());
    let body = read(request, app).await?;
    let wrong = || Failure::invalid("the body is not a form with socket_id and channel_name");
    if is_json {
        return serde_json::from_slice(&body).map_err(|_| wrong());
    }
    // A form is written like the query of an address.
    let form = std::str::from_utf8(&body).ok().and_then(|form| format!("/?{form}").parse::<Uri>().ok());
    let form = form.ok_or_else(wrong)?;
    axum::extract::Query::try_from_uri(&form).map(|query| query.0).map_err(|_| wrong())
}

impl App {
    /// The WebSocket door, if it is open.
    pub(crate) fn pusher(&self) -> Result<&Arc<Pusher>, Failure> {
        self.pusher.as_ref().ok_or_else(|| {
            Failure::new(Code::NotFound)
                .because_of("WebSockets are switched off on this server; pusher.key and its secret open them")
        })
    }
}
