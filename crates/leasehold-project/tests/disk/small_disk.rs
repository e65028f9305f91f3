//! A file system of its own with little room, gone when it is dropped. The tests of the command line use this too.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this user, or this container, may not mount one.
    pub fn of_kilobytes(size: usize) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}k"), "leasehold-test"]).arg(place.path());
        let mounted = mount.stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(place))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves no room for another byte.
    pub fn fill(&self) {
        let mut size = 64 * 1024;
        let mut number = 0;
        while size > 0 {
            number += 1;
            let name = self.path().join(format!("filler-{number}"));
            if fs::write(&name, vec![0; size]).is_err() {
                fs::remove_file(&name).unwrap();
                size /= 2;
            }
        }
    }

    pub fn make_room(&self) {
        for entry in fs::read_dir(self.path()).unwrap().map(Result::unwrap) {
            if entry.file_name().to_string_lossy().starts_with("filler") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the thread of a project that was dropped a moment ago may have it open still.
        let unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()) || std::thread::panicking(),
            "it stays mounted"
        );
    }
}
