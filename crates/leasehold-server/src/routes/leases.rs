//! Leases of programs: acquire, renew, release, look, and cancelling an acquire. Each is one call of the store, and whose
//! lease it is about is decided there, by lease id and owner.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use leasehold_core::lease::Bid;
use leasehold_core::wire::leases::{AcquireLease, LeaseGrant, LeaseHold, LeaseState, RenewLease};
use leasehold_core::{Command, LeaseName, Outcome, Ttl, WorkerName};
use leasehold_store::Applied;

use super::jobs::ttl;
use super::{new_lease_id, not_held_or, refused};
use crate::App;
use crate::caller::Level;
use crate::error::{Code, Failure, refusal};
use crate::session::{OptionalBody, Session};
use crate::views::{self, Moment};

/// How long a lease lasts without a renewal, unless the program says otherwise.
const TTL: Duration = Duration::from_secs(30);

/// Which lease a call is about.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // describes it; the routes take it apart by themselves
pub(crate) struct LeasePath {
    /// Its name; a slash in it is sent as `%2F`
    #[param(format = "lease-name", example = "nightly-report")]
    name: String,
}

/// Whose lease a call is about.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // describes it; `Session` takes it apart
pub(crate) struct ProgramHeader {
    /// The lease id of the acquire
    #[param(format = "uuid", rename = "Lease-Id")]
    lease_id: String,
}

/// Acquire a lease
///
/// Send a `lease_id` of your own, so that you can repeat the call when its answer got lost: it gives the same lease,
/// extended.
#[utoipa::path(
    post, path = "/api/leases/{name}", tag = "Leases",
    params(LeasePath, ("Lease-Id" = Option<String>, Header, format = "uuid",
                       description = "The lease id for the lease that you want; it counts more than one in the body")),
    request_body = Option<AcquireLease>,
    responses((status = 200, body = LeaseGrant),
              refusal::Held, refusal::LeaseOver)
)]
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    session: Session,
    Path(name): Path<String>,
    OptionalBody(body): OptionalBody<AcquireLease>,
) -> Result<Json<LeaseGrant>, Failure> {
    let name = session.lease(&name, Level::Lock)?;
    let applied = app.apply_lease(&name, Command::Acquire(bid(&session, &body)?)).await?;
    match applied.outcome {
        Outcome::Granted { lease, .. } => {
            Ok(Json(views::lease_grant(&lease, Moment::new(&app, applied.now))))
        }
        _ => Err(refused(&app, &session, applied)),
    }
}

fn bid(session: &Session, body: &AcquireLease) -> Result<Bid, Failure> {
    let program = body.program.as_deref().map(WorkerName::parse).transpose()?;
    Ok(Bid {
        lease_id: session.lease_id(body.lease_id.as_ref())?.map_or_else(new_lease_id, Ok)?,
        owner: session.caller.subject.clone(),
        tab: None,
        ttl: ttl(body.ttl_seconds)?.map_or_else(|| Ttl::new(TTL), Ok)?,
        meta: session.caller.worker_meta(program.as_ref())?,
    })
}

/// Renew a lease
///
/// `renew_after_ms` after the last time, until the work is done.
#[utoipa::path(
    put, path = "/api/leases/{name}", tag = "Leases",
    params(LeasePath, ProgramHeader),
    request_body = Option<RenewLease>,
    responses((status = 200, body = LeaseHold),
              refusal::NotHolder)
)]
pub(crate) async fn renew(
    State(app): State<Arc<App>>,
    session: Session,
    Path(name): Path<String>,
    OptionalBody(body): OptionalBody<RenewLease>,
) -> Result<Json<LeaseHold>, Failure> {
    let name = session.lease(&name, Level::Lock)?;
    let (claim, ttl) = (session.program_claim()?, ttl(body.ttl_seconds)?);
    let applied = app.apply_lease(&name, Command::Renew { claim, ttl }).await?;
    match applied.outcome {
        Outcome::Renewed(lease) => {
            app.metrics.renewed();
            Ok(Json(views::lease_hold(&lease, Moment::new(&app, applied.now))))
        }
        _ => Err(not_held(&app, &session, applied)),
    }
}

/// Release a lease
#[utoipa::path(
    delete, path = "/api/leases/{name}", tag = "Leases",
    params(LeasePath, ProgramHeader),
    responses((status = 204, description = "It is free"),
              refusal::NotHolder)
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    session: Session,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    let name = session.lease(&name, Level::Lock)?;
    let applied = app.apply_lease(&name, Command::Release(session.program_claim()?)).await?;
    match applied.outcome {
        Outcome::Released => Ok(StatusCode::NO_CONTENT),
        _ => Err(not_held(&app, &session, applied)),
    }
}

/// Look at a lease
#[utoipa::path(
    get, path = "/api/leases/{name}", tag = "Leases",
    params(LeasePath),
    responses((status = 200, body = LeaseState))
)]
pub(crate) async fn look(
    State(app): State<Arc<App>>,
    session: Session,
    Path(name): Path<String>,
) -> Result<Json<LeaseState>, Failure> {
    let name = session.lease(&name, Level::Read)?;
    let reading = app.of_store(app.store.read(name.key())).await?;
    let moment = Moment::new(&app, reading.now);
    Ok(Json(views::lease_state(&name, &reading.slot, &session.caller, moment)))
}

/// Cancel an acquire
///
/// For one that was not answered, or whose answer you did not wait for: the lease is released if it was granted, and a copy
/// of the acquire that is still on the way will not be granted.
#[utoipa::path(
    post, path = "/api/leases/{name}/cancel", tag = "Leases",
    params(LeasePath, ProgramHeader),
    responses((status = 204, description = "Nothing under this lease id is held"),
              refusal::NotHolder)
)]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    session: Session,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    let name = session.lease(&name, Level::Lock)?;
    let lease_id = session.program_lease_id()?;
    let command = Command::Withdraw { lease_id, owner: session.caller.subject.clone() };
    let applied = app.apply_lease(&name, command).await?;
    match applied.outcome {
        Outcome::Withdrawn => Ok(StatusCode::NO_CONTENT),
        _ => Err(not_held(&app, &session, applied)),
    }
}

impl App {
    async fn apply_lease(&self, name: &LeaseName, command: Command) -> Result<Applied, Failure> {
        self.of_store(self.store.apply(name.key(), command)).await
    }
}

fn not_held(app: &App, session: &Session, applied: Applied) -> Failure {
    not_held_or(Code::LeaseNotFound, app, session, applied)
}
