//! A client: wants a key now and then, keeps it by the real [`Keeper`], writes under its fence, and gives it back, or
//! is too late for that. It does no IO: what it wants done it leaves in [`Moment::effects`].

use std::time::Duration;

use leasehold_core::holder::{Action, Confirm, Reply, Terms};
use leasehold_core::lease::{Bid, Claim, LossReason, Proof};
use leasehold_core::{
    Command, EventKind, Fence, Held, HolderTime, Keeper, Key, Lease, LeaseId, Meta, OnSilence, Outcome,
    Owner, Published, Reason, Right, StoreTime, TabId, Ttl,
};
use leasehold_store::Applied;

use crate::bug::Bug;
use crate::message::Request;
use crate::register::{Access, Answer};
use leasehold_store::random::Random;

/// How long a client waits for an answer before it asks again.
const PATIENCE: u64 = 2_000;

/// How often a message is repeated that the client does not wait for.
const TRIES: u32 = 5;

/// A clock of one's own: it began at another number and runs a little too fast or too slow.
#[derive(Clone, Copy, Debug)]
pub struct OwnClock {
    /// What it shows at the beginning of the world.
    pub offset: u64,
    /// How many millionths of a millisecond it counts in a millisecond.
    pub rate: u64,
}

impl OwnClock {
    /// What it shows at a true time.
    pub fn read(&self, at: u64) -> u64 {
        self.offset + at * self.rate / 1_000_000
    }

    /// The first true time at which it shows this.
    pub fn when(&self, shown: u64) -> u64 {
        (shown.saturating_sub(self.offset) * 1_000_000).div_ceil(self.rate)
    }
}

/// By what a client names its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimBy {
    /// The lease id and the fence.
    Proof,
    /// The lease id and the owner.
    Holder,
    /// The owner and the tab. It also acquires by tab, and gets what it already holds.
    Tab,
}

/// Who a client is to the store. No two clients have the same owner and the same tab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// As shown to people.
    pub owner: Owner,
    /// In which of the owner's tabs.
    pub tab: Option<TabId>,
    /// By what it names its leases.
    pub claims: ClaimBy,
}

impl Party {
    /// The claim to a lease of which this is the proof.
    fn claim(&self, proof: Proof) -> Claim {
        match self.claims {
            ClaimBy::Proof => proof.into(),
            ClaimBy::Holder => self.claim_by_id(proof),
            ClaimBy::Tab => Claim::Tab { owner: self.owner.clone(), tab: self.tab.clone() },
        }
    }

    /// The same for coming back to a lease under a new lease id. Nobody does so by tab: a late copy would give the tab's
    /// next lease an id that was used before.
    fn claim_by_id(&self, proof: Proof) -> Claim {
        match self.claims {
            ClaimBy::Proof => proof.into(),
            ClaimBy::Holder | ClaimBy::Tab => {
                Claim::Holder { lease_id: proof.lease_id, owner: self.owner.clone(), fence: None }
            }
        }
    }
}

/// What kind of client it is.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// By what it names its leases.
    pub claims: ClaimBy,
    /// The TTL it asks for.
    pub ttl: Ttl,
    /// How long it does nothing between two leases, at most.
    pub think: u64,
    /// How long it holds a lease, at most.
    pub hold: u64,
    /// How long it waits for one before it gives up.
    pub wait: u64,
    /// Whether it hears of a freed key, or only waits until the lease must be over.
    pub hears: bool,
    /// In how many of a thousand conflicts it takes over by force.
    pub takes_over: u64,
    /// In how many of a thousand conflicts it asks for a hand-over.
    pub asks: u64,
    /// In how many of a thousand cases it leaves softly.
    pub leaves_softly: u64,
}

/// A moment in which a client does something.
pub struct Moment<'a> {
    /// On its own clock.
    pub now: HolderTime,
    /// Its luck.
    pub random: &'a mut Random,
    /// What it wants done.
    pub effects: &'a mut Vec<Effect>,
    /// The keys of the world.
    pub keys: &'a [Key],
    /// The mistake it makes, if any.
    pub bug: Option<Bug>,
    /// Whether its story is recorded.
    pub telling: bool,
}

impl Moment<'_> {
    fn say(&mut self, line: impl FnOnce() -> String) {
        if self.telling {
            self.effects.push(Effect::Say(line()));
        }
    }

    fn after(&self, millis: u64) -> HolderTime {
        self.now + Duration::from_millis(millis)
    }

    /// Some time between `low` and `high` milliseconds from now.
    fn within(&mut self, low: u64, high: u64) -> HolderTime {
        let millis = self.random.between(low, high);
        self.after(millis)
    }

    fn ask(&mut self, key: &Key, command: Command) {
        self.effects.push(Effect::Ask(key.clone(), command));
    }
}

/// What a client wants done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send a command to a server.
    Ask(Key, Command),
    /// Access a register under a fence.
    Access(Key, u64, Access),
    /// The same in a moment: it is decided, and not thought over again.
    AccessSoon(Key, u64, Access),
    /// A line for the story.
    Say(String),
}

/// A client that wants leases.
pub struct Client {
    /// Who it is to the store.
    pub party: Party,
    /// How often it was restarted.
    pub life: u32,
    /// Its clock.
    pub clock: OwnClock,
    /// What kind it is.
    pub habits: Habits,
    phase: Phase,
    /// What outlives a crash: the lease it held.
    kept: Option<(Key, Proof)>,
}

enum Phase {
    Idle {
        until: HolderTime,
    },
    Asking(Ask),
    Holding(Box<Hold>),
    /// Something that is only repeated until it is answered.
    Leaving {
        key: Key,
        command: Command,
        again_at: HolderTime,
        tries: u32,
    },
    /// Left softly, and back then.
    Away {
        key: Key,
        claim: Proof,
        until: HolderTime,
    },
}

/// An attempt to get a lease, under one lease id from beginning to end.
struct Ask {
    key: Key,
    party: Party,
    bid: Bid,
    how: How,
    since: HolderTime,
    /// Whether an answer was heard that says who is in the way.
    waits: bool,
    again_at: HolderTime,
    tries: u32,
}

#[derive(Clone, Copy)]
enum How {
    Acquire,
    TakeOver(Fence, Right),
    Handover(Fence, OnSilence, Ttl),
    Resume(Proof, LeaseId),
}

struct Hold {
    key: Key,
    claim: Proof,
    /// When the request that it was granted by was sent. Answers to older ones are about an earlier lease.
    since: HolderTime,
    keeper: Keeper,
    until: HolderTime,
    work: Work,
    /// The hand-over that was requested, and what the holder does about it.
    request: Option<(u64, Reaction)>,
}

#[derive(Clone, Copy)]
enum Reaction {
    Ignore,
    SayItKnows,
    HandOver,
    Refuse,
}

#[derive(Clone, Copy)]
enum Work {
    Opening { again_at: HolderTime },
    Ready { base: u64, number: u64, at: HolderTime },
    Writing { base: u64, number: u64, again_at: HolderTime },
}

impl Client {
    /// A client that has done nothing so far.
    pub fn new(party: Party, clock: OwnClock, habits: Habits) -> Self {
        Self { party, life: 0, clock, habits, phase: Phase::Idle { until: HolderTime::ZERO }, kept: None }
    }

    /// What it believes to hold, under which fence, and until when, on its own clock.
    pub fn belief(&self) -> Option<(&Key, u64, HolderTime)> {
        match &self.phase {
            Phase::Holding(hold) if hold.keeper.lost().is_none() => {
                Some((&hold.key, hold.claim.fence.get(), hold.keeper.deadline()))
            }
            _ => None,
        }
    }

    /// The key it wants and does not have, and since when.
    pub fn wants(&self) -> Option<(&Key, HolderTime)> {
        match &self.phase {
            Phase::Asking(ask) => Some((&ask.key, ask.since)),
            _ => None,
        }
    }

    /// When it wants to do something next.
    pub fn next_wake(&self) -> HolderTime {
        match &self.phase {
            Phase::Idle { until } | Phase::Away { until, .. } => *until,
            Phase::Asking(ask) => ask.again_at,
            Phase::Leaving { again_at, .. } => *again_at,
            Phase::Holding(hold) => hold.next_wake(),
        }
    }

    /// It is gone, with everything it knew; perhaps what it held was written down.
    pub fn crash(&mut self, keeps: bool) {
        self.kept = match &self.phase {
            Phase::Holding(hold) if keeps => Some((hold.key.clone(), hold.claim)),
            _ => None,
        };
        self.phase = Phase::Idle { until: HolderTime::from_millis(u64::MAX) };
        self.life += 1;
    }

    /// It begins anew.
    pub fn restart(&mut self, m: &mut Moment<'_>) {
        self.phase = match self.kept.take() {
            Some((key, claim)) => self.resume(m, key, claim),
            None => self.idle(m),
        };
    }

    // --- what time brings ---

    /// Does what is due.
    pub fn wake(&mut self, m: &mut Moment<'_>) {
        if m.now < self.next_wake() {
            return;
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Idle { until: m.now });
        self.phase = match phase {
            Phase::Idle { .. } => self.begin(m),
            Phase::Asking(ask) => self.ask_again(m, ask),
            Phase::Holding(hold) => self.keep(m, hold),
            Phase::Away { key, claim, .. } => self.resume(m, key, claim),
            Phase::Leaving { tries: TRIES, .. } => self.idle(m),
            Phase::Leaving { key, command, tries, .. } => {
                m.ask(&key, command.clone());
                Phase::Leaving { key, command, again_at: m.after(PATIENCE), tries: tries + 1 }
            }
        };
    }

    fn idle(&self, m: &mut Moment<'_>) -> Phase {
        Phase::Idle { until: m.within(1, self.habits.think) }
    }

    fn begin(&self, m: &mut Moment<'_>) -> Phase {
        let Some(key) = m.keys.get(m.random.index(m.keys.len())).cloned() else { return self.idle(m) };
        let lease_id = m.random.lease_id();
        m.say(|| format!("wants {key}"));
        self.ask(m, key, lease_id, How::Acquire)
    }

    /// Begins to ask, under this lease id.
    fn ask(&self, m: &mut Moment<'_>, key: Key, lease_id: LeaseId, how: How) -> Phase {
        let party = self.party.clone();
        let (owner, tab) = (party.owner.clone(), party.tab.clone());
        let bid = Bid { tab, lease_id, owner, ttl: self.habits.ttl, meta: Meta::default() };
        let (since, again_at) = (m.now, m.now);
        self.ask_again(m, Ask { key, party, bid, how, since, waits: false, again_at, tries: 0 })
    }

    /// A fresh request: a lease that started in the past is never pushed.
    fn ask_again(&self, m: &mut Moment<'_>, mut ask: Ask) -> Phase {
        if m.now.since(ask.since) > Duration::from_millis(self.habits.wait) {
            return self.give_up(m, ask);
        }
        if !ask.waits && ask.tries > 0 {
            m.say(|| "has no answer and asks again".into());
        }
        m.ask(&ask.key, ask.command());
        ask.waits = false;
        ask.tries += 1;
        ask.again_at = m.within(PATIENCE, PATIENCE + 200);
        Phase::Asking(ask)
    }

    fn give_up(&self, m: &mut Moment<'_>, ask: Ask) -> Phase {
        m.say(|| format!("gives up on {}", ask.key));
        let command = match ask.how {
            How::Resume(..) => return self.idle(m),
            _ => Command::Withdraw { lease_id: ask.bid.lease_id, owner: ask.bid.owner.clone() },
        };
        Phase::Leaving { key: ask.key, command, again_at: m.now, tries: 0 }
    }

    fn resume(&self, m: &mut Moment<'_>, key: Key, claim: Proof) -> Phase {
        let next = m.random.lease_id();
        m.say(|| format!("comes back to {key} under a new lease id"));
        self.ask(m, key, next, How::Resume(claim, next))
    }

    fn keep(&self, m: &mut Moment<'_>, mut hold: Box<Hold>) -> Phase {
        match hold.keeper.poll(m.now) {
            Action::Stop(_) => return self.lost(m, &hold),
            Action::Renew => {
                m.ask(&hold.key, Command::Renew { claim: self.party.claim(hold.claim), ttl: None });
            }
            Action::Wait(_) => {}
        }
        if hold.until <= m.now {
            return self.leave(m, *hold);
        }
        hold.go_on_with_work(m);
        Phase::Holding(hold)
    }

    /// It is over. A release is sent all the same, as a guard that is dropped does.
    fn lost(&self, m: &mut Moment<'_>, hold: &Hold) -> Phase {
        let why = hold.keeper.lost().map(|lost| lost.to_string()).unwrap_or_default();
        m.say(|| format!("stops, fence {}: {why}", hold.claim.fence));
        if m.random.chance(500) {
            m.ask(&hold.key, self.release(hold.claim));
        }
        self.idle(m)
    }

    fn leave(&self, m: &mut Moment<'_>, mut hold: Hold) -> Phase {
        hold.keeper.release();
        let Hold { key, claim, .. } = hold;
        if m.random.chance(self.habits.leaves_softly) {
            let grace = short_ttl(m.random.between(1, 5));
            m.say(|| format!("leaves {key} softly, fence {}", claim.fence));
            m.ask(&key, Command::SoftRelease { lease_id: claim.lease_id, grace });
            return Phase::Away { key, claim, until: m.within(50, 6_000) };
        }
        m.say(|| format!("releases {key}, fence {}", claim.fence));
        let command = self.release(claim);
        m.ask(&key, command.clone());
        Phase::Leaving { key, command, again_at: m.after(PATIENCE), tries: 1 }
    }

    fn release(&self, proof: Proof) -> Command {
        Command::Release(self.party.claim(proof))
    }

    // --- what comes in ---

    /// An answer to a command; `None` when the server had trouble.
    pub fn hear_answer(&mut self, m: &mut Moment<'_>, request: &Request, applied: Option<&Applied>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle { until: m.now });
        self.phase = match phase {
            Phase::Asking(ask) if ask.is_asked_by(&request.command) => {
                self.hear_about_bid(m, ask, request, applied)
            }
            Phase::Holding(hold) if hold.is_asked_about(request) => {
                self.hear_about_lease(m, hold, request, applied)
            }
            Phase::Leaving { ref command, .. } if *command == request.command && applied.is_some() => {
                self.idle(m)
            }
            other => other,
        };
    }

    fn hear_about_bid(
        &self,
        m: &mut Moment<'_>,
        mut ask: Ask,
        request: &Request,
        applied: Option<&Applied>,
    ) -> Phase {
        let Some(applied) = applied else {
            ask.again_at = m.within(50, 1_000);
            return Phase::Asking(ask);
        };
        match &applied.outcome {
            Outcome::Granted { lease, .. } => self.granted(m, &ask.key, lease, request.sent, applied.now),
            Outcome::Held(held) => {
                let left = held.until.since(applied.now);
                self.find_held(m, ask, held, u64::try_from(left.as_millis()).unwrap_or(0))
            }
            Outcome::Requested { .. } => ask.wait_until(m.within(300, 1_500)),
            Outcome::RequestedByAnother { .. } => {
                ask.how = How::Acquire;
                ask.wait_until(m.after(1_000))
            }
            _ => self.idle(m),
        }
    }

    fn granted(
        &self,
        m: &mut Moment<'_>,
        key: &Key,
        lease: &Lease,
        sent: HolderTime,
        decided_at: StoreTime,
    ) -> Phase {
        let claim = Proof { lease_id: lease.lease_id, fence: lease.fence };
        let counted_from = if m.bug == Some(Bug::DeadlineFromAnswer) { m.now } else { sent };
        let terms = Terms::in_store(lease, decided_at);
        let keeper = Keeper::granted(counted_from, m.now, terms, None, m.random.bits());
        if !keeper.is_held(m.now) {
            m.say(|| format!("was granted {key}, fence {}, too late to use it", claim.fence));
            let (key, command) = (key.clone(), self.release(claim));
            return Phase::Leaving { key, command, again_at: m.now, tries: 0 };
        }
        m.say(|| format!("HOLDS {key}, fence {}", claim.fence));
        self.hold(m, key, claim, sent, keeper)
    }

    fn hold(&self, m: &mut Moment<'_>, key: &Key, claim: Proof, since: HolderTime, keeper: Keeper) -> Phase {
        m.effects.push(Effect::Access(key.clone(), claim.fence.get(), Access::Open));
        let until = m.within(1, self.habits.hold);
        let work = Work::Opening { again_at: m.after(1_000) };
        let (key, request) = (key.clone(), None);
        Phase::Holding(Box::new(Hold { key, claim, since, keeper, until, work, request }))
    }

    fn find_held(&self, m: &mut Moment<'_>, mut ask: Ask, held: &Held, left: u64) -> Phase {
        if m.random.chance(self.habits.takes_over) {
            m.say(|| format!("takes {} over from {}", ask.key, held.by));
            let right = if held.by == self.party.owner { Right::SameOwner } else { Right::Force };
            ask.how = How::TakeOver(held.fence, right);
            return ask.wait_until(m.within(0, 50));
        }
        if m.random.chance(self.habits.asks) {
            let on_silence = if m.random.chance(500) { OnSilence::Grant } else { OnSilence::Refuse };
            m.say(|| format!("asks {} to hand {} over", held.by, ask.key));
            ask.how = How::Handover(held.fence, on_silence, short_ttl(m.random.between(1, 30)));
            return ask.wait_until(m.now);
        }
        m.say(|| format!("finds {} held by {}, fence {}", ask.key, held.by, held.fence));
        ask.how = How::Acquire;
        ask.wait_until(m.after(left + 1))
    }

    fn hear_about_lease(
        &self,
        m: &mut Moment<'_>,
        mut hold: Box<Hold>,
        request: &Request,
        applied: Option<&Applied>,
    ) -> Phase {
        let named = request_named_by(&request.command);
        let reply = match applied {
            // By tab, another lease of the same tab was renewed: a late copy of an acquire got it.
            Some(Applied { outcome: Outcome::Renewed(lease), .. }) if lease.fence != hold.claim.fence => {
                Some(Reply::Lost(LossReason::Unknown))
            }
            Some(applied) => Reply::in_store(&applied.outcome, applied.now, named),
            None => matches!(request.command, Command::Renew { .. }).then_some(Reply::Failed),
        };
        let Some(reply) = reply else { return Phase::Holding(hold) };
        let renewed = matches!(reply, Reply::Kept(_));
        let late = renewed && m.bug == Some(Bug::DeadlineFromAnswer);
        if m.bug == Some(Bug::LateAnswerEndsRequest) {
            hold.end_what_is_not_named(m, &reply);
        }
        hold.keeper.handle_reply(if late { m.now } else { request.sent }, m.now, reply);
        match hold.keeper.lost() {
            Some(_) => self.lost(m, &hold),
            None if renewed => self.look_at_request(m, hold),
            None => Phase::Holding(hold),
        }
    }

    /// Reacts to a request to hand over. A message about it may have got lost, so it is repeated.
    fn look_at_request(&self, m: &mut Moment<'_>, mut hold: Box<Hold>) -> Phase {
        let Some(seq) = hold.keeper.request().map(|request| request.seq) else { return Phase::Holding(hold) };
        let known = hold.request.filter(|(known, _)| *known == seq);
        let (_, reaction) = known.unwrap_or_else(|| (seq, Reaction::draw(m.random)));
        hold.request = Some((seq, reaction));
        let claim = self.party.claim(hold.claim);
        match reaction {
            Reaction::Ignore => {}
            Reaction::SayItKnows => {
                if hold.keeper.confirm(seq, m.now) == Confirm::Send {
                    m.say(|| format!("knows that {} is wanted, and says so", hold.key));
                    m.ask(&hold.key, Command::HandoverTold { claim, request: seq });
                }
            }
            Reaction::Refuse => {
                m.ask(&hold.key, Command::AnswerHandover { claim, request: seq, hand_over: false });
            }
            Reaction::HandOver => {
                hold.keeper.release();
                m.say(|| format!("hands {} over, fence {}", hold.key, hold.claim.fence));
                let command = Command::AnswerHandover { claim, request: seq, hand_over: true };
                return Phase::Leaving { key: hold.key, command, again_at: m.now, tries: 0 };
            }
        }
        Phase::Holding(hold)
    }

    /// An event of the store.
    pub fn hear_event(&mut self, m: &mut Moment<'_>, published: &Published) {
        let event = &published.event;
        let phase = std::mem::replace(&mut self.phase, Phase::Idle { until: m.now });
        self.phase = match (phase, &event.kind) {
            (Phase::Asking(ask), EventKind::Ended { .. })
                if ask.waits && ask.key == event.key && self.habits.hears =>
            {
                self.woken(m, ask, event.fence)
            }
            (Phase::Holding(mut hold), kind) if hold.is_about(event) => match kind {
                EventKind::Ended { because } => {
                    hold.keeper.handle_lost(LossReason::from(because));
                    self.lost(m, &hold)
                }
                EventKind::HandoverRequested { .. }
                | EventKind::HandoverRefused { .. }
                | EventKind::HandoverWithdrawn { .. } => {
                    hold.keeper.handle_news(m.now);
                    Phase::Holding(hold)
                }
                _ => Phase::Holding(hold),
            },
            (other, _) => other,
        };
    }

    fn woken(&self, m: &mut Moment<'_>, mut ask: Ask, ended: Fence) -> Phase {
        if m.bug == Some(Bug::NoRecheckAfterWaiting)
            && let Ok(fence) = Fence::new(ended.get() + 1)
        {
            m.say(|| format!("is woken and takes {} for its own", ask.key));
            let claim = Proof { lease_id: ask.bid.lease_id, fence };
            return self.hold(m, &ask.key, claim, m.now, Keeper::new(m.now, ask.bid.ttl));
        }
        ask.again_at = m.now;
        Phase::Asking(ask)
    }

    /// The answer of a register.
    pub fn hear_register(
        &mut self,
        m: &mut Moment<'_>,
        key: &Key,
        fence: u64,
        access: Access,
        answer: Answer,
    ) {
        let pause = m.random.between(1, self.habits.hold / 4 + 1);
        let Phase::Holding(hold) = &mut self.phase else { return };
        if hold.key != *key || hold.claim.fence.get() != fence {
            return;
        }
        let at = m.after(pause);
        hold.work = match (hold.work, access, answer) {
            (Work::Opening { .. }, Access::Open, Answer::Opened(base, number)) => {
                Work::Ready { base, number, at }
            }
            (Work::Writing { number, .. }, Access::Write { number: written, .. }, Answer::Written(base))
                if number == written =>
            {
                Work::Ready { base, number, at }
            }
            (work, ..) => work,
        };
        if answer == Answer::Refused {
            hold.refused(m, access);
        }
    }
}

impl Hold {
    fn next_wake(&self) -> HolderTime {
        let work = match self.work {
            Work::Opening { again_at } | Work::Writing { again_at, .. } => again_at,
            Work::Ready { at, .. } => at,
        };
        self.keeper.next_poll().min(self.until).min(work)
    }

    /// Whether the answer to this request says something about this lease.
    fn is_asked_about(&self, request: &Request) -> bool {
        match request.command.claim() {
            Some(Claim::Proof(proof)) => *proof == self.claim,
            Some(Claim::Holder { lease_id, .. }) => *lease_id == self.claim.lease_id,
            Some(Claim::Tab { .. }) => request.key == self.key && request.sent >= self.since,
            None => false,
        }
    }

    fn is_about(&self, event: &leasehold_core::Event) -> bool {
        self.key == event.key && self.claim.fence == event.fence
    }

    /// The mistake of [`Bug::LateAnswerEndsRequest`].
    fn end_what_is_not_named(&mut self, m: &Moment<'_>, reply: &Reply) {
        if let (Reply::Kept(terms), Some(known)) = (reply, self.keeper.request().map(|known| known.seq))
            && terms.request.as_ref().is_none_or(|named| named.seq != known)
        {
            self.keeper.handle_reply(m.now, m.now, Reply::RequestOver { request: known });
        }
    }

    /// A write is decided only while the lease is held; it is carried out a moment later, whatever happens meanwhile.
    fn go_on_with_work(&mut self, m: &mut Moment<'_>) {
        let fence = self.claim.fence.get();
        let again_at = m.after(1_000);
        self.work = match self.work {
            Work::Opening { again_at: at } if at <= m.now => {
                m.effects.push(Effect::Access(self.key.clone(), fence, Access::Open));
                Work::Opening { again_at }
            }
            Work::Ready { base, number, at } if at <= m.now => {
                let number = number + 1;
                m.effects.push(Effect::AccessSoon(self.key.clone(), fence, Access::Write { base, number }));
                Work::Writing { base, number, again_at }
            }
            Work::Writing { base, number, again_at: at } if at <= m.now => {
                m.effects.push(Effect::Access(self.key.clone(), fence, Access::Write { base, number }));
                Work::Writing { base, number, again_at }
            }
            work => work,
        };
    }

    /// A newer fence has been there: the lease is gone. A late copy of an own write is refused too, and means nothing.
    fn refused(&mut self, m: &mut Moment<'_>, access: Access) {
        let outdated = match (self.work, access) {
            (Work::Opening { .. }, _) => true,
            (Work::Writing { number, .. }, Access::Write { number: refused, .. }) => number == refused,
            _ => false,
        };
        if outdated {
            m.say(|| format!("is refused by the register, fence {}", self.claim.fence));
            self.keeper.handle_lost(LossReason::Unknown);
            self.until = m.now;
        }
    }
}

impl Reaction {
    fn draw(random: &mut Random) -> Self {
        random.pick(
            &[Self::Ignore, Self::SayItKnows, Self::SayItKnows, Self::HandOver, Self::Refuse],
            Self::Ignore,
        )
    }
}

impl Ask {
    fn wait_until(mut self, at: HolderTime) -> Phase {
        self.waits = true;
        self.again_at = at;
        Phase::Asking(self)
    }

    fn is_asked_by(&self, command: &Command) -> bool {
        match (command, self.how) {
            (Command::Resume { next, .. }, How::Resume(_, mine)) => *next == mine,
            (
                Command::Acquire(bid)
                | Command::AcquireInTab(bid)
                | Command::TakeOver { bid, .. }
                | Command::RequestHandover { bid, .. },
                _,
            ) => bid.lease_id == self.bid.lease_id,
            _ => false,
        }
    }

    fn command(&self) -> Command {
        let bid = self.bid.clone();
        match self.how {
            How::Acquire if self.party.claims == ClaimBy::Tab => Command::AcquireInTab(bid),
            How::Acquire => Command::Acquire(bid),
            How::TakeOver(seen, right) => Command::TakeOver { right, seen, bid, reason: Reason::default() },
            How::Handover(seen, on_silence, countdown) => {
                Command::RequestHandover { seen, bid, on_silence, countdown, patience: short_ttl(5) }
            }
            How::Resume(proof, next) => Command::Resume { claim: self.party.claim_by_id(proof), next },
        }
    }
}

/// The request to hand over that a command of the holder is about; 0 if it is about none.
fn request_named_by(command: &Command) -> u64 {
    match command {
        Command::HandoverTold { request, .. } | Command::AnswerHandover { request, .. } => *request,
        _ => 0,
    }
}

fn short_ttl(seconds: u64) -> Ttl {
    Ttl::from_secs(seconds).unwrap_or(Ttl::MIN)
}
