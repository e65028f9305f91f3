//! Files of an older schema: how they are read as they are, and how they are brought up to date.
//!
//! A file is brought up to date in one transaction, by a process that has it alone, and only after every row of it has
//! turned out to be in order. Looking at a file ([`super::check`], [`super::backup`], …) changes nothing: it reads an old
//! one through [`old_views`].
//!
//! | schema | what is new |
//! |---|---|
//! | 1 | |
//! | 2 | the tab of a holder has a column of its own; it was an entry of `meta` |
//! | 3 | the epoch: which opening of the file the last commit belongs to |
//! | 4 | the journal, rows that are not in their tables yet, in a row of its own; packs of events and endings |
//! | 5 | the journal is a file of its own |

use std::path::Path;

use leasehold_core::lease::Lease;
use leasehold_core::{Key, Meta, Slot, TabId};
use rusqlite::Connection;

use super::rows::RowError;
use super::{disk, file, journal, rows};
use crate::Result;

/// How a file of schema 1 describes its slots.
const OLD_SLOT: &str = "CREATE TABLE slot (
  key TEXT PRIMARY KEY, seq INTEGER NOT NULL, vacant_since INTEGER NOT NULL, due_at INTEGER,
  owner TEXT, lease_id BLOB, fence INTEGER, acquired_at INTEGER, renewed_at INTEGER, expires_at INTEGER,
  ttl_ms INTEGER, leaving INTEGER, meta TEXT, request TEXT, sum INTEGER NOT NULL
) WITHOUT ROWID";

/// How a file of schema 1 or 2 describes the store's own row.
const STORE_WITHOUT_EPOCH: &str = "CREATE TABLE store (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last_fence INTEGER NOT NULL, position INTEGER NOT NULL, seq_floor INTEGER NOT NULL,
  clock INTEGER NOT NULL, boot TEXT NOT NULL, clock_offset INTEGER NOT NULL,
  slot_sums INTEGER NOT NULL, job_sums INTEGER NOT NULL, in_use INTEGER NOT NULL, sum INTEGER NOT NULL
)";

/// How a file of schema 3 does.
const STORE_WITHOUT_JOURNAL: &str = "CREATE TABLE store (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last_fence INTEGER NOT NULL, position INTEGER NOT NULL, seq_floor INTEGER NOT NULL,
  clock INTEGER NOT NULL, boot TEXT NOT NULL, clock_offset INTEGER NOT NULL,
  slot_sums INTEGER NOT NULL, job_sums INTEGER NOT NULL, in_use INTEGER NOT NULL, epoch INTEGER NOT NULL,
  sum INTEGER NOT NULL
)";

/// How a file of schema 4 describes its journal.
const JOURNAL_ROW: &str =
    "CREATE TABLE journal (id INTEGER PRIMARY KEY CHECK (id = 1), records BLOB NOT NULL)";

/// Whether a file has its journal in a row of its own.
pub(super) fn has_journal_row(db: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = 'journal'";
    db.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0)).map(|count| count > 0)
}

/// The first schemas in which slots have a tab, the store's row an epoch, and a file a journal.
pub(super) const WITH_TABS: i64 = 2;
pub(super) const WITH_EPOCH: i64 = 3;
pub(super) const WITH_JOURNAL: i64 = 4;

/// How a file of this schema describes the tables that have changed since the first one.
pub(super) fn tables_of(schema: i64) -> impl Iterator<Item = &'static str> {
    let slot = if schema < WITH_TABS { OLD_SLOT } else { file::CREATE_SLOT };
    let store = match schema {
        WITH_JOURNAL.. => file::CREATE_STORE,
        WITH_EPOCH.. => STORE_WITHOUT_JOURNAL,
        _ => STORE_WITHOUT_EPOCH,
    };
    let packs = journal::CREATE.into_iter().filter(move |_| schema >= WITH_JOURNAL);
    let journal = (schema == WITH_JOURNAL).then_some(JOURNAL_ROW);
    [slot, store].into_iter().chain(packs).chain(journal)
}

/// Lets an old file be read as if it had all columns, for as long as a connection to it lasts.
pub(super) fn old_views(schema: i64) -> String {
    let slot = "CREATE TEMP VIEW slot AS SELECT *, NULL AS tab FROM main.slot;";
    let store = match schema {
        ..WITH_EPOCH => "CREATE TEMP VIEW store AS SELECT *, 0 AS epoch, 0 AS journal FROM main.store;",
        _ => "CREATE TEMP VIEW store AS SELECT *, 0 AS journal FROM main.store;",
    };
    let packs = "CREATE TEMP VIEW event_pack AS SELECT 0 AS last, x'' AS rows WHERE 0; \
                 CREATE TEMP VIEW ending_pack AS SELECT 0 AS last, x'' AS rows WHERE 0;";
    let views = [(WITH_TABS, slot), (WITH_JOURNAL, store), (WITH_JOURNAL, packs)];
    views.into_iter().filter(|(since, _)| schema < *since).map(|(_, view)| view).collect()
}

/// The entry of `meta` that was the tab.
const TAB: &str = "tab";

/// The doors whose holders had tabs.
const DOOR: &str = "doc";

/// Brings the file up to date, if it is there and old. The caller has it alone.
pub(super) fn bring_up_to_date(path: &Path) -> Result<()> {
    if schema_on_disk(path).is_none_or(|schema| schema >= file::SCHEMA) {
        return Ok(());
    }
    // What the log holds may be newer than the file itself.
    let (mut db, schema) = file::connect_to_any(path)?;
    if schema >= file::SCHEMA {
        return Ok(());
    }
    let was_in_use = rewrite(path, &mut db, schema).map_err(|error| file::row_trouble(path, error))?;
    let finish = || {
        file::checkpoint(&db)?;
        if was_in_use { Ok(()) } else { file::end_orderly(&db) }
    };
    finish().map_err(|error| file::trouble(path, &error))?;
    tracing::info!(path = %path.display(), schema = file::SCHEMA, "the file was brought up to date");
    Ok(())
}

/// What the file itself says of its schema; `None` when it cannot be read: opening it then says why.
fn schema_on_disk(path: &Path) -> Option<i64> {
    let start = file::beginning(path).ok()?;
    let version: [u8; 4] = start.get(60..64)?.try_into().ok()?;
    Some(i64::from(u32::from_be_bytes(version)))
}

/// Writes the tables anew that have changed since `schema`; answers whether the file was in use when its process ended.
fn rewrite(path: &Path, db: &mut Connection, schema: i64) -> std::result::Result<bool, RowError> {
    let disk::Found { mut header, slots, journal, .. } = disk::load_rows(path, db)?;
    let transaction = db.transaction()?;
    if schema < WITH_JOURNAL {
        transaction.execute_batch("DROP VIEW temp.store; DROP TABLE main.store")?;
        transaction.execute_batch("DROP VIEW temp.event_pack; DROP VIEW temp.ending_pack")?;
        transaction.execute_batch(file::CREATE_STORE)?;
        journal::CREATE.iter().try_for_each(|table| transaction.execute_batch(table))?;
    } else {
        journal.write(&transaction, &mut header)?;
        header.journal = 0;
        transaction.execute_batch("DROP TABLE journal")?;
    }
    if schema < WITH_TABS {
        transaction.execute_batch("DROP VIEW temp.slot; DROP TABLE main.slot")?;
        transaction.execute_batch(file::CREATE_SLOT)?;
        header.slot_sums = 0;
        for (key, slot) in slots {
            let sum = rows::write_slot(&transaction, &key, &with_tab(&key, slot))?;
            header.slot_sums = header.slot_sums.wrapping_add(u64::from(sum));
        }
    }
    rows::write_header(&transaction, &header)?;
    transaction.pragma_update(None, "user_version", file::SCHEMA)?;
    transaction.commit()?;
    Ok(header.in_use)
}

/// A slot of a file without tabs, with the tabs where they belong.
pub(super) fn with_tab(key: &Key, mut slot: Slot) -> Slot {
    if let Some(lease) = slot.lease.as_mut().filter(|_| key.door() == DOOR) {
        let Lease { tab, meta, request, .. } = lease;
        take_out(meta, tab);
        if let Some(request) = request {
            take_out(&mut request.bid.meta, &mut request.bid.tab);
        }
    }
    slot
}

/// Moves the tab from where it stood. An entry of that name that is no tab stays: no server has written it.
fn take_out(meta: &mut Meta, tab: &mut Option<TabId>) {
    let Some(Ok(found)) = meta.get(TAB).map(TabId::parse_optional) else { return };
    let rest = meta.iter().filter(|(name, _)| *name != TAB);
    if let Ok(rest) = Meta::new(rest.map(|(name, value)| (name.to_owned(), value.to_owned()))) {
        (*tab, *meta) = (found, rest);
    }
}
