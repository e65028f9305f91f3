//! The epoch of a file, and where it is recorded: beside the file, in `PATH.epoch`.
//!
//! The epoch in the file changes whenever a process that has the file alone opens or closes it. A copy that is put in the
//! file's place has an older one than the record, or one that was never recorded, and so is noticed: fences, positions and
//! sequence numbers then jump ahead of everything that the lost part of history can have given out. The record is not part
//! of a backup, and losing it costs no more than a jump.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

use leasehold_core::Slot;
use rusqlite::Connection;

use super::rows::{self, Header, RowError};
use super::{disk, file};
use crate::Result;
use crate::clock::unix_millis;
use crate::resident::JUMP;

/// Whether the file may be a copy: its epoch is not the recorded one. Only a new file has none and no record.
pub(super) fn is_copy(path: &Path, epoch: u64) -> bool {
    match fs::read_to_string(record_path(path)) {
        Ok(record) => !is_in(&record, epoch),
        Err(_) => epoch != 0,
    }
}

/// Whether the file is another one than the processes have open that recorded their epoch. Without a record nobody knows.
pub(super) fn is_another(path: &Path, epoch: u64) -> bool {
    fs::read_to_string(record_path(path)).is_ok_and(|record| !is_in(&record, epoch))
}

fn is_in(record: &str, epoch: u64) -> bool {
    epochs_in(record).any(|recorded| recorded == epoch)
}

fn epochs_in(record: &str) -> impl Iterator<Item = u64> {
    record.lines().filter_map(|line| u64::from_str_radix(line, 16).ok())
}

/// The epochs that the file may have.
pub(super) fn recorded(path: &Path) -> Vec<u64> {
    let record = fs::read_to_string(record_path(path)).unwrap_or_default();
    epochs_in(&record).collect()
}

/// Gives the file a new epoch, by `write`, and records it. Until it is written the `old` one is recorded too: a crash in
/// between must not make the file look like a copy. `write` answers nothing if it wrote nothing.
pub(super) fn renew<T>(
    path: &Path,
    old: Option<u64>,
    write: impl FnOnce(u64) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let new = RandomState::new().hash_one(unix_millis()) | 1;
    record(path, old.into_iter().chain([new]))?;
    let written = write(new)?;
    if written.is_some() {
        record(path, [new])?;
    }
    Ok(written)
}

/// Forgets what is recorded, for a file that was put there on purpose.
pub(super) fn forget(path: &Path) {
    let _ = fs::remove_file(record_path(path));
}

/// An epoch that is recorded nowhere: a backup that is put in place with `cp` is to be noticed.
pub(super) fn unrecorded() -> u64 {
    RandomState::new().hash_one("a copy") | 1
}

/// Moves the numbers of the file ahead when it is opened by a process that has it alone.
pub(super) fn move_ahead(db: &Connection, header: &mut Header, is_copy: bool) -> Result<(), RowError> {
    header.counters = header.counters.reopened(is_copy, unix_millis());
    if !is_copy {
        return Ok(());
    }
    // Events go: consumers learn that there is a gap, and look at everything.
    db.execute_batch("DELETE FROM event; DELETE FROM event_pack")?;
    for (key, slot) in disk::load_slots(db, header)? {
        let before = u64::from(rows::slot_sum(&key, &slot));
        let after = rows::write_slot(db, &key, &Slot { seq: slot.seq.saturating_add(JUMP), ..slot })?;
        header.slot_sums = header.slot_sums.wrapping_sub(before).wrapping_add(u64::from(after));
    }
    tracing::warn!(
        last_fence = header.counters.last_fence,
        "the file is a copy, or was moved here without its record; fences go on far ahead of it"
    );
    Ok(())
}

fn record(path: &Path, epochs: impl IntoIterator<Item = u64>) -> Result<()> {
    let text: String = epochs.into_iter().map(|epoch| format!("{epoch:016x}\n")).collect();
    let path = record_path(path);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| file::io_trouble(&path, "written", &error))
}

fn record_path(path: &Path) -> PathBuf {
    file::beside(path, ".epoch")
}
