//! A tab asks the holder to save and hand the project over.

use std::time::Duration;

use leasehold_core::lease::OnSilence;
use leasehold_core::name::{Meta, Reason};
use leasehold_project_rules::{Ask, CallId, Event, Options, Profile, ProjectLockError};

use crate::world::{START, Web, World, foreign};

/// How long the holder has in these tests.
const COUNTDOWN: u64 = 10_000;

fn autosave() -> Options {
    Options::of(Profile::Autosave)
}

/// A tab with the project, and two that do not have it.
fn held() -> World {
    let mut world = World::new(&[Web::Works, Web::Works, Web::Works]);
    world.acquire(0, &autosave());
    world
}

/// The same, and the second tab asks for the project.
fn asked(on_silence: OnSilence) -> (World, u32) {
    let mut world = held();
    let call = ask(&mut world, 1, on_silence);
    (world, call)
}

fn ask(world: &mut World, tab: usize, on_silence: OnSilence) -> u32 {
    world.tab(tab, |machine, call, now| {
        let ask = Ask {
            asker: machine.owner(),
            label: Meta::label("Bob").unwrap(),
            why: Reason::parse("a typo").unwrap(),
            countdown: Duration::from_millis(COUNTDOWN),
            on_silence,
        };
        machine.request_handover(call, &autosave(), ask, now);
    })
}

fn refuse(world: &mut World, why: &str) {
    let lease_id = world.lease(0).lease_id;
    world.tab(0, |machine, _, now| machine.refuse_handover(lease_id, Reason::parse(why).unwrap(), now));
}

fn heard(world: &World, tab: usize, name: &str) -> usize {
    world.tabs[tab].events.iter().filter(|event| event.name() == name).count()
}

fn is_open(world: &World, call: u32) -> bool {
    !world.tabs[1].answers.contains_key(&call)
}

/// The request was refused, in these words.
fn check_refused(world: &World, tab: usize, call: u32, said: &str) {
    let error: &ProjectLockError = world.answer(tab, call).as_ref().unwrap_err();
    assert_eq!((error.code(), error.retryable), ("fallback-conflict", false));
    assert!(error.to_string().contains(said), "{error}");
    let holder = error.holder.as_ref().map(|holder| holder.owner.clone());
    assert_eq!(holder, Some(world.folder.record().owner), "it says who has the project");
}

#[test]
fn a_holder_that_is_asked_hands_over_by_its_release() {
    let (mut world, call) = asked(OnSilence::Refuse);
    assert_eq!(heard(&world, 0, "lock:handover-requested"), 1);
    let told = world.tabs[1].events.iter().find_map(|event| match event {
        Event::HandoverTold { holder, countdown } => Some((holder.fence, *countdown)),
        _ => None,
    });
    assert_eq!(told, Some((world.lease(0).fence, Duration::from_millis(COUNTDOWN))));
    assert!(world.holds(0), "it may save first");
    world.advance(5_000);
    world.release(0);
    world.advance(100);
    assert_eq!(world.acquired(1, call), world.lease(1));
    assert_eq!(world.lease(1).acquired_at.as_millis(), START + 5_000);
}

#[test]
fn silence_counts_from_when_the_holder_was_told() {
    for on_silence in [OnSilence::Grant, OnSilence::Refuse] {
        let mut world = held();
        // Its page is busy for a second.
        world.tabs[0].is_busy = true;
        let call = ask(&mut world, 1, on_silence);
        world.advance(1_000);
        world.tab(0, |machine, _, now| machine.handover_told(now));
        world.advance(COUNTDOWN - 1);
        assert!(world.holds(0) && is_open(&world, call), "{on_silence:?}");
        world.advance(100);
        if on_silence == OnSilence::Refuse {
            assert!(world.holds(0));
            check_refused(&world, 1, call, "silent");
        } else {
            assert!(world.holds(1) && !world.holds(0));
            assert_eq!(world.acquired(1, call).acquired_at.as_millis(), START + 1_000 + COUNTDOWN);
        }
    }
}

/// A frozen tab, or a program, hears nothing: its silence is no consent.
#[test]
fn the_silence_of_a_holder_that_was_never_told_grants_nothing() {
    let mut world = World::new(&[Web::Works, Web::Works]);
    world.folder.lock = Some((foreign(START), START));
    let call = ask(&mut world, 1, OnSilence::Grant);
    world.advance(2_100);
    check_refused(&world, 1, call, "did not answer");
    assert_eq!(world.folder.record().owner.as_str(), "other-tab");
    // Nor does that of a tab whose page is busy, although its Worker hears the request.
    let mut world = held();
    world.tabs[0].is_busy = true;
    let call = ask(&mut world, 1, OnSilence::Grant);
    world.advance(COUNTDOWN * 2);
    assert!(world.holds(0));
    check_refused(&world, 1, call, "did not answer");
}

#[test]
fn a_holder_refuses_with_a_reason() {
    let (mut world, call) = asked(OnSilence::Grant);
    refuse(&mut world, "in the middle of a sentence");
    check_refused(&world, 1, call, "in the middle of a sentence");
    world.advance(COUNTDOWN * 2);
    assert!(world.holds(0), "and nothing is left of the request");
    // The next one is a new one.
    let call = ask(&mut world, 1, OnSilence::Grant);
    assert_eq!(heard(&world, 0, "lock:handover-requested"), 2);
    refuse(&mut world, "");
    check_refused(&world, 1, call, "the holder refuses");
}

#[test]
fn a_request_ends_when_the_asker_leaves() {
    let (mut world, call) = asked(OnSilence::Grant);
    world.tab(1, |machine, _, now| machine.abort(CallId(call), now));
    assert_eq!(world.code(1, call), "web-lock-aborted");
    assert_eq!(heard(&world, 0, "lock:handover-withdrawn"), 1);
    let frozen = ask(&mut world, 1, OnSilence::Grant);
    world.tab(1, |machine, _, now| machine.handle_frozen(now));
    assert_eq!(world.code(1, frozen), "web-lock-aborted");
    assert_eq!(heard(&world, 0, "lock:handover-withdrawn"), 2);
    ask(&mut world, 2, OnSilence::Grant);
    world.kill(2);
    world.advance(COUNTDOWN * 2);
    assert!(world.holds(0));
}

#[test]
fn there_is_one_request_at_a_time() {
    let (mut world, call) = asked(OnSilence::Grant);
    let twice = ask(&mut world, 1, OnSilence::Grant);
    assert_eq!(world.code(1, twice), "lease-mismatch");
    let other = ask(&mut world, 2, OnSilence::Grant);
    check_refused(&world, 2, other, "another tab has asked before");
    assert!(is_open(&world, call) && heard(&world, 0, "lock:handover-requested") == 1);
    let own = ask(&mut world, 0, OnSilence::Grant);
    assert_eq!(world.code(0, own), "lease-mismatch");
}

#[test]
fn a_request_where_nobody_holds_is_an_acquire() {
    let mut world = World::new(&[Web::Works, Web::Works]);
    let call = ask(&mut world, 1, OnSilence::Refuse);
    assert_eq!(world.acquired(1, call), world.lease(1));
}

/// The holder was asked, was told, and crashed: no release is heard, and the project is free.
#[test]
fn a_holder_that_vanishes_refuses_nothing() {
    let (mut world, call) = asked(OnSilence::Refuse);
    world.kill(0);
    world.advance(COUNTDOWN + 100);
    assert_eq!(world.acquired(1, call), world.lease(1));
}

#[test]
fn a_holder_that_was_not_asked_is_not_taken_over() {
    let (mut world, call) = asked(OnSilence::Grant);
    world.tab(2, |machine, call, now| machine.take_over(call, &autosave(), None, Reason::default(), now));
    world.advance(COUNTDOWN + 100);
    assert!(world.holds(2));
    check_refused(&world, 1, call, "");
}

/// A third tab waits by `autoResume`. It must not be faster than the tab that the project is handed over to.
#[test]
fn a_tab_that_waits_leaves_the_project_to_the_asker() {
    for web in [Web::Works, Web::Unsupported] {
        let mut world = World::new(&[Web::Works, Web::Works, web]);
        world.acquire(0, &autosave());
        world.acquire(2, &Options { auto_resume: Some(true), ..autosave() });
        world.advance(10_000);
        let call = ask(&mut world, 1, OnSilence::Refuse);
        world.advance(1_000);
        world.release(0);
        world.advance(200);
        assert_eq!(world.acquired(1, call), world.lease(1), "{web:?}");
        // It is not forgotten.
        world.release(1);
        world.advance(1_000);
        assert!(world.holds(2), "{web:?}");
        // And where the asker does not come, it does not wait for long.
        let mut world = World::new(&[Web::Works, Web::Works, web]);
        world.acquire(0, &autosave());
        world.acquire(2, &Options { auto_resume: Some(true), ..autosave() });
        world.advance(10_000);
        ask(&mut world, 1, OnSilence::Refuse);
        world.kill(1);
        world.release(0);
        world.advance(1_900);
        assert!(!world.holds(2), "{web:?}");
        world.advance(700);
        assert!(world.holds(2), "{web:?}");
    }
}
