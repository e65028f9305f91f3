//! The file itself: made whole or not at all, recognised before it is trusted, and SQLite's troubles in our words.

use std::ffi::OsString;
use std::fs;
#[cfg(not(unix))]
use std::io::Read;
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::rows::{self, Header, RowError};
use super::{Mode, journal, journal_file, migrate, process};
use crate::clock::unix_millis;
use crate::resident::Counters;
use crate::{Error, Result, Retry};

/// The schema that this version writes.
pub(super) const SCHEMA: i64 = 5;

/// The oldest schema that there are files of.
const OLDEST_SCHEMA: i64 = 1;

/// `LSHD`, so that a file can be told from other SQLite files.
const APPLICATION_ID: i64 = 0x4C53_4844;

/// How long a transaction waits for another process to finish its own.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Half of SQLite's default: a command touches two or three pages, and each goes into the log whole.
const PAGE_SIZE: i64 = 2_048;

/// How many pages the log takes before they are written back.
const LOG_PAGES: u32 = 2_000;

const CREATE: &str = "
CREATE TABLE job (
  key TEXT PRIMARY KEY, payload TEXT NOT NULL, status TEXT NOT NULL, note TEXT, by INTEGER, attempts INTEGER NOT NULL,
  max_attempts INTEGER, begun INTEGER NOT NULL, changed_at INTEGER NOT NULL, sum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE event (
  position INTEGER PRIMARY KEY, key TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
  fence INTEGER NOT NULL, owner TEXT NOT NULL, kind TEXT NOT NULL, until INTEGER, party TEXT, note TEXT, meta TEXT,
  sum INTEGER NOT NULL
);
CREATE TABLE ending (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, key TEXT NOT NULL, lease_id BLOB NOT NULL, because TEXT NOT NULL,
  sum INTEGER NOT NULL
);
";

/// The store's own row. This table and the next have statements of their own: migrations make them anew.
pub(super) const CREATE_STORE: &str = "CREATE TABLE store (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last_fence INTEGER NOT NULL, position INTEGER NOT NULL, seq_floor INTEGER NOT NULL,
  clock INTEGER NOT NULL, boot TEXT NOT NULL, clock_offset INTEGER NOT NULL,
  slot_sums INTEGER NOT NULL, job_sums INTEGER NOT NULL, in_use INTEGER NOT NULL, epoch INTEGER NOT NULL,
  journal INTEGER NOT NULL, sum INTEGER NOT NULL
)";

/// The slots.
pub(super) const CREATE_SLOT: &str = "CREATE TABLE slot (
  key TEXT PRIMARY KEY, seq INTEGER NOT NULL, vacant_since INTEGER NOT NULL, due_at INTEGER,
  owner TEXT, tab TEXT, lease_id BLOB, fence INTEGER, acquired_at INTEGER, renewed_at INTEGER, expires_at INTEGER,
  ttl_ms INTEGER, leaving INTEGER, meta TEXT, request TEXT, sum INTEGER NOT NULL
) WITHOUT ROWID";

/// The path with something appended to its file name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

pub(super) fn missing(path: &Path) -> Error {
    let what = format!("{} does not exist", path.display());
    Error::Unavailable { what, retry: Retry::No }
}

/// Which files were opened: the store's own, its log and its journal. What is written to them is lost once their names are gone.
pub(super) struct Place {
    path: PathBuf,
    #[cfg(unix)]
    opened: Vec<(PathBuf, Option<(u64, u64)>)>,
}

impl Place {
    /// The files that are there now. Only a store that one process has alone has a journal.
    #[cfg(unix)]
    pub(super) fn of(path: &Path, mode: Mode) -> Self {
        let journal = (mode == Mode::Exclusive).then(|| journal_file::path_of(path));
        let files = [path.to_owned(), beside(path, "-wal")].into_iter().chain(journal);
        let opened = files.map(|file| (file.clone(), identity_at(&file))).collect();
        Self { path: path.to_owned(), opened }
    }

    #[cfg(not(unix))]
    pub(super) fn of(path: &Path, _: Mode) -> Self {
        Self { path: path.to_owned() }
    }

    /// Refuses to go on if other files, or none, have the names of those that were opened.
    pub(super) fn check(&self) -> Result<()> {
        #[cfg(unix)]
        if self.opened.iter().any(|(file, opened)| opened.is_none() || identity_at(file) != *opened) {
            let what = format!(
                "{}, its log or its journal was deleted or replaced while it was open. Move it back, or start this program again; \
                 without the file it begins with an empty store, or with the backup that you put there",
                self.path.display()
            );
            return Err(Error::Unavailable { what, retry: Retry::No });
        }
        Ok(()) // Elsewhere, a file that is open cannot be deleted.
    }
}

/// The device and the number of a file. Its times are not asked for: Linux then gives the next write a finer time, which is one
/// more block to sync with every commit.
#[cfg(target_os = "linux")]
pub(super) fn identity_at(path: &Path) -> Option<(u64, u64)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags};
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::INO).ok()?;
    Some((rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn identity_at(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// The file itself, if `path` is a symbolic link to it: there SQLite keeps the log, and there everybody meets the same
/// lock, by whatever name they come.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
    if !path.is_symlink() {
        return Ok(path.to_owned());
    }
    fs::canonicalize(path).map_err(|error| io_trouble(path, "followed", &error))
}

/// Makes an empty store at `path` if there is nothing. It appears there complete, so that a file which is empty or
/// half made can only be damage.
pub(super) fn create_if_missing(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    if !log_is_gone(path) {
        let what = "it is gone, while its write-ahead log (the file ending in -wal) is still there";
        return Err(damaged(path, what));
    }
    if fs::metadata(journal_file::path_of(path)).is_ok_and(|journal| journal.len() > 0) {
        let what = "it is gone, while its journal (the file ending in .journal) is still there";
        return Err(damaged(path, what));
    }
    // Fences begin at the wall clock's milliseconds: even when the file is deleted, they go on growing.
    let counters = Counters { last_fence: unix_millis(), ..Counters::default() };
    let header = Header { counters, ..Header::default() };
    let draft = begin_draft(path)?;
    let made = fill_draft(&draft, &header, |_| Ok(())).and_then(|()| put_new(&draft, path));
    // Whatever became of it, the draft's own name goes.
    let _ = fs::remove_file(&draft);
    made
}

/// Makes an empty file beside `path`, for what is to take its place. Nobody else has the same: neither another thread,
/// nor a process with the same number in another container.
pub(super) fn begin_draft(path: &Path) -> Result<PathBuf> {
    let mut number = 0_u32;
    loop {
        let draft = beside(path, &format!(".new-{}-{number}", std::process::id()));
        match make_private(&draft) {
            Ok(()) => return Ok(draft),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(io_trouble(path, "made", &error)),
        }
    }
}

/// Makes an empty file that only its owner can read: it will hold lease ids.
fn make_private(path: &Path) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(|_| ())
}

/// Makes the draft a store with this header, and lets `fill` add to it.
pub(super) fn fill_draft(
    draft: &Path,
    header: &Header,
    fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<()> {
    let mut db = Connection::open(draft).map_err(|error| trouble(draft, &error))?;
    let fill_it = || -> rusqlite::Result<()> {
        db.pragma_update(None, "page_size", PAGE_SIZE)?;
        db.pragma_update(None, "synchronous", "FULL")?;
        let transaction = db.transaction()?;
        transaction.execute_batch(CREATE)?;
        transaction.execute_batch(CREATE_STORE)?;
        transaction.execute_batch(CREATE_SLOT)?;
        journal::CREATE.iter().try_for_each(|table| transaction.execute_batch(table))?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA)?;
        rows::write_header(&transaction, header)?;
        fill(&transaction)?;
        transaction.commit()?;
        // Already here, where nobody else has it open: of two who turn the log on at the same time, one fails.
        begin_log(&db)
    };
    fill_it().map_err(|error| trouble(draft, &error))
}

/// Gives the finished draft its name. If another process was faster, its file stays.
pub(super) fn put_new(draft: &Path, path: &Path) -> Result<()> {
    let placed = match fs::hard_link(draft, path) {
        // A file system without hard links. Nothing else makes the file meanwhile: its makers hold the mode lock alone.
        Err(_) if !path.exists() => fs::rename(draft, path),
        _ => Ok(()),
    };
    placed.and_then(|()| sync_folder(path)).map_err(|error| io_trouble(path, "made", &error))
}

/// Makes the names in the folder of `path` durable.
pub(super) fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(folder)?.sync_all()
}

/// Opens a store for writing. The caller holds the mode lock.
pub(super) fn connect(path: &Path) -> Result<Connection> {
    match connect_to_any(path)? {
        (db, SCHEMA) => Ok(db),
        // It would have been brought up to date by now, had this process been alone with it.
        _ => Err(Error::InUse {
            path: path.to_owned(),
            by: "a program of an older version of Leasehold".to_owned(),
            fix: "stop that program; the file is brought up to date by the first one of this version that has it \
                  alone"
                .to_owned(),
        }),
    }
}

/// Opens a store of any schema that this version knows for writing, and answers which it is.
pub(super) fn connect_to_any(path: &Path) -> Result<(Connection, i64)> {
    let (db, schema) = connect_with(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let header = rows::read_header(&db).map_err(|error| row_trouble(path, error))?;
    if header.in_use && log_is_gone(path) {
        let lost = if has_other_names(path) {
            OR_BY_ANOTHER_NAME
        } else {
            ", and with it what was acknowledged last"
        };
        return Err(damaged(path, &format!("{LOG_IS_GONE}{lost}")));
    }
    Ok((db, schema))
}

/// A hard link: a process that has the file open by its other name keeps the log beside that one.
const OR_BY_ANOTHER_NAME: &str = " beside this name, and the file has another one (a hard link): if a program uses it by that \
                                  name, do so too; if none does, what was acknowledged last is gone";

fn has_other_names(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).is_ok_and(|metadata| metadata.nlink() > 1)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

pub(super) const LOG_IS_GONE: &str = "its write-ahead log (the file ending in -wal) is missing or empty";

/// Whether there is nothing in the log. SQLite makes an empty one as soon as it looks at a file, so that its mere being
/// there says nothing; but as long as a file is in use, its log is never empty.
pub(super) fn log_is_gone(path: &Path) -> bool {
    fs::metadata(beside(path, "-wal")).map_or(true, |log| log.len() == 0)
}

/// Turns the log on. This writes, and so comes only once everything that was read has turned out to be in order.
pub(super) fn begin_log(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "journal_mode", "WAL")
}

/// Opens a store to look at it, beside the processes that use it, and answers its schema.
pub(super) fn connect_read_only(path: &Path) -> Result<(Connection, i64)> {
    connect_with(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn connect_with(path: &Path, access: OpenFlags) -> Result<(Connection, i64)> {
    process::check(path)?;
    recognise(path)?;
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(|error| trouble(path, &error))?;
    let set_up = || -> rusqlite::Result<i64> {
        db.busy_timeout(BUSY_TIMEOUT)?;
        // The log outlives this connection, unless we end in an orderly way: see `end_orderly`.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        if access == OpenFlags::SQLITE_OPEN_READ_WRITE {
            db.pragma_update(None, "synchronous", "FULL")?;
            db.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        }
        db.pragma_update(None, "cache_size", -16_384)?;
        db.set_prepared_statement_cache_capacity(64);
        db.pragma_query_value(None, "user_version", |row| row.get(0))
    };
    let found = set_up().map_err(|error| trouble(path, &error))?;
    if found > SCHEMA {
        return Err(Error::Newer { path: path.to_owned(), found, known: SCHEMA });
    }
    if found < OLDEST_SCHEMA {
        return Err(damaged(path, &format!("it says that its schema is {found}, which never was")));
    }
    match has_our_tables(&db, found) {
        Ok(true) => {
            db.execute_batch(&migrate::old_views(found)).map_err(|error| trouble(path, &error))?;
            Ok((db, found))
        }
        Ok(false) => Err(damaged(path, "its tables are not described as they were once")),
        Err(error) => Err(trouble(path, &error)),
    }
}

/// SQLite keeps the statements that made the tables. One with a changed letter may well be another valid statement.
fn has_our_tables(db: &Connection, schema: i64) -> rusqlite::Result<bool> {
    let mut statement = db.prepare("SELECT sql FROM main.sqlite_schema WHERE type = 'table' ORDER BY sql")?;
    let found: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let rest = CREATE.split(';').map(str::trim).filter(|statement| !statement.is_empty());
    let mut ours: Vec<&str> = rest.chain(migrate::tables_of(schema)).collect();
    ours.sort_unstable();
    Ok(ours == found)
}

/// Writes the log back into the file and lets it go, now that nobody else uses it.
pub(super) fn end_orderly(db: &Connection) -> rusqlite::Result<()> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map(|_| ())
}

/// Writes the log back into the file. The next transaction begins a new log in the place of the old one, which until
/// then stays as it is: see `log_is_gone`.
pub(super) fn checkpoint(db: &Connection) -> rusqlite::Result<()> {
    db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
}

/// Begins a new log with a commit that changes nothing. A log is read up to its first frame that is damaged, and its last commit may
/// always be a torn one: this one is no loss.
pub(super) fn begin_new_log(db: &Connection) -> rusqlite::Result<()> {
    checkpoint(db)?;
    // SQLite would not write a row that is replaced by the same one.
    db.execute_batch(
        "BEGIN IMMEDIATE; UPDATE store SET sum = sum + 1; UPDATE store SET sum = sum - 1; COMMIT",
    )
}

/// Says what a file is before SQLite gets to see it: SQLite would take an empty file for a new database.
fn recognise(path: &Path) -> Result<()> {
    let start = match beginning(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing(path)),
        Err(error) => return Err(io_trouble(path, "read", &error)),
        Ok(start) => start,
    };
    if start.is_empty() {
        return Err(damaged(path, "it is empty, and Leasehold never leaves an empty file behind"));
    }
    let Some(id) = start.get(68..72) else { return Err(not_a_store(path, "it is too short")) };
    if !start.starts_with(b"SQLite format 3\0") {
        let what = "it does not begin like one (if it was one once, its beginning was overwritten)";
        return Err(not_a_store(path, what));
    }
    if id != APPLICATION_ID.to_be_bytes().get(4..).unwrap_or_default() {
        return Err(not_a_store(path, "it is an SQLite file of another program"));
    }
    // SQLite would take other numbers for a later format, and the file for one that can only be read.
    if !start.get(18..20).is_some_and(|formats| formats.iter().all(|format| matches!(format, 1 | 2))) {
        return Err(damaged(path, "it claims to have a format that never was"));
    }
    Ok(())
}

/// How much of a file [`beginning`] reads: SQLite's header.
const BEGINNING: usize = 100;

/// The first bytes of a file, read through a descriptor that this process keeps until the file is deleted. Closing one would
/// drop every lock that the process has on the file, SQLite's among them: another program could then take itself for the last
/// user of the file, and remove its log.
#[cfg(unix)]
pub(super) fn beginning(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::os::unix::fs::{FileExt, MetadataExt};
    static KEPT: Mutex<Vec<fs::File>> = Mutex::new(Vec::new());
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let wanted = identity(fs::metadata(path)?);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain(|file| file.metadata().is_ok_and(|metadata| metadata.nlink() > 0));
    let is_wanted = |file: &&fs::File| file.metadata().is_ok_and(|metadata| identity(metadata) == wanted);
    if !kept.iter().any(|file| is_wanted(&file)) {
        kept.push(fs::File::open(path)?);
    }
    let mut start = vec![0; BEGINNING];
    let length = kept.iter().rfind(is_wanted).map_or(Ok(0), |file| file.read_at(&mut start, 0))?;
    start.truncate(length);
    Ok(start)
}

/// The first bytes of a file. Here locks belong to the descriptor that they were taken with.
#[cfg(not(unix))]
pub(super) fn beginning(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut start = Vec::new();
    fs::File::open(path)?.take(BEGINNING as u64).read_to_end(&mut start)?;
    Ok(start)
}

fn not_a_store(path: &Path, what: &str) -> Error {
    Error::NotAStore { path: path.to_owned(), what: what.to_owned() }
}

pub(super) fn damaged(path: &Path, what: &str) -> Error {
    Error::Damaged { path: path.to_owned(), what: what.to_owned() }
}

pub(super) fn io_trouble(path: &Path, done: &str, error: &std::io::Error) -> Error {
    Error::Unavailable { what: format!("{} cannot be {done}: {error}", path.display()), retry: Retry::No }
}

pub(super) fn row_trouble(path: &Path, error: RowError) -> Error {
    match error {
        RowError::Sqlite(error) => trouble(path, &error),
        RowError::Bad(what) => damaged(path, &what),
        RowError::Io(error) if is_full(&error) => Error::Unavailable {
            what: format!("the disk of {} is full", path.display()),
            retry: Retry::Unknown,
        },
        RowError::Io(error) => Error::Unavailable {
            what: format!("the journal of {} cannot be read or written: {error}", path.display()),
            retry: Retry::Unknown,
        },
        RowError::Replaced => Error::InUse {
            path: path.to_owned(),
            by: "another process".to_owned(),
            fix: "stop one of the two programs, and start this one again".to_owned(),
        },
    }
}

pub(super) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Whether the file holds something that was never written: SQLite says so itself, a value is of another kind than it
/// should be, or our own statements, which are right for our own schema, are not right for the file.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{
        FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, SqlInputError, Utf8Error,
    };
    match error.sqlite_error() {
        Some(failure) => {
            failure.extended_code == rusqlite::ffi::SQLITE_ERROR
                || matches!(
                    failure.code,
                    ErrorCode::DatabaseCorrupt
                        | ErrorCode::NotADatabase
                        | ErrorCode::ConstraintViolation
                        | ErrorCode::TypeMismatch
                )
        }
        None => matches!(
            error,
            FromSqlConversionFailure(..)
                | IntegralValueOutOfRange(..)
                | InvalidColumnType(..)
                | SqlInputError { .. }
                | Utf8Error(..)
        ),
    }
}

/// SQLite's trouble in our words.
pub(super) fn trouble(path: &Path, error: &rusqlite::Error) -> Error {
    let unavailable = |what: String, retry| Error::Unavailable { what, retry };
    let shown = path.display();
    if is_damage(error) {
        return damaged(path, &error.to_string());
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => unavailable(format!("the disk of {shown} is full"), Retry::Safe),
        Some(ErrorCode::ReadOnly) => {
            unavailable(format!("{shown} cannot be written, it is read-only"), Retry::Safe)
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            unavailable(format!("another process has kept {shown} busy for too long"), Retry::Safe)
        }
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            unavailable(format!("{shown} cannot be opened: {error}"), Retry::No)
        }
        // Among them a failed sync: what the disk holds by now is unknown.
        _ => unavailable(format!("{shown}: {error}"), Retry::Unknown),
    }
}
