//! The same task, delivered again and again to real worker processes, one of which is killed in the middle of its work: on a
//! shared file, on PostgreSQL and in Firestore documents.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test fails by panicking, and shares a harness with others"
)]

mod analysis;
mod place;

// The same servers that the tests of the stores start.
#[path = "../../../../crates/leasehold-store/tests/stores/firestore/emulator.rs"]
mod emulator;
#[path = "../../../../crates/leasehold-store/tests/stores/waiting.rs"]
mod harness;
#[path = "../../../../crates/leasehold-store/tests/stores/postgres/server.rs"]
mod server;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use place::Place;

struct Worker {
    child: Child,
    url: String,
}

impl Worker {
    fn start(place: &Place, name: &str, work_ms: u32) -> Self {
        Self::start_with(place, name, work_ms, &[])
    }

    fn start_with(place: &Place, name: &str, work_ms: u32, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.args(["--store", &place.store]);
        command
            .env("WORKER_NAME", name)
            .env("WORKER_LISTEN", "127.0.0.1:0")
            .env("WORKER_LOG", place.log_file());
        command
            .env("WORKER_TTL_SECONDS", place.ttl.as_secs().to_string())
            .env("WORKER_WORK_MS", work_ms.to_string())
            .envs(settings.iter().copied());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: format!("{}/internal/tasks/analysis", url.trim()) }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a queue does: delivers, and again after a pause as long as it does not get 200. Answers what it got in the end.
async fn deliver(urls: Vec<String>, number: usize, task: Value) -> Value {
    let client = reqwest::Client::new();
    let start = Instant::now();
    for turn in number.. {
        let sent = client.post(&urls[turn % urls.len()]).json(&task).send().await;
        match sent {
            Ok(response) if response.status() == 200 => return response.json().await.unwrap(),
            Ok(response) => assert_eq!(response.status(), 503, "{}", response.text().await.unwrap()),
            // The worker is gone: a queue tries another one.
            Err(_) => {}
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the task was forgotten");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    unreachable!()
}

fn log(place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(place.log_file()).unwrap_or_default();
    text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

/// Waits until the log has this line; answers when that was.
async fn logged(place: &Place, line: &str) -> Instant {
    let start = Instant::now();
    while !log(place).iter().any(|found| found == line) {
        assert!(start.elapsed() < Duration::from_secs(60), "{line} never came: {:?}", log(place));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Instant::now()
}

fn task() -> Value {
    json!({ "analysisId": "42", "payload": { "page": 7 } })
}

async fn deliveries_at_once_are_one_run(place: &Place) {
    let workers = [Worker::start(place, "w1", 300), Worker::start(place, "w2", 300)];
    let urls: Vec<String> = workers.iter().map(|worker| worker.url.clone()).collect();
    let mut deliveries = tokio::task::JoinSet::new();
    for number in 0..place.deliveries {
        deliveries.spawn(deliver(urls.clone(), number, task()));
    }
    let answers = deliveries.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer["ran"] == true).count(), 1);
    assert!(answers.iter().all(|answer| answer["result"] == answers[0]["result"]), "{answers:?}");
    let log = log(place);
    assert_eq!((log.len(), log.iter().filter(|line| line.starts_with("end")).count()), (2, 1), "{log:?}");
    let other = json!({ "analysisId": "42", "payload": { "page": 8 } });
    let refused = reqwest::Client::new().post(&urls[0]).json(&other).send().await.unwrap();
    assert_eq!(refused.status(), 400, "another payload under the same id");
}

async fn a_killed_workers_task_is_taken_over(place: &Place) {
    let first = Worker::start(place, "w1", 60_000);
    let begun = tokio::spawn(deliver(vec![first.url.clone()], 0, task()));
    logged(place, "begin w1").await;
    let second = Worker::start(place, "w2", 100);
    let deliveries: Vec<_> = (0..place.deliveries)
        .map(|number| tokio::spawn(deliver(vec![second.url.clone()], number, task())))
        .collect();
    let killed = Instant::now();
    first.signal(rustix::process::Signal::KILL);
    let taken_over = logged(place, "begin w2").await - killed;
    // The lease lasts one TTL from its last refresh, and the queue asks ten times a second. That it ends on time is tested on
    // virtual time; real processes on a busy machine get some seconds more.
    assert!(taken_over <= place.ttl + Duration::from_secs(5), "{taken_over:?}");
    for delivery in deliveries {
        let answer = delivery.await.unwrap();
        assert!(answer["result"].as_str().unwrap().starts_with("w2 analysed"), "{answer}");
    }
    assert_eq!(log(place), ["begin w1", "begin w2", "end w2"]);
    begun.abort();
}

/// A worker that was stopped for longer than its lease wakes up and believes to be done. It is told otherwise.
async fn a_late_complete_is_refused(place: &Place) {
    let (first, second) = (Worker::start(place, "w1", 1_000), Worker::start(place, "w2", 100));
    let late = tokio::spawn(deliver(vec![first.url.clone()], 0, task()));
    logged(place, "begin w1").await;
    first.signal(rustix::process::Signal::STOP);
    let answer = deliver(vec![second.url.clone()], 0, task()).await;
    assert!(answer["result"].as_str().unwrap().starts_with("w2 analysed"), "{answer}");
    first.signal(rustix::process::Signal::CONT);
    // Its own call was refused with 503, and the queue's next delivery finds the result.
    let answer = late.await.unwrap();
    assert_eq!((answer["reason"].as_str(), answer["ran"].as_bool()), (Some("already_finished"), None));
    assert_eq!(log(place), ["begin w1", "begin w2", "end w2"]);
}

/// The same with a worker that never looks at its lease: here it is the store that refuses what it says.
async fn a_late_complete_that_reaches_the_store_is_refused(place: &Place) {
    let first = Worker::start_with(place, "w1", 1_000, &[("WORKER_CARELESS", "yes")]);
    let second = Worker::start(place, "w2", 100);
    let late = tokio::spawn(reqwest::Client::new().post(&first.url).json(&task()).send());
    logged(place, "begin w1").await;
    first.signal(rustix::process::Signal::STOP);
    let answer = deliver(vec![second.url.clone()], 0, task()).await;
    assert!(answer["result"].as_str().unwrap().starts_with("w2 analysed"), "{answer}");
    first.signal(rustix::process::Signal::CONT);
    let late = late.await.unwrap().unwrap();
    assert_eq!(late.status(), 503);
    let why: Value = late.json().await.unwrap();
    // The word of the store. A worker that noticed it by itself would say that it could not be renewed in time.
    assert_eq!(why["retry"], "the lease was lost: expired");
    assert_eq!(log(place), ["begin w1", "begin w2", "end w2", "end w1"]);
    let again = deliver(vec![first.url.clone()], 0, task()).await;
    assert_eq!(again["result"], answer["result"], "and what was kept is what was done in time");
}

/// One test of each kind. The argument is a place, or none where there is no such server; that was said loudly.
macro_rules! deliveries {
    ($name:ident, $place:expr) => {
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn deliveries_at_once_are_one_run() {
                if let Some(place) = $place {
                    super::deliveries_at_once_are_one_run(&place).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_killed_workers_task_is_taken_over_and_not_forgotten() {
                if let Some(place) = $place {
                    a_killed_workers_task_is_taken_over(&place).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_late_complete_by_a_worker_that_slept_is_refused() {
                if let Some(place) = $place {
                    a_late_complete_is_refused(&place).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_late_complete_by_a_careless_worker_is_refused_by_the_store() {
                if let Some(place) = $place {
                    a_late_complete_that_reaches_the_store_is_refused(&place).await;
                }
            }
        }
    };
}

deliveries!(file, Some(Place::file()));
deliveries!(postgres, Place::postgres().await);
deliveries!(firestore, Place::firestore());

/// An empty id was analysed, `a/b/c` too, and what was no task at all was answered with 415 or 422, which the table at the top of
/// the program does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_makes_no_sense_is_400_and_does_not_run() {
    let place = Place::file();
    let worker = Worker::start(&place, "w1", 0);
    for task in [
        "nonsense",
        "",
        "[]",
        "null",
        "{}",
        r#"{"payload": {}}"#,
        r#"{"analysisId": 42}"#,
        r#"{"analysisId": ""}"#,
        r#"{"analysisId": "a/b/c"}"#,
        r#"{"analysisId": ".."}"#,
    ] {
        let answer = reqwest::Client::new().post(&worker.url).body(task).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{task}");
    }
    assert!(log(&place).is_empty());
    let send = |task| reqwest::Client::new().post(&worker.url).body(task).send();
    let missing = send(r#"{"analysisId": "42"}"#).await.unwrap();
    assert_eq!(missing.status(), 404, "it is not made unless that is asked for");
    let made = send(r#"{"analysisId": "42", "payload": null}"#).await.unwrap();
    assert_eq!(made.status(), 404, "null is no payload");
    let made = send(r#"{"analysisId": "42", "payload": {}}"#).await.unwrap();
    assert_eq!(made.status(), 200, "without a Content-Type");
    let again = send(r#"{"analysisId": "42"}"#).await.unwrap();
    assert_eq!(again.status(), 200, "it is there, with whatever payload");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_may_be_lost_is_skipped_while_somebody_works() {
    let place = Place::file();
    let first = Worker::start(&place, "w1", 60_000);
    let second = Worker::start_with(&place, "w2", 0, &[("WORKER_ON_LOCKED", "skip")]);
    let begun = tokio::spawn(deliver(vec![first.url.clone()], 0, task()));
    logged(&place, "begin w1").await;
    let answer = deliver(vec![second.url.clone()], 0, task()).await;
    assert_eq!(answer, json!({ "status": "RUNNING", "reason": "locked" }));
    assert_eq!(log(&place), ["begin w1"]);
    begun.abort();
}

/// Two libraries for TLS are compiled into this program, and rustls panics when nobody has chosen one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_firestore_that_cannot_be_reached_over_tls_is_later_and_no_panic() {
    let worker = Worker::start(&Place::nowhere(), "w1", 0);
    let answer = reqwest::Client::new().post(&worker.url).json(&task()).send().await.unwrap();
    assert_eq!(answer.status(), 503);
    let why = answer.text().await.unwrap();
    assert!(why.contains("no connection to Firestore"), "{why}");
}
