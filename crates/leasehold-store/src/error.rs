//! What can go wrong in a store, told as decisions that a caller can take.

use std::path::PathBuf;

use leasehold_core::Invalid;

/// Why a store did not answer. A refusal (held, lost, …) is not an error: it is an `Outcome`.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The input breaks a rule.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store cannot do it now. Nothing that was acknowledged is lost.
    #[error("the store is unavailable: {what}; {}", .retry.advice())]
    Unavailable {
        /// What is wrong.
        what: String,
        /// Whether and how to try again.
        retry: Retry,
    },
    /// Another process has the file open in a way that rules this one out.
    #[error("{} is in use by {by}; {fix}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// Who has it.
        by: String,
        /// What to do.
        fix: String,
    },
    /// The file is there, but it cannot be trusted.
    #[error(
        "{path} is damaged: {what}; it was left as it is. Look closer with `leasehold store check {path}`, go back to \
         a backup with `leasehold store restore BACKUP {path}`, or keep what is readable with \
         `leasehold store repair {path}`", path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file is something else altogether.
    #[error("{} is not a Leasehold store: {what}; name another file, or one that does not exist yet", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file was written by a later version, whose rules this one does not know.
    #[error(
        "{} has schema {found}, and this version knows schemas up to {known}; upgrade Leasehold, it was left as it \
         is", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest one that this version knows.
        known: i64,
    },
    /// The store was closed while the request was waiting.
    #[error("the store was closed; open it again")]
    Closed,
}

/// What is known about a request that failed, and so how it may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It will fail again until somebody does something about it.
    No,
    /// It was not carried out: repeat it as you like.
    Safe,
    /// It may have been carried out: repeat it with the same lease id, which gives the same answer.
    Unknown,
}

impl Retry {
    fn advice(self) -> &'static str {
        match self {
            Self::No => "trying again will not help before that is dealt with",
            Self::Safe => "nothing was changed, try again",
            Self::Unknown => "it may or may not have been done, try again with the same lease id",
        }
    }
}

impl Error {
    /// How the request may be repeated.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable { retry, .. } => *retry,
            Self::Closed => Retry::Unknown,
            Self::InUse { .. } => Retry::Safe,
            Self::Invalid(_) | Self::Damaged { .. } | Self::NotAStore { .. } | Self::Newer { .. } => {
                Retry::No
            }
        }
    }
}

/// What a store answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its causes, which libraries leave out of its text.
#[cfg(any(feature = "postgres", feature = "firestore"))]
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
