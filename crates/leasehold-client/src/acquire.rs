//! Getting a lease: one attempt, or a wait made of attempts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::lease::Bid;
use leasehold_core::{
    Backoff, Command, Held, HolderTime, Key, LeaseId, Lost, Meta, Outcome, Owner, Position, Ttl,
};
use leasehold_store::{Applied, Retry};
use tokio_util::sync::CancellationToken;

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

/// How often an attempt is repeated at once when the store has trouble that may pass.
const TRIES: u32 = 4;

/// How long the first answer may take, even when somebody does not want to wait for the lease.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

const BETWEEN_TRIES: Backoff =
    Backoff { initial: Duration::from_millis(50), multiplier: 2.0, max: Duration::from_secs(1) };

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

    fn bid(&self) -> Result<Bid, Error> {
        Ok(Bid {
            lease_id: new_lease_id()?,
            owner: Owner::parse(self.owner.as_deref().unwrap_or(&this_program()))?,
            ttl: Ttl::new(self.ttl.unwrap_or(TTL))?,
            meta: Meta::new(self.meta.iter().cloned())?,
        })
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

pub(crate) async fn acquire(inner: &Arc<Inner>, key: &Key, options: AcquireOptions) -> Result<Guard, Error> {
    let mut bidder = Bidder::new(inner, key, &options)?;
    let cancelled = options.cancel.unwrap_or_default();
    let patience = options.wait.map(|wait| wait.max(FIRST_ANSWER));
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
        () = sleep_or_forever(options.wait) => {}
    }
    Err(Error::TimedOut { key: key.clone(), held: holder })
}

fn no_answer() -> Error {
    let what = "it did not answer within the wait".into();
    Error::Store(leasehold_store::Error::Unavailable { what, retry: Retry::Unknown })
}

async fn sleep_or_forever(duration: Option<Duration>) {
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
struct Bidder<'a> {
    inner: &'a Arc<Inner>,
    key: &'a Key,
    bid: Bid,
    heartbeat: Option<Duration>,
    under_way: bool,
}

impl<'a> Bidder<'a> {
    fn new(inner: &'a Arc<Inner>, key: &'a Key, options: &AcquireOptions) -> Result<Self, Error> {
        Ok(Self { inner, key, bid: options.bid()?, heartbeat: options.heartbeat, under_way: false })
    }

    /// Tries until it has the lease. `holder` is kept up to date on who is in the way, `seen` is the position at the
    /// last attempt.
    async fn until_granted(&mut self, holder: &mut Held, mut seen: Position) -> Result<Guard, Error> {
        loop {
            // First listen, then look again: whatever happens after that look will be heard.
            let listening = self.inner.waiters.listen(self.key, seen);
            let (answer, position) = self.attempt().await?;
            seen = position;
            let left = match answer {
                Answer::Granted(guard) => return Ok(guard),
                Answer::Held(held, left) => {
                    *holder = held;
                    left
                }
            };
            // Nobody is pushed a lease: when the key frees or expires, everybody who waits asks anew.
            tokio::select! {
                () = listening.heard() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// One attempt, and the position of the store's events at that moment.
    async fn attempt(&mut self) -> Result<(Answer, Position), Error> {
        let (sent, applied) = self.send().await?;
        let Applied { outcome, now, position } = applied;
        let answer = match outcome {
            Outcome::Granted { lease, .. } => {
                Answer::Granted(Guard::new(self.inner, self.key.clone(), &lease, sent, self.heartbeat))
            }
            Outcome::Held(held) => {
                let left = held.until.since(now);
                Answer::Held(held, left)
            }
            Outcome::OwnerIsFull => return Err(Error::OwnerIsFull { owner: self.bid.owner.to_string() }),
            Outcome::FencesExhausted => return Err(Error::FencesExhausted),
            Outcome::Lost { because, .. } => return Err(Error::Lost(Lost::Told(because))),
            other => return Err(against_the_rules(&other)),
        };
        Ok((answer, position))
    }

    /// Sends one acquire, and again if the store has trouble that may pass. Answers when the successful one was sent.
    async fn send(&mut self) -> Result<(HolderTime, Applied), Error> {
        let mut tries = 0;
        loop {
            let sent = self.inner.now();
            self.under_way = true;
            let applied = self.inner.store.apply(self.key, Command::Acquire(self.bid.clone())).await;
            tries += 1;
            match applied {
                Ok(applied) => {
                    self.under_way = false;
                    return Ok((sent, applied));
                }
                Err(error) if error.retry() == Retry::No => {
                    self.under_way = false;
                    return Err(error.into());
                }
                Err(error) if tries == TRIES => return Err(error.into()),
                Err(_) => tokio::time::sleep(BETWEEN_TRIES.jittered(tries, random())).await,
            }
        }
    }
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

fn against_the_rules(outcome: &Outcome) -> Error {
    let what = format!("it answered an acquire with {outcome:?}, which the rules do not know");
    Error::Store(leasehold_store::Error::Unavailable { what, retry: Retry::No })
}

impl Inner {
    pub(crate) fn now(&self) -> HolderTime {
        HolderTime::from_millis(self.clock.millis())
    }

    /// Sends a command that nobody waits for. Outside a runtime there is nobody to send it: the lease runs out.
    pub(crate) fn apply_in_background(&self, key: &Key, command: Command, trouble: &'static str) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (store, key) = (self.store.clone(), key.clone());
        runtime.spawn(async move {
            if let Err(error) = store.apply(&key, command).await {
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

/// A random number for jitter; without one, everybody waits the full time.
pub(crate) fn random() -> u32 {
    getrandom::u32().unwrap_or(0)
}

/// This program and process, as others will see it.
fn this_program() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(std::path::Path::file_stem).and_then(std::ffi::OsStr::to_str);
    let name = program.filter(|name| Owner::parse(name).is_ok() && name.len() < 200).unwrap_or("program");
    format!("{name}-{}", std::process::id())
}
