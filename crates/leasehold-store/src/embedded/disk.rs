//! The disk behind the writer of the exclusive store: a batch is durable before it is acknowledged. It goes into the
//! [journal](super::journal). What a full region of that holds goes into SQLite's tables, in one transaction and on a thread of its
//! own: no commit waits for it, unless the next region is full before it is done.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use leasehold_core::job::Job;
use leasehold_core::{Key, Published, Slot, StoreTime};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::journal::{self, Contents, FIRST_RECORD, Fit, Journal};
use super::journal_file::JournalFile;
use super::mode_lock::ModeLock;
use super::rows::{self, Header, RowError, RowResult};
use super::{Mode, epoch, file};
use crate::changes::Ending;
use crate::clock::Clock;
use crate::resident::{Counters, Resident, Staged};
use crate::writer::{Batch, Disk, Failure, Loaded, Trim};
use crate::{Error, Result, Retry};

/// The open file.
pub(super) struct SqliteDisk {
    path: PathBuf,
    epoch: u64,
    tables: Arc<Mutex<Tables>>,
    journal: Journal,
    /// What the journal had before it went on in another region.
    under_way: Option<UnderWay>,
    /// What is to be deleted when the journal is written into the tables.
    trim: Option<Trim>,
    lock: ModeLock,
    place: file::Place,
    /// Whether another process has opened the file since.
    replaced: bool,
}

/// The tables, and the store's own row in them.
struct Tables {
    db: Connection,
    header: Header,
}

/// What is written into the tables in one transaction.
struct Entry {
    /// In the order of their making.
    contents: Vec<Contents>,
    trim: Option<Trim>,
    /// The record with which the journal begins then; 0 when there is none any more.
    journal: u64,
}

/// An entry that a thread is making.
struct UnderWay {
    entry: Arc<Entry>,
    /// `None` once it has failed, or if there was no thread to be had.
    thread: Option<JoinHandle<RowResult<bool>>>,
}

impl Tables {
    /// Makes an entry, with a last change of the header; answers whether the file was still that of this process.
    fn enter(&mut self, entry: &Entry, change: impl FnOnce(Header) -> Header) -> RowResult<bool> {
        let transaction = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate)?;
        let found = rows::read_header(&transaction)?;
        if found.epoch != self.header.epoch {
            return Ok(false);
        }
        if entry.journal != 0 && found.journal == entry.journal {
            // An attempt that seemed to fail has come through.
            self.header = found;
            return Ok(true);
        }
        let mut header = self.header.clone();
        entry.contents.iter().try_for_each(|contents| contents.write(&transaction, &mut header))?;
        if let (Some(trim), Some(last)) = (entry.trim, entry.contents.last()) {
            journal::delete_old(&transaction, trim, last.ended)?;
        }
        let header = change(Header { journal: entry.journal, ..header });
        rows::write_header(&transaction, &header)?;
        transaction.commit()?;
        self.header = header;
        Ok(true)
    }
}

/// How many pages SQLite's log takes before they are written back. Fewer than where each commit goes into it: nothing waits here while
/// they are, and a small log needs less room on a disk that is nearly full.
const LOG_PAGES: u32 = 500;

/// How often the file is read again because another process has written it meanwhile.
const ATTEMPTS: u32 = 10;

impl SqliteDisk {
    /// Reads the whole file, and marks it as in use by this process: every other one that has it open is replaced.
    pub(super) fn open(path: &Path, lock: ModeLock, clock: &dyn Clock) -> Result<(Self, Loaded)> {
        for _ in 0..ATTEMPTS {
            // First of all, so that nobody writes it while it is read.
            let file = JournalFile::take(path).map_err(|error| file::row_trouble(path, error))?;
            let (mut db, found) = load(path)?;
            let clock = resumed(&found, clock);
            let is_copy = epoch::is_copy(path, found.header.epoch);
            let begun = epoch::renew(path, (!is_copy).then_some(found.header.epoch), |epoch| {
                begin_use(path, &mut db, &found, clock, epoch, is_copy, file)
                    .map_err(|error| file::row_trouble(path, error))
            })?;
            let Some((header, journal)) = begun else { continue };
            let resident = match is_copy {
                true => load_rows(path, &db).map_err(|error| file::row_trouble(path, error))?.into_resident(),
                false => found.into_resident().with_counters(header.counters),
            };
            let disk = Self {
                path: path.to_owned(),
                epoch: header.epoch,
                tables: Arc::new(Mutex::new(Tables { db, header })),
                journal,
                under_way: None,
                trim: None,
                lock,
                place: file::Place::of(path, Mode::Exclusive),
                replaced: false,
            };
            return Ok((disk, Loaded { resident, clock }));
        }
        Err(lock.replaced())
    }

    /// Writes a batch; answers whether the file was still this process's.
    fn write(&mut self, batch: &Batch<'_>) -> RowResult<bool> {
        let fit = self.journal.prepare(batch.staged)?;
        if fit != Fit::Here && !self.finish_what_is_under_way()? {
            return Ok(false);
        }
        match fit {
            Fit::Here => {}
            Fit::InTheNextRegion => self.turn_over(batch.staged)?,
            Fit::Nowhere => return self.write_through(batch),
        }
        self.journal.append(batch.staged)?;
        self.trim = self.trim_after(batch);
        Ok(true)
    }

    /// What is to be deleted once a batch is in the tables.
    fn trim_after(&self, batch: &Batch<'_>) -> Option<Trim> {
        batch.trim.or_else(|| self.trim.map(|trim| trim.later(batch.staged.endings.len())))
    }

    /// Has the journal go on in its next region, and what it had so far written into the tables.
    fn turn_over(&mut self, staged: &Staged) -> RowResult<()> {
        let (contents, journal) = self.journal.turn_over(staged)?;
        let entry = Arc::new(Entry { contents: vec![contents], trim: self.trim.take(), journal });
        let (tables, what) = (self.tables.clone(), entry.clone());
        let work = move || lock(&tables).enter(&what, |header| header);
        // If there is no thread to be had, it is done when the next region is full.
        let thread = std::thread::Builder::new().name("leasehold-tables".into()).spawn(work).ok();
        self.under_way = Some(UnderWay { entry, thread });
        Ok(())
    }

    /// Waits until what is under way is in the tables. If that has failed it is tried again; answers whether the file was still this
    /// process's.
    fn finish_what_is_under_way(&mut self) -> RowResult<bool> {
        let Some(UnderWay { thread, entry }) = &mut self.under_way else { return Ok(true) };
        let entered = match thread.take().map(JoinHandle::join) {
            Some(Ok(entered @ Ok(_))) => entered,
            _ => lock(&self.tables).enter(entry, |header| header),
        }?;
        self.under_way = None;
        Ok(entered)
    }

    /// Writes everything into the tables, the changes of this batch included.
    fn write_through(&mut self, batch: &Batch<'_>) -> RowResult<bool> {
        let journal = self.journal.mark_next()?;
        let contents = vec![self.journal.take_contents(), self.journal.beyond(batch.staged)];
        let mut entry = Entry { contents, trim: self.trim_after(batch), journal };
        let entered = lock(&self.tables).enter(&entry, |header| header);
        if matches!(entered, Ok(true)) {
            self.journal.accept_all(batch.staged.endings.len());
            self.trim = None;
        } else {
            self.journal.put_back(entry.contents.swap_remove(0));
        }
        entered
    }

    /// From now on, everything is refused.
    fn be_replaced(&mut self) -> Error {
        self.replaced = true;
        self.lock.replaced()
    }
}

impl Drop for SqliteDisk {
    fn drop(&mut self) {
        // What fails here is still in the journal.
        let _ = self.finish_what_is_under_way();
    }
}

fn lock(tables: &Mutex<Tables>) -> MutexGuard<'_, Tables> {
    // A transaction that panicked was rolled back when it was dropped.
    tables.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk for SqliteDisk {
    fn still_alone(&mut self) -> Result<()> {
        if self.replaced {
            return Err(self.be_replaced());
        }
        self.place.check()?;
        if !self.lock.keep_in_force()? {
            return Ok(());
        }
        let found = rows::read_epoch(&lock(&self.tables).db);
        match found {
            Ok(epoch) if epoch == self.epoch => Ok(()),
            Ok(_) => Err(self.be_replaced()),
            Err(error) => Err(file::trouble(&self.path, &error)),
        }
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Failure> {
        match self.write(batch) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure { error: self.be_replaced(), undone: true }),
            Err(error) => {
                let error = file::row_trouble(&self.path, error);
                let undone = error.retry() == Retry::Safe && lock(&self.tables).db.is_autocommit();
                Err(Failure { error, undone })
            }
        }
    }

    fn reload(&mut self) -> Result<Loaded> {
        // It may fail: what it was to write is in the journal, which is read anew.
        let _ = self.finish_what_is_under_way();
        self.under_way = None;
        self.journal.discard_what_is_in_doubt().map_err(|error| file::row_trouble(&self.path, error))?;
        let (db, found) = load(&self.path)?;
        if found.header.epoch != self.epoch {
            return Err(self.be_replaced());
        }
        // After a failed sync the log may look written and not be. Writing it into the file makes it so.
        // What is written then begins a new log, and a new journal, in which nothing is left of what failed.
        let anew = file::checkpoint(&db)
            .map_err(RowError::from)
            .and_then(|()| write_anew(&db, &found, &mut self.journal));
        let Some(header) = anew.map_err(|error| file::row_trouble(&self.path, error))? else {
            return Err(self.be_replaced());
        };
        let clock = header.clock;
        (*lock(&self.tables), self.trim) = (Tables { db, header }, None);
        Ok(Loaded { resident: found.into_resident(), clock })
    }

    fn end(&mut self, clock: StoreTime) -> Result<()> {
        debug_assert!(self.lock.is_last(), "an exclusive store is alone");
        self.place.check()?;
        let finished = self.finish_what_is_under_way();
        let trouble = |error| file::row_trouble(&self.path, error);
        if !finished.map_err(trouble)? {
            return Err(self.be_replaced());
        }
        let last = Entry { contents: vec![self.journal.take_contents()], trim: self.trim, journal: 0 };
        let ended = epoch::renew(&self.path, Some(self.epoch), |epoch| {
            let mut tables = lock(&self.tables);
            let entered = tables.enter(&last, |header| Header { epoch, clock, in_use: false, ..header });
            if !entered.map_err(trouble)? {
                return Ok(None);
            }
            file::end_orderly(&tables.db).map(Some).map_err(|error| file::trouble(&self.path, &error))
        })?;
        if ended.is_none() {
            return Err(self.be_replaced());
        }
        self.journal.remove();
        Ok(())
    }
}

/// Writes the journal into the tables, and begins a new one; answers nothing if the file is not as it had been `found` any more.
fn write_anew(db: &Connection, found: &Found, journal: &mut Journal) -> RowResult<Option<Header>> {
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    let Some(mut header) = found.unchanged(&transaction)? else { return Ok(None) };
    found.journal.write(&transaction, &mut header)?;
    header.journal = 0;
    rows::write_header(&transaction, &header)?;
    transaction.commit()?;
    begin_journal(db, header, journal)
}

/// Begins the journal now that the tables have everything, and says so in the header. Answers nothing if that is not as it was.
fn begin_journal(db: &Connection, header: Header, journal: &mut Journal) -> RowResult<Option<Header>> {
    journal.begin(db)?;
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    if rows::read_header(&transaction)? != header {
        return Ok(None);
    }
    let header = Header { journal: FIRST_RECORD, ..header };
    rows::write_header(&transaction, &header)?;
    transaction.commit()?;
    file::begin_new_log(db)?;
    Ok(Some(header))
}

/// What a file holds.
pub(super) struct Found {
    /// The store's own row: as old as the tables.
    pub(super) header: Header,
    /// What is newer than the tables.
    pub(super) journal: Contents,
    /// The state with the journal: the numbers, and all rows.
    pub(super) counters: Counters,
    pub(super) clock: StoreTime,
    pub(super) slots: BTreeMap<Key, Slot>,
    jobs: BTreeMap<Key, Job>,
    endings: Vec<Ending>,
    pub(super) events: Vec<Published>,
}

impl Found {
    pub(super) fn into_resident(self) -> Resident {
        Resident::load(self.counters, self.slots, self.jobs, &self.endings, self.events)
    }

    /// The store's own row, if the file is as it was found.
    fn unchanged(&self, db: &Connection) -> RowResult<Option<Header>> {
        let header = rows::read_header(db)?;
        Ok((header == self.header).then_some(header))
    }

    fn add_journal(&mut self) -> RowResult<()> {
        let contents = &self.journal;
        for (key, slot) in &contents.slots {
            put(&mut self.slots, key, slot.as_ref());
        }
        for (key, job) in &contents.jobs {
            put(&mut self.jobs, key, job.as_ref());
        }
        self.endings.extend(contents.endings.unpack(rows::ending_from)?);
        self.events.extend(contents.events.unpack(rows::event_from)?);
        (self.counters, self.clock) = contents.latest.unwrap_or((self.counters, self.clock));
        Ok(())
    }
}

fn put<T: Clone>(values: &mut BTreeMap<Key, T>, key: &Key, value: Option<&T>) {
    match value {
        Some(value) => drop(values.insert(key.clone(), value.clone())),
        None => drop(values.remove(key)),
    }
}

/// What the file holds, every row of it checked.
fn load(path: &Path) -> Result<(Connection, Found)> {
    let db = file::connect(path)?;
    db.pragma_update(None, "wal_autocheckpoint", LOG_PAGES).map_err(|error| file::trouble(path, &error))?;
    let found = load_rows(path, &db).map_err(|error| file::row_trouble(path, error))?;
    Ok((db, found))
}

/// The same, of an open file.
pub(super) fn load_rows(path: &Path, db: &Connection) -> RowResult<Found> {
    let (snapshot, header, journal) = journal::snapshot(path, db)?;
    let mut found = Found {
        slots: load_slots(&snapshot, &header)?.into_iter().collect(),
        jobs: load_jobs(&snapshot, &header)?.into_iter().collect(),
        endings: load_endings(&snapshot)?,
        events: load_events(&snapshot)?,
        journal,
        counters: header.counters,
        clock: header.clock,
        header,
    };
    found.add_journal()?;
    check_events(found.counters, &found.events)?;
    Ok(found)
}

/// All slots, none of them missing.
pub(super) fn load_slots(db: &Connection, header: &Header) -> RowResult<Vec<(Key, Slot)>> {
    let mut sums = 0_u64;
    let slots = rows::all(db, "slot", rows::SLOT_COLUMNS, "key", |row| {
        let (key, slot) = rows::slot_from(row)?;
        sums = sums.wrapping_add(u64::from(rows::slot_sum(&key, &slot)));
        Ok((key, slot))
    })?;
    if sums != header.slot_sums {
        return Err(RowError::Bad("some of its slots are missing or stand there twice".into()));
    }
    Ok(slots)
}

/// All jobs, none of them missing.
pub(super) fn load_jobs(db: &Connection, header: &Header) -> RowResult<Vec<(Key, Job)>> {
    let mut sums = 0_u64;
    let jobs = rows::all(db, "job", rows::JOB_COLUMNS, "key", |row| {
        let (key, job) = rows::job_from(row)?;
        sums = sums.wrapping_add(u64::from(rows::job_sum(&key, &job)));
        Ok((key, job))
    })?;
    if sums != header.job_sums {
        return Err(RowError::Bad("some of its jobs are missing or stand there twice".into()));
    }
    Ok(jobs)
}

/// All endings, none of them missing: their pages tell, for there is no sum over them.
pub(super) fn load_endings(db: &Connection) -> RowResult<Vec<Ending>> {
    ["ending", "ending_pack"].into_iter().try_for_each(|table| rows::check_pages(db, table))?;
    let mut endings = rows::all(db, "ending", rows::ENDING_COLUMNS, "id", rows::ending_from)?;
    endings.extend(journal::all_packed(db, "ending_pack", rows::ending_from)?);
    Ok(endings)
}

fn load_events(db: &Connection) -> RowResult<Vec<Published>> {
    let mut events = rows::all(db, "event", rows::EVENT_COLUMNS, "position", rows::event_from)?;
    events.extend(journal::all_packed(db, "event_pack", rows::event_from)?);
    Ok(events)
}

/// Events stand one after the other up to the last position.
fn check_events(counters: Counters, events: &[Published]) -> RowResult<()> {
    let gapless = events.windows(2).all(|pair| matches!(pair, [a, b] if a.position.0 + 1 == b.position.0));
    let complete = events.last().is_none_or(|last| last.position == counters.position);
    if gapless && complete { Ok(()) } else { Err(RowError::Bad("some of its events are missing".into())) }
}

/// Where the lease clock goes on. In shared mode it ran with the machine's; in exclusive mode it stood still.
fn resumed(found: &Found, clock: &dyn Clock) -> StoreTime {
    let running = super::shared::running_clock(&found.header, clock);
    running.map_or(found.clock, |now| now.max(found.clock))
}

/// Marks the file as in use, in the file itself and not only in its log: a mark without a log means that the log was
/// lost. Drops the indexes that only shared mode needs, and begins a journal. Answers the header as it was written, if the file
/// was still as it had been `found`.
fn begin_use(
    path: &Path,
    db: &mut Connection,
    found: &Found,
    clock: StoreTime,
    epoch: u64,
    is_copy: bool,
    file: Option<JournalFile>,
) -> RowResult<Option<(Header, Journal)>> {
    file::begin_log(db)?;
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let Some(mut header) = found.unchanged(&transaction)? else { return Ok(None) };
    super::shared::drop_indexes(&transaction)?;
    found.journal.write(&transaction, &mut header)?;
    header = Header { boot: String::new(), in_use: true, clock, epoch, journal: 0, ..header };
    epoch::move_ahead(&transaction, &mut header, is_copy)?;
    rows::write_header(&transaction, &header)?;
    transaction.commit()?;
    let file = match file {
        Some(other) if is_copy && found.header.journal == 0 => {
            other.set_aside()?;
            JournalFile::make(path)?
        }
        Some(file) => file,
        None => JournalFile::make(path)?,
    };
    let mut journal = Journal::new(file, epoch);
    let begun = begin_journal(db, header, &mut journal)?;
    Ok(begun.map(|header| (header, journal)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking
mod tests {
    use std::fs;
    use std::time::Duration;

    use leasehold_core::job::JobText;
    use leasehold_core::lease::{Bid, Claim};
    use leasehold_core::{Command, JobCommand, LeaseId, Meta, Outcome, Owner, Position, Ttl};
    use tempfile::TempDir;

    use super::*;
    use crate::clock::ManualClock;
    use crate::embedded::{Embedded, Mode};
    use crate::{Feed, JobStore, Limits, Range, Store, embedded};

    const FILE: &str = "leases.db";
    const JOURNAL: &str = "leases.db.journal";

    /// The disk of a store, and what it is to hold.
    struct Desk {
        folder: TempDir,
        disk: SqliteDisk,
        resident: Resident,
        now: StoreTime,
        /// How many commits were written into the tables.
        written_out: usize,
    }

    impl Desk {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            file::create_if_missing(&folder.path().join(FILE)).unwrap();
            let (disk, Loaded { resident, clock: now }) = open(folder.path());
            Self { folder, disk, resident, now, written_out: 0 }
        }

        /// Decides a command and commits it, as the writer does.
        fn ask(&mut self, key: &Key, command: &Command) -> Result<Outcome, Failure> {
            let mut staged = self.resident.stage(self.now);
            let outcome = self.resident.decide(&mut staged, key, command, &Limits::default());
            self.commit(staged, None).map(|()| outcome)
        }

        fn acquire_and_release(&mut self, leases: u64) {
            for number in 0..leases {
                let bid = bid(number, 10);
                self.ask(&key(number), &Command::Acquire(bid.clone())).ok().unwrap();
                self.ask(&key(number), &release(bid.lease_id)).ok().unwrap();
            }
        }

        fn commit(&mut self, staged: Staged, trim: Option<Trim>) -> Result<(), Failure> {
            let first = |disk: &SqliteDisk| lock(&disk.tables).header.journal;
            let journal = first(&self.disk);
            self.disk.commit(&Batch { staged: &staged, trim })?;
            self.resident.commit(staged);
            // A copy of a file that is being written would be of no moment.
            self.disk.finish_what_is_under_way().unwrap();
            self.written_out += usize::from(first(&self.disk) != journal);
            Ok(())
        }

        fn position(&self) -> Position {
            self.resident.counters.position
        }

        /// Another program that writes the tables, so that nobody else can. The wait for it is over at once.
        fn other_program(&self) -> Connection {
            lock(&self.disk.tables).db.busy_timeout(Duration::ZERO).unwrap();
            let other = Connection::open(self.folder.path().join(FILE)).unwrap();
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            other
        }

        /// Commits an acquire, whatever becomes of what is written into the tables meanwhile.
        fn ask_meanwhile(&mut self, number: u64) {
            let mut staged = self.resident.stage(self.now);
            let command = Command::Acquire(bid(number, 10));
            self.resident.decide(&mut staged, &key(number), &command, &Limits::default());
            self.disk.commit(&Batch { staged: &staged, trim: None }).ok().unwrap();
            self.resident.commit(staged);
        }

        /// What a machine that lost power now would find.
        fn crashed(&self) -> TempDir {
            put(&self.tables(), &self.journal())
        }

        /// The files but for the journal.
        fn tables(&self) -> [(&'static str, Vec<u8>); 3] {
            ["", "-wal", ".epoch"]
                .map(|suffix| (suffix, fs::read(self.folder.path().join(format!("{FILE}{suffix}"))).unwrap()))
        }

        fn journal(&self) -> Vec<u8> {
            fs::read(self.folder.path().join(JOURNAL)).unwrap()
        }

        /// Compares what a process finds that opens the file next.
        fn assert_found(&self, store: &Embedded) {
            let events = |feed: Option<Feed>| match feed {
                Some(Feed::Events(events)) => events,
                None => Vec::new(),
                Some(gap) => panic!("{gap:?}"),
            };
            let (page, told) = block_on(async {
                let page = store.list(&Range::all()).await.unwrap();
                let told = match page.position {
                    Position(0) => None,
                    _ => Some(store.events(Position(0), 1_000).await.unwrap()),
                };
                (page, told)
            });
            assert_eq!(page.slots, self.resident.page(&Range::all(), self.now).0);
            assert_eq!(page.position, self.position());
            assert_eq!(events(told), events(self.resident.events_after(Position(0), 1_000)));
        }
    }

    /// A folder with these files.
    fn put(tables: &[(&str, Vec<u8>)], journal: &[u8]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (suffix, bytes) in tables {
            fs::write(folder.path().join(format!("{FILE}{suffix}")), bytes).unwrap();
        }
        fs::write(folder.path().join(JOURNAL), journal).unwrap();
        folder
    }

    /// How many leases the next process finds there.
    fn found_in(folder: &TempDir) -> Result<usize> {
        load(&folder.path().join(FILE)).map(|(_, found)| found.slots.len())
    }

    fn open(folder: &Path) -> (SqliteDisk, Loaded) {
        let path = folder.join(FILE);
        let lock = ModeLock::take(&path, Mode::Exclusive, true, |_| Ok(())).unwrap();
        SqliteDisk::open(&path, lock, &ManualClock::default()).unwrap()
    }

    fn open_store(folder: &Path, mode: Mode) -> Embedded {
        let clock = Arc::new(ManualClock::default());
        Embedded::options().mode(mode).clock(clock).open(folder.join(FILE)).unwrap()
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    fn key(number: u64) -> Key {
        Key::parse(&format!("run/{number}")).unwrap()
    }

    fn bid(number: u64, note: usize) -> Bid {
        let mut bytes = [7; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let meta = Meta::new([("note".to_owned(), "n".repeat(note))]).unwrap();
        let (owner, ttl) = (Owner::parse("anna").unwrap(), Ttl::new(Duration::from_secs(3_600)).unwrap());
        Bid { lease_id: LeaseId::from_random(bytes), owner, tab: None, ttl, meta }
    }

    fn release(lease_id: LeaseId) -> Command {
        Command::Release(Claim::Holder { lease_id, owner: Owner::parse("anna").unwrap(), fence: None })
    }

    /// Wherever the journal stands, the next process finds what was acknowledged: a lease, its events, and lease ids that are
    /// over. Each third lease has ended by then, and a third of the rest is too long for the journal.
    #[test]
    fn what_was_committed_is_found_after_a_crash_at_any_time() {
        let mut desk = Desk::new();
        for number in 0..120 {
            let bid = bid(number, if number % 9 == 0 { 3_900 } else { number as usize });
            desk.ask(&key(number), &Command::Acquire(bid.clone())).ok().unwrap();
            if number % 3 == 0 {
                desk.ask(&key(number), &release(bid.lease_id)).ok().unwrap();
            }
            let (found, mode) =
                (desk.crashed(), if number % 2 == 0 { Mode::Exclusive } else { Mode::Shared });
            let path = found.path().join(FILE);
            assert_eq!(embedded::check(&path).unwrap().problems, [""; 0], "after {number}");
            for range in [Range::all(), Range { limit: 7, after: Some(key(40)), ..Range::prefix("run/") }] {
                let seen = embedded::peek(&path, &range).unwrap();
                assert_eq!((seen.slots, seen.more), desk.resident.page(&range, desk.now));
                assert_eq!((seen.position, seen.now), (desk.position(), desk.now));
            }
            let store = open_store(found.path(), mode);
            desk.assert_found(&store);
            let again = block_on(store.apply(&key(number), Command::Acquire(bid))).unwrap().outcome;
            assert_eq!(matches!(again, Outcome::Lost { .. }), number % 3 == 0, "{number}: {again:?}");
            drop(store);
            let other = if mode == Mode::Shared { Mode::Exclusive } else { Mode::Shared };
            drop(open_store(found.path(), other));
        }
        assert!((10..60).contains(&desk.written_out), "{}", desk.written_out);
    }

    /// A write that a crash tore counts for nothing, wherever it is torn: its callers have no answer. One that is whole counts,
    /// although they have none either.
    #[test]
    fn a_torn_record_is_none() {
        let mut desk = Desk::new();
        for number in 0..20 {
            desk.ask(&key(number), &Command::Acquire(bid(number, 10))).ok().unwrap();
        }
        let (tables, before) = (desk.tables(), desk.journal());
        let written_out = desk.written_out;
        desk.ask(&key(20), &Command::Acquire(bid(20, 10))).ok().unwrap();
        let after = desk.journal();
        assert_eq!(
            (desk.tables() == tables, desk.written_out),
            (true, written_out),
            "it went into the journal"
        );
        let changed: Vec<usize> = (0..after.len()).filter(|at| before.get(*at) != after.get(*at)).collect();
        let (first, last) = (*changed.first().unwrap(), *changed.last().unwrap());
        for torn in first..=last {
            // Written up to here, or from here on: sectors reach the disk in any order.
            let beginning = [&after[..torn], &before[torn..]].concat();
            assert_eq!(found_in(&put(&tables, &beginning)).unwrap(), 20, "only the bytes before {torn}");
            let end = [&before[..=torn], &after[torn + 1..]].concat();
            assert_eq!(found_in(&put(&tables, &end)).unwrap(), 20, "only the bytes after {torn}");
        }
        assert_eq!(found_in(&put(&tables, &after)).unwrap(), 21);
    }

    /// The journal goes on in another region before the tables know of it. A crash in between changes nothing. Tables
    /// beside a journal that is older than they are count as damaged.
    #[test]
    fn tables_and_journal_agree_at_every_moment_of_a_write_into_the_tables() {
        let mut desk = Desk::new();
        let mut seen = [0, 0];
        for number in 0..200 {
            let (tables, journal, written_out) = (desk.tables(), desk.journal(), desk.written_out);
            let is_long = number % 29 == 0;
            let note = if is_long { 3_900 } else { 100 };
            desk.ask(&key(number), &Command::Acquire(bid(number, note))).ok().unwrap();
            if desk.written_out == written_out {
                continue;
            }
            seen[usize::from(is_long)] += 1;
            let before = usize::try_from(number).unwrap();
            // The record of a long one is not in the journal: there is nothing but the mark.
            let in_journal = before + usize::from(!is_long);
            assert_eq!(found_in(&put(&tables, &desk.journal())).unwrap(), in_journal);
            assert_eq!(found_in(&put(&desk.tables(), &desk.journal())).unwrap(), before + 1);
            let error = found_in(&put(&desk.tables(), &journal)).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
        }
        assert!(seen.iter().all(|seen| *seen > 5), "{seen:?}");
    }

    /// A long commit is in the tables alone. When SQLite's log lost it to a flipped bit, as a log may lose its last commit, the records
    /// after it were once read as if it had never been. Renewals have no events that could be missed.
    #[test]
    fn a_journal_is_not_read_over_a_commit_that_the_tables_have_lost() {
        let mut desk = Desk::new();
        for number in 0..10 {
            desk.ask(&key(number), &Command::Acquire(bid(number, 10))).ok().unwrap();
        }
        let before = desk.tables();
        let mut staged = desk.resident.stage(desk.now);
        for number in 0..10 {
            let (lease_id, owner) = (bid(number, 0).lease_id, Owner::parse("anna").unwrap());
            let renew = Command::Renew { claim: Claim::Holder { lease_id, owner, fence: None }, ttl: None };
            desk.resident.decide(&mut staged, &key(number), &renew, &Limits::default());
        }
        desk.commit(staged, None).ok().unwrap();
        assert!(desk.tables() != before, "so many go into the tables");
        assert_eq!(found_in(&put(&before, &desk.journal())).unwrap(), 10, "nobody has an answer yet");
        desk.ask(&key(10), &Command::Acquire(bid(10, 10))).ok().unwrap();
        assert_eq!(found_in(&desk.crashed()).unwrap(), 11);
        let error = found_in(&put(&before, &desk.journal())).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    }

    /// The mark of a write into the tables that failed once stood in for a record that damage had made unreadable.
    #[test]
    fn what_a_failed_write_into_the_tables_leaves_hides_no_damage() {
        let mut desk = Desk::new();
        // Until a region is as long as it gets, and has just begun.
        while desk.written_out < 3 {
            desk.acquire_and_release(1);
        }
        let mut staged = desk.resident.stage(desk.now);
        desk.resident.decide(&mut staged, &key(1), &Command::Acquire(bid(1, 3_900)), &Limits::default());
        let other = desk.other_program();
        assert!(desk.disk.commit(&Batch { staged: &staged, trim: None }).is_err());
        drop(other);
        let (before, written_out) = (desk.journal(), desk.written_out);
        let bid = bid(2, 10);
        desk.ask(&key(2), &Command::Acquire(bid.clone())).ok().unwrap();
        let first_changed = before.iter().zip(desk.journal()).position(|(old, new)| *old != new).unwrap();
        desk.ask(&key(2), &release(bid.lease_id)).ok().unwrap();
        assert_eq!(desk.written_out, written_out, "both went into the region that had begun");
        let mut journal = desk.journal();
        assert!(found_in(&put(&desk.tables(), &journal)).is_ok());
        journal[first_changed + 40] ^= 1;
        let error = found_in(&put(&desk.tables(), &journal)).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    }

    /// What damage leaves of the store's own row does not say how much of the journal is in the tables. An older part of it was once
    /// put over newer rows.
    #[test]
    fn a_repair_without_the_header_puts_nothing_older_over_what_the_tables_have() {
        for goes_on in [false, true] {
            let mut desk = Desk::new();
            desk.acquire_and_release(3);
            desk.ask(&key(0), &Command::Acquire(bid(10, 3_900))).ok().unwrap();
            if goes_on {
                desk.ask(&key(1), &Command::Acquire(bid(11, 10))).ok().unwrap();
            }
            let found = desk.crashed();
            let path = found.path().join(FILE);
            Connection::open(&path).unwrap().execute("UPDATE store SET sum = 0", []).unwrap();
            assert!(load(&path).is_err());
            let repaired = embedded::repair(&path, false).unwrap();
            assert_eq!(repaired.leases, 1 + usize::from(goes_on), "{:?}", repaired.lost);
            let page = embedded::peek(&path, &Range::all()).unwrap();
            let lease_ids: Vec<LeaseId> =
                page.slots.iter().map(|(_, slot)| slot.lease.as_ref().unwrap().lease_id).collect();
            assert_eq!(lease_ids.first(), Some(&bid(10, 0).lease_id));
        }
    }

    /// A sync that fails leaves a record of unknown fate. Its callers were told of the failure, so it does not come back.
    #[test]
    fn a_record_in_doubt_is_discarded() {
        let mut desk = Desk::new();
        desk.ask(&key(0), &Command::Acquire(bid(0, 10))).ok().unwrap();
        let mut staged = desk.resident.stage(desk.now);
        desk.resident.decide(&mut staged, &key(1), &Command::Acquire(bid(1, 10)), &Limits::default());
        desk.disk.journal.append_in_doubt(&staged).unwrap();
        assert_eq!(found_in(&desk.crashed()).unwrap(), 2, "after a crash right now it may count");
        let loaded = desk.disk.reload().unwrap();
        assert_eq!(loaded.resident.page(&Range::all(), desk.now).0.len(), 1);
        desk.resident = loaded.resident;
        assert_eq!(found_in(&desk.crashed()).unwrap(), 1);
        desk.ask(&key(2), &Command::Acquire(bid(2, 10))).ok().unwrap();
        desk.assert_found(&open_store(desk.crashed().path(), Mode::Exclusive));
    }

    /// A process that looks at the file meanwhile sees some moment of it.
    #[test]
    fn a_look_beside_the_writer_finds_one_moment() {
        let mut desk = Desk::new();
        let path = desk.folder.path().join(FILE);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut looks = Vec::new();
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    let seen = embedded::peek(&path, &Range::all()).unwrap();
                    assert_eq!(seen.position.0 as usize, seen.slots.len(), "each acquire is one event");
                    looks.push(seen.slots.len());
                }
                looks
            });
            for number in 0..400 {
                desk.ask(&key(number), &Command::Acquire(bid(number, 100))).ok().unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Release);
            let looks = looking.join().unwrap();
            assert!(looks.is_sorted() && looks.len() > 1, "{looks:?}");
        });
    }

    /// A write into the tables that failed once took the number of a record with it. The next record that had room in the
    /// journal then had the wrong number, and the file did not open any more. What such a write has left in the journal counts
    /// for nothing.
    #[test]
    fn the_journal_goes_on_after_it_could_not_be_written_into_the_tables() {
        let mut desk = Desk::new();
        desk.ask(&key(0), &Command::Acquire(bid(0, 10))).ok().unwrap();
        let mut staged = desk.resident.stage(desk.now);
        desk.resident.decide(&mut staged, &key(1), &Command::Acquire(bid(1, 3_900)), &Limits::default());
        let other = desk.other_program();
        let failure = desk.disk.commit(&Batch { staged: &staged, trim: None }).err().unwrap();
        assert!(failure.undone, "{}", failure.error);
        drop(other);
        for number in 2..10 {
            desk.ask(&key(number), &Command::Acquire(bid(number, 10))).ok().unwrap();
            let found = desk.crashed();
            desk.assert_found(&open_store(found.path(), Mode::Exclusive));
        }
    }

    /// While what a full region holds is not in the tables yet, the journal is all that has it: two regions of it.
    #[test]
    fn commits_go_on_while_the_tables_are_written_and_are_found_after_a_crash() {
        let mut desk = Desk::new();
        desk.acquire_and_release(30);
        let other = desk.other_program();
        let (before, mut number) = (desk.tables(), 1_000);
        while desk.disk.under_way.is_none() {
            desk.ask_meanwhile(number);
            number += 1;
        }
        for _ in 0..5 {
            desk.ask_meanwhile(number);
            number += 1;
        }
        assert_eq!(desk.tables(), before, "nothing has come into the tables");
        for mode in [Mode::Exclusive, Mode::Shared] {
            desk.assert_found(&open_store(desk.crashed().path(), mode));
        }
        drop(other);
        assert!(desk.disk.finish_what_is_under_way().unwrap());
        assert!(desk.tables() != before);
        desk.assert_found(&open_store(desk.crashed().path(), Mode::Exclusive));
    }

    /// Nothing can be written into the tables, and the journal is full: commits fail, and nothing that was acknowledged is lost.
    #[test]
    fn a_journal_that_cannot_be_written_into_the_tables_takes_no_more_until_it_can() {
        let mut desk = Desk::new();
        desk.acquire_and_release(30);
        let other = desk.other_program();
        let refused = (1_000..2_000).find(|number| {
            let mut staged = desk.resident.stage(desk.now);
            desk.resident.decide(
                &mut staged,
                &key(*number),
                &Command::Acquire(bid(*number, 10)),
                &Limits::default(),
            );
            let failure = desk.disk.commit(&Batch { staged: &staged, trim: None }).err();
            if failure.is_none() {
                desk.resident.commit(staged);
            }
            failure.is_some_and(|failure| failure.undone)
        });
        let refused = refused.unwrap();
        assert!(refused > 1_010, "{refused}");
        desk.assert_found(&open_store(desk.crashed().path(), Mode::Exclusive));
        drop(other);
        desk.ask(&key(refused), &Command::Acquire(bid(refused, 10))).ok().unwrap();
        desk.assert_found(&open_store(desk.crashed().path(), Mode::Exclusive));
    }

    /// Old events and endings go when the journal is written into the tables, as many as were to go by then.
    #[test]
    fn what_is_not_kept_goes_with_the_next_write_into_the_tables() {
        let mut desk = Desk::new();
        desk.acquire_and_release(200);
        let trim = Trim { events_up_to: Position(desk.position().0 - 50), endings_kept: 20 };
        desk.commit(desk.resident.stage(desk.now), Some(trim)).ok().unwrap();
        let before = desk.written_out;
        for number in 200..300 {
            desk.ask(&key(number), &Command::Acquire(bid(number, 10))).ok().unwrap();
        }
        assert!(desk.written_out > before);
        let (path, last) = (desk.folder.path().join(FILE), desk.position().0);
        let found = load(&path).unwrap().1;
        let oldest = found.events.first().unwrap().position.0;
        // A row has as many events as the journal had room for.
        assert!((last - 200..=last - 149).contains(&oldest), "{oldest} of {last}");
        assert!((20..50).contains(&found.endings.len()), "{}", found.endings.len());
    }

    /// A program that had the file open for a moment once left the deleting to the next one, which did the same.
    #[test]
    fn what_is_not_kept_goes_at_an_orderly_end_at_the_latest() {
        let mut desk = Desk::new();
        desk.acquire_and_release(30);
        let trim = Trim { events_up_to: desk.position(), endings_kept: 0 };
        desk.commit(desk.resident.stage(desk.now), Some(trim)).ok().unwrap();
        let path = desk.folder.path().join(FILE);
        let found = load(&path).unwrap().1;
        assert!(!found.events.is_empty() && !found.endings.is_empty());
        desk.disk.end(desk.now).unwrap();
        let found = load(&path).unwrap().1;
        assert_eq!((found.events.len(), found.endings.len(), found.slots.len()), (0, 0, 30));
    }

    /// A job is in the journal along with its lease.
    #[test]
    fn jobs_are_found_after_a_crash() {
        let mut desk = Desk::new();
        for number in 0..40 {
            let key = Key::parse(&format!("job/analyses/{number}")).unwrap();
            let payload = JobText::parse(&"p".repeat(400)).unwrap();
            let create = JobCommand::Create { payload, max_attempts: Some(3) };
            let mut staged = desk.resident.stage(desk.now);
            let (_, record) = desk.resident.decide_job(&mut staged, &key, &create, &Limits::default());
            desk.commit(staged, None).ok().unwrap();
            let found = desk.crashed();
            for mode in [Mode::Exclusive, Mode::Shared] {
                let store = open_store(found.path(), mode);
                let again = block_on(store.apply_job(&key, JobCommand::Settle)).unwrap();
                assert_eq!(again.record.job, record.job);
            }
        }
        assert!(desk.written_out > 1);
    }
}
