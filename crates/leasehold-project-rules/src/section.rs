//! A guarded section as a machine over primitive IO: it says the next step, is given what came of it, and knows what to do
//! when a step fails. Disk, browser, simulators and tests all drive this one. It does no IO and reads no clock.

use std::time::Duration;

use leasehold_core::backoff::Backoff;
use leasehold_core::name::Fence;
use leasehold_core::time::{HolderTime, StoreTime, whole_millis};

use super::clock::Now;
use super::effect::{CallId, IoError, IoKind};
use super::guarded::{self, Action, Found, Holder, LockFile, Loss, Outcome, Probe};
use super::record::Record;
use super::version::{Expected, Version};

/// How long the guard is tried for. A section takes milliseconds; a guard that is busy for longer belongs to a tab or
/// program that was stopped.
pub const GUARD_PATIENCE: Duration = Duration::from_secs(2);

/// The waits between two tries for the guard.
const GUARD_BACKOFF: Backoff = Backoff::doubling(2, 16);

/// One thing to be done in the folder. Each is primitive: a shell that does it decides nothing.
///
/// Every step is answered by one [`IoReply`]; each may be answered by [`IoReply::Failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoStep {
    /// Try once to take the guard, exclusively; make the folder and the guard if they are missing. `Done` or `Busy`.
    ///
    /// To look, nothing is made: without a guard the reply is `Absent`. Several may look at once where the platform can.
    TakeGuard {
        /// Whether it is only for a look.
        look: bool,
    },
    /// Read the guard: [`record::read_guard`](crate::record::read_guard) of its text. `Guard`.
    ReadGuard,
    /// Read `.lock` with its modification time. `Lock`; `Failed` for something in its place that no file can replace.
    ReadLock,
    /// Try to open the held file of this fence exclusively, and close it again. `Probe`; a missing one is unknown.
    ProbeHeld(Fence),
    /// Write [`record::guard_text`](crate::record::guard_text) of this into the guard, in place, and flush it. `Done`.
    WriteGuard(u64),
    /// Create the held file of this fence, open it exclusively and keep it open; fine if this tab already does. `Done`.
    OpenHeld(Fence),
    /// Write this to a temporary file, flush it, and let it take the place of `.lock`. `Done`.
    WriteLock(Record),
    /// Remove `.lock`; fine if it is gone. `Done`.
    RemoveLock,
    /// Read the file of the project at this path, and hash it. `Version`.
    ReadVersion(Expected),
    /// Let what was prepared for this call take the place of its file. `Done`.
    Save(CallId),
    /// Close the held file of this fence, which is this tab's own, and remove it; fine if it is closed or gone. `Done`.
    CloseHeld(Fence),
    /// Close the held file of this fence and leave it there: a `.lock` that names it belongs to a dead holder. `Done`.
    DropHeld(Fence),
    /// Remove what dead holders left: every held file that is not open. `Done`.
    SweepHeld {
        /// All but this one.
        keep: Fence,
    },
    /// Let the guard go; fine if it is not held. `Done`.
    DropGuard,
}

impl IoStep {
    /// Whether the section goes on if this step fails. Its effect is a convenience for others, or has a substitute.
    const fn may_fail(&self) -> bool {
        matches!(
            self,
            Self::OpenHeld(_)
                | Self::CloseHeld(_)
                | Self::DropHeld(_)
                | Self::SweepHeld { .. }
                | Self::DropGuard
        )
    }
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoReply {
    /// It is done.
    Done,
    /// The guard is taken.
    Busy,
    /// There is no guard to look under.
    Absent,
    /// The last fence in the guard, if the guard is whole.
    Guard(Option<u64>),
    /// What was read of `.lock`.
    Lock(LockFile),
    /// What the held file said.
    Probe(Probe),
    /// The version of the file.
    Version(Version),
    /// It failed. It may have taken effect all the same.
    Failed {
        /// What the system said.
        said: String,
    },
}

/// What a section came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// What it came to.
    pub outcome: Outcome,
    /// Whether some clock is wrong.
    pub skewed: bool,
    /// Whether a file has another version than expected.
    pub changed: bool,
    /// Who has the project instead, where a lease is lost.
    pub holder: Option<Box<Holder>>,
}

/// One guarded section, from taking the guard to letting it go.
///
/// There are four methods, and this is their order:
/// - [`poll_step`](Self::poll_step) says what to do next. It changes nothing: the same step is said until it is answered.
/// - [`handle`](Self::handle) takes what came of that step, and the time. The wall clock that comes with the last thing
///   that is read is the one that decides.
/// - [`poll_timeout`](Self::poll_timeout) is set instead of a step while the guard is busy; at that time call
///   [`handle_timeout`](Self::handle_timeout).
/// - [`result`](Self::result) is there when there is neither step nor timeout any more.
///
/// ```text
/// TakeGuard ─► ReadGuard ─► ReadLock ─► [ProbeHeld] ─► the steps that were decided ─► DropGuard ─► result
///   │  ▲ Busy                                            │ one fails that may not
///   ▼  │                                                 ▼
///  (wait)                      ReadLock ─► DropHeld, if `.lock` may name the held file, else CloseHeld ─► DropGuard
/// ```
///
/// A step that failed may have taken effect: `.lock` is read again, and if it names the held file, that file is closed and
/// stays, so that the lease counts as a dead holder's. Otherwise the file is removed: on a full disk every try would leave
/// another one.
///
/// A shell may vanish between any two steps: the guard and the held files then close by themselves, and the order of the
/// steps leaves the folder safe. A reply that does not fit the step counts as a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    action: Action,
    at: At,
    /// Spreads the waits for the guard.
    spread: u32,
    /// How often the guard was busy, and until when it is tried for.
    busy: u32,
    patience: Option<HolderTime>,
    last_fence: Option<u64>,
    lock: LockFile,
    /// The steps that were decided and not taken yet.
    plan: Vec<IoStep>,
    /// The held file that they are about.
    held: Option<Fence>,
    /// The files whose versions are compared: the one that is saved, or all that an acquiring tab knows.
    files: Vec<Expected>,
    result: Option<Result<Conclusion, IoError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    TakingGuard,
    WaitingForGuard {
        until: HolderTime,
    },
    ReadingGuard,
    ReadingLock {
        /// Held files are looked at under the guard only.
        guarded: bool,
    },
    Probing(Fence),
    /// Taking the steps of the plan.
    Acting {
        guarded: bool,
    },
    /// A step has failed: `.lock` is read again for the sake of this held file.
    LettingGo(Fence),
    DroppingGuard,
    Over,
}

impl Section {
    /// A section that has not begun. `spread` is any number: callers that come together should have different ones.
    pub const fn new(action: Action, spread: u32) -> Self {
        Self {
            action,
            at: At::TakingGuard,
            spread,
            busy: 0,
            patience: None,
            last_fence: None,
            lock: LockFile::Missing,
            plan: Vec::new(),
            held: None,
            files: Vec::new(),
            result: None,
        }
    }

    /// Compares the versions of these files. A save is refused if the file that it replaces has another; a tab that acquires
    /// is told that something has [`changed`](Conclusion::changed), which is looked at after the guard was let go: the lock
    /// is its own by then.
    pub fn expecting(mut self, files: Vec<Expected>) -> Self {
        self.files = files;
        self
    }

    /// What to do next.
    pub fn poll_step(&self) -> Option<IoStep> {
        match self.at {
            At::TakingGuard => Some(IoStep::TakeGuard { look: self.action == Action::Look }),
            At::ReadingGuard => Some(IoStep::ReadGuard),
            At::ReadingLock { .. } | At::LettingGo(_) => Some(IoStep::ReadLock),
            At::Probing(fence) => Some(IoStep::ProbeHeld(fence)),
            At::Acting { .. } => self.plan.first().cloned(),
            At::DroppingGuard => Some(IoStep::DropGuard),
            At::WaitingForGuard { .. } | At::Over => None,
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub const fn poll_timeout(&self) -> Option<HolderTime> {
        match self.at {
            At::WaitingForGuard { until } => Some(until),
            _ => None,
        }
    }

    /// What it came to, once it is over.
    pub const fn result(&self) -> Option<&Result<Conclusion, IoError>> {
        match self.at {
            At::Over => self.result.as_ref(),
            _ => None,
        }
    }

    /// The time that [`poll_timeout`](Self::poll_timeout) named has come, or any other.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.poll_timeout().is_some_and(|until| until <= now.steady) {
            self.at = At::TakingGuard;
        }
    }

    /// What came of the step.
    pub fn handle(&mut self, reply: IoReply, now: Now) {
        match (self.at, reply) {
            (At::TakingGuard, IoReply::Done) => self.at = At::ReadingGuard,
            (At::TakingGuard, IoReply::Busy) => self.guard_is_busy(now),
            (At::TakingGuard, IoReply::Absent) if self.action == Action::Look => {
                self.at = At::ReadingLock { guarded: false };
            }
            // It may have been taken all the same.
            (At::TakingGuard, reply) => self.fail(IoKind::Open, reply, true),
            (At::ReadingGuard, IoReply::Guard(last_fence)) => {
                self.last_fence = last_fence;
                self.at = At::ReadingLock { guarded: true };
            }
            (At::ReadingGuard, reply) => self.fail(IoKind::Read, reply, true),
            (At::ReadingLock { guarded }, IoReply::Lock(lock)) => self.lock_is_read(lock, guarded, now),
            (At::ReadingLock { guarded }, reply) => self.fail(IoKind::Open, reply, guarded),
            (At::Probing(_), IoReply::Probe(probe)) => self.decide(probe, true, now.wall),
            (At::Probing(_), _) => self.decide(Probe::Unknown, true, now.wall),
            (At::Acting { guarded }, reply) => self.acted(reply, guarded),
            (At::LettingGo(fence), reply) => self.let_go(fence, &reply),
            (At::DroppingGuard, _) => self.at = At::Over,
            (At::WaitingForGuard { .. } | At::Over, _) => {}
        }
    }

    /// Calls a save off that was decided and not made: the holder's own deadline has passed while it waited for the guard.
    /// Answers whether there was one.
    pub fn call_off_save(&mut self) -> bool {
        let is_next = matches!(self.plan.first(), Some(IoStep::Save(_)));
        if is_next {
            self.plan.clear();
            let outcome = Outcome::Lost(Loss::Expired);
            self.result = Some(Ok(Conclusion { outcome, skewed: false, changed: false, holder: None }));
            self.go_on(true);
        }
        is_next
    }

    /// Makes a take-over an acquire, which takes nothing from a holder. Answers whether it is one now: once the steps of a
    /// take-over have begun, it is too late.
    pub fn call_off_force(&mut self) -> bool {
        let Action::TakeOver { bid, .. } = &self.action else { return true };
        let has_begun =
            matches!(self.at, At::Acting { .. } | At::LettingGo(_) | At::DroppingGuard | At::Over);
        if !has_begun {
            self.action = Action::Acquire(bid.clone());
        }
        !has_begun
    }

    fn guard_is_busy(&mut self, now: Now) {
        let patience = *self.patience.get_or_insert(now.steady + GUARD_PATIENCE);
        if now.steady >= patience {
            let said = String::from(BUSY);
            self.result = Some(Err(IoError { kind: IoKind::GuardBusy, said }));
            self.at = At::Over;
            return;
        }
        self.busy = self.busy.saturating_add(1);
        let longest = GUARD_BACKOFF.exact(self.busy);
        // Shortened by up to half, so that those who wait do not try in step.
        let share = u64::from(self.spread.rotate_left(self.busy) % 128);
        let wait = longest.saturating_sub(Duration::from_millis(whole_millis(longest) * share / 256));
        self.at = At::WaitingForGuard { until: now.steady + wait };
    }

    fn lock_is_read(&mut self, lock: LockFile, guarded: bool, now: Now) {
        let found = Found { lock, last_fence: self.last_fence };
        let probe = guarded::probe(&self.action, &found).filter(|_| guarded);
        self.lock = found.lock;
        match probe {
            Some(fence) => self.at = At::Probing(fence),
            None => self.decide(Probe::Unknown, guarded, now.wall),
        }
    }

    fn decide(&mut self, probe: Probe, guarded: bool, now: StoreTime) {
        let lock = std::mem::replace(&mut self.lock, LockFile::Missing);
        let found = Found { lock, last_fence: self.last_fence };
        let mut verdict = guarded::decide(&self.action, &found, probe, now);
        self.held = verdict.held();
        self.plan = std::mem::take(&mut verdict.steps);
        self.plan_comparisons(&verdict.outcome);
        let guarded::Verdict { outcome, skewed, holder, .. } = verdict;
        self.result = Some(Ok(Conclusion { outcome, skewed, changed: false, holder }));
        self.go_on(guarded);
    }

    fn plan_comparisons(&mut self, outcome: &Outcome) {
        let is_granted = matches!(outcome, Outcome::Granted(_));
        if is_granted && !self.files.is_empty() {
            self.plan.push(IoStep::DropGuard);
        }
        for file in std::mem::take(&mut self.files) {
            match outcome {
                // Before the file is swapped, under the same guard.
                Outcome::Saved => self.plan.insert(0, IoStep::ReadVersion(file)),
                _ if is_granted => self.plan.push(IoStep::ReadVersion(file)),
                _ => {}
            }
        }
    }

    /// Whether the file is as expected. What could not be read is not.
    fn compare(&mut self, expected: &Expected, reply: &IoReply) {
        if matches!(reply, IoReply::Version(found) if expected.allows(found)) {
            return;
        }
        if let Some(Ok(conclusion)) = &mut self.result {
            conclusion.changed = true;
            if conclusion.outcome == Outcome::Saved {
                conclusion.outcome = Outcome::StaleBase;
                self.plan.clear();
            }
        }
    }

    /// A step of the plan was taken, or failed.
    fn acted(&mut self, reply: IoReply, guarded: bool) {
        match (take_first(&mut self.plan), reply) {
            (Some(_), IoReply::Done) | (None, _) => self.go_on(guarded),
            (Some(IoStep::ReadVersion(expected)), reply)
                // Not being able to look takes nothing from a lock that was granted.
                if matches!(reply, IoReply::Version(_)) || self.action.acquires() =>
            {
                self.compare(&expected, &reply);
                self.go_on(guarded);
            }
            (Some(IoStep::ReadVersion(_)), reply) => {
                self.plan.clear();
                self.fail(IoKind::Read, reply, guarded);
            }
            (Some(step), _) if step.may_fail() => {
                if let (IoStep::OpenHeld(_), Some(IoStep::WriteLock(record))) = (step, self.plan.first_mut())
                {
                    record.held = false;
                }
                self.go_on(guarded);
            }
            (Some(_), reply) => {
                self.plan.clear();
                self.fail(IoKind::Write, reply, guarded);
                if let Some(fence) = self.held.take() {
                    self.at = At::LettingGo(fence);
                }
            }
        }
    }

    fn let_go(&mut self, fence: Fence, reply: &IoReply) {
        let may_be_named = match reply {
            IoReply::Lock(lock) => lock.may_name(fence),
            _ => true,
        };
        self.plan.push(if may_be_named { IoStep::DropHeld(fence) } else { IoStep::CloseHeld(fence) });
        self.go_on(true);
    }

    fn fail(&mut self, kind: IoKind, reply: IoReply, guarded: bool) {
        self.result = Some(Err(IoError { kind, said: said(reply) }));
        self.go_on(guarded);
    }

    /// On to the next step of the plan, or to the end.
    fn go_on(&mut self, guarded: bool) {
        self.at = match (self.plan.is_empty(), guarded) {
            (false, _) => At::Acting { guarded },
            (true, true) => At::DroppingGuard,
            (true, false) => At::Over,
        };
    }
}

/// Takes the first of a few. (A `VecDeque` would be more code for a page to load.)
pub(crate) fn take_first<T>(all: &mut Vec<T>) -> Option<T> {
    (!all.is_empty()).then(|| all.remove(0))
}

const BUSY: &str = "another tab or program has had .lock.guard for 2 s, and seems to have been stopped; let it go on, or end it";

fn said(reply: IoReply) -> String {
    match reply {
        IoReply::Failed { said } => said,
        _ => "the folder gave an answer that makes no sense".into(),
    }
}
