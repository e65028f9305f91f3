//! The server on stores that last: a file, and a PostgreSQL that two servers share.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use leasehold_core::lease::Bid;
use leasehold_core::{Command, Key, LeaseId, Meta, Owner, Ttl};
use leasehold_store::clock::ManualClock;
use leasehold_store::{Embedded, JobStore, Limits, Memory, Postgres};
use serde_json::{Value, json};

use crate::harness::House;
use crate::postgres_server;

const LOCK: &str = "/api/documents/minutes/lock";
const EVENTS: &str = "/api/documents/minutes/events";

#[tokio::test]
async fn a_restart_on_a_file_takes_no_lock_from_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let open = || House::on(Arc::new(Embedded::open(folder.path().join("leases.db")).unwrap()), |_| {});
    let house = open();
    let grant = house.user("user-a").post(LOCK, Value::Null).await.ok();
    house.shut_down().await;
    let house = open();
    let state = house.user("user-b").get(LOCK).await.ok();
    assert_eq!((&state["locked"], &state["fence"]), (&json!(true), &grant["fence"]));
    assert_eq!(house.user("user-a").put(LOCK).await.ok()["fence"], grant["fence"]);
    // Whoever listened before goes on where it was, without a snapshot.
    let mut events = house.user("user-b").and("last-event-id", "0").listen(EVENTS).await;
    assert_eq!(events.next().await.unwrap().event, "DocumentLocked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_a_postgresql_and_one_of_them_may_go() {
    let Some(postgres) = postgres_server::server() else { return };
    let url = postgres.url(&postgres.create_database().await);
    let open = || House::on(Arc::new(Postgres::open(&url).unwrap()), |_| {});
    let (one, two) = (open(), open());
    let mut events = two.user("user-b").listen(EVENTS).await;
    assert_eq!(events.next().await.unwrap().event, "snapshot");
    let grant = one.user("user-a").post(LOCK, Value::Null).await.ok();
    assert_eq!(events.next().await.unwrap().data["fence"], grant["fence"]);
    two.user("user-b").post(LOCK, Value::Null).await.refused(409, "held");
    one.shut_down().await;
    assert_eq!(two.user("user-a").put(LOCK).await.ok()["fence"], grant["fence"]);
    let body = json!({ "fence": grant["fence"], "reason": "the other server is gone" });
    let taken = two.user("user-b").post(&format!("{LOCK}/take-over"), body).await.ok();
    assert!(taken["fence"].as_u64() > grant["fence"].as_u64());
    let (ended, granted) = (events.next().await.unwrap(), events.next().await.unwrap());
    assert_eq!((&ended.data["reason"], &granted.data["fence"]), (&json!("taken_over"), &taken["fence"]));
    assert_eq!(granted.id, ended.id.map(|id| id + 1));
}

#[tokio::test]
async fn a_restart_on_a_file_takes_no_job_from_anybody_and_forgets_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let open = || House::on(Arc::new(Embedded::open(folder.path().join("leases.db")).unwrap()), |_| {});
    let house = open();
    let (create, acquire) = (JOB, format!("{JOB}/acquire"));
    let body = json!({ "payload": { "text": "a\0b会議" } });
    house.user("user-a").call(Method::PUT, create, Some(body.to_string())).await.ok();
    let grant = house.user("user-a").post(&acquire, Value::Null).await.ok();
    house.shut_down().await;
    let house = open();
    assert_eq!(house.user("user-b").post(&acquire, Value::Null).await.ok()["reason"], "locked");
    finish_job(&house, &grant).await;
    house.shut_down().await;
    let refused = open().user("user-b").post(&acquire, Value::Null).await.ok();
    assert_eq!((&refused["reason"], &refused["result"]), (&json!("already_finished"), &json!(["a\0b会議"])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_on_a_postgresql_give_a_job_to_one_worker() {
    let Some(postgres) = postgres_server::server() else { return };
    let url = postgres.url(&postgres.create_database().await);
    let open = || House::on(Arc::new(Postgres::open(&url).unwrap()), |_| {});
    let (one, two) = (open(), open());
    let (anna, ben) = (one.user("user-a"), two.user("user-b"));
    let body = json!({ "payload": { "text": "a\0b会議" } }).to_string();
    let (first, second) = tokio::join!(
        anna.call(Method::PUT, JOB, Some(body.clone())),
        ben.call(Method::PUT, JOB, Some(body.clone()))
    );
    let mut statuses = [first.status.as_u16(), second.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 201]);
    let acquire = format!("{JOB}/acquire");
    let (first, second) = tokio::join!(anna.post(&acquire, Value::Null), anna.post(&acquire, Value::Null));
    let answers = [first.ok(), second.ok()];
    let grant = answers.iter().find(|answer| answer["acquired"] == true).unwrap();
    assert_eq!(answers.iter().filter(|answer| answer["acquired"] == true).count(), 1);
    assert_eq!(grant["payload"], json!({ "text": "a\0b会議" }));
    one.shut_down().await;
    assert_eq!(ben.post(&acquire, Value::Null).await.ok()["held"]["fence"], grant["fence"]);
    finish_job(&two, grant).await;
    assert_eq!(ben.get(JOB).await.ok()["result"], json!(["a\0b会議"]));
}

const JOB: &str = "/api/jobs/analyses/42";

async fn finish_job(house: &House, grant: &Value) {
    let body = json!({ "lease_id": grant["lease_id"], "fence": grant["fence"], "result": ["a\0b会議"] });
    assert_eq!(house.user("user-a").post(&format!("{JOB}/complete"), body).await.status, 204);
}

/// A server that was cut off from its holders sees all their locks run out at once. Whoever calls meanwhile does not wait
/// for that, and whoever listens hears of every single one, or is told that it was too slow and goes on where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_expiries_at_once_delay_nobody_and_are_lost_on_nobody() {
    const LOCKS: u64 = 100_000;
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(Memory::with(clock.clone(), Limits { leases_per_owner: u32::MAX }, 0));
    for number in 0..LOCKS {
        let mut lease_id = [0; 16];
        lease_id[..8].copy_from_slice(&number.to_be_bytes());
        let bid = Bid {
            tab: None,
            lease_id: LeaseId::from_random(lease_id),
            owner: Owner::parse("user-a").unwrap(),
            ttl: Ttl::from_secs(30).unwrap(),
            meta: Meta::new([]).unwrap(),
        };
        store.apply(&Key::parse(&format!("doc/d{number}")).unwrap(), Command::Acquire(bid)).await.unwrap();
    }
    let house = House::on(store, |_| {});
    let anna = house.user("user-a");
    // Nobody needs the snapshot of a hundred thousand locks here.
    let listener = anna.clone();
    let listening = tokio::spawn(async move {
        let mut last = LOCKS;
        while last < 2 * LOCKS {
            let mut events = listener.and("last-event-id", &last.to_string()).listen("/api/events").await;
            while let Some(heard) = events.next().await {
                match heard.event.as_str() {
                    "DocumentUnlocked" => assert_eq!(heard.id, Some(last + 1)),
                    "snapshot" => assert!(heard.id.is_none_or(|id| id > last), "{:?} {last}", heard.id),
                    _ => assert_eq!(heard.data["reason"], "too_slow"),
                }
                last = heard.id.unwrap_or(last);
                if last == 2 * LOCKS {
                    break;
                }
            }
        }
    });
    clock.advance(Duration::from_secs(31));
    let mut longest = Duration::ZERO;
    while !listening.is_finished() {
        let start = std::time::Instant::now();
        anna.get("/api/documents/other/lock").await.ok();
        longest = longest.max(start.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    listening.await.unwrap();
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    house.end().await;
}
