//! The collector on a real folder.

use std::path::PathBuf;

use super::*;

const DAY: u64 = 24 * 3_600_000;
/// 2026-01-01, 12:00 UTC.
const NOON: u64 = 1_767_268_800_000;

struct Place {
    top: tempfile::TempDir,
    folder: PathBuf,
}

impl Place {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("telemetry");
        Self { top, folder }
    }

    fn open(&self) -> Collector {
        self.keeping(Keep::default())
    }

    fn keeping(&self, keep: Keep) -> Collector {
        Collector::open(&self.folder, keep).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.folder).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap()
    }

    fn sessions(&self, range: std::ops::Range<u64>) -> u64 {
        read(&self.folder, range).unwrap().counts().summary(None).sessions
    }
}

fn phase() -> PhaseName {
    PhaseName::default()
}

fn sessions(collector: &Collector, n: usize, now: u64) {
    collector.record(&phase(), &vec![Event::session(); n], now);
}

#[test]
fn what_is_recorded_is_read_again_by_time() {
    let place = Place::new();
    let collector = place.open();
    sessions(&collector, 2, NOON + 1);
    sessions(&collector, 3, NOON + 9_999);
    sessions(&collector, 4, NOON + 10_000);
    collector.flush(NOON + 10_000).unwrap();
    sessions(&collector, 5, NOON + 10_001);
    collector.flush(NOON + 20_000).unwrap();
    let recorded = read(&place.folder, NOON..NOON + 60_000).unwrap();
    let by_slot: Vec<_> = recorded.slots.iter().map(|(at, counts)| (at - NOON, counts.total())).collect();
    assert_eq!(by_slot, [(0, 5), (10_000, 9)]);
    assert_eq!((recorded.dropped, recorded.damaged), (0, 0));
    assert_eq!(place.sessions(NOON + 10_000..NOON + 60_000), 9, "the range begins at its first slot");
    assert_eq!(place.sessions(NOON..NOON + 10_000), 5, "and ends before its last");
    let by_minute = read_by(&place.folder, NOON..NOON + 60_000, 60_000).unwrap();
    assert_eq!(by_minute.slots.len(), 1);
    assert_eq!(by_minute.counts(), recorded.counts());
}

#[test]
fn every_day_has_its_file_and_old_ones_are_removed() {
    let place = Place::new();
    let collector = place.keeping(Keep { days: 3, ..Keep::default() });
    for day in 0..5 {
        sessions(&collector, 1, NOON + day * DAY);
        collector.flush(NOON + day * DAY).unwrap();
    }
    assert_eq!(place.names(), ["2026-01-03.jsonl", "2026-01-04.jsonl", "2026-01-05.jsonl"]);
    assert_eq!(place.sessions(0..NOON + 9 * DAY), 3);
    // A reader of two days opens no others.
    std::fs::write(place.folder.join("2026-01-03.jsonl"), "nonsense\n").unwrap();
    let recorded = read(&place.folder, NOON + 3 * DAY..NOON + 5 * DAY).unwrap();
    assert_eq!((recorded.counts().total(), recorded.damaged), (2, 0));
}

#[test]
#[cfg(unix)]
fn folder_and_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    std::fs::create_dir(&place.folder).unwrap();
    std::fs::set_permissions(&place.folder, PermissionsExt::from_mode(0o755)).unwrap();
    let collector = place.open();
    sessions(&collector, 1, NOON);
    collector.flush(NOON).unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(place.folder.clone()), mode(place.folder.join("2026-01-01.jsonl"))), (0o700, 0o600));
}

#[test]
fn a_folder_that_is_not_its_own_is_refused_and_left_alone() {
    let place = Place::new();
    let refusal = |folder: PathBuf| Collector::open(&folder, Keep::default()).err().unwrap().to_string();
    let project = place.top.path().join("project");
    std::fs::create_dir_all(&project).unwrap();
    std::fs::write(project.join("story.json"), "{}").unwrap();
    let said = refusal(project.clone());
    assert!(said.contains("story.json is no file of a collector") && said.contains("empty folder"), "{said}");
    assert_eq!(std::fs::read_dir(&project).unwrap().count(), 1);
    for foreign in ["collector", "Analyzer", "workflow-cookbook/logs"] {
        let folder = place.top.path().join(foreign).join("ours");
        assert!(refusal(folder.clone()).contains("belongs to another collector"), "{foreign}");
        assert!(!folder.exists());
    }
    let _first = place.open();
    assert!(refusal(place.folder.clone()).contains("another process collects"));
}

#[test]
fn a_line_that_a_crash_cut_short_costs_that_line_only() {
    let place = Place::new();
    let collector = place.open();
    sessions(&collector, 1, NOON);
    sessions(&collector, 2, NOON + 10_000);
    collector.flush(NOON + 10_000).unwrap();
    drop(collector);
    let name = "2026-01-01.jsonl";
    let whole = place.text(name);
    let torn = &whole[..whole.len() - 20];
    std::fs::write(place.folder.join(name), torn).unwrap();
    let recorded = read(&place.folder, NOON..NOON + DAY).unwrap();
    assert_eq!((recorded.counts().total(), recorded.damaged), (1, 0), "a server may be writing it");
    let collector = place.open();
    sessions(&collector, 4, NOON + 20_000);
    collector.flush(NOON + 20_000).unwrap();
    let recorded = read(&place.folder, NOON..NOON + DAY).unwrap();
    assert_eq!((recorded.counts().total(), recorded.damaged), (5, 1), "{}", place.text(name));
}

#[test]
fn damage_and_newer_lines_are_counted_and_skipped() {
    let place = Place::new();
    let collector = place.open();
    sessions(&collector, 1, NOON);
    collector.flush(NOON).unwrap();
    let good = place.text("2026-01-01.jsonl");
    let newer = good.replace("\"v\":1", "\"v\":2");
    let name = good.replace("\"default\"", "\"Anna Example\"");
    let text = format!("{good}nonsense\n\u{0}\n{newer}{name}{good}");
    std::fs::write(place.folder.join("2026-01-01.jsonl"), text).unwrap();
    let recorded = read(&place.folder, NOON..NOON + DAY).unwrap();
    assert_eq!((recorded.counts().total(), recorded.damaged), (2, 4));
}

#[test]
fn a_disk_that_cannot_be_written_loses_nothing_for_an_hour() {
    let place = Place::new();
    let collector = place.open();
    // No file can be made under this name.
    let obstacle = place.folder.join("2026-01-01.jsonl");
    std::fs::create_dir(&obstacle).unwrap();
    let hour = 3_600_000 / SLOT_MS;
    for slot in 0..hour {
        sessions(&collector, 1, NOON + slot * SLOT_MS);
        collector.flush(NOON + slot * SLOT_MS).unwrap_err();
    }
    sessions(&collector, 1, NOON + hour * SLOT_MS);
    std::fs::remove_dir(&obstacle).unwrap();
    collector.flush(NOON + hour * SLOT_MS).unwrap();
    let recorded = read(&place.folder, NOON..NOON + DAY).unwrap();
    assert_eq!((recorded.counts().total(), recorded.slots.len(), recorded.dropped), (360, 360, 1));
    assert_eq!(recorded.slots.keys().next(), Some(&(NOON + SLOT_MS)), "the oldest gives way");
}

#[test]
fn a_day_is_bounded_and_what_is_dropped_is_told() {
    let place = Place::new();
    let collector = place.keeping(Keep { bytes_per_day: 1_000, ..Keep::default() });
    let metrics = Metrics::new();
    collector.report_to(&metrics);
    for slot in 0..100 {
        sessions(&collector, 1, NOON + slot * SLOT_MS);
        collector.flush(NOON + slot * SLOT_MS).unwrap();
    }
    let text = place.text("2026-01-01.jsonl");
    let kept = text.lines().count() as u64;
    assert!(text.len() <= 1_000 && kept > 5, "{text}");
    sessions(&collector, 1, NOON + DAY);
    collector.flush(NOON + DAY).unwrap();
    assert_eq!(read(&place.folder, NOON..NOON + 2 * DAY).unwrap().dropped, 100 - kept);
    let told = format!("leasehold_telemetry_dropped_total {}", 100 - kept);
    assert!(metrics.render().contains(&told), "{told}");
}

#[test]
fn what_waits_in_memory_is_bounded() {
    let place = Place::new();
    let collector = place.open();
    let name = |number: usize| PhaseName::parse(&format!("p{number}")).unwrap();
    let most = MOST_COUNTS + 500;
    for number in 0..most {
        collector.record(&name(number), &[Event::session()], NOON);
    }
    assert_eq!(collector.lock().slots.values().map(Counts::len).sum::<usize>(), MOST_COUNTS);
    collector.flush(NOON).unwrap();
    let recorded = read(&place.folder, NOON..NOON + DAY).unwrap();
    assert_eq!((recorded.counts().total(), recorded.dropped), (MOST_COUNTS as u64, 500));
}

#[test]
fn a_file_that_was_taken_away_is_made_again() {
    let place = Place::new();
    let collector = place.open();
    sessions(&collector, 1, NOON);
    collector.flush(NOON).unwrap();
    std::fs::remove_file(place.folder.join("2026-01-01.jsonl")).unwrap();
    sessions(&collector, 2, NOON);
    collector.flush(NOON).unwrap();
    assert_eq!(place.sessions(NOON..NOON + DAY), 2);
}
