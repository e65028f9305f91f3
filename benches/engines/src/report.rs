//! The figures, for people and for programs.

use serde_json::{Value, json};

use crate::engines::UNIT;
use crate::load::TOO_MUCH;
use crate::measure::{RESTARTED_SLOTS, ROUNDS, Restart, Speed};

/// Everything that one run found out.
pub struct Report {
    pub cores: usize,
    pub slots: u64,
    pub seconds: f64,
    pub foreign_cores: Option<f64>,
    pub speeds: Vec<Speed>,
    pub restarts: Vec<Restart>,
}

impl Report {
    fn unit(&self) -> f64 {
        let unit = self.speeds.iter().find(|speed| speed.name == UNIT);
        unit.map_or(f64::NAN, |speed| speed.ops_per_second)
    }

    pub fn json(&self) -> Value {
        let speed = |speed: &Speed| {
            let [p50, p99, worst] = speed.commit.map(|commit| commit.as_secs_f64() * 1_000.0);
            json!({
                "candidate": speed.name, "callers": speed.callers, "ops_per_second": speed.ops_per_second,
                "ratio": speed.ops_per_second / self.unit(), "commit_ms_p50": p50, "commit_ms_p99": p99,
                "commit_ms_max": worst, "foreign_cores": speed.foreign_cores, "trusted": trusted(speed.foreign_cores),
            })
        };
        let restart = |restart: &Restart| {
            json!({
                "candidate": restart.name, "bytes": restart.bytes, "clean_seconds": restart.clean_seconds,
                "killed_seconds": restart.killed_seconds, "foreign_cores": restart.foreign_cores,
                "trusted": trusted(restart.foreign_cores),
            })
        };
        json!({
            "cores": self.cores, "slots": self.slots, "rounds": ROUNDS, "seconds": self.seconds,
            "sqlite_version": rusqlite::version(), "foreign_cores": self.foreign_cores,
            "trusted": trusted(self.foreign_cores), "unit": UNIT,
            "speeds": self.speeds.iter().map(speed).collect::<Vec<_>>(),
            "restart_slots": RESTARTED_SLOTS,
            "restarts": self.restarts.iter().map(restart).collect::<Vec<_>>(),
        })
    }

    pub fn print(&self) {
        println!("{} cores, {} slots, medians of {ROUNDS} rounds\n", self.cores, self.slots);
        println!(
            "{:28} {:>7} {:>10} {:>7} {:>9} {:>9} {:>9}",
            "", "callers", "ops/s", "ratio", "p50 ms", "p99 ms", "worst ms"
        );
        for speed in &self.speeds {
            let [p50, p99, worst] = speed.commit.map(|commit| commit.as_secs_f64() * 1_000.0);
            println!(
                "{:28} {:>7} {:>10.0} {:>7.2} {p50:>9.2} {p99:>9.2} {worst:>9.2}{}",
                speed.name,
                speed.callers,
                speed.ops_per_second,
                speed.ops_per_second / self.unit(),
                mark(speed.foreign_cores)
            );
        }
        println!("\n{:28} {:>10} {:>10} {:>10}", "restart, 1,000,000 slots", "closed s", "killed s", "MiB");
        for restart in &self.restarts {
            println!(
                "{:28} {:>10.2} {:>10.2} {:>10.0}{}",
                restart.name,
                restart.clean_seconds,
                restart.killed_seconds,
                restart.bytes as f64 / f64::from(1 << 20),
                mark(restart.foreign_cores)
            );
        }
        let load = self.foreign_cores.map_or("unknown".into(), |cores| format!("{cores:.2} cores"));
        println!("\nforeign load {load}, {:.0} s{}", self.seconds, mark(self.foreign_cores));
    }
}

fn trusted(foreign_cores: Option<f64>) -> bool {
    foreign_cores.is_some_and(|cores| cores <= TOO_MUCH)
}

fn mark(foreign_cores: Option<f64>) -> &'static str {
    if trusted(foreign_cores) { "" } else { "  ? others kept the machine busy" }
}
