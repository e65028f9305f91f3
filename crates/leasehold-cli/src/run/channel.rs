//! The words between the supervisor and the guardian, over a socket that no other process has an end of: each side learns at
//! once that the other one is dead, however it died.
//!
//! The first message down to the guardian carries the deadline, the standard input that is the command's own (the guardian's
//! is this socket) and the socket to the second guardian. Every later one is a new deadline, and so is every one to the
//! second guardian. The two guardians say nothing to each other: they only learn that the other one is dead.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use leasehold_core::HolderTime;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, send, sendmsg,
};
use tokio::net::UnixStream;

/// How long a message is: a deadline down, a word up.
const LENGTH: usize = 8;

/// What the guardian says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The command runs, as this process.
    Started(u32),
    /// The command has ended with this exit code; whether it left processes of its group behind.
    Ended { code: u8, leftovers: bool },
    /// What the command left behind has ended, too.
    AllGone,
    /// The command wants to use the terminal, and was stopped for it: it is in the background there.
    WantsTerminal,
}

impl Word {
    fn to_bytes(self) -> [u8; LENGTH] {
        match self {
            Self::Started(pid) => {
                let [a, b, c, d] = pid.to_le_bytes();
                [1, a, b, c, d, 0, 0, 0]
            }
            Self::Ended { code, leftovers } => [2, code, leftovers.into(), 0, 0, 0, 0, 0],
            Self::AllGone => [3, 0, 0, 0, 0, 0, 0, 0],
            Self::WantsTerminal => [4, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    fn from_bytes(bytes: [u8; LENGTH]) -> Option<Self> {
        match bytes {
            [1, a, b, c, d, ..] => Some(Self::Started(u32::from_le_bytes([a, b, c, d]))),
            [2, code, leftovers, ..] => Some(Self::Ended { code, leftovers: leftovers != 0 }),
            [3, ..] => Some(Self::AllGone),
            [4, ..] => Some(Self::WantsTerminal),
            _ => None,
        }
    }
}

/// What the guardian begins with.
pub(super) struct First {
    pub(super) deadline: HolderTime,
    /// The standard input of the command.
    pub(super) stdin: OwnedFd,
    /// The socket to the second guardian.
    pub(super) second: OwnedFd,
}

/// Sends the first message, with the standard input of this process and the guardian's socket to the second one.
pub(super) fn send_first(socket: impl AsFd, deadline: HolderTime, second: BorrowedFd<'_>) -> io::Result<()> {
    let stdin = io::stdin();
    let fds = [stdin.as_fd(), second];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&fds));
    let message = deadline.as_millis().to_le_bytes();
    sendmsg(socket, &[IoSlice::new(&message)], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the first message; nothing if the supervisor is dead.
pub(super) fn receive_first(socket: impl AsFd) -> io::Result<Option<First>> {
    let mut message = [0; LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut message)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let fds = rights.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut fds) => Some((fds.next()?, fds.next()?)),
        _ => None,
    });
    let whole = fds.filter(|_| received.bytes == LENGTH);
    Ok(whole.map(|(stdin, second)| First { deadline: deadline(message), stdin, second }))
}

fn deadline(message: [u8; LENGTH]) -> HolderTime {
    HolderTime::from_millis(u64::from_le_bytes(message))
}

/// One end of the socket.
pub(super) struct End {
    socket: UnixStream,
    /// The part of a message that has come so far.
    message: [u8; LENGTH],
    filled: usize,
}

impl End {
    pub(super) fn new(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UnixStream::from_std(socket)?, message: [0; LENGTH], filled: 0 })
    }

    /// Says a word. If the other side does not listen (it may be stopped), it will see for itself.
    pub(super) fn say(&self, word: Word) {
        self.send(word.to_bytes());
    }

    /// Tells a new deadline. Answers whether it is on its way: a side that was stopped for long takes nothing more, and
    /// goes by what it has.
    pub(super) fn tell(&self, deadline: HolderTime) -> bool {
        self.send(deadline.as_millis().to_le_bytes())
    }

    /// Sends a message whole or not at all, without waiting. Past the runtime, which for a new socket does not know yet
    /// that it can be written to.
    fn send(&self, message: [u8; LENGTH]) -> bool {
        send(&self.socket, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
    }

    /// Completes when the other side is dead.
    pub(super) async fn closed(&mut self) {
        while self.message().await.is_some() {}
    }

    /// The last of the deadlines that have come and were not read yet. Past the runtime, which has not looked at the socket
    /// while this process was stopped.
    pub(super) fn latest_deadline(&mut self) -> Option<HolderTime> {
        let mut latest = None;
        while let Some(rest) = self.message.get_mut(self.filled..).filter(|rest| !rest.is_empty()) {
            let Ok((read @ 1.., _)) = recv(&self.socket, rest, RecvFlags::DONTWAIT) else { break };
            self.filled += read;
            if self.filled == LENGTH {
                self.filled = 0;
                latest = Some(deadline(self.message));
            }
        }
        latest
    }

    /// The next word; nothing when the guardian is dead.
    pub(super) async fn word(&mut self) -> Option<Word> {
        loop {
            if let Some(word) = Word::from_bytes(self.message().await?) {
                return Some(word);
            }
        }
    }

    /// The next deadline; nothing when the supervisor is dead.
    pub(super) async fn deadline(&mut self) -> Option<HolderTime> {
        self.message().await.map(deadline)
    }

    /// The next message. Nothing is lost when it is given up and asked for again.
    async fn message(&mut self) -> Option<[u8; LENGTH]> {
        while let Some(rest) = self.message.get_mut(self.filled..).filter(|rest| !rest.is_empty()) {
            self.socket.readable().await.ok()?;
            match self.socket.try_read(rest) {
                Ok(read @ 1..) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return None,
            }
        }
        self.filled = 0;
        Some(self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn words_deadlines_and_death_come_through() {
        let (down, up) = std::os::unix::net::UnixStream::pair().unwrap();
        let (other, _its_end) = std::os::unix::net::UnixStream::pair().unwrap();
        send_first(&down, HolderTime::from_millis(5), other.as_fd()).unwrap();
        let first = receive_first(&up).unwrap().unwrap();
        assert_eq!(first.deadline, HolderTime::from_millis(5));
        let (mut down, mut up) = (End::new(down).unwrap(), End::new(up).unwrap());
        let words = [
            Word::Started(70_000),
            Word::Ended { code: 137, leftovers: true },
            Word::AllGone,
            Word::WantsTerminal,
        ];
        words.iter().for_each(|word| up.say(*word));
        down.tell(HolderTime::from_millis(1_234_567_890_123));
        for word in words {
            assert_eq!(down.word().await, Some(word));
        }
        assert_eq!(up.deadline().await, Some(HolderTime::from_millis(1_234_567_890_123)));
        drop(up);
        assert_eq!(down.word().await, None);
    }

    /// A guardian that had been stopped and continued went by the deadline that it knew, and killed a command whose lease the
    /// supervisor had renewed all the while.
    #[tokio::test]
    async fn the_newest_deadline_counts_for_a_guardian_that_was_stopped() {
        let (down, up) = std::os::unix::net::UnixStream::pair().unwrap();
        let (down, mut up) = (End::new(down).unwrap(), End::new(up).unwrap());
        assert_eq!(up.latest_deadline(), None);
        for millis in [1_000, 2_000, 3_000] {
            assert!(down.tell(HolderTime::from_millis(millis)));
        }
        assert_eq!(up.latest_deadline(), Some(HolderTime::from_millis(3_000)));
        assert_eq!(up.latest_deadline(), None);
        // One that never listens does not block the supervisor.
        while down.tell(HolderTime::from_millis(4_000)) {}
        drop(down);
        assert_eq!(up.latest_deadline(), Some(HolderTime::from_millis(4_000)));
        up.closed().await;
    }

    #[test]
    fn a_supervisor_that_dies_before_its_first_message_is_noticed() {
        let (down, up) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(down);
        assert!(receive_first(&up).unwrap().is_none());
    }
}
