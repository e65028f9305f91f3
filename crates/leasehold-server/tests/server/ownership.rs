//! Whose lock a call is about: decided by the store, in the one call that each request makes of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold_core::{Command, JobCommand, Key, LeaseId, Position, StoreTime, TabId};
use leasehold_store::{
    Applied, Feed, JobApplied, JobStore, Memory, Page, Range, Reading, Result, Settled, Store,
};
use serde_json::{Value, json};

use crate::harness::{Answer, House, User};

const LOCK: &str = "/api/documents/minutes/lock";
const JOB: &str = "/api/jobs/analyses/42";
const LEASE: &str = "/api/leases/nightly";
const MINE: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const OTHER: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/// Counts what is asked of a store, other than by the server itself in the background.
#[derive(Default)]
struct Counting {
    store: Memory,
    calls: AtomicU64,
    /// What another caller does right before the next command.
    first: Mutex<Option<Command>>,
}

impl Counting {
    fn count(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    fn taken(&self) -> u64 {
        self.calls.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl JobStore for Counting {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        self.count();
        let first = self.first.lock().unwrap().take();
        if let Some(first) = first {
            self.store.apply(key, first).await?;
        }
        self.store.apply(key, command).await
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        self.count();
        self.store.read(key).await
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        self.count();
        self.store.apply_job(key, command).await
    }
}

#[async_trait]
impl Store for Counting {
    async fn now(&self) -> Result<StoreTime> {
        self.store.now().await
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        self.count();
        self.store.list(range).await
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        self.store.events(after, limit).await
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        self.store.settle_due(limit).await
    }
}

/// A server whose store counts its calls.
struct Counted {
    house: House,
    store: Arc<Counting>,
}

impl Counted {
    fn new() -> Self {
        let store = Arc::new(Counting::default());
        Self { house: House::on(store.clone(), |_| {}), store }
    }

    fn user(&self, name: &str) -> User {
        self.house.user_with(name, json!({ "*": "lock" }))
    }

    /// The answer to one request, which was one call of the store.
    #[track_caller]
    fn one<'a>(&'a self, what: &'a str, answer: Answer) -> Answer {
        assert_eq!(self.store.taken(), 1, "calls of the store for {what}");
        answer
    }
}

/// Every request about a lock, a job or a lease is one call of the store, whatever comes of it: by tab, by lease id, by the wrong
/// caller, and where there is no lock.
#[tokio::test(start_paused = true)]
async fn each_request_is_one_call_of_the_store() {
    let counted = Counted::new();
    let (anna, ben) = (counted.user("user-a"), counted.user("user-b"));
    let (one, other) = (anna.in_tab("one"), anna.in_tab("two"));
    let path = |rest: &str| format!("{LOCK}{rest}");
    counted.one("renew of nothing", one.put(LOCK).await).refused(404, "lock_not_found");
    counted.one("release of nothing", one.delete(LOCK).await).refused(404, "lock_not_found");
    let lock = counted.one("lock", one.post(LOCK, Value::Null).await).ok();
    let again = counted.one("lock again", one.post(LOCK, Value::Null).await).ok();
    assert_eq!((&lock["lease_id"], &lock["fence"]), (&again["lease_id"], &again["fence"]));
    let id = lock["lease_id"].as_str().unwrap();
    counted.one("renew by tab", one.put(LOCK).await).ok();
    counted.one("renew by lease id", anna.and("lease-id", id).put(LOCK).await).ok();
    counted.one("renew from another tab", other.put(LOCK).await).refused(403, "not_holder");
    counted.one("renew by another", ben.put(LOCK).await).refused(403, "not_holder");
    let stolen = ben.and("lease-id", id);
    counted.one("renew by a thief", stolen.put(LOCK).await).refused(403, "not_holder");
    counted.one("release by a thief", stolen.delete(LOCK).await).refused(403, "not_holder");
    let resume = json!({ "lease_id": id, "next_lease_id": OTHER });
    counted
        .one("resume by a thief", ben.post(&path("/resume"), resume.clone()).await)
        .refused(403, "not_holder");
    let held = counted.one("lock from another tab", other.post(LOCK, Value::Null).await).refused(409, "held");
    assert_eq!(held["same_user"], true, "{held}");
    let held = counted.one("lock by another", ben.post(LOCK, Value::Null).await).refused(409, "held");
    assert_eq!(held["same_user"], false, "{held}");
    counted.one("look", one.get(LOCK).await).ok();
    counted.one("soft release", anna.post(&path("/release"), json!({ "lease_id": id })).await).ok();
    counted
        .one("soft release of another's", ben.post(&path("/release"), json!({ "lease_id": MINE })).await)
        .refused(404, "lock_not_found");
    for _ in 0..2 {
        let back = counted.one("resume", anna.post(&path("/resume"), resume.clone()).await).ok();
        assert_eq!((&back["lease_id"], &back["fence"]), (&json!(OTHER), &lock["fence"]));
    }
    counted.one("renew by tab after a resume", one.put(LOCK).await).ok();
    let fence = lock["fence"].as_u64().unwrap();
    let take = json!({ "fence": fence, "reason": "I moved" });
    counted
        .one("take-over by another", ben.post(&path("/take-over"), take.clone()).await)
        .refused(403, "not_allowed");
    counted.one("take-over from another tab", other.post(&path("/take-over"), take).await).ok();
    counted.one("renew by the old tab", one.put(LOCK).await).refused(403, "not_holder");
    counted.one("release", other.delete(LOCK).await).ok();
    counted.one("release again", other.delete(LOCK).await).refused(404, "lock_not_found");
    counted.house.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_request_about_a_hand_over_is_one_call_of_the_store() {
    let counted = Counted::new();
    let (anna, ben, cora) = (counted.user("user-a"), counted.user("user-b"), counted.user("user-c"));
    let path = |rest: &str| format!("{LOCK}/request{rest}");
    for hand_over in [false, true] {
        let lock = counted.one("lock", anna.post(LOCK, Value::Null).await).ok();
        let ask = json!({ "fence": lock["fence"] });
        let asked = counted.one("request", ben.in_tab("b").post(&path(""), ask.clone()).await).ok();
        counted
            .one("request by a third", cora.post(&path(""), ask).await)
            .refused(409, "requested_by_another");
        let request = asked["request"]["id"].clone();
        let told = json!({ "request": request });
        let answer = json!({ "request": request, "hand_over": hand_over });
        for (user, code) in [(&cora, "not_holder"), (&ben, "not_holder")] {
            counted.one("told by another", user.post(&path("/told"), told.clone()).await).refused(403, code);
            counted
                .one("answer by another", user.post(&path("/answer"), answer.clone()).await)
                .refused(403, code);
        }
        let asked_id = asked["lease_id"].as_str().unwrap();
        counted
            .one("withdrawal by another", cora.and("lease-id", asked_id).delete(&path("")).await)
            .refused(403, "not_holder");
        counted.one("told", anna.post(&path("/told"), told.clone()).await).ok();
        let answered = counted.one("answer", anna.post(&path("/answer"), answer.clone()).await).ok();
        assert_eq!(answered["handed_over"], hand_over);
        let holder = if hand_over { "user-b" } else { "user-a" };
        assert_eq!(answered["holder"], json!({ "id": holder, "name": holder }));
        let late = counted.one("answer twice", anna.post(&path("/answer"), answer).await);
        late.refused(if hand_over { 403 } else { 404 }, if hand_over { "not_holder" } else { "no_request" });
    }
    counted.one("renew in the tab that asked", ben.in_tab("b").put(LOCK).await).ok();
    counted.one("renew in another tab", ben.put(LOCK).await).refused(403, "not_holder");
    counted.one("release", ben.in_tab("b").delete(LOCK).await).ok();
    counted
        .one("answer to nothing", anna.post(&path("/told"), json!({ "request": 1 })).await)
        .refused(404, "lock_not_found");
    counted.one("withdrawal", anna.and("lease-id", MINE).delete(&path("")).await).ok();
    counted.house.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_request_about_a_job_is_one_call_of_the_store() {
    let counted = Counted::new();
    let worker = counted.house.worker_with("worker-1", json!({ "*": "lock" }));
    let other = counted.house.worker_with("worker-2", json!({ "*": "lock" }));
    let made = worker.call(axum::http::Method::PUT, JOB, Some(r#"{"payload":1}"#.into())).await;
    counted.one("create", made).ok();
    let path = |rest: &str| format!("{JOB}/{rest}");
    let got = counted.one("acquire", worker.post(&path("acquire"), json!({ "lease_id": MINE })).await).ok();
    let attempt = json!({ "lease_id": MINE, "fence": got["fence"] });
    let done = json!({ "lease_id": MINE, "fence": got["fence"], "result": 42 });
    let failed = json!({ "lease_id": MINE, "fence": got["fence"], "error": "no" });
    for (call, body) in [("refresh", &attempt), ("release", &attempt), ("complete", &done), ("fail", &failed)]
    {
        let answer = other.post(&path(call), body.clone()).await;
        counted.one(call, answer).refused(403, "not_holder");
    }
    counted.one("refresh", worker.post(&path("refresh"), attempt).await).ok();
    for _ in 0..2 {
        counted.one("complete", worker.post(&path("complete"), done.clone()).await).ok();
    }
    counted.house.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_request_about_a_lease_is_one_call_of_the_store() {
    let counted = Counted::new();
    let program = counted.house.program_with("cron-1", json!({ "*": "lock" })).and("lease-id", MINE);
    let other = counted.house.program_with("cron-2", json!({ "*": "lock" })).and("lease-id", OTHER);
    let cancel = format!("{LEASE}/cancel");
    counted.one("look", program.get(LEASE).await).ok();
    counted.one("renew of nothing", program.put(LEASE).await).refused(404, "lease_not_found");
    counted.one("acquire", program.post(LEASE, Value::Null).await).ok();
    counted.one("acquire again", program.post(LEASE, Value::Null).await).ok();
    counted.one("acquire by another", other.post(LEASE, Value::Null).await).refused(409, "held");
    counted.one("renew", program.put(LEASE).await).ok();
    counted.one("renew by another", other.put(LEASE).await).refused(403, "not_holder");
    counted.one("release by another", other.delete(LEASE).await).refused(403, "not_holder");
    counted.one("cancel of nothing", other.post(&cancel, Value::Null).await).ok();
    counted.one("release", program.delete(LEASE).await).ok();
    counted.one("acquire of what is over", program.post(LEASE, Value::Null).await).refused(410, "lease_over");
    counted.house.end().await;
}

#[tokio::test(start_paused = true)]
async fn many_renewals_are_one_call_of_the_store_each() {
    let counted = Counted::new();
    let (anna, ben) = (counted.user("user-a"), counted.user("user-b"));
    for (user, room, id) in [(&anna, "a", MINE), (&ben, "b", OTHER)] {
        user.post(&format!("/api/documents/{room}/lock"), json!({ "lease_id": id })).await.ok();
    }
    counted.store.taken();
    let lock = |room: &str, id: &str| json!({ "roomId": room, "lease_id": id });
    let locks = json!({ "locks": [lock("a", MINE), lock("b", OTHER), lock("c", OTHER), lock("a", OTHER)] });
    let answer = anna.post("/api/documents/heartbeat", locks).await.ok();
    let statuses: Vec<_> = answer["locks"].as_array().unwrap().iter().map(|lock| &lock["status"]).collect();
    assert_eq!(statuses, [200, 403, 404, 403]);
    assert_eq!(counted.store.taken(), 4);
    counted.house.end().await;
}

/// A renewal without a lease id read the lock, copied the lease id and the fence out of it, and sent those back: the rules
/// compared the store with itself. Whose lock it was had been decided on what was there before.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_overtaken_is_decided_on_what_is_there_then() {
    for (method, status) in [("PUT", 403), ("DELETE", 403), ("POST", 409)] {
        let counted = Counted::new();
        let anna = counted.user("user-a").in_tab("one");
        let fence = anna.post(LOCK, Value::Null).await.ok()["fence"].as_u64().unwrap();
        let bid = leasehold_core::lease::Bid {
            lease_id: LeaseId::parse(OTHER).unwrap(),
            owner: leasehold_core::Owner::parse("user-a").unwrap(),
            tab: Some(TabId::parse("two").unwrap()),
            ttl: leasehold_core::Ttl::from_secs(30).unwrap(),
            meta: leasehold_core::Meta::default(),
        };
        *counted.store.first.lock().unwrap() = Some(Command::TakeOver {
            seen: leasehold_core::Fence::new(fence).unwrap(),
            bid,
            reason: leasehold_core::Reason::default(),
            right: leasehold_core::Right::SameOwner,
        });
        let answer = anna.call(method.parse().unwrap(), LOCK, None).await;
        assert_eq!(answer.status, status, "{method} {:?}", answer.bytes);
        let look = counted.user("user-a").get(LOCK).await.ok();
        assert_eq!(look["fence"], fence + 1, "the lock of the other tab is as it was: {look}");
        counted.house.end().await;
    }
}
