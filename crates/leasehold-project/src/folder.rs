//! A project folder on disk: the guard, `.lock` and the held files.
//!
//! Everything is reached through an open handle of the folder, and no symbolic link is ever followed below it: a
//! user who can put files into the folder must not be able to have others written to.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use leasehold_core::lease::Proof;
use leasehold_core::{Fence, Invalid, StoreTime};
use leasehold_project_rules::guarded::{Action, LockFile, Outcome, Probe};
use leasehold_project_rules::record::{self, Record};
use leasehold_project_rules::root::{self, file};
use leasehold_project_rules::section::Conclusion;
use leasehold_project_rules::{CallId, Expected, IoError, Section, Version};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

use crate::clock::{self, SystemClock};
use crate::disk::{Disk, Kernel};
use crate::lock_file;
use crate::section::{self, Folder, GuardTry, ToSave, Undurable};

/// What a file of the project is written to before it takes its place. Under the guard there is one at a time.
const SAVE_TMP: &str = ".lock.save.tmp";

/// A new file that all may use, as far as the umask allows.
const BY_UMASK: RawMode = 0o666;
/// A new file that is ours alone, until it is given to others.
const PRIVATE: RawMode = 0o600;

/// A project folder that is there and may be locked. Dropping it closes its held files: to others, its holder is dead.
#[derive(Debug)]
pub struct ProjectFolder {
    path: PathBuf,
    handle: OwnedFd,
    disk: Box<dyn Disk>,
    /// The guard, while this value is in a guarded section.
    guard: Option<Locked>,
    /// The held files that this value keeps open, by fence.
    held: BTreeMap<Fence, Locked>,
}

/// A file that is locked while this value lives.
#[derive(Debug)]
struct Locked {
    file: File,
    /// The process that locked it.
    process: u32,
}

impl Locked {
    fn new(file: File, locked: Result<(), TryLockError>) -> Result<Self, TryLockError> {
        locked.map(|()| Self { file, process: std::process::id() })
    }

    fn exclusively(file: File) -> Result<Self, TryLockError> {
        let locked = file.try_lock();
        Self::new(file, locked)
    }

    fn shared(file: File) -> Result<Self, TryLockError> {
        let locked = file.try_lock_shared();
        Self::new(file, locked)
    }
}

impl Drop for Locked {
    /// Not left to the closing of the file: a child process that is just being started has it open too. For the same reason a
    /// forked process must not unlock what its parent has locked.
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = self.file.unlock();
        }
    }
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
        Self::open_on(path, Box::new(Kernel))
    }

    /// The same with writes that go through this disk.
    pub(crate) fn open_on(path: impl AsRef<Path>, disk: Box<dyn Disk>) -> Result<Self, OpenError> {
        let given = path.as_ref();
        let refused = |said: io::Error| OpenError::Folder { path: given.to_owned(), said };
        let path = given.canonicalize().map_err(refused)?;
        let names = path.components().filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        });
        root::check(names, &given.to_string_lossy())?;
        let handle = open_folder(rustix::fs::CWD, &path).map_err(|errno| refused(errno.into()))?;
        Ok(Self { path, handle, disk, guard: None, held: BTreeMap::new() })
    }

    /// Where it is, links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who has it, as far as a look tells. Changes nothing.
    pub fn look(&mut self) -> Result<Outcome, IoError> {
        self.guarded(Action::Look).map(|conclusion| conclusion.outcome)
    }

    /// Runs a guarded section: takes the guard, reads, decides, does.
    pub fn guarded(&mut self, action: Action) -> Result<Conclusion, IoError> {
        section::run(self, Section::new(action, std::process::id()), None, &SystemClock)
    }

    /// Runs the guarded section of a save: the file is written if the claim is good, and if the file has the version `base`.
    pub fn guarded_save(
        &mut self,
        claim: Proof,
        name: &str,
        content: &[u8],
        base: &Version,
    ) -> Result<Outcome, IoError> {
        let to_save = ToSave::new(name, content, None);
        let section = Section::new(Action::Save { claim, call: CallId(0) }, std::process::id())
            .expecting(vec![Expected::new(name, base)]);
        section::run(self, section, Some(&to_save), &SystemClock).map(|conclusion| conclusion.outcome)
    }

    /// The folder that a file is in, and the name that it has there.
    fn folder_of<'a>(&self, name: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let mut folder = self.handle.try_clone()?;
        let (folders, name) = name.rsplit_once('/').unwrap_or(("", name));
        for part in folders.split('/').filter(|part| !part.is_empty()) {
            folder = open_folder(folder.as_fd(), Path::new(part))?;
        }
        Ok((folder, name))
    }

    fn is_still_there(&self, guard: &File) -> io::Result<bool> {
        let ours = rustix::fs::fstat(guard)?;
        match rustix::fs::statat(&self.handle, file::GUARD, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok((ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Keeps the guard, if it could be locked at this moment.
    fn keep_guard(&mut self, locked: Result<Locked, TryLockError>) -> io::Result<GuardTry> {
        match locked {
            // Another file may have been put in its place, which others would lock instead.
            Ok(guard) if self.is_still_there(&guard.file)? => {
                self.guard = Some(guard);
                Ok(GuardTry::Taken)
            }
            Ok(_) | Err(TryLockError::WouldBlock) => Ok(GuardTry::Busy),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn modified(&self, name: &str) -> Option<StoreTime> {
        let stat = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let since =
            Duration::new(u64::try_from(stat.st_mtime).ok()?, u32::try_from(stat.st_mtime_nsec).ok()?);
        Some(StoreTime::from_millis(leasehold_core::time::whole_millis(since)))
    }

    fn read_only(&self, name: &str) -> io::Result<File> {
        open_file(self.handle.as_fd(), name, OFlags::RDONLY, 0)
    }

    /// Opens a file of the lock for writing. The first program that needs it makes it, for all users who may use the folder:
    /// the next program may be another user's.
    fn shared(&self, name: &str) -> io::Result<File> {
        let open = |flags| open_file(self.handle.as_fd(), name, OFlags::RDWR | flags, BY_UMASK);
        match open(OFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match open(OFlags::CREATE | OFlags::EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(OFlags::empty()),
            made => {
                let made = made?;
                self.access()?.give(&made)?;
                Ok(made)
            }
        }
    }

    /// Writes a file as a whole: by a temporary one that takes its place once it is safely on disk. Who may use it is as told, or
    /// as usual for a new file. `second` is another name that the same content gets before.
    fn replace(
        &self,
        within: BorrowedFd<'_>,
        (temporary, name): (&str, &str),
        content: &[u8],
        access: Option<Access>,
        second: Option<(BorrowedFd<'_>, &str)>,
    ) -> io::Result<()> {
        if self.unlink_if_there(within, temporary)? {
            self.disk.sync_folder(within)?;
        }
        let written = self.write_aside(within, temporary, content, access);
        let linked = written.and_then(|()| match second {
            Some((folder, second)) => self.link(within, temporary, folder, second),
            None => Ok(()),
        });
        let replaced = linked.and_then(|()| self.disk.rename(within, temporary, name));
        if replaced.is_err() {
            // On a full disk it would keep others from writing. If it stays, the next write removes it.
            let _ = self.disk.unlink(within, temporary);
            if let Some((folder, second)) = second {
                let _ = self.disk.unlink(folder, second);
            }
            return replaced;
        }
        // What was renamed stays so, whatever happens to the power.
        Ok(self.disk.sync_folder(within).map_err(Undurable)?)
    }

    fn write_aside(
        &self,
        within: BorrowedFd<'_>,
        name: &str,
        content: &[u8],
        access: Option<Access>,
    ) -> io::Result<()> {
        // Private until it is known who may read it.
        let mode = access.map_or(BY_UMASK, |_| PRIVATE);
        let mut file = self.disk.create(within, name, mode).map_err(|error| named(name, &error))?;
        access.map_or(Ok(()), |access| access.give(&file))?;
        self.disk.write(&mut file, content)?;
        self.disk.sync(&file)
    }

    /// Gives a file a second name. There are file systems without that: then the autosave writes the generation itself.
    fn link(&self, from: BorrowedFd<'_>, name: &str, into: BorrowedFd<'_>, second: &str) -> io::Result<()> {
        match self.disk.link(from, name, into, second) {
            Err(error) if is_without_links(&error) => Ok(()),
            // Of a save that failed: a name is never used for two that succeeded.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.disk.unlink(into, second)?;
                self.disk.link(from, name, into, second)
            }
            linked => linked,
        }
    }

    /// Removes a file of the folder itself, durably.
    fn remove_durably(&self, name: &str) -> io::Result<()> {
        match self.unlink_if_there(self.handle.as_fd(), name)? {
            true => self.disk.sync_folder(self.handle.as_fd()),
            false => Ok(()),
        }
    }

    /// Removes a file; answers whether it was there.
    fn unlink_if_there(&self, within: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
        match self.disk.unlink(within, name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Who may use the files of the lock: those who may use the folder.
    fn access(&self) -> io::Result<Access> {
        let folder = Access::of(&rustix::fs::fstat(&self.handle)?);
        Ok(Access { mode: folder.mode & 0o666, ..folder })
    }
}

/// The kernel lets go of the guard when the file is closed, however that comes about.
impl Folder for ProjectFolder {
    fn take_guard(&mut self, look: bool) -> io::Result<GuardTry> {
        if !look {
            let guard = self.shared(file::GUARD)?;
            return self.keep_guard(Locked::exclusively(guard));
        }
        match self.read_only(file::GUARD) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(GuardTry::Absent),
            opened => self.keep_guard(Locked::shared(opened?)),
        }
    }

    fn read_guard(&mut self) -> io::Result<String> {
        let bytes = read_bytes(&mut self.guard.as_mut().ok_or_else(unguarded)?.file)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn write_guard(&mut self, text: &str) -> io::Result<()> {
        let guard = &mut self.guard.as_mut().ok_or_else(unguarded)?.file;
        guard.seek(SeekFrom::Start(0))?;
        guard.write_all(text.as_bytes())?;
        guard.set_len(text.len() as u64)?;
        guard.sync_data()
    }

    fn drop_guard(&mut self) {
        self.guard = None;
    }

    fn read_lock(&self) -> io::Result<LockFile> {
        let read = |mut file: File| Ok((read_bytes(&mut file)?, file.metadata()?.modified()?));
        match self.read_only(file::LOCK).and_then(read) {
            Ok((bytes, modified)) => {
                Ok(LockFile::Read { content: lock_file::read(&bytes), modified: clock::millis(modified) })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LockFile::Missing),
            // No file can take its place, however old it gets.
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => Err(error),
            Err(error) => {
                Ok(LockFile::Unreadable { modified: self.modified(file::LOCK), said: error.to_string() })
            }
        }
    }

    fn write_lock(&self, record: &Record) -> io::Result<()> {
        let access = Some(self.access()?);
        let content = lock_file::print(record);
        self.replace(self.handle.as_fd(), (file::LOCK_TMP, file::LOCK), content.as_bytes(), access, None)
    }

    fn remove_lock(&self) -> io::Result<()> {
        self.remove_durably(file::LOCK)
    }

    fn probe(&self, fence: Fence) -> Probe {
        let Ok(held) = self.read_only(&file::held(fence)) else { return Probe::Unknown };
        // Shared, so that two who look at the same time do not take each other for the holder.
        match Locked::shared(held) {
            Ok(_) => Probe::Free,
            Err(TryLockError::WouldBlock) => Probe::Busy,
            Err(TryLockError::Error(_)) => Probe::Unknown,
        }
    }

    fn open_held(&mut self, fence: Fence) -> io::Result<()> {
        if self.held.contains_key(&fence) {
            return Ok(());
        }
        let held = Locked::exclusively(self.shared(&file::held(fence))?)?;
        self.held.insert(fence, held);
        Ok(())
    }

    /// Removed first, then closed: who opens it in between finds it locked, or finds nothing.
    fn close_held(&mut self, fence: Fence) {
        let held = self.held.remove(&fence);
        let _ = rustix::fs::unlinkat(&self.handle, file::held(fence), AtFlags::empty());
        drop(held);
    }

    fn drop_held(&mut self, fence: Fence) {
        self.held.remove(&fence);
    }

    fn sweep_held(&self, keep: Fence) -> io::Result<()> {
        for entry in Dir::read_from(&self.handle)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            let is_other = name.starts_with(file::HELD) && *name != file::held(keep);
            if is_other && self.read_only(&name).is_ok_and(|held| Locked::shared(held).is_ok()) {
                self.remove_durably(&name)?;
            }
        }
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let read = self.folder_of(name).and_then(|(folder, name)| {
            let mut content = Vec::new();
            open_file(folder.as_fd(), name, OFlags::RDONLY, 0)?.read_to_end(&mut content)?;
            Ok(content)
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    fn save(&self, name: &str, content: &[u8], also: Option<&str>) -> io::Result<()> {
        section::check_name(name)?;
        let (folder, name) = self.folder_of(name)?;
        let access = access_of(folder.as_fd(), name)?;
        let second = also.map(|also| self.folder_of(also)).transpose()?;
        let second = second.as_ref().map(|(folder, name)| (folder.as_fd(), *name));
        self.replace(folder.as_fd(), (SAVE_TMP, name), content, access, second)
    }

    fn make_folders(&self, path: &str) -> io::Result<()> {
        let mut folder = self.handle.try_clone()?;
        for name in path.split('/') {
            match self.disk.make_folder(folder.as_fd(), name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made?;
                    self.disk.sync_folder(folder.as_fd())?;
                }
            }
            folder = open_folder(folder.as_fd(), Path::new(name))?;
        }
        Ok(())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let (within, name) = self.folder_of(folder)?;
        let folder = open_folder(within.as_fd(), Path::new(name))?;
        let mut files = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let stat = rustix::fs::statat(&folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            // What was removed meanwhile is not there, and what is no file is none of ours.
            let Ok(stat) = stat else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                files.push((name, u64::try_from(stat.st_size).unwrap_or(0)));
            }
        }
        Ok(files)
    }

    fn put(&self, name: &str, content: &[u8], durably: bool) -> io::Result<()> {
        let (folder, name) = self.folder_of(name)?;
        let (folder, temporary) = (folder.as_fd(), format!("{name}.tmp"));
        if durably {
            return self.replace(folder, (&temporary, name), content, access_of(folder, name)?, None);
        }
        self.unlink_if_there(folder, &temporary)?;
        let mut file = self.disk.create(folder, &temporary, BY_UMASK)?;
        let written = self.disk.write(&mut file, content);
        let replaced = written.and_then(|()| self.disk.rename(folder, &temporary, name));
        if replaced.is_err() {
            let _ = self.disk.unlink(folder, &temporary);
        }
        replaced
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (folder, name) = self.folder_of(name)?;
        self.unlink_if_there(folder.as_fd(), name).map(drop)
    }

    fn keep_draft(&self, id: &str, content: &[u8]) -> io::Result<()> {
        let access = Some(self.access()?);
        self.replace(self.handle.as_fd(), (&format!("{SAVE_TMP}.{id}"), id), content, access, None)
    }

    fn draft_ids(&self) -> io::Result<Vec<String>> {
        let mut ids = Vec::new();
        for entry in Dir::read_from(&self.handle)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if name.starts_with(file::DRAFT) {
                ids.push(name.into_owned());
            }
        }
        Ok(ids)
    }

    fn discard_draft(&self, id: &str) -> io::Result<()> {
        self.remove_durably(id)
    }

    fn read_request(&self) -> io::Result<Option<Vec<u8>>> {
        match self.read_only(file::REQUEST).and_then(|mut file| read_bytes(&mut file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    fn write_request(&self, note: &[u8]) -> io::Result<()> {
        self.keep_draft(file::REQUEST, note)
    }

    fn remove_request(&self) -> io::Result<()> {
        self.discard_draft(file::REQUEST)
    }
}

/// Opens a folder that is no link.
fn open_folder(within: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(within, name, flags, Mode::empty())
}

/// Opens a plain file. A link is refused, and so is whatever else is no file (opening without waiting, so that a pipe
/// cannot hold us up).
fn open_file(within: BorrowedFd<'_>, name: &str, flags: OFlags, mode: RawMode) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::openat(within, name, flags, Mode::from_raw_mode(mode));
    let handle = opened.map_err(|errno| refused(name, errno))?;
    let stat = rustix::fs::fstat(&handle)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink > 1 && flags.intersects(OFlags::RDWR | OFlags::WRONLY) => {
            let why =
                "is a hard link, and what is written to it would be written elsewhere too; delete it here";
            Err(io::Error::other(format!("{name} {why}")))
        }
        FileType::RegularFile => Ok(File::from(handle)),
        FileType::Directory => Err(refused(name, Errno::ISDIR)),
        _ => Err(io::Error::other(format!("{name} is no file; move it away"))),
    }
}

/// What the system said about a file of the folder, with the name of the file.
fn refused(name: &str, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    match errno {
        Errno::LOOP => {
            io::Error::other(format!("{name} is a symbolic link, which is not followed; delete it"))
        }
        Errno::ISDIR => io::Error::new(error.kind(), format!("{name} is a folder, not a file; move it away")),
        _ => io::Error::new(error.kind(), format!("{name}: {error}")),
    }
}

/// What the system said about a file, with its name.
fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// Whether the file system cannot give a file two names.
fn is_without_links(error: &io::Error) -> bool {
    let known = error.raw_os_error().map(Errno::from_raw_os_error);
    known.is_some_and(|errno| {
        matches!(errno, Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK | Errno::XDEV)
    })
}

/// A step that needs the guard came without it.
fn unguarded() -> io::Error {
    io::Error::other("the guard is not held")
}

/// Whose a file is, and who may do what with it.
#[derive(Clone, Copy, Debug)]
struct Access {
    mode: RawMode,
    user: u32,
    group: u32,
}

impl Access {
    fn of(stat: &Stat) -> Self {
        Self { mode: stat.st_mode & 0o777, user: stat.st_uid, group: stat.st_gid }
    }

    /// Sets owner, group and mode of a file. Changing the owner may be beyond our rights; then at least no user may do more
    /// with the file than before.
    fn give(self, file: &File) -> io::Result<()> {
        let give = |user| fchown(file, user, Some(self.group));
        if give(Some(self.user)).is_err() {
            // Only root can give a file away.
            let _ = give(None);
        }
        // Rights of a group that it does not belong to would become those of another group.
        let mode = match rustix::fs::fstat(file)?.st_gid == self.group {
            true => self.mode,
            false => (self.mode & 0o707) | ((self.mode & 0o007) << 3),
        };
        let given = rustix::fs::fchmod(file, Mode::from_raw_mode(mode)).map_err(io::Error::from);
        // There are file systems without rights, on which every file has the same.
        let grants_more = rustix::fs::fstat(file)?.st_mode & 0o666 & !mode != 0;
        given.or_else(|error| if grants_more { Err(error) } else { Ok(()) })
    }
}

/// Who may use the file that is about to be replaced, if there is one.
fn access_of(within: BorrowedFd<'_>, name: &str) -> io::Result<Option<Access>> {
    match rustix::fs::statat(within, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok(Some(Access::of(&stat)))
        }
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(refused(name, errno)),
    }
}

/// The content of a file, up to one byte more than is ever looked at: what is too long is then seen to be.
fn read_bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(record::LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use leasehold_project_rules::{IoKind, IoReply, IoStep, NotSaved};

    use super::*;
    use crate::project::SaveError;

    // A save whose folder could not be synced after the rename said that what was there before was still there. Here the
    // folder is replaced by a handle of its path only, through which everything works but the sync.
    #[test]
    fn a_save_that_fails_after_the_rename_says_that_the_new_content_is_in_place() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("plan.json");
        let mut folder = ProjectFolder::open(place.path()).unwrap();
        folder.handle =
            rustix::fs::open(place.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut save = || {
            std::fs::write(&path, b"old").unwrap();
            let to_save = ToSave::new("plan.json", b"new", None);
            let reply = section::take_step(&mut folder, &IoStep::Save(CallId(1)), Some(&to_save));
            let IoReply::Failed { said } = reply else { panic!("{reply:?}") };
            let why = NotSaved::Folder(IoError { kind: IoKind::Write, said });
            (SaveError::new(why, &to_save), std::fs::read(&path).unwrap())
        };
        let (error, content) = save();
        assert!(matches!(error, SaveError::Undurable(_)), "{error}");
        assert!(error.to_string().contains("the new content is in place"), "{error}");
        assert_eq!(content, b"new");
        // Before the rename: a folder is in the place of the temporary file.
        std::fs::create_dir(place.path().join(SAVE_TMP)).unwrap();
        let (error, content) = save();
        assert!(error.to_string().ends_with("what was there before is still there"), "{error}");
        assert_eq!(content, b"old");
    }
}
