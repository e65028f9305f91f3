//! Notices when the lease clock runs ahead because the database's clock was set ahead, or right again after it was set back.
//!
//! Between two looks at the database, the lease clock must not pass more time than this process's own clock, which nobody can
//! set. What it passes beyond that is taken off the offset of the lease clock before anything is decided: no lease ends early,
//! as long as a process that has used the store before and after the step is the first to use it after the step.

use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::Clock;

/// How far the lease clock may be ahead, in milliseconds, before that counts as a step; and of a thousand milliseconds, how
/// many more the two clocks may drift apart.
const TOLERANCE: u64 = 500;
const DRIFT: u64 = 1;

/// Compares the lease clock with the clock of this process.
pub(super) struct Steps {
    clock: Arc<dyn Clock>,
    /// The lease clock as it was read last, and a moment before that on the clock of this process.
    last: Mutex<Option<(u64, u64)>>,
}

impl Steps {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: Mutex::default() }
    }

    /// The time on the clock of this process.
    pub(super) fn own(&self) -> u64 {
        self.clock.millis()
    }

    /// Takes in that the lease clock showed `now`, after the moment `sent`. Answers by how much it is ahead, if it is.
    pub(super) fn look(&self, now: u64, sent: u64) -> Option<u64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, since)) = *last {
            let passed = self.own().saturating_sub(since);
            let ahead = now.saturating_sub(before.saturating_add(passed));
            if ahead > TOLERANCE + passed / 1_000 * DRIFT {
                return Some(ahead);
            }
        }
        *last = Some((now, sent));
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn only_time_that_has_not_passed_here_counts_as_a_step() {
        let clock = Arc::new(ManualClock::default());
        let steps = Steps::new(clock.clone());
        let look = |passed, now| {
            clock.advance(Duration::from_millis(passed));
            steps.look(now, steps.own())
        };
        assert_eq!(look(0, 1_000_000), None, "the first look knows nothing");
        assert_eq!(look(10_000, 1_010_400), None, "a small step");
        assert_eq!(look(1_000, 1_021_400), Some(10_000));
        assert_eq!(look(0, 1_011_400), None, "it was taken off");
        assert_eq!(look(1_000, 1_002_400), None, "set back");
        assert_eq!(look(1_000, 1_013_400), Some(10_000), "and right again");
        assert_eq!(look(3_600_000, 4_606_900), None, "clocks drift");
    }
}
