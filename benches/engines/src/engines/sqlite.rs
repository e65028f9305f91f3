//! SQLite, with the settings of the embedded store: pages of 2 KiB, write-ahead log, `synchronous = FULL`, a checkpoint
//! every 2,000 pages. Three ways to use it: as the store does, with values in one blob as the others have them, and
//! with a transaction of its own for each operation, which reads what it is about first.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, Row, TransactionBehavior, params};

use super::Engine;
use crate::workload::{Batch, Event, Key, Op, Slot, text};

/// The columns of the embedded store's tables.
const COLUMNS: &str = "
CREATE TABLE IF NOT EXISTS store (id INTEGER PRIMARY KEY CHECK (id = 1), last_fence INTEGER NOT NULL,
  position INTEGER NOT NULL, seq_floor INTEGER NOT NULL, clock INTEGER NOT NULL, boot TEXT NOT NULL,
  clock_offset INTEGER NOT NULL, slot_sums INTEGER NOT NULL, in_use INTEGER NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS slot (key TEXT PRIMARY KEY, seq INTEGER NOT NULL, vacant_since INTEGER NOT NULL,
  due_at INTEGER, owner TEXT, lease_id BLOB, fence INTEGER, acquired_at INTEGER, renewed_at INTEGER, expires_at INTEGER,
  ttl_ms INTEGER, leaving INTEGER, meta TEXT, request TEXT, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (position INTEGER PRIMARY KEY, key TEXT NOT NULL, seq INTEGER NOT NULL,
  at INTEGER NOT NULL, fence INTEGER NOT NULL, owner TEXT NOT NULL, kind TEXT NOT NULL, until INTEGER, party TEXT,
  note TEXT, meta TEXT, sum INTEGER NOT NULL);";

const BLOBS: &str = "
CREATE TABLE IF NOT EXISTS store (id INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS slot (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (position INTEGER PRIMARY KEY, value BLOB NOT NULL);";

fn connect(folder: &Path, schema: &str) -> Result<Connection> {
    let db = Connection::open(folder.join("sqlite"))?;
    // Of no effect on a file that is there already.
    db.pragma_update(None, "page_size", 2_048)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "wal_autocheckpoint", 2_000)?;
    db.pragma_update(None, "cache_size", -16_384)?;
    db.execute_batch(schema)?;
    Ok(db)
}

/// As the store does it in exclusive mode.
pub fn columns(folder: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Columns { db: connect(folder, COLUMNS)?, read_first: false }))
}

/// As a store does it that keeps nothing in memory: the header and the slot are read in the transaction.
pub fn single(folder: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Columns { db: connect(folder, COLUMNS)?, read_first: true }))
}

/// With one value for each row.
pub fn blobs(folder: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Blobs { db: connect(folder, BLOBS)? }))
}

struct Columns {
    db: Connection,
    read_first: bool,
}

impl Engine for Columns {
    fn commit(&mut self, batch: &Batch) -> Result<()> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if self.read_first {
            read_first(&transaction, batch)?;
        }
        for op in &batch.ops {
            write_slot(&transaction, op)?;
            op.event.iter().try_for_each(|event| write_event(&transaction, text(&op.key)?, event))?;
        }
        forget(&transaction, batch)?;
        write_header(&transaction, batch)?;
        Ok(transaction.commit()?)
    }

    fn load(&mut self, visit: &mut dyn FnMut(Key, Slot)) -> Result<()> {
        let sql = "SELECT key, seq, vacant_since, due_at, fence, acquired_at, renewed_at, expires_at, ttl_ms, owner, \
                   lease_id, meta, sum FROM slot ORDER BY key";
        let mut statement = self.db.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let slot = slot_from(row)?;
            ensure!(slot.sum() == row.get::<_, u32>(12)?, "a row does not match its checksum");
            visit(key_from(row)?, slot);
        }
        Ok(())
    }
}

fn read_first(db: &Connection, batch: &Batch) -> Result<()> {
    let header =
        "SELECT last_fence, position, seq_floor, clock, boot, clock_offset, slot_sums, sum FROM store";
    db.prepare_cached(header)?.query([])?.next()?;
    let slot = "SELECT key, seq, vacant_since, due_at, fence, acquired_at, renewed_at, expires_at, ttl_ms, owner, \
                lease_id, meta, sum FROM slot WHERE key = ?1";
    for op in &batch.ops {
        let mut statement = db.prepare_cached(slot)?;
        let mut rows = statement.query([text(&op.key)?])?;
        rows.next()?.map(slot_from).transpose()?;
    }
    Ok(())
}

fn slot_from(row: &Row<'_>) -> Result<Slot> {
    let mut numbers = [0; 8];
    for (index, number) in numbers.iter_mut().enumerate() {
        *number = row.get::<_, i64>(index + 1)?.cast_unsigned();
    }
    let owner = row.get_ref(9)?.as_bytes()?.try_into().context("an owner is too short")?;
    let lease_id = row.get_ref(10)?.as_bytes()?.try_into().context("a lease id is too short")?;
    let meta = row.get_ref(11)?.as_bytes()?.try_into().context("a meta is too short")?;
    Ok(Slot { numbers, lease_id, owner, meta })
}

fn key_from(row: &Row<'_>) -> Result<Key> {
    row.get_ref(0)?.as_bytes()?.try_into().context("a key is too short")
}

fn write_slot(db: &Connection, op: &Op) -> Result<()> {
    let sql = "INSERT INTO slot (key, seq, vacant_since, due_at, fence, acquired_at, renewed_at, expires_at, ttl_ms, \
               leaving, owner, lease_id, meta, request, sum) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, ?11, ?12, NULL, ?13) \
               ON CONFLICT (key) DO UPDATE SET seq = ?2, vacant_since = ?3, due_at = ?4, fence = ?5, acquired_at = ?6, \
               renewed_at = ?7, expires_at = ?8, ttl_ms = ?9, leaving = 0, owner = ?10, lease_id = ?11, meta = ?12, \
               request = NULL, sum = ?13";
    let [a, b, c, d, e, f, g, h] = op.slot.numbers.map(u64::cast_signed);
    let Slot { owner, lease_id, meta, .. } = &op.slot;
    let (key, owner, meta) = (text(&op.key)?, text(owner)?, text(meta)?);
    let values = params![key, a, b, c, d, e, f, g, h, owner, lease_id, meta, op.slot.sum()];
    db.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

fn write_event(db: &Connection, key: &str, event: &Event) -> Result<()> {
    let sql = "INSERT INTO event (position, key, seq, at, fence, until, owner, kind, party, note, meta, sum) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'granted', NULL, NULL, NULL, ?8)";
    let [a, b, c, d] = event.numbers.map(u64::cast_signed);
    let values = params![event.position.cast_signed(), key, a, b, c, d, text(&event.owner)?, event.sum()];
    db.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

fn write_header(db: &Connection, batch: &Batch) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO store \
               (id, last_fence, position, seq_floor, clock, boot, clock_offset, slot_sums, in_use, sum) \
               VALUES (1, ?1, ?2, ?3, ?4, '', ?5, ?6, 1, ?7)";
    let [a, b, c, d, e, f, g] = batch.header.map(u64::cast_signed);
    db.prepare_cached(sql)?.execute([a, b, c, d, e, f, g])?;
    Ok(())
}

fn forget(db: &Connection, batch: &Batch) -> Result<()> {
    if let Some(position) = batch.forget {
        db.prepare_cached("DELETE FROM event WHERE position <= ?1")?.execute([position.cast_signed()])?;
    }
    Ok(())
}

struct Blobs {
    db: Connection,
}

impl Engine for Blobs {
    fn commit(&mut self, batch: &Batch) -> Result<()> {
        let db = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let slot = "INSERT INTO slot VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2";
        let event = "INSERT INTO event VALUES (?1, ?2)";
        for op in &batch.ops {
            db.prepare_cached(slot)?.execute(params![text(&op.key)?, op.slot.encode()])?;
            if let Some(told) = &op.event {
                db.prepare_cached(event)?.execute(params![told.position.cast_signed(), told.encode()])?;
            }
        }
        forget(&db, batch)?;
        let header = "INSERT OR REPLACE INTO store VALUES (1, ?1)";
        db.prepare_cached(header)?.execute([batch.header_bytes()])?;
        Ok(db.commit()?)
    }

    fn load(&mut self, visit: &mut dyn FnMut(Key, Slot)) -> Result<()> {
        let mut statement = self.db.prepare("SELECT key, value FROM slot ORDER BY key")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            visit(key_from(row)?, Slot::decode(row.get_ref(1)?.as_blob()?)?);
        }
        Ok(())
    }
}
