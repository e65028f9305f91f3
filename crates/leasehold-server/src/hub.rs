//! Passes on what happens: follows the store's feed once, and gives every listener the events of its documents.
//!
//! Nothing here waits for a listener. Each has a bounded channel that overwrites what it did not take in time; it is
//! told that it missed something, and is let go. The newest events are kept, so that who was gone for a moment can go on
//! where it was.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::wire::documents::DocumentEvent;
use leasehold_core::{EventKind, Owner, Position, Published, Retries, RetryPolicy, RoomId};
use leasehold_store::random::jitter;
use leasehold_store::{Feed, MAX_EVENTS, Range, Store};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::caller::shown_name;
use crate::metrics::Metrics;
use crate::views;

/// How many events are kept for those who come back.
const KEPT: usize = 10_000;

/// How many events a listener to one document may be behind, at most: every document that is listened to has room for so
/// many.
const ROOM_BACKLOG: usize = 256;

/// How many holders' names are remembered, for events that do not carry them.
const NAMES: usize = 50_000;

/// How long to wait for the feed, which is a moment behind the store.
const CATCH_UP: Duration = Duration::from_secs(1);

/// An event on its way to those who listen.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) position: Position,
    pub(crate) room: RoomId,
    pub(crate) seq: u64,
    pub(crate) event: DocumentEvent,
}

pub(crate) type Notes = broadcast::Receiver<Arc<Note>>;

/// Listens to one document, for which the hub keeps a channel as long as anybody does.
pub(crate) struct RoomNotes {
    pub(crate) notes: Notes,
    /// Dropped after the receiver, which must not count any more.
    _leaves: Leaves,
}

/// Tells the hub when a listener to a document is gone, however that came: also if it never took anything.
struct Leaves {
    hub: Arc<Hub>,
    room: RoomId,
}

impl Drop for Leaves {
    fn drop(&mut self) {
        self.hub.left(&self.room);
    }
}

pub(crate) struct Hub {
    state: Mutex<State>,
    /// The position up to which the store's events have been passed on.
    reached: watch::Sender<Position>,
    /// Where the store was when this server began.
    began: OnceLock<Position>,
    backlog: usize,
}

struct State {
    /// The newest events, without gaps.
    kept: VecDeque<Arc<Note>>,
    /// Every document's event up to here is in `kept`, or was there before the oldest of it.
    position: Position,
    /// Everything after this position is in `kept`.
    complete_after: Position,
    all: broadcast::Sender<Arc<Note>>,
    rooms: HashMap<RoomId, broadcast::Sender<Arc<Note>>>,
    names: HashMap<Owner, Arc<str>>,
}

/// What a listener that comes back missed.
pub(crate) enum Missed {
    /// These, and nothing else.
    Events(Vec<Arc<Note>>),
    /// Not known any more: it needs a snapshot.
    Unknown,
}

impl Hub {
    pub(crate) fn new(backlog: usize) -> Self {
        let state = State {
            kept: VecDeque::new(),
            position: Position(0),
            // Nothing is known yet.
            complete_after: Position(u64::MAX),
            all: broadcast::Sender::new(backlog),
            rooms: HashMap::new(),
            names: HashMap::new(),
        };
        Self {
            state: Mutex::new(state),
            reached: watch::Sender::new(Position(0)),
            began: OnceLock::new(),
            backlog,
        }
    }

    /// Begins to listen to a document; `after` is the number of the last event that the listener knows.
    pub(crate) fn listen_to_room(self: &Arc<Self>, room: &RoomId, after: Option<u64>) -> (RoomNotes, Missed) {
        let mut state = self.lock();
        let backlog = self.backlog.min(ROOM_BACKLOG);
        let notes =
            state.rooms.entry(room.clone()).or_insert_with(|| broadcast::Sender::new(backlog)).subscribe();
        let notes = RoomNotes { notes, _leaves: Leaves { hub: self.clone(), room: room.clone() } };
        let Some(after) = after else { return (notes, Missed::Unknown) };
        let later: Vec<_> =
            state.kept.iter().filter(|note| note.room == *room && note.seq > after).cloned().collect();
        let mut numbers = later.iter().zip(after.saturating_add(1)..);
        let follows = !later.is_empty() && numbers.all(|(note, number)| note.seq == number);
        (notes, if follows { Missed::Events(later) } else { Missed::Unknown })
    }

    /// Begins to listen to all documents; `after` is the position of the last event that the listener knows.
    pub(crate) fn listen_to_all(&self, after: Option<Position>) -> (Notes, Missed) {
        let state = self.lock();
        let notes = state.all.subscribe();
        let known = after.filter(|after| (state.complete_after..=state.position).contains(after));
        let Some(after) = known else { return (notes, Missed::Unknown) };
        let later = state.kept.iter().filter(|note| note.position > after).cloned().collect();
        (notes, Missed::Events(later))
    }

    /// Waits until everything up to `position` has been passed on, but not for long.
    pub(crate) async fn catch_up(&self, position: Position) {
        let mut reached = self.reached.subscribe();
        let caught_up = reached.wait_for(|reached| *reached >= position);
        // If it takes longer, whoever waits gets a snapshot instead.
        let _ = tokio::time::timeout(CATCH_UP, caught_up).await;
    }

    /// A listener has left: a document that nobody listens to is forgotten.
    fn left(&self, room: &RoomId) {
        let mut state = self.lock();
        if state.rooms.get(room).is_some_and(|notes| notes.receiver_count() == 0) {
            state.rooms.remove(room);
        }
    }

    /// Follows the store until the server shuts down. The newest events from before are taken along.
    pub(crate) async fn follow(
        self: Arc<Self>,
        store: Arc<dyn Store>,
        metrics: Metrics,
        stop: CancellationToken,
    ) {
        let mut position = None;
        let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
        loop {
            let turn = async {
                // It begins once: whoever has been told that it missed nothing counts on all that follows.
                let Some(from) = position else { return self.begin(store.as_ref()).await };
                let feed = store.events(from, MAX_EVENTS).await?;
                Ok::<_, leasehold_store::Error>(self.take_in(feed, from, &metrics))
            };
            let turned = tokio::select! {
                () = stop.cancelled() => return,
                turned = turn => turned,
            };
            match turned {
                Ok(reached) => {
                    retries.succeeded();
                    position = Some(reached);
                }
                Err(error) => {
                    tracing::warn!(%error, "the events of the store cannot be followed, trying again");
                    tokio::time::sleep(retries.pause()).await;
                }
            }
        }
    }

    /// Where to begin: as far back as the store still knows, within what is kept here.
    async fn begin(&self, store: &dyn Store) -> leasehold_store::Result<Position> {
        let range = Range { prefix: RoomId::DOOR.to_owned(), after: None, limit: Range::MAX_LIMIT };
        let page = store.list(&range).await?;
        self.began.get_or_init(|| page.position);
        {
            let mut state = self.lock();
            for (_, slot) in &page.slots {
                if let Some(lease) = &slot.lease {
                    state.remember(&lease.owner, shown_name(&lease.owner, &lease.meta));
                }
            }
        }
        for back in [KEPT as u64, 1_000, 100, 10] {
            let from = Position(page.position.0.saturating_sub(back));
            if from < page.position && matches!(store.events(from, 1).await?, Feed::Events(_)) {
                self.start_at(from);
                return Ok(from);
            }
        }
        self.start_at(page.position);
        Ok(page.position)
    }

    /// Nothing is known of what happened before `position`.
    fn start_at(&self, position: Position) {
        let mut state = self.lock();
        (state.position, state.complete_after) = (position, position);
        self.reached.send_replace(position);
    }

    /// Takes in what the feed brought; answers the position that was reached.
    fn take_in(&self, feed: Feed, from: Position, metrics: &Metrics) -> Position {
        match feed {
            Feed::Events(events) => {
                let reached = events.last().map_or(from, |last| last.position);
                for published in &events {
                    self.pass_on(published);
                    // What happened before this server was there is not its to count.
                    if published.position > self.began.get().copied().unwrap_or_default() {
                        metrics.happened(&published.event.kind);
                    }
                }
                self.lock().position = reached;
                self.reached.send_replace(reached);
                reached
            }
            Feed::Gap { resume_from } => {
                tracing::warn!("some events of the store were missed; all listeners get a snapshot");
                let mut state = self.lock();
                state.kept.clear();
                (state.position, state.complete_after) = (resume_from, resume_from);
                // Whoever listens notices that its channel is gone, and begins anew with a snapshot.
                state.rooms.clear();
                state.all = broadcast::Sender::new(self.backlog);
                self.reached.send_replace(resume_from);
                resume_from
            }
        }
    }

    fn pass_on(&self, published: &Published) {
        let event = &published.event;
        let Some(room) = RoomId::of(&event.key) else { return };
        let mut state = self.lock();
        if let EventKind::Granted { meta, .. } = &event.kind {
            state.remember(&event.owner, shown_name(&event.owner, meta));
        }
        let name = state.names.get(&event.owner).map_or(event.owner.as_str(), |name| name);
        let view = views::document_event(&room, event, name);
        let note = Arc::new(Note { position: published.position, room, seq: event.seq, event: view });
        state.keep(note.clone());
        // Nobody may be listening, which is fine.
        let _ = state.all.send(note.clone());
        if let Some(listeners) = state.rooms.get(&note.room) {
            let _ = listeners.send(note.clone());
        }
    }

    /// How many documents are listened to.
    #[cfg(test)]
    pub(crate) fn rooms(&self) -> usize {
        self.lock().rooms.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that could panic is done while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self, note: Arc<Note>) {
        self.kept.push_back(note);
        if self.kept.len() > KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.complete_after = oldest.position;
        }
    }

    fn remember(&mut self, owner: &Owner, name: &str) {
        if owner.as_str() == name {
            self.names.remove(owner);
            return;
        }
        if self.names.len() >= NAMES {
            self.names.clear();
        }
        self.names.insert(owner.clone(), name.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::event::{EndReason, Event};
    use leasehold_core::{Fence, Key, StoreTime};

    fn note(position: u64, room: &str, seq: u64) -> Published {
        let event = Event {
            key: Key::parse(&format!("doc/{room}")).unwrap(),
            seq,
            at: StoreTime::ZERO,
            fence: Fence::new(1).unwrap(),
            owner: Owner::parse("anna").unwrap(),
            kind: EventKind::Ended { because: EndReason::Released },
        };
        Published { position: Position(position), event }
    }

    fn seqs(missed: &Missed) -> Option<Vec<u64>> {
        match missed {
            Missed::Events(notes) => Some(notes.iter().map(|note| note.seq).collect()),
            Missed::Unknown => None,
        }
    }

    #[test]
    fn who_comes_back_gets_what_it_missed_or_is_told_that_nobody_knows() {
        let (hub, metrics) = (Arc::new(Hub::new(4)), Metrics::new());
        let before_it_began = hub.listen_to_all(Some(Position(0))).1;
        assert_eq!(seqs(&before_it_began), None);
        hub.start_at(Position(10));
        let events = [(11, "a", 5), (12, "b", 1), (13, "a", 6), (14, "a", 7)];
        let events = events.map(|(position, room, seq)| note(position, room, seq)).to_vec();
        assert_eq!(hub.take_in(Feed::Events(events), Position(10), &metrics), Position(14));
        let a = RoomId::parse("a").unwrap();
        let room = |after| seqs(&hub.listen_to_room(&a, after).1);
        assert_eq!(room(Some(4)), Some(vec![5, 6, 7]));
        assert_eq!(room(Some(6)), Some(vec![7]));
        assert_eq!((room(Some(3)), room(Some(7)), room(None)), (None, None, None));
        assert_eq!(room(Some(u64::MAX)), None);
        let all = |after| seqs(&hub.listen_to_all(after).1);
        assert_eq!(all(Some(Position(11))), Some(vec![1, 6, 7]));
        assert_eq!(all(Some(Position(14))), Some(vec![]));
        assert_eq!((all(Some(Position(9))), all(Some(Position(15))), all(None)), (None, None, None));
    }

    #[test]
    fn a_slow_listener_delays_nobody() {
        let hub = Hub::new(4);
        let (mut slow, _) = hub.listen_to_all(None);
        for seq in 1..=100 {
            hub.pass_on(&note(seq, "a", seq));
        }
        assert!(matches!(slow.try_recv(), Err(broadcast::error::TryRecvError::Lagged(96))));
    }

    #[test]
    fn a_room_that_nobody_listens_to_is_forgotten() {
        let hub = Arc::new(Hub::new(4));
        let room = RoomId::parse("a").unwrap();
        let (first, second) = (hub.listen_to_room(&room, None), hub.listen_to_room(&room, None));
        drop(first);
        assert_eq!(hub.rooms(), 1);
        drop(second);
        assert_eq!(hub.rooms(), 0);
    }
}
