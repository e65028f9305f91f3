//! The saved versions of a project, as generations: their names, which of them stay, and the text of `index.json`. A
//! generation is named after the time at which it was saved, and every name is later than all before it, so that the order of
//! the names is the order of the saves even if the clock was set back. The newest generation is never removed.

use std::time::Duration;

use leasehold_core::time::{StoreTime, whole_millis};

use crate::joined;

/// The folder of an autosave, below the project's.
pub const FOLDER: &str = "autosave";
/// The version that was saved last.
pub const CURRENT: &str = "autosave/current.json";
/// The folder of the generations.
pub const HISTORY: &str = "autosave/history";
/// A list of the generations, for programs that do not want to read the folder. A cache: the folder is what counts.
pub const INDEX: &str = "autosave/index.json";

/// What follows the time in the name of a generation.
const SUFFIX: &str = ".json";

/// The largest time that has four digits for its year: 9999-12-31T23:59:59.999Z.
const LATEST: u64 = 253_402_300_799_999;

/// When a generation was saved, in milliseconds since 1970. It is its name: no two are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// This many milliseconds after 1970, or the last millisecond of 9999.
    pub fn from_millis(millis: u64) -> Self {
        Self(millis.min(LATEST))
    }

    /// In milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The time in ISO 8601: `2026-11-16T10:27:45.123Z`.
    pub fn text(self) -> String {
        self.written(":")
    }

    /// The name of its file: the same without colons, which some file systems and archives cannot have in a name.
    pub fn file_name(self) -> String {
        joined(&[&self.written("-"), SUFFIX])
    }

    /// The path of its file, below the project's folder.
    pub fn path(self) -> String {
        joined(&[HISTORY, "/", &self.file_name()])
    }

    /// Reads the name of a file; none for any other file, such as one that is still being written.
    pub fn of_file(name: &str) -> Option<Self> {
        Self::parse(name.strip_suffix(SUFFIX)?)
    }

    /// Reads a time, with colons or without.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let fits = bytes.len() == 24
            && bytes.iter().zip(b"0000-00-00T00:00:00.000Z").all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                b':' => matches!(byte, b':' | b'-'),
                _ => byte == form,
            });
        if !fits {
            return None;
        }
        let number = |from: usize, to: usize| -> u64 {
            bytes.iter().take(to).skip(from).fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0'))
        };
        let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
        let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
        let seconds = days_since_1970(year, month, day)? * 86_400 + hour * 3_600 + minute * 60 + second;
        let stamp = Self(seconds * 1_000 + number(20, 23));
        // A day or a minute that does not exist would be another's name.
        let (clean, dashed) = (stamp.text(), stamp.written("-"));
        (clean == text || dashed == text).then_some(stamp)
    }

    fn written(self, colon: &str) -> String {
        let (days, millis) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = date(days);
        let digits = |number: u64, count: u32| -> String {
            (0..count).rev().map(|place| char::from(b'0' + (number / 10_u64.pow(place) % 10) as u8)).collect()
        };
        joined(&[
            &digits(year, 4),
            "-",
            &digits(month, 2),
            "-",
            &digits(day, 2),
            "T",
            &digits(millis / 3_600_000, 2),
            colon,
            &digits(millis / 60_000 % 60, 2),
            colon,
            &digits(millis / 1_000 % 60, 2),
            ".",
            &digits(millis % 1_000, 3),
            "Z",
        ])
    }
}

/// The days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so that a leap day is the last day
/// of its year.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month.checked_add(9)?) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    days.checked_sub(719_469)
}

/// The date that is this many days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    let since_0000_03_01 = days + 719_468;
    let (era, day_of_era) = (since_0000_03_01 / 146_097, since_0000_03_01 % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (0, month + 3) } else { (1, month - 9) };
    (era * 400 + year_of_era + year, month, day)
}

/// A saved version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// When it was saved.
    pub stamp: Stamp,
    /// Its size.
    pub bytes: u64,
}

/// How much history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How many generations there are at most.
    pub max_generations: usize,
    /// How many bytes `current.json` and the generations have together.
    pub max_bytes: u64,
    /// Whether generations are thinned out by age: see `History::thinned`.
    pub thins: bool,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_generations: 20, max_bytes: 50 * 1024 * 1024, thins: false }
    }
}

/// The newest generations, which thinning leaves alone.
const ALWAYS: usize = 5;

/// How far apart generations are kept that are older than this.
const SPACING: [(Duration, Duration); 3] = [
    (Duration::from_secs(60 * 60), Duration::from_secs(60 * 60)),
    (Duration::from_secs(5 * 60), Duration::from_secs(10 * 60)),
    (Duration::ZERO, Duration::from_secs(60)),
];

/// The generations of a project, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<Generation>);

impl History {
    /// What a folder has, in any order.
    pub fn new(found: impl IntoIterator<Item = Generation>) -> Self {
        let mut history = Self::default();
        found.into_iter().for_each(|generation| history.add(generation));
        history
    }

    /// The generations, the oldest first.
    pub fn generations(&self) -> &[Generation] {
        &self.0
    }

    /// The newest one.
    pub fn newest(&self) -> Option<Generation> {
        self.0.last().copied()
    }

    /// The name of the next generation: the time, or the millisecond after the newest one.
    pub fn next(&self, now: StoreTime) -> Stamp {
        let after = self.newest().map_or(0, |newest| newest.stamp.0.saturating_add(1));
        Stamp::from_millis(now.as_millis().max(after))
    }

    /// A generation was added. (The standard library's ways to sort are more code for a page to load.)
    pub fn add(&mut self, generation: Generation) {
        self.remove(generation.stamp);
        let newer = self.0.iter().rev().take_while(|known| known.stamp > generation.stamp).count();
        self.0.insert(self.0.len().saturating_sub(newer), generation);
    }

    /// A generation was removed: answers how many bytes it had.
    pub fn remove(&mut self, stamp: Stamp) -> u64 {
        let removed = self.0.iter().position(|generation| generation.stamp == stamp);
        removed.map_or(0, |at| self.0.remove(at).bytes)
    }

    /// The oldest one, unless it is the only one.
    pub fn droppable(&self) -> Option<Stamp> {
        self.0.first().filter(|_| self.0.len() > 1).map(|generation| generation.stamp)
    }

    /// The generations that go, the oldest first, where `current.json` has this size.
    pub fn surplus(&self, retention: &Retention, current_bytes: u64, now: StoreTime) -> Vec<Stamp> {
        let mut gone = if retention.thins { self.thinned(now) } else { Vec::new() };
        let is_kept = |generation: &&Generation| !gone.contains(&generation.stamp);
        let mut count = self.0.iter().filter(is_kept).count();
        let mut bytes =
            self.0.iter().filter(is_kept).fold(current_bytes, |sum, kept| sum.saturating_add(kept.bytes));
        let mut oldest = Vec::new();
        for generation in self.0.iter().filter(is_kept) {
            let is_over = count > retention.max_generations || bytes > retention.max_bytes;
            if count <= 1 || !is_over {
                break;
            }
            count -= 1;
            bytes = bytes.saturating_sub(generation.bytes);
            oldest.push(generation.stamp);
        }
        gone.retain(|stamp| !oldest.contains(stamp));
        oldest.extend(gone);
        oldest
    }

    /// The generations that are too close to the one before them for their age: beyond the last five, one a minute is kept, of
    /// those older than five minutes one in ten minutes, and of those older than an hour one an hour. (Twenty generations saved
    /// every 2.5 s would be less than a minute of history.)
    fn thinned(&self, now: StoreTime) -> Vec<Stamp> {
        let mut gone = Vec::new();
        let mut last: Option<(u64, u64)> = None;
        let old = self.0.len().saturating_sub(ALWAYS);
        for Generation { stamp, .. } in self.0.iter().take(old) {
            let age = now.since(StoreTime::from_millis(stamp.0));
            let spacing =
                SPACING.iter().find(|(older, _)| age >= *older).map_or(0, |(_, by)| whole_millis(*by));
            // Periods begin at full minutes and hours: a generation that stays once stays until it is in a longer one.
            let period = (spacing, stamp.0 / spacing.max(1));
            if last == Some(period) {
                gone.push(*stamp);
            }
            last = Some(period);
        }
        gone
    }

    /// The text of `index.json`: the generations, the newest first.
    pub fn index(&self) -> String {
        let mut text = String::from("{\"version\":1,\"generations\":[");
        for (at, Generation { stamp, bytes }) in self.0.iter().rev().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let entry = [
                comma,
                "{\"ts\":\"",
                &stamp.text(),
                "\",\"file\":\"history/",
                &stamp.file_name(),
                "\",\"bytes\":",
                &bytes.to_string(),
                "}",
            ];
            text.push_str(&joined(&entry));
        }
        text.push_str("]}\n");
        text
    }
}
