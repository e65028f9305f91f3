//! Event streams against a server: without a gap, without a copy, through a network that fails.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold_client::http::Error;
use leasehold_client::{Events, HttpClient, Notice};
use leasehold_core::wire::documents::{DocumentEvent, EventName, UnlockReason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::proxy::Proxy;
use crate::server::{TestServer, client, client_with, room, token};

const SOON: Duration = Duration::from_secs(10);

async fn next(events: &mut Events) -> Notice {
    timeout(SOON, events.next()).await.expect("nothing was said").expect("it ended").unwrap()
}

async fn next_event(events: &mut Events) -> DocumentEvent {
    loop {
        if let Notice::Event(event) = next(events).await {
            return event;
        }
    }
}

async fn lock_and_unlock(client: &HttpClient, name: &str) {
    let grant = client.lock(&room(name), None).await.unwrap();
    let lease_id = leasehold_client::LeaseId::parse(&grant.lease_id.0).unwrap();
    client.unlock(&room(name), Some(&lease_id)).await.unwrap();
}

#[tokio::test]
async fn a_stream_begins_with_how_things_stand_and_tells_what_happens() {
    let server = TestServer::start().await;
    let anna = server.client("anna");
    let mut events = server.client("ben").events(Some(&room("minutes")), None);
    let Notice::Snapshot(state) = next(&mut events).await else { panic!("no snapshot") };
    assert!(!state.locked && events.is_connected());
    lock_and_unlock(&anna, "minutes").await;
    let locked = next_event(&mut events).await;
    assert_eq!((locked.event, locked.holder.name.as_str()), (EventName::DocumentLocked, "Anna"));
    let unlocked = next_event(&mut events).await;
    assert_eq!(
        (unlocked.event, unlocked.reason),
        (EventName::DocumentUnlocked, Some(UnlockReason::Released))
    );
    assert_eq!((unlocked.seq, events.last_event_id()), (locked.seq + 1, Some(unlocked.seq)));
}

#[tokio::test]
async fn a_stream_that_is_cut_again_and_again_leaves_out_nothing_and_repeats_nothing() {
    let server = TestServer::start().await;
    let proxy = Proxy::to(server.address).await;
    let anna = server.client("anna");
    let mut events = client(proxy.address, "ben").events(Some(&room("minutes")), None);
    let Notice::Snapshot(state) = next(&mut events).await else { panic!("no snapshot") };
    let mut last = state.seq;
    for round in 0..20 {
        if round % 3 == 0 {
            proxy.interrupt();
        }
        lock_and_unlock(&anna, "minutes").await;
        if round % 4 == 0 {
            proxy.interrupt();
        }
        for _ in 0..2 {
            let event = next_event(&mut events).await;
            assert_eq!(event.seq, last + 1, "round {round}");
            last = event.seq;
        }
    }
}

#[tokio::test]
async fn a_stream_goes_on_where_another_one_was() {
    let server = TestServer::start().await;
    let anna = server.client("anna");
    let mut first = anna.events(Some(&room("minutes")), None);
    let Notice::Snapshot(state) = next(&mut first).await else { panic!("no snapshot") };
    drop(first);
    lock_and_unlock(&anna, "minutes").await;
    let mut second = anna.events(Some(&room("minutes")), Some(state.seq));
    let Notice::Event(event) = next(&mut second).await else { panic!("it began anew") };
    assert_eq!(event.seq, state.seq + 1);
}

#[tokio::test]
async fn where_a_stream_cannot_go_on_a_snapshot_comes() {
    let server = TestServer::start().await;
    lock_and_unlock(&server.client("anna"), "minutes").await;
    let mut events = server.client("anna").events(Some(&room("minutes")), Some(999_999));
    assert!(matches!(next(&mut events).await, Notice::Snapshot(_)));
}

#[tokio::test]
async fn all_documents_are_in_one_stream() {
    let server = TestServer::start().await;
    let anna = server.client("anna");
    anna.lock(&room("before"), None).await.unwrap();
    let events = server.client("ben").events(None, None).into_stream();
    let mut events = std::pin::pin!(events);
    let first = timeout(SOON, events.next()).await.unwrap().unwrap().unwrap();
    let Notice::SnapshotOfAll { documents, more: false } = first else { panic!("{first:?}") };
    assert_eq!(documents.iter().map(|state| state.room_id.as_str()).collect::<Vec<_>>(), ["before"]);
    for name in ["one", "two"] {
        anna.lock(&room(name), None).await.unwrap();
        let Notice::Event(event) = timeout(SOON, events.next()).await.unwrap().unwrap().unwrap() else {
            panic!("no event")
        };
        assert_eq!(event.room_id, name);
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let server = TestServer::start().await;
    let client = client_with(server.address, &token("anna", Duration::from_secs(2)));
    let mut events = client.events(Some(&room("minutes")), None);
    assert!(matches!(next(&mut events).await, Notice::Snapshot(_)));
    let end = timeout(SOON, events.next()).await.expect("it goes on").unwrap();
    assert!(matches!(&end, Err(Error::Unauthenticated { detail: Some(_) })), "{end:?}");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_server_that_shuts_down_is_told_and_waited_for() {
    let server = TestServer::start().await;
    let proxy = Proxy::to(server.address).await;
    let mut events = client(proxy.address, "anna").events(Some(&room("minutes")), None);
    assert!(matches!(next(&mut events).await, Notice::Snapshot(_)));
    server.stop().await;
    let Notice::Interrupted { why } = next(&mut events).await else { panic!("it was not told") };
    assert!(why.contains("shutting down"), "{why}");
    let server = TestServer::start().await;
    proxy.move_to(server.address);
    lock_and_unlock(&server.client("ben"), "minutes").await;
    assert!(matches!(next(&mut events).await, Notice::Snapshot(_) | Notice::Event(_)));
}

#[tokio::test]
async fn a_stream_without_permission_ends_with_the_reason() {
    let server = TestServer::start().await;
    let mut events = client_with(server.address, "nobody").events(Some(&room("minutes")), None);
    assert!(matches!(events.next().await, Some(Err(Error::Unauthenticated { .. }))));
    assert!(events.next().await.is_none());
}

/// A connection over which nothing comes any more, not even a heartbeat: nobody closed it, and no error will come.
#[tokio::test]
async fn a_silent_connection_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let said = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n\
                 event: snapshot\ndata: {\"roomId\":\"minutes\",\"locked\":false,\"seq\":3}\n\n";
    let server = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = [0; 4_096];
        assert!(connection.read(&mut request).await.unwrap() > 0);
        connection.write_all(said).await.unwrap();
        (listener, connection)
    });
    let mut events = client_with(address, "t").events(Some(&room("minutes")), None);
    assert!(matches!(next(&mut events).await, Notice::Snapshot(_)));
    let _open = server.await.unwrap();
    // From here on the clock jumps to whatever is waited for.
    tokio::time::pause();
    let start = Instant::now();
    let Some(Ok(Notice::Interrupted { why })) = events.next().await else { panic!("it waits for ever") };
    assert!(why.contains("nothing was heard"), "{why}");
    assert_eq!(start.elapsed().as_secs(), 45);
}
