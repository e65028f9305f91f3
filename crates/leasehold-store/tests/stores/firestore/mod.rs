//! Firestore: the laws that a document can hold, the source's five rules, what other programs leave in a document, and
//! lost answers. All of it against Google's emulator.

pub mod emulator;
pub mod harness;

use self::harness::FirestoreHarness;

/// Ends the test where there is no emulator; that was said loudly.
macro_rules! harness {
    () => {
        match FirestoreHarness::start() {
            Some(harness) => harness,
            None => return,
        }
    };
}

mod laws {
    use super::FirestoreHarness;
    leasehold_store::job_conformance_tests!(harness!());
}
