//! Leases that change hands by agreement: soft release, resume and hand-over.

use std::time::Duration;

use leasehold_core::lease::{LossReason, OnSilence, Proof};
use leasehold_core::{Command, EndReason, EventKind, Key, LeaseId, Outcome, Ttl};

use super::Harness;
use super::party::{COUNTDOWN, Party, apply, events_of, granted, key};

/// A soft release shortens the lease; its holder may come back under a new lease id, or it ends as disconnected.
pub async fn a_soft_release_shortens_and_a_resume_brings_back(harness: &dyn Harness) {
    let key = key("soft");
    let mut anna = Party::new("anna", 7);
    anna.must_acquire(harness, &key).await;
    let grace = Ttl::from_secs(5).unwrap();
    let soft = apply(harness, &key, Command::SoftRelease { lease_id: anna.lease_id, grace }).await;
    let Outcome::Shortened(lease) = &soft.outcome else { panic!("{:?}", soft.outcome) };
    assert_eq!(lease.expires_at, soft.now + grace.as_duration());
    harness.advance(Duration::from_secs(4)).await;
    let late = anna.renew(harness, &key).await.outcome;
    assert_eq!(late, Outcome::Renewed(lease.clone()), "a late renewal does not restore it");
    let next = LeaseId::from_random([8; 16]);
    let resume = Command::Resume { claim: anna.claim().into(), next };
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
    apply(harness, &key, Command::SoftRelease { lease_id: anna.lease_id, grace }).await;
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
    let told = Command::HandoverTold { claim: anna.claim().into(), request: request.seq };
    assert!(matches!(apply(harness, &key, told).await.outcome, Outcome::Told { .. }));
    harness.advance(COUNTDOWN).await;
    harness.store().settle_due(100).await.unwrap();
    let outcome = ben.request(harness, &key, anna.fence(), OnSilence::Grant).await;
    let Outcome::Granted { lease, extended: true } = outcome else { panic!("{outcome:?}") };
    assert!(lease.fence > anna.fence());
    let outcome = anna.renew(harness, &key).await.outcome;
    assert!(matches!(outcome, Outcome::Lost { because: LossReason::HandedOver, .. }), "{outcome:?}");
    refused_handover(harness, &key, Proof { lease_id: ben.lease_id, fence: lease.fence }, &cora).await;
}

async fn refused_handover(harness: &dyn Harness, key: &Key, holder: Proof, asker: &Party) {
    let asked = asker.request(harness, key, holder.fence, OnSilence::Refuse).await;
    let Outcome::Requested { request, .. } = asked else { panic!("{asked:?}") };
    let answer = Command::AnswerHandover { claim: holder.into(), request: request.seq, hand_over: false };
    assert_eq!(apply(harness, key, answer).await.outcome, Outcome::Refused);
    let outcome = asker.request(harness, key, holder.fence, OnSilence::Refuse).await;
    assert!(matches!(outcome, Outcome::Lost { because: LossReason::Refused, .. }), "{outcome:?}");
}
