//! A store that fails on purpose, around any other: how a network, a disk or a busy database would fail.
//!
//! The faults are those that a caller has to live with: a command that was not carried out, one that was carried out
//! but whose answer got lost, one that takes long, one that is never answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Command, JobCommand, Key, Position, StoreTime};

use crate::random::Random;
use crate::{
    Applied, Bus, Error, Feed, JobApplied, JobStore, Page, Range, Reading, Result, Retry, Settled, Store,
};

/// What happens to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing unusual.
    None,
    /// It is not carried out, and the caller is told so.
    Refuse,
    /// It is carried out, but the caller hears that nobody knows.
    LoseAnswer,
    /// It is carried out after this long, whether or not the caller still waits.
    Delay(Duration),
    /// It is carried out, and never answered.
    Hang,
}

/// Decides what happens to each command.
type Plan<C> = Box<dyn FnMut(&C) -> Fault + Send>;

/// A store with faults in front of it.
pub struct Faulty {
    store: Arc<dyn Store>,
    plan: Mutex<Plan<Command>>,
    job_plan: Mutex<Plan<JobCommand>>,
}

impl Faulty {
    /// `plan` decides what happens to each command about leases; those about jobs are carried out.
    pub fn new(store: Arc<dyn Store>, plan: impl FnMut(&Command) -> Fault + Send + 'static) -> Self {
        Self { store, plan: Mutex::new(Box::new(plan)), job_plan: Mutex::new(Box::new(|_| Fault::None)) }
    }

    /// `plan` decides what happens to each command about jobs; those about leases are carried out.
    pub fn for_jobs(store: Arc<dyn Store>, plan: impl FnMut(&JobCommand) -> Fault + Send + 'static) -> Self {
        Self { job_plan: Mutex::new(Box::new(plan)), ..Self::new(store, |_| Fault::None) }
    }

    /// Faults of all kinds but hanging, on `per_mille` of the commands. The same seed gives the same faults.
    pub fn seeded(store: Arc<dyn Store>, seed: u64, per_mille: u64) -> Self {
        let mut random = Random::new(seed);
        Self::new(store, move |_| match random.chance(per_mille) {
            false => Fault::None,
            true => match random.between(0, 2) {
                0 => Fault::Refuse,
                1 => Fault::LoseAnswer,
                _ => Fault::Delay(Duration::from_millis(random.between(0, 2_000))),
            },
        })
    }
}

fn planned<C>(plan: &Mutex<Plan<C>>, command: &C) -> Fault {
    (plan.lock().unwrap_or_else(PoisonError::into_inner))(command)
}

/// Lets `call` meet this fault.
async fn meet<T: Send + 'static>(
    fault: Fault,
    call: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match fault {
        Fault::None => call.await,
        Fault::Refuse => Err(trouble(Retry::Safe)),
        Fault::LoseAnswer => call.await.and(Err(trouble(Retry::Unknown))),
        Fault::Delay(delay) => {
            // On its own task: what is on its way arrives, even if the sender has gone.
            let delayed = tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                call.await
            });
            delayed.await.unwrap_or(Err(trouble(Retry::Unknown)))
        }
        Fault::Hang => {
            call.await?;
            std::future::pending().await
        }
    }
}

fn trouble(retry: Retry) -> Error {
    Error::Unavailable { what: "a fault on purpose".into(), retry }
}

#[async_trait]
impl JobStore for Faulty {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        let fault = planned(&self.plan, &command);
        let (store, key) = (self.store.clone(), key.clone());
        meet(fault, async move { store.apply(&key, command).await }).await
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        self.store.read(key).await
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        let fault = planned(&self.job_plan, &command);
        let (store, key) = (self.store.clone(), key.clone());
        meet(fault, async move { store.apply_job(&key, command).await }).await
    }

    fn counts_from_1970(&self) -> bool {
        self.store.counts_from_1970()
    }
}

#[async_trait]
impl Store for Faulty {
    async fn now(&self) -> Result<StoreTime> {
        self.store.now().await
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        self.store.list(range).await
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        self.store.events(after, limit).await
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        self.store.settle_due(limit).await
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        self.store.bus()
    }
}
