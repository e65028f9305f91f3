//! The same task, delivered again and again to real worker processes, one of which is killed in the middle of its work.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

const TTL: Duration = Duration::from_secs(2);

struct Worker {
    child: Child,
    url: String,
}

impl Worker {
    fn start(folder: &Path, name: &str, work_ms: u32) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command
            .env("LEASEHOLD_STORE", format!("embedded:{}?mode=shared", folder.join("leases.db").display()));
        command
            .env("WORKER_NAME", name)
            .env("WORKER_LISTEN", "127.0.0.1:0")
            .env("WORKER_LOG", folder.join("log"));
        command
            .env("WORKER_TTL_SECONDS", TTL.as_secs().to_string())
            .env("WORKER_WORK_MS", work_ms.to_string());
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

fn log(folder: &TempDir) -> Vec<String> {
    let text = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

/// Waits until the log has this line; answers when that was.
async fn logged(folder: &TempDir, line: &str) -> Instant {
    let start = Instant::now();
    while !log(folder).iter().any(|found| found == line) {
        assert!(start.elapsed() < Duration::from_secs(60), "{line} never came: {:?}", log(folder));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Instant::now()
}

fn task() -> Value {
    json!({ "analysisId": "42", "payload": { "page": 7 } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_deliveries_at_once_are_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let workers = [Worker::start(folder.path(), "w1", 300), Worker::start(folder.path(), "w2", 300)];
    let urls: Vec<String> = workers.iter().map(|worker| worker.url.clone()).collect();
    let mut deliveries = tokio::task::JoinSet::new();
    for number in 0..50 {
        deliveries.spawn(deliver(urls.clone(), number, task()));
    }
    let answers = deliveries.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer["ran"] == true).count(), 1);
    assert!(answers.iter().all(|answer| answer["result"] == answers[0]["result"]), "{answers:?}");
    let log = log(&folder);
    assert_eq!((log.len(), log.iter().filter(|line| line.starts_with("end")).count()), (2, 1), "{log:?}");
    let other = json!({ "analysisId": "42", "payload": { "page": 8 } });
    let refused = reqwest::Client::new().post(&urls[0]).json(&other).send().await.unwrap();
    assert_eq!(refused.status(), 400, "another payload under the same id");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_workers_task_is_taken_over_and_not_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let first = Worker::start(folder.path(), "w1", 60_000);
    let begun = tokio::spawn(deliver(vec![first.url.clone()], 0, task()));
    logged(&folder, "begin w1").await;
    let second = Worker::start(folder.path(), "w2", 100);
    let deliveries: Vec<_> =
        (0..50).map(|number| tokio::spawn(deliver(vec![second.url.clone()], number, task()))).collect();
    let killed = Instant::now();
    first.signal(rustix::process::Signal::KILL);
    let taken_over = logged(&folder, "begin w2").await - killed;
    // The lease lasts one TTL from its last refresh; the queue asks ten times a second.
    assert!(taken_over <= TTL + Duration::from_secs(1), "{taken_over:?}");
    for delivery in deliveries {
        let answer = delivery.await.unwrap();
        assert!(answer["result"].as_str().unwrap().starts_with("w2 analysed"), "{answer}");
    }
    assert_eq!(log(&folder), ["begin w1", "begin w2", "end w2"]);
    begun.abort();
}

/// A worker that was stopped for longer than its lease wakes up and believes to be done. It is told otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_complete_by_a_worker_that_slept_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) =
        (Worker::start(folder.path(), "w1", 1_000), Worker::start(folder.path(), "w2", 100));
    let late = tokio::spawn(deliver(vec![first.url.clone()], 0, task()));
    logged(&folder, "begin w1").await;
    first.signal(rustix::process::Signal::STOP);
    let answer = deliver(vec![second.url.clone()], 0, task()).await;
    assert!(answer["result"].as_str().unwrap().starts_with("w2 analysed"), "{answer}");
    first.signal(rustix::process::Signal::CONT);
    // Its own call was refused with 503, and the queue's next delivery finds the result.
    let answer = late.await.unwrap();
    assert_eq!((answer["reason"].as_str(), answer["ran"].as_bool()), (Some("already_finished"), None));
    assert_eq!(log(&folder), ["begin w1", "begin w2", "end w2"]);
}
