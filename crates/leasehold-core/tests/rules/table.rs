//! Acquire, renew, release, soft release, resume, take over, withdraw, check: the rows of each command.

use leasehold_core::event::{EndReason, EventKind};
use leasehold_core::lease::{
    Bid, Claim, Command, LossReason, OnSilence, Outcome, Proof, REMEMBERED, Right, Slot,
};
use leasehold_core::name::{Fence, Meta};
use leasehold_core::time::StoreTime;

use crate::world::{Act, COUNTDOWN, TTL, World, bid, fence, holder, in_tab, lease_id, owner};

/// A world in which alice has just been granted the key.
pub fn held_by_alice() -> World {
    let mut world = World::new();
    assert_eq!(world.acquire("alice"), "granted #1");
    world
}

// --- acquire ---

#[test]
fn acquire_of_a_free_key_is_granted_whole() {
    let mut world = World::new();
    let meta = Meta::new([("name".to_owned(), "Alice".to_owned())]).unwrap();
    let wanted = Bid { meta: meta.clone(), ..bid("alice", 5) };
    let Outcome::Granted { lease, extended: false } = world.decide(&Command::Acquire(wanted)).outcome else {
        panic!("not granted")
    };
    assert_eq!((lease.owner.as_str(), lease.lease_id, lease.fence), ("alice", lease_id("alice"), fence(1)));
    assert_eq!((lease.acquired_at, lease.renewed_at), (world.now, world.now));
    assert_eq!(lease.expires_at.since(world.now).as_millis(), 5_000);
    assert_eq!((lease.meta, lease.leaving, lease.request), (meta, false, None));
    assert_eq!(world.story().len(), 0, "nothing is kept before the store keeps it");
    assert_eq!(world.acquire("alice"), "granted #1");
    assert_eq!(world.story(), ["1 alice#1 granted"]);
}

#[test]
fn acquire_of_a_held_key_says_by_whom_and_until_when() {
    let mut world = held_by_alice();
    world.pass(10);
    let decision = world.decide(&Command::Acquire(bid("bob", TTL)));
    let Outcome::Held(held) = decision.outcome else { panic!("not held: {:?}", decision.outcome) };
    assert_eq!((held.by, held.fence), (owner("alice"), fence(1)));
    assert_eq!(held.until.since(world.now).as_millis(), 20_000);
    assert!(decision.slot.is_none() && decision.ended.is_empty(), "being refused changes nothing");
    // The same owner in another tab is another holder.
    assert_eq!(world.acquire("alice/2"), "held by alice#1");
}

#[test]
fn acquire_is_idempotent_on_its_lease_id() {
    let mut world = held_by_alice();
    world.pass(10);
    assert_eq!(world.acquire("alice"), "extended #1");
    assert_eq!(world.left(), 30_000);
    assert_eq!(world.story(), ["1 alice#1 granted"]);
}

#[test]
fn acquire_with_somebody_elses_lease_id_gives_nothing_away() {
    let mut world = held_by_alice();
    let stolen = Bid { owner: owner("mallory"), ..bid("alice", TTL) };
    assert_eq!(world.run(&Command::Acquire(stolen)), "held by alice#1");
    assert_eq!(world.left(), 30_000);
}

#[test]
fn an_ended_lease_id_answers_lost_for_ten_minutes() {
    let mut world = held_by_alice();
    world.release("alice");
    for _ in 0..2 {
        assert_eq!(world.acquire("alice"), "lost: released");
        world.pass_millis(REMEMBERED.as_millis() as u64 / 2 - 1);
    }
    world.pass_millis(1);
    assert_eq!(world.acquire("alice"), "lost: released");
    world.pass_millis(1);
    assert_eq!(world.acquire("alice"), "granted #2");
}

#[test]
fn every_way_to_end_a_lease_is_remembered_with_its_reason() {
    check_end("released", |world| world.release("alice"));
    check_end("expired", |world| {
        world.pass(TTL);
        world.settle()
    });
    check_end("disconnected", |world| {
        world.soft_release("alice", 5);
        world.pass(5);
        world.settle()
    });
    check_end("taken_over", |world| world.take_over("bob"));
    check_end("handed_over", |world| {
        world.ask("bob", OnSilence::Grant);
        world.answer("alice", 2, true)
    });
    check_end("resumed", |world| world.resume("alice", "alice/again"));
    check_end("released", |world| world.withdraw("alice"));
}

/// After `end`, alice's lease id is over for whatever it tries, and nothing that it tries changes anything.
fn check_end(reason: &str, end: impl Fn(&mut World) -> String) {
    let mut world = held_by_alice();
    end(&mut world);
    let (slot, told) = (world.slot.clone(), world.events.len());
    let request = Command::HandoverTold { claim: world.claim("alice"), request: 2 };
    let answers = [
        world.acquire("alice"),
        world.renew("alice"),
        world.release("alice"),
        world.soft_release("alice", 5),
        world.resume("alice", "alice/other"),
        world.take_over("alice"),
        world.ask("alice", OnSilence::Grant),
        world.run(&request),
        world.answer("alice", 2, true),
    ];
    for answer in &answers {
        assert!(answer.starts_with(&format!("lost: {reason}")), "{reason}: {answers:?}");
    }
    assert_eq!(world.withdraw("alice"), "withdrawn");
    assert_eq!(world.story_since(told), Vec::<String>::new(), "{reason}");
    assert_eq!(world.slot, slot, "{reason}");
}

#[test]
fn owner_is_full_stops_new_grants_and_nothing_else() {
    let mut world = held_by_alice();
    world.owner_is_full = true;
    assert_eq!(world.acquire("alice"), "extended #1");
    assert_eq!(world.renew("alice"), "renewed #1");
    assert_eq!(world.acquire("bob"), "held by alice#1");
    assert_eq!(world.take_over("bob"), "owner is full");
    assert_eq!(world.ask("bob", OnSilence::Grant), "owner is full");
    assert_eq!(world.release("alice"), "released");
    assert_eq!(world.acquire("bob"), "owner is full");
    world.owner_is_full = false;
    assert_eq!(world.acquire("bob"), "granted #2", "being full does not end a lease id");
}

/// A silent hand-over went to an asker that had come to hold as many leases as one may since it asked.
#[test]
fn silence_gives_nothing_to_an_asker_that_is_full_by_then() {
    let mut world = held_by_alice();
    assert_eq!(world.ask("bob", OnSilence::Grant), "requested as 2, held by alice#1");
    let asked = world.slot.seq;
    world.told("alice", asked);
    world.asker_is_full = true;
    world.pass(COUNTDOWN);
    world.settle();
    assert_eq!(world.renew("alice"), "renewed #1");
    assert_eq!(world.ask("bob", OnSilence::Grant), "lost: refused, held by alice#1");
}

// --- law 2: fences ---

#[test]
fn law_02_a_fence_grows_through_release_expiry_and_take_over() {
    let mut world = held_by_alice();
    world.release("alice");
    assert_eq!(world.acquire("bob"), "granted #2");
    world.pass(TTL);
    assert_eq!(world.acquire("carol"), "granted #3");
    assert_eq!(world.take_over("dave"), "granted #4");
    world.ask("erin", OnSilence::Grant);
    let request = world.slot.seq;
    assert_eq!(world.answer("dave", request, true), "handed over to erin");
    assert_eq!(world.current_fence(), 5);
    assert_eq!(world.last_fence, 5);
}

#[test]
fn law_02_renewal_keeps_the_fence() {
    let mut world = held_by_alice();
    for _ in 0..5 {
        world.pass(20);
        assert_eq!(world.renew("alice"), "renewed #1");
    }
    assert_eq!(world.last_fence, 1);
    assert_eq!(world.story(), ["1 alice#1 granted"], "renewals are not told");
}

#[test]
fn law_02_a_fence_grows_through_a_purge() {
    let mut world = held_by_alice();
    world.release("alice");
    world.pass_millis(REMEMBERED.as_millis() as u64 - 1);
    assert!(!world.slot.is_forgettable(world.now));
    world.pass_millis(1);
    world.forget();
    assert_eq!(world.acquire("bob"), "granted #2");
    assert_eq!(world.story_since(2), ["3 bob#2 granted"], "numbers go on from the floor");
}

#[test]
fn law_02_a_fence_comes_from_the_counter_of_the_whole_store() {
    let mut world = World::after_fence(41);
    assert_eq!(world.acquire("alice"), "granted #42");
    // Another key was granted in between.
    world.last_fence = 99;
    assert_eq!(world.take_over("bob"), "granted #100");
}

#[test]
fn the_last_fence_is_given_out_and_none_after_it() {
    let mut world = World::after_fence(Fence::MAX.get() - 1);
    assert_eq!(world.acquire("alice"), format!("granted #{}", Fence::MAX));
    assert_eq!(world.take_over("bob"), "fences exhausted");
    assert_eq!(world.acquire("alice"), format!("extended #{}", Fence::MAX), "the holder keeps what it has");
    assert!(world.ask("bob", OnSilence::Grant).starts_with("requested as 2"));
    assert_eq!(world.answer("alice", 2, true), "fences exhausted");
    assert_eq!(world.told("alice", 2), "told", "the request is still there");
    world.pass(10);
    world.settle();
    assert_eq!(world.story().last().unwrap(), &format!("4 alice#{} refused bob by silence", Fence::MAX));
    assert_eq!(world.release("alice"), "released");
    assert_eq!(world.acquire("carol"), "fences exhausted");
    assert_eq!(world.last_fence, Fence::MAX.get());
}

// --- law 3: expiry ---

#[test]
fn law_03_expired_means_expires_at_lte_now() {
    for (millis, expected) in [(29_999, "held by alice#1"), (30_000, "granted #2"), (30_001, "granted #2")] {
        let mut world = held_by_alice();
        world.pass_millis(millis);
        assert_eq!(world.acquire("bob"), expected, "{millis} ms after the grant");
    }
}

#[test]
fn law_03_expiry_needs_no_sweeper() {
    let mut world = held_by_alice();
    world.pass(TTL);
    assert!(world.slot.lease.is_some(), "nobody has looked yet");
    assert!(world.slot.live(world.now).is_none());
    assert_eq!(world.check(1), "not current");
}

#[test]
fn law_03_due_at_is_the_expiry() {
    let world = held_by_alice();
    assert_eq!(world.slot.due_at(), Some(world.lease().expires_at));
    assert_eq!(Slot::unknown(7).due_at(), None);
    assert_eq!(Slot::unknown(7).live(StoreTime::ZERO), None);
}

#[test]
fn an_expired_lease_is_never_revived() {
    for revive in [World::renew, World::acquire, |w: &mut World, who: &str| w.resume(who, "alice/again")] {
        let mut world = held_by_alice();
        world.pass(TTL);
        assert_eq!(revive(&mut world, "alice"), "lost: expired");
        assert_eq!(world.acquire("bob"), "granted #2");
        assert_eq!(revive(&mut world, "alice"), "lost: expired, held by bob#2");
        assert_eq!(world.lease().owner, owner("bob"));
    }
}

// --- renew ---

#[test]
fn renew_extends_from_now() {
    let mut world = held_by_alice();
    world.pass(29);
    assert_eq!(world.renew("alice"), "renewed #1");
    assert_eq!(world.left(), 30_000);
    assert_eq!(world.lease().renewed_at, world.now);
    assert!(world.lease().acquired_at < world.now);
}

#[test]
fn renew_takes_a_new_ttl_and_keeps_it() {
    let mut world = held_by_alice();
    world.renew_for("alice", 60);
    assert_eq!(world.left(), 60_000);
    world.pass(50);
    world.renew("alice");
    assert_eq!(world.left(), 60_000);
}

#[test]
fn law_04_a_late_copy_of_a_shorter_renewal_takes_nothing_back() {
    let mut world = held_by_alice();
    world.renew_for("alice", 300);
    world.renew_for("alice", 5);
    assert_eq!(world.left(), 300_000);
    world.acquire_for("alice", 5);
    assert_eq!(world.left(), 300_000);
}

#[test]
fn law_05_renew_and_release_compare_lease_id_and_fence() {
    let mut world = held_by_alice();
    let wrong = [
        Claim::Proof(Proof { lease_id: lease_id("alice"), fence: fence(2) }),
        Claim::Proof(Proof { lease_id: lease_id("mallory"), fence: fence(1) }),
        Claim::Holder { lease_id: lease_id("mallory"), owner: owner("alice"), fence: None },
        Claim::Holder { lease_id: lease_id("alice"), owner: owner("alice"), fence: Some(fence(2)) },
        Claim::Tab { owner: owner("mallory"), tab: None },
        in_tab("alice/2"),
    ];
    for claim in wrong {
        for command in holders_commands(&claim) {
            assert_eq!(world.run(&command), "lost: unknown, held by alice#1", "{command:?}");
        }
    }
    let soft_release = Command::SoftRelease { lease_id: lease_id("mallory"), grace: crate::world::secs(5) };
    assert_eq!(world.run(&soft_release), "lost: unknown, held by alice#1");
    assert_eq!((world.left(), world.events.len()), (30_000, 1));
}

/// Everything that only the holder may do, with a claim.
fn holders_commands(claim: &Claim) -> [Command; 5] {
    [
        Command::Renew { claim: claim.clone(), ttl: None },
        Command::Release(claim.clone()),
        Command::Resume { claim: claim.clone(), next: lease_id("next") },
        Command::HandoverTold { claim: claim.clone(), request: 1 },
        Command::AnswerHandover { claim: claim.clone(), request: 1, hand_over: true },
    ]
}

#[test]
fn law_05_each_claim_is_enough_by_itself() {
    let right: [fn(&World) -> Claim; 4] = [
        |world| world.claim("alice/1"),
        |_| holder("alice/1"),
        |world| Claim::Holder {
            lease_id: lease_id("alice/1"),
            owner: owner("alice"),
            fence: Some(world.lease().fence),
        },
        |_| in_tab("alice/1"),
    ];
    for claim in right {
        let mut world = World::new();
        world.acquire("alice/1");
        world.pass(10);
        assert_eq!(world.run(&Command::Renew { claim: claim(&world), ttl: None }), "renewed #1");
        assert_eq!(world.left(), 30_000);
        world.ask("bob", OnSilence::Refuse);
        assert_eq!(world.run(&Command::HandoverTold { claim: claim(&world), request: 2 }), "told");
        let no = Command::AnswerHandover { claim: claim(&world), request: 2, hand_over: false };
        assert_eq!(world.run(&no), "refused");
        assert_eq!(world.run(&Command::Release(claim(&world))), "released");
    }
}

/// A lease id may leak; at a door, a caller's name does not. The answer says which of the two was wrong.
#[test]
fn law_05_anothers_lease_id_is_of_no_use() {
    let mut world = held_by_alice();
    for fence in [None, Some(fence(1)), Some(fence(2))] {
        let stolen = Claim::Holder { lease_id: lease_id("alice"), owner: owner("mallory"), fence };
        for command in holders_commands(&stolen) {
            assert_eq!(world.run(&command), "not yours, held by alice#1", "{command:?}");
        }
    }
    let withdraw = Command::Withdraw { lease_id: lease_id("alice"), owner: owner("mallory") };
    assert_eq!(world.run(&withdraw), "not yours, held by alice#1");
    world.ask("bob", OnSilence::Grant);
    let withdraw = Command::Withdraw { lease_id: lease_id("bob"), owner: owner("mallory") };
    assert_eq!(world.run(&withdraw), "not yours, held by alice#1");
    assert_eq!((world.left(), world.events.len()), (30_000, 2));
}

/// What a door tells callers apart by: nobody holds the key, or another does.
#[test]
fn a_claim_to_nothing_names_no_holder() {
    let claims = [holder("alice"), in_tab("alice"), in_tab("alice/2")];
    for claim in &claims {
        let mut world = World::new();
        assert_eq!(world.run(&Command::Renew { claim: claim.clone(), ttl: None }), "lost: unknown");
        world.acquire("bob");
        let renew = Command::Renew { claim: claim.clone(), ttl: None };
        assert_eq!(world.run(&renew), "lost: unknown, held by bob#1");
    }
    let mut world = held_by_alice();
    world.pass(TTL);
    assert_eq!(world.run(&Command::Renew { claim: holder("alice"), ttl: None }), "lost: expired");
    assert_eq!(world.run(&Command::Renew { claim: in_tab("alice"), ttl: None }), "lost: unknown");
}

// --- acquire in a tab ---

#[test]
fn a_tab_gets_its_lease_again_and_only_its_own() {
    let mut world = World::new();
    let mut acquire = |who: &str, draw: &str| {
        world.pass(1);
        world.run(&Command::AcquireInTab(Bid { lease_id: lease_id(draw), ..bid(who, TTL) }))
    };
    assert_eq!(acquire("alice/1", "a"), "granted #1");
    assert_eq!(acquire("alice/1", "b"), "extended #1");
    assert_eq!(acquire("alice/2", "c"), "held by alice#1");
    assert_eq!(acquire("alice", "d"), "held by alice#1");
    assert_eq!(acquire("bob/1", "e"), "held by alice#1");
    assert_eq!(acquire("alice/1", "f"), "extended #1");
    assert_eq!(world.lease().lease_id, lease_id("a"), "and under the same lease id");
    assert_eq!(world.left(), 30_000);
    assert_eq!(world.events.len(), 1);
    world.pass(TTL);
    assert_eq!(
        world.run(&Command::AcquireInTab(Bid { lease_id: lease_id("g"), ..bid("alice/1", TTL) })),
        "granted #2"
    );
}

#[test]
fn a_caller_that_brings_a_lease_id_gets_nothing_by_its_tab() {
    let mut world = World::new();
    world.acquire("alice/1");
    let other = Bid { lease_id: lease_id("other"), ..bid("alice/1", TTL) };
    assert_eq!(world.run(&Command::Acquire(other)), "held by alice#1");
}

#[test]
fn a_tab_is_none_or_one() {
    let mut world = held_by_alice();
    assert_eq!(world.run(&Command::Renew { claim: in_tab("alice"), ttl: None }), "renewed #1");
    world.take_over("alice/2");
    let renew = |who: &str| Command::Renew { claim: in_tab(who), ttl: None };
    assert_eq!(world.run(&renew("alice")), "lost: unknown, held by alice#2");
    assert_eq!(world.run(&renew("alice/2")), "renewed #2");
}

#[test]
fn a_lease_that_was_handed_over_is_in_the_tab_of_whoever_asked() {
    let mut world = held_by_alice();
    world.ask("bob/7", OnSilence::Grant);
    world.told("alice", 2);
    assert_eq!(world.answer("alice", 2, true), "handed over to bob");
    assert_eq!(world.run(&Command::Renew { claim: in_tab("bob/7"), ttl: None }), "renewed #2");
}

#[test]
fn law_05_a_late_release_never_touches_the_successor() {
    let mut world = held_by_alice();
    world.pass(TTL);
    assert_eq!(world.acquire("bob"), "granted #2");
    for answer in [world.release("alice"), world.soft_release("alice", 1), world.renew("alice")] {
        assert_eq!(answer, "lost: expired, held by bob#2");
    }
    assert_eq!(world.withdraw("alice"), "withdrawn");
    assert_eq!(world.renew("bob"), "renewed #2");
}

#[test]
fn law_06_of_many_racers_for_one_stale_lease_one_wins() {
    let mut world = held_by_alice();
    world.pass(TTL);
    let answers: Vec<_> = ["b", "c", "d", "e"].iter().map(|who| world.acquire(who)).collect();
    assert_eq!(answers, ["granted #2", "held by b#2", "held by b#2", "held by b#2"]);
}

#[test]
fn law_09_one_expiry_gives_one_event() {
    let notice: [Act; 5] = [
        |world| world.settle(),
        |world| world.check(1),
        |world| world.renew("alice"),
        |world| world.acquire("alice"),
        |world| world.withdraw("bob"),
    ];
    for first in notice {
        let mut world = held_by_alice();
        world.pass(TTL);
        first(&mut world);
        world.settle();
        world.pass(1);
        world.settle();
        assert_eq!(world.story(), ["1 alice#1 granted", "2 alice#1 ended: expired"]);
    }
}

#[test]
fn law_09_an_event_says_what_a_watcher_needs() {
    let world = held_by_alice();
    let event = &world.events[0];
    assert_eq!((event.key.as_str(), event.at, event.fence), ("doc/minutes", world.now, fence(1)));
    let expires_at = world.lease().expires_at;
    assert_eq!(event.kind, EventKind::Granted { expires_at, meta: Meta::default() });
}

// --- release ---

#[test]
fn release_frees_the_key_and_is_told_once() {
    let mut world = held_by_alice();
    assert_eq!(world.release("alice"), "released");
    assert_eq!(world.release("alice"), "lost: released");
    assert_eq!(world.story(), ["1 alice#1 granted", "2 alice#1 ended: released"]);
    assert_eq!(world.slot.vacant_since, world.now);
    assert_eq!(world.acquire("bob"), "granted #2");
}

// --- soft release and resume ---

#[test]
fn a_soft_release_shortens_the_lease_and_ends_it_as_disconnected() {
    let mut world = held_by_alice();
    assert_eq!(world.soft_release("alice", 5), "shortened #1");
    assert_eq!(world.left(), 5_000);
    world.pass_millis(4_999);
    assert_eq!(world.acquire("bob"), "held by alice#1");
    world.pass_millis(1);
    assert_eq!(world.acquire("bob"), "granted #2");
    let expected =
        ["1 alice#1 granted", "2 alice#1 shortened", "3 alice#1 ended: disconnected", "4 bob#2 granted"];
    assert_eq!(world.story(), expected);
}

#[test]
fn a_soft_release_never_lengthens_a_lease() {
    let mut world = held_by_alice();
    world.pass(28);
    world.soft_release("alice", 5);
    assert_eq!(world.left(), 2_000);
    world.pass(1);
    world.soft_release("alice", 5);
    assert_eq!(world.left(), 1_000);
    assert_eq!(world.story(), ["1 alice#1 granted", "2 alice#1 shortened"], "a repetition is not told");
}

#[test]
fn a_second_soft_release_may_shorten_further() {
    let mut world = held_by_alice();
    world.soft_release("alice", 20);
    world.soft_release("alice", 5);
    assert_eq!(world.left(), 5_000);
    assert_eq!(world.events.len(), 3);
}

#[test]
fn a_page_that_comes_back_within_the_grace_has_the_whole_lease_again() {
    let back: [Act; 2] = [|world| world.acquire("alice"), |world| world.resume("alice", "alice/2")];
    for come_back in back {
        let mut world = held_by_alice();
        world.soft_release("alice", 5);
        world.pass(4);
        come_back(&mut world);
        assert_eq!((world.left(), world.lease().leaving), (30_000, false));
        assert_eq!(world.story_since(2), ["3 alice#1 resumed"]);
        world.pass(30);
        world.settle();
        assert_eq!(world.story_since(3), ["4 alice#1 ended: expired"], "not disconnected any more");
    }
}

/// A Worker's heartbeat was under way when the page was closed, and came in after its soft release: everybody else waited for
/// 30 s instead of 5.
#[test]
fn a_renewal_after_a_soft_release_does_not_restore_the_whole_lease() {
    let mut world = held_by_alice();
    world.soft_release("alice", 5);
    world.pass(1);
    assert_eq!(world.renew("alice"), "renewed #1");
    assert_eq!((world.left(), world.lease().leaving), (4_000, true));
    assert_eq!(world.story_since(2), Vec::<String>::new(), "nothing to announce");
    world.pass(4);
    world.settle();
    assert_eq!(world.story_since(2), ["3 alice#1 ended: disconnected"]);
}

#[test]
fn resume_rotates_the_lease_id_and_keeps_the_fence() {
    let mut world = held_by_alice();
    assert_eq!(world.resume("alice", "alice/again"), "extended #1");
    assert_eq!(world.renew("alice"), "lost: resumed, held by alice#1", "a copied page has the old id");
    assert_eq!(world.renew("alice/again"), "renewed #1");
    assert_eq!(world.story(), ["1 alice#1 granted"], "to everybody else it is the same lease");
}

#[test]
fn law_07_a_repeated_resume_gives_the_same_lease() {
    let mut world = held_by_alice();
    world.resume("alice", "alice/again");
    world.pass(10);
    assert_eq!(world.resume("alice", "alice/again"), "extended #1");
    assert_eq!((world.left(), world.lease().lease_id), (30_000, lease_id("alice/again")));
    // A duplicated tab that shows the old id does not get to choose a new one.
    assert_eq!(world.resume("alice", "alice/duplicate"), "lost: resumed, held by alice#1");
}

#[test]
fn a_late_soft_release_of_a_page_that_was_reloaded_changes_nothing() {
    let mut world = held_by_alice();
    world.resume("alice", "alice/again");
    assert_eq!(world.soft_release("alice", 5), "lost: resumed, held by alice#1");
    assert_eq!(world.left(), 30_000);
}

// --- take over ---

#[test]
fn take_over_ends_the_lease_with_its_reason_and_grants_another() {
    let mut world = held_by_alice();
    assert_eq!(world.take_over("bob"), "granted #2");
    let expected = ["1 alice#1 granted", "2 alice#1 ended: taken over by bob (urgent)", "3 bob#2 granted"];
    assert_eq!(world.story(), expected);
    assert_eq!(world.renew("alice"), "lost: taken_over, held by bob#2");
}

#[test]
fn take_over_of_the_same_user_in_another_tab() {
    let mut world = held_by_alice();
    assert_eq!(world.take_over("alice/2"), "granted #2");
    assert_eq!(world.renew("alice"), "lost: taken_over, held by alice#2");
}

#[test]
fn law_05_take_over_compares_the_fence_as_seen() {
    let mut world = held_by_alice();
    world.take_over("bob");
    assert_eq!(world.take_over_seen("carol", 1), "held by bob#2");
    assert_eq!(world.take_over_seen("carol", 3), "held by bob#2");
    assert_eq!(world.take_over_seen("carol", 2), "granted #3");
}

#[test]
fn law_07_a_repeated_take_over_gives_the_same_lease() {
    let mut world = held_by_alice();
    world.take_over_seen("bob", 1);
    world.pass(10);
    assert_eq!(world.take_over_seen("bob", 1), "extended #2");
    assert_eq!((world.left(), world.events.len()), (30_000, 3));
    world.release("bob");
    assert_eq!(world.take_over_seen("bob", 1), "lost: released");
}

#[test]
fn take_over_of_a_key_that_is_free_by_now_is_an_acquire() {
    let mut world = held_by_alice();
    world.pass(TTL);
    assert_eq!(world.take_over_seen("bob", 1), "granted #2");
    assert_eq!(world.story_since(1), ["2 alice#1 ended: expired", "3 bob#2 granted"]);
}

/// A browser keeps its lease id while another user signs in: the id of the live lease comes with another owner. If a
/// take-over went through, one and the same id would be remembered as over and hold the key.
#[test]
fn a_lease_id_is_never_ended_and_granted_at_once() {
    let other = Bid { owner: owner("bob"), ..bid("alice", TTL) };
    let reason = leasehold_core::Reason::default();
    let commands = [
        Command::TakeOver { seen: fence(1), bid: other.clone(), reason, right: Right::Force },
        crate::world::ask_command(other, OnSilence::Grant, 1),
    ];
    for command in commands {
        let mut world = held_by_alice();
        let decision = world.decide(&command);
        assert!(matches!(decision.outcome, Outcome::Held(_)), "{:?}", decision.outcome);
        assert_eq!(world.run(&command), "held by alice#1");
        assert_eq!(world.events.len(), 1);
    }
}

/// A user who pressed "take over" twice was in the audit as having taken a lock from himself, and had a new fence.
#[test]
fn taking_over_ones_own_lock_in_the_same_tab_is_a_renewal() {
    let tab = |name| leasehold_core::TabId::parse(name).unwrap();
    let bid_in = |who: &str, name| Bid { tab: Some(tab(name)), owner: owner("alice"), ..bid(who, TTL) };
    let take = |bid, right| Command::TakeOverInTab {
        seen: fence(1),
        bid,
        reason: leasehold_core::Reason::default(),
        right,
    };
    for right in [Right::Force, Right::SameOwner] {
        let mut world = World::new();
        world.run(&Command::AcquireInTab(bid_in("alice", "one")));
        world.pass(10);
        assert_eq!(world.run(&take(bid_in("alice/2", "one"), right)), "extended #1");
        assert_eq!((world.left(), world.events.len()), (30_000, 1), "nothing was taken");
        assert_eq!(world.run(&take(bid_in("alice/3", "two"), right)), "granted #2", "from another tab");
    }
}

#[test]
fn without_force_one_takes_only_ones_own() {
    let mut world = held_by_alice();
    let take = |who: &str, seen: u64| Command::TakeOver {
        seen: fence(seen),
        bid: bid(who, TTL),
        reason: leasehold_core::Reason::default(),
        right: Right::SameOwner,
    };
    assert_eq!(world.run(&take("bob", 1)), "held by alice#1");
    assert_eq!(world.run(&take("alice/2", 2)), "held by alice#1");
    assert_eq!(world.events.len(), 1);
    assert_eq!(world.run(&take("alice/2", 1)), "granted #2");
    world.release("alice/2");
    assert_eq!(world.run(&take("bob", 2)), "granted #3", "what is free is acquired");
}

// --- force release ---

#[test]
fn a_forced_release_ends_the_lease_as_seen_and_nothing_else() {
    let by = |seen| Command::ForceRelease {
        seen: fence(seen),
        by: owner("root"),
        reason: leasehold_core::Reason::parse("left for lunch").unwrap(),
    };
    let mut world = World::new();
    assert_eq!(world.run(&by(1)), "lost: unknown");
    assert_eq!(world.acquire("alice"), "granted #1");
    assert_eq!(world.run(&by(2)), "held by alice#1");
    assert_eq!(world.run(&by(1)), "released");
    assert_eq!(world.run(&by(1)), "lost: unknown");
    assert_eq!(world.renew("alice"), "lost: force_released");
    assert_eq!(world.story_since(1), ["2 alice#1 ended: force-released by root (left for lunch)"]);
    assert_eq!(world.acquire("bob"), "granted #2");
}

// --- withdraw and check ---

#[test]
fn withdraw_kills_an_acquire_that_is_still_on_the_way() {
    let mut world = World::new();
    assert_eq!(world.withdraw("alice"), "withdrawn");
    assert_eq!(world.acquire("alice"), "lost: withdrawn");
    assert_eq!(world.take_over_seen("alice", 1), "lost: withdrawn");
    assert_eq!(world.ask_seen("alice", OnSilence::Grant, 1), "lost: withdrawn");
    assert_eq!(world.story(), Vec::<String>::new());
}

#[test]
fn withdraw_releases_the_lease_that_was_granted_unnoticed() {
    let mut world = held_by_alice();
    assert_eq!(world.withdraw("alice"), "withdrawn");
    assert_eq!(world.story_since(1), ["2 alice#1 ended: released"]);
    assert_eq!(world.withdraw("alice"), "withdrawn");
    assert_eq!(world.acquire("alice"), "lost: released");
}

#[test]
fn withdraw_does_not_touch_anybody_else() {
    let mut world = held_by_alice();
    world.ask("bob", OnSilence::Grant);
    assert_eq!(world.withdraw("carol"), "withdrawn");
    assert_eq!(world.events.len(), 2);
    assert_eq!(world.remembered(&lease_id("carol")), Some(LossReason::Withdrawn));
    assert!(world.lease().request.is_some());
}

#[test]
fn check_knows_only_the_fence_of_the_live_lease() {
    let mut world = held_by_alice();
    assert_eq!((world.check(1), world.check(2)), ("current".into(), "not current".into()));
    world.take_over("bob");
    assert_eq!((world.check(1), world.check(2)), ("not current".into(), "current".into()));
    world.release("bob");
    let decision = world.decide(&Command::Check { fence: fence(2) });
    assert_eq!(decision.outcome, Outcome::Checked { current: false, held: None });
}

// --- words ---

#[test]
fn every_loss_reason_has_a_word_of_its_own() {
    for (reason, word) in LossReason::WORDS {
        assert_eq!((reason.as_str(), LossReason::parse(word)), (word, Some(reason)));
    }
    assert_eq!(LossReason::parse("Released"), None);
}

#[test]
fn every_end_has_a_loss_reason() {
    let by = owner("bob");
    let cases = [
        (EndReason::Released, LossReason::Released),
        (EndReason::Expired, LossReason::Expired),
        (EndReason::Disconnected, LossReason::Disconnected),
        (EndReason::TakenOver { by: by.clone(), reason: Default::default() }, LossReason::TakenOver),
        (EndReason::ForceReleased { by: by.clone(), reason: Default::default() }, LossReason::ForceReleased),
        (EndReason::HandedOver { to: by }, LossReason::HandedOver),
    ];
    for (end, loss) in cases {
        assert_eq!(LossReason::from(&end), loss);
    }
}
