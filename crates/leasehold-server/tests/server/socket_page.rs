//! A page with a WebSocket, as pusher-js would open it, over a connection in memory: it works on virtual time.

use futures_util::{SinkExt, StreamExt};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use leasehold_server::{PusherApp, PusherSettings};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::harness::{Answer, House, User};

pub const KEY: &str = "app-key";
pub const APP_ID: &str = "docs";
pub const APP_SECRET: &str = "a secret of twenty bytes";

/// How many bytes are on their way to a page that does not read.
const IN_FLIGHT: usize = 16 * 1024;

pub fn settings() -> PusherSettings {
    PusherSettings::new(PusherApp { app_id: APP_ID.into(), key: KEY.into(), secret: APP_SECRET.into() })
}

/// HMAC-SHA256 with the application's secret, as hexadecimal digits.
pub fn signature(text: &str) -> String {
    use hmac::{KeyInit, Mac};
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(APP_SECRET.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A page that is connected.
pub struct Page {
    socket: WebSocketStream<DuplexStream>,
    pub socket_id: String,
}

/// What a page got: the event without its namespace, the channel, and the data, parsed.
#[derive(Debug)]
pub struct Got {
    pub event: String,
    pub channel: Option<String>,
    pub data: Value,
    pub message: Value,
}

/// The next thing on a socket.
#[derive(Debug)]
pub enum Next {
    Got(Got),
    /// The server closed the connection with this code.
    Closed(u16),
    /// The connection broke off.
    Gone,
}

impl House {
    /// Opens a WebSocket.
    pub async fn socket(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> WebSocketStream<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(IN_FLIGHT);
        let service = TowerToHyperService::new(self.router.clone());
        tokio::spawn(async move {
            let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection_with_upgrades(TokioIo::new(theirs), service).await;
        });
        let mut request = format!("ws://leasehold{path}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        tokio_tungstenite::client_async(request, ours).await.unwrap().0
    }

    /// A page that has connected.
    pub async fn page(&self) -> Page {
        let socket = self.socket(&format!("/app/{KEY}?protocol=7&client=js"), &[]).await;
        let mut page = Page { socket, socket_id: String::new() };
        let hello = page.got().await;
        assert_eq!(hello.event, "pusher:connection_established");
        assert_eq!(hello.data["activity_timeout"], 30);
        page.socket_id = hello.data["socket_id"].as_str().unwrap().to_owned();
        page
    }

    /// A page of `user` that subscribes to a channel, which Leasehold signs.
    pub async fn watching(&self, user: &User, channel: &str) -> Page {
        let mut page = self.page().await;
        page.subscribe(user, channel).await;
        page
    }
}

impl Page {
    /// Asks Leasehold to sign a channel.
    pub async fn authorize(&self, user: &User, channel: &str) -> Answer {
        let form = format!("socket_id={}&channel_name={channel}", self.socket_id);
        let user = user.and("content-type", "application/x-www-form-urlencoded");
        user.call(axum::http::Method::POST, "/broadcasting/auth", Some(form)).await
    }

    /// Subscribes with Leasehold's signature; returns the data of the answer.
    pub async fn subscribe(&mut self, user: &User, channel: &str) -> Value {
        let auth = self.authorize(user, channel).await.ok();
        self.subscribe_with(channel, &auth).await;
        self.succeeded(channel).await
    }

    /// Sends a subscription with these credentials.
    pub async fn subscribe_with(&mut self, channel: &str, auth: &Value) {
        let mut data = auth.clone();
        data["channel"] = channel.into();
        self.send(json!({ "event": "pusher:subscribe", "data": data })).await;
    }

    /// Subscribes with a signature of the web application.
    pub async fn subscribe_by_app(&mut self, channel: &str, channel_data: Option<&str>) -> Value {
        let data = channel_data.map(|data| format!(":{data}")).unwrap_or_default();
        let auth = format!("{KEY}:{}", signature(&format!("{}:{channel}{data}", self.socket_id)));
        self.subscribe_with(channel, &json!({ "auth": auth, "channel_data": channel_data })).await;
        self.succeeded(channel).await
    }

    async fn succeeded(&mut self, channel: &str) -> Value {
        let got = self.got().await;
        assert_eq!(got.event, "pusher_internal:subscription_succeeded", "{got:?}");
        assert_eq!(got.channel.as_deref(), Some(channel));
        got.data
    }

    pub async fn send(&mut self, message: Value) {
        self.send_raw(Message::text(message.to_string())).await.unwrap();
    }

    pub async fn send_raw(&mut self, message: Message) -> Result<(), Error> {
        self.socket.send(message).await
    }

    /// The next event, or how the connection ended.
    pub async fn next(&mut self) -> Next {
        next(&mut self.socket).await
    }

    #[track_caller]
    pub fn got(&mut self) -> impl Future<Output = Got> {
        let place = std::panic::Location::caller();
        async move {
            match self.next().await {
                Next::Got(got) => got,
                other => panic!("{place}: {other:?}"),
            }
        }
    }

    /// The code that the connection is closed with, after everything else.
    pub async fn closed(&mut self) -> u16 {
        loop {
            match self.next().await {
                Next::Got(_) => {}
                Next::Closed(code) => return code,
                Next::Gone => return 1006,
            }
        }
    }

    /// The next event and the second at which it came, as `Listening::next_at` shows it.
    pub async fn next_at(&mut self, start: Instant) -> (String, u64) {
        let got = self.got().await;
        let reason = got.data["reason"].as_str().map(|reason| format!(" {reason}")).unwrap_or_default();
        (format!("{}{reason}", got.event), start.elapsed().as_secs())
    }

    /// Whether nothing is there to read at this moment of the virtual time.
    pub async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(std::time::Duration::from_millis(1), self.next()).await.is_err()
    }
}

pub async fn next(socket: &mut WebSocketStream<DuplexStream>) -> Next {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Next::Got(got(&text)),
            Some(Ok(Message::Close(Some(close)))) => return Next::Closed(close.code.into()),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Next::Gone,
        }
    }
}

fn got(text: &str) -> Got {
    let message: Value = serde_json::from_str(text).unwrap();
    let data = match &message["data"] {
        Value::String(inner) => serde_json::from_str(inner).unwrap(),
        other => other.clone(),
    };
    let event = message["event"].as_str().unwrap();
    let event = event.strip_prefix(r"App\Events\").unwrap_or(event).to_owned();
    Got { event, channel: message["channel"].as_str().map(str::to_owned), data, message }
}
