//! A call with commands of all kinds, which Leasehold does not have: what it would reach if it had one. A server in this process, with
//! HTTP just good enough for the generator, over the same embedded store; tokens, limits and metrics are left out.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use leasehold_core::lease::{Bid, Claim};
use leasehold_core::{Command, Key, LeaseId, Meta, Outcome, Owner, Ttl};
use leasehold_store::{Embedded, JobStore, Limits};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::calls::{ACQUIRE_STEP, RENEW_STEP, STEPS};

/// How many commands a call has: documents that are locked, renewed and released in turn, a third of them each.
pub const TOGETHER: usize = 99;

/// Starts the server on a runtime of its own, with one thread as the real one has it on two processors.
pub fn start(file: &Path) -> Result<SocketAddr> {
    let limits = Limits { leases_per_owner: u32::MAX };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // It opens the store, so that answers are delivered in it.
    let store = {
        let _entered = runtime.enter();
        Arc::new(Embedded::options().limits(limits).open(file)?)
    };
    let (started, address) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("mixed".into()).spawn(move || {
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            started.send(listener.local_addr()?)?;
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                tokio::spawn(serve(stream, store.clone()));
            }
            #[allow(unreachable_code)] // for the type of the errors above
            anyhow::Ok(())
        })
    })?;
    address.recv().context("the server with mixed calls did not start")
}

/// The calls of one connection, one for each step of a cycle: each document is one step further than those before it.
pub fn calls(connection: usize) -> [String; STEPS] {
    std::array::from_fn(|step| {
        let commands = (0..TOGETHER).map(|number| {
            let verb = match (step + number) % STEPS {
                ACQUIRE_STEP => "acquire",
                RENEW_STEP => "renew",
                _ => "release",
            };
            json!({ "do": verb, "roomId": format!("mixed-{connection}-{number}") })
        });
        let body = Value::Array(commands.collect()).to_string();
        format!("POST /mixed HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    })
}

async fn serve(mut stream: TcpStream, store: Arc<Embedded>) -> Result<()> {
    let (mut received, mut calls) = (Vec::with_capacity(16 * 1_024), 0);
    while stream.read_buf(&mut received).await? > 0 {
        let Some(body) = whole_body(&received) else { continue };
        calls += 1;
        let (status, answer) = match answer(body, &store, calls < STEPS).await {
            Ok(answer) => ("200 OK", answer),
            Err(error) => ("400 Bad Request", json!({ "error": error.to_string() })),
        };
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", answer.len());
        stream.write_all(format!("{head}{answer}").as_bytes()).await?;
        received.clear();
    }
    Ok(())
}

fn whole_body(received: &[u8]) -> Option<&[u8]> {
    let text = std::str::from_utf8(received).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length: usize = head.split_once("Content-Length: ")?.1.parse().ok()?;
    (body.len() >= length).then_some(body.as_bytes())
}

/// All commands of a call go to the store at once, and are answered in their order.
async fn answer(body: &[u8], store: &Arc<Embedded>, begins: bool) -> Result<Value> {
    let commands: Vec<Value> = serde_json::from_slice(body)?;
    let mut asked = Vec::with_capacity(commands.len());
    for command in &commands {
        let (key, command) = parse(command)?;
        let store = store.clone();
        asked.push(tokio::spawn(async move { store.apply(&key, command).await }));
    }
    let mut answers = Vec::with_capacity(asked.len());
    for asked in asked {
        answers.push(show(&asked.await??.outcome, begins)?);
    }
    Ok(Value::Array(answers))
}

fn parse(command: &Value) -> Result<(Key, Command)> {
    static LEASES: AtomicU64 = AtomicU64::new(0);
    let text = |name: &str| command.get(name).and_then(Value::as_str).context("a command without a word");
    let key = Key::parse(&format!("doc/{}", text("roomId")?))?;
    let (owner, ttl) = (Owner::parse("user-a")?, Ttl::from_secs(30)?);
    let claim = Claim::Tab { owner: owner.clone(), tab: None };
    let command = match text("do")? {
        "acquire" => {
            let number = LEASES.fetch_add(1, Ordering::Relaxed);
            let lease_id = LeaseId::from_random(u128::from(number).to_le_bytes());
            Command::AcquireInTab(Bid { lease_id, owner, tab: None, ttl, meta: Meta::default() })
        }
        "renew" => Command::Renew { claim, ttl: None },
        _ => Command::Release(claim),
    };
    Ok((key, command))
}

/// Every answer but a release says until when. A connection that `begins` renews and releases what it does not have yet.
fn show(outcome: &Outcome, begins: bool) -> Result<Value> {
    Ok(match outcome {
        Outcome::Granted { lease, .. } | Outcome::Renewed(lease) => {
            json!({ "fence": lease.fence.get(), "expires_at": lease.expires_at.as_millis() })
        }
        Outcome::Released => json!({}),
        other => {
            ensure!(begins && matches!(other, Outcome::Lost { .. }), "refused: {other:?}");
            json!({ "code": "lost" })
        }
    })
}
