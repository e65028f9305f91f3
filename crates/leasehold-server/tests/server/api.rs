//! Every call of the documents door, and what it answers.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{House, pass};

const LOCK: &str = "/api/documents/minutes/lock";
const MINE: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const THIRD: &str = "1b4e28ba-2fa1-41d2-883f-0016d3cca427";
const OTHER: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

#[tokio::test(start_paused = true)]
async fn a_lock_is_granted_with_all_that_its_holder_needs() {
    let house = House::new();
    let grant = house.user("user-a").post(LOCK, Value::Null).await.ok();
    let lease_id = grant["lease_id"].as_str().unwrap();
    assert_eq!(lease_id.len(), 36);
    assert_eq!(
        grant,
        json!({
            "lease_id": lease_id,
            "fence": 1,
            "expires_at": "2026-01-01T12:00:30Z",
            "expires_in_ms": 30_000,
            "ttl_seconds": 30,
            "heartbeat_seconds": 10,
            "holder": { "id": "user-a", "name": "user-a" },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_is_second_learns_who_holds_it() {
    let house = House::new();
    house.user("user-a").post(LOCK, Value::Null).await.ok();
    pass(5).await;
    let held = house.user("user-b").post(LOCK, Value::Null).await.refused(409, "held");
    assert_eq!(held["holder"], json!({ "id": "user-a", "name": "user-a" }));
    assert_eq!((held["fence"].as_u64(), held["expires_in_ms"].as_u64()), (Some(1), Some(25_000)));
    assert_eq!(
        (held["expires_at"].as_str(), held["same_user"].as_bool()),
        (Some("2026-01-01T12:00:30Z"), Some(false))
    );
    let tab = house.user("user-a").in_tab("two").post(LOCK, Value::Null).await.refused(409, "held");
    assert_eq!(tab["same_user"], true);
}

#[tokio::test(start_paused = true)]
async fn asking_again_gives_the_same_lock_extended() {
    let house = House::new();
    let anna = house.user("user-a");
    let first = anna.in_tab("one").post(LOCK, Value::Null).await.ok();
    pass(20).await;
    let again = anna.in_tab("one").post(LOCK, Value::Null).await.ok();
    assert_eq!((&again["lease_id"], &again["fence"]), (&first["lease_id"], &first["fence"]));
    assert_eq!(again["expires_in_ms"], 30_000);
    // By its lease id it is the holder, whatever the tab.
    let by_id = anna.in_tab("other").and("lease-id", first["lease_id"].as_str().unwrap());
    assert_eq!(by_id.post(LOCK, Value::Null).await.ok()["fence"], first["fence"]);
    assert_eq!(by_id.put(LOCK).await.ok()["fence"], first["fence"]);
    // Somebody else with the same lease id is not.
    let thief = house.user("user-b").and("lease-id", first["lease_id"].as_str().unwrap());
    thief.post(LOCK, Value::Null).await.refused(409, "held");
    thief.put(LOCK).await.refused(403, "not_holder");
    thief.delete(LOCK).await.refused(403, "not_holder");
}

#[tokio::test(start_paused = true)]
async fn two_programs_with_one_token_and_their_own_lease_ids_are_two_holders() {
    let house = House::new();
    let anna = house.user("user-a");
    anna.post(LOCK, json!({ "lease_id": MINE })).await.ok();
    let second = anna.post(LOCK, json!({ "lease_id": OTHER })).await.refused(409, "held");
    assert_eq!(second["same_user"], true);
    anna.post(LOCK, json!({ "lease_id": MINE })).await.ok();
}

#[tokio::test(start_paused = true)]
async fn many_tabs_at_once_get_one_lock() {
    let house = House::new();
    let anna = house.user("user-a");
    let calls: Vec<_> = (0..20).map(|tab| anna.in_tab(&format!("tab-{}", tab % 2)).clone()).collect();
    let answers = futures_util::future::join_all(calls.iter().map(|user| user.post(LOCK, Value::Null))).await;
    let granted: std::collections::BTreeSet<_> = answers
        .iter()
        .filter(|answer| answer.status == 200)
        .map(|answer| answer.json()["lease_id"].to_string())
        .collect();
    assert_eq!(granted.len(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_lease_id_that_is_over_is_never_granted_again() {
    let house = House::new();
    let anna = house.user("user-a");
    anna.post(LOCK, json!({ "lease_id": MINE })).await.ok();
    anna.and("lease-id", MINE).delete(LOCK).await.ok();
    let over = anna.post(LOCK, json!({ "lease_id": MINE })).await.refused(410, "lease_over");
    assert_eq!(over["because"], "released");
}

#[tokio::test(start_paused = true)]
async fn a_release_frees_the_document() {
    let house = House::new();
    let anna = house.user("user-a");
    anna.delete(LOCK).await.refused(404, "lock_not_found");
    anna.post(LOCK, Value::Null).await.ok();
    house.user("user-b").delete(LOCK).await.refused(403, "not_holder");
    assert_eq!(anna.delete(LOCK).await.status, 204);
    anna.delete(LOCK).await.refused(404, "lock_not_found");
    house.user("user-b").post(LOCK, Value::Null).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_look_shows_the_lock_and_its_etag() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let free = ben.get(LOCK).await;
    assert_eq!(free.ok(), json!({ "roomId": "minutes", "locked": false, "seq": 0, "may": "force" }));
    let grant = anna.post(LOCK, Value::Null).await.ok();
    let held = ben.get(LOCK).await;
    assert_eq!(
        held.ok(),
        json!({
            "roomId": "minutes", "locked": true, "seq": 1, "may": "force", "fence": 1, "held_for_ms": 0,
            "holder": { "id": "user-a", "name": "user-a" },
            "expires_at": "2026-01-01T12:00:30Z", "expires_in_ms": 30_000, "same_user": false, "yours": false,
        })
    );
    assert!(!String::from_utf8_lossy(&held.bytes).contains(grant["lease_id"].as_str().unwrap()));
    let etag = held.headers["etag"].to_str().unwrap();
    assert_ne!(free.headers["etag"], etag);
    let known = ben.and("if-none-match", etag);
    let unchanged = known.get(LOCK).await;
    assert_eq!((unchanged.status.as_u16(), unchanged.bytes.len()), (304, 0));
    pass(10).await;
    anna.put(LOCK).await.ok();
    assert_eq!(known.get(LOCK).await.status, 200, "it lasts longer now");
    // Others compare weakly, or come as a list: the answer is the same.
    let etag = ben.get(LOCK).await.headers["etag"].to_str().unwrap().to_owned();
    let strong = etag.strip_prefix("W/").unwrap();
    for known in [etag.clone(), strong.to_owned(), format!("\"other\", {strong}"), "*".to_owned()] {
        assert_eq!(ben.and("if-none-match", &known).get(LOCK).await.status, 304, "{known}");
    }
    assert_eq!(ben.and("if-none-match", "\"other\"").get(LOCK).await.status, 200);
    assert_eq!(anna.get(LOCK).await.ok()["yours"], true);
    let other_tab = anna.in_tab("two").get(LOCK).await.ok();
    assert_eq!((&other_tab["same_user"], &other_tab["yours"]), (&json!(true), &json!(false)));
}

/// A page that asked with the ETag of another tab, or of whoever was signed in before, was told that nothing had changed:
/// it went on showing somebody else's `yours`.
#[tokio::test(start_paused = true)]
async fn an_etag_is_good_for_those_who_see_the_same() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a").in_tab("one"), house.user("user-b"));
    let other_tab = house.user("user-a").in_tab("two");
    anna.post(LOCK, Value::Null).await.ok();
    let views = [&anna, &other_tab, &ben];
    for (at, one) in views.iter().enumerate() {
        let etag = one.get(LOCK).await.headers["etag"].to_str().unwrap().to_owned();
        for (other_at, other) in views.iter().enumerate() {
            let expected = if at == other_at { 304 } else { 200 };
            assert_eq!(other.and("if-none-match", &etag).get(LOCK).await.status, expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_take_over_names_the_lock_as_seen_and_says_why() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let path = format!("{LOCK}/take-over");
    let fence = anna.post(LOCK, Value::Null).await.ok()["fence"].clone();
    ben.post(&path, json!({ "fence": fence, "reason": " " })).await.refused(400, "invalid");
    ben.post(&path, json!({ "fence": 99, "reason": "deadline" })).await.refused(409, "held");
    let taken = ben.post(&path, json!({ "fence": fence, "reason": "deadline", "lease_id": MINE })).await.ok();
    assert_eq!(taken["fence"], 2);
    let again = ben.post(&path, json!({ "fence": fence, "reason": "deadline", "lease_id": MINE })).await.ok();
    assert_eq!(again["fence"], 2, "repeating it takes nothing twice");
    anna.put(LOCK).await.refused(403, "not_holder");
    // One's own lock in another tab needs no force.
    let cora = house.user_with("user-c", json!({ "*": "lock" }));
    let cora_takes = |fence: u64| json!({ "fence": fence, "reason": "the other tab is at home" });
    cora.in_tab("two").post(&path, cora_takes(2)).await.refused(403, "not_allowed");
    ben.and("lease-id", MINE).delete(LOCK).await.ok();
    cora.in_tab("one").post(LOCK, Value::Null).await.ok();
    assert_eq!(cora.in_tab("two").post(&path, cora_takes(3)).await.ok()["fence"], 4);
    let again = cora.in_tab("two").post(&path, cora_takes(4)).await.ok();
    assert_eq!(again["fence"], 4, "what the tab holds already is renewed, not taken");
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_gives_the_lock_to_nobody() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let path = format!("{LOCK}/force-release");
    let body = |fence: u64| json!({ "fence": fence, "reason": "left for lunch" });
    ben.post(&path, body(1)).await.refused(404, "lock_not_found");
    anna.post(LOCK, Value::Null).await.ok();
    house.user_with("user-c", json!({ "*": "lock" })).post(&path, body(1)).await.refused(403, "not_allowed");
    ben.post(&path, body(2)).await.refused(409, "held");
    assert_eq!(ben.post(&path, body(1)).await.status, 204);
    assert_eq!(ben.get(LOCK).await.ok()["locked"], false);
    anna.put(LOCK).await.refused(404, "lock_not_found");
}

#[tokio::test(start_paused = true)]
async fn a_fence_is_checked() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let check = async |fence: u64| ben.post(&format!("{LOCK}/check"), json!({ "fence": fence })).await.ok();
    assert_eq!(check(1).await, json!({ "current": false, "locked": false }));
    anna.post(LOCK, Value::Null).await.ok();
    let holder = json!({ "id": "user-a", "name": "user-a" });
    assert_eq!(check(1).await, json!({ "current": true, "locked": true, "fence": 1, "holder": holder }));
    assert_eq!(check(2).await["current"], false);
    ben.post(&format!("{LOCK}/check"), json!({ "fence": 0 })).await.refused(400, "invalid");
}

#[tokio::test(start_paused = true)]
async fn a_holder_hands_over_or_refuses() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    anna.post(LOCK, Value::Null).await.ok();
    let request = json!({ "fence": 1, "on_silence": "refuse", "lease_id": MINE });
    let asked = ben.post(&format!("{LOCK}/request"), request.clone()).await;
    assert_eq!(asked.status, 202);
    let asked = asked.json();
    assert_eq!((asked["lease_id"].as_str(), asked["request"]["ends_in_ms"].as_u64()), (Some(MINE), None));
    house
        .user("user-c")
        .post(&format!("{LOCK}/request"), json!({ "fence": 1 }))
        .await
        .refused(409, "requested_by_another");
    // The holder learns of it with its heartbeat, says so, and keeps the lock.
    let beat = anna.put(LOCK).await.ok();
    let id = beat["request"]["id"].clone();
    assert_eq!((&id, beat["request"]["by"]["id"].as_str()), (&asked["request"]["id"], Some("user-b")));
    assert!(!beat.to_string().contains(MINE));
    let told = anna.post(&format!("{LOCK}/request/told"), json!({ "request": id })).await.ok();
    assert_eq!(told, json!({ "ends_in_ms": 30_000 }));
    let no =
        anna.post(&format!("{LOCK}/request/answer"), json!({ "request": id, "hand_over": false })).await.ok();
    assert_eq!(no, json!({ "handed_over": false, "holder": { "id": "user-a", "name": "user-a" } }));
    let refused = ben.post(&format!("{LOCK}/request"), request).await.refused(410, "lease_over");
    assert_eq!(refused["because"], "refused");
    // Asked again, it hands over.
    let request = json!({ "fence": 1, "lease_id": OTHER });
    let id = ben.post(&format!("{LOCK}/request"), request.clone()).await.ok()["request"]["id"].clone();
    let yes =
        anna.post(&format!("{LOCK}/request/answer"), json!({ "request": id, "hand_over": true })).await.ok();
    assert_eq!(yes, json!({ "handed_over": true, "holder": { "id": "user-b", "name": "user-b" } }));
    let granted = ben.post(&format!("{LOCK}/request"), request).await;
    assert_eq!((granted.status.as_u16(), granted.json()["fence"].as_u64()), (200, Some(2)));
    anna.post(&format!("{LOCK}/request/answer"), json!({ "request": id, "hand_over": true }))
        .await
        .refused(403, "not_holder");
}

#[tokio::test(start_paused = true)]
async fn silence_is_an_answer_only_once_the_holder_was_told() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    anna.post(LOCK, Value::Null).await.ok();
    // Too short a countdown would be a take-over in disguise.
    let hasty = json!({ "fence": 1, "on_silence": "grant", "countdown_seconds": 1, "lease_id": OTHER });
    assert_eq!(ben.post(&format!("{LOCK}/request"), hasty).await.ok()["request"]["countdown_ms"], 6_000);
    assert_eq!(ben.and("lease-id", OTHER).delete(&format!("{LOCK}/request")).await.status, 204);
    let request = json!({ "fence": 1, "on_silence": "grant", "countdown_seconds": 15, "lease_id": MINE });
    let id = ben.post(&format!("{LOCK}/request"), request.clone()).await.ok()["request"]["id"].clone();
    for _ in 0..6 {
        pass(10).await;
        anna.put(LOCK).await.ok();
        assert_eq!(
            ben.post(&format!("{LOCK}/request"), request.clone()).await.status,
            202,
            "the holder was not told"
        );
    }
    anna.post(&format!("{LOCK}/request/told"), json!({ "request": id })).await.ok();
    pass(14).await;
    assert_eq!(ben.post(&format!("{LOCK}/request"), request.clone()).await.status, 202);
    pass(1).await;
    assert_eq!(ben.post(&format!("{LOCK}/request"), request).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_withdrawn_by_its_asker_or_lapses() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    anna.post(LOCK, Value::Null).await.ok();
    let path = format!("{LOCK}/request");
    ben.post(&path, json!({ "fence": 1, "lease_id": MINE })).await.ok();
    ben.delete(&path).await.refused(400, "invalid");
    assert_eq!(ben.and("lease-id", MINE).delete(&path).await.status, 204);
    assert_eq!(anna.put(LOCK).await.ok().get("request"), None);
    ben.post(&path, json!({ "fence": 1, "lease_id": OTHER, "patience_seconds": 5 })).await.ok();
    pass(5).await;
    assert_eq!(anna.put(LOCK).await.ok().get("request"), None);
}

#[tokio::test(start_paused = true)]
async fn many_heartbeats_go_in_one_call() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut locks = Vec::new();
    for number in 0..100 {
        let grant = anna.post(&format!("/api/documents/d{number}/lock"), Value::Null).await.ok();
        locks.push(json!({ "roomId": format!("d{number}"), "lease_id": grant["lease_id"] }));
    }
    ben.post("/api/documents/bens/lock", json!({ "lease_id": OTHER })).await.ok();
    locks.push(json!({ "roomId": "bens", "lease_id": OTHER }));
    locks.push(json!({ "roomId": "nobodys", "lease_id": MINE }));
    pass(20).await;
    let beats = anna.post("/api/documents/heartbeat", json!({ "locks": locks })).await.ok();
    let beats = beats["locks"].as_array().unwrap();
    assert!(beats[..100].iter().all(|beat| beat["status"] == 200 && beat["lock"]["expires_in_ms"] == 30_000));
    let codes: Vec<_> = beats[100..]
        .iter()
        .map(|beat| (beat["status"].as_u64().unwrap(), beat["code"].as_str().unwrap()))
        .collect();
    assert_eq!(codes, [(403, "not_holder"), (404, "lock_not_found")]);
    let bad = json!({ "locks": [{ "roomId": "not a room", "lease_id": MINE }] });
    anna.post("/api/documents/heartbeat", bad).await.refused(400, "invalid");
    let too_many = vec![json!({ "roomId": "a", "lease_id": MINE }); 501];
    anna.post("/api/documents/heartbeat", json!({ "locks": too_many })).await.refused(400, "invalid");
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_what_one_may_see_page_by_page() {
    let house = House::new();
    let anna = house.user("user-a");
    for name in ["a.1", "a.2", "a.3", "b.1", "b.2", "c"] {
        anna.post(&format!("/api/documents/{name}/lock"), Value::Null).await.ok();
    }
    house
        .store
        .apply(&leasehold_core::Key::parse("run/other").unwrap(), leasehold_core::Command::Settle)
        .await
        .unwrap();
    let names = |page: &Value| {
        let documents = page["documents"].as_array().unwrap();
        documents.iter().map(|state| state["roomId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = anna.get("/api/documents").await.ok();
    assert_eq!(names(&all), ["a.1", "a.2", "a.3", "b.1", "b.2", "c"]);
    assert_eq!((all.get("next"), all.to_string().contains("lease_id")), (None, false));
    let some =
        house.user_with("user-b", json!({ "b.*": "read", "a.2": "read", "c": "lock", "nobody": "read" }));
    assert_eq!(names(&some.get("/api/documents").await.ok()), ["a.2", "b.1", "b.2", "c"]);
    assert_eq!(names(&some.get("/api/documents?prefix=b").await.ok()), ["b.1", "b.2"]);
    assert_eq!(names(&some.get("/api/documents?prefix=b.2").await.ok()), ["b.2"]);
    assert_eq!(names(&some.get("/api/documents?prefix=a.1").await.ok()), [""; 0]);
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = some.get(&format!("/api/documents?limit=1&after={after}")).await.ok();
        seen.extend(names(&page));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["a.2", "b.1", "b.2", "c"]);
    for bad in ["limit=0", "limit=501", "limit=x", "prefix=a%20b", "after=*", "color=red"] {
        some.get(&format!("/api/documents?{bad}")).await.refused(400, "invalid");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_speak_the_callers_language() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b").and("accept-language", "ja,en;q=0.5"));
    let missing = ben.put(LOCK).await;
    assert_eq!(missing.refused(404, "lock_not_found")["title"], "ロックが見つかりません");
    assert_eq!(missing.headers["content-language"], "ja");
    // What exactly is wrong is told in English, and the header says so.
    let invalid = ben.get("/api/documents?limit=0").await;
    assert_eq!(invalid.refused(400, "invalid")["title"], "リクエストが正しくありません");
    assert_eq!(invalid.headers["content-language"], "ja, en");
    anna.post(LOCK, Value::Null).await.ok();
    assert_eq!(ben.put(LOCK).await.refused(403, "not_holder")["title"], "ロックを保持していません");
    assert_eq!(
        anna.in_tab("x").put(LOCK).await.refused(403, "not_holder")["title"],
        "You do not hold the lock"
    );
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_answered_with_what_is_wrong() {
    let house = House::new();
    let anna = house.user("user-a");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let bodies = [
        ("{", 400, "invalid"),
        ("[]", 400, "invalid"),
        ("\"x\"", 400, "invalid"),
        ("{\"lease_id\": 5}", 400, "invalid"),
        ("{\"lease_id\": \"not-a-uuid\"}", 400, "invalid"),
        ("{\"lease_id\": \"00000000-0000-1000-8000-000000000000\"}", 400, "invalid"),
        ("{\"colour\": \"red\"}", 400, "invalid"),
        ("\u{0}", 400, "invalid"),
        (deep.as_str(), 413, "too_large"),
        (&deep[..60_000], 400, "invalid"),
    ];
    for (body, status, code) in bodies {
        let answer = anna.call(Method::POST, LOCK, Some(body.to_owned())).await;
        let problem = answer.refused(status, code);
        assert!(!problem.to_string().contains("not-a-uuid"), "{problem}");
    }
    let too_long = "x".repeat(64 * 1024 + 1);
    anna.call(Method::POST, LOCK, Some(too_long)).await.refused(413, "too_large");
    for room in ["a%20b", "a%2Fb", "%E4%BC%9A", &"x".repeat(129), "a*", "%00"] {
        anna.get(&format!("/api/documents/{room}/lock")).await.refused(400, "invalid");
    }
    anna.and("lease-id", "nonsense").put(LOCK).await.refused(400, "invalid");
    let both = anna.and("lease-id", MINE).post(LOCK, json!({ "lease_id": OTHER })).await.ok();
    assert_eq!(both["lease_id"], MINE, "the header says who calls");
    anna.in_tab(&"x".repeat(129)).put(LOCK).await.refused(400, "invalid");
    anna.in_tab("one").in_tab("two").put(LOCK).await.refused(400, "invalid");
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        let wrong = anna.and("content-type", kind);
        wrong.call(Method::POST, LOCK, Some("{}".into())).await.refused(415, "unsupported_media_type");
        wrong
            .call(Method::POST, &format!("{LOCK}/check"), Some("{\"fence\": 1}".into()))
            .await
            .refused(415, "unsupported_media_type");
    }
    anna.get("/api/nothing/here").await.refused(404, "not_found");
    let answer = anna.call(Method::PATCH, LOCK, None).await;
    answer.refused(405, "method_not_allowed");
    assert!(answer.headers["allow"].to_str().unwrap().contains("PUT"));
    house.stranger().get(LOCK).await.refused(401, "unauthenticated");
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_too_often_is_told_when_to_come_back() {
    let house = House::with(|config| (config.limits.requests_per_second, config.limits.burst) = (1, 3));
    let anna = house.user("user-a");
    let answers = futures_util::future::join_all((0..10).map(|_| anna.get(LOCK))).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(refused.len() >= 6, "{}", refused.len());
    refused[0].refused(429, "too_many_requests");
    assert!(refused[0].headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(house.user("user-b").get(LOCK).await.status, 200, "others are not kept waiting");
}

/// Five hundred renewals in one call counted as one, so that a caller could make a hundred thousand of them a second.
#[tokio::test(start_paused = true)]
async fn a_call_that_renews_many_locks_counts_as_that_many() {
    let house = House::with(|config| (config.limits.requests_per_second, config.limits.burst) = (10, 25));
    let anna = house.user("user-a");
    let lease_id = anna.post(LOCK, Value::Null).await.ok()["lease_id"].clone();
    let lock = json!({ "roomId": "minutes", "lease_id": lease_id });
    let renew = async |locks: usize| {
        anna.post("/api/documents/heartbeat", json!({ "locks": vec![lock.clone(); locks] })).await
    };
    // One is gone for the lock, and twenty go now.
    assert_eq!(renew(20).await.ok()["locks"].as_array().unwrap().len(), 20);
    let refused = renew(20).await;
    refused.refused(429, "too_many_requests");
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(renew(1).await.status, 200, "what it may still do is not lost");
}

#[tokio::test(start_paused = true)]
async fn pages_of_other_origins_may_not_call_unless_they_are_named() {
    let ask = async |house: &House, origin: &str| {
        let user = house.stranger().and("origin", origin).and("access-control-request-method", "PUT");
        let answer = user.call(Method::OPTIONS, LOCK, None).await;
        answer.headers.get("access-control-allow-origin").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(ask(&House::new(), "https://app.example").await, None);
    let named = House::with(|config| config.cors_origins = vec!["https://app.example".into()]);
    assert_eq!(ask(&named, "https://app.example").await.as_deref(), Some("https://app.example"));
    assert_eq!(ask(&named, "https://evil.example").await, None);
    // The answer itself, not only the question before it: also when it is a refusal.
    let from = |origin: &str| named.user("user-a").and("origin", origin);
    let own = from("https://app.example");
    for answer in [
        own.get(LOCK).await,
        own.put(LOCK).await,
        named.stranger().and("origin", "https://app.example").get(LOCK).await,
    ] {
        assert_eq!(answer.headers["access-control-allow-origin"], "https://app.example");
        let exposed = answer.headers["access-control-expose-headers"].to_str().unwrap();
        assert!(exposed.contains("etag") && exposed.contains("retry-after"), "{exposed}");
        assert!(answer.headers.get_all("vary").iter().any(|vary| vary.to_str().unwrap().contains("origin")));
    }
    let evil = from("https://evil.example").get(LOCK).await;
    assert_eq!(evil.headers.get("access-control-allow-origin"), None);
}

/// A server without tokens on a developer's machine must not be open to every web page that the developer looks at: a
/// page can post a form to it, or be served under a name that leads to 127.0.0.1.
#[tokio::test(start_paused = true)]
async fn a_server_without_tokens_listens_to_no_foreign_page() {
    let house = House::with(|config| config.auth = leasehold_server::auth::Auth::Open);
    let from = |host: &str, origin: &str| house.stranger().and("host", host).and("origin", origin);
    from("127.0.0.1:7420", "https://evil.example").post(LOCK, Value::Null).await.refused(403, "not_allowed");
    from("rebound.example:7420", "http://rebound.example:7420")
        .post(LOCK, Value::Null)
        .await
        .refused(403, "not_allowed");
    from("localhost:7420", "null").post(LOCK, Value::Null).await.refused(403, "not_allowed");
    for host in ["127.0.0.1:7420", "localhost:7420", "[::1]:7420", "localhost"] {
        from(host, &format!("http://{host}")).get(LOCK).await.ok();
        house.stranger().and("host", host).post(LOCK, Value::Null).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn health_and_metrics_are_there() {
    let house = House::new();
    house.user("user-a").post(LOCK, Value::Null).await.ok();
    assert_eq!(house.stranger().get("/healthz").await.bytes, "ok\n");
    assert_eq!(house.stranger().get("/readyz").await.bytes, "ready\n");
    let metrics = house.stranger().get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.bytes).into_owned();
    assert!(text.contains("route=\"/api/documents/{roomId}/lock\""), "{text}");
    assert!(!text.contains("minutes") && !text.contains("user-a"), "{text}");
}

/// A path that is not text was refused by the router in its own words, as plain text in English.
#[tokio::test(start_paused = true)]
async fn what_the_router_refuses_is_a_problem_like_any_other() {
    let house = House::new();
    let anna = house.user("user-a");
    for path in ["/api/documents/%FF/lock", "/api/documents/%C3%28/events", "/api/documents/%ED%A0%80/lock"] {
        anna.get(path).await.refused(400, "invalid");
    }
    anna.get("/api/documents/minutes/lock/").await.refused(404, "not_found");
    anna.get("/api/documents//lock").await.refused(400, "invalid");
    anna.get("/api/documents/..%2Fx/lock").await.refused(400, "invalid");
    anna.get("/api/documents?prefix=%FF").await.refused(400, "invalid");
}

/// Repeating a request lets it stand longer, which a look shows; its ETag said that nothing had changed.
#[tokio::test(start_paused = true)]
async fn a_request_that_stands_longer_changes_the_etag() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    anna.post(LOCK, Value::Null).await.ok();
    let request = json!({ "fence": 1, "lease_id": MINE });
    ben.post(&format!("{LOCK}/request"), request.clone()).await.ok();
    let before = anna.get(LOCK).await.headers["etag"].clone();
    pass(5).await;
    assert_eq!(anna.get(LOCK).await.headers["etag"], before);
    ben.post(&format!("{LOCK}/request"), request).await.ok();
    assert_ne!(anna.get(LOCK).await.headers["etag"], before);
}

/// A page that resumed without drawing a new lease id shared its lock with the tab that was copied from it.
#[tokio::test(start_paused = true)]
async fn a_resume_needs_a_new_lease_id() {
    let house = House::new();
    let anna = house.user("user-a");
    anna.post(LOCK, json!({ "lease_id": MINE })).await.ok();
    let path = format!("{LOCK}/resume");
    let same = json!({ "lease_id": MINE, "next_lease_id": MINE });
    let rotated = anna.post(&format!("{LOCK}/resume"), same).await.ok();
    assert_ne!(rotated["lease_id"], MINE, "it may have been copied");
    anna.and("lease-id", rotated["lease_id"].as_str().unwrap()).delete(LOCK).await.ok();
    anna.post(LOCK, json!({ "lease_id": THIRD })).await.ok();
    let other = json!({ "lease_id": THIRD, "next_lease_id": OTHER });
    for _ in 0..2 {
        assert_eq!(anna.post(&path, other.clone()).await.ok()["lease_id"], OTHER);
    }
}
