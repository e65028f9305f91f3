//! For operators and tools: health, readiness, metrics and the API's description.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use leasehold_core::Key;
use leasehold_core::wire::documents::Me;
use leasehold_core::wire::flags::FlagsView;

use crate::App;
use crate::error::{Code, Failure};
use crate::page;
use crate::rates::Who;
use crate::session::{SenderAddress, Session};
use crate::views;

/// How long the store may take before the server counts as not ready.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// Is the process alive?
#[utoipa::path(get, path = "/healthz", tag = "Operating", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn healthz(State(app): State<Arc<App>>) -> &'static str {
    if app.whole.is_some() { "ok\n" } else { "ok, jobs only\n" }
}

/// Can it serve?
///
/// It writes to the store. While the server shuts down it says no, so that nobody is sent here any more.
#[utoipa::path(get, path = "/readyz", tag = "Operating", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<&'static str, Failure> {
    let not_ready =
        |why: &str| Failure::new(Code::Unavailable).because_of(why).retry_after(Duration::from_secs(1));
    if app.stop.is_cancelled() {
        return Err(not_ready("the server is shutting down"));
    }
    match tokio::time::timeout(READY_WITHIN, ask_store(&app)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Err(not_ready("the store cannot be written"))
        }
        Err(_) => Err(not_ready("the store does not answer in time")),
    }
}

/// The key that a store of jobs is asked for: a job that is not there. Writing one would show in the documents of others.
const PROBE: &str = "job/leasehold/readyz";

async fn ask_store(app: &App) -> leasehold_store::Result<&'static str> {
    match &app.whole {
        Some(store) => app.ready.check(store.as_ref()).await.map(|()| "ready\n"),
        None => app.store.read(&Key::parse(PROBE)?).await.map(|_| "ready, jobs only\n"),
    }
}

/// How is it doing?
///
/// In the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "Operating", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    (StatusCode::OK, [(CONTENT_TYPE, kind)], app.metrics.render()).into_response()
}

/// Who am I?
///
/// The caller that the token stands for.
#[utoipa::path(get, path = "/api/me", tag = "Operating", responses((status = 200, body = Me)))]
pub(crate) async fn me(State(app): State<Arc<App>>, session: Session) -> Json<Me> {
    Json(views::me(&session.caller, (app.config.wall_clock)()))
}

/// Which phase are pages in?
///
/// The phase of the roll-out, and whether pages autosave in it. A page asks before it starts an autosave; no token is
/// needed.
#[utoipa::path(get, path = "/api/flags", tag = "Operating", security(()), responses((status = 200, body = FlagsView)))]
pub(crate) async fn flags(
    State(app): State<Arc<App>>,
    SenderAddress(address): SenderAddress,
) -> Result<Response, Failure> {
    app.slow_down(Who::Address(address))?;
    Ok(([(CACHE_CONTROL, HeaderValue::from_static("no-store"))], Json(app.flags.view())).into_response())
}

/// The OpenAPI document.
pub(crate) async fn openapi(State(app): State<Arc<App>>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], app.openapi.clone()).into_response()
}

/// The same for people.
pub(crate) async fn docs(State(app): State<Arc<App>>) -> Response {
    (page::guards(), Html(app.api_page.clone())).into_response()
}
