//! The report as data, from what was recorded: pure, with the time as an argument. What the rates mean is in
//! `leasehold_core::telemetry`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::flags::{Flags, Phase, PhaseName, Step};
use leasehold_core::telemetry::{Counts, Event, SESSION_SPAN_MS};
use leasehold_core::time::whole_millis;
use leasehold_core::wire::telemetry::{PhaseChange, RatePoint, ReasonView, SummaryView, TelemetryReport};
use leasehold_server::telemetry::Recorded;

/// What is reported.
pub(super) struct Asked {
    pub(super) now: u64,
    pub(super) window: Duration,
    /// The phase that is judged.
    pub(super) phase: Phase,
    pub(super) flags: Option<Flags>,
}

/// How a window is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    /// The time from point to point, in milliseconds.
    pub(super) step: u64,
    /// Whether times need their day.
    pub(super) with_days: bool,
}

/// The steps of a scale: a plot has at most about a hundred points.
const STEPS: [u64; 9] =
    [10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 7_200_000, 28_800_000, 86_400_000];

const MOST_POINTS: u64 = 100;

impl Scale {
    fn of_window(window: u64) -> Self {
        let fits = |step: &&u64| window / **step <= MOST_POINTS;
        let step = STEPS.iter().find(fits).copied().unwrap_or(window / MOST_POINTS);
        Self { step, with_days: window > 24 * 3_600_000 }
    }

    pub(super) fn of(report: &TelemetryReport) -> Self {
        Self::of_window(report.to.saturating_sub(report.from))
    }
}

impl Asked {
    pub(super) fn scale(&self) -> Scale {
        Scale::of_window(whole_millis(self.window))
    }

    /// When the window begins.
    fn from(&self) -> u64 {
        self.now.saturating_sub(whole_millis(self.window))
    }

    /// What has to be read: the first point of the plot needs what was counted before the window.
    pub(super) fn range(&self) -> Range<u64> {
        self.from().saturating_sub(span(self.scale()))..self.now.saturating_add(1)
    }
}

/// A phase without a new session for so long is over, or has hardly any: its line ends.
const ALIVE_MS: u64 = 3 * 60_000;

/// What a point of the plot looks back on.
fn span(scale: Scale) -> u64 {
    scale.step.max(SESSION_SPAN_MS)
}

/// The report of what was recorded in [`Asked::range`].
pub(super) fn report(asked: &Asked, recorded: &Recorded) -> TelemetryReport {
    let (from, scale) = (asked.from(), asked.scale());
    // A slot belongs to the window if it ends in it.
    let first = from.saturating_sub(scale.step) + 1;
    let mut counts = Counts::default();
    recorded.slots.range(first..).for_each(|(_, slot)| counts.merge(slot));
    let phase = &asked.phase.name;
    let by_phase = |phase: &PhaseName| (phase.to_string(), SummaryView::from(&counts.summary(Some(phase))));
    TelemetryReport {
        from,
        to: asked.now,
        phase: phase.to_string(),
        threshold: asked.phase.threshold_percent / 100.0,
        judged: SummaryView::from(&counts.summary(Some(phase))),
        phases: counts.phases().into_iter().map(by_phase).collect(),
        reasons: counts.read_only_by_reason(Some(phase)).iter().map(reason).collect(),
        series: series(asked, &recorded.slots),
        changes: changes(asked),
        dropped: recorded.dropped,
        damaged: recorded.damaged,
    }
}

fn reason((event, n): &(Event, u64)) -> ReasonView {
    let word = |word: Option<&'static str>| word.unwrap_or("unknown").to_owned();
    ReasonView {
        reason: word(event.reason().map(leasehold_core::telemetry::Reason::as_str)),
        code: word(event.code().map(leasehold_core::telemetry::Code::as_str)),
        n: *n,
        second_tab: event.is_second_tab(),
    }
}

/// The rate of every phase from point to point, each over the span before it.
fn series(asked: &Asked, slots: &BTreeMap<u64, Counts>) -> Vec<RatePoint> {
    let (scale, mut points) = (asked.scale(), Vec::new());
    let mut at = asked.from() - asked.from() % scale.step;
    while at <= asked.now {
        let mut counts = Counts::default();
        let end = at.saturating_add(scale.step);
        slots.range(end.saturating_sub(span(scale))..end).for_each(|(_, slot)| counts.merge(slot));
        let mut recent = Counts::default();
        slots
            .range(end.saturating_sub(scale.step.max(ALIVE_MS))..end)
            .for_each(|(_, slot)| recent.merge(slot));
        for phase in counts.phases() {
            let summary = counts.summary(Some(phase));
            // Of a phase that is over, entries would be left without their sessions.
            let is_alive = recent.summary(Some(phase)).sessions > 0;
            if let Some(rate) = summary.read_only_rate().filter(|_| is_alive) {
                let at = end.min(asked.now).max(asked.from());
                points.push(RatePoint { at, phase: phase.to_string(), sessions: summary.sessions, rate });
            }
        }
        at = end;
    }
    points
}

fn changes(asked: &Asked) -> Vec<PhaseChange> {
    let history = asked.flags.iter().flat_map(|flags| flags.history());
    let in_window = history.filter(|change| (asked.from()..=asked.now).contains(&change.at));
    in_window
        .filter_map(|change| {
            Some(PhaseChange {
                at: change.at,
                from: change.from.as_ref()?.to_string(),
                to: change.to.to_string(),
                rollback: change.step == Step::RolledBack,
            })
        })
        .collect()
}

// --- as people read it ---

/// A part of a whole: `7.5 %`; a dash when there is nothing to divide by.
pub(super) fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "–".to_owned(), |part| format!("{:.1} %", part * 100.0))
}

/// A quantile: `≤ 15 ms`; a dash without measurements.
pub(super) fn duration(millis: Option<u64>, count: u64) -> String {
    match (millis, count) {
        (Some(millis @ ..1_000), _) => format!("≤ {millis} ms"),
        (Some(millis), _) => format!("≤ {} s", millis as f64 / 1_000.0),
        (None, 0) => "–".to_owned(),
        (None, _) => "> 60 s".to_owned(),
    }
}

/// A time of day in UTC, with its day where that is needed.
pub(super) fn time(millis: u64, with_day: bool) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    let format = if with_day { "%Y-%m-%d %H:%M" } else { "%H:%M:%S" };
    time.unwrap_or(Timestamp::MAX).strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use leasehold_core::Owner;
    use leasehold_core::flags::{Author, Moved};

    use super::*;

    /// 2026-01-01, 12:00 UTC.
    const NOON: u64 = 1_767_268_800_000;
    const MINUTE: u64 = 60_000;

    fn name(text: &str) -> PhaseName {
        PhaseName::parse(text).unwrap()
    }

    fn flags() -> Flags {
        let author = |at| Author { by: Owner::parse("reporter").unwrap(), reason: Default::default(), at };
        let phases = ["stable", "beta"].map(|phase| Phase::new(name(phase), true));
        let flags = Flags::start(phases.to_vec(), author(NOON - 100 * MINUTE)).unwrap();
        let Moved::To(flags) = flags.advance(None, author(NOON - 90 * MINUTE)).unwrap() else { panic!() };
        let Moved::To(flags) = flags.roll_back(None, author(NOON - 5 * MINUTE)).unwrap() else { panic!() };
        flags
    }

    fn asked(window: u64) -> Asked {
        let flags = flags();
        Asked {
            now: NOON,
            window: Duration::from_millis(window),
            phase: flags.current().clone(),
            flags: Some(flags),
        }
    }

    /// One session a minute; in phase beta, every second one becomes read-only.
    fn recorded(step: u64) -> Recorded {
        let mut recorded = Recorded::default();
        let readonly = Event::lock("lock:readonly-entered", Some("renew-failed"), Some("renew-failed"));
        for minute in 0..40 {
            let at = NOON - minute * MINUTE;
            let phase = if minute <= 5 { name("stable") } else { name("beta") };
            let slot = recorded.slots.entry(at - at % step).or_default();
            slot.add(&phase, &Event::session(), 1);
            if minute > 5 && minute % 2 == 0 {
                slot.add(&phase, &readonly, 1);
            }
        }
        recorded
    }

    #[test]
    fn after_a_rollback_the_previous_phase_is_judged_alone() {
        let asked = asked(15 * MINUTE);
        let report = report(&asked, &recorded(asked.scale().step));
        assert_eq!((report.phase.as_str(), report.judged.sessions), ("stable", 6));
        assert_eq!((report.judged.read_only_rate, report.threshold), (Some(0.0), 0.05));
        assert_eq!(report.reasons, []);
        assert_eq!(report.phases.keys().collect::<Vec<_>>(), ["beta", "stable"]);
        assert_eq!(report.phases["beta"].read_only_rate, Some(0.5));
        let change =
            PhaseChange { at: NOON - 5 * MINUTE, from: "beta".into(), to: "stable".into(), rollback: true };
        assert_eq!(report.changes, [change], "the advance was before the window");
    }

    #[test]
    fn the_window_is_what_is_counted_and_the_plot_looks_back_further() {
        let asked = asked(15 * MINUTE);
        assert_eq!(asked.range(), NOON - 30 * MINUTE..NOON + 1);
        let report = report(&asked, &recorded(asked.scale().step));
        assert_eq!(report.phases["beta"].sessions, 10, "minutes 6 to 15");
        let first = report.series.iter().find(|point| point.phase == "beta").unwrap();
        assert_eq!((first.at, first.sessions), (NOON - 15 * MINUTE + 10_000, 15));
        assert!((0.4..0.6).contains(&first.rate), "{first:?}");
        assert!(report.series.iter().all(|point| (report.from..=report.to).contains(&point.at)));
        let last = report.series.iter().rfind(|point| point.phase == "beta").unwrap();
        assert!(
            (NOON - 5 * MINUTE..NOON - 2 * MINUTE).contains(&last.at),
            "its line ends soon after the rollback: {last:?}"
        );
    }

    #[test]
    fn a_window_of_any_length_has_about_a_hundred_points() {
        let cases = [
            (15 * MINUTE, 10_000),
            (60 * MINUTE, 60_000),
            (24 * 60 * MINUTE, 900_000),
            (7 * 24 * 60 * MINUTE, 7_200_000),
            (30 * 24 * 60 * MINUTE, 28_800_000),
        ];
        for (window, step) in cases {
            let scale = Scale::of_window(window);
            assert_eq!((scale.step, scale.with_days), (step, window > 24 * 60 * MINUTE));
        }
        assert!(3_650 * 24 * 60 * MINUTE / Scale::of_window(3_650 * 24 * 60 * MINUTE).step <= MOST_POINTS);
    }

    #[test]
    fn numbers_are_said_as_people_do() {
        assert_eq!((percent(Some(0.075)), percent(None)), ("7.5 %".into(), "–".into()));
        let said = [(Some(15), 1), (Some(1_500), 1), (None, 0), (None, 3)].map(|(ms, n)| duration(ms, n));
        assert_eq!(said, ["≤ 15 ms", "≤ 1.5 s", "–", "> 60 s"]);
        assert_eq!((time(NOON, false), time(NOON, true)), ("12:00:00".into(), "2026-01-01 12:00".into()));
    }
}
