//! What a lease protects in the pause test: a set of numbers in a file, which can be told to refuse older fences.
//!
//! The file's own lock makes each write one step, as a database would. It does not make read-add-write one step: that is
//! what the lease is for.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// A set of numbers, and the largest fence that has written it.
pub struct SharedSet {
    path: PathBuf,
}

impl SharedSet {
    /// The set in this file, which is made when it is first used.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The numbers in it.
    pub fn read(&self) -> std::io::Result<Vec<u64>> {
        let mut file = self.open()?;
        file.lock_shared()?;
        Ok(parse(&mut file)?.1)
    }

    /// Replaces the whole set, unless it was written with a larger fence before. Without a fence nothing is refused.
    pub fn write(&self, numbers: &[u64], fence: Option<u64>) -> std::io::Result<bool> {
        let mut file = self.open()?;
        file.lock()?;
        let (last_fence, _) = parse(&mut file)?;
        if fence.is_some_and(|fence| fence < last_fence) {
            return Ok(false);
        }
        let words = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let text = format!("{} {words}", fence.unwrap_or(0).max(last_fence));
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        Ok(true)
    }

    fn open(&self) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)
    }
}

/// The last fence and the numbers.
fn parse(file: &mut File) -> std::io::Result<(u64, Vec<u64>)> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    let mut words = text.split_whitespace().filter_map(|word| word.parse().ok());
    Ok((words.next().unwrap_or(0), words.collect()))
}
