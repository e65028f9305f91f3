//! A layer for tower and axum that refuses a save with a stale fence, before it costs anything.
//!
//! It is advice: between its question and the write, the lock can change hands. What closes that gap is the write
//! itself, which must compare the fence (`… WHERE lock_fence <= :fence`). If Leasehold cannot be asked, nothing is let
//! through.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use ::http::request::Parts;
use ::http::{Method, Request, Response, StatusCode};
use leasehold_core::wire::documents::{Checked, Problem};
use leasehold_core::{Fence, RoomId};
use tower::{Layer, Service};

use crate::http::{Error, HttpClient};

/// The header in which a save brings the fence of its lock.
pub const LEASE_FENCE: HeaderName = HeaderName::from_static("lease-fence");

/// How long a client is asked to wait when Leasehold could not be asked, in seconds.
const A_MOMENT: u64 = 1;

/// Refuses requests that would change a document without the fence of its present lock.
///
/// Of the requests for which the function names a document, those that only read (`GET`, `HEAD`, `OPTIONS`, `TRACE`) pass. The others
/// need a header `Lease-Fence`:
///
/// | | answer |
/// |---|---|
/// | it is the fence of the lock that is held now | passed on, with the [`Fence`] as an extension of the request |
/// | it is not there | `428`, code `fence_missing` |
/// | it is no fence | `400`, code `invalid` |
/// | it is older, or the lock is over | `412`, code `fence_stale` |
/// | Leasehold cannot be asked | `503` with `Retry-After`, code `unavailable` |
#[derive(Clone)]
pub struct FenceLayer<F> {
    client: HttpClient,
    room: Arc<F>,
}

/// What [`FenceLayer`] puts around a service.
#[derive(Clone)]
pub struct FenceService<S, F> {
    inner: S,
    client: HttpClient,
    room: Arc<F>,
}

impl<F: Fn(&Parts) -> Option<RoomId>> FenceLayer<F> {
    /// Asks `client`, whose token needs `read`. `room` says which document a request is about; `None` lets it pass,
    /// as none of our business.
    pub fn new(client: HttpClient, room: F) -> Self {
        Self { client, room: Arc::new(room) }
    }
}

impl<S, F> Layer<S> for FenceLayer<F> {
    type Service = FenceService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        FenceService { inner, client: self.client.clone(), room: self.room.clone() }
    }
}

impl<S, F, Body, ResponseBody> Service<Request<Body>> for FenceService<S, F>
where
    S: Service<Request<Body>, Response = Response<ResponseBody>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Parts) -> Option<RoomId>,
    Body: Send + 'static,
    ResponseBody: From<String>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that was polled to be ready is used up, and a fresh one takes its place.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let (mut parts, body) = request.into_parts();
        let room = if is_safe(&parts.method) { None } else { (self.room)(&parts) };
        let client = self.client.clone();
        Box::pin(async move {
            if let Some(room) = room {
                match check(&client, &room, &parts).await {
                    Ok(fence) => drop(parts.extensions.insert(fence)),
                    Err(refusal) => return Ok(refusal.response()),
                }
            }
            inner.call(Request::from_parts(parts, body)).await
        })
    }
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

async fn check(client: &HttpClient, room: &RoomId, parts: &Parts) -> Result<Fence, Refusal> {
    let fence = fence_of(parts)?;
    match client.check(room, fence).await {
        Ok(Checked { current: true, .. }) => Ok(fence),
        Ok(stale) => Err(Refusal::Stale(Box::new(stale))),
        Err(error) => Err(Refusal::CannotAsk(error)),
    }
}

fn fence_of(parts: &Parts) -> Result<Fence, Refusal> {
    let mut values = parts.headers.get_all(LEASE_FENCE).iter();
    let Some(value) = values.next() else { return Err(Refusal::Missing) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    let fence = number.and_then(|number| Fence::new(number).ok()).filter(|_| values.next().is_none());
    fence.ok_or(Refusal::NoFence)
}

/// Why a request is not passed on.
enum Refusal {
    Missing,
    NoFence,
    Stale(Box<Checked>),
    CannotAsk(Error),
}

impl Refusal {
    fn response<Body: From<String>>(self) -> Response<Body> {
        let wait = matches!(self, Self::CannotAsk(_));
        let problem = self.problem();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let body = serde_json::to_string(&problem).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if wait {
            headers.insert(RETRY_AFTER, HeaderValue::from(A_MOMENT));
        }
        response
    }

    fn problem(self) -> Problem {
        let (status, code, title, detail) = match self {
            Self::Missing => (
                428,
                "fence_missing",
                "The save does not say under which lock",
                "lock the document, and send the fence of the lock in the header Lease-Fence".to_owned(),
            ),
            Self::NoFence => (
                400,
                "invalid",
                "The request breaks a rule",
                "Lease-Fence is the fence that came with the lock, unchanged, and is there once".to_owned(),
            ),
            Self::Stale(now) => {
                let holder = now.holder.map_or_else(|| "nobody".to_owned(), |holder| holder.name);
                let detail = format!(
                    "{holder} holds the document now; keep the draft, lock it again and look at what changed"
                );
                (412, "fence_stale", "The lock of this save is over", detail)
            }
            Self::CannotAsk(error) => {
                // The cause concerns the operator, not the user who saves.
                tracing::warn!(%error, "saves are refused: Leasehold cannot be asked about their fences");
                let detail = "whether the lock is still held is not known; try again".to_owned();
                (503, "unavailable", "Not possible right now", detail)
            }
        };
        Problem {
            kind: "about:blank".to_owned(),
            title: title.to_owned(),
            status,
            code: code.to_owned(),
            detail: Some(detail),
            ..Problem::default()
        }
    }
}

impl<F> std::fmt::Debug for FenceLayer<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FenceLayer").field("client", &self.client).finish_non_exhaustive()
    }
}
