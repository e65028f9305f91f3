//! The file for one process: all slots in memory, and one writer thread that gives many callers one sync.
//!
//! This is the shell around [`Writer`], which decides what a turn is: a queue, a thread that takes from it, and a short
//! cut for a caller that is alone, which takes its turn on its own thread: to wake another one and to be woken again takes
//! as long as a sync.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold_core::job::Record;
use leasehold_core::{Command, JobCommand, JobOutcome, Key, Outcome, Position, StoreTime};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::disk::SqliteDisk;
use super::mode_lock::ModeLock;
use crate::clock::Clock;
use crate::writer::{self, Answer as _, BATCH, Commit, Overlay, View, Writer};
use crate::{
    Applied, Error, Feed, JobApplied, JobStore, Limits, Page, Range, Reading, Result, Retry, Settled, Store,
};

/// How long the writer waits for work before it moves the clock on by itself.
const TICK: Duration = Duration::from_millis(200);

/// How long the writer's thread looks out for the next request, and a caller that is alone for its answer, before they
/// sleep: waking a thread takes a good part of the time that a sync does. Only where callers cannot take their own turns.
const LOOK_OUT: Duration = Duration::from_micros(200);

/// After so many turns of one request each, the next may be taken by its caller: a single one says little, since even
/// with many callers one of them may be the first.
const LONE_TURNS: usize = 4;

/// A turn that takes longer than this is none for a caller's own thread: the next ones are the writer's thread's.
const SLOW_TURN: Duration = Duration::from_millis(5);

/// How long the writer gathers requests that are just arriving, and thereby shares a sync among more of them.
const GATHERING: Duration = Duration::from_millis(1);

/// How many answers are worth a task of their own.
const WORTH_A_TASK: usize = 4;

/// How many commands may wait, those included whose callers are gone; more callers than this wait their turn to queue.
const QUEUE: usize = 8_192;

pub(super) struct Exclusive {
    view: Arc<View>,
    queue: Arc<Queue>,
    room: Arc<Semaphore>,
    turns: Arc<Turns>,
    thread: Option<JoinHandle<()>>,
}

impl Exclusive {
    pub(super) fn open(path: &Path, lock: ModeLock, clock: Arc<dyn Clock>, limits: Limits) -> Result<Self> {
        let (disk, loaded) = SqliteDisk::open(path, lock, clock.as_ref())?;
        let writer = Writer::new(disk, loaded, clock.millis(), limits);
        let (view, queue) = (writer.view().clone(), Arc::<Queue>::default());
        let turns = Arc::new(Turns::new(writer, clock));
        let courier = Courier::of_this_runtime();
        let thread =
            WriterThread { turns: turns.clone(), queue: queue.clone(), courier, path: path.to_owned() };
        let thread = std::thread::Builder::new().name("leasehold-writer".into()).spawn(|| thread.run());
        let thread = thread.map_err(|error| Error::Unavailable {
            what: format!("the writer's thread could not be started: {error}"),
            retry: Retry::Safe,
        })?;
        Ok(Self { view, queue, room: Arc::new(Semaphore::new(QUEUE)), turns, thread: Some(thread) })
    }

    /// Has a request decided, in a turn of its own or together with others, and waits for the answer.
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<Result<T>>) -> Request) -> Result<T> {
        let place = self.room.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
        let (answer, answered) = oneshot::channel();
        let queued = Queued { request: request(answer), place };
        if !self.begun_by_itself(queued) && self.is_worth_looking_out() {
            // Lets other callers of this thread come first, if there are any: see `look_out`.
            tokio::task::yield_now().await;
            self.look_out(&answered);
        }
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Takes a turn of its own for a request, if it may, or puts it into the queue; answers which.
    fn begun_by_itself(&self, queued: Queued) -> bool {
        match self.own_turn() {
            Some(mut turn) => turn.take(vec![queued], &Courier::default()),
            None => {
                self.queue.push(queued);
                return false;
            }
        }
        true
    }

    /// A turn for a caller that is alone, if its thread may be held up for a sync.
    fn own_turn(&self) -> Option<TurnGuard<'_>> {
        let is_worth_it = self.is_alone() && self.turns.are_callers_alone() && may_hold_this_thread();
        is_worth_it.then(|| self.turns.try_begin()).flatten()
    }

    fn is_alone(&self) -> bool {
        self.room.available_permits() == QUEUE - 1
    }

    fn is_worth_looking_out(&self) -> bool {
        self.is_alone() && self.turns.are_callers_alone()
    }

    /// Looks out for the answer for a moment, if no other caller waits for one. It keeps the thread: to let the runtime go
    /// on in between would wake another of its threads each time, which then has nothing to do. In a runtime of one thread, callers
    /// whose requests have arrived and were not looked at yet wait too, and each of them would find itself alone: so this comes
    /// after a turn of the runtime.
    fn look_out<T>(&self, answered: &oneshot::Receiver<T>) {
        let is_worth_it = self.is_worth_looking_out();
        #[cfg(test)]
        self.turns.looked_out.fetch_add(usize::from(is_worth_it), Ordering::SeqCst);
        let start = Instant::now();
        while is_worth_it && answered.is_empty() && start.elapsed() < LOOK_OUT {
            // The writer may need this very processor.
            std::thread::yield_now();
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer thread of the embedded store had panicked");
        }
    }
}

#[async_trait]
impl JobStore for Exclusive {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        let key = key.clone();
        self.ask(|answer| Request::Apply { key, command, answer }).await
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        let key = key.clone();
        self.ask(|answer| Request::ApplyJob { key, command, answer }).await
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        loop {
            self.view.check()?;
            let reading = self.view.reading(key);
            if reading.slot.due_at().is_none_or(|due| due > reading.now) {
                return Ok(reading);
            }
            // What is due is committed and published first: it cannot be undone if the machine fails right now.
            self.apply(key, Command::Settle).await?;
        }
    }
}

#[async_trait]
impl Store for Exclusive {
    async fn now(&self) -> Result<StoreTime> {
        self.ask(|answer| Request::Now { answer }).await
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        self.view.check().map(|()| self.view.page(range))
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        let mut changes = self.view.positions();
        loop {
            changes.borrow_and_update();
            self.view.check()?;
            if let Some(feed) = self.view.events_after(after, limit) {
                return Ok(feed);
            }
            if changes.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        self.ask(|answer| Request::SettleDue { limit, answer }).await
    }
}

/// What callers ask of the writer.
enum Request {
    Apply { key: Key, command: Command, answer: oneshot::Sender<Result<Applied>> },
    ApplyJob { key: Key, command: JobCommand, answer: oneshot::Sender<Result<JobApplied>> },
    Now { answer: oneshot::Sender<Result<StoreTime>> },
    SettleDue { limit: usize, answer: oneshot::Sender<Result<Settled>> },
}

/// An answer that waits for the commit.
enum Answer {
    Applied(oneshot::Sender<Result<Applied>>, Outcome),
    JobApplied(oneshot::Sender<Result<JobApplied>>, JobOutcome, Record),
    Now(oneshot::Sender<Result<StoreTime>>),
    Settled(oneshot::Sender<Result<Settled>>, usize),
}

/// A request in the queue. It keeps its place in the count until it is answered, whether or not its caller still waits.
struct Queued {
    request: Request,
    place: OwnedSemaphorePermit,
}

/// Its answer; none for one that was dropped.
struct QueuedAnswer {
    answer: Option<Answer>,
    place: OwnedSemaphorePermit,
}

impl writer::Request for Queued {
    type Answer = QueuedAnswer;

    fn decide(self, overlay: &mut Overlay<'_>) -> QueuedAnswer {
        let answer = (!self.request.is_abandoned()).then(|| self.request.decide(overlay));
        QueuedAnswer { answer, place: self.place }
    }

    fn refuse(self, error: Error) {
        self.request.refuse(error);
    }
}

impl writer::Answer for QueuedAnswer {
    fn send(self, commit: &Commit) {
        // A caller that has its answer has left the queue.
        drop(self.place);
        self.answer.into_iter().for_each(|answer| answer.send(commit));
    }

    fn refuse(self, error: Error) {
        drop(self.place);
        self.answer.into_iter().for_each(|answer| answer.refuse(error.clone()));
    }
}

impl Request {
    /// Whether it would give a lease to a caller that does not wait for it any more. A release is carried out all the same.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Apply { command, answer, .. } => answer.is_closed() && command.bidder().is_some(),
            Self::ApplyJob { command, answer, .. } => answer.is_closed() && command.bidder().is_some(),
            Self::Now { .. } | Self::SettleDue { .. } => false,
        }
    }

    fn decide(self, overlay: &mut Overlay<'_>) -> Answer {
        match self {
            Self::Apply { key, command, answer } => Answer::Applied(answer, overlay.apply(&key, &command)),
            Self::ApplyJob { key, command, answer } => {
                let (outcome, record) = overlay.apply_job(&key, &command);
                Answer::JobApplied(answer, outcome, record)
            }
            Self::Now { answer } => Answer::Now(answer),
            Self::SettleDue { limit, answer } => Answer::Settled(answer, overlay.settle_due(limit)),
        }
    }

    fn refuse(self, error: Error) {
        match self {
            Self::Apply { answer, .. } => send(answer, Err(error)),
            Self::ApplyJob { answer, .. } => send(answer, Err(error)),
            Self::Now { answer } => send(answer, Err(error)),
            Self::SettleDue { answer, .. } => send(answer, Err(error)),
        }
    }
}

impl Answer {
    fn send(self, commit: &Commit) {
        let Commit { now, position, next_due } = *commit;
        match self {
            Self::Applied(answer, outcome) => send(answer, Ok(Applied { outcome, now, position })),
            Self::JobApplied(answer, outcome, record) => {
                send(answer, Ok(JobApplied { outcome, record, now, position }));
            }
            Self::Now(answer) => send(answer, Ok(now)),
            Self::Settled(answer, keys) => send(answer, Ok(Settled { keys, next_due, now })),
        }
    }

    fn refuse(self, error: Error) {
        match self {
            Self::Applied(answer, _) => send(answer, Err(error)),
            Self::JobApplied(answer, ..) => send(answer, Err(error)),
            Self::Now(answer) => send(answer, Err(error)),
            Self::Settled(answer, _) => send(answer, Err(error)),
        }
    }
}

/// Answers a caller, which may have stopped waiting.
fn send<T>(answer: oneshot::Sender<Result<T>>, result: Result<T>) {
    let _ = answer.send(result);
}

/// The requests that wait for the writer.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
    /// How many requests are in the queue, for a look without the lock.
    length: AtomicUsize,
    /// How many requests there have been.
    #[cfg(test)]
    pushed: AtomicUsize,
}

#[derive(Default)]
struct QueueState {
    requests: Vec<Queued>,
    closed: bool,
}

impl Queue {
    fn push(&self, request: Queued) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            drop(state);
            return writer::Request::refuse(request, Error::Closed);
        }
        state.requests.push(request);
        #[cfg(test)]
        self.pushed.fetch_add(1, Ordering::SeqCst);
        let was_empty = state.requests.len() == 1;
        self.length.store(state.requests.len(), Ordering::Release);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Waits a tick for something to be there; `false` when closed and empty. `are_alone` says that callers come one at a
    /// time: then the next is worth looking out for.
    fn wait(&self, are_alone: bool) -> bool {
        if are_alone {
            self.look_out();
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = |state: &mut QueueState| state.requests.is_empty() && !state.closed;
        let (state, _) =
            self.filled.wait_timeout_while(state, TICK, nothing).unwrap_or_else(PoisonError::into_inner);
        !(state.requests.is_empty() && state.closed)
    }

    /// Takes what is there.
    fn take(&self) -> Vec<Queued> {
        self.gather();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = if state.requests.len() > BATCH { state.requests.split_off(BATCH) } else { Vec::new() };
        self.length.store(rest.len(), Ordering::Release);
        std::mem::replace(&mut state.requests, rest)
    }

    /// Looks out for the next request for a moment: a caller that was just answered often has another one.
    fn look_out(&self) {
        let start = Instant::now();
        while self.length.load(Ordering::Acquire) == 0 && start.elapsed() < LOOK_OUT {
            // The caller may need this very processor.
            std::thread::yield_now();
        }
    }

    /// Leaves the processor to callers as long as this brings more requests. On a machine with an idle processor it brings
    /// none, and costs nothing; on a busy one the batch grows with the load.
    fn gather(&self) {
        let (start, mut length) = (Instant::now(), self.length.load(Ordering::Acquire));
        while length > 0 && length < BATCH && start.elapsed() < GATHERING {
            std::thread::yield_now();
            let grown = self.length.load(Ordering::Acquire);
            if grown == length {
                return;
            }
            length = grown;
        }
    }

    /// From now on nothing is taken in. What waits is still answered.
    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.filled.notify_all();
    }

    /// Nobody is there any more to answer what waits.
    fn abandon(&self) {
        self.close();
        let waiting = std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).requests);
        waiting.into_iter().for_each(|request| writer::Request::refuse(request, Error::Closed));
    }
}

/// Whether this thread is one of several of a runtime: the others go on while it waits for the disk, however long that
/// takes. A runtime of one thread would stand still, with all of its timers.
fn may_hold_this_thread() -> bool {
    Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
    })
}

/// The writer, and who may take its next turn: its own thread, or a caller that is alone.
struct Turns {
    pen: Mutex<Pen>,
    /// How many turns in a row had one request at most, and were quick.
    lone_turns: AtomicUsize,
    /// How many turns callers have begun.
    #[cfg(test)]
    begun_by_callers: AtomicUsize,
    /// How many callers have looked out for their answer.
    #[cfg(test)]
    looked_out: AtomicUsize,
}

/// What it takes to write.
struct Pen {
    writer: Writer<SqliteDisk>,
    clock: Arc<dyn Clock>,
}

impl Turns {
    fn new(writer: Writer<SqliteDisk>, clock: Arc<dyn Clock>) -> Self {
        Self {
            pen: Mutex::new(Pen { writer, clock }),
            lone_turns: AtomicUsize::new(LONE_TURNS),
            #[cfg(test)]
            begun_by_callers: AtomicUsize::new(0),
            #[cfg(test)]
            looked_out: AtomicUsize::new(0),
        }
    }

    /// A turn now, if nobody is writing.
    fn try_begin(&self) -> Option<TurnGuard<'_>> {
        let pen = self.pen.try_lock().ok()?;
        #[cfg(test)]
        self.begun_by_callers.fetch_add(1, Ordering::SeqCst);
        Some(TurnGuard { turns: self, pen })
    }

    /// The next turn. `None` after a panic in another one: what is in memory may be half changed.
    fn begin(&self) -> Option<TurnGuard<'_>> {
        self.pen.lock().ok().map(|pen| TurnGuard { turns: self, pen })
    }

    /// Whether callers come one at a time: then the next turn may be a caller's own.
    fn are_callers_alone(&self) -> bool {
        self.lone_turns.load(Ordering::Relaxed) >= LONE_TURNS
    }
}

/// The right to write, for one turn.
struct TurnGuard<'a> {
    turns: &'a Turns,
    pen: MutexGuard<'a, Pen>,
}

impl TurnGuard<'_> {
    fn take(&mut self, requests: Vec<Queued>, courier: &Courier) {
        let (start, is_alone) = (Instant::now(), requests.len() <= 1);
        let Pen { writer, clock } = &mut *self.pen;
        if let Some(turn) = writer.begin(requests, clock.millis()) {
            writer.finish_with(turn, |answers, commit| courier.deliver(answers, commit));
        }
        let lone_turns = self.turns.lone_turns.load(Ordering::Relaxed);
        let is_lone = is_alone && start.elapsed() < SLOW_TURN;
        self.turns
            .lone_turns
            .store(if is_lone { lone_turns.saturating_add(1) } else { 0 }, Ordering::Relaxed);
    }
}

/// Brings the answers of a commit to their callers. To wake a task from a thread outside its runtime takes a lock, and
/// often a system call; so the answers of a larger batch go into the runtime as one task, which wakes the others from
/// within.
#[derive(Default)]
struct Courier(Option<Handle>);

impl Courier {
    /// For callers in the runtime that opens the store. A runtime of one thread may be busy with something else while a
    /// caller in another runtime waits; there, the writer wakes each caller itself.
    fn of_this_runtime() -> Self {
        let has_threads = |handle: &Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
        Self(Handle::try_current().ok().filter(has_threads))
    }

    fn deliver(&self, answers: Vec<QueuedAnswer>, commit: Commit) {
        let delivery = Delivery { answers: answers.into_iter(), commit };
        match &self.0 {
            Some(runtime) if delivery.answers.len() >= WORTH_A_TASK => {
                runtime.spawn(async move { drop(delivery) });
            }
            _ => drop(delivery),
        }
    }
}

/// Answers of a commit that are sent when this is dropped: also when the runtime has ended, and drops its tasks.
struct Delivery {
    answers: std::vec::IntoIter<QueuedAnswer>,
    commit: Commit,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.answers.by_ref().for_each(|answer| answer.send(&self.commit));
    }
}

/// The thread that takes the turns of callers that come together.
struct WriterThread {
    turns: Arc<Turns>,
    queue: Arc<Queue>,
    courier: Courier,
    path: PathBuf,
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        // After a panic, too: callers get an error, and do not wait for ever.
        self.queue.abandon();
    }
}

impl WriterThread {
    fn run(self) {
        while self.queue.wait(self.turns.are_callers_alone()) {
            // The right to write first: what comes while another turn ends shares this one.
            let Some(mut turn) = self.turns.begin() else { return };
            turn.take(self.queue.take(), &self.courier);
        }
        let Some(mut turn) = self.turns.begin() else { return };
        let Pen { writer, clock } = &mut *turn.pen;
        if let Err(error) = writer.end(clock.millis()) {
            tracing::warn!(%error, path = %self.path.display(), "the store was closed, but its log could not be written back");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking
mod tests {
    use leasehold_core::lease::{Bid, Claim};
    use leasehold_core::{LeaseId, Meta, Owner, TabId, Ttl};

    use super::*;
    use crate::clock::ManualClock;
    use crate::embedded::{Mode, file};

    const FILE: &str = "leases.db";

    /// A store in a new folder, whose clock stands still.
    fn exclusive() -> (tempfile::TempDir, Exclusive) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        file::create_if_missing(&path).unwrap();
        let lock = ModeLock::take(&path, Mode::Exclusive, true, |_| Ok(())).unwrap();
        let store = Exclusive::open(&path, lock, Arc::new(ManualClock::default()), Limits::default());
        (folder, store.unwrap())
    }

    /// A bid with this goes into the tables.
    fn too_long_for_the_journal() -> Meta {
        Meta::new([("note".to_owned(), "n".repeat(3_900))]).unwrap()
    }

    /// A call by tab once looked at the record, and sent what it had found there through the queue.
    #[tokio::test]
    async fn each_command_is_one_pass_through_the_queue_whatever_the_claim() {
        let (_folder, store) = exclusive();
        let (key, anna) = (Key::parse("doc/minutes").unwrap(), Owner::parse("anna").unwrap());
        let (lease_id, tab) = (LeaseId::from_random([1; 16]), TabId::parse("tab-1").ok());
        let (ttl, meta) = (Ttl::from_secs(30).unwrap(), Meta::default());
        let bid = Bid { lease_id, owner: anna.clone(), tab: tab.clone(), ttl, meta };
        let by_tab = Claim::Tab { owner: anna.clone(), tab };
        let by_id = Claim::Holder { lease_id, owner: anna, fence: None };
        let foreign = Claim::Tab { owner: Owner::parse("ben").unwrap(), tab: None };
        for (number, command) in [
            Command::AcquireInTab(bid.clone()),
            Command::AcquireInTab(bid),
            Command::Renew { claim: by_tab.clone(), ttl: None },
            Command::Renew { claim: by_id, ttl: None },
            Command::Renew { claim: foreign, ttl: None },
            Command::Release(by_tab),
        ]
        .into_iter()
        .enumerate()
        {
            store.apply(&key, command).await.unwrap();
            assert_eq!(store.queue.pushed.load(Ordering::SeqCst), number + 1);
        }
    }

    /// With 256 connections on a runtime of one thread, each request once found itself alone, because the thread looked out for its
    /// answer instead of reading the others: for a tenth of a second at a time, each had a sync of its own.
    #[tokio::test]
    async fn a_caller_looks_out_for_its_answer_only_if_no_other_is_ready() {
        let (_folder, store) = exclusive();
        let now_twice = async || tokio::join!(store.now(), store.now());
        for (others, looked_out) in [(true, 0), (false, 1)] {
            // Nobody writes meanwhile, so that nobody is answered.
            let pen = store.turns.begin().unwrap();
            // Whatever turns there were before, and however slow they were.
            store.turns.lone_turns.store(LONE_TURNS, Ordering::SeqCst);
            let mut asked: std::pin::Pin<Box<dyn Future<Output = ()>>> = match others {
                true => Box::pin(async { assert!(matches!(now_twice().await, (Ok(_), Ok(_)))) }),
                false => Box::pin(async { assert!(store.now().await.is_ok()) }),
            };
            for _ in 0..5 {
                tokio::select! {
                    biased;
                    () = &mut asked => panic!("answered without a turn"),
                    () = tokio::task::yield_now() => {}
                }
            }
            assert_eq!(store.turns.looked_out.load(Ordering::SeqCst), looked_out, "others: {others}");
            drop(pen);
            asked.await;
        }
    }

    /// A caller that is alone writes on its own thread. However long the disk takes, nobody else waits with it, but for
    /// those who want to write too.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_caller_that_takes_its_own_turn_holds_up_no_reader() {
        let (folder, store) = exclusive();
        let store = Arc::new(store);
        let (first, second) = (Key::parse("run/1").unwrap(), Key::parse("run/2").unwrap());
        let acquire = |key: &Key, number| {
            let (store, key) = (store.clone(), key.clone());
            let (owner, ttl) = (Owner::parse("anna").unwrap(), Ttl::from_secs(30).unwrap());
            let lease_id = LeaseId::from_random([number; 16]);
            let bid = Bid { lease_id, owner, tab: None, ttl, meta: too_long_for_the_journal() };
            tokio::spawn(async move { store.apply(&key, Command::Acquire(bid)).await })
        };
        // Another transaction holds up a writer that needs the tables.
        let other = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let alone = acquire(&first, 1);
        let is_under_way = || {
            let begun = store.turns.begun_by_callers.load(Ordering::SeqCst);
            begun + store.queue.pushed.load(Ordering::SeqCst) > 0
        };
        while !is_under_way() {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.queue.pushed.load(Ordering::SeqCst), 0, "it takes its turn without the queue");
        let queued = acquire(&second, 2);
        while store.queue.pushed.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        assert!(store.read(&first).await.unwrap().slot.lease.is_none());
        other.execute_batch("COMMIT").unwrap();
        for granted in [alone, queued] {
            assert!(matches!(granted.await.unwrap().unwrap().outcome, Outcome::Granted { .. }));
        }
    }

    #[test]
    fn callers_are_answered_also_when_the_runtime_that_opened_the_store_has_ended() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let courier = runtime.block_on(async { Courier::of_this_runtime() });
        assert!(courier.0.is_some());
        runtime.shutdown_background();
        let room = Arc::new(Semaphore::new(WORTH_A_TASK));
        let commit = Commit { now: StoreTime::from_millis(7), position: Position(0), next_due: None };
        let (answers, callers): (Vec<_>, Vec<_>) = (0..WORTH_A_TASK)
            .map(|_| {
                let (sender, caller) = oneshot::channel();
                let place = room.clone().try_acquire_owned().unwrap();
                (QueuedAnswer { answer: Some(Answer::Now(sender)), place }, caller)
            })
            .unzip();
        courier.deliver(answers, commit);
        for caller in callers {
            assert_eq!(caller.blocking_recv().unwrap().unwrap(), commit.now);
        }
        assert_eq!(room.available_permits(), WORTH_A_TASK);
    }

    /// Asks, and does not wait for the answer.
    async fn abandon(asked: impl Future<Output = Result<Applied>>) {
        tokio::select! {
            biased;
            answer = asked => panic!("answered at once: {answer:?}"),
            () = std::future::ready(()) => {}
        }
    }

    /// Callers that were gone again, 60,000 of them, had their acquires queued behind a writer that was held up, although
    /// the queue takes 8,192. When the writer went on, all were granted, to nobody.
    #[tokio::test]
    async fn law_12_abandoned_commands_are_counted_and_abandoned_acquires_are_not_granted() {
        let (folder, store) = exclusive();
        let bid = |number: u64| {
            let mut bytes = [3; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            let (owner, ttl) = (Owner::parse("anna").unwrap(), Ttl::from_secs(30).unwrap());
            let meta = if number == 1 { too_long_for_the_journal() } else { Meta::default() };
            Bid { lease_id: LeaseId::from_random(bytes), owner, tab: None, ttl, meta }
        };
        let key = |number: u64| Key::parse(&format!("run/{number}")).unwrap();
        let held = store.apply(&key(0), Command::Acquire(bid(0))).await.unwrap();
        let Outcome::Granted { lease, .. } = held.outcome else { unreachable!() };
        // Another transaction holds up a writer that needs the tables.
        let other = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let (first, second) = (key(0), key(1));
        let mut waiting = store.apply(&second, Command::Acquire(bid(1)));
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut waiting).await.is_err());
        let release = store.apply(&first, Command::Release(lease.proof().into()));
        abandon(release).await;
        for number in 2..10_000 {
            let key = key(number);
            let abandoned = store.apply(&key, Command::Acquire(bid(number)));
            abandon(abandoned).await;
        }
        let queued = store.queue.length.load(Ordering::SeqCst);
        other.execute_batch("COMMIT").unwrap();
        assert!(queued <= QUEUE, "{queued} commands wait in a queue for {QUEUE}");
        assert!(matches!(waiting.await.unwrap().outcome, Outcome::Granted { .. }));
        store.now().await.unwrap();
        let leases = store.list(&Range::all()).await.unwrap().slots;
        let keys: Vec<&str> = leases.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["run/1"], "a release counts although nobody waits for it, an acquire does not");
        assert_eq!(store.room.available_permits(), QUEUE, "everything has left the queue");
    }
}
