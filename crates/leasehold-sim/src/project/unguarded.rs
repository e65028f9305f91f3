//! What tabs do that use no guard: the known-bad ways of taking a lock.

use super::moves::{Move, Next};
use super::numbers::small;
use super::sections::{ComesTo, Sections};
use super::state::{At, Lock, State};
use super::{Algorithm, Bounds};

impl State {
    pub(super) fn unguarded(
        &self,
        at: usize,
        bounds: &Bounds,
        algorithm: Algorithm,
        sections: &mut Sections,
        all: &mut Vec<Next>,
    ) {
        let Some(tab) = self.tabs.get(at).copied() else { return };
        let who = small(at);
        let mut go = |does, change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            all.push((Move::Tab(who, does), next));
        };
        let own = self.lock.is_some_and(|lock| lock.tab == who);
        match tab.at {
            At::Nothing
                if tab.attempt < bounds.attempts
                    && self.may_begin(at, bounds)
                    && self.looks_free(at, sections) =>
            {
                go("finds the lock free", &|next| next.begin(at, At::Looked));
            }
            At::Looked if algorithm == Algorithm::RenameClaim => match self.lock {
                Some(_) => go("moves the stale lock away", &|next| {
                    next.lock = None;
                    next.set(at, |tab| tab.at = At::Moved);
                }),
                None => go("creates the lock", &|next| next.write(at, At::Holding)),
            },
            // Creating fails where there is one.
            At::Moved if self.lock.is_none() => go("creates the lock", &|next| next.write(at, At::Holding)),
            At::Looked if algorithm == Algorithm::WriteThenVerify => {
                go("writes the lock", &|next| next.write(at, At::Written));
            }
            At::Looked => go("writes the lock", &|next| next.write(at, At::Holding)),
            At::Written if own => go("sees its own lock", &|next| next.set(at, |tab| tab.at = At::Holding)),
            At::Written => go("sees another lock", &|next| next.set(at, |tab| tab.at = At::Nothing)),
            _ => {}
        }
    }

    fn looks_free(&self, at: usize, sections: &mut Sections) -> bool {
        matches!(self.acquire_would_come_to(at, sections), Some(ComesTo::Granted(_)))
    }

    fn write(&mut self, at: usize, then: At) {
        let fence = self.granted + 1;
        let attempt = self.tabs.get(at).map_or(0, |tab| tab.attempt);
        self.lock = Some(Lock { tab: small(at), attempt, fence, written: self.time, held: false });
        self.granted = fence;
        self.set(at, |tab| (tab.fence, tab.confirmed, tab.at) = (fence, tab.sent, then));
    }
}
