//! kill -9 on a process that grants, renews and releases under load: nothing acknowledged is lost.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_store::embedded;

use crate::{how_far, times};

/// The last thing that was acknowledged for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Granted(u64),
    Renewed(u64),
    Released(u64),
}

/// What is known to be acknowledged, over all runs.
#[derive(Default)]
struct Known {
    last: BTreeMap<String, Last>,
    highest: BTreeMap<String, u64>,
    grants: u64,
}

impl Known {
    fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (Some(what), Some(key), Some(fence)) = (words.next(), words.next(), words.next()) else {
            panic!("half a line: {line:?}");
        };
        let fence: u64 = fence.parse().unwrap();
        match what {
            "state" => self.compare(key, fence),
            "granted" => self.granted(key, fence),
            "renewed" => _ = self.last.insert(key.into(), Last::Renewed(fence)),
            "released" => _ = self.last.insert(key.into(), Last::Released(fence)),
            _ => panic!("{line}"),
        }
    }

    fn granted(&mut self, key: &str, fence: u64) {
        let highest = self.highest.insert(key.into(), fence).unwrap_or(0);
        assert!(fence > highest, "{key}: fence {fence} after {highest}");
        self.last.insert(key.into(), Last::Granted(fence));
        self.grants += 1;
    }

    /// What the store holds after the kill: what was acknowledged last, or one command further.
    fn compare(&mut self, key: &str, found: u64) {
        let fits = match self.last.get(key) {
            None => true,
            // A renewal may have been under way, which changes nothing.
            Some(Last::Granted(fence)) => found == *fence,
            // A release may have been under way.
            Some(Last::Renewed(fence)) => found == *fence || found == 0,
            // An acquire may have been under way.
            Some(Last::Released(fence)) => found == 0 || found > *fence,
        };
        assert!(fits, "{key}: the store has {found}, but {:?} was acknowledged", self.last.get(key));
        let highest = self.highest.entry(key.into()).or_insert(0);
        *highest = (*highest).max(found);
        // The next command of this run is a release of what it found, or an acquire. It too may be under way when this run is
        // killed: one that was killed early had released a key and not said so, and the next took that for a loss.
        let last = if found > 0 { Last::Renewed(found) } else { Last::Released(*highest) };
        self.last.insert(key.into(), last);
    }
}

fn start(url: &str, run: u32) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_grantor"))
        .args([url, &run.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

/// How many lines to let a run write before it is killed: different each time, the same in every test run.
fn lines_before_the_kill(run: u32) -> u32 {
    30 + run.wrapping_mul(2_654_435_761) % 400
}

/// Runs it once and kills it; answers how long it took to serve.
fn run_and_kill(url: &str, run: u32, known: &mut Known) -> Duration {
    let started = Instant::now();
    let (mut child, mut lines) = start(url, run);
    let (mut served, mut left, mut line) = (None, lines_before_the_kill(run), String::new());
    loop {
        line.clear();
        if lines.read_line(&mut line).unwrap() == 0 {
            break;
        }
        if !line.starts_with("state") {
            served.get_or_insert_with(|| started.elapsed());
            left = left.saturating_sub(1);
        }
        known.hear(line.trim_end());
        if left == 0 {
            // What was written before the kill took effect is still read, to the last line.
            let _ = child.kill();
        }
    }
    child.wait().unwrap();
    assert_eq!(left, 0, "run {run} ended by itself");
    served.expect("it never served")
}

#[test]
fn killed_embedded_store_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let url = format!("embedded:{}", path.display());
    let kills = times(50, 1_000);
    let mut known = Known::default();
    let mut served = Vec::new();
    for run in 0..kills {
        served.push(run_and_kill(&url, run, &mut known));
        how_far(run + 1, kills, "kills");
    }
    served.sort();
    let (middle, worst) = (served[served.len() / 2], served[served.len() - 1]);
    println!("{kills} kills, {} grants; serving again after {middle:?}, {worst:?} at worst", known.grants);
    assert!(known.grants > u64::from(kills), "hardly anything was going on");
    assert_eq!(embedded::check(&path).unwrap().problems, Vec::<String>::new());
    // The worst of many on a busy machine says more about the machine.
    assert!(middle < Duration::from_secs(1), "serving again took {middle:?}");
}
