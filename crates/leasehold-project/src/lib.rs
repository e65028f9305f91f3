//! The lock on a project folder on disk: one program edits, the others know it.
//!
//! The same rules, files and events as in the browser package `leasehold`, and each understands what the other wrote. The
//! guard and the held files are kernel locks, which end with the process that has them, however it ends.

#![forbid(unsafe_code)]

mod folder;

pub use folder::{OpenError, ProjectFolder};
