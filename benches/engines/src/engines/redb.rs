//! redb: a copy-on-write B-tree. Each commit is durable at once, which is its default.

use std::path::Path;

use ::redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use anyhow::Result;

use super::Engine;
use crate::workload::{Batch, Key, Slot};

const SLOT: TableDefinition<'_, &[u8; 32], &[u8]> = TableDefinition::new("slot");
const EVENT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("event");
const STORE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("store");

struct Redb(Database);

pub fn open(folder: &Path) -> Result<Box<dyn Engine>> {
    let db = Database::builder().set_cache_size(super::CACHE_BYTES).create(folder.join("redb"))?;
    Ok(Box::new(Redb(db)))
}

impl Engine for Redb {
    fn commit(&mut self, batch: &Batch) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut slots = transaction.open_table(SLOT)?;
            let mut events = transaction.open_table(EVENT)?;
            for op in &batch.ops {
                slots.insert(&op.key, op.slot.encode().as_slice())?;
                if let Some(event) = &op.event {
                    events.insert(event.position, event.encode().as_slice())?;
                }
            }
            if let Some(position) = batch.forget {
                events.retain_in(..=position, |_, _| false)?;
            }
            transaction.open_table(STORE)?.insert(1, batch.header_bytes().as_slice())?;
        }
        Ok(transaction.commit()?)
    }

    fn load(&mut self, visit: &mut dyn FnMut(Key, Slot)) -> Result<()> {
        let transaction = self.0.begin_read()?;
        for row in transaction.open_table(SLOT)?.iter()? {
            let (key, slot) = row?;
            visit(*key.value(), Slot::decode(slot.value())?);
        }
        Ok(())
    }
}
