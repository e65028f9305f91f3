//! The messages of the Pusher protocol, version 7: parses what a client sends, and writes what it gets. Pure; nothing that
//! a client can send makes it panic.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use leasehold_core::RoomId;
use leasehold_core::wire::documents::EventName;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::SocketId;
use super::channel::ChannelName;

/// The longest name of an event, in bytes.
pub(crate) const LONGEST_EVENT: usize = 200;

/// A message of a client.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    Ping,
    Pong,
    Subscribe(Subscribe),
    Unsubscribe { channel: String },
    SignIn(SignIn),
    Event(ClientEvent),
}

/// A request to subscribe to a channel.
#[derive(Debug, Deserialize)]
pub(crate) struct Subscribe {
    pub(crate) channel: String,
    pub(crate) auth: Option<String>,
    pub(crate) channel_data: Option<String>,
}

#[derive(Deserialize)]
struct Unsubscribe {
    channel: String,
}

/// A user who signs in, so that the application can end all of its connections.
#[derive(Debug, Deserialize)]
pub(crate) struct SignIn {
    pub(crate) auth: String,
    pub(crate) user_data: String,
}

/// An event from one client to the other subscribers of a channel.
#[derive(Debug)]
pub(crate) struct ClientEvent {
    pub(crate) event: String,
    pub(crate) channel: String,
    pub(crate) data: Option<Box<RawValue>>,
}

/// The user of a presence channel, as the application signed it.
#[derive(Deserialize)]
pub(crate) struct ChannelData {
    pub(crate) user_id: Id,
    #[serde(default)]
    pub(crate) user_info: Option<Box<RawValue>>,
}

/// The user of a connection, as the application signed it.
#[derive(Deserialize)]
pub(crate) struct User {
    pub(crate) id: Id,
}

/// Applications write ids as strings or as numbers.
#[derive(Deserialize)]
#[serde(from = "serde_json::Value")]
pub(crate) struct Id(pub(crate) String);

impl From<serde_json::Value> for Id {
    fn from(value: serde_json::Value) -> Self {
        Self(match value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Number(number) => number.to_string(),
            _ => String::new(),
        })
    }
}

/// What the application says about a user. Its name is shown to others who ask over HTTP.
#[derive(Deserialize)]
pub(crate) struct UserInfo {
    pub(crate) name: String,
}

/// The form that all messages have.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, default)]
    channel: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

impl ClientMessage {
    /// Parses a message, or says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let envelope: Envelope<'_> =
            serde_json::from_str(text).map_err(|_| "a message is a JSON object with an `event`")?;
        match envelope.event.as_ref() {
            "pusher:ping" => Ok(Self::Ping),
            "pusher:pong" => Ok(Self::Pong),
            "pusher:subscribe" => data(&envelope).map(Self::Subscribe),
            "pusher:unsubscribe" => {
                data::<Unsubscribe>(&envelope).map(|data| Self::Unsubscribe { channel: data.channel })
            }
            "pusher:signin" => data(&envelope).map(Self::SignIn),
            event if event.starts_with("client-") => Ok(Self::Event(ClientEvent {
                event: event.to_owned(),
                channel: envelope.channel.ok_or("a client event names its `channel`")?.into_owned(),
                data: envelope.data.map(ToOwned::to_owned),
            })),
            _ => Err("there is no such event: a client sends pusher:… and client-… events only"),
        }
    }
}

/// The `data` of a message: an object, or the same as a JSON string.
fn data<T: serde::de::DeserializeOwned>(envelope: &Envelope<'_>) -> Result<T, &'static str> {
    let wrong = "the `data` of this event is not as the protocol says";
    let raw = envelope.data.ok_or(wrong)?.get();
    match serde_json::from_str::<String>(raw) {
        Ok(text) => serde_json::from_str(&text).map_err(|_| wrong),
        Err(_) => serde_json::from_str(raw).map_err(|_| wrong),
    }
}

/// Why a connection ends, or a message is refused. The number decides what clients do: up to 4099 and from 4300 on they
/// stay away, from 4100 they come back after a second, from 4200 at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) message: Cow<'static, str>,
}

impl Refusal {
    const fn new(code: u16, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message) }
    }

    pub(crate) const NO_APP: Self = Self::new(4001, "there is no application with this key");
    pub(crate) const DISABLED: Self = Self::new(4003, "WebSockets are switched off on this server");
    pub(crate) const PROTOCOL: Self = Self::new(4007, "the protocol's versions 5 to 7 are supported");
    pub(crate) const ORIGIN: Self = Self::new(4009, "pages of this origin may not connect");
    pub(crate) const TERMINATED: Self =
        Self::new(4009, "the application has ended the connections of this user");
    pub(crate) const FULL: Self = Self::new(4100, "the server has as many connections as it takes");
    pub(crate) const TOO_SLOW: Self = Self::new(4100, "the connection is too slow for its events");
    pub(crate) const TOKEN_EXPIRED: Self = Self::new(4101, "the token of a subscription has expired");
    pub(crate) const RESTART: Self = Self::new(4200, "the server is shutting down");
    pub(crate) const SILENT: Self = Self::new(4201, "no answer to a ping");
    pub(crate) const BINARY: Self = Self::new(4300, "messages are text");
    pub(crate) const TOO_LONG: Self = Self::new(4300, "the message is too long, or is no WebSocket message");
    pub(crate) const FLOOD: Self = Self::new(4301, "too many messages");

    /// A message that is not of the protocol.
    pub(crate) const fn malformed(message: &'static str) -> Self {
        Self::new(4300, message)
    }

    /// A client event that is not passed on.
    pub(crate) const fn client_event(message: &'static str) -> Self {
        Self::new(4301, message)
    }
}

/// What is sent to a client. Shared by all that get the same.
pub(crate) type Frame = Utf8Bytes;

/// The form of most of what is sent: `data` is JSON inside a string.
#[derive(Serialize)]
struct Sent<'a> {
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    data: &'a str,
}

fn frame(message: &impl Serialize) -> Frame {
    // Strings and maps of strings always serialize.
    serde_json::to_string(message).unwrap_or_default().into()
}

fn sent(event: &str, channel: Option<&ChannelName>, data: &str) -> Frame {
    frame(&Sent { event, channel: channel.map(ChannelName::as_str), data })
}

pub(crate) fn established(socket: SocketId, activity_timeout: Duration) -> Frame {
    let data = json!({ "socket_id": socket.to_string(), "activity_timeout": activity_timeout.as_secs() });
    sent("pusher:connection_established", None, &data.to_string())
}

pub(crate) fn ping() -> Frame {
    sent("pusher:ping", None, "{}")
}

pub(crate) fn pong() -> Frame {
    sent("pusher:pong", None, "{}")
}

pub(crate) fn error(refusal: &Refusal, channel: Option<&str>) -> Frame {
    let data = json!({ "code": refusal.code, "message": refusal.message }).to_string();
    frame(&Sent { event: "pusher:error", channel, data: &data })
}

/// A subscription is refused, or has ended. Its `data` is an object: clients hand it to the page as it is.
pub(crate) fn subscription_error(channel: &str, kind: &str, error: &str, status: u16) -> Frame {
    let data = json!({ "type": kind, "error": error, "status": status });
    frame(&json!({ "event": "pusher:subscription_error", "channel": channel, "data": data }))
}

fn subscription_succeeded(channel: &ChannelName, data: &str) -> Frame {
    sent("pusher_internal:subscription_succeeded", Some(channel), data)
}

/// The answer to a subscription, for a channel that is no presence channel.
pub(crate) fn succeeded(channel: &ChannelName) -> Frame {
    subscription_succeeded(channel, "{}")
}

/// The same for a presence channel, with who is there.
pub(crate) fn presence_succeeded<'a>(
    channel: &ChannelName,
    members: impl Iterator<Item = (&'a str, &'a RawValue)>,
) -> Frame {
    #[derive(Serialize)]
    struct Members<'a> {
        count: usize,
        ids: Vec<&'a str>,
        hash: BTreeMap<&'a str, &'a RawValue>,
    }
    let hash: BTreeMap<&str, &RawValue> = members.collect();
    let members = Members { count: hash.len(), ids: hash.keys().copied().collect(), hash };
    let members = serde_json::to_string(&members).unwrap_or_default();
    subscription_succeeded(channel, &format!("{{\"presence\":{members}}}"))
}

pub(crate) fn signed_in(user_data: &str) -> Frame {
    sent("pusher:signin_success", None, &json!({ "user_data": user_data }).to_string())
}

pub(crate) fn cache_miss(channel: &ChannelName) -> Frame {
    sent("pusher:cache_miss", Some(channel), "{}")
}

pub(crate) fn member_added(channel: &ChannelName, user: &str, info: &RawValue) -> Frame {
    #[derive(Serialize)]
    struct Member<'a> {
        user_id: &'a str,
        user_info: &'a RawValue,
    }
    let data = serde_json::to_string(&Member { user_id: user, user_info: info }).unwrap_or_default();
    sent("pusher_internal:member_added", Some(channel), &data)
}

pub(crate) fn member_removed(channel: &ChannelName, user: &str) -> Frame {
    sent("pusher_internal:member_removed", Some(channel), &json!({ "user_id": user }).to_string())
}

/// The data of the event that shows that a document is not locked. Its last holder is not known any more.
pub(crate) fn unlocked_data(room: &RoomId, seq: u64) -> String {
    let (event, room) = (EventName::DocumentUnlocked.as_str(), room.as_str());
    json!({ "event": event, "roomId": room, "seq": seq, "fence": null, "holder": null, "reason": null })
        .to_string()
}

/// An event of the application or of a document.
pub(crate) fn event(name: &str, channel: &ChannelName, data: &str) -> Frame {
    sent(name, Some(channel), data)
}

/// An event of another client, with the id of the user who sent it where that is known.
pub(crate) fn client_event(
    name: &str,
    channel: &ChannelName,
    data: Option<&RawValue>,
    user: Option<&str>,
) -> Frame {
    #[derive(Serialize)]
    struct Said<'a> {
        event: &'a str,
        channel: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        user_id: Option<&'a str>,
    }
    frame(&Said { event: name, channel: channel.as_str(), data, user_id: user })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send_is_understood() {
        let subscribe =
            r#"{"event":"pusher:subscribe","data":{"auth":"K:1","channel":"private-a","channel_data":"{}"}}"#;
        let as_string = r#"{"event":"pusher:subscribe","data":"{\"channel\":\"a\"}"}"#;
        let event = r#"{"event":"client-typing","channel":"private-a","data":{"x":[1, 2]}}"#;
        assert!(matches!(ClientMessage::parse(subscribe).unwrap(), ClientMessage::Subscribe(s)
            if s.channel == "private-a" && s.auth.as_deref() == Some("K:1")));
        assert!(matches!(ClientMessage::parse(as_string).unwrap(), ClientMessage::Subscribe(s)
            if s.channel == "a" && s.auth.is_none()));
        assert!(matches!(ClientMessage::parse(event).unwrap(), ClientMessage::Event(e)
            if e.event == "client-typing" && e.data.as_ref().unwrap().get() == r#"{"x":[1, 2]}"#));
        let bare = r#"{"event":"pusher:ping"}"#;
        assert!(matches!(ClientMessage::parse(bare).unwrap(), ClientMessage::Ping));
    }

    #[test]
    fn what_is_no_message_of_the_protocol_is_refused() {
        let bad = [
            "",
            "null",
            "[]",
            "{}",
            "{\"event\":7}",
            r#"{"event":"pusher:subscribe"}"#,
            r#"{"event":"pusher:subscribe","data":{"channel":7}}"#,
            r#"{"event":"pusher:subscribe","data":"{"}"#,
            r#"{"event":"client-a","data":{}}"#,
            r#"{"event":"App\\Events\\DocumentLocked","channel":"private-a","data":{}}"#,
            r#"{"event":"pusher_internal:member_added","channel":"presence-a","data":"{}"}"#,
        ];
        for text in bad {
            assert!(ClientMessage::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn frames_are_as_the_protocol_says() {
        let channel = ChannelName::parse("private-a").unwrap();
        let socket = SocketId::parse("1.2").unwrap();
        let established = established(socket, Duration::from_secs(30));
        let expected = r#"{"event":"pusher:connection_established","data":"{\"activity_timeout\":30,\"socket_id\":\"1.2\"}"}"#;
        assert_eq!(established.as_str(), expected);
        let event = event(r"App\Events\DocumentLocked", &channel, r#"{"a":"b"}"#);
        let expected =
            r#"{"event":"App\\Events\\DocumentLocked","channel":"private-a","data":"{\"a\":\"b\"}"}"#;
        assert_eq!(event.as_str(), expected);
        let data = RawValue::from_string(r#"{"x": 1}"#.into()).unwrap();
        let said = client_event("client-x", &channel, Some(&data), Some("7"));
        let expected = r#"{"event":"client-x","channel":"private-a","data":{"x": 1},"user_id":"7"}"#;
        assert_eq!(said.as_str(), expected);
    }
}
