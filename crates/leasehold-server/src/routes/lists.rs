//! Lists: what is locked, and what was done to others' locks.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use leasehold_core::wire::documents::{AuditPage, DocumentPage, LockState};
use leasehold_core::{Key, Position, RoomId};
use leasehold_store::Range;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::App;
use crate::caller::{Level, TabId};
use crate::error::{Code, Failure};
use crate::session::{Asked, Session};
use crate::views::{self, Moment};

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
    let page = visible_page(&app, &session, &query.prefix, after, limit).await?;
    let next = page.more.then(|| page.states.last().map(|state| state.room_id.clone())).flatten();
    Ok(Json(DocumentPage { documents: page.states, next }))
}

fn limit(given: Option<usize>) -> Result<usize, Failure> {
    match given.unwrap_or(USUAL) {
        limit @ 1..=MOST => Ok(limit),
        _ => Err(Failure::invalid(format!("limit lies between 1 and {MOST}"))),
    }
}

/// A page of what a caller may see, and the position in the feed that it contains.
pub(crate) struct VisiblePage {
    pub(crate) states: Vec<LockState>,
    pub(crate) more: bool,
    pub(crate) position: Position,
}

/// The locks after `after` that the caller may see, by name: the single documents and the prefixes of its grants, each
/// asked for by itself, so that a caller with few grants costs little in a store with many locks.
pub(crate) async fn visible_page(
    app: &App,
    session: &Session,
    prefix: &str,
    after: Option<RoomId>,
    limit: usize,
) -> Result<VisiblePage, Failure> {
    let (exact, prefixes) = session.caller.grants.visible();
    let mut places: Vec<(&str, bool)> = exact.into_iter().map(|name| (name, false)).collect();
    places.extend(prefixes.into_iter().map(|name| (name, true)));
    places.sort_unstable();
    let mut page = VisiblePage { states: Vec::new(), more: false, position: Position(u64::MAX) };
    for (name, is_prefix) in places {
        let Some(range) = part(name, is_prefix, prefix, after.as_ref()) else { continue };
        if page.states.len() > limit {
            break;
        }
        gather(app, session, range, limit + 1, &mut page).await?;
    }
    if page.position == Position(u64::MAX) {
        page.position = newest(app).await?;
    }
    page.more = page.states.len() > limit;
    page.states.truncate(limit);
    Ok(page)
}

/// The part of the keys under a grant that begins with `prefix` and comes after `after`.
fn part(
    name: &str,
    is_prefix: bool,
    prefix: &str,
    after: Option<&RoomId>,
) -> Option<(Range, Option<RoomId>)> {
    let overlap = match is_prefix {
        true if name.starts_with(prefix) => name,
        true if prefix.starts_with(name) => prefix,
        false if name.starts_with(prefix) => name,
        _ => return None,
    };
    let mut range = Range::prefix(&format!("{}{overlap}", RoomId::DOOR));
    range.after = after.map(|room| room.key().clone());
    Some((range, if is_prefix { None } else { Some(RoomId::parse(name).ok()?) }))
}

async fn gather(
    app: &App,
    session: &Session,
    (mut range, only): (Range, Option<RoomId>),
    wanted: usize,
    page: &mut VisiblePage,
) -> Result<(), Failure> {
    loop {
        range.limit = if only.is_some() { 1 } else { wanted.saturating_sub(page.states.len()).max(1) };
        let found = app.of_store(app.store.list(&range)).await?;
        page.position = page.position.min(found.position);
        let moment = Moment::new(app, found.now);
        let holds = session.holds();
        for (key, slot) in &found.slots {
            let room = RoomId::of(key).filter(|room| only.as_ref().is_none_or(|only| only == room));
            page.states
                .extend(room.map(|room| views::lock_state(&room, slot, &session.caller, &holds, moment)));
        }
        let last: Option<Key> = found.slots.into_iter().next_back().map(|(key, _)| key);
        if only.is_some() || !found.more || page.states.len() >= wanted || last.is_none() {
            return Ok(());
        }
        range.after = last;
    }
}

/// The position of the newest event.
pub(crate) async fn newest(app: &App) -> Result<Position, Failure> {
    let range = Range { prefix: RoomId::DOOR.to_owned(), after: None, limit: 1 };
    Ok(app.of_store(app.store.list(&range)).await?.position)
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

/// The session of somebody who listens, and has no tab.
pub(crate) fn listener(caller: crate::caller::Caller) -> Session {
    Session::new(caller, TabId::none())
}
