//! Asking the holder to save and hand the project over. The request goes from tab to tab as news; its countdown begins when
//! the holder's page has been told, so the silence of a tab that is frozen or gone grants nothing. To hand over is to release:
//! tabs that wait by `autoResume` leave the project to the asker for a moment. Silence that grants is a take-over of the fence
//! that was asked for, decided in a guarded section like every other.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::lease::OnSilence;
use leasehold_core::name::{Fence, LeaseId, Reason};
use leasehold_core::time::HolderTime;

use super::acquire::Wish;
use super::{Phase, ProjectLock, RELOAD_GRACE};
use crate::clock::Now;
use crate::effect::{Ask, CallId, Effect, IoError, News, Say, Ticket};
use crate::event::Event;
use crate::fault::{Fault, Operation, ProjectLockError};
use crate::guarded::{Action, Holder, Outcome};
use crate::lease::{Answer, Settled};
use crate::options::Options;

/// How long a holder's page may take to hear of a request.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// A request that this tab has made.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    call: CallId,
    options: Options,
    ask: Arc<Ask>,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    /// Looking whom to ask; or for the last time, with why nothing was handed over: the holder may have vanished.
    Looking { ticket: Ticket, in_vain: Option<&'static str> },
    /// Waiting until the holder was told.
    Sent { holder: Box<Holder>, until: HolderTime },
    /// The countdown.
    Told { holder: Box<Holder>, until: HolderTime },
}

impl Asking {
    fn asked(&self) -> Option<(&Holder, HolderTime)> {
        match &self.step {
            Step::Looking { .. } => None,
            Step::Sent { holder, until } | Step::Told { holder, until } => Some((holder, *until)),
        }
    }

    pub(super) fn timeout(&self) -> Option<HolderTime> {
        self.asked().map(|(_, until)| until)
    }
}

/// A request that this tab, which holds the project, has heard of.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    ask: Arc<Ask>,
    is_told: bool,
    /// From then on another tab may ask.
    until: HolderTime,
}

impl ProjectLock {
    /// Asks the holder to hand the project over. Answered with the lease, or with why not; with the lease at once where
    /// nobody holds the project.
    pub fn request_handover(&mut self, call: CallId, options: &Options, ask: Ask, now: Now) {
        self.wake(now);
        let can_ask = matches!(self.phase, Phase::Idle | Phase::Readonly(_)) && self.asking.is_none();
        if !can_ask || self.surroundings.is_bare() {
            let fault = if can_ask { Fault::CannotCreate } else { Fault::AlreadyHeld };
            let error = ProjectLockError::new(fault, Operation::Acquire, options.profile);
            return self.out.settle(&[call], &Err(error));
        }
        let step = Step::Looking { ticket: self.out.guarded(Action::Look), in_vain: None };
        self.asking = Some(Box::new(Asking { call, options: *options, ask: Arc::new(ask), step }));
    }

    /// Whether this tab has asked the holder, and was not answered yet.
    pub fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// The page of the holder has had the event of the request: the countdown begins.
    pub fn handover_told(&mut self, now: Now) {
        self.expire(now);
        let Phase::Holding(holding) = &mut self.phase else { return };
        let Some(asked) = holding.asked.as_mut().filter(|asked| !asked.is_told) else { return };
        asked.is_told = true;
        let (fence, ask) = (holding.lease.fence, asked.ask.clone());
        self.say(fence, Say::Told, ask);
    }

    /// The holder keeps the project. A lease that is over refuses nothing.
    pub fn refuse_handover(&mut self, lease_id: LeaseId, why: Reason, now: Now) {
        self.wake(now);
        if let Phase::Holding(holding) = &mut self.phase
            && holding.lease.lease_id == lease_id
            && let Some(asked) = holding.asked.take()
        {
            let fence = holding.lease.fence;
            self.refuse(fence, &asked.ask, why);
        }
    }

    fn say(&mut self, fence: Fence, say: Say, ask: Arc<Ask>) {
        self.out.push(Effect::Broadcast(News::Handover { fence, say, ask }));
    }

    fn refuse(&mut self, fence: Fence, ask: &Ask, why: Reason) {
        self.say(fence, Say::Refused, Arc::new(Ask { why, ..ask.clone() }));
    }

    // --- what comes in ---

    pub(super) fn asks(&self, ticket: Ticket) -> bool {
        matches!(&self.asking, Some(asking) if matches!(asking.step, Step::Looking { ticket: looks, .. } if looks == ticket))
    }

    /// The look that a request begins and ends with.
    pub(super) fn looked_whom_to_ask(&mut self, looked: Result<Outcome, &IoError>, now: Now) {
        let Some(asking) = &mut self.asking else { return };
        let Step::Looking { in_vain, .. } = asking.step else { return };
        match looked {
            Ok(Outcome::Held(holder)) => {
                if let Some(why) = in_vain {
                    return self.not_handed_over(why, Some(Box::new(holder)));
                }
                let (fence, ask) = (holder.fence, asking.ask.clone());
                asking.step = Step::Sent { holder: Box::new(holder), until: now.steady + TOLD_WITHIN };
                self.say(fence, Say::Asked, ask);
            }
            Ok(_) => self.acquire_what_was_asked_for(None, now),
            Err(error) => {
                let error = error.told(Operation::Acquire, asking.options.profile);
                self.settle_asking(&Err(error));
            }
        }
    }

    /// What another tab said about a request.
    pub(super) fn hear_of_handover(&mut self, fence: Fence, say: Say, ask: &Arc<Ask>, now: Now) {
        match (&mut self.phase, &self.asking) {
            (Phase::Holding(holding), _) if holding.lease.fence == fence => {
                self.hear_as_holder(say, ask, now);
            }
            (_, Some(asking)) if ask.asker == self.surroundings.owner => {
                if let Some((holder, _)) = asking.asked()
                    && holder.fence == fence
                {
                    let holder = Box::new(holder.clone());
                    self.hear_as_asker(say, ask, holder, now);
                }
            }
            (Phase::Readonly(readonly), _) => readonly.promise(match say {
                Say::Told => Some(now.steady + ask.countdown + RELOAD_GRACE),
                _ => None,
            }),
            _ => {}
        }
    }

    fn hear_as_holder(&mut self, say: Say, ask: &Arc<Ask>, now: Now) {
        let Phase::Holding(holding) = &mut self.phase else { return };
        let fence = holding.lease.fence;
        let is_free = holding
            .asked
            .as_ref()
            .is_none_or(|asked| asked.ask.asker == ask.asker || asked.until <= now.steady);
        match say {
            Say::Asked if is_free => {
                let until = now.steady + ask.countdown + TOLD_WITHIN;
                holding.asked = Some(Asked { ask: ask.clone(), is_told: false, until });
                self.out.emit(Event::HandoverRequested(ask.clone()));
            }
            Say::Asked => {
                let why = Reason::parse("another tab has asked before").unwrap_or_default();
                self.refuse(fence, ask, why);
            }
            Say::Withdrawn if is_free && holding.asked.take().is_some() => {
                self.out.emit(Event::HandoverWithdrawn(ask.clone()));
            }
            _ => {}
        }
    }

    fn hear_as_asker(&mut self, say: Say, ask: &Ask, holder: Box<Holder>, now: Now) {
        let Some(asking) = &mut self.asking else { return };
        match (say, &asking.step) {
            (Say::Told, Step::Sent { .. }) => {
                let (until, countdown) = (now.steady + asking.ask.countdown, asking.ask.countdown);
                self.out.emit(Event::HandoverTold { holder: holder.clone(), countdown });
                asking.step = Step::Told { holder, until };
            }
            (Say::Refused, _) => {
                let why = Some(ask.why.as_str()).filter(|why| !why.is_empty());
                self.not_handed_over(why.unwrap_or("the holder refuses"), Some(holder));
            }
            _ => {}
        }
    }

    /// The holder has released the project.
    pub(super) fn hear_of_release(&mut self, fence: Fence, now: Now) {
        let asked = self.asking.as_ref().and_then(|asking| asking.asked());
        if asked.is_some_and(|(holder, _)| holder.fence == fence) {
            self.acquire_what_was_asked_for(None, now);
        }
    }

    pub(super) fn handover_timeout(&mut self, now: Now) {
        let Some(asking) = &mut self.asking else { return };
        let in_vain = match &asking.step {
            Step::Sent { until, .. } if *until <= now.steady => {
                "the holder did not answer: it is frozen or busy, or does not listen"
            }
            Step::Told { holder, until } if *until <= now.steady => match asking.ask.on_silence {
                OnSilence::Refuse => "the holder was silent until the countdown ended",
                OnSilence::Grant => {
                    let fence = holder.fence;
                    return self.acquire_what_was_asked_for(Some(fence), now);
                }
            },
            _ => return,
        };
        asking.step = Step::Looking { ticket: self.out.guarded(Action::Look), in_vain: Some(in_vain) };
    }

    // --- how a request ends ---

    /// This tab has the project, by whichever way.
    pub(super) fn asked_and_held(&mut self) {
        if let (true, Some(lease)) = (self.asking.is_some(), self.lease().cloned()) {
            self.settle_asking(&Ok(Settled::Acquired(lease)));
        }
    }

    /// The asker leaves: its call was aborted, or its page is frozen. Answers whether there was a request.
    pub(super) fn withdraw_asking(&mut self, call: Option<CallId>) -> bool {
        let Some(asking) = self.asking.as_ref().filter(|asking| call.is_none_or(|call| asking.call == call))
        else {
            return false;
        };
        let error = ProjectLockError::new(Fault::Aborted, Operation::Acquire, asking.options.profile);
        if let Some((holder, _)) = asking.asked() {
            let (fence, ask) = (holder.fence, asking.ask.clone());
            self.say(fence, Say::Withdrawn, ask);
        }
        self.settle_asking(&Err(error));
        true
    }

    /// By force if a fence is named: the holder has been silent.
    fn acquire_what_was_asked_for(&mut self, seen: Option<Fence>, now: Now) {
        let Some(asking) = self.asking.take() else { return };
        let Asking { call, options, ask, .. } = *asking;
        let take_over = seen.map(|seen| (Some(seen), ask.why.clone()));
        self.want(Wish { call, options, take_over }, now);
    }

    fn not_handed_over(&mut self, why: &str, holder: Option<Box<Holder>>) {
        let Some(asking) = &self.asking else { return };
        let error = ProjectLockError::new(Fault::Conflict, Operation::Acquire, asking.options.profile);
        self.settle_asking(&Err(ProjectLockError { retryable: false, holder, ..error.said(why) }));
    }

    fn settle_asking(&mut self, answer: &Answer) {
        if let Some(asking) = self.asking.take() {
            self.out.settle(&[asking.call], answer);
        }
    }
}
