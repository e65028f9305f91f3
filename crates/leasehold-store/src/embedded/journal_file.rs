//! The file that the [journal](super::journal) is in: `PATH.journal`, beside the store's own.
//!
//! An exclusive store writes it with one call and one sync for each commit. It has its length before anything is written into it,
//! because syncing a file that grows costs about twice as much as syncing one that is overwritten. The process that writes it holds its
//! lock, which ends with the process: even when the store's lock file is deleted, no other process writes here.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file;
use super::rows::{RowError, RowResult};
use crate::clock::unix_millis;

/// The journal's file, locked.
pub(super) struct JournalFile {
    path: PathBuf,
    file: File,
    length: u64,
}

/// How often, and how long apart, the lock is tried: the kernel may be ending the process that had it this moment.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(5);

pub(super) fn path_of(store: &Path) -> PathBuf {
    file::beside(store, ".journal")
}

impl JournalFile {
    /// Takes the file of the store at this path, if it has one.
    pub(super) fn take(store: &Path) -> RowResult<Option<Self>> {
        Self::open(store, OpenOptions::new().read(true).write(true))
    }

    /// Takes the file, and makes it if it is not there.
    pub(super) fn make(store: &Path) -> RowResult<Self> {
        let made = Self::open(store, OpenOptions::new().read(true).write(true).create(true))?;
        made.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
    }

    fn open(store: &Path, options: &mut OpenOptions) -> RowResult<Option<Self>> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        }
        let path = path_of(store);
        for _ in 0..ATTEMPTS {
            let file = match options.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            match lock(&file, &path) {
                Ok(()) => return Ok(Some(Self { length: file.metadata()?.len(), path, file })),
                Err(TryLockError::Error(error)) => return Err(error.into()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        }
        Err(RowError::Replaced)
    }

    /// Gives it another name, and lets go of it.
    pub(super) fn set_aside(self) -> io::Result<()> {
        let name = file::beside(&self.path, &format!(".aside-{}", unix_millis()));
        std::fs::rename(&self.path, &name)?;
        tracing::warn!(path = %name.display(), "a journal that belongs to another file was set aside");
        Ok(())
    }

    /// Drops what it holds, and gives it this length.
    pub(super) fn wipe(&mut self, length: u64) -> RowResult<()> {
        self.file.set_len(0)?;
        self.length = 0;
        self.lengthen(length)?;
        Ok(file::sync_folder(&self.path)?)
    }

    /// Gives it at least this length.
    pub(super) fn lengthen(&mut self, length: u64) -> RowResult<()> {
        if length <= self.length {
            return Ok(());
        }
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.length))?;
        let mut zeros = io::repeat(0).take(length - self.length);
        let lengthened = io::copy(&mut zeros, &mut file).and_then(|_| file.sync_all());
        if let Err(error) = lengthened {
            // The room that is left is worth more to others.
            file.set_len(self.length)?;
            return Err(as_full(error));
        }
        self.length = length;
        Ok(())
    }

    /// Writes there, and syncs.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)?;
        file.sync_data()
    }

    /// Removes the file.
    pub(super) fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "a journal that is not needed any more stays");
        }
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        // Not left to the closing of the file: a child process that is just being started has it open too.
        let _ = self.file.unlock();
    }
}

/// Locks the file, if it is the one at this path: another process may have removed it in between.
#[cfg(unix)]
fn lock(file: &File, path: &Path) -> Result<(), TryLockError> {
    use std::os::unix::fs::MetadataExt;
    file.try_lock()?;
    let opened = file.metadata().map_err(TryLockError::Error)?;
    let is_there = file::identity_at(path) == Some((opened.dev(), opened.ino()));
    if is_there { Ok(()) } else { Err(TryLockError::WouldBlock) }
}

/// Elsewhere a locked file cannot be read, and one that is open cannot be deleted.
#[cfg(not(unix))]
fn lock(_: &File, _: &Path) -> Result<(), TryLockError> {
    Ok(())
}

/// A file that could not be lengthened because the disk is full is as it was: that is not the same as a write of unknown fate.
fn as_full(error: io::Error) -> RowError {
    if !file::is_full(&error) {
        return error.into();
    }
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None).into()
}

/// What the file holds, beside the process that writes it. It is synced first: what is shown must not change by a crash.
pub(super) fn read(store: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path_of(store))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    file.sync_data()?;
    Ok(bytes)
}
