//! The audit: every take-over and forced release of a document, one line of JSON each, in a file that only grows.
//!
//! It follows the store's feed, not the requests: a committed change is recorded even when the server died before it
//! answered. After a restart it resumes after its last line; where the store has dropped events, a line records the gap. A
//! failing disk never stops the server; the line is retried until it is written.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::event::EndReason;
use leasehold_core::wire::documents::{AuditAction, AuditEntry, AuditLine, AuditPage};
use leasehold_core::{EventKind, Position, Published, Retries, RetryPolicy, RoomId};
use leasehold_store::jitter;
use leasehold_store::{EVENTS_KEPT, Feed, MAX_EVENTS, Range, Store};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::config::WallClock;
use crate::files::ConfigError;
use crate::hub::BUSY;
use crate::metrics::Metrics;

/// Why an audit cannot be kept in a file.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct AuditError(#[from] ConfigError);

/// After so many events without an entry, a line records the position that was reached: a restart never reads more than
/// these again, and the store still has them.
const SEEN_EVERY: u64 = EVENTS_KEPT as u64 / 10;

/// The offset of every so many lines is remembered, for reading pages.
const INDEX_EVERY: u64 = 128;

/// How many lines are read for one page at most.
const LINES_PER_PAGE: u64 = 10_000;

/// The longest line: every name and reason in it is shorter.
const LONGEST_LINE: u64 = 64 * 1024;

/// How long the audit lets events gather before it asks for more, unless there are more already: the store's writer has to
/// wake it each time.
const GATHERING: Duration = Duration::from_millis(20);

/// How long a shutdown waits for the events that were just committed.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// A line of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    /// A take-over or a forced release.
    Entry(AuditEntry),
    /// The audit begins after this position.
    Began { began: u64, at: String },
    /// There is no other entry up to this position.
    Seen { seen: u64, at: String },
    /// The events between two positions are unknown.
    Gap { gap: Gap, at: String },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Gap {
    after: u64,
    resume_from: u64,
}

impl Line {
    /// The position up to which the store's events are in the file once this line is.
    fn position(&self) -> u64 {
        match self {
            Self::Entry(entry) => entry.position,
            Self::Began { began, .. } => *began,
            Self::Seen { seen, .. } => *seen,
            Self::Gap { gap, .. } => gap.resume_from,
        }
    }
}

/// The audit in its file.
pub struct Audit {
    path: PathBuf,
    log: Mutex<Log>,
    metrics: OnceLock<Metrics>,
    /// Cancelled once the position is known from which on everything is recorded.
    begun: CancellationToken,
}

/// The state of the file. Bytes beyond `length` do not count.
struct Log {
    file: File,
    length: u64,
    lines: u64,
    index: Vec<u64>,
    /// The position of the last line; `None` in a new file.
    position: Option<u64>,
    /// Whether a failed write may have left bytes beyond `length`.
    has_remains: bool,
}

impl Audit {
    /// Opens the audit, or creates one. A partial last line, from a crash, is cut off; other damage is refused.
    pub fn open(path: &Path) -> Result<Arc<Self>, AuditError> {
        let file = open_file(path)?;
        let log = Log::read(path, file)?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            log: Mutex::new(log),
            metrics: OnceLock::new(),
            begun: CancellationToken::new(),
        }))
    }

    /// Completes when every later event will be recorded.
    pub(crate) async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Counts failures in these metrics from now on.
    pub(crate) fn report_to(&self, metrics: &Metrics) {
        let _ = self.metrics.set(metrics.clone());
    }

    /// Records the store's events until the shutdown.
    pub async fn follow(
        self: Arc<Self>,
        store: Arc<dyn Store>,
        wall_clock: WallClock,
        shutdown: CancellationToken,
    ) {
        let follower = Follower { audit: self, store, wall_clock, shutdown };
        let Some(mut position) = follower.begin().await else { return };
        follower.audit.begun.cancel();
        let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
        loop {
            let feed = tokio::select! {
                biased;
                () = follower.shutdown.cancelled() => break,
                feed = follower.store.events(position, MAX_EVENTS) => feed,
            };
            // Not interrupted by the shutdown: events that were read are also written.
            let turned = match feed {
                Ok(feed) => {
                    retries.succeeded();
                    follower.take_in(feed, position).await
                }
                Err(error) => {
                    tracing::warn!(%error, "the audit cannot read the store's events; trying again");
                    follower.pause(retries.pause()).await.then_some(position)
                }
            };
            let Some(reached) = turned else { return };
            let has_kept_up = reached.0.saturating_sub(position.0) < BUSY.end;
            position = reached;
            if has_kept_up {
                tokio::select! {
                    () = follower.shutdown.cancelled() => break,
                    () = tokio::time::sleep(GATHERING) => {}
                }
            }
        }
        let _ = tokio::time::timeout(LAST_LOOK, follower.catch_up(position)).await;
    }

    /// A page of the entries on documents that the caller may see, oldest first. `after` is the number of an entry, or
    /// `next` of the page before.
    ///
    /// Entries are numbered by their lines, not by positions: positions begin again when the store is replaced, and the audit
    /// must show both. A page may be short, or empty, and still have a next one.
    pub fn page(&self, after: u64, limit: usize, may_see: impl Fn(&RoomId) -> bool) -> io::Result<AuditPage> {
        let mut page = AuditPage { entries: Vec::new(), next: None };
        let mut number = after;
        let (lines, place) = {
            let log = self.lock();
            (log.lines, log.place_of(after))
        };
        let Some((from, skip, length)) = place else { return Ok(page) };
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(from))?;
        let text = BufReader::new(file.take(length.saturating_sub(from))).lines();
        for line in text.skip(skip).take(usize::try_from(LINES_PER_PAGE).unwrap_or(usize::MAX)) {
            if page.entries.len() >= limit {
                break;
            }
            number += 1;
            if let Line::Entry(entry) = serde_json::from_str(&line?).map_err(io::Error::other)?
                && RoomId::parse(&entry.room_id).is_ok_and(|room| may_see(&room))
            {
                page.entries.push(AuditLine { number, entry, holder_name: None, by_name: None });
            }
        }
        if number == after && after < lines {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the audit file has become shorter"));
        }
        page.next = (number < lines).then_some(number);
        Ok(page)
    }

    /// The newest entries after `after` on documents that the caller may see, oldest first. Only the last
    /// `LINES_PER_PAGE` lines are looked at.
    pub fn newest(
        &self,
        after: u64,
        limit: usize,
        may_see: impl Fn(&RoomId) -> bool,
    ) -> io::Result<AuditPage> {
        let after = after.max(self.lines().saturating_sub(LINES_PER_PAGE));
        let mut entries = self.page(after, usize::MAX, may_see)?.entries;
        entries.drain(..entries.len().saturating_sub(limit));
        Ok(AuditPage { entries, next: None })
    }

    /// How many lines there are.
    pub(crate) fn lines(&self) -> u64 {
        self.lock().lines
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// --- the file ---

fn open_file(path: &Path) -> Result<File, ConfigError> {
    let is_new = !path.exists();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(|error| {
        let fix = "check that its folder exists and that the server may write to it";
        ConfigError::file(path, format!("the audit cannot be opened: {error}"), fix)
    })?;
    file.try_lock().map_err(|_| {
        let rule = "another server uses it as its audit file";
        ConfigError::file(path, rule, "give every server a file of its own, or stop the other one")
    })?;
    if is_new {
        keep_name(path);
    }
    Ok(file)
}

/// Syncs the folder, so that a new file's name is as durable as its content.
fn keep_name(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Err(error) = File::open(folder).and_then(|folder| folder.sync_all()) {
        tracing::warn!(%error, folder = %folder.display(), "cannot sync the folder of the audit file");
    }
}

impl Log {
    /// Reads the whole file once, and checks every line.
    fn read(path: &Path, file: File) -> Result<Self, ConfigError> {
        let unreadable = |error: io::Error| {
            ConfigError::file(path, format!("the audit cannot be read: {error}"), "check the disk")
        };
        let reader = file.try_clone().map_err(unreadable)?;
        let mut log =
            Self { file, length: 0, lines: 0, index: Vec::new(), position: None, has_remains: false };
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(unreadable)?;
            if read == 0 {
                return Ok(log);
            }
            match parse(&line) {
                Some(known) => log.count(&known, read as u64),
                None if !line.ends_with(b"\n") && reader.fill_buf().map_err(unreadable)?.is_empty() => {
                    log.cut_off(read).map_err(unreadable)?;
                    return Ok(log);
                }
                None => return Err(damaged(path, log.lines + 1)),
            }
        }
    }

    fn cut_off(&mut self, bytes: usize) -> io::Result<()> {
        tracing::warn!(bytes, "the audit ended in a partial line, as after a crash; it was cut off");
        self.file.set_len(self.length)?;
        self.file.sync_data()
    }

    /// Takes a line of the file into account.
    fn count(&mut self, line: &Line, bytes: u64) {
        if self.lines.is_multiple_of(INDEX_EVERY) {
            self.index.push(self.length);
        }
        self.lines += 1;
        self.length += bytes;
        self.position = Some(line.position());
    }

    /// The offset to read a line from, how many lines to skip from there, and where the file ends.
    fn place_of(&self, line: u64) -> Option<(u64, usize, u64)> {
        let from = self.index.get(usize::try_from(line / INDEX_EVERY).ok()?)?;
        Some((*from, usize::try_from(line % INDEX_EVERY).ok()?, self.length))
    }

    /// Appends lines, which are durable when it returns. A failure leaves the file as it was.
    fn append(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut lengths = Vec::new();
        for line in lines {
            let before = bytes.len();
            serde_json::to_writer(&mut bytes, line)?;
            bytes.push(b'\n');
            lengths.push((bytes.len() - before) as u64);
        }
        self.write(&bytes).inspect_err(|_| self.has_remains = true)?;
        self.has_remains = false;
        lines.iter().zip(lengths).for_each(|(line, length)| self.count(line, length));
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        if self.has_remains {
            file.set_len(self.length)?;
        }
        file.seek(SeekFrom::Start(self.length))?;
        file.write_all(bytes)?;
        file.sync_data()
    }
}

/// Parses a line.
fn parse(line: &[u8]) -> Option<Line> {
    serde_json::from_slice(line.strip_suffix(b"\n")?).ok()
}

fn damaged(path: &Path, line: u64) -> ConfigError {
    ConfigError::file(
        path,
        format!("line {line} is not a line of an audit; the file was not changed"),
        "if this is not an audit file, choose another path; if it was damaged, move it away, and the server begins a new one",
    )
}

// --- following the store ---

struct Follower {
    audit: Arc<Audit>,
    store: Arc<dyn Store>,
    wall_clock: WallClock,
    shutdown: CancellationToken,
}

impl Follower {
    /// The position to resume from: that of the last line, or the store's current one if the file is new.
    async fn begin(&self) -> Option<Position> {
        let known = self.audit.lock().position;
        if let Some(position) = known {
            return Some(Position(position));
        }
        let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
        loop {
            let newest = tokio::select! {
                () = self.shutdown.cancelled() => return None,
                newest = self.newest() => newest,
            };
            match newest {
                Ok(newest) => {
                    let line = Line::Began { began: newest.0, at: self.now() };
                    return self.write(vec![line]).await.then_some(newest);
                }
                Err(error) => {
                    tracing::warn!(%error, "the audit cannot read the store; trying again");
                    if !self.pause(retries.pause()).await {
                        return None;
                    }
                }
            }
        }
    }

    async fn newest(&self) -> leasehold_store::Result<Position> {
        let range = Range { limit: 1, ..Range::prefix(RoomId::DOOR) };
        Ok(self.store.list(&range).await?.position)
    }

    /// Records what the feed brought; returns the position that was reached, or `None` if the shutdown came first.
    async fn take_in(&self, feed: Feed, from: Position) -> Option<Position> {
        let (lines, reached) = match feed {
            Feed::Events(events) => {
                let reached = events.last().map_or(from, |last| last.position);
                (self.lines_of(&events, reached), reached)
            }
            Feed::Gap { resume_from } => {
                tracing::error!(
                    after = from.0,
                    resume_from = resume_from.0,
                    "the store has dropped events that the audit had not read; the audit records a gap"
                );
                let gap = Gap { after: from.0, resume_from: resume_from.0 };
                (vec![Line::Gap { gap, at: self.now() }], resume_from)
            }
        };
        (lines.is_empty() || self.write(lines).await).then_some(reached)
    }

    fn lines_of(&self, events: &[Published], reached: Position) -> Vec<Line> {
        let mut lines: Vec<Line> =
            events.iter().filter_map(|published| entry(published, self.now())).map(Line::Entry).collect();
        let known = lines.last().map(Line::position).or(self.audit.lock().position).unwrap_or(0);
        if reached.0.saturating_sub(known) >= SEEN_EVERY {
            lines.push(Line::Seen { seen: reached.0, at: self.now() });
        }
        lines
    }

    /// Writes lines, retrying until it succeeds; `false` if the shutdown came first.
    async fn write(&self, lines: Vec<Line>) -> bool {
        let lines = Arc::new(lines);
        let mut retries = Retries::new(RetryPolicy::PATIENT, jitter());
        loop {
            let (audit, to_write) = (self.audit.clone(), lines.clone());
            let written = tokio::task::spawn_blocking(move || audit.lock().append(&to_write)).await;
            let Err(error) = written.unwrap_or_else(|error| Err(io::Error::other(error))) else {
                return true;
            };
            if let Some(metrics) = self.audit.metrics.get() {
                metrics.audit_failed();
            }
            tracing::error!(%error, path = %self.audit.path.display(), "cannot write the audit; trying again");
            if !self.pause(retries.pause()).await {
                return false;
            }
        }
    }

    /// Waits; `false` if the shutdown came first.
    async fn pause(&self, pause: Duration) -> bool {
        tokio::time::timeout(pause, self.shutdown.cancelled()).await.is_err()
    }

    /// Records what was committed before the shutdown. The rest is left for the next start.
    async fn catch_up(&self, mut position: Position) {
        while self.newest().await.is_ok_and(|newest| newest > position) {
            let Ok(feed) = self.store.events(position, MAX_EVENTS).await else { return };
            match self.take_in(feed, position).await {
                Some(reached) => position = reached,
                None => return,
            }
        }
    }

    /// The wall clock's time (RFC 3339).
    fn now(&self) -> String {
        let millis = i64::try_from((self.wall_clock)()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX).to_string()
    }
}

/// The entry for an event, if the audit records it.
pub(crate) fn entry(published: &Published, at: String) -> Option<AuditEntry> {
    let event = &published.event;
    let EventKind::Ended { because } = &event.kind else { return None };
    let (action, by, reason) = match because {
        EndReason::TakenOver { by, reason } => (AuditAction::TakenOver, by, reason),
        EndReason::ForceReleased { by, reason } => (AuditAction::ForceReleased, by, reason),
        _ => return None,
    };
    Some(AuditEntry {
        position: published.position.0,
        at,
        action,
        room_id: RoomId::of(&event.key)?.as_str().to_owned(),
        fence: event.fence.get(),
        holder: event.owner.to_string(),
        by: by.to_string(),
        reason: reason.as_str().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::Bid;
    use leasehold_core::{Command, Key, LeaseId, Meta, Outcome, Owner, Ttl};
    use leasehold_store::Memory;
    use tokio::task::JoinHandle;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    struct Running {
        audit: Arc<Audit>,
        shutdown: CancellationToken,
        task: JoinHandle<()>,
    }

    impl Running {
        fn start(path: &Path, store: &Arc<dyn Store>) -> Self {
            let audit = Audit::open(path).unwrap();
            let shutdown = CancellationToken::new();
            let wall_clock: WallClock = Arc::new(|| 1_767_268_800_000);
            let task = tokio::spawn(audit.clone().follow(store.clone(), wall_clock, shutdown.clone()));
            Self { audit, shutdown, task }
        }

        async fn stop(self) {
            self.shutdown.cancel();
            self.task.await.unwrap();
        }

        /// The reasons of all entries, once there are this many.
        async fn reasons(&self, count: usize) -> Vec<String> {
            let look = async {
                loop {
                    let page = self.audit.page(0, 100, |_| true).unwrap();
                    if page.entries.len() >= count {
                        return page.entries.into_iter().map(|line| line.entry.reason).collect();
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            tokio::time::timeout(DEADLINE, look).await.expect("entries")
        }

        /// Waits until the file has begun.
        async fn begun(self) -> Self {
            let look = async {
                while self.audit.lock().lines == 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            tokio::time::timeout(DEADLINE, look).await.expect("the first line");
            self
        }
    }

    fn memory() -> Arc<dyn Store> {
        Arc::new(Memory::new())
    }

    fn bid(owner: &str, number: u8) -> Bid {
        Bid {
            tab: None,
            lease_id: LeaseId::from_random([number; 16]),
            owner: Owner::parse(owner).unwrap(),
            ttl: Ttl::from_secs(30).unwrap(),
            meta: Meta::default(),
        }
    }

    /// Anna locks, and Ben takes it from her for this reason, or ends it.
    async fn take_over(store: &Arc<dyn Store>, key: &str, number: u8, reason: &str) {
        let key = Key::parse(key).unwrap();
        let applied = store.apply(&key, Command::Acquire(bid("anna", number))).await.unwrap();
        let Outcome::Granted { lease, .. } = applied.outcome else { panic!("{applied:?}") };
        let (seen, reason) = (lease.fence, reason.parse().unwrap());
        let by = bid("ben", number + 100);
        let command = if number.is_multiple_of(2) {
            Command::TakeOver { right: leasehold_core::Right::Force, seen, bid: by, reason }
        } else {
            Command::ForceRelease { seen, by: by.owner, reason }
        };
        store.apply(&key, command).await.unwrap();
    }

    #[tokio::test]
    async fn what_somebody_did_to_anothers_lock_is_written_down() {
        let (folder, store) = (tempfile::tempdir().unwrap(), memory());
        let path = folder.path().join("audit.jsonl");
        let running = Running::start(&path, &store).begun().await;
        take_over(&store, "doc/minutes", 1, "she is on leave").await;
        take_over(&store, "job/minutes", 3, "not a document").await;
        take_over(&store, "doc/plans", 2, "urgent").await;
        assert_eq!(running.reasons(2).await, ["she is on leave", "urgent"]);
        let page = running.audit.page(0, 1, |_| true).unwrap();
        let entry = &page.entries[0].entry;
        assert_eq!((entry.action, entry.room_id.as_str()), (AuditAction::ForceReleased, "minutes"));
        assert_eq!((entry.holder.as_str(), entry.by.as_str()), ("anna", "ben"));
        assert_eq!(entry.at, "2026-01-01T12:00:00Z");
        let rest = running.audit.page(page.next.unwrap(), 100, |_| true).unwrap();
        assert_eq!((rest.entries[0].entry.action, rest.next), (AuditAction::TakenOver, None));
        let after = running.audit.page(page.entries[0].number, 100, |_| true).unwrap();
        assert_eq!(after, rest, "what came after an entry is asked for by its number");
        let seen = running.audit.page(0, 100, |room| room.as_str() == "plans").unwrap();
        assert_eq!(seen.entries, rest.entries);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("{\"began\":0,"), "{text}");
        running.stop().await;
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn only_the_server_may_read_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let _audit = Audit::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = Audit::open(&path).err().unwrap().to_string();
        assert!(error.contains("another server"), "{error}");
    }

    #[tokio::test]
    async fn a_new_file_begins_where_the_store_stands_and_a_restart_misses_nothing() {
        let (folder, store) = (tempfile::tempdir().unwrap(), memory());
        let path = folder.path().join("audit.jsonl");
        take_over(&store, "doc/a", 1, "before").await;
        let running = Running::start(&path, &store).begun().await;
        take_over(&store, "doc/b", 2, "first").await;
        running.reasons(1).await;
        running.stop().await;
        take_over(&store, "doc/c", 3, "while it was down").await;
        let running = Running::start(&path, &store);
        assert_eq!(running.reasons(2).await, ["first", "while it was down"]);
        // Committed just before the shutdown: still written, and only once.
        take_over(&store, "doc/d", 4, "at the last moment").await;
        running.stop().await;
        let running = Running::start(&path, &store);
        take_over(&store, "doc/e", 5, "after").await;
        let expected = ["first", "while it was down", "at the last moment", "after"];
        assert_eq!(running.reasons(4).await, expected);
        running.stop().await;
    }

    #[tokio::test]
    async fn half_a_line_after_a_crash_is_cut_off_and_written_anew() {
        let (folder, store) = (tempfile::tempdir().unwrap(), memory());
        let path = folder.path().join("audit.jsonl");
        let running = Running::start(&path, &store).begun().await;
        take_over(&store, "doc/a", 1, "first").await;
        take_over(&store, "doc/b", 2, "second").await;
        running.reasons(2).await;
        running.stop().await;
        let whole = std::fs::read(&path).unwrap();
        for kept in [whole.len() - 1, whole.len() - 30] {
            std::fs::write(&path, &whole[..kept]).unwrap();
            let running = Running::start(&path, &store);
            assert_eq!(running.reasons(2).await, ["first", "second"], "{kept} of {} bytes", whole.len());
            running.stop().await;
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn other_damage_is_refused_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let good = "{\"began\":1,\"at\":\"2026-01-01T12:00:00Z\"}\n";
        for damaged in [format!("{good}nonsense\n{good}"), format!("{good}{{}}\n"), format!("\n{good}")] {
            std::fs::write(&path, &damaged).unwrap();
            let error = Audit::open(&path).err().unwrap().to_string();
            assert!(error.contains("is not a line of an audit") && error.contains("move it away"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged, "left as it is");
        }
        let error = Audit::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("cannot be opened"), "{error}");
    }

    #[tokio::test]
    async fn what_the_store_has_forgotten_is_a_gap_in_the_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        std::fs::write(&path, "{\"seen\":500,\"at\":\"2026-01-01T12:00:00Z\"}\n").unwrap();
        // A new store, whose positions begin anew.
        let store = memory();
        take_over(&store, "doc/a", 1, "lost").await;
        let running = Running::start(&path, &store);
        let look = async {
            while running.audit.lock().lines < 2 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(DEADLINE, look).await.expect("the gap");
        take_over(&store, "doc/b", 2, "known").await;
        assert_eq!(running.reasons(1).await, ["known"]);
        running.stop().await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("{\"gap\":{\"after\":500,\"resume_from\":2}"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_fails_is_tried_again() {
        let (folder, store) = (tempfile::tempdir().unwrap(), memory());
        let path = folder.path().join("audit.jsonl");
        let running = Running::start(&path, &store).begun().await;
        let metrics = Metrics::new();
        running.audit.report_to(&metrics);
        let writable = std::mem::replace(&mut running.audit.lock().file, File::open(&path).unwrap());
        take_over(&store, "doc/a", 1, "in the end").await;
        while metrics.render().contains("leasehold_audit_errors_total 0") {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // What a failed attempt may have left.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(&[b'x'; 4_096]).unwrap();
        running.audit.lock().file = writable;
        assert_eq!(running.reasons(1).await, ["in the end"]);
        running.stop().await;
        Audit::open(&path).unwrap();
    }

    #[tokio::test]
    async fn after_many_events_a_line_says_how_far_they_were_seen() {
        let (folder, store) = (tempfile::tempdir().unwrap(), memory());
        let path = folder.path().join("audit.jsonl");
        let running = Running::start(&path, &store).begun().await;
        let key = Key::parse("doc/busy").unwrap();
        for number in 0..SEEN_EVERY / 2 + 600 {
            let mut random = [0; 16];
            random[8..].copy_from_slice(&number.to_be_bytes());
            let bid = Bid { lease_id: LeaseId::from_random(random), ..bid("anna", 1) };
            let applied = store.apply(&key, Command::Acquire(bid)).await.unwrap();
            let Outcome::Granted { lease, .. } = applied.outcome else { panic!("{applied:?}") };
            let claim = lease.proof();
            store.apply(&key, Command::Release(claim.into())).await.unwrap();
        }
        running.stop().await;
        let text = std::fs::read_to_string(&path).unwrap();
        let seen = text.lines().filter(|line| line.contains("\"seen\"")).count();
        assert_eq!((seen, text.lines().count()), (1, 2), "{text}");
        assert!(Audit::open(&path).unwrap().lock().position.unwrap() >= SEEN_EVERY);
    }

    #[test]
    fn pages_go_through_many_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(&path).unwrap();
        let line = |number: u64| {
            Line::Entry(AuditEntry {
                position: number,
                at: String::new(),
                action: AuditAction::TakenOver,
                room_id: format!("room-{}", number % 2),
                fence: 1,
                holder: "anna".into(),
                by: "ben".into(),
                reason: number.to_string(),
            })
        };
        audit.lock().append(&(0..1_000).map(line).collect::<Vec<_>>()).unwrap();
        drop(audit);
        let audit = Audit::open(&path).unwrap();
        let (mut after, mut seen) = (Some(0), Vec::new());
        while let Some(from) = after {
            let page = audit.page(from, 77, |room| room.as_str() == "room-1").unwrap();
            seen.extend(page.entries.into_iter().map(|line| line.entry.position));
            after = page.next;
        }
        assert_eq!(seen, (0..1_000).filter(|number| number % 2 == 1).collect::<Vec<_>>());
        let newest = |after, limit| {
            let page = audit.newest(after, limit, |room| room.as_str() == "room-1").unwrap();
            assert_eq!(page.next, None);
            page.entries.into_iter().map(|line| line.entry.position).collect::<Vec<_>>()
        };
        assert_eq!((newest(0, 3), newest(998, 3)), (vec![995, 997, 999], vec![999]));
        assert_eq!((newest(0, 5_000).len(), newest(1_000, 3).len()), (500, 0));
    }

    /// The audit's file was moved away under a running server. The answer was an empty page whose next page was itself,
    /// and the command line asked for that hundreds of times a second.
    #[test]
    fn a_file_that_cannot_be_read_is_no_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(&path).unwrap();
        audit.lock().append(&[Line::Began { began: 0, at: String::new() }]).unwrap();
        assert_eq!(audit.page(0, 10, |_| true).unwrap().next, None);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(audit.page(0, 10, |_| true).is_err(), "shorter than it was");
        std::fs::write(&path, vec![b'x'; whole.len()]).unwrap();
        assert!(audit.page(0, 10, |_| true).is_err(), "damaged");
        std::fs::remove_file(&path).unwrap();
        assert!(audit.page(0, 10, |_| true).is_err(), "gone");
    }
}
