//! Jobs: work that is to be done once. Create, acquire, refresh, complete, fail.
//!
//! Who holds a job, and its next status, is decided in `leasehold-core`. A lease id is in the body of each call by a worker,
//! and in the one answer that grants it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use leasehold_core::job::{Job, JobText};
use leasehold_core::lease::Bid;
use leasehold_core::wire::jobs::{
    AcquireJob, CompleteJob, CreateJob, FailJob, JobAcquired, JobFailed, JobHold, JobRefusal, JobState,
    RefreshJob, ReleaseJob,
};
use leasehold_core::{Invalid, JobCommand, JobId, JobOutcome, LeaseId, Ttl, WorkerName};
use leasehold_store::JobApplied;

use super::new_lease_id;
use crate::App;
use crate::caller::Level;
use crate::error::{Code, Failure, refusal};
use crate::session::{Body, OptionalBody, Session};
use crate::views::{self, Moment};

/// How long an attempt lasts without a refresh, unless the worker says otherwise.
const TTL: Duration = Duration::from_secs(300);

/// Which job a call is about.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // describes it; the routes take it apart by themselves
pub(crate) struct JobPath {
    /// The collection; one below a document of another collection is written as `users%2Fu1%2Fanalyses`
    #[param(format = "collection", example = "analyses")]
    collection: String,
    /// The id in it
    #[param(format = "job-id", example = "42")]
    id: String,
}

/// Make a job
///
/// Asking again with the same payload is safe. Jobs that are finished are kept for 30 days.
#[utoipa::path(
    put, path = "/api/jobs/{collection}/{id}", tag = "Jobs",
    params(JobPath),
    request_body = CreateJob,
    responses((status = 201, body = JobState, description = "It is there now"),
              (status = 200, body = JobState, description = "It was there before"),
              refusal::JobDiffers)
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    session: Session,
    Path((collection, id)): Path<(String, String)>,
    Body(body): Body<CreateJob>,
) -> Result<(StatusCode, Json<JobState>), Failure> {
    let id = session.job(&collection, &id, Level::Lock)?;
    let payload = job_text(&body.payload.to_text())?;
    let command = JobCommand::Create { payload, max_attempts: max_attempts(body.max_attempts)? };
    let applied = app.apply_job(&id, command).await?;
    let job = job_of(&applied)?;
    let status = match applied.outcome {
        JobOutcome::Created => StatusCode::CREATED,
        JobOutcome::Exists => StatusCode::OK,
        JobOutcome::Differs => {
            let detail = "the same id always means the same work; choose another id";
            return Err(Failure::new(Code::JobDiffers).because_of(detail));
        }
        _ => return Err(refused(&app, &session, applied)),
    };
    Ok((status, Json(state(&app, &session, &id, job, &applied))))
}

/// Look at a job
#[utoipa::path(
    get, path = "/api/jobs/{collection}/{id}", tag = "Jobs",
    params(JobPath),
    responses((status = 200, body = JobState))
)]
pub(crate) async fn look(
    State(app): State<Arc<App>>,
    session: Session,
    Path((collection, id)): Path<(String, String)>,
) -> Result<Json<JobState>, Failure> {
    let id = session.job(&collection, &id, Level::Read)?;
    let applied = app.apply_job(&id, JobCommand::Settle).await?;
    Ok(Json(state(&app, &session, &id, job_of(&applied)?, &applied)))
}

fn state(app: &App, session: &Session, id: &JobId, job: &Job, applied: &JobApplied) -> JobState {
    views::job_state(id, job, &applied.record.slot, &session.caller, Moment::new(app, applied.now))
}

/// Begin with a job
///
/// Not getting it is no error: `acquired` is `false`, and `reason` says why. Send a `lease_id` of your own, so that you can
/// repeat the call when its answer got lost.
#[utoipa::path(
    post, path = "/api/jobs/{collection}/{id}/acquire", tag = "Jobs",
    params(JobPath),
    request_body = Option<AcquireJob>,
    responses((status = 200, body = JobAcquired),
              refusal::LeaseOver)
)]
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    session: Session,
    Path((collection, id)): Path<(String, String)>,
    OptionalBody(body): OptionalBody<AcquireJob>,
) -> Result<Json<JobAcquired>, Failure> {
    let id = session.job(&collection, &id, Level::Lock)?;
    let applied = app.apply_job(&id, JobCommand::Acquire(bid(&session, &body)?)).await?;
    let job = job_of(&applied)?;
    let (record, moment) = (&applied.record, Moment::new(&app, applied.now));
    let no = |reason| {
        app.metrics.refused();
        let refused = views::job_refused(reason, job, record, &session.caller, moment);
        Ok(Json(JobAcquired::Refused(Box::new(refused))))
    };
    match &applied.outcome {
        JobOutcome::Acquired { lease, recovered } => {
            if app.whole.is_none() {
                app.metrics.granted();
            }
            let granted = views::job_granted(lease, job, *recovered, moment);
            Ok(Json(JobAcquired::Granted(Box::new(granted))))
        }
        JobOutcome::AlreadyFinished => no(JobRefusal::AlreadyFinished),
        JobOutcome::Locked(_) => no(JobRefusal::Locked),
        _ => Err(refused(&app, &session, applied)),
    }
}

fn bid(session: &Session, body: &AcquireJob) -> Result<Bid, Failure> {
    let given = body.lease_id.as_ref().map(|secret| LeaseId::parse(&secret.0)).transpose()?;
    let worker = body.worker.as_deref().map(WorkerName::parse).transpose()?;
    Ok(Bid {
        lease_id: given.map_or_else(new_lease_id, Ok)?,
        owner: session.caller.subject.clone(),
        tab: None,
        ttl: ttl(body.ttl_seconds)?.map_or_else(|| Ttl::new(TTL), Ok)?,
        meta: session.caller.worker_meta(worker.as_ref())?,
    })
}

/// Go on with a job
///
/// `refresh_after_ms` after the last time, until the job is done.
#[utoipa::path(
    post, path = "/api/jobs/{collection}/{id}/refresh", tag = "Jobs",
    params(JobPath),
    request_body = RefreshJob,
    responses((status = 200, body = JobHold),
              refusal::LeaseOver)
)]
pub(crate) async fn refresh(
    State(app): State<Arc<App>>,
    session: Session,
    Path((collection, id)): Path<(String, String)>,
    Body(body): Body<RefreshJob>,
) -> Result<Json<JobHold>, Failure> {
    let id = session.job(&collection, &id, Level::Lock)?;
    let (claim, ttl) = (session.claim_to_attempt(&body.lease_id, body.fence)?, ttl(body.ttl_seconds)?);
    let applied = app.apply_job(&id, JobCommand::Refresh { claim, ttl }).await?;
    match &applied.outcome {
        JobOutcome::Refreshed(lease) => {
            app.metrics.renewed();
            Ok(Json(views::job_hold(lease, Moment::new(&app, applied.now))))
        }
        _ => Err(refused(&app, &session, applied)),
    }
}

/// Give a job back unfinished
///
/// The attempt does not count. Without a fence, an acquire is cancelled that was not answered, or not yet.
#[utoipa::path(
    post, path = "/api/jobs/{collection}/{id}/release", tag = "Jobs",
    params(JobPath),
    request_body = ReleaseJob,
    responses((status = 204, description = "It is free again"),
              refusal::LeaseOver)
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    session: Session,
    Path((collection, id)): Path<(String, String)>,
    Body(body): Body<ReleaseJob>,
) -> Result<StatusCode, Failure> {
    let id = session.job(&collection, &id, Level::Lock)?;
    let command = match body.fence {
        Some(fence) => JobCommand::Release(session.claim_to_attempt(&body.lease_id, fence)?),
        None => {
            let (lease_id, owner) = (LeaseId::parse(&body.lease_id.0)?, session.caller.subject.clone());
            JobCommand::Withdraw { lease_id, owner }
        }
    };
    let applied = app.apply_job(&id, command).await?;
    match &applied.outcome {
        JobOutcome::Released | JobOutcome::Withdrawn => Ok(StatusCode::NO_CONTENT),
        _ => Err(refused(&app, &session, applied)),
    }
}

/// A job is done
///
/// Later acquires get the stored result. Repeating the call is safe; another result for the same attempt is refused.
#[utoipa::path(
    post, path = "/api/jobs/{collection}/{id}/complete", tag = "Jobs",
    params(JobPath),
    request_body = CompleteJob,
    responses((status = 204, description = "It is ready"),
              refusal::LeaseOver)
)]
pub(crate) async fn complete(
    State(app): State<Arc<App>>,
    session: Session,
    Path((collection, id)): Path<(String, String)>,
    Body(body): Body<CompleteJob>,
) -> Result<StatusCode, Failure> {
    let id = session.job(&collection, &id, Level::Lock)?;
    let (claim, result) =
        (session.claim_to_attempt(&body.lease_id, body.fence)?, job_text(&body.result.to_text())?);
    let applied = app.apply_job(&id, JobCommand::Complete { claim, result }).await?;
    match &applied.outcome {
        JobOutcome::Completed => Ok(StatusCode::NO_CONTENT),
        _ => Err(refused(&app, &session, applied)),
    }
}

/// An attempt at a job failed
///
/// It is tried again if that makes sense and there are attempts left; otherwise the job has failed.
#[utoipa::path(
    post, path = "/api/jobs/{collection}/{id}/fail", tag = "Jobs",
    params(JobPath),
    request_body = FailJob,
    responses((status = 200, body = JobFailed),
              refusal::LeaseOver)
)]
pub(crate) async fn fail(
    State(app): State<Arc<App>>,
    session: Session,
    Path((collection, id)): Path<(String, String)>,
    Body(body): Body<FailJob>,
) -> Result<Json<JobFailed>, Failure> {
    let id = session.job(&collection, &id, Level::Lock)?;
    let (claim, error) = (session.claim_to_attempt(&body.lease_id, body.fence)?, job_text(&body.error)?);
    let command = JobCommand::Fail { claim, error, retryable: body.retryable.unwrap_or(true) };
    let applied = app.apply_job(&id, command).await?;
    match applied.outcome {
        JobOutcome::Failed { again } => Ok(Json(JobFailed { again })),
        _ => Err(refused(&app, &session, applied)),
    }
}

/// Have a job done all over again
///
/// Also a finished or failed one, but not while a worker has it. Needs `force` on the job.
#[utoipa::path(
    post, path = "/api/jobs/{collection}/{id}/reset", tag = "Jobs",
    params(JobPath),
    responses((status = 200, body = JobState),
              refusal::JobRunning)
)]
pub(crate) async fn reset(
    State(app): State<Arc<App>>,
    session: Session,
    Path((collection, id)): Path<(String, String)>,
) -> Result<Json<JobState>, Failure> {
    let id = session.job(&collection, &id, Level::Force)?;
    let applied = app.apply_job(&id, JobCommand::Reset).await?;
    match &applied.outcome {
        JobOutcome::Reset => {
            tracing::info!(job = %id, by = %session.caller.subject, "a job was reset");
            Ok(Json(state(&app, &session, &id, job_of(&applied)?, &applied)))
        }
        JobOutcome::Locked(held) => {
            let moment = Moment::new(&app, applied.now);
            Err(Failure::job_running(views::held(held, &session.caller, moment)))
        }
        _ => Err(refused(&app, &session, applied)),
    }
}

impl App {
    async fn apply_job(&self, id: &JobId, command: JobCommand) -> Result<JobApplied, Failure> {
        self.of_store(self.store.apply_job(id.key(), command)).await
    }
}

/// The job, if there is one.
fn job_of(applied: &JobApplied) -> Result<&Job, Failure> {
    applied.record.job.as_ref().ok_or_else(|| Failure::new(Code::JobNotFound))
}

fn refused(app: &App, session: &Session, applied: JobApplied) -> Failure {
    if let Err(missing) = job_of(&applied) {
        return missing;
    }
    match applied.outcome {
        JobOutcome::NotYours(_) => Failure::new(Code::NotHolder),
        JobOutcome::Lost { because, held } => {
            app.metrics.lost();
            let moment = Moment::new(app, applied.now);
            Failure::attempt_over(because, held.map(|held| views::held(&held, &session.caller, moment)))
        }
        JobOutcome::AlreadyFinished => {
            Failure::attempt_over(leasehold_core::lease::LossReason::Released, None).because_of(
                "another program finished the job meanwhile, and its result stays; look at the job",
            )
        }
        JobOutcome::OwnerIsFull => Failure::new(Code::TooManyLeases)
            .because_of("finish or release a job that you have, or use another token")
            .retry_after(TTL),
        JobOutcome::FencesExhausted => Failure::fences_exhausted(),
        other => {
            tracing::error!(?other, "the store answered with something that the rules do not know");
            Failure::new(Code::Internal)
        }
    }
}

pub(super) fn ttl(seconds: Option<u64>) -> Result<Option<Ttl>, Invalid> {
    seconds.map(Ttl::from_secs).transpose()
}

fn max_attempts(given: Option<u64>) -> Result<Option<u32>, Failure> {
    let read = |number: u64| u32::try_from(number).ok().filter(|number| *number > 0);
    match given.map(read) {
        None => Ok(None),
        Some(Some(number)) => Ok(Some(number)),
        Some(None) => Err(Failure::invalid(
            "max_attempts lies between 1 and 4294967295; leave it out for as often as it takes",
        )),
    }
}

fn job_text(text: &str) -> Result<JobText, Failure> {
    if text.len() > JobText::MAX_BYTES {
        let detail = format!(
            "a payload, a result or an error has at most {} bytes as JSON, this one has {}; keep it elsewhere, and its address here",
            JobText::MAX_BYTES,
            text.len()
        );
        return Err(Failure::new(Code::TooLarge).because_of(detail));
    }
    Ok(JobText::parse(text)?)
}
