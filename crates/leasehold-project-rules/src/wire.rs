//! The project lock as JSON: what crosses the border from WebAssembly to the page. The names are those of the sources, in
//! camelCase. Each type describes itself ([`shape!`]), so that TypeScript's types are made from it. Views borrow what they
//! show: copies of texts, and the code that makes and drops them, would be a tenth of what a page loads.
//!
//! A lease id stands in the clear here: at this door it is in a file that every tab reads.

pub mod json;
pub mod shape;

use std::borrow::Cow;

use leasehold_core::name::{Fence, LeaseId};
use leasehold_core::time::whole_millis;

use crate::event::{self, AutosaveEvent, Event, ServiceEvent};
use crate::fault::Cause;
use crate::guarded::Holder;
use crate::options::ON_SILENCE;
use crate::record::{Record, VERSION, guard_text, label_text};
use crate::shape;
use crate::{
    Ask, Effect, IoStep, News, NotSaved, Operation, Profile, ProjectLease, ProjectLockError, Settled, word,
};

use self::json::{Json, begin_member, begin_object, write_list};
use self::shape::Shape;

/// A code of [`TABLE`](crate::fault::TABLE).
pub type ErrorCode = &'static str;

/// A word of [`Operation::WORDS`](crate::Operation::WORDS).
pub type OperationWord = &'static str;

/// A word of [`Strategy::WORDS`](crate::Strategy::WORDS).
pub type StrategyWord = &'static str;

/// A word of [`Guarantee::WORDS`](crate::Guarantee::WORDS).
pub type GuaranteeWord = &'static str;

/// A word of [`State::WORDS`](crate::State::WORDS), or `faulted` in profile `service`.
pub type StateWord = &'static str;

/// A word of [`Say::WORDS`](crate::Say::WORDS).
pub type SayWord = &'static str;

/// A word of [`ON_SILENCE`].
pub type OnSilenceWord = &'static str;

/// Which project of a page something is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectName {
    /// Its folder.
    pub root: String,
    /// Its Web Lock.
    pub lock_name: String,
}

/// All of them.
pub const SHAPES: &[Shape] = &[
    EffectView::SHAPE,
    StepView::SHAPE,
    RecordView::SHAPE,
    NewsView::SHAPE,
    AskView::SHAPE,
    ProjectLeaseView::SHAPE,
    HolderView::SHAPE,
    ErrorView::SHAPE,
    ProjectEventView::SHAPE,
    DialectsView::SHAPE,
];

shape! {
    /// Something that the page is to do.
    pub enum EffectView<'a> {
        /// Request the Web Lock, and report by `webLock`.
        RequestWebLock {
            /// The number to report under.
            ticket: u32,
            /// Whether to take the Web Lock from its holder.
            steal: bool,
        },
        /// Release the Web Lock, or give up the request for it.
        DropWebLock {
            /// The number of the request.
            ticket: u32,
        },
        /// Do one step in the folder, and report by the request that the step names. There is at most one at a time.
        Io {
            /// What to do.
            step: StepView<'a>,
        },
        /// Close a held file at once, without the guard, and leave it there. Nothing is reported.
        DropHeld {
            /// Its fence.
            fence: u64,
        },
        /// Tell the subscribers.
        Emit {
            /// What happened.
            event: EventOf<'a>,
        },
        /// Tell the other tabs.
        Broadcast {
            /// What happened.
            news: NewsView<'a>,
        },
        /// Answer a call: with a lease, a holder, an error, or with none of them if it was released, or has no holder.
        Settle {
            /// The number of the call.
            call: u32,
            /// The lease.
            lease: Option<ProjectLeaseView<'a>>,
            /// Who has the project.
            holder: Option<&'a Holder>,
            /// The error.
            error: Option<&'a ProjectLockError>,
        },
        /// Answer a save: with an error, or without if the file was replaced.
        Saved {
            /// The number of the call.
            call: u32,
            /// The error.
            error: Option<ErrorOf<'a>>,
        },
    }
}

impl<'a> EffectView<'a> {
    /// What the page is to do for this project; errors of the folder in the words of this profile.
    pub fn new(effect: &'a Effect, profile: Profile, project: &'a ProjectName) -> Self {
        match effect {
            Effect::RequestWebLock { ticket, steal } => {
                Self::RequestWebLock { ticket: ticket.0, steal: *steal }
            }
            Effect::DropWebLock(ticket) => Self::DropWebLock { ticket: ticket.0 },
            Effect::Io(step) => Self::Io { step: step.into() },
            Effect::DropHeld(fence) => Self::DropHeld { fence: fence.get() },
            Effect::Emit(event) => Self::Emit { event: EventOf { event, project } },
            Effect::Broadcast(news) => Self::Broadcast { news: news.into() },
            Effect::Settle { call, answer } => {
                let (mut lease, mut holder, mut error) = (None, None, None);
                match answer {
                    Ok(Settled::Acquired(held) | Settled::Renewed(held)) => {
                        lease = Some(ProjectLeaseView::new(held, project));
                    }
                    Ok(Settled::Released | Settled::Looked(None)) => {}
                    Ok(Settled::Looked(Some(found))) => holder = Some(found),
                    Err(why) => error = Some(why),
                }
                Self::Settle { call: call.0, lease, holder, error }
            }
            Effect::Saved { call, saved } => {
                let error = match saved {
                    Ok(()) => None,
                    Err(NotSaved::Lost(error) | NotSaved::StaleBase(error)) => {
                        Some(ErrorOf(Cow::Borrowed(error)))
                    }
                    Err(NotSaved::Folder(error)) => {
                        Some(ErrorOf(Cow::Owned(error.told(Operation::Save, profile))))
                    }
                };
                Self::Saved { call: call.0, error }
            }
        }
    }
}

/// What the page is to do, one after the other: a list of [`EffectView`]s, none of which is made before it is written.
#[derive(Default)]
pub struct EffectList {
    /// What to do.
    pub effects: Vec<Effect>,
    /// In whose words errors of the folder are.
    pub profile: Profile,
    /// Which project it is about.
    pub project: ProjectName,
}

impl Json for EffectList {
    fn write(&self, out: &mut Vec<u8>) {
        let view = |effect| EffectView::new(effect, self.profile, &self.project);
        write_list(self.effects.iter().map(view), out);
    }
}

/// An event of a project, which is written as [`DialectsView`].
pub struct EventOf<'a> {
    /// What happened.
    pub event: &'a Event,
    /// To which project.
    pub project: &'a ProjectName,
}

/// Written as [`DialectsView`], of which no more than one event is made at a time.
impl Json for EventOf<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let Self { event, project } = self;
        begin_object("", out);
        ProjectEventView::of_lock(event, project).write_member("lock", out);
        if let Some(event) = event::service(event) {
            ProjectEventView::of_service(&event, project).write_member("service", out);
        }
        begin_member("autosave", out);
        let autosave = event::autosave(event);
        write_list(autosave.iter().map(|event| ProjectEventView::of_autosave(event, project)), out);
        out.push(b'}');
    }
}

/// An error that may have been put together just now; written as [`ErrorView`].
pub struct ErrorOf<'a>(Cow<'a, ProjectLockError>);

impl Json for ErrorOf<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

shape! {
    /// What tabs tell each other: who has the project now; without an owner, that it was given back. With `say`, it is about the
    /// request of this owner to hand the project over.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct NewsView<'a> {
        pub owner: Option<&'a str>,
        pub fence: u64,
        pub why: Option<&'a str>,
        pub say: Option<SayWord>,
        pub label: Option<&'a str>,
        pub countdown_ms: Option<u64>,
        pub on_silence: Option<OnSilenceWord>,
    }
}

shape! {
    /// A request to hand the project over.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AskView<'a> {
        pub owner: &'a str,
        pub label: Option<&'a str>,
        pub reason: Option<&'a str>,
        pub countdown_ms: u64,
        pub on_silence: OnSilenceWord,
    }
}

/// Written as [`AskView`].
impl Json for Ask {
    fn write(&self, out: &mut Vec<u8>) {
        let view = AskView {
            owner: self.asker.as_str(),
            label: label_text(&self.label),
            reason: Some(self.why.as_str()).filter(|why| !why.is_empty()),
            countdown_ms: whole_millis(self.countdown),
            on_silence: word(&ON_SILENCE, self.on_silence),
        };
        view.write(out);
    }
}

impl<'a> From<&'a News> for NewsView<'a> {
    fn from(news: &'a News) -> Self {
        match news {
            News::Acquired { owner, fence, why } => Self {
                owner: Some(owner.as_str()),
                fence: fence.get(),
                why: why.as_ref().map(|why| why.as_str()),
                ..Self::default()
            },
            News::Released { fence } => Self { fence: fence.get(), ..Self::default() },
            News::Handover { fence, say, ask } => Self {
                owner: Some(ask.asker.as_str()),
                fence: fence.get(),
                why: Some(ask.why.as_str()),
                say: Some(say.as_str()),
                label: label_text(&ask.label),
                countdown_ms: Some(whole_millis(ask.countdown)),
                on_silence: Some(word(&ON_SILENCE, ask.on_silence)),
            },
        }
    }
}

shape! {
    /// One thing to be done in the folder. Unless it says otherwise it is reported by `ioDone`; any may be reported by
    /// `ioFailed`.
    pub enum StepView<'a> {
        /// Try once to open the guard exclusively, and make it if it is missing: `ioDone` or `guardBusy`. To look, make nothing:
        /// `guardAbsent`.
        TakeGuard {
            /// Whether it is only for a look.
            look: bool,
        },
        /// Read the guard: `guardRead`.
        ReadGuard {},
        /// Read `.lock`: `lockMissing`, `lockRead`, `lockDamaged` or `lockUnreadable`.
        ReadLock {},
        /// Try to open a held file exclusively, and close it again: `heldProbed`.
        ProbeHeld {
            /// Its fence.
            fence: u64,
        },
        /// Write this into the guard, in place, and flush it.
        WriteGuard {
            /// The text.
            text: String,
        },
        /// Create a held file, open it exclusively and keep it open.
        OpenHeld {
            /// Its fence.
            fence: u64,
        },
        /// Write `.lock` as a whole.
        WriteLock {
            /// What it says.
            record: RecordView<'a>,
        },
        /// Remove `.lock`.
        RemoveLock {},
        /// Read a file of the project and hash it: `versionRead`.
        ReadVersion {
            /// Where it is, below the root.
            path: &'a str,
        },
        /// Let the file that was prepared for a save take its place.
        Save {
            /// The number of the call.
            call: u32,
        },
        /// Close a held file and remove it.
        CloseHeld {
            /// Its fence.
            fence: u64,
        },
        /// Close a held file and leave it there.
        DropHeld {
            /// Its fence.
            fence: u64,
        },
        /// Remove every held file that no tab has open.
        SweepHeld {
            /// All but the one of this fence.
            keep: u64,
        },
        /// Close the guard.
        DropGuard {},
    }
}

impl<'a> From<&'a IoStep> for StepView<'a> {
    fn from(step: &'a IoStep) -> Self {
        match step {
            IoStep::TakeGuard { look } => Self::TakeGuard { look: *look },
            IoStep::ReadGuard => Self::ReadGuard {},
            IoStep::ReadLock => Self::ReadLock {},
            IoStep::ProbeHeld(fence) => Self::ProbeHeld { fence: fence.get() },
            IoStep::WriteGuard(last_fence) => Self::WriteGuard { text: guard_text(*last_fence) },
            IoStep::OpenHeld(fence) => Self::OpenHeld { fence: fence.get() },
            IoStep::WriteLock(record) => Self::WriteLock { record: record.into() },
            IoStep::RemoveLock => Self::RemoveLock {},
            IoStep::ReadVersion(file) => Self::ReadVersion { path: &file.path },
            IoStep::Save(call) => Self::Save { call: call.0 },
            IoStep::CloseHeld(fence) => Self::CloseHeld { fence: fence.get() },
            IoStep::DropHeld(fence) => Self::DropHeld { fence: fence.get() },
            IoStep::SweepHeld { keep } => Self::SweepHeld { keep: keep.get() },
            IoStep::DropGuard => Self::DropGuard {},
        }
    }
}

shape! {
    /// `.lock`, to be printed. Times are in milliseconds since 1970.
    #[derive(Clone)]
    pub struct RecordView<'a> {
        /// The version of the format.
        pub version: u32,
        /// Whose it is.
        pub lease_id: LeaseId,
        /// The same for people.
        pub owner: &'a str,
        /// What the holder calls itself.
        pub label: Option<&'a str>,
        /// When it was granted.
        pub acquired_at: u64,
        /// When it was written.
        pub updated_at: u64,
        /// How long it lasts from then on.
        pub ttl_millis: u64,
        /// When it ends.
        pub expires_at: u64,
        /// The fence of the grant.
        pub fence: Option<u64>,
        /// Grows with every writing of the file.
        pub seq: u64,
        /// Whether the holder keeps its held file open.
        pub held: bool,
    }
}

impl<'a> From<&'a Record> for RecordView<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            version: VERSION,
            lease_id: record.lease_id,
            owner: record.owner.as_str(),
            label: label_text(&record.label),
            acquired_at: record.acquired_at.as_millis(),
            updated_at: record.updated_at.as_millis(),
            ttl_millis: record.ttl.as_millis(),
            expires_at: record.expires_at().as_millis(),
            fence: record.fence.map(Fence::get),
            seq: record.seq,
            held: record.held,
        }
    }
}

shape! {
    /// A lease, as the application gets it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProjectLeaseView<'a> {
        pub lease_id: LeaseId,
        pub owner: &'a str,
        pub expires_at: u64,
        pub acquired_at: u64,
        pub ttl_millis: u64,
        pub next_heartbeat_at: u64,
        pub source: &'static str,
        pub strategy: StrategyWord,
        pub via_fallback: bool,
        pub fence: u64,
        pub guarantee: GuaranteeWord,
        pub root: &'a str,
        pub lock_name: &'a str,
    }
}

impl<'a> ProjectLeaseView<'a> {
    /// A lease on this project.
    pub fn new(lease: &'a ProjectLease, project: &'a ProjectName) -> Self {
        Self {
            lease_id: lease.lease_id,
            owner: lease.owner.as_str(),
            expires_at: lease.expires_at.as_millis(),
            acquired_at: lease.acquired_at.as_millis(),
            ttl_millis: lease.ttl.as_millis(),
            next_heartbeat_at: lease.next_heartbeat_at.as_millis(),
            source: lease.strategy.source(),
            strategy: lease.strategy.as_str(),
            via_fallback: lease.via_fallback,
            fence: lease.fence.get(),
            guarantee: lease.guarantee.as_str(),
            root: &lease.root,
            lock_name: &project.lock_name,
        }
    }
}

shape! {
    /// Who holds the project.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct HolderView<'a> {
        pub owner: &'a str,
        pub label: Option<&'a str>,
        pub fence: u64,
        pub since: u64,
        pub expires_at: u64,
    }
}

/// Written as [`HolderView`].
impl Json for Holder {
    #[inline(never)]
    fn write(&self, out: &mut Vec<u8>) {
        HolderView::from(self).write(out);
    }
}

impl<'a> From<&'a Holder> for HolderView<'a> {
    fn from(holder: &'a Holder) -> Self {
        Self {
            owner: holder.owner.as_str(),
            label: label_text(&holder.label),
            fence: holder.fence.get(),
            since: holder.since.as_millis(),
            expires_at: holder.until.as_millis(),
        }
    }
}

shape! {
    /// An error, as the application gets it: `new ProjectLockError(message, …)`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ErrorView<'a> {
        /// The class to throw.
        pub name: &'static str,
        pub code: ErrorCode,
        pub retryable: bool,
        pub operation: OperationWord,
        pub message: String,
        /// How loud it is in a log.
        pub level: &'static str,
        /// Another error behind it.
        pub cause: Option<&'a ProjectLockError>,
        /// What the browser or the system said.
        pub said: Option<&'a str>,
        /// Who holds the project instead.
        pub holder: Option<&'a Holder>,
    }
}

/// Written as [`ErrorView`].
impl Json for ProjectLockError {
    #[inline(never)]
    fn write(&self, out: &mut Vec<u8>) {
        ErrorView::from(self).write(out);
    }
}

impl<'a> From<&'a ProjectLockError> for ErrorView<'a> {
    fn from(error: &'a ProjectLockError) -> Self {
        let (cause, said) = match &error.cause {
            None => (None, None),
            Some(Cause::Fault(cause)) => (Some(&**cause), None),
            Some(Cause::Said(said)) => (None, Some(&**said)),
        };
        Self {
            name: error.class().as_str(),
            code: error.code(),
            retryable: error.retryable,
            operation: error.operation.as_str(),
            message: error.message(),
            level: error.level().as_str(),
            cause,
            said,
            holder: error.holder.as_deref(),
        }
    }
}

shape! {
    /// An event in any of the three dialects: `type`, and whatever of the rest it has.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ProjectEventView<'a> {
        /// Its name.
        pub r#type: &'static str,
        pub root: &'a str,
        pub lock_name: &'a str,
        pub operation: Option<OperationWord>,
        pub strategy: Option<StrategyWord>,
        pub retry: Option<u32>,
        pub attempt: Option<u32>,
        pub max_attempts: Option<u32>,
        pub delay_ms: Option<u64>,
        pub lease: Option<ProjectLeaseView<'a>>,
        pub holder: Option<&'a Holder>,
        pub request: Option<&'a Ask>,
        pub countdown_ms: Option<u64>,
        pub changed: Option<bool>,
        pub lease_id: Option<LeaseId>,
        pub next_heartbeat_in_ms: Option<u64>,
        pub state: Option<&'static str>,
        pub warning: Option<&'static str>,
        pub detail: Option<&'a str>,
        pub error: Option<ErrorOrCode<'a>>,
        pub retryable: Option<bool>,
        pub reason: Option<&'static str>,
        pub last_error: Option<&'a ProjectLockError>,
        pub manual_steps: Option<&'static str>,
    }
}

/// An error, or in dialect `autosave` its code alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each variant says what it is
pub enum ErrorOrCode<'a> {
    Error(&'a ProjectLockError),
    Code(&'static str),
}

impl Json for ErrorOrCode<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Error(error) => error.write(out),
            Self::Code(code) => code.write(out),
        }
    }
}

shape! {
    /// One event in all three dialects.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DialectsView<'a> {
        /// The canonical one.
        pub lock: ProjectEventView<'a>,
        /// In dialect `service`; absent when it has no word for it.
        pub service: Option<ProjectEventView<'a>>,
        /// In dialect `autosave`: none, one or two.
        pub autosave: Vec<ProjectEventView<'a>>,
    }
}

impl<'a> DialectsView<'a> {
    /// What happened to this project.
    pub fn new(event: &'a Event, project: &'a ProjectName) -> Self {
        let autosave = event::autosave(event);
        Self {
            lock: ProjectEventView::of_lock(event, project),
            service: event::service(event).map(|event| ProjectEventView::of_service(&event, project)),
            autosave: autosave.iter().map(|event| ProjectEventView::of_autosave(event, project)).collect(),
        }
    }
}

// Field by field: a struct of this size that is put together anew in every arm is moved about in every arm.
impl<'a> ProjectEventView<'a> {
    fn new(r#type: &'static str, project: &'a ProjectName) -> Self {
        let ProjectName { root, lock_name } = project;
        Self { r#type, root, lock_name, ..Self::default() }
    }

    fn of_lock(event: &'a Event, project: &'a ProjectName) -> Self {
        let mut view = Self::new(event.name(), project);
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
            Event::Acquired { lease, changed } => {
                view.lease = Some(ProjectLeaseView::new(lease, project));
                view.changed = Some(*changed);
            }
            Event::Renewed(lease) | Event::Released(lease) => {
                view.lease = Some(ProjectLeaseView::new(lease, project));
            }
            Event::Held(holder) => view.holder = Some(holder),
            Event::HandoverRequested(ask) | Event::HandoverWithdrawn(ask) => view.request = Some(ask),
            Event::HandoverTold { holder, countdown } => {
                view.holder = Some(holder);
                view.countdown_ms = Some(whole_millis(*countdown));
            }
            Event::ReleaseRequested { lease, reason } => {
                view.lease = Some(ProjectLeaseView::new(lease, project));
                view.reason = Some(reason.as_str());
            }
            Event::RenewScheduled { lease, next_heartbeat_in } => {
                view.lease = Some(ProjectLeaseView::new(lease, project));
                view.next_heartbeat_in_ms = Some(whole_millis(*next_heartbeat_in));
            }
            Event::Warning { warning, detail } => {
                view.warning = Some(warning.as_str());
                view.detail = Some(detail);
            }
            Event::Error { error, .. } => {
                view.operation = Some(error.operation.as_str());
                view.error = Some(ErrorOrCode::Error(error));
                view.retryable = Some(error.retryable);
            }
            Event::ReadonlyEntered { reason, last_error, lease_id, manual_steps } => {
                view.reason = Some(reason.as_str());
                view.lease_id = *lease_id;
                view.last_error = Some(last_error);
                view.manual_steps = *manual_steps;
            }
            Event::Available => {}
        }
        view
    }

    fn of_service(event: &ServiceEvent<'a>, project: &'a ProjectName) -> Self {
        let mut view = Self::new(event.kind, project);
        view.lease = event.lease.map(|lease| ProjectLeaseView::new(lease, project));
        view.error = event.error.map(ErrorOrCode::Error);
        view.attempt = event.attempt;
        view.delay_ms = event.delay.map(whole_millis);
        view
    }

    fn of_autosave(event: &AutosaveEvent<'a>, project: &'a ProjectName) -> Self {
        let mut view = Self::new(event.name(), project);
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
                view.lease_id = *lease_id;
            }
            AutosaveEvent::Readonly { reason } => view.reason = Some(reason.autosave()),
        }
        view
    }
}
