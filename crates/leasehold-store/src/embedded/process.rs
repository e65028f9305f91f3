//! The process that has a file open. A process that was forked from it must leave the file alone.
//!
//! SQLite's locks belong to the process that took them, and its memory of them is copied by a fork: a forked process would
//! believe that it has locked what it has not, and could damage the file, even by opening it anew or by closing it. The writer's
//! thread is not there either, so that nobody would answer.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Result, Retry};

/// The files that are open in this process, or were open in the process that it was forked from.
static OPEN: Mutex<Vec<(PathBuf, u32)>> = Mutex::new(Vec::new());

/// One opening of a file, by the process that it belongs to.
#[derive(Debug)]
pub(super) struct Opening {
    path: PathBuf,
    process: u32,
}

impl Opening {
    /// Takes note of a file that is about to be opened.
    pub(super) fn new(path: &Path) -> Result<Self> {
        check(path)?;
        let (path, process) = (path.to_owned(), std::process::id());
        files().push((path.clone(), process));
        Ok(Self { path, process })
    }

    /// Whether this is not the process that opened the file, but one that was forked from it.
    pub(super) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Refuses a process that was forked.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_inherited() { Err(forked(&self.path)) } else { Ok(()) }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        let mut open = files();
        let own = open.iter().position(|(path, by)| *path == self.path && *by == self.process);
        own.map(|index| open.swap_remove(index));
    }
}

/// Refuses a file that was open in the process that this one was forked from.
pub(super) fn check(path: &Path) -> Result<()> {
    let inherited = files().iter().any(|(other, by)| other == path && *by != std::process::id());
    if inherited { Err(forked(path)) } else { Ok(()) }
}

fn files() -> MutexGuard<'static, Vec<(PathBuf, u32)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forked(path: &Path) -> Error {
    let what = format!(
        "{} was opened before this process was forked, and cannot be used in it: open it after the fork, or start another program",
        path.display()
    );
    Error::Unavailable { what, retry: Retry::No }
}
