//! Histories of a real store under concurrent load, and whether they are linearizable: whether every command can be
//! placed at one moment between its call and its answer, so that all answers are those of a plain fenced lock.
//!
//! The lock they are compared with is written down here a second time, in the fewest words, on purpose: it shares
//! nothing with the rules that the stores run.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::JobStore;
use crate::random::Random;
use leasehold_core::lease::{Bid, Proof};
use leasehold_core::{Command, Fence, Key, LeaseId, Meta, Outcome, Owner, Reason, Ttl};

/// What was asked, in the words of a plain fenced lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Get it, under this lease id.
    Acquire(LeaseId),
    /// Keep it.
    Renew(LeaseId, u64),
    /// Give it back.
    Release(LeaseId, u64),
    /// Take the one with this fence, under this lease id.
    TakeOver(u64, LeaseId),
    /// Is this fence the current one?
    Check(u64),
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is yours, with this fence.
    Granted(u64),
    /// It is still yours.
    Renewed,
    /// It was yours.
    Released,
    /// Somebody else has it, with this fence.
    Held(u64),
    /// It is not yours.
    Lost,
    /// Whether the fence is current.
    Checked(bool),
}

/// One command: asked at one moment and answered at another. Moments are numbers that grow.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// When it was asked.
    pub asked_at: u64,
    /// What was asked.
    pub ask: Ask,
    /// When it was answered.
    pub answered_at: u64,
    /// What was answered.
    pub answer: Answer,
}

/// A plain fenced lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lock {
    holder: Option<(LeaseId, u64)>,
    last_fence: u64,
    ended: BTreeSet<LeaseId>,
}

impl Lock {
    /// The lock after this call, if it may be answered like that.
    fn after(&self, ask: Ask, answer: Answer) -> Option<Self> {
        let fence = self.holder.map(|(_, fence)| fence);
        match (ask, answer) {
            (Ask::Acquire(id) | Ask::TakeOver(_, id), Answer::Granted(granted)) if self.is_held_by(id) => {
                (fence == Some(granted)).then(|| self.clone())
            }
            (Ask::Acquire(id) | Ask::TakeOver(_, id), Answer::Lost) => {
                (self.ended.contains(&id) && !self.is_held_by(id)).then(|| self.clone())
            }
            (Ask::Acquire(id), Answer::Granted(granted)) => {
                self.holder.is_none().then(|| self.granted(id, granted))?
            }
            (Ask::TakeOver(seen, id), Answer::Granted(granted)) => {
                fence.is_none_or(|fence| fence == seen).then(|| self.granted(id, granted))?
            }
            (Ask::Acquire(id) | Ask::TakeOver(_, id), Answer::Held(by)) => {
                let taken = matches!(ask, Ask::TakeOver(seen, _) if fence == Some(seen));
                let over = self.ended.contains(&id) || self.is_held_by(id);
                (fence == Some(by) && !taken && !over).then(|| self.clone())
            }
            (Ask::Renew(id, with), Answer::Renewed) => {
                (self.holder == Some((id, with))).then(|| self.clone())
            }
            (Ask::Release(id, with), Answer::Released) => {
                (self.holder == Some((id, with))).then(|| self.freed())
            }
            (Ask::Renew(id, with) | Ask::Release(id, with), Answer::Lost) => {
                (self.holder != Some((id, with))).then(|| self.clone())
            }
            (Ask::Check(asked), Answer::Checked(current)) => {
                ((fence == Some(asked)) == current).then(|| self.clone())
            }
            _ => None,
        }
    }

    fn is_held_by(&self, id: LeaseId) -> bool {
        self.holder.is_some_and(|(holder, _)| holder == id)
    }

    fn freed(&self) -> Self {
        let mut next = self.clone();
        next.ended.extend(next.holder.take().map(|(id, _)| id));
        next
    }

    fn granted(&self, id: LeaseId, fence: u64) -> Option<Self> {
        let fits = fence > self.last_fence && !self.ended.contains(&id);
        fits.then(|| Self { holder: Some((id, fence)), last_fence: fence, ..self.freed() })
    }
}

/// Whether the calls on one key can be put into an order that a plain fenced lock could have had. Tries, at every point,
/// the calls that may come next: those that were asked before the first of the remaining answers.
pub fn is_linearizable(calls: &[Call]) -> bool {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| call.asked_at);
    let mut tried = HashSet::new();
    let mut ways = vec![(Done::default(), Lock::default())];
    while let Some((done, lock)) = ways.pop() {
        if done.open == calls.len() {
            return true;
        }
        let left = || calls.iter().enumerate().skip(done.open).filter(|(at, _)| !done.has(*at));
        let first_answer = left().map(|(_, call)| call.answered_at).min().unwrap_or(0);
        let candidates = left().take_while(|(_, call)| call.asked_at < first_answer);
        for (at, call) in candidates {
            if let Some(next) = lock.after(call.ask, call.answer) {
                let way = (done.with(at), next);
                if tried.insert(way.clone()) {
                    ways.push(way);
                }
            }
        }
    }
    false
}

/// Which calls have found their place: all before `open`, and those in `beyond`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Done {
    open: usize,
    beyond: BTreeSet<usize>,
}

impl Done {
    fn has(&self, at: usize) -> bool {
        at < self.open || self.beyond.contains(&at)
    }

    fn with(&self, at: usize) -> Self {
        let mut next = self.clone();
        next.beyond.insert(at);
        while next.beyond.remove(&next.open) {
            next.open += 1;
        }
        next
    }
}

/// Whether some call was asked while another one was not answered yet.
pub fn overlaps(calls: &[Call]) -> bool {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| call.asked_at);
    calls.windows(2).any(|pair| matches!(pair, [first, second] if second.asked_at < first.answered_at))
}

/// The keys that [`record`] uses.
pub fn keys() -> Vec<Key> {
    ["run/left", "run/right"].iter().filter_map(|key| Key::parse(key).ok()).collect()
}

/// Lets so many tasks use a store at once, each with so many commands on one key or another, and records what they were
/// answered, by key. Leases last so long that none expires meanwhile.
pub async fn record(
    store_of_a_task: impl Fn() -> Arc<dyn JobStore>,
    tasks: u64,
    commands: u64,
    seed: u64,
) -> Vec<Vec<Call>> {
    let keys = keys();
    let book = Arc::new(Book { moment: AtomicU64::new(0), calls: Mutex::new(vec![Vec::new(); keys.len()]) });
    let mut running = Vec::new();
    for task in 0..tasks {
        let (store, book, keys) = (store_of_a_task(), book.clone(), keys.clone());
        let random = Random::new(seed.wrapping_mul(1_000).wrapping_add(task));
        running.push(tokio::spawn(async move {
            let hands = keys.iter().map(|_| Hand::default()).collect();
            Player { store, book, keys, random, hands, task }.play(commands).await;
        }));
    }
    for task in running {
        // A task that panicked leaves a call without an answer, which the assertion on their number shows.
        let _ = task.await;
    }
    let calls = book.calls.lock().unwrap_or_else(PoisonError::into_inner);
    calls.clone()
}

/// What all tasks write down together.
struct Book {
    moment: AtomicU64,
    calls: Mutex<Vec<Vec<Call>>>,
}

impl Book {
    fn moment(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst)
    }
}

/// What a task knows about a key: its own lease, and the fence of somebody else's.
#[derive(Default)]
struct Hand {
    own: Option<(LeaseId, u64)>,
    seen: Option<u64>,
    wanted: Option<LeaseId>,
}

struct Player {
    store: Arc<dyn JobStore>,
    book: Arc<Book>,
    keys: Vec<Key>,
    random: Random,
    hands: Vec<Hand>,
    task: u64,
}

impl Player {
    async fn play(mut self, commands: u64) {
        for _ in 0..commands {
            let at = self.random.index(self.keys.len());
            let Some(ask) = self.next_ask(at) else { continue };
            let (Some(key), Some(command)) = (self.keys.get(at), self.command(ask)) else { continue };
            let asked_at = self.book.moment();
            // Lets others in between, also where a command never waits and there is one core.
            tokio::task::yield_now().await;
            let Ok(applied) = self.store.apply(key, command).await else { continue };
            let answered_at = self.book.moment();
            let Some(answer) = answer(&applied.outcome) else { continue };
            self.learn(at, ask, answer);
            let mut calls = self.book.calls.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(calls) = calls.get_mut(at) {
                calls.push(Call { asked_at, ask, answered_at, answer });
            }
        }
    }

    fn next_ask(&mut self, at: usize) -> Option<Ask> {
        let fresh = self.random.lease_id();
        let dice = self.random.between(0, 9);
        let hand = self.hands.get_mut(at)?;
        Some(match (hand.own, hand.seen, dice) {
            (Some((id, fence)), _, 0..=2) => Ask::Renew(id, fence),
            (Some((id, fence)), _, 3..=6) => Ask::Release(id, fence),
            (Some((id, _)), _, 7) => Ask::Acquire(id),
            (Some((_, fence)), _, _) => Ask::Check(fence),
            (None, Some(seen), 0..=1) => Ask::TakeOver(seen, fresh),
            (None, Some(seen), 2) => Ask::Check(seen),
            _ => Ask::Acquire(*hand.wanted.get_or_insert(fresh)),
        })
    }

    fn learn(&mut self, at: usize, ask: Ask, answer: Answer) {
        let Some(hand) = self.hands.get_mut(at) else { return };
        match (ask, answer) {
            (Ask::Acquire(id) | Ask::TakeOver(_, id), Answer::Granted(fence)) => {
                (hand.own, hand.wanted) = (Some((id, fence)), None);
            }
            (_, Answer::Held(fence)) => hand.seen = Some(fence),
            // Sometimes the old lease is still asked about: a late copy.
            (_, Answer::Released | Answer::Lost) if self.random.chance(800) => *hand = Hand::default(),
            _ => {}
        }
    }

    fn command(&self, ask: Ask) -> Option<Command> {
        let bid = |lease_id| {
            let owner = Owner::parse(&format!("task-{}", self.task)).ok()?;
            Some(Bid { tab: None, lease_id, owner, ttl: Ttl::MAX, meta: Meta::default() })
        };
        let claim = |lease_id, fence| Some(Proof { lease_id, fence: Fence::new(fence).ok()? });
        Some(match ask {
            Ask::Acquire(id) => Command::Acquire(bid(id)?),
            Ask::Renew(id, fence) => Command::Renew { claim: claim(id, fence)?.into(), ttl: None },
            Ask::Release(id, fence) => Command::Release(claim(id, fence)?.into()),
            Ask::TakeOver(seen, id) => Command::TakeOver {
                right: leasehold_core::Right::Force,
                seen: Fence::new(seen).ok()?,
                bid: bid(id)?,
                reason: Reason::default(),
            },
            Ask::Check(fence) => Command::Check { fence: Fence::new(fence).ok()? },
        })
    }
}

fn answer(outcome: &Outcome) -> Option<Answer> {
    match outcome {
        Outcome::Granted { lease, .. } => Some(Answer::Granted(lease.fence.get())),
        Outcome::Renewed(_) => Some(Answer::Renewed),
        Outcome::Released => Some(Answer::Released),
        Outcome::Held(held) => Some(Answer::Held(held.fence.get())),
        Outcome::Lost { .. } => Some(Answer::Lost),
        Outcome::Checked { current, .. } => Some(Answer::Checked(*current)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    fn id(number: u8) -> LeaseId {
        LeaseId::from_random([number; 16])
    }

    fn call(asked_at: u64, answered_at: u64, ask: Ask, answer: Answer) -> Call {
        Call { asked_at, ask, answered_at, answer }
    }

    #[test]
    fn calls_at_the_same_time_may_be_put_in_any_order() {
        // The release was asked last, and still came first.
        let history = [
            call(0, 1, Ask::Acquire(id(1)), Answer::Granted(5)),
            call(2, 6, Ask::Acquire(id(2)), Answer::Granted(6)),
            call(3, 5, Ask::Release(id(1), 5), Answer::Released),
        ];
        assert!(is_linearizable(&history));
    }

    #[test]
    fn a_history_that_no_lock_could_have_is_refused() {
        let granted = call(0, 1, Ask::Acquire(id(1)), Answer::Granted(5));
        let wrong = [
            ("two holders", call(2, 3, Ask::Acquire(id(2)), Answer::Granted(6))),
            ("a release is not seen", call(2, 3, Ask::Release(id(2), 5), Answer::Released)),
            ("a grant is forgotten", call(2, 3, Ask::Check(5), Answer::Checked(false))),
            ("granted twice", call(2, 3, Ask::Acquire(id(1)), Answer::Granted(6))),
            ("a stale take-over", call(2, 3, Ask::TakeOver(4, id(2)), Answer::Granted(6))),
        ];
        for (what, call) in wrong {
            assert!(!is_linearizable(&[granted, call]), "{what}");
        }
    }

    #[test]
    fn a_fence_that_goes_back_is_refused() {
        let history = [
            call(0, 1, Ask::Acquire(id(1)), Answer::Granted(5)),
            call(2, 3, Ask::Release(id(1), 5), Answer::Released),
            call(4, 5, Ask::Acquire(id(2)), Answer::Granted(5)),
        ];
        assert!(!is_linearizable(&history));
    }

    #[test]
    fn a_real_history_with_one_answer_changed_is_refused() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let memory = Arc::new(Memory::new());
        let mut history = runtime.block_on(record(|| memory.clone(), 4, 100, 9)).swap_remove(0);
        assert!(is_linearizable(&history));
        let fence = history.iter().find_map(|call| match call.answer {
            Answer::Granted(fence) => Some(fence),
            _ => None,
        });
        let last = history.iter().map(|call| call.answered_at).max().unwrap();
        history.push(call(last + 1, last + 2, Ask::Acquire(id(1)), Answer::Granted(fence.unwrap())));
        assert!(!is_linearizable(&history), "a fence was given out a second time");
    }
}
