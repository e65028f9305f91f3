//! A world: virtual time, a queue of what is going to happen, and luck from a seed. The same seed always tells the same
//! story: nothing here reads a clock, starts a thread, or walks over anything in an order that is not its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use leasehold_core::{HolderTime, Key, Owner, Position, TabId};
use leasehold_store::Feed;
use leasehold_store::writer::Writer;

use crate::bug::Bug;
use crate::checker::{Belief, Checker, Counts};
use crate::client::{Client, Effect, Moment, Party};
use crate::desk::Desk;
use crate::disk::{Disk, Rows};
use crate::law::Violation;
use crate::message::{Request, Sender, ToClient, ToRegister, ToServer};
use crate::register::Register;
use crate::server::{Engine, Server};
use crate::setting::{Fault, Setting, Topology};
use leasehold_store::random::Random;

/// How long before its end a world becomes calm, beyond what the longest TTL needs.
const CALM: u64 = 120_000;

/// How long a copy of a message may take.
pub(crate) const LATEST_COPY: u64 = 30_000;

/// How often a client looks whether its feed of events still works.
const FEED_CHECK: u64 = 5_000;

/// How often it is checked whether waiting clients are served.
const PROBE: u64 = 1_000;

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Run {
    /// The law that did not hold, if one did not.
    pub violation: Option<Violation>,
    /// How much time passed in it, in milliseconds.
    pub lasted: u64,
    /// What happened in it, in numbers.
    pub counts: Counts,
    /// What happened in it, in words, if the story was asked for.
    pub story: Vec<String>,
}

/// Runs the world of this seed. The story costs time, and is recorded only when it is wanted.
pub fn run(seed: u64, bug: Option<Bug>, telling: bool) -> Run {
    let mut world = World::new(seed, bug, telling);
    world.live();
    let Checker { counts, .. } = world.checker;
    Run { violation: world.checker.broken().cloned(), lasted: world.now, counts, story: world.story }
}

/// Everything there is.
pub struct World {
    pub(crate) now: u64,
    pub(crate) random: Random,
    pub(crate) setting: Setting,
    pub(crate) bug: Option<Bug>,
    pub(crate) calm: bool,
    pub(crate) keys: Vec<Key>,
    pub(crate) seats: Vec<Seat>,
    pub(crate) servers: Vec<Server>,
    pub(crate) engine: Engine,
    /// The server that was replaced last, and does not know.
    pub(crate) replaced: Option<Writer<Disk>>,
    /// A copy of the file, to be put in its place.
    pub(crate) copy: Option<Rows>,
    pub(crate) disk: Disk,
    pub(crate) desk: Rc<Desk>,
    pub(crate) checker: Checker,
    registers: BTreeMap<Key, Register>,
    queue: BinaryHeap<Reverse<Entry>>,
    entries: u64,
    telling: bool,
    story: Vec<String>,
}

/// A client and what is around it.
pub(crate) struct Seat {
    client: Client,
    up: bool,
    paused_until: u64,
    cut_until: u64,
    wakes_at: Option<u64>,
    /// Up to where it has heard the events; `None` when it has to look at everything first.
    heard: Option<Position>,
    fed: bool,
}

/// What is going to happen.
pub(crate) enum Happening {
    ToServer(usize, ToServer),
    ToClient(Sender, ToClient),
    ToRegister(ToRegister),
    Act(Sender, Effect),
    Wake(usize),
    FeedCheck(usize),
    Tick(usize, u32),
    DiskDone(u32),
    SeenStale(usize, Rc<Request>),
    Fault,
    ServerBack(usize),
    ClientBack(usize),
    Calm,
    Probe,
    End,
}

struct Entry {
    at: u64,
    number: u64,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl World {
    fn new(seed: u64, bug: Option<Bug>, telling: bool) -> Self {
        let mut random = Random::new(seed);
        let setting = Setting::draw(&mut random);
        let parties = parties(&setting);
        let keys = (1..=setting.keys).filter_map(|n| Key::parse(&format!("run/{n}")).ok()).collect();
        let seats = parties.iter().zip(&setting.clients);
        let seats =
            seats.map(|(party, (clock, habits))| Seat::new(Client::new(party.clone(), *clock, *habits)));
        let disk = Disk::new(setting.first_fence, bug);
        let servers = match setting.topology {
            Topology::Exclusive => 1,
            Topology::Shared(servers) => servers,
        };
        Self {
            now: 0,
            random,
            bug,
            calm: false,
            keys,
            seats: seats.collect(),
            servers: (0..servers).map(|_| Server::default()).collect(),
            replaced: None,
            copy: None,
            engine: Engine::start(&disk, &setting, setting.store_clock.read(0), 0),
            disk,
            desk: Desk::new(bug),
            checker: Checker::new(parties),
            setting,
            registers: BTreeMap::new(),
            queue: BinaryHeap::new(),
            entries: 0,
            telling,
            story: Vec::new(),
        }
    }

    fn live(&mut self) {
        self.tell(|world| format!("a world of {:?}", world.setting));
        for client in 0..self.seats.len() {
            self.after(client as u64, Happening::FeedCheck(client));
            self.plan_wake(client);
        }
        for server in 0..self.servers.len() {
            self.after(0, Happening::Tick(server, 0));
        }
        self.plan_fault();
        self.after(self.calm_at(), Happening::Calm);
        self.after(self.setting.lasts, Happening::End);
        while let Some(Reverse(entry)) = self.queue.pop() {
            self.now = entry.at;
            if matches!(entry.what, Happening::End) || self.checker.broken().is_some() {
                break;
            }
            self.happen(entry.what);
        }
        self.checker.settle_promises(self.now);
        if let Some(violation) = self.checker.broken().cloned() {
            self.tell(|_| format!("!!! {}: {}", violation.law, violation.what));
        }
    }

    /// From when on nothing goes wrong any more.
    pub(crate) fn calm_at(&self) -> u64 {
        self.setting.lasts - CALM - LATEST_COPY - 2 * self.setting.longest_ttl()
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::ToServer(server, message) => self.server_hears(server, message),
            Happening::ToClient(to, message) => self.client_hears(to, message),
            Happening::ToRegister(message) => self.register_hears(message),
            Happening::Act(from, effect) => self.client_acts(from, effect),
            Happening::Wake(client) => self.wake(client),
            Happening::FeedCheck(client) => self.check_feed(client),
            Happening::Tick(server, life) => self.tick(server, life),
            Happening::DiskDone(life) => self.disk_done(life),
            Happening::SeenStale(server, request) => self.take_stale(server, request),
            Happening::Fault => self.fault(),
            Happening::ServerBack(server) => self.server_back(server),
            Happening::ClientBack(client) => self.client_back(client),
            Happening::Calm => self.become_calm(),
            Happening::Probe => self.probe(),
            Happening::End => {}
        }
    }

    pub(crate) fn after(&mut self, delay: u64, what: Happening) {
        self.at(self.now + delay, what);
    }

    fn at(&mut self, at: u64, what: Happening) {
        self.entries += 1;
        self.queue.push(Reverse(Entry { at, number: self.entries, what }));
    }

    pub(crate) fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.telling {
            let line = format!("{:>10.3} s  {}", self.now as f64 / 1_000.0, line(self));
            self.story.push(line);
        }
    }

    // --- the network ---

    /// When the copies of a message from or to this client arrive.
    fn arrivals(&mut self, client: usize) -> [Option<u64>; 2] {
        let quick = self.random.between(1, 15);
        if self.calm {
            return [Some(quick), None];
        }
        if self.seats.get(client).is_some_and(|seat| seat.cut_until > self.now) {
            return [None, None];
        }
        let faults = &self.setting.faults;
        let (lost, slow, repeated) = (faults.lost, faults.slow, faults.repeated);
        let delay = if self.random.chance(slow) { self.random.between(50, 8_000) } else { quick };
        let first = (!self.random.chance(lost)).then_some(delay);
        let copy = self.random.chance(repeated).then(|| self.random.between(1, LATEST_COPY));
        // Most copies follow soon.
        let copy = copy.map(|late| if late % 2 == 0 { late } else { late % 100 + 1 });
        [first, copy]
    }

    pub(crate) fn send_to_client(&mut self, to: Sender, message: &ToClient) {
        for delay in self.arrivals(to.client).into_iter().flatten() {
            self.after(delay, Happening::ToClient(to, message.clone()));
        }
    }

    fn send_to_server(&mut self, client: usize, message: &ToServer) {
        let server = self.random.index(self.servers.len());
        for delay in self.arrivals(client).into_iter().flatten() {
            self.after(delay, Happening::ToServer(server, message.clone()));
        }
    }

    // --- clients ---

    fn sender(&self, client: usize) -> Sender {
        Sender { client, life: self.seats.get(client).map_or(0, |seat| seat.client.life) }
    }

    /// Lets a client do something, and does what it wants done.
    fn with_client(&mut self, client: usize, act: impl FnOnce(&mut Client, &mut Moment<'_>)) {
        let Some(seat) = self.seats.get_mut(client) else { return };
        let now = HolderTime::from_millis(seat.client.clock.read(self.now));
        let mut effects = Vec::new();
        let (random, keys, bug, telling) = (&mut self.random, &self.keys, self.bug, self.telling);
        act(&mut seat.client, &mut Moment { now, random, effects: &mut effects, keys, bug, telling });
        self.note_belief(client);
        let sender = self.sender(client);
        for effect in effects {
            self.carry_out(sender, now, effect);
        }
        self.plan_wake(client);
    }

    fn carry_out(&mut self, from: Sender, sent: HolderTime, effect: Effect) {
        match effect {
            Effect::Ask(key, command) => {
                let request = Rc::new(Request { from, sent, key, command });
                self.send_to_server(from.client, &ToServer::Apply(request));
            }
            Effect::Access(key, fence, access) => {
                let message = ToRegister { from, key, fence, access };
                for delay in self.arrivals(from.client).into_iter().flatten() {
                    self.after(delay, Happening::ToRegister(message.clone()));
                }
            }
            Effect::AccessSoon(key, fence, access) => {
                let delay = self.random.between(0, 20);
                // The worst moment for a pause: it is decided, and not yet done.
                if !self.calm
                    && self.random.chance(20)
                    && self.setting.faults.kinds.contains(&Fault::ClientPause)
                {
                    self.pause_client(from.client);
                }
                self.after(delay, Happening::Act(from, Effect::Access(key, fence, access)));
            }
            Effect::Say(line) => self.tell(|_| format!("{} {line}", client_name(from.client))),
        }
    }

    fn note_belief(&mut self, client: usize) {
        let Some(seat) = self.seats.get(client) else { return };
        let belief = seat.client.belief().map(|(key, fence, deadline)| Belief {
            key: key.clone(),
            fence,
            until: seat.client.clock.when(deadline.as_millis()),
        });
        let belief = belief.filter(|belief| belief.until > self.now);
        self.checker.believes(self.now, client, belief);
    }

    fn plan_wake(&mut self, client: usize) {
        let Some(seat) = self.seats.get_mut(client).filter(|seat| seat.up) else { return };
        let wakes_at = seat.client.clock.when(seat.client.next_wake().as_millis()).max(self.now);
        if seat.wakes_at.is_none_or(|planned| wakes_at < planned) {
            seat.wakes_at = Some(wakes_at);
            self.at(wakes_at, Happening::Wake(client));
        }
    }

    fn wake(&mut self, client: usize) {
        let paused_until = self.seats.get(client).map_or(0, |seat| seat.paused_until);
        if let Some(seat) = self.seats.get_mut(client).filter(|seat| seat.wakes_at == Some(self.now)) {
            seat.wakes_at = None;
        }
        if !self.seats.get(client).is_some_and(|seat| seat.up) {
            return;
        }
        if paused_until > self.now {
            return self.at(paused_until, Happening::Wake(client));
        }
        self.with_client(client, |client, moment| client.wake(moment));
    }

    /// Whether the client that this is for is there; what comes for a paused one comes when it goes on.
    fn is_there(&self, to: Sender) -> Result<(), Option<u64>> {
        match self.seats.get(to.client) {
            Some(seat) if seat.up && seat.client.life == to.life => match seat.paused_until {
                until if until > self.now => Err(Some(until)),
                _ => Ok(()),
            },
            _ => Err(None),
        }
    }

    fn client_hears(&mut self, to: Sender, message: ToClient) {
        if let Err(later) = self.is_there(to) {
            if let Some(later) = later {
                self.at(later, Happening::ToClient(to, message));
            }
            return;
        }
        let client = to.client;
        match message {
            ToClient::Applied(request, applied) => {
                self.with_client(client, |client, m| client.hear_answer(m, &request, applied.as_ref()));
            }
            ToClient::Register(ToRegister { key, fence, access, .. }, answer) => {
                self.with_client(client, |client, m| client.hear_register(m, &key, fence, access, answer));
            }
            ToClient::Feed(after, feed) => self.hear_feed(client, after, feed),
            ToClient::List(page) => {
                let Some(seat) = self.seats.get_mut(client).filter(|seat| seat.heard.is_none()) else {
                    return;
                };
                seat.heard = Some(page.position);
                self.checker.listed(self.now, client, &page);
                self.ask_for_events(client);
            }
        }
    }

    fn client_acts(&mut self, from: Sender, effect: Effect) {
        match self.is_there(from) {
            Ok(()) => self.carry_out(from, HolderTime::ZERO, effect),
            Err(Some(later)) => self.at(later, Happening::Act(from, effect)),
            Err(None) => {}
        }
    }

    fn register_hears(&mut self, message: ToRegister) {
        let register = self.registers.entry(message.key.clone()).or_default();
        let (answer, on_top_of) = register.access(message.fence, message.access);
        let ToRegister { key, fence, access, from } = &message;
        self.checker.accessed(self.now, key, *fence, *access, answer, on_top_of);
        self.tell(|_| {
            format!(
                "register {key}: {access:?} with fence {fence} by {}: {answer:?}",
                client_name(from.client)
            )
        });
        self.send_to_client(message.from, &ToClient::Register(message, answer));
    }

    // --- the feed of events ---

    fn hear_feed(&mut self, client: usize, after: Position, feed: Feed) {
        let Some(seat) = self.seats.get_mut(client).filter(|seat| seat.heard == Some(after)) else { return };
        seat.fed = true;
        match feed {
            Feed::Gap { .. } => {
                seat.heard = None;
                self.tell(|_| format!("{} has missed events and looks at everything", client_name(client)));
            }
            Feed::Events(events) => {
                seat.heard = events.last().map(|last| last.position);
                for published in &events {
                    self.checker.heard(self.now, client, published);
                    self.with_client(client, |client, moment| client.hear_event(moment, published));
                }
            }
        }
        self.ask_for_events(client);
    }

    fn ask_for_events(&mut self, client: usize) {
        let sender = self.sender(client);
        let message = match self.seats.get(client).and_then(|seat| seat.heard) {
            Some(heard) => ToServer::Feed(sender, heard),
            None => ToServer::List(sender),
        };
        self.send_to_server(client, &message);
    }

    fn check_feed(&mut self, client: usize) {
        let now = self.now;
        if let Some(seat) = self.seats.get_mut(client).filter(|seat| seat.up && seat.paused_until <= now)
            && !std::mem::take(&mut seat.fed)
        {
            self.ask_for_events(client);
        }
        self.after(FEED_CHECK, Happening::FeedCheck(client));
    }

    // --- faults ---

    fn plan_fault(&mut self) {
        let every = self.setting.faults.every;
        let delay = self.random.between(every / 2, every * 3 / 2);
        self.after(delay, Happening::Fault);
    }

    fn fault(&mut self) {
        let kinds = &self.setting.faults.kinds;
        if self.calm || kinds.is_empty() {
            return;
        }
        let kind = kinds.get(self.random.index(kinds.len())).copied();
        let (server, client) = (self.random.index(self.servers.len()), self.random.index(self.seats.len()));
        match kind {
            Some(Fault::ServerCrash) => self.crash_server(server),
            Some(Fault::ServerPause) => self.pause_server(server),
            Some(Fault::SecondServer) => self.start_second_server(),
            Some(Fault::CopyPutBack) => self.put_back_copy(),
            Some(Fault::ClientCrash) => self.crash_client(client),
            Some(Fault::ClientPause) => self.pause_client(client),
            Some(Fault::Cut) => self.cut(client),
            None => {}
        }
        self.plan_fault();
    }

    /// As long as it takes to be forgotten, or just a moment.
    fn absence(&mut self) -> u64 {
        let longest = 3 * self.setting.longest_ttl();
        let most = self.random.pick(&[100, 1_000, longest], 100);
        self.random.between(1, most)
    }

    fn crash_client(&mut self, client: usize) {
        let (away, keeps) = (self.absence(), self.random.chance(300));
        let Some(seat) = self.seats.get_mut(client).filter(|seat| seat.up) else { return };
        seat.client.crash(keeps);
        (seat.up, seat.heard, seat.fed, seat.wakes_at) = (false, None, false, None);
        self.note_belief(client);
        self.tell(|_| format!("{} CRASHES", client_name(client)));
        self.after(away, Happening::ClientBack(client));
    }

    fn client_back(&mut self, client: usize) {
        let Some(seat) = self.seats.get_mut(client).filter(|seat| !seat.up) else { return };
        (seat.up, seat.paused_until) = (true, 0);
        self.tell(|_| format!("{} is back", client_name(client)));
        self.with_client(client, |client, moment| client.restart(moment));
        self.ask_for_events(client);
    }

    fn pause_client(&mut self, client: usize) {
        let until = self.now + self.absence();
        let Some(seat) = self.seats.get_mut(client).filter(|seat| seat.up) else { return };
        seat.paused_until = seat.paused_until.max(until);
        self.tell(|_| format!("{} is PAUSED until {:.3} s", client_name(client), until as f64 / 1_000.0));
    }

    fn cut(&mut self, client: usize) {
        let until = self.now + self.absence();
        if let Some(seat) = self.seats.get_mut(client) {
            seat.cut_until = until;
        }
        self.tell(|_| format!("{} is CUT OFF until {:.3} s", client_name(client), until as f64 / 1_000.0));
    }

    /// From now on nothing goes wrong any more, and everybody is there.
    fn become_calm(&mut self) {
        self.tell(|_| "all is calm from now on".into());
        self.calm = true;
        self.replaced = None;
        for client in 0..self.seats.len() {
            if let Some(seat) = self.seats.get_mut(client) {
                seat.paused_until = seat.paused_until.min(self.now);
            }
            self.client_back(client);
            self.after(0, Happening::Wake(client));
        }
        for server in 0..self.servers.len() {
            self.server_back(server);
        }
        self.after(LATEST_COPY, Happening::Probe);
    }

    fn probe(&mut self) {
        let calm_since = self.setting.lasts - CALM - 2 * self.setting.longest_ttl();
        let wanted = self.seats.iter().enumerate().filter_map(|(client, seat)| {
            let (key, since) = seat.client.wants()?;
            Some((client, key.clone(), seat.client.clock.when(since.as_millis())))
        });
        let wanted: Vec<_> = wanted.collect();
        // Both clocks may be slow, the store's and the holder's.
        let longest = self.setting.longest_ttl() * 110 / 100;
        self.checker.check_served(self.now, calm_since, longest, &wanted);
        self.after(PROBE, Happening::Probe);
    }
}

impl Seat {
    fn new(client: Client) -> Self {
        Self { client, up: true, paused_until: 0, cut_until: 0, wakes_at: None, heard: None, fed: false }
    }
}

/// What a client is called in the story.
pub(crate) fn client_name(client: usize) -> String {
    format!("client-{}", client + 1)
}

/// Who the clients are: each an owner of its own, in a tab that is called like everybody else's, or two at a time one owner
/// in two tabs.
fn parties(setting: &Setting) -> Vec<Party> {
    let party = |(number, (_, habits)): (usize, &(_, crate::client::Habits))| {
        let (owner, tab) = if setting.paired { (number / 2, number % 2) } else { (number, 0) };
        Party { owner: name("user", owner + 1), tab: tab_id(tab + 1), claims: habits.claims }
    };
    setting.clients.iter().enumerate().map(party).collect()
}

#[allow(clippy::expect_used)] // letters and digits parse
fn name(what: &str, number: usize) -> Owner {
    Owner::parse(&format!("{what}-{number}")).expect("a name")
}

fn tab_id(number: usize) -> Option<TabId> {
    TabId::parse(&format!("tab-{number}")).ok()
}
