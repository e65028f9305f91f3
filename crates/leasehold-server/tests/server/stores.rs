//! The server on stores that last: a file, and a PostgreSQL that two servers share.

use std::sync::Arc;

use leasehold_store::{Embedded, Postgres};
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
