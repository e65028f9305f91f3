//! The default store: one SQLite file, everything durable before it is acknowledged.
//!
//! ```text
//!            exclusive: one process                       shared: several processes
//!   callers ──► queue ──► writer thread            caller ──► one transaction per command:
//!                          decide on the overlay                read, decide, write, commit
//!                          write the batch, fdatasync
//!   readers ◄───── view ◄──┘ then show, publish, answer
//! ```
//!
//! *Exclusive* keeps all slots in memory and writes many callers' changes with one sync. *Shared* keeps nothing in
//! memory, so that several processes may work on the same file. The two refuse each other. Both obey the same laws.

mod disk;
mod epoch;
mod exclusive;
mod file;
mod journal;
mod journal_file;
mod log;
mod migrate;
mod mode_lock;
mod packed;
mod process;
mod rows;
mod shared;
mod upkeep;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Command, JobCommand, Key, Position, StoreTime};

use crate::clock::{Clock, SystemClock};
use crate::{
    Applied, Error, Feed, JobApplied, JobStore, Limits, Page, Range, Reading, Result, Retry, Settled, Store,
};

pub use crate::resident::JUMP;
pub use upkeep::{Backup, Checked, Repaired, backup, check, peek, repair, restore};

/// How an embedded file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By this process alone: fast, with group commit. For a server or a single program.
    Exclusive,
    /// By any number of processes of this machine: one transaction per command.
    Shared,
}

impl Mode {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

/// How to open an embedded store.
pub struct Options {
    mode: Mode,
    clock: Arc<dyn Clock>,
    limits: Limits,
    create: bool,
}

impl Options {
    /// Exclusive unless this says otherwise.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Where raw time comes from; the machine unless this says otherwise.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The limits that can be changed.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether a file that is not there is made; it is unless this says otherwise.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Opens the file.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Embedded> {
        let path = file::resolve(path.as_ref())?;
        if self.mode == Mode::Shared
            && let Some(why) = self.clock.differs()
        {
            let what = format!("{} cannot be shared with other processes from here: {why}", path.display());
            return Err(Error::Unavailable { what, retry: Retry::No });
        }
        let opening = process::Opening::new(&path)?;
        let when_alone = |path: &Path| {
            log::check(path).and_then(|()| migrate::bring_up_to_date(path))?;
            // Of several first openers one is alone and makes the file; the others wait until it has.
            if self.create { file::create_if_missing(path) } else { Ok(()) }
        };
        let lock = mode_lock::ModeLock::take(&path, self.mode, self.create, when_alone)?;
        if !path.exists() {
            return Err(lock.displaced());
        }
        let inner = match self.mode {
            Mode::Exclusive => {
                Inner::Exclusive(exclusive::Exclusive::open(&path, lock, self.clock, self.limits)?)
            }
            Mode::Shared => Inner::Shared(shared::Shared::open(&path, lock, self.clock, self.limits)?),
        };
        Ok(Embedded { path, opening, inner: Arc::new(inner) })
    }
}

/// An open embedded store. Dropping it writes everything back and lets go of the file. It belongs to the process that opened it:
/// in one that was forked from that, everything is refused, and dropping it does nothing.
pub struct Embedded {
    path: PathBuf,
    inner: Arc<Inner>,
    opening: process::Opening,
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if self.opening.is_inherited() {
            // Never closed: that would wait for a thread that is not here, and undo what the parent has locked.
            std::mem::forget(self.inner.clone());
        }
    }
}

enum Inner {
    Exclusive(exclusive::Exclusive),
    Shared(shared::Shared),
}

impl Embedded {
    /// Opens `path` for this process alone, and makes it if it is not there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// The ways to open a file.
    pub fn options() -> Options {
        let clock = Arc::new(SystemClock);
        Options { mode: Mode::Exclusive, clock, limits: Limits::default(), create: true }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it was opened.
    pub fn mode(&self) -> Mode {
        match &*self.inner {
            Inner::Exclusive(_) => Mode::Exclusive,
            Inner::Shared(_) => Mode::Shared,
        }
    }

    fn store(&self) -> Result<&dyn Store> {
        self.opening.check()?;
        Ok(match &*self.inner {
            Inner::Exclusive(store) => store,
            Inner::Shared(store) => store,
        })
    }
}

#[async_trait]
impl JobStore for Embedded {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        self.store()?.apply(key, command).await
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        self.store()?.read(key).await
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        self.store()?.apply_job(key, command).await
    }
}

#[async_trait]
impl Store for Embedded {
    async fn now(&self) -> Result<StoreTime> {
        self.store()?.now().await
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        self.store()?.list(range).await
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        self.store()?.events(after, limit).await
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        self.store()?.settle_due(limit).await
    }
}
