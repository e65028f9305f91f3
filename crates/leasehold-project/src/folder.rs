//! A project folder on disk: the guard, `.lock` and the held files. It reads, asks
//! [`leasehold_core::project::guarded`], and does what it is told, in the order it is told; it never decides anything.
//!
//! Everything is reached through an open handle of the folder, and no symbolic link is ever followed below it: whoever
//! can put files into the folder must not be able to have others written to.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_core::project::guarded::{Action, Found, LockFile, Probe, Section, Step, Verdict};
use leasehold_core::project::root::{self, file};
use leasehold_core::project::{IoError, IoKind, record};
use leasehold_core::{Fence, Invalid, StoreTime};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// How long the guard is waited for. Whoever has it holds it for milliseconds; longer means that it is stopped.
const GUARD_PATIENCE: Duration = Duration::from_secs(2);
const GUARD_PAUSE: Duration = Duration::from_millis(1);

/// Every user of the folder may take its lock, as far as the umask allows.
const MODE: u32 = 0o666;

/// A project folder that is there and may be locked.
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
        let shown = given.to_string_lossy();
        let names = path.components().filter_map(|part| match part {
            std::path::Component::Normal(name) => name.to_str(),
            _ => None,
        });
        root::check(names, &shown)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| refused(errno.into()))?;
        Ok(Self { path, handle, held: BTreeMap::new() })
    }

    /// Where it is, links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a guarded section: takes the guard, reads, decides, does.
    pub fn guarded(&mut self, action: Action) -> Result<Verdict, IoError> {
        self.guarded_and(action, |_, _| Ok(()))
    }

    /// The same, and `then` before the guard is let go, with what was decided.
    pub fn guarded_and(
        &mut self,
        action: Action,
        then: impl FnOnce(&Self, &Verdict) -> Result<(), IoError>,
    ) -> Result<Verdict, IoError> {
        let mut guard = self.take_guard()?;
        let found = Found { lock: self.read_lock()?, guard: read_guard(&mut guard)? };
        let section = Section::new(action, &found);
        let probe = section.probe().map_or(Probe::Unknown, |fence| self.probe(fence));
        let verdict = section.decide(probe, wall_clock());
        self.take_steps(&mut guard, &verdict.steps)?;
        then(self, &verdict)?;
        Ok(verdict)
    }

    /// Whether this value keeps the held file of this fence open.
    pub fn holds(&self, fence: Fence) -> bool {
        self.held.contains_key(&fence)
    }

    /// The guard, locked; the kernel lets go of it when the file is closed, however that comes about.
    fn take_guard(&self) -> Result<File, IoError> {
        let start = Instant::now();
        loop {
            let guard =
                self.open_file(file::GUARD, OFlags::RDWR | OFlags::CREATE).map_err(failed(IoKind::Open))?;
            match guard.try_lock() {
                // Somebody may have put another file in its place, which others would lock instead.
                Ok(()) if self.is_still_there(&guard)? => return Ok(guard),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(IoKind::Open)(error)),
            }
            if start.elapsed() > GUARD_PATIENCE {
                let said = format!("somebody has had {} for {} s", file::GUARD, GUARD_PATIENCE.as_secs());
                return Err(IoError { kind: IoKind::GuardBusy, said });
            }
            std::thread::sleep(GUARD_PAUSE);
        }
    }

    fn is_still_there(&self, guard: &File) -> Result<bool, IoError> {
        let ours = rustix::fs::fstat(guard).map_err(|errno| failed(IoKind::Open)(errno.into()))?;
        match rustix::fs::statat(&self.handle, file::GUARD, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok((ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(IoKind::Open)(errno.into())),
        }
    }

    fn read_lock(&self) -> Result<LockFile, IoError> {
        match self.open_file(file::LOCK, OFlags::RDONLY).and_then(read_with_time) {
            Ok((text, modified)) => Ok(LockFile::Text { text, modified }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LockFile::Missing),
            Err(error) => {
                Ok(LockFile::Unreadable { modified: self.modified(file::LOCK), said: error.to_string() })
            }
        }
    }

    fn modified(&self, name: &str) -> Option<StoreTime> {
        let stat = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let seconds = u64::try_from(stat.st_mtime).ok()?;
        let millis = u64::from(stat.st_mtime_nsec as u32) / 1_000_000;
        Some(StoreTime::from_millis(seconds.saturating_mul(1_000).saturating_add(millis)))
    }

    /// Whether the holder of this fence lives. Nobody's held file is touched.
    fn probe(&self, fence: Fence) -> Probe {
        let Ok(held) = self.open_file(&file::held(fence), OFlags::RDWR) else { return Probe::Unknown };
        match held.try_lock() {
            Ok(()) => Probe::Free,
            Err(TryLockError::WouldBlock) => Probe::Busy,
            Err(TryLockError::Error(_)) => Probe::Unknown,
        }
    }

    fn take_steps(&mut self, guard: &mut File, steps: &[Step]) -> Result<(), IoError> {
        let mut opened = None;
        for step in steps {
            let done = self.take_step(guard, step, &mut opened);
            if let Err(error) = done.filter_ok(step.may_fail()) {
                if let Some(fence) = opened {
                    self.close_held(fence);
                }
                return Err(failed(IoKind::Write)(error));
            }
        }
        Ok(())
    }

    fn take_step(&mut self, guard: &mut File, step: &Step, opened: &mut Option<Fence>) -> io::Result<()> {
        match step {
            Step::StoreFence { text } => write_in_place(guard, text),
            Step::OpenHeld(fence) => {
                if self.open_held(*fence)? {
                    *opened = Some(*fence);
                }
                Ok(())
            }
            Step::WriteLock { text, without_held } => {
                let text = if self.held.is_empty() { without_held } else { text };
                self.replace(file::LOCK, file::LOCK_TMP, text.as_bytes())
            }
            Step::RemoveLock => self.remove(file::LOCK),
            Step::CloseHeld(fence) => {
                self.close_held(*fence);
                Ok(())
            }
            Step::SweepHeld { keep } => self.sweep_held(*keep),
        }
    }

    /// Opens the held file of this fence; answers whether it was not open before.
    fn open_held(&mut self, fence: Fence) -> io::Result<bool> {
        if self.held.contains_key(&fence) {
            return Ok(false);
        }
        let held = self.open_file(&file::held(fence), OFlags::RDWR | OFlags::CREATE)?;
        held.try_lock()?;
        self.held.insert(fence, held);
        Ok(true)
    }

    /// Closes the held file, and removes it first: who opens it in between finds it locked, or finds nothing.
    fn close_held(&mut self, fence: Fence) {
        if let Some(held) = self.held.remove(&fence) {
            let _ = rustix::fs::unlinkat(&self.handle, file::held(fence), AtFlags::empty());
            drop(held);
        }
    }

    fn sweep_held(&self, keep: Fence) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(file::HELD)) else { continue };
            if name == file::held(keep) {
                continue;
            }
            let left_behind = self.open_file(name, OFlags::RDWR).is_ok_and(|held| held.try_lock().is_ok());
            if left_behind {
                self.remove(name)?;
            }
        }
        Ok(())
    }

    /// Writes `name` as a whole: by a temporary file that takes its place once it is safely on disk.
    pub(crate) fn replace(&self, name: &str, temporary: &str, content: &[u8]) -> io::Result<()> {
        self.remove(temporary)?;
        let mut file = self.open_file(temporary, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        file.write_all(content)?;
        file.sync_all()?;
        rustix::fs::renameat(&self.handle, temporary, &self.handle, name)?;
        self.sync()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) => self.sync(),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What was renamed or removed stays so, whatever happens to the power.
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.handle)?)
    }

    /// Opens a plain file of the folder. A link is refused, and so is whatever else is no file (opening without waiting,
    /// so that a pipe cannot hold us up).
    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::openat(&self.handle, name, flags, Mode::from_raw_mode(MODE));
        let handle = opened.map_err(|errno| match errno {
            Errno::LOOP => io::Error::other(format!("{name} is a symbolic link, which is not followed")),
            errno => errno.into(),
        })?;
        if FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::other(format!("{name} is no file")));
        }
        Ok(File::from(handle))
    }
}

/// What a step that may fail came to is no error.
trait FilterOk {
    fn filter_ok(self, may_fail: bool) -> io::Result<()>;
}

impl FilterOk for io::Result<()> {
    fn filter_ok(self, may_fail: bool) -> io::Result<()> {
        match self {
            Err(error) if may_fail => {
                tracing::debug!(%error, "a step that may fail did");
                Ok(())
            }
            other => other,
        }
    }
}

fn failed(kind: IoKind) -> impl Fn(io::Error) -> IoError {
    move |error| IoError { kind, said: error.to_string() }
}

fn read_guard(guard: &mut File) -> Result<String, IoError> {
    let mut bytes = Vec::new();
    let read = guard.take(record::LONGEST as u64).read_to_end(&mut bytes);
    read.map_err(failed(IoKind::Read))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_with_time(mut file: File) -> io::Result<(String, StoreTime)> {
    let modified = file.metadata()?.modified()?;
    let mut bytes = Vec::new();
    // One more than is ever looked at: what is too long is then seen to be.
    (&mut file).take(record::LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), millis(modified)))
}

fn write_in_place(file: &mut File, text: &str) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)?;
    file.sync_data()
}

/// The wall clock: the clock of the folder, on which `.lock` and its modification time are compared.
pub(crate) fn wall_clock() -> StoreTime {
    millis(SystemTime::now())
}

fn millis(time: SystemTime) -> StoreTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    StoreTime::from_millis(leasehold_core::time::whole_millis(since))
}
