//! Every mistake that somebody made is caught, by the law that it breaks.

use leasehold_sim::bug::Bug;
use leasehold_sim::world;

/// A mistake has to show in one of so many worlds.
const SEEDS: u64 = 100;

/// Tries worlds until the law that the mistake is meant for is broken; no other law may be broken by it before.
fn is_caught(bug: Bug) {
    for seed in 0..SEEDS {
        let Some(violation) = world::run(seed, Some(bug), false).violation else { continue };
        let replay = format!("cargo xtask sim --seed {seed} --bug {}", bug.name());
        assert!(bug.caught_by().contains(&violation.law), "{replay}: {violation:?}");
        if bug.caught_by().first() == Some(&violation.law) {
            println!("{} broke {} ({}), replay it with: {replay}", bug.name(), violation.law, violation.what);
            assert_eq!(world::run(seed, None, false).violation, None, "the law holds without the mistake");
            return;
        }
    }
    panic!("{} was not caught in {SEEDS} worlds", bug.name());
}

macro_rules! caught {
    ($($test:ident: $bug:ident),* $(,)?) => {
        $(#[test] fn $test() { is_caught(Bug::$bug); })*

        #[test]
        fn every_mistake_has_its_test() {
            assert_eq!([$(Bug::$bug),*], Bug::ALL.map(|(bug, _, _)| bug));
        }
    };
}

caught! {
    no_recheck_after_waiting: NoRecheckAfterWaiting,
    release_without_compare: ReleaseWithoutCompare,
    tab_without_owner: TabWithoutOwner,
    claim_from_record: ClaimFromRecord,
    fence_reset_on_release: FenceResetOnRelease,
    fence_reset_on_restart: FenceResetOnRestart,
    deadline_from_answer: DeadlineFromAnswer,
    late_answer_ends_request: LateAnswerEndsRequest,
    expired_revived: ExpiredRevived,
    ack_before_durable: AckBeforeDurable,
    event_before_commit: EventBeforeCommit,
    double_expiry: DoubleExpiry,
    unlink_then_create: UnlinkThenCreate,
    retry_grants_twice: RetryGrantsTwice,
    no_reload_after_unknown_write: NoReloadAfterUnknownWrite,
    reload_forgets_the_clock: ReloadForgetsTheClock,
    idle_clock_not_written: IdleClockNotWritten,
    epoch_not_compared: EpochNotCompared,
    copy_repeats_fences: CopyRepeatsFences,
}
