//! What the event stream of a document on a server says about its lock.

use leasehold_core::lease::LossReason;
use leasehold_core::wire::documents::{DocumentEvent, EventName, LockState, UnlockReason};
use leasehold_core::{RetryPolicy, RoomId};
use tokio::sync::watch;

use super::Heard;
use crate::acquire::retries;
use crate::events::Notice;
use crate::http::HttpClient;

/// Follows one document until the task is aborted, also if the server does not let us for now.
pub(super) async fn follow(client: HttpClient, room: RoomId, heard: watch::Sender<Heard>) {
    let mut retries = retries(RetryPolicy::PATIENT);
    loop {
        let mut events = client.events(Some(&room), None);
        while let Some(notice) = events.next().await {
            match notice {
                Ok(notice) => {
                    retries.succeeded();
                    heard.send_if_modified(|heard| heard.notice(&notice));
                }
                Err(error) if retries.failures() == 0 => {
                    tracing::warn!(%room, %error, "the events of a document cannot be followed; its lock is polled instead");
                }
                Err(_) => {}
            }
        }
        tokio::time::sleep(retries.pause()).await;
    }
}

impl Heard {
    fn document_event(&mut self, event: &DocumentEvent) {
        self.fence = self.fence.max(event.fence);
        match event.event {
            EventName::DocumentUnlocked => {
                self.last_end = Some((event.fence, loss(event)));
                self.freed();
            }
            EventName::HandoverRequested | EventName::HandoverRefused | EventName::HandoverWithdrawn => {
                self.asked();
            }
            EventName::DocumentLocked
            | EventName::DocumentLeaving
            | EventName::DocumentResumed
            | EventName::HandoverTold => {}
        }
    }

    fn snapshot(&mut self, state: &LockState) {
        match &state.lock {
            None => self.perhaps_anything(),
            Some(lock) => {
                self.fence = self.fence.max(lock.fence);
                if lock.request.is_some() {
                    self.asked();
                }
            }
        }
    }

    /// Takes in what a server said; answers whether that is news.
    fn notice(&mut self, notice: &Notice) -> bool {
        let before = *self;
        match notice {
            Notice::Event(event) => self.document_event(event),
            Notice::Snapshot(state) => self.snapshot(state),
            Notice::SnapshotOfAll { .. } | Notice::Interrupted { .. } => {}
        }
        *self != before
    }
}

fn loss(event: &DocumentEvent) -> LossReason {
    match event.reason {
        Some(UnlockReason::Released) => LossReason::Released,
        Some(UnlockReason::Expired) => LossReason::Expired,
        Some(UnlockReason::TakenOver) if event.force_released => LossReason::ForceReleased,
        Some(UnlockReason::TakenOver) => LossReason::TakenOver,
        Some(UnlockReason::HandedOver) => LossReason::HandedOver,
        Some(UnlockReason::Disconnected) => LossReason::Disconnected,
        None => LossReason::Unknown,
    }
}
