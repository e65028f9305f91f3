//! Leases in PostgreSQL, for several servers at once: the database keeps the rows and tells the time, Rust decides.
//!
//! `turn.rs` is the heart: a transaction in two trips. `batch.rs` puts the commands of several callers into one. `schema.rs`
//! makes the tables, `feed.rs` tells the events, `bus.rs` carries messages between servers, `tidy.rs` deletes what is not kept.
//! Nothing here may depend on a connection being the same one as before: there may be a transaction-pooling proxy in between.

mod batch;
mod bus;
mod connect;
mod feed;
mod history;
mod rows;
mod schema;
mod steps;
mod tidy;
mod tls;
mod trouble;
mod turn;
mod url;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use leasehold_core::{Command, JobCommand, Key, Owner, Position, Retries, RetryPolicy, Slot, StoreTime};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::changes::Known;
use crate::clock::{Clock, SystemClock};
use crate::jitter;
use crate::{
    Applied, Bus, Error, Feed, JobApplied, JobStore, Limits, Page, Range, Reading, Result, Retry, Settled,
    Store,
};
use connect::Param;
use history::Timelines;
use rows::SLOT;
use steps::Steps;
use trouble::{Next, Trouble, TroubleResult};
use turn::{CLOCK, HEADER, HEADER_COLUMNS, Header, NOW, Turn};

pub use url::PostgresUrl;

/// How many keys are settled in one transaction.
const SETTLED_AT_ONCE: usize = 250;

/// How much a look for due keys counts towards tidying up.
const WORK_OF_A_LOOK: u64 = 20;

/// How long a caller waits for an answer in all: for a connection, for trips and for what is tried again. Those who wait for
/// this store have promised an answer within 5 s.
const ANSWER: Duration = Duration::from_millis(4_500);

/// How long a call that fails must have taken for the connections to be made anew.
const SILENCE: Duration = Duration::from_secs(3);

/// How to open a PostgreSQL store.
pub struct Options {
    limits: Limits,
    clock: Arc<dyn Clock>,
}

impl Options {
    /// The limits that can be changed.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Another clock of this process than the machine's, that only a test moves. It decides nothing: it is what steps of the
    /// database's clock are noticed by.
    #[doc(hidden)]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the store. It connects when it is first used, so that a database which is down for the moment is no
    /// reason not to start.
    pub fn open(self, url: &PostgresUrl) -> Result<Postgres> {
        let inner = Inner {
            shown: url.shown(),
            pool: connect::pool(url)?,
            limits: self.limits,
            ready: OnceCell::new(),
            ears: feed::Ears::new(url)?,
            queue: batch::Queue::default(),
            work: AtomicU64::new(0),
            steps: Steps::new(self.clock),
            timelines: Timelines::default(),
        };
        Ok(Postgres(Arc::new(inner)))
    }
}

/// A store in a PostgreSQL database. Any number of processes may use the same one.
pub struct Postgres(Arc<Inner>);

impl Postgres {
    /// Opens `postgres://USER:PASSWORD@HOST/DATABASE`.
    pub fn open(url: &str) -> Result<Self> {
        Self::options().open(&PostgresUrl::parse(url)?)
    }

    /// The ways to open one.
    pub fn options() -> Options {
        Options { limits: Limits::default(), clock: Arc::new(SystemClock) }
    }

    /// Notes that something was done, and tidies up now and then.
    fn worked(&self, how_much: u64) {
        let before = self.0.work.fetch_add(how_much, Ordering::Relaxed);
        if before / tidy::EVERY == (before + how_much) / tidy::EVERY {
            return;
        }
        let inner = self.0.clone();
        tokio::spawn(async move {
            if let Err(trouble) = tidy::tidy(&inner).await {
                tracing::warn!(error = %trouble.error, database = inner.shown, "could not tidy up; will try again");
            }
        });
    }
}

/// What all users of an open store share.
struct Inner {
    /// Where it is, without the password.
    shown: String,
    pool: Pool,
    limits: Limits,
    /// Set once the tables are known to be there.
    ready: OnceCell<()>,
    ears: feed::Ears,
    queue: batch::Queue,
    /// What was done since the store was opened, for [`Postgres::worked`].
    work: AtomicU64,
    steps: Steps,
    timelines: Timelines,
}

impl Inner {
    async fn ready(&self) -> TroubleResult<()> {
        let prepare = || async {
            schema::prepare(self).await?;
            history::begin(self).await
        };
        self.ready.get_or_try_init(prepare).await.copied()
    }

    /// Does something, and again if it failed without having done anything.
    async fn retried<T, F>(&self, attempt: impl Fn() -> F + Send) -> Result<T>
    where
        F: Future<Output = TroubleResult<T>> + Send,
    {
        self.in_time(Retry::Unknown, self.tried(attempt)).await
    }

    /// The same for something that changes nothing.
    async fn looked<T, F>(&self, attempt: impl Fn() -> F + Send) -> Result<T>
    where
        F: Future<Output = TroubleResult<T>> + Send,
    {
        self.in_time(Retry::Safe, self.tried(attempt)).await
    }

    /// Awaits an answer for as long as a caller has. The tables may take longer to be made.
    async fn in_time<T>(&self, late: Retry, answer: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.ready.initialized() {
            return answer.await;
        }
        let start = Instant::now();
        let late = |_| {
            let what = format!("PostgreSQL did not answer within {} ms", ANSWER.as_millis());
            Err(Error::Unavailable { what, retry: late })
        };
        let answer = tokio::time::timeout(ANSWER, answer).await.unwrap_or_else(late);
        if answer.is_err() && start.elapsed() >= SILENCE {
            // Connections can be dead without anybody having been told: the next caller shall not meet another one.
            self.pool.retain(|_, _| false);
        }
        answer
    }

    async fn tried<T, F>(&self, attempt: impl Fn() -> F + Send) -> Result<T>
    where
        F: Future<Output = TroubleResult<T>> + Send,
    {
        let mut retries = Retries::new(RetryPolicy::CALL, jitter());
        loop {
            let trouble = match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            let wait = retries.failed().filter(|_| trouble.next != Next::Tell);
            let Some(wait) = wait else { return Err(trouble.error) };
            let mended = match trouble.next {
                Next::TieClock => turn::tie_clock(self).await,
                Next::HoldClock(ahead) => turn::hold_clock(self, ahead).await,
                Next::BeginHistory => history::begin(self).await,
                Next::Tell | Next::TryAgain => Ok(()),
            };
            mended.map_err(|trouble| trouble.error)?;
            tokio::time::sleep(wait).await;
        }
    }

    async fn apply(self: &Arc<Self>, key: &Key, command: &Command) -> TroubleResult<Applied> {
        self.ready().await?;
        batch::apply(self, key, command).await
    }

    async fn apply_job(&self, key: &Key, command: &JobCommand) -> TroubleResult<JobApplied> {
        self.ready().await?;
        Turn::apply_job(self, key, command).await
    }

    async fn read(&self, key: &Key) -> TroubleResult<Reading> {
        self.ready().await?;
        let sql = format!(
            "WITH {CLOCK} SELECT {HEADER}, {SLOT} FROM clock, leasehold.store s \
             LEFT JOIN leasehold.slot k ON k.key = $1"
        );
        let key = key.as_str();
        let sent = self.steps.own();
        let row = self.look_for_one(&sql, &[(&key, Type::TEXT)]).await?;
        let header = Header::from_row(self, sent, &row)?;
        let slot = rows::slot_from(&row, HEADER_COLUMNS)?;
        let slot = slot.map_or_else(|| Slot::unknown(header.seq_floor), |(_, slot)| slot);
        Ok(Reading { slot, now: header.now, position: header.position })
    }

    async fn list(&self, range: &Range) -> TroubleResult<Page> {
        self.ready().await?;
        let sql = format!(
            "WITH {CLOCK} SELECT {HEADER}, {SLOT} FROM clock, leasehold.store s LEFT JOIN LATERAL \
               (SELECT * FROM leasehold.slot k WHERE k.key >= $1 AND k.key > $2 AND k.expires_at > {NOW} \
                ORDER BY k.key LIMIT $3) k ON true ORDER BY k.key"
        );
        let limit = range.limit.clamp(1, Range::MAX_LIMIT);
        let (prefix, after) = (range.prefix.as_str(), range.after.as_ref().map_or("", Key::as_str));
        let one_more = limit as i64 + 1;
        let params: [Param<'_>; 3] = [(&prefix, Type::TEXT), (&after, Type::TEXT), (&one_more, Type::INT8)];
        let sent = self.steps.own();
        let found = connect::look(self, &sql, &params).await?;
        let first = found.first().ok_or_else(|| Trouble::bad_row("leasehold.store"))?;
        let header = Header::from_row(self, sent, first)?;
        let mut slots = Vec::new();
        for row in &found {
            let Some((key, slot)) = rows::slot_from(row, HEADER_COLUMNS)? else { break };
            if !key.as_str().starts_with(prefix) {
                break;
            }
            slots.push((key, slot));
        }
        let more = slots.len() > limit;
        slots.truncate(limit);
        Ok(Page { slots, more, now: header.now, position: header.position })
    }

    /// The time, and when something is due next.
    async fn next_due(&self) -> TroubleResult<(StoreTime, Option<StoreTime>)> {
        self.ready().await?;
        let sql = format!(
            "WITH {CLOCK} SELECT {HEADER}, (SELECT min(due_at) FROM leasehold.slot WHERE due_at IS NOT NULL) \
             FROM clock, leasehold.store s"
        );
        let sent = self.steps.own();
        let row = self.look_for_one(&sql, &[]).await?;
        let due: Option<i64> = row.try_get(HEADER_COLUMNS)?;
        let due = due.map(|due| StoreTime::from_millis(due.cast_unsigned()));
        Ok((Header::from_row(self, sent, &row)?.now, due))
    }

    /// Settles keys that nobody else is working on; answers on how many something was due.
    async fn settle(&self, limit: usize) -> TroubleResult<usize> {
        // More than are wanted, for those that another server is just settling.
        let sql = format!(
            "WITH {CLOCK}, due AS MATERIALIZED (\
               SELECT k.key FROM clock, leasehold.store s, leasehold.slot k \
               WHERE k.due_at <= {NOW} ORDER BY k.due_at, k.key LIMIT $1 * 4) \
             SELECT key FROM due WHERE pg_try_advisory_xact_lock(leasehold.key_lock(key)) LIMIT $1"
        );
        let limit = limit.min(SETTLED_AT_ONCE) as i64;
        let (turn, found) = Turn::begin(self, &sql, &[(&limit, Type::INT8)]).await?;
        let keys = found.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        // Locked before, read after: the transaction that had a key until now may have settled it.
        let (header, mut slots) = turn.read_locked(&keys).await?;
        // Told in the order in which it came due, like in every store.
        slots.sort_by(|(key, slot), (other, other_slot)| {
            (slot.due_at(), key).cmp(&(other_slot.due_at(), other))
        });
        let mut leases = turn.leases_of_askers(slots.iter().map(|(_, slot)| slot)).await?;
        let mut changes = header.changes();
        for (key, slot) in &slots {
            let asker_is_full = leases.is_full(slot.asker());
            changes.decide(key, slot, &Command::Settle, Known { asker_is_full, ..Known::default() });
            if let Some((_, after)) = changes.slots.last().filter(|(changed, _)| changed == key) {
                leases.moved(owner_of(slot), owner_of(after));
            }
        }
        turn.commit(&changes).await?;
        Ok(changes.slots.len())
    }

    async fn look_for_one(&self, sql: &str, params: &[Param<'_>]) -> TroubleResult<Row> {
        let found = connect::look(self, sql, params).await?;
        found.into_iter().next().ok_or_else(|| Trouble::bad_row("leasehold.store"))
    }
}

fn owner_of(slot: &Slot) -> Option<&Owner> {
    slot.lease.as_ref().map(|lease| &lease.owner)
}

#[async_trait]
impl JobStore for Postgres {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        let applied = self.0.retried(|| self.0.apply(key, &command)).await?;
        self.worked(1);
        Ok(applied)
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        let applied = self.0.retried(|| self.0.apply_job(key, &command)).await?;
        self.worked(1);
        Ok(applied)
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        loop {
            let reading = self.0.looked(|| self.0.read(key)).await?;
            if reading.slot.due_at().is_none_or(|due| due > reading.now) {
                return Ok(reading);
            }
            self.apply(key, Command::Settle).await?;
        }
    }

    fn counts_from_1970(&self) -> bool {
        true
    }
}

#[async_trait]
impl Store for Postgres {
    async fn now(&self) -> Result<StoreTime> {
        Ok(self.0.looked(|| self.0.next_due()).await?.0)
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        self.0.looked(|| self.0.list(range)).await
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        feed::next(&self.0, after, limit).await
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        self.worked(WORK_OF_A_LOOK);
        let (now, next_due) = self.0.looked(|| self.0.next_due()).await?;
        if next_due.is_none_or(|due| due > now) {
            return Ok(Settled { keys: 0, next_due, now });
        }
        let keys = self.0.retried(|| self.0.settle(limit)).await?;
        let (now, next_due) = self.0.looked(|| self.0.next_due()).await?;
        Ok(Settled { keys, next_due, now })
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        Some(Arc::new(bus::PostgresBus(self.0.clone())))
    }
}
