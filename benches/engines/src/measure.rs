//! The measuring itself. All candidates take turns, several times around, so that noise hits them alike.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::engines::{CANDIDATES, Candidate, Engine, Open, RESTARTED};
use crate::load::Load;
use crate::workload::Workload;

/// How often everything is measured.
pub const ROUNDS: usize = 5;

/// How long one candidate has its turn.
const TURN: Duration = Duration::from_millis(200);

/// How many slots are there after a restart.
pub const RESTARTED_SLOTS: u64 = 1_000_000;

const RESTART_ROUNDS: usize = 3;

/// What came of one candidate with so many callers.
pub struct Speed {
    pub name: &'static str,
    pub callers: usize,
    pub ops_per_second: f64,
    /// Of one commit: the median, the 99th of a hundred, the worst.
    pub commit: [Duration; 3],
    pub foreign_cores: Option<f64>,
}

/// One candidate at work.
struct Runner {
    candidate: &'static Candidate,
    engine: Box<dyn Engine>,
    workload: Workload,
    turns: HashMap<usize, Vec<Turn>>,
}

struct Turn {
    commits: Vec<Duration>,
    foreign_cores: Option<f64>,
}

/// Measures how many operations each candidate makes durable in a second, on a store of `slots` slots.
pub fn speeds(folder: &Path, slots: u64) -> Result<Vec<Speed>> {
    let runner = |(index, candidate): (usize, &'static Candidate)| {
        let engine = (candidate.open)(&new_folder(folder, &format!("speed-{index}"))?)?;
        let mut runner =
            Runner { candidate, engine, workload: Workload::new(slots), turns: HashMap::default() };
        runner.workload.fill().try_for_each(|batch| runner.engine.commit(&batch))?;
        runner.engine.settle();
        Ok(runner)
    };
    let mut runners = CANDIDATES.iter().enumerate().map(runner).collect::<Result<Vec<_>>>()?;
    for round in 0..ROUNDS {
        for callers in [1, 16, 64, 1_024] {
            // Nobody always comes after the same neighbour.
            runners.rotate_left(1 + round % 2);
            let asked = runners.iter_mut().filter(|runner| runner.candidate.callers.contains(&callers));
            asked.into_iter().try_for_each(|runner| runner.take_turn(callers))?;
        }
    }
    runners.sort_by_key(|runner| {
        CANDIDATES.iter().position(|candidate| candidate.name == runner.candidate.name)
    });
    Ok(runners.iter().flat_map(Runner::speeds).collect())
}

impl Runner {
    fn take_turn(&mut self, callers: usize) -> Result<()> {
        let load = Load::now();
        let (mut commits, mut spent) = (Vec::new(), Duration::ZERO);
        while spent < TURN {
            let batch = self.workload.turn(callers);
            let begun = Instant::now();
            self.engine.commit(&batch)?;
            let took = begun.elapsed();
            spent += took;
            commits.push(took);
        }
        let foreign_cores = load.foreign_cores();
        self.engine.settle();
        self.turns.entry(callers).or_default().push(Turn { commits, foreign_cores });
        Ok(())
    }

    fn speeds(&self) -> Vec<Speed> {
        let speed = |callers: &usize| {
            let turns = self.turns.get(callers)?;
            let rate = |turn: &Turn| {
                let spent: Duration = turn.commits.iter().sum();
                (turn.commits.len() * callers) as f64 / spent.as_secs_f64()
            };
            let mut commits: Vec<Duration> = turns.iter().flat_map(|turn| turn.commits.clone()).collect();
            commits.sort();
            let at = |part: usize| commits.get((commits.len() - 1) * part / 100).copied().unwrap_or_default();
            Some(Speed {
                name: self.candidate.name,
                callers: *callers,
                ops_per_second: median(turns.iter().map(rate).collect()),
                commit: [at(50), at(99), at(100)],
                foreign_cores: median_load(turns.iter().map(|turn| turn.foreign_cores)),
            })
        };
        self.candidate.callers.iter().filter_map(speed).collect()
    }
}

/// What a restart with many slots costs a candidate.
pub struct Restart {
    pub name: &'static str,
    pub bytes: u64,
    /// Opened and read after it had been closed.
    pub clean_seconds: f64,
    /// Opened and read after its process had been killed.
    pub killed_seconds: f64,
    pub foreign_cores: Option<f64>,
}

/// A full store as a killed process left it, and a copy that was closed in an orderly way.
struct Filled {
    name: &'static str,
    open: Open,
    closed: PathBuf,
    killed: PathBuf,
    bytes: u64,
    clean: Vec<f64>,
    after_kill: Vec<f64>,
    loads: Vec<Option<f64>>,
}

/// Measures how long it takes until all slots are in memory again.
pub fn restarts(folder: &Path) -> Result<Vec<Restart>> {
    let mut filled = Vec::new();
    for (name, open) in RESTARTED {
        filled.push(fill(folder, name, open)?);
    }
    for round in 0..RESTART_ROUNDS {
        for store in &mut filled {
            store.measure(folder, round)?;
        }
    }
    let restart = |store: Filled| Restart {
        name: store.name,
        bytes: store.bytes,
        clean_seconds: median(store.clean),
        killed_seconds: median(store.after_kill),
        foreign_cores: median_load(store.loads.into_iter()),
    };
    Ok(filled.into_iter().map(restart).collect())
}

/// Lets a process of its own fill the store, and kills it.
fn fill(folder: &Path, name: &'static str, open: Open) -> Result<Filled> {
    let killed = new_folder(folder, &format!("killed-{name}"))?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--fill", name, "--dir"])
        .arg(&killed)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    child.stdout.take().map(BufReader::new).map(|mut stdout| stdout.read_line(&mut said)).transpose()?;
    child.kill()?;
    child.wait()?;
    ensure!(said.trim() == FILLED, "the process that was to fill {name} failed");
    let closed = folder.join(format!("closed-{name}"));
    copy(&killed, &closed)?;
    // Opened and closed in an orderly way once.
    load_all(open, &closed)?;
    let bytes = size(&closed)?;
    let (clean, after_kill, loads) = Default::default();
    Ok(Filled { name, open, closed, killed, bytes, clean, after_kill, loads })
}

const FILLED: &str = "filled";

/// What the process does that is to be killed. It waits for that until its parent has no more ear for it.
pub fn fill_and_wait(folder: &Path, name: &str) -> Result<()> {
    let (_, open) = RESTARTED.iter().find(|(known, _)| *known == name).context("no such candidate")?;
    let mut engine = open(folder)?;
    let mut workload = Workload::new(RESTARTED_SLOTS);
    workload.fill().try_for_each(|batch| engine.commit(&batch))?;
    for _ in 0..100 {
        engine.commit(&workload.turn(64))?;
    }
    println!("{FILLED}");
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

impl Filled {
    fn measure(&mut self, folder: &Path, round: usize) -> Result<()> {
        let copied = folder.join(format!("copy-{}-{round}", self.name));
        copy(&self.killed, &copied)?;
        let load = Load::now();
        self.clean.push(load_all(self.open, &self.closed)?);
        self.after_kill.push(load_all(self.open, &copied)?);
        self.loads.push(load.foreign_cores());
        Ok(std::fs::remove_dir_all(&copied)?)
    }
}

fn load_all(open: Open, folder: &Path) -> Result<f64> {
    let begun = Instant::now();
    let mut slots = HashMap::new();
    let mut engine = open(folder)?;
    engine.load(&mut |key, slot| {
        slots.insert(key, slot);
    })?;
    let took = begun.elapsed();
    ensure!(slots.len() as u64 == RESTARTED_SLOTS, "{} slots are there after a restart", slots.len());
    Ok(took.as_secs_f64())
}

fn new_folder(parent: &Path, name: &str) -> Result<PathBuf> {
    let folder = parent.join(name);
    std::fs::create_dir(&folder)?;
    Ok(folder)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// What the file system has given to the files below `folder`.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { size(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn median_load(loads: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    loads.collect::<Option<Vec<f64>>>().map(median)
}
