//! Who may do what: every role on every call, with its own document or job, another's, and one that it has no grant for.
//!
//! What one has no grant for is answered the same on every call, byte for byte, whether or not anything is there.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, House, User};

const HELD: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// A call: its name, its method, the end of its address, and its body.
type Call = (&'static str, Method, &'static str, fn(u64) -> Value);

/// Every call about a document: what it is, and what it sends to a document whose lock has this fence.
fn calls() -> Vec<Call> {
    let nothing = |_| Value::Null;
    vec![
        ("acquire", Method::POST, "lock", nothing),
        ("renew", Method::PUT, "lock", nothing),
        ("look", Method::GET, "lock", nothing),
        ("check", Method::POST, "lock/check", |fence| json!({ "fence": fence })),
        ("events", Method::GET, "events", nothing),
        ("request", Method::POST, "lock/request", |fence| json!({ "fence": fence })),
        ("told", Method::POST, "lock/request/told", |_| json!({ "request": 1 })),
        ("answer", Method::POST, "lock/request/answer", |_| json!({ "request": 1, "hand_over": false })),
        ("withdraw", Method::DELETE, "lock/request", nothing),
        ("resume", Method::POST, "lock/resume", |_| json!({ "lease_id": HELD })),
        ("take over", Method::POST, "lock/take-over", |fence| json!({ "fence": fence, "reason": "why not" })),
        (
            "force release",
            Method::POST,
            "lock/force-release",
            |fence| json!({ "fence": fence, "reason": "why not" }),
        ),
        ("release", Method::DELETE, "lock", nothing),
    ]
}

async fn call(user: &User, (_, method, path, body): &Call, room: &str, fence: u64) -> Answer {
    let body = body(fence);
    let body = (!body.is_null()).then(|| body.to_string());
    let path = format!("/api/documents/{room}/{path}");
    if path.ends_with("/events") {
        return user.head_of(&path).await;
    }
    user.call(method.clone(), &path, body).await
}

/// What each call answers, by role: to the holder itself, and on another's lock.
fn expected(role: &str, what: &str, own: bool) -> (u16, &'static str) {
    match (role, what, own) {
        (_, "look" | "check" | "events", _) => (200, ""),
        ("read", ..) => (403, "not_allowed"),
        (_, "acquire", false) => (409, "held"),
        (_, "acquire" | "renew", true) => (200, ""),
        (_, "release", true) => (204, ""),
        (_, "renew" | "told" | "answer" | "resume" | "release", false) => (403, "not_holder"),
        (_, "told" | "answer", true) => (404, "no_request"),
        (_, "request", true | false) => (202, ""),
        (_, "withdraw", _) => (204, ""),
        (_, "resume", true) => (200, ""),
        ("lock", "take over", false) => (403, "not_allowed"),
        (_, "take over", _) => (200, ""),
        ("lock", "force release", _) => (403, "not_allowed"),
        ("force", "force release", _) => (204, ""),
        other => panic!("{other:?} is not in the table"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_role_on_every_call_with_its_own_and_anothers_lock() {
    for role in ["read", "lock", "force"] {
        for own in [true, false] {
            for one in calls() {
                let house = House::new();
                let user = house.user_with("user-a", json!({ "minutes": role }));
                let owner = house.user(if own { "user-a" } else { "user-b" });
                let fence = owner.post("/api/documents/minutes/lock", json!({ "lease_id": HELD })).await.ok()
                    ["fence"]
                    .as_u64()
                    .unwrap();
                let user = match one.0 {
                    "withdraw" => user.and("lease-id", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
                    _ => user,
                };
                let answer = call(&user, &one, "minutes", fence).await;
                let (status, code) = expected(role, one.0, own);
                let found = if answer.status.is_success() {
                    (answer.status.as_u16(), String::new())
                } else {
                    answer.code()
                };
                assert_eq!(
                    found,
                    (status, code.to_owned()),
                    "{role} {} own: {own}: {:?}",
                    one.0,
                    answer.bytes
                );
                house.end().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_has_no_grant_for_is_not_there() {
    let house = House::new();
    house.user("user-b").post("/api/documents/secret/lock", json!({ "lease_id": HELD })).await.ok();
    let outsiders = [
        house.user_with("user-a", json!({})),
        house.user_with("user-a", json!({ "secre": "force", "secret2": "force", "x*": "force" })),
    ];
    // What the absence of a lock looks like to somebody who may see the document.
    let absent = house.user("user-c").put("/api/documents/absent/lock").await;
    absent.refused(404, "lock_not_found");
    for user in outsiders {
        for one in calls() {
            for room in ["secret", "absent"] {
                let answer = call(&user, &one, room, 1).await;
                assert_eq!(
                    (answer.status, &answer.bytes),
                    (absent.status, &absent.bytes),
                    "{} {room}",
                    one.0
                );
                assert_eq!(answer.headers, absent.headers, "{} {room}", one.0);
            }
        }
        // A soft release asks for no token, only for the right lease id.
        let wrong = json!({ "lease_id": "7c9e6679-7425-40de-944b-e07fc1f90ae7" });
        for room in ["secret", "absent"] {
            let answer = user.post(&format!("/api/documents/{room}/lock/release"), wrong.clone()).await;
            assert_eq!((answer.status, &answer.bytes), (absent.status, &absent.bytes), "{room}");
            assert_eq!(answer.headers, absent.headers, "{room}");
        }
        // Of many heartbeats each is answered like that, also with the lease id of the lock that is there.
        let locks = ["secret", "absent"].map(|room| json!({ "roomId": room, "lease_id": HELD }));
        let beats = user.post("/api/documents/heartbeat", json!({ "locks": locks })).await.ok();
        for (at, room) in ["secret", "absent"].into_iter().enumerate() {
            let expected = json!({ "roomId": room, "status": 404, "code": "lock_not_found" });
            assert_eq!(beats["locks"][at], expected);
        }
        // A ticket reaches no further than its token.
        let ticket = user.post("/api/tickets", Value::Null).await.ok()["ticket"].as_str().unwrap().to_owned();
        for room in ["secret", "absent"] {
            let path = format!("/api/documents/{room}/events?ticket={ticket}");
            let answer = house.stranger().head_of(&path).await;
            assert_eq!((answer.status, &answer.bytes), (absent.status, &absent.bytes), "{room}");
            assert_eq!(answer.headers, absent.headers, "{room}");
        }
        let mut all = house.stranger().listen(&format!("/api/events?ticket={ticket}")).await;
        assert_eq!(all.next().await.unwrap().data, json!({ "documents": [], "more": false }));
        assert_eq!(user.get("/api/documents").await.ok(), json!({ "documents": [] }));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_token_every_call_is_refused_alike() {
    let house = House::new();
    house.user("user-b").post("/api/documents/secret/lock", Value::Null).await.ok();
    let mut bodies = std::collections::BTreeSet::new();
    for one in calls() {
        for room in ["secret", "absent"] {
            let answer = call(&house.stranger(), &one, room, 1).await;
            answer.refused(401, "unauthenticated");
            bodies.insert(answer.bytes.to_vec());
        }
    }
    assert_eq!(bodies.len(), 1);
}

// --- jobs ---

/// Every call about a job: what it is, and what it sends about an attempt with this fence.
fn job_calls() -> Vec<Call> {
    let claim = |fence: u64| json!({ "lease_id": HELD, "fence": fence });
    vec![
        ("create", Method::PUT, "", |_| json!({ "payload": { "page": 7 } })),
        ("look", Method::GET, "", |_| Value::Null),
        ("acquire", Method::POST, "/acquire", |_| Value::Null),
        ("acquire again", Method::POST, "/acquire", |_| json!({ "lease_id": HELD })),
        ("refresh", Method::POST, "/refresh", claim),
        (
            "complete",
            Method::POST,
            "/complete",
            |fence| json!({ "lease_id": HELD, "fence": fence, "result": 1 }),
        ),
        ("fail", Method::POST, "/fail", |fence| json!({ "lease_id": HELD, "fence": fence, "error": "no" })),
        ("release", Method::POST, "/release", claim),
        ("reset", Method::POST, "/reset", |_| Value::Null),
    ]
}

async fn job_call(user: &User, (_, method, path, body): &Call, job: &str, fence: u64) -> Answer {
    let body = body(fence);
    let body = (!body.is_null()).then(|| body.to_string());
    user.call(method.clone(), &format!("/api/jobs/{job}{path}"), body).await
}

/// What each call answers, by role: to the worker itself, and about another's attempt, whose lease id got out.
fn expected_of_job(role: &str, what: &str, own: bool) -> (u16, &'static str) {
    match (role, what, own) {
        (_, "look", _) => (200, ""),
        ("read", ..) => (403, "not_allowed"),
        // Not getting it is no error.
        (_, "create" | "acquire" | "acquire again", _) => (200, ""),
        (_, "refresh" | "complete" | "fail" | "release", false) => (403, "not_holder"),
        (_, "refresh" | "fail", true) => (200, ""),
        (_, "complete" | "release", true) => (204, ""),
        ("lock", "reset", _) => (403, "not_allowed"),
        ("force", "reset", _) => (409, "job_running"),
        other => panic!("{other:?} is not in the table"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_role_on_every_call_with_its_own_and_anothers_job() {
    for role in ["read", "lock", "force"] {
        for own in [true, false] {
            for one in job_calls() {
                let house = House::new();
                let user = house.worker_with("user-a", json!({ "analyses/*": role }));
                let owner = house.user(if own { "user-a" } else { "user-b" });
                let create = Some(json!({ "payload": { "page": 7 } }).to_string());
                owner.call(Method::PUT, "/api/jobs/analyses/42", create).await.ok();
                let grant =
                    owner.post("/api/jobs/analyses/42/acquire", json!({ "lease_id": HELD })).await.ok();
                let answer = job_call(&user, &one, "analyses/42", grant["fence"].as_u64().unwrap()).await;
                let found = match answer.status.is_success() {
                    true => (answer.status.as_u16(), String::new()),
                    false => answer.code(),
                };
                let (status, code) = expected_of_job(role, one.0, own);
                assert_eq!(
                    found,
                    (status, code.to_owned()),
                    "{role} {} own: {own}: {:?}",
                    one.0,
                    answer.bytes
                );
                if !own {
                    assert_eq!(
                        owner.get("/api/jobs/analyses/42").await.ok()["status"],
                        "RUNNING",
                        "{}",
                        one.0
                    );
                    let shown = String::from_utf8_lossy(&answer.bytes).into_owned();
                    assert!(!shown.contains(HELD), "{}: {shown}", one.0);
                }
                house.end().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_one_has_no_grant_for_is_not_there() {
    let house = House::new();
    let create = Some(json!({ "payload": 1 }).to_string());
    house.user("user-b").call(Method::PUT, "/api/jobs/analyses/42", create).await.ok();
    house.user("user-b").post("/api/jobs/analyses/42/acquire", json!({ "lease_id": HELD })).await.ok();
    let outsiders = [
        house.user_with("user-a", json!({ "*": "force" })),
        house.worker_with("user-a", json!({ "analyses/4": "force", "analyses2/*": "force", "x*": "force" })),
    ];
    let absent = house.user("user-c").get("/api/jobs/analyses/absent").await;
    absent.refused(404, "job_not_found");
    for user in outsiders {
        for one in job_calls() {
            for job in ["analyses/42", "analyses/absent"] {
                let answer = job_call(&user, &one, job, 1).await;
                assert_eq!((answer.status, &answer.bytes), (absent.status, &absent.bytes), "{} {job}", one.0);
                assert_eq!(answer.headers, absent.headers, "{} {job}", one.0);
            }
        }
    }
    // Whoever may see it is told the same about a job that is not there, on every call but the one that makes it.
    for one in job_calls().into_iter().filter(|one| one.0 != "create") {
        let answer = job_call(&house.user("user-c"), &one, "analyses/absent", 1).await;
        assert_eq!((answer.status, &answer.bytes), (absent.status, &absent.bytes), "{}", one.0);
    }
    let mut bodies = std::collections::BTreeSet::new();
    for one in job_calls() {
        let answer = job_call(&house.stranger(), &one, "analyses/42", 1).await;
        answer.refused(401, "unauthenticated");
        bodies.insert(answer.bytes.to_vec());
    }
    assert_eq!(bodies.len(), 1);
}

// --- leases of programs ---

/// Every call about a lease, each with the lease id of the one that is held.
fn lease_calls() -> Vec<Call> {
    let nothing = |_| Value::Null;
    vec![
        ("look", Method::GET, "", nothing),
        ("acquire again", Method::POST, "", nothing),
        ("acquire", Method::POST, "", |_| json!({ "ttl_seconds": 60 })),
        ("renew", Method::PUT, "", nothing),
        ("cancel", Method::POST, "/cancel", nothing),
        ("release", Method::DELETE, "", nothing),
    ]
}

async fn lease_call(user: &User, (what, method, path, body): &Call, name: &str) -> Answer {
    let body = body(1);
    let body = (!body.is_null()).then(|| body.to_string());
    let lease_id = if *what == "acquire" { "7c9e6679-7425-40de-944b-e07fc1f90ae7" } else { HELD };
    user.and("lease-id", lease_id).call(method.clone(), &format!("/api/leases/{name}{path}"), body).await
}

/// What each call answers, by role: to the holder itself, and about another's lease, whose lease id got out.
fn expected_of_lease(role: &str, what: &str, own: bool) -> (u16, &'static str) {
    match (role, what, own) {
        (_, "look", _) => (200, ""),
        ("read", ..) => (403, "not_allowed"),
        (_, "acquire", _) | (_, "acquire again", false) => (409, "held"),
        (_, "acquire again" | "renew", true) => (200, ""),
        (_, "cancel" | "release", true) => (204, ""),
        (_, "renew" | "cancel" | "release", false) => (403, "not_holder"),
        other => panic!("{other:?} is not in the table"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_role_on_every_call_with_its_own_and_anothers_lease() {
    for role in ["read", "lock", "force"] {
        for own in [true, false] {
            for one in lease_calls() {
                let house = House::new();
                let user = house.program_with("user-a", json!({ "deploy/*": role }));
                let owner = house.user(if own { "user-a" } else { "user-b" });
                owner.post("/api/leases/deploy%2Feu", json!({ "lease_id": HELD })).await.ok();
                let answer = lease_call(&user, &one, "deploy%2Feu").await;
                let found = match answer.status.is_success() {
                    true => (answer.status.as_u16(), String::new()),
                    false => answer.code(),
                };
                let (status, code) = expected_of_lease(role, one.0, own);
                let what = format!("{role} {} own: {own}: {:?}", one.0, answer.bytes);
                assert_eq!(found, (status, code.to_owned()), "{what}");
                if !own {
                    let shown = String::from_utf8_lossy(&answer.bytes).into_owned();
                    assert!(!shown.contains(HELD), "{what}");
                    assert_eq!(
                        owner.get("/api/leases/deploy%2Feu").await.ok()["held"]["holder"]["id"],
                        "user-b",
                        "{what}"
                    );
                }
                house.end().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_one_has_no_grant_for_is_not_there() {
    let house = House::new();
    house.user("user-b").post("/api/leases/secret", json!({ "lease_id": HELD })).await.ok();
    let outsiders = [
        house.user_with("user-a", json!({ "*": "force" })),
        house.worker_with("user-a", json!({ "*": "force" })),
        house.program_with("user-a", json!({ "secre": "force", "secret/*": "force", "x*": "force" })),
    ];
    // What the absence of a lease looks like to a caller who may hold it.
    let absent = house.user("user-c").and("lease-id", HELD).put("/api/leases/absent").await;
    absent.refused(404, "lease_not_found");
    for user in outsiders {
        for one in lease_calls() {
            for name in ["secret", "absent"] {
                let answer = lease_call(&user, &one, name).await;
                assert_eq!(
                    (answer.status, &answer.bytes),
                    (absent.status, &absent.bytes),
                    "{} {name}",
                    one.0
                );
                assert_eq!(answer.headers, absent.headers, "{} {name}", one.0);
            }
        }
    }
    for one in lease_calls() {
        lease_call(&house.stranger(), &one, "secret").await.refused(401, "unauthenticated");
    }
}
