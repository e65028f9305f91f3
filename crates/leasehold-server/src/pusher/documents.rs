//! Passes the events of documents to the sockets that subscribe to them, and the current state to those that need it. Each
//! is written once for a channel; all of its subscribers share the bytes.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::wire::documents::EventName;
use leasehold_core::{Retries, RetryPolicy, RoomId};
use leasehold_store::{Reading, jitter};
use tokio::sync::mpsc;

use super::Pusher;
use super::channel::ChannelName;
use super::message::{self, Frame};
use crate::App;
use crate::hub::{Broken, Channel, HubEvent};
use crate::views;

/// How many states are read at the same time.
const READS: usize = 32;

/// Passes the hub's events on, as long as there are sockets.
pub(super) async fn follow(pusher: Arc<Pusher>, app: Arc<App>, mut fed: mpsc::UnboundedReceiver<Channel>) {
    let mut channel = None;
    loop {
        tokio::select! {
            biased;
            () = app.stop.cancelled() => return,
            new = fed.recv() => channel = new,
            () = pusher.is_idle.notified() => {
                let mut state = pusher.lock();
                if state.registry.sockets() == 0 {
                    (channel, state.is_following) = (None, false);
                }
            }
            event = next(&mut channel) => match event {
                Ok(event) => pusher.pass_on(&event),
                Err(_) => {
                    channel = Some(app.hub.watch_all(None).0);
                    pusher.lock().registry.missed_events();
                    pusher.wanted.notify_one();
                }
            },
        }
    }
}

async fn next(channel: &mut Option<Channel>) -> Result<Arc<HubEvent>, Broken> {
    match channel {
        Some(channel) => channel.recv().await,
        None => std::future::pending().await,
    }
}

/// Reads the states that are waited for.
pub(super) async fn read_states(pusher: Arc<Pusher>, app: Arc<App>) {
    let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
    loop {
        tokio::select! {
            () = app.stop.cancelled() => return,
            () = pusher.wanted.notified() => {}
        }
        let rooms = pusher.lock().registry.take_wanted();
        for rooms in rooms.chunks(READS) {
            let read = join_all(rooms.iter().map(async |room| (room, app.read(room).await))).await;
            let mut all_read = true;
            for (room, reading) in read {
                match reading {
                    Ok(reading) => pusher.show_state(room, &reading),
                    Err(_) => {
                        all_read = false;
                        pusher.lock().registry.want(room.clone());
                    }
                }
            }
            if all_read {
                retries.succeeded();
            } else {
                pusher.wanted.notify_one();
                tokio::time::sleep(retries.pause()).await;
            }
        }
    }
}

impl Pusher {
    /// Passes an event of a document to its subscribers.
    fn pass_on(&self, event: &HubEvent) {
        let mut state = self.lock();
        if !state.registry.is_watched(&event.room) {
            return;
        }
        let except = state.left_out.of(event);
        let name = self.settings.event_name(event.event.event.as_str());
        let data = serde_json::to_string(&event.event).unwrap_or_default();
        let encode = |channel: &ChannelName| message::event(&name, channel, &data);
        state.registry.document_event(&event.room, event.seq, except, encode);
    }

    /// Shows the current state of a document to those who wait for it: as the event that led to it.
    fn show_state(&self, room: &RoomId, reading: &Reading) {
        let seq = reading.slot.seq;
        let (name, data) = match &reading.slot.lease {
            Some(lease) => {
                let event = views::locked_event(room, seq, lease, reading.now);
                (event.event, serde_json::to_string(&event).unwrap_or_default())
            }
            None => (EventName::DocumentUnlocked, message::unlocked_data(room, seq)),
        };
        let name = self.settings.event_name(name.as_str());
        let is_new = seq == 0 && reading.slot.lease.is_none();
        let encode = |channel: &ChannelName| -> Frame {
            if is_new { message::cache_miss(channel) } else { message::event(&name, channel, &data) }
        };
        self.lock().registry.document_state(room, seq, encode);
    }
}
