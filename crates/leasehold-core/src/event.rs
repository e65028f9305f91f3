//! The events of a key, each published once, in order. An event never carries a lease id.

use crate::lease::OnSilence;
use crate::name::{Fence, Key, Meta, Owner, Reason};
use crate::time::StoreTime;

/// The number of an event among the events of its key: each is one more than the one before.
///
/// The first one is not always 1. The numbers of a key that the store does not know go on from a store-wide floor, which is
/// at least the last number of every key that was forgotten: they still grow, and the jump tells a consumer to take a
/// snapshot.
pub type Seq = u64;

/// The number of an event among all events of a store; what a consumer resumes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// An event with its place in the store's feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its position among all events of the store.
    pub position: Position,
    /// What happened.
    pub event: Event,
}

/// One thing that happened to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key that it happened to.
    pub key: Key,
    /// Its number among the events of the key.
    pub seq: Seq,
    /// When, on the store's clock.
    pub at: StoreTime,
    /// The fence of the lease that it happened to.
    pub fence: Fence,
    /// Who holds, or held, that lease.
    pub owner: Owner,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of event. A renewal is none: it changes nothing for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// `owner` holds the key now.
    Granted {
        /// Until when, unless it is renewed.
        expires_at: StoreTime,
        /// What else is known about the holder.
        meta: Meta,
    },
    /// `owner` holds the key no more.
    Ended {
        /// Why not.
        because: EndReason,
    },
    /// The holder is probably leaving: its lease was cut short.
    Shortened {
        /// Until when it lasts now.
        expires_at: StoreTime,
    },
    /// A holder came back after its soft release.
    Resumed {
        /// Until when, unless it is renewed.
        expires_at: StoreTime,
    },
    /// A caller requests that the holder hands the lease over.
    HandoverRequested {
        /// Who asks.
        by: Owner,
        /// What happens if the holder does not answer.
        on_silence: OnSilence,
    },
    /// The holder has confirmed the request; its time to answer is running.
    HandoverTold {
        /// Who asks.
        by: Owner,
        /// When silence counts as an answer.
        ends_at: StoreTime,
    },
    /// The holder keeps the lease.
    HandoverRefused {
        /// Who had asked.
        by: Owner,
        /// Whether it was silence that refused, not the holder.
        silent: bool,
    },
    /// The request was withdrawn, or lapsed.
    HandoverWithdrawn {
        /// Who had asked.
        by: Owner,
    },
}

/// Why a lease, or the attempt to get one, is over for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Its holder gave it back.
    Released,
    /// Its time ran out.
    Expired,
    /// Its holder left softly and did not come back.
    Disconnected,
    /// It was taken over.
    TakenOver {
        /// Who took it.
        by: Owner,
        /// In their words.
        reason: Reason,
    },
    /// It was ended by force, and is free.
    ForceReleased {
        /// Who ended it.
        by: Owner,
        /// In their words.
        reason: Reason,
    },
    /// Its holder handed it over, or was silent when asked to.
    HandedOver {
        /// Who got it.
        to: Owner,
    },
}
