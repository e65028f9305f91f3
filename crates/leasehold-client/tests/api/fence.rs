//! The layer that refuses stale saves, in an axum application, and the conditional write behind it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::routing::put;
use axum::{Extension, Router};
use leasehold_client::{AcquireOptions, Fence, FenceLayer, HttpClient, RoomId};
use rusqlite::Connection;
use tower::ServiceExt;

use crate::server::{TestServer, room};

type Database = Arc<Mutex<Connection>>;

/// A table of documents, each with the fence of its last save.
fn database() -> Database {
    let database = Connection::open_in_memory().unwrap();
    database
        .execute_batch(
            "CREATE TABLE documents (id TEXT PRIMARY KEY, body TEXT NOT NULL, lock_fence INTEGER NOT NULL DEFAULT 0);
             INSERT INTO documents (id, body) VALUES ('minutes', '');",
        )
        .unwrap();
    Arc::new(Mutex::new(database))
}

/// The write that closes the race: an older fence than the last one changes nothing.
fn save(database: &Database, id: &str, body: &str, fence: Fence) -> bool {
    let saved = database.lock().unwrap().execute(
        "UPDATE documents SET body = :body, lock_fence = :fence WHERE id = :id AND lock_fence <= :fence",
        rusqlite::named_params! { ":id": id, ":body": body, ":fence": i64::try_from(fence.get()).unwrap() },
    );
    saved.unwrap() == 1
}

fn app(client: HttpClient, database: Database) -> Router {
    let room_of_path = |parts: &http::request::Parts| {
        let name = parts.uri.path().strip_prefix("/documents/")?;
        RoomId::parse(name).ok()
    };
    Router::new()
        .route("/documents/{id}", put(put_document).get(async || "the document"))
        .route("/other", put(async || "other"))
        .layer(FenceLayer::new(client, room_of_path))
        .with_state(database)
}

async fn put_document(
    State(database): State<Database>,
    Path(id): Path<String>,
    Extension(fence): Extension<Fence>,
    body: String,
) -> StatusCode {
    if save(&database, &id, &body, fence) { StatusCode::NO_CONTENT } else { StatusCode::PRECONDITION_FAILED }
}

async fn send(app: &Router, method: &str, path: &str, fence: Option<&str>) -> (u16, String, Option<String>) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(fence) = fence {
        request = request.header("Lease-Fence", fence);
    }
    let response = app.clone().oneshot(request.body(Body::from("text")).unwrap()).await.unwrap();
    let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap(), retry_after)
}

#[tokio::test]
async fn a_save_needs_the_fence_of_the_present_lock() {
    let server = TestServer::start().await;
    let app = app(server.client("boss"), database());
    let anna = server.leasehold("anna");
    let first = anna.acquire("doc/minutes", AcquireOptions::new()).await.unwrap();
    let old = first.fence().to_string();
    assert_eq!(send(&app, "PUT", "/documents/minutes", Some(&old)).await.0, 204);
    first.release().await.unwrap();
    let over = send(&app, "PUT", "/documents/minutes", Some(&old)).await;
    assert!(over.0 == 412 && over.1.contains("nobody holds"), "{over:?}");

    let second = anna.acquire("doc/minutes", AcquireOptions::new()).await.unwrap();
    let stale = send(&app, "PUT", "/documents/minutes", Some(&old)).await;
    assert!(stale.0 == 412 && stale.1.contains("fence_stale") && stale.1.contains("Anna"), "{stale:?}");
    assert_eq!(send(&app, "PUT", "/documents/minutes", Some(&second.fence().to_string())).await.0, 204);

    let missing = send(&app, "PUT", "/documents/minutes", None).await;
    assert!(missing.0 == 428 && missing.1.contains("Lease-Fence"), "{missing:?}");
    for nonsense in ["", "x", "-1", "0", "9007199254740992"] {
        assert_eq!(send(&app, "PUT", "/documents/minutes", Some(nonsense)).await.0, 400, "{nonsense:?}");
    }
    assert_eq!(send(&app, "GET", "/documents/minutes", None).await.0, 200, "reading needs no lock");
    assert_eq!(send(&app, "PUT", "/other", None).await.0, 200, "what is no document is none of its business");
}

#[tokio::test]
async fn without_leasehold_nothing_is_let_through() {
    let server = TestServer::start().await;
    let app = app(server.client("boss"), database());
    server.stop().await;
    let refused = send(&app, "PUT", "/documents/minutes", Some("7")).await;
    assert_eq!((refused.0, refused.2.as_deref()), (503, Some("1")), "{refused:?}");
    let app = self::app(
        HttpClient::at("http://127.0.0.1:9").timeout(Duration::from_secs(1)).build().unwrap(),
        database(),
    );
    assert_eq!(send(&app, "PUT", "/documents/minutes", Some("7")).await.0, 503);
}

/// Anna's save is checked while her lock is current, and written only after Ben has taken over and saved: the check
/// alone would let it through, and Ben's text would be lost.
#[tokio::test]
async fn the_conditional_write_closes_the_race_that_the_check_leaves_open() {
    let server = TestServer::start().await;
    let (client, database) = (server.client("boss"), database());
    let anna = server.leasehold("anna").acquire("doc/minutes", AcquireOptions::new()).await.unwrap();
    assert!(client.check(&room("minutes"), anna.fence()).await.unwrap().current);
    // Here anna's request is paused.
    let boss = server.leasehold("boss");
    let taken = boss.take_over("doc/minutes", anna.fence(), "deadline", AcquireOptions::new()).await.unwrap();
    assert!(save(&database, "minutes", "the boss's text", taken.acquired().unwrap().fence()));
    assert!(!save(&database, "minutes", "anna's text", anna.fence()), "an old save went over a newer one");
    let body: String =
        database.lock().unwrap().query_row("SELECT body FROM documents", [], |row| row.get(0)).unwrap();
    assert_eq!(body, "the boss's text");
}
