//! Subscriptions without HTTP, on virtual time: the watcher is a loop over items.

use leasehold_core::{Command, LeaseId, Outcome};
use leasehold_store::{Feed, Memory, Store};

use super::*;
use crate::auth::Auth;
use crate::caller::{Grants, Level, ShownName};
use crate::{Config, Server};

/// Noon on 1 January 2026, in seconds.
const NOON: u64 = 1_767_268_800;

struct World {
    server: Server,
    app: Arc<App>,
}

impl World {
    fn new() -> Self {
        Self::on(Arc::new(Memory::new()), 1_024)
    }

    fn on(store: Arc<dyn Store>, backlog: usize) -> Self {
        let start = Instant::now();
        let mut config = Config::new(Auth::Open);
        config.limits.stream_backlog = backlog;
        config.wall_clock =
            Arc::new(move || NOON * 1_000 + u64::try_from(start.elapsed().as_millis()).unwrap());
        let server = Server::start(store, config).unwrap();
        Self { app: server.app.clone(), server }
    }

    async fn lock(&self, name: &str) -> LeaseId {
        let lease_id = crate::routes::new_lease_id().unwrap();
        let bid = session("anna", "*").bid(&self.app, lease_id).unwrap();
        let applied = self.app.apply(&room(name), Command::Acquire(bid)).await.unwrap();
        assert!(matches!(applied.outcome, Outcome::Granted { .. }));
        lease_id
    }

    async fn unlock(&self, name: &str, lease_id: LeaseId) {
        let lease = self.app.read(&room(name)).await.unwrap().slot.lease.unwrap();
        assert_eq!(lease.lease_id, lease_id);
        self.app.apply(&room(name), Command::Release(lease.proof().into())).await.unwrap();
    }

    /// Waits until the hub has published everything that is in the store.
    async fn publish(&self) {
        self.app.hub.catch_up(visible::newest(&self.app).await.unwrap()).await;
    }

    async fn watch(&self, topic: Topic, after: Option<u64>) -> Subscription {
        Subscription::open(&self.app, session("ben", "*"), topic, after).await
    }
}

fn session(subject: &str, pattern: &str) -> Session {
    let mut grants = Grants::default();
    grants.add(pattern, Level::Lock);
    let subject = leasehold_core::Owner::parse(subject).unwrap();
    let caller =
        Caller { name: ShownName::parse(subject.as_str()).unwrap(), subject, grants, expires_at: None };
    Session::new(caller.into())
}

fn room(name: &str) -> RoomId {
    RoomId::parse(name).unwrap()
}

fn document(name: &str) -> Topic {
    Topic::Document(room(name))
}

/// An item in a few words: what it is, and the id after which one can resume.
fn short(item: &Item) -> String {
    match item {
        Item::State(state) => format!("state {} {}", state.seq, state.locked),
        Item::States { id, part } => {
            let names: Vec<&str> = part.documents.iter().map(|state| state.room_id.as_str()).collect();
            format!("states {id:?} {}", names.join(","))
        }
        Item::Event { id, event } => format!("event {id} {} {}", event.room.as_str(), event.seq),
        Item::End(end) => format!("end {}", end.as_str()),
    }
}

async fn take(subscription: &mut Subscription, count: usize) -> Vec<String> {
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(short(&subscription.next().await.unwrap()));
    }
    items
}

#[tokio::test(start_paused = true)]
async fn it_begins_with_the_state_and_gives_every_event_once() {
    let world = World::new();
    let lease_id = world.lock("a").await;
    let mut watched = world.watch(document("a"), None).await;
    // Before the first item is asked for: the state contains it, so it must not come again.
    world.unlock("a", lease_id).await;
    world.publish().await;
    assert_eq!(take(&mut watched, 1).await, ["state 2 false"]);
    let lease_id = world.lock("a").await;
    world.lock("b").await;
    world.unlock("a", lease_id).await;
    assert_eq!(take(&mut watched, 2).await, ["event 3 a 3", "event 4 a 4"]);
}

#[tokio::test(start_paused = true)]
async fn it_resumes_after_a_known_event_and_an_unknown_id_gives_the_state() {
    let world = World::new();
    for _ in 0..2 {
        let lease_id = world.lock("a").await;
        world.unlock("a", lease_id).await;
    }
    world.publish().await;
    let mut back = world.watch(document("a"), Some(2)).await;
    assert_eq!(take(&mut back, 2).await, ["event 3 a 3", "event 4 a 4"]);
    let mut up_to_date = world.watch(document("a"), Some(4)).await;
    world.lock("a").await;
    assert_eq!(take(&mut up_to_date, 1).await, ["event 5 a 5"]);
    let mut from_elsewhere = world.watch(document("a"), Some(99)).await;
    assert_eq!(take(&mut from_elsewhere, 1).await, ["state 5 true"]);
}

#[tokio::test(start_paused = true)]
async fn all_documents_are_those_with_a_grant_in_parts_and_only_the_last_part_has_an_id() {
    let world = World::new();
    for number in 0..=SNAPSHOT_PART {
        world.lock(&format!("a{number}")).await;
    }
    world.lock("b").await;
    let mut watched = Subscription::open(&world.app, session("ben", "a*"), Topic::Visible, None).await;
    let (first, second) = (watched.next().await.unwrap(), watched.next().await.unwrap());
    let Item::States { id: None, part } = first else { panic!("{first:?}") };
    assert_eq!((part.documents.len(), part.more), (SNAPSHOT_PART, true));
    let Item::States { id: Some(_), part } = second else { panic!("{second:?}") };
    assert_eq!((part.documents.len(), part.more), (1, false));
    world.lock("c").await;
    world.lock("a").await;
    let Some(Item::Event { id, event }) = watched.next().await else { panic!("no event") };
    assert_eq!((event.room.as_str(), event.seq), ("a", 1));
    world.lock("d").await;
    let mut back = Subscription::open(&world.app, session("ben", "a*"), Topic::Visible, Some(id)).await;
    world.lock("another").await;
    let Some(Item::Event { event, .. }) = back.next().await else { panic!("it knows everything before") };
    assert_eq!((event.room.as_str(), event.seq), ("another", 1));
}

#[tokio::test(start_paused = true)]
async fn a_gap_in_the_stores_feed_gives_the_state_again() {
    let world = World::new();
    world.lock("a").await;
    for topic in [document("a"), Topic::Visible] {
        let mut watched = world.watch(topic, None).await;
        let begun = take(&mut watched, 1).await;
        let metrics = &world.app.metrics;
        world.app.hub.take_in(Feed::Gap { resume_from: Position(1) }, Position(1), metrics);
        assert_eq!(take(&mut watched, 1).await, begun);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_lags_behind_its_backlog_is_ended() {
    let world = World::on(Arc::new(Memory::new()), 4);
    for topic in [document("a"), Topic::Visible] {
        let mut slow = world.watch(topic, None).await;
        slow.next().await.unwrap();
        for _ in 0..4 {
            let lease_id = world.lock("a").await;
            world.unlock("a", lease_id).await;
        }
        world.publish().await;
        assert_eq!(take(&mut slow, 1).await, ["end too_slow"]);
        assert!(slow.next().await.is_none());
    }
    let counted = "leasehold_streams_ended_total{reason=\"too_slow\"} 2";
    assert!(world.app.metrics.render().contains(counted));
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_the_token_expires_and_shows_nothing_afterwards() {
    let world = World::new();
    let expiring = |topic, after| {
        let mut session = session("ben", "*");
        Arc::make_mut(&mut session.caller).expires_at = Some(NOON + 100);
        Subscription::open(&world.app, session, topic, after)
    };
    let start = Instant::now();
    let mut watched = expiring(document("a"), None).await;
    let lease_id = world.lock("a").await;
    world.unlock("a", lease_id).await;
    world.publish().await;
    // Neither of these is asked for an item before the token has expired.
    let late = [
        expiring(document("a"), None).await,
        expiring(document("a"), Some(1)).await,
        expiring(Topic::Visible, None).await,
        expiring(Topic::Visible, Some(1)).await,
    ];
    assert_eq!(take(&mut watched, 2).await, ["state 2 false", "end token_expired"]);
    assert_eq!(start.elapsed().as_secs(), 100);
    assert!(watched.next().await.is_none());
    for mut late in late {
        assert_eq!(take(&mut late, 1).await, ["end token_expired"]);
        assert!(late.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_server() {
    let world = World::new();
    let mut watched = world.watch(Topic::Visible, None).await;
    watched.next().await.unwrap();
    world.server.end().await;
    assert_eq!(take(&mut watched, 1).await, ["end shutting_down"]);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_leaves_before_the_first_item_leaves_nothing_behind() {
    let world = World::new();
    for after in [None, Some(0), Some(7)] {
        let watched = world.watch(document("a"), after).await;
        assert_eq!(world.app.hub.rooms(), 1);
        drop(watched);
        assert_eq!(world.app.hub.rooms(), 0);
    }
}
