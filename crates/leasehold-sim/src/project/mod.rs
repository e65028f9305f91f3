//! Every state of a small world around one project folder: two or three tabs, with and without Web Locks, that acquire,
//! renew, save, release, crash, freeze and fall asleep at any step. What happens under the guard is said, step by step, by
//! the real [`Section`](leasehold_project_rules::Section); what is walked through is everything that can happen around it,
//! within [`Bounds`].
//!
//! A frozen tab is one that makes no move while others do and time passes, so every way of freezing is among the walks. The
//! known-bad [`Algorithm`]s walk through the same world, and each of them must be found out.

mod moves;
mod numbers;
mod sections;
mod state;
mod unguarded;

use std::cell::{Cell, RefCell};

use sections::Sections;
use state::State;

use crate::walk;

/// How tabs go about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// As it is.
    Ours,
    /// Look whether `.lock` is free, then write it; no guard.
    ReadCheckWrite,
    /// Write it, then look whether one's own is still there; no guard.
    WriteThenVerify,
    /// Move a stale `.lock` out of the way, then create a new one; no guard.
    RenameClaim,
    /// A save checks the lease before it begins, and not in the guarded section that swaps the file.
    UnfencedCommit,
    /// A save does not compare the file with what it was made from.
    BaselessCommit,
    /// Who has the Web Lock holds the project; who has none asks `.lock`.
    WebLockAsOwnership,
    /// One held file for all holders, instead of one for each fence.
    SharedHeld,
}

/// How much may happen in a small world.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Which tabs there are, and whether each has Web Locks.
    pub tabs: &'static [bool],
    /// Whether a tab that is gone left its lock behind.
    pub stale: bool,
    /// How many steps of time there are.
    pub steps: u8,
    /// How often each tab may try to acquire.
    pub attempts: u8,
    /// How often each tab renews, at most.
    pub renewals: u8,
    /// How often each tab saves, at most.
    pub saves: u8,
    /// How many tabs may crash.
    pub crashes: u8,
    /// How many steps may fail, done or not.
    pub failures: u8,
    /// How often the lock may be taken over by force.
    pub take_overs: u8,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Walk {
    /// How many different states there are.
    pub states: usize,
    /// In how many of them a dead holder's lock was there to be taken, and could be.
    pub recoveries: usize,
    /// The shortest way to a state that must not be, if there is one, and what is wrong with it.
    pub counterexample: Option<(String, Vec<String>)>,
}

/// Walks through every state that can be reached.
pub fn walk(bounds: &Bounds, algorithm: Algorithm) -> Walk {
    let sections = RefCell::new(Sections::default());
    let recoveries = Cell::new(0);
    let walk::Walk { states, counterexample } = walk::walk(
        State::start(bounds),
        |state| state.successors(bounds, algorithm, &mut sections.borrow_mut()),
        |state, _| state.wrong(algorithm, &mut sections.borrow_mut(), &recoveries),
    );
    Walk { states, recoveries: recoveries.get(), counterexample }
}
