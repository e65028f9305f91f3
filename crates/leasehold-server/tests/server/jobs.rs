//! Jobs over HTTP, on virtual time: the list of *Job lock: tests* (`docs/sources.md`), lost answers, late words, attempts and resets,
//! with workers that know nothing but HTTP.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, House, User, pass};

const JOB: &str = "/api/jobs/analyses/42";
const FIRST: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const SECOND: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

async fn create(user: &User, path: &str, body: Value) -> Answer {
    user.call(Method::PUT, path, Some(body.to_string())).await
}

/// A house with a queued job, and two workers with a token each.
async fn house() -> (House, User, User) {
    let house = House::new();
    let (one, two) = (house.user("worker-1"), house.user("worker-2"));
    assert_eq!(create(&one, JOB, json!({ "payload": { "page": 7 } })).await.status, 201);
    (house, one, two)
}

async fn acquire(user: &User, lease_id: &str) -> Value {
    user.post(&format!("{JOB}/acquire"), json!({ "lease_id": lease_id })).await.ok()
}

async fn say(user: &User, what: &str, grant: &Value, more: Value) -> Answer {
    let mut body = json!({ "lease_id": grant["lease_id"], "fence": grant["fence"] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    user.post(&format!("{JOB}/{what}"), body).await
}

// --- Job lock: tests ---

#[tokio::test(start_paused = true)]
async fn the_first_acquire_succeeds() {
    let (_house, one, _) = house().await;
    let body = json!({ "lease_id": FIRST, "worker": "machine-7" });
    let grant = one.post(&format!("{JOB}/acquire"), body).await.ok();
    let fence = grant["fence"].as_u64().unwrap();
    let expected = json!({
        "acquired": true, "lease_id": FIRST, "fence": fence,
        "expires_at": "2026-01-01T12:05:00Z", "expires_in_ms": 300_000, "ttl_seconds": 300,
        "refresh_after_ms": 100_000, "stop_after_ms": 270_000, "holder": { "id": "worker-1", "name": "machine-7" },
        "attempt": 1, "recovered": false, "payload": { "page": 7 }
    });
    assert_eq!(grant, expected);
    let state = one.get(JOB).await.ok();
    let held = json!({
        "holder": { "id": "worker-1", "name": "machine-7" }, "fence": fence,
        "expires_at": "2026-01-01T12:05:00Z", "expires_in_ms": 300_000, "same_user": true
    });
    let expected = json!({
        "collection": "analyses", "id": "42", "status": "RUNNING", "payload": { "page": 7 }, "attempts": 1, "held": held
    });
    assert_eq!(state, expected, "and the lease id is not shown");
}

#[tokio::test(start_paused = true)]
async fn of_two_requests_at_once_one_succeeds() {
    let (_house, one, two) = house().await;
    let (first, second) = tokio::join!(acquire(&one, FIRST), acquire(&two, SECOND));
    assert_eq!([&first, &second].iter().filter(|answer| answer["acquired"] == true).count(), 1);
    let refused = if first["acquired"] == true { second } else { first };
    assert_eq!((&refused["reason"], &refused["status"]), (&json!("locked"), &json!("RUNNING")));
    assert_eq!(refused["held"]["expires_in_ms"], 300_000);
    // The same user's other worker is another worker.
    let third = one.post(&format!("{JOB}/acquire"), Value::Null).await.ok();
    assert_eq!((&third["acquired"], &third["reason"]), (&json!(false), &json!("locked")));
}

#[tokio::test(start_paused = true)]
async fn after_the_ttl_it_is_acquired_again_and_the_recovery_is_visible() {
    let (_house, one, two) = house().await;
    let first = acquire(&one, FIRST).await;
    pass(299).await;
    assert_eq!(acquire(&two, SECOND).await["reason"], "locked");
    pass(1).await;
    let second = acquire(&two, SECOND).await;
    assert_eq!((&second["acquired"], &second["recovered"]), (&json!(true), &json!(true)));
    assert_eq!(second["attempt"], 2);
    assert!(second["fence"].as_u64() > first["fence"].as_u64());
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_or_failed_is_never_acquired_and_replays_what_it_came_to() {
    let (_house, one, two) = house().await;
    let grant = acquire(&one, FIRST).await;
    assert_eq!(say(&one, "complete", &grant, json!({ "result": { "pages": 3 } })).await.status, 204);
    let refused = acquire(&two, SECOND).await;
    let expected = json!({
        "acquired": false, "reason": "already_finished", "status": "READY",
        "result": { "pages": 3 }, "finished_by": grant["fence"]
    });
    assert_eq!(refused, expected);

    let other = "/api/jobs/analyses/43";
    create(&one, other, json!({ "payload": null })).await.ok();
    let grant = one.post(&format!("{other}/acquire"), Value::Null).await.ok();
    let body = json!({ "lease_id": grant["lease_id"], "fence": grant["fence"], "error": "no such page", "retryable": false });
    assert_eq!(one.post(&format!("{other}/fail"), body).await.ok(), json!({ "again": false }));
    let refused = two.post(&format!("{other}/acquire"), Value::Null).await.ok();
    let expected = json!({
        "acquired": false, "reason": "already_finished", "status": "FAILED",
        "error": "no such page", "finished_by": grant["fence"]
    });
    assert_eq!(refused, expected);
    assert_eq!(one.get(other).await.ok()["status"], "FAILED");
}

#[tokio::test(start_paused = true)]
async fn a_release_by_another_owner_changes_nothing() {
    let (_house, one, two) = house().await;
    let grant = acquire(&one, FIRST).await;
    say(&two, "release", &grant, json!({})).await.refused(403, "not_holder");
    let guessed = json!({ "lease_id": SECOND, "fence": grant["fence"] });
    let answer = say(&two, "release", &guessed, json!({})).await.refused(410, "lease_over");
    assert_eq!(answer["holder"]["id"], "worker-1");
    assert_eq!(say(&one, "refresh", &grant, json!({})).await.status, 200);
    assert_eq!(say(&one, "release", &grant, json!({})).await.status, 204);
    let next = acquire(&two, SECOND).await;
    assert_eq!((&next["acquired"], &next["recovered"]), (&json!(true), &json!(false)), "given back");
    // A late release by the first owner does not touch its successor's attempt.
    let late = say(&one, "release", &grant, json!({})).await.refused(410, "lease_over");
    assert_eq!((&late["because"], &late["holder"]["id"]), (&json!("released"), &json!("worker-2")));
    assert_eq!(one.get(JOB).await.ok()["status"], "RUNNING");
}

// --- beyond it ---

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_got_lost_can_be_repeated() {
    let (_house, one, two) = house().await;
    assert_eq!(create(&one, JOB, json!({ "payload": { "page": 7 } })).await.status, 200);
    let (first, again) = (acquire(&one, FIRST).await, acquire(&one, FIRST).await);
    assert_eq!((&first["fence"], &first["attempt"]), (&again["fence"], &again["attempt"]));
    assert_eq!(again["recovered"], false);
    for _ in 0..2 {
        assert_eq!(say(&one, "complete", &first, json!({ "result": 1 })).await.status, 204);
    }
    assert_eq!(acquire(&two, SECOND).await["result"], 1);

    let other = "/api/jobs/analyses/43";
    create(&one, other, json!({ "payload": 1, "max_attempts": 2 })).await.ok();
    for again in [true, false] {
        let grant = one.post(&format!("{other}/acquire"), Value::Null).await.ok();
        let body = json!({ "lease_id": grant["lease_id"], "fence": grant["fence"], "error": "no" });
        for _ in 0..2 {
            assert_eq!(
                one.post(&format!("{other}/fail"), body.clone()).await.ok(),
                json!({ "again": again })
            );
        }
    }
    assert_eq!(one.get(other).await.ok()["attempts"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_word_is_refused_with_410_and_says_who_works_on_it() {
    let (_house, one, two) = house().await;
    let first = acquire(&one, FIRST).await;
    pass(300).await;
    // Nobody has it yet, and it is over all the same.
    let late = say(&one, "complete", &first, json!({ "result": 1 })).await.refused(410, "lease_over");
    assert_eq!((&late["because"], late.get("holder")), (&json!("expired"), None));
    let second = acquire(&two, SECOND).await;
    for (what, more) in
        [("refresh", json!({})), ("complete", json!({ "result": 1 })), ("fail", json!({ "error": "late" }))]
    {
        let late = say(&one, what, &first, more).await.refused(410, "lease_over");
        assert_eq!(
            (&late["because"], &late["holder"]["id"]),
            (&json!("expired"), &json!("worker-2")),
            "{what}"
        );
    }
    one.post(&format!("{JOB}/acquire"), json!({ "lease_id": FIRST })).await.refused(410, "lease_over");
    // A fence that is not the attempt's.
    let wrong = json!({ "lease_id": SECOND, "fence": first["fence"] });
    say(&two, "complete", &wrong, json!({ "result": 1 })).await.refused(410, "lease_over");
    assert_eq!(say(&two, "complete", &second, json!({ "result": 2 })).await.status, 204);
    assert_eq!(one.get(JOB).await.ok()["result"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_keeps_it_for_as_long_as_the_work_takes_and_may_change_the_ttl() {
    let (_house, one, two) = house().await;
    let grant = acquire(&one, FIRST).await;
    for _ in 0..30 {
        pass(100).await;
        assert_eq!(say(&one, "refresh", &grant, json!({})).await.ok()["expires_in_ms"], 300_000);
        assert_eq!(acquire(&two, SECOND).await["reason"], "locked");
    }
    let hold = say(&one, "refresh", &grant, json!({ "ttl_seconds": 600 })).await.ok();
    assert_eq!((&hold["ttl_seconds"], &hold["expires_in_ms"]), (&json!(600), &json!(600_000)));
    assert_eq!((&hold["refresh_after_ms"], &hold["stop_after_ms"]), (&json!(200_000), &json!(540_000)));
    // What was promised is not taken back by a shorter one.
    let hold = say(&one, "refresh", &grant, json!({ "ttl_seconds": 1 })).await.ok();
    assert_eq!((&hold["ttl_seconds"], &hold["expires_in_ms"]), (&json!(1), &json!(600_000)));
    pass(600).await;
    assert_eq!(acquire(&two, SECOND).await["recovered"], true);
}

#[tokio::test(start_paused = true)]
async fn a_short_attempt_says_when_to_refresh_and_when_to_stop() {
    let (_house, one, _) = house().await;
    let hold = one.post(&format!("{JOB}/acquire"), json!({ "ttl_seconds": 1.0 })).await.ok();
    for (field, expected) in
        [("ttl_seconds", 1), ("expires_in_ms", 1_000), ("refresh_after_ms", 250), ("stop_after_ms", 500)]
    {
        assert_eq!(hold[field], expected, "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_and_when_they_are_used_up_it_has_failed() {
    let house = House::new();
    let one = house.user("worker-1");
    create(&one, JOB, json!({ "payload": 1, "max_attempts": 3 })).await.ok();
    for (attempt, again) in [(1, true), (2, true), (3, false)] {
        let grant = one.post(&format!("{JOB}/acquire"), Value::Null).await.ok();
        assert_eq!((&grant["attempt"], &grant["max_attempts"]), (&json!(attempt), &json!(3)));
        let failed = say(&one, "fail", &grant, json!({ "error": "no" })).await.ok();
        assert_eq!(failed, json!({ "again": again }), "{attempt}");
    }
    assert_eq!(one.get(JOB).await.ok()["error"], "no");

    // A worker that vanishes counts, too.
    let other = "/api/jobs/analyses/43";
    create(&one, other, json!({ "payload": 1, "max_attempts": 1 })).await.ok();
    one.post(&format!("{other}/acquire"), Value::Null).await.ok();
    pass(300).await;
    let refused = one.post(&format!("{other}/acquire"), Value::Null).await.ok();
    assert_eq!((&refused["reason"], &refused["status"]), (&json!("already_finished"), &json!("FAILED")));
    assert_eq!((&refused["error"], refused.get("finished_by")), (&json!("given up after 1 attempts"), None));
}

#[tokio::test(start_paused = true)]
async fn a_reset_begins_anew_but_not_while_somebody_works_on_it() {
    let (house, one, _) = house().await;
    let grant = acquire(&one, FIRST).await;
    let refused = one.post(&format!("{JOB}/reset"), Value::Null).await.refused(409, "job_running");
    assert_eq!(refused["holder"]["id"], "worker-1");
    say(&one, "complete", &grant, json!({ "result": 1 })).await.ok();
    let plain = house.worker_with("worker-3", json!({ "analyses/*": "lock" }));
    plain.post(&format!("{JOB}/reset"), Value::Null).await.refused(403, "not_allowed");
    let state = one.post(&format!("{JOB}/reset"), Value::Null).await.ok();
    let expected = json!({ "collection": "analyses", "id": "42", "status": "QUEUED", "payload": { "page": 7 }, "attempts": 0 });
    assert_eq!(state, expected);
    assert_eq!(acquire(&plain, SECOND).await["attempt"], 1);
}

#[tokio::test(start_paused = true)]
async fn another_payload_under_the_same_id_is_refused_and_the_same_in_another_order_is_not() {
    let house = House::new();
    let one = house.user("worker-1");
    let first = Some(r#"{"payload": {"b": {"y": 1, "x": 2}, "a": [1, 2]}}"#.to_owned());
    assert_eq!(one.call(Method::PUT, JOB, first).await.status, 201);
    let same = Some(r#"{"payload": {"a": [1, 2], "b": {"x": 2, "y": 1}}, "max_attempts": 9}"#.to_owned());
    let answer = one.call(Method::PUT, JOB, same).await;
    assert_eq!(
        (answer.status.as_u16(), answer.json().get("max_attempts")),
        (200, None),
        "it stays as it was"
    );
    create(&one, JOB, json!({ "payload": {} })).await.refused(409, "job_differs");
    // A program that uses the store itself writes what it likes.
    for (number, text) in [(1, "{ \"page\" : 7 }"), (2, "plain text"), (3, "\"quoted\"")] {
        let path = format!("/api/jobs/texts/{number}");
        let key = leasehold_core::Key::parse(&format!("job/texts/{number}")).unwrap();
        let payload = leasehold_core::job::JobText::parse(text).unwrap();
        let command = leasehold_core::JobCommand::Create { payload, max_attempts: None };
        house.store.apply_job(&key, command).await.unwrap();
        let seen = one.get(&path).await.ok()["payload"].clone();
        let expected = [json!({ "page": 7 }), json!("plain text"), json!("quoted")][number - 1].clone();
        assert_eq!(seen, expected);
        assert_eq!(create(&one, &path, json!({ "payload": seen })).await.status, 200, "{text}");
    }
}

#[derive(serde::Deserialize)]
struct Granted {
    fence: u64,
}

/// 2^70 + 1 and 2^70 + 2 counted as the same payload, and came back as floats.
#[tokio::test(start_paused = true)]
async fn numbers_come_back_with_the_digits_that_were_sent() {
    let house = House::new();
    let one = house.user("worker-1");
    let put =
        async |payload: &str| one.call(Method::PUT, JOB, Some(format!("{{\"payload\": {payload}}}"))).await;
    let big = r#"{"n":[1180591620717411303425,1.10,1e400,-0]}"#;
    let has = |answer: &Answer, member: &str| {
        let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
        assert!(text.contains(&format!("\"{member}\":{big}")), "{text}");
    };
    let made = put(&big.replace(',', " , ")).await;
    assert_eq!(made.status, 201);
    has(&made, "payload");
    assert_eq!(put(big).await.status, 200);
    put(&big.replace("425", "426")).await.refused(409, "job_differs");
    let granted = one.post(&format!("{JOB}/acquire"), json!({ "lease_id": FIRST })).await;
    has(&granted, "payload");
    // Not every parser has a number for all of them.
    let granted: Granted = serde_json::from_slice(&granted.bytes).unwrap();
    let fence = granted.fence;
    let complete = async |result: &str| {
        let body = format!(r#"{{"lease_id": "{FIRST}", "fence": {fence}, "result": {result}}}"#);
        one.call(Method::POST, &format!("{JOB}/complete"), Some(body)).await
    };
    assert_eq!(complete(big).await.status, 204);
    assert_eq!(complete(&format!(" {big} ")).await.status, 204, "the same again");
    complete(&big.replace("425", "426")).await.refused(410, "lease_over");
    has(&one.get(JOB).await, "result");
    has(&one.post(&format!("{JOB}/acquire"), Value::Null).await, "result");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_there_twice_is_refused_and_named() {
    let (_house, one, _) = house().await;
    let twice = r#"{"deep": [{"page": 1, "b": 2, "page": 1}]}"#;
    let put = one.call(Method::PUT, "/api/jobs/a/1", Some(format!(r#"{{"payload": {twice}}}"#))).await;
    let detail = put.refused(400, "invalid")["detail"].clone();
    assert!(detail.as_str().unwrap().contains("the key \"page\" is there twice"), "{detail}");
    let grant = acquire(&one, FIRST).await;
    let body = format!(r#"{{"lease_id": "{FIRST}", "fence": {}, "result": {twice}}}"#, grant["fence"]);
    let complete = one.call(Method::POST, &format!("{JOB}/complete"), Some(body)).await;
    assert!(
        complete.refused(400, "invalid")["detail"]
            .as_str()
            .unwrap()
            .contains("the key \"page\" is there twice")
    );
    let body = r#"{"payload": 1, "payload": 1}"#.to_owned();
    let outer = one.call(Method::PUT, "/api/jobs/a/1", Some(body)).await.refused(400, "invalid");
    assert!(outer["detail"].as_str().unwrap().contains("duplicate field `payload`"), "{outer}");
    let deep = format!(r#"{{"payload": {}{}}}"#, "[".repeat(127), "]".repeat(127));
    let deep = one.call(Method::PUT, "/api/jobs/a/1", Some(deep)).await.refused(400, "invalid");
    assert!(deep["detail"].as_str().unwrap().contains("more than 126 levels"), "{deep}");
}

#[tokio::test(start_paused = true)]
async fn any_json_is_a_payload_and_a_result() {
    let house = House::new();
    let one = house.user("worker-1");
    let values = [
        json!(null),
        json!("7"),
        json!(""),
        json!("a\0b\u{1F600}"),
        json!([[]]),
        json!(1.5),
        json!({ "a": null }),
    ];
    for (number, value) in values.iter().enumerate() {
        let path = format!("/api/jobs/values/{number}");
        create(&one, &path, json!({ "payload": value })).await.ok();
        let grant = one.post(&format!("{path}/acquire"), Value::Null).await.ok();
        assert_eq!(&grant["payload"], value);
        let body = json!({ "lease_id": grant["lease_id"], "fence": grant["fence"], "result": value });
        one.post(&format!("{path}/complete"), body).await.ok();
        let state = one.get(&path).await.ok();
        assert_eq!((state.get("result"), &state["payload"]), (Some(value), value));
    }
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_refused_with_its_rule() {
    let (_house, one, _) = house().await;
    let grant = acquire(&one, FIRST).await;
    let long = "x".repeat(64 * 1024 - 100);
    let cases = [
        ("acquire", json!({ "lease_id": "42" }), "UUID of version 4"),
        ("acquire", json!({ "ttl_seconds": 0 }), "between 1s and 24h"),
        ("acquire", json!({ "ttl_seconds": 90_000 }), "between 1s and 24h"),
        ("acquire", json!({ "worker": "" }), "1 to 64 characters"),
        ("acquire", json!({ "worker": "a\nb" }), "control and invisible"),
        ("acquire", json!({ "workers": "a" }), "unknown field"),
        ("refresh", json!({ "lease_id": FIRST }), "missing field `fence`"),
        ("refresh", json!({ "lease_id": FIRST, "fence": 0 }), "between 1 and"),
        ("complete", json!({ "lease_id": FIRST, "fence": 1 }), "missing field `result`"),
        ("fail", json!({ "lease_id": FIRST, "fence": 1, "error": "a\0b" }), "NUL"),
    ];
    for (what, body, said) in cases {
        let refused = one.post(&format!("{JOB}/{what}"), body.clone()).await.refused(400, "invalid");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(said), "{what} {body}: {detail}");
        assert!(!detail.contains(FIRST), "{detail}");
    }
    for (path, said) in
        [("/api/jobs/../42", ""), ("/api/jobs/a%20b/42", "collection"), ("/api/jobs/a/x%2Fy", "job id")]
    {
        let answer = one.get(path).await;
        assert!(answer.status == 404 || answer.code() == (400, "invalid".into()), "{path}");
        assert!(String::from_utf8_lossy(&answer.bytes).contains(said), "{path}");
    }
    create(&one, JOB, json!({ "payload": 1, "max_attempts": 0 })).await.refused(400, "invalid");
    create(&one, JOB, json!({ "max_attempts": 1 })).await.refused(400, "invalid");
    create(&one, JOB, json!({ "payload": "x".repeat(70_000) })).await.refused(413, "too_large");
    // It fits as it was sent, and would not fit as it would be kept.
    let grown = format!("{long}\u{1}\u{1}").replace('x', "\u{7f}\\").replace("\u{7f}", "");
    let body = json!({ "lease_id": grant["lease_id"], "fence": grant["fence"], "result": grown });
    one.post(&format!("{JOB}/complete"), body).await.refused(413, "too_large");
}

#[tokio::test(start_paused = true)]
async fn jobs_do_not_show_among_the_documents() {
    let (_house, one, _) = house().await;
    let mut events = one.listen("/api/events").await;
    assert_eq!(events.next().await.unwrap().event, "snapshot");
    acquire(&one, FIRST).await;
    assert_eq!(one.get("/api/documents").await.ok(), json!({ "documents": [] }));
    one.post("/api/documents/minutes/lock", Value::Null).await.ok();
    assert_eq!(events.next().await.unwrap().data["roomId"], "minutes", "the first event is the document's");
}

// --- a server that has jobs only, and collections below documents ---

#[tokio::test(start_paused = true)]
async fn a_server_on_a_store_without_lists_and_events_has_jobs_only() {
    let house = House::with_jobs_only();
    let one = house.user("worker-1");
    assert_eq!(create(&one, JOB, json!({ "payload": { "page": 7 } })).await.status, 201);
    let grant = acquire(&one, FIRST).await;
    assert_eq!(say(&one, "complete", &grant, json!({ "result": 12 })).await.status, 204);
    assert_eq!(one.get(JOB).await.ok()["result"], 12);
    for (method, path) in [
        (Method::POST, "/api/documents/minutes/lock"),
        (Method::GET, "/api/documents/minutes/lock"),
        (Method::GET, "/api/documents"),
        (Method::GET, "/api/events"),
        (Method::GET, "/api/audit"),
        (Method::POST, "/api/leases/nightly"),
        (Method::POST, "/api/tickets"),
    ] {
        let problem = one.call(method, path, None).await.refused(404, "jobs_only");
        assert_eq!(problem["title"], "This server has jobs only", "{path}");
        assert!(problem["detail"].as_str().unwrap().contains("on a file or on PostgreSQL"), "{problem}");
    }
    one.get("/nowhere").await.refused(404, "not_found");
    one.get("/api/jobs").await.refused(404, "not_found");
    let text = async |path: &str| String::from_utf8(house.stranger().get(path).await.bytes.to_vec()).unwrap();
    assert_eq!(
        (text("/healthz").await, text("/readyz").await),
        ("ok, jobs only\n".into(), "ready, jobs only\n".into())
    );
    let metrics = text("/metrics").await;
    assert!(
        metrics.contains("leasehold_jobs_only 1") && metrics.contains("leasehold_granted_total 1"),
        "{metrics}"
    );
    let described = house.stranger().get("/openapi.json").await.ok();
    assert!(
        described["info"]["description"].as_str().unwrap().contains("jobs only"),
        "{}",
        described["info"]
    );
    let paths: Vec<_> = described["paths"].as_object().unwrap().keys().cloned().collect();
    assert!(!paths.iter().any(|path| path.contains("documents") || path.contains("events")), "{paths:?}");
    assert!(!text("/docs").await.contains("<h2 id=\"Locks\">"));
}

#[tokio::test(start_paused = true)]
async fn a_server_on_a_whole_store_says_that_it_has_everything() {
    let house = House::new();
    let text = async |path: &str| String::from_utf8(house.stranger().get(path).await.bytes.to_vec()).unwrap();
    assert_eq!((text("/healthz").await, text("/readyz").await), ("ok\n".into(), "ready\n".into()));
    assert!(text("/metrics").await.contains("leasehold_jobs_only 0"));
    house.user("anna").get("/api/nowhere").await.refused(404, "not_found");
}

#[tokio::test(start_paused = true)]
async fn a_collection_may_be_below_a_document_of_another() {
    let house = House::new();
    let path = "/api/jobs/users%2Fu1%2Fanalyses/42";
    let one = house.worker_with("worker-1", json!({ "users/u1/*": "lock" }));
    assert_eq!(create(&one, path, json!({ "payload": 7 })).await.status, 201);
    let state = one.get(path).await.ok();
    assert_eq!((&state["collection"], &state["id"]), (&json!("users/u1/analyses"), &json!("42")));
    one.get("/api/jobs/users%2Fu2%2Fanalyses/42").await.refused(404, "job_not_found");
    one.get("/api/jobs/users%2Fu1/42").await.refused(400, "invalid");
    one.get("/api/jobs/users%2F..%2Fanalyses/42").await.refused(400, "invalid");
}
