//! Every state of a small world around one project folder: two or three tabs, with and without Web Locks, that acquire,
//! renew, save, release, crash, freeze and fall asleep at any step. What is decided under the guard is decided by the real
//! [`Section`]; what is walked through is everything that can happen around it, within [`Bounds`].
//!
//! A frozen tab is one that makes no move while others do and time passes, so every way of freezing is among the walks. The
//! known-bad [`Algorithm`]s walk through the same world, and each of them must be found out.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;
use std::time::Duration;

use leasehold_core::lease::{Bid, Claim};
use leasehold_core::name::{Fence, LeaseId, Meta, Owner, Reason};
use leasehold_core::time::{StoreTime, Ttl};
use leasehold_project_rules::guarded::{Action, Found, LockFile, Outcome, Probe, Section, Step};
use leasehold_project_rules::options::usable;
use leasehold_project_rules::record::{Content, Record, guard_text, read_guard};

/// How long a step of time is: as much as clocks may differ.
const STEP: Duration = Duration::from_secs(2);

/// How long a lease lasts: its holder stops after two steps, others may come after three.
const TTL: Duration = Duration::from_secs(8);

/// The tab that is gone when the world begins, if it left a lock behind.
const GONE: u8 = 9;

/// How tabs go about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// As it is.
    Ours,
    /// Look whether `.lock` is free, then write it; no guard.
    ReadCheckWrite,
    /// Write it, then look whether one's own is still there; no guard.
    WriteThenVerify,
    /// Move a stale `.lock` out of the way, then create a new one; no guard.
    RenameClaim,
    /// A save checks the lease before it begins, and not in the guarded section that swaps the file.
    UnfencedCommit,
    /// Who has the Web Lock holds the project; who has none asks `.lock`.
    WebLockAsOwnership,
    /// One held file for everybody, instead of one for each fence.
    SharedHeld,
}

/// How much may happen in a small world.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Which tabs there are, and whether each has Web Locks.
    pub tabs: &'static [bool],
    /// Whether a tab that is gone left its lock behind.
    pub stale: bool,
    /// How many steps of time there are.
    pub steps: u8,
    /// How often each tab may try to acquire.
    pub attempts: u8,
    /// How often each tab renews, at most.
    pub renewals: u8,
    /// How often each tab saves, at most.
    pub saves: u8,
    /// How many tabs may crash.
    pub crashes: u8,
    /// How many writes may fail, done or not.
    pub failures: u8,
    /// How often the lock may be taken over by force.
    pub take_overs: u8,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Walk {
    /// How many different states there are.
    pub states: usize,
    /// In how many of them a dead holder's lock was there to be taken, and could be.
    pub recoveries: usize,
    /// The shortest way to a state that must not be, if there is one, and what is wrong with it.
    pub counterexample: Option<(String, Vec<String>)>,
}

/// What a tab wants of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Want {
    Acquire,
    TakeOver,
    Renew,
    Save,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Nothing,
    /// In the queue of the Web Lock.
    Queued,
    /// Waiting for the guard.
    Wanting(Want),
    /// Has the guard; what was decided, and how many steps of it are done.
    Guarded(Want, u16, u8),
    Holding,
    /// Without a guard: has looked, and will write.
    Looked,
    /// Without a guard: has moved a stale lock away, and will create its own.
    Moved,
    /// Without a guard: has written, and will look again.
    Written,
    /// Has checked its lease, and will swap the file without the guard.
    Swapping,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tab {
    at: At,
    attempt: u8,
    /// The fence of its lease, if it has or had one.
    fence: u8,
    /// When the last successful request was sent, and when the one that is under way was.
    confirmed: u8,
    sent: u8,
    renewals: u8,
    saves: u8,
}

const NEW: Tab = Tab { at: At::Nothing, attempt: 0, fence: 0, confirmed: 0, sent: 0, renewals: 0, saves: 0 };

/// `.lock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lock {
    tab: u8,
    attempt: u8,
    fence: u8,
    written: u8,
    held: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    time: u8,
    tabs: Vec<Tab>,
    lock: Option<Lock>,
    /// The last fence, in the guard.
    last_fence: u8,
    /// Who has the guard.
    guard: Option<u8>,
    /// Who has the Web Lock.
    web: Option<u8>,
    /// The held files that are there, and who has them open.
    held: Vec<(u8, Option<u8>)>,
    /// The largest fence that was granted.
    granted: u8,
    crashes: u8,
    failures: u8,
    take_overs: u8,
    forced: bool,
}

/// What was decided under the guard, in small numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Plan {
    steps: Vec<Do>,
    comes_to: ComesTo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Do {
    StoreFence(u8),
    OpenHeld(u8),
    Write(Lock),
    Remove,
    CloseHeld(u8),
    Sweep(u8),
    Swap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ComesTo {
    Granted(u8),
    Renewed,
    Released,
    Saved,
    Refused,
}

/// What the rules are asked: everything that a decision depends on.
type Question = (Want, u8, u8, u8, Option<Lock>, u8, Option<bool>, u8);

/// The rules, asked once per question.
#[derive(Default)]
struct Rules {
    known: HashMap<Question, u16>,
    plans: Vec<Plan>,
}

/// Something that happens; its words are needed only in a counterexample.
#[derive(Clone, Copy, Debug)]
enum Move {
    Time(u8),
    Tab(u8, &'static str),
    Does(u8, Do),
    Fails(u8, Do, bool),
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => write!(f, "{} s have passed", u64::from(*time) * STEP.as_secs()),
            Self::Tab(tab, does) => write!(f, "tab {tab} {does}"),
            Self::Does(tab, step) => write!(f, "tab {tab}, under the guard: {step:?}"),
            Self::Fails(tab, step, done) => {
                write!(
                    f,
                    "tab {tab}, under the guard: {step:?} fails, {}",
                    if *done { "done" } else { "not done" }
                )
            }
        }
    }
}

/// Walks through every state that can be reached, nearest first. Of the states seen, only a hash of 64 bits is kept.
pub fn walk(bounds: &Bounds, algorithm: Algorithm) -> Walk {
    let mut rules = Rules::default();
    let start = State::start(bounds);
    let mut known = HashSet::from([start.hash()]);
    let mut came_from: Vec<(u32, Move)> = vec![(0, Move::Time(0))];
    let mut frontier = vec![(0, start)];
    let mut recoveries = 0;
    while !frontier.is_empty() {
        let mut next_frontier = Vec::new();
        for (from, state) in frontier {
            for (action, next, wrong) in state.successors(bounds, algorithm, &mut rules) {
                if !known.insert(next.hash()) && wrong.is_none() {
                    continue;
                }
                came_from.push((from, action));
                let wrong = wrong.or_else(|| next.wrong(algorithm, &mut rules, &mut recoveries));
                if let Some(wrong) = wrong {
                    let counterexample = Some((wrong, trace(&came_from)));
                    return Walk { states: known.len(), recoveries, counterexample };
                }
                next_frontier.push((u32::try_from(came_from.len() - 1).unwrap_or(0), next));
            }
        }
        frontier = next_frontier;
    }
    Walk { states: known.len(), recoveries, counterexample: None }
}

/// The way to the state that was found last.
fn trace(came_from: &[(u32, Move)]) -> Vec<String> {
    let mut at = came_from.len() - 1;
    let mut moves = Vec::new();
    while let Some((from, action)) = came_from.get(at).filter(|_| at != 0) {
        moves.push(action.to_string());
        at = *from as usize;
    }
    moves.reverse();
    moves
}

/// Adds a state that may follow, given what is done and how that changes this one.
type Go<'a> = dyn FnMut(&'static str, &dyn Fn(&mut State)) + 'a;

/// A state that may follow, and what is wrong with how it came about.
type Next = (Move, State, Option<String>);

impl State {
    fn start(bounds: &Bounds) -> Self {
        let lock = Lock { tab: GONE, attempt: 1, fence: 1, written: 0, held: false };
        let (lock, fence) = if bounds.stale { (Some(lock), 1) } else { (None, 0) };
        Self {
            time: if bounds.stale { 3 } else { 0 },
            tabs: vec![NEW; bounds.tabs.len()],
            lock,
            last_fence: fence,
            guard: None,
            web: None,
            held: Vec::new(),
            granted: fence,
            crashes: bounds.crashes,
            failures: bounds.failures,
            take_overs: bounds.take_overs,
            forced: false,
        }
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    // --- what must not be ---

    fn wrong(&self, algorithm: Algorithm, rules: &mut Rules, recoveries: &mut usize) -> Option<String> {
        let believers: Vec<usize> = (0..self.tabs.len()).filter(|at| self.believes(*at)).collect();
        if let ([one, other, ..], false) = (believers.as_slice(), self.forced) {
            return Some(format!("tabs {one} and {other} both believe that they hold"));
        }
        if algorithm != Algorithm::Ours {
            return None;
        }
        self.is_stuck(rules, recoveries)
    }

    /// Whether the tab thinks that it may act.
    fn believes(&self, at: usize) -> bool {
        self.tabs.get(at).is_some_and(|tab| {
            let holds = matches!(
                tab.at,
                At::Holding
                    | At::Swapping
                    | At::Wanting(Want::Renew | Want::Save)
                    | At::Guarded(Want::Renew | Want::Save, ..)
            );
            holds && self.time < tab.confirmed + stops_after()
        })
    }

    /// Liveness: whoever asks next gets the lock of a holder that is dead, or whose time is over.
    fn is_stuck(&self, rules: &mut Rules, recoveries: &mut usize) -> Option<String> {
        let lock = self.lock?;
        let owner = self.tabs.get(usize::from(lock.tab)).map(|tab| tab.at);
        let dead = matches!(owner, Some(At::Dead)) && lock.held;
        let over = self.time >= lock.written + free_after();
        let asks = (0..self.tabs.len()).find(|at| {
            small(*at) != lock.tab && self.tabs.get(*at).is_some_and(|tab| tab.at == At::Nothing)
        })?;
        if self.guard.is_some() || !(dead || over) {
            return None;
        }
        let mut asking = self.clone();
        if let Some(tab) = asking.tabs.get_mut(asks) {
            tab.attempt += 1;
        }
        let plan = asking.ask(asks, Want::Acquire, false, rules);
        *recoveries += 1;
        match rules.plans.get(usize::from(plan)).map(|plan| plan.comes_to) {
            Some(ComesTo::Granted(_)) => None,
            other => Some(format!("the lock of tab {} cannot be taken by tab {asks}: {other:?}", lock.tab)),
        }
    }

    // --- what can happen ---

    fn successors(&self, bounds: &Bounds, algorithm: Algorithm, rules: &mut Rules) -> Vec<Next> {
        let mut all = Vec::new();
        if self.time < bounds.steps {
            all.push((Move::Time(self.time + 1), Self { time: self.time + 1, ..self.clone() }, None));
        }
        for at in 0..self.tabs.len() {
            match algorithm {
                Algorithm::ReadCheckWrite | Algorithm::WriteThenVerify | Algorithm::RenameClaim => {
                    self.unguarded(at, bounds, algorithm, rules, &mut all);
                }
                _ => self.guarded(at, bounds, algorithm, rules, &mut all),
            }
            self.crash(at, &mut all);
        }
        all.iter_mut().for_each(|(_, next, _)| next.tidy());
        all
    }

    fn crash(&self, at: usize, all: &mut Vec<Next>) {
        let alive = self.tabs.get(at).is_some_and(|tab| !matches!(tab.at, At::Dead | At::Nothing));
        if self.crashes == 0 || !alive {
            return;
        }
        let who = small(at);
        let mut next = self.clone();
        next.crashes -= 1;
        next.guard = next.guard.filter(|holder| *holder != who);
        next.web = next.web.filter(|holder| *holder != who);
        next.close(|(_, holder)| *holder == Some(who));
        next.set(at, |tab| tab.at = At::Dead);
        all.push((Move::Tab(who, "crashes"), next, None));
    }

    /// What a tab may do that goes through the guard.
    fn guarded(
        &self,
        at: usize,
        bounds: &Bounds,
        algorithm: Algorithm,
        rules: &mut Rules,
        all: &mut Vec<Next>,
    ) {
        let Some(tab) = self.tabs.get(at).copied() else { return };
        let who = small(at);
        let mut go = |does, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            all.push((Move::Tab(who, does), next, None));
        };
        match tab.at {
            At::Nothing if tab.attempt < bounds.attempts && self.may_begin(at, bounds) => {
                let has_web = bounds.tabs.get(at).copied().unwrap_or(false);
                if has_web {
                    go("queues up for the Web Lock", &|next| next.begin(at, At::Queued));
                } else {
                    go("asks for the lock", &|next| next.begin(at, At::Wanting(Want::Acquire)));
                }
                if self.take_overs > 0 {
                    go("takes over", &|next| {
                        next.take_overs -= 1;
                        next.begin(at, At::Wanting(Want::TakeOver));
                    });
                }
            }
            At::Queued => self.queued(at, algorithm, &mut go),
            At::Wanting(want) if self.guard.is_none() => {
                let shared = algorithm == Algorithm::SharedHeld;
                let plan = self.ask(at, want, shared, rules);
                go(name(want), &|next| {
                    next.guard = Some(who);
                    next.set(at, |tab| tab.at = At::Guarded(want, plan, 0));
                });
            }
            At::Guarded(want, plan, done) => {
                let Some(plan) = rules.plans.get(usize::from(plan)) else { return };
                self.in_guard(at, want, plan, done, algorithm, all);
            }
            At::Holding => self.holding(at, &tab, bounds, algorithm, &mut go),
            At::Swapping => {
                let mut next = self.clone();
                let wrong = next.swap(at);
                next.set(at, |tab| tab.at = At::Holding);
                all.push((Move::Tab(who, "swaps the file"), next, wrong));
            }
            _ => {}
        }
    }

    fn queued(&self, at: usize, algorithm: Algorithm, go: &mut Go<'_>) {
        let owns = algorithm == Algorithm::WebLockAsOwnership;
        if self.web.is_none() {
            go("is given the Web Lock", &|next| {
                next.web = Some(small(at));
                let then = if owns { At::Holding } else { At::Wanting(Want::Acquire) };
                next.set(at, |tab| tab.at = then);
                next.stamp(at, owns);
            });
        }
        go("does not wait for the Web Lock", &|next| {
            next.set(at, |tab| tab.at = At::Wanting(Want::Acquire));
            next.stamp(at, false);
        });
    }

    fn holding(&self, at: usize, tab: &Tab, bounds: &Bounds, algorithm: Algorithm, go: &mut Go<'_>) {
        if self.believes(at) {
            if tab.renewals < bounds.renewals {
                go("wants to renew", &|next| {
                    next.set(at, |tab| (tab.at, tab.renewals) = (At::Wanting(Want::Renew), tab.renewals + 1));
                    next.stamp(at, false);
                });
            }
            if tab.saves < bounds.saves {
                let how = match algorithm {
                    Algorithm::UnfencedCommit | Algorithm::WebLockAsOwnership => At::Swapping,
                    _ => At::Wanting(Want::Save),
                };
                go("begins to save", &|next| {
                    next.set(at, |tab| (tab.at, tab.saves) = (how, tab.saves + 1));
                });
            }
        }
        // Of its own will, or because it finds out that its time is over.
        go("lets go", &|next| next.set(at, |tab| tab.at = At::Wanting(Want::Release)));
    }

    /// The next step of what was decided; or, after the last, the end of the section.
    fn in_guard(
        &self,
        at: usize,
        want: Want,
        plan: &Plan,
        done: u8,
        algorithm: Algorithm,
        all: &mut Vec<Next>,
    ) {
        let who = small(at);
        let Some(step) = plan.steps.get(usize::from(done)).copied() else {
            let mut next = self.clone();
            next.leave(at, want, plan.comes_to);
            all.push((Move::Tab(who, "lets the guard go"), next, None));
            return;
        };
        let mut next = self.clone();
        let wrong = next.perform(at, step, algorithm);
        next.set(at, |tab| {
            if let At::Guarded(_, _, done) = &mut tab.at {
                *done += 1;
            }
        });
        if self.failures > 0 && matches!(step, Do::Write(_) | Do::Remove | Do::StoreFence(_)) {
            for (mut failed, happened) in [(self.clone(), false), (next.clone(), true)] {
                failed.failures -= 1;
                failed.fail(at, want, plan);
                all.push((Move::Fails(who, step, happened), failed, None));
            }
        }
        all.push((Move::Does(who, step), next, wrong));
    }

    fn perform(&mut self, at: usize, step: Do, algorithm: Algorithm) -> Option<String> {
        let who = small(at);
        match step {
            Do::StoreFence(fence) => self.last_fence = fence,
            Do::OpenHeld(fence) => self.open_held(who, fence),
            Do::Write(lock) => {
                self.lock = Some(Lock { written: self.time, ..lock });
                if lock.fence > self.granted {
                    self.forced |= self.take_overs_by(at);
                    self.granted = lock.fence;
                } else if lock.tab != who || self.fence_of(at) != lock.fence && algorithm == Algorithm::Ours {
                    // A lock that is written again is the writer's own, or one whose write was thought to have failed.
                    let again = self.tabs.get(at).is_some_and(|tab| tab.attempt == lock.attempt);
                    return (!again).then(|| format!("fence {} was granted before", lock.fence));
                }
            }
            Do::Remove => self.lock = None,
            Do::CloseHeld(fence) => {
                self.held
                    .retain(|(file, holder)| *file != fence || holder.is_some_and(|holder| holder != who));
            }
            Do::Sweep(keep) => self.held.retain(|(file, holder)| *file == keep || holder.is_some()),
            Do::Swap => return self.swap(at),
        }
        None
    }

    fn take_overs_by(&self, at: usize) -> bool {
        self.tabs.get(at).is_some_and(|tab| matches!(tab.at, At::Guarded(Want::TakeOver, ..)))
    }

    /// A held file that somebody else has open stays theirs.
    fn open_held(&mut self, who: u8, fence: u8) {
        match self.held.iter_mut().find(|(file, _)| *file == fence) {
            Some((_, holder)) => *holder = holder.or(Some(who)),
            None => {
                let place = self.held.partition_point(|(file, _)| *file < fence);
                self.held.insert(place, (fence, Some(who)));
            }
        }
    }

    /// A save takes effect. It must be the one of the newest owner.
    fn swap(&mut self, at: usize) -> Option<String> {
        let fence = self.fence_of(at);
        (fence < self.granted)
            .then(|| format!("tab {at} saves with fence {fence}, after {} was granted", self.granted))
    }

    /// The guarded section is over, and came to something.
    fn leave(&mut self, at: usize, want: Want, comes_to: ComesTo) {
        let (who, time) = (small(at), self.time);
        self.guard = None;
        let keeps_web = matches!(comes_to, ComesTo::Granted(_) | ComesTo::Renewed | ComesTo::Saved);
        if !keeps_web {
            self.web = self.web.filter(|holder| *holder != who);
        }
        self.set(at, |tab| match comes_to {
            ComesTo::Granted(fence) => {
                tab.fence = fence;
                tab.confirmed = tab.sent;
                // A grant that comes after the deadline is given back.
                let late = time >= tab.sent + stops_after();
                tab.at = if late { At::Wanting(Want::Release) } else { At::Holding };
            }
            ComesTo::Renewed if time < tab.confirmed + stops_after() => {
                tab.confirmed = tab.sent;
                tab.at = At::Holding;
            }
            ComesTo::Renewed => tab.at = At::Wanting(Want::Release),
            ComesTo::Saved => tab.at = At::Holding,
            ComesTo::Refused if want == Want::Renew || want == Want::Save => {
                tab.at = At::Wanting(Want::Release);
            }
            ComesTo::Released | ComesTo::Refused => tab.at = At::Nothing,
        });
    }

    /// A step failed: the section ends there. The held file that it is about is closed, and stays where it is.
    fn fail(&mut self, at: usize, want: Want, plan: &Plan) {
        let who = small(at);
        self.guard = None;
        for step in &plan.steps {
            if let Do::OpenHeld(fence) | Do::CloseHeld(fence) = step {
                self.close(|held| *held == (*fence, Some(who)));
            }
        }
        if want != Want::Renew && want != Want::Save {
            self.web = self.web.filter(|holder| *holder != who);
        }
        self.set(at, |tab| {
            tab.at = match want {
                // It may try again, under the same lease id.
                Want::Acquire | Want::TakeOver => {
                    tab.attempt = tab.attempt.saturating_sub(1);
                    At::Nothing
                }
                Want::Renew | Want::Save => At::Holding,
                Want::Release => At::Wanting(Want::Release),
            };
        });
    }

    // --- without a guard ---

    fn unguarded(
        &self,
        at: usize,
        bounds: &Bounds,
        algorithm: Algorithm,
        rules: &mut Rules,
        all: &mut Vec<Next>,
    ) {
        let Some(tab) = self.tabs.get(at).copied() else { return };
        let who = small(at);
        let mut go = |does, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            all.push((Move::Tab(who, does), next, None));
        };
        let own = self.lock.is_some_and(|lock| lock.tab == who);
        match tab.at {
            At::Nothing
                if tab.attempt < bounds.attempts
                    && self.may_begin(at, bounds)
                    && self.looks_free(at, rules) =>
            {
                go("finds the lock free", &|next| next.begin(at, At::Looked));
            }
            At::Looked if algorithm == Algorithm::RenameClaim => match self.lock {
                Some(_) => go("moves the stale lock away", &|next| {
                    next.lock = None;
                    next.set(at, |tab| tab.at = At::Moved);
                }),
                None => go("creates the lock", &|next| next.write(at, At::Holding)),
            },
            // Creating fails where there is one.
            At::Moved if self.lock.is_none() => go("creates the lock", &|next| next.write(at, At::Holding)),
            At::Looked if algorithm == Algorithm::WriteThenVerify => {
                go("writes the lock", &|next| next.write(at, At::Written));
            }
            At::Looked => go("writes the lock", &|next| next.write(at, At::Holding)),
            At::Written if own => go("sees its own lock", &|next| next.set(at, |tab| tab.at = At::Holding)),
            At::Written => go("sees another lock", &|next| next.set(at, |tab| tab.at = At::Nothing)),
            _ => {}
        }
    }

    fn looks_free(&self, at: usize, rules: &mut Rules) -> bool {
        let mut asking = self.clone();
        asking.set(at, |tab| tab.attempt += 1);
        let plan = asking.ask(at, Want::Acquire, false, rules);
        let comes_to = rules.plans.get(usize::from(plan)).map(|plan| plan.comes_to);
        matches!(comes_to, Some(ComesTo::Granted(_)))
    }

    fn write(&mut self, at: usize, then: At) {
        let fence = self.granted + 1;
        let attempt = self.tabs.get(at).map_or(0, |tab| tab.attempt);
        self.lock = Some(Lock { tab: small(at), attempt, fence, written: self.time, held: false });
        self.granted = fence;
        self.set(at, |tab| (tab.fence, tab.confirmed, tab.at) = (fence, tab.sent, then));
    }

    // --- small things ---

    fn set(&mut self, at: usize, change: impl FnOnce(&mut Tab)) {
        if let Some(tab) = self.tabs.get_mut(at) {
            change(tab);
        }
    }

    fn begin(&mut self, at: usize, to: At) {
        self.set(at, |tab| (tab.at, tab.attempt) = (to, tab.attempt + 1));
        self.stamp(at, false);
    }

    /// A request is sent now; with `granted`, it is also answered.
    fn stamp(&mut self, at: usize, granted: bool) {
        let time = self.time;
        self.set(at, |tab| {
            tab.sent = time;
            if granted {
                tab.confirmed = time;
            }
        });
    }

    fn close(&mut self, which: impl Fn(&(u8, Option<u8>)) -> bool) {
        self.held.iter_mut().filter(|held| which(held)).for_each(|(_, holder)| *holder = None);
    }

    /// Forgets what no future depends on, so that states that differ only in their past are one.
    fn tidy(&mut self) {
        for tab in &mut self.tabs {
            match tab.at {
                At::Dead => *tab = Tab { at: At::Dead, attempt: 1, ..NEW },
                At::Nothing => (tab.fence, tab.confirmed, tab.sent) = (0, 0, 0),
                At::Wanting(Want::Acquire | Want::TakeOver) | At::Queued => {
                    (tab.fence, tab.confirmed) = (0, 0);
                }
                At::Wanting(Want::Release) | At::Guarded(Want::Release, ..) => {
                    (tab.confirmed, tab.sent) = (0, 0);
                }
                At::Holding => tab.sent = tab.confirmed,
                _ => {}
            }
        }
    }

    fn fence_of(&self, at: usize) -> u8 {
        self.tabs.get(at).map_or(0, |tab| tab.fence)
    }

    /// Tabs of one kind are alike: it is enough to look at the worlds in which they begin in their order.
    fn may_begin(&self, at: usize, bounds: &Bounds) -> bool {
        let alike = |other: &(usize, &Tab)| bounds.tabs.get(other.0) == bounds.tabs.get(at);
        let mut earlier = self.tabs.iter().enumerate().take(at).filter(alike);
        earlier.all(|(_, tab)| tab.attempt > 0)
    }

    /// Asks the rules what to do.
    fn ask(&self, at: usize, want: Want, shared: bool, rules: &mut Rules) -> u16 {
        let Some(tab) = self.tabs.get(at) else { return 0 };
        let file = self.lock.map(|lock| if shared { 0 } else { lock.fence });
        let open = file.and_then(|file| self.held.iter().find(|(held, _)| *held == file));
        let open = open.map(|(_, holder)| holder.is_some());
        let question = (want, small(at), tab.attempt, tab.fence, self.lock, self.last_fence, open, self.time);
        rules.ask(question, shared)
    }
}

impl Rules {
    fn ask(&mut self, question: Question, shared: bool) -> u16 {
        if let Some(known) = self.known.get(&question) {
            return *known;
        }
        let plan = decide(&question, shared);
        let place = self.plans.iter().position(|known| *known == plan).unwrap_or(self.plans.len());
        if place == self.plans.len() {
            self.plans.push(plan);
        }
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        self.known.insert(question, place);
        place
    }
}

/// The real rules, on the files that the small numbers stand for.
fn decide(&(want, who, attempt, fence, lock, last_fence, open, time): &Question, shared: bool) -> Plan {
    let claim = || Claim { lease_id: lease_id(who, attempt), fence: a_fence(fence) };
    let bid =
        || Bid { lease_id: lease_id(who, attempt), owner: OWNER.clone(), ttl: ttl(), meta: Meta::default() };
    let action = match want {
        Want::Acquire => Action::Acquire(bid()),
        Want::TakeOver => Action::TakeOver { seen: None, bid: bid(), reason: Reason::default() },
        Want::Renew => Action::Renew { claim: claim(), ttl: ttl() },
        Want::Save => Action::Commit(claim()),
        Want::Release => Action::Release(claim()),
    };
    let found = Found { lock: lock_file(lock), guard: guard_text(u64::from(last_fence)) };
    let section = Section::new(action, &found);
    let probe = match (section.probe(), open) {
        (None, _) | (_, None) => Probe::Unknown,
        (Some(_), Some(true)) => Probe::Busy,
        (Some(_), Some(false)) => Probe::Free,
    };
    let verdict = section.decide(probe, store_time(time));
    let file = |fence: &Fence| if shared { 0 } else { small_fence(*fence) };
    let mut steps: Vec<Do> = verdict.steps.iter().map(|step| done(step, file)).collect();
    let comes_to = match verdict.outcome {
        Outcome::Granted(grant) => ComesTo::Granted(small_fence(grant.fence)),
        Outcome::Renewed(_) => ComesTo::Renewed,
        Outcome::Released => ComesTo::Released,
        Outcome::MayCommit => {
            steps.push(Do::Swap);
            ComesTo::Saved
        }
        _ => ComesTo::Refused,
    };
    Plan { steps, comes_to }
}

fn done(step: &Step, file: impl Fn(&Fence) -> u8) -> Do {
    match step {
        Step::StoreFence { text } => Do::StoreFence(read_guard(text).map_or(u8::MAX, small)),
        Step::OpenHeld(fence) => Do::OpenHeld(file(fence)),
        Step::WriteLock(record) => Do::Write(lock_of(record)),
        Step::RemoveLock => Do::Remove,
        Step::CloseHeld(fence) => Do::CloseHeld(file(fence)),
        Step::SweepHeld { keep } => Do::Sweep(file(keep)),
    }
}

// --- what the small numbers stand for ---

fn lock_file(lock: Option<Lock>) -> LockFile {
    let Some(lock) = lock else { return LockFile::Missing };
    let record = Record {
        lease_id: lease_id(lock.tab, lock.attempt),
        owner: OWNER.clone(),
        updated_at: store_time(lock.written),
        ttl: ttl(),
        fence: Some(a_fence(lock.fence)),
        seq: 0,
        held: lock.held,
    };
    LockFile::Read { content: Content::Record(record), modified: store_time(lock.written) }
}

fn lock_of(record: &Record) -> Lock {
    let [tab, attempt, ..] = *record.lease_id.as_bytes();
    Lock { tab, attempt, fence: record.fence.map_or(0, small_fence), written: 0, held: record.held }
}

/// After how many steps of time a holder stops, and after how many others may come.
fn stops_after() -> u8 {
    small(usable(ttl(), ttl()).as_secs() / STEP.as_secs())
}

fn free_after() -> u8 {
    small((TTL - leasehold_project_rules::record::SKEW).as_secs() / STEP.as_secs())
}

const fn name(want: Want) -> &'static str {
    match want {
        Want::Acquire => "has the guard, to acquire",
        Want::TakeOver => "has the guard, to take over",
        Want::Renew => "has the guard, to renew",
        Want::Save => "has the guard, to save",
        Want::Release => "has the guard, to release",
    }
}

fn ttl() -> Ttl {
    Ttl::new(TTL).unwrap_or(Ttl::MIN)
}

fn store_time(step: u8) -> StoreTime {
    StoreTime::ZERO + STEP * u32::from(step)
}

#[allow(clippy::expect_used)] // a constant that parses
static OWNER: LazyLock<Owner> = LazyLock::new(|| Owner::parse("tab").expect("a name"));

fn lease_id(tab: u8, attempt: u8) -> LeaseId {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (tab, attempt);
    LeaseId::from_random(bytes)
}

#[allow(clippy::expect_used)] // at least 1, and small
fn a_fence(number: u8) -> Fence {
    Fence::new(u64::from(number.max(1))).expect("a fence")
}

fn small_fence(fence: Fence) -> u8 {
    small(fence.get())
}

fn small(number: impl TryInto<u8>) -> u8 {
    number.try_into().unwrap_or(u8::MAX)
}
