//! The settings of a server, and their defaults.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use leasehold_core::Ttl;
use leasehold_core::flags::PhaseName;

use crate::auth::Auth;
use crate::demo;
use crate::dev::DevSigner;
use crate::files::ConfigError;
use crate::pusher::settings::PusherSettings;
use crate::telemetry::Keep;
use crate::webhooks::WebhookSettings;

/// The settings of a server.
#[derive(Clone)]
pub struct Config {
    /// How callers authenticate.
    pub auth: Auth,
    /// Signs the page at `/` in as one of the made-up users of `--dev`; absent otherwise.
    pub dev: Option<DevSigner>,
    /// The folder of the demo's files, which are read at every request; those that were embedded when absent.
    pub demo_folder: Option<PathBuf>,
    /// How long a lock lasts without a heartbeat, in whole seconds: 30 s.
    pub ttl: Ttl,
    /// How often holders should renew, in whole seconds: 10 s, and at most half the TTL.
    pub heartbeat: Duration,
    /// How long a lock lasts after a soft release: 5 s.
    pub grace: Ttl,
    /// Which web origins may call, as browsers write them; none by default, and `*` for all.
    pub cors_origins: Vec<String>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Certificate and key, for HTTPS.
    pub tls: Option<TlsFiles>,
    /// The audit file, for take-overs and forced releases; no audit when absent.
    pub audit: Option<PathBuf>,
    /// The flag file: which phase pages are in. It is read again when it changes.
    pub flags_file: Option<PathBuf>,
    /// The phase that counts here, whatever the flag file says.
    pub phase: Option<PhaseName>,
    /// Signs tickets for event streams. Servers behind one address need the same secret; random at every start by default.
    pub ticket_secret: Option<Vec<u8>>,
    /// The WebSocket door for Pusher clients; closed when absent.
    pub pusher: Option<PusherSettings>,
    /// Where telemetry is counted, and from whom; none when absent.
    pub telemetry: Option<TelemetrySettings>,
    /// Where take-overs and forced releases are posted to; nowhere when absent.
    pub webhook: Option<WebhookSettings>,
    /// The limits on requests and connections.
    pub limits: Limits,
    /// The wall clock, for times that are shown and for the expiry of tokens; the machine's except in tests.
    pub wall_clock: WallClock,
}

/// The telemetry of a server. It is off unless a folder is named.
#[derive(Clone, Debug)]
pub struct TelemetrySettings {
    /// The folder of its files, which has nothing else in it.
    pub folder: PathBuf,
    /// Whether pages without a token may send counts, too. Anyone who reaches the server can then make the rates up.
    pub anonymous: bool,
    /// How much is kept.
    pub keep: Keep,
}

impl TelemetrySettings {
    /// Telemetry in this folder, from callers with a token.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), anonymous: false, keep: Keep::default() }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let days = usize::try_from(self.keep.days).unwrap_or(usize::MAX);
        let bytes = usize::try_from(self.keep.bytes_per_day).unwrap_or(usize::MAX);
        within("telemetry.days", days, 1, 3_650)?;
        within("telemetry.bytes_per_day", bytes, 64 * KIB, 1024 * MIB)
    }
}

/// Certificate and key, as PEM files. They are read again when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The limits of a server. A request beyond one is refused with the reason, and with `Retry-After` where waiting helps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest body, in bytes.
    pub body: usize,
    /// How long the head of a request may be, in bytes.
    pub head: usize,
    /// How long the head of a request may take to arrive.
    pub head_time: Duration,
    /// How long the body of a request may take to arrive.
    pub body_time: Duration,
    /// How many connections one address may have open.
    pub connections_per_address: usize,
    /// How many connections there may be in total.
    pub connections: usize,
    /// How many requests a second one caller may make.
    pub requests_per_second: u32,
    /// How many requests one caller may make at once after a pause.
    pub burst: u32,
    /// How many event streams one caller may have open.
    pub streams_per_caller: usize,
    /// How many events a stream may be behind before it is ended; for one document at most 256.
    pub stream_backlog: usize,
    /// How long a shutdown waits for requests in progress.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 * 1024,
            head: 16 * 1024,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            connections_per_address: 1_024,
            connections: 16_384,
            requests_per_second: 200,
            burst: 1_000,
            streams_per_caller: 64,
            stream_backlog: 1_024,
            drain: Duration::from_secs(10),
        }
    }
}

/// Milliseconds since 1970, for times that are shown and for the expiry of tokens. No decision about a lease uses it.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

impl Config {
    /// The defaults, with this kind of authentication.
    pub fn new(auth: Auth) -> Self {
        Self {
            auth,
            dev: None,
            demo_folder: demo::default_folder(),
            ttl: seconds(30),
            heartbeat: Duration::from_secs(10),
            grace: seconds(5),
            cors_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            tls: None,
            audit: None,
            flags_file: None,
            phase: None,
            ticket_secret: None,
            pusher: None,
            telemetry: None,
            webhook: None,
            limits: Limits::default(),
            wall_clock: Arc::new(leasehold_store::clock::unix_millis),
        }
    }

    /// Refuses settings that cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_heartbeat()?;
        self.cors_origins.iter().try_for_each(|origin| check_origin("cors_origins", origin))?;
        self.pusher.as_ref().map_or(Ok(()), PusherSettings::check)?;
        self.telemetry.as_ref().map_or(Ok(()), TelemetrySettings::check)?;
        self.webhook.as_ref().map_or(Ok(()), WebhookSettings::check)?;
        self.limits.check()
    }

    /// Both are whole seconds on the wire.
    fn check_heartbeat(&self) -> Result<(), ConfigError> {
        let is_whole = |span: Duration| !span.is_zero() && span.subsec_nanos() == 0;
        let (ttl, heartbeat) = (self.ttl.as_duration(), self.heartbeat);
        let what = format!("heartbeat {heartbeat:?}, ttl {ttl:?}");
        if !is_whole(heartbeat) || !is_whole(ttl) {
            let rule = "both must be whole seconds, at least 1";
            return Err(ConfigError::new(what, rule, "choose whole seconds, such as 10s and 30s"));
        }
        if heartbeat * 2 > ttl {
            let rule = "a lock must last for at least two heartbeats";
            let fix = "choose a heartbeat of at most half the ttl; a third is usual";
            return Err(ConfigError::new(what, rule, fix));
        }
        Ok(())
    }

    /// Whether a peer is a trusted proxy.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(&peer.to_canonical()))
    }
}

/// The smallest buffer that HTTP/1 can be read with.
const SMALLEST_HEAD: usize = 8 * 1024;

/// A kilobyte, a megabyte, and more connections than one machine can have open.
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const MANY: usize = 1_000_000;

const HOUR: Duration = Duration::from_secs(3_600);

impl Limits {
    /// Checks each limit's range: a limit of zero would refuse every request, an unbounded one could exhaust the memory.
    fn check(&self) -> Result<(), ConfigError> {
        within("limits.body", self.body, KIB, 64 * MIB)?;
        within("limits.head", self.head, SMALLEST_HEAD, MIB)?;
        within("limits.connections", self.connections, 1, MANY)?;
        within("limits.connections_per_address", self.connections_per_address, 1, MANY)?;
        within("limits.streams_per_caller", self.streams_per_caller, 1, MANY)?;
        within("limits.stream_backlog", self.stream_backlog, 1, 64 * KIB)?;
        span_within("limits.head_time", self.head_time, Duration::from_millis(100))?;
        span_within("limits.body_time", self.body_time, Duration::from_millis(100))?;
        span_within("limits.drain", self.drain, Duration::ZERO)
    }
}

pub(crate) fn within(name: &str, value: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(out_of_range(name, &value.to_string(), &format!("{least} and {most}")))
}

fn span_within(name: &str, value: Duration, least: Duration) -> Result<(), ConfigError> {
    if (least..=HOUR).contains(&value) {
        return Ok(());
    }
    let shown = |span: Duration| if span.is_zero() { "0s".to_owned() } else { format!("{span:?}") };
    Err(out_of_range(name, &shown(value), &format!("{} and 1h", shown(least))))
}

fn out_of_range(name: &str, value: &str, range: &str) -> ConfigError {
    let rule = format!("it must be between {range}");
    ConfigError::new(
        format!("{name} {value}"),
        rule,
        "choose a value in this range, or leave it out for the default",
    )
}

/// An origin is compared byte by byte with what browsers send: scheme and host in lower case, a port only if it is not the
/// default one, and nothing after it.
pub(crate) fn check_origin(setting: &str, origin: &str) -> Result<(), ConfigError> {
    let wrong = |rule: &str| {
        let fix = "write it like https://app.example.com or http://localhost:5173, or * for all";
        Err(ConfigError::new(format!("{setting} {origin:?}"), rule, fix))
    };
    if origin == "*" {
        return Ok(());
    }
    let Some((scheme, address)) = origin.split_once("://") else { return wrong("it has no scheme") };
    let is_scheme = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    let is_address = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._:[]".contains(c);
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !address.ends_with(']') => (host, Some(port)),
        _ => (address, None),
    };
    match (scheme, port) {
        _ if address.contains(['/', '?', '#']) => {
            wrong("nothing may follow the host and port, not even a slash")
        }
        _ if scheme.is_empty() || !scheme.chars().all(is_scheme) => {
            wrong("browsers send no origin with this scheme")
        }
        _ if host.is_empty() || !address.chars().all(is_address) => {
            wrong("browsers send no origin with this host")
        }
        (_, Some(port)) if port.parse::<u16>().is_err() => wrong("its port is not a number up to 65535"),
        ("https", Some("443")) | ("http", Some("80")) => {
            wrong("browsers leave out the default port of a scheme")
        }
        _ => Ok(()),
    }
}

/// A number of seconds that is known to be a TTL.
fn seconds(seconds: u64) -> Ttl {
    Ttl::from_secs(seconds).unwrap_or(Ttl::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Config)) -> Option<String> {
        let mut config = Config::new(Auth::Open);
        change(&mut config);
        config.check().err().map(|error| error.to_string())
    }

    /// `https://app.example/`, copied from an address bar, was taken without a word, and no page could call.
    #[test]
    fn an_origin_is_written_as_browsers_do() {
        let good = [
            "*",
            "https://app.example",
            "http://localhost:5173",
            "http://[::1]:8080",
            "http://[::1]",
            "https://xn--bcher-kva.example",
            "capacitor://localhost",
        ];
        for origin in good {
            assert_eq!(refusal(|config| config.cors_origins = vec![origin.into()]), None);
        }
        let bad = [
            ("https://app.example/", "not even a slash"),
            ("https://app.example/editor", "not even a slash"),
            ("app.example", "no scheme"),
            ("localhost:5173", "no scheme"),
            ("null", "no scheme"),
            ("", "no scheme"),
            ("https://", "with this host"),
            ("https://App.example", "with this host"),
            ("https://*.example", "with this host"),
            ("https://me@app.example", "with this host"),
            ("HTTPS://app.example", "with this scheme"),
            ("https://app.example:443", "leave out the default port"),
            ("http://app.example:80", "leave out the default port"),
            ("http://app.example:", "its port"),
            ("http://app.example:99999", "its port"),
        ];
        for (origin, expected) in bad {
            let refusal = refusal(|config| config.cors_origins = vec![origin.into()]);
            assert!(refusal.is_some_and(|words| words.contains(expected)), "{origin:?}");
        }
    }

    /// `--heartbeat 700ms` was told to pages as 0 seconds, and they sent heartbeats without a pause.
    #[test]
    fn times_that_are_told_in_seconds_are_whole_seconds() {
        let times = |ttl: u64, heartbeat: u64| {
            refusal(|config| {
                config.ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
                config.heartbeat = Duration::from_millis(heartbeat);
            })
        };
        assert_eq!((times(2_000, 1_000), times(30_000, 15_000)), (None, None));
        for (ttl, heartbeat) in [(1_500, 700), (30_000, 700), (30_000, 0), (30_500, 10_000)] {
            assert!(times(ttl, heartbeat).unwrap().contains("whole seconds"), "{ttl} {heartbeat}");
        }
        assert!(times(30_000, 16_000).unwrap().contains("at most half the ttl"));
    }

    /// A backlog of 0 ended the server with a panic, a huge one took all memory, and with a head time of 0 it started and
    /// answered nobody.
    #[test]
    fn every_limit_has_a_range() {
        type Change = fn(&mut Limits, usize);
        let numbers: [(&str, Change); 6] = [
            ("body", |limits, value| limits.body = value),
            ("head", |limits, value| limits.head = value),
            ("connections", |limits, value| limits.connections = value),
            ("connections_per_address", |limits, value| limits.connections_per_address = value),
            ("streams_per_caller", |limits, value| limits.streams_per_caller = value),
            ("stream_backlog", |limits, value| limits.stream_backlog = value),
        ];
        for (name, change) in numbers {
            for value in [0, usize::MAX] {
                let words = refusal(|config| change(&mut config.limits, value)).unwrap();
                assert!(words.starts_with(&format!("limits.{name} {value}: it must be between ")), "{words}");
            }
        }
        let forever = Duration::from_secs(u64::MAX);
        for span in [Duration::ZERO, forever] {
            assert!(refusal(|config| config.limits.head_time = span).unwrap().contains("head_time"));
            assert!(refusal(|config| config.limits.body_time = span).unwrap().contains("body_time"));
        }
        assert!(refusal(|config| config.limits.drain = forever).unwrap().contains("0s and 1h"));
        assert_eq!(refusal(|config| config.limits.drain = Duration::ZERO), None, "nobody is waited for");
        assert_eq!(refusal(|config| config.limits.requests_per_second = 0), None, "no limit");
    }
}
