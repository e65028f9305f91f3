//! Who gets a key: one holder at a time, with fences that grow.

use leasehold_core::{Command, Outcome, Owner, Reason};

use super::JobHarness;
use super::party::{Party, TTL, apply, assert_strictly_growing, forget_everything, granted, key};
use crate::history;

/// Law 1: at most one unexpired holder per key, in the store's own order.
pub async fn law_01_at_most_one_unexpired_holder(harness: &dyn JobHarness) {
    let key = key("law-01");
    let (mut anna, mut ben) = (Party::new("anna", 1), Party::new("ben", 2));
    anna.must_acquire(harness, &key).await;
    let held = ben.acquire(harness, &key).await;
    let Outcome::Held(held) = held.outcome else { panic!("a second holder got in: {:?}", held.outcome) };
    assert_eq!(held.by, anna.owner, "the refusal names the holder");
    assert_eq!(held.fence, anna.fence(), "and the fence to take over from");
    anna.must_release(harness, &key).await;
    ben.must_acquire(harness, &key).await;
    assert!(matches!(anna.renew(harness, &key).await.outcome, Outcome::Lost { .. }));
}

/// Law 1 again: under concurrent load, every command can be placed at one moment between its call and its answer, so
/// that all answers are those of a plain fenced lock.
pub async fn law_01_histories_are_linearizable(harness: &dyn JobHarness) {
    // Half of those that may race at once, each with a command or two for every one of them.
    let tasks = u64::from(harness.racers() / 2);
    let commands = tasks * 10 / 3;
    for seed in 0..3 {
        let histories = history::record(|| harness.job_store(), tasks, commands, seed).await;
        let calls: usize = histories.iter().map(Vec::len).sum();
        assert_eq!(calls as u64, tasks * commands, "a command was not answered");
        assert!(histories.iter().any(|calls| history::overlaps(calls)), "nothing ran at the same time");
        assert!(histories.iter().all(|calls| history::is_linearizable(calls)), "seed {seed}: {histories:?}");
        for key in history::keys() {
            let reading = harness.job_store().read(&key).await.unwrap();
            if let Some(lease) = reading.slot.lease {
                let reason = Reason::default();
                apply(harness, &key, Command::ForceRelease { seen: lease.fence, by: lease.owner, reason })
                    .await;
            }
        }
    }
}

/// Law 2: fences strictly grow over the grants of a key, through release, expiry, take-over, hand-over and purge.
pub async fn law_02_fences_grow_over_the_grants_of_a_key(harness: &dyn JobHarness) {
    let key = key("law-02");
    let mut anna = Party::new("anna", 10);
    let mut fences = vec![anna.must_acquire(harness, &key).await.fence];
    let renewed = anna.must_renew(harness, &key).await;
    assert_eq!(renewed.fence, fences[0], "renewal keeps the fence");
    anna.must_release(harness, &key).await;
    let mut ben = Party::new("ben", 11);
    fences.push(ben.must_acquire(harness, &key).await.fence);
    harness.advance(TTL).await;
    let mut cora = Party::new("cora", 12);
    fences.push(cora.must_acquire(harness, &key).await.fence);
    let mut dan = Party::new("dan", 13);
    fences.push(granted(&dan.take_over(harness, &key, cora.fence()).await).fence);
    dan.claim_from(fences[3]);
    dan.must_release(harness, &key).await;
    forget_everything(harness).await;
    fences.push(Party::new("eve", 14).must_acquire(harness, &key).await.fence);
    assert_strictly_growing(&fences);
}

/// Law 6: of many racers for one stale lease, exactly one wins.
pub async fn law_06_of_many_racers_for_a_stale_lease_one_wins(harness: &dyn JobHarness) {
    let count = harness.racers();
    let key = key("law-06");
    Party::new("anna", 60).must_acquire(harness, &key).await;
    harness.advance(TTL).await;
    let mut racers = tokio::task::JoinSet::new();
    for number in 0..count {
        let (store, key) = (harness.job_store(), key.clone());
        let party = Party::new(&format!("racer-{number}"), 100 + number);
        racers.spawn(async move { store.apply(&key, Command::Acquire(party.bid())).await });
    }
    let outcomes: Vec<Outcome> =
        racers.join_all().await.into_iter().map(|applied| applied.unwrap().outcome).collect();
    let winners = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Granted { .. })).count();
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Held(_))).count();
    assert_eq!((winners, refused), (1, usize::from(count) - 1), "{outcomes:?}");
}

/// Law 7 again: a request whose answer was lost is repeated with the same lease id, and gives the same lease.
pub async fn law_07_an_unknown_acquire_may_be_repeated(harness: &dyn JobHarness) {
    let key = key("law-07-unknown");
    let mut anna = Party::new("anna", 75);
    let first = anna.must_acquire(harness, &key).await;
    harness.advance(TTL / 2).await;
    let again = anna.acquire(harness, &key).await;
    let Outcome::Granted { lease, extended: true } = &again.outcome else { panic!("{:?}", again.outcome) };
    assert_eq!(lease.fence, first.fence);
    assert_eq!(lease.acquired_at, first.acquired_at);
    assert_eq!(lease.expires_at, again.now + TTL, "and extends it");
    let thief = Party { owner: Owner::parse("mallory").unwrap(), ..anna.clone() };
    let outcome = apply(harness, &key, Command::Acquire(thief.bid())).await.outcome;
    assert!(matches!(outcome, Outcome::Held(_)), "somebody else's name on the same lease id: {outcome:?}");
}
