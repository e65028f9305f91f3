//! Signals: those that go through to the command, and those that the guardian outlives.

use std::future::poll_fn;
use std::task::Poll;

use anyhow::Result;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// What is passed on to the command.
const PASSED_ON: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::WINCH];

/// What else a process of the group may send to all of it, or the terminal; it would end or stop the guardian.
const OUTLIVED: [Signal; 13] = [
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
    Signal::SYS,
    Signal::TRAP,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
];

/// Listens from the moment it is made. Signals that were ignored when this process began stay so, for the command too:
/// that is how `nohup` works.
pub(super) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    pub(super) fn listen() -> Result<Self> {
        Self::to(&PASSED_ON)
    }

    /// Makes this process outlive what is sent to the group of the command. Unlike with an ignored signal, the command
    /// begins without a trace of it.
    pub(super) fn outlive() -> Result<Self> {
        Self::to(&[&PASSED_ON[..], &OUTLIVED[..]].concat())
    }

    fn to(signals: &[Signal]) -> Result<Self> {
        let ignored = ignored_signals();
        let mut streams = Vec::new();
        for heard in signals.iter().filter(|signal| !is_in(ignored, **signal)) {
            streams.push((*heard, signal(SignalKind::from_raw(heard.as_raw()))?));
        }
        Ok(Self { streams })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let mut heard = self.streams.iter_mut().filter_map(|(signal, stream)| {
                matches!(stream.poll_recv(context), Poll::Ready(Some(()))).then_some(*signal)
            });
            heard.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The number of the next signal that would end a program that does not care for signals.
    pub(super) async fn asked_to_end(&mut self) -> u8 {
        loop {
            let heard = self.next().await;
            if heard != Signal::WINCH {
                return u8::try_from(heard.as_raw()).unwrap_or(0);
            }
        }
    }
}

/// The signals that this process ignores, one bit each, as the kernel tells it.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, signal: Signal) -> bool {
    let bit = u32::try_from(signal.as_raw()).ok().and_then(|number| number.checked_sub(1));
    bit.and_then(|bit| mask.checked_shr(bit)).is_some_and(|shifted| shifted & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_signals_from_one() {
        assert!(is_in(0b1, Signal::HUP) && is_in(0b100_0000_0000_0000, Signal::TERM));
        assert!(!is_in(0b10, Signal::HUP) && !is_in(0, Signal::TERM));
        // Rust programs begin with this one ignored.
        assert!(is_in(ignored_signals(), Signal::PIPE));
    }
}
