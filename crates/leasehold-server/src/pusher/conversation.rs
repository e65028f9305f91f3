//! One client's side of the protocol: decides what follows from each of its messages, from its silence and from the end of
//! its tokens. Pure; `now` is an argument.
//!
//! It checks signatures and limits. Who else is on a channel it does not know: the registry does.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::value::RawValue;

use super::SocketId;
use super::channel::{ChannelName, Kind};
use super::message::{
    self, ChannelData, ClientEvent, ClientMessage, Frame, LONGEST_EVENT, Refusal, SignIn, Subscribe, User,
};
use super::settings::PusherSettings;
use super::signature::{Keys, Signed};

/// How long a client has to answer a ping.
const PONG: Duration = Duration::from_secs(30);

/// How many seconds' worth of messages a client may send at once: after a reconnect it subscribes to everything.
const BURST: u32 = 6;

/// How many client events a second a client may send.
const CLIENT_EVENTS: u32 = 10;

/// The most that an application may say about a user, in bytes.
const LONGEST_INFO: usize = 2 * 1024;

/// What is known of one client.
pub(crate) struct Conversation {
    socket: SocketId,
    subscriptions: HashMap<ChannelName, Subscribed>,
    heard_at: Duration,
    pinged_at: Option<Duration>,
    messages: Bucket,
    events: Bucket,
}

/// A subscription of the client.
struct Subscribed {
    /// When it ends, with the token that it was allowed for.
    ends_at: Option<Duration>,
    /// The user on a presence channel.
    user: Option<Box<str>>,
}

/// The time: since the connection began, and on the wall clock in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) since_start: Duration,
    pub(crate) wall_millis: u64,
}

/// A user on a presence channel.
#[derive(Debug)]
pub(crate) struct NewMember {
    pub(crate) user: Box<str>,
    pub(crate) info: Box<RawValue>,
}

/// What follows from a message or from the time.
#[derive(Debug)]
pub(crate) enum Action {
    Nothing,
    Reply(Frame),
    /// Subscribe the socket, and answer.
    Join {
        channel: ChannelName,
        member: Option<NewMember>,
    },
    Leave(ChannelName),
    /// Pass a client event on to the other subscribers.
    Say {
        channel: ChannelName,
        frame: Frame,
    },
    /// The user of the connection is known, and the client gets the reply.
    SignIn {
        user: String,
        reply: Frame,
    },
    /// The last: close the connection, after these words.
    Close {
        before: Option<Frame>,
        refusal: Refusal,
    },
}

impl Conversation {
    pub(crate) fn new(socket: SocketId, settings: &PusherSettings, now: Duration) -> Self {
        let rate = settings.messages_per_second;
        Self {
            socket,
            subscriptions: HashMap::new(),
            heard_at: now,
            pinged_at: None,
            messages: Bucket::new(rate, rate.saturating_mul(BURST), now),
            events: Bucket::new(CLIENT_EVENTS, CLIENT_EVENTS, now),
        }
    }

    /// The client sent a control frame of the WebSocket protocol.
    pub(crate) fn hear_control(&mut self, now: Duration) -> Action {
        (self.heard_at, self.pinged_at) = (now, None);
        if self.messages.take(now) { Action::Nothing } else { close(Refusal::FLOOD) }
    }

    /// The client sent a message.
    pub(crate) fn hear(&mut self, text: &str, settings: &PusherSettings, now: Now) -> Action {
        (self.heard_at, self.pinged_at) = (now.since_start, None);
        if !self.messages.take(now.since_start) {
            return close(Refusal::FLOOD);
        }
        match ClientMessage::parse(text) {
            Err(what) => close(Refusal::malformed(what)),
            Ok(ClientMessage::Ping) => Action::Reply(message::pong()),
            Ok(ClientMessage::Pong) => Action::Nothing,
            Ok(ClientMessage::Subscribe(subscribe)) => self.subscribe(&subscribe, settings, now),
            Ok(ClientMessage::Unsubscribe { channel }) => self.unsubscribe(&channel),
            Ok(ClientMessage::SignIn(sign_in)) => self.sign_in(&sign_in, settings),
            Ok(ClientMessage::Event(event)) => self.client_event(&event, now.since_start),
        }
    }

    /// When to call [`Self::tick`] next.
    pub(crate) fn deadline(&self, settings: &PusherSettings) -> Duration {
        let silence = match self.pinged_at {
            Some(at) => at + PONG,
            None => self.heard_at + settings.activity_timeout * 2,
        };
        let ends = self.subscriptions.values().filter_map(|subscribed| subscribed.ends_at);
        ends.min().map_or(silence, |end| end.min(silence))
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, settings: &PusherSettings, now: Duration) -> Action {
        let over = |subscribed: &Subscribed| subscribed.ends_at.is_some_and(|end| end <= now);
        if let Some((channel, _)) = self.subscriptions.iter().find(|(_, subscribed)| over(subscribed)) {
            // The client comes back after a second, and asks for a new signature with the token that it has by then.
            let before =
                message::subscription_error(channel.as_str(), "AuthError", "the token has expired", 401);
            return Action::Close { before: Some(before), refusal: Refusal::TOKEN_EXPIRED };
        }
        match self.pinged_at {
            Some(at) if now >= at + PONG => close(Refusal::SILENT),
            None if now >= self.heard_at + settings.activity_timeout * 2 => {
                self.pinged_at = Some(now);
                Action::Reply(message::ping())
            }
            _ => Action::Nothing,
        }
    }

    /// The registry did not take the subscription.
    pub(crate) fn not_joined(&mut self, channel: &ChannelName) {
        self.subscriptions.remove(channel);
    }

    fn subscribe(&mut self, subscribe: &Subscribe, settings: &PusherSettings, now: Now) -> Action {
        let refused = |kind: &str, why: &str, status| {
            Action::Reply(message::subscription_error(&shown(&subscribe.channel), kind, why, status))
        };
        let channel = match ChannelName::parse(&subscribe.channel) {
            Ok(channel) => channel,
            Err(rule) => return refused("InvalidChannel", rule, 400),
        };
        let known = self.subscriptions.get(&channel);
        if known.is_none() && self.subscriptions.len() >= settings.subscriptions {
            return refused("LimitReached", "the connection has as many subscriptions as it may", 429);
        }
        let (member, ends_at) = match admit(subscribe, &channel, self.socket, settings, now) {
            Ok(admitted) => admitted,
            Err(why) => return refused("AuthError", why.words, why.status),
        };
        let user = member.as_ref().map(|member| member.user.clone());
        if known.is_some_and(|known| known.user != user) {
            return refused("AuthError", "the connection is on this channel as another user", 403);
        }
        self.subscriptions.insert(channel.clone(), Subscribed { ends_at, user });
        Action::Join { channel, member }
    }

    fn unsubscribe(&mut self, channel: &str) -> Action {
        let subscribed =
            ChannelName::parse(channel).ok().filter(|name| self.subscriptions.remove(name).is_some());
        subscribed.map_or(Action::Nothing, Action::Leave)
    }

    fn sign_in(&self, sign_in: &SignIn, settings: &PusherSettings) -> Action {
        let SignIn { auth, user_data } = sign_in;
        let user = serde_json::from_str::<User>(user_data).ok().map(|user| user.id.0);
        match user {
            Some(user) if keys(settings).check_user(auth, self.socket, user_data) => {
                Action::SignIn { user, reply: message::signed_in(user_data) }
            }
            _ => close(Refusal { code: 4009, message: "the signature of the user does not fit".into() }),
        }
    }

    fn client_event(&mut self, event: &ClientEvent, now: Duration) -> Action {
        let refused = |why| {
            let channel = shown(&event.channel);
            Action::Reply(message::error(&Refusal::client_event(why), Some(&channel)))
        };
        let Ok(channel) = ChannelName::parse(&event.channel) else {
            return refused("there is no such channel");
        };
        let Some(subscribed) = self.subscriptions.get(&channel) else {
            return refused("client events are for subscribers of their channel");
        };
        if channel.kind() == Kind::Public {
            return refused("client events are for private and presence channels");
        }
        if event.event.len() > LONGEST_EVENT {
            return refused("the name of an event has at most 200 characters");
        }
        if !self.events.take(now) {
            return refused("too many client events: at most 10 a second are passed on");
        }
        let user = subscribed.user.as_deref();
        let frame = message::client_event(&event.event, &channel, event.data.as_deref(), user);
        Action::Say { channel, frame }
    }
}

fn close(refusal: Refusal) -> Action {
    Action::Close { before: None, refusal }
}

pub(crate) fn keys(settings: &PusherSettings) -> Keys<'_> {
    Keys { key: &settings.app.key, secret: &settings.app.secret }
}

/// The name of a channel as it is sent back to a client that may have sent anything.
fn shown(channel: &str) -> String {
    channel.chars().take(super::channel::LONGEST).collect()
}

/// Why a subscription is refused.
struct NotAdmitted {
    words: &'static str,
    status: u16,
}

/// Checks whether the client may subscribe; returns the user, and when the subscription ends.
fn admit(
    subscribe: &Subscribe,
    channel: &ChannelName,
    socket: SocketId,
    settings: &PusherSettings,
    now: Now,
) -> Result<(Option<NewMember>, Option<Duration>), NotAdmitted> {
    let no = |status, words| NotAdmitted { words, status };
    let channel_data = match channel.kind() {
        Kind::Public if is_open(channel, settings) => return Ok((None, None)),
        Kind::Public => return Err(no(403, "public channels are switched off: subscribe to private-…")),
        Kind::Private => None,
        Kind::Presence => Some(subscribe.channel_data.as_deref().ok_or(no(401, "channel_data is missing"))?),
    };
    let auth = subscribe.auth.as_deref().ok_or(no(401, "the signature is missing"))?;
    let what = Signed { socket, channel, channel_data };
    let expires_at = keys(settings).check(auth, what).ok_or(no(401, "the signature does not fit"))?;
    let left = expires_at
        .map(|end| Duration::from_millis(end.saturating_mul(1_000).saturating_sub(now.wall_millis)));
    if left == Some(Duration::ZERO) {
        return Err(no(401, "the token has expired"));
    }
    let member = channel_data.map(new_member).transpose().map_err(|words| no(400, words))?;
    Ok((member, left.map(|left| now.since_start + left)))
}

fn is_open(channel: &ChannelName, settings: &PusherSettings) -> bool {
    match channel.document() {
        Some(_) => settings.public_documents,
        None => settings.public_channels,
    }
}

fn new_member(channel_data: &str) -> Result<NewMember, &'static str> {
    if channel_data.len() > LONGEST_INFO {
        return Err("channel_data has at most 2048 bytes");
    }
    let data: ChannelData = serde_json::from_str(channel_data)
        .map_err(|_| "channel_data is not {\"user_id\": …, \"user_info\": …}")?;
    if data.user_id.0.is_empty() {
        return Err("the user_id of channel_data is a string or a number");
    }
    let nothing = || RawValue::from_string("{}".to_owned());
    let info = data.user_info.map_or_else(nothing, Ok).map_err(|_| "user_info is not JSON")?;
    Ok(NewMember { user: data.user_id.0.into(), info })
}

/// Allows `rate` things a second, and `burst` at once.
struct Bucket {
    rate: u32,
    burst: u32,
    left: f64,
    at: Duration,
}

impl Bucket {
    fn new(rate: u32, burst: u32, now: Duration) -> Self {
        Self { rate, burst, left: f64::from(burst), at: now }
    }

    fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * f64::from(self.rate)).min(f64::from(self.burst));
        self.at = now;
        let is_enough = self.left >= 1.0;
        if is_enough {
            self.left -= 1.0;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests;
