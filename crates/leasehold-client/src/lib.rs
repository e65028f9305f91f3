//! Leases for Rust programs: only one at a time works on a thing, and knows the moment that ends.
//!
//! ```
//! # async fn example(folder: &std::path::Path) -> Result<(), leasehold_client::Error> {
//! # let file = folder.join("leases.db"); let file = file.to_str().unwrap();
//! use leasehold_client::{AcquireOptions, Leasehold};
//!
//! let leasehold = Leasehold::open(file)?; // such as "leases.db"
//! let lease = leasehold.acquire("run/nightly-report", AcquireOptions::default()).await?;
//!
//! // The lease renews itself in the background. Hand its fence to whatever it protects.
//! println!("mine, with fence {}", lease.fence());
//!
//! lease.release().await?;
//! # Ok(()) }
//! # let folder = tempfile::tempdir().unwrap();
//! # tokio::runtime::Runtime::new().unwrap().block_on(example(folder.path())).unwrap();
//! ```
//!
//! # Work that must stop when the lease is lost
//!
//! [`Leasehold::run_exclusive`] acquires, runs the work, and releases. If the lease is lost meanwhile (the machine
//! slept, the disk failed, somebody took over) the work is cancelled at its next `await`:
//!
//! ```
//! # async fn example() -> Result<(), leasehold_client::Error> {
//! # use leasehold_client::Leasehold;
//! # let leasehold = Leasehold::open("memory:")?;
//! let pages = leasehold
//!     .run_exclusive("run/nightly-report", |lease| async move {
//!         // … write the report, passing lease.fence() along …
//!         lease.fence().get() // whatever the work comes to
//!     })
//!     .await?;
//! # assert!(pages > 0);
//! # Ok(()) }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```
//!
//! # Trying, waiting, giving up
//!
//! Not getting a lease is a value, not an error:
//!
//! ```
//! # async fn example() -> Result<(), leasehold_client::Error> {
//! use std::time::Duration;
//! use leasehold_client::{AcquireOptions, Attempt, Error, Leasehold};
//!
//! let leasehold = Leasehold::open("memory:")?;
//! let mine = leasehold.acquire("doc/minutes", AcquireOptions::owner("anna")).await?;
//!
//! match leasehold.try_acquire("doc/minutes", AcquireOptions::owner("ben")).await? {
//!     Attempt::Acquired(lease) => println!("mine until I say otherwise: {}", lease.key()),
//!     Attempt::Held(held) => println!("{} is on it", held.by),
//! }
//!
//! // Wait for it, but not for ever.
//! let patient = AcquireOptions::owner("ben").wait(Duration::from_millis(20));
//! assert!(matches!(leasehold.acquire("doc/minutes", patient).await, Err(Error::TimedOut { .. })));
//! # mine.release().await?;
//! # Ok(()) }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```
//!
//! # What a lease can and cannot promise
//!
//! A program can be paused between looking at its lease and acting on it. [`Lease::check`] finds out as late as one
//! can, but only the thing that the lease protects can be sure: let it refuse a fence that is older than one it has
//! seen, for example with `UPDATE … WHERE lock_fence <= :fence`.

#![forbid(unsafe_code)]

mod acquire;
mod guard;
mod waiters;

use std::future::Future;
use std::sync::Arc;

use leasehold_core::{Held, Invalid, Key};
use leasehold_store::Store;
use leasehold_store::clock::{Clock, SystemClock};

pub use acquire::{AcquireOptions, Attempt};
pub use guard::{Guard, Lease};
pub use leasehold_core::{Fence, Lost};
pub use leasehold_store::Retry;
pub use tokio_util::sync::CancellationToken;

/// Leases, wherever they are kept. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Leasehold {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    waiters: waiters::Waiters,
}

impl Leasehold {
    /// Opens the store that `url` names: a path such as `leases.db`, `memory:`, `embedded:PATH`, or
    /// `embedded:PATH?mode=shared` to share the file with other processes of this machine.
    pub fn open(url: &str) -> Result<Self, Error> {
        Ok(Self::with_store(leasehold_store::open(url)?))
    }

    /// The leases of a store that is open already.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self::with_clock(store, Arc::new(SystemClock))
    }

    /// The same, with a clock for the holders' deadlines that is not the machine's. For tests.
    pub fn with_clock(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let waiters = waiters::Waiters::new(store.clone());
        Self { inner: Arc::new(Inner { store, clock, waiters }) }
    }

    /// The store, for what this type does not offer: lists, events, commands.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Acquires the lease on `key`, and waits for it while somebody else has it: until [`AcquireOptions::wait`] is
    /// over, [`AcquireOptions::cancel`] is cancelled, or the future is dropped.
    pub async fn acquire(&self, key: &str, options: AcquireOptions) -> Result<Guard, Error> {
        acquire::acquire(&self.inner, &Key::parse(key)?, options).await
    }

    /// Acquires the lease on `key` if it is free at this moment.
    pub async fn try_acquire(&self, key: &str, options: AcquireOptions) -> Result<Attempt, Error> {
        acquire::try_acquire(&self.inner, &Key::parse(key)?, &options).await
    }

    /// Runs `work` while holding the lease on `key`. The work is cancelled, and [`Error::Lost`] answered, when the
    /// lease is lost before it is done.
    pub async fn run_exclusive<T, W>(&self, key: &str, work: impl FnOnce(Lease) -> W) -> Result<T, Error>
    where
        W: Future<Output = T>,
    {
        self.run_exclusive_with(key, AcquireOptions::default(), work).await
    }

    /// The same with options.
    pub async fn run_exclusive_with<T, W>(
        &self,
        key: &str,
        options: AcquireOptions,
        work: impl FnOnce(Lease) -> W,
    ) -> Result<T, Error>
    where
        W: Future<Output = T>,
    {
        let guard = self.acquire(key, options).await?;
        let lease = guard.lease();
        let lost = lease.lost();
        tokio::select! {
            // Being lost comes first: work that was paused for too long gets no further.
            biased;
            lost = lost => Err(Error::Lost(lost)),
            done = work(lease.clone()) => {
                if let Err(error) = guard.release().await {
                    tracing::warn!(key, %error, "the work is done, but its lease could not be released and will run out");
                }
                Ok(done)
            }
        }
    }
}

/// What a caller may have to decide about. Not getting a lease at once is none of these: see [`Attempt`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The input breaks a rule.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store did not do it; its own words say what to do about it.
    #[error(transparent)]
    Store(#[from] leasehold_store::Error),
    /// The wait is over, and somebody else still has the lease.
    #[error("{key} is still held by {}; wait longer, or ask them to hand it over", held.by)]
    TimedOut {
        /// What was waited for.
        key: Key,
        /// Who has it.
        held: Held,
    },
    /// The wait was cancelled.
    #[error("the wait for {key} was cancelled")]
    Cancelled {
        /// What was waited for.
        key: Key,
    },
    /// The lease was lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The owner already holds as many leases as it may.
    #[error(
        "{owner} already holds as many leases as one owner may; release some, or raise the store's limit"
    )]
    OwnerIsFull {
        /// Who.
        owner: String,
    },
    /// The store has no fence left to give.
    #[error(
        "the store has given out its last fence, 2^53 - 1; begin a new store, and reset the fences it guards"
    )]
    FencesExhausted,
}

impl Error {
    /// How the request may be repeated.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Store(error) => error.retry(),
            Self::TimedOut { .. } | Self::Cancelled { .. } | Self::Lost(_) | Self::OwnerIsFull { .. } => {
                Retry::Safe
            }
            Self::Invalid(_) | Self::FencesExhausted => Retry::No,
        }
    }
}
