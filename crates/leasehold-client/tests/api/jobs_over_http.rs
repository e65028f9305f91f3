//! The same jobs behind a server: the guard refreshes over HTTP, and what got lost on the way is repeated.

use std::time::Duration;

use leasehold_client::{
    AcquireOptions, AnalysisLocks, Created, Error, Finished, JobAttempt, JobGuard, JobRun, Jobs, Leasehold,
    Lost,
};
use leasehold_core::job::Status;
use leasehold_core::lease::LossReason;

use crate::proxy::Proxy;
use crate::server::{TestServer, client};

const ID: &str = "analyses/42";

fn jobs(server: &TestServer, user: &str) -> Jobs {
    server.leasehold(user).jobs().unwrap()
}

async fn acquired(jobs: &Jobs, options: AcquireOptions) -> JobGuard {
    match jobs.acquire(ID, options).await.unwrap() {
        JobAttempt::Acquired(guard) => guard,
        other => panic!("{other:?}"),
    }
}

fn short(worker: &str) -> AcquireOptions {
    AcquireOptions::owner(worker).ttl(Duration::from_secs(3))
}

#[tokio::test]
async fn a_job_is_done_once_and_its_result_is_replayed() {
    let server = TestServer::start().await;
    let (anna, ben) = (jobs(&server, "anna"), jobs(&server, "ben"));
    assert!(anna.look(ID).await.unwrap().is_none());
    assert!(matches!(anna.acquire(ID, AcquireOptions::new()).await, Err(Error::NoSuchJob { .. })));
    assert_eq!(anna.create(ID, "{\"page\": 7}", Some(3)).await.unwrap(), Created::New);
    assert_eq!(ben.create(ID, "{ \"page\": 7 }", None).await.unwrap(), Created::Before, "the same JSON");
    assert!(matches!(ben.create(ID, "other", None).await, Err(Error::JobDiffers { .. })));

    let guard = acquired(&anna, AcquireOptions::owner("machine-7")).await;
    assert_eq!((guard.payload(), guard.attempt(), guard.is_recovered()), ("{\"page\":7}", 1, false));
    assert_eq!(guard.owner().as_str(), "anna");
    let refused = ben.acquire(ID, AcquireOptions::new()).await.unwrap();
    let JobAttempt::Locked(held) = refused else { panic!("{refused:?}") };
    assert_eq!((held.by.as_str(), held.name.as_str()), ("anna", "machine-7"));
    let look = ben.look(ID).await.unwrap().unwrap();
    let held = look.held.clone().unwrap();
    assert_eq!((look.attempts, look.max_attempts, held.fence), (1, Some(3), guard.fence()));
    assert!(held.left > Duration::from_secs(290), "{held:?}");
    assert_eq!(
        jobs(&server, "boss").reset(ID).await.unwrap().map(|held| held.by.to_string()),
        Some("anna".into())
    );

    guard.complete("42 pages").await.unwrap();
    let again = ben.acquire(ID, AcquireOptions::new()).await.unwrap();
    let ready = Finished::Ready { result: "42 pages".into() };
    assert!(matches!(again, JobAttempt::AlreadyFinished(finished) if finished == ready));
    assert!(matches!(ben.look(ID).await.unwrap().unwrap().status, Status::Ready { .. }));
    assert!(matches!(ben.reset(ID).await, Err(Error::Http(_))), "ben may not");
    assert_eq!(jobs(&server, "boss").reset(ID).await.unwrap(), None);
    assert_eq!(ben.look(ID).await.unwrap().unwrap().attempts, 0);
    server.stop().await;
}

#[tokio::test]
async fn an_attempt_refreshes_itself_and_opens_no_event_stream() {
    let server = TestServer::start().await;
    let (anna, ben) = (jobs(&server, "anna"), jobs(&server, "ben"));
    anna.create(ID, "x", None).await.unwrap();
    let guard = acquired(&anna, short("w1")).await;
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(4_000) {
        assert!(guard.is_held());
        assert_eq!(ben.acquire(ID, short("w2")).await.unwrap().reason(), Some("locked"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let metrics =
        reqwest::get(format!("http://{}/metrics", server.address)).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("\nleasehold_streams_open 0\n"), "{metrics}");
    guard.complete("done").await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn work_is_cancelled_when_its_lease_is_lost_and_a_late_word_is_refused() {
    let server = TestServer::start().await;
    let proxy = Proxy::to(server.address).await;
    let cut_off = Leasehold::connect(client(proxy.address, "anna")).jobs().unwrap();
    let healthy = jobs(&server, "ben");
    healthy.create(ID, "x", None).await.unwrap();
    let first = acquired(&cut_off, short("w1")).await;
    proxy.cut();
    assert_eq!(first.lost().await, Lost::Deadline);
    let claim = first.into_claim();
    let second = loop {
        match healthy.acquire(ID, AcquireOptions::owner("w2")).await.unwrap() {
            JobAttempt::Acquired(guard) => break guard,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert!(second.is_recovered());
    proxy.heal();
    let late = cut_off.complete(ID, claim, "late").await;
    assert!(matches!(late, Err(Error::Lost(Lost::Told(LossReason::Expired)))), "{late:?}");
    second.complete("in time").await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_network_that_breaks_again_and_again_leads_to_one_attempt() {
    let server = TestServer::start().await;
    let proxy = Proxy::to(server.address).await;
    let jobs = Leasehold::connect(client(proxy.address, "anna")).jobs().unwrap();
    jobs.create(ID, "x", None).await.unwrap();
    // The answer is on its way when the connection breaks.
    proxy.delay_answers(Duration::from_millis(150));
    let run = jobs.run(ID, AcquireOptions::owner("w1"), |_, _| async { Ok("done".to_owned()) });
    let breaking = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            proxy.interrupt();
        }
        proxy.delay_answers(Duration::ZERO);
        std::future::pending::<()>().await;
    };
    let run = tokio::select! { run = run => run.unwrap(), () = breaking => unreachable!() };
    assert_eq!(run, JobRun::Done { result: "done".into() });
    assert_eq!(jobs.look(ID).await.unwrap().unwrap().attempts, 1);
    server.stop().await;
}

#[tokio::test]
async fn an_attempt_goes_on_by_its_claim() {
    let server = TestServer::start().await;
    let jobs = jobs(&server, "anna");
    jobs.create(ID, "x", Some(5)).await.unwrap();
    let claim = acquired(&jobs, AcquireOptions::owner("w1")).await.into_claim();
    assert!(
        jobs.refresh(ID, claim, Some(Duration::from_secs(600))).await.unwrap() > Duration::from_secs(590)
    );
    assert!(jobs.fail(ID, claim, "broken", true).await.unwrap());
    assert!(matches!(jobs.refresh(ID, claim, None).await, Err(Error::Lost(_))));
    let claim = acquired(&jobs, AcquireOptions::owner("w1")).await.into_claim();
    jobs.release(ID, claim).await.unwrap();
    let claim = acquired(&jobs, AcquireOptions::owner("w1")).await.into_claim();
    jobs.complete(ID, claim, "null").await.unwrap();
    jobs.complete(ID, claim, "null").await.expect("said twice");
    let finished = jobs.acquire(ID, AcquireOptions::new()).await.unwrap();
    let expected = Finished::Ready { result: "null".into() };
    assert!(matches!(finished, JobAttempt::AlreadyFinished(finished) if finished == expected));
    server.stop().await;
}

#[tokio::test]
async fn dropping_an_attempt_gives_the_job_back() {
    let server = TestServer::start().await;
    let jobs = jobs(&server, "anna");
    jobs.create(ID, "x", None).await.unwrap();
    drop(acquired(&jobs, AcquireOptions::owner("w1")).await);
    while jobs.look(ID).await.unwrap().unwrap().held.is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!acquired(&jobs, AcquireOptions::owner("w2")).await.is_recovered(), "given back, not abandoned");
    server.stop().await;
}

#[tokio::test]
async fn the_three_functions_of_the_source_work_behind_a_server() {
    let server = TestServer::start().await;
    let jobs = jobs(&server, "anna");
    jobs.create(ID, "x", None).await.unwrap();
    let (locks, ttl) = (AnalysisLocks::new(jobs, "analyses"), Duration::from_secs(300));
    assert!(locks.acquire_analysis_lock("42", "w1", ttl).await.unwrap().acquired);
    let second = locks.acquire_analysis_lock("42", "w2", ttl).await.unwrap();
    assert_eq!((second.acquired, second.reason), (false, Some("locked")));
    locks.refresh_analysis_lock("42", "w1", ttl).await.unwrap();
    locks.release_analysis_lock("42", "w2").await;
    assert!(!locks.acquire_analysis_lock("42", "w3", ttl).await.unwrap().acquired);
    locks.release_analysis_lock("42", "w1").await;
    assert!(locks.acquire_analysis_lock("42", "w3", ttl).await.unwrap().acquired);
    server.stop().await;
}

#[tokio::test]
async fn what_a_server_cannot_take_is_refused_before_it_is_sent() {
    let jobs = Leasehold::connect(client("127.0.0.1:1".parse().unwrap(), "anna")).jobs().unwrap();
    for (id, options, said) in [
        ("42", AcquireOptions::new(), "no collection"),
        ("a/b/c", AcquireOptions::new(), "users/u1/analyses"),
        ("a/b c", AcquireOptions::new(), "job id"),
        (ID, AcquireOptions::owner("x".repeat(65)), "1 to 64 characters"),
        (ID, AcquireOptions::new().meta("a", "b"), "nothing else to show"),
    ] {
        let error = jobs.acquire(id, options).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
