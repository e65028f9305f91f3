//! Telemetry as JSON: what pages send, a line of the collector's files, and the report. [`Counts`] is what all three become.
//!
//! A batch may say anything: its words are looked up in closed lists, and what is not in them is counted as `other`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::documents::whole;
use crate::flags::PhaseName;
use crate::name::Invalid;
use crate::telemetry::{Counts, Event, EventName, Histogram, Quantile, Summary};

#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The version of the batches and of the lines. A change that older readers would misread makes it larger.
pub const SCHEMA: u64 = 1;

/// The most counts, and the most histograms, of a batch.
pub const MAX_ROWS: usize = 128;

/// The most that a batch may count of one event.
pub const MAX_COUNT: u64 = 10_000;

/// The most measurements of one event in a batch.
pub const MAX_TIMES: usize = 256;

/// What a page has counted since it last sent something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TelemetryBatch {
    /// The version of this schema: 1.
    #[serde(deserialize_with = "whole")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1))]
    pub v: u64,
    /// The phase that the page runs under. One that the server does not know is counted as `other`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 64))]
    pub phase: Option<String>,
    /// What happened how often.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_items = 128))]
    pub counts: Vec<BatchCount>,
    /// How long something took.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_items = 128))]
    pub times: Vec<BatchTimes>,
}

/// How often something happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchCount {
    /// The event, such as `autosave.lock.readonly`. Unknown ones are counted as `other`.
    pub event: String,
    /// Why, or how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The code of the last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How often.
    #[serde(deserialize_with = "whole")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10_000))]
    pub n: u64,
}

/// How long something took, each time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchTimes {
    /// The event: `lock:acquired` or `autosave.saved`. Others are ignored.
    pub event: String,
    /// Milliseconds.
    #[cfg_attr(feature = "openapi", schema(max_items = 256))]
    pub ms: Vec<u64>,
}

impl TelemetryBatch {
    /// Refuses a batch of another schema, or one that is too large.
    pub fn check(&self) -> Result<(), Invalid> {
        let refuse = |what, value: &dyn ToString, rule: String, fix: &str| {
            Err(Invalid::new(what, &value.to_string(), rule, fix))
        };
        if self.v != SCHEMA {
            let rule = format!("this server knows version {SCHEMA} of the schema");
            return refuse("v", &self.v, rule, "use the package `leasehold` of the server's version");
        }
        let rows = self.counts.len().max(self.times.len());
        if rows > MAX_ROWS {
            let rule = format!("a batch has at most {MAX_ROWS} counts and as many lists of times");
            return refuse("rows", &rows, rule, "send smaller batches");
        }
        if let Some(count) = self.counts.iter().find(|count| !(1..=MAX_COUNT).contains(&count.n)) {
            let rule = format!("a count lies between 1 and {MAX_COUNT}");
            return refuse("n", &count.n, rule, "send smaller batches");
        }
        if let Some(times) = self.times.iter().find(|times| times.ms.len() > MAX_TIMES) {
            let rule = format!("a list of times has at most {MAX_TIMES}");
            return refuse("ms", &times.ms.len(), rule, "send smaller batches");
        }
        Ok(())
    }

    /// What it counts, in this phase.
    pub fn counts(&self, phase: &PhaseName) -> Counts {
        let mut counts = Counts::default();
        for BatchCount { event, reason, code, n } in &self.counts {
            counts.add(phase, &Event::lock(event, reason.as_deref(), code.as_deref()), *n);
        }
        for BatchTimes { event, ms } in &self.times {
            let name = EventName::of_lock(event);
            counts.time(phase, name, |times| ms.iter().for_each(|millis| times.add(*millis)));
        }
        counts
    }
}

/// A line of the collector's files: what was counted in a few seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TelemetryLine {
    /// The version of this schema.
    pub v: u64,
    /// When those seconds began, in milliseconds since 1970.
    pub at: u64,
    /// What happened how often.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<LineCount>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<LineTimes>,
    /// How many events were dropped before this line, because there was no room for them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

/// How often something happened in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCount {
    /// The phase.
    pub phase: String,
    /// The event.
    pub event: String,
    /// Why, or how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The code of the last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How often.
    pub n: u64,
}

/// How long an event took in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineTimes {
    /// The phase.
    pub phase: String,
    /// The event.
    pub event: String,
    /// How many took at most so many milliseconds, and more than the edge below; `inf` has no edge.
    pub le: BTreeMap<String, u64>,
}

/// The edge of the last bucket.
const NO_EDGE: &str = "inf";

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl TelemetryLine {
    /// The line of what was counted from `at` on.
    pub fn new(at: u64, counts: &Counts, dropped: u64) -> Self {
        let word = |word: &'static str| word.to_owned();
        let events = counts.events().map(|(phase, event, n)| LineCount {
            phase: phase.to_string(),
            event: word(event.name().as_str()),
            reason: event.reason().map(|reason| word(reason.as_str())),
            code: event.code().map(|code| word(code.as_str())),
            n,
        });
        let times = counts.times().map(|(phase, name, times)| LineTimes {
            phase: phase.to_string(),
            event: word(name.as_str()),
            le: buckets(times),
        });
        Self { v: SCHEMA, at, counts: events.collect(), times: times.collect(), dropped }
    }

    /// What was counted. Absent when it is of another schema, or damaged.
    pub fn counts(&self) -> Option<Counts> {
        let mut counts = Counts::default();
        for LineCount { phase, event, reason, code, n } in &self.counts {
            let event = Event::lock(event, reason.as_deref(), code.as_deref());
            counts.add(&PhaseName::parse(phase).ok()?, &event, *n);
        }
        for LineTimes { phase, event, le } in &self.times {
            let times = histogram(le)?;
            counts.time(&PhaseName::parse(phase).ok()?, EventName::of(event), |sum| sum.merge(&times));
        }
        (self.v == SCHEMA).then_some(counts)
    }
}

fn buckets(times: &Histogram) -> BTreeMap<String, u64> {
    times
        .buckets()
        .map(|(edge, n)| (edge.map_or_else(|| NO_EDGE.to_owned(), |edge| edge.to_string()), n))
        .collect()
}

fn histogram(le: &BTreeMap<String, u64>) -> Option<Histogram> {
    let mut times = Histogram::default();
    for (edge, n) in le {
        let edge = if edge == NO_EDGE { None } else { Some(edge.parse().ok()?) };
        times.add_bucket(edge, *n).then_some(())?;
    }
    Some(times)
}

/// What `leasehold telemetry report --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TelemetryReport {
    /// When the window begins, in milliseconds since 1970.
    pub from: u64,
    /// When it ends.
    pub to: u64,
    /// The phase that is judged.
    pub phase: String,
    /// The rate above which it is rolled back.
    pub threshold: f64,
    /// What was counted in that phase.
    pub judged: SummaryView,
    /// The same for every phase.
    pub phases: BTreeMap<String, SummaryView>,
    /// The read-only entries of the phase, by reason and code of the last error.
    pub reasons: Vec<ReasonView>,
    /// How the rate of every phase went: at each time, what was counted in the quarter of an hour before it.
    pub series: Vec<RatePoint>,
    /// Changes of the phase in the window.
    pub changes: Vec<PhaseChange>,
    /// How many events were dropped because there was no room for them.
    pub dropped: u64,
    /// How many lines could not be read.
    pub damaged: u64,
}

/// What counts say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SummaryView {
    /// Autosave sessions.
    pub sessions: u64,
    /// Read-only entries, without those that a live second tab explains.
    pub read_only: u64,
    /// Read-only entries because another tab has the project and is alive.
    pub second_tab: u64,
    /// Read-only entries per session; null without sessions.
    pub read_only_rate: Option<f64>,
    /// How often a project was acquired.
    pub acquires: u64,
    /// How many of them say how long they took.
    pub acquires_timed: u64,
    /// Half of these took at most so many milliseconds; null without any, or when it is more than a minute.
    pub acquire_p50_ms: Option<u64>,
    /// The same for 95 of 100.
    pub acquire_p95_ms: Option<u64>,
    /// The part of the acquires that did without the Web Lock.
    pub fallback_rate: Option<f64>,
    /// How often something was saved.
    pub saves: u64,
    /// How often a save failed for good.
    pub save_failures: u64,
    /// How many saves say how long they took.
    pub saves_timed: u64,
    /// 95 of 100 of these took at most so many milliseconds.
    pub save_p95_ms: Option<u64>,
    /// How often a version was restored.
    pub restores: u64,
    /// How often that failed.
    pub restore_failures: u64,
    /// The part of the restores that succeeded.
    pub restore_success: Option<f64>,
}

impl From<&Summary> for SummaryView {
    fn from(summary: &Summary) -> Self {
        let millis = |times: &Histogram, part| match times.quantile(part) {
            Some(Quantile::AtMost(millis)) => Some(millis),
            Some(Quantile::MoreThan(_)) | None => None,
        };
        Self {
            sessions: summary.sessions,
            read_only: summary.read_only,
            second_tab: summary.second_tab,
            read_only_rate: summary.read_only_rate(),
            acquires: summary.acquires,
            acquires_timed: summary.acquire.count(),
            acquire_p50_ms: millis(&summary.acquire, 0.5),
            acquire_p95_ms: millis(&summary.acquire, 0.95),
            fallback_rate: summary.fallback_rate(),
            saves: summary.saves,
            save_failures: summary.save_failures,
            saves_timed: summary.save.count(),
            save_p95_ms: millis(&summary.save, 0.95),
            restores: summary.restores,
            restore_failures: summary.restore_failures,
            restore_success: summary.restore_success(),
        }
    }
}

/// Read-only entries for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonView {
    /// The reason.
    pub reason: String,
    /// The code of the last error.
    pub code: String,
    /// How often.
    pub n: u64,
    /// Whether a live second tab explains it, so that it does not count for the rate.
    pub second_tab: bool,
}

/// The rate of a phase at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatePoint {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// The phase.
    pub phase: String,
    /// Sessions.
    pub sessions: u64,
    /// Read-only entries per session.
    pub rate: f64,
}

/// A change of the phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseChange {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// From which phase.
    pub from: String,
    /// To which.
    pub to: String,
    /// Whether it was a rollback.
    pub rollback: bool,
}
