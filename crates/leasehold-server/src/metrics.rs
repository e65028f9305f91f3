//! The server's metrics, in Prometheus' format. Every server has its own: nothing here is global.
//!
//! No label has a value that callers choose: no document, no user, no address, and a route is its template.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use leasehold_core::EventKind;
use leasehold_core::event::EndReason;
use leasehold_core::wire::documents::StreamEnd;
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

const REQUESTS: &str = "leasehold_http_requests_total";
const REQUEST_SECONDS: &str = "leasehold_http_request_duration_seconds";

const GRANTED: &str = "leasehold_granted_total";
const RENEWED: &str = "leasehold_renewed_total";
const REFUSED: &str = "leasehold_refused_total";
const LOST: &str = "leasehold_lost_total";
const ENDED: &str = "leasehold_ended_total";
const SHORTENED: &str = "leasehold_shortened_total";
const RESUMED: &str = "leasehold_resumed_total";
const HANDOVER_REQUESTED: &str = "leasehold_handover_requested_total";
const HANDOVER_TOLD: &str = "leasehold_handover_told_total";
const HANDOVER_REFUSED: &str = "leasehold_handover_refused_total";
const HANDOVER_WITHDRAWN: &str = "leasehold_handover_withdrawn_total";

const CONNECTIONS_OPEN: &str = "leasehold_connections_open";
const CONNECTIONS_REFUSED: &str = "leasehold_connections_refused_total";
const CONNECTIONS_CUT: &str = "leasehold_connections_cut_total";
const STREAMS_OPEN: &str = "leasehold_streams_open";
const STREAMS_ENDED: &str = "leasehold_streams_ended_total";

const RATE_LIMITED: &str = "leasehold_rate_limited_total";
const AUTH_FAILURES: &str = "leasehold_auth_failures_total";
const STORE_ERRORS: &str = "leasehold_store_errors_total";
const AUDIT_ERRORS: &str = "leasehold_audit_errors_total";
const SWEEPER_LAG: &str = "leasehold_sweeper_lag_seconds";
const BUILD_INFO: &str = "leasehold_build_info";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Every metric with its description. `docs/operations.md` has the same table.
const ALL: [(&str, Kind, &str); 24] = [
    (REQUESTS, Kind::Counter, "Requests answered, by route, method and status."),
    (REQUEST_SECONDS, Kind::Histogram, "Time until the head of an answer was ready, by route and method."),
    (GRANTED, Kind::Counter, "Leases granted, as the store's events tell."),
    (RENEWED, Kind::Counter, "Leases renewed by this server."),
    (REFUSED, Kind::Counter, "Acquires that this server refused because the lease is held."),
    (LOST, Kind::Counter, "Callers that this server told that their lease is over."),
    (ENDED, Kind::Counter, "Leases ended, by reason, as the store's events tell."),
    (SHORTENED, Kind::Counter, "Leases cut short because the holder seemed to leave."),
    (RESUMED, Kind::Counter, "Holders that seemed to leave and came back."),
    (HANDOVER_REQUESTED, Kind::Counter, "Requests to hand over."),
    (HANDOVER_TOLD, Kind::Counter, "Holders that were told of a request to hand over."),
    (
        HANDOVER_REFUSED,
        Kind::Counter,
        "Requests to hand over that were refused, by the holder or by its silence.",
    ),
    (HANDOVER_WITHDRAWN, Kind::Counter, "Requests to hand over that were withdrawn."),
    (CONNECTIONS_OPEN, Kind::Gauge, "Connections open now."),
    (CONNECTIONS_REFUSED, Kind::Counter, "Connections closed at once because there were too many, by limit."),
    (
        CONNECTIONS_CUT,
        Kind::Counter,
        "Connections closed because the peer was too slow or failed, by reason.",
    ),
    (STREAMS_OPEN, Kind::Gauge, "Event streams open now."),
    (STREAMS_ENDED, Kind::Counter, "Event streams that the server ended, by reason."),
    (RATE_LIMITED, Kind::Counter, "Requests refused because their caller makes too many."),
    (AUTH_FAILURES, Kind::Counter, "Requests whose token or ticket was refused."),
    (STORE_ERRORS, Kind::Counter, "Commands and reads that the store failed to answer."),
    (AUDIT_ERRORS, Kind::Counter, "Failed attempts to write the audit; each is tried again."),
    (SWEEPER_LAG, Kind::Gauge, "How late the last expiry was told."),
    (BUILD_INFO, Kind::Gauge, "Always 1; the label says which version this is."),
];

/// From half a millisecond to ten seconds: a lock call takes a few milliseconds, a wait for a slow disk seconds.
const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The reasons for which leases end, in the order of [`end_index`].
const ENDS: [&str; 6] =
    ["released", "expired", "disconnected", "taken_over", "force_released", "handed_over"];

/// After so many requests the samples are aggregated: otherwise they would pile up until the next scrape.
const SUM_UP_EVERY: u64 = 1_024;

/// The metrics of a server. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Handles>);

struct Handles {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    samples: AtomicU64,
    granted: Counter,
    renewed: Counter,
    refused: Counter,
    lost: Counter,
    ended: [Counter; 6],
    shortened: Counter,
    resumed: Counter,
    handover_requested: Counter,
    handover_told: Counter,
    handover_refused: Counter,
    handover_withdrawn: Counter,
    connections_open: Gauge,
    refused_per_address: Counter,
    refused_in_all: Counter,
    cut: [Counter; 4],
    streams_open: Gauge,
    streams_ended: [Counter; 3],
    rate_limited: Counter,
    auth_failures: Counter,
    store_errors: Counter,
    audit_errors: Counter,
    sweeper_lag: Gauge,
}

impl Metrics {
    /// New metrics, all zero.
    pub fn new() -> Self {
        let builder = PrometheusBuilder::new();
        let recorder = builder
            .set_buckets_for_metric(Matcher::Full(REQUEST_SECONDS.into()), &BUCKETS)
            // Only an empty list of buckets is refused.
            .unwrap_or_default()
            .build_recorder();
        describe(&recorder);
        gauge(&recorder, BUILD_INFO, Some(("version", env!("CARGO_PKG_VERSION")))).set(1.0);
        Self(Arc::new(Handles::new(recorder)))
    }

    /// Everything, in Prometheus' text format.
    pub fn render(&self) -> String {
        self.0.handle.render()
    }

    /// A request was answered. `route` is the template of its address, never the address itself; `None` when it has none.
    pub fn request(&self, route: Option<&str>, method: &Method, status: StatusCode, took: Duration) {
        let (route, method) = (route.unwrap_or("none").to_owned(), method_label(method));
        let labels = vec![Label::new("route", route), Label::from_static_parts("method", method)];
        let mut with_status = labels.clone();
        with_status.push(Label::new("status", status.as_u16().to_string()));
        let handles = &self.0;
        handles.recorder.register_counter(&Key::from_parts(REQUESTS, with_status), &METADATA).increment(1);
        let seconds: Histogram =
            handles.recorder.register_histogram(&Key::from_parts(REQUEST_SECONDS, labels), &METADATA);
        seconds.record(took.as_secs_f64());
        if handles.samples.fetch_add(1, Ordering::Relaxed) % SUM_UP_EVERY == SUM_UP_EVERY - 1 {
            handles.handle.run_upkeep();
        }
    }

    /// An event of a lease. On a shared store, every server counts every event.
    pub fn happened(&self, kind: &EventKind) {
        let handles = &self.0;
        let counter = match kind {
            EventKind::Granted { .. } => Some(&handles.granted),
            EventKind::Ended { because } => handles.ended.get(end_index(because)),
            EventKind::Shortened { .. } => Some(&handles.shortened),
            EventKind::Resumed { .. } => Some(&handles.resumed),
            EventKind::HandoverRequested { .. } => Some(&handles.handover_requested),
            EventKind::HandoverTold { .. } => Some(&handles.handover_told),
            EventKind::HandoverRefused { .. } => Some(&handles.handover_refused),
            EventKind::HandoverWithdrawn { .. } => Some(&handles.handover_withdrawn),
        };
        if let Some(counter) = counter {
            counter.increment(1);
        }
    }

    /// A lease was renewed.
    pub fn renewed(&self) {
        self.0.renewed.increment(1);
    }

    /// An acquire was refused because the lease is held.
    pub fn refused(&self) {
        self.0.refused.increment(1);
    }

    /// A caller got the answer that its lease has ended.
    pub fn lost(&self) {
        self.0.lost.increment(1);
    }

    /// The server ended an event stream.
    pub fn stream_ended(&self, reason: StreamEnd) {
        let known = StreamEnd::ALL.iter().zip(&self.0.streams_ended).find(|(known, _)| **known == reason);
        if let Some((_, counter)) = known {
            counter.increment(1);
        }
    }

    /// A request was refused because its caller makes too many.
    pub fn rate_limited(&self) {
        self.0.rate_limited.increment(1);
    }

    /// A token or a ticket was refused.
    pub fn auth_failed(&self) {
        self.0.auth_failures.increment(1);
    }

    /// A call to the store failed.
    pub fn store_failed(&self) {
        self.0.store_errors.increment(1);
    }

    /// The audit could not be written.
    pub fn audit_failed(&self) {
        self.0.audit_errors.increment(1);
    }

    /// The sweeper ran, this late.
    pub fn swept(&self, lag: Duration) {
        self.0.sweeper_lag.set(lag.as_secs_f64());
    }

    pub(crate) fn connection_opened(&self) {
        self.0.connections_open.increment(1.0);
    }

    pub(crate) fn connection_closed(&self) {
        self.0.connections_open.decrement(1.0);
    }

    pub(crate) fn connection_refused(&self, limit: Full) {
        match limit {
            Full::Address => self.0.refused_per_address.increment(1),
            Full::All => self.0.refused_in_all.increment(1),
        }
    }

    pub(crate) fn connection_cut(&self, cut: Cut) {
        if let Some(counter) = self.0.cut.get(cut as usize) {
            counter.increment(1);
        }
    }

    pub(crate) fn stream_opened(&self) {
        self.0.streams_open.increment(1.0);
    }

    pub(crate) fn stream_closed(&self) {
        self.0.streams_open.decrement(1.0);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Which limit of connections was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// That of one address.
    Address,
    /// That of all of them.
    All,
}

/// Why a connection was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The head of a request did not arrive in time.
    Head,
    /// The peer read nothing of a response for too long.
    Stalled,
    /// The TLS handshake failed, or took too long.
    Tls,
    /// The server shut down before its requests were done.
    ShuttingDown,
}

/// In the order of [`Cut`].
const CUTS: [&str; 4] = ["head", "stalled", "tls", "shutting_down"];

impl Handles {
    fn new(recorder: PrometheusRecorder) -> Self {
        let plain = |name| counter(&recorder, name, None);
        let labelled = |name, label, value| counter(&recorder, name, Some((label, value)));
        Self {
            granted: plain(GRANTED),
            renewed: plain(RENEWED),
            refused: plain(REFUSED),
            lost: plain(LOST),
            ended: ENDS.map(|because| labelled(ENDED, "because", because)),
            shortened: plain(SHORTENED),
            resumed: plain(RESUMED),
            handover_requested: plain(HANDOVER_REQUESTED),
            handover_told: plain(HANDOVER_TOLD),
            handover_refused: plain(HANDOVER_REFUSED),
            handover_withdrawn: plain(HANDOVER_WITHDRAWN),
            connections_open: gauge(&recorder, CONNECTIONS_OPEN, None),
            refused_per_address: labelled(CONNECTIONS_REFUSED, "limit", "per_address"),
            refused_in_all: labelled(CONNECTIONS_REFUSED, "limit", "in_all"),
            cut: CUTS.map(|reason| labelled(CONNECTIONS_CUT, "reason", reason)),
            streams_open: gauge(&recorder, STREAMS_OPEN, None),
            streams_ended: StreamEnd::ALL.map(|reason| labelled(STREAMS_ENDED, "reason", reason.as_str())),
            rate_limited: plain(RATE_LIMITED),
            auth_failures: plain(AUTH_FAILURES),
            store_errors: plain(STORE_ERRORS),
            audit_errors: plain(AUDIT_ERRORS),
            sweeper_lag: gauge(&recorder, SWEEPER_LAG, None),
            samples: AtomicU64::new(0),
            handle: recorder.handle(),
            recorder,
        }
    }
}

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

type OneLabel = Option<(&'static str, &'static str)>;

fn key(name: &'static str, label: OneLabel) -> Key {
    match label {
        Some((label, value)) => Key::from_parts(name, vec![Label::from_static_parts(label, value)]),
        None => Key::from_static_name(name),
    }
}

fn counter(recorder: &PrometheusRecorder, name: &'static str, label: OneLabel) -> Counter {
    recorder.register_counter(&key(name, label), &METADATA)
}

fn gauge(recorder: &PrometheusRecorder, name: &'static str, label: OneLabel) -> Gauge {
    recorder.register_gauge(&key(name, label), &METADATA)
}

fn describe(recorder: &PrometheusRecorder) {
    for (name, kind, help) in ALL {
        match kind {
            Kind::Counter => recorder.describe_counter(name.into(), None, help.into()),
            Kind::Gauge => recorder.describe_gauge(name.into(), None, help.into()),
            Kind::Histogram => recorder.describe_histogram(name.into(), None, help.into()),
        }
    }
}

fn end_index(because: &EndReason) -> usize {
    match because {
        EndReason::Released => 0,
        EndReason::Expired => 1,
        EndReason::Disconnected => 2,
        EndReason::TakenOver { .. } => 3,
        EndReason::ForceReleased { .. } => 4,
        EndReason::HandedOver { .. } => 5,
    }
}

/// Callers can invent methods; all unknown ones share a label.
fn method_label(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every series but the buckets, without its value.
    fn series(metrics: &Metrics) -> Vec<String> {
        let text = metrics.render();
        let mut series: Vec<_> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.contains("_bucket{"))
            .filter_map(|line| line.rsplit_once(' ').map(|(name, _)| name.to_owned()))
            .collect();
        series.sort();
        series
    }

    #[test]
    fn the_names_of_all_metrics() {
        let metrics = Metrics::new();
        let route = "/api/documents/{roomId}/lock";
        metrics.request(Some(route), &Method::POST, StatusCode::OK, Duration::from_millis(3));
        let expected = include_str!("../tests/server/metric-names.txt");
        let version = format!("leasehold_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        let expected = expected.replace("leasehold_build_info", &version);
        assert_eq!(series(&metrics).join("\n") + "\n", expected);
    }

    #[test]
    fn every_metric_is_described_and_typed() {
        let metrics = Metrics::new();
        metrics.request(None, &Method::GET, StatusCode::NOT_FOUND, Duration::ZERO);
        let text = metrics.render();
        for (name, kind, help) in ALL {
            assert!(text.contains(&format!("# HELP {name} {help}")), "{name}\n{text}");
            let word = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            assert!(text.contains(&format!("# TYPE {name} {word}")), "{name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        }
        let described = text.lines().filter(|line| line.starts_with("# HELP")).count();
        assert_eq!(described, ALL.len());
    }

    #[test]
    fn events_count_under_their_own_names() {
        let metrics = Metrics::new();
        metrics.happened(&EventKind::Ended { because: EndReason::Expired });
        metrics.happened(&EventKind::Ended { because: EndReason::Expired });
        metrics.stream_ended(StreamEnd::TooSlow);
        let text = metrics.render();
        for line in [
            "leasehold_ended_total{because=\"expired\"} 2",
            "leasehold_ended_total{because=\"released\"} 0",
            "leasehold_streams_ended_total{reason=\"too_slow\"} 1",
            "leasehold_streams_ended_total{reason=\"token_expired\"} 0",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_callers_make_up_is_no_label() {
        let metrics = Metrics::new();
        metrics.request(None, &Method::from_bytes(b"ZEBRA").unwrap(), StatusCode::OK, Duration::ZERO);
        let text = metrics.render();
        assert!(text.contains("method=\"other\"") && !text.contains("ZEBRA"), "{text}");
    }

    #[test]
    fn the_page_for_operators_names_every_metric() {
        let page = include_str!("../../../docs/operations.md");
        for (name, _, _) in ALL {
            assert!(page.contains(&format!("`{name}`")), "docs/operations.md does not name {name}");
        }
    }
}
