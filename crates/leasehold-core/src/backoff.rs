//! How long to wait before trying again. Pure: the random number is an argument.

use std::time::Duration;

/// Waits that grow by a factor up to a cap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub initial: Duration,
    /// What each wait is multiplied by to give the next.
    pub multiplier: f64,
    /// The longest wait.
    pub max: Duration,
}

impl Backoff {
    /// The wait after the `failures`-th failure in a row (1 is the first), without jitter.
    pub fn exact(&self, failures: u32) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial.as_secs_f64() * self.multiplier.powi(exponent);
        // The comparison is written so that NaN and infinity also end at the cap.
        if seconds < self.max.as_secs_f64() { whole_nanos(seconds.max(0.0)) } else { self.max }
    }

    /// The same, shortened by up to half: `random` is spread evenly over all `u32`, so that callers who failed
    /// together do not come back together.
    pub fn jittered(&self, failures: u32, random: u32) -> Duration {
        let share = f64::from(random) / f64::from(u32::MAX);
        self.exact(failures).mul_f64(1.0 - share / 2.0)
    }
}

/// To the nanosecond. What the standard library has for this can panic, which a page would have to load.
fn whole_nanos(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9 + 0.5) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTOSAVE: Backoff =
        Backoff { initial: Duration::from_millis(500), multiplier: 2.0, max: Duration::from_secs(5) };

    #[test]
    fn doubles_up_to_the_cap() {
        let waits: Vec<_> = (1..=6).map(|n| AUTOSAVE.exact(n).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(AUTOSAVE.exact(u32::MAX), AUTOSAVE.max);
        assert_eq!(AUTOSAVE.exact(0), AUTOSAVE.initial);
    }

    #[test]
    fn jitter_takes_away_at_most_half() {
        assert_eq!(AUTOSAVE.jittered(1, 0), Duration::from_millis(500));
        assert_eq!(AUTOSAVE.jittered(1, u32::MAX), Duration::from_millis(250));
    }

    #[test]
    fn a_nonsensical_multiplier_does_not_panic() {
        for multiplier in [f64::NAN, f64::INFINITY, -3.0, 0.0] {
            let backoff = Backoff { multiplier, ..AUTOSAVE };
            for failures in [0, 1, 2, 3, 1_000] {
                assert!(backoff.exact(failures) <= AUTOSAVE.max);
            }
        }
    }
}
