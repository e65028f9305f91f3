//! The API's description: made from the code, whole, and kept under watch.

use serde_json::Value;

use crate::harness::House;

#[tokio::test(start_paused = true)]
async fn the_description_is_openapi_3_1_and_names_every_call() {
    let house = House::new();
    let document = house.stranger().get("/openapi.json").await.ok();
    assert_eq!(document["openapi"], "3.1.0");
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        calls.extend(
            item.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase())),
        );
    }
    calls.sort();
    let expected = [
        "DELETE /api/documents/{roomId}/lock",
        "DELETE /api/documents/{roomId}/lock/request",
        "GET /api/audit",
        "GET /api/documents",
        "GET /api/documents/{roomId}/events",
        "GET /api/documents/{roomId}/lock",
        "GET /api/events",
        "GET /api/jobs/{collection}/{id}",
        "GET /healthz",
        "GET /metrics",
        "GET /readyz",
        "POST /api/documents/heartbeat",
        "POST /api/documents/{roomId}/lock",
        "POST /api/documents/{roomId}/lock/check",
        "POST /api/documents/{roomId}/lock/force-release",
        "POST /api/documents/{roomId}/lock/release",
        "POST /api/documents/{roomId}/lock/request",
        "POST /api/documents/{roomId}/lock/request/answer",
        "POST /api/documents/{roomId}/lock/request/told",
        "POST /api/documents/{roomId}/lock/resume",
        "POST /api/documents/{roomId}/lock/take-over",
        "POST /api/jobs/{collection}/{id}/acquire",
        "POST /api/jobs/{collection}/{id}/complete",
        "POST /api/jobs/{collection}/{id}/fail",
        "POST /api/jobs/{collection}/{id}/refresh",
        "POST /api/jobs/{collection}/{id}/release",
        "POST /api/jobs/{collection}/{id}/reset",
        "POST /api/tickets",
        "PUT /api/documents/{roomId}/lock",
        "PUT /api/jobs/{collection}/{id}",
    ];
    assert_eq!(calls, expected);
    assert_eq!(unresolved(&document, &document), [""; 0]);
}

/// References that lead nowhere.
fn unresolved(document: &Value, part: &Value) -> Vec<String> {
    match part {
        Value::Object(fields) => {
            let dead = fields
                .get("$ref")
                .and_then(Value::as_str)
                .filter(|path| document.pointer(&path[1..]).is_none());
            let below = fields.values().flat_map(|field| unresolved(document, field));
            dead.map(str::to_owned).into_iter().chain(below).collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| unresolved(document, item)).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_for_people_loads_nothing_from_elsewhere() {
    let house = House::new();
    let page = house.stranger().get("/docs").await;
    let html = String::from_utf8(page.bytes.to_vec()).unwrap();
    assert!(html.contains("/api/documents/{roomId}/lock/take-over") && html.contains("lock_not_found"));
    for outside in ["http://", "https://", "<script", "src="] {
        assert!(!html.contains(outside), "{outside}");
    }
}
