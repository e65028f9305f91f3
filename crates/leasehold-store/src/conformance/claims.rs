//! What a caller has to show to renew, release or replace a lease, and what becomes of a lease id that is over.

use std::time::Duration;

use leasehold_core::lease::{LossReason, Proof, REMEMBERED};
use leasehold_core::{Command, Fence, Outcome, Reason};

use super::party::{Party, apply, granted, key};
use super::{JobHarness, Restart};

/// Law 5: renew and release are one atomic compare on key, lease id and fence.
pub async fn law_05_renew_and_release_compare_lease_id_and_fence(harness: &dyn JobHarness) {
    let key = key("law-05");
    let (mut anna, mut ben) = (Party::new("anna", 50), Party::new("ben", 51));
    anna.must_acquire(harness, &key).await;
    let stale = anna.claim();
    anna.must_release(harness, &key).await;
    ben.must_acquire(harness, &key).await;
    let mixed = Proof { lease_id: ben.lease_id, fence: stale.fence };
    let foreign = Proof { lease_id: stale.lease_id, fence: ben.fence() };
    for claim in [stale, mixed, foreign] {
        for command in [Command::Release(claim.into()), Command::Renew { claim: claim.into(), ttl: None }] {
            let outcome = apply(harness, &key, command).await.outcome;
            let Outcome::Lost { held: Some(held), .. } = outcome else {
                panic!("a wrong claim did something: {outcome:?}")
            };
            assert_eq!(held.by, ben.owner);
        }
    }
    ben.must_renew(harness, &key).await;
    ben.must_release(harness, &key).await;
    let again = apply(harness, &key, Command::Release(ben.claim().into())).await.outcome;
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
    let withdraw = Command::Withdraw { lease_id: anna.lease_id, owner: anna.owner.clone() };
    assert_eq!(apply(harness, &key, withdraw.clone()).await.outcome, Outcome::Withdrawn);
    let outcome = anna.acquire(harness, &key).await.outcome;
    assert!(matches!(outcome, Outcome::Lost { because: LossReason::Withdrawn, .. }), "{outcome:?}");
    let mut ben = Party::new("ben", 5);
    ben.must_acquire(harness, &key).await;
    let withdraw_ben = Command::Withdraw { lease_id: ben.lease_id, owner: ben.owner.clone() };
    assert_eq!(apply(harness, &key, withdraw_ben).await.outcome, Outcome::Withdrawn);
    Party::new("cora", 6).must_acquire(harness, &key).await;
    assert_eq!(apply(harness, &key, withdraw).await.outcome, Outcome::Withdrawn, "and hurts nobody else");
    assert!(harness.job_store().read(&key).await.unwrap().slot.lease.is_some());
}
