//! The WebSocket door: the Pusher protocol, version 7, as Laravel Reverb speaks it, so that an unmodified page with Laravel
//! Echo and pusher-js hears of every lock.
//!
//! `message`, `channel`, `signature` and `conversation` are pure: what a client's message means and what follows from it.
//! `registry` knows which socket subscribes to what, `connection` does the IO of one socket, and `documents` passes the
//! events of documents on. Nothing here may wait for a client, and without a secret the door is closed.

mod between;
pub(crate) mod channel;
mod connection;
pub(crate) mod conversation;
mod documents;
#[cfg(test)]
mod fuzz;
mod left_out;
pub(crate) mod message;
mod registry;
pub(crate) mod settings;
pub(crate) mod signature;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::RoomId;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::App;
use crate::hub::{Channel as HubChannel, Hub};
use crate::nodes::Nodes;
use channel::ChannelName;
pub(crate) use connection::{refuse, serve};
use conversation::NewMember;
use left_out::LeftOut;
use message::{Frame, Refusal, UserInfo};
use registry::{Line, Registry};
use settings::PusherSettings;

/// Over how long the sockets are closed when the server shuts down. Clients come back at once: they must not all come back
/// in the same moment.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// The id of a socket: two numbers, as the protocol wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SocketId(u32, u32);

impl SocketId {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse().ok()).flatten()
        };
        let (one, other) = text.split_once('.')?;
        Some(Self(number(one)?, number(other)?))
    }

    fn random() -> Option<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).ok()?;
        let [a, b, c, d, e, f, g, h] = bytes;
        Some(Self(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
    }
}

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The WebSocket door of a server.
pub(crate) struct Pusher {
    pub(crate) settings: PusherSettings,
    state: Mutex<State>,
    /// Somebody waits for the state of a document.
    wanted: Notify,
    /// The last socket is gone.
    is_idle: Notify,
    /// Hands the hub's events to the task that passes them on, from the first socket on.
    feed: mpsc::UnboundedSender<HubChannel>,
    /// Where `feed` comes out, until the task takes it.
    fed: Mutex<Option<mpsc::UnboundedReceiver<HubChannel>>>,
    nodes: Nodes,
    tasks: TaskTracker,
}

#[derive(Default)]
struct State {
    registry: Registry,
    /// Whether the hub's events are being passed on.
    is_following: bool,
    left_out: LeftOut,
}

impl Pusher {
    pub(crate) fn new(settings: PusherSettings, nodes: Nodes, tasks: TaskTracker) -> Self {
        let (feed, fed) = mpsc::unbounded_channel();
        Self {
            settings,
            state: Mutex::default(),
            wanted: Notify::new(),
            is_idle: Notify::new(),
            feed,
            fed: Mutex::new(Some(fed)),
            nodes,
            tasks,
        }
    }

    /// Starts what passes the events of documents on, and what says goodbye in the end.
    pub(crate) fn start(self: &Arc<Self>, app: &Arc<App>, stop: &CancellationToken) {
        let fed = self.fed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(fed) = fed {
            self.tasks.spawn(documents::follow(self.clone(), app.clone(), fed));
            self.tasks.spawn(documents::read_states(self.clone(), app.clone()));
            self.tasks.spawn(between::listen(self.clone(), stop.clone()));
            self.tasks.spawn(self.clone().leave(stop.clone()));
        }
    }

    /// Closes all sockets when the server shuts down, a few at a time.
    async fn leave(self: Arc<Self>, stop: CancellationToken) {
        stop.cancelled().await;
        let lines = self.lock().registry.lines();
        let pause = LEAVE_WITHIN / u32::try_from(lines.len().max(1)).unwrap_or(u32::MAX);
        let start = tokio::time::Instant::now();
        for (line, turn) in lines.iter().zip(0..) {
            tokio::time::sleep_until(start + pause * turn).await;
            line.end(Refusal::RESTART);
        }
    }

    /// Adds a socket; `None` when there are too many.
    fn connect(&self, hub: &Hub, line: &Arc<Line>) -> Option<SocketId> {
        let mut state = self.lock();
        if state.registry.sockets() >= self.settings.sockets {
            return None;
        }
        let id = SocketId::random().filter(|id| state.registry.connect(*id, line.clone()))?;
        if !state.is_following {
            // Before the client can subscribe: no event after its subscription is missed.
            state.is_following = self.feed.send(hub.watch_all(None).0).is_ok();
        }
        Some(id)
    }

    fn disconnect(&self, id: SocketId) {
        let mut state = self.lock();
        for moved in state.registry.disconnect(id) {
            self.tell_moved(&state, &moved);
        }
        if state.registry.sockets() == 0 {
            self.is_idle.notify_one();
        }
    }

    fn join(
        &self,
        id: SocketId,
        channel: &ChannelName,
        member: Option<&NewMember>,
    ) -> Result<(), &'static str> {
        let mut state = self.lock();
        let moved = state.registry.join(id, channel, member)?;
        self.tell_moved(&state, &moved);
        drop(state);
        if channel.is_cache() {
            self.wanted.notify_one();
        }
        Ok(())
    }

    fn leave_channel(&self, id: SocketId, channel: &ChannelName) {
        let mut state = self.lock();
        let moved = state.registry.leave(id, channel);
        self.tell_moved(&state, &moved);
    }

    /// Passes a client event on.
    fn say(&self, channel: &ChannelName, frame: &Frame, from: SocketId) {
        self.lock().registry.publish(channel, frame, Some(from));
        self.tell(&between::Tidings::Said { channel: channel.as_str().into(), frame: frame.as_str().into() });
    }

    fn sign_in(&self, id: SocketId, user: String) {
        self.lock().registry.sign_in(id, user);
    }

    /// Broadcasts an event of the application.
    pub(crate) fn broadcast(&self, event: &AppEvent) {
        self.pass_app_event(event);
        self.tell(&between::Tidings::event(event));
    }

    fn pass_app_event(&self, event: &AppEvent) {
        let AppEvent { channel, name, data, except } = event;
        let frame = message::event(name, channel, data);
        let mut state = self.lock();
        state.registry.publish(channel, &frame, *except);
        state.registry.cache(channel, frame);
    }

    /// Ends the connections of a user.
    pub(crate) fn terminate(&self, user: &str) {
        self.lock().registry.terminate(user);
        self.tell(&between::Tidings::Terminate { user: user.into() });
    }

    /// The channels with this prefix that have subscribers, in the order of their names.
    pub(crate) fn occupied(&self, prefix: &str) -> Vec<ChannelName> {
        let state = self.lock();
        let occupied = state.registry.occupied().into_iter();
        let mut names: Vec<ChannelName> =
            occupied.filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn counts(&self, channel: &ChannelName) -> Counts {
        let state = self.lock();
        let users = state.registry.members(channel).count();
        Counts { subscriptions: state.registry.subscribers(channel), users }
    }

    /// The ids of the members of a channel.
    pub(crate) fn users(&self, channel: &ChannelName) -> Vec<String> {
        self.lock().registry.members(channel).map(|(id, _)| id.to_owned()).collect()
    }

    /// Who has a document open: ids and names, in the order of the ids.
    pub(crate) fn lookers(&self, room: &RoomId) -> BTreeMap<String, String> {
        let channels = ChannelName::of_lookers(room);
        let channels = channels.iter().filter_map(|name| ChannelName::parse(name).ok());
        let state = self.lock();
        let mut people = BTreeMap::new();
        for channel in channels {
            let members = state.registry.members(&channel);
            people.extend(members.map(|(id, info)| (id.to_owned(), name_of(id, info))));
        }
        people
    }

    /// The tasks of the sockets, which a shutdown waits for.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that could panic runs while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a user, if the application says one.
fn name_of(id: &str, info: &RawValue) -> String {
    serde_json::from_str::<UserInfo>(info.get()).map_or_else(|_| id.to_owned(), |info| info.name)
}

/// An event of the application.
#[derive(Clone, Debug)]
pub(crate) struct AppEvent {
    pub(crate) channel: ChannelName,
    pub(crate) name: String,
    /// JSON.
    pub(crate) data: String,
    /// The socket that does not get it.
    pub(crate) except: Option<SocketId>,
}

/// How many subscribe to a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// The sockets of this server.
    pub(crate) subscriptions: usize,
    /// The members of a presence channel.
    pub(crate) users: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_id_is_two_numbers() {
        let id = SocketId::parse("123.456").unwrap();
        assert_eq!((id, id.to_string().as_str()), (SocketId(123, 456), "123.456"));
        for bad in ["", "1", "1.", ".1", "1.2.3", "a.b", "+1.2", "1:2", "99999999999.1"] {
            assert_eq!(SocketId::parse(bad), None, "{bad}");
        }
    }
}
