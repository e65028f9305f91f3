//! The same documents in the hands of a worker in another language, with Google's own client for it.

use std::process::Command as Process;
use std::time::Duration;

use leasehold_core::job::{JobCommand, JobOutcome, Status};
use leasehold_store::Firestore;
use serde_json::{Value, json};

use super::Bench;
use super::emulator::emulator;
use super::harness::{project, url};
use super::raw::{Raw, fields, text};
use crate::harness::{bid, skipped};

/// Names a Python that has `google-cloud-firestore`; `cargo xtask test` installs one.
const PYTHON: &str = "LEASEHOLD_FIRESTORE_PYTHON";

struct Python {
    program: String,
    host: String,
    project: String,
}

impl Python {
    /// Runs the worker once and answers what it printed.
    async fn ask(&self, what: &str, path: &str, owner: &str) -> Value {
        let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stores/firestore/worker.py");
        let mut process = Process::new(&self.program);
        process
            .arg(worker)
            .args([&self.project, what, path, owner])
            .env("FIRESTORE_EMULATOR_HOST", &self.host);
        let output = tokio::task::spawn_blocking(move || process.output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&said)
            .unwrap_or_else(|_| panic!("{said}\n{}", String::from_utf8_lossy(&output.stderr)))
    }
}

async fn start() -> Option<(Bench, Python)> {
    let (emulator, project) = (emulator()?, project());
    let Some(program) = std::env::var(PYTHON).ok().filter(|program| !program.is_empty()) else {
        skipped(&format!("the worker in Python, because {PYTHON} names none; cargo xtask test installs it"));
        return None;
    };
    let store = Firestore::options().open(&url(emulator, &project));
    let raw = Raw::connect(&emulator.host, &project).await;
    Some((Bench { store, raw }, Python { program, host: emulator.host.clone(), project }))
}

#[tokio::test]
async fn a_worker_in_python_and_one_in_rust_keep_each_other_out() {
    let Some((rust, python)) = start().await else { return };
    let path = "analyses/shared";
    assert_eq!(python.ask("acquire", path, "py").await, json!({ "error": "not_found" }));
    let own = fields([("status", text("PROCESSING")), ("title", text("mine"))]);
    rust.raw.put(path, own.clone()).await;

    assert_eq!(python.ask("acquire", path, "py").await["acquired"], true);
    let locked = rust.acquire(path, "w1", 1).await;
    assert!(matches!(&locked, JobOutcome::Locked(held) if held.by.as_str() == "py"), "{locked:?}");
    assert_eq!(python.ask("release", path, "py").await["released"], true);

    let claim = rust.must_acquire(path, "w1", 2).await;
    assert_eq!(python.ask("acquire", path, "py").await["reason"], "locked");
    assert_eq!(python.ask("release", path, "py").await["released"], false, "it is not its own");
    let refreshed = rust.job(path, JobCommand::Refresh { claim: claim.into(), ttl: None }).await.outcome;
    assert!(matches!(refreshed, JobOutcome::Refreshed(_)), "{refreshed:?}");
    assert_eq!(rust.job(path, JobCommand::Release(claim.into())).await.outcome, JobOutcome::Released);

    assert_eq!(python.ask("acquire", path, "py").await["acquired"], true);
    python.ask("finish", path, "py").await;
    let finished = rust.job(path, JobCommand::Acquire(bid("w1", 3, Duration::from_secs(30)))).await;
    assert_eq!(finished.outcome, JobOutcome::AlreadyFinished);
    let status = finished.record.job.unwrap().status;
    assert!(
        matches!(&status, Status::Ready { result, .. } if result.as_str() == r#"{"pages":7}"#),
        "{status:?}"
    );
    assert_eq!(rust.raw.get(path).await.get("title"), own.get("title"));

    rust.raw.put("analyses/other", own).await;
    let claim = rust.must_acquire("analyses/other", "w1", 4).await;
    let complete = JobCommand::Complete { claim: claim.into(), result: super::result("42") };
    assert_eq!(rust.job("analyses/other", complete).await.outcome, JobOutcome::Completed);
    assert_eq!(python.ask("acquire", "analyses/other", "py").await["reason"], "already_finished");
}
