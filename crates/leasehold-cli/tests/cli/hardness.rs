//! A server under attack, and a healthy client beside it. The attackers come from another loopback address.
//!
//! What is timed here is a ratio within one run, and the machine may be busy with something else: a round that went well
//! is enough to show that the server did not stand in the way, and a server that does stands in the way in every round.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::Server;

const ATTACKERS: usize = 5_000;
const REQUESTS: usize = 2_000;
const ROUNDS: usize = 5;
const MIB: u64 = 1024 * 1024;

/// A head that never ends.
const HALF_A_HEAD: &[u8] = b"POST /api/documents/minutes/lock HTTP/1.1\r\nhost: leasehold\r\nx-slow: ";

fn server(folder: &TempDir) -> Server {
    // The healthy client asks as fast as it can, which is not what is tested here.
    let limits = ["--limits-requests-per-second", "1000000", "--limits-burst", "1000000"];
    Server::start(folder, &[&["--dev", "--store", "memory:", "--log", "warn"], &limits[..]].concat())
}

fn address(server: &Server) -> SocketAddr {
    server.url().trim_start_matches("http://").parse().unwrap()
}

/// What the server's process keeps in memory.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.talker.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

/// This process opens thousands of sockets.
fn many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum.or(Some(65_536));
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// A client that behaves.
struct Healthy {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Healthy {
    async fn new(server: &Server) -> Self {
        let token = server.token("user-a").unwrap();
        let request = format!(
            "GET /api/documents/minutes/lock HTTP/1.1\r\nhost: leasehold\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        let stream = TcpStream::connect(address(server)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, request: request.into_bytes(), buffer: vec![0; 4_096] }
    }

    /// One request; answers how long it took.
    async fn ask(&mut self) -> Duration {
        let start = Instant::now();
        self.stream.write_all(&self.request).await.unwrap();
        let length = self.stream.read(&mut self.buffer).await.unwrap();
        let head = &self.buffer[..length];
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(head));
        start.elapsed()
    }

    async fn p99(&mut self) -> Duration {
        let mut times = Vec::new();
        for _ in 0..REQUESTS {
            times.push(self.ask().await);
        }
        times.sort_unstable();
        times[REQUESTS * 99 / 100]
    }
}

/// Opens a connection from another address and sends half a head. A server may well close it at once.
async fn attack(to: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut stream = socket.connect(to).await.ok()?;
    stream.write_all(HALF_A_HEAD).await.ok()?;
    Some(stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_half_open_connections_do_not_hurt_a_healthy_client() {
    many_files();
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let mut healthy = Healthy::new(&server).await;
    healthy.p99().await;
    let before = resident(&server);
    let (mut best, mut grown) = (f64::INFINITY, 0);
    for _ in 0..ROUNDS {
        let quiet = healthy.p99().await;
        let mut attackers = Vec::new();
        for _ in 0..ATTACKERS {
            attackers.push(attack(address(&server)).await);
        }
        let attacked = healthy.p99().await;
        grown = grown.max(resident(&server).saturating_sub(before));
        best = best.min(attacked.as_secs_f64() / quiet.as_secs_f64());
        if best <= 2.0 {
            break;
        }
    }
    assert!(best <= 2.0, "the p99 of a healthy client grew {best:.1} times");
    assert!(grown < 64 * MIB, "{} MiB more", grown / MIB);
    // A new one gets in, too.
    Healthy::new(&server).await.ask().await;
}

/// Sends what a caller in good standing must not, until the server has had enough; answers what it said.
async fn send_body(server: &Server, head: &str, part: &[u8], parts: usize) -> String {
    let token = server.token("user-a").unwrap();
    let mut stream = TcpStream::connect(address(server)).await.unwrap();
    let head = format!(
        "POST /api/documents/minutes/lock HTTP/1.1\r\nhost: leasehold\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\n{head}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..parts {
        if stream.write_all(part).await.is_err() {
            break;
        }
    }
    let mut answer = vec![0; 4_096];
    let length =
        tokio::time::timeout(Duration::from_secs(30), stream.read(&mut answer)).await.expect("an answer");
    String::from_utf8_lossy(&answer[..length.unwrap_or(0)]).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_64_mebibytes_are_not_taken_in() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let mut healthy = Healthy::new(&server).await;
    healthy.p99().await;
    let before = resident(&server);
    let part = vec![b'['; 64 * 1024];
    let chunk = [format!("{:x}\r\n", part.len()).into_bytes(), part.clone(), b"\r\n".to_vec()].concat();
    for _ in 0..4 {
        let sized = format!("content-length: {}", 64 * MIB);
        let answers = tokio::join!(
            send_body(&server, &sized, &part, 1_024),
            send_body(&server, "transfer-encoding: chunked", &chunk, 1_024),
        );
        for answer in [answers.0, answers.1] {
            // A server that hangs up while the body is still being sent may take the answer along.
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
        }
        healthy.ask().await;
    }
    let grown = resident(&server).saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB more", grown / MIB);
}
