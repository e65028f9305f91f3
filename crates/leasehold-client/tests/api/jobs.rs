//! Jobs from a worker's side: refreshed by themselves, finished once, and lost in the open.

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{
    AcquireOptions, AnalysisLocks, Attempt, Created, Error, Finished, JobAttempt, JobGuard, JobRun, Jobs,
    Leasehold, Lost,
};
use leasehold_core::JobCommand;
use leasehold_core::job::Status;
use leasehold_core::lease::LossReason;
use leasehold_store::clock::Clock;
use leasehold_store::faulty::{Fault, Faulty};
use leasehold_store::{Limits, Memory, Store};
use tokio::time::Instant;

const ID: &str = "analyses/42";

/// tokio's clock as everybody's.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn millis(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    fn boot(&self) -> String {
        "virtual".into()
    }
}

fn leasehold() -> Leasehold {
    let clock = Arc::new(TokioClock(Instant::now()));
    Leasehold::with_clock(Arc::new(Memory::with(clock.clone(), Limits::default(), 0)), clock)
}

async fn jobs() -> Jobs {
    let jobs = leasehold().jobs().unwrap();
    assert_eq!(jobs.create(ID, "{\"page\": 7}", Some(3)).await.unwrap(), Created::New);
    jobs
}

fn worker(name: &str) -> AcquireOptions {
    AcquireOptions::owner(name)
}

async fn acquired(jobs: &Jobs, name: &str) -> JobGuard {
    match jobs.acquire(ID, worker(name)).await.unwrap() {
        JobAttempt::Acquired(guard) => guard,
        other => panic!("{other:?}"),
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_is_done_once_and_its_result_is_replayed() {
    let jobs = jobs().await;
    let guard = acquired(&jobs, "w1").await;
    assert_eq!(
        (guard.payload(), guard.attempt(), guard.is_recovered()),
        ("{\"page\":7}", 1, false),
        "in one form"
    );
    let refused = jobs.acquire(ID, worker("w2")).await.unwrap();
    assert_eq!(refused.reason(), Some("locked"));
    guard.complete("42").await.unwrap();
    match jobs.acquire(ID, worker("w2")).await.unwrap() {
        JobAttempt::AlreadyFinished(finished) => {
            assert_eq!(finished, Finished::Ready { result: "42".into() });
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(jobs.create(ID, "{\"page\": 7}", Some(3)).await.unwrap(), Created::Before);
    assert!(matches!(jobs.create(ID, "other", None).await, Err(Error::JobDiffers { .. })));
    assert!(matches!(jobs.acquire("analyses/43", worker("w2")).await, Err(Error::NoSuchJob { .. })));
}

/// Two workers on a busy database: the answer to the first one's acquire took longer than its lease of two seconds, and it
/// began the work with a lease that it could not use any more. Half-way it found out, and the second worker did the job.
#[tokio::test(start_paused = true)]
async fn work_never_begins_with_a_lease_that_is_over() {
    let clock = Arc::new(TokioClock(Instant::now()));
    let memory: Arc<dyn Store> = Arc::new(Memory::with(clock.clone(), Limits::default(), 0));
    let mut delays = [3_000, 1_800, 0].map(Duration::from_millis).into_iter();
    let slow = Faulty::for_jobs(memory, move |command| match command {
        JobCommand::Acquire(_) => delays.next().map_or(Fault::None, Fault::Delay),
        _ => Fault::None,
    });
    let jobs = Leasehold::with_clock(Arc::new(slow), clock).jobs().unwrap();
    jobs.create(ID, "{}", None).await.unwrap();
    let options = worker("w1").ttl(Duration::from_secs(2));
    let ran = jobs.run(ID, options, |lease, _| async move {
        assert!(lease.is_held() && lease.time_left() > Duration::from_secs(1));
        tokio::time::sleep(Duration::from_secs(10)).await;
        lease.check().map_err(|lost| lost.to_string()).map(|_| "done".to_owned())
    });
    assert!(matches!(ran.await, Ok(JobRun::Done { result }) if result == "done"));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_refreshes_itself_for_as_long_as_the_work_takes() {
    let jobs = jobs().await;
    let guard = acquired(&jobs, "w1").await;
    for _ in 0..20 {
        pass(299).await;
        assert!(guard.is_held());
        assert_eq!(jobs.acquire(ID, worker("w2")).await.unwrap().reason(), Some("locked"));
    }
    guard.complete("42").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_an_attempt_gives_the_job_back_and_does_not_fail_it() {
    let jobs = jobs().await;
    drop(acquired(&jobs, "w1").await);
    pass(1).await;
    let guard = acquired(&jobs, "w2").await;
    assert!(!guard.is_recovered(), "it was given back, not abandoned");
    assert_eq!(guard.attempt(), 1, "what was given back does not count");
    guard.release().await.unwrap();
    pass(1).await;
    assert!(!acquired(&jobs, "w3").await.is_recovered());
}

#[tokio::test(start_paused = true)]
async fn work_is_cancelled_when_its_lease_is_lost_and_a_late_word_is_refused() {
    let clock = Arc::new(TokioClock(Instant::now()));
    let store: Arc<dyn Store> = Arc::new(Memory::with(clock.clone(), Limits::default(), 0));
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let plan = {
        let broken = broken.clone();
        // From some moment on, no refresh gets through.
        move |_: &leasehold_core::Command| match broken.load(std::sync::atomic::Ordering::SeqCst) {
            true => Fault::Refuse,
            false => Fault::None,
        }
    };
    let cut_off =
        Leasehold::with_clock(Arc::new(Faulty::new(store.clone(), plan)), clock.clone()).jobs().unwrap();
    let healthy = Leasehold::with_clock(store, clock).jobs().unwrap();
    healthy.create(ID, "x", None).await.unwrap();
    let start = Instant::now();
    let run = cut_off.run(ID, worker("w1"), |lease, _| async move {
        broken.store(true, std::sync::atomic::Ordering::SeqCst);
        lease.lost().await;
        pass(3_600).await;
        Ok("late".into())
    });
    assert!(matches!(run.await, Err(Error::Lost(Lost::Deadline))));
    assert!(start.elapsed() < Duration::from_secs(300), "it stops before anybody else can begin");
    pass(60).await;
    let guard = acquired(&healthy, "w2").await;
    guard.complete("42").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_work_comes_to_is_what_the_job_comes_to() {
    let jobs = jobs().await;
    let fails = |_, _| async { Err("broken".to_owned()) };
    for again in [true, true, false] {
        let run = jobs.run(ID, worker("w1"), fails).await.unwrap();
        assert_eq!(run, JobRun::Failed { error: "broken".into(), again });
    }
    let run = jobs.run(ID, worker("w1"), fails).await.unwrap();
    assert_eq!(run, JobRun::AlreadyFinished(Finished::Failed { error: "broken".into() }));
    assert_eq!(jobs.reset(ID).await.unwrap(), None);
    let run = jobs.run(ID, worker("w1"), |_, payload| async move { Ok(payload) }).await.unwrap();
    assert_eq!(run, JobRun::Done { result: "{\"page\":7}".into() });
}

/// A program without a server kept whatever text it got: with a key twice, and another order of keys was another payload.
#[tokio::test(start_paused = true)]
async fn a_payload_is_json_in_one_form_or_text_as_it_is() {
    let jobs = leasehold().jobs().unwrap();
    let exact = "{\"n\":1180591620717411303425,\"p\":1.10}";
    assert_eq!(
        jobs.create(ID, "{\"p\": 1.10, \"n\": 1180591620717411303425}", None).await.unwrap(),
        Created::New
    );
    assert_eq!(jobs.create(ID, exact, None).await.unwrap(), Created::Before);
    assert_eq!(acquired(&jobs, "w1").await.payload(), exact);
    let other = jobs.create(ID, "{\"n\":1180591620717411303426,\"p\":1.10}", None).await;
    assert!(matches!(other, Err(Error::JobDiffers { .. })), "{other:?}");
    let twice = jobs.create("analyses/43", "{\"a\":1,\"a\":1}", None).await.unwrap_err().to_string();
    assert!(twice.contains("the key \"a\" is there twice"), "{twice}");
    jobs.create("analyses/44", "two\n  lines", None).await.unwrap();
    assert_eq!(jobs.look("analyses/44").await.unwrap().unwrap().payload, "two\n  lines");
}

/// The same task, delivered fifty times at once: it runs once, and everybody gets the same answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_deliveries_at_once_are_one_run() {
    let jobs = Leasehold::open("memory:").unwrap().jobs().unwrap();
    jobs.create(ID, "x", None).await.unwrap();
    let runs = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..50 {
        let (jobs, runs) = (jobs.clone(), runs.clone());
        workers.spawn(async move {
            jobs.run(ID, worker(&format!("w{number}")), |_, _| async move {
                Ok(format!("run {}", runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst)))
            })
            .await
            .unwrap()
        });
    }
    let outcomes = workers.join_all().await;
    assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert_eq!(outcomes.iter().filter(|run| matches!(run, JobRun::Done { .. })).count(), 1);
    let finished = Finished::Ready { result: "run 0".into() };
    let others = outcomes.iter().filter(|run| !matches!(run, JobRun::Done { .. }));
    assert!(
        others
            .into_iter()
            .all(|run| matches!(run, JobRun::Locked(_)) || *run == JobRun::AlreadyFinished(finished.clone()))
    );
}

#[tokio::test(start_paused = true)]
async fn the_three_functions_of_the_source_under_their_own_names() {
    let locks = AnalysisLocks::new(jobs().await, "analyses");
    let ttl = None;
    assert!(locks.acquire_analysis_lock("42", "w1", ttl).await.unwrap().acquired);
    let second = locks.acquire_analysis_lock("42", "w2", ttl).await.unwrap();
    assert_eq!((second.acquired, second.reason), (false, Some("locked")));
    locks.refresh_analysis_lock("42", "w1", ttl).await.unwrap();
    // Not the owner: nothing happens.
    locks.release_analysis_lock("42", "w2").await;
    let foreign = locks.refresh_analysis_lock("42", "w2", ttl).await;
    assert!(matches!(foreign, Err(Error::Lost(Lost::Told(LossReason::Unknown)))));
    assert!(!locks.acquire_analysis_lock("42", "w3", ttl).await.unwrap().acquired);
    locks.release_analysis_lock("42", "w1").await;
    assert!(locks.acquire_analysis_lock("42", "w3", ttl).await.unwrap().acquired);
    assert!(matches!(locks.acquire_analysis_lock("43", "w1", ttl).await, Err(Error::NoSuchJob { .. })));
}

/// The source has 300 s and a refresh that the worker calls. Ours refreshed by itself in the background, so that a worker that
/// hung kept its job for ever, and nothing said that a lock was lost.
#[tokio::test(start_paused = true)]
async fn an_analysis_lock_lasts_300_s_and_is_refreshed_only_when_that_is_called() {
    let locks = AnalysisLocks::new(jobs().await, "analyses");
    assert!(locks.is_lost("42", "w1"), "never acquired");
    locks.acquire_analysis_lock("42", "w1", None).await.unwrap();
    pass(200).await;
    locks.refresh_analysis_lock("42", "w1", None).await.unwrap();
    pass(269).await;
    assert!(!locks.is_lost("42", "w1"), "a margin before the 300 s");
    assert_eq!(locks.acquire_analysis_lock("42", "w2", None).await.unwrap().reason, Some("locked"));
    pass(1).await;
    assert!(locks.is_lost("42", "w1"), "before another worker can begin");
    pass(30).await;
    assert!(locks.acquire_analysis_lock("42", "w2", None).await.unwrap().acquired);
    let late = locks.refresh_analysis_lock("42", "w1", None).await;
    assert!(matches!(late, Err(Error::Lost(_))), "{late:?}");
    assert!(locks.is_lost("42", "w1") && !locks.is_lost("42", "w2"));
    locks.release_analysis_lock("42", "w1").await;
    assert_eq!(locks.acquire_analysis_lock("42", "w3", None).await.unwrap().reason, Some("locked"));
}

/// A worker with one attempt was shut down cleanly, or gave up waiting for the answer to its acquire: the attempt counted, and
/// the job failed although no worker had worked on it.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_given_back_or_never_answered_does_not_count() {
    let clock = Arc::new(TokioClock(Instant::now()));
    let memory: Arc<dyn Store> = Arc::new(Memory::with(clock.clone(), Limits::default(), 0));
    let slow = Faulty::for_jobs(memory.clone(), |command| match command {
        JobCommand::Acquire(_) => Fault::Delay(Duration::from_secs(2)),
        _ => Fault::None,
    });
    let slow = Leasehold::with_clock(Arc::new(slow), clock.clone()).jobs().unwrap();
    let jobs = Leasehold::with_clock(memory, clock).jobs().unwrap();
    jobs.create(ID, "{}", Some(1)).await.unwrap();
    acquired(&jobs, "w1").await.release().await.unwrap();
    drop(acquired(&jobs, "w1").await);
    // The acquire arrives after its withdrawal.
    tokio::time::timeout(Duration::from_secs(1), slow.acquire(ID, worker("w2"))).await.unwrap_err();
    pass(10).await;
    assert_eq!(jobs.look(ID).await.unwrap().unwrap().attempts, 0);
    let guard = acquired(&jobs, "w3").await;
    assert_eq!((guard.attempt(), guard.is_recovered()), (1, false));
    guard.complete("42").await.unwrap();
}

/// A second `complete` with another result was acknowledged, and dropped.
#[tokio::test(start_paused = true)]
async fn a_contradiction_is_refused_and_a_repetition_is_not() {
    let jobs = jobs().await;
    let claim = acquired(&jobs, "w1").await.into_claim();
    jobs.complete(ID, claim, "42").await.unwrap();
    jobs.complete(ID, claim, "42").await.unwrap();
    for refused in
        [jobs.complete(ID, claim, "43").await, jobs.fail(ID, claim, "broken", true).await.map(drop)]
    {
        assert!(matches!(refused, Err(Error::Lost(_))), "{refused:?}");
    }
    let look = jobs.look(ID).await.unwrap().unwrap();
    assert!(matches!(look.status, Status::Ready { result, .. } if result.as_str() == "42"));
}

/// A store of the lower level tells nobody anything: its documents are looked at again and again.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_document_looks_again() {
    let leasehold = Leasehold::with_jobs(Arc::new(Memory::new()));
    assert!(leasehold.store().is_none(), "it has no lists and no events");
    let anna = leasehold.acquire("run/report", worker("anna")).await.unwrap();
    let waiting = tokio::spawn({
        let leasehold = leasehold.clone();
        async move { leasehold.acquire("run/report", worker("ben")).await }
    });
    pass(5).await;
    assert!(!waiting.is_finished());
    anna.release().await.unwrap();
    let freed = Instant::now();
    let ben = waiting.await.unwrap().unwrap();
    assert!(freed.elapsed() <= Duration::from_secs(2), "{:?}", freed.elapsed());
    let Attempt::Held(held) = leasehold.try_acquire("run/report", worker("cora")).await.unwrap() else {
        panic!("two at once")
    };
    let left = held.left;
    assert!(left > Duration::ZERO && left <= Duration::from_secs(30), "{left:?}");
    ben.release().await.unwrap();
    let jobs = leasehold.jobs().unwrap();
    jobs.create(ID, "{}", None).await.unwrap();
    acquired(&jobs, "w1").await.complete("42").await.unwrap();
}

/// A worker whose result was longer than a store keeps got an error from `run`, the job went back into the queue, and
/// the whole work was done again by the next delivery, which came to the same, for ever.
#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_kept_fails_the_job_for_good() {
    for result in ["x".repeat(70_000), "a\0b".to_owned()] {
        let jobs = jobs().await;
        let run = jobs.run(ID, worker("w1"), |_, _| async { Ok(result) }).await.unwrap();
        let JobRun::Failed { error, again: false } = run else { panic!("{run:?}") };
        assert!(error.starts_with("the result cannot be kept: "), "{error}");
        let next = jobs.run(ID, worker("w2"), |_, _| async { panic!("it is over") }).await.unwrap();
        assert_eq!(next, JobRun::AlreadyFinished(Finished::Failed { error }));
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_long_error_the_beginning_is_kept() {
    let jobs = jobs().await;
    let error = format!("out of paper {}", "ä".repeat(70_000));
    let guard = acquired(&jobs, "w1").await;
    assert!(!guard.fail(&error, false).await.unwrap());
    let JobAttempt::AlreadyFinished(Finished::Failed { error: kept }) =
        jobs.acquire(ID, worker("w2")).await.unwrap()
    else {
        panic!("it is over")
    };
    assert!(error.starts_with(&kept) && kept.len() > 8_000, "{} bytes", kept.len());
}
