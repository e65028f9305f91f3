//! Law 5: whose lease a command is about is decided in the store's own transaction, by everything that the claim names.

use std::sync::Arc;

use leasehold_core::job::{JobCommand, JobOutcome};
use leasehold_core::lease::{Bid, Claim, Lease, LossReason, OnSilence};
use leasehold_core::{Command, Fence, Key, LeaseId, Outcome, Owner, Reason, Right, TabId, Ttl};

use super::party::{Party, TTL, all_events, apply, key};
use super::{Harness, JobHarness, jobs};
use crate::{Retry, Store};

fn renew(claim: Claim) -> Command {
    Command::Renew { claim, ttl: None }
}

/// What only the holder may do, each once.
fn commands(claim: &Claim) -> [Command; 4] {
    [
        renew(claim.clone()),
        Command::Release(claim.clone()),
        Command::Resume { claim: claim.clone(), next: LeaseId::from_random([0xEE; 16]) },
        Command::AnswerHandover { claim: claim.clone(), request: 1, hand_over: true },
    ]
}

/// Checks that the claim does nothing on a key that `by` holds, and that the answer names who holds it.
async fn does_nothing(harness: &dyn JobHarness, key: &Key, claim: &Claim, by: &Owner) {
    let before = harness.job_store().read(key).await.unwrap().slot;
    for command in commands(claim) {
        let outcome = apply(harness, key, command).await.outcome;
        let (Outcome::Lost { held: Some(held), .. } | Outcome::NotYours(held)) = &outcome else {
            panic!("{claim:?} did something: {outcome:?}")
        };
        assert_eq!(held.by, *by);
    }
    assert_eq!(harness.job_store().read(key).await.unwrap().slot, before, "{claim:?} changed something");
}

/// Law 5: a lease id that leaked is of no use under another name, and the answer says that it is another's.
pub async fn law_05_a_lease_id_counts_for_its_owner_alone(harness: &dyn JobHarness) {
    let key = key("law-05-owner");
    let (mut anna, ben) = (Party::new("anna", 60), Party::new("ben", 61));
    let unknown = apply(harness, &key, renew(anna.holder())).await.outcome;
    assert!(matches!(unknown, Outcome::Lost { held: None, .. }), "nobody holds it: {unknown:?}");
    anna.must_acquire(harness, &key).await;
    for claim in [anna.stolen_by("ben"), ben.holder(), ben.stolen_by("anna")] {
        does_nothing(harness, &key, &claim, &anna.owner).await;
    }
    for command in commands(&anna.stolen_by("ben")) {
        let outcome = apply(harness, &key, command).await.outcome;
        assert!(matches!(outcome, Outcome::NotYours(_)), "{outcome:?}");
    }
    let withdraw = Command::Withdraw { lease_id: anna.lease_id, owner: ben.owner.clone() };
    assert!(matches!(apply(harness, &key, withdraw).await.outcome, Outcome::NotYours(_)));
    let renewed = apply(harness, &key, renew(anna.holder())).await.outcome;
    assert!(matches!(renewed, Outcome::Renewed(_)), "{renewed:?}");
    let released = apply(harness, &key, Command::Release(anna.holder())).await.outcome;
    assert_eq!(released, Outcome::Released);
    let again = apply(harness, &key, Command::Release(anna.holder())).await.outcome;
    assert!(matches!(again, Outcome::Lost { because: LossReason::Released, held: None }), "{again:?}");
}

/// Law 5, for jobs: owner, lease id and fence of the attempt must all be right.
pub async fn law_05_a_worker_is_its_lease_id_its_owner_and_its_fence(harness: &dyn JobHarness) {
    let key = key("law-05-worker");
    let (mut w1, w2) = (Party::new("w1", 62), Party::new("w2", 63));
    jobs::create(harness, &key).await;
    w1.must_acquire_job(harness, &key).await;
    let claim = |lease_id, owner: &Owner, fence: Fence| Claim::Holder {
        lease_id,
        owner: owner.clone(),
        fence: Some(fence),
    };
    let other_fence = Fence::new(w1.fence().get() + 1).unwrap();
    for (wrong, is_anothers) in [
        (claim(w1.lease_id, &w2.owner, w1.fence()), true),
        (claim(w2.lease_id, &w1.owner, w1.fence()), false),
        (claim(w1.lease_id, &w1.owner, other_fence), false),
    ] {
        for command in [
            JobCommand::Refresh { claim: wrong.clone(), ttl: None },
            JobCommand::Complete { claim: wrong.clone(), result: jobs::text("forged") },
            JobCommand::Fail { claim: wrong.clone(), error: jobs::text("forged"), retryable: false },
            JobCommand::Release(wrong.clone()),
        ] {
            let outcome = harness.job_store().apply_job(&key, command).await.unwrap().outcome;
            match &outcome {
                JobOutcome::NotYours(held) if is_anothers => assert_eq!(held.by, w1.owner),
                JobOutcome::Lost { held: Some(held), .. } if !is_anothers => assert_eq!(held.by, w1.owner),
                _ => panic!("{wrong:?}: {outcome:?}"),
            }
        }
    }
    let right = claim(w1.lease_id, &w1.owner, w1.fence());
    let done = JobCommand::Complete { claim: right, result: jobs::text("42") };
    for _ in 0..2 {
        let outcome = harness.job_store().apply_job(&key, done.clone()).await.unwrap().outcome;
        assert_eq!(outcome, JobOutcome::Completed, "also when it is repeated");
    }
}

/// Law 5: without the permission to take anybody's, one takes what one holds oneself, as seen, and nothing else.
pub async fn law_05_without_force_only_ones_own_is_taken(harness: &dyn JobHarness) {
    let key = key("law-05-own");
    let (mut anna, ben) = (Party::new("anna", 64), Party::new("ben", 65));
    anna.must_acquire(harness, &key).await;
    let elsewhere = Party { tab: TabId::parse("other").ok(), ..Party::new("anna", 66) };
    let take = |party: &Party, seen: Fence| {
        let (bid, reason) = (party.bid(), Reason::default());
        Command::TakeOver { seen, bid, reason, right: Right::SameOwner }
    };
    let outcome = apply(harness, &key, take(&ben, anna.fence())).await.outcome;
    assert!(matches!(&outcome, Outcome::Held(held) if held.by == anna.owner), "{outcome:?}");
    let late = Fence::new(anna.fence().get() + 1).unwrap();
    let outcome = apply(harness, &key, take(&elsewhere, late)).await.outcome;
    assert!(matches!(outcome, Outcome::Held(_)), "{outcome:?}");
    anna.must_renew(harness, &key).await;
    let outcome = apply(harness, &key, take(&elsewhere, anna.fence())).await.outcome;
    assert!(matches!(outcome, Outcome::Granted { extended: false, .. }), "{outcome:?}");
}

/// Law 5: the same owner in the same tab has its lease again, and nobody else has.
pub async fn law_05_a_tab_claims_what_its_owner_holds_in_it(harness: &dyn Harness) {
    for (number, tab) in [None, Some("t1")].into_iter().enumerate() {
        let key = key(&format!("law-05-tab-{number}"));
        let parse = |tab: &str| Some(TabId::parse(tab).unwrap());
        let anna = Party { tab: tab.and_then(parse), ..Party::new("anna", 70) };
        let granted = granted(acquire_in_tab(harness, &key, &anna, 1).await, false);
        harness.advance(TTL / 2).await;
        let again = self::granted(acquire_in_tab(harness, &key, &anna, 2).await, true);
        assert_eq!((again.lease_id, again.fence), (granted.lease_id, granted.fence), "the same lease");
        assert!(again.expires_at > granted.expires_at, "and longer");
        let read = harness.store().read(&key).await.unwrap().slot;
        assert_eq!(read.lease.as_ref().and_then(|lease| lease.tab.clone()), anna.tab);
        let (ben, other_tab) = (Party::new("ben", 71), if tab.is_some() { None } else { parse("t2") });
        let wrong = [anna.in_tab(other_tab.clone()), anna.in_tab(parse("t3")), ben.in_tab(anna.tab.clone())];
        for claim in wrong {
            does_nothing(harness, &key, &claim, &anna.owner).await;
        }
        let elsewhere = Party { tab: other_tab, ..anna.clone() };
        for party in [elsewhere, Party { tab: anna.tab.clone(), ..ben }] {
            let outcome = acquire_in_tab(harness, &key, &party, 3).await;
            assert!(matches!(&outcome, Outcome::Held(held) if held.by == anna.owner), "{outcome:?}");
        }
        handed_over_by_tab(harness, &key, &anna).await;
    }
}

/// The holder answers by its tab, and whoever gets the lease has it in the tab that it asked from.
async fn handed_over_by_tab(harness: &dyn Harness, key: &Key, anna: &Party) {
    let cora = Party { tab: TabId::parse("c9").ok(), ..Party::new("cora", 72) };
    let claim = anna.in_tab(anna.tab.clone());
    let Outcome::Renewed(lease) = apply(harness, key, renew(claim.clone())).await.outcome else {
        panic!("the holder's own renewal was refused")
    };
    let (seen, patience) = (lease.fence, Ttl::new(TTL).unwrap());
    let ask = Command::RequestHandover {
        seen,
        bid: cora.bid(),
        on_silence: OnSilence::Refuse,
        countdown: patience,
        patience,
    };
    let Outcome::Requested { request, .. } = apply(harness, key, ask).await.outcome else {
        panic!("the request was refused")
    };
    let answer = Command::AnswerHandover { claim, request: request.seq, hand_over: true };
    let outcome = apply(harness, key, answer).await.outcome;
    assert!(matches!(&outcome, Outcome::HandedOver { to, .. } if *to == cora.owner), "{outcome:?}");
    let outcome = apply(harness, key, Command::Release(cora.in_tab(cora.tab.clone()))).await.outcome;
    assert_eq!(outcome, Outcome::Released);
}

/// Law 5 and law 6: a tab that calls many times at once is granted one lease, and every call gets that one.
pub async fn law_05_of_many_calls_from_one_tab_all_get_the_same_lease(harness: &dyn Harness) {
    let (store, from) = (harness.store(), harness.store().read(&key("law-05-many")).await.unwrap().position);
    let anna = Party { tab: TabId::parse("t1").ok(), ..Party::new("anna", 73) };
    let calls = (0..harness.racers()).map(|number| {
        let (store, bid) = (Arc::clone(&store), drawn(&anna, number));
        tokio::spawn(async move { repeated(&*store, Command::AcquireInTab(bid)).await })
    });
    let calls: Vec<_> = calls.collect();
    let mut leases = Vec::new();
    for call in calls {
        match call.await.unwrap() {
            Outcome::Granted { lease, .. } => leases.push((lease.lease_id, lease.fence)),
            other => panic!("a call of the holder itself was refused: {other:?}"),
        }
    }
    leases.dedup();
    assert_eq!(leases.len(), 1, "they do not all have the same lease");
    assert_eq!(all_events(harness, from).await.len(), 1, "one grant, one event");
}

/// The outcome of a call that is repeated while nobody knows what came of it, as callers do.
async fn repeated(store: &dyn Store, command: Command) -> Outcome {
    for _ in 0..10 {
        match store.apply(&key("law-05-many"), command.clone()).await {
            Ok(applied) => return applied.outcome,
            Err(error) => assert_ne!(error.retry(), Retry::No, "{error}"),
        }
    }
    panic!("the store did not answer")
}

/// Laws 3 and 5: a claim by tab is to a live lease. It revives none, and it is not to the one that comes after it.
pub async fn law_05_a_claim_by_tab_ends_with_its_lease(harness: &dyn Harness) {
    let key = key("law-05-ends");
    let anna = Party { tab: TabId::parse("t1").ok(), ..Party::new("anna", 74) };
    let claim = anna.in_tab(anna.tab.clone());
    let first = granted(acquire_in_tab(harness, &key, &anna, 1).await, false);
    harness.advance(TTL).await;
    let outcome = apply(harness, &key, renew(claim.clone())).await.outcome;
    assert!(matches!(outcome, Outcome::Lost { held: None, .. }), "expired: {outcome:?}");
    let mut ben = Party::new("ben", 75);
    ben.must_acquire(harness, &key).await;
    for command in [renew(claim.clone()), Command::Release(claim.clone())] {
        let outcome = apply(harness, &key, command).await.outcome;
        assert!(
            matches!(&outcome, Outcome::Lost { held: Some(held), .. } if held.by == ben.owner),
            "{outcome:?}"
        );
    }
    ben.must_release(harness, &key).await;
    let second = granted(acquire_in_tab(harness, &key, &anna, 2).await, false);
    assert!(second.fence > first.fence && second.lease_id != first.lease_id);
}

async fn acquire_in_tab(harness: &dyn Harness, key: &Key, party: &Party, draw: u8) -> Outcome {
    apply(harness, key, Command::AcquireInTab(drawn(party, draw))).await.outcome
}

/// The bid of a caller that keeps no lease id: a new one is drawn for each call.
fn drawn(party: &Party, draw: u8) -> Bid {
    let mut bytes = *party.lease_id.as_bytes();
    bytes[0] ^= draw.wrapping_add(1);
    Bid { lease_id: LeaseId::from_random(bytes), ..party.bid() }
}

fn granted(outcome: Outcome, again: bool) -> Lease {
    match outcome {
        Outcome::Granted { lease, extended } if extended == again => lease,
        other => panic!("not granted{}: {other:?}", if again { " again" } else { "" }),
    }
}
