//! The words between the machine and its shell: what the shell is to do, and what it reports. Plain data; nothing here
//! decides anything.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::lease::{OnSilence, Proof};
use leasehold_core::name::{Fence, Meta, Owner, Reason};

use super::event::Event;
use super::fault::ProjectLockError;
use super::lease::Answer;
use super::section::IoStep;
use super::version::{Base, Version};

/// A call of the application, numbered by the shell; its answer comes as [`Effect::Settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u32);

/// A request for the Web Lock, or a guarded section, numbered by the machine. A grant that comes after its request was
/// given up is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Request the Web Lock, exclusively, and report by `handle_web_lock`. There is no need to count the time: the machine
    /// gives up by itself.
    RequestWebLock {
        /// The number of the request.
        ticket: Ticket,
        /// Whether to take it from its holder (`steal: true`).
        steal: bool,
    },
    /// Abort the request if it still waits, release the lock if it was granted.
    DropWebLock(Ticket),
    /// Do this in the folder and report by `handle_io`. There is at most one at a time.
    Io(IoStep),
    /// Close the held file of this fence at once, without the guard, and leave it there: the page is about to be frozen, and
    /// its lease then counts as a dead holder's. Nothing is reported.
    DropHeld(Fence),
    /// Publish to every subscriber.
    Emit(Event),
    /// Send to the other tabs.
    Broadcast(News),
    /// Answer a call.
    Settle {
        /// Which.
        call: CallId,
        /// The answer.
        answer: Answer,
    },
    /// Answer a save.
    Saved {
        /// Which.
        call: CallId,
        /// Whether the file was replaced.
        saved: Result<(), NotSaved>,
    },
}

/// A file to be saved. The shell has its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Save {
    /// Whose lease.
    pub claim: Proof,
    /// Where, below the root.
    pub path: String,
    /// The version of the new content.
    pub version: Version,
    /// What it was made from.
    pub base: Base,
}

/// Why a file was not saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSaved {
    /// The lease is over, or is none of this tab's.
    Lost(ProjectLockError),
    /// The file has another version than the save was made from. The lease is still good.
    StaleBase(ProjectLockError),
    /// The folder could not be read or written. The lease may still be good.
    Folder(IoError),
}

/// What became of the Web Lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebLock {
    /// It is this tab's, until it is dropped.
    Granted,
    /// There is no such thing here.
    Unsupported,
    /// It was refused.
    Denied {
        /// What the browser said.
        said: String,
    },
    /// It was granted, and another tab has stolen it.
    Stolen,
}

/// What went wrong in a guarded section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoError {
    /// What could not be done.
    pub kind: IoKind,
    /// What the system said.
    pub said: String,
}

/// What could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// The guard was busy for too long.
    GuardBusy,
    /// The folder, the guard or `.lock` cannot be made or opened at all: quota, permission, a private window.
    Open,
    /// Something could not be read.
    Read,
    /// Something could not be written, renamed or removed.
    Write,
}

impl IoKind {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 4] =
        [(Self::GuardBusy, "guard-busy"), (Self::Open, "open"), (Self::Read, "read"), (Self::Write, "write")];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }
}

/// What tabs tell each other. It is advice: a tab that hears it looks at the folder before it acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The project has a new holder.
    Acquired {
        /// Who.
        owner: Owner,
        /// Its fence.
        fence: Fence,
        /// Why it was taken over, if it was.
        why: Option<Reason>,
    },
    /// A holder has released the project, or lost it.
    Released {
        /// The fence of the lease that is over.
        fence: Fence,
    },
    /// About a request to hand the project over.
    Handover {
        /// The fence of the lease that is asked for.
        fence: Fence,
        /// What about it.
        say: Say,
        /// The request; in a refusal, with the holder's reason.
        ask: Arc<Ask>,
    },
}

/// What tabs say about a request to hand the project over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Say {
    /// A tab asks for the project.
    Asked,
    /// The page of the holder was told: the countdown begins.
    Told,
    /// The holder keeps the project.
    Refused,
    /// The asker does not want it any more.
    Withdrawn,
}

impl Say {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 4] = [
        (Self::Asked, "asked"),
        (Self::Told, "told"),
        (Self::Refused, "refused"),
        (Self::Withdrawn, "withdrawn"),
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }
}

/// A request to hand the project over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who asks.
    pub asker: Owner,
    /// What that tab calls itself.
    pub label: Meta,
    /// Why.
    pub why: Reason,
    /// How long the holder has, from when its page was told.
    pub countdown: Duration,
    /// What its silence means.
    pub on_silence: OnSilence,
}

/// The state of the machine (*Project lock states* 1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing is going on.
    Idle,
    /// Acquiring, with the Web Lock.
    AcquireWeb,
    /// Acquiring, without it.
    AcquireFallback,
    /// Between two attempts.
    BackingOff,
    /// Holding; the next heartbeat is planned.
    Acquired,
    /// Holding; a renewal has failed, and is planned anew.
    RenewScheduling,
    /// Holding; a renewal is under way.
    Renewing,
    /// Giving it back.
    Releasing,
    /// Not holding; nothing may be saved. `faulted` in profile `service`.
    Readonly,
}

impl State {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 9] = [
        (Self::Idle, "idle"),
        (Self::AcquireWeb, "acquire-web"),
        (Self::AcquireFallback, "acquire-fallback"),
        (Self::BackingOff, "backing-off"),
        (Self::Acquired, "acquired"),
        (Self::RenewScheduling, "renew-scheduling"),
        (Self::Renewing, "renewing"),
        (Self::Releasing, "releasing"),
        (Self::Readonly, "readonly"),
    ];

    /// Its name in profile `autosave`.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }
}

/// Why a lease is given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReleaseReason {
    /// The work is done.
    #[default]
    Completed,
    /// The work was given up.
    Aborted,
    /// The caller knows that the lease is over.
    Expired,
}

impl ReleaseReason {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 3] =
        [(Self::Completed, "completed"), (Self::Aborted, "aborted"), (Self::Expired, "expired")];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }
}

/// What the machine is put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Who this tab is, as `.lock` shows it: a hash of origin and tab.
    pub owner: Owner,
    /// Where the project is, for leases to say.
    pub root: Arc<str>,
    /// What kind of folder there is.
    pub folder: Folder,
    /// 16 random bytes, from which lease ids are made.
    pub seed: [u8; 16],
}

impl Surroundings {
    /// Whether there is no folder, so that the Web Lock is all there is.
    pub const fn is_bare(&self) -> bool {
        matches!(self.folder, Folder::Absent { .. })
    }
}

/// What kind of folder there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// One with a guard.
    Guarded,
    /// One without: two may believe that they hold it.
    Advisory,
    /// None.
    Absent {
        /// Why not: `insecure-context`, `opaque-origin`, `private-window`, …
        said: String,
    },
}
