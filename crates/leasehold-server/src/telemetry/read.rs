//! Reads what collectors have written. A reader needs no lock and changes nothing: a server may be writing meanwhile.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use leasehold_core::telemetry::Counts;
use leasehold_core::wire::telemetry::TelemetryLine;

use super::{SLOT_MS, folder};

/// The longest line that is read: more than a collector can have waiting.
const LONGEST_LINE: u64 = 8 * 1024 * 1024;

/// What was counted in a range of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// By time: each slot is named by its beginning, in milliseconds since 1970.
    pub slots: BTreeMap<u64, Counts>,
    /// How many events were dropped because there was no room for them.
    pub dropped: u64,
    /// How many lines are damaged, or of a newer schema.
    pub damaged: u64,
}

impl Recorded {
    /// All of it as one.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.slots.values().for_each(|counts| sum.merge(counts));
        sum
    }

    /// Adds what another collector has recorded.
    pub fn merge(&mut self, other: &Self) {
        for (slot, counts) in &other.slots {
            self.slots.entry(*slot).or_default().merge(counts);
        }
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.damaged = self.damaged.saturating_add(other.damaged);
    }

    /// Takes in a line, if it is of this range.
    fn take(&mut self, line: &[u8], range: &Range<u64>, step: u64) {
        let Ok(line) = serde_json::from_slice::<TelemetryLine>(line) else {
            self.damaged += 1;
            return;
        };
        if !range.contains(&line.at) {
            return;
        }
        let Some(counts) = line.counts() else {
            self.damaged += 1;
            return;
        };
        self.dropped = self.dropped.saturating_add(line.dropped);
        self.slots.entry(line.at - line.at % step).or_default().merge(&counts);
    }
}

/// What the collector of this folder has counted in slots that begin in `range`, in milliseconds since 1970.
pub fn read(folder: &Path, range: Range<u64>) -> io::Result<Recorded> {
    read_by(folder, range, SLOT_MS)
}

/// The same in slots of this many milliseconds: a long range takes less memory.
pub fn read_by(folder: &Path, range: Range<u64>, step: u64) -> io::Result<Recorded> {
    let (first, last) = (folder::day_of(range.start), folder::day_of(range.end));
    let mut recorded = Recorded::default();
    for (day, path) in folder::days(folder)? {
        if (first..=last).contains(&day) {
            read_file(&path, &range, step.max(1), &mut recorded)?;
        }
    }
    Ok(recorded)
}

fn read_file(path: &Path, range: &Range<u64>, step: u64, recorded: &mut Recorded) -> io::Result<()> {
    let file = match File::open(path) {
        // It was removed meanwhile: its day is not kept any more.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        let is_whole = line.pop_if(|last| *last == b'\n').is_some();
        match (read, is_whole) {
            (0, _) => return Ok(()),
            // A server may be writing it, or was killed while it did.
            (_, false) if reader.fill_buf()?.is_empty() => return Ok(()),
            (_, false) => recorded.damaged += 1,
            (_, true) => recorded.take(&line, range, step),
        }
    }
}
