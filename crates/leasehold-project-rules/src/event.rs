//! The events of a project lock: published once in dialect `lock` (*Project lock states* 1.2), and translated into the dialects
//! `service` (*Project lock service* 1) and `autosave` (*AutoSave* 3.4); `docs/sources.md` describes all three. A translation is a function of one event: it remembers nothing.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::name::LeaseId;

use super::effect::{Ask, ReleaseReason};
use super::fault::{Fault, Operation, ProjectLockError};
use super::guarded::Holder;
use super::lease::ProjectLease;
use super::options::Strategy;

/// Something that happened, in the canonical dialect `lock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `lock:attempt`: it is being tried.
    Attempt {
        /// What is.
        operation: Operation,
        /// By which way.
        strategy: Strategy,
        /// How often it was tried before.
        retry: u32,
    },
    /// `lock:waiting`: another attempt to acquire will follow.
    Waiting {
        /// Which retry it will be: 1 is the first.
        retry: u32,
        /// When.
        delay: Duration,
    },
    /// `lock:held`: a look at `.lock` has shown who has the project; once per acquire, which goes on.
    Held(Holder),
    /// `lock:acquired`: the project is this tab's.
    Acquired {
        /// The lease.
        lease: ProjectLease,
        /// Whether a file that this tab has read or written has another version now.
        changed: bool,
    },
    /// `lock:renew-scheduled`: the next heartbeat is planned.
    RenewScheduled {
        /// The lease.
        lease: ProjectLease,
        /// When.
        next_heartbeat_in: Duration,
    },
    /// `lock:renewed`: the project stays this tab's.
    Renewed(ProjectLease),
    /// `lock:warning`: it goes on, in another way than hoped.
    Warning {
        /// What about.
        warning: Warning,
        /// More about it, for people.
        detail: Box<str>,
    },
    /// `lock:release-requested`: the project is being given back.
    ReleaseRequested {
        /// The lease.
        lease: ProjectLease,
        /// Why.
        reason: ReleaseReason,
    },
    /// `lock:released`: the project is free.
    Released(ProjectLease),
    /// `lock:error`: something failed.
    Error {
        /// What, and whether it is tried again.
        error: ProjectLockError,
        /// The attempt that has failed by it; absent when the attempt goes on in another way.
        attempt: Option<Attempt>,
        /// The lease that it is about.
        lease_id: Option<LeaseId>,
    },
    /// `lock:readonly-entered`: nothing may be saved from now on.
    ReadonlyEntered {
        /// Why.
        reason: Reason,
        /// The last thing that went wrong.
        last_error: ProjectLockError,
        /// The lease that is over; absent when there was none.
        lease_id: Option<LeaseId>,
        /// What a person can do where nothing else helps.
        manual_steps: Option<&'static str>,
    },
    /// `lock:handover-requested`: another tab asks this one, which holds the project, to save and hand it over.
    HandoverRequested(Arc<Ask>),
    /// `lock:handover-withdrawn`: that tab does not want it any more.
    HandoverWithdrawn(Arc<Ask>),
    /// `lock:handover-told`: the holder that this tab asks was told, and the countdown begins.
    HandoverTold {
        /// The holder.
        holder: Box<Holder>,
        /// How long it has.
        countdown: Duration,
    },
    /// `lock:available`: a tab that is read-only could have the project now.
    Available,
}

/// An attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which: 1 is the first.
    pub number: u32,
    /// How many there are; as many as it takes when absent.
    pub most: Option<u32>,
}

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Warning {
    /// Without the Web Lock; once per acquire.
    FallbackEngaged,
    /// `.lock` names another holder.
    FallbackDegraded,
    /// A heartbeat came more than a second late.
    HeartbeatDelayed,
    /// `.lock` and its modification time disagree.
    ClockSkew,
}

impl Warning {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 4] = [
        (Self::FallbackEngaged, "fallback-engaged"),
        (Self::FallbackDegraded, "fallback-degraded"),
        (Self::HeartbeatDelayed, "heartbeat-delayed"),
        (Self::ClockSkew, "clock-skew"),
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }
}

/// Why a tab is read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Another holder has the project, and it is no use to try again.
    FallbackConflict,
    /// The project was taken over, or the page was frozen.
    LeaseStale,
    /// There are no attempts left, whatever the last error was.
    AcquireTimeout,
    /// It could not be renewed.
    RenewFailed,
    /// It could not be released.
    ReleaseFailed,
    /// Nothing helps.
    Irrecoverable,
}

impl Reason {
    /// All of them, with their names.
    pub const WORDS: [(Self, &'static str); 6] = [
        (Self::FallbackConflict, "fallback-conflict"),
        (Self::LeaseStale, "lease-stale"),
        (Self::AcquireTimeout, "acquire-timeout"),
        (Self::RenewFailed, "renew-failed"),
        (Self::ReleaseFailed, "release-failed"),
        (Self::Irrecoverable, "irrecoverable"),
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        super::word(&Self::WORDS, self)
    }

    /// The reason's name in dialect `autosave`.
    pub const fn autosave(self) -> &'static str {
        match self {
            Self::FallbackConflict | Self::LeaseStale => "conflict",
            Self::AcquireTimeout | Self::RenewFailed => "timeout",
            Self::ReleaseFailed | Self::Irrecoverable => "irrecoverable",
        }
    }
}

impl Event {
    /// Its name in dialect `lock`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Attempt { .. } => "lock:attempt",
            Self::Waiting { .. } => "lock:waiting",
            Self::Held(_) => "lock:held",
            Self::Acquired { .. } => "lock:acquired",
            Self::RenewScheduled { .. } => "lock:renew-scheduled",
            Self::Renewed(_) => "lock:renewed",
            Self::Warning { .. } => "lock:warning",
            Self::ReleaseRequested { .. } => "lock:release-requested",
            Self::Released(_) => "lock:released",
            Self::Error { .. } => "lock:error",
            Self::ReadonlyEntered { .. } => "lock:readonly-entered",
            Self::HandoverRequested(_) => "lock:handover-requested",
            Self::HandoverWithdrawn(_) => "lock:handover-withdrawn",
            Self::HandoverTold { .. } => "lock:handover-told",
            Self::Available => "lock:available",
        }
    }
}

/// An event in dialect `service` (*Project lock service* 1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceEvent<'a> {
    /// `acquired`, `acquire-failed`, `renewed`, `expired`, `released`, `release-failed`, `backoff`, `switch-to-fallback`.
    pub kind: &'static str,
    /// The lease that it is about.
    pub lease: Option<&'a ProjectLease>,
    /// What went wrong.
    pub error: Option<&'a ProjectLockError>,
    /// Which attempt failed: 1 is the first.
    pub attempt: Option<u32>,
    /// How long it is waited.
    pub delay: Option<Duration>,
}

/// The event in dialect `service`, if that has a word for it.
pub fn service(event: &Event) -> Option<ServiceEvent<'_>> {
    let of = |kind| ServiceEvent { kind, ..ServiceEvent::default() };
    let lease = |kind, lease| ServiceEvent { lease: Some(lease), ..of(kind) };
    let failed = |kind, error| ServiceEvent { error: Some(error), ..of(kind) };
    match event {
        Event::Acquired { lease: held, .. } => Some(lease("acquired", held)),
        Event::Renewed(held) => Some(lease("renewed", held)),
        Event::Released(held) => Some(lease("released", held)),
        Event::Waiting { retry, delay } => {
            Some(ServiceEvent { attempt: Some(*retry), delay: Some(*delay), ..of("backoff") })
        }
        Event::Warning { warning: Warning::FallbackEngaged, .. } => Some(of("switch-to-fallback")),
        Event::Error { error, attempt, .. } => {
            let kind = failure(error)?;
            Some(ServiceEvent { attempt: attempt.map(|attempt| attempt.number), ..failed(kind, error) })
        }
        // This dialect has one word for a lease that ends against its holder's will. An expired one was published as an error.
        Event::ReadonlyEntered { reason: Reason::RenewFailed | Reason::LeaseStale, last_error, .. }
            if last_error.fault != Fault::Expired =>
        {
            Some(failed("expired", last_error))
        }
        _ => None,
    }
}

fn failure(error: &ProjectLockError) -> Option<&'static str> {
    match error.operation {
        _ if error.fault == Fault::Expired => Some("expired"),
        Operation::Acquire if !error.retryable => Some("acquire-failed"),
        Operation::Release => Some("release-failed"),
        Operation::Acquire | Operation::Renew | Operation::Look | Operation::Save => None,
    }
}

/// An event in dialect `autosave` (*AutoSave* 3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AutosaveEvent<'a> {
    /// `autosave.lock.stateChanged`.
    StateChanged {
        /// `acquired`, `renewed` or `released`.
        state: &'static str,
    },
    /// `autosave.lock.retry`: an attempt has failed.
    Retry {
        /// Which.
        attempt: Attempt,
        /// Whether another one follows.
        retryable: bool,
    },
    /// `autosave.lock.error`.
    Error {
        /// What went wrong.
        error: &'a ProjectLockError,
        /// The lease that it is about.
        lease_id: Option<LeaseId>,
    },
    /// `autosave.lock.readonly`.
    Readonly {
        /// Why.
        reason: Reason,
    },
}

impl AutosaveEvent<'_> {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::StateChanged { .. } => "autosave.lock.stateChanged",
            Self::Retry { .. } => "autosave.lock.retry",
            Self::Error { .. } => "autosave.lock.error",
            Self::Readonly { .. } => "autosave.lock.readonly",
        }
    }
}

/// The event in dialect `autosave`. A failed attempt is two events there, an error and a retry; the machine never becomes
/// read-only without one, so a retry comes before every read-only.
pub fn autosave(event: &Event) -> Vec<AutosaveEvent<'_>> {
    let state = |state| vec![AutosaveEvent::StateChanged { state }];
    match event {
        Event::Acquired { .. } => state("acquired"),
        Event::Renewed(_) => state("renewed"),
        Event::Released(_) => state("released"),
        Event::Error { error, attempt, lease_id } => {
            let retry = attempt.map(|attempt| AutosaveEvent::Retry { attempt, retryable: error.retryable });
            let error = AutosaveEvent::Error { error, lease_id: *lease_id };
            std::iter::once(error).chain(retry).collect()
        }
        Event::ReadonlyEntered { reason, last_error, .. } => {
            // A live second tab is a conflict here (*AutoSave* 3.4, 6.2, 8), although it ends when the attempts are used up.
            let reason = match (reason, last_error.fault) {
                (Reason::AcquireTimeout, Fault::Conflict) => Reason::FallbackConflict,
                _ => *reason,
            };
            vec![AutosaveEvent::Readonly { reason }]
        }
        _ => Vec::new(),
    }
}
