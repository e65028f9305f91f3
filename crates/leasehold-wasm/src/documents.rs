//! The documents of a page: the keeper of each lock, and the waits between attempts. A module of its own (feature `documents`), so
//! that a page that locks documents loads nothing of the project lock. Bindings only: `leasehold_core::holder` decides when to renew
//! and when to stop, `leasehold_core::backoff` how long to wait.

use std::time::Duration;

use leasehold_core::backoff::{Retries, RetryPolicy};
use leasehold_core::holder::{Action, Confirm, Keeper, Lost, PendingRequest, Reply, Terms};
use leasehold_core::lease::LossReason;
use leasehold_core::time::{SteadyClock, whole_millis};
use leasehold_core::{HolderTime, OnSilence, Owner, Ttl};
use leasehold_project_rules::shape;
use leasehold_project_rules::wire::json::Json;
use leasehold_project_rules::wire::shape::{self, Shape};

use crate::border::{RequestTable, fingerprint, requests};
use crate::fields::Wrong;
use crate::tab::Readings;

/// All requests.
pub const REQUESTS: &[RequestTable] = Request::TABLES;

/// The shapes of what is answered.
pub const ANSWERS: &[Shape] = &[Answer::SHAPE];

/// A hash of all declarations.
pub const FINGERPRINT: u32 = shape::hash(ANSWERS, fingerprint(REQUESTS));

requests! {
    Request;
    /// Makes a machine for a document; the answer says its number. `random` has 32 bits.
    Open { random: u32 }
    /// Forgets a machine.
    Close {}
    /// What time is it? The answer to a call that is sent now comes with this time as `sent`.
    Look {}
    /// The server says that this page holds the lock: the lock was granted, or else renewed, by a call that was sent at `sent`.
    Held {
        sent: u64, granted: bool, fence: u64, expires_in_ms: u64, heartbeat_ms: u64, request: Option<u64>, by: Option<&'a str>,
        on_silence: Option<&'a str>, countdown_ms: Option<u64>, ends_in_ms: Option<u64>,
    }
    /// The server refused a call of the holder with this `code`. `request` is the one that the call named.
    Refused { sent: u64, code: &'a str, because: Option<&'a str>, request: Option<u64> }
    /// A renewal was not answered, or not by the rules.
    Failed { sent: u64 }
    /// The user sees this request. The answer says whether to tell the server.
    Confirm { request: u64 }
    /// The server knows that the user sees it: the countdown has so much left.
    Counting { sent: u64, request: u64, ends_in_ms: u64 }
    /// The request is over, and the lock is kept.
    Settled { request: u64 }
    /// An event says that the lock with this fence has ended.
    Ended { fence: u64, reason: &'a str }
    /// Something else happened to the document.
    News {}
    /// The page gives the lock back, or hands it over.
    Release {}
    /// The time of the last answer's `timeoutMs` has come.
    Timeout {}
    /// A call failed that is no renewal; `waits` if a user waits for it. The answer has no `pauseMs` if that was the last attempt.
    Retry { waits: bool, retry_after_ms: Option<f64> }
    /// Such a call has succeeded.
    Succeeded { waits: bool }
}

shape! {
    /// What is answered to any request.
    #[derive(Default)]
    pub struct Answer {
        /// What is wrong with the request.
        pub invalid: Option<Wrong>,
        /// The number of the machine that was opened.
        pub machine: Option<u32>,
        /// The time, by the page's own clock.
        pub at: u64,
        /// Send a renewal now: it counts as sent at `at`.
        pub renew: bool,
        /// When to come back with `timeout`, from now.
        pub timeout_ms: Option<u64>,
        /// For how long the page may act; absent if it holds no lock.
        pub left_ms: Option<u64>,
        /// Why the lock is gone, once: a word of the server's, or `deadline`.
        pub lost: Option<&'static str>,
        /// The request that the user has to answer.
        pub request: Option<u64>,
        /// Whether to tell the server that the user sees the request: send, withhold or over.
        pub confirm: Option<&'static str>,
        /// How long to wait before the next attempt.
        pub pause_ms: Option<u64>,
    }
}

/// One document of a page.
struct Document {
    keeper: Option<Keeper>,
    fence: u64,
    random: u32,
    /// Of calls that a user waits for, and of those that go on in the background.
    retries: [Retries; 2],
}

/// The documents of a page, by number.
#[derive(Default)]
pub struct Documents {
    documents: Vec<Option<Box<Document>>>,
    clock: Option<SteadyClock>,
}

impl Documents {
    /// None at all.
    pub const fn new() -> Self {
        Self { documents: Vec::new(), clock: None }
    }

    /// Handles a request to this machine, and writes the answer as JSON.
    pub fn handle(&mut self, machine: usize, at: Readings, bytes: &[u8]) -> Vec<u8> {
        let clock = self.clock.get_or_insert(SteadyClock::new(at.wall, at.monotonic));
        let now = clock.tick(at.wall, at.monotonic);
        let answer = Request::read(bytes).and_then(|request| self.answer(&request, machine, now));
        let answer = answer.unwrap_or_else(|why| Answer { invalid: Some(why), ..Answer::default() });
        let mut json = Vec::new();
        Answer { at: now.as_millis(), ..answer }.write(&mut json);
        json
    }

    fn answer(&mut self, request: &Request<'_>, number: usize, now: HolderTime) -> Result<Answer, Wrong> {
        if let Request::Open { random } = request {
            return Ok(self.open(*random));
        }
        let slot = self.documents.get_mut(number).ok_or("no document was opened under this number")?;
        if let Request::Close {} = request {
            *slot = None;
            return Ok(Answer::default());
        }
        let document = slot.as_mut().ok_or("this document was closed")?;
        let said = document.take(request, now)?;
        Ok(document.polled(said, now))
    }

    fn open(&mut self, random: u32) -> Answer {
        let retries = [RetryPolicy::CALL, RetryPolicy::PATIENT].map(|policy| Retries::new(policy, random));
        let opened = Some(Box::new(Document { keeper: None, fence: 0, random, retries }));
        let number = self.documents.iter().position(Option::is_none).unwrap_or(self.documents.len());
        match self.documents.get_mut(number) {
            Some(free) => *free = opened,
            None => self.documents.push(opened),
        }
        Answer { machine: u32::try_from(number).ok(), ..Answer::default() }
    }
}

impl Document {
    /// Takes in what happened.
    fn take(&mut self, request: &Request<'_>, now: HolderTime) -> Result<Answer, Wrong> {
        let mut said = Answer::default();
        match request {
            Request::Held { sent, granted, fence, .. } => {
                let (sent, terms) = (HolderTime::from_millis(*sent), terms(request)?);
                if *granted {
                    self.fence = *fence;
                    self.keeper = Some(Keeper::granted(sent, now, terms, None, self.random));
                } else {
                    // The server compares lease ids; one never stands for two fences.
                    let is_same = *fence == self.fence;
                    let kept = if is_same { Reply::Kept(terms) } else { Reply::Lost(LossReason::Unknown) };
                    self.reply(sent, now, kept);
                }
            }
            Request::Refused { sent, code, because, request } => {
                self.reply(HolderTime::from_millis(*sent), now, refusal(code, *because, *request));
            }
            Request::Failed { sent } => self.reply(HolderTime::from_millis(*sent), now, Reply::Failed),
            Request::Counting { sent, request, ends_in_ms } => {
                let left = Duration::from_millis(*ends_in_ms);
                self.reply(HolderTime::from_millis(*sent), now, Reply::Counting { request: *request, left });
            }
            Request::Settled { request } => self.reply(now, now, Reply::RequestOver { request: *request }),
            Request::Confirm { request } => {
                let confirm =
                    self.keeper.as_mut().map_or(Confirm::Over, |keeper| keeper.confirm(*request, now));
                said.confirm = Some(match confirm {
                    Confirm::Send => "send",
                    Confirm::Withhold => "withhold",
                    Confirm::Over => "over",
                });
            }
            Request::Ended { fence, reason } if *fence == self.fence => {
                let because = LossReason::parse(reason).unwrap_or(LossReason::Unknown);
                self.reply(now, now, Reply::Lost(because));
            }
            Request::News {} => {
                if let Some(keeper) = &mut self.keeper {
                    keeper.handle_news(now);
                }
            }
            Request::Release {} => self.keeper = None,
            Request::Retry { waits, retry_after_ms } => {
                let asked = retry_after_ms.map(|millis| Duration::from_millis(millis as u64));
                let pause = self.retries(*waits).failed_asking(asked);
                said.pause_ms = pause.map(whole_millis);
                if pause.is_none() {
                    self.retries(*waits).succeeded();
                }
            }
            Request::Succeeded { waits } => self.retries(*waits).succeeded(),
            _ => {}
        }
        Ok(said)
    }

    fn reply(&mut self, sent: HolderTime, now: HolderTime, reply: Reply) {
        if let Some(keeper) = &mut self.keeper {
            keeper.handle_reply(sent, now, reply);
        }
    }

    fn retries(&mut self, waits: bool) -> &mut Retries {
        let [call, background] = &mut self.retries;
        if waits { call } else { background }
    }

    /// What to do now.
    fn polled(&mut self, said: Answer, now: HolderTime) -> Answer {
        let Some(keeper) = &mut self.keeper else { return said };
        let action = keeper.poll(now);
        if let Action::Stop(lost) = action {
            self.keeper = None;
            return Answer { lost: Some(word(lost)), ..said };
        }
        Answer {
            renew: action == Action::Renew,
            timeout_ms: Some(whole_millis(keeper.next_poll().since(now))),
            left_ms: Some(whole_millis(keeper.deadline().since(now))),
            request: keeper.request().map(|request| request.seq),
            ..said
        }
    }
}

fn word(lost: Lost) -> &'static str {
    match lost {
        Lost::Told(because) => because.as_str(),
        Lost::Deadline => "deadline",
        Lost::Released => LossReason::Released.as_str(),
    }
}

/// What a refusal says to the holder. A code that is not about the lock is trouble, after which the call is repeated.
fn refusal(code: &str, because: Option<&str>, request: Option<u64>) -> Reply {
    match (code, request) {
        ("lock_not_found" | "not_holder" | "lease_over", _) => {
            Reply::Lost(because.and_then(LossReason::parse).unwrap_or(LossReason::Unknown))
        }
        ("no_request", Some(request)) => Reply::RequestOver { request },
        _ => Reply::Failed,
    }
}

fn terms(request: &Request<'_>) -> Result<Terms, Wrong> {
    let Request::Held {
        expires_in_ms, heartbeat_ms, request, by, on_silence, countdown_ms, ends_in_ms, ..
    } = request
    else {
        return Err("this is no answer to a holder".into());
    };
    let request = match (request, by, countdown_ms) {
        (Some(seq), Some(by), Some(countdown)) => Some(PendingRequest {
            seq: *seq,
            by: Owner::parse(by).map_err(|_| "by is no user")?,
            name: None,
            on_silence: if *on_silence == Some("grant") { OnSilence::Grant } else { OnSilence::Refuse },
            countdown: ttl(*countdown)?,
            left: ends_in_ms.map(Duration::from_millis),
        }),
        _ => None,
    };
    let heartbeat = Some(Duration::from_millis(*heartbeat_ms)).filter(|every| !every.is_zero());
    Ok(Terms { ttl: ttl(*expires_in_ms)?, heartbeat, request })
}

fn ttl(millis: u64) -> Result<Ttl, Wrong> {
    let duration = Duration::from_millis(millis).min(Ttl::MAX.as_duration());
    Ttl::new(duration).map_err(|_| "a time is shorter than a second".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page whose clocks agree, and what it is answered.
    struct Page {
        documents: Documents,
        machine: usize,
    }

    impl Page {
        fn new() -> Self {
            let mut page = Self { documents: Documents::new(), machine: 0 };
            let opened = page.ask(0, "open", &[("random", 0.0.into())]);
            assert_eq!(opened.get("machine"), Some(&0.into()));
            page
        }

        /// The same with a lock of 30 s, granted at 0.
        fn holding() -> Self {
            let mut page = Self::new();
            page.held(0, 0, true, &[]);
            page
        }

        fn held(
            &mut self,
            at: u64,
            sent: u64,
            granted: bool,
            more: &[(&str, serde_json::Value)],
        ) -> serde_json::Value {
            let lock = [
                ("sent", sent.into()),
                ("granted", granted.into()),
                ("fence", 7.into()),
                ("expiresInMs", 30_000.into()),
                ("heartbeatMs", 10_000.into()),
            ];
            self.ask(at, "held", &[&lock, more].concat())
        }

        fn ask(&mut self, at: u64, name: &str, fields: &[(&str, serde_json::Value)]) -> serde_json::Value {
            let mut bytes = Vec::new();
            push_text(&mut bytes, name);
            for (field, value) in fields {
                push_text(&mut bytes, field);
                match value {
                    serde_json::Value::Bool(is) => bytes.push(if *is { 2 } else { 1 }),
                    serde_json::Value::String(text) => push_text(&mut bytes, text),
                    number => {
                        bytes.push(3);
                        bytes.extend(number.as_f64().unwrap().to_le_bytes());
                    }
                }
            }
            let answer = self.documents.handle(self.machine, Readings { wall: at, monotonic: at }, &bytes);
            serde_json::from_slice(&answer).unwrap()
        }
    }

    fn push_text(bytes: &mut Vec<u8>, text: &str) {
        bytes.push(4);
        bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        bytes.extend(text.bytes());
    }

    #[test]
    fn law_08_a_page_stops_a_margin_before_the_last_success_and_30_s() {
        let mut page = Page::holding();
        let renewal = page.ask(10_000, "timeout", &[]);
        assert_eq!((renewal.get("renew"), renewal.get("leftMs")), (Some(&true.into()), Some(&17_000.into())));
        let failed = page.ask(10_100, "failed", &[("sent", 10_000.into())]);
        assert_eq!(failed.get("timeoutMs"), Some(&1_000.into()), "it is tried again");
        assert_eq!(page.ask(26_999, "timeout", &[]).get("lost"), None);
        assert_eq!(page.ask(27_000, "timeout", &[]).get("lost"), Some(&"deadline".into()));
        assert_eq!(page.ask(27_001, "timeout", &[]).get("lost"), None, "it is said once");
        assert_eq!(
            page.held(27_002, 26_000, false, &[]).get("leftMs"),
            None,
            "a late answer revives nothing"
        );
    }

    #[test]
    fn a_refusal_about_the_lock_ends_it_and_any_other_is_tried_again() {
        let cases = [
            ("lock_not_found", Some("unknown")),
            ("not_holder", Some("unknown")),
            ("lease_over", Some("unknown")),
            ("unauthenticated", None),
            ("not_allowed", None),
            ("unavailable", None),
            ("", None),
        ];
        for (code, lost) in cases {
            let mut page = Page::holding();
            page.ask(10_000, "timeout", &[]);
            let answer = page.ask(10_001, "refused", &[("sent", 10_000.into()), ("code", code.into())]);
            assert_eq!(answer.get("lost").and_then(|lost| lost.as_str()), lost, "{code}");
        }
    }

    #[test]
    fn an_event_ends_the_lock_with_its_fence_and_no_other() {
        let mut page = Page::holding();
        let ended = |fence: u64| [("fence", fence.into()), ("reason", "taken_over".into())];
        assert_eq!(page.ask(1, "ended", &ended(6)).get("lost"), None);
        assert_eq!(page.ask(2, "ended", &ended(7)).get("lost"), Some(&"taken_over".into()));
    }

    #[test]
    fn a_request_is_confirmed_and_its_countdown_brings_the_deadline_forward() {
        let mut page = Page::holding();
        let request = [
            ("request", 5.into()),
            ("by", "ben".into()),
            ("onSilence", "grant".into()),
            ("countdownMs", 10_000.into()),
        ];
        assert_eq!(page.held(1_000, 1_000, false, &request).get("request"), Some(&5.into()));
        let told = page.ask(2_000, "confirm", &[("request", 5.into())]);
        assert_eq!((told.get("confirm"), told.get("leftMs")), (Some(&"send".into()), Some(&7_000.into())));
        let settled = page.ask(3_000, "settled", &[("request", 5.into())]);
        assert_eq!((settled.get("request"), settled.get("leftMs")), (None, Some(&25_000.into())));
    }

    #[test]
    fn a_lock_that_was_given_back_asks_for_nothing() {
        let mut page = Page::holding();
        let released = page.ask(1, "release", &[]);
        assert_eq!((released.get("lost"), released.get("timeoutMs")), (None, None));
    }

    #[test]
    fn a_call_that_a_user_waits_for_is_given_up_and_one_in_the_background_never() {
        let mut page = Page::new();
        let mut pauses = |waits: bool| {
            let pause = |_| page.ask(0, "retry", &[("waits", waits.into())]).get("pauseMs").cloned();
            (0..6).map(pause).collect::<Vec<_>>()
        };
        assert_eq!(pauses(true).iter().flatten().count(), 5, "six attempts");
        assert_eq!(pauses(false).iter().flatten().count(), 6);
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let mut page = Page::holding();
        let short = [("expiresInMs", serde_json::Value::from(3))];
        let lock =
            [("sent", 0.into()), ("granted", true.into()), ("fence", 8.into()), ("heartbeatMs", 1.into())];
        for (name, fields) in
            [("nothing", &[][..]), ("held", &[]), ("held", &[&lock[..], &short[..]].concat())]
        {
            assert!(page.ask(1, name, fields).get("invalid").is_some(), "{name}");
        }
        assert_eq!(page.ask(2, "look", &[]).get("leftMs"), Some(&26_998.into()));
        page.machine = 4;
        assert!(page.ask(3, "look", &[]).get("invalid").is_some());
    }
}
