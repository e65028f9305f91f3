//! Connections, and the round trips on them.
//!
//! Statements are unnamed and what they set is set for one transaction only, so that a transaction-pooling proxy may
//! stand in between. Messages that need not wait for each other travel together: a trip is one wait for the server.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::Inner;
use super::trouble::{Trouble, TroubleResult};
use super::url::PostgresUrl;
use crate::{Error, Result, Retry};

/// How many connections a process has at most, the one that listens not counted.
pub(super) const CONNECTIONS: usize = 16;

/// How long a command waits for a connection.
pub(super) const WAIT: Duration = Duration::from_secs(4);

/// How long a trip may take. The server gives up earlier by itself, so that this is for a server that is not there.
const TRIP: Duration = Duration::from_millis(4_500);

/// Begins a transaction that writes. Every statement in it sees what was committed before that statement began. Nobody
/// waits for long: neither this process for a lock, nor the others for this process. And it is durable when it is
/// committed, even if the database was told to be quick rather than careful. Its statements are short, and compiling one
/// would take a hundred times as long as running it.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
    SET LOCAL statement_timeout = 4000; SET LOCAL jit = off; SET LOCAL idle_in_transaction_session_timeout = 2000; \
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';";

/// Begins a transaction that looks at one moment of the database.
const BEGIN_LOOK: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 4000; SET LOCAL jit = off;";

/// A value for a statement, with its type: the server need not be asked for it.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing can have been done.
    Before,
    /// The commit is on its way.
    Committing,
}

/// Makes the pool; connects to nothing yet.
pub(super) fn pool(url: &PostgresUrl) -> Result<Pool> {
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(url.address.config.clone(), url.address.tls.connector()?, manager);
    let pool = Pool::builder(manager)
        .max_size(CONNECTIONS)
        .wait_timeout(Some(WAIT))
        .create_timeout(Some(TRIP))
        .runtime(Runtime::Tokio1)
        .build();
    pool.map_err(|error| Error::Unavailable { what: error.to_string(), retry: Retry::No })
}

pub(super) async fn get(inner: &Inner) -> TroubleResult<Object> {
    Ok(inner.pool.get().await?)
}

/// Waits for an answer, but not for ever.
pub(super) async fn timely<T>(
    answer: impl Future<Output = TroubleResult<T>>,
    phase: Phase,
) -> TroubleResult<T> {
    within(TRIP, answer, phase).await
}

/// The same for what may take another time.
pub(super) async fn within<T>(
    time: Duration,
    answer: impl Future<Output = TroubleResult<T>>,
    phase: Phase,
) -> TroubleResult<T> {
    tokio::time::timeout(time, answer).await.unwrap_or_else(|_| Err(Trouble::late(phase)))
}

/// Looks at one moment of the database: one trip.
pub(super) async fn look(inner: &Inner, sql: &str, params: &[Param<'_>]) -> TroubleResult<Vec<Row>> {
    let connection = Connection(Some(get(inner).await?));
    let db = connection.get()?;
    let looked = async {
        let (begun, rows, ended) = tokio::join!(
            biased;
            db.batch_execute(BEGIN_LOOK),
            db.query_typed(sql, params),
            db.batch_execute("COMMIT"),
        );
        begun?;
        let rows = rows?;
        ended?;
        Ok(rows)
    };
    let rows = timely(looked, Phase::Before).await?;
    connection.keep();
    Ok(rows)
}

/// A connection that is closed, not put back, unless all went well: nobody else must meet a transaction that was left
/// open, also when the one who began it is not interested any more.
pub(super) struct Connection(Option<Object>);

impl Connection {
    pub(super) async fn new(inner: &Inner) -> TroubleResult<Self> {
        Ok(Self(Some(get(inner).await?)))
    }

    pub(super) fn get(&self) -> TroubleResult<&Object> {
        self.0.as_ref().ok_or_else(|| Trouble::last(Error::Closed))
    }

    /// Puts it back for the next one.
    pub(super) fn keep(mut self) {
        self.0.take();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(db) = self.0.take() {
            drop(Object::take(db));
        }
    }
}
