//! The autosave: a folder and an application in memory, on virtual time. The tests are named after the sections of the
//! AutoSave design: 1 policy, 4 atomicity, 6 faults, 7 acceptance, 8 cases.

use std::collections::{BTreeMap, VecDeque};

use leasehold_core::StoreTime;
use leasehold_project_rules::autosave::history::{Generation, History, Retention, Stamp};
use leasehold_project_rules::autosave::{
    AutoSave, Effect, ErrorCode, Failure, Listing, Lock, Notice, Options, Source, State, Taken,
};
use leasehold_project_rules::{CallId, Now, Version};

/// Noon of a day.
const START: u64 = 1_780_000_000_000;

/// An application with its autosave and its folder. A version is the content itself.
struct World {
    autosave: AutoSave,
    millis: u64,
    /// How far the wall clock is ahead of the steady one.
    set_by: i64,
    memory: String,
    taken: String,
    current: Option<String>,
    history: BTreeMap<Stamp, String>,
    index: Option<String>,
    drafts: Vec<String>,
    notices: Vec<Notice>,
    settled: Vec<(u32, bool)>,
    writes: u32,
    /// What the next writes come to, before all others succeed.
    faults: VecDeque<Option<Failure>>,
    /// How many bytes fit, with everything that is there, and how many the autosave is told of.
    space: usize,
    quota: Option<usize>,
    /// How many writes there was no space for.
    refused: u32,
    /// Whether the application takes what it is given.
    takes: bool,
    /// Whether replies are held back.
    stuck: bool,
    held_back: Option<Effect>,
    released: bool,
    last_id: u32,
}

impl World {
    fn new(options: Options) -> Self {
        let mut world = Self::waiting(options);
        world.lock(Lock::Held);
        world
    }

    fn waiting(options: Options) -> Self {
        Self {
            autosave: AutoSave::new(options, Now::both(START)),
            millis: START,
            set_by: 0,
            memory: String::new(),
            taken: String::new(),
            current: None,
            history: BTreeMap::new(),
            index: None,
            drafts: Vec::new(),
            notices: Vec::new(),
            settled: Vec::new(),
            writes: 0,
            faults: VecDeque::new(),
            space: usize::MAX,
            quota: None,
            refused: 0,
            takes: true,
            stuck: false,
            held_back: None,
            released: false,
            last_id: 0,
        }
    }

    fn now(&self) -> Now {
        let wall = StoreTime::from_millis(self.millis.saturating_add_signed(self.set_by));
        Now { wall, ..Now::both(self.millis) }
    }

    fn call(&mut self, what: impl FnOnce(&mut AutoSave, CallId, Now)) -> u32 {
        self.last_id += 1;
        let now = self.now();
        what(&mut self.autosave, CallId(self.last_id), now);
        self.work();
        self.last_id
    }

    fn lock(&mut self, lock: Lock) {
        self.call(|autosave, _, now| autosave.handle_lock(lock, now));
    }

    fn edit(&mut self, text: &str) {
        self.memory = text.into();
        self.call(|autosave, _, now| autosave.changed(now));
    }

    /// Lets time pass, in the steps that the autosave asks for.
    fn pass(&mut self, millis: u64) {
        let end = self.millis + millis;
        while let Some(due) = self.autosave.poll_timeout().filter(|due| due.as_millis() <= end) {
            self.millis = self.millis.max(due.as_millis());
            self.call(|autosave, _, now| autosave.handle_timeout(now));
        }
        self.millis = end;
    }

    fn flush(&mut self) -> bool {
        let call = self.call(|autosave, call, now| autosave.flush(call, now));
        self.answer(call).unwrap_or(false)
    }

    fn restore(&mut self, source: Source) -> bool {
        let call = self.call(|autosave, call, now| autosave.restore(call, source, now));
        self.answer(call).expect("an answer")
    }

    fn answer(&self, call: u32) -> Option<bool> {
        self.settled.iter().find(|(known, _)| *known == call).map(|(_, done)| *done)
    }

    fn work(&mut self) {
        while let Some(effect) = self.autosave.poll_effect() {
            let is_answered =
                !matches!(effect, Effect::Look | Effect::Saw(_) | Effect::Notice(_) | Effect::Settle { .. });
            if self.stuck && is_answered {
                assert_eq!(self.held_back.replace(effect), None, "one at a time");
            } else {
                self.act(effect);
            }
        }
    }

    fn let_go(&mut self) {
        self.stuck = false;
        if let Some(effect) = self.held_back.take() {
            self.act(effect);
        }
        self.work();
    }

    fn act(&mut self, effect: Effect) {
        let now = self.now();
        match effect {
            Effect::Look | Effect::Saw(_) => {}
            Effect::List => {
                let listing = self.listing();
                self.autosave.handle_listed(Ok(listing), now);
            }
            Effect::Take => {
                self.taken = self.memory.clone();
                let bytes = self.taken.len() as u64;
                let taken = match self.memory.starts_with("cyclic") {
                    true => Taken::Failed { said: "cyclic".into() },
                    false => Taken::Content { version: Version::new(&self.memory), bytes, free: self.free() },
                };
                self.autosave.handle_taken(taken, now);
            }
            Effect::Commit { .. } => {
                let written = self.write(self.taken.len()).map(|()| self.current = Some(self.taken.clone()));
                self.autosave.handle_committed(written, now);
            }
            Effect::Notice(notice) => self.notices.push(notice),
            Effect::Settle { call, done } => self.settled.push((call.0, done)),
            Effect::Apply(source) => {
                let text = match source {
                    Source::Current => self.current.clone(),
                    Source::Generation(stamp) => self.history.get(&stamp).cloned(),
                };
                let applied = text.filter(|_| self.takes);
                if let Some(text) = &applied {
                    self.memory.clone_from(text);
                }
                self.autosave.handle_applied(applied.map(|text| Version::new(&text)), now);
            }
            Effect::Release => {
                self.released = true;
                self.autosave.handle_lock(Lock::Released, now);
            }
            other => {
                let done = self.step(other);
                self.autosave.handle_done(done, now);
            }
        }
    }

    fn step(&mut self, effect: Effect) -> Result<(), Failure> {
        match effect {
            Effect::Keep(stamp) => {
                let content = self.current.clone().expect("a current version");
                self.write(content.len())?;
                self.history.insert(stamp, content);
            }
            Effect::Remove(stamp) => drop(self.history.remove(&stamp)),
            Effect::WriteIndex(text) => {
                self.write(0)?;
                self.index = Some(text);
            }
            Effect::KeepDraft => {
                self.write(0)?;
                self.drafts.push(self.memory.clone());
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn write(&mut self, bytes: usize) -> Result<(), Failure> {
        self.writes += 1;
        match self.faults.pop_front().flatten() {
            Some(fault) => Err(fault),
            None if self.used() + bytes > self.space => {
                self.refused += 1;
                Err(Failure::NoSpace { said: "the disk is full".into() })
            }
            None => Ok(()),
        }
    }

    fn used(&self) -> usize {
        self.history.values().chain(&self.current).map(String::len).sum()
    }

    fn free(&self) -> Option<u64> {
        self.quota.map(|quota| quota.saturating_sub(self.used()) as u64)
    }

    fn listing(&self) -> Listing {
        let version = |text: Option<&String>| text.map_or(Version::NO_FILE, |text| Version::new(text));
        Listing {
            current: version(self.current.as_ref()),
            current_bytes: self.current.as_ref().map_or(0, |text| text.len() as u64),
            generations: generations(&self.history),
            newest: version(self.history.values().next_back()),
            index: self.index.clone(),
        }
    }

    fn saved(&self) -> &str {
        self.current.as_deref().unwrap_or("nothing")
    }

    fn texts(&self) -> Vec<&str> {
        self.history.values().map(String::as_str).collect()
    }
}

fn generations(history: &BTreeMap<Stamp, String>) -> Vec<Generation> {
    history.iter().map(|(stamp, text)| Generation { stamp: *stamp, bytes: text.len() as u64 }).collect()
}

fn io() -> Option<Failure> {
    Some(Failure::Io { said: "the cable is loose".into() })
}

#[test]
fn s1_a_save_starts_two_seconds_after_the_last_input() {
    let mut world = World::new(Options::default());
    world.edit("a");
    assert_eq!(world.autosave.state(), State::Dirty);
    world.pass(400);
    world.edit("ab");
    world.pass(1_999);
    assert_eq!((world.saved(), world.writes), ("nothing", 1), "only the first index");
    world.pass(1);
    assert_eq!((world.saved(), world.autosave.state()), ("ab", State::Saved));
}

#[test]
fn s1_twenty_generations_are_kept() {
    assert_eq!(Retention::default().max_generations, 20);
    assert_eq!(Retention::default().max_bytes, 52_428_800);
}

#[test]
fn s1_over_the_byte_budget_the_oldest_go_first_and_the_newest_stays() {
    let retention = Retention { max_bytes: 35, ..Retention::default() };
    let mut world = World::new(Options { retention, ..Options::default() });
    for text in ["first.....", "second....", "third....."] {
        world.edit(text);
        assert!(world.flush());
    }
    // Two generations and the current version are 30 bytes.
    assert_eq!(world.texts(), ["second....", "third....."]);
    let large = "x".repeat(50);
    world.edit(&large);
    assert!(world.flush());
    assert_eq!((world.texts(), world.saved()), (vec![large.as_str()], large.as_str()));
}

#[test]
fn s7_current_is_new_within_2_5_s_after_the_input_stops() {
    for looks in [false, true] {
        let mut world = World::new(Options { looks, ..Options::default() });
        world.pass(130);
        match looks {
            false => world.edit("text"),
            // The application says nothing: the next look finds it, within 500 ms.
            true => {
                world.memory = "text".into();
                world.pass(499);
                world.call(|autosave, _, now| autosave.changed_since_look(now));
            }
        }
        world.pass(2_500 - 499);
        assert_eq!(world.saved(), "text", "looks: {looks}");
    }
}

#[test]
fn s7_long_typing_is_saved_within_5_s() {
    let mut world = World::new(Options::default());
    for second in 0..50 {
        world.edit(&format!("{second}"));
        world.pass(100);
    }
    assert_ne!(world.saved(), "nothing");
}

#[test]
fn s7_21_saves_drop_the_first() {
    let mut world = World::new(Options::default());
    for number in 1..=21 {
        world.edit(&format!("version {number}"));
        world.pass(2_500);
    }
    let texts = world.texts();
    assert_eq!((texts.len(), texts[0], texts[19]), (20, "version 2", "version 21"));
    assert_eq!(world.index.clone().unwrap(), world.autosave.history().index());
}

#[test]
fn s7_a_crash_between_the_save_and_its_generation_costs_nothing() {
    let mut world = World::new(Options::default());
    world.edit("one");
    assert!(world.flush());
    world.current = Some("two".into());
    world.autosave = AutoSave::new(Options::default(), world.now());
    world.lock(Lock::Held);
    assert_eq!(world.texts(), ["one", "two"]);
    // It is offered and not loaded: the application may go on without it, and it stays among the generations.
    assert_eq!(world.memory, "one");
    world.edit("three");
    assert!(world.flush());
    assert_eq!(world.texts(), ["one", "two", "three"]);
}

#[test]
fn unchanged_content_is_not_saved_again() {
    let mut world = World::new(Options::default());
    world.edit("same");
    world.pass(3_000);
    let writes = world.writes;
    world.edit("same");
    world.pass(3_000);
    assert_eq!((world.writes, world.autosave.state()), (writes, State::Saved));
}

#[test]
fn an_edit_during_a_save_stays_unsaved_and_is_saved_next() {
    let mut world = World::new(Options::default());
    world.edit("one");
    world.stuck = true;
    world.pass(2_000);
    assert_eq!(world.autosave.state(), State::Saving);
    world.taken = "one".into();
    world.held_back = None;
    let now = world.now();
    world.autosave.handle_taken(Taken::Content { version: Version::new("one"), bytes: 3, free: None }, now);
    world.work();
    world.edit("one, two");
    world.let_go();
    assert_eq!((world.saved(), world.autosave.state()), ("one", State::Dirty));
    world.pass(2_000);
    assert_eq!((world.saved(), world.autosave.state()), ("one, two", State::Saved));
}

#[test]
fn s6_1_a_failed_write_is_tried_again_after_500_1000_and_2000_ms_then_it_goes_on() {
    let mut world = World::new(Options::default());
    world.faults.extend([io(), io(), io(), io()]);
    world.edit("text");
    world.pass(2_000);
    for (attempt, wait) in [(1, 500), (2, 1_000), (3, 2_000)] {
        let State::Retrying { attempt: shown, at } = world.autosave.state() else { panic!("{attempt}") };
        assert_eq!((shown, at.as_millis() - world.millis), (attempt, wait));
        world.pass(wait - 1);
        assert!(matches!(world.autosave.state(), State::Retrying { .. }));
        world.pass(1);
    }
    assert!(matches!(world.autosave.state(), State::Error { code: ErrorCode::WriteFailed, .. }));
    assert!(matches!(world.notices[..], [Notice::RetriesFailed { .. }]), "{:?}", world.notices);
    world.edit("more text");
    world.pass(2_000);
    assert_eq!((world.saved(), world.autosave.state()), ("more text", State::Saved));
}

#[test]
fn what_failed_for_good_is_tried_again_half_a_minute_later() {
    let mut world = World::new(Options::default());
    world.faults.extend([io(), io(), io(), io()]);
    world.edit("text");
    world.pass(2_000 + 3_500 + 30_000);
    assert_eq!((world.saved(), world.autosave.state()), ("text", State::Saved));
}

#[test]
fn a_save_that_succeeds_after_a_retry_is_told() {
    let mut world = World::new(Options::default());
    world.faults.push_back(io());
    world.edit("text");
    world.pass(2_500);
    assert_eq!((world.saved(), &world.notices[..]), ("text", &[Notice::Recovered][..]));
}

#[test]
fn s6_1_without_space_old_history_is_dropped_and_the_user_told() {
    let mut world = World::new(Options::default());
    for number in 0..5 {
        world.edit(&format!("version {number}"));
        assert!(world.flush());
    }
    // Five generations and the current version are 54 bytes: two of them have to go for a save and its generation.
    world.space = 60;
    world.edit("version 5");
    assert!(world.flush());
    assert_eq!(world.saved(), "version 5");
    let dropped = world.notices.iter().find_map(|notice| match notice {
        Notice::HistoryDropped { generations } => Some(*generations),
        _ => None,
    });
    assert!(dropped.is_some_and(|count| count > 0), "{:?}", world.notices);
    assert_eq!(world.texts().last(), Some(&"version 5"));
}

/// A browser knew that there was no space, and was not asked: the save was written, failed, and only then history was dropped.
#[test]
fn s6_1_a_quota_that_is_known_drops_history_before_the_save_and_no_more_than_is_needed() {
    let mut world = World::new(Options::default());
    for number in 0..5 {
        world.edit(&format!("version {number}"));
        assert!(world.flush());
    }
    // Of 60 bytes, 54 are used: one generation has to go for a version of 9, four for one of 24 and its generation.
    (world.space, world.quota) = (60, Some(60));
    world.edit("version 5");
    assert!(world.flush());
    assert_eq!((world.refused, world.texts().len()), (0, 5), "{:?}", world.texts());
    world.edit("version 6, quite larger.");
    assert!(world.flush());
    assert_eq!(world.saved(), "version 6, quite larger.");
    let dropped = world.notices.iter().filter_map(|notice| match notice {
        Notice::HistoryDropped { generations } => Some(*generations),
        _ => None,
    });
    assert_eq!((world.refused, dropped.collect::<Vec<_>>()), (0, vec![1, 4]));
    assert_eq!(world.texts(), ["version 5", "version 6, quite larger."]);
}

/// A browser that always says that nothing is left, and lets everything be written, must not cost the whole history.
#[test]
fn a_wrong_quota_costs_a_generation_a_save_and_not_the_history() {
    let mut world = World::new(Options::default());
    for number in 0..5 {
        world.edit(&format!("version {number}"));
        assert!(world.flush());
    }
    world.quota = Some(0);
    for number in 5..8 {
        world.edit(&format!("version {number}"));
        assert!(world.flush());
        assert_eq!(world.texts().len(), 5);
    }
    assert_eq!(world.saved(), "version 7");
}

/// The project was taken over between a save and its generation: the user was told that the version could not be kept,
/// although the next holder keeps it.
#[test]
fn a_generation_that_the_next_holder_makes_is_no_failure() {
    let mut world = World::new(Options::default());
    world.edit("mine");
    world.faults.extend([None, Some(Failure::Lost)]);
    assert!(world.flush());
    assert_eq!((world.saved(), world.texts().len(), world.notices.len()), ("mine", 0, 0));
    world.lock(Lock::ReadOnly);
    world.lock(Lock::Held);
    assert_eq!(world.texts(), ["mine"]);
}

#[test]
fn the_newest_generation_survives_a_full_disk() {
    let mut world = World::new(Options::default());
    world.edit("one");
    assert!(world.flush());
    world.space = 7;
    world.edit("too much for this disk");
    world.pass(10_000);
    assert_eq!((world.saved(), world.texts()), ("one", vec!["one"]));
    assert!(matches!(world.autosave.state(), State::Error { code: ErrorCode::NoSpace, .. }));
}

#[test]
fn little_space_is_told_once_before_it_is_gone() {
    let mut world = World::new(Options::default());
    world.stuck = true;
    for text in ["one", "two"] {
        world.edit(text);
        world.pass(2_000);
        world.held_back = None;
        world.taken = text.into();
        let content = Taken::Content { version: Version::new(text), bytes: 100, free: Some(1_500) };
        let now = world.now();
        world.autosave.handle_taken(content, now);
        world.work();
        while world.held_back.is_some() {
            world.let_go();
        }
        world.stuck = true;
    }
    assert_eq!(world.notices, [Notice::SpaceLow { free: 1_500 }]);
}

#[test]
fn a_document_that_cannot_be_serialised_is_an_error_until_it_changes() {
    let mut world = World::new(Options::default());
    world.edit("cyclic");
    world.pass(2_000);
    assert!(matches!(world.autosave.state(), State::Error { code: ErrorCode::NotSerialisable, .. }));
    world.edit("fine");
    world.pass(2_000);
    assert_eq!(world.autosave.state(), State::Saved);
}

#[test]
fn s8_conflict_read_only_writes_nothing() {
    let mut world = World::waiting(Options::default());
    world.lock(Lock::ReadOnly);
    world.edit("mine");
    world.pass(60_000);
    assert_eq!((world.writes, world.autosave.state()), (0, State::ReadOnly));
    assert!(!world.flush());
    assert!(world.autosave.is_dirty());
}

#[test]
fn s8_ttl_a_tab_that_slept_loads_newer_work_and_keeps_its_own_as_a_draft() {
    let mut world = World::new(Options::default());
    world.edit("mine");
    assert!(world.flush());
    world.edit("mine, unsaved");
    world.lock(Lock::ReadOnly);
    world.current = Some("theirs".into());
    world.lock(Lock::Held);
    assert_eq!((world.memory.as_str(), &world.drafts[..]), ("theirs", &["mine, unsaved".to_owned()][..]));
    assert_eq!((world.autosave.state(), world.autosave.is_dirty()), (State::Saved, false));
    assert!(world.notices.contains(&Notice::DraftKept));
    assert_eq!(world.texts().last(), Some(&"theirs"), "it is a generation, too");
}

#[test]
fn a_tab_that_gets_the_project_back_unchanged_saves_what_it_has() {
    let mut world = World::new(Options::default());
    world.edit("mine");
    assert!(world.flush());
    world.edit("mine, unsaved");
    world.lock(Lock::ReadOnly);
    world.lock(Lock::Held);
    world.pass(2_000);
    assert_eq!((world.saved(), world.drafts.len()), ("mine, unsaved", 0));
}

#[test]
fn a_tab_that_waited_for_the_project_loads_what_its_holder_saved() {
    let mut world = World::waiting(Options::default());
    world.lock(Lock::ReadOnly);
    world.current = Some("theirs".into());
    world.lock(Lock::Held);
    assert_eq!((world.memory.as_str(), world.autosave.state()), ("theirs", State::Saved));
}

#[test]
fn nothing_is_loaded_while_memory_cannot_be_kept_as_a_draft() {
    let mut world = World::new(Options::default());
    world.lock(Lock::ReadOnly);
    world.edit("mine");
    world.current = Some("theirs".into());
    world.faults.push_back(io());
    world.lock(Lock::Held);
    assert_eq!(world.memory, "mine");
    assert!(matches!(world.autosave.state(), State::Error { .. }));
    world.pass(30_000);
    assert_eq!((world.memory.as_str(), &world.drafts[..]), ("theirs", &["mine".to_owned()][..]));
}

#[test]
fn an_application_that_does_not_take_the_newer_version_overwrites_nothing() {
    for applies in [true, false] {
        let mut world = World::new(Options { applies, ..Options::default() });
        world.takes = false;
        world.lock(Lock::ReadOnly);
        world.current = Some("theirs".into());
        world.lock(Lock::Held);
        world.edit("mine");
        world.pass(60_000);
        assert_eq!(world.saved(), "theirs");
        assert!(matches!(world.autosave.state(), State::Error { code: ErrorCode::StaleBase, .. }));
    }
}

#[test]
fn a_save_that_finds_newer_work_loads_it() {
    let mut world = World::new(Options::default());
    world.edit("mine");
    world.current = Some("theirs".into());
    world.faults.push_back(Some(Failure::StaleBase));
    world.pass(2_000);
    assert_eq!((world.memory.as_str(), world.saved()), ("theirs", "theirs"));
    assert_eq!(world.drafts.len(), 0, "the save itself has left one");
}

#[test]
fn a_save_that_lost_the_project_leaves_the_work_in_memory() {
    let mut world = World::new(Options::default());
    world.faults.push_back(Some(Failure::Lost));
    world.edit("mine");
    world.pass(10_000);
    assert_eq!((world.saved(), world.autosave.state()), ("nothing", State::ReadOnly));
    assert!(world.autosave.is_dirty());
}

#[test]
fn a_restore_keeps_the_present_state_and_can_be_undone() {
    let mut world = World::new(Options::default());
    for text in ["one", "two"] {
        world.edit(text);
        assert!(world.flush());
        world.pass(10);
    }
    world.edit("two, unsaved");
    let first = world.autosave.history().generations()[0].stamp;
    assert!(world.restore(Source::Generation(first)));
    assert_eq!((world.memory.as_str(), world.saved()), ("one", "one"));
    assert_eq!(world.texts(), ["one", "two", "two, unsaved", "one"]);
    let before = world.autosave.history().generations()[2].stamp;
    assert_eq!(world.notices, [Notice::Restored { stamp: first, before: Some(before) }]);
    assert!(world.restore(Source::Generation(before)));
    assert_eq!((world.memory.as_str(), world.saved()), ("two, unsaved", "two, unsaved"));
}

#[test]
fn a_restore_that_cannot_keep_the_present_state_does_nothing() {
    let mut world = World::new(Options::default());
    world.edit("one");
    assert!(world.flush());
    let first = world.autosave.history().generations()[0].stamp;
    world.edit("two");
    world.faults.extend([io(), io(), io(), io()]);
    let call = world.call(|autosave, call, now| autosave.restore(call, Source::Generation(first), now));
    assert_eq!(world.answer(call), None);
    world.pass(3_500);
    assert_eq!((world.answer(call), world.memory.as_str()), (Some(false), "two"));
}

#[test]
fn a_generation_that_is_gone_is_not_restored() {
    let mut world = World::new(Options::default());
    assert!(!world.restore(Source::Generation(Stamp::from_millis(5))));
    world.lock(Lock::ReadOnly);
    assert!(!world.restore(Source::Generation(Stamp::from_millis(5))));
}

// A page that was reloaded, and restored a generation at once, was told that it could not be restored: the project was not yet
// its own.
#[test]
fn a_restore_waits_for_the_project() {
    let mut world = World::waiting(Options::default());
    let stamp = Stamp::from_millis(START);
    world.history.insert(stamp, "old".into());
    world.current = Some("old".into());
    let call = world.call(|autosave, call, now| autosave.restore(call, Source::Generation(stamp), now));
    assert_eq!(world.answer(call), None);
    world.lock(Lock::Held);
    assert_eq!((world.answer(call), world.memory.as_str()), (Some(true), "old"));
    let mut refused = World::waiting(Options::default());
    let call = refused.call(|autosave, call, now| autosave.restore(call, Source::Generation(stamp), now));
    refused.lock(Lock::ReadOnly);
    assert_eq!(refused.answer(call), Some(false));
}

#[test]
fn what_is_there_after_a_crash_can_be_restored_before_anything_was_typed() {
    let mut world = World::waiting(Options::default());
    world.current = Some("from before".into());
    world.lock(Lock::Held);
    assert_eq!(world.memory, "");
    assert!(world.restore(Source::Current));
    assert_eq!((world.memory.as_str(), world.autosave.is_dirty()), ("from before", false));
}

#[test]
fn a_lost_or_damaged_index_is_rebuilt_from_the_folder() {
    for damaged in [None, Some(String::new()), Some("{\"version\":1,".to_owned())] {
        let mut world = World::new(Options::default());
        world.edit("one");
        assert!(world.flush());
        let whole = world.index.clone();
        world.index = damaged;
        world.autosave = AutoSave::new(Options::default(), world.now());
        world.lock(Lock::Held);
        assert_eq!(world.index, whole);
    }
}

#[test]
fn a_clock_that_was_set_back_does_not_change_the_order() {
    let mut world = World::new(Options::default());
    for text in ["one", "two", "three"] {
        world.edit(text);
        assert!(world.flush());
        world.set_by -= 3_600_000;
    }
    assert_eq!(world.texts(), ["one", "two", "three"]);
}

#[test]
fn thinning_keeps_hours_of_history_where_fifo_keeps_a_minute() {
    for (thins, at_least) in [(false, 0), (true, 2 * 3_600_000)] {
        let retention = Retention { thins, ..Retention::default() };
        let mut world = World::new(Options { retention, ..Options::default() });
        for number in 0..5_000 {
            world.edit(&format!("version {number}"));
            world.pass(2_500);
        }
        let stamps: Vec<_> = world.history.keys().copied().collect();
        let span = stamps.last().unwrap().as_millis() - stamps[0].as_millis();
        assert!(stamps.len() <= 20 && span >= at_least, "{thins}: {} over {span} ms", stamps.len());
        assert_eq!(span < 60_000, !thins);
        assert_eq!(world.texts().last(), Some(&"version 4999"));
    }
}

#[test]
fn dispose_saves_and_releases() {
    let mut world = World::new(Options::default());
    world.edit("last words");
    let call = world.call(|autosave, call, now| autosave.stop(call, now));
    assert_eq!((world.saved(), world.released, world.answer(call)), ("last words", true, Some(true)));
    assert_eq!(world.autosave.state(), State::Stopped);
    world.edit("more");
    world.pass(60_000);
    assert_eq!(world.saved(), "last words");
}

#[test]
fn dispose_leaves_a_draft_where_it_cannot_save() {
    let mut failing = World::new(Options::default());
    failing.faults.extend([io(), io(), io(), io()]);
    failing.edit("last words");
    failing.call(|autosave, call, now| autosave.stop(call, now));
    failing.pass(3_500);
    let mut read_only = World::waiting(Options::default());
    read_only.lock(Lock::ReadOnly);
    read_only.edit("last words");
    read_only.call(|autosave, call, now| autosave.stop(call, now));
    for world in [failing, read_only] {
        assert_eq!((&world.drafts[..], world.released), (&["last words".to_owned()][..], true));
    }
}

#[test]
fn names_of_generations_are_times_and_nothing_else() {
    let stamp = Stamp::from_millis(1_794_824_865_123);
    assert_eq!(stamp.text(), "2026-11-16T10:27:45.123Z");
    assert_eq!(stamp.path(), "autosave/history/2026-11-16T10-27-45.123Z.json");
    for millis in [0, 951_782_400_000, 951_868_799_999, 4_107_542_400_000, u64::MAX] {
        let stamp = Stamp::from_millis(millis);
        assert_eq!(
            (Stamp::parse(&stamp.text()), Stamp::of_file(&stamp.file_name())),
            (Some(stamp), Some(stamp))
        );
    }
    for other in [
        "x",
        "2026-02-30T00-00-00.000Z.json",
        "2026-11-16T10-27-45.123Z.json.tmp",
        "current.json",
        "2026-11-16T10-27-45.123Z.json.crswap",
        "2026-13-01T00-00-00.000Z.json",
        "0000-00-00T00-00-00.000Z.json",
        "2026-11-16T24-00-00.000Z.json",
        "１026-11-16T10-27-45.1Z.json",
    ] {
        assert_eq!(Stamp::of_file(other), None, "{other}");
    }
}

#[test]
fn the_index_is_json_with_the_newest_first() {
    let generations =
        [(1, 10), (2, 20)].map(|(at, bytes)| Generation { stamp: Stamp::from_millis(at), bytes });
    let index: serde_json::Value = serde_json::from_str(&History::new(generations.to_vec()).index()).unwrap();
    assert_eq!(index["generations"][0]["ts"], "1970-01-01T00:00:00.002Z");
    assert_eq!(index["generations"][1]["bytes"], 10);
    assert_eq!(index["generations"][1]["file"], "history/1970-01-01T00-00-00.001Z.json");
}

/// Random failures, waits and holders: what the folder had is never lost without a trace, and when the trouble is over everything
/// is saved.
#[test]
fn any_order_of_edits_faults_and_losses_ends_with_everything_saved() {
    for seed in 1..=500_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut world = World::new(Options { looks: draw(2) == 0, ..Options::default() });
        for number in 0..60 {
            match draw(12) {
                0..=3 => world.edit(&format!("{seed}/{number}")),
                4..=6 => {
                    let millis = draw(6_000);
                    world.pass(millis);
                }
                7 => world.faults.push_back(io()),
                8 => world.faults.push_back(Some(Failure::NoSpace { said: "full".into() })),
                9 => drop(world.flush()),
                10 => {
                    world.lock(Lock::ReadOnly);
                    if draw(2) == 0 {
                        world.current = Some(format!("theirs {number}"));
                    }
                    world.lock(Lock::Held);
                }
                _ => {
                    let oldest = world.autosave.history().generations().first().map(|oldest| oldest.stamp);
                    let source = oldest.map_or(Source::Current, Source::Generation);
                    world.call(|autosave, call, now| autosave.restore(call, source, now));
                }
            }
            assert!(world.history.len() <= 22, "seed {seed}");
        }
        world.faults.clear();
        // The first may become a draft, where another program's version is loaded.
        for text in ["almost the end", "the end"] {
            world.edit(text);
            world.pass(60_000);
        }
        let state = world.autosave.state();
        assert_eq!(
            (world.saved(), world.memory.as_str(), state),
            ("the end", "the end", State::Saved),
            "seed {seed}"
        );
        assert_eq!(world.texts().last(), Some(&world.saved()), "seed {seed}");
        assert_eq!(world.index, Some(world.autosave.history().index()), "seed {seed}");
        let calls = world.settled.len();
        world.settled.sort_unstable();
        world.settled.dedup_by_key(|(call, _)| *call);
        assert_eq!(world.settled.len(), calls, "seed {seed}: a call was answered twice");
    }
}
