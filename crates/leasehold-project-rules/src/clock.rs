//! The two clocks of a tab, brought along with every call. It must never read one itself.

use leasehold_core::time::{HolderTime, SteadyClock, StoreTime};

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

/// Both clocks, for a program without `CLOCK_BOOTTIME`: the steady one is made of the wall clock and a monotonic one.
#[derive(Clone, Copy, Debug)]
pub struct Clock(SteadyClock);

impl Clock {
    /// A clock that starts at these readings, both in milliseconds.
    pub const fn new(wall: u64, monotonic: u64) -> Self {
        Self(SteadyClock::new(wall, monotonic))
    }

    /// The time at these readings.
    pub fn tick(&mut self, wall: u64, monotonic: u64) -> Now {
        Now { wall: StoreTime::from_millis(wall), steady: self.0.tick(wall, monotonic) }
    }
}
