//! Telemetry: how often project locks and autosaves do what, as counts by phase, event, reason and code of the last error.
//!
//! There is nothing in here that could name a person, a lease or a document: every word comes from a closed list
//! ([`EventName`], [`Reason`], [`Code`]), phases are the operator's, and everything else is a number. The read-only rate, which
//! decides about a rollback, is computed here and nowhere else.

mod histogram;
mod names;

use std::collections::BTreeMap;

pub use histogram::{EDGES, Histogram, Quantile};
pub use names::{Code, EventName, Reason};

use crate::flags::PhaseName;

/// A session counts when it begins, and once more after each span of this length: a window of 15 minutes counts every session
/// that is alive in it.
pub const SESSION_SPAN_MS: u64 = 15 * 60_000;

/// Folders that other collectors watch: nothing of ours is written there.
pub const FOREIGN_FOLDERS: [&str; 3] = ["collector", "analyzer", "workflow-cookbook"];

/// The phase of events whose phase is unknown. No phase of a roll-out has this name.
pub const OTHER_PHASE: &str = "other";

/// The phase that a sender's word is counted under: one of the known ones, or [`OTHER_PHASE`].
pub fn known_phase(word: &str, known: &[PhaseName]) -> PhaseName {
    let found = known.iter().find(|phase| phase.as_str() == word).cloned();
    found.or_else(|| PhaseName::parse(OTHER_PHASE).ok()).unwrap_or_default()
}

/// Something that happened, without whom it happened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    name: EventName,
    reason: Option<Reason>,
    code: Option<Code>,
    millis: Option<u64>,
}

impl Event {
    /// An event with the reason and the code that belong to it. What is not counted for this event is left out.
    pub fn new(name: EventName, reason: Option<&str>, code: Option<&str>) -> Self {
        Self {
            name,
            reason: reason.filter(|_| name.has_reason()).map(Reason::of),
            code: code.filter(|_| name.has_code()).map(Code::of),
            millis: None,
        }
    }

    /// The beginning, or another [`SESSION_SPAN_MS`], of an autosave session.
    pub fn session() -> Self {
        Self::new(EventName::Session, None, None)
    }

    /// An event of the lock, by its name in dialect `lock`.
    pub fn lock(name: &str, reason: Option<&str>, code: Option<&str>) -> Self {
        Self::new(EventName::of_lock(name), reason, code)
    }

    /// The same, with how long it took.
    pub fn took(self, millis: u64) -> Self {
        Self { millis: Some(millis), ..self }
    }

    /// Its name.
    pub fn name(&self) -> EventName {
        self.name
    }

    /// Whether a tab became read-only because another tab has the project and is alive. That is no failure: counted with the
    /// others, it would inflate the rate. Profile `service` has one code for every lease of another holder.
    pub fn is_second_tab(&self) -> bool {
        let names_holder = matches!(self.code, Some(Code::FallbackConflict | Code::LeaseMismatch));
        self.name == EventName::Readonly
            && match self.reason {
                Some(Reason::FallbackConflict) => true,
                Some(Reason::AcquireTimeout) => names_holder,
                _ => false,
            }
    }

    /// Why, or how.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// The code of the last error.
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    fn key(&self) -> (EventName, Option<Reason>, Option<Code>) {
        (self.name, self.reason, self.code)
    }

    fn of_key((name, reason, code): (EventName, Option<Reason>, Option<Code>)) -> Self {
        Self { name, reason, code, millis: None }
    }
}

type Key = (PhaseName, (EventName, Option<Reason>, Option<Code>));

/// Counts of events, and how long they took. Their size is bounded by the lists of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    events: BTreeMap<Key, u64>,
    times: BTreeMap<(PhaseName, EventName), Histogram>,
}

impl Counts {
    /// Counts an event `n` times in a phase.
    pub fn add(&mut self, phase: &PhaseName, event: &Event, n: u64) {
        if n > 0 {
            let count = self.events.entry((phase.clone(), event.key())).or_default();
            *count = count.saturating_add(n);
        }
        if let Some(millis) = event.millis {
            self.time(phase, event.name, |times| times.add(millis));
        }
    }

    /// Adds to the histogram of an event that has one.
    pub(crate) fn time(&mut self, phase: &PhaseName, name: EventName, add: impl FnOnce(&mut Histogram)) {
        if name.is_timed() {
            add(self.times.entry((phase.clone(), name)).or_default());
        }
    }

    /// Adds the counts of others.
    pub fn merge(&mut self, other: &Self) {
        for (key, n) in &other.events {
            let count = self.events.entry(key.clone()).or_default();
            *count = count.saturating_add(*n);
        }
        for (key, times) in &other.times {
            self.times.entry(key.clone()).or_default().merge(times);
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.times.is_empty()
    }

    /// How many different counts and histograms there are.
    pub fn len(&self) -> usize {
        self.events.len() + self.times.len()
    }

    /// How many events there are in all.
    pub fn total(&self) -> u64 {
        self.events.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Every count.
    pub fn events(&self) -> impl Iterator<Item = (&PhaseName, Event, u64)> {
        self.events.iter().map(|((phase, key), n)| (phase, Event::of_key(*key), *n))
    }

    /// Every histogram.
    pub fn times(&self) -> impl Iterator<Item = (&PhaseName, EventName, &Histogram)> {
        self.times.iter().map(|((phase, name), times)| (phase, *name, times))
    }

    /// The phases that something was counted in.
    pub fn phases(&self) -> Vec<&PhaseName> {
        let mut phases: Vec<&PhaseName> = self.events.keys().map(|(phase, _)| phase).collect();
        phases.dedup();
        phases
    }

    /// What the counts say of one phase, or of all.
    pub fn summary(&self, phase: Option<&PhaseName>) -> Summary {
        let is_asked = |of: &PhaseName| phase.is_none_or(|phase| phase == of);
        let mut summary = Summary::default();
        for (_, event, n) in self.events().filter(|(of, ..)| is_asked(of)) {
            summary.count(&event, n);
        }
        for (_, name, times) in self.times().filter(|(of, ..)| is_asked(of)) {
            match name {
                EventName::Acquired => summary.acquire.merge(times),
                EventName::Saved => summary.save.merge(times),
                _ => {}
            }
        }
        summary
    }

    /// The read-only entries of one phase, or of all, by reason and code; the most frequent first. A live second tab is here,
    /// too: [`Event::is_second_tab`] tells.
    pub fn read_only_by_reason(&self, phase: Option<&PhaseName>) -> Vec<(Event, u64)> {
        let mut found: BTreeMap<_, u64> = BTreeMap::new();
        for (of, event, n) in self.events() {
            if event.name == EventName::Readonly && phase.is_none_or(|phase| phase == of) {
                let count = found.entry(event.key()).or_default();
                *count = count.saturating_add(n);
            }
        }
        let mut found: Vec<_> = found.into_iter().map(|(key, n)| (Event::of_key(key), n)).collect();
        found.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        found
    }
}

/// What counts say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Autosave sessions that were alive; see [`SESSION_SPAN_MS`].
    pub sessions: u64,
    /// How often a tab became read-only, without those that a live second tab explains.
    pub read_only: u64,
    /// How often a tab became read-only because another one has the project and is alive.
    pub second_tab: u64,
    /// How often a project was acquired.
    pub acquires: u64,
    /// How often without the Web Lock.
    pub fallbacks: u64,
    /// How often something was saved.
    pub saves: u64,
    /// How often a save failed for good.
    pub save_failures: u64,
    /// How often a version was restored.
    pub restores: u64,
    /// How often that failed.
    pub restore_failures: u64,
    /// How long the acquires took.
    pub acquire: Histogram,
    /// How long the saves took.
    pub save: Histogram,
}

impl Summary {
    /// Read-only entries per session. Absent without sessions.
    pub fn read_only_rate(&self) -> Option<f64> {
        part(self.read_only, self.sessions)
    }

    /// The part of the acquires that did without the Web Lock. Absent without acquires.
    pub fn fallback_rate(&self) -> Option<f64> {
        part(self.fallbacks, self.acquires)
    }

    /// The part of the restores that succeeded. Absent without restores.
    pub fn restore_success(&self) -> Option<f64> {
        part(self.restores, self.restores.saturating_add(self.restore_failures))
    }

    fn count(&mut self, event: &Event, n: u64) {
        let of = match event.name {
            EventName::Session => &mut self.sessions,
            EventName::Readonly if event.is_second_tab() => &mut self.second_tab,
            EventName::Readonly => &mut self.read_only,
            EventName::Acquired => &mut self.acquires,
            EventName::Saved => &mut self.saves,
            EventName::SaveFailed => &mut self.save_failures,
            EventName::Restored => &mut self.restores,
            EventName::RestoreFailed => &mut self.restore_failures,
            _ => return,
        };
        *of = of.saturating_add(n);
        if (event.name, event.reason) == (EventName::Acquired, Some(Reason::FileLock)) {
            self.fallbacks = self.fallbacks.saturating_add(n);
        }
    }
}

fn part(some: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| some as f64 / all as f64)
}
