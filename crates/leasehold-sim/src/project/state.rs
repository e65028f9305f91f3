//! A state of the walk, and what must not be in one.

use std::cell::Cell;
use std::fmt;

use super::numbers::{free_after, small, stops_after};
use super::sections::{ComesTo, Do, Reply, SectionId, Sections};
use super::{Algorithm, Bounds};

/// The tab that is gone when the world begins, if it left a lock behind.
const GONE: u8 = 9;

/// What a tab wants of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Want {
    Acquire,
    TakeOver,
    Renew,
    Save,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    Nothing,
    /// In the queue of the Web Lock.
    Queued,
    /// Waiting for the guard.
    Wanting(Want),
    /// Has the guard, and is at this point of its section.
    Guarded(Want, SectionId),
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
pub(super) struct Tab {
    pub(super) at: At,
    pub(super) attempt: u8,
    /// The fence of its lease, if it has or had one.
    pub(super) fence: u8,
    /// When the last successful request was sent, and when the one that is under way was.
    pub(super) confirmed: u8,
    pub(super) sent: u8,
    pub(super) renewals: u8,
    pub(super) saves: u8,
    /// What it has in memory was made from this content of the file.
    pub(super) seen: u8,
}

const NEW: Tab =
    Tab { at: At::Nothing, attempt: 0, fence: 0, confirmed: 0, sent: 0, renewals: 0, saves: 0, seen: 0 };

/// `.lock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    pub(super) tab: u8,
    pub(super) attempt: u8,
    pub(super) fence: u8,
    pub(super) written: u8,
    pub(super) held: bool,
}

/// A law that the last move broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Broken {
    GrantedTwice { fence: u8 },
    SavedLate { tab: u8, fence: u8, granted: u8 },
    Overwrote { tab: u8, lost: u8, seen: u8 },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GrantedTwice { fence } => write!(f, "fence {fence} was granted before"),
            Self::SavedLate { tab, fence, granted } => {
                write!(f, "tab {tab} saves with fence {fence}, after {granted} was granted")
            }
            Self::Overwrote { tab, lost, seen } => {
                write!(f, "tab {tab} overwrites save {lost} with what it made from {seen}")
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) time: u8,
    pub(super) tabs: Vec<Tab>,
    pub(super) lock: Option<Lock>,
    /// The last fence, in the guard.
    pub(super) last_fence: u8,
    /// Who has the guard.
    pub(super) guard: Option<u8>,
    /// Who has the Web Lock.
    pub(super) web: Option<u8>,
    /// The held files that are there, and who has them open.
    pub(super) held: Vec<(u8, Option<u8>)>,
    /// What is in the file of the project, by the number of the save; 0 when there is no file.
    pub(super) file: u8,
    /// The largest fence that was granted.
    pub(super) granted: u8,
    pub(super) crashes: u8,
    pub(super) failures: u8,
    pub(super) take_overs: u8,
    pub(super) forced: bool,
    pub(super) broken: Option<Broken>,
}

impl State {
    pub(super) fn start(bounds: &Bounds) -> Self {
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
            file: 0,
            granted: fence,
            crashes: bounds.crashes,
            failures: bounds.failures,
            take_overs: bounds.take_overs,
            forced: false,
            broken: None,
        }
    }

    // --- what must not be ---

    pub(super) fn wrong(
        &self,
        algorithm: Algorithm,
        sections: &mut Sections,
        recoveries: &Cell<usize>,
    ) -> Option<String> {
        if let Some(broken) = self.broken {
            return Some(broken.to_string());
        }
        let believers: Vec<usize> = (0..self.tabs.len()).filter(|at| self.believes(*at)).collect();
        if let ([one, other, ..], false) = (believers.as_slice(), self.forced) {
            return Some(format!("tabs {one} and {other} both believe that they hold"));
        }
        if algorithm != Algorithm::Ours {
            return None;
        }
        self.is_stuck(sections, recoveries)
    }

    /// Whether the tab thinks that it may act.
    pub(super) fn believes(&self, at: usize) -> bool {
        self.tabs.get(at).is_some_and(|tab| {
            let holds = matches!(
                tab.at,
                At::Holding
                    | At::Swapping
                    | At::Wanting(Want::Renew | Want::Save)
                    | At::Guarded(Want::Renew | Want::Save, _)
            );
            holds && self.time < tab.confirmed + stops_after()
        })
    }

    /// Liveness: the next caller gets the lock of a holder that is dead, or whose time is over.
    fn is_stuck(&self, sections: &mut Sections, recoveries: &Cell<usize>) -> Option<String> {
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
        recoveries.set(recoveries.get() + 1);
        match self.acquire_would_come_to(asks, sections) {
            Some(ComesTo::Granted(_)) => None,
            other => Some(format!("the lock of tab {} cannot be taken by tab {asks}: {other:?}", lock.tab)),
        }
    }

    /// What an acquire of this tab would come to, if it were made now and no step of it failed.
    pub(super) fn acquire_would_come_to(&self, at: usize, sections: &mut Sections) -> Option<ComesTo> {
        let attempt = self.tabs.get(at)?.attempt + 1;
        let begun = sections.begin(Want::Acquire, small(at), attempt, 0, None);
        let mut section = self.read(begun, false, sections);
        while sections.step(section).is_some() {
            section = sections.answer(section, Reply::Done);
        }
        sections.comes_to(section)
    }

    /// Takes the guard and reads: what follows in one go, because nothing of it can be changed by others under the guard.
    pub(super) fn read(&self, section: SectionId, shared: bool, sections: &mut Sections) -> SectionId {
        let mut section = section;
        loop {
            let reply = match sections.step(section) {
                Some(Do::TakeGuard) => Reply::Done,
                Some(Do::ReadGuard) => Reply::Guard(self.last_fence),
                Some(Do::ReadLock) => self.lock_read(),
                Some(Do::ReadVersion) => Reply::Version(self.file),
                Some(Do::ProbeHeld(fence)) => Reply::Held(self.is_open(if shared { 0 } else { fence })),
                _ => return section,
            };
            section = sections.answer(section, reply);
        }
    }

    /// What is read of `.lock`.
    pub(super) fn lock_read(&self) -> Reply {
        let age = self.lock.map_or(0, |lock| self.time - lock.written);
        Reply::Lock(self.lock.map(|lock| Lock { written: 0, ..lock }), age)
    }

    fn is_open(&self, file: u8) -> Option<bool> {
        let held = self.held.iter().find(|(held, _)| *held == file);
        held.map(|(_, holder)| holder.is_some())
    }

    // --- small things ---

    pub(super) fn set(&mut self, at: usize, change: impl FnOnce(&mut Tab)) {
        if let Some(tab) = self.tabs.get_mut(at) {
            change(tab);
        }
    }

    pub(super) fn begin(&mut self, at: usize, to: At) {
        self.set(at, |tab| (tab.at, tab.attempt) = (to, tab.attempt + 1));
        self.stamp(at, false);
    }

    /// A request is sent now; with `granted`, it is also answered.
    pub(super) fn stamp(&mut self, at: usize, granted: bool) {
        let time = self.time;
        self.set(at, |tab| {
            tab.sent = time;
            if granted {
                tab.confirmed = time;
            }
        });
    }

    pub(super) fn close(&mut self, which: impl Fn(&(u8, Option<u8>)) -> bool) {
        self.held.iter_mut().filter(|held| which(held)).for_each(|(_, holder)| *holder = None);
    }

    /// Forgets what no later move depends on, so that states that differ only in their past are one.
    pub(super) fn tidy(&mut self) {
        for tab in &mut self.tabs {
            match tab.at {
                At::Dead => *tab = Tab { at: At::Dead, attempt: 1, ..NEW },
                At::Nothing => (tab.fence, tab.confirmed, tab.sent) = (0, 0, 0),
                At::Wanting(Want::Acquire | Want::TakeOver) | At::Queued => {
                    (tab.fence, tab.confirmed) = (0, 0);
                }
                At::Wanting(Want::Release) | At::Guarded(Want::Release, _) => {
                    (tab.confirmed, tab.sent) = (0, 0);
                }
                At::Holding => tab.sent = tab.confirmed,
                _ => {}
            }
        }
    }

    pub(super) fn fence_of(&self, at: usize) -> u8 {
        self.tabs.get(at).map_or(0, |tab| tab.fence)
    }

    /// Tabs of one kind are alike: it is enough to look at the worlds in which they begin in their order.
    pub(super) fn may_begin(&self, at: usize, bounds: &Bounds) -> bool {
        let alike = |other: &(usize, &Tab)| bounds.tabs.get(other.0) == bounds.tabs.get(at);
        let mut earlier = self.tabs.iter().enumerate().take(at).filter(alike);
        earlier.all(|(_, tab)| tab.attempt > 0)
    }
}
