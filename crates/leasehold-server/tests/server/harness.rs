//! A server on virtual time, and callers with tokens. The store's clock, the wall clock and tokio's are one.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use futures_util::{Stream, StreamExt};
use leasehold_server::auth::{Algorithm, Auth, Jwt, JwtOptions, KeySource};
use leasehold_server::{Config, Server};
use leasehold_store::clock::{Clock, unix_millis};
use leasehold_store::{Limits, Memory, Opened, Store};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

pub const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

/// Noon, when the examples of *Document lock* 5 begin.
pub const NOON: u64 = 1_767_268_800_000;

/// tokio's clock as a store's.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn millis(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }

    fn boot(&self) -> String {
        "virtual".into()
    }
}

/// A server with everything in memory.
pub struct House {
    server: Server,
    pub router: Router,
    pub store: Arc<dyn Store>,
}

impl House {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let clock = Arc::new(TokioClock(Instant::now()));
        Self::on(Arc::new(Memory::with(clock, Limits::default(), 0)), change)
    }

    pub fn on(store: Arc<dyn Store>, change: impl FnOnce(&mut Config)) -> Self {
        let start = Instant::now();
        let mut config = Config::new(auth());
        config.wall_clock = Arc::new(move || NOON + u64::try_from(start.elapsed().as_millis()).unwrap());
        config.pusher = Some(crate::socket_page::settings());
        change(&mut config);
        let server = Server::start(store.clone(), config).unwrap();
        Self { router: server.router(), server, store }
    }

    /// A server on a store that holds jobs and nothing else.
    pub fn with_jobs_only() -> Self {
        let store: Arc<dyn Store> =
            Arc::new(Memory::with(Arc::new(TokioClock(Instant::now())), Limits::default(), 0));
        let server = Server::open(Opened::Jobs(store.clone()), Config::new(auth())).unwrap();
        Self { router: server.router(), server, store }
    }

    /// Every take-over from now on will be recorded and posted.
    pub async fn begun(&self) {
        self.server.begun().await;
    }

    pub async fn end(self) {
        self.server.end().await;
    }

    /// Ends it, and lets go of the store: whoever opens it next is alone.
    pub async fn shut_down(self) {
        let Self { server, router, store } = self;
        server.end().await;
        drop((router, store));
    }

    /// Somebody who may do everything.
    pub fn user(&self, subject: &str) -> User {
        let all = json!({ "*": "force" });
        self.user_with_claims(subject, json!({ "documents": all, "jobs": all, "leases": all }))
    }

    /// A caller with these grants for documents, and none elsewhere.
    pub fn user_with(&self, subject: &str, documents: Value) -> User {
        self.user_with_claims(subject, json!({ "documents": documents }))
    }

    /// A caller with these grants for jobs, and none elsewhere.
    pub fn worker_with(&self, subject: &str, jobs: Value) -> User {
        self.user_with_claims(subject, json!({ "jobs": jobs }))
    }

    /// A program with these grants for leases, and none elsewhere.
    pub fn program_with(&self, subject: &str, leases: Value) -> User {
        self.user_with_claims(subject, json!({ "leases": leases }))
    }

    /// A caller whose token has these claims besides its subject.
    pub fn user_with_claims(&self, subject: &str, mut claims: Value) -> User {
        claims["sub"] = subject.into();
        claims["exp"] = far_away().into();
        let token = token(claims);
        User {
            router: self.router.clone(),
            headers: vec![("authorization".into(), format!("Bearer {token}"))],
        }
    }

    /// Somebody without a token.
    pub fn stranger(&self) -> User {
        User { router: self.router.clone(), headers: Vec::new() }
    }
}

pub fn auth() -> Auth {
    let keys = KeySource::Secret(SECRET.to_vec());
    let options =
        JwtOptions { keys, algorithms: vec![Algorithm::HS256], audience: Vec::new(), issuer: Vec::new() };
    Auth::Jwt(Arc::new(Jwt::open(options).unwrap()))
}

pub fn far_away() -> u64 {
    unix_millis() / 1_000 + 24 * 3_600
}

/// A token with these claims, signed as a web application would.
pub fn token(claims: Value) -> String {
    use base64::Engine;
    use hmac::{KeyInit, Mac};
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let head = encode(br#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", encode(claims.to_string().as_bytes()));
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(SECRET).unwrap();
    mac.update(signed.as_bytes());
    format!("{signed}.{}", encode(&mac.finalize().into_bytes()))
}

/// A caller.
#[derive(Clone)]
pub struct User {
    router: Router,
    headers: Vec<(String, String)>,
}

impl User {
    /// The same with another header.
    pub fn and(&self, name: &str, value: &str) -> Self {
        let mut user = self.clone();
        user.headers.push((name.into(), value.into()));
        user
    }

    pub fn in_tab(&self, tab: &str) -> Self {
        self.and("x-tab-id", tab)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    pub async fn put(&self, path: &str) -> Answer {
        self.call(Method::PUT, path, None).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        let body = (!body.is_null()).then(|| body.to_string());
        self.call(Method::POST, path, body).await
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<String>) -> Answer {
        let is_typed = self.headers.iter().any(|(name, _)| name == "content-type");
        let json = (body.is_some() && !is_typed)
            .then_some(("content-type".to_owned(), "application/json".to_owned()));
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in self.headers.iter().chain(&json) {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.unwrap_or_default())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Answer { status: parts.status, headers: parts.headers, bytes }
    }

    /// The answer to a GET, without the body of a stream that never ends.
    pub async fn head_of(&self, path: &str) -> Answer {
        let mut request = Request::builder().uri(path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = match parts.status.is_success() {
            true => Bytes::new(),
            false => axum::body::to_bytes(body, usize::MAX).await.unwrap(),
        };
        Answer { status: parts.status, headers: parts.headers, bytes }
    }

    /// Opens a stream of events.
    pub async fn listen(&self, path: &str) -> Listening {
        let mut request = Request::builder().uri(path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Listening { bytes: Box::pin(response.into_body().into_data_stream()), buffer: String::new() }
    }
}

/// What came back.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {:?}", self.bytes))
    }

    pub fn code(&self) -> (u16, String) {
        (self.status.as_u16(), self.json()["code"].as_str().unwrap_or_default().to_owned())
    }

    /// The body, if all is well.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!(self.status.is_success(), "{} {:?}", self.status, self.bytes);
        if self.bytes.is_empty() { Value::Null } else { self.json() }
    }

    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.code(), (status, code.to_owned()), "{:?}", self.bytes);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        self.json()
    }
}

/// A stream of events that somebody listens to.
pub struct Listening {
    pub bytes: std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>,
    buffer: String,
}

/// An event as it came: its name, its id and its data.
#[derive(Debug)]
pub struct Heard {
    pub event: String,
    pub id: Option<u64>,
    pub data: Value,
}

impl Listening {
    /// The next event; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let block = block.to_owned();
                self.buffer = rest.to_owned();
                match heard(&block) {
                    Some(heard) => return Some(heard),
                    None => continue,
                }
            }
            let chunk = self.bytes.next().await?.ok()?;
            self.buffer.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The next event and the second at which it came, counted from `start`.
    pub async fn next_at(&mut self, start: Instant) -> (String, u64) {
        let heard = self.next().await.unwrap();
        let reason = heard.data["reason"].as_str().map(|reason| format!(" {reason}")).unwrap_or_default();
        (format!("{}{reason}", heard.event), start.elapsed().as_secs())
    }
}

fn heard(block: &str) -> Option<Heard> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let data = field("data:")?;
    Some(Heard {
        event: field("event:")?.to_owned(),
        id: field("id:").map(|id| id.parse().unwrap()),
        data: serde_json::from_str(data).unwrap(),
    })
}

/// Lets the virtual time pass, and everything that is due in it happen.
pub async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Looks again and again until there is something to see.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Says what is not tested here, and why. Not through `eprintln!`, which the test runner would keep to itself.
pub fn skipped(what: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {what}\n").as_bytes()).unwrap();
}
