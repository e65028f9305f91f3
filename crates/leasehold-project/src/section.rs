//! A guarded section, step by step, on whatever folder there is: a real one, or a double. It reads, asks
//! [`leasehold_project_rules::guarded`], and does what it is told, in the order it is told; it never decides anything.

use std::io;

use leasehold_core::{Fence, StoreTime, lease::Claim};
use leasehold_project_rules::guarded::{Action, Found, LockFile, Outcome, Probe, Section, Step, Verdict};
use leasehold_project_rules::record::{Content, Record};
use leasehold_project_rules::{IoError, IoKind, root};

use crate::clock::Clock;

/// What a folder can do while its guard is held. Nothing else may touch the files of the lock.
pub trait Folder: Send + 'static {
    /// The guard, for as long as it lives.
    type Guard;

    /// Takes the guard, and waits for it no longer than somebody who is at work would have it.
    fn take_guard(&self) -> Result<Self::Guard, IoError>;

    /// Keeps the guard from being taken for as long as somebody looks. Makes nothing: without a guard it is `None`.
    fn guard_to_look(&self) -> Result<Option<Self::Guard>, IoError>;

    /// The text of the guard.
    fn read_guard(&self, guard: &mut Self::Guard) -> io::Result<String>;

    /// Writes the text of the guard, in place and durably.
    fn write_guard(&self, guard: &mut Self::Guard, text: &str) -> io::Result<()>;

    /// `.lock`, as it is. An error is something in its place that will never go away by itself.
    fn read_lock(&self) -> io::Result<LockFile>;

    /// Writes `.lock` as a whole, durably.
    fn write_lock(&self, record: &Record) -> io::Result<()>;

    /// Removes `.lock`; fine if it is gone.
    fn remove_lock(&self) -> io::Result<()>;

    /// Whether the holder of this fence lives.
    fn probe(&self, fence: Fence) -> Probe;

    /// Opens the held file of this fence and keeps it open; fine if it is open already.
    fn open_held(&mut self, fence: Fence) -> io::Result<()>;

    /// Closes the held file of this fence and removes it.
    fn close_held(&mut self, fence: Fence);

    /// Closes the held file of this fence and leaves it there: a record that names it then belongs to a dead holder.
    fn drop_held(&mut self, fence: Fence);

    /// Removes every held file that nobody has open, but this one.
    fn sweep_held(&self, keep: Fence) -> io::Result<()>;

    /// Writes a file of the project as a whole, durably.
    fn save(&self, name: &str, content: &[u8]) -> io::Result<()>;
}

/// Runs a guarded section.
pub(crate) fn run<F: Folder>(folder: &mut F, action: Action, clock: &dyn Clock) -> Result<Verdict, IoError> {
    if action == Action::Look {
        return look(folder, clock);
    }
    let mut guard = folder.take_guard()?;
    decide_and_do(folder, &mut guard, action, clock.now().wall)
}

/// A look needs no right to write, and leaves no trace. Without a guard nobody has ever been here, or somebody has deleted
/// it: `.lock` is then read as it is, and its time alone decides, because held files are looked at under the guard only.
fn look<F: Folder>(folder: &F, clock: &dyn Clock) -> Result<Verdict, IoError> {
    let mut guard = folder.guard_to_look()?;
    let text = guard.as_mut().map_or_else(|| Ok(String::new()), |guard| folder.read_guard(guard));
    let section = read(folder, text.map_err(failed(IoKind::Read))?, Action::Look)?;
    let probe = guard.as_ref().and_then(|_| section.probe());
    let probe = probe.map_or(Probe::Unknown, |fence| folder.probe(fence));
    Ok(section.decide(probe, clock.now().wall))
}

fn read<F: Folder>(folder: &F, guard: String, action: Action) -> Result<Section, IoError> {
    let lock = folder.read_lock().map_err(failed(IoKind::Open))?;
    Ok(Section::new(action, &Found { lock, guard }))
}

/// Runs the guarded section of a save: the file is swapped only if the claim is good, and before the guard is let go.
pub(crate) fn save<F: Folder>(
    folder: &mut F,
    claim: Claim,
    name: &str,
    content: &[u8],
    clock: &dyn Clock,
) -> Result<Outcome, IoError> {
    let mut guard = folder.take_guard()?;
    let verdict = decide_and_do(folder, &mut guard, Action::Commit(claim), clock.now().wall)?;
    if verdict.outcome == Outcome::MayCommit {
        folder.save(name, content).map_err(failed(IoKind::Write))?;
    }
    Ok(verdict.outcome)
}

fn decide_and_do<F: Folder>(
    folder: &mut F,
    guard: &mut F::Guard,
    action: Action,
    now: StoreTime,
) -> Result<Verdict, IoError> {
    let text = folder.read_guard(guard).map_err(failed(IoKind::Read))?;
    let section = read(folder, text, action)?;
    let probe = section.probe().map_or(Probe::Unknown, |fence| folder.probe(fence));
    let verdict = section.decide(probe, now);
    let taken = take_steps(folder, guard, &verdict.steps);
    if let (Err(_), Some(fence)) = (&taken, verdict.held()) {
        let_go(folder, fence);
    }
    taken.map_err(failed(IoKind::Write))?;
    Ok(verdict)
}

/// Lets go of a held file when a step has failed. The step may have taken effect all the same: a `.lock` that names the
/// file must find it free. If `.lock` does not, the file says nothing to anybody, and on a full disk every try would
/// leave another one.
fn let_go<F: Folder>(folder: &mut F, fence: Fence) {
    let is_named = match folder.read_lock() {
        Ok(LockFile::Missing) => false,
        Ok(LockFile::Read { content, .. }) => {
            matches!(content, Content::Record(record) if record.fence == Some(fence))
        }
        Ok(LockFile::Unreadable { .. }) | Err(_) => true,
    };
    match is_named {
        true => folder.drop_held(fence),
        false => folder.close_held(fence),
    }
}

fn take_steps<F: Folder>(folder: &mut F, guard: &mut F::Guard, steps: &[Step]) -> io::Result<()> {
    let mut has_held = true;
    for step in steps {
        match take_step(folder, guard, step, has_held) {
            Err(error) if step.may_fail() => {
                has_held = has_held && !matches!(step, Step::OpenHeld(_));
                tracing::debug!(%error, ?step, "a step that may fail did");
            }
            taken => taken?,
        }
    }
    Ok(())
}

fn take_step<F: Folder>(folder: &mut F, guard: &mut F::Guard, step: &Step, has_held: bool) -> io::Result<()> {
    match step {
        Step::StoreFence { text } => folder.write_guard(guard, text),
        Step::OpenHeld(fence) => folder.open_held(*fence),
        Step::WriteLock(record) => {
            folder.write_lock(&Record { held: record.held && has_held, ..record.clone() })
        }
        Step::RemoveLock => folder.remove_lock(),
        Step::CloseHeld(fence) => {
            folder.close_held(*fence);
            Ok(())
        }
        Step::SweepHeld { keep } => folder.sweep_held(*keep),
    }
}

/// Refuses a name that is none of a file of the project, before anybody looks for it.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    root::check_save(name).map_err(|invalid| io::Error::new(io::ErrorKind::InvalidInput, invalid.to_string()))
}

/// What the system said, as something that could not be done.
pub(crate) fn failed(kind: IoKind) -> impl Fn(io::Error) -> IoError {
    move |error| IoError { kind, said: error.to_string() }
}
