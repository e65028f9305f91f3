//! What the small numbers of the walks stand for: steps of time, and attempts of clients or workers.

use std::time::Duration;

use leasehold_core::{HolderTime, Keeper, LeaseId, StoreTime, Ttl};

/// How long a step of time is. The holder's margin is one step at this TTL.
pub(crate) const STEP: Duration = Duration::from_millis(500);
pub(crate) const TTL_STEPS: u8 = 3;

/// Whose attempt, and which of theirs.
pub(crate) type Attempt = (u8, u8);

pub(crate) fn ttl() -> Ttl {
    Ttl::new(STEP * u32::from(TTL_STEPS)).unwrap_or(Ttl::MIN)
}

pub(crate) fn store_time(step: u8) -> StoreTime {
    StoreTime::ZERO + STEP * u32::from(step)
}

pub(crate) fn holder_time(step: u8) -> HolderTime {
    HolderTime::ZERO + STEP * u32::from(step)
}

pub(crate) fn keeper(sent: u8) -> Keeper {
    Keeper::new(holder_time(sent), ttl())
}

pub(crate) fn lease_id((who, attempt): Attempt) -> LeaseId {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (who, attempt);
    LeaseId::from_random(bytes)
}
