//! AutoSave without IO: when to save, what to keep and what to do when something fails. One machine per project, for a browser
//! tab and for a program on disk. It never has the content: the shell serialises, hashes and writes it. Nothing is written
//! while the project is another's, and nothing that was saved is replaced by something that was not made from it.

mod effect;
pub mod history;
pub mod wire;

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::backoff::{Backoff, Retries, RetryPolicy};
use leasehold_core::time::{HolderTime, StoreTime};

pub use self::effect::{Effect, ErrorCode, Failure, Listing, Lock, Notice, Options, Source, State, Taken};
use self::history::{Generation, History, Stamp};
use crate::clock::Now;
use crate::effect::CallId;
use crate::version::Version;

/// How many retries follow a save that failed.
pub const MAX_RETRIES: u32 = 3;

/// The retries come after 0.5, 1 and 2 s.
const SAVING: RetryPolicy =
    RetryPolicy { backoff: Backoff::doubling(500, 2_000), max_attempts: Some(MAX_RETRIES + 1) };

/// When a save that failed for good is tried again, if there is no change before.
const TRIED_AGAIN: Duration = Duration::from_secs(30);

/// There is little space left when it is not enough for this many more saves. Each is written twice.
const FEW_SAVES: u64 = 10;

/// The autosave of one project.
///
/// The shell brings [`Now`], calls one method, then drains [`poll_effect`](Self::poll_effect), does what it says and reports
/// it, then sets one timer for [`poll_timeout`](Self::poll_timeout) that calls [`handle_timeout`](Self::handle_timeout).
/// Methods come in four kinds:
/// - getters: [`state`](Self::state), [`is_dirty`](Self::is_dirty), [`saved_at`](Self::saved_at), [`history`](Self::history);
/// - what happened: `changed`, `handle_*`;
/// - commands, each answered by one [`Effect::Settle`]: `flush`, `restore`, `stop`; and `retry`, which is not answered;
/// - `poll_*`.
///
/// ```text
///            ┌────────────────────── a change; due after `idle`, or `longest_wait` ──────────────┐
/// List ─► (load what is newer) ─► quiet ─► Take ─► Commit ─► Keep ─► Remove… ─► WriteIndex ─► quiet
///                                   │ the same content             │ fails: 0.5, 1, 2 s, then after 30 s or a change
///                                   └► quiet                       │ no space: Remove the oldest, then Take
/// ```
///
/// At most one of these is under way. A change that comes meanwhile leaves the autosave dirty.
#[derive(Debug)]
pub struct AutoSave {
    options: Options,
    lock: Lock,
    /// Whether the project was another's before it became ours.
    waited: bool,
    /// How many changes there were, how many are saved, how many are in a draft, and how many are to be saved at once.
    changes: u64,
    saved: u64,
    drafted: u64,
    hurried: u64,
    /// The first unsaved change, and the last change.
    first: Option<HolderTime>,
    last: HolderTime,
    looked: HolderTime,
    flight: Flight,
    /// The folder is to be read.
    must_list: bool,
    /// `current.json` is newer than memory, and is to be loaded.
    must_load: bool,
    /// The version that memory was made from, and those that saves failed to write for sure.
    base: Option<Version>,
    tried: Vec<Version>,
    current_bytes: u64,
    history: History,
    /// The generation that is to be made of `current.json`.
    to_keep: Option<Generation>,
    /// What is in `index.json`.
    index: Option<String>,
    /// Whether there may be something to tidy.
    is_untidy: bool,
    retries: Retries,
    retry_at: Option<HolderTime>,
    error: Option<(ErrorCode, String)>,
    dropped: u32,
    /// How many bytes are still to be freed before the next save, and whether that was done.
    missing: u64,
    made_room: bool,
    said_space: bool,
    saved_at: Option<StoreTime>,
    flushes: Vec<(CallId, u64)>,
    restores: VecDeque<(CallId, Source)>,
    stopping: Option<CallId>,
    out: VecDeque<Effect>,
}

/// What is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Flight {
    None,
    Listing,
    Taking {
        changes: u64,
    },
    Committing {
        changes: u64,
        version: Version,
        generation: Generation,
    },
    Keeping(Generation),
    Removing(Stamp),
    /// The same because there is no space.
    MakingRoom(Stamp),
    Indexing(String),
    Drafting {
        changes: u64,
    },
    Applying {
        source: Source,
        call: Option<CallId>,
    },
    Releasing,
}

impl AutoSave {
    /// An autosave whose project is being acquired.
    pub fn new(options: Options, now: Now) -> Self {
        Self {
            options,
            lock: Lock::Acquiring,
            waited: false,
            changes: 0,
            saved: 0,
            drafted: 0,
            hurried: 0,
            first: None,
            last: now.steady,
            looked: now.steady,
            flight: Flight::None,
            must_list: false,
            must_load: false,
            base: None,
            tried: Vec::new(),
            current_bytes: 0,
            history: History::default(),
            to_keep: None,
            index: None,
            is_untidy: false,
            retries: Retries::new(SAVING, 0),
            retry_at: None,
            error: None,
            dropped: 0,
            missing: 0,
            made_room: false,
            said_space: false,
            saved_at: None,
            flushes: Vec::new(),
            restores: VecDeque::new(),
            stopping: None,
            out: VecDeque::new(),
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match (self.lock, &self.flight) {
            (Lock::Released, _) => State::Stopped,
            (_, Flight::Releasing) => State::Releasing,
            (Lock::Unavailable, _) => State::Unavailable,
            (Lock::ReadOnly, _) => State::ReadOnly,
            (_, Flight::Taking { .. } | Flight::Committing { .. } | Flight::MakingRoom(_)) => State::Saving,
            _ => match (&self.error, self.retry_at) {
                (Some((code, said)), _) => State::Error { code: *code, said: said.clone() },
                (None, Some(at)) => State::Retrying { attempt: self.retries.failures(), at },
                _ if self.is_dirty() => State::Dirty,
                _ if self.lock == Lock::Acquiring => State::Starting,
                _ => State::Saved,
            },
        }
    }

    /// Whether memory has something that is not saved.
    pub const fn is_dirty(&self) -> bool {
        self.changes > self.saved
    }

    /// When something was last saved, by the wall clock.
    pub const fn saved_at(&self) -> Option<StoreTime> {
        self.saved_at
    }

    /// The generations, as far as the folder was read.
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// The application's document has changed.
    pub fn changed(&mut self, now: Now) {
        self.change(now.steady);
        self.step(now);
    }

    /// It has changed since the last [`Effect::Look`]: nobody knows when, so that the earliest time counts.
    pub fn changed_since_look(&mut self, now: Now) {
        self.change(now.steady.minus(self.options.debounce));
        self.step(now);
    }

    fn change(&mut self, at: HolderTime) {
        self.changes = self.changes.saturating_add(1);
        self.first = self.first.or(Some(at));
        self.last = self.last.max(at);
        // What failed for good is tried again with the next change.
        if self.error.is_some() {
            self.retry_at = None;
        }
    }

    /// What is known of the lock.
    pub fn handle_lock(&mut self, lock: Lock, now: Now) {
        if self.lock == Lock::Released {
            return;
        }
        self.waited |= lock == Lock::ReadOnly;
        match lock {
            Lock::Held if self.lock != Lock::Held => self.must_list = true,
            Lock::ReadOnly | Lock::Unavailable | Lock::Released => {
                self.settle_flushes(u64::MAX, false);
                self.refuse_restores();
            }
            _ => {}
        }
        self.lock = lock;
        if lock == Lock::Released {
            self.flight = Flight::None;
            if let Some(call) = self.stopping.take() {
                self.settle(call, !self.is_dirty());
            }
        }
        self.step(now);
    }

    /// What the folder has; none if it cannot be read.
    pub fn handle_listed(&mut self, listing: Result<Listing, String>, now: Now) {
        if self.flight != Flight::Listing {
            return;
        }
        self.flight = Flight::None;
        match listing {
            Ok(listing) => self.listed(listing, now),
            Err(said) => {
                self.must_list = true;
                self.fail(ErrorCode::WriteFailed, said, now);
            }
        }
        self.step(now);
    }

    fn listed(&mut self, listing: Listing, now: Now) {
        let Listing { current, current_bytes, generations, newest, index } = listing;
        self.history = History::new(generations);
        (self.index, self.is_untidy, self.current_bytes) = (index, true, current_bytes);
        let is_there = current != Version::NO_FILE;
        // A crash, or another program, has left it without its generation.
        let is_alone = is_there && current != newest;
        let stamp = self.history.next(now.wall);
        self.to_keep = is_alone.then_some(Generation { stamp, bytes: current_bytes });
        let is_ours = self.tried.contains(&current) || self.base.as_ref() == Some(&current);
        let is_fresh = self.base.is_none() && (!self.waited || !is_there);
        if is_ours {
            self.base = Some(current);
        } else if is_fresh {
            // It is offered, and a generation: the application may go on without it.
            self.out.push_back(Effect::Saw(current.clone()));
            self.base = Some(current);
        } else {
            self.must_load = true;
        }
    }

    /// What was taken of the application.
    pub fn handle_taken(&mut self, taken: Taken, now: Now) {
        let Flight::Taking { changes } = self.flight else { return };
        self.flight = Flight::None;
        match taken {
            Taken::Content { version, .. } if self.base.as_ref() == Some(&version) => self.is_saved(changes),
            Taken::Content { bytes, free, .. } if self.lacks_room(bytes, free) => {
                self.make_room(String::new(), now);
            }
            Taken::Content { version, bytes, free } => {
                self.warn_of_space(bytes, free);
                let generation = Generation { stamp: self.history.next(now.wall), bytes };
                let stamp = generation.stamp;
                self.begin(Flight::Committing { changes, version, generation }, Effect::Commit { stamp });
            }
            // The same document will not do better.
            Taken::Failed { said } => self.give_up(ErrorCode::NotSerialisable, said, now),
        }
        self.step(now);
    }

    /// What came of the save.
    pub fn handle_committed(&mut self, committed: Result<(), Failure>, now: Now) {
        let Flight::Committing { changes, version, generation } = self.flight.clone() else { return };
        (self.flight, self.made_room) = (Flight::None, false);
        match committed {
            Ok(()) => {
                self.base = Some(version);
                self.tried.clear();
                self.saved_at = Some(now.wall);
                self.current_bytes = generation.bytes;
                (self.to_keep, self.is_untidy) = (Some(generation), true);
                self.is_saved(changes);
            }
            Err(Failure::Lost) => {
                self.lock = Lock::ReadOnly;
                self.settle_flushes(u64::MAX, false);
            }
            // The save has left a draft.
            Err(Failure::StaleBase) => (self.must_load, self.drafted) = (true, changes),
            Err(Failure::NoSpace { said }) => self.make_room(said, now),
            Err(Failure::Io { said }) => {
                self.tried.push(version);
                self.fail(ErrorCode::WriteFailed, said, now);
            }
        }
        self.step(now);
    }

    /// What came of any other step.
    pub fn handle_done(&mut self, done: Result<(), Failure>, now: Now) {
        match (std::mem::replace(&mut self.flight, Flight::None), done) {
            (Flight::Keeping(generation), Ok(())) => {
                self.history.add(generation);
                self.to_keep = None;
            }
            (Flight::Keeping(_), Err(Failure::NoSpace { .. })) if self.history.droppable().is_some() => {
                if let Some(oldest) = self.history.droppable() {
                    self.begin(Flight::MakingRoom(oldest), Effect::Remove(oldest));
                }
            }
            // The next holder finds it without its generation, and makes one.
            (Flight::Keeping(_), Err(Failure::Lost)) => self.to_keep = None,
            (Flight::Keeping(_), Err(failure)) => {
                self.to_keep = None;
                self.notice(Notice::HistoryFailed { said: failure.said() });
            }
            (Flight::Removing(stamp), Ok(())) => drop(self.history.remove(stamp)),
            (Flight::MakingRoom(stamp), Ok(())) => self.room_is_made(stamp, now),
            (Flight::MakingRoom(_), Err(failure)) => match self.to_keep.take() {
                Some(_) => self.notice(Notice::HistoryFailed { said: failure.said() }),
                None => self.fail(ErrorCode::NoSpace, failure.said(), now),
            },
            (Flight::Indexing(text), Ok(())) => self.index = Some(text),
            // The rest is a convenience: the next save tries again.
            (Flight::Removing(_) | Flight::Indexing(_), Err(_)) => self.is_untidy = false,
            (Flight::Drafting { changes }, Ok(())) => self.drafted = changes,
            (Flight::Drafting { changes }, Err(failure)) => self.not_drafted(changes, failure, now),
            (other, _) => self.flight = other,
        }
        self.step(now);
    }

    /// What the application made of a version: the version, if it goes on with it.
    pub fn handle_applied(&mut self, applied: Option<Version>, now: Now) {
        let Flight::Applying { source, call } = self.flight else { return };
        self.flight = Flight::None;
        if let Some(call) = call {
            self.settle(call, applied.is_some());
        }
        match (applied, source) {
            (Some(version), Source::Current) => {
                let had_draft = self.is_dirty();
                (self.base, self.must_load) = (Some(version), false);
                self.tried.clear();
                self.is_saved(self.changes);
                if had_draft {
                    self.notice(Notice::DraftKept);
                }
            }
            (Some(_), Source::Generation(stamp)) => {
                self.change(now.steady);
                self.hurried = self.changes;
                let before = self.history.newest().map(|newest| newest.stamp);
                self.notice(Notice::Restored { stamp, before });
            }
            (None, _) if call.is_none() => {
                self.give_up(ErrorCode::StaleBase, "the newer version was not taken".into(), now);
            }
            (None, _) => {}
        }
        self.step(now);
    }

    /// Saves what is unsaved, now.
    pub fn flush(&mut self, call: CallId, now: Now) {
        let is_saving = matches!(self.flight, Flight::Taking { .. } | Flight::Committing { .. });
        match self.lock {
            Lock::ReadOnly | Lock::Unavailable | Lock::Released => self.settle(call, !self.is_dirty()),
            _ if !self.is_dirty() && !is_saving => self.settle(call, true),
            _ => {
                self.flushes.push((call, self.changes));
                self.hurried = self.changes;
            }
        }
        self.step(now);
    }

    /// Tries at once what is waiting.
    pub fn retry(&mut self, now: Now) {
        (self.retry_at, self.error, self.hurried) = (None, None, self.changes);
        self.retries.succeeded();
        self.step(now);
    }

    /// Gives the application another version, and keeps the present one first: a generation takes the place of what was saved,
    /// which is a generation itself; before `current.json` is loaded, what is unsaved becomes a draft.
    pub fn restore(&mut self, call: CallId, source: Source, now: Now) {
        let may = match source {
            Source::Current => !matches!(self.lock, Lock::Unavailable | Lock::Released),
            Source::Generation(_) => matches!(self.lock, Lock::Acquiring | Lock::Held) && !self.must_load,
        };
        if may && self.options.applies && self.stopping.is_none() {
            self.restores.push_back((call, source));
            self.hurried = self.changes;
        } else {
            self.settle(call, false);
        }
        self.step(now);
    }

    /// Saves what is unsaved, releases the project and stops. What cannot be saved becomes a draft.
    pub fn stop(&mut self, call: CallId, now: Now) {
        if self.lock == Lock::Released || self.stopping.is_some() {
            return self.settle(call, !self.is_dirty());
        }
        self.stopping = Some(call);
        self.hurried = self.changes;
        self.step(now);
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come, or any other.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.look_at().is_some_and(|at| at <= now.steady) {
            self.looked = now.steady;
            self.out.push_back(Effect::Look);
        }
        self.step(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<HolderTime> {
        let save = self.due().filter(|_| self.flight == Flight::None && self.lock == Lock::Held);
        self.look_at().into_iter().chain(save).min()
    }

    /// What to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.out.pop_front()
    }

    fn look_at(&self) -> Option<HolderTime> {
        let looks = self.options.looks && !matches!(self.lock, Lock::Unavailable | Lock::Released);
        looks.then(|| self.looked + self.options.debounce)
    }

    /// When there is something to do for a holder that is not in the middle of something.
    fn due(&self) -> Option<HolderTime> {
        if self.retry_at.is_some() {
            return self.retry_at;
        }
        let is_waiting = self.must_list || self.must_load || !self.is_dirty();
        if is_waiting {
            return None;
        }
        if self.hurried > self.saved {
            return Some(HolderTime::ZERO);
        }
        let quiet = self.last + self.options.idle.max(self.options.debounce);
        let longest = self.first.unwrap_or(self.last) + self.options.longest_wait;
        Some(quiet.min(longest))
    }

    /// Begins the next thing, if nothing is under way.
    fn step(&mut self, now: Now) {
        if self.flight != Flight::None || self.lock == Lock::Released {
            return;
        }
        let wants_current = matches!(self.restores.front(), Some((_, Source::Current)));
        if self.lock != Lock::Held {
            if wants_current {
                self.load(now);
            } else if self.stopping.is_some() {
                self.stop_as_is();
            }
            return;
        }
        let waits = self.retry_at.is_some_and(|at| now.steady < at);
        if waits && self.error.is_none() {
            return;
        }
        if !waits {
            self.retry_at = None;
        }
        if wants_current {
            self.load(now);
        } else if self.must_list && !waits {
            self.must_list = false;
            self.begin(Flight::Listing, Effect::List);
        } else if self.must_load && !waits && !self.is_refused() {
            self.load(now);
        } else if !waits && self.due().is_some_and(|due| due <= now.steady) && !self.is_keeping() {
            self.take();
        } else if self.tidy(now) || self.restore_next() {
        } else if self.stopping.is_some() && (!self.is_dirty() || self.error.is_some()) {
            self.stop_as_is();
        }
    }

    /// Whether the application did not take the newer version. It is not asked again by itself.
    const fn is_refused(&self) -> bool {
        matches!(self.error, Some((ErrorCode::StaleBase, _)))
    }

    /// Whether a generation is to be made of what the next save would replace.
    fn is_keeping(&mut self) -> bool {
        if let Some(generation) = self.to_keep {
            self.begin(Flight::Keeping(generation), Effect::Keep(generation.stamp));
        }
        self.to_keep.is_some()
    }

    fn take(&mut self) {
        self.error = None;
        self.begin(Flight::Taking { changes: self.changes }, Effect::Take);
    }

    /// Loads `current.json`, once what is unsaved is a draft.
    fn load(&mut self, now: Now) {
        let call =
            self.restores.front().filter(|(_, source)| *source == Source::Current).map(|(call, _)| *call);
        if self.is_dirty() && self.drafted < self.changes {
            self.begin(Flight::Drafting { changes: self.changes }, Effect::KeepDraft);
        } else if self.options.applies {
            self.restores.retain(|(known, _)| Some(*known) != call);
            self.begin(Flight::Applying { source: Source::Current, call }, Effect::Apply(Source::Current));
        } else {
            self.give_up(ErrorCode::StaleBase, "there is a newer version; reload".into(), now);
        }
    }

    fn restore_next(&mut self) -> bool {
        // What is unsaved is saved first.
        if self.is_dirty() {
            if self.error.is_some() {
                self.refuse_restores();
            }
            return false;
        }
        let next = self.restores.pop_front();
        if let Some((call, source)) = next {
            self.begin(Flight::Applying { source, call: Some(call) }, Effect::Apply(source));
        }
        next.is_some()
    }

    /// Begins the next thing that follows a save, if there is one.
    fn tidy(&mut self, now: Now) -> bool {
        if self.is_keeping() {
            return true;
        }
        if self.dropped > 0 {
            self.notice(Notice::HistoryDropped { generations: self.dropped });
            self.dropped = 0;
        }
        if !self.is_untidy {
            return false;
        }
        let surplus = self.history.surplus(&self.options.retention, self.current_bytes, now.wall);
        if let Some(stamp) = surplus.first() {
            self.begin(Flight::Removing(*stamp), Effect::Remove(*stamp));
            return true;
        }
        let index = self.history.index();
        let is_new = self.index.as_ref() != Some(&index);
        if is_new {
            self.begin(Flight::Indexing(index.clone()), Effect::WriteIndex(index));
        } else {
            self.is_untidy = false;
        }
        is_new
    }

    fn stop_as_is(&mut self) {
        if self.is_dirty() && self.drafted < self.changes {
            self.begin(Flight::Drafting { changes: self.changes }, Effect::KeepDraft);
        } else {
            self.begin(Flight::Releasing, Effect::Release);
        }
    }

    fn not_drafted(&mut self, changes: u64, failure: Failure, now: Now) {
        if self.stopping.is_some() {
            // There is nothing else to be tried, and the project must not stay locked.
            self.drafted = changes;
            self.notice(Notice::RetriesFailed { said: failure.said() });
        } else {
            // Without a draft, what is in memory would be lost by loading something else.
            self.refuse_restores();
            self.give_up(ErrorCode::WriteFailed, failure.said(), now);
        }
    }

    fn is_saved(&mut self, changes: u64) {
        self.saved = self.saved.max(changes);
        self.first = self.is_dirty().then_some(self.last);
        if self.retries.failures() > 0 {
            self.notice(Notice::Recovered);
        }
        self.retries.succeeded();
        (self.retry_at, self.error) = (None, None);
        self.settle_flushes(self.saved, true);
    }

    fn make_room(&mut self, said: String, now: Now) {
        match self.history.droppable() {
            Some(oldest) => self.begin(Flight::MakingRoom(oldest), Effect::Remove(oldest)),
            None => self.fail(ErrorCode::NoSpace, said, now),
        }
    }

    /// Whether a save would fail, as the browser knows beforehand, and old generations can help. They are counted and not
    /// looked up again: the browser's figures lag behind, and no more than is needed may go.
    fn lacks_room(&mut self, bytes: u64, free: Option<u64>) -> bool {
        // The old version is there until the new one takes its place, and then the generation is written.
        let needed = bytes.max(bytes.saturating_mul(2).saturating_sub(self.current_bytes));
        self.missing = free.map_or(0, |free| needed.saturating_sub(free));
        self.missing > 0 && !self.made_room && self.history.droppable().is_some()
    }

    fn room_is_made(&mut self, stamp: Stamp, now: Now) {
        self.dropped = self.dropped.saturating_add(1);
        self.missing = self.missing.saturating_sub(self.history.remove(stamp));
        self.made_room = self.missing == 0 || self.history.droppable().is_none();
        if !self.made_room {
            self.make_room(String::new(), now);
        }
    }

    /// Something failed: it is tried again, or not.
    fn fail(&mut self, code: ErrorCode, said: String, now: Now) {
        match self.retries.failed() {
            Some(wait) => {
                self.retry_at = Some(now.steady + wait);
                self.hurried = self.changes;
            }
            None => {
                self.notice(Notice::RetriesFailed { said: said.clone() });
                self.give_up(code, said, now);
            }
        }
    }

    /// Waits for the next change, or half a minute.
    fn give_up(&mut self, code: ErrorCode, said: String, now: Now) {
        self.retries.succeeded();
        self.hurried = self.saved;
        self.error = Some((code, said));
        self.retry_at = (!self.is_refused()).then(|| now.steady + TRIED_AGAIN);
        self.settle_flushes(u64::MAX, false);
    }

    fn warn_of_space(&mut self, bytes: u64, free: Option<u64>) {
        if let Some(free) = free.filter(|free| free / FEW_SAVES / 2 < bytes && !self.said_space) {
            self.said_space = true;
            self.notice(Notice::SpaceLow { free });
        }
    }

    fn begin(&mut self, flight: Flight, effect: Effect) {
        self.flight = flight;
        self.out.push_back(effect);
    }

    fn notice(&mut self, notice: Notice) {
        self.out.push_back(Effect::Notice(notice));
    }

    fn settle(&mut self, call: CallId, done: bool) {
        self.out.push_back(Effect::Settle { call, done });
    }

    /// Answers the flushes of so many changes.
    fn settle_flushes(&mut self, upto: u64, done: bool) {
        for (call, changes) in std::mem::take(&mut self.flushes) {
            if changes <= upto {
                self.settle(call, done);
            } else {
                self.flushes.push((call, changes));
            }
        }
    }

    fn refuse_restores(&mut self) {
        for (call, _) in std::mem::take(&mut self.restores) {
            self.settle(call, false);
        }
    }
}

impl Failure {
    fn said(self) -> String {
        match self {
            Self::Lost => "the project is another's".into(),
            Self::StaleBase => "there is a newer version".into(),
            Self::NoSpace { said } | Self::Io { said } => said,
        }
    }
}
