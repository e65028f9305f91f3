//! Handing a lease over: the holder hears that somebody wants it and answers, or somebody wants it and waits.
//!
//! The rules are the engine's. What this side adds is honesty about who knows what: a holder counts as told only when
//! its program has taken the request, and from the moment in which that is *sent* its own deadline is at most the end
//! of the time it has to answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::holder::margin;
use leasehold_core::lease::{LossReason, Request};
use leasehold_core::{
    Command, Fence, Held, Key, Lost, OnSilence, Outcome, Owner, Reason, RetryPolicy, Seq, Ttl,
};
use leasehold_store::Retry;
use tokio::sync::watch;

use crate::acquire::{AcquireOptions, Attempt, Bidder, Taken, against_the_rules, retries, sleep_or_forever};
use crate::guard::{Guard, HeldLease};
use crate::waiters::Waiter;
use crate::{Error, Inner, http, remote};

/// How long a holder has to answer, unless whoever asks says otherwise.
const COUNTDOWN: Duration = Duration::from_secs(30);

/// How long a request stands when whoever asks goes away without a word.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often a request is repeated: well within the patience, and often enough where no events are heard.
const REPEAT: Duration = Duration::from_secs(2);

// --- the holder's side ---

/// What a holder knows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) seq: Seq,
    by: Owner,
    name: Option<String>,
    on_silence: OnSilence,
    countdown: Ttl,
}

impl Wanted {
    pub(crate) fn new(request: &Request) -> Self {
        Self {
            seq: request.seq,
            by: request.bid.owner.clone(),
            name: request.bid.meta.get("name").map(str::to_owned),
            on_silence: request.on_silence,
            countdown: request.countdown,
        }
    }
}

/// The requests of others to have a lease handed over. Made by [`Lease::handover_requests`](crate::Lease::handover_requests).
pub struct HandoverRequests {
    held: Arc<HeldLease>,
    wanted: watch::Receiver<Option<Wanted>>,
    /// The last one that was given out.
    last: Option<Seq>,
}

impl HandoverRequests {
    pub(crate) fn new(held: Arc<HeldLease>, wanted: watch::Receiver<Option<Wanted>>) -> Self {
        Self { held, wanted, last: None }
    }

    /// The next request; `None` when the lease is gone. The holder counts as told from here on, so do not take one that
    /// you do not mean to look at. Dropping the future is fine.
    pub async fn next(&mut self) -> Option<HandoverRequest> {
        let held = self.held.clone();
        tokio::select! {
            biased;
            () = held.gone().cancelled() => None,
            request = self.told() => request,
        }
    }

    /// Waits for a request, and says that it is known.
    async fn told(&mut self) -> Option<HandoverRequest> {
        let mut retries = retries(RetryPolicy::LOOP);
        loop {
            let last = self.last;
            let is_new =
                |wanted: &Option<Wanted>| wanted.as_ref().is_some_and(|wanted| Some(wanted.seq) != last);
            let wanted = self.wanted.wait_for(is_new).await.ok()?.clone()?;
            match self.held.say_it_is_known(&wanted).await {
                Ok(true) => {
                    self.last = Some(wanted.seq);
                    return Some(HandoverRequest { held: self.held.clone(), wanted });
                }
                Ok(false) => self.last = Some(wanted.seq),
                Err(error) => {
                    tracing::warn!(key = %self.held.key, %error, "that a request is known could not be said, and will be again");
                    tokio::time::sleep(retries.pause()).await;
                }
            }
        }
    }
}

impl fmt::Debug for HandoverRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandoverRequests").field("key", &self.held.key).finish_non_exhaustive()
    }
}

/// Somebody's request to have a lease handed over. Not answering it is an answer too, see
/// [`on_silence`](Self::on_silence).
#[derive(Clone)]
pub struct HandoverRequest {
    held: Arc<HeldLease>,
    wanted: Wanted,
}

impl HandoverRequest {
    /// Who asks.
    pub fn by(&self) -> &Owner {
        &self.wanted.by
    }

    /// Their name to show, if it is another.
    pub fn name(&self) -> &str {
        self.wanted.name.as_deref().unwrap_or(self.wanted.by.as_str())
    }

    /// What happens without an answer. A countdown that leaves no time for one gives nothing away, whatever was asked
    /// for.
    pub fn on_silence(&self) -> OnSilence {
        if self.held.leaves_time(&self.wanted) { self.wanted.on_silence } else { OnSilence::Refuse }
    }

    /// How long there is to answer, from when the request was first known here.
    pub fn countdown(&self) -> Duration {
        self.wanted.countdown.as_duration()
    }

    /// Hands the lease over: **save first**. The lease is gone for this program from the moment of the call, however it
    /// ends. `None` when whoever asked is not there any more; the lease is released then.
    pub async fn hand_over(self) -> Result<Option<Owner>, Error> {
        // What is under way may arrive even if its answer does not.
        self.held.stop();
        match self.held.answer(self.wanted.seq, true).await? {
            Outcome::HandedOver { to } => Ok(Some(to)),
            // An earlier try got through, and only its answer did not.
            Outcome::Lost { because: LossReason::HandedOver, .. } => Ok(Some(self.wanted.by)),
            Outcome::NoRequest => {
                let held = &self.held;
                held.inner.backend.apply(&held.key, Command::Release(held.claim)).await?;
                Ok(None)
            }
            Outcome::Lost { .. } => Ok(None),
            other => Err(against_the_rules(&other)),
        }
    }

    /// Keeps the lease; whoever asked learns it.
    pub async fn refuse(self) -> Result<(), Error> {
        match self.held.answer(self.wanted.seq, false).await? {
            Outcome::Refused | Outcome::NoRequest => {
                self.held.handover_over(self.wanted.seq);
                Ok(())
            }
            Outcome::Lost { because, .. } => {
                self.held.plan(|holder| holder.handle_lost(because));
                Err(Error::Lost(Lost::Told(because)))
            }
            other => Err(against_the_rules(&other)),
        }
    }
}

impl fmt::Debug for HandoverRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandoverRequest")
            .field("key", &self.held.key)
            .field("by", &self.wanted.by)
            .field("on_silence", &self.wanted.on_silence)
            .finish_non_exhaustive()
    }
}

impl HeldLease {
    /// Whether the holder would have at least half of the countdown for its answer: the rest is the margin by which it
    /// stops early. Otherwise anybody could take any lease by giving its holder no time.
    fn leaves_time(&self, wanted: &Wanted) -> bool {
        wanted.countdown.as_duration() >= margin(self.ttl) * 2
    }

    /// Says that the holder knows of a request; `false` when there is none any more. One that leaves no time to answer
    /// is not confirmed, so that silence never counts as an answer to it.
    async fn say_it_is_known(&self, wanted: &Wanted) -> Result<bool, Error> {
        if wanted.on_silence == OnSilence::Grant && !self.leaves_time(wanted) {
            return Ok(true);
        }
        let (seq, takes_it_away) = (wanted.seq, wanted.on_silence == OnSilence::Grant);
        let sent = self.inner.now();
        if takes_it_away {
            // From when it is sent, not from when it is answered: it may arrive all the same.
            self.plan(|holder| holder.handle_handover_told(seq, sent, wanted.countdown));
        }
        let command = Command::HandoverTold { claim: self.claim, request: seq };
        let applied = self.inner.backend.apply(&self.key, command).await?;
        match applied.outcome {
            Outcome::Told { ends_at } => {
                if takes_it_away {
                    let left = ends_at.since(applied.now);
                    self.plan(|holder| holder.handle_handover_runs(seq, sent, left));
                }
                Ok(true)
            }
            Outcome::NoRequest => {
                self.handover_over(seq);
                Ok(false)
            }
            Outcome::Lost { because, .. } => {
                self.plan(|holder| holder.handle_lost(because));
                Ok(false)
            }
            other => Err(against_the_rules(&other)),
        }
    }

    /// Answers a request, and again if there is trouble that may pass.
    async fn answer(&self, request: Seq, hand_over: bool) -> Result<Outcome, Error> {
        let command = Command::AnswerHandover { claim: self.claim, request, hand_over };
        let mut retries = retries(RetryPolicy::CALL);
        loop {
            match self.inner.backend.apply(&self.key, command.clone()).await {
                Ok(applied) => return Ok(applied.outcome),
                Err(error) if error.retry() == Retry::No => return Err(error),
                Err(error) => match retries.failed_asking(error.retry_after()) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => return Err(error),
                },
            }
        }
    }
}

// --- the asker's side ---

/// How to ask for a lease that somebody else holds.
#[derive(Clone, Debug, Default)]
pub struct HandoverOptions {
    acquire: AcquireOptions,
    on_silence: Option<OnSilence>,
    countdown: Option<Duration>,
}

impl HandoverOptions {
    /// The defaults: the holder keeps the lease unless it says otherwise within 30 s of being told.
    pub fn new() -> Self {
        Self::default()
    }

    /// How the lease is to be acquired; [`AcquireOptions::wait`] is how long to wait for the holder's answer.
    pub fn acquire(mut self, options: AcquireOptions) -> Self {
        self.acquire = options;
        self
    }

    /// What happens when the holder was told and does not answer.
    pub fn on_silence(mut self, on_silence: OnSilence) -> Self {
        self.on_silence = Some(on_silence);
        self
    }

    /// How long the holder has to answer, from when it was told: 1 s to 24 h. One that is shorter than twice the margin by
    /// which holders stop early (6 s in all, at a TTL of 30 s) leaves no time for an answer: the holder's silence to it
    /// never counts.
    pub fn countdown(mut self, countdown: Duration) -> Self {
        self.countdown = Some(countdown);
        self
    }
}

/// What a request to hand over came to.
#[derive(Debug)]
pub enum Handover {
    /// The lease is ours.
    Granted(Guard),
    /// The holder keeps it, or was silent and that is what silence meant.
    Refused(Held),
    /// Another has it by now than whoever was asked.
    Held(Held),
    /// Somebody else has asked before; only one may at a time.
    RequestedByAnother(Held),
}

impl Handover {
    /// The lease, if we got it.
    pub fn granted(self) -> Option<Guard> {
        match self {
            Self::Granted(guard) => Some(guard),
            Self::Refused(_) | Self::Held(_) | Self::RequestedByAnother(_) => None,
        }
    }
}

pub(crate) async fn request(
    inner: &Arc<Inner>,
    key: &Key,
    options: &HandoverOptions,
) -> Result<Handover, Error> {
    let mut asker = Asker::new(inner, key, options)?;
    let (wait, cancelled) = options.acquire.patience();
    tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(Error::Cancelled { key: key.clone() }),
        answer = asker.until_answered() => return answer,
        () = sleep_or_forever(wait) => {}
    }
    // Dropping the asker withdraws the request.
    match asker.holder.take() {
        Some(held) => Err(Error::TimedOut { key: key.clone(), held }),
        None => Err(crate::acquire::no_answer()),
    }
}

pub(crate) async fn take_over(
    inner: &Arc<Inner>,
    key: &Key,
    seen: Fence,
    reason: Reason,
    options: &AcquireOptions,
) -> Result<Attempt, Error> {
    remote::given(&reason)?;
    let mut bidder = Bidder::new(inner, key, options)?;
    let (sent, applied) = bidder.send(&Command::TakeOver { seen, bid: bidder.bid.clone(), reason }).await?;
    match bidder.taken(sent, applied)? {
        Taken::Granted(guard) => Ok(Attempt::Acquired(guard)),
        Taken::Held(held) => Ok(Attempt::Held(held)),
        Taken::Other(other) => Err(against_the_rules(&other)),
    }
}

/// Somebody who wants a lease that another holds.
struct Asker<'a> {
    bidder: Bidder<'a>,
    on_silence: OnSilence,
    countdown: Ttl,
    patience: Ttl,
    /// Who was asked.
    holder: Option<Held>,
}

impl<'a> Asker<'a> {
    fn new(inner: &'a Arc<Inner>, key: &'a Key, options: &HandoverOptions) -> Result<Self, Error> {
        Ok(Self {
            bidder: Bidder::new(inner, key, &options.acquire)?,
            on_silence: options.on_silence.unwrap_or(OnSilence::Refuse),
            countdown: Ttl::new(options.countdown.unwrap_or(COUNTDOWN))?,
            patience: Ttl::new(PATIENCE)?,
            holder: None,
        })
    }

    async fn until_answered(&mut self) -> Result<Handover, Error> {
        let (sent, applied) = self.bidder.send(&Command::Acquire(self.bidder.bid.clone())).await?;
        let position = applied.position;
        let held = match self.bidder.taken(sent, applied)? {
            Taken::Granted(guard) => return Ok(Handover::Granted(guard)),
            Taken::Held(held) => held,
            Taken::Other(other) => return Err(against_the_rules(&other)),
        };
        self.holder = Some(held.clone());
        let mut listening = self.bidder.inner.waiters.listen(self.bidder.key, position);
        loop {
            listening.mark();
            if let Some(answer) = self.ask(&held).await? {
                return Ok(answer);
            }
            wait(&mut listening).await;
        }
    }

    /// Asks, or asks again; `None` while there is no answer.
    async fn ask(&mut self, held: &Held) -> Result<Option<Handover>, Error> {
        let command = Command::RequestHandover {
            seen: held.fence,
            bid: self.bidder.bid.clone(),
            on_silence: self.on_silence,
            countdown: self.countdown,
            patience: self.patience,
        };
        let taken = match self.bidder.send(&command).await {
            Ok((sent, applied)) => self.bidder.taken(sent, applied),
            Err(error) => Err(error),
        };
        Ok(Some(match taken {
            Ok(Taken::Granted(guard)) => Handover::Granted(guard),
            Ok(Taken::Held(other)) => Handover::Held(other),
            Ok(Taken::Other(Outcome::Requested { .. })) => return Ok(None),
            Ok(Taken::Other(Outcome::RequestedByAnother { held, .. })) => Handover::RequestedByAnother(held),
            Err(Error::Http(http::Error::RequestedByAnother { .. })) => {
                Handover::RequestedByAnother(held.clone())
            }
            Err(Error::Lost(Lost::Told(LossReason::Refused))) => Handover::Refused(held.clone()),
            Ok(Taken::Other(other)) => return Err(against_the_rules(&other)),
            Err(error) => return Err(error),
        }))
    }
}

/// Until it is worth asking again.
async fn wait(listening: &mut Waiter) {
    tokio::select! {
        _ = listening.changed() => {}
        () = tokio::time::sleep(REPEAT) => {}
    }
}
