//! Stores that the version before made are brought up to date when they are opened, and nothing in them is lost.
//! `tests/fixtures/README.md` says how they were made.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_core::lease::{Bid, Claim, LossReason};
use leasehold_core::{
    Command, EventKind, Key, LeaseId, Meta, Outcome, Owner, Position, Proof, Reason, Right, Slot, TabId, Ttl,
};
use leasehold_store::clock::ManualClock;
use leasehold_store::embedded::{self, Embedded};
use leasehold_store::{Error, Feed, Mode, Range, Store};

pub const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

fn lease_id(number: u8) -> LeaseId {
    LeaseId::parse(&format!("00000000-0000-4000-8000-0000000000{number:02}")).unwrap()
}

fn owner(name: &str) -> Owner {
    Owner::parse(name).unwrap()
}

pub fn tab(tab: &str) -> Option<TabId> {
    TabId::parse_optional(tab).unwrap()
}

pub fn doc(name: &str) -> Key {
    Key::parse(&format!("doc/{name}")).unwrap()
}

fn by_tab(name: &str, tab_id: &str) -> Claim {
    Claim::Tab { owner: owner(name), tab: tab(tab_id) }
}

async fn slot(store: &dyn Store, key: &Key) -> Slot {
    store.read(key).await.unwrap().slot
}

async fn renew(store: &dyn Store, name: &str, claim: Claim) -> Outcome {
    store.apply(&doc(name), Command::Renew { claim, ttl: None }).await.unwrap().outcome
}

/// What every one of them holds: `minutes` with a request, `plan`, and the job.
async fn check_common(store: &dyn Store) {
    let minutes = slot(store, &doc("minutes")).await.lease.unwrap();
    let name = |meta: &Meta| meta.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ");
    assert_eq!((&minutes.owner, &minutes.tab), (&owner("user-a"), &tab("tab-1")));
    assert_eq!(name(&minutes.meta), "name=Anna", "the tab is not shown any more");
    let request = minutes.request.as_deref().unwrap();
    assert_eq!((&request.bid.owner, &request.bid.tab), (&owner("user-b"), &tab("tab-b")));
    assert_eq!((name(&request.bid.meta), request.bid.lease_id), ("name=Ben".to_owned(), lease_id(10)));
    let plan = slot(store, &doc("plan")).await.lease.unwrap();
    assert_eq!((plan.tab, name(&plan.meta)), (None, "name=Anna".to_owned()), "`-` was no tab");
    for (claim, is_own) in [
        (by_tab("user-a", "tab-1"), true),
        (Claim::Holder { lease_id: lease_id(1), owner: owner("user-a"), fence: None }, true),
        (Claim::Proof(Proof { lease_id: lease_id(1), fence: minutes.fence }), true),
        (by_tab("user-a", "-"), false),
        (by_tab("user-b", "tab-1"), false),
    ] {
        let outcome = renew(store, "minutes", claim.clone()).await;
        assert_eq!(matches!(outcome, Outcome::Renewed(_)), is_own, "{claim:?}: {outcome:?}");
    }
    let outcome = renew(store, "plan", by_tab("user-a", "-")).await;
    assert!(matches!(outcome, Outcome::Renewed(_)), "{outcome:?}");
    let job = slot(store, &Key::parse("job/analyses/42").unwrap()).await.lease.unwrap();
    assert_eq!((job.tab, job.lease_id, name(&job.meta)), (None, lease_id(8), "name=worker-1".to_owned()));
}

/// The rest: other holders, an ended lease id, the events as they were told, and fences that go on growing.
pub async fn check_all(store: &dyn Store) {
    check_common(store).await;
    let page = store.list(&Range::prefix("doc/")).await.unwrap();
    let held: Vec<_> = page.slots.iter().map(|(key, _)| key.name().to_owned()).collect();
    assert_eq!(held, ["agenda", "leaving", "minutes", "plan", "taken"]);
    assert!(slot(store, &doc("leaving")).await.lease.unwrap().leaving);
    let outcome = renew(store, "taken", by_tab("user-b", "tab-b")).await;
    assert!(matches!(outcome, Outcome::Renewed(_)), "{outcome:?}");
    let bid = Bid {
        lease_id: lease_id(4),
        owner: owner("user-a"),
        tab: tab("tab-1"),
        ttl: Ttl::from_secs(30).unwrap(),
        meta: Meta::default(),
    };
    let late = store.apply(&doc("released"), Command::Acquire(bid.clone())).await.unwrap().outcome;
    assert!(matches!(late, Outcome::Lost { because: LossReason::Released, .. }), "{late:?}");
    let Feed::Events(events) = store.events(Position(0), 100).await.unwrap() else { panic!("a gap") };
    let old_tab = events.iter().find_map(|published| match &published.event.kind {
        EventKind::Granted { meta, .. } if published.event.key == doc("minutes") => meta.get("tab"),
        _ => None,
    });
    assert_eq!((events.len(), old_tab), (14, Some("tab-1")), "what was told once stays as it was told");
    let before = slot(store, &doc("agenda")).await.lease.unwrap().fence;
    let largest = events.iter().map(|published| published.event.fence).max().unwrap();
    let (bid, reason) = (Bid { lease_id: lease_id(11), ..bid }, Reason::default());
    let take = Command::TakeOver { seen: before, bid, reason, right: Right::Force };
    match store.apply(&doc("agenda"), take).await.unwrap().outcome {
        Outcome::Granted { lease, .. } => assert!(lease.fence > largest),
        other => panic!("{other:?}"),
    }
}

// --- the embedded file ---

/// A copy of a fixture, with its log and the record of its epoch if it has them: it is not to be taken for a copy.
fn copy(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join("leases.db");
    std::fs::copy(format!("{FIXTURES}/{name}"), &path).unwrap();
    for suffix in ["-wal", ".epoch"] {
        let beside = format!("{FIXTURES}/{name}{suffix}");
        if Path::new(&beside).exists() {
            std::fs::copy(beside, folder.join(format!("leases.db{suffix}"))).unwrap();
        }
    }
    path
}

fn open(path: &Path, mode: Mode) -> leasehold_store::Result<Embedded> {
    Embedded::options().mode(mode).clock(Arc::new(ManualClock::default())).open(path)
}

/// The older schemas, in either mode.
fn old_schemas() -> impl Iterator<Item = (i64, Mode)> {
    [1, 2, 3, 4].into_iter().flat_map(|schema| [(schema, Mode::Exclusive), (schema, Mode::Shared)])
}

#[tokio::test]
async fn a_file_of_the_version_before_is_brought_up_to_date() {
    for (schema, mode) in old_schemas() {
        let folder = tempfile::tempdir().unwrap();
        let path = copy(folder.path(), &format!("schema-{schema}.sqlite"));
        check_all(&open(&path, mode).unwrap()).await;
        let checked = embedded::check(&path).unwrap();
        assert_eq!((checked.schema, checked.problems), (5, vec![]), "{schema} {mode:?}");
        let again = open(&path, mode).unwrap();
        check_common(&again).await;
    }
}

#[tokio::test]
async fn a_file_whose_server_was_killed_is_brought_up_to_date_with_its_log() {
    for (schema, mode) in old_schemas() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("schema-{schema}-crashed.sqlite");
        let path = copy(folder.path(), &name);
        check_common(&open(&path, mode).unwrap()).await;
        let checked = embedded::check(&path).unwrap();
        assert_eq!((checked.schema, checked.problems), (5, vec![]), "{schema} {mode:?}");
        // Without its log it is as damaged as before: what was acknowledged last is gone.
        let path = copy(folder.path(), &name);
        std::fs::write(folder.path().join("leases.db-wal"), []).unwrap();
        assert!(matches!(open(&path, mode), Err(Error::Damaged { .. })));
    }
}

/// Looking changes nothing, so that the version before can still be started again.
#[tokio::test]
async fn an_old_file_is_looked_at_as_it_is() {
    for schema in [1, 2, 3, 4] {
        let folder = tempfile::tempdir().unwrap();
        let path = copy(folder.path(), &format!("schema-{schema}.sqlite"));
        let before = std::fs::read(&path).unwrap();
        let checked = embedded::check(&path).unwrap();
        assert_eq!((checked.schema, checked.leases, checked.problems), (schema, 6, vec![]));
        assert_eq!(embedded::peek(&path, &Range::prefix("doc/")).unwrap().slots.len(), 5);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[tokio::test]
async fn a_backup_of_the_version_before_can_be_restored() {
    for schema in [1, 2, 3, 4] {
        let folder = tempfile::tempdir().unwrap();
        let old = copy(folder.path(), &format!("schema-{schema}.sqlite"));
        let backup = folder.path().join("backup.db");
        assert_eq!(embedded::backup(&old, &backup).unwrap().checked.schema, schema);
        let restored = folder.path().join("restored.db");
        let repaired = embedded::restore(&backup, &restored).unwrap();
        assert_eq!((repaired.leases, repaired.lost), (6, vec![]));
        check_common(&open(&restored, Mode::Exclusive).unwrap()).await;
        let repaired = embedded::repair(&old, false).unwrap();
        assert_eq!((repaired.leases, repaired.lost), (6, vec![]));
        check_common(&open(&old, Mode::Exclusive).unwrap()).await;
    }
}

/// A slot that does not match its checksum is not given a new one that it matches.
#[tokio::test]
async fn a_damaged_old_file_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path(), "schema-1.sqlite");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute("UPDATE slot SET fence = fence + 1 WHERE key = 'doc/plan'", []).unwrap();
    drop(db);
    assert!(matches!(open(&path, Mode::Exclusive), Err(Error::Damaged { .. })));
    let db = rusqlite::Connection::open(&path).unwrap();
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
}

/// A process of the version before may still share the file, and would not know the new column.
#[tokio::test]
async fn an_old_file_that_others_use_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path(), "schema-1.sqlite");
    let lock = std::fs::File::create(folder.path().join("leases.db.lock")).unwrap();
    lock.lock_shared().unwrap();
    let error = open(&path, Mode::Shared).err().unwrap();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert!(error.to_string().contains("older version"), "{error}");
    drop(lock);
    check_common(&open(&path, Mode::Shared).unwrap()).await;
}
