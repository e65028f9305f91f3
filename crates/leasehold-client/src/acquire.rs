//! Getting a lease: one attempt, or a wait made of attempts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::holder::heartbeat;
use leasehold_core::lease::Bid;
use leasehold_core::{
    Command, Held, Holder, HolderTime, Invalid, Key, LeaseId, Lost, Meta, Outcome, Owner, Position, Retries,
    RetryPolicy, Ttl, WorkerName,
};
use leasehold_store::random::jitter;
use leasehold_store::{Applied, Retry};
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::guard::Guard;
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

/// How long the first answer may take, even when somebody does not want to wait for the lease.
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

    /// How long to wait while somebody else holds the lease; for as long as it takes by default.
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

    fn bid(&self, backend: &Backend) -> Result<Bid, Error> {
        if backend.is_server() {
            self.leave_it_to_the_server()?;
        }
        self.bid_as_it_is()
    }

    fn bid_as_it_is(&self) -> Result<Bid, Error> {
        Ok(Bid {
            lease_id: new_lease_id()?,
            owner: Owner::parse(self.owner.as_deref().unwrap_or(&this_program()))?,
            ttl: Ttl::new(self.ttl.unwrap_or(TTL))?,
            meta: Meta::new(self.meta.iter().cloned())?,
        })
    }
}

impl AcquireOptions {
    /// The bid for a job, and how often it is refreshed: jobs last longer than locks unless somebody says otherwise.
    pub(crate) fn job_bid(
        &self,
        backend: &Backend,
        ttl: Duration,
        refresh: Duration,
    ) -> Result<(Bid, Duration), Error> {
        if backend.is_server() {
            self.as_a_worker()?;
        }
        let bid = Self { ttl: self.ttl.or(Some(ttl)), ..self.clone() }.bid_as_it_is()?;
        // Where the caller chose the TTL, the heartbeat follows from it, as with every lease.
        let chosen = self.ttl.map(|_| heartbeat(bid.ttl));
        Ok((bid, self.heartbeat.or(chosen).unwrap_or(refresh)))
    }

    /// Behind a server, the token says who owns an attempt at a job; a worker's name is only shown.
    fn as_a_worker(&self) -> Result<(), Invalid> {
        if let Some(owner) = &self.owner {
            WorkerName::parse(owner)?;
        }
        match self.meta.first() {
            Some((name, _)) => Err(Invalid::new(
                "meta",
                name,
                "behind a server, a worker has a name and nothing else to show",
                "leave it out",
            )),
            None => Ok(()),
        }
    }

    /// Behind a server, the token says who the owner is, and the server how long a lease lasts. Whoever says otherwise
    /// would be misled in silence.
    fn leave_it_to_the_server(&self) -> Result<(), Invalid> {
        let refuse = |what, value: &str, rule: &str| Err(Invalid::new(what, value, rule, "leave it out"));
        if let Some(owner) = &self.owner {
            return refuse("owner", owner, "behind a server, the owner is whoever the token says");
        }
        if let Some(ttl) = self.ttl {
            return refuse("TTL", &format!("{ttl:?}"), "behind a server, the TTL is the server's");
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
    /// Somebody else has it.
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
    let mut bidder = Bidder::new(inner, key, options)?;
    Ok(match bidder.attempt().await?.0 {
        Answer::Granted(guard) => Attempt::Acquired(guard),
        Answer::Held(held, _) => Attempt::Held(held),
    })
}

pub(crate) async fn acquire(inner: &Arc<Inner>, key: &Key, options: &AcquireOptions) -> Result<Guard, Error> {
    let mut bidder = Bidder::new(inner, key, options)?;
    let (wait, cancelled) = options.patience();
    let patience = wait.map(|wait| wait.max(FIRST_ANSWER));
    let (held, position) = tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(Error::Cancelled { key: key.clone() }),
        first = bidder.attempt() => match first? {
            (Answer::Granted(guard), _) => return Ok(guard),
            (Answer::Held(held, _), position) => (held, position),
        },
        () = sleep_or_forever(patience) => return Err(no_answer()),
    };
    let mut holder = held;
    tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(Error::Cancelled { key: key.clone() }),
        granted = bidder.until_granted(&mut holder, position) => return granted,
        () = sleep_or_forever(wait) => {}
    }
    Err(Error::TimedOut { key: key.clone(), held: holder })
}

pub(crate) fn no_answer() -> Error {
    let what = "it did not answer within the wait".into();
    Error::Store(leasehold_store::Error::Unavailable { what, retry: Retry::Unknown })
}

pub(crate) async fn sleep_or_forever(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

enum Answer {
    Granted(Guard),
    /// Held by somebody, for so long unless it is renewed.
    Held(Held, Duration),
}

/// Somebody who wants a lease, under one lease id for all its attempts: should the answer to one get lost, the next
/// one finds out. When it is dropped with an attempt under way, the lease id is withdrawn, so that nobody is left with
/// a lease that nobody knows of.
pub(crate) struct Bidder<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) key: &'a Key,
    pub(crate) bid: Bid,
    heartbeat: Option<Duration>,
    under_way: bool,
}

impl<'a> Bidder<'a> {
    pub(crate) fn new(inner: &'a Arc<Inner>, key: &'a Key, options: &AcquireOptions) -> Result<Self, Error> {
        let bid = options.bid(&inner.backend)?;
        Ok(Self { inner, key, bid, heartbeat: options.heartbeat, under_way: false })
    }

    /// Tries until it has the lease. `holder` is kept up to date on who is in the way, `seen` is the position at the
    /// last attempt.
    async fn until_granted(&mut self, holder: &mut Held, seen: Position) -> Result<Guard, Error> {
        let mut listening = self.inner.waiters.listen(self.key, seen);
        loop {
            // First listen, then look again: whatever happens after that look will be heard.
            listening.mark();
            let left = match self.attempt().await?.0 {
                Answer::Granted(guard) => return Ok(guard),
                Answer::Held(held, left) => {
                    *holder = held;
                    left
                }
            };
            // Nobody is pushed a lease: when the key frees or expires, everybody who waits asks anew.
            tokio::select! {
                () = listening.ended() => {}
                () = tokio::time::sleep(left.max(SHORTEST_SLEEP)) => {}
            }
        }
    }

    /// One attempt, and the position of the store's events at that moment.
    async fn attempt(&mut self) -> Result<(Answer, Position), Error> {
        let (sent, applied) = self.send(&Command::Acquire(self.bid.clone())).await?;
        let (now, position) = (applied.now, applied.position);
        let answer = match self.taken(sent, applied)? {
            Taken::Granted(guard) => Answer::Granted(guard),
            Taken::Held(held) => {
                let left = held.until.since(now);
                Answer::Held(held, left)
            }
            Taken::Other(other) => return Err(against_the_rules(&other)),
        };
        Ok((answer, position))
    }

    /// What a bid came to, whichever command made it.
    pub(crate) fn taken(&self, sent: HolderTime, applied: Applied) -> Result<Taken, Error> {
        match &applied.outcome {
            Outcome::Granted { lease, .. } => {
                let heartbeat = self.heartbeat.or_else(|| self.inner.backend.heartbeat());
                Ok(Taken::Granted(Guard::new(self.inner, self.key.clone(), lease, sent, &applied, heartbeat)))
            }
            Outcome::Held(held) => Ok(Taken::Held(held.clone())),
            Outcome::OwnerIsFull => Err(Error::OwnerIsFull { owner: self.bid.owner.to_string() }),
            Outcome::FencesExhausted => Err(Error::FencesExhausted),
            Outcome::Lost { because, .. } => Err(Error::Lost(Lost::Told(*because))),
            _ => Ok(Taken::Other(applied.outcome)),
        }
    }

    /// Sends one bid, and again if there is trouble that may pass. Answers when the successful one was sent.
    pub(crate) async fn send(&mut self, command: &Command) -> Result<(HolderTime, Applied), Error> {
        let mut retries = retries(RetryPolicy::CALL);
        loop {
            let sent = self.inner.now();
            self.under_way = true;
            let applied = self.inner.backend.apply(self.key, command.clone()).await;
            match applied {
                Ok(applied) if self.is_too_late(sent, &applied) && retries.failed().is_some() => {}
                Ok(applied) => {
                    // A request stands until it is answered, and is withdrawn by whoever leaves before.
                    self.under_way = matches!(applied.outcome, Outcome::Requested { .. });
                    return Ok((sent, applied));
                }
                Err(error) if error.retry() == Retry::No => {
                    self.under_way = false;
                    return Err(error);
                }
                Err(error) => match retries.failed_asking(error.retry_after()) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => return Err(error),
                },
            }
        }
    }

    /// Whether the answer took so long that the lease cannot be used any more. Asking again extends it.
    fn is_too_late(&self, sent: HolderTime, applied: &Applied) -> bool {
        match &applied.outcome {
            Outcome::Granted { lease, .. } => !Holder::new(sent, lease.ttl).is_held(self.inner.now()),
            _ => false,
        }
    }
}

/// What a bid came to.
pub(crate) enum Taken {
    Granted(Guard),
    Held(Held),
    Other(Outcome),
}

impl Drop for Bidder<'_> {
    fn drop(&mut self) {
        if self.under_way {
            let command = Command::Withdraw { lease_id: self.bid.lease_id };
            self.inner.apply_in_background(
                self.key,
                command,
                "an acquire that was given up could not be withdrawn",
            );
        }
    }
}

pub(crate) fn against_the_rules(outcome: &Outcome) -> Error {
    let what = format!("it answered an acquire with {outcome:?}, which the rules do not know");
    Error::Store(leasehold_store::Error::Unavailable { what, retry: Retry::No })
}

impl Inner {
    pub(crate) fn now(&self) -> HolderTime {
        HolderTime::from_millis(self.clock.millis())
    }

    /// Sends a command that nobody waits for. Outside a runtime there is nobody to send it: the lease runs out.
    pub(crate) fn apply_in_background(self: &Arc<Self>, key: &Key, command: Command, trouble: &'static str) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (inner, key) = (self.clone(), key.clone());
        runtime.spawn(async move {
            if let Err(error) = inner.backend.apply(&key, command).await {
                tracing::warn!(%key, %error, "{trouble}; it will run out");
            }
        });
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
