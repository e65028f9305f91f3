//! The border between TypeScript and WebAssembly, declared once: every request, with the names and types of its fields. The
//! macro makes of it the enum that `tab.rs` matches on and the reader of it, which checks every field; `typescript.rs` makes
//! `web/src/border.ts`, by which TypeScript's compiler checks requests and its encoder writes them.
//!
//! [`FINGERPRINT`] is a hash of all declarations, here and in `leasehold_project_rules::wire`. TypeScript compares it with its
//! own when it loads the module, so that a module and a script of different versions refuse to work together.

use leasehold_project_rules::guarded::Probe;
use leasehold_project_rules::record::{Member, Members};
pub(crate) use leasehold_project_rules::wire::json::camel_case;
use leasehold_project_rules::wire::shape::{self, Shape};
use leasehold_project_rules::{Say, Wanted, wire};

use crate::fields::{Field, FieldTable, Kind, Value, Values};
use crate::tab::Answer;

/// A request: its name in Rust, what it is for, and its fields.
pub struct RequestTable {
    /// Its name in Rust.
    pub name: &'static str,
    /// What it is for, line by line.
    pub doc: &'static [&'static str],
    /// Its fields.
    pub fields: &'static [FieldTable],
}

/// Declares the requests.
macro_rules! requests {
    ($enum:ident; $(
        $(#[doc = $doc:literal])*
        $name:ident { $($field:ident: $type:ty),* $(,)? }
    )*) => {
        /// A request of TypeScript, its fields checked.
        #[allow(missing_docs)] // fields are named after what they are
        pub enum $enum<'a> { $( $(#[doc = $doc])* $name { $($field: $type),* } ),* }

        impl<'a> $enum<'a> {
            pub(crate) const TABLES: &'static [$crate::border::RequestTable] = &[ $( $crate::border::RequestTable {
                name: stringify!($name),
                // For `border.ts`: a page need not load it.
                doc: if cfg!(target_family = "wasm") { &[] } else { &[$($doc),*] },
                fields: &[ $( (stringify!($field), <$type as $crate::fields::Field<'a>>::KIND) ),* ],
            } ),* ];

            /// Reads a request.
            pub fn read(bytes: &'a [u8]) -> Result<Self, $crate::fields::Wrong> {
                let sent = $crate::fields::Sent::read(bytes).ok_or("the request is cut off")?;
                let takers: &[fn(&mut $crate::fields::Values<'a>) -> Self] =
                    &[ $( |_values| Self::$name { $($field: $crate::fields::Field::take(_values)),* } ),* ];
                let mut all = Self::TABLES.iter().zip(takers);
                let found = all.find(|(table, _)| $crate::border::camel_case(table.name) == sent.request);
                let (table, take) = found.ok_or("there is no such request")?;
                Ok(take(&mut sent.values(table.fields)?))
            }
        }
    };
}

pub(crate) use requests;

/// Declares a type of the rules as a group of fields, which requests have as one field.
macro_rules! groups {
    ($( $group:ident { $($field:ident: $type:ty),* $(,)? } )*) => { $(
        impl<'a> Field<'a> for $group {
            const KIND: Kind =
                Kind::Group(&[ $( (stringify!($field), <$type as Field<'a>>::KIND) ),* ]);

            /// A group is never one value: see `take`.
            fn of(_: Value<'a>) -> Self {
                Self::default()
            }

            fn take(values: &mut Values<'a>) -> Self {
                Self { $($field: Field::take(values)),* }
            }
        }
    )* };
}

/// All requests.
pub const REQUESTS: &[RequestTable] = Request::TABLES;

requests! {
    Request;
    /// Makes a machine for a project; the answer says its number. The four seeds are random, of 32 bits.
    Open {
        owner: &'a str, root: &'a str, lock_name: &'a str, folder: FolderKind, why: Option<&'a str>,
        seed_a: u32, seed_b: u32, seed_c: u32, seed_d: u32,
    }
    /// Forgets a machine.
    Close {}
    /// Gets the project, or says why not.
    Acquire { call: u32, options: Wanted }
    /// Takes the project from its holder, if that is still the one with the fence `seen`.
    TakeOver { call: u32, options: Wanted, seen: Option<u64>, reason: Option<&'a str> }
    /// Asks the holder to save and hand the project over: `countdownMs` is how long it has, `onSilence` what it means if it does
    /// not answer.
    Handover {
        call: u32, options: Wanted, reason: Option<&'a str>, countdown_ms: Option<f64>, on_silence: Option<&'a str>,
    }
    /// The page of this tab, which holds the project, has had the event of such a request.
    HandoverTold {}
    /// Refuses such a request.
    RefuseHandover { lease_id: &'a str, reason: Option<&'a str> }
    /// Looks who has the project.
    Look { call: u32 }
    /// Where does this tab stand? The answer has its `state`.
    State {}
    /// Keeps the project for longer.
    Renew { call: u32, lease_id: &'a str, extend_by_ms: Option<f64> }
    /// Gives the project back.
    Release { call: u32, lease_id: &'a str, force: bool, reason: Option<&'a str> }
    /// Gives up a call that has not been answered.
    Abort { call: u32 }
    /// Looks again whether the project is free.
    Refresh {}
    /// May the holder of this lease save under this path? Asked before the file is prepared.
    Claim { lease_id: &'a str, fence: u64, path: &'a str }
    /// Lets the file that was prepared, whose hash is `version`, take its place, if the lease is still good and the file there has
    /// the version `base`: the one that this tab last read or wrote when left out, no file when empty.
    Save {
        call: u32, lease_id: &'a str, fence: u64, path: &'a str, version: &'a str, base: Option<&'a str>,
        overwrite: bool,
    }
    /// The application has read this version of a file; empty for no file.
    Saw { path: &'a str, version: &'a str }
    /// Which version was the content with this hash made from? The answer has no `base` if this tab has just read or written it.
    Unsaved { path: &'a str, version: &'a str }
    /// The time of the last answer's `timeoutMs` has come.
    Timeout {}
    /// The page is about to be frozen.
    Frozen {}
    /// The page is back.
    Resumed {}
    /// The page was hidden, or is seen again.
    Hidden { hidden: bool }
    /// What became of the Web Lock.
    WebLock { ticket: u32, result: WebLockResult, said: &'a str }
    /// What another tab said.
    News {
        fence: u64, owner: Option<&'a str>, why: Option<&'a str>, say: Option<Say>, label: Option<&'a str>,
        countdown_ms: Option<f64>, on_silence: Option<&'a str>,
    }
    /// The step was done. This and the following report the step that the effect `io` asked for.
    IoDone {}
    /// The step failed.
    IoFailed { said: &'a str }
    /// Another tab has the guard open.
    GuardBusy {}
    /// There is no guard to look under.
    GuardAbsent {}
    /// The text of the guard.
    GuardRead { text: &'a str }
    /// There is no `.lock`.
    LockMissing {}
    /// `.lock` has these members.
    LockRead { modified: u64, lock: Members }
    /// `.lock` is no JSON object.
    LockDamaged { modified: u64 }
    /// `.lock` cannot be read.
    LockUnreadable { modified: Option<u64>, said: &'a str }
    /// The held file is closed, open in some tab, or nobody knows.
    HeldProbed { held: Probe }
    /// The version of the file; empty for no file.
    VersionRead { version: &'a str }
}

groups! {
    Wanted {
        profile: Option<String>, max_wait_ms: Option<f64>, web_lock_timeout_ms: Option<f64>,
        initial_delay_ms: Option<f64>, max_delay_ms: Option<f64>, multiplier: Option<f64>,
        max_attempts: Option<f64>, ttl_ms: Option<f64>, heartbeat_interval_ms: Option<f64>,
        preferred_strategy: Option<String>, reentrant: bool, auto_resume: Option<bool>, allow_advisory: bool,
        accept_clock_skew: bool, label: Option<String>,
    }
    Members {
        version: Member, lease_id: Member, owner: Member, label: Member, acquired_at: Member, updated_at: Member, ttl_seconds: Member,
        expires_at: Member, fence: Member, seq: Member, held: Member,
    }
}

/// What kind of folder there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as in `leasehold_project_rules::Folder`
pub enum FolderKind {
    Guarded,
    Advisory,
    Absent,
}

impl FolderKind {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 3] =
        [(Self::Guarded, "guarded"), (Self::Advisory, "advisory"), (Self::Absent, "absent")];
}

/// What became of the Web Lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as in `leasehold_project_rules::WebLock`
pub enum WebLockResult {
    Granted,
    Unsupported,
    Denied,
    Stolen,
}

impl WebLockResult {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 4] = [
        (Self::Granted, "granted"),
        (Self::Unsupported, "unsupported"),
        (Self::Denied, "denied"),
        (Self::Stolen, "stolen"),
    ];
}

/// The shapes of what is answered.
pub const ANSWERS: &[&[Shape]] = &[wire::SHAPES, &[Answer::SHAPE]];

/// A hash of all declarations.
pub const FINGERPRINT: u32 = shape::hash(&[Answer::SHAPE], shape::hash(wire::SHAPES, fingerprint(REQUESTS)));

/// A hash of requests.
#[allow(clippy::indexing_slicing)] // a constant cannot iterate
pub(crate) const fn fingerprint(requests: &[RequestTable]) -> u32 {
    let mut hash = shape::START;
    let mut at = 0;
    while at < requests.len() {
        hash = hash_fields(requests[at].fields, shape::word(requests[at].name, hash));
        at += 1;
    }
    hash
}

#[allow(clippy::indexing_slicing)] // a constant cannot iterate
const fn hash_fields(fields: &[FieldTable], mut hash: u32) -> u32 {
    let mut at = 0;
    while at < fields.len() {
        hash = hash_kind(&fields[at].1, shape::word(fields[at].0, hash));
        at += 1;
    }
    hash
}

#[allow(clippy::indexing_slicing)] // a constant cannot iterate
const fn hash_kind(kind: &Kind, mut hash: u32) -> u32 {
    match kind {
        Kind::Text => shape::word("text", hash),
        Kind::Number => shape::word("number", hash),
        Kind::Whole => shape::word("whole", hash),
        Kind::Small => shape::word("small", hash),
        Kind::Flag => shape::word("flag", hash),
        Kind::Json => shape::word("json", hash),
        Kind::Word(words) => {
            let mut at = 0;
            while at < words.len() {
                hash = shape::word(words[at], hash);
                at += 1;
            }
            hash
        }
        Kind::Optional(kind) => shape::word("?", hash_kind(kind, hash)),
        Kind::Group(fields) => hash_fields(fields, hash),
    }
}
