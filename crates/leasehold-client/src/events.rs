//! What happens to documents, as it happens: an event stream that connects again by itself.
//!
//! No event comes twice, and none is missing without a sign: where the stream could not be continued, a snapshot comes in
//! its place. Trouble on the way is no end; only what will not get better is (a token that is over, a document that
//! is not there for the caller).

mod sse;

use std::fmt;
use std::time::Duration;

use futures_util::Stream;
use leasehold_core::wire::documents::{DocumentEvent, EndOfStream, LockState, SnapshotOfAll, StreamEnd};
use leasehold_core::{Retries, RetryPolicy, RoomId};
use leasehold_store::Retry;

use crate::acquire::retries;
use crate::http::{Error, HttpClient};
use sse::{Message, Parser};

/// After so long without a byte the connection counts as dead: a server says something every 15 s.
const SILENCE: Duration = Duration::from_secs(45);

/// Something that an event stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Something happened.
    Event(DocumentEvent),
    /// How things stand with the document: what comes next happened after this. It is sent at the start, and where
    /// events may have been missed.
    Snapshot(LockState),
    /// The same for all documents that the caller may see, in one or more parts.
    SnapshotOfAll {
        /// Those that are locked.
        documents: Vec<LockState>,
        /// Whether another part follows.
        more: bool,
    },
    /// The connection is gone, and is made again. If that took too long, a snapshot follows.
    Interrupted {
        /// What happened to it.
        why: String,
    },
}

/// The events of one document, or of all that the caller may see. Made by [`HttpClient::events`].
///
/// Dropping the future of [`Events::next`] loses nothing.
pub struct Events {
    client: HttpClient,
    room: Option<RoomId>,
    last: Option<u64>,
    connection: Option<Connection>,
    retries: Retries,
    /// When to connect again.
    pause: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
    ended: bool,
}

struct Connection {
    response: reqwest::Response,
    parser: Parser,
}

/// What a step came to.
enum Step {
    Tell(Notice),
    Fail(Error),
    Silent,
}

impl Events {
    pub(crate) fn new(client: HttpClient, room: Option<RoomId>, last: Option<u64>) -> Self {
        let retries = retries(RetryPolicy::PATIENT);
        Self { client, room, last, connection: None, retries, pause: None, ended: false }
    }

    /// The next thing that the stream says; `None` after an error, which is its end.
    pub async fn next(&mut self) -> Option<Result<Notice, Error>> {
        while !self.ended {
            match self.step().await {
                Step::Tell(notice) => return Some(Ok(notice)),
                Step::Fail(error) => {
                    self.ended = true;
                    self.connection = None;
                    return Some(Err(error));
                }
                Step::Silent => {}
            }
        }
        None
    }

    /// The same as a [`Stream`].
    pub fn into_stream(mut self) -> impl Stream<Item = Result<Notice, Error>> + Send {
        async_stream::stream! {
            while let Some(item) = self.next().await {
                yield item;
            }
        }
    }

    /// Where the stream stands: pass it to [`HttpClient::events`] to go on from here.
    pub fn last_event_id(&self) -> Option<u64> {
        self.last
    }

    /// Whether there is a connection at this moment.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    async fn step(&mut self) -> Step {
        let Some(connection) = &mut self.connection else { return self.connect().await };
        if let Some(message) = connection.parser.next() {
            return self.take(&message);
        }
        let chunk = tokio::time::timeout(SILENCE, connection.response.chunk()).await;
        match chunk {
            Ok(Ok(Some(bytes))) => match connection.parser.push(&bytes) {
                Ok(()) => Step::Silent,
                Err(sse::TooLong) => self.interrupted("it sent a message that is longer than any should be"),
            },
            Ok(Ok(None)) => self.interrupted("the server closed it"),
            Ok(Err(error)) => self.interrupted(&error.without_url().to_string()),
            Err(_) => self.interrupted("nothing was heard from the server"),
        }
    }

    async fn connect(&mut self) -> Step {
        if let Some(pause) = &mut self.pause {
            pause.await;
            self.pause = None;
        }
        match self.client.open_events(self.room.as_ref(), self.last).await {
            Ok(response) => {
                self.connection = Some(Connection { response, parser: Parser::default() });
                Step::Silent
            }
            Err(error) if error.retry() == Retry::No => Step::Fail(error),
            Err(error) => {
                self.pause(error.retry_after());
                // Of many failures in a row only the first is reported.
                if self.retries.failures() > 1 {
                    Step::Silent
                } else {
                    Step::Tell(Notice::Interrupted { why: error.to_string() })
                }
            }
        }
    }

    fn interrupted(&mut self, why: &str) -> Step {
        self.connection = None;
        self.pause(None);
        Step::Tell(Notice::Interrupted { why: why.to_owned() })
    }

    fn pause(&mut self, wanted: Option<Duration>) {
        let wait = self.retries.failed_asking(wanted).unwrap_or_default();
        self.pause = Some(Box::pin(tokio::time::sleep(wait)));
    }

    fn take(&mut self, message: &Message) -> Step {
        // Whatever it says, the connection works.
        self.retries.succeeded();
        let id = message.id.as_deref().and_then(|id| id.parse().ok());
        let taken = match message.event.as_str() {
            "end" => return self.end(&message.data),
            "snapshot" => self.take_snapshot(&message.data, id),
            _ => self.take_event(&message.data, id),
        };
        taken.unwrap_or_else(|_| self.interrupted("it said something that this client does not understand"))
    }

    fn take_snapshot(&mut self, data: &str, id: Option<u64>) -> Result<Step, serde_json::Error> {
        let notice = if self.room.is_some() {
            let state: LockState = serde_json::from_str(data)?;
            self.last = Some(state.seq);
            Notice::Snapshot(state)
        } else {
            let SnapshotOfAll { documents, more } = serde_json::from_str(data)?;
            // Only a whole snapshot is a place to resume from.
            self.last = id.filter(|_| !more);
            Notice::SnapshotOfAll { documents, more }
        };
        Ok(Step::Tell(notice))
    }

    fn take_event(&mut self, data: &str, id: Option<u64>) -> Result<Step, serde_json::Error> {
        let event: DocumentEvent = serde_json::from_str(data)?;
        if self.room.is_none() {
            // The ids of all documents have no order: a server goes on right after the one that it is given.
            self.last = id.or(self.last);
            return Ok(Step::Tell(Notice::Event(event)));
        }
        let number = event.seq;
        match self.last {
            Some(last) if number <= last => return Ok(Step::Silent),
            Some(last) if number != last + 1 => {
                // A stream that begins anew begins with a snapshot.
                self.last = None;
                return Ok(self.interrupted("an event was left out"));
            }
            _ => {}
        }
        self.last = Some(number);
        Ok(Step::Tell(Notice::Event(event)))
    }

    /// The server ends the stream, and says why.
    fn end(&mut self, data: &str) -> Step {
        // A newer server may have reasons that this client does not know.
        let reason = serde_json::from_str::<EndOfStream>(data).ok().map(|end| end.reason);
        match reason {
            Some(StreamEnd::TokenExpired) => {
                let detail =
                    "it has expired; get a new one and open the stream again from where it was".to_owned();
                Step::Fail(Error::Unauthenticated { detail: Some(detail) })
            }
            Some(StreamEnd::TooSlow) => self.interrupted("this client was too slow"),
            Some(StreamEnd::ShuttingDown) => self.interrupted("the server is shutting down"),
            None => self.interrupted("the server ended it"),
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("room", &self.room).field("last", &self.last).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(room: Option<&str>) -> Events {
        let client = HttpClient::at("http://127.0.0.1:1").build().unwrap();
        client.events(room.map(|room| RoomId::parse(room).unwrap()).as_ref(), None)
    }

    fn event(seq: u64, id: u64) -> Message {
        let data = format!(
            r#"{{"event":"DocumentLocked","roomId":"a","seq":{seq},"fence":1,"holder":{{"id":"x","name":"X"}}}}"#
        );
        Message { event: "DocumentLocked".into(), data, id: Some(id.to_string()) }
    }

    fn snapshot(data: &str, id: u64) -> Message {
        Message { event: "snapshot".into(), data: data.into(), id: Some(id.to_string()) }
    }

    /// What the stream makes of a message, and where it stands after it.
    fn take(events: &mut Events, message: &Message) -> (&'static str, Option<u64>) {
        let told = match events.take(message) {
            Step::Tell(Notice::Event(_)) => "event",
            Step::Tell(Notice::Snapshot(_) | Notice::SnapshotOfAll { .. }) => "snapshot",
            Step::Tell(Notice::Interrupted { .. }) => "interrupted",
            Step::Fail(_) => "failed",
            Step::Silent => "nothing",
        };
        (told, events.last_event_id())
    }

    #[tokio::test]
    async fn law_09_a_room_stream_lets_no_gap_and_no_copy_pass() {
        let mut events = events(Some("a"));
        let state = |seq| snapshot(&format!(r#"{{"roomId":"a","locked":false,"seq":{seq}}}"#), seq);
        let cases = [
            (state(4), ("snapshot", Some(4))),
            (event(5, 5), ("event", Some(5))),
            (event(5, 5), ("nothing", Some(5))),
            (event(3, 3), ("nothing", Some(5))),
            (event(6, 6), ("event", Some(6))),
            // Begun anew, without a place to go on from: a snapshot follows.
            (event(8, 8), ("interrupted", None)),
            (state(9), ("snapshot", Some(9))),
            // A snapshot is right even if the numbers began anew.
            (state(2), ("snapshot", Some(2))),
            (event(3, 3), ("event", Some(3))),
        ];
        for (number, (message, expected)) in cases.into_iter().enumerate() {
            assert_eq!(take(&mut events, &message), expected, "step {number}");
        }
    }

    #[tokio::test]
    async fn law_09_a_stream_of_all_goes_on_only_from_a_whole_snapshot() {
        let mut events = events(None);
        let part = |more| snapshot(&format!(r#"{{"documents":[],"more":{more}}}"#), 40);
        let cases = [
            (part(true), ("snapshot", None)),
            (part(false), ("snapshot", Some(40))),
            (event(1, 44), ("event", Some(44))),
            // The ids have no order. While a client thought so, it left out every other event.
            (event(2, 7), ("event", Some(7))),
        ];
        for (message, expected) in cases {
            assert_eq!(take(&mut events, &message), expected);
        }
    }

    #[tokio::test]
    async fn the_end_of_a_token_is_the_end_and_the_others_are_not() {
        for (reason, expected) in [
            ("token_expired", "failed"),
            ("too_slow", "interrupted"),
            ("shutting_down", "interrupted"),
            ("something new", "interrupted"),
        ] {
            let data = format!(r#"{{"reason":"{reason}"}}"#);
            let end = Message { event: "end".into(), data, id: None };
            assert_eq!(take(&mut events(Some("a")), &end).0, expected, "{reason}");
        }
        let nonsense = Message { event: "DocumentLocked".into(), data: "[]".into(), id: None };
        assert_eq!(take(&mut events(Some("a")), &nonsense).0, "interrupted");
    }
}
