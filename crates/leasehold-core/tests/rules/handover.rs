//! The hand-over: requested, told, answered (or met with silence), withdrawn.

use leasehold_core::Ttl;
use leasehold_core::lease::{Bid, Command, LossReason, OnSilence, Outcome};

use crate::table::held_by_alice;
use crate::world::{Act, COUNTDOWN, PATIENCE, TTL, World, ask_command, bid, lease_id, owner};

/// Alice holds the key, and bob has requested it with the event number 2.
fn asked_by_bob(on_silence: OnSilence) -> World {
    let mut world = held_by_alice();
    assert_eq!(world.ask("bob", on_silence), "requested as 2, held by alice#1");
    world
}

/// The same, and alice knows it: event number 3.
fn told_of_bob(on_silence: OnSilence) -> World {
    let mut world = asked_by_bob(on_silence);
    assert_eq!(world.told("alice", 2), "told");
    world
}

#[test]
fn a_request_is_told_and_reaches_the_holder_with_its_renewal() {
    let mut world = asked_by_bob(OnSilence::Grant);
    let decision = world.decide(&Command::Renew { claim: world.claim("alice"), ttl: None });
    let Outcome::Renewed(lease) = decision.outcome else { panic!("{:?}", decision.outcome) };
    let request = lease.request.unwrap();
    assert_eq!((request.seq, request.told_at, request.bid.owner.as_str()), (2, None, "bob"));
    world.renew("alice");
    assert!(world.lease().request.is_some(), "a renewal is not an answer");
    assert_eq!(world.slot.asker(), Some(&owner("bob")), "whose leases the store counts");
    assert_eq!(world.story(), ["1 alice#1 granted", "2 alice#1 requested by bob"]);
}

#[test]
fn a_request_for_a_free_key_is_granted() {
    let mut world = World::new();
    assert_eq!(world.ask_seen("bob", OnSilence::Grant, 1), "granted #1");
}

#[test]
fn a_request_by_the_holder_itself_extends_its_lease() {
    let mut world = held_by_alice();
    assert_eq!(world.ask("alice", OnSilence::Grant), "extended #1");
    assert!(world.lease().request.is_none() && world.slot.asker().is_none());
}

#[test]
fn law_05_a_request_compares_the_fence_as_seen() {
    let mut world = held_by_alice();
    world.take_over("bob");
    assert_eq!(world.ask_seen("carol", OnSilence::Grant, 1), "held by bob#2");
    assert!(world.lease().request.is_none());
}

// --- the answer ---

#[test]
fn a_holder_may_hand_over() {
    let mut world = asked_by_bob(OnSilence::Refuse);
    world.pass(3);
    assert_eq!(world.answer("alice", 2, true), "handed over to bob");
    assert_eq!(world.story_since(2), ["3 alice#1 ended: handed over to bob", "4 bob#2 granted"]);
    assert_eq!((world.left(), world.lease().lease_id), (30_000, lease_id("bob")));
    assert_eq!(world.renew("alice"), "lost: handed_over, held by bob#2");
    assert_eq!(world.ask_seen("bob", OnSilence::Refuse, 1), "extended #2", "bob learns it by asking on");
}

#[test]
fn a_holder_may_refuse() {
    let mut world = told_of_bob(OnSilence::Grant);
    assert_eq!(world.answer("alice", 2, false), "refused");
    assert_eq!(world.story_since(3), ["4 alice#1 refused bob"]);
    assert_eq!(world.ask("bob", OnSilence::Grant), "lost: refused, held by alice#1");
    world.pass(COUNTDOWN);
    assert_eq!(world.renew("alice"), "renewed #1", "its silence counts no more");
    assert_eq!(world.answer("alice", 2, true), "no request", "nor does a second answer");
}

#[test]
fn a_refused_asker_may_ask_again_as_somebody_new() {
    let mut world = asked_by_bob(OnSilence::Grant);
    world.answer("alice", 2, false);
    assert_eq!(world.ask("bob/2", OnSilence::Grant), "requested as 4, held by alice#1");
}

#[test]
fn an_answer_to_another_request_is_no_answer() {
    let mut world = asked_by_bob(OnSilence::Grant);
    for request in [0, 1, 3] {
        assert_eq!(world.answer("alice", request, true), "no request", "{request}");
        assert_eq!(world.answer("alice", request, false), "no request", "{request}");
        assert_eq!(world.told("alice", request), "no request", "{request}");
    }
    // Bob gives up and carol asks: a late answer for bob must not hand the lease to carol.
    world.withdraw("bob");
    assert_eq!(world.ask("carol", OnSilence::Grant), "requested as 4, held by alice#1");
    assert_eq!(world.answer("alice", 2, true), "no request");
    assert_eq!(world.lease().request.as_ref().unwrap().bid.owner.as_str(), "carol");
}

#[test]
fn only_the_holder_answers() {
    let mut world = asked_by_bob(OnSilence::Grant);
    assert_eq!(world.answer("bob", 2, true), "lost: unknown, held by alice#1");
    assert_eq!(world.told("bob", 2), "lost: unknown, held by alice#1");
    assert_eq!(world.events.len(), 2);
}

// --- silence ---

#[test]
fn the_countdown_starts_only_when_the_holder_was_told() {
    let mut world = asked_by_bob(OnSilence::Grant);
    for _ in 0..3 {
        world.pass(19);
        world.renew("alice");
        assert_eq!(world.ask("bob", OnSilence::Grant), "requested as 2, held by alice#1");
    }
    let decision = world.decide(&Command::HandoverTold { claim: world.claim("alice"), request: 2 });
    let Outcome::Told { ends_at } = decision.outcome else { panic!("{:?}", decision.outcome) };
    assert_eq!(ends_at.since(world.now).as_millis(), u128::from(COUNTDOWN) * 1_000);
    world.told("alice", 2);
    assert_eq!(world.slot.due_at(), Some(ends_at));
    assert_eq!(world.story_since(2), ["3 alice#1 told of bob"]);
}

#[test]
fn being_told_again_does_not_restart_the_countdown() {
    let mut world = told_of_bob(OnSilence::Grant);
    let due = world.slot.due_at();
    world.pass(4);
    assert_eq!(world.told("alice", 2), "told");
    assert_eq!((world.slot.due_at(), world.events.len()), (due, 3));
}

#[test]
fn silence_grants_when_the_countdown_ends_and_not_before() {
    let mut world = told_of_bob(OnSilence::Grant);
    world.pass_millis(COUNTDOWN * 1_000 - 1);
    assert_eq!(world.renew("alice"), "renewed #1");
    world.pass_millis(1);
    assert_eq!(world.renew("alice"), "lost: handed_over, held by bob#2");
    assert_eq!(world.story_since(3), ["4 alice#1 ended: handed over to bob", "5 bob#2 granted"]);
    assert_eq!(world.left(), 30_000, "a grant begins when it is given");
    assert_eq!(world.ask("bob", OnSilence::Grant), "extended #2");
}

#[test]
fn silence_refuses_when_it_was_asked_to() {
    let mut world = told_of_bob(OnSilence::Refuse);
    world.pass(COUNTDOWN);
    assert_eq!(world.renew("alice"), "renewed #1");
    assert_eq!(world.story_since(3), ["4 alice#1 refused bob by silence"]);
    assert_eq!(world.ask("bob", OnSilence::Refuse), "lost: refused, held by alice#1");
}

#[test]
fn a_silence_that_ended_before_the_lease_did_is_settled_first() {
    // The lease lasts until 30 s. Told at 5 s, silent until 15 s, and nobody looks until 30 s.
    let mut world = held_by_alice();
    world.pass(5);
    world.ask("bob", OnSilence::Grant);
    world.told("alice", 2);
    world.pass(5);
    world.ask("bob", OnSilence::Grant);
    world.pass_millis(19_999);
    world.settle();
    assert_eq!(world.story_since(3), ["4 alice#1 ended: handed over to bob", "5 bob#2 granted"]);
}

// --- withdrawn ---

#[test]
fn a_request_is_withdrawn_when_the_asker_leaves() {
    let mut world = told_of_bob(OnSilence::Grant);
    assert_eq!(world.withdraw("bob"), "withdrawn");
    assert_eq!(world.story_since(3), ["4 alice#1 withdrawn by bob"]);
    assert_eq!(world.answer("alice", 2, true), "no request");
    assert_eq!(world.ask("bob", OnSilence::Grant), "lost: withdrawn, held by alice#1", "a copy on the way");
    world.pass(COUNTDOWN);
    assert_eq!(world.renew("alice"), "renewed #1");
}

#[test]
fn a_request_is_withdrawn_when_its_patience_lapses() {
    let mut world = asked_by_bob(OnSilence::Grant);
    world.pass_millis(PATIENCE * 1_000 - 1);
    world.settle();
    assert_eq!(world.events.len(), 2);
    world.pass_millis(1);
    world.settle();
    assert_eq!(world.story_since(2), ["3 alice#1 withdrawn by bob"]);
    assert_eq!(world.ask("bob", OnSilence::Grant), "lost: withdrawn, held by alice#1");
    assert_eq!(world.told("alice", 2), "no request");
}

/// One asker sent a patience of a day and closed the page: nobody else could ask for the document until the next day.
#[test]
fn nobody_who_left_is_in_the_way_of_other_askers_for_long() {
    let mut world = held_by_alice();
    let mut command = ask_command(bid("bob", TTL), OnSilence::Refuse, 1);
    if let Command::RequestHandover { patience, .. } = &mut command {
        *patience = Ttl::MAX;
    }
    world.run(&command);
    for _ in 0..3 {
        world.pass(20);
        world.renew("alice");
    }
    assert_eq!(world.story_since(2), ["3 alice#1 withdrawn by bob"]);
    assert_eq!(world.ask("carol", OnSilence::Refuse), "requested as 4, held by alice#1");
}

/// Somebody else with the lease id of a request could repeat it, and was told of it as if it were theirs.
#[test]
fn only_the_asker_repeats_its_request() {
    let world = asked_by_bob(OnSilence::Grant);
    let thief = Bid { owner: owner("carol"), ..bid("bob", TTL) };
    let decision = world.decide(&ask_command(thief, OnSilence::Grant, 1));
    assert!(matches!(decision.outcome, Outcome::RequestedByAnother { .. }), "{:?}", decision.outcome);
}

#[test]
fn a_repeated_request_stands_for_longer_and_is_not_told_again() {
    let mut world = asked_by_bob(OnSilence::Grant);
    for _ in 0..4 {
        world.pass(15);
        world.renew("alice");
        assert_eq!(world.ask("bob", OnSilence::Grant), "requested as 2, held by alice#1");
    }
    assert_eq!(world.events.len(), 2);
}

#[test]
fn an_asker_that_is_gone_is_granted_nothing_by_silence() {
    // Told at 15 s, so the silence would end at 25 s: bob's patience ends at 20 s.
    let mut world = asked_by_bob(OnSilence::Grant);
    world.pass(15);
    world.told("alice", 2);
    world.pass(14);
    world.settle();
    assert_eq!(world.story_since(3), ["4 alice#1 withdrawn by bob"]);
    assert_eq!(world.lease().owner.as_str(), "alice");
}

// --- a second asker ---

#[test]
fn only_one_may_ask_at_a_time() {
    let mut world = asked_by_bob(OnSilence::Grant);
    assert_eq!(world.ask("carol", OnSilence::Grant), "requested by bob, held by alice#1");
    assert_eq!(world.ask("bob/2", OnSilence::Grant), "requested by bob, held by alice#1");
    assert_eq!(world.events.len(), 2);
    world.withdraw("bob");
    assert_eq!(world.ask("carol", OnSilence::Grant), "requested as 4, held by alice#1");
}

#[test]
fn a_second_asker_is_not_over_because_it_came_second() {
    let mut world = asked_by_bob(OnSilence::Grant);
    world.ask("carol", OnSilence::Grant);
    world.release("alice");
    assert_eq!(world.acquire("carol"), "granted #2");
}

// --- the lease ends while somebody asks ---

#[test]
fn a_request_ends_with_its_lease_and_the_asker_may_go_on() {
    let ends: [(&str, Act); 3] = [
        ("released", |world| world.release("alice")),
        ("released", |world| world.withdraw("alice")),
        ("expired", |world| {
            world.pass(19);
            world.ask("bob", OnSilence::Grant);
            world.pass(11);
            world.settle()
        }),
    ];
    for (reason, end) in ends {
        let mut world = asked_by_bob(OnSilence::Grant);
        end(&mut world);
        assert_eq!(world.story_since(2), [format!("3 alice#1 ended: {reason}")]);
        assert_eq!(world.ask_seen("bob", OnSilence::Grant, 1), "granted #2");
    }
}

#[test]
fn a_request_does_not_follow_the_key_to_another_holder() {
    let mut world = told_of_bob(OnSilence::Grant);
    assert_eq!(world.take_over("carol"), "granted #2");
    assert!(world.lease().request.is_none());
    assert_eq!(world.ask_seen("bob", OnSilence::Grant, 1), "held by carol#2", "bob has seen alice's lease");
    assert_eq!(world.ask("bob", OnSilence::Grant), "requested as 6, held by carol#2");
}

#[test]
fn an_asker_may_take_over_with_the_same_lease_id() {
    let mut world = told_of_bob(OnSilence::Grant);
    assert_eq!(world.take_over("bob"), "granted #2");
    assert_eq!(world.renew("bob"), "renewed #2");
}

#[test]
fn a_soft_release_lets_the_asker_in_early() {
    let mut world = asked_by_bob(OnSilence::Refuse);
    world.soft_release("alice", 5);
    world.pass(5);
    assert_eq!(world.ask_seen("bob", OnSilence::Refuse, 1), "granted #2");
    assert_eq!(world.story_since(3), ["4 alice#1 ended: disconnected", "5 bob#2 granted"]);
}

#[test]
fn a_request_survives_the_rotation_of_the_lease_id() {
    let mut world = told_of_bob(OnSilence::Grant);
    world.resume("alice", "alice/again");
    assert_eq!(world.answer("alice", 2, true), "lost: resumed, held by alice#1");
    assert_eq!(world.answer("alice/again", 2, true), "handed over to bob");
}

/// The lease ends at 30 s and bob's patience at 35 s. A sweeper that looks at 30 s ends the lease, with it the
/// request, and bob's lease id is as good as before. It must be just as good when nobody looks until 40 s: whether a
/// lease id is over cannot depend on when somebody swept.
#[test]
fn law_03_a_request_that_outlives_its_lease_ends_with_it_whoever_notices_when() {
    for swept in [true, false] {
        let mut world = held_by_alice();
        world.pass(15);
        world.ask("bob", OnSilence::Grant);
        world.pass(15);
        if swept {
            world.settle();
        }
        world.pass(10);
        assert_eq!(world.acquire("bob"), "granted #2", "swept: {swept}");
        assert_eq!(world.story_since(2), ["3 alice#1 ended: expired", "4 bob#2 granted"], "swept: {swept}");
    }
}

#[test]
fn silence_that_would_end_with_the_lease_or_later_changes_nothing() {
    for told_after in [20, 25] {
        let mut world = held_by_alice();
        world.pass(told_after);
        world.ask("bob", OnSilence::Grant);
        world.told("alice", 2);
        world.pass(TTL - told_after);
        world.settle();
        assert_eq!(world.story_since(3), ["4 alice#1 ended: expired"], "told after {told_after} s");
        assert_eq!(world.remembered(&lease_id("bob")), None);
        assert_eq!(world.remembered(&lease_id("alice")), Some(LossReason::Expired));
    }
}
