//! Telemetry: pages send what they have counted.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use leasehold_core::wire::telemetry::TelemetryBatch;

use crate::App;
use crate::config::Limits;
use crate::error::{Code, Failure, refusal};
use crate::rates::Who;
use crate::session::{self, BeaconBody, Session};
use crate::telemetry::Collector;

/// How often one sender may send. A page sends a batch every half minute, and an address may be that of a whole office.
pub(crate) fn limits() -> Limits {
    Limits { requests_per_second: 20, burst: 200, ..Limits::default() }
}

/// The collector, for a sender that may use it.
pub(crate) struct Allowed(Arc<Collector>);

impl FromRequestParts<Arc<App>> for Allowed {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let (Some(collector), Some(settings)) = (&app.telemetry, &app.config.telemetry) else {
            let detail = "the operator of this server can switch it on with `telemetry.folder`";
            return Err(Failure::new(Code::NoTelemetry).because_of(detail));
        };
        let address = session::address(parts);
        let refused = if settings.anonymous {
            app.telemetry_rates.check(Who::Address(crate::accept::network_of(address)))
        } else {
            let session = Session::from_request_parts(parts, app).await?;
            app.telemetry_rates.check(Who::Caller(session.caller.subject.as_str()))
        };
        refused.map_err(|wait| app.too_many_requests(wait))?;
        Ok(Self(collector.clone()))
    }
}

/// Report counts of events
///
/// For pages that use `leasehold/telemetry`: how often their lock and their autosave did what, since the last report. Words that
/// the server does not know are counted as `other`. Without a token only where the operator allows it; any content type will do, so that
/// `navigator.sendBeacon` can send this.
#[utoipa::path(
    post, path = "/api/telemetry", tag = "Operating", security((), ("token" = [])),
    request_body = TelemetryBatch,
    responses((status = 204, description = "Counted."), refusal::Unauthenticated, refusal::NoTelemetry)
)]
pub(crate) async fn collect(
    State(app): State<Arc<App>>,
    Allowed(collector): Allowed,
    BeaconBody(batch): BeaconBody<TelemetryBatch>,
) -> Result<StatusCode, Failure> {
    batch.check()?;
    let phase = app.flags.phase_of(batch.phase.as_deref());
    collector.add(&batch.counts(&phase), (app.config.wall_clock)());
    Ok(StatusCode::NO_CONTENT)
}
