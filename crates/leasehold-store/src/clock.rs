//! Clocks for stores: where raw time comes from, and the lease clock made of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::StoreTime;
use leasehold_core::time::whole_millis;

/// A source of raw milliseconds that never go back while the machine runs.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the machine was started, its sleep included.
    fn millis(&self) -> u64;

    /// Names this run of the machine: readings compare only within the same one.
    fn boot(&self) -> String;

    /// Why this process may read another time than other processes of the machine, and what to do; `None` if it does not.
    fn differs(&self) -> Option<String> {
        None
    }
}

/// The machine's own clock: the same for all its processes, whatever time namespace they are in.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[cfg(target_os = "linux")]
impl Clock for SystemClock {
    fn millis(&self) -> u64 {
        let ahead = NAMESPACE.as_ref().copied().unwrap_or(0);
        boottime_millis().saturating_add_signed(ahead.saturating_neg())
    }

    fn boot(&self) -> String {
        std::fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default()
    }

    fn differs(&self) -> Option<String> {
        if self.boot().is_empty() {
            let why = "without it, times from before a restart of the machine cannot be told from later ones";
            return Some(format!("{BOOT_ID} cannot be read, and {why}; run it where /proc is mounted whole"));
        }
        NAMESPACE.as_ref().err().cloned()
    }
}

/// A random name for each start of the machine.
#[cfg(target_os = "linux")]
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How far the clock of this process's time namespace is ahead of the machine's, in milliseconds. It does not change while
/// the process is in it.
#[cfg(target_os = "linux")]
static NAMESPACE: std::sync::LazyLock<Result<i64, String>> = std::sync::LazyLock::new(namespace_offset);

/// The time since the machine was started, as the time namespace of this process has it.
#[cfg(target_os = "linux")]
fn boottime_millis() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(target_os = "linux")]
fn namespace_offset() -> Result<i64, String> {
    const OFFSETS: &str = "/proc/self/timens_offsets";
    let unclear = |what: &str| {
        Err(format!(
            "{what}, so how far its clock is from the machine's is unknown; run it outside of time namespaces"
        ))
    };
    // What is read there is the namespace of new children, which is another one between `unshare` and `exec`.
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    if namespace("time") != namespace("time_for_children") {
        return unclear("this process is about to enter another time namespace");
    }
    match std::fs::read_to_string(OFFSETS) {
        Ok(text) => parse_offset(&text).map_or_else(|| unclear(&format!("{OFFSETS} is not understood")), Ok),
        // A kernel without time namespaces.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => unclear(&format!("{OFFSETS} cannot be read ({error})")),
    }
}

/// The milliseconds in the line `boottime SECONDS NANOSECONDS`.
#[cfg(target_os = "linux")]
fn parse_offset(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000)?.checked_add(nanos / 1_000_000)
}

/// Elsewhere, the wall clock: it too runs on while the machine sleeps, and all processes share it. The stores above
/// never let it go back.
#[cfg(not(target_os = "linux"))]
impl Clock for SystemClock {
    fn millis(&self) -> u64 {
        unix_millis()
    }

    fn boot(&self) -> String {
        "wall".to_owned()
    }
}

/// The clock of a holder in this process: nobody else reads it, so it need not be the machine's.
#[derive(Clone, Copy, Debug, Default)]
pub struct HolderClock;

#[cfg(target_os = "linux")]
impl Clock for HolderClock {
    fn millis(&self) -> u64 {
        boottime_millis()
    }

    fn boot(&self) -> String {
        SystemClock.boot()
    }
}

/// Elsewhere the wall clock may be set back, and the monotonic one may stand still while the machine sleeps: a holder
/// goes by whichever has gone further.
#[cfg(not(target_os = "linux"))]
impl Clock for HolderClock {
    fn millis(&self) -> u64 {
        static CLOCKS: std::sync::LazyLock<TwoClocks> = std::sync::LazyLock::new(TwoClocks::start);
        CLOCKS.millis()
    }

    fn boot(&self) -> String {
        "process".to_owned()
    }
}

#[cfg(any(test, not(target_os = "linux")))]
struct TwoClocks {
    start: std::time::Instant,
    clock: std::sync::Mutex<leasehold_core::time::SteadyClock>,
}

#[cfg(any(test, not(target_os = "linux")))]
impl TwoClocks {
    fn start() -> Self {
        let clock = leasehold_core::time::SteadyClock::new(unix_millis(), 0);
        Self { start: std::time::Instant::now(), clock: std::sync::Mutex::new(clock) }
    }

    fn millis(&self) -> u64 {
        // A tick is never left half done.
        let mut clock = self.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        clock.tick(unix_millis(), whole_millis(self.start.elapsed())).as_millis()
    }
}

/// Milliseconds of the wall clock since 1970: for showing, and for choosing the first fence of a new store.
pub fn unix_millis() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map(whole_millis).unwrap_or(0)
}

/// A clock that moves only when a test moves it.
#[derive(Debug, Default)]
pub struct ManualClock {
    millis: AtomicU64,
    boots: AtomicU64,
}

impl ManualClock {
    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.millis.fetch_add(whole_millis(by), Ordering::SeqCst);
    }

    /// Restarts the machine: the clock begins anew, under another name.
    pub fn reboot(&self) {
        self.boots.fetch_add(1, Ordering::SeqCst);
        self.millis.store(0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn millis(&self) -> u64 {
        self.millis.load(Ordering::SeqCst)
    }

    fn boot(&self) -> String {
        format!("manual-{}", self.boots.load(Ordering::SeqCst))
    }
}

/// The clock of a store that lives in one process: it never goes back, stands still while the store is down, and
/// after a stall goes on by at most one step, so that those who could not renew during the stall get to do so.
#[doc(hidden)]
#[derive(Debug)]
pub struct LeaseClock {
    now: StoreTime,
    last_raw: u64,
    longest_step: Duration,
}

/// How far the lease clock moves in one turn at most.
#[doc(hidden)]
pub const LONGEST_STEP: Duration = Duration::from_secs(1);

impl LeaseClock {
    /// A clock that goes on from `start`, at the raw reading `raw`.
    pub fn new(start: StoreTime, raw: u64, longest_step: Duration) -> Self {
        Self { now: start, last_raw: raw, longest_step }
    }

    /// Brings the clock up to the raw reading.
    pub fn turn(&mut self, raw: u64) -> StoreTime {
        let passed = Duration::from_millis(raw.saturating_sub(self.last_raw));
        self.last_raw = self.last_raw.max(raw);
        self.now = self.now + passed.min(self.longest_step);
        self.now
    }

    /// The time of the last turn.
    pub fn now(&self) -> StoreTime {
        self.now
    }

    /// Puts the clock back to a time from before a turn that nobody has seen, or forward to one that somebody has.
    pub fn stand_still_at(&mut self, time: StoreTime) {
        self.now = time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn law_10_the_lease_clock_never_goes_back_and_forgives_a_stall() {
        let mut clock = LeaseClock::new(StoreTime::from_millis(500), 10_000, LONGEST_STEP);
        let turns = [10_000, 10_300, 10_100, 10_400, 99_000, 99_100, 99_100];
        let times: Vec<_> = turns.iter().map(|raw| clock.turn(*raw).as_millis()).collect();
        assert_eq!(times, [500, 800, 800, 900, 1_900, 2_000, 2_000]);
    }

    #[test]
    fn law_10_time_in_which_nothing_could_be_written_does_not_count() {
        let mut clock = LeaseClock::new(StoreTime::ZERO, 0, LONGEST_STEP);
        let before = clock.now();
        clock.turn(900);
        clock.stand_still_at(before);
        assert_eq!(clock.turn(1_000).as_millis(), 100);
    }

    #[test]
    fn two_clocks_move_like_the_machines_own() {
        let clocks = TwoClocks::start();
        let (before, start) = (SystemClock.millis(), clocks.millis());
        while clocks.millis() < start + 20 {
            std::thread::yield_now();
        }
        assert!(SystemClock.millis() >= before + 15);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_offset_of_a_time_namespace_is_read_to_the_millisecond() {
        let text = "monotonic           0         0\nboottime         3600 250000000\n";
        assert_eq!(parse_offset(text), Some(3_600_250));
        assert_eq!(parse_offset("monotonic 1 0\nboottime -86400 0\n"), Some(-86_400_000));
        for unclear in
            ["", "monotonic 1 0", "boottime", "boottime 1", "boottime x 0", "boottime 9223372036854775807 0"]
        {
            assert_eq!(parse_offset(unclear), None, "{unclear:?}");
        }
        assert_eq!(SystemClock.differs(), None);
    }

    #[test]
    fn the_system_clock_moves_and_knows_its_boot() {
        let (first, boot) = (SystemClock.millis(), SystemClock.boot());
        assert!(first > 0 && !boot.is_empty());
        assert!(SystemClock.millis() >= first);
    }
}
