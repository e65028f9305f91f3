//! The lock on a project folder on disk: one program edits, the others know it.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! use leasehold_project::{Options, Project};
//!
//! let project = Project::open(folder.path())?; // such as "drawings/house"
//! let guard = project.acquire(Options::default())?;
//!
//! let plan = project.read("plan.json")?; // none yet
//!
//! // The lease renews itself in the background. A save is refused if the project has another holder by then, or if another
//! // program has saved the file since it was read here: what could not be saved is among `project.drafts()`.
//! guard.save("plan.json", b"{\"rooms\": 3}")?;
//!
//! guard.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same rules, files and events as in the browser package `leasehold`, and each understands what the other wrote. The
//! guard and the held files are kernel locks, which end with the process that has them, however it ends: a program that
//! crashed is noticed at once, and only one that is stopped (a laptop lid, a debugger) is waited for, for the time of its
//! lease.
//!
//! Calls wait for their answers; from asynchronous code, call them where waiting is fine (`spawn_blocking`). [`testing`]
//! has doubles of folder and clock.

#![forbid(unsafe_code)]

pub mod autosave;
mod cancel;
mod clock;
mod disk;
mod draft;
mod driver;
mod folder;
pub mod lock_file;
mod project;
mod request;
mod section;
pub mod testing;

/// The events of [`Project::subscribe`] in the words of the other two designs: a translation of one event each.
pub mod dialect {
    pub use leasehold_project_rules::event::{AutosaveEvent, ServiceEvent, autosave, service};
}

pub use cancel::Cancel;
pub use clock::{Clock, SystemClock};
pub use draft::Draft;
pub use driver::Driver;
pub use folder::{OpenError, ProjectFolder};
pub use leasehold_core::lease::OnSilence;
pub use leasehold_core::{Fence, Invalid, LeaseId, Owner, Reason, StoreTime, Ttl};
pub use leasehold_project_rules::fault::Cause;
pub use leasehold_project_rules::guarded::{Holder, Outcome};
pub use leasehold_project_rules::record::label_text;
pub use leasehold_project_rules::{
    Ask, Base, CallId, Event, Fault, IoError, IoKind, Options, Profile, ProjectLease, ProjectLockError,
    ReleaseReason, State, Version,
};
pub use project::{Project, ProjectFile, ProjectGuard, SaveError};
pub use request::HandoverRequest;
pub use section::{Folder, GuardTry, Undurable, version_of};
