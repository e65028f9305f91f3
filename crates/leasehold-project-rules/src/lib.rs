//! The rules of the lock on a project folder, shared by browser tabs and programs: everything that can be decided without
//! doing IO.
//!
//! `project/.lock`, changed only under the guard, is the one authority. The Web Lock is a queue, and tells early that its
//! holder died; it is never ownership. Nothing in here reads a clock, does IO or draws a random number.
//!
//! # The contract between machine and shell
//!
//! A shell (the npm package, `leasehold-project`) owns one [`ProjectLock`] per folder and does, for every call, timer and
//! message: bring [`Now`] (`Clock` makes one from `Date.now()` and `performance.now()`), call the matching method, then
//! drain `poll_effect` until it is empty, then set one timer for `poll_timeout` (replacing the last) that calls
//! `handle_timeout`. Nothing else moves the machine. All methods are cheap, none fails, and calling `handle_timeout` too
//! early or too often does no harm.
//!
//! | the application | becomes | and is answered by |
//! |---|---|---|
//! | `acquireProjectLock(options)` | `Options::parse`, `acquire(call, options, now)`; its signal: `abort(call, now)` | `Settle` |
//! | `takeOverProjectLock` | `take_over(call, options, seen, reason, now)` | `Settle` |
//! | `requestProjectHandover` | `request_handover(call, options, ask, now)` | `Settle` |
//! | `refuseProjectHandover` | `refuse_handover(lease_id, why, now)` | |
//! | `lookProjectLock` | `look_at(call, now)` | `Settle` |
//! | `renewProjectLock` | `renew(call, lease_id, extend_by, now)` | `Settle` |
//! | `releaseProjectLock` | `release(call, lease_id, force, now)` | `Settle` |
//! | `readProjectFile` | `saw(path, version)`, once the application has the content | |
//! | `commitProjectFile` | `may_save(claim, now)` before anything is written, then `save(call, save, now)` | `Saved` |
//! | manual refresh | `refresh(now)` | |
//! | page frozen, or put into the back/forward cache; and back | `handle_frozen(now)`, `handle_resumed(now)` | |
//! | page hidden, or seen again | `handle_hidden(hidden, now)` | |
//!
//! [`Effect`]s, in the order in which they are polled:
//!
//! - `RequestWebLock{ticket, steal}`: request it; report `Granted`, `Unsupported`, `Denied` or, later, `Stolen`.
//!   `DropWebLock(ticket)`: abort the request or release the lock. The machine counts the time itself.
//! - `Io(step)`: one primitive step in the folder; report what came of it by `handle_io(reply, now)`. There is at most one
//!   at a time. [`IoStep`] says what each one is, and [`Section`] in which order they come and what follows a failure.
//! - `DropHeld(fence)`: close that held file at once, without the guard. Nothing is reported.
//! - `Emit(event)`: to every subscriber, as it is or through [`event::service`] / [`event::autosave`]. Once the page has had a
//!   `HandoverRequested`, call `handover_told`: only then does the countdown begin.
//! - `Broadcast(news)`: to the other tabs, which call `handle_news`.
//! - `Settle{call, answer}` or `Saved{call, saved}`: once per call.
//!
//! A **save** is a guarded section, too: `save` compares the claim, then the version of the file with the one that the save was
//! made from ([`version`]), and swaps the file, all under one guard. The content never comes here: the shell has it, prepared
//! aside or in memory, and hashes it. A save that is refused because the lease is over makes the tab read-only. One that is
//! refused because of its base does not: the application keeps its memory as a draft, reads the file again and goes on.
//!
//! The guard is never bypassed, held files are probed only under it, and the held file of a lease stays open from
//! `OpenHeld` to `CloseHeld` or `DropHeld`. `docs/project-lock.md` says why each of these is needed.

#![forbid(unsafe_code)]

pub mod autosave;
pub mod clock;
pub mod effect;
pub mod event;
pub mod fault;
pub mod guarded;
pub mod lease;
pub mod machine;
pub mod options;
pub mod record;
pub mod root;
pub mod section;
pub mod version;
pub mod wire;

pub use clock::{Clock, Now};
pub use effect::{
    Ask, CallId, Effect, Folder, IoError, IoKind, News, NotSaved, ReleaseReason, Save, Say, State,
    Surroundings, Ticket, WebLock,
};
pub use event::Event;
pub use fault::{Fault, Operation, ProjectLockError};
pub use lease::{Answer, Guarantee, ProjectLease, Settled};
pub use machine::ProjectLock;
pub use options::{Options, Profile, Strategy, Wanted};
pub use root::Root;
pub use section::{IoReply, IoStep, Section};
pub use version::{Base, Expected, Version};

/// The parts as one text. (The standard library's ways to do this are more code for a page to load.)
#[inline(never)]
pub fn joined(parts: &[&str]) -> String {
    let mut text = String::new();
    parts.iter().for_each(|part| text.push_str(part));
    text
}

/// The word for a value; every list is complete, and a test sees to it.
fn word<T: Copy + PartialEq>(words: &[(T, &'static str)], value: T) -> &'static str {
    words.iter().find(|(known, _)| *known == value).map_or("unknown", |(_, word)| word)
}
