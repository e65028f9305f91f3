//! Handing a lease over: the holder hears of a request and answers it; the asker requests the lease and waits.
//!
//! The rules are the engine's and the keeper's. What this side adds is honesty about who knows what: a holder counts as
//! told only when its program has taken the request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::holder::{Confirm, PendingRequest, Reply};
use leasehold_core::lease::LossReason;
use leasehold_core::{Fence, Invalid, Key, Lost, OnSilence, Owner, Reason, RetryPolicy, Seq, Ttl};
use tokio::sync::watch;

use crate::acquire::{
    AcquireOptions, Attempt, Bid, Bidder, no_answer, pause_or_give_up, retries, sleep_or_forever,
    unexpected_bid,
};
use crate::backend::{AnswerReply, Held, Way};
use crate::guard::{Guard, HeldLease};
use crate::waiters::Waiter;
use crate::{Error, Inner};

/// How long a holder has to answer, unless the options say otherwise.
const COUNTDOWN: Duration = Duration::from_secs(30);

/// How long an abandoned request stands.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often a request is repeated: well within the patience, and often enough where no events are heard.
const REPEAT: Duration = Duration::from_secs(2);

// --- the holder's side ---

/// The requests of others to have a lease handed over. Made by [`Lease::handover_requests`](crate::Lease::handover_requests).
pub struct HandoverRequests {
    held: Arc<HeldLease>,
    request: watch::Receiver<Option<PendingRequest>>,
    /// The last one that was given out.
    last: Option<Seq>,
}

impl HandoverRequests {
    pub(crate) fn new(held: Arc<HeldLease>, request: watch::Receiver<Option<PendingRequest>>) -> Self {
        Self { held, request, last: None }
    }

    /// The next request; `None` when the lease is gone. The holder counts as told from here on, so do not take one that
    /// you do not mean to look at. Dropping the future is fine.
    pub async fn next(&mut self) -> Option<HandoverRequest> {
        let held = self.held.clone();
        tokio::select! {
            biased;
            () = held.gone().cancelled() => None,
            request = self.confirmed() => request,
        }
    }

    /// Waits for a request, and confirms that it is known.
    async fn confirmed(&mut self) -> Option<HandoverRequest> {
        let mut retries = retries(RetryPolicy::LOOP);
        loop {
            let last = self.last;
            let is_new = |request: &Option<PendingRequest>| {
                request.as_ref().is_some_and(|request| Some(request.seq) != last)
            };
            let request = self.request.wait_for(is_new).await.ok()?.clone()?;
            match self.held.confirm(request.seq).await {
                Ok(stands) => {
                    self.last = Some(request.seq);
                    if stands {
                        return Some(HandoverRequest { held: self.held.clone(), request });
                    }
                }
                Err(error) => {
                    tracing::warn!(key = %self.held.key, %error, "a request to hand over could not be confirmed, trying again");
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

/// A request to have a lease handed over. Not answering it is an answer too, see [`on_silence`](Self::on_silence).
#[derive(Clone)]
pub struct HandoverRequest {
    held: Arc<HeldLease>,
    request: PendingRequest,
}

impl HandoverRequest {
    /// Who asks.
    pub fn by(&self) -> &Owner {
        &self.request.by
    }

    /// Their name to show.
    pub fn name(&self) -> &str {
        self.request.name.as_deref().unwrap_or(self.request.by.as_str())
    }

    /// What happens without an answer. A countdown that leaves no time for one gives nothing away, whatever was asked
    /// for.
    pub fn on_silence(&self) -> OnSilence {
        self.held.keeper().on_silence(&self.request)
    }

    /// How long there is to answer, from when the request was first known here.
    pub fn countdown(&self) -> Duration {
        self.request.countdown.as_duration()
    }

    /// Hands the lease over: **save first**. The lease is gone for this program from the moment of the call, however it
    /// ends. `None` when the request was withdrawn meanwhile; the lease is released then.
    pub async fn hand_over(self) -> Result<Option<Owner>, Error> {
        // The message may arrive even if its answer does not.
        self.held.stop();
        match self.held.answer(self.request.seq, true).await? {
            AnswerReply::HandedOver { to } => Ok(Some(to)),
            // An earlier try got through, and only its answer did not.
            AnswerReply::Lost(LossReason::HandedOver) => Ok(Some(self.request.by)),
            AnswerReply::Lost(_) => Ok(None),
            AnswerReply::NoRequest | AnswerReply::Refused => {
                self.held.inner.backend.release(&self.held.key, self.held.claim).await?;
                Ok(None)
            }
        }
    }

    /// Keeps the lease; the asker learns it.
    pub async fn refuse(self) -> Result<(), Error> {
        let request = self.request.seq;
        let reply = match self.held.answer(request, false).await? {
            AnswerReply::Refused | AnswerReply::NoRequest => Reply::RequestOver { request },
            AnswerReply::HandedOver { .. } => Reply::Lost(LossReason::HandedOver),
            AnswerReply::Lost(because) => Reply::Lost(because),
        };
        let lost = if let Reply::Lost(because) = &reply { Some(*because) } else { None };
        let now = self.held.inner.now();
        self.held.change(|keeper| keeper.handle_reply(now, now, reply));
        lost.map_or(Ok(()), |because| Err(Error::Lost(Lost::Told(because))))
    }
}

impl fmt::Debug for HandoverRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandoverRequest")
            .field("key", &self.held.key)
            .field("by", &self.request.by)
            .field("on_silence", &self.request.on_silence)
            .finish_non_exhaustive()
    }
}

impl HeldLease {
    /// Confirms that the program knows of a request, if the keeper wants that said; `false` when the request is over.
    async fn confirm(&self, request: Seq) -> Result<bool, Error> {
        let sent = self.inner.now();
        match self.change(|keeper| keeper.confirm(request, sent)) {
            Confirm::Over => return Ok(false),
            Confirm::Withhold => return Ok(true),
            Confirm::Send => {}
        }
        let reply = self.inner.backend.confirm(&self.key, self.claim, request).await?;
        let stands = matches!(reply, Reply::Counting { .. });
        let now = self.inner.now();
        self.change(|keeper| keeper.handle_reply(sent, now, reply));
        Ok(stands)
    }

    /// Answers a request, and again if there is trouble that may pass.
    async fn answer(&self, request: Seq, hand_over: bool) -> Result<AnswerReply, Error> {
        let mut retries = retries(RetryPolicy::CALL);
        loop {
            match self.inner.backend.answer(&self.key, self.claim, request, hand_over).await {
                Ok(reply) => return Ok(reply),
                Err(error) => pause_or_give_up(&mut retries, error).await?,
            }
        }
    }
}

// --- the asker's side ---

/// How to request a lease that another holds.
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
    /// The holder changed while we waited.
    Held(Held),
    /// Another has requested it before; there is one request at a time.
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
    match asker.bidder.holder() {
        Some(held) => Err(Error::TimedOut { key: key.clone(), held }),
        None => Err(no_answer()),
    }
}

pub(crate) async fn take_over(
    inner: &Arc<Inner>,
    key: &Key,
    seen: Fence,
    reason: Reason,
    options: &AcquireOptions,
) -> Result<Attempt, Error> {
    if reason.as_str().trim().is_empty() {
        let (rule, fix) = ("a take-over has a reason", "say why, the holder will see it");
        return Err(Invalid::new("reason", "", rule, fix).into());
    }
    let mut bidder = Bidder::new(inner, key, options)?;
    Ok(match bidder.bid(&Way::TakeOver { seen, reason }).await? {
        Bid::Granted(guard) => Attempt::Acquired(guard),
        Bid::Held(held) => Attempt::Held(held),
        Bid::Requested | Bid::RequestedByAnother(_) => return Err(unexpected_bid()),
    })
}

/// A request to hand over that is repeated until it is answered.
struct Asker<'a> {
    bidder: Bidder<'a>,
    on_silence: OnSilence,
    countdown: Ttl,
    patience: Ttl,
}

impl<'a> Asker<'a> {
    fn new(inner: &'a Arc<Inner>, key: &'a Key, options: &HandoverOptions) -> Result<Self, Error> {
        Ok(Self {
            bidder: Bidder::new(inner, key, &options.acquire)?,
            on_silence: options.on_silence.unwrap_or(OnSilence::Refuse),
            countdown: Ttl::new(options.countdown.unwrap_or(COUNTDOWN))?,
            patience: Ttl::new(PATIENCE)?,
        })
    }

    async fn until_answered(&mut self) -> Result<Handover, Error> {
        let held = match self.bidder.bid(&Way::Acquire).await? {
            Bid::Granted(guard) => return Ok(Handover::Granted(guard)),
            Bid::Held(held) => held,
            Bid::Requested | Bid::RequestedByAnother(_) => return Err(unexpected_bid()),
        };
        let mut listening = self.bidder.listen();
        loop {
            listening.mark();
            if let Some(answer) = self.ask(&held).await? {
                return Ok(answer);
            }
            wait(&mut listening).await;
        }
    }

    /// Requests the lease, or repeats the request; `None` while there is no answer.
    async fn ask(&mut self, held: &Held) -> Result<Option<Handover>, Error> {
        let way = Way::RequestHandover {
            seen: held.fence,
            on_silence: self.on_silence,
            countdown: self.countdown,
            patience: self.patience,
        };
        Ok(Some(match self.bidder.bid(&way).await {
            Ok(Bid::Granted(guard)) => Handover::Granted(guard),
            Ok(Bid::Held(other)) => Handover::Held(other),
            Ok(Bid::Requested) => return Ok(None),
            Ok(Bid::RequestedByAnother(by)) => {
                Handover::RequestedByAnother(by.unwrap_or_else(|| held.clone()))
            }
            Err(Error::Lost(Lost::Told(LossReason::Refused))) => Handover::Refused(held.clone()),
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
