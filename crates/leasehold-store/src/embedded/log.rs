//! A look at SQLite's write-ahead log before SQLite gets to see it.
//!
//! SQLite reads its log up to the first frame whose checksum is wrong, and takes the rest for the remains of a write that
//! was torn by a crash. That is right for the end of the log. In its middle a flipped bit would silently undo everything
//! acknowledged after it, and fences would repeat. The two can be told apart: every commit is synced before the next one
//! begins, so a crash tears one transaction at most.
//!
//! The format: <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>. This must only look while nobody writes.

use std::fs;
use std::path::Path;

use super::file::{beside, damaged, io_trouble};
use crate::Result;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Refuses a log in which more is unreadable than a crash explains.
pub(super) fn check(path: &Path) -> Result<()> {
    let log = match fs::read(beside(path, "-wal")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_trouble(path, "read", &error)),
        Ok(log) => log,
    };
    match problem(&log) {
        None => Ok(()),
        Some(what) => Err(damaged(path, what)),
    }
}

fn problem(log: &[u8]) -> Option<&'static str> {
    let frames = log.get(HEADER..).filter(|frames| !frames.is_empty())?;
    let Some(header) = Header::read(log) else {
        return Some("the beginning of its write-ahead log (the file ending in -wal) is damaged");
    };
    let unreadable =
        frames.chunks_exact(FRAME_HEADER + header.page_size).skip(header.readable_frames(frames));
    let commits = unreadable.filter(|frame| header.is_ours(frame) && word(frame, 4) != Some(0)).count();
    (commits > 1).then_some("its write-ahead log (the file ending in -wal) is damaged before its end")
}

struct Header {
    page_size: usize,
    salts: [u8; 8],
    big_endian: bool,
    sum: (u32, u32),
}

impl Header {
    /// `None` when it does not match its checksum.
    fn read(log: &[u8]) -> Option<Self> {
        let big_endian = match word(log, 0)? {
            0x377F_0682 => false,
            0x377F_0683 => true,
            _ => return None,
        };
        let sum = checksum((0, 0), log.get(..24)?, big_endian);
        let page_size = usize::try_from(word(log, 8)?).ok()?;
        let sane = page_size.is_power_of_two() && (512..=65_536).contains(&page_size);
        let matches = sane && (word(log, 24)?, word(log, 28)?) == sum;
        matches.then_some(Self { page_size, salts: log.get(16..24)?.try_into().ok()?, big_endian, sum })
    }

    /// Whether a frame was written since the log was last begun anew.
    fn is_ours(&self, frame: &[u8]) -> bool {
        frame.get(8..16) == Some(&self.salts)
    }

    /// How many frames SQLite will read: the checksum of each goes on from that of the one before.
    fn readable_frames(&self, frames: &[u8]) -> usize {
        let mut sum = self.sum;
        let whole = frames.chunks_exact(FRAME_HEADER + self.page_size);
        whole.take_while(|frame| self.is_ours(frame) && self.continues(frame, &mut sum)).count()
    }

    fn continues(&self, frame: &[u8], sum: &mut (u32, u32)) -> bool {
        let (Some(start), Some(page)) = (frame.get(..8), frame.get(FRAME_HEADER..)) else { return false };
        *sum = checksum(checksum(*sum, start, self.big_endian), page, self.big_endian);
        (word(frame, 16), word(frame, 20)) == (Some(sum.0), Some(sum.1))
    }
}

/// The big-endian number at `at`.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// SQLite's checksum, over pairs of words.
fn checksum(sum: (u32, u32), bytes: &[u8], big_endian: bool) -> (u32, u32) {
    let number = |word: &[u8]| {
        let word: [u8; 4] = word.try_into().unwrap_or_default();
        if big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    };
    bytes.chunks_exact(8).fold(sum, |(first, second), pair| {
        let (left, right) = pair.split_at(4);
        let first = first.wrapping_add(number(left)).wrapping_add(second);
        (first, second.wrapping_add(number(right)).wrapping_add(first))
    })
}
