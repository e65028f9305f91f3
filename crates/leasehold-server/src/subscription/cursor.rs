//! How far a subscription has come: decides for each event whether the watcher knows it, is to see it, or has missed
//! something before it. Pure, without channels or time.

use std::collections::HashMap;

use leasehold_core::Position;
use leasehold_core::wire::documents::LockState;

use super::Topic;
use crate::caller::Grants;
use crate::hub::HubEvent;

/// What a watcher has been given.
#[derive(Debug)]
pub(super) enum Cursor {
    /// The `seq` of the last event of the one document.
    Document { seq: Option<u64> },
    /// The position of the last event of the feed; and, per document, the `seq` up to which the snapshot contains its
    /// events: later pages of a snapshot were read later than `position`.
    Visible { position: Option<Position>, contained: HashMap<String, u64> },
}

/// What to do with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Give it, under this id.
    Show(u64),
    /// The watcher knows it, or may not see it.
    Skip,
    /// An event before it is missing.
    Gap,
}

impl Cursor {
    pub(super) fn new(topic: &Topic, after: Option<u64>) -> Self {
        match topic {
            Topic::Document(_) => Self::Document { seq: after },
            // What it missed was found by its id, and begins right after it.
            Topic::Visible => Self::Visible { position: None, contained: HashMap::new() },
        }
    }

    /// After a snapshot of all documents whose first page contains everything up to `position`.
    pub(super) fn visible_after(position: Position) -> Self {
        Self::Visible { position: Some(position), contained: HashMap::new() }
    }

    /// The watcher has been given these states.
    pub(super) fn contains(&mut self, states: &[LockState]) {
        if let Self::Visible { contained, .. } = self {
            contained.extend(states.iter().map(|state| (state.room_id.clone(), state.seq)));
        }
    }

    /// Decides about the next event, and moves on.
    pub(super) fn judge(&mut self, event: &HubEvent, grants: &Grants) -> Verdict {
        match self {
            Self::Document { seq } => match *seq {
                Some(known) if event.seq <= known => Verdict::Skip,
                Some(known) if event.seq != known + 1 => Verdict::Gap,
                _ => {
                    *seq = Some(event.seq);
                    Verdict::Show(event.seq)
                }
            },
            Self::Visible { position, contained } => {
                let known = position.is_some_and(|position| event.position <= position)
                    || contained.get(event.room.as_str()).is_some_and(|seq| event.seq <= *seq);
                *position = (*position).max(Some(event.position));
                if known || grants.level(&event.room).is_none() {
                    return Verdict::Skip;
                }
                contained.remove(event.room.as_str());
                Verdict::Show(event.id)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::RoomId;
    use leasehold_core::wire::documents::{Access, DocumentEvent, EventName, Holder};

    use super::*;
    use crate::caller::Level;

    fn event(position: u64, room: &str, seq: u64) -> HubEvent {
        let event = DocumentEvent {
            event: EventName::DocumentLocked,
            room_id: room.to_owned(),
            seq,
            fence: 1,
            holder: Holder { id: "anna".into(), name: "Anna".into() },
            expires_in_ms: None,
            reason: None,
            by: None,
            by_name: None,
            force_released: false,
            note: None,
            on_silence: None,
            ends_in_ms: None,
        };
        HubEvent::new(Position(position), RoomId::parse(room).unwrap(), seq, event)
    }

    fn state(room: &str, seq: u64) -> LockState {
        LockState { room_id: room.to_owned(), locked: false, seq, may: Access::Read, lock: None }
    }

    #[test]
    fn of_one_document_every_number_comes_once_and_a_missing_one_is_a_gap() {
        let mut cursor = Cursor::Document { seq: Some(4) };
        let mut judge = |seq| cursor.judge(&event(90 + seq, "a", seq), &Grants::everything());
        assert_eq!([3, 4, 5, 5, 6].map(&mut judge), {
            use Verdict::{Show, Skip};
            [Skip, Skip, Show(5), Skip, Show(6)]
        });
        assert_eq!([8, 7].map(judge), [Verdict::Gap, Verdict::Show(7)], "a gap does not move the cursor");
    }

    #[test]
    fn an_id_says_nothing_about_events_in_between() {
        let ids = [(1, "a", 1), (2, "a", 2), (90, "a", 2), (3, "b", 1), (4, "a1", 1)];
        let ids = ids.map(|(position, room, seq)| event(position, room, seq).id);
        assert_eq!(ids[1], ids[2], "the position is not in it");
        let different: std::collections::BTreeSet<u64> = ids.into_iter().collect();
        assert!(different.len() == 4 && ids.iter().all(|id| *id < 1 << 53), "{ids:?}");
    }

    #[test]
    fn of_all_documents_only_the_visible_ones_are_shown_and_what_the_snapshot_contains_is_not() {
        let mut grants = Grants::default();
        grants.add("a*", Level::Read);
        let mut cursor = Cursor::visible_after(Position(10));
        // The page with a2 was read later: it contains the event at position 12.
        cursor.contains(&[state("a1", 3), state("a2", 7)]);
        let events = [
            (10, "a1", 3, Verdict::Skip),
            (11, "b", 1, Verdict::Skip),
            (12, "a2", 7, Verdict::Skip),
            (13, "a2", 8, Verdict::Show(event(13, "a2", 8).id)),
            (14, "a1", 4, Verdict::Show(event(14, "a1", 4).id)),
            (14, "a1", 4, Verdict::Skip),
        ];
        for (position, room, seq, verdict) in events {
            assert_eq!(
                cursor.judge(&event(position, room, seq), &grants),
                verdict,
                "{position} {room} {seq}"
            );
        }
    }
}
