//! Stores under a clock that only the test moves.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command as Process, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::lease::{Bid, Lease};
use leasehold_core::{Command, Key, LeaseId, Meta, Outcome, Owner, Slot, Ttl};
use leasehold_store::clock::ManualClock;
use leasehold_store::conformance::{HARNESS_LEASES_PER_OWNER, Harness, JobHarness, Restart};
use leasehold_store::{Embedded, JobStore, Limits, Memory, Mode, Range, Store, embedded};
use tempfile::TempDir;

pub use crate::waiting::{DEADLINE, skipped, wait_for};

pub const LIMITS: Limits = Limits { leases_per_owner: HARNESS_LEASES_PER_OWNER };

pub struct MemoryHarness {
    clock: Arc<ManualClock>,
    store: Arc<Memory>,
}

impl MemoryHarness {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { store: Arc::new(Memory::with(clock.clone(), LIMITS, 0)), clock }
    }
}

#[async_trait]
impl JobHarness for MemoryHarness {
    fn job_store(&self) -> Arc<dyn JobStore> {
        self.store.clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

#[async_trait]
impl Harness for MemoryHarness {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

pub struct EmbeddedHarness {
    folder: TempDir,
    mode: Mode,
    clock: Arc<ManualClock>,
    state: Mutex<State>,
}

struct State {
    store: Option<Arc<Embedded>>,
    path: PathBuf,
    lives: u32,
}

impl EmbeddedHarness {
    pub fn new(mode: Mode) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::default());
        let path = folder.path().join("leases.db");
        let store = Some(open(&path, mode, &clock));
        let harness = Self { folder, mode, clock, state: Mutex::new(State { store, path, lives: 0 }) };
        harness.back_up();
        harness
    }

    fn backup_path(&self, life: u32) -> PathBuf {
        self.folder.path().join(format!("backup-{life}.db"))
    }

    /// A backup of the store as it is now, for a later restore.
    fn back_up(&self) {
        let state = self.state.lock().unwrap();
        embedded::backup(&state.path, self.backup_path(state.lives)).unwrap();
    }

    fn close(&self) {
        let store = self.state.lock().unwrap().store.take().unwrap();
        let store = Arc::into_inner(store).expect("nobody else uses the store any more");
        drop(store);
    }

    /// What is on disk at this moment, under another name: as a machine that lost power would find it.
    fn crash(&self) {
        let (path, lives) = {
            let state = self.state.lock().unwrap();
            (state.path.clone(), state.lives)
        };
        let copy = self.folder.path().join(format!("crashed-{lives}.db"));
        for suffix in ["", "-wal", ".epoch", ".journal"] {
            // Only a store that one process has alone has a journal.
            if suffix != ".journal" || beside(&path, suffix).exists() {
                std::fs::copy(beside(&path, suffix), beside(&copy, suffix)).unwrap();
            }
        }
        self.close();
        self.state.lock().unwrap().path = copy;
    }

    fn restore(&self) {
        self.close();
        let state = self.state.lock().unwrap();
        embedded::restore(self.backup_path(state.lives), &state.path).unwrap();
    }

    fn reopen(&self) {
        let mut state = self.state.lock().unwrap();
        state.store = Some(open(&state.path, self.mode, &self.clock));
        state.lives += 1;
    }
}

fn open(path: &Path, mode: Mode, clock: &Arc<ManualClock>) -> Arc<Embedded> {
    Arc::new(Embedded::options().mode(mode).clock(clock.clone()).limits(LIMITS).open(path).unwrap())
}

pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

#[async_trait]
impl JobHarness for EmbeddedHarness {
    fn job_store(&self) -> Arc<dyn JobStore> {
        self.store()
    }

    async fn advance(&self, by: Duration) {
        // No longer steps than the lease clock takes, each with a turn of the store.
        let mut left = by;
        while !left.is_zero() {
            let step = left.min(Duration::from_secs(1));
            self.clock.advance(step);
            self.store().now().await.unwrap();
            left -= step;
        }
    }

    async fn restart(&self, how: Restart) -> bool {
        match how {
            Restart::Orderly => self.close(),
            Restart::Crash => self.crash(),
            Restart::Restore => self.restore(),
            Restart::DownForAnHour => {
                self.close();
                self.clock.advance(Duration::from_secs(3_600));
            }
        }
        self.reopen();
        self.back_up();
        true
    }
}

#[async_trait]
impl Harness for EmbeddedHarness {
    fn store(&self) -> Arc<dyn Store> {
        self.state.lock().unwrap().store.clone().unwrap()
    }

    async fn stall(&self, for_how_long: Duration) -> bool {
        if self.mode == Mode::Shared {
            // Its clock is the machine's, like that of all the processes that share it.
            return false;
        }
        self.clock.advance(for_how_long);
        true
    }
}

pub fn key(name: &str) -> Key {
    Key::parse(&format!("run/{name}")).unwrap()
}

/// A bid of `owner` under the lease id number `id`.
pub fn bid(owner: &str, id: u64, ttl: Duration) -> Bid {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    let (owner, ttl) = (Owner::parse(owner).unwrap(), Ttl::new(ttl).unwrap());
    Bid { tab: None, lease_id: LeaseId::from_random(bytes), owner, ttl, meta: Meta::default() }
}

/// A meta of about this many bytes.
pub fn meta(bytes: usize) -> Meta {
    Meta::new([("note".to_owned(), "x".repeat(bytes))]).unwrap()
}

pub async fn acquire(store: &dyn Store, key: &Key, bid: &Bid) -> Outcome {
    store.apply(key, Command::Acquire(bid.clone())).await.unwrap().outcome
}

pub async fn must_acquire(store: &dyn Store, key: &Key, bid: &Bid) -> Lease {
    match acquire(store, key, bid).await {
        Outcome::Granted { lease, .. } => lease,
        other => panic!("{key:?} was not granted: {other:?}"),
    }
}

pub async fn must_release(store: &dyn Store, key: &Key, lease: &Lease) {
    let claim = lease.proof();
    let outcome = store.apply(key, Command::Release(claim.into())).await.unwrap().outcome;
    assert_eq!(outcome, Outcome::Released);
}

/// All live leases, page by page.
pub async fn leases(store: &dyn Store) -> leasehold_store::Result<Vec<(Key, Slot)>> {
    let mut range = Range::all();
    let mut found = Vec::new();
    loop {
        let page = store.list(&range).await?;
        range.after = page.slots.last().map(|(key, _)| key.clone());
        found.extend(page.slots);
        if !page.more {
            return Ok(found);
        }
    }
}

/// Another process: this test program again, for one test that plays a part in the test that starts it.
pub struct Child {
    process: std::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// What a test function that is such a part was told by the one that started it; nothing when it was not.
pub fn part(name: &str) -> Option<String> {
    std::env::var(format!("LEASEHOLD_TEST_{name}")).ok()
}

/// Says something to the test that started this process.
pub fn tell(what: &str, value: &str) {
    // On a line of its own: the test runner leaves the one that it has begun open.
    println!("\n{what}={value}");
}

impl Child {
    /// Starts the test `name` and tells it what to play.
    pub fn start(name: &str, told: &[(&str, &str)]) -> Self {
        Self::start_with(name, told, |_| {})
    }

    pub fn start_with(name: &str, told: &[(&str, &str)], prepare: impl FnOnce(&mut Process)) -> Self {
        let mut process = Process::new(std::env::current_exe().unwrap());
        process.args(["--exact", name, "--nocapture", "--test-threads=1"]).stdout(Stdio::piped());
        for (name, value) in told {
            process.env(format!("LEASEHOLD_TEST_{name}"), value);
        }
        prepare(&mut process);
        let mut process = process.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Waits for it to tell `what`.
    pub fn told(&mut self, what: &str) -> String {
        let wanted = format!("{what}=");
        let told = self.lines.find_map(|line| line.unwrap().strip_prefix(&wanted).map(str::to_owned));
        told.unwrap_or_else(|| panic!("the process ended and never told {what}"))
    }

    /// SIGKILL: it gets to do nothing any more.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits for it to end well.
    pub fn must_end(mut self) {
        let rest: Vec<_> = self.lines.by_ref().map(Result::unwrap).collect();
        assert!(self.process.wait().unwrap().success(), "{}", rest.join("\n"));
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
