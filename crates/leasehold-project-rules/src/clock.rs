//! The two clocks of a tab, brought along with every call. It must never read one itself.

use std::time::Duration;

use leasehold_core::time::{HolderTime, StoreTime};

/// What the clocks say. Every call brings its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, in milliseconds since 1970. It is the clock of the folder: `.lock` and its modification time are
    /// compared with it.
    pub wall: StoreTime,
    /// The tab's own clock, which goes on while the machine sleeps and never goes back.
    pub steady: HolderTime,
}

impl Now {
    /// Both clocks at this many milliseconds, for tests and for programs that have only one.
    pub const fn both(millis: u64) -> Self {
        Self { wall: StoreTime::from_millis(millis), steady: HolderTime::from_millis(millis) }
    }
}

/// Makes a steady clock of a wall clock, which may be set, and a monotonic one, which may stand still while the machine
/// sleeps: it advances by the larger of the two differences.
///
/// A program that has `CLOCK_BOOTTIME` needs none of this.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: u64,
    monotonic: u64,
    steady: HolderTime,
}

impl Clock {
    /// A clock that starts at these readings, both in milliseconds.
    pub const fn new(wall: u64, monotonic: u64) -> Self {
        Self { wall, monotonic, steady: HolderTime::ZERO }
    }

    /// The time at these readings.
    pub fn tick(&mut self, wall: u64, monotonic: u64) -> Now {
        let passed = wall.saturating_sub(self.wall).max(monotonic.saturating_sub(self.monotonic));
        self.steady = self.steady + Duration::from_millis(passed);
        (self.wall, self.monotonic) = (wall, monotonic);
        Now { wall: StoreTime::from_millis(wall), steady: self.steady }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn law_08_the_steady_clock_counts_sleep_and_never_goes_back() {
        let mut clock = Clock::new(1_000_000, 0);
        assert_eq!(clock.tick(1_000_500, 500).steady.as_millis(), 500);
        // The machine slept for a minute: the monotonic clock stood still.
        assert_eq!(clock.tick(1_061_000, 1_000).steady.as_millis(), 61_000);
        // The wall clock was set back by an hour.
        assert_eq!(clock.tick(0, 2_000).steady.as_millis(), 62_000);
    }
}
