//! When a phase is rolled back: the rule of the Reporter. It compares the share of read-only sessions with the phase's
//! threshold, and is slow to act on purpose: a breach must be seen in several looks, some time apart, and after a change of
//! phase nothing is concluded until pages have had time to follow it. Pure: what was counted and the time are arguments.

use std::time::Duration;

use crate::flags::{Flags, Phase, PhaseName};
use crate::time::whole_millis;

/// What was counted of one phase. A live second tab is no read-only session here: it is counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Autosave sessions.
    pub sessions: u64,
    /// Sessions that became read-only.
    pub read_only: u64,
}

impl Observed {
    /// The share of read-only sessions, in percent; none without a session.
    pub fn percent(&self) -> Option<f64> {
        (self.sessions > 0).then(|| self.read_only as f64 * 100.0 / self.sessions as f64)
    }

    /// Whether the share is above the threshold of the phase. Exactly the threshold is not.
    pub fn is_breach_of(&self, phase: &Phase) -> bool {
        self.read_only as f64 * 100.0 > phase.threshold_percent * self.sessions as f64
    }
}

/// How slow the Reporter is to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// In how many looks in a row a breach must be seen.
    pub looks: u32,
    /// How far apart looks are at least; an earlier one concludes nothing.
    pub apart: Duration,
    /// How long after a change of phase nothing is concluded.
    pub settling: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { looks: 2, apart: Duration::from_secs(60), settling: Duration::from_secs(5 * 60) }
    }
}

/// What the Reporter remembers from one look to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The phase that the looks were about.
    pub phase: Option<PhaseName>,
    /// In how many looks in a row a breach was seen.
    pub breaches: u32,
    /// When it last looked, in milliseconds since 1970.
    pub looked_at: u64,
}

/// What a look came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The phase is within its threshold.
    Fine,
    /// There are too few sessions to conclude anything.
    TooFew,
    /// The phase began a short time ago: nothing is concluded before this time, in milliseconds since 1970.
    Settling(u64),
    /// The last look was a short time ago: nothing is concluded before this time.
    TooSoon(u64),
    /// A breach, which so many looks have to confirm.
    Unconfirmed(u32),
    /// A confirmed breach: roll back to this phase.
    RollBack(PhaseName),
    /// A confirmed breach of the first phase: there is nothing to roll back to.
    NoWayBack,
}

/// Looks at what was counted of the current phase since it began. Returns what to do, and what to remember for the next look.
pub fn look(
    flags: &Flags,
    observed: Observed,
    memory: &Memory,
    patience: &Patience,
    now: u64,
) -> (Decision, Memory) {
    let phase = flags.current();
    let is_same_phase = memory.phase.as_ref() == Some(&phase.name);
    let before = if is_same_phase { memory.breaches } else { 0 };
    let unchanged = |decision| (decision, memory.clone());
    let remember =
        |decision, breaches| (decision, Memory { phase: Some(phase.name.clone()), breaches, looked_at: now });
    let settled = flags.since().map_or(0, |since| since.saturating_add(whole_millis(patience.settling)));
    if now < settled {
        return remember(Decision::Settling(settled), 0);
    }
    let next = memory.looked_at.saturating_add(whole_millis(patience.apart));
    // A clock that was set back must not silence the Reporter: a look in the future does not count.
    if before > 0 && (memory.looked_at..next).contains(&now) {
        return unchanged(Decision::TooSoon(next));
    }
    if observed.sessions < phase.minimum_sessions {
        return remember(Decision::TooFew, 0);
    }
    if !observed.is_breach_of(phase) {
        return remember(Decision::Fine, 0);
    }
    let breaches = before.saturating_add(1);
    let decision = match (patience.looks.checked_sub(breaches).filter(|more| *more > 0), flags.previous()) {
        (Some(more), _) => Decision::Unconfirmed(more),
        (None, Some(previous)) => Decision::RollBack(previous.name.clone()),
        (None, None) => Decision::NoWayBack,
    };
    remember(decision, breaches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Author, Moved};
    use crate::name::{Owner, Reason};

    const MINUTE: u64 = 60_000;

    fn author(at: u64) -> Author {
        Author { by: Owner::parse("anna").unwrap(), reason: Reason::default(), at }
    }

    fn in_beta() -> Flags {
        let phase = |text, autosave| Phase::new(PhaseName::parse(text).unwrap(), autosave);
        let flags = Flags::start(vec![phase("off", false), phase("beta", true)], author(0)).unwrap();
        match flags.advance(None, author(0)).unwrap() {
            Moved::To(flags) => flags,
            Moved::AlreadyThere => panic!("it has a next phase"),
        }
    }

    fn observed(read_only: u64, sessions: u64) -> Observed {
        Observed { sessions, read_only }
    }

    fn looks(flags: &Flags, rounds: &[(u64, Observed)]) -> Vec<Decision> {
        let mut memory = Memory::default();
        let patience = Patience::default();
        let mut look_at = |(minute, observed): &(u64, Observed)| {
            let (decision, next) = look(flags, *observed, &memory, &patience, minute * MINUTE);
            memory = next;
            decision
        };
        rounds.iter().map(&mut look_at).collect()
    }

    #[test]
    fn a_breach_is_above_the_threshold_and_seen_twice() {
        let off = || Decision::RollBack(PhaseName::parse("off").unwrap());
        let bad = observed(6, 100);
        assert_eq!(looks(&in_beta(), &[(10, bad), (11, bad)]), [Decision::Unconfirmed(1), off()]);
        let exact = observed(5, 100);
        assert_eq!(looks(&in_beta(), &[(10, exact), (11, exact)]), [Decision::Fine, Decision::Fine]);
    }

    #[test]
    fn one_bad_look_among_good_ones_changes_nothing() {
        let (bad, good) = (observed(50, 100), observed(1, 100));
        let rounds = [(10, bad), (11, good), (12, bad), (13, good), (14, observed(3, 4)), (15, bad)];
        let decisions = looks(&in_beta(), &rounds);
        assert!(!decisions.iter().any(|decision| matches!(decision, Decision::RollBack(_))), "{decisions:?}");
        assert_eq!(decisions.get(4), Some(&Decision::TooFew));
    }

    #[test]
    fn looks_in_quick_succession_count_as_one() {
        let bad = observed(50, 100);
        let mut memory = Memory::default();
        for second in 0..50 {
            let (decision, next) =
                look(&in_beta(), bad, &memory, &Patience::default(), 10 * MINUTE + second * 1_000);
            assert!(matches!(decision, Decision::Unconfirmed(1) | Decision::TooSoon(_)), "{decision:?}");
            memory = next;
        }
        let (decision, _) = look(&in_beta(), bad, &memory, &Patience::default(), 11 * MINUTE);
        assert!(matches!(decision, Decision::RollBack(_)), "{decision:?}");
    }

    #[test]
    fn a_phase_that_has_just_begun_is_left_alone() {
        let bad = observed(50, 100);
        let decisions = looks(&in_beta(), &[(1, bad), (4, bad), (5, bad), (6, bad)]);
        assert_eq!(decisions.first(), Some(&Decision::Settling(5 * MINUTE)));
        assert_eq!(decisions.get(2), Some(&Decision::Unconfirmed(1)));
        assert!(matches!(decisions.last(), Some(Decision::RollBack(_))));
    }

    /// What was seen of the phase before must not help to roll back the next one too.
    #[test]
    fn after_a_rollback_the_count_begins_anew() {
        let phases = ["off", "beta", "all"].map(|text| Phase::new(PhaseName::parse(text).unwrap(), true));
        let flags = Flags::start(phases.into(), author(0)).unwrap();
        let all = PhaseName::parse("all").unwrap();
        let Moved::To(flags) = flags.advance(Some(&all), author(0)).unwrap() else { panic!("no change") };
        let (patience, bad) = (Patience::default(), observed(50, 100));
        let (_, memory) = look(&flags, bad, &Memory::default(), &patience, 10 * MINUTE);
        let (decision, memory) = look(&flags, bad, &memory, &patience, 11 * MINUTE);
        assert!(matches!(decision, Decision::RollBack(_)), "{decision:?}");
        let Moved::To(flags) = flags.roll_back(None, author(11 * MINUTE)).unwrap() else {
            panic!("no change")
        };
        let (decision, memory) = look(&flags, bad, &memory, &patience, 12 * MINUTE);
        assert_eq!(decision, Decision::Settling(16 * MINUTE));
        let (decision, _) = look(&flags, bad, &memory, &patience, 17 * MINUTE);
        assert_eq!(decision, Decision::Unconfirmed(1));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_silence_it() {
        let bad = observed(50, 100);
        let memory =
            Memory { phase: Some(in_beta().current().name.clone()), breaches: 1, looked_at: u64::MAX };
        let (decision, _) = look(&in_beta(), bad, &memory, &Patience::default(), 10 * MINUTE);
        assert!(matches!(decision, Decision::RollBack(_)), "{decision:?}");
    }

    #[test]
    fn the_first_phase_has_no_way_back() {
        let flags =
            Flags::start(vec![Phase::new(PhaseName::parse("only").unwrap(), true)], author(0)).unwrap();
        let bad = observed(50, 100);
        assert_eq!(looks(&flags, &[(10, bad), (11, bad)]), [Decision::Unconfirmed(1), Decision::NoWayBack]);
        assert_eq!(observed(0, 0).percent(), None);
    }
}
