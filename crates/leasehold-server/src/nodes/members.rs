//! Which other servers are there, as far as one server knows: from their messages, and from looking at their leases. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::frame::{Frame, Joiner};
use super::{FromNode, NodeEvent, NodeId};

/// How many servers that are gone are remembered: a late text of one must not bring it back.
const REMEMBERED: usize = 1_000;

/// The other servers.
#[derive(Debug, Default)]
pub(super) struct Members {
    known: BTreeMap<NodeId, Member>,
    gone: VecDeque<NodeId>,
    looks: u64,
}

#[derive(Debug)]
struct Member {
    /// The last look that was begun before it was heard of.
    since: u64,
    joiner: Joiner,
}

/// The number of a look at the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Look(u64);

impl Members {
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.known.keys().copied()
    }

    /// Takes in what another server says; `None` if something that it said before was missed.
    pub(super) fn heard(&mut self, frame: Frame) -> Option<Vec<FromNode>> {
        let node = frame.node();
        let mut events = Vec::new();
        match frame {
            Frame::Hello { .. } => events.extend(self.join(node)),
            Frame::Bye { .. } => events.extend(self.lose(node)),
            Frame::Part(part) => {
                events.extend(self.join(node));
                // A server that is gone is not known.
                let Some(member) = self.known.get_mut(&node) else { return Some(events) };
                let message = member.joiner.take(&part).ok()?;
                events.extend(message.map(|message| FromNode { node, what: NodeEvent::Message(message) }));
            }
        }
        Some(events)
    }

    /// Begins a look at the leases: who is heard of from now on may be missing in what it finds.
    pub(super) fn begin_look(&mut self) -> Look {
        self.looks += 1;
        Look(self.looks)
    }

    /// Takes in which servers have a lease.
    pub(super) fn found(&mut self, look: Look, found: &BTreeSet<NodeId>) -> Vec<FromNode> {
        let is_missing = |node: &NodeId, member: &Member| !found.contains(node) && member.since < look.0;
        let missing: Vec<NodeId> = self
            .known
            .iter()
            .filter(|(node, member)| is_missing(node, member))
            .map(|(node, _)| *node)
            .collect();
        let mut events: Vec<_> = missing.into_iter().filter_map(|node| self.lose(node)).collect();
        events.extend(found.iter().filter_map(|node| self.join(*node)));
        events
    }

    /// Forgets all members, and reports each of them as gone. Members that join later are new ones.
    pub(super) fn forget_all(&mut self) -> Vec<FromNode> {
        let known = std::mem::take(&mut self.known);
        known.into_keys().map(|node| FromNode { node, what: NodeEvent::Gone }).collect()
    }

    /// Texts of this server are ignored from now on.
    pub(super) fn never_again(&mut self, node: Option<NodeId>) {
        self.gone.extend(node);
        while self.gone.len() > REMEMBERED {
            self.gone.pop_front();
        }
    }

    fn join(&mut self, node: NodeId) -> Option<FromNode> {
        if self.known.contains_key(&node) || self.gone.contains(&node) {
            return None;
        }
        self.known.insert(node, Member { since: self.looks, joiner: Joiner::default() });
        Some(FromNode { node, what: NodeEvent::Joined })
    }

    fn lose(&mut self, node: NodeId) -> Option<FromNode> {
        self.never_again(Some(node));
        self.known.remove(&node).map(|_| FromNode { node, what: NodeEvent::Gone })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::frame::Split;

    fn node(number: u64) -> NodeId {
        NodeId(number)
    }

    fn found(members: &mut Members, nodes: &[u64]) -> Vec<FromNode> {
        let look = members.begin_look();
        members.found(look, &nodes.iter().copied().map(node).collect())
    }

    fn event(number: u64, what: NodeEvent) -> FromNode {
        FromNode { node: node(number), what }
    }

    fn message(split: &mut Split, text: &'static str) -> Frame {
        Frame::parse(&split.texts(&text.into())[0]).unwrap()
    }

    #[test]
    fn a_server_joins_once_and_is_gone_once_however_it_is_noticed() {
        use NodeEvent::{Gone, Joined};
        let mut members = Members::default();
        assert_eq!(members.heard(Frame::Hello { node: node(1) }), Some(vec![event(1, Joined)]));
        assert_eq!(found(&mut members, &[1, 2]), [event(2, Joined)]);
        assert_eq!(members.heard(Frame::Hello { node: node(2) }), Some(vec![]));
        assert_eq!(found(&mut members, &[2]), [event(1, Gone)]);
        assert_eq!(members.heard(Frame::Bye { node: node(2) }), Some(vec![event(2, Gone)]));
        assert_eq!(found(&mut members, &[2]), [], "the look may be older than the farewell");
        assert!(members.is_empty());
    }

    #[test]
    fn a_message_joins_its_server_and_a_late_one_of_a_server_that_is_gone_does_not() {
        let (mut members, mut split) = (Members::default(), Split::new(node(1), 200));
        let heard = members.heard(message(&mut split, "a")).unwrap();
        assert_eq!(heard, [event(1, NodeEvent::Joined), event(1, NodeEvent::Message("a".into()))]);
        assert_eq!(found(&mut members, &[]), [event(1, NodeEvent::Gone)]);
        assert_eq!(members.heard(message(&mut split, "b")), Some(vec![]));
        assert!(members.is_empty());
    }

    #[test]
    fn a_look_that_was_begun_before_a_server_joined_does_not_lose_it() {
        let mut members = Members::default();
        let look = members.begin_look();
        members.heard(Frame::Hello { node: node(1) });
        assert_eq!(members.found(look, &BTreeSet::new()), []);
        assert_eq!(found(&mut members, &[]), [event(1, NodeEvent::Gone)]);
    }

    #[test]
    fn a_missing_message_is_noticed_and_after_a_new_start_all_are_known_anew() {
        let (mut members, mut split) = (Members::default(), Split::new(node(1), 200));
        members.heard(message(&mut split, "a")).unwrap();
        split.texts(&"lost".into());
        let next = message(&mut split, "c");
        assert_eq!(members.heard(next.clone()), None);
        assert_eq!(members.forget_all(), [event(1, NodeEvent::Gone)]);
        let heard = members.heard(next).unwrap();
        assert_eq!(heard, [event(1, NodeEvent::Joined), event(1, NodeEvent::Message("c".into()))]);
    }
}
