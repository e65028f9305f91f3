//! What outlives the end of a store, orderly or not: leases, fences and the lease clock.

use std::time::Duration;

use leasehold_core::Outcome;
use leasehold_core::lease::LossReason;

use super::party::{Party, TTL, assert_strictly_growing, key};
use super::{Harness, JobHarness, Restart};

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
    assert!(
        after + Duration::from_secs(1) >= before,
        "a crash at {before:?} put the clock back to {after:?}"
    );
}
