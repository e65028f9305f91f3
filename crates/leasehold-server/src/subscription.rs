//! A subscription: what one watcher gets of one document, or of all documents that it may see.
//!
//! It begins with the current state, or resumes after an event that the watcher knows. Then it gives every later event
//! exactly once and in order. Where that is impossible it gives the current state again; it never skips an event in
//! silence. It ends with the watcher's token, with the server, or when the watcher is too slow.
//!
//! The items are typed and know no encoding: `sse` writes them as server-sent events. A transport that has no resume passes
//! no `after`, and shows each new state instead.

mod cursor;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use leasehold_core::wire::documents::{LockState, SnapshotOfAll, StreamEnd};
use leasehold_core::{Position, Retries, RetryPolicy, RoomId};
use leasehold_store::jitter;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::App;
use crate::caller::{Caller, Grants};
use crate::hub::{Broken, Channel, HubEvent, Missed};
use crate::session::Session;
use crate::views::{self, Moment};
use crate::visible;
use cursor::{Cursor, Verdict};

/// How many locks one part of a snapshot of all documents carries.
const SNAPSHOT_PART: usize = 500;

/// What a watcher subscribes to.
#[derive(Clone, Debug)]
pub(crate) enum Topic {
    /// One document, which the caller was checked to be allowed to see.
    Document(RoomId),
    /// All documents that the caller may see.
    Visible,
}

/// What a subscription gives.
#[derive(Debug)]
pub(crate) enum Item {
    /// The current state of the document: the first item, unless it resumes, and again after a gap. Resume after `seq`.
    State(Box<LockState>),
    /// The same for all visible documents, in one or more parts. Only the last has an id: half of a snapshot is no place to
    /// resume from.
    States { id: Option<u64>, part: SnapshotOfAll },
    /// Something happened. Resume after `id`: the event's `seq` for one document, [`HubEvent`]'s id for all.
    Event { id: u64, event: Arc<HubEvent> },
    /// The last item: the server ends the subscription.
    End(StreamEnd),
}

/// A subscription of one watcher.
pub(crate) struct Subscription {
    flow: Flow,
    ends: Ends,
    is_over: bool,
}

impl Subscription {
    /// Subscribes. No event after this call is missed, however late the first item is asked for. `after` is the id of the
    /// last item that the watcher knows; an id of another history gives the current state.
    pub(crate) async fn open(app: &Arc<App>, session: Session, topic: Topic, after: Option<u64>) -> Self {
        let ends = Ends::new(app, &session.caller);
        let (channel, missed) = watch(app, &topic, after, &session.caller.grants).await;
        let phase = match missed {
            Missed::Events(events) => Phase::Replay(events),
            Missed::Unknown => Phase::snapshot(),
        };
        let cursor = Cursor::new(&topic, after);
        let retries = Retries::new(RetryPolicy::LOOP, jitter());
        let flow = Flow { app: app.clone(), session, topic, channel, cursor, phase, retries };
        Self { flow, ends, is_over: false }
    }

    /// The next item; `None` after [`Item::End`]. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Item> {
        while !self.is_over {
            let step = tokio::select! {
                biased;
                end = self.ends.reached() => Step::End(end),
                step = self.flow.step() => step,
            };
            match step {
                Step::Give(item) => return Some(item),
                Step::Nothing => {}
                Step::End(end) => {
                    self.is_over = true;
                    self.flow.app.metrics.stream_ended(end);
                    return Some(Item::End(end));
                }
            }
        }
        None
    }
}

/// What ends a subscription from outside.
struct Ends {
    stop: CancellationToken,
    /// Completes when the caller's token expires.
    token: Option<Pin<Box<Sleep>>>,
}

impl Ends {
    fn new(app: &App, caller: &Caller) -> Self {
        let left = caller.left((app.config.wall_clock)());
        Self { stop: app.stop.clone(), token: left.map(|left| Box::pin(tokio::time::sleep(left))) }
    }

    async fn reached(&mut self) -> StreamEnd {
        let Self { stop, token } = self;
        let expired = async {
            match token {
                // A sleep is not ready on its first poll, not even when its time has passed.
                Some(token) if token.deadline() <= Instant::now() => {}
                Some(token) => token.as_mut().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => StreamEnd::ShuttingDown,
            () = expired => StreamEnd::TokenExpired,
        }
    }
}

/// Where the items come from.
struct Flow {
    app: Arc<App>,
    session: Session,
    topic: Topic,
    channel: Channel,
    cursor: Cursor,
    phase: Phase,
    /// Of reading the current state.
    retries: Retries,
}

/// What a subscription does at the moment.
enum Phase {
    /// Gives the events that the watcher missed.
    Replay(VecDeque<Arc<HubEvent>>),
    /// Reads the current state, page by page: `from` is the last document of the page before, `begin` the position of the
    /// first page.
    Snapshot { from: Option<RoomId>, begin: Option<Position> },
    /// Gives events as they come.
    Live,
}

impl Phase {
    fn snapshot() -> Self {
        Self::Snapshot { from: None, begin: None }
    }
}

/// The result of one step.
enum Step {
    Give(Item),
    Nothing,
    End(StreamEnd),
}

impl Flow {
    /// Does the next thing. Its phase changes only after what it awaits, so that it can be dropped and called again.
    async fn step(&mut self) -> Step {
        match &mut self.phase {
            Phase::Replay(missed) => match missed.pop_front() {
                Some(event) => self.follow(event),
                None => {
                    self.phase = Phase::Live;
                    Step::Nothing
                }
            },
            Phase::Snapshot { from, begin } => {
                let (from, begin) = (from.clone(), *begin);
                self.snapshot(from, begin).await
            }
            Phase::Live => match self.channel.recv().await {
                Ok(event) => self.follow(event),
                Err(Broken::Lagged) => Step::End(StreamEnd::TooSlow),
                Err(Broken::Gap) => self.begin_again(),
            },
        }
    }

    fn follow(&mut self, event: Arc<HubEvent>) -> Step {
        match self.cursor.judge(&event, &self.session.caller.grants) {
            Verdict::Show(id) => Step::Give(Item::Event { id, event }),
            Verdict::Skip => Step::Nothing,
            Verdict::Gap => self.begin_again(),
        }
    }

    /// Continuity is broken: watches anew, and gives the current state next.
    fn begin_again(&mut self) -> Step {
        self.channel = watch_now(&self.app, &self.topic, None, &self.session.caller.grants).0;
        self.phase = Phase::snapshot();
        Step::Nothing
    }

    /// Reads the current state, or its next page.
    async fn snapshot(&mut self, from: Option<RoomId>, begin: Option<Position>) -> Step {
        let read = match self.topic.clone() {
            Topic::Document(room) => self.read_document(&room).await,
            Topic::Visible => self.read_page(from, begin).await,
        };
        if let Some(item) = read {
            self.retries.succeeded();
            return Step::Give(item);
        }
        tokio::time::sleep(self.retries.pause()).await;
        // As long as nothing was given, the store's failure must not make the watcher look slow.
        if begin.is_none() { self.begin_again() } else { Step::Nothing }
    }

    /// The state of the one document; `None` if the store failed.
    async fn read_document(&mut self, room: &RoomId) -> Option<Item> {
        let reading = self.app.read(room).await.ok()?;
        let (caller, moment) = (&self.session.caller, Moment::new(&self.app, reading.now));
        let state = views::lock_state(room, &reading.slot, caller, &self.session.claim(), moment);
        self.cursor = Cursor::Document { seq: Some(state.seq) };
        self.phase = Phase::Live;
        Some(Item::State(Box::new(state)))
    }

    /// The visible states after the document `from`; `None` if the store failed.
    async fn read_page(&mut self, from: Option<RoomId>, begin: Option<Position>) -> Option<Item> {
        let page = visible::page(&self.app, &self.session, "", from, SNAPSHOT_PART).await.ok()?;
        // What the snapshot contains must be known when the place to resume from is chosen: it is not to come again.
        self.app.hub.catch_up(begin.unwrap_or(page.position)).await;
        // Later pages contain later events as well; the cursor knows them by the documents' own numbers.
        let position = begin.unwrap_or(page.position);
        if begin.is_none() {
            self.cursor = Cursor::visible_after(position);
        }
        self.cursor.contains(&page.states);
        let last = page.states.last().and_then(|last| RoomId::parse(&last.room_id).ok());
        self.phase = match page.more {
            true => Phase::Snapshot { from: last, begin: Some(position) },
            false => Phase::Live,
        };
        let part = SnapshotOfAll { documents: page.states, more: page.more };
        if part.more {
            return Some(Item::States { id: None, part });
        }
        Some(Item::States { id: self.app.hub.newest_visible(position, &self.session.caller.grants), part })
    }
}

/// Watches the topic. A watcher that seems to have missed something may only be ahead of this server's feed, which gets a
/// moment to catch up.
async fn watch(app: &App, topic: &Topic, after: Option<u64>, grants: &Grants) -> (Channel, Missed) {
    let begun = watch_now(app, topic, after, grants);
    let (Missed::Unknown, Some(known)) = (&begun.1, after) else { return begun };
    let position = match topic {
        Topic::Document(room) => match app.read(room).await {
            Ok(reading) if reading.slot.seq == known => return (begun.0, Missed::Events(VecDeque::new())),
            Ok(reading) if reading.slot.seq > known => reading.position,
            _ => return begun,
        },
        Topic::Visible => match visible::newest(app).await {
            Ok(newest) => newest,
            _ => return begun,
        },
    };
    app.hub.catch_up(position).await;
    watch_now(app, topic, after, grants)
}

fn watch_now(app: &App, topic: &Topic, after: Option<u64>, grants: &Grants) -> (Channel, Missed) {
    match topic {
        Topic::Document(room) => app.hub.watch_document(room, after),
        Topic::Visible => app.hub.watch_all(after.map(|id| (id, grants))),
    }
}

#[cfg(test)]
mod tests;
