//! The database that several servers share: every turn of a server is one transaction on it, and its clock runs on
//! whatever happens to the servers.

use std::time::Duration;

use leasehold_store::Limits;
use leasehold_store::clock::LeaseClock;
use leasehold_store::resident::Staged;
use leasehold_store::writer::{Commit, Loaded, Overlay, Request as _, View};

use crate::desk::{Answer, Asked};

/// How many keys are forgotten along with one transaction.
const FORGET_PER_TURN: usize = 64;

/// The committed state, and the clock.
pub struct Database {
    view: View,
    clock: LeaseClock,
    limits: Limits,
}

impl Database {
    /// A database in which this is.
    pub fn new(loaded: Loaded, raw: u64) -> Self {
        let clock = LeaseClock::new(loaded.clock, raw, Duration::MAX);
        Self { view: View::new(loaded), clock, limits: Limits::default() }
    }

    /// What readers see.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Decides in a transaction that is still open.
    pub fn decide(&mut self, asked: Vec<Asked>, raw: u64) -> (Staged, Vec<Answer>) {
        let now = self.clock.turn(raw);
        let resident = self.view.resident();
        let mut staged = resident.stage(now);
        let mut overlay = Overlay { resident: &resident, staged: &mut staged, limits: &self.limits };
        let answers = asked.into_iter().map(|asked| asked.decide(&mut overlay)).collect();
        resident.forget(&mut staged, FORGET_PER_TURN);
        (staged, answers)
    }

    /// Commits it.
    pub fn commit(&self, staged: Staged) -> Commit {
        self.view.commit(staged)
    }
}
