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
