//! Wakes those who wait for a key when its lease ends.
//!
//! One task follows the store's events for all waiters together, and only while there are any. It also settles what is
//! due, so that an expiry is heard of even if nobody else looks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{EventKind, Key, Position};
use leasehold_store::{Feed, MAX_EVENTS, Store};
use tokio::sync::watch;

/// How many keys are settled at a time.
const SETTLE: usize = 256;

/// The longest time between two looks at what is due, and the wait after the store had trouble.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Waiters {
    store: Arc<dyn Store>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Who waits for which key, told by a change of the channel. A key is taken out when its last waiter leaves.
    waiting: HashMap<Key, watch::Sender<()>>,
    /// Whether the task is there.
    followed: bool,
}

/// Somebody who waits for a key.
pub(crate) struct Waiter {
    key: Key,
    ended: Option<watch::Receiver<()>>,
    state: Arc<Mutex<State>>,
}

impl Waiters {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, state: Arc::default() }
    }

    /// Begins to listen for the end of a lease on `key`. `seen` is a position that the caller has seen.
    pub(crate) fn listen(&self, key: &Key, seen: Position) -> Waiter {
        let mut state = lock(&self.state);
        let ended = state.waiting.entry(key.clone()).or_default().subscribe();
        if !std::mem::replace(&mut state.followed, true) {
            tokio::spawn(follow(self.store.clone(), self.state.clone(), seen));
        }
        drop(state);
        Waiter { key: key.clone(), ended: Some(ended), state: self.state.clone() }
    }
}

impl Waiter {
    /// Completes when a lease on the key has ended since this waiter began to listen.
    pub(crate) async fn heard(mut self) {
        if let Some(ended) = &mut self.ended {
            // The sender stays in the map as long as there is a waiter.
            let _ = ended.changed().await;
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        self.ended = None;
        if state.waiting.get(&self.key).is_some_and(|ended| ended.receiver_count() == 0) {
            state.waiting.remove(&self.key);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Follows the events of the store as long as somebody waits.
async fn follow(store: Arc<dyn Store>, state: Arc<Mutex<State>>, mut position: Position) {
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            feed = store.events(position, MAX_EVENTS) => match feed {
                Ok(feed) => position = wake(&state, feed),
                Err(error) => {
                    tracing::warn!(%error, "the events of the store cannot be followed, waiters look by themselves");
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
            },
            () = tokio::time::sleep(pause) => pause = settle(store.as_ref()).await,
        }
        let mut state = lock(&state);
        if state.waiting.is_empty() {
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
            state.waiting.values().for_each(|ended| ended.send_replace(()));
            resume_from
        }
        Feed::Events(events) => {
            let ended =
                events.iter().filter(|published| matches!(published.event.kind, EventKind::Ended { .. }));
            ended
                .filter_map(|published| state.waiting.get(&published.event.key))
                .for_each(|ended| ended.send_replace(()));
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
        Err(error) => {
            tracing::warn!(%error, "what is due could not be settled");
            LONGEST_PAUSE
        }
    }
}
