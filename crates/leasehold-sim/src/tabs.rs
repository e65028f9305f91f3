//! A seeded world of tabs around one project folder, each with the real [`ProjectLock`]: Web Locks that come late, steps in
//! the folder that take their time or fail, done or not, tabs that crash, stop, are frozen, and go on as if nothing had
//! been.
//!
//! The walk of [`crate::project`] sees every state of a small world; this one sees the whole machine, with its timers, in
//! worlds that are too large for that. [`run`] says what was wrong, if anything was; the same seed gives the same world.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::lease::{OnSilence, Proof};
use leasehold_core::name::{Meta, Owner, Reason};
use leasehold_core::time::StoreTime;
use leasehold_project_rules::event::{AutosaveEvent, autosave};
use leasehold_project_rules::guarded::{LockFile, Probe};
use leasehold_project_rules::record::{Content, Record};
use leasehold_project_rules::{
    Ask, Base, CallId, Effect, Event, Folder, IoReply, IoStep, News, NotSaved, Now, Options, Profile,
    ProjectLock, ReleaseReason, Save, Say, Settled, State, Surroundings, Ticket, Version, WebLock,
};
use leasehold_store::random::Random;

/// When every world begins: some day in 2026.
const START: u64 = 1_794_747_600_000;

/// How long things go wrong, and how long they then do not.
const TROUBLE: u64 = 10 * 60_000;
const PEACE: u64 = 5 * 60_000;

/// How long the project may be without a holder in peace: a tab that was stopped just before keeps the guard, if it had it, for up to 90 s.
const LONGEST_GAP: u64 = 130_000;

/// How long a request to hand over may take in peace: two seconds to be told, the countdown, and the attempts after it.
const LONGEST_REQUEST: u64 = 20_000;

/// What a world saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the lock was granted.
    pub granted: u64,
    /// How often a file was saved.
    pub saved: u64,
    /// How often a save was refused because its lease was over.
    pub refused: u64,
    /// How often a save was refused because it was made from another version than the one that was there.
    pub stale: u64,
    /// How often a tab became read-only.
    pub readonly: u64,
    /// How many tabs crashed, and how many were stopped or frozen.
    pub crashed: u64,
    /// The same.
    pub paused: u64,
    /// How often a tab that had asked for the project got it, and how often because its holder was silent.
    pub handed_over: u64,
    /// The same.
    pub silent: u64,
}

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it saw.
    pub counts: Counts,
    /// What was wrong, and when.
    pub wrong: Option<String>,
    /// The last things that happened.
    pub story: VecDeque<String>,
}

/// The one file of the project.
const PATH: &str = "current.json";

/// The version of a content.
fn version(content: u64) -> Version {
    if content == 0 { Version::NO_FILE } else { Version::new(&content.to_string()) }
}

/// How much of the story is kept.
const STORY: usize = 150;

/// A mistake on purpose, which a world must find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Saves are not checked under the guard.
    Unfenced,
    /// Saves do not compare the version that they were made from.
    Baseless,
    /// The countdown of a request to hand over begins when the request is sent.
    Hasty,
}

/// Lives through the world of this seed, with a mistake or without.
pub fn run(seed: u64, mistake: Option<Mistake>) -> Run {
    let mut world = World::new(seed, mistake);
    while world.wrong.is_none() {
        let Some(Reverse((time, _, turn))) = world.turns.pop() else { break };
        if time > START + TROUBLE + PEACE {
            break;
        }
        world.now = time;
        world.take(turn);
        world.check();
    }
    world.check_end();
    Run { counts: world.counts, wrong: world.wrong, story: world.story }
}

/// Something that happens to a tab, in one of its lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    tab: usize,
    life: u32,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The application does something.
    Act,
    Timer,
    /// The next step in the folder.
    Io,
    /// A save that is not checked, under this fence.
    UncheckedSave(u64),
    Web(u32, Web),
    /// The news of this number.
    News(usize),
    /// The page has the event of a request to hand over.
    Told,
    Crash,
    /// The process is stopped, or the page frozen with notice.
    Stop {
        notice: bool,
    },
    Thaw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Web {
    Granted,
    Unsupported,
    Stolen,
}

struct Tab {
    machine: ProjectLock,
    life: u32,
    /// Until when it does nothing.
    stopped: u64,
    has_web: bool,
    options: Options,
    /// The step in the folder that is under way.
    io: Option<IoStep>,
    /// The saves that are under way: their fences, and what they save.
    saves: BTreeMap<u32, (u64, u64)>,
    /// What the application has in memory: the last content that it read, or made to save it.
    memory: u64,
    /// The take-over that is under way.
    forcing: Option<u32>,
    /// The request to hand over that is under way.
    asking: Option<Asking>,
    timer: Option<u64>,
    calls: BTreeSet<u32>,
    /// Whether the last event in dialect `autosave` was a retry that no other follows.
    gave_up: bool,
    readonly: bool,
}

#[derive(Clone, Copy)]
struct Asking {
    call: u32,
    since: u64,
    countdown: u64,
    on_silence: OnSilence,
}

struct World {
    random: Random,
    now: u64,
    mistake: Option<Mistake>,
    turns: BinaryHeap<Reverse<(u64, u64, Turn)>>,
    order: u64,
    tabs: Vec<Tab>,
    calls: u32,
    // The folder.
    lock: Option<(Record, u64)>,
    last_fence: Option<u64>,
    guard: Option<usize>,
    held: BTreeMap<u64, Option<usize>>,
    /// What the one file of the project contains; 0 when there is none.
    file: u64,
    // The Web Lock.
    web: Option<(usize, u32, Ticket)>,
    web_queue: VecDeque<(usize, u32, Ticket)>,
    /// What tabs have said to each other.
    news: Vec<News>,
    // What is known from outside.
    /// When the page of a holder was last told that a tab asks for the project.
    told: BTreeMap<usize, u64>,
    newest: u64,
    /// What each content was made from, by its number; 0 is no content.
    made_from: Vec<u64>,
    /// The last content whose save was acknowledged.
    acknowledged: u64,
    held_at: u64,
    forced_until: u64,
    counts: Counts,
    wrong: Option<String>,
    story: VecDeque<String>,
}

impl World {
    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let mut random = Random::new(seed);
        let tabs = random.between(2, 4);
        let mut world = Self {
            random,
            now: START,
            mistake,
            turns: BinaryHeap::new(),
            order: 0,
            tabs: Vec::new(),
            calls: 0,
            lock: None,
            last_fence: None,
            guard: None,
            held: BTreeMap::new(),
            file: 0,
            web: None,
            web_queue: VecDeque::new(),
            news: Vec::new(),
            told: BTreeMap::new(),
            newest: 0,
            made_from: vec![0],
            acknowledged: 0,
            held_at: START,
            forced_until: 0,
            counts: Counts::default(),
            wrong: None,
            story: VecDeque::new(),
        };
        for at in 0..usize::try_from(tabs).unwrap_or(2) {
            let tab = world.new_tab(at, 0);
            world.tabs.push(tab);
            world.plan(at, 1_000, What::Act);
        }
        world
    }

    /// A page is opened.
    fn new_tab(&mut self, at: usize, life: u32) -> Tab {
        let mut seed = [0; 16];
        seed.fill_with(|| self.random.draw() as u8);
        let profile =
            self.random.pick(&[Profile::Autosave, Profile::Autosave, Profile::Service], Profile::Autosave);
        // The first tab never gives up, so that peace must end with a holder.
        let auto_resume = (at == 0 || self.random.chance(500)).then_some(true);
        let reentrant = self.random.chance(100);
        let owner = Owner::parse(&format!("tab-{at}-{life}")).unwrap_or_else(|_| unreachable!("a name"));
        let mut machine =
            ProjectLock::new(Surroundings { owner, root: "project".into(), folder: Folder::Guarded, seed });
        machine.saw(PATH, version(self.file));
        Tab {
            machine,
            life,
            stopped: 0,
            has_web: self.random.chance(600),
            options: Options { auto_resume, reentrant, ..Options::of(profile) },
            io: None,
            saves: BTreeMap::new(),
            memory: self.file,
            forcing: None,
            asking: None,
            timer: None,
            calls: BTreeSet::new(),
            gave_up: false,
            readonly: false,
        }
    }

    /// Something will happen within so many milliseconds.
    fn plan(&mut self, tab: usize, within: u64, what: What) {
        let at = self.now + self.random.between(0, within);
        self.plan_at(tab, at, what);
    }

    fn plan_at(&mut self, tab: usize, at: u64, what: What) {
        self.order += 1;
        let life = self.tabs.get(tab).map_or(0, |tab| tab.life);
        self.turns.push(Reverse((at, self.order, Turn { tab, life, what })));
    }

    fn time(&self) -> Now {
        Now::both(self.now)
    }

    fn troubled(&self) -> bool {
        self.now < START + TROUBLE
    }

    fn take(&mut self, turn: Turn) {
        let Turn { tab: at, life, what } = turn;
        let Some(tab) = self.tabs.get(at).filter(|tab| tab.life == life) else { return };
        let stopped = tab.stopped;
        if stopped > self.now && !matches!(what, What::Crash) {
            // Whatever came in the meantime is dealt with when it goes on.
            return self.plan_at(at, stopped, what);
        }
        let now = self.time();
        if !matches!(what, What::Act | What::Io) {
            self.tell(at, &format!("{what:?}"));
        }
        match what {
            What::Act => self.act(at),
            What::Timer => {
                self.with(at, |tab| {
                    tab.timer = None;
                    tab.machine.handle_timeout(now);
                });
            }
            What::Io => self.io(at),
            What::UncheckedSave(fence) => self.save(at, fence),
            What::Web(ticket, web) => {
                let what = match web {
                    Web::Granted => WebLock::Granted,
                    Web::Unsupported => WebLock::Unsupported,
                    Web::Stolen => WebLock::Stolen,
                };
                self.with(at, |tab| tab.machine.handle_web_lock(Ticket(ticket), what, now));
            }
            What::News(number) => {
                if let (Some(news), Some(tab)) = (self.news.get(number), self.tabs.get_mut(at)) {
                    tab.machine.handle_news(news, now);
                }
            }
            What::Told => self.page_is_told(at),
            What::Crash => self.crash(at),
            What::Stop { notice } => self.stop(at, notice),
            What::Thaw => self.with(at, |tab| tab.machine.handle_resumed(now)),
        }
        self.drain(at);
    }

    fn with(&mut self, at: usize, change: impl FnOnce(&mut Tab)) {
        if let Some(tab) = self.tabs.get_mut(at) {
            change(tab);
        }
    }

    // --- what the application and the user do ---

    fn act(&mut self, at: usize) {
        let (dice, now) = (self.random.between(0, 99), self.time());
        self.calls += 1;
        let call = CallId(self.calls);
        let Some(tab) = self.tabs.get_mut(at) else { return };
        let lease = tab.machine.lease().map(|lease| lease.lease_id);
        match (lease, tab.machine.state()) {
            (None, State::Idle | State::Readonly) if dice < 40 => {
                tab.calls.insert(call.0);
                tab.machine.acquire(call, &tab.options, now);
            }
            (None, _) if dice < 42 && now.wall.as_millis() < START + TROUBLE => {
                tab.calls.insert(call.0);
                tab.forcing = Some(call.0);
                tab.machine.take_over(call, &tab.options, None, Reason::default(), now);
            }
            (None, State::Idle | State::Readonly) if dice < 48 && tab.asking.is_none() => {
                self.ask(at, call);
            }
            (None, _) if dice > 95 => {
                let asked = tab.asking.map(|asking| CallId(asking.call));
                tab.machine.abort(asked.unwrap_or(CallId(call.0.saturating_sub(1))), now);
            }
            (Some(lease_id), _) if dice < 5 => {
                tab.calls.insert(call.0);
                tab.machine.release(call, lease_id, ReleaseReason::default(), dice < 2, now);
            }
            (Some(lease_id), _) if dice < 10 => {
                tab.calls.insert(call.0);
                tab.machine.renew(call, lease_id, None, now);
            }
            (Some(_), _) if dice < 70 => {
                if let Some(claim) = tab.machine.claim(now) {
                    self.begin_save(at, call, claim);
                }
            }
            // A page that becomes visible loads the project anew, for example.
            (_, _) if dice < 72 => self.read(at),
            _ => {}
        }
        self.misfortune(at);
        self.plan(at, 1_500, What::Act);
    }

    fn misfortune(&mut self, at: usize) {
        if !self.troubled() {
            return;
        }
        if self.random.chance(8) {
            self.plan(at, 50, What::Crash);
        }
        if self.random.chance(10) {
            let notice = self.random.chance(400);
            self.plan(at, 50, What::Stop { notice });
        }
    }

    fn crash(&mut self, at: usize) {
        self.counts.crashed += 1;
        if self.guard == Some(at) {
            self.guard = None;
        }
        self.held.values_mut().filter(|holder| **holder == Some(at)).for_each(|holder| *holder = None);
        self.web_queue.retain(|(tab, ..)| *tab != at);
        if self.web.is_some_and(|(tab, ..)| tab == at) {
            self.web = None;
            self.pass_web_on();
        }
        let life = self.tabs.get(at).map_or(0, |tab| tab.life) + 1;
        let tab = self.new_tab(at, life);
        self.with(at, |old| *old = tab);
        self.plan(at, 5_000, What::Act);
    }

    /// A stopped process keeps what it has: the guard, its handles, its place in the queue.
    fn stop(&mut self, at: usize, notice: bool) {
        self.counts.paused += 1;
        let long = self.random.chance(500);
        let lasts = if long { self.random.between(10_000, 90_000) } else { self.random.between(100, 5_000) };
        let now = self.time();
        let until = self.now + lasts;
        if notice {
            self.with(at, |tab| tab.machine.handle_frozen(now));
            self.drain(at);
            self.plan_at(at, until, What::Thaw);
        }
        self.with(at, |tab| tab.stopped = until);
    }

    /// Asks the holder to save and hand the project over.
    fn ask(&mut self, at: usize, call: CallId) {
        let countdown = self.random.between(500, 6_000);
        let on_silence = self.random.pick(&[OnSilence::Grant, OnSilence::Refuse], OnSilence::Grant);
        let now = self.time();
        self.told.remove(&at);
        self.with(at, |tab| {
            tab.calls.insert(call.0);
            let since = now.steady.as_millis();
            tab.asking = Some(Asking { call: call.0, since, countdown, on_silence });
            let ask = Ask {
                asker: tab.machine.owner(),
                label: Meta::default(),
                why: Reason::default(),
                countdown: Duration::from_millis(countdown),
                on_silence,
            };
            tab.machine.request_handover(call, &tab.options, ask, now);
        });
    }

    /// The user of a holder sees that another tab asks for the project: releases it, refuses, or does not care.
    fn page_is_told(&mut self, at: usize) {
        let (dice, now) = (self.random.between(0, 99), self.time());
        self.calls += 1;
        let call = CallId(self.calls);
        let Some(tab) = self.tabs.get_mut(at) else { return };
        tab.machine.handover_told(now);
        let Some(lease_id) = tab.machine.lease().map(|lease| lease.lease_id) else { return };
        if dice < 30 {
            tab.calls.insert(call.0);
            tab.machine.release(call, lease_id, ReleaseReason::default(), true, now);
        } else if dice < 50 {
            tab.machine.refuse_handover(lease_id, Reason::default(), now);
        }
    }

    // --- what the shell does ---

    fn drain(&mut self, at: usize) {
        while let Some(effect) = self.tabs.get_mut(at).and_then(|tab| tab.machine.poll_effect()) {
            self.perform(at, effect);
        }
        let Some(tab) = self.tabs.get_mut(at) else { return };
        let due = tab.machine.poll_timeout().map(|due| due.as_millis());
        if let Some(due) = due.filter(|due| tab.timer.is_none_or(|timer| *due < timer)) {
            tab.timer = Some(due);
            // Timers are never early, and often late.
            let late = if self.random.chance(50) { self.random.between(0, 3_000) } else { 0 };
            self.plan_at(at, due.max(self.now) + late, What::Timer);
        }
    }

    fn perform(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::RequestWebLock { ticket, steal } => self.request_web(at, ticket, steal),
            Effect::DropWebLock(ticket) => self.drop_web(at, ticket),
            Effect::Io(step) => {
                self.with(at, |tab| tab.io = Some(step));
                self.plan(at, 4, What::Io);
            }
            Effect::DropHeld(fence) => {
                let held = self.held.get_mut(&fence.get()).filter(|holder| **holder == Some(at));
                held.into_iter().for_each(|holder| *holder = None);
            }
            Effect::Emit(event) => self.heard(at, &event),
            Effect::Broadcast(news) => {
                self.note_request(at, &news);
                self.news.push(news);
                // News may be lost.
                for other in (0..self.tabs.len()).filter(|other| *other != at) {
                    if !self.random.chance(200) {
                        self.plan(other, 20, What::News(self.news.len() - 1));
                    }
                }
            }
            Effect::Settle { call, answer } => {
                let granted = matches!(answer, Ok(Settled::Acquired(_)));
                self.with(at, |tab| {
                    tab.asking = tab.asking.filter(|asking| granted || asking.call != call.0);
                });
                if let Some(tab) = self.tabs.get_mut(at)
                    && tab.asking.take_if(|asking| asking.call == call.0).is_some()
                {
                    self.counts.handed_over += 1;
                }
                self.answered(at, call);
            }
            Effect::Saved { call, saved } => {
                self.save_answered(at, call, &saved);
                self.answered(at, call);
            }
        }
    }

    /// Knows from outside what tabs say about requests.
    fn note_request(&mut self, at: usize, news: &News) {
        let News::Handover { fence, say, ask } = news else { return };
        let asker = self.tabs.iter().position(|tab| tab.machine.owner() == ask.asker);
        match (say, asker) {
            (Say::Told, Some(asker)) => {
                self.told.insert(asker, self.now);
            }
            (Say::Asked, _) if self.mistake == Some(Mistake::Hasty) => {
                self.news.push(News::Handover { fence: *fence, say: Say::Told, ask: Arc::clone(ask) });
                self.plan(at, 1, What::News(self.news.len() - 1));
            }
            _ => {}
        }
    }

    /// A tab that asked takes the project from a holder that lives: only by its silence, after it was told and had its time.
    fn taken_from_a_live_holder(&mut self, at: usize, asking: Asking) {
        self.counts.silent += 1;
        // The holder whose lock is taken may believe in it until it has looked.
        self.forced_until = self.now + 30_000;
        let had_its_time = self.told.get(&at).is_some_and(|told| told + asking.countdown <= self.now);
        if asking.on_silence != OnSilence::Grant || !had_its_time {
            let told = self.told.get(&at).map(|told| self.now - told);
            let countdown = asking.countdown;
            self.is_wrong(&format!(
                "tab {at} was handed the project by a silent holder, told for {told:?} of {countdown} ms"
            ));
        }
    }

    fn answered(&mut self, at: usize, call: CallId) {
        let Some(tab) = self.tabs.get_mut(at) else { return };
        tab.saves.remove(&call.0);
        if tab.forcing == Some(call.0) {
            tab.forcing = None;
            // It may have been aborted with its section under way.
            self.forced_until = self.now + 30_000;
        }
        if !tab.calls.remove(&call.0) {
            self.is_wrong(&format!("tab {at}: call {} was answered twice, or never made", call.0));
        }
    }

    fn heard(&mut self, at: usize, event: &Event) {
        self.tell(at, event.name());
        let mut wrong = None;
        let Some(tab) = self.tabs.get_mut(at) else { return };
        for told in autosave(event) {
            if matches!(told, AutosaveEvent::Readonly { .. }) && !tab.gave_up {
                wrong = Some("read-only without a retry before it");
            }
            tab.gave_up = matches!(told, AutosaveEvent::Retry { retryable: false, .. });
        }
        match event {
            Event::ReadonlyEntered { .. } => {
                self.counts.readonly += 1;
                if std::mem::replace(&mut tab.readonly, true) {
                    wrong = Some("read-only twice");
                }
            }
            Event::Attempt { .. } | Event::Acquired { .. } => tab.readonly = false,
            // The page gets to its events when it can.
            Event::HandoverRequested(_) => self.plan(at, 300, What::Told),
            _ => {}
        }
        if let Event::Acquired { changed, .. } = event {
            wrong = self.acquired(at, *changed).or(wrong);
        }
        if let Some(wrong) = wrong {
            self.is_wrong(&format!("tab {at}: {wrong}"));
        }
    }

    fn request_web(&mut self, at: usize, ticket: Ticket, steal: bool) {
        let Some(tab) = self.tabs.get(at) else { return };
        let life = tab.life;
        if !tab.has_web {
            return self.plan(at, 3, What::Web(ticket.0, Web::Unsupported));
        }
        if steal && let Some((holder, _, stolen)) = self.web.take() {
            self.plan(holder, 5, What::Web(stolen.0, Web::Stolen));
        }
        if steal {
            self.web_queue.push_front((at, life, ticket));
        } else {
            self.web_queue.push_back((at, life, ticket));
        }
        self.pass_web_on();
    }

    fn drop_web(&mut self, at: usize, ticket: Ticket) {
        self.web_queue.retain(|(tab, _, waiting)| (*tab, *waiting) != (at, ticket));
        if self.web.is_some_and(|(tab, _, held)| (tab, held) == (at, ticket)) {
            self.web = None;
            self.pass_web_on();
        }
    }

    fn pass_web_on(&mut self) {
        if self.web.is_none()
            && let Some((at, life, ticket)) = self.web_queue.pop_front()
        {
            self.web = Some((at, life, ticket));
            self.plan(at, 5, What::Web(ticket.0, Web::Granted));
        }
    }

    // --- the folder, step by step ---

    /// The application saves. In an unfenced world it believes what it knew when it began.
    fn begin_save(&mut self, at: usize, call: CallId, claim: Proof) {
        let now = self.time();
        if self.mistake == Some(Mistake::Unfenced) {
            return self.plan(at, 12, What::UncheckedSave(claim.fence.get()));
        }
        let base = if self.mistake == Some(Mistake::Baseless) { Base::Overwrite } else { Base::LastSeen };
        // What is saved is made from what the application has in memory, and is in its memory from now on.
        let content = self.made_from.len() as u64;
        self.made_from.push(self.tabs.get(at).map_or(0, |tab| tab.memory));
        self.with(at, |tab| {
            tab.memory = content;
            tab.calls.insert(call.0);
            tab.saves.insert(call.0, (claim.fence.get(), content));
            let save = Save { claim, path: PATH.into(), version: version(content), base };
            tab.machine.save(call, save, now);
        });
    }

    /// The application loads the file.
    fn read(&mut self, at: usize) {
        let file = self.file;
        self.with(at, |tab| {
            tab.memory = file;
            tab.machine.saw(PATH, version(file));
        });
    }

    /// An application that hears that the project has changed loads it, most of the time.
    fn acquired(&mut self, at: usize, changed: bool) -> Option<&'static str> {
        let memory = self.tabs.get(at)?.memory;
        if changed && self.random.chance(700) {
            self.read(at);
        }
        let missed = !changed && !self.is_made_from(memory, self.file) && self.now > self.forced_until;
        missed.then_some("acquired without being told that the project has changed")
    }

    fn save_answered(&mut self, at: usize, call: CallId, saved: &Result<(), NotSaved>) {
        let save = self.tabs.get(at).and_then(|tab| tab.saves.get(&call.0));
        let content = save.map_or(0, |(_, content)| *content);
        match saved {
            Ok(()) if !self.is_made_from(self.file, content) => {
                let file = self.file;
                self.is_wrong(&format!(
                    "tab {at} saved {content}, and {file} is there, which is not made from it"
                ));
            }
            Ok(()) => self.acknowledged = content,
            Err(NotSaved::Lost(_)) => self.counts.refused += 1,
            Err(NotSaved::StaleBase(_)) => {
                self.counts.stale += 1;
                if self.is_made_from(content, self.file) {
                    self.is_wrong(&format!(
                        "tab {at} may not save {content}, although it is made from what is there"
                    ));
                }
                if self.random.chance(700) {
                    self.read(at);
                }
            }
            Err(NotSaved::Folder(_)) => {}
        }
    }

    /// Whether a content is another one, or was made from it.
    fn is_made_from(&self, content: u64, other: u64) -> bool {
        let mut at = content;
        while at > other {
            at = usize::try_from(at).ok().and_then(|at| self.made_from.get(at)).copied().unwrap_or(0);
        }
        at == other
    }

    fn io(&mut self, at: usize) {
        let Some(tab) = self.tabs.get_mut(at) else { return };
        let Some(step) = tab.io.take() else { return };
        if tab.forcing.is_some() {
            // The holder whose lock is taken may believe in it until it has looked.
            self.forced_until = self.now + 30_000;
        }
        let reply = self.take_step(at, &step);
        let now = self.time();
        self.with(at, |tab| tab.machine.handle_io(reply, now));
    }

    /// Takes a step. In trouble a write may fail, done or not, and the tab may be stopped between any two.
    fn take_step(&mut self, at: usize, step: &IoStep) -> IoReply {
        let writes = matches!(
            step,
            IoStep::WriteGuard(_)
                | IoStep::OpenHeld(_)
                | IoStep::WriteLock(_)
                | IoStep::RemoveLock
                | IoStep::Save(_)
        );
        if writes && self.troubled() && self.random.chance(4) {
            self.plan(at, 3, What::Stop { notice: false });
        }
        let fails = writes && self.troubled() && self.random.chance(20);
        let happens = !fails || self.random.chance(500);
        let reply = if happens { self.do_step(at, step) } else { IoReply::Done };
        if fails { IoReply::Failed { said: "no space".into() } } else { reply }
    }

    fn do_step(&mut self, at: usize, step: &IoStep) -> IoReply {
        if !matches!(step, IoStep::ReadGuard | IoStep::ReadLock | IoStep::TakeGuard { .. }) {
            self.tell(at, &format!("{step:?}"));
        }
        match step {
            IoStep::TakeGuard { .. } if self.guard.is_some() => return IoReply::Busy,
            IoStep::TakeGuard { .. } => self.guard = Some(at),
            IoStep::ReadGuard => return IoReply::Guard(self.last_fence),
            IoStep::ReadLock => return IoReply::Lock(self.read_lock()),
            IoStep::ProbeHeld(fence) => {
                return IoReply::Probe(match self.held.get(&fence.get()) {
                    None => Probe::Unknown,
                    Some(None) => Probe::Free,
                    Some(Some(_)) => Probe::Busy,
                });
            }
            IoStep::WriteGuard(fence) => self.last_fence = Some(*fence),
            IoStep::OpenHeld(fence) => {
                self.held.insert(fence.get(), Some(at));
            }
            IoStep::WriteLock(record) => {
                self.lock = Some((record.clone(), self.now));
                self.written(at, record);
            }
            IoStep::RemoveLock => self.lock = None,
            IoStep::Save(call) => {
                let save = self.tabs.get(at).and_then(|tab| tab.saves.get(&call.0)).copied();
                let (fence, content) = save.unwrap_or_default();
                self.save(at, fence);
                self.file = content;
                if !self.is_made_from(content, self.acknowledged) {
                    let lost = self.acknowledged;
                    self.is_wrong(&format!(
                        "tab {at} saved {content} over {lost}, which it is not made from"
                    ));
                }
            }
            // A tab that acquires does so when it has let the guard go.
            IoStep::ReadVersion(_) => return IoReply::Version(version(self.file)),
            IoStep::CloseHeld(fence) => {
                if let Some(Some(other)) = self.held.remove(&fence.get()).filter(|it| *it != Some(at)) {
                    self.is_wrong(&format!("tab {at} closes the held file of tab {other}"));
                }
            }
            IoStep::DropHeld(fence) => {
                let held = self.held.get_mut(&fence.get()).filter(|holder| **holder == Some(at));
                held.into_iter().for_each(|holder| *holder = None);
            }
            IoStep::SweepHeld { keep } => {
                self.held.retain(|fence, holder| *fence == keep.get() || holder.is_some());
            }
            IoStep::DropGuard => self.guard = self.guard.filter(|holder| *holder != at),
        }
        if self.guard != Some(at) && *step != IoStep::DropGuard {
            self.is_wrong(&format!("tab {at} does {step:?} without the guard"));
        }
        IoReply::Done
    }

    fn read_lock(&self) -> LockFile {
        match &self.lock {
            None => LockFile::Missing,
            Some((record, modified)) => LockFile::Read {
                content: Content::Record(record.clone()),
                modified: StoreTime::from_millis(*modified),
            },
        }
    }

    fn written(&mut self, at: usize, record: &Record) {
        let fence = record.fence.map_or(0, leasehold_core::Fence::get);
        if fence < self.newest {
            self.is_wrong(&format!("tab {at} wrote fence {fence} after {}", self.newest));
        } else if fence > self.newest {
            self.counts.granted += 1;
            self.newest = fence;
            let now = self.time();
            let lives = |other: usize| self.tabs.get(other).is_some_and(|tab| tab.machine.is_held(now));
            let asking = self.tabs.get(at).filter(|tab| tab.forcing.is_none()).and_then(|tab| tab.asking);
            if let Some(asking) = asking
                && self.now > self.forced_until
                && (0..self.tabs.len()).any(|other| other != at && lives(other))
            {
                self.taken_from_a_live_holder(at, asking);
            }
        }
    }

    fn save(&mut self, at: usize, fence: u64) {
        self.counts.saved += 1;
        if fence < self.newest {
            let newest = self.newest;
            self.is_wrong(&format!("tab {at} saved with fence {fence} after {newest} was granted"));
        }
    }

    // --- what must hold ---

    fn check(&mut self) {
        let now = self.time();
        let holders: Vec<usize> = (0..self.tabs.len())
            .filter(|at| self.tabs.get(*at).is_some_and(|tab| tab.machine.is_held(now)))
            .collect();
        if holders.len() > 1 && self.now > self.forced_until {
            self.is_wrong(&format!("tabs {holders:?} hold at once"));
        }
        if !holders.is_empty() || self.troubled() {
            self.held_at = self.now;
        } else if self.now > self.held_at + LONGEST_GAP {
            let states: Vec<_> = self.tabs.iter().map(|tab| tab.machine.state()).collect();
            self.is_wrong(&format!("no tab has held for {LONGEST_GAP} ms: {states:?}"));
        }
    }

    /// Every call was answered; a request to hand over has some seconds.
    fn check_end(&mut self) {
        let asks = |tab: &Tab| tab.asking.is_some_and(|asking| self.now < asking.since + LONGEST_REQUEST);
        let open = |tab: &Tab| {
            let is_at_rest = matches!(tab.machine.state(), State::Idle | State::Readonly);
            is_at_rest && tab.calls.len() > usize::from(asks(tab))
        };
        if let Some(at) = self.tabs.iter().position(open) {
            self.is_wrong(&format!("tab {at} has calls that were never answered"));
        }
    }

    fn tell(&mut self, at: usize, what: &str) {
        if self.story.len() == STORY {
            self.story.pop_front();
        }
        let time = self.now - START;
        self.story.push_back(format!("{time:>7} ms, tab {at}: {what}"));
    }

    fn is_wrong(&mut self, what: &str) {
        let at = self.now - START;
        self.wrong.get_or_insert(format!("after {at} ms: {what}"));
    }
}
