//! The project lock as JSON: what crosses the border between WebAssembly and the page. The names are those of the sources,
//! in camelCase. (`project/.lock` itself is read and written in `record.rs`.)
//!
//! A lease id stands in the clear here: at this door it is in a file that every tab reads.

use serde::Serialize;

use leasehold_core::name::Fence;
use leasehold_core::time::whole_millis;

use crate::event::{self, AutosaveEvent, Event, ServiceEvent};
use crate::fault::Cause;
use crate::guarded::Step;
use crate::root::file;
use crate::{Effect, News, ProjectLease, ProjectLockError, Settled};

/// Something that the shell is to do: `do`, and whatever of the rest it has. What is wanted in a guarded section and what
/// it came to stay on this side of the border.
#[derive(Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectView {
    /// `requestWebLock`, `dropWebLock`, `guarded`, `emit`, `broadcast` or `settle`.
    #[serde(rename = "do")]
    pub what: &'static str,
    /// The number to report under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket: Option<u32>,
    /// Whether to take the Web Lock from whoever has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub steal: bool,
    /// What to tell those who subscribed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Box<DialectsView>>,
    /// What to tell the other tabs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub news: Option<NewsView>,
    /// The call that is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
    /// With this lease; neither lease nor error: released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<ProjectLeaseView>,
    /// With this error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
}

impl From<&Effect> for EffectView {
    fn from(effect: &Effect) -> Self {
        let mut view = Self::default();
        match effect {
            Effect::RequestWebLock { ticket, steal } => {
                (view.what, view.ticket, view.steal) = ("requestWebLock", Some(ticket.0), *steal);
            }
            Effect::DropWebLock(ticket) => (view.what, view.ticket) = ("dropWebLock", Some(ticket.0)),
            Effect::Guarded { ticket, .. } => (view.what, view.ticket) = ("guarded", Some(ticket.0)),
            Effect::Emit(event) => (view.what, view.event) = ("emit", Some(Box::new(event.into()))),
            Effect::Broadcast(news) => (view.what, view.news) = ("broadcast", Some(news.into())),
            Effect::Settle { call, answer } => {
                (view.what, view.call) = ("settle", Some(call.0));
                match answer {
                    Ok(Settled::Acquired(lease) | Settled::Renewed(lease)) => view.lease = Some(lease.into()),
                    Ok(Settled::Released) => {}
                    Err(error) => view.error = Some(error.into()),
                }
            }
        }
        view
    }
}

/// What tabs tell each other: who has the project now; without an owner, that it was given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // the same as in `News`
pub struct NewsView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    pub fence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl From<&News> for NewsView {
    fn from(news: &News) -> Self {
        match news {
            News::Acquired { owner, fence, why } => Self {
                owner: Some(owner.as_str().to_owned()),
                fence: fence.get(),
                why: why.as_ref().map(|why| why.as_str().to_owned()),
            },
            News::Released { fence } => Self { owner: None, fence: fence.get(), why: None },
        }
    }
}

/// Something to be done in the folder, under the guard: `do`, and whatever of the rest it has.
#[derive(Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// `storeFence`, `openHeld`, `writeLock`, `removeLock`, `closeHeld` or `sweepHeld`.
    #[serde(rename = "do")]
    pub what: &'static str,
    /// What to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What to write if the held file of this section could not be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_held: Option<String>,
    /// The held file (to keep, in `sweepHeld`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it goes on if this fails.
    pub may_fail: bool,
}

impl From<&Step> for StepView {
    fn from(step: &Step) -> Self {
        let of = |what| Self { what, may_fail: step.may_fail(), ..Self::default() };
        let held = |fence: &Fence| Some(file::held(*fence));
        match step {
            Step::StoreFence { text } => Self { text: Some(text.clone()), ..of("storeFence") },
            Step::OpenHeld(fence) => Self { name: held(fence), ..of("openHeld") },
            Step::WriteLock { text, without_held } => {
                Self { text: Some(text.clone()), without_held: Some(without_held.clone()), ..of("writeLock") }
            }
            Step::RemoveLock => of("removeLock"),
            Step::CloseHeld(fence) => Self { name: held(fence), ..of("closeHeld") },
            Step::SweepHeld { keep } => Self { name: held(keep), ..of("sweepHeld") },
        }
    }
}

/// A lease, as the application gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // the same as in `ProjectLease`
pub struct ProjectLeaseView {
    pub lease_id: String,
    pub owner: String,
    pub expires_at: u64,
    pub acquired_at: u64,
    pub ttl_millis: u64,
    pub next_heartbeat_at: u64,
    pub source: &'static str,
    pub strategy: &'static str,
    pub via_fallback: bool,
    pub fence: u64,
    pub guarantee: &'static str,
}

impl From<&ProjectLease> for ProjectLeaseView {
    fn from(lease: &ProjectLease) -> Self {
        Self {
            lease_id: lease.lease_id.reveal(),
            owner: lease.owner.as_str().to_owned(),
            expires_at: lease.expires_at.as_millis(),
            acquired_at: lease.acquired_at.as_millis(),
            ttl_millis: lease.ttl.as_millis(),
            next_heartbeat_at: lease.next_heartbeat_at.as_millis(),
            source: lease.strategy.source(),
            strategy: lease.strategy.as_str(),
            via_fallback: lease.via_fallback,
            fence: lease.fence.get(),
            guarantee: lease.guarantee.as_str(),
        }
    }
}

/// An error, as the application gets it: `new ProjectLockError(message, …)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // the same as in `ProjectLockError`
pub struct ErrorView {
    /// The class to throw.
    pub name: &'static str,
    pub code: &'static str,
    pub retryable: bool,
    pub operation: &'static str,
    pub message: String,
    /// How loud it is in a log.
    pub level: &'static str,
    /// Another error behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Box<Self>>,
    /// What the browser or the system said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

impl From<&ProjectLockError> for ErrorView {
    fn from(error: &ProjectLockError) -> Self {
        let (cause, said) = match &error.cause {
            None => (None, None),
            Some(Cause::Fault(cause)) => (Some(Box::new(Self::from(&**cause))), None),
            Some(Cause::Said(said)) => (None, Some(said.to_string())),
        };
        Self {
            name: error.class().as_str(),
            code: error.code(),
            retryable: error.retryable,
            operation: error.operation.as_str(),
            message: error.to_string(),
            level: error.level().as_str(),
            cause,
            said,
        }
    }
}

/// An event in any of the three dialects: `type`, and whatever of the rest it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // the same as in the events
pub struct ProjectEventView {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<ProjectLeaseView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_heartbeat_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorOrCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ErrorView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual_steps: Option<&'static str>,
}

/// An error, or in dialect `autosave` its code alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum ErrorOrCode {
    Error(Box<ErrorView>),
    Code(&'static str),
}

impl From<&ProjectLockError> for ErrorOrCode {
    fn from(error: &ProjectLockError) -> Self {
        Self::Error(Box::new(error.into()))
    }
}

/// One event in all three dialects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DialectsView {
    /// The canonical one.
    pub lock: ProjectEventView,
    /// 000; absent when it has no word for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ProjectEventView>,
    /// 002; none, one or two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub autosave: Vec<ProjectEventView>,
}

impl From<&Event> for DialectsView {
    fn from(event: &Event) -> Self {
        Self {
            lock: event.into(),
            service: event::service(event).as_ref().map(ProjectEventView::from),
            autosave: event::autosave(event).iter().map(ProjectEventView::from).collect(),
        }
    }
}

// Field by field: a struct of this size that is put together anew in every arm is moved about in every arm.
impl From<&Event> for ProjectEventView {
    fn from(event: &Event) -> Self {
        let mut view = Self { kind: event.name(), ..Self::default() };
        match event {
            Event::Attempt { operation, strategy, retry } => {
                view.operation = Some(operation.as_str());
                view.strategy = Some(strategy.as_str());
                view.retry = Some(*retry);
            }
            Event::Waiting { retry, delay } => {
                view.retry = Some(*retry);
                view.delay_ms = Some(whole_millis(*delay));
            }
            Event::Acquired(lease) | Event::Renewed(lease) | Event::Released(lease) => {
                view.lease = Some(lease.into());
            }
            Event::ReleaseRequested { lease, reason } => {
                view.lease = Some(lease.into());
                view.reason = Some(reason.as_str());
            }
            Event::RenewScheduled { lease, next_heartbeat_in } => {
                view.lease = Some(lease.into());
                view.next_heartbeat_in_ms = Some(whole_millis(*next_heartbeat_in));
            }
            Event::Warning { warning, detail } => {
                view.warning = Some(warning.as_str());
                view.detail = Some(detail.to_string());
            }
            Event::Error { error, .. } => {
                view.operation = Some(error.operation.as_str());
                view.error = Some(error.into());
                view.retryable = Some(error.retryable);
            }
            Event::ReadonlyEntered { reason, last_error, lease_id, manual_steps } => {
                view.reason = Some(reason.as_str());
                view.lease_id = lease_id.map(|id| id.reveal());
                view.last_error = Some(last_error.into());
                view.manual_steps = *manual_steps;
            }
            Event::Available => {}
        }
        view
    }
}

impl From<&ServiceEvent> for ProjectEventView {
    fn from(event: &ServiceEvent) -> Self {
        Self {
            kind: event.kind,
            lease: event.lease.as_ref().map(ProjectLeaseView::from),
            error: event.error.as_ref().map(ErrorOrCode::from),
            attempt: event.attempt,
            delay_ms: event.delay.map(whole_millis),
            ..Self::default()
        }
    }
}

impl From<&AutosaveEvent> for ProjectEventView {
    fn from(event: &AutosaveEvent) -> Self {
        let mut view = Self { kind: event.name(), ..Self::default() };
        match event {
            AutosaveEvent::StateChanged { state } => view.state = Some(state),
            AutosaveEvent::Retry { attempt, retryable } => {
                view.attempt = Some(attempt.number);
                view.max_attempts = attempt.most;
                view.retryable = Some(*retryable);
            }
            AutosaveEvent::Error { error, lease_id } => {
                view.error = Some(ErrorOrCode::Code(error.code()));
                view.retryable = Some(error.retryable);
                view.lease_id = lease_id.map(|id| id.reveal());
            }
            AutosaveEvent::Readonly { reason } => view.reason = Some(reason.autosave()),
        }
        view
    }
}
