//! The laws of a lease, as code: one public function per law, run by every store.
//!
//! A store's tests provide a [`Harness`], which can move the store's clock, and call [`conformance_tests!`](crate::conformance_tests), which
//! makes one test of each law. Whatever passes may be used in the place of any other store. A store of the lower level
//! provides a [`JobHarness`], and calls [`job_conformance_tests!`](crate::job_conformance_tests).
//!
//! | law | needs |
//! |---|---|
//! | 1 to 8, ended lease ids | [`JobStore`]: a document can hold it |
//! | 2 through purge and restore, 5 by tab, 9, 10, 12, soft release, hand-over, lists | [`Store`] |
//! | jobs | [`JobStore`] |
//! | 11 | [`same_history`] and [`same_job_history`], with random scripts, against [`Memory`](crate::Memory) |
//!
//! A function panics when its law is broken, with words that say how.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a law fails by panicking"
)]

mod claims;
mod events;
mod expiry;
mod grants;
mod handover;
mod histories;
mod jobs;
mod limits;
mod ownership;
mod party;
mod restarts;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{JobStore, Store};
pub use claims::*;
pub use events::*;
pub use expiry::*;
pub use grants::*;
pub use handover::*;
pub use histories::*;
pub use jobs::*;
pub use limits::*;
pub use ownership::*;
pub use restarts::*;

/// What the laws of the lower level need of a store under test.
#[async_trait]
pub trait JobHarness: Send + Sync {
    /// The store, as far as a document can be one.
    fn job_store(&self) -> Arc<dyn JobStore>;

    /// Moves the store's clock on by exactly this much.
    async fn advance(&self, by: Duration);

    /// Ends the store in this way and opens it again; `false` if nothing of it outlives its end.
    async fn restart(&self, _how: Restart) -> bool {
        false
    }

    /// How many may want the same thing at once, where it takes long to sort them out.
    fn racers(&self) -> u8 {
        MOST_RACERS
    }
}

/// How many want the same thing at once, unless the harness says otherwise.
const MOST_RACERS: u8 = 24;

/// What the laws of the upper level need besides.
#[async_trait]
pub trait Harness: JobHarness {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// Holds the store up for this long, so that it serves nobody meanwhile; `false` if its clock runs on regardless.
    async fn stall(&self, _for_how_long: Duration) -> bool {
        false
    }
}

/// How a store ends before it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// In an orderly way.
    Orderly,
    /// As if the power had failed: only what was durable is left.
    Crash,
    /// It is put back to a backup that was taken before the last thing that happened to `key`.
    Restore,
    /// In an orderly way, and it stays down for an hour.
    DownForAnHour,
}

/// Makes one test of each law. The argument is an expression that makes a fresh [`Harness`].
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr) => {
        $crate::job_conformance_tests!($harness);
        $crate::conformance_tests! { $harness;
            law_05_a_tab_claims_what_its_owner_holds_in_it,
            law_05_of_many_calls_from_one_tab_all_get_the_same_lease,
            law_05_a_claim_by_tab_ends_with_its_lease,
            law_09_events_are_ordered_and_without_gaps,
            law_09_one_expiry_gives_one_event,
            law_09_an_end_by_force_tells_who_and_why,
            law_09_a_consumer_that_missed_events_is_told,
            law_09_a_waiting_consumer_is_woken,
            law_10_a_stall_or_a_restart_expires_nobody,
            law_10_a_crash_puts_the_clock_back_by_a_second_at_most,
            law_12_everything_is_bounded,
            law_12_silence_gives_nothing_to_an_asker_that_is_full,
            a_soft_release_shortens_and_a_resume_brings_back,
            a_handover_needs_the_holder_to_have_been_told,
            lists_are_paged_in_key_order,
            job_is_recovered_after_a_sweep,
        }
    };
    ($harness:expr; $($law:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $law() {
                let harness = $harness;
                $crate::conformance::$law(&harness).await;
            }
        )*
    };
}

/// Makes one test of each law of the lower level. The argument is an expression that makes a fresh [`JobHarness`].
#[macro_export]
macro_rules! job_conformance_tests {
    ($harness:expr) => {
        $crate::conformance_tests! { $harness;
            law_01_at_most_one_unexpired_holder,
            law_01_histories_are_linearizable,
            law_02_fences_grow_over_the_grants_of_a_key,
            law_02_fences_grow_through_restarts,
            law_03_expired_means_expires_at_lte_now,
            law_04_the_ttl_is_a_lower_bound_and_take_over_follows_at_once,
            law_05_renew_and_release_compare_lease_id_and_fence,
            law_05_a_lease_id_counts_for_its_owner_alone,
            law_05_a_worker_is_its_lease_id_its_owner_and_its_fence,
            law_05_take_over_compares_the_fence_as_seen,
            law_05_without_force_only_ones_own_is_taken,
            law_05_a_forced_release_compares_the_fence_as_seen,
            law_06_of_many_racers_for_a_stale_lease_one_wins,
            law_07_a_grant_is_durable_before_it_is_acknowledged,
            law_07_an_unknown_acquire_may_be_repeated,
            law_08_the_holder_stops_before_the_store_would_let_others_in,
            an_ended_lease_id_answers_lost_for_ten_minutes,
            a_withdrawn_lease_id_is_never_granted,
            job_first_acquire_succeeds,
            job_of_many_at_once_one_gets_it,
            job_is_recovered_after_the_ttl,
            job_ready_or_failed_is_never_acquired,
            job_a_foreign_release_changes_nothing,
            job_outlives_a_restart,
            job_an_unknown_answer_may_be_asked_for_again,
            job_attempts_are_counted_and_a_reset_begins_anew,
            job_numbers_and_texts_come_back_as_they_were_sent,
            job_payloads_differ_by_a_digit_and_not_by_a_space,
        }
    };
}
