//! A lease that is held: renewed in the background, and its loss announced. The rules are those of
//! [`Keeper`](leasehold_core::Keeper); this file sends what it asks for and tells it what came back.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::holder::{Action, PendingRequest, Reply};
use leasehold_core::{Fence, HolderTime, Keeper, Key, Lost, Owner, Position, RoomId};
use leasehold_store::jitter;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backend::{Claim, Granted};
use crate::handover::HandoverRequests;
use crate::waiters::{Heard, Waiter};
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
    /// The task that renews the lease.
    keeping: JoinHandle<()>,
    released: bool,
}

/// A view of a held lease, for the work that is done under it. It does not keep the lease.
#[derive(Clone)]
pub struct Lease {
    held: Arc<HeldLease>,
}

pub(crate) struct HeldLease {
    pub(crate) inner: Arc<Inner>,
    pub(crate) key: Key,
    owner: Owner,
    pub(crate) claim: Claim,
    /// Where the store's events stood when the lease was granted.
    position: Option<Position>,
    keeper: Mutex<Keeper>,
    /// Cancelled when the lease is gone.
    gone: CancellationToken,
    /// What the keeper says about requests to hand over, for those who wait for one.
    request: watch::Sender<Option<PendingRequest>>,
    /// The keeper was changed: the task that follows it polls it again.
    changed: Notify,
}

impl Guard {
    /// Keeps a lease that was granted in answer to a request sent at `sent`.
    pub(crate) fn new(
        inner: &Arc<Inner>,
        key: Key,
        granted: Granted,
        sent: HolderTime,
        position: Option<Position>,
        heartbeat: Option<Duration>,
    ) -> Self {
        let Granted { owner, claim, terms } = granted;
        let keeper = Keeper::granted(sent, inner.now(), terms, heartbeat, jitter());
        let request = watch::Sender::new(keeper.request().cloned());
        let held = Arc::new(HeldLease {
            inner: inner.clone(),
            key,
            owner,
            claim,
            position,
            keeper: Mutex::new(keeper),
            gone: CancellationToken::new(),
            request,
            changed: Notify::new(),
        });
        let keeping = tokio::spawn(keep(held.clone()));
        Self { lease: Lease { held }, keeping, released: false }
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
        let released = held.inner.backend.release(&held.key, held.claim).await;
        // It ends at once. Before that, it would still have the store open for a caller that opens the file again.
        let _ = (&mut self.keeping).await;
        released
    }

    /// Stops renewing the lease without giving it back: it runs out, unless it is renewed with the claim.
    pub(crate) fn let_go(mut self) -> Claim {
        self.released = true;
        self.lease.held.stop();
        self.lease.held.claim
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
        let held = self.lease.held.clone();
        held.stop();
        // Outside a runtime it cannot be sent: the lease runs out.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Err(error) = held.inner.backend.release(&held.key, held.claim).await {
                tracing::warn!(key = %held.key, %error, "a dropped lease could not be released; it will run out");
            }
        });
    }
}

impl Lease {
    /// What is leased.
    pub fn key(&self) -> &Key {
        &self.held.key
    }

    /// What proves that it is ours.
    pub(crate) fn claim(&self) -> Claim {
        self.held.claim
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
        let keeper = self.held.keeper();
        match keeper.lost() {
            Some(lost) => Err(lost),
            None if keeper.is_held(now) => Ok(self.fence()),
            None => Err(Lost::Deadline),
        }
    }

    /// How long the work may go on unless a renewal succeeds before; zero when the lease is gone. It counts on a clock
    /// that keeps running while the machine sleeps, and ends before anybody else can get the lease.
    pub fn time_left(&self) -> Duration {
        let now = self.held.inner.now();
        let keeper = self.held.keeper();
        if keeper.lost().is_some() { Duration::ZERO } else { keeper.deadline().since(now) }
    }

    /// Completes when the lease is gone, and says why. It does so *before* anybody else can get it, unless they took
    /// it by force.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let held = self.held.clone();
        async move {
            held.gone.cancelled().await;
            held.keeper().lost().unwrap_or(Lost::Deadline)
        }
    }

    /// The requests of others to have the lease handed over, each as a value to be answered. Listen to what this gives:
    /// from the moment in which a request is taken from [`HandoverRequests::next`], silence counts as an answer. A program
    /// that never calls this does not hear of requests, and keeps the lease.
    pub fn handover_requests(&self) -> HandoverRequests {
        let requests = HandoverRequests::new(self.held.clone(), self.held.request.subscribe());
        // From now on it matters how soon a request is heard of.
        self.held.changed.notify_one();
        requests
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
    pub(crate) fn keeper(&self) -> MutexGuard<'_, Keeper> {
        // The keeper is never left half changed.
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// Changes the keeper; the task that follows it polls it at once, and those who wait for a request see what it says.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Keeper) -> T) -> T {
        let mut keeper = self.keeper();
        let changed = change(&mut keeper);
        let request = keeper.request();
        self.request.send_if_modified(|shown| {
            let is_new = shown.as_ref().map(|shown| shown.seq) != request.map(|request| request.seq);
            if is_new {
                *shown = request.cloned();
            }
            is_new
        });
        drop(keeper);
        self.changed.notify_one();
        changed
    }

    /// The holder gives the lease up.
    pub(crate) fn stop(&self) {
        self.keeper().release();
        self.gone.cancel();
    }

    fn renew(self: &Arc<Self>, sent: HolderTime) -> Sent {
        let held = self.clone();
        let reply = Box::pin(async move {
            held.inner.backend.renew(&held.key, held.claim).await.unwrap_or_else(|error| {
                tracing::warn!(key = %held.key, %error, "a renewal failed and will be repeated");
                Reply::Failed
            })
        });
        Sent { at: sent, reply }
    }

    /// Takes in what was heard about the key.
    fn hear(&self, before: Heard, heard: Heard) {
        let fence = self.claim.fence.get();
        if let Some((_, because)) = heard.last_end.filter(|(ended, _)| *ended == fence) {
            self.change(|keeper| keeper.handle_lost(because));
        } else if heard.asked != before.asked || heard.ended != before.ended || heard.fence > fence {
            let now = self.inner.now();
            self.change(|keeper| keeper.handle_news(now));
        }
    }

    /// Whether it matters how soon a request, or the end of the lease, is heard of. A server's streams are cheap; in a
    /// store it takes a program that listens to requests. Behind a server, a job is never taken from its worker, nor a lease
    /// from its program, so there is nothing to hear about those.
    fn listens(&self) -> bool {
        let is_document = self.key.as_str().starts_with(RoomId::DOOR);
        (self.inner.backend.is_server() && is_document) || self.request.receiver_count() > 0
    }
}

/// A renewal that is under way.
struct Sent {
    at: HolderTime,
    reply: Pin<Box<dyn Future<Output = Reply> + Send>>,
}

/// Renews the lease until it is gone. Dropping the guard ends it.
async fn keep(held: Arc<HeldLease>) {
    let (mut news, mut heard) = (None, Heard::default());
    let mut renewal: Option<Sent> = None;
    loop {
        if news.is_none() && held.listens() {
            let listening = held.inner.waiters.listen(&held.key, held.position);
            heard = listening.marked();
            news = Some(listening);
        }
        let now = held.inner.now();
        let action = held.keeper().poll(now);
        let until = match action {
            Action::Stop(_) => return held.gone.cancel(),
            Action::Renew => {
                if renewal.replace(held.renew(now)).is_some() {
                    tracing::warn!(key = %held.key, "a renewal was not answered in time and is repeated");
                }
                continue;
            }
            Action::Wait(until) => until,
        };
        tokio::select! {
            biased;
            () = held.gone.cancelled() => return,
            (sent, reply) = answer(&mut renewal) => {
                renewal = None;
                let now = held.inner.now();
                held.change(|keeper| keeper.handle_reply(sent, now, reply));
            }
            () = held.changed.notified() => {}
            now_heard = next(&mut news) => held.hear(std::mem::replace(&mut heard, now_heard), now_heard),
            () = tokio::time::sleep(until.since(now).min(LONGEST_SLEEP)) => {}
        }
    }
}

/// The reply to the renewal that is under way, and when that was sent; never, if there is none.
async fn answer(renewal: &mut Option<Sent>) -> (HolderTime, Reply) {
    match renewal {
        Some(sent) => (sent.at, sent.reply.as_mut().await),
        None => std::future::pending().await,
    }
}

/// What is heard next; never, without a listener.
async fn next(news: &mut Option<Waiter>) -> Heard {
    match news {
        Some(news) => news.changed().await,
        None => std::future::pending().await,
    }
}
