//! Where the leases are: in a store of this program, in single documents, or behind a server.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Command, Held, JobCommand, Key};
use leasehold_store::{Applied, JobApplied, JobStore, Store};

use crate::Error;
use crate::remote::Remote;

/// A key under which there is nothing.
const CLOCK: &str = "run/leasehold-clock";

pub(crate) enum Backend {
    Store(Arc<dyn Store>),
    /// A store of the lower level: it knows nothing but the key that it is asked about.
    Jobs(Arc<dyn JobStore>),
    Server(Remote),
}

impl Backend {
    /// Has a command carried out, or tells what is known about one that was not answered.
    pub(crate) async fn apply(&self, key: &Key, command: Command) -> Result<Applied, Error> {
        match self {
            Self::Store(store) => Ok(store.apply(key, command).await?),
            Self::Jobs(store) => Ok(store.apply(key, command).await?),
            Self::Server(remote) => Ok(remote.apply(key, command).await?),
        }
    }

    /// The same for a command about a job.
    pub(crate) async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied, Error> {
        match self {
            Self::Store(store) => Ok(store.apply_job(key, command).await?),
            Self::Jobs(store) => Ok(store.apply_job(key, command).await?),
            Self::Server(remote) => Ok(remote.apply_job(key, command).await?),
        }
    }

    /// How long the holder that was in the way has left, unless it renews its lease.
    pub(crate) async fn time_left(&self, held: &Held) -> Result<Duration, Error> {
        let now = match self {
            Self::Store(store) => store.now().await?,
            // Whichever document is read, the time comes with it.
            Self::Jobs(store) => store.read(&Key::parse(CLOCK)?).await?.now,
            Self::Server(remote) => remote.now(),
        };
        Ok(held.until.since(now))
    }

    /// How often a lease is to be renewed, if whoever keeps it has said so.
    pub(crate) fn heartbeat(&self) -> Option<Duration> {
        match self {
            Self::Store(_) | Self::Jobs(_) => None,
            Self::Server(remote) => remote.heartbeat(),
        }
    }

    pub(crate) fn is_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}
