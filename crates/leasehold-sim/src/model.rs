//! Every state of a small world: two or three clients, one key, and messages that arrive in any order, late, twice, or
//! never. Time goes in steps of half a second. The rules are the real [`decide`], the holder's side the real [`Keeper`](leasehold_core::Keeper);
//! what is walked through is everything that can happen between them, within [`Bounds`].

use std::collections::BTreeSet;
use std::sync::LazyLock;

use leasehold_core::lease::{Bid, Claim, LossReason, Proof};
use leasehold_core::{
    Command, Context, Fence, Key, Lease, LeaseId, Meta, Outcome, Owner, Slot, StoreTime, TabId, decide,
};

use crate::bug::Bug;
use crate::client::ClaimBy;
use crate::desk::misread;
use crate::small::{Attempt, STEP, holder_time, keeper, lease_id, store_time, ttl};
use crate::walk::{self, Walk};

const ASKS: &str = "asks";
const ASKS_AGAIN: &str = "asks again";
const RENEWS: &str = "renews";
const CRASHES: &str = "crashes";

/// How much may happen in a small world.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many clients there are. The first two are two owners in tabs of the same name, the third is the first owner in
    /// another tab.
    pub clients: u8,
    /// By what they name their leases.
    pub claims: ClaimBy,
    /// How many steps of time there are.
    pub steps: u8,
    /// How many leases each client may try to get.
    pub attempts: u8,
    /// How many requests for a lease may be sent again.
    pub retries: u8,
    /// How many messages may be delivered twice.
    pub copies: u8,
    /// How many clients may crash.
    pub crashes: u8,
    /// How often a holder renews, at most.
    pub renewals: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    Asking,
    /// The fence, and when the last successful request was sent.
    Holding(u8, u8),
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    doing: Doing,
    attempt: u8,
    renewals: u8,
}

/// A message, with the step at which the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Acquire(Attempt, u8),
    Renew(Attempt, u8, u8),
    Release(Attempt, u8),
    Granted(Attempt, u8, u8),
    Renewed(Attempt, u8, u8),
    Lost(Attempt),
}

/// The lease as the store has it: whose, with which fence, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Held {
    attempt: Attempt,
    fence: u8,
    until: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    time: u8,
    held: Option<Held>,
    last_fence: u8,
    ended: BTreeSet<Attempt>,
    /// Which fence an attempt was granted, to notice a second grant.
    granted: BTreeSet<(Attempt, u8)>,
    clients: Vec<Client>,
    network: Vec<Message>,
    retries: u8,
    copies: u8,
    crashes: u8,
}

/// Something that happens; its words are needed only in a counterexample.
#[derive(Clone, Copy, Debug)]
enum Move {
    Time(u8),
    Arrives(Message),
    CopyArrives(Message),
    Client(usize, &'static str),
}

impl std::fmt::Display for Move {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Time(time) => write!(f, "time is {time} now"),
            Self::Arrives(message) => write!(f, "{message:?} arrives"),
            Self::CopyArrives(message) => write!(f, "a copy of {message:?} arrives"),
            Self::Client(client, does) => write!(f, "client {client} {does}"),
        }
    }
}

/// Walks through every state that can be reached.
pub fn walk(bounds: Bounds, bug: Option<Bug>) -> Walk {
    walk::walk(State::start(&bounds), |state| state.successors(&bounds, bug), State::wrong)
}

impl State {
    fn start(bounds: &Bounds) -> Self {
        let client = Client { doing: Doing::Nothing, attempt: 0, renewals: 0 };
        Self {
            time: 0,
            held: None,
            last_fence: 0,
            ended: BTreeSet::new(),
            granted: BTreeSet::new(),
            clients: vec![client; usize::from(bounds.clients)],
            network: Vec::new(),
            retries: bounds.retries,
            copies: bounds.copies,
            crashes: bounds.crashes,
        }
    }

    /// What must not be in this state, or on the way here.
    fn wrong(&self, before: &Self) -> Option<String> {
        let believers: Vec<(usize, u8)> = self.believers().collect();
        if let [one, other, ..] = believers.as_slice() {
            return Some(format!("clients {} and {} both believe that they hold", one.0, other.0));
        }
        let stranger = believers.first().filter(|(_, fence)| !self.has_live(*fence));
        if let Some((client, fence)) = stranger {
            return Some(format!("client {client} believes in fence {fence}, which the store does not hold"));
        }
        let twice =
            self.granted.iter().zip(self.granted.iter().skip(1)).find(|(one, other)| one.0 == other.0);
        if let Some(((attempt, one), (_, other))) = twice {
            return Some(format!("attempt {attempt:?} was granted with fence {one} and again with {other}"));
        }
        let reused = self
            .granted
            .difference(&before.granted)
            .find(|(_, fence)| before.granted.iter().any(|(_, earlier)| earlier >= fence));
        if let Some((_, fence)) = reused {
            return Some(format!("fence {fence} was granted, and is not larger than all before"));
        }
        let revived = before.held.filter(|held| held.until <= self.time).zip(self.held);
        match revived {
            Some((old, new)) if old.fence == new.fence && new.until > old.until => {
                Some(format!("fence {} had expired and was extended", new.fence))
            }
            _ => None,
        }
    }

    fn believers(&self) -> impl Iterator<Item = (usize, u8)> + '_ {
        self.clients.iter().enumerate().filter_map(|(index, client)| match client.doing {
            Doing::Holding(fence, sent) => {
                keeper(sent).is_held(holder_time(self.time)).then_some((index, fence))
            }
            _ => None,
        })
    }

    fn has_live(&self, fence: u8) -> bool {
        self.held.is_some_and(|held| held.fence == fence && held.until > self.time)
    }

    /// Everything that can happen next.
    fn successors(&self, bounds: &Bounds, bug: Option<Bug>) -> Vec<(Move, Self)> {
        let mut all = Vec::new();
        if self.time < bounds.steps {
            all.push((Move::Time(self.time + 1), Self { time: self.time + 1, ..self.clone() }));
        }
        for at in 0..self.network.len() {
            let mut next = self.clone();
            let message = next.network.remove(at);
            if self.copies > 0 {
                let copied = Self { copies: self.copies - 1, ..next.clone() };
                let delivered = copied.deliver(message, bounds.claims, bug);
                all.push((Move::CopyArrives(message), delivered.with(message)));
            }
            all.push((Move::Arrives(message), next.deliver(message, bounds.claims, bug)));
        }
        for at in 0..self.clients.len() {
            self.client_moves(at, bounds, &mut all);
        }
        all.iter_mut().for_each(|(_, next)| next.tidy());
        all
    }

    fn client_moves(&self, at: usize, bounds: &Bounds, all: &mut Vec<(Move, Self)>) {
        let Some(client) = self.clients.get(at) else { return };
        let who = (u8::try_from(at).unwrap_or(0), client.attempt);
        let mut go = |does: &'static str, doing: Doing, message: Option<Message>| {
            let mut next = self.clone();
            next.pay_for(at, does, doing);
            all.push((Move::Client(at, does), message.into_iter().fold(next, Self::with)));
        };
        match client.doing {
            Doing::Nothing if client.attempt < bounds.attempts && self.may_begin(at, bounds) => {
                go(ASKS, Doing::Asking, Some(Message::Acquire((who.0, who.1 + 1), self.time)));
            }
            Doing::Asking if self.retries > 0 => {
                go(ASKS_AGAIN, Doing::Asking, Some(Message::Acquire(who, self.time)));
            }
            Doing::Holding(fence, sent) => {
                let renews =
                    client.renewals < bounds.renewals && keeper(sent).is_held(holder_time(self.time));
                if renews {
                    go(RENEWS, Doing::Holding(fence, sent), Some(Message::Renew(who, fence, self.time)));
                }
                // A release is sent also by a holder that has found out that it is too late.
                go("releases", Doing::Nothing, Some(Message::Release(who, fence)));
            }
            _ => {}
        }
        if self.crashes > 0 && matches!(client.doing, Doing::Asking | Doing::Holding(..)) {
            go(CRASHES, Doing::Crashed, None);
        }
    }

    /// What a client does counts against the bounds.
    fn pay_for(&mut self, at: usize, does: &str, doing: Doing) {
        let Some(client) = self.clients.get_mut(at) else { return };
        client.doing = doing;
        match does {
            ASKS => client.attempt += 1,
            RENEWS => client.renewals += 1,
            ASKS_AGAIN => self.retries -= 1,
            CRASHES => self.crashes -= 1,
            _ => {}
        }
    }

    /// Puts a message on its way, unless nobody would heed it.
    fn with(mut self, message: Message) -> Self {
        if !self.is_heeded(message) {
            return self;
        }
        let at = self.network.partition_point(|other| *other <= message);
        self.network.insert(at, message);
        self
    }

    fn is_heeded(&self, message: Message) -> bool {
        let (Message::Granted(attempt, ..) | Message::Renewed(attempt, ..) | Message::Lost(attempt)) =
            message
        else {
            return true;
        };
        let client = self.clients.get(usize::from(attempt.0));
        client.is_some_and(|client| {
            client.attempt == attempt.1 && matches!(client.doing, Doing::Asking | Doing::Holding(..))
        })
    }

    /// What was on its way to a client that has moved on may as well not be.
    fn tidy(&mut self) {
        let mut network = std::mem::take(&mut self.network);
        network.retain(|message| self.is_heeded(*message));
        self.network = network;
    }

    /// Two clients are alike, and so are three whose owners and tabs are not compared: it is enough to look at the worlds in
    /// which they begin in their order.
    fn may_begin(&self, at: usize, bounds: &Bounds) -> bool {
        let alike = bounds.clients < 3 || bounds.claims != ClaimBy::Tab;
        !alike || self.clients.iter().take(at).all(|client| client.attempt > 0)
    }

    fn deliver(mut self, message: Message, by: ClaimBy, bug: Option<Bug>) -> Self {
        match message {
            Message::Acquire(attempt, sent) => {
                let in_tab = by == ClaimBy::Tab;
                let bid = bid(attempt);
                let command = if in_tab { Command::AcquireInTab(bid) } else { Command::Acquire(bid) };
                self.decide(attempt, sent, &command, bug)
            }
            Message::Renew(attempt, fence, sent) => {
                let command = Command::Renew { claim: claim(by, attempt, fence), ttl: None };
                self.decide(attempt, sent, &command, bug)
            }
            Message::Release(attempt, fence) => {
                let sent = self.time;
                self.decide(attempt, sent, &Command::Release(claim(by, attempt, fence)), bug)
            }
            Message::Granted(attempt, fence, sent) | Message::Renewed(attempt, fence, sent) => {
                let sent = if bug == Some(Bug::DeadlineFromAnswer) { self.time } else { sent };
                self.hear_held(attempt, fence, sent);
                self
            }
            Message::Lost(attempt) => {
                if let Some(client) = self.client_of(attempt) {
                    client.doing = Doing::Nothing;
                }
                self
            }
        }
    }

    fn client_of(&mut self, attempt: Attempt) -> Option<&mut Client> {
        let client = self.clients.get_mut(usize::from(attempt.0));
        client.filter(|client| client.attempt == attempt.1 && client.doing != Doing::Crashed)
    }

    fn hear_held(&mut self, attempt: Attempt, fence: u8, sent: u8) {
        let now = holder_time(self.time);
        let Some(client) = self.client_of(attempt) else { return };
        client.doing = match client.doing {
            // A holder whose deadline has passed stays lost, whatever it hears later.
            Doing::Holding(_, confirmed) if !keeper(confirmed).is_held(now) => Doing::Nothing,
            Doing::Holding(_, confirmed) => Doing::Holding(fence, confirmed.max(sent)),
            Doing::Asking if keeper(sent).is_held(now) => Doing::Holding(fence, sent),
            _ => Doing::Nothing,
        };
    }

    /// The store: the real rules, on the slot that this state stands for.
    fn decide(mut self, attempt: Attempt, sent: u8, command: &Command, bug: Option<Bug>) -> Self {
        let forgets = bug == Some(Bug::RetryGrantsTwice);
        let remembered = (self.ended.contains(&attempt) && !forgets).then_some(LossReason::Released);
        let context = Context {
            now: store_time(self.time),
            last_fence: u64::from(self.last_fence),
            remembered,
            owner_is_full: false,
            asker_is_full: false,
        };
        let command = self.with_bug(command, bug);
        let decision = decide(&KEY, &self.slot(bug, &command), &command, &context);
        self.last_fence = small(decision.last_fence);
        if bug == Some(Bug::FenceResetOnRelease) && decision.outcome == Outcome::Released {
            self.last_fence = self.last_fence.saturating_sub(1);
        }
        self.ended.extend(decision.ended.iter().map(|(id, _)| attempt_of(id)));
        if let Some(slot) = decision.slot {
            self.held = slot.lease.as_ref().map(held);
        }
        let answer = match decision.outcome {
            Outcome::Granted { lease, .. } => {
                self.granted.insert((attempt, small(lease.fence.get())));
                Message::Granted(attempt, small(lease.fence.get()), sent)
            }
            Outcome::Renewed(lease) => Message::Renewed(attempt, small(lease.fence.get()), sent),
            Outcome::Lost { .. } => Message::Lost(attempt),
            // Who finds it held asks again by itself, and nobody waits for the answer to a release.
            _ => return self,
        };
        self.with(answer)
    }

    fn with_bug(&self, command: &Command, bug: Option<Bug>) -> Command {
        match (bug, command, self.held) {
            (Some(Bug::ReleaseWithoutCompare), Command::Release(_), Some(held)) => {
                misread(Bug::ClaimFromRecord, command, &lease(held))
            }
            (Some(bug @ (Bug::TabWithoutOwner | Bug::ClaimFromRecord)), _, Some(held)) => {
                misread(bug, command, &lease(held))
            }
            _ => command.clone(),
        }
    }

    fn slot(&self, bug: Option<Bug>, command: &Command) -> Slot {
        let mut lease = self.held.map(lease);
        if let (Some(Bug::ExpiredRevived), Command::Renew { .. }, Some(lease)) = (bug, command, &mut lease) {
            lease.expires_at = lease.expires_at.max(store_time(self.time) + STEP);
        }
        Slot { seq: 0, lease, vacant_since: StoreTime::ZERO }
    }
}

// --- what the small numbers stand for ---

#[allow(clippy::expect_used)] // a constant that parses
static KEY: LazyLock<Key> = LazyLock::new(|| Key::parse("run/1").expect("a key"));

#[allow(clippy::expect_used)] // constants that parse
static OWNERS: LazyLock<[Owner; 2]> =
    LazyLock::new(|| ["anna", "ben"].map(|name| Owner::parse(name).expect("a name")));

static TABS: LazyLock<[Option<TabId>; 2]> =
    LazyLock::new(|| ["tab-1", "tab-2"].map(|name| TabId::parse(name).ok()));

/// The owner and the tab of a client.
fn party(client: u8) -> (Owner, Option<TabId>) {
    let (one, two) = (client.is_multiple_of(2), client < 2);
    let [anna, ben] = &*OWNERS;
    let [first, second] = &*TABS;
    (if one { anna } else { ben }.clone(), if two { first } else { second }.clone())
}

fn attempt_of(id: &LeaseId) -> Attempt {
    (id.as_bytes()[0], id.as_bytes()[1])
}

fn bid(attempt: Attempt) -> Bid {
    let (owner, tab) = party(attempt.0);
    Bid { tab, lease_id: lease_id(attempt), owner, ttl: ttl(), meta: Meta::default() }
}

#[allow(clippy::expect_used)] // the store gave it out
fn fence(number: u8) -> Fence {
    Fence::new(u64::from(number)).expect("a fence")
}

fn claim(by: ClaimBy, attempt: Attempt, number: u8) -> Claim {
    let (lease_id, (owner, tab)) = (lease_id(attempt), party(attempt.0));
    match by {
        ClaimBy::Proof => Claim::Proof(Proof { lease_id, fence: fence(number) }),
        ClaimBy::Holder => Claim::Holder { lease_id, owner, fence: None },
        ClaimBy::Tab => Claim::Tab { owner, tab },
    }
}

fn lease(held: Held) -> Lease {
    let Held { attempt, fence: number, until } = held;
    let (owner, tab) = party(attempt.0);
    Lease {
        tab,
        owner,
        lease_id: lease_id(attempt),
        fence: fence(number),
        acquired_at: StoreTime::ZERO,
        renewed_at: StoreTime::ZERO,
        expires_at: store_time(until),
        ttl: ttl(),
        leaving: false,
        meta: Meta::default(),
        request: None,
    }
}

fn held(lease: &Lease) -> Held {
    let until = lease.expires_at.as_millis() / u64::from(STEP.subsec_millis());
    Held { attempt: attempt_of(&lease.lease_id), fence: small(lease.fence.get()), until: small(until) }
}

fn small(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}
