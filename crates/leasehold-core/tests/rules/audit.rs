//! What must be true of every decision, whatever the test is about. Every [`World::run`] is checked with it.

use leasehold_core::event::{Event, EventKind};
use leasehold_core::lease::{Command, Context, Decision, decide};
use leasehold_core::name::{Fence, LeaseId};
use leasehold_core::time::StoreTime;

use crate::world::{World, key};

/// What the events so far add up to.
#[derive(Clone, Copy, Default)]
pub struct Audit {
    /// The lease that was granted and has not ended yet, by the events.
    open: Option<Fence>,
    /// The largest fence that any grant has carried.
    largest: Option<Fence>,
}

impl Audit {
    /// Checks a decision before it is kept, and adds it up.
    pub fn after(mut self, world: &World, command: &Command, decision: &Decision) -> Self {
        assert!(decision.events.is_empty() || decision.slot.is_some(), "events, but no change: {decision:?}");
        assert!(decision.last_fence >= world.last_fence, "the counter went back: {decision:?}");
        check_numbers(world, decision);
        for event in &decision.events {
            self.follow(event);
        }
        check_ended_stays_ended(world, decision);
        check_fence_follows_grants(world, command, decision);
        check_no_secret(world, &format!("{:?} {:?}", decision.outcome, decision.events));
        self
    }

    /// Checks the world after a decision: what was due is done, and doing it again does nothing.
    pub fn check_settled(self, world: &World) {
        let again = world.decide(&Command::Settle);
        assert!(again.slot.is_none() && again.events.is_empty() && again.ended.is_empty(), "{again:?}");
        assert_eq!(again.last_fence, world.last_fence);
        assert_eq!(world.slot.lease.as_ref().map(|lease| lease.fence), self.open, "events and slot disagree");
        assert_eq!(world.slot.live(world.now), world.slot.lease.as_ref(), "an expired lease was left behind");
        assert!(world.slot.due_at().is_none_or(|due| due > world.now), "{:?}", world.slot);
        check_due_at(world);
    }

    /// Every grant is followed by exactly one end before the next grant, and all else happens in between.
    fn follow(&mut self, event: &Event) {
        if matches!(event.kind, EventKind::Granted { .. }) {
            assert_eq!(self.open, None, "granted while held: {event:?}");
            assert!(self.largest < Some(event.fence), "the fence did not grow: {event:?}");
            (self.open, self.largest) = (Some(event.fence), Some(event.fence));
        }
        assert_eq!(self.open, Some(event.fence), "about a lease that is not there: {event:?}");
        if matches!(event.kind, EventKind::Ended { .. }) {
            self.open = None;
        }
    }
}

fn check_numbers(world: &World, decision: &Decision) {
    let numbers: Vec<_> = decision.events.iter().map(|event| event.seq).collect();
    let expected: Vec<_> = (world.slot.seq + 1..).take(numbers.len()).collect();
    assert_eq!(numbers, expected, "{decision:?}");
    if let Some(slot) = &decision.slot {
        assert_eq!(
            slot.seq,
            world.slot.seq + numbers.len() as u64,
            "a number without its event: {decision:?}"
        );
    }
    assert!(decision.events.iter().all(|event| event.at == world.now), "{decision:?}");
}

/// A lease id that is over must neither hold the key nor have a request.
fn check_ended_stays_ended(world: &World, decision: &Decision) {
    let Some(lease) = decision.slot.as_ref().and_then(|slot| slot.lease.as_ref()) else { return };
    let over =
        |id: &LeaseId| world.remembered(id).is_some() || decision.ended.iter().any(|(ended, _)| ended == id);
    assert!(!over(&lease.lease_id), "a lease id that is over holds the key: {decision:?}");
    if let Some(request) = &lease.request {
        assert!(!over(&request.bid.lease_id), "a lease id that is over asks: {decision:?}");
    }
}

/// A fence changes with a grant and with nothing else; a lease that goes on keeps its holder.
fn check_fence_follows_grants(world: &World, command: &Command, decision: &Decision) {
    let grants = decision.events.iter().filter(|event| matches!(event.kind, EventKind::Granted { .. }));
    assert_eq!(decision.last_fence - world.last_fence, grants.count() as u64, "{decision:?}");
    let after = decision.slot.as_ref().and_then(|slot| slot.lease.as_ref());
    let (Some(before), Some(after)) = (&world.slot.lease, after) else { return };
    if before.fence == after.fence {
        assert_eq!((&before.owner, before.acquired_at), (&after.owner, after.acquired_at), "{command:?}");
        let rotates = matches!(command, Command::Resume { .. });
        assert!(rotates || before.lease_id == after.lease_id, "{command:?} changed the lease id");
        let shortens = matches!(command, Command::SoftRelease { .. });
        assert!(shortens || before.expires_at <= after.expires_at, "{command:?} shortened the lease");
    }
}

/// `due_at` is what a sweeper sleeps until: nothing happens a moment earlier, something does then.
fn check_due_at(world: &World) {
    let Some(due) = world.slot.due_at() else { return };
    let at = |millis: u64| {
        let (now, last_fence) = (StoreTime::from_millis(millis), world.last_fence);
        let context =
            Context { now, last_fence, remembered: None, owner_is_full: false, asker_is_full: false };
        decide(&key(), &world.slot, &Command::Settle, &context)
    };
    assert!(at(due.as_millis() - 1).slot.is_none(), "due too early: {:?}", world.slot);
    assert!(at(due.as_millis()).slot.is_some(), "nothing is due at {due:?}: {:?}", world.slot);
}

fn check_no_secret(world: &World, shown: &str) {
    for secret in world.secrets() {
        let text = secret.reveal();
        assert!(!shown.contains(&text), "a lease id shows: {shown}");
        assert!(!shown.contains(&text.replace('-', "")), "a lease id shows: {shown}");
    }
}
