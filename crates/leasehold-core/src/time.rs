//! Two clocks that must never be mixed, as two types: the store's, which rules, and the holder's own.
//!
//! Both count milliseconds from an origin of their own. Wall-clock time does not exist here: it is for showing only.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use crate::name::Invalid;

macro_rules! clock_time {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The origin of the clock.
            pub const ZERO: Self = Self(0);

            /// The time this many milliseconds after the clock's origin.
            pub const fn from_millis(millis: u64) -> Self {
                Self(millis)
            }

            /// Milliseconds since the clock's origin.
            pub const fn as_millis(self) -> u64 {
                self.0
            }

            /// How long after `earlier` this is; zero when it is not after it.
            pub const fn since(self, earlier: Self) -> Duration {
                Duration::from_millis(self.0.saturating_sub(earlier.0))
            }

            /// This much earlier; the origin when there is not that much.
            pub fn minus(self, duration: Duration) -> Self {
                Self(self.0.saturating_sub(whole_millis(duration)))
            }
        }

        impl Add<Duration> for $name {
            type Output = Self;
            fn add(self, duration: Duration) -> Self {
                Self(self.0.saturating_add(whole_millis(duration)))
            }
        }
    };
}

clock_time! {
    /// A time on the store's clock, the only one that decides whether a lease has expired.
    StoreTime
}

clock_time! {
    /// A time on the holder's own clock, which must keep running while the machine sleeps.
    HolderTime
}

/// Makes a holder's clock of a wall clock, which may be set, and a monotonic one, which may stand still while the machine
/// sleeps: it goes by whichever has advanced more. Where there is `CLOCK_BOOTTIME`, nobody needs it.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    /// The readings that are compared with, and the time then.
    since: (u64, u64, HolderTime),
    last: (u64, u64, HolderTime),
}

/// How far the monotonic clock may be ahead before both are compared anew. A sleep is counted short by at most this much,
/// which is a fraction of every holder's margin.
const AHEAD: u64 = 50;

impl SteadyClock {
    /// A clock that starts at these readings, both in milliseconds.
    pub const fn new(wall: u64, monotonic: u64) -> Self {
        let start = (wall, monotonic, HolderTime::ZERO);
        Self { since: start, last: start }
    }

    /// The time at these readings.
    pub fn tick(&mut self, wall: u64, monotonic: u64) -> HolderTime {
        let ((since_wall, since_monotonic, since), (last_wall, last_monotonic, last)) =
            (self.since, self.last);
        let by_monotonic = monotonic.saturating_sub(since_monotonic);
        // Differences are taken over a long time: over every short one, the rounding of both clocks would add up.
        let by_wall = wall.saturating_sub(since_wall);
        let is_set_back = wall < last_wall;
        let now = if is_set_back {
            last + Duration::from_millis(monotonic.saturating_sub(last_monotonic))
        } else {
            last.max(since + Duration::from_millis(by_wall.max(by_monotonic)))
        };
        self.last = (wall, monotonic, now);
        if is_set_back || by_monotonic > by_wall.saturating_add(AHEAD) {
            self.since = self.last;
        }
        now
    }
}

/// A duration in whole milliseconds, rounded down; the largest number for what no clock will ever reach.
pub fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How long a grant or a renewal lasts: 1 s to 24 h, in whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u32);

impl Ttl {
    /// The shortest TTL: below this, a holder's safety margin would leave it no time to work.
    pub const MIN: Self = Self(1_000);
    /// The longest TTL: a lease is renewed, not granted for days.
    pub const MAX: Self = Self(24 * 60 * 60 * 1_000);

    /// A TTL of this duration, if it lies between [`Ttl::MIN`] and [`Ttl::MAX`].
    pub fn new(duration: Duration) -> Result<Self, Invalid> {
        u32::try_from(duration.as_millis())
            .ok()
            .map(Self)
            .filter(|ttl| (Self::MIN..=Self::MAX).contains(ttl))
            .ok_or_else(|| Invalid::new("TTL", &shown(duration), TTL_RULE, TTL_FIX))
    }

    /// A TTL of so many seconds.
    pub fn from_secs(seconds: u64) -> Result<Self, Invalid> {
        Self::new(Duration::from_secs(seconds))
    }

    /// Reads `1500ms`, `30s`, `5m`, `24h`, or a bare number of seconds.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        parse_duration("TTL", text).and_then(Self::new)
    }

    /// The same as a [`Duration`].
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }

    /// The same in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0 as u64
    }
}

/// A duration as [`Ttl::parse`] reads it.
fn shown(duration: Duration) -> String {
    match whole_millis(duration) {
        millis if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        millis => format!("{millis}ms"),
    }
}

const TTL_RULE: &str = "a TTL lies between 1s and 24h";
const TTL_FIX: &str =
    "choose one in that range; a long task renews a short lease instead of taking a long one";

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ttl({:?})", self.as_duration())
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_duration())
    }
}

/// Reads a duration such as `1500ms`, `30s`, `5m`, `24h`, or a bare number of seconds. `what` names it in the error.
pub fn parse_duration(what: &'static str, text: &str) -> Result<Duration, Invalid> {
    let refuse = || {
        Invalid::new(
            what,
            text,
            "a duration is a whole number and a unit: ms, s, m or h",
            "write it like 1500ms, 30s, 5m or 24h",
        )
    };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit_millis = match unit {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(refuse()),
    };
    let number: u64 = number.parse().map_err(|_| refuse())?;
    number.checked_mul(unit_millis).map(Duration::from_millis).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Off Linux the holder's clock was the wall clock: set back by an hour, a holder of 2 s believed in its lease for 3,599 s
    /// more, while another had it.
    #[test]
    fn law_08_the_steady_clock_counts_sleep_and_never_goes_back() {
        let mut clock = SteadyClock::new(1_000_000, 0);
        assert_eq!(clock.tick(1_000_500, 500).as_millis(), 500);
        // The machine slept for a minute: the monotonic clock stood still.
        assert_eq!(clock.tick(1_061_000, 1_000).as_millis(), 61_000);
        // The wall clock was set back by an hour, and the machine sleeps again.
        assert_eq!(clock.tick(0, 2_000).as_millis(), 62_000);
        assert_eq!(clock.tick(60_000, 2_000).as_millis(), 122_000);
    }

    /// Each of the two clocks passes a millisecond at its own moment: added up tick by tick, the clock ran twice as fast.
    #[test]
    fn a_steady_clock_that_is_read_often_runs_no_faster() {
        let mut clock = SteadyClock::new(1_000_000, 0);
        for quarter in 1..=40_000_u64 {
            clock.tick(1_000_000 + (quarter + 2) / 4, quarter / 4);
        }
        let time = clock.tick(1_010_000, 10_000).as_millis();
        assert!((10_000..=10_001).contains(&time), "{time}");
    }

    #[test]
    fn a_sleep_counts_although_the_wall_clock_is_slow() {
        let mut clock = SteadyClock::new(0, 0);
        for second in 1..=86_400 {
            clock.tick(second * 999, second * 1_000);
        }
        let before = clock.tick(86_400 * 999, 86_400_000).as_millis();
        let after = clock.tick(86_400 * 999 + 5_000, 86_400_000).as_millis();
        assert!(after - before >= 5_000 - AHEAD, "{}", after - before);
    }

    #[test]
    fn ttl_parses_what_people_write() {
        for (text, millis) in
            [("1500ms", 1_500), ("30s", 30_000), ("30", 30_000), ("5m", 300_000), ("24h", 86_400_000)]
        {
            assert_eq!(Ttl::parse(text).unwrap().as_millis(), millis, "{text}");
        }
    }

    #[test]
    fn ttl_refuses_what_lies_outside_one_second_to_a_day() {
        for text in ["0", "999ms", "25h", "86400001ms", "99999999999999999999s", "18446744073709551615h"] {
            assert!(Ttl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_that_is_none_says_how_to_write_one() {
        for text in ["", "s", "-1s", "1.5s", "1 s", "1d", "１s", "30seconds", "ms30"] {
            let error = parse_duration("--wait", text).unwrap_err().to_string();
            assert!(error.contains("--wait") && error.contains("30s"), "{text}: {error}");
        }
    }

    #[test]
    fn clocks_saturate_instead_of_wrapping() {
        assert_eq!(StoreTime::from_millis(5).minus(Duration::from_secs(1)), StoreTime::ZERO);
        assert_eq!(StoreTime::from_millis(u64::MAX) + Duration::MAX, StoreTime::from_millis(u64::MAX));
        assert_eq!(StoreTime::ZERO.since(StoreTime::from_millis(9)), Duration::ZERO);
    }
}
