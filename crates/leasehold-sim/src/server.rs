//! The server and its store. In the exclusive topology it takes the same turns as the writer of the embedded store:
//! stage, write, publish, answer; in the shared one every command is a transaction of its own. The rules, the overlay
//! and the lease clock are the real ones.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::lease::{Bid, Claim, LossReason};
use leasehold_core::{
    Command, Context, EndReason, Event, EventKind, Key, Lease, Outcome, Position, Published, Slot, StoreTime,
    decide,
};
use leasehold_store::clock::{LONGEST_STEP, LeaseClock};
use leasehold_store::resident::{Ending, Resident, Staged};
use leasehold_store::{Applied, Feed, Limits, MAX_EVENTS, Page, Range};

use crate::bug::Bug;
use crate::checker::Decided;
use crate::disk::Disk;
use crate::message::{Request, Sender, ToClient, ToServer};
use crate::setting::{Setting, Topology};
use crate::world::{Happening, World};

/// How long the writer waits for work before it moves the clock on by itself.
const TICK: u64 = 200;

/// How much time may pass on the lease clock before it is written down.
const CLOCK_WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// How many keys are settled and forgotten in one turn.
const PER_TURN: usize = 64;

/// A process that answers clients.
#[derive(Default)]
pub struct Server {
    down: bool,
    life: u32,
    paused_until: u64,
    queue: Vec<Asked>,
    /// Who waits for events, and after which position.
    feeds: BTreeMap<Sender, Position>,
}

/// A command, and whether the key was found stale before: only a buggy server remembers that.
struct Asked {
    request: Rc<Request>,
    seen_stale: bool,
}

/// The committed state and the turn under way.
pub struct Engine {
    resident: Resident,
    clock: LeaseClock,
    published: StoreTime,
    healthy: bool,
    turn: Option<Turn>,
    limits: Limits,
    /// What a buggy server remembers.
    last_expired: Option<Event>,
    last_lease: BTreeMap<Key, Lease>,
}

struct Turn {
    staged: Staged,
    decided: Vec<Decided>,
    fate: Fate,
    answered: bool,
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Written,
    Failed,
    /// Nobody knows but the disk.
    Unknown {
        written: bool,
    },
}

impl Engine {
    /// The state as it is on disk.
    pub fn start(disk: &Disk, setting: &Setting, raw: u64) -> Self {
        let step = match setting.topology {
            Topology::Exclusive => LONGEST_STEP,
            Topology::Shared(_) => Duration::MAX,
        };
        Self {
            resident: disk.load(),
            clock: LeaseClock::new(disk.clock, raw, step),
            published: disk.clock,
            healthy: true,
            turn: None,
            limits: Limits::default(),
            last_expired: None,
            last_lease: BTreeMap::new(),
        }
    }
}

impl World {
    fn is_exclusive(&self) -> bool {
        self.setting.topology == Topology::Exclusive
    }

    fn raw_clock(&self) -> u64 {
        self.setting.store_clock.read(self.now)
    }

    // --- what comes in ---

    pub(crate) fn server_hears(&mut self, at: usize, message: ToServer) {
        let Some(server) = self.servers.get_mut(at) else { return };
        if server.down {
            return;
        }
        if server.paused_until > self.now {
            let delay = server.paused_until - self.now;
            return self.after(delay, Happening::ToServer(at, message));
        }
        match message {
            ToServer::Apply(request) => {
                server.queue.push(Asked { request, seen_stale: false });
                self.take_turn(at);
            }
            ToServer::Feed(from, after) => {
                server.feeds.retain(|known, _| known.client != from.client || known.life >= from.life);
                server.feeds.insert(from, after);
                self.tell_events(at);
            }
            ToServer::List(from) => {
                let (range, now) = (Range::all(), self.engine.published);
                let (slots, more) = self.engine.resident.page(&range, now);
                let position = self.engine.resident.counters.position;
                self.send_to_client(from, &ToClient::List(Page { slots, more, now, position }));
            }
        }
    }

    pub(crate) fn tick(&mut self, at: usize, life: u32) {
        let Some(server) = self.servers.get(at).filter(|server| server.life == life) else { return };
        if server.paused_until > self.now {
            let delay = server.paused_until - self.now;
            return self.after(delay, Happening::Tick(at, life));
        }
        self.take_turn(at);
        self.tell_events(at);
        self.after(TICK, Happening::Tick(at, life));
    }

    /// A buggy server comes back to a key that it found stale.
    pub(crate) fn take_stale(&mut self, at: usize, request: Rc<Request>) {
        let Some(server) = self.servers.get_mut(at).filter(|server| !server.down) else { return };
        server.queue.push(Asked { request, seen_stale: true });
        self.take_turn(at);
    }

    // --- a turn: stage, write, publish, answer ---

    fn take_turn(&mut self, at: usize) {
        let Some(server) = self.servers.get_mut(at) else { return };
        if server.down || server.paused_until > self.now || self.engine.turn.is_some() {
            return;
        }
        let asked = std::mem::take(&mut server.queue);
        if !self.engine.healthy {
            self.reload();
        }
        let now = self.engine.clock.turn(self.setting.store_clock.read(self.now));
        let mut staged = self.engine.resident.stage(now);
        let mut decided = Vec::with_capacity(asked.len());
        for asked in asked {
            decided.extend(self.stage(at, &mut staged, asked));
        }
        self.settle(&mut staged);
        self.engine.resident.forget(&mut staged, PER_TURN);
        let clock_is_due = self.engine.resident.has_leases() && now >= self.disk.clock + CLOCK_WRITTEN_EVERY;
        match (staged.is_empty() && staged.events.is_empty() && !clock_is_due, self.is_exclusive()) {
            (true, _) => self.publish(at, staged, &decided, false),
            (false, true) => self.begin_write(at, staged, decided),
            (false, false) => self.transact(at, staged, &decided),
        }
    }

    fn stage(&mut self, at: usize, staged: &mut Staged, asked: Asked) -> Option<Decided> {
        let Asked { request, seen_stale } = asked;
        let outcome = match self.bug {
            Some(bug) => self.decide_with(bug, at, staged, &request, seen_stale)?,
            None => self.engine.resident.decide(staged, &request.key, &request.command, &self.engine.limits),
        };
        Some(Decided { request, outcome, after_events: staged.events.len() })
    }

    fn settle(&mut self, staged: &mut Staged) {
        if self.bug == Some(Bug::UnlinkThenCreate) {
            return;
        }
        if self.engine.resident.next_due().is_some_and(|due| due <= staged.now) {
            self.engine.resident.settle_due(staged, PER_TURN, &self.engine.limits);
        }
        if self.bug == Some(Bug::DoubleExpiry) {
            self.tell_expiry_again(staged);
        }
    }

    fn begin_write(&mut self, at: usize, staged: Staged, decided: Vec<Decided>) {
        let answered = self.bug == Some(Bug::AckBeforeDurable);
        if answered {
            self.answer(staged.now, staged.counters.position, &decided);
        }
        if self.bug == Some(Bug::EventBeforeCommit) {
            self.tell_early(at, &staged.events);
        }
        let faults = &self.setting.faults;
        let (failed, unknown, slow) = (faults.failed_writes, faults.unknown_writes, faults.slow_writes);
        let (fate, slow) = if self.calm {
            (Fate::Written, 0)
        } else if self.random.chance(failed) {
            (Fate::Failed, slow)
        } else if self.random.chance(unknown) {
            (Fate::Unknown { written: self.random.chance(500) }, slow)
        } else {
            (Fate::Written, slow)
        };
        let delay =
            if self.random.chance(slow) { self.random.between(20, 3_000) } else { self.random.between(1, 5) };
        self.engine.turn = Some(Turn { staged, decided, fate, answered });
        let life = self.servers.get(at).map_or(0, |server| server.life);
        self.after(delay, Happening::DiskDone(life));
    }

    pub(crate) fn disk_done(&mut self, life: u32) {
        if self.servers.first().is_none_or(|server| server.life != life) {
            return;
        }
        let Some(Turn { staged, decided, fate, answered }) = self.engine.turn.take() else { return };
        if matches!(fate, Fate::Written | Fate::Unknown { written: true }) {
            self.make_durable(&staged, &decided);
        }
        match fate {
            Fate::Written => self.publish(0, staged, &decided, answered),
            Fate::Failed | Fate::Unknown { .. } => self.fail(fate, &decided, answered),
        }
        if self.servers.first().is_some_and(|server| !server.queue.is_empty()) {
            self.take_turn(0);
        }
    }

    /// The whole transaction at once, as a database does it; the server may not live to tell.
    fn transact(&mut self, at: usize, staged: Staged, decided: &[Decided]) {
        let faults = &self.setting.faults;
        let (failed, unknown) = (faults.failed_writes, faults.unknown_writes);
        if !self.calm && self.random.chance(failed) {
            return self.answer_trouble(decided);
        }
        self.make_durable(&staged, decided);
        let lost = !self.calm && self.random.chance(unknown);
        self.publish(at, staged, decided, lost);
        if lost {
            self.tell(|_| "the connection to the database breaks after a commit".into());
            self.answer_trouble(decided);
        }
    }

    fn make_durable(&mut self, staged: &Staged, decided: &[Decided]) {
        self.checker.durable(self.now, &self.disk, staged, decided);
        self.disk.write(staged);
        for published in &staged.events {
            let Event { key, seq, fence, owner, kind, .. } = &published.event;
            self.tell(|_| format!("store: {key} #{seq} {owner} fence {fence}: {}", shown(kind)));
        }
    }

    fn publish(&mut self, at: usize, staged: Staged, decided: &[Decided], answered: bool) {
        let now = staged.now;
        if staged.is_empty() && staged.events.is_empty() {
            self.checker.answered(self.now, now, decided);
        } else {
            self.remember_for_bugs(&staged);
            self.engine.resident.commit(staged);
        }
        self.engine.published = now;
        if !answered {
            self.answer(now, self.engine.resident.counters.position, decided);
        }
        self.tell_events(at);
    }

    /// What was staged is dropped; nobody could renew meanwhile, so the time of this turn has not passed.
    fn fail(&mut self, fate: Fate, decided: &[Decided], answered: bool) {
        self.tell(|_| format!("a write FAILS: {fate:?}"));
        self.engine.healthy = fate == Fate::Failed;
        self.engine.clock = LeaseClock::new(self.engine.published, self.raw_clock(), LONGEST_STEP);
        if !answered {
            self.answer_trouble(decided);
        }
    }

    fn reload(&mut self) {
        self.tell(|_| "the server reads its state anew from disk".into());
        self.engine.resident = self.disk.load();
        self.engine.healthy = true;
        // If the write got through after all, its time has passed too.
        self.engine.published = self.engine.published.max(self.disk.clock);
        self.engine.clock = LeaseClock::new(self.engine.published, self.raw_clock(), LONGEST_STEP);
        self.checker.settle_promises(self.now);
    }

    fn answer(&mut self, now: StoreTime, position: Position, decided: &[Decided]) {
        for Decided { request, outcome, .. } in decided {
            self.checker.promised(&request.key, &request.command, outcome);
            let applied = Applied { outcome: outcome.clone(), now, position };
            self.send_to_client(request.from, &ToClient::Applied(request.clone(), Some(applied)));
        }
    }

    fn answer_trouble(&mut self, decided: &[Decided]) {
        for Decided { request, .. } in decided {
            self.send_to_client(request.from, &ToClient::Applied(request.clone(), None));
        }
    }

    // --- the feed ---

    fn tell_events(&mut self, at: usize) {
        let resident = &self.engine.resident;
        let Some(server) = self.servers.get_mut(at) else { return };
        let waiting = server.feeds.iter();
        let ready =
            waiting.filter_map(|(to, after)| Some((*to, *after, resident.events_after(*after, MAX_EVENTS)?)));
        for (to, after, feed) in ready.collect::<Vec<_>>() {
            if let Some(server) = self.servers.get_mut(at) {
                server.feeds.remove(&to);
            }
            self.send_to_client(to, &ToClient::Feed(after, feed));
        }
    }

    /// The mistake of [`Bug::EventBeforeCommit`].
    fn tell_early(&mut self, at: usize, events: &[Published]) {
        let committed = self.engine.resident.counters.position;
        let Some(server) = self.servers.get_mut(at).filter(|_| !events.is_empty()) else { return };
        let feeds = std::mem::take(&mut server.feeds);
        for (to, after) in feeds {
            if after == committed {
                self.send_to_client(to, &ToClient::Feed(after, Feed::Events(events.to_vec())));
            } else if let Some(server) = self.servers.get_mut(at) {
                server.feeds.insert(to, after);
            }
        }
    }

    // --- crashes ---

    pub(crate) fn crash_server(&mut self, at: usize) {
        let away = self.random.pick(&[50, 500, 5_000, 60_000], 50);
        let away = self.random.between(1, away);
        let coin = self.random.chance(500);
        let Some(server) = self.servers.get_mut(at).filter(|server| !server.down) else { return };
        (server.down, server.life) = (true, server.life + 1);
        (server.queue, server.feeds) = (Vec::new(), BTreeMap::new());
        self.tell(|_| format!("server-{} CRASHES", at + 1));
        // A write that was under way may have got through.
        if let Some(turn) = self.engine.turn.take()
            && coin
            && turn.fate != Fate::Failed
        {
            self.make_durable(&turn.staged, &turn.decided);
        }
        self.after(away, Happening::ServerBack(at));
    }

    pub(crate) fn pause_server(&mut self, at: usize) {
        let away = self.random.pick(&[100, 2_000, 30_000], 100);
        let until = self.now + self.random.between(1, away);
        if let Some(server) = self.servers.get_mut(at) {
            server.paused_until = until;
        }
        self.tell(|_| format!("server-{} is PAUSED until {:.3} s", at + 1, until as f64 / 1_000.0));
    }

    pub(crate) fn server_back(&mut self, at: usize) {
        let (calm, keep) = (self.calm, self.random.pick(&[5, 50, 100_000], 100_000));
        let raw = self.raw_clock();
        let exclusive = self.is_exclusive();
        let Some(server) = self.servers.get_mut(at) else { return };
        if calm {
            server.paused_until = server.paused_until.min(self.now);
        }
        if !server.down {
            return;
        }
        (server.down, server.paused_until) = (false, 0);
        let life = server.life;
        if exclusive {
            self.disk.forget_events(keep);
            if self.bug == Some(Bug::FenceResetOnRestart) {
                self.disk.counters.last_fence = self.setting.first_fence;
            }
            self.engine = Engine::start(&self.disk, &self.setting, raw);
            self.checker.settle_promises(self.now);
        }
        self.tell(|_| format!("server-{} is back", at + 1));
        self.after(0, Happening::Tick(at, life));
    }

    // --- mistakes on purpose ---

    /// Decides with a mistake. `None` when the answer comes later.
    fn decide_with(
        &mut self,
        bug: Bug,
        at: usize,
        staged: &mut Staged,
        request: &Rc<Request>,
        seen_stale: bool,
    ) -> Option<Outcome> {
        let slot = self.staged_slot(staged, &request.key);
        let (key, command) = (&request.key, &request.command);
        let real = |world: &Self, staged: &mut Staged, command: &Command| {
            world.engine.resident.decide(staged, key, command, &world.engine.limits)
        };
        match (bug, command) {
            (Bug::ReleaseWithoutCompare, Command::Release(claim)) => {
                let current = slot.live(staged.now).map(|lease| lease.proof().into());
                Some(real(self, staged, &Command::Release(current.unwrap_or_else(|| claim.clone()))))
            }
            (Bug::FenceResetOnRelease, Command::Release(claim)) => {
                let outcome = real(self, staged, command);
                if outcome == Outcome::Released {
                    staged.counters.last_fence = claim.fence().map_or(0, |fence| fence.get() - 1);
                }
                Some(outcome)
            }
            (Bug::ExpiredRevived, Command::Renew { claim, .. }) => {
                let revived = self.revive(staged, key, &slot, claim);
                Some(revived.unwrap_or_else(|| real(self, staged, command)))
            }
            (Bug::RetryGrantsTwice, Command::Acquire(bid)) if slot.live(staged.now).is_none() => {
                Some(self.grant_anew(staged, key, &slot, bid))
            }
            (Bug::UnlinkThenCreate, Command::Acquire(_)) if seen_stale => {
                self.unlink(staged, key, slot);
                Some(real(self, staged, command))
            }
            (Bug::UnlinkThenCreate, Command::Acquire(_))
                if slot.lease.is_some() && slot.live(staged.now).is_none() =>
            {
                let delay = self.random.between(1, 300);
                self.after(delay, Happening::SeenStale(at, request.clone()));
                None
            }
            _ => Some(real(self, staged, command)),
        }
    }

    fn staged_slot(&self, staged: &Staged, key: &Key) -> Slot {
        let staged = staged.slots.get(key).and_then(Option::as_ref);
        staged.cloned().unwrap_or_else(|| self.engine.resident.slot(key))
    }

    fn revive(&self, staged: &mut Staged, key: &Key, slot: &Slot, claim: &Claim) -> Option<Outcome> {
        let last = slot.lease.as_ref().or_else(|| self.engine.last_lease.get(key))?;
        let free = slot.live(staged.now).is_none();
        let fits = claim.fits(last) && last.is_expired(staged.now);
        let mut lease = last.clone();
        lease.expires_at = staged.now + lease.ttl.as_duration();
        (free && fits).then(|| {
            staged.slots.insert(key.clone(), Some(Slot { lease: Some(lease.clone()), ..slot.clone() }));
            Outcome::Renewed(lease)
        })
    }

    /// Decides as if no lease id had ever ended.
    fn grant_anew(&self, staged: &mut Staged, key: &Key, slot: &Slot, bid: &Bid) -> Outcome {
        let (now, last_fence) = (staged.now, staged.counters.last_fence);
        let context = Context { now, last_fence, remembered: None, owner_is_full: false };
        // What just ended would be remembered too, so it is settled under another name first.
        let settled = decide(key, slot, &Command::Settle, &context);
        let between = settled.slot.clone().unwrap_or_else(|| slot.clone());
        let decision = decide(key, &between, &Command::Acquire(bid.clone()), &context);
        for event in settled.events.into_iter().chain(decision.events) {
            staged.counters.position.0 += 1;
            staged.events.push(Published { position: staged.counters.position, event });
        }
        staged.counters.last_fence = decision.last_fence;
        staged.slots.insert(key.clone(), Some(decision.slot.unwrap_or(between)));
        decision.outcome
    }

    fn unlink(&self, staged: &mut Staged, key: &Key, mut slot: Slot) {
        let Some(lease) = slot.lease.take() else { return };
        let (at, because) = (staged.now, LossReason::Expired);
        staged.endings.push(Ending { at, key: key.clone(), lease_id: lease.lease_id, because });
        self.push_end(staged, key, &mut slot, &lease);
        staged.slots.insert(key.clone(), Some(slot));
    }

    fn push_end(&self, staged: &mut Staged, key: &Key, slot: &mut Slot, lease: &Lease) {
        slot.seq += 1;
        slot.vacant_since = staged.now;
        let kind = EventKind::Ended { because: EndReason::Expired };
        let (key, seq, at) = (key.clone(), slot.seq, staged.now);
        let event = Event { key, seq, at, fence: lease.fence, owner: lease.owner.clone(), kind };
        staged.counters.position.0 += 1;
        staged.events.push(Published { position: staged.counters.position, event });
    }

    fn tell_expiry_again(&mut self, staged: &mut Staged) {
        let Some(event) = self.engine.last_expired.take() else { return };
        let mut slot = self.staged_slot(staged, &event.key);
        if slot.lease.is_none() {
            slot.seq += 1;
            staged.counters.position.0 += 1;
            let again = Event { seq: slot.seq, at: staged.now, ..event.clone() };
            staged.events.push(Published { position: staged.counters.position, event: again });
            staged.slots.insert(event.key, Some(slot));
        }
    }

    fn remember_for_bugs(&mut self, staged: &Staged) {
        if self.bug == Some(Bug::DoubleExpiry) {
            let is_expiry =
                |event: &&Event| matches!(event.kind, EventKind::Ended { because: EndReason::Expired });
            let expired = staged.events.iter().map(|published| &published.event).rfind(is_expiry);
            self.engine.last_expired = expired.cloned().or(self.engine.last_expired.take());
        }
        if self.bug == Some(Bug::ExpiredRevived) {
            for (key, slot) in &staged.slots {
                if let Some(lease) = slot.as_ref().and_then(|slot| slot.lease.clone()) {
                    self.engine.last_lease.insert(key.clone(), lease);
                }
            }
        }
    }
}

fn shown(kind: &EventKind) -> String {
    match kind {
        EventKind::Granted { expires_at, .. } => format!("GRANTED until {} ms", expires_at.as_millis()),
        EventKind::Ended { because } => {
            format!("ENDED, {}", LossReason::from(because).as_str())
        }
        other => format!("{other:?}"),
    }
}
