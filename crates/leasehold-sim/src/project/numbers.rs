//! What the small numbers of the walk stand for: steps of time, tabs and attempts, fences.

use std::sync::LazyLock;
use std::time::Duration;

use leasehold_core::lease::{Bid, Proof};
use leasehold_core::name::{Fence, LeaseId, Meta, Owner};
use leasehold_core::time::{StoreTime, Ttl};
use leasehold_project_rules::guarded::LockFile;
use leasehold_project_rules::options::usable;
use leasehold_project_rules::record::{Content, Record, SKEW};

use super::state::Lock;

/// How long a step of time is: as much as clocks may differ.
pub(super) const STEP: Duration = Duration::from_secs(2);

/// How long a lease lasts: its holder stops after two steps, others may come after three.
const TTL: Duration = Duration::from_secs(8);

/// After how many steps of time a holder stops.
pub(super) fn stops_after() -> u8 {
    small(usable(ttl(), ttl()).as_secs() / STEP.as_secs())
}

/// After how many steps of time others may come.
pub(super) fn free_after() -> u8 {
    small((TTL - SKEW).as_secs() / STEP.as_secs())
}

/// The time at which every section decides. What it decides depends on how old things are, and on nothing else: so that
/// sections that decide the same at different times are one.
pub(super) const NOW: u8 = 100;

/// `.lock`, as a section finds it when it was written so many steps ago.
pub(super) fn lock_file(lock: Option<Lock>, age: u8) -> LockFile {
    let Some(lock) = lock else { return LockFile::Missing };
    let written = store_time(NOW - age);
    let record = Record {
        lease_id: lease_id(lock.tab, lock.attempt),
        owner: OWNER.clone(),
        label: Meta::default(),
        acquired_at: written,
        updated_at: written,
        ttl: ttl(),
        fence: Some(a_fence(lock.fence)),
        seq: 0,
        held: lock.held,
    };
    LockFile::Read { content: Content::Record(record), modified: written }
}

/// When it is written is filled in by who writes it.
pub(super) fn small_lock(record: &Record) -> Lock {
    let [tab, attempt, ..] = *record.lease_id.as_bytes();
    Lock { tab, attempt, fence: record.fence.map_or(0, small_fence), written: 0, held: record.held }
}

pub(super) fn bid(tab: u8, attempt: u8) -> Bid {
    Bid {
        tab: None,
        lease_id: lease_id(tab, attempt),
        owner: OWNER.clone(),
        ttl: ttl(),
        meta: Meta::default(),
    }
}

pub(super) fn claim(tab: u8, attempt: u8, fence: u8) -> Proof {
    Proof { lease_id: lease_id(tab, attempt), fence: a_fence(fence) }
}

pub(super) fn ttl() -> Ttl {
    Ttl::new(TTL).unwrap_or(Ttl::MIN)
}

pub(super) fn store_time(step: u8) -> StoreTime {
    StoreTime::ZERO + STEP * u32::from(step)
}

#[allow(clippy::expect_used)] // a constant that parses
static OWNER: LazyLock<Owner> = LazyLock::new(|| Owner::parse("tab").expect("a name"));

fn lease_id(tab: u8, attempt: u8) -> LeaseId {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (tab, attempt);
    LeaseId::from_random(bytes)
}

#[allow(clippy::expect_used)] // at least 1, and small
fn a_fence(number: u8) -> Fence {
    Fence::new(u64::from(number.max(1))).expect("a fence")
}

pub(super) fn small_fence(fence: Fence) -> u8 {
    small(fence.get())
}

pub(super) fn small(number: impl TryInto<u8>) -> u8 {
    number.try_into().unwrap_or(u8::MAX)
}
