//! Calls the rules from an exported function, so that the WebAssembly build of this example contains them, and whatever
//! they would import from the host. `cargo xtask test` builds it and fails when there is an import.

#![allow(unsafe_code)] // an exported symbol, and nothing else

use leasehold_core::lease::{Bid, Proof};
use leasehold_core::{
    Command, Context, HolderTime, Keeper, Key, LeaseId, Meta, Outcome, Owner, Slot, StoreTime, Ttl,
};
use leasehold_core::{decide, wire};

/// Acquires, renews and releases a lease at `now`; answers a number that depends on all of it.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn probe(now: u64, seed: u8) -> u64 {
    run(now, seed).unwrap_or(0)
}

fn run(now: u64, seed: u8) -> Option<u64> {
    let key = Key::parse("run/probe").ok()?;
    let lease_id = LeaseId::from_random([seed; 16]);
    let ttl = Ttl::parse("30s").ok()?;
    let (owner, meta) = (Owner::parse("probe").ok()?, Meta::default());
    let bid = Bid { lease_id, owner, tab: None, ttl, meta };
    let now = StoreTime::from_millis(now);
    let context = Context {
        now,
        last_fence: u64::from(seed),
        remembered: None,
        owner_is_full: false,
        asker_is_full: false,
    };
    let granted = decide(&key, &Slot::unknown(0), &Command::Acquire(bid), &context);
    let Outcome::Granted { lease, .. } = granted.outcome else { return None };
    let claim = Proof { lease_id, fence: lease.fence };
    let renewed = decide(&key, &granted.slot?, &Command::Renew { claim: claim.into(), ttl: None }, &context);
    let released = decide(&key, &renewed.slot?, &Command::Release(claim.into()), &context);
    let keeper = Keeper::new(HolderTime::ZERO, ttl);
    let shown = wire::LeaseView::new(&key, &lease, now);
    Some(released.slot?.seq + keeper.deadline().as_millis() + shown.expires_in_ms)
}
