//! Who follows a document by an event stream of its own: such a page has the document open, and its user is shown to others. Pages
//! on the document's presence channel are in `pusher`.
//!
//! Servers on one store tell each other about their own followers, so that each shows those of all. No lease depends on it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use leasehold_core::RoomId;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::nodes::{FromNode, NodeEvent, NodeId, Nodes};
use crate::presence::Presence;

/// What a message about followers begins with: those of `pusher` begin with a brace.
const MARK: u8 = b'F';

/// About how many bytes of followers go into one message.
const PART: usize = 64 * 1024;

type Followers = Presence<RoomId, NodeId>;

/// The streams of single documents. There are as many as `rates` lets callers open.
#[derive(Clone)]
pub(crate) struct Watchers(Arc<Shared>);

struct Shared {
    followers: Mutex<Followers>,
    nodes: Nodes,
}

/// A stream that is open: its user follows the document until it is dropped.
pub(crate) struct Watch {
    watchers: Watchers,
    room: RoomId,
    user: Box<str>,
}

/// A message to the other servers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Tidings<'a> {
    /// These users follow documents on the sender.
    Following(#[serde(borrow)] Vec<Follower<'a>>),
    /// This user does not any more.
    Left { room: Cow<'a, str>, user: Cow<'a, str> },
}

#[derive(Debug, Serialize, Deserialize)]
struct Follower<'a> {
    room: Cow<'a, str>,
    user: Cow<'a, str>,
    #[serde(borrow)]
    name: &'a RawValue,
}

impl Watchers {
    pub(crate) fn new(nodes: Nodes) -> Self {
        Self(Arc::new(Shared { followers: Mutex::default(), nodes }))
    }

    /// A caller follows a document.
    pub(crate) fn follow(&self, room: &RoomId, caller: &Caller) -> Watch {
        let user: Box<str> = caller.subject.as_str().into();
        // Strings always serialize.
        let name = to_raw_value(caller.name.as_str()).unwrap_or_default();
        // Told while it is locked: the other servers must hear of changes in their order.
        let mut followers = self.lock();
        if followers.join(room, &user, &name).of_server {
            let follower = Follower { room: room.as_str().into(), user: (&*user).into(), name: &name };
            self.tell(&Tidings::Following(vec![follower]));
        }
        drop(followers);
        Watch { watchers: self.clone(), room: room.clone(), user }
    }

    /// Who follows a document, on any server: ids and names.
    pub(crate) fn of(&self, room: &RoomId) -> BTreeMap<String, String> {
        let followers = self.lock();
        let name = |user: &str, name: &RawValue| {
            serde_json::from_str(name.get()).unwrap_or_else(|_| user.to_owned())
        };
        followers.members(room).map(|(user, known)| (user.to_owned(), name(user, known))).collect()
    }

    /// Listens to the other servers until this one shuts down.
    pub(crate) async fn listen(self, stop: CancellationToken) {
        let mut events = self.0.nodes.subscribe();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                FromNode { node, what } = events.next() => match what {
                    NodeEvent::Joined => self.introduce(),
                    NodeEvent::Gone => drop(self.lock().forget_server(node)),
                    NodeEvent::Message(bytes) => self.hear(node, &bytes),
                },
            }
        }
    }

    /// Tells a new server, and with it all others, who follows what on this one.
    fn introduce(&self) {
        let followers = self.lock();
        let (mut part, mut length) = (Vec::new(), 0);
        for (room, user, name) in followers.here() {
            length += room.as_str().len() + user.len() + name.get().len();
            part.push(Follower { room: room.as_str().into(), user: user.into(), name });
            if length > PART {
                self.tell(&Tidings::Following(std::mem::take(&mut part)));
                length = 0;
            }
        }
        if !part.is_empty() {
            self.tell(&Tidings::Following(part));
        }
    }

    /// Another server says something.
    fn hear(&self, node: NodeId, message: &[u8]) {
        let Some((&MARK, json)) = message.split_first() else { return };
        match serde_json::from_slice(json) {
            Ok(Tidings::Following(them)) => {
                let mut followers = self.lock();
                for Follower { room, user, name } in them {
                    let Ok(room) = RoomId::parse(&room) else { continue };
                    followers.came_elsewhere(node, &room, &user, name);
                }
            }
            Ok(Tidings::Left { room, user }) => {
                let Ok(room) = RoomId::parse(&room) else { return };
                self.lock().left_elsewhere(node, &room, &user);
            }
            // A newer server may say more than this one knows.
            Err(error) => tracing::debug!(%error, "a message of another server was not understood"),
        }
    }

    fn tell(&self, tidings: &Tidings<'_>) {
        self.0.nodes.send(written(tidings));
    }

    fn lock(&self) -> MutexGuard<'_, Followers> {
        // No code that could panic runs while it is locked.
        self.0.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn written(tidings: &Tidings<'_>) -> Bytes {
    let mut bytes = vec![MARK];
    // Strings always serialize.
    let _ = serde_json::to_writer(&mut bytes, tidings);
    bytes.into()
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut followers = self.watchers.lock();
        if followers.leave(&self.room, &self.user).of_server {
            let (room, user) = (self.room.as_str().into(), (&*self.user).into());
            self.watchers.tell(&Tidings::Left { room, user });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId::parse(&format!("{number:016x}")).unwrap()
    }

    #[test]
    fn who_follows_a_document_on_another_server_is_shown_until_that_server_says_otherwise_or_is_gone() {
        let here = Watchers::new(Nodes::new().0);
        let room = RoomId::parse("minutes").unwrap();
        let names =
            || here.of(&room).into_iter().map(|(id, name)| format!("{id} {name}")).collect::<Vec<_>>();
        let name = to_raw_value("Be\"n").unwrap();
        let ben = || Follower { room: "minutes".into(), user: "b\"en".into(), name: &name };
        for number in [1, 2] {
            here.hear(node(number), &written(&Tidings::Following(vec![ben(), ben()])));
        }
        assert_eq!(names(), ["b\"en Be\"n"]);
        let left = || written(&Tidings::Left { room: "minutes".into(), user: "b\"en".into() });
        here.hear(node(1), &left());
        assert_eq!(names().len(), 1, "another server still has a stream of his");
        here.hear(node(2), &left());
        assert_eq!(names(), [""; 0]);
        here.hear(node(1), &written(&Tidings::Following(vec![ben()])));
        drop(here.lock().forget_server(node(1)));
        assert_eq!(names(), [""; 0]);
    }

    #[test]
    fn what_is_not_understood_changes_nothing() {
        let here = Watchers::new(Nodes::new().0);
        let no_room = written(&Tidings::Left { room: "no room".into(), user: "anna".into() });
        for message in [&b""[..], b"F", b"F{\"newer\":{}}", br#"{"here":[]}"#, &no_room] {
            here.hear(node(1), message);
        }
        assert_eq!(here.lock().channels().count(), 0);
    }
}
