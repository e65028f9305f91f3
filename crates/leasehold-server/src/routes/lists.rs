//! Lists: what is locked, and what was done to others' locks.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use leasehold_core::RoomId;
use leasehold_core::wire::documents::{AuditPage, DocumentPage};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::App;
use crate::caller::Level;
use crate::error::{Code, Failure};
use crate::session::{Asked, Session};
use crate::visible;

/// The longest page, and how long it is unless the caller says otherwise.
const MOST: usize = 500;
const USUAL: usize = 100;

/// Which part of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only documents whose names begin like this
    #[param(pattern = "^[A-Za-z0-9_=@,.;-]{0,128}$")]
    prefix: String,
    /// Only documents after this one: `next` of the page before
    #[param(format = "room-id-or-empty")]
    after: String,
    /// How many at most
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// List the locks that you may see
#[utoipa::path(
    get, path = "/api/documents", tag = "Locks",
    params(ListQuery, super::HolderHeaders),
    responses((status = 200, body = DocumentPage))
)]
pub(crate) async fn documents(
    State(app): State<Arc<App>>,
    session: Session,
    Asked(query): Asked<ListQuery>,
) -> Result<Json<DocumentPage>, Failure> {
    let limit = limit(query.limit)?;
    if !RoomId::is_prefix(&query.prefix) {
        return Err(Failure::invalid("no roomId begins like this prefix; it has A-Z a-z 0-9 _ - = @ , . ;"));
    }
    let after = if query.after.is_empty() { None } else { Some(RoomId::parse(&query.after)?) };
    let page = visible::page(&app, &session, &query.prefix, after, limit).await?;
    let next = page.more.then(|| page.states.last().map(|state| state.room_id.clone())).flatten();
    Ok(Json(DocumentPage { documents: page.states, next }))
}

fn limit(given: Option<usize>) -> Result<usize, Failure> {
    match given.unwrap_or(USUAL) {
        limit @ 1..=MOST => Ok(limit),
        _ => Err(Failure::invalid(format!("limit lies between 1 and {MOST}"))),
    }
}

/// When to ask again for an audit that cannot be read: a disk does not get better within a second.
const AUDIT_RETRY: Duration = Duration::from_secs(10);

/// Which part of the audit.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Only what came after this: the `number` of an entry, or `next` of the page before; 0 for the beginning
    #[param(maximum = 9_007_199_254_740_991_u64)]
    after: u64,
    /// How many at most
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// What was done to others' locks
///
/// Take-overs and forced releases, of the documents on which you have `force`.
#[utoipa::path(
    get, path = "/api/audit", tag = "Operating",
    params(AuditQuery),
    responses((status = 200, body = AuditPage),
              (status = 403, description = "You have `force` on nothing"),
              (status = 404, description = "This server keeps no audit"))
)]
pub(crate) async fn audit(
    State(app): State<Arc<App>>,
    session: Session,
    Asked(query): Asked<AuditQuery>,
) -> Result<Json<AuditPage>, Failure> {
    let limit = limit(query.limit)?;
    let grants = session.caller.grants;
    if !grants.patterns().any(|(_, level)| level == Level::Force) {
        let detail = "the audit is for those with force on a document";
        return Err(Failure::new(Code::NotAllowed).because_of(detail));
    }
    let audit = app.audit.clone().ok_or_else(|| {
        Failure::new(Code::NoAudit).because_of("whoever runs this server can have one: `audit_file`")
    })?;
    if query.after > audit.lines() {
        let rule = "after: the audit is not that long, so it was begun anew since";
        return Err(Failure::invalid(format!("{rule}; leave it out")));
    }
    let may_see = move |room: &RoomId| grants.level(room) == Some(Level::Force);
    // It reads a file, which must not keep other calls waiting.
    let page = tokio::task::spawn_blocking(move || audit.page(query.after, limit, may_see)).await;
    page.unwrap_or_else(|error| Err(std::io::Error::other(error))).map(Json).map_err(|error| {
        tracing::error!(%error, "the audit cannot be read");
        Failure::new(Code::Unavailable)
            .because_of("the audit cannot be read; whoever runs this server has to look at its file")
            .retry_after(AUDIT_RETRY)
    })
}
