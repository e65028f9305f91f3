//! Fuzzing what strangers send: the bytes of a connection, messages, `auth` strings and signed calls. A corpus of good ones is
//! changed at random; nothing may panic, and nothing that was changed may open a channel.
//!
//! 20,000 executions of each in the test command, 1,000,000 in `cargo xtask soak`, there from a seed of its own each time. A
//! failure names the seed; `LEASEHOLD_SEED=N` repeats it.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use super::SocketId;
use super::channel::ChannelName;
use super::conversation::{Action, Conversation, Now, keys};
use super::settings::{PusherApp, PusherSettings};
use super::signature::{Signed, SignedCall};

const CHANNEL: &str = "presence-document.42";
const DATA: &str = r#"{"user_id":"anna","user_info":{"name":"Anna"}}"#;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    /// Changes bytes in one to four places: a byte, a piece, or a piece of others.
    fn change(&mut self, good: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(5) {
                0 if !bytes.is_empty() => bytes[at.saturating_sub(1)] = self.interesting(),
                1 => bytes.insert(at, self.interesting()),
                2 => drop(bytes.drain(at..(at + self.below(8)).min(bytes.len()))),
                3 => {
                    let piece = bytes[at..(at + self.below(40)).min(bytes.len())].to_vec();
                    let to = self.below(bytes.len() + 1);
                    drop(bytes.splice(to..to, piece));
                }
                _ => {
                    let other = &others[self.below(others.len())];
                    let from = self.below(other.len() + 1);
                    let piece = other[from..(from + self.below(60)).min(other.len())].to_vec();
                    drop(bytes.splice(at..at, piece));
                }
            }
        }
        bytes
    }

    fn interesting(&mut self) -> u8 {
        const BYTES: &[u8] = b"\"\\{}[]:,.-+0123456789aefuntr \n\0\x7f\x80\xff=&%;";
        BYTES[self.below(BYTES.len())]
    }
}

/// Runs `one` with each changed text.
fn fuzz(corpus: &[String], mut one: impl FnMut(&str)) {
    let corpus: Vec<_> = corpus.iter().map(|text| text.as_bytes().to_vec()).collect();
    fuzz_bytes(&corpus, |bytes| one(&String::from_utf8_lossy(bytes)));
}

fn fuzz_bytes(corpus: &[Vec<u8>], mut one: impl FnMut(&[u8])) {
    let is_soak = std::env::var_os("LEASEHOLD_SOAK").is_some();
    let named = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut drawn = [0; 8];
    getrandom::fill(&mut drawn).unwrap();
    let seed = named.unwrap_or(if is_soak { u64::from_be_bytes(drawn) } else { 15 });
    let mut random = Random(seed);
    for execution in 0..if is_soak { 1_000_000 } else { 20_000 } {
        let chosen = random.below(corpus.len());
        let bytes = random.change(&corpus[chosen], corpus);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one(&bytes)));
        let shown = || bytes.escape_ascii().to_string();
        assert!(caught.is_ok(), "LEASEHOLD_SEED={seed}, execution {execution}: {}", shown());
    }
}

fn settings() -> PusherSettings {
    let secret = "a secret of twenty bytes".into();
    PusherSettings::new(PusherApp { app_id: "docs".into(), key: "app-key".into(), secret })
}

fn socket() -> SocketId {
    SocketId::parse("1.2").unwrap()
}

/// Good messages of a client, the first of which subscribe.
fn messages(settings: &PusherSettings) -> [String; 7] {
    let channel = ChannelName::parse(CHANNEL).unwrap();
    let what = Signed { socket: socket(), channel: &channel, channel_data: Some(DATA) };
    let auth = keys(settings).sign(what, Some(2_000_000_000));
    let subscribe = |data: serde_json::Value| {
        serde_json::json!({ "event": "pusher:subscribe", "data": data }).to_string()
    };
    let good = serde_json::json!({ "channel": CHANNEL, "auth": auth, "channel_data": DATA });
    [
        subscribe(good.clone()),
        subscribe(good.to_string().into()),
        subscribe(serde_json::json!({ "channel": "private-document.43", "auth": auth })),
        r#"{"event":"pusher:unsubscribe","data":{"channel":"presence-document.42"}}"#.to_owned(),
        r#"{"event":"client-typing","channel":"presence-document.42","data":{"at":[1,2,{"x":null}]}}"#
            .to_owned(),
        r#"{"event":"pusher:signin","data":{"auth":"app-key:00","user_data":"{\"id\":\"7\"}"}}"#.to_owned(),
        r#"{"event":"pusher:ping","data":{}}"#.to_owned(),
    ]
}

/// A conversation that hears a message. It joins nothing that was not signed, and its answers are messages.
fn hears(conversation: &mut Conversation, text: &str, settings: &PusherSettings) {
    let now = Now { since_start: Duration::ZERO, wall_millis: 1_700_000_000_000 };
    match conversation.hear(text, settings, now) {
        Action::Join { channel, member } => {
            assert_eq!((channel.as_str(), member.unwrap().user.as_ref()), (CHANNEL, "anna"));
        }
        Action::Reply(frame) | Action::Say { frame, .. } => {
            let message: serde_json::Value = serde_json::from_str(&frame).unwrap();
            assert!(message["event"].is_string() && frame.len() < 2 * text.len() + 1_000);
        }
        Action::SignIn { user, .. } => panic!("signed in as {user}"),
        Action::Nothing | Action::Leave(_) | Action::Close { .. } => {}
    }
}

#[test]
fn fuzzed_frames_join_nothing_that_was_not_signed() {
    let settings = settings();
    let corpus = messages(&settings);
    fuzz(&corpus, |text| {
        let mut conversation = Conversation::new(socket(), &settings, Duration::ZERO);
        // Twice, for what needs a subscription first; the second time it is known.
        for text in [text, corpus[4].as_str()] {
            hears(&mut conversation, text, &settings);
        }
        conversation.tick(&settings, Duration::from_secs(60));
    });
}

/// A client that sends these bytes and then waits, and that takes whatever it is sent.
struct Client<'a>(&'a [u8]);

impl Read for Client<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { self.0.read(buffer) }
    }
}

impl Write for Client<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A masked frame of a client: the first byte says whether it is the last of its message, and what it is.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 0, 255, 42];
    let length = u16::try_from(payload.len()).unwrap();
    let mut bytes = vec![first];
    match u8::try_from(length) {
        Ok(short @ ..126) => bytes.push(0x80 | short),
        _ => bytes.extend([&[0x80 | 126], &length.to_be_bytes()[..]].concat()),
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

#[test]
fn fuzzed_bytes_are_messages_that_join_nothing_or_an_error() {
    const LAST: u8 = 0x80;
    let [text, binary, close, ping, pong, continued] = [1, 2, 8, 9, 10, 0];
    let settings = settings();
    let good = messages(&settings);
    let whole = good.each_ref().map(|message| frame(LAST | text, message.as_bytes()));
    let (begin, end) = good[0].as_bytes().split_at(40);
    let parts = [frame(text, begin), frame(LAST | ping, b"?"), frame(LAST | continued, end)].concat();
    let others = [(binary, &[0_u8; 300][..]), (close, b"\x03\xe8bye"), (pong, b"")];
    let others = others.map(|(kind, payload)| frame(LAST | kind, payload));
    let corpus = [&whole[..], &others, &[whole.concat(), parts]].concat();
    let longest = settings.message;
    let config = WebSocketConfig::default().max_message_size(Some(longest)).max_frame_size(Some(longest));
    fuzz_bytes(&corpus, |bytes| {
        let mut client = WebSocket::from_raw_socket(Client(bytes), Role::Server, Some(config));
        let mut conversation = Conversation::new(socket(), &settings, Duration::ZERO);
        // A frame has at least two bytes.
        for turn in 0.. {
            assert!(turn <= bytes.len());
            match client.read() {
                Ok(Message::Text(text)) => {
                    assert!(text.len() <= longest);
                    hears(&mut conversation, &text, &settings);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    });
}

#[test]
fn fuzzed_auth_strings_open_nothing() {
    let settings = settings();
    let channel = ChannelName::parse("private-document.42").unwrap();
    let what = Signed { socket: socket(), channel: &channel, channel_data: None };
    let corpus = [keys(&settings).sign(what, None), keys(&settings).sign(what, Some(2_000_000_000))];
    // Digits may be in capitals, and a number may be written with zeros before it: that is the same signature.
    let same = |auth: &str| {
        let (key, rest) = auth.split_once(':').unwrap();
        let (signature, end) = rest.split_once('.').unwrap_or((rest, ""));
        (key.to_owned(), signature.to_lowercase(), end.trim_start_matches(['0', '+']).to_owned())
    };
    let known: Vec<_> = corpus.iter().map(|auth| same(auth)).collect();
    fuzz(&corpus, |auth| {
        if keys(&settings).check(auth, what).is_some() {
            assert!(known.contains(&same(auth)), "{auth}");
        }
        assert!(!keys(&settings).check_user(auth, socket(), "{}"));
    });
}

#[test]
fn fuzzed_calls_are_not_those_that_were_signed() {
    let settings = settings();
    let parse = |text: &str| -> Vec<(String, String)> {
        text.split('&')
            .map(|part| part.split_once('=').unwrap_or((part, "")))
            .map(|(a, b)| (a.into(), b.into()))
            .collect()
    };
    let body = b"{}".as_slice();
    let query = "auth_key=app-key&auth_timestamp=1700000000&auth_version=1.0&body_md5=99914b932bd37a50b983c5e7c90ae93b";
    let mut mac = Hmac::<Sha256>::new_from_slice(settings.app.secret.as_bytes()).unwrap();
    mac.update(format!("POST\n/apps/docs/events\n{query}").as_bytes());
    let signature: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let good = format!("{query}&auth_signature={signature}");
    let call = |text: &str| {
        let query = parse(text);
        let call = SignedCall { method: "POST", path: "/apps/docs/events", query: &query, body };
        call.check(keys(&settings), 1_700_000_000)
    };
    assert_eq!(call(&good), Ok(()));
    let sorted = |text: &str| {
        let mut query = parse(&text.to_lowercase());
        query.sort();
        query
    };
    let expected = sorted(&good);
    fuzz(std::slice::from_ref(&good), |text| {
        if call(text).is_ok() {
            // Parts in another order are the same call.
            assert_eq!(sorted(text), expected, "{text}");
        }
    });
}
