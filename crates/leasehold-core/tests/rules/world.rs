//! A store with one key and no IO. It keeps what a store has to keep, audits every decision, and puts answers and
//! events into short words, so that a test reads like the row that it checks.
//!
//! A holder is a name such as `alice`, or `alice/2` for a second tab of the same owner. Its lease id follows from it, and so does its tab.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::event::{EndReason, Event, EventKind};
use leasehold_core::lease::{
    Bid, Claim, Command, Context, Decision, Held, Lease, LossReason, OnSilence, Outcome, Proof, REMEMBERED,
    Right, Slot, decide,
};
use leasehold_core::name::{Fence, Key, LeaseId, Meta, Owner, Reason, TabId};
use leasehold_core::time::{StoreTime, Ttl};

use crate::audit::Audit;

/// What a lease lasts in the tests, unless they say otherwise.
pub const TTL: u64 = 30;
/// How long a holder that was told has to answer.
pub const COUNTDOWN: u64 = 10;
/// How long a request stands without being repeated.
pub const PATIENCE: u64 = 20;

/// Something that somebody does.
pub type Act = fn(&mut World) -> String;

pub struct World {
    pub now: StoreTime,
    pub slot: Slot,
    pub last_fence: u64,
    pub owner_is_full: bool,
    pub asker_is_full: bool,
    pub events: Vec<Event>,
    remembered: BTreeMap<LeaseId, (LossReason, StoreTime)>,
    /// The last fence that each lease id got, for its claims.
    fences: BTreeMap<LeaseId, Fence>,
    /// Every secret that was ever used here: none of them may show up anywhere.
    secrets: BTreeSet<LeaseId>,
    audit: Audit,
}

impl World {
    pub fn new() -> Self {
        Self::after_fence(0)
    }

    /// A world whose store has already given out so many fences.
    pub fn after_fence(last_fence: u64) -> Self {
        Self {
            // Not at the origin, so that times which were left at zero stand out.
            now: StoreTime::from_millis(1_000_000),
            slot: Slot::unknown(0),
            last_fence,
            owner_is_full: false,
            asker_is_full: false,
            events: Vec::new(),
            remembered: BTreeMap::new(),
            fences: BTreeMap::new(),
            secrets: BTreeSet::new(),
            audit: Audit::default(),
        }
    }

    // --- time ---

    pub fn pass(&mut self, seconds: u64) {
        self.pass_millis(seconds * 1_000);
    }

    pub fn pass_millis(&mut self, millis: u64) {
        self.now = StoreTime::from_millis(self.now.as_millis() + millis);
    }

    // --- commands: each answers in words ---

    pub fn acquire(&mut self, who: &str) -> String {
        self.acquire_for(who, TTL)
    }

    pub fn acquire_for(&mut self, who: &str, ttl: u64) -> String {
        self.run(&Command::Acquire(bid(who, ttl)))
    }

    pub fn renew(&mut self, who: &str) -> String {
        self.run(&Command::Renew { claim: self.claim(who), ttl: None })
    }

    pub fn renew_for(&mut self, who: &str, ttl: u64) -> String {
        self.run(&Command::Renew { claim: self.claim(who), ttl: Some(secs(ttl)) })
    }

    pub fn release(&mut self, who: &str) -> String {
        self.run(&Command::Release(self.claim(who)))
    }

    pub fn soft_release(&mut self, who: &str, grace: u64) -> String {
        self.run(&Command::SoftRelease { lease_id: lease_id(who), grace: secs(grace) })
    }

    /// A rotation keeps the fence, so the new lease id claims with that of the old one.
    pub fn resume(&mut self, who: &str, next: &str) -> String {
        self.run(&Command::Resume { claim: self.claim(who), next: lease_id(next) })
    }

    /// Takes over the lease that is there now.
    pub fn take_over(&mut self, who: &str) -> String {
        self.take_over_seen(who, self.current_fence())
    }

    pub fn take_over_seen(&mut self, who: &str, seen: u64) -> String {
        let (seen, reason) = (fence(seen), Reason::parse("urgent").unwrap());
        self.run(&Command::TakeOver { seen, bid: bid(who, TTL), reason, right: Right::Force })
    }

    /// Requests the lease that is there now.
    pub fn ask(&mut self, who: &str, on_silence: OnSilence) -> String {
        self.ask_seen(who, on_silence, self.current_fence())
    }

    pub fn ask_seen(&mut self, who: &str, on_silence: OnSilence, seen: u64) -> String {
        self.run(&ask_command(bid(who, TTL), on_silence, seen))
    }

    pub fn told(&mut self, who: &str, request: u64) -> String {
        self.run(&Command::HandoverTold { claim: self.claim(who), request })
    }

    pub fn answer(&mut self, who: &str, request: u64, hand_over: bool) -> String {
        self.run(&Command::AnswerHandover { claim: self.claim(who), request, hand_over })
    }

    pub fn withdraw(&mut self, who: &str) -> String {
        self.run(&Command::Withdraw { lease_id: lease_id(who), owner: owner(who) })
    }

    pub fn check(&mut self, number: u64) -> String {
        self.run(&Command::Check { fence: fence(number) })
    }

    pub fn settle(&mut self) -> String {
        self.run(&Command::Settle)
    }

    /// Runs a command the way a store does: decide, keep everything, and only then answer.
    pub fn run(&mut self, command: &Command) -> String {
        self.secrets.extend(secrets_of(command));
        let decision = self.decide(command);
        self.audit = self.audit.after(self, command, &decision);
        self.keep(&decision);
        self.audit.check_settled(self);
        words(&decision.outcome)
    }

    /// What would be decided now; nothing is kept.
    pub fn decide(&self, command: &Command) -> Decision {
        let context = Context {
            now: self.now,
            last_fence: self.last_fence,
            remembered: command.lease_id().and_then(|id| self.remembered(id)),
            owner_is_full: self.owner_is_full,
            asker_is_full: self.asker_is_full,
        };
        decide(&key(), &self.slot, command, &context)
    }

    fn keep(&mut self, decision: &Decision) {
        if let Some(slot) = &decision.slot {
            self.slot = slot.clone();
        }
        self.last_fence = decision.last_fence;
        self.events.extend(decision.events.iter().cloned());
        let now = self.now;
        self.remembered.retain(|_, (_, ended)| now < *ended + REMEMBERED);
        self.remembered.extend(decision.ended.iter().map(|(id, reason)| (*id, (*reason, now))));
        if let Some(lease) = &self.slot.lease {
            self.fences.insert(lease.lease_id, lease.fence);
        }
    }

    /// Forgets the key as a store may, once it has been free for long enough.
    pub fn forget(&mut self) {
        assert!(self.slot.is_forgettable(self.now), "too early: {:?}", self.slot);
        self.slot = Slot::unknown(self.slot.seq);
    }

    // --- what is there ---

    /// The lease as it was last written, live or not.
    pub fn lease(&self) -> &Lease {
        self.slot.lease.as_ref().expect("there is no lease")
    }

    /// How long the lease that is there still lasts, in milliseconds.
    pub fn left(&self) -> u64 {
        u64::try_from(self.lease().expires_at.since(self.now).as_millis()).unwrap()
    }

    pub fn current_fence(&self) -> u64 {
        self.slot.lease.as_ref().map_or(1, |lease| lease.fence.get())
    }

    pub fn claim(&self, who: &str) -> Claim {
        self.proof(who).into()
    }

    pub fn proof(&self, who: &str) -> Proof {
        let lease_id = lease_id(who);
        let fence = self.fences.get(&lease_id).copied().unwrap_or(fence(1));
        Proof { lease_id, fence }
    }

    pub fn remembered(&self, id: &LeaseId) -> Option<LossReason> {
        let (reason, ended) = self.remembered.get(id)?;
        (self.now < *ended + REMEMBERED).then_some(*reason)
    }

    pub fn secrets(&self) -> &BTreeSet<LeaseId> {
        &self.secrets
    }

    /// Everything that has happened, in words.
    pub fn story(&self) -> Vec<String> {
        self.story_since(0)
    }

    /// What has happened since the first `told` events.
    pub fn story_since(&self, told: usize) -> Vec<String> {
        self.events[told..].iter().map(event_words).collect()
    }
}

// --- values ---

pub fn key() -> Key {
    Key::parse("doc/minutes").unwrap()
}

pub fn secs(seconds: u64) -> Ttl {
    Ttl::from_secs(seconds).unwrap()
}

pub fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

pub fn lease_id(who: &str) -> LeaseId {
    // FNV-1a: the name itself shows up in events, as the owner.
    let mix = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul((1 << 88) + 0x13b);
    LeaseId::from_random(who.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix).to_be_bytes())
}

pub fn owner(who: &str) -> Owner {
    Owner::parse(who.split('/').next().unwrap()).unwrap()
}

pub fn bid(who: &str, ttl: u64) -> Bid {
    Bid { lease_id: lease_id(who), owner: owner(who), tab: tab(who), ttl: secs(ttl), meta: Meta::default() }
}

pub fn tab(who: &str) -> Option<TabId> {
    who.split_once('/').map(|(_, tab)| TabId::parse(tab).unwrap())
}

/// The lease id and the owner, as of a caller with a token.
pub fn holder(who: &str) -> Claim {
    Claim::Holder { lease_id: lease_id(who), owner: owner(who), fence: None }
}

/// The owner and the tab, as of a caller that keeps no lease id.
pub fn in_tab(who: &str) -> Claim {
    Claim::Tab { owner: owner(who), tab: tab(who) }
}

pub fn ask_command(bid: Bid, on_silence: OnSilence, seen: u64) -> Command {
    let (countdown, patience) = (secs(COUNTDOWN), secs(PATIENCE));
    Command::RequestHandover { seen: fence(seen), bid, on_silence, countdown, patience }
}

fn secrets_of(command: &Command) -> Vec<LeaseId> {
    let next = match command {
        Command::Resume { next, .. } => Some(*next),
        _ => None,
    };
    command.lease_id().copied().into_iter().chain(next).collect()
}

// --- words ---

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Granted { lease, extended: false } => format!("granted #{}", lease.fence),
        Outcome::Granted { lease, extended: true } => format!("extended #{}", lease.fence),
        Outcome::Renewed(lease) => format!("renewed #{}", lease.fence),
        Outcome::Released => "released".into(),
        Outcome::Shortened(lease) => format!("shortened #{}", lease.fence),
        Outcome::Held(held) => held_words(held),
        Outcome::Lost { because, held: None } => format!("lost: {}", because.as_str()),
        Outcome::Lost { because, held: Some(held) } => {
            format!("lost: {}, {}", because.as_str(), held_words(held))
        }
        Outcome::Requested { held, request } => format!("requested as {}, {}", request.seq, held_words(held)),
        Outcome::RequestedByAnother { held, by } => format!("requested by {by}, {}", held_words(held)),
        Outcome::Told { .. } => "told".into(),
        Outcome::NotYours(held) => format!("not yours, {}", held_words(held)),
        Outcome::HandedOver { to, .. } => format!("handed over to {to}"),
        Outcome::Refused => "refused".into(),
        Outcome::NoRequest => "no request".into(),
        Outcome::Withdrawn => "withdrawn".into(),
        Outcome::Checked { current: true, .. } => "current".into(),
        Outcome::Checked { current: false, .. } => "not current".into(),
        Outcome::Settled => "settled".into(),
        Outcome::OwnerIsFull => "owner is full".into(),
        Outcome::FencesExhausted => "fences exhausted".into(),
    }
}

fn held_words(held: &Held) -> String {
    format!("held by {}#{}", held.by, held.fence)
}

fn event_words(event: &Event) -> String {
    let what = match &event.kind {
        EventKind::Granted { .. } => "granted".into(),
        EventKind::Ended { because } => format!("ended: {}", end_words(because)),
        EventKind::Shortened { .. } => "shortened".into(),
        EventKind::Resumed { .. } => "resumed".into(),
        EventKind::HandoverRequested { by, .. } => format!("requested by {by}"),
        EventKind::HandoverTold { by, .. } => format!("told of {by}"),
        EventKind::HandoverRefused { by, silent: true } => format!("refused {by} by silence"),
        EventKind::HandoverRefused { by, silent: false } => format!("refused {by}"),
        EventKind::HandoverWithdrawn { by } => format!("withdrawn by {by}"),
    };
    format!("{} {}#{} {what}", event.seq, event.owner, event.fence)
}

fn end_words(because: &EndReason) -> String {
    match because {
        EndReason::Released => "released".into(),
        EndReason::Expired => "expired".into(),
        EndReason::Disconnected => "disconnected".into(),
        EndReason::TakenOver { by, reason } => format!("taken over by {by} ({reason})"),
        EndReason::ForceReleased { by, reason } => format!("force-released by {by} ({reason})"),
        EndReason::HandedOver { to } => format!("handed over to {to}"),
    }
}
