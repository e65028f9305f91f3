//! The routes of the three doors (documents, jobs, leases), one file per kind of call. Each parses the request, sends one command to
//! the store and shows the outcome.

// The macro that describes a route names its types in full.
#![allow(unused_qualifications)]

pub(crate) mod broadcast;
pub(crate) mod events;
pub(crate) mod handover;
pub(crate) mod jobs;
pub(crate) mod leases;
pub(crate) mod lists;
pub(crate) mod locks;
pub(crate) mod presence;
pub(crate) mod service;
pub(crate) mod sockets;
pub(crate) mod telemetry;

use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::IF_NONE_MATCH;
use leasehold_core::{Command, LeaseId, Outcome, RoomId};
use leasehold_store::{Applied, Retry};

use crate::App;
use crate::error::{Code, Failure};
use crate::session::Session;
use crate::views::{self, Moment};

/// How long a call waits for the store. A caller that waits longer loses its lock meanwhile, or keeps a connection that
/// others need.
const STORE_TIME: Duration = Duration::from_millis(4_750);

impl App {
    pub(crate) async fn apply(&self, room: &RoomId, command: Command) -> Result<Applied, Failure> {
        self.of_store(self.store.apply(room.key(), command)).await
    }

    pub(crate) async fn read(&self, room: &RoomId) -> Result<leasehold_store::Reading, Failure> {
        self.of_store(self.store.read(room.key())).await
    }

    /// Awaits the store, with a timeout.
    pub(crate) async fn of_store<T>(
        &self,
        answer: impl Future<Output = leasehold_store::Result<T>>,
    ) -> Result<T, Failure> {
        let late = |_| {
            let what = format!("no answer within {} ms", STORE_TIME.as_millis());
            Err(leasehold_store::Error::Unavailable { what, retry: Retry::Unknown })
        };
        tokio::time::timeout(STORE_TIME, answer).await.unwrap_or_else(late).map_err(|error| {
            self.metrics.store_failed();
            error.into()
        })
    }
}

/// The refusal of a holder's command: 404 when nobody holds the lock, 403 when another does.
fn not_held(app: &App, session: &Session, applied: Applied) -> Failure {
    not_held_or(Code::LockNotFound, app, session, applied)
}

/// The same with the code of another door for what nobody holds.
fn not_held_or(nobody: Code, app: &App, session: &Session, applied: Applied) -> Failure {
    match applied.outcome {
        Outcome::Lost { held: None, .. } => Failure::new(nobody),
        Outcome::Lost { held: Some(_), .. } | Outcome::NotYours(_) => Failure::new(Code::NotHolder),
        _ => refused(app, session, applied),
    }
}

/// The refusal of a bid.
fn refused(app: &App, session: &Session, applied: Applied) -> Failure {
    let moment = Moment::new(app, applied.now);
    match &applied.outcome {
        Outcome::Held(_) | Outcome::RequestedByAnother { .. } => app.metrics.refused(),
        Outcome::Lost { .. } => app.metrics.lost(),
        _ => {}
    }
    match applied.outcome {
        Outcome::Held(held) => Failure::held(views::held(&held, &session.caller, moment)),
        Outcome::RequestedByAnother { held, by } => {
            Failure::requested_by_another(views::held(&held, &session.caller, moment), by.as_str())
        }
        Outcome::Lost { because, .. } => Failure::lease_over(because),
        Outcome::NotYours(_) => Failure::new(Code::NotHolder),
        Outcome::NoRequest => Failure::new(Code::NoRequest),
        Outcome::OwnerIsFull => Failure::new(Code::TooManyLeases)
            .because_of("release a lock that you do not need")
            .retry_after(app.config.ttl.as_duration()),
        Outcome::FencesExhausted => Failure::fences_exhausted(),
        other => {
            tracing::error!(?other, "the store answered with something that the rules do not know");
            Failure::new(Code::Internal)
        }
    }
}

/// A lease id that nobody has seen.
pub(crate) fn new_lease_id() -> Result<LeaseId, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "the system has no randomness to give");
        Failure::new(Code::Internal)
    })?;
    Ok(LeaseId::from_random(bytes))
}

/// Whether the caller has this version already, as its `If-None-Match` says.
pub(crate) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known.flat_map(|list| list.split(',')).any(|known| known.trim() == "*" || is_same_tag(known, etag))
}

/// Whether two ETags mean the same: weak or strong is not asked (RFC 9110, section 13.1.2).
fn is_same_tag(one: &str, other: &str) -> bool {
    fn opaque(tag: &str) -> &str {
        tag.strip_prefix("W/").unwrap_or(tag)
    }
    opaque(one.trim()) == opaque(other)
}

/// Which document a call is about.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // describes it; the routes take it apart by themselves
pub(crate) struct RoomPath {
    /// The document
    #[param(format = "room-id", rename = "roomId")]
    room_id: String,
}

/// Whose lock a call is about.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // describes it; `Session` takes it apart
pub(crate) struct HolderHeaders {
    /// The lease id of the lock, or for the one that you want; it counts more than one in the body
    #[param(format = "uuid", rename = "Lease-Id")]
    lease_id: Option<String>,
    /// Without a lease id: which tab of the user; `-` unless given
    #[param(rename = "X-Tab-ID", pattern = "^[!-~]{1,128}$", min_length = 1, max_length = 128)]
    tab_id: Option<String>,
}
