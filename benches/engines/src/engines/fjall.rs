//! fjall: a log-structured merge tree. Each batch is in its journal, and the journal synced, before it returns.

use std::path::Path;
use std::time::{Duration, Instant};

use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use anyhow::Result;

use super::Engine;
use crate::workload::{Batch, Key, Slot};

/// How long the background work of one measurement is waited for at most.
const PATIENCE: Duration = Duration::from_secs(2);

struct Fjall {
    db: Database,
    slots: Keyspace,
    events: Keyspace,
    store: Keyspace,
    /// Up to which position events have been deleted.
    forgotten: u64,
}

pub fn open(folder: &Path) -> Result<Box<dyn Engine>> {
    let db = Database::builder(folder.join("fjall")).cache_size(super::CACHE_BYTES as u64).open()?;
    let keyspace = |name| db.keyspace(name, KeyspaceCreateOptions::default);
    let (slots, events, store) = (keyspace("slot")?, keyspace("event")?, keyspace("store")?);
    Ok(Box::new(Fjall { db, slots, events, store, forgotten: 0 }))
}

impl Engine for Fjall {
    fn commit(&mut self, batch: &Batch) -> Result<()> {
        let mut writes = self.db.batch().durability(Some(PersistMode::SyncData));
        for op in &batch.ops {
            writes.insert(&self.slots, op.key, op.slot.encode());
            if let Some(event) = &op.event {
                writes.insert(&self.events, event.position.to_be_bytes(), event.encode());
            }
        }
        if let Some(position) = batch.forget {
            for forgotten in self.forgotten + 1..=position {
                writes.remove(&self.events, forgotten.to_be_bytes());
            }
            self.forgotten = position;
        }
        writes.insert(&self.store, b"store", batch.header_bytes());
        Ok(writes.commit()?)
    }

    fn load(&mut self, visit: &mut dyn FnMut(Key, Slot)) -> Result<()> {
        for row in self.slots.iter() {
            let (key, slot) = row.into_inner()?;
            visit(key.as_ref().try_into()?, Slot::decode(&slot)?);
        }
        Ok(())
    }

    fn settle(&mut self) {
        let begun = Instant::now();
        let busy = |db: &Database| db.outstanding_flushes() > 0 || db.active_compactions() > 0;
        while busy(&self.db) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
