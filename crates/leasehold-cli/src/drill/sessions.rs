//! The sessions of a drill: project locks on real folders, whose time is moved by hand, and their events as telemetry counts them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_core::telemetry::{Event as Counted, EventName, Reason};
use leasehold_project::testing::{FakeClock, FakeProject};
use leasehold_project::{Event, Options, Owner, Profile, ProjectFolder, StoreTime};

/// How long a session lasts: long enough for two heartbeats to fail, each with its retries.
const LASTS: Duration = Duration::from_secs(60);

/// What is in the way of a new `.lock`: a folder of the name that it is first written under. Permissions would not stop root.
const OBSTACLE: &str = ".lock.tmp";

/// Makes sessions, each with a folder of its own.
pub(super) struct Sessions {
    folder: PathBuf,
    made: u32,
}

impl Sessions {
    pub(super) fn within(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), made: 0 }
    }

    /// A session that begins then. If it is to fail, `.lock` cannot be written from the first heartbeat on.
    pub(super) fn run(&mut self, at: u64, fails: bool) -> Result<Vec<Counted>> {
        let clock = FakeClock::starting_at(StoreTime::from_millis(at));
        let path = self.next_folder()?;
        let mut project = self.open(&path, &clock)?;
        let lease = project.acquire(Options::of(Profile::Autosave))?;
        if fails {
            std::fs::create_dir(path.join(OBSTACLE)).context("a session cannot be disturbed")?;
        }
        project.pass(LASTS);
        if !fails {
            project.release(&lease)?;
        }
        Ok(counted(&project.take_events()))
    }

    /// A session on a folder that a live program holds.
    pub(super) fn second_program(&mut self, at: u64) -> Result<Vec<Counted>> {
        let clock = FakeClock::starting_at(StoreTime::from_millis(at));
        let path = self.next_folder()?;
        let mut holder = self.open(&path, &clock)?;
        holder.acquire(Options::of(Profile::Autosave))?;
        let mut second = self.open(&path, &clock)?;
        // Being refused is what it is there for.
        let _ = second.acquire(Options::of(Profile::Autosave));
        Ok(counted(&second.take_events()))
    }

    fn next_folder(&mut self) -> Result<PathBuf> {
        self.made += 1;
        let path = self.folder.join(format!("session-{:02}", self.made));
        std::fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(path)
    }

    fn open(&mut self, path: &Path, clock: &FakeClock) -> Result<FakeProject<ProjectFolder>> {
        self.made += 1;
        let mut seed = [0; 16];
        seed.iter_mut().zip(self.made.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        let owner = Owner::parse(&format!("drill-{}", self.made))?;
        Ok(FakeProject::on_disk(path, owner, clock, seed)?)
    }
}

/// Whether a session became read-only because it could not renew.
pub(super) fn is_renewal_failure(event: &Counted) -> bool {
    event.name() == EventName::Readonly && event.reason() == Some(Reason::RenewFailed)
}

/// A session, and what it did.
fn counted(events: &[Event]) -> Vec<Counted> {
    let of_lock = events.iter().map(|event| match event {
        Event::ReadonlyEntered { reason, last_error, .. } => {
            Counted::lock(event.name(), Some(reason.as_str()), Some(last_error.code()))
        }
        Event::Error { error, .. } => Counted::lock(event.name(), None, Some(error.code())),
        other => Counted::lock(other.name(), None, None),
    });
    std::iter::once(Counted::session()).chain(of_lock).collect()
}
