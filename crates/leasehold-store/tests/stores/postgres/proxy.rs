//! A small proxy in front of PostgreSQL that counts round trips and cuts connections at the worst moment.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What happens to the next COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing.
    Never,
    /// It does not reach the server.
    BeforeCommit,
    /// It reaches the server, and its answer does not come back.
    AfterCommit,
}

#[derive(Default)]
struct Shared {
    trips: AtomicUsize,
    cut: AtomicU8,
    connections: Mutex<JoinSet<()>>,
}

pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let for_all = shared.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let shared = for_all.clone();
                for_all.connections.lock().unwrap().spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    forward(client, server, &shared).await;
                });
            }
        });
        Self { port, shared, accepting }
    }

    /// How often the client has waited for the server since this was last asked.
    pub fn trips(&self) -> usize {
        self.shared.trips.swap(0, Ordering::SeqCst)
    }

    pub fn cut(&self, cut: Cut) {
        self.shared.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Cuts every connection there is.
    pub fn cut_all(&self) {
        self.shared.connections.lock().unwrap().abort_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A trip begins when the client speaks after it has heard something.
async fn forward(mut client: TcpStream, mut server: TcpStream, shared: &Shared) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    let mut has_heard = true;
    loop {
        tokio::select! {
            count = client.read(&mut asked) => {
                let Ok(count @ 1..) = count else { return };
                if std::mem::take(&mut has_heard) {
                    shared.trips.fetch_add(1, Ordering::SeqCst);
                }
                let bytes = &asked[..count];
                let is_commit = bytes.windows(7).any(|window| window == b"COMMIT\0");
                let cut = if is_commit { shared.cut.swap(Cut::Never as u8, Ordering::SeqCst) } else { 0 };
                if cut == Cut::BeforeCommit as u8 {
                    return;
                }
                if server.write_all(bytes).await.is_err() {
                    return;
                }
                if cut == Cut::AfterCommit as u8 {
                    // The answer shows that it was committed; it goes no further.
                    let _ = server.read(&mut answered).await;
                    return;
                }
            }
            count = server.read(&mut answered) => {
                let Ok(count @ 1..) = count else { return };
                has_heard = true;
                if client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
