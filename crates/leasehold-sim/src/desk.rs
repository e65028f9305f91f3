//! Where the requests of this world meet the product's rules, and where mistakes are put in: decisions that a buggy
//! server would make instead. Without a mistake every request is decided as in the product.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use leasehold_core::lease::{Bid, Claim, LossReason};
use leasehold_core::{Command, EndReason, Event, EventKind, Key, Lease, Outcome, Published, Slot};
use leasehold_store::changes::{Ending, Known};
use leasehold_store::resident::Staged;
use leasehold_store::writer::{self, Commit, Overlay};
use leasehold_store::{Applied, Error};

use crate::bug::Bug;
use crate::checker::Decided;
use crate::message::Request;

/// How many keys one sweep settles.
const PER_SWEEP: usize = 64;

/// What all requests to one store share: the mistake that it makes, and the answers that wait to be sent.
#[derive(Default)]
pub struct Desk {
    bug: Option<Bug>,
    /// The answers, in order; `None` for trouble.
    outbox: RefCell<Vec<(Rc<Request>, Option<Applied>)>>,
    /// What a buggy server comes back to.
    stale: RefCell<Vec<Rc<Request>>>,
    /// What a buggy server remembers.
    last_expired: RefCell<Option<Event>>,
    last_lease: RefCell<BTreeMap<Key, Lease>>,
}

/// Something that is asked of the store.
pub struct Asked {
    what: What,
    desk: Rc<Desk>,
}

enum What {
    /// A command, and whether the key was found stale before: only a buggy server remembers that.
    Apply { request: Rc<Request>, seen_stale: bool },
    /// The sweeper's question.
    SettleDue,
}

/// A decision that waits for its commit. A sweep has nobody to answer.
pub struct Answer {
    /// The decision.
    pub decided: Option<Decided>,
    desk: Rc<Desk>,
}

impl writer::Request for Asked {
    type Answer = Answer;

    fn decide(self, overlay: &mut Overlay<'_>) -> Answer {
        let decided = match self.what {
            What::Apply { request, seen_stale } => {
                let outcome = self.desk.decide(overlay, &request, seen_stale);
                let after_events = overlay.staged.events.len();
                outcome.map(|outcome| Decided { request, outcome, after_events })
            }
            What::SettleDue => {
                self.desk.settle(overlay);
                None
            }
        };
        Answer { decided, desk: self.desk }
    }

    fn refuse(self, _: Error) {
        if let What::Apply { request, .. } = self.what {
            self.desk.outbox.borrow_mut().push((request, None));
        }
    }
}

impl writer::Answer for Answer {
    fn send(self, commit: &Commit) {
        if let Some(Decided { request, outcome, .. }) = self.decided {
            let applied = Applied { outcome, now: commit.now, position: commit.position };
            self.desk.outbox.borrow_mut().push((request, Some(applied)));
        }
    }

    fn refuse(self, _: Error) {
        if let Some(Decided { request, .. }) = self.decided {
            self.desk.outbox.borrow_mut().push((request, None));
        }
    }
}

impl Desk {
    /// The desk of a store that makes this mistake.
    pub fn new(bug: Option<Bug>) -> Rc<Self> {
        Rc::new(Self { bug, ..Self::default() })
    }

    /// A client's command.
    pub fn command(self: &Rc<Self>, request: Rc<Request>, seen_stale: bool) -> Asked {
        Asked { what: What::Apply { request, seen_stale }, desk: self.clone() }
    }

    /// The sweeper's question.
    pub fn sweep(self: &Rc<Self>) -> Asked {
        Asked { what: What::SettleDue, desk: self.clone() }
    }

    /// Takes the answers that are to be sent.
    pub fn take_answers(&self) -> Vec<(Rc<Request>, Option<Applied>)> {
        self.outbox.take()
    }

    /// Takes the requests that a buggy server comes back to.
    pub fn take_stale(&self) -> Vec<Rc<Request>> {
        self.stale.take()
    }

    /// What a buggy server remembers of a commit.
    pub fn remember(&self, staged: &Staged) {
        if self.bug == Some(Bug::DoubleExpiry) {
            let is_expiry =
                |event: &&Event| matches!(event.kind, EventKind::Ended { because: EndReason::Expired });
            let expired = staged.events.iter().map(|published| &published.event).rfind(is_expiry);
            if let Some(expired) = expired {
                self.last_expired.replace(Some(expired.clone()));
            }
        }
        if self.bug == Some(Bug::ExpiredRevived) {
            for (key, slot) in &staged.slots {
                if let Some(lease) = slot.as_ref().and_then(|slot| slot.lease.clone()) {
                    self.last_lease.borrow_mut().insert(key.clone(), lease);
                }
            }
        }
    }

    fn settle(&self, overlay: &mut Overlay<'_>) {
        if self.bug == Some(Bug::UnlinkThenCreate) {
            return;
        }
        overlay.settle_due(PER_SWEEP);
        if self.bug == Some(Bug::DoubleExpiry) {
            self.tell_expiry_again(overlay);
        }
    }

    /// Decides, perhaps with a mistake. `None` when the answer comes later.
    fn decide(&self, overlay: &mut Overlay<'_>, request: &Rc<Request>, seen_stale: bool) -> Option<Outcome> {
        let (key, command) = (&request.key, &request.command);
        let Some(bug) = self.bug else { return Some(overlay.apply(key, command)) };
        let (slot, now) = (staged_slot(overlay, key), overlay.staged.now);
        let is_stale = slot.lease.is_some() && slot.live(now).is_none();
        match (bug, command) {
            (Bug::ReleaseWithoutCompare, Command::Release(claim)) => {
                let current = slot.live(now).map(|lease| lease.proof().into());
                Some(overlay.apply(key, &Command::Release(current.unwrap_or_else(|| claim.clone()))))
            }
            (Bug::TabWithoutOwner | Bug::ClaimFromRecord, _) => {
                let live = slot.live(now);
                Some(
                    overlay.apply(
                        key,
                        &live.map_or_else(|| command.clone(), |lease| misread(bug, command, lease)),
                    ),
                )
            }
            (Bug::FenceResetOnRelease, Command::Release(_)) => {
                let outcome = overlay.apply(key, command);
                if let (Outcome::Released, Some(lease)) = (&outcome, &slot.lease) {
                    overlay.staged.counters.last_fence = lease.fence.get() - 1;
                }
                Some(outcome)
            }
            (Bug::ExpiredRevived, Command::Renew { claim, .. }) => {
                let revived = self.revive(overlay.staged, key, &slot, claim);
                Some(revived.unwrap_or_else(|| overlay.apply(key, command)))
            }
            (Bug::RetryGrantsTwice, Command::Acquire(bid) | Command::AcquireInTab(bid))
                if slot.live(now).is_none() =>
            {
                Some(grant_anew(overlay.staged, key, &slot, bid))
            }
            (Bug::UnlinkThenCreate, Command::Acquire(_) | Command::AcquireInTab(_)) if seen_stale => {
                unlink(overlay.staged, key, slot);
                Some(overlay.apply(key, command))
            }
            (Bug::UnlinkThenCreate, Command::Acquire(_) | Command::AcquireInTab(_)) if is_stale => {
                self.stale.borrow_mut().push(request.clone());
                None
            }
            _ => Some(overlay.apply(key, command)),
        }
    }

    fn revive(&self, staged: &mut Staged, key: &Key, slot: &Slot, claim: &Claim) -> Option<Outcome> {
        let remembered = self.last_lease.borrow();
        let last = slot.lease.as_ref().or_else(|| remembered.get(key))?;
        let free = slot.live(staged.now).is_none();
        let fits = claim.fits(last) && last.is_expired(staged.now);
        let mut lease = last.clone();
        lease.expires_at = staged.now + lease.ttl.as_duration();
        (free && fits).then(|| {
            staged.slots.insert(key.clone(), Some(Slot { lease: Some(lease.clone()), ..slot.clone() }));
            Outcome::Renewed(lease)
        })
    }

    fn tell_expiry_again(&self, overlay: &mut Overlay<'_>) {
        let Some(event) = self.last_expired.take() else { return };
        let mut slot = staged_slot(overlay, &event.key);
        if slot.lease.is_none() {
            slot.seq += 1;
            let again = Event { seq: slot.seq, at: overlay.staged.now, ..event.clone() };
            publish(overlay.staged, again);
            overlay.staged.slots.insert(event.key, Some(slot));
        }
    }
}

/// The command with the claim that a buggy server takes it to have, when this is the lease.
pub(crate) fn misread(bug: Bug, command: &Command, lease: &Lease) -> Command {
    let mut command = command.clone();
    if let Command::Release(claim)
    | Command::Renew { claim, .. }
    | Command::Resume { claim, .. }
    | Command::HandoverTold { claim, .. }
    | Command::AnswerHandover { claim, .. } = &mut command
    {
        match (bug, &mut *claim) {
            (Bug::ClaimFromRecord, _) => *claim = lease.proof().into(),
            (Bug::TabWithoutOwner, Claim::Tab { owner, .. }) => owner.clone_from(&lease.owner),
            _ => {}
        }
    }
    command
}

fn staged_slot(overlay: &Overlay<'_>, key: &Key) -> Slot {
    let staged = overlay.staged.slots.get(key).and_then(Option::as_ref);
    staged.cloned().unwrap_or_else(|| overlay.resident.slot(key))
}

fn publish(staged: &mut Staged, event: Event) {
    staged.counters.position.0 += 1;
    staged.events.push(Published { position: staged.counters.position, event });
}

/// Decides as if no lease id had ever ended.
fn grant_anew(staged: &mut Staged, key: &Key, slot: &Slot, bid: &Bid) -> Outcome {
    let mut changes = staged.changes();
    // What just ended would be remembered too, so it is settled under another name first.
    changes.decide(key, slot, &Command::Settle, Known::default());
    let between = changes.slots.pop().map_or_else(|| slot.clone(), |(_, slot)| slot);
    let outcome = changes.decide(key, &between, &Command::Acquire(bid.clone()), Known::default());
    changes.endings.clear();
    staged.take_in(slot, changes);
    outcome
}

/// Ends an expired lease as a step of its own.
fn unlink(staged: &mut Staged, key: &Key, mut slot: Slot) {
    let Some(lease) = slot.lease.take() else { return };
    let (at, because) = (staged.now, LossReason::Expired);
    staged.endings.push(Ending { at, key: key.clone(), lease_id: lease.lease_id, because });
    (slot.seq, slot.vacant_since) = (slot.seq + 1, at);
    let kind = EventKind::Ended { because: EndReason::Expired };
    let (fence, owner) = (lease.fence, lease.owner);
    publish(staged, Event { key: key.clone(), seq: slot.seq, at, fence, owner, kind });
    staged.slots.insert(key.clone(), Some(slot));
}
