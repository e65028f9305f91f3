//! Watches a world and says which law did not hold. It sees more than any client or server: true time, the order
//! in which changes became durable, what every client was told, and what it believes.
//!
//! It must never take part: nothing in the world depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use leasehold_core::lease::{Claim, REMEMBERED};
use leasehold_core::{
    Command, EndReason, Event, EventKind, Key, Lease, LeaseId, Outcome, Owner, Position, Published, Seq,
    Slot, StoreTime, TabId,
};
use leasehold_store::Page;
use leasehold_store::resident::{JUMP, Staged};
use leasehold_store::writer::CLOCK_WRITTEN_EVERY;

use crate::client::{ClaimBy, Party};
use crate::disk::Rows;
use crate::law::{Law, Violation};
use crate::message::Request;
use crate::register::{Access, Answer};
use crate::world::client_name;

/// How long after its TTL a key may stay unused although a client waits: a second, and some for the messages.
const SERVED_WITHIN: u64 = 4_000;

/// An answer that was decided, with its place among the staged events.
#[derive(Clone, Debug)]
pub struct Decided {
    /// What was asked.
    pub request: Rc<Request>,
    /// What was decided.
    pub outcome: Outcome,
    /// How many events had been staged by then.
    pub after_events: usize,
}

/// What a client believes to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The key.
    pub key: Key,
    /// The fence.
    pub fence: u64,
    /// Until when, in true time.
    pub until: u64,
}

/// Watches one world.
#[derive(Default)]
pub struct Checker {
    parties: Vec<Party>,
    keys: BTreeMap<Key, KeyLog>,
    /// All durable events, in the store's order, since the file was last put back.
    log: Vec<Published>,
    /// The position before the first of them.
    log_start: u64,
    /// The last sequence numbers of the keys that were in the file then.
    first_seqs: BTreeMap<Key, Seq>,
    clock: StoreTime,
    granted: BTreeMap<LeaseId, u64>,
    promises: Vec<(Key, u64, Promise)>,
    told: Vec<Published>,
    beliefs: Vec<Option<Belief>>,
    feeds: Vec<BTreeMap<Key, Event>>,
    broken: Option<Violation>,
    /// What happened, in numbers.
    pub counts: Counts,
}

/// What happened in a world, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands that were decided.
    pub decided: u64,
    /// Leases that were granted.
    pub granted: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// Writes that a register accepted.
    pub written: u64,
    /// Accesses that a register refused.
    pub refused: u64,
    /// Events that were told to clients.
    pub told: u64,
}

impl Counts {
    /// Adds those of another world.
    pub fn add(&mut self, other: &Self) {
        self.decided += other.decided;
        self.granted += other.granted;
        self.expired += other.expired;
        self.written += other.written;
        self.refused += other.refused;
        self.told += other.told;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Granted,
    Ended,
}

/// What is durable about one key.
#[derive(Default)]
struct KeyLog {
    open: Option<u64>,
    seq: Option<Seq>,
    /// Who was granted which fence.
    owners: BTreeMap<u64, Owner>,
    /// What a claim to a fence has to name, as far as it was seen.
    holders: BTreeMap<u64, Holder>,
    ended: BTreeMap<u64, EndReason>,
    /// The fence that ended last.
    last_ended: Option<u64>,
    /// What a client that acquires by tab has ended itself, perhaps by a late copy of a release: by tab, two leases of one
    /// tab cannot be told apart.
    ended_by_own_tab: BTreeSet<u64>,
    /// When the leases of the transaction under way expire, as far as it granted them.
    fresh: BTreeMap<u64, StoreTime>,
    last_event_at: StoreTime,
    /// When a client last believed to hold it, in true time.
    believed_at: u64,
}

impl KeyLog {
    /// Whether a lease ended in a way that its holder learns only afterwards.
    fn ended_unforeseen(&self, fence: u64) -> bool {
        let end = self.ended.get(&fence);
        matches!(end, Some(EndReason::TakenOver { .. } | EndReason::ForceReleased { .. }))
            || self.ended_by_own_tab.contains(&fence)
    }
}

/// What the holder of a lease is known by.
#[derive(Clone, Debug)]
struct Holder {
    lease_id: LeaseId,
    owner: Owner,
    tab: Option<TabId>,
}

impl From<&Lease> for Holder {
    fn from(lease: &Lease) -> Self {
        Self { lease_id: lease.lease_id, owner: lease.owner.clone(), tab: lease.tab.clone() }
    }
}

impl Holder {
    /// Whether everything that the command's claim names is right. Written down a second time on purpose, and not by
    /// [`Claim::fits`].
    fn is_named_by(&self, command: &Command, claim: &Claim, held: u64) -> bool {
        // A repeated command finds the lease under its next id.
        let next = |id: &LeaseId| matches!(command, Command::Resume { next, .. } if next == id);
        let same_id = |id: &LeaseId| self.lease_id == *id || next(&self.lease_id);
        match claim {
            Claim::Proof(proof) => same_id(&proof.lease_id) && proof.fence.get() == held,
            Claim::Holder { lease_id, owner, fence } => {
                same_id(lease_id) && self.owner == *owner && fence.is_none_or(|fence| fence.get() == held)
            }
            Claim::Tab { owner, tab } => self.owner == *owner && self.tab == *tab,
        }
    }
}

impl Checker {
    /// Watches a world with these clients.
    pub fn new(parties: Vec<Party>) -> Self {
        let beliefs = vec![None; parties.len()];
        let feeds = vec![BTreeMap::new(); parties.len()];
        Self { parties, beliefs, feeds, ..Self::default() }
    }

    /// The first law that did not hold.
    pub fn broken(&self) -> Option<&Violation> {
        self.broken.as_ref()
    }

    fn breaks(&mut self, law: Law, at: u64, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Violation { law, at, what: what() });
        }
    }

    // --- the store's own order ---

    /// A transaction became durable, on top of `disk`.
    pub fn durable<'a>(
        &mut self,
        at: u64,
        disk: &Rows,
        staged: &Staged,
        decided: impl Iterator<Item = &'a Decided>,
    ) {
        self.check_clock(at, staged.now);
        let mut decided = decided.peekable();
        for (index, published) in staged.events.iter().enumerate() {
            while let Some(next) = decided.next_if(|next| next.after_events <= index) {
                self.check_answer(at, staged.now, next);
            }
            let by = decided.peek().map(|next| next.request.as_ref());
            self.check_event(at, disk, staged.now, published, by);
        }
        decided.for_each(|next| self.check_answer(at, staged.now, next));
        let mut slots: Vec<_> = staged.slots.iter().collect();
        slots.sort_by_key(|(key, _)| *key);
        for (key, slot) in slots {
            self.check_slot(at, staged.now, key, disk.slots.get(key), slot.as_ref());
        }
        self.keys.values_mut().for_each(|log| log.fresh.clear());
    }

    /// Answers that changed nothing, and were decided on what is durable.
    pub fn answered<'a>(&mut self, at: u64, now: StoreTime, decided: impl Iterator<Item = &'a Decided>) {
        decided.for_each(|decided| self.check_answer(at, now, decided));
    }

    /// The server crashed, having shown the time `shown` while there were leases; `kept` is the time on disk.
    pub fn crashed(&mut self, at: u64, shown: StoreTime, kept: StoreTime) {
        if shown > kept + CLOCK_WRITTEN_EVERY {
            let (shown, kept) = (shown.as_millis(), kept.as_millis());
            self.breaks(Law::ClockKept, at, || format!("it showed {shown} ms, and goes on from {kept} ms"));
        }
    }

    /// The file was put back to a copy with these rows. What happened since is forgotten, leases included; but fences go on
    /// growing, and consumers of events learn that there is a gap.
    pub fn put_back(&mut self, rows: &Rows) {
        self.promises.clear();
        self.told.clear();
        self.granted.clear();
        self.log.clear();
        self.clock = rows.clock;
        self.log_start = rows.counters.position.0 + JUMP;
        self.first_seqs = rows.slots.iter().map(|(key, slot)| (key.clone(), slot.seq + JUMP)).collect();
        for (key, log) in &mut self.keys {
            let lease = rows.slots.get(key).and_then(|slot| slot.lease.as_ref());
            log.seq = self.first_seqs.get(key).copied();
            log.open = lease.map(|lease| lease.fence.get());
            if let Some(lease) = lease {
                log.ended.remove(&lease.fence.get());
                log.ended_by_own_tab.remove(&lease.fence.get());
                log.holders.insert(lease.fence.get(), Holder::from(lease));
            }
        }
    }

    /// The server ended in an orderly way, having shown the time `shown`; `kept` is the time on disk.
    pub fn ended(&mut self, at: u64, shown: StoreTime, kept: StoreTime) {
        self.check_clock(at, kept);
        if kept < shown {
            let (shown, kept) = (shown.as_millis(), kept.as_millis());
            self.breaks(Law::ClockKept, at, || format!("it ended at {shown} ms, and goes on from {kept} ms"));
        }
    }

    fn check_clock(&mut self, at: u64, now: StoreTime) {
        if now < self.clock {
            let (before, now) = (self.clock.as_millis(), now.as_millis());
            self.breaks(Law::ClockForward, at, || format!("it showed {before} ms, and now {now} ms"));
        }
        self.clock = now;
    }

    /// `by` is the request whose decision brought the event, if it was not the sweeper's.
    fn check_event(
        &mut self,
        at: u64,
        disk: &Rows,
        now: StoreTime,
        published: &Published,
        by: Option<&Request>,
    ) {
        let Published { position, event } = published;
        let (key, fence) = (&event.key, event.fence.get());
        let expected = self.log_start + self.log.len() as u64 + 1;
        if position.0 != expected {
            self.breaks(Law::EventsInOrder, at, || {
                format!("position {} came instead of {expected}", position.0)
            });
        }
        self.log.push(published.clone());
        let log = self.keys.entry(key.clone()).or_default();
        let follows = log.seq.is_none_or(|seq| follows(seq, log.open, log.last_event_at, event));
        (log.seq, log.last_event_at) = (Some(event.seq), event.at);
        if !follows {
            self.breaks(Law::EventsInOrder, at, || format!("{key}: event {} follows a gap", event.seq));
        }
        match &event.kind {
            EventKind::Granted { expires_at, .. } => {
                self.check_grant(at, key, fence, &event.owner, *expires_at);
            }
            EventKind::Ended { because } => {
                self.note_end(key, fence, because, by);
                self.check_end(at, disk, now, key, fence, because);
            }
            _ => {}
        }
    }

    fn check_grant(&mut self, at: u64, key: &Key, fence: u64, owner: &Owner, expires_at: StoreTime) {
        self.counts.granted += 1;
        let log = self.keys.entry(key.clone()).or_default();
        let newest = log.owners.last_key_value().map(|(fence, _)| *fence);
        let open = log.open.replace(fence);
        log.owners.insert(fence, owner.clone());
        log.fresh.insert(fence, expires_at);
        if newest.is_some_and(|newest| newest >= fence) {
            self.breaks(Law::FencesGrow, at, || {
                format!("{key}: fence {fence} after {}", newest.unwrap_or(0))
            });
        }
        if let Some(open) = open {
            self.breaks(Law::OneLease, at, || {
                format!("{key}: fence {fence} was granted while {open} was not over")
            });
        }
    }

    fn note_end(&mut self, key: &Key, fence: u64, because: &EndReason, by: Option<&Request>) {
        let log = self.keys.entry(key.clone()).or_default();
        log.last_ended = Some(fence);
        let sender = by.filter(|_| *because == EndReason::Released).map(|request| request.from.client);
        let party = sender.and_then(|client| self.parties.get(client));
        let by_itself = party.is_some_and(|party| {
            let is_holder = |holder: &Holder| (&holder.owner, &holder.tab) == (&party.owner, &party.tab);
            party.claims == ClaimBy::Tab && log.holders.get(&fence).is_some_and(is_holder)
        });
        if by_itself {
            log.ended_by_own_tab.insert(fence);
        }
    }

    fn check_end(
        &mut self,
        at: u64,
        disk: &Rows,
        now: StoreTime,
        key: &Key,
        fence: u64,
        because: &EndReason,
    ) {
        let log = self.keys.entry(key.clone()).or_default();
        let was_open = log.open == Some(fence);
        let twice = log.ended.insert(fence, because.clone()).is_some();
        if was_open {
            log.open = None;
        }
        let durable = disk.slots.get(key).and_then(|slot| slot.lease.as_ref());
        let durable = durable.filter(|lease| lease.fence.get() == fence).map(|lease| lease.expires_at);
        let expires_at = log.fresh.get(&fence).copied().or(durable);
        if twice || !was_open {
            self.breaks(Law::OneEnd, at, || {
                format!("{key}: fence {fence} ended, and was not there any more")
            });
        }
        if matches!(because, EndReason::Expired | EndReason::Disconnected) {
            self.counts.expired += 1;
            if expires_at.is_some_and(|expires_at| expires_at > now) {
                self.breaks(Law::TtlIsALowerBound, at, || {
                    format!("{key}: fence {fence} ended before its time")
                });
            }
        }
        self.check_nobody_believed(at, key, fence, because);
    }

    /// A holder knows before it loses a lease, unless that was taken by force.
    fn check_nobody_believed(&mut self, at: u64, key: &Key, fence: u64, because: &EndReason) {
        if self.keys.get(key).is_some_and(|log| log.ended_unforeseen(fence)) {
            return;
        }
        let law = match because {
            EndReason::Released => Law::OnlyTheHolderReleases,
            _ => Law::HolderStopsFirst,
        };
        let believes = |belief: &Belief| belief.key == *key && belief.fence == fence && belief.until > at;
        let believer = self.beliefs.iter().position(|belief| belief.as_ref().is_some_and(believes));
        if let Some(believer) = believer {
            let owner = client_name(believer);
            self.breaks(law, at, || format!("{key}: fence {fence} ended while {owner} still believed in it"));
        }
    }

    fn check_answer(&mut self, at: u64, now: StoreTime, decided: &Decided) {
        self.counts.decided += 1;
        self.check_claim(at, decided);
        let (lease, extended) = match &decided.outcome {
            Outcome::Granted { lease, extended } => (lease, *extended),
            Outcome::Renewed(lease) => (lease, true),
            _ => return,
        };
        let (key, fence) = (&decided.request.key, lease.fence.get());
        let known = *self.granted.entry(lease.lease_id).or_insert(fence);
        if known != fence {
            self.breaks(Law::GrantedOnce, at, || {
                format!("{key}: one lease id was granted with fence {known} and again with {fence}")
            });
        }
        let log = self.keys.entry(key.clone()).or_default();
        log.holders.insert(fence, Holder::from(lease));
        let open = log.open;
        let asked_for = is_asked_for(&decided.request.command, lease);
        if open != Some(fence) && extended && self.is_over(key, fence) {
            self.breaks(Law::NoRevival, at, || format!("{key}: fence {fence} was over and is extended"));
        }
        // One that was released softly keeps its early end.
        let is_cut_short = !lease.leaving && lease.expires_at < now + lease.ttl.as_duration();
        if open != Some(fence) || !asked_for || is_cut_short {
            self.breaks(Law::AnswersAreTrue, at, || {
                format!("{key}: told that fence {fence} is held; it is {open:?}")
            });
        }
    }

    /// What only the holder may ask for is granted to the holder, and to no other.
    fn check_claim(&mut self, at: u64, decided: &Decided) {
        let Request { key, command, .. } = decided.request.as_ref();
        let (Some(claim), Some(log)) = (command.claim(), self.keys.get(key)) else { return };
        let (fence, accepted) = match &decided.outcome {
            Outcome::Renewed(lease) | Outcome::Granted { lease, .. } => (Some(lease.fence.get()), true),
            Outcome::Released | Outcome::HandedOver { .. } => (log.last_ended, true),
            Outcome::Told { .. } | Outcome::Refused | Outcome::NoRequest => (log.open, true),
            Outcome::Lost { .. } | Outcome::NotYours(_) => (log.open, false),
            _ => return,
        };
        // A lease that was handed over a moment ago, in the same transaction, has not been seen yet.
        let Some((fence, holder)) = fence.and_then(|fence| Some((fence, log.holders.get(&fence)?))) else {
            return;
        };
        if holder.is_named_by(command, claim, fence) != accepted {
            let held = format!("fence {fence} of {} in {:?}", holder.owner, holder.tab);
            let outcome = if accepted { "accepted" } else { "refused" };
            self.breaks(Law::ClaimsAreCompared, at, || {
                format!("{key}: {claim:?} was {outcome}, and the lease is {held}")
            });
        }
    }

    fn is_over(&self, key: &Key, fence: u64) -> bool {
        self.keys.get(key).is_some_and(|log| log.ended.contains_key(&fence))
    }

    fn check_slot(
        &mut self,
        at: u64,
        now: StoreTime,
        key: &Key,
        before: Option<&Slot>,
        after: Option<&Slot>,
    ) {
        let open = self.keys.get(key).and_then(|log| log.open);
        let Some(lease) = after.and_then(|slot| slot.lease.as_ref()) else {
            if let Some(open) = open {
                self.breaks(Law::OneEnd, at, || format!("{key}: fence {open} vanished without a word"));
            }
            return;
        };
        let fence = lease.fence.get();
        self.keys.entry(key.clone()).or_default().holders.insert(fence, Holder::from(lease));
        if open != Some(fence) {
            let law = if self.is_over(key, fence) { Law::NoRevival } else { Law::OneLease };
            self.breaks(law, at, || format!("{key}: fence {fence} is there, although it was not granted"));
        }
        let Some(before) =
            before.and_then(|slot| slot.lease.as_ref()).filter(|lease| lease.fence.get() == fence)
        else {
            return;
        };
        if before.is_expired(now) && lease.expires_at > before.expires_at {
            self.breaks(Law::NoRevival, at, || format!("{key}: fence {fence} had expired and was extended"));
        }
        if lease.expires_at < before.expires_at && !lease.leaving {
            self.breaks(Law::TtlIsALowerBound, at, || format!("{key}: fence {fence} was cut short"));
        }
    }

    // --- what is published and answered ---

    /// An answer is sent to a client.
    pub fn promised(&mut self, key: &Key, command: &Command, outcome: &Outcome) {
        match (command, outcome) {
            (_, Outcome::Granted { lease, .. }) => {
                self.promises.push((key.clone(), lease.fence.get(), Promise::Granted));
            }
            (Command::Release(claim), Outcome::Released) => {
                let by_id = claim.lease_id().and_then(|id| self.granted.get(id)).copied();
                let fence = claim.fence().map(|fence| fence.get()).or(by_id);
                self.promises.extend(fence.map(|fence| (key.clone(), fence, Promise::Ended)));
            }
            _ => {}
        }
    }

    /// A commit failed, the server has lost what was not durable, or the world ends: all that was told must be true.
    pub fn settle_promises(&mut self, at: u64) {
        for (key, fence, promise) in std::mem::take(&mut self.promises) {
            let log = self.keys.get(&key);
            let kept = log.is_some_and(|log| match promise {
                Promise::Granted => log.owners.contains_key(&fence),
                Promise::Ended => log.ended.contains_key(&fence),
            });
            if !kept {
                self.breaks(Law::AnswersSurvive, at, || {
                    format!("{key}: {promise:?} was answered for fence {fence}, and is lost")
                });
            }
        }
        for told in std::mem::take(&mut self.told) {
            let place = told.position.0.checked_sub(self.log_start + 1);
            let true_one = place.and_then(|at| self.log.get(usize::try_from(at).ok()?));
            if true_one != Some(&told) {
                let Event { key, seq, .. } = &told.event;
                self.breaks(Law::EventsAreTrue, at, || {
                    format!("{key}: event {seq} was told, and did not happen")
                });
            }
        }
    }

    /// A client hears an event.
    pub fn heard(&mut self, at: u64, client: usize, published: &Published) {
        self.counts.told += 1;
        // What comes late from before the file was put back was true once.
        if published.position.0 > self.log_start {
            self.told.push(published.clone());
        }
        let event = &published.event;
        let Some(feed) = self.feeds.get_mut(client) else { return };
        let before = feed.insert(event.key.clone(), event.clone());
        let Some(before) = before else { return };
        let open = (!matches!(before.kind, EventKind::Ended { .. })).then_some(before.fence.get());
        if !follows(before.seq, open, before.at, event) {
            let (owner, seq) = (client_name(client), event.seq);
            self.breaks(Law::EventsInOrder, at, || format!("{owner} heard event {seq} after {}", before.seq));
        }
    }

    /// A client reads what is there, and goes on hearing from that position.
    pub fn listed(&mut self, at: u64, client: usize, page: &Page) {
        if let Some(feed) = self.feeds.get_mut(client) {
            feed.clear();
        }
        // It comes late, from before the file was put back.
        if page.position.0 < self.log_start {
            return;
        }
        for (key, slot) in &page.slots {
            let newest =
                |published: &&Published| published.position <= page.position && published.event.key == *key;
            let newest = self.log.iter().rev().find(newest).map(|published| published.event.seq);
            let newest = newest.or_else(|| self.first_seqs.get(key).copied());
            if newest != Some(slot.seq) {
                self.breaks(Law::EventsInOrder, at, || {
                    format!("{key}: listed with event {}, told {newest:?}", slot.seq)
                });
            }
        }
    }

    /// The newest position that may be told.
    pub fn position(&self) -> Position {
        Position(self.log_start + self.log.len() as u64)
    }

    // --- what is believed ---

    /// What a client believes from now on.
    pub fn believes(&mut self, at: u64, client: usize, belief: Option<Belief>) {
        let Some(known) = self.beliefs.get_mut(client) else { return };
        let before = std::mem::replace(known, belief.clone());
        let last = before.as_ref().map(|before| (&before.key, before.until.min(at)));
        if let Some((key, last)) = last {
            self.believed(key, last);
        }
        let Some(belief) = belief.filter(|belief| before.as_ref() != Some(belief)) else { return };
        self.believed(&belief.key, at);
        self.check_belief(at, client, &belief);
    }

    fn believed(&mut self, key: &Key, at: u64) {
        let log = self.keys.entry(key.clone()).or_default();
        log.believed_at = log.believed_at.max(at);
    }

    fn check_belief(&mut self, at: u64, client: usize, belief: &Belief) {
        let Belief { key, fence, .. } = belief;
        let owner = client_name(client);
        let log = self.keys.get(key);
        let granted_to =
            log.filter(|log| log.owners.contains_key(fence)).and_then(|log| log.holders.get(fence));
        let granted_to = granted_to.map(|holder| (&holder.owner, &holder.tab));
        if granted_to != self.parties.get(client).map(|party| (&party.owner, &party.tab)) {
            self.breaks(Law::BeliefHasAGrant, at, || {
                format!("{owner} believes in {key} with fence {fence}, not its own")
            });
        }
        let foreseen = |log: &KeyLog| log.ended.contains_key(fence) && !log.ended_unforeseen(*fence);
        if self.keys.get(key).is_some_and(foreseen) {
            self.breaks(Law::HolderStopsFirst, at, || {
                format!("{owner} believes in {key}, fence {fence}, which is over")
            });
        }
        for other in 0..self.beliefs.len() {
            let Some(Some(theirs)) = self.beliefs.get(other) else { continue };
            if other != client
                && theirs.key == *key
                && theirs.until > at
                && !self.was_taken(key, theirs.fence, *fence)
            {
                let (theirs, them) = (theirs.fence, client_name(other));
                self.breaks(Law::OneBeliever, at, || {
                    format!(
                        "{owner} with fence {fence} and {them} with fence {theirs} both believe to hold {key}"
                    )
                });
            }
        }
    }

    /// Whether the older of two leases was taken by force: its holder learns of it, but not at once.
    fn was_taken(&self, key: &Key, one: u64, other: u64) -> bool {
        self.keys.get(key).is_some_and(|log| log.ended_unforeseen(one.min(other)))
    }

    /// No fault has happened since `calm_since`: a client that wants an unused key has it by now.
    pub fn check_served(&mut self, at: u64, calm_since: u64, longest_ttl: u64, wanted: &[(usize, Key, u64)]) {
        for belief in self.beliefs.clone().into_iter().flatten() {
            self.believed(&belief.key, belief.until.min(at));
        }
        for (client, key, since) in wanted {
            let believed_at = self.keys.get(key).map_or(0, |log| log.believed_at);
            let unused_since = believed_at.max(calm_since).max(*since);
            if at > unused_since + longest_ttl + SERVED_WITHIN {
                let (owner, waited) = (client_name(*client), (at - unused_since) / 1_000);
                self.breaks(Law::WaitersAreServed, at, || {
                    format!("{owner} has waited {waited} s for {key}, unused")
                });
            }
        }
    }

    // --- what is protected ---

    /// A register was accessed under a fence. `on_top_of` is the value that a write replaced.
    pub fn accessed(
        &mut self,
        at: u64,
        key: &Key,
        fence: u64,
        access: Access,
        answer: Answer,
        on_top_of: Option<u64>,
    ) {
        match (access, answer, on_top_of) {
            (Access::Write { base, .. }, _, Some(before)) => {
                self.counts.written += 1;
                if base != before {
                    self.breaks(Law::FencedWrites, at, || {
                        format!("{key}: fence {fence} wrote on top of {base}, and {before} is lost")
                    });
                }
            }
            (_, Answer::Refused, _) => self.counts.refused += 1,
            _ => {}
        }
        let newest = self.keys.get(key).and_then(|log| log.owners.last_key_value());
        let is_newest = newest.is_some_and(|(newest, _)| *newest == fence);
        if (access, answer) == (Access::Open, Answer::Refused) && is_newest {
            self.breaks(Law::FencedWrites, at, || format!("{key}: the newest fence, {fence}, was refused"));
        }
    }
}

/// Whether a lease that is answered as held is one that the command asks for.
fn is_asked_for(command: &Command, lease: &Lease) -> bool {
    match (command, command.claim()) {
        (Command::AcquireInTab(bid), _) => (&lease.owner, &lease.tab) == (&bid.owner, &bid.tab),
        (_, Some(Claim::Tab { owner, tab })) => (&lease.owner, &lease.tab) == (owner, tab),
        (Command::Resume { next, .. }, _) if *next == lease.lease_id => true,
        _ => command.lease_id() == Some(&lease.lease_id),
    }
}

/// Whether an event may follow the one with number `seq`. Only a key that was free for so long that the store forgot
/// it goes on from a higher number.
fn follows(seq: Seq, open: Option<u64>, at: StoreTime, event: &Event) -> bool {
    event.seq == seq + 1 || (event.seq > seq && open.is_none() && at + REMEMBERED <= event.at)
}

#[cfg(test)]
mod tests {
    use leasehold_core::HolderTime;
    use leasehold_core::lease::LossReason;

    use super::*;
    use crate::lease_ids::lease_id;
    use crate::message::Sender;

    fn key() -> Key {
        Key::parse("run/1").unwrap()
    }

    /// A world in which fence 1 was granted to the first client, and fence 2 to the second.
    fn checker() -> Checker {
        let parties = ["a", "b"].map(|name| party(name, ClaimBy::Proof));
        let mut checker = Checker::new(parties.to_vec());
        for (fence, party) in (1..).zip(parties) {
            grant(&mut checker, fence, &party);
            checker.keys.get_mut(&key()).unwrap().open = None;
        }
        checker
    }

    fn party(name: &str, claims: ClaimBy) -> Party {
        Party { owner: Owner::parse(name).unwrap(), tab: TabId::parse("tab").ok(), claims }
    }

    fn grant(checker: &mut Checker, fence: u64, party: &Party) {
        checker.check_grant(0, &key(), fence, &party.owner, StoreTime::from_millis(9));
        let (lease_id, owner, tab) = (lease_id(0, fence), party.owner.clone(), party.tab.clone());
        checker.keys.get_mut(&key()).unwrap().holders.insert(fence, Holder { lease_id, owner, tab });
    }

    fn answered(checker: &mut Checker, command: Command, outcome: Outcome) {
        let (from, sent) = (Sender { client: 0, life: 0 }, HolderTime::ZERO);
        let request = Rc::new(Request { from, sent, key: key(), command });
        let decided = Decided { request, outcome, after_events: 0 };
        checker.answered(1, StoreTime::from_millis(1), [decided].iter());
    }

    #[test]
    fn a_claim_that_does_not_fit_must_be_refused_and_one_that_fits_must_not() {
        let (anna, ben) = (party("anna", ClaimBy::Tab), party("ben", ClaimBy::Tab));
        let by_tab = |party: &Party| Claim::Tab { owner: party.owner.clone(), tab: party.tab.clone() };
        let by_id = |id| Claim::Holder { lease_id: lease_id(0, id), owner: anna.owner.clone(), fence: None };
        let lost = Outcome::Lost { because: LossReason::Unknown, held: None };
        let cases = [
            (by_tab(&anna), Outcome::Refused, None),
            (by_tab(&anna), lost.clone(), Some(Law::ClaimsAreCompared)),
            (by_tab(&ben), Outcome::Refused, Some(Law::ClaimsAreCompared)),
            (by_tab(&ben), lost.clone(), None),
            (by_id(1), Outcome::Refused, None),
            (by_id(2), Outcome::Refused, Some(Law::ClaimsAreCompared)),
            (by_id(1), lost, Some(Law::ClaimsAreCompared)),
        ];
        for (claim, outcome, law) in cases {
            let mut checker = Checker::new(vec![anna.clone(), ben.clone()]);
            grant(&mut checker, 1, &anna);
            let words = format!("{claim:?} {outcome:?}");
            let command = Command::AnswerHandover { claim, request: 1, hand_over: false };
            answered(&mut checker, command, outcome);
            assert_eq!(broken(&checker), law, "{words}");
        }
    }

    fn believe(checker: &mut Checker, at: u64, client: usize, until: u64) {
        let fence = client as u64 + 1;
        checker.believes(at, client, Some(Belief { key: key(), fence, until }));
    }

    fn broken(checker: &Checker) -> Option<Law> {
        checker.broken().map(|violation| violation.law)
    }

    #[test]
    fn two_believers_are_noticed_only_if_they_believe_at_the_same_time() {
        let mut checker = checker();
        believe(&mut checker, 10, 0, 50);
        believe(&mut checker, 50, 1, 90);
        assert_eq!(broken(&checker), None);
        believe(&mut checker, 89, 0, 99);
        assert_eq!(broken(&checker), Some(Law::OneBeliever));
    }

    #[test]
    fn a_lost_update_is_noticed() {
        let mut checker = checker();
        let write = Access::Write { base: 4, number: 1 };
        checker.accessed(1, &key(), 2, write, Answer::Written(5), Some(4));
        assert_eq!(broken(&checker), None);
        checker.accessed(2, &key(), 2, write, Answer::Written(5), Some(5));
        assert_eq!(broken(&checker), Some(Law::FencedWrites));
    }

    #[test]
    fn the_newest_fence_must_not_be_refused() {
        let mut checker = checker();
        checker.accessed(1, &key(), 1, Access::Open, Answer::Refused, None);
        assert_eq!(broken(&checker), None);
        checker.accessed(2, &key(), 2, Access::Open, Answer::Refused, None);
        assert_eq!(broken(&checker), Some(Law::FencedWrites));
    }

    #[test]
    fn a_client_that_waits_for_an_unused_key_is_noticed() {
        let mut checker = checker();
        believe(&mut checker, 0, 0, 1_000);
        let wanted = [(1, key(), 500)];
        checker.check_served(1_000 + 3_000 + SERVED_WITHIN, 0, 3_000, &wanted);
        assert_eq!(broken(&checker), None);
        checker.check_served(1_001 + 3_000 + SERVED_WITHIN, 0, 3_000, &wanted);
        assert_eq!(broken(&checker), Some(Law::WaitersAreServed));
    }
}
