//! Runs the machine of the project lock on a folder: brings it the time, does what it says, and keeps what it tells.
//! Nothing happens by itself here; a thread of its own does that for programs, and tests turn it by hand.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use leasehold_core::lease::{OnSilence, Proof};
use leasehold_core::{Fence, HolderTime, LeaseId, Meta, Reason, Ttl};
use leasehold_project_rules::guarded::{Action, Outcome};
use leasehold_project_rules::machine::ProjectLock;
use leasehold_project_rules::{
    Answer, Ask, Base, CallId, Effect, Event, IoError, IoStep, News, NotSaved, Now, Options, ProjectLease,
    ReleaseReason, Save, Say, Section, State, Surroundings, Version, WebLock,
};

use crate::clock::Clock;
use crate::draft::{self, Draft};
use crate::project::SaveError;
use crate::request::{self, HandoverRequest};
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
    saved: VecDeque<(CallId, Result<(), SaveError>)>,
    /// The last draft that was kept of each file: what it was made from, and its id.
    drafts: BTreeMap<String, (Version, String)>,
    events: VecDeque<Event>,
    /// What this program calls itself.
    label: Meta,
    /// The last thing that was said about a request to hand over, here or by another program.
    said: Option<Vec<u8>>,
    /// When it was last listened.
    listened: HolderTime,
    /// Whether this program had a request under way.
    was_asking: bool,
}

/// How often a program that holds the project, or asks for it, listens.
const LISTEN_EVERY: Duration = Duration::from_millis(500);

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
            label: Meta::default(),
            said: None,
            listened: HolderTime::ZERO,
            was_asking: false,
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
        self.label = label.clone();
        self.machine.set_label(label);
    }

    /// Begins to ask the holder to save and hand the project over.
    pub fn request_handover(&mut self, options: &Options, request: &HandoverRequest) -> CallId {
        let HandoverRequest { reason, countdown, on_silence } = request.clone();
        let (asker, label) = (self.machine.owner(), self.label.clone());
        let ask = Ask { asker, label, why: reason, countdown, on_silence };
        self.call(|machine, call, now| machine.request_handover(call, options, ask, now))
    }

    /// The program has seen that it was asked: the countdown begins.
    pub fn handover_told(&mut self) {
        let now = self.clock.now();
        self.machine.handover_told(now);
        self.work();
    }

    /// Refuses to hand the project over.
    pub fn refuse_handover(&mut self, lease_id: LeaseId, reason: Reason) {
        let now = self.clock.now();
        self.machine.refuse_handover(lease_id, reason, now);
        self.work();
    }

    fn listens(&self) -> bool {
        self.machine.lease().is_some() || self.machine.is_asking()
    }

    /// Hears what another program has said since the last time.
    fn listen(&mut self) {
        let now = self.clock.now();
        if !self.listens() || now.steady < self.listened + LISTEN_EVERY {
            return;
        }
        self.listened = now.steady;
        // What cannot be read was not said.
        let said = self.folder.read_request().ok().flatten();
        if said != self.said {
            self.said = said;
            if let Some(news) = self.said.as_deref().and_then(request::read) {
                self.machine.handle_news(&news, now);
                if is_for_the_holder(&news) {
                    self.forget_request();
                }
            }
        }
    }

    /// Says something about a request. That the project was released, or taken over, is said only if it was asked for.
    fn say(&mut self, news: &News) {
        let was_asked = self.said.as_deref().and_then(request::read);
        let is_worth_it = match (news, &was_asked) {
            (News::Handover { .. }, _) => true,
            (News::Released { fence }, Some(News::Handover { fence: asked, .. })) => fence == asked,
            (News::Acquired { .. }, Some(News::Handover { say: Say::Told, ask, .. })) => {
                ask.on_silence == OnSilence::Grant
            }
            _ => false,
        };
        let Some(note) = request::print(news, self.clock.now().wall).filter(|_| is_worth_it) else { return };
        if let Err(error) = self.folder.write_request(&note) {
            tracing::warn!(%error, "a request to hand over could not be passed on");
        }
        self.said = Some(note);
    }

    /// The request of this program is over. What ended it may be for the holder to read.
    fn tidy_request(&mut self) {
        if !self.said.as_deref().and_then(request::read).is_some_and(|news| is_for_the_holder(&news)) {
            self.forget_request();
        }
    }

    /// Removes what was last said, unless another program has said something since.
    fn forget_request(&mut self) {
        if self.said.is_some() && self.folder.read_request().ok().flatten() == self.said {
            let _ = self.folder.remove_request();
            self.said = None;
        }
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

    /// The program knows this version of a file. What is saved under its name from now on is made from it.
    pub(crate) fn saw(&mut self, name: &str, version: Version) {
        self.machine.saw(name, version);
        self.work();
    }

    /// Begins to write a file of the project. It is written if the lease is good and the file has the version that the save was
    /// made from, which is checked under the guard that the file is swapped under; [`poll_saved`](Self::poll_saved) says what
    /// came of it. What is not saved is kept as a draft.
    pub fn save(&mut self, claim: Proof, name: &str, content: &[u8], base: Base) -> CallId {
        self.save_also(claim, name, content, base, None)
    }

    /// The same under a second name, too, where the file system can do that.
    pub(crate) fn save_also(
        &mut self,
        claim: Proof,
        name: &str,
        content: &[u8],
        base: Base,
        also: Option<String>,
    ) -> CallId {
        let version = section::version_of(content);
        let from = self.machine.unsaved(name, &version);
        let to_save = ToSave { also, ..ToSave::new(name, content, from) };
        // The number of the next call.
        self.to_save.insert(CallId(self.calls.wrapping_add(1)), to_save);
        let save = Save { claim, path: name.into(), version, base };
        self.call(|machine, call, now| machine.save(call, save, now))
    }

    /// Keeps content as a draft, unless it is empty, or what this program has read or written under this name.
    pub fn keep_draft(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let base = self.machine.unsaved(name, &section::version_of(content));
        self.keep_draft_from(base, name, content)
    }

    /// The same for content that was made from `base`; none means that nothing could be lost.
    fn keep_draft_from(&mut self, base: Option<Version>, name: &str, content: &[u8]) -> io::Result<()> {
        section::check_name(name)?;
        let Some(base) = base.filter(|_| !content.is_empty()) else { return Ok(()) };
        let now = self.clock.now().wall;
        let id = draft::keep(&self.folder, name, content, &base, now)?;
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

    /// A save was answered: what was not saved is kept, even if it may be tried again, because the program may end before that.
    /// What has been saved needs no draft any more.
    fn after_save(&mut self, saved: &Result<(), NotSaved>, to_save: &ToSave) {
        let ToSave { name, content, base, .. } = to_save;
        let kept = match (saved, self.drafts.get(name)) {
            // Of what it was made before the save was tried: a save that failed may have been written all the same.
            (Err(_), _) => self.keep_draft_from(base.clone(), name, content),
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
        self.listen();
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
        let listen = self.listens().then(|| self.listened + LISTEN_EVERY);
        self.machine.poll_timeout().into_iter().chain(listen).min()
    }

    /// The next answer to a call.
    pub fn poll_answer(&mut self) -> Option<(CallId, Answer)> {
        self.answers.pop_front()
    }

    /// What came of the next save.
    pub fn poll_saved(&mut self) -> Option<(CallId, Result<(), SaveError>)> {
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
        self.do_effects();
        let is_asking = self.machine.is_asking();
        if std::mem::replace(&mut self.was_asking, is_asking) && !is_asking {
            self.tidy_request();
        }
    }

    fn do_effects(&mut self) {
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
                        let saved = saved.map_err(|why| SaveError::new(why, &to_save));
                        self.saved.push_back((call, saved));
                    }
                }
                // Of everything but requests, programs hear by looking at the folder.
                Effect::Broadcast(news) => self.say(&news),
                Effect::DropWebLock(_) => {}
                Effect::DropHeld(fence) => self.folder.drop_held(fence),
            }
        }
    }
}

/// The request was withdrawn, or silence has granted it: the holder reads that, and removes it.
fn is_for_the_holder(news: &News) -> bool {
    matches!(news, News::Acquired { .. } | News::Handover { say: Say::Withdrawn, .. })
}
