//! Every state of a small job: two or three workers want to do it, their messages arrive in any order, late, twice, or
//! never, and workers crash, fail, or come to the end of their work too late. The rules are the real [`job::decide`], the
//! worker's side the real [`Keeper`](leasehold_core::Keeper); what is walked through is everything that can happen between them, within [`Bounds`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use leasehold_core::job::{self, JobCommand, JobOutcome, JobText, Record, Status};
use leasehold_core::lease::{Bid, LossReason, Proof};
use leasehold_core::{Context, Fence, Key, LeaseId, Meta, Owner};

use crate::small::{Attempt, STEP, TTL_STEPS, holder_time, keeper, lease_id, store_time, ttl};
use crate::walk::{self, Walk};

/// How much may happen to a small job.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many workers there are.
    pub workers: u8,
    /// How many steps of time there are.
    pub steps: u8,
    /// How often each worker may ask for the job.
    pub asks: u8,
    /// How many requests may be sent again.
    pub retries: u8,
    /// How many messages may be delivered twice.
    pub copies: u8,
    /// How many workers may crash.
    pub crashes: u8,
    /// How many attempts may fail.
    pub failures: u8,
    /// How many attempts the job allows.
    pub max_attempts: u32,
}

/// A mistake on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobBug {
    /// Whoever says that the job is done is believed.
    CompleteWithoutCompare,
    /// A finished job is given out again.
    FinishedNotChecked,
    /// A worker that asks again, because the answer got lost, is taken for another one.
    RetryIsAnotherAttempt,
    /// A failed attempt ends the job, although there are attempts left.
    FailureForgets,
    /// A worker that vanished keeps the job.
    VanishedKeepsIt,
}

/// Walks through every state that can be reached.
pub fn walk(bounds: Bounds, bug: Option<JobBug>) -> Walk {
    let rules = Rules { bounds, bug };
    walk::walk(rules.start(), |state| rules.successors(state), |state, before| rules.wrong(state, before))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    Asking,
    /// The fence, and when the request that was granted was sent.
    Working(Fence, u8),
    /// It has said what came of the work, and waits to hear that this counts.
    Finishing(Message),
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Worker {
    doing: Doing,
    attempt: u8,
}

/// A message, with the step at which the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Acquire(Attempt, u8),
    Complete(Attempt, Fence),
    Fail(Attempt, Fence),
    Acquired(Attempt, Fence, u8),
    Completed(Attempt, Fence),
    /// It is not to be had, or not any more.
    Refused(Attempt),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    time: u8,
    record: Record,
    last_fence: u64,
    ended: BTreeMap<LeaseId, LossReason>,
    /// Which attempts were granted.
    granted: BTreeSet<Attempt>,
    /// Who was told that its result counts.
    told: BTreeSet<Fence>,
    workers: Vec<Worker>,
    network: Vec<Message>,
    retries: u8,
    copies: u8,
    crashes: u8,
    failures: u8,
}

struct Rules {
    bounds: Bounds,
    bug: Option<JobBug>,
}

impl Rules {
    fn start(&self) -> State {
        let Bounds { workers, retries, copies, crashes, failures, max_attempts, .. } = self.bounds;
        let create = JobCommand::Create { payload: JobText::default(), max_attempts: Some(max_attempts) };
        let context = Context {
            now: store_time(0),
            last_fence: 0,
            remembered: None,
            owner_is_full: false,
            asker_is_full: false,
        };
        let record = job::decide(&KEY, &Record::default(), &create, &context).record;
        let worker = Worker { doing: Doing::Nothing, attempt: 0 };
        State {
            time: 0,
            record,
            last_fence: 0,
            ended: BTreeMap::new(),
            granted: BTreeSet::new(),
            told: BTreeSet::new(),
            workers: vec![worker; usize::from(workers)],
            network: Vec::new(),
            retries,
            copies,
            crashes,
            failures,
        }
    }

    /// Everything that can happen next.
    fn successors(&self, state: &State) -> Vec<(String, State)> {
        let mut all = Vec::new();
        if state.time < self.bounds.steps {
            let time = state.time + 1;
            all.push((format!("time is {time} now"), State { time, ..state.clone() }));
        }
        for at in 0..state.network.len() {
            let mut next = state.clone();
            let message = next.network.remove(at);
            if state.copies > 0 {
                let copied = State { copies: state.copies - 1, ..next.clone() };
                let copied = self.deliver(copied, message).with(message);
                all.push((format!("a copy of {message:?} arrives"), copied));
            }
            all.push((format!("{message:?} arrives"), self.deliver(next, message)));
        }
        for at in 0..state.workers.len() {
            self.worker_moves(state, at, &mut all);
        }
        all
    }

    fn worker_moves(&self, state: &State, at: usize, all: &mut Vec<(String, State)>) {
        let Some(worker) = state.workers.get(at) else { return };
        let who = (u8::try_from(at).unwrap_or(0), worker.attempt);
        let mut go = |does: &str, doing: Doing, message: Option<Message>, pay: fn(&mut State)| {
            let mut next = state.clone();
            pay(&mut next);
            if let Some(worker) = next.workers.get_mut(at) {
                worker.doing = doing;
                worker.attempt += u8::from(does == "asks");
            }
            all.push((format!("worker {at} {does}"), message.into_iter().fold(next, State::with)));
        };
        match worker.doing {
            Doing::Nothing if worker.attempt < self.bounds.asks && state.may_begin(at) => {
                go("asks", Doing::Asking, Some(Message::Acquire((who.0, who.1 + 1), state.time)), |_| {});
            }
            Doing::Asking if state.retries > 0 => {
                let again = Message::Acquire(who, state.time);
                go("asks again", Doing::Asking, Some(again), |state| state.retries -= 1);
            }
            Doing::Working(fence, _) => {
                // Also a worker that has found out that it is too late: it may have been paused just before.
                let done = Message::Complete(who, fence);
                go("is done", Doing::Finishing(done), Some(done), |_| {});
                if state.failures > 0 {
                    let failed = Message::Fail(who, fence);
                    go("fails", Doing::Finishing(failed), Some(failed), |state| state.failures -= 1);
                }
            }
            Doing::Finishing(said) if state.retries > 0 => {
                go("says so again", worker.doing, Some(said), |state| state.retries -= 1);
            }
            _ => {}
        }
        if state.crashes > 0 && !matches!(worker.doing, Doing::Nothing | Doing::Crashed) {
            go("crashes", Doing::Crashed, None, |state| state.crashes -= 1);
        }
    }

    fn deliver(&self, mut state: State, message: Message) -> State {
        match message {
            Message::Acquire(attempt, sent) => {
                match self.decide(&mut state, &JobCommand::Acquire(bid(attempt))) {
                    JobOutcome::Acquired { lease, .. } => {
                        state.granted.insert(attempt);
                        state.with(Message::Acquired(attempt, lease.fence, sent))
                    }
                    _ => state.with(Message::Refused(attempt)),
                }
            }
            Message::Complete(attempt, fence) => {
                let command =
                    JobCommand::Complete { claim: claim(attempt, fence).into(), result: JobText::default() };
                match self.decide(&mut state, &command) {
                    JobOutcome::Completed => state.with(Message::Completed(attempt, fence)),
                    _ => state.with(Message::Refused(attempt)),
                }
            }
            Message::Fail(attempt, fence) => {
                let (claim, error) = (claim(attempt, fence), JobText::default());
                self.decide(&mut state, &JobCommand::Fail { claim: claim.into(), error, retryable: true });
                state.with(Message::Refused(attempt))
            }
            Message::Acquired(attempt, fence, sent) => {
                let in_time = keeper(sent).is_held(holder_time(state.time));
                state.hear(attempt, |doing| match doing {
                    Doing::Asking if in_time => Doing::Working(fence, sent),
                    Doing::Asking => Doing::Nothing,
                    other => other,
                })
            }
            Message::Completed(attempt, fence) => {
                state.told.insert(fence);
                state.hear(attempt, |_| Doing::Nothing)
            }
            Message::Refused(attempt) => state.hear(attempt, |doing| match doing {
                // An old refusal, of a request that was sent twice: what was granted since counts.
                Doing::Working(..) => doing,
                _ => Doing::Nothing,
            }),
        }
    }

    /// The store: the real rules, unless there is a mistake in them.
    fn decide(&self, state: &mut State, command: &JobCommand) -> JobOutcome {
        let command = self.with_bug(state, command);
        let remembered = command.lease_id().and_then(|id| state.ended.get(id)).copied();
        let context = Context {
            now: store_time(state.time),
            last_fence: state.last_fence,
            remembered,
            owner_is_full: false,
            asker_is_full: false,
        };
        let decision = job::decide(&KEY, &state.record, &command, &context);
        state.record = decision.record;
        state.last_fence = decision.lease.last_fence;
        state.ended.extend(decision.lease.ended);
        decision.outcome
    }

    /// The command with the mistake in it; some mistakes are made in what the command finds.
    fn with_bug(&self, state: &mut State, command: &JobCommand) -> JobCommand {
        let lease = state.record.slot.lease.clone();
        match (self.bug, command) {
            (Some(JobBug::CompleteWithoutCompare), JobCommand::Complete { result, .. }) => {
                if let Some(lease) = lease {
                    let claim = lease.proof();
                    return JobCommand::Complete { claim: claim.into(), result: result.clone() };
                }
            }
            (Some(JobBug::FinishedNotChecked), JobCommand::Acquire(_)) => {
                if let Some(job) = &mut state.record.job {
                    job.status = Status::Queued;
                }
            }
            (Some(JobBug::RetryIsAnotherAttempt), JobCommand::Acquire(bid))
                if lease.is_some_and(|lease| lease.lease_id == bid.lease_id) =>
            {
                state.record.slot.lease = None;
            }
            (Some(JobBug::FailureForgets), JobCommand::Fail { claim, error, .. }) => {
                return JobCommand::Fail { claim: claim.clone(), error: error.clone(), retryable: false };
            }
            (Some(JobBug::VanishedKeepsIt), JobCommand::Acquire(_)) => {
                if let Some(lease) = &mut state.record.slot.lease {
                    lease.expires_at = lease.expires_at.max(store_time(state.time) + STEP);
                }
            }
            _ => {}
        }
        command.clone()
    }

    /// What must not be in this state, or on the way here.
    fn wrong(&self, state: &State, before: &State) -> Option<String> {
        let wrong = [
            state.works_twice(),
            state.finished_again(before),
            state.told_wrongly(),
            state.miscounted(),
            state.given_up_early(),
            self.forgotten(state),
        ];
        wrong.into_iter().flatten().next()
    }

    /// A job that is not finished can be had as soon as whoever has it is gone: nothing is ever forgotten.
    fn forgotten(&self, state: &State) -> Option<String> {
        let job = state.record.job.as_ref()?;
        let used_up = job.max_attempts.is_some_and(|most| job.attempts >= most);
        if job.is_finished() || used_up {
            return None;
        }
        let mut later = state.clone();
        later.time += TTL_STEPS;
        let outcome = self.decide(&mut later, &JobCommand::Acquire(bid((u8::MAX, 0))));
        let had = matches!(outcome, JobOutcome::Acquired { .. });
        (!had).then(|| format!("the job is forgotten: after the TTL, a new worker is answered {outcome:?}"))
    }
}

impl State {
    fn works_twice(&self) -> Option<String> {
        let now = holder_time(self.time);
        let mut working = self.workers.iter().enumerate().filter_map(|(at, worker)| match worker.doing {
            Doing::Working(fence, sent) if keeper(sent).is_held(now) => Some((at, fence)),
            _ => None,
        });
        let (one, fence) = working.next()?;
        if let Some((other, _)) = working.next() {
            return Some(format!("workers {one} and {other} both do the job"));
        }
        let live = self.record.slot.lease.as_ref().filter(|lease| lease.expires_at > store_time(self.time));
        let holds = live.is_some_and(|lease| lease.fence == fence);
        (!holds).then(|| format!("worker {one} does the job with fence {fence}, which is over"))
    }

    fn finished_again(&self, before: &Self) -> Option<String> {
        let (was, is) = (before.status()?, self.status()?);
        let changed = *was != Status::Queued && was != is;
        changed.then(|| format!("a job that was {was:?} is {is:?} now"))
    }

    fn told_wrongly(&self) -> Option<String> {
        let counts = match self.status()? {
            Status::Ready { by, .. } => Some(*by),
            _ => None,
        };
        let wrong = self.told.iter().find(|fence| Some(**fence) != counts)?;
        Some(format!("fence {wrong} was told that its result counts, and {counts:?} does"))
    }

    fn miscounted(&self) -> Option<String> {
        let attempts = self.record.job.as_ref()?.attempts;
        let granted = self.granted.len();
        let differs = u32::try_from(granted) != Ok(attempts);
        differs.then(|| format!("{granted} attempts were granted, and {attempts} counted"))
    }

    fn given_up_early(&self) -> Option<String> {
        let job = self.record.job.as_ref()?;
        let early = matches!(job.status, Status::Failed { .. }) && Some(job.attempts) != job.max_attempts;
        early.then(|| format!("the job was given up after {} attempts", job.attempts))
    }

    fn status(&self) -> Option<&Status> {
        self.record.job.as_ref().map(|job| &job.status)
    }

    /// Puts a message on its way, unless nobody would heed it.
    fn with(mut self, message: Message) -> Self {
        let at = self.network.partition_point(|other| *other <= message);
        self.network.insert(at, message);
        self
    }

    /// Lets a worker hear an answer, if it is still waiting for it.
    fn hear(mut self, attempt: Attempt, becomes: impl FnOnce(Doing) -> Doing) -> Self {
        let worker = self.workers.get_mut(usize::from(attempt.0));
        if let Some(worker) =
            worker.filter(|worker| worker.attempt == attempt.1 && worker.doing != Doing::Crashed)
        {
            worker.doing = becomes(worker.doing);
        }
        self
    }

    /// Workers are alike: it is enough to look at the worlds in which they begin in their order.
    fn may_begin(&self, at: usize) -> bool {
        self.workers.iter().take(at).all(|worker| worker.attempt > 0)
    }
}

// --- what the small numbers stand for ---

#[allow(clippy::expect_used)] // a constant that parses
static KEY: LazyLock<Key> = LazyLock::new(|| Key::parse("job/small/1").expect("a key"));

#[allow(clippy::expect_used)] // a constant that parses
static OWNER: LazyLock<Owner> = LazyLock::new(|| Owner::parse("worker").expect("a name"));

fn bid(attempt: Attempt) -> Bid {
    Bid { tab: None, lease_id: lease_id(attempt), owner: OWNER.clone(), ttl: ttl(), meta: Meta::default() }
}

fn claim(attempt: Attempt, fence: Fence) -> Proof {
    Proof { lease_id: lease_id(attempt), fence }
}
