//! The feed of events: ordered, without gaps, and one end for each grant.

use std::time::Duration;

use leasehold_core::{Command, EndReason, EventKind, Outcome, Position, Reason};

use super::party::{Party, TTL, apply, events_of, granted, key, kind_word};
use super::{Harness, Restart};
use crate::Feed;

/// Law 9: the events of a key are ordered and without gaps, and tell what happened.
pub async fn law_09_events_are_ordered_and_without_gaps(harness: &dyn Harness) {
    let key = key("law-09");
    let start = harness.store().read(&key).await.unwrap();
    for number in 0..3 {
        let mut anna = Party::new("anna", 90 + number);
        anna.must_acquire(harness, &key).await;
        anna.must_renew(harness, &key).await;
        anna.must_release(harness, &key).await;
    }
    let events = events_of(harness, &key, start.position).await;
    let told: Vec<_> = events.iter().map(|event| (event.seq - start.slot.seq, kind_word(event))).collect();
    let expected = [(1, "granted"), (2, "ended"), (3, "granted"), (4, "ended"), (5, "granted"), (6, "ended")];
    assert_eq!(told, expected, "a renewal is nobody else's business");
    let reading = harness.store().read(&key).await.unwrap();
    assert_eq!(reading.slot.seq, events.last().unwrap().seq, "a snapshot says which events it contains");
}

/// Law 9 again: one expiry gives one event, whoever notices first.
pub async fn law_09_one_expiry_gives_one_event(harness: &dyn Harness) {
    let key = key("law-09-expiry");
    let mut anna = Party::new("anna", 95);
    anna.must_acquire(harness, &key).await;
    let start = harness.store().read(&key).await.unwrap().position;
    harness.advance(TTL).await;
    anna.renew(harness, &key).await;
    apply(harness, &key, Command::Check { fence: anna.fence() }).await;
    harness.store().read(&key).await.unwrap();
    harness.store().settle_due(100).await.unwrap();
    Party::new("ben", 96).must_acquire(harness, &key).await;
    let expiries = events_of(harness, &key, start).await;
    let expiries =
        expiries.iter().filter(|event| event.kind == EventKind::Ended { because: EndReason::Expired });
    assert_eq!(expiries.count(), 1);
    let other = self::key("law-09-swept");
    Party::new("cora", 97).must_acquire(harness, &other).await;
    let start = harness.store().read(&other).await.unwrap().position;
    harness.advance(TTL).await;
    while harness.store().settle_due(1).await.unwrap().keys > 0 {}
    let told = events_of(harness, &other, start).await;
    assert_eq!(
        told.iter().map(kind_word).collect::<Vec<_>>(),
        ["ended"],
        "a sweep tells it without being asked"
    );
}

/// Law 9 again: what ends by force is told with who did it, and why.
pub async fn law_09_an_end_by_force_tells_who_and_why(harness: &dyn Harness) {
    let key = key("law-09-force");
    let (mut anna, mut ben) = (Party::new("anna", 55), Party::new("ben", 56));
    let seen = anna.must_acquire(harness, &key).await.fence;
    let start = harness.store().read(&key).await.unwrap().position;
    let taken = granted(&ben.take_over(harness, &key, seen).await);
    let reason = Reason::parse("left for lunch").unwrap();
    let force = Command::ForceRelease { seen: taken.fence, by: anna.owner.clone(), reason: reason.clone() };
    assert_eq!(apply(harness, &key, force).await.outcome, Outcome::Released);
    let kinds: Vec<_> = events_of(harness, &key, start).await.into_iter().map(|event| event.kind).collect();
    let [first, EventKind::Granted { .. }, last] = &kinds[..] else { panic!("{kinds:?}") };
    let because = EndReason::TakenOver { by: ben.owner.clone(), reason: Reason::parse("on call").unwrap() };
    assert_eq!(first, &EventKind::Ended { because });
    let because = EndReason::ForceReleased { by: anna.owner.clone(), reason };
    assert_eq!(last, &EventKind::Ended { because });
}

/// Law 9 again: who comes from a position that the store cannot continue from is told so.
pub async fn law_09_a_consumer_that_missed_events_is_told(harness: &dyn Harness) {
    let key = key("law-09-gap");
    Party::new("anna", 98).must_acquire(harness, &key).await;
    let newest = harness.store().read(&key).await.unwrap().position;
    let unknown = Position(newest.0 + 1_000_000);
    let feed = harness.store().events(unknown, 10).await.unwrap();
    assert_eq!(feed, Feed::Gap { resume_from: newest }, "a position from another history");
    if harness.restart(Restart::Restore).await {
        let feed = harness.store().events(newest, 10).await.unwrap();
        assert!(matches!(feed, Feed::Gap { .. }), "history was replaced under the consumer: {feed:?}");
    }
}

/// Law 9 again: a consumer that waits for the next event gets it once it is committed.
pub async fn law_09_a_waiting_consumer_is_woken(harness: &dyn Harness) {
    let key = key("law-09-wait");
    let store = harness.store();
    let start = store.read(&key).await.unwrap().position;
    let waiting = tokio::spawn(async move { store.events(start, 10).await });
    tokio::task::yield_now().await;
    Party::new("anna", 99).must_acquire(harness, &key).await;
    let feed = tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .expect("nobody woke it")
        .unwrap()
        .unwrap();
    let Feed::Events(events) = feed else { panic!("{feed:?}") };
    assert_eq!(events[0].event.key, key);
    assert_eq!(events[0].position, Position(start.0 + 1));
}
