//! Telemetry over HTTP: who may send, what is refused, what reaches the folder, and what the collector never touches.

use std::path::Path;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use leasehold_core::telemetry::Summary;
use leasehold_server::TelemetrySettings;
use leasehold_server::telemetry::read;
use serde_json::{Value, json};

use crate::harness::{House, NOON};

const PATH: &str = "/api/telemetry";

fn house(folder: &Path, anonymous: bool) -> House {
    let settings = TelemetrySettings { anonymous, ..TelemetrySettings::new(folder) };
    House::with(|config| config.telemetry = Some(settings))
}

fn batch() -> Value {
    json!({ "v": 1, "counts": [
        { "event": "autosave.session", "n": 20 },
        { "event": "lock:readonly-entered", "reason": "renew-failed", "code": "renew-failed", "n": 2 },
        { "event": "lock:readonly-entered", "reason": "acquire-timeout", "code": "fallback-conflict", "n": 7 },
    ], "times": [{ "event": "lock:acquired", "ms": [12, 13] }] })
}

fn summary(folder: &Path) -> Summary {
    read(folder, NOON..NOON + 86_400_000).unwrap().counts().summary(None)
}

#[tokio::test(start_paused = true)]
async fn telemetry_is_off_unless_a_folder_is_named() {
    let house = House::new();
    house.user("anna").post(PATH, batch()).await.refused(404, "no_telemetry");
    house.end().await;
}

#[tokio::test(start_paused = true)]
async fn counts_reach_the_folder_within_seconds_and_at_the_end() {
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("telemetry");
    let house = house(&folder, false);
    let anna = house.user("anna");
    assert_eq!(anna.post(PATH, batch()).await.status, StatusCode::NO_CONTENT);
    while summary(&folder).sessions == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let first = summary(&folder);
    assert_eq!((first.sessions, first.read_only, first.second_tab, first.acquire.count()), (20, 2, 7, 2));
    let metrics = house.stranger().get("/metrics").await.bytes;
    let metrics = String::from_utf8_lossy(&metrics);
    for line in [
        "leasehold_telemetry_events_total 29",
        "leasehold_telemetry_sessions_total 20",
        "leasehold_telemetry_read_only_total 2",
        "leasehold_telemetry_second_tab_total 7",
        "leasehold_telemetry_dropped_total 0",
        "leasehold_telemetry_errors_total 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert_eq!(anna.post(PATH, batch()).await.status, StatusCode::NO_CONTENT);
    house.end().await;
    assert_eq!(summary(&folder).sessions, 40);
}

#[tokio::test(start_paused = true)]
async fn without_a_token_only_where_the_operator_allows_it() {
    let top = tempfile::tempdir().unwrap();
    let closed = house(&top.path().join("closed"), false);
    closed.stranger().post(PATH, batch()).await.refused(401, "unauthenticated");
    closed.end().await;
    let open = house(&top.path().join("open"), true);
    // What `sendBeacon` sends.
    let beacon = open.stranger().and("content-type", "text/plain;charset=UTF-8");
    let answer = beacon.call(Method::POST, PATH, Some(batch().to_string())).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    open.end().await;
    assert_eq!(summary(&top.path().join("open")).sessions, 20);
    assert_eq!(summary(&top.path().join("closed")).sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_batch_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let house = house(&top.path().join("telemetry"), false);
    let anna = house.user("anna");
    let count = |n: Value| json!({ "v": 1, "counts": [{ "event": "lock:renewed", "n": n }] });
    let row = json!({ "event": "lock:renewed", "n": 1 });
    let bad = [
        json!({}),
        json!({ "v": 2 }),
        json!({ "v": "1" }),
        json!({ "v": 1, "user": "anna" }),
        count(json!(0)),
        count(json!(-1)),
        count(json!(10_001)),
        count(json!(null)),
        json!({ "v": 1, "counts": vec![row; 129] }),
        json!({ "v": 1, "counts": [{ "event": "lock:renewed", "n": 1, "leaseId": "x" }] }),
        json!({ "v": 1, "times": [{ "event": "lock:acquired", "ms": vec![1; 257] }] }),
        json!({ "v": 1, "times": [{ "event": "lock:acquired", "ms": [-1] }] }),
    ];
    for body in bad {
        anna.post(PATH, body).await.refused(400, "invalid");
    }
    let long = json!({ "v": 1, "phase": "x".repeat(70_000) });
    anna.post(PATH, long).await.refused(413, "too_large");
    assert_eq!(anna.post(PATH, json!({ "v": 1.0 })).await.status, StatusCode::NO_CONTENT, "nothing to count");
    house.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_word_of_a_sender_reaches_a_file() {
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("telemetry");
    let house = house(&folder, false);
    let secret = "secret-of-anna";
    let body = json!({ "v": 1, "phase": secret, "counts": [
        { "event": secret, "n": 1 },
        { "event": "lock:readonly-entered", "reason": secret, "code": secret, "n": 1 },
        { "event": "lock:renewed", "reason": secret, "code": secret, "n": 1 },
    ], "times": [{ "event": secret, "ms": [1] }] });
    assert_eq!(house.user("anna").post(PATH, body).await.status, StatusCode::NO_CONTENT);
    house.end().await;
    let text = std::fs::read_to_string(folder.join("2026-01-01.jsonl")).unwrap();
    assert!(!text.contains("secret") && !text.contains("anna"), "{text}");
    assert_eq!(text.matches("\"phase\":\"other\"").count(), 3, "{text}");
    assert!(
        text.contains(r#""event":"autosave.lock.readonly","reason":"other","code":"other","n":1"#),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_phase_counts_if_the_flag_file_has_it() {
    let top = tempfile::tempdir().unwrap();
    let (folder, flags) = (top.path().join("telemetry"), top.path().join("flags.json"));
    let phases = r#"[{"name": "off", "autosave": false}, {"name": "beta", "autosave": true}]"#;
    std::fs::write(&flags, format!(r#"{{"version": 1, "phase": "beta", "phases": {phases}}}"#)).unwrap();
    let house = House::with(|config| {
        config.flags_file = Some(flags);
        config.telemetry = Some(TelemetrySettings::new(&folder));
    });
    let anna = house.user("anna");
    for (phase, n) in
        [(json!(null), 1), (json!("beta"), 2), (json!("off"), 4), (json!("anna"), 8), (json!("default"), 16)]
    {
        let body = json!({ "v": 1, "phase": phase, "counts": [{ "event": "autosave.session", "n": n }] });
        assert_eq!(anna.post(PATH, body).await.status, StatusCode::NO_CONTENT);
    }
    house.end().await;
    let counts = read(&folder, NOON..NOON + 86_400_000).unwrap().counts();
    let by_phase: Vec<_> = counts.events().map(|(phase, _, n)| (phase.as_str().to_owned(), n)).collect();
    assert_eq!(by_phase, [("beta".into(), 3), ("off".into(), 4), ("other".into(), 24)]);
}

#[tokio::test(start_paused = true)]
async fn one_sender_cannot_send_without_end() {
    let top = tempfile::tempdir().unwrap();
    let house = house(&top.path().join("telemetry"), true);
    let mut answers = Vec::new();
    for _ in 0..5_000 {
        let answer = house.stranger().post(PATH, json!({ "v": 1 })).await;
        let is_last = answer.status != StatusCode::NO_CONTENT;
        answers.push(answer);
        if is_last {
            break;
        }
    }
    let last = answers.last().unwrap();
    assert!(answers.len() > 200, "the burst is allowed: {}", answers.len());
    last.refused(429, "too_many_requests");
    assert!(last.headers.contains_key("retry-after"));
    assert_eq!(
        house.user("anna").get("/api/me").await.status,
        StatusCode::OK,
        "other calls have a limit of their own"
    );
    house.end().await;
}

/// The kernel reports whatever happens in the folders around the collector, while it creates its folder, collects, turns to the
/// next day, removes old ones and is read: a project with its lock, an autosave, and the folders of other collectors.
#[cfg(target_os = "linux")]
#[test]
fn the_collector_opens_and_writes_nothing_but_its_own_files() {
    use leasehold_core::flags::PhaseName;
    use leasehold_core::telemetry::Event;
    use leasehold_server::telemetry::{Collector, Keep};
    use rustix::fs::inotify;

    let top = tempfile::tempdir().unwrap();
    let around = [
        "",
        "project",
        "project/autosave",
        "project/autosave/history",
        "collector",
        "workflow-cookbook/logs",
        "analyzer",
    ];
    for folder in around {
        std::fs::create_dir_all(top.path().join(folder)).unwrap();
    }
    for file in
        ["project/.lock", "project/.lock.guard", "project/autosave/current.json", "collector/today.jsonl"]
    {
        std::fs::write(top.path().join(file), "{}").unwrap();
    }
    let folder = top.path().join("telemetry");
    let kernel = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    for watched in around {
        inotify::add_watch(&kernel, top.path().join(watched), inotify::WatchFlags::ALL_EVENTS).unwrap();
    }
    for day in 0..4 {
        // Opened anew every day, as by a server that is restarted.
        let collector = Collector::open(&folder, Keep { days: 2, ..Keep::default() }).unwrap();
        let now = NOON + day * 86_400_000;
        collector.record(&PhaseName::default(), &[Event::session()], now);
        collector.flush(now).unwrap();
        assert_eq!(read(&folder, now..now + 1).unwrap().counts().total(), 1);
    }
    let seen = happened(&kernel);
    assert!(seen.contains(&"telemetry".to_owned()), "the watch works: {seen:?}");
    let strange: Vec<_> = seen.iter().filter(|name| *name != "telemetry").collect();
    assert_eq!(strange, [""; 0], "names that were opened, read, made, changed or removed");
    std::fs::read(top.path().join("project/.lock")).unwrap();
    assert!(happened(&kernel).contains(&".lock".to_owned()), "a look at it would have been seen");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
}

/// The names that the kernel has reported; empty for a folder itself.
#[cfg(target_os = "linux")]
fn happened(kernel: &std::os::fd::OwnedFd) -> Vec<String> {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4_096];
    let mut reader = rustix::fs::inotify::Reader::new(kernel, &mut buffer);
    let mut names = Vec::new();
    while let Ok(event) = reader.next() {
        names.push(event.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default());
    }
    names
}
