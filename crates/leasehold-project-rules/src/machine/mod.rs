//! The lock of one tab or program: the whole state diagram of *Project lock states* 1.1 and
//! *Project lock service* 2.2 (`docs/sources.md`), without IO. It must never
//! believe that it holds more than a guarded section has committed: the Web Lock is a queue, news are advice, and its own
//! deadline comes before the folder's.

mod acquire;
mod handover;
mod hold;
mod queue;
mod release;
mod save;
mod sections;

use std::time::Duration;

use acquire::{Acquiring, Wish};
use handover::{Asked, Asking};
use hold::Holding;
pub use queue::RELOAD_GRACE;
use queue::{Queue, Readonly};
use release::{Cleanup, Releasing};
use sections::{Purpose, Sections};

use leasehold_core::lease::Proof;
use leasehold_core::name::{self, Fence, LeaseId, Meta, Owner};
use leasehold_core::time::{HolderTime, Ttl, whole_millis};

use super::clock::Now;
use super::effect::{
    CallId, Effect, Folder, IoError, IoKind, News, ReleaseReason, State, Surroundings, Ticket, WebLock,
};
use super::event::{Attempt, Event, Reason, Warning};
use super::fault::{Fault, Operation, ProjectLockError};
use super::guarded::{Action, Holder, Loss, Outcome};
use super::joined;
use super::lease::{Answer, ProjectLease, Settled};
use super::options::{Options, Profile};
use super::section::{Conclusion, IoReply, take_first};

/// How long after its deadline a holder notices that only if nothing of it ran: it was frozen, or its machine slept.
const OVERSLEPT: Duration = Duration::from_secs(1);

/// The lock of one tab on one folder.
///
/// There are four kinds of method, and every one but a getter brings the time:
/// - **getters** ([`state`](Self::state), [`lease`](Self::lease), [`claim`](Self::claim), [`is_held`](Self::is_held)) change
///   nothing; those that depend on time take it, so that a tab that was asleep finds out before its next act;
/// - **commands** ([`acquire`](Self::acquire), [`take_over`](Self::take_over),
///   [`request_handover`](Self::request_handover), [`refuse_handover`](Self::refuse_handover), [`abort`](Self::abort),
///   [`renew`](Self::renew), [`release`](Self::release), [`saw`](Self::saw), [`save`](Self::save),
///   [`refresh`](Self::refresh)) are what the application wants;
/// - **`handle_*`** say what came in: an answer to an effect, a timer, news, a frozen page;
/// - **`poll_*`** say what to do: after every command and `handle_*`, drain [`poll_effect`](Self::poll_effect), then set a
///   timer for [`poll_timeout`](Self::poll_timeout).
#[derive(Clone, Debug)]
pub struct ProjectLock {
    surroundings: Surroundings,
    /// Whose words to use, of the last acquire.
    profile: Profile,
    lease_ids: u64,
    phase: Phase,
    out: Out,
    /// Releases without a caller: of what was lost, or granted to a call that had been given up.
    cleanups: Vec<Cleanup>,
    /// What became of the last lease, for a later call about it.
    over: Option<(LeaseId, Over)>,
    /// The calls that wanted the lock while the lease was being released.
    waiting: Vec<Wish>,
    /// The request to hand the project over that this tab has made.
    asking: Option<Box<Asking>>,
    /// The calls that look who has the project.
    looks: Vec<(Ticket, CallId)>,
    /// What this tab calls itself, for people at other tabs.
    label: Meta,
    frozen: bool,
    /// Whether the user does not see this tab.
    hidden: bool,
    /// The last fence that this tab gave itself, for where no folder counts them.
    last_fence: u64,
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    Acquiring(Box<Acquiring>),
    Holding(Box<Holding>),
    Releasing(Box<Releasing>),
    Readonly(Box<Readonly>),
}

/// What became of a lease.
#[derive(Clone, Debug)]
enum Over {
    Released,
    Lost(ProjectLockError),
}

impl ProjectLock {
    /// A machine that holds nothing.
    pub fn new(surroundings: Surroundings) -> Self {
        Self {
            profile: Profile::default(),
            lease_ids: 0,
            phase: Phase::Idle,
            out: Out { sections: Sections::new(&surroundings.seed), ..Out::default() },
            surroundings,
            cleanups: Vec::new(),
            over: None,
            waiting: Vec::new(),
            asking: None,
            looks: Vec::new(),
            label: Meta::default(),
            frozen: false,
            hidden: false,
            last_fence: 0,
        }
    }

    // --- getters ---

    /// Where it stands.
    pub fn state(&self) -> State {
        match &self.phase {
            Phase::Idle => State::Idle,
            Phase::Acquiring(acquiring) => acquiring.state(),
            Phase::Holding(holding) => holding.state(),
            Phase::Releasing(_) => State::Releasing,
            Phase::Readonly(_) => State::Readonly,
        }
    }

    /// The same as a word, in the words of the profile.
    pub fn state_word(&self) -> &'static str {
        match &self.phase {
            Phase::Readonly(_) if self.profile == Profile::Service => "faulted",
            _ => self.state().as_str(),
        }
    }

    /// The lease, until its end is noticed.
    pub fn lease(&self) -> Option<&ProjectLease> {
        match &self.phase {
            Phase::Holding(holding) => Some(&holding.lease),
            _ => None,
        }
    }

    /// Whether this tab may act on its lease at `now`.
    pub fn is_held(&self, now: Now) -> bool {
        matches!(&self.phase, Phase::Holding(holding) if now.steady < holding.stop_at)
    }

    /// Whether a guarded section is under way, or is to follow.
    pub fn is_in_section(&self) -> bool {
        self.out.sections.is_busy()
    }

    /// What a save is checked with, if this tab may save at `now`.
    pub fn claim(&self, now: Now) -> Option<Proof> {
        self.lease().filter(|_| self.is_held(now)).map(claim_of)
    }

    // --- commands ---

    /// Takes the lock. Answered with the lease, or with why not.
    pub fn acquire(&mut self, call: CallId, options: &Options, now: Now) {
        self.wake(now);
        self.want(Wish { call, options: *options, take_over: None }, now);
    }

    /// Takes the lock from its holder: the one with the fence that the taker saw, or any. An acquire of this tab that still
    /// waits is answered with the same lease, which one release ends.
    pub fn take_over(
        &mut self,
        call: CallId,
        options: &Options,
        seen: Option<Fence>,
        reason: name::Reason,
        now: Now,
    ) {
        self.wake(now);
        self.want(Wish { call, options: *options, take_over: Some((seen, reason)) }, now);
    }

    /// The caller's signal was aborted. An acquire that is under way ends here; a lease that was got already stays, and a
    /// take-over that has begun to write is answered with its lease.
    pub fn abort(&mut self, call: CallId, now: Now) {
        self.wake(now);
        if !self.withdraw_asking(Some(call)) {
            self.abort_acquire(call);
        }
    }

    /// Extends the lease: by its usual time, or by another.
    pub fn renew(&mut self, call: CallId, lease_id: LeaseId, extend_by: Option<Ttl>, now: Now) {
        self.wake(now);
        self.begin_asked_renewal(call, lease_id, extend_by, now);
    }

    /// Gives the lease back. `force` does not wait for other users of it in this tab, nor for the next retry; what is
    /// compared before `.lock` is removed stays the same.
    pub fn release(&mut self, call: CallId, lease_id: LeaseId, reason: ReleaseReason, force: bool, now: Now) {
        self.wake(now);
        self.begin_release(call, lease_id, reason, force);
    }

    /// What this tab calls itself from its next lease on, for people at other tabs: [`Meta::label`] of a text.
    pub fn set_label(&mut self, label: Meta) {
        self.label = label;
    }

    /// Looks who has the project. Answered with the holder, if there is one; it may be this tab.
    pub fn look_at(&mut self, call: CallId, now: Now) {
        self.wake(now);
        if let Folder::Absent { said } = &self.surroundings.folder {
            let said = unavailable(said);
            let error = ProjectLockError::new(Fault::CannotCreate, Operation::Look, self.profile);
            return self.out.settle(&[call], &Err(error.said(&said)));
        }
        let ticket = self.out.guarded(Action::Look);
        self.looks.push((ticket, call));
    }

    /// The user looks at the page again: what was read-only is as new.
    pub fn refresh(&mut self, now: Now) {
        self.wake(now);
        if matches!(self.phase, Phase::Readonly(_)) {
            self.leave_readonly();
        }
    }

    // --- in ---

    /// What became of the Web Lock that was requested under this number.
    pub fn handle_web_lock(&mut self, ticket: Ticket, what: WebLock, now: Now) {
        self.expire(now);
        match &mut self.phase {
            Phase::Acquiring(acquiring) if acquiring.web == Some(ticket) => self.acquire_web(what, now),
            Phase::Holding(holding) if holding.web == Some(ticket) => self.hold_web(&what, now),
            Phase::Readonly(readonly) if readonly.waits_for(ticket) => self.queue_web(&what, now),
            // The request was given up.
            _ if what == WebLock::Granted => self.out.push(Effect::DropWebLock(ticket)),
            _ => {}
        }
    }

    /// What came of the [`IoStep`](crate::IoStep) that was polled.
    pub fn handle_io(&mut self, reply: IoReply, now: Now) {
        self.out.sections.handle(reply, now);
        self.go_on_with_section(now);
    }

    /// What a guarded section came to.
    fn handle_guarded(&mut self, ticket: Ticket, conclusion: Conclusion, now: Now) {
        self.expire(now);
        let Conclusion { outcome, skewed, changed, holder } = conclusion;
        if let Some(call) = self.take_look(ticket) {
            return self.answer_look(call, outcome);
        }
        if self.asks(ticket) {
            return self.looked_whom_to_ask(Ok(outcome), now);
        }
        if let Some(cleanup) = self.take_cleanup(ticket) {
            return self.cleaned_up(cleanup, &outcome, now);
        }
        match &self.phase {
            Phase::Acquiring(acquiring) if acquiring.runs(ticket) => {
                if skewed {
                    self.out.warn(Warning::ClockSkew, acquire::SKEWED);
                }
                self.acquired(outcome, changed, now);
            }
            Phase::Acquiring(acquiring) if acquiring.looks(ticket) => self.looked_who_holds(&outcome),
            Phase::Holding(holding) if holding.runs(ticket) => self.renewed(outcome, holder, now),
            Phase::Releasing(releasing) if releasing.runs(ticket) => self.released(outcome, now),
            Phase::Readonly(readonly) if readonly.looks(ticket) => self.looked(outcome, changed, now),
            // Granted to a call that was given up in the meantime.
            _ => self.give_back(&outcome),
        }
    }

    /// A guarded section could not be finished.
    fn handle_io_error(&mut self, ticket: Ticket, error: &IoError, now: Now) {
        self.expire(now);
        if let Some(call) = self.take_look(ticket) {
            let error = error.told(Operation::Look, self.profile);
            return self.out.settle(&[call], &Err(error));
        }
        if self.asks(ticket) {
            return self.looked_whom_to_ask(Err(error), now);
        }
        if let Some(cleanup) = self.take_cleanup(ticket) {
            return self.clean_up_later(cleanup, now);
        }
        match &self.phase {
            Phase::Acquiring(acquiring) if acquiring.runs(ticket) => self.acquire_failed(error, now),
            Phase::Holding(holding) if holding.runs(ticket) => self.renewal_failed(&error.describe(), now),
            Phase::Releasing(releasing) if releasing.runs(ticket) => {
                self.release_failed(&error.describe(), now);
            }
            Phase::Readonly(readonly) if readonly.looks(ticket) => self.look_failed(now),
            _ => {}
        }
    }

    fn take_look(&mut self, ticket: Ticket) -> Option<CallId> {
        let at = self.looks.iter().position(|(looking, _)| *looking == ticket)?;
        Some(self.looks.swap_remove(at).1)
    }

    fn answer_look(&mut self, call: CallId, outcome: Outcome) {
        let error =
            |fault, said: &str| ProjectLockError::new(fault, Operation::Look, self.profile).said(said);
        let answer = match outcome {
            Outcome::Held(holder) => Ok(Settled::Looked(Some(holder))),
            Outcome::Unreadable { said } => Err(error(Fault::CannotRead, &said)),
            Outcome::Newer { version } => Err(error(Fault::CannotCreate, &newer(version))),
            _ => Ok(Settled::Looked(None)),
        };
        self.out.settle(&[call], &answer);
    }

    /// What a save's own check in the guarded section came to.
    fn handle_commit(&mut self, claim: Proof, outcome: &Outcome, holder: Option<Box<Holder>>, now: Now) {
        self.expire(now);
        if self.lease().is_none_or(|lease| claim_of(lease) != claim) {
            return;
        }
        match outcome {
            Outcome::Lost(loss) => self.lose_by(*loss, holder, now),
            Outcome::Newer { version } => self.lose_to_newer(*version, now),
            _ => {}
        }
    }

    /// The time that [`poll_timeout`](Self::poll_timeout) named has come, or any other.
    pub fn handle_timeout(&mut self, now: Now) {
        self.expire(now);
        if self.frozen {
            return;
        }
        self.out.sections.handle_timeout(now);
        self.clean_up_again(now);
        self.handover_timeout(now);
        match &self.phase {
            Phase::Idle => {}
            Phase::Acquiring(_) => self.acquire_timeout(now),
            Phase::Holding(_) => self.heartbeat(now),
            Phase::Releasing(_) => self.release_again(now),
            Phase::Readonly(_) => self.look_again(now),
        }
    }

    /// The page is about to be frozen, or put into the back/forward cache: for an unknown time, so what it holds
    /// counts as lost. It takes no guard until it is back, because it would keep it. It is acquired anew when the page comes back, unless the caller said that it never is.
    pub fn handle_frozen(&mut self, now: Now) {
        self.frozen = true;
        self.expire(now);
        self.withdraw_asking(None);
        match &mut self.phase {
            Phase::Holding(holding) => {
                let error = ProjectLockError::new(Fault::Stale, Operation::Renew, holding.options.profile);
                self.lose(error.said("the page was frozen"), Reason::LeaseStale, now);
            }
            Phase::Acquiring(_) => self.pause_acquire(now),
            _ => {}
        }
        if let Phase::Readonly(readonly) = &mut self.phase {
            readonly.pause(&mut self.out, now);
        }
    }

    /// The page is back.
    pub fn handle_resumed(&mut self, now: Now) {
        self.frozen = false;
        self.handle_timeout(now);
    }

    /// The page was hidden, or the user sees it again. A hidden tab that would take a free project by itself holds back for
    /// [`RELOAD_GRACE`].
    pub fn handle_hidden(&mut self, hidden: bool, now: Now) {
        self.expire(now);
        self.hidden = hidden;
        if !hidden {
            self.seen(now);
        }
    }

    /// Another tab said something. It is believed as far as it is worth a look at the folder.
    pub fn handle_news(&mut self, news: &News, now: Now) {
        self.expire(now);
        match news {
            News::Handover { fence, say, ask } => return self.hear_of_handover(*fence, *say, ask, now),
            News::Released { fence } => self.hear_of_release(*fence, now),
            News::Acquired { .. } => {}
        }
        match (&mut self.phase, news) {
            (Phase::Holding(holding), News::Acquired { fence, why, .. }) if *fence > holding.lease.fence => {
                holding.why.clone_from(why);
                self.renew_now(now);
            }
            (Phase::Readonly(readonly), _) => {
                readonly.hear(news, now);
                self.handle_timeout(now);
            }
            _ => {}
        }
    }

    // --- out ---

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = take_first(&mut self.out.effects);
        effect.or_else(|| self.out.sections.poll_step(self.frozen).map(Effect::Io))
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<HolderTime> {
        if self.frozen {
            return None;
        }
        let timeout = match &self.phase {
            Phase::Idle => None,
            Phase::Acquiring(acquiring) => acquiring.timeout(),
            Phase::Holding(holding) => Some(holding.timeout()),
            Phase::Releasing(releasing) => releasing.timeout(),
            Phase::Readonly(readonly) => readonly.timeout(),
        };
        let section = self.out.sections.poll_timeout();
        let timeout = timeout.into_iter().chain(self.asking.as_ref().and_then(|asking| asking.timeout()));
        self.cleanups.iter().filter_map(Cleanup::timeout).chain(timeout).chain(section).min()
    }

    // --- what several of them need ---

    /// A command shows that the page lives.
    fn wake(&mut self, now: Now) {
        self.frozen = false;
        self.expire(now);
    }

    /// A holder that is past its deadline has lost the lease, whatever it was about to hear.
    fn expire(&mut self, now: Now) {
        if let Phase::Holding(holding) = &self.phase
            && now.steady >= holding.stop_at
        {
            let overslept = now.steady.since(holding.stop_at) >= OVERSLEPT;
            let error = ProjectLockError::new(Fault::Expired, Operation::Renew, holding.options.profile);
            self.lose(error, Reason::RenewFailed, now);
            if let Phase::Readonly(readonly) = &mut self.phase {
                readonly.overslept = overslept;
            }
        }
    }

    /// Ends the lease that is held, against the holder's will.
    fn lose(&mut self, error: ProjectLockError, reason: Reason, now: Now) {
        let Phase::Holding(holding) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let Holding { lease, options, web, calls, .. } = *holding;
        let error = ProjectLockError { retryable: false, ..error };
        let attempt = Some(holding.renewal.attempt());
        self.out.error(error.clone(), attempt, Some(lease.lease_id));
        self.out.drop_web(web);
        self.clean_up(claim_of(&lease));
        self.out.settle(&calls, &Err(error.clone()));
        self.over = Some((lease.lease_id, Over::Lost(error.clone())));
        self.enter_readonly(reason, error, Some(lease.lease_id), &options, now);
    }

    /// To this holder, if there is one by now.
    fn lose_by(&mut self, loss: Loss, holder: Option<Box<Holder>>, now: Now) {
        let Phase::Holding(holding) = &self.phase else { return };
        let (fault, reason) = match loss {
            Loss::Expired => (Fault::Expired, Reason::RenewFailed),
            Loss::Replaced | Loss::Missing => (Fault::Stale, Reason::LeaseStale),
        };
        let error = ProjectLockError::new(fault, Operation::Renew, holding.options.profile);
        let error = match &holding.why {
            Some(why) if loss == Loss::Replaced => error.said(why.as_str()),
            _ => error,
        };
        self.lose(ProjectLockError { holder, ..error }, reason, now);
    }

    fn lose_to_newer(&mut self, version: u64, now: Now) {
        let Phase::Holding(holding) = &self.phase else { return };
        let error = ProjectLockError::new(Fault::CannotCreate, Operation::Renew, holding.options.profile);
        self.lose(error.said(&newer(version)), Reason::Irrecoverable, now);
    }

    fn enter_readonly(
        &mut self,
        reason: Reason,
        last_error: ProjectLockError,
        lease_id: Option<LeaseId>,
        options: &Options,
        now: Now,
    ) {
        let manual_steps = (reason == Reason::ReleaseFailed).then_some(release::MANUAL_STEPS);
        self.out.emit(Event::ReadonlyEntered { reason, last_error, lease_id, manual_steps });
        let waits = !matches!(reason, Reason::ReleaseFailed | Reason::Irrecoverable);
        let queue = waits.then(|| Queue::new(*options, self.frozen, now));
        self.phase = Phase::Readonly(Box::new(Readonly { queue, overslept: false }));
        if !self.frozen {
            self.look_again(now);
        }
    }

    fn give_back(&mut self, outcome: &Outcome) {
        if let Outcome::Granted(grant) = outcome {
            self.clean_up(Proof { lease_id: grant.lease_id, fence: grant.fence });
        }
    }

    /// A lease id that was never used before: the random seed, stirred.
    fn next_lease_id(&mut self) -> LeaseId {
        self.lease_ids += 1;
        let seed = u128::from_le_bytes(self.surroundings.seed);
        let (high, low) = ((seed >> 64) as u64, seed as u64);
        let (high, low) = (stir(high ^ stir(self.lease_ids)), stir(low.wrapping_add(self.lease_ids)));
        LeaseId::from_random(((u128::from(high) << 64) | u128::from(low)).to_le_bytes())
    }

    /// Who this tab is, as `.lock` shows it.
    pub fn owner(&self) -> Owner {
        self.surroundings.owner.clone()
    }
}

/// Spreads a number over all bits (the finaliser of splitmix64).
const fn stir(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

fn claim_of(lease: &ProjectLease) -> Proof {
    Proof { lease_id: lease.lease_id, fence: lease.fence }
}

fn unavailable(said: &str) -> String {
    joined(&["unavailable(", said, ")"])
}

fn newer(version: u64) -> String {
    format!("project/.lock has version {version}, which only a newer program understands; update this one")
}

fn millis(duration: Duration) -> String {
    format!("{} ms", whole_millis(duration))
}

/// What is to be done, in order.
#[derive(Clone, Debug, Default)]
struct Out {
    effects: Vec<Effect>,
    sections: Sections,
    tickets: u32,
}

impl Out {
    fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets = self.tickets.wrapping_add(1);
        Ticket(self.tickets)
    }

    fn guarded(&mut self, action: Action) -> Ticket {
        let ticket = self.ticket();
        self.sections.push(Purpose::Machine(ticket), action);
        ticket
    }

    fn request_web(&mut self, steal: bool) -> Ticket {
        let ticket = self.ticket();
        self.push(Effect::RequestWebLock { ticket, steal });
        ticket
    }

    fn drop_web(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.push(Effect::DropWebLock(ticket));
        }
    }

    fn emit(&mut self, event: Event) {
        self.push(Effect::Emit(event));
    }

    fn warn(&mut self, warning: Warning, detail: &str) {
        self.emit(Event::Warning { warning, detail: detail.into() });
    }

    fn error(&mut self, error: ProjectLockError, attempt: Option<Attempt>, lease_id: Option<LeaseId>) {
        self.emit(Event::Error { error, attempt, lease_id });
    }

    fn settle(&mut self, calls: &[CallId], answer: &Answer) {
        for call in calls {
            self.push(Effect::Settle { call: *call, answer: answer.clone() });
        }
    }

    fn settle_released(&mut self, call: CallId) {
        self.push(Effect::Settle { call, answer: Ok(Settled::Released) });
    }
}

impl IoError {
    /// The error of a call that failed by it.
    pub fn told(&self, operation: Operation, profile: Profile) -> ProjectLockError {
        let fault = match self.kind {
            IoKind::Open => Fault::CannotCreate,
            IoKind::GuardBusy | IoKind::Read => Fault::CannotRead,
            IoKind::Write => Fault::CannotWrite,
        };
        ProjectLockError::new(fault, operation, profile).said(&self.describe())
    }

    /// What happened, for people.
    fn describe(&self) -> String {
        match self.kind {
            IoKind::GuardBusy => "unavailable(guard-busy)".into(),
            _ => self.said.clone(),
        }
    }
}
