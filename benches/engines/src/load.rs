//! How busy everybody else kept the machine meanwhile: a figure measured beside a compiler is none.

use std::time::Instant;

/// Above so many busy foreign cores, a figure is not to be trusted.
pub const TOO_MUCH: f64 = 0.3;

/// The kernel counts in hundredths of a second here, whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

/// The machine's and our own processor time, at one moment.
pub struct Load {
    at: Instant,
    ticks: Option<(u64, u64)>,
}

impl Load {
    pub fn now() -> Self {
        Self { at: Instant::now(), ticks: busy_ticks().zip(own_ticks()) }
    }

    /// How many cores others kept busy since then; nothing where the kernel does not tell. The kernel's own threads,
    /// which also work for us, count as others.
    pub fn foreign_cores(&self) -> Option<f64> {
        let (before, after) = (self.ticks?, busy_ticks().zip(own_ticks())?);
        let busy = after.0.saturating_sub(before.0);
        let own = after.1.saturating_sub(before.1);
        Some(busy.saturating_sub(own) as f64 / TICKS_PER_SECOND / self.at.elapsed().as_secs_f64())
    }
}

/// Of the machine: user, nice, system, irq, softirq and stolen time. Neither idle nor waiting for the disk.
fn busy_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.split_whitespace().skip(1).map(str::parse);
    let fields: Vec<u64> = fields.collect::<Result<_, _>>().ok()?;
    [0, 1, 2, 5, 6, 7].iter().map(|index| fields.get(*index)).sum()
}

/// Of this process: user and system time of all its threads, and of the processes that it started and that have ended.
fn own_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name stands in brackets, and may hold anything.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}
