//! What servers say to each other, as texts that a bus can carry: `H NODE`, `B NODE`, and `M NODE NUMBER PART PARTS BASE64`.
//! Pure. Any other text is ignored: every user of the database can send one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;

use super::{LONGEST_MESSAGE, NodeId};

/// A text, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The server has just joined.
    Hello { node: NodeId },
    /// It leaves.
    Bye { node: NodeId },
    /// A part of a message.
    Part(Part),
}

/// A part of a message. The parts of one come one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) node: NodeId,
    /// The message's number among those of its server.
    pub(super) number: u64,
    pub(super) part: usize,
    pub(super) parts: usize,
    pub(super) bytes: Bytes,
}

/// How many bytes of a text are not the message's: a letter, the server, three numbers, spaces.
const HEADER: usize = 80;

/// The most parts that a message has, on a bus with short texts.
const MOST_PARTS: usize = 4_096;

impl Frame {
    pub(super) fn node(&self) -> NodeId {
        match self {
            Self::Hello { node } | Self::Bye { node } => *node,
            Self::Part(part) => part.node,
        }
    }

    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Hello { node } => format!("H {node}"),
            Self::Bye { node } => format!("B {node}"),
            Self::Part(Part { node, number, part, parts, bytes }) => {
                format!("M {node} {number} {part} {parts} {}", STANDARD_NO_PAD.encode(bytes))
            }
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (kind, node) = (words.next()?, NodeId::parse(words.next()?)?);
        let frame = match kind {
            "H" => Self::Hello { node },
            "B" => Self::Bye { node },
            "M" => {
                let number = words.next()?.parse().ok()?;
                let (part, parts) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let bytes = Bytes::from(STANDARD_NO_PAD.decode(words.next()?).ok()?);
                let part = Part { node, number, part, parts, bytes };
                (part.part < part.parts && part.parts <= MOST_PARTS).then_some(Self::Part(part))?
            }
            _ => return None,
        };
        words.next().is_none().then_some(frame)
    }
}

/// Splits the messages of one server.
pub(super) struct Split {
    node: NodeId,
    number: u64,
    part_bytes: usize,
}

impl Split {
    /// For a bus whose texts have at most `longest` bytes.
    pub(super) fn new(node: NodeId, longest: usize) -> Self {
        let part_bytes = longest.saturating_sub(HEADER) / 4 * 3;
        Self { node, number: 0, part_bytes: part_bytes.max(LONGEST_MESSAGE / MOST_PARTS) }
    }

    /// The texts of the next message.
    pub(super) fn texts(&mut self, message: &Bytes) -> Vec<String> {
        self.number += 1;
        let parts = message.len().div_ceil(self.part_bytes).max(1);
        let text = |part: usize| {
            let from = part * self.part_bytes;
            let bytes = message.slice(from..message.len().min(from + self.part_bytes));
            Frame::Part(Part { node: self.node, number: self.number, part, parts, bytes }).to_text()
        };
        (0..parts).map(text).collect()
    }
}

/// Puts the messages of one server together again.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    /// The message and the part that have to come next; any message, before the first.
    next: Option<(u64, usize)>,
    collected: Vec<u8>,
}

/// Something before this part was missed, or it is not a part that our own servers send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Missed;

impl Joiner {
    /// Takes in a part. Returns the message, if this was its last one. What was sent before this server heard the first
    /// whole message is skipped.
    pub(super) fn take(&mut self, part: &Part) -> Result<Option<Bytes>, Missed> {
        let Some(expected) = self.next.or((part.part == 0).then_some((part.number, 0))) else {
            return Ok(None);
        };
        if expected != (part.number, part.part) || self.collected.len() + part.bytes.len() > LONGEST_MESSAGE {
            return Err(Missed);
        }
        self.collected.extend_from_slice(&part.bytes);
        if part.part + 1 < part.parts {
            self.next = Some((part.number, part.part + 1));
            return Ok(None);
        }
        self.next = Some((part.number.wrapping_add(1), 0));
        Ok(Some(std::mem::take(&mut self.collected).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0xABC);

    fn parts(split: &mut Split, message: &[u8]) -> Vec<Part> {
        let texts = split.texts(&Bytes::copy_from_slice(message));
        let parse = |text: &String| match Frame::parse(text) {
            Some(Frame::Part(part)) => part,
            other => panic!("{text}: {other:?}"),
        };
        texts.iter().map(parse).collect()
    }

    #[test]
    fn a_message_of_any_length_arrives_whole_and_its_texts_are_short() {
        let longest = 200;
        let (mut split, mut joiner) = (Split::new(NODE, longest), Joiner::default());
        for length in [0, 1, 89, 90, 91, 180, 5_000] {
            let message: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let parts = parts(&mut split, &message);
            assert_eq!(parts.len(), (length as usize).div_ceil(90).max(1), "{length}");
            let (last, others) = parts.split_last().unwrap();
            for part in others {
                assert!(Frame::Part(part.clone()).to_text().len() <= longest);
                assert_eq!(joiner.take(part), Ok(None));
            }
            assert_eq!(joiner.take(last), Ok(Some(message.into())));
        }
    }

    #[test]
    fn a_part_that_is_missing_is_noticed_with_the_next_one() {
        let mut split = Split::new(NODE, 200);
        let [one, two, three] = [1_u8, 2, 3].map(|byte| parts(&mut split, &[byte; 200]));
        let mut joiner = Joiner::default();
        assert_eq!(joiner.take(&one[2]), Ok(None), "the rest of what was sent before");
        for part in &two {
            joiner.take(part).unwrap();
        }
        assert_eq!(joiner.take(&three[1]), Err(Missed));
        let mut joiner = Joiner::default();
        joiner.take(&one[0]).unwrap();
        assert_eq!(joiner.take(&two[0]), Err(Missed));
        let mut joiner = Joiner::default();
        for part in &one {
            joiner.take(part).unwrap();
        }
        assert_eq!(joiner.take(&three[0]), Err(Missed));
    }

    #[test]
    fn what_no_server_sends_is_ignored() {
        let node = NODE.to_string();
        assert_eq!(Frame::parse(&format!("H {node}")), Some(Frame::Hello { node: NODE }));
        assert_eq!(Frame::parse(&format!("B {node}")), Some(Frame::Bye { node: NODE }));
        let texts = [
            String::new(),
            "H".into(),
            "H 12".into(),
            "H +000000000000abc".into(),
            format!("X {node}"),
            format!("H {node} more"),
            format!("M {node}"),
            format!("M {node} 1 1 1 AAAA"),
            format!("M {node} 1 0 99999 AAAA"),
            format!("M {node} 1 0 1 *"),
            format!("M {node} -1 0 1 AAAA"),
            format!("M {node} 1 0 1 AAAA more"),
        ];
        for text in texts {
            assert_eq!(Frame::parse(&text), None, "{text}");
        }
    }
}
