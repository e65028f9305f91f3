//! A project folder on disk: the guard, `.lock` and the held files.
//!
//! Everything is reached through an open handle of the folder, and no symbolic link is ever followed below it: whoever
//! can put files into the folder must not be able to have others written to.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_core::project::guarded::{Action, LockFile, Outcome, Probe, Verdict};
use leasehold_core::project::root::{self, file};
use leasehold_core::project::{IoError, IoKind, record};
use leasehold_core::{Fence, Invalid, StoreTime};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::clock::{self, SystemClock};
use crate::section::{self, Folder, failed};

/// How long the guard is waited for. Whoever has it holds it for milliseconds; longer means that it is stopped.
const GUARD_PATIENCE: Duration = Duration::from_secs(2);
const GUARD_PAUSE: Duration = Duration::from_millis(1);

/// What a file of the project is written to before it takes its place. Under the guard there is one at a time.
const SAVE_TMP: &str = ".lock.save.tmp";

/// Every user of the folder may take its lock, as far as the umask allows.
const MODE: u32 = 0o666;

/// A project folder that is there and may be locked. Dropping it closes its held files: to others, its holder is dead.
#[derive(Debug)]
pub struct ProjectFolder {
    path: PathBuf,
    handle: OwnedFd,
    /// The held files that this value keeps open, by fence.
    held: BTreeMap<Fence, File>,
}

/// Why a folder cannot be a project.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It belongs to others, or its name is no name.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// It is not there, or not a folder, or not allowed.
    #[error("{} cannot be locked: {said}; name a folder that exists and that you may write to", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        said: io::Error,
    },
}

impl ProjectFolder {
    /// Opens the folder; it must exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let given = path.as_ref();
        let refused = |said: io::Error| OpenError::Folder { path: given.to_owned(), said };
        let path = given.canonicalize().map_err(refused)?;
        let names = path.components().filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        });
        root::check(names, &given.to_string_lossy())?;
        let handle = open_folder(rustix::fs::CWD, &path).map_err(|errno| refused(errno.into()))?;
        Ok(Self { path, handle, held: BTreeMap::new() })
    }

    /// Where it is, links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who has it, as far as a look tells. Changes nothing.
    pub fn look(&mut self) -> Result<Outcome, IoError> {
        self.guarded(Action::Look).map(|verdict| verdict.outcome)
    }

    /// Runs a guarded section: takes the guard, reads, decides, does.
    pub fn guarded(&mut self, action: Action) -> Result<Verdict, IoError> {
        section::run(self, action, &SystemClock)
    }

    fn is_still_there(&self, guard: &File) -> io::Result<bool> {
        let ours = rustix::fs::fstat(guard)?;
        match rustix::fs::statat(&self.handle, file::GUARD, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok((ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The guard, if nobody has it.
    fn try_guard(&self) -> io::Result<Option<File>> {
        let guard = open_file(self.handle.as_fd(), file::GUARD, OFlags::RDWR | OFlags::CREATE)?;
        match guard.try_lock() {
            // Somebody may have put another file in its place, which others would lock instead.
            Ok(()) => Ok(self.is_still_there(&guard)?.then_some(guard)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn modified(&self, name: &str) -> Option<StoreTime> {
        let stat = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let since =
            Duration::new(u64::try_from(stat.st_mtime).ok()?, u32::try_from(stat.st_mtime_nsec).ok()?);
        Some(StoreTime::from_millis(leasehold_core::time::whole_millis(since)))
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        open_file(self.handle.as_fd(), name, flags)
    }
}

/// The kernel lets go of the guard when the file is closed, however that comes about.
impl Folder for ProjectFolder {
    type Guard = File;

    fn take_guard(&self) -> Result<File, IoError> {
        let start = Instant::now();
        loop {
            if let Some(guard) = self.try_guard().map_err(failed(IoKind::Open))? {
                return Ok(guard);
            }
            if start.elapsed() > GUARD_PATIENCE {
                let said = format!("somebody has had {} for {} s", file::GUARD, GUARD_PATIENCE.as_secs());
                return Err(IoError { kind: IoKind::GuardBusy, said });
            }
            std::thread::sleep(GUARD_PAUSE);
        }
    }

    fn read_guard(&self, guard: &mut File) -> io::Result<String> {
        read_text(guard)
    }

    fn write_guard(&self, guard: &mut File, text: &str) -> io::Result<()> {
        guard.seek(SeekFrom::Start(0))?;
        guard.write_all(text.as_bytes())?;
        guard.set_len(text.len() as u64)?;
        guard.sync_data()
    }

    fn read_lock(&self) -> LockFile {
        let read = |mut file: File| Ok((read_text(&mut file)?, file.metadata()?.modified()?));
        match self.file(file::LOCK, OFlags::RDONLY).and_then(read) {
            Ok((text, modified)) => LockFile::Text { text, modified: clock::millis(modified) },
            Err(error) if error.kind() == io::ErrorKind::NotFound => LockFile::Missing,
            Err(error) => {
                LockFile::Unreadable { modified: self.modified(file::LOCK), said: error.to_string() }
            }
        }
    }

    fn write_lock(&self, text: &str) -> io::Result<()> {
        replace(self.handle.as_fd(), file::LOCK, file::LOCK_TMP, text.as_bytes())
    }

    fn remove_lock(&self) -> io::Result<()> {
        remove(self.handle.as_fd(), file::LOCK)
    }

    fn probe(&self, fence: Fence) -> Probe {
        let Ok(held) = self.file(&file::held(fence), OFlags::RDWR) else { return Probe::Unknown };
        match held.try_lock() {
            Ok(()) => Probe::Free,
            Err(TryLockError::WouldBlock) => Probe::Busy,
            Err(TryLockError::Error(_)) => Probe::Unknown,
        }
    }

    fn open_held(&mut self, fence: Fence) -> io::Result<()> {
        if self.held.contains_key(&fence) {
            return Ok(());
        }
        let held = self.file(&file::held(fence), OFlags::RDWR | OFlags::CREATE)?;
        held.try_lock()?;
        self.held.insert(fence, held);
        Ok(())
    }

    /// Removed first, then closed: who opens it in between finds it locked, or finds nothing.
    fn close_held(&mut self, fence: Fence) {
        if let Some(held) = self.held.remove(&fence) {
            let _ = rustix::fs::unlinkat(&self.handle, file::held(fence), AtFlags::empty());
            drop(held);
        }
    }

    fn drop_held(&mut self, fence: Fence) {
        self.held.remove(&fence);
    }

    fn sweep_held(&self, keep: Fence) -> io::Result<()> {
        for entry in Dir::read_from(&self.handle)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            let is_other = name.starts_with(file::HELD) && *name != file::held(keep);
            if is_other && self.file(&name, OFlags::RDWR).is_ok_and(|held| held.try_lock().is_ok()) {
                remove(self.handle.as_fd(), &name)?;
            }
        }
        Ok(())
    }

    fn save(&self, name: &str, content: &[u8]) -> io::Result<()> {
        section::check_name(name)?;
        let mut folder = self.handle.try_clone()?;
        let mut parts = name.split('/').peekable();
        while let Some(part) = parts.next() {
            match parts.peek() {
                Some(_) => folder = open_folder(folder.as_fd(), Path::new(part))?,
                None => replace(folder.as_fd(), part, SAVE_TMP, content)?,
            }
        }
        Ok(())
    }
}

/// Opens a folder that is no link.
fn open_folder(within: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(within, name, flags, Mode::empty())
}

/// Opens a plain file. A link is refused, and so is whatever else is no file (opening without waiting, so that a pipe
/// cannot hold us up).
fn open_file(within: BorrowedFd<'_>, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::openat(within, name, flags, Mode::from_raw_mode(MODE));
    let handle = opened.map_err(|errno| match errno {
        Errno::LOOP => io::Error::other(format!("{name} is a symbolic link, which is not followed")),
        errno => errno.into(),
    })?;
    if FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other(format!("{name} is no file")));
    }
    Ok(File::from(handle))
}

/// Writes `name` as a whole: by a temporary file that takes its place once it is safely on disk.
fn replace(within: BorrowedFd<'_>, name: &str, temporary: &str, content: &[u8]) -> io::Result<()> {
    remove(within, temporary)?;
    let mut file = open_file(within, temporary, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    file.write_all(content)?;
    file.sync_all()?;
    rustix::fs::renameat(within, temporary, within, name)?;
    // What was renamed or removed stays so, whatever happens to the power.
    Ok(rustix::fs::fsync(within)?)
}

fn remove(within: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(within, name, AtFlags::empty()) {
        Ok(()) => Ok(rustix::fs::fsync(within)?),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The text of a file, up to one byte more than is ever looked at: what is too long is then seen to be.
fn read_text(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(record::LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
