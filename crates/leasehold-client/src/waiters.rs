//! What happens to a key, for those who listen: waiters hear that it freed, its holder hears that it was requested.
//!
//! On a store, one task follows the events for all listeners together, and only while there are any. It also settles
//! what is due, so that an expiry is heard of even if nothing else happens. On a server there is one event stream for
//! each document with a listener. The leases of programs on a server, and the documents of a job store, tell nothing, so
//! they are polled.
//! What is heard is a hint to look: nothing is decided by it but that a lease is over.

#[cfg(feature = "http")]
mod room;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::lease::LossReason;
use leasehold_core::{Event, EventKind, Key, Position, RetryPolicy};
#[cfg(feature = "http")]
use leasehold_core::{LeaseName, RoomId};
use leasehold_store::{Feed, MAX_EVENTS, Store};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::acquire::retries;
#[cfg(feature = "http")]
use crate::http::HttpClient;

/// How many keys are settled at a time.
const SETTLE: usize = 256;

/// The longest time between two looks at what is due.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often what tells nothing is polled.
const NEXT_LOOK: Duration = Duration::from_secs(2);

pub(crate) struct Waiters {
    source: Source,
    state: Arc<Mutex<State>>,
}

enum Source {
    Store(Arc<dyn Store>),
    /// Documents of a job store, which tell nothing.
    Polled,
    #[cfg(feature = "http")]
    Server(HttpClient),
}

#[derive(Default)]
struct State {
    /// Who listens to which key. A key is taken out when its last listener leaves.
    listening: HashMap<Key, Entry>,
    /// Whether the task that follows the store is there.
    followed: bool,
}

#[derive(Default)]
struct Entry {
    heard: watch::Sender<Heard>,
    /// The task that follows the key, where each has its own.
    follower: Option<AbortHandle>,
}

impl Entry {
    /// Has everybody who listens look again and again.
    fn poll(&mut self) {
        self.follower = Some(tokio::spawn(look_again(self.heard.clone())).abort_handle());
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(follower) = &self.follower {
            follower.abort();
        }
    }
}

/// What has been heard about a key. The numbers count; what matters is that they change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// How often it became free, or may have.
    pub(crate) ended: u64,
    /// The fence of the last lease that ended, and why it did.
    pub(crate) last_end: Option<(u64, LossReason)>,
    /// How often a request to hand over was made, withdrawn or answered, or may have been.
    pub(crate) asked: u64,
    /// The newest fence.
    pub(crate) fence: u64,
}

/// A listener to one key.
pub(crate) struct Waiter {
    key: Key,
    heard: Option<watch::Receiver<Heard>>,
    marked: Heard,
    state: Arc<Mutex<State>>,
}

impl Waiters {
    pub(crate) fn of_store(store: Arc<dyn Store>) -> Self {
        Self { source: Source::Store(store), state: Arc::default() }
    }

    pub(crate) fn of_documents() -> Self {
        Self { source: Source::Polled, state: Arc::default() }
    }

    #[cfg(feature = "http")]
    pub(crate) fn of_server(client: HttpClient) -> Self {
        Self { source: Source::Server(client), state: Arc::default() }
    }

    /// Begins to listen to `key`. `seen` is a position of the store's events that the caller has seen, if there are such.
    pub(crate) fn listen(&self, key: &Key, seen: Option<Position>) -> Waiter {
        let mut state = lock(&self.state);
        let is_new = !state.listening.contains_key(key);
        let entry = state.listening.entry(key.clone()).or_default();
        let heard = entry.heard.subscribe();
        match &self.source {
            Source::Store(store) => {
                if !std::mem::replace(&mut state.followed, true) {
                    tokio::spawn(follow(store.clone(), self.state.clone(), seen.unwrap_or_default()));
                }
            }
            Source::Polled if is_new => entry.poll(),
            Source::Polled => {}
            #[cfg(feature = "http")]
            Source::Server(_) if is_new && key.as_str().starts_with(LeaseName::DOOR) => entry.poll(),
            #[cfg(feature = "http")]
            Source::Server(client) => {
                if let Some(room) = RoomId::of(key).filter(|_| is_new) {
                    let task = tokio::spawn(room::follow(client.clone(), room, entry.heard.clone()));
                    entry.follower = Some(task.abort_handle());
                }
            }
        }
        drop(state);
        let marked = *heard.borrow();
        Waiter { key: key.clone(), heard: Some(heard), marked, state: self.state.clone() }
    }
}

/// Has everybody who listens look again, for as long as there is anybody.
async fn look_again(heard: watch::Sender<Heard>) {
    loop {
        tokio::time::sleep(NEXT_LOOK).await;
        heard.send_modify(Heard::perhaps_anything);
    }
}

impl Waiter {
    /// Forgets what was heard so far.
    pub(crate) fn mark(&mut self) {
        if let Some(heard) = &mut self.heard {
            self.marked = *heard.borrow_and_update();
        }
    }

    /// What was heard up to the mark.
    pub(crate) fn marked(&self) -> Heard {
        self.marked
    }

    /// Completes when the key has become free, or may have, since the mark.
    pub(crate) async fn ended(&mut self) {
        let before = self.marked.ended;
        while self.changed().await.ended == before {}
    }

    /// Completes when something has been heard since the mark, which it moves.
    pub(crate) async fn changed(&mut self) -> Heard {
        let Some(heard) = &mut self.heard else { return std::future::pending().await };
        // The sender stays in the map as long as there is a listener.
        let _ = heard.changed().await;
        self.marked = *heard.borrow_and_update();
        self.marked
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        self.heard = None;
        if state.listening.get(&self.key).is_some_and(|entry| entry.heard.receiver_count() == 0) {
            state.listening.remove(&self.key);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    fn freed(&mut self) {
        self.ended += 1;
    }

    fn asked(&mut self) {
        self.asked += 1;
    }

    /// Something may have been missed.
    fn perhaps_anything(&mut self) {
        self.freed();
        self.asked();
    }

    fn event(&mut self, event: &Event) {
        self.fence = self.fence.max(event.fence.get());
        match &event.kind {
            EventKind::Ended { because } => {
                self.last_end = Some((event.fence.get(), LossReason::from(because)));
                self.freed();
            }
            EventKind::HandoverRequested { .. }
            | EventKind::HandoverRefused { .. }
            | EventKind::HandoverWithdrawn { .. } => self.asked(),
            EventKind::Granted { .. }
            | EventKind::Shortened { .. }
            | EventKind::Resumed { .. }
            | EventKind::HandoverTold { .. } => {}
        }
    }
}

/// Follows the events of the store as long as there are listeners.
async fn follow(store: Arc<dyn Store>, state: Arc<Mutex<State>>, mut position: Position) {
    let (mut pause, mut retries) = (Duration::ZERO, retries(RetryPolicy::LOOP));
    loop {
        tokio::select! {
            feed = store.events(position, MAX_EVENTS) => match feed {
                Ok(feed) => {
                    retries.succeeded();
                    position = wake(&state, feed);
                }
                Err(error) => {
                    tracing::warn!(%error, "the events of the store cannot be followed; waiters poll instead");
                    tokio::time::sleep(retries.pause()).await;
                }
            },
            () = tokio::time::sleep(pause) => pause = settle(store.as_ref()).await,
        }
        let mut state = lock(&state);
        if state.listening.is_empty() {
            state.followed = false;
            return;
        }
    }
}

/// Wakes whom the events concern; answers the position to go on from.
fn wake(state: &Mutex<State>, feed: Feed) -> Position {
    let state = lock(state);
    match feed {
        Feed::Gap { resume_from } => {
            state.listening.values().for_each(|entry| entry.heard.send_modify(Heard::perhaps_anything));
            resume_from
        }
        Feed::Events(events) => {
            for published in &events {
                if let Some(entry) = state.listening.get(&published.event.key) {
                    entry.heard.send_modify(|heard| heard.event(&published.event));
                }
            }
            events.last().map_or(Position(0), |published| published.position)
        }
    }
}

/// Settles what is due; answers how long nothing will be.
async fn settle(store: &dyn Store) -> Duration {
    match store.settle_due(SETTLE).await {
        Ok(settled) if settled.keys == SETTLE => Duration::ZERO,
        Ok(settled) => {
            settled.next_due.map_or(LONGEST_PAUSE, |due| due.since(settled.now).min(LONGEST_PAUSE))
        }
        // The program ends.
        Err(leasehold_store::Error::Closed) => LONGEST_PAUSE,
        Err(error) => {
            tracing::warn!(%error, "what is due could not be settled");
            LONGEST_PAUSE
        }
    }
}
