//! The other servers on the same store: who they are, and messages to and from them.
//!
//! Several servers on one PostgreSQL are one service. Locks and their events are in the store, and reach every server from
//! there. What nobody keeps, such as who is looking at a document, servers tell each other here.
//!
//! **A message reaches every other server, in order, or else this server is seen to leave and to join again.** So a receiver
//! needs no acknowledgements: it sends all it has to a server that joins, and forgets all it has of one that is gone. A
//! server leaves by itself whenever a message may have been lost: a send failed, its queue was full, or the connection that
//! listens was cut.
//!
//! Being there is a lease. A killed server is gone when its lease has run out and another has looked: within 8 s.
//!
//! No lock may depend on a message, and nobody waits for one to be sent.

mod frame;
mod members;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use leasehold_core::{Key, Owner, Retries, RetryPolicy, Ttl};
use leasehold_store::bus::{Heard, Listening};
use leasehold_store::clock::Clock;
use leasehold_store::{Bus, Error, Range, Store, jitter};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::server_lease::{Acquired, DOOR, GOODBYE, ServerLease, Wanted};
use frame::{Frame, Split};
use members::Members;

/// The longest message.
pub(crate) const LONGEST_MESSAGE: usize = 256 * 1024;

/// How many messages, and how many bytes of them, wait to be sent at most.
const QUEUED: usize = 4_096;
const QUEUED_BYTES: usize = 8 * 1024 * 1024;

/// How many texts go to the store at a time.
const TEXTS_AT_A_TIME: usize = 256;

/// How many events a receiver may be behind.
const BACKLOG: usize = 4_096;

/// How long a server that was killed is still counted, and how often the others look.
const PRESENT: Duration = Duration::from_secs(6);
const LOOK_AROUND: Duration = Duration::from_secs(2);

/// One run of one server. A server that joins again has a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u64);

impl NodeId {
    fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        Ok(Self(u64::from_be_bytes(bytes)))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten()
    }

    /// The key of the lease that says that this server is there.
    fn key(self) -> Result<Key, Error> {
        Ok(Key::parse(&format!("{}{self}", nodes_prefix()))?)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

fn nodes_prefix() -> String {
    format!("{DOOR}node/")
}

/// What comes from another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FromNode {
    /// Which server.
    pub(crate) node: NodeId,
    /// What happened.
    pub(crate) what: NodeEvent,
}

/// What happened to another server, or what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeEvent {
    /// It is there. Send what it has to know: it knows nothing of this server.
    Joined,
    /// It sent this. Comes only between its `Joined` and its `Gone`.
    Message(Bytes),
    /// It is not there any more, or messages of it were missed. Forget what came from it.
    Gone,
}

/// The other servers on the same store.
#[derive(Clone)]
pub(crate) struct Nodes(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    events: broadcast::Sender<FromNode>,
    queue: mpsc::Sender<Bytes>,
    queued_bytes: AtomicUsize,
    /// A message was lost: this server has to leave and join again.
    start_over: Notify,
    /// Changes whenever another server leaves.
    left: watch::Sender<()>,
}

struct State {
    /// Who this server is to the others; nobody until it has joined.
    own: Option<NodeId>,
    members: Members,
}

/// The task that takes part for a server; see [`Nodes::new`].
pub(crate) struct TakePart {
    nodes: Nodes,
    queue: mpsc::Receiver<Bytes>,
}

impl Nodes {
    /// Knows nobody until the task is [run](TakePart::run).
    pub(crate) fn new() -> (Self, TakePart) {
        let (sender, queue) = mpsc::channel(QUEUED);
        let shared = Shared {
            state: Mutex::new(State { own: None, members: Members::default() }),
            events: broadcast::Sender::new(BACKLOG),
            queue: sender,
            queued_bytes: AtomicUsize::new(0),
            start_over: Notify::new(),
            left: watch::Sender::new(()),
        };
        let nodes = Self(Arc::new(shared));
        (nodes.clone(), TakePart { nodes, queue })
    }

    /// Sends a message to all other servers. It never waits, and does nothing where there are no others. A message longer
    /// than [`LONGEST_MESSAGE`] is dropped.
    pub(crate) fn send(&self, message: Bytes) {
        if self.0.lock().members.is_empty() {
            return;
        }
        let length = message.len();
        if length > LONGEST_MESSAGE {
            tracing::error!(length, "a message to the other servers is too long and was dropped");
            return;
        }
        let queued = self.0.queued_bytes.fetch_add(length, Ordering::Relaxed) + length;
        if queued > QUEUED_BYTES || self.0.queue.try_send(message).is_err() {
            self.0.queued_bytes.fetch_sub(length, Ordering::Relaxed);
            self.0.start_over.notify_one();
        }
    }

    /// What comes from the other servers from now on, beginning with a [`NodeEvent::Joined`] for each that is there.
    pub(crate) fn subscribe(&self) -> NodeEvents {
        let mut events = NodeEvents {
            nodes: self.clone(),
            receiver: self.0.events.subscribe(),
            told: BTreeSet::new(),
            pending: VecDeque::new(),
        };
        events.begin();
        events
    }

    /// Changes whenever another server has left.
    pub(crate) fn departures(&self) -> watch::Receiver<()> {
        self.0.left.subscribe()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that could panic runs while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and publishes its events under one lock, so that a new receiver gets each change exactly once.
    fn change(&self, change: impl FnOnce(&mut State) -> Vec<FromNode>) {
        let mut state = self.lock();
        let events = change(&mut state);
        let has_left = events.iter().any(|event| event.what == NodeEvent::Gone);
        for event in events {
            // Sending fails only when there is no receiver.
            let _ = self.events.send(event);
        }
        drop(state);
        if has_left {
            self.left.send_replace(());
        }
    }
}

/// What comes from the other servers, for one receiver.
pub(crate) struct NodeEvents {
    nodes: Nodes,
    receiver: broadcast::Receiver<FromNode>,
    /// The servers of which this receiver knows.
    told: BTreeSet<NodeId>,
    pending: VecDeque<FromNode>,
}

impl NodeEvents {
    /// The next event; never, where there are no other servers. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> FromNode {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            match self.receiver.recv().await {
                Ok(event) => {
                    match event.what {
                        NodeEvent::Joined => self.told.insert(event.node),
                        NodeEvent::Gone => self.told.remove(&event.node),
                        NodeEvent::Message(_) => true,
                    };
                    return event;
                }
                Err(RecvError::Lagged(_)) => {
                    self.begin();
                    // What was missed was not only about who is there.
                    self.nodes.0.start_over.notify_one();
                }
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Begins anew with who is there now.
    fn begin(&mut self) {
        let state = self.nodes.0.lock();
        self.receiver = self.nodes.0.events.subscribe();
        let event = |node, what| FromNode { node, what };
        self.pending =
            std::mem::take(&mut self.told).into_iter().map(|node| event(node, NodeEvent::Gone)).collect();
        self.told = state.members.all().collect();
        self.pending.extend(self.told.iter().map(|node| event(*node, NodeEvent::Joined)));
    }
}

/// Why a server is not among the others any more.
#[derive(Debug)]
enum Ended {
    /// It shuts down.
    Stopped,
    /// It has to join again.
    Again(&'static str),
}

impl TakePart {
    /// Takes part until the server shuts down. On a store that one server has to itself there is nothing to do.
    pub(crate) async fn run(
        mut self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        stop: CancellationToken,
    ) {
        let Some(bus) = store.bus() else { return };
        let mut listening = bus.listen();
        let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
        loop {
            let joined = tokio::select! {
                () = stop.cancelled() => return,
                () = until_hearing(&mut listening) => self.join(&store, &clock, bus.as_ref()).await,
            };
            match joined {
                Ok((own, mut lease)) => {
                    let there = There {
                        nodes: &self.nodes,
                        own,
                        store: &store,
                        bus: bus.as_ref(),
                        metrics: &metrics,
                    };
                    let ended = there.take_part(&mut lease, &mut listening, &mut self.queue, &stop).await;
                    self.leave(&metrics);
                    lease.release().await;
                    // The others would notice by themselves, a little later.
                    let bye = [Frame::Bye { node: own }.to_text()];
                    let _ = tokio::time::timeout(GOODBYE, bus.send(&bye)).await;
                    match ended {
                        Ended::Stopped => return,
                        Ended::Again(why) => tracing::warn!(why, "joins the other servers again"),
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot join the other servers; trying again"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(retries.pause()) => {}
            }
        }
    }

    /// Takes the lease that says that this server is there. It hears already, so that no answer to it is missed.
    async fn join(
        &mut self,
        store: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
        bus: &dyn Bus,
    ) -> Result<(NodeId, Box<ServerLease>), Error> {
        let random =
            |error| Error::Unavailable { what: format!("{error}"), retry: leasehold_store::Retry::No };
        let own = NodeId::random().map_err(random)?;
        let wanted = Wanted {
            store: store.clone(),
            clock: clock.clone(),
            key: own.key()?,
            owner: Owner::parse(&own.to_string())?,
            ttl: Ttl::new(PRESENT)?,
        };
        let Acquired::Ours(lease) = wanted.acquire().await? else {
            let what = "another server has the same random name".to_owned();
            return Err(Error::Unavailable { what, retry: leasehold_store::Retry::Safe });
        };
        // What was queued before is for those that knew this server under another name.
        while let Ok(message) = self.queue.try_recv() {
            self.nodes.0.queued_bytes.fetch_sub(message.len(), Ordering::Relaxed);
        }
        self.nodes.0.lock().own = Some(own);
        bus.send(&[Frame::Hello { node: own }.to_text()]).await?;
        Ok((own, lease))
    }

    /// Nobody is known any more.
    fn leave(&self, metrics: &Metrics) {
        self.nodes.0.change(|state| {
            state.members.never_again(state.own.take());
            state.members.forget_all()
        });
        metrics.other_servers(0);
    }
}

/// Waits until texts arrive.
async fn until_hearing(listening: &mut Listening) {
    while !listening.is_hearing {
        match listening.heard.recv().await {
            Ok(Heard::Hearing) => listening.is_hearing = true,
            Ok(Heard::Text(_) | Heard::Deaf) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// A server while it is among the others.
struct There<'a> {
    nodes: &'a Nodes,
    own: NodeId,
    store: &'a Arc<dyn Store>,
    bus: &'a dyn Bus,
    metrics: &'a Metrics,
}

impl There<'_> {
    async fn take_part(
        &self,
        lease: &mut ServerLease,
        listening: &mut Listening,
        queue: &mut mpsc::Receiver<Bytes>,
        stop: &CancellationToken,
    ) -> Ended {
        tokio::select! {
            () = stop.cancelled() => Ended::Stopped,
            () = lease.keep() => Ended::Again("its lease was not renewed in time"),
            () = self.hear(listening) => Ended::Again("messages of the others may have been missed"),
            () = self.look_around() => Ended::Stopped,
            error = self.carry(queue) => {
                tracing::debug!(%error, "a message was not sent");
                Ended::Again("a message to the others was not sent")
            }
            () = self.nodes.0.start_over.notified() => Ended::Again("a queue of messages was full"),
        }
    }

    /// Takes in texts until some were missed.
    async fn hear(&self, listening: &mut Listening) {
        loop {
            match listening.heard.recv().await {
                Ok(Heard::Text(text)) => {
                    let mut whole = true;
                    if let Some(frame) = Frame::parse(&text).filter(|frame| frame.node() != self.own) {
                        self.nodes.0.change(|state| {
                            let heard = state.members.heard(frame);
                            whole = heard.is_some();
                            heard.unwrap_or_default()
                        });
                    }
                    if !whole {
                        return;
                    }
                }
                Ok(Heard::Hearing) => {}
                Ok(Heard::Deaf) => {
                    listening.is_hearing = false;
                    return;
                }
                Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Compares those that are known with the leases in the store, for ever.
    async fn look_around(&self) {
        let range = Range::prefix(&nodes_prefix());
        loop {
            let look = self.nodes.0.lock().members.begin_look();
            match self.store.list(&range).await {
                Ok(page) => {
                    let found = page.slots.iter().filter_map(|(key, _)| {
                        key.as_str().strip_prefix(&nodes_prefix()).and_then(NodeId::parse)
                    });
                    let found: BTreeSet<NodeId> = found.filter(|node| *node != self.own).collect();
                    self.nodes.0.change(|state| state.members.found(look, &found));
                    self.metrics.other_servers(found.len());
                }
                Err(error) => tracing::debug!(%error, "cannot look for other servers; trying again"),
            }
            tokio::time::sleep(LOOK_AROUND).await;
        }
    }

    /// Sends what is queued, until that fails.
    async fn carry(&self, queue: &mut mpsc::Receiver<Bytes>) -> Error {
        let mut split = Split::new(self.own, self.bus.longest());
        loop {
            let Some(message) = queue.recv().await else { return std::future::pending().await };
            let mut texts = Vec::new();
            let mut next = Some(message);
            while let Some(message) = next {
                self.nodes.0.queued_bytes.fetch_sub(message.len(), Ordering::Relaxed);
                texts.extend(split.texts(&message));
                next = if texts.len() < TEXTS_AT_A_TIME { queue.try_recv().ok() } else { None };
            }
            if let Err(error) = self.bus.send(&texts).await {
                return error;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
