//! Runs the machine of the project lock on a folder: brings it the time, does what it says, and keeps what it tells.
//! Nothing happens by itself here; a thread of its own does that for programs, and tests turn it by hand.

use std::collections::{BTreeMap, VecDeque};

use leasehold_core::lease::Proof;
use leasehold_core::{Fence, HolderTime, LeaseId, Meta, Reason, Ttl};
use leasehold_project_rules::guarded::{Action, Outcome};
use leasehold_project_rules::machine::ProjectLock;
use leasehold_project_rules::{
    Answer, CallId, Effect, Event, IoError, IoStep, NotSaved, Now, Options, ProjectLease, ReleaseReason,
    State, Surroundings, WebLock,
};

use crate::clock::Clock;
use crate::section::{self, Folder, ToSave};

/// A machine, its folder and its clock.
pub struct Driver<F: Folder, C: Clock> {
    machine: ProjectLock,
    folder: F,
    clock: C,
    calls: u32,
    answers: VecDeque<(CallId, Answer)>,
    /// What is to be saved, by the call that saves it.
    to_save: BTreeMap<CallId, ToSave>,
    saved: VecDeque<(CallId, Result<(), NotSaved>)>,
    events: VecDeque<Event>,
}

impl<F: Folder, C: Clock> Driver<F, C> {
    /// A machine that holds nothing.
    pub fn new(folder: F, clock: C, surroundings: Surroundings) -> Self {
        let machine = ProjectLock::new(surroundings);
        Self {
            machine,
            folder,
            clock,
            calls: 0,
            answers: VecDeque::new(),
            to_save: BTreeMap::new(),
            saved: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Begins to take the lock.
    pub fn acquire(&mut self, options: &Options) -> CallId {
        self.call(|machine, call, now| machine.acquire(call, options, now))
    }

    /// Begins to take the lock from its holder.
    pub fn take_over(&mut self, options: &Options, seen: Option<Fence>, reason: Reason) -> CallId {
        self.call(|machine, call, now| machine.take_over(call, options, seen, reason, now))
    }

    /// What this program calls itself, for people.
    pub fn set_label(&mut self, label: Meta) {
        self.machine.set_label(label);
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
    pub fn release(&mut self, lease_id: LeaseId, reason: ReleaseReason, force: bool) -> CallId {
        self.call(|machine, call, now| machine.release(call, lease_id, reason, force, now))
    }

    /// Begins to write a file of the project. It is written if the lease is good, which is checked under the guard that the
    /// file is swapped under; [`poll_saved`](Self::poll_saved) says what came of it.
    pub fn save(&mut self, claim: Proof, name: &str, content: &[u8]) -> CallId {
        let to_save = (name.to_owned(), content.to_owned());
        // The number of the next call.
        self.to_save.insert(CallId(self.calls.wrapping_add(1)), to_save);
        self.call(|machine, call, now| machine.save(call, claim, now))
    }

    /// Does what is due by now.
    pub fn turn(&mut self) {
        let now = self.clock.now();
        self.machine.handle_timeout(now);
        self.work();
    }

    /// Finishes what is under way in the folder, such as the release of a guard that was dropped.
    pub fn finish(&mut self) {
        while let Some(due) = self.due().filter(|_| self.machine.is_in_section()) {
            self.clock.wait(due.since(self.clock.now().steady));
            self.turn();
        }
    }

    /// Who has the folder.
    pub fn look(&mut self) -> Result<Outcome, IoError> {
        section::run(&mut self.folder, Action::Look, None, &self.clock).map(|conclusion| conclusion.outcome)
    }

    /// When [`turn`](Self::turn) has something to do.
    pub fn due(&self) -> Option<HolderTime> {
        self.machine.poll_timeout()
    }

    /// The next answer to a call.
    pub fn poll_answer(&mut self) -> Option<(CallId, Answer)> {
        self.answers.pop_front()
    }

    /// What came of the next save.
    pub fn poll_saved(&mut self) -> Option<(CallId, Result<(), NotSaved>)> {
        self.saved.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Where the machine stands.
    pub fn state(&self) -> State {
        self.machine.state()
    }

    /// The lease, until its end is noticed.
    pub fn lease(&self) -> Option<&ProjectLease> {
        self.machine.lease()
    }

    /// What a save is checked with, if there may be one now.
    pub fn claim(&self) -> Option<Proof> {
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
                Effect::Io(step) => {
                    let to_save = match step {
                        IoStep::Save(call) => self.to_save.get(&call),
                        _ => None,
                    };
                    let reply = section::take_step(&mut self.folder, &step, to_save);
                    let now = self.clock.now();
                    self.machine.handle_io(reply, now);
                }
                // There are none outside of browsers.
                Effect::RequestWebLock { ticket, .. } => {
                    let now = self.clock.now();
                    self.machine.handle_web_lock(ticket, WebLock::Unsupported, now);
                }
                Effect::Emit(event) => self.events.push_back(event),
                Effect::Settle { call, answer } => self.answers.push_back((call, answer)),
                Effect::Saved { call, saved } => {
                    self.to_save.remove(&call);
                    self.saved.push_back((call, saved));
                }
                // Programs hear of each other by looking at the folder.
                Effect::DropWebLock(_) | Effect::Broadcast(_) => {}
                Effect::DropHeld(fence) => self.folder.drop_held(fence),
            }
        }
    }
}
