//! Whether the store can be written, for `/readyz`: a lease of the server's own is acquired, or extended, which every store has
//! to write.
//!
//! Anybody may ask, so the answer is kept for a moment: asking often must not keep the disk busy.

use std::time::Duration;

use leasehold_core::lease::Bid;
use leasehold_core::{Command, Key, LeaseId, Meta, Outcome, Owner, Ttl};
use leasehold_store::{Error, Store};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::server_lease::{DOOR, random_lease_id};

/// How long an answer counts.
const FRESH: Duration = Duration::from_secs(1);

/// How long the lease lasts: longer than between two questions of most orchestrators, so that it is only extended, which
/// publishes nothing.
const TTL: Duration = Duration::from_secs(120);

/// The server's own lease, and when it was last written.
#[derive(Default)]
pub(crate) struct Ready(Mutex<State>);

#[derive(Default)]
struct State {
    lease_id: Option<LeaseId>,
    written: Option<Instant>,
}

impl Ready {
    /// Writes to the store, unless it has just been done. Of several callers one writes, and the others wait for it.
    pub(crate) async fn check(&self, store: &dyn Store) -> Result<(), Error> {
        let mut state = self.0.lock().await;
        if state.written.is_some_and(|written| written.elapsed() < FRESH) {
            return Ok(());
        }
        state.written = None;
        loop {
            let known = state.lease_id;
            let lease_id = known.map_or_else(random_lease_id, Ok)?;
            state.lease_id = Some(lease_id);
            match store.apply(&key(&lease_id)?, Command::Acquire(bid(lease_id)?)).await?.outcome {
                // Nobody asked for so long that it ran out: a lease id that has ended is not granted again.
                Outcome::Lost { .. } if known.is_some() => state.lease_id = None,
                _ => {
                    state.written = Some(Instant::now());
                    return Ok(());
                }
            }
        }
    }
}

/// A key that no other server has. The lease id is a secret, and is not shown in it.
fn key(lease_id: &LeaseId) -> Result<Key, Error> {
    let [a, b, c, d, ..] = *lease_id.as_bytes();
    Ok(Key::parse(&format!("{DOOR}ready/{:08x}", u32::from_be_bytes([a, b, c, d])))?)
}

fn bid(lease_id: LeaseId) -> Result<Bid, Error> {
    let (owner, ttl) = (Owner::parse("a server that was asked whether it is ready")?, Ttl::new(TTL)?);
    Ok(Bid { lease_id, owner, tab: None, ttl, meta: Meta::default() })
}
