//! Accepts connections, and closes those that only use up room: too many from one address, too slow to send a request, or
//! too slow to read the response.
//!
//! Nothing here knows what a request is about. No peer can keep others from connecting.

mod gate;
mod tls;
mod watch;

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub(crate) use self::gate::network_of;
use self::gate::{Gate, Place};
use self::tls::Tls;
use self::watch::{Activity, Answer, Watched, drive};
use crate::config::{Config, Limits};
use crate::files::ConfigError;
use crate::metrics::{Cut, Metrics};
use leasehold_core::{Retries, RetryPolicy};
use leasehold_store::jitter;

/// The client's address: the peer's, or the one that a trusted proxy names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// How many concurrent requests one HTTP/2 connection may have.
const STREAMS: u32 = 128;

/// How many bytes are buffered per HTTP/2 stream, and per connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;

/// How often an HTTP/2 peer is pinged, and how long it has to answer.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWER: Duration = Duration::from_secs(10);

/// Checks the certificate and the key before the server starts to listen.
pub(crate) fn check_tls(config: &Config) -> Result<(), ConfigError> {
    config.tls.as_ref().map(Tls::open).transpose().map(|_| ())
}

/// Serves until the shutdown, and then finishes the requests in progress, for at most `limits.drain`.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    config: &Config,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let tls = config.tls.as_ref().map(Tls::open).transpose().map_err(io::Error::other)?;
    let gate = Gate::new(&config.limits, metrics.clone());
    let door = Arc::new(Door {
        router,
        http1: http1(&config.limits),
        http2: http2(&config.limits),
        tls,
        config: Arc::new(config.clone()),
        metrics,
        shutdown,
    });
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            () = door.shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            (stream, peer) = accept(&listener) => door.admit(&gate, peer).map(|place| (stream, peer, place)),
        };
        if let Some((stream, peer, place)) = stream {
            connections.spawn(door.clone().welcome(stream, peer, place));
        }
    }
    drop(listener);
    drain(connections, &door).await;
    Ok(())
}

/// The next connection. When the system cannot open another (out of file descriptors), existing connections go on and it
/// retries.
async fn accept(listener: &TcpListener) -> (TcpStream, IpAddr) {
    let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer.ip().to_canonical()),
            Err(error) if is_about_the_peer(&error) => {}
            Err(error) => {
                if retries.failures() == 0 {
                    tracing::error!(%error, "cannot accept connections; trying again");
                }
                tokio::time::sleep(retries.pause()).await;
            }
        }
    }
}

/// Whether the peer closed the connection before it was accepted.
fn is_about_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Waits for the connections, which have been told to close.
async fn drain(mut connections: JoinSet<()>, door: &Door) {
    let all_gone = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(door.config.limits.drain, all_gone).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "closed connections whose requests did not finish in time"
        );
        (0..connections.len()).for_each(|_| door.metrics.connection_cut(Cut::ShuttingDown));
        connections.shutdown().await;
    }
}

/// What all connections share.
struct Door {
    router: Router,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    tls: Option<Tls>,
    config: Arc<Config>,
    metrics: Metrics,
    shutdown: CancellationToken,
}

impl Door {
    /// A place for one more connection, or `None` at the limit.
    fn admit(&self, gate: &Gate, peer: IpAddr) -> Option<Place> {
        match gate.enter(peer, self.config.trusts(peer)) {
            Ok(place) => Some(place),
            Err(full) => {
                self.metrics.connection_refused(full);
                tracing::debug!(%peer, ?full, "connection refused");
                None
            }
        }
    }

    /// Serves one connection, from its first byte to its end.
    async fn welcome(self: Arc<Self>, stream: TcpStream, peer: IpAddr, place: Place) {
        // Responses are written whole, so there is nothing to coalesce.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.converse(stream, peer, place).await };
        let handshake = tokio::time::timeout(self.config.limits.head_time, tls.accept(stream));
        let agreed = tokio::select! {
            () = self.shutdown.cancelled() => return,
            agreed = handshake => agreed,
        };
        match agreed {
            // In a box: a connection without TLS would otherwise have room for what only TLS needs.
            Ok(Ok(stream)) => Box::pin(self.converse(stream, peer, place)).await,
            _ => self.metrics.connection_cut(Cut::Tls),
        }
    }

    async fn converse<S>(&self, stream: S, peer: IpAddr, place: Place)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let activity = Arc::new(Activity::new(&self.config.limits));
        // A token of its own: to look at one that is shared takes a lock that all connections would wait for.
        let shutdown = self.shutdown.child_token();
        let mut watched = Watched::new(stream, activity.clone(), place);
        let first_bytes = tokio::time::timeout(self.config.limits.head_time, watched.is_http2());
        let is_http2 = tokio::select! {
            () = shutdown.cancelled() => return,
            is_http2 = first_bytes => is_http2,
        };
        let (io, visitor) = (TokioIo::new(watched), self.visitor(peer, activity.clone()));
        let cut = match is_http2 {
            Err(_) => Some(Cut::Head),
            Ok(Err(_)) => None,
            // In a box, as above: most connections are not HTTP/2.
            Ok(Ok(true)) => {
                let mut connection = Box::pin(self.http2.serve_connection(io, visitor));
                drive(connection.as_mut(), &activity, &shutdown).await
            }
            Ok(Ok(false)) => {
                let connection = pin!(self.http1.serve_connection(io, visitor).with_upgrades());
                drive(connection, &activity, &shutdown).await
            }
        };
        if let Some(cut) = cut {
            self.metrics.connection_cut(cut);
            tracing::debug!(%peer, ?cut, "connection cut");
        }
    }

    fn visitor(&self, peer: IpAddr, activity: Arc<Activity>) -> Visitor {
        Visitor { router: self.router.clone(), peer, config: self.config.clone(), activity }
    }
}

/// The settings of HTTP/1. The timeout of a request's head is in [`watch`], which tells an idle connection from a slow one.
fn http1(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(limits.head);
    http
}

fn http2(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER);
    http
}

/// The requests of one connection.
#[derive(Clone)]
struct Visitor {
    router: Router,
    peer: IpAddr,
    config: Arc<Config>,
    activity: Arc<Activity>,
}

impl hyper::service::Service<Request<Incoming>> for Visitor {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let under_way = self.activity.begin(request.version());
        let address = client_address(self.peer, request.headers(), &self.config);
        request.extensions_mut().insert(ClientAddress(address));
        let answer = self.router.clone().oneshot(request.map(Body::new));
        Box::pin(async move { Ok(answer.await?.map(|body| Answer::new(body, under_way))) })
    }
}

/// The client of a request. Every proxy appends to `X-Forwarded-For` the address that it got the request from: read from
/// the end, the first that is no trusted proxy is the client. Entries before it can be forged.
fn client_address(peer: IpAddr, headers: &HeaderMap, config: &Config) -> IpAddr {
    let mut address = peer;
    let values = headers.get_all("x-forwarded-for").iter().rev();
    let mut entries = values.flat_map(|value| value.to_str().unwrap_or_default().rsplit(','));
    while config.trusts(address) {
        match entries.next().and_then(parse_address) {
            Some(before) => address = before,
            None => break,
        }
    }
    address
}

/// An address as proxies write it: with or without a port.
fn parse_address(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim();
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
    let with_port = || entry.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests;
