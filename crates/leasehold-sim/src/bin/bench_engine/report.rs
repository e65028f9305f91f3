//! What was measured, against the bars, for people and for programs.

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::cycles::Figures;
use crate::million::Million;

pub struct Report {
    pub foreign_load: f64,
    pub floor: f64,
    pub sqlite: f64,
    pub embedded: Vec<(usize, Figures)>,
    pub million: Option<Million>,
}

/// Above this, other programs had too much of the machine for the figures to mean anything.
const TRUSTED_LOAD: f64 = 0.3;

/// A bar: what it is about, what was reached, and whether that is enough.
struct Bar {
    what: String,
    reached: String,
    met: bool,
}

impl Report {
    pub fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            println!("{}", serde_json::to_string(&self.json())?);
            return Ok(());
        }
        println!("\nsync floor     {:>9.0} appends with fdatasync a second", self.floor);
        println!("plain SQLite   {:>9.0} cycles/s, one commit per operation\n", self.sqlite);
        println!("{:>8}  {:>10}  {:>9}  {:>9}  {:>12}", "callers", "cycles/s", "p50", "p99", "x SQLite");
        for (callers, figures) in &self.embedded {
            let ratio = figures.cycles_per_s / self.sqlite;
            let bar = "▇".repeat((ratio.ceil() as usize).min(60));
            println!(
                "{callers:>8}  {:>10.0}  {:>6.2} ms  {:>6.2} ms  {ratio:>11.1}  {bar}",
                figures.cycles_per_s, figures.p50_ms, figures.p99_ms
            );
        }
        if let Some(million) = &self.million {
            println!("\n{} live leases; they expired within {:.1} s", million.leases, million.storm_s);
        }
        println!();
        for bar in self.bars() {
            println!("{} {}: {}", if bar.met { "✓" } else { "✗" }, bar.what, bar.reached);
        }
        println!("\nother programs used {:.2} cores meanwhile", self.foreign_load);
        if self.foreign_load > TRUSTED_LOAD {
            println!("! more than {TRUSTED_LOAD}: these figures are not to be trusted, measure again");
        }
        Ok(())
    }

    fn bars(&self) -> Vec<Bar> {
        let rate = |wanted: usize| {
            self.embedded
                .iter()
                .find(|(callers, _)| *callers == wanted)
                .map_or(0.0, |(_, figures)| figures.cycles_per_s)
        };
        let at_least = |what: &str, reached: f64, bar: f64| Bar {
            what: format!("{what}, at least {bar}"),
            reached: format!("{reached:.2}"),
            met: reached >= bar,
        };
        let at_most = |what: &str, unit: &str, reached: f64, bar: f64| Bar {
            what: format!("{what}, at most {bar} {unit}"),
            reached: format!("{reached:.2} {unit}"),
            met: reached <= bar,
        };
        let mut bars = vec![
            at_least("64 callers, times SQLite", rate(64) / self.sqlite, 10.0),
            at_least("1,024 callers, times SQLite", rate(1_024) / self.sqlite, 15.0),
            at_least("one caller, share of three syncs in a row", rate(1) / (self.floor / 3.0), 0.8),
        ];
        if let Some(million) = &self.million {
            bars.push(at_most("memory", "MiB", million.rss_mib, 512.0));
            bars.push(at_most("killed to serving", "s", million.restart_s, 5.0));
            bars.push(at_most("acquire's p99 while all expire", "ms", million.storm_acquire_p99_ms, 50.0));
        }
        bars
    }

    fn json(&self) -> Value {
        let embedded: Map<String, Value> = self
            .embedded
            .iter()
            .map(|(callers, figures)| {
                let Figures { cycles_per_s, p50_ms, p99_ms } = figures;
                (
                    callers.to_string(),
                    json!({ "cycles_per_s": cycles_per_s, "p50_ms": p50_ms, "p99_ms": p99_ms }),
                )
            })
            .collect();
        let million = self.million.as_ref().map(|million| {
            json!({
                "rss_mib": million.rss_mib,
                "restart_s": million.restart_s,
                "storm_acquire_p99_ms": million.storm_acquire_p99_ms,
            })
        });
        json!({
            "foreign_load_cores": self.foreign_load,
            "fdatasync_per_s": self.floor,
            "sqlite_cycles_per_s": self.sqlite,
            "embedded": embedded,
            "million": million,
        })
    }
}
