//! Nothing grows without bound: leases per owner, pages and batches.

use leasehold_core::{Command, OnSilence, Outcome, Owner, Position};

use super::Harness;
use super::party::{COUNTDOWN, Party, TTL, apply, key};
use crate::{Feed, Range};

/// Law 12: everything is bounded.
pub async fn law_12_everything_is_bounded(harness: &dyn Harness) {
    let hog = Owner::parse("hog").unwrap();
    let mut granted = 0;
    for number in 0..=HARNESS_LEASES_PER_OWNER {
        let party = Party { owner: hog.clone(), ..Party::numbered(u64::from(number)) };
        let applied = apply(harness, &key(&format!("law-12-{number}")), Command::Acquire(party.bid())).await;
        match applied.outcome {
            Outcome::Granted { .. } => granted += 1,
            Outcome::OwnerIsFull => break,
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(granted, HARNESS_LEASES_PER_OWNER, "leases per owner");
    let range = Range { limit: usize::MAX, ..Range::all() };
    assert!(harness.store().list(&range).await.unwrap().slots.len() <= Range::MAX_LIMIT);
    let start =
        Position(harness.store().read(&key("law-12-0")).await.unwrap().position.0 - u64::from(granted));
    let Feed::Events(events) = harness.store().events(start, usize::MAX).await.unwrap() else {
        panic!("a gap")
    };
    assert!(events.len() <= crate::MAX_EVENTS);
    let Feed::Events(one) = harness.store().events(start, 0).await.unwrap() else { panic!("a gap") };
    assert_eq!(one.len(), 1, "a limit of nothing would make a consumer spin");
    // A released lease makes room again.
    harness.advance(TTL).await;
    harness.store().settle_due(usize::MAX).await.unwrap();
    let party = Party { owner: hog, ..Party::numbered(1_000_000) };
    let outcome = apply(harness, &key("law-12-again"), Command::Acquire(party.bid())).await.outcome;
    assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
}

/// Law 12 for a silent hand-over: an asker that has come to hold as many leases as it may since it asked gets no more. Two
/// requests come due at once, and there is room for one.
pub async fn law_12_silence_gives_nothing_to_an_asker_that_is_full(harness: &dyn Harness) {
    let hog = |seed: u64| Party { owner: Owner::parse("hog").unwrap(), ..Party::numbered(seed) };
    let keys = [key("silent-1"), key("silent-2")];
    for (number, key) in keys.iter().enumerate() {
        let seed = u8::try_from(number).unwrap();
        let mut anna = Party::new("anna", 60 + seed);
        anna.must_acquire(harness, key).await;
        let asked = hog(1_000 + u64::from(seed)).request(harness, key, anna.fence(), OnSilence::Grant).await;
        let Outcome::Requested { request, .. } = asked else { panic!("{asked:?}") };
        let told = Command::HandoverTold { claim: anna.claim().into(), request: request.seq };
        assert!(matches!(apply(harness, key, told).await.outcome, Outcome::Told { .. }));
    }
    for number in 1..u64::from(HARNESS_LEASES_PER_OWNER) {
        hog(number).must_acquire(harness, &key(&format!("hog-{number}"))).await;
    }
    harness.advance(COUNTDOWN).await;
    harness.store().settle_due(100).await.unwrap();
    let mut owners = Vec::new();
    for key in &keys {
        let lease = harness.store().read(key).await.unwrap().slot.lease.expect("neither has run out");
        owners.push(lease.owner.to_string());
    }
    owners.sort();
    assert_eq!(owners, ["anna", "hog"], "room for one");
}

/// The limit of leases per owner that a harness sets for its store: the default would make law 12 a long test.
pub const HARNESS_LEASES_PER_OWNER: u32 = 40;

/// Lists show live leases in the order of their keys, page by page, and nothing twice.
pub async fn lists_are_paged_in_key_order(harness: &dyn Harness) {
    let mut expected = Vec::new();
    for number in 0..7 {
        let key = key(&format!("list/{number}"));
        Party::new("anna", 240 + number).must_acquire(harness, &key).await;
        expected.push(key);
    }
    Party::new("ben", 250).must_acquire(harness, &key("listless")).await;
    let mut range = Range { limit: 3, ..Range::prefix("run/list/") };
    let mut found = Vec::new();
    loop {
        let page = harness.store().list(&range).await.unwrap();
        assert!(page.slots.len() <= 3);
        found.extend(page.slots.into_iter().map(|(key, _)| key));
        range.after = found.last().cloned();
        if !page.more {
            break;
        }
    }
    assert_eq!(found, expected);
    harness.advance(TTL).await;
    let page = harness.store().list(&Range::prefix("run/list/")).await.unwrap();
    assert_eq!(page.slots, [], "an expired lease is not listed, swept or not");
}
