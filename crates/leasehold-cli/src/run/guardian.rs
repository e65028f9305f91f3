//! The guardian: leads the process group of the command, starts it, and kills the whole group, itself included, when the
//! supervisor is dead or the deadline has passed. It never touches a process by its id, which might be another's by
//! then: it only ever kills the group that it is in.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use leasehold_core::HolderTime;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpgrp, getpid, getppid,
    kill_current_process_group, set_child_subreaper, set_parent_process_death_signal, wait, waitid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::PART;
use super::alarm::{Alarm, now};
use super::channel::{End, Word, receive_first};
use super::signals::Signals;
use crate::Ending;
use crate::out::Out;

/// The command cannot be run; the command was not found. As shells have it.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Starts the command and watches over it. It ends with the group, unless the supervisor is gone before it begins.
pub(super) fn guard(command: &[OsString]) -> Result<Ending> {
    if getpgrp() != getpid() {
        bail!("this is a part of `leasehold run KEY -- COMMAND`, which starts it; it does not work alone");
    }
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Some((deadline, stdin)) = receive_first(&socket)?.filter(|(deadline, _)| now() < *deadline) else {
        return Ok(Ending::Done);
    };
    // Processes whose parent ends become children of this one, which so knows when the last of them is gone.
    set_child_subreaper(Some(getpid()))?;
    // On this thread: the kernel takes the end of the thread that started the command for the end of the guardian.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(watch(socket, deadline, stdin, command))? {}
}

async fn watch(
    socket: UnixStream,
    mut deadline: HolderTime,
    stdin: OwnedFd,
    command: &[OsString],
) -> Result<Infallible> {
    let (mut socket, alarm) = (End::new(socket)?, Alarm::new()?);
    let mut signals = Signals::outlive()?;
    let mut ended = signal(SignalKind::child())?;
    let mut group = Group::start(stdin, command).context("cannot start the command")?;
    socket.say(Word::Started(group.command.as_raw_nonzero().get().unsigned_abs()));
    loop {
        if now() >= deadline {
            kill_group();
        }
        tokio::select! {
            biased;
            told = socket.deadline() => match told {
                Some(told) => deadline = told,
                // The supervisor is dead.
                None => kill_group(),
            },
            rung = alarm.ring_at(deadline) => rung?,
            _ = ended.recv() => group.reap(&socket),
            // Whatever it is, the command has it as well.
            signal = signals.next() => if signal == Signal::TTIN || signal == Signal::TTOU {
                socket.say(Word::WantsTerminal);
            },
        }
    }
}

fn kill_group() {
    // It cannot fail: a process may always signal its own group, and this one is in it.
    let _ = kill_current_process_group(Signal::KILL);
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
        let leftovers = is_anybody_left();
        if let Some(code) = code {
            socket.say(Word::Ended { code, leftovers });
        } else if self.ended && !leftovers && !self.all_gone {
            socket.say(Word::AllGone);
        }
        self.all_gone = self.ended && !leftovers;
    }
}

/// Whether this process has children in its group.
fn is_anybody_left() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pgid(Some(getpid())), look).is_ok()
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
