//! Where a program's time comes from.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::time::whole_millis;
use leasehold_core::{HolderTime, StoreTime};
use leasehold_project_rules::Now;

/// The two clocks of a program.
pub trait Clock: Send + Sync + 'static {
    /// What they say now.
    fn now(&self) -> Now;

    /// Waits for so long.
    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The machine's own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        Now { wall: millis(SystemTime::now()), steady: HolderTime::from_millis(boot_millis()) }
    }
}

/// Milliseconds since the machine was started, its sleep included.
#[cfg(target_os = "linux")]
fn boot_millis() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Elsewhere, the wall clock: it too runs on while the machine sleeps. Set back, it makes leases end late on the holder's
/// side; every save is checked all the same.
#[cfg(not(target_os = "linux"))]
fn boot_millis() -> u64 {
    millis(SystemTime::now()).as_millis()
}

pub(crate) fn millis(time: SystemTime) -> StoreTime {
    StoreTime::from_millis(whole_millis(time.duration_since(UNIX_EPOCH).unwrap_or_default()))
}
