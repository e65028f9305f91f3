//! A seeded world of tabs around one project folder, each with the real [`ProjectLock`]: Web Locks that come late, guarded
//! sections that take their time, writes that fail, tabs that crash, stop, are frozen, and go on as if nothing had been.
//!
//! The walk of [`crate::project`] sees every state of a small world; this one sees the whole machine, with its timers, in
//! worlds that are too large for that. [`run`] says what was wrong, if anything was; the same seed gives the same world.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use leasehold_core::lease::Claim;
use leasehold_core::name::{Owner, Reason};
use leasehold_core::time::StoreTime;
use leasehold_project_rules::event::{AutosaveEvent, autosave};
use leasehold_project_rules::guarded::{Action, Found, LockFile, Outcome, Probe, Section, Step, Verdict};
use leasehold_project_rules::record::{Content, Record};
use leasehold_project_rules::{
    CallId, Effect, Event, Folder, IoError, IoKind, News, Now, Options, Profile, ProjectLock, ReleaseReason,
    State, Surroundings, Ticket, WebLock,
};
use leasehold_store::random::Random;

/// When every world begins: some day in 2026.
const START: u64 = 1_794_747_600_000;

/// How long things go wrong, and how long they then do not.
const TROUBLE: u64 = 10 * 60_000;
const PEACE: u64 = 5 * 60_000;

/// How long nobody may hold in peace: a tab that was stopped just before keeps the guard, if it had it, for up to 90 s.
const LONGEST_GAP: u64 = 130_000;

/// How long a shell waits for the guard.
const GUARD_PATIENCE: u64 = 2_000;

/// What a world saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the lock was granted.
    pub granted: u64,
    /// How often somebody saved.
    pub saved: u64,
    /// How often a save was refused under the guard.
    pub refused: u64,
    /// How often a tab became read-only.
    pub readonly: u64,
    /// How many tabs crashed, and how many were stopped or frozen.
    pub crashed: u64,
    /// The same.
    pub paused: u64,
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

/// How much of the story is kept.
const STORY: usize = 150;

/// Lives through the world of this seed. With `unfenced`, saves are not checked under the guard: a mistake on purpose.
pub fn run(seed: u64, unfenced: bool) -> Run {
    let mut world = World::new(seed, unfenced);
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
    /// The next bit of a guarded section.
    Io,
    Web(u32, Web),
    News(u64, bool),
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
    jobs: VecDeque<Job>,
    io: Io,
    timer: Option<u64>,
    calls: BTreeSet<u32>,
    last: Option<AutosaveEvent>,
    readonly: bool,
}

#[derive(Clone, Debug)]
enum Job {
    Machine(Ticket, Action),
    Save(Claim),
}

enum Io {
    Idle,
    Waiting { job: Job, since: u64 },
    Deciding { job: Job },
    Doing { job: Job, verdict: Verdict, done: usize },
}

struct World {
    random: Random,
    now: u64,
    unfenced: bool,
    turns: BinaryHeap<Reverse<(u64, u64, Turn)>>,
    order: u64,
    tabs: Vec<Tab>,
    calls: u32,
    // The folder.
    lock: Option<(Record, u64)>,
    guard_text: String,
    guard: Option<usize>,
    held: BTreeMap<u64, Option<usize>>,
    // The Web Lock.
    web: Option<(usize, u32, Ticket)>,
    web_queue: VecDeque<(usize, u32, Ticket)>,
    // What is known from outside.
    newest: u64,
    held_at: u64,
    forced_until: u64,
    counts: Counts,
    wrong: Option<String>,
    story: VecDeque<String>,
}

impl World {
    fn new(seed: u64, unfenced: bool) -> Self {
        let mut random = Random::new(seed);
        let tabs = random.between(2, 4);
        let mut world = Self {
            random,
            now: START,
            unfenced,
            turns: BinaryHeap::new(),
            order: 0,
            tabs: Vec::new(),
            calls: 0,
            lock: None,
            guard_text: String::new(),
            guard: None,
            held: BTreeMap::new(),
            web: None,
            web_queue: VecDeque::new(),
            newest: 0,
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
        Tab {
            machine: ProjectLock::new(Surroundings { owner, folder: Folder::Guarded, seed }),
            life,
            stopped: 0,
            has_web: self.random.chance(600),
            options: Options { auto_resume, reentrant, ..Options::of(profile) },
            jobs: VecDeque::new(),
            io: Io::Idle,
            timer: None,
            calls: BTreeSet::new(),
            last: None,
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
            What::Web(ticket, web) => {
                let what = match web {
                    Web::Granted => WebLock::Granted,
                    Web::Unsupported => WebLock::Unsupported,
                    Web::Stolen => WebLock::Stolen,
                };
                self.with(at, |tab| tab.machine.handle_web_lock(Ticket(ticket), what, now));
            }
            What::News(fence, acquired) => self.hear(at, fence, acquired),
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
                tab.machine.take_over(call, &tab.options, None, Reason::default(), now);
            }
            (None, _) if dice > 95 => tab.machine.abort(CallId(call.0.saturating_sub(1)), now),
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
                    tab.jobs.push_back(Job::Save(claim));
                    self.plan(at, 3, What::Io);
                }
            }
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

    fn hear(&mut self, at: usize, fence: u64, acquired: bool) {
        let Ok(fence) = leasehold_core::Fence::new(fence) else { return };
        let Ok(owner) = Owner::parse("somebody") else { return };
        let news =
            if acquired { News::Acquired { owner, fence, why: None } } else { News::Released { fence } };
        let now = self.time();
        self.with(at, |tab| tab.machine.handle_news(&news, now));
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
            Effect::Guarded { ticket, action } => {
                self.with(at, |tab| tab.jobs.push_back(Job::Machine(ticket, action)));
                self.plan(at, 3, What::Io);
            }
            Effect::Emit(event) => self.heard(at, &event),
            Effect::Broadcast(news) => {
                let (fence, acquired) = match news {
                    News::Acquired { fence, .. } => (fence.get(), true),
                    News::Released { fence } => (fence.get(), false),
                };
                // News may be lost.
                for other in (0..self.tabs.len()).filter(|other| *other != at) {
                    if !self.random.chance(200) {
                        self.plan(other, 20, What::News(fence, acquired));
                    }
                }
            }
            Effect::Settle { call, .. } => {
                let known = self.tabs.get_mut(at).is_some_and(|tab| tab.calls.remove(&call.0));
                if !known {
                    self.is_wrong(&format!("tab {at}: call {} was answered twice, or never made", call.0));
                }
            }
        }
    }

    fn heard(&mut self, at: usize, event: &Event) {
        self.tell(at, event.name());
        let mut wrong = None;
        let Some(tab) = self.tabs.get_mut(at) else { return };
        for told in autosave(event) {
            let retry = matches!(tab.last, Some(AutosaveEvent::Retry { retryable: false, .. }));
            if matches!(told, AutosaveEvent::Readonly { .. }) && !retry {
                wrong = Some("read-only without a retry before it");
            }
            tab.last = Some(told);
        }
        match event {
            Event::ReadonlyEntered { .. } => {
                self.counts.readonly += 1;
                if std::mem::replace(&mut tab.readonly, true) {
                    wrong = Some("read-only twice");
                }
            }
            Event::Attempt { .. } | Event::Acquired(_) => tab.readonly = false,
            _ => {}
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

    // --- guarded sections, bit by bit ---

    fn io(&mut self, at: usize) {
        let Some(tab) = self.tabs.get_mut(at) else { return };
        let io = match std::mem::replace(&mut tab.io, Io::Idle) {
            Io::Idle => match tab.jobs.pop_front() {
                Some(job) => Io::Waiting { job, since: self.now },
                None => return,
            },
            Io::Waiting { job, .. } if self.guard.is_none() => {
                self.guard = Some(at);
                Io::Deciding { job }
            }
            Io::Waiting { job, since } if self.now > since + GUARD_PATIENCE => {
                let error = IoError { kind: IoKind::GuardBusy, said: "busy".into() };
                return self.report(at, &job, Err(error));
            }
            Io::Waiting { job, since } => {
                self.plan_at(at, self.now + 7, What::Io);
                Io::Waiting { job, since }
            }
            Io::Deciding { job } => self.decide(job),
            Io::Doing { job, verdict, done } => return self.step(at, job, verdict, done),
        };
        let waits = matches!(io, Io::Waiting { since, .. } if since < self.now);
        self.with(at, |tab| tab.io = io);
        if !waits {
            self.plan(at, 4, What::Io);
        }
    }

    fn decide(&self, job: Job) -> Io {
        let action = match &job {
            Job::Machine(_, action) => action.clone(),
            Job::Save(claim) => Action::Commit(*claim),
        };
        let lock = match &self.lock {
            None => LockFile::Missing,
            Some((record, modified)) => LockFile::Read {
                content: Content::Record(record.clone()),
                modified: StoreTime::from_millis(*modified),
            },
        };
        let section = Section::new(action, &Found { lock, guard: self.guard_text.clone() });
        let probe = match section.probe().map(|fence| self.held.get(&fence.get())) {
            None | Some(None) => Probe::Unknown,
            Some(Some(None)) => Probe::Free,
            Some(Some(Some(_))) => Probe::Busy,
        };
        let verdict = section.decide(probe, StoreTime::from_millis(self.now));
        Io::Doing { job, verdict, done: 0 }
    }

    fn step(&mut self, at: usize, job: Job, verdict: Verdict, done: usize) {
        if matches!(job, Job::Machine(_, Action::TakeOver { .. })) {
            // The one that had it may believe in it until it has looked.
            self.forced_until = self.now + 30_000;
        }
        let Some(step) = verdict.steps.get(done).cloned() else {
            self.guard = None;
            let commits = verdict.outcome == Outcome::MayCommit || self.unfenced;
            if let Job::Save(claim) = &job
                && commits
            {
                self.save(at, claim);
            }
            return self.report(at, &job, Ok((verdict.outcome, verdict.skewed)));
        };
        if self.troubled() && self.random.chance(4) {
            self.plan(at, 3, What::Stop { notice: false });
        }
        let fails = self.troubled() && !step.may_fail() && self.random.chance(20);
        let happens = !fails || self.random.chance(500);
        if happens {
            self.do_step(at, &step);
        }
        if fails {
            if let Some(fence) = verdict.held() {
                self.held.entry(fence.get()).and_modify(|holder| *holder = None);
            }
            self.guard = None;
            let error = IoError { kind: IoKind::Write, said: "no space".into() };
            return self.report(at, &job, Err(error));
        }
        self.with(at, |tab| tab.io = Io::Doing { job, verdict, done: done + 1 });
        self.plan(at, 4, What::Io);
    }

    fn do_step(&mut self, at: usize, step: &Step) {
        self.tell(at, &format!("{step:?}"));
        match step {
            Step::StoreFence { text } => self.guard_text.clone_from(text),
            Step::OpenHeld(fence) => {
                self.held.insert(fence.get(), Some(at));
            }
            Step::WriteLock(record) => {
                self.lock = Some((record.clone(), self.now));
                self.written(at, record);
            }
            Step::RemoveLock => self.lock = None,
            Step::CloseHeld(fence) => {
                self.held.remove(&fence.get());
            }
            Step::SweepHeld { keep } => {
                self.held.retain(|fence, holder| *fence == keep.get() || holder.is_some());
            }
        }
    }

    fn written(&mut self, at: usize, record: &Record) {
        let fence = record.fence.map_or(0, leasehold_core::Fence::get);
        if fence < self.newest {
            self.is_wrong(&format!("tab {at} wrote fence {fence} after {}", self.newest));
        } else if fence > self.newest {
            self.counts.granted += 1;
            self.newest = fence;
        }
    }

    fn save(&mut self, at: usize, claim: &Claim) {
        self.counts.saved += 1;
        if claim.fence.get() < self.newest {
            let newest = self.newest;
            self.is_wrong(&format!("tab {at} saved with fence {} after {newest} was granted", claim.fence));
        }
    }

    fn report(&mut self, at: usize, job: &Job, done: Result<(Outcome, bool), IoError>) {
        let now = self.time();
        let refused = matches!(&done, Ok((Outcome::Lost(_), _)));
        if !matches!((job, &done), (Job::Save(_), Ok((Outcome::MayCommit, _)))) {
            self.tell(at, &format!("{job:?} came to {done:?}"));
        }
        let Some(tab) = self.tabs.get_mut(at) else { return };
        tab.io = Io::Idle;
        match (job, done) {
            (Job::Machine(ticket, _), Ok((outcome, skewed))) => {
                tab.machine.handle_guarded(*ticket, outcome, skewed, now);
            }
            (Job::Machine(ticket, _), Err(error)) => tab.machine.handle_io_error(*ticket, &error, now),
            (Job::Save(claim), Ok((outcome, _))) => {
                self.counts.refused += u64::from(refused);
                tab.machine.handle_commit(*claim, &outcome, now);
            }
            (Job::Save(_), Err(_)) => {}
        }
        self.drain(at);
        self.plan(at, 2, What::Io);
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
            self.is_wrong(&format!("nobody has held for {LONGEST_GAP} ms: {states:?}"));
        }
    }

    /// Every call was answered.
    fn check_end(&mut self) {
        let open =
            |tab: &Tab| matches!(tab.machine.state(), State::Idle | State::Readonly) && !tab.calls.is_empty();
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
