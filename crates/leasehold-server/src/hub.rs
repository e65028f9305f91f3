//! The hub: follows the store's feed once, and fans every document's events out to its watchers.
//!
//! It must never wait for a watcher. Each has a bounded channel that overwrites the oldest event; a watcher that falls
//! behind learns that it did, and its subscription ends. The newest events are kept, so that a watcher that reconnects can
//! resume.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::event::Event;
use leasehold_core::wire::documents::DocumentEvent;
use leasehold_core::{EventKind, Key, Owner, Position, Published, Retries, RetryPolicy, RoomId};
use leasehold_store::jitter;
use leasehold_store::{Feed, MAX_EVENTS, Range, Store};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::caller::{Grants, shown_name};
use crate::metrics::Metrics;
use crate::sse::Written;
use crate::{server_lease, views};

/// How many events are kept for watchers that resume.
const KEPT: usize = 10_000;

/// How many events the watcher of one document may be behind. Every watched document allocates a buffer of this size.
const ROOM_BACKLOG: usize = 256;

/// How many holders' names are remembered, because only the event of a grant carries one.
const NAMES: usize = 50_000;

/// How many slots are read for the names of callers who ask for a lock, in one batch of events.
const NAMES_READ: usize = 32;

/// How long to wait for the feed to catch up with the store.
const CATCH_UP: Duration = Duration::from_secs(1);

/// How many events at once mean that the store is busy, and its follower has kept up.
pub(crate) const BUSY: std::ops::Range<u64> = 4..MAX_EVENTS as u64;

/// How long the hub lets events gather before it asks for more, because the store's writer has to wake it each time: that of
/// a busy store while there are watchers, and that of any store while there are none. Watchers of a store that is not busy
/// get its events at once.
const GATHERING: Duration = Duration::from_millis(2);
const GATHERING_UNWATCHED: Duration = Duration::from_millis(20);

/// An event of a document, shared by all of its watchers.
#[derive(Debug)]
pub(crate) struct HubEvent {
    pub(crate) position: Position,
    pub(crate) room: RoomId,
    pub(crate) seq: u64,
    /// What a watcher of all documents resumes from. Made of what the watcher sees of the event and of nothing else, and
    /// without an order: positions in the feed would tell how many events there were that it may not see. It fits into
    /// what JavaScript counts exactly.
    pub(crate) id: u64,
    pub(crate) event: DocumentEvent,
    pub(crate) written: Written,
}

impl HubEvent {
    pub(crate) fn new(position: Position, room: RoomId, seq: u64, event: DocumentEvent) -> Self {
        let id = id_of(&room, seq);
        Self { position, room, seq, id, event, written: Written::default() }
    }
}

/// FNV-1a. It need not resist forgery: an id is only looked up among the events that the caller may see.
fn id_of(room: &RoomId, seq: u64) -> u64 {
    let bytes = room.as_str().bytes().chain(seq.to_be_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 53)) & ((1 << 53) - 1)
}

/// One watcher's end of the fan-out.
pub(crate) struct Channel {
    events: broadcast::Receiver<Arc<HubEvent>>,
    /// Of a single document only. Dropped after the receiver, which the hub must not count any more.
    _membership: Option<Membership>,
}

/// Why a channel has nothing more to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The watcher fell behind, and events were overwritten.
    Lagged,
    /// The hub itself missed events: the watcher has to begin with the current state.
    Gap,
}

impl Channel {
    /// The next event. Dropping the future loses nothing.
    pub(crate) async fn recv(&mut self) -> Result<Arc<HubEvent>, Broken> {
        self.events.recv().await.map_err(|error| match error {
            RecvError::Lagged(_) => Broken::Lagged,
            RecvError::Closed => Broken::Gap,
        })
    }
}

/// A watcher of one document. The hub keeps the document's channel as long as there is one, and a watcher may be dropped
/// without ever having received anything.
struct Membership {
    hub: Arc<Hub>,
    room: RoomId,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.hub.left(&self.room);
    }
}

pub(crate) struct Hub {
    state: Mutex<State>,
    /// The position up to which the store's events have been published.
    reached: watch::Sender<Position>,
    /// The store's position when this server started.
    began: OnceLock<Position>,
    /// Notified when a watcher comes, or waits for events: they do not gather any longer then.
    is_awaited: Notify,
    backlog: usize,
}

struct State {
    /// The newest events, without gaps.
    kept: VecDeque<Arc<HubEvent>>,
    /// The position of the newest event that was published.
    position: Position,
    /// Everything after this position is in `kept`.
    complete_after: Position,
    all: broadcast::Sender<Arc<HubEvent>>,
    rooms: HashMap<RoomId, broadcast::Sender<Arc<HubEvent>>>,
    names: HashMap<Owner, Arc<str>>,
}

/// What a watcher missed since the event from which it wants to resume.
pub(crate) enum Missed {
    /// Exactly these events.
    Events(VecDeque<Arc<HubEvent>>),
    /// The hub does not know: the watcher needs the current state.
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
            is_awaited: Notify::new(),
            backlog,
        }
    }

    /// Watches one document from now on; `after` is the `seq` of the last event that the watcher knows.
    pub(crate) fn watch_document(self: &Arc<Self>, room: &RoomId, after: Option<u64>) -> (Channel, Missed) {
        self.is_awaited.notify_one();
        let mut state = self.lock();
        let backlog = self.backlog.min(ROOM_BACKLOG);
        let events =
            state.rooms.entry(room.clone()).or_insert_with(|| broadcast::Sender::new(backlog)).subscribe();
        let membership = Membership { hub: self.clone(), room: room.clone() };
        let channel = Channel { events, _membership: Some(membership) };
        let Some(after) = after else { return (channel, Missed::Unknown) };
        let later: VecDeque<_> =
            state.kept.iter().filter(|event| event.room == *room && event.seq > after).cloned().collect();
        let mut numbers = later.iter().zip(after.saturating_add(1)..);
        let follows = !later.is_empty() && numbers.all(|(event, number)| event.seq == number);
        (channel, if follows { Missed::Events(later) } else { Missed::Unknown })
    }

    /// Watches all documents from now on; `after` is the [id](HubEvent) of the last event that the watcher knows, and what
    /// the watcher may see: an id of anything else is unknown, so that nobody can try out what there is.
    pub(crate) fn watch_all(&self, after: Option<(u64, &Grants)>) -> (Channel, Missed) {
        self.is_awaited.notify_one();
        let state = self.lock();
        let channel = Channel { events: state.all.subscribe(), _membership: None };
        let known = after.and_then(|(id, grants)| {
            let mut found = state.kept.iter().enumerate().rev();
            found.find(|(_, event)| event.id == id && grants.level(&event.room).is_some())
        });
        let Some((index, _)) = known else { return (channel, Missed::Unknown) };
        (channel, Missed::Events(state.kept.iter().skip(index + 1).cloned().collect()))
    }

    /// The newest event up to `position` that a caller with these grants may see, for it to resume from; `None` if none of
    /// them is known any more.
    pub(crate) fn newest_visible(&self, position: Position, grants: &Grants) -> Option<u64> {
        let state = self.lock();
        let mut newest = state.kept.iter().rev().filter(|event| event.position <= position);
        newest.find(|event| grants.level(&event.room).is_some()).map(|event| event.id)
    }

    /// Waits until everything up to `position` has been published, for at most [`CATCH_UP`].
    pub(crate) async fn catch_up(&self, position: Position) {
        let mut reached = self.reached.subscribe();
        self.is_awaited.notify_one();
        let caught_up = reached.wait_for(|reached| *reached >= position);
        // After a timeout the watcher begins with the current state instead.
        let _ = tokio::time::timeout(CATCH_UP, caught_up).await;
    }

    /// A watcher is gone. The channel of a document without watchers is dropped.
    fn left(&self, room: &RoomId) {
        let mut state = self.lock();
        if state.rooms.get(room).is_some_and(|events| events.receiver_count() == 0) {
            state.rooms.remove(room);
        }
    }

    /// Follows the store's feed until the server shuts down, beginning with the newest events from before its start.
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
                // Only once: a watcher that resumed without a gap relies on every later event.
                let Some(from) = position else { return self.begin(store.as_ref()).await };
                let feed = store.events(from, MAX_EVENTS).await?;
                self.learn_names(&feed, store.as_ref()).await;
                Ok::<_, leasehold_store::Error>(self.take_in(feed, from, &metrics))
            };
            let turned = tokio::select! {
                () = stop.cancelled() => return,
                turned = turn => turned,
            };
            match turned {
                Ok(reached) => {
                    retries.succeeded();
                    let events = position.map_or(0, |from| reached.0.saturating_sub(from.0));
                    position = Some(reached);
                    if let Some(gathering) = self.gathering(events) {
                        tokio::select! {
                            () = stop.cancelled() => return,
                            () = self.is_awaited.notified() => {}
                            () = tokio::time::sleep(gathering) => {}
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the store's events; trying again");
                    tokio::time::sleep(retries.pause()).await;
                }
            }
        }
    }

    /// How long to wait after so many events at once.
    fn gathering(&self, events: u64) -> Option<Duration> {
        let state = self.lock();
        let is_watched = state.all.receiver_count() > 0 || !state.rooms.is_empty();
        match is_watched {
            true => BUSY.contains(&events).then_some(GATHERING),
            false => (1..BUSY.end).contains(&events).then_some(GATHERING_UNWATCHED),
        }
    }

    /// Where to begin: as far back as the store still has events, at most [`KEPT`] of them.
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

    /// Learns the names of the people in these events before they are published. A taker's name comes with the grant that
    /// follows; the name of a caller who asks for a lock is in the lock's slot alone.
    async fn learn_names(&self, feed: &Feed, store: &dyn Store) {
        let Feed::Events(events) = feed else { return };
        let asked: Vec<Key> = {
            let mut state = self.lock();
            for Published { event, .. } in events {
                if let EventKind::Granted { meta, .. } = &event.kind {
                    state.remember(&event.owner, shown_name(&event.owner, meta));
                }
            }
            let is_unnamed = |event: &&Event| match &event.kind {
                EventKind::HandoverRequested { by, .. } => !state.names.contains_key(by),
                _ => false,
            };
            let unnamed = events.iter().map(|published| &published.event).filter(is_unnamed);
            unnamed.map(|event| event.key.clone()).take(NAMES_READ).collect()
        };
        for key in asked {
            // Without an answer, the subject of the token is shown instead of the name.
            let Ok(reading) = store.read(&key).await else { return };
            if let Some(request) = reading.slot.lease.as_ref().and_then(|lease| lease.request.as_deref()) {
                self.learn_name(&request.bid.owner, shown_name(&request.bid.owner, &request.bid.meta));
            }
        }
    }

    /// Remembers the display name of a user.
    pub(crate) fn learn_name(&self, owner: &Owner, name: &str) {
        self.lock().remember(owner, name);
    }

    /// The display name of a user, if it is known and is not the subject of the token itself.
    pub(crate) fn name_of(&self, owner: &Owner) -> Option<String> {
        self.lock().names.get(owner).map(|name| name.to_string())
    }

    /// Begins at `position`; earlier events are unknown.
    fn start_at(&self, position: Position) {
        let mut state = self.lock();
        (state.position, state.complete_after) = (position, position);
        self.reached.send_replace(position);
    }

    /// Publishes what the feed brought; returns the position that was reached.
    pub(crate) fn take_in(&self, feed: Feed, from: Position, metrics: &Metrics) -> Position {
        match feed {
            Feed::Events(events) => {
                let reached = events.last().map_or(from, |last| last.position);
                for published in &events {
                    self.publish(published);
                    // Events from before this server started are not counted here, nor those of the servers' own leases.
                    let is_new = published.position > self.began.get().copied().unwrap_or_default();
                    if is_new && !published.event.key.as_str().starts_with(server_lease::DOOR) {
                        metrics.happened(&published.event.kind);
                    }
                }
                self.lock().position = reached;
                self.reached.send_replace(reached);
                reached
            }
            Feed::Gap { resume_from } => {
                tracing::warn!("missed events of the store; all watchers get a snapshot");
                let mut state = self.lock();
                state.kept.clear();
                (state.position, state.complete_after) = (resume_from, resume_from);
                // Watchers see their channel closed, and begin again with the current state.
                state.rooms.clear();
                state.all = broadcast::Sender::new(self.backlog);
                self.reached.send_replace(resume_from);
                resume_from
            }
        }
    }

    fn publish(&self, published: &Published) {
        let event = &published.event;
        let Some(room) = RoomId::of(&event.key) else { return };
        let mut state = self.lock();
        if let EventKind::Granted { meta, .. } = &event.kind {
            state.remember(&event.owner, shown_name(&event.owner, meta));
        }
        let view = views::document_event(&room, event, |owner| state.names.get(owner).map(|name| &**name));
        let event = Arc::new(HubEvent::new(published.position, room, event.seq, view));
        state.keep(event.clone());
        // Sending fails only when there is no watcher.
        let _ = state.all.send(event.clone());
        if let Some(watchers) = state.rooms.get(&event.room) {
            let _ = watchers.send(event.clone());
        }
    }

    /// How many documents have watchers.
    #[cfg(test)]
    pub(crate) fn rooms(&self) -> usize {
        self.lock().rooms.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that could panic runs while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self, event: Arc<HubEvent>) {
        self.kept.push_back(event);
        if self.kept.len() > KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.complete_after = oldest.position;
        }
    }

    /// Remembers a display name. A token without a name says nothing about the person's name, and its event may arrive
    /// after a newer call that had one: what is known stays.
    fn remember(&mut self, owner: &Owner, name: &str) {
        if owner.as_str() == name {
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
    use leasehold_core::event::EndReason;
    use leasehold_core::{Fence, StoreTime};

    fn event(position: u64, room: &str, seq: u64) -> Published {
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
            Missed::Events(events) => Some(events.iter().map(|event| event.seq).collect()),
            Missed::Unknown => None,
        }
    }

    #[test]
    fn a_watcher_that_resumes_gets_exactly_what_it_missed_or_needs_the_state() {
        let (hub, metrics) = (Arc::new(Hub::new(4)), Metrics::new());
        let everything = Grants::everything();
        let before_it_began = hub.watch_all(Some((event_id("a", 5), &everything))).1;
        assert_eq!(seqs(&before_it_began), None);
        hub.start_at(Position(10));
        let events = [(11, "a", 5), (12, "b", 1), (13, "a", 6), (14, "a", 7)];
        let events = events.map(|(position, room, seq)| event(position, room, seq)).to_vec();
        assert_eq!(hub.take_in(Feed::Events(events), Position(10), &metrics), Position(14));
        let a = RoomId::parse("a").unwrap();
        let room = |after| seqs(&hub.watch_document(&a, after).1);
        assert_eq!(room(Some(4)), Some(vec![5, 6, 7]));
        assert_eq!(room(Some(6)), Some(vec![7]));
        assert_eq!((room(Some(3)), room(Some(7)), room(None)), (None, None, None));
        assert_eq!(room(Some(u64::MAX)), None);
        let all = |id| seqs(&hub.watch_all(Some((id, &everything))).1);
        assert_eq!(all(event_id("a", 5)), Some(vec![1, 6, 7]));
        assert_eq!(all(event_id("a", 7)), Some(vec![]));
        assert_eq!((all(event_id("a", 4)), all(event_id("a", 8)), all(11)), (None, None, None));
    }

    fn event_id(room: &str, seq: u64) -> u64 {
        let Published { position, event } = event(seq, room, seq);
        let room = RoomId::of(&event.key).unwrap();
        let view = views::document_event(&room, &event, |_| None);
        HubEvent::new(position, room, seq, view).id
    }

    #[test]
    fn nobody_resumes_from_what_they_may_not_see() {
        let (hub, metrics) = (Arc::new(Hub::new(4)), Metrics::new());
        hub.start_at(Position(0));
        let events = [(1, "mine", 3), (2, "theirs", 8), (3, "theirs", 9)];
        let events = events.map(|(position, room, seq)| event(position, room, seq)).to_vec();
        hub.take_in(Feed::Events(events), Position(0), &metrics);
        let mut grants = Grants::default();
        grants.add("mine", crate::caller::Level::Read);
        let resumed = |id| seqs(&hub.watch_all(Some((id, &grants))).1);
        assert_eq!(resumed(event_id("theirs", 8)), None, "it might as well not exist");
        assert_eq!(
            resumed(event_id("mine", 3)),
            Some(vec![8, 9]),
            "the cursor leaves out what is not theirs to see"
        );
        assert_eq!(hub.newest_visible(Position(3), &grants), Some(event_id("mine", 3)));
        assert_eq!(hub.newest_visible(Position(0), &grants), None);
    }

    #[tokio::test]
    async fn a_slow_watcher_delays_nobody_and_learns_that_it_lagged() {
        let hub = Hub::new(4);
        let (mut slow, _) = hub.watch_all(None);
        for seq in 1..=100 {
            hub.publish(&event(seq, "a", seq));
        }
        assert_eq!(slow.recv().await.unwrap_err(), Broken::Lagged);
    }

    #[test]
    fn the_channel_of_a_document_goes_with_its_last_watcher() {
        let hub = Arc::new(Hub::new(4));
        let room = RoomId::parse("a").unwrap();
        let (first, second) = (hub.watch_document(&room, None), hub.watch_document(&room, None));
        drop(first);
        assert_eq!(hub.rooms(), 1);
        drop(second);
        assert_eq!(hub.rooms(), 0);
    }
}
