//! The one retry policy: whether to try again, and how long to wait before. Every loop in Leasehold that repeats
//! something uses it. Pure: random numbers are arguments.

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
    /// Waits that double, from `initial` to `max` milliseconds.
    pub const fn doubling(initial: u64, max: u64) -> Self {
        Self { initial: Duration::from_millis(initial), multiplier: 2.0, max: Duration::from_millis(max) }
    }

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

/// How attempts follow each other: the waits between them, and how many there are.
///
/// Who uses which:
/// - [`CALL`](Self::CALL): a call to a store, a database or a server whose caller waits;
/// - [`LOOP`](Self::LOOP): a task of our own that goes on until it succeeds, such as following a store's events, and a
///   person who has said for how long to wait;
/// - [`PATIENT`](Self::PATIENT): what many do at the same time to one server, such as reconnecting;
/// - [`within`](Self::within): renewals of a lease, inside its heartbeat;
/// - the project lock has policies of its own, whose waits its sources give to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The waits between attempts.
    pub backoff: Backoff,
    /// How many attempts there are; unlimited when absent.
    pub max_attempts: Option<u32>,
}

impl RetryPolicy {
    /// For a call whose caller waits: six attempts within some 1.5 s.
    pub const CALL: Self = Self { backoff: Backoff::doubling(50, 1_000), max_attempts: Some(6) };

    /// For a task that has to go on, and soon.
    pub const LOOP: Self = Self { max_attempts: None, ..Self::CALL };

    /// For a task that has to go on, and whose server should not be flooded.
    pub const PATIENT: Self = Self { backoff: Backoff::doubling(100, 15_000), max_attempts: None };

    /// A `Retry-After` counts up to this many times the longest wait of the policy.
    const OBEYED: u32 = 5;

    /// For something that is repeated every `period` anyway, such as a renewal: the first retry comes after a tenth of it,
    /// and none later than the next period would.
    pub fn within(period: Duration) -> Self {
        let initial = (period / 10).max(Duration::from_millis(20));
        let max = period.min(Duration::from_secs(10));
        Self { backoff: Backoff { initial, multiplier: 2.0, max }, max_attempts: None }
    }

    /// The same waits, but at most so many attempts.
    pub const fn attempts(self, at_most: u32) -> Self {
        Self { max_attempts: Some(at_most), ..self }
    }

    /// Whether another attempt may follow the `attempt`-th.
    pub fn goes_on_after(&self, attempt: u32) -> bool {
        self.max_attempts.is_none_or(|most| attempt < most)
    }
}

/// The failures in a row of one operation under a [`RetryPolicy`]. Call [`Retries::failed`] after each failure, and
/// [`Retries::succeeded`] when the operation has worked.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    policy: RetryPolicy,
    failures: u32,
    random: u32,
}

impl Retries {
    /// Nothing has failed yet. `random` is spread evenly over all `u32`; it makes the jitter of all waits. With 0 there is
    /// none.
    pub const fn new(policy: RetryPolicy, random: u32) -> Self {
        Self { policy, failures: 0, random }
    }

    /// How often the operation has failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Counts a failure. Returns how long to wait before the next attempt, or `None` if this was the last one.
    pub fn failed(&mut self) -> Option<Duration> {
        self.failed_asking(None)
    }

    /// The same when the other side asks to be left alone for a while (`Retry-After`): the wait is then at least that
    /// long, within reason.
    pub fn failed_asking(&mut self, asked: Option<Duration>) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let random = self.draw();
        let own = self.policy.backoff.jittered(self.failures, random);
        let asked = asked.unwrap_or_default().min(self.policy.backoff.max * RetryPolicy::OBEYED);
        self.policy.goes_on_after(self.failures).then(|| own.max(asked))
    }

    /// Counts a failure in a loop that goes on whatever happens, and returns how long to wait.
    pub fn pause(&mut self) -> Duration {
        self.failed().unwrap_or(self.policy.backoff.max)
    }

    /// The operation has worked: the next failure is the first again.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The same operation under another policy, with nothing failed yet.
    pub fn restarted(self, policy: RetryPolicy) -> Self {
        Self { policy, failures: 0, ..self }
    }

    /// A step of xorshift: good enough to keep callers apart.
    fn draw(&mut self) -> u32 {
        let random = self.random;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTOSAVE: Backoff = Backoff::doubling(500, 5_000);

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

    #[test]
    fn the_last_attempt_is_not_waited_for() {
        let mut retries = Retries::new(RetryPolicy::CALL.attempts(3), 0);
        assert_eq!(
            retries.failed(),
            Some(Duration::from_millis(50)),
            "a random number of 0 shortens nothing"
        );
        assert!(retries.failed().is_some());
        assert_eq!(retries.failed(), None);
        retries.succeeded();
        assert!(retries.failed().is_some(), "counted anew");
    }

    #[test]
    fn the_random_numbers_are_those_of_xorshift32() {
        let mut retries = Retries::new(RetryPolicy::CALL, 1);
        let numbers: Vec<u32> = (0..4).map(|_| retries.draw()).collect();
        assert_eq!(numbers, [1, 270_369, 67_634_689, 2_647_435_461]);
    }

    #[test]
    fn an_endless_policy_never_ends_and_stays_between_half_the_wait_and_the_wait() {
        let mut retries = Retries::new(RetryPolicy::PATIENT, 7);
        for failures in 1..1_000 {
            let (exact, wait) = (RetryPolicy::PATIENT.backoff.exact(failures), retries.failed().unwrap());
            assert!(wait >= exact / 2 && wait <= exact, "{wait:?} of {exact:?}");
        }
    }

    #[test]
    fn a_loop_never_ends_and_another_policy_counts_anew() {
        let mut retries = Retries::new(RetryPolicy::LOOP, 7);
        assert!((0..1_000).all(|_| retries.failed().is_some()));
        let again = retries.restarted(RetryPolicy::CALL);
        assert_eq!((retries.failures(), again.failures()), (1_000, 0));
    }

    #[test]
    fn callers_who_fail_together_come_back_apart() {
        let waits = |random| {
            let mut retries = Retries::new(RetryPolicy::PATIENT, random);
            std::iter::repeat_with(move || retries.failed().unwrap()).take(10).collect::<Vec<_>>()
        };
        assert!(waits(1).iter().zip(waits(2_000_000_000)).all(|(one, other)| *one != other));
    }

    #[test]
    fn a_request_to_wait_longer_is_obeyed_within_reason() {
        let mut retries = Retries::new(RetryPolicy::LOOP, 0);
        assert_eq!(retries.failed_asking(Some(Duration::from_secs(3))), Some(Duration::from_secs(3)));
        assert_eq!(retries.failed_asking(Some(Duration::from_secs(3_600))), Some(Duration::from_secs(5)));
        assert!(
            retries.failed_asking(Some(Duration::ZERO)) > Some(Duration::ZERO),
            "never sooner than by itself"
        );
    }
}
