//! Calls the rules of the project lock from an exported function, so that the WebAssembly build of this example contains
//! them, and whatever they would import from the host. `cargo xtask test` builds it and fails when there is an import.

#![allow(unsafe_code)] // an exported symbol, and nothing else

use leasehold_core::{Owner, StoreTime};
use leasehold_project_rules::guarded::{LockFile, Probe};
use leasehold_project_rules::record::{Content, Members, read_guard};
use leasehold_project_rules::{
    CallId, Effect, Folder, IoReply, IoStep, Now, Options, ProjectLock, Surroundings, Wanted, WebLock, wire,
};

/// Acquires a project in an empty folder; answers a number that depends on all of it.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn probe(now: u64, seed: u8) -> u64 {
    run(now, seed).unwrap_or(0)
}

fn run(now: u64, seed: u8) -> Option<u64> {
    let now = Now::both(now);
    let owner = Owner::parse("probe").ok()?;
    let mut lock = ProjectLock::new(Surroundings {
        owner,
        root: "project".into(),
        folder: Folder::Guarded,
        seed: [seed; 16],
    });
    lock.acquire(CallId(1), &Options::parse(&Wanted::default()).ok()?, now);
    let project = wire::ProjectName::default();
    let mut told = 0;
    while let Some(effect) = lock.poll_effect() {
        match effect {
            Effect::RequestWebLock { ticket, .. } => lock.handle_web_lock(ticket, WebLock::Granted, now),
            Effect::Io(step) => {
                told += 1;
                let reply = match step {
                    IoStep::ReadGuard => IoReply::Guard(read_guard(&told.to_string())),
                    IoStep::ReadLock => {
                        let content = Content::of(&Members::default());
                        IoReply::Lock(LockFile::Read { content, modified: StoreTime::ZERO })
                    }
                    IoStep::ProbeHeld(_) => IoReply::Probe(Probe::Unknown),
                    IoStep::WriteLock(record) => {
                        told += record.seq;
                        IoReply::Done
                    }
                    _ => IoReply::Done,
                };
                lock.handle_io(reply, now);
            }
            Effect::Emit(event) => told += wire::DialectsView::new(&event, &project).autosave.len() as u64,
            _ => told += 1,
        }
    }
    Some(told + lock.lease()?.fence.get())
}
