//! A lease that is held: renewed in the background, and lost in the open.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::holder::Action;
use leasehold_core::lease::{self, Claim};
use leasehold_core::{
    Command, Fence, Holder, HolderTime, JobId, Key, Lost, OnSilence, Outcome, Owner, Position, Seq,
    StoreTime, Ttl,
};
use leasehold_store::Applied;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::handover::{HandoverRequests, Wanted};
use crate::waiters::{Heard, Waiter};
use crate::{Error, Inner};
use leasehold_store::random::jitter;

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

pub(crate) struct HeldLease {
    pub(crate) inner: Arc<Inner>,
    pub(crate) key: Key,
    owner: Owner,
    pub(crate) claim: Claim,
    pub(crate) ttl: Ttl,
    /// What had been told when the lease was granted.
    position: Position,
    holder: Mutex<Holder>,
    /// Cancelled when the lease is gone.
    gone: CancellationToken,
    /// Somebody's request to have it handed over.
    wanted: watch::Sender<Option<Wanted>>,
    /// The last request that was refused: what is still said about it is old.
    refused: AtomicU64,
    /// The plan has changed: the task that follows it looks again.
    changed: Notify,
}

impl Guard {
    pub(crate) fn new(
        inner: &Arc<Inner>,
        key: Key,
        lease: &lease::Lease,
        sent: HolderTime,
        applied: &Applied,
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
            ttl: lease.ttl,
            position: applied.position,
            holder: Mutex::new(holder),
            gone: CancellationToken::new(),
            wanted: watch::Sender::new(None),
            refused: AtomicU64::new(0),
            changed: Notify::new(),
        });
        held.heed(lease, sent, applied.now);
        tokio::spawn(keep(held.clone()));
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
        held.inner.backend.apply(&held.key, Command::Release(held.claim)).await?;
        Ok(())
    }
}

impl Guard {
    /// Stops looking after the lease, without giving it back: it runs out, unless whoever has its claim goes on with it.
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
        let holder = self.held.holder();
        match holder.lost() {
            Some(lost) => Err(lost),
            None if holder.is_held(now) => Ok(self.fence()),
            None => Err(Lost::Deadline),
        }
    }

    /// How long the work may go on unless a renewal succeeds before; zero when the lease is gone. It counts on a clock
    /// that keeps running while the machine sleeps, and ends before anybody else can get the lease.
    pub fn time_left(&self) -> Duration {
        let now = self.held.inner.now();
        let holder = self.held.holder();
        if holder.lost().is_some() { Duration::ZERO } else { holder.deadline().since(now) }
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

    /// The requests of others to have the lease handed over, each as a value to be answered. Whoever asks here has to
    /// listen: from the moment in which a request is taken from [`HandoverRequests::next`], silence counts as an
    /// answer. Without anybody who asks here, the holder counts as not told, and keeps the lease.
    pub fn handover_requests(&self) -> HandoverRequests {
        let requests = HandoverRequests::new(self.held.clone(), self.held.wanted.subscribe());
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
    pub(crate) fn holder(&self) -> MutexGuard<'_, Holder> {
        // The holder is never left half changed.
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// Changes what the holder plans by; whoever follows the plan looks at once.
    pub(crate) fn plan<T>(&self, change: impl FnOnce(&mut Holder) -> T) -> T {
        let changed = change(&mut self.holder());
        self.changed.notify_one();
        changed
    }

    /// The holder itself is done with it.
    pub(crate) fn stop(&self) {
        self.holder().handle_released();
        self.gone.cancel();
    }

    /// A request is off the table.
    pub(crate) fn handover_over(&self, request: Seq) {
        self.plan(|holder| {
            self.refused.fetch_max(request, Ordering::SeqCst);
            holder.handle_handover_over(request);
        });
    }

    /// Takes in what an answer, to a message that was sent at `sent`, says about a request to hand over.
    fn heed(&self, lease: &lease::Lease, sent: HolderTime, decided_at: StoreTime) {
        let wanted = lease.request.as_deref();
        let known = self.wanted.borrow().as_ref().map(|known| known.seq);
        let mut holder = self.holder();
        // There is one request at a time. Answers come one after the other, so one that is not in this one is over.
        if let Some(over) = known.filter(|known| wanted.is_none_or(|wanted| wanted.seq != *known)) {
            holder.handle_handover_over(over);
        }
        let refused = self.refused.load(Ordering::SeqCst);
        if let Some(wanted) =
            wanted.filter(|wanted| wanted.on_silence == OnSilence::Grant && wanted.seq > refused)
            && let Some(ends_at) = wanted.silence_ends_at()
        {
            holder.handle_handover_runs(wanted.seq, sent, ends_at.since(decided_at));
        }
        drop(holder);
        if known != wanted.map(|wanted| wanted.seq) {
            self.wanted.send_replace(wanted.map(Wanted::new));
        }
    }

    /// Sends a renewal. Whoever waits for its answer keeps an eye on the deadline, which a request to hand over may
    /// bring forward meanwhile.
    async fn renew(&self, give_up_at: HolderTime) -> Renewal {
        let sent = self.inner.now();
        let command = Command::Renew { claim: self.claim, ttl: None };
        let mut renewal = std::pin::pin!(self.inner.backend.apply(&self.key, command));
        loop {
            let now = self.inner.now();
            let give_up_at = give_up_at.min(self.holder().deadline());
            if now >= give_up_at {
                return Renewal::Failed("it was not answered in time".to_owned());
            }
            tokio::select! {
                biased;
                () = self.gone.cancelled() => return Renewal::Done,
                answer = &mut renewal => return self.renewed(sent, answer),
                () = self.changed.notified() => {}
                () = tokio::time::sleep(give_up_at.since(now).min(LONGEST_SLEEP)) => {}
            }
        }
    }

    fn renewed(&self, sent: HolderTime, answer: Result<Applied, Error>) -> Renewal {
        let applied = match answer {
            Ok(applied) => applied,
            Err(error) => return Renewal::Failed(error.to_string()),
        };
        match applied.outcome {
            Outcome::Renewed(lease) => {
                self.holder().handle_renewed(sent, lease.ttl);
                self.heed(&lease, sent, applied.now);
            }
            Outcome::Lost { because, .. } => self.holder().handle_lost(because),
            other => return Renewal::Failed(format!("it was answered with {other:?}")),
        }
        Renewal::Done
    }

    /// A renewal that is due. If it fails, the plan says when the next one is.
    async fn renew_as_planned(&self, give_up_at: HolderTime) {
        if let Renewal::Failed(why) = self.renew(give_up_at).await {
            tracing::warn!(key = %self.key, %why, "a renewal failed and will be repeated");
            self.holder().handle_failed(self.inner.now(), jitter());
        }
    }

    /// Looks after the lease because something was heard. If that fails, the next renewal, due at `give_up_at`, tells.
    async fn look(&self, heard: Heard, give_up_at: HolderTime) {
        let fence = self.claim.fence.get();
        if let Some((_, because)) = heard.last_end.filter(|(ended, _)| *ended == fence) {
            self.holder().handle_lost(because);
            return;
        }
        if let Renewal::Failed(why) = self.renew(give_up_at).await {
            tracing::debug!(key = %self.key, %why, "a look at the lease failed");
        }
    }

    /// Whether it matters how soon a request, or the end of the lease, is heard of. A server's streams are cheap; in a
    /// store it takes somebody who wants to hear of requests. Nobody takes a job from its worker, so there is nothing to
    /// hear about one.
    fn listens(&self) -> bool {
        let is_job = self.key.as_str().starts_with(JobId::DOOR);
        (self.inner.backend.is_server() && !is_job) || self.wanted.receiver_count() > 0
    }
}

/// How a renewal went.
enum Renewal {
    Done,
    Failed(String),
}

/// Renews the lease until it is gone. Dropping the guard ends it.
async fn keep(held: Arc<HeldLease>) {
    let mut news: Option<Waiter> = None;
    let mut heard = Heard::default();
    loop {
        if news.is_none() && held.listens() {
            let listening = held.inner.waiters.listen(&held.key, held.position);
            heard = listening.marked();
            news = Some(listening);
        }
        let now = held.inner.now();
        let action = held.holder().poll(now);
        match action {
            Action::Stop(_) => {
                held.gone.cancel();
                return;
            }
            Action::Renew { give_up_at } => held.renew_as_planned(give_up_at).await,
            Action::Wait(until) => {
                let pause = until.since(now).min(LONGEST_SLEEP);
                tokio::select! {
                    () = held.gone.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                    () = held.changed.notified() => {}
                    now_heard = next(&mut news) => {
                        let before = std::mem::replace(&mut heard, now_heard);
                        if concerns(held.claim.fence, before, now_heard) {
                            held.look(now_heard, until).await;
                        }
                    }
                }
            }
        }
    }
}

/// What is heard next; never, as long as nobody listens.
async fn next(news: &mut Option<Waiter>) -> Heard {
    match news {
        Some(news) => news.changed().await,
        None => std::future::pending().await,
    }
}

/// Whether what was heard says something about the lease with this fence.
fn concerns(fence: Fence, before: Heard, heard: Heard) -> bool {
    heard.asked != before.asked || heard.ended != before.ended || heard.fence > fence.get()
}
