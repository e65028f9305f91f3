//! What is said to the outside as JSON: the only serde derives, so that the shape of every answer is in one place.
//!
//! Times go out as milliseconds from now, because the store's clock means nothing to anybody else; a door that shows
//! wall-clock times adds them. A lease id is in [`Granted`] alone, which is for the holder itself.

pub mod documents;
pub mod jobs;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{EndReason, Event, EventKind, Published};
use crate::lease::{Held, Lease, OnSilence};
use crate::name::{Key, Meta};
use crate::time::{StoreTime, whole_millis};

/// A lease as everybody may see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// What is leased.
    pub key: String,
    /// Who holds it.
    pub owner: String,
    /// The fence of the grant.
    pub fence: u64,
    /// How long ago it was granted.
    pub held_for_ms: u64,
    /// How long it lasts unless it is renewed.
    pub expires_in_ms: u64,
    /// How long a renewal lasts.
    pub ttl_ms: u64,
    /// Whether the holder is probably leaving.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// What else is known about the holder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Who has requested that it be handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
}

impl LeaseView {
    /// The view of `lease` on `key` at `now`.
    pub fn new(key: &Key, lease: &Lease, now: StoreTime) -> Self {
        Self {
            key: key.to_string(),
            owner: lease.owner.to_string(),
            fence: lease.fence.get(),
            held_for_ms: whole_millis(now.since(lease.acquired_at)),
            expires_in_ms: whole_millis(lease.expires_at.since(now)),
            ttl_ms: lease.ttl.as_millis(),
            leaving: lease.leaving,
            meta: meta_view(&lease.meta),
            requested_by: lease.request.as_ref().map(|request| request.bid.owner.to_string()),
        }
    }
}

/// A lease as its holder sees it: the one answer that carries the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The secret, for the holder alone.
    pub lease_id: Secret,
    /// The rest.
    #[serde(flatten)]
    pub lease: LeaseView,
}

/// A lease id on its way to its holder: in the JSON it stands in the clear, in a log it does not.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Who holds a key, for somebody who wanted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldView {
    /// What is leased.
    pub key: String,
    /// Who holds it.
    pub owner: String,
    /// The fence of the grant.
    pub fence: u64,
    /// How long it lasts unless it is renewed.
    pub expires_in_ms: u64,
    /// What else is known about the holder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

impl HeldView {
    /// The view of `held` on `key` at `now`.
    pub fn new(key: &Key, held: &Held, now: StoreTime) -> Self {
        Self {
            key: key.to_string(),
            owner: held.by.to_string(),
            fence: held.fence.get(),
            expires_in_ms: whole_millis(held.until.since(now)),
            meta: meta_view(&held.meta),
        }
    }
}

/// An event of the feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// Its place among all events of the store.
    pub position: u64,
    /// What it happened to.
    pub key: String,
    /// Its number among the events of the key.
    pub seq: u64,
    /// The fence of the lease concerned.
    pub fence: u64,
    /// Whose lease it is, or was.
    pub owner: String,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKindView,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs)] // the same as in `EventKind`
pub enum EventKindView {
    Granted {
        expires_in_ms: u64,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        meta: BTreeMap<String, String>,
    },
    Ended {
        #[serde(flatten)]
        because: EndView,
    },
    Shortened {
        expires_in_ms: u64,
    },
    Resumed {
        expires_in_ms: u64,
    },
    HandoverRequested {
        by: String,
        on_silence: OnSilenceView,
    },
    HandoverTold {
        by: String,
        ends_in_ms: u64,
    },
    HandoverRefused {
        by: String,
        silent: bool,
    },
    HandoverWithdrawn {
        by: String,
    },
}

/// Why a lease ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
#[allow(missing_docs)] // the same as in `EndReason`
pub enum EndView {
    Released,
    Expired,
    Disconnected,
    TakenOver { by: String, reason: String },
    ForceReleased { by: String, reason: String },
    HandedOver { to: String },
}

/// What silence means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the same as in `OnSilence`
pub enum OnSilenceView {
    Grant,
    Refuse,
}

impl From<OnSilence> for OnSilenceView {
    fn from(on_silence: OnSilence) -> Self {
        match on_silence {
            OnSilence::Grant => Self::Grant,
            OnSilence::Refuse => Self::Refuse,
        }
    }
}

impl From<OnSilenceView> for OnSilence {
    fn from(on_silence: OnSilenceView) -> Self {
        match on_silence {
            OnSilenceView::Grant => Self::Grant,
            OnSilenceView::Refuse => Self::Refuse,
        }
    }
}

impl From<&Published> for EventView {
    fn from(Published { position, event }: &Published) -> Self {
        Self {
            position: position.0,
            key: event.key.to_string(),
            seq: event.seq,
            fence: event.fence.get(),
            owner: event.owner.to_string(),
            kind: kind_view(event),
        }
    }
}

fn kind_view(event: &Event) -> EventKindView {
    let in_ms = |time: &StoreTime| whole_millis(time.since(event.at));
    match &event.kind {
        EventKind::Granted { expires_at, meta } => {
            EventKindView::Granted { expires_in_ms: in_ms(expires_at), meta: meta_view(meta) }
        }
        EventKind::Ended { because } => EventKindView::Ended { because: because.into() },
        EventKind::Shortened { expires_at } => EventKindView::Shortened { expires_in_ms: in_ms(expires_at) },
        EventKind::Resumed { expires_at } => EventKindView::Resumed { expires_in_ms: in_ms(expires_at) },
        EventKind::HandoverRequested { by, on_silence } => {
            EventKindView::HandoverRequested { by: by.to_string(), on_silence: (*on_silence).into() }
        }
        EventKind::HandoverTold { by, ends_at } => {
            EventKindView::HandoverTold { by: by.to_string(), ends_in_ms: in_ms(ends_at) }
        }
        EventKind::HandoverRefused { by, silent } => {
            EventKindView::HandoverRefused { by: by.to_string(), silent: *silent }
        }
        EventKind::HandoverWithdrawn { by } => EventKindView::HandoverWithdrawn { by: by.to_string() },
    }
}

impl From<&EndReason> for EndView {
    fn from(because: &EndReason) -> Self {
        match because {
            EndReason::Released => Self::Released,
            EndReason::Expired => Self::Expired,
            EndReason::Disconnected => Self::Disconnected,
            EndReason::TakenOver { by, reason } => {
                Self::TakenOver { by: by.to_string(), reason: reason.as_str().to_owned() }
            }
            EndReason::ForceReleased { by, reason } => {
                Self::ForceReleased { by: by.to_string(), reason: reason.as_str().to_owned() }
            }
            EndReason::HandedOver { to } => Self::HandedOver { to: to.to_string() },
        }
    }
}

fn meta_view(meta: &Meta) -> BTreeMap<String, String> {
    meta.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Fence, LeaseId, Owner, Reason};
    use crate::time::Ttl;
    use crate::{Position, lease::Lease};

    fn lease() -> Lease {
        Lease {
            owner: Owner::parse("alice").unwrap(),
            lease_id: LeaseId::from_random([1; 16]),
            fence: Fence::new(7).unwrap(),
            acquired_at: StoreTime::from_millis(1_000),
            renewed_at: StoreTime::from_millis(2_000),
            expires_at: StoreTime::from_millis(32_000),
            ttl: Ttl::from_secs(30).unwrap(),
            leaving: false,
            meta: Meta::new([("name".into(), "Alice".into())]).unwrap(),
            request: None,
        }
    }

    #[test]
    fn a_lease_is_shown_without_its_secret() {
        let view = LeaseView::new(&Key::parse("doc/a").unwrap(), &lease(), StoreTime::from_millis(5_000));
        let json = serde_json::to_string(&view).unwrap();
        assert_eq!(
            json,
            r#"{"key":"doc/a","owner":"alice","fence":7,"held_for_ms":4000,"expires_in_ms":27000,"ttl_ms":30000,"meta":{"name":"Alice"}}"#
        );
        assert_eq!(serde_json::from_str::<LeaseView>(&json).unwrap(), view);
    }

    #[test]
    fn an_event_is_one_flat_object() {
        let because = EndReason::TakenOver {
            by: Owner::parse("bob").unwrap(),
            reason: Reason::parse("deadline").unwrap(),
        };
        let event = Event {
            key: Key::parse("doc/a").unwrap(),
            seq: 3,
            at: StoreTime::ZERO,
            fence: Fence::new(7).unwrap(),
            owner: Owner::parse("alice").unwrap(),
            kind: EventKind::Ended { because },
        };
        let view = EventView::from(&Published { position: Position(9), event });
        let json = serde_json::to_string(&view).unwrap();
        assert_eq!(
            json,
            r#"{"position":9,"key":"doc/a","seq":3,"fence":7,"owner":"alice","event":"ended","because":"taken_over","by":"bob","reason":"deadline"}"#
        );
        assert_eq!(serde_json::from_str::<EventView>(&json).unwrap(), view);
    }
}
