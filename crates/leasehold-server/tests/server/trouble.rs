//! A store in trouble, and callers who wait for the moment between two steps.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::Method;
use leasehold_core::lease::Bid;
use leasehold_core::{Command, JobCommand, Key, LeaseId, Meta, Owner, Position, StoreTime, Ttl};
use leasehold_store::{
    Applied, Error, Feed, JobApplied, JobStore, Memory, Page, Range, Reading, Result, Retry, Settled, Store,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{House, pass};

const LOCK: &str = "/api/documents/minutes/lock";
const EVENTS: &str = "/api/documents/minutes/events";
const JOB: &str = "/api/jobs/analyses/42";
const MINE: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

const WELL: u8 = 0;
const FAILING: u8 = 1;
const HANGING: u8 = 2;
const READ_ONLY: u8 = 3;

/// A store that fails or hangs as a whole when it is told to, and that lets something happen right before a command.
struct Troubled {
    store: Memory,
    state: AtomicU8,
    before_apply: Mutex<Option<Command>>,
}

impl Troubled {
    fn new() -> Arc<Self> {
        let before_apply = Mutex::new(None);
        Arc::new(Self { store: Memory::new(), state: AtomicU8::new(WELL), before_apply })
    }

    fn is_now(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
    }

    /// What another caller does while the next command is on its way.
    fn before_the_next_command(&self, command: Command) {
        *self.before_apply.lock().unwrap() = Some(command);
    }

    /// How many events there have been.
    async fn now_at(&self) -> Position {
        self.store.list(&Range::all()).await.unwrap().position
    }

    async fn trouble(&self) -> Result<()> {
        match self.state.load(Ordering::SeqCst) {
            WELL | READ_ONLY => Ok(()),
            FAILING => Err(Error::Unavailable { what: "the disk is gone".into(), retry: Retry::Safe }),
            _ => std::future::pending().await,
        }
    }
}

#[async_trait]
impl JobStore for Troubled {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        self.trouble().await?;
        if self.state.load(Ordering::SeqCst) == READ_ONLY {
            return Err(Error::Unavailable { what: "the disk is full".into(), retry: Retry::Safe });
        }
        let first = self.before_apply.lock().unwrap().take();
        if let Some(command) = first {
            self.store.apply(key, command).await?;
        }
        self.store.apply(key, command).await
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        self.trouble().await?;
        self.store.read(key).await
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        self.trouble().await?;
        self.store.apply_job(key, command).await
    }
}

#[async_trait]
impl Store for Troubled {
    async fn now(&self) -> Result<StoreTime> {
        self.trouble().await?;
        self.store.now().await
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        self.trouble().await?;
        self.store.list(range).await
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        self.trouble().await?;
        self.store.events(after, limit).await
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        self.trouble().await?;
        self.store.settle_due(limit).await
    }
}

fn acquire(owner: &str, lease_id: [u8; 16]) -> Command {
    Command::Acquire(Bid {
        tab: None,
        lease_id: LeaseId::from_random(lease_id),
        owner: Owner::parse(owner).unwrap(),
        ttl: Ttl::from_secs(30).unwrap(),
        meta: Meta::new([]).unwrap(),
    })
}

/// The permission to take one's own lock over from another tab was checked on what was there, and then the lock with the
/// fence that the caller had named was taken. Fences are easy to foresee: naming the next one, a caller without `force`
/// could take the lock of another that got it just in between. The permission is part of the decision now.
#[tokio::test(start_paused = true)]
async fn nobody_takes_anothers_lock_that_came_after_the_look() {
    for held_before in [false, true] {
        let store = Troubled::new();
        let house = House::on(store.clone(), |_| {});
        let cora = house.user_with("user-c", json!({ "*": "lock" }));
        let mine = cora.in_tab("one").post(LOCK, Value::Null).await.ok()["fence"].as_u64().unwrap();
        if held_before {
            let grab = Command::TakeOver {
                seen: leasehold_core::Fence::new(mine).unwrap(),
                bid: match acquire("user-a", [7; 16]) {
                    Command::Acquire(bid) => bid,
                    _ => unreachable!(),
                },
                reason: leasehold_core::Reason::parse("mine now").unwrap(),
                right: leasehold_core::Right::Force,
            };
            store.before_the_next_command(grab);
        } else {
            cora.in_tab("one").delete(LOCK).await.ok();
            store.before_the_next_command(acquire("user-a", [7; 16]));
        }
        let foreseen = json!({ "fence": mine + 1, "reason": "the other tab is at home" });
        let taken = cora.in_tab("two").post(&format!("{LOCK}/take-over"), foreseen).await;
        taken.refused(403, "not_allowed");
        assert_eq!(cora.get(LOCK).await.ok()["holder"]["id"], "user-a", "held before: {held_before}");
        house.end().await;
    }
}

/// With the lease id of another, which every other call refuses, a lock could be ended by withdrawing it.
#[tokio::test(start_paused = true)]
async fn nobody_withdraws_what_is_anothers() {
    let house = House::new();
    let (anna, ben, cora) = (house.user("user-a"), house.user("user-b"), house.user("user-c"));
    anna.post(LOCK, json!({ "lease_id": MINE })).await.ok();
    let path = format!("{LOCK}/request");
    ben.and("lease-id", MINE).delete(&path).await.refused(403, "not_holder");
    assert_eq!(ben.get(LOCK).await.ok()["holder"]["id"], "user-a");
    let asked = ben.post(&path, json!({ "fence": 1 })).await.ok()["lease_id"].as_str().unwrap().to_owned();
    cora.and("lease-id", &asked).delete(&path).await.refused(403, "not_holder");
    assert_eq!(anna.put(LOCK).await.ok()["request"]["by"]["id"], "user-b");
    assert_eq!(ben.and("lease-id", &asked).delete(&path).await.status, 204);
    assert_eq!(anna.and("lease-id", MINE).delete(&path).await.status, 204);
    assert_eq!(ben.get(LOCK).await.ok()["locked"], false);
}

/// A store that fails or hangs is the server's trouble, never the caller's: it is told when to come back, in time.
#[tokio::test(start_paused = true)]
async fn a_store_in_trouble_is_answered_with_when_to_come_back() {
    for trouble in [FAILING, HANGING] {
        let store = Troubled::new();
        let house = House::on(store.clone(), |_| {});
        let anna = house.user("user-a");
        let lease_id = anna.post(LOCK, Value::Null).await.ok()["lease_id"].clone();
        store.is_now(trouble);
        let start = Instant::now();
        let fence = json!({ "fence": 1, "reason": "why not" });
        let heartbeats = json!({ "locks": [{ "roomId": "minutes", "lease_id": lease_id }] });
        let answers = [
            anna.post(LOCK, Value::Null).await,
            anna.put(LOCK).await,
            anna.get(LOCK).await,
            anna.delete(LOCK).await,
            anna.get("/api/documents").await,
            anna.get("/readyz").await,
            anna.post(&format!("{LOCK}/check"), json!({ "fence": 1 })).await,
            anna.post(&format!("{LOCK}/request"), json!({ "fence": 1 })).await,
            anna.post(&format!("{LOCK}/take-over"), fence.clone()).await,
            anna.post(&format!("{LOCK}/force-release"), fence).await,
            anna.post(&format!("{LOCK}/resume"), json!({ "lease_id": lease_id })).await,
            anna.post(&format!("{LOCK}/release"), json!({ "lease_id": lease_id })).await,
            anna.call(Method::PUT, JOB, Some(json!({ "payload": 1 }).to_string())).await,
            anna.get(JOB).await,
            anna.post(&format!("{JOB}/acquire"), Value::Null).await,
            anna.post(&format!("{JOB}/refresh"), json!({ "lease_id": lease_id, "fence": 1 })).await,
            anna.post(&format!("{JOB}/release"), json!({ "lease_id": lease_id, "fence": 1 })).await,
            anna.post(&format!("{JOB}/complete"), json!({ "lease_id": lease_id, "fence": 1, "result": 1 }))
                .await,
            anna.post(&format!("{JOB}/fail"), json!({ "lease_id": lease_id, "fence": 1, "error": "no" }))
                .await,
            anna.post(&format!("{JOB}/reset"), Value::Null).await,
        ];
        for answer in &answers {
            answer.refused(503, "unavailable");
            assert!(answer.headers.contains_key("retry-after"));
        }
        let beats = anna.post("/api/documents/heartbeat", heartbeats.clone()).await.ok();
        assert_eq!(beats["locks"][0]["code"], "unavailable");
        assert!(
            start.elapsed() < Duration::from_secs(5 * (answers.len() as u64 + 2)),
            "{:?}",
            start.elapsed()
        );
        store.is_now(WELL);
        assert_eq!(anna.get("/readyz").await.bytes, "ready\n");
        house.end().await;
    }
}

/// A server whose disk was full, or whose database had become read-only, said that it was ready: it could read.
#[tokio::test(start_paused = true)]
async fn a_server_is_not_ready_while_its_store_can_only_be_read() {
    let store = Troubled::new();
    let house = House::on(store.clone(), |_| {});
    let anna = house.user("user-a");
    assert_eq!(anna.get("/readyz").await.bytes, "ready\n");
    store.is_now(READ_ONLY);
    pass(1).await;
    assert_eq!(anna.get(LOCK).await.ok()["locked"], false, "it can be read");
    anna.get("/readyz").await.refused(503, "unavailable");
    store.is_now(WELL);
    assert_eq!(anna.get("/readyz").await.bytes, "ready\n");
    // Asked often it writes once a second, and asked rarely its lease has run out in between.
    let position = store.now_at().await;
    for _ in 0..200 {
        assert_eq!(anna.get("/readyz").await.bytes, "ready\n");
    }
    pass(30).await;
    assert_eq!(anna.get("/readyz").await.bytes, "ready\n");
    assert_eq!(store.now_at().await, position, "nothing was published");
    pass(600).await;
    assert_eq!(anna.get("/readyz").await.bytes, "ready\n");
    house.end().await;
}

/// Sweeping asked the store without listening for the end: a server whose store hung never finished its shutdown.
#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_store_that_hangs() {
    let audit = tempfile::tempdir().unwrap();
    for at in ["the start", "work"] {
        let store = Troubled::new();
        if at == "the start" {
            store.is_now(HANGING);
        }
        let house = House::on(store.clone(), |config| config.audit = Some(audit.path().join(at)));
        if at == "work" {
            house.user("user-a").post(LOCK, Value::Null).await.ok();
            store.is_now(HANGING);
        }
        pass(61).await;
        let ended = tokio::time::timeout(Duration::from_secs(10), house.end()).await;
        assert!(ended.is_ok(), "the store hung at {at}");
    }
}

/// A stream that could not get its snapshot tried again for ever, whatever happened to the server or to its token.
#[tokio::test(start_paused = true)]
async fn a_stream_without_a_store_waits_for_it_and_still_ends_in_time() {
    for trouble in [FAILING, HANGING] {
        for path in [EVENTS, "/api/events"] {
            let store = Troubled::new();
            let house = House::on(store.clone(), |_| {});
            let anna = house.user("user-a");
            anna.post(LOCK, Value::Null).await.ok();
            store.is_now(trouble);
            let (mut events, mut ended) = (anna.listen(path).await, anna.listen(path).await);
            let waited = tokio::time::timeout(Duration::from_secs(60), events.next()).await;
            assert!(waited.is_err(), "{path}: nothing is known");
            store.is_now(WELL);
            let snapshot = events.next().await.unwrap();
            assert_eq!(snapshot.event, "snapshot", "{path}");
            store.is_now(trouble);
            house.end().await;
            for stream in [&mut events, &mut ended] {
                let mut last = None;
                let ending = async {
                    while let Some(heard) = stream.next().await {
                        last = Some(heard.event);
                    }
                };
                tokio::time::timeout(Duration::from_secs(1), ending).await.unwrap();
                assert_eq!(last.as_deref(), Some("end"), "{path}");
            }
        }
    }
}

/// What the store did while nobody could follow it is told once it is back.
#[tokio::test(start_paused = true)]
async fn law_09_events_are_told_once_the_store_is_back() {
    let store = Troubled::new();
    let house = House::on(store.clone(), |_| {});
    let anna = house.user("user-a");
    let mut events = anna.listen(EVENTS).await;
    assert_eq!(events.next().await.unwrap().event, "snapshot");
    store.is_now(FAILING);
    let key = Key::parse("doc/minutes").unwrap();
    for number in 1..=3 {
        store.store.apply(&key, acquire("user-a", [number; 16])).await.unwrap();
        let lease_id = LeaseId::from_random([number; 16]);
        let owner = Owner::parse("user-a").unwrap();
        store.store.apply(&key, Command::Withdraw { lease_id, owner }).await.unwrap();
    }
    pass(5).await;
    store.is_now(WELL);
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(events.next().await.unwrap().id.unwrap());
    }
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
}
