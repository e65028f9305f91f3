//! The server's metrics, in Prometheus' format. Every server has its own: nothing here is global.
//!
//! No label has a value that callers choose: no document, no user, no address, and a route is its template.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use leasehold_core::EventKind;
use leasehold_core::event::EndReason;
use leasehold_core::telemetry::Summary;
use leasehold_core::wire::documents::StreamEnd;
use prometheus::core::Collector;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

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
const SOCKETS_OPEN: &str = "leasehold_sockets_open";
const STREAMS_ENDED: &str = "leasehold_streams_ended_total";

const RATE_LIMITED: &str = "leasehold_rate_limited_total";
const AUTH_FAILURES: &str = "leasehold_auth_failures_total";
const STORE_ERRORS: &str = "leasehold_store_errors_total";
const AUDIT_ERRORS: &str = "leasehold_audit_errors_total";
const TELEMETRY_EVENTS: &str = "leasehold_telemetry_events_total";
const TELEMETRY_SESSIONS: &str = "leasehold_telemetry_sessions_total";
const TELEMETRY_READ_ONLY: &str = "leasehold_telemetry_read_only_total";
const TELEMETRY_SECOND_TAB: &str = "leasehold_telemetry_second_tab_total";
const TELEMETRY_DROPPED: &str = "leasehold_telemetry_dropped_total";
const TELEMETRY_ERRORS: &str = "leasehold_telemetry_errors_total";
const WEBHOOKS: &str = "leasehold_webhooks_total";
const SWEEPER_LAG: &str = "leasehold_sweeper_lag_seconds";
const SWEEPING: &str = "leasehold_sweeping";
const OTHER_SERVERS: &str = "leasehold_other_servers";
const BUILD_INFO: &str = "leasehold_build_info";
const JOBS_ONLY: &str = "leasehold_jobs_only";

/// Every metric with its description. `docs/operations.md` has the same table.
const ALL: [(&str, &str); 35] = [
    (REQUESTS, "Requests answered, by route, method and status."),
    (REQUEST_SECONDS, "Time until the head of an answer was ready, by route and method."),
    (GRANTED, "Leases granted, as the store's events tell."),
    (RENEWED, "Leases renewed by this server."),
    (REFUSED, "Acquires that this server refused because the lease is held."),
    (LOST, "Callers that this server told that their lease is over."),
    (ENDED, "Leases ended, by reason, as the store's events tell."),
    (SHORTENED, "Leases cut short because the holder seemed to leave."),
    (RESUMED, "Holders that seemed to leave and came back."),
    (HANDOVER_REQUESTED, "Requests to hand over."),
    (HANDOVER_TOLD, "Holders that were told of a request to hand over."),
    (HANDOVER_REFUSED, "Requests to hand over that were refused, by the holder or by its silence."),
    (HANDOVER_WITHDRAWN, "Requests to hand over that were withdrawn."),
    (CONNECTIONS_OPEN, "Connections open now."),
    (CONNECTIONS_REFUSED, "Connections closed at once because there were too many, by limit."),
    (CONNECTIONS_CUT, "Connections closed because the peer was too slow or failed, by reason."),
    (STREAMS_OPEN, "Event streams open now."),
    (SOCKETS_OPEN, "WebSockets open now."),
    (STREAMS_ENDED, "Event streams that the server ended, by reason."),
    (RATE_LIMITED, "Requests refused because their caller makes too many."),
    (AUTH_FAILURES, "Requests whose token or ticket was refused."),
    (STORE_ERRORS, "Commands and reads that the store failed to answer."),
    (AUDIT_ERRORS, "Failed attempts to write the audit; each is tried again."),
    (TELEMETRY_EVENTS, "Events that pages have reported."),
    (
        TELEMETRY_SESSIONS,
        "Autosave sessions that pages have reported, once for every quarter of an hour of each.",
    ),
    (TELEMETRY_READ_ONLY, "Times that a page became read-only, without a live second tab as the reason."),
    (TELEMETRY_SECOND_TAB, "Times that a page became read-only because another tab has the project."),
    (TELEMETRY_DROPPED, "Reported events that were dropped because there was no room for them."),
    (TELEMETRY_ERRORS, "Failed attempts to write telemetry; each is tried again."),
    (WEBHOOKS, "Webhooks, by what came of them: sent, given up, or dropped because too many waited."),
    (SWEEPER_LAG, "How late the last expiry was told."),
    (SWEEPING, "1 if this server publishes expiries: of several on one store, one does."),
    (OTHER_SERVERS, "Other servers on the same store that this one knows of."),
    (BUILD_INFO, "Always 1; the label says which version this is."),
    (
        JOBS_ONLY,
        "1 if the server has jobs only: its store has no events, and what it granted itself is counted.",
    ),
];

/// From half a millisecond to ten seconds: a lock call takes a few milliseconds, a wait for a slow disk seconds.
const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The reasons for which leases end, in the order of [`end_index`].
const ENDS: [&str; 6] =
    ["released", "expired", "disconnected", "taken_over", "force_released", "handed_over"];

/// The metrics of a server. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Handles>);

/// The series that a route counted first, most of all that of its successes: to find them by their labels costs more than to
/// count.
#[derive(Default)]
pub struct KnownSeries([OnceLock<Series>; 2]);

struct Series {
    route: Box<str>,
    method: &'static str,
    status: StatusCode,
    requests: IntCounter,
    seconds: Histogram,
}

impl Series {
    fn count(&self, took: Duration) {
        self.requests.inc();
        self.seconds.observe(took.as_secs_f64());
    }
}

struct Handles {
    registry: Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    granted: IntCounter,
    renewed: IntCounter,
    refused: IntCounter,
    lost: IntCounter,
    ended: [IntCounter; 6],
    shortened: IntCounter,
    resumed: IntCounter,
    handover_requested: IntCounter,
    handover_told: IntCounter,
    handover_refused: IntCounter,
    handover_withdrawn: IntCounter,
    connections_open: IntGauge,
    refused_per_address: IntCounter,
    refused_in_all: IntCounter,
    cut: [IntCounter; 4],
    streams_open: IntGauge,
    sockets_open: IntGauge,
    streams_ended: [IntCounter; 3],
    rate_limited: IntCounter,
    auth_failures: IntCounter,
    store_errors: IntCounter,
    audit_errors: IntCounter,
    telemetry_events: IntCounter,
    telemetry_sessions: IntCounter,
    telemetry_read_only: IntCounter,
    telemetry_second_tab: IntCounter,
    telemetry_dropped: IntCounter,
    telemetry_errors: IntCounter,
    webhooks: [IntCounter; 3],
    sweeper_lag: Gauge,
    sweeping: IntGauge,
    other_servers: IntGauge,
    jobs_only: IntGauge,
}

impl Metrics {
    /// New metrics, all zero.
    pub fn new() -> Self {
        // Only names that are wrong or given twice are refused, and a test makes all of them.
        Self(Arc::new(Handles::new().unwrap_or_else(|error| unreachable!("{error}"))))
    }

    /// Everything, in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode_utf8(&self.0.registry.gather(), &mut text);
        text
    }

    /// A request was answered. `route` is the template of its address, never the address itself; `None` when it has none.
    pub fn request(
        &self,
        known: &KnownSeries,
        route: Option<&str>,
        method: &Method,
        status: StatusCode,
        took: Duration,
    ) {
        let (route, method) = (route.unwrap_or("none"), method_label(method));
        for place in &known.0 {
            let series = place.get_or_init(|| self.series(route, method, status));
            if (&*series.route, series.method, series.status) == (route, method, status) {
                return series.count(took);
            }
        }
        self.series(route, method, status).count(took);
    }

    fn series(&self, route: &str, method: &'static str, status: StatusCode) -> Series {
        Series {
            requests: self.0.requests.with_label_values(&[route, method, status.as_str()]),
            seconds: self.0.request_seconds.with_label_values(&[route, method]),
            route: route.into(),
            method,
            status,
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
            counter.inc();
        }
    }

    /// The server has jobs only.
    pub fn jobs_only(&self) {
        self.0.jobs_only.set(1);
    }

    /// A lease was granted by a store that has no events.
    pub fn granted(&self) {
        self.0.granted.inc();
    }

    /// A lease was renewed.
    pub fn renewed(&self) {
        self.0.renewed.inc();
    }

    /// An acquire was refused because the lease is held.
    pub fn refused(&self) {
        self.0.refused.inc();
    }

    /// A caller got the answer that its lease has ended.
    pub fn lost(&self) {
        self.0.lost.inc();
    }

    /// The server ended an event stream.
    pub fn stream_ended(&self, reason: StreamEnd) {
        let known = StreamEnd::ALL.iter().zip(&self.0.streams_ended).find(|(known, _)| **known == reason);
        if let Some((_, counter)) = known {
            counter.inc();
        }
    }

    /// A request was refused because its caller makes too many.
    pub fn rate_limited(&self) {
        self.0.rate_limited.inc();
    }

    /// A token or a ticket was refused.
    pub fn auth_failed(&self) {
        self.0.auth_failures.inc();
    }

    /// A call to the store failed.
    pub fn store_failed(&self) {
        self.0.store_errors.inc();
    }

    /// The audit could not be written.
    pub fn audit_failed(&self) {
        self.0.audit_errors.inc();
    }

    /// Pages have reported so many events.
    pub fn telemetry_counted(&self, summary: &Summary, events: u64) {
        self.0.telemetry_events.inc_by(events);
        self.0.telemetry_sessions.inc_by(summary.sessions);
        self.0.telemetry_read_only.inc_by(summary.read_only);
        self.0.telemetry_second_tab.inc_by(summary.second_tab);
    }

    /// Reported events were dropped.
    pub fn telemetry_dropped(&self, events: u64) {
        self.0.telemetry_dropped.inc_by(events);
    }

    /// Telemetry could not be written.
    pub fn telemetry_failed(&self) {
        self.0.telemetry_errors.inc();
    }

    /// A webhook was sent, or was not.
    pub(crate) fn webhook(&self, result: Webhook) {
        if let Some(counter) = self.0.webhooks.get(result as usize) {
            counter.inc();
        }
    }

    /// Whether this server is the one that sweeps.
    pub fn sweeping(&self, is_sweeping: bool) {
        self.0.sweeping.set(is_sweeping.into());
    }

    /// How many other servers are known.
    pub fn other_servers(&self, servers: usize) {
        self.0.other_servers.set(i64::try_from(servers).unwrap_or(i64::MAX));
    }

    /// The sweeper ran, this late.
    pub fn swept(&self, lag: Duration) {
        self.0.sweeper_lag.set(lag.as_secs_f64());
    }

    pub(crate) fn connection_opened(&self) {
        self.0.connections_open.inc();
    }

    pub(crate) fn connection_closed(&self) {
        self.0.connections_open.dec();
    }

    pub(crate) fn connection_refused(&self, limit: Full) {
        match limit {
            Full::Address => self.0.refused_per_address.inc(),
            Full::All => self.0.refused_in_all.inc(),
        }
    }

    pub(crate) fn connection_cut(&self, cut: Cut) {
        if let Some(counter) = self.0.cut.get(cut as usize) {
            counter.inc();
        }
    }

    pub(crate) fn stream_opened(&self) {
        self.0.streams_open.inc();
    }

    pub(crate) fn stream_closed(&self) {
        self.0.streams_open.dec();
    }

    pub(crate) fn socket_opened(&self) {
        self.0.sockets_open.inc();
    }

    pub(crate) fn socket_closed(&self) {
        self.0.sockets_open.dec();
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

/// What came of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Webhook {
    /// It arrived.
    Sent,
    /// It was given up.
    Failed,
    /// Too many waited.
    Dropped,
}

/// In the order of [`Webhook`].
const WEBHOOK_RESULTS: [&str; 3] = ["sent", "failed", "dropped"];

impl Handles {
    fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let plain = |name| -> prometheus::Result<_> { keep(&registry, IntCounter::with_opts(opts(name))?) };
        let open = |name| -> prometheus::Result<_> { keep(&registry, IntGauge::with_opts(opts(name))?) };
        let by = |name, labels: &[&str]| -> prometheus::Result<_> {
            keep(&registry, IntCounterVec::new(opts(name), labels)?)
        };
        let seconds = HistogramOpts::from(opts(REQUEST_SECONDS)).buckets(BUCKETS.to_vec());
        let ended = by(ENDED, &["because"])?;
        let refused = by(CONNECTIONS_REFUSED, &["limit"])?;
        let cut = by(CONNECTIONS_CUT, &["reason"])?;
        let streams_ended = by(STREAMS_ENDED, &["reason"])?;
        let webhooks = by(WEBHOOKS, &["result"])?;
        let build = keep(&registry, IntGaugeVec::new(opts(BUILD_INFO), &["version"])?)?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Self {
            requests: by(REQUESTS, &["route", "method", "status"])?,
            request_seconds: keep(&registry, HistogramVec::new(seconds, &["route", "method"])?)?,
            granted: plain(GRANTED)?,
            renewed: plain(RENEWED)?,
            refused: plain(REFUSED)?,
            lost: plain(LOST)?,
            ended: ENDS.map(|because| ended.with_label_values(&[because])),
            shortened: plain(SHORTENED)?,
            resumed: plain(RESUMED)?,
            handover_requested: plain(HANDOVER_REQUESTED)?,
            handover_told: plain(HANDOVER_TOLD)?,
            handover_refused: plain(HANDOVER_REFUSED)?,
            handover_withdrawn: plain(HANDOVER_WITHDRAWN)?,
            connections_open: open(CONNECTIONS_OPEN)?,
            refused_per_address: refused.with_label_values(&["per_address"]),
            refused_in_all: refused.with_label_values(&["in_all"]),
            cut: CUTS.map(|reason| cut.with_label_values(&[reason])),
            streams_open: open(STREAMS_OPEN)?,
            sockets_open: open(SOCKETS_OPEN)?,
            streams_ended: StreamEnd::ALL.map(|reason| streams_ended.with_label_values(&[reason.as_str()])),
            rate_limited: plain(RATE_LIMITED)?,
            auth_failures: plain(AUTH_FAILURES)?,
            store_errors: plain(STORE_ERRORS)?,
            audit_errors: plain(AUDIT_ERRORS)?,
            webhooks: WEBHOOK_RESULTS.map(|result| webhooks.with_label_values(&[result])),
            jobs_only: open(JOBS_ONLY)?,
            telemetry_events: plain(TELEMETRY_EVENTS)?,
            telemetry_sessions: plain(TELEMETRY_SESSIONS)?,
            telemetry_read_only: plain(TELEMETRY_READ_ONLY)?,
            telemetry_second_tab: plain(TELEMETRY_SECOND_TAB)?,
            telemetry_dropped: plain(TELEMETRY_DROPPED)?,
            telemetry_errors: plain(TELEMETRY_ERRORS)?,
            sweeping: open(SWEEPING)?,
            other_servers: open(OTHER_SERVERS)?,
            sweeper_lag: keep(&registry, Gauge::with_opts(opts(SWEEPER_LAG))?)?,
            registry,
        })
    }
}

/// The name of a metric and its description.
fn opts(name: &str) -> Opts {
    let help = ALL.iter().find(|(known, _)| *known == name).map_or("", |(_, help)| help);
    Opts::new(name, help)
}

fn keep<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> prometheus::Result<C> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
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
        metrics.request(
            &KnownSeries::default(),
            Some(route),
            &Method::POST,
            StatusCode::OK,
            Duration::from_millis(3),
        );
        let expected = include_str!("../tests/server/metric-names.txt");
        let version = format!("leasehold_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        let expected = expected.replace("leasehold_build_info", &version);
        assert_eq!(series(&metrics).join("\n") + "\n", expected);
    }

    #[test]
    fn every_metric_is_described_and_typed() {
        let metrics = Metrics::new();
        metrics.request(&KnownSeries::default(), None, &Method::GET, StatusCode::NOT_FOUND, Duration::ZERO);
        let text = metrics.render();
        for (name, help) in ALL {
            assert!(text.contains(&format!("# HELP {name} {help}")), "{name}\n{text}");
            let types = ["counter", "gauge", "histogram"];
            let is = |kind: &&&str| text.contains(&format!("# TYPE {name} {kind}"));
            let kind = types.iter().find(is).unwrap_or_else(|| panic!("{name} has no type"));
            assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
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
        let zebra = Method::from_bytes(b"ZEBRA").unwrap();
        metrics.request(&KnownSeries::default(), None, &zebra, StatusCode::OK, Duration::ZERO);
        let text = metrics.render();
        assert!(text.contains("method=\"other\"") && !text.contains("ZEBRA"), "{text}");
    }

    #[test]
    fn a_route_counts_each_status_in_its_own_series() {
        let (metrics, known) = (Metrics::new(), KnownSeries::default());
        for status in [200, 404, 409, 200, 409, 409] {
            let status = StatusCode::from_u16(status).unwrap();
            metrics.request(&known, Some("/x"), &Method::PUT, status, Duration::ZERO);
        }
        let text = metrics.render();
        for (status, count) in [(200, 2), (404, 1), (409, 3)] {
            let line = format!("{REQUESTS}{{method=\"PUT\",route=\"/x\",status=\"{status}\"}} {count}");
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_page_for_operators_names_every_metric() {
        let page = include_str!("../../../docs/operations.md");
        for (name, _) in ALL {
            assert!(page.contains(&format!("`{name}`")), "docs/operations.md does not name {name}");
        }
    }
}
