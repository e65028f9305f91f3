//! Runs the machine of the project lock on a folder: brings it the time, does what it says, and keeps what it tells.
//! Nothing happens by itself here; a thread of its own does that for programs, and tests turn it by hand.

use std::collections::VecDeque;

use leasehold_core::lease::Claim;
use leasehold_core::{Fence, HolderTime, LeaseId, Reason, Ttl};
use leasehold_project_rules::guarded::{Action, Outcome};
use leasehold_project_rules::machine::ProjectLock;
use leasehold_project_rules::{
    Answer, CallId, Effect, Event, IoError, Now, Options, ProjectLease, ReleaseReason, State, Surroundings,
    WebLock,
};

use crate::clock::Clock;
use crate::section::{self, Folder};

/// A machine, its folder and its clock.
pub struct Driver<F: Folder, C: Clock> {
    machine: ProjectLock,
    folder: F,
    clock: C,
    calls: u32,
    answers: VecDeque<(CallId, Answer)>,
    events: VecDeque<Event>,
}

impl<F: Folder, C: Clock> Driver<F, C> {
    /// A machine that holds nothing.
    pub fn new(folder: F, clock: C, surroundings: Surroundings) -> Self {
        let machine = ProjectLock::new(surroundings);
        Self { machine, folder, clock, calls: 0, answers: VecDeque::new(), events: VecDeque::new() }
    }

    /// Begins to take the lock.
    pub fn acquire(&mut self, options: &Options) -> CallId {
        self.call(|machine, call, now| machine.acquire(call, options, now))
    }

    /// Begins to take the lock from whoever has it.
    pub fn take_over(&mut self, options: &Options, seen: Option<Fence>, reason: Reason) -> CallId {
        self.call(|machine, call, now| machine.take_over(call, options, seen, reason, now))
    }

    /// Gives up a call that has not been answered.
    pub fn abort(&mut self, call: CallId) {
        let now = self.clock.now();
        self.machine.abort(call, now);
        self.work();
    }

    /// Begins to extend the lease.
    pub fn renew(&mut self, lease_id: LeaseId, extend_by: Option<Ttl>) -> CallId {
        self.call(|machine, call, now| machine.renew(call, lease_id, extend_by, now))
    }

    /// Begins to give the lease back.
    pub fn release(&mut self, lease_id: LeaseId, force: bool) -> CallId {
        self.call(|machine, call, now| machine.release(call, lease_id, ReleaseReason::default(), force, now))
    }

    /// Writes a file of the project, if the lease is good: looked at under the guard that the file is swapped under.
    pub fn save(&mut self, claim: Claim, name: &str, content: &[u8]) -> Result<Outcome, IoError> {
        let outcome = section::save(&mut self.folder, claim, name, content, &self.clock)?;
        self.machine.handle_commit(claim, &outcome, self.clock.now());
        self.work();
        Ok(outcome)
    }

    /// Does whatever is due by now.
    pub fn turn(&mut self) {
        let now = self.clock.now();
        self.machine.handle_timeout(now);
        self.work();
    }

    /// Who has the folder.
    pub fn look(&mut self) -> Result<Outcome, IoError> {
        section::run(&mut self.folder, Action::Look, &self.clock).map(|verdict| verdict.outcome)
    }

    /// When [`turn`](Self::turn) has something to do.
    pub fn due(&self) -> Option<HolderTime> {
        self.machine.poll_timeout()
    }

    /// The next answer to a call.
    pub fn poll_answer(&mut self) -> Option<(CallId, Answer)> {
        self.answers.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Where the machine stands.
    pub fn state(&self) -> State {
        self.machine.state()
    }

    /// The lease, as long as nobody has noticed that it is over.
    pub fn lease(&self) -> Option<&ProjectLease> {
        self.machine.lease()
    }

    /// What a save is checked with, if there may be one now.
    pub fn claim(&self) -> Option<Claim> {
        self.machine.claim(self.clock.now())
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The folder.
    pub fn folder(&self) -> &F {
        &self.folder
    }

    fn call(&mut self, what: impl FnOnce(&mut ProjectLock, CallId, Now)) -> CallId {
        self.calls = self.calls.wrapping_add(1);
        let call = CallId(self.calls);
        let now = self.clock.now();
        what(&mut self.machine, call, now);
        self.work();
        call
    }

    /// Does what the machine says, until it has nothing more to say.
    fn work(&mut self) {
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                Effect::Guarded { ticket, action } => {
                    let ran = section::run(&mut self.folder, action, &self.clock);
                    let now = self.clock.now();
                    match ran {
                        Ok(verdict) => {
                            self.machine.handle_guarded(ticket, verdict.outcome, verdict.skewed, now);
                        }
                        Err(error) => self.machine.handle_io_error(ticket, &error, now),
                    }
                }
                // There are none outside of browsers.
                Effect::RequestWebLock { ticket, .. } => {
                    let now = self.clock.now();
                    self.machine.handle_web_lock(ticket, WebLock::Unsupported, now);
                }
                Effect::Emit(event) => self.events.push_back(event),
                Effect::Settle { call, answer } => self.answers.push_back((call, answer)),
                // Programs hear of each other by looking at the folder.
                Effect::DropWebLock(_) | Effect::Broadcast(_) => {}
            }
        }
    }
}
