//! What is not kept any more is deleted, in small steps, by one process at a time.

use leasehold_core::job;
use leasehold_core::lease::REMEMBERED;
use leasehold_core::time::whole_millis;
use tokio_postgres::types::Type;

use super::Inner;
use super::connect::Param;
use super::trouble::TroubleResult;
use super::turn::{CLOCK, NOW, Turn};
use crate::{ENDINGS_KEPT, EVENTS_KEPT};

/// After how much work a process tidies up. A command is 1.
pub(super) const EVERY: u64 = 256;

/// How many rows of a table go at once: more than so many commands can leave behind.
const STEP: i64 = 1_000;

/// Two that tidy up would only wait for each other.
const TIDY_LOCK: i64 = 0x4C53_4844_0000_0002;

/// Deletes some of the events, endings and free keys that are not kept any more.
pub(super) async fn tidy(inner: &Inner) -> TroubleResult<()> {
    let alone = format!("SELECT pg_try_advisory_xact_lock({TIDY_LOCK})");
    let (turn, found) = Turn::begin(inner, &alone, &[]).await?;
    let alone = found.first().map_or(Ok(false), |row| row.try_get(0))?;
    if !alone {
        return turn.end().await;
    }
    let remembered = whole_millis(REMEMBERED).cast_signed();
    let keys = turn.lock_keys(&free_for_long(), &[(&remembered, Type::INT8), (&STEP, Type::INT8)]).await?;
    let (header, slots) = turn.read_locked(&keys).await?;
    let forgotten: Vec<_> = slots.iter().filter(|(_, slot)| slot.is_forgettable(header.now)).collect();
    let floor = forgotten.iter().map(|(_, slot)| slot.seq).max().unwrap_or(0).cast_signed();
    let keys: Vec<&str> = forgotten.iter().map(|(key, _)| key.as_str()).collect();
    let last_ending = header.now.as_millis().cast_signed() - remembered;
    let last_event = header.position.0.saturating_sub(EVENTS_KEPT as u64).cast_signed();
    let endings_kept = ENDINGS_KEPT as i64;
    let last_job = header.now.as_millis().cast_signed() - whole_millis(job::KEPT).cast_signed();
    let params: [Param<'_>; 7] = [
        (&floor, Type::INT8),
        (&keys, Type::TEXT_ARRAY),
        (&last_ending, Type::INT8),
        (&endings_kept, Type::INT8),
        (&last_event, Type::INT8),
        (&STEP, Type::INT8),
        (&last_job, Type::INT8),
    ];
    turn.write_and_commit(None, DELETE, &params).await?;
    Ok(())
}

/// Locks keys that have been free for longer than `$1`, at most `$2`, without waiting for any.
fn free_for_long() -> String {
    format!(
        "WITH {CLOCK}, free AS MATERIALIZED (\
           SELECT k.key FROM clock, leasehold.store s, leasehold.slot k \
           WHERE k.owner IS NULL AND k.vacant_since <= {NOW} - $1 ORDER BY k.vacant_since LIMIT $2) \
         SELECT key FROM free WHERE pg_try_advisory_xact_lock(leasehold.key_lock(key))"
    )
}

/// `$1` the last number of any of the keys, `$2` the keys, `$3` up to when endings go, `$4` how many stay, `$5` up to
/// where events go, `$6` how many rows at once, `$7` up to when finished jobs go.
///
/// The keys in `$2` are locked. A job's is not, and may be reset while this waits for its row: only a condition of the outer
/// statement is looked at again after the wait.
const DELETE: &str = "\
WITH floor AS (
  UPDATE leasehold.store SET seq_floor = greatest(seq_floor, $1) WHERE $1 > seq_floor
), slots AS (
  DELETE FROM leasehold.slot WHERE key = ANY($2)
), endings AS (
  DELETE FROM leasehold.ending WHERE id IN (
    (SELECT id FROM leasehold.ending WHERE at <= $3 ORDER BY at LIMIT $6)
    UNION ALL
    (SELECT id FROM leasehold.ending WHERE id <= (SELECT max(id) FROM leasehold.ending) - $4 ORDER BY id LIMIT $6))
), events AS (
  DELETE FROM leasehold.event WHERE position IN (
    SELECT position FROM leasehold.event WHERE position <= $5 ORDER BY position LIMIT $6)
), jobs AS (
  DELETE FROM leasehold.job WHERE key IN (
    SELECT key FROM leasehold.job WHERE status <> 'queued' AND changed_at <= $7 ORDER BY changed_at LIMIT $6)
    AND status <> 'queued' AND changed_at <= $7
)
SELECT true";
