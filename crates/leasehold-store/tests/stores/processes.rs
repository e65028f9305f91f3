//! Several processes on one file: killed without warning, racing for one key, beginning at the same moment, and forked.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_core::lease::Bid;
use leasehold_core::{Command, Outcome, StoreTime};
use leasehold_store::{Embedded, JobStore, Mode, Store, embedded};

use crate::forks::{fork, fork_idle, has_succeeded};
use crate::harness::{Child, DEADLINE, bid, key, leases, must_acquire, must_release, part, tell, wait_for};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn open(path: &Path, mode: Mode) -> Embedded {
    Embedded::options().mode(mode).open(path).unwrap()
}

/// A bid that no other process, and no other call, makes.
fn own_bid(number: u32, ttl: Duration) -> Bid {
    let id = u64::from(std::process::id()) << 32 | u64::from(number);
    bid(&format!("process {}", std::process::id()), id, ttl)
}

// --- killed ---

const SHORT: Duration = Duration::from_secs(2);

/// Law 4: how much later than the TTL the lease may go to somebody else.
const AT_MOST_LATER: Duration = Duration::from_secs(1);

#[test]
fn killed_holder_in_shared_mode_keeps_its_lease_for_the_ttl() {
    a_killed_holder_keeps_its_lease_for_the_ttl(Mode::Shared, || {});
}

#[test]
fn killed_exclusive_store_stands_still_until_it_is_opened_again() {
    let start = Instant::now();
    // Longer than the TTL, on everybody's clock but the store's.
    let stay_down = || wait_for("the TTL to pass", || (start.elapsed() > 2 * SHORT).then_some(()));
    a_killed_holder_keeps_its_lease_for_the_ttl(Mode::Exclusive, stay_down);
}

fn a_killed_holder_keeps_its_lease_for_the_ttl(mode: Mode, before_reopening: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let told = [("HOLD", path.to_str().unwrap()), ("MODE", mode.as_str())];
    let mut holder = Child::start("processes::child_that_holds_a_lease", &told);
    let fence: u64 = holder.told("fence").parse().unwrap();
    let expires_at = StoreTime::from_millis(holder.told("expires_at").parse().unwrap());
    holder.kill();
    before_reopening();
    let store = open(&path, mode);
    let (refused, next) = runtime().block_on(acquire_in_the_end(&store));
    let (last_refused, granted_at) = (refused.expect("it was held at first"), next.acquired_at);
    assert!(last_refused < expires_at, "refused at {last_refused:?}, and it expired at {expires_at:?}");
    assert!(granted_at >= expires_at, "granted at {granted_at:?}, and it expires at {expires_at:?}");
    assert!(granted_at.since(expires_at) <= AT_MOST_LATER, "{granted_at:?} is long after {expires_at:?}");
    assert!(next.fence.get() > fence);
    drop(store);
    assert_eq!(embedded::check(&path).unwrap().problems, [""; 0]);
}

/// Tries until the lease is granted; answers when it was refused the last time, on the store's clock.
async fn acquire_in_the_end(store: &Embedded) -> (Option<StoreTime>, leasehold_core::lease::Lease) {
    let (start, bid) = (Instant::now(), own_bid(0, SHORT));
    let mut refused = None;
    loop {
        let applied = store.apply(&key("held"), Command::Acquire(bid.clone())).await.unwrap();
        match applied.outcome {
            Outcome::Granted { lease, .. } => return (refused, lease),
            Outcome::Held(_) => refused = Some(applied.now),
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < DEADLINE, "never granted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn child_that_holds_a_lease() {
    let (Some(path), Some(mode)) = (part("HOLD"), part("MODE")) else { return };
    let mode = if mode == "shared" { Mode::Shared } else { Mode::Exclusive };
    let store = open(Path::new(&path), mode);
    let lease = runtime().block_on(must_acquire(&store, &key("held"), &own_bid(0, SHORT)));
    tell("fence", &lease.fence.to_string());
    tell("expires_at", &lease.expires_at.as_millis().to_string());
    std::thread::sleep(DEADLINE);
}

// --- racing ---

/// What the racing processes have in common, besides the store.
struct Track {
    folder: PathBuf,
}

impl Track {
    fn store(&self) -> PathBuf {
        self.folder.join("leases.db")
    }

    fn counter(&self) -> PathBuf {
        self.folder.join("counter")
    }

    fn count(&self) -> u64 {
        fs::read_to_string(self.counter()).unwrap().parse().unwrap()
    }

    /// One line for each grant, in the order in which the holders wrote them: the fence, and who.
    fn log(&self) -> Vec<(u64, u32)> {
        let text = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let line = |line: &str| {
            let (fence, process) = line.split_once(' ').unwrap();
            (fence.parse().unwrap(), process.parse().unwrap())
        };
        whole.lines().map(line).collect()
    }

    fn write_log(&self, fence: u64) {
        let mut log = fs::OpenOptions::new().create(true).append(true).open(self.folder.join("log")).unwrap();
        log.write_all(format!("{fence} {}\n", std::process::id()).as_bytes()).unwrap();
    }

    fn start(&self, rounds: u32, ttl: Duration) -> Child {
        let (rounds, ttl) = (rounds.to_string(), ttl.as_secs().to_string());
        let told = [("RACE", self.folder.to_str().unwrap()), ("ROUNDS", &rounds), ("TTL", &ttl)];
        Child::start("processes::child_that_races", &told)
    }

    fn assert_order(&self) {
        let log = self.log();
        assert!(log.windows(2).all(|pair| pair[0].0 < pair[1].0), "the fences do not grow: {log:?}");
        assert_eq!(embedded::check(self.store()).unwrap().problems, [""; 0]);
    }
}

const RACERS: u32 = 8;
const ROUNDS: u32 = 25;

#[test]
fn racing_processes_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let track = Track { folder: folder.path().to_owned() };
    fs::write(track.counter(), "0").unwrap();
    let racers: Vec<_> = (0..RACERS).map(|_| track.start(ROUNDS, Duration::from_secs(60))).collect();
    racers.into_iter().for_each(Child::must_end);
    assert_eq!(track.count(), u64::from(RACERS * ROUNDS), "every round counts once");
    assert_eq!(track.log().len(), (RACERS * ROUNDS) as usize);
    track.assert_order();
}

#[test]
fn racing_processes_go_on_when_others_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let track = Track { folder: folder.path().to_owned() };
    // Long enough that a holder on a busy machine is done in time, short enough to wait for that of a killed one.
    let ttl = Duration::from_secs(5);
    let mut victims = [(); 2].map(|()| track.start(u32::MAX, ttl));
    let survivors = [(); 3].map(|()| track.start(10, ttl));
    for victim in &mut victims {
        let process: u32 = victim.told("process").parse().unwrap();
        let rounds = || track.log().iter().filter(|(_, who)| *who == process).count();
        wait_for("a few rounds of the victim", || (rounds() >= 3).then_some(()));
        victim.kill();
    }
    survivors.into_iter().for_each(Child::must_end);
    track.assert_order();
    let store = open(&track.store(), Mode::Exclusive);
    runtime().block_on(must_acquire(&store, &key("after"), &own_bid(0, ttl)));
}

#[test]
fn child_that_races() {
    let Some(folder) = part("RACE") else { return };
    let track = Track { folder: folder.into() };
    let number = |name| part(name).unwrap().parse::<u32>().unwrap();
    let ttl = Duration::from_secs(number("TTL").into());
    tell("process", &std::process::id().to_string());
    let store = open(&track.store(), Mode::Shared);
    runtime().block_on(async {
        for round in 0..number("ROUNDS") {
            race(&track, &store, &own_bid(round, ttl)).await;
        }
    });
}

/// One round: what is done while the lease is held would go wrong if two did it at a time.
async fn race(track: &Track, store: &Embedded, bid: &Bid) {
    let start = Instant::now();
    let lease = loop {
        match store.apply(&key("track"), Command::Acquire(bid.clone())).await.unwrap().outcome {
            Outcome::Granted { lease, .. } => break lease,
            Outcome::Held(_) => tokio::time::sleep(Duration::from_millis(3)).await,
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < DEADLINE, "never granted");
    };
    if track.counter().exists() {
        let count = track.count();
        fs::write(track.counter(), (count + 1).to_string()).unwrap();
    }
    track.write_log(lease.fence.get());
    must_release(store, &key("track"), &lease).await;
}

// --- beginning at the same moment ---

#[test]
fn racing_processes_that_make_the_same_file_make_one() {
    // Once, a process looked for the log before another one had begun it, and at the mark that says that there is one
    // after that: it took a store that had just been made for one whose log was lost. And of two that turned the log
    // on at the same time, one was told at once that the file had been busy for too long.
    for _ in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let told = [("BEGIN", folder.path().to_str().unwrap())];
        let start = |_| Child::start("processes::child_that_begins", &told);
        let mut children: Vec<_> = (0..RACERS).map(start).collect();
        children.iter_mut().for_each(|child| assert_eq!(child.told("ready"), "yes"));
        fs::write(folder.path().join("go"), "").unwrap();
        let mut fences: Vec<u64> =
            children.iter_mut().map(|child| child.told("fence").parse().unwrap()).collect();
        children.into_iter().for_each(Child::must_end);
        fences.sort_unstable();
        let store = open(&folder.path().join("leases.db"), Mode::Exclusive);
        let found = runtime().block_on(leases(&store)).unwrap();
        let mut found: Vec<_> =
            found.iter().map(|(_, slot)| slot.lease.as_ref().unwrap().fence.get()).collect();
        found.sort_unstable();
        assert_eq!(found, fences, "everybody's lease is in the one store");
        assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "no fence was given out twice: {fences:?}");
    }
}

#[test]
fn child_that_begins() {
    let Some(folder) = part("BEGIN").map(PathBuf::from) else { return };
    tell("ready", "yes");
    wait_for("the signal", || folder.join("go").exists().then_some(()));
    let store = open(&folder.join("leases.db"), Mode::Shared);
    let name = key(&std::process::id().to_string());
    runtime().block_on(async {
        let lease = must_acquire(&store, &name, &own_bid(0, Duration::from_secs(600))).await;
        tell("fence", &lease.fence.to_string());
        store.now().await.unwrap();
    });
}

// --- forked ---

#[test]
fn a_forked_process_is_refused_and_its_parent_goes_on() {
    // A program opened its store, and then forked. A command of the forked process waited for ever, because the writer's thread was
    // not there, and so did its end; in shared mode it worked on the file with locks that only its parent had.
    for mode in [Mode::Exclusive, Mode::Shared] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let told = [("FORK", path.to_str().unwrap()), ("MODE", mode.as_str())];
        let mut parent = Child::start("processes::child_that_forks", &told);
        assert_eq!(parent.told("the forked process"), "was refused", "{mode:?}");
        assert_eq!(parent.told("the parent"), "went on", "{mode:?}");
        // What the parent has locked is locked still.
        let other = Embedded::options().mode(Mode::Exclusive).open(&path).err().expect("the parent has it");
        assert!(matches!(other, leasehold_store::Error::InUse { .. }), "{mode:?}: {other}");
        // By another name of the file, another process said that its log was missing, and to repair it.
        let link = folder.path().join("link.db");
        fs::hard_link(&path, &link).unwrap();
        let linked =
            Embedded::options().mode(mode).open(&link).err().expect("its log is beside the other name");
        assert!(linked.to_string().contains("another one (a hard link)"), "{mode:?}: {linked}");
        fs::remove_file(&link).unwrap();
        fs::write(folder.path().join("go"), "").unwrap();
        parent.must_end();
        // And free when the parent has closed it, though the last forked process lives.
        drop(open(&path, Mode::Exclusive));
        assert_eq!(embedded::check(&path).unwrap().problems, [""; 0], "{mode:?}");
    }
}

#[test]
fn child_that_forks() {
    let (Some(path), Some(mode)) = (part("FORK"), part("MODE")) else { return };
    let (path, mode) = (Path::new(&path), if mode == "shared" { Mode::Shared } else { Mode::Exclusive });
    let store = open(path, mode);
    let lease =
        runtime().block_on(must_acquire(&store, &key("forked"), &own_bid(0, Duration::from_secs(600))));
    let renew = || Command::Renew { claim: lease.proof().into(), ttl: None };
    let mut store = Some(store);
    let forked = fork(|| {
        let inherited = store.take().unwrap();
        let refused = runtime().block_on(inherited.apply(&key("forked"), renew())).err();
        drop(inherited);
        let anew = Embedded::options().mode(mode).open(path).err();
        let checked = embedded::check(path).err();
        [refused, anew, checked].iter().flatten().filter(|error| error.to_string().contains("forked")).count()
            == 3
    });
    tell("the forked process", if has_succeeded(forked) { "was refused" } else { "was not refused" });
    let store = store.unwrap();
    let renewed = runtime().block_on(store.apply(&key("forked"), renew())).unwrap().outcome;
    tell("the parent", if matches!(renewed, Outcome::Renewed(_)) { "went on" } else { "lost its lease" });
    let _lives_on = fork_idle();
    wait_for("the signal", || path.with_file_name("go").exists().then_some(()));
    drop(store);
}
