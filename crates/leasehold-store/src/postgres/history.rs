//! Notices that the database is not the one that the last command was committed in: a standby took over, or a backup was put
//! in place.
//!
//! A standby that is behind, or a backup, lacks what was committed last, so its counters would give out the same fences and
//! positions again. Its rows say in which history of the database they were written. Where that is not the history that the
//! database has now, everything that is counted jumps ahead, as in every restore. The timeline, which every promotion changes,
//! is compared by every command; the rest of the history once by each process, when it first uses the store.
//!
//! What a standby has not received is lost nevertheless: see `docs/postgres.md`.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::Inner;
use super::connect::{self, Connection};
use super::trouble::{Trouble, TroubleResult};

/// How long the jump may take: it changes a row for each key that is held, or was lately.
const JUMP: Duration = Duration::from_secs(60);

/// The newest timeline that this process has seen.
#[derive(Default)]
pub(super) struct Timelines(AtomicI64);

impl Timelines {
    /// Takes in the timeline that the rows were written in, and the one that the database has; neither where the database does
    /// not tell.
    pub(super) fn look(&self, recorded: Option<i64>, current: Option<i64>) -> TroubleResult<()> {
        let (Some(recorded), Some(current)) = (recorded, current) else { return Ok(()) };
        let newest = self.0.fetch_max(current, Ordering::Relaxed);
        if current < newest {
            return Err(Trouble::old_primary(current, newest));
        }
        if recorded == current { Ok(()) } else { Err(Trouble::new_history()) }
    }
}

/// Makes everything that is counted jump ahead, if the rows come from another history than the database has.
pub(super) async fn begin(inner: &Inner) -> TroubleResult<()> {
    let connection = Connection::new(inner).await?;
    let db = connection.get()?;
    let begun = async { Ok(db.query_typed_one("SELECT leasehold.begin_history()", &[]).await?) };
    let begun = tokio::time::timeout(JUMP, begun).await;
    let row = begun.unwrap_or_else(|_| Err(Trouble::late(connect::Phase::Before)))?;
    if row.try_get(0)? {
        tracing::warn!(
            database = inner.shown,
            "the database failed over or was restored; fences jump ahead, and leases may be missing"
        );
    }
    connection.keep();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::trouble::Next;

    #[test]
    fn a_new_timeline_is_a_new_history_and_an_older_one_is_refused() {
        let timelines = Timelines::default();
        let look = |recorded, current| timelines.look(recorded, current).map_err(|trouble| trouble.next);
        assert_eq!(look(None, None), Ok(()), "the database does not tell");
        assert_eq!(look(Some(3), Some(3)), Ok(()));
        assert_eq!(look(Some(3), Some(4)), Err(Next::BeginHistory));
        assert_eq!(look(Some(4), Some(4)), Ok(()));
        assert_eq!(look(Some(3), Some(3)), Err(Next::Tell), "the primary of before answers");
        assert_eq!(look(Some(4), Some(4)), Ok(()));
    }
}
