//! Looking after a file: check, back up, restore, repair. Nothing here destroys what it finds.
//!
//! Looking ([`peek`], [`check`], [`backup`]) works beside the processes that use the file. Replacing ([`restore`],
//! [`repair`]) needs it alone, keeps the old file under another name, and moves the fence far ahead: what was handed
//! out in the part of history that is lost is not known, but it was less than that.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold_core::{Job, Key, Slot};
use rusqlite::{Connection, OptionalExtension};

use super::journal::{self, Recorded};
use super::journal_file::{self, JournalFile};
use super::mode_lock::ModeLock;
use super::rows::{self, Header, RowError};
use super::{Mode, disk, epoch, file, log, migrate, shared};
use crate::changes::Ending;
use crate::clock::unix_millis;
use crate::resident::JUMP;
use crate::{Error, Page, Range, Result, Retry};

/// A page of the leases in the file, read beside the processes that use it. Times are as of the last time it wrote its clock,
/// at most a second ago.
pub fn peek(path: impl AsRef<Path>, range: &Range) -> Result<Page> {
    let path = &file::resolve(path.as_ref())?;
    let (db, _) = file::connect_read_only(path)?;
    let clock = crate::clock::SystemClock;
    let now = |header: &Header| {
        shared::running_clock(header, &clock).map_or(header.clock, |now| now.max(header.clock))
    };
    shared::list(path, &db, range, now).map_err(|error| file::row_trouble(path, error))
}

/// What a look at a file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The schema of the file.
    pub schema: i64,
    /// How many keys it knows.
    pub keys: usize,
    /// How many of them have a lease, expired ones included that nobody has noticed yet.
    pub leases: usize,
    /// How many events it keeps.
    pub events: usize,
    /// The last fence it gave out.
    pub last_fence: u64,
    /// How large the file is, its log and its journal included.
    pub bytes: u64,
    /// What is wrong with it; empty when nothing is.
    pub problems: Vec<String>,
}

/// Looks at every page and every row of a file.
pub fn check(path: impl AsRef<Path>) -> Result<Checked> {
    let path = &file::resolve(path.as_ref())?;
    let (db, schema) = file::connect_read_only(path)?;
    let mut checked = Checked {
        schema,
        keys: 0,
        leases: 0,
        events: 0,
        last_fence: 0,
        bytes: size(path) + size(&file::beside(path, "-wal")) + size(&journal_file::path_of(path)),
        problems: page_problems(&db).map_err(|error| file::trouble(path, &error))?,
    };
    checked.problems.extend(log_problem(path).map(|error| what_is_wrong(&error)));
    match disk::load_rows(path, &db) {
        Ok(found) => {
            checked.last_fence = found.counters.last_fence;
            checked.keys = found.slots.len();
            checked.leases = found.slots.values().filter(|slot| slot.lease.is_some()).count();
            checked.events = found.events.len();
            if found.header.in_use && file::log_is_gone(path) {
                checked.problems.push(file::LOG_IS_GONE.into());
            }
        }
        Err(error) => {
            checked.problems.push(in_words(error));
            // What can be said of a damaged file; its journal and its packs are left out.
            checked.keys = count(&db, "SELECT count(*) FROM slot");
            checked.leases = count(&db, "SELECT count(owner) FROM slot");
            checked.events = count(&db, "SELECT count(*) FROM event");
        }
    }
    Ok(checked)
}

/// What is wrong with the log, which can only be seen while nobody has the store open.
fn log_problem(path: &Path) -> Option<Error> {
    if file::log_is_gone(path) {
        return None;
    }
    ModeLock::take(path, Mode::Exclusive, false, log::check)
        .err()
        .filter(|error| matches!(error, Error::Damaged { .. }))
}

fn what_is_wrong(error: &Error) -> String {
    match error {
        Error::Damaged { what, .. } => what.clone(),
        other => other.to_string(),
    }
}

/// How many of SQLite's own findings are passed on.
const PAGE_PROBLEMS: i64 = 10;

fn page_problems(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let found = db
        .prepare(&format!("PRAGMA integrity_check({PAGE_PROBLEMS})"))
        .and_then(|mut statement| statement.query_map([], |row| row.get::<_, String>(0))?.collect());
    match found {
        Ok(lines) => Ok(Vec::into_iter(lines).filter(|line| line != "ok").collect()),
        Err(error) if file::is_damage(&error) => Ok(vec![error.to_string()]),
        Err(error) => Err(error),
    }
}

fn count(db: &Connection, sql: &str) -> usize {
    let counted = db.query_row(sql, [], |row| row.get::<_, i64>(0)).optional().ok().flatten();
    counted.and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// What was backed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// What the copy holds; it was read again after it was written.
    pub checked: Checked,
}

/// Copies the file as it is at this moment, beside the processes that use it, to `target`, which must not exist.
pub fn backup(path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<Backup> {
    let (path, target) = (&file::resolve(path.as_ref())?, target.as_ref());
    refuse_existing(target)?;
    log_problem(path).map_or(Ok(()), Err)?;
    let (db, schema) = file::connect_read_only(path)?;
    let draft = file::begin_draft(target)?;
    let copied = copy_into(&db, path, schema, &draft).and_then(|()| check(&draft));
    let made = copied.and_then(|checked| match checked.problems.first() {
        // A copy of damage is no backup.
        Some(problem) => Err(file::damaged(path, problem)),
        None => file::put_new(&draft, target).map(|()| Backup { checked }),
    });
    let _ = fs::remove_file(&draft);
    made
}

fn refuse_existing(target: &Path) -> Result<()> {
    if !target.exists() {
        return Ok(());
    }
    let fix = "name one that does not, nothing is overwritten";
    Err(Error::Invalid(leasehold_core::Invalid::new(
        "file",
        &target.display().to_string(),
        "it already exists",
        fix,
    )))
}

/// How often a copy is made anew because the journal was written into the tables this very moment.
const ATTEMPTS: u32 = 100;

fn copy_into(db: &Connection, path: &Path, schema: i64, draft: &Path) -> Result<()> {
    let mut damage = None;
    for _ in 0..ATTEMPTS {
        let trouble = |error| file::row_trouble(path, error);
        let header = rows::read_header(db).map_err(trouble)?;
        let recorded = match Recorded::read(path, db, &header) {
            Ok(recorded) => Ok(recorded),
            Err(RowError::Bad(what)) => Err(what),
            Err(error) => return Err(trouble(error)),
        };
        match copy_once(db, path, schema, draft, &header, recorded.as_ref()) {
            Ok(true) => {
                let synced = fs::File::open(draft).and_then(|file| file.sync_all());
                return synced.map_err(|error| file::io_trouble(draft, "made durable", &error));
            }
            Ok(false) => {}
            // What is damaged is so twice in a row; what is only being written is not.
            Err(error) => {
                let found = Some((header, recorded.ok()));
                if damage == found {
                    return Err(error);
                }
                damage = found;
            }
        }
        // Emptied, not removed: SQLite would make it readable for everybody.
        let emptied = fs::OpenOptions::new().write(true).truncate(true).open(draft);
        emptied.map_err(|error| file::io_trouble(draft, "made anew", &error))?;
    }
    let what = format!(
        "{} is written so much that it could not be copied; do so when fewer callers write",
        path.display()
    );
    Err(Error::Unavailable { what, retry: Retry::Safe })
}

/// Answers whether the copy is of the moment at which header and journal were read.
fn copy_once(
    db: &Connection,
    path: &Path,
    schema: i64,
    draft: &Path,
    header: &Header,
    recorded: std::result::Result<&Recorded, &String>,
) -> Result<bool> {
    let wrong = |error| file::row_trouble(path, error);
    let trouble = |error: rusqlite::Error| file::trouble(draft, &error);
    // One statement, one snapshot; and the copy has no unused pages.
    db.execute("VACUUM INTO ?1", [draft.to_string_lossy()]).map_err(trouble)?;
    let copy = Connection::open(draft).map_err(trouble)?;
    copy.execute_batch(&migrate::old_views(schema)).map_err(trouble)?;
    copy.pragma_update(None, "journal_mode", "DELETE").map_err(trouble)?;
    // What is wrong in the copy is wrong in the file.
    let copied = rows::read_header(&copy).map_err(wrong)?;
    if !copied.goes_with(header) {
        return Ok(false);
    }
    match recorded {
        Ok(recorded) => make_a_copy(&copy, copied, recorded, schema).map(|()| true).map_err(wrong),
        Err(what) => Err(file::damaged(path, what)),
    }
}

/// Makes the file a closed one: nobody uses it, its journal is in its tables, and it has an epoch that is recorded nowhere.
fn make_a_copy(
    copy: &Connection,
    mut header: Header,
    recorded: &Recorded,
    schema: i64,
) -> std::result::Result<(), RowError> {
    let journal = recorded.contents(copy, &header)?;
    header.in_use = false;
    if schema >= migrate::WITH_EPOCH {
        header.epoch = epoch::unrecorded();
    }
    if header.journal == 0 {
        return Ok(rows::write_not_in_use(copy, &header)?);
    }
    let transaction = copy.unchecked_transaction()?;
    journal.write(&transaction, &mut header)?;
    header.journal = 0;
    rows::write_header(&transaction, &header)?;
    transaction.commit()?;
    Ok(copy.execute_batch("VACUUM")?)
}

/// What was put in the place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// How many leases the new file has.
    pub leases: usize,
    /// What could not be kept, in words.
    pub lost: Vec<String>,
    /// Every fence from now on is larger than this.
    pub last_fence: u64,
    /// Where the old file is now, if there was one.
    pub kept_as: Option<PathBuf>,
}

/// Puts a backup in the place of `path`. Every later fence is larger than any that was given out since the backup.
pub fn restore(backup: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Repaired> {
    let (backup, path) = (&file::resolve(backup.as_ref())?, &file::resolve(path.as_ref())?);
    let _lock = ModeLock::take(path, Mode::Exclusive, true, |_| Ok(()))?;
    let _journal = JournalFile::take(path).map_err(|error| file::row_trouble(path, error))?;
    let (db, schema) = file::connect_read_only(backup)?;
    let from = salvage(backup, &db, schema);
    if let Some(problem) = from.lost.first() {
        return Err(file::damaged(backup, problem));
    }
    // The file that is replaced may know of later fences than the backup does, if it can still be read.
    let replaced = file::connect_read_only(path)
        .map(|(db, schema)| salvage(path, &db, schema).last_fence())
        .unwrap_or(0);
    replace(path, &from, from.last_fence().max(replaced), "before-restore")
}

/// Keeps what is readable of a damaged file. Without `start_empty`, a file of which nothing is readable is refused.
pub fn repair(path: impl AsRef<Path>, start_empty: bool) -> Result<Repaired> {
    let path = &file::resolve(path.as_ref())?;
    let _lock = ModeLock::take(path, Mode::Exclusive, false, |_| Ok(()))?;
    let _journal = JournalFile::take(path).map_err(|error| file::row_trouble(path, error))?;
    let mut found = match file::connect_read_only(path) {
        Ok((db, schema)) => salvage(path, &db, schema),
        Err(error @ Error::Newer { .. }) => return Err(error),
        Err(error) => Salvage { lost: vec![error.to_string()], ..Salvage::default() },
    };
    found.lost.extend(log::check(path).err().map(|error| what_is_wrong(&error)));
    if found.header.is_none() && found.slots.is_empty() && found.jobs.is_empty() && !start_empty {
        let what = format!(
            "nothing in {} is readable, so nothing could be kept; restore a backup with `leasehold store restore`, or, \
             if there is none, begin with an empty store: `leasehold store repair --start-empty`",
            path.display()
        );
        return Err(Error::Unavailable { what, retry: Retry::No });
    }
    replace(path, &found, found.last_fence(), "damaged")
}

/// What could be read of a file.
#[derive(Default)]
struct Salvage {
    header: Option<Header>,
    slots: Vec<(Key, Slot)>,
    jobs: Vec<(Key, Job)>,
    endings: Vec<Ending>,
    /// The largest fence that an event tells of.
    told_fence: u64,
    lost: Vec<String>,
}

impl Salvage {
    /// The largest fence that the file is known to have given out.
    fn last_fence(&self) -> u64 {
        let in_slots =
            self.slots.iter().filter_map(|(_, slot)| slot.lease.as_ref()).map(|lease| lease.fence.get());
        let in_header = self.header.iter().map(|header| header.counters.last_fence);
        in_slots.chain(in_header).fold(self.told_fence, u64::max)
    }

    /// The latest moment on the lease clock that the file is known to have seen.
    fn clock(&self) -> leasehold_core::StoreTime {
        let in_slots = self
            .slots
            .iter()
            .map(|(_, slot)| slot.lease.as_ref().map_or(slot.vacant_since, |lease| lease.renewed_at));
        let in_jobs = self.jobs.iter().map(|(_, job)| job.changed_at);
        in_slots.chain(in_jobs).chain(self.header.iter().map(|header| header.clock)).max().unwrap_or_default()
    }
}

fn salvage(path: &Path, db: &Connection, schema: i64) -> Salvage {
    let mut found = Salvage::default();
    match rows::read_header(db) {
        Ok(header) => found.header = Some(header),
        Err(error) => found.lost.push(in_words(error)),
    }
    found.slots = salvage_rows(db, "slot", rows::SLOT_COLUMNS, "key", rows::slot_from, &mut found.lost);
    found.endings =
        salvage_rows(db, "ending", rows::ENDING_COLUMNS, "id", rows::ending_from, &mut found.lost);
    found.jobs = salvage_rows(db, "job", rows::JOB_COLUMNS, "key", rows::job_from, &mut found.lost);
    found.jobs.sort_by(|(a, _), (b, _)| a.cmp(b));
    found.jobs.dedup_by(|(a, _), (b, _)| a == b);
    found.slots.sort_by(|(a, _), (b, _)| a.cmp(b));
    found.slots.dedup_by(|(a, _), (b, _)| a == b);
    let sums = found
        .slots
        .iter()
        .fold(0_u64, |sum, (key, slot)| sum.wrapping_add(u64::from(rows::slot_sum(key, slot))));
    if found.lost.is_empty() && found.header.as_ref().is_some_and(|header| header.slot_sums != sums) {
        found.lost.push("some slots are missing".into());
    }
    let sums =
        found.jobs.iter().fold(0_u64, |sum, (key, job)| sum.wrapping_add(u64::from(rows::job_sum(key, job))));
    if found.lost.is_empty() && found.header.as_ref().is_some_and(|header| header.job_sums != sums) {
        found.lost.push("some jobs are missing".into());
    }
    found.told_fence = told_fence(db);
    if schema >= migrate::WITH_JOURNAL {
        add_journal(path, db, &mut found);
    }
    if schema < migrate::WITH_TABS {
        // Only now: the checksums are over what the file holds.
        let slots = std::mem::take(&mut found.slots).into_iter();
        found.slots = slots.map(|(key, slot)| (key.clone(), migrate::with_tab(&key, slot))).collect();
    }
    found
}

/// The largest fence that an event tells of. Events are not kept: consumers begin anew after this, so a damaged one is no loss.
fn told_fence(db: &Connection) -> u64 {
    let mut events =
        salvage_rows(db, "event", rows::EVENT_COLUMNS, "position", rows::event_from, &mut Vec::new());
    events.extend(journal::salvage_packed(db, "event_pack", rows::event_from, &mut Vec::new()));
    events.iter().map(|published| published.event.fence.get()).max().unwrap_or(0)
}

/// Adds what is not in the tables of their own: packs of endings, and the journal, which is newer than all tables.
fn add_journal(path: &Path, db: &Connection, found: &mut Salvage) {
    let mut lost = Vec::new();
    found.endings.extend(journal::salvage_packed(db, "ending_pack", rows::ending_from, &mut lost));
    let (contents, damage) = journal::salvage(path, db, found.header.as_ref());
    lost.extend(damage);
    lost.extend(add_contents(contents, found).err());
    found.lost.extend(lost.into_iter().map(in_words));
}

fn add_contents(contents: journal::Contents, found: &mut Salvage) -> std::result::Result<(), RowError> {
    // Only the store's own row says how much of the journal is in the tables already. Without it, either may be the newer.
    let is_newer = found.header.is_some();
    replace_rows(&mut found.slots, contents.slots, |old, new| {
        is_newer || age_of_slot(new) >= age_of_slot(old)
    });
    replace_rows(&mut found.jobs, contents.jobs, |old, new| is_newer || new.changed_at >= old.changed_at);
    let Some((counters, clock)) = contents.latest else { return Ok(()) };
    // The numbers of a store whose own row is damaged are here too.
    let header = found.header.get_or_insert_default();
    (header.counters, header.clock) = (counters, clock);
    found.endings.extend(contents.endings.unpack(rows::ending_from)?);
    Ok(())
}

/// Orders the states of one key.
fn age_of_slot(slot: &Slot) -> (u64, leasehold_core::StoreTime) {
    (slot.seq, slot.lease.as_ref().map_or(slot.vacant_since, |lease| lease.renewed_at))
}

/// Puts the rows of a journal in the place of those of a table, where `replaces` says so of the old one and the new one. A row that
/// was forgotten goes.
fn replace_rows<T>(
    rows: &mut Vec<(Key, T)>,
    mut newer: HashMap<Key, Option<T>>,
    replaces: impl Fn(&T, &T) -> bool,
) {
    rows.retain(|(key, old)| match newer.get(key) {
        Some(Some(new)) if !replaces(old, new) => {
            newer.remove(key);
            true
        }
        found => found.is_none(),
    });
    rows.extend(newer.into_iter().filter_map(|(key, row)| Some((key, row?))));
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
}

/// Reads a table from both ends, so that one bad page in the middle costs no more than itself.
fn salvage_rows<T>(
    db: &Connection,
    table: &str,
    columns: &str,
    order: &str,
    read: impl Fn(&dyn rows::Cells) -> std::result::Result<T, RowError>,
    lost: &mut Vec<String>,
) -> Vec<T> {
    let mut kept = Vec::new();
    let forward = salvage_until_error(
        db,
        &format!("SELECT {columns} FROM {table} ORDER BY {order}"),
        &read,
        &mut kept,
        lost,
    );
    if let Err(error) = forward {
        lost.push(format!("a part of the table {table}: {error}"));
        let mut from_the_end = Vec::new();
        let sql = format!("SELECT {columns} FROM {table} ORDER BY {order} DESC");
        // The same damage ends this pass too; it has been reported.
        let _ = salvage_until_error(db, &sql, &read, &mut from_the_end, &mut Vec::new());
        kept.extend(from_the_end.into_iter().rev());
    }
    kept
}

fn salvage_until_error<T>(
    db: &Connection,
    sql: &str,
    read: impl Fn(&dyn rows::Cells) -> std::result::Result<T, RowError>,
    kept: &mut Vec<T>,
    lost: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match read(row) {
            Ok(value) => kept.push(value),
            Err(error) => lost.push(in_words(error)),
        }
    }
    Ok(())
}

fn in_words(error: RowError) -> String {
    match error {
        RowError::Bad(what) => what,
        RowError::Sqlite(error) => error.to_string(),
        RowError::Io(error) => format!("its journal cannot be read: {error}"),
        RowError::Replaced => "it was opened by another process meanwhile".into(),
    }
}

/// Puts a store made of what was salvaged in the place of `path`, and keeps what was there.
fn replace(path: &Path, found: &Salvage, last_fence: u64, label: &str) -> Result<Repaired> {
    let header = moved_ahead(found, last_fence);
    let slots: Vec<_> = found.slots.iter().map(|(key, slot)| (key, with_seq_ahead(slot))).collect();
    let draft = file::begin_draft(path)?;
    let made = file::fill_draft(&draft, &header, |db| {
        let mut header = header.clone();
        for (key, slot) in &slots {
            header.slot_sums = header.slot_sums.wrapping_add(u64::from(rows::write_slot(db, key, slot)?));
        }
        for (key, job) in &found.jobs {
            header.job_sums = header.job_sums.wrapping_add(u64::from(rows::write_job(db, key, job)?));
        }
        rows::write_endings(db, &found.endings)?;
        rows::write_header(db, &header)
    });
    let kept_as = made.and_then(|()| swap(path, &draft, label));
    let _ = fs::remove_file(&draft);
    let leases = slots.iter().filter(|(_, slot)| slot.lease.is_some()).count();
    Ok(Repaired {
        leases,
        lost: found.lost.clone(),
        last_fence: header.counters.last_fence,
        kept_as: kept_as?,
    })
}

/// The header of the new file: every number far ahead of what the lost part of history can have reached.
fn moved_ahead(found: &Salvage, last_fence: u64) -> Header {
    let mut header = found.header.clone().unwrap_or_default();
    let last_seq = found.slots.iter().map(|(_, slot)| slot.seq).max().unwrap_or(0);
    header.counters.last_fence = last_fence;
    header.counters.seq_floor = header.counters.seq_floor.max(last_seq);
    header.counters = header.counters.reopened(true, unix_millis());
    header.clock = found.clock();
    header.boot.clear();
    header.slot_sums = 0;
    header.job_sums = 0;
    header.in_use = false;
    header.epoch = 0;
    header.journal = 0;
    header
}

fn with_seq_ahead(slot: &Slot) -> Slot {
    Slot { seq: slot.seq.saturating_add(JUMP), ..slot.clone() }
}

/// Moves `draft` to `path`. At no moment is there nothing at `path`: a process that found nothing would begin a new store.
fn swap(path: &Path, draft: &Path, label: &str) -> Result<Option<PathBuf>> {
    let failed = |error: std::io::Error| file::io_trouble(path, "replaced", &error);
    let kept_name = file::beside(path, &format!(".{label}-{}", unix_millis()));
    let kept_as = path.exists().then(|| kept_name.clone());
    if let Some(kept_as) = &kept_as {
        fs::hard_link(path, kept_as).or_else(|_| fs::copy(path, kept_as).map(|_| ())).map_err(failed)?;
    }
    // The old log and journal belong to the old file, even if that is gone: beside the new one the log would be played back into it.
    let beside_both = |suffix| (file::beside(path, suffix), file::beside(&kept_name, suffix));
    let log = beside_both("-wal");
    let journal = (journal_file::path_of(path), journal_file::path_of(&kept_name));
    for (from, to) in [log, journal].into_iter().filter(|(from, _)| from.exists()) {
        fs::rename(from, to).map_err(failed)?;
    }
    let _ = fs::remove_file(file::beside(path, "-shm"));
    fs::rename(draft, path).and_then(|()| file::sync_folder(path)).map_err(failed)?;
    // Its numbers are ahead already.
    epoch::forget(path);
    Ok(kept_as)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test fails by panicking
mod tests {
    use super::*;

    /// A check that another process holds up says so; it does not call the file damaged.
    #[test]
    fn a_file_that_cannot_be_read_right_now_is_not_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("busy.db");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE some (id INTEGER); BEGIN EXCLUSIVE").unwrap();
        let db = Connection::open(&path).unwrap();
        db.busy_timeout(std::time::Duration::ZERO).unwrap();
        assert!(page_problems(&db).is_err_and(|error| !file::is_damage(&error)));
        other.execute_batch("COMMIT").unwrap();
        assert_eq!(page_problems(&db).unwrap(), Vec::<String>::new());
    }
}
