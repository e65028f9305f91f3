//! What `watch` knows: who holds what, and what happened last. It takes news and the time, and draws nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use leasehold_core::time::whole_millis;
use leasehold_core::wire::documents::{DocumentEvent, EventName, LockState, LockView};

use super::{in_words, one_line};
use crate::people::{People, other_party};

/// How many events are kept for showing.
const EVENTS_KEPT: usize = 200;

/// A lock that is held, as far as is known.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) holder: String,
    pub(super) fence: u64,
    pub(super) note: String,
    seq: u64,
    held_since: Option<Instant>,
    expires_at: Instant,
    /// The longest time that it was seen to have left: what a full bar means.
    full: Duration,
    /// When it was last heard of.
    heard: Instant,
}

/// How the server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Connecting,
    Live,
    Lost(String),
}

/// Everything that is known.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) link: Link,
    /// Whether there are locks that were not asked for, because they are too many.
    pub(super) more: bool,
    locks: BTreeMap<String, Lock>,
    people: People,
    /// Newest first.
    events: VecDeque<(Instant, String)>,
}

impl Board {
    pub(super) fn new() -> Self {
        Self {
            link: Link::Connecting,
            more: false,
            locks: BTreeMap::new(),
            people: People::default(),
            events: VecDeque::new(),
        }
    }

    /// All locks at once, as an answer to a question that was sent at `asked`. What was heard since then is newer.
    pub(super) fn handle_all(&mut self, states: &[LockState], asked: Instant, now: Instant) {
        states.iter().for_each(|state| self.people.learn_state(state));
        let named = |room: &String| states.iter().any(|state| state.room_id == *room);
        self.locks.retain(|room, lock| lock.heard >= asked || named(room));
        states.iter().for_each(|state| self.handle_state(state, now));
    }

    /// One document as it is.
    pub(super) fn handle_state(&mut self, state: &LockState, now: Instant) {
        self.people.learn_state(state);
        let known = self.locks.get(&state.room_id);
        if known.is_some_and(|known| known.seq > state.seq) {
            return;
        }
        match &state.lock {
            None => drop(self.locks.remove(&state.room_id)),
            Some(view) => {
                let lock = Lock::seen(view, state.seq, known, &self.people, now);
                self.locks.insert(state.room_id.clone(), lock);
            }
        }
    }

    /// Something that happened.
    pub(super) fn handle_event(&mut self, event: &DocumentEvent, now: Instant) {
        self.people.learn_event(event);
        let note = event.note.as_deref().filter(|note| !note.is_empty());
        let note = note.map(|note| format!(": {}", one_line(note))).unwrap_or_default();
        // Fences are in the table and in what scripts read: a line of the view has little room.
        self.events.push_front((now, format!("{}{note}", in_words(event, &self.people))));
        self.events.truncate(EVENTS_KEPT);
        match event.event {
            EventName::DocumentUnlocked => drop(self.locks.remove(&event.room_id)),
            EventName::DocumentLocked => {
                self.locks.insert(event.room_id.clone(), Lock::granted(event, &self.people, now));
            }
            _ => {
                if let Some(lock) = self.locks.get_mut(&event.room_id) {
                    lock.handle_event(event, &self.people, now);
                }
            }
        }
    }

    /// The locks of documents whose name or holder has `filter` in it, by name.
    pub(super) fn locks<'a>(&'a self, filter: &'a str) -> impl Iterator<Item = (&'a str, &'a Lock)> {
        let matches = move |room: &str, lock: &Lock| {
            let (filter, holder) = (filter.to_lowercase(), lock.holder.to_lowercase());
            room.to_lowercase().contains(&filter) || holder.contains(&filter)
        };
        let all = self.locks.iter().map(|(room, lock)| (room.as_str(), lock));
        all.filter(move |(room, lock)| matches(room, lock))
    }

    /// What happened, newest first, and how long ago.
    pub(super) fn events(&self, now: Instant) -> impl Iterator<Item = (Duration, &str)> {
        self.events.iter().map(move |(at, text)| (now.duration_since(*at), text.as_str()))
    }
}

impl Lock {
    fn seen(view: &LockView, seq: u64, known: Option<&Self>, people: &People, now: Instant) -> Self {
        let left = Duration::from_millis(view.expires_in_ms);
        let same = known.filter(|known| known.fence == view.fence);
        Self {
            holder: people.name(&view.holder),
            fence: view.fence,
            note: crate::ls::note(view, people),
            seq,
            held_since: now.checked_sub(Duration::from_millis(view.held_for_ms)),
            expires_at: now + left,
            full: same.map_or(left, |known| known.full.max(left)),
            heard: now,
        }
    }

    fn granted(event: &DocumentEvent, people: &People, now: Instant) -> Self {
        let left = Duration::from_millis(event.expires_in_ms.unwrap_or_default());
        Self {
            holder: people.name(&event.holder),
            fence: event.fence,
            note: String::new(),
            seq: event.seq,
            held_since: Some(now),
            expires_at: now + left,
            full: left,
            heard: now,
        }
    }

    fn handle_event(&mut self, event: &DocumentEvent, people: &People, now: Instant) {
        self.seq = self.seq.max(event.seq);
        self.heard = now;
        if let Some(left) = event.expires_in_ms {
            self.expires_at = now + Duration::from_millis(left);
        }
        self.note = match (event.event, other_party(event)) {
            (EventName::DocumentLeaving, _) => "leaving".to_owned(),
            (EventName::HandoverRequested | EventName::HandoverTold, Some(by)) => {
                format!("requested by {}", people.name(&by))
            }
            _ => String::new(),
        };
    }

    /// How long it still lasts unless it is renewed.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.expires_at.saturating_duration_since(now)
    }

    /// The same as a part of the whole, 0 to 1.
    pub(super) fn share_left(&self, now: Instant) -> f64 {
        if self.full.is_zero() {
            return 0.0;
        }
        (self.left(now).as_secs_f64() / self.full.as_secs_f64()).clamp(0.0, 1.0)
    }

    /// How long it has been held, as people say it.
    pub(super) fn held_for(&self, now: Instant) -> String {
        let held = self.held_since.map(|since| now.saturating_duration_since(since));
        held.map(|held| crate::out::duration(whole_millis(held))).unwrap_or_default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use leasehold_core::wire::documents::Access;

    use super::*;

    pub(in crate::watch) fn state(room: &str, seq: u64, holder: Option<&str>, left: u64) -> LockState {
        let lock = holder.map(|name| {
            serde_json::from_value(serde_json::json!({
                "holder": { "id": name, "name": name }, "fence": seq, "held_for_ms": 5_000,
                "expires_at": "2026-01-01T00:00:00Z", "expires_in_ms": left, "same_user": false, "yours": false,
            }))
            .unwrap()
        });
        LockState { room_id: room.into(), locked: lock.is_some(), seq, may: Access::Force, lock }
    }

    pub(in crate::watch) fn event(name: &str, room: &str, seq: u64, holder: &str) -> DocumentEvent {
        let object = serde_json::json!({
            "event": name, "roomId": room, "seq": seq, "fence": seq, "expires_in_ms": 30_000,
            "holder": { "id": holder, "name": holder },
        });
        serde_json::from_value(object).unwrap()
    }

    fn rooms(board: &Board) -> Vec<&str> {
        board.locks("").map(|(room, _)| room).collect()
    }

    #[test]
    fn events_and_answers_agree_on_who_holds_what() {
        let (mut board, start) = (Board::new(), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        board.handle_all(&[state("a", 1, Some("anna"), 30_000)], start, start);
        board.handle_event(&event("DocumentLocked", "b", 1, "ben"), later(2));
        assert_eq!(rooms(&board), ["a", "b"]);
        // Asked before `b` was locked, answered after it.
        board.handle_all(&[state("a", 1, Some("anna"), 30_000)], later(1), later(3));
        assert_eq!(rooms(&board), ["a", "b"]);
        board.handle_all(&[state("b", 1, Some("ben"), 29_000)], later(4), later(5));
        assert_eq!(rooms(&board), ["b"], "an answer that is newer than everything heard is the truth");
        board.handle_event(&event("DocumentUnlocked", "b", 2, "ben"), later(6));
        assert!(rooms(&board).is_empty());
        assert_eq!(board.events(later(6)).count(), 2);
    }

    #[test]
    fn an_older_answer_does_not_undo_a_newer_event() {
        let (mut board, now) = (Board::new(), Instant::now());
        board.handle_event(&event("DocumentLocked", "a", 7, "anna"), now);
        board.handle_state(&state("a", 6, Some("ben"), 10), now);
        assert_eq!(board.locks("").next().unwrap().1.holder, "anna");
    }

    #[test]
    fn a_bar_is_full_after_a_renewal_and_runs_down() {
        let (mut board, start) = (Board::new(), Instant::now());
        board.handle_state(&state("a", 1, Some("anna"), 20_000), start);
        board.handle_state(&state("a", 1, Some("anna"), 30_000), start);
        let lock = board.locks("").next().unwrap().1;
        assert!((lock.share_left(start + Duration::from_secs(15)) - 0.5).abs() < 0.01);
        assert!(lock.share_left(start + Duration::from_secs(60)) < f64::EPSILON);
        assert_eq!(lock.held_for(start), "5.0s");
    }

    #[test]
    fn a_filter_looks_at_names_and_holders() {
        let (mut board, now) = (Board::new(), Instant::now());
        board.handle_state(&state("minutes", 1, Some("Anna"), 1), now);
        board.handle_state(&state("plan", 1, Some("Ben"), 1), now);
        let found = |filter| board.locks(filter).map(|(room, _)| room).collect::<Vec<_>>();
        assert_eq!((found("MIN"), found("ben"), found("x")), (vec!["minutes"], vec!["plan"], vec![]));
    }

    #[test]
    fn only_so_many_events_are_kept() {
        let (mut board, now) = (Board::new(), Instant::now());
        for seq in 0..300 {
            board.handle_event(&event("DocumentUnlocked", "a", seq, "anna"), now);
        }
        assert_eq!(board.events(now).count(), EVENTS_KEPT);
    }
}
