//! Holding the lock: heartbeats, their retries, and the deadline by which the holder has stopped.

use std::time::Duration;

use leasehold_core::name::{LeaseId, Reason as Why};
use leasehold_core::time::{HolderTime, Ttl};

use super::{Asked, Over, Phase, ProjectLock, claim_of, millis};
use crate::clock::Now;
use crate::effect::{CallId, Effect, Folder, News, State, Ticket, WebLock};
use crate::event::{Attempt, Event, Reason, Warning};
use crate::fault::{Fault, Operation, ProjectLockError};
use crate::guarded::{Action, Grant, Holder, Outcome};
use crate::lease::{Guarantee, ProjectLease, Settled};
use crate::options::{Options, RENEW_RETRY, Strategy, heartbeat_of, usable};

/// How many heartbeats in a row may fail: the next one is the last.
const FAILED_HEARTBEATS: u32 = 2;

/// How late a heartbeat may come without being remarked upon.
const PUNCTUAL: Duration = Duration::from_secs(1);

/// A lease that is held.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) lease: ProjectLease,
    pub(super) options: Options,
    pub(super) web: Option<Ticket>,
    /// From then on this tab must not act on it.
    pub(super) stop_at: HolderTime,
    /// How many acquires of this tab share it.
    pub(super) depth: u32,
    /// The calls that wait for a renewal; those that a running renewal does not answer come last.
    pub(super) calls: Vec<CallId>,
    pub(super) renewal: Renewal,
    /// How many heartbeats have failed in a row.
    failures: u32,
    /// Why another tab says that it has taken it over, until the folder says so.
    pub(super) why: Option<Why>,
    /// The request to hand the project over that this tab has heard of.
    pub(super) asked: Option<Asked>,
}

/// How a lease was got.
pub(super) struct Grip {
    pub(super) strategy: Strategy,
    pub(super) via_fallback: bool,
    pub(super) web: Option<Ticket>,
    /// How many releases will end it.
    pub(super) depth: u32,
    /// Why it was taken over, if it was.
    pub(super) why: Option<Why>,
    /// When the request was sent that got it.
    pub(super) sent: Now,
    /// Whether a file that this tab knows has another version now.
    pub(super) changed: bool,
}

/// The next renewal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    step: Step,
    /// How often this heartbeat was tried.
    tries: u32,
    /// For how long, if not as usual.
    extend_by: Option<Ttl>,
    /// The longest extension that the next section makes: the one that is under way was sent without it.
    next: Option<Ttl>,
    /// How many calls wait for that.
    queued: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Planned { at: HolderTime },
    Running { ticket: Ticket, sent: Now },
}

impl Renewal {
    const fn planned(at: HolderTime) -> Self {
        Self { step: Step::Planned { at }, tries: 0, extend_by: None, next: None, queued: 0 }
    }

    /// The try that is under way, or comes next.
    pub(super) fn attempt(&self) -> Attempt {
        Attempt { number: self.tries.max(1), most: RENEW_RETRY.max_attempts }
    }
}

impl Holding {
    pub(super) fn state(&self) -> State {
        match self.renewal.step {
            Step::Running { .. } => State::Renewing,
            Step::Planned { .. } if self.renewal.tries > 0 || self.failures > 0 => State::RenewScheduling,
            Step::Planned { .. } => State::Acquired,
        }
    }

    pub(super) fn runs(&self, ticket: Ticket) -> bool {
        matches!(self.renewal.step, Step::Running { ticket: running, .. } if running == ticket)
    }

    pub(super) fn timeout(&self) -> HolderTime {
        match self.renewal.step {
            Step::Planned { at } => at.min(self.stop_at),
            Step::Running { .. } => self.stop_at,
        }
    }

    /// How long a renewal lasts: as it is shown, and as it stands in `.lock`.
    fn ttls(&self) -> (Ttl, Ttl) {
        let usual = (self.options.shown_ttl(self.lease.strategy), self.options.file_ttl);
        self.renewal.extend_by.map_or(usual, |ttl| (ttl, ttl))
    }

    /// Takes in a grant or a renewal whose request was sent then, and plans the next heartbeat. Answers when that is.
    fn confirm(&mut self, shown: Ttl, grant: &Grant, sent: Now, now: Now) -> Duration {
        let heartbeat = heartbeat_of(self.options.heartbeat, self.lease.strategy, shown, grant.ttl);
        let at = sent.steady + heartbeat;
        self.stop_at = sent.steady + usable(shown, grant.ttl);
        self.renewal = Renewal::planned(at);
        self.failures = 0;
        let next = at.since(now.steady);
        self.lease.ttl = shown;
        self.lease.expires_at = grant.at + shown.as_duration();
        self.lease.next_heartbeat_at = now.wall + next;
        next
    }
}

impl ProjectLock {
    /// Holds what was granted.
    pub(super) fn hold(&mut self, grant: &Grant, grip: &Grip, options: &Options, calls: &[CallId], now: Now) {
        let guarantee = match self.surroundings.folder {
            Folder::Guarded => Guarantee::Exclusive,
            Folder::Advisory => Guarantee::Advisory,
            Folder::Absent { .. } => Guarantee::TabExclusive,
        };
        let shown = options.shown_ttl(grip.strategy);
        let lease = ProjectLease {
            lease_id: grant.lease_id,
            owner: self.owner(),
            root: self.surroundings.root.clone(),
            fence: grant.fence,
            acquired_at: grant.at,
            expires_at: grant.at,
            ttl: shown,
            next_heartbeat_at: grant.at,
            strategy: grip.strategy,
            via_fallback: grip.via_fallback,
            guarantee,
        };
        let mut holding = Holding {
            lease,
            options: *options,
            web: grip.web,
            stop_at: grip.sent.steady,
            depth: grip.depth,
            calls: Vec::new(),
            renewal: Renewal::planned(now.steady),
            failures: 0,
            why: None,
            asked: None,
        };
        let next_heartbeat_in = holding.confirm(shown, grant, grip.sent, now);
        let lease = holding.lease.clone();
        self.phase = Phase::Holding(Box::new(holding));
        self.out.emit(Event::Acquired { lease: lease.clone(), changed: grip.changed });
        self.out.emit(Event::RenewScheduled { lease: lease.clone(), next_heartbeat_in });
        let news = News::Acquired { owner: lease.owner.clone(), fence: lease.fence, why: grip.why.clone() };
        self.out.push(Effect::Broadcast(news));
        self.out.settle(calls, &Ok(Settled::Acquired(lease)));
        self.asked_and_held();
    }

    // --- renewing ---

    pub(super) fn begin_asked_renewal(
        &mut self,
        call: CallId,
        lease_id: LeaseId,
        extend_by: Option<Ttl>,
        now: Now,
    ) {
        let Phase::Holding(holding) = &mut self.phase else {
            let error = self.lost_before(lease_id, Operation::Renew);
            return self.out.settle(&[call], &Err(error));
        };
        if holding.lease.lease_id != lease_id {
            let error = ProjectLockError::new(Fault::Stale, Operation::Renew, holding.options.profile);
            return self.out.settle(&[call], &Err(error));
        }
        if extend_by.is_some() {
            holding.calls.push(call);
            holding.renewal.queued += 1;
            holding.renewal.next = extend_by.max(holding.renewal.next);
        } else {
            holding.calls.insert(0, call);
        }
        self.renew_now(now);
    }

    /// What is known about a lease that is not held.
    pub(super) fn lost_before(&self, lease_id: LeaseId, operation: Operation) -> ProjectLockError {
        match &self.over {
            Some((known, Over::Lost(error))) if *known == lease_id => {
                ProjectLockError { operation, ..error.clone() }
            }
            _ => ProjectLockError::new(Fault::Expired, operation, self.profile),
        }
    }

    pub(super) fn heartbeat(&mut self, now: Now) {
        let Phase::Holding(holding) = &self.phase else { return };
        let Step::Planned { at } = holding.renewal.step else { return };
        if at > now.steady {
            return;
        }
        let late = now.steady.since(at);
        if late > PUNCTUAL {
            self.out.warn(Warning::HeartbeatDelayed, &millis(late));
        }
        self.renew_now(now);
    }

    /// Sends a renewal, unless one is under way.
    pub(super) fn renew_now(&mut self, now: Now) {
        let Phase::Holding(holding) = &mut self.phase else { return };
        if let Step::Running { .. } = holding.renewal.step {
            return;
        }
        let (strategy, retry) = (holding.lease.strategy, holding.renewal.tries);
        self.out.emit(Event::Attempt { operation: Operation::Renew, strategy, retry });
        let renewal = &mut holding.renewal;
        renewal.tries += 1;
        renewal.extend_by = renewal.next.take().max(renewal.extend_by);
        renewal.queued = 0;
        let (shown, file) = holding.ttls();
        let claim = claim_of(&holding.lease);
        if self.surroundings.is_bare() {
            let (lease_id, fence) = (claim.lease_id, claim.fence);
            let grant = Grant { lease_id, fence, ttl: file, at: now.wall, after: None };
            return self.keep(shown, &grant, now, now);
        }
        let ticket = self.out.guarded(Action::Renew { claim, ttl: file });
        holding.renewal.step = Step::Running { ticket, sent: now };
    }

    pub(super) fn renewed(&mut self, outcome: Outcome, holder: Option<Box<Holder>>, now: Now) {
        let Phase::Holding(holding) = &self.phase else { return };
        let Step::Running { sent, .. } = holding.renewal.step else { return };
        let (shown, _) = holding.ttls();
        match outcome {
            Outcome::Renewed(grant) => self.keep(shown, &grant, sent, now),
            Outcome::Lost(loss) => self.lose_by(loss, holder, now),
            Outcome::Newer { version } => self.lose_to_newer(version, now),
            Outcome::Unreadable { said } => self.renewal_failed(&said, now),
            _ => self.renewal_failed("the folder gave an answer that makes no sense", now),
        }
    }

    /// The lease goes on. An extension that was asked for meanwhile is not in what was written: it follows.
    fn keep(&mut self, shown: Ttl, grant: &Grant, sent: Now, now: Now) {
        let Phase::Holding(holding) = &mut self.phase else { return };
        let Renewal { next, queued, .. } = holding.renewal;
        let next_heartbeat_in = holding.confirm(shown, grant, sent, now);
        let queued = holding.calls.split_off(holding.calls.len().saturating_sub(queued));
        let (lease, calls) = (holding.lease.clone(), std::mem::replace(&mut holding.calls, queued));
        holding.renewal.next = next;
        self.out.emit(Event::RenewScheduled { lease: lease.clone(), next_heartbeat_in });
        self.out.emit(Event::Renewed(lease.clone()));
        self.out.settle(&calls, &Ok(Settled::Renewed(lease)));
        if next.is_some() {
            self.renew_now(now);
        }
    }

    /// A try has failed: another one follows, or the heartbeat has.
    pub(super) fn renewal_failed(&mut self, said: &str, now: Now) {
        let Phase::Holding(holding) = &mut self.phase else { return };
        let error = ProjectLockError::new(Fault::RenewFailed, Operation::Renew, holding.options.profile);
        let error = error.said(said);
        let (attempt, lease_id) = (holding.renewal.attempt(), Some(holding.lease.lease_id));
        if RENEW_RETRY.goes_on_after(attempt.number) {
            let delay = RENEW_RETRY.backoff.exact(attempt.number);
            holding.renewal.step = Step::Planned { at: now.steady + delay };
            return self.out.error(error, Some(attempt), lease_id);
        }
        holding.failures += 1;
        if holding.failures >= FAILED_HEARTBEATS {
            return self.lose(error, Reason::RenewFailed, now);
        }
        // The next heartbeat leaves room for its own retries before the deadline.
        let usual = holding.lease.ttl.as_duration() / 2;
        let wait = usual.min(holding.stop_at.since(now.steady) / 2);
        holding.renewal = Renewal::planned(now.steady + wait);
        let calls = std::mem::take(&mut holding.calls);
        self.out.error(error.clone(), Some(attempt), lease_id);
        self.out.settle(&calls, &Err(error));
    }

    // --- the Web Lock ---

    pub(super) fn hold_web(&mut self, what: &WebLock, now: Now) {
        let Phase::Holding(holding) = &mut self.phase else { return };
        if *what == WebLock::Granted {
            return;
        }
        holding.web = None;
        if *what != WebLock::Stolen {
            return;
        }
        if self.surroundings.is_bare() {
            // There was nothing else to it.
            let error = ProjectLockError::new(Fault::Stale, Operation::Renew, holding.options.profile);
            return self.lose(error.said("the Web Lock was stolen"), Reason::LeaseStale, now);
        }
        self.renew_now(now);
    }
}
