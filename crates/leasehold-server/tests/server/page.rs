//! The page at `/`: what it is made of, what it may load, and to whom a token is given.

use std::time::Duration;

use axum::http::StatusCode;
use leasehold_server::Dev;
use serde_json::{Value, json};

use crate::harness::{Answer, House};

/// A header of an answer.
fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn every_file_of_the_page_is_there_and_the_page_loads_nothing_else() {
    let house = House::new();
    let index = house.stranger().get("/").await;
    assert_eq!((index.status, header(&index, "content-type")), (StatusCode::OK, "text/html; charset=utf-8"));
    let mut wanted: Vec<String> = Vec::new();
    let mut read = vec![String::from_utf8(index.bytes.to_vec()).unwrap()];
    while let Some(text) = read.pop() {
        let named = text.split(['"', '\'']).filter_map(|part| {
            let module = part.strip_prefix("./").filter(|name| name.ends_with(".js"));
            part.strip_prefix("/page/").or(module).filter(|name| name.contains('.'))
        });
        for name in named.map(str::to_owned).collect::<Vec<_>>() {
            if !wanted.contains(&name) {
                let file = house.stranger().get(&format!("/page/{name}")).await;
                assert_eq!(file.status, StatusCode::OK, "{name}");
                read.push(String::from_utf8(file.bytes.to_vec()).unwrap());
                wanted.push(name);
            }
        }
        let elsewhere =
            text.split(['"', '\'', '(']).find(|part| part.starts_with("http") && part.contains("//"));
        assert!(elsewhere.is_none_or(|url| url.starts_with("http://www.w3.org/")), "{elsewhere:?}");
    }
    wanted.sort();
    assert!(wanted.len() >= 10, "{wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn the_policy_allows_nothing_inline_and_nothing_from_elsewhere() {
    let house = House::new();
    for path in ["/", "/page/app.js", "/docs"] {
        let page = house.stranger().get(path).await;
        let policy = header(&page, "content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"),
            "{path}: {policy}"
        );
        for loose in ["unsafe", "*", "http", "data:"] {
            assert!(!policy.contains(loose), "{path}: {policy}");
        }
        let html = String::from_utf8(page.bytes.to_vec()).unwrap();
        assert!(
            !html.contains("<style") && !html.contains(" onclick=") && !html.contains("<script>"),
            "{path}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_the_browser_has_is_not_sent_again() {
    let house = House::new();
    let first = house.stranger().get("/page/style.css").await;
    assert_eq!(header(&first, "cache-control"), "no-cache");
    let tag = header(&first, "etag").to_owned();
    let known = house.stranger().and("if-none-match", &tag);
    for (name, status) in [("style.css", StatusCode::NOT_MODIFIED), ("app.js", StatusCode::OK)] {
        assert_eq!(known.get(&format!("/page/{name}")).await.status, status, "{name}");
    }
    house.stranger().get("/page/Cargo.toml").await.refused(404, "not_found");
}

/// The page of a server with made-up users signs in by itself. A page of another origin must not get their tokens, and
/// neither must one whose host name was made to mean this machine.
#[tokio::test(start_paused = true)]
async fn tokens_are_for_the_own_page_on_this_machine() {
    let house = House::with(|config| {
        config.dev = Some(Dev::new().unwrap().signer);
        config.cors_origins = vec!["*".into()];
    });
    let asks = async |host: &str, origin: Option<&str>| {
        let mut user = house.stranger().and("host", host);
        if let Some(origin) = origin {
            user = user.and("origin", origin);
        }
        let answer = user.get("/page/sign-in").await.ok();
        let tokens = answer["users"].as_array().unwrap().len();
        (answer["by"].as_str().unwrap().to_owned(), tokens)
    };
    let given = ("user".to_owned(), 2);
    assert_eq!(asks("127.0.0.1:7420", None).await, given);
    assert_eq!(asks("localhost:7420", Some("http://localhost:7420")).await, given);
    let refused = ("token".to_owned(), 0);
    assert_eq!(asks("127.0.0.1:7420", Some("https://elsewhere.example")).await, refused);
    assert_eq!(asks("127.0.0.1:7420", Some("null")).await, refused);
    assert_eq!(asks("rebound.example:7420", None).await, refused);
    let real = House::new().stranger().and("host", "localhost").get("/page/sign-in").await.ok();
    assert_eq!((&real["by"], &real["users"]), (&json!("token"), &json!([])));
}

#[tokio::test(start_paused = true)]
async fn the_demo_is_for_made_up_users_and_says_how_it_is_built_until_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::with(|config| {
        config.dev = Some(Dev::new().unwrap().signer);
        config.demo_folder = Some(folder.path().into());
    });
    let demo = async |path: &str| house.stranger().get(path).await;
    let missing = demo("/demo").await;
    assert_eq!((missing.status, header(&missing, "cache-control")), (StatusCode::OK, "no-store"));
    assert!(String::from_utf8(missing.bytes.to_vec()).unwrap().contains("cargo xtask web"));
    demo("/demo/demo.js").await.refused(404, "not_found");

    std::fs::write(folder.path().join("index.html"), "<!doctype html>").unwrap();
    std::fs::create_dir(folder.path().join("leasehold")).unwrap();
    std::fs::write(folder.path().join("leasehold/a.wasm"), "wasm").unwrap();
    for (path, kind) in
        [("/demo", "text/html; charset=utf-8"), ("/demo/leasehold/a.wasm", "application/wasm")]
    {
        let page = demo(path).await;
        assert_eq!((page.status, header(&page, "content-type")), (StatusCode::OK, kind));
        let policy = header(&page, "content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self';"),
            "{policy}"
        );
        assert!(!policy.replace("wasm-unsafe-eval", "").contains("unsafe"), "{policy}");
        let known = house.stranger().and("if-none-match", header(&page, "etag"));
        assert_eq!(known.get(path).await.status, StatusCode::NOT_MODIFIED);
    }
    let real = House::with(|config| config.demo_folder = Some(folder.path().into()));
    real.stranger().get("/demo").await.refused(404, "not_found");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_jobs_only_shows_its_api() {
    let index = House::with_jobs_only().stranger().get("/").await;
    assert_eq!((index.status, header(&index, "location")), (StatusCode::TEMPORARY_REDIRECT, "/docs"));
}

#[tokio::test(start_paused = true)]
async fn a_caller_learns_who_it_is_and_what_it_may_do() {
    let house = House::new();
    let me = house.user_with("rea", json!({ "plans.*": "read", "plans.mine": "lock", "own": "force" }));
    assert_eq!(me.get("/api/me").await.ok()["id"], "rea");
    house.stranger().get("/api/me").await.refused(401, "unauthenticated");
    for (room, may) in [("plans.a", "read"), ("plans.mine", "lock"), ("own", "force")] {
        house.user("anna").post(&format!("/api/documents/{room}/lock"), Value::Null).await.ok();
        assert_eq!(me.get(&format!("/api/documents/{room}/lock")).await.ok()["may"], may, "{room}");
    }
    let listed = me.get("/api/documents").await.ok();
    let levels: Vec<_> = listed["documents"].as_array().unwrap().iter().map(|state| &state["may"]).collect();
    assert_eq!(levels, ["force", "read", "lock"]);
}

/// Events named the user who asks for, takes or ends a lock by the subject of the token alone.
#[tokio::test(start_paused = true)]
async fn events_name_both_people() {
    let house = House::new();
    let named = |id: &str, name: &str| {
        house.user_with_claims(id, json!({ "name": name, "documents": { "*": "force" } }))
    };
    let (anna, ben, cleo) = (named("a", "Anna"), named("b", "Ben"), named("c", "Cleo"));
    let mut events = anna.listen("/api/events").await;
    assert_eq!(events.next().await.unwrap().event, "snapshot");
    let lock = "/api/documents/minutes/lock";
    let fence = anna.post(lock, Value::Null).await.ok()["fence"].clone();
    ben.post(&format!("{lock}/request"), json!({ "fence": fence })).await.ok();
    let taken =
        cleo.post(&format!("{lock}/take-over"), json!({ "fence": fence, "reason": "due" })).await.ok();
    ben.post(&format!("{lock}/force-release"), json!({ "fence": taken["fence"], "reason": "no" })).await.ok();
    let mut told = Vec::new();
    while told.last().is_none_or(|last: &String| last != "DocumentUnlocked Cleo Ben") {
        let heard = tokio::time::timeout(Duration::from_secs(60), events.next()).await;
        let data = heard.unwrap_or_else(|_| panic!("{told:?}")).unwrap().data;
        let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
        told.push(format!(
            "{} {} {}",
            text("event"),
            data["holder"]["name"].as_str().unwrap(),
            text("by_name")
        ));
    }
    let expected = [
        "DocumentLocked Anna ",
        "HandoverRequested Anna Ben",
        "DocumentUnlocked Anna Cleo",
        "DocumentLocked Cleo ",
        "DocumentUnlocked Cleo Ben",
    ];
    assert_eq!(told, expected);
}
