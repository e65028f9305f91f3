//! The vocabulary of the laws: parties that ask for leases, and how their events are read.

use std::time::Duration;

use leasehold_core::lease::{Bid, Claim, Lease, OnSilence, Proof, REMEMBERED, Right};
use leasehold_core::{
    Command, Event, EventKind, Fence, Key, LeaseId, Meta, Outcome, Owner, Position, Reason, TabId, Ttl,
};

use super::{Harness, JobHarness};
use crate::{Applied, Feed, Range};

/// The TTL of a party, and the countdown of its requests.
pub(super) const TTL: Duration = Duration::from_secs(30);
pub(super) const COUNTDOWN: Duration = Duration::from_secs(10);

pub(super) fn key(name: &str) -> Key {
    Key::parse(&format!("run/{name}")).unwrap()
}

pub(super) async fn apply(harness: &dyn JobHarness, key: &Key, command: Command) -> Applied {
    harness.job_store().apply(key, command).await.unwrap()
}

/// Somebody who wants leases.
#[derive(Clone, Debug)]
pub(super) struct Party {
    pub(super) owner: Owner,
    pub(super) tab: Option<TabId>,
    pub(super) lease_id: LeaseId,
    pub(super) ttl: Ttl,
    pub(super) fence: Option<Fence>,
    pub(super) ids: u64,
}

impl Party {
    /// `seed` makes its lease id; the ids of different seeds are different.
    pub(super) fn new(name: &str, seed: u8) -> Self {
        Self { owner: Owner::parse(name).unwrap(), ..Self::numbered(u64::from(seed)) }
    }

    pub(super) fn numbered(seed: u64) -> Self {
        let mut bytes = [0xA5; 16];
        bytes[8..].copy_from_slice(&seed.to_be_bytes());
        let lease_id = LeaseId::from_random(bytes);
        Self {
            owner: Owner::parse("somebody").unwrap(),
            tab: None,
            lease_id,
            ttl: Ttl::new(TTL).unwrap(),
            fence: None,
            ids: 0,
        }
    }

    pub(super) fn bid(&self) -> Bid {
        Bid {
            lease_id: self.lease_id,
            owner: self.owner.clone(),
            tab: self.tab.clone(),
            ttl: self.ttl,
            meta: Meta::default(),
        }
    }

    pub(super) fn fence(&self) -> Fence {
        self.fence.expect("it has had a lease")
    }

    /// The lease id and the owner, as of a caller with a token.
    pub(super) fn holder(&self) -> Claim {
        Claim::Holder { lease_id: self.lease_id, owner: self.owner.clone(), fence: None }
    }

    /// The same lease id, from somebody else.
    pub(super) fn stolen_by(&self, thief: &str) -> Claim {
        let owner = Owner::parse(thief).unwrap();
        Claim::Holder { lease_id: self.lease_id, owner, fence: None }
    }

    /// The owner and a tab, as of a caller that keeps no lease id.
    pub(super) fn in_tab(&self, tab: Option<TabId>) -> Claim {
        Claim::Tab { owner: self.owner.clone(), tab }
    }

    pub(super) fn claim(&self) -> Proof {
        Proof { lease_id: self.lease_id, fence: self.fence() }
    }

    pub(super) fn claim_from(&mut self, fence: Fence) {
        self.fence = Some(fence);
    }

    /// A new lease id that follows from the old one.
    pub(super) fn renew_id(&mut self) {
        self.ids += 1;
        let mut bytes = *self.lease_id.as_bytes();
        bytes[0] = u8::try_from(self.ids % 256).unwrap();
        bytes[1] = u8::try_from(self.ids / 256 % 256).unwrap();
        self.lease_id = LeaseId::from_random(bytes);
    }

    pub(super) async fn acquire(&mut self, harness: &dyn JobHarness, key: &Key) -> Applied {
        let applied = apply(harness, key, Command::Acquire(self.bid())).await;
        if let Outcome::Granted { lease, .. } = &applied.outcome {
            self.fence = Some(lease.fence);
        }
        applied
    }

    pub(super) async fn must_acquire(&mut self, harness: &dyn JobHarness, key: &Key) -> Lease {
        granted(&self.acquire(harness, key).await)
    }

    pub(super) async fn renew(&self, harness: &dyn JobHarness, key: &Key) -> Applied {
        apply(harness, key, Command::Renew { claim: self.claim().into(), ttl: None }).await
    }

    pub(super) async fn must_renew(&self, harness: &dyn JobHarness, key: &Key) -> Lease {
        let applied = self.renew(harness, key).await;
        let Outcome::Renewed(lease) = applied.outcome else {
            panic!("{key} was not renewed: {:?}", applied.outcome)
        };
        assert_eq!(lease.expires_at, applied.now + self.ttl.as_duration());
        lease
    }

    pub(super) async fn must_release(&self, harness: &dyn JobHarness, key: &Key) {
        let outcome = apply(harness, key, Command::Release(self.claim().into())).await.outcome;
        assert_eq!(outcome, Outcome::Released, "{key}");
    }

    pub(super) async fn take_over(&mut self, harness: &dyn JobHarness, key: &Key, seen: Fence) -> Applied {
        let reason = Reason::parse("on call").unwrap();
        apply(harness, key, Command::TakeOver { seen, bid: self.bid(), reason, right: Right::Force }).await
    }

    pub(super) async fn request(
        &self,
        harness: &dyn JobHarness,
        key: &Key,
        seen: Fence,
        on_silence: OnSilence,
    ) -> Outcome {
        let (countdown, patience) = (Ttl::new(COUNTDOWN).unwrap(), Ttl::new(2 * COUNTDOWN).unwrap());
        let bid = self.bid();
        apply(harness, key, Command::RequestHandover { seen, bid, on_silence, countdown, patience })
            .await
            .outcome
    }
}

pub(super) fn granted(applied: &Applied) -> Lease {
    let Outcome::Granted { lease, .. } = &applied.outcome else {
        panic!("not granted: {:?}", applied.outcome)
    };
    lease.clone()
}

pub(super) fn assert_strictly_growing(fences: &[Fence]) {
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "fences must grow: {fences:?}");
}

/// Lets so much time pass, with enough going on, that the store forgets every free key.
pub(super) async fn forget_everything(harness: &dyn JobHarness) {
    harness.advance(REMEMBERED + TTL).await;
    for number in 0..20 {
        let mut party = Party::new("bystander", 5);
        party.lease_id = LeaseId::from_random([number; 16]);
        let key = key(&format!("bystander-{number}"));
        party.must_acquire(harness, &key).await;
    }
}

pub(super) async fn all_events(harness: &dyn Harness, mut after: Position) -> Vec<Event> {
    let newest = harness.store().list(&Range::all()).await.unwrap().position;
    let mut events = Vec::new();
    while after < newest {
        let Feed::Events(batch) = harness.store().events(after, 7).await.unwrap() else { panic!("a gap") };
        for published in batch {
            assert_eq!(published.position.0, after.0 + 1, "positions have no gaps");
            after = published.position;
            events.push(published.event);
        }
    }
    events
}

pub(super) async fn events_of(harness: &dyn Harness, key: &Key, after: Position) -> Vec<Event> {
    let events: Vec<_> =
        all_events(harness, after).await.into_iter().filter(|event| event.key == *key).collect();
    assert!(
        events.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq),
        "a gap between the events of {key}: {events:?}"
    );
    events
}

pub(super) fn kind_word(event: &Event) -> &'static str {
    match event.kind {
        EventKind::Granted { .. } => "granted",
        EventKind::Ended { .. } => "ended",
        EventKind::Shortened { .. } => "shortened",
        EventKind::Resumed { .. } => "resumed",
        EventKind::HandoverRequested { .. } => "handover_requested",
        EventKind::HandoverTold { .. } => "handover_told",
        EventKind::HandoverRefused { .. } => "handover_refused",
        EventKind::HandoverWithdrawn { .. } => "handover_withdrawn",
    }
}

/// An event's kind with its details, times as since `start`.
pub(super) fn kind_detail(event: &Event, start: leasehold_core::StoreTime) -> String {
    match &event.kind {
        EventKind::Granted { expires_at, .. }
        | EventKind::Shortened { expires_at }
        | EventKind::Resumed { expires_at }
        | EventKind::HandoverTold { ends_at: expires_at, .. } => {
            format!("{} until {:?}", kind_word(event), expires_at.since(start))
        }
        kind => format!("{kind:?}"),
    }
}
