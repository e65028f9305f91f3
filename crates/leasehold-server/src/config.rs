//! Everything about a server that somebody may want to change, with the defaults that most keep.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use leasehold_core::Ttl;

use crate::auth::Auth;

/// How a server behaves.
#[derive(Clone)]
pub struct Config {
    /// Who may come in.
    pub auth: Auth,
    /// How long a lock lasts without a heartbeat: 30 s.
    pub ttl: Ttl,
    /// How often holders are told to renew: 10 s.
    pub heartbeat: Duration,
    /// How long a page that left softly has to come back: 5 s.
    pub grace: Ttl,
    /// Which web origins may call; none by default, and `*` for all.
    pub cors_origins: Vec<String>,
    /// From which proxies `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Certificate and key, for HTTPS.
    pub tls: Option<TlsFiles>,
    /// Where take-overs and forced releases are written down; nowhere when absent.
    pub audit: Option<PathBuf>,
    /// Signs tickets for event streams. Servers behind one address need the same one; drawn at the start by default.
    pub ticket_secret: Option<Vec<u8>>,
    /// How much is taken in.
    pub limits: Limits,
    /// The wall clock, for showing times; the machine's unless a test has its own.
    pub wall_clock: WallClock,
}

/// Certificate and key, as PEM files. They are read again when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, and those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// How much a server takes in. What is beyond is refused with the reason, and with `Retry-After` where waiting helps.
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
    /// How many connections there may be at all.
    pub connections: usize,
    /// How many requests a second one caller may make, and how many at once after a pause.
    pub requests_per_second: u32,
    /// See `requests_per_second`.
    pub burst: u32,
    /// How many event streams one caller may have open.
    pub streams_per_caller: usize,
    /// How many events a stream may be behind before it is ended.
    pub stream_backlog: usize,
    /// How long a server that shuts down waits for requests under way.
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
            burst: 400,
            streams_per_caller: 64,
            stream_backlog: 1_024,
            drain: Duration::from_secs(10),
        }
    }
}

/// Milliseconds since 1970, for showing and for the end of tokens: no lease is ever decided by it.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

impl Config {
    /// The defaults, with this way of letting people in.
    pub fn new(auth: Auth) -> Self {
        Self {
            auth,
            ttl: seconds(30),
            heartbeat: Duration::from_secs(10),
            grace: seconds(5),
            cors_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            tls: None,
            audit: None,
            ticket_secret: None,
            limits: Limits::default(),
            wall_clock: Arc::new(leasehold_store::clock::unix_millis),
        }
    }

    /// Whether the address of a peer is that of a proxy that may speak for others.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(&peer.to_canonical()))
    }
}

/// A number of seconds that is known to be a TTL.
fn seconds(seconds: u64) -> Ttl {
    Ttl::from_secs(seconds).unwrap_or(Ttl::MAX)
}
