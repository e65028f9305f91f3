//! The lock on a project folder, for programs: a thread of its own keeps the lease, calls wait for their answers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use leasehold_core::lease::Proof;
use leasehold_core::{Fence, Invalid, LeaseId, Meta, Owner, Reason, Ttl};
use leasehold_project_rules::guarded::Outcome;
use leasehold_project_rules::{
    Answer, Base, CallId, Event, Fault, Folder as Kind, IoError, NotSaved, Operation, Options, Profile,
    ProjectLease, ProjectLockError, ReleaseReason, Settled, State, Strategy, Surroundings, Version,
};

use crate::cancel::Cancel;
use crate::clock::{Clock, SystemClock};
use crate::draft::Draft;
use crate::driver::Driver;
use crate::folder::{OpenError, ProjectFolder};
use crate::request::HandoverRequest;
use crate::section::{ToSave, version_of};

type Native = Driver<ProjectFolder, SystemClock>;

/// The longest sleep between two looks at the clock: a timer stands still while the machine sleeps, a lease does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A project folder that this program may lock. Cheap to clone; all clones are the same.
///
/// A program holds a folder once: a second acquire while the first lease is held is refused (`lease-mismatch`), unless
/// the options say `reentrant`.
#[derive(Clone, Debug)]
pub struct Project {
    path: PathBuf,
    orders: Sender<Order>,
    /// The process that opened it, in which the thread is that keeps the lease.
    process: u32,
}

enum Order {
    /// Begins a call; what becomes of it goes here.
    Call(Box<dyn FnOnce(&mut Native) -> CallId + Send>, Caller),
    /// Begins a save; what becomes of it goes here.
    Save(Box<dyn FnOnce(&mut Native) -> CallId + Send>, Sender<Result<(), SaveError>>),
    /// Does something at once.
    Do(Box<dyn FnOnce(&mut Native) + Send>),
    Subscribe(Sender<Event>),
    /// Tells when this lease is lost.
    Watch(LeaseId, Sender<ProjectLockError>),
}

/// What a waiting caller receives.
enum Word {
    Begun(CallId),
    Answered(Answer),
    /// The call was cancelled.
    Cancelled,
    /// There will be no answer.
    Gone,
}

/// A caller that waits for a call. It hears of the end in any case.
struct Caller(Sender<Word>);

impl Caller {
    fn tell(&self, word: Word) {
        let _ = self.0.send(word);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.tell(Word::Gone);
    }
}

/// A file of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFile {
    /// What is in it.
    pub content: Vec<u8>,
    /// The hash of that.
    pub version: Version,
}

/// Why a file was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The project is not this program's any more: its holder may have saved since. Nothing was written.
    #[error("not saved: the project is not ours any more; what you have is kept as a draft, acquire again")]
    Lost,
    /// Another program has saved the file since this one read it. Nothing was overwritten.
    #[error(
        "not saved: {path} was saved by another program since it was read here; read it again. What you have is kept as a draft"
    )]
    StaleBase {
        /// The file.
        path: String,
    },
    /// It could not be written. What was there before is still there.
    #[error("not saved: {}; what was there before is still there", .0.said)]
    Folder(IoError),
    /// There is no space for it. What was there before is still there.
    #[error("not saved: {}; what was there before is still there; make room and save again", .0.said)]
    NoSpace(IoError),
    /// The file has the new content, and its folder could not be synced: after a power cut it may have the old one again.
    #[error(
        "not known to be saved: {}; the new content is in place, and a power cut may undo that; save it again",
        .0.said
    )]
    Undurable(IoError),
}

impl SaveError {
    /// Why this was not saved.
    pub(crate) fn new(why: NotSaved, to_save: &ToSave) -> Self {
        match why {
            NotSaved::Lost(_) => Self::Lost,
            NotSaved::StaleBase(_) => Self::StaleBase { path: to_save.name.clone() },
            NotSaved::Folder(error) if to_save.is_in_place.get() => Self::Undurable(error),
            NotSaved::Folder(error) if to_save.is_full.get() => Self::NoSpace(error),
            NotSaved::Folder(error) => Self::Folder(error),
        }
    }
}

impl Project {
    /// Opens a folder, which must exist, under a name that says which program this is.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_as(path, this_program())
    }

    /// The same on this disk.
    #[cfg(test)]
    pub(crate) fn open_on(
        path: impl AsRef<Path>,
        disk: Box<dyn crate::disk::Disk>,
    ) -> Result<Self, OpenError> {
        Self::open_folder(ProjectFolder::open_on(path, disk)?, this_program())
    }

    /// The same under a name of one's own, which others see.
    pub fn open_as(path: impl AsRef<Path>, owner: Owner) -> Result<Self, OpenError> {
        Self::open_folder(ProjectFolder::open(path)?, owner)
    }

    fn open_folder(folder: ProjectFolder, owner: Owner) -> Result<Self, OpenError> {
        let path = folder.path().to_owned();
        let refused = |said: io::Error| OpenError::Folder { path: path.clone(), said };
        let mut seed = [0; 16];
        getrandom::fill(&mut seed).map_err(|error| refused(io::Error::other(error.to_string())))?;
        let root = path.to_string_lossy().into();
        let surroundings = Surroundings { owner, root, folder: Kind::Guarded, seed };
        let driver = Driver::new(folder, SystemClock, surroundings);
        let (orders, inbox) = mpsc::channel();
        let keeper = thread::Builder::new().name("leasehold-project".into());
        keeper.spawn(move || keep(driver, &inbox)).map_err(refused)?;
        Ok(Self { path, orders, process: std::process::id() })
    }

    /// Where it is, links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock: at once, or after as many attempts as the options allow.
    pub fn acquire(&self, options: Options) -> Result<ProjectGuard, ProjectLockError> {
        self.acquire_unless(options, &Cancel::new())
    }

    /// The same, unless it is cancelled while it waits: then the answer is `web-lock-aborted`, which is what browsers
    /// call it.
    pub fn acquire_unless(
        &self,
        options: Options,
        cancel: &Cancel,
    ) -> Result<ProjectGuard, ProjectLockError> {
        let options = Options { strategy: Strategy::FileLock, ..options };
        self.acquired(options.profile, cancel, move |driver| driver.acquire(&options))
    }

    /// Takes the lock from its holder: the one with the fence `seen`, or any.
    pub fn take_over(
        &self,
        options: Options,
        seen: Option<Fence>,
        reason: Reason,
    ) -> Result<ProjectGuard, ProjectLockError> {
        let options = Options { strategy: Strategy::FileLock, ..options };
        self.acquired(options.profile, &Cancel::new(), move |driver| driver.take_over(&options, seen, reason))
    }

    /// Asks the holder to save and hand the project over, and waits for what it does. The countdown begins when a subscriber of
    /// that program has the event [`Event::HandoverRequested`]; one without subscribers, and one that is stopped, is not told, and
    /// loses nothing by its silence. Cancelling withdraws the request.
    pub fn request_handover(
        &self,
        options: Options,
        request: HandoverRequest,
        cancel: &Cancel,
    ) -> Result<ProjectGuard, ProjectLockError> {
        let options = Options { strategy: Strategy::FileLock, ..options };
        self.acquired(options.profile, cancel, move |driver| driver.request_handover(&options, &request))
    }

    /// Acquires, does `work`, releases. If the project is lost meanwhile, the answer is why; `work` hears of it by
    /// [`ProjectGuard::lost`], or finds out by [`ProjectGuard::is_held`], and cannot save. A release that fails is
    /// published as an event and tried again in the background: it does not hide what the work came to.
    pub fn with_lock<T>(
        &self,
        options: Options,
        work: impl FnOnce(&ProjectGuard) -> T,
    ) -> Result<T, ProjectLockError> {
        let guard = self.acquire(options)?;
        let lost = guard.lost();
        let done = work(&guard);
        let released = guard.release();
        match (lost.try_recv(), released) {
            (Ok(error), _) => Err(error),
            (_, Err(error)) if matches!(error.fault, Fault::Expired | Fault::Stale) => Err(error),
            _ => Ok(done),
        }
    }

    /// Everything that happens to the lock in this program from now on. [`dialect`](crate::dialect) says it in the words
    /// of the other two designs.
    pub fn subscribe(&self) -> Receiver<Event> {
        let (events, listener) = mpsc::channel();
        self.order(Order::Subscribe(events));
        listener
    }

    /// A file of the project, such as `pages/1.json`; none if it is missing. What is saved under its name from now on counts
    /// as made from it. Reading needs no lock.
    pub fn read(&self, name: &str) -> io::Result<Option<ProjectFile>> {
        let name = name.to_owned();
        let content = self.ask(move |driver| driver.read(&name)).unwrap_or_else(|| Err(ended()))?;
        Ok(content.map(|content| ProjectFile { version: version_of(&content), content }))
    }

    /// Keeps content as a draft, unless it is empty, or what this program has read or written under this name. A save that is
    /// refused does so by itself.
    pub fn keep_draft(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let (name, content) = (name.to_owned(), content.to_owned());
        self.ask(move |driver| driver.keep_draft(&name, &content)).unwrap_or_else(|| Err(ended()))
    }

    /// What could not be saved, by this program or any other, the oldest first. At most the last 20 are kept.
    pub fn drafts(&self) -> io::Result<Vec<Draft>> {
        self.ask(|driver| driver.drafts()).unwrap_or_else(|| Err(ended()))
    }

    /// Removes a draft; fine if it is gone.
    pub fn discard_draft(&self, id: &str) -> io::Result<()> {
        let id = id.to_owned();
        self.ask(move |driver| driver.discard_draft(&id)).unwrap_or_else(|| Err(ended()))
    }

    /// Where the lock of this program stands.
    pub fn state(&self) -> State {
        self.ask(|driver| driver.state()).unwrap_or(State::Idle)
    }

    /// Who has the project, as far as a look tells. Changes nothing.
    pub fn look(&self) -> Result<Outcome, IoError> {
        self.ask(Native::look).unwrap_or_else(|| Err(gone()))
    }

    /// What this program calls itself from its next lease on, beside its owner: `Writer, on the third floor`.
    pub fn set_label(&self, text: &str) -> Result<(), Invalid> {
        let label = Meta::label(text)?;
        self.order(Order::Do(Box::new(move |driver| driver.set_label(label))));
        Ok(())
    }

    /// Tells the thread what to do. In a forked process there is no such thread, and nobody would answer: the order is dropped,
    /// which its sender hears.
    fn order(&self, order: Order) {
        if self.process == std::process::id() {
            // Where the thread has ended, the sender hears of it in the same way.
            let _ = self.orders.send(order);
        }
    }

    fn acquired(
        &self,
        profile: Profile,
        cancel: &Cancel,
        begin: impl FnOnce(&mut Native) -> CallId + Send + 'static,
    ) -> Result<ProjectGuard, ProjectLockError> {
        match self.call(Operation::Acquire, profile, cancel, begin)? {
            Settled::Acquired(lease) | Settled::Renewed(lease) => {
                Ok(ProjectGuard { project: self.clone(), profile, lease, released: false })
            }
            Settled::Released | Settled::Looked(_) => Err(stopped(Operation::Acquire, profile)),
        }
    }

    fn call(
        &self,
        operation: Operation,
        profile: Profile,
        cancel: &Cancel,
        begin: impl FnOnce(&mut Native) -> CallId + Send + 'static,
    ) -> Answer {
        let (caller, words) = mpsc::channel();
        let give_up = caller.clone();
        let told = move || drop(give_up.send(Word::Cancelled));
        let Some(_listening) = cancel.listen(told) else {
            return Err(ProjectLockError::new(Fault::Aborted, operation, profile));
        };
        self.order(Order::Call(Box::new(begin), Caller(caller)));
        let (mut begun, mut is_cancelled) = (None, false);
        for word in words {
            match word {
                Word::Answered(answer) => return answer,
                Word::Gone => break,
                Word::Begun(call) => begun = Some(call),
                Word::Cancelled => is_cancelled = true,
            }
            if let (Some(call), true) = (begun, is_cancelled) {
                self.order(Order::Do(Box::new(move |driver| driver.abort(call))));
            }
        }
        Err(stopped(operation, profile))
    }

    pub(crate) fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Native) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        let ask = move |driver: &mut Native| {
            let _ = answer.send(what(driver));
        };
        self.order(Order::Do(Box::new(ask)));
        answered.recv().ok()
    }
}

/// The project is this program's, until this is released, dropped or lost. It is renewed in the background.
#[must_use = "the project is given back when its guard is dropped"]
#[derive(Debug)]
pub struct ProjectGuard {
    project: Project,
    profile: Profile,
    lease: ProjectLease,
    released: bool,
}

impl ProjectGuard {
    /// What it is about.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// The lease, as it was granted.
    pub fn lease(&self) -> &ProjectLease {
        &self.lease
    }

    /// Whether the project may still be acted on at this moment.
    pub fn is_held(&self) -> bool {
        self.claim().is_some()
    }

    /// Writes a file of the project, such as `pages/1.json`, as a whole; answers its version. Whether the project is still ours
    /// is looked at under the same guard: a program that slept through its lease cannot overwrite the work of the next one.
    /// So is the version of the file: it must be what this program last [read](Project::read) or saved, or no file if it did
    /// neither. What is not saved is kept as a [draft](Project::drafts).
    pub fn save(&self, name: &str, content: &[u8]) -> Result<Version, SaveError> {
        self.save_from(name, content, Base::LastSeen)
    }

    /// The same for content that was made from another version; or from any, with [`Base::Overwrite`].
    pub fn save_from(&self, name: &str, content: &[u8], base: Base) -> Result<Version, SaveError> {
        self.save_also(name, content, base, None)
    }

    /// The same under a second name, too, where the file system can do that.
    pub(crate) fn save_also(
        &self,
        name: &str,
        content: &[u8],
        base: Base,
        also: Option<String>,
    ) -> Result<Version, SaveError> {
        let Some(claim) = self.claim() else {
            self.project.keep_draft(name, content).map_err(folder_error)?;
            return Err(SaveError::Lost);
        };
        let version = version_of(content);
        let (path, content) = (name.to_owned(), content.to_owned());
        let (caller, saved) = mpsc::channel();
        let begin = move |driver: &mut Native| driver.save_also(claim, &path, &content, base, also);
        self.project.order(Order::Save(Box::new(begin), caller));
        let saved = saved.recv().unwrap_or_else(|_| Err(SaveError::Folder(gone())));
        saved.map(|()| version)
    }

    /// Extends the lease now: by its usual time, or by another.
    pub fn renew(&self, extend_by: Option<Ttl>) -> Result<ProjectLease, ProjectLockError> {
        let lease_id = self.lease.lease_id;
        let renewed = self.project.call(Operation::Renew, self.profile, &Cancel::new(), move |driver| {
            driver.renew(lease_id, extend_by)
        });
        match renewed? {
            Settled::Acquired(lease) | Settled::Renewed(lease) => Ok(lease),
            Settled::Released | Settled::Looked(_) => Err(stopped(Operation::Renew, self.profile)),
        }
    }

    /// Hears why, once the project is lost: at the latest when its time runs out, or by the first save that is refused.
    /// Ends without a word when it is given back. Work that takes long looks here between its steps.
    pub fn lost(&self) -> Receiver<ProjectLockError> {
        let (lost, listener) = mpsc::channel();
        self.project.order(Order::Watch(self.lease.lease_id, lost));
        listener
    }

    /// Gives the project back.
    pub fn release(self) -> Result<(), ProjectLockError> {
        self.give_back(ReleaseReason::Completed, false)
    }

    /// Gives the project back for this reason, which subscribers hear.
    pub fn release_because(self, reason: ReleaseReason) -> Result<(), ProjectLockError> {
        self.give_back(reason, false)
    }

    /// Gives the project back, also from others in this program who share the lease (`reentrant`).
    pub fn release_from_all(self) -> Result<(), ProjectLockError> {
        self.give_back(ReleaseReason::Completed, true)
    }

    /// Refuses to hand the project over, as [`Event::HandoverRequested`] asks. To hand it over, save and release.
    pub fn refuse_handover(&self, reason: Reason) {
        let lease_id = self.lease.lease_id;
        let refuse = move |driver: &mut Native| driver.refuse_handover(lease_id, reason);
        self.project.order(Order::Do(Box::new(refuse)));
    }

    fn give_back(mut self, reason: ReleaseReason, force: bool) -> Result<(), ProjectLockError> {
        self.released = true;
        let lease_id = self.lease.lease_id;
        let release = move |driver: &mut Native| driver.release(lease_id, reason, force);
        self.project.call(Operation::Release, self.profile, &Cancel::new(), release)?;
        Ok(())
    }

    fn claim(&self) -> Option<Proof> {
        let ours = Proof { lease_id: self.lease.lease_id, fence: self.lease.fence };
        self.project.ask(|driver| driver.claim()).flatten().filter(|claim| *claim == ours)
    }
}

impl Drop for ProjectGuard {
    fn drop(&mut self) {
        if !self.released {
            let lease_id = self.lease.lease_id;
            let release = move |driver: &mut Native| {
                driver.release(lease_id, ReleaseReason::Aborted, false);
            };
            self.project.order(Order::Do(Box::new(release)));
        }
    }
}

/// Keeps the lease until every [`Project`] and guard is dropped. What was ordered before that is done.
fn keep(mut driver: Native, inbox: &Receiver<Order>) {
    let mut waiting: Vec<(CallId, Caller)> = Vec::new();
    let mut saving: Vec<(CallId, Sender<Result<(), SaveError>>)> = Vec::new();
    let mut listeners = Listeners::default();
    loop {
        match next(&driver, inbox) {
            Ok(Order::Call(begin, caller)) => {
                let call = begin(&mut driver);
                caller.tell(Word::Begun(call));
                waiting.push((call, caller));
            }
            Ok(Order::Save(begin, caller)) => saving.push((begin(&mut driver), caller)),
            Ok(Order::Do(what)) => what(&mut driver),
            Ok(Order::Subscribe(listener)) => listeners.to_all.push(listener),
            Ok(Order::Watch(lease_id, listener)) => listeners.watch(&driver, lease_id, listener),
            Err(RecvTimeoutError::Timeout) => driver.turn(),
            Err(RecvTimeoutError::Disconnected) => return driver.finish(),
        }
        // Events first: a caller that is answered finds what led to the answer among them.
        while let Some(event) = driver.poll_event() {
            listeners.tell(&event);
            if matches!(event, Event::HandoverRequested(_)) && !listeners.to_all.is_empty() {
                driver.handover_told();
            }
        }
        while let Some((call, answer)) = driver.poll_answer() {
            if let Some(at) = waiting.iter().position(|(known, _)| *known == call) {
                waiting.swap_remove(at).1.tell(Word::Answered(answer));
            }
        }
        while let Some((call, saved)) = driver.poll_saved() {
            if let Some(at) = saving.iter().position(|(known, _)| *known == call) {
                let _ = saving.swap_remove(at).1.send(saved);
            }
        }
    }
}

/// Who wants to know what.
#[derive(Default)]
struct Listeners {
    to_all: Vec<Sender<Event>>,
    to_loss: Vec<Sender<ProjectLockError>>,
}

impl Listeners {
    fn watch(&mut self, driver: &Native, lease_id: LeaseId, listener: Sender<ProjectLockError>) {
        match driver.lease() {
            Some(lease) if lease.lease_id == lease_id => self.to_loss.push(listener),
            _ => {
                let over = ProjectLockError::new(Fault::Expired, Operation::Renew, Profile::default());
                let _ = listener.send(over);
            }
        }
    }

    fn tell(&mut self, event: &Event) {
        self.to_all.retain(|listener| listener.send(event.clone()).is_ok());
        match event {
            Event::ReadonlyEntered { last_error, .. } => {
                for listener in self.to_loss.drain(..) {
                    let _ = listener.send(last_error.clone());
                }
            }
            Event::ReleaseRequested { .. } => self.to_loss.clear(),
            _ => {}
        }
    }
}

/// The next order, or that something is due.
fn next(driver: &Native, inbox: &Receiver<Order>) -> Result<Order, RecvTimeoutError> {
    match driver.due() {
        None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        Some(due) => inbox.recv_timeout(due.since(driver.clock().now().steady).min(LONGEST_SLEEP)),
    }
}

/// The thread is gone, which a panic alone could do.
fn stopped(operation: Operation, profile: Profile) -> ProjectLockError {
    ProjectLockError::new(Fault::CannotCreate, operation, profile).said("the lock's own thread has ended")
}

fn gone() -> IoError {
    IoError { kind: leasehold_project_rules::IoKind::Open, said: ended().to_string() }
}

pub(crate) fn ended() -> io::Error {
    io::Error::other(
        "the lock's own thread has ended, or never was in this process: after a fork, open the project anew",
    )
}

/// A draft could not be kept, and nothing was saved.
#[allow(clippy::needless_pass_by_value)] // how `map_err` passes errors
pub(crate) fn folder_error(error: io::Error) -> SaveError {
    SaveError::Folder(IoError { kind: leasehold_project_rules::IoKind::Write, said: error.to_string() })
}

/// A name for this program that tells people where to look for it.
#[allow(clippy::expect_used)] // a constant that parses
fn this_program() -> Owner {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = format!("process {} on {host}", std::process::id());
    Owner::parse(&name).unwrap_or_else(|_| Owner::parse("a process").expect("a name"))
}
