//! A lease that is held: renewed in the background, and lost in the open.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::holder::Action;
use leasehold_core::lease::{self, Claim};
use leasehold_core::{Command, Fence, Holder, HolderTime, Key, Lost, Outcome, Owner};
use tokio_util::sync::CancellationToken;

use crate::acquire::random;
use crate::{Error, Inner};

/// The longest sleep between two looks at the clock: a timer stands still while the machine sleeps, the deadline does
/// not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A lease that this program holds. It is renewed in the background until it is released, dropped or lost.
///
/// Dropping it releases it in the background, if there is a runtime to do so; [`Guard::release`] says how that went.
#[must_use = "a lease is released when its guard is dropped"]
pub struct Guard {
    lease: Lease,
    released: bool,
}

/// A view of a held lease, for the work that is done under it. It does not keep the lease.
#[derive(Clone)]
pub struct Lease {
    held: Arc<HeldLease>,
}

struct HeldLease {
    inner: Arc<Inner>,
    key: Key,
    owner: Owner,
    claim: Claim,
    holder: Mutex<Holder>,
    /// Cancelled when the lease is gone.
    gone: CancellationToken,
}

impl Guard {
    pub(crate) fn new(
        inner: &Arc<Inner>,
        key: Key,
        lease: &lease::Lease,
        sent: HolderTime,
        heartbeat: Option<Duration>,
    ) -> Self {
        let holder = match heartbeat {
            Some(heartbeat) => Holder::with_heartbeat(sent, lease.ttl, heartbeat),
            None => Holder::new(sent, lease.ttl),
        };
        let held = Arc::new(HeldLease {
            inner: inner.clone(),
            key,
            owner: lease.owner.clone(),
            claim: Claim { lease_id: lease.lease_id, fence: lease.fence },
            holder: Mutex::new(holder),
            gone: CancellationToken::new(),
        });
        tokio::spawn(keep(Arc::downgrade(&held)));
        Self { lease: Lease { held }, released: false }
    }

    /// A view of the lease, to give to the work.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Gives the lease back. That it was lost before is fine; an error means that it will run out by itself.
    pub async fn release(mut self) -> Result<(), Error> {
        self.released = true;
        let held = self.lease.held.clone();
        held.stop();
        held.inner.store.apply(&held.key, Command::Release(held.claim)).await?;
        Ok(())
    }
}

impl Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        let held = &self.lease.held;
        held.stop();
        held.inner.apply_in_background(
            &held.key,
            Command::Release(held.claim),
            "a dropped lease could not be released",
        );
    }
}

impl Lease {
    /// What is leased.
    pub fn key(&self) -> &Key {
        &self.held.key
    }

    /// Who holds it, as others see it.
    pub fn owner(&self) -> &Owner {
        &self.held.owner
    }

    /// The fence of this grant: larger than that of every earlier one. Whatever the lease protects compares it.
    pub fn fence(&self) -> Fence {
        self.held.claim.fence
    }

    /// Whether the lease may still be acted on at this moment.
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// The fence, if the lease may still be acted on at this moment. Ask before every act that others can see.
    pub fn check(&self) -> Result<Fence, Lost> {
        let now = self.held.inner.now();
        let holder = self.held.holder();
        match holder.lost() {
            Some(lost) => Err(lost),
            None if holder.is_held(now) => Ok(self.fence()),
            None => Err(Lost::Deadline),
        }
    }

    /// Completes when the lease is gone, and says why. It does so *before* anybody else can get it, unless they took
    /// it by force.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let held = self.held.clone();
        async move {
            held.gone.cancelled().await;
            held.holder().lost().unwrap_or(Lost::Deadline)
        }
    }

    /// A token that is cancelled when the lease is gone, for code that is built around such tokens.
    pub fn token(&self) -> CancellationToken {
        self.held.gone.child_token()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("owner", self.owner())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.lease).finish()
    }
}

impl HeldLease {
    fn holder(&self) -> MutexGuard<'_, Holder> {
        // The holder is never left half changed.
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The holder itself is done with it.
    fn stop(&self) {
        self.holder().handle_released();
        self.gone.cancel();
    }

    async fn renew(&self, give_up_at: HolderTime) {
        let sent = self.inner.now();
        let renewal = self.inner.store.apply(&self.key, Command::Renew { claim: self.claim, ttl: None });
        let answer = tokio::time::timeout(give_up_at.since(sent), renewal).await;
        let mut holder = self.holder();
        match answer {
            Ok(Ok(applied)) => match applied.outcome {
                Outcome::Renewed(lease) => holder.handle_renewed(sent, lease.ttl),
                Outcome::Lost { because, .. } => holder.handle_lost(because),
                other => tracing::error!(key = %self.key, "a renewal was answered with {other:?}"),
            },
            Ok(Err(error)) => {
                tracing::warn!(key = %self.key, %error, "a renewal failed and will be repeated");
                holder.handle_failed(self.inner.now(), random());
            }
            Err(_) => {
                tracing::warn!(key = %self.key, "a renewal was not answered in time and will be repeated");
                holder.handle_failed(self.inner.now(), random());
            }
        }
    }
}

/// Renews the lease until it is gone. The task does not keep the lease alive.
async fn keep(held: Weak<HeldLease>) {
    while let Some(held) = held.upgrade() {
        let now = held.inner.now();
        let action = held.holder().poll(now);
        match action {
            Action::Stop(_) => {
                held.gone.cancel();
                return;
            }
            Action::Renew { give_up_at } => held.renew(give_up_at).await,
            Action::Wait(until) => {
                let (gone, pause) = (held.gone.clone(), until.since(now).min(LONGEST_SLEEP));
                drop(held);
                tokio::select! {
                    () = gone.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}
