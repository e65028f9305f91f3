//! Telemetry: what is counted, what the counts say, and what can never get into them.

use leasehold_core::flags::PhaseName;
use leasehold_core::telemetry::{Counts, Event, EventName, Quantile, SESSION_SPAN_MS, Summary};
use leasehold_core::wire::telemetry::{
    BatchCount, BatchTimes, MAX_COUNT, MAX_ROWS, MAX_TIMES, SCHEMA, SummaryView, TelemetryBatch,
    TelemetryLine,
};
use proptest::prelude::*;

fn phase(name: &str) -> PhaseName {
    PhaseName::parse(name).unwrap()
}

fn readonly(reason: &str, code: &str) -> Event {
    Event::lock("lock:readonly-entered", Some(reason), Some(code))
}

#[test]
fn the_read_only_rate_is_entries_per_session() {
    let mut counts = Counts::default();
    assert_eq!(counts.summary(None).read_only_rate(), None);
    counts.add(&phase("b"), &Event::session(), 40);
    counts.add(&phase("b"), &readonly("renew-failed", "renew-failed"), 1);
    counts.add(&phase("b"), &readonly("acquire-timeout", "fallback-write-failed"), 2);
    assert_eq!(counts.summary(None).read_only_rate(), Some(0.075));
}

#[test]
fn a_live_second_tab_is_counted_apart() {
    let cases = [
        ("fallback-conflict", "fallback-conflict", true),
        ("acquire-timeout", "fallback-conflict", true),
        ("acquire-timeout", "lease-mismatch", true),
        ("acquire-timeout", "acquire-denied", false),
        ("acquire-timeout", "fallback-write-failed", false),
        ("lease-stale", "lease-stale", false),
        ("lease-stale", "lease-mismatch", false),
        ("renew-failed", "fallback-conflict", false),
        ("irrecoverable", "fallback-open-failed", false),
    ];
    for (reason, code, is_second) in cases {
        let mut counts = Counts::default();
        counts.add(&phase("b"), &Event::session(), 10);
        counts.add(&phase("b"), &readonly(reason, code), 3);
        let Summary { read_only, second_tab, .. } = counts.summary(None);
        let expected = if is_second { (0, 3) } else { (3, 0) };
        assert_eq!((read_only, second_tab), expected, "{reason} {code}");
    }
    assert!(!Event::lock("lock:error", None, Some("fallback-conflict")).is_second_tab());
}

#[test]
fn a_summary_is_of_one_phase_or_of_all() {
    let (before, after) = (phase("b"), phase("a"));
    let mut counts = Counts::default();
    counts.add(&before, &Event::session(), 10);
    counts.add(&before, &readonly("renew-failed", "renew-failed"), 5);
    counts.add(&after, &Event::session(), 7);
    assert_eq!(counts.summary(Some(&before)).read_only_rate(), Some(0.5));
    assert_eq!(counts.summary(Some(&after)).read_only_rate(), Some(0.0));
    assert_eq!(counts.summary(None).sessions, 17);
    assert_eq!(counts.phases(), [&after, &before]);
    assert_eq!(counts.read_only_by_reason(Some(&after)), []);
    assert_eq!(counts.read_only_by_reason(None), [(readonly("renew-failed", "renew-failed"), 5)]);
}

#[test]
fn times_fallbacks_saves_and_restores() {
    let mut counts = Counts::default();
    let acquired = |how| Event::lock("lock:acquired", Some(how), None);
    for millis in [8, 9, 12, 400] {
        counts.add(&phase("b"), &acquired("web-lock").took(millis), 1);
    }
    counts.add(&phase("b"), &acquired("file-lock").took(400), 1);
    counts.add(&phase("b"), &Event::new(EventName::Saved, None, None).took(90), 1);
    counts.add(&phase("b"), &Event::new(EventName::SaveFailed, Some("no-space"), None), 1);
    counts.add(&phase("b"), &Event::new(EventName::Restored, None, None), 3);
    counts.add(&phase("b"), &Event::new(EventName::RestoreFailed, None, None), 1);
    let summary = counts.summary(None);
    assert_eq!((summary.fallback_rate(), summary.restore_success()), (Some(0.2), Some(0.75)));
    assert_eq!(summary.acquire.quantile(0.5), Some(Quantile::AtMost(15)));
    assert_eq!(summary.acquire.quantile(0.95), Some(Quantile::AtMost(500)));
    let view = SummaryView::from(&summary);
    assert_eq!(
        (view.acquire_p50_ms, view.acquire_p95_ms, view.save_p95_ms),
        (Some(15), Some(500), Some(100))
    );
    assert_eq!((view.saves, view.save_failures), (1, 1));
}

/// A report of acquires that did not say how long they took showed that they took more than a minute.
#[test]
fn what_was_not_timed_took_no_time_at_all() {
    let mut counts = Counts::default();
    counts.add(&phase("b"), &Event::lock("lock:acquired", None, None), 24);
    let view = SummaryView::from(&counts.summary(None));
    assert_eq!((view.acquires, view.acquires_timed, view.acquire_p95_ms), (24, 0, None));
    counts.add(&phase("b"), &Event::lock("lock:acquired", None, None).took(90_000), 1);
    let view = SummaryView::from(&counts.summary(None));
    assert_eq!((view.acquires, view.acquires_timed, view.acquire_p95_ms), (25, 1, None));
}

#[test]
fn a_batch_that_is_too_large_or_of_another_schema_is_refused() {
    let batch = TelemetryBatch { v: 1, phase: None, counts: Vec::new(), times: Vec::new() };
    let count = |n| BatchCount { event: "lock:renewed".into(), reason: None, code: None, n };
    let times = |many| BatchTimes { event: "lock:acquired".into(), ms: vec![1; many] };
    assert!(batch.check().is_ok());
    let good =
        TelemetryBatch { counts: vec![count(10_000); 128], times: vec![times(256); 128], ..batch.clone() };
    assert!(good.check().is_ok());
    let bad = [
        TelemetryBatch { v: 2, ..batch.clone() },
        TelemetryBatch { counts: vec![count(0)], ..batch.clone() },
        TelemetryBatch { counts: vec![count(10_001)], ..batch.clone() },
        TelemetryBatch { counts: vec![count(1); 129], ..batch.clone() },
        TelemetryBatch { times: vec![times(257)], ..batch.clone() },
        TelemetryBatch { times: vec![times(1); 129], ..batch },
    ];
    for batch in bad {
        assert!(batch.check().is_err(), "{batch:?}");
    }
}

#[test]
fn a_line_of_another_schema_is_not_counted() {
    let mut counts = Counts::default();
    counts.add(&phase("b"), &Event::session(), 1);
    let line = TelemetryLine::new(10_000, &counts, 0);
    assert_eq!(line.counts(), Some(counts));
    assert_eq!(TelemetryLine { v: 2, ..line }.counts(), None);
}

#[test]
fn a_line_looks_like_this() {
    let mut counts = Counts::default();
    counts.add(&phase("b"), &readonly("renew-failed", "renew-failed"), 2);
    counts.add(&phase("b"), &Event::lock("lock:acquired", Some("web-lock"), None).took(12), 1);
    let line = serde_json::to_string(&TelemetryLine::new(1_767_268_800_000, &counts, 3)).unwrap();
    let expected = concat!(
        r#"{"v":1,"at":1767268800000,"counts":[{"phase":"b","event":"autosave.lock.readonly","reason":"renew-failed","#,
        r#""code":"renew-failed","n":2},{"phase":"b","event":"lock:acquired","reason":"web-lock","n":1}],"#,
        r#""times":[{"phase":"b","event":"lock:acquired","le":{"15":1}}],"dropped":3}"#
    );
    assert_eq!(line, expected);
}

#[test]
fn the_browser_package_counts_with_the_same_numbers() {
    let package = include_str!("../../../../web/src/telemetry.ts");
    let minutes = SESSION_SPAN_MS / 60_000;
    let most = format!("{},{:03}", MAX_COUNT / 1_000, MAX_COUNT % 1_000).replace(',', "_");
    for line in [
        format!("const SCHEMA = {SCHEMA};"),
        format!("const SESSION_SPAN_MS = {minutes} * 60_000;"),
        format!("const [MAX_ROWS, MAX_COUNT, MAX_TIMES] = [{MAX_ROWS}, {most}, {MAX_TIMES}];"),
    ] {
        assert!(package.contains(&line), "{line}");
    }
}

/// Words of the lists, and others that name people and things.
fn any_word() -> impl Strategy<Value = String> {
    let known = EventName::ALL.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>();
    let reasons = ["renew-failed", "fallback-conflict", "acquire-timeout", "file-lock", "no-space"];
    prop_oneof![
        prop::sample::select(known),
        prop::sample::select(reasons.map(str::to_owned).to_vec()),
        Just("secret-of-anna".to_owned()),
        "secret-\\PC{0,12}",
    ]
}

fn any_batch() -> impl Strategy<Value = TelemetryBatch> {
    let count = (any_word(), prop::option::of(any_word()), prop::option::of(any_word()), 1..=10_000_u64)
        .prop_map(|(event, reason, code, n)| BatchCount { event, reason, code, n });
    let times = (any_word(), prop::collection::vec(any::<u64>(), 0..8))
        .prop_map(|(event, ms)| BatchTimes { event, ms });
    (prop::collection::vec(count, 0..12), prop::collection::vec(times, 0..6))
        .prop_map(|(counts, times)| TelemetryBatch { v: 1, phase: None, counts, times })
}

proptest! {
    #![proptest_config(crate::cases(128))]

    #[test]
    fn no_word_from_outside_is_ever_kept(batch in any_batch()) {
        let counts = batch.counts(&phase("b"));
        prop_assert_eq!(counts.total(), batch.counts.iter().map(|count| count.n).sum::<u64>());
        let line = serde_json::to_string(&TelemetryLine::new(0, &counts, 0)).unwrap();
        prop_assert!(!line.contains("secret"), "{}", line);
    }

    #[test]
    fn a_line_has_all_that_was_counted(batch in any_batch()) {
        let counts = batch.counts(&phase("b"));
        let line = serde_json::to_string(&TelemetryLine::new(5, &counts, 0)).unwrap();
        let again: TelemetryLine = serde_json::from_str(&line).unwrap();
        prop_assert_eq!(again.counts(), Some(counts));
    }

    #[test]
    fn counts_add_up_in_any_order(batches in prop::collection::vec((any_batch(), 0..3_usize), 0..6)) {
        let phases = ["a", "b", "c"].map(phase);
        let sum = |order: &mut dyn Iterator<Item = &(TelemetryBatch, usize)>| {
            let mut sum = Counts::default();
            order.for_each(|(batch, at)| sum.merge(&batch.counts(&phases[*at])));
            sum
        };
        let forward = sum(&mut batches.iter());
        prop_assert_eq!(&forward, &sum(&mut batches.iter().rev()));
        let apart: u64 = phases.iter().map(|phase| forward.summary(Some(phase)).read_only).sum();
        prop_assert_eq!(apart, forward.summary(None).read_only);
    }

    #[test]
    fn a_quantile_is_no_less_than_the_measurement_and_no_more_than_its_bucket(millis in prop::collection::vec(1..200_000_u64, 1..40)) {
        let mut counts = Counts::default();
        let saved = Event::new(EventName::Saved, None, None);
        millis.iter().for_each(|millis| counts.add(&phase("b"), &saved.took(*millis), 1));
        let mut sorted = millis.clone();
        sorted.sort_unstable();
        for (part, at) in [(0.5, sorted.len().div_ceil(2)), (1.0, sorted.len())] {
            let real = sorted[at - 1];
            match counts.summary(None).save.quantile(part).unwrap() {
                Quantile::AtMost(edge) => prop_assert!(real <= edge && edge <= real * 2, "{} {}", real, edge),
                Quantile::MoreThan(edge) => prop_assert!(real > edge),
            }
        }
    }
}
