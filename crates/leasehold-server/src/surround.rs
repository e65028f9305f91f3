//! What surrounds every route: a request is counted, timed and logged, a panic and a refusal are written out, and every
//! response has the same fixed headers.
//!
//! One service does all of it, because every layer around a route is cloned and boxed anew for each request. A log line has
//! the route's template, never the path or the query: they name documents, and may carry a ticket.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use tower::{Layer, Service};

use crate::App;
use crate::accept::ClientAddress;
use crate::error::{Code, Failure, Language};
use crate::metrics::KnownSeries;

/// The layer.
#[derive(Clone)]
pub(crate) struct Surround(pub(crate) Arc<App>);

impl<S> Layer<S> for Surround {
    type Service = Surrounded<S>;

    fn layer(&self, route: S) -> Surrounded<S> {
        Surrounded { app: self.0.clone(), known: Arc::default(), route }
    }
}

/// A route with everything around it.
#[derive(Clone)]
pub(crate) struct Surrounded<S> {
    app: Arc<App>,
    known: Arc<KnownSeries>,
    route: S,
}

impl<S> Service<Request> for Surrounded<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.route.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let asked = Asked {
            start: Instant::now(),
            known: self.known.clone(),
            method: request.method().clone(),
            route: request.extensions().get::<MatchedPath>().cloned(),
            from: request.extensions().get::<ClientAddress>().copied(),
            language: Language::of(request.headers()),
        };
        let answer = catch_unwind(AssertUnwindSafe(|| self.route.call(request)));
        Answering { app: self.app.clone(), asked, answer }
    }
}

/// What is kept of a request until it is answered.
struct Asked {
    start: Instant,
    known: Arc<KnownSeries>,
    method: Method,
    route: Option<MatchedPath>,
    from: Option<ClientAddress>,
    language: Language,
}

/// The answer of a route, on its way.
pub(crate) struct Answering<F> {
    app: Arc<App>,
    asked: Asked,
    /// The route's future, or the panic that it began with.
    answer: Result<F, Box<dyn Any + Send>>,
}

impl<F> Future for Answering<F>
where
    F: Future<Output = Result<Response, Infallible>> + Unpin,
{
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = match &mut self.answer {
            // A route that has panicked is not polled again: the response is complete.
            Ok(answer) => catch_unwind(AssertUnwindSafe(|| Pin::new(answer).poll(cx))),
            Err(_) => Ok(Poll::Ready(Ok(panicked()))),
        };
        let Ok(response) = ready!(polled.unwrap_or_else(|_| Poll::Ready(Ok(panicked()))));
        self.asked.note(&self.app, &response);
        let mut response = Failure::render(response, self.asked.language);
        fix_headers(response.headers_mut());
        Poll::Ready(Ok(response))
    }
}

/// The panic itself is in the log, by the hook for panics.
fn panicked() -> Response {
    Failure::new(Code::Internal).into_response()
}

impl Asked {
    /// Counts and logs the request.
    fn note(&self, app: &App, response: &Response) {
        let (route, status) = (self.route.as_ref().map(MatchedPath::as_str), response.status());
        let took = self.start.elapsed();
        app.metrics.request(&self.known, route, &self.method, status, took);
        let (method, took_ms) = (&self.method, took.as_secs_f64() * 1_000.0);
        let from = self.from.map(|address| tracing::field::display(address.0));
        tracing::info!(%method, route, status = status.as_u16(), took_ms, from, "request");
    }
}

/// Sets the headers that every response has, unless a route has set them.
fn fix_headers(headers: &mut HeaderMap) {
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
}
