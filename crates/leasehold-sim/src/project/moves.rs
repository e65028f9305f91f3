//! What can happen next: time passes, a tab crashes, or a tab makes a move that goes through the guard.

use std::fmt;

use super::numbers::{STEP, small, stops_after};
use super::sections::{ComesTo, Do, Reply, SectionId, Sections};
use super::state::{At, Broken, Lock, State, Tab, Want};
use super::{Algorithm, Bounds};

/// Something that happens; its words are needed only in a counterexample.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    Time(u8),
    Tab(u8, &'static str),
    Does(u8, Do),
    Fails(u8, Do, bool),
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => write!(f, "{} s have passed", u64::from(*time) * STEP.as_secs()),
            Self::Tab(tab, does) => write!(f, "tab {tab} {does}"),
            Self::Does(tab, step) => write!(f, "tab {tab}, under the guard: {step:?}"),
            Self::Fails(tab, step, done) => {
                write!(
                    f,
                    "tab {tab}, under the guard: {step:?} fails, {}",
                    if *done { "done" } else { "not done" }
                )
            }
        }
    }
}

/// Adds a state that may follow, given what is done and how that changes this one.
pub(super) type Go<'a> = dyn FnMut(&'static str, &dyn Fn(&mut State)) + 'a;

/// A state that may follow.
pub(super) type Next = (Move, State);

impl State {
    pub(super) fn successors(
        &self,
        bounds: &Bounds,
        algorithm: Algorithm,
        sections: &mut Sections,
    ) -> Vec<Next> {
        let mut all = Vec::new();
        if self.time < bounds.steps {
            all.push((Move::Time(self.time + 1), Self { time: self.time + 1, ..self.clone() }));
        }
        for at in 0..self.tabs.len() {
            match algorithm {
                Algorithm::ReadCheckWrite | Algorithm::WriteThenVerify | Algorithm::RenameClaim => {
                    self.unguarded(at, bounds, algorithm, sections, &mut all);
                }
                _ => self.guarded(at, bounds, algorithm, sections, &mut all),
            }
            self.crash(at, &mut all);
        }
        all.iter_mut().for_each(|(_, next)| next.tidy());
        all
    }

    fn crash(&self, at: usize, all: &mut Vec<Next>) {
        let alive = self.tabs.get(at).is_some_and(|tab| !matches!(tab.at, At::Dead | At::Nothing));
        if self.crashes == 0 || !alive {
            return;
        }
        let who = small(at);
        let mut next = self.clone();
        next.crashes -= 1;
        next.guard = next.guard.filter(|holder| *holder != who);
        next.web = next.web.filter(|holder| *holder != who);
        next.close(|(_, holder)| *holder == Some(who));
        next.set(at, |tab| tab.at = At::Dead);
        all.push((Move::Tab(who, "crashes"), next));
    }

    /// What a tab may do that goes through the guard.
    fn guarded(
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
        match tab.at {
            At::Nothing if tab.attempt < bounds.attempts && self.may_begin(at, bounds) => {
                let has_web = bounds.tabs.get(at).copied().unwrap_or(false);
                if has_web {
                    go("queues up for the Web Lock", &|next| next.begin(at, At::Queued));
                } else {
                    go("asks for the lock", &|next| next.begin(at, At::Wanting(Want::Acquire)));
                }
                if self.take_overs > 0 {
                    go("takes over", &|next| {
                        next.take_overs -= 1;
                        next.begin(at, At::Wanting(Want::TakeOver));
                    });
                }
            }
            At::Queued => self.queued(at, algorithm, &mut go),
            At::Wanting(want) if self.guard.is_none() => {
                let base = Some(tab.seen).filter(|_| algorithm != Algorithm::BaselessCommit);
                let begun = sections.begin(want, who, tab.attempt, tab.fence, base);
                let section = self.read(begun, algorithm == Algorithm::SharedHeld, sections);
                go(name(want), &|next| {
                    next.guard = Some(who);
                    next.set(at, |tab| tab.at = At::Guarded(want, section));
                });
            }
            At::Guarded(want, section) => self.in_guard(at, want, section, algorithm, sections, all),
            At::Holding => self.holding(at, &tab, bounds, algorithm, &mut go),
            At::Swapping => {
                let mut next = self.clone();
                next.swap(at);
                next.set(at, |tab| tab.at = At::Holding);
                all.push((Move::Tab(who, "swaps the file"), next));
            }
            _ => {}
        }
    }

    fn queued(&self, at: usize, algorithm: Algorithm, go: &mut Go<'_>) {
        let owns = algorithm == Algorithm::WebLockAsOwnership;
        if self.web.is_none() {
            go("is given the Web Lock", &|next| {
                next.web = Some(small(at));
                let then = if owns { At::Holding } else { At::Wanting(Want::Acquire) };
                next.set(at, |tab| tab.at = then);
                next.stamp(at, owns);
            });
        }
        go("does not wait for the Web Lock", &|next| {
            next.set(at, |tab| tab.at = At::Wanting(Want::Acquire));
            next.stamp(at, false);
        });
    }

    fn holding(&self, at: usize, tab: &Tab, bounds: &Bounds, algorithm: Algorithm, go: &mut Go<'_>) {
        if self.believes(at) {
            if tab.renewals < bounds.renewals {
                go("wants to renew", &|next| {
                    next.set(at, |tab| (tab.at, tab.renewals) = (At::Wanting(Want::Renew), tab.renewals + 1));
                    next.stamp(at, false);
                });
            }
            if tab.saves < bounds.saves {
                let how = match algorithm {
                    Algorithm::UnfencedCommit | Algorithm::WebLockAsOwnership => At::Swapping,
                    _ => At::Wanting(Want::Save),
                };
                go("begins to save", &|next| {
                    next.set(at, |tab| (tab.at, tab.saves) = (how, tab.saves + 1));
                });
            }
        }
        // Of its own will, or because it finds out that its time is over.
        go("lets go", &|next| next.set(at, |tab| tab.at = At::Wanting(Want::Release)));
    }

    /// The next step of the section; after the last, the tab leaves it.
    fn in_guard(
        &self,
        at: usize,
        want: Want,
        section: SectionId,
        algorithm: Algorithm,
        sections: &mut Sections,
        all: &mut Vec<Next>,
    ) {
        let who = small(at);
        let Some(step) = sections.step(section) else { return };
        for (fails, happens) in [(false, true), (true, false), (true, true)] {
            if fails && !can_fail(self.failures, step) {
                continue;
            }
            let mut next = self.clone();
            if happens {
                next.perform(at, step, algorithm);
            }
            let reply = match step {
                _ if fails => Reply::Failed,
                // For the second time, after a step has failed.
                Do::ReadLock => self.lock_read(),
                _ => Reply::Done,
            };
            next.failures -= u8::from(fails);
            next.answered(at, want, sections.answer(section, reply), sections);
            let action = if fails { Move::Fails(who, step, happens) } else { Move::Does(who, step) };
            all.push((action, next));
        }
    }

    fn answered(&mut self, at: usize, want: Want, section: SectionId, sections: &Sections) {
        match sections.comes_to(section) {
            Some(comes_to) => self.leave(at, want, comes_to),
            None => self.set(at, |tab| tab.at = At::Guarded(want, section)),
        }
    }

    fn perform(&mut self, at: usize, step: Do, algorithm: Algorithm) {
        let who = small(at);
        let file = |fence| if algorithm == Algorithm::SharedHeld { 0 } else { fence };
        match step {
            Do::WriteGuard(fence) => self.last_fence = fence,
            Do::OpenHeld(fence) => self.open_held(who, file(fence)),
            Do::WriteLock(lock) => self.write_lock(at, lock, algorithm),
            Do::RemoveLock => self.lock = None,
            Do::Save => self.swap(at),
            Do::CloseHeld(fence) => {
                let file = file(fence);
                self.held
                    .retain(|(held, holder)| *held != file || holder.is_some_and(|holder| holder != who));
            }
            Do::DropHeld(fence) => {
                let file = file(fence);
                self.close(|held| *held == (file, Some(who)));
            }
            Do::Sweep(keep) => {
                let keep = file(keep);
                self.held.retain(|(held, holder)| *held == keep || holder.is_some());
            }
            Do::DropGuard => self.guard = None,
            Do::TakeGuard | Do::ReadGuard | Do::ReadLock | Do::ProbeHeld(_) | Do::ReadVersion => {}
        }
    }

    fn write_lock(&mut self, at: usize, lock: Lock, algorithm: Algorithm) {
        self.lock = Some(Lock { written: self.time, ..lock });
        if lock.fence > self.granted {
            self.forced |= self.take_overs_by(at);
            self.granted = lock.fence;
        } else if lock.tab != small(at) || self.fence_of(at) != lock.fence && algorithm == Algorithm::Ours {
            // A lock that is written again is the writer's own, or one whose write was thought to have failed.
            let again = self.tabs.get(at).is_some_and(|tab| tab.attempt == lock.attempt);
            if !again {
                self.broken = Some(Broken::GrantedTwice { fence: lock.fence });
            }
        }
    }

    fn take_overs_by(&self, at: usize) -> bool {
        self.tabs.get(at).is_some_and(|tab| matches!(tab.at, At::Guarded(Want::TakeOver, _)))
    }

    /// A held file that another tab has open stays its own.
    fn open_held(&mut self, who: u8, fence: u8) {
        match self.held.iter_mut().find(|(file, _)| *file == fence) {
            Some((_, holder)) => *holder = holder.or(Some(who)),
            None => {
                let place = self.held.partition_point(|(file, _)| *file < fence);
                self.held.insert(place, (fence, Some(who)));
            }
        }
    }

    /// A save takes effect. It must be the one of the newest owner, and made from what it replaces.
    fn swap(&mut self, at: usize) {
        let (fence, lost) = (self.fence_of(at), self.file);
        self.file += 1;
        let seen = self.tabs.get(at).map_or(0, |tab| tab.seen);
        if seen != lost {
            self.broken = Some(Broken::Overwrote { tab: small(at), lost, seen });
        }
        if fence < self.granted {
            self.broken = Some(Broken::SavedLate { tab: small(at), fence, granted: self.granted });
        }
    }

    /// The guarded section is over, and came to something.
    fn leave(&mut self, at: usize, want: Want, comes_to: ComesTo) {
        let (who, time, file) = (small(at), self.time, self.file);
        let goes_on = comes_to == ComesTo::Failed && matches!(want, Want::Renew | Want::Save);
        let keeps_web = goes_on
            || matches!(
                comes_to,
                ComesTo::Granted(_) | ComesTo::Renewed | ComesTo::Saved | ComesTo::StaleBase
            );
        if !keeps_web {
            self.web = self.web.filter(|holder| *holder != who);
        }
        self.set(at, |tab| match comes_to {
            ComesTo::Granted(fence) => {
                tab.fence = fence;
                tab.confirmed = tab.sent;
                // A grant that comes after the deadline is given back.
                let late = time >= tab.sent + stops_after();
                tab.at = if late { At::Wanting(Want::Release) } else { At::Holding };
            }
            ComesTo::Renewed if time < tab.confirmed + stops_after() => {
                tab.confirmed = tab.sent;
                tab.at = At::Holding;
            }
            ComesTo::Renewed => tab.at = At::Wanting(Want::Release),
            // It has its own save in memory; or reads the file again, and keeps a draft.
            ComesTo::Saved | ComesTo::StaleBase => (tab.at, tab.seen) = (At::Holding, file),
            ComesTo::Refused if want == Want::Renew || want == Want::Save => {
                tab.at = At::Wanting(Want::Release);
            }
            ComesTo::Released | ComesTo::Refused => tab.at = At::Nothing,
            ComesTo::Failed => tab.failed(want),
        });
    }
}

impl Tab {
    /// A section of this tab has failed.
    fn failed(&mut self, want: Want) {
        self.at = match want {
            // It may try again, under the same lease id.
            Want::Acquire | Want::TakeOver => {
                self.attempt = self.attempt.saturating_sub(1);
                At::Nothing
            }
            Want::Renew | Want::Save => At::Holding,
            Want::Release => At::Wanting(Want::Release),
        };
    }
}

fn can_fail(failures: u8, step: Do) -> bool {
    let writes =
        matches!(step, Do::WriteGuard(_) | Do::OpenHeld(_) | Do::WriteLock(_) | Do::RemoveLock | Do::Save);
    failures > 0 && writes
}

const fn name(want: Want) -> &'static str {
    match want {
        Want::Acquire => "has the guard, to acquire",
        Want::TakeOver => "has the guard, to take over",
        Want::Renew => "has the guard, to renew",
        Want::Save => "has the guard, to save",
        Want::Release => "has the guard, to release",
    }
}
