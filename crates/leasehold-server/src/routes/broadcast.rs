//! Pusher's HTTP API, which a web application broadcasts its own events with: every call is signed with the application's
//! secret.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::App;
use crate::error::{Code, Failure};
use crate::pusher::channel::ChannelName;
use crate::pusher::conversation::keys;
use crate::pusher::message::LONGEST_EVENT;
use crate::pusher::signature::SignedCall;
use crate::pusher::{AppEvent, Counts, Pusher, SocketId};
use crate::rates::Who;
use crate::session::{address, read};

/// How many channels one event may go to, and how many events one call may carry: Pusher's own limits.
const CHANNELS: usize = 100;
const BATCH: usize = 10;

/// The longest body with so many events, whose data is JSON inside JSON.
pub(crate) const LONGEST_BATCH: usize = 256 * 1024;

/// The longest data of an event.
const LONGEST_DATA: usize = 10 * 1024;

/// An event to broadcast.
#[derive(Deserialize)]
struct Trigger {
    name: String,
    /// JSON, as a string.
    data: String,
    #[serde(default)]
    channels: Vec<String>,
    channel: Option<String>,
    /// The socket that does not get it.
    socket_id: Option<String>,
    /// What to answer about the channels.
    info: Option<String>,
}

#[derive(Deserialize)]
struct Batch {
    batch: Vec<Trigger>,
}

/// Broadcasts an event: `POST /apps/{id}/events`.
pub(crate) async fn trigger(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let call = Call::check(&app, &id, request).await?;
    let trigger: Trigger = call.body()?;
    let channels = publish(call.pusher, &trigger)?;
    Ok(Json(match &trigger.info {
        Some(info) => json!({ "channels": described(call.pusher, &channels, info) }),
        None => json!({}),
    }))
}

/// Broadcasts several events: `POST /apps/{id}/batch_events`.
pub(crate) async fn trigger_batch(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let call = Call::check(&app, &id, request).await?;
    let Batch { batch } = call.body()?;
    if batch.len() > BATCH {
        return Err(Failure::invalid(format!("a batch has at most {BATCH} events; send several")));
    }
    // None is sent if one of them is wrong.
    batch.iter().try_for_each(|trigger| parsed(trigger).map(|_| ()))?;
    batch.iter().try_for_each(|trigger| publish(call.pusher, trigger).map(|_| ()))?;
    Ok(Json(json!({})))
}

/// Lists the channels that have subscribers: `GET /apps/{id}/channels`.
pub(crate) async fn channels(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let call = Call::check(&app, &id, request).await?;
    let prefix = call.parameter("filter_by_prefix").unwrap_or_default();
    let info = call.parameter("info").unwrap_or_default();
    if info.split(',').any(|info| info == "user_count") && !prefix.starts_with("presence-") {
        return Err(Failure::invalid("user_count is known of presence channels only; filter_by_prefix them"));
    }
    let channels = call.pusher.occupied(prefix);
    Ok(Json(json!({ "channels": described(call.pusher, &channels, info) })))
}

/// Describes a channel: `GET /apps/{id}/channels/{channel}`.
pub(crate) async fn channel(
    State(app): State<Arc<App>>,
    Path((id, channel)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let call = Call::check(&app, &id, request).await?;
    let channel = ChannelName::parse(&channel).map_err(Failure::invalid)?;
    let info = call.parameter("info").unwrap_or_default();
    let counts = call.pusher.counts(&channel);
    let mut described = describe(&counts, info);
    described.insert("occupied".into(), (counts.subscriptions + counts.users > 0).into());
    Ok(Json(described.into()))
}

/// Lists the members of a presence channel: `GET /apps/{id}/channels/{channel}/users`.
pub(crate) async fn users(
    State(app): State<Arc<App>>,
    Path((id, channel)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let call = Call::check(&app, &id, request).await?;
    let channel = ChannelName::parse(&channel).map_err(Failure::invalid)?;
    if channel.kind() != crate::pusher::channel::Kind::Presence {
        return Err(Failure::invalid("users are known of presence channels only"));
    }
    let users: Vec<Value> = call.pusher.users(&channel).into_iter().map(|id| json!({ "id": id })).collect();
    Ok(Json(json!({ "users": users })))
}

/// Ends the connections of a user: `POST /apps/{id}/users/{user}/terminate_connections`.
pub(crate) async fn terminate(
    State(app): State<Arc<App>>,
    Path((id, user)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let call = Call::check(&app, &id, request).await?;
    call.pusher.terminate(&user);
    Ok(Json(json!({})))
}

/// Says that the server is there, as Laravel Reverb does: `GET /up`.
pub(crate) async fn up(State(app): State<Arc<App>>) -> Result<Json<Value>, Failure> {
    app.pusher().map(|_| Json(json!({ "health": "OK" })))
}

/// A call whose signature was checked.
struct Call<'a> {
    pusher: &'a Arc<Pusher>,
    query: Vec<(String, String)>,
    body: axum::body::Bytes,
}

impl<'a> Call<'a> {
    async fn check(app: &'a App, id: &str, request: Request) -> Result<Self, Failure> {
        let pusher = app.pusher()?;
        if pusher.settings.app.app_id != id {
            return Err(Failure::new(Code::NotFound).because_of("there is no application with this id"));
        }
        let (parts, body) = request.into_parts();
        let (method, uri, from) = (parts.method.clone(), parts.uri.clone(), address(&parts));
        let body = read(Request::from_parts(parts, body), app).await?;
        let query = query_of(&uri)?;
        let call = SignedCall { method: method.as_str(), path: uri.path(), query: &query, body: &body };
        let seconds = (app.config.wall_clock)() / 1_000;
        if let Err(why) = call.check(keys(&pusher.settings), seconds) {
            app.metrics.auth_failed();
            app.slow_down(Who::Address(from))?;
            return Err(Failure::new(Code::Unauthenticated).because_of(why));
        }
        Ok(Self { pusher, query, body })
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn body<T: serde::de::DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|_| Failure::invalid("the body is not what Pusher's HTTP API says for this call"))
    }
}

fn query_of(uri: &Uri) -> Result<Vec<(String, String)>, Failure> {
    axum::extract::Query::try_from_uri(uri)
        .map(|query| query.0)
        .map_err(|_| Failure::invalid("the query string cannot be read"))
}

/// The channels of an event, and the socket that does not get it.
fn parsed(trigger: &Trigger) -> Result<(Vec<ChannelName>, Option<SocketId>), Failure> {
    if trigger.data.len() > LONGEST_DATA {
        let detail = format!("the data of an event has at most {LONGEST_DATA} bytes");
        return Err(Failure::new(Code::TooLarge).because_of(detail));
    }
    if trigger.name.is_empty() || trigger.name.len() > LONGEST_EVENT {
        return Err(Failure::invalid("the name of an event has 1 to 200 characters"));
    }
    let names: Vec<&String> = trigger.channels.iter().chain(&trigger.channel).collect();
    if names.is_empty() || names.len() > CHANNELS {
        return Err(Failure::invalid(format!("an event goes to 1 to {CHANNELS} channels")));
    }
    let channels: Result<Vec<_>, _> = names.into_iter().map(|name| ChannelName::parse(name)).collect();
    let wrong = || Failure::invalid("socket_id is not the id of a socket, such as 123.456");
    let except = trigger.socket_id.as_deref().map(|id| SocketId::parse(id).ok_or_else(wrong)).transpose()?;
    Ok((channels.map_err(Failure::invalid)?, except))
}

fn publish(pusher: &Pusher, trigger: &Trigger) -> Result<Vec<ChannelName>, Failure> {
    let (channels, except) = parsed(trigger)?;
    for channel in &channels {
        let Trigger { name, data, .. } = trigger;
        pusher.broadcast(&AppEvent {
            channel: channel.clone(),
            name: name.into(),
            data: data.into(),
            except,
        });
    }
    Ok(channels)
}

fn described(pusher: &Pusher, channels: &[ChannelName], info: &str) -> Map<String, Value> {
    let describe = |channel: &ChannelName| {
        (channel.as_str().to_owned(), Value::from(describe(&pusher.counts(channel), info)))
    };
    channels.iter().map(describe).collect()
}

/// What is asked for about a channel: `user_count`, `subscription_count`, or both.
fn describe(counts: &Counts, info: &str) -> Map<String, Value> {
    let known = [("user_count", counts.users), ("subscription_count", counts.subscriptions)];
    let asked = known.into_iter().filter(|(name, _)| info.split(',').any(|asked| asked.trim() == *name));
    asked.map(|(name, count)| (name.to_owned(), count.into())).collect()
}
