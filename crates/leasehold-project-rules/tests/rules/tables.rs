//! The case tables of the sources, row by row: *Project lock service* 6, *Project lock states* 4, *AutoSave* 8
//! (`docs/sources.md`). What each tab's subscribers hear is kept in `snapshots/`, in all three dialects; `UPDATE_SNAPSHOTS=1` writes them anew.

use std::time::Duration;

use leasehold_project_rules::{Options, Profile, State, Strategy};

use super::world::{START, Trouble, Web, World, foreign};

fn service() -> Options {
    Options::of(Profile::Service)
}

fn autosave() -> Options {
    Options::of(Profile::Autosave)
}

/// Compares what a tab's subscribers heard with what they heard when this was last looked at.
fn snapshot(name: &str, world: &World, tab: usize) {
    let part = |dialect| format!("# {dialect}\n{}\n", world.heard(tab, dialect).join("\n"));
    let heard: String = ["lock", "service", "autosave"].map(part).join("\n");
    let path = format!("{}/tests/rules/snapshots/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &heard).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == heard, "{path} has changed; it is now:\n{heard}");
}

// --- Project lock service 6 ---

#[test]
fn tc_01_web_lock_granted() {
    let mut world = World::new(&[Web::Works]);
    let call = world.acquire(0, &service());
    let lease = world.acquired(0, call);
    assert!(!lease.via_fallback);
    assert_eq!((lease.strategy, lease.ttl.as_millis()), (Strategy::WebLock, 15_000));
    assert_eq!(lease.expires_at.as_millis(), START + 15_000);
    assert_eq!(world.types(0, "service"), ["acquired"]);
    snapshot("tc_01", &world, 0);
}

#[test]
fn tc_02_no_web_locks_falls_back() {
    let mut world = World::new(&[Web::Unsupported]);
    let call = world.acquire(0, &service());
    let lease = world.acquired(0, call);
    assert!(lease.via_fallback);
    assert_eq!(lease.strategy, Strategy::FileLock);
    assert_eq!(world.folder.record().lease_id, lease.lease_id);
    assert_eq!(world.types(0, "service"), ["switch-to-fallback", "acquired"]);
    snapshot("tc_02", &world, 0);
}

#[test]
fn tc_03_a_conflict_backs_off_exponentially() {
    let mut world = World::new(&[Web::Unsupported]);
    world.folder.lock = Some((foreign(START - 26_000), START - 26_000));
    let call = world.acquire(0, &service());
    world.advance(5_000);
    // Free at 28 s of 30: two seconds after the first attempt, so it is the one at 3.0 s that wins.
    let lease = world.acquired(0, call);
    assert_eq!(lease.acquired_at.as_millis(), START + 3_000);
    let delays: Vec<_> = world.tabs[0]
        .events
        .iter()
        .filter_map(|event| match event {
            leasehold_project_rules::Event::Waiting { delay, .. } => Some(delay.as_millis()),
            _ => None,
        })
        .collect();
    assert_eq!(delays, [200, 400, 800, 1_600]);
    snapshot("tc_03", &world, 0);
}

#[test]
fn tc_04_an_aborted_signal_ends_the_acquire_and_never_falls_back() {
    let mut world = World::new(&[Web::Works, Web::Works]);
    world.acquire(0, &service());
    let call = world.acquire(1, &service());
    world.advance(100);
    let aborted = leasehold_project_rules::CallId(call);
    world.tab(1, |machine, _, now| machine.abort(aborted, now));
    assert_eq!(world.code(1, call), "web-lock-aborted");
    assert_eq!(world.types(1, "service"), ["acquire-failed"]);
    assert_eq!(world.tabs[1].machine.state(), State::Idle);
    world.advance(20_000);
    assert_eq!(world.types(1, "service"), ["acquire-failed"], "nothing follows");
    snapshot("tc_04", &world, 1);
}

#[test]
fn tc_05_a_renewal_extends_the_lease() {
    let mut world = World::new(&[Web::Unsupported]);
    let call = world.acquire(0, &service());
    let before = world.acquired(0, call);
    world.advance(2_000);
    let call = world.renew(0);
    let after = world.acquired(0, call);
    assert_eq!(after.expires_at.as_millis(), START + 17_000);
    assert_eq!((after.fence, after.lease_id), (before.fence, before.lease_id));
    assert_eq!(world.types(0, "service"), ["switch-to-fallback", "acquired", "renewed"]);
    snapshot("tc_05", &world, 0);
}

#[test]
fn tc_06_a_lock_that_cannot_be_deleted() {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &service());
    world.folder.trouble = Some(Trouble::Remove);
    let call = world.release(0);
    assert_eq!(world.code(0, call), "fallback-write-failed");
    assert_eq!(world.types(0, "service"), ["switch-to-fallback", "acquired", "release-failed"]);
    world.folder.trouble = None;
    world.advance(500);
    assert_eq!(world.types(0, "service").last().unwrap(), "released");
    assert_eq!(world.folder.lock, None);
    snapshot("tc_06", &world, 0);
}

#[test]
fn tc_07_an_expired_lease_is_noticed_and_must_be_acquired_anew() {
    let mut world = World::new(&[Web::Unsupported]);
    let call = world.acquire(0, &service());
    let lease = world.acquired(0, call);
    world.sleep(16_000);
    assert!(!world.holds(0), "even before anybody told the machine what time it is");
    world.advance(0);
    assert_eq!(world.types(0, "service"), ["switch-to-fallback", "acquired", "expired"]);
    let call = world.tab(0, |machine, call, now| machine.renew(call, lease.lease_id, None, now));
    assert_eq!(world.code(0, call), "lease-expired");
    assert_eq!(world.tabs[0].machine.state_word(), "faulted");
    let call = world.acquire(0, &service());
    assert!(world.acquired(0, call).fence > lease.fence);
    snapshot("tc_07", &world, 0);
}

// --- Project lock states 4 ---

#[test]
fn case_1_web_lock_acquire_renew_release() {
    let mut world = World::new(&[Web::Works]);
    let call = world.acquire(0, &autosave());
    let lease = world.acquired(0, call);
    assert_eq!(lease.ttl.as_millis(), 25_000);
    assert_eq!(lease.next_heartbeat_at.as_millis(), START + 20_000, "five seconds before the end");
    world.advance(20_000);
    world.release(0);
    assert_eq!(
        world.types(0, "lock"),
        [
            "lock:attempt",
            "lock:acquired",
            "lock:renew-scheduled",
            "lock:attempt",
            "lock:renew-scheduled",
            "lock:renewed",
            "lock:release-requested",
            "lock:released"
        ]
    );
    assert_eq!((world.web_lock, world.folder.lock.clone()), (None, None));
    snapshot("case_1", &world, 0);
}

#[test]
fn case_2_fallback_is_told_once() {
    let mut world = World::new(&[Web::Unsupported]);
    let call = world.acquire(0, &autosave());
    let lease = world.acquired(0, call);
    assert!(lease.via_fallback);
    assert_eq!(lease.ttl.as_millis(), 30_000);
    assert_eq!(lease.next_heartbeat_at.as_millis(), START + 16_000, "ten seconds before it must stop");
    assert_eq!(world.types(0, "lock").iter().filter(|kind| *kind == "lock:warning").count(), 1);
    snapshot("case_2", &world, 0);
}

#[test]
fn case_3_two_waits_and_the_third_failure_is_read_only() {
    let mut world = World::new(&[Web::Unsupported]);
    world.folder.lock = Some((foreign(START), START));
    let call = world.acquire(0, &autosave());
    world.advance(1_500);
    assert_eq!(world.code(0, call), "acquire-timeout");
    assert_eq!(world.tabs[0].machine.state(), State::Readonly);
    let heard = world.heard(0, "lock").join("\n");
    assert_eq!(heard.matches(r#""delayMs":500,"#).count(), 1, "{heard}");
    assert_eq!(heard.matches(r#""delayMs":1000,"#).count(), 1, "{heard}");
    assert_eq!(heard.matches(r#""delayMs""#).count(), 2, "{heard}");
    assert!(heard.contains(r#""reason":"acquire-timeout""#), "{heard}");
    assert_eq!(heard.matches("fallback-engaged").count(), 1, "once per acquire: {heard}");
    snapshot("case_3", &world, 0);
}

#[test]
fn case_4_a_file_lease_is_extended_by_30_s_and_two_failed_heartbeats_end_it() {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &autosave());
    world.advance(16_000);
    assert_eq!(world.lease(0).expires_at.as_millis(), START + 46_000);
    assert_eq!(world.folder.record().expires_at().as_millis(), START + 46_000);
    world.folder.trouble = Some(Trouble::Write);
    // Fails at 32.0, 32.5 and 33.5 s: one heartbeat. The deadline is at 42 s.
    world.advance(17_500);
    assert!(world.holds(0));
    assert_eq!(world.tabs[0].machine.state(), State::RenewScheduling);
    world.advance(8_000);
    assert!(!world.holds(0));
    assert_eq!(world.tabs[0].machine.state(), State::Readonly);
    snapshot("case_4", &world, 0);
}

#[test]
fn case_5_read_only_because_a_renewal_failed() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    world.folder.trouble = Some(Trouble::Write);
    world.advance(25_000);
    assert!(world.heard(0, "lock").join("\n").contains(r#""reason":"renew-failed""#));
    snapshot("case_5_renew_failed", &world, 0);
}

#[test]
fn case_5_read_only_because_the_lease_is_stale() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    world.folder.lock = Some((foreign(START), START));
    world.advance(20_000);
    assert!(world.heard(0, "lock").join("\n").contains(r#""reason":"lease-stale""#));
    snapshot("case_5_lease_stale", &world, 0);
}

#[test]
fn case_5_read_only_because_the_release_failed() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &autosave());
    world.folder.trouble = Some(Trouble::Remove);
    world.release(0);
    assert_eq!(world.web_lock, None, "the Web Lock is released all the same");
    world.advance(3_500);
    let heard = world.heard(0, "lock").join("\n");
    assert!(heard.contains(r#""reason":"release-failed""#) && heard.contains("manualSteps"), "{heard}");
    assert_eq!(world.tabs[0].machine.state(), State::Readonly);
    snapshot("case_5_release_failed", &world, 0);
}

#[test]
fn case_6_a_long_task_is_kept_alive_and_interrupted_when_the_lock_is_lost() {
    let mut world = World::new(&[Web::Works]);
    let every = Duration::from_secs(7);
    world.acquire(0, &Options { heartbeat: Some(every), ..autosave() });
    world.advance(70_000);
    let renewed = world.types(0, "lock").iter().filter(|kind| *kind == "lock:renewed").count();
    assert_eq!((renewed, world.holds(0)), (10, true));
    world.folder.trouble = Some(Trouble::Write);
    world.advance(20_000);
    assert!(!world.holds(0));
    assert_eq!(world.types(0, "lock").iter().filter(|kind| *kind == "lock:readonly-entered").count(), 1);
}

// --- AutoSave 8 ---

#[test]
fn normal_acquire_renew_release_with_a_heartbeat_of_ten_seconds() {
    let mut world = World::new(&[Web::Works]);
    world.acquire(0, &Options { heartbeat: Some(Duration::from_secs(10)), ..autosave() });
    world.advance(20_000);
    world.release(0);
    let states = world.heard(0, "autosave");
    let expected = ["acquired", "renewed", "renewed", "released"].map(|state| {
        format!(
            r#"{{"lockName":"imgponic:project","root":"project","state":"{state}","type":"autosave.lock.stateChanged"}}"#
        )
    });
    assert_eq!(states, expected);
}

#[test]
fn conflict_denied_web_lock_and_another_uuid_in_the_file() {
    let mut world = World::new(&[Web::Denied]);
    world.folder.lock = Some((foreign(START), START));
    let call = world.acquire(0, &autosave());
    world.advance(1_500);
    assert_eq!(world.code(0, call), "acquire-timeout");
    let kinds = world.types(0, "autosave");
    assert_eq!(kinds.last().unwrap(), "autosave.lock.readonly");
    assert_eq!(kinds[kinds.len() - 2], "autosave.lock.retry", "a retry comes before the read-only");
    assert_eq!(reasons(&world, 0), ("acquire-timeout".into(), "conflict".into()));
    snapshot("conflict", &world, 0);
}

/// The reason of the last read-only, in dialects `lock` and `autosave`.
fn reasons(world: &World, tab: usize) -> (String, String) {
    let last = |dialect| {
        let heard = world.heard(tab, dialect);
        let lines = heard.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let readonly = |value: &serde_json::Value| value["type"].as_str().unwrap().contains("readonly");
        lines.rev().find(readonly).expect("read-only")["reason"].as_str().unwrap().to_owned()
    };
    (last("lock"), last("autosave"))
}

/// *AutoSave* 3.4, 6.2 and 8 call a live second tab a conflict; it was called a time-out, like a lock that cannot be read.
#[test]
fn a_live_second_tab_is_a_conflict_in_dialect_autosave() {
    for webs in [[Web::Works, Web::Works], [Web::Unsupported, Web::Unsupported]] {
        let mut world = World::new(&webs);
        world.acquire(0, &autosave());
        world.acquire(1, &autosave());
        world.advance(10_000);
        assert_eq!(reasons(&world, 1), ("acquire-timeout".into(), "conflict".into()));
    }
    let mut world = World::new(&[Web::Works]);
    world.folder.trouble = Some(Trouble::Read);
    world.acquire(0, &autosave());
    world.advance(10_000);
    assert_eq!(reasons(&world, 0), ("acquire-timeout".into(), "timeout".into()));
}

#[test]
fn ttl_runs_out_while_nothing_can_be_written() {
    let mut world = World::new(&[Web::Unsupported]);
    world.acquire(0, &autosave());
    world.folder.trouble = Some(Trouble::Write);
    world.sleep(29_000);
    world.advance(0);
    let heard = world.heard(0, "autosave").join("\n");
    assert!(heard.contains("lease-expired") && heard.contains("autosave.lock.readonly"), "{heard}");
    snapshot("ttl_runs_out", &world, 0);
}

#[test]
fn crash_without_release_the_next_start_finds_the_old_lease_and_takes_it() {
    let mut world = World::new(&[Web::Works, Web::Works]);
    let call = world.acquire(0, &autosave());
    let old = world.acquired(0, call);
    world.kill(0);
    let call = world.acquire(1, &autosave());
    let new = world.acquired(1, call);
    assert_eq!(new.acquired_at.as_millis(), START, "at once: its held file is free");
    assert!(new.fence > old.fence);
}
