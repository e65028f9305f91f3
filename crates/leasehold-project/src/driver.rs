//! Runs the machine of the project lock on a folder: brings it the time, does what it says, and keeps what it tells.
//! Nothing happens by itself here; a thread of its own does that for programs, and tests turn it by hand.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use leasehold_core::lease::Proof;
use leasehold_core::{Fence, HolderTime, LeaseId, Meta, Reason, Ttl};
use leasehold_project_rules::guarded::{Action, Outcome};
use leasehold_project_rules::machine::ProjectLock;
use leasehold_project_rules::{
    Answer, Base, CallId, Effect, Event, IoError, IoStep, NotSaved, Now, Options, ProjectLease,
    ReleaseReason, Save, Section, State, Surroundings, Version, WebLock,
};

use crate::clock::Clock;
use crate::draft::{self, Draft};
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
    /// The last draft that was kept of each file: what it was made from, and its id.
    drafts: BTreeMap<String, (Version, String)>,
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
            drafts: BTreeMap::new(),
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

    /// A file of the project, and its version. What is saved under its name from now on is made from it.
    pub fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        section::check_name(name)?;
        let content = self.folder.read(name)?;
        let version = content.as_deref().map_or(Version::NO_FILE, section::version_of);
        self.machine.saw(name, version);
        self.work();
        Ok(content)
    }

    /// Begins to write a file of the project. It is written if the lease is good and the file has the version that the save was
    /// made from, which is checked under the guard that the file is swapped under; [`poll_saved`](Self::poll_saved) says what
    /// came of it. What is refused is kept as a draft.
    pub fn save(&mut self, claim: Proof, name: &str, content: &[u8], base: Base) -> CallId {
        let version = section::version_of(content);
        let from = self.machine.unsaved(name, &version);
        let to_save = ToSave { name: name.to_owned(), content: content.to_owned(), base: from };
        // The number of the next call.
        self.to_save.insert(CallId(self.calls.wrapping_add(1)), to_save);
        let save = Save { claim, path: name.into(), version, base };
        self.call(|machine, call, now| machine.save(call, save, now))
    }

    /// Keeps content as a draft, unless it is empty, or what this program has read or written under this name.
    pub fn keep_draft(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        section::check_name(name)?;
        let version = section::version_of(content);
        let Some(base) = self.machine.unsaved(name, &version).filter(|_| !content.is_empty()) else {
            return Ok(());
        };
        let now = self.clock.now().wall;
        let id = draft::keep(&self.folder, name, content, (&version, &base), now)?;
        match self.drafts.insert(name.to_owned(), (base.clone(), id.clone())) {
            // The new one was made from the same version, and contains what the old one did.
            Some((old_base, old)) if old_base == base && old != id => self.folder.discard_draft(&old),
            _ => Ok(()),
        }
    }

    /// What could not be saved, of any program, the oldest first.
    pub fn drafts(&self) -> io::Result<Vec<Draft>> {
        draft::all(&self.folder)
    }

    /// Removes a draft.
    pub fn discard_draft(&self, id: &str) -> io::Result<()> {
        draft::discard(&self.folder, id)
    }

    /// A save was answered: what was refused is kept, and what has been saved needs no draft any more.
    fn after_save(&mut self, saved: &Result<(), NotSaved>, to_save: &ToSave) {
        let ToSave { name, content, base } = to_save;
        let kept = match (saved, self.drafts.get(name)) {
            (Err(NotSaved::Lost(_) | NotSaved::StaleBase(_)), _) => self.keep_draft(name, content),
            (Ok(()), Some((draft_base, id))) if base.as_ref() == Some(draft_base) => {
                self.folder.discard_draft(id)
            }
            _ => Ok(()),
        };
        if let Err(error) = kept {
            tracing::warn!(%error, %name, "a draft could not be kept or removed");
        }
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
        let look = Section::new(Action::Look, std::process::id());
        section::run(&mut self.folder, look, None, &self.clock).map(|conclusion| conclusion.outcome)
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
                    if let Some(to_save) = self.to_save.remove(&call) {
                        self.after_save(&saved, &to_save);
                    }
                    self.saved.push_back((call, saved));
                }
                // Programs hear of each other by looking at the folder.
                Effect::DropWebLock(_) | Effect::Broadcast(_) => {}
                Effect::DropHeld(fence) => self.folder.drop_held(fence),
            }
        }
    }
}
