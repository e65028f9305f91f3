//! Which sockets of this server subscribe to what: passes events to them, and keeps who is present.
//!
//! It never waits. A socket has a bounded queue; one whose queue is full is ended, and gets nothing more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, OnceLock};

use leasehold_core::RoomId;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};

use super::SocketId;
use super::channel::{ChannelName, Kind};
use super::conversation::NewMember;
use super::message::{self, Frame, Refusal};
use crate::nodes::NodeId;
use crate::presence::{Presence, UserId};

/// How many frames a socket may be behind.
pub(crate) const QUEUE: usize = 256;

/// How many events of a document are kept back for a subscriber while its current state is read.
const KEPT_BACK: usize = 64;

/// How many members a presence channel may have, and for how many channels the last event is kept. The numbers are
/// Pusher's own for the first, and bound the memory for the second.
const MEMBERS: usize = 100;
const CACHED: usize = 1_024;

/// The sending end of a socket.
pub(crate) struct Line {
    queue: mpsc::Sender<Frame>,
    end: OnceLock<Refusal>,
    is_ended: Notify,
}

impl Line {
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<Frame>) {
        let (queue, frames) = mpsc::channel(QUEUE);
        (Arc::new(Self { queue, end: OnceLock::new(), is_ended: Notify::new() }), frames)
    }

    /// Queues a frame; a socket that is too slow is ended instead.
    fn send(&self, frame: Frame) {
        if self.queue.try_send(frame).is_err() {
            self.end(Refusal::TOO_SLOW);
        }
    }

    /// Ends the socket. The first reason counts.
    pub(crate) fn end(&self, why: Refusal) {
        if self.end.set(why).is_ok() {
            self.is_ended.notify_one();
        }
    }

    /// Waits until the socket is to be closed.
    pub(crate) async fn ended(&self) -> Refusal {
        loop {
            if let Some(why) = self.end.get() {
                return why.clone();
            }
            self.is_ended.notified().await;
        }
    }
}

/// The sockets and channels of this server.
#[derive(Default)]
pub(crate) struct Registry {
    sockets: HashMap<SocketId, Socket>,
    channels: HashMap<ChannelName, HashMap<SocketId, Subscriber>>,
    /// The channels of each document that has subscribers.
    documents: HashMap<RoomId, Vec<ChannelName>>,
    presence: Presence<ChannelName, NodeId>,
    /// The last event of cache channels that are about no document, oldest first.
    cached: VecDeque<(ChannelName, Frame)>,
    /// The documents whose state somebody waits for.
    wanted: HashSet<RoomId>,
}

struct Socket {
    line: Arc<Line>,
    /// The channels, and the user on presence channels.
    channels: HashMap<ChannelName, Option<UserId>>,
    /// The user who signed in.
    user: Option<String>,
}

/// A socket on a channel.
struct Subscriber {
    line: Arc<Line>,
    /// The number of the document's last event that the subscriber has, if it was given a state.
    known: u64,
    /// While the subscriber waits for the document's state.
    waiting: Option<Box<Waiting>>,
}

/// A subscriber that waits for the state of a document.
#[derive(Default)]
struct Waiting {
    /// Whether the state that is being read will be new enough: its reading began after the subscription.
    is_asked: bool,
    /// The events that came meanwhile, with their numbers.
    kept_back: Vec<(u64, Frame)>,
}

impl Subscriber {
    /// An event of a document.
    fn give(&mut self, seq: u64, frame: &Frame) {
        match &mut self.waiting {
            None if seq > self.known => self.line.send(frame.clone()),
            None => {}
            Some(waiting) if waiting.kept_back.len() < KEPT_BACK => {
                waiting.kept_back.push((seq, frame.clone()));
            }
            Some(_) => self.line.end(Refusal::TOO_SLOW),
        }
    }

    /// The document's state, which contains all events up to `seq`.
    fn give_state(&mut self, seq: u64, frame: &Frame) {
        let Some(waiting) = self.waiting.take_if(|waiting| waiting.is_asked) else { return };
        self.known = seq;
        self.line.send(frame.clone());
        for (seq, frame) in &waiting.kept_back {
            self.give(*seq, frame);
        }
    }
}

/// A change of who is present, for the other servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    Nobody,
    Came(ChannelName, UserId),
    Left(ChannelName, UserId),
}

impl Registry {
    /// Adds a socket; `false` if its id is taken.
    pub(crate) fn connect(&mut self, id: SocketId, line: Arc<Line>) -> bool {
        if self.sockets.contains_key(&id) {
            return false;
        }
        self.sockets.insert(id, Socket { line, channels: HashMap::new(), user: None });
        true
    }

    /// Removes a socket and its subscriptions.
    pub(crate) fn disconnect(&mut self, id: SocketId) -> Vec<Moved> {
        let Some(socket) = self.sockets.remove(&id) else { return Vec::new() };
        socket.channels.iter().map(|(channel, user)| self.remove(id, channel, user.as_deref())).collect()
    }

    /// How many sockets there are.
    pub(crate) fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// The lines of all sockets.
    pub(crate) fn lines(&self) -> Vec<Arc<Line>> {
        self.sockets.values().map(|socket| socket.line.clone()).collect()
    }

    /// Subscribes a socket, which gets the answer; or says why not.
    pub(crate) fn join(
        &mut self,
        id: SocketId,
        channel: &ChannelName,
        member: Option<&NewMember>,
    ) -> Result<Moved, &'static str> {
        let Some(line) = self.sockets.get(&id).map(|socket| socket.line.clone()) else {
            return Ok(Moved::Nobody);
        };
        if let Some(member) = member
            && !self.presence.is_member(channel, &member.user)
            && self.presence.count(channel) >= MEMBERS
        {
            return Err("the channel has as many members as it may: 100");
        }
        let is_new = !self.channels.get(channel).is_some_and(|sockets| sockets.contains_key(&id));
        let moved = if is_new { self.add(id, channel, member, &line) } else { Moved::Nobody };
        line.send(self.succeeded(channel));
        if is_new && channel.is_cache() {
            self.replay(id, channel, &line);
        }
        Ok(moved)
    }

    /// Unsubscribes a socket.
    pub(crate) fn leave(&mut self, id: SocketId, channel: &ChannelName) -> Moved {
        let user = self.sockets.get_mut(&id).and_then(|socket| socket.channels.remove(channel));
        user.map_or(Moved::Nobody, |user| self.remove(id, channel, user.as_deref()))
    }

    /// The user of a socket is known.
    pub(crate) fn sign_in(&mut self, id: SocketId, user: String) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.user = Some(user);
        }
    }

    /// Ends the sockets of a user.
    pub(crate) fn terminate(&self, user: &str) {
        let is_user = |socket: &&Socket| {
            socket.user.as_deref() == Some(user)
                || socket.channels.values().any(|known| known.as_deref() == Some(user))
        };
        self.sockets.values().filter(is_user).for_each(|socket| socket.line.end(Refusal::TERMINATED));
    }

    /// Passes an event of the application or of a client to the subscribers of a channel, but for one socket.
    pub(crate) fn publish(&mut self, channel: &ChannelName, frame: &Frame, except: Option<SocketId>) {
        for (_, subscriber) in
            self.channels.get(channel).into_iter().flatten().filter(|(id, _)| Some(**id) != except)
        {
            subscriber.line.send(frame.clone());
        }
    }

    /// Keeps an event of the application for later subscribers of a cache channel.
    pub(crate) fn cache(&mut self, channel: &ChannelName, frame: Frame) {
        if !channel.is_cache() || channel.document().is_some() {
            return;
        }
        self.cached.retain(|(known, _)| known != channel);
        self.cached.push_back((channel.clone(), frame));
        if self.cached.len() > CACHED {
            self.cached.pop_front();
        }
    }

    /// Whether a document has subscribers.
    pub(crate) fn is_watched(&self, room: &RoomId) -> bool {
        self.documents.contains_key(room)
    }

    /// Passes an event of a document to its subscribers. `encode` writes it for a channel, once for each.
    pub(crate) fn document_event(
        &mut self,
        room: &RoomId,
        seq: u64,
        except: Option<SocketId>,
        encode: impl Fn(&ChannelName) -> Frame,
    ) {
        for channel in self.documents.get(room).into_iter().flatten() {
            let Some(sockets) = self.channels.get_mut(channel) else { continue };
            let frame = encode(channel);
            for (_, subscriber) in sockets.iter_mut().filter(|(id, _)| Some(**id) != except) {
                subscriber.give(seq, &frame);
            }
        }
    }

    /// Passes the state of a document to those who wait for it.
    pub(crate) fn document_state(&mut self, room: &RoomId, seq: u64, encode: impl Fn(&ChannelName) -> Frame) {
        for channel in self.documents.get(room).into_iter().flatten() {
            let Some(sockets) = self.channels.get_mut(channel) else { continue };
            let frame = encode(channel);
            sockets.values_mut().for_each(|subscriber| subscriber.give_state(seq, &frame));
        }
    }

    /// Events of documents were missed: all subscribers get the current state.
    pub(crate) fn missed_events(&mut self) {
        for channel in self.documents.values().flatten() {
            let sockets = self.channels.get_mut(channel).into_iter().flat_map(HashMap::values_mut);
            sockets.for_each(|subscriber| subscriber.waiting = Some(Box::default()));
        }
        self.wanted.extend(self.documents.keys().cloned());
    }

    /// The documents whose state is waited for. They are taken: if one cannot be read, it has to be wanted again.
    pub(crate) fn take_wanted(&mut self) -> Vec<RoomId> {
        let wanted: Vec<RoomId> = self.wanted.drain().collect();
        for channel in wanted.iter().filter_map(|room| self.documents.get(room)).flatten() {
            let sockets = self.channels.get_mut(channel).into_iter().flat_map(HashMap::values_mut);
            sockets
                .filter_map(|subscriber| subscriber.waiting.as_mut())
                .for_each(|waiting| waiting.is_asked = true);
        }
        wanted
    }

    /// The state of a document is still waited for.
    pub(crate) fn want(&mut self, room: RoomId) {
        if self.documents.contains_key(&room) {
            self.wanted.insert(room);
        }
    }

    /// The members of a channel, here and elsewhere.
    pub(crate) fn members(&self, channel: &ChannelName) -> impl Iterator<Item = (&str, &RawValue)> {
        self.presence.members(channel)
    }

    /// How many sockets of this server subscribe to a channel.
    pub(crate) fn subscribers(&self, channel: &ChannelName) -> usize {
        self.channels.get(channel).map_or(0, HashMap::len)
    }

    /// The channels that have subscribers here, or members elsewhere.
    pub(crate) fn occupied(&self) -> HashSet<&ChannelName> {
        self.channels.keys().chain(self.presence.channels()).collect()
    }

    /// What is known of a member.
    pub(crate) fn info(&self, channel: &ChannelName, user: &str) -> Option<&RawValue> {
        self.presence.members(channel).find(|(known, _)| *known == user).map(|(_, info)| info)
    }

    /// All members with a connection of this server.
    pub(crate) fn members_here(&self) -> impl Iterator<Item = (&ChannelName, &str, &RawValue)> {
        self.presence.here()
    }

    /// Another server has a user on a channel.
    pub(crate) fn came_elsewhere(
        &mut self,
        node: NodeId,
        channel: &ChannelName,
        user: &str,
        info: &RawValue,
    ) {
        if self.presence.came_elsewhere(node, channel, user, info) {
            self.publish(channel, &message::member_added(channel, user, info), None);
        }
    }

    /// Another server has a user on a channel no longer.
    pub(crate) fn left_elsewhere(&mut self, node: NodeId, channel: &ChannelName, user: &str) {
        if self.presence.left_elsewhere(node, channel, user) {
            self.publish(channel, &message::member_removed(channel, user), None);
        }
    }

    /// Another server is gone.
    pub(crate) fn forget_server(&mut self, node: NodeId) {
        for (channel, user) in self.presence.forget_server(node) {
            self.publish(&channel, &message::member_removed(&channel, &user), None);
        }
    }

    fn add(
        &mut self,
        id: SocketId,
        channel: &ChannelName,
        member: Option<&NewMember>,
        line: &Arc<Line>,
    ) -> Moved {
        let mut moved = Moved::Nobody;
        if let Some(NewMember { user, info }) = member {
            let change = self.presence.join(channel, user, info);
            if change.of_channel {
                // The others are told; the new one gets the whole list.
                self.publish(channel, &message::member_added(channel, user, info), None);
            }
            if change.of_server {
                moved = Moved::Came(channel.clone(), user.clone());
            }
        }
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.channels.insert(channel.clone(), member.map(|member| member.user.clone()));
        }
        let sockets = self.channels.entry(channel.clone()).or_default();
        if let (true, Some(room)) = (sockets.is_empty(), channel.document()) {
            self.documents.entry(room).or_default().push(channel.clone());
        }
        sockets.insert(id, Subscriber { line: line.clone(), known: 0, waiting: None });
        moved
    }

    fn remove(&mut self, id: SocketId, channel: &ChannelName, user: Option<&str>) -> Moved {
        if let Some(sockets) = self.channels.get_mut(channel) {
            sockets.remove(&id);
            if sockets.is_empty() {
                self.channels.remove(channel);
                self.forget_document(channel);
            }
        }
        let Some(user) = user else { return Moved::Nobody };
        let change = self.presence.leave(channel, user);
        if change.of_channel {
            self.publish(channel, &message::member_removed(channel, user), None);
        }
        if change.of_server { Moved::Left(channel.clone(), user.into()) } else { Moved::Nobody }
    }

    fn forget_document(&mut self, channel: &ChannelName) {
        let Some(room) = channel.document() else { return };
        if let Some(channels) = self.documents.get_mut(&room) {
            channels.retain(|known| known != channel);
            if channels.is_empty() {
                self.documents.remove(&room);
            }
        }
    }

    /// The answer to a subscription.
    fn succeeded(&self, channel: &ChannelName) -> Frame {
        match channel.kind() {
            Kind::Presence => message::presence_succeeded(channel, self.presence.members(channel)),
            Kind::Public | Kind::Private => message::succeeded(channel),
        }
    }

    /// A new subscriber of a cache channel gets the state of the document, or the last event.
    fn replay(&mut self, id: SocketId, channel: &ChannelName, line: &Line) {
        if let Some(room) = channel.document() {
            let subscriber = self.channels.get_mut(channel).and_then(|sockets| sockets.get_mut(&id));
            if let Some(subscriber) = subscriber {
                subscriber.waiting = Some(Box::default());
            }
            self.wanted.insert(room);
            return;
        }
        let cached = self.cached.iter().find(|(known, _)| known == channel).map(|(_, frame)| frame.clone());
        line.send(cached.unwrap_or_else(|| message::cache_miss(channel)));
    }
}

#[cfg(test)]
mod tests;
