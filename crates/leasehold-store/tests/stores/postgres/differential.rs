//! Law 11 on PostgreSQL: the scripts of `crate::differential`, against memory.

use leasehold_store::conformance::{Step, same_history};
use proptest::prelude::*;

use super::harness::{PostgresHarness, Way};
use crate::differential::{before_anything_is_forgotten, config, history, runtime, script};
use crate::harness::MemoryHarness;

/// Each needs a database of its own, which takes as long as hundreds of commands.
const SCRIPTS: u32 = 200;

/// The history of a PostgreSQL store; `None` where there is no PostgreSQL.
fn postgres_history(script: &[Step]) -> Option<Vec<String>> {
    runtime().block_on(async {
        let harness = PostgresHarness::start(Way::Direct).await?;
        let history = same_history(&harness, script).await;
        harness.drop_database().await;
        Some(history)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: config().cases.min(SCRIPTS), ..config() })]

    #[test]
    fn law_11_differential_postgres_against_memory(script in script()) {
        let script = before_anything_is_forgotten(&script);
        let expected = history(&MemoryHarness::new(), script);
        if let Some(history) = postgres_history(script) {
            prop_assert_eq!(history, expected);
        }
    }
}
