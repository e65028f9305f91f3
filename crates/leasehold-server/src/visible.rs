//! The documents that a caller may see: pages over the single documents and the prefixes of its grants.
//!
//! Each grant is asked for by itself, so that a caller with few grants costs little in a store with many locks. Nothing
//! here may show a document without a grant for it.

use leasehold_core::wire::documents::LockState;
use leasehold_core::{Key, Position, RoomId};
use leasehold_store::Range;

use crate::App;
use crate::error::Failure;
use crate::session::Session;
use crate::views::{self, Moment};

/// A page of the locks that a caller may see.
pub(crate) struct VisiblePage {
    pub(crate) states: Vec<LockState>,
    pub(crate) more: bool,
    /// The page contains every event up to this position of the feed.
    pub(crate) position: Position,
}

/// The locks that the caller may see, after the document `after` in the order of their names.
pub(crate) async fn page(
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

/// Adds the locks of one grant to the page, up to `wanted` in all.
async fn gather(
    app: &App,
    session: &Session,
    (mut range, only): (Range, Option<RoomId>),
    wanted: usize,
    page: &mut VisiblePage,
) -> Result<(), Failure> {
    loop {
        range.limit = if only.is_some() { 1 } else { wanted.saturating_sub(page.states.len()).max(1) };
        let found = app.of_store(app.whole()?.list(&range)).await?;
        page.position = page.position.min(found.position);
        let moment = Moment::new(app, found.now);
        let claim = session.claim();
        for (key, slot) in &found.slots {
            let room = RoomId::of(key).filter(|room| only.as_ref().is_none_or(|only| only == room));
            page.states
                .extend(room.map(|room| views::lock_state(&room, slot, &session.caller, &claim, moment)));
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
    Ok(app.of_store(app.whole()?.list(&range)).await?.position)
}
