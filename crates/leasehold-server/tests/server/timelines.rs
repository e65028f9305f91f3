//! The scenarios and timelines of *Document lock* 5 and *Document lock* 7 (`docs/sources.md`), to the second, with callers that know nothing
//! but HTTP.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{House, Listening, User, pass};
use crate::socket_page::Page;

const LOCK: &str = "/api/documents/minutes/lock";

/// The time of day at which the lock runs out, as the answer says it.
fn expires(answer: &Value) -> String {
    answer["expires_at"].as_str().unwrap().trim_start_matches("2026-01-01T").trim_end_matches('Z').to_owned()
}

/// A watcher of each kind, server-sent events and a WebSocket: both hear the same, in the same second.
struct Watchers {
    stream: Listening,
    page: Page,
}

impl Watchers {
    async fn of(house: &House, user: &User) -> Self {
        let stream = user.listen("/api/documents/minutes/events?last_event_id=0").await;
        Self { stream, page: house.watching(user, "private-document.minutes").await }
    }

    async fn next_at(&mut self, start: Instant) -> (String, u64) {
        let heard = self.stream.next_at(start).await;
        let mut got = self.page.next_at(start).await;
        while got.0 == "pusher:ping" {
            self.page.send(json!({ "event": "pusher:pong", "data": {} })).await;
            got = self.page.next_at(start).await;
        }
        assert_eq!(got, heard);
        heard
    }
}

async fn acquire(user: &User) -> String {
    expires(&user.post(LOCK, Value::Null).await.ok())
}

async fn heartbeat(user: &User) -> String {
    expires(&user.put(LOCK).await.ok())
}

#[tokio::test(start_paused = true)]
async fn section_5_the_timeline_of_a_lock() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut snapshot = ben.listen("/api/documents/minutes/events").await;
    let mut events = Watchers::of(&house, &ben).await;
    let start = Instant::now();
    assert_eq!(snapshot.next_at(start).await, ("snapshot".into(), 0));
    // 12:00:00
    assert_eq!(acquire(&anna).await, "12:00:30");
    assert_eq!(events.next_at(start).await, ("DocumentLocked".into(), 0));
    for expected in ["12:00:40", "12:00:50", "12:01:00"] {
        pass(10).await;
        assert_eq!(heartbeat(&anna).await, expected);
    }
    // 12:00:40 the browser is closed; 12:01:00 it is over, and everybody hears of it at once.
    assert_eq!(events.next_at(start).await, ("DocumentUnlocked expired".into(), 60));
    assert_eq!(anna.put(LOCK).await.code(), (404, "lock_not_found".into()));
    assert_eq!(acquire(&ben).await, "12:01:30");
}

#[tokio::test(start_paused = true)]
async fn scenario_1_as_long_as_heartbeats_come_the_lock_is_kept() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let fence = anna.post(LOCK, Value::Null).await.ok()["fence"].clone();
    for _ in 0..360 {
        pass(10).await;
        assert_eq!(anna.put(LOCK).await.ok()["fence"], fence);
        ben.post(LOCK, Value::Null).await.refused(409, "held");
    }
}

#[tokio::test(start_paused = true)]
async fn scenario_2_a_closed_browser_loses_its_lock_30_seconds_after_its_last_heartbeat() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut events = Watchers::of(&house, &ben).await;
    let start = Instant::now();
    assert_eq!(acquire(&anna).await, "12:00:30");
    assert_eq!(events.next_at(start).await, ("DocumentLocked".into(), 0));
    pass(10).await;
    assert_eq!(heartbeat(&anna).await, "12:00:40");
    pass(10).await;
    assert_eq!(heartbeat(&anna).await, "12:00:50");
    // 12:00:30 the browser is closed: 20 seconds later the lock is gone.
    assert_eq!(events.next_at(start).await, ("DocumentUnlocked expired".into(), 50));
}

#[tokio::test(start_paused = true)]
async fn scenario_3_heartbeats_that_fail_end_the_lock_30_seconds_after_the_last_good_one() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut events = Watchers::of(&house, &ben).await;
    let start = Instant::now();
    assert_eq!(acquire(&anna).await, "12:00:30");
    assert_eq!(events.next_at(start).await, ("DocumentLocked".into(), 0));
    pass(10).await;
    assert_eq!(heartbeat(&anna).await, "12:00:40");
    // The heartbeats of 12:00:20 and 12:00:30 never arrive.
    pass(29).await;
    assert_eq!(house.user("user-c").get(LOCK).await.ok()["locked"], true);
    assert_eq!(events.next_at(start).await, ("DocumentUnlocked expired".into(), 40));
    assert_eq!(house.user("user-c").get(LOCK).await.ok()["locked"], false);
}

#[tokio::test(start_paused = true)]
async fn expired_means_expired_whether_or_not_anybody_has_swept() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let first = anna.post(LOCK, Value::Null).await.ok()["fence"].as_u64().unwrap();
    // Time passes without a single turn of the runtime, and so without the sweeper.
    tokio::time::advance(std::time::Duration::from_secs(30)).await;
    assert_eq!(anna.put(LOCK).await.code(), (404, "lock_not_found".into()));
    let second = ben.post(LOCK, Value::Null).await.ok()["fence"].as_u64().unwrap();
    assert!(second > first);
}

#[tokio::test(start_paused = true)]
async fn a_reloaded_page_has_its_lock_again_and_a_closed_one_frees_it_after_5_seconds() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut events = Watchers::of(&house, &ben).await;
    let start = Instant::now();
    let grant = anna.post(LOCK, Value::Null).await.ok();
    assert_eq!(events.next_at(start).await, ("DocumentLocked".into(), 0));
    let leave = json!({ "lease_id": grant["lease_id"] });
    // sendBeacon: no token, and no JSON content type.
    let beacon = house.stranger().and("content-type", "text/plain;charset=UTF-8");
    let answer =
        beacon.call(axum::http::Method::POST, &format!("{LOCK}/release"), Some(leave.to_string())).await;
    assert_eq!(answer.ok(), json!({ "expires_in_ms": 5_000 }));
    assert_eq!(events.next_at(start).await, ("DocumentLeaving".into(), 0));
    pass(4).await;
    let back = anna.post(&format!("{LOCK}/resume"), leave.clone()).await.ok();
    assert_eq!((&back["fence"], back["expires_in_ms"].as_u64()), (&grant["fence"], Some(30_000)));
    assert_ne!(back["lease_id"], grant["lease_id"], "it is rotated");
    assert_eq!(events.next_at(start).await, ("DocumentResumed".into(), 4));
    // A copy of the tab comes with the old lease id.
    anna.post(&format!("{LOCK}/resume"), leave.clone()).await.refused(403, "not_holder");
    anna.post(&format!("{LOCK}/release"), leave).await.refused(404, "lock_not_found");
    // This time the page does not come back.
    let leave = json!({ "lease_id": back["lease_id"] });
    house.stranger().post(&format!("{LOCK}/release"), leave).await.ok();
    assert_eq!(events.next_at(start).await, ("DocumentLeaving".into(), 4));
    assert_eq!(events.next_at(start).await, ("DocumentUnlocked disconnected".into(), 9));
}

#[tokio::test(start_paused = true)]
async fn a_resume_whose_answer_got_lost_can_be_repeated() {
    let house = House::new();
    let anna = house.user("user-a");
    let grant = anna.post(LOCK, Value::Null).await.ok();
    let next = "0f8fad5b-d9cb-469f-a165-70867728950e";
    let resume = json!({ "lease_id": grant["lease_id"], "next_lease_id": next });
    for _ in 0..2 {
        let back = anna.post(&format!("{LOCK}/resume"), resume.clone()).await.ok();
        assert_eq!((back["lease_id"].as_str(), &back["fence"]), (Some(next), &grant["fence"]));
    }
}
