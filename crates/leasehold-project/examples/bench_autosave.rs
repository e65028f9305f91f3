//! How many saves a second an autosave makes on disk, beside what the disk can do: a plain write, sync and rename of the same
//! content. Both take turns, in the folder that is named. `cargo xtask bench autosave` runs it; it prints one JSON object.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run has nothing to say")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_project::Project;
use leasehold_project::autosave::{AutoSave, Document, Options};

/// The size of what is saved.
const BYTES: usize = 64 * 1024;
const ROUNDS: u64 = 10;
const SAVES: u64 = 30;

fn main() {
    let place = std::env::args().nth(1).expect("the folder to measure in");
    let place = Path::new(&place);
    fs::create_dir_all(place.join("plain")).expect("a folder");
    let number = Arc::new(AtomicU64::new(0));
    let current = number.clone();
    let document = Document::new(move || Ok(content(current.load(Ordering::Relaxed))));
    let project = Project::open(place).expect("a project");
    let autosave = AutoSave::start(project, Options::default(), document).expect("an autosave");
    let (mut ours, mut plain) = (Duration::ZERO, Duration::ZERO);
    for round in 0..=ROUNDS {
        let began = Instant::now();
        for _ in 0..SAVES {
            number.fetch_add(1, Ordering::Relaxed);
            autosave.changed();
            assert!(autosave.flush(), "it was not saved");
        }
        let saved = began.elapsed();
        let began = Instant::now();
        for save in 0..SAVES {
            replace(&place.join("plain"), &content(save));
        }
        // The first round warms up.
        if round > 0 {
            (ours, plain) = (ours + saved, plain + began.elapsed());
        }
    }
    assert!(autosave.stop(), "the last save is there");
    let rate = |time: Duration| (ROUNDS * SAVES) as f64 / time.as_secs_f64();
    println!(
        "{{\"disk_saves_per_s\":{:.1},\"disk_write_fsync_rename_per_s\":{:.1},\"disk_bytes\":{BYTES}}}",
        rate(ours),
        rate(plain)
    );
}

/// A document that is different every time.
fn content(number: u64) -> Vec<u8> {
    let mut text = format!("{{\"number\":{number},\"text\":\"").into_bytes();
    text.resize(BYTES - 2, b'x');
    text.extend_from_slice(b"\"}");
    text
}

fn replace(folder: &Path, content: &[u8]) {
    let mut file = File::create(folder.join("tmp")).expect("a file");
    file.write_all(content).expect("a write");
    file.sync_all().expect("a sync");
    fs::rename(folder.join("tmp"), folder.join("current.json")).expect("a rename");
}
