//! Messages between the processes that have one store open: what a store offers besides leases if several servers can
//! share it.
//!
//! No lease may depend on a message. Decisions and events are in the store; messages only carry what nobody keeps.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::Result;

/// Carries short texts between the processes that have the same store open.
///
/// Texts of one process arrive in the order in which they were sent, and each at most once. While the connection that
/// listens is lost, none arrive, and the receiver hears [`Heard::Deaf`].
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// The longest text, in bytes.
    fn longest(&self) -> usize;

    /// Sends texts to every process that listens, this one included: all of them, or none.
    async fn send(&self, texts: &[String]) -> Result<()>;

    /// Starts to listen, if this process does not yet.
    fn listen(&self) -> Listening;
}

/// One receiver of a bus.
#[derive(Debug)]
pub struct Listening {
    /// Whether texts are heard already; otherwise [`Heard::Hearing`] says so later.
    pub is_hearing: bool,
    /// What is heard. A receiver that falls behind loses texts, and is told how many.
    pub heard: broadcast::Receiver<Heard>,
}

/// What a receiver hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// From now on texts arrive.
    Hearing,
    /// A text.
    Text(Arc<str>),
    /// From now on texts may be missed.
    Deaf,
}
