//! What was measured, against the bars, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// Above this, other programs had too much of the machine for the figures to mean anything.
const TRUSTED_LOAD: f64 = 0.3;

/// The shares of Redis that are asked for, by number of connections.
const BARS: [(usize, f64); 4] = [(1, 0.9), (16, 0.8), (64, 0.6), (256, 0.5)];

/// The share of PostgreSQL that is asked for from 16 connections on.
const OF_POSTGRES: f64 = 1.5;

/// How many times Redis's p99 is allowed.
const P99_OF_REDIS: f64 = 3.0;

/// Says how much of the machine other programs had.
pub fn print_load(foreign_load: f64) {
    println!("\nother programs used {foreign_load:.2} cores meanwhile");
    if foreign_load > TRUSTED_LOAD {
        println!("! more than {TRUSTED_LOAD}: these figures are not to be trusted, measure again");
    }
}

/// One turn of one server.
#[derive(Clone, Copy, Default)]
pub struct Figures {
    pub cycles_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub cpu_us_per_request: f64,
}

impl Figures {
    /// From the time of every request in microseconds, and the processor time of the server.
    pub fn of(mut times: Vec<u32>, elapsed: f64, cpu_seconds: f64) -> Result<Self> {
        times.sort_unstable();
        let requests = times.len() as f64;
        let at = |share: f64| -> Result<f64> {
            let time = times.get((requests * share) as usize).context("nothing was answered")?;
            Ok(f64::from(*time) / 1_000.0)
        };
        Ok(Self {
            cycles_per_s: requests / 3.0 / elapsed,
            p50_ms: at(0.5)?,
            p99_ms: at(0.99)?,
            cpu_us_per_request: cpu_seconds * 1e6 / requests,
        })
    }
}

/// The turns of all servers, by name and number of connections.
pub struct Report {
    turns: BTreeMap<(&'static str, usize), Vec<Figures>>,
    pub foreign_load: f64,
}

impl Report {
    pub fn new() -> Self {
        Self { turns: BTreeMap::new(), foreign_load: 0.0 }
    }

    pub fn add(&mut self, name: &'static str, connections: usize, figures: Figures) {
        self.turns.entry((name, connections)).or_default().push(figures);
    }

    /// The medians of all turns.
    pub fn figures(&self, name: &'static str, connections: usize) -> Figures {
        let Some(turns) = self.turns.get(&(name, connections)) else { return Figures::default() };
        let median = |pick: fn(&Figures) -> f64| {
            let mut values: Vec<f64> = turns.iter().map(pick).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        Figures {
            cycles_per_s: median(|figures| figures.cycles_per_s),
            p50_ms: median(|figures| figures.p50_ms),
            p99_ms: median(|figures| figures.p99_ms),
            cpu_us_per_request: median(|figures| figures.cpu_us_per_request),
        }
    }

    /// Leasehold's throughput by that of another server.
    fn ratio(&self, other: &'static str, connections: usize) -> f64 {
        self.figures("leasehold", connections).cycles_per_s / self.figures(other, connections).cycles_per_s
    }

    pub fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            println!("{}", serde_json::to_string(&self.json())?);
            return Ok(());
        }
        println!(
            "\n{:>11}  {:<10} {:>9}  {:>9}  {:>9}  {:>9}",
            "connections", "", "cycles/s", "p50", "p99", "CPU"
        );
        for (connections, _) in self.measured() {
            for name in ["leasehold", "redis_aof", "postgres"] {
                let Figures { cycles_per_s, p50_ms, p99_ms, cpu_us_per_request } =
                    self.figures(name, connections);
                println!(
                    "{connections:>11}  {name:<10} {cycles_per_s:>9.0}  {p50_ms:>6.2} ms  {p99_ms:>6.2} ms  {cpu_us_per_request:>6.0} µs"
                );
            }
        }
        println!();
        self.measured().for_each(|(connections, bar)| self.print_bars(connections, bar));
        print_load(self.foreign_load);
        Ok(())
    }

    /// The numbers of connections that were measured, with their bars.
    fn measured(&self) -> impl Iterator<Item = (usize, f64)> {
        BARS.into_iter().filter(|(connections, _)| self.turns.contains_key(&("leasehold", *connections)))
    }

    fn print_bars(&self, connections: usize, bar: f64) {
        let (redis, postgres) = (self.ratio("redis_aof", connections), self.ratio("postgres", connections));
        let p99 =
            self.figures("leasehold", connections).p99_ms / self.figures("redis_aof", connections).p99_ms;
        let (of_postgres, wanted) = match connections {
            1 => (0.0, String::new()),
            _ => (OF_POSTGRES, format!(", at least {OF_POSTGRES}")),
        };
        let is_met = redis >= bar && postgres >= of_postgres && p99 <= P99_OF_REDIS;
        println!(
            "{} {connections} connections: {redis:.2} of Redis, at least {bar}; {postgres:.2} of PostgreSQL{wanted}; p99 \
             {p99:.1} times Redis's, at most {P99_OF_REDIS}",
            if is_met { "✓" } else { "✗" }
        );
    }

    fn json(&self) -> Value {
        let of = |name: &'static str| -> Value {
            let rows = self.measured().map(|(connections, _)| {
                let Figures { cycles_per_s, p50_ms, p99_ms, cpu_us_per_request } =
                    self.figures(name, connections);
                let mut row = json!({ "cycles_per_s": cycles_per_s, "p50_ms": p50_ms, "p99_ms": p99_ms });
                if let (true, Some(row)) = (name == "leasehold", row.as_object_mut()) {
                    row.insert("cpu_us_per_request".into(), cpu_us_per_request.into());
                }
                (connections.to_string(), row)
            });
            Value::Object(Map::from_iter(rows))
        };
        json!({
            "leasehold": of("leasehold"),
            "redis_aof": of("redis_aof"),
            "postgres": of("postgres"),
            "foreign_load_cores": self.foreign_load,
        })
    }

    /// The picture in the documentation: a bar for each server and number of connections.
    pub fn svg(&self) -> String {
        let rows: Vec<(usize, &'static str, f64)> = BARS
            .iter()
            .flat_map(|(connections, _)| {
                ["leasehold", "redis_aof", "postgres"].map(|name| (*connections, name))
            })
            .map(|(connections, name)| (connections, name, self.figures(name, connections).cycles_per_s))
            .collect();
        let longest = rows.iter().map(|row| row.2).fold(1.0, f64::max);
        let height = 60 + rows.len() * 24;
        let mut svg = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" viewBox="0 0 760 {height}" font-family="system-ui, DejaVu Sans, sans-serif" font-size="13" role="img" aria-label="Cycles per second over loopback">
<rect width="760" height="{height}" fill="#ffffff"/>
<text x="16" y="24" font-weight="bold" fill="#1f2328">acquire-renew-release cycles per second over loopback, every one durable</text>
"##
        );
        for (index, (connections, name, cycles)) in rows.iter().enumerate() {
            let (top, width) = (40 + index * 24 + index / 3 * 6, cycles / longest * 430.0);
            let (colour, label) = match *name {
                "leasehold" => ("#2da44e", format!("Leasehold, {connections}")),
                "redis_aof" => ("#8b949e", "Redis, synced".to_owned()),
                _ => ("#d0d7de", "PostgreSQL".to_owned()),
            };
            let _ = writeln!(
                svg,
                r##"<text x="150" y="{}" text-anchor="end" fill="#1f2328">{label}</text><rect x="160" y="{top}" width="{width:.0}" height="18" rx="3" fill="{colour}"/><text x="{:.0}" y="{}" fill="#1f2328">{cycles:.0}</text>"##,
                top + 14,
                168.0 + width,
                top + 14
            );
        }
        svg + "</svg>\n"
    }
}
