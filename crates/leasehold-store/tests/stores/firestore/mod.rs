//! Firestore: the laws that a document can hold, the five of *Job lock: rules* (`docs/sources.md`), what other programs leave in a document, and
//! lost answers. All of it against Google's emulator.

mod differential;
pub mod emulator;
pub mod harness;
mod proxy;
mod python;
mod raw;

use std::time::Duration;

use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::{ArrayValue, MapValue, Value};
use gcloud_sdk::prost_types::Timestamp;
use leasehold_core::job::{JobCommand, JobOutcome, JobText, Status};
use leasehold_core::lease::Proof;
use leasehold_core::{Command, Key, LeaseId, Outcome, StoreTime};
use leasehold_store::clock::unix_millis;
use leasehold_store::conformance::JobHarness;
use leasehold_store::{Error, Firestore, JobApplied, JobStore, Retry, open, open_jobs};
use tokio::time::timeout;

use self::emulator::emulator;
use self::harness::{FirestoreHarness, project, url};
use self::proxy::{Cut, Proxy};
use self::raw::{Raw, fields, text};
use crate::harness::{DEADLINE, bid, key};

/// Ends the test where there is no emulator; that was said loudly.
macro_rules! harness {
    () => {
        match FirestoreHarness::start() {
            Some(harness) => harness,
            None => return,
        }
    };
}

mod laws {
    use super::FirestoreHarness;
    leasehold_store::job_conformance_tests!(harness!());
}

const TTL: Duration = Duration::from_secs(30);

/// A project of one's own, with the store and the documents past it.
struct Bench {
    store: Firestore,
    raw: Raw,
}

impl Bench {
    async fn start() -> Option<Self> {
        let (emulator, project) = (emulator()?, project());
        let store = Firestore::options().open(&url(emulator, &project));
        Some(Self { store, raw: Raw::connect(&emulator.host, &project).await })
    }

    async fn job(&self, path: &str, command: JobCommand) -> JobApplied {
        let key = Key::parse(&format!("job/{path}")).unwrap();
        self.store.apply_job(&key, command).await.unwrap()
    }

    async fn acquire(&self, path: &str, owner: &str, id: u64) -> JobOutcome {
        self.job(path, JobCommand::Acquire(bid(owner, id, TTL))).await.outcome
    }

    /// Acquires what is to be had, and answers what proves it.
    async fn must_acquire(&self, path: &str, owner: &str, id: u64) -> Proof {
        match self.acquire(path, owner, id).await {
            JobOutcome::Acquired { lease, .. } => lease.proof(),
            other => panic!("{path} was not acquired: {other:?}"),
        }
    }
}

macro_rules! bench {
    () => {
        match Bench::start().await {
            Some(bench) => bench,
            None => return,
        }
    };
}

fn result(result: &str) -> JobText {
    JobText::parse(result).unwrap()
}

/// ISO 8601, so many seconds from now.
fn iso(seconds: i64) -> String {
    jiff::Timestamp::from_second(now() + seconds).unwrap().to_string()
}

fn now() -> i64 {
    i64::try_from(unix_millis() / 1_000).unwrap()
}

// --- the five rules ---

/// What acquiring comes to, in one word.
fn word(outcome: &JobOutcome) -> &'static str {
    match outcome {
        JobOutcome::Missing => "missing",
        JobOutcome::AlreadyFinished => "already_finished",
        JobOutcome::Acquired { recovered: false, .. } => "acquired",
        JobOutcome::Acquired { recovered: true, .. } => "recovered",
        JobOutcome::Locked(_) => "locked",
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn rule_1_a_document_that_is_missing_is_not_found() {
    let bench = bench!();
    assert_eq!(word(&bench.acquire("analyses/none", "w1", 1).await), "missing");
    assert!(bench.raw.get("analyses/none").await.is_empty(), "and is not made by asking");
}

#[tokio::test]
async fn rule_2_ready_or_failed_is_already_finished() {
    let bench = bench!();
    for (at, status) in ["READY", "FAILED"].into_iter().enumerate() {
        let path = format!("analyses/{status}");
        bench.raw.put(&path, fields([("status", text(status))])).await;
        assert_eq!(word(&bench.acquire(&path, "w1", at as u64).await), "already_finished");
        // Also with the lock of a worker that never released it.
        let stale = fields([("lockOwner", text("w9")), ("lockExpiresAt", text(&iso(-60)))]);
        bench.raw.put(&path, stale).await;
        assert_eq!(word(&bench.acquire(&path, "w1", at as u64).await), "already_finished");
    }
}

/// Acquires documents that another program wrote.
async fn check(cases: Vec<(&str, Option<ValueType>, Option<ValueType>)>, expected: &str) {
    let bench = bench!();
    for (at, (what, owner, expires_at)) in cases.into_iter().enumerate() {
        let path = format!("analyses/{at}");
        bench.raw.put(&path, fields([("status", text("PROCESSING")), ("title", text("a title"))])).await;
        for (name, value) in [("lockOwner", owner), ("lockExpiresAt", expires_at)] {
            if let Some(value) = value {
                bench.raw.put(&path, fields([(name, value)])).await;
            }
        }
        // The same owner's name as in the document: another attempt all the same.
        let outcome = bench.acquire(&path, "w9", at as u64).await;
        assert_eq!(word(&outcome), expected, "{what}: {outcome:?}");
        let after = bench.raw.get(&path).await;
        assert_eq!(
            (&after["status"], &after["title"]),
            (&fields([("x", text("PROCESSING"))])["x"], &fields([("x", text("a title"))])["x"],)
        );
    }
}

#[tokio::test]
async fn rule_3_without_an_owner_it_is_acquired() {
    let future = Some(text(&iso(600)));
    check(
        vec![
            ("no lock at all", None, None),
            ("an empty owner", Some(text("")), future.clone()),
            ("an owner that is null", Some(ValueType::NullValue(0)), future.clone()),
            ("only an expiry", None, future),
        ],
        "acquired",
    )
    .await;
}

#[tokio::test]
async fn rule_4_a_lock_in_the_past_or_without_a_readable_expiry_is_stale() {
    let owner = Some(text("w9"));
    let past = Timestamp { seconds: now() - 60, nanos: 0 };
    check(
        vec![
            ("past", owner.clone(), Some(text(&iso(-1)))),
            ("a timestamp", owner.clone(), Some(ValueType::TimestampValue(past))),
            ("seconds", owner.clone(), Some(ValueType::IntegerValue(now() - 60))),
            ("missing", owner.clone(), None),
            ("null", owner.clone(), Some(ValueType::NullValue(0))),
            ("unreadable", owner.clone(), Some(text("in a while"))),
            ("of no sensible type", owner.clone(), Some(ValueType::ArrayValue(ArrayValue::default()))),
            ("a number for an owner", Some(ValueType::IntegerValue(7)), None),
        ],
        "recovered",
    )
    .await;
}

#[tokio::test]
async fn rule_5_a_lock_in_the_future_is_locked_for_the_same_name_too() {
    let owner = Some(text("w9"));
    let future = Timestamp { seconds: now() + 600, nanos: 0 };
    let millis = ((now() + 600) * 1_000).to_string();
    check(
        vec![
            ("ISO 8601", owner.clone(), Some(text(&iso(600)))),
            ("without an offset, as UTC", owner.clone(), Some(text(iso(600).trim_end_matches('Z')))),
            ("a timestamp", owner.clone(), Some(ValueType::TimestampValue(future))),
            ("milliseconds", owner.clone(), Some(ValueType::IntegerValue((now() + 600) * 1_000))),
            ("milliseconds as text", owner.clone(), Some(text(&millis))),
            ("an owner with a line break", Some(text("w9\n")), Some(text(&iso(600)))),
            ("an owner that is far too long", Some(text(&"w".repeat(5_000))), Some(text(&iso(600)))),
        ],
        "locked",
    )
    .await;
}

// --- the document is the user's ---

#[tokio::test]
async fn only_our_fields_are_written_and_the_lease_id_is_not_among_them() {
    let bench = bench!();
    let list = ArrayValue { values: Vec::new() };
    let own = fields([
        ("title", text("mine")),
        ("pages", ValueType::IntegerValue(7)),
        ("tags", ValueType::ArrayValue(list)),
    ]);
    bench.raw.put("analyses/42", own.clone()).await;
    let claim = bench.must_acquire("analyses/42", "w1", 1).await;
    let locked = bench.raw.get("analyses/42").await;
    assert!(
        !format!("{locked:?}").contains(&claim.lease_id.reveal()),
        "whoever reads it could act as the holder"
    );
    assert_eq!(locked["lockOwner"].value_type, Some(text("w1")));
    assert_eq!(
        locked["lockFence"].value_type,
        Some(ValueType::IntegerValue(claim.fence.get().cast_signed()))
    );
    let Some(ValueType::StringValue(expires_at)) = &locked["lockExpiresAt"].value_type else {
        panic!("no text")
    };
    assert!(expires_at.len() == 24 && expires_at.ends_with('Z'), "{expires_at}");
    let complete = JobCommand::Complete { claim: claim.into(), result: result("done") };
    assert_eq!(bench.job("analyses/42", complete).await.outcome, JobOutcome::Completed);
    let after = bench.raw.get("analyses/42").await;
    for (name, value) in &own {
        assert_eq!(after.get(name), Some(value), "{name}");
    }
    assert_eq!(
        (&after["status"].value_type, &after["result"].value_type),
        (&Some(text("READY")), &Some(text("done")))
    );
    for gone in ["lockOwner", "lockExpiresAt", "lockHeartbeatAt", "lockAttempt"] {
        assert!(!after.contains_key(gone), "{gone}");
    }
    assert_eq!(after["lockFence"], locked["lockFence"], "the fence stays");
}

#[tokio::test]
async fn law_02_fences_grow_when_a_document_is_deleted_and_made_anew() {
    let bench = bench!();
    bench.raw.put("analyses/anew", fields([("status", text("NEW"))])).await;
    let before = bench.must_acquire("analyses/anew", "w1", 1).await.fence;
    bench.raw.delete("analyses/anew").await;
    bench.raw.put("analyses/anew", fields([("status", text("NEW"))])).await;
    let after = bench.must_acquire("analyses/anew", "w1", 2).await.fence;
    assert!(after > before, "{before} {after}");
}

/// Another program follows *Job lock: rules* alone: it writes an owner and an expiry, and knows nothing of attempts.
#[tokio::test]
async fn law_05_a_lock_that_another_program_took_since_is_not_ours_any_more() {
    let bench = bench!();
    for (at, owner) in ["python", "w1"].into_iter().enumerate() {
        let path = format!("analyses/{owner}");
        bench.raw.put(&path, fields([("status", text("NEW"))])).await;
        let claim = bench.must_acquire(&path, "w1", at as u64).await;
        let taken = fields([("lockOwner", text(owner)), ("lockExpiresAt", text(&iso(600)))]);
        bench.raw.put(&path, taken.clone()).await;
        for command in [
            JobCommand::Refresh { claim: claim.into(), ttl: None },
            JobCommand::Release(claim.into()),
            JobCommand::Complete { claim: claim.into(), result: result("late") },
        ] {
            let outcome = bench.job(&path, command).await.outcome;
            assert!(
                matches!(&outcome, JobOutcome::Lost { held: Some(held), .. } if held.by.as_str() == owner),
                "{outcome:?}"
            );
        }
        let after = bench.raw.get(&path).await;
        assert!(taken.iter().all(|(name, value)| after.get(name) == Some(value)), "{after:?}");
    }
}

/// Another program set the status to READY, with its own result, while a worker of ours had the lock: the worker's result went
/// over it.
#[tokio::test]
async fn what_another_program_finished_meanwhile_is_not_overwritten() {
    let bench = bench!();
    for (at, status) in ["READY", "FAILED"].into_iter().enumerate() {
        let path = format!("analyses/{status}");
        bench.raw.put(&path, fields([("status", text("PROCESSING"))])).await;
        let claim = bench.must_acquire(&path, "w1", at as u64).await;
        let theirs = fields([("status", text(status)), ("result", text("theirs"))]);
        bench.raw.put(&path, theirs.clone()).await;
        let outcome = bench
            .job(&path, JobCommand::Complete { claim: claim.into(), result: result("ours") })
            .await
            .outcome;
        assert_eq!(outcome, JobOutcome::AlreadyFinished, "{status}");
        let after = bench.raw.get(&path).await;
        assert!(theirs.iter().all(|(name, value)| after.get(name) == Some(value)), "{after:?}");
    }
}

// --- payloads and results ---

fn map(members: [(&str, ValueType); 2]) -> ValueType {
    ValueType::MapValue(MapValue { fields: fields(members) })
}

/// They were strings of JSON, which no query and no console can look into.
#[tokio::test]
async fn payload_and_result_are_maps() {
    let bench = bench!();
    let payload = JobText::value(r#"{"page": 7, "ratio": 0.5}"#).unwrap();
    let create = JobCommand::Create { payload: payload.clone(), max_attempts: None };
    assert_eq!(bench.job("analyses/map", create.clone()).await.outcome, JobOutcome::Created);
    let claim = bench.must_acquire("analyses/map", "w1", 1).await;
    let done = JobText::value(r#"{"pages": [1, 2], "title": "会議"}"#).unwrap();
    bench.job("analyses/map", JobCommand::Complete { claim: claim.into(), result: done.clone() }).await;
    let after = bench.raw.get("analyses/map").await;
    let number = ValueType::IntegerValue;
    let pages = [1, 2].map(|page| Value { value_type: Some(number(page)) }).to_vec();
    let pages = ValueType::ArrayValue(ArrayValue { values: pages });
    let expected = [
        ("payload", map([("page", number(7)), ("ratio", ValueType::DoubleValue(0.5))])),
        ("result", map([("pages", pages), ("title", text("会議"))])),
    ];
    for (name, value) in expected {
        assert_eq!(after[name].value_type, Some(value), "{name}");
    }
    assert_eq!(bench.job("analyses/map", create).await.outcome, JobOutcome::Exists);
    let job = bench.job("analyses/map", JobCommand::Settle).await.record.job.unwrap();
    assert_eq!(job.payload, payload);
    assert!(matches!(&job.status, Status::Ready { result, .. } if *result == done), "{job:?}");
}

/// Firestore's integers have 64 bits: a larger one would come back as a double.
#[tokio::test]
async fn what_firestore_cannot_carry_exactly_is_kept_as_its_json() {
    let bench = bench!();
    for (at, exact) in [r#"{"n":1180591620717411303425}"#, "[[1],[2]]", "1.10"].into_iter().enumerate() {
        let path = format!("analyses/exact-{at}");
        let payload = JobText::value(exact).unwrap();
        bench.job(&path, JobCommand::Create { payload, max_attempts: None }).await;
        assert_eq!(bench.raw.get(&path).await["payload"].value_type, Some(text(exact)));
    }
}

#[tokio::test]
async fn documents_of_earlier_versions_and_of_other_programs_are_read() {
    let bench = bench!();
    let native = map([("page", ValueType::IntegerValue(7)), ("x", ValueType::NullValue(0))]);
    let payloads = [text(r#"{"page": 7, "x": null}"#), text(r#"{"page":7,"x":null}"#), native];
    for (at, payload) in payloads.into_iter().enumerate() {
        let path = format!("analyses/earlier-{at}");
        let written = [("payload", payload), ("result", text(r#"{"pages": 12}"#)), ("status", text("READY"))];
        bench.raw.put(&path, fields(written.clone())).await;
        let payload = JobText::value(r#"{"x":null,"page":7}"#).unwrap();
        let create = JobCommand::Create { payload, max_attempts: None };
        let found = bench.job(&path, create).await;
        assert_eq!(found.outcome, JobOutcome::Exists, "{at}");
        let status = found.record.job.unwrap().status;
        assert!(
            matches!(&status, Status::Ready { result, .. } if result.is_same_value(&result_of(r#"{"pages":12}"#)))
        );
        assert_eq!(bench.raw.get(&path).await["payload"].value_type, Some(written[0].1.clone()), "as it was");
    }
}

fn result_of(json: &str) -> JobText {
    JobText::value(json).unwrap()
}

#[tokio::test]
async fn a_job_may_be_in_a_subcollection() {
    let Some(emulator) = emulator() else { return };
    let bench = bench!();
    bench.raw.put("users/u1/analyses/42", fields([("status", text("PROCESSING"))])).await;
    bench.must_acquire("users/u1/analyses/42", "w1", 1).await;
    assert_eq!(bench.raw.get("users/u1/analyses/42").await["lockOwner"].value_type, Some(text("w1")));
    assert_eq!(word(&bench.acquire("users/u2/analyses/42", "w1", 2).await), "missing");
    let project = project();
    let inner = url(emulator, &project).with("collection", "users/u1/analyses").unwrap();
    let raw = Raw::connect(&emulator.host, &project).await;
    raw.put("users/u1/analyses/43", fields([("status", text("PROCESSING"))])).await;
    Bench { store: Firestore::options().open(&inner), raw }.must_acquire("43", "w1", 3).await;
}

// --- fences of other programs ---

/// A `lockFence` beyond ours, or of another type, counted as absent: the next fence was smaller.
#[tokio::test]
async fn law_02_the_fence_of_another_program_is_respected() {
    let bench = bench!();
    let ahead = i64::try_from(unix_millis()).unwrap() + 1_000_000_000;
    let followed = [
        ValueType::IntegerValue(ahead),
        ValueType::DoubleValue(ahead as f64),
        text(&ahead.to_string()),
        ValueType::DoubleValue(ahead as f64 - 0.5),
    ];
    for (at, fence) in followed.into_iter().enumerate() {
        let path = format!("analyses/ahead-{at}");
        bench.raw.put(&path, fields([("lockFence", fence)])).await;
        let next = bench.must_acquire(&path, "w1", at as u64).await.fence.get();
        assert_eq!(next, ahead.cast_unsigned() + 1, "{at}");
    }
    for (at, fence) in
        [ValueType::NullValue(0), text(""), ValueType::IntegerValue(-1)].into_iter().enumerate()
    {
        let path = format!("analyses/none-{at}");
        bench.raw.put(&path, fields([("lockFence", fence)])).await;
        bench.must_acquire(&path, "w1", 10 + at as u64).await;
    }
}

#[tokio::test]
async fn law_02_where_no_fence_can_follow_nothing_is_granted() {
    let bench = bench!();
    let too_far = [
        ValueType::IntegerValue((1 << 53) - 1),
        ValueType::IntegerValue(i64::MAX),
        ValueType::DoubleValue(1e300),
        text("99999999999999999999999999"),
        text("seventeen"),
        ValueType::BooleanValue(true),
        ValueType::TimestampValue(Timestamp { seconds: now(), nanos: 0 }),
    ];
    for (at, fence) in too_far.into_iter().enumerate() {
        let path = format!("analyses/far-{at}");
        let key = Key::parse(&format!("job/{path}")).unwrap();
        let document = fields([("status", text("NEW")), ("lockFence", fence.clone())]);
        bench.raw.put(&path, document.clone()).await;
        let acquire = || JobCommand::Acquire(bid("w1", at as u64, TTL));
        let error = bench.store.apply_job(&key, acquire()).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{fence:?}: {error}");
        let error = error.to_string();
        assert!(error.contains("lockFence") && error.contains("delete the field"), "{error}");
        assert_eq!(bench.raw.get(&path).await, document, "nothing was written");
        // What grants nothing is answered as ever.
        let locked = fields([("lockOwner", text("w9")), ("lockExpiresAt", text(&iso(600)))]);
        bench.raw.put(&path, locked).await;
        assert_eq!(word(&bench.acquire(&path, "w1", at as u64).await), "locked");
        bench.raw.put(&path, fields([("status", text("READY")), ("lockOwner", text(""))])).await;
        assert_eq!(word(&bench.acquire(&path, "w1", at as u64).await), "already_finished");
    }
}

/// Every field of ours, in every shape that makes no sense: an answer, never a panic.
#[tokio::test]
async fn nonsense_in_our_fields_is_answered() {
    let bench = bench!();
    let nonsense = || {
        [
            text("\u{0}\n💥"),
            text("{\"v\":1,\"ended\":[[1,2,3],[\"x\"]],\"job\":{\"by\":-1},\"seq\":\"x\"}"),
            ValueType::IntegerValue(i64::MIN),
            ValueType::IntegerValue(i64::MAX),
            ValueType::DoubleValue(f64::NAN),
            ValueType::BooleanValue(true),
            ValueType::BytesValue(vec![0, 255]),
            ValueType::NullValue(0),
            ValueType::TimestampValue(Timestamp { seconds: -62_135_596_800, nanos: 0 }),
        ]
    };
    let ours =
        ["status", "lockOwner", "lockExpiresAt", "lockHeartbeatAt", "lockFence", "lockAttempt", "lockState"];
    let others = ["payload", "result", "error", "attempts", "maxAttempts"];
    for (at, value) in nonsense().into_iter().enumerate() {
        for (number, name) in ours.iter().chain(&others).enumerate() {
            let (path, id) = (format!("analyses/{name}-{at}"), (at * 100 + number) as u64);
            bench.raw.put(&path, fields([(*name, value.clone())])).await;
            let command = JobCommand::Acquire(bid("w1", id, TTL));
            let key = Key::parse(&format!("job/{path}")).unwrap();
            match bench.store.apply_job(&key, command).await {
                Ok(applied) => {
                    assert!(applied.outcome != JobOutcome::Missing, "{name} = {value:?}: {applied:?}");
                }
                // What no fence can follow.
                Err(Error::Invalid(invalid)) => assert_eq!(*name, "lockFence", "{value:?}: {invalid}"),
                Err(error) => panic!("{name} = {value:?}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn fields_and_words_may_have_other_names() {
    let Some(emulator) = emulator() else { return };
    let project = project();
    let options = "collection=reports&lockOwner=worker&status=state&ready=DONE&finished=CANCELLED,SKIPPED";
    let store = open_jobs(&format!("firestore:{project}?{options}&emulator={}", emulator.host)).unwrap();
    let raw = Raw::connect(&emulator.host, &project).await;
    let acquire = async |id: &str, number| {
        let command = JobCommand::Acquire(bid("w1", number, TTL));
        store.apply_job(&Key::parse(&format!("job/{id}")).unwrap(), command).await.unwrap()
    };
    raw.put("reports/1", fields([("state", text("CANCELLED"))])).await;
    assert_eq!(acquire("1", 1).await.outcome, JobOutcome::AlreadyFinished);
    raw.put("reports/2", fields([("state", text("READY")), ("worker", text(""))])).await;
    assert!(matches!(acquire("2", 2).await.outcome, JobOutcome::Acquired { .. }));
    assert_eq!(raw.get("reports/2").await["worker"].value_type, Some(text("w1")));
    raw.put("reports/3", fields([("state", text("DONE")), ("result", text("17"))])).await;
    let done = acquire("3", 3).await;
    assert_eq!(done.outcome, JobOutcome::AlreadyFinished);
    assert!(
        matches!(done.record.job.unwrap().status, Status::Ready { result, .. } if result.as_str() == "17")
    );
}

#[tokio::test]
async fn a_document_is_no_whole_store() {
    let error = open("firestore:some-project").err().unwrap().to_string();
    assert!(error.contains("no lists and no events") && error.contains("PostgreSQL"), "{error}");
}

// --- time ---

#[tokio::test]
async fn law_03_the_time_is_firestores_read_time() {
    let bench = bench!();
    bench.raw.put("analyses/time", fields([("status", text("NEW"))])).await;
    let before = bench.raw.time().await;
    let short = |id| JobCommand::Acquire(bid("w1", id, Duration::from_secs(1)));
    let applied = bench.job("analyses/time", short(1)).await;
    let after = bench.raw.time().await;
    let read_at = applied.now.as_millis();
    assert!((before..=after).contains(&read_at), "{before} {read_at} {after}");
    let JobOutcome::Acquired { lease: first, .. } = applied.outcome else { panic!("{applied:?}") };
    // Law 4 as well: not before the TTL is over, and at most a second after it.
    let taken = loop {
        let applied = bench.job("analyses/time", short(2)).await;
        match applied.outcome {
            JobOutcome::Acquired { lease, recovered: true } => break lease,
            JobOutcome::Locked(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            other => panic!("{other:?}"),
        }
    };
    assert!(taken.acquired_at >= first.expires_at);
    assert!(taken.acquired_at <= first.expires_at + Duration::from_secs(1), "{:?}", taken.acquired_at);
    assert!(first.acquired_at > StoreTime::from_millis(1_700_000_000_000), "not a clock of this process");
}

// --- lost answers, and who is dropped in the middle ---

#[tokio::test]
async fn law_07_a_commit_that_is_cut_off_is_unknown_and_may_be_repeated() {
    let Some(emulator) = emulator() else { return };
    let (proxy, project) = (Proxy::start(&emulator.host).await, project());
    let through = url(emulator, &project).with("emulator", &proxy.host).unwrap();
    let store = Firestore::options().open(&through);
    for (number, cut) in [(1, Cut::BeforeCommit), (2, Cut::AfterCommit)] {
        let (key, bid) = (key(&format!("cut-{number}")), bid("anna", number, TTL));
        // Connects.
        store.read(&key).await.unwrap();
        // A look, and the read of the transaction.
        proxy.cut(cut, 2);
        let error = store.apply(&key, Command::Acquire(bid.clone())).await.unwrap_err();
        assert_eq!(error.retry(), Retry::Unknown, "{cut:?}: {error}");
        let again = store.apply(&key, Command::Acquire(bid.clone())).await.unwrap().outcome;
        let Outcome::Granted { lease, extended } = again else { panic!("{cut:?}: {again:?}") };
        assert_eq!(extended, cut == Cut::AfterCommit, "{cut:?}: it recognises its own attempt");
        assert_eq!(lease.lease_id, bid.lease_id);
        assert_eq!(store.read(&key).await.unwrap().slot.lease.unwrap().fence, lease.fence);
    }
}

#[tokio::test]
async fn job_a_complete_that_is_cut_off_is_done_once() {
    let Some(emulator) = emulator() else { return };
    let (proxy, project) = (Proxy::start(&emulator.host).await, project());
    let store = Firestore::options().open(&url(emulator, &project).with("emulator", &proxy.host).unwrap());
    let raw = Raw::connect(&emulator.host, &project).await;
    let bench = Bench { store, raw };
    for (number, cut) in [(1, Cut::BeforeCommit), (2, Cut::AfterCommit)] {
        let path = format!("analyses/cut-{number}");
        bench.raw.put(&path, fields([("status", text("NEW"))])).await;
        let claim = bench.must_acquire(&path, "w1", number).await;
        let complete = JobCommand::Complete { claim: claim.into(), result: result("42") };
        proxy.cut(cut, 1);
        let key = Key::parse(&format!("job/{path}")).unwrap();
        let error = bench.store.apply_job(&key, complete.clone()).await.unwrap_err();
        assert_eq!(error.retry(), Retry::Unknown, "{cut:?}: {error}");
        let status = bench.raw.get(&path).await["status"].value_type.clone();
        assert_eq!(status == Some(text("READY")), cut == Cut::AfterCommit, "{cut:?}: {status:?}");
        assert_eq!(bench.job(&path, complete).await.outcome, JobOutcome::Completed, "{cut:?}");
    }
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_any_more_leaves_no_lock() {
    let harness = harness!();
    let (store, key) = (harness.job_store(), key("dropped"));
    store.read(&key).await.unwrap();
    for number in 0..12_u64 {
        let bid = bid("anna", number, TTL);
        let withdraw = Command::Withdraw { lease_id: bid.lease_id, owner: bid.owner.clone() };
        let acquire = store.apply(&key, Command::Acquire(bid));
        // Given up at some point between the first and the last byte.
        let _ = timeout(Duration::from_millis(number), acquire).await;
        let withdrawn = timeout(DEADLINE, store.apply(&key, withdraw)).await;
        assert_eq!(withdrawn.expect("the document is still locked").unwrap().outcome, Outcome::Withdrawn);
    }
    assert_eq!(store.read(&key).await.unwrap().slot.lease, None);
}

#[tokio::test]
async fn a_firestore_that_is_not_there_is_unavailable() {
    for host in ["127.0.0.1:1", "https://127.0.0.1:1"] {
        let store = Firestore::open(&format!("firestore:p?emulator={host}")).unwrap();
        let error = store.read(&key("nowhere")).await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable { retry: Retry::Safe, .. }), "{host}: {error}");
        assert!(error.to_string().contains("no connection to Firestore"), "{host}: {error}");
    }
}

#[tokio::test]
async fn a_key_that_no_document_can_have_is_refused() {
    let store = Firestore::open("firestore:p?emulator=127.0.0.1:1").unwrap();
    let key = Key::parse("job/analyses/..").unwrap();
    let error = store.apply_job(&key, JobCommand::Settle).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}

#[tokio::test]
async fn the_reading_of_a_document_gives_nobodys_secret_away() {
    let harness = harness!();
    let (store, key) = (harness.job_store(), key("secret"));
    let secret = LeaseId::from_random([9; 16]);
    let bid = leasehold_core::lease::Bid { lease_id: secret, ..bid("anna", 1, TTL) };
    store.apply(&key, Command::Acquire(bid)).await.unwrap();
    let seen = store.read(&key).await.unwrap().slot.lease.unwrap();
    assert_ne!(seen.lease_id, secret);
    let claim = seen.proof();
    let outcome = store.apply(&key, Command::Release(claim.into())).await.unwrap().outcome;
    assert!(matches!(outcome, Outcome::Lost { .. }), "what a reader sees proves nothing: {outcome:?}");
}
