//! Doubles for tests of programs that lock projects: a folder in memory that several can share, a clock that a test
//! moves, and a program that keeps its events. They run the same machine and the same guarded sections as the
//! real thing; `tests/disk/doubles.rs` holds them to it.
//!
//! ```
//! use std::time::Duration;
//! use leasehold_project::testing::{FakeProject, MockFolder};
//! use leasehold_project::{Options, Profile};
//!
//! let folder = MockFolder::new();
//! let (mut one, mut other) = (FakeProject::open(&folder, "one"), FakeProject::open(&folder, "other"));
//! one.acquire(Options::of(Profile::Autosave)).unwrap();
//! assert!(other.acquire(Options::of(Profile::Autosave)).is_err()); // after its three attempts, in no time
//!
//! folder.clock().advance(Duration::from_secs(60)); // one sleeps through its lease
//! other.acquire(Options::of(Profile::Autosave)).unwrap();
//! assert!(one.save("page.json", b"{}").is_err());
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Fence, Owner, Reason, StoreTime};
use leasehold_project_rules::guarded::{LockFile, Probe};
use leasehold_project_rules::record::Record;
use leasehold_project_rules::root::file;
use leasehold_project_rules::{
    Answer, Base, CallId, Event, Folder as Kind, IoKind, Now, Options, ProjectLease, ProjectLockError,
    ReleaseReason, Settled, State, Surroundings,
};

use crate::clock::Clock;
use crate::draft::Draft;
use crate::driver::Driver;
use crate::folder::{OpenError, ProjectFolder};
use crate::lock_file;
use crate::project::{self, SaveError};
use crate::request::HandoverRequest;
use crate::section::{self, Folder, GuardTry, Undurable};

/// A clock that moves only when a test moves it. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Mutex<Now>>);

impl FakeClock {
    /// A clock that stands at this moment.
    pub fn starting_at(wall: StoreTime) -> Self {
        Self(Arc::new(Mutex::new(Now::both(wall.as_millis()))))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        let mut now = self.inside();
        *now = Now { wall: now.wall + by, steady: now.steady + by };
    }

    /// Sets the wall clock, as a user or a time server does. How much time passes does not depend on it.
    pub fn set_wall(&self, wall: StoreTime) {
        self.inside().wall = wall;
    }

    fn inside(&self) -> MutexGuard<'_, Now> {
        // Nothing that could panic is done while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Now {
        *self.inside()
    }

    fn wait(&self, time: Duration) {
        self.advance(time);
    }
}

/// A project folder in memory. Clones are the same folder.
#[derive(Clone, Debug)]
pub struct MockFolder {
    inside: Arc<Mutex<Inside>>,
    clock: FakeClock,
}

#[derive(Debug, Default)]
struct Inside {
    lock: Option<(String, StoreTime)>,
    /// The text of the guard, once there is one, and whether a program has it.
    guard: Option<String>,
    is_guarded: bool,
    /// The fences whose held files are there, and whether they are open.
    held: BTreeMap<Fence, bool>,
    files: BTreeMap<String, Vec<u8>>,
    fault: Option<(IoKind, String)>,
    writes_happen_all_the_same: bool,
    syncs_fail: bool,
    programs: u8,
}

impl Default for MockFolder {
    fn default() -> Self {
        Self::new()
    }
}

impl MockFolder {
    /// An empty folder, at some moment in 2026.
    pub fn new() -> Self {
        let clock = FakeClock::starting_at(StoreTime::from_millis(1_780_000_000_000));
        Self { inside: Arc::default(), clock }
    }

    /// Another program's view of the folder.
    pub fn open(&self) -> OpenedMock {
        OpenedMock { folder: self.clone(), held: BTreeSet::new(), has_guard: false }
    }

    /// The clock of the folder and of all its programs.
    pub fn clock(&self) -> &FakeClock {
        &self.clock
    }

    /// The text of `.lock`.
    pub fn lock_text(&self) -> Option<String> {
        self.inside().lock.as_ref().map(|(text, _)| text.clone())
    }

    /// Puts a file there, as if another program had.
    pub fn put(&self, name: &str, content: &[u8]) {
        self.inside().files.insert(name.to_owned(), content.to_owned());
    }

    /// Puts a `.lock` there, modified then.
    pub fn put_lock(&self, text: &str, modified: StoreTime) {
        self.inside().lock = Some((text.to_owned(), modified));
    }

    /// A file that was saved.
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        self.inside().files.get(name).cloned()
    }

    /// From now on this goes wrong, until it is said again with `None`.
    pub fn set_fault(&self, fault: Option<(IoKind, &str)>) {
        self.inside().fault = fault.map(|(kind, said)| (kind, said.to_owned()));
    }

    /// The next write of `.lock` is reported as failed, and has happened.
    pub fn fail_after_writing(&self) {
        self.inside().writes_happen_all_the_same = true;
    }

    /// From now on, or not any more, the folder cannot be synced after a file of the project has got its new content.
    pub fn set_syncs_fail(&self, fail: bool) {
        self.inside().syncs_fail = fail;
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Nothing that could panic is done while it is locked.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fails(&self, with: IoKind) -> io::Result<()> {
        match &self.inside().fault {
            Some((kind, said)) if *kind == with => Err(io::Error::other(said.clone())),
            _ => Ok(()),
        }
    }
}

/// A program's view of a [`MockFolder`]: its held files close when it is dropped, as they do when a process ends.
#[derive(Debug)]
pub struct OpenedMock {
    folder: MockFolder,
    held: BTreeSet<Fence>,
    has_guard: bool,
}

impl Drop for OpenedMock {
    fn drop(&mut self) {
        self.drop_guard();
        let mut inside = self.folder.inside();
        for fence in &self.held {
            inside.held.entry(*fence).and_modify(|open| *open = false);
        }
    }
}

impl Folder for OpenedMock {
    fn take_guard(&mut self, look: bool) -> io::Result<GuardTry> {
        self.folder.fails(IoKind::Open)?;
        let is_stuck = self.folder.fails(IoKind::GuardBusy).is_err();
        let mut inside = self.folder.inside();
        if is_stuck || inside.is_guarded {
            return Ok(GuardTry::Busy);
        }
        if look && inside.guard.is_none() {
            return Ok(GuardTry::Absent);
        }
        inside.guard.get_or_insert_default();
        inside.is_guarded = true;
        drop(inside);
        self.has_guard = true;
        Ok(GuardTry::Taken)
    }

    fn read_guard(&mut self) -> io::Result<String> {
        Ok(self.folder.inside().guard.clone().unwrap_or_default())
    }

    fn write_guard(&mut self, text: &str) -> io::Result<()> {
        self.folder.fails(IoKind::Write)?;
        self.folder.inside().guard = Some(text.to_owned());
        Ok(())
    }

    fn drop_guard(&mut self) {
        if std::mem::take(&mut self.has_guard) {
            self.folder.inside().is_guarded = false;
        }
    }

    fn read_lock(&self) -> io::Result<LockFile> {
        if let Err(error) = self.folder.fails(IoKind::Read) {
            let modified = self.folder.inside().lock.as_ref().map(|(_, modified)| *modified);
            return Ok(LockFile::Unreadable { modified, said: error.to_string() });
        }
        Ok(match &self.folder.inside().lock {
            Some((text, modified)) => {
                LockFile::Read { content: lock_file::read(text.as_bytes()), modified: *modified }
            }
            None => LockFile::Missing,
        })
    }

    fn write_lock(&self, record: &Record) -> io::Result<()> {
        self.folder.fails(IoKind::Write)?;
        let mut inside = self.folder.inside();
        inside.lock = Some((lock_file::print(record), self.folder.clock.now().wall));
        match std::mem::take(&mut inside.writes_happen_all_the_same) {
            true => Err(io::Error::other("the disk did not say whether it is written")),
            false => Ok(()),
        }
    }

    fn remove_lock(&self) -> io::Result<()> {
        self.folder.fails(IoKind::Write)?;
        self.folder.inside().lock = None;
        Ok(())
    }

    fn probe(&self, fence: Fence) -> Probe {
        match self.folder.inside().held.get(&fence) {
            None => Probe::Unknown,
            Some(true) => Probe::Busy,
            Some(false) => Probe::Free,
        }
    }

    fn open_held(&mut self, fence: Fence) -> io::Result<()> {
        self.folder.inside().held.insert(fence, true);
        self.held.insert(fence);
        Ok(())
    }

    fn close_held(&mut self, fence: Fence) {
        self.held.remove(&fence);
        self.folder.inside().held.remove(&fence);
    }

    fn drop_held(&mut self, fence: Fence) {
        if self.held.remove(&fence) {
            self.folder.inside().held.insert(fence, false);
        }
    }

    fn sweep_held(&self, keep: Fence) -> io::Result<()> {
        self.folder.inside().held.retain(|fence, open| *open || *fence == keep);
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.folder.fails(IoKind::Read)?;
        Ok(self.folder.file(name))
    }

    fn save(&self, name: &str, content: &[u8], also: Option<&str>) -> io::Result<()> {
        section::check_name(name)?;
        self.keep_draft(name, content)?;
        also.map_or(Ok(()), |also| self.keep_draft(also, content))?;
        match self.folder.inside().syncs_fail {
            true => Err(Undurable(io::Error::other("the disk failed")).into()),
            false => Ok(()),
        }
    }

    fn keep_draft(&self, id: &str, content: &[u8]) -> io::Result<()> {
        self.folder.fails(IoKind::Write)?;
        self.folder.inside().files.insert(id.to_owned(), content.to_owned());
        Ok(())
    }

    fn make_folders(&self, _: &str) -> io::Result<()> {
        self.folder.fails(IoKind::Write)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.folder.fails(IoKind::Read)?;
        let inside = self.folder.inside();
        let within = inside.files.iter().filter_map(|(path, content)| {
            let name = path.strip_prefix(folder)?.strip_prefix('/').filter(|name| !name.contains('/'))?;
            Some((name.to_owned(), content.len() as u64))
        });
        Ok(within.collect())
    }

    fn put(&self, name: &str, content: &[u8], _: bool) -> io::Result<()> {
        self.keep_draft(name, content)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.fails(IoKind::Write)?;
        self.discard_draft(name)
    }

    fn draft_ids(&self) -> io::Result<Vec<String>> {
        let names = self.folder.inside().files.keys().cloned().collect::<Vec<_>>();
        Ok(names.into_iter().filter(|name| name.starts_with(file::DRAFT)).collect())
    }

    fn discard_draft(&self, id: &str) -> io::Result<()> {
        self.folder.inside().files.remove(id);
        Ok(())
    }

    fn read_request(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.folder.file(file::REQUEST))
    }

    fn write_request(&self, note: &[u8]) -> io::Result<()> {
        self.folder.inside().files.insert(file::REQUEST.into(), note.to_owned());
        Ok(())
    }

    fn remove_request(&self) -> io::Result<()> {
        self.folder.inside().files.remove(file::REQUEST);
        Ok(())
    }
}

/// A program with a [`MockFolder`], or with a real folder. It does nothing by itself: calls move the clock on until they are
/// answered, and [`FakeProject::turn`] does what is due. Dropping it is its death.
pub struct FakeProject<F: Folder = OpenedMock> {
    driver: Driver<F, FakeClock>,
    events: Vec<Event>,
}

impl FakeProject<ProjectFolder> {
    /// A program of this name with a folder on disk, whose locks, files and faults are the kernel's. Only the time is a double.
    pub fn on_disk(path: &Path, owner: Owner, clock: &FakeClock, seed: [u8; 16]) -> Result<Self, OpenError> {
        let folder = ProjectFolder::open(path)?;
        let root = folder.path().to_string_lossy().into();
        let surroundings = Surroundings { owner, root, folder: Kind::Guarded, seed };
        Ok(Self { driver: Driver::new(folder, clock.clone(), surroundings), events: Vec::new() })
    }
}

impl FakeProject {
    /// A program of this name.
    pub fn open(folder: &MockFolder, owner: &str) -> Self {
        let opened = folder.open();
        let number = {
            let mut inside = folder.inside();
            inside.programs = inside.programs.wrapping_add(1);
            inside.programs
        };
        let owner = Owner::parse(owner).unwrap_or_else(|_| unnamed());
        let surroundings =
            Surroundings { owner, root: "project".into(), folder: Kind::Guarded, seed: [number; 16] };
        Self { driver: Driver::new(opened, folder.clock.clone(), surroundings), events: Vec::new() }
    }
}

impl<F: Folder> FakeProject<F> {
    /// Takes the lock.
    pub fn acquire(&mut self, options: Options) -> Result<ProjectLease, ProjectLockError> {
        let call = self.driver.acquire(&options);
        self.lease_of(call)
    }

    /// Takes the lock from its holder.
    pub fn take_over(&mut self, options: Options, reason: Reason) -> Result<ProjectLease, ProjectLockError> {
        let call = self.driver.take_over(&options, None, reason);
        self.lease_of(call)
    }

    /// Begins to ask the holder to save and hand the project over. Turn both programs, and [`handed_over`](Self::handed_over)
    /// says what came of it.
    pub fn request_handover(&mut self, options: Options, request: &HandoverRequest) -> CallId {
        self.driver.request_handover(&options, request)
    }

    /// What came of a request, if it is over.
    pub fn handed_over(&mut self, call: CallId) -> Option<Result<ProjectLease, ProjectLockError>> {
        let answer = std::iter::from_fn(|| self.driver.poll_answer()).find(|(known, _)| *known == call)?.1;
        Some(answer.and_then(|settled| match settled {
            Settled::Acquired(lease) | Settled::Renewed(lease) => Ok(lease),
            Settled::Released | Settled::Looked(_) => Err(unanswered()),
        }))
    }

    /// The program has seen that it was asked: the countdown begins.
    pub fn handover_told(&mut self) {
        self.driver.handover_told();
    }

    /// Refuses to hand the project over.
    pub fn refuse_handover(&mut self, lease: &ProjectLease, reason: Reason) {
        self.driver.refuse_handover(lease.lease_id, reason);
    }

    /// Extends the lease.
    pub fn renew(&mut self, lease: &ProjectLease) -> Result<ProjectLease, ProjectLockError> {
        let call = self.driver.renew(lease.lease_id, None);
        self.lease_of(call)
    }

    /// Gives the lease back.
    pub fn release(&mut self, lease: &ProjectLease) -> Result<(), ProjectLockError> {
        let call = self.driver.release(lease.lease_id, ReleaseReason::Completed, false);
        self.answer_of(call).map(|_| ())
    }

    /// A file of the project.
    pub fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.driver.read(name)
    }

    /// What could not be saved, of any program.
    pub fn drafts(&self) -> io::Result<Vec<Draft>> {
        self.driver.drafts()
    }

    /// Writes a file of the project, if the lease is good and no other program has saved the file since this one read it.
    pub fn save(&mut self, name: &str, content: &[u8]) -> Result<(), SaveError> {
        let Some(claim) = self.driver.claim() else {
            self.driver.keep_draft(name, content).map_err(project::folder_error)?;
            return Err(SaveError::Lost);
        };
        let call = self.driver.save(claim, name, content, Base::LastSeen);
        loop {
            let mut saved = std::iter::from_fn(|| self.driver.poll_saved());
            if let Some((_, saved)) = saved.find(|(known, _)| *known == call) {
                return saved;
            }
            if !self.move_on() {
                return Err(SaveError::Lost);
            }
        }
    }

    /// Does what is due by now.
    pub fn turn(&mut self) {
        self.driver.turn();
        self.events.extend(std::iter::from_fn(|| self.driver.poll_event()));
    }

    /// Moves the clock on, and does what becomes due on the way, each at its time.
    pub fn pass(&mut self, time: Duration) {
        let end = self.driver.clock().now().steady + time;
        loop {
            let now = self.driver.clock().now().steady;
            let due = self.driver.due().filter(|due| *due <= end);
            self.driver.clock().advance(due.unwrap_or(end).since(now));
            self.turn();
            if due.is_none() {
                return;
            }
        }
    }

    /// Where the machine stands.
    pub fn state(&self) -> State {
        self.driver.state()
    }

    /// Everything that has happened since this was last asked.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.extend(std::iter::from_fn(|| self.driver.poll_event()));
        std::mem::take(&mut self.events)
    }

    fn lease_of(&mut self, call: CallId) -> Result<ProjectLease, ProjectLockError> {
        match self.answer_of(call)? {
            Settled::Acquired(lease) | Settled::Renewed(lease) => Ok(lease),
            Settled::Released | Settled::Looked(_) => Err(unanswered()),
        }
    }

    /// Moves the clock on until the call is answered.
    fn answer_of(&mut self, call: CallId) -> Answer {
        loop {
            let answers = std::iter::from_fn(|| self.driver.poll_answer());
            if let Some((_, answer)) = answers.into_iter().find(|(known, _)| *known == call) {
                return answer;
            }
            if !self.move_on() {
                return Err(unanswered());
            }
        }
    }

    /// Moves the clock on to when something is due, and does it. Answers whether there was anything.
    fn move_on(&mut self) -> bool {
        let Some(due) = self.driver.due() else { return false };
        let now = self.driver.clock().now().steady;
        self.driver.clock().advance(due.since(now));
        self.turn();
        true
    }
}

fn unanswered() -> ProjectLockError {
    use leasehold_project_rules::{Fault, Operation, Profile};
    ProjectLockError::new(Fault::CannotCreate, Operation::Acquire, Profile::Autosave)
        .said("there was no answer")
}

#[allow(clippy::expect_used)] // a constant that parses
fn unnamed() -> Owner {
    Owner::parse("unnamed").expect("a name")
}
