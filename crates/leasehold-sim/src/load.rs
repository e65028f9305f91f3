//! Processor time, for the benchmarks: how much of the machine other programs used meanwhile, and what a server cost.

use std::time::Instant;

/// The kernel counts processor time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// The work of all programs and of this one, its children included, since some moment.
pub struct ForeignLoad {
    busy: f64,
    own: f64,
    start: Instant,
}

impl ForeignLoad {
    /// Begins to measure.
    pub fn start() -> Self {
        Self { busy: busy_seconds(), own: seconds_of_tree(std::process::id()), start: Instant::now() }
    }

    /// How many cores' worth of work other programs have done since the start, on average.
    pub fn cores(&self) -> f64 {
        let own = seconds_of_tree(std::process::id()) - self.own;
        (busy_seconds() - self.busy - own).max(0.0) / self.start.elapsed().as_secs_f64()
    }
}

/// User, nice and system time of the whole machine.
fn busy_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let [_, user, nice, system, ..] = stat.split_whitespace().collect::<Vec<_>>()[..] else { return 0.0 };
    sum(&[user, nice, system])
}

/// The processor time of a process and its descendants, including those of them that have ended.
pub fn seconds_of_tree(root: u32) -> f64 {
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<Stat> =
        folders.filter_map(|folder| Stat::read(folder.file_name().to_str()?.parse().ok()?)).collect();
    let mut tree = vec![root];
    let mut seconds = 0.0;
    while let Some(process) = tree.pop() {
        seconds += all.iter().find(|stat| stat.process == process).map_or(0.0, |stat| stat.seconds);
        tree.extend(all.iter().filter(|stat| stat.parent == process).map(|stat| stat.process));
    }
    seconds
}

struct Stat {
    process: u32,
    parent: u32,
    seconds: f64,
}

impl Stat {
    fn read(process: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name before the parenthesis may have spaces.
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        Some(Self { process, parent: fields.get(1)?.parse().ok()?, seconds: sum(fields.get(11..15)?) })
    }
}

fn sum(ticks: &[&str]) -> f64 {
    ticks.iter().filter_map(|number| number.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_this_program_is_its_own() {
        let before = seconds_of_tree(std::process::id());
        let start = Instant::now();
        while seconds_of_tree(std::process::id()) < before + 0.05 {
            assert!(start.elapsed().as_secs() < 60, "this loop works");
        }
    }
}
