//! The second guardian: a process of the command's group that starts nothing and only watches. It kills the group, itself
//! included, when the first guardian is dead; when the supervisor is dead or the deadline has passed it gives the first
//! guardian, which can end more, a moment to do so. So any two of the three may be killed or stopped.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Result, bail};
use leasehold_core::HolderTime;
use rustix::process::{getpgrp, getpid};

use super::alarm::{Alarm, now};
use super::channel::End;
use super::guardian::{Killed, SWEEP, kill_group};
use super::signals::Signals;
use crate::Ending;

/// How long the first guardian has. With what killing takes it ends well within the margin of the lease, 500 ms or more.
const MOMENT: Duration = SWEEP.saturating_mul(2);

/// Watches until the group is killed. Its standard input is the socket to the supervisor, its standard output the one to the
/// first guardian.
pub(super) fn watch_too() -> Result<Ending> {
    if getpgrp() == getpid() {
        bail!("this is a part of `leasehold run NAME -- COMMAND`, which starts it; it does not work alone");
    }
    let supervisor = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let guardian = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(watch(supervisor, guardian))? {}
}

async fn watch(supervisor: UnixStream, guardian: UnixStream) -> Result<Killed> {
    let (mut supervisor, mut guardian) = (End::new(supervisor)?, End::new(guardian)?);
    let (alarm, mut signals) = (Alarm::new()?, Signals::outlive()?);
    let Some(mut deadline) = supervisor.deadline().await else { return Ok(kill_group()) };
    let mut orphaned: Option<HolderTime> = None;
    loop {
        let kill_at = orphaned.map_or(deadline, |since| deadline.min(since)) + MOMENT;
        if now() >= kill_at {
            match supervisor.latest_deadline().filter(|told| *told > deadline && orphaned.is_none()) {
                Some(told) => deadline = told,
                None => return Ok(kill_group()),
            }
        }
        tokio::select! {
            biased;
            // Neither says anything to the other: this is the end of the first guardian.
            _ = guardian.closed() => return Ok(kill_group()),
            told = supervisor.deadline(), if orphaned.is_none() => match told {
                Some(told) => deadline = told,
                None => orphaned = Some(now()),
            },
            rung = alarm.ring_at(kill_at) => rung?,
            // The command has it as well.
            _ = signals.next() => {}
        }
    }
}
