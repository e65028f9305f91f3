//! A real server on a port of its own, for the tests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{CancellationToken, HttpClient, Leasehold, RoomId};
use leasehold_core::Ttl;
use leasehold_server::Config;
use leasehold_server::auth::{Auth, Jwt, JwtOptions, KeySource, Subject, mint};
use leasehold_store::{Memory, Store};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl TestServer {
    /// On a store in memory, with a TTL of 30 s.
    pub(crate) async fn start() -> Self {
        Self::with_ttl(30).await
    }

    pub(crate) async fn with_ttl(seconds: u64) -> Self {
        Self::on(Arc::new(Memory::new()), seconds).await
    }

    pub(crate) async fn on(store: Arc<dyn Store>, ttl_seconds: u64) -> Self {
        let auth =
            Auth::Jwt(Arc::new(Jwt::open(JwtOptions::new(KeySource::Secret(SECRET.to_vec()))).unwrap()));
        let mut config = Config::new(auth);
        config.ttl = Ttl::from_secs(ttl_seconds).unwrap();
        config.heartbeat = config.heartbeat.min(Duration::from_secs(ttl_seconds / 2));
        config.limits.drain = Duration::from_millis(500);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(async move {
            leasehold_server::run(listener, store, config, stopped).await.unwrap();
        });
        Self { address, stop, task }
    }

    pub(crate) fn client(&self, user: &str) -> HttpClient {
        client(self.address, user)
    }

    pub(crate) fn leasehold(&self, user: &str) -> Leasehold {
        Leasehold::connect(self.client(user))
    }

    /// Ends in an orderly way.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// The documents door at an address, as a user who may do everything.
pub(crate) fn client(address: SocketAddr, user: &str) -> HttpClient {
    client_with(address, &token(user, Duration::from_secs(3_600)))
}

pub(crate) fn client_with(address: SocketAddr, token: &str) -> HttpClient {
    HttpClient::at(format!("http://{address}")).token(token).timeout(Duration::from_secs(5)).build().unwrap()
}

/// A token for a user who may do everything but take from others, unless it is the boss.
pub(crate) fn token(user: &str, lifetime: Duration) -> String {
    let level = if user == "boss" { "force" } else { "lock" };
    let name = format!("{}{}", user[..1].to_uppercase(), &user[1..]);
    let all = &[("*", level)];
    let subject = Subject { id: user, name: &name, documents: all, jobs: all, leases: all };
    mint(SECRET, &subject, lifetime).unwrap()
}

pub(crate) fn room(name: &str) -> RoomId {
    RoomId::parse(name).unwrap()
}
