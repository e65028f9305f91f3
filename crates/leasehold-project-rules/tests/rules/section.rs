//! The guarded section step by step: in which order it asks, and what it does when a step fails, took effect although it
//! failed, or is answered with something that does not fit.

use leasehold_core::lease::{Bid, Proof};
use leasehold_core::name::{Fence, LeaseId, Meta, Owner, Reason};
use leasehold_core::time::Ttl;
use leasehold_project_rules::guarded::{Action, LockFile, Loss, Outcome, Probe};
use leasehold_project_rules::section::{Conclusion, GUARD_PATIENCE};
use leasehold_project_rules::{CallId, IoError, IoKind, IoReply, IoStep, Now, Section};

use super::world::{Folder, START, Trouble, foreign};

const TAB: usize = 0;

/// No section takes this many steps, nor tries this often.
const ENDLESS: usize = 20;

fn bid(byte: u8) -> Bid {
    Bid {
        tab: None,
        lease_id: LeaseId::from_random([byte; 16]),
        owner: Owner::parse("me").unwrap(),
        ttl: Ttl::from_secs(30).unwrap(),
        meta: Meta::default(),
    }
}

/// What happens to one step of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It fails and does nothing.
    Fails,
    /// It is reported as failed, and has happened.
    FailsDone,
    /// It is answered with something that does not fit.
    Nonsense,
}

/// Runs a section, where the step at this place meets its fate. Answers the steps, and what it came to.
fn run(
    folder: &mut Folder,
    action: &Action,
    now: u64,
    fate: Option<(usize, Fate)>,
) -> (Vec<IoStep>, Result<Conclusion, IoError>) {
    let mut section = Section::new(action.clone(), 0);
    let mut steps = Vec::new();
    while let Some(step) = section.poll_step() {
        let meets = fate.filter(|(place, _)| *place == steps.len()).map(|(_, fate)| fate);
        let reply = match meets {
            None => folder.take_step(TAB, &step, now),
            Some(fate) => {
                if fate == Fate::FailsDone {
                    folder.take_step(TAB, &step, now);
                }
                match (fate, &step) {
                    // What fits every step but these.
                    (Fate::Nonsense, IoStep::ProbeHeld(_)) => IoReply::Absent,
                    (Fate::Nonsense, _) => IoReply::Probe(Probe::Free),
                    _ => IoReply::Failed { said: "EIO".into() },
                }
            }
        };
        steps.push(step);
        assert!(steps.len() < ENDLESS, "it does not end: {steps:?}");
        section.handle(reply, Now::both(now));
    }
    (steps, section.result().expect("it is over").clone())
}

fn whole(folder: &mut Folder, action: &Action, now: u64) -> (Vec<IoStep>, Result<Conclusion, IoError>) {
    run(folder, action, now, None)
}

/// A folder that the tab holds, and its claim.
fn held() -> (Folder, Proof) {
    let mut folder = Folder::default();
    let (_, result) = whole(&mut folder, &Action::Acquire(bid(1)), START);
    let Outcome::Granted(grant) = result.unwrap().outcome else { panic!() };
    (folder, Proof { lease_id: grant.lease_id, fence: grant.fence })
}

/// Every action, each with a folder in which it goes well.
fn actions() -> Vec<(Action, Folder)> {
    let ttl = Ttl::from_secs(30).unwrap();
    let free = |lock| Folder { lock, ..Folder::default() };
    let (renewed, claim) = held();
    let mut dead = held().0;
    dead.held.values_mut().for_each(|holder| *holder = None);
    vec![
        (Action::Acquire(bid(2)), free(None)),
        (Action::Acquire(bid(2)), free(Some((foreign(0), 0)))),
        (Action::Acquire(bid(2)), dead),
        (
            Action::TakeOver { seen: None, bid: bid(2), reason: Reason::default(), despite_skew: true },
            held().0,
        ),
        (Action::Renew { claim, ttl }, renewed),
        (Action::Release(claim), held().0),
        (Action::Save { claim, call: CallId(7) }, held().0),
        (Action::Look, held().0),
    ]
}

#[test]
fn a_section_reads_then_acts_then_lets_the_guard_go() {
    let mut folder = Folder::default();
    let (steps, result) = whole(&mut folder, &Action::Acquire(bid(1)), START);
    let Outcome::Granted(grant) = result.unwrap().outcome else { panic!("{steps:?}") };
    let record = folder.record();
    let expected = [
        IoStep::TakeGuard { look: false },
        IoStep::ReadGuard,
        IoStep::ReadLock,
        IoStep::WriteGuard(grant.fence.get()),
        IoStep::OpenHeld(grant.fence),
        IoStep::WriteLock(record),
        IoStep::SweepHeld { keep: grant.fence },
        IoStep::DropGuard,
    ];
    assert_eq!(steps, expected);
    let (steps, _) = whole(&mut folder, &Action::Acquire(bid(2)), START);
    assert_eq!(steps[3..], [IoStep::ProbeHeld(grant.fence), IoStep::DropGuard], "another holder is probed");
    let claim = Proof { lease_id: grant.lease_id, fence: grant.fence };
    let (steps, _) = whole(&mut folder, &Action::Save { claim, call: CallId(7) }, START);
    assert_eq!(steps[3..], [IoStep::Save(CallId(7)), IoStep::DropGuard]);
    let (steps, _) = whole(&mut folder, &Action::Release(claim), START);
    assert_eq!(steps[3..], [IoStep::RemoveLock, IoStep::CloseHeld(grant.fence), IoStep::DropGuard]);
}

/// A look through a browser's window made the folder and the guard, and so did one for a project that nobody had opened yet.
#[test]
fn a_look_without_a_guard_makes_nothing_and_trusts_no_held_file() {
    let (folder, claim) = held();
    let mut section = Section::new(Action::Look, 0);
    let now = Now::both(START + 1);
    assert_eq!(section.poll_step(), Some(IoStep::TakeGuard { look: true }));
    section.handle(IoReply::Absent, now);
    assert_eq!(section.poll_step(), Some(IoStep::ReadLock));
    let mut other = Folder { lock: folder.lock, guarded_by: Some(TAB), ..Folder::default() };
    section.handle(other.take_step(TAB, &IoStep::ReadLock, START), now);
    assert_eq!(section.poll_step(), None, "no probe, and no guard to let go");
    let Some(Ok(Conclusion { outcome: Outcome::Held(holder), .. })) = section.result() else { panic!() };
    assert_eq!(holder.fence, claim.fence);
    // Only a look goes on without a guard.
    let mut section = Section::new(Action::Acquire(bid(2)), 0);
    section.handle(IoReply::Absent, now);
    assert_eq!(section.poll_step(), Some(IoStep::DropGuard), "it reads nothing");
    section.handle(IoReply::Done, now);
    assert!(matches!(section.result(), Some(Err(IoError { kind: IoKind::Open, .. }))));
}

#[test]
fn a_guard_that_is_busy_is_tried_for_two_seconds_and_once_more() {
    let mut section = Section::new(Action::Look, 12_345);
    let (mut now, mut tries) = (START, 0);
    while section.result().is_none() {
        assert_eq!(section.poll_step(), Some(IoStep::TakeGuard { look: true }));
        tries += 1;
        assert!(tries < 1_000, "it does not end");
        section.handle(IoReply::Busy, Now::both(now));
        let Some(until) = section.poll_timeout() else { break };
        assert_eq!(section.poll_step(), None);
        section.handle_timeout(Now::both(now));
        assert!(section.poll_timeout().is_some() || until.as_millis() <= now, "not before it is due");
        now = until.as_millis().max(now + 1);
        section.handle_timeout(Now::both(now));
    }
    let waited = now - START;
    assert!(u128::from(waited) >= GUARD_PATIENCE.as_millis() && waited < 2_020, "{waited} ms");
    assert!((125..500).contains(&tries), "{tries} tries");
    assert!(matches!(section.result(), Some(Err(IoError { kind: IoKind::GuardBusy, .. }))));
    // A machine that slept in between tries once more before it gives up.
    let mut section = Section::new(Action::Look, 0);
    section.handle(IoReply::Busy, Now::both(START));
    section.handle_timeout(Now::both(START + 60_000));
    assert_eq!(section.poll_step(), Some(IoStep::TakeGuard { look: true }));
    section.handle(IoReply::Done, Now::both(START + 60_000));
    assert_eq!(section.poll_step(), Some(IoStep::ReadGuard));
}

#[test]
fn every_step_that_fails_has_its_error_and_the_guard_is_let_go() {
    for (at, (action, _)) in actions().into_iter().enumerate() {
        let (steps, _) = whole(&mut actions().swap_remove(at).1, &action, START + 1);
        for (place, step) in steps.iter().enumerate() {
            for fate in [Fate::Fails, Fate::FailsDone, Fate::Nonsense] {
                let mut folder = actions().swap_remove(at).1;
                let (taken, result) = run(&mut folder, &action, START + 1, Some((place, fate)));
                let expected = match step {
                    IoStep::TakeGuard { .. } | IoStep::ReadLock => Some(IoKind::Open),
                    IoStep::ReadGuard => Some(IoKind::Read),
                    IoStep::WriteGuard(_) | IoStep::WriteLock(_) | IoStep::RemoveLock | IoStep::Save(_) => {
                        Some(IoKind::Write)
                    }
                    _ => None,
                };
                let context = format!("{action:?}, {fate:?} at {step:?}: {taken:?}");
                assert_eq!(result.as_ref().err().map(|error| error.kind), expected, "{context}");
                assert_eq!(taken.last(), Some(&IoStep::DropGuard), "{context}");
                let drops = taken.iter().filter(|step| **step == IoStep::DropGuard).count();
                assert!(drops <= 1, "{context}");
            }
        }
    }
}

/// A held file that stays open after its section failed keeps everybody out for as long as the page lives; one that is
/// removed although `.lock` names it makes them wait for the lease to run out; one that stays although `.lock` does not
/// name it is litter, and on a full disk every try left another.
#[test]
fn after_a_failed_write_the_held_file_is_free_if_the_lock_names_it_and_gone_if_not() {
    let mut seen = [0; 2];
    for (at, (action, _)) in actions().into_iter().enumerate() {
        let (steps, _) = whole(&mut actions().swap_remove(at).1, &action, START + 1);
        let own = steps.iter().find_map(|step| match step {
            IoStep::OpenHeld(fence) | IoStep::CloseHeld(fence) => Some(fence.get()),
            _ => None,
        });
        let Some(own) = own else { continue };
        for (place, step) in steps.iter().enumerate() {
            for fate in [Fate::Fails, Fate::FailsDone] {
                let mut folder = actions().swap_remove(at).1;
                let (taken, result) = run(&mut folder, &action, START + 1, Some((place, fate)));
                if !matches!(&result, Err(IoError { kind: IoKind::Write, .. })) {
                    continue;
                }
                let named = folder.lock.is_some() && folder.record().fence == Fence::new(own).ok();
                // Where the fence could not be stored, the file was never made.
                let expected = (named && folder.held.contains_key(&own)).then_some(None);
                let context = format!("{action:?}, {fate:?} at {step:?}: {taken:?}");
                assert_eq!(folder.held.get(&own).copied(), expected, "{context}");
                seen[usize::from(named)] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count >= 3), "{seen:?}");
}

#[test]
fn a_lock_that_cannot_be_read_again_may_name_the_held_file() {
    let unreadable = LockFile::Unreadable { modified: None, said: "EIO".into() };
    for again in [IoReply::Lock(unreadable), IoReply::Failed { said: "EIO".into() }] {
        let mut folder = Folder { trouble: Some(Trouble::WriteUnknown), ..Folder::default() };
        let mut section = Section::new(Action::Acquire(bid(1)), 0);
        let (mut taken, mut reads) = (0, 0);
        while let Some(step) = section.poll_step() {
            reads += u32::from(step == IoStep::ReadLock);
            taken += 1;
            assert!(taken < ENDLESS, "it does not end: {step:?}");
            let reply = match step {
                IoStep::ReadLock if reads == 2 => again.clone(),
                _ => folder.take_step(TAB, &step, START),
            };
            section.handle(reply, Now::both(START));
        }
        assert_eq!(reads, 2);
        assert_eq!(folder.held.values().collect::<Vec<_>>(), [&None], "closed, and still there: {again:?}");
        folder.trouble = None;
        let (_, result) = whole(&mut folder, &Action::Acquire(bid(3)), START + 2);
        assert!(matches!(result.unwrap().outcome, Outcome::Granted(_)), "its holder is dead");
    }
}

#[test]
fn a_lock_without_a_held_file_says_so() {
    let mut folder = Folder { trouble: Some(Trouble::Held), ..Folder::default() };
    let (_, result) = whole(&mut folder, &Action::Acquire(bid(1)), START);
    let Outcome::Granted(grant) = result.unwrap().outcome else { panic!() };
    assert!(!folder.record().held);
    let (steps, _) = whole(&mut folder, &Action::Look, START);
    assert!(!steps.iter().any(|step| matches!(step, IoStep::ProbeHeld(_))), "{steps:?}");
    // It stays so when the lease is renewed.
    folder.trouble = None;
    let claim = Proof { lease_id: grant.lease_id, fence: grant.fence };
    let (_, result) =
        whole(&mut folder, &Action::Renew { claim, ttl: Ttl::from_secs(30).unwrap() }, START + 1);
    assert!(result.is_ok() && !folder.record().held);
}

#[test]
fn a_save_is_called_off_only_before_it_is_made() {
    let (mut folder, claim) = held();
    let mut section = Section::new(Action::Save { claim, call: CallId(7) }, 0);
    for _ in 0..ENDLESS {
        let Some(step) = section.poll_step() else { break };
        let is_due = step == IoStep::Save(CallId(7));
        assert_eq!(section.call_off_save(), is_due, "{step:?}");
        if is_due {
            break;
        }
        section.handle(folder.take_step(TAB, &step, START), Now::both(START));
    }
    assert_eq!(section.poll_step(), Some(IoStep::DropGuard));
    assert!(!section.call_off_save());
    section.handle(IoReply::Done, Now::both(START));
    assert!(matches!(section.result(), Some(Ok(Conclusion { outcome: Outcome::Lost(_), .. }))));
}

#[test]
fn a_lease_id_whose_lease_ran_out_is_not_granted_again() {
    let (mut folder, _) = held();
    let (_, result) = whole(&mut folder, &Action::Acquire(bid(1)), START + 60_000);
    assert_eq!(result.unwrap().outcome, Outcome::Lost(Loss::Expired));
}
