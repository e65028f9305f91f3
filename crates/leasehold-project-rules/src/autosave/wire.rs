//! What an autosave in a browser answers its page, as JSON. Times are in milliseconds; generations are named by their paths.

use leasehold_core::time::whole_millis;

use super::history::{CURRENT, Generation, History, Stamp};
use super::{AutoSave, Effect, ErrorCode, Notice, Source, State};
use crate::clock::Now;
use crate::shape;
use crate::word;

/// A word of [`STATES`].
pub type StateName = &'static str;

/// A word of [`ERROR_CODES`].
pub type ErrorName = &'static str;

/// The states of an autosave.
pub const STATES: [&str; 10] = [
    "starting",
    "readonly",
    "unavailable",
    "dirty",
    "saving",
    "saved",
    "retrying",
    "error",
    "releasing",
    "stopped",
];

/// Why nothing can be saved.
pub const ERROR_CODES: [(ErrorCode, &str); 4] = [
    (ErrorCode::WriteFailed, "write-failed"),
    (ErrorCode::NoSpace, "no-space"),
    (ErrorCode::NotSerialisable, "not-serialisable"),
    (ErrorCode::StaleBase, "stale-base"),
];

shape! {
    /// Something that the page is to do.
    pub enum AutoSaveEffect {
        /// Compare the document with the last one; report a change by `changedSinceLook`.
        Look {},
        /// Read the folder; `listed` or `notListed`.
        List {},
        /// Tell the lock that this version of `current.json` was read; empty for no file.
        Saw {
            /// Its hash.
            version: String,
        },
        /// Serialise and hash the document; `taken` or `notTaken`.
        Take {},
        /// Save what was taken as `current.json`; `committed` or `notCommitted`.
        Commit {},
        /// Write what is in `current.json` to this path; `done` or `notDone`, as for the next three.
        Keep {
            /// Below the project's folder.
            path: String,
        },
        /// Remove this file; fine if it is gone.
        Remove {
            /// Below the project's folder.
            path: String,
        },
        /// Write the index.
        WriteIndex {
            /// What is in it.
            text: String,
        },
        /// Keep the document as a draft.
        KeepDraft {},
        /// Give the application what is in this file; `applied`.
        Apply {
            /// Below the project's folder.
            path: String,
        },
        /// Release the project; `lock` with `released`.
        Release {},
        /// Tell the user.
        Tell {
            /// What.
            notice: NoticeView,
        },
        /// Answer a call.
        Settle {
            /// Its number.
            call: u32,
            /// Whether what it asked for has come about.
            done: bool,
        },
    }
}

shape! {
    /// A message for the user.
    pub enum NoticeView {
        /// A save succeeded after retries.
        Recovered {},
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
        /// A generation could not be written.
        HistoryFailed {
            /// What the system said.
            said: String,
        },
        /// There is little space left.
        SpaceLow {
            /// How many bytes.
            free: u64,
        },
        /// A newer version was loaded, and what was in memory is a draft.
        DraftKept {},
        /// A generation was restored.
        Restored {
            /// Which one.
            ts: String,
            /// The generation with what was there before.
            before: Option<String>,
        },
    }
}

shape! {
    /// Where an autosave stands.
    pub struct AutoSaveView {
        /// The state.
        pub state: StateName,
        /// Why nothing can be saved.
        pub code: Option<ErrorName>,
        /// What the system said.
        pub said: Option<String>,
        /// Which retry comes.
        pub attempt: Option<u32>,
        /// In how many milliseconds.
        pub retry_in_ms: Option<u64>,
        /// Whether something is unsaved.
        pub is_dirty: bool,
        /// When something was last saved, in milliseconds since 1970.
        pub saved_at: Option<u64>,
    }
}

impl AutoSaveView {
    /// Where it stands now.
    pub fn new(autosave: &AutoSave, now: Now) -> Self {
        let state = autosave.state();
        let [starting, readonly, unavailable, dirty, saving, saved, retrying, error, releasing, stopped] =
            STATES;
        let name = match &state {
            State::Starting => starting,
            State::ReadOnly => readonly,
            State::Unavailable => unavailable,
            State::Dirty => dirty,
            State::Saving => saving,
            State::Saved => saved,
            State::Retrying { .. } => retrying,
            State::Error { .. } => error,
            State::Releasing => releasing,
            State::Stopped => stopped,
        };
        let (is_dirty, saved_at) = (autosave.is_dirty(), autosave.saved_at().map(|at| at.as_millis()));
        let mut view = Self {
            state: name,
            code: None,
            said: None,
            attempt: None,
            retry_in_ms: None,
            is_dirty,
            saved_at,
        };
        match state {
            State::Error { code, said } => {
                (view.code, view.said) = (Some(word(&ERROR_CODES, code)), Some(said));
            }
            State::Retrying { attempt, at } => {
                (view.attempt, view.retry_in_ms) = (Some(attempt), Some(whole_millis(at.since(now.steady))));
            }
            _ => {}
        }
        view
    }
}

impl From<Effect> for AutoSaveEffect {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Look => Self::Look {},
            Effect::List => Self::List {},
            Effect::Saw(version) => Self::Saw { version: version.as_str().into() },
            Effect::Take => Self::Take {},
            Effect::Commit { .. } => Self::Commit {},
            Effect::Keep(stamp) => Self::Keep { path: stamp.path() },
            Effect::Remove(stamp) => Self::Remove { path: stamp.path() },
            Effect::WriteIndex(text) => Self::WriteIndex { text },
            Effect::KeepDraft => Self::KeepDraft {},
            Effect::Apply(Source::Current) => Self::Apply { path: CURRENT.into() },
            Effect::Apply(Source::Generation(stamp)) => Self::Apply { path: stamp.path() },
            Effect::Release => Self::Release {},
            Effect::Notice(notice) => Self::Tell { notice: notice.into() },
            Effect::Settle { call, done } => Self::Settle { call: call.0, done },
        }
    }
}

impl From<Notice> for NoticeView {
    fn from(notice: Notice) -> Self {
        match notice {
            Notice::Recovered => Self::Recovered {},
            Notice::RetriesFailed { said } => Self::RetriesFailed { said },
            Notice::HistoryDropped { generations } => Self::HistoryDropped { generations },
            Notice::HistoryFailed { said } => Self::HistoryFailed { said },
            Notice::SpaceLow { free } => Self::SpaceLow { free },
            Notice::DraftKept => Self::DraftKept {},
            Notice::Restored { stamp, before } => {
                Self::Restored { ts: stamp.text(), before: before.map(Stamp::text) }
            }
        }
    }
}

shape! {
    /// A saved version.
    pub struct GenerationView {
        /// When, in ISO 8601.
        pub ts: String,
        /// Where, below the project's folder.
        pub path: String,
        /// Its size.
        pub bytes: u64,
    }
}

impl GenerationView {
    /// The generations, the newest first.
    pub fn all(history: &History) -> Vec<Self> {
        let view = |Generation { stamp, bytes }: &Generation| Self {
            ts: stamp.text(),
            path: stamp.path(),
            bytes: *bytes,
        };
        history.generations().iter().rev().map(view).collect()
    }
}
