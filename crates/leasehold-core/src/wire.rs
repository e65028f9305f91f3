//! The JSON that servers, clients and commands exchange: the only serde derives of this crate, so that every shape is in
//! one place.
//!
//! Times are milliseconds from now, because the store's clock means nothing outside of the store; answers that show
//! wall-clock times add them. No view of a lease has its id: [`Secret`] carries one, and only in the answers to its holder.

pub mod documents;
pub mod flags;
pub mod jobs;
pub mod leases;
pub mod telemetry;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lease::{Lease, OnSilence};
use crate::name::{Key, Meta};
use crate::time::{StoreTime, whole_millis};

/// A lease without its secret, as everybody may see it.
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

/// A lease id or a ticket in JSON. `Debug` hides it, so that it never reaches a log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// What happens when the holder knows of a request and does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "documented on `OnSilence`")]
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

fn meta_view(meta: &Meta) -> BTreeMap<String, String> {
    meta.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Fence, LeaseId, Owner};
    use crate::time::Ttl;

    fn lease() -> Lease {
        Lease {
            owner: Owner::parse("alice").unwrap(),
            tab: None,
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
}
