//! AutoSave for a project folder on disk: saves what a program edits while it is quiet, keeps its versions and brings them back.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! use std::sync::{Arc, Mutex};
//! use leasehold_project::Project;
//! use leasehold_project::autosave::{AutoSave, Document, Options};
//!
//! let text = Arc::new(Mutex::new(String::from("{}")));
//! let (edited, restored) = (text.clone(), text.clone());
//! let document = Document::new(move || Ok(edited.lock().unwrap().clone().into_bytes()))
//!     .applied_by(move |content| *restored.lock().unwrap() = String::from_utf8_lossy(content).into_owned());
//! let autosave = AutoSave::start(Project::open(folder.path())?, Options::default(), document)?;
//!
//! *text.lock().unwrap() = "{\"rooms\": 3}".into();
//! autosave.changed(); // saved two seconds after the last call, or at once:
//! assert!(autosave.flush());
//! assert_eq!(autosave.history()?.len(), 1);
//! autosave.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`leasehold_project_rules::autosave`] decides; here a thread brings it the time and does what it says. Every save goes
//! through a guarded section of the project lock. `current.json` and its generation are one file with two names, so that a save
//! costs one write and two syncs; do not edit `current.json` in place.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use leasehold_project_rules::autosave::history::{self, CURRENT, HISTORY, INDEX};
use leasehold_project_rules::autosave::{self as rules, Effect, Failure, Listing, Lock, Source, Taken};

pub use leasehold_project_rules::autosave::history::{Generation, Retention, Stamp};
pub use leasehold_project_rules::autosave::{ErrorCode, MAX_RETRIES, Notice, Options, State};

use crate::cancel::Cancel;
use crate::clock::{Clock, SystemClock};
use crate::project::{Project, ProjectGuard, SaveError, ended};
use crate::section::{Folder, is_full, version_of};
use crate::{Base, CallId, Fault, ProjectLockError, Version};

#[cfg(test)]
mod crash;

/// The longest sleep between two looks at the clock: a timer stands still while the machine sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How often a project that is another's is tried for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Gets the content, or says why that cannot be.
type Take = Box<dyn FnMut() -> Result<Vec<u8>, String> + Send>;

/// Goes on with another content, or refuses it.
type Apply = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// Whether it has changed since the last time.
type Look = Box<dyn FnMut() -> bool + Send>;

/// What is saved: how to get it, and what to do with another version of it. The functions run on the autosave's own thread.
pub struct Document {
    take: Take,
    apply: Option<Apply>,
    look: Option<Look>,
}

impl Document {
    /// A document whose present content this returns, or why it cannot.
    pub fn new(take: impl FnMut() -> Result<Vec<u8>, String> + Send + 'static) -> Self {
        Self { take: Box::new(take), apply: None, look: None }
    }

    /// The same, whose content can be replaced: by a generation, or by what another program has saved.
    #[must_use]
    pub fn applied_by(self, mut apply: impl FnMut(&[u8]) + Send + 'static) -> Self {
        self.tried_by(move |content| {
            apply(content);
            true
        })
    }

    /// The same, where the program may refuse a content by `false`.
    #[must_use]
    pub fn tried_by(self, apply: impl FnMut(&[u8]) -> bool + Send + 'static) -> Self {
        Self { apply: Some(Box::new(apply)), ..self }
    }

    /// The same, whose changes are noticed by asking this every 500 ms, without calls of [`AutoSave::changed`].
    #[must_use]
    pub fn watched_by(self, look: impl FnMut() -> bool + Send + 'static) -> Self {
        Self { look: Some(Box::new(look)), ..self }
    }
}

/// An autosave that runs. Dropping it stops it, without waiting.
pub struct AutoSave {
    project: Project,
    orders: Sender<Order>,
    shown: Arc<Mutex<Shown>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What it shows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Where it stands.
    pub state: State,
    /// Whether something is unsaved.
    pub is_dirty: bool,
}

enum Order {
    Changed,
    Flush(Sender<bool>),
    Restore(Source, Sender<bool>),
    Retry,
    Stop(Sender<bool>),
    Subscribe(Sender<Notice>),
    Held(ProjectGuard),
    NotHeld,
    Unavailable,
}

impl AutoSave {
    /// Starts it: acquires the project, and waits for it in the background while it is another's.
    pub fn start(project: Project, options: Options, document: Document) -> io::Result<Self> {
        let options =
            Options { looks: document.look.is_some(), applies: document.apply.is_some(), ..options };
        let (orders, inbox) = mpsc::channel();
        let machine = rules::AutoSave::new(options, SystemClock.now());
        let shown = Arc::new(Mutex::new(Shown { state: machine.state(), is_dirty: false }));
        let shell = Shell {
            project: project.clone(),
            machine,
            document,
            guard: None,
            cancel: Cancel::new(),
            taken: Vec::new(),
            calls: Vec::new(),
            last_call: 0,
            listeners: Vec::new(),
            shown: shown.clone(),
        };
        let named = |name: &str| thread::Builder::new().name(name.into());
        let (keeper, cancel) = (project.clone(), shell.cancel.clone());
        let events = orders.clone();
        let thread = named("leasehold-autosave").spawn(move || shell.run(&inbox))?;
        named("leasehold-autosave-lock").spawn(move || keep_acquiring(&keeper, &cancel, &events))?;
        Ok(Self { project, orders, shown, thread: Some(thread) })
    }

    /// Says that the document has changed.
    pub fn changed(&self) {
        self.send(Order::Changed);
    }

    /// Saves what is unsaved, now; waits for it. False if it could not be saved.
    pub fn flush(&self) -> bool {
        self.ask(Order::Flush)
    }

    /// Restores a generation. What the document was before is kept as a generation, too. False if it could not be.
    pub fn restore(&self, stamp: Stamp) -> bool {
        self.ask(|answer| Order::Restore(Source::Generation(stamp), answer))
    }

    /// Loads what was saved last, for example after a crash. What is unsaved becomes a draft.
    pub fn restore_current(&self) -> bool {
        self.ask(|answer| Order::Restore(Source::Current, answer))
    }

    /// Tries at once what is waiting: a save that failed, or a version that the program did not take.
    pub fn retry(&self) {
        self.send(Order::Retry);
    }

    /// Where it stands.
    pub fn shown(&self) -> Shown {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What users are to be told from now on.
    pub fn subscribe(&self) -> Receiver<Notice> {
        let (notices, listener) = mpsc::channel();
        self.send(Order::Subscribe(notices));
        listener
    }

    /// The saved versions, the newest first.
    pub fn history(&self) -> io::Result<Vec<Generation>> {
        history(&self.project)
    }

    /// Saves what is unsaved, releases the project and ends. What cannot be saved becomes a draft; then the answer is false.
    pub fn stop(mut self) -> bool {
        let saved = self.ask(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        saved
    }

    fn send(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    fn ask(&self, order: impl FnOnce(Sender<bool>) -> Order) -> bool {
        let (answer, answered) = mpsc::channel();
        self.send(order(answer));
        answered.recv().unwrap_or(false)
    }
}

impl Drop for AutoSave {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let (answer, _) = mpsc::channel();
            self.send(Order::Stop(answer));
        }
    }
}

/// The saved versions of a project, the newest first. Needs no lock.
pub fn history(project: &Project) -> io::Result<Vec<Generation>> {
    let found = project.ask(|driver| generations(driver.folder())).unwrap_or_else(|| Err(ended()))?;
    let mut all = history::History::new(found).generations().to_vec();
    all.reverse();
    Ok(all)
}

/// The content of a saved version; none if it is gone. Needs no lock.
pub fn read(project: &Project, stamp: Stamp) -> io::Result<Option<Vec<u8>>> {
    project.ask(move |driver| driver.folder().read(&stamp.path())).unwrap_or_else(|| Err(ended()))
}

/// Acquires the project whenever it is not ours, until the autosave stops.
fn keep_acquiring(project: &Project, cancel: &Cancel, orders: &Sender<Order>) {
    let mut options = crate::Options::default();
    // The first time, another holder is shown at once.
    options.retry.max_attempts = Some(1);
    loop {
        let mut is_refused = false;
        let order = match project.acquire_unless(options, cancel) {
            Ok(guard) => {
                let lost = guard.lost();
                if orders.send(Order::Held(guard)).is_err() || lost.recv().is_err() {
                    return;
                }
                Order::NotHeld
            }
            Err(ProjectLockError { fault: Fault::Aborted, .. }) => return,
            Err(error) => {
                is_refused = error.fault != Fault::Exhausted;
                if error.fault == Fault::CannotCreate { Order::Unavailable } else { Order::NotHeld }
            }
        };
        if orders.send(order).is_err() {
            return;
        }
        if is_refused {
            // It would be refused at once, again and again.
            thread::sleep(PATIENCE);
        }
        options.retry.max_attempts = None;
        options.retry.backoff.max = PATIENCE;
    }
}

/// The thread of an autosave: does what the machine says.
struct Shell {
    project: Project,
    machine: rules::AutoSave,
    document: Document,
    guard: Option<ProjectGuard>,
    cancel: Cancel,
    taken: Vec<u8>,
    calls: Vec<(CallId, Sender<bool>)>,
    last_call: u32,
    listeners: Vec<Sender<Notice>>,
    shown: Arc<Mutex<Shown>>,
}

impl Shell {
    fn run(mut self, inbox: &Receiver<Order>) {
        while self.machine.state() != State::Stopped {
            let now = SystemClock.now();
            let wait = self.machine.poll_timeout().map_or(LONGEST_SLEEP, |due| due.since(now.steady));
            match inbox.recv_timeout(wait.min(LONGEST_SLEEP)) {
                Ok(order) => self.obey(order),
                Err(RecvTimeoutError::Timeout) => self.machine.handle_timeout(SystemClock.now()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Some(effect) = self.machine.poll_effect() {
                self.show();
                self.act(effect);
            }
            self.show();
        }
        self.cancel.cancel();
    }

    fn show(&self) {
        let now = Shown { state: self.machine.state(), is_dirty: self.machine.is_dirty() };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn obey(&mut self, order: Order) {
        let now = SystemClock.now();
        // What has changed since the last look counts, too.
        let must_look = matches!(order, Order::Flush(_) | Order::Restore(..) | Order::Stop(_));
        if must_look && self.document.look.as_mut().is_some_and(|look| look()) {
            self.machine.changed(now);
        }
        match order {
            Order::Changed => self.machine.changed(now),
            Order::Flush(answer) => {
                let call = self.call(answer);
                self.machine.flush(call, now);
            }
            Order::Restore(source, answer) => {
                let call = self.call(answer);
                self.machine.restore(call, source, now);
            }
            Order::Retry => self.machine.retry(now),
            Order::Stop(answer) => {
                let call = self.call(answer);
                self.machine.stop(call, now);
            }
            Order::Subscribe(listener) => self.listeners.push(listener),
            Order::Held(guard) => {
                self.guard = Some(guard);
                self.machine.handle_lock(Lock::Held, now);
            }
            Order::NotHeld => {
                self.guard = None;
                self.machine.handle_lock(Lock::ReadOnly, now);
            }
            Order::Unavailable => self.machine.handle_lock(Lock::Unavailable, now),
        }
    }

    fn call(&mut self, answer: Sender<bool>) -> CallId {
        self.last_call = self.last_call.wrapping_add(1);
        let call = CallId(self.last_call);
        self.calls.push((call, answer));
        call
    }

    fn act(&mut self, effect: Effect) {
        let now = || SystemClock.now();
        match effect {
            Effect::Look => {
                if self.document.look.as_mut().is_some_and(|look| look()) {
                    self.machine.changed_since_look(now());
                }
            }
            Effect::Saw(version) => {
                self.project.ask(|driver| driver.saw(CURRENT, version));
            }
            Effect::List => {
                let listing = self.on_folder(list).map_err(|error| error.to_string());
                self.machine.handle_listed(listing, now());
            }
            Effect::Take => {
                let taken = self.take();
                self.machine.handle_taken(taken, now());
            }
            Effect::Commit { stamp } => {
                let committed = self.commit(stamp);
                self.machine.handle_committed(committed, now());
            }
            Effect::Apply(source) => {
                let applied = self.apply(source);
                self.machine.handle_applied(applied, now());
            }
            Effect::Release => self.release(),
            Effect::Notice(notice) => {
                self.listeners.retain(|listener| listener.send(notice.clone()).is_ok());
            }
            Effect::Settle { call, done } => {
                if let Some(at) = self.calls.iter().position(|(known, _)| *known == call) {
                    let _ = self.calls.swap_remove(at).1.send(done);
                }
            }
            step => {
                let done = self.step(step).map_err(|error| failure(&error));
                self.machine.handle_done(done, now());
            }
        }
    }

    fn step(&mut self, effect: Effect) -> io::Result<()> {
        match effect {
            Effect::Keep(stamp) => self.on_folder(move |folder| keep(folder, stamp)),
            Effect::Remove(stamp) => self.on_folder(move |folder| folder.remove(&stamp.path())),
            Effect::WriteIndex(text) => {
                self.on_folder(move |folder| folder.put(INDEX, text.as_bytes(), false))
            }
            Effect::KeepDraft => {
                let content = (self.document.take)().map_err(io::Error::other)?;
                self.project.keep_draft(CURRENT, &content)
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self) -> Taken {
        match (self.document.take)() {
            Ok(content) => {
                let (version, bytes) = (version_of(&content), content.len() as u64);
                self.taken = content;
                Taken::Content { version, bytes, free: None }
            }
            Err(said) => Taken::Failed { said },
        }
    }

    fn commit(&self, stamp: Stamp) -> Result<(), Failure> {
        let guard = self.guard.as_ref().ok_or(Failure::Lost)?;
        let saved = guard.save_also(CURRENT, &self.taken, Base::LastSeen, Some(stamp.path()));
        saved.map(drop).map_err(|error| match error {
            SaveError::Lost => Failure::Lost,
            SaveError::StaleBase { .. } => Failure::StaleBase,
            SaveError::NoSpace(error) => Failure::NoSpace { said: error.said },
            SaveError::Folder(error) | SaveError::Undurable(error) => Failure::Io { said: error.said },
        })
    }

    /// The version that the program goes on with.
    fn apply(&mut self, source: Source) -> Option<Version> {
        let content = match source {
            Source::Current => self.project.read(CURRENT).ok().flatten().map(|file| file.content),
            Source::Generation(stamp) => read(&self.project, stamp).ok().flatten(),
        }?;
        let apply = self.document.apply.as_mut()?;
        apply(&content).then(|| version_of(&content))
    }

    fn release(&mut self) {
        self.cancel.cancel();
        if let Some(guard) = self.guard.take() {
            // A release that fails is repeated in the background, and published by the lock.
            let _ = guard.release();
        }
        self.machine.handle_lock(Lock::Released, SystemClock.now());
    }

    fn on_folder<T: Send + 'static>(
        &self,
        work: impl FnOnce(&crate::ProjectFolder) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.project.ask(move |driver| work(driver.folder())).unwrap_or_else(|| Err(ended()))
    }
}

fn failure(error: &io::Error) -> Failure {
    let said = error.to_string();
    if is_full(error) { Failure::NoSpace { said } } else { Failure::Io { said } }
}

fn generations(folder: &impl Folder) -> io::Result<Vec<Generation>> {
    let files = match folder.list(HISTORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        files => files?,
    };
    let generation = |(name, bytes): (String, u64)| Some(Generation { stamp: Stamp::of_file(&name)?, bytes });
    Ok(files.into_iter().filter_map(generation).collect())
}

fn list(folder: &crate::ProjectFolder) -> io::Result<Listing> {
    folder.make_folders(HISTORY)?;
    let version = |content: Option<&Vec<u8>>| content.map_or(Version::NO_FILE, |content| version_of(content));
    let current = folder.read(CURRENT)?;
    let generations = generations(folder)?;
    let newest = generations.iter().map(|generation| generation.stamp).max();
    let newest = newest.map(|stamp| folder.read(&stamp.path())).transpose()?.flatten();
    let index = folder.read(INDEX)?.and_then(|text| String::from_utf8(text).ok());
    Ok(Listing {
        current_bytes: current.as_ref().map_or(0, |content| content.len() as u64),
        current: version(current.as_ref()),
        newest: version(newest.as_ref()),
        generations,
        index,
    })
}

/// Writes what is in `current.json` to a generation, if the save has not given it that name.
fn keep(folder: &impl Folder, stamp: Stamp) -> io::Result<()> {
    let path = stamp.path();
    if folder.list(HISTORY)?.iter().any(|(name, _)| *name == stamp.file_name()) {
        return Ok(());
    }
    match folder.read(CURRENT)? {
        Some(content) => folder.put(&path, &content, true),
        None => Ok(()),
    }
}
