//! Getting a lease: one attempt, or a wait made of attempts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    HolderTime, Invalid, Key, LeaseId, LeaseName, Lost, Meta, Owner, Position, Retries, RetryPolicy, Ttl,
    WorkerName, lease,
};
use leasehold_store::Retry;
use leasehold_store::jitter;
use tokio_util::sync::CancellationToken;

use crate::backend::{Answered, BidReply, Held, Way};
use crate::guard::Guard;
use crate::waiters::Waiter;
use crate::{Error, Inner};

/// How to acquire a lease.
#[derive(Clone, Debug, Default)]
pub struct AcquireOptions {
    owner: Option<String>,
    ttl: Option<Duration>,
    heartbeat: Option<Duration>,
    meta: Vec<(String, String)>,
    wait: Option<Duration>,
    cancel: Option<CancellationToken>,
}

/// How long a lease lasts unless the options say otherwise.
const TTL: Duration = Duration::from_secs(30);

/// How long the first answer may take, also for a caller that does not wait for the lease.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// The shortest sleep between two attempts: a lease that has no whole millisecond left is not worth a race.
const SHORTEST_SLEEP: Duration = Duration::from_millis(5);

impl AcquireOptions {
    /// The defaults: 30 s at a time, waiting for as long as it takes, in the name of this program.
    pub fn new() -> Self {
        Self::default()
    }

    /// The defaults in the name of `owner`, as others will see it.
    pub fn owner(owner: impl Into<String>) -> Self {
        Self { owner: Some(owner.into()), ..Self::default() }
    }

    /// How long the lease lasts without being renewed: 1 s to 24 h, 30 s by default. It is renewed in the background;
    /// a short one frees the key sooner when this program dies.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How often the lease is renewed; a third of the TTL by default.
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = Some(every);
        self
    }

    /// Adds something for others to see, such as a display name.
    pub fn meta(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta.push((name.into(), value.into()));
        self
    }

    /// How long to wait while another holds the lease; for as long as it takes by default.
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.wait = Some(at_most);
        self
    }

    /// Ends the wait when it is cancelled.
    pub fn cancel(mut self, token: CancellationToken) -> Self {
        self.cancel = Some(token);
        self
    }

    /// When to stop waiting.
    pub(crate) fn patience(&self) -> (Option<Duration>, CancellationToken) {
        (self.wait, self.cancel.clone().unwrap_or_default())
    }

    fn bid(&self, key: &Key, is_server: bool) -> Result<lease::Bid, Error> {
        match is_server {
            true if key.as_str().starts_with(LeaseName::DOOR) => self.as_a_worker()?,
            true => self.leave_it_to_the_server()?,
            false => {}
        }
        self.bid_for(TTL)
    }

    fn bid_for(&self, ttl: Duration) -> Result<lease::Bid, Error> {
        Ok(lease::Bid {
            tab: None,
            lease_id: new_lease_id()?,
            owner: Owner::parse(self.owner.as_deref().unwrap_or(&this_program()))?,
            ttl: Ttl::new(self.ttl.unwrap_or(ttl))?,
            meta: Meta::new(self.meta.iter().cloned())?,
        })
    }

    /// The bid for a job, whose attempts last for `ttl` unless the options say otherwise; and the heartbeat.
    pub(crate) fn job_bid(
        &self,
        is_server: bool,
        ttl: Duration,
    ) -> Result<(lease::Bid, Option<Duration>), Error> {
        if is_server {
            self.as_a_worker()?;
        }
        Ok((self.bid_for(ttl)?, self.heartbeat))
    }

    /// Behind a server, the token says who owns an attempt at a job or the lease of a program; a name is only shown.
    fn as_a_worker(&self) -> Result<(), Invalid> {
        if let Some(owner) = &self.owner {
            WorkerName::parse(owner)?;
        }
        match self.meta.first() {
            Some((name, _)) => {
                let rule = "behind a server, a worker or a program has a name and nothing else to show";
                Err(Invalid::new("meta", name, rule, "leave it out"))
            }
            None => Ok(()),
        }
    }

    /// Behind a server, the token says who the owner of a document is, and the server how long its lock lasts. An option
    /// that would be ignored is refused instead.
    fn leave_it_to_the_server(&self) -> Result<(), Invalid> {
        let refuse = |what, value: &str, rule: &str| Err(Invalid::new(what, value, rule, "leave it out"));
        if let Some(owner) = &self.owner {
            return refuse("owner", owner, "behind a server, the token says who the owner is");
        }
        if let Some(ttl) = self.ttl {
            return refuse("TTL", &format!("{ttl:?}"), "behind a server, the server sets the TTL");
        }
        if let Some((name, _)) = self.meta.first() {
            return refuse("meta", name, "behind a server, what others see of a holder comes from its token");
        }
        Ok(())
    }
}

/// The outcome of an attempt to get a lease.
#[derive(Debug)]
pub enum Attempt {
    /// It is ours.
    Acquired(Guard),
    /// Another has it.
    Held(Held),
}

impl Attempt {
    /// The lease, if we got it.
    pub fn acquired(self) -> Option<Guard> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::Held(_) => None,
        }
    }
}

pub(crate) async fn try_acquire(
    inner: &Arc<Inner>,
    key: &Key,
    options: &AcquireOptions,
) -> Result<Attempt, Error> {
    Bidder::new(inner, key, options)?.attempt().await
}

pub(crate) async fn acquire(inner: &Arc<Inner>, key: &Key, options: &AcquireOptions) -> Result<Guard, Error> {
    let mut bidder = Bidder::new(inner, key, options)?;
    let (wait, cancelled) = options.patience();
    let patience = wait.map(|wait| wait.max(FIRST_ANSWER));
    tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(Error::Cancelled { key: key.clone() }),
        first = bidder.attempt() => match first? {
            Attempt::Acquired(guard) => return Ok(guard),
            Attempt::Held(_) => {}
        },
        () = sleep_or_forever(patience) => return Err(no_answer()),
    };
    tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(Error::Cancelled { key: key.clone() }),
        granted = bidder.until_granted() => return granted,
        () = sleep_or_forever(wait) => {}
    }
    match bidder.holder() {
        Some(held) => Err(Error::TimedOut { key: key.clone(), held }),
        None => Err(no_answer()),
    }
}

pub(crate) fn no_answer() -> Error {
    let what = "it did not answer within the wait".into();
    Error::Store(leasehold_store::Error::Unavailable { what, retry: Retry::Unknown })
}

/// A backend that keeps the rules never answers like this.
pub(crate) fn unexpected_bid() -> Error {
    let what = "it answered as if a hand-over had been requested".into();
    Error::Store(leasehold_store::Error::Unavailable { what, retry: Retry::No })
}

pub(crate) async fn sleep_or_forever(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// What a bid came to.
pub(crate) enum Bid {
    Granted(Guard),
    Held(Held),
    Requested,
    RequestedByAnother(Option<Held>),
}

/// Seeks one lease, under one lease id for all attempts: should the answer to one get lost, the next one finds out. When
/// it is dropped with an attempt under way, the lease id is withdrawn: otherwise a lease could be granted and never
/// used.
pub(crate) struct Bidder<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) key: &'a Key,
    bid: lease::Bid,
    heartbeat: Option<Duration>,
    under_way: bool,
    /// Who was in the way at the last attempt, and when that was.
    holder: Option<(HolderTime, Held)>,
    /// Where the store's events stood then.
    seen: Option<Position>,
}

impl<'a> Bidder<'a> {
    pub(crate) fn new(inner: &'a Arc<Inner>, key: &'a Key, options: &AcquireOptions) -> Result<Self, Error> {
        let bid = options.bid(key, inner.backend.is_server())?;
        let heartbeat = options.heartbeat;
        Ok(Self { inner, key, bid, heartbeat, under_way: false, holder: None, seen: None })
    }

    /// Who is in the way, as far as is known, with what they have left by now.
    pub(crate) fn holder(&self) -> Option<Held> {
        let (at, held) = self.holder.as_ref()?;
        Some(Held { left: held.left.saturating_sub(self.inner.now().since(*at)), ..held.clone() })
    }

    /// Listens to what happens to the key from the last attempt on.
    pub(crate) fn listen(&self) -> Waiter {
        self.inner.waiters.listen(self.key, self.seen)
    }

    /// Tries until it has the lease.
    async fn until_granted(&mut self) -> Result<Guard, Error> {
        let mut listening = self.listen();
        loop {
            // First listen, then look again: whatever happens after that look will be heard.
            listening.mark();
            let left = match self.attempt().await? {
                Attempt::Acquired(guard) => return Ok(guard),
                Attempt::Held(held) => held.left,
            };
            // A lease is never pushed: when the key frees or expires, all waiters ask anew.
            tokio::select! {
                () = listening.ended() => {}
                () = tokio::time::sleep(left.max(SHORTEST_SLEEP)) => {}
            }
        }
    }

    async fn attempt(&mut self) -> Result<Attempt, Error> {
        match self.bid(&Way::Acquire).await? {
            Bid::Granted(guard) => Ok(Attempt::Acquired(guard)),
            Bid::Held(held) => Ok(Attempt::Held(held)),
            Bid::Requested | Bid::RequestedByAnother(_) => Err(unexpected_bid()),
        }
    }

    /// Sends one bid, and again if there is trouble that may pass.
    pub(crate) async fn bid(&mut self, way: &Way) -> Result<Bid, Error> {
        let (sent, (reply, seen)) = self.send(way).await?;
        self.seen = seen;
        match reply {
            BidReply::Granted(granted) => {
                let key = self.key.clone();
                Ok(Bid::Granted(Guard::new(self.inner, key, granted, sent, seen, self.heartbeat)))
            }
            BidReply::Held(held) => {
                self.holder = Some((self.inner.now(), held.clone()));
                Ok(Bid::Held(held))
            }
            BidReply::Requested => Ok(Bid::Requested),
            BidReply::RequestedByAnother(held) => Ok(Bid::RequestedByAnother(held)),
            BidReply::OwnerIsFull => Err(Error::OwnerIsFull { owner: self.bid.owner.to_string() }),
            BidReply::FencesExhausted => Err(Error::FencesExhausted),
            BidReply::Lost(because) => Err(Error::Lost(Lost::Told(because))),
        }
    }

    /// The answer, and when the bid that got it was sent.
    async fn send(&mut self, way: &Way) -> Result<(HolderTime, Answered<BidReply>), Error> {
        let mut retries = retries(RetryPolicy::CALL);
        loop {
            let sent = self.inner.now();
            self.under_way = true;
            match self.inner.backend.bid(self.key, &self.bid, way).await {
                Ok((reply, _)) if self.is_too_late(sent, &reply) && retries.failed().is_some() => {}
                Ok(answered) => {
                    // A request stands until it is answered, and is withdrawn if this is dropped before.
                    self.under_way = matches!(answered.0, BidReply::Requested);
                    return Ok((sent, answered));
                }
                Err(error) => {
                    self.under_way = error.retry() != Retry::No;
                    pause_or_give_up(&mut retries, error).await?;
                }
            }
        }
    }

    fn is_too_late(&self, sent: HolderTime, reply: &BidReply) -> bool {
        matches!(reply, BidReply::Granted(granted) if granted.is_too_late(sent, self.inner.now()))
    }
}

/// Waits until it is time for the next attempt; gives the error back if there is none.
pub(crate) async fn pause_or_give_up(retries: &mut Retries, error: Error) -> Result<(), Error> {
    let wait = match error.retry() {
        Retry::No => None,
        Retry::Safe | Retry::Unknown => retries.failed_asking(error.retry_after()),
    };
    let Some(wait) = wait else { return Err(error) };
    tokio::time::sleep(wait).await;
    Ok(())
}

impl Drop for Bidder<'_> {
    fn drop(&mut self) {
        // Outside a runtime it cannot be sent: the lease runs out.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.under_way {
            return;
        }
        let (inner, key, bid) = (self.inner.clone(), self.key.clone(), self.bid.clone());
        runtime.spawn(async move {
            if let Err(error) = inner.backend.withdraw(&key, &bid).await {
                tracing::warn!(%key, %error, "an abandoned acquire could not be withdrawn; its lease will run out");
            }
        });
    }
}

impl Inner {
    pub(crate) fn now(&self) -> HolderTime {
        HolderTime::from_millis(self.clock.millis())
    }
}

fn new_lease_id() -> Result<LeaseId, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let what = format!("the system has no randomness to give: {error}");
        Error::Store(leasehold_store::Error::Unavailable { what, retry: Retry::Safe })
    })?;
    Ok(LeaseId::from_random(bytes))
}

/// Counts the failures of something that is tried again.
pub(crate) fn retries(policy: RetryPolicy) -> Retries {
    Retries::new(policy, jitter())
}

/// This program and process, as others will see it.
fn this_program() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(std::path::Path::file_stem).and_then(std::ffi::OsStr::to_str);
    let name = program.filter(|name| Owner::parse(name).is_ok() && name.len() < 200).unwrap_or("program");
    format!("{name}-{}", std::process::id())
}
