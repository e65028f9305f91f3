//! Waiting for something to happen, and saying what is not tested here. The example worker's tests use this too.

use std::io::Write;
use std::time::{Duration, Instant};

/// The longest that anything here may take.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Looks again and again until there is something to see.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Says what is not tested here, and why. Not through `eprintln!`, which the test runner would keep to itself.
pub fn skipped(what: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {what}\n").as_bytes()).unwrap();
}
