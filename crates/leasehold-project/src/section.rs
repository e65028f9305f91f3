//! The steps of a guarded section on a folder: a real one, or a double. What is done in which order, and what follows a
//! failure, is [`leasehold_project_rules::section`]'s to say; nothing is decided here.

use std::cell::Cell;
use std::fmt::Write;
use std::io;

use leasehold_core::Fence;
use leasehold_project_rules::guarded::{LockFile, Probe};
use leasehold_project_rules::record::{self, Record};
use leasehold_project_rules::section::Conclusion;
use leasehold_project_rules::{IoError, IoReply, IoStep, Section, Version, root};
use sha2::{Digest, Sha256};

use crate::clock::Clock;

/// What a folder can do, one primitive step each. All but the first are called between [`take_guard`](Self::take_guard)
/// and [`drop_guard`](Self::drop_guard); nothing else may touch the files of the lock.
pub trait Folder: Send + 'static {
    /// Tries once to take the guard, and makes it if it is missing. To `look`, nothing is made, and several may look at
    /// once.
    fn take_guard(&mut self, look: bool) -> io::Result<GuardTry>;

    /// The text of the guard.
    fn read_guard(&mut self) -> io::Result<String>;

    /// Writes the text of the guard, in place and durably.
    fn write_guard(&mut self, text: &str) -> io::Result<()>;

    /// Lets the guard go; fine if it is not held.
    fn drop_guard(&mut self);

    /// `.lock`, as it is. An error is something in its place that will never go away by itself.
    fn read_lock(&self) -> io::Result<LockFile>;

    /// Writes `.lock` as a whole, durably.
    fn write_lock(&self, record: &Record) -> io::Result<()>;

    /// Removes `.lock`; fine if it is gone.
    fn remove_lock(&self) -> io::Result<()>;

    /// Whether the holder of this fence lives.
    fn probe(&self, fence: Fence) -> Probe;

    /// Opens the held file of this fence and keeps it open; fine if it is open already.
    fn open_held(&mut self, fence: Fence) -> io::Result<()>;

    /// Closes the held file of this fence and removes it; fine if it is closed or gone.
    fn close_held(&mut self, fence: Fence);

    /// Closes the held file of this fence and leaves it there: a record that names it then belongs to a dead holder.
    fn drop_held(&mut self, fence: Fence);

    /// Removes every held file that is not open, but this one.
    fn sweep_held(&self, keep: Fence) -> io::Result<()>;

    /// A file below the folder; none if it, or a folder on the way to it, is missing.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Writes a file of the project as a whole, durably. Fails with [`Undurable`] if the file has the new content already.
    /// `also` is a second name that the same content gets before, where the file system can do that; it must be free.
    fn save(&self, name: &str, content: &[u8], also: Option<&str>) -> io::Result<()>;

    /// Makes a folder of the project, and those on the way to it; fine if they are there. This and the next three need no
    /// guard: an autosave calls them for files that nobody else writes.
    fn make_folders(&self, path: &str) -> io::Result<()>;

    /// The files in a folder of the project, with their sizes.
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>>;

    /// Writes a file as a whole. Not `durably`, a crash may leave anything in it.
    fn put(&self, name: &str, content: &[u8], durably: bool) -> io::Result<()>;

    /// Removes a file; fine if it is gone. A crash may bring it back.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Writes a draft as a whole, durably. This and what follows need no guard: no two drafts have one name.
    fn keep_draft(&self, id: &str, content: &[u8]) -> io::Result<()>;

    /// The names of all drafts.
    fn draft_ids(&self) -> io::Result<Vec<String>>;

    /// Removes a draft; fine if it is gone.
    fn discard_draft(&self, id: &str) -> io::Result<()>;

    /// What was last said about a request to hand the project over. This and what follows need no guard: it is advice.
    fn read_request(&self) -> io::Result<Option<Vec<u8>>>;

    /// Says this instead, as a whole.
    fn write_request(&self, note: &[u8]) -> io::Result<()>;

    /// Says nothing any more; fine if it is gone.
    fn remove_request(&self) -> io::Result<()>;
}

/// The version of a content: its SHA-256, as `sha256sum` prints it.
pub fn version_of(content: &[u8]) -> Version {
    let hash = Sha256::digest(content);
    let hex = hash.iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    Version::new(&hex)
}

/// What came of a try for the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardTry {
    /// It is held until it is dropped.
    Taken,
    /// Another program has it.
    Busy,
    /// There is none to look under.
    Absent,
}

/// A file that waits to be saved.
pub(crate) struct ToSave {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    /// What it was made from, unless it is what this program has read or written.
    pub(crate) base: Option<Version>,
    /// Whether a save that failed has put it in its place all the same.
    pub(crate) is_in_place: Cell<bool>,
    /// Whether it failed because there is no space.
    pub(crate) is_full: Cell<bool>,
    /// Another name that the same content gets.
    pub(crate) also: Option<String>,
}

impl ToSave {
    pub(crate) fn new(name: &str, content: &[u8], base: Option<Version>) -> Self {
        let (name, content) = (name.to_owned(), content.to_owned());
        Self { name, content, base, is_in_place: Cell::new(false), is_full: Cell::new(false), also: None }
    }
}

/// A file has its new content, and the folder could not be synced afterwards: a power cut may bring the old content back.
#[derive(Debug, thiserror::Error)]
#[error("the folder could not be synced: {0}")]
pub struct Undurable(pub io::Error);

impl From<Undurable> for io::Error {
    fn from(error: Undurable) -> Self {
        Self::new(error.0.kind(), error)
    }
}

/// Takes a step. `to_save` is what the step `Save` is about.
pub(crate) fn take_step<F: Folder>(folder: &mut F, step: &IoStep, to_save: Option<&ToSave>) -> IoReply {
    reply(folder, step, to_save).unwrap_or_else(|error| {
        tracing::debug!(%error, ?step, "a step in the project folder failed");
        if let (IoStep::Save(_), Some(to_save)) = (step, to_save) {
            to_save.is_in_place.set(error.get_ref().is_some_and(|why| why.is::<Undurable>()));
            to_save.is_full.set(is_full(&error));
        }
        IoReply::Failed { said: error.to_string() }
    })
}

fn reply<F: Folder>(folder: &mut F, step: &IoStep, to_save: Option<&ToSave>) -> io::Result<IoReply> {
    match step {
        IoStep::TakeGuard { look } => {
            return Ok(match folder.take_guard(*look)? {
                GuardTry::Taken => IoReply::Done,
                GuardTry::Busy => IoReply::Busy,
                GuardTry::Absent => IoReply::Absent,
            });
        }
        IoStep::ReadGuard => return Ok(IoReply::Guard(record::read_guard(&folder.read_guard()?))),
        IoStep::ReadLock => return folder.read_lock().map(IoReply::Lock),
        IoStep::ProbeHeld(fence) => return Ok(IoReply::Probe(folder.probe(*fence))),
        IoStep::WriteGuard(fence) => folder.write_guard(&record::guard_text(*fence))?,
        IoStep::OpenHeld(fence) => folder.open_held(*fence)?,
        IoStep::WriteLock(record) => folder.write_lock(record)?,
        IoStep::RemoveLock => folder.remove_lock()?,
        IoStep::ReadVersion(file) => {
            check_name(&file.path)?;
            let content = folder.read(&file.path)?;
            return Ok(IoReply::Version(content.map_or(Version::NO_FILE, |content| version_of(&content))));
        }
        IoStep::Save(_) => match to_save {
            Some(ToSave { name, content, also, .. }) => folder.save(name, content, also.as_deref())?,
            None => return Err(io::Error::other("there is nothing to save")),
        },
        IoStep::CloseHeld(fence) => folder.close_held(*fence),
        IoStep::DropHeld(fence) => folder.drop_held(*fence),
        IoStep::SweepHeld { keep } => folder.sweep_held(*keep)?,
        IoStep::DropGuard => folder.drop_guard(),
    }
    Ok(IoReply::Done)
}

/// Runs a whole section, and waits for the guard where it is busy.
pub(crate) fn run<F: Folder>(
    folder: &mut F,
    section: Section,
    to_save: Option<&ToSave>,
    clock: &dyn Clock,
) -> Result<Conclusion, IoError> {
    let mut section = section;
    loop {
        if let Some(step) = section.poll_step() {
            let reply = take_step(folder, &step, to_save);
            section.handle(reply, clock.now());
        } else if let Some(until) = section.poll_timeout() {
            clock.wait(until.since(clock.now().steady));
            section.handle_timeout(clock.now());
        } else if let Some(result) = section.result() {
            return result.clone();
        }
    }
}

/// Whether there is no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Refuses a name that is none of a file of the project.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    root::check_save(name).map_err(|invalid| io::Error::new(io::ErrorKind::InvalidInput, invalid.to_string()))
}
