//! What travels between clients, servers and registers. A message may arrive never, late, or more than once.

use std::rc::Rc;

use leasehold_core::{Command, HolderTime, Key, Position};
use leasehold_store::{Applied, Feed, Page};

use crate::register::{Access, Answer};

/// Who sent something: a client, in one of its lives. A client that was restarted does not know its former messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sender {
    /// Which client.
    pub client: usize,
    /// How often it had been restarted.
    pub life: u32,
}

/// A command on its way.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whose it is.
    pub from: Sender,
    /// When it was sent, on the sender's own clock.
    pub sent: HolderTime,
    /// The key.
    pub key: Key,
    /// What is asked of it.
    pub command: Command,
}

/// From a client to a server.
#[derive(Clone, Debug)]
pub enum ToServer {
    /// Decide a command.
    Apply(Rc<Request>),
    /// Tell the events after this position, as soon as there are any.
    Feed(Sender, Position),
    /// Tell what is there.
    List(Sender),
}

/// From a server or a register to a client.
#[derive(Clone, Debug)]
pub enum ToClient {
    /// A command was answered; `None` when the server had trouble, and whether it was carried out is unknown.
    Applied(Rc<Request>, Option<Applied>),
    /// The events after this position.
    Feed(Position, Feed),
    /// What is there.
    List(Page),
    /// What a register says.
    Register(ToRegister, Answer),
}

/// From a client to the register of a key.
#[derive(Clone, Debug)]
pub struct ToRegister {
    /// Whose it is.
    pub from: Sender,
    /// The key.
    pub key: Key,
    /// The fence that it comes under.
    pub fence: u64,
    /// What is asked.
    pub access: Access,
}
