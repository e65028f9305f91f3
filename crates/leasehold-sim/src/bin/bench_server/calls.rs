//! One connection to a server, and the three requests of a cycle in that server's own protocol, written by hand so that the
//! generator costs the same for all of them.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Acquire, renew, release.
pub const STEPS: usize = 3;
pub const ACQUIRE_STEP: usize = 0;
pub const RENEW_STEP: usize = 1;

/// A server under measurement.
#[derive(Clone)]
pub struct Target {
    pub name: &'static str,
    pub address: SocketAddr,
    pub protocol: Protocol,
    /// Its first process.
    pub process: u32,
    /// What Pusher clients connect with, where it speaks WebSocket.
    pub pusher_key: Option<String>,
}

/// How to talk to it.
#[derive(Clone)]
pub enum Protocol {
    /// Leasehold, with this token.
    Http(String),
    /// Redis: SET NX PX, and scripts that compare before they change.
    Redis,
    /// PostgreSQL: one row a key, prepared statements, a commit for each.
    Postgres,
    /// The same in two trips for each step, as one would write it who has to look before a decision: lock and read the
    /// row, then write it and commit.
    PostgresTwice,
}

impl Protocol {
    fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres | Self::PostgresTwice)
    }
}

/// One connection with keys of its own.
pub struct Caller {
    stream: TcpStream,
    protocol: Protocol,
    requests: [Vec<u8>; STEPS],
    /// What is sent and answered before each request, if anything is.
    before: Vec<u8>,
    answer: Vec<u8>,
}

impl Caller {
    pub async fn connect(target: &Target, number: usize) -> Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let requests = match &target.protocol {
            Protocol::Http(token) => http_requests(token, &format!("bench-{number}")),
            Protocol::Redis => redis_requests(number),
            Protocol::Postgres => postgres_requests(number, &[]),
            Protocol::PostgresTwice => postgres_requests(number, &bound("commit", &[])),
        };
        let before = match target.protocol {
            Protocol::PostgresTwice => postgres_look(number),
            _ => Vec::new(),
        };
        let (protocol, answer) = (target.protocol.clone(), Vec::with_capacity(4_096));
        let mut caller = Self { stream, protocol, requests, before, answer };
        if caller.protocol.is_postgres() {
            caller.exchange(&postgres_startup()).await?;
            caller.exchange(&postgres_statements()).await?;
        }
        Ok(caller)
    }

    /// The same connection, with the requests of a cycle on this document.
    pub fn on_document(self, target: &Target, room: &str) -> Result<Self> {
        let Protocol::Http(token) = &target.protocol else { bail!("{} has no documents", target.name) };
        Ok(Self { requests: http_requests(token, room), ..self })
    }

    /// The same connection, with this request in the place of all three.
    pub fn with_request(self, request: &str) -> Self {
        Self { requests: std::array::from_fn(|_| request.as_bytes().to_vec()), ..self }
    }

    /// The same connection, with these requests in the place of its own.
    pub fn with_requests(self, requests: [String; STEPS]) -> Self {
        Self { requests: requests.map(String::into_bytes), ..self }
    }

    /// The same connection, with this step of a cycle in the place of all three.
    pub fn repeating(mut self, step: usize) -> Result<Self> {
        let request = self.requests.get(step).context("a step")?.clone();
        self.requests = std::array::from_fn(|_| request.clone());
        Ok(self)
    }

    /// Sends a request and waits for its whole answer, which must be a success.
    pub async fn call(&mut self, step: usize) -> Result<()> {
        if !self.before.is_empty() {
            let before = std::mem::take(&mut self.before);
            self.exchange(&before).await?;
            self.before = before;
        }
        let request = std::mem::take(self.requests.get_mut(step).context("a step")?);
        let done = self.exchange(&request).await;
        if let Some(place) = self.requests.get_mut(step) {
            *place = request;
        }
        ensure!(done?, "refused in step {step}: {:?}", String::from_utf8_lossy(&self.answer));
        Ok(())
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<bool> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                bail!("the server closed the connection after {:?}", String::from_utf8_lossy(&self.answer));
            }
            let whole = match self.protocol {
                Protocol::Http(_) => http_answer(&self.answer),
                Protocol::Redis => redis_answer(&self.answer),
                Protocol::Postgres | Protocol::PostgresTwice => postgres_answer(&self.answer),
            };
            if let Some(success) = whole {
                return Ok(success);
            }
        }
    }
}

/// One connection that locks documents of its own, a new one with each call.
pub struct Filler {
    caller: Caller,
    token: String,
}

impl Filler {
    pub async fn connect(target: &Target) -> Result<Self> {
        let Protocol::Http(token) = &target.protocol else { bail!("{} has no documents", target.name) };
        Ok(Self { caller: Caller::connect(target, 0).await?, token: token.clone() })
    }

    /// Locks a document; answers the lease id.
    pub async fn lock(&mut self, number: usize) -> Result<String> {
        let head = format!("POST /api/documents/fill-{number}/lock HTTP/1.1\r\nHost: bench\r\n");
        let request = format!("{head}Authorization: Bearer {}\r\nContent-Length: 0\r\n\r\n", self.token);
        ensure!(self.caller.exchange(request.as_bytes()).await?, "a lock was refused");
        let answer = String::from_utf8_lossy(&self.caller.answer);
        let lease_id = answer.split_once("\"lease_id\":\"").and_then(|(_, rest)| rest.split('"').next());
        lease_id.map(ToOwned::to_owned).context("an answer has no lease id")
    }

    /// This connection, to renew these documents with every call.
    pub fn renewing(self, locks: &[(usize, String)]) -> Caller {
        let locks =
            locks.iter().map(|(number, id)| format!(r#"{{"roomId":"fill-{number}","lease_id":"{id}"}}"#));
        let body = format!(r#"{{"locks":[{}]}}"#, locks.collect::<Vec<_>>().join(","));
        let head =
            "POST /api/documents/heartbeat HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n";
        let head = format!("{head}Authorization: Bearer {}\r\nContent-Length: {}", self.token, body.len());
        self.caller.with_request(&format!("{head}\r\n\r\n{body}"))
    }
}

/// Watches a document that nobody locks; the stream is open until this is dropped.
pub async fn watch(target: &Target, number: usize) -> Result<TcpStream> {
    let Protocol::Http(token) = &target.protocol else { bail!("{} has no events", target.name) };
    let mut stream = TcpStream::connect(target.address).await?;
    let head = format!("GET /api/documents/watched-{number}/events HTTP/1.1\r\nHost: bench\r\n");
    stream.write_all(format!("{head}Authorization: Bearer {token}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::with_capacity(1_024);
    while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut answer).await? > 0, "a stream was closed");
    }
    ensure!(answer.get(9) == Some(&b'2'), "a stream was refused: {:?}", String::from_utf8_lossy(&answer));
    Ok(stream)
}

fn http_requests(token: &str, room: &str) -> [Vec<u8>; STEPS] {
    ["POST", "PUT", "DELETE"].map(|method| {
        let head = format!("{method} /api/documents/{room}/lock HTTP/1.1\r\nHost: bench\r\n");
        format!("{head}Authorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    })
}

/// Whether a whole response is there, and is a success.
fn http_answer(bytes: &[u8]) -> Option<bool> {
    const LENGTH: &[u8] = b"content-length: ";
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let mut lines = bytes.get(..end)?.split(|byte| *byte == b'\n');
    let success = lines.next()?.get(9) == Some(&b'2');
    let length = lines
        .find(|line| line.get(..LENGTH.len()).is_some_and(|name| name.eq_ignore_ascii_case(LENGTH)))
        .and_then(|line| std::str::from_utf8(line.get(LENGTH.len()..)?).ok()?.trim_end().parse().ok())
        .unwrap_or(0);
    (bytes.len() >= end + length).then_some(success)
}

const RENEW: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0";
const RELEASE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";

fn redis_requests(number: usize) -> [Vec<u8>; STEPS] {
    let (key, owner) = (format!("bench-{number}"), format!("00000000-0000-4000-8000-{number:012}"));
    [
        redis_command(&["SET", &key, &owner, "NX", "PX", "30000"]),
        redis_command(&["EVAL", RENEW, "1", &key, &owner, "30000"]),
        redis_command(&["EVAL", RELEASE, "1", &key, &owner]),
    ]
}

fn redis_command(words: &[&str]) -> Vec<u8> {
    let words_text: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{words_text}", words.len()).into_bytes()
}

fn redis_answer(bytes: &[u8]) -> Option<bool> {
    bytes.ends_with(b"\r\n").then(|| bytes.starts_with(b"+OK") || bytes.starts_with(b":1"))
}

/// The statements by which the row of a key is taken, kept and deleted; and those around them, where a step takes two trips.
const STATEMENTS: [(&str, &str); 6] = [
    (
        "acquire",
        "INSERT INTO lease VALUES ($1, $2, now() + interval '30 s') ON CONFLICT (key) DO UPDATE \
         SET owner = $2, expires_at = excluded.expires_at WHERE lease.expires_at <= now()",
    ),
    ("renew", "UPDATE lease SET expires_at = now() + interval '30 s' WHERE key = $1 AND owner = $2"),
    ("release", "DELETE FROM lease WHERE key = $1 AND owner = $2"),
    ("begin", "BEGIN"),
    ("look", "SELECT owner, expires_at FROM lease WHERE key = $1 FOR UPDATE"),
    ("commit", "COMMIT"),
];

fn postgres_requests(number: usize, after: &[u8]) -> [Vec<u8>; STEPS] {
    let (key, owner) = (format!("bench-{number}"), format!("owner-{number}"));
    ["acquire", "renew", "release"].map(|name| {
        let written = bound(name, &[&key, &owner]);
        [&written[..], after, &message(b'S', b"")].concat()
    })
}

fn postgres_look(number: usize) -> Vec<u8> {
    let key = format!("bench-{number}");
    [bound("begin", &[]), bound("look", &[&key]), message(b'S', b"")].concat()
}

/// A prepared statement with its values, executed.
fn bound(name: &str, values: &[&str]) -> Vec<u8> {
    let count = u8::try_from(values.len()).unwrap_or(0);
    let mut bind = [b"\0", name.as_bytes(), b"\0\0\0\0", &[count]].concat();
    for value in values {
        bind.extend(u32::try_from(value.len()).unwrap_or(0).to_be_bytes());
        bind.extend(value.as_bytes());
    }
    bind.extend([0, 0]);
    [message(b'B', &bind), message(b'E', b"\0\0\0\0\0")].concat()
}

fn postgres_startup() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(body.len() + 4).unwrap_or(0).to_be_bytes();
    [&length[..], body].concat()
}

fn postgres_statements() -> Vec<u8> {
    let parse = STATEMENTS
        .map(|(name, sql)| message(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat()));
    [&parse.concat()[..], &message(b'S', b"")].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(0).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

/// Whether the server is ready for the next query, and no error or row count of 0 came before that.
fn postgres_answer(mut bytes: &[u8]) -> Option<bool> {
    let mut success = true;
    loop {
        let (&kind, rest) = bytes.split_first()?;
        let (length, body) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_sub(4)?;
        let body_bytes = body.get(..length)?;
        match kind {
            b'E' => success = false,
            b'C' => success &= !body_bytes.ends_with(b" 0\0"),
            b'Z' => return Some(success),
            _ => {}
        }
        bytes = body.get(length..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_or_waited_for() {
        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(http_answer(response), Some(true));
        assert_eq!(http_answer(&response[..response.len() - 1]), None);
        assert_eq!(http_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"), None);
        assert_eq!(http_answer(b"HTTP/1.1 409 Conflict\r\n\r\n"), Some(false));
        assert_eq!(
            (redis_answer(b"+OK\r\n"), redis_answer(b"$-1\r\n"), redis_answer(b":")),
            (Some(true), Some(false), None)
        );
        let ready = message(b'Z', b"I");
        assert_eq!(postgres_answer(&[message(b'C', b"UPDATE 1\0"), ready.clone()].concat()), Some(true));
        assert_eq!(postgres_answer(&[message(b'C', b"UPDATE 0\0"), ready.clone()].concat()), Some(false));
        assert_eq!(postgres_answer(&[message(b'E', b"no"), ready].concat()), Some(false));
        assert_eq!(postgres_answer(&message(b'C', b"UPDATE 1\0")), None);
    }
}
