//! What an autosave asks of its shell, the replies, and what it shows. Types only; `mod.rs` decides.

use std::time::Duration;

use leasehold_core::time::HolderTime;

use super::history::{Generation, Retention, Stamp};
use crate::CallId;
use crate::version::Version;

/// How an autosave behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How often the application's document is looked at; changes within this time are one change.
    pub debounce: Duration,
    /// How long it must be quiet before a save.
    pub idle: Duration,
    /// The longest that an unsaved change waits while there is no pause.
    pub longest_wait: Duration,
    /// How much history is kept.
    pub retention: Retention,
    /// Whether the shell can be asked to [look](Effect::Look) for changes. Otherwise it reports every one.
    pub looks: bool,
    /// Whether the application can be given a version to go on with.
    pub applies: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(500),
            idle: Duration::from_secs(2),
            // So that `current.json` is new within 5 s.
            longest_wait: Duration::from_millis(4_500),
            retention: Retention::default(),
            looks: false,
            applies: true,
        }
    }
}

/// Something that the shell is to do. All but `Look`, `Saw`, `Notice` and `Settle` are answered by one method; there is at most
/// one of them at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Compare the application's document with the last one. A change is reported by `changed_since_look`, and nothing else.
    Look,
    /// Read the folder of the autosave. `handle_listed`.
    List,
    /// Tell the lock that this version of `current.json` was read. Not answered.
    Saw(Version),
    /// Serialise the application's document, keep the text and hash it. `handle_taken`.
    Take,
    /// Let the text that was taken take the place of `current.json`, in a guarded section of the project lock. Its base is the
    /// version that this tab last read or wrote. `handle_committed`.
    Commit {
        /// The generation that it will be. A folder that can give a file two names does so in the same step.
        stamp: Stamp,
    },
    /// Write what is in `current.json` to this generation, if it is not there. `handle_done`.
    Keep(Stamp),
    /// Remove a generation; fine if it is gone. `handle_done`.
    Remove(Stamp),
    /// Write `index.json`. It need not be synced. `handle_done`.
    WriteIndex(String),
    /// Serialise the application's document, and keep it as a draft of `current.json`. `handle_done`.
    KeepDraft,
    /// Read this version, tell the lock that it was read if it is `current.json`, and give it to the application.
    /// `handle_applied`.
    Apply(Source),
    /// Release the project. Reported as [`Lock::Released`], whatever came of it.
    Release,
    /// Tell the user.
    Notice(Notice),
    /// Answer a call.
    Settle {
        /// Which one.
        call: CallId,
        /// Whether what it asked for has come about.
        done: bool,
    },
}

/// A version to go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `current.json`.
    Current,
    /// A generation.
    Generation(Stamp),
}

/// What is known of the project lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It is being acquired.
    Acquiring,
    /// The project is ours.
    Held,
    /// It is another's, or it was lost.
    ReadOnly,
    /// There can be none here.
    Unavailable,
    /// It was released, because we asked for it.
    Released,
}

/// What the folder of an autosave has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The version of `current.json`, or no file.
    pub current: Version,
    /// Its size.
    pub current_bytes: u64,
    /// The generations, in any order. What has no such name is none.
    pub generations: Vec<Generation>,
    /// The version of the newest generation.
    pub newest: Version,
    /// What is in `index.json`, if it can be read.
    pub index: Option<String>,
}

/// What was taken of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its document.
    Content {
        /// The hash of it.
        version: Version,
        /// Its size.
        bytes: u64,
        /// How many more bytes may be written, as far as the platform tells.
        free: Option<u64>,
    },
    /// It cannot be serialised.
    Failed {
        /// What is wrong with it.
        said: String,
    },
}

/// Why something was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The project is another's by now. The lock says so, too.
    Lost,
    /// `current.json` is another's by now.
    StaleBase,
    /// There is no space.
    NoSpace {
        /// What the system said.
        said: String,
    },
    /// Anything else. It may have been written all the same.
    Io {
        /// What the system said.
        said: String,
    },
}

/// Where an autosave stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The project is being acquired, and nothing is unsaved.
    Starting,
    /// Nothing is written.
    ReadOnly,
    /// Nothing can be saved here.
    Unavailable,
    /// There is something to save.
    Dirty,
    /// It is being saved.
    Saving,
    /// All is saved.
    Saved,
    /// A save failed, and is tried again.
    Retrying {
        /// Which retry comes.
        attempt: u32,
        /// When.
        at: HolderTime,
    },
    /// A save failed for good.
    Error {
        /// Why.
        code: ErrorCode,
        /// What the system said.
        said: String,
    },
    /// The project is being released.
    Releasing,
    /// It is over.
    Stopped,
}

/// Why nothing can be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// It could not be written.
    WriteFailed,
    /// There is no space.
    NoSpace,
    /// The document cannot be serialised.
    NotSerialisable,
    /// `current.json` is newer than the application's document, and the application did not take it.
    StaleBase,
}

/// A message for the user, shown once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A save succeeded after retries.
    Recovered,
    /// The retries came to nothing.
    RetriesFailed {
        /// What the system said.
        said: String,
    },
    /// Old generations were removed because there was no space.
    HistoryDropped {
        /// How many.
        generations: u32,
    },
    /// A generation could not be written; the save itself was.
    HistoryFailed {
        /// What the system said.
        said: String,
    },
    /// There is little space left.
    SpaceLow {
        /// How many bytes.
        free: u64,
    },
    /// A newer version was loaded; what was in memory is a draft.
    DraftKept,
    /// A generation was restored.
    Restored {
        /// Which one.
        stamp: Stamp,
        /// The generation with what was there before.
        before: Option<Stamp>,
    },
}
