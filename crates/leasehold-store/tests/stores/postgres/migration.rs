//! A database that the version before made is brought up to date when it is used, as a file is (`crate::migration`).

use std::sync::Arc;

use leasehold_core::{Command, Outcome};
use leasehold_store::{JobStore, Postgres, Store};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::harness::shared_server;
use super::server::Server;
use crate::migration::{FIXTURES, check_all, doc, tab};

/// What the version before makes of an empty database.
const SCHEMA_4: [&str; 4] = [
    include_str!("../../../src/postgres/migrations/1.sql"),
    include_str!("../../../src/postgres/migrations/2.sql"),
    include_str!("../../../src/postgres/migrations/3.sql"),
    include_str!("../../../src/postgres/migrations/4.sql"),
];

#[tokio::test]
async fn a_database_of_the_version_before_is_brought_up_to_date() {
    let Some((server, _in_use)) = shared_server().await else { return };
    let database = server.create_database().await;
    let dump = std::fs::read_to_string(format!("{FIXTURES}/postgres-schema-2.sql")).unwrap();
    server.connect(&database).await.batch_execute(&dump).await.unwrap();
    let clock = "CREATE OR REPLACE FUNCTION leasehold.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE AS \
        'SELECT s.clock + 1000 FROM leasehold.store s'";
    server.connect(&database).await.batch_execute(clock).await.unwrap();
    let store = Postgres::open(&server.url(&database)).unwrap();
    check_all(&store).await;
    let row = server.connect(&database).await;
    let version: i64 = row.query_one("SELECT version FROM leasehold.store", &[]).await.unwrap().get(0);
    assert_eq!(version, 5);
}

/// A server of the version before is refused by its own check of the version, which every command makes. One that had
/// begun a command when the tables changed finishes it first: the new column waits for it.
#[tokio::test]
async fn a_command_that_began_before_is_finished_before_the_tables_change() {
    let Some((server, _in_use)) = shared_server().await else { return };
    let database = server.create_database().await;
    let dump = std::fs::read_to_string(format!("{FIXTURES}/postgres-schema-2.sql")).unwrap();
    server.connect(&database).await.batch_execute(&dump).await.unwrap();
    let old = server.connect(&database).await;
    old.batch_execute("BEGIN; SELECT * FROM leasehold.lock_and_read('doc/agenda', NULL, NULL, 10)")
        .await
        .unwrap();
    let store = Arc::new(Postgres::open(&server.url(&database)).unwrap());
    let migrating = tokio::spawn({
        let store = store.clone();
        async move { store.now().await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'leasehold.slot'::regclass";
    while old.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    let write = "SELECT leasehold.write(0, 1, 1, (SELECT json_agg(k)::text FROM leasehold.slot k \
        WHERE key = 'doc/agenda'), '[]', '[]'); COMMIT";
    old.batch_execute(write).await.unwrap();
    migrating.await.unwrap().unwrap();
    let lease = store.read(&doc("agenda")).await.unwrap().slot.lease;
    // The database's own clock: the lock may have expired since the fixture was made.
    assert!(lease.is_none_or(|lease| lease.tab == tab("tab-b")));
    let tab: Option<String> =
        old.query_one("SELECT tab FROM leasehold.slot WHERE key = 'doc/plan'", &[]).await.unwrap().get(0);
    assert_eq!(tab, None);
}

/// Schema 5 has the tables of schema 4, and other functions: what schema 4 wrote is read, its server is refused because of the
/// version that its own first trip shows, and its second trip is not there any more.
#[tokio::test]
async fn a_server_of_schema_4_finishes_its_command_and_is_refused_from_then_on() {
    let Some((server, _in_use)) = shared_server().await else { return };
    let database = server.create_database().await;
    let old = schema_4(server, &database).await;
    old.batch_execute("BEGIN; SELECT * FROM leasehold.lock_and_read('doc/agenda', NULL, NULL, 10)")
        .await
        .unwrap();
    let store = Arc::new(Postgres::open(&server.url(&database)).unwrap());
    let migrating = tokio::spawn({
        let store = store.clone();
        async move { store.now().await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'leasehold.slot'::regclass";
    while old.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    old.batch_execute(&format!("SELECT {WRITE_OF_SCHEMA_4}; COMMIT")).await.unwrap();
    migrating.await.unwrap().unwrap();
    let reading = store.read(&doc("agenda")).await.unwrap();
    let lease = reading.slot.lease.expect("what the command of schema 4 wrote");
    assert_eq!((lease.owner.as_str(), lease.fence.get(), lease.tab.clone()), ("user-b", 7, tab("tab-b")));
    assert_eq!(lease.meta.iter().collect::<Vec<_>>(), [("name", "Ben")]);
    assert_eq!(reading.position.0, 1);
    let renewed =
        store.apply(&doc("agenda"), Command::Renew { claim: lease.proof().into(), ttl: None }).await;
    assert!(matches!(renewed.unwrap().outcome, Outcome::Renewed(_)));
    let version = "SELECT found_version FROM leasehold.lock_and_read('doc/agenda', NULL::uuid, NULL, 10)";
    assert_eq!(old.query_one(version, &[]).await.unwrap().get::<_, i64>(0), 5);
    let error = old.batch_execute(&format!("SELECT {WRITE_OF_SCHEMA_4}")).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::UNDEFINED_FUNCTION), "{error}");
}

/// An empty database of schema 4, and a connection to it.
async fn schema_4(server: &Server, database: &str) -> Client {
    let connection = server.connect(database).await;
    for migration in SCHEMA_4 {
        connection.batch_execute(migration).await.unwrap();
    }
    connection.batch_execute("UPDATE leasehold.store SET version = 4").await.unwrap();
    connection
}

/// The second trip of a grant, as a server of schema 4 sends it. The lease ends in the year 2096.
const WRITE_OF_SCHEMA_4: &str = r#"leasehold.write(1, 7, 1, '[{"key": "doc/agenda", "seq": 1, "vacant_since": 0,
    "due_at": 4000000000000, "owner": "user-b", "tab": "tab-b", "lease_id": "00000000-0000-4000-8000-000000000001",
    "fence": 7, "acquired_at": 1, "renewed_at": 1, "expires_at": 4000000000000, "ttl_ms": 30000, "leaving": false,
    "meta": "{\"name\":\"Ben\"}", "request": null}]', '[]', '[{"position": 1, "key": "doc/agenda", "seq": 1, "at": 1,
    "fence": 7, "owner": "user-b", "kind": "granted", "until": 4000000000000, "meta": "{\"name\":\"Ben\"}"}]')"#;
