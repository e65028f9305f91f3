//! Writes a subscription as server-sent events. What comes when is decided in `subscription`; here are only names, ids,
//! headers and the comment that keeps a silent connection open.

use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use leasehold_core::wire::documents::EndOfStream;
use serde::Serialize;

use crate::hub::HubEvent;
use crate::subscription::{Item, Subscription};

/// How often a silent stream sends a comment, so that both sides and the proxies between them know that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The response that carries the subscription. `held` is kept as long as the stream is open: its permit, and who follows it.
pub(crate) fn response(subscription: Subscription, held: impl Send + 'static) -> Response {
    let written = stream::unfold((subscription, held), async |(mut subscription, held)| {
        let bytes = match tokio::time::timeout(KEEP_ALIVE, subscription.next()).await {
            Ok(item) => write(&item?),
            Err(_) => Bytes::from_static(b":\n\n"),
        };
        Some((Ok::<_, Infallible>(bytes), (subscription, held)))
    });
    let headers =
        [("content-type", "text/event-stream"), ("cache-control", "no-store"), ("x-accel-buffering", "no")];
    (headers, Body::from_stream(written)).into_response()
}

fn write(item: &Item) -> Bytes {
    match item {
        Item::State(state) => frame("snapshot", Some(state.seq), state),
        Item::States { id, part } => frame("snapshot", *id, part),
        Item::Event { id, event } => event.written.get(*id, event),
        Item::End(reason) => frame("end", None, &EndOfStream { reason: *reason }),
    }
}

/// One event: its name, its id and its data in one line each, and an empty line.
fn frame(name: &str, id: Option<u64>, data: &impl Serialize) -> Bytes {
    // Types of the wire format always serialize, and their JSON has no line breaks.
    let data = serde_json::to_string(data).unwrap_or_default();
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n").into()
}

/// An event as it goes out, written once for all of its watchers.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// With its number in the document, for watchers of that document.
    by_seq: OnceLock<Bytes>,
    /// With [its own id](HubEvent::id), for watchers of all documents.
    by_id: OnceLock<Bytes>,
}

impl Written {
    fn get(&self, id: u64, event: &HubEvent) -> Bytes {
        let cell = if id == event.seq { &self.by_seq } else { &self.by_id };
        cell.get_or_init(|| frame(event.event.event.as_str(), Some(id), &event.event)).clone()
    }
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
