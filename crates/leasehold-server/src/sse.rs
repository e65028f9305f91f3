//! Writes a subscription as server-sent events. What comes when is decided in `subscription`; here are only names, ids,
//! headers and the comment that keeps a silent connection open.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use leasehold_core::wire::documents::EndOfStream;
use serde::Serialize;

use crate::rates::StreamPermit;
use crate::subscription::{Item, Subscription};

/// How often a silent stream sends a comment, so that both sides and the proxies between them know that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The response that carries the subscription. The permit is held as long as the stream is open.
pub(crate) fn response(subscription: Subscription, permit: StreamPermit) -> Response {
    let events = subscription.into_stream().map(move |item| {
        let _open = &permit;
        Ok::<_, Infallible>(encode(&item))
    });
    let headers = [("x-accel-buffering", "no"), ("cache-control", "no-store")];
    (headers, Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))).into_response()
}

fn encode(item: &Item) -> Event {
    match item {
        Item::State(state) => with_data(named("snapshot", Some(state.seq)), state),
        Item::States { id, part } => with_data(named("snapshot", *id), part),
        Item::Event { id, event } => with_data(named(event.event.event.as_str(), Some(*id)), &event.event),
        Item::End(reason) => with_data(named("end", None), &EndOfStream { reason: *reason }),
    }
}

fn named(name: &str, id: Option<u64>) -> Event {
    let event = Event::default().event(name);
    match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    }
}

fn with_data(event: Event, data: &impl Serialize) -> Event {
    // Types of the wire format always serialize.
    event.json_data(data).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Method, Request};
    use leasehold_store::Memory;
    use tower::ServiceExt;

    use crate::auth::Auth;
    use crate::{Config, Server};

    /// The channel of a document was released by the stream that a watcher reads. A response whose body was never polled, as
    /// after a `HEAD`, left it behind for ever: ten kilobytes each.
    #[tokio::test(start_paused = true)]
    async fn a_response_that_nobody_reads_leaves_no_channel_behind() {
        let server = Server::start(std::sync::Arc::new(Memory::new()), Config::new(Auth::Open)).unwrap();
        for (number, method) in [Method::HEAD, Method::GET].into_iter().cycle().take(20).enumerate() {
            let request = Request::builder()
                .method(method)
                .uri(format!("/api/documents/d{number}/events?last_event_id={}", number % 3));
            let answer = server.router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert!(answer.status().is_success());
            drop(answer);
            assert_eq!(server.app.hub.rooms(), 0);
        }
        server.end().await;
    }
}
