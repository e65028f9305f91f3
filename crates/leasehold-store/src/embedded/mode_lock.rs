//! Keeps the two modes out of each other's way: a kernel lock on `PATH.lock`, with a note of who holds it.
//!
//! The kernel lets go of the lock when a process ends, however it ends; the note is only for the message.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Mode;
use crate::{Error, Result, Retry};

/// The lock, held as long as this value lives.
#[derive(Debug)]
pub(super) struct ModeLock {
    path: PathBuf,
    file: File,
    /// The path of the lock file, and which file that was when it was opened.
    #[cfg(unix)]
    opened: (PathBuf, Option<(u64, u64)>),
    /// Whether no other process had the store open when the lock was taken.
    was_alone: bool,
}

/// How often, and how long apart, a shared process looks again: another one may be writing its note this moment, or, as
/// the last one, be writing the log back.
const ATTEMPTS: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(5);

/// The most that the notes of shared processes may take before new ones are left out.
const LONGEST_NOTES: u64 = 16 * 1024;

impl ModeLock {
    /// Takes the lock for the store at `path`, or says who has it. Without `create`, a store that is not there is an
    /// error, and no lock file is left behind. `when_alone` is done while nobody else can have the store open, if there
    /// is such a moment.
    pub(super) fn take(
        path: &Path,
        mode: Mode,
        create: bool,
        when_alone: impl Fn(&Path) -> Result<()>,
    ) -> Result<Self> {
        if !create && !path.exists() {
            return Err(super::file::missing(path));
        }
        let lock = Self::open(path)?;
        match mode {
            Mode::Exclusive => lock.take_exclusive(when_alone),
            Mode::Shared => lock.take_shared(when_alone),
        }
    }

    fn open(path: &Path) -> Result<Self> {
        let file = open_lock_file(path)?;
        #[cfg(unix)]
        let opened = (lock_path(path), identity(file.metadata()));
        Ok(Self {
            path: path.to_owned(),
            file,
            #[cfg(unix)]
            opened,
            was_alone: false,
        })
    }

    fn take_exclusive(mut self, when_alone: impl Fn(&Path) -> Result<()>) -> Result<Self> {
        if !self.locked(self.file.try_lock())? {
            return Err(self.in_use(Mode::Exclusive));
        }
        when_alone(&self.path)?;
        self.note(Mode::Exclusive, true);
        self.was_alone = true;
        Ok(self)
    }

    fn take_shared(mut self, when_alone: impl Fn(&Path) -> Result<()>) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            // Alone for a moment: a good time to wipe the notes of processes that are gone.
            let alone = self.locked(self.file.try_lock())?;
            if alone {
                when_alone(&self.path)?;
                self.note(Mode::Shared, true);
            }
            if self.locked(self.file.try_lock_shared())? {
                if !alone {
                    self.note(Mode::Shared, false);
                }
                self.was_alone = alone;
                return Ok(self);
            }
            if self.holders().iter().any(|holder| holder.starts_with("exclusive")) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Err(self.in_use(Mode::Shared))
    }

    /// Whether no other process had the store open when the lock was taken.
    pub(super) fn was_alone(&self) -> bool {
        self.was_alone
    }

    /// Whether the lock is the one that other processes meet: the file at its path may have been deleted or replaced.
    pub(super) fn is_in_force(&self) -> bool {
        #[cfg(unix)]
        {
            let (path, own) = &self.opened;
            own.is_some() && identity(std::fs::symlink_metadata(path)) == *own
        }
        #[cfg(not(unix))]
        true // There, a file that is open cannot be deleted.
    }

    /// Makes sure that the exclusive lock is in force. Answers whether it had to be taken again: then another process may
    /// have had the store open in between.
    pub(super) fn keep_in_force(&mut self) -> Result<bool> {
        if self.is_in_force() {
            return Ok(false);
        }
        *self = Self::take(&self.path, Mode::Exclusive, false, |_| Ok(()))?;
        tracing::warn!(path = %self.path.display(), "the lock file was deleted while the store was open; it was made anew");
        Ok(true)
    }

    /// Says that another process has opened the store, although this one had it open.
    pub(super) fn replaced(&self) -> Error {
        let holders = match Self::open(&self.path) {
            Ok(lock) => lock.holders(),
            Err(_) => Vec::new(),
        };
        let fix = "the lock file was deleted or replaced while both had it open: stop one of the two programs, and start \
                   this one again";
        Error::InUse { path: self.path.clone(), by: describe(&holders), fix: fix.to_owned() }
    }

    /// Says that other processes have the store open, although its file is gone, or another one in its place. That one would let
    /// this process hold what they hold.
    pub(super) fn displaced(&self) -> Error {
        let fix =
            "the file was deleted or replaced while they have it open: end them, then start this one again";
        Error::InUse { path: self.path.clone(), by: describe(&self.holders()), fix: fix.to_owned() }
    }

    /// Whether this process is the only one left; if so, nobody else gets in any more.
    pub(super) fn is_last(&self) -> bool {
        matches!(self.file.try_lock(), Ok(()))
    }

    fn locked(&self, attempt: std::result::Result<(), TryLockError>) -> Result<bool> {
        match attempt {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => {
                let what = format!("{} cannot be locked: {error}", lock_path(&self.path).display());
                Err(Error::Unavailable { what, retry: Retry::No })
            }
        }
    }

    /// Writes down who holds the lock. A note that cannot be written costs nobody but the reader of a message.
    fn note(&self, mode: Mode, alone: bool) {
        let program = std::env::args_os().next().map(PathBuf::from);
        let program = program
            .as_deref()
            .and_then(Path::file_name)
            .map_or("a program".into(), |name| name.to_string_lossy());
        let line = format!("{} {} {program}\n", mode.as_str(), std::process::id());
        let mut file = &self.file;
        let written = if alone {
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(line.as_bytes()))
        } else if file.metadata().is_ok_and(|metadata| metadata.len() < LONGEST_NOTES) {
            file.seek(std::io::SeekFrom::End(0)).and_then(|_| file.write_all(line.as_bytes()))
        } else {
            Ok(())
        };
        if let Err(error) = written {
            tracing::debug!(%error, "the lock file could not be written");
        }
    }

    /// The notes of the processes that are still alive, each `mode pid program`.
    fn holders(&self) -> Vec<String> {
        let mut notes = String::new();
        let mut file = &self.file;
        let read = file.rewind().and_then(|()| file.take(2 * LONGEST_NOTES).read_to_string(&mut notes));
        if read.is_err() {
            return Vec::new();
        }
        notes.lines().filter(|line| line.split(' ').nth(1).is_some_and(is_alive)).map(str::to_owned).collect()
    }

    fn in_use(&self, wanted: Mode) -> Error {
        let holders = self.holders();
        let exclusive = holders.iter().any(|holder| holder.starts_with("exclusive"));
        let fix = match (wanted, exclusive) {
            (Mode::Exclusive, true) => {
                "one process at a time may open it so: stop the other, or use another file; several processes can \
                 share a file with mode=shared"
            }
            (Mode::Exclusive, false) => {
                "wait until they are done, or share it with them: open it with mode=shared"
            }
            (Mode::Shared, _) => "it does not share the file: stop it, or use another file",
        };
        Error::InUse { path: self.path.clone(), by: describe(&holders), fix: fix.to_owned() }
    }
}

impl Drop for ModeLock {
    fn drop(&mut self) {
        if self.is_last() {
            // Who comes next must not take us for the holder any more.
            let _ = self.file.set_len(0);
        }
        // Not left to the closing of the file: a child process that is just being started has it open too.
        let _ = self.file.unlock();
    }
}

fn describe(holders: &[String]) -> String {
    let named = |holder: &String| {
        let mut parts = holder.splitn(3, ' ');
        let (mode, pid, program) = (parts.next(), parts.next(), parts.next());
        format!("process {} ({}, {})", pid.unwrap_or("?"), program.unwrap_or("?"), mode.unwrap_or("?"))
    };
    match holders {
        [] => "another process".to_owned(),
        [one] => named(one),
        [first, rest @ ..] => format!("{} and {} more", named(first), rest.len()),
    }
}

fn is_alive(pid: &str) -> bool {
    !cfg!(target_os = "linux") || Path::new("/proc").join(pid).exists()
}

/// The device and the number of a file, if there is one.
#[cfg(unix)]
fn identity(found: std::io::Result<std::fs::Metadata>) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    found.ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn lock_path(path: &Path) -> PathBuf {
    super::file::beside(path, ".lock")
}

fn open_lock_file(path: &Path) -> Result<File> {
    let lock_path = lock_path(path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(&lock_path).map_err(|error| {
        let what = format!("{} cannot be opened: {error}", lock_path.display());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match folder {
            Some(folder) if !folder.exists() => {
                let what = format!("the folder {} does not exist: make it first", folder.display());
                Error::Unavailable { what, retry: Retry::No }
            }
            _ => Error::Unavailable { what, retry: Retry::No },
        }
    })
}
