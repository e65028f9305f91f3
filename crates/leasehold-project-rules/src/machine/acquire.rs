//! Getting the lock: attempts, each by the Web Lock and then by `.lock`, with exact waits in between. An attempt has won
//! when a guarded section says so, and not before.

use std::time::Duration;

use leasehold_core::lease::Bid;
use leasehold_core::name::{Fence, LeaseId, Reason as Why};
use leasehold_core::time::HolderTime;

use super::hold::Grip;
use super::{Phase, ProjectLock, newer, unavailable};
use crate::clock::Now;
use crate::effect::{CallId, Folder, IoError, IoKind, State, Ticket, WebLock};
use crate::event::{Attempt, Event, Reason, Warning};
use crate::fault::{Fault, Operation, ProjectLockError};
use crate::guarded::{Action, Grant, Holder, Outcome};
use crate::lease::Settled;
use crate::options::{Options, Strategy, usable};

/// What a caller wants.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) call: CallId,
    pub(super) options: Options,
    /// Set for a take-over: the fence that the taker saw, and why.
    pub(super) take_over: Option<(Option<Fence>, Why)>,
}

/// An acquire that is under way.
#[derive(Clone, Debug)]
pub(super) struct Acquiring {
    /// Who waits for it.
    calls: Vec<CallId>,
    /// How many releases will end it.
    depth: u32,
    options: Options,
    lease_id: LeaseId,
    take_over: Option<(Option<Fence>, Why)>,
    /// The call that wants to take over: once it is aborted, the others go on without force.
    taker: Option<CallId>,
    started: HolderTime,
    /// Which attempt this is: 1 is the first.
    attempt: u32,
    /// Whether it was told that it goes without the Web Lock.
    engaged: bool,
    pub(super) web: Option<Ticket>,
    step: Step,
    look: Look,
    /// Whether it was said who has the project.
    is_told: bool,
}

/// The look that finds out who has the project while the Web Lock is waited for.
#[derive(Clone, Copy, Debug)]
enum Look {
    Planned {
        at: HolderTime,
    },
    Running {
        ticket: Ticket,
    },
    /// It is over, or was not needed.
    Done,
}

/// How long the Web Lock is waited for before `.lock` is looked at: a lock that is free comes within this time, and then
/// the look would only be in the way.
const LOOK_AFTER: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Waiting for the Web Lock.
    Web {
        until: HolderTime,
    },
    /// In a guarded section.
    Guarded {
        ticket: Ticket,
        strategy: Strategy,
        /// Whether it is a take-over.
        forced: bool,
        sent: Now,
    },
    BackingOff {
        until: HolderTime,
    },
}

impl Acquiring {
    pub(super) fn state(&self) -> State {
        match self.step {
            Step::Web { .. } | Step::Guarded { strategy: Strategy::WebLock, .. } => State::AcquireWeb,
            Step::Guarded { strategy: Strategy::FileLock, .. } => State::AcquireFallback,
            Step::BackingOff { .. } => State::BackingOff,
        }
    }

    pub(super) fn runs(&self, ticket: Ticket) -> bool {
        matches!(self.step, Step::Guarded { ticket: running, .. } if running == ticket)
    }

    pub(super) fn looks(&self, ticket: Ticket) -> bool {
        matches!(self.look, Look::Running { ticket: looking } if looking == ticket)
    }

    pub(super) fn timeout(&self) -> Option<HolderTime> {
        match (self.step, self.look) {
            (Step::Web { until }, Look::Planned { at }) => Some(until.min(at)),
            (Step::Web { until } | Step::BackingOff { until }, _) => Some(until),
            (Step::Guarded { .. }, _) => None,
        }
    }

    fn attempt(&self) -> Attempt {
        Attempt { number: self.attempt, most: self.options.retry.max_attempts }
    }

    fn error(&self, fault: Fault) -> ProjectLockError {
        ProjectLockError::new(fault, Operation::Acquire, self.options.profile)
    }

    /// How much of the whole time is left.
    fn time_left(&self, now: Now) -> Option<Duration> {
        self.options.max_wait.map(|most| most.saturating_sub(now.steady.since(self.started)))
    }

    /// How long to wait before the next attempt, if there is one: the last wait is cut to what time is left.
    fn next_wait(&self, now: Now) -> Option<Duration> {
        let wait = self.options.retry.backoff.exact(self.attempt);
        let wait = match self.time_left(now) {
            Some(Duration::ZERO) => return None,
            Some(left) => wait.min(left),
            None => wait,
        };
        self.options.retry.goes_on_after(self.attempt).then_some(wait)
    }
}

impl ProjectLock {
    /// Begins to get the lock; unless this tab has it or is about to, where the call is answered, or waits with the others.
    pub(super) fn want(&mut self, wish: Wish, now: Now) {
        let Wish { call, options, .. } = wish;
        match &mut self.phase {
            Phase::Releasing(releasing) if !releasing.is_in_the_background() => {
                return releasing.next.push(wish);
            }
            Phase::Acquiring(acquiring) if options.reentrant || wish.take_over.is_some() => {
                acquiring.calls.push(call);
                acquiring.depth += u32::from(options.reentrant);
                acquiring.taker = wish.take_over.is_some().then_some(call).or(acquiring.taker);
                return self.press_on(wish.take_over, now);
            }
            Phase::Holding(holding) if options.reentrant => {
                holding.depth += 1;
                let answer = Ok(Settled::Acquired(holding.lease.clone()));
                return self.out.settle(&[call], &answer);
            }
            Phase::Acquiring(_) | Phase::Holding(_) => {
                let error = ProjectLockError::new(Fault::AlreadyHeld, Operation::Acquire, options.profile);
                self.out.error(error.clone(), None, None);
                return self.out.settle(&[call], &Err(error));
            }
            Phase::Idle | Phase::Readonly(_) | Phase::Releasing(_) => {}
        }
        self.leave_readonly();
        self.begin_acquire(wish, now);
    }

    /// A take-over while this tab waits for the lock: the lock is taken at once. A guarded section
    /// that is under way is heard first, since it may bring the lock without force.
    fn press_on(&mut self, take_over: Option<(Option<Fence>, Why)>, now: Now) {
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        let Some(take_over) = take_over else { return };
        acquiring.take_over = Some(take_over);
        match acquiring.step {
            Step::Guarded { .. } => return,
            Step::Web { .. } => acquiring.attempt = acquiring.attempt.saturating_sub(1),
            Step::BackingOff { .. } => {}
        }
        self.out.drop_web(acquiring.web.take());
        self.begin_attempt(now);
    }

    fn begin_acquire(&mut self, wish: Wish, now: Now) {
        let lease_id = self.next_lease_id();
        let Wish { call, options, take_over } = wish;
        self.profile = options.profile;
        self.phase = Phase::Acquiring(Box::new(Acquiring {
            calls: vec![call],
            depth: 1,
            options,
            lease_id,
            taker: take_over.is_some().then_some(call),
            take_over,
            started: now.steady,
            attempt: 0,
            engaged: false,
            web: None,
            step: Step::BackingOff { until: now.steady },
            look: Look::Planned { at: now.steady + LOOK_AFTER },
            is_told: false,
        }));
        if self.surroundings.folder == Folder::Advisory && !options.allow_advisory {
            let said = "unavailable(no-sync-access-handle): two tabs could both hold this folder; allow it with `allowAdvisory: true`";
            return self.give_up(Fault::CannotCreate, said, now);
        }
        self.begin_attempt(now);
    }

    fn begin_attempt(&mut self, now: Now) {
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        acquiring.attempt = acquiring.attempt.saturating_add(1);
        let forced = acquiring.take_over.is_some();
        // Where there is no folder, the Web Lock is all that there is to take over.
        let by_web =
            acquiring.options.strategy == Strategy::WebLock && (!forced || self.surroundings.is_bare());
        let patience = acquiring.options.web_lock_timeout;
        let patience = acquiring.time_left(now).map_or(patience, |left| patience.min(left));
        if !by_web {
            return self.claim_file(Strategy::FileLock, now);
        }
        let retry = acquiring.attempt - 1;
        self.out.emit(Event::Attempt { operation: Operation::Acquire, strategy: Strategy::WebLock, retry });
        acquiring.web = Some(self.out.request_web(forced));
        acquiring.step = Step::Web { until: now.steady + patience };
    }

    /// Claims `.lock`, with the Web Lock or without it.
    fn claim_file(&mut self, strategy: Strategy, now: Now) {
        let owner = self.owner();
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        if strategy == Strategy::FileLock {
            let retry = acquiring.attempt.saturating_sub(1);
            self.out.emit(Event::Attempt { operation: Operation::Acquire, strategy, retry });
        }
        if let Folder::Absent { said } = &self.surroundings.folder {
            let said = unavailable(said);
            return match strategy {
                Strategy::WebLock => self.hold_without_folder(now),
                Strategy::FileLock => self.give_up(Fault::CannotCreate, &said, now),
            };
        }
        let Options { file_ttl, .. } = acquiring.options;
        let (lease_id, meta) = (acquiring.lease_id, self.label.clone());
        let bid = Bid { lease_id, owner, tab: None, ttl: file_ttl, meta };
        let action = match acquiring.take_over.clone() {
            None => Action::Acquire(bid),
            Some((seen, reason)) => {
                Action::TakeOver { seen, bid, reason, despite_skew: acquiring.options.accept_clock_skew }
            }
        };
        let forced = acquiring.take_over.is_some();
        acquiring.step = Step::Guarded { ticket: self.out.guarded(action), strategy, forced, sent: now };
    }

    // --- what comes in ---

    pub(super) fn acquire_web(&mut self, what: WebLock, now: Now) {
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        let waits = matches!(acquiring.step, Step::Web { .. });
        match what {
            WebLock::Granted if waits => self.claim_file(Strategy::WebLock, now),
            WebLock::Granted => {}
            // The guarded section that is under way decides all the same.
            WebLock::Stolen if !waits => acquiring.web = None,
            WebLock::Unsupported => self.fall_back(Fault::NoWebLocks, None, now),
            WebLock::Denied { said } => self.fall_back(Fault::Denied, Some(said), now),
            WebLock::Stolen => self.fall_back(Fault::Denied, None, now),
        }
    }

    /// Goes on without the Web Lock.
    fn fall_back(&mut self, fault: Fault, said: Option<String>, now: Now) {
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        if !matches!(acquiring.step, Step::Web { .. }) {
            return;
        }
        self.out.drop_web(acquiring.web.take());
        let mut error = acquiring.error(fault);
        if let Some(said) = said {
            error = error.said(&said);
        }
        if self.surroundings.is_bare() && fault == Fault::Denied {
            return self.fail_attempt(error, now);
        }
        // That there are no Web Locks is no error, only a warning.
        if fault == Fault::Denied {
            self.out.error(error, None, None);
        }
        if !std::mem::replace(&mut acquiring.engaged, true) {
            self.out.warn(Warning::FallbackEngaged, fault.message());
        }
        self.claim_file(Strategy::FileLock, now);
    }

    pub(super) fn acquire_timeout(&mut self, now: Now) {
        let Phase::Acquiring(acquiring) = &self.phase else { return };
        match (acquiring.step, acquiring.look) {
            (Step::Web { until }, _) if until <= now.steady => self.fall_back(Fault::Denied, None, now),
            (Step::Web { .. }, Look::Planned { at }) if at <= now.steady => self.look_who_holds(),
            (Step::BackingOff { until }, _) if until <= now.steady => self.begin_attempt(now),
            _ => {}
        }
    }

    /// Looks who has the project, so that the page can say so while the attempts go on.
    fn look_who_holds(&mut self) {
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        acquiring.look = match self.surroundings.is_bare() || acquiring.take_over.is_some() {
            true => Look::Done,
            false => Look::Running { ticket: self.out.guarded(Action::Look) },
        };
    }

    pub(super) fn looked_who_holds(&mut self, outcome: &Outcome) {
        if let Outcome::Held(holder) = outcome {
            self.publish_holder(holder);
        }
    }

    /// Says who has the project, once per acquire.
    fn publish_holder(&mut self, holder: &Holder) {
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        if !std::mem::replace(&mut acquiring.is_told, true) {
            self.out.emit(Event::Held(holder.clone()));
        }
        acquiring.look = Look::Done;
    }

    pub(super) fn acquired(&mut self, outcome: Outcome, changed: bool, now: Now) {
        let Phase::Acquiring(acquiring) = &self.phase else { return };
        match outcome {
            Outcome::Granted(grant) => self.granted(&grant, changed, now),
            Outcome::Held(holder) => {
                let error = acquiring.error(Fault::Conflict).held_by(holder.clone());
                self.publish_holder(&holder);
                self.conflict(error, now);
            }
            Outcome::Unreadable { said } => {
                let error = acquiring.error(Fault::CannotRead).said(&said);
                self.fail_attempt(error, now);
            }
            Outcome::Newer { version } => self.give_up(Fault::CannotCreate, &newer(version), now),
            Outcome::FencesExhausted => {
                let said = "there is no fence left: .lock.guard holds the largest there is";
                self.give_up(Fault::CannotCreate, said, now);
            }
            // An attempt that was thought to have failed had won, and ran out since: it is over, under this id.
            _ => {
                let error = acquiring.error(Fault::CannotWrite).said("the last attempt ran out unnoticed");
                self.renew_lease_id();
                self.fail_attempt(error, now);
            }
        }
    }

    /// Stops where it is; the attempt begins again when the page is back, under another lease id: what the section that is
    /// under way still brings is given back, and must not be what the next attempt gets.
    pub(super) fn pause_acquire(&mut self, now: Now) {
        self.renew_lease_id();
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        self.out.drop_web(acquiring.web.take());
        if let Step::Guarded { ticket, .. } = acquiring.step {
            self.out.sections.forget(ticket);
        }
        if !matches!(acquiring.step, Step::BackingOff { .. }) {
            // It was cut short through no fault of its own.
            acquiring.attempt = acquiring.attempt.saturating_sub(1);
        }
        acquiring.step = Step::BackingOff { until: now.steady };
    }

    fn renew_lease_id(&mut self) {
        let next = self.next_lease_id();
        if let Phase::Acquiring(acquiring) = &mut self.phase {
            acquiring.lease_id = next;
        }
    }

    fn granted(&mut self, grant: &Grant, changed: bool, now: Now) {
        let Phase::Acquiring(acquiring) = &self.phase else { return };
        let Step::Guarded { strategy, sent, .. } = acquiring.step else { return };
        let shown = acquiring.options.shown_ttl(strategy);
        if now.steady >= sent.steady + usable(shown, grant.ttl) {
            let error = acquiring.error(Fault::CannotWrite).said("the folder took longer than a lease lasts");
            self.give_back(&Outcome::Granted(grant.clone()));
            self.renew_lease_id();
            return self.fail_attempt(error, now);
        }
        let Phase::Acquiring(acquiring) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let mut web = acquiring.web;
        if acquiring.take_over.is_some() && acquiring.options.strategy == Strategy::WebLock && web.is_none() {
            // Tells the tab that had it, and lets others queue behind this one. It is not waited for.
            web = Some(self.out.request_web(true));
        }
        let why = acquiring.take_over.map(|(_, why)| why).filter(|why| !why.as_str().is_empty());
        let (via_fallback, depth) = (acquiring.engaged, acquiring.depth);
        let grip = Grip { strategy, via_fallback, web, depth, why, sent, changed };
        self.hold(grant, &grip, &acquiring.options, &acquiring.calls, now);
    }

    fn hold_without_folder(&mut self, now: Now) {
        let Phase::Acquiring(acquiring) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let Acquiring { calls, depth, options, lease_id, web, engaged, .. } = *acquiring;
        let grip = Grip {
            strategy: Strategy::WebLock,
            via_fallback: engaged,
            web,
            depth,
            why: None,
            sent: now,
            changed: false,
        };
        self.hold_bare(lease_id, &grip, &options, &calls, now);
    }

    /// Holds the Web Lock, where that is all there is.
    pub(super) fn hold_bare(
        &mut self,
        lease_id: LeaseId,
        grip: &Grip,
        options: &Options,
        calls: &[CallId],
        now: Now,
    ) {
        // No folder counts fences: the clock does, and this tab's own last one when the clock was set back.
        self.last_fence = now.wall.as_millis().max(self.last_fence + 1);
        let Ok(fence) = Fence::new(self.last_fence) else { return };
        let grant = Grant { lease_id, fence, ttl: options.file_ttl, at: now.wall, after: None };
        self.hold(&grant, grip, options, calls, now);
    }

    pub(super) fn acquire_failed(&mut self, error: &IoError, now: Now) {
        let Phase::Acquiring(acquiring) = &self.phase else { return };
        let told = error.told(Operation::Acquire, acquiring.options.profile);
        match error.kind {
            IoKind::Open => self.end_acquire(told, Reason::Irrecoverable, None, now),
            IoKind::GuardBusy | IoKind::Read | IoKind::Write => self.fail_attempt(told, now),
        }
    }

    // --- how an attempt ends ---

    fn conflict(&mut self, error: ProjectLockError, now: Now) {
        let Phase::Acquiring(acquiring) = &self.phase else { return };
        self.out.warn(Warning::FallbackDegraded, Fault::Conflict.message());
        match acquiring.step {
            // The holder changed after the taker looked: the taker must look again, not try again.
            Step::Guarded { forced: true, .. } => {
                self.end_acquire(error, Reason::FallbackConflict, None, now);
            }
            // The take-over came while this section was under way.
            _ if acquiring.take_over.is_some() => self.claim_file(Strategy::FileLock, now),
            _ => self.fail_attempt(error, now),
        }
    }

    /// The attempt has failed; another one follows unless there is none left.
    fn fail_attempt(&mut self, error: ProjectLockError, now: Now) {
        let Phase::Acquiring(acquiring) = &mut self.phase else { return };
        let Some(delay) = acquiring.next_wait(now) else {
            let exhausted = acquiring.error(Fault::Exhausted);
            return self.end_acquire(error, Reason::AcquireTimeout, Some(exhausted), now);
        };
        self.out.drop_web(acquiring.web.take());
        self.out.error(error, Some(acquiring.attempt()), None);
        self.out.emit(Event::Waiting { retry: acquiring.attempt, delay });
        acquiring.step = Step::BackingOff { until: now.steady + delay };
    }

    /// Nothing that can be tried again would help.
    fn give_up(&mut self, fault: Fault, said: &str, now: Now) {
        let Phase::Acquiring(acquiring) = &self.phase else { return };
        let error = acquiring.error(fault).said(said);
        self.end_acquire(error, Reason::Irrecoverable, None, now);
    }

    /// The acquire has failed by `last`; the caller gets `answer`, if that is another error.
    fn end_acquire(
        &mut self,
        last: ProjectLockError,
        reason: Reason,
        answer: Option<ProjectLockError>,
        now: Now,
    ) {
        let Phase::Acquiring(acquiring) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let last = ProjectLockError { retryable: false, ..last };
        let attempt = Attempt { number: acquiring.attempt.max(1), ..acquiring.attempt() };
        self.out.drop_web(acquiring.web);
        self.out.error(last.clone(), Some(attempt), None);
        let answer = answer.map_or_else(|| last.clone(), |answer| answer.because(last.clone()));
        self.enter_readonly(reason, last, None, &acquiring.options, now);
        self.out.settle(&acquiring.calls, &Err(answer));
    }

    pub(super) fn abort_acquire(&mut self, call: CallId) {
        let acquiring = match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring,
            Phase::Releasing(releasing) => return releasing.abort(call, &mut self.out),
            _ => return,
        };
        let Some(at) = acquiring.calls.iter().position(|waiting| *waiting == call) else { return };
        if acquiring.taker == Some(call) {
            if let Step::Guarded { ticket, forced, .. } = &mut acquiring.step {
                if !self.out.sections.call_off_force(*ticket) {
                    // The project is being taken from its holder: to say that it was not would be wrong. The call is answered
                    // with the lease, as if the abort had come a moment later.
                    return;
                }
                *forced = false;
            }
            (acquiring.taker, acquiring.take_over) = (None, None);
        }
        acquiring.calls.swap_remove(at);
        acquiring.depth = acquiring.depth.saturating_sub(1).max(1);
        let error = acquiring.error(Fault::Aborted);
        if acquiring.calls.is_empty()
            && let Phase::Acquiring(acquiring) = std::mem::replace(&mut self.phase, Phase::Idle)
        {
            self.out.drop_web(acquiring.web);
            self.out.error(error.clone(), None, None);
        }
        self.out.settle(&[call], &Err(error));
    }
}

pub(super) const SKEWED: &str = "project/.lock and its modification time disagree: a clock is wrong, and whether its holder lives is \
                      uncertain; make sure that nobody edits the project, and take it over with `acceptClockSkew: true`";
