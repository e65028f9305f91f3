//! A database that the version before made is brought up to date when it is used, as a file is (`crate::migration`).

use std::sync::Arc;

use leasehold_store::{JobStore, Postgres, Store};

use super::harness::shared_server;
use crate::migration::{FIXTURES, check_all, doc, tab};

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
    assert_eq!(version, 4);
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
