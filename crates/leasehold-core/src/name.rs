//! The names and numbers that come in from outside, each parsed once at the edge into a type of its own.
//!
//! Every limit has its name here. A value of one of these types is valid: nothing further in checks it again.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq;

/// What was wrong with a piece of input, which rule it broke, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value}: {rule}; {fix}")]
pub struct Invalid {
    /// What kind of thing it was meant to be.
    pub what: &'static str,
    /// The offending value, quoted, escaped and cut to a readable length; never a secret.
    pub value: String,
    /// The rule that it broke.
    pub rule: String,
    /// What to do instead.
    pub fix: String,
}

impl Invalid {
    /// An error about `value`, which is quoted, escaped and cut short here.
    pub fn new(what: &'static str, value: &str, rule: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, value: quoted(value), rule: rule.into(), fix: fix.into() }
    }
}

/// How much of an offending value an error repeats.
const QUOTED_CHARS: usize = 60;

fn quoted(value: &str) -> String {
    let mut shown = String::from('"');
    for c in value.chars().take(QUOTED_CHARS) {
        match c {
            '"' | '\\' => shown.extend(c.escape_default()),
            _ if c.is_control() || is_invisible(c) => shown.extend(c.escape_default()),
            _ => shown.push(c),
        }
    }
    shown.push_str(if value.chars().nth(QUOTED_CHARS).is_some() { "…\"" } else { "\"" });
    shown
}

/// What is leased: `door/name`, such as `doc/minutes`, `job/analyses/42` or `run/nightly-report`.
///
/// The door keeps documents, jobs and programs from ever meeting on the same key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The longest key, in bytes, door included.
    pub const MAX_BYTES: usize = 512;
    /// The longest door, in bytes.
    pub const MAX_DOOR_BYTES: usize = 16;

    /// The one key of a project folder. It is not parsed: a page would load the parser for nothing.
    pub fn of_project_folder() -> Self {
        Self("project/folder".into())
    }

    /// Reads a key, or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = |rule: String, fix: String| Err(Invalid::new("key", text, rule, fix));
        if text.len() > Self::MAX_BYTES {
            let rule = format!("a key has at most {} bytes, this one has {}", Self::MAX_BYTES, text.len());
            return refuse(rule, "shorten it, or use a hash of it".into());
        }
        let Some((door, name)) = text.split_once('/') else {
            let speaks_for_itself =
                text.len() <= QUOTED_CHARS && !text.is_empty() && unprintable(text).is_none();
            let suggestion = if speaks_for_itself { text } else { "nightly" };
            return refuse(
                "a key is `door/name`, this one has no door".into(),
                format!("write `run/{suggestion}`"),
            );
        };
        if !is_door(door) {
            let rule = format!("the door is 1 to {} of a-z, 0-9 and -, a letter first", Self::MAX_DOOR_BYTES);
            return refuse(rule, "begin the key with doc/, job/, run/ or a door of your own".into());
        }
        if name.is_empty() {
            return refuse("the name after the door is empty".into(), format!("write `{door}/something`"));
        }
        if let Some(rule) = unprintable(name) {
            return refuse(rule.into(), "use printable characters, with no space at either end".into());
        }
        Ok(Self(text.into()))
    }

    /// The whole key, `door/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the first slash.
    pub fn door(&self) -> &str {
        self.0.split_once('/').map_or("", |(door, _)| door)
    }

    /// The part after the first slash.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

fn is_door(door: &str) -> bool {
    door.len() <= Key::MAX_DOOR_BYTES
        && door.starts_with(|c: char| c.is_ascii_lowercase())
        && door.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Which rule of printable text `text` breaks: what is shown to people must not be able to fool them.
fn unprintable(text: &str) -> Option<&'static str> {
    if text.chars().any(|c| c.is_control() || is_invisible(c)) {
        Some("control and invisible characters are not allowed")
    } else if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        Some("it must not begin or end with white space")
    } else {
        None
    }
}

/// Characters that reorder or hide the text around them. The joiners U+200C and U+200D are not among them: Persian names
/// and emoji need them.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{061C}' | '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

/// The name of a document at the documents door: what the name of a Pusher channel can carry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoomId(Key);

impl RoomId {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// The prefix of its keys.
    pub const DOOR: &'static str = "doc/";

    /// What a name looks like, as a regular expression for those who describe it to others; its length comes on top.
    pub const PATTERN: &'static str = r"^(\.{0,2}[A-Za-z0-9_=@,;-]|\.{3})[A-Za-z0-9_=@,.;-]*$";

    /// Whether names can begin like this.
    pub fn is_prefix(text: &str) -> bool {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-=@,.;".contains(c);
        text.len() <= Self::MAX_BYTES && text.chars().all(allowed)
    }

    /// Reads the name of a document, or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() || !Self::is_prefix(text) {
            let rule = format!("a roomId is 1 to {} of A-Z a-z 0-9 _ - = @ , . ;", Self::MAX_BYTES);
            return Err(Invalid::new("roomId", text, rule, "leave out or replace the other characters"));
        }
        if matches!(text, "." | "..") {
            let rule = "in an address, `.` and `..` lead elsewhere";
            return Err(Invalid::new("roomId", text, rule, "choose another name"));
        }
        Key::parse(&format!("{}{text}", Self::DOOR)).map(Self)
    }

    /// The document of a key of this door; `None` for other keys.
    pub fn of(key: &Key) -> Option<Self> {
        key.as_str().strip_prefix(Self::DOOR).and_then(|name| Self::parse(name).ok())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        self.0.name()
    }

    /// The key of the document's lease.
    pub fn key(&self) -> &Key {
        &self.0
    }
}

/// The name of a job at the jobs door: a collection, and an id in it. Both appear in URLs as they are, so no caller has
/// to escape anything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Key);

impl JobId {
    /// The longest collection, in bytes.
    pub const MAX_COLLECTION_BYTES: usize = 128;

    /// The longest id in a collection, in bytes.
    pub const MAX_ID_BYTES: usize = 256;

    /// The prefix of its keys.
    pub const DOOR: &'static str = "job/";

    /// What an id looks like, as a regular expression for those who describe it to others; its length comes on top.
    pub const PATTERN: &'static str = r"^(\.{0,2}[A-Za-z0-9_=@,;:~+-]|\.{3})[A-Za-z0-9_=@,.;:~+-]*$";

    /// The same for a collection.
    pub const COLLECTION_PATTERN: &'static str = concat!(
        r"^(\.{0,2}[A-Za-z0-9_=@,;:~+-]|\.{3})[A-Za-z0-9_=@,.;:~+-]*",
        r"((/(\.{0,2}[A-Za-z0-9_=@,;:~+-]|\.{3})[A-Za-z0-9_=@,.;:~+-]*){2})*$",
    );

    /// Reads a collection and an id, or says which rule they break. A collection is a name, or one below a document of
    /// another collection: `users/u1/analyses`.
    pub fn new(collection: &str, id: &str) -> Result<Self, Invalid> {
        for part in collection.split('/') {
            job_part("collection", part, Self::MAX_COLLECTION_BYTES)?;
        }
        if collection.len() > Self::MAX_COLLECTION_BYTES {
            let rule = format!("a collection has at most {} bytes", Self::MAX_COLLECTION_BYTES);
            return Err(Invalid::new("collection", collection, rule, "choose shorter names"));
        }
        if collection.split('/').count().is_multiple_of(2) {
            let rule = "a collection is a name, or a name below a document of another collection";
            return Err(Invalid::new(
                "collection",
                collection,
                rule,
                "write it like `analyses` or `users/u1/analyses`",
            ));
        }
        job_part("job id", id, Self::MAX_ID_BYTES)?;
        Key::parse(&format!("{}{collection}/{id}", Self::DOOR)).map(Self)
    }

    /// Reads `collection/id`, or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let Some((collection, id)) = text.rsplit_once('/') else {
            let rule = "a job is `collection/id`, this one has no collection";
            return Err(Invalid::new("job", text, rule, "write it like `analyses/42`"));
        };
        Self::new(collection, id)
    }

    /// The job of a key, if a URL can name it.
    pub fn of(key: &Key) -> Option<Self> {
        key.as_str().strip_prefix(Self::DOOR).and_then(|name| Self::parse(name).ok())
    }

    /// Whether names of jobs can begin like this: with part of a collection, or with a collection, a slash and part of an
    /// id.
    pub fn is_prefix(text: &str) -> bool {
        let (path, last) = text.rsplit_once('/').map_or((None, text), |(path, last)| (Some(path), last));
        let mut whole = path.into_iter().flat_map(|path| path.split('/'));
        let fits = path.unwrap_or_default().len() <= Self::MAX_COLLECTION_BYTES
            && last.len() <= Self::MAX_ID_BYTES
            && last.chars().all(is_job_char);
        fits && whole.all(|part| job_part("collection", part, Self::MAX_COLLECTION_BYTES).is_ok())
    }

    /// The name, `collection/id`.
    pub fn as_str(&self) -> &str {
        self.0.name()
    }

    /// The collection, before the last slash.
    pub fn collection(&self) -> &str {
        self.as_str().rsplit_once('/').map_or("", |(collection, _)| collection)
    }

    /// The id, after it.
    pub fn id(&self) -> &str {
        self.as_str().rsplit_once('/').map_or("", |(_, id)| id)
    }

    /// The key of the job's lease.
    pub fn key(&self) -> &Key {
        &self.0
    }
}

fn is_job_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-=@,.;:~+".contains(c)
}

fn job_part(what: &'static str, text: &str, most: usize) -> Result<(), Invalid> {
    if text.is_empty() || text.len() > most || !text.chars().all(is_job_char) {
        let rule = format!("a {what} is 1 to {most} of A-Z a-z 0-9 _ - = @ , . ; : ~ +");
        return Err(Invalid::new(what, text, rule, "leave out or replace the other characters"));
    }
    if matches!(text, "." | "..") {
        let rule = "in an address, `.` and `..` lead elsewhere";
        return Err(Invalid::new(what, text, rule, "choose another name"));
    }
    Ok(())
}

/// The name of a program's lease at the leases door: parts with slashes between them, such as `nightly-report` or
/// `deploy/eu`. In a URL it is one segment, so a slash in it is written `%2F`; nothing else has to be escaped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseName(Key);

impl LeaseName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// The prefix of its keys.
    pub const DOOR: &'static str = "run/";

    /// What a name looks like, as a regular expression for those who describe it to others; its length comes on top.
    pub const PATTERN: &'static str = r"^(\.{0,2}[A-Za-z0-9_=@,;:~+-]|\.{3})[A-Za-z0-9_=@,.;:~+-]*(/(\.{0,2}[A-Za-z0-9_=@,;:~+-]|\.{3})[A-Za-z0-9_=@,.;:~+-]*)*$";

    /// Reads a name, or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let is_part = |part: &str| !part.is_empty() && part.chars().all(is_job_char);
        if text.len() > Self::MAX_BYTES || !text.split('/').all(is_part) {
            let rule = format!(
                "the name of a lease is 1 to {} of A-Z a-z 0-9 _ - = @ , . ; : ~ +, with single slashes in between",
                Self::MAX_BYTES
            );
            return Err(Invalid::new("name", text, rule, "leave out or replace the other characters"));
        }
        if text.split('/').any(|part| matches!(part, "." | "..")) {
            let rule = "in an address, `.` and `..` lead elsewhere";
            return Err(Invalid::new("name", text, rule, "choose another name"));
        }
        Key::parse(&format!("{}{text}", Self::DOOR)).map(Self)
    }

    /// The name of a key of this door, if a URL can carry it.
    pub fn of(key: &Key) -> Option<Self> {
        key.as_str().strip_prefix(Self::DOOR).and_then(|name| Self::parse(name).ok())
    }

    /// Whether names can begin like this.
    pub fn is_prefix(text: &str) -> bool {
        // A name that begins like this goes on with some letter.
        text.len() < Self::MAX_BYTES && Self::parse(&format!("{text}x")).is_ok()
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        self.0.name()
    }

    /// The key of the lease.
    pub fn key(&self) -> &Key {
        &self.0
    }
}

/// What a worker calls itself, as shown to people.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName(Box<str>);

impl WorkerName {
    /// The longest name, in characters: people read it.
    pub const MAX_CHARS: usize = 64;

    /// Reads a worker's name, or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let chars = text.chars().count();
        if !(1..=Self::MAX_CHARS).contains(&chars) {
            let rule = format!("1 to {} characters, this one has {chars}", Self::MAX_CHARS);
            return Err(Invalid::new("worker", text, rule, "say which worker it is, such as `worker-7`"));
        }
        printable("worker", text)?;
        Ok(Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who holds a lease, as shown to people.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The longest owner name, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Reads an owner's name, or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        short_text("owner", text, Self::MAX_BYTES)?;
        if text.is_empty() {
            return Err(Invalid::new(
                "owner",
                text,
                "an owner has a name",
                "say who it is, such as `worker-7`",
            ));
        }
        Ok(Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which tab of its owner holds a lease, for callers that keep no lease id. A caller that names no tab has none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TabId(Arc<str>);

impl TabId {
    /// The longest tab id, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Written where there is no tab. It is not a tab id.
    pub const NONE: &str = "-";

    /// Reads a tab id, or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let is_visible = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        if is_visible && text.len() <= Self::MAX_BYTES && text != Self::NONE {
            return Ok(Self(text.into()));
        }
        let rule = format!("a tab id is 1 to {} visible ASCII characters", Self::MAX_BYTES);
        Err(Invalid::new("tab id", text, rule, "send a random id that the tab keeps, or leave it out"))
    }

    /// Reads a tab id, or [`TabId::NONE`], which is none.
    pub fn parse_optional(text: &str) -> Result<Option<Self>, Invalid> {
        if text == Self::NONE { Ok(None) } else { Self::parse(text).map(Some) }
    }

    /// The tab id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a lease was taken over or ended by force, in the caller's words; may be empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Reason(Box<str>);

impl Reason {
    /// The longest reason, in characters: people write it.
    pub const MAX_CHARS: usize = 512;

    /// What a reason that is not empty looks like, as a regular expression for those who describe it to others.
    pub const PATTERN: &str = concat!(
        r"^[^\s\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]",
        r"([^\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]*",
        r"[^\s\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb])?$"
    );

    /// Reads a reason, or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let chars = text.chars().count();
        if chars > Self::MAX_CHARS {
            let rule = format!("at most {} characters, this one has {chars}", Self::MAX_CHARS);
            return Err(Invalid::new("reason", text, rule, "shorten it"));
        }
        printable("reason", text)?;
        Ok(Self(text.into()))
    }

    /// The words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn short_text(what: &'static str, text: &str, max_bytes: usize) -> Result<(), Invalid> {
    if text.len() > max_bytes {
        let rule = format!("at most {max_bytes} bytes, this one has {}", text.len());
        return Err(Invalid::new(what, text, rule, "shorten it"));
    }
    printable(what, text)
}

fn printable(what: &'static str, text: &str) -> Result<(), Invalid> {
    match unprintable(text) {
        Some(rule) => Err(Invalid::new(what, text, rule, "use printable characters only")),
        None => Ok(()),
    }
}

macro_rules! shown_as_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.as_str())
            }
        }
        impl std::str::FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::parse(text)
            }
        }
    )*};
}

shown_as_text!(Key, RoomId, JobId, LeaseName, WorkerName, Owner, TabId, Reason);

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Owner {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The secret that proves a lease is one's own: a UUID v4, fixed by the caller before its first attempt.
///
/// It has no `Display` and no serde on purpose, and its `Debug` hides it: to hand it to its owner, [`LeaseId::reveal`] it.
/// Comparing two takes the same time wherever they differ, so that a caller cannot guess one piece by piece.
// Read and written by hand: a page loads this code, and the library's is four times as large.
#[derive(Clone, Copy)]
pub struct LeaseId([u8; 16]);

impl PartialEq for LeaseId {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl Eq for LeaseId {}

/// An order for maps and lists of them; unlike equality, it does not take the same time for all.
impl Ord for LeaseId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for LeaseId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::hash::Hash for LeaseId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl LeaseId {
    /// A lease id from 16 random bytes, which the caller draws: there is no randomness here.
    pub const fn from_random(mut bytes: [u8; 16]) -> Self {
        // The version and the variant of a UUID v4.
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        Self(bytes)
    }

    /// What a lease id looks like, as a regular expression for those who describe it to others.
    pub const PATTERN: &str =
        "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$";

    /// Reads a UUID v4, as [`LeaseId::reveal`] writes it. The error does not repeat the text: it may be somebody's
    /// secret.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        digits_of(text).and_then(|digits| Self::from_bytes(digits.to_be_bytes())).ok_or_else(|| Invalid {
            what: "lease id",
            value: "(hidden)".into(),
            rule: "a lease id is a UUID of version 4".into(),
            fix: "make one with your language's random UUID function, and keep it secret".into(),
        })
    }

    /// The 16 bytes, for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id that was kept as these bytes, if they are those of a UUID v4.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        let id = Self::from_random(bytes);
        (id.0 == bytes).then_some(id)
    }

    /// The secret in the clear. Only for the holder itself and for the store: never for a list, an event or a log.
    pub fn reveal(&self) -> String {
        let mut text = String::with_capacity(36);
        for (at, byte) in self.0.into_iter().enumerate() {
            if HYPHENS_BEFORE.contains(&at) {
                text.push('-');
            }
            let digit = |number| char::from_digit(u32::from(number), 16).unwrap_or('0');
            text.extend([digit(byte / 16), digit(byte % 16)]);
        }
        text
    }
}

/// The bytes of a UUID that have a hyphen before them.
const HYPHENS_BEFORE: [usize; 4] = [4, 6, 8, 10];

/// The digits of a UUID with its hyphens, whatever it is.
fn digits_of(text: &str) -> Option<u128> {
    let mut digits = 0;
    for (at, byte) in text.bytes().enumerate() {
        match (at, byte) {
            (8 | 13 | 18 | 23, b'-') => {}
            (8 | 13 | 18 | 23, _) => return None,
            _ => digits = (digits << 4) | u128::from(char::from(byte).to_digit(16)?),
        }
    }
    (text.len() == 36).then_some(digits)
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseId(hidden)")
    }
}

/// A number that grows with every grant of a key, for whatever the lease protects to compare: an older one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The smallest fence.
    pub const MIN: Self = Self(1);
    /// The largest fence: the largest whole number that JavaScript and JSON carry exactly, 2^53 - 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// This fence, if it lies between 1 and [`Fence::MAX`].
    pub fn new(number: u64) -> Result<Self, Invalid> {
        if (Self::MIN.0..=Self::MAX.0).contains(&number) {
            return Ok(Self(number));
        }
        let rule = format!("a fence lies between 1 and {}", Self::MAX.0);
        Err(Invalid::new(
            "fence",
            &number.to_string(),
            rule,
            "pass on the fence that came with the grant, unchanged",
        ))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What else is known about a holder (display name, reason …), for showing: no rule looks at it. Empty most of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
// One pointer in every one of a million leases; and to clone it clones nothing.
// A list, sorted by name: a page loads this code, and that of a map is 5 KB of it.
pub struct Meta(Option<Arc<Vec<(String, String)>>>);

impl Meta {
    /// The most that all names and values together may have, in bytes.
    pub const MAX_BYTES: usize = 4 * 1024;

    /// The name under which people find what a holder is called.
    pub const NAME: &str = "name";

    /// The longest label, in bytes.
    pub const LABEL_MAX_BYTES: usize = 256;

    /// Takes these pairs, if they fit.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, Invalid> {
        let pairs = by_name(pairs);
        let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > Self::MAX_BYTES {
            let rule = format!("names and values have at most {} bytes together", Self::MAX_BYTES);
            let value = format!("{} entries, {bytes} bytes", pairs.len());
            return Err(Invalid::new("meta", &value, rule, "keep only what is shown to people"));
        }
        if let Some(name) =
            pairs.iter().map(|(name, _)| name).find(|name| name.is_empty() || unprintable(name).is_some())
        {
            return Err(Invalid::new("meta name", name, "a name is printable and not empty", "rename it"));
        }
        let odd = |c: char| c.is_control() && c != '\n' && c != '\t';
        if let Some(value) = pairs.iter().map(|(_, value)| value).find(|value| value.contains(odd)) {
            return Err(Invalid::new(
                "meta value",
                value,
                "no control characters but tab and newline",
                "remove them",
            ));
        }
        Ok(Self((!pairs.is_empty()).then(|| Arc::new(pairs))))
    }

    /// What a holder is called, and nothing else: one line of text. An empty one is nothing at all.
    pub fn label(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        short_text("label", text, Self::LABEL_MAX_BYTES)?;
        Ok(Self(Some(Arc::new(vec![(Self::NAME.into(), text.into())]))))
    }

    /// The value under `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All pairs, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|pairs| pairs.iter()).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// The pairs, sorted by name; of a name that is there twice, the last counts.
fn by_name(pairs: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut sorted: Vec<(String, String)> = Vec::new();
    for (name, value) in pairs {
        let at = sorted.partition_point(|(known, _)| *known < name);
        match sorted.get_mut(at) {
            Some((known, old)) if *known == name => *old = value,
            _ => sorted.insert(at, (name, value)),
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_carries_its_door() {
        let project = Key::of_project_folder();
        assert_eq!(Key::parse("project/folder").unwrap(), project);
        let key = Key::parse("job/analyses/42").unwrap();
        assert_eq!((key.door(), key.name()), ("job", "analyses/42"));
        assert!(Key::parse("doc/会議の議事録").is_ok());
    }

    #[test]
    fn a_bad_key_is_refused_with_its_rule_and_a_way_out() {
        let long = format!("run/{}", "x".repeat(Key::MAX_BYTES));
        let cases = [
            ("", "no door"),
            ("nightly", "write `run/nightly`"),
            ("/x", "the door is"),
            ("Run/x", "the door is"),
            ("a-door-that-is-too-long/x", "the door is"),
            ("run/", "is empty"),
            ("run/ x", "white space"),
            ("run/a\nb", "control"),
            ("run/a\0b", "control"),
            ("run/a\u{202E}b", "invisible"),
            (long.as_str(), "at most 512 bytes"),
        ];
        for (text, expected) in cases {
            let error = Key::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(error.len() < 400, "{error}");
        }
    }

    #[test]
    fn a_room_is_what_a_pusher_channel_can_carry() {
        let room = RoomId::parse("team-a_1=@,.;Z").unwrap();
        assert_eq!((room.as_str(), room.key().as_str()), ("team-a_1=@,.;Z", "doc/team-a_1=@,.;Z"));
        assert_eq!(RoomId::of(room.key()), Some(room));
        assert!(RoomId::parse(&"x".repeat(128)).is_ok());
        for bad in ["", ".", "..", "a b", "a/b", "a*", "会議", "a\0", &"x".repeat(129)] {
            assert!(RoomId::parse(bad).is_err(), "{bad:?}");
        }
        for other in ["run/a", "doc/a b", "doc/a/b"] {
            assert_eq!(RoomId::of(&Key::parse(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn a_job_is_a_collection_and_an_id_that_an_address_can_carry_as_they_are() {
        let job = JobId::new("analyses", "2026-11-15T12:00:00Z+~").unwrap();
        assert_eq!((job.collection(), job.id()), ("analyses", "2026-11-15T12:00:00Z+~"));
        assert_eq!(job.key().as_str(), "job/analyses/2026-11-15T12:00:00Z+~");
        assert_eq!((JobId::of(job.key()), JobId::parse(job.as_str()).ok()), (Some(job.clone()), Some(job)));
        assert!(JobId::new(&"c".repeat(128), &"i".repeat(256)).is_ok());
        let long = ("c".repeat(129), "i".repeat(257));
        for (collection, id) in [
            ("", "1"),
            ("a", ""),
            (".", "1"),
            ("a", ".."),
            ("a b", "1"),
            ("a", "1/2"),
            ("a/b", "1"),
            ("a//b", "1"),
            ("a/../b", "1"),
            ("/a/b", "1"),
            ("a/b/", "1"),
            ("a", "1%2F"),
            ("会議", "1"),
            ("a*", "1"),
            (&long.0, "1"),
            ("a", &long.1),
        ] {
            assert!(JobId::new(collection, id).is_err(), "{collection:?} {id:?}");
        }
        let inner = JobId::parse("users/u1/analyses/42").unwrap();
        assert_eq!((inner.collection(), inner.id()), ("users/u1/analyses", "42"));
        assert_eq!(JobId::new("users/u1/analyses", "42").unwrap(), inner);
        assert!(JobId::new(&format!("{}/u/{}", "c".repeat(63), "d".repeat(62)), "1").is_ok());
        assert!(JobId::new(&format!("{}/u/{}", "c".repeat(63), "d".repeat(63)), "1").is_err());
        assert!(JobId::parse("42").unwrap_err().to_string().contains("analyses/42"));
        for other in ["doc/a/b", "job/a", "job/a/b/c"] {
            assert_eq!(JobId::of(&Key::parse(other).unwrap()), None, "{other}");
        }
        for (text, expected) in [
            ("", true),
            ("ana", true),
            ("ana/", true),
            ("ana/4", true),
            ("users/u1/", true),
            ("users/u1/ana", true),
        ] {
            assert_eq!(JobId::is_prefix(text), expected, "{text}");
        }
        for text in ["/", "/4", "../4", "a//c", "a/../c", "a b", "a/ b"] {
            assert!(!JobId::is_prefix(text), "{text}");
        }
    }

    #[test]
    fn a_program_names_its_lease_with_slashes_if_it_likes() {
        let name = LeaseName::parse("deploy/eu-1.web").unwrap();
        assert_eq!((name.as_str(), name.key().as_str()), ("deploy/eu-1.web", "run/deploy/eu-1.web"));
        assert_eq!(LeaseName::of(name.key()), Some(name));
        assert!(LeaseName::parse(&"x".repeat(256)).is_ok());
        for bad in [
            "",
            ".",
            "a/..",
            "../a",
            "/a",
            "a/",
            "a//b",
            "a b",
            "a*",
            "a%2Fb",
            "会議",
            "a\0",
            &"x".repeat(257),
        ] {
            assert!(LeaseName::parse(bad).is_err(), "{bad:?}");
        }
        for other in ["doc/a", "job/a/b", "run/a b"] {
            assert_eq!(LeaseName::of(&Key::parse(other).unwrap()), None, "{other}");
        }
        for (text, expected) in [
            ("", true),
            ("dep", true),
            ("deploy/", true),
            (".", true),
            ("/", false),
            ("a//", false),
            ("a b", false),
        ] {
            assert_eq!(LeaseName::is_prefix(text), expected, "{text}");
        }
    }

    #[test]
    fn a_lease_id_never_shows_itself() {
        let id = LeaseId::from_random([7; 16]);
        assert_eq!(format!("{id:?}"), "LeaseId(hidden)");
        let error = LeaseId::parse("not-my-secret").unwrap_err().to_string();
        assert!(!error.contains("not-my-secret"), "{error}");
        assert_eq!(LeaseId::parse(&id.reveal()).unwrap(), id);
        assert_eq!(LeaseId::from_bytes(*id.as_bytes()), Some(id));
        assert_eq!(LeaseId::from_bytes([0; 16]), None);
    }

    #[test]
    fn a_lease_id_is_a_uuid_of_version_4_with_its_hyphens() {
        let id = LeaseId::parse("3F1c0b1e-0a00-4fff-Bfff-00000000000a").unwrap();
        assert_eq!(id.reveal(), "3f1c0b1e-0a00-4fff-bfff-00000000000a");
        let bytes = [0x3F, 0x1C, 0x0B, 0x1E, 0x0A, 0, 0x4F, 0xFF, 0xBF, 0xFF, 0, 0, 0, 0, 0, 0x0A];
        assert_eq!(id.as_bytes(), &bytes);
        assert_eq!(LeaseId::from_random([0xFF; 16]).reveal(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(LeaseId::from_random([0; 16]).reveal(), "00000000-0000-4000-8000-000000000000");
        for bad in [
            "",
            "3f1c0b1e0a004fffbfff00000000000a",
            "3f1c0b1e-0a00-4fff-bfff-00000000000",
            "3f1c0b1e-0a00-4fff-bfff-00000000000aa",
            "3f1c0b1e-0a00-3fff-bfff-00000000000a",
            "3f1c0b1e-0a00-4fff-cfff-00000000000a",
            "3f1c0b1e-0a00-4fff-bfff_00000000000a",
            "3f1c0b1e-0a00-4fff-bfff-00000000000g",
            "3f1c0b1e-0a00-4fff-bfff-0000000000é",
            "-3f1c0b1e0a00-4fff-bfff-00000000000a",
            "{3f1c0b1e-0a00-4fff-bfff-00000000000a}",
        ] {
            assert!(LeaseId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lease_ids_are_equal_when_all_of_their_bytes_are() {
        let bytes = *LeaseId::from_random([7; 16]).as_bytes();
        let id = LeaseId::from_bytes(bytes).unwrap();
        assert_eq!(id, LeaseId::from_bytes(bytes).unwrap());
        for at in 0..bytes.len() {
            let mut other = bytes;
            other[at] ^= 1;
            assert_ne!(LeaseId::from_bytes(other).unwrap(), id, "byte {at}");
        }
    }

    #[test]
    fn a_tab_is_visible_ascii_and_a_dash_is_none() {
        assert_eq!(TabId::parse("tab-1").unwrap().as_str(), "tab-1");
        assert!(TabId::parse(&"x".repeat(128)).is_ok());
        for bad in ["", "-", "a b", "ä", "a\n", &"x".repeat(129)] {
            assert!(TabId::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(TabId::parse_optional("-"), Ok(None));
        assert_eq!(TabId::parse_optional("--"), TabId::parse("--").map(Some));
        assert!(TabId::parse_optional("").is_err());
    }

    #[test]
    fn a_fence_fits_into_a_json_number() {
        assert!(Fence::new(0).is_err());
        assert!(Fence::new(1 << 53).is_err());
        assert_eq!(Fence::new((1 << 53) - 1).unwrap(), Fence::MAX);
    }

    #[test]
    fn meta_is_sorted_by_name_and_has_each_name_once() {
        let pairs = [("b", "1"), ("c", "2"), ("a", "3"), ("b", "4")];
        let meta = Meta::new(pairs.map(|(name, value)| (name.into(), value.into()))).unwrap();
        assert_eq!(meta.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "4"), ("c", "2")]);
        assert_eq!((meta.get("b"), meta.get("d")), (Some("4"), None));
    }

    #[test]
    fn meta_has_at_most_four_kibibytes() {
        let pairs = |bytes: usize| [("n".to_owned(), "v".repeat(bytes - 1))];
        assert!(Meta::new(pairs(Meta::MAX_BYTES)).is_ok());
        assert!(Meta::new(pairs(Meta::MAX_BYTES + 1)).is_err());
        assert!(Meta::new([(String::new(), "v".into())]).is_err());
        assert!(Meta::new([]).unwrap().is_empty());
    }
}
