//! The rules of the project lock for a browser: JSON in, JSON out, through one buffer. There is no logic in here: what a
//! request means is in `tab.rs`, word for word the contract of `leasehold_project_rules`, and what follows from it there.
//!
//! A host writes a request to the buffer that [`reserve`] gives it, calls [`call`], and reads as many bytes as that says
//! from where [`answer`] points. One instance of the module is one machine; it imports nothing.

#![allow(unsafe_code)] // exported symbols, and nothing else

mod fields;
mod tab;

use std::cell::RefCell;

pub use tab::Tab;

#[derive(Default)]
struct Host {
    tab: Tab,
    buffer: Vec<u8>,
}

thread_local! {
    static HOST: RefCell<Host> = RefCell::default();
}

/// Makes room for a request of this many bytes; answers where it begins.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn reserve(length: usize) -> *mut u8 {
    HOST.with_borrow_mut(|host| {
        host.buffer.clear();
        host.buffer.resize(length, 0);
        host.buffer.as_mut_ptr()
    })
}

/// Handles the request in the buffer; answers how long the answer is, which replaces it.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn call() -> usize {
    HOST.with_borrow_mut(|host| {
        host.buffer = host.tab.handle(&host.buffer);
        host.buffer.len()
    })
}

/// Where the answer begins.
// SAFETY: nothing else exports this name.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> *const u8 {
    HOST.with_borrow(|host| host.buffer.as_ptr())
}
