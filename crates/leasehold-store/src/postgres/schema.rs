//! The tables: made when they are missing, brought up to date when they are old, left alone when they are newer.
//!
//! To change the tables, add a file to `migrations/` and a line here; a file that was released is never changed.

use std::path::PathBuf;
use std::time::Duration;

use deadpool_postgres::Object;

use super::Inner;
use super::connect::{self, BEGIN, Phase};
use super::trouble::{Trouble, TroubleResult};
use crate::{Error, Retry};

/// What leads from each schema to the next.
const MIGRATIONS: [&str; 5] = [
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
    include_str!("migrations/5.sql"),
];

/// The schema that this version reads and writes.
pub(super) const SCHEMA: i64 = MIGRATIONS.len() as i64;

/// Two processes that begin at once bring the tables up to date one after the other. `LSHD` and a word of its own.
const MIGRATION_LOCK: i64 = 0x4C53_4844_0000_0001;

/// How long bringing the tables up to date may take: longer than a call, because rows may have to be written anew.
const MIGRATION: Duration = Duration::from_secs(8);

const ENCODING: &str = "SELECT current_setting('server_encoding')";

/// Not `to_regclass`: within a transaction it may answer from a cache what was true before the transaction got its lock.
const IS_THERE: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'leasehold' AND c.relname = 'store')";

const VERSION: &str = "SELECT version FROM leasehold.store";

/// Makes sure that the tables are there, in the schema of this version.
pub(super) async fn prepare(inner: &Inner) -> TroubleResult<()> {
    let mut db = connect::get(inner).await?;
    match connect::within(MIGRATION, migrate_if_old(inner, &mut db), Phase::Before).await {
        Err(trouble) => {
            // It may be in the middle of a transaction.
            drop(Object::take(db));
            Err(trouble)
        }
        done => done,
    }
}

async fn migrate_if_old(inner: &Inner, db: &mut Object) -> TroubleResult<()> {
    let found = version(db).await?;
    check_version(inner, found)?;
    if found == SCHEMA {
        return Ok(());
    }
    check_encoding(db).await?;
    // One transaction: the tables are of one schema or of the next, whoever looks and whatever happens.
    db.batch_execute(&format!("{BEGIN} SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")).await?;
    let found = version(db).await?;
    check_version(inner, found)?;
    for (number, migration) in (1..).zip(MIGRATIONS).skip(usize::try_from(found).unwrap_or(0)) {
        db.batch_execute(migration).await?;
        db.batch_execute(&format!("UPDATE leasehold.store SET version = {number}")).await?;
        tracing::info!(database = inner.shown, schema = number, "the tables were brought up to date");
    }
    db.batch_execute("COMMIT").await?;
    Ok(())
}

/// The schema of the tables; 0 when there are none.
async fn version(db: &Object) -> TroubleResult<i64> {
    if !db.query_typed_one(IS_THERE, &[]).await?.try_get(0)? {
        return Ok(0);
    }
    Ok(db.query_typed_one(VERSION, &[]).await?.try_get(0)?)
}

/// Refuses tables whose rules this version does not know.
pub(super) fn check_version(inner: &Inner, found: i64) -> TroubleResult<()> {
    if found > SCHEMA {
        let path = PathBuf::from(format!("the database {}", inner.shown));
        return Err(Trouble::last(Error::Newer { path, found, known: SCHEMA }));
    }
    Ok(())
}

async fn check_encoding(db: &Object) -> TroubleResult<()> {
    let encoding: String = db.query_typed_one(ENCODING, &[]).await?.try_get(0)?;
    if encoding != "UTF8" {
        let what = format!(
            "the database has the encoding {encoding}, and names need UTF8: make one with ENCODING 'UTF8'"
        );
        return Err(Trouble::last(Error::Unavailable { what, retry: Retry::No }));
    }
    Ok(())
}
