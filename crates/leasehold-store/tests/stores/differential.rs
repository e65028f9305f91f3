//! Law 11: random scripts, every store against memory. The same outcomes, events and order of fences. PostgreSQL and
//! Firestore run the same scripts in their own modules.

use std::time::Duration;

use leasehold_core::OnSilence;
use leasehold_core::lease::REMEMBERED;
use leasehold_store::Mode;
use leasehold_store::conformance::{Act, Harness, JobAct, Step, same_history};
use proptest::prelude::*;

use crate::harness::{EmbeddedHarness, MemoryHarness};

/// How many scripts are tried unless `LEASEHOLD_CASES` says otherwise.
const SCRIPTS: u32 = 32;

/// Not proptest's own variable, which would count for every store alike: each script on PostgreSQL needs a database.
pub fn config() -> ProptestConfig {
    let cases = std::env::var("LEASEHOLD_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(SCRIPTS);
    ProptestConfig { cases, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() }
}

/// Waits at and around the moments that matter, and no wait most of the time.
fn wait() -> impl Strategy<Value = Duration> {
    let millis = prop_oneof![
        6 => Just(0),
        2 => 1_u64..2_000,
        1 => Just(4_999_u64), 1 => Just(5_000), 1 => Just(9_999), 1 => Just(10_000), 1 => Just(29_999), 1 => Just(30_000),
    ];
    millis.prop_map(Duration::from_millis)
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Acquire),
        4 => Just(Act::AcquireAnew),
        4 => Just(Act::Renew),
        3 => Just(Act::Release),
        1 => Just(Act::RenewAsHolder),
        1 => Just(Act::RenewAsAnother),
        4 => (0_u8..3).prop_map(Act::AcquireInTab),
        3 => (0_u8..3).prop_map(Act::RenewInTab),
        1 => (0_u8..3).prop_map(Act::ReleaseInTab),
        2 => Just(Act::SoftRelease),
        2 => Just(Act::Resume),
        2 => Just(Act::TakeOver),
        1 => Just(Act::ForceRelease),
        3 => any::<bool>().prop_map(|grant| Act::Request(if grant { OnSilence::Grant } else { OnSilence::Refuse })),
        2 => Just(Act::Told),
        2 => any::<bool>().prop_map(Act::Answer),
        1 => Just(Act::Withdraw),
        1 => Just(Act::Check),
        2 => Just(Act::SettleDue),
        1 => Just(Act::Restart),
        8 => job_act().prop_map(Act::Job),
    ]
}

fn job_act() -> impl Strategy<Value = JobAct> {
    prop_oneof![
        3 => Just(JobAct::Create),
        1 => Just(JobAct::CreateAnother),
        3 => Just(JobAct::Acquire),
        3 => Just(JobAct::AcquireAnew),
        2 => Just(JobAct::Refresh),
        1 => Just(JobAct::Release),
        1 => Just(JobAct::Complete),
        2 => any::<bool>().prop_map(JobAct::Fail),
        1 => Just(JobAct::Reset),
    ]
}

pub fn script() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (wait(), 0_u8..2, 0_u8..3, act()).prop_map(|(wait, key, party, act)| Step { wait, key, party, act });
    prop::collection::vec(step, 1..50)
}

pub fn history(harness: &dyn Harness, script: &[Step]) -> Vec<String> {
    runtime().block_on(same_history(harness, script))
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// When a free key is forgotten, and its numbers jump, is up to the store. PostgreSQL does not do it with every command.
pub fn before_anything_is_forgotten(script: &[Step]) -> &[Step] {
    let mut passed = Duration::ZERO;
    let too_late = script.iter().position(|step| {
        passed += step.wait;
        passed >= REMEMBERED
    });
    &script[..too_late.unwrap_or(script.len())]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn law_11_differential_exclusive_against_memory(script in script()) {
        let expected = history(&MemoryHarness::new(), &script);
        prop_assert_eq!(history(&EmbeddedHarness::new(Mode::Exclusive), &script), expected);
    }

    #[test]
    fn law_11_differential_shared_against_memory(script in script()) {
        let expected = history(&MemoryHarness::new(), &script);
        prop_assert_eq!(history(&EmbeddedHarness::new(Mode::Shared), &script), expected);
    }
}
