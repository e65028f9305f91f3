//! Law 11 on Firestore: the scripts of `crate::differential`, against memory.

use leasehold_store::conformance::same_job_history;
use proptest::prelude::*;

use super::harness::FirestoreHarness;
use crate::differential::{before_anything_is_forgotten, config, runtime, script};
use crate::harness::MemoryHarness;

/// A command takes the emulator some milliseconds.
const SCRIPTS: u32 = 16;

proptest! {
    #![proptest_config(ProptestConfig { cases: config().cases.min(SCRIPTS), ..config() })]

    /// What a document can hold: everything but the feed, the lists and the sweeper.
    #[test]
    fn law_11_differential_firestore_against_memory(script in script()) {
        let script = before_anything_is_forgotten(&script);
        let expected = runtime().block_on(same_job_history(&MemoryHarness::new(), script));
        if let Some(harness) = FirestoreHarness::start() {
            prop_assert_eq!(runtime().block_on(same_job_history(&harness, script)), expected);
        }
    }
}
