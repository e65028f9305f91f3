//! Leases of programs over HTTP, on virtual time: their whole life, lost answers, and what nobody but the holder may do.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, House, User, pass};

const LEASE: &str = "/api/leases/nightly-report";
const FIRST: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const SECOND: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

async fn acquire(user: &User, lease_id: &str) -> Answer {
    user.post(LEASE, json!({ "lease_id": lease_id, "ttl_seconds": 60 })).await
}

fn with_id(user: &User, lease_id: &str) -> User {
    user.and("lease-id", lease_id)
}

#[tokio::test(start_paused = true)]
async fn a_program_acquires_renews_and_releases_with_a_ttl_of_its_own() {
    let house = House::new();
    let (one, two) = (house.user("cron-1"), house.user("cron-2"));
    assert_eq!(one.get(LEASE).await.ok(), json!({ "name": "nightly-report", "seq": 0 }));
    let body = json!({ "lease_id": FIRST, "ttl_seconds": 60, "program": "machine-7" });
    let grant = one.post(LEASE, body).await.ok();
    let fence = grant["fence"].as_u64().unwrap();
    let holder = json!({ "id": "cron-1", "name": "machine-7" });
    let hold = json!({
        "fence": fence, "expires_at": "2026-01-01T12:01:00Z", "expires_in_ms": 60_000, "ttl_seconds": 60,
        "renew_after_ms": 20_000, "stop_after_ms": 54_000, "holder": holder
    });
    let mut expected = hold.clone();
    expected["lease_id"] = FIRST.into();
    assert_eq!(grant, expected);
    pass(20).await;
    let renewed = with_id(&one, FIRST).put(LEASE).await.ok();
    assert_eq!((&renewed["fence"], &renewed["expires_in_ms"]), (&json!(fence), &json!(60_000)));
    assert_eq!(renewed["expires_at"], "2026-01-01T12:01:20Z");
    pass(59).await;
    let held = acquire(&two, SECOND).await.refused(409, "held");
    assert_eq!(
        (&held["holder"], &held["fence"], &held["expires_in_ms"]),
        (&holder, &json!(fence), &json!(1_000))
    );
    let look = two.get(LEASE).await.ok();
    assert_eq!((&look["held"]["holder"], &look["held"]["same_user"]), (&holder, &json!(false)));
    assert!(!look.to_string().contains(FIRST), "the lease id is not shown: {look}");
    assert_eq!(with_id(&one, FIRST).delete(LEASE).await.status, 204);
    let next = acquire(&two, SECOND).await.ok();
    assert!(next["fence"].as_u64() > Some(fence));
}

#[tokio::test(start_paused = true)]
async fn a_ttl_lies_between_a_second_and_a_day_and_is_30_s_by_default() {
    let house = House::new();
    let one = house.user("cron-1");
    assert_eq!(one.post(LEASE, Value::Null).await.ok()["expires_in_ms"], 30_000);
    for (ttl, expected) in [(1, 1_000), (86_400, 86_400_000)] {
        let grant = one.post(&format!("/api/leases/ttl-{ttl}"), json!({ "ttl_seconds": ttl })).await.ok();
        assert_eq!(grant["expires_in_ms"], expected);
    }
    for ttl in [json!(0), json!(86_401), json!(-1), json!(1.5), json!("30")] {
        one.post("/api/leases/x", json!({ "ttl_seconds": ttl })).await.refused(400, "invalid");
    }
    let body = Some(json!({ "ttl_seconds": 600 }).to_string());
    let grant = one.post("/api/leases/y", json!({ "lease_id": FIRST })).await.ok();
    assert_eq!(grant["expires_in_ms"], 30_000);
    let longer = with_id(&one, FIRST).call(Method::PUT, "/api/leases/y", body).await.ok();
    assert_eq!((&longer["expires_in_ms"], &longer["ttl_seconds"]), (&json!(600_000), &json!(600)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_repeated_and_gives_the_same_lease() {
    let house = House::new();
    let (one, two) = (house.user("cron-1"), house.user("cron-2"));
    let first = acquire(&one, FIRST).await.ok();
    pass(30).await;
    let again = acquire(&one, FIRST).await.ok();
    assert_eq!((&again["fence"], &again["expires_in_ms"]), (&first["fence"], &json!(60_000)));
    // By the header as well as by the body.
    assert_eq!(with_id(&one, FIRST).post(LEASE, Value::Null).await.ok()["fence"], first["fence"]);
    // Another lease id of the same owner is another program.
    acquire(&one, SECOND).await.refused(409, "held");
    // A lease id that got out is of no use to another caller.
    acquire(&two, FIRST).await.refused(409, "held");
    with_id(&two, FIRST).put(LEASE).await.refused(403, "not_holder");
    with_id(&two, FIRST).delete(LEASE).await.refused(403, "not_holder");
    with_id(&two, FIRST).post(&format!("{LEASE}/cancel"), Value::Null).await.refused(403, "not_holder");
    assert_eq!(one.get(LEASE).await.ok()["held"]["fence"], first["fence"]);
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_is_never_granted_again_and_never_ends_its_successor() {
    let house = House::new();
    let (one, two) = (house.user("cron-1"), house.user("cron-2"));
    acquire(&one, FIRST).await.ok();
    pass(60).await;
    with_id(&one, FIRST).put(LEASE).await.refused(404, "lease_not_found");
    assert_eq!(acquire(&one, FIRST).await.refused(410, "lease_over")["because"], "expired");
    let next = acquire(&two, SECOND).await.ok();
    with_id(&one, FIRST).put(LEASE).await.refused(403, "not_holder");
    with_id(&one, FIRST).delete(LEASE).await.refused(403, "not_holder");
    assert_eq!(two.get(LEASE).await.ok()["held"]["fence"], next["fence"]);
    assert_eq!(with_id(&two, SECOND).delete(LEASE).await.status, 204);
    with_id(&two, SECOND).delete(LEASE).await.refused(404, "lease_not_found");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_is_cancelled_before_it_arrives_and_after() {
    let house = House::new();
    let one = house.user("cron-1");
    let cancel = format!("{LEASE}/cancel");
    assert_eq!(with_id(&one, FIRST).post(&cancel, Value::Null).await.status, 204);
    // The copy that was still on the way.
    assert_eq!(acquire(&one, FIRST).await.refused(410, "lease_over")["because"], "withdrawn");
    acquire(&one, SECOND).await.ok();
    assert_eq!(with_id(&one, SECOND).post(&cancel, Value::Null).await.status, 204);
    assert_eq!(one.get(LEASE).await.ok()["held"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_holder_sends_its_lease_id_or_is_told_to() {
    let house = House::new();
    let one = house.user("cron-1");
    acquire(&one, FIRST).await.ok();
    for answer in [
        one.put(LEASE).await,
        one.delete(LEASE).await,
        one.post(&format!("{LEASE}/cancel"), Value::Null).await,
    ] {
        let detail = answer.refused(400, "invalid")["detail"].to_string();
        assert!(detail.contains("Lease-Id"), "{detail}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_with_slashes_is_one_segment_and_meets_no_document() {
    let house = House::new();
    let one = house.user("cron-1");
    let path = "/api/leases/deploy%2Feu";
    let grant = one.post(path, json!({ "lease_id": FIRST })).await.ok();
    assert_eq!(one.get(path).await.ok()["name"], "deploy/eu");
    assert_eq!(one.get(path).await.ok()["held"]["fence"], grant["fence"]);
    for bad in ["deploy%2F..", "a%20b", "%2Fa", "a%2F", "a%2F%2Fb", "."] {
        let status = one.get(&format!("/api/leases/{bad}")).await.status.as_u16();
        assert_eq!(status, 400, "{bad}");
    }
    one.post("/api/leases/minutes", Value::Null).await.ok();
    assert_eq!(one.get("/api/documents/minutes/lock").await.ok()["locked"], false);
    assert_eq!(one.get("/api/documents").await.ok(), json!({ "documents": [] }));
}

#[tokio::test(start_paused = true)]
async fn a_program_counts_in_the_metrics_and_in_the_limits() {
    // One a second: on a busy machine, the fourth request comes later than a faster limit would notice.
    let house = House::with(|config| (config.limits.requests_per_second, config.limits.burst) = (1, 3));
    let one = house.user("cron-1");
    acquire(&one, FIRST).await.ok();
    with_id(&one, FIRST).put(LEASE).await.ok();
    acquire(&one, SECOND).await.refused(409, "held");
    let limited = one.get(LEASE).await;
    limited.refused(429, "too_many_requests");
    assert!(limited.headers.contains_key("retry-after"));
    let metrics = String::from_utf8(house.stranger().get("/metrics").await.bytes.to_vec()).unwrap();
    let shows = |line: &str| metrics.lines().any(|shown| shown.contains(line));
    assert!(shows("/api/leases/{name}") && !shows("nightly-report"), "{metrics}");
}
