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

/// Elsewhere the wall clock may be set back, and the monotonic one may stand still while the machine sleeps: the larger of
/// the two differences counts.
#[cfg(not(target_os = "linux"))]
fn boot_millis() -> u64 {
    use std::sync::{LazyLock, Mutex, PoisonError};
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    static CLOCK: Mutex<Option<leasehold_core::time::SteadyClock>> = Mutex::new(None);
    let (wall, monotonic) = (millis(SystemTime::now()).as_millis(), whole_millis(START.elapsed()));
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    clock
        .get_or_insert_with(|| leasehold_core::time::SteadyClock::new(wall, monotonic))
        .tick(wall, monotonic)
        .as_millis()
}

pub(crate) fn millis(time: SystemTime) -> StoreTime {
    StoreTime::from_millis(whole_millis(time.duration_since(UNIX_EPOCH).unwrap_or_default()))
}
