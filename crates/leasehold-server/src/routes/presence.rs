//! Who is at a document: who edits it, who asks for it, and who looks at it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use leasehold_core::wire::documents::{DocumentPresence, Holder};

use super::RoomPath;
use crate::App;
use crate::caller::Level;
use crate::error::Failure;
use crate::session::Session;
use crate::views;

/// See who is at a document
///
/// Who edits holds the lock, who asks has requested it, and who looks is on the document's presence channel (WebSocket) or follows
/// the document's event stream, on any server. Who edits or asks is not listed among those who look.
#[utoipa::path(
    get, path = "/api/documents/{roomId}/presence", tag = "Locks",
    params(RoomPath),
    responses((status = 200, body = DocumentPresence))
)]
pub(crate) async fn presence(
    State(app): State<Arc<App>>,
    session: Session,
    Path(room): Path<String>,
) -> Result<Json<DocumentPresence>, Failure> {
    let room = session.document(&room, Level::Read)?;
    let reading = app.read(&room).await?;
    let lease = reading.slot.lease.as_ref();
    let editing: Vec<Holder> =
        lease.map(|lease| views::holder(&lease.owner, &lease.meta)).into_iter().collect();
    let request = lease.and_then(|lease| lease.request.as_deref());
    let asking: Vec<Holder> =
        request.map(|request| views::holder(&request.bid.owner, &request.bid.meta)).into_iter().collect();
    let mut people = app.watchers.of(&room);
    people.extend(app.pusher.as_ref().map(|pusher| pusher.lookers(&room)).unwrap_or_default());
    let is_listed = |id: &str| editing.iter().chain(&asking).any(|person| person.id == id);
    let looking = people.into_iter().filter(|(id, _)| !is_listed(id));
    let looking = looking.map(|(id, name)| Holder { id, name }).collect();
    Ok(Json(DocumentPresence { editing, asking, looking }))
}
