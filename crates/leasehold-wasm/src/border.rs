//! The border between TypeScript and WebAssembly, declared once: every request, with the names and types of its fields. The
//! macro makes of it the enum that `tab.rs` matches on and the reader of it; `typescript.rs` makes `web/src/border.ts`,
//! the table by which TypeScript checks and writes requests. Both sides name the request and the field that is wrong.
//!
//! [`FINGERPRINT`] is a hash of all declarations, here and in `leasehold_project_rules::wire`. TypeScript compares it with its
//! own when it loads the module, so that a module and a script of different versions refuse to work together.

use leasehold_project_rules::guarded::Probe;
use leasehold_project_rules::record::{Member, Members};
use leasehold_project_rules::wire::shape::{self, FieldShape, Shape, VariantShape};
use leasehold_project_rules::{IoKind, Wanted, wire};

use crate::fields::{Field, Fields, Value, Wrong};
use crate::tab::Answer;

/// Declares the requests.
macro_rules! requests {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident { $($field:ident: $kind:ty),* $(,)? }
    )*) => {
        /// A request of TypeScript, its fields checked.
        #[allow(missing_docs)] // fields are named after what they are
        pub enum Request<'a> { $( $(#[doc = $doc])* $name { $($field: $kind),* } ),* }

        /// All requests. Their position is the number that they are called by.
        pub const REQUESTS: &[Shape] = &[ $( Shape {
            name: stringify!($name),
            doc: &[$($doc),*],
            variants: &[VariantShape { name: "", doc: &[], fields: &[ $( FieldShape {
                name: stringify!($field), doc: &[], kind: stringify!($kind), may_be_absent: false,
            } ),* ] }],
        } ),* ];

        impl<'a> Request<'a> {
            /// Reads the request of this number.
            pub fn read(number: usize, bytes: &'a [u8]) -> Result<Self, Wrong> {
                type Reader<'a> = fn(&'a [u8]) -> Result<Request<'a>, Wrong>;
                let readers: &[Reader<'a>] = &[ $( |bytes| {
                    #[allow(unused_mut)] // of a request without fields
                    let mut fields = Fields::new(stringify!($name), bytes);
                    let request = Self::$name { $($field: fields.next(stringify!($field))?),* };
                    fields.end()?;
                    Ok(request)
                } ),* ];
                readers.get(number).ok_or("there is no such request")?(bytes)
            }
        }
    };
}

/// Declares a type of the rules as a group of fields, which requests have as one field.
macro_rules! groups {
    ($( $type:ident { $($field:ident: $kind:ty),* $(,)? } )*) => {
        $( impl<'a> Field<'a> for $type {
            const EXPECTED: &'static str = "a group of fields";

            fn of(_: Value<'a>) -> Option<Self> {
                None
            }

            fn read(fields: &mut Fields<'a>, _: &'static str) -> Result<Self, Wrong> {
                Ok(Self { $($field: fields.next::<$kind>(stringify!($field))?),* })
            }
        } )*

        /// All groups.
        pub const GROUPS: &[Shape] = &[ $( Shape {
            name: stringify!($type),
            doc: &[],
            variants: &[VariantShape { name: "", doc: &[], fields: &[ $( FieldShape {
                name: stringify!($field), doc: &[], kind: stringify!($kind), may_be_absent: false,
            } ),* ] }],
        } ),* ];
    };
}

requests! {
    /// Makes a machine for a project; the answer says its number. The four seeds are random, of 32 bits.
    Open {
        owner: &'a str, root: &'a str, folder: FolderKind, why: Option<&'a str>,
        seed_a: u32, seed_b: u32, seed_c: u32, seed_d: u32,
    }
    /// Forgets a machine.
    Close {}
    /// Gets the project, or says why not.
    Acquire { call: u32, options: Wanted }
    /// Takes the project from its holder, if that is still the one with the fence `seen`.
    TakeOver { call: u32, options: Wanted, seen: Option<u64>, reason: Option<&'a str> }
    /// Keeps the project for longer.
    Renew { call: u32, lease_id: &'a str, extend_by_ms: Option<f64> }
    /// Gives the project back.
    Release { call: u32, lease_id: &'a str, force: bool, reason: Option<&'a str> }
    /// Gives up a call that has not been answered.
    Abort { call: u32 }
    /// Looks again whether the project is free.
    Refresh {}
    /// May the holder of this lease begin to save under this path?
    Claim { lease_id: &'a str, fence: u64, path: &'a str }
    /// The time of the last answer's `timeoutMs` has come.
    Timeout {}
    /// The page is about to be frozen.
    Frozen {}
    /// The page is back.
    Resumed {}
    /// What became of the Web Lock.
    WebLock { ticket: u32, result: WebLockResult, said: &'a str }
    /// What another tab said.
    News { fence: u64, owner: Option<&'a str>, why: Option<&'a str> }
    /// A section that the machine asked for was entered, and this is the text of the guard.
    Section { ticket: u32, guard: &'a str }
    /// A section was entered to save.
    SaveSection { lease_id: &'a str, fence: u64, guard: &'a str }
    /// There is no `.lock`. This, or one of the next three, follows `Section` and `SaveSection`.
    LockMissing {}
    /// `.lock` has these members.
    LockRead { modified: u64, lock: Members }
    /// `.lock` is no JSON object.
    LockDamaged { modified: u64 }
    /// `.lock` cannot be read.
    LockUnreadable { modified: Option<u64>, said: &'a str }
    /// The held file was looked at.
    Decide { held: Probe }
    /// All steps of the section were done.
    Guarded { ticket: u32 }
    /// A step of the section failed.
    IoError { ticket: u32, kind: IoKind, said: &'a str }
    /// A save failed.
    SaveFailed { kind: IoKind, said: &'a str }
}

groups! {
    Wanted {
        profile: Option<String>, max_wait_ms: Option<f64>, web_lock_timeout_ms: Option<f64>,
        initial_delay_ms: Option<f64>, max_delay_ms: Option<f64>, multiplier: Option<f64>,
        max_attempts: Option<f64>, ttl_ms: Option<f64>, heartbeat_interval_ms: Option<f64>,
        preferred_strategy: Option<String>, reentrant: bool, auto_resume: Option<bool>, allow_advisory: bool,
    }
    Members {
        version: Member, lease_id: Member, owner: Member, updated_at: Member, ttl_seconds: Member,
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
pub const FINGERPRINT: u32 = {
    let mut hash = shape::hash(REQUESTS, shape::START);
    hash = shape::hash(GROUPS, hash);
    hash = shape::hash(wire::SHAPES, hash);
    shape::hash(&[Answer::SHAPE], hash)
};

/// A name of Rust as TypeScript writes it: `max_wait_ms` and `TakeOver` become `maxWaitMs` and `takeOver`.
pub fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut after_underscore = false;
    for (at, letter) in name.strip_prefix("r#").unwrap_or(name).chars().enumerate() {
        match letter {
            '_' => after_underscore = true,
            _ if after_underscore => {
                camel.push(letter.to_ascii_uppercase());
                after_underscore = false;
            }
            _ if at == 0 => camel.push(letter.to_ascii_lowercase()),
            _ => camel.push(letter),
        }
    }
    camel
}
