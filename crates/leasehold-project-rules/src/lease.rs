//! A lease on a project, as its holder sees it. Plain data, made by the machine alone.

use std::sync::Arc;

use leasehold_core::name::{Fence, LeaseId, Owner};
use leasehold_core::time::{StoreTime, Ttl};

use super::fault::ProjectLockError;
use super::guarded::Holder;
use super::options::Strategy;

/// A lease on the project folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectLease {
    /// What `.lock` says to whom it belongs. No secret at this door: it stands in the file.
    pub lease_id: LeaseId,
    /// Who holds it.
    pub owner: Owner,
    /// Where the project is: a path below the browser's private files, or on disk.
    pub root: Arc<str>,
    /// Larger than that of every earlier lease on the folder; every save is checked against it.
    pub fence: Fence,
    /// When it was granted, by the wall clock.
    pub acquired_at: StoreTime,
    /// When it ends unless it is renewed, by the wall clock. Its holder stops a little earlier.
    pub expires_at: StoreTime,
    /// How long a renewal lasts.
    pub ttl: Ttl,
    /// When it will be renewed.
    pub next_heartbeat_at: StoreTime,
    /// How it was got.
    pub strategy: Strategy,
    /// Whether the Web Lock was tried first, in vain.
    pub via_fallback: bool,
    /// What it is worth.
    pub guarantee: Guarantee,
}

/// What a lease is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Guarantee {
    /// No other can save: `.lock` rules, under its guard, and every save is checked.
    #[default]
    Exclusive,
    /// No other tab with Web Locks holds it; there is no folder to check saves in.
    TabExclusive,
    /// The folder has no guard: two may hold it.
    Advisory,
}

impl Guarantee {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 3] =
        [(Self::Exclusive, "exclusive"), (Self::TabExclusive, "tab-exclusive"), (Self::Advisory, "advisory")];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }
}

/// What a call came to.
pub type Answer = Result<Settled, ProjectLockError>;

/// What a call that went well came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The lock is this tab's.
    Acquired(ProjectLease),
    /// It still is.
    Renewed(ProjectLease),
    /// It was released.
    Released,
    /// Who has it, if there is a holder.
    Looked(Option<Holder>),
}
