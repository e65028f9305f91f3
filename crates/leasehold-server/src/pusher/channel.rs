//! Names of channels, and what they say about a channel: who may subscribe to it, and which document it is about.

use std::fmt;
use std::sync::Arc;

use leasehold_core::RoomId;

/// The longest name, in bytes.
pub(crate) const LONGEST: usize = 200;

/// The prefix of the channels of documents, after those that say which kind of channel it is.
const DOCUMENT: &str = "document.";

/// The name of a channel. Clones are cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChannelName(Arc<str>);

/// Who may subscribe to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Everybody who can connect.
    Public,
    /// Sockets with a signature for it.
    Private,
    /// The same, and the subscribers know each other.
    Presence,
}

impl ChannelName {
    /// Parses a name, or says which rule it breaks.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-=@,.;".contains(c);
        if text.is_empty() || text.len() > LONGEST {
            return Err("the name of a channel has 1 to 200 characters");
        }
        if !text.chars().all(is_allowed) {
            return Err("the name of a channel consists of A-Z a-z 0-9 _ - = @ , . ;");
        }
        Ok(Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn kind(&self) -> Kind {
        self.split().0
    }

    /// Whether a new subscriber gets the current state, or the last event.
    pub(crate) fn is_cache(&self) -> bool {
        self.split().1
    }

    /// The document whose events the channel carries.
    pub(crate) fn document(&self) -> Option<RoomId> {
        RoomId::parse(self.split().2.strip_prefix(DOCUMENT)?).ok()
    }

    /// The presence channels of a document.
    pub(crate) fn of_lookers(room: &RoomId) -> [String; 2] {
        ["presence-", "presence-cache-"].map(|kind| format!("{kind}{DOCUMENT}{room}"))
    }

    /// The parts of the name: its kind, whether it is a cache, and the rest.
    fn split(&self) -> (Kind, bool, &str) {
        let name = self.as_str();
        let (kind, rest) = match (name.strip_prefix("private-"), name.strip_prefix("presence-")) {
            (Some(rest), _) => (Kind::Private, rest),
            (_, Some(rest)) => (Kind::Presence, rest),
            _ => (Kind::Public, name),
        };
        match rest.strip_prefix("cache-") {
            Some(rest) => (kind, true, rest),
            None => (kind, false, rest),
        }
    }
}

impl fmt::Debug for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(name: &str) -> ChannelName {
        ChannelName::parse(name).unwrap()
    }

    #[test]
    fn a_name_says_its_kind_and_its_document() {
        let cases = [
            ("document.42", Kind::Public, false, Some("42")),
            ("private-document.a.b", Kind::Private, false, Some("a.b")),
            ("presence-document.42", Kind::Presence, false, Some("42")),
            ("private-cache-document.42", Kind::Private, true, Some("42")),
            ("presence-cache-document.42", Kind::Presence, true, Some("42")),
            ("cache-news", Kind::Public, true, None),
            ("private-encrypted-document.42", Kind::Private, false, None),
            ("private-documents.42", Kind::Private, false, None),
            ("private-document.", Kind::Private, false, None),
            ("private-document..", Kind::Private, false, None),
            ("news", Kind::Public, false, None),
        ];
        for (name, kind, is_cache, document) in cases {
            let name = channel(name);
            assert_eq!((name.kind(), name.is_cache()), (kind, is_cache), "{name:?}");
            assert_eq!(name.document(), document.map(|room| RoomId::parse(room).unwrap()), "{name:?}");
        }
        for room in ["42", "a.b"] {
            let room = RoomId::parse(room).unwrap();
            let lookers = ChannelName::of_lookers(&room).map(|name| channel(&name));
            assert!(lookers.iter().all(|name| name.document().as_ref() == Some(&room)));
            assert!(lookers.iter().all(|name| name.kind() == Kind::Presence));
        }
    }

    #[test]
    fn a_name_is_short_and_of_few_characters() {
        assert!(ChannelName::parse(&"a".repeat(LONGEST)).is_ok());
        for bad in ["", "a b", "#server", "a/b", "é", "a\n", &"a".repeat(LONGEST + 1)] {
            assert!(ChannelName::parse(bad).is_err(), "{bad}");
        }
    }
}
