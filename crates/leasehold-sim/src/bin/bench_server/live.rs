//! `cargo xtask bench live`: how soon 10,000 watchers of one document hear that it was locked, over WebSocket and over
//! server-sent events, and how soon 10,000 leases that end together are announced.
//!
//! Server and watchers share the machine: reading 10,000 sockets is part of every figure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use leasehold_sim::load::ForeignLoad;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::Args;
use crate::calls::{Caller, Filler, Protocol, Target};
use crate::growth::memory;
use crate::report::print_load;
use crate::servers::Servers;

const SUBSCRIBERS: usize = 10_000;
const LEASES: usize = 10_000;

/// How many connections are made at a time.
const AT_A_TIME: usize = 64;

/// How long a watcher may take to hear of a lock before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The document that everybody watches.
const ROOM: &str = "live";

/// How a document is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    WebSocket,
    Sse,
}

/// How soon watchers heard of a lock, and what they cost the server.
struct Heard {
    p50_ms: f64,
    p99_ms: f64,
    rss_mib: f64,
}

pub async fn live(args: &Args) -> Result<()> {
    let load = ForeignLoad::start();
    let websocket = subscribers(args, Door::WebSocket).await?;
    let sse = subscribers(args, Door::Sse).await?;
    let storm = expiry_storm(args).await?;
    let foreign_load = load.cores();
    if args.json {
        let of = |heard: &Heard| json!({ "subscribers": SUBSCRIBERS, "p50_ms": heard.p50_ms, "p99_ms": heard.p99_ms, "rss_mib": heard.rss_mib });
        let all = json!({
            "websocket": of(&websocket),
            "sse": of(&sse),
            "expiry_storm": { "leases": LEASES, "p99_ms": storm },
            "foreign_load_cores": foreign_load,
        });
        println!("{all}");
        return Ok(());
    }
    println!("{SUBSCRIBERS} watchers of one document        p50        p99   resident");
    for (name, Heard { p50_ms, p99_ms, rss_mib }) in [("WebSocket", websocket), ("SSE", sse)] {
        let mark = if p99_ms <= 250.0 && rss_mib <= 200.0 { "✓" } else { "✗" };
        println!(
            "{mark} {name:<30}  {p50_ms:>6.0} ms  {p99_ms:>6.0} ms  {rss_mib:>5.0} MiB   at most 250 ms and 200 MiB"
        );
    }
    let mark = if storm <= 1_000.0 { "✓" } else { "✗" };
    println!(
        "{mark} {LEASES} leases that end together are announced within {storm:.0} ms (p99), at most 1,000"
    );
    print_load(foreign_load);
    Ok(())
}

/// Locks and unlocks the document as many times as there are rounds, and waits each time until everybody has heard of it.
async fn subscribers(args: &Args, door: Door) -> Result<Heard> {
    let mut servers = Servers::none()?;
    servers.leasehold(&args.program, "live", &["--log", "warn"])?;
    let target = servers.named("live")?;
    let (sender, mut heard) = mpsc::unbounded_channel();
    let began = Instant::now();
    let mut listening = JoinSet::new();
    for stream in connect_all(target, door).await? {
        listening.spawn(listen(stream, sender.clone(), began));
    }
    let mut holder = Caller::connect(target, 0).await?.on_document(target, ROOM)?;
    let mut times = Vec::new();
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}: {SUBSCRIBERS} watchers", args.rounds);
        let sent = began.elapsed();
        holder.call(0).await?;
        times.extend(all_heard(&mut heard, b'L').await?.iter().map(|at| at.saturating_sub(sent)));
        holder.call(2).await?;
        all_heard(&mut heard, b'U').await?;
    }
    times.sort_unstable();
    let rss_mib = memory(target.process)? / 1_048_576.0;
    Ok(Heard { p50_ms: share(&times, 0.5)?, p99_ms: share(&times, 0.99)?, rss_mib })
}

/// When each of them heard it.
async fn all_heard(heard: &mut mpsc::UnboundedReceiver<(u8, Duration)>, what: u8) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(SUBSCRIBERS);
    while times.len() < SUBSCRIBERS {
        let next = tokio::time::timeout(PATIENCE, heard.recv()).await;
        let missing = || format!("{} of {SUBSCRIBERS} watchers heard nothing", SUBSCRIBERS - times.len());
        let (which, at) = next.ok().flatten().with_context(missing)?;
        if which == what {
            times.push(at);
        }
    }
    Ok(times)
}

fn share(times: &[Duration], share: f64) -> Result<f64> {
    let time = times.get((times.len() as f64 * share) as usize).context("nothing was heard")?;
    Ok(time.as_secs_f64() * 1e3)
}

async fn connect_all(target: &Target, door: Door) -> Result<Vec<TcpStream>> {
    let room = Arc::new(Semaphore::new(AT_A_TIME));
    let Protocol::Http(token) = &target.protocol else { bail!("{} has no events", target.name) };
    let mut connecting = JoinSet::new();
    for _ in 0..SUBSCRIBERS {
        let (address, token, key, room) =
            (target.address, token.clone(), target.pusher_key.clone(), room.clone());
        connecting.spawn(async move {
            let _place = room.acquire_owned().await?;
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            match door {
                Door::Sse => subscribe_to_events(stream, &token).await,
                Door::WebSocket => {
                    subscribe_to_channel(stream, &token, &key.context("this server has no WebSockets")?).await
                }
            }
        });
    }
    let mut streams = Vec::with_capacity(SUBSCRIBERS);
    while let Some(stream) = connecting.join_next().await {
        streams.push(stream??);
    }
    Ok(streams)
}

async fn subscribe_to_events(mut stream: TcpStream, token: &str) -> Result<TcpStream> {
    let head = format!("GET /api/documents/{ROOM}/events HTTP/1.1\r\nHost: bench\r\n");
    stream.write_all(format!("{head}Authorization: Bearer {token}\r\n\r\n").as_bytes()).await?;
    read_until(&mut stream, "snapshot").await?;
    Ok(stream)
}

/// As a Pusher client does it: connect, have the channel signed, subscribe.
async fn subscribe_to_channel(mut stream: TcpStream, token: &str, key: &str) -> Result<TcpStream> {
    let upgrade = format!(
        "GET /app/{key}?protocol=7&client=bench&version=1 HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(upgrade.as_bytes()).await?;
    let hello = read_until(&mut stream, "activity_timeout").await?;
    let socket = hello.split_once("socket_id\\\":\\\"").and_then(|(_, rest)| rest.split('\\').next());
    let socket = socket.with_context(|| format!("no socket id in {hello:?}"))?;
    let channel = format!("private-document.{ROOM}");
    let auth = sign(stream.peer_addr()?, token, socket, &channel).await?;
    let data = json!({ "auth": auth, "channel": channel });
    let message = json!({ "event": "pusher:subscribe", "data": data }).to_string();
    stream.write_all(&frame(message.as_bytes())?).await?;
    read_until(&mut stream, "subscription_succeeded").await?;
    Ok(stream)
}

/// Has the server sign a channel for a socket.
async fn sign(address: std::net::SocketAddr, token: &str, socket: &str, channel: &str) -> Result<String> {
    let body = format!("socket_id={socket}&channel_name={channel}");
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "POST /broadcasting/auth HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let auth = answer.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str::<Value>(body).ok());
    let auth = auth.and_then(|auth| Some(auth.get("auth")?.as_str()?.to_owned()));
    auth.with_context(|| format!("a channel was not signed: {answer:?}"))
}

/// A text frame of a client; its mask is zero, which leaves the text as it is.
fn frame(text: &[u8]) -> Result<Vec<u8>> {
    let length = u16::try_from(text.len())?.to_be_bytes();
    ensure!(text.len() > 125, "a longer text");
    Ok([&[0x81, 0x80 | 126][..], &length, &[0; 4], text].concat())
}

async fn read_until(stream: &mut TcpStream, wanted: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(1_024);
    loop {
        ensure!(stream.read_buf(&mut bytes).await? > 0, "closed: {:?}", String::from_utf8_lossy(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        if text.contains(wanted) {
            return Ok(text.into_owned());
        }
    }
}

/// Reports when this watcher hears that the document was locked or unlocked.
async fn listen(
    mut stream: TcpStream,
    heard: mpsc::UnboundedSender<(u8, Duration)>,
    began: Instant,
) -> Result<()> {
    let mut bytes = Vec::with_capacity(1_024);
    loop {
        bytes.clear();
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        let at = began.elapsed();
        for (what, name) in [(b'L', &b"DocumentLocked"[..]), (b'U', b"DocumentUnlocked")] {
            if bytes.windows(name.len()).any(|part| part == name) {
                let _ = heard.send((what, at));
            }
        }
    }
}

/// How long after their end the announcements of leases come that end together, in milliseconds (p99).
async fn expiry_storm(args: &Args) -> Result<f64> {
    let mut servers = Servers::none()?;
    let options = ["--log", "warn", "--ttl", "10", "--heartbeat", "3", "--limits-stream-backlog", "16384"];
    servers.leasehold(&args.program, "storm", &options)?;
    let target = servers.named("storm")?;
    let mut locks = Vec::new();
    let mut tasks = JoinSet::new();
    for first in 0..AT_A_TIME {
        let mut filler = Filler::connect(target).await?;
        tasks.spawn(async move {
            let mut locks = Vec::new();
            for number in (first..LEASES).step_by(AT_A_TIME) {
                locks.push((number, filler.lock(number).await?));
            }
            anyhow::Ok(locks)
        });
    }
    while let Some(locked) = tasks.join_next().await {
        locks.extend(locked??);
    }
    let mut ends = HashMap::new();
    let mut watcher = subscribe_to_all(target).await?;
    for some in locks.chunks(500) {
        let mut renewing = Filler::connect(target).await?.renewing(some);
        // It ends no earlier than this: what is counted as a delay is too long, by one call at most.
        let end = Instant::now() + Duration::from_secs(10);
        renewing.call(0).await?;
        ends.extend(some.iter().map(|(number, _)| (format!("fill-{number}"), end)));
    }
    let mut late = Vec::with_capacity(LEASES);
    let mut text = String::new();
    while !ends.is_empty() {
        let mut bytes = Vec::with_capacity(65_536);
        let read = tokio::time::timeout(PATIENCE, watcher.read_buf(&mut bytes)).await;
        let missing = || format!("{} of {LEASES} ends were not announced", ends.len());
        ensure!(read.ok().with_context(missing)?? > 0, "the stream was closed; {}", missing());
        let at = Instant::now();
        text.push_str(&String::from_utf8_lossy(&bytes));
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text.drain(..whole).collect::<String>().lines() {
            let Some(data) = line.strip_prefix("data:").filter(|data| data.contains("\"expired\"")) else {
                continue;
            };
            let event: Value = serde_json::from_str(data).context("an event")?;
            let room = event.get("roomId").and_then(Value::as_str).context("an event of a document")?;
            late.extend(ends.remove(room).map(|end| at.saturating_duration_since(end)));
        }
    }
    late.sort_unstable();
    share(&late, 0.99)
}

async fn subscribe_to_all(target: &Target) -> Result<TcpStream> {
    let Protocol::Http(token) = &target.protocol else { bail!("{} has no events", target.name) };
    let mut stream = TcpStream::connect(target.address).await?;
    let head = "GET /api/events HTTP/1.1\r\nHost: bench\r\n";
    stream.write_all(format!("{head}Authorization: Bearer {token}\r\n\r\n").as_bytes()).await?;
    read_until(&mut stream, "\r\n\r\n").await?;
    Ok(stream)
}
