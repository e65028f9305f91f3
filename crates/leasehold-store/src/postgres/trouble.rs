//! PostgreSQL's trouble in our words: what is known about the command, and whether it is worth another try right away.

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::error::DbError;

use super::connect::{CONNECTIONS, Phase};
use super::tls::is_certificate_refused;
use super::turn::Ahead;
use crate::error::with_causes;
use crate::{Error, Retry};

/// Why an attempt failed.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) error: Error,
    pub(super) next: Next,
}

/// What to do before the caller hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: the caller has to know.
    Tell,
    /// Try again: nothing was done, and it may well work.
    TryAgain,
    /// Tie the lease clock to the database's, which went back, and try again.
    TieClock,
    /// Take off the lease clock what it is ahead, and try again.
    HoldClock(Ahead),
    /// Let everything that is counted jump ahead, because the database has another history, and try again.
    BeginHistory,
}

pub(super) type TroubleResult<T> = Result<T, Trouble>;

impl Trouble {
    /// Trouble that another try will not end.
    pub(super) fn last(error: Error) -> Self {
        Self { error, next: Next::Tell }
    }

    pub(super) fn new(error: &tokio_postgres::Error, phase: Phase) -> Self {
        match error.as_db_error() {
            Some(error) => said_by_the_server(error, phase),
            None if is_certificate_refused(error) => {
                let what = format!("the connection to PostgreSQL failed: {}", with_causes(error));
                Self::last(Error::Unavailable { what, retry: Retry::No })
            }
            None => lost(&with_causes(error), phase),
        }
    }

    /// No answer came in time.
    pub(super) fn late(phase: Phase) -> Self {
        let what = "PostgreSQL did not answer in time".to_owned();
        Self::last(Error::Unavailable { what, retry: retry(phase) })
    }

    pub(super) fn clock_went_back() -> Self {
        let what = "the database's clock went back".to_owned();
        Self { error: Error::Unavailable { what, retry: Retry::Safe }, next: Next::TieClock }
    }

    pub(super) fn clock_went_ahead(ahead: Ahead) -> Self {
        let what = "the database's clock went ahead".to_owned();
        Self { error: Error::Unavailable { what, retry: Retry::Safe }, next: Next::HoldClock(ahead) }
    }

    pub(super) fn new_history() -> Self {
        let what = "the database failed over or was restored".to_owned();
        Self { error: Error::Unavailable { what, retry: Retry::Safe }, next: Next::BeginHistory }
    }

    /// The database answers from an older timeline than it did before.
    pub(super) fn old_primary(current: i64, newest: i64) -> Self {
        let what = format!(
            "a database on timeline {current} answers, and the last one was on timeline {newest}: it is the primary from before \
             a fail-over; stop it, or restart Leasehold if it is the right one"
        );
        Self::last(Error::Unavailable { what, retry: Retry::Safe })
    }

    pub(super) fn bad_row(what: &str) -> Self {
        let what = format!("{what} in the database holds values that Leasehold never wrote");
        Self::last(Error::Unavailable { what, retry: Retry::No })
    }
}

impl From<tokio_postgres::Error> for Trouble {
    /// Where nothing has been committed yet.
    fn from(error: tokio_postgres::Error) -> Self {
        Self::new(&error, Phase::Before)
    }
}

impl From<PoolError> for Trouble {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::new(&error, Phase::Before),
            PoolError::Timeout(TimeoutType::Wait) => {
                let what = format!("all {CONNECTIONS} connections to PostgreSQL are busy");
                Self::last(Error::Unavailable { what, retry: Retry::Safe })
            }
            PoolError::Timeout(_) => lost("making a connection took too long", Phase::Before),
            error => lost(&error.to_string(), Phase::Before),
        }
    }
}

fn retry(phase: Phase) -> Retry {
    match phase {
        Phase::Before => Retry::Safe,
        Phase::Committing => Retry::Unknown,
    }
}

/// The connection is gone, or never was.
fn lost(why: &str, phase: Phase) -> Trouble {
    let next = if phase == Phase::Before { Next::TryAgain } else { Next::Tell };
    let what = format!("the connection to PostgreSQL failed: {why}");
    Trouble { error: Error::Unavailable { what, retry: retry(phase) }, next }
}

/// An error that the server reports rolls the transaction back, unless it reports its own end.
fn said_by_the_server(error: &DbError, phase: Phase) -> Trouble {
    let code = error.code().code();
    // The message alone: details may repeat what is in a row.
    let what = format!("PostgreSQL says: {} ({code})", error.message());
    let trouble = |retry, next| Trouble { error: Error::Unavailable { what: what.clone(), retry }, next };
    match code.get(..2).unwrap_or_default() {
        // A deadlock, a conflict, a transaction that was idle for too long.
        "40" => trouble(Retry::Safe, Next::TryAgain),
        "25" if matches!(code, "25P03" | "25006") => trouble(Retry::Safe, Next::TryAgain),
        // Shutting down, starting up, or a proxy that lost its server.
        "57" if code != "57014" => lost(&what, phase),
        "08" => lost(&what, phase),
        // Too many connections.
        "53" if code == "53300" => trouble(Retry::Safe, Next::TryAgain),
        // Wrong password, no such database, no permission, tables that were changed by hand.
        "28" | "3D" | "3F" | "42" => trouble(Retry::No, Next::Tell),
        // A timeout, a full disk, and whatever else may pass.
        _ => trouble(Retry::Safe, Next::Tell),
    }
}
