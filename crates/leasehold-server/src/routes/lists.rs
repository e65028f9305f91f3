//! Lists: the locks that a caller may see, and the audit of take-overs and forced releases.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use leasehold_core::wire::documents::{AuditPage, DocumentPage};
use leasehold_core::{Owner, RoomId};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::App;
use crate::caller::Level;
use crate::error::{Code, Failure, refusal};
use crate::session::{QueryString, Session};
use crate::visible;

/// The longest page, and how long it is unless the caller says otherwise.
const MOST: usize = 500;
const USUAL: usize = 100;

/// Which part of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only documents whose names begin with this
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
    QueryString(query): QueryString<ListQuery>,
) -> Result<Json<DocumentPage>, Failure> {
    let limit = limit(query.limit)?;
    if !RoomId::is_prefix(&query.prefix) {
        return Err(Failure::invalid(
            "prefix: a roomId consists of A-Z a-z 0-9 _ - = @ , . ; and has at most 128 characters",
        ));
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

/// When to ask again for an audit that cannot be read. A failing disk takes longer than a second to repair.
const AUDIT_RETRY: Duration = Duration::from_secs(10);

/// Which part of the audit.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Only entries after this one: the `number` of an entry, or `next` of the page before; 0 for the beginning
    #[param(maximum = 9_007_199_254_740_991_u64)]
    after: u64,
    /// The newest entries instead of the oldest: the last `limit` of them, in the same order, without a `next`
    newest: bool,
    /// How many at most
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// List take-overs and forced releases
///
/// Of the documents for which you have `force`.
#[utoipa::path(
    get, path = "/api/audit", tag = "Operating",
    params(AuditQuery),
    responses((status = 200, body = AuditPage), refusal::NotAllowed, refusal::NoAudit)
)]
pub(crate) async fn audit(
    State(app): State<Arc<App>>,
    session: Session,
    QueryString(query): QueryString<AuditQuery>,
) -> Result<Json<AuditPage>, Failure> {
    let limit = limit(query.limit)?;
    let grants = session.caller.grants.clone();
    if !grants.patterns().any(|(_, level)| level == Level::Force) {
        let detail = "reading the audit needs `force` on a document; use a token that has it";
        return Err(Failure::new(Code::NotAllowed).because_of(detail));
    }
    let audit = app.audit.clone().ok_or_else(|| {
        Failure::new(Code::NoAudit)
            .because_of("the operator of this server can switch it on with `audit_file`")
    })?;
    if query.after > audit.lines() {
        let detail = "after: the audit has no such entry, so it was begun anew since; leave `after` out";
        return Err(Failure::invalid(detail));
    }
    let may_see = move |room: &RoomId| grants.level(room) == Some(Level::Force);
    // Reading a file blocks, so it runs on a thread of its own.
    let read = move || match query.newest {
        true => audit.newest(query.after, limit, may_see),
        false => audit.page(query.after, limit, may_see),
    };
    let page = tokio::task::spawn_blocking(read).await;
    let page = page.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(|error| {
        tracing::error!(%error, "the audit cannot be read");
        Failure::new(Code::Unavailable)
            .because_of(
                "the audit's file cannot be read; the operator of this server finds the cause in its log",
            )
            .retry_after(AUDIT_RETRY)
    })?;
    Ok(Json(with_names(&app, page)))
}

/// Adds the display names that this server knows. The file has the subjects only: names change.
fn with_names(app: &App, mut page: AuditPage) -> AuditPage {
    let name = |id: &str| Owner::parse(id).ok().and_then(|owner| app.hub.name_of(&owner));
    for line in &mut page.entries {
        (line.holder_name, line.by_name) = (name(&line.entry.holder), name(&line.entry.by));
    }
    page
}
