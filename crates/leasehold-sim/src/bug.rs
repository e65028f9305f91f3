//! Mistakes that lock services have really made, to be put into a world on purpose: a checker that lets one of them
//! pass is not worth running. `docs/proof.md` says who had which.

use crate::law::Law;

/// A mistake on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A client that is woken because the key was freed believes it has the lease, and does not ask for it.
    NoRecheckAfterWaiting,
    /// A release ends whatever lease is there.
    ReleaseWithoutCompare,
    /// A claim by tab is compared without its owner.
    TabWithoutOwner,
    /// The claim is copied out of the record, and so compared with itself.
    ClaimFromRecord,
    /// A release puts the fence counter back.
    FenceResetOnRelease,
    /// A restart begins to count fences anew.
    FenceResetOnRestart,
    /// The holder counts its time from when the answer came, not from when the request was sent.
    DeadlineFromAnswer,
    /// The holder takes a request to hand over for withdrawn because an answer does not name it, however old the answer.
    LateAnswerEndsRequest,
    /// A renewal brings an expired lease back.
    ExpiredRevived,
    /// The answer goes out while the write is still under way.
    AckBeforeDurable,
    /// The event goes out while the write is still under way.
    EventBeforeCommit,
    /// The sweeper tells of an expiry that was told before.
    DoubleExpiry,
    /// A stale lease is taken over in two steps: away with what is there, then a new one.
    UnlinkThenCreate,
    /// A repeated acquire is taken for a new one.
    RetryGrantsTwice,
    /// After a write of which nobody knows whether it failed, the server goes on as if it had.
    NoReloadAfterUnknownWrite,
    /// After such a write the state is read anew, but not the time that was written with it.
    ReloadForgetsTheClock,
    /// While nothing else is written, the clock is not either.
    IdleClockNotWritten,
    /// A commit is not compared with the epoch of the file: a server that was replaced goes on.
    EpochNotCompared,
    /// When a copy of the file was put in its place, fences go on where they were in the copy.
    CopyRepeatsFences,
}

impl Bug {
    /// All of them, with the name that the command line uses and the laws that catch it, the one it is
    /// meant for first.
    pub const ALL: [(Self, &'static str, &'static [Law]); 19] = [
        (Self::NoRecheckAfterWaiting, "no-recheck-after-waiting", &[Law::BeliefHasAGrant]),
        (
            Self::ReleaseWithoutCompare,
            "release-without-compare",
            &[Law::OnlyTheHolderReleases, Law::ClaimsAreCompared],
        ),
        (
            Self::TabWithoutOwner,
            "tab-without-owner",
            &[Law::ClaimsAreCompared, Law::OnlyTheHolderReleases, Law::HolderStopsFirst],
        ),
        (
            Self::ClaimFromRecord,
            "claim-from-record",
            &[Law::ClaimsAreCompared, Law::OnlyTheHolderReleases, Law::HolderStopsFirst],
        ),
        (Self::FenceResetOnRelease, "fence-reset-on-release", &[Law::FencesGrow]),
        (Self::FenceResetOnRestart, "fence-reset-on-restart", &[Law::FencesGrow]),
        (Self::DeadlineFromAnswer, "deadline-from-answer", &[Law::HolderStopsFirst, Law::OneBeliever]),
        (Self::LateAnswerEndsRequest, "late-answer-ends-request", &[Law::HolderStopsFirst, Law::OneBeliever]),
        (Self::ExpiredRevived, "expired-revived", &[Law::NoRevival]),
        (Self::AckBeforeDurable, "ack-before-durable", &[Law::AnswersSurvive, Law::BeliefHasAGrant]),
        (Self::EventBeforeCommit, "event-before-commit", &[Law::EventsAreTrue]),
        (Self::DoubleExpiry, "double-expiry", &[Law::OneEnd]),
        (Self::UnlinkThenCreate, "unlink-then-create", &[Law::TtlIsALowerBound]),
        (Self::RetryGrantsTwice, "retry-grants-twice", &[Law::GrantedOnce]),
        (
            Self::NoReloadAfterUnknownWrite,
            "no-reload-after-unknown-write",
            &[
                Law::EventsInOrder,
                Law::FencesGrow,
                Law::OneLease,
                Law::NoRevival,
                Law::OneEnd,
                Law::ClockForward,
            ],
        ),
        (Self::ReloadForgetsTheClock, "reload-forgets-the-clock", &[Law::ClockForward]),
        (Self::IdleClockNotWritten, "idle-clock-not-written", &[Law::ClockKept]),
        (
            Self::EpochNotCompared,
            "epoch-not-compared",
            &[
                Law::EventsInOrder,
                Law::ClockForward,
                Law::ClaimsAreCompared,
                Law::OneLease,
                Law::FencesGrow,
                Law::OneEnd,
                Law::NoRevival,
                Law::GrantedOnce,
            ],
        ),
        (Self::CopyRepeatsFences, "copy-repeats-fences", &[Law::FencesGrow, Law::FencedWrites]),
    ];

    /// The bug of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(bug, _, _)| *bug)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(bug, _, _)| *bug == self).map_or("", |(_, name, _)| name)
    }

    /// The laws that catch it, the one it is meant for first.
    pub fn caught_by(self) -> &'static [Law] {
        Self::ALL.iter().find(|(bug, _, _)| *bug == self).map_or(&[], |(_, _, laws)| laws)
    }
}

impl std::str::FromStr for Bug {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(|(_, name, _)| name).join(", ");
        Self::parse(name).ok_or_else(|| format!("there is no such bug; there are: {}", known()))
    }
}
