//! What a server decided against, and what is known about a call that it did not answer.

use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_core::lease::LossReason;
use leasehold_core::wire::documents::{Held, Problem};
use leasehold_store::Retry;

/// Why a call did not come to what was asked for. Each variant is something to decide about.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another user holds the document, or the caller in another tab.
    #[error("{} holds the document; wait for it, or ask them to hand it over", .0.holder.name)]
    Held(Box<Held>),
    /// There is no such document for this caller.
    #[error(
        "there is no such document for this caller; check its name, and the `documents` claim of the token"
    )]
    NotFound,
    /// The document has no holder, so there is nothing to renew, release or answer.
    #[error("there is no lock on the document; lock it first")]
    LockNotFound {
        /// How the lock that the call was about ended, if the server still knows.
        because: Option<LossReason>,
    },
    /// The lock is another's.
    #[error("another holds the lock; lock the document first")]
    NotHolder {
        /// How the lock that the call was about ended, if the server still knows.
        because: Option<LossReason>,
    },
    /// The token does not permit it.
    #[error("the token does not permit that{}", words(.detail))]
    NotAllowed {
        /// What exactly, in the server's words.
        detail: Option<String>,
    },
    /// The lease id that was sent is over, and never stands for a lock again.
    #[error("the lease id is over ({}); draw a new one", .because.as_str())]
    LeaseOver {
        /// How it ended.
        because: LossReason,
        /// Who works on the job instead, if it is about one and anybody does.
        held: Option<Box<Held>>,
    },
    /// There is no such job for this caller.
    #[error("there is no such job for this caller; check its name, and the `jobs` claim of the token")]
    JobNotFound,
    /// Nobody holds the lease, or the token has no grant for it.
    #[error(
        "nobody holds the lease, or the token has no grant for it; check its name, and the `leases` claim of the token"
    )]
    LeaseNotFound,
    /// There is a job with this id, and it is another one.
    #[error("there is a job with this id and another payload; the same id always means the same work")]
    JobDiffers,
    /// A worker has the job.
    #[error("{} is working on the job; wait until that is over", .0.holder.name)]
    JobRunning(Box<Held>),
    /// There is no such request to hand over (any more).
    #[error("there is no such request to hand over any more")]
    NoRequest,
    /// The server writes down nowhere what was done to others' locks.
    #[error("the server keeps no audit; its operator can set `audit_file`")]
    NoAudit,
    /// Another has requested the document before; there is one request at a time.
    #[error("another has requested the document already; wait for the holder's answer to them")]
    RequestedByAnother {
        /// Who holds the document, if the server said so.
        held: Option<Box<Held>>,
    },
    /// The caller holds as many locks as it may.
    #[error("the caller holds as many locks as one may; release some{}", words(.detail))]
    TooManyLeases {
        /// In the server's words.
        detail: Option<String>,
    },
    /// The caller asks too often, or has too many event streams open. Nothing was done.
    #[error("rate limited by the server{}", words(.detail))]
    TooMany {
        /// How long to wait.
        retry_after: Option<Duration>,
        /// In the server's words.
        detail: Option<String>,
    },
    /// The server does not know who is calling.
    #[error("the server does not accept the token{}", words(.detail))]
    Unauthenticated {
        /// Why, in the server's words.
        detail: Option<String>,
    },
    /// What was sent breaks a rule of the server.
    #[error("the server refused what was sent{}", words(.detail))]
    Refused {
        /// The server's code for it, such as `too_large`.
        code: String,
        /// In the server's words.
        detail: Option<String>,
    },
    /// What was to be sent breaks a rule.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There was no answer, or none that says anything.
    #[error("the server is unavailable: {what}; {}", advice(*.retry))]
    Unavailable {
        /// What is wrong.
        what: String,
        /// What is known about the call, and so how it may be repeated.
        retry: Retry,
        /// How long the server wants to be left alone.
        retry_after: Option<Duration>,
    },
}

fn words(detail: &Option<String>) -> String {
    detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default()
}

fn advice(retry: Retry) -> &'static str {
    match retry {
        Retry::No => "trying again will not help before that is dealt with",
        Retry::Safe => "nothing was changed, try again",
        Retry::Unknown => "it may or may not have been done, try again with the same lease id",
    }
}

impl Error {
    /// How the call may be repeated.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable { retry, .. } => *retry,
            Self::Held(_) | Self::JobRunning(_) | Self::RequestedByAnother { .. } | Self::TooMany { .. } => {
                Retry::Safe
            }
            _ => Retry::No,
        }
    }

    /// How long to wait before that, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } | Self::TooMany { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    pub(crate) fn unavailable(what: impl Into<String>, retry: Retry) -> Self {
        Self::Unavailable { what: what.into(), retry, retry_after: None }
    }

    pub(crate) fn no_answer(within: Duration) -> Self {
        Self::unavailable(format!("it did not answer within {within:?}"), Retry::Unknown)
    }

    pub(super) fn no_such_address(url: &str) -> Self {
        Self::unavailable(format!("{url} cannot be an address of it"), Retry::No)
    }

    /// What the problem that came with `status` means.
    pub(super) fn from_problem(problem: Problem, retry_after: Option<Duration>) -> Self {
        let Problem { status, code, detail, held, because, .. } = problem;
        let held = held.map(Box::new);
        let because = because.as_deref().and_then(LossReason::parse);
        match (code.as_str(), held) {
            ("held", Some(held)) => Self::Held(held),
            ("not_found", _) => Self::NotFound,
            ("lock_not_found", _) => Self::LockNotFound { because },
            ("not_holder", _) => Self::NotHolder { because },
            ("not_allowed", _) => Self::NotAllowed { detail },
            ("lease_over", held) => Self::LeaseOver { because: because.unwrap_or(LossReason::Unknown), held },
            ("job_not_found", _) => Self::JobNotFound,
            ("lease_not_found", _) => Self::LeaseNotFound,
            ("job_differs", _) => Self::JobDiffers,
            ("job_running", Some(held)) => Self::JobRunning(held),
            ("no_request", _) => Self::NoRequest,
            ("no_audit", _) => Self::NoAudit,
            ("requested_by_another", held) => Self::RequestedByAnother { held },
            ("too_many_leases", _) => Self::TooManyLeases { detail },
            ("unauthenticated", _) => Self::Unauthenticated { detail },
            _ if status == 429 => Self::TooMany { retry_after, detail },
            _ if status >= 500 => Self::in_trouble(status, &detail, retry_after),
            _ => Self::Refused { code, detail },
        }
    }

    /// An answer of the server, or of something in front of it, that says no more than its status.
    pub(super) fn from_status(status: u16, retry_after: Option<Duration>) -> Self {
        match status {
            401 => Self::Unauthenticated { detail: None },
            429 => Self::TooMany { retry_after, detail: None },
            500.. => Self::in_trouble(status, &None, retry_after),
            300..=399 => {
                let what = format!("it answered with a redirect ({status}), which is not followed");
                Self::unavailable(format!("{what}; give the address that it points to"), Retry::No)
            }
            _ => {
                let what = format!("it answered with status {status} and without a reason");
                Self::unavailable(format!("{what}; is this a Leasehold server?"), Retry::No)
            }
        }
    }

    fn in_trouble(status: u16, detail: &Option<String>, retry_after: Option<Duration>) -> Self {
        let what = format!("it answered with status {status}{}", words(detail));
        Self::Unavailable { what, retry: Retry::Unknown, retry_after }
    }

    /// The call got no answer at all.
    pub(super) fn from_transport(error: reqwest::Error) -> Self {
        // The caller knows the address, and it may hold what should not be shown.
        let error = error.without_url();
        let what = causes(&error);
        match &error {
            _ if error.is_connect() && what.contains("certificate") => {
                let fix = "if you trust it, give the certificate of its authority as a root certificate";
                Self::unavailable(format!("{what}; {fix}"), Retry::No)
            }
            _ if error.is_connect() => Self::unavailable(what, Retry::Safe),
            _ if error.is_builder() => Self::unavailable(what, Retry::No),
            _ => Self::unavailable(what, Retry::Unknown),
        }
    }
}

/// An error with all that led to it, for people.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words = format!("{words}: {cause_words}");
        }
        source = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> Error {
        Error::from_problem(serde_json::from_str(json).unwrap(), Some(Duration::from_secs(2)))
    }

    #[test]
    fn every_code_is_a_decision() {
        let cases = [
            (404, "not_found", "NotFound"),
            (404, "lock_not_found", "LockNotFound { because: None }"),
            (403, "not_holder", "NotHolder { because: None }"),
            (403, "not_allowed", "NotAllowed { detail: Some(\"d\") }"),
            (410, "lease_over", "LeaseOver { because: Unknown, held: None }"),
            (404, "job_not_found", "JobNotFound"),
            (409, "job_differs", "JobDiffers"),
            (404, "no_request", "NoRequest"),
            (409, "requested_by_another", "RequestedByAnother { held: None }"),
            (429, "too_many_leases", "TooManyLeases { detail: Some(\"d\") }"),
            (429, "too_many_requests", "TooMany { retry_after: Some(2s), detail: Some(\"d\") }"),
            (429, "too_many_streams", "TooMany { retry_after: Some(2s), detail: Some(\"d\") }"),
            (401, "unauthenticated", "Unauthenticated { detail: Some(\"d\") }"),
            (400, "invalid", "Refused { code: \"invalid\", detail: Some(\"d\") }"),
            (413, "too_large", "Refused { code: \"too_large\", detail: Some(\"d\") }"),
        ];
        for (status, code, expected) in cases {
            let json = format!(
                r#"{{"type":"about:blank","title":"t","status":{status},"code":"{code}","detail":"d"}}"#
            );
            assert_eq!(format!("{:?}", problem(&json)), expected);
        }
    }

    #[test]
    fn who_holds_it_comes_with_the_refusal() {
        let error = problem(
            r#"{"type":"x","title":"t","status":409,"code":"held","holder":{"id":"a","name":"Anna"},"fence":7,
               "expires_at":"2026-01-01T00:00:00Z","expires_in_ms":5000,"same_user":false}"#,
        );
        assert!(matches!(&error, Error::Held(held) if held.fence == 7), "{error:?}");
        assert!(error.to_string().contains("Anna"), "{error}");
        let over =
            problem(r#"{"type":"x","title":"t","status":410,"code":"lease_over","because":"refused"}"#);
        assert!(matches!(over, Error::LeaseOver { because: LossReason::Refused, .. }), "{over:?}");
    }

    #[test]
    fn trouble_is_unknown_and_says_when_to_come_back() {
        let error = problem(r#"{"type":"x","title":"t","status":503,"code":"unavailable"}"#);
        assert_eq!((error.retry(), error.retry_after()), (Retry::Unknown, Some(Duration::from_secs(2))));
        assert_eq!(Error::from_status(502, None).retry(), Retry::Unknown);
        assert_eq!(Error::from_status(302, None).retry(), Retry::No);
    }
}
