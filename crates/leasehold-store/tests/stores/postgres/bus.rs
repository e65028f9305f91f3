//! Messages between servers on one database.

use std::time::Duration;

use leasehold_store::Store;
use leasehold_store::bus::{Heard, Listening};
use tokio::time::timeout;

use super::harness::{PostgresHarness, Way};
use crate::harness::DEADLINE;

async fn next(listening: &mut Listening) -> Heard {
    timeout(DEADLINE, listening.heard.recv()).await.expect("it hears nothing").unwrap()
}

async fn until(listening: &mut Listening, heard: &Heard) {
    while next(listening).await != *heard {}
}

#[tokio::test]
async fn texts_reach_every_process_in_order_and_a_lost_connection_is_told() {
    let Some(harness) = PostgresHarness::start(Way::Direct).await else { return };
    let (one, other) = (harness.another(), harness.another());
    let (sender, receiver) = (one.bus().unwrap(), other.bus().unwrap());
    let mut listening = receiver.listen();
    until(&mut listening, &Heard::Hearing).await;
    assert!(receiver.listen().is_hearing, "a second receiver need not wait");
    let longest = "x".repeat(sender.longest());
    let texts = ["a".to_owned(), longest, "世界".to_owned(), String::new()];
    sender.send(&texts).await.unwrap();
    sender.send(&["b".to_owned()]).await.unwrap();
    for text in texts.iter().map(String::as_str).chain(["b"]) {
        assert_eq!(next(&mut listening).await, Heard::Text(text.into()));
    }
    // All of them or none.
    let too_long = "x".repeat(8_001);
    sender.send(&["c".to_owned(), too_long]).await.unwrap_err();
    sender.send(&["d".to_owned()]).await.unwrap();
    assert_eq!(next(&mut listening).await, Heard::Text("d".into()));
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    harness.connect().await.batch_execute(kill).await.unwrap();
    assert_eq!(next(&mut listening).await, Heard::Deaf);
    assert_eq!(next(&mut listening).await, Heard::Hearing);
    sender.send(&["e".to_owned()]).await.unwrap();
    assert_eq!(next(&mut listening).await, Heard::Text("e".into()));
}

#[tokio::test]
async fn behind_pgbouncer_texts_are_sent_and_only_a_direct_connection_hears_them() {
    let Some(harness) = PostgresHarness::start(Way::Bouncer).await else { return };
    let store = harness.another();
    let sender = store.bus().unwrap();
    let mut deaf = sender.listen();
    let direct = harness.server().url(&harness.database());
    let url = format!("{}?listen={direct}", harness.url());
    let listener = leasehold_store::Postgres::open(&url).unwrap();
    let mut hears = listener.bus().unwrap().listen();
    until(&mut hears, &Heard::Hearing).await;
    sender.send(&["a".to_owned()]).await.unwrap();
    assert_eq!(next(&mut hears).await, Heard::Text("a".into()));
    let nothing = timeout(Duration::from_millis(100), deaf.heard.recv()).await;
    assert!(nothing.is_err() && !deaf.is_hearing, "{nothing:?}");
}
