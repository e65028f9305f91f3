//! `leasehold watch`: what happens on a server, as it happens. A live view on a terminal, one event a line elsewhere.

mod board;
mod screen;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold_client::{Events, HttpClient, Notice, RoomId};
use leasehold_core::wire::documents::{DocumentEvent, EventName, LockState, UnlockReason};
use leasehold_store::clock::unix_millis;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::Ending;
use crate::connection::Connection;
use crate::out::{Out, one_line};
use crate::people::{People, other_party};
use crate::signals::Signals;
use board::{Board, Link};
use screen::{Next, Screen};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this document.
    #[arg(value_name = "DOCUMENT")]
    room: Option<RoomId>,
    #[command(flatten)]
    connection: Connection,
}

/// How often the view is drawn: often enough for a countdown, whatever the events do.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// How often the server is asked for the state: renewals are no events, only this shows them.
const ASKED_EVERY: Duration = Duration::from_secs(2);

/// How many locks are asked for.
const SHOWN_AT_MOST: usize = 500;

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    let live = !out.is_json() && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    args.connection.run(async |client| {
        let signals = Signals::listen()?;
        if live {
            View::open(&client, args.room.as_ref())?.run(signals).await?;
        } else {
            lines(client.events(args.room.as_ref(), None), signals, out).await?;
        }
        Ok(Ending::Done)
    })
}

/// One event a line, until a signal arrives or the reader is gone.
async fn lines(mut events: Events, mut signals: Signals, out: &Out) -> Result<()> {
    let mut people = People::default();
    loop {
        let notice = tokio::select! {
            _ = signals.next() => return Ok(()),
            notice = events.next() => notice,
        };
        let Some(notice) = notice.transpose()? else { return Ok(()) };
        let line = if out.is_json() { as_json(&notice).to_string() } else { as_text(&notice, &mut people) };
        if out.try_line(&line).is_err() {
            return Ok(());
        }
    }
}

fn as_json(notice: &Notice) -> Value {
    match notice {
        Notice::Event(event) => json!(event),
        Notice::Snapshot(state) => json!({ "event": "snapshot", "documents": [state], "more": false }),
        Notice::SnapshotOfAll { documents, more } => {
            json!({ "event": "snapshot", "documents": documents, "more": more })
        }
        Notice::Interrupted { why } => json!({ "event": "interrupted", "why": why }),
    }
}

fn as_text(notice: &Notice, people: &mut People) -> String {
    let text = match notice {
        Notice::Event(event) => {
            people.learn_event(event);
            told(event, people)
        }
        Notice::Snapshot(state) => {
            people.learn_state(state);
            standing(state, people)
        }
        Notice::SnapshotOfAll { documents, more } => {
            documents.iter().for_each(|state| people.learn_state(state));
            let more = if *more { ", and more" } else { "" };
            let names: Vec<String> = documents.iter().map(|state| standing(state, people)).collect();
            let names = if names.is_empty() { String::new() } else { format!(": {}", names.join("; ")) };
            format!("connected, {} locked{more}{names}", documents.len())
        }
        Notice::Interrupted { why } => format!("not connected: {why}"),
    };
    format!("{} {text}", time_of_day(unix_millis()))
}

fn standing(state: &LockState, people: &People) -> String {
    match &state.lock {
        Some(lock) => {
            format!("{} is held by {} (fence {})", state.room_id, people.name(&lock.holder), lock.fence)
        }
        None => format!("{} is free", state.room_id),
    }
}

/// The time of day by the machine's clock, in UTC: the world has many time zones, a log should have one.
fn time_of_day(unix_millis: u64) -> String {
    let seconds = unix_millis / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// An event in words, with the fence of a lock that begins or ends.
fn told(event: &DocumentEvent, people: &People) -> String {
    let words = in_words(event, people);
    let note = event.note.as_deref().filter(|note| !note.is_empty());
    let note = note.map(|note| format!(": {}", one_line(note))).unwrap_or_default();
    match event.event {
        EventName::DocumentLocked | EventName::DocumentUnlocked => {
            format!("{words} (fence {}){note}", event.fence)
        }
        _ => words,
    }
}

/// An event in as few words as will do.
fn in_words(event: &DocumentEvent, people: &People) -> String {
    let (room, name) = (&event.room_id, people.name(&event.holder));
    let by = other_party(event).map_or_else(|| "another user".to_owned(), |by| people.name(&by));
    match (event.event, event.reason) {
        (EventName::DocumentLocked, _) => format!("{room}: locked by {name}"),
        (EventName::DocumentUnlocked, Some(UnlockReason::Released)) => format!("{room}: released by {name}"),
        (EventName::DocumentUnlocked, Some(UnlockReason::Expired)) => {
            format!("{room}: expired, {name} held it")
        }
        (EventName::DocumentUnlocked, Some(UnlockReason::TakenOver)) if event.force_released => {
            format!("{room}: {by} ended the lock of {name}")
        }
        (EventName::DocumentUnlocked, Some(UnlockReason::TakenOver)) => {
            format!("{room}: taken from {name} by {by}")
        }
        (EventName::DocumentUnlocked, Some(UnlockReason::HandedOver)) => {
            format!("{room}: handed over by {name} to {by}")
        }
        (EventName::DocumentUnlocked, Some(UnlockReason::Disconnected)) => {
            format!("{room}: {name} left and did not come back")
        }
        (EventName::DocumentUnlocked, None) => format!("{room}: unlocked, {name} held it"),
        (EventName::DocumentLeaving, _) => format!("{room}: {name} is leaving"),
        (EventName::DocumentResumed, _) => format!("{room}: {name} is back"),
        (EventName::HandoverRequested, _) => format!("{room}: {by} asks {name} to hand it over"),
        (EventName::HandoverTold, _) => format!("{room}: {name} knows that {by} asks for it"),
        (EventName::HandoverRefused, _) => format!("{room}: {name} keeps it, {by} had asked"),
        (EventName::HandoverWithdrawn, _) => format!("{room}: {by} does not ask for it any more"),
    }
}

/// A terminal that is given back as it was found, however this ends.
struct Borrowed(DefaultTerminal);

impl Drop for Borrowed {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The live view.
struct View {
    terminal: Borrowed,
    screen: Screen,
    board: Board,
    events: Events,
    answers: mpsc::Receiver<Answered>,
    keys: mpsc::Receiver<Event>,
}

/// What a question for the state of everything came to.
struct Answered {
    asked: Instant,
    states: Vec<LockState>,
    more: bool,
}

impl View {
    fn open(client: &HttpClient, room: Option<&RoomId>) -> Result<Self> {
        let title = match room {
            Some(room) => format!("{} at {}", room, client.url()),
            None => client.url().to_owned(),
        };
        Ok(Self {
            terminal: Borrowed(ratatui::try_init()?),
            screen: Screen::new(title),
            board: Board::new(),
            events: client.events(room, None),
            answers: ask_often(client.clone(), room.cloned()),
            keys: read_keys(),
        })
    }

    async fn run(mut self, mut signals: Signals) -> Result<()> {
        let mut draw = interval(DRAWN_EVERY);
        draw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = signals.next() => return Ok(()),
                Some(key) = self.keys.recv() => {
                    if self.screen.handle(&key, &self.board) == Next::Quit {
                        return Ok(());
                    }
                    self.draw()?;
                }
                _ = draw.tick() => self.draw()?,
                Some(answered) = self.answers.recv() => {
                    self.board.more = answered.more;
                    self.board.handle_all(&answered.states, answered.asked, Instant::now());
                }
                notice = self.events.next() => match notice.transpose()? {
                    Some(notice) => self.handle(notice),
                    None => return Ok(()),
                },
            }
        }
    }

    fn draw(&mut self) -> Result<()> {
        let Self { terminal, screen, board, .. } = self;
        terminal.0.draw(|frame| screen.draw(frame, board, Instant::now()))?;
        Ok(())
    }

    fn handle(&mut self, notice: Notice) {
        let now = Instant::now();
        self.board.link = match &notice {
            Notice::Interrupted { why } => Link::Lost(why.clone()),
            _ => Link::Live,
        };
        match notice {
            Notice::Event(event) => self.board.handle_event(&event, now),
            Notice::Snapshot(state) => self.board.handle_state(&state, now),
            Notice::SnapshotOfAll { documents, more } => {
                self.board.more = more;
                self.board.handle_all(&documents, now, now);
            }
            Notice::Interrupted { .. } => {}
        }
    }
}

/// Asks for the state again and again. Trouble is not told here: the event stream has the same, and tells it.
fn ask_often(client: HttpClient, room: Option<RoomId>) -> mpsc::Receiver<Answered> {
    let (answers, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut ask = interval(ASKED_EVERY);
        ask.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !answers.is_closed() {
            ask.tick().await;
            let asked = Instant::now();
            let answer = match &room {
                Some(room) => client.state(room, None).await.map(|state| (vec![state], false)),
                None => {
                    let page = client.list("", None, Some(SHOWN_AT_MOST)).await;
                    page.map(|page| (page.documents, page.next.is_some()))
                }
            };
            if let Ok((states, more)) = answer {
                let _ = answers.send(Answered { asked, states, more }).await;
            }
        }
    });
    receiver
}

/// Reads keys on a thread of its own, because reading blocks. The thread ends soon after its receiver is dropped.
fn read_keys() -> mpsc::Receiver<Event> {
    let (keys, receiver) = mpsc::channel(64);
    std::thread::spawn(move || {
        while !keys.is_closed() {
            match event::poll(DRAWN_EVERY) {
                Ok(false) => {}
                Ok(true) => match event::read() {
                    Ok(event) => drop(keys.blocking_send(event)),
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_its_words() {
        let event = |json: &str| {
            let common = r#""roomId":"minutes","seq":3,"fence":7,"holder":{"id":"a","name":"Anna"}"#;
            told(&serde_json::from_str(&format!("{{{common},{json}}}")).unwrap(), &People::default())
        };
        let cases = [
            (r#""event":"DocumentLocked","expires_in_ms":1"#, "minutes: locked by Anna (fence 7)"),
            (r#""event":"DocumentUnlocked","reason":"released""#, "minutes: released by Anna (fence 7)"),
            (r#""event":"DocumentUnlocked","reason":"expired""#, "minutes: expired, Anna held it (fence 7)"),
            (
                r#""event":"DocumentUnlocked","reason":"taken_over","by":"ben","note":"due\nnow""#,
                "minutes: taken from Anna by ben (fence 7): due now",
            ),
            (
                r#""event":"DocumentUnlocked","reason":"taken_over","force_released":true,"by":"ben","note":"lunch""#,
                "minutes: ben ended the lock of Anna (fence 7): lunch",
            ),
            (
                r#""event":"DocumentUnlocked","reason":"handed_over","by":"ben""#,
                "minutes: handed over by Anna to ben (fence 7)",
            ),
            (r#""event":"DocumentLeaving""#, "minutes: Anna is leaving"),
            (r#""event":"HandoverRequested","by":"ben""#, "minutes: ben asks Anna to hand it over"),
        ];
        for (json, expected) in cases {
            assert_eq!(event(json), expected);
        }
    }

    #[test]
    fn the_time_of_day_is_that_of_greenwich() {
        assert_eq!(time_of_day(1_700_000_000_123), "22:13:20Z");
    }
}
