//! What a file can suffer: it is refused with words that help, or it is whole. Never a panic, never a silent change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::job::JobText;
use leasehold_core::lease::{Bid, LossReason, OnSilence};
use leasehold_core::{Command, Job, JobCommand, JobOutcome, Key, Outcome, Slot};
use leasehold_store::clock::ManualClock;
use leasehold_store::{Embedded, Error, JobStore, Mode, Result, Retry, Store, embedded};
use tempfile::TempDir;

use crate::harness::{acquire, beside, bid, key, leases, meta, must_acquire, must_release, wait_for};

const HOUR: Duration = Duration::from_secs(3_600);
const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Opens with a clock that stands still, so that nothing changes by itself.
fn open(path: &Path, mode: Mode) -> Result<Embedded> {
    Embedded::options().mode(mode).clock(Arc::new(ManualClock::default())).open(path)
}

/// A folder with a store in it, and what is known of that store.
struct Scene {
    folder: TempDir,
    path: PathBuf,
    leases: Vec<(Key, Slot)>,
    jobs: Vec<(Key, Job)>,
    /// Lease ids that have ended, and the key of each.
    ended: Vec<(Key, Bid)>,
    last_fence: u64,
    /// The epoch that is recorded beside the file.
    record: Vec<u8>,
    /// The journal, if a crash has left one.
    journal: Option<Vec<u8>>,
}

/// What a machine that lost power now would find: the file, its log, the record of its epoch, and the journal if there is one.
fn found_after_a_crash(path: &Path) -> [Option<Vec<u8>>; 4] {
    ["", "-wal", ".epoch", ".journal"].map(|suffix| fs::read(beside(path, suffix)).ok())
}

impl Scene {
    /// A store with `count` leases, every third with meta and one with a request, and a released one for every fifth; and a
    /// job for every fourth, half of them done.
    /// It was closed in an orderly way.
    fn closed(mode: Mode, count: u64) -> Self {
        let scene = Self::with(mode, count, |_, _| {});
        for suffix in ["-wal", ".journal"] {
            assert!(!beside(&scene.path, suffix).exists(), "an orderly end leaves one file");
        }
        scene
    }

    /// The same, as a machine that lost power would find it.
    fn crashed(mode: Mode, count: u64) -> Self {
        let mut found = [None, None, None, None];
        let scene = Self::with(mode, count, |path, _| found = found_after_a_crash(path));
        scene.with_found(found)
    }

    /// The same, with these files in the place of its own.
    fn with_found(self, [main, log, record, journal]: [Option<Vec<u8>>; 4]) -> Self {
        let scene = Self { record: record.unwrap(), journal, ..self };
        scene.put(&main.unwrap());
        fs::write(scene.log(), log.unwrap()).unwrap();
        scene
    }

    fn with(mode: Mode, count: u64, at_the_end: impl FnOnce(&Path, &Embedded)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let store = open(&path, mode).unwrap();
        let jobs = runtime().block_on(add_jobs(&store, count));
        let (leases, ended, last_fence) = runtime().block_on(fill(&store, count));
        at_the_end(&path, &store);
        drop(store);
        let record = fs::read(beside(&path, ".epoch")).unwrap();
        Self { folder, path, leases, jobs, ended, last_fence, record, journal: None }
    }

    fn other(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> PathBuf {
        beside(&self.path, "-wal")
    }

    fn journal(&self) -> PathBuf {
        beside(&self.path, ".journal")
    }

    /// Puts these bytes in the place of the file, with nothing beside it but the record of its epoch, so that it is no copy, and its
    /// journal.
    fn put(&self, bytes: &[u8]) {
        for suffix in ["-wal", "-shm", ".lock", ".journal"] {
            let _ = fs::remove_file(beside(&self.path, suffix));
        }
        fs::write(&self.path, bytes).unwrap();
        fs::write(beside(&self.path, ".epoch"), &self.record).unwrap();
        self.journal.iter().for_each(|journal| fs::write(self.journal(), journal).unwrap());
    }

    /// Compares an open store with what is known, by every way of looking.
    async fn is_unchanged(&self, store: &Embedded) -> Result<()> {
        assert_eq!(leases(store).await?, self.leases);
        for (key, slot) in &self.leases {
            assert_eq!(&store.read(key).await?.slot, slot);
        }
        for (key, job) in &self.jobs {
            assert_eq!(store.apply_job(key, JobCommand::Settle).await?.record.job.as_ref(), Some(job));
        }
        for (key, bid) in &self.ended {
            let again = store.apply(key, Command::Acquire(bid.clone())).await?.outcome;
            let lost = matches!(again, Outcome::Lost { because: LossReason::Released, .. });
            assert!(lost, "an ended lease id came back: {again:?}");
        }
        let next = store.apply(&key("next"), Command::Acquire(bid("next", 999_999, HOUR))).await?.outcome;
        let Outcome::Granted { lease, .. } = next else { panic!("a free key was refused: {next:?}") };
        assert!(lease.fence.get() > self.last_fence, "{} after {}", lease.fence, self.last_fence);
        Ok(())
    }
}

async fn add_jobs(store: &Embedded, count: u64) -> Vec<(Key, Job)> {
    let text = |text: String| JobText::parse(&text).unwrap();
    let mut jobs = Vec::new();
    for id in (0..count).step_by(4) {
        let key = Key::parse(&format!("job/analyses/{id:04}")).unwrap();
        let payload = text(format!("{{\"page\": {id}}}"));
        let mut job =
            store.apply_job(&key, JobCommand::Create { payload, max_attempts: Some(3) }).await.unwrap();
        if id % 8 == 0 {
            let acquire = JobCommand::Acquire(bid("worker", 2_000_000 + id, HOUR));
            let JobOutcome::Acquired { lease, .. } = store.apply_job(&key, acquire).await.unwrap().outcome
            else {
                panic!("a new job was refused")
            };
            let claim = lease.proof();
            let result = text("done ".repeat(50));
            job = store.apply_job(&key, JobCommand::Complete { claim: claim.into(), result }).await.unwrap();
        }
        jobs.push((key, job.record.job.unwrap()));
    }
    jobs
}

async fn fill(store: &Embedded, count: u64) -> (Vec<(Key, Slot)>, Vec<(Key, Bid)>, u64) {
    let (mut ended, mut last_fence) = (Vec::new(), 0);
    for id in 0..count {
        let key = key(&format!("{id:04}"));
        let mut bid = bid("anna", id, HOUR);
        if id % 3 == 0 {
            bid.meta = meta(300);
        }
        let lease = must_acquire(store, &key, &bid).await;
        last_fence = lease.fence.get();
        if id % 5 == 0 {
            must_release(store, &key, &lease).await;
            ended.push((key, bid));
        } else if id == 1 {
            ask_for(store, &key, lease.fence).await;
        }
    }
    (leases(store).await.unwrap(), ended, last_fence)
}

async fn ask_for(store: &Embedded, key: &Key, seen: leasehold_core::Fence) {
    let bid = bid("ben", 1_000_001, HOUR);
    let (countdown, patience) = (bid.ttl, bid.ttl);
    let command = Command::RequestHandover { seen, bid, on_silence: OnSilence::Grant, countdown, patience };
    let asked = store.apply(key, command).await.unwrap().outcome;
    assert!(matches!(asked, Outcome::Requested { .. }), "{asked:?}");
}

/// A refusal names the file, and says it is none of those that a caller would try again.
fn assert_refused(path: &Path, error: &Error) {
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert!(
        matches!(error, Error::Damaged { .. } | Error::NotAStore { .. } | Error::Newer { .. }),
        "{error:?}"
    );
}

// --- files that are something else ---

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let foreign = folder.path().join("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE song (name TEXT)").unwrap();
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("empty", Vec::new(), "leasehold store repair"),
        ("text", b"Dear diary, ".repeat(100), "name another file"),
        ("short text", b"hello".to_vec(), "name another file"),
        ("another program's", fs::read(&foreign).unwrap(), "SQLite file of another program"),
        ("zeroes", vec![0; 8192], "name another file"),
    ];
    for (name, bytes, words) in cases {
        fs::write(&path, &bytes).unwrap();
        for mode in MODES {
            let error = open(&path, mode).err().expect(name);
            assert_refused(&path, &error);
            assert!(error.to_string().contains(words), "{name}: {error}");
            assert!(fs::read(&path).unwrap() == bytes, "{name} was changed");
        }
        assert_refused(&path, &embedded::check(&path).expect_err(name));
    }
}

#[test]
fn a_folder_or_a_missing_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for mode in MODES {
        let error = open(folder.path(), mode).err().unwrap();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
        let missing = folder.path().join("no/such/leases.db");
        let error = open(&missing, mode).err().unwrap();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("no/such does not exist: make it first"), "{error}");
    }
}

#[test]
fn a_newer_schema_is_refused_with_both_numbers() {
    let scene = Scene::closed(Mode::Exclusive, 3);
    for journal in ["DELETE", "WAL"] {
        let db = rusqlite::Connection::open(&scene.path).unwrap();
        db.pragma_update(None, "journal_mode", journal).unwrap();
        db.pragma_update(None, "user_version", 99).unwrap();
        drop(db);
        let bytes = fs::read(&scene.path).unwrap();
        for mode in MODES {
            let error = open(&scene.path, mode).err().unwrap();
            assert!(matches!(error, Error::Newer { found: 99, known: 5, .. }), "{error:?}");
            let message = error.to_string();
            assert!(
                message.contains("99") && message.contains("up to 5") && message.contains("upgrade"),
                "{message}"
            );
            assert!(fs::read(&scene.path).unwrap() == bytes, "{journal}");
        }
        assert!(matches!(embedded::check(&scene.path), Err(Error::Newer { .. })));
        assert!(
            matches!(embedded::repair(&scene.path, true), Err(Error::Newer { .. })),
            "repair knows no better"
        );
        assert!(fs::read(&scene.path).unwrap() == bytes);
    }
}

// --- damage ---

/// Opens a damaged file: either it is refused and left alone, or nothing of what it holds is different.
/// Answers whether it was refused.
fn refused_or_unchanged(scene: &Scene, mode: Mode, what: &str) -> bool {
    let bytes = fs::read(&scene.path).unwrap();
    let found = embedded::check(&scene.path);
    let found = found.map_or(true, |checked| !checked.problems.is_empty());
    let opened = open(&scene.path, mode);
    let refused = match opened {
        Err(error) => {
            assert!(fs::read(&scene.path).unwrap() == bytes, "{what}: refused, but changed");
            Some(error)
        }
        Ok(store) => runtime().block_on(scene.is_unchanged(&store)).err(),
    };
    if let Some(error) = &refused {
        assert_refused(&scene.path, error);
        assert!(found, "{what}: check finds nothing, yet {error}");
    }
    refused.is_some()
}

/// How many single bytes of a file the sweeps flip.
const FLIPS: usize = 400;

fn sweep(mode: Mode) {
    let scene = Scene::closed(mode, 200);
    let bytes = fs::read(&scene.path).unwrap();
    let mut refused = 0;
    // An odd step, so that every part of a page and of a row gets its turn; and the first page's header in full.
    let step = (bytes.len() / FLIPS) | 1;
    let offsets: Vec<_> = (0..100).chain((100..bytes.len()).step_by(step)).collect();
    for offset in &offsets {
        let mut flipped = bytes.clone();
        flipped[*offset] ^= 0x41;
        scene.put(&flipped);
        refused += usize::from(refused_or_unchanged(&scene, mode, &format!("byte {offset}")));
    }
    assert!(refused > offsets.len() / 4, "only {refused} of {} flips were noticed", offsets.len());
}

#[test]
fn a_flipped_byte_is_noticed_or_harmless_exclusive() {
    sweep(Mode::Exclusive);
}

#[test]
fn a_flipped_byte_is_noticed_or_harmless_shared() {
    sweep(Mode::Shared);
}

#[test]
fn a_truncated_file_is_refused() {
    let scene = Scene::closed(Mode::Exclusive, 200);
    let bytes = fs::read(&scene.path).unwrap();
    for length in [1, 50, 99, 100, 1_000, 4_096, 8_192, bytes.len() / 2, bytes.len() - 4_096] {
        for mode in MODES {
            scene.put(&bytes[..length]);
            assert!(
                refused_or_unchanged(&scene, mode, &format!("{length} bytes")),
                "{length} bytes are enough?"
            );
        }
    }
}

#[test]
fn a_row_that_damage_hides_is_missed() {
    // Once, a page of the table of endings that had come to say that it had fewer rows was believed: the rows that were
    // left were right, and an ended lease id was granted again. Slots have a sum over all of them, endings do not.
    for (mode, table, hidden) in [(Mode::Shared, "ending", 3), (Mode::Exclusive, "ending_pack", 1)] {
        let scene = Scene::closed(mode, 40);
        let page = first_page(&scene.path, table);
        let mut bytes = fs::read(&scene.path).unwrap();
        let sql = format!("SELECT count(*) FROM {table}");
        let db = rusqlite::Connection::open(&scene.path).unwrap();
        let rows: u8 = db.query_row(&sql, [], |row| row.get(0)).unwrap();
        drop(db);
        assert_eq!([bytes[page], bytes[page + 4]], [LEAF, rows], "all the endings are on one page");
        bytes[page + 4] -= hidden;
        scene.put(&bytes);
        assert!(refused_or_unchanged(&scene, mode, "fewer endings"));
    }
}

/// What a page of rows begins with; two bytes after the next two say how many there are.
const LEAF: u8 = 13;

#[test]
fn a_row_that_is_missing_altogether_is_missed() {
    for mode in MODES {
        for gone in [
            "slot WHERE key = 'run/0003'",
            "slot WHERE key = 'run/0005'",
            "job WHERE key = 'job/analyses/0004'",
            "store",
        ] {
            let scene = Scene::closed(mode, 100);
            tamper(&scene.path, &format!("DELETE FROM {gone}"));
            assert!(refused_or_unchanged(&scene, mode, gone), "{gone}");
        }
    }
}

/// Where in the file the first page of a table begins.
fn first_page(path: &Path, table: &str) -> usize {
    let db = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: u32 = db.query_row(sql, [table], |row| row.get(0)).unwrap();
    let size: u32 = db.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap();
    ((page - 1) * size) as usize
}

#[test]
fn in_shared_mode_too_a_damaged_key_is_not_a_free_one() {
    // Once, shared mode looked only at the rows that a command asked for. A key with a flipped letter was not found
    // under its own name, and so the lease was granted a second time.
    let scene = Scene::closed(Mode::Shared, 10);
    tamper(&scene.path, "UPDATE slot SET key = 'run/000r' WHERE key = 'run/0003'");
    let granted = open(&scene.path, Mode::Shared).and_then(|store| {
        let again = store.apply_now(&key("0003"), Command::Acquire(bid("ben", 77, HOUR)))?;
        Ok(matches!(again, Outcome::Granted { .. }))
    });
    assert_refused(&scene.path, &granted.expect_err("a second holder"));
}

/// Commands from a test that is not async.
trait ApplyNow {
    fn apply_now(&self, key: &Key, command: Command) -> Result<Outcome>;
}

impl ApplyNow for Embedded {
    fn apply_now(&self, key: &Key, command: Command) -> Result<Outcome> {
        runtime().block_on(self.apply(key, command)).map(|applied| applied.outcome)
    }
}

// --- the log ---

#[test]
fn a_crashed_store_opens_with_everything() {
    for crashed in MODES {
        for mode in MODES {
            let scene = Scene::crashed(crashed, 20);
            let store = open(&scene.path, mode).unwrap();
            runtime().block_on(scene.is_unchanged(&store)).unwrap();
            let again = Scene::crashed(crashed, 0);
            drop(open(&again.path, mode).expect("a crash right after the opening loses nothing"));
        }
    }
}

#[test]
fn a_missing_log_is_refused_as_often_as_it_is_tried() {
    // Once, only the first attempt was refused: it left the empty log behind that SQLite makes for every file it looks
    // at, and the second attempt took that for the log. Everything since the last write-back was silently gone.
    for mode in MODES {
        for how in ["deleted", "emptied"] {
            let scene = Scene::crashed(mode, 20);
            match how {
                "deleted" => fs::remove_file(scene.log()).unwrap(),
                _ => fs::write(scene.log(), b"").unwrap(),
            }
            for attempt in 1..=3 {
                let what = format!("{how}, attempt {attempt}");
                let checked = embedded::check(&scene.path).unwrap();
                assert!(
                    checked.problems.iter().any(|problem| problem.contains("-wal")),
                    "{what}: {checked:?}"
                );
                let error = open(&scene.path, mode).err().expect(&what);
                assert_refused(&scene.path, &error);
                let message = error.to_string();
                assert!(message.contains("-wal") && message.contains("leasehold store repair"), "{message}");
            }
            assert_repairs(&scene, how);
        }
    }
}

fn assert_repairs(scene: &Scene, what: &str) {
    let repaired = embedded::repair(&scene.path, false).unwrap();
    let kept_as = repaired.kept_as.expect("the old file is kept");
    assert!(kept_as.exists() && kept_as != scene.path, "{what}");
    assert!(
        repaired.last_fence >= scene.last_fence + embedded::JUMP / 2,
        "{what}: the fence moves far ahead"
    );
    let store = open(&scene.path, Mode::Exclusive).unwrap();
    let bid = bid("next", 999_999, HOUR);
    let lease = runtime().block_on(must_acquire(&store, &key("next"), &bid));
    assert!(lease.fence.get() > repaired.last_fence, "{what}");
}

#[test]
fn a_log_without_its_file_is_not_played_into_a_new_one() {
    // Once, a file that was deleted while its log was left began anew, and SQLite played the old log into the new file.
    for mode in MODES {
        let scene = Scene::crashed(mode, 20);
        fs::remove_file(&scene.path).unwrap();
        let log = fs::read(scene.log()).unwrap();
        let error = open(&scene.path, mode).err().unwrap();
        assert_refused(&scene.path, &error);
        assert!(error.to_string().contains("-wal"), "{error}");
        assert!(!scene.path.exists() && fs::read(scene.log()).unwrap() == log, "all was left as it is");
    }
}

#[test]
fn a_restore_in_the_place_of_a_deleted_file_moves_its_log_away() {
    // Once, the log of a deleted file stayed where it was and was played into the restored one.
    let scene = Scene::crashed(Mode::Exclusive, 20);
    let other = Scene::closed(Mode::Exclusive, 3);
    let backup = scene.other("backup.db");
    embedded::backup(&other.path, &backup).unwrap();
    fs::remove_file(&scene.path).unwrap();
    embedded::restore(&backup, &scene.path).unwrap();
    assert!(!scene.log().exists());
    let store = open(&scene.path, Mode::Exclusive).unwrap();
    let keys = |leases: &[(Key, Slot)]| leases.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&runtime().block_on(leases(&store)).unwrap()), keys(&other.leases));
}

/// SQLite ends its log at the first frame with a wrong checksum, without a word: one flipped byte undid every grant that
/// was acknowledged after it. Now such a log is refused, unless only its last commit is concerned: that could as well be
/// a write that a crash tore. The same holds for the journal.
#[test]
fn a_flipped_byte_in_log_or_journal_is_refused_or_concerns_the_last_commit_alone() {
    for mode in MODES {
        let (scene, past) = crashed_with_past(mode, 30);
        let file = if mode == Mode::Exclusive { scene.journal() } else { scene.log() };
        let (main, log, whole) =
            (fs::read(&scene.path).unwrap(), fs::read(scene.log()).unwrap(), fs::read(&file).unwrap());
        let (mut refused, mut opened) = (0, 0);
        let end = if mode == Mode::Exclusive { last_used(&whole) } else { end_of(&whole) };
        for (turn, offset) in (0..end).step_by((end / 150) | 1).enumerate() {
            let mut flipped = whole.clone();
            flipped[offset] ^= 0x41;
            scene.put(&main);
            fs::write(scene.log(), &log).unwrap();
            fs::write(&file, &flipped).unwrap();
            match open(&scene.path, MODES[turn % 2]) {
                Err(error) => {
                    assert_refused(&scene.path, &error);
                    assert!(fs::read(&file).unwrap() == flipped, "it is left as it is");
                    refused += 1;
                }
                Ok(store) => {
                    let found = runtime().block_on(leases(&store)).unwrap();
                    let last_two = &past[past.len() - 2..];
                    assert!(
                        last_two.contains(&found),
                        "byte {offset}: {} of {} leases",
                        found.len(),
                        past.len() - 1
                    );
                    opened += 1;
                }
            }
        }
        assert!(refused > 10 * opened, "{mode:?}: {refused} refused, {opened} opened");
    }
}

/// Where the zeros begin that nothing has been written over yet.
fn last_used(journal: &[u8]) -> usize {
    journal.iter().rposition(|byte| *byte != 0).unwrap()
}

/// A journal of which a part is gone is not taken for a shorter one.
#[test]
fn a_journal_that_is_not_all_there_is_refused_and_what_is_left_of_it_is_repaired() {
    let (scene, past) = crashed_with_past(Mode::Exclusive, 30);
    let (main, log) = (fs::read(&scene.path).unwrap(), fs::read(scene.log()).unwrap());
    let whole = scene.journal.clone().unwrap();
    let end = last_used(&whole);
    let mut flipped = whole.clone();
    flipped[end / 2] ^= 1;
    let cases = [
        ("deleted", None, 0),
        ("emptied", Some(Vec::new()), 0),
        ("zeroed", Some(vec![0; whole.len()]), 0),
        ("cut off", Some(whole[..end / 2].to_vec()), 0),
        ("cut off at its end", Some(whole[..whole.len() - 1].to_vec()), 0),
        ("with a flipped bit", Some(flipped), past.len() / 3),
    ];
    for (turn, (what, journal, kept)) in cases.into_iter().enumerate() {
        scene.put(&main);
        fs::write(scene.log(), &log).unwrap();
        match journal {
            None => fs::remove_file(scene.journal()).unwrap(),
            Some(bytes) => fs::write(scene.journal(), bytes).unwrap(),
        }
        let checked = embedded::check(&scene.path).unwrap();
        assert!(checked.problems.iter().any(|problem| problem.contains("journal")), "{what}: {checked:?}");
        for attempt in 1..=2 {
            let error = open(&scene.path, MODES[turn % 2]).err().expect(what);
            assert_refused(&scene.path, &error);
            let message = error.to_string();
            assert!(message.contains("journal") && message.contains("leasehold store repair"), "{message}");
            assert_eq!(scene.journal().exists(), what != "deleted", "attempt {attempt} left all as it was");
        }
        let before = fs::read(scene.journal()).ok();
        let repaired = embedded::repair(&scene.path, false).unwrap();
        assert!(repaired.leases >= kept && !repaired.lost.is_empty(), "{what}: {repaired:?}");
        let kept_as = repaired.kept_as.unwrap();
        assert!(fs::read(beside(&kept_as, ".journal")).ok() == before, "{what}: it is kept");
        assert!(!scene.journal().exists(), "{what}: it belongs to the old file");
        let store = open(&scene.path, Mode::Exclusive).unwrap();
        let lease = runtime().block_on(must_acquire(&store, &key("next"), &bid("next", 999_999, HOUR)));
        assert!(lease.fence.get() > repaired.last_fence, "{what}");
    }
}

/// The commit that begins the journal was once the last of SQLite's log, where one flipped bit is taken for a torn write: the store
/// opened without its journal, and wiped it.
#[test]
fn a_flipped_byte_in_the_log_does_not_cost_the_journal() {
    let (scene, past) = crashed_with_past(Mode::Exclusive, 30);
    let (main, log) = (fs::read(&scene.path).unwrap(), fs::read(scene.log()).unwrap());
    let mut opened = 0;
    for (turn, offset) in (0..log.len()).step_by((log.len() / 150) | 1).enumerate() {
        let mut flipped = log.clone();
        flipped[offset] ^= 0x41;
        scene.put(&main);
        fs::write(scene.log(), &flipped).unwrap();
        match open(&scene.path, MODES[turn % 2]) {
            Err(error) => assert_refused(&scene.path, &error),
            Ok(store) => {
                let found = runtime().block_on(leases(&store)).unwrap();
                assert_eq!(&found, past.last().unwrap(), "byte {offset}");
                opened += 1;
            }
        }
    }
    assert!(opened > 0);
}

#[test]
fn a_journal_without_its_file_is_left_where_it_is() {
    let scene = Scene::crashed(Mode::Exclusive, 20);
    let journal = scene.journal.clone().unwrap();
    for file in [scene.path.clone(), scene.log()] {
        fs::remove_file(file).unwrap();
    }
    for mode in MODES {
        let error = open(&scene.path, mode).err().unwrap();
        assert!(error.to_string().contains(".journal"), "{error}");
        assert!(!scene.path.exists() && fs::read(scene.journal()).unwrap() == journal, "{mode:?}");
    }
}

/// A copy of a closed file that is put over one that was left by a crash has a journal beside it that is not its own.
#[test]
fn a_journal_of_the_file_before_is_set_aside() {
    let closed = Scene::closed(Mode::Exclusive, 5);
    let scene = Scene::crashed(Mode::Exclusive, 20);
    let journal = scene.journal.clone().unwrap();
    fs::copy(&closed.path, &scene.path).unwrap();
    fs::remove_file(scene.log()).unwrap();
    drop(open(&scene.path, Mode::Exclusive).unwrap());
    let beside_it = fs::read_dir(scene.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let aside: Vec<_> = beside_it.filter(|path| path.to_string_lossy().contains(".aside-")).collect();
    assert_eq!(aside.len(), 1);
    assert!(fs::read(&aside[0]).unwrap() == journal);
}

/// A process that dies between its last commit and the removal of its journal leaves one that nobody needs.
#[test]
fn a_journal_that_is_not_needed_any_more_is_in_nobodys_way() {
    for (first, second) in MODES.into_iter().flat_map(|one| MODES.map(|other| (one, other))) {
        let scene = Scene::closed(Mode::Exclusive, 5);
        fs::write(scene.journal(), vec![7; 40_000]).unwrap();
        assert_eq!(embedded::check(&scene.path).unwrap().problems, [""; 0]);
        let store = open(&scene.path, first).unwrap();
        assert_eq!(scene.journal().exists(), first == Mode::Exclusive);
        assert_eq!(runtime().block_on(leases(&store)).unwrap(), scene.leases);
        drop(store);
        runtime().block_on(scene.is_unchanged(&open(&scene.path, second).unwrap())).unwrap();
        assert!(!scene.journal().exists(), "{first:?}, {second:?}");
    }
}

/// The journal is beside the file itself, and not beside a symbolic link to it.
#[test]
#[cfg(unix)]
fn a_backup_through_a_link_has_the_journal() {
    let scene = Scene::crashed(Mode::Exclusive, 20);
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&scene.path, &link).unwrap();
    let copied = embedded::backup(&link, folder.path().join("copy.db")).unwrap();
    assert_eq!(copied.checked.leases, scene.leases.len());
    let restored = embedded::restore(&link, folder.path().join("restored.db")).unwrap();
    assert_eq!(restored.leases, scene.leases.len());
}

/// The journal of another opening, or of another store, is none of this one's.
#[test]
fn a_journal_of_another_store_is_refused() {
    let (scene, other) = (Scene::crashed(Mode::Exclusive, 20), Scene::crashed(Mode::Exclusive, 30));
    fs::copy(other.journal(), scene.journal()).unwrap();
    for mode in MODES {
        assert_refused(&scene.path, &open(&scene.path, mode).err().unwrap());
    }
}

/// A damaged row of the store itself names neither the epoch nor the first record of the journal.
#[test]
fn a_repair_without_the_header_keeps_the_journal() {
    let (scene, past) = crashed_with_past(Mode::Exclusive, 100);
    tamper(&scene.path, "UPDATE store SET sum = 0");
    assert_refused(&scene.path, &open(&scene.path, Mode::Exclusive).err().unwrap());
    let repaired = embedded::repair(&scene.path, false).unwrap();
    assert_eq!(repaired.leases, past.last().unwrap().len());
}

/// A repair that could not tell how many lease ids have ended once left the whole journal out: acknowledged leases.
#[test]
fn a_repair_keeps_the_journal_when_packs_are_damaged() {
    let (scene, past) = crashed_with_past(Mode::Exclusive, 100);
    let db = rusqlite::Connection::open(&scene.path).unwrap();
    let journalled: i64 = db.query_row("SELECT journal FROM store", [], |row| row.get(0)).unwrap();
    assert!(journalled > 1, "some of it is in the tables by now");
    let _: i64 = db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)).unwrap();
    db.execute_batch("UPDATE store SET sum = sum + 1; UPDATE store SET sum = sum - 1").unwrap();
    let [mut main, log] = ["", "-wal"].map(|suffix| fs::read(beside(&scene.path, suffix)).unwrap());
    drop(db);
    for table in ["ending", "ending_pack"] {
        let page = first_page(&scene.path, table);
        main[page] ^= 0xFF;
    }
    scene.put(&main);
    fs::write(scene.log(), &log).unwrap();
    assert_refused(&scene.path, &open(&scene.path, Mode::Exclusive).err().unwrap());
    let repaired = embedded::repair(&scene.path, false).unwrap();
    assert_eq!(repaired.leases, past.last().unwrap().len());
    assert!(!repaired.lost.is_empty(), "it says what could not be kept");
}

/// One damaged row of a pack once cost all the others.
#[test]
fn a_repair_keeps_the_other_rows_of_a_damaged_pack() {
    let scene = Scene::closed(Mode::Exclusive, 60);
    let db = rusqlite::Connection::open(&scene.path).unwrap();
    let (last, mut rows): (i64, Vec<u8>) = db
        .query_row("SELECT last, rows FROM ending_pack ORDER BY length(rows) DESC LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    let (gone, _) = scene.ended.iter().find(|(key, _)| position(&rows, key.as_str()).is_some()).unwrap();
    let at = position(&rows, gone.as_str()).unwrap();
    rows[at] ^= 1;
    db.execute("UPDATE ending_pack SET rows = ?1 WHERE last = ?2", rusqlite::params![rows, last]).unwrap();
    drop(db);
    assert_refused(&scene.path, &open(&scene.path, Mode::Exclusive).err().unwrap());
    let repaired = embedded::repair(&scene.path, false).unwrap();
    assert_eq!(repaired.lost.len(), 1, "{:?}", repaired.lost);
    let store = open(&scene.path, Mode::Exclusive).unwrap();
    for (key, bid) in scene.ended.iter().filter(|(key, _)| key != gone) {
        let again = store.apply_now(key, Command::Acquire(bid.clone())).unwrap();
        assert!(matches!(again, Outcome::Lost { .. }), "{key:?}: {again:?}");
    }
}

fn position(bytes: &[u8], text: &str) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text.as_bytes())
}

#[test]
fn a_journal_serves_callers_that_only_look_and_goes_with_an_orderly_end() {
    let scene = Scene::with(Mode::Exclusive, 150, |path, _| {
        assert_private(&beside(path, ".journal"));
        assert_eq!(embedded::check(path).unwrap().problems, [""; 0]);
        let copied = embedded::backup(path, beside(path, ".copy")).unwrap();
        assert_eq!(copied.checked.leases, 120);
    });
    assert!(!scene.log().exists() && !scene.journal().exists(), "an orderly end leaves one file");
    let copied = embedded::peek(beside(&scene.path, ".copy"), &leasehold_store::Range::all()).unwrap();
    assert_eq!(copied.slots, scene.leases);
    let store = open(&scene.path, Mode::Shared).unwrap();
    runtime().block_on(scene.is_unchanged(&store)).unwrap();
}

/// Where the frames end that were written since the log was last begun anew. Behind them there may be older ones.
fn end_of(log: &[u8]) -> usize {
    const HEADER: usize = 32;
    const FRAME: usize = 24 + 2_048;
    let is_new = |frame: &&[u8]| frame[8..16] == log[16..24];
    HEADER + log[HEADER..].chunks_exact(FRAME).take_while(is_new).count() * FRAME
}

/// The first record of the journal that the tables do not have.
fn first_record_needed(path: &Path) -> i64 {
    let db = rusqlite::Connection::open(path).unwrap();
    db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    db.query_row("SELECT journal FROM store", [], |row| row.get(0)).unwrap()
}

/// A crashed store, and all leases after each of its commands.
fn crashed_with_past(mode: Mode, count: u64) -> (Scene, Vec<Vec<(Key, Slot)>>) {
    let mut past = vec![Vec::new()];
    let mut found = [None, None, None, None];
    let scene = Scene::with(mode, 0, |path, store| {
        runtime().block_on(async {
            for id in 0..count {
                must_acquire(store, &key(&format!("{id:04}")), &bid("anna", id, HOUR)).await;
                past.push(leases(store).await.unwrap());
            }
        });
        if mode == Mode::Exclusive && count >= 100 {
            wait_for("the first region of the journal to be in the tables", || {
                (first_record_needed(path) > 1).then_some(())
            });
        }
        found = found_after_a_crash(path);
    });
    (scene.with_found(found), past)
}

// --- repair, backup, restore ---

/// Changes a value behind the back of its checksum.
fn tamper(path: &Path, sql: &str) {
    assert_eq!(rusqlite::Connection::open(path).unwrap().execute(sql, []).unwrap(), 1, "{sql}");
}

#[test]
fn a_repair_keeps_all_but_the_damaged_slot() {
    let scene = Scene::closed(Mode::Exclusive, 100);
    tamper(&scene.path, "UPDATE slot SET fence = fence + 1 WHERE key = 'run/0003'");
    let bytes = fs::read(&scene.path).unwrap();
    assert_refused(&scene.path, &open(&scene.path, Mode::Exclusive).err().unwrap());
    let repaired = embedded::repair(&scene.path, false).unwrap();
    assert_eq!(repaired.leases, scene.leases.len() - 1);
    assert!(repaired.lost.iter().any(|lost| lost.contains("run/0003")), "{:?}", repaired.lost);
    assert!(repaired.last_fence >= scene.last_fence + embedded::JUMP);
    assert!(fs::read(repaired.kept_as.unwrap()).unwrap() == bytes, "the damaged file is kept as it was");
    assert_eq!(embedded::check(&scene.path).unwrap().problems, [""; 0]);
    let store = open(&scene.path, Mode::Exclusive).unwrap();
    let found = runtime().block_on(leases(&store)).unwrap();
    assert!(found.iter().all(|(key, slot)| scene.had(key, slot)), "what is kept is as it was");
    let (key, bid) = &scene.ended[0];
    let again = store.apply_now(key, Command::Acquire(bid.clone())).unwrap();
    assert!(matches!(again, Outcome::Lost { .. }), "an ended lease id is remembered: {again:?}");
}

impl Scene {
    /// Whether this lease was there. Its sequence number has moved ahead of all events that the lost part of history can have had.
    fn had(&self, key: &Key, slot: &Slot) -> bool {
        let is_it = |before: &Slot| before.lease == slot.lease && slot.seq >= before.seq + embedded::JUMP;
        self.leases.iter().any(|(known, before)| known == key && is_it(before))
    }
}

#[test]
fn a_repair_of_garbage_needs_to_be_told_to_start_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    for garbage in [b"".to_vec(), b"garbage ".repeat(1_000)] {
        fs::write(&path, &garbage).unwrap();
        let error = embedded::repair(&path, false).unwrap_err();
        assert!(error.to_string().contains("--start-empty"), "{error}");
        assert!(fs::read(&path).unwrap() == garbage, "refused, and left alone");
        let repaired = embedded::repair(&path, true).unwrap();
        assert_eq!(repaired.leases, 0);
        assert!(!repaired.lost.is_empty(), "it says what could not be kept");
        assert!(fs::read(repaired.kept_as.unwrap()).unwrap() == garbage);
        drop(open(&path, Mode::Exclusive).unwrap());
    }
}

#[test]
fn a_repair_without_the_header_learns_the_last_fence_from_events() {
    // Once, a repair of a file without its header knew only the fences of live leases. After two restores, the fence of
    // a released lease was larger than the wall clock and one jump, and so the same fences were given out again.
    let scene = Scene::closed(Mode::Exclusive, 0);
    for name in ["first.db", "second.db"] {
        embedded::backup(&scene.path, scene.other(name)).unwrap();
        embedded::restore(scene.other(name), &scene.path).unwrap();
    }
    let before = {
        let store = open(&scene.path, Mode::Exclusive).unwrap();
        runtime().block_on(async {
            let lease = must_acquire(&store, &key("a"), &bid("anna", 1, HOUR)).await;
            must_release(&store, &key("a"), &lease).await;
            lease.fence.get()
        })
    };
    tamper(&scene.path, "UPDATE store SET sum = 0");
    let repaired = embedded::repair(&scene.path, false).unwrap();
    assert!(repaired.last_fence >= before + embedded::JUMP, "{} after {before}", repaired.last_fence);
}

#[test]
fn a_restore_moves_the_fence_far_ahead_and_keeps_the_old_file() {
    let scene = Scene::crashed(Mode::Exclusive, 20);
    let backup = scene.other("backup.db");
    let copied = embedded::backup(&scene.path, &backup).unwrap();
    assert_eq!(copied.checked.leases, scene.leases.len());
    let (main, log) = (fs::read(&scene.path).unwrap(), fs::read(scene.log()).unwrap());
    let restored = embedded::restore(&backup, &scene.path).unwrap();
    assert!(restored.last_fence >= scene.last_fence + (1 << 32));
    let kept_as = restored.kept_as.unwrap();
    assert!(fs::read(&kept_as).unwrap() == main && fs::read(beside(&kept_as, "-wal")).unwrap() == log);
    assert!(!scene.log().exists() && !beside(&scene.path, "-shm").exists());
    assert_private(&scene.path);
    let store = open(&scene.path, Mode::Exclusive).unwrap();
    let found = runtime().block_on(leases(&store)).unwrap();
    assert_eq!(found.len(), scene.leases.len());
    assert!(found.iter().all(|(key, slot)| scene.had(key, slot)));
    let next = runtime().block_on(must_acquire(&store, &key("next"), &bid("next", 999_999, HOUR)));
    assert!(next.fence.get() > scene.last_fence + (1 << 32));
}

#[test]
fn a_restore_refuses_a_damaged_backup_and_a_store_in_use() {
    let scene = Scene::closed(Mode::Exclusive, 20);
    let backup = scene.other("backup.db");
    embedded::backup(&scene.path, &backup).unwrap();
    let (whole, before) = (fs::read(&backup).unwrap(), fs::read(&scene.path).unwrap());
    for mode in MODES {
        let store = open(&scene.path, mode).unwrap();
        let error = embedded::restore(&backup, &scene.path).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error:?}");
        let error = embedded::repair(&scene.path, true).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error:?}");
        runtime().block_on(leases(&store)).expect("and nothing has happened to it");
    }
    scene.put(&before);
    tamper(&backup, "UPDATE slot SET fence = fence + 1 WHERE key = 'run/0003'");
    let tampered = fs::read(&backup).unwrap();
    for damaged in [tampered, whole[..whole.len() / 2].to_vec(), b"garbage ".repeat(1_000), Vec::new()] {
        fs::write(&backup, &damaged).unwrap();
        assert_refused(&backup, &embedded::restore(&backup, &scene.path).unwrap_err());
        assert!(fs::read(&scene.path).unwrap() == before, "the store was left alone");
    }
}

#[cfg(unix)]
fn assert_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{}", path.display());
}

#[cfg(not(unix))]
fn assert_private(_: &Path) {}

#[test]
fn every_file_is_private() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let store = open(&path, mode).unwrap();
        runtime().block_on(must_acquire(&store, &key("a"), &bid("anna", 1, HOUR)));
        embedded::backup(&path, folder.path().join("backup.db")).unwrap();
        let made: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let expected = if mode == Mode::Exclusive { 7 } else { 6 };
        assert_eq!(
            made.len(),
            expected,
            "the file, its log, the log's index, the journal of one that is alone, the lock, the epoch, the backup, and no \
             draft: {made:?}"
        );
        made.iter().for_each(|path| assert_private(path));
    }
}

/// Everybody's leases come in pairs, and a copy that was made in between two transactions would show halves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_busy_store_is_one_moment() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let store = Arc::new(open(&path, mode).unwrap());
        let busy = tokio::spawn(keep_busy(store.clone()));
        let mut last = 0;
        for copy in 0..5 {
            while store.list(&leasehold_store::Range::all()).await.unwrap().position.0 < last + 10 {
                tokio::task::yield_now().await;
            }
            let target = folder.path().join(format!("backup-{copy}.db"));
            let (from, to) = (path.clone(), target.clone());
            let copied =
                tokio::task::spawn_blocking(move || embedded::backup(from, to)).await.unwrap().unwrap();
            assert_eq!(copied.checked.problems, [""; 0]);
            assert_private(&target);
            last = embedded::peek(&target, &leasehold_store::Range::all()).unwrap().position.0;
            assert!(copied.checked.events as u64 == last, "the events and the counters are of one moment");
        }
        busy.abort();
        let _ = busy.await;
        let error = embedded::backup(&path, folder.path().join("backup-0.db")).unwrap_err();
        assert!(
            matches!(error, Error::Invalid(_)) && error.to_string().contains("already exists"),
            "{error}"
        );
    }
}

async fn keep_busy(store: Arc<Embedded>) {
    for id in 0.. {
        // No owner has more than it may.
        let owner = format!("anna-{}", id / 1_000);
        must_acquire(store.as_ref(), &key(&format!("busy-{id}")), &bid(&owner, id, HOUR)).await;
    }
}

#[test]
fn a_backup_of_damage_is_refused_and_leaves_nothing() {
    // Once, the copy was put in its place first and checked then: whoever did not read the message had a backup that
    // could not be restored, and the message blamed the copy.
    let scene = Scene::closed(Mode::Exclusive, 20);
    tamper(&scene.path, "UPDATE slot SET fence = fence + 1 WHERE key = 'run/0003'");
    let target = scene.other("backup.db");
    assert_refused(&scene.path, &embedded::backup(&scene.path, &target).unwrap_err());
    assert!(!target.exists());
}

// --- who may open it ---

#[test]
fn the_modes_refuse_each_other_and_name_the_process() {
    let cases = [
        (Mode::Exclusive, Mode::Exclusive, "stop the other"),
        (Mode::Exclusive, Mode::Shared, "stop it"),
        (Mode::Shared, Mode::Exclusive, "mode=shared"),
    ];
    for (first, second, fix) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let store = open(&path, first).unwrap();
        let error = open(&path, second).err().expect("the second one is refused");
        assert!(matches!(error, Error::InUse { .. }) && error.retry() == Retry::Safe, "{error:?}");
        let (message, process) = (error.to_string(), format!("process {}", std::process::id()));
        for words in [path.to_str().unwrap(), &process, fix] {
            assert!(message.contains(words), "{first:?} then {second:?}: {message:?} lacks {words:?}");
        }
        drop(store);
        drop(open(&path, second).expect("the first one is gone"));
    }
}

#[test]
fn two_may_share_a_file_in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let clock = Arc::new(ManualClock::default());
    let stores = [(); 2].map(|()| {
        clock.advance(Duration::from_secs(5));
        Embedded::options().mode(Mode::Shared).clock(clock.clone()).open(&path).unwrap()
    });
    runtime().block_on(async {
        let (first, second) = (stores[0].now().await.unwrap(), stores[1].now().await.unwrap());
        assert!(
            first == second && first.as_millis() == 5_000,
            "who joins changes nobody's clock: {first:?}, {second:?}"
        );
        let lease = must_acquire(&stores[0], &key("a"), &bid("anna", 1, HOUR)).await;
        let held = acquire(&stores[1], &key("a"), &bid("ben", 2, HOUR)).await;
        assert!(matches!(held, Outcome::Held(held) if held.fence == lease.fence));
    });
    let [first, second] = stores;
    drop(first);
    runtime().block_on(must_acquire(&second, &key("b"), &bid("ben", 3, HOUR)));
    assert!(matches!(open(&path, Mode::Exclusive), Err(Error::InUse { .. })), "one of them is still there");
    drop(second);
    drop(open(&path, Mode::Exclusive).unwrap());
}

#[test]
#[cfg(unix)]
fn another_name_leads_to_the_same_lock() {
    // Once, a symbolic link had a lock of its own: two processes had the same file exclusively, and gave out the same
    // fences. And since the log lies beside the file and not beside the link, a crashed store looked damaged.
    for (first, second) in [("leases.db", "link.db"), ("link.db", "leases.db")] {
        let scene = Scene::crashed(Mode::Exclusive, 5);
        std::os::unix::fs::symlink(&scene.path, scene.other("link.db")).unwrap();
        let store = open(&scene.other(first), Mode::Exclusive).unwrap();
        assert!(matches!(open(&scene.other(second), Mode::Exclusive), Err(Error::InUse { .. })));
        assert_eq!(embedded::check(scene.other("link.db")).unwrap().problems, [""; 0]);
        runtime().block_on(scene.is_unchanged(&store)).unwrap();
    }
}

#[test]
#[cfg(unix)]
fn a_link_to_nowhere_is_no_new_beginning() {
    // Once, a link to a file on a disk that was not mounted was replaced by an empty store.
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("leases.db");
    std::os::unix::fs::symlink(folder.path().join("not-mounted/leases.db"), &link).unwrap();
    for mode in MODES {
        let error = open(&link, mode).err().unwrap();
        assert!(
            matches!(error, Error::Unavailable { .. }) && error.to_string().contains("leases.db"),
            "{error}"
        );
        assert!(link.is_symlink());
    }
}

#[test]
fn threads_that_make_the_same_file_make_one() {
    // Once, the draft of a new file was named after the process alone: two threads, or two containers in which both are
    // process 1, wrote into each other's draft, and a half made one could get the name.
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let start = std::sync::Barrier::new(4);
        let open_one = |id| {
            start.wait();
            let store = open(&path, Mode::Shared).unwrap();
            let bid = bid("anna", id, HOUR);
            let lease = runtime().block_on(must_acquire(&store, &key(&format!("{id}")), &bid));
            // The store too, so that nobody ends it for the others.
            (store, lease.fence)
        };
        let open_one = &open_one;
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|id| scope.spawn(move || open_one(id))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut fences: Vec<_> = opened.iter().map(|(_, fence)| *fence).collect();
        fences.sort();
        assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "one counter: {fences:?}");
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let drafts = names.filter(|name| name.to_string_lossy().contains(".new")).count();
        assert_eq!(drafts, 0);
    }
}

#[test]
fn everything_goes_along_from_mode_to_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let clock = Arc::new(ManualClock::default());
    let (mut last_now, mut last_fence) = (leasehold_core::StoreTime::ZERO, 0);
    let (kept, over) = (bid("anna", 1, HOUR), bid("anna", 2, HOUR));
    let turns = [Mode::Exclusive, Mode::Shared, Mode::Exclusive, Mode::Shared, Mode::Shared, Mode::Exclusive];
    for (turn, mode) in turns.into_iter().enumerate() {
        let store = Embedded::options().mode(mode).clock(clock.clone()).open(&path).unwrap();
        runtime().block_on(async {
            let now = store.now().await.unwrap();
            assert!(now >= last_now, "turn {turn}: the clock went back from {last_now:?} to {now:?}");
            let fence = must_acquire(&store, &key("kept"), &kept).await.fence;
            if turn == 0 {
                let lease = must_acquire(&store, &key("over"), &over).await;
                must_release(&store, &key("over"), &lease).await;
            } else {
                assert!(fence.get() < last_fence, "turn {turn}: the same lease, extended");
            }
            let again = acquire(&store, &key("over"), &over).await;
            assert!(matches!(again, Outcome::Lost { .. }), "turn {turn}: {again:?}");
            let name = key(&format!("turn-{turn}"));
            let next = must_acquire(&store, &name, &bid("ben", 10 + turn as u64, HOUR)).await;
            assert!(next.fence.get() > last_fence, "turn {turn}");
            last_fence = next.fence.get();
            clock.advance(Duration::from_millis(700));
            last_now = store.now().await.unwrap();
            assert!(last_now > now, "turn {turn}: the clock moves");
        });
        drop(store);
        if turn % 2 == 0 {
            clock.reboot();
        }
    }
}

/// Shared processes live by the machine's clock, for a holder may be alive while no process has the file open. An
/// exclusive store's holders cannot renew while it is down.
#[test]
fn while_nobody_has_the_file_only_the_shared_clock_runs() {
    let away = Duration::from_secs(7);
    for (first, second) in MODES.into_iter().flat_map(|first| MODES.map(|second| (first, second))) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let clock = Arc::new(ManualClock::default());
        let now = |mode| {
            let store = Embedded::options().mode(mode).clock(clock.clone()).open(&path).unwrap();
            runtime().block_on(store.now()).unwrap()
        };
        let before = now(first);
        clock.advance(away);
        let passed = now(second).since(before);
        let expected = if first == Mode::Shared { away } else { Duration::ZERO };
        assert_eq!(passed, expected, "{first:?} then {second:?}");
    }
}

// --- the writer ---

/// A clock that breaks on demand.
#[derive(Default)]
struct BrokenClock(std::sync::atomic::AtomicBool);

impl leasehold_store::clock::Clock for BrokenClock {
    fn millis(&self) -> u64 {
        assert!(!self.0.load(std::sync::atomic::Ordering::SeqCst), "broken on purpose");
        0
    }

    fn boot(&self) -> String {
        "boot".into()
    }
}

#[tokio::test]
async fn a_writer_that_is_gone_answers_nobody_with_silence() {
    // Once, the queue stayed open after the writer thread had panicked, and whoever asked anything waited for ever.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let clock = Arc::new(BrokenClock::default());
    let store = Embedded::options().clock(clock.clone()).open(&path).unwrap();
    let lease = must_acquire(&store, &key("a"), &bid("anna", 1, HOUR)).await;
    clock.0.store(true, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..3 {
        let asked = tokio::time::timeout(Duration::from_secs(10), store.now()).await;
        assert!(matches!(asked.expect("an answer"), Err(Error::Closed)));
    }
    drop(store);
    let store = open(&path, Mode::Exclusive).unwrap();
    assert_eq!(leases(&store).await.unwrap()[0].1.lease, Some(lease), "what was acknowledged is there");
}

#[tokio::test]
async fn law_12_events_that_end_no_lease_are_bounded_in_the_file_too() {
    // Once, the rows of old events were deleted only along with those of ended leases, or when more than a thousand had
    // come in one turn. A lease that somebody left and came back to for ever made the file grow for ever.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = Arc::new(open(&path, Mode::Exclusive).unwrap());
    let (key, bid) = (key("a"), bid("anna", 1, HOUR));
    let lease = must_acquire(store.as_ref(), &key, &bid).await;
    let leave = Command::SoftRelease { lease_id: lease.lease_id, grace: leasehold_core::Ttl::MIN };
    let come_back = Command::Acquire(bid);
    const PAIRS: usize = 400;
    // What is not deleted yet, a row of events that some of the last ones are in, and what has no row yet.
    let most = leasehold_store::EVENTS_KEPT + 1_000 + 2 * 4_500;
    for _ in 0..=most / (2 * PAIRS) {
        let pairs = (0..PAIRS).flat_map(|_| [leave.clone(), come_back.clone()]);
        let mut asked = tokio::task::JoinSet::new();
        for command in pairs {
            let (store, key) = (store.clone(), key.clone());
            asked.spawn(async move { store.apply(&key, command).await.unwrap() });
        }
        asked.join_all().await;
    }
    let told = leases(store.as_ref()).await.unwrap()[0].1.seq;
    assert!(told > most as u64, "only {told} events");
    let kept = embedded::check(&path).unwrap().events;
    assert!((leasehold_store::EVENTS_KEPT..most).contains(&kept), "{kept} rows");
}
