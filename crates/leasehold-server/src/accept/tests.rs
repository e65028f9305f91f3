//! Connections that behave, and those that do not, against a server with small limits.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use axum::routing::{get, post};
use axum::{Extension, http::StatusCode};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::auth::Auth;
use crate::config::TlsFiles;

/// How long anything may take before a test has failed.
const DEADLINE: Duration = Duration::from_secs(20);

struct Server {
    address: SocketAddr,
    metrics: Metrics,
    shutdown: CancellationToken,
    task: JoinHandle<io::Result<()>>,
    /// A request to `/slow` has come in.
    slow_began: Arc<Notify>,
    /// It may be answered.
    slow_may_end: Arc<Notify>,
}

impl Server {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(Auth::Open);
        change(&mut config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (metrics, shutdown) = (Metrics::new(), CancellationToken::new());
        let (slow_began, slow_may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let router = router(slow_began.clone(), slow_may_end.clone());
        let (its_metrics, its_shutdown) = (metrics.clone(), shutdown.clone());
        let task =
            tokio::spawn(async move { serve(listener, router, &config, its_metrics, its_shutdown).await });
        Self { address, metrics, shutdown, task, slow_began, slow_may_end }
    }

    async fn connect(&self) -> Peer {
        self.connect_from("127.0.0.1").await
    }

    async fn connect_from(&self, own: &str) -> Peer {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(own.parse().unwrap(), 0)).unwrap();
        Peer(socket.connect(self.address).await.unwrap())
    }

    fn counts(&self, line: &str) -> bool {
        self.metrics.render().lines().any(|known| known == line)
    }

    async fn until_it_counts(&self, line: &str) {
        timeout(DEADLINE, async {
            while !self.counts(line) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {line}\n{}", self.metrics.render()));
    }
}

fn router(began: Arc<Notify>, may_end: Arc<Notify>) -> Router {
    let slow = || async move {
        began.notify_one();
        may_end.notified().await;
        "at last"
    };
    let whence =
        |Extension(ClientAddress(address)): Extension<ClientAddress>| async move { address.to_string() };
    Router::new()
        .route("/", get(whence))
        .route("/slow", get(slow))
        .route("/much", get(|| async { vec![b'x'; 64 * 1024 * 1024] }))
        .route("/take", post(|body: String| async move { body.len().to_string() }))
}

/// The other end of a connection.
struct Peer<S = TcpStream>(S);

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, path: &str, headers: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n")).await;
        self.answer().await
    }

    /// One answer with a known length: its status line and its body.
    async fn answer(&mut self) -> String {
        let mut text = String::new();
        let mut buffer = [0; 4_096];
        loop {
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if length.is_none_or(|length| length.parse() == Ok(body.len())) {
                    let status = head.lines().next().unwrap_or_default();
                    return format!("{} {body}", status.trim_start_matches("HTTP/1.1 "));
                }
            }
            match timeout(DEADLINE, self.0.read(&mut buffer)).await.expect("an answer") {
                Ok(0) | Err(_) => return format!("closed after {text:?}"),
                Ok(read) => text.push_str(&String::from_utf8_lossy(&buffer[..read])),
            }
        }
    }

    /// Waits until the server closes the connection, and answers how long that took.
    async fn until_closed(&mut self) -> Duration {
        let start = Instant::now();
        let mut buffer = [0; 4_096];
        loop {
            match timeout(DEADLINE, self.0.read(&mut buffer)).await.expect("the server to close") {
                Ok(0) | Err(_) => return start.elapsed(),
                Ok(_) => {}
            }
        }
    }
}

const HEAD_TIME: Duration = Duration::from_millis(300);

fn short_head_time(config: &mut Config) {
    config.limits.head_time = HEAD_TIME;
}

#[tokio::test]
async fn who_never_says_what_it_wants_is_shown_out() {
    let server = Server::start(short_head_time).await;
    let halves =
        ["", "G", "GET / HTTP/1.1\r\nhost: x\r\n", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
    let mut peers = Vec::new();
    for half in halves {
        let mut peer = server.connect().await;
        peer.send(half).await;
        peers.push(peer);
    }
    for (mut peer, half) in peers.into_iter().zip(halves) {
        let took = peer.until_closed().await;
        assert!(took < HEAD_TIME * 10, "{half:?} stayed for {took:?}");
    }
    server.until_it_counts("leasehold_connections_open 0").await;
    server.until_it_counts("leasehold_connections_cut_total{reason=\"head\"} 5").await;
}

#[tokio::test]
async fn who_sends_a_head_byte_by_byte_is_shown_out() {
    let server = Server::start(short_head_time).await;
    let mut peer = server.connect().await;
    let start = Instant::now();
    let drip = async {
        loop {
            if peer.0.write_all(b"x").await.is_err() {
                return;
            }
            tokio::time::sleep(HEAD_TIME / 10).await;
        }
    };
    timeout(DEADLINE, drip).await.expect("the server to close");
    assert!(start.elapsed() >= HEAD_TIME);
}

#[tokio::test]
async fn a_connection_rests_between_requests_but_not_within_a_head() {
    let server = Server::start(short_head_time).await;
    let mut peer = server.connect().await;
    assert_eq!(peer.ask("/", "").await, "200 OK 127.0.0.1");
    // The time for a head passes, and it is still there.
    tokio::time::sleep(HEAD_TIME * 2).await;
    assert_eq!(peer.ask("/", "").await, "200 OK 127.0.0.1");
    peer.send("GET / HTTP/1.1\r\n").await;
    let took = peer.until_closed().await;
    assert!(took < HEAD_TIME * 10, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_does_not_rest_forever() {
    let server = Server::start(|_| ()).await;
    let mut peer = server.connect().await;
    assert_eq!(peer.ask("/", "").await, "200 OK 127.0.0.1");
    let start = tokio::time::Instant::now();
    let mut rest = Vec::new();
    peer.0.read_to_end(&mut rest).await.unwrap();
    let rested = start.elapsed();
    assert!(rested >= Duration::from_secs(74) && rested <= Duration::from_secs(80), "{rested:?}");
}

#[tokio::test]
async fn a_request_under_way_may_take_longer_than_its_head() {
    let server = Server::start(short_head_time).await;
    let mut peer = server.connect().await;
    peer.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    server.slow_began.notified().await;
    tokio::time::sleep(HEAD_TIME * 2).await;
    server.slow_may_end.notify_one();
    assert_eq!(peer.answer().await, "200 OK at last");
}

#[tokio::test]
async fn who_does_not_take_the_answer_is_shown_out() {
    let server = Server::start(|config| config.limits.body_time = HEAD_TIME).await;
    let mut peer = server.connect().await;
    peer.send("GET /much HTTP/1.1\r\nhost: x\r\n\r\n").await;
    server.until_it_counts("leasehold_connections_cut_total{reason=\"stalled\"} 1").await;
    server.until_it_counts("leasehold_connections_open 0").await;
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server = Server::start(|_| ()).await;
    let long = format!("x-long: {}\r\n", "x".repeat(20_000));
    let answer = server.connect().await.ask("/", &long).await;
    assert!(answer.starts_with("431 "), "{answer}");
    let many: String = (0..200).map(|number| format!("x-{number}: x\r\n")).collect();
    let answer = server.connect().await.ask("/", &many).await;
    assert!(answer.starts_with("431 "), "{answer}");
}

#[tokio::test]
async fn one_address_can_only_fill_its_own_places() {
    let server = Server::start(|config| config.limits.connections_per_address = 3).await;
    let mut peers = Vec::new();
    for _ in 0..3 {
        let mut peer = server.connect_from("127.0.0.2").await;
        assert_eq!(peer.ask("/", "").await, "200 OK 127.0.0.2");
        peers.push(peer);
    }
    server.connect_from("127.0.0.2").await.until_closed().await;
    server.until_it_counts("leasehold_connections_refused_total{limit=\"per_address\"} 1").await;
    assert_eq!(server.connect().await.ask("/", "").await, "200 OK 127.0.0.1");
    drop(peers);
    server.until_it_counts("leasehold_connections_open 0").await;
    assert_eq!(server.connect_from("127.0.0.2").await.ask("/", "").await, "200 OK 127.0.0.2");
}

#[tokio::test]
async fn all_addresses_together_have_a_limit_too() {
    let server = Server::start(|config| config.limits.connections = 1).await;
    let mut first = server.connect_from("127.0.0.2").await;
    assert_eq!(first.ask("/", "").await, "200 OK 127.0.0.2");
    server.connect_from("127.0.0.3").await.until_closed().await;
    server.until_it_counts("leasehold_connections_refused_total{limit=\"in_all\"} 1").await;
}

#[tokio::test]
async fn only_trusted_proxies_speak_for_others() {
    let server = Server::start(|config| {
        config.trusted_proxies = vec!["127.0.0.2/32".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        config.limits.connections_per_address = 1;
    })
    .await;
    let header = "x-forwarded-for: 203.0.113.7, 198.51.100.1\r\nx-forwarded-for: 192.0.2.5, 10.1.1.1\r\n";
    assert_eq!(server.connect_from("127.0.0.3").await.ask("/", header).await, "200 OK 127.0.0.3");
    let (mut one, mut other) =
        (server.connect_from("127.0.0.2").await, server.connect_from("127.0.0.2").await);
    assert_eq!(one.ask("/", header).await, "200 OK 192.0.2.5");
    assert_eq!(
        other.ask("/", header).await,
        "200 OK 192.0.2.5",
        "the limit of one address is not for proxies"
    );
}

#[test]
fn an_address_is_read_from_the_end_of_the_list() {
    let mut config = Config::new(Auth::Open);
    config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
    let cases = [
        (&["192.0.2.1"][..], "192.0.2.1"),
        (&["192.0.2.1:4711"], "192.0.2.1"),
        (&["[2001:db8::1]:4711"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (&["::ffff:192.0.2.1"], "192.0.2.1"),
        (&["made up, 192.0.2.1, 10.0.0.2 ,fd00::1"], "192.0.2.1"),
        (&["192.0.2.1", "made up, 10.0.0.2"], "10.0.0.2"),
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (&["", " , "], "10.0.0.1"),
        (&[], "10.0.0.1"),
    ];
    for (values, expected) in cases {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-forwarded-for", value.parse().unwrap());
        }
        let peer = "10.0.0.1".parse().unwrap();
        let address = client_address(peer, &headers, &config);
        assert_eq!(address, expected.parse::<IpAddr>().unwrap(), "{values:?}");
    }
}

// --- shutdown ---

#[tokio::test]
async fn a_shutdown_finishes_what_is_under_way_and_closes_the_rest() {
    let server = Server::start(|_| ()).await;
    let (mut busy, mut resting, mut silent) =
        (server.connect().await, server.connect().await, server.connect().await);
    let mut half = server.connect().await;
    half.send("GET / HTTP/1.1\r\n").await;
    assert_eq!(resting.ask("/", "").await, "200 OK 127.0.0.1");
    busy.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    server.slow_began.notified().await;
    server.until_it_counts("leasehold_connections_open 4").await;
    server.shutdown.cancel();
    resting.until_closed().await;
    silent.until_closed().await;
    half.until_closed().await;
    server.until_it_counts("leasehold_connections_open 1").await;
    TcpStream::connect(server.address).await.expect_err("nobody is let in any more");
    server.slow_may_end.notify_one();
    assert_eq!(busy.answer().await, "200 OK at last");
    timeout(DEADLINE, server.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_shutdown_does_not_wait_forever() {
    let server = Server::start(|config| config.limits.drain = HEAD_TIME).await;
    let mut busy = server.connect().await;
    busy.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    server.slow_began.notified().await;
    server.shutdown.cancel();
    busy.until_closed().await;
    timeout(DEADLINE, server.task).await.unwrap().unwrap().unwrap();
    assert!(server.metrics.render().contains("leasehold_connections_cut_total{reason=\"shutting_down\"} 1"));
}

// --- TLS ---

/// Makes a certificate that vouches for itself; `None`, loudly, where there is no `openssl`.
fn certificate(folder: &std::path::Path, name: &str) -> Option<()> {
    let subject = format!("/CN={name}");
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", &subject, "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(folder.join("key.pem"))
        .arg("-out")
        .arg(folder.join("certificate.pem"))
        .output();
    match made {
        Ok(made) => {
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            Some(())
        }
        Err(_) => {
            use std::io::Write;
            io::stderr().write_all(b"\nSKIPPED: the TLS tests, because openssl is not installed\n").unwrap();
            None
        }
    }
}

fn tls_files(folder: &std::path::Path) -> TlsFiles {
    TlsFiles { certificate: folder.join("certificate.pem"), key: folder.join("key.pem") }
}

/// Connects, and believes in the certificate of this file alone.
async fn connect_tls(
    server: &Server,
    trusted: &std::path::Path,
    protocol: &[u8],
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn tls_works_and_a_new_certificate_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let Some(()) = certificate(folder.path(), "first") else { return };
    let server = Server::start(|config| config.tls = Some(tls_files(folder.path()))).await;
    let trusted = folder.path().join("trusted.pem");
    std::fs::copy(folder.path().join("certificate.pem"), &trusted).unwrap();
    let stream = connect_tls(&server, &trusted, b"http/1.1").await.unwrap();
    assert_eq!(Peer(stream).ask("/", "").await, "200 OK 127.0.0.1");
    let stream = connect_tls(&server, &trusted, b"h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));

    // A certificate without its key is kept out, and the old pair stays in use.
    let old_key = std::fs::read(folder.path().join("key.pem")).unwrap();
    certificate(folder.path(), "second").unwrap();
    let new_key = std::fs::read(folder.path().join("key.pem")).unwrap();
    std::fs::write(folder.path().join("key.pem"), old_key).unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    connect_tls(&server, &trusted, b"http/1.1").await.unwrap();
    std::fs::write(folder.path().join("key.pem"), new_key).unwrap();
    let new = folder.path().join("certificate.pem");
    let taken_up = async {
        while connect_tls(&server, &new, b"http/1.1").await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(DEADLINE, taken_up).await.expect("the new certificate to be taken up");
    connect_tls(&server, &trusted, b"http/1.1").await.expect_err("the old one is gone");
}

#[tokio::test]
async fn who_does_not_speak_tls_is_shown_out() {
    let folder = tempfile::tempdir().unwrap();
    let Some(()) = certificate(folder.path(), "first") else { return };
    let server = Server::start(|config| {
        short_head_time(config);
        config.tls = Some(tls_files(folder.path()));
    })
    .await;
    server.connect().await.until_closed().await;
    let mut plain = server.connect().await;
    plain.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    plain.until_closed().await;
    server.until_it_counts("leasehold_connections_cut_total{reason=\"tls\"} 2").await;
    let trusted = folder.path().join("certificate.pem");
    let mut silent = Peer(connect_tls(&server, &trusted, b"http/1.1").await.unwrap());
    silent.until_closed().await;
}

#[tokio::test]
async fn a_certificate_that_is_none_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("certificate.pem"), "not one").unwrap();
    std::fs::write(folder.path().join("key.pem"), "not one").unwrap();
    let server = Server::start(|config| config.tls = Some(tls_files(folder.path()))).await;
    let error = server.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("certificate.pem: it has no PEM certificate"), "{error}");
}

// --- HTTP/2 ---

#[tokio::test]
async fn http2_requests_are_answered_and_their_connection_rests() {
    let server = Server::start(short_head_time).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let io = TokioIo::new(stream);
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..2 {
        let request = Request::get("http://x/").body(Body::empty()).unwrap();
        let answer = timeout(DEADLINE, client.send_request(request)).await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        tokio::time::sleep(HEAD_TIME * 2).await;
    }
    assert!(server.counts("leasehold_connections_cut_total{reason=\"head\"} 0"));
    server.shutdown.cancel();
    timeout(DEADLINE, server.task).await.unwrap().unwrap().unwrap();
}

// --- which version it is ---

/// Hyper's own look at the first 24 bytes made it read the head of a request in two pieces, for which it doubled its buffer: 10,000
/// watchers took 43 MiB more.
#[tokio::test]
async fn what_tells_the_version_is_read_again_together_with_the_rest() {
    for (sent, is_http2) in [
        (&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], false),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nand more", true),
    ] {
        let limits = Limits::default();
        let place = Gate::new(&limits, Metrics::new()).enter("192.0.2.1".parse().unwrap(), false).unwrap();
        let (mut peer, stream) = tokio::io::duplex(1_024);
        let mut watched = Watched::new(stream, Arc::new(Activity::new(&limits)), place);
        peer.write_all(sent).await.unwrap();
        assert_eq!(watched.is_http2().await.unwrap(), is_http2);
        let mut buffer = [0; 1_024];
        let read = watched.read(&mut buffer).await.unwrap();
        assert_eq!(buffer[..read].escape_ascii().to_string(), sent.escape_ascii().to_string());
        peer.write_all(b"later").await.unwrap();
        let read = watched.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..read], b"later");
    }
}

#[tokio::test]
async fn the_version_is_recognised_however_its_bytes_arrive() {
    let server = Server::start(|_| {}).await;
    let in_pieces = async |pieces: &[&str]| {
        let mut peer = server.connect().await;
        for piece in pieces {
            peer.send(piece).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        peer
    };
    let mut peer = in_pieces(&["P", "R", "OPFIND / HTTP/1.1\r\nhost:", " x\r\n\r\n"]).await;
    assert!(peer.answer().await.starts_with("405 "));
    let mut peer = in_pieces(&["PRI * HTTP/2.0\r", "\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"]).await;
    let mut settings = [0; 9];
    timeout(DEADLINE, peer.0.read_exact(&mut settings)).await.unwrap().unwrap();
    assert_eq!(settings[3], 4, "the server's own settings: {settings:?}");
    let mut peer = in_pieces(&["PRI * HTTP/1.1\r\nhost: x\r\n\r\n"]).await;
    assert!(!peer.answer().await.starts_with("200 "));
}
