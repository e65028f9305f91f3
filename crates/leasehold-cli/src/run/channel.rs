//! The words between the supervisor and the guardian, over a socket that no other process has an end of: each side learns at
//! once that the other one is dead, however it died.
//!
//! The first message down carries the deadline, and the standard input that is the command's own (the guardian's is this
//! socket). Every later one is a new deadline.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use leasehold_core::HolderTime;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, send, sendmsg,
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

/// Sends the first message, with the standard input of this process.
pub(super) fn send_first(socket: impl AsFd, deadline: HolderTime) -> io::Result<()> {
    let stdin = io::stdin();
    let fds = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&fds));
    let message = deadline.as_millis().to_le_bytes();
    sendmsg(socket, &[IoSlice::new(&message)], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the first message; nothing if the supervisor is dead.
pub(super) fn receive_first(socket: impl AsFd) -> io::Result<Option<(HolderTime, OwnedFd)>> {
    let mut message = [0; LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut message)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let stdin = rights.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(stdin.filter(|_| received.bytes == LENGTH).map(|stdin| (deadline(message), stdin)))
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

    /// Tells a new deadline. If the other side does not listen, it goes by the last one.
    pub(super) fn tell(&self, deadline: HolderTime) {
        self.send(deadline.as_millis().to_le_bytes());
    }

    /// Sends a message whole or not at all, without waiting. Past the runtime, which for a new socket does not know yet
    /// that it can be written to.
    fn send(&self, message: [u8; LENGTH]) {
        let _ = send(&self.socket, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
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
        send_first(&down, HolderTime::from_millis(5)).unwrap();
        let (deadline, _stdin) = receive_first(&up).unwrap().unwrap();
        assert_eq!(deadline, HolderTime::from_millis(5));
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

    #[test]
    fn a_supervisor_that_dies_before_its_first_message_is_noticed() {
        let (down, up) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(down);
        assert!(receive_first(&up).unwrap().is_none());
    }
}
