//! Rows side by side in bytes, as the [journal](super::journal) and its packs hold them.
//!
//! ```text
//!   record    length, checksum, number │ row │ row │ …
//!   row       what it is │ cell │ cell │ …          (the cells that its table has, the row's own checksum among them)
//! ```

use rusqlite::params;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

use super::rows::{self, Cells, Sink};
use crate::resident::Staged;

/// What stands before the rows of a record: its length, its checksum and its number.
pub(super) const RECORD_HEADER: usize = 4 + 4 + 8;

/// Where in it the number is.
pub(super) const NUMBER_AT: usize = 4 + 4;

/// What a row of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counters,
    Slot,
    /// A key that is forgotten.
    NoSlot,
    Job,
    NoJob,
    Ending,
    Event,
    /// How long the region is that begins with this record, and whether a journal begins there.
    Region,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Counters,
        Self::Slot,
        Self::NoSlot,
        Self::Job,
        Self::NoJob,
        Self::Ending,
        Self::Event,
        Self::Region,
    ];

    /// The byte that stands for it.
    fn mark(self) -> u8 {
        match self {
            Self::Counters => b'C',
            Self::Slot => b'S',
            Self::NoSlot => b's',
            Self::Job => b'J',
            Self::NoJob => b'j',
            Self::Ending => b'L',
            Self::Event => b'E',
            Self::Region => b'R',
        }
    }
}

/// Marks of cells: what follows them are the length and the bytes of a text or a blob, or as many bytes of a number as it needs.
const NULL: u8 = 0;
const TEXT: u8 = 1;
const BLOB: u8 = 2;
const NUMBER: u8 = 8;

/// A record in the making.
#[derive(Default)]
pub(super) struct Record {
    bytes: Vec<u8>,
    /// Where its endings begin, where its events do, and where they end.
    parts: [usize; 3],
}

impl Record {
    /// Makes it a record of the changes of a commit.
    pub(super) fn make(&mut self, epoch: u64, number: u64, staged: &Staged) -> rusqlite::Result<()> {
        self.open();
        self.put_all(staged)?;
        self.seal(epoch, number);
        Ok(())
    }

    /// Makes it one without changes, the first of a region of this length.
    pub(super) fn make_mark(
        &mut self,
        epoch: u64,
        number: u64,
        length: usize,
        begins: bool,
    ) -> rusqlite::Result<()> {
        self.open();
        self.row(Kind::Region).put(params![length as i64, begins])?;
        self.parts = [self.bytes.len(); 3];
        self.seal(epoch, number);
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives back memory that only an unusually long record has needed.
    pub(super) fn shrink_to(&mut self, length: usize) {
        self.bytes.shrink_to(length);
    }

    /// Leaves room for the header.
    fn open(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER]);
    }

    /// Fills in the header, now that all rows are there.
    fn seal(&mut self, epoch: u64, number: u64) {
        let rows = self.bytes.get(RECORD_HEADER..).unwrap_or_default();
        let length = u32::try_from(rows.len()).unwrap_or(u32::MAX).to_le_bytes();
        let sum = sum_of_record(Some(epoch), number, rows).to_le_bytes();
        let header = length.into_iter().chain(sum).chain(number.to_le_bytes());
        self.bytes.iter_mut().zip(header).for_each(|(place, byte)| *place = byte);
    }

    fn put_all(&mut self, staged: &Staged) -> rusqlite::Result<()> {
        let counters = staged.counters;
        self.row(Kind::Counters).put(params![
            counters.last_fence.cast_signed(),
            counters.position.0.cast_signed(),
            counters.seq_floor.cast_signed(),
            staged.now.as_millis().cast_signed(),
        ])?;
        for (key, slot) in &staged.slots {
            match slot {
                Some(slot) => rows::put_slot(self.row(Kind::Slot), key, slot).map(drop)?,
                None => self.row(Kind::NoSlot).put(params![key.as_str()])?,
            }
        }
        for (key, job) in &staged.jobs {
            match job {
                Some(job) => rows::put_job(self.row(Kind::Job), key, job).map(drop)?,
                None => self.row(Kind::NoJob).put(params![key.as_str()])?,
            }
        }
        let endings = self.bytes.len();
        staged.endings.iter().try_for_each(|ending| rows::put_ending(self.row(Kind::Ending), ending))?;
        let events = self.bytes.len();
        staged.events.iter().try_for_each(|event| rows::put_event(self.row(Kind::Event), event))?;
        self.parts = [endings, events, self.bytes.len()];
        Ok(())
    }

    /// Its endings, as a [pack](super::journal::Pack) has them.
    pub(super) fn endings(&self) -> &[u8] {
        self.bytes.get(self.parts[0]..self.parts[1]).unwrap_or_default()
    }

    /// Its events, likewise.
    pub(super) fn events(&self) -> &[u8] {
        self.bytes.get(self.parts[1]..self.parts[2]).unwrap_or_default()
    }

    /// Where the cells of a row of this kind are put next.
    fn row(&mut self, kind: Kind) -> &mut Self {
        self.bytes.push(kind.mark());
        self
    }
}

impl Sink for Record {
    fn put(&mut self, cells: &[&dyn ToSql]) -> rusqlite::Result<()> {
        self.bytes.push(u8::try_from(cells.len()).unwrap_or(u8::MAX));
        cells.iter().try_for_each(|cell| match cell.to_sql()? {
            ToSqlOutput::Borrowed(value) => put_cell(&mut self.bytes, value),
            ToSqlOutput::Owned(value) => put_cell(&mut self.bytes, ValueRef::from(&value)),
            _ => Err(no_cell()),
        })
    }
}

fn no_cell() -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure("no row has such a value".into())
}

fn put_cell(bytes: &mut Vec<u8>, value: ValueRef<'_>) -> rusqlite::Result<()> {
    match value {
        ValueRef::Null => bytes.push(NULL),
        ValueRef::Integer(number) => {
            let used = 8 - number.cast_unsigned().leading_zeros() / 8;
            bytes.push(NUMBER + used as u8);
            bytes.extend(number.to_le_bytes().into_iter().take(used as usize));
        }
        ValueRef::Text(text) => put_bytes(bytes, TEXT, text),
        ValueRef::Blob(blob) => put_bytes(bytes, BLOB, blob),
        ValueRef::Real(_) => return Err(no_cell()),
    }
    Ok(())
}

fn put_bytes(bytes: &mut Vec<u8>, mark: u8, value: &[u8]) {
    bytes.push(mark);
    bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(value);
}

/// The checksum of a record. The epoch is that of the opening in which it was written, so that no other one takes it for its own; a
/// file of schema 4 has records without one.
fn sum_of_record(epoch: Option<u64>, number: u64, rows: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    epoch.into_iter().for_each(|epoch| sum.update(&epoch.to_le_bytes()));
    sum.update(&number.to_le_bytes());
    sum.update(rows);
    sum.finalize()
}

/// The number of the record that begins here, if one does.
pub(super) fn number_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(NUMBER_AT..RECORD_HEADER)?.try_into().ok()?))
}

/// The rows of the record with this number, if it begins here and is whole.
pub(super) fn checked(bytes: &[u8], epoch: Option<u64>, number: u64) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let rows = bytes.get(RECORD_HEADER..)?.get(..usize::try_from(word(0)?).ok()?)?;
    (number_of(bytes)? == number && word(4)? == sum_of_record(epoch, number, rows)).then_some(rows)
}

/// A row of a record or a pack, as it is read.
pub(super) struct PackedRow<'a> {
    pub(super) kind: Kind,
    cells: Vec<ValueRef<'a>>,
    /// All of it.
    pub(super) bytes: &'a [u8],
}

impl Cells for PackedRow<'_> {
    fn cell(&self, index: usize) -> Option<ValueRef<'_>> {
        self.cells.get(index).copied()
    }
}

impl<'a> PackedRow<'a> {
    /// The number in this cell.
    pub(super) fn number(&self, index: usize) -> Option<u64> {
        match self.cell(index)? {
            ValueRef::Integer(number) => Some(number.cast_unsigned()),
            _ => None,
        }
    }

    /// Takes the next row from `rest`; `None` when what is there was never written.
    pub(super) fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let all = *rest;
        let (mark, count) = (take_byte(rest)?, take_byte(rest)?);
        let kind = Kind::ALL.into_iter().find(|kind| kind.mark() == mark)?;
        let cells = (0..count).map(|_| take_cell(rest)).collect::<Option<_>>()?;
        Some(Self { kind, cells, bytes: all.get(..all.len() - rest.len())? })
    }
}

fn take_cell<'a>(rest: &mut &'a [u8]) -> Option<ValueRef<'a>> {
    match take_byte(rest)? {
        NULL => Some(ValueRef::Null),
        TEXT => take_bytes(rest).map(ValueRef::Text),
        BLOB => take_bytes(rest).map(ValueRef::Blob),
        mark => {
            let used = usize::from(mark.checked_sub(NUMBER)?);
            let mut number = [0; 8];
            number.get_mut(..used)?.copy_from_slice(take(rest, used)?);
            Some(ValueRef::Integer(i64::from_le_bytes(number)))
        }
    }
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    take(rest, usize::try_from(length).ok()?)
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    take(rest, 1)?.first().copied()
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, others) = rest.split_at_checked(count)?;
    *rest = others;
    Some(taken)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test fails by panicking
mod tests {
    use super::*;

    fn packed(cells: &[&dyn ToSql]) -> Vec<u8> {
        let mut record = Record::default();
        record.row(Kind::Slot).put(cells).unwrap();
        record.bytes
    }

    #[test]
    fn a_row_is_read_as_it_was_put() {
        let numbers = [0, 1, -1, 255, 256, 1 << 40, i64::MAX, i64::MIN];
        let (text, blob, nothing) = ("日本語 and \0", &[0_u8, 255][..], None::<i64>);
        let mut cells: Vec<&dyn ToSql> = numbers.iter().map(|number| number as &dyn ToSql).collect();
        cells.extend([&text as &dyn ToSql, &blob, &nothing, &true, &u32::MAX]);
        let bytes = packed(&cells);
        let mut rest = &bytes[..];
        let row = PackedRow::take(&mut rest).unwrap();
        assert!(rest.is_empty() && row.kind == Kind::Slot && row.bytes == bytes);
        let mut expected: Vec<_> = numbers.map(ValueRef::Integer).to_vec();
        expected.extend([ValueRef::Text(text.as_bytes()), ValueRef::Blob(blob), ValueRef::Null]);
        expected.extend([ValueRef::Integer(1), ValueRef::Integer(u32::MAX.into())]);
        assert_eq!(row.cells, expected);
    }

    #[test]
    fn half_a_row_is_none() {
        let bytes = packed(params!["run/1", 7, &[1_u8, 2, 3][..]]);
        for length in 0..bytes.len() {
            assert!(PackedRow::take(&mut &bytes[..length]).is_none(), "{length} of {} bytes", bytes.len());
        }
        for (at, wrong) in [(0, b'?'), (2, 3), (2, 17)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(PackedRow::take(&mut &bytes[..]).is_none(), "{wrong} at {at}");
        }
    }

    #[test]
    fn a_record_counts_only_whole_in_its_turn_and_in_its_epoch() {
        let mut record = Record::default();
        record.open();
        record.row(Kind::NoSlot).put(params!["run/1"]).unwrap();
        record.seal(5, 7);
        let rows = checked(&record.bytes, Some(5), 7).unwrap();
        assert_eq!(rows.first(), Some(&b's'));
        assert!(checked(&record.bytes, Some(5), 8).is_none(), "the one after it has another number");
        assert!(checked(&record.bytes, Some(6), 7).is_none(), "another opening has another epoch");
        assert!(checked(&record.bytes, None, 7).is_none());
        for at in 0..record.bytes.len() {
            let mut flipped = record.bytes.clone();
            flipped[at] ^= 1;
            assert!(checked(&flipped, Some(5), 7).is_none(), "byte {at}");
        }
        record.make_mark(5, 8, 4_096, true).unwrap();
        let mut rows = checked(&record.bytes, Some(5), 8).unwrap();
        assert_eq!(PackedRow::take(&mut rows).unwrap().number(0), Some(4_096));
        assert!(checked(&[0; 64], None, 0).is_none() && checked(&[], Some(5), 7).is_none());
    }
}
