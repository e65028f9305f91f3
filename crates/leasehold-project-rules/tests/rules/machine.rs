//! The machine among other tabs: what the tables of the sources leave open.

use std::time::Duration;

use leasehold_core::lease::Proof;
use leasehold_core::name::{Meta, Reason};
use leasehold_core::time::{HolderTime, StoreTime, Ttl};
use leasehold_project_rules::fault::Cause;
use leasehold_project_rules::options::{Wanted, heartbeat_of, usable};
use leasehold_project_rules::record::label_text;
use leasehold_project_rules::section::GUARD_PATIENCE;
use leasehold_project_rules::{
    Base, CallId, Effect, Event, Fault, Folder, Guarantee, IoReply, IoStep, NotSaved, Now, Operation,
    Options, Profile, ProjectLock, ReleaseReason, Settled, State, Strategy, fault,
};

use super::world::{RESTLESS, START, Trouble, Web, World, foreign};

fn autosave() -> Options {
    Options::default()
}

fn resuming() -> Options {
    Options { auto_resume: Some(true), ..autosave() }
}

// --- more than one tab ---

#[test]
fn a_second_tab_queues_up_and_is_told_when_the_project_is_free() {
    let mut world = World::new(&[Web::Works, Web::Works]);
    world.acquire(0, &autosave());
    let call = world.acquire(1, &autosave());
    world.advance(10_000);
    assert_eq!(world.code(1, call), "acquire-timeout");
    assert_eq!(world.tabs[1].machine.state(), State::Readonly);
    world.release(0);
    assert_eq!(world.types(1, "lock").last().unwrap(), "lock:available");
    assert_eq!(world.web_lock, None, "who was only told does not keep others waiting");
    let call = world.acquire(1, &autosave());
    assert_eq!(world.acquired(1, call).strategy, Strategy::WebLock);
}

/// A tab said once that the project was free, somebody else was faster, and it never said so again: where there was no
/// channel it had stopped looking, where there was one it looked three times a second instead of queueing up.
#[test]
fn a_tab_that_was_too_late_is_told_again() {
    let available = |world: &World, tab| {
        world.types(tab, "lock").iter().filter(|event| *event == "lock:available").count()
    };
    // Nobody tells what a program does.
    let mut world = World::new(&[Web::Unsupported]);
    world.folder.lock = Some((foreign(START), START));
    world.acquire(0, &autosave());
    world.advance(40_000);
    assert_eq!(available(&world, 0), 1);
    world.folder.lock = Some((foreign(world.now), world.now));
    world.advance(20_000);
    assert_eq!(available(&world, 0), 1);
    world.advance(20_000);
    assert_eq!(available(&world, 0), 2);

    let mut world = World::new(&[Web::Works, Web::Works]);
    world.acquire(0, &autosave());
    world.acquire(1, &autosave());
    world.advance(10_000);
    world.release(0);
    world.acquire(0, &autosave());
    assert_eq!(available(&world, 1), 1);
    world.advance(1_000);
    let next = world.tabs[1].machine.poll_timeout().unwrap().since(world.time().steady);
    assert!(next > Duration::from_secs(3), "it waits in the queue, and looks in {next:?}");
    world.release(0);
    assert_eq!(available(&world, 1), 2);
}

/// A second tab heard nothing for 4.7 s, and then that it took too long: not that another tab edits, nor which.
#[test]
fn a_second_tab_hears_at_once_who_has_the_project() {
    for webs in [[Web::Works, Web::Works], [Web::Unsupported, Web::Unsupported]] {
        let mut world = World::new(&webs);
        world.tab(0, |machine, call, now| {
            machine.set_label(Meta::label("Ann, at the window").unwrap());
            machine.acquire(call, &autosave(), now);
        });
        world.advance(20_000);
        let (call, came) = (world.acquire(1, &autosave()), world.now);
        let held = |world: &World| world.types(1, "lock").iter().filter(|kind| *kind == "lock:held").count();
        world.advance(250);
        assert_eq!(held(&world), 1, "{webs:?}");
        assert!(!world.tabs[1].answers.contains_key(&call), "the attempts go on");
        world.advance(10_000);
        assert_eq!((held(&world), world.code(1, call)), (1, "acquire-timeout"));
        let lease = world.lease(0);
        let told = world.tabs[1].events.iter().find_map(|event| match event {
            Event::Held(holder) => Some(holder.clone()),
            _ => None,
        });
        let told = told.unwrap();
        assert_eq!((&told.owner, told.fence), (&lease.owner, lease.fence));
        assert_eq!(label_text(&told.label), Some("Ann, at the window"));
        assert_eq!(told.since.as_millis(), START, "since it was granted, not since it was renewed");
        assert!(told.until.as_millis() > came);
        // The error has the same, with the newest end.
        let error = world.answer(1, call).as_ref().unwrap_err();
        let holder = error.holder.as_ref().expect("a holder");
        assert_eq!((&holder.owner, holder.fence, holder.since), (&told.owner, told.fence, told.since));
        let Some(Cause::Fault(last)) = &error.cause else { panic!("{error:?}") };
        assert_eq!((last.fault, last.holder.as_ref()), (Fault::Conflict, Some(holder)));
    }
}

/// The user reloaded the tab that held the project, and a tab in the background had it 30 ms later: the reloaded tab was
/// read-only. A reload looks like the end of a tab.
#[test]
fn a_hidden_tab_leaves_the_project_to_a_tab_that_is_reloaded() {
    for webs in
        [[Web::Works, Web::Works], [Web::Unsupported, Web::Unsupported], [Web::Works, Web::Unsupported]]
    {
        let mut world = World::new(&webs);
        world.acquire(0, &resuming());
        world.acquire(1, &resuming());
        world.tab(1, |machine, _, now| machine.handle_hidden(true, now));
        world.advance(10_000);
        for _ in 0..2 {
            world.kill(0);
            world.advance(1_800);
            assert!(!world.holds(1), "{webs:?}: it holds back");
            world.revive(0);
            let call = world.acquire(0, &resuming());
            assert_eq!(world.acquired(0, call).acquired_at.as_millis(), world.now, "{webs:?}: at once");
            world.advance(30_000);
            assert!(world.holds(0) && !world.holds(1), "{webs:?}");
        }
        // It does not come back: the hidden tab has the project after the grace, and a look more.
        world.kill(0);
        world.advance(2_500);
        assert!(world.holds(1), "{webs:?}");
    }
}

#[test]
fn a_tab_that_is_seen_and_a_caller_that_asks_do_not_hold_back() {
    for webs in [[Web::Works, Web::Works], [Web::Unsupported, Web::Unsupported]] {
        let hidden = || {
            let mut world = World::new(&webs);
            world.acquire(0, &resuming());
            world.acquire(1, &resuming());
            world.tab(1, |machine, _, now| machine.handle_hidden(true, now));
            world.advance(10_000);
            world.kill(0);
            world
        };
        let mut world = hidden();
        world.advance(500);
        world.tab(1, |machine, _, now| machine.handle_hidden(false, now));
        assert!(world.holds(1), "{webs:?}: the user went there");
        let mut world = hidden();
        let call = world.acquire(1, &autosave());
        assert_eq!(world.acquired(1, call).acquired_at.as_millis(), world.now, "{webs:?}: it was asked for");
        let mut world = World::new(&webs);
        world.acquire(0, &resuming());
        world.tab(1, |machine, _, now| machine.handle_hidden(true, now));
        let call = world.tab(1, |machine, call, now| {
            machine.take_over(call, &autosave(), None, Reason::default(), now);
        });
        world.acquired(1, call);
    }
    // Where the Web Lock is all there is.
    let mut world =
        World::with_folder(&[Web::Works, Web::Works], &Folder::Absent { said: "no-folder".into() });
    world.acquire(0, &resuming());
    world.acquire(1, &resuming());
    world.tab(1, |machine, _, now| machine.handle_hidden(true, now));
    world.advance(10_000);
    world.kill(0);
    world.advance(1_800);
    assert!(!world.holds(1));
    world.advance(700);
    assert!(world.holds(1));
}

/// An acquire that is granted at once does not look first: it would be in its own way.
#[test]
fn an_acquire_that_is_granted_at_once_looks_at_nothing() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    world.advance(1_000);
    assert_eq!(world.folder.looks, 0);
}

#[test]
fn a_look_says_who_has_the_project_and_a_take_over_can_name_it() {
    let mut world = World::new(&[Web::Works, Web::Works]);
    let look = |world: &mut World, tab| {
        let call = world.tab(tab, |machine, call, now| machine.look_at(call, now));
        match world.answer(tab, call) {
            Ok(Settled::Looked(holder)) => holder.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(look(&mut world, 1), None);
    world.acquire(0, &autosave());
    let holder = look(&mut world, 1).expect("a holder");
    assert_eq!(look(&mut world, 0), Some(holder.clone()), "the holder sees itself");
    assert_eq!(holder.fence, world.lease(0).fence);
    let call = world.tab(1, |machine, call, now| {
        machine.take_over(call, &autosave(), Some(holder.fence), Reason::default(), now);
    });
    assert!(world.acquired(1, call).fence > holder.fence);
    assert_eq!(world.types(1, "lock").iter().filter(|kind| *kind == "lock:held").count(), 0);
    // Who saw the first holder is refused, and learns who is there now.
    let seen = Some(holder.fence);
    let call = world.tab(0, |machine, call, now| {
        machine.take_over(call, &autosave(), seen, Reason::default(), now);
    });
    let error = world.answer(0, call).as_ref().unwrap_err();
    assert_eq!(error.holder.as_ref().map(|holder| holder.fence), Some(world.lease(1).fence));
}

#[test]
fn a_look_that_cannot_be_made_says_so() {
    let mut world = World::new(&[Web::Works]);
    world.folder.trouble = Some(Trouble::Read);
    let call = world.tab(0, |machine, call, now| machine.look_at(call, now));
    world.advance(5_000);
    let error = world.answer(0, call).as_ref().unwrap_err();
    assert_eq!((error.code(), error.operation), ("fallback-read-failed", Operation::Look));
    let mut world = World::with_folder(&[Web::Works], &Folder::Absent { said: "no-folder".into() });
    let call = world.tab(0, |machine, call, now| machine.look_at(call, now));
    assert_eq!(world.code(0, call), "fallback-open-failed");
}

#[test]
fn a_label_is_one_short_line() {
    for wrong in ["two\nlines", &"x".repeat(257)] {
        let refused = Meta::label(wrong).unwrap_err();
        assert_eq!(refused.what, "label");
    }
    assert_eq!(label_text(&Meta::label("").unwrap()), None);
}

#[test]
fn who_resumes_by_itself_has_the_project_the_moment_its_holder_dies() {
    for webs in
        [[Web::Works, Web::Works], [Web::Unsupported, Web::Unsupported], [Web::Works, Web::Unsupported]]
    {
        let mut world = World::new(&webs);
        world.acquire(0, &autosave());
        world.acquire(1, &resuming());
        world.advance(10_000);
        world.kill(0);
        let wait = if webs[1] == Web::Works { 0 } else { 300 };
        world.advance(wait);
        assert!(world.holds(1), "{webs:?}");
    }
}

#[test]
fn a_tab_without_web_locks_and_one_with_never_both_hold() {
    let mut world = World::new(&[Web::Unsupported, Web::Works]);
    world.acquire(0, &autosave());
    let call = world.acquire(1, &autosave());
    world.advance(2_000);
    assert_eq!(world.code(1, call), "acquire-timeout", "it has the Web Lock, and that is not enough");
    assert!(world.holds(0) && !world.holds(1));
    assert_eq!(world.web_lock, None, "it tells nothing here: it is not kept");
}

#[test]
fn a_take_over_is_heard_by_the_tab_that_had_it() {
    for web in [Web::Works, Web::Unsupported] {
        let mut world = World::new(&[web, web]);
        world.acquire(0, &autosave());
        let seen = world.lease(0).fence;
        let why = || Reason::parse("it is on the other screen").unwrap();
        let call =
            world.tab(1, |machine, call, now| machine.take_over(call, &autosave(), Some(seen), why(), now));
        assert!(world.acquired(1, call).fence > seen);
        assert!(!world.holds(0), "it looked when it was told");
        let heard = world.heard(0, "lock").join("\n");
        assert!(heard.contains(r#""reason":"lease-stale""#) && heard.contains("it is on the other screen"));
        // Whoever saw the old fence is too late.
        let call =
            world.tab(0, |machine, call, now| machine.take_over(call, &autosave(), Some(seen), why(), now));
        assert_eq!(world.code(0, call), "fallback-conflict");
        assert!(world.holds(1));
    }
}

fn take_over(world: &mut World, tab: usize) -> u32 {
    world.tab(tab, |machine, call, now| machine.take_over(call, &autosave(), None, Reason::default(), now))
}

/// A page that still waited for the project offered "take over", and was answered that it held the project already: the
/// button never worked.
#[test]
fn a_take_over_in_a_tab_that_still_waits_answers_both_with_one_lease() {
    for (web, wait) in [(Web::Works, 0), (Web::Unsupported, 0), (Web::Works, 1_200)] {
        let mut world = World::new(&[web, web]);
        world.acquire(0, &autosave());
        let waiting = world.acquire(1, &autosave());
        world.advance(wait);
        assert!(!world.tabs[1].answers.contains_key(&waiting));
        let forced = take_over(&mut world, 1);
        assert_eq!(world.acquired(1, waiting), world.acquired(1, forced));
        assert!(world.holds(1) && !world.holds(0), "{web:?}");
        world.release(1);
        assert!(!world.holds(1), "one release ends it");
    }
}

#[test]
fn a_take_over_while_the_acquire_is_in_its_section_follows_it() {
    for held in [true, false] {
        let mut world = World::new(&[Web::Unsupported]);
        world.folder.lock = held.then(|| (foreign(START), START));
        let now = world.time();
        let machine = &mut world.tabs[0].machine;
        machine.acquire(CallId(100), &Options { strategy: Strategy::FileLock, ..autosave() }, now);
        machine.take_over(CallId(101), &autosave(), None, Reason::default(), now);
        machine.take_over(CallId(102), &autosave(), None, Reason::default(), now);
        world.settle();
        assert_eq!(world.acquired(0, 100), world.acquired(0, 101));
        assert_eq!(world.acquired(0, 102), world.lease(0), "twice on the button is once");
        assert_eq!(world.folder.record().lease_id, world.lease(0).lease_id);
    }
}

#[test]
fn a_take_over_during_a_release_stays_one() {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &autosave());
    let (lease_id, now) = (world.lease(0).lease_id, world.time());
    world.folder.lock = Some((foreign(START), START));
    world.tabs[0].machine.release(CallId(100), lease_id, ReleaseReason::Completed, false, now);
    world.tabs[0].machine.take_over(CallId(101), &autosave(), None, Reason::default(), now);
    world.settle();
    assert_eq!(world.acquired(0, 101), world.lease(0), "somebody had it, and it was taken from them");
}

/// In a private window a take-over failed because there was no folder, and the tab left the queue as well.
#[test]
fn a_take_over_without_a_folder_takes_the_web_lock() {
    let absent = Folder::Absent { said: "no-private-file-system".into() };
    let mut world = World::with_folder(&[Web::Works, Web::Works], &absent);
    world.acquire(0, &autosave());
    let waiting = world.acquire(1, &autosave());
    let forced = take_over(&mut world, 1);
    assert_eq!(world.acquired(1, waiting), world.acquired(1, forced));
    assert!(world.holds(1) && !world.holds(0));
    assert!(world.heard(0, "lock").join("\n").contains(r#""reason":"lease-stale""#));
    let forced = take_over(&mut world, 0);
    assert_eq!(world.acquired(0, forced), world.lease(0), "from read-only, too");
    assert!(!world.holds(1));
}

#[test]
fn a_frozen_page_has_lost_its_lease_and_gets_it_again_when_it_is_back() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    let before = world.lease(0);
    world.tab(0, |machine, _, now| machine.handle_frozen(now));
    assert!(!world.holds(0));
    assert_eq!(world.web_lock, None);
    world.advance(60_000);
    assert!(!world.holds(0), "nothing happens while it is frozen");
    world.tab(0, |machine, _, now| machine.handle_resumed(now));
    assert!(world.holds(0));
    assert!(world.lease(0).fence > before.fence);
}

/// A take-over was aborted while it waited, and an acquire of the same tab that waited with it took the project by force. The
/// simulator found it.
#[test]
fn a_take_over_that_was_aborted_leaves_no_force_behind() {
    let mut world = World::new(&[Web::Unsupported, Web::Unsupported]);
    world.acquire(0, &autosave());
    world.folder.trouble = Some(Trouble::GuardBusy);
    let acquire = world.acquire(1, &autosave());
    let force = world.tab(1, |machine, call, now| {
        machine.take_over(call, &autosave(), None, Reason::default(), now);
    });
    world.tab(1, |machine, _, now| machine.abort(CallId(force), now));
    assert_eq!(world.code(1, force), "web-lock-aborted");
    world.advance(3_000);
    world.folder.trouble = None;
    world.advance(10_000);
    assert_eq!(world.code(1, acquire), "acquire-timeout");
    assert!(world.holds(0));
}

/// A take-over was aborted inside its guarded section. Its caller heard so, and the holder had lost the project all the same.
#[test]
fn a_take_over_that_is_aborted_takes_nothing_or_is_answered_with_its_lease() {
    let (mut aborted, mut granted) = (0, 0);
    for steps in 0..15 {
        let mut world = World::new(&[Web::Unsupported, Web::Unsupported]);
        world.acquire(0, &autosave());
        let (before, now) = (world.lease(0), world.time());
        world.tabs[1].machine.take_over(CallId(100), &autosave(), None, Reason::default(), now);
        (0..steps).for_each(|_| world.step(1));
        world.tabs[1].machine.abort(CallId(100), now);
        world.settle();
        if world.tabs[1].answers[&100].is_ok() {
            granted += 1;
            assert!(world.holds(1) && !world.holds(0), "{steps}");
        } else {
            aborted += 1;
            assert_eq!(world.code(1, 100), "web-lock-aborted");
            world.renew(0);
            assert!(world.holds(0) && !world.holds(1), "{steps}");
            assert_eq!(
                (world.folder.record().fence, world.folder.held.len()),
                (Some(before.fence), 1),
                "{steps}"
            );
        }
    }
    assert!(aborted > 4 && granted > 3, "{aborted} and {granted}");
}

/// A holder that was taken over knew that it had lost the project, and not to whom.
#[test]
fn a_lease_that_is_stale_says_who_has_the_project() {
    let mut world = World::new(&[Web::Unsupported, Web::Unsupported]);
    world.acquire(0, &autosave());
    let claim = world.claim(0);
    world.tab(1, |machine, call, now| machine.take_over(call, &autosave(), None, Reason::default(), now));
    let save = world.save(0, claim, "1", Base::Overwrite);
    let Some(Err(NotSaved::Lost(error))) = world.tabs[0].saved.get(&save) else { panic!("it was saved") };
    let holder = error.holder.as_ref().expect("a holder");
    assert_eq!((error.code(), holder.fence), ("lease-stale", world.lease(1).fence));
    assert_eq!(holder.owner.as_str(), "tab-1");
}

/// A page that was about to be frozen released its lease under the guard. In 3 of 60 freezes it was stopped with the guard in
/// its hands, and nobody got the project for as long as it was frozen.
#[test]
fn a_page_that_is_frozen_takes_no_guard_and_its_project_is_free_at_once() {
    for webs in [[Web::Works, Web::Works], [Web::Unsupported, Web::Unsupported]] {
        let mut world = World::new(&webs);
        world.acquire(0, &autosave());
        let now = world.time();
        let machine = &mut world.tabs[0].machine;
        machine.handle_frozen(now);
        let effects: Vec<_> = std::iter::from_fn(|| machine.poll_effect()).take(RESTLESS).collect();
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Io(_))), "{effects:?}");
        assert!(effects.iter().any(|effect| matches!(effect, Effect::DropHeld(_))), "{effects:?}");
        // Another call of the shell, such as late news, changes nothing about that.
        machine.handle_timeout(now);
        assert!(machine.poll_effect().is_none());
        let mut world = World::new(&webs);
        world.acquire(0, &autosave());
        world.tab(0, |machine, _, now| machine.handle_frozen(now));
        let call = world.acquire(1, &autosave());
        let next = world.acquired(1, call);
        assert_eq!(next.acquired_at.as_millis(), world.now, "{webs:?}: at once");
        // When it is back, what it has left undone does no harm.
        world.tab(0, |machine, _, now| machine.handle_resumed(now));
        world.advance(60_000);
        assert_eq!(world.folder.record().lease_id, next.lease_id);
        assert!(world.holds(1) && !world.holds(0));
    }
}

/// A tab was frozen once, and resumed by itself from then on: taken over a week later, it took the project back.
#[test]
fn a_freeze_makes_a_page_resume_once_and_only_if_it_may() {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &autosave());
    world.tab(0, |machine, _, now| machine.handle_frozen(now));
    world.tab(0, |machine, _, now| machine.handle_resumed(now));
    world.advance(300);
    assert!(world.holds(0));
    world.folder.lock = Some((foreign(world.now), world.now));
    world.advance(120_000);
    assert!(!world.holds(0), "it says that the project is free, and does not take it");
    assert_eq!(world.types(0, "lock").last().unwrap(), "lock:available");

    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &Options { auto_resume: Some(false), ..autosave() });
    world.tab(0, |machine, _, now| machine.handle_frozen(now));
    world.tab(0, |machine, _, now| machine.handle_resumed(now));
    world.advance(60_000);
    assert!(!world.holds(0), "it never resumes");
}

/// A page was frozen while its acquire was in the guarded section. When it was back it tried again under the same lease id
/// and got the same lease, which was then given back as what the first section had brought: the tab believed in a lock
/// that was gone. The simulator found it.
#[test]
fn an_acquire_that_was_frozen_does_not_give_back_what_the_next_attempt_gets() {
    let mut world = World::new(&[Web::Unsupported]);
    let now = world.time();
    let machine = &mut world.tabs[0].machine;
    machine.acquire(CallId(1), &Options { strategy: Strategy::FileLock, ..autosave() }, now);
    machine.handle_frozen(now);
    machine.handle_resumed(now);
    world.settle();
    world.advance(500);
    assert!(world.holds(0), "its own leftover was in the way of one attempt");
    assert_eq!(world.folder.record().lease_id, world.lease(0).lease_id);
}

#[test]
fn a_tab_that_slept_through_its_lease_cannot_act_and_does_not_harm_its_successor() {
    let mut world = World::new(&[Web::Unsupported, Web::Unsupported]);
    world.acquire(0, &autosave());
    let (old, at) = (world.lease(0), world.time());
    let claim = world.tabs[0].machine.claim(at).unwrap();
    world.sleep(28_000);
    let call = world.acquire(1, &autosave());
    let new = world.acquired(1, call);
    assert!(new.fence > old.fence);
    assert_eq!(world.tabs[0].machine.claim(world.time()), None);
    world.advance(0);
    assert_eq!(
        world.folder.record().lease_id,
        new.lease_id,
        "its cleaning up left the successor's lock alone"
    );
    assert!(world.holds(1));
    assert_ne!(claim.fence, new.fence);
}

/// A tab lost its lease while a frozen tab had the guard. Giving it back was tried once: its held file stayed open for as
/// long as the page lived, and nothing ever removed it.
#[test]
fn what_could_not_be_given_back_is_given_back_later() {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &autosave());
    world.folder.trouble = Some(Trouble::GuardBusy);
    world.advance(60_000);
    assert!(!world.holds(0));
    assert_eq!(world.folder.held.len(), 1);
    world.folder.trouble = None;
    world.advance(30_000);
    assert_eq!((world.folder.lock.clone(), world.folder.held.len()), (None, 0));
}

#[test]
fn a_refused_save_makes_the_tab_read_only() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    let claim = world.tabs[0].machine.claim(world.time()).unwrap();
    let call = save(&mut world, 0, claim);
    assert_eq!((&world.tabs[0].saved[&call], world.folder.saves), (&Ok(()), 1));
    assert!(world.holds(0));
    world.folder.lock = Some((foreign(world.now), world.now));
    let call = save(&mut world, 0, claim);
    assert_eq!((refusal(&world, 0, call), world.folder.saves), ("lease-stale", 1));
    assert!(!world.holds(0));
    assert_eq!(world.tabs[0].machine.state(), State::Readonly);
}

fn save(world: &mut World, tab: usize, claim: Proof) -> u32 {
    world.save(tab, claim, "version", Base::LastSeen)
}

/// The code with which a save was refused.
fn refusal(world: &World, tab: usize, call: u32) -> &'static str {
    match &world.tabs[tab].saved[&call] {
        Err(NotSaved::Lost(error)) => error.code(),
        other => panic!("{other:?}"),
    }
}

/// `.lock` could not be read for a moment, and a program on disk heard that its lease was lost.
#[test]
fn a_save_that_cannot_read_the_lock_loses_nothing() {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &autosave());
    let claim = world.tabs[0].machine.claim(world.time()).unwrap();
    for trouble in [Trouble::Read, Trouble::Open] {
        world.folder.trouble = Some(trouble);
        let call = save(&mut world, 0, claim);
        assert!(matches!(world.tabs[0].saved[&call], Err(NotSaved::Folder(_))), "{trouble:?}");
    }
    assert!(world.holds(0));
    assert_eq!(world.folder.saves, 0);
}

/// A program's save waited for the guard until its own deadline had passed, and was made all the same: its `.lock` lasts
/// a little longer than its holder may act on it.
#[test]
fn a_save_that_waits_past_the_holders_deadline_is_called_off() {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &autosave());
    let claim = world.tabs[0].machine.claim(world.time()).unwrap();
    world.folder.guarded_by = Some(7);
    world.sleep(25_500);
    let call = save(&mut world, 0, claim);
    assert!(world.tabs[0].saved.is_empty(), "it waits for the guard");
    world.folder.guarded_by = None;
    world.sleep(500);
    world.advance(0);
    assert_eq!((refusal(&world, 0, call), world.folder.saves), ("lease-stale", 0));
}

// --- one tab ---

#[test]
fn a_second_acquire_in_the_tab_that_holds_is_noticed_unless_it_is_reentrant() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    let call = world.acquire(0, &autosave());
    assert_eq!(world.code(0, call), "lease-mismatch");
    let call = world.acquire(0, &Options { reentrant: true, ..autosave() });
    assert_eq!(world.acquired(0, call), world.lease(0));
    let call = world.release(0);
    assert_eq!((world.answer(0, call), world.holds(0)), (&Ok(Settled::Released), true), "one of two");
    world.release(0);
    assert!(!world.holds(0));
}

#[test]
fn releasing_twice_is_fine_and_releasing_a_lost_lease_is_told() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    let lease_id = world.lease(0).lease_id;
    world.release(0);
    let call = world
        .tab(0, |machine, call, now| machine.release(call, lease_id, ReleaseReason::Completed, false, now));
    assert_eq!(world.answer(0, call), &Ok(Settled::Released));
    world.acquire(0, &autosave());
    let lease_id = world.lease(0).lease_id;
    world.sleep(60_000);
    let call = world
        .tab(0, |machine, call, now| machine.release(call, lease_id, ReleaseReason::Completed, false, now));
    assert_eq!(world.code(0, call), "lease-expired");
    assert!(world.types(0, "service").contains(&"expired".to_owned()));
}

#[test]
fn an_acquire_during_a_release_gets_its_turn() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    let (lease_id, now) = (world.lease(0).lease_id, world.time());
    world.tabs[0].machine.release(CallId(100), lease_id, ReleaseReason::Completed, false, now);
    world.tabs[0].machine.acquire(CallId(101), &autosave(), now);
    world.settle();
    assert_eq!(world.answer(0, 100), &Ok(Settled::Released));
    assert_ne!(world.acquired(0, 101).lease_id, lease_id);
}

#[test]
fn what_was_granted_to_an_aborted_call_is_given_back() {
    let mut world = World::new(&[Web::Unsupported]);
    let now = world.time();
    let machine = &mut world.tabs[0].machine;
    machine.acquire(CallId(1), &Options { strategy: Strategy::FileLock, ..autosave() }, now);
    machine.abort(CallId(1), now);
    world.settle();
    assert_eq!(world.code(0, 1), "web-lock-aborted");
    assert_eq!((world.folder.lock.clone(), world.folder.held.len()), (None, 0));
    assert_eq!(world.tabs[0].machine.state(), State::Idle);
}

#[test]
fn a_heartbeat_that_comes_late_is_remarked_upon() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    world.sleep(21_500);
    world.advance(0);
    let heard = world.heard(0, "lock").join("\n");
    assert!(heard.contains("heartbeat-delayed") && heard.contains("1500 ms"), "{heard}");
    assert!(world.holds(0));
}

#[test]
fn the_holder_stops_before_others_may_come() {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &autosave());
    world.folder.trouble = Some(Trouble::GuardBusy);
    let moment = |millis| Now {
        wall: StoreTime::from_millis(START + millis),
        steady: HolderTime::from_millis(START + millis),
    };
    assert!(world.tabs[0].machine.is_held(moment(25_999)));
    assert!(!world.tabs[0].machine.is_held(moment(26_000)));
}

#[test]
fn law_08_a_late_answer_does_not_bring_a_lost_lease_back() {
    for (answered, held) in [(25_999, true), (26_000, false)] {
        let mut world = World::new(&[Web::Unsupported]);
        world.acquire(0, &autosave());
        world.now = START + 16_000;
        let now = world.time();
        world.tabs[0].machine.handle_timeout(now);
        let asked = steps_up_to(&mut world, 0, &IoStep::DropGuard);
        assert!(asked.iter().any(|step| matches!(step, IoStep::WriteLock(_))), "{asked:?}");
        world.folder.guarded_by = None;
        let machine = &mut world.tabs[0].machine;
        machine.handle_io(IoReply::Done, Now::both(START + answered));
        assert_eq!(machine.is_held(Now::both(START + answered)), held, "answered after {answered} ms");
        assert_eq!(machine.state() == State::Readonly, !held);
        // The deadline counts from when the request was sent, 16 s, not from when it was answered.
        assert_eq!(machine.is_held(Now::both(START + 41_999)), held);
        assert!(!machine.is_held(Now::both(START + 42_000)));
    }
}

/// A world in whose only tab a heartbeat is about to write `.lock`, at 16 s.
fn in_a_heartbeat() -> World {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &autosave());
    world.sleep(16_000);
    let now = world.time();
    world.tabs[0].machine.handle_timeout(now);
    steps_up_to(&mut world, 0, &IoStep::ReadLock);
    let reply = world.folder.take_step(0, &IoStep::ReadLock, world.now);
    world.tabs[0].machine.handle_io(reply, now);
    assert_eq!(world.tabs[0].machine.state(), State::Renewing);
    world
}

fn extend(machine: &mut ProjectLock, call: CallId, seconds: u64, now: Now) {
    let lease_id = machine.lease().unwrap().lease_id;
    machine.renew(call, lease_id, Some(Ttl::from_secs(seconds).unwrap()), now);
}

// A tab asked for two minutes more while a heartbeat was in its section. The heartbeat wrote the usual 30 s, and the caller
// was given a lease of two minutes that was in no file.
#[test]
fn an_extension_during_a_heartbeat_is_acknowledged_with_what_it_wrote() {
    let mut world = in_a_heartbeat();
    let call = world.tab(0, |machine, call, now| extend(machine, call, 120, now));
    assert_eq!(world.folder.record().expires_at().as_millis(), START + 136_000);
    assert_eq!(world.acquired(0, call).expires_at.as_millis(), START + 136_000);
    let now = |after: u64| Now::both(START + after);
    assert!(world.tabs[0].machine.is_held(now(100_000)), "far beyond the deadline of the heartbeat");
    let written = world.folder.steps.iter().filter(|step| matches!(step, IoStep::WriteLock(_))).count();
    assert_eq!(written, 3, "the acquire, the heartbeat, and a section for the extension");
}

#[test]
fn extensions_that_wait_are_made_together_and_the_heartbeat_answers_the_others() {
    let mut world = in_a_heartbeat();
    let now = world.time();
    let lease_id = world.lease(0).lease_id;
    let machine = &mut world.tabs[0].machine;
    extend(machine, CallId(101), 120, now);
    machine.renew(CallId(102), lease_id, None, now);
    extend(machine, CallId(103), 60, now);
    world.settle();
    let until = |call| world.acquired(0, call).expires_at.as_millis();
    assert_eq!([until(101), until(102), until(103)], [136_000, 46_000, 136_000].map(|after| START + after));
}

#[test]
fn an_extension_during_a_heartbeat_that_fails_is_made_by_its_retry() {
    let mut world = in_a_heartbeat();
    world.folder.trouble = Some(Trouble::Write);
    let call = world.tab(0, |machine, call, now| extend(machine, call, 120, now));
    assert!(!world.tabs[0].answers.contains_key(&call), "nothing was written");
    world.folder.trouble = None;
    world.advance(500);
    assert_eq!(world.acquired(0, call).expires_at.as_millis(), START + 136_500);
    assert_eq!(world.folder.record().expires_at().as_millis(), START + 136_500);
}

/// Takes the steps of a tab until this one is asked for, and no further.
fn steps_up_to(world: &mut World, tab: usize, last: &IoStep) -> Vec<IoStep> {
    let (mut steps, now) = (Vec::new(), world.time());
    while let Some(effect) = world.tabs[tab].machine.poll_effect() {
        let Effect::Io(step) = effect else { continue };
        assert!(steps.len() < RESTLESS, "{step:?} again and again");
        steps.push(step.clone());
        if step == *last {
            break;
        }
        let reply = world.folder.take_step(tab, &step, world.now);
        world.tabs[tab].machine.handle_io(reply, now);
    }
    steps
}

#[test]
fn law_08_a_grant_that_comes_after_its_deadline_is_given_back() {
    let mut world = World::new(&[Web::Unsupported]);
    let now = world.time();
    let options = Options { strategy: Strategy::FileLock, ..autosave() };
    world.tabs[0].machine.acquire(CallId(1), &options, now);
    steps_up_to(&mut world, 0, &IoStep::DropGuard);
    assert!(world.folder.lock.is_some());
    world.folder.guarded_by = None;
    let machine = &mut world.tabs[0].machine;
    machine.handle_io(IoReply::Done, Now::both(START + 26_000));
    assert_eq!((machine.lease(), machine.state()), (None, State::BackingOff));
    world.settle();
    assert_eq!((world.folder.lock.clone(), world.folder.held.len()), (None, 0));
}

/// The warning came when `.lock` had been written: it was too late to decline.
#[test]
fn a_clock_that_is_wrong_is_asked_about_before_a_forced_take_over() {
    let mut world = World::new(&[Web::Unsupported]);
    world.folder.lock = Some((foreign(START - 120_000), START));
    let before = world.folder.lock.clone();
    let call = world.tab(0, |machine, call, now| {
        machine.take_over(call, &autosave(), None, Reason::default(), now);
    });
    assert_eq!(world.code(0, call), "fallback-conflict");
    assert_eq!((world.folder.lock.clone(), world.folder.touched.len()), (before, 0), "nothing was written");
    assert!(world.heard(0, "lock").iter().any(|line| line.contains("clock-skew")));
    let call = world.tab(0, |machine, call, now| {
        let options = Options { accept_clock_skew: true, ..autosave() };
        machine.take_over(call, &options, None, Reason::default(), now);
    });
    world.acquired(0, call);
    let heard = world.heard(0, "lock");
    let place = |word: &str| heard.iter().position(|line| line.contains(word)).unwrap();
    assert!(place("clock-skew") < place("lock:acquired"));
}

#[test]
fn what_cannot_be_helped_is_not_tried_again() {
    let mut world = World::new(&[Web::Works]);
    world.folder.trouble = Some(Trouble::Open);
    let call = world.acquire(0, &autosave());
    assert_eq!(world.code(0, call), "fallback-open-failed");
    assert!(world.heard(0, "lock").join("\n").contains(r#""reason":"irrecoverable""#));
    world.folder.trouble = None;
    world.advance(60_000);
    assert_eq!(world.tabs[0].machine.state(), State::Readonly);
    let call = world.acquire(0, &autosave());
    world.acquired(0, call);
}

#[test]
fn a_guard_that_is_stuck_is_visible_and_never_bypassed() {
    let mut world = World::new(&[Web::Works]);
    world.folder.trouble = Some(Trouble::GuardBusy);
    let call = world.acquire(0, &autosave());
    // Three attempts of two seconds, and half a second and a whole one between them.
    world.advance(7_400);
    assert!(!world.tabs[0].answers.contains_key(&call));
    world.advance(200);
    assert_eq!(world.code(0, call), "acquire-timeout");
    assert!(world.heard(0, "lock").join("\n").contains("unavailable(guard-busy)"));
    assert_eq!(world.folder.lock, None);
}

#[test]
fn without_a_folder_the_web_lock_alone_is_worth_less_and_says_so() {
    let absent = Folder::Absent { said: "private-window".into() };
    let mut world = World::with_folder(&[Web::Works], &absent);
    let call = world.acquire(0, &autosave());
    assert_eq!(world.acquired(0, call).guarantee, Guarantee::TabExclusive);
    world.advance(60_000);
    assert!(world.holds(0));
    world.release(0);
    assert_eq!((world.tabs[0].machine.state(), world.web_lock), (State::Idle, None));
    let mut world = World::with_folder(&[Web::Unsupported], &absent);
    let call = world.acquire(0, &autosave());
    assert_eq!(world.code(0, call), "fallback-open-failed");
    assert!(world.heard(0, "lock").join("\n").contains("unavailable(private-window)"));
}

/// Without a folder a tab that was read-only looked for one three times a second, and never heard that its turn had come.
#[test]
fn without_a_folder_the_next_in_the_queue_is_told_or_resumes() {
    let absent = Folder::Absent { said: "no-private-file-system".into() };
    let mut world = World::with_folder(&[Web::Works, Web::Works, Web::Works], &absent);
    world.acquire(0, &autosave());
    world.acquire(1, &autosave());
    world.acquire(2, &resuming());
    world.advance(10_000);
    world.release(0);
    assert_eq!(world.types(1, "lock").last().unwrap(), "lock:available");
    assert!(world.holds(2), "who was only told does not keep others waiting");
    assert!(world.lease(2).fence.get() > START);
}

/// In a private window somebody's clock was set back by a minute, and the fences of the next leases were smaller: a server
/// that compares them refused every save for a minute.
#[test]
fn without_a_folder_a_tab_never_gives_itself_a_smaller_fence() {
    let absent = Folder::Absent { said: "no-private-file-system".into() };
    let mut world = World::with_folder(&[Web::Works], &absent);
    world.acquire(0, &autosave());
    let before = world.lease(0).fence;
    world.release(0);
    world.now -= 60_000;
    world.acquire(0, &autosave());
    assert!(world.lease(0).fence > before);
}

#[test]
fn a_folder_without_a_guard_is_refused_unless_it_is_allowed() {
    let mut world = World::with_folder(&[Web::Works], &Folder::Advisory);
    let call = world.acquire(0, &autosave());
    assert_eq!(world.code(0, call), "fallback-open-failed");
    let call = world.acquire(0, &Options { allow_advisory: true, ..autosave() });
    assert_eq!(world.acquired(0, call).guarantee, Guarantee::Advisory);
}

#[test]
fn the_last_wait_is_cut_to_the_time_that_is_left() {
    let mut world = World::new(&[Web::Unsupported]);
    world.folder.lock = Some((foreign(START), START));
    let call = world.acquire(0, &Options::of(Profile::Service));
    world.advance(4_999);
    assert!(!world.tabs[0].answers.contains_key(&call));
    world.advance(1);
    assert_eq!(world.code(0, call), "lease-mismatch", "the code of the last fault");
}

// --- tables ---

#[test]
fn every_fault_has_its_row() {
    let codes: Vec<_> = fault::TABLE.iter().map(|row| (row.autosave, row.service.unwrap_or("-"))).collect();
    assert_eq!(
        codes,
        [
            ("web-lock-unsupported", "web-lock-unavailable"),
            ("acquire-denied", "web-lock-unavailable"),
            ("web-lock-aborted", "web-lock-aborted"),
            ("acquire-timeout", "-"),
            ("fallback-conflict", "lease-mismatch"),
            ("lease-mismatch", "lease-mismatch"),
            ("fallback-open-failed", "fallback-open-failed"),
            ("fallback-read-failed", "fallback-read-failed"),
            ("fallback-write-failed", "fallback-write-failed"),
            ("renew-failed", "fallback-write-failed"),
            ("lease-stale", "lease-mismatch"),
            ("lease-expired", "lease-expired"),
            ("release-failed", "fallback-write-failed"),
            ("stale-base", "stale-base"),
        ]
    );
    for row in &fault::TABLE {
        assert_eq!(row.fault.row().autosave, row.autosave);
    }
}

#[test]
fn bad_options_are_refused_with_what_to_write() {
    let cases = [
        (Wanted { profile: Some("fast".into()), ..Wanted::default() }, "write one of: autosave, service"),
        (Wanted { ttl_ms: Some(5_000.0), ..Wanted::default() }, "write 6000 or more"),
        (Wanted { ttl_ms: Some(f64::NAN), ..Wanted::default() }, "ttlMs"),
        (Wanted { max_wait_ms: Some(-1.0), ..Wanted::default() }, "maxWaitMs"),
        (Wanted { max_attempts: Some(0.0), ..Wanted::default() }, "write 3"),
        (Wanted { max_attempts: Some(1.5), ..Wanted::default() }, "write 3"),
        (Wanted { multiplier: Some(0.5), ..Wanted::default() }, "write 2"),
        (Wanted { heartbeat_interval_ms: Some(26_000.0), ..Wanted::default() }, "write 13000 or less"),
        (Wanted { preferred_strategy: Some("x".into()), ..Wanted::default() }, "web-lock, file-lock"),
    ];
    for (wanted, expected) in cases {
        let error = Options::parse(&wanted).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(Options::parse(&Wanted::default()).unwrap(), Options::default());
    let unlimited = Wanted { max_attempts: Some(f64::INFINITY), ..Wanted::default() };
    assert_eq!(Options::parse(&unlimited).unwrap().retry.max_attempts, None);
}

#[test]
fn heartbeats_leave_room_before_the_holder_must_stop() {
    let secs = |seconds| Ttl::from_secs(seconds).unwrap();
    let cases = [
        (Strategy::WebLock, 25, 30, 20_000),
        (Strategy::FileLock, 30, 30, 16_000),
        (Strategy::WebLock, 15, 15, 6_500),
        (Strategy::FileLock, 15, 15, 5_500),
        (Strategy::FileLock, 6, 6, 1_000),
    ];
    for (strategy, shown, file, expected) in cases {
        let heartbeat = heartbeat_of(None, strategy, secs(shown), secs(file));
        assert_eq!(heartbeat.as_millis(), expected, "{strategy:?} {shown}");
        assert!(heartbeat < usable(secs(shown), secs(file)));
    }
    // Two tries fit, with the guard busy for as long as it is waited for, and half a second between them.
    for profile in [Profile::Autosave, Profile::Service] {
        let options = Options::of(profile);
        for strategy in [Strategy::WebLock, Strategy::FileLock] {
            let shown = options.shown_ttl(strategy);
            let room =
                usable(shown, options.file_ttl) - heartbeat_of(None, strategy, shown, options.file_ttl);
            assert!(
                room >= GUARD_PATIENCE * 2 + Duration::from_millis(500),
                "{profile:?} {strategy:?}: {room:?}"
            );
        }
    }
    let wanted = Some(Duration::from_secs(3_600));
    assert!(heartbeat_of(wanted, Strategy::WebLock, secs(25), secs(30)) < Duration::from_secs(25));
}

/// A take-over waited for the guard when it was aborted and its page was frozen. When the page was back, a minute later, the
/// section went on and took the project from a tab that nobody had asked about.
#[test]
fn a_take_over_that_waited_for_the_guard_is_forgotten_when_the_page_is_frozen() {
    let mut world = World::new(&[Web::Unsupported, Web::Unsupported]);
    world.folder.guarded_by = Some(7);
    world.acquire(1, &autosave());
    world.advance(2_100);
    let take_over = world.tab(1, |machine, call, now| {
        machine.take_over(call, &autosave(), None, Reason::default(), now);
    });
    world.advance(20);
    world.tab(1, |machine, _, now| machine.abort(CallId(take_over), now));
    world.tab(1, |machine, _, now| machine.handle_frozen(now));
    world.folder.guarded_by = None;
    world.acquire(0, &autosave());
    world.sleep(5_000);
    world.tab(1, |machine, _, now| machine.handle_resumed(now));
    world.advance(1_000);
    assert!(world.holds(0));
    assert_eq!(world.folder.record().owner.as_str(), "tab-0");
}
