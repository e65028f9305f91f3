//! The floor: what the machine asks for one small durable write. It keeps nothing.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, bail};

use super::Engine;
use crate::workload::{Batch, Key, Slot};

const WRITE: usize = 256;

/// How many writes until a file that does not grow begins anew.
const ROUND: u64 = 4_096;

struct Floor {
    file: File,
    writes: u64,
    grows: bool,
}

/// Each write makes the file longer, which the file system has to note, too.
pub fn append(folder: &Path) -> Result<Box<dyn Engine>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("floor"))?;
    Ok(Box::new(Floor { file, writes: 0, grows: true }))
}

/// Each write goes to a place that was written before.
pub fn overwrite(folder: &Path) -> Result<Box<dyn Engine>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("floor"))?;
    file.write_all_at(&vec![1; WRITE * ROUND as usize], 0)?;
    file.sync_all()?;
    Ok(Box::new(Floor { file, writes: 0, grows: false }))
}

impl Engine for Floor {
    fn commit(&mut self, batch: &Batch) -> Result<()> {
        let [byte, ..] = batch.header.map(|number| number as u8);
        let place = if self.grows { self.writes } else { self.writes % ROUND };
        self.file.write_all_at(&[byte; WRITE], place * WRITE as u64)?;
        self.file.sync_data()?;
        self.writes += 1;
        Ok(())
    }

    fn load(&mut self, _: &mut dyn FnMut(Key, Slot)) -> Result<()> {
        bail!("the floor keeps nothing")
    }
}
