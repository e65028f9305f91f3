//! What the servers on one store tell each other: who is present, and what the application and its pages say. The events of
//! documents do not go this way: the store has them.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::channel::ChannelName;
use super::registry::Moved;
use super::{AppEvent, Pusher, SocketId, State};
use crate::nodes::{FromNode, NodeEvent, NodeId};

/// About how many bytes of members go into one message.
const PART: usize = 64 * 1024;

/// A message to the other servers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tidings<'a> {
    /// These users are connected to the sender.
    Here(#[serde(borrow)] Vec<Present<'a>>),
    /// This user is not any more.
    Left { channel: Cow<'a, str>, user: Cow<'a, str> },
    /// A client event, as the clients get it.
    Said { channel: Cow<'a, str>, frame: Cow<'a, str> },
    /// An event of the application.
    Event { channel: Cow<'a, str>, name: Cow<'a, str>, data: Cow<'a, str>, except: Option<Cow<'a, str>> },
    /// The connections of a user end.
    Terminate { user: Cow<'a, str> },
}

/// A user on a presence channel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Present<'a> {
    channel: Cow<'a, str>,
    user: Cow<'a, str>,
    #[serde(borrow)]
    info: &'a RawValue,
}

impl<'a> Tidings<'a> {
    pub(super) fn event(event: &'a AppEvent) -> Self {
        let AppEvent { channel, name, data, except } = event;
        let except = except.map(|socket| socket.to_string().into());
        Self::Event { channel: channel.as_str().into(), name: name.into(), data: data.into(), except }
    }
}

/// Listens to the other servers until this one shuts down.
pub(super) async fn listen(pusher: Arc<Pusher>, stop: CancellationToken) {
    let mut events = pusher.nodes.subscribe();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            FromNode { node, what } = events.next() => match what {
                NodeEvent::Joined => pusher.introduce(),
                NodeEvent::Gone => pusher.lock().registry.forget_server(node),
                // The others are about followers of event streams; see `watchers`.
                NodeEvent::Message(bytes) if !bytes.starts_with(b"{") => {}
                NodeEvent::Message(bytes) => match serde_json::from_slice(&bytes) {
                    Ok(tidings) => pusher.hear(node, tidings),
                    // A newer server may say more than this one knows.
                    Err(error) => tracing::debug!(%error, "a message of another server was not understood"),
                },
            },
        }
    }
}

impl Pusher {
    /// Tells the other servers something. Where it changes who is present, the state is locked: order matters.
    pub(super) fn tell(&self, tidings: &Tidings<'_>) {
        // Strings always serialize.
        self.nodes.send(Bytes::from(serde_json::to_vec(tidings).unwrap_or_default()));
    }

    /// Tells the other servers who came to this one or left it.
    pub(super) fn tell_moved(&self, state: &State, moved: &Moved) {
        match moved {
            Moved::Nobody => {}
            Moved::Left(channel, user) => {
                self.tell(&Tidings::Left { channel: channel.as_str().into(), user: user.as_ref().into() });
            }
            Moved::Came(channel, user) => {
                let Some(info) = state.registry.info(channel, user) else { return };
                let user = Cow::Borrowed(user.as_ref());
                self.tell(&Tidings::Here(vec![Present { channel: channel.as_str().into(), user, info }]));
            }
        }
    }

    /// Tells a new server, and with it all others, who is connected to this one.
    fn introduce(&self) {
        let state = self.lock();
        let (mut part, mut length) = (Vec::new(), 0);
        for (channel, user, info) in state.registry.members_here() {
            length += channel.as_str().len() + user.len() + info.get().len();
            part.push(Present { channel: channel.as_str().into(), user: user.into(), info });
            if length > PART {
                self.tell(&Tidings::Here(std::mem::take(&mut part)));
                length = 0;
            }
        }
        if !part.is_empty() {
            self.tell(&Tidings::Here(part));
        }
    }

    /// Another server says something.
    fn hear(&self, node: NodeId, tidings: Tidings<'_>) {
        match tidings {
            Tidings::Here(users) => {
                let mut state = self.lock();
                for Present { channel, user, info } in users {
                    let Ok(channel) = ChannelName::parse(&channel) else { continue };
                    state.registry.came_elsewhere(node, &channel, &user, info);
                }
            }
            Tidings::Left { channel, user } => {
                let Ok(channel) = ChannelName::parse(&channel) else { return };
                self.lock().registry.left_elsewhere(node, &channel, &user);
            }
            Tidings::Said { channel, frame } => {
                let Ok(channel) = ChannelName::parse(&channel) else { return };
                self.lock().registry.publish(&channel, &frame.into_owned().into(), None);
            }
            Tidings::Event { channel, name, data, except } => {
                let Ok(channel) = ChannelName::parse(&channel) else { return };
                let except = except.and_then(|socket| SocketId::parse(&socket));
                let (name, data) = (name.into_owned(), data.into_owned());
                self.pass_app_event(&AppEvent { channel, name, data, except });
            }
            Tidings::Terminate { user } => self.lock().registry.terminate(&user),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio_util::task::TaskTracker;

    use super::super::conversation::NewMember;
    use super::super::message::Frame;
    use super::super::registry::Line;
    use super::super::settings::{PusherApp, PusherSettings};
    use super::*;
    use crate::nodes::Nodes;

    fn server() -> Pusher {
        let app = PusherApp { app_id: "a".into(), key: "k".into(), secret: "s".into() };
        Pusher::new(PusherSettings::new(app), Nodes::new().0, TaskTracker::new())
    }

    /// A socket of `user` on a presence channel of the server.
    fn present(server: &Pusher, number: u32, channel: &ChannelName, user: &str) -> mpsc::Receiver<Frame> {
        let (line, mut frames) = Line::new();
        let id = SocketId::parse(&format!("{number}.1")).unwrap();
        assert!(server.lock().registry.connect(id, line));
        let info = RawValue::from_string(format!(r#"{{"name":"{user}"}}"#)).unwrap();
        server.join(id, channel, Some(&NewMember { user: user.into(), info })).unwrap();
        assert!(frames.try_recv().unwrap().contains("subscription_succeeded"));
        frames
    }

    fn node(number: u8) -> NodeId {
        NodeId::parse(&format!("{number:016x}")).unwrap()
    }

    /// What one server says, as another reads it.
    fn said(tidings: &Tidings<'_>, to: &Pusher, from: NodeId) {
        let bytes = serde_json::to_vec(tidings).unwrap();
        to.hear(from, serde_json::from_slice(&bytes).unwrap());
    }

    #[test]
    fn what_one_server_says_the_pages_of_another_hear() {
        let (channel, here) = (ChannelName::parse("presence-document.a").unwrap(), server());
        let mut frames = present(&here, 1, &channel, "anna");
        let mut heard = || frames.try_recv().map(|frame| frame.to_string()).unwrap_or_default();
        let info = RawValue::from_string(r#"{"name":"B\"en\u0000"}"#.into()).unwrap();
        let ben = || Present { channel: channel.as_str().into(), user: "b\"en".into(), info: &info };
        said(&Tidings::Here(vec![ben(), ben()]), &here, node(1));
        said(&Tidings::Here(vec![ben()]), &here, node(2));
        assert!(heard().contains("member_added"));
        assert_eq!(here.users(&channel), ["anna", "b\"en"]);
        let left = || Tidings::Left { channel: channel.as_str().into(), user: "b\"en".into() };
        said(&left(), &here, node(1));
        assert_eq!(heard(), "", "another server still has a page of his");
        said(&left(), &here, node(2));
        assert!(heard().contains("member_removed"));
        let frame = r#"{"event":"client-x","channel":"presence-document.a"}"#;
        said(&Tidings::Said { channel: channel.as_str().into(), frame: frame.into() }, &here, node(1));
        assert_eq!(heard(), frame);
        let event =
            |except| AppEvent { channel: channel.clone(), name: "x".into(), data: "{}".into(), except };
        said(&Tidings::event(&event(None)), &here, node(1));
        assert!(heard().contains(r#""event":"x""#));
        said(&Tidings::event(&event(SocketId::parse("1.1"))), &here, node(1));
        assert_eq!(heard(), "");
    }

    #[test]
    fn what_is_not_understood_changes_nothing() {
        let here = server();
        let bad = Tidings::Left { channel: "no channel".into(), user: "anna".into() };
        said(&bad, &here, node(1));
        assert!(serde_json::from_slice::<Tidings<'_>>(br#"{"newer":{}}"#).is_err());
    }
}
