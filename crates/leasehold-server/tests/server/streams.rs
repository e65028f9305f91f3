//! Event streams: in order, without gaps, resumed where they broke off, and ended with a reason.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{House, Listening, far_away, pass, token};

const LOCK: &str = "/api/documents/minutes/lock";
const EVENTS: &str = "/api/documents/minutes/events";

async fn names(events: &mut Listening, count: usize) -> Vec<(String, u64)> {
    let mut names = Vec::new();
    for _ in 0..count {
        let heard = events.next().await.unwrap();
        names.push((heard.event, heard.id.unwrap()));
    }
    names
}

fn named(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stream_begins_with_a_snapshot_and_tells_everything() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let grant = anna.post(LOCK, Value::Null).await.ok();
    let mut events = ben.listen(EVENTS).await;
    let snapshot = events.next().await.unwrap();
    assert_eq!(
        (snapshot.event.as_str(), snapshot.id, &snapshot.data["locked"]),
        ("snapshot", Some(1), &json!(true))
    );
    ben.post(&format!("{LOCK}/take-over"), json!({ "fence": 1, "reason": "deadline" })).await.ok();
    let ended = events.next().await.unwrap();
    assert_eq!(
        ended.data,
        json!({
            "event": "DocumentUnlocked", "roomId": "minutes", "seq": 2, "fence": 1, "reason": "taken_over",
            "holder": { "id": "user-a", "name": "user-a" }, "by": "user-b", "note": "deadline",
        })
    );
    let granted = events.next().await.unwrap();
    assert_eq!(
        granted.data,
        json!({
            "event": "DocumentLocked", "roomId": "minutes", "seq": 3, "fence": 2, "expires_in_ms": 30_000,
            "holder": { "id": "user-b", "name": "user-b" },
        })
    );
    anna.post(&format!("{LOCK}/force-release"), json!({ "fence": 2, "reason": "lunch" })).await.ok();
    let forced = events.next().await.unwrap();
    assert_eq!(
        forced.data,
        json!({
            "event": "DocumentUnlocked", "roomId": "minutes", "seq": 4, "fence": 2, "reason": "taken_over", "force_released": true,
            "holder": { "id": "user-b", "name": "user-b" }, "by": "user-a", "note": "lunch",
        }),
        "a forced release is no new reason, but nobody took the lock"
    );
    for heard in [snapshot, ended, granted, forced] {
        assert!(!heard.data.to_string().contains(grant["lease_id"].as_str().unwrap()));
    }
}

/// A page that follows a document has it open: who looks was known of pages on the presence channel alone.
#[tokio::test(start_paused = true)]
async fn who_follows_a_document_is_shown_as_looking_until_the_stream_ends() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let looking = async || anna.get("/api/documents/minutes/presence").await.ok()["looking"].clone();
    assert_eq!(looking().await, json!([]));
    let mut streams = vec![ben.listen(EVENTS).await, ben.listen(EVENTS).await];
    let all = ben.listen("/api/events").await;
    assert_eq!(looking().await, json!([{ "id": "user-b", "name": "user-b" }]));
    streams.pop();
    assert_eq!(
        looking().await,
        json!([{ "id": "user-b", "name": "user-b" }]),
        "another page of the same person"
    );
    streams.pop();
    assert_eq!(looking().await, json!([]), "a stream of all documents is no look at this one");
    drop(all);
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_holder_is_shown_also_when_it_leaves() {
    let house = House::new();
    let claims = json!({ "sub": "u1", "name": "Anna Å.", "documents": { "*": "lock" }, "exp": far_away() });
    let anna = house.stranger().and("authorization", &format!("Bearer {}", token(claims)));
    let mut events = anna.listen(EVENTS).await;
    events.next().await;
    anna.post(LOCK, Value::Null).await.ok();
    anna.delete(LOCK).await.ok();
    for expected in ["DocumentLocked", "DocumentUnlocked"] {
        let heard = events.next().await.unwrap();
        assert_eq!(
            (heard.event.as_str(), &heard.data["holder"]),
            (expected, &json!({ "id": "u1", "name": "Anna Å." }))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn law_09_a_stream_is_resumed_without_gap_or_repetition() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    for _ in 0..3 {
        anna.post(LOCK, Value::Null).await.ok();
        anna.delete(LOCK).await.ok();
    }
    anna.post("/api/documents/other/lock", Value::Null).await.ok();
    pass(1).await;
    for how in ["header", "query"] {
        let mut events = match how {
            "header" => ben.and("last-event-id", "2").listen(EVENTS).await,
            _ => ben.listen(&format!("{EVENTS}?last_event_id=2")).await,
        };
        let expected =
            [("DocumentLocked", 3), ("DocumentUnlocked", 4), ("DocumentLocked", 5), ("DocumentUnlocked", 6)];
        assert_eq!(names(&mut events, 4).await, named(&expected), "{how}");
        anna.post(LOCK, Value::Null).await.ok();
        assert_eq!(events.next().await.unwrap().data["event"], "DocumentLocked");
        anna.delete(LOCK).await.ok();
        house.user("user-c").post(LOCK, Value::Null).await.ok();
        house.user("user-c").delete(LOCK).await.ok();
        pass(60).await;
        if how == "header" {
            drop(events);
            break;
        }
    }
    // Nothing missed: no snapshot, only what comes.
    let last = ben.get(LOCK).await.ok()["seq"].as_u64().unwrap();
    let mut events = ben.and("last-event-id", &last.to_string()).listen(EVENTS).await;
    anna.post(LOCK, Value::Null).await.ok();
    assert_eq!(names(&mut events, 1).await, named(&[("DocumentLocked", last + 1)]));
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_from_another_history_gets_a_snapshot() {
    let house = House::new();
    let ben = house.user("user-b");
    house.user("user-a").post(LOCK, Value::Null).await.ok();
    for last in ["99", "nonsense", "-1"] {
        let mut events = ben.and("last-event-id", last).listen(EVENTS).await;
        let heard = events.next().await.unwrap();
        assert_eq!((heard.event.as_str(), heard.id), ("snapshot", Some(1)), "{last}");
        let mut events = ben.and("last-event-id", last).listen("/api/events").await;
        assert_eq!(events.next().await.unwrap().event, "snapshot", "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_stream_carries_all_that_the_caller_may_see() {
    let house = House::new();
    let anna = house.user("user-a");
    let some = house.user_with("user-b", json!({ "a.*": "read" }));
    for name in ["a.1", "b.1", "a.2"] {
        anna.post(&format!("/api/documents/{name}/lock"), Value::Null).await.ok();
    }
    let mut events = some.listen("/api/events").await;
    let snapshot = events.next().await.unwrap();
    let rooms: Vec<_> =
        snapshot.data["documents"].as_array().unwrap().iter().map(|state| state["roomId"].clone()).collect();
    assert_eq!((rooms, &snapshot.data["more"]), (vec![json!("a.1"), json!("a.2")], &json!(false)));
    for name in ["b.1", "a.1", "a.2"] {
        anna.delete(&format!("/api/documents/{name}/lock")).await.ok();
    }
    let first = events.next().await.unwrap();
    assert_eq!(
        (first.data["roomId"].as_str(), first.data["event"].as_str()),
        (Some("a.1"), Some("DocumentUnlocked"))
    );
    drop(events);
    let mut events = some.and("last-event-id", &first.id.unwrap().to_string()).listen("/api/events").await;
    assert_eq!(events.next().await.unwrap().data["roomId"], "a.2");
}

/// The ids of `/api/events` were positions in the store's feed: the gaps between them told how many events there had been that
/// the caller may not see, and so did the id of each new snapshot.
#[tokio::test(start_paused = true)]
async fn nobody_can_count_the_events_of_documents_that_they_may_not_see() {
    let mut seen = Vec::new();
    for others in [0, 1, 50] {
        let house = House::new();
        let anna = house.user("user-a");
        let some = house.user_with("user-b", json!({ "a.*": "read" }));
        let none = house.user_with("user-c", json!({ "c.*": "read" }));
        let act = async |name: &str| {
            anna.post(&format!("/api/documents/{name}/lock"), Value::Null).await.ok();
            anna.delete(&format!("/api/documents/{name}/lock")).await.ok();
        };
        let meanwhile = async || {
            for number in 0..others {
                act(&format!("b.{number}")).await;
            }
        };
        let mut told = Vec::new();
        let mut hear = async |events: &mut Listening| {
            let heard = events.next().await.unwrap();
            told.push((heard.event, heard.id, heard.data));
        };
        act("a.1").await;
        meanwhile().await;
        let (mut events, mut nothing) = (some.listen("/api/events").await, none.listen("/api/events").await);
        hear(&mut events).await;
        hear(&mut nothing).await;
        act("a.2").await;
        meanwhile().await;
        act("a.1").await;
        for _ in 0..4 {
            hear(&mut events).await;
        }
        meanwhile().await;
        hear(&mut some.listen("/api/events").await).await;
        hear(&mut none.listen("/api/events").await).await;
        for (_, _, data) in &mut told {
            // Of the documents that they may see; and fences are compared within a document.
            data.as_object_mut().unwrap().remove("fence");
        }
        // Nothing comes for the others, not even a comment.
        let silence = tokio::time::timeout(std::time::Duration::from_secs(10), nothing.next()).await;
        assert!(silence.is_err(), "{silence:?}");
        seen.push(told);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_many_comes_in_parts() {
    let house =
        House::with(|config| (config.limits.requests_per_second, config.limits.burst) = (10_000, 10_000));
    let anna = house.user("user-a");
    for number in 0..1_101 {
        anna.post(&format!("/api/documents/d{number}/lock"), Value::Null).await.ok();
    }
    let mut events = anna.listen("/api/events").await;
    let mut parts = Vec::new();
    loop {
        let part = events.next().await.unwrap();
        parts.push(part.data["documents"].as_array().unwrap().len());
        if part.data["more"] == false {
            break;
        }
    }
    assert_eq!(parts, [500, 500, 101]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_token() {
    let house = House::with(|config| config.wall_clock = wall_clock_of_today());
    let exp = far_away() - 24 * 3_600 + 100;
    let claims = json!({ "sub": "user-a", "documents": { "*": "read" }, "exp": exp });
    let anna = house.stranger().and("authorization", &format!("Bearer {}", token(claims)));
    let start = Instant::now();
    let mut streams = [anna.listen(EVENTS).await, anna.listen("/api/events").await];
    for events in &mut streams {
        assert_eq!(events.next().await.unwrap().event, "snapshot");
    }
    for events in &mut streams {
        let end = events.next().await.unwrap();
        assert_eq!((end.event.as_str(), &end.data["reason"]), ("end", &json!("token_expired")));
        assert!(events.next().await.is_none());
        assert!((95..=101).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    }
}

/// A token with three seconds left gave a ticket for a minute. Ten seconds later the token was refused everywhere, but the
/// ticket still showed who held what.
#[tokio::test(start_paused = true)]
async fn a_ticket_ends_with_its_token() {
    // Made before the server's clock is set: on a busy machine it was set a moment earlier, and the token had more than that left.
    let bearer = bearer_for(10);
    let house = House::with(|config| config.wall_clock = wall_clock_of_today());
    let anna = house.stranger().and("authorization", &bearer);
    let ticket = anna.post("/api/tickets", Value::Null).await.ok();
    assert!((1..=10_000).contains(&ticket["expires_in_ms"].as_u64().unwrap()), "{ticket}");
    let with_ticket = |path: &str| format!("{path}?ticket={}", ticket["ticket"].as_str().unwrap());
    let stranger = house.stranger();
    assert_eq!(stranger.listen(&with_ticket(EVENTS)).await.next().await.unwrap().event, "snapshot");
    pass(11).await;
    for path in [EVENTS, "/api/events"] {
        stranger.head_of(&with_ticket(path)).await.refused(401, "unauthenticated");
        // The token itself is let in a little longer, because clocks differ: not to a stream, which would end at once.
        anna.head_of(path).await.refused(401, "unauthenticated");
    }
    anna.post("/api/tickets", Value::Null).await.refused(401, "unauthenticated");
}

/// Whoever opened a stream and began to read it when the token had expired was first shown everything: a snapshot, or all
/// that had happened since its last event.
#[tokio::test(start_paused = true)]
async fn after_the_end_of_the_token_a_stream_shows_nothing_more() {
    let house = House::with(|config| config.wall_clock = wall_clock_of_today());
    let ben = house.user("user-b");
    for _ in 0..2 {
        ben.post(LOCK, Value::Null).await.ok();
        ben.delete(LOCK).await.ok();
    }
    pass(1).await;
    let anna = house.stranger().and("authorization", &bearer_for(100));
    let back = anna.and("last-event-id", "1");
    let mut streams = [
        anna.listen(EVENTS).await,
        back.listen(EVENTS).await,
        anna.listen("/api/events").await,
        back.listen("/api/events").await,
    ];
    pass(120).await;
    for events in &mut streams {
        let end = events.next().await.unwrap();
        assert_eq!((end.event.as_str(), &end.data["reason"]), ("end", &json!("token_expired")));
        assert!(events.next().await.is_none());
    }
}

/// The token of a reader, for so many seconds more.
fn bearer_for(seconds: u64) -> String {
    let exp = leasehold_store::clock::unix_millis() / 1_000 + seconds;
    format!("Bearer {}", token(json!({ "sub": "user-a", "documents": { "*": "read" }, "exp": exp })))
}

/// Tokens are checked against the real clock: here the wall clock of the server must be today's.
pub fn wall_clock_of_today() -> leasehold_server::WallClock {
    let (today, start) = (leasehold_store::clock::unix_millis(), Instant::now());
    std::sync::Arc::new(move || today + u64::try_from(start.elapsed().as_millis()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_ticket_opens_a_stream_for_a_minute_and_nothing_else() {
    let house = House::new();
    let anna = house.user("user-a");
    let ticket = anna.post("/api/tickets", Value::Null).await.ok();
    assert_eq!(ticket["expires_in_ms"], 60_000);
    let ticket = ticket["ticket"].as_str().unwrap();
    let stranger = house.stranger();
    let mut events = stranger.listen(&format!("{EVENTS}?ticket={ticket}")).await;
    assert_eq!(events.next().await.unwrap().event, "snapshot");
    stranger.get(&format!("{LOCK}?ticket={ticket}")).await.refused(401, "unauthenticated");
    stranger
        .and("authorization", &format!("Bearer {ticket}"))
        .get(LOCK)
        .await
        .refused(401, "unauthenticated");
    pass(60).await;
    stranger.get(&format!("{EVENTS}?ticket={ticket}")).await.refused(401, "unauthenticated");
    stranger.get(&format!("{EVENTS}?ticket=a.b")).await.refused(401, "unauthenticated");
    anna.post(LOCK, Value::Null).await.ok();
    assert_eq!(events.next().await.unwrap().event, "DocumentLocked", "an open stream goes on");
}

/// A stand-in for `EventSource` that adds a parameter of its own was refused with 400.
#[tokio::test(start_paused = true)]
async fn a_stream_leaves_parameters_alone_that_it_does_not_know() {
    let house = House::new();
    let anna = house.user("user-a");
    for path in [EVENTS, "/api/events"] {
        let mut events = anna.listen(&format!("{path}?lastEventId=&r=0.5")).await;
        assert_eq!(events.next().await.unwrap().event, "snapshot", "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_shows_that_it_is_alive() {
    use futures_util::StreamExt;
    let house = House::new();
    let mut events = house.user("user-a").listen(EVENTS).await;
    events.next().await.unwrap();
    let start = Instant::now();
    let comment = events.bytes.next().await.unwrap().unwrap();
    assert!(comment.starts_with(b":"), "{comment:?}");
    assert_eq!(start.elapsed().as_secs(), 15);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_too_slow_is_let_go_with_a_reason_and_delays_nobody() {
    let house = House::with(|config| {
        config.limits.stream_backlog = 8;
        (config.limits.requests_per_second, config.limits.burst) = (10_000, 10_000);
    });
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let (mut slow, mut quick) = (ben.listen(EVENTS).await, ben.listen(EVENTS).await);
    slow.next().await.unwrap();
    quick.next().await.unwrap();
    for _ in 0..50 {
        anna.post(LOCK, Value::Null).await.ok();
        anna.delete(LOCK).await.ok();
        assert_eq!(quick.next().await.unwrap().event, "DocumentLocked");
        assert_eq!(quick.next().await.unwrap().event, "DocumentUnlocked");
    }
    let end = slow.next().await.unwrap();
    assert_eq!((end.event.as_str(), &end.data["reason"]), ("end", &json!("too_slow")));
    assert!(slow.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn streams_end_when_the_server_does() {
    let house = House::new();
    let mut events = house.user("user-a").listen("/api/events").await;
    events.next().await.unwrap();
    house.end().await;
    let end = events.next().await.unwrap();
    assert_eq!((end.event.as_str(), &end.data["reason"]), ("end", &json!("shutting_down")));
}

#[tokio::test(start_paused = true)]
async fn one_caller_has_only_so_many_streams() {
    let house = House::with(|config| config.limits.streams_per_caller = 2);
    let anna = house.user("user-a");
    let (first, _second) = (anna.listen(EVENTS).await, anna.listen("/api/events").await);
    anna.get(EVENTS).await.refused(429, "too_many_streams");
    drop(first);
    anna.listen(EVENTS).await;
}

/// Every part of a snapshot had the id of the whole. A browser whose connection broke after the first of three parts
/// reconnected with that id, got the events after it, and never heard of the locks in the other two.
#[tokio::test(start_paused = true)]
async fn law_09_half_a_snapshot_is_no_place_to_go_on_from() {
    let house =
        House::with(|config| (config.limits.requests_per_second, config.limits.burst) = (10_000, 10_000));
    let anna = house.user("user-a");
    for number in 0..1_101 {
        anna.post(&format!("/api/documents/d{number}/lock"), Value::Null).await.ok();
    }
    let mut events = anna.listen("/api/events").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(events.next().await.unwrap().id);
    }
    let [None, None, Some(id)] = ids[..] else { panic!("{ids:?}") };
    // From the end of the whole it goes on, without another one.
    let mut events = anna.and("last-event-id", &id.to_string()).listen("/api/events").await;
    anna.delete("/api/documents/d7/lock").await.ok();
    assert_eq!(events.next().await.unwrap().event, "DocumentUnlocked");
}

/// A document that nobody locked for ten minutes is forgotten, and its numbers go on higher. Who listens is told by a
/// snapshot; who came back was given the events on both sides of the jump as if nothing were between them.
#[tokio::test(start_paused = true)]
async fn law_09_a_jump_in_the_numbers_comes_with_a_snapshot_also_for_those_who_come_back() {
    let house = House::new();
    let anna = house.user("user-a");
    for _ in 0..5 {
        anna.post("/api/documents/other/lock", Value::Null).await.ok();
        anna.delete("/api/documents/other/lock").await.ok();
    }
    anna.post(LOCK, Value::Null).await.ok();
    anna.delete(LOCK).await.ok();
    pass(11 * 60).await;
    for _ in 0..3 {
        // Each call forgets a few.
        anna.post("/api/documents/third/lock", Value::Null).await.ok();
    }
    anna.post(LOCK, Value::Null).await.ok();
    let newest = anna.get(LOCK).await.ok()["seq"].as_u64().unwrap();
    assert!(newest > 3, "{newest}");
    pass(1).await;
    let mut events = anna.and("last-event-id", "1").listen(EVENTS).await;
    let first = events.next().await.unwrap();
    assert_eq!((first.event.as_str(), first.id), ("snapshot", Some(newest)));
}
