//! The doors of a server, one method per call: documents here, jobs in `jobs.rs`, leases of programs in `leases.rs`. Everything else that talks to a server
//! goes through here.
//!
//! Nothing is decided or repeated here: what goes in is typed, what comes out is the answer, or an [`Error`] that says
//! what the server decided, or what is known about a call that it did not answer. Tokens and lease ids are never shown,
//! and never sent to another address than the one that was given.

mod answer;
mod error;
mod jobs;
mod leases;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use leasehold_core::wire::Secret;
use leasehold_core::wire::documents::{
    AcquireBody, AnswerBody, Answered, Asked, AuditPage, CheckBody, Checked, DocumentPage, ForceReleaseBody,
    Grant, Heartbeat, HeartbeatOf, Heartbeats, HeartbeatsBody, LockState, Me, ReleaseBody, RequestBody,
    ResumeBody, SoftReleased, TakeOverBody, Ticket, Told, ToldBody,
};
use leasehold_core::{Fence, Invalid, LeaseId, OnSilence, Reason, RoomId, Ttl};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use reqwest::{Certificate, Method, RequestBuilder, Url};
use serde::Serialize;

use crate::events::Events;
use answer::{Success, read};

pub use error::Error;

const LEASE_ID: HeaderName = HeaderName::from_static("lease-id");
const TAB_ID: HeaderName = HeaderName::from_static("x-tab-id");

/// How long a call may take, unless the builder says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The HTTP client of a server: its documents, its jobs, and its leases of programs. Cheap to clone; all clones are the same.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold_client::{HttpClient, RoomId};
///
/// let client = HttpClient::at("http://127.0.0.1:7420").token("eyJ…").build()?;
/// let room = RoomId::parse("minutes")?;
/// let state = client.state(&room, None).await?;
/// println!("{} is {}", state.room_id, if state.locked { "locked" } else { "free" });
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HttpClient {
    http: reqwest::Client,
    base: Url,
    /// What every request carries: who is calling.
    headers: Arc<RwLock<HeaderMap>>,
    timeout: Duration,
}

/// How to reach a server. Made by [`HttpClient::at`].
#[derive(Clone)]
pub struct Builder {
    url: String,
    token: Option<String>,
    tab: Option<String>,
    timeout: Duration,
    root_certificate: Option<Vec<u8>>,
}

/// The state of a lock, and the tag by which a change of it is noticed.
#[derive(Clone, Debug)]
pub struct Tagged {
    /// The state.
    pub state: LockState,
    /// Pass it to [`HttpClient::state_if_changed`].
    pub etag: Option<String>,
}

/// What a request to hand over comes to, each time it is repeated.
#[derive(Clone, Debug)]
pub enum Handover {
    /// The lock is yours.
    Granted(Grant),
    /// The holder has not answered yet.
    Asked(Asked),
}

/// How to ask for a hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoverTerms {
    /// What happens when the holder was told and does not answer; it keeps the lock by default.
    pub on_silence: Option<OnSilence>,
    /// How long the holder has to answer, from when it was told; 30 s by default.
    pub countdown: Option<Ttl>,
    /// How long the request stands without being repeated; 30 s by default.
    pub patience: Option<Ttl>,
}

impl Builder {
    /// The token that says who is calling.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Which of the caller's tabs or processes is calling: two of them are two holders when they say so.
    pub fn tab(mut self, tab: impl Into<String>) -> Self {
        self.tab = Some(tab.into());
        self
    }

    /// How long a call may take; 10 s by default. What it came to is unknown after that.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A certificate (PEM) to trust besides the well-known ones, such as that of a company's own authority.
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificate = Some(pem.into());
        self
    }

    /// Checks what was given. Nothing is sent yet.
    pub fn build(self) -> Result<HttpClient, Invalid> {
        choose_tls();
        let base = parse_url(&self.url)?;
        let mut http = reqwest::Client::builder()
            // A redirect would carry the lease id along. A server that moved is given by its new address instead.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.timeout);
        if let Some(pem) = &self.root_certificate {
            for certificate in Certificate::from_pem_bundle(pem).map_err(|_| bad_certificate())? {
                http = http.add_root_certificate(certificate);
            }
        }
        let http = http.build().map_err(|error| {
            let rule = format!("no connection can be made with it: {}", error::causes(&error));
            Invalid::new("server URL", base.as_str(), rule, "check the certificates of this machine")
        })?;
        let headers = Arc::new(RwLock::new(self.headers()?));
        Ok(HttpClient { http, base, headers, timeout: self.timeout })
    }

    fn headers(&self) -> Result<HeaderMap, Invalid> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token_header(token)?);
        }
        if let Some(tab) = &self.tab {
            headers.insert(TAB_ID, tab_header(tab)?);
        }
        Ok(headers)
    }
}

/// Chooses the library that TLS is made with, unless the program around this client has: reqwest brings none along.
fn choose_tls() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails where another thread has chosen in between.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn parse_url(text: &str) -> Result<Url, Invalid> {
    // A password may stand before an `@`: such a URL is not repeated.
    let shown = if text.contains('@') { "(hidden, it may hold a password)" } else { text };
    let refuse = |rule: &str, fix: &str| Err(Invalid::new("server URL", shown, rule, fix));
    let example = "write it like https://leases.example.com or http://127.0.0.1:7420";
    let url = match Url::parse(text.trim()) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
        Ok(_) => return refuse("a server is reached by http: or https:", example),
        Err(error) => return refuse(&format!("it is no URL ({error})"), example),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("names and passwords are not part of it", "give the token by itself");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse("nothing follows its path", "leave out what begins with ? or #");
    }
    Ok(url)
}

fn bad_certificate() -> Invalid {
    let rule = "it is no certificate in PEM";
    let fix = "give the text that begins with -----BEGIN CERTIFICATE-----";
    Invalid { what: "root certificate", value: "(not shown)".into(), rule: rule.into(), fix: fix.into() }
}

fn bad_token() -> Invalid {
    let fix = "give the token alone, without `Bearer` and without line breaks";
    let rule = "a token has visible ASCII characters only";
    Invalid { what: "token", value: "(hidden)".into(), rule: rule.into(), fix: fix.into() }
}

fn token_header(token: &str) -> Result<HeaderValue, Invalid> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| bad_token())?;
    value.set_sensitive(true);
    Ok(value)
}

fn tab_header(tab: &str) -> Result<HeaderValue, Invalid> {
    let visible = !tab.is_empty() && tab.len() <= 128 && tab.chars().all(|c| c.is_ascii_graphic());
    let refuse = || {
        let rule = "a tab id is 1 to 128 visible ASCII characters";
        Invalid::new("tab", tab, rule, "use a random id that the tab or process keeps")
    };
    if visible { HeaderValue::from_str(tab).map_err(|_| refuse()) } else { Err(refuse()) }
}

fn secret(lease_id: &LeaseId) -> Secret {
    Secret(lease_id.reveal())
}

fn in_seconds(ttl: Ttl) -> u64 {
    // Rounded up: a holder is never given less time than was meant.
    ttl.as_millis().div_ceil(1_000)
}

impl HttpClient {
    /// The server at `url`, such as `https://leases.example.com`. A trailing slash, or a path before the API, is fine.
    pub fn at(url: impl Into<String>) -> Builder {
        Builder { url: url.into(), token: None, tab: None, timeout: TIMEOUT, root_certificate: None }
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        self.base.as_str()
    }

    /// Goes on with another token, in all clones: before the one in use expires, or guards and event streams end with
    /// it.
    pub fn set_token(&self, token: &str) -> Result<(), Invalid> {
        let value = token_header(token)?;
        self.headers.write().unwrap_or_else(PoisonError::into_inner).insert(AUTHORIZATION, value);
        Ok(())
    }

    fn headers(&self) -> HeaderMap {
        self.headers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    // --- the lock ---

    /// Locks a document, or gives one's own lock again, extended. Draw the lease id before the first attempt: then a
    /// repeated attempt cannot get a second lock.
    pub async fn lock(&self, room: &RoomId, lease_id: Option<&LeaseId>) -> Result<Grant, Error> {
        let body = AcquireBody { lease_id: lease_id.map(secret) };
        self.json(self.post(&self.lock_url(room, &[])?, &body)).await
    }

    /// Keeps a lock for another TTL: the one with this lease id, or the caller's own in its tab.
    pub async fn renew(&self, room: &RoomId, lease_id: Option<&LeaseId>) -> Result<Heartbeat, Error> {
        self.json(self.call(Method::PUT, &self.lock_url(room, &[])?, lease_id)).await
    }

    /// Keeps many locks in one call, at most 500. Each has an answer of its own, in the same order.
    pub async fn renew_many<'a>(
        &self,
        locks: impl IntoIterator<Item = (&'a RoomId, &'a LeaseId)>,
    ) -> Result<Heartbeats, Error> {
        let of = |(room, lease_id): (&RoomId, &LeaseId)| HeartbeatOf {
            room_id: room.as_str().to_owned(),
            lease_id: secret(lease_id),
        };
        let body = HeartbeatsBody { locks: locks.into_iter().map(of).collect() };
        self.json(self.post(&self.at_path(&["api", "documents", "heartbeat"])?, &body)).await
    }

    /// Unlocks a document.
    pub async fn unlock(&self, room: &RoomId, lease_id: Option<&LeaseId>) -> Result<(), Error> {
        self.nothing(self.call(Method::DELETE, &self.lock_url(room, &[])?, lease_id)).await
    }

    /// Who holds a document. With a lease id, it also says whether that one does.
    pub async fn state(&self, room: &RoomId, lease_id: Option<&LeaseId>) -> Result<LockState, Error> {
        self.json(self.call(Method::GET, &self.lock_url(room, &[])?, lease_id)).await
    }

    /// The same, or `None` if it is still as it was when `etag` was given out.
    pub async fn state_if_changed(
        &self,
        room: &RoomId,
        lease_id: Option<&LeaseId>,
        etag: Option<&str>,
    ) -> Result<Option<Tagged>, Error> {
        let mut request = self.call(Method::GET, &self.lock_url(room, &[])?, lease_id);
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        match self.send(request).await? {
            Success::NotModified => Ok(None),
            answer => Ok(Some(Tagged { etag: answer.etag(), state: answer.json()? })),
        }
    }

    // --- leaving softly, and coming back ---

    /// Says that the holder is probably leaving: its lock lasts for a few seconds more, unless it comes back.
    pub async fn soft_release(&self, room: &RoomId, lease_id: &LeaseId) -> Result<SoftReleased, Error> {
        let body = ReleaseBody { lease_id: secret(lease_id) };
        self.json(self.post(&self.lock_url(room, &["release"])?, &body)).await
    }

    /// Comes back to a lock, under a new lease id from now on.
    pub async fn resume(&self, room: &RoomId, lease_id: &LeaseId, next: &LeaseId) -> Result<Grant, Error> {
        let body = ResumeBody { lease_id: secret(lease_id), next_lease_id: Some(secret(next)) };
        self.json(self.post(&self.lock_url(room, &["resume"])?, &body)).await
    }

    // --- another's lock ---

    /// Takes a lock from its holder, whose fence was `seen`. Needs the permission to, or to be the same user.
    pub async fn take_over(
        &self,
        room: &RoomId,
        seen: Fence,
        reason: &Reason,
        lease_id: Option<&LeaseId>,
    ) -> Result<Grant, Error> {
        let reason = reason.as_str().to_owned();
        let body = TakeOverBody { fence: seen.get(), reason, lease_id: lease_id.map(secret) };
        self.json(self.post(&self.lock_url(room, &["take-over"])?, &body)).await
    }

    /// Ends another's lock, whose fence was `seen`, without taking it. Needs the permission to.
    pub async fn force_release(&self, room: &RoomId, seen: Fence, reason: &Reason) -> Result<(), Error> {
        let body = ForceReleaseBody { fence: seen.get(), reason: reason.as_str().to_owned() };
        self.nothing(self.post(&self.lock_url(room, &["force-release"])?, &body)).await
    }

    /// Requests that the holder, whose fence was `seen`, hands its lock over. Repeat it with the same lease id until
    /// it is granted or refused; a request that is not repeated lapses.
    pub async fn request_handover(
        &self,
        room: &RoomId,
        seen: Fence,
        terms: HandoverTerms,
        lease_id: Option<&LeaseId>,
    ) -> Result<Handover, Error> {
        let body = RequestBody {
            fence: seen.get(),
            on_silence: terms.on_silence.map(Into::into),
            countdown_seconds: terms.countdown.map(in_seconds),
            patience_seconds: terms.patience.map(in_seconds),
            lease_id: lease_id.map(secret),
        };
        match self.send(self.post(&self.lock_url(room, &["request"])?, &body)).await? {
            Success::Accepted(body) => answer::parse(&body).map(Handover::Asked),
            answer => answer.json().map(Handover::Granted),
        }
    }

    /// Withdraws one's request: whatever this lease id stood for is over.
    pub async fn withdraw_request(&self, room: &RoomId, lease_id: &LeaseId) -> Result<(), Error> {
        self.nothing(self.call(Method::DELETE, &self.lock_url(room, &["request"])?, Some(lease_id))).await
    }

    /// The holder confirms that it knows of a request: from now on, its silence counts.
    pub async fn confirm_request(
        &self,
        room: &RoomId,
        lease_id: Option<&LeaseId>,
        request: u64,
    ) -> Result<Told, Error> {
        let url = self.lock_url(room, &["request", "told"])?;
        self.json(self.call(Method::POST, &url, lease_id).json(&ToldBody { request })).await
    }

    /// The holder answers a request. Save first.
    pub async fn answer_request(
        &self,
        room: &RoomId,
        lease_id: Option<&LeaseId>,
        request: u64,
        hand_over: bool,
    ) -> Result<Answered, Error> {
        let url = self.lock_url(room, &["request", "answer"])?;
        self.json(self.call(Method::POST, &url, lease_id).json(&AnswerBody { request, hand_over })).await
    }

    /// Whether a fence is that of the lock which is held now. Advice: the real guard is a conditional write.
    pub async fn check(&self, room: &RoomId, fence: Fence) -> Result<Checked, Error> {
        self.json(self.post(&self.lock_url(room, &["check"])?, &CheckBody { fence: fence.get() })).await
    }

    // --- all documents ---

    /// A page of the documents that are locked, that the caller may see and whose names begin with `prefix`.
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
    ) -> Result<DocumentPage, Error> {
        let mut url = self.at_path(&["api", "documents"])?;
        let limit = limit.map(|limit| limit.to_string());
        let prefix = (!prefix.is_empty()).then_some(prefix);
        add_query(&mut url, &[("prefix", prefix), ("after", after), ("limit", limit.as_deref())]);
        self.json(self.call(Method::GET, &url, None)).await
    }

    /// A page of what was done to others' locks, oldest first: after the entry of this number, or `next` of the page before.
    pub async fn audit(&self, after: Option<u64>, limit: Option<usize>) -> Result<AuditPage, Error> {
        let mut url = self.at_path(&["api", "audit"])?;
        let (after, limit) = (after.map(|n| n.to_string()), limit.map(|n| n.to_string()));
        add_query(&mut url, &[("after", after.as_deref()), ("limit", limit.as_deref())]);
        self.json(self.call(Method::GET, &url, None)).await
    }

    /// The caller that the token stands for.
    pub async fn me(&self) -> Result<Me, Error> {
        self.json(self.call(Method::GET, &self.at_path(&["api", "me"])?, None)).await
    }

    /// A short-lived stand-in for the token, for the address of a browser's event stream.
    pub async fn ticket(&self) -> Result<Ticket, Error> {
        self.json(self.call(Method::POST, &self.at_path(&["api", "tickets"])?, None)).await
    }

    // --- what happens ---

    /// What happens to one document, or to all that the caller may see, from after `last_event_id` on. It connects with
    /// the first [`Events::next`].
    pub fn events(&self, room: Option<&RoomId>, last_event_id: Option<u64>) -> Events {
        Events::new(self.clone(), room.cloned(), last_event_id)
    }

    /// Opens an event stream; its bytes follow.
    pub(crate) async fn open_events(
        &self,
        room: Option<&RoomId>,
        last_event_id: Option<u64>,
    ) -> Result<reqwest::Response, Error> {
        let url = match room {
            Some(room) => self.at_path(&["api", "documents", room.as_str(), "events"])?,
            None => self.at_path(&["api", "events"])?,
        };
        let mut request = self.http.get(url).headers(self.headers());
        request = request.header(reqwest::header::ACCEPT, "text/event-stream");
        if let Some(last) = last_event_id {
            request = request.header("last-event-id", last);
        }
        // The limit is for the head alone: the body goes on for as long as anybody listens.
        let opened = tokio::time::timeout(self.timeout, request.send()).await;
        answer::accept_stream(opened.map_err(|_| Error::no_answer(self.timeout))?).await
    }

    // --- sending ---

    fn lock_url(&self, room: &RoomId, rest: &[&str]) -> Result<Url, Error> {
        let mut path = vec!["api", "documents", room.as_str(), "lock"];
        path.extend_from_slice(rest);
        self.at_path(&path)
    }

    fn at_path(&self, path: &[&str]) -> Result<Url, Error> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => drop(segments.pop_if_empty().extend(path)),
            // A URL with a host always has a path.
            Err(()) => return Err(Error::no_such_address(self.base.as_str())),
        }
        Ok(url)
    }

    fn call(&self, method: Method, url: &Url, lease_id: Option<&LeaseId>) -> RequestBuilder {
        let mut request = self.http.request(method, url.clone()).headers(self.headers());
        let value = lease_id.and_then(|lease_id| HeaderValue::try_from(lease_id.reveal()).ok());
        if let Some(mut value) = value {
            value.set_sensitive(true);
            request = request.header(LEASE_ID, value);
        }
        request.timeout(self.timeout)
    }

    fn post<T: Serialize>(&self, url: &Url, body: &T) -> RequestBuilder {
        self.call(Method::POST, url, None).json(body)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Success, Error> {
        read(request.send().await).await
    }

    async fn json<T: serde::de::DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Error> {
        self.send(request).await?.json()
    }

    async fn nothing(&self, request: RequestBuilder) -> Result<(), Error> {
        self.send(request).await.map(drop)
    }
}

fn add_query(url: &mut Url, pairs: &[(&str, Option<&str>)]) {
    let given = pairs.iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    for (name, value) in given {
        url.query_pairs_mut().append_pair(name, value);
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("url", &self.base.as_str()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("token", &self.token.as_ref().map(|_| "(hidden)"))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> HttpClient {
        HttpClient::at(url).token("t0ps3cret").tab("tab-1").build().unwrap()
    }

    #[test]
    fn a_url_may_end_in_a_slash_and_begin_with_a_path() {
        let room = RoomId::parse("a=@,.;Z").unwrap();
        for (url, expected) in [
            ("http://127.0.0.1:7420", "http://127.0.0.1:7420/api/documents/a=@,.;Z/lock"),
            ("http://127.0.0.1:7420/", "http://127.0.0.1:7420/api/documents/a=@,.;Z/lock"),
            (" https://x.example/leases/ ", "https://x.example/leases/api/documents/a=@,.;Z/lock"),
        ] {
            assert_eq!(client(url).lock_url(&room, &[]).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn a_bad_url_says_what_to_write_and_hides_a_password() {
        for (url, expected) in [
            ("", "http://127.0.0.1:7420"),
            ("127.0.0.1:7420", "http://127.0.0.1:7420"),
            ("ftp://x", "http: or https:"),
            ("http://x?a=b", "leave out"),
            ("http://me:hunter2@x", "give the token by itself"),
        ] {
            let error = HttpClient::at(url).build().unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{url:?}: {error}");
        }
    }

    #[test]
    fn what_is_given_is_checked_before_anything_is_sent() {
        let at = || HttpClient::at("http://x");
        let cases = [
            at().token("a\nb").build(),
            at().tab("with space").build(),
            at().tab("").build(),
            at().root_certificate("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----").build(),
        ];
        for case in cases {
            assert!(case.is_err());
        }
    }

    #[test]
    fn debug_never_shows_the_token() {
        let builder = HttpClient::at("http://x").token("t0ps3cret");
        let shown = format!("{builder:?} {:?}", builder.clone().build().unwrap());
        assert!(!shown.contains("t0ps3cret"), "{shown}");
    }
}
