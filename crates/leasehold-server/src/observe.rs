//! Counts, times and logs every request.
//!
//! A log line has the route's template, never the path or the query: they name documents, and may carry a ticket.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::App;
use crate::accept::ClientAddress;

pub(crate) async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let from = request.extensions().get::<ClientAddress>().map(|address| address.0);
    let response = next.run(request).await;
    let (route, status, took) = (route.as_ref().map(MatchedPath::as_str), response.status(), start.elapsed());
    app.metrics.request(route, &method, status, took);
    let took_ms = took.as_secs_f64() * 1_000.0;
    tracing::info!(%method, route, status = status.as_u16(), took_ms, from = from.map(tracing::field::display), "request");
    response
}
