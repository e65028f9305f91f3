//! Everything that can go wrong with a project lock: one table, which is the table of the documentation. What a fault is
//! called, whether to try again and how loud it is are looked up here and known nowhere else.

use std::fmt;

use super::guarded::Holder;
use super::options::Profile;

/// What went wrong: one row of [`TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// There are no Web Locks here.
    NoWebLocks,
    /// The Web Lock was denied, or did not come in time.
    Denied,
    /// The caller's signal was aborted.
    Aborted,
    /// There are no attempts left, or no time.
    Exhausted,
    /// `.lock` names another holder.
    Conflict,
    /// This tab already holds, or is about to.
    AlreadyHeld,
    /// `.lock` cannot be created, or is nothing that this version may touch.
    CannotCreate,
    /// `.lock` cannot be read.
    CannotRead,
    /// `.lock` cannot be written.
    CannotWrite,
    /// A renewal failed.
    RenewFailed,
    /// `.lock` names another holder by now.
    Stale,
    /// The lease ended before it was renewed.
    Expired,
    /// The lock could not be released.
    ReleaseFailed,
    /// The file has another version than the save was made from.
    StaleBase,
}

/// What the caller was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Getting the lock.
    Acquire,
    /// Keeping it.
    Renew,
    /// Giving it back.
    Release,
    /// Looking who has it.
    Look,
    /// Saving a file under it.
    Save,
}

impl Operation {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 5] = [
        (Self::Acquire, "acquire"),
        (Self::Renew, "renew"),
        (Self::Release, "release"),
        (Self::Look, "look"),
        (Self::Save, "save"),
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }
}

/// The kind of error that a caller catches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The lock was not got.
    Acquisition,
    /// It has another holder.
    Conflict,
    /// It was not kept.
    Renewal,
    /// It was not given back.
    Release,
    /// Nothing that can be tried again would help.
    Irrecoverable,
}

impl Class {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 5] = [
        (Self::Acquisition, "LockAcquisitionError"),
        (Self::Conflict, "LockConflictError"),
        (Self::Renewal, "LockRenewalError"),
        (Self::Release, "LockReleaseError"),
        (Self::Irrecoverable, "LockIrrecoverableError"),
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }
}

/// How loud it is in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As wanted.
    Info,
    /// It goes on in another way.
    Warn,
    /// It does not go on.
    Error,
}

impl Level {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 3] =
        [(Self::Info, "info"), (Self::Warn, "warn"), (Self::Error, "error")];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }
}

/// Which error class a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClassOf {
    Always(Class),
    ByOperation,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The fault.
    pub fault: Fault,
    /// What profile `autosave` calls it.
    pub autosave: &'static str,
    /// What profile `service` calls it; absent when it is the code of the last fault.
    pub service: Option<&'static str>,
    class: ClassOf,
    /// Whether trying again may help, as long as there are attempts left.
    pub retryable: bool,
    /// How loud it is in a log.
    pub level: Level,
    /// What is done about it.
    pub reaction: &'static str,
}

const ACQUISITION: ClassOf = ClassOf::Always(Class::Acquisition);
const CONFLICT: ClassOf = ClassOf::Always(Class::Conflict);
const RENEWAL: ClassOf = ClassOf::Always(Class::Renewal);

/// The table of faults.
#[rustfmt::skip]
pub const TABLE: [Row; 14] = [
    row(Fault::NoWebLocks, "web-lock-unsupported", Some("web-lock-unavailable"), ACQUISITION, true, Level::Warn,
        "fall back"),
    row(Fault::Denied, "acquire-denied", Some("web-lock-unavailable"), ACQUISITION, true, Level::Warn,
        "fall back, then back off"),
    row(Fault::Aborted, "web-lock-aborted", Some("web-lock-aborted"), ACQUISITION, false, Level::Info,
        "tell the caller at once"),
    row(Fault::Exhausted, "acquire-timeout", None, ACQUISITION, false, Level::Error,
        "read-only"),
    row(Fault::Conflict, "fallback-conflict", Some("lease-mismatch"), CONFLICT, true, Level::Warn,
        "try again within the attempts"),
    row(Fault::AlreadyHeld, "lease-mismatch", Some("lease-mismatch"), CONFLICT, false, Level::Error,
        "do not acquire again"),
    row(Fault::CannotCreate, "fallback-open-failed", Some("fallback-open-failed"),
        ClassOf::Always(Class::Irrecoverable), false, Level::Error, "autosave stops"),
    row(Fault::CannotRead, "fallback-read-failed", Some("fallback-read-failed"), ClassOf::ByOperation, true,
        Level::Warn, "regenerate when stale"),
    row(Fault::CannotWrite, "fallback-write-failed", Some("fallback-write-failed"), ClassOf::ByOperation, true,
        Level::Error, "try again within the attempts"),
    row(Fault::RenewFailed, "renew-failed", Some("fallback-write-failed"), RENEWAL, true, Level::Error,
        "read-only when it happens twice"),
    row(Fault::Stale, "lease-stale", Some("lease-mismatch"), CONFLICT, false, Level::Error,
        "read-only"),
    row(Fault::Expired, "lease-expired", Some("lease-expired"), RENEWAL, false, Level::Warn,
        "acquire anew"),
    row(Fault::ReleaseFailed, "release-failed", Some("fallback-write-failed"), ClassOf::Always(Class::Release), true,
        Level::Error, "try again in the background"),
    row(Fault::StaleBase, "stale-base", Some("stale-base"), CONFLICT, false, Level::Warn,
        "keep the draft, read the file again"),
];

const fn row(
    fault: Fault,
    autosave: &'static str,
    service: Option<&'static str>,
    class: ClassOf,
    retryable: bool,
    level: Level,
    reaction: &'static str,
) -> Row {
    // For the documentation: a page need not load it.
    let reaction = if cfg!(target_family = "wasm") { "" } else { reaction };
    Row { fault, autosave, service, class, retryable, level, reaction }
}

impl Fault {
    /// Its row.
    pub fn row(self) -> &'static Row {
        // Every fault has one; a test sees to it.
        TABLE.iter().find(|row| row.fault == self).unwrap_or(&FALLBACK)
    }
}

static FALLBACK: Row = row(
    Fault::CannotCreate,
    "fallback-open-failed",
    Some("fallback-open-failed"),
    ClassOf::Always(Class::Irrecoverable),
    false,
    Level::Error,
    "autosave stops",
);

impl Row {
    /// The class of the error that a caller catches.
    pub fn class(&self, operation: Operation) -> Class {
        match (self.class, operation) {
            (ClassOf::Always(class), _) => class,
            (ClassOf::ByOperation, Operation::Acquire | Operation::Look) => Class::Acquisition,
            (ClassOf::ByOperation, Operation::Renew | Operation::Save) => Class::Renewal,
            (ClassOf::ByOperation, Operation::Release) => Class::Release,
        }
    }
}

/// What went wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectLockError {
    /// What went wrong.
    pub fault: Fault,
    /// Whose words to use for it.
    pub profile: Profile,
    /// Whether it is being tried again, or may be.
    pub retryable: bool,
    /// What the caller was doing.
    pub operation: Operation,
    /// What is behind it.
    pub cause: Option<Cause>,
    /// Who holds the project instead, if that is why.
    pub holder: Option<Box<Holder>>,
}

/// What is behind an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Another fault.
    Fault(Box<ProjectLockError>),
    /// What the browser, the system or the folder said.
    Said(Box<str>),
}

impl ProjectLockError {
    /// An error that is as retryable as its row says.
    pub fn new(fault: Fault, operation: Operation, profile: Profile) -> Self {
        Self { fault, profile, retryable: fault.row().retryable, operation, cause: None, holder: None }
    }

    /// The same, because this one holds the project.
    pub fn held_by(self, holder: Holder) -> Self {
        let error = self.said(holder.owner.as_str());
        Self { holder: Some(Box::new(holder)), ..error }
    }

    /// The same, because of what was said.
    pub fn said(self, said: &str) -> Self {
        Self { cause: Some(Cause::Said(said.into())), ..self }
    }

    /// The same, because of another one.
    pub fn because(self, other: Self) -> Self {
        Self { holder: other.holder.clone(), cause: Some(Cause::Fault(Box::new(other))), ..self }
    }

    /// Its code, in the words of its profile.
    pub fn code(&self) -> &'static str {
        let row = self.fault.row();
        match (self.profile, row.service, &self.cause) {
            (Profile::Autosave, ..) => row.autosave,
            (Profile::Service, Some(code), _) => code,
            (Profile::Service, None, Some(Cause::Fault(last))) => last.code(),
            (Profile::Service, None, _) => "web-lock-unavailable",
        }
    }

    /// The class of error that a caller catches.
    pub fn class(&self) -> Class {
        self.fault.row().class(self.operation)
    }

    /// How loud it is in a log.
    pub fn level(&self) -> Level {
        self.fault.row().level
    }

    /// What happened, and what to do next. (Put together by hand: formatting is more code for a page to load.)
    pub fn message(&self) -> String {
        let mut text = String::new();
        self.push_message(&mut text);
        text
    }

    fn push_message(&self, text: &mut String) {
        text.push_str(self.operation.as_str());
        text.push_str(": ");
        text.push_str(self.fault.message());
        match &self.cause {
            Some(Cause::Said(said)) => {
                text.push_str(" (");
                text.push_str(said);
            }
            Some(Cause::Fault(last)) => {
                text.push_str(" (last: ");
                last.push_message(text);
            }
            None => return,
        }
        text.push(')');
    }
}

impl fmt::Display for ProjectLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for ProjectLockError {}

impl Fault {
    /// What happened, and what to do next.
    pub const fn message(self) -> &'static str {
        match self {
            Self::NoWebLocks => "there are no Web Locks here; going on with project/.lock alone",
            Self::Denied => "the Web Lock did not come in time; going on with project/.lock alone",
            Self::Aborted => "the caller's signal was aborted; acquire again when it is wanted",
            Self::Exhausted => {
                "the lock was not free within the attempts; the project is read-only, acquire again later"
            }
            Self::Conflict => "another tab or program holds the project; close it there, or take over",
            Self::AlreadyHeld => {
                "this tab already holds the project; use its lease, or acquire with `reentrant: true`"
            }
            Self::CannotCreate => "project/.lock cannot be used here; nothing is saved",
            Self::CannotRead => {
                "project/.lock cannot be read; it is tried again, and replaced once it is stale"
            }
            Self::CannotWrite => "the project folder cannot be written; look at quota and permissions",
            Self::RenewFailed => {
                "the lease could not be renewed; it is tried again, twice in a row is read-only"
            }
            Self::Stale => "the project has another holder now; keep the draft, and acquire again",
            Self::Expired => "the lease ended before it was renewed; acquire again",
            Self::ReleaseFailed => "the lock could not be released; it is tried again in the background",
            Self::StaleBase => {
                "the file was saved elsewhere since it was read here; it stays as it is, read it again"
            }
        }
    }
}
