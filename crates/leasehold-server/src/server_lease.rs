//! A lease that the server itself holds: of being there, and of being the one that sweeps.
//!
//! The rules are those of every lease: the store decides who holds it, and `Keeper` when to renew and when to stop. This file
//! sends what the keeper asks for.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::holder::{Action, Reply, Terms};
use leasehold_core::lease::{Bid, Proof};
use leasehold_core::{Command, HolderTime, Keeper, Key, LeaseId, Meta, Outcome, Owner, Ttl};
use leasehold_store::clock::Clock;
use leasehold_store::{Error, Retry, Store, jitter};

/// The door of the keys that servers hold themselves. No caller can ask for one: no route has it.
pub(crate) const DOOR: &str = "server/";

/// The longest sleep between two looks at the clock: a timer stands still while the machine sleeps, the deadline does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How long a server that leaves waits for the store: less than a shutdown waits for the background tasks.
pub(crate) const GOODBYE: Duration = Duration::from_secs(2);

/// What a server wants to hold, and as whom.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) store: Arc<dyn Store>,
    /// Runs on while the machine sleeps.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) ttl: Ttl,
}

/// The answer to [`Wanted::acquire`].
pub(crate) enum Acquired {
    /// It is this server's.
    Ours(Box<ServerLease>),
    /// Another server has it for this long, unless it renews it.
    Held(Duration),
}

/// A lease that this server holds. It has to be [kept](Self::keep).
pub(crate) struct ServerLease {
    wanted: Wanted,
    proof: Proof,
    keeper: Keeper,
}

impl Wanted {
    /// Asks for the lease once. An attempt whose outcome is unknown may leave a lease behind, which runs out.
    pub(crate) async fn acquire(&self) -> Result<Acquired, Error> {
        let sent = self.now();
        let bid = Bid {
            lease_id: random_lease_id()?,
            owner: self.owner.clone(),
            tab: None,
            ttl: self.ttl,
            meta: Meta::default(),
        };
        let applied = self.store.apply(&self.key, Command::Acquire(bid)).await?;
        match applied.outcome {
            Outcome::Granted { lease, .. } => {
                let terms = Terms::in_store(&lease, applied.now);
                let keeper = Keeper::granted(sent, self.now(), terms, None, jitter());
                let lease = ServerLease { wanted: self.clone(), proof: lease.proof(), keeper };
                Ok(Acquired::Ours(Box::new(lease)))
            }
            Outcome::Held(held) => Ok(Acquired::Held(held.until.since(applied.now))),
            other => Err(unavailable(&format!("its answer, {other:?}, does not belong to an acquire"))),
        }
    }

    fn now(&self) -> HolderTime {
        HolderTime::from_millis(self.clock.millis())
    }
}

impl ServerLease {
    /// Renews the lease until it is lost. Dropping the future loses nothing.
    pub(crate) async fn keep(&mut self) {
        loop {
            let now = self.wanted.now();
            match self.keeper.poll(now) {
                Action::Stop(_) => return,
                Action::Wait(until) => tokio::time::sleep(until.since(now).min(LONGEST_SLEEP)).await,
                Action::Renew => {
                    let reply = self.renew(now).await;
                    self.keeper.handle_reply(now, self.wanted.now(), reply);
                }
            }
        }
    }

    /// Renews once; gives up when the keeper would repeat it.
    async fn renew(&self, sent: HolderTime) -> Reply {
        let command = Command::Renew { claim: self.proof.into(), ttl: None };
        let answer = self.wanted.store.apply(&self.wanted.key, command);
        match tokio::time::timeout(self.keeper.next_poll().since(sent), answer).await {
            Ok(Ok(applied)) => Reply::in_store(&applied.outcome, applied.now, 0).unwrap_or(Reply::Failed),
            Ok(Err(error)) => {
                tracing::debug!(key = %self.wanted.key, %error, "a renewal failed and will be repeated");
                Reply::Failed
            }
            Err(_) => Reply::Failed,
        }
    }

    /// Gives the lease back, so that no other server has to wait for its end.
    pub(crate) async fn release(mut self) {
        self.keeper.release();
        let release = self.wanted.store.apply(&self.wanted.key, Command::Release(self.proof.into()));
        if !matches!(tokio::time::timeout(GOODBYE, release).await, Ok(Ok(_))) {
            tracing::debug!(key = %self.wanted.key, "not released; it will run out");
        }
    }
}

/// A lease id that nobody has seen.
pub(crate) fn random_lease_id() -> Result<LeaseId, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| unavailable(&format!("the system provides no random numbers: {error}")))?;
    Ok(LeaseId::from_random(bytes))
}

fn unavailable(what: &str) -> Error {
    Error::Unavailable { what: what.to_owned(), retry: Retry::No }
}

#[cfg(test)]
pub(crate) mod tests {
    use leasehold_store::{Limits, Memory};
    use tokio::time::Instant;

    use super::*;

    /// tokio's clock as a store's, and as a holder's.
    pub(crate) struct TokioClock(pub(crate) Instant);

    impl Clock for TokioClock {
        fn millis(&self) -> u64 {
            u64::try_from(self.0.elapsed().as_millis()).unwrap()
        }

        fn boot(&self) -> String {
            "virtual".into()
        }
    }

    fn wanted(store: &Arc<dyn Store>, clock: &Arc<TokioClock>, owner: &str) -> Wanted {
        Wanted {
            store: store.clone(),
            clock: clock.clone(),
            key: Key::parse("server/sweeper").unwrap(),
            owner: Owner::parse(owner).unwrap(),
            ttl: Ttl::from_secs(3).unwrap(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_lease_stays_and_one_that_is_not_kept_runs_out() {
        let clock = Arc::new(TokioClock(Instant::now()));
        let store: Arc<dyn Store> = Arc::new(Memory::with(clock.clone(), Limits::default(), 0));
        let (one, other) = (wanted(&store, &clock, "one"), wanted(&store, &clock, "other"));
        let Acquired::Ours(mut lease) = one.acquire().await.unwrap() else { panic!("nobody has it") };
        for _ in 0..10 {
            let kept = tokio::time::timeout(Duration::from_secs(2), lease.keep()).await;
            assert!(kept.is_err(), "it is still held");
            let Acquired::Held(left) = other.acquire().await.unwrap() else { panic!("it is held") };
            assert!(left > Duration::from_secs(1), "{left:?}");
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(matches!(other.acquire().await.unwrap(), Acquired::Ours(_)));
        // It was paused for too long, and learns that without asking.
        tokio::time::timeout(Duration::from_millis(1), lease.keep()).await.expect("it is lost");
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lease_is_free_at_once() {
        let clock = Arc::new(TokioClock(Instant::now()));
        let store: Arc<dyn Store> = Arc::new(Memory::with(clock.clone(), Limits::default(), 0));
        let (one, other) = (wanted(&store, &clock, "one"), wanted(&store, &clock, "other"));
        let Acquired::Ours(lease) = one.acquire().await.unwrap() else { panic!("nobody has it") };
        lease.release().await;
        assert!(matches!(other.acquire().await.unwrap(), Acquired::Ours(_)));
    }
}
