//! The rules of jobs: those of *Job lock: rules* (`docs/sources.md`) and their reasons, what finishing means, and what crashes and repeated
//! messages must never lead to.

use std::collections::BTreeMap;

use leasehold_core::Owner;
use leasehold_core::job::{Job, JobCommand, JobOutcome, JobText, Record, Status, decide};
use leasehold_core::lease::{Bid, Claim, Context, LossReason, Proof, REMEMBERED};
use leasehold_core::name::{Key, LeaseId};
use leasehold_core::time::{StoreTime, Ttl};
use leasehold_core::{Fence, Meta};
use proptest::prelude::*;

use crate::world::{fence, lease_id, owner};

const TTL: u64 = 300;
const DAY: u64 = 86_400;

/// A store with one job and no IO. A worker is a name such as `w1`, or `w1/2` for its second attempt.
struct Store {
    now: StoreTime,
    record: Record,
    last_fence: u64,
    remembered: BTreeMap<LeaseId, (LossReason, StoreTime)>,
    fences: BTreeMap<LeaseId, Fence>,
    events: usize,
}

impl Store {
    fn empty() -> Self {
        let now = StoreTime::from_millis(1_000_000);
        let (remembered, fences) = (BTreeMap::new(), BTreeMap::new());
        Self { now, record: Record::default(), last_fence: 0, remembered, fences, events: 0 }
    }

    fn with_job(max_attempts: Option<u32>) -> Self {
        let mut store = Self::empty();
        assert_eq!(store.create("payload", max_attempts), "created");
        store
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + std::time::Duration::from_secs(seconds);
        let now = self.now;
        self.remembered.retain(|_, (_, at)| now < *at + REMEMBERED);
    }

    fn run(&mut self, command: &JobCommand) -> String {
        let remembered =
            command.lease_id().and_then(|id| self.remembered.get(id)).map(|(because, _)| *because);
        let context = Context {
            now: self.now,
            last_fence: self.last_fence,
            remembered,
            owner_is_full: false,
            asker_is_full: false,
        };
        let key = Key::parse("job/analyses/42").unwrap();
        let decision = decide(&key, &self.record, command, &context);
        assert_eq!(decision.job_changed, decision.record.job != self.record.job);
        let lease = decision.lease;
        assert_eq!(lease.slot.is_some(), decision.record.slot != self.record.slot);
        assert!(lease.last_fence >= self.last_fence);
        assert!(lease.events.iter().zip(self.record.slot.seq + 1..).all(|(event, seq)| event.seq == seq));
        self.events += lease.events.len();
        for (id, because) in lease.ended {
            self.remembered.insert(id, (because, self.now));
        }
        (self.record, self.last_fence) = (decision.record, lease.last_fence);
        if let (JobOutcome::Acquired { lease, .. }, Some(id)) = (&decision.outcome, command.lease_id()) {
            self.fences.insert(*id, lease.fence);
        }
        words(&decision.outcome)
    }

    fn claim(&self, worker: &str) -> Claim {
        let lease_id = lease_id(worker);
        let fence = self.fences.get(&lease_id).copied().unwrap_or(fence(1));
        Proof { lease_id, fence }.into()
    }

    fn create(&mut self, payload: &str, max_attempts: Option<u32>) -> String {
        self.run(&JobCommand::Create { payload: text(payload), max_attempts })
    }

    fn acquire(&mut self, worker: &str) -> String {
        let owner = owner(worker.split('/').next().unwrap());
        let (ttl, meta) = (Ttl::from_secs(TTL).unwrap(), Meta::default());
        self.run(&JobCommand::Acquire(Bid { lease_id: lease_id(worker), owner, tab: None, ttl, meta }))
    }

    fn refresh(&mut self, worker: &str) -> String {
        self.run(&JobCommand::Refresh { claim: self.claim(worker), ttl: None })
    }

    fn release(&mut self, worker: &str) -> String {
        self.run(&JobCommand::Release(self.claim(worker)))
    }

    fn complete(&mut self, worker: &str, result: &str) -> String {
        self.run(&JobCommand::Complete { claim: self.claim(worker), result: text(result) })
    }

    fn fail(&mut self, worker: &str, retryable: bool) -> String {
        self.run(&JobCommand::Fail { claim: self.claim(worker), error: text("broken"), retryable })
    }

    fn job(&self) -> &Job {
        self.record.job.as_ref().unwrap()
    }

    fn status(&self) -> String {
        match &self.job().status {
            Status::Queued => "QUEUED".into(),
            Status::Ready { result, .. } => format!("READY: {}", result.as_str()),
            Status::Failed { error, .. } => format!("FAILED: {}", error.as_str()),
        }
    }
}

fn text(text: &str) -> JobText {
    JobText::parse(text).unwrap()
}

fn words(outcome: &JobOutcome) -> String {
    match outcome {
        JobOutcome::Acquired { lease, recovered } => {
            format!("acquired #{}{}", lease.fence, if *recovered { ", recovered" } else { "" })
        }
        JobOutcome::AlreadyFinished => "already_finished".into(),
        JobOutcome::Locked(held) => format!("locked by {}", held.by),
        JobOutcome::Lost { because, .. } => format!("lost: {}", because.as_str()),
        JobOutcome::NotYours(held) => format!("not yours, locked by {}", held.by),
        JobOutcome::Refreshed(lease) => format!("refreshed #{}", lease.fence),
        JobOutcome::Failed { again } => format!("failed{}", if *again { ", again" } else { "" }),
        other => format!("{other:?}").to_lowercase(),
    }
}

// --- Job lock: rules ---

#[test]
fn rule_1_a_missing_job_is_missing() {
    let mut store = Store::empty();
    assert_eq!(store.acquire("w1"), "missing");
    assert_eq!(store.complete("w1", "x"), "missing");
    assert_eq!(store.run(&JobCommand::Reset), "missing");
    assert_eq!(store.record, Record::default());
}

#[test]
fn rule_2_a_finished_job_is_never_acquired() {
    let finish: [fn(&mut Store) -> String; 2] = [|s| s.complete("w1", "42"), |s| s.fail("w1", false)];
    for finish in finish {
        let mut store = Store::with_job(None);
        store.acquire("w1");
        finish(&mut store);
        assert_eq!(store.acquire("w2"), "already_finished");
        store.pass(10 * TTL);
        assert_eq!(store.acquire("w2/2"), "already_finished");
    }
}

#[test]
fn rule_3_a_free_job_is_acquired() {
    let mut store = Store::with_job(None);
    assert_eq!(store.acquire("w1"), "acquired #1");
    assert_eq!(store.job().attempts, 1);
}

#[test]
fn a_store_without_fences_left_says_so_and_no_attempt_is_used_up() {
    let mut store = Store::with_job(None);
    store.last_fence = Fence::MAX.get();
    assert_eq!(store.acquire("w1"), "fencesexhausted");
    assert_eq!(store.job().attempts, 0);
}

#[test]
fn rule_4_a_stale_lock_is_recovered_and_that_shows() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    store.pass(TTL - 1);
    assert_eq!(store.acquire("w2"), "locked by w1");
    store.pass(1);
    assert_eq!(store.acquire("w2"), "acquired #2, recovered");
    assert_eq!(store.acquire("w2"), "acquired #2", "asking again is the same attempt");
    assert_eq!(store.job().attempts, 2);
}

#[test]
fn rule_5_a_live_lock_is_locked_also_for_the_same_worker() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    assert_eq!(store.acquire("w2"), "locked by w1");
    assert_eq!(store.acquire("w1/2"), "locked by w1");
    assert_eq!(store.acquire("w1"), "acquired #1");
}

#[test]
fn a_foreign_release_changes_nothing() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    let before = store.record.clone();
    assert_eq!(store.release("w2"), "lost: unknown");
    // The same worker's name, another attempt.
    assert_eq!(store.release("w1/2"), "lost: unknown");
    assert_eq!(store.record, before);
    assert_eq!(store.release("w1"), "released");
    assert_eq!(store.job().attempts, 0, "it was not worked on");
    assert_eq!(store.acquire("w2"), "acquired #2", "it was given back, not abandoned");
}

// --- finishing ---

#[test]
fn a_job_is_completed_once_and_replays_its_result() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    assert_eq!(store.complete("w1", "42"), "completed");
    assert_eq!(store.status(), "READY: 42");
    // The answer got lost: the same again is fine. Anything else contradicts it, and changes nothing.
    assert_eq!(store.complete("w1", "42"), "completed");
    assert_eq!(store.complete("w1", "43"), "lost: released");
    assert_eq!(
        (store.fail("w1", true), store.fail("w1", false)),
        ("lost: released".into(), "lost: released".into())
    );
    assert_eq!((store.status(), store.create("payload", None)), ("READY: 42".into(), "exists".into()));
}

#[test]
fn a_finished_job_may_be_forgotten_after_thirty_days() {
    let mut store = Store::with_job(None);
    store.pass(31 * DAY);
    assert!(!store.job().is_forgettable(store.now), "it is not finished");
    store.acquire("w1");
    store.complete("w1", "42");
    store.pass(30 * DAY - 1);
    assert!(!store.job().is_forgettable(store.now));
    store.pass(1);
    assert!(store.job().is_forgettable(store.now));
}

#[test]
fn a_failure_is_said_once() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    assert_eq!((store.fail("w1", false), store.fail("w1", false)), ("failed".into(), "failed".into()));
    let other =
        JobCommand::Fail { claim: store.claim("w1"), error: text("something else"), retryable: false };
    assert_eq!(
        (store.run(&other), store.complete("w1", "42")),
        ("lost: released".into(), "lost: released".into())
    );
    assert_eq!(store.status(), "FAILED: broken");
}

/// A program that does not know of leases wrote its result while a worker had the job, and the worker's went over it.
#[test]
fn what_another_program_finished_meanwhile_stays() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    let by = store.record.slot.lease.as_ref().unwrap().fence;
    store.record.job.as_mut().unwrap().status = Status::Ready { result: text("theirs"), by };
    assert_eq!(store.complete("w1", "ours"), "already_finished");
    assert_eq!((store.status(), store.record.slot.lease.is_none()), ("READY: theirs".into(), true));
}

/// The answer to an acquire never came, and the caller gave up: the attempt must not count, whichever arrives first.
#[test]
fn an_acquire_that_was_withdrawn_does_not_count() {
    let withdraw = |worker: &str| {
        let owner = Owner::parse(worker.split('/').next().unwrap()).unwrap();
        JobCommand::Withdraw { lease_id: lease_id(worker), owner }
    };
    let mut store = Store::with_job(Some(1));
    store.acquire("w1");
    assert_eq!(store.run(&withdraw("w1")), "withdrawn");
    assert_eq!((store.job().attempts, store.job().begun), (0, false));
    assert_eq!(store.run(&withdraw("w2")), "withdrawn");
    assert_eq!(store.acquire("w2"), "lost: withdrawn", "it arrives late");
    assert_eq!(store.acquire("w3"), "acquired #2");
    assert_eq!(store.run(&withdraw("w1")), "withdrawn", "that changes nothing for w3");
    let foreign = JobCommand::Withdraw { lease_id: lease_id("w3"), owner: Owner::parse("w1").unwrap() };
    assert_eq!(store.run(&foreign), "not yours, locked by w3");
    assert_eq!(store.job().attempts, 1);
}

#[test]
fn a_late_complete_is_refused() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    store.pass(TTL);
    assert_eq!(store.complete("w1", "late"), "lost: expired");
    assert_eq!((store.status(), store.job().begun), ("QUEUED".into(), true));
    assert_eq!(store.acquire("w2"), "acquired #2, recovered");
    assert_eq!(store.complete("w1", "late"), "lost: expired");
    assert_eq!(store.fail("w1", false), "lost: expired");
    assert_eq!(store.complete("w2", "42"), "completed");
    assert_eq!(store.complete("w1", "late"), "lost: expired");
    assert_eq!(store.status(), "READY: 42");
}

#[test]
fn a_failure_is_tried_again_as_long_as_there_are_attempts() {
    let mut store = Store::with_job(Some(2));
    store.acquire("w1");
    assert_eq!(store.fail("w1", true), "failed, again");
    assert_eq!(store.fail("w1", true), "failed, again", "said twice");
    assert_eq!((store.status(), store.acquire("w2")), ("QUEUED".into(), "acquired #2".into()));
    assert_eq!(
        (store.fail("w1", true), store.refresh("w2")),
        ("failed, again".into(), "refreshed #2".into())
    );
    assert_eq!(store.fail("w1", false), "lost: released", "that would be another word");
    assert_eq!(store.fail("w2", true), "failed");
    assert_eq!((store.status(), store.acquire("w3")), ("FAILED: broken".into(), "already_finished".into()));
    assert_eq!(store.fail("w2", true), "failed", "said twice");
}

#[test]
fn a_failure_that_is_none_to_retry_is_final() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    assert_eq!(store.fail("w1", false), "failed");
    assert_eq!(store.status(), "FAILED: broken");
}

/// A worker that takes its whole machine down would be started again for ever.
#[test]
fn crashes_count_as_attempts() {
    let mut store = Store::with_job(Some(2));
    for worker in ["w1", "w2"] {
        store.acquire(worker);
        store.pass(TTL);
    }
    assert_eq!(store.acquire("w3"), "already_finished");
    assert_eq!(store.status(), "FAILED: given up after 2 attempts");
}

#[test]
fn another_payload_under_the_same_id_is_refused() {
    let mut store = Store::with_job(None);
    assert_eq!(store.create("payload", None), "exists");
    assert_eq!(store.create("other", None), "differs");
    store.acquire("w1");
    store.complete("w1", "42");
    assert_eq!(store.create("other", None), "differs");
}

#[test]
fn a_payload_is_compared_as_json_by_its_digits() {
    let mut store = Store::empty();
    assert_eq!(store.create(r#"{"b": 1180591620717411303425, "a": 1}"#, None), "created");
    assert_eq!(store.create(r#"{"a":1,"b":1180591620717411303425}"#, None), "exists");
    assert_eq!(store.create(r#"{"a":1,"b":1180591620717411303426}"#, None), "differs");
    assert_eq!(store.create(r#"{"a":1.0,"b":1180591620717411303425}"#, None), "differs");
    let refused = JobText::value(r#"{"a":1,"a":1}"#).unwrap_err().to_string();
    assert!(refused.contains("the key \"a\" is there twice"), "{refused}");
    assert_eq!(JobText::value("two\nlines").unwrap().as_str(), "two\nlines");
}

#[test]
fn a_reset_begins_anew_but_not_under_somebodys_hands() {
    let mut store = Store::with_job(Some(1));
    store.acquire("w1");
    assert_eq!(store.run(&JobCommand::Reset), "locked by w1");
    store.complete("w1", "42");
    assert_eq!((store.run(&JobCommand::Reset), store.status()), ("reset".into(), "QUEUED".into()));
    assert_eq!(store.complete("w1", "again"), "lost: released", "the old attempt is over");
    assert_eq!(store.acquire("w2"), "acquired #2");
}

#[test]
fn refreshing_keeps_the_attempt() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    for _ in 0..10 {
        store.pass(TTL - 1);
        assert_eq!(store.refresh("w1"), "refreshed #1");
    }
    store.pass(TTL);
    assert_eq!(store.refresh("w1"), "lost: expired");
}

#[test]
fn a_text_has_at_most_64_kibibytes_and_does_not_show_itself() {
    assert!(JobText::parse(&"x".repeat(JobText::MAX_BYTES)).is_ok());
    assert!(JobText::parse(&"x".repeat(JobText::MAX_BYTES + 1)).is_err());
    assert!(JobText::parse("a\0b").is_err(), "PostgreSQL cannot keep it");
    assert_eq!(format!("{:?}", text("somebody's data")), "JobText(15 bytes)");
}

// --- whatever happens ---

fn act() -> impl Strategy<Value = (u64, u8, u8)> {
    let seconds = prop_oneof![4 => 0_u64..3, 1 => Just(TTL - 1), 2 => Just(TTL), 1 => Just(700_u64)];
    (seconds, 0_u8..4, 0_u8..7)
}

#[test]
fn of_a_long_error_the_beginning_is_kept_in_whole_characters() {
    let long = "é".repeat(JobText::MAX_BYTES);
    assert_eq!(JobText::clipped(&long).as_str().len(), JobText::MAX_BYTES / 8);
    let odd = format!("x{long}");
    assert_eq!(JobText::clipped(&odd).as_str().len(), JobText::MAX_BYTES / 8 - 1);
    assert_eq!(JobText::clipped("a\0b").as_str(), "a b");
}

#[test]
fn only_an_acquire_counts_against_the_leases_of_an_owner() {
    let (ttl, meta) = (Ttl::from_secs(TTL).unwrap(), Meta::default());
    let bid = Bid { lease_id: lease_id("w1"), owner: owner("w1"), tab: None, ttl, meta };
    assert_eq!(JobCommand::Acquire(bid).bidder(), Some(&owner("w1")));
    assert_eq!(JobCommand::Reset.bidder(), None);
}

proptest! {
    /// Whatever workers do, in whatever order, and however often they vanish: a job is finished at most once, by whoever
    /// held it at that moment, and nobody holds it afterwards.
    #[test]
    fn a_job_is_finished_once_and_by_its_holder(acts in prop::collection::vec(act(), 1..60), most in prop::option::of(1_u32..5)) {
        let mut store = Store::with_job(most);
        let (mut finished, mut attempts) = (None::<String>, 0);
        for (number, (seconds, worker, what)) in acts.into_iter().enumerate() {
            store.pass(seconds);
            let worker = format!("w{worker}");
            let holder = store.record.slot.live(store.now).map(|lease| lease.lease_id);
            let said = match what {
                0 | 1 => store.acquire(&worker),
                2 => store.refresh(&worker),
                3 => store.release(&worker),
                4 => store.complete(&worker, &format!("result {number}")),
                5 => store.fail(&worker, true),
                _ => store.fail(&worker, false),
            };
            if said.starts_with("acquired") {
                prop_assert!(finished.is_none(), "acquired after it was finished");
                prop_assert!(holder.is_none() || holder == Some(lease_id(&worker)), "two holders");
            }
            if store.job().is_finished() && finished.is_none() {
                let by_holder = holder == Some(lease_id(&worker)) || store.status().starts_with("FAILED: given up");
                prop_assert!(by_holder, "finished by somebody who did not hold it");
                prop_assert_eq!(&store.record.slot.lease, &None);
                finished = Some(store.status());
            }
            if let Some(status) = &finished {
                prop_assert_eq!(status, &store.status(), "finished twice");
            }
            match said.as_str() {
                said if said.starts_with("acquired") && holder.is_none() => attempts += 1,
                "released" => attempts -= 1,
                _ => {}
            }
            prop_assert_eq!(attempts, store.job().attempts, "what was given back does not count");
            prop_assert!(most.is_none_or(|most| attempts <= most));
        }
    }
}

/// At a door, a worker is known by name: the lease id and the fence of another's attempt, should they have leaked, are of
/// no use.
#[test]
fn anothers_attempt_is_not_finished() {
    let mut store = Store::with_job(None);
    store.acquire("w1");
    let Claim::Proof(Proof { lease_id, fence }) = store.claim("w1") else { unreachable!() };
    let by = |name: &str| Claim::Holder { lease_id, owner: owner(name), fence: Some(fence) };
    let commands = |claim: Claim| {
        [
            JobCommand::Refresh { claim: claim.clone(), ttl: None },
            JobCommand::Release(claim.clone()),
            JobCommand::Complete { claim: claim.clone(), result: text("forged") },
            JobCommand::Fail { claim, error: text("forged"), retryable: false },
        ]
    };
    for command in commands(by("mallory")) {
        assert_eq!(store.run(&command), "not yours, locked by w1", "{command:?}");
    }
    let wrong_fence = Claim::Holder { lease_id, owner: owner("w1"), fence: Some(crate::world::fence(77)) };
    for command in commands(wrong_fence) {
        assert!(store.run(&command).starts_with("lost: unknown"), "{command:?}");
    }
    assert_eq!(store.status(), "QUEUED");
    for _ in 0..2 {
        let done = JobCommand::Complete { claim: by("w1"), result: text("done") };
        assert_eq!(store.run(&done), "completed", "also when it is repeated");
    }
    assert_eq!(store.status(), "READY: done");
}
