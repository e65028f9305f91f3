//! Flags: the phases of a roll-out, which of them is current, and how it came to be. A phase says whether pages autosave, and
//! from which share of read-only sessions on it has to be rolled back. Pure: times are arguments, in milliseconds since 1970.
//!
//! A change never edits the flags in place: it makes new ones, with an entry in their history.

use std::fmt;

use crate::name::{Invalid, Owner, Reason};

/// The name of a phase: 1 to 32 of `a-z 0-9 -`, a letter first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseName(Box<str>);

impl PhaseName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 32;
    /// What stands for the phase before the current one, where a phase is named. No phase has this name.
    pub const PREVIOUS: &str = "prev";
    /// What telemetry calls a phase that is not in the flag file. No phase of a flag file has this name.
    pub const OTHER: &str = "other";
    /// The phase of an application that has no flags.
    const DEFAULT: &str = "default";

    /// Reads a name, or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = |rule: &str, fix: &str| Err(Invalid::new("phase", text, rule, fix));
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if text.len() > Self::MAX_BYTES
            || !text.starts_with(|c: char| c.is_ascii_lowercase())
            || !text.chars().all(is_word)
        {
            return refuse(
                "a phase has 1 to 32 of a-z, 0-9 and -, a letter first",
                "name it like beta or phase-2",
            );
        }
        if text == Self::PREVIOUS {
            return refuse("this word means the phase before the current one", "choose another name");
        }
        Ok(Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PhaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Default for PhaseName {
    /// The phase of an application that has no flags.
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

/// One phase of a roll-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name.
    pub name: PhaseName,
    /// Whether pages autosave. If not, they write nothing at all, and take no lock.
    pub autosave: bool,
    /// Above this share of read-only sessions, in percent, the phase is rolled back.
    pub threshold_percent: f64,
    /// With fewer sessions than this, nothing is concluded.
    pub minimum_sessions: u64,
}

impl Phase {
    /// The threshold of a phase that names none.
    pub const THRESHOLD_PERCENT: f64 = 5.0;
    /// The minimum of a phase that names none: with fewer sessions, one read-only session alone would be a breach.
    pub const MINIMUM_SESSIONS: u64 = 20;

    /// A phase with the default threshold and minimum.
    pub fn new(name: PhaseName, autosave: bool) -> Self {
        let (threshold_percent, minimum_sessions) = (Self::THRESHOLD_PERCENT, Self::MINIMUM_SESSIONS);
        Self { name, autosave, threshold_percent, minimum_sessions }
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.name.as_str() == PhaseName::OTHER {
            let rule = "telemetry counts unknown phases under this name";
            return Err(Invalid::new("phase", PhaseName::OTHER, rule, "choose another name"));
        }
        if !(0.0..=100.0).contains(&self.threshold_percent) {
            let rule = format!("the threshold of phase {} is no percentage", self.name);
            let value = self.threshold_percent.to_string();
            return Err(Invalid::new("threshold", &value, rule, "choose one from 0 to 100"));
        }
        if self.minimum_sessions == 0 {
            let rule = format!("phase {} would be judged without a single session", self.name);
            return Err(Invalid::new("minimum_sessions", "0", rule, "choose at least 1; 20 is usual"));
        }
        Ok(())
    }
}

/// What kind of change an entry of the history records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The flags were made.
    Started,
    /// To a later phase.
    Advanced,
    /// To an earlier phase.
    RolledBack,
}

impl Step {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 3] =
        [(Self::Started, "started"), (Self::Advanced, "advanced"), (Self::RolledBack, "rolled_back")];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(step, _)| *step == self).map_or("", |(_, word)| word)
    }

    /// The step of this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(_, known)| *known == word).map(|(step, _)| *step)
    }
}

/// An entry of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Grows by one with each change.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What kind of change.
    pub step: Step,
    /// The phase before; none when the flags were made.
    pub from: Option<PhaseName>,
    /// The phase since.
    pub to: PhaseName,
    /// Who made it: a person, or `reporter`.
    pub by: Owner,
    /// Why.
    pub reason: Reason,
}

/// Who changes flags, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// Who.
    pub by: Owner,
    /// Why.
    pub reason: Reason,
    /// When, in milliseconds since 1970.
    pub at: u64,
}

/// What a change of phase came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Moved {
    /// The new flags, whose history ends with this change.
    To(Flags),
    /// The phase was the current one already. Two who roll back at the same time both succeed.
    AlreadyThere,
}

/// The flags of an application. The current phase is always one of the phases, and no two phases have the same name.
#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    phases: Vec<Phase>,
    current: usize,
    history: Vec<Change>,
}

impl Flags {
    /// How many phases there may be.
    pub const MOST_PHASES: usize = 32;
    /// How many entries of the history are kept here.
    pub const HISTORY: usize = 100;

    /// New flags, in their first phase.
    pub fn start(phases: Vec<Phase>, author: Author) -> Result<Self, Invalid> {
        let Some(first) = phases.first().map(|phase| phase.name.clone()) else { return Err(no_phases()) };
        let mut flags = Self::from_parts(phases, &first, Vec::new())?;
        flags.record(Step::Started, None, author);
        Ok(flags)
    }

    /// The flags that a file describes, or what is wrong with it.
    pub fn from_parts(
        phases: Vec<Phase>,
        current: &PhaseName,
        mut history: Vec<Change>,
    ) -> Result<Self, Invalid> {
        if phases.is_empty() {
            return Err(no_phases());
        }
        if phases.len() > Self::MOST_PHASES {
            let rule = format!("there may be at most {} phases", Self::MOST_PHASES);
            return Err(Invalid::new("phases", &phases.len().to_string(), rule, "remove old ones"));
        }
        phases.iter().try_for_each(Phase::check)?;
        let mut names: Vec<&PhaseName> = phases.iter().map(|phase| &phase.name).collect();
        names.sort_unstable();
        if let Some([twice, _]) = names.array_windows().find(|[one, next]| one == next) {
            let rule = "two phases have this name";
            return Err(Invalid::new("phases", twice.as_str(), rule, "rename one of them"));
        }
        let Some(current) = phases.iter().position(|phase| phase.name == *current) else {
            return Err(unknown(current.as_str(), &phases));
        };
        let too_many = history.len().saturating_sub(Self::HISTORY);
        history.drain(..too_many);
        Ok(Self { phases, current, history })
    }

    /// The current phase.
    pub fn current(&self) -> &Phase {
        // `current` is always a phase; the first one is there in any case.
        self.phases.get(self.current).or(self.phases.first()).unwrap_or_else(|| unreachable!("no phases"))
    }

    /// The phase before the current one.
    pub fn previous(&self) -> Option<&Phase> {
        self.phases.get(self.current.checked_sub(1)?)
    }

    /// The phase after the current one.
    pub fn next(&self) -> Option<&Phase> {
        self.phases.get(self.current + 1)
    }

    /// All phases, in the order of the roll-out.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The phase of this name.
    pub fn phase(&self, name: &PhaseName) -> Result<&Phase, Invalid> {
        let found = self.phases.iter().find(|phase| phase.name == *name);
        found.ok_or_else(|| unknown(name.as_str(), &self.phases))
    }

    /// The last changes, the oldest first.
    pub fn history(&self) -> &[Change] {
        &self.history
    }

    /// When the current phase began; unknown if the file was edited by hand since the last entry.
    pub fn since(&self) -> Option<u64> {
        self.history.last().filter(|last| last.to == self.current().name).map(|last| last.at)
    }

    /// Moves to a later phase: this one, or the next.
    pub fn advance(&self, to: Option<&PhaseName>, author: Author) -> Result<Moved, Invalid> {
        let target = match to {
            Some(name) => self.position(name)?,
            None if self.next().is_some() => self.current + 1,
            None => {
                let rule = "this is the last phase";
                return Err(self.stays(rule, "add a phase to the file to go further"));
            }
        };
        if target < self.current {
            return Err(self.stays("the phase that was asked for lies before it", "roll back instead"));
        }
        Ok(self.moved(target, Step::Advanced, author))
    }

    /// Moves to an earlier phase: this one, or the one before.
    pub fn roll_back(&self, to: Option<&PhaseName>, author: Author) -> Result<Moved, Invalid> {
        let target = match to {
            Some(name) => self.position(name)?,
            None => self.current.checked_sub(1).ok_or_else(|| {
                let fix = "put a phase without autosave before it to be able to turn it off";
                self.stays("this is the first phase, and there is none to roll back to", fix)
            })?,
        };
        if target > self.current {
            return Err(self.stays("the phase that was asked for lies after it", "advance instead"));
        }
        Ok(self.moved(target, Step::RolledBack, author))
    }

    fn position(&self, name: &PhaseName) -> Result<usize, Invalid> {
        let found = self.phases.iter().position(|phase| phase.name == *name);
        found.ok_or_else(|| unknown(name.as_str(), &self.phases))
    }

    fn moved(&self, target: usize, step: Step, author: Author) -> Moved {
        if target == self.current {
            return Moved::AlreadyThere;
        }
        let mut flags = Self { current: target, ..self.clone() };
        flags.record(step, Some(self.current().name.clone()), author);
        Moved::To(flags)
    }

    fn record(&mut self, step: Step, from: Option<PhaseName>, Author { by, reason, at }: Author) {
        let number = self.history.last().map_or(0, |last| last.number).saturating_add(1);
        let to = self.current().name.clone();
        self.history.push(Change { number, at, step, from, to, by, reason });
        let too_many = self.history.len().saturating_sub(Self::HISTORY);
        self.history.drain(..too_many);
    }

    fn stays(&self, rule: &str, fix: &str) -> Invalid {
        Invalid::new("phase", self.current().name.as_str(), rule, fix)
    }
}

fn no_phases() -> Invalid {
    Invalid::new("phases", "", "there must be at least one phase", "add one, such as off or beta")
}

fn unknown(name: &str, phases: &[Phase]) -> Invalid {
    let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
    Invalid::new("phase", name, "there is no such phase", format!("choose one of {}", names.join(", ")))
}

/// Where the phase of a process comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An option of the call or the command line, or the environment: it was named for this process.
    Named,
    /// The flag file.
    File,
    /// Neither: the built-in default, a single phase with autosave.
    Default,
}

impl Source {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// The phase that counts for a process: the named one (an option before the environment) before the current one of the flag
/// file, and that before the built-in default. A named phase must be in the file if there is one.
pub fn resolve(named: Option<&PhaseName>, file: Option<&Flags>) -> Result<(Phase, Source), Invalid> {
    match (named, file) {
        (Some(name), Some(flags)) => Ok((flags.phase(name)?.clone(), Source::Named)),
        (Some(name), None) => Ok((Phase::new(name.clone(), true), Source::Named)),
        (None, Some(flags)) => Ok((flags.current().clone(), Source::File)),
        (None, None) => Ok((Phase::new(PhaseName::default(), true), Source::Default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> PhaseName {
        PhaseName::parse(text).unwrap()
    }

    fn author(at: u64) -> Author {
        Author { by: Owner::parse("anna").unwrap(), reason: Reason::default(), at }
    }

    fn flags() -> Flags {
        let phases = [("off", false), ("beta", true), ("all", true)];
        let phases = phases.map(|(phase, autosave)| Phase::new(name(phase), autosave));
        Flags::start(phases.into(), author(1)).unwrap()
    }

    fn at(flags: &Flags, phase: &str) -> Flags {
        match flags.advance(Some(&name(phase)), author(2)).unwrap() {
            Moved::To(flags) => flags,
            Moved::AlreadyThere => flags.clone(),
        }
    }

    #[test]
    fn a_name_is_a_word_and_not_prev() {
        for text in ["a", "phase-2", "b0", &"x".repeat(32)] {
            assert_eq!(name(text).as_str(), text);
        }
        for text in ["", "Beta", "2nd", "-a", "a b", "prev", "é", "a/b", &"x".repeat(33)] {
            assert!(PhaseName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn phases_are_walked_up_and_down_and_every_change_is_recorded() {
        let Moved::To(beta) = flags().advance(None, author(2)).unwrap() else { panic!("no change") };
        let all = at(&beta, "all");
        assert!(all.advance(None, author(4)).unwrap_err().to_string().contains("last phase"));
        let Moved::To(back) = all.roll_back(None, author(5)).unwrap() else { panic!("no change") };
        assert_eq!((back.current().name.as_str(), back.since()), ("beta", Some(5)));
        let told: Vec<_> = back.history().iter().map(|change| (change.number, change.step)).collect();
        assert_eq!(
            told,
            [(1, Step::Started), (2, Step::Advanced), (3, Step::Advanced), (4, Step::RolledBack)]
        );
        assert_eq!(back.history().last().unwrap().from, Some(name("all")));
    }

    #[test]
    fn a_rollback_never_goes_forward_and_may_come_twice() {
        let beta = at(&flags(), "beta");
        assert_eq!(beta.roll_back(Some(&name("beta")), author(3)).unwrap(), Moved::AlreadyThere);
        let forward = beta.roll_back(Some(&name("all")), author(3)).unwrap_err().to_string();
        assert!(forward.contains("advance instead"), "{forward}");
        assert!(beta.advance(Some(&name("off")), author(3)).is_err());
        let missing = beta.roll_back(Some(&name("gamma")), author(3)).unwrap_err().to_string();
        assert!(missing.contains("choose one of off, beta, all"), "{missing}");
        let first = flags().roll_back(None, author(3)).unwrap_err().to_string();
        assert!(first.contains("none to roll back to"), "{first}");
    }

    #[test]
    fn flags_that_cannot_work_are_refused() {
        let phase = |text: &str| Phase::new(name(text), true);
        let parts = |phases| Flags::from_parts(phases, &name("beta"), Vec::new());
        assert!(parts(Vec::new()).is_err());
        assert!(parts(vec![phase("off")]).unwrap_err().to_string().contains("choose one of off"));
        assert!(parts(vec![phase("beta"), phase("other")]).is_err());
        assert!(parts(vec![phase("beta"), phase("beta")]).unwrap_err().to_string().contains("two phases"));
        for threshold_percent in [-1.0, 100.1, f64::NAN, f64::INFINITY] {
            assert!(parts(vec![Phase { threshold_percent, ..phase("beta") }]).is_err());
        }
        assert!(parts(vec![Phase { minimum_sessions: 0, ..phase("beta") }]).is_err());
        assert!(parts((0..33).map(|n| phase(&format!("p{n}"))).chain([phase("beta")]).collect()).is_err());
    }

    #[test]
    fn the_history_is_bounded_and_its_numbers_go_on() {
        let mut flags = at(&flags(), "beta");
        for round in 0..Flags::HISTORY as u64 {
            let moved = match round.is_multiple_of(2) {
                true => flags.roll_back(None, author(round)),
                false => flags.advance(None, author(round)),
            };
            let Ok(Moved::To(next)) = moved else { panic!("{moved:?}") };
            flags = next;
        }
        assert_eq!(flags.history().len(), Flags::HISTORY);
        assert_eq!(flags.history().last().unwrap().number, Flags::HISTORY as u64 + 2);
    }

    #[test]
    fn a_named_phase_counts_more_than_the_file_and_that_more_than_the_default() {
        let flags = at(&flags(), "all");
        let case = |named: Option<&str>, file| {
            let named = named.map(name);
            resolve(named.as_ref(), file)
                .map(|(phase, source)| (phase.name.to_string(), phase.autosave, source))
        };
        assert_eq!(case(Some("off"), Some(&flags)).unwrap(), ("off".into(), false, Source::Named));
        assert_eq!(case(None, Some(&flags)).unwrap(), ("all".into(), true, Source::File));
        assert_eq!(case(None, None).unwrap(), ("default".into(), true, Source::Default));
        assert_eq!(case(Some("beta"), None).unwrap(), ("beta".into(), true, Source::Named));
        assert!(case(Some("gamma"), Some(&flags)).is_err());
    }
}
