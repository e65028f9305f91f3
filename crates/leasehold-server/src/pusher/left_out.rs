//! Calls whose events are kept from the page that made them, which it names by `X-Socket-ID`. Only if a setting asks for it,
//! and only for sockets of this server.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Owner, Position, RoomId};
use tokio::time::Instant;

use super::{Pusher, SocketId};
use crate::hub::HubEvent;

/// How long a call that was decided is remembered: its events come within a moment.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The calls under way, and those whose events may still come.
#[derive(Default)]
pub(super) struct LeftOut {
    calls: Vec<Call>,
    last: u64,
}

struct Call {
    number: u64,
    room: RoomId,
    caller: Owner,
    socket: SocketId,
    decided: Option<Decided>,
}

/// A call that the store has answered: no event after this position is its own.
struct Decided {
    position: Position,
    at: Instant,
}

impl LeftOut {
    fn begin(&mut self, room: &RoomId, caller: &Owner, socket: SocketId) -> u64 {
        let now = Instant::now();
        self.calls.retain(|call| call.decided.as_ref().is_none_or(|decided| now - decided.at < REMEMBERED));
        self.last += 1;
        let (number, room, caller) = (self.last, room.clone(), caller.clone());
        self.calls.push(Call { number, room, caller, socket, decided: None });
        number
    }

    fn decided(&mut self, number: u64, position: Position) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.number == number) {
            call.decided = Some(Decided { position, at: Instant::now() });
        }
    }

    fn forget(&mut self, number: u64) {
        self.calls.retain(|call| call.number != number || call.decided.is_some());
    }

    /// The socket that does not get an event.
    pub(super) fn of(&self, event: &HubEvent) -> Option<SocketId> {
        let is_cause = |call: &&Call| {
            let caller = call.caller.as_str();
            let is_theirs = event.event.holder.id == caller || event.event.by.as_deref() == Some(caller);
            let is_later = call.decided.as_ref().is_some_and(|decided| event.position > decided.position);
            call.room == event.room && is_theirs && !is_later
        };
        self.calls.iter().rev().find(is_cause).map(|call| call.socket)
    }
}

/// A call under way, whose events its own page does not get.
pub(crate) struct QuietCall {
    pusher: Arc<Pusher>,
    number: u64,
}

impl QuietCall {
    /// The store has answered the call.
    pub(crate) fn decided(self, position: Position) {
        self.pusher.lock().left_out.decided(self.number, position);
    }
}

impl Drop for QuietCall {
    fn drop(&mut self) {
        self.pusher.lock().left_out.forget(self.number);
    }
}

impl Pusher {
    /// Keeps the events of a call from a socket.
    pub(crate) fn leave_out(self: &Arc<Self>, room: &RoomId, caller: &Owner, socket: SocketId) -> QuietCall {
        let number = self.lock().left_out.begin(room, caller, socket);
        QuietCall { pusher: self.clone(), number }
    }
}
