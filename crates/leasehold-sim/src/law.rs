//! What must hold in every world. The numbers are those of `docs/laws.md`.

use std::fmt;

/// One thing that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// At most one lease per key at a time, in the store's own order.
    OneLease,
    /// Fences strictly grow over the grants of a key.
    FencesGrow,
    /// The store's clock never goes back.
    ClockForward,
    /// A crash does not put the store's clock back by more than a second while there are leases.
    ClockKept,
    /// Nobody loses a lease before its time, except by force, a hand-over or its own soft release.
    TtlIsALowerBound,
    /// A client that waits for a key gets it soon after it is free.
    WaitersAreServed,
    /// A lease is released by nobody but its holder.
    OnlyTheHolderReleases,
    /// A claim is accepted if it fits the lease, and only then.
    ClaimsAreCompared,
    /// One lease id is granted once, however often it is asked for.
    GrantedOnce,
    /// What was answered is still true after any crash.
    AnswersSurvive,
    /// No answer says "granted" or "renewed" about a lease that is over.
    AnswersAreTrue,
    /// An expired lease stays expired.
    NoRevival,
    /// A holder stops believing before its lease ends.
    HolderStopsFirst,
    /// Never do two clients believe that they hold the same key.
    OneBeliever,
    /// Nobody believes without a grant.
    BeliefHasAGrant,
    /// An accepted write is never lost, and the rightful holder is never refused.
    FencedWrites,
    /// Events come in order, without a gap that is not announced.
    EventsInOrder,
    /// What was told has happened, and stays so.
    EventsAreTrue,
    /// Every grant ends once.
    OneEnd,
}

impl Law {
    /// The law in words, with its number in the list of laws.
    pub const fn words(self) -> &'static str {
        match self {
            Self::OneLease => "law 1: at most one unexpired lease per key, in store order",
            Self::FencesGrow => "law 2: fences strictly grow over the grants of a key",
            Self::ClockForward => "law 3: the store's clock never goes back",
            Self::ClockKept => "law 10: a crash puts the store's clock back by a second at most",
            Self::TtlIsALowerBound => "law 4: the TTL is a lower bound for the holder",
            Self::WaitersAreServed => "law 4: a free key goes to a waiting client, at most 1 s after the TTL",
            Self::OnlyTheHolderReleases => "law 5: a release never touches another client's lease",
            Self::ClaimsAreCompared => "law 5: a claim is compared with the lease",
            Self::GrantedOnce => "law 7: one lease id is granted once",
            Self::AnswersSurvive => "law 7: a grant is durable before it is acknowledged",
            Self::AnswersAreTrue => "law 7: no answer grants a lease that is over",
            Self::NoRevival => "law 3: an expired lease is never revived",
            Self::HolderStopsFirst => "law 8: the holder's deadline is earlier than the store's",
            Self::OneBeliever => "law 8: two clients never both believe that they hold",
            Self::BeliefHasAGrant => "law 8: nobody believes without a grant",
            Self::FencedWrites => "law 2: an accepted fenced write is never lost",
            Self::EventsInOrder => "law 9: events per key are ordered and gap-free",
            Self::EventsAreTrue => "law 9: an event is published after its commit",
            Self::OneEnd => "law 9: one grant, one end",
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// A law that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which law.
    pub law: Law,
    /// When, in milliseconds of true time.
    pub at: u64,
    /// What happened.
    pub what: String,
}
