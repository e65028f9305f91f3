//! Commands of several callers in one transaction, so that they share its trips and its sync.
//!
//! A transaction with events keeps the store's one row locked until its commit is synced (see `turn.rs`): one after the other,
//! however many connections there are. So while a few transactions are on their way, further commands wait, and the next
//! transaction takes all of them. A command that comes while little is going on has its own at once.
//!
//! A batch never waits for a key: one that another transaction has locked is left to its caller, who waits for it alone. So
//! batches cannot deadlock, and a busy key holds up nobody else. Nor can a command fail because of another one in its batch,
//! unless the database failed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Command, Key, Owner, Position};
use tokio::sync::oneshot;

use super::connect::WAIT;
use super::trouble::{Trouble, TroubleResult};
use super::turn::{Found, Turn};
use super::{Inner, owner_of};
use crate::changes::Changes;
use crate::{Applied, Error, Retry};

/// How many transactions with a single command are on their way before commands are gathered.
const ALONE: usize = 2;

/// How many batches are on their way at a time: one that the database syncs, and one that is read and decided meanwhile.
const BATCHES: usize = 2;

/// How many commands must wait for a second batch to begin. A batch has a cost of its own, in the database as well as here: it
/// is cheaper to let a few commands wait for the batch before them than to give them one.
const GATHERED: usize = 16;

/// How many commands a batch has at most.
const BATCH: usize = 128;

/// How many commands wait at most.
const QUEUE: usize = 8_192;

/// The commands that wait for a batch.
#[derive(Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    alone: usize,
    batches: usize,
}

struct Waiting {
    key: Key,
    command: Command,
    answer: oneshot::Sender<Answer>,
}

/// What becomes of a command in a batch.
enum Answer {
    Decided(TroubleResult<Applied>),
    /// Another transaction has the key: the command needs one of its own, which waits for it.
    KeyIsLocked,
}

/// The right to a transaction of one's own.
struct Alone<'a>(&'a Queue);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

/// How a command is carried out.
enum Way<'a> {
    Alone(Alone<'a>),
    InBatch(oneshot::Receiver<Answer>),
}

/// Decides one command, alone or together with others.
pub(super) async fn apply(inner: &Arc<Inner>, key: &Key, command: &Command) -> TroubleResult<Applied> {
    let answer = match inner.queue.enter(inner, key, command)? {
        Way::Alone(_place) => return Turn::apply(inner, key, command).await,
        Way::InBatch(answer) => tokio::time::timeout(WAIT, answer).await,
    };
    match answer {
        Ok(Ok(Answer::Decided(decided))) => decided,
        Ok(Ok(Answer::KeyIsLocked)) => Turn::apply(inner, key, command).await,
        Ok(Err(_)) => Err(Trouble::last(Error::Closed)),
        Err(_) => Err(busy(Retry::Unknown)),
    }
}

fn busy(retry: Retry) -> Trouble {
    let what = "too many commands wait for PostgreSQL".to_owned();
    Trouble::last(Error::Unavailable { what, retry })
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, inner: &Arc<Inner>, key: &Key, command: &Command) -> TroubleResult<Way<'_>> {
        let mut state = self.state();
        if state.waiting.is_empty() && state.batches == 0 && state.alone < ALONE {
            state.alone += 1;
            return Ok(Way::Alone(Alone(self)));
        }
        if state.waiting.len() >= QUEUE {
            return Err(busy(Retry::Safe));
        }
        let (answer, answered) = oneshot::channel();
        state.waiting.push_back(Waiting { key: key.clone(), command: command.clone(), answer });
        let begins = state.batches == 0 || (state.batches < BATCHES && state.waiting.len() >= GATHERED);
        if begins {
            state.batches += 1;
            tokio::spawn(work(inner.clone()));
        }
        Ok(Way::InBatch(answered))
    }

    /// The next batch, with each key once: a second command for a key waits for the first. None, and one worker fewer, if
    /// nothing waits, or so little that it can wait for the other worker.
    fn next(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state();
        if state.batches > 1 && state.waiting.len() < GATHERED {
            state.batches -= 1;
            return None;
        }
        let (mut batch, mut later, mut keys) = (Vec::new(), VecDeque::new(), HashSet::new());
        for waiting in mem::take(&mut state.waiting) {
            // A caller that has gone away gets no lease. What it wanted to end is ended.
            if waiting.answer.is_closed() && waiting.command.bidder().is_some() {
                continue;
            }
            if batch.len() < BATCH && keys.insert(waiting.key.clone()) {
                batch.push(waiting);
            } else {
                later.push_back(waiting);
            }
        }
        state.waiting = later;
        if batch.is_empty() {
            state.batches -= 1;
            return None;
        }
        Some(batch)
    }
}

/// Carries out batches until nothing waits.
async fn work(inner: Arc<Inner>) {
    while let Some(batch) = inner.queue.next() {
        let commands: Vec<(&Key, &Command)> =
            batch.iter().map(|waiting| (&waiting.key, &waiting.command)).collect();
        let answers = match apply_all(&inner, &commands).await {
            Ok(answers) => answers,
            Err(trouble) => commands.iter().map(|_| Answer::Decided(Err(trouble.clone()))).collect(),
        };
        for (waiting, answer) in batch.into_iter().zip(answers) {
            // Its caller may have gone away.
            let _ = waiting.answer.send(answer);
        }
    }
}

/// Decides all of them in one transaction, in two trips (three if one of the keys has a request to hand over).
async fn apply_all(inner: &Inner, commands: &[(&Key, &Command)]) -> TroubleResult<Vec<Answer>> {
    let (turn, found) = Turn::try_lock_and_read(inner, commands).await?;
    let Some(header) = found.header else {
        turn.end().await?;
        return Ok(commands.iter().map(|_| Answer::KeyIsLocked).collect());
    };
    let slots = found.keys.iter().filter_map(|found| Some(&found.as_ref()?.as_ref().ok()?.record.slot));
    let mut askers = turn.leases_of_askers(slots).await?;
    let mut changes = header.changes();
    let mut granted = Granted::default();
    let mut decided = Vec::with_capacity(commands.len());
    for ((key, command), found) in commands.iter().zip(found.keys) {
        decided.push(match found {
            None => Step::Locked,
            Some(Err(trouble)) => Step::Failed(trouble),
            Some(Ok(found)) => {
                let mut known = found.known(inner, granted.to(command.bidder()));
                let slot = &found.record.slot;
                known.asker_is_full = askers.is_full(slot.asker());
                let outcome = changes.decide(key, slot, command, known);
                if let Some(after) = changed(&changes, key) {
                    askers.moved(owner_of(slot), owner_of(after));
                    granted.moved(owner_of(slot), owner_of(after));
                }
                Step::Decided(outcome, changes.events.len() as u64)
            }
        });
    }
    let events = changes.events.len() as u64;
    let last = turn.commit(&changes).await?;
    // Events of other transactions may have come in between: what this one adds ends at `last`.
    let before = last.map_or(header.position, |last| Position(last.0.saturating_sub(events)));
    let answer = |step| match step {
        Step::Locked => Answer::KeyIsLocked,
        Step::Failed(trouble) => Answer::Decided(Err(trouble)),
        Step::Decided(outcome, events) => {
            let position = Position(before.0.saturating_add(events));
            Answer::Decided(Ok(Applied { outcome, now: header.now, position }))
        }
    };
    Ok(decided.into_iter().map(answer).collect())
}

/// What became of a command before the commit.
enum Step {
    Locked,
    Failed(Trouble),
    /// How many events there are up to and with its own.
    Decided(leasehold_core::Outcome, u64),
}

/// The new slot of a key, if the last decision changed it.
fn changed<'a>(changes: &'a Changes, key: &Key) -> Option<&'a leasehold_core::Slot> {
    changes.slots.last().filter(|(changed, _)| changed == key).map(|(_, slot)| slot)
}

/// What a batch has granted so far, which the database does not count yet. Leases that it has ended are not taken off: an
/// owner may be refused a lease that it could have had a moment later, but never has too many.
#[derive(Default)]
struct Granted(HashMap<Owner, i64>);

impl Granted {
    fn to(&self, owner: Option<&Owner>) -> i64 {
        owner.and_then(|owner| self.0.get(owner)).copied().unwrap_or(0)
    }

    fn moved(&mut self, before: Option<&Owner>, after: Option<&Owner>) {
        if let Some(owner) = after.filter(|after| before != Some(*after)) {
            *self.0.entry(owner.clone()).or_insert(0) += 1;
        }
    }
}

/// What the first trip of a batch brings: for each command nothing if its key is locked elsewhere.
pub(super) struct FoundAll {
    /// None if no key could be locked.
    pub(super) header: Option<super::turn::Header>,
    pub(super) keys: Vec<Option<TroubleResult<Found>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a worker takes, and how many workers there are then.
    fn taken(waiting: usize, batches: usize) -> (Option<usize>, usize) {
        let waiting = (0..waiting).map(|number| Waiting {
            key: Key::parse(&format!("run/{number}")).unwrap(),
            command: Command::Settle,
            answer: oneshot::channel().0,
        });
        let queue = Queue(Mutex::new(State { waiting: waiting.collect(), alone: 0, batches }));
        let taken = queue.next().map(|batch| batch.len());
        (taken, queue.state().batches)
    }

    #[test]
    fn a_few_commands_wait_for_the_batch_before_them_and_the_last_worker_leaves_none() {
        assert_eq!(taken(GATHERED - 1, 2), (None, 1));
        assert_eq!(taken(GATHERED, 2), (Some(GATHERED), 2));
        assert_eq!(taken(1, 1), (Some(1), 1));
        assert_eq!(taken(0, 1), (None, 0));
        assert_eq!(taken(BATCH + 1, 1), (Some(BATCH), 1));
    }
}
