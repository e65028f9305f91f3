//! Calls the rules from an exported function, so that the WebAssembly build of this example contains them, and whatever
//! they would import from the host. `cargo xtask test` builds it and fails when there is an import.

#![allow(unsafe_code)] // an exported symbol, and nothing else

use leasehold_core::lease::{Bid, Claim};
use leasehold_core::project::guarded::{Found, LockFile, Probe, Section};
use leasehold_core::project::{
    CallId, Effect, Folder, Now, Options, ProjectLock, Surroundings, Wanted, WebLock,
};
use leasehold_core::{
    Command, Context, Holder, HolderTime, Key, LeaseId, Meta, Outcome, Owner, Slot, StoreTime, Ttl,
};
use leasehold_core::{decide, wire};

/// Acquires, renews and releases a lease at `now`; answers a number that depends on all of it.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn probe(now: u64, seed: u8) -> u64 {
    run(now, seed).unwrap_or(0)
}

/// Acquires a project in an empty folder; answers a number that depends on all of it.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn probe_project(now: u64, seed: u8) -> u64 {
    run_project(now, seed).unwrap_or(0)
}

fn run_project(now: u64, seed: u8) -> Option<u64> {
    let now = Now::both(now);
    let owner = Owner::parse("probe").ok()?;
    let mut lock = ProjectLock::new(Surroundings { owner, folder: Folder::Guarded, seed: [seed; 16] });
    lock.acquire(CallId(1), &Options::parse(&Wanted::default()).ok()?, now);
    let mut told = 0;
    while let Some(effect) = lock.poll_effect() {
        match effect {
            Effect::RequestWebLock { ticket, .. } => lock.handle_web_lock(ticket, WebLock::Granted, now),
            Effect::Guarded { ticket, action } => {
                let text = told.to_string();
                let found = Found { lock: LockFile::Text { text, modified: now.wall }, guard: String::new() };
                let verdict = Section::new(action, &found).decide(Probe::Unknown, now.wall);
                told += verdict.steps.len() as u64;
                lock.handle_guarded(ticket, verdict.outcome, verdict.skewed, now);
            }
            Effect::Emit(event) => told += wire::project::DialectsView::from(&event).autosave.len() as u64,
            _ => told += 1,
        }
    }
    Some(told + lock.lease()?.fence.get())
}

fn run(now: u64, seed: u8) -> Option<u64> {
    let key = Key::parse("run/probe").ok()?;
    let lease_id = LeaseId::from_random([seed; 16]);
    let ttl = Ttl::parse("30s").ok()?;
    let bid = Bid { lease_id, owner: Owner::parse("probe").ok()?, ttl, meta: Meta::default() };
    let now = StoreTime::from_millis(now);
    let context = Context { now, last_fence: u64::from(seed), remembered: None, owner_is_full: false };
    let granted = decide(&key, &Slot::unknown(0), &Command::Acquire(bid), &context);
    let Outcome::Granted { lease, .. } = granted.outcome else { return None };
    let claim = Claim { lease_id, fence: lease.fence };
    let renewed = decide(&key, &granted.slot?, &Command::Renew { claim, ttl: None }, &context);
    let released = decide(&key, &renewed.slot?, &Command::Release(claim), &context);
    let holder = Holder::new(HolderTime::ZERO, ttl);
    let shown = wire::LeaseView::new(&key, &lease, now);
    Some(released.slot?.seq + holder.deadline().as_millis() + shown.expires_in_ms)
}
