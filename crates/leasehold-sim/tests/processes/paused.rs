//! Holders that are stopped between their last look and their write, for longer than their lease lasts.
//!
//! With the fence checked no acknowledged addition is lost. The same run without the check does lose some, which proves
//! that the test would notice.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use leasehold_sim::shared_set::SharedSet;

use crate::{how_far, times};

const WORKERS: usize = 4;

/// Longer than the workers' TTL of 2 s and the second after it.
const PAUSE: Duration = Duration::from_millis(3_300);

/// What came of a run.
struct Outcome {
    acknowledged: BTreeSet<u64>,
    refused: usize,
    pauses: u32,
    lost: Vec<u64>,
}

#[test]
fn paused_holders_lose_nothing_when_the_fence_is_checked() {
    let outcome = run("fenced", times(4, 100));
    assert_eq!(outcome.lost, [0; 0], "acknowledged additions were lost");
    assert!(outcome.refused > 0, "no late write ever came: the test tested nothing");
    println!(
        "{} added, {} pauses, {} late writes refused",
        outcome.acknowledged.len(),
        outcome.pauses,
        outcome.refused
    );
}

#[test]
fn paused_holders_lose_additions_without_the_check() {
    let outcome = run("unfenced", times(4, 20));
    let share = 100 * outcome.lost.len() / outcome.acknowledged.len().max(1);
    println!(
        "{} of {} acknowledged additions lost ({share} %)",
        outcome.lost.len(),
        outcome.acknowledged.len()
    );
    assert!(!outcome.lost.is_empty(), "nothing was lost without the fence: the test proves nothing");
}

fn run(mode: &str, pauses: u32) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let (sender, lines) = channel();
    let workers: Vec<Worker> =
        (0..WORKERS).map(|number| Worker::start(folder.path(), number, mode, sender.clone())).collect();
    drop(sender);
    let (acknowledged, refused) = follow(&workers, &lines, pauses);
    drop(workers);
    let left: BTreeSet<u64> =
        SharedSet::new(&folder.path().join("set")).read().unwrap().into_iter().collect();
    let lost = acknowledged.difference(&left).copied().collect();
    Outcome { acknowledged, refused, pauses, lost }
}

/// Reads what the workers say, and stops one just before it writes, again and again.
fn follow(workers: &[Worker], lines: &Receiver<(usize, String)>, pauses: u32) -> (BTreeSet<u64>, usize) {
    let (mut acknowledged, mut refused, mut paused) = (BTreeSet::new(), 0, 0);
    let mut stopped: Option<(usize, Instant)> = None;
    let mut last_pause_ended = None;
    let deadline = Instant::now() + Duration::from_secs(60) + PAUSE * pauses * 2;
    while last_pause_ended.is_none_or(|at: Instant| at.elapsed() < Duration::from_secs(1)) {
        assert!(Instant::now() < deadline, "the workers got stuck after {paused} pauses");
        if let Some((worker, since)) = stopped.filter(|(_, since)| since.elapsed() >= PAUSE) {
            workers[worker].signal("CONT");
            stopped = None;
            let _ = since;
            if paused == pauses {
                last_pause_ended = Some(Instant::now());
            }
        }
        let (worker, line) = match lines.recv_timeout(Duration::from_millis(50)) {
            Ok(heard) => heard,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => panic!("all workers ended"),
        };
        let (what, number) = line.split_once(' ').unwrap();
        match what {
            "added" => _ = acknowledged.insert(number.parse().unwrap()),
            "refused" => refused += 1,
            _ if stopped.is_none() && paused < pauses => {
                workers[worker].signal("STOP");
                stopped = Some((worker, Instant::now()));
                paused += 1;
                how_far(paused, pauses, "pauses");
            }
            _ => {}
        }
    }
    (acknowledged, refused)
}

/// A worker process, ended when this is dropped.
struct Worker(Child);

impl Worker {
    fn start(folder: &Path, number: usize, mode: &str, heard: Sender<(usize, String)>) -> Self {
        let url = format!("embedded:{}?mode=shared", folder.join("leases.db").display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_adder"))
            .arg(url)
            .arg(folder.join("set"))
            .args([&number.to_string(), mode])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if heard.send((number, line)).is_err() {
                    return;
                }
            }
        });
        Self(child)
    }

    fn signal(&self, signal: &str) {
        let status =
            Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
