//! The whole server on a real socket: crowds, slow peers, proxies, and the shutdown. What the accept loop does with single
//! connections is tested beside it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_server::{Config, run};
use leasehold_store::Memory;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::{auth, far_away, token};

const DEADLINE: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), leasehold_server::Error>>,
}

impl Running {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(auth());
        change(&mut config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move { drop(stopped.await) };
        let task = tokio::spawn(run(listener, Arc::new(Memory::new()), config, shutdown));
        Self { address, stop: Some(stop), task }
    }

    async fn connect_from(&self, own: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(own.parse().unwrap(), 0)).unwrap();
        timeout(DEADLINE, socket.connect(self.address)).await.unwrap().unwrap()
    }

    /// Everything that is answered to one request, after which the connection closes.
    async fn ask(&self, from: &str, request: &str) -> String {
        let mut stream = self.connect_from(from).await;
        let request = format!("{request}host: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn status(&self, from: &str, request: &str) -> String {
        let answer = self.ask(from, request).await;
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    async fn metric(&self, name: &str) -> u64 {
        let page = self.ask("127.0.0.1", "GET /metrics HTTP/1.1\r\n").await;
        let line =
            page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}\n{page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        timeout(DEADLINE, self.task).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_crowd_of_half_open_connections_does_not_keep_others_out() {
    let server = Running::start(|config| config.limits.connections_per_address = 64).await;
    let mut crowd = Vec::new();
    for number in 0..300 {
        let mut stream = server.connect_from("127.0.0.2").await;
        // Those who are shown out at once cannot write.
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ").await;
        crowd.push(stream);
        if number % 50 == 0 {
            assert_eq!(server.status("127.0.0.1", "GET /healthz HTTP/1.1\r\n").await, "200");
        }
    }
    assert_eq!(server.status("127.0.0.1", "GET /readyz HTTP/1.1\r\n").await, "200");
    let refused = "leasehold_connections_refused_total{limit=\"per_address\"}";
    assert_eq!(server.metric(refused).await, 300 - 64);
    server.stop().await;
}

#[tokio::test]
async fn whoever_guesses_tokens_has_to_wait_whichever_address_it_makes_up() {
    let limit = |config: &mut Config| {
        (config.limits.requests_per_second, config.limits.burst) = (1, 3);
        config.trusted_proxies = vec!["127.0.0.9/32".parse().unwrap()];
    };
    let server = Running::start(limit).await;
    let guess = |address: &str| {
        format!(
            "GET /api/documents HTTP/1.1\r\nauthorization: Bearer guess\r\nx-forwarded-for: {address}\r\n"
        )
    };
    let mut statuses = Vec::new();
    for number in 0..5 {
        statuses.push(server.status("127.0.0.2", &guess(&format!("192.0.2.{number}"))).await);
    }
    assert_eq!(statuses[..3], ["401", "401", "401"]);
    assert_eq!(statuses[4], "429", "{statuses:?}");
    // A trusted proxy speaks for many, who do not wait for each other.
    for number in 0..10 {
        assert_eq!(server.status("127.0.0.9", &guess(&format!("192.0.2.{number}"))).await, "401");
    }
    server.stop().await;
}

/// Every address of IPv6 had its own count, and whoever has one has 2^64 of them; and a caller whose subject reads like an
/// address shared its count with whoever guessed from there.
#[tokio::test]
async fn a_network_of_ipv6_guesses_as_one_and_an_address_is_no_subject() {
    let server = Running::start(|config| {
        (config.limits.requests_per_second, config.limits.burst) = (1, 3);
        config.trusted_proxies = vec!["127.0.0.9/32".parse().unwrap()];
    })
    .await;
    let guess = |address: &str| {
        format!(
            "GET /api/documents HTTP/1.1\r\nauthorization: Bearer guess\r\nx-forwarded-for: {address}\r\n"
        )
    };
    let mut statuses = Vec::new();
    for number in 0..6 {
        let address = format!("2001:db8:0:1:{number}::{number}");
        statuses.push(server.status("127.0.0.9", &guess(&address)).await);
    }
    assert!(statuses.contains(&"429".to_owned()), "{statuses:?}");
    assert_eq!(server.status("127.0.0.9", &guess("2001:db8:0:2::1")).await, "401");
    for _ in 0..6 {
        server.status("127.0.0.3", &guess("")).await;
    }
    let token = token(json!({ "sub": "127.0.0.3", "documents": { "*": "read" }, "exp": far_away() }));
    let ask = format!("GET /api/documents HTTP/1.1\r\nauthorization: Bearer {token}\r\n");
    assert_eq!(server.status("127.0.0.1", &ask).await, "200");
    server.stop().await;
}

#[tokio::test]
async fn a_shutdown_ends_streams_with_the_reason_and_leaves_nothing_behind() {
    let server = Running::start(|_| ()).await;
    let token = token(json!({ "sub": "anna", "documents": { "*": "read" }, "exp": far_away() }));
    let mut stream = server.connect_from("127.0.0.1").await;
    let request = format!(
        "GET /api/documents/minutes/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = String::new();
    let mut buffer = [0; 4_096];
    while !heard.contains("event: snapshot") {
        let read = timeout(DEADLINE, stream.read(&mut buffer)).await.unwrap().unwrap();
        assert_ne!(read, 0, "{heard}");
        heard.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    let address = server.address;
    server.stop().await;
    let mut rest = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut rest)).await.unwrap().unwrap();
    assert!(rest.contains("shutting_down"), "{rest}");
    TcpStream::connect(address).await.expect_err("nobody listens");
}
