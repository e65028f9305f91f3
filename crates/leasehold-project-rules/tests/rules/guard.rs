//! What is decided inside the guard, on what stands in the files.

use leasehold_core::lease::{Bid, Proof};
use leasehold_core::name::{Fence, LeaseId, Meta, Owner, Reason};
use leasehold_core::time::{StoreTime, Ttl};
use leasehold_project_rules::guarded::{
    self, Action, After, Found, LockFile, Loss, Outcome, Probe, Verdict, probe,
};
use leasehold_project_rules::record::{
    Content, End, LONGEST, Member, Members, Record, guard_text, read_guard,
};

use leasehold_project_rules::{CallId, IoStep, Section};

use super::world::{START, foreign};

fn at(millis: u64) -> StoreTime {
    StoreTime::from_millis(millis)
}

fn id(byte: u8) -> LeaseId {
    LeaseId::from_random([byte; 16])
}

fn bid(byte: u8) -> Bid {
    Bid {
        lease_id: id(byte),
        owner: Owner::parse("me").unwrap(),
        tab: None,
        ttl: Ttl::from_secs(30).unwrap(),
        meta: Meta::default(),
    }
}

fn found(content: &Content, modified: u64) -> Found {
    let lock = LockFile::Read { content: content.clone(), modified: at(modified) };
    Found { lock, last_fence: Some(7) }
}

fn empty() -> Found {
    Found { lock: LockFile::Missing, last_fence: None }
}

fn decide(action: &Action, found: &Found, probe: Probe, now: u64) -> Verdict {
    guarded::decide(action, found, probe, at(now))
}

fn save(claim: Proof) -> Action {
    Action::Save { claim, call: CallId(1) }
}

fn acquire(found: &Found, now: u64) -> Verdict {
    decide(&Action::Acquire(bid(1)), found, Probe::Unknown, now)
}

fn granted(verdict: &Verdict) -> (u64, Option<After>) {
    match &verdict.outcome {
        Outcome::Granted(grant) => (grant.fence.get(), grant.after),
        other => panic!("{other:?}"),
    }
}

/// What is written by a verdict, as the next one finds it.
fn after(verdict: &Verdict, before: &Found, modified: u64) -> Found {
    let mut now = before.clone();
    for step in &verdict.steps {
        match step {
            IoStep::WriteGuard(fence) => now.last_fence = Some(*fence),
            IoStep::WriteLock(record) => {
                let content = Content::Record(record.clone());
                now.lock = LockFile::Read { content, modified: at(modified) };
            }
            IoStep::RemoveLock => now.lock = LockFile::Missing,
            _ => {}
        }
    }
    now
}

/// Somebody acquired in an empty folder at `START`: what is there then, and the claim.
fn held() -> (Found, Proof) {
    let verdict = acquire(&empty(), START);
    let Outcome::Granted(grant) = &verdict.outcome else { panic!("{verdict:?}") };
    let claim = Proof { lease_id: grant.lease_id, fence: grant.fence };
    (after(&verdict, &empty(), START), claim)
}

/// A record as *Project lock states* 2 has it: `leaseId`, `owner` and `expiresAt`.
fn members() -> Members {
    Members {
        lease_id: Member::Text("0b7c2b6e-58a5-4f0a-9a53-0d6f0f1d2c3b".into()),
        owner: Member::Text("other".into()),
        expires_at: number(START + 30_000),
        ..Members::default()
    }
}

fn number(number: u64) -> Member {
    Member::Number(number as f64)
}

#[test]
fn the_three_shapes_of_the_sources_are_read() {
    let written = Members { expires_at: Member::Absent, updated_at: number(START), ..members() };
    let shapes = [
        Members { owner: Member::Absent, ..members() },
        members(),
        Members { version: number(1), ttl_seconds: number(30), ..written },
    ];
    for shape in &shapes {
        let content = Content::of(shape);
        let Content::Record(record) = &content else { panic!("{shape:?}") };
        assert_eq!((record.updated_at, record.expires_at()), (at(START), at(START + 30_000)), "{shape:?}");
        assert_eq!((record.fence, record.held), (None, false), "{shape:?}");
        assert!(matches!(acquire(&found(&content, START), START + 1_000).outcome, Outcome::Held(_)));
    }
}

#[test]
fn what_is_written_says_everything_that_is_known() {
    let (found, claim) = held();
    let LockFile::Read { content: Content::Record(record), .. } = &found.lock else { panic!() };
    let expected = Record {
        lease_id: claim.lease_id,
        owner: Owner::parse("me").unwrap(),
        label: Meta::default(),
        acquired_at: at(START),
        updated_at: at(START),
        ttl: Ttl::from_secs(30).unwrap(),
        fence: Some(claim.fence),
        seq: 1,
        held: true,
    };
    assert_eq!(*record, expected);
    assert_eq!(record.expires_at(), at(START + 30_000));
}

/// Clocks may differ by two seconds, not by less: a disk that keeps times to two seconds is no sign of a wrong clock.
#[test]
fn a_clock_is_wrong_from_two_seconds_and_a_millisecond_on() {
    let Content::Record(record) = Content::of(&members()) else { panic!() };
    let is_skewed = |modified: u64, now: u64| End::of(&record, at(modified), at(now)).skewed;
    for early in [0, 2_000] {
        assert!(!is_skewed(START - early, START) && !is_skewed(START + early, START), "{early}");
        assert!(!is_skewed(START, START - early), "{early} ms in the future");
    }
    assert!(is_skewed(START - 2_001, START) && is_skewed(START + 2_001, START));
    assert!(is_skewed(START, START - 2_001), "in the future");
}

/// A longer `.lock` counts as damaged, and a damaged one is replaced once its time is over: the shells must never cut off
/// a record that a program can write, however it escapes the holder's names.
#[test]
fn the_longest_record_that_can_be_written_is_looked_at() {
    let escaped = |bytes: usize| bytes * r"\u00e9".len();
    let (names, rest) = (Owner::MAX_BYTES + Meta::LABEL_MAX_BYTES, 512);
    assert!(escaped(names) + rest <= LONGEST, "{LONGEST}");
}

#[test]
fn a_record_that_contradicts_itself_lasts_longer() {
    let later = Members { updated_at: number(START + 1), ..members() };
    let earlier = Members { updated_at: number(START - 1), ..members() };
    for (members, expected) in [(later, START + 1), (earlier, START)] {
        let Content::Record(record) = Content::of(&members) else { panic!() };
        assert_eq!(record.updated_at, at(expected));
    }
}

#[test]
fn a_ttl_is_read_to_the_millisecond() {
    for (seconds, millis) in
        [(30.0, 30_000), (6.5, 6_500), (6.025, 6_025), (1.001, 1_001), (86_400.0, 86_400_000)]
    {
        let members = Members { ttl_seconds: Member::Number(seconds), ..members() };
        let Content::Record(record) = Content::of(&members) else { panic!("{seconds}") };
        assert_eq!(record.ttl.as_millis(), millis);
    }
}

#[test]
fn damaged_newer_and_unreadable_are_told_apart() {
    let other = || Member::Other;
    for damaged in [
        Members::default(),
        Members { lease_id: Member::Absent, ..members() },
        Members { lease_id: Member::Text("x".into()), ..members() },
        Members { lease_id: number(42), ..members() },
        Members { version: Member::Text("one".into()), ..members() },
        Members { version: Member::Number(-1.0), ..members() },
        Members { expires_at: Member::Absent, ..members() },
        Members { expires_at: Member::Number(-1.0), ..members() },
        Members { expires_at: Member::Number(9_007_199_254_740_992.0), ..members() },
        Members { updated_at: other(), ..members() },
        Members { owner: number(1), ..members() },
        Members { ttl_seconds: number(0), ..members() },
        Members { ttl_seconds: Member::Number(f64::INFINITY), ..members() },
        Members { ttl_seconds: Member::Number(f64::NAN), ..members() },
        Members { fence: Member::Number(1.5), ..members() },
        Members { fence: number(0), ..members() },
        Members { seq: other(), ..members() },
        Members { held: number(1), ..members() },
    ] {
        let content = Content::of(&damaged);
        assert_eq!(content, Content::Damaged, "{damaged:?}");
        // An unknown owner's, until it is stale; then it is replaced.
        assert!(matches!(acquire(&found(&content, START), START + 27_999).outcome, Outcome::Held(_)));
        assert_eq!(granted(&acquire(&found(&content, START), START + 28_000)), (8, Some(After::Expired)));
    }
    let newer = Members { version: number(2), lease_id: number(42), ..Members::default() };
    let newer = found(&Content::of(&newer), 0);
    assert_eq!(acquire(&newer, START).outcome, Outcome::Newer { version: 2 });
    assert_eq!(acquire(&newer, START).steps, [], "it is not touched");
    let unreadable =
        |modified| Found { lock: LockFile::Unreadable { modified, said: "EIO".into() }, last_fence: Some(7) };
    let said = Outcome::Unreadable { said: "EIO".into() };
    assert_eq!(acquire(&unreadable(None), START).outcome, said);
    assert_eq!(acquire(&unreadable(Some(at(START))), START + 27_999).outcome, said);
    assert_eq!(
        granted(&acquire(&unreadable(Some(at(START))), START + 28_000)).0,
        8,
        "regenerated when stale"
    );
}

#[test]
fn free_when_modification_time_and_content_are_both_older_than_28_s() {
    let cases = [
        (0, 0, false),
        (27_999, 27_999, false),
        (28_000, 28_000, true),
        (28_000, 27_999, false),
        (27_999, 28_000, false),
        (600_000, 27_000, false),
        (27_000, 600_000, false),
    ];
    for (modified, updated, free) in cases {
        let found = found(&foreign(START - updated), START - modified);
        let verdict = acquire(&found, START);
        assert_eq!(matches!(verdict.outcome, Outcome::Granted(_)), free, "{modified} {updated}");
        let disagree = u64::abs_diff(modified, updated) > 2_000;
        assert_eq!(verdict.skewed, disagree, "{modified} {updated}");
    }
    let from_the_future = found(&foreign(START + 3_000), START + 3_000);
    assert!(acquire(&from_the_future, START).skewed);
}

#[test]
fn a_dead_holders_lease_is_taken_at_once_and_a_busy_ones_is_not() {
    let (found, claim) = held();
    let other = Action::Acquire(bid(2));
    assert_eq!(probe(&other, &found), Some(claim.fence));
    let said = |probe, now| decide(&other, &found, probe, now);
    let now = START + 1;
    assert!(matches!(said(Probe::Busy, now).outcome, Outcome::Held(_)));
    assert!(matches!(said(Probe::Unknown, now).outcome, Outcome::Held(_)));
    let (fence, from) = granted(&said(Probe::Free, now));
    assert_eq!((fence, from), (claim.fence.get() + 1, Some(After::Dead)));
    // A frozen holder keeps its handle: its time decides.
    let late = said(Probe::Busy, START + 28_000);
    assert_eq!(granted(&late).1, Some(After::Expired));
    // Nobody probes its own file, nor one that the record does not name.
    assert_eq!(probe(&Action::Acquire(bid(1)), &found), None);
    assert_eq!(probe(&save(claim), &found), None);
    assert_eq!(probe(&other, &super::guard::found(&foreign(START), START)), None);
}

#[test]
fn the_fence_goes_into_the_guard_first_then_the_held_file_then_the_lock() {
    let verdict = acquire(&found(&foreign(0), 0), START);
    let fence = Fence::new(8).unwrap();
    let [
        IoStep::WriteGuard(guard),
        IoStep::OpenHeld(held),
        IoStep::WriteLock(record),
        IoStep::SweepHeld { keep },
    ] = verdict.steps.as_slice()
    else {
        panic!("{verdict:?}")
    };
    assert_eq!((*guard, *held, record.fence, *keep), (8, fence, Some(fence), fence));
    assert!(record.held);
}

#[test]
fn law_02_deleting_or_damaging_the_lock_never_resets_the_fence() {
    let (found, claim) = held();
    for lock in [LockFile::Missing, LockFile::Read { content: Content::Damaged, modified: at(0) }] {
        let found = Found { lock, ..found };
        assert_eq!(granted(&acquire(&found, START + 60_000)).0, claim.fence.get() + 1);
    }
    // Without its guard, the record's own fence counts; without either, the clock does.
    let torn = Found { last_fence: None, ..found };
    let next = decide(&Action::Acquire(bid(2)), &torn, Probe::Unknown, START + 60_000);
    assert!(granted(&next).0 > claim.fence.get());
    assert!(granted(&acquire(&empty(), START + 60_000)).0 > claim.fence.get());
}

/// A backup, or a copy of one file alone, can bring back a guard that is whole and older than `.lock`. Believed as it was,
/// it gave the next holder a fence that the current one had already passed: a save of the old holder then looked newer.
#[test]
fn law_02_a_whole_but_stale_guard_never_beats_the_fence_in_the_record() {
    let (found, claim) = held();
    let stale = Found { last_fence: Some(7), ..found };
    let bids = [
        (Action::Acquire(bid(2)), Probe::Unknown, START + 60_000),
        (Action::Acquire(bid(2)), Probe::Free, START + 1),
        (
            Action::TakeOver { seen: None, bid: bid(2), reason: Reason::default(), despite_skew: true },
            Probe::Busy,
            START + 1,
        ),
    ];
    for (action, probe, now) in bids {
        let verdict = decide(&action, &stale, probe, now);
        let next = claim.fence.get() + 1;
        assert_eq!(granted(&verdict).0, next, "{action:?}");
        let stored = verdict.steps.iter().find_map(|step| match step {
            IoStep::WriteGuard(fence) => Some(*fence),
            _ => None,
        });
        assert_eq!(stored, Some(next), "{action:?}: the guard is right again");
    }
}

#[test]
fn half_a_guard_is_no_fence() {
    let whole = guard_text(1_794_747_600_001);
    assert_eq!(read_guard(&whole), Some(1_794_747_600_001));
    assert_eq!(whole.len(), 34);
    for cut in 0..whole.len() {
        assert_eq!(read_guard(&whole[..cut]), None, "{cut}");
        // The old text, overwritten from the start up to here.
        let torn = format!("{}{}", &whole[..cut], &guard_text(999_999_999_999)[cut..]);
        assert!(matches!(read_guard(&torn), None | Some(999_999_999_999 | 1_794_747_600_001)), "{torn}");
    }
    assert_eq!(read_guard("9999999999999999 9999999999999999\n"), None, "larger than any fence");
}

#[test]
fn law_05_renew_release_and_commit_compare_lease_id_and_fence() {
    let (found, claim) = held();
    let renew = |claim| Action::Renew { claim, ttl: Ttl::from_secs(30).unwrap() };
    let other_id = Proof { lease_id: id(9), ..claim };
    let other_fence = Proof { fence: Fence::new(claim.fence.get() + 1).unwrap(), ..claim };
    for stranger in [other_id, other_fence] {
        for action in [renew(stranger), Action::Release(stranger), save(stranger)] {
            let verdict = decide(&action, &found, Probe::Unknown, START + 1);
            assert_eq!(verdict.outcome, Outcome::Lost(Loss::Replaced));
            let touches =
                |step: &IoStep| matches!(step, IoStep::WriteLock(_) | IoStep::RemoveLock | IoStep::Save(_));
            assert!(!verdict.steps.iter().any(touches), "{verdict:?}");
        }
    }
    let now = START + 27_999;
    assert!(matches!(decide(&renew(claim), &found, Probe::Unknown, now).outcome, Outcome::Renewed(_)));
    let saved = decide(&save(claim), &found, Probe::Unknown, now);
    assert_eq!((saved.outcome, saved.steps), (Outcome::Saved, vec![IoStep::Save(CallId(1))]));
    let released = decide(&Action::Release(claim), &found, Probe::Unknown, now);
    assert_eq!(released.outcome, Outcome::Released);
    assert_eq!(released.steps, [IoStep::RemoveLock, IoStep::CloseHeld(claim.fence)]);
}

#[test]
fn an_expired_lease_is_never_revived_nor_committed_under() {
    let (found, claim) = held();
    let now = START + 28_000;
    let ttl = Ttl::from_secs(30).unwrap();
    for action in [Action::Renew { claim, ttl }, save(claim)] {
        let verdict = decide(&action, &found, Probe::Unknown, now);
        assert_eq!((verdict.outcome, verdict.steps), (Outcome::Lost(Loss::Expired), vec![]));
    }
    let gone = Found { lock: LockFile::Missing, ..found };
    let verdict = decide(&save(claim), &gone, Probe::Unknown, START + 1);
    assert_eq!(verdict.outcome, Outcome::Lost(Loss::Missing));
}

#[test]
fn law_07_a_repeated_acquire_gives_the_same_lease() {
    let (found, claim) = held();
    let again = acquire(&found, START + 5_000);
    assert_eq!(granted(&again), (claim.fence.get(), None));
    assert!(!again.steps.iter().any(|step| matches!(step, IoStep::WriteGuard(_))), "{again:?}");
}

#[test]
fn a_take_over_names_the_fence_that_was_seen() {
    let (found, claim) = held();
    let take = |seen| Action::TakeOver { seen, bid: bid(2), reason: Reason::default(), despite_skew: true };
    let taken = decide(&take(Some(claim.fence)), &found, Probe::Busy, START + 1);
    assert_eq!(granted(&taken), (claim.fence.get() + 1, Some(After::TakenOver)));
    let other = Fence::new(claim.fence.get() - 1).unwrap();
    assert!(matches!(decide(&take(Some(other)), &found, Probe::Busy, START + 1).outcome, Outcome::Held(_)));
    assert_eq!(granted(&decide(&take(None), &found, Probe::Busy, START + 1)).1, Some(After::TakenOver));
    assert_eq!(granted(&decide(&take(None), &empty(), Probe::Unknown, START)).1, None);
}

#[test]
fn looking_changes_nothing() {
    let (found, _) = held();
    for (probe, now, free) in
        [(Probe::Busy, START, false), (Probe::Free, START, true), (Probe::Busy, START + 28_000, true)]
    {
        let verdict = decide(&Action::Look, &found, probe, now);
        assert_eq!((verdict.outcome == Outcome::Free, verdict.steps.len()), (free, 0));
    }
}

#[test]
fn nothing_in_a_debug_shows_a_lease_id() {
    let (found, claim) = held();
    let verdict = decide(&Action::Acquire(bid(2)), &found, Probe::Free, START);
    let shown = format!("{found:?} {verdict:?} {:?}", Section::new(save(claim), 0));
    assert!(!shown.contains(&claim.lease_id.reveal()) && !shown.contains(&id(2).reveal()), "{shown}");
}
