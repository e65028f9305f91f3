//! A network that can be cut, healed, slowed down and moved to another server.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_client::CancellationToken;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    upstream: SocketAddr,
    /// How long answers are held back.
    delay: Duration,
    /// Whether new connections are closed at once.
    refuses: bool,
    /// Cancelled when the connections of today are cut.
    cut: CancellationToken,
}

impl Proxy {
    pub(crate) async fn to(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { upstream, delay: Duration::ZERO, refuses: false, cut: CancellationToken::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass_on(client, shared.clone()));
            }
        });
        Self { address, state }
    }

    /// Cuts every connection, and lets none in until it heals.
    pub(crate) fn cut(&self) {
        self.interrupt();
        self.state.lock().unwrap().refuses = true;
    }

    /// Cuts every connection; new ones are fine.
    pub(crate) fn interrupt(&self) {
        let mut state = self.state.lock().unwrap();
        std::mem::take(&mut state.cut).cancel();
    }

    pub(crate) fn heal(&self) {
        self.state.lock().unwrap().refuses = false;
    }

    pub(crate) fn move_to(&self, upstream: SocketAddr) {
        self.state.lock().unwrap().upstream = upstream;
    }

    pub(crate) fn delay_answers(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }
}

async fn pass_on(client: TcpStream, state: Arc<Mutex<State>>) {
    let (upstream, refuses, cut) = {
        let state = state.lock().unwrap();
        (state.upstream, state.refuses, state.cut.clone())
    };
    if refuses {
        return;
    }
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::io::copy(&mut from_client, &mut to_server);
    let down = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            let delay = state.lock().unwrap().delay;
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            if to_client.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = cut.cancelled() => {}
        _ = up => {}
        () = down => {}
    }
}
