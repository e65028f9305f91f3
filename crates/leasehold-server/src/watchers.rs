//! Who follows a document by an event stream of its own, on this server: such a page has the document open, and its user is shown to
//! others. Pages on the document's presence channel are in `pusher`; only those are known to other servers as well.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::RoomId;

use crate::caller::Caller;

type Rooms = HashMap<RoomId, BTreeMap<String, Watching>>;

/// The streams of single documents. There are as many as `rates` lets callers open.
#[derive(Clone, Default)]
pub(crate) struct Watchers(Arc<Mutex<Rooms>>);

/// A user who follows a document.
struct Watching {
    name: String,
    streams: usize,
}

/// A stream that is open: its user follows the document until it is dropped.
pub(crate) struct Watch {
    watchers: Watchers,
    room: RoomId,
    user: String,
}

impl Watchers {
    /// A caller follows a document.
    pub(crate) fn follow(&self, room: &RoomId, caller: &Caller) -> Watch {
        let user = caller.subject.to_string();
        let mut rooms = self.lock();
        let watching = rooms.entry(room.clone()).or_default().entry(user.clone());
        let watching = watching.or_insert_with(|| Watching { name: String::new(), streams: 0 });
        watching.name.clone_from(&caller.name);
        watching.streams += 1;
        Watch { watchers: self.clone(), room: room.clone(), user }
    }

    /// Who follows a document: ids and names.
    pub(crate) fn of(&self, room: &RoomId) -> BTreeMap<String, String> {
        let rooms = self.lock();
        let users = rooms.get(room).into_iter().flatten();
        users.map(|(id, watching)| (id.clone(), watching.name.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Rooms> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut rooms = self.watchers.lock();
        let Some(users) = rooms.get_mut(&self.room) else { return };
        if let Some(watching) = users.get_mut(&self.user) {
            watching.streams = watching.streams.saturating_sub(1);
        }
        users.retain(|_, watching| watching.streams > 0);
        if users.is_empty() {
            rooms.remove(&self.room);
        }
    }
}
