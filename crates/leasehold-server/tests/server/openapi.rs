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
        "DELETE /api/leases/{name}",
        "GET /api/audit",
        "GET /api/documents",
        "GET /api/documents/{roomId}/events",
        "GET /api/documents/{roomId}/lock",
        "GET /api/documents/{roomId}/presence",
        "GET /api/events",
        "GET /api/flags",
        "GET /api/jobs/{collection}/{id}",
        "GET /api/leases/{name}",
        "GET /api/me",
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
        "POST /api/leases/{name}",
        "POST /api/leases/{name}/cancel",
        "POST /api/telemetry",
        "POST /api/tickets",
        "PUT /api/documents/{roomId}/lock",
        "PUT /api/jobs/{collection}/{id}",
        "PUT /api/leases/{name}",
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

/// The data of `snapshot` and `end`, and the headers that say whose lock is meant, were nowhere in the description, while
/// it promised refusals that never come: 401 for the call that asks for no token, 503 of `/healthz`.
#[tokio::test(start_paused = true)]
async fn the_description_says_what_comes_and_nothing_else() {
    let house = House::new();
    let document = house.stranger().get("/openapi.json").await.ok();
    let operation = |method: &str, path: &str| &document["paths"][path][method];
    let statuses = |method: &str, path: &str| {
        operation(method, path)["responses"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(statuses("get", "/healthz"), ["200"]);
    assert_eq!(statuses("get", "/metrics"), ["200"]);
    assert_eq!(statuses("get", "/readyz"), ["200", "503"]);
    let soft = statuses("post", "/api/documents/{roomId}/lock/release");
    assert_eq!(soft, ["200", "400", "404", "408", "413", "429", "503"]);
    assert_eq!(statuses("post", "/api/tickets"), ["200", "400", "401", "429", "503"]);
    assert_eq!(statuses("get", "/api/audit"), ["200", "400", "401", "403", "404", "429", "503"]);
    for (method, path) in [
        ("get", "/api/documents"),
        ("get", "/api/documents/{roomId}/lock"),
        ("post", "/api/documents/{roomId}/lock/take-over"),
        ("post", "/api/documents/{roomId}/lock/request"),
    ] {
        let parameters = operation(method, path)["parameters"].as_array().unwrap();
        for header in ["Lease-Id", "X-Tab-ID"] {
            assert!(
                parameters.iter().any(|parameter| parameter["name"] == header),
                "{method} {path} {header}"
            );
        }
    }
    for (path, snapshot) in
        [("/api/documents/{roomId}/events", "LockState"), ("/api/events", "SnapshotOfAll")]
    {
        let schema = &operation("get", path)["responses"]["200"]["content"]["text/event-stream"]["schema"];
        let named = document.pointer(&schema["$ref"].as_str().unwrap()[1..]).unwrap().to_string();
        for data in ["DocumentEvent", snapshot, "EndOfStream"] {
            assert!(named.contains(&format!("#/components/schemas/{data}\"")), "{path}: {named}");
        }
    }
    assert_eq!(
        document["components"]["schemas"]["StreamEnd"]["enum"],
        serde_json::json!(["token_expired", "too_slow", "shutting_down"])
    );
}
