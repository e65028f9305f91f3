//! A small proxy in front of Firestore that cuts a connection at the worst moment. It knows just enough of HTTP/2 to tell
//! one call from the next: every call is a stream that begins with a frame of headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What happens to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It does not reach Firestore.
    BeforeCommit = 1,
    /// It reaches Firestore, and its answer does not come back.
    AfterCommit = 2,
}

#[derive(Default)]
struct Plan {
    cut: AtomicU8,
    /// How many calls come before it.
    calls: AtomicU8,
    /// The stream whose answer is not to come back.
    stream: AtomicU32,
}

pub struct Proxy {
    pub host: String,
    plan: Arc<Plan>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let plan = Arc::new(Plan::default());
        let (for_all, to) = (plan.clone(), to.to_owned());
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (plan, to) = (for_all.clone(), to.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(&to).await.unwrap();
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    let ((client_says, to_client), (server_says, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::select! {
                        _ = requests(client_says, to_server, &plan) => {}
                        _ = answers(server_says, to_client, &plan) => {}
                    }
                });
            }
        });
        Self { host, plan, accepting }
    }

    /// Cuts off the commit that comes after so many calls.
    pub fn cut(&self, cut: Cut, after: u8) {
        self.plan.calls.store(after, Ordering::SeqCst);
        self.plan.cut.store(cut as u8, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Frame {
    bytes: Vec<u8>,
    is_headers: bool,
    stream: u32,
}

async fn frame(from: &mut OwnedReadHalf) -> Option<Frame> {
    let mut bytes = vec![0; 9];
    from.read_exact(&mut bytes).await.ok()?;
    let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
    let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) & 0x7FFF_FFFF;
    let is_headers = bytes[3] == 1;
    bytes.resize(9 + length as usize, 0);
    from.read_exact(&mut bytes[9..]).await.ok()?;
    Some(Frame { bytes, is_headers, stream })
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, plan: &Plan) -> Option<()> {
    let mut preface = [0; 24];
    from.read_exact(&mut preface).await.ok()?;
    to.write_all(&preface).await.ok()?;
    loop {
        let frame = frame(&mut from).await?;
        let cut = plan.cut.load(Ordering::SeqCst);
        let is_commit = || plan.calls.fetch_sub(1, Ordering::SeqCst) == 0;
        if cut != 0 && frame.is_headers && is_commit() {
            plan.cut.store(0, Ordering::SeqCst);
            if cut == Cut::BeforeCommit as u8 {
                return None;
            }
            plan.stream.store(frame.stream, Ordering::SeqCst);
        }
        to.write_all(&frame.bytes).await.ok()?;
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, plan: &Plan) -> Option<()> {
    loop {
        let frame = frame(&mut from).await?;
        // The answer shows that it was committed; it goes no further. Whatever concerns the whole connection has stream 0.
        let silenced = plan.stream.load(Ordering::SeqCst);
        if silenced != 0 && frame.stream == silenced && frame.is_headers {
            plan.stream.store(0, Ordering::SeqCst);
            return None;
        }
        to.write_all(&frame.bytes).await.ok()?;
    }
}
