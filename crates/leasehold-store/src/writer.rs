//! The writer of a store that keeps all slots in memory: how a batch of requests becomes durable, and then visible.
//!
//! A turn has two halves. [`Writer::begin`] decides the requests on an overlay that nobody else sees.
//! [`Writer::finish`] has the overlay written, and only then shows it, publishes its events and answers. When the write
//! fails the overlay is dropped, and it is as if the turn had not been; when even that is not certain, the state is read
//! anew before the next turn.
//!
//! ```text
//!   requests ─► begin ─► Turn (overlay, answers) ─► finish ─► Disk::commit ─► View ─► answers
//!                 ▲                                             │ failed
//!                 └── Disk::reload, if its fate is unknown ◄────┴─► refused
//! ```
//!
//! The writer alone moves the lease clock. While it is held up, time stands still: no lease is lost because a disk was
//! slow to take its renewal. Time itself comes in as an argument, and the disk is a [`Disk`]: the embedded store puts
//! SQLite behind it, and the simulator a disk that stalls, fails and crashes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use leasehold_core::job::Record;
use leasehold_core::{Command, JobCommand, JobOutcome, Key, Outcome, Position, StoreTime};
use tokio::sync::watch;

use crate::clock::{LONGEST_STEP, LeaseClock};
use crate::resident::{Resident, Staged};
use crate::{EVENTS_KEPT, Error, Feed, Limits, Page, Range, Reading, Result};

/// How much time may pass on the lease clock before it is written down, while there are leases. After a crash the clock
/// goes on from there.
pub const CLOCK_WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// How many requests a turn is meant for, and how many keys one of them may settle.
pub const BATCH: usize = 2_048;

/// How many keys are forgotten in one turn at most, beyond two for each request.
const FORGET_PER_TURN: usize = 256;

/// After how many events and endings the writer says what is not kept any more.
const TRIM: usize = 1_000;

/// What the writer needs of a disk. Each call is one whole batch; how pages are torn and mended is below this.
pub trait Disk {
    /// Whether this writer still has the disk to itself. It is asked at the beginning of every turn: a writer that was
    /// replaced must not answer from its memory either.
    fn still_alone(&mut self) -> Result<()>;

    /// Writes a batch as one transaction, and syncs it.
    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Failure>;

    /// Reads the state anew after a commit of unknown fate, and rules out that anything else than what was read comes
    /// back after a crash.
    fn reload(&mut self) -> Result<Loaded>;

    /// Writes the clock for the last time, and leaves the disk in order.
    fn end(&mut self, clock: StoreTime) -> Result<()>;
}

/// What one transaction writes: the changes, the counters, and the time at which they were decided.
pub struct Batch<'a> {
    /// The changes. They may be empty: then only the time is written.
    pub staged: &'a Staged,
    /// What is not kept any more. It may be deleted later: the rows that come meanwhile are none of it.
    pub trim: Option<Trim>,
}

/// The rows that are not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// The events up to this position.
    pub events_up_to: Position,
    /// All but so many of the newest endings.
    pub endings_kept: usize,
}

impl Trim {
    /// The same once `endings` more have been written: none of them is one of the old ones.
    #[inline]
    pub fn later(self, endings: usize) -> Self {
        Self { endings_kept: self.endings_kept + endings, ..self }
    }
}

/// What is on a disk.
pub struct Loaded {
    /// The committed state.
    pub resident: Resident,
    /// The lease clock when it was last written.
    pub clock: StoreTime,
}

/// A commit that failed.
pub struct Failure {
    /// What the callers are told.
    pub error: Error,
    /// Whether it is certain that nothing of it was written. Otherwise only the disk knows.
    pub undone: bool,
}

/// Something that is asked of the writer.
pub trait Request {
    /// What was decided, with whatever it takes to answer it.
    type Answer: Answer;

    /// Decides on the overlay.
    fn decide(self, overlay: &mut Overlay<'_>) -> Self::Answer;

    /// Answers that nothing was decided.
    fn refuse(self, error: Error);
}

/// A decision that waits for its commit.
pub trait Answer {
    /// It is durable and visible.
    fn send(self, commit: &Commit);

    /// It was dropped, or its fate is unknown: the error says which.
    fn refuse(self, error: Error);
}

/// The moment at which the decisions of a turn became visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// When they were made, on the lease clock.
    pub now: StoreTime,
    /// The position of the last event.
    pub position: Position,
    /// When something will be due next.
    pub next_due: Option<StoreTime>,
}

/// The committed state, and what is staged on top of it.
pub struct Overlay<'a> {
    pub resident: &'a Resident,
    pub staged: &'a mut Staged,
    pub limits: &'a Limits,
}

impl Overlay<'_> {
    /// Decides a command.
    #[inline]
    pub fn apply(&mut self, key: &Key, command: &Command) -> Outcome {
        self.resident.decide(self.staged, key, command, self.limits)
    }

    /// Decides a command about a job.
    #[inline]
    pub fn apply_job(&mut self, key: &Key, command: &JobCommand) -> (JobOutcome, Record) {
        self.resident.decide_job(self.staged, key, command, self.limits)
    }

    /// Settles what is due, on at most `limit` keys; answers on how many.
    #[inline]
    pub fn settle_due(&mut self, limit: usize) -> usize {
        self.resident.settle_due(self.staged, limit.min(BATCH), self.limits)
    }
}

/// What readers see: what is durable, and the lease clock as of the last turn. Only the writer changes it.
pub struct View {
    /// Why nothing may be read any more.
    lost: RwLock<Option<Error>>,
    resident: RwLock<Resident>,
    now: AtomicU64,
    position: watch::Sender<Position>,
}

impl View {
    /// Shows what is on disk.
    #[inline]
    pub fn new(loaded: Loaded) -> Self {
        Self {
            lost: RwLock::default(),
            now: AtomicU64::new(loaded.clock.as_millis()),
            position: watch::Sender::new(loaded.resident.counters.position),
            resident: RwLock::new(loaded.resident),
        }
    }

    /// Fails while the writer does not have the disk to itself: what was read may not be true any more.
    #[inline]
    pub fn check(&self) -> Result<()> {
        let lost = self.lost.read().unwrap_or_else(PoisonError::into_inner);
        lost.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    #[inline]
    fn set_lost(&self, lost: Option<Error>) {
        let is_lost = lost.is_some();
        let before = std::mem::replace(&mut *self.lost.write().unwrap_or_else(PoisonError::into_inner), lost);
        if is_lost && before.is_none() {
            // Wakes consumers of events.
            self.position.send_modify(|_| {});
        }
    }

    /// The committed state.
    #[inline]
    pub fn resident(&self) -> RwLockReadGuard<'_, Resident> {
        // A commit that panicked half-way takes the writer down with it, and every later request is refused.
        self.resident.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease clock as of the last turn.
    #[inline]
    pub fn now(&self) -> StoreTime {
        StoreTime::from_millis(self.now.load(Ordering::Acquire))
    }

    /// What is there under `key`. An expiry may be due that nobody has noticed yet.
    #[inline]
    pub fn reading(&self, key: &Key) -> Reading {
        let resident = self.resident();
        Reading { slot: resident.slot(key), now: self.now(), position: resident.counters.position }
    }

    /// A page of the live leases.
    #[inline]
    pub fn page(&self, range: &Range) -> Page {
        let resident = self.resident();
        let now = self.now();
        let (slots, more) = resident.page(range, now);
        Page { slots, more, now, position: resident.counters.position }
    }

    /// The events after `after`; `None` when there are none yet.
    #[inline]
    pub fn events_after(&self, after: Position, limit: usize) -> Option<Feed> {
        self.resident().events_after(after, limit)
    }

    /// Changes whenever there are new events.
    #[inline]
    pub fn positions(&self) -> watch::Receiver<Position> {
        self.position.subscribe()
    }

    /// Shows what was staged, now that it is durable.
    #[inline]
    pub fn commit(&self, staged: Staged) -> Commit {
        let now = staged.now;
        let mut resident = self.resident.write().unwrap_or_else(PoisonError::into_inner);
        resident.commit(staged);
        let (position, next_due) = (resident.counters.position, resident.next_due());
        self.now.store(now.as_millis(), Ordering::Release);
        drop(resident);
        self.position.send_if_modified(|known| std::mem::replace(known, position) != position);
        Commit { now, position, next_due }
    }

    #[inline]
    fn replace(&self, resident: Resident, now: StoreTime) {
        let position = resident.counters.position;
        let mut shown = self.resident.write().unwrap_or_else(PoisonError::into_inner);
        *shown = resident;
        self.now.store(now.as_millis(), Ordering::Release);
        drop(shown);
        self.position.send_replace(position);
    }
}

/// Takes turns on a disk. Call [`Writer::begin`] with what has queued up, also when nothing has, and
/// [`Writer::finish`] with the turn that it answers; [`Writer::end`] after the last one.
pub struct Writer<D> {
    disk: D,
    view: Arc<View>,
    clock: LeaseClock,
    limits: Limits,
    /// The lease clock as it is on disk.
    written: StoreTime,
    /// How many events and endings were written since the old ones were last deleted.
    untrimmed: usize,
    /// Whether memory is known to agree with the disk.
    healthy: bool,
}

/// Decisions that are not durable yet. Dropping a turn drops them, and their callers are never answered.
pub struct Turn<A> {
    /// The lease clock before this turn moved it.
    before: StoreTime,
    staged: Staged,
    answers: Vec<A>,
    writes: bool,
}

impl<A> Turn<A> {
    /// What was decided.
    pub fn staged(&self) -> &Staged {
        &self.staged
    }

    /// The answers that wait for it.
    pub fn answers(&self) -> &[A] {
        &self.answers
    }

    /// Whether anything has to be written.
    pub fn writes(&self) -> bool {
        self.writes
    }
}

impl<D: Disk> Writer<D> {
    /// Goes on from what is on disk, at the raw reading `raw` of the machine's clock.
    pub fn new(disk: D, loaded: Loaded, raw: u64, limits: Limits) -> Self {
        let written = loaded.clock;
        let clock = LeaseClock::new(written, raw, LONGEST_STEP);
        let view = Arc::new(View::new(loaded));
        // A program that opens the file again and again, each time for a few leases, has something to delete too.
        Self { disk, view, clock, limits, written, untrimmed: TRIM, healthy: true }
    }

    /// What readers see.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Whether the next turn begins with reading the state anew.
    pub fn must_reload(&self) -> bool {
        !self.healthy
    }

    /// Decides the requests, at the raw reading `raw` of the machine's clock. `None` when the state could not be read
    /// anew, or is not this writer's any more: then they have been refused.
    pub fn begin<R: Request>(&mut self, requests: Vec<R>, raw: u64) -> Option<Turn<R::Answer>> {
        if let Err(error) = self.be_ready() {
            requests.into_iter().for_each(|request| request.refuse(error.clone()));
            return None;
        }
        let before = self.clock.now();
        let now = self.clock.turn(raw);
        let resident = self.view.resident();
        let mut staged = resident.stage(now);
        let forget = FORGET_PER_TURN + 2 * requests.len();
        let mut overlay = Overlay { resident: &resident, staged: &mut staged, limits: &self.limits };
        let answers = requests.into_iter().map(|request| request.decide(&mut overlay)).collect();
        resident.forget(&mut staged, forget);
        let clock_is_due = resident.has_leases() && now >= self.written + CLOCK_WRITTEN_EVERY;
        let writes = clock_is_due || !staged.is_empty();
        Some(Turn { before, staged, answers, writes })
    }

    /// Makes what was decided durable, if there is anything to write, and then visible. Answers everybody, one way or
    /// the other.
    pub fn finish<A: Answer>(&mut self, turn: Turn<A>) {
        self.finish_with(turn, |answers, commit| answers.into_iter().for_each(|answer| answer.send(&commit)));
    }

    /// The same, with the answers of a commit left to `deliver`.
    pub fn finish_with<A: Answer>(&mut self, turn: Turn<A>, deliver: impl FnOnce(Vec<A>, Commit)) {
        let Turn { before, staged, answers, writes } = turn;
        let written = if writes { self.write(&staged) } else { Ok(()) };
        match written {
            Ok(()) => {
                let commit = self.view.commit(staged);
                deliver(answers, commit);
            }
            Err(Failure { error, undone }) => {
                tracing::error!(%error, "a group commit failed");
                // While nothing can be written nobody can renew: such time does not count.
                self.clock.stand_still_at(before);
                self.healthy = undone;
                if matches!(error, Error::InUse { .. }) {
                    self.view.set_lost(Some(error.clone()));
                }
                answers.into_iter().for_each(|answer| answer.refuse(error.clone()));
            }
        }
    }

    /// Makes sure that what is in memory is what is on disk.
    fn be_ready(&mut self) -> Result<()> {
        let alone = self.disk.still_alone();
        self.view.set_lost(alone.as_ref().err().cloned());
        alone?;
        if self.healthy { Ok(()) } else { self.reload() }
    }

    /// Writes the clock for the last time, and leaves the disk in order.
    pub fn end(&mut self, raw: u64) -> Result<()> {
        self.be_ready()?;
        self.disk.end(self.clock.turn(raw))
    }

    fn write(&mut self, staged: &Staged) -> Result<(), Failure> {
        let untrimmed = self.untrimmed + staged.endings.len() + staged.events.len();
        let trim = (untrimmed >= TRIM).then(|| Trim {
            events_up_to: Position(staged.counters.position.0.saturating_sub(EVENTS_KEPT as u64)),
            endings_kept: self.view.resident().endings() + staged.endings.len(),
        });
        self.disk.commit(&Batch { staged, trim })?;
        self.untrimmed = if trim.is_some() { 0 } else { untrimmed };
        self.written = staged.now;
        Ok(())
    }

    fn reload(&mut self) -> Result<()> {
        let Loaded { resident, clock } = self.disk.reload()?;
        // If the commit got through after all, its time has passed too.
        let now = self.clock.now().max(clock);
        self.clock.stand_still_at(now);
        self.written = clock;
        self.view.replace(resident, now);
        self.healthy = true;
        tracing::info!("the store was read anew from disk");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::{Bid, Proof};
    use leasehold_core::{LeaseId, Meta, Owner, Slot, Ttl};

    use super::*;
    use crate::Retry;
    use crate::resident::Counters;
    use std::cell::RefCell;
    use std::collections::{BTreeMap, VecDeque};
    use std::rc::Rc;

    /// What becomes of a commit.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Fate {
        Written,
        Undone,
        Unknown { written: bool },
    }

    /// The slots of a file, and what becomes of the next commits.
    #[derive(Default)]
    struct Paper {
        counters: Counters,
        clock: StoreTime,
        slots: BTreeMap<Key, Slot>,
        fates: VecDeque<Fate>,
        unreadable: bool,
        replaced: bool,
        commits: usize,
        trims: Vec<Trim>,
        ended_at: Option<StoreTime>,
    }

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Paper>>);

    impl Disk for Shared {
        fn still_alone(&mut self) -> Result<()> {
            if self.0.borrow().replaced { Err(Error::Closed) } else { Ok(()) }
        }

        fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Failure> {
            let mut paper = self.0.borrow_mut();
            paper.commits += 1;
            let fate = paper.fates.pop_front().unwrap_or(Fate::Written);
            if matches!(fate, Fate::Written | Fate::Unknown { written: true }) {
                (paper.counters, paper.clock) = (batch.staged.counters, batch.staged.now);
                for (key, slot) in &batch.staged.slots {
                    paper.slots.extend(slot.clone().map(|slot| (key.clone(), slot)));
                }
                paper.trims.extend(batch.trim);
            }
            match fate {
                Fate::Written => Ok(()),
                _ => Err(Failure { error: trouble(), undone: fate == Fate::Undone }),
            }
        }

        fn reload(&mut self) -> Result<Loaded> {
            let paper = self.0.borrow();
            if paper.unreadable { Err(trouble()) } else { Ok(loaded(&paper)) }
        }

        fn end(&mut self, clock: StoreTime) -> Result<()> {
            self.0.borrow_mut().ended_at = Some(clock);
            Ok(())
        }
    }

    fn loaded(paper: &Paper) -> Loaded {
        let resident = Resident::load(paper.counters, paper.slots.clone(), [], &[], Vec::new());
        Loaded { resident, clock: paper.clock }
    }

    fn trouble() -> Error {
        Error::Unavailable { what: "the disk is on fire".into(), retry: Retry::Unknown }
    }

    /// A command, and where its answer goes.
    struct Asked(Command, Rc<RefCell<Option<Result<Outcome>>>>);

    impl Request for Asked {
        type Answer = (Outcome, Rc<RefCell<Option<Result<Outcome>>>>);

        fn decide(self, overlay: &mut Overlay<'_>) -> Self::Answer {
            (overlay.apply(&key(), &self.0), self.1)
        }

        fn refuse(self, error: Error) {
            self.1.replace(Some(Err(error)));
        }
    }

    impl Answer for (Outcome, Rc<RefCell<Option<Result<Outcome>>>>) {
        fn send(self, _: &Commit) {
            self.1.replace(Some(Ok(self.0)));
        }

        fn refuse(self, error: Error) {
            self.1.replace(Some(Err(error)));
        }
    }

    fn key() -> Key {
        Key::parse("run/1").unwrap()
    }

    fn acquire() -> Command {
        let lease_id = LeaseId::from_random([7; 16]);
        let (owner, ttl) = (Owner::parse("anna").unwrap(), Ttl::from_secs(60).unwrap());
        Command::Acquire(Bid { tab: None, lease_id, owner, ttl, meta: Meta::default() })
    }

    /// A writer on a disk of which the test sees both sides.
    struct Scene {
        disk: Shared,
        writer: Writer<Shared>,
    }

    impl Scene {
        fn new() -> Self {
            let disk = Shared::default();
            let loaded = loaded(&disk.0.borrow());
            Self { writer: Writer::new(disk.clone(), loaded, 0, Limits::default()), disk }
        }

        /// A writer that holds a lease since 0 ms, and the claim on it.
        fn with_lease() -> (Self, Proof) {
            let mut scene = Self::new();
            let Ok(Outcome::Granted { lease, .. }) = scene.ask(acquire(), 0) else { unreachable!() };
            (scene, lease.proof())
        }

        fn fate(&self, fate: Fate) {
            self.disk.0.borrow_mut().fates.push_back(fate);
        }

        /// One turn with one command.
        fn ask(&mut self, command: Command, raw: u64) -> Result<Outcome> {
            let answer = Rc::default();
            let turn = self.writer.begin(vec![Asked(command, Rc::clone(&answer))], raw);
            if let Some(turn) = turn {
                assert!(answer.borrow().is_none(), "answered before the commit");
                self.writer.finish(turn);
            }
            answer.take().unwrap()
        }

        /// One turn in which nothing is asked.
        fn idle(&mut self, raw: u64) {
            if let Some(turn) = self.writer.begin(Vec::<Asked>::new(), raw) {
                self.writer.finish(turn);
            }
        }

        fn shown(&self) -> (bool, u64) {
            let reading = self.writer.view().reading(&key());
            (reading.slot.lease.is_some(), reading.now.as_millis())
        }
    }

    #[test]
    fn what_is_staged_is_seen_by_nobody_before_it_is_written() {
        let mut scene = Scene::new();
        let answer = Rc::default();
        let turn = scene.writer.begin(vec![Asked(acquire(), Rc::clone(&answer))], 100).unwrap();
        assert!(turn.writes() && turn.staged().events.len() == 1 && turn.answers().len() == 1);
        assert_eq!((scene.shown(), scene.disk.0.borrow().commits), ((false, 0), 0));
        assert!(scene.writer.view().events_after(Position(0), 1).is_none());
        scene.writer.finish(turn);
        assert_eq!((scene.shown(), scene.disk.0.borrow().commits), ((true, 100), 1));
        assert!(matches!(answer.take(), Some(Ok(Outcome::Granted { .. }))));
        assert!(scene.writer.view().events_after(Position(0), 1).is_some());
    }

    #[test]
    fn a_write_that_was_undone_has_not_happened_and_took_no_time() {
        let mut scene = Scene::new();
        scene.fate(Fate::Undone);
        assert!(scene.ask(acquire(), 900).is_err());
        assert_eq!(scene.shown(), (false, 0));
        assert!(!scene.writer.must_reload(), "memory and disk agree");
        scene.disk.0.borrow_mut().unreadable = true;
        assert!(scene.ask(acquire(), 1_000).is_ok());
        assert_eq!(scene.shown(), (true, 100));
    }

    #[test]
    fn after_a_write_of_unknown_fate_the_disk_says_what_has_happened() {
        for written in [true, false] {
            let mut scene = Scene::new();
            scene.fate(Fate::Unknown { written });
            assert!(scene.ask(acquire(), 900).is_err());
            assert!(scene.writer.must_reload());
            assert_eq!(scene.shown(), (false, 0), "nobody knows yet");
            scene.idle(901);
            let time = if written { 901 } else { 1 };
            assert_eq!(scene.shown(), (written, time), "the time of a write that got through has passed");
        }
    }

    #[test]
    fn while_the_state_cannot_be_read_everything_is_refused() {
        let (mut scene, claim) = Scene::with_lease();
        scene.fate(Fate::Unknown { written: false });
        assert!(scene.ask(Command::Release(claim.into()), 100).is_err());
        scene.disk.0.borrow_mut().unreadable = true;
        for raw in 1..100 {
            assert!(scene.ask(Command::Release(claim.into()), raw * 1_000).is_err());
        }
        scene.disk.0.borrow_mut().unreadable = false;
        let renewed = scene.ask(Command::Renew { claim: claim.into(), ttl: None }, 100_000);
        assert!(matches!(renewed, Ok(Outcome::Renewed(_))), "law 10: {renewed:?}");
    }

    #[test]
    fn a_writer_that_was_replaced_answers_nothing_from_its_memory() {
        let (mut scene, claim) = Scene::with_lease();
        assert!(scene.writer.view().check().is_ok());
        scene.disk.0.borrow_mut().replaced = true;
        let check = Command::Check { fence: claim.fence };
        assert!(scene.ask(check.clone(), 100).is_err());
        assert!(scene.writer.view().check().is_err());
        assert!(scene.writer.end(200).is_err());
        scene.disk.0.borrow_mut().replaced = false;
        assert!(scene.ask(check, 300).is_ok() && scene.writer.view().check().is_ok());
    }

    #[test]
    fn the_clock_is_written_once_a_second_while_there_are_leases() {
        let (mut scene, claim) = Scene::with_lease();
        let written =
            |scene: &Scene| (scene.disk.0.borrow().commits, scene.disk.0.borrow().clock.as_millis());
        let expected = [(999, (1, 0)), (1_000, (2, 1_000)), (1_999, (2, 1_000)), (2_500, (3, 2_500))];
        for (raw, expected) in expected {
            scene.idle(raw);
            assert_eq!(written(&scene), expected, "at {raw} ms");
        }
        assert!(scene.ask(Command::Release(claim.into()), 2_600).is_ok());
        scene.idle(3_600);
        scene.idle(4_600);
        assert_eq!(written(&scene), (4, 2_600), "nobody has a lease that could gain time");
    }

    #[test]
    fn a_reload_writes_the_clock_when_that_was_last_due() {
        let (mut scene, _) = Scene::with_lease();
        scene.fate(Fate::Unknown { written: false });
        scene.idle(1_000);
        scene.idle(1_001);
        assert_eq!(scene.disk.0.borrow().clock.as_millis(), 0, "1 ms after what was written");
        scene.idle(2_000);
        assert_eq!(scene.disk.0.borrow().clock.as_millis(), 1_000);
    }

    #[test]
    fn old_rows_are_deleted_at_first_and_after_every_thousandth_event_or_ending() {
        let mut scene = Scene::new();
        let mut rows = 0;
        for number in 0..700_u64 {
            let mut bytes = [9; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            let Command::Acquire(bid) = acquire() else { unreachable!() };
            let bid = Bid { lease_id: LeaseId::from_random(bytes), ..bid };
            let Ok(Outcome::Granted { lease, .. }) = scene.ask(Command::Acquire(bid), number) else {
                unreachable!()
            };
            let claim = lease.proof();
            assert!(scene.ask(Command::Release(claim.into()), number).is_ok());
            // A grant tells of itself; a release does so too, and is remembered.
            rows += 3;
        }
        let paper = scene.disk.0.borrow();
        assert_eq!(paper.trims.len(), 1 + rows / 1_000);
        let kept: Vec<_> = paper.trims.iter().map(|trim| trim.endings_kept).collect();
        assert!(matches!(kept[..], [0, first, second] if first >= 333 && second >= 666), "{kept:?}");
        assert!(paper.trims.iter().all(|trim| trim.events_up_to == Position(0)), "fewer than are kept");
    }

    #[test]
    fn an_orderly_end_writes_the_time() {
        let (mut scene, claim) = Scene::with_lease();
        scene.writer.end(700).unwrap();
        assert_eq!(scene.disk.0.borrow().ended_at, Some(StoreTime::from_millis(700)));
        scene.fate(Fate::Unknown { written: true });
        assert!(scene.ask(Command::Release(claim.into()), 800).is_err());
        scene.writer.end(1_000).unwrap();
        assert_eq!(scene.disk.0.borrow().ended_at, Some(StoreTime::from_millis(1_000)));
        assert!(!scene.shown().0, "the state was read anew before");
        scene.fate(Fate::Unknown { written: true });
        assert!(scene.ask(acquire(), 1_100).is_err());
        scene.disk.0.borrow_mut().unreadable = true;
        assert!(scene.writer.end(2_000).is_err());
    }
}
