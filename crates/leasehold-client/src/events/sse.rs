//! Server-sent events as bytes: what comes in may be cut anywhere, what goes out is whole messages.
//!
//! It follows the HTML standard's rules for an event stream, and is bounded: a message has at most
//! [`Parser::LONGEST`] bytes.

use std::collections::VecDeque;

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Its name; empty when it has none.
    pub(super) event: String,
    /// What it says.
    pub(super) data: String,
    /// Its number, if it came with one.
    pub(super) id: Option<String>,
}

/// A message or a line is longer than any should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The line that is coming in.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return: a line feed after it belongs to it.
    after_cr: bool,
    /// Whether the first line is over; before it, a byte order mark may stand.
    begun: bool,
    message: Message,
    has_data: bool,
    ready: VecDeque<Message>,
}

impl Parser {
    /// The longest line, and the longest data of a message, in bytes.
    pub(super) const LONGEST: usize = 8 * 1024 * 1024;

    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        for &byte in bytes {
            match byte {
                b'\n' if std::mem::take(&mut self.after_cr) => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    self.end_line()?;
                }
                _ => {
                    self.after_cr = false;
                    if self.line.len() >= Self::LONGEST {
                        return Err(TooLong);
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(())
    }

    /// The next whole message.
    pub(super) fn next(&mut self) -> Option<Message> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) -> Result<(), TooLong> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let first = !std::mem::replace(&mut self.begun, true);
        let line = if first { line.strip_prefix('\u{FEFF}').unwrap_or(&line) } else { &line };
        if line.is_empty() {
            self.end_message();
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        self.field(field, value.strip_prefix(' ').unwrap_or(value))
    }

    fn field(&mut self, field: &str, value: &str) -> Result<(), TooLong> {
        match field {
            "event" => value.clone_into(&mut self.message.event),
            "id" if !value.contains('\0') => self.message.id = Some(value.to_owned()),
            "data" => {
                if self.message.data.len() + value.len() > Self::LONGEST {
                    return Err(TooLong);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
            }
            // A comment has an empty name; `retry` and whatever else there may be is not for us.
            _ => {}
        }
        Ok(())
    }

    fn end_message(&mut self) {
        let message = std::mem::take(&mut self.message);
        if std::mem::take(&mut self.has_data) {
            self.ready.push_back(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(event: &str, data: &str, id: Option<&str>) -> Message {
        Message { event: event.into(), data: data.into(), id: id.map(Into::into) }
    }

    fn parse(pieces: &[&[u8]]) -> Vec<Message> {
        let mut parser = Parser::default();
        pieces.iter().for_each(|piece| parser.push(piece).unwrap());
        std::iter::from_fn(|| parser.next()).collect()
    }

    #[test]
    fn a_stream_is_read_as_the_standard_says() {
        let cases: [(&str, Vec<Message>); 12] = [
            ("data: a\n\n", vec![message("", "a", None)]),
            ("event: x\nid: 7\ndata: a\n\n", vec![message("x", "a", Some("7"))]),
            ("data:a\ndata: b\ndata\n\n", vec![message("", "a\nb\n", None)]),
            ("data:  two spaces\n\n", vec![message("", " two spaces", None)]),
            (": a comment\n\n:\n\n", vec![]),
            ("event: x\n\ndata: a\n\n", vec![message("", "a", None)]),
            ("data: a\r\ndata: b\r\n\r\n", vec![message("", "a\nb", None)]),
            ("data: a\rdata: b\r\r", vec![message("", "a\nb", None)]),
            ("\u{FEFF}data: a\n\n\u{FEFF}data: b\n\n", vec![message("", "a", None)]),
            ("id: a\0b\ndata: c\n\n", vec![message("", "c", None)]),
            ("data: whole\n\ndata: not yet", vec![message("", "whole", None)]),
            ("retry: 10\nunknown: x\nno colon\ndata: ü\n\n", vec![message("", "ü", None)]),
        ];
        for (stream, expected) in cases {
            assert_eq!(parse(&[stream.as_bytes()]), expected, "{stream:?}");
        }
    }

    #[test]
    fn it_does_not_matter_where_the_stream_is_cut() {
        let stream = "\u{FEFF}: hi\r\nevent: é\r\nid: 1\r\ndata: ü\r\ndata: 二\r\n\r\nevent: b\rdata: c\r\rdata: d\n\n";
        let bytes = stream.as_bytes();
        let whole = parse(&[bytes]);
        assert_eq!(whole.len(), 3);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(parse(&pieces), whole, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn what_never_ends_is_refused() {
        let chunk = vec![b'x'; 1024 * 1024];
        let mut one_line = Parser::default();
        assert!((0..9).map(|_| one_line.push(&chunk)).any(|pushed| pushed == Err(TooLong)));
        let mut many_lines = Parser::default();
        let line = [b"data: ".as_slice(), &chunk, b"\n"].concat();
        assert!((0..9).map(|_| many_lines.push(&line)).any(|pushed| pushed == Err(TooLong)));
    }
}
