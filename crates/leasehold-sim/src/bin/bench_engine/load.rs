//! How much of the machine other programs used while we measured.

/// The work of all programs and of this one, since some moment, in ticks.
pub struct ForeignLoad {
    busy: u64,
    own: u64,
    start: std::time::Instant,
}

/// The kernel counts processor time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

impl ForeignLoad {
    pub fn start() -> Self {
        Self { busy: busy_ticks(), own: own_ticks(), start: std::time::Instant::now() }
    }

    /// How many cores' worth of work other programs have done since the start, on average.
    pub fn cores(&self) -> f64 {
        let busy = busy_ticks().saturating_sub(self.busy);
        let foreign = busy.saturating_sub(own_ticks().saturating_sub(self.own));
        foreign as f64 / TICKS_PER_SECOND / self.start.elapsed().as_secs_f64()
    }
}

/// User, nice and system time of the whole machine.
fn busy_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(3);
    numbers.filter_map(|number| number.parse::<u64>().ok()).sum()
}

/// User and system time of this process and of its children that have ended.
fn own_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let numbers = after_name.split_whitespace().skip(11).take(4);
    numbers.filter_map(|number| number.parse::<u64>().ok()).sum()
}
