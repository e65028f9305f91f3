//! Giving the lock back: `.lock` and the Web Lock, both even if one fails, and again in the background. Whatever happens,
//! this tab does not hold any more from the moment it asks.

use leasehold_core::lease::Proof;
use leasehold_core::name::LeaseId;
use leasehold_core::time::HolderTime;

use super::acquire::Wish;
use super::{Out, Over, Phase, ProjectLock, claim_of};
use crate::clock::Now;
use crate::effect::{CallId, Effect, News, ReleaseReason, Ticket};
use crate::event::{Attempt, Event, Reason};
use crate::fault::{Fault, Operation, ProjectLockError};
use crate::guarded::{Action, Loss, Outcome};
use crate::lease::ProjectLease;
use crate::options::{CLEAN_UP_RETRY, Options, RELEASE_RETRY};

/// What a person can do when a release has failed for good.
pub(super) const MANUAL_STEPS: &str = "Close every tab and program that has the project open, then open it again: a lock \
    whose holder is gone is taken over by itself, at the latest when its time has run out. If that does not help, delete \
    the file `.lock` in the project folder, and leave `.lock.guard` where it is.";

/// A release that is under way.
#[derive(Clone, Debug)]
pub(super) struct Releasing {
    lease: ProjectLease,
    options: Options,
    calls: Vec<CallId>,
    /// How often it was tried.
    tries: u32,
    step: Step,
    /// Who wants the lock next, in this tab.
    pub(super) next: Vec<Wish>,
}

/// A release without a caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cleanup {
    claim: Proof,
    tries: u32,
    step: Step,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Running { ticket: Ticket },
    Waiting { until: HolderTime },
}

impl Step {
    fn runs(self, ticket: Ticket) -> bool {
        matches!(self, Self::Running { ticket: running } if running == ticket)
    }

    fn timeout(self) -> Option<HolderTime> {
        match self {
            Self::Running { .. } => None,
            Self::Waiting { until } => Some(until),
        }
    }
}

impl Cleanup {
    pub(super) fn timeout(&self) -> Option<HolderTime> {
        self.step.timeout()
    }
}

impl Releasing {
    pub(super) fn runs(&self, ticket: Ticket) -> bool {
        self.step.runs(ticket)
    }

    /// Whether the caller was answered, and nothing is under way.
    pub(super) fn is_in_the_background(&self) -> bool {
        matches!(self.step, Step::Waiting { .. })
    }

    pub(super) fn timeout(&self) -> Option<HolderTime> {
        self.step.timeout()
    }

    pub(super) fn abort(&mut self, call: CallId, out: &mut Out) {
        if let Some(at) = self.next.iter().position(|waiting| waiting.call == call) {
            let Wish { options, .. } = self.next.swap_remove(at);
            let error = ProjectLockError::new(Fault::Aborted, Operation::Acquire, options.profile);
            out.error(error.clone(), None, None);
            out.settle(&[call], &Err(error));
        }
    }
}

impl ProjectLock {
    pub(super) fn begin_release(
        &mut self,
        call: CallId,
        lease_id: LeaseId,
        reason: ReleaseReason,
        force: bool,
    ) {
        match &mut self.phase {
            Phase::Holding(holding) if holding.lease.lease_id == lease_id => {
                holding.depth -= 1;
                if holding.depth > 0 && !force {
                    return self.out.settle_released(call);
                }
                self.let_go(call, reason);
            }
            Phase::Holding(holding) => {
                let error = ProjectLockError::new(Fault::Stale, Operation::Release, holding.options.profile);
                self.out.settle(&[call], &Err(error));
            }
            Phase::Releasing(releasing) if releasing.lease.lease_id == lease_id => {
                releasing.calls.push(call);
                if force && releasing.is_in_the_background() {
                    self.run_release();
                }
            }
            _ => self.release_again_later(call, lease_id),
        }
    }

    /// Releasing what is over: fine if it was released, or never known; an error if it was lost.
    fn release_again_later(&mut self, call: CallId, lease_id: LeaseId) {
        let lost = matches!(&self.over, Some((known, Over::Lost(_))) if *known == lease_id);
        if !lost {
            return self.out.settle_released(call);
        }
        let error = self.lost_before(lease_id, Operation::Release);
        let error = ProjectLockError { fault: Fault::Expired, retryable: false, ..error };
        self.out.error(error.clone(), None, Some(lease_id));
        self.out.settle(&[call], &Err(error));
    }

    fn let_go(&mut self, call: CallId, reason: ReleaseReason) {
        let Phase::Holding(holding) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let holding = *holding;
        self.out.emit(Event::ReleaseRequested { lease: holding.lease.clone(), reason });
        let over = ProjectLockError::new(Fault::Expired, Operation::Renew, holding.options.profile);
        self.out.settle(&holding.calls, &Err(over.said("the lease is being released")));
        self.phase = Phase::Releasing(Box::new(Releasing {
            lease: holding.lease,
            options: holding.options,
            calls: vec![call],
            tries: 0,
            step: Step::Waiting { until: HolderTime::ZERO },
            next: Vec::new(),
        }));
        self.run_release();
        // Others may queue up at once: whether they get the lock is for `.lock` to say.
        self.out.drop_web(holding.web);
        if self.surroundings.is_bare() {
            self.is_released();
        }
    }

    fn run_release(&mut self) {
        let Phase::Releasing(releasing) = &mut self.phase else { return };
        releasing.tries += 1;
        if !self.surroundings.is_bare() {
            let ticket = self.out.guarded(Action::Release(claim_of(&releasing.lease)));
            releasing.step = Step::Running { ticket };
        }
    }

    pub(super) fn release_again(&mut self, now: Now) {
        if let Phase::Releasing(releasing) = &self.phase
            && let Step::Waiting { until } = releasing.step
            && until <= now.steady
        {
            self.run_release();
        }
    }

    pub(super) fn released(&mut self, outcome: Outcome, now: Now) {
        let Phase::Releasing(releasing) = &self.phase else { return };
        match outcome {
            Outcome::Released | Outcome::Lost(Loss::Missing) => self.is_released(),
            // An earlier try of this release, or its closed held file, has let another holder in: the release had worked.
            Outcome::Lost(_) if releasing.tries > 1 => self.is_released(),
            Outcome::Lost(_) => self.was_over(),
            Outcome::Unreadable { said } => self.release_failed(&said, now),
            _ => self.release_failed("the folder gave an answer that makes no sense", now),
        }
        self.begin_next(now);
    }

    fn is_released(&mut self) {
        let Phase::Releasing(releasing) = &mut self.phase else { return };
        let (lease, next) = (releasing.lease.clone(), std::mem::take(&mut releasing.next));
        let calls = std::mem::take(&mut releasing.calls);
        self.out.emit(Event::Released(lease.clone()));
        self.out.push(Effect::Broadcast(News::Released { fence: lease.fence }));
        calls.into_iter().for_each(|call| self.out.settle_released(call));
        self.over = Some((lease.lease_id, Over::Released));
        self.finish_release(next);
    }

    /// The lease had ended before it was released.
    fn was_over(&mut self) {
        let Phase::Releasing(releasing) = &mut self.phase else { return };
        let error = ProjectLockError::new(Fault::Expired, Operation::Release, releasing.options.profile);
        let (lease_id, next) = (releasing.lease.lease_id, std::mem::take(&mut releasing.next));
        let calls = std::mem::take(&mut releasing.calls);
        self.out.error(error.clone(), None, Some(lease_id));
        self.out.settle(&calls, &Err(error.clone()));
        self.over = Some((lease_id, Over::Lost(error)));
        self.finish_release(next);
    }

    /// Idle, or on to the calls that wait in this tab: kept here until [`begin_next`](Self::begin_next), which knows the time.
    fn finish_release(&mut self, next: Vec<Wish>) {
        self.phase = Phase::Idle;
        self.waiting = next;
    }

    pub(super) fn release_failed(&mut self, said: &str, now: Now) {
        let Phase::Releasing(releasing) = &mut self.phase else { return };
        let attempt = Attempt { number: releasing.tries, most: RELEASE_RETRY.max_attempts };
        let goes_on = RELEASE_RETRY.goes_on_after(releasing.tries);
        let error =
            ProjectLockError::new(Fault::ReleaseFailed, Operation::Release, releasing.options.profile);
        let error = ProjectLockError { retryable: goes_on, ..error.said(said) };
        self.out.error(error.clone(), Some(attempt), Some(releasing.lease.lease_id));
        let calls = std::mem::take(&mut releasing.calls);
        if goes_on {
            let delay = RELEASE_RETRY.backoff.exact(releasing.tries);
            releasing.step = Step::Waiting { until: now.steady + delay };
            self.waiting = std::mem::take(&mut releasing.next);
        } else {
            let Phase::Releasing(releasing) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
            let lease_id = releasing.lease.lease_id;
            self.over = Some((lease_id, Over::Released));
            self.waiting = releasing.next;
            let reason = Reason::ReleaseFailed;
            self.enter_readonly(reason, error.clone(), Some(lease_id), &releasing.options, now);
        }
        self.out.settle(&calls, &Err(error));
        self.begin_next(now);
    }

    // --- releases without a caller ---

    /// Gives back what was lost, or granted to a call that had been given up. A page that is about to be frozen takes no
    /// guard, because it might be stopped with it: closing the held file is enough for the next caller, and the rest is done
    /// when the page is back.
    pub(super) fn clean_up(&mut self, claim: Proof) {
        if !self.surroundings.is_bare() {
            if self.frozen {
                self.out.push(Effect::DropHeld(claim.fence));
                self.out.push(Effect::Broadcast(News::Released { fence: claim.fence }));
            }
            let ticket = self.out.guarded(Action::Release(claim));
            self.cleanups.push(Cleanup { claim, tries: 1, step: Step::Running { ticket } });
        }
    }

    pub(super) fn take_cleanup(&mut self, ticket: Ticket) -> Option<Cleanup> {
        let at = self.cleanups.iter().position(|cleanup| cleanup.step.runs(ticket))?;
        Some(self.cleanups.swap_remove(at))
    }

    pub(super) fn cleaned_up(&mut self, cleanup: Cleanup, outcome: &Outcome, now: Now) {
        match outcome {
            Outcome::Released | Outcome::Lost(Loss::Expired) => {
                self.out.push(Effect::Broadcast(News::Released { fence: cleanup.claim.fence }));
            }
            Outcome::Unreadable { .. } => self.clean_up_later(cleanup, now),
            _ => {}
        }
    }

    /// As long as it has not worked, the held file is open, and the next caller waits for the end of the lease.
    pub(super) fn clean_up_later(&mut self, cleanup: Cleanup, now: Now) {
        let until = now.steady + CLEAN_UP_RETRY.backoff.exact(cleanup.tries);
        self.cleanups.push(Cleanup { step: Step::Waiting { until }, ..cleanup });
    }

    pub(super) fn clean_up_again(&mut self, now: Now) {
        for cleanup in &mut self.cleanups {
            if cleanup.timeout().is_some_and(|until| until <= now.steady) {
                cleanup.tries = cleanup.tries.saturating_add(1);
                cleanup.step = Step::Running { ticket: self.out.guarded(Action::Release(cleanup.claim)) };
            }
        }
    }

    /// The calls that wanted the lock while the release was under way get their turn.
    fn begin_next(&mut self, now: Now) {
        for wish in std::mem::take(&mut self.waiting) {
            self.wake(now);
            self.want(wish, now);
        }
    }
}
