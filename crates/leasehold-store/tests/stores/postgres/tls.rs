//! TLS to the database: every connection has it, or there is none.

use std::time::Duration;

use leasehold_core::Position;
use leasehold_store::{Error, Feed, Postgres, Retry, Store};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::harness::{PostgresHarness, Way};
use crate::harness::{DEADLINE, bid, key, must_acquire};

/// The connections that the database has with a store of this name: with TLS, without, and listening.
async fn connections(client: &Client, name: &str) -> (i64, i64, i64) {
    let sql = "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl), \
               count(*) FILTER (WHERE query LIKE 'LISTEN%') \
               FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1";
    let row = client.query_one(sql, &[&name]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[tokio::test]
async fn with_tls_every_connection_has_it_and_so_has_the_one_that_listens() {
    let Some(harness) = PostgresHarness::start(Way::Direct).await else { return };
    let authority = harness.server().certificate();
    let url = format!(
        "{}?application_name=private&sslmode=verify-full&sslrootcert={}",
        harness.url(),
        authority.display()
    );
    let store = Postgres::open(&url).unwrap();
    must_acquire(&store, &key("private"), &bid("anna", 1, Duration::from_secs(30))).await;
    let Feed::Events(events) = store.events(Position(0), 10).await.unwrap() else { panic!("a gap") };
    assert_eq!(events.len(), 1);
    let client = harness.connect().await;
    let listening = async {
        loop {
            let (private, open, listening) = connections(&client, "private").await;
            assert_eq!(open, 0, "beside {private} with TLS");
            if listening == 1 {
                break private;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let private = timeout(DEADLINE, listening).await.expect("it never listened");
    assert!(private >= 2, "{private}");
}

#[tokio::test]
async fn a_database_that_cannot_prove_who_it_is_gets_no_password() {
    let Some(harness) = PostgresHarness::start(Way::Direct).await else { return };
    let server = harness.server();
    let (right, stranger) = (server.certificate(), server.make_certificate("stranger"));
    let (direct, other_name) = (harness.url(), harness.url().replace("127.0.0.1", "localhost"));
    let bouncer = server.bouncer_url(&harness.database());
    let cases = [
        ("signed by somebody else", &direct, &stranger, "UnknownIssuer", Retry::No),
        ("of another name", &other_name, &right, "not valid for name", Retry::No),
        ("not there at all", &bouncer, &right, "does not support TLS", Retry::Safe),
    ];
    for (certificate, url, authority, expected, expected_retry) in cases {
        let url = format!("{url}?sslmode=require&sslrootcert={}", authority.display());
        let error = Postgres::open(&url).unwrap().now().await.unwrap_err();
        let Error::Unavailable { what, retry } = error else {
            panic!("a certificate {certificate}: {error}")
        };
        assert!(what.contains(expected), "a certificate {certificate}: {what}");
        assert_eq!(retry, expected_retry, "a certificate {certificate}");
    }
}

#[tokio::test]
async fn a_file_without_an_authority_is_refused_when_the_store_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, empty) = (folder.path().join("missing.pem"), folder.path().join("empty.pem"));
    std::fs::write(&empty, "nothing here\n").unwrap();
    for (file, expected) in [(missing, "No such file"), (empty, "no certificate in it")] {
        let url = format!("postgres://me:hunter2@h/d?sslmode=verify-full&sslrootcert={}", file.display());
        let error = Postgres::open(&url).err().unwrap().to_string();
        assert!(error.contains(expected) && error.contains("name a PEM file"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
