//! What every store must do with jobs: the list of *Job lock: tests* (`docs/sources.md`), and what crashes and lost answers must not lead to.

use leasehold_core::job::{JobCommand, JobOutcome, JobText, Status};
use leasehold_core::lease::LossReason;
use leasehold_core::{Key, Ttl};

use super::party::{Party, TTL};
use super::{Harness, JobHarness, Restart};
use crate::JobApplied;

fn key(name: &str) -> Key {
    Key::parse(&format!("job/analyses/{name}")).unwrap()
}

pub(super) fn text(text: &str) -> JobText {
    JobText::parse(text).unwrap()
}

async fn apply(harness: &dyn JobHarness, key: &Key, command: JobCommand) -> JobApplied {
    harness.job_store().apply_job(key, command).await.unwrap()
}

pub(super) async fn create(harness: &dyn JobHarness, key: &Key) {
    let command = JobCommand::Create { payload: text("payload"), max_attempts: Some(3) };
    assert_eq!(apply(harness, key, command).await.outcome, JobOutcome::Created);
}

impl Party {
    async fn acquire_job(&mut self, harness: &dyn JobHarness, key: &Key) -> JobOutcome {
        let outcome = apply(harness, key, JobCommand::Acquire(self.bid())).await.outcome;
        if let JobOutcome::Acquired { lease, .. } = &outcome {
            self.fence = Some(lease.fence);
        }
        outcome
    }

    pub(super) async fn must_acquire_job(&mut self, harness: &dyn JobHarness, key: &Key) -> bool {
        match self.acquire_job(harness, key).await {
            JobOutcome::Acquired { recovered, .. } => recovered,
            other => panic!("{} did not get the job: {other:?}", self.owner),
        }
    }

    async fn complete(&self, harness: &dyn JobHarness, key: &Key, result: &str) -> JobOutcome {
        let command = JobCommand::Complete { claim: self.claim().into(), result: text(result) };
        apply(harness, key, command).await.outcome
    }

    async fn fail(&self, harness: &dyn JobHarness, key: &Key, retryable: bool) -> JobOutcome {
        let command = JobCommand::Fail { claim: self.claim().into(), error: text("broken"), retryable };
        apply(harness, key, command).await.outcome
    }
}

/// What the job came to.
async fn status(harness: &dyn JobHarness, key: &Key) -> Status {
    apply(harness, key, JobCommand::Settle).await.record.job.expect("a job").status
}

/// A job that exists and is free is acquired; one that does not exist is missing.
pub async fn job_first_acquire_succeeds(harness: &dyn JobHarness) {
    let key = key("first");
    let mut w1 = Party::new("w1", 1);
    assert_eq!(w1.acquire_job(harness, &key).await, JobOutcome::Missing);
    create(harness, &key).await;
    assert!(!w1.must_acquire_job(harness, &key).await, "there was no worker to recover it from");
}

/// Of many that want a job at once, one gets it.
pub async fn job_of_many_at_once_one_gets_it(harness: &dyn JobHarness) {
    let key = key("at-once");
    create(harness, &key).await;
    let mut racers = tokio::task::JoinSet::new();
    let count = harness.racers();
    for number in 0..count {
        let (store, key) = (harness.job_store(), key.clone());
        let bid = Party::new(&format!("w{number}"), 10 + number).bid();
        racers.spawn(async move { store.apply_job(&key, JobCommand::Acquire(bid)).await.unwrap().outcome });
    }
    let outcomes = racers.join_all().await;
    let acquired = outcomes.iter().filter(|outcome| matches!(outcome, JobOutcome::Acquired { .. })).count();
    let locked = outcomes.iter().filter(|outcome| matches!(outcome, JobOutcome::Locked(_))).count();
    assert_eq!((acquired, locked), (1, usize::from(count) - 1), "{outcomes:?}");
}

/// After the TTL a job is acquired again, and says that it was recovered, whichever call noticed the expiry.
pub async fn job_is_recovered_after_the_ttl(harness: &dyn JobHarness) {
    recovered(harness, &key("ttl-unnoticed"), async || {}).await;
    let noticed = key("ttl-noticed");
    recovered(harness, &noticed, async || {
        harness.job_store().read(&noticed).await.unwrap();
    })
    .await;
}

/// The same when a sweeper noticed it.
pub async fn job_is_recovered_after_a_sweep(harness: &dyn Harness) {
    recovered(harness, &key("ttl-swept"), async || {
        harness.store().settle_due(100).await.unwrap();
    })
    .await;
}

async fn recovered(harness: &dyn JobHarness, key: &Key, notice: impl AsyncFnOnce()) {
    create(harness, key).await;
    let (mut w1, mut w2) = (Party::new("w1", 40), Party::new("w2", 41));
    w1.must_acquire_job(harness, key).await;
    harness.advance(TTL - std::time::Duration::from_millis(1)).await;
    assert!(matches!(w2.acquire_job(harness, key).await, JobOutcome::Locked(_)));
    harness.advance(std::time::Duration::from_millis(1)).await;
    notice().await;
    assert!(w2.must_acquire_job(harness, key).await, "{key}");
    assert!(w2.fence() > w1.fence());
    // The first worker comes too late, with whatever it has to say.
    let late = w1.complete(harness, key, "late").await;
    assert!(matches!(late, JobOutcome::Lost { because: LossReason::Expired, .. }), "{late:?}");
    assert_eq!(w2.complete(harness, key, "42").await, JobOutcome::Completed);
    let late = w1.fail(harness, key, false).await;
    assert!(matches!(late, JobOutcome::Lost { .. }), "{late:?}");
    assert_eq!(status(harness, key).await, Status::Ready { result: text("42"), by: w2.fence() });
}

/// A job that is READY or FAILED is never acquired.
pub async fn job_ready_or_failed_is_never_acquired(harness: &dyn JobHarness) {
    for ready in [true, false] {
        let key = key(&format!("finished-{ready}"));
        create(harness, &key).await;
        let (mut w1, mut w2) = (Party::new("w1", 50), Party::new("w2", 51));
        w1.must_acquire_job(harness, &key).await;
        match ready {
            true => assert_eq!(w1.complete(harness, &key, "42").await, JobOutcome::Completed),
            false => assert_eq!(w1.fail(harness, &key, false).await, JobOutcome::Failed { again: false }),
        }
        assert_eq!(w2.acquire_job(harness, &key).await, JobOutcome::AlreadyFinished);
        harness.advance(TTL * 100).await;
        assert_eq!(w2.acquire_job(harness, &key).await, JobOutcome::AlreadyFinished);
    }
}

/// A release by another worker changes nothing; the holder's gives the job back, and is not a recovery.
pub async fn job_a_foreign_release_changes_nothing(harness: &dyn JobHarness) {
    let key = key("foreign");
    create(harness, &key).await;
    // The same worker's name, another attempt.
    let (mut w1, mut again) = (Party::new("w1", 60), Party::new("w1", 61));
    w1.must_acquire_job(harness, &key).await;
    again.fence = w1.fence;
    let foreign = apply(harness, &key, JobCommand::Release(again.claim().into())).await.outcome;
    assert!(matches!(foreign, JobOutcome::Lost { .. }), "{foreign:?}");
    assert!(matches!(again.acquire_job(harness, &key).await, JobOutcome::Locked(_)));
    assert_eq!(
        apply(harness, &key, JobCommand::Release(w1.claim().into())).await.outcome,
        JobOutcome::Released
    );
    again.fence = None;
    assert!(!again.must_acquire_job(harness, &key).await);
}

/// Whatever was said about a job outlives the store, in whatever way that ends.
pub async fn job_outlives_a_restart(harness: &dyn JobHarness) {
    for how in [Restart::Orderly, Restart::Crash] {
        let (done, begun) = (key(&format!("done-{how:?}")), key(&format!("begun-{how:?}")));
        create(harness, &done).await;
        create(harness, &begun).await;
        let (mut w1, mut w2) = (Party::new("w1", 70), Party::new("w2", 71));
        w1.must_acquire_job(harness, &done).await;
        w1.complete(harness, &done, "{\"pages\": 7}").await;
        w1.renew_id();
        w1.must_acquire_job(harness, &begun).await;
        if !harness.restart(how).await {
            return;
        }
        let other = JobCommand::Create { payload: text("other"), max_attempts: None };
        assert_eq!(apply(harness, &done, other).await.outcome, JobOutcome::Differs);
        assert_eq!(w2.acquire_job(harness, &done).await, JobOutcome::AlreadyFinished);
        assert!(
            matches!(status(harness, &done).await, Status::Ready { result, .. } if result == text("{\"pages\": 7}"))
        );
        assert!(matches!(w2.acquire_job(harness, &begun).await, JobOutcome::Locked(_)), "{how:?}");
        assert_eq!(w1.complete(harness, &begun, "42").await, JobOutcome::Completed);
    }
}

/// A worker whose answer got lost asks again with the same lease id, and is not taken for another.
pub async fn job_an_unknown_answer_may_be_asked_for_again(harness: &dyn JobHarness) {
    let key = key("unknown");
    create(harness, &key).await;
    let mut w1 = Party::new("w1", 80);
    w1.must_acquire_job(harness, &key).await;
    let (first, attempts) =
        (w1.fence(), apply(harness, &key, JobCommand::Settle).await.record.job.unwrap().attempts);
    w1.must_acquire_job(harness, &key).await;
    assert_eq!((w1.fence(), attempts), (first, 1));
    assert_eq!(apply(harness, &key, JobCommand::Settle).await.record.job.unwrap().attempts, 1);
    for _ in 0..2 {
        assert_eq!(w1.complete(harness, &key, "42").await, JobOutcome::Completed);
    }
}

/// Attempts are counted, crashes too; when they are used up the job has failed, until it is reset.
pub async fn job_attempts_are_counted_and_a_reset_begins_anew(harness: &dyn JobHarness) {
    let key = key("attempts");
    create(harness, &key).await;
    let mut workers =
        [Party::new("w1", 90), Party::new("w2", 91), Party::new("w3", 92), Party::new("w4", 93)];
    for worker in &mut workers[..2] {
        worker.must_acquire_job(harness, &key).await;
        harness.advance(TTL).await;
    }
    workers[2].must_acquire_job(harness, &key).await;
    let held = apply(harness, &key, JobCommand::Reset).await.outcome;
    assert!(matches!(held, JobOutcome::Locked(_)), "{held:?}");
    assert_eq!(workers[2].fail(harness, &key, true).await, JobOutcome::Failed { again: false });
    assert_eq!(workers[3].acquire_job(harness, &key).await, JobOutcome::AlreadyFinished);
    assert_eq!(apply(harness, &key, JobCommand::Reset).await.outcome, JobOutcome::Reset);
    let refreshed = {
        workers[3].must_acquire_job(harness, &key).await;
        let command =
            JobCommand::Refresh { claim: workers[3].claim().into(), ttl: Some(Ttl::from_secs(60).unwrap()) };
        apply(harness, &key, command).await
    };
    assert!(matches!(refreshed.outcome, JobOutcome::Refreshed(_)), "{:?}", refreshed.outcome);
    assert_eq!(refreshed.record.job.unwrap().attempts, 1);
}

/// Payloads and results in the one form that they have everywhere. Each is a trap for a store that keeps numbers as floats or
/// in 64 bits, or text in a type of its own.
const VALUES: &[&str] = &[
    "1180591620717411303425",
    "18446744073709551615",
    "-9223372036854775809",
    "9007199254740993",
    r#"{"n":[1,1.0,1.10,-0,1e400,0.1000000000000000055511151231257827]}"#,
    r#"{"a":[{"b":[]},null,true,1.5],"会議":"💥 \"quoted\"\n"}"#,
    "[[1],[2,[3]]]",
    r#"{"":1,"__id__":"a\u0000b"}"#,
    r#""7""#,
    r#""null""#,
    "null",
    "7",
    "plain text",
    "two\nlines",
    "",
];

/// 2^70 + 1 came back as a float, and text of several lines in quotes.
pub async fn job_numbers_and_texts_come_back_as_they_were_sent(harness: &dyn JobHarness) {
    let mut w1 = Party::new("w1", 100);
    for (at, sent) in VALUES.iter().enumerate() {
        let (key, value) = (key(&format!("exact-{at}")), JobText::value(sent).unwrap());
        assert_eq!(value.as_str(), *sent, "it is in its one form");
        let create = JobCommand::Create { payload: value.clone(), max_attempts: None };
        assert_eq!(apply(harness, &key, create).await.outcome, JobOutcome::Created);
        w1.renew_id();
        w1.must_acquire_job(harness, &key).await;
        assert_eq!(w1.complete(harness, &key, sent).await, JobOutcome::Completed);
    }
    // From the store, and not from what this process remembers.
    harness.restart(Restart::Orderly).await;
    for (at, sent) in VALUES.iter().enumerate() {
        let key = key(&format!("exact-{at}"));
        let job = apply(harness, &key, JobCommand::Settle).await.record.job.unwrap();
        assert_eq!(job.payload.as_str(), *sent);
        assert!(
            matches!(&job.status, Status::Ready { result, .. } if result.as_str() == *sent),
            "{sent}: {job:?}"
        );
    }
}

/// 2^70 + 1 and 2^70 + 2 counted as the same payload.
pub async fn job_payloads_differ_by_a_digit_and_not_by_a_space(harness: &dyn JobHarness) {
    let key = key("digits");
    let kept = r#"{"n":1180591620717411303425,"one":1}"#;
    let create = async |payload: &str| {
        let command = JobCommand::Create { payload: text(payload), max_attempts: None };
        apply(harness, &key, command).await.outcome
    };
    assert_eq!(create(kept).await, JobOutcome::Created);
    let same = "{ \"one\" : 1,\n\t\"n\": 1180591620717411303425 }";
    assert_eq!((create(kept).await, create(same).await), (JobOutcome::Exists, JobOutcome::Exists));
    for other in [
        r#"{"n":1180591620717411303426,"one":1}"#,
        r#"{"n":1.180591620717411303425e21,"one":1}"#,
        r#"{"n":1180591620717411303425,"one":1.0}"#,
        r#"{"n":1180591620717411303425,"one":"1"}"#,
        r#""{\"n\":1180591620717411303425,\"one\":1}""#,
    ] {
        assert_eq!(create(other).await, JobOutcome::Differs, "{other}");
    }
    let mut w1 = Party::new("w1", 120);
    w1.must_acquire_job(harness, &key).await;
    assert_eq!(w1.complete(harness, &key, kept).await, JobOutcome::Completed);
    assert_eq!(w1.complete(harness, &key, same).await, JobOutcome::Completed, "the same again");
    let contradicted = w1.complete(harness, &key, r#"{"n":1180591620717411303426,"one":1}"#).await;
    assert!(matches!(contradicted, JobOutcome::Lost { .. }), "{contradicted:?}");
}
