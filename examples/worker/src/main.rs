//! A worker behind a task queue: `POST /internal/tasks/analysis`, as often as the queue likes, from as many queues as
//! there are. The analysis runs once.
//!
//! | what the queue sees | when | what a queue does with it |
//! |---|---|---|
//! | 200 | it is done, by this call or before; or it has failed for good; or another worker has it, with `WORKER_ON_LOCKED=skip` | forgets the task |
//! | 503 with `Retry-After` | another worker has it, and may just have died; or it failed and is worth another try | delivers it again |
//! | 400, 404 | the task makes no sense; there is no such analysis | whatever it does with such tasks |
//!
//! A task `{"analysisId": "42"}` is about an analysis that is there, as it is, whichever program made it. With a `payload` the
//! analysis is made first, if it is not there; the same id with another payload is refused.
//!
//! Where the jobs are is said by `--store`: `embedded:leases.db?mode=shared`, `postgres://…` or `firestore:PROJECT`. Further
//! settings, from the environment:
//!
//! - `LEASEHOLD_STORE` (the same as `--store`), `WORKER_NAME`, `WORKER_LISTEN`, `WORKER_TTL_SECONDS`, `WORKER_WORK_MS`;
//! - `WORKER_ON_LOCKED=skip`, if it does not matter that a delivery is lost while another worker has it;
//! - `WORKER_LOG`, a file that gets a line for every step of the work, so that one can see what ran;
//! - `WORKER_CARELESS=yes` for work as one should not write it: it blocks its thread and never looks at its lease.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use leasehold_client::{AcquireOptions, Error, Finished, JobId, JobRun, Jobs, Lease, Leasehold};
use leasehold_store::Retry;
use serde::Deserialize;
use serde_json::json;

struct Worker {
    jobs: Jobs,
    name: String,
    ttl: Duration,
    work: Duration,
    log: Option<PathBuf>,
    skips_locked: bool,
    is_careless: bool,
}

/// What the queue delivers.
#[derive(Deserialize)]
struct Task {
    #[serde(rename = "analysisId")]
    analysis_id: String,
    /// As text: a number in it keeps its digits.
    payload: Option<Box<serde_json::value::RawValue>>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let store = store_argument()?.unwrap_or(setting("LEASEHOLD_STORE", "embedded:leases.db?mode=shared"));
    let worker = Arc::new(Worker {
        jobs: Leasehold::open(&store)?.jobs()?,
        name: setting("WORKER_NAME", "worker"),
        ttl: Duration::from_secs(setting("WORKER_TTL_SECONDS", "300").parse().context("WORKER_TTL_SECONDS")?),
        work: Duration::from_millis(setting("WORKER_WORK_MS", "1000").parse().context("WORKER_WORK_MS")?),
        log: std::env::var_os("WORKER_LOG").map(PathBuf::from),
        skips_locked: setting("WORKER_ON_LOCKED", "") == "skip",
        is_careless: setting("WORKER_CARELESS", "") == "yes",
    });
    let listener = tokio::net::TcpListener::bind(setting("WORKER_LISTEN", "127.0.0.1:8080")).await?;
    println!("http://{}", listener.local_addr()?);
    let router =
        Router::new().route("/internal/tasks/analysis", axum::routing::post(analysis)).with_state(worker);
    Ok(axum::serve(listener, router).await?)
}

/// What `--store` says, the only argument that there is.
fn store_argument() -> Result<Option<String>> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        None => Ok(None),
        Some("--store") => {
            arguments.next().context("--store needs a URL, such as firestore:PROJECT").map(Some)
        }
        Some(other) => anyhow::bail!("there is no argument {other}; write --store URL"),
    }
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned())
}

/// The task begins by acquiring, and answers what the queue has to know.
async fn analysis(State(worker): State<Arc<Worker>>, body: Bytes) -> Response {
    let (id, payload) = match read(&body) {
        Ok(task) => task,
        Err(error) => return nonsense(&format!("{error:#}")),
    };
    match worker.run(&id, payload.as_deref()).await {
        Ok(JobRun::Done { result }) => {
            Json(json!({ "status": "READY", "result": result, "ran": true })).into_response()
        }
        Ok(JobRun::AlreadyFinished(Finished::Ready { result })) => {
            Json(json!({ "status": "READY", "result": result, "reason": "already_finished" })).into_response()
        }
        Ok(JobRun::AlreadyFinished(Finished::Failed { error })) => {
            Json(json!({ "status": "FAILED", "error": error, "reason": "already_finished" })).into_response()
        }
        Ok(JobRun::Failed { error, again: false }) => {
            Json(json!({ "status": "FAILED", "error": error })).into_response()
        }
        Ok(JobRun::Locked(_)) if worker.skips_locked => {
            Json(json!({ "status": "RUNNING", "reason": "locked" })).into_response()
        }
        // A queue that got 200 here would forget the task, although its worker may just have died.
        Ok(JobRun::Locked(held)) => later(&format!("{} is working on it", held.by)),
        Ok(JobRun::Failed { error, again: true }) => later(&error),
        Err(error @ Error::NoSuchJob { .. }) => refuse(StatusCode::NOT_FOUND, &error.to_string()),
        Err(error) if error.retry() == Retry::No => nonsense(&error.to_string()),
        Err(error) => later(&error.to_string()),
    }
}

/// Which job a task is about, and its payload, if it brings one.
fn read(body: &[u8]) -> Result<(JobId, Option<String>)> {
    let task: Task =
        serde_json::from_slice(body).context("a task is {\"analysisId\": \"42\", \"payload\": …}")?;
    Ok((JobId::new("analyses", &task.analysis_id)?, task.payload.map(|payload| payload.get().to_owned())))
}

fn nonsense(why: &str) -> Response {
    refuse(StatusCode::BAD_REQUEST, why)
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

fn later(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], Json(json!({ "retry": why }))).into_response()
}

impl Worker {
    async fn run(&self, id: &JobId, payload: Option<&str>) -> Result<JobRun, Error> {
        // The first delivery makes the job; the same id with another payload is refused.
        if let Some(payload) = payload {
            self.jobs.create(id.as_str(), payload, Some(5)).await?;
        }
        let options = AcquireOptions::owner(&self.name).ttl(self.ttl);
        self.jobs.run(id.as_str(), options, |lease, payload| self.analyse(lease, payload)).await
    }

    /// The work itself. It asks for its lease before everything that others can see, and passes its fence along.
    async fn analyse(&self, lease: Lease, payload: String) -> Result<String, String> {
        self.note("begin", &lease);
        let fence = if self.is_careless {
            tokio::task::block_in_place(|| std::thread::sleep(self.work));
            lease.fence()
        } else {
            tokio::time::sleep(self.work).await;
            lease.check().map_err(|lost| lost.to_string())?
        };
        self.note("end", &lease);
        Ok(format!("{} analysed {payload} with fence {fence}", self.name))
    }

    fn note(&self, what: &str, lease: &Lease) {
        let Some(log) = &self.log else { return };
        let line = format!("{what} {} {} {}\n", self.name, lease.key(), lease.fence());
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(log);
        if let Err(error) = opened.and_then(|mut log| log.write_all(line.as_bytes())) {
            eprintln!("the log of the work cannot be written: {error}");
        }
    }
}
