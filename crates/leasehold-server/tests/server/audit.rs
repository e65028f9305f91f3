//! The audit as callers see it, over a restart and a crash.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_store::{Embedded, Store};
use serde_json::{Value, json};

use crate::harness::{House, User};

fn house(store: &Arc<dyn Store>, audit: &Path) -> House {
    House::on(store.clone(), |config| config.audit = Some(audit.to_owned()))
}

fn embedded(folder: &Path) -> Arc<dyn Store> {
    Arc::new(Embedded::options().open(folder.join("leases.db")).unwrap())
}

/// Anna locks the document, and Ben does this to her lock.
async fn disturb(house: &House, room: &str, call: &str, reason: &str) {
    let path = format!("/api/documents/{room}/lock");
    let grant = house.user("anna").post(&path, Value::Null).await.ok();
    let body = json!({ "fence": grant["fence"], "reason": reason });
    house.user("ben").post(&format!("{path}/{call}"), body).await.ok();
}

/// The entries that the user may see, once there are this many.
async fn entries(user: &User, count: usize) -> Vec<Value> {
    let look = async {
        loop {
            let page = user.get("/api/audit").await.ok();
            let entries = page["entries"].as_array().unwrap().clone();
            if entries.len() >= count {
                return entries;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), look).await.unwrap()
}

fn told(entry: &Value) -> [&str; 5] {
    ["action", "roomId", "holder", "by", "reason"].map(|field| entry[field].as_str().unwrap())
}

/// Waits for the first line, from which on the audit misses nothing.
async fn begun(audit: &Path) {
    let look = async {
        while std::fs::read_to_string(audit).is_ok_and(|text| text.is_empty()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), look).await.unwrap();
}

#[tokio::test]
async fn take_overs_and_forced_releases_are_kept_and_shown_to_those_with_force() {
    let folder = tempfile::tempdir().unwrap();
    let (store, audit) = (embedded(folder.path()), folder.path().join("audit.jsonl"));
    let house = house(&store, &audit);
    begun(&audit).await;
    disturb(&house, "minutes", "take-over", "on leave").await;
    disturb(&house, "plans", "force-release", "a stuck tab").await;
    let all = entries(&house.user("cora"), 2).await;
    assert_eq!(told(&all[0]), ["taken_over", "minutes", "anna", "ben", "on leave"]);
    assert_eq!(told(&all[1]), ["force_released", "plans", "anna", "ben", "a stuck tab"]);
    let some = house.user_with("cora", json!({ "plans": "force", "minutes": "lock" }));
    assert_eq!(entries(&some, 1).await.len(), 1);
    // Whoever may see none of it is told so, not that there is nothing.
    let none = house.user_with("cora", json!({ "*": "lock" }));
    none.get("/api/audit").await.refused(403, "not_allowed");
    house.stranger().get("/api/audit").await.refused(401, "unauthenticated");
    house.end().await;
}

#[tokio::test]
async fn what_was_committed_when_the_server_died_is_in_the_audit_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (store, audit) = (embedded(folder.path()), folder.path().join("audit.jsonl"));
    let first = house(&store, &audit);
    begun(&audit).await;
    disturb(&first, "a", "take-over", "first").await;
    entries(&first.user("cora"), 1).await;
    first.end().await;
    // A server without an audit stands for the moment between the commit and the line.
    let blind = House::on(store.clone(), |_| ());
    disturb(&blind, "b", "take-over", "second").await;
    blind.end().await;
    let mut torn = std::fs::read(&audit).unwrap();
    torn.extend_from_slice(br#"{"position":4,"at":"2026"#);
    std::fs::write(&audit, torn).unwrap();
    let second = house(&store, &audit);
    let reasons: Vec<Value> =
        entries(&second.user("cora"), 2).await.iter().map(|entry| entry["reason"].clone()).collect();
    assert_eq!(reasons, ["first", "second"]);
    second.end().await;
}

/// The list showed positions 11, 13 and 23, but `after` counted lines: whoever asked for what came after 11 was told that
/// nothing had.
#[tokio::test]
async fn what_came_after_an_entry_is_asked_for_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let (store, audit) = (embedded(folder.path()), folder.path().join("audit.jsonl"));
    let house = house(&store, &audit);
    begun(&audit).await;
    for number in 0..3 {
        house.user("anna").post("/api/documents/other/lock", Value::Null).await.ok();
        house.user("anna").delete("/api/documents/other/lock").await.ok();
        disturb(&house, &format!("d{number}"), "take-over", "deadline").await;
    }
    let cora = house.user("cora");
    let all = entries(&cora, 3).await;
    for (at, entry) in all.iter().enumerate() {
        let rest = cora.get(&format!("/api/audit?after={}", entry["number"])).await.ok();
        assert_eq!(rest["entries"], json!(all[at + 1..]), "after entry {at}");
    }
    // An audit that was moved away is begun anew: whoever goes on where the old one ended would miss what is new.
    cora.get("/api/audit?after=1000").await.refused(400, "invalid");
    house.end().await;
}

/// On a server without an audit, `leasehold audit` said that nobody had taken anything.
#[tokio::test]
async fn a_server_without_an_audit_says_so() {
    let house = House::new();
    disturb(&house, "minutes", "take-over", "on leave").await;
    house.user("cora").get("/api/audit").await.refused(404, "no_audit");
    house.user_with("cora", json!({ "*": "lock" })).get("/api/audit").await.refused(403, "not_allowed");
    house.end().await;
}

#[tokio::test]
async fn an_audit_that_cannot_be_read_is_no_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let (store, audit) = (embedded(folder.path()), folder.path().join("audit.jsonl"));
    let house = house(&store, &audit);
    begun(&audit).await;
    std::fs::rename(&audit, folder.path().join("elsewhere")).unwrap();
    let answer = house.user("cora").get("/api/audit").await;
    answer.refused(503, "unavailable");
    assert_eq!(answer.headers["retry-after"], "10");
    house.end().await;
}

/// Ben first took over with a token that has no name, then with one that has. The event of the first call arrived after
/// the second call, and took his name away again.
#[tokio::test]
async fn an_entry_has_the_names_that_the_server_knows_and_the_newest_can_be_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (store, audit) = (embedded(folder.path()), folder.path().join("audit.jsonl"));
    let house = house(&store, &audit);
    begun(&audit).await;
    disturb(&house, "minutes", "take-over", "on leave").await;
    let named = |id: &str, name: &str| {
        house.user_with_claims(id, json!({ "name": name, "documents": { "*": "force" } }))
    };
    let (anna, ben) = (named("anna", "Anna"), named("ben", "Ben"));
    let grant = anna.post("/api/documents/plans/lock", Value::Null).await.ok();
    let body = json!({ "fence": grant["fence"], "reason": "a stuck tab" });
    ben.post("/api/documents/plans/lock/force-release", body).await.ok();
    entries(&anna, 2).await;
    // The audit and the names follow the store's events each at its own pace.
    let named = async {
        loop {
            let newest = anna.get("/api/audit?newest=true&limit=1").await.ok();
            if newest["entries"][0]["holder_name"] != Value::Null {
                return newest;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let newest = tokio::time::timeout(Duration::from_secs(20), named).await.unwrap();
    let entry = &newest["entries"][0];
    assert_eq!((newest["entries"].as_array().unwrap().len(), &newest["next"]), (1, &Value::Null));
    assert_eq!(told(entry), ["force_released", "plans", "anna", "ben", "a stuck tab"]);
    assert_eq!((&entry["holder_name"], &entry["by_name"]), (&json!("Anna"), &json!("Ben")));
    house.end().await;
}
