//! The upper bound: a log written by hand. One frame with a checksum per batch, one fdatasync, nothing else.
//!
//! It is less than a store: nobody ever writes a snapshot and cuts the log, so its figures are what no complete engine
//! reaches, not what ours would reach.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::Engine;
use crate::workload::{Batch, Key, Slot};

/// How much of the file is written over and over.
const RING: u64 = 64 << 20;

const HEADER_LENGTH: usize = 56;

struct Log {
    file: File,
    end: u64,
    ring: bool,
}

/// Writes over space that is there already, as a log does that reuses its segments.
pub fn ring(folder: &Path) -> Result<Box<dyn Engine>> {
    let file = open(folder)?;
    let zeros = vec![0; 1 << 20];
    for place in (0..RING).step_by(zeros.len()) {
        file.write_all_at(&zeros, place)?;
    }
    file.sync_all()?;
    Ok(Box::new(Log { file, end: 0, ring: true }))
}

/// Keeps everything, and goes on where it ended.
pub fn growing(folder: &Path) -> Result<Box<dyn Engine>> {
    let file = open(folder)?;
    let end = file.metadata()?.len();
    Ok(Box::new(Log { file, end, ring: false }))
}

fn open(folder: &Path) -> Result<File> {
    Ok(OpenOptions::new().create(true).truncate(false).read(true).write(true).open(folder.join("log"))?)
}

impl Engine for Log {
    fn commit(&mut self, batch: &Batch) -> Result<()> {
        let mut frame = vec![0; 8];
        frame.extend(batch.header_bytes());
        for op in &batch.ops {
            put(&mut frame, &[op.key.as_slice(), &op.slot.encode()].concat());
            put(&mut frame, &op.event.as_ref().map(|event| event.encode()).unwrap_or_default());
        }
        let (prefix, body) = frame.split_at_mut(8);
        let (length, sum) = (body.len() as u32, crc32fast::hash(body));
        prefix.copy_from_slice(&[length.to_le_bytes(), sum.to_le_bytes()].concat());
        if self.ring && self.end + frame.len() as u64 > RING {
            self.end = 0;
        }
        self.file.write_all_at(&frame, self.end)?;
        self.file.sync_data()?;
        self.end += frame.len() as u64;
        Ok(())
    }

    fn load(&mut self, visit: &mut dyn FnMut(Key, Slot)) -> Result<()> {
        let mut place = 0;
        while place < self.end {
            let mut prefix = [0; 8];
            self.file.read_exact_at(&mut prefix, place)?;
            let (length, sum) = prefix.split_at(4);
            let mut body = vec![0; u32::from_le_bytes(length.try_into()?) as usize];
            self.file.read_exact_at(&mut body, place + 8)?;
            place += 8 + body.len() as u64;
            if crc32fast::hash(&body) != u32::from_le_bytes(sum.try_into()?) {
                break;
            }
            read_frame(&body, visit)?;
        }
        Ok(())
    }
}

fn put(frame: &mut Vec<u8>, bytes: &[u8]) {
    frame.extend((bytes.len() as u16).to_le_bytes());
    frame.extend(bytes);
}

fn read_frame(body: &[u8], visit: &mut dyn FnMut(Key, Slot)) -> Result<()> {
    let mut rest = body.get(HEADER_LENGTH..).context("a frame is too short")?;
    while !rest.is_empty() {
        let (key, slot) = take(&mut rest)?.split_first_chunk().context("a record is too short")?;
        take(&mut rest)?;
        visit(*key, Slot::decode(slot)?);
    }
    Ok(())
}

fn take<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<2>().context("a frame is too short")?;
    let length = usize::from(u16::from_le_bytes(*length));
    let (taken, after) = after.split_at_checked(length).context("a frame is too short")?;
    *rest = after;
    Ok(taken)
}
