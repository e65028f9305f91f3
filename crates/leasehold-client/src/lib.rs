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
//! slept, the disk failed, the lease was taken over) the work is cancelled at its next `await`:
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
//! # Behind a server
//!
//! The same guard works over HTTP, on the leases and documents of a server (`leasehold serve`). The token says who the
//! owner is. A program chooses how long its lease lasts (`run/nightly-report`); for documents the server does, and a
//! take-over or a request to hand over is heard at once, over its event stream:
//!
//! ```no_run
//! # async fn example(token: &str) -> Result<(), leasehold_client::Error> {
//! use leasehold_client::{AcquireOptions, HttpClient, Leasehold};
//!
//! let client = HttpClient::at("https://leases.example.com").token(token).build()?;
//! let leasehold = Leasehold::connect(client);
//! let lease = leasehold.acquire("doc/minutes", AcquireOptions::new()).await?;
//! // … every save carries lease.fence() …
//! lease.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Handing over
//!
//! A program that wants to hear of requests asks for them. From the moment in which one is taken, silence counts as what
//! [`HandoverRequest::on_silence`] says; the guard stops by itself before that could give the lease away:
//!
//! ```
//! # async fn save() {}
//! # async fn example() -> Result<(), leasehold_client::Error> {
//! use leasehold_client::{AcquireOptions, HandoverOptions, Leasehold};
//!
//! let leasehold = Leasehold::open("memory:")?;
//! let lease = leasehold.acquire("doc/minutes", AcquireOptions::owner("anna")).await?;
//! let mut requests = lease.handover_requests();
//!
//! // Elsewhere, ben asks for it, and waits for the answer.
//! let asking = tokio::spawn({
//!     let leasehold = leasehold.clone();
//!     let options = HandoverOptions::new().acquire(AcquireOptions::owner("ben"));
//!     async move { leasehold.request_handover("doc/minutes", options).await }
//! });
//!
//! if let Some(request) = requests.next().await {
//!     println!("{} would like to go on here", request.name());
//!     save().await; // first
//!     request.hand_over().await?; // or request.refuse().await?
//! }
//! let ben = asking.await.unwrap()?.granted().unwrap();
//! assert!(ben.fence() > lease.fence());
//! # Ok(()) }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```
//!
//! # What happens to documents
//!
//! ```no_run
//! # async fn example(client: leasehold_client::HttpClient) -> Result<(), leasehold_client::http::Error> {
//! use leasehold_client::{Notice, RoomId};
//!
//! let mut events = client.events(Some(&RoomId::parse("minutes")?), None); // or None, for all documents
//! while let Some(notice) = events.next().await {
//!     match notice? {
//!         Notice::Snapshot(state) => println!("locked: {}", state.locked),
//!         Notice::Event(event) => println!("{} by {}", event.event.as_str(), event.holder.name),
//!         Notice::Interrupted { why } => eprintln!("reconnecting: {why}"),
//!         Notice::SnapshotOfAll { documents, .. } => println!("{} are locked", documents.len()),
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # Refusing stale saves
//!
//! [`FenceLayer`] goes around the routes that save: without the fence of the present lock (header `Lease-Fence`) they
//! are not reached.
//!
//! ```no_run
//! # fn example(client: leasehold_client::HttpClient) -> axum::Router {
//! use axum::{Extension, Router, http::request::Parts, routing::put};
//! use leasehold_client::{Fence, FenceLayer, RoomId};
//!
//! let room = |parts: &Parts| RoomId::parse(parts.uri.path().strip_prefix("/documents/")?).ok();
//! let app = Router::new()
//!     .route("/documents/{id}", put(async |Extension(fence): Extension<Fence>| format!("saved with {fence}")))
//!     .layer(FenceLayer::new(client, room));
//! # app }
//! ```
//!
//! # What a lease can and cannot promise
//!
//! A program can be paused between looking at its lease and acting on it. [`Lease::check`] finds out as late as one
//! can, but only the thing that the lease protects can be sure: let it refuse a fence that is older than one it has
//! seen, for example with `UPDATE … WHERE lock_fence <= :fence`.

#![forbid(unsafe_code)]

mod acquire;
mod analysis;
mod backend;
#[cfg(feature = "http")]
pub mod events;
#[cfg(feature = "http")]
mod fence;
mod guard;
mod handover;
#[cfg(feature = "http")]
pub mod http;
mod jobs;
mod local;
#[cfg(feature = "http")]
mod remote;
mod waiters;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Invalid, Key, Reason};
use leasehold_store::clock::{Clock, HolderClock};
use leasehold_store::{JobStore, Opened, Store};

use backend::Backend;
use local::Local;
#[cfg(feature = "http")]
use remote::Remote;
use waiters::Waiters;

pub use acquire::{AcquireOptions, Attempt};
pub use analysis::{AnalysisLocks, LockAnswer};
pub use backend::{Claim, Finished, Held, JobLook};
#[cfg(feature = "http")]
pub use events::{Events, Notice};
#[cfg(feature = "http")]
pub use fence::{FenceLayer, FenceService, LEASE_FENCE};
pub use guard::{Guard, Lease};
pub use handover::{Handover, HandoverOptions, HandoverRequest, HandoverRequests};
#[cfg(feature = "http")]
pub use http::HttpClient;
pub use jobs::{Created, JobAttempt, JobGuard, JobRun, Jobs};
pub use leasehold_core::{Fence, JobId, LeaseId, LeaseName, Lost, OnSilence, RoomId};
pub use leasehold_store::Retry;
pub use tokio_util::sync::CancellationToken;

/// Leases, wherever they are kept. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Leasehold {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Box<dyn Backend>,
    /// The store, if it is one of the upper level.
    store: Option<Arc<dyn Store>>,
    clock: Arc<dyn Clock>,
    waiters: Waiters,
}

impl Leasehold {
    /// Opens the store that `url` names: a path such as `leases.db`, `memory:`, `embedded:PATH`, or
    /// `embedded:PATH?mode=shared` to share the file with other processes of this machine; `postgres://…`; or
    /// `firestore:PROJECT`, for jobs in Firestore documents, if the program was built with that (the feature `firestore`
    /// of `leasehold-store`).
    pub fn open(url: &str) -> Result<Self, Error> {
        Ok(match leasehold_store::open_any(url)? {
            Opened::Store(store) => Self::with_store(store),
            Opened::Jobs(store) => Self::with_jobs(store),
        })
    }

    /// Leases and jobs in documents that know nothing of each other. A wait for one polls it every two seconds.
    pub fn with_jobs(store: Arc<dyn JobStore>) -> Self {
        Self::with_jobs_and_clock(store, Arc::new(HolderClock))
    }

    /// The same, with a clock for the holders' deadlines that is not the machine's. For tests.
    pub fn with_jobs_and_clock(store: Arc<dyn JobStore>, clock: Arc<dyn Clock>) -> Self {
        Self::new(Box::new(Local(store)), None, clock, Waiters::of_documents())
    }

    /// The leases of a store that is open already.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self::with_clock(store, Arc::new(HolderClock))
    }

    /// The same, with a clock for the holders' deadlines that is not the machine's. For tests.
    pub fn with_clock(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let (backend, waiters) = (Local(store.clone()), Waiters::of_store(store.clone()));
        Self::new(Box::new(backend), Some(store), clock, waiters)
    }

    /// The leases behind a server. Its keys are `run/` and the name of a program's lease, or `doc/` and the name of a
    /// document, whose TTL the server sets. The token says who the owner is. Jobs are in [`Leasehold::jobs`]. The rest is
    /// as with a store.
    #[cfg(feature = "http")]
    pub fn connect(client: HttpClient) -> Self {
        let waiters = Waiters::of_server(client.clone());
        Self::new(Box::new(Remote(client)), None, Arc::new(HolderClock), waiters)
    }

    fn new(
        backend: Box<dyn Backend>,
        store: Option<Arc<dyn Store>>,
        clock: Arc<dyn Clock>,
        waiters: Waiters,
    ) -> Self {
        Self { inner: Arc::new(Inner { backend, store, clock, waiters }) }
    }

    /// The store, for what this type does not offer: lists, events, commands. There is none behind a server: use
    /// [`HttpClient`] instead; and none that could do this in Firestore.
    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.inner.store.as_ref()
    }

    /// Acquires the lease on `key`, and waits for it while another has it: until [`AcquireOptions::wait`] is
    /// over, [`AcquireOptions::cancel`] is cancelled, or the future is dropped.
    pub async fn acquire(&self, key: &str, options: AcquireOptions) -> Result<Guard, Error> {
        acquire::acquire(&self.inner, &Key::parse(key)?, &options).await
    }

    /// Acquires the lease on `key` if it is free at this moment.
    pub async fn try_acquire(&self, key: &str, options: AcquireOptions) -> Result<Attempt, Error> {
        acquire::try_acquire(&self.inner, &Key::parse(key)?, &options).await
    }

    /// Takes the lease on `key` from its holder, whose fence was `seen`. A server asks for the permission to do so; a store
    /// of this program does not. The holder learns it, and the reason.
    pub async fn take_over(
        &self,
        key: &str,
        seen: Fence,
        reason: &str,
        options: AcquireOptions,
    ) -> Result<Attempt, Error> {
        handover::take_over(&self.inner, &Key::parse(key)?, seen, Reason::parse(reason)?, &options).await
    }

    /// Requests that the holder hands the lease on `key` over, and waits for the answer. The request is withdrawn when
    /// the wait ends before, or the future is dropped. A key that is free is acquired.
    pub async fn request_handover(&self, key: &str, options: HandoverOptions) -> Result<Handover, Error> {
        handover::request(&self.inner, &Key::parse(key)?, &options).await
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
    /// The store failed or refused; its message says what to do.
    #[error(transparent)]
    Store(#[from] leasehold_store::Error),
    /// The server failed or refused; its message says what to do.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Http(#[from] http::Error),
    /// The wait is over, and another still has the lease.
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
    /// There is no such job.
    #[error("there is no job {id}; create it first")]
    NoSuchJob {
        /// Which.
        id: String,
    },
    /// There is a job with this id, and it is another one.
    #[error("there is a job {id} with another payload; the same id always means the same work")]
    JobDiffers {
        /// Which.
        id: String,
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
            #[cfg(feature = "http")]
            Self::Http(error) => error.retry(),
            Self::TimedOut { .. } | Self::Cancelled { .. } | Self::Lost(_) | Self::OwnerIsFull { .. } => {
                Retry::Safe
            }
            Self::Invalid(_) | Self::NoSuchJob { .. } | Self::JobDiffers { .. } | Self::FencesExhausted => {
                Retry::No
            }
        }
    }

    /// How long to wait before that, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            #[cfg(feature = "http")]
            Self::Http(error) => error.retry_after(),
            _ => None,
        }
    }
}
