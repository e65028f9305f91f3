//! The server on stores that last: a file, and a PostgreSQL that two servers share.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use leasehold_core::lease::Bid;
use leasehold_core::{Command, Key, LeaseId, Meta, Owner, Ttl};
use leasehold_server::Config;
use leasehold_store::clock::{ManualClock, unix_millis};
use leasehold_store::{Embedded, JobStore, Limits, Memory, Postgres, Store};
use serde_json::{Value, json};

use crate::harness::{House, User};
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
    // Nobody needs the snapshot of a hundred thousand locks here: of the last one it has the same place to resume from.
    let only_the_last = house.user_with("user-b", json!({ format!("d{}", LOCKS - 1): "read" }));
    let last = only_the_last.listen("/api/events").await.next().await.unwrap().id.unwrap();
    let listening = tokio::spawn(hear_all(anna.clone(), last, LOCKS));
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

/// Listens until it knows of every lock that it is over: from its event, which comes once, or from a snapshot without it.
async fn hear_all(listener: User, mut last: u64, locks: u64) {
    let number = |state: &Value| state["roomId"].as_str().unwrap()[1..].parse::<u64>().unwrap();
    let (mut heard_of, mut over) = (HashSet::new(), HashSet::new());
    while over.len() < locks as usize {
        let mut events = listener.and("last-event-id", &last.to_string()).listen("/api/events").await;
        let mut locked = HashSet::new();
        while let Some(heard) = events.next().await {
            match heard.event.as_str() {
                "DocumentUnlocked" => {
                    assert!(heard_of.insert(number(&heard.data)), "twice: {heard:?}");
                    over.insert(number(&heard.data));
                }
                "snapshot" => {
                    locked.extend(heard.data["documents"].as_array().unwrap().iter().map(number));
                    if heard.data["more"] == false {
                        over.extend((0..locks).filter(|lock| !locked.contains(lock)));
                    }
                }
                _ => assert_eq!(heard.data["reason"], "too_slow"),
            }
            last = heard.id.unwrap_or(last);
            if over.len() == locks as usize {
                break;
            }
        }
    }
}

/// It was made anew for each answer, of the wall clock and of the time that was left: two answers about one lease differed by as
/// long as they had been on their way, and on two servers by as much as their clocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expires_at_reads_the_same_in_every_answer_until_it_is_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let file: Arc<dyn Store> = Arc::new(Embedded::open(folder.path().join("leases.db")).unwrap());
    // The wall clocks of two servers are never quite the same.
    let right = |config: &mut Config| config.wall_clock = Arc::new(unix_millis);
    let late = |config: &mut Config| config.wall_clock = Arc::new(|| unix_millis() + 1_000);
    reads_the_same(&[&House::on(file, right)]).await;
    let Some(postgres) = postgres_server::server() else { return };
    let url = postgres.url(&postgres.create_database().await);
    let open = || Arc::new(Postgres::open(&url).unwrap());
    reads_the_same(&[&House::on(open(), right), &House::on(open(), late)]).await;
}

/// Asks all of these servers for one lock, in every way.
async fn reads_the_same(houses: &[&House]) {
    let first = houses[0].user("user-a");
    let mut last = None;
    for renewal in 0..2 {
        let grant = match renewal {
            0 => first.post(LOCK, Value::Null).await.ok(),
            _ => first.put(LOCK).await.ok(),
        };
        let expected = grant["expires_at"].as_str().unwrap().to_owned();
        let due = expected.parse::<jiff::Timestamp>().unwrap().as_millisecond();
        let now = i64::try_from(unix_millis()).unwrap();
        assert!((now + 20_000..=now + 31_000).contains(&due), "{expected}");
        for house in houses {
            for _ in 0..3 {
                let (anna, ben) = (house.user("user-a"), house.user("user-b"));
                let mut told = vec![
                    ben.get(LOCK).await.ok()["expires_at"].clone(),
                    ben.post(LOCK, Value::Null).await.refused(409, "held")["expires_at"].clone(),
                    ben.get("/api/documents").await.ok()["documents"][0]["expires_at"].clone(),
                    anna.listen(EVENTS).await.next().await.unwrap().data["expires_at"].clone(),
                ];
                let all = anna.listen("/api/events").await.next().await.unwrap();
                told.push(all.data["documents"][0]["expires_at"].clone());
                assert_eq!(told, vec![json!(expected); 5]);
                tokio::time::sleep(Duration::from_millis(7)).await;
            }
        }
        assert_ne!(last.replace(expected.clone()), Some(expected), "a renewal moves it");
    }
}
