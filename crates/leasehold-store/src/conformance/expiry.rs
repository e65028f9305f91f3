//! When a lease runs out, on the store's clock and on its holder's.

use std::time::Duration;

use leasehold_core::holder::Keeper;
use leasehold_core::lease::LossReason;
use leasehold_core::{HolderTime, Outcome, Ttl};

use super::JobHarness;
use super::party::{Party, TTL, key};

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

/// Law 8: at the holder's own deadline, the store still keeps everybody else out.
pub async fn law_08_the_holder_stops_before_the_store_would_let_others_in(harness: &dyn JobHarness) {
    for seconds in [1, 5, 30, 300] {
        let key = key(&format!("law-08-{seconds}"));
        let ttl = Ttl::from_secs(seconds).unwrap();
        let mut anna = Party { ttl, ..Party::new("anna", 80) };
        anna.must_acquire(harness, &key).await;
        let deadline = Keeper::new(HolderTime::ZERO, ttl).deadline().since(HolderTime::ZERO);
        harness.advance(deadline).await;
        let outcome = Party::new("ben", 81).acquire(harness, &key).await.outcome;
        assert!(matches!(outcome, Outcome::Held(_)), "{seconds} s: {outcome:?}");
    }
}
