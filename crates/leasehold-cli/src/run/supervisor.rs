//! The supervisor: holds the lease, passes signals on, and sees to it that the command is gone before the lease is.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_client::{Guard, Lease, Lost};
use leasehold_core::HolderTime;
use leasehold_core::time::whole_millis;
use leasehold_store::clock::unix_millis;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, kill_process_group,
    set_child_subreaper, waitid, waitpgid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::Args;
use super::alarm::{Alarm, now};
use super::channel::{End, Word, send_first};
use super::descendants;
use super::guardian::itself;
use super::plan::{Plan, Step};
use super::report::Report;
use super::signals::Signals;
use crate::Ending;

/// How long giving the lease back may take. It runs out by itself.
const RELEASE: Duration = Duration::from_secs(2);

/// How long dying may take before it is worth a line.
const SLOW_DEATH: Duration = Duration::from_secs(5);

/// How the command ended.
enum Outcome {
    Code(u8),
    Lost(Lost),
    /// The guardian was killed, and the command with it.
    GuardianDied,
}

/// Runs the command under the lease, and gives the lease back when it is gone.
pub(super) async fn run(args: &Args, guard: Guard, signals: Signals, report: &Report) -> Result<Ending> {
    report.acquired(&guard);
    let lease = guard.lease();
    let ended = match Group::start(args, &lease) {
        Ok(group) => supervise(args, group, &lease, signals, report).await,
        Err(error) => Err(error),
    };
    give_back(guard, &ended, report).await;
    Ok(match ended? {
        Outcome::Code(code) => {
            report.ended(code);
            Ending::Code(code)
        }
        Outcome::Lost(_) => Ending::Lost,
        Outcome::GuardianDied => {
            report.warning("the guardian of the command was killed, and so the command was killed, too");
            Ending::Signal(Signal::KILL.as_raw().try_into().unwrap_or(0))
        }
    })
}

async fn supervise(
    args: &Args,
    mut group: Group,
    lease: &Lease,
    mut signals: Signals,
    report: &Report,
) -> Result<Outcome> {
    let (gone, mut plan) = (lease.token(), Plan::new(args.grace));
    let (mut started, mut code, mut lost) = (false, None, None);
    let mut child_changed = signal(SignalKind::child())?;
    loop {
        let look_at = match plan.next(now(), left(lease)) {
            Step::Kill => break,
            Step::Terminate => {
                report.lost(*lost.insert(Lost::Deadline));
                group.terminate();
                continue;
            }
            Step::Wait(until) => until,
        };
        group.continue_guardians();
        group.tell_deadline(lease);
        tokio::select! {
            biased;
            () = gone.cancelled() => {}
            _ = child_changed.recv() => {}
            rung = group.alarm.ring_at(look_at) => rung?,
            word = group.socket.word() => match word {
                Some(Word::Started(pid)) => {
                    report.started(pid);
                    started = true;
                }
                Some(Word::Ended { code: ended, leftovers: true }) => {
                    code = Some(ended);
                    report.leftovers();
                    plan.command_ended(now());
                    group.terminate();
                }
                Some(Word::Ended { code: ended, leftovers: false }) => {
                    code = Some(ended);
                    break;
                }
                Some(Word::AllGone) | None => break,
                Some(Word::WantsTerminal) => report.wants_terminal(),
            },
            // Before the command runs no process could take a signal, and the guardian may not be ready for it.
            signal = signals.next(), if started => group.pass_on(signal),
        }
    }
    // A command that has ended in time has not lost anything.
    let told = lease.check().err().filter(|_| code.is_none());
    if let (None, Some(told)) = (lost, told) {
        report.lost(*lost.insert(told));
    }
    group.end(report).await;
    Ok(match (lost, code) {
        (Some(lost), _) => Outcome::Lost(lost),
        (None, Some(code)) => Outcome::Code(code),
        (None, None) => Outcome::GuardianDied,
    })
}

/// How long the command may go on.
fn left(lease: &Lease) -> Result<Duration, Lost> {
    lease.check().map(|_| lease.time_left())
}

/// Releases the lease now that the command is gone. That it fails is no failure of the command.
async fn give_back(guard: Guard, ended: &Result<Outcome>, report: &Report) {
    if matches!(ended, Ok(Outcome::Lost(Lost::Told(_)))) {
        return;
    }
    let was_lost = matches!(ended, Ok(Outcome::Lost(_)));
    let trouble = match tokio::time::timeout(RELEASE, guard.release()).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "there was no answer".to_owned(),
    };
    if !was_lost {
        report.warning(&format!("the lease could not be released, and will run out by itself ({trouble})"));
    }
}

/// The command, its guardians and everything else in their process group. Its id is that of the guardian, which is not
/// waited for before the group is killed: so long, no other group can have it.
struct Group {
    id: Pid,
    socket: End,
    second: Pid,
    second_socket: End,
    /// Children that this process had before: it may have been a shell that started something in the background.
    before: Vec<Pid>,
    alarm: Alarm,
    /// The guardian died by our hand, and so did everybody else.
    killed: bool,
    /// What the guardian was last told.
    told: Option<HolderTime>,
}

impl Group {
    /// Starts the guardians; the first one starts the command once it has heard its deadline, when both are there.
    fn start(args: &Args, lease: &Lease) -> Result<Self> {
        let before = descendants::children();
        // A process that loses its parent becomes a child of this one, which so knows when all are gone.
        set_child_subreaper(Some(getpid()))?;
        let (alarm, (ours, theirs)) = (Alarm::new()?, UnixStream::pair()?);
        let id = Self::start_guardian(args, lease, theirs.into())?;
        let ((first_end, second_end), (ours_too, theirs_too)) = (UnixStream::pair()?, UnixStream::pair()?);
        let second = itself("second")
            .stdin(OwnedFd::from(theirs_too))
            .stdout(OwnedFd::from(second_end))
            .process_group(id.as_raw_nonzero().get())
            .spawn()
            .context("cannot start the second guardian of the command")?;
        let deadline = now() + lease.time_left();
        let second_socket = End::new(ours_too)?;
        second_socket.tell(deadline);
        send_first(&ours, deadline, first_end.as_fd())?;
        let (second, socket, told) = (Pid::from_child(&second), End::new(ours)?, Some(deadline));
        Ok(Self { id, socket, second, second_socket, before, alarm, killed: false, told })
    }

    fn start_guardian(args: &Args, lease: &Lease, socket: OwnedFd) -> Result<Pid> {
        let guardian = itself("guardian")
            .arg("--")
            .args(&args.command)
            .env("LEASEHOLD_KEY", lease.key().as_str())
            .env("LEASEHOLD_FENCE", lease.fence().get().to_string())
            .env("LEASEHOLD_DEADLINE", wall_clock(lease.time_left()))
            .stdin(socket)
            .process_group(0)
            .spawn()
            .context("cannot start the guardian of the command")?;
        Ok(Pid::from_child(&guardian))
    }

    /// Continues a guardian that was stopped, alone or with the whole group: it could not report how the command ended.
    /// The command itself stays stopped, and keeps its lease.
    fn continue_guardians(&self) {
        for guardian in [self.id, self.second] {
            let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
            if matches!(waitid(WaitId::Pid(guardian), look), Ok(Some(_))) {
                let _ = kill_process(guardian, Signal::CONT);
            }
        }
    }

    /// Asks everybody to end; those that are stopped, too.
    fn terminate(&self) {
        self.pass_on(Signal::TERM);
    }

    /// Passes a signal on. Who is stopped cannot heed one that asks it to end, and is continued.
    fn pass_on(&self, signal: Signal) {
        self.signal(signal);
        if [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&signal) {
            self.signal(Signal::CONT);
        }
    }

    fn signal(&self, signal: Signal) {
        // That the group is empty is reported by the guardian, too.
        let _ = kill_process_group(self.id, signal);
    }

    /// Keeps the guardians up to date.
    fn tell_deadline(&mut self, lease: &Lease) {
        let deadline = now() + lease.time_left();
        if self.told != Some(deadline) {
            let told = [self.socket.tell(deadline), self.second_socket.tell(deadline)];
            self.told = told.iter().all(|told| *told).then_some(deadline);
        }
    }

    /// Kills what is left of the command: its group, and what has left the group. Waits until nothing is left.
    async fn end(mut self, report: &Report) {
        self.kill();
        let (id, before) = (self.id, std::mem::take(&mut self.before));
        let mut waiting = tokio::task::spawn_blocking(move || {
            descendants::end_all_but(&before);
            while !all_gone(id) {}
        });
        if tokio::time::timeout(SLOW_DEATH, &mut waiting).await.is_err() {
            report.warning("some processes of the command cannot be killed; waiting for their end");
            let _ = waiting.await;
        }
    }

    fn kill(&mut self) {
        if !self.killed {
            self.killed = true;
            self.signal(Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for one process of the group to end; whether there was none.
fn all_gone(group: Pid) -> bool {
    matches!(waitpgid(group, WaitOptions::empty()), Err(rustix::io::Errno::CHILD))
}

/// The time of day so much later, as RFC 3339 has it.
fn wall_clock(later: Duration) -> String {
    let millis = i64::try_from(unix_millis() + whole_millis(later)).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).map(|time| time.to_string()).unwrap_or_default()
}
