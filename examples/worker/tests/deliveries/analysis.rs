//! `AnalysisLocks`, the three functions of *Job lock: API* (`docs/sources.md`), on Firestore documents that another program made.

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{AnalysisLocks, Error, Leasehold};
use leasehold_store::clock::{ManualClock, unix_millis};
use leasehold_store::{Firestore, FirestoreUrl};
use serde_json::{Value, json};

use crate::Worker;
use crate::emulator::emulator;
use crate::place::Place;

/// The documents of a project, through Firestore's REST interface.
struct Documents(String);

impl Documents {
    /// Creates a document, with these strings as fields.
    async fn create(&self, id: &str, fields: &[(&str, &str)]) {
        let fields = fields.iter().map(|(name, text)| ((*name).to_owned(), json!({ "stringValue": text })));
        let body = json!({ "fields": fields.collect::<serde_json::Map<_, _>>() });
        let url = format!("{}?documentId={id}", self.0);
        let created = reqwest::Client::new().post(url).bearer_auth("owner").json(&body).send().await.unwrap();
        assert_eq!(created.status(), 200, "{}", created.text().await.unwrap());
    }

    /// A field that is a string; `None` when it is absent.
    async fn field(&self, id: &str, name: &str) -> Option<String> {
        let got = reqwest::Client::new().get(format!("{}/{id}", self.0)).bearer_auth("owner").send();
        let document: Value = got.await.unwrap().json().await.unwrap();
        document["fields"][name]["stringValue"].as_str().map(str::to_owned)
    }
}

fn documents(host: &str, project: &str) -> Documents {
    Documents(format!("http://{host}/v1/projects/{project}/databases/(default)/documents/analyses"))
}

/// The worker created the job first, with a payload of its own: a document that another program had made was refused for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_about_the_document_that_another_program_made() {
    let (Some(emulator), Some(place)) = (emulator(), Place::firestore()) else { return };
    let worker = Worker::start(&place, "w1", 0);
    let project = place.store.trim_start_matches("firestore:").split('?').next().unwrap();
    let documents = documents(&emulator.host, project);
    let deliver = || reqwest::Client::new().post(&worker.url).json(&json!({ "analysisId": "42" })).send();
    assert_eq!(deliver().await.unwrap().status(), 404, "it is not created unless a task brings a payload");
    documents.create("42", &[("status", "PROCESSING"), ("title", "theirs")]).await;
    assert_eq!(deliver().await.unwrap().status(), 200);
    assert_eq!(documents.field("42", "status").await.as_deref(), Some("READY"));
    assert_eq!(documents.field("42", "title").await.as_deref(), Some("theirs"));
    let again: Value = deliver().await.unwrap().json().await.unwrap();
    assert_eq!(again["reason"], "already_finished");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn analysis_locks_on_documents_of_another_program() {
    let Some(emulator) = emulator() else { return };
    let project = format!("analysis-{}", std::process::id());
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_millis(unix_millis()));
    let url = FirestoreUrl::new(&project).unwrap().with("emulator", &emulator.host).unwrap();
    let store = Arc::new(Firestore::options().clock(clock.clone()).open(&url));
    let jobs = Leasehold::with_jobs_and_clock(store, clock.clone()).jobs().unwrap();
    let locks = AnalysisLocks::new(jobs, "analyses");
    let documents = documents(&emulator.host, &project);
    let pass = |seconds| clock.advance(Duration::from_secs(seconds));

    let missing = locks.acquire_analysis_lock("42", "w1", None).await;
    assert!(matches!(missing, Err(Error::NoSuchJob { .. })), "{missing:?}");
    documents.create("42", &[("status", "PROCESSING")]).await;
    assert!(locks.acquire_analysis_lock("42", "w1", None).await.unwrap().acquired, "as it is");
    assert_eq!(documents.field("42", "status").await.as_deref(), Some("PROCESSING"));
    assert_eq!(documents.field("42", "lockOwner").await.as_deref(), Some("w1"));

    let expires_at = documents.field("42", "lockExpiresAt").await;
    pass(200);
    assert_eq!(documents.field("42", "lockExpiresAt").await, expires_at, "nothing refreshes it by itself");
    locks.refresh_analysis_lock("42", "w1", None).await.unwrap();
    assert_ne!(documents.field("42", "lockExpiresAt").await, expires_at);

    pass(269);
    assert!(!locks.is_lost("42", "w1"), "300 s, less the margin");
    assert_eq!(locks.acquire_analysis_lock("42", "w2", None).await.unwrap().reason, Some("locked"));
    pass(1);
    assert!(locks.is_lost("42", "w1"), "before another worker can begin");
    pass(30);
    assert!(locks.acquire_analysis_lock("42", "w2", None).await.unwrap().acquired);
    let late = locks.refresh_analysis_lock("42", "w1", None).await;
    assert!(matches!(late, Err(Error::Lost(_))), "{late:?}");
    locks.release_analysis_lock("42", "w1").await;
    assert_eq!(documents.field("42", "lockOwner").await.as_deref(), Some("w2"), "it is not w1's to release");
    locks.release_analysis_lock("42", "w2").await;
    assert_eq!(documents.field("42", "lockOwner").await, None);

    for status in ["READY", "FAILED"] {
        documents.create(status, &[("status", status)]).await;
        let finished = locks.acquire_analysis_lock(status, "w1", None).await.unwrap();
        assert_eq!((finished.acquired, finished.reason), (false, Some("already_finished")));
    }
}
