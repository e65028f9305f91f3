//! The laws of a lease, as code: one public function per law, run by every store.
//!
//! A store's tests provide a [`Harness`], which can move the store's clock, and call [`conformance_tests!`](crate::conformance_tests), which
//! makes one test of each law. Whatever passes may be used in the place of any other store. A store of the lower level
//! provides a [`JobHarness`], and calls [`job_conformance_tests!`](crate::job_conformance_tests).
//!
//! | law | needs |
//! |---|---|
//! | 1 to 8, ended lease ids | [`JobStore`]: a document can hold it |
//! | 2 through purge and restore, 9, 10, 12, soft release, hand-over, lists | [`Store`] |
//! | jobs | [`JobStore`] |
//! | 11 | [`same_history`] and [`same_job_history`], with random scripts, against [`Memory`](crate::Memory) |
//!
//! A function panics when its law is broken, with words that say how.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod jobs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::holder::Holder;
use leasehold_core::job::{JobCommand, JobOutcome, JobText};
use leasehold_core::lease::{Bid, Claim, Lease, LossReason, OnSilence, REMEMBERED};
use leasehold_core::{
    Command, EndReason, Event, EventKind, Fence, HolderTime, Key, LeaseId, Meta, Outcome, Owner,
};
use leasehold_core::{Position, Reason, Ttl};

use crate::{Applied, Feed, JobApplied, JobStore, Range, Store, history};
pub use jobs::*;

/// What the laws of the lower level need of a store under test.
#[async_trait]
pub trait JobHarness: Send + Sync {
    /// The store, as far as a document can be one.
    fn job_store(&self) -> Arc<dyn JobStore>;

    /// Moves the store's clock on by exactly this much.
    async fn advance(&self, by: Duration);

    /// Ends the store in this way and opens it again; `false` if nothing of it outlives its end.
    async fn restart(&self, _how: Restart) -> bool {
        false
    }

    /// How many may want the same thing at once, where it takes long to sort them out.
    fn racers(&self) -> u8 {
        MOST_RACERS
    }
}

/// How many want the same thing at once, unless the harness says otherwise.
const MOST_RACERS: u8 = 24;

/// What the laws of the upper level need besides.
#[async_trait]
pub trait Harness: JobHarness {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// Holds the store up for this long, so that it serves nobody meanwhile; `false` if its clock runs on regardless.
    async fn stall(&self, _for_how_long: Duration) -> bool {
        false
    }
}

/// How a store ends before it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// In an orderly way.
    Orderly,
    /// As if the power had failed: only what was durable is left.
    Crash,
    /// It is put back to a backup that was taken before the last thing that happened to `key`.
    Restore,
    /// In an orderly way, and it stays down for an hour.
    DownForAnHour,
}

/// Makes one test of each law. The argument is an expression that makes a fresh [`Harness`].
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr) => {
        $crate::job_conformance_tests!($harness);
        $crate::conformance_tests! { $harness;
            law_09_events_are_ordered_and_without_gaps,
            law_09_one_expiry_gives_one_event,
            law_09_an_end_by_force_tells_who_and_why,
            law_09_a_consumer_that_missed_events_is_told,
            law_09_a_waiting_consumer_is_woken,
            law_10_a_stall_or_a_restart_expires_nobody,
            law_10_a_crash_puts_the_clock_back_by_a_second_at_most,
            law_12_everything_is_bounded,
            a_soft_release_shortens_and_a_resume_brings_back,
            a_handover_needs_the_holder_to_have_been_told,
            lists_are_paged_in_key_order,
            job_is_recovered_after_a_sweep,
        }
    };
    ($harness:expr; $($law:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $law() {
                let harness = $harness;
                $crate::conformance::$law(&harness).await;
            }
        )*
    };
}

/// Makes one test of each law of the lower level. The argument is an expression that makes a fresh [`JobHarness`].
#[macro_export]
macro_rules! job_conformance_tests {
    ($harness:expr) => {
        $crate::conformance_tests! { $harness;
            law_01_at_most_one_unexpired_holder,
            law_01_histories_are_linearizable,
            law_02_fences_grow_over_the_grants_of_a_key,
            law_02_fences_grow_through_restarts,
            law_03_expired_means_expires_at_lte_now,
            law_04_the_ttl_is_a_lower_bound_and_take_over_follows_at_once,
            law_05_renew_and_release_compare_lease_id_and_fence,
            law_05_take_over_compares_the_fence_as_seen,
            law_05_a_forced_release_compares_the_fence_as_seen,
            law_06_of_many_racers_for_a_stale_lease_one_wins,
            law_07_a_grant_is_durable_before_it_is_acknowledged,
            law_07_an_unknown_acquire_may_be_repeated,
            law_08_the_holder_stops_before_the_store_would_let_others_in,
            an_ended_lease_id_answers_lost_for_ten_minutes,
            a_withdrawn_lease_id_is_never_granted,
            job_first_acquire_succeeds,
            job_of_many_at_once_one_gets_it,
            job_is_recovered_after_the_ttl,
            job_ready_or_failed_is_never_acquired,
            job_a_foreign_release_changes_nothing,
            job_outlives_a_restart,
            job_an_unknown_answer_may_be_asked_for_again,
            job_attempts_are_counted_and_a_reset_begins_anew,
        }
    };
}

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

/// Law 2 again: through an orderly end, a crash, and a restore from a backup.
pub async fn law_02_fences_grow_through_restarts(harness: &dyn JobHarness) {
    let key = key("law-02-restarts");
    let mut fences = Vec::new();
    for (number, how) in
        [Restart::Orderly, Restart::Crash, Restart::Restore, Restart::Orderly].into_iter().enumerate()
    {
        let mut party = Party::new("anna", 20 + u8::try_from(number).unwrap());
        fences.push(party.must_acquire(harness, &key).await.fence);
        party.must_release(harness, &key).await;
        if !harness.restart(how).await {
            return;
        }
        // After a restore, the lease may be back for what is left of its time.
        harness.advance(TTL).await;
    }
    fences.push(Party::new("zoe", 29).must_acquire(harness, &key).await.fence);
    assert_strictly_growing(&fences);
}

/// Law 3: expired means `expires_at <= now` on the store's clock, whether or not anybody has swept.
pub async fn law_03_expired_means_expires_at_lte_now(harness: &dyn JobHarness) {
    let key = key("law-03");
    let (mut anna, mut ben) = (Party::new("anna", 30), Party::new("ben", 31));
    let granted_at = anna.acquire(harness, &key).await.now;
    harness.advance(TTL - Duration::from_millis(1)).await;
    let refused = ben.acquire(harness, &key).await;
    assert!(matches!(refused.outcome, Outcome::Held(_)), "one millisecond early: {:?}", refused.outcome);
    assert_eq!(
        refused.now.since(granted_at),
        TTL - Duration::from_millis(1),
        "the harness moves the clock exactly"
    );
    harness.advance(Duration::from_millis(1)).await;
    let reading = harness.job_store().read(&key).await.unwrap();
    assert_eq!(reading.slot.lease, None, "an expired lease is not seen any more");
    let late = anna.renew(harness, &key).await;
    assert!(
        matches!(late.outcome, Outcome::Lost { because: LossReason::Expired, .. }),
        "an expired lease is never revived: {:?}",
        late.outcome
    );
    ben.must_acquire(harness, &key).await;
}

/// Law 4: the TTL is a lower bound for the holder, and take-over is possible at most one second after it.
pub async fn law_04_the_ttl_is_a_lower_bound_and_take_over_follows_at_once(harness: &dyn JobHarness) {
    let key = key("law-04");
    let (mut anna, mut ben) = (Party::new("anna", 40), Party::new("ben", 41));
    anna.must_acquire(harness, &key).await;
    for _ in 0..5 {
        harness.advance(TTL / 2).await;
        anna.must_renew(harness, &key).await;
    }
    for _ in 0..9 {
        harness.advance(TTL / 10).await;
        assert!(matches!(ben.acquire(harness, &key).await.outcome, Outcome::Held(_)));
    }
    harness.advance(TTL / 10 + Duration::from_secs(1)).await;
    ben.must_acquire(harness, &key).await;
}

/// Law 5: renew and release are one atomic compare on key, lease id and fence.
pub async fn law_05_renew_and_release_compare_lease_id_and_fence(harness: &dyn JobHarness) {
    let key = key("law-05");
    let (mut anna, mut ben) = (Party::new("anna", 50), Party::new("ben", 51));
    anna.must_acquire(harness, &key).await;
    let stale = anna.claim();
    anna.must_release(harness, &key).await;
    ben.must_acquire(harness, &key).await;
    let mixed = Claim { lease_id: ben.lease_id, fence: stale.fence };
    let foreign = Claim { lease_id: stale.lease_id, fence: ben.fence() };
    for claim in [stale, mixed, foreign] {
        for command in [Command::Release(claim), Command::Renew { claim, ttl: None }] {
            let outcome = apply(harness, &key, command).await.outcome;
            let Outcome::Lost { held: Some(held), .. } = outcome else {
                panic!("a wrong claim did something: {outcome:?}")
            };
            assert_eq!(held.by, ben.owner);
        }
    }
    ben.must_renew(harness, &key).await;
    ben.must_release(harness, &key).await;
    let again = apply(harness, &key, Command::Release(ben.claim())).await.outcome;
    assert!(matches!(again, Outcome::Lost { because: LossReason::Released, held: None }), "{again:?}");
}

/// Law 5 again: take-over compares the fence that the taker saw.
pub async fn law_05_take_over_compares_the_fence_as_seen(harness: &dyn JobHarness) {
    let key = key("law-05-take-over");
    let (mut anna, mut ben, mut cora) =
        (Party::new("anna", 55), Party::new("ben", 56), Party::new("cora", 57));
    let seen = anna.must_acquire(harness, &key).await.fence;
    anna.must_release(harness, &key).await;
    ben.must_acquire(harness, &key).await;
    let outcome = cora.take_over(harness, &key, seen).await.outcome;
    assert!(
        matches!(&outcome, Outcome::Held(held) if held.by == ben.owner),
        "taken from the wrong one: {outcome:?}"
    );
    let taken = cora.take_over(harness, &key, ben.fence()).await;
    let lease = granted(&taken);
    assert!(lease.fence > ben.fence());
    let again = cora.take_over(harness, &key, ben.fence()).await;
    assert_eq!(granted(&again).fence, lease.fence, "taking over twice with one lease id is taking over once");
    let outcome = ben.renew(harness, &key).await.outcome;
    assert!(matches!(outcome, Outcome::Lost { because: LossReason::TakenOver, .. }), "{outcome:?}");
}

/// Law 5 once more: so does a forced release, which gives the lease to nobody.
pub async fn law_05_a_forced_release_compares_the_fence_as_seen(harness: &dyn JobHarness) {
    let key = key("law-05-force-release");
    let (mut anna, root) = (Party::new("anna", 58), Party::new("root", 59));
    let seen = anna.must_acquire(harness, &key).await.fence;
    let reason = Reason::parse("left for lunch").unwrap();
    let force = |seen| Command::ForceRelease { seen, by: root.owner.clone(), reason: reason.clone() };
    let stale = Fence::new(seen.get() + 1).unwrap();
    let outcome = apply(harness, &key, force(stale)).await.outcome;
    assert!(matches!(outcome, Outcome::Held(_)), "ended by somebody who saw another lease: {outcome:?}");
    assert_eq!(apply(harness, &key, force(seen)).await.outcome, Outcome::Released);
    let outcome = anna.renew(harness, &key).await.outcome;
    assert!(
        matches!(outcome, Outcome::Lost { because: LossReason::ForceReleased, held: None }),
        "{outcome:?}"
    );
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

/// Law 7: what was acknowledged is there after a crash.
pub async fn law_07_a_grant_is_durable_before_it_is_acknowledged(harness: &dyn JobHarness) {
    let (key, other) = (key("law-07"), key("law-07-released"));
    let (mut anna, mut ben) = (Party::new("anna", 70), Party::new("ben", 71));
    let lease = anna.must_acquire(harness, &key).await;
    ben.must_acquire(harness, &other).await;
    ben.must_release(harness, &other).await;
    let position = harness.job_store().read(&key).await.unwrap().position;
    if !harness.restart(Restart::Crash).await {
        return;
    }
    let reading = harness.job_store().read(&key).await.unwrap();
    assert_eq!(
        reading.slot.lease.map(|found| found.fence),
        Some(lease.fence),
        "an acknowledged grant is gone"
    );
    assert_eq!(reading.position, position, "an announced event is gone");
    anna.must_renew(harness, &key).await;
    let outcome = ben.renew(harness, &other).await.outcome;
    assert!(
        matches!(outcome, Outcome::Lost { because: LossReason::Released, .. }),
        "a release is gone: {outcome:?}"
    );
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

/// Law 8: at the holder's own deadline, the store still keeps everybody else out.
pub async fn law_08_the_holder_stops_before_the_store_would_let_others_in(harness: &dyn JobHarness) {
    for seconds in [1, 5, 30, 300] {
        let key = key(&format!("law-08-{seconds}"));
        let ttl = Ttl::from_secs(seconds).unwrap();
        let mut anna = Party { ttl, ..Party::new("anna", 80) };
        anna.must_acquire(harness, &key).await;
        let deadline = Holder::new(HolderTime::ZERO, ttl).deadline().since(HolderTime::ZERO);
        harness.advance(deadline).await;
        let outcome = Party::new("ben", 81).acquire(harness, &key).await.outcome;
        assert!(matches!(outcome, Outcome::Held(_)), "{seconds} s: {outcome:?}");
    }
}

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

/// Law 10: neither a stall nor a restart of the store expires healthy leases.
pub async fn law_10_a_stall_or_a_restart_expires_nobody(harness: &dyn Harness) {
    let mut parties = Vec::new();
    for number in 0..20 {
        let (key, mut party) = (key(&format!("law-10-{number}")), Party::new("anna", 200 + number));
        party.must_acquire(harness, &key).await;
        parties.push((key, party));
    }
    let hour = Duration::from_secs(3_600);
    if !harness.stall(hour).await {
        return;
    }
    for (key, party) in &mut parties {
        party.must_renew(harness, key).await;
    }
    assert!(harness.restart(Restart::DownForAnHour).await);
    for (key, party) in &mut parties {
        party.must_renew(harness, key).await;
    }
}

/// Law 10 again: a crash does not give a lease back the time that it had already used, not even if nothing else was
/// written meanwhile. An abandoned lease would otherwise outlive its TTL by all the time since the last change.
pub async fn law_10_a_crash_puts_the_clock_back_by_a_second_at_most(harness: &dyn Harness) {
    let (key, mut party) = (key("law-10-idle"), Party::new("anna", 220));
    party.must_acquire(harness, &key).await;
    harness.advance(TTL / 2).await;
    let before = harness.store().now().await.unwrap();
    if !harness.restart(Restart::Crash).await {
        return;
    }
    let after = harness.store().now().await.unwrap();
    assert!(after + Duration::from_secs(1) >= before, "a crash at {before:?} put the clock back to {after:?}");
}

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

/// The limit of leases per owner that a harness sets for its store: the default would make law 12 a long test.
pub const HARNESS_LEASES_PER_OWNER: u32 = 40;

/// A lease id that has ended answers `Lost` for ten minutes, also after a restart, and never gives a new grant.
pub async fn an_ended_lease_id_answers_lost_for_ten_minutes(harness: &dyn JobHarness) {
    let key = key("ended");
    let mut anna = Party::new("anna", 3);
    anna.must_acquire(harness, &key).await;
    anna.must_release(harness, &key).await;
    harness.advance(REMEMBERED - Duration::from_secs(5)).await;
    // Commands on other keys make the store tidy up; it must not tidy this away.
    for number in 0..10 {
        apply(harness, &self::key(&format!("ended-{number}")), Command::Settle).await;
    }
    let expect_lost = async || {
        let outcome = anna.clone().acquire(harness, &key).await.outcome;
        assert!(
            matches!(outcome, Outcome::Lost { because: LossReason::Released, held: None }),
            "{outcome:?}"
        );
    };
    expect_lost().await;
    if harness.restart(Restart::Orderly).await {
        expect_lost().await;
    }
}

/// Who withdraws a lease id is sure that no late copy of its acquire is granted.
pub async fn a_withdrawn_lease_id_is_never_granted(harness: &dyn JobHarness) {
    let key = key("withdrawn");
    let mut anna = Party::new("anna", 4);
    let withdraw = Command::Withdraw { lease_id: anna.lease_id };
    assert_eq!(apply(harness, &key, withdraw.clone()).await.outcome, Outcome::Withdrawn);
    let outcome = anna.acquire(harness, &key).await.outcome;
    assert!(matches!(outcome, Outcome::Lost { because: LossReason::Withdrawn, .. }), "{outcome:?}");
    let mut ben = Party::new("ben", 5);
    ben.must_acquire(harness, &key).await;
    let withdraw_ben = Command::Withdraw { lease_id: ben.lease_id };
    assert_eq!(apply(harness, &key, withdraw_ben).await.outcome, Outcome::Withdrawn);
    Party::new("cora", 6).must_acquire(harness, &key).await;
    assert_eq!(apply(harness, &key, withdraw).await.outcome, Outcome::Withdrawn, "and hurts nobody else");
    assert!(harness.job_store().read(&key).await.unwrap().slot.lease.is_some());
}

/// A soft release shortens the lease; its holder may come back under a new lease id, or it ends as disconnected.
pub async fn a_soft_release_shortens_and_a_resume_brings_back(harness: &dyn Harness) {
    let key = key("soft");
    let mut anna = Party::new("anna", 7);
    anna.must_acquire(harness, &key).await;
    let grace = Ttl::from_secs(5).unwrap();
    let soft = apply(harness, &key, Command::SoftRelease { claim: anna.claim(), grace }).await;
    let Outcome::Shortened(lease) = &soft.outcome else { panic!("{:?}", soft.outcome) };
    assert_eq!(lease.expires_at, soft.now + grace.as_duration());
    harness.advance(Duration::from_secs(4)).await;
    let next = LeaseId::from_random([8; 16]);
    let resume = Command::Resume { claim: anna.claim(), next };
    let back = granted(&apply(harness, &key, resume.clone()).await);
    assert_eq!((back.fence, back.lease_id), (anna.fence(), next));
    assert_eq!(
        granted(&apply(harness, &key, resume).await).fence,
        back.fence,
        "resuming twice is resuming once"
    );
    let outcome = anna.renew(harness, &key).await.outcome;
    assert!(
        matches!(outcome, Outcome::Lost { because: LossReason::Resumed, .. }),
        "the old id is over: {outcome:?}"
    );
    anna.lease_id = next;
    let start = harness.store().read(&key).await.unwrap().position;
    apply(harness, &key, Command::SoftRelease { claim: anna.claim(), grace }).await;
    harness.advance(grace.as_duration()).await;
    harness.store().settle_due(100).await.unwrap();
    let last = events_of(harness, &key, start).await.pop().unwrap();
    assert_eq!(last.kind, EventKind::Ended { because: EndReason::Disconnected });
}

/// A hand-over: requested, told, and only then does silence count; refused ones are over for whoever asked.
pub async fn a_handover_needs_the_holder_to_have_been_told(harness: &dyn Harness) {
    let key = key("handover");
    let (mut anna, ben, cora) = (Party::new("anna", 15), Party::new("ben", 16), Party::new("cora", 17));
    anna.must_acquire(harness, &key).await;
    let first = ben.request(harness, &key, anna.fence(), OnSilence::Grant).await;
    let Outcome::Requested { request, .. } = first else { panic!("{first:?}") };
    let second = cora.request(harness, &key, anna.fence(), OnSilence::Grant).await;
    assert!(matches!(&second, Outcome::RequestedByAnother { by, .. } if *by == ben.owner), "{second:?}");
    for _ in 0..4 {
        // Longer than the countdown: the holder was not told, so its silence means nothing.
        harness.advance(COUNTDOWN).await;
        anna.must_renew(harness, &key).await;
        let still = ben.request(harness, &key, anna.fence(), OnSilence::Grant).await;
        assert!(matches!(still, Outcome::Requested { .. }), "{still:?}");
    }
    let told = Command::HandoverTold { claim: anna.claim(), request: request.seq };
    assert!(matches!(apply(harness, &key, told).await.outcome, Outcome::Told { .. }));
    harness.advance(COUNTDOWN).await;
    harness.store().settle_due(100).await.unwrap();
    let outcome = ben.request(harness, &key, anna.fence(), OnSilence::Grant).await;
    let Outcome::Granted { lease, extended: true } = outcome else { panic!("{outcome:?}") };
    assert!(lease.fence > anna.fence());
    let outcome = anna.renew(harness, &key).await.outcome;
    assert!(matches!(outcome, Outcome::Lost { because: LossReason::HandedOver, .. }), "{outcome:?}");
    refused_handover(harness, &key, Claim { lease_id: ben.lease_id, fence: lease.fence }, &cora).await;
}

async fn refused_handover(harness: &dyn Harness, key: &Key, holder: Claim, asker: &Party) {
    let asked = asker.request(harness, key, holder.fence, OnSilence::Refuse).await;
    let Outcome::Requested { request, .. } = asked else { panic!("{asked:?}") };
    let answer = Command::AnswerHandover { claim: holder, request: request.seq, hand_over: false };
    assert_eq!(apply(harness, key, answer).await.outcome, Outcome::Refused);
    let outcome = asker.request(harness, key, holder.fence, OnSilence::Refuse).await;
    assert!(matches!(outcome, Outcome::Lost { because: LossReason::Refused, .. }), "{outcome:?}");
}

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

// --- law 11 ---

/// One step of a script for [`same_history`].
#[derive(Clone, Debug)]
pub struct Step {
    /// How long to wait before it.
    pub wait: Duration,
    /// Which of the keys.
    pub key: u8,
    /// Which of the parties, each with a few lease ids of its own.
    pub party: u8,
    /// What the party does.
    pub act: Act,
}

/// What a party of a script can do. Fences and requests are those that it last saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each is the command of the same name
pub enum Act {
    Acquire,
    AcquireAnew,
    Renew,
    Release,
    SoftRelease,
    Resume,
    TakeOver,
    /// End the lease, with the fence of the lease that is there.
    ForceRelease,
    Request(OnSilence),
    Told,
    Answer(bool),
    Withdraw,
    Check,
    SettleDue,
    Restart,
    /// Something about the job of the same number.
    Job(JobAct),
}

/// What somebody may do with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the same as in `JobCommand`
pub enum JobAct {
    Create,
    CreateAnother,
    Acquire,
    AcquireAnew,
    Refresh,
    Release,
    Complete,
    Fail(bool),
    Reset,
}

/// Law 11: runs a script and answers everything that can be observed, fences and times made comparable. Two stores of
/// a level give the same for the same script.
pub async fn same_history(harness: &dyn Harness, script: &[Step]) -> Vec<String> {
    let mut history = History::new(harness, Level::Store).await;
    for step in script {
        if step.act == Act::SettleDue {
            harness.advance(step.wait).await;
            while harness.store().settle_due(100).await.unwrap().keys > 0 {}
        } else {
            history.step(harness, step).await;
        }
    }
    history.add_events(harness).await;
    history.finish()
}

/// The same for what can be observed of single documents: no events, no lists, and fences compared within a key.
pub async fn same_job_history(harness: &dyn JobHarness, script: &[Step]) -> Vec<String> {
    let mut history = History::new(harness, Level::Job).await;
    for step in script.iter().filter(|step| step.act != Act::SettleDue) {
        history.step(harness, step).await;
    }
    history.finish()
}

/// What is compared: a whole store, or documents that know nothing of each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Store,
    Job,
}

struct History {
    level: Level,
    start: leasehold_core::StoreTime,
    from: Position,
    /// Which fences were seen, by what they are compared within.
    fences: BTreeSet<(u8, u64)>,
    parties: BTreeMap<(u8, u8), Party>,
    last_seen: BTreeMap<u8, (Fence, u64)>,
    lines: Vec<Vec<Piece>>,
}

/// A piece of an observation; a fence is replaced by its rank in the end.
enum Piece {
    Text(String),
    Fence(u8, u64),
}

impl History {
    async fn new(harness: &dyn JobHarness, level: Level) -> Self {
        let reading = harness.job_store().read(&key("history")).await.unwrap();
        Self {
            level,
            start: reading.now,
            from: reading.position,
            fences: BTreeSet::new(),
            parties: BTreeMap::new(),
            last_seen: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// What the fences of a key are compared within.
    fn within(&self, key: u8) -> u8 {
        if self.level == Level::Store { 0 } else { key }
    }

    /// How many events had been told, where there are any.
    fn told(&self, position: Position) -> String {
        match self.level {
            Level::Store => format!(" after {} events", position.0 - self.from.0),
            Level::Job => String::new(),
        }
    }

    async fn step(&mut self, harness: &dyn JobHarness, step: &Step) {
        harness.advance(step.wait).await;
        let key = key(&format!("history-{}", step.key));
        match step.act {
            Act::Restart => {
                harness.restart(Restart::Orderly).await;
            }
            Act::Job(act) => self.job_step(harness, step, act).await,
            _ => {
                let command = self.command(step);
                let applied = apply(harness, &key, command).await;
                self.learn(step, &applied);
                self.observe(step, &applied);
            }
        }
    }

    async fn job_step(&mut self, harness: &dyn JobHarness, step: &Step, act: JobAct) {
        let key = key(&format!("history-job-{}", step.key));
        // Another party than the one that wants the lease of the same number.
        let worker = Step { party: step.party + 8, ..step.clone() };
        let command = job_command(self.party(&worker), act);
        let JobApplied { outcome, record, now, position } =
            harness.job_store().apply_job(&key, command).await.unwrap();
        if let JobOutcome::Acquired { lease, .. } = &outcome {
            if self.level == Level::Store {
                self.fences.insert((0, lease.fence.get()));
            }
            self.party(&worker).fence = Some(lease.fence);
        }
        let word = format!("{outcome:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        let job = record.job.map(|job| {
            let status = format!("{:?}", job.status).split([' ', '{']).next().unwrap_or_default().to_owned();
            format!("{status} {} {} {:?}", job.attempts, job.begun, job.changed_at.since(self.start))
        });
        let (after, told) = (now.since(self.start), self.told(position));
        let text = format!("{after:?} {}:{} {act:?} -> {word} {job:?}{told}", step.key, step.party);
        self.lines.push(vec![Piece::Text(text)]);
    }

    fn party(&mut self, step: &Step) -> &mut Party {
        let seed = step.key * 16 + step.party;
        self.parties.entry((step.key, step.party)).or_insert_with(|| Party {
            owner: Owner::parse(&format!("party-{}", step.party)).unwrap(),
            ..Party::numbered(u64::from(seed))
        })
    }

    fn command(&mut self, step: &Step) -> Command {
        let (fence, request) = self.last_seen.get(&step.key).copied().unwrap_or((Fence::new(1).unwrap(), 0));
        let party = self.party(step);
        let claim = Claim { lease_id: party.lease_id, fence: party.fence.unwrap_or(fence) };
        let countdown = Ttl::new(COUNTDOWN).unwrap();
        match step.act {
            Act::AcquireAnew => {
                party.renew_id();
                Command::Acquire(party.bid())
            }
            Act::Renew => Command::Renew { claim, ttl: None },
            Act::Release => Command::Release(claim),
            Act::SoftRelease => Command::SoftRelease { claim, grace: Ttl::from_secs(5).unwrap() },
            Act::Resume => {
                party.renew_id();
                Command::Resume { claim, next: party.lease_id }
            }
            Act::ForceRelease => {
                Command::ForceRelease { seen: fence, by: party.owner.clone(), reason: Reason::default() }
            }
            Act::TakeOver => Command::TakeOver { seen: fence, bid: party.bid(), reason: Reason::default() },
            Act::Request(on_silence) => Command::RequestHandover {
                seen: fence,
                bid: party.bid(),
                on_silence,
                countdown,
                patience: countdown,
            },
            Act::Told => Command::HandoverTold { claim, request },
            Act::Answer(hand_over) => Command::AnswerHandover { claim, request, hand_over },
            Act::Withdraw => Command::Withdraw { lease_id: party.lease_id },
            Act::Check => Command::Check { fence },
            Act::Acquire | Act::SettleDue | Act::Restart | Act::Job(_) => Command::Acquire(party.bid()),
        }
    }

    fn learn(&mut self, step: &Step, applied: &Applied) {
        let seen = match &applied.outcome {
            Outcome::Granted { lease, .. } | Outcome::Renewed(lease) | Outcome::Shortened(lease) => {
                self.party(step).fence = Some(lease.fence);
                Some((lease.fence, lease.request.as_ref().map(|request| request.seq)))
            }
            Outcome::Requested { held, request } => Some((held.fence, Some(request.seq))),
            Outcome::Held(held) | Outcome::Lost { held: Some(held), .. } => Some((held.fence, None)),
            _ => None,
        };
        if let Some((fence, request)) = seen {
            self.fences.insert((self.within(step.key), fence.get()));
            let known = self.last_seen.get(&step.key).map_or(0, |(_, request)| *request);
            self.last_seen.insert(step.key, (fence, request.unwrap_or(known)));
        }
    }

    fn observe(&mut self, step: &Step, applied: &Applied) {
        let after = applied.now.since(self.start);
        let mut line = vec![Piece::Text(format!("{after:?} {}:{} {:?} -> ", step.key, step.party, step.act))];
        line.extend(self.outcome(self.within(step.key), &applied.outcome));
        line.push(Piece::Text(self.told(applied.position)));
        self.lines.push(line);
    }

    fn outcome(&self, within: u8, outcome: &Outcome) -> Vec<Piece> {
        let word = format!("{outcome:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        let text = |text: String| vec![Piece::Text(text)];
        let held = |by: &Owner, fence: Fence, until: leasehold_core::StoreTime| {
            let until = until.since(self.start);
            vec![Piece::Text(format!("{word} {by} until {until:?} ")), Piece::Fence(within, fence.get())]
        };
        match outcome {
            Outcome::Granted { lease, .. } | Outcome::Renewed(lease) | Outcome::Shortened(lease) => {
                held(&lease.owner, lease.fence, lease.expires_at)
            }
            Outcome::Held(other) => held(&other.by, other.fence, other.until),
            Outcome::Lost { because, held: Some(other) } => {
                let mut pieces = text(format!("{because:?} "));
                pieces.extend(held(&other.by, other.fence, other.until));
                pieces
            }
            Outcome::Lost { because, held: None } => text(format!("{word} {because:?}")),
            Outcome::Checked { current, .. } => text(format!("{word} {current}")),
            Outcome::Requested { request, .. } => {
                text(format!("{word} {}", request.lapses_at.since(self.start).as_millis()))
            }
            Outcome::Told { ends_at } => text(format!("{word} {}", ends_at.since(self.start).as_millis())),
            _ => text(word),
        }
    }

    /// Adds what was told, and what is left.
    async fn add_events(&mut self, harness: &dyn Harness) {
        for event in all_events(harness, self.from).await {
            self.fences.insert((0, event.fence.get()));
            let at = event.at.since(self.start);
            let mut line = vec![Piece::Text(format!(
                "event {at:?} {} {} {} {} ",
                event.key,
                event.seq,
                event.owner,
                kind_detail(&event, self.start)
            ))];
            line.push(Piece::Fence(0, event.fence.get()));
            self.lines.push(line);
        }
        for (key, slot) in harness.store().list(&Range::prefix("run/history-")).await.unwrap().slots {
            let lease = slot.lease.unwrap();
            let text =
                format!("left {key} {} {} {:?} ", slot.seq, lease.owner, lease.expires_at.since(self.start));
            self.lines.push(vec![Piece::Text(text), Piece::Fence(0, lease.fence.get())]);
        }
    }

    fn finish(self) -> Vec<String> {
        let rank = |within: u8, fence: u64| self.fences.range((within, 0)..(within, fence)).count();
        let show = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Fence(within, fence) => format!("fence #{}", rank(*within, *fence)),
        };
        self.lines.iter().map(|line| line.iter().map(show).collect()).collect()
    }
}

fn job_command(worker: &mut Party, act: JobAct) -> JobCommand {
    let text = |text: &str| JobText::parse(text).unwrap();
    let claim = Claim { lease_id: worker.lease_id, fence: worker.fence.unwrap_or(Fence::new(1).unwrap()) };
    match act {
        JobAct::Create => JobCommand::Create { payload: text("payload"), max_attempts: Some(4) },
        JobAct::CreateAnother => JobCommand::Create { payload: text("another"), max_attempts: None },
        JobAct::Acquire => JobCommand::Acquire(worker.bid()),
        JobAct::AcquireAnew => {
            worker.renew_id();
            JobCommand::Acquire(worker.bid())
        }
        JobAct::Refresh => JobCommand::Refresh { claim, ttl: None },
        JobAct::Release => JobCommand::Release(claim),
        JobAct::Complete => JobCommand::Complete { claim, result: text("42") },
        JobAct::Fail(retryable) => JobCommand::Fail { claim, error: text("broken"), retryable },
        JobAct::Reset => JobCommand::Reset,
    }
}

// --- the words in which the laws are written ---

/// The TTL of the parties above, and the countdown of their requests.
const TTL: Duration = Duration::from_secs(30);
const COUNTDOWN: Duration = Duration::from_secs(10);

fn key(name: &str) -> Key {
    Key::parse(&format!("run/{name}")).unwrap()
}

async fn apply(harness: &dyn JobHarness, key: &Key, command: Command) -> Applied {
    harness.job_store().apply(key, command).await.unwrap()
}

/// Somebody who wants leases.
#[derive(Clone, Debug)]
struct Party {
    owner: Owner,
    lease_id: LeaseId,
    ttl: Ttl,
    fence: Option<Fence>,
    ids: u64,
}

impl Party {
    /// `seed` makes its lease id; the ids of different seeds are different.
    fn new(name: &str, seed: u8) -> Self {
        Self { owner: Owner::parse(name).unwrap(), ..Self::numbered(u64::from(seed)) }
    }

    fn numbered(seed: u64) -> Self {
        let mut bytes = [0xA5; 16];
        bytes[8..].copy_from_slice(&seed.to_be_bytes());
        let lease_id = LeaseId::from_random(bytes);
        Self {
            owner: Owner::parse("somebody").unwrap(),
            lease_id,
            ttl: Ttl::new(TTL).unwrap(),
            fence: None,
            ids: 0,
        }
    }

    fn bid(&self) -> Bid {
        Bid { lease_id: self.lease_id, owner: self.owner.clone(), ttl: self.ttl, meta: Meta::default() }
    }

    fn fence(&self) -> Fence {
        self.fence.expect("it has had a lease")
    }

    fn claim(&self) -> Claim {
        Claim { lease_id: self.lease_id, fence: self.fence() }
    }

    fn claim_from(&mut self, fence: Fence) {
        self.fence = Some(fence);
    }

    /// A new lease id that follows from the old one.
    fn renew_id(&mut self) {
        self.ids += 1;
        let mut bytes = *self.lease_id.as_bytes();
        bytes[0] = u8::try_from(self.ids % 256).unwrap();
        bytes[1] = u8::try_from(self.ids / 256 % 256).unwrap();
        self.lease_id = LeaseId::from_random(bytes);
    }

    async fn acquire(&mut self, harness: &dyn JobHarness, key: &Key) -> Applied {
        let applied = apply(harness, key, Command::Acquire(self.bid())).await;
        if let Outcome::Granted { lease, .. } = &applied.outcome {
            self.fence = Some(lease.fence);
        }
        applied
    }

    async fn must_acquire(&mut self, harness: &dyn JobHarness, key: &Key) -> Lease {
        granted(&self.acquire(harness, key).await)
    }

    async fn renew(&self, harness: &dyn JobHarness, key: &Key) -> Applied {
        apply(harness, key, Command::Renew { claim: self.claim(), ttl: None }).await
    }

    async fn must_renew(&self, harness: &dyn JobHarness, key: &Key) -> Lease {
        let applied = self.renew(harness, key).await;
        let Outcome::Renewed(lease) = applied.outcome else {
            panic!("{key} was not renewed: {:?}", applied.outcome)
        };
        assert_eq!(lease.expires_at, applied.now + self.ttl.as_duration());
        lease
    }

    async fn must_release(&self, harness: &dyn JobHarness, key: &Key) {
        let outcome = apply(harness, key, Command::Release(self.claim())).await.outcome;
        assert_eq!(outcome, Outcome::Released, "{key}");
    }

    async fn take_over(&mut self, harness: &dyn JobHarness, key: &Key, seen: Fence) -> Applied {
        let reason = Reason::parse("on call").unwrap();
        apply(harness, key, Command::TakeOver { seen, bid: self.bid(), reason }).await
    }

    async fn request(
        &self,
        harness: &dyn JobHarness,
        key: &Key,
        seen: Fence,
        on_silence: OnSilence,
    ) -> Outcome {
        let (countdown, patience) = (Ttl::new(COUNTDOWN).unwrap(), Ttl::new(2 * COUNTDOWN).unwrap());
        let bid = self.bid();
        apply(harness, key, Command::RequestHandover { seen, bid, on_silence, countdown, patience })
            .await
            .outcome
    }
}

fn granted(applied: &Applied) -> Lease {
    let Outcome::Granted { lease, .. } = &applied.outcome else {
        panic!("not granted: {:?}", applied.outcome)
    };
    lease.clone()
}

fn assert_strictly_growing(fences: &[Fence]) {
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "fences must grow: {fences:?}");
}

/// Lets so much time pass, with enough going on, that the store forgets every free key.
async fn forget_everything(harness: &dyn JobHarness) {
    harness.advance(REMEMBERED + TTL).await;
    for number in 0..20 {
        let mut party = Party::new("bystander", 5);
        party.lease_id = LeaseId::from_random([number; 16]);
        let key = key(&format!("bystander-{number}"));
        party.must_acquire(harness, &key).await;
    }
}

async fn all_events(harness: &dyn Harness, mut after: Position) -> Vec<Event> {
    let newest = harness.store().list(&Range::all()).await.unwrap().position;
    let mut events = Vec::new();
    while after < newest {
        let Feed::Events(batch) = harness.store().events(after, 7).await.unwrap() else { panic!("a gap") };
        for published in batch {
            assert_eq!(published.position.0, after.0 + 1, "positions have no gaps");
            after = published.position;
            events.push(published.event);
        }
    }
    events
}

async fn events_of(harness: &dyn Harness, key: &Key, after: Position) -> Vec<Event> {
    let events: Vec<_> =
        all_events(harness, after).await.into_iter().filter(|event| event.key == *key).collect();
    assert!(
        events.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq),
        "a gap between the events of {key}: {events:?}"
    );
    events
}

fn kind_word(event: &Event) -> &'static str {
    match event.kind {
        EventKind::Granted { .. } => "granted",
        EventKind::Ended { .. } => "ended",
        EventKind::Shortened { .. } => "shortened",
        EventKind::Resumed { .. } => "resumed",
        EventKind::HandoverRequested { .. } => "handover_requested",
        EventKind::HandoverTold { .. } => "handover_told",
        EventKind::HandoverRefused { .. } => "handover_refused",
        EventKind::HandoverWithdrawn { .. } => "handover_withdrawn",
    }
}

/// An event's kind with its details, times as since `start`.
fn kind_detail(event: &Event, start: leasehold_core::StoreTime) -> String {
    match &event.kind {
        EventKind::Granted { expires_at, .. }
        | EventKind::Shortened { expires_at }
        | EventKind::Resumed { expires_at }
        | EventKind::HandoverTold { ends_at: expires_at, .. } => {
            format!("{} until {:?}", kind_word(event), expires_at.since(start))
        }
        kind => format!("{kind:?}"),
    }
}
