//! Firestore's trouble in our words: what is known about the command, and whether it is worth another try right away.

use gcloud_sdk::tonic::{Code, Status};
use leasehold_core::Invalid;

use crate::error::with_causes;
use crate::{Error, Retry};

/// Why an attempt failed.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) error: Error,
    /// How often to try again before the caller hears of it: never, unless nothing was done and it may well work.
    pub(super) again: u32,
}

/// Others were at the same document, and will be done with it soon.
const CONTENDED: u32 = 7;

/// The connection was lost. A new one is there at once or not at all.
const CUT_OFF: u32 = 2;

const NEVER: u32 = 0;

pub(super) type TroubleResult<T> = Result<T, Trouble>;

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has been written.
    Reading,
    /// It may have been.
    Committing,
}

const SIGN_IN: &str = "sign in with `gcloud auth application-default login`, name a service account's key in \
    GOOGLE_APPLICATION_CREDENTIALS, or name an emulator in FIRESTORE_EMULATOR_HOST";

impl Trouble {
    fn unavailable(what: String, retry: Retry, again: u32) -> Self {
        Self { error: Error::Unavailable { what, retry }, again }
    }

    /// What Firestore, or the way there, said.
    pub(super) fn new(status: &Status, phase: Phase) -> Self {
        let code = status.code();
        let what = format!("Firestore says: {} ({code:?})", status.message());
        match (code, phase) {
            // Another program has the document: this transaction was undone.
            (Code::Aborted, _) => Self::unavailable(what, Retry::Safe, CONTENDED),
            // Refused before it was looked at.
            (Code::ResourceExhausted, _) => Self::unavailable(what, Retry::Safe, CONTENDED),
            (Code::Unauthenticated, _) => Self::unavailable(format!("{what}: {SIGN_IN}"), Retry::No, NEVER),
            (
                Code::PermissionDenied
                | Code::NotFound
                | Code::FailedPrecondition
                | Code::Unimplemented
                | Code::OutOfRange,
                _,
            ) => Self::unavailable(what, Retry::No, NEVER),
            // The transaction was idle for too long, and is over.
            (Code::InvalidArgument, Phase::Committing) if what.to_lowercase().contains("transaction") => {
                Self::unavailable(what, Retry::Safe, CUT_OFF)
            }
            (Code::InvalidArgument | Code::AlreadyExists, _) => Self::unavailable(what, Retry::No, NEVER),
            (Code::DeadlineExceeded, Phase::Reading) => Self::unavailable(what, Retry::Safe, NEVER),
            (_, Phase::Reading) => Self::unavailable(what, Retry::Safe, CUT_OFF),
            (_, Phase::Committing) => Self::unavailable(what, Retry::Unknown, NEVER),
        }
    }

    /// No connection, or no credentials.
    pub(super) fn connecting(error: &gcloud_sdk::error::Error) -> Self {
        use gcloud_sdk::error::ErrorKind;
        match error.kind() {
            ErrorKind::GrpcStatus(error) => {
                let what = format!("there is no connection to Firestore: {}", with_causes(error));
                Self::unavailable(what, Retry::Safe, NEVER)
            }
            _ => {
                let what = format!("no sign-in to Firestore: {}: {SIGN_IN}", with_causes(error));
                Self::unavailable(what, Retry::No, NEVER)
            }
        }
    }

    pub(super) fn late() -> Self {
        let what = "connecting to Firestore took too long".to_owned();
        Self::unavailable(what, Retry::Safe, NEVER)
    }

    /// It answered what its own rules do not allow.
    pub(super) fn strange(what: &str) -> Self {
        Self::unavailable(format!("Firestore {what}"), Retry::Safe, NEVER)
    }
}

/// Asked for what this document does not allow: nothing was written.
impl From<Invalid> for Trouble {
    fn from(invalid: Invalid) -> Self {
        Self { error: invalid.into(), again: NEVER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_tells_whether_to_repeat_it() {
        use Phase::{Committing, Reading};
        let cases = [
            (Code::Aborted, Reading, Retry::Safe, CONTENDED),
            (Code::Aborted, Committing, Retry::Safe, CONTENDED),
            (Code::ResourceExhausted, Committing, Retry::Safe, CONTENDED),
            (Code::Unavailable, Reading, Retry::Safe, CUT_OFF),
            (Code::Unavailable, Committing, Retry::Unknown, NEVER),
            (Code::DeadlineExceeded, Reading, Retry::Safe, NEVER),
            (Code::DeadlineExceeded, Committing, Retry::Unknown, NEVER),
            (Code::Internal, Committing, Retry::Unknown, NEVER),
            (Code::Unknown, Committing, Retry::Unknown, NEVER),
            (Code::Cancelled, Committing, Retry::Unknown, NEVER),
            (Code::PermissionDenied, Committing, Retry::No, NEVER),
            (Code::Unauthenticated, Reading, Retry::No, NEVER),
            (Code::NotFound, Reading, Retry::No, NEVER),
            (Code::InvalidArgument, Reading, Retry::No, NEVER),
        ];
        for (code, phase, retry, again) in cases {
            let trouble = Trouble::new(&Status::new(code, "so it is"), phase);
            assert_eq!((trouble.error.retry(), trouble.again), (retry, again), "{code:?} {phase:?}");
        }
        let expired = Status::new(Code::InvalidArgument, "The referenced transaction has expired");
        let trouble = Trouble::new(&expired, Committing);
        assert_eq!((trouble.error.retry(), trouble.again), (Retry::Safe, CUT_OFF));
    }
}
