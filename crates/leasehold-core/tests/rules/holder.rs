//! The holder's side against a store, over a network that delays, reorders and loses, on clocks that run at the same
//! rate and share nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::holder::{
    Action, Confirm, Keeper, Lost, PendingRequest, Reply, Terms, longest_wind_down, margin, renew_after,
    stop_after,
};
use leasehold_core::lease::{Command, LossReason, OnSilence, Outcome};
use leasehold_core::name::Owner;
use leasehold_core::time::{HolderTime, StoreTime, Ttl};
use proptest::prelude::*;

use crate::world::{World, ask_command, bid, owner, secs};

fn at(millis: u64) -> HolderTime {
    HolderTime::from_millis(millis)
}

/// The answer to a renewal.
fn kept(seconds: u64) -> Reply {
    Reply::Kept(Terms::of(secs(seconds)))
}

/// A request whose silence grants, after so many seconds.
fn pending(seq: u64, countdown: u64) -> PendingRequest {
    PendingRequest {
        seq,
        by: Owner::parse("bob").unwrap(),
        name: None,
        on_silence: OnSilence::Grant,
        countdown: secs(countdown),
        left: None,
    }
}

#[test]
fn winding_down_takes_the_last_third_and_a_renewal_comes_before() {
    assert_eq!(longest_wind_down(Duration::from_secs(27)), Duration::from_secs(9));
    for seconds in [1, 2, 5, 15, 30, 300, 86_400] {
        let usable = stop_after(secs(seconds).as_duration(), secs(seconds));
        let begins = usable - longest_wind_down(usable);
        assert!(renew_after(secs(seconds)) < begins, "{seconds} s");
    }
}

#[test]
fn what_a_store_answers_is_a_reply_to_the_holder() {
    let now = StoreTime::from_millis(5_000);
    let reply = |outcome: &Outcome| Reply::in_store(outcome, now, 7);
    let told = Outcome::Told { ends_at: StoreTime::from_millis(9_000) };
    assert_eq!(reply(&told), Some(Reply::Counting { request: 7, left: Duration::from_secs(4) }));
    for outcome in [Outcome::Refused, Outcome::NoRequest] {
        assert_eq!(reply(&outcome), Some(Reply::RequestOver { request: 7 }));
    }
    let lost = Outcome::Lost { because: LossReason::TakenOver, held: None };
    assert_eq!(reply(&lost), Some(Reply::Lost(LossReason::TakenOver)));
    assert_eq!(reply(&Outcome::Released), None, "no answer to what a keeper sends");
}

/// A renewal does not undo a soft release. A holder that counted on the whole TTL again would believe in its lease for longer
/// than the store does.
#[test]
fn a_renewed_lease_that_was_released_softly_has_what_is_left_of_it() {
    let mut world = World::new();
    world.acquire("alice");
    world.soft_release("alice", 5);
    let renewed =
        |world: &World| Reply::in_store(&Outcome::Renewed(world.lease().clone()), world.now, 0).unwrap();
    assert_eq!(renewed(&world), Reply::Kept(Terms::of(secs(5))));
    world.pass(4);
    assert_eq!(renewed(&world), Reply::Kept(Terms::of(secs(1))));
    world.pass(1);
    assert_eq!(renewed(&world), Reply::Lost(LossReason::Disconnected), "nothing to count on");
}

#[test]
fn the_latest_request_counts_whatever_order_the_answers_come_in() {
    let mut keeper = Keeper::new(at(0), secs(30));
    let with = |seq| Reply::Kept(Terms { request: Some(pending(seq, 20)), ..Terms::of(secs(30)) });
    for (sent, seq, known) in [(1_000, 3, 3), (2_000, 5, 5), (1_500, 3, 5), (3_000, 6, 6)] {
        keeper.handle_reply(at(sent), at(3_500), with(seq));
        assert_eq!(keeper.request().map(|request| request.seq), Some(known), "after {seq}");
    }
}

// --- law 8, case by case ---

#[test]
fn law_08_an_older_answer_does_not_move_the_deadline() {
    let mut keeper = Keeper::new(at(0), secs(30));
    keeper.handle_reply(at(12_000), at(12_500), kept(30));
    keeper.handle_reply(at(10_000), at(13_000), kept(30));
    assert_eq!(keeper.deadline(), at(39_000));
}

#[test]
fn law_08_the_deadline_is_earlier_than_the_stores_by_the_margin() {
    for seconds in [1, 2, 5, 15, 30, 300, 86_400] {
        let ttl = secs(seconds);
        let keeper = Keeper::new(at(7_000), ttl);
        let margin = (ttl.as_duration() / 10).max(Duration::from_millis(500));
        assert_eq!(keeper.deadline() + margin, at(7_000) + ttl.as_duration(), "{seconds} s");
    }
}

#[test]
fn law_08_a_holder_that_polls_too_late_is_told_to_stop() {
    let mut keeper = Keeper::new(at(0), secs(30));
    assert_eq!(keeper.poll(at(500_000)), Action::Stop(Lost::Deadline));
    assert_eq!(keeper.lost(), Some(Lost::Deadline));
}

#[test]
fn a_lease_that_is_given_back_is_neither_held_nor_renewed() {
    let mut keeper = Keeper::new(at(0), secs(30));
    keeper.release();
    assert!(!keeper.is_held(at(1)));
    assert_eq!(
        (keeper.lost(), keeper.poll(at(15_000))),
        (Some(Lost::Released), Action::Stop(Lost::Released))
    );
}

#[test]
fn a_bid_counts_against_the_leases_of_its_owner() {
    let bidder = owner("anna");
    let bids = [
        Command::Acquire(bid("anna", 30)),
        Command::AcquireInTab(bid("anna", 30)),
        ask_command(bid("anna", 30), OnSilence::Refuse, 1),
    ];
    assert!(bids.iter().all(|command| command.bidder() == Some(&bidder)));
    assert_eq!(Command::Settle.bidder(), None);
}

/// The first confirmation arrived and its answer was lost: the store counts from the first, so must the holder.
#[test]
fn law_08_confirming_a_hand_over_again_does_not_push_the_deadline_back() {
    let asked = || Reply::Kept(Terms { request: Some(pending(1, 10)), ..Terms::of(secs(30)) });
    let mut keeper = Keeper::new(at(0), secs(30));
    keeper.handle_reply(at(900), at(1_000), asked());
    assert_eq!(keeper.confirm(1, at(1_000)), Confirm::Send);
    assert_eq!(keeper.confirm(1, at(5_000)), Confirm::Send);
    assert_eq!(keeper.deadline(), at(8_000));
    keeper.handle_reply(at(6_000), at(6_100), asked());
    assert_eq!(keeper.deadline(), at(8_000), "a renewal does not answer the request");
}

/// A tab of the same holder confirmed the request, or a confirmation arrived whose sender was reloaded: the keeper that hears of
/// the countdown in the answer to a renewal has to stop in time, too.
#[test]
fn law_08_a_countdown_that_another_confirmed_is_heeded() {
    let with = |left: Option<u64>| {
        let request = PendingRequest { left: left.map(Duration::from_secs), ..pending(1, 10) };
        Reply::Kept(Terms { request: Some(request), ..Terms::of(secs(30)) })
    };
    let mut keeper = Keeper::new(at(0), secs(30));
    keeper.handle_reply(at(900), at(1_000), with(None));
    assert_eq!(keeper.deadline(), at(27_900), "nobody counts down yet");
    keeper.handle_reply(at(2_000), at(2_100), with(Some(10)));
    assert_eq!(keeper.deadline(), at(9_000));
}

/// A renewal may bring a shorter TTL. The plan has to follow it, or a healthy holder sleeps through its deadline.
#[test]
fn a_shorter_ttl_brings_the_next_renewal_forward() {
    let mut keeper = Keeper::new(at(0), secs(300));
    keeper.handle_reply(at(1_000), at(1_000), kept(5));
    let Action::Wait(until) = keeper.poll(at(1_000)) else { panic!("nothing is due yet") };
    assert!(until < keeper.deadline(), "{until:?} is not before {:?}", keeper.deadline());
    assert_eq!(keeper.poll(until), Action::Renew, "the time to renew comes before the end");
}

// --- the simulation ---

/// What happens to one request and its answer; `None` is lost.
#[derive(Clone, Copy, Debug)]
struct Trip {
    there: Option<u64>,
    back: Option<u64>,
    ttl: u64,
    /// How long the holder is paused after sending it.
    nap: u64,
}

const NONE: Trip = Trip { there: None, back: None, ttl: 30, nap: 0 };
const GOOD: Trip = Trip { there: Some(50), back: Some(50), ttl: 30, nap: 0 };

#[derive(Clone, Debug)]
enum Message {
    Renewal { sent: u64, trip: Trip },
    Replied { sent: u64, reply: Reply },
    Confirmation,
    Ask,
}

/// One holder, one store, and the messages between them. All times are real; each side sees its own clock.
struct Sim {
    now: u64,
    /// What the holder's clock shows at real time zero.
    offset: u64,
    origin: u64,
    store: World,
    keeper: Keeper,
    trips: Vec<Trip>,
    /// How all further messages fare when the script has come to its end.
    rest: Trip,
    messages: BTreeMap<(u64, usize), Message>,
    sent_messages: usize,
    asleep_until: u64,
}

impl Sim {
    fn new(offset: u64, mut trips: Vec<Trip>, rest: Trip) -> Self {
        let mut store = World::new();
        let origin = store.now.as_millis();
        let ttl = trips.first().map_or(30, |trip| trip.ttl);
        store.acquire_for("alice", ttl);
        trips.reverse();
        Self {
            now: 0,
            offset,
            origin,
            store,
            keeper: Keeper::new(at(offset), secs(ttl)),
            trips,
            rest,
            messages: BTreeMap::new(),
            sent_messages: 0,
            asleep_until: 0,
        }
    }

    /// Runs until the holder stops, or for so long; checks the promise all the way.
    fn run(&mut self, until: u64) {
        while self.now < until && self.keeper.lost().is_none() {
            self.deliver();
            let wake = self.turn();
            let message = self.messages.keys().next().map_or(u64::MAX, |(time, _)| *time);
            let next = wake.min(message).min(until).max(self.now + 1);
            self.check_promise(next);
            self.now = next;
        }
    }

    /// Until `next`, nothing changes on either side: it is enough to look at the first and the last moment.
    fn check_promise(&self, next: u64) {
        let deadline = self.keeper.deadline().as_millis().saturating_sub(self.offset);
        for real in [self.now, next.min(deadline).saturating_sub(1).max(self.now)] {
            if self.keeper.is_held(at(real + self.offset)) {
                assert!(
                    self.store_agrees(real),
                    "held at {real} ms, but not in the store: {:?}",
                    self.store.slot
                );
            }
        }
    }

    fn store_agrees(&self, real: u64) -> bool {
        let mut store_then = World::new();
        store_then.now = StoreTime::from_millis(self.origin + real);
        store_then.slot = self.store.slot.clone();
        store_then.last_fence = self.store.last_fence;
        let check = store_then.decide(&Command::Check { fence: self.store.proof("alice").fence });
        matches!(check.outcome, Outcome::Checked { current: true, .. })
    }

    /// The holder's turn; gives the time at which it wants the next one.
    fn turn(&mut self) -> u64 {
        if self.now < self.asleep_until {
            return self.asleep_until;
        }
        match self.keeper.poll(at(self.now + self.offset)) {
            Action::Stop(_) => self.now,
            Action::Wait(time) => {
                assert!(
                    time > at(self.now + self.offset),
                    "a wait that is over would be waited again and again"
                );
                time.as_millis() - self.offset
            }
            Action::Renew => {
                self.renew();
                self.now
            }
        }
    }

    fn renew(&mut self) {
        let trip = self.trips.pop().unwrap_or(self.rest);
        self.asleep_until = self.now + trip.nap;
        self.send(trip.there, Message::Renewal { sent: self.now, trip });
    }

    fn send(&mut self, delay: Option<u64>, message: Message) {
        if let Some(delay) = delay {
            self.sent_messages += 1;
            self.messages.insert((self.now + delay, self.sent_messages), message);
        }
    }

    fn deliver(&mut self) {
        self.store.now = StoreTime::from_millis(self.origin + self.now);
        while let Some(entry) = self.messages.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let message = entry.remove();
            self.receive(message);
        }
    }

    fn receive(&mut self, message: Message) {
        let claim = self.store.claim("alice");
        match message {
            Message::Renewal { sent, trip } => {
                let renewal = Command::Renew { claim, ttl: Some(secs(trip.ttl)) };
                let answer = self.store.decide(&renewal).outcome;
                self.store.run(&renewal);
                // What the store answers when the lease is lost is not needed: the holder must be safe without it.
                let reply = Reply::in_store(&answer, self.store.now, 0);
                if let Some(reply @ Reply::Kept(_)) = reply {
                    self.send(trip.back, Message::Replied { sent, reply });
                }
            }
            Message::Replied { sent, reply } => {
                let now = at(self.now + self.offset);
                self.keeper.handle_reply(at(sent + self.offset), now, reply);
            }
            Message::Confirmation => {
                let request = self.store.slot.lease.as_ref().and_then(|lease| lease.request.as_ref());
                let request = request.map_or(0, |request| request.seq);
                self.store.run(&Command::HandoverTold { claim, request });
            }
            Message::Ask => {
                let seen = self.store.proof("alice").fence.get();
                self.store.run(&ask_command(bid("bob", 30), OnSilence::Grant, seen));
            }
        }
    }

    /// Bob asks now and goes on asking; alice knows at once, and says so as often as there are delays.
    fn ask(&mut self, delays: &[Option<u64>]) {
        self.store.now = StoreTime::from_millis(self.origin + self.now);
        self.receive(Message::Ask);
        // A renewal that is answered in no time tells alice.
        let at_once = Trip { back: Some(0), ..GOOD };
        self.receive(Message::Renewal { sent: self.now, trip: at_once });
        self.deliver();
        for again in (0..120_000).step_by(10_000) {
            self.send(Some(again), Message::Ask);
        }
        for delay in delays {
            // Before it is sent, as the answer may never come.
            let request = self.keeper.request().map_or(0, |request| request.seq);
            self.keeper.confirm(request, at(self.now + self.offset));
            self.send(*delay, Message::Confirmation);
            self.run(self.now + 2_000);
            if self.keeper.lost().is_some() {
                break;
            }
        }
    }
}

fn delay() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![4 => (0u64..200).prop_map(Some), 3 => (0u64..40_000).prop_map(Some), 1 => Just(None)]
}

fn trip() -> impl Strategy<Value = Trip> {
    let nap = prop_oneof![6 => Just(0), 1 => 0u64..60_000];
    let ttl = prop_oneof![4 => Just(30), 2 => prop::sample::select(vec![1, 2, 5, 29, 60, 300])];
    (delay(), delay(), ttl, nap).prop_map(|(there, back, ttl, nap)| Trip { there, back, ttl, nap })
}

fn good_trip() -> impl Strategy<Value = Trip> {
    let ttl = prop::sample::select(vec![1, 2, 5, 30, 300]);
    (0u64..100, 0u64..100, ttl).prop_map(|(there, back, ttl)| Trip {
        there: Some(there),
        back: Some(back),
        ttl,
        nap: 0,
    })
}

proptest! {
    #![proptest_config(crate::cases(1_000))]

    #[test]
    fn law_08_who_believes_it_holds_does(
        offset in 0u64..1_000_000_000_000,
        trips in prop::collection::vec(trip(), 0..20),
    ) {
        let mut sim = Sim::new(offset, trips, NONE);
        sim.run(u64::MAX);
        prop_assert_eq!(sim.keeper.lost(), Some(Lost::Deadline), "the network ends, and so does the belief");
    }

    #[test]
    fn law_08_who_was_asked_to_hand_over_stops_before_it_is_taken(
        offset in 0u64..1_000_000_000_000,
        trips in prop::collection::vec(trip(), 0..10),
        asked_at in 0u64..30_000,
        told in prop::collection::vec(delay(), 1..6),
    ) {
        let mut sim = Sim::new(offset, trips, NONE);
        sim.run(asked_at);
        if sim.keeper.lost().is_none() {
            sim.ask(&told);
        }
        sim.run(u64::MAX);
        prop_assert_eq!(sim.keeper.lost(), Some(Lost::Deadline));
    }

    #[test]
    fn a_holder_with_a_good_network_keeps_its_lease(
        offset in 0u64..1_000_000_000_000,
        trips in prop::collection::vec(good_trip(), 5..40),
    ) {
        // Some thirty renewals at the pace of the first lease.
        let until = trips[0].ttl * 10_000;
        let mut sim = Sim::new(offset, trips, GOOD);
        sim.run(until);
        prop_assert_eq!(sim.keeper.lost(), None);
    }

    #[test]
    fn a_margin_is_never_all_there_is(millis in Ttl::MIN.as_millis()..=Ttl::MAX.as_millis()) {
        let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
        prop_assert!(margin(ttl.as_duration()) * 2 <= ttl.as_duration());
        prop_assert!(Keeper::new(at(0), ttl).is_held(at(0)));
    }
}
