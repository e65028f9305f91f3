//! Webhooks: every take-over and forced release of a document is posted to an address of the operator's, signed.
//!
//! It follows the store's feed, not the requests, so that no call ever waits for a receiver. Between the two is a bounded queue:
//! a receiver that is down for long loses messages, which is counted and logged; the audit has all of them. A message has what
//! the audit has, and never a lease id.

use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use leasehold_core::wire::documents::{AuditAction, AuditEntry};
use leasehold_core::{Position, Retries, RetryPolicy, RoomId};
use leasehold_store::{Feed, MAX_EVENTS, Range, Store, jitter};
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::audit;
use crate::config::WallClock;
use crate::files::ConfigError;
use crate::metrics::{Metrics, Webhook};

/// How many messages wait for a receiver that is slow or down.
const QUEUE: usize = 1_024;

/// How often a message is tried: over some one and a half minutes.
const ATTEMPTS: u32 = 14;

/// How long a receiver has for its answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// What was sent, under which number, when, and the signature over both.
const EVENT: HeaderName = HeaderName::from_static("leasehold-event");
const DELIVERY: HeaderName = HeaderName::from_static("leasehold-delivery");
const TIMESTAMP: HeaderName = HeaderName::from_static("leasehold-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("leasehold-signature");

/// Where messages go, and what signs them.
#[derive(Clone)]
pub struct WebhookSettings {
    /// The address; it may hold a secret, and is never logged.
    pub url: String,
    /// Signs every message.
    pub secret: Vec<u8>,
}

impl WebhookSettings {
    /// The shortest secret.
    pub const SHORTEST_SECRET: usize = 32;

    /// Refuses settings that cannot work.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        Target::parse("webhook.url", &self.url)?;
        if self.secret.len() < Self::SHORTEST_SECRET {
            let rule = format!("it has at least {} bytes", Self::SHORTEST_SECRET);
            return Err(ConfigError::new(
                "the secret of webhooks",
                rule,
                "make one with `openssl rand -hex 32`",
            ));
        }
        Ok(())
    }
}

/// An address that JSON is posted to.
#[derive(Clone)]
pub struct Target {
    http: reqwest::Client,
    url: Url,
}

/// Why a message did not arrive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// Another attempt may help.
    #[error("{0}")]
    Temporary(String),
    /// The receiver refuses it.
    #[error("the receiver refuses it with status {0}")]
    Refused(u16),
}

impl Target {
    /// Checks an address. `what` is the setting that it comes from. The address is not repeated: it may hold a secret.
    pub fn parse(what: &str, url: &str) -> Result<Self, ConfigError> {
        let refuse = |rule: String| ConfigError::new(what, rule, "write it like https://hooks.example.com/…");
        let url = Url::parse(url.trim()).map_err(|error| refuse(format!("it is no URL ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(refuse("an address of http: or https: is needed".into()));
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // It fails where another thread has chosen in between.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let http = client
            .timeout(ANSWER_TIME)
            .build()
            .map_err(|error| refuse(format!("no connection can be made ({error})")))?;
        Ok(Self { http, url })
    }

    /// Posts JSON, once.
    pub async fn post(&self, headers: HeaderMap, body: Vec<u8>) -> Result<(), PostError> {
        let request = self.http.post(self.url.clone()).headers(headers);
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body);
        // Without the address, which may hold a secret.
        let answer =
            request.send().await.map_err(|error| PostError::Temporary(error.without_url().to_string()))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            // Too early, too often, or a failure of its own: later may be better.
            status if matches!(status.as_u16(), 408 | 425 | 429) || status.is_server_error() => {
                Err(PostError::Temporary(format!("the receiver answers with status {}", status.as_u16())))
            }
            status => Err(PostError::Refused(status.as_u16())),
        }
    }
}

/// Follows the store and sends messages, until the shutdown.
pub(crate) struct Follower {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) wall_clock: WallClock,
    pub(crate) metrics: Metrics,
    /// Cancelled once the position is known from which on messages are sent.
    pub(crate) begun: CancellationToken,
    pub(crate) shutdown: CancellationToken,
}

impl Follower {
    pub(crate) async fn run(self, settings: WebhookSettings) {
        let target = match Target::parse("webhook.url", &settings.url) {
            Ok(target) => target,
            Err(error) => {
                self.begun.cancel();
                return tracing::error!(%error, "no webhooks are sent");
            }
        };
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (wall_clock, metrics) = (self.wall_clock.clone(), self.metrics.clone());
        let sender = Sender { target, secret: settings.secret, wall_clock, metrics };
        tokio::join!(sender.run(waiting, self.shutdown.clone()), self.follow(&queue));
    }

    /// Passes on what happens from now on.
    async fn follow(&self, queue: &mpsc::Sender<AuditEntry>) {
        let mut position: Option<Position> = None;
        let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
        loop {
            let turned = tokio::select! {
                () = self.shutdown.cancelled() => return,
                turned = self.turn(position) => turned,
            };
            match turned {
                Ok((from, feed)) => {
                    retries.succeeded();
                    position = Some(feed.map_or(from, |feed| self.pass_on(feed, from, queue)));
                    self.begun.cancel();
                }
                Err(error) => {
                    tracing::warn!(%error, "webhooks cannot read the store's events; trying again");
                    if tokio::time::timeout(retries.pause(), self.shutdown.cancelled()).await.is_ok() {
                        return;
                    }
                }
            }
        }
    }

    /// The newest position at first, and then what happened after the last one.
    async fn turn(&self, position: Option<Position>) -> leasehold_store::Result<(Position, Option<Feed>)> {
        let Some(from) = position else {
            let range = Range { limit: 1, ..Range::prefix(RoomId::DOOR) };
            return Ok((self.store.list(&range).await?.position, None));
        };
        Ok((from, Some(self.store.events(from, MAX_EVENTS).await?)))
    }

    /// Queues what the feed brought; returns the position that was reached. It never waits.
    fn pass_on(&self, feed: Feed, from: Position, queue: &mpsc::Sender<AuditEntry>) -> Position {
        let events = match feed {
            Feed::Events(events) => events,
            Feed::Gap { resume_from } => {
                tracing::warn!("the store has dropped events; webhooks for them are not sent");
                return resume_from;
            }
        };
        let at = || crate::flags::shown_time((self.wall_clock)());
        for entry in events.iter().filter_map(|event| audit::entry(event, at())) {
            if queue.try_send(entry).is_err() {
                self.metrics.webhook(Webhook::Dropped);
                tracing::warn!(
                    "the receiver of webhooks is too slow: a message was dropped; the audit has it"
                );
            }
        }
        events.last().map_or(from, |last| last.position)
    }
}

/// Sends one message after the other.
struct Sender {
    target: Target,
    secret: Vec<u8>,
    wall_clock: WallClock,
    metrics: Metrics,
}

impl Sender {
    async fn run(self, mut waiting: mpsc::Receiver<AuditEntry>, shutdown: CancellationToken) {
        loop {
            let sent = async {
                match waiting.recv().await {
                    Some(entry) => self.deliver(&entry).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = sent => {}
            }
        }
        if !waiting.is_empty() {
            tracing::warn!(
                messages = waiting.len(),
                "webhooks were not sent before the end; the audit has them"
            );
        }
    }

    /// Sends a message, and again until it arrives, is refused, or the attempts are over.
    async fn deliver(&self, entry: &AuditEntry) {
        let mut retries = Retries::new(RetryPolicy::PATIENT.attempts(ATTEMPTS), jitter());
        loop {
            let (headers, body) = self.message(entry);
            let error = match self.target.post(headers, body).await {
                Ok(()) => return self.metrics.webhook(Webhook::Sent),
                Err(error) => error,
            };
            let again = retries.failed().filter(|_| matches!(error, PostError::Temporary(_)));
            let Some(wait) = again else {
                tracing::error!(%error, position = entry.position, "a webhook was given up; the audit has it");
                return self.metrics.webhook(Webhook::Failed);
            };
            tracing::debug!(%error, "a webhook did not arrive; trying again");
            tokio::time::sleep(wait).await;
        }
    }

    /// The message, signed anew for each attempt: a receiver may refuse old signatures.
    fn message(&self, entry: &AuditEntry) -> (HeaderMap, Vec<u8>) {
        let body = serde_json::to_vec(entry).unwrap_or_default();
        let timestamp = ((self.wall_clock)() / 1_000).to_string();
        let action = match entry.action {
            AuditAction::TakenOver => "taken_over",
            AuditAction::ForceReleased => "force_released",
        };
        let signature = format!("v1={}", sign(&self.secret, &timestamp, &body));
        // The same on every server that shares the store.
        let delivery = format!("{}-{}", entry.position, entry.fence);
        let mut headers = HeaderMap::new();
        for (name, value) in
            [(EVENT, action), (DELIVERY, &delivery), (TIMESTAMP, &timestamp), (SIGNATURE, &signature)]
        {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        (headers, body)
    }
}

/// HMAC-SHA256 over the time, a dot and the body, in hexadecimal.
fn sign(secret: &[u8], timestamp: &str, body: &[u8]) -> String {
    // HMAC takes a key of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checked with `printf '1767268800.{"a":1}' | openssl dgst -sha256 -hmac "$secret"`.
    #[test]
    fn the_signature_is_that_of_openssl() {
        let signature = sign(b"a secret of at least thirty-two bytes", "1767268800", br#"{"a":1}"#);
        assert_eq!(signature, "904726a104b8ecf441e7d009a0b55447e7b74bf65f0cc729ef186b451f2547e6");
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_and_not_repeated() {
        for url in ["", "hooks.example.com", "ftp://x/hunter2", "file:///hunter2"] {
            let error = Target::parse("webhook.url", url).err().unwrap().to_string();
            assert!(error.contains("webhook.url") && !error.contains("hunter2"), "{error}");
        }
        let short = WebhookSettings { url: "https://a.example/".into(), secret: b"short".to_vec() };
        assert!(short.check().unwrap_err().to_string().contains("at least 32 bytes"));
    }

    /// A receiver that hangs must not cost more memory than the queue.
    #[tokio::test]
    async fn what_does_not_fit_into_the_queue_is_dropped_and_counted() {
        use leasehold_core::event::EndReason;
        use leasehold_core::{Event, EventKind, Fence, Key, Owner, Published, StoreTime};
        let (queue, mut waiting) = mpsc::channel(2);
        let metrics = Metrics::new();
        let because = EndReason::TakenOver { by: Owner::parse("ben").unwrap(), reason: "x".parse().unwrap() };
        let event = |position| Published {
            position: Position(position),
            event: Event {
                key: Key::parse("doc/minutes").unwrap(),
                seq: position,
                at: StoreTime::ZERO,
                owner: Owner::parse("anna").unwrap(),
                fence: Fence::new(7).unwrap(),
                kind: EventKind::Ended { because: because.clone() },
            },
        };
        let events = (1..=5).map(event).collect();
        let follower = Follower {
            store: Arc::new(leasehold_store::Memory::new()),
            wall_clock: Arc::new(|| 1_767_268_800_000),
            metrics: metrics.clone(),
            begun: CancellationToken::new(),
            shutdown: CancellationToken::new(),
        };
        let reached = follower.pass_on(Feed::Events(events), Position(0), &queue);
        assert_eq!(reached, Position(5));
        assert!(metrics.render().contains("leasehold_webhooks_total{result=\"dropped\"} 3"));
        assert_eq!(waiting.recv().await.unwrap().position, 1);
    }
}
