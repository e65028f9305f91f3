//! Read-only: the tab waits in the queue of the Web Lock, or looks at `.lock` from time to time, and says when the project
//! is free, or takes it by itself. It must never become read-only a second time for the same loss.

use std::time::Duration;

use leasehold_core::lease::Bid;
use leasehold_core::time::HolderTime;

use super::hold::Grip;
use super::{Out, Phase, ProjectLock};
use crate::clock::Now;
use crate::effect::{News, Ticket, WebLock};
use crate::event::Event;
use crate::guarded::{Action, Outcome};
use crate::options::{Options, Strategy, usable};

/// How often a tab looks whose turn in the queue of the Web Lock would not tell it anything. A look costs about 2 ms.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// How often it looks while it waits in the queue: a frozen tab keeps its Web Lock and loses its lease.
const LOOK_WHILE_QUEUED: Duration = Duration::from_secs(5);

/// How long a hidden tab leaves a project alone that has become free: a reload of its holder looks like its end, and the
/// user has not left for this tab. Also how long after that it may still take the project without waiting anew.
pub const RELOAD_GRACE: Duration = Duration::from_secs(2);

/// A tab that may not save.
#[derive(Clone, Debug)]
pub(super) struct Readonly {
    /// Its place in the queue; absent when waiting would not help.
    pub(super) queue: Option<Queue>,
    /// Whether the lease was over for so long when that was noticed, that nothing of the page can have run meanwhile.
    pub(super) overslept: bool,
}

/// A place in the queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    options: Options,
    /// Whether it takes the project when that is free.
    resumes: bool,
    web: Web,
    look: Option<(Ticket, Now)>,
    next_look: HolderTime,
    /// Whether it was told that the project is free.
    announced: bool,
    /// Since when the project is free, as far as a hidden tab knows that would take it.
    free_since: Option<HolderTime>,
    /// Until when the project is promised to another tab, which asks its holder for it.
    promised_until: HolderTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Web {
    /// Not asked yet.
    Unasked,
    Waiting(Ticket),
    Granted(Ticket),
    /// It tells nothing: it is not supported, or the holder of the project does not hold it.
    Useless,
}

impl Web {
    /// Where a queue begins.
    fn first(options: &Options) -> Self {
        if options.strategy == Strategy::WebLock { Self::Unasked } else { Self::Useless }
    }

    const fn ticket(self) -> Option<Ticket> {
        match self {
            Self::Waiting(ticket) | Self::Granted(ticket) => Some(ticket),
            Self::Unasked | Self::Useless => None,
        }
    }
}

impl Queue {
    /// `frozen` says whether the page was frozen, which is the one loss after which it resumes unasked. The next lease
    /// begins with the same options: what this one met with must not change them.
    pub(super) fn new(options: Options, frozen: bool, now: Now) -> Self {
        let resumes = options.auto_resume.unwrap_or(frozen);
        let web = Web::first(&options);
        Self {
            options,
            resumes,
            web,
            look: None,
            next_look: now.steady + LOOK_EVERY,
            announced: false,
            free_since: None,
            promised_until: HolderTime::ZERO,
        }
    }

    fn drop_web(&mut self, out: &mut Out, then: Web) {
        out.drop_web(self.web.ticket());
        self.web = then;
    }

    /// Whether a tab that holds back has left the project alone for long enough.
    fn is_ripe(&self, now: Now) -> bool {
        let waited = self.free_since.map(|since| now.steady.since(since));
        waited.is_some_and(|waited| (RELOAD_GRACE..RELOAD_GRACE * 2).contains(&waited))
    }

    /// The project was free, and another holder was faster: this tab queues up again, and will say `available` again.
    fn begin_again(&mut self, now: Now) {
        self.free_since = None;
        if std::mem::replace(&mut self.announced, false) {
            (self.web, self.next_look) = (Web::first(&self.options), now.steady + LOOK_EVERY);
        }
    }
}

impl Readonly {
    pub(super) fn waits_for(&self, ticket: Ticket) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.web.ticket() == Some(ticket))
    }

    pub(super) fn looks(&self, ticket: Ticket) -> bool {
        self.queue.as_ref().and_then(|queue| queue.look).is_some_and(|(looking, _)| looking == ticket)
    }

    pub(super) fn timeout(&self) -> Option<HolderTime> {
        let queue = self.queue.as_ref()?;
        queue.look.is_none().then_some(queue.next_look)
    }

    /// Leaves the queue until the page is back: a page that waits for a lock cannot go into the back/forward cache. Where
    /// everything of a page is frozen at once, it may hear of that only afterwards: that was what it lost its lease by.
    pub(super) fn pause(&mut self, out: &mut Out, now: Now) {
        if let Some(queue) = &mut self.queue {
            queue.resumes |= self.overslept && queue.options.auto_resume.is_none();
            queue.drop_web(out, Web::Unasked);
            (queue.look, queue.next_look, queue.free_since) = (None, now.steady, None);
        }
    }

    pub(super) fn hear(&mut self, news: &News, now: Now) {
        let Some(queue) = &mut self.queue else { return };
        match news {
            News::Released { .. } => queue.next_look = now.steady,
            News::Acquired { .. } => {
                queue.begin_again(now);
                queue.promised_until = HolderTime::ZERO;
            }
            News::Handover { .. } => {}
        }
    }

    /// The project is promised to another tab until then, or to none any more.
    pub(super) fn promise(&mut self, until: Option<HolderTime>) {
        if let Some(queue) = &mut self.queue {
            queue.promised_until = until.unwrap_or(HolderTime::ZERO);
        }
    }
}

impl ProjectLock {
    /// Read-only ends here.
    pub(super) fn leave_readonly(&mut self) {
        if let Phase::Readonly(readonly) = std::mem::replace(&mut self.phase, Phase::Idle)
            && let Some(queue) = readonly.queue
        {
            self.out.drop_web(queue.web.ticket());
        }
    }

    /// Queues up, or looks if it is time to.
    pub(super) fn look_again(&mut self, now: Now) {
        let Phase::Readonly(readonly) = &mut self.phase else { return };
        let Some(queue) = &mut readonly.queue else { return };
        let holds_back = queue.free_since.is_some_and(|since| now.steady < since + RELOAD_GRACE);
        if queue.web == Web::Unasked && !queue.announced && !holds_back {
            queue.web = Web::Waiting(self.out.request_web(false));
            queue.next_look = now.steady + LOOK_WHILE_QUEUED;
        }
        if queue.look.is_none() && queue.next_look <= now.steady {
            self.look(now);
        }
    }

    /// Looks whether the project is free; who resumes by itself takes it in the same section.
    fn look(&mut self, now: Now) {
        let (lease_id, owner, meta) = (self.next_lease_id(), self.owner(), self.label.clone());
        let Phase::Readonly(readonly) = &mut self.phase else { return };
        let Some(queue) = &mut readonly.queue else { return };
        if self.surroundings.is_bare() {
            // There is nothing to look at: its turn in the queue tells.
            queue.next_look = now.steady + LOOK_WHILE_QUEUED;
            return;
        }
        let ttl = queue.options.file_ttl;
        let bid = Bid { lease_id, owner, tab: None, ttl, meta };
        let holds_back = self.hidden || now.steady < queue.promised_until;
        let takes = queue.resumes && (!holds_back || queue.is_ripe(now));
        let action = if takes { Action::Acquire(bid) } else { Action::Look };
        queue.look = Some((self.out.guarded(action), now));
    }

    pub(super) fn queue_web(&mut self, what: &WebLock, now: Now) {
        let Phase::Readonly(readonly) = &mut self.phase else { return };
        let Some(queue) = &mut readonly.queue else { return };
        queue.web = match (what, queue.web.ticket()) {
            (WebLock::Granted, Some(ticket)) => Web::Granted(ticket),
            _ => Web::Useless,
        };
        queue.next_look = now.steady;
        if self.surroundings.is_bare() {
            self.turn_of_the_bare(now);
        } else if queue.look.is_none() {
            self.look(now);
        }
    }

    /// Its turn has come where the Web Lock is all there is.
    fn turn_of_the_bare(&mut self, now: Now) {
        let Phase::Readonly(readonly) = &self.phase else { return };
        let Some(queue) = &readonly.queue else { return };
        let Web::Granted(ticket) = queue.web else { return };
        if !queue.resumes {
            return self.announce(now);
        }
        if self.hidden && !queue.is_ripe(now) {
            return self.hold_back(now);
        }
        let options = queue.options;
        let lease_id = self.next_lease_id();
        let grip = Grip {
            strategy: Strategy::WebLock,
            via_fallback: false,
            web: Some(ticket),
            depth: 1,
            why: None,
            sent: now,
            changed: false,
        };
        self.hold_bare(lease_id, &grip, &options, &[], now);
    }

    pub(super) fn looked(&mut self, outcome: Outcome, changed: bool, now: Now) {
        match outcome {
            Outcome::Free => match &self.phase {
                Phase::Readonly(readonly) if readonly.queue.as_ref().is_some_and(|queue| queue.resumes) => {
                    self.hold_back(now);
                }
                _ => self.announce(now),
            },
            Outcome::Granted(grant) => {
                let Phase::Readonly(readonly) = &mut self.phase else { return };
                let Some(queue) = readonly.queue.take() else { return };
                let Some((_, sent)) = queue.look else { return };
                let (strategy, web) = match queue.web {
                    Web::Granted(ticket) => (Strategy::WebLock, Some(ticket)),
                    _ => (Strategy::FileLock, None),
                };
                let shown = queue.options.shown_ttl(strategy);
                if now.steady >= sent.steady + usable(shown, grant.ttl) {
                    readonly.queue = Some(queue);
                    self.give_back(&Outcome::Granted(grant));
                    return self.look_failed(now);
                }
                self.out.drop_web(queue.web.ticket().filter(|_| web.is_none()));
                let via_fallback = strategy != queue.options.strategy;
                let grip = Grip { strategy, via_fallback, web, depth: 1, why: None, sent, changed };
                self.hold(&grant, &grip, &queue.options, &[], now);
            }
            Outcome::Held(_) => {
                if let Phase::Readonly(readonly) = &mut self.phase
                    && let Some(queue) = &mut readonly.queue
                {
                    queue.begin_again(now);
                }
                self.look_failed(now);
            }
            _ => self.look_failed(now),
        }
    }

    /// The project is free, and this tab is hidden, or another one was promised the project: its holder may be back in a moment,
    /// or the other one come, and must not find this tab in the way.
    fn hold_back(&mut self, now: Now) {
        let Phase::Readonly(readonly) = &mut self.phase else { return };
        let Some(queue) = &mut readonly.queue else { return };
        queue.drop_web(&mut self.out, Web::first(&queue.options));
        queue.look = None;
        if !self.hidden && queue.promised_until <= now.steady {
            // The user has come to this tab while it looked.
            (queue.free_since, queue.next_look) = (None, now.steady);
            return self.look_again(now);
        }
        let is_new = queue.free_since.is_none_or(|since| now.steady.since(since) >= RELOAD_GRACE * 2);
        let since = if is_new { now.steady } else { queue.free_since.unwrap_or(now.steady) };
        // It looks meanwhile, so that it knows of a holder that comes and vanishes again.
        let next_look = (since + RELOAD_GRACE).min(now.steady + LOOK_EVERY);
        (queue.free_since, queue.next_look) = (Some(since), next_look);
    }

    /// The user has come to this tab: it does not hold back any more.
    pub(super) fn seen(&mut self, now: Now) {
        if let Phase::Readonly(readonly) = &mut self.phase
            && let Some(queue) = &mut readonly.queue
            && queue.free_since.take().is_some()
        {
            queue.next_look = now.steady;
            self.handle_timeout(now);
        }
    }

    /// The project is free, and the user may have it: published once. The tab goes on looking, because it has to know when
    /// another holder has the project, and may miss the news.
    fn announce(&mut self, now: Now) {
        let Phase::Readonly(readonly) = &mut self.phase else { return };
        let Some(queue) = &mut readonly.queue else { return };
        (queue.look, queue.next_look) = (None, now.steady + LOOK_WHILE_QUEUED);
        // A tab that wants the project now must not wait for this one.
        queue.drop_web(&mut self.out, Web::Useless);
        if !std::mem::replace(&mut queue.announced, true) {
            self.out.emit(Event::Available);
        }
    }

    /// Not free, or not to be told: it looks again.
    pub(super) fn look_failed(&mut self, now: Now) {
        let Phase::Readonly(readonly) = &mut self.phase else { return };
        let Some(queue) = &mut readonly.queue else { return };
        queue.look = None;
        // The holder of the project does not hold the Web Lock: having it tells nothing, and keeps others waiting.
        if matches!(queue.web, Web::Granted(_)) {
            queue.drop_web(&mut self.out, Web::Useless);
        }
        let waiting = matches!(queue.web, Web::Waiting(_));
        queue.next_look = now.steady + if waiting { LOOK_WHILE_QUEUED } else { LOOK_EVERY };
    }
}
