//! The writes of a project folder, one primitive each: what a crash can come between, and what a disk can refuse. The kernel does
//! them; the tests put a disk in between that records them, or fails at the n-th.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};

/// What is written to. Folders are open handles, names are those of files in them.
pub(crate) trait Disk: Debug + Send {
    /// Makes a file that is not there.
    fn create(&self, within: BorrowedFd<'_>, name: &str, mode: RawMode) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(within, name, flags, Mode::from_raw_mode(mode))?))
    }

    /// Writes all of this to a new file.
    fn write(&self, file: &mut File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)
    }

    /// Makes the content of a file durable.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        Ok(rustix::fs::fsync(folder)?)
    }

    /// Lets a file take the place of another in the same folder.
    fn rename(&self, within: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(within, from, within, to)?)
    }

    /// Gives a file a second name, which must be free.
    fn link(&self, from: BorrowedFd<'_>, name: &str, into: BorrowedFd<'_>, second: &str) -> io::Result<()> {
        Ok(rustix::fs::linkat(from, name, into, second, AtFlags::empty())?)
    }

    /// Removes a name.
    fn unlink(&self, within: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(within, name, AtFlags::empty())?)
    }

    /// Makes a folder that is not there.
    fn make_folder(&self, within: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(within, name, Mode::from_raw_mode(0o777))?)
    }
}

/// The kernel itself.
#[derive(Debug)]
pub(crate) struct Kernel;

impl Disk for Kernel {}
