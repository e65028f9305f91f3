//! A folder in memory for the files that tests make: they sync them thousands of times, and would spend two thirds of their time
//! waiting for the disk. What they check is what is left after a process was killed, which memory keeps as well as a disk does;
//! a disk that fails or is full, they make themselves. The benchmarks measure the real one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

/// Where Linux has files in memory.
const MEMORY: &str = "/dev/shm";

/// What the tests need at most, with room to spare, in KiB.
const NEEDED: u64 = 2 * 1024 * 1024;

/// The folder, gone when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one; `None` where there is not enough memory for files, as in most containers.
    pub fn new() -> Result<Option<Self>> {
        if available(MEMORY).is_none_or(|available| available < NEEDED) {
            return Ok(None);
        }
        let folder = Path::new(MEMORY).join(format!("leasehold-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Some(Self(folder)))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that failed may have left something mounted in it; the next start of the machine removes that.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How many KiB are free in a folder, as `df` says it.
fn available(folder: &str) -> Option<u64> {
    let output = Command::new("df").args(["--output=avail", "-k", folder]).output().ok()?;
    parse_available(&String::from_utf8_lossy(&output.stdout))
}

fn parse_available(said: &str) -> Option<u64> {
    said.lines().last()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_in_the_last_line() {
        assert_eq!(parse_available("   Avail\n24677772\n"), Some(24_677_772));
        assert_eq!(parse_available(""), None);
        assert_eq!(parse_available("df: no such file"), None);
    }

    #[test]
    fn the_folder_goes_with_its_files() {
        let Some(scratch) = Scratch::new().unwrap() else { return };
        let folder = scratch.path().to_owned();
        std::fs::write(folder.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!folder.exists());
    }
}
