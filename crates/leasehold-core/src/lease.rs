//! The one place where it is decided who holds a key: `(slot, command, now) -> decision + events`.
//!
//! [`decide`] must stay pure. A store brings the slot of the key and its own time, calls it, and makes the decision
//! durable before any caller or watcher sees it. A lease rule in a store, a server or a client is a rule in the wrong
//! place.

// An `Err` here is the answer itself, returned on the spot: boxing it would only cost an allocation.
#![allow(clippy::result_large_err)]

use std::time::Duration;

use crate::event::{EndReason, Event, EventKind, Seq};
use crate::name::{Fence, Key, LeaseId, Meta, Owner, Reason, TabId};
use crate::time::{StoreTime, Ttl};

/// How long a lease id that has ended is remembered, so that a late copy of its acquire is not granted again. Events
/// and the sequence numbers of free keys are kept for the same time.
pub const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// How long a request to hand over stands at most without being repeated: an abandoned request blocks others for at most
/// this long.
pub const LONGEST_PATIENCE: Duration = Duration::from_secs(60);

/// How many leases one owner may hold, unless the store's limits say otherwise.
pub const LEASES_PER_OWNER: u32 = 10_000;

/// Everything a store keeps about one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The number of the last event of the key.
    pub seq: Seq,
    /// The lease, as it was last written; it may have expired since.
    pub lease: Option<Lease>,
    /// Since when there has been no lease.
    pub vacant_since: StoreTime,
}

impl Slot {
    /// The slot of a key that the store does not know. `floor` is at least the last number of every forgotten key.
    pub const fn unknown(floor: Seq) -> Self {
        Self { seq: floor, lease: None, vacant_since: StoreTime::ZERO }
    }

    /// The lease, if it has not expired.
    pub fn live(&self, now: StoreTime) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| !lease.is_expired(now))
    }

    /// When something will be due on this key by itself: an expiry, or a hand-over request that runs out.
    pub fn due_at(&self) -> Option<StoreTime> {
        let lease = self.lease.as_ref()?;
        let request = lease.request.as_deref();
        let request_due =
            request.map(|r| r.silence_ends_at().map_or(r.lapses_at, |end| end.min(r.lapses_at)));
        Some(request_due.map_or(lease.expires_at, |due| due.min(lease.expires_at)))
    }

    /// The asker of the pending request to hand over: a store compares its number of leases with the limit.
    pub fn asker(&self) -> Option<&Owner> {
        self.lease.as_ref()?.request.as_deref().map(|request| &request.bid.owner)
    }

    /// Whether the key has been free for so long that the store may forget it.
    pub fn is_forgettable(&self, now: StoreTime) -> bool {
        self.lease.is_none() && self.vacant_since + REMEMBERED <= now
    }
}

/// A promise with a deadline: `owner` may act on the key, with `fence`, until `expires_at`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Who holds it, as shown to people.
    pub owner: Owner,
    /// In which of the owner's tabs; none when the holder names none.
    pub tab: Option<TabId>,
    /// The secret that proves it.
    pub lease_id: LeaseId,
    /// Larger than that of every earlier grant of the key; renewal keeps it.
    pub fence: Fence,
    /// When it was granted.
    pub acquired_at: StoreTime,
    /// When it was last extended.
    pub renewed_at: StoreTime,
    /// From this moment on it is over, whether or not its expiry was published.
    pub expires_at: StoreTime,
    /// How long a renewal lasts.
    pub ttl: Ttl,
    /// Whether the holder has released it softly and not come back since.
    pub leaving: bool,
    /// The holder's display name and the like.
    pub meta: Meta,
    /// The pending request to hand it over.
    pub request: Option<Box<Request>>,
}

impl Lease {
    /// Expired means `expires_at <= now` on the store's clock: a predicate, not something that a sweeper does.
    pub fn is_expired(&self, now: StoreTime) -> bool {
        self.expires_at <= now
    }

    /// What its holder keeps of it, to prove later that it is its own.
    pub fn proof(&self) -> Proof {
        Proof { lease_id: self.lease_id, fence: self.fence }
    }
}

/// A request that the holder hands its lease over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The number of the event that announced it; answers name it.
    pub seq: Seq,
    /// The bid of the asker, which is granted when the lease is handed over.
    pub bid: Bid,
    /// What happens when the holder knows of it and does not answer.
    pub on_silence: OnSilence,
    /// How long the holder has to answer, from when it confirmed the request.
    pub countdown: Ttl,
    /// When the holder confirmed that it knows of the request.
    pub told_at: Option<StoreTime>,
    /// When the request lapses, unless the asker repeats it.
    pub lapses_at: StoreTime,
}

impl Request {
    /// When silence becomes an answer; `None` before the holder has confirmed the request.
    pub fn silence_ends_at(&self) -> Option<StoreTime> {
        self.told_at.map(|told_at| told_at + self.countdown.as_duration())
    }
}

/// What a holder's silence means when it was asked to hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnSilence {
    /// The lease goes to the asker.
    Grant,
    /// The holder keeps it.
    Refuse,
}

/// The terms of an acquire: for whom the lease would be, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bid {
    /// Fixed before the first attempt, so that a repeated attempt is recognised.
    pub lease_id: LeaseId,
    /// The owner of the lease.
    pub owner: Owner,
    /// The owner's tab.
    pub tab: Option<TabId>,
    /// How long the lease lasts without a renewal.
    pub ttl: Ttl,
    /// The owner's display name and the like.
    pub meta: Meta,
}

/// What a program keeps of a grant, to prove later that the lease is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The secret.
    pub lease_id: LeaseId,
    /// The fence of the grant.
    pub fence: Fence,
}

/// Whose lease a command is about. [`decide`] compares it with the lease, in the transaction that changes the record;
/// everything that the claim names must match. No caller reads a record first to find out what to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The lease id and the fence, for a program that keeps what it was granted.
    Proof(Proof),
    /// The lease id and the owner, for an authenticated caller. A leaked lease id is useless to another caller.
    Holder {
        /// The secret.
        lease_id: LeaseId,
        /// Who calls.
        owner: Owner,
        /// The fence of the grant, where callers have to name it.
        fence: Option<Fence>,
    },
    /// The owner and the tab, for an authenticated caller that keeps no lease id.
    Tab {
        /// Who calls.
        owner: Owner,
        /// The caller's tab.
        tab: Option<TabId>,
    },
}

impl Claim {
    /// Whether the lease is the claimant's. Lease ids are compared in constant time.
    pub fn fits(&self, lease: &Lease) -> bool {
        match self {
            Self::Proof(proof) => lease.lease_id == proof.lease_id && lease.fence == proof.fence,
            Self::Holder { lease_id, owner, fence } => {
                lease.lease_id == *lease_id
                    && lease.owner == *owner
                    && fence.is_none_or(|fence| lease.fence == fence)
            }
            Self::Tab { owner, tab } => lease.owner == *owner && lease.tab == *tab,
        }
    }

    /// The lease id that it names.
    pub fn lease_id(&self) -> Option<&LeaseId> {
        match self {
            Self::Proof(Proof { lease_id, .. }) | Self::Holder { lease_id, .. } => Some(lease_id),
            Self::Tab { .. } => None,
        }
    }

    /// The fence that it names.
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Self::Proof(proof) => Some(proof.fence),
            Self::Holder { fence, .. } => *fence,
            Self::Tab { .. } => None,
        }
    }

    /// Whether it names the lease by its lease id, and another owner.
    fn is_anothers(&self, lease: &Lease) -> bool {
        matches!(self, Self::Holder { lease_id, owner, .. } if lease.lease_id == *lease_id && lease.owner != *owner)
    }

    /// The same claim to the lease under another lease id.
    fn with_lease_id(&self, next: LeaseId) -> Self {
        let mut claim = self.clone();
        if let Self::Proof(Proof { lease_id, .. }) | Self::Holder { lease_id, .. } = &mut claim {
            *lease_id = next;
        }
        claim
    }
}

impl From<Proof> for Claim {
    fn from(proof: Proof) -> Self {
        Self::Proof(proof)
    }
}

/// By what right a lease is taken from its holder. The door knows what the caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The caller may take any holder's lease.
    Force,
    /// The caller may take only what it holds itself, in another tab.
    SameOwner,
}

/// Everything that can be asked of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Get the lease if the key is free. Repeating it with the same lease id is safe, and extends it.
    Acquire(Bid),
    /// The same for a caller that keeps no lease id: what the bid's owner already holds in the bid's tab is given again,
    /// extended. The bid's lease id is for a new grant: freshly drawn, never one that was used before.
    AcquireInTab(Bid),
    /// Keep it for another TTL (a new one, if given). An expired lease is never revived.
    Renew {
        /// Whose it is.
        claim: Claim,
        /// A new TTL from now on.
        ttl: Option<Ttl>,
    },
    /// Give it back.
    Release(Claim),
    /// Give it back unless the holder returns within `grace`: a closed page and a reloaded one look the same.
    ///
    /// The lease id alone is the claim: it is all that a page which is being closed can send.
    SoftRelease {
        /// The lease id.
        lease_id: LeaseId,
        /// How long the holder has to come back.
        grace: Ttl,
    },
    /// Come back to it under a new lease id: the old one may have been copied along with the page.
    Resume {
        /// Whose it is.
        claim: Claim,
        /// The lease id from now on: freshly drawn, never one that was used before.
        next: LeaseId,
    },
    /// Take it from its holder.
    TakeOver {
        /// The fence of the lease that is to be taken, as the taker saw it.
        seen: Fence,
        /// Who takes it.
        bid: Bid,
        /// Why.
        reason: Reason,
        /// By what right.
        right: Right,
    },
    /// The same for a caller that is known by its tab. What it holds in that tab already is extended, not taken.
    TakeOverInTab {
        /// The fence of the lease that is to be taken, as the taker saw it.
        seen: Fence,
        /// Who takes it.
        bid: Bid,
        /// Why.
        reason: Reason,
        /// By what right.
        right: Right,
    },
    /// End it: the key is free afterwards. The door checks the permission.
    ForceRelease {
        /// The fence of the lease that is to end, as the caller saw it.
        seen: Fence,
        /// Who ends it.
        by: Owner,
        /// Why.
        reason: Reason,
    },
    /// Request that the holder hands it over. The asker repeats it while it waits for the answer.
    RequestHandover {
        /// The fence of the lease that is wanted, as the asker saw it.
        seen: Fence,
        /// Who asks.
        bid: Bid,
        /// What happens when the holder does not answer.
        on_silence: OnSilence,
        /// How long the holder has to answer, from when it confirmed the request.
        countdown: Ttl,
        /// How long the request stands without being repeated; [`LONGEST_PATIENCE`] at most.
        patience: Ttl,
    },
    /// The holder confirms that it knows of the request: from now on, its silence counts.
    HandoverTold {
        /// Whose the lease is.
        claim: Claim,
        /// Which request.
        request: Seq,
    },
    /// The holder answers the request.
    AnswerHandover {
        /// Whose the lease is.
        claim: Claim,
        /// Which request.
        request: Seq,
        /// Whether to hand over.
        hand_over: bool,
    },
    /// Cancels everything under this lease id: its request is withdrawn, its lease released, and a copy of its acquire
    /// that is still on the way will not be granted.
    Withdraw {
        /// The lease id.
        lease_id: LeaseId,
        /// Whose it is. Under another's lease id, nothing is cancelled.
        owner: Owner,
    },
    /// Is this fence still the current one? Advice; the real guard is a conditional write.
    Check {
        /// The fence.
        fence: Fence,
    },
    /// Do what is due, such as ending an expired lease, and nothing else.
    Settle,
}

impl Command {
    /// Whose lease it is about, if only the holder may ask for it.
    pub fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Release(claim)
            | Self::Renew { claim, .. }
            | Self::Resume { claim, .. }
            | Self::HandoverTold { claim, .. }
            | Self::AnswerHandover { claim, .. } => Some(claim),
            _ => None,
        }
    }

    /// The lease id that the command comes with: a store says whether it remembers that one as ended.
    pub fn lease_id(&self) -> Option<&LeaseId> {
        match self {
            Self::Acquire(bid)
            | Self::AcquireInTab(bid)
            | Self::TakeOver { bid, .. }
            | Self::TakeOverInTab { bid, .. }
            | Self::RequestHandover { bid, .. } => Some(&bid.lease_id),
            Self::SoftRelease { lease_id, .. } | Self::Withdraw { lease_id, .. } => Some(lease_id),
            _ => self.claim().and_then(Claim::lease_id),
        }
    }

    /// The owner that would get a lease by this command; the store compares its number of leases with the limit.
    pub fn bidder(&self) -> Option<&Owner> {
        match self {
            Self::Acquire(bid)
            | Self::AcquireInTab(bid)
            | Self::TakeOver { bid, .. }
            | Self::TakeOverInTab { bid, .. }
            | Self::RequestHandover { bid, .. } => Some(&bid.owner),
            _ => None,
        }
    }
}

/// What the store knows besides the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The time on the store's clock.
    pub now: StoreTime,
    /// The last fence that the store has given out, on any key; 0 if none.
    pub last_fence: u64,
    /// Why the command's lease id is over, if the store remembers that it is.
    pub remembered: Option<LossReason>,
    /// Whether the bidder holds as many leases as the limit allows.
    pub owner_is_full: bool,
    /// Whether the asker of the slot's pending request does.
    pub asker_is_full: bool,
}

/// The changes of one command. A store writes them atomically, and publishes nothing before that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The answer to the command.
    pub outcome: Outcome,
    /// The new slot; `None` when nothing changes.
    pub slot: Option<Slot>,
    /// What has happened, in order.
    pub events: Vec<Event>,
    /// The lease ids that are to be remembered as over.
    pub ended: Vec<(LeaseId, LossReason)>,
    /// The last fence given out, now.
    pub last_fence: u64,
}

/// The answer to a command. Being refused is a value like any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lease is yours.
    Granted {
        /// The lease.
        lease: Lease,
        /// Whether it already was, and has been extended.
        extended: bool,
    },
    /// The lease is still yours, for another TTL. It may carry a request to hand it over.
    Renewed(Lease),
    /// The lease was yours and is free now.
    Released,
    /// The lease is yours for a little longer.
    Shortened(Lease),
    /// Another holds it.
    Held(Held),
    /// The lease is not yours, or not any more.
    Lost {
        /// Why.
        because: LossReason,
        /// The present holder, if there is one.
        held: Option<Held>,
    },
    /// The lease id is right, and it is another owner's: the caller does not hold this lease.
    NotYours(Held),
    /// The holder has been asked, or still is.
    Requested {
        /// The holder.
        held: Held,
        /// The request.
        request: Request,
    },
    /// Another asked before; there is one request at a time.
    RequestedByAnother {
        /// The holder.
        held: Held,
        /// Who has asked.
        by: Owner,
    },
    /// The request is known to the holder, whose time to answer runs until then.
    Told {
        /// When silence counts as an answer.
        ends_at: StoreTime,
    },
    /// The lease was handed over.
    HandedOver {
        /// To whom.
        to: Owner,
        /// What else is known about them.
        meta: Meta,
    },
    /// The holder keeps the lease, and the asker learns it.
    Refused,
    /// There is no such request (any more).
    NoRequest,
    /// Everything under the lease id is over.
    Withdrawn,
    /// What is known about a fence.
    Checked {
        /// Whether it is the current one.
        current: bool,
        /// The live lease of the key, seen from outside.
        held: Option<Held>,
    },
    /// What was due has been done.
    Settled,
    /// The bidder already holds as many leases as it may.
    OwnerIsFull,
    /// The store has given out its last fence, 2^53 - 1.
    FencesExhausted,
}

/// A lease as others may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who holds it.
    pub by: Owner,
    /// Until when, unless it is renewed.
    pub until: StoreTime,
    /// Its fence, for a take-over or a request to name.
    pub fence: Fence,
    /// What else is known about the holder.
    pub meta: Meta,
}

impl From<&Lease> for Held {
    fn from(lease: &Lease) -> Self {
        Self {
            by: lease.owner.clone(),
            until: lease.expires_at,
            fence: lease.fence,
            meta: lease.meta.clone(),
        }
    }
}

/// Why a lease id stands for nothing (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// It was released.
    Released,
    /// Its time ran out.
    Expired,
    /// Its holder released it softly and did not come back.
    Disconnected,
    /// It was taken over.
    TakenOver,
    /// It was ended by force.
    ForceReleased,
    /// It was handed over.
    HandedOver,
    /// Its holder came back to it under a new lease id.
    Resumed,
    /// It stood for a request to hand over, which was refused.
    Refused,
    /// It was withdrawn.
    Withdrawn,
    /// The store knows nothing of it: it never was, or ended longer ago than it remembers.
    Unknown,
}

impl LossReason {
    /// All of them, with the word that stores and the wire use for each.
    pub const WORDS: [(Self, &'static str); 10] = [
        (Self::Released, "released"),
        (Self::Expired, "expired"),
        (Self::Disconnected, "disconnected"),
        (Self::TakenOver, "taken_over"),
        (Self::ForceReleased, "force_released"),
        (Self::HandedOver, "handed_over"),
        (Self::Resumed, "resumed"),
        (Self::Refused, "refused"),
        (Self::Withdrawn, "withdrawn"),
        (Self::Unknown, "unknown"),
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(reason, _)| *reason == self).map_or("unknown", |(_, word)| word)
    }

    /// The reason that `word` stands for.
    pub fn parse(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(_, known)| *known == word).map(|(reason, _)| *reason)
    }
}

impl From<&EndReason> for LossReason {
    fn from(reason: &EndReason) -> Self {
        match reason {
            EndReason::Released => Self::Released,
            EndReason::Expired => Self::Expired,
            EndReason::Disconnected => Self::Disconnected,
            EndReason::TakenOver { .. } => Self::TakenOver,
            EndReason::ForceReleased { .. } => Self::ForceReleased,
            EndReason::HandedOver { .. } => Self::HandedOver,
        }
    }
}

/// Decides one command on one key.
pub fn decide(key: &Key, slot: &Slot, command: &Command, context: &Context) -> Decision {
    Step::run(key, slot, context, |step| match command {
        Command::Acquire(bid) => step.acquire(bid),
        Command::AcquireInTab(bid) => step.acquire_in_tab(bid),
        Command::Renew { claim, ttl } => step.renew(claim, *ttl),
        Command::Release(claim) => step.release(claim),
        Command::SoftRelease { lease_id, grace } => step.soft_release(*lease_id, *grace),
        Command::Resume { claim, next } => step.resume(claim, *next),
        Command::TakeOver { seen, bid, reason, right } => step.take_over(*seen, bid, reason, *right),
        Command::TakeOverInTab { seen, bid, reason, right } => {
            step.extend_in_tab(bid).unwrap_or_else(|| step.take_over(*seen, bid, reason, *right))
        }
        Command::ForceRelease { seen, by, reason } => step.force_release(*seen, by, reason),
        Command::RequestHandover { seen, bid, on_silence, countdown, patience } => {
            step.request_handover(*seen, bid, *on_silence, *countdown, *patience)
        }
        Command::HandoverTold { claim, request } => step.handover_told(claim, *request),
        Command::AnswerHandover { claim, request, hand_over } => {
            step.answer_handover(claim, *request, *hand_over)
        }
        Command::Withdraw { lease_id, owner } => step.withdraw(*lease_id, owner),
        Command::Check { fence } => step.check(*fence),
        Command::Settle => Outcome::Settled,
    })
}

/// [`Command::Acquire`], as [`decide`] decides it. This and the next three are for a caller that needs no other command: a
/// page then does not load the others.
pub fn acquire(key: &Key, slot: &Slot, bid: &Bid, context: &Context) -> Decision {
    Step::run(key, slot, context, |step| step.acquire(bid))
}

/// [`Command::TakeOver`] with [`Right::Force`], as [`decide`] decides it.
pub fn take_over(
    key: &Key,
    slot: &Slot,
    seen: Fence,
    bid: &Bid,
    reason: &Reason,
    context: &Context,
) -> Decision {
    Step::run(key, slot, context, |step| step.take_over(seen, bid, reason, Right::Force))
}

/// [`Command::Renew`], as [`decide`] decides it.
pub fn renew(key: &Key, slot: &Slot, claim: &Claim, ttl: Option<Ttl>, context: &Context) -> Decision {
    Step::run(key, slot, context, |step| step.renew(claim, ttl))
}

/// [`Command::Release`], as [`decide`] decides it.
pub fn release(key: &Key, slot: &Slot, claim: &Claim, context: &Context) -> Decision {
    Step::run(key, slot, context, |step| step.release(claim))
}

/// One decision in the making. After [`Step::settle`], a lease that is there is live.
struct Step<'a> {
    key: &'a Key,
    context: &'a Context,
    slot: Slot,
    changed: bool,
    events: Vec<Event>,
    ended: Vec<(LeaseId, LossReason)>,
    last_fence: u64,
}

impl<'a> Step<'a> {
    /// Decides a command on what is left of the slot after everything that was due.
    fn run(
        key: &'a Key,
        slot: &Slot,
        context: &'a Context,
        command: impl FnOnce(&mut Self) -> Outcome,
    ) -> Decision {
        let mut step = Step::new(key, slot, context);
        step.settle();
        let outcome = command(&mut step);
        step.finish(outcome)
    }

    fn new(key: &'a Key, slot: &Slot, context: &'a Context) -> Self {
        let last_fence = context.last_fence;
        Self {
            key,
            context,
            slot: slot.clone(),
            changed: false,
            events: Vec::new(),
            ended: Vec::new(),
            last_fence,
        }
    }

    fn finish(self, outcome: Outcome) -> Decision {
        let slot = self.changed.then_some(self.slot);
        Decision { outcome, slot, events: self.events, ended: self.ended, last_fence: self.last_fence }
    }

    // --- what is due by itself, in the order in which it became due ---

    /// What came due takes effect as of its own time, so that no answer depends on a look in between.
    fn settle(&mut self) {
        self.settle_request();
        let expired = self.slot.lease.as_ref().filter(|lease| lease.is_expired(self.context.now));
        if let Some(lease) = expired {
            self.end(if lease.leaving { EndReason::Disconnected } else { EndReason::Expired });
        }
    }

    /// A request ends with the holder's silence or by lapsing, whichever comes first; and with its lease, before which
    /// either must come to count at all.
    fn settle_request(&mut self) {
        let Some(lease) = &self.slot.lease else { return };
        let Some(request) = lease.request.clone() else { return };
        let due = |at: &StoreTime| *at <= self.context.now && *at < lease.expires_at;
        let silence = request.silence_ends_at().filter(|end| *end <= request.lapses_at).filter(due);
        match silence {
            Some(end) => self.settle_silence(&request, end),
            None if due(&request.lapses_at) => self.withdraw_request(&request),
            None => {}
        }
    }

    fn settle_silence(&mut self, request: &Request, end: StoreTime) {
        match request.on_silence {
            OnSilence::Grant if !self.is_too_many_for(request) && self.hand_over(&request.bid, end) => {}
            OnSilence::Grant | OnSilence::Refuse => self.refuse(request, true),
        }
    }

    // --- acquire and its relatives ---

    fn acquire(&mut self, bid: &Bid) -> Outcome {
        match self.answer_bid(bid) {
            Ok(outcome) => outcome,
            Err(held) => Outcome::Held(held),
        }
    }

    fn acquire_in_tab(&mut self, bid: &Bid) -> Outcome {
        self.extend_in_tab(bid).unwrap_or_else(|| self.acquire(bid))
    }

    /// The bidder's own lease, extended, if it holds the key in this tab.
    fn extend_in_tab(&mut self, bid: &Bid) -> Option<Outcome> {
        let claim = Claim::Tab { owner: bid.owner.clone(), tab: bid.tab.clone() };
        let lease = self.slot.lease.clone().filter(|lease| claim.fits(lease))?;
        Some(Outcome::Granted { lease: self.extend(lease, bid.ttl), extended: true })
    }

    fn take_over(&mut self, seen: Fence, bid: &Bid, reason: &Reason, right: Right) -> Outcome {
        if let Some(held) = self.held()
            && right == Right::SameOwner
            && held.by != bid.owner
        {
            return Outcome::Held(held);
        }
        match self.answer_bid(bid) {
            Ok(outcome) => outcome,
            Err(held) if held.fence != seen => Outcome::Held(held),
            Err(held) if self.is_too_many(bid, &held) => Outcome::OwnerIsFull,
            Err(_) => {
                let reason = EndReason::TakenOver { by: bid.owner.clone(), reason: reason.clone() };
                self.replace(reason, bid, self.context.now).unwrap_or(Outcome::FencesExhausted)
            }
        }
    }

    fn force_release(&mut self, seen: Fence, by: &Owner, reason: &Reason) -> Outcome {
        match self.held() {
            None => Outcome::Lost { because: LossReason::Unknown, held: None },
            Some(held) if held.fence != seen => Outcome::Held(held),
            Some(_) => {
                self.end(EndReason::ForceReleased { by: by.clone(), reason: reason.clone() });
                Outcome::Released
            }
        }
    }

    fn request_handover(
        &mut self,
        seen: Fence,
        bid: &Bid,
        on_silence: OnSilence,
        countdown: Ttl,
        patience: Ttl,
    ) -> Outcome {
        let held = match self.answer_bid(bid) {
            Ok(outcome) => return outcome,
            Err(held) => held,
        };
        let lapses_at = self.context.now + patience.as_duration().min(LONGEST_PATIENCE);
        match self.pending_request() {
            Some(request) if request.bid.lease_id == bid.lease_id && request.bid.owner == bid.owner => {
                let request = Request { lapses_at, ..request };
                self.set_request(Some(request.clone()));
                Outcome::Requested { held, request }
            }
            Some(request) => Outcome::RequestedByAnother { held, by: request.bid.owner },
            None if held.fence != seen => Outcome::Held(held),
            None if self.is_too_many(bid, &held) => Outcome::OwnerIsFull,
            None => {
                self.tell(EventKind::HandoverRequested { by: bid.owner.clone(), on_silence });
                let (seq, told_at, bid) = (self.slot.seq, None, bid.clone());
                let request = Request { seq, bid, on_silence, countdown, told_at, lapses_at };
                self.set_request(Some(request.clone()));
                Outcome::Requested { held, request }
            }
        }
    }

    /// The start of every bid. `Err` when another holds the key.
    fn answer_bid(&mut self, bid: &Bid) -> Result<Outcome, Held> {
        if let Some(lease) = self.slot.lease.clone()
            && lease.lease_id == bid.lease_id
        {
            // Under another owner it is refused whatever the bid: the id cannot end and be granted at once.
            return Ok(if lease.owner == bid.owner {
                Outcome::Granted { lease: self.extend(lease, bid.ttl), extended: true }
            } else {
                Outcome::Held(Held::from(&lease))
            });
        }
        if let Some(because) = self.over(Some(&bid.lease_id)) {
            return Ok(Outcome::Lost { because, held: self.held() });
        }
        match self.held() {
            Some(held) => Err(held),
            None if self.context.owner_is_full => Ok(Outcome::OwnerIsFull),
            None => Ok(self.grant(bid, self.context.now).unwrap_or(Outcome::FencesExhausted)),
        }
    }

    // --- what only the holder may do ---

    fn renew(&mut self, claim: &Claim, ttl: Option<Ttl>) -> Outcome {
        match self.claimed(claim) {
            // A renewal that was on its way when the page went must not keep others out for a whole TTL. A page that is
            // still there says so by another acquire, or resumes.
            Ok(lease) if lease.leaving => Outcome::Renewed(lease),
            Ok(lease) => {
                let ttl = ttl.unwrap_or(lease.ttl);
                Outcome::Renewed(self.extend(lease, ttl))
            }
            Err(lost) => lost,
        }
    }

    fn release(&mut self, claim: &Claim) -> Outcome {
        if let Err(lost) = self.claimed(claim) {
            return lost;
        }
        self.end(EndReason::Released);
        Outcome::Released
    }

    fn soft_release(&mut self, lease_id: LeaseId, grace: Ttl) -> Outcome {
        let Some(mut lease) = self.slot.lease.clone().filter(|lease| lease.lease_id == lease_id) else {
            return self.lost(Some(&lease_id));
        };
        let expires_at = lease.expires_at.min(self.context.now + grace.as_duration());
        if !lease.leaving || expires_at < lease.expires_at {
            lease.leaving = true;
            lease.expires_at = expires_at;
            self.set_lease(lease.clone());
            self.tell(EventKind::Shortened { expires_at });
        }
        Outcome::Shortened(lease)
    }

    fn resume(&mut self, claim: &Claim, next: LeaseId) -> Outcome {
        // When the command is repeated, the lease has its next id already.
        let already = claim.with_lease_id(next);
        let mut lease = match self.claimed(&already).or_else(|_| self.claimed(claim)) {
            Ok(lease) => lease,
            Err(lost) => return lost,
        };
        if lease.lease_id != next {
            self.ended.push((lease.lease_id, LossReason::Resumed));
            lease.lease_id = next;
        }
        let ttl = lease.ttl;
        Outcome::Granted { lease: self.extend(lease, ttl), extended: true }
    }

    fn handover_told(&mut self, claim: &Claim, seq: Seq) -> Outcome {
        let mut request = match self.claimed_request(claim, seq) {
            Ok(request) => request,
            Err(outcome) => return outcome,
        };
        let told_at = *request.told_at.get_or_insert(self.context.now);
        let ends_at = told_at + request.countdown.as_duration();
        if self.pending_request().is_some_and(|pending| pending.told_at.is_none()) {
            let by = request.bid.owner.clone();
            self.set_request(Some(request));
            self.tell(EventKind::HandoverTold { by, ends_at });
        }
        Outcome::Told { ends_at }
    }

    fn answer_handover(&mut self, claim: &Claim, seq: Seq, hand_over: bool) -> Outcome {
        let request = match self.claimed_request(claim, seq) {
            Ok(request) => request,
            Err(outcome) => return outcome,
        };
        if !hand_over {
            self.refuse(&request, false);
            return Outcome::Refused;
        }
        if self.hand_over(&request.bid, self.context.now) {
            Outcome::HandedOver { to: request.bid.owner, meta: request.bid.meta }
        } else {
            Outcome::FencesExhausted
        }
    }

    // --- what every caller may do ---

    fn withdraw(&mut self, lease_id: LeaseId, owner: &Owner) -> Outcome {
        let request = self.pending_request().filter(|request| request.bid.lease_id == lease_id);
        match (&self.slot.lease, request) {
            (Some(lease), _) if lease.lease_id == lease_id => {
                if lease.owner != *owner {
                    return Outcome::NotYours(Held::from(lease));
                }
                self.end(EndReason::Released);
            }
            (Some(lease), Some(request)) if request.bid.owner != *owner => {
                return Outcome::NotYours(Held::from(lease));
            }
            (_, Some(request)) => self.withdraw_request(&request),
            (_, None) if self.over(Some(&lease_id)).is_none() => {
                self.ended.push((lease_id, LossReason::Withdrawn));
            }
            (_, None) => {}
        }
        Outcome::Withdrawn
    }

    fn check(&self, fence: Fence) -> Outcome {
        let held = self.held();
        Outcome::Checked { current: held.as_ref().is_some_and(|held| held.fence == fence), held }
    }

    // --- the few ways in which a slot changes ---

    /// Gives the free key to the bidder from `at` on. `None` when there is no fence left to give with it.
    fn grant(&mut self, bid: &Bid, at: StoreTime) -> Option<Outcome> {
        let fence = self.next_fence()?;
        let expires_at = at + bid.ttl.as_duration();
        let lease = Lease {
            owner: bid.owner.clone(),
            tab: bid.tab.clone(),
            lease_id: bid.lease_id,
            fence,
            acquired_at: at,
            renewed_at: at,
            expires_at,
            ttl: bid.ttl,
            leaving: false,
            meta: bid.meta.clone(),
            request: None,
        };
        self.last_fence = fence.get();
        self.set_lease(lease.clone());
        self.tell(EventKind::Granted { expires_at, meta: bid.meta.clone() });
        Some(Outcome::Granted { lease, extended: false })
    }

    /// Ends the lease and gives the key to the bidder; changes nothing when there is no fence left.
    fn replace(&mut self, reason: EndReason, bid: &Bid, at: StoreTime) -> Option<Outcome> {
        self.next_fence()?;
        self.end(reason);
        self.grant(bid, at)
    }

    fn hand_over(&mut self, bid: &Bid, at: StoreTime) -> bool {
        self.replace(EndReason::HandedOver { to: bid.owner.clone() }, bid, at).is_some()
    }

    fn next_fence(&self) -> Option<Fence> {
        Fence::new(self.last_fence.saturating_add(1)).ok()
    }

    /// Extends the lease. It never shortens it: a copy of an older renewal with a shorter TTL may come in late, after
    /// the holder was promised more.
    fn extend(&mut self, mut lease: Lease, ttl: Ttl) -> Lease {
        let now = self.context.now;
        let was_leaving = std::mem::take(&mut lease.leaving);
        lease.ttl = ttl;
        lease.renewed_at = now;
        lease.expires_at = lease.expires_at.max(now + ttl.as_duration());
        self.set_lease(lease.clone());
        if was_leaving {
            self.tell(EventKind::Resumed { expires_at: lease.expires_at });
        }
        lease
    }

    /// Ends the lease that is there.
    fn end(&mut self, because: EndReason) {
        if let Some(lease) = &self.slot.lease {
            self.ended.push((lease.lease_id, LossReason::from(&because)));
            self.tell(EventKind::Ended { because });
            self.slot.lease = None;
            self.slot.vacant_since = self.context.now;
        }
    }

    fn refuse(&mut self, request: &Request, silent: bool) {
        self.ended.push((request.bid.lease_id, LossReason::Refused));
        self.set_request(None);
        self.tell(EventKind::HandoverRefused { by: request.bid.owner.clone(), silent });
    }

    fn withdraw_request(&mut self, request: &Request) {
        self.ended.push((request.bid.lease_id, LossReason::Withdrawn));
        self.set_request(None);
        self.tell(EventKind::HandoverWithdrawn { by: request.bid.owner.clone() });
    }

    fn set_lease(&mut self, lease: Lease) {
        self.slot.lease = Some(lease);
        self.changed = true;
    }

    fn set_request(&mut self, request: Option<Request>) {
        if let Some(lease) = self.slot.lease.as_mut() {
            lease.request = request.map(Box::new);
            self.changed = true;
        }
    }

    /// Adds an event about the lease that is there.
    fn tell(&mut self, kind: EventKind) {
        if let Some(lease) = &self.slot.lease {
            self.slot.seq += 1;
            self.changed = true;
            let (fence, owner) = (lease.fence, lease.owner.clone());
            self.events.push(Event {
                key: self.key.clone(),
                seq: self.slot.seq,
                at: self.context.now,
                fence,
                owner,
                kind,
            });
        }
    }

    // --- what is there ---

    fn held(&self) -> Option<Held> {
        self.slot.lease.as_ref().map(Held::from)
    }

    /// Whether the bidder would hold more leases than it may, once it had this one from `held`.
    fn is_too_many(&self, bid: &Bid, held: &Held) -> bool {
        self.context.owner_is_full && bid.owner != held.by
    }

    /// Whether the asker would hold more leases than it may, once it had this one.
    fn is_too_many_for(&self, request: &Request) -> bool {
        self.context.asker_is_full && self.held().is_some_and(|held| held.by != request.bid.owner)
    }

    fn pending_request(&self) -> Option<Request> {
        self.slot.lease.as_ref()?.request.as_deref().cloned()
    }

    /// The lease, if the claim fits it; what to answer otherwise. With no live lease that names no holder, and so tells
    /// "nobody holds it" from "another holds it".
    fn claimed(&self, claim: &Claim) -> Result<Lease, Outcome> {
        match &self.slot.lease {
            Some(lease) if claim.fits(lease) => Ok(lease.clone()),
            Some(lease) if claim.is_anothers(lease) => Err(Outcome::NotYours(Held::from(lease))),
            _ => Err(self.lost(claim.lease_id())),
        }
    }

    fn lost(&self, lease_id: Option<&LeaseId>) -> Outcome {
        Outcome::Lost { because: self.over(lease_id).unwrap_or(LossReason::Unknown), held: self.held() }
    }

    fn claimed_request(&self, claim: &Claim, seq: Seq) -> Result<Request, Outcome> {
        let lease = self.claimed(claim)?;
        lease.request.filter(|request| request.seq == seq).map(|request| *request).ok_or(Outcome::NoRequest)
    }

    /// Why the command's lease id is over: because of what was just settled, or from the store's memory.
    fn over(&self, lease_id: Option<&LeaseId>) -> Option<LossReason> {
        let lease_id = lease_id?;
        let just_now = self.ended.iter().find(|(id, _)| id == lease_id).map(|(_, reason)| *reason);
        just_now.or(self.context.remembered)
    }
}
