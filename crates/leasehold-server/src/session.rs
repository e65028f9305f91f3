//! The start of every request: who calls, from which address, for which lease, and whether too often.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::request::Parts;
use leasehold_core::lease::{Bid, Claim};
use leasehold_core::wire::Secret;
use leasehold_core::wire::jobs::JSON_REFUSED;
use leasehold_core::{Command, Fence, JobId, LeaseId, LeaseName, RoomId, TabId};
use leasehold_store::Applied;
use serde::de::DeserializeOwned;

use crate::App;
use crate::accept::ClientAddress;
use crate::auth::Auth;
use crate::caller::{Caller, Level};
use crate::error::{Code, Failure};
use crate::pusher::SocketId;
use crate::rates::Who;

/// An authenticated caller, and what its headers say about the lease.
pub(crate) struct Session {
    pub(crate) caller: Arc<Caller>,
    lease_id: Option<LeaseId>,
    tab: Option<TabId>,
    /// The page's socket, if it is not to get the events of its own calls.
    socket: Option<SocketId>,
}

impl FromRequestParts<Arc<App>> for Session {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let caller = authenticate(app, &parts.headers, address(parts))?;
        app.slow_down(Who::Caller(caller.subject.as_str()))?;
        let lease_id = header(&parts.headers, "lease-id")?.map(LeaseId::parse).transpose()?;
        let tab = header(&parts.headers, "x-tab-id")?.map(TabId::parse_optional).transpose()?.flatten();
        let socket = own_socket(app, &parts.headers);
        Ok(Self { caller, lease_id, tab, socket })
    }
}

/// The socket that `X-Socket-ID` names, where a setting asks for it.
fn own_socket(app: &App, headers: &HeaderMap) -> Option<SocketId> {
    app.pusher.as_ref().filter(|pusher| pusher.settings.skip_sender)?;
    headers.get("x-socket-id").and_then(|id| id.to_str().ok()).and_then(SocketId::parse)
}

/// The caller of the token, or what is wrong with it. Failed attempts are limited by address.
pub(crate) fn authenticate(app: &App, headers: &HeaderMap, address: IpAddr) -> Result<Arc<Caller>, Failure> {
    if matches!(app.config.auth, Auth::Open) {
        no_foreign_page(app, headers)?;
    }
    let denied = match header(headers, AUTHORIZATION.as_str()) {
        Ok(authorization) => match app.config.auth.authenticate(authorization) {
            Ok(caller) => return Ok(caller),
            Err(denied) => Failure::new(Code::Unauthenticated).because_of(denied.detail),
        },
        Err(failure) => failure,
    };
    app.metrics.auth_failed();
    app.slow_down(Who::Address(address))?;
    Err(denied)
}

/// Without tokens, every program on this machine may do everything, and so might any web page that is open on it: by a form
/// that posts here, or by a host name that resolves to this machine. So the headers `Origin` and `Host` are checked.
fn no_foreign_page(app: &App, headers: &HeaderMap) -> Result<(), Failure> {
    let (host, origin) = (host_of(headers), text(headers, ORIGIN));
    let is_ours = origin.is_none_or(|origin| {
        let is_allowed = |allowed: &String| allowed == origin || allowed == "*";
        is_origin_of(origin, host) || app.config.cors_origins.iter().any(is_allowed)
    });
    match (is_loopback_name(host), is_ours) {
        (true, true) => Ok(()),
        _ => Err(Failure::new(Code::NotAllowed)
            .because_of("this server asks for no tokens, and so listens to no web page of another origin")),
    }
}

/// Whether a browser sent this from a page of this server, or another program did: `Host` names this machine, and `Origin`,
/// where there is one, names this server. Origins that `cors_origins` allows do not count.
pub(crate) fn is_own_page(headers: &HeaderMap) -> bool {
    let (host, origin) = (host_of(headers), text(headers, ORIGIN));
    is_loopback_name(host) && origin.is_none_or(|origin| is_origin_of(origin, host))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn host_of(headers: &HeaderMap) -> &str {
    text(headers, HOST).unwrap_or_default()
}

/// Whether a `Host` means this machine. No header means no browser.
fn is_loopback_name(host: &str) -> bool {
    let name =
        host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name.is_empty() || name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn is_origin_of(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, from)| from == host)
}

/// Where a request comes from; loopback when it does not come over a network at all.
pub(crate) fn address(parts: &Parts) -> IpAddr {
    parts.extensions.get::<ClientAddress>().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.0)
}

/// The text of a header that may be there once.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Failure> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        (Ok(_), Some(_)) => Err(Failure::invalid(format!("the header {name} is there twice; send it once"))),
        (Err(_), _) => Err(Failure::invalid(format!("the header {name} is not ASCII text"))),
    }
}

impl App {
    /// Applies a command of a caller, whose own page may not get the events of it.
    pub(crate) async fn apply_by(
        &self,
        session: &Session,
        room: &RoomId,
        command: Command,
    ) -> Result<Applied, Failure> {
        let Some((pusher, socket)) = self.pusher.as_ref().zip(session.socket) else {
            return self.apply(room, command).await;
        };
        let quiet = pusher.leave_out(room, &session.caller.subject, socket);
        let applied = self.apply(room, command).await?;
        quiet.decided(applied.position);
        Ok(applied)
    }
}

impl Session {
    /// The session of a caller whose request says nothing about a lease.
    pub(crate) fn new(caller: Arc<Caller>) -> Self {
        Self { caller, lease_id: None, tab: None, socket: None }
    }

    /// The document, if the caller may know of it and do this much with it.
    pub(crate) fn document(&self, name: &str, needed: Level) -> Result<RoomId, Failure> {
        let room = RoomId::parse(name)?;
        match self.caller.grants.level(&room) {
            // The same as for a document that is there and not locked: whether it exists is nobody else's business.
            None => Err(Failure::new(Code::LockNotFound)),
            Some(level) => enough(level, needed, "document").map(|()| room),
        }
    }

    /// The job, if the caller may know of it and do this much with it.
    pub(crate) fn job(&self, collection: &str, id: &str, needed: Level) -> Result<JobId, Failure> {
        let job = JobId::new(collection, id)?;
        match self.caller.grants.job_level(&job) {
            // The same as for a job that is not there.
            None => Err(Failure::new(Code::JobNotFound)),
            Some(level) => enough(level, needed, "job").map(|()| job),
        }
    }

    /// The name of a program's lease, if the caller may know of it and do this much with it.
    pub(crate) fn lease(&self, name: &str, needed: Level) -> Result<LeaseName, Failure> {
        let name = LeaseName::parse(name)?;
        match self.caller.grants.lease_level(&name) {
            // The same as for a lease that nobody holds.
            None => Err(Failure::new(Code::LeaseNotFound)),
            Some(level) => enough(level, needed, "lease").map(|()| name),
        }
    }

    /// The `Lease-Id` of the request, which a program always sends.
    pub(crate) fn program_lease_id(&self) -> Result<LeaseId, Failure> {
        let missing = "the header Lease-Id is missing; send the lease id of the acquire in it";
        self.lease_id.ok_or_else(|| Failure::invalid(missing))
    }

    /// The caller's claim to the lease with that lease id.
    pub(crate) fn program_claim(&self) -> Result<Claim, Failure> {
        self.program_lease_id().map(|lease_id| self.claim_to(lease_id))
    }

    /// The lease id of the request, be it in the header or in the body. The header says who calls, so it comes first.
    pub(crate) fn lease_id(&self, in_body: Option<&Secret>) -> Result<Option<LeaseId>, Failure> {
        let in_body = in_body.map(|secret| LeaseId::parse(&secret.0)).transpose()?;
        Ok(self.lease_id.or(in_body))
    }

    /// Whose lease the request is about: the one with its `Lease-Id`, else the caller's own in its tab.
    pub(crate) fn claim(&self) -> Claim {
        match self.lease_id {
            Some(lease_id) => self.claim_to(lease_id),
            None => Claim::Tab { owner: self.caller.subject.clone(), tab: self.tab.clone() },
        }
    }

    /// The caller's claim to the lease with this lease id.
    pub(crate) fn claim_to(&self, lease_id: LeaseId) -> Claim {
        Claim::Holder { lease_id, owner: self.caller.subject.clone(), fence: None }
    }

    /// The caller's claim to the attempt at a job with this lease id and fence.
    pub(crate) fn claim_to_attempt(&self, lease_id: &Secret, fence: u64) -> Result<Claim, Failure> {
        let (lease_id, fence) = (LeaseId::parse(&lease_id.0)?, Some(Fence::new(fence)?));
        Ok(Claim::Holder { lease_id, owner: self.caller.subject.clone(), fence })
    }

    /// The caller's bid for a lock.
    pub(crate) fn bid(&self, app: &App, lease_id: LeaseId) -> Result<Bid, Failure> {
        let (owner, tab) = (self.caller.subject.clone(), self.tab.clone());
        Ok(Bid { lease_id, owner, tab, ttl: app.config.ttl, meta: self.caller.meta() })
    }
}

fn enough(level: Level, needed: Level, what: &str) -> Result<(), Failure> {
    if level >= needed {
        return Ok(());
    }
    let (level, needed) = (level.as_str(), needed.as_str());
    let detail = format!("it allows {level} on this {what}, and this needs {needed}");
    Err(Failure::new(Code::NotAllowed).because_of(detail))
}

/// A JSON body, read whole within the limits.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        let is_json = is_json(request.headers());
        let bytes = read(request, app).await?;
        if !is_json {
            return Err(not_json());
        }
        parse(&bytes).map(Self)
    }
}

/// A JSON body that may be missing, or `null`.
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for OptionalBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        let is_json = is_json(request.headers());
        let bytes = read(request, app).await?;
        match bytes.is_empty() {
            true => Ok(Self(T::default())),
            false if !is_json => Err(not_json()),
            false if bytes.trim_ascii() == b"null" => Ok(Self(T::default())),
            false => parse(&bytes).map(Self),
        }
    }
}

/// A JSON body under whatever type it comes: `sendBeacon` cannot say that it is JSON without asking first.
pub(crate) struct BeaconBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for BeaconBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Failure> {
        parse(&read(request, app).await?).map(Self)
    }
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

fn not_json() -> Failure {
    Failure::new(Code::UnsupportedMediaType).because_of("send it with Content-Type: application/json")
}

pub(crate) async fn read(request: Request, app: &App) -> Result<Bytes, Failure> {
    if request.body().is_end_stream() {
        return Ok(Bytes::new());
    }
    let reading = Bytes::from_request(request, &());
    match tokio::time::timeout(app.config.limits.body_time, reading).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(rejection)) => Err(Failure::unread(&rejection, app.config.limits.body)),
        Err(_) => Err(Failure::new(Code::TooSlow)),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    // A list of values in the right order would pass for an object.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|first| *first == b'[') {
        return Err(Failure::invalid(
            "the body is a list, and an object is expected; /docs shows what this call takes",
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        let words = error.to_string();
        let names_a_field = ["missing field", "unknown field", "duplicate field", JSON_REFUSED]
            .iter()
            .any(|start| words.starts_with(start));
        // The answer says where the body is wrong, and does not repeat the value: it may be a secret.
        let what = match error.classify() {
            serde_json::error::Category::Data if names_a_field => words,
            serde_json::error::Category::Data => {
                format!("a value is not of the kind that is expected at {place}")
            }
            _ => format!("it is not JSON at {place}"),
        };
        Failure::invalid(format!("the body: {what}; /docs shows what this call takes"))
    })
}

/// The address that a request comes from.
pub(crate) struct SenderAddress(pub(crate) IpAddr);

impl<S: Send + Sync> FromRequestParts<S> for SenderAddress {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(address(parts)))
    }
}

/// The query string.
pub(crate) struct QueryString<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryString<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        query.map(|query| Self(query.0)).map_err(|error| {
            Failure::invalid(format!(
                "the query string: {}; /docs shows what this call takes",
                error.body_text()
            ))
        })
    }
}
