//! The guardian: leads the process group of the command, starts it, and ends everything that came of it, itself included,
//! when the supervisor or the second guardian is dead, or the deadline has passed. It never touches a process by an id that
//! might be another's by then: it kills its own children, what they leave behind to it, and the group that it is in.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, getppid, kill_current_process_group,
    set_child_subreaper, set_parent_process_death_signal, wait,
};
use tokio::signal::unix::{SignalKind, signal};

use super::PART;
use super::alarm::{Alarm, now};
use super::channel::{End, First, Word, receive_first};
use super::descendants;
use super::signals::Signals;
use crate::Ending;
use crate::out::Out;

/// What a process says that has killed itself: nothing.
pub(super) enum Killed {}

/// The command cannot be run; the command was not found. As shells have it.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Starts the command and watches over it. It ends with the group, unless the supervisor is gone before it begins.
pub(super) fn guard(command: &[OsString]) -> Result<Ending> {
    if getpgrp() != getpid() {
        bail!("this is a part of `leasehold run NAME -- COMMAND`, which starts it; it does not work alone");
    }
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Some(first) = receive_first(&socket)?.filter(|first| now() < first.deadline) else {
        return Ok(Ending::Done);
    };
    // Processes whose parent ends become children of this one, which so knows when the last of them is gone.
    set_child_subreaper(Some(getpid()))?;
    // On this thread: the kernel takes the end of the thread that started the command for the end of the guardian.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(watch(socket, first, command))? {}
}

async fn watch(socket: UnixStream, first: First, command: &[OsString]) -> Result<Killed> {
    let First { mut deadline, stdin, second } = first;
    let (mut socket, mut second, alarm) = (End::new(socket)?, End::new(second.into())?, Alarm::new()?);
    let mut signals = Signals::outlive()?;
    let mut ended = signal(SignalKind::child())?;
    let mut group = Group::start(stdin, command).context("cannot start the command")?;
    socket.say(Word::Started(group.command.as_raw_nonzero().get().unsigned_abs()));
    loop {
        if now() >= deadline {
            // This process may have been stopped while the supervisor renewed the lease.
            match socket.latest_deadline().filter(|told| now() < *told) {
                Some(told) => deadline = told,
                None => return Ok(end_everything()),
            }
        }
        tokio::select! {
            biased;
            told = socket.deadline() => match told {
                Some(told) => deadline = told,
                // The supervisor is dead.
                None => return Ok(end_everything()),
            },
            // The second guardian is dead.
            () = second.closed() => return Ok(end_everything()),
            rung = alarm.ring_at(deadline) => rung?,
            _ = ended.recv() => group.reap(&socket),
            // Whatever it is, the command has it as well; what has left the group has not.
            signal = signals.next() => match signal {
                Signal::TTIN | Signal::TTOU => socket.say(Word::WantsTerminal),
                Signal::TERM if group.ended => descendants::terminate_outside_the_group(),
                _ => {}
            },
        }
    }
}

/// How long ending the descendants one generation after the other may take. The group is killed after that in any case.
pub(super) const SWEEP: Duration = Duration::from_millis(100);

/// The longest pause between two looks for another generation.
const GENERATION: Duration = Duration::from_millis(1);

/// Ends the command and all that it has started, also what has left the group, and then this process.
fn end_everything() -> Killed {
    let until = now() + SWEEP;
    while descendants::end_some() && now() < until {
        std::thread::sleep(GENERATION);
    }
    kill_group()
}

/// Kills the group that this process is in.
pub(super) fn kill_group() -> Killed {
    // It cannot fail: a process may always signal its own group, and this one is in it.
    let _ = kill_current_process_group(Signal::KILL);
    std::process::abort()
}

/// The group as its leader sees it.
struct Group {
    command: Pid,
    /// The command has ended.
    ended: bool,
    /// And so has everything that it left behind.
    all_gone: bool,
}

impl Group {
    fn start(stdin: OwnedFd, command: &[OsString]) -> Result<Self> {
        let child = itself("command")
            .arg(getpid().as_raw_nonzero().to_string())
            .arg("--")
            .args(command)
            .stdin(stdin)
            .spawn()?;
        let command = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        Ok(Self { command, ended: false, all_gone: false })
    }

    /// Takes in who has ended: the command, or something that it left behind.
    fn reap(&mut self, socket: &End) {
        let mut code = None;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            // A later process may get the number of the command.
            if pid == self.command && !self.ended {
                self.ended = true;
                code = Some(exit_code(status));
            }
        }
        let leftovers = descendants::is_any_left();
        if let Some(code) = code {
            socket.say(Word::Ended { code, leftovers });
        } else if self.ended && !leftovers && !self.all_gone {
            socket.say(Word::AllGone);
        }
        self.all_gone = self.ended && !leftovers;
    }
}

/// The exit code of a process; as in shells, 128 more than the signal that ended it.
fn exit_code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|number| 128 + number));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// This program again, as another part of `run`, even if its file has been replaced meanwhile.
pub(super) fn itself(part: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("leasehold").args([PART, part]);
    command
}

/// Becomes the command, which from then on is killed by the kernel when the guardian dies.
pub(super) fn become_command(guardian: i32, command: &[OsString], out: &Out) -> Result<Ending> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(guardian) {
        bail!("the guardian of the command is gone");
    }
    let Some((program, args)) = command.split_first() else { bail!("there is no command") };
    let error = Command::new(program).args(args).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    let what = format!("cannot run {}", program.display());
    out.error(&anyhow::Error::new(error).context(what));
    Ok(Ending::Code(code))
}
