//! The rules of the project lock for a browser: a request in, JSON out, through one buffer. There is no logic in here: which
//! requests there are is in `border.rs`, what they mean in `tab.rs`, and what follows from them in `leasehold-project-rules`.
//!
//! A host compares [`fingerprint`] with its own, writes a request to the buffer that [`reserve`] gives it, calls
//! [`call`], and reads as many bytes as that says from where [`answer`] points. One instance of the module serves all projects of
//! a page; it imports nothing.
//!
//! With the feature `autosave` the crate becomes another module of the same kind, for the autosave alone: `autosave.rs`; with
//! `documents` a third one, for the locks of documents on a server: `documents.rs`.

#![allow(unsafe_code)] // exported symbols and the allocator, and nothing else

pub mod autosave;
pub mod border;
pub mod documents;
pub mod fields;
mod tab;
#[cfg(not(target_family = "wasm"))]
mod typescript;

use std::sync::{Mutex, PoisonError};

pub use tab::{Answer, Readings, Tab};
#[cfg(not(target_family = "wasm"))]
pub use typescript::{autosave_typescript, documents_typescript, typescript};

/// The standard library's allocator is 3 KB of what a page loads; a page's rules allocate little, and rarely.
// SAFETY: a WebAssembly instance without shared memory has one thread.
#[cfg(target_family = "wasm")]
#[global_allocator]
static ALLOCATOR: lol_alloc::AssumeSingleThreaded<lol_alloc::FreeListAllocator> =
    unsafe { lol_alloc::AssumeSingleThreaded::new(lol_alloc::FreeListAllocator::new()) };

/// What the module is for.
#[cfg(not(any(feature = "autosave", feature = "documents")))]
type Machines = Tab;
#[cfg(all(feature = "autosave", not(feature = "documents")))]
type Machines = autosave::AutoSaves;
#[cfg(feature = "documents")]
type Machines = documents::Documents;

struct Host {
    machines: Machines,
    buffer: Vec<u8>,
}

static HOST: Mutex<Host> = Mutex::new(Host { machines: Machines::new(), buffer: Vec::new() });

fn with_host<T>(work: impl FnOnce(&mut Host) -> T) -> T {
    work(&mut HOST.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Which requests and answers this module was built with.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn fingerprint() -> u32 {
    match (cfg!(feature = "documents"), cfg!(feature = "autosave")) {
        (true, _) => documents::FINGERPRINT,
        (false, true) => autosave::FINGERPRINT,
        (false, false) => border::FINGERPRINT,
    }
}

/// Makes room for a request of this many bytes; answers where it begins.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn reserve(length: usize) -> *mut u8 {
    with_host(|host| {
        host.buffer.clear();
        host.buffer.resize(length, 0);
        host.buffer.as_mut_ptr()
    })
}

/// Handles the request in the buffer, to this machine, at these readings of both clocks; answers how long the answer is,
/// which replaces it.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn call(machine: usize, wall: f64, monotonic: f64) -> usize {
    with_host(|host| {
        let at = Readings { wall: wall as u64, monotonic: monotonic as u64 };
        host.buffer = host.machines.handle(machine, at, &host.buffer);
        host.buffer.len()
    })
}

/// Where the answer begins.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> *const u8 {
    with_host(|host| host.buffer.as_ptr())
}
