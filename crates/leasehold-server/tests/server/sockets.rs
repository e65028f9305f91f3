//! The WebSocket door: what a page with pusher-js sees, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use leasehold_store::Postgres;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::harness::{House, pass, token};
use crate::postgres_server;
use crate::socket_page::{APP_ID, KEY, Next, next, settings, signature};
use crate::streams::wall_clock_of_today;

const LOCK: &str = "/api/documents/minutes/lock";
const PRIVATE: &str = "private-document.minutes";
const PRESENCE: &str = "presence-document.minutes";
const CACHE: &str = "private-cache-document.minutes";

#[tokio::test(start_paused = true)]
async fn a_page_hears_of_every_lock_with_the_number_that_sse_and_http_have() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut stream = ben.listen("/api/documents/minutes/events?last_event_id=0").await;
    let mut page = house.watching(&ben, PRIVATE).await;
    let grant = anna.post(LOCK, Value::Null).await.ok();
    let got = page.got().await;
    assert_eq!(got.message["event"], r"App\Events\DocumentLocked");
    assert_eq!(got.channel.as_deref(), Some(PRIVATE));
    let expected = json!({
        "event": "DocumentLocked", "roomId": "minutes", "seq": 1, "fence": grant["fence"], "expires_in_ms": 30_000,
        "holder": { "id": "user-a", "name": "user-a" },
    });
    assert_eq!((&got.data, &stream.next().await.unwrap().data), (&expected, &expected));
    assert_eq!(ben.get(LOCK).await.ok()["seq"], 1);
    for _ in 0..3 {
        pass(10).await;
        anna.put(LOCK).await.ok();
    }
    assert!(page.is_quiet().await, "a heartbeat announces nothing");
    anna.delete(LOCK).await.ok();
    let got = page.got().await;
    assert_eq!((got.event.as_str(), &got.data["reason"]), ("DocumentUnlocked", &json!("released")));
    assert_eq!(got.data, stream.next().await.unwrap().data);
    anna.post("/api/documents/other/lock", Value::Null).await.ok();
    assert!(page.is_quiet().await, "another document is none of its business");
}

#[tokio::test(start_paused = true)]
async fn the_names_of_events_can_be_bare() {
    let house = House::with(|config| {
        config.pusher = Some(leasehold_server::PusherSettings { namespace: String::new(), ..settings() });
    });
    let anna = house.user("user-a");
    let mut page = house.watching(&anna, PRIVATE).await;
    anna.post(LOCK, Value::Null).await.ok();
    assert_eq!(page.got().await.message["event"], "DocumentLocked");
}

#[tokio::test(start_paused = true)]
async fn every_page_gets_every_event_unless_the_sender_is_to_be_left_out() {
    for skip_sender in [false, true] {
        let house = House::with(|config| {
            config.pusher = Some(leasehold_server::PusherSettings { skip_sender, ..settings() });
        });
        let (anna, ben) = (house.user("user-a"), house.user("user-b"));
        let (mut annas, mut bens) =
            (house.watching(&anna, PRIVATE).await, house.watching(&ben, PRIVATE).await);
        let calling = anna.and("x-socket-id", &annas.socket_id);
        calling.post(LOCK, Value::Null).await.ok();
        calling.delete(LOCK).await.ok();
        for expected in ["DocumentLocked", "DocumentUnlocked"] {
            assert_eq!(bens.got().await.event, expected);
            if !skip_sender {
                assert_eq!(annas.got().await.event, expected);
            }
        }
        // A call that names no page, of the same person.
        anna.post(LOCK, Value::Null).await.ok();
        let got = annas.got().await;
        assert_eq!((got.event.as_str(), &got.data["seq"]), ("DocumentLocked", &json!(3)));
    }
}

#[tokio::test(start_paused = true)]
async fn leasehold_signs_what_the_token_allows() {
    let house = House::new();
    let reader = house.user_with("reader", json!({ "minutes": "read" }));
    let page = house.page().await;
    for (channel, status) in [
        (PRIVATE, 200),
        (PRESENCE, 200),
        (CACHE, 200),
        ("private-document.secret", 404),
        ("presence-document.secret", 404),
        ("document.minutes", 403),
        ("private-news", 403),
        ("private-document..", 403),
        ("private-document.a%2Fb", 400),
    ] {
        let answer = page.authorize(&reader, channel).await;
        assert_eq!(answer.status, status, "{channel}: {:?}", answer.bytes);
    }
    assert_eq!(page.authorize(&house.stranger(), PRIVATE).await.status, 401);
    let form = |body: &str| {
        let reader = reader.and("content-type", "application/x-www-form-urlencoded");
        let body = body.to_owned();
        async move { reader.call(Method::POST, "/pusher/auth", Some(body)).await.status.as_u16() }
    };
    assert_eq!(form(&format!("socket_id=1.2&channel_name={PRIVATE}")).await, 200);
    for bad in ["", "socket_id=1.2", &format!("socket_id=1.2:x&channel_name={PRIVATE}"), "é=%"] {
        assert_eq!(form(bad).await, 400, "{bad}");
    }
    let as_json = json!({ "socket_id": "1.2", "channel_name": PRIVATE });
    reader.post("/broadcasting/auth", as_json).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_signature_is_for_one_socket_and_one_channel() {
    let house = House::new();
    let anna = house.user("user-a");
    let (mut page, other) = (house.page().await, house.page().await);
    let foreign = other.authorize(&anna, PRIVATE).await.ok();
    let elsewhere = page.authorize(&anna, "private-document.other").await.ok();
    for auth in [foreign, elsewhere, json!({ "auth": "app-key:00" }), json!({})] {
        page.subscribe_with(PRIVATE, &auth).await;
        let refused = page.got().await;
        assert_eq!(
            (refused.event.as_str(), refused.channel.as_deref()),
            ("pusher:subscription_error", Some(PRIVATE))
        );
        assert_eq!(
            (&refused.message["data"]["type"], &refused.data["status"]),
            (&json!("AuthError"), &json!(401))
        );
    }
    anna.post(LOCK, Value::Null).await.ok();
    assert!(page.is_quiet().await);
    page.subscribe(&anna, PRIVATE).await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_with_its_token() {
    let house = House::with(|config| config.wall_clock = wall_clock_of_today());
    let exp = leasehold_store::clock::unix_millis() / 1_000 + 100;
    let claims = json!({ "sub": "user-b", "documents": { "*": "read" }, "exp": exp });
    let ben = house.stranger().and("authorization", &format!("Bearer {}", token(claims)));
    let start = Instant::now();
    let mut page = house.watching(&ben, PRIVATE).await;
    page.subscribe(&ben, PRESENCE).await;
    for seconds in [50, 40] {
        pass(seconds).await;
        page.send(json!({ "event": "pusher:ping" })).await;
        assert_eq!(page.got().await.event, "pusher:pong");
    }
    let end = page.got().await;
    assert_eq!((end.event.as_str(), &end.data["status"]), ("pusher:subscription_error", &json!(401)));
    assert!((95..=101).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(page.closed().await, 4101, "it comes back, and asks with the token that it has by then");
    let page = house.page().await;
    assert_eq!(page.authorize(&ben, PRIVATE).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn a_cache_channel_begins_with_the_current_state() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut page = house.watching(&ben, CACHE).await;
    assert_eq!(page.got().await.event, "pusher:cache_miss", "nothing has ever happened to it");
    anna.post(LOCK, Value::Null).await.ok();
    assert_eq!(page.got().await.event, "DocumentLocked");
    pass(12).await;
    let mut late = house.watching(&ben, CACHE).await;
    let state = late.got().await;
    assert_eq!((state.event.as_str(), state.channel.as_deref()), ("DocumentLocked", Some(CACHE)));
    assert_eq!((&state.data["seq"], &state.data["expires_in_ms"]), (&json!(1), &json!(18_000)));
    assert_eq!(state.data["holder"]["id"], "user-a");
    anna.delete(LOCK).await.ok();
    for page in [&mut page, &mut late] {
        assert_eq!((page.got().await.event.as_str(), page.is_quiet().await), ("DocumentUnlocked", true));
    }
    let mut later = house.watching(&ben, CACHE).await;
    let state = later.got().await;
    assert_eq!((state.event.as_str(), &state.data["seq"]), ("DocumentUnlocked", &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn people_come_with_their_first_page_and_go_with_their_last() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut first = house.page().await;
    let here = first.subscribe(&anna, PRESENCE).await;
    assert_eq!(here["presence"]["hash"], json!({ "user-a": { "name": "user-a" } }));
    let mut bens = [house.page().await, house.page().await];
    for (page, tab) in bens.iter_mut().zip(1..) {
        let here = page.subscribe(&ben, PRESENCE).await;
        assert_eq!((&here["presence"]["count"], tab), (&json!(2), tab));
    }
    let added = first.got().await;
    assert_eq!(
        (added.event.as_str(), &added.data["user_id"]),
        ("pusher_internal:member_added", &json!("user-b"))
    );
    assert!(first.is_quiet().await, "the second page of the same person is no news");
    let presence = "/api/documents/minutes/presence";
    let person = |id: &str| json!({ "id": id, "name": id });
    let looking = json!({ "editing": [], "asking": [], "looking": [person("user-a"), person("user-b")] });
    assert_eq!(anna.get(presence).await.ok(), looking);
    let fence = anna.post(LOCK, Value::Null).await.ok()["fence"].clone();
    ben.post(&format!("{LOCK}/request"), json!({ "fence": fence })).await.ok();
    let asked = json!({ "editing": [person("user-a")], "asking": [person("user-b")], "looking": [] });
    assert_eq!(ben.get(presence).await.ok(), asked);
    house.user_with("user-c", json!({ "other": "read" })).get(presence).await.refused(404, "lock_not_found");
    for expected in ["DocumentLocked", "HandoverRequested"] {
        assert_eq!(first.got().await.event, expected);
    }
    let [one, mut two] = bens;
    drop(one);
    assert!(first.is_quiet().await);
    two.send(json!({ "event": "pusher:unsubscribe", "data": { "channel": PRESENCE } })).await;
    let removed = first.got().await;
    assert_eq!(
        (removed.event.as_str(), removed.data),
        ("pusher_internal:member_removed", json!({ "user_id": "user-b" }))
    );
}

/// A lost socket alone never shortens a lease: the holder may still be alive, and believe in it.
#[tokio::test(start_paused = true)]
async fn a_holder_whose_socket_is_lost_keeps_the_lock_until_it_expires() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut bens = house.watching(&ben, PRESENCE).await;
    let annas = house.watching(&anna, PRESENCE).await;
    assert_eq!(bens.got().await.event, "pusher_internal:member_added");
    let start = Instant::now();
    anna.post(LOCK, Value::Null).await.ok();
    assert_eq!(bens.next_at(start).await, ("DocumentLocked".into(), 0));
    drop(annas);
    assert_eq!(bens.next_at(start).await, ("pusher_internal:member_removed".into(), 0));
    assert_eq!(bens.next_at(start).await, ("DocumentUnlocked expired".into(), 30));
}

#[tokio::test(start_paused = true)]
async fn pages_talk_to_each_other_on_private_channels() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let (mut annas, mut bens) = (house.watching(&anna, PRESENCE).await, house.watching(&ben, PRESENCE).await);
    annas.got().await;
    let typing =
        json!({ "event": "client-typing", "channel": PRESENCE, "data": { "at": 7 }, "user_id": "user-b" });
    annas.send(typing.clone()).await;
    let heard = bens.got().await.message;
    let expected =
        json!({ "event": "client-typing", "channel": PRESENCE, "data": { "at": 7 }, "user_id": "user-a" });
    assert_eq!(heard, expected, "the server says whose it is");
    assert!(annas.is_quiet().await, "not to itself");
    let mut outside = house.page().await;
    outside.send(typing).await;
    let refused = outside.got().await;
    assert_eq!((refused.event.as_str(), &refused.data["code"]), ("pusher:error", &json!(4301)));
    assert!(bens.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_silent_page_is_pinged_and_then_closed() {
    let house = House::new();
    let mut page = house.page().await;
    let start = Instant::now();
    assert_eq!(page.next_at(start).await, ("pusher:ping".into(), 60));
    page.send(json!({ "event": "pusher:pong", "data": {} })).await;
    assert_eq!(page.next_at(start).await, ("pusher:ping".into(), 120));
    assert_eq!(page.got().await.data["code"], 4201);
    assert_eq!((page.closed().await, start.elapsed().as_secs()), (4201, 150));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_closes_all_pages_but_not_in_the_same_moment() {
    let house = House::new();
    let mut pages = Vec::new();
    for _ in 0..20 {
        pages.push(house.page().await);
    }
    let start = Instant::now();
    let closed = tokio::spawn(futures_util::future::join_all(pages.into_iter().map(|mut page| async move {
        let code = page.closed().await;
        (code, start.elapsed())
    })));
    house.end().await;
    let closed = closed.await.unwrap();
    assert!(closed.iter().all(|(code, _)| *code == 4200), "{closed:?}");
    let last = closed.iter().map(|(_, at)| *at).max().unwrap();
    assert!((Duration::from_millis(1_500)..Duration::from_secs(4)).contains(&last), "{last:?}");
    let early = closed.iter().filter(|(_, at)| *at < Duration::from_secs(1)).count();
    assert!((8..=12).contains(&early), "half of them in half of the time: {early}");
}

#[tokio::test(start_paused = true)]
async fn the_close_code_says_whether_to_come_back() {
    let closed_off = House::with(|config| config.pusher = None);
    let strict = House::with(|config| {
        let mut pusher = settings();
        pusher.allowed_origins = vec!["https://app.example".into()];
        pusher.sockets = 1;
        config.pusher = Some(pusher);
    });
    let _only = strict.page().await;
    let app = format!("/app/{KEY}?protocol=7");
    let cases = [
        (&closed_off, app.as_str(), None, 4003),
        (&strict, "/app/another?protocol=7", None, 4001),
        (&strict, "/app/app-key?protocol=3", None, 4007),
        (&strict, "/app/app-key?protocol=x", None, 4007),
        (&strict, &app, Some("https://evil.example"), 4009),
        (&strict, &app, Some("https://app.example"), 4100),
        (&strict, &app, None, 4100),
    ];
    for (house, path, origin, code) in cases {
        let origin: Vec<_> = origin.map(|origin| ("origin", origin)).into_iter().collect();
        let mut socket = house.socket(path, &origin).await;
        assert!(matches!(next(&mut socket).await, Next::Got(got) if got.data["code"] == code), "{path}");
        assert!(matches!(next(&mut socket).await, Next::Closed(closed) if closed == code), "{path}");
    }
    let anna = closed_off.user("user-a");
    let body = json!({ "socket_id": "1.2", "channel_name": PRIVATE });
    anna.post("/broadcasting/auth", body).await.refused(404, "not_found");
    anna.get(&app).await.refused(400, "invalid");
}

/// What no client should send. Each is answered with the protocol's error and a close code, and nobody else notices.
#[tokio::test(start_paused = true)]
async fn a_client_that_breaks_the_protocol_is_closed_and_disturbs_nobody() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let mut watcher = house.watching(&ben, PRIVATE).await;
    let fragment = |opcode, bytes: &[u8], last| {
        Message::Frame(Frame::message(bytes.to_vec(), OpCode::Data(opcode), last))
    };
    let long = "x".repeat(11 * 1024);
    let parts: Vec<Message> = (0..12)
        .map(|at| fragment(if at == 0 { Data::Text } else { Data::Continue }, &[b'x'; 1024], false))
        .collect();
    let cases: Vec<(&str, Vec<Message>, u16)> = vec![
        ("no JSON", vec![Message::text("hello")], 4300),
        ("no event", vec![Message::text("{}")], 4300),
        ("an event of the server", vec![Message::text(r#"{"event":"pusher_internal:x"}"#)], 4300),
        ("binary", vec![Message::binary(vec![1, 2, 3])], 4300),
        ("too long", vec![Message::text(long)], 4300),
        ("too long in parts", parts, 4300),
        ("a continuation of nothing", vec![fragment(Data::Continue, b"x", true)], 4300),
        ("no UTF-8", vec![fragment(Data::Text, &[0xff, 0xfe], true)], 4300),
        ("a flood", vec![Message::text(r#"{"event":"pusher:pong"}"#); 400], 4301),
        ("a flood of pings", vec![Message::Ping(Vec::new().into()); 400], 4301),
    ];
    for (what, messages, code) in cases {
        let mut page = house.page().await;
        for message in messages {
            // Whoever is closed meanwhile cannot send the rest.
            if page.send_raw(message).await.is_err() {
                break;
            }
        }
        assert_eq!(page.closed().await, code, "{what}");
    }
    anna.post(LOCK, Value::Null).await.ok();
    assert_eq!(watcher.got().await.event, "DocumentLocked");
    drop(watcher);
    pass(2).await;
    assert_eq!(channels(&house).await, json!({}), "nothing is left of them");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_does_not_read_is_closed_and_delays_nobody() {
    let house = House::new();
    let (anna, ben) = (house.user("user-a"), house.user("user-b"));
    let (mut slow, mut quick) = (house.watching(&ben, PRIVATE).await, house.watching(&ben, PRIVATE).await);
    for _ in 0..200 {
        anna.post(LOCK, Value::Null).await.ok();
        anna.delete(LOCK).await.ok();
        for expected in ["DocumentLocked", "DocumentUnlocked"] {
            assert_eq!(quick.got().await.event, expected);
        }
    }
    pass(2).await;
    assert_eq!(channels(&house).await[PRIVATE]["subscription_count"], 1, "one of the two is left");
    assert!(matches!(slow.closed().await, 4100 | 1006));
}

/// The channels, as the web application sees them.
async fn channels(house: &House) -> Value {
    let answer = house.stranger().get(&signed(Method::GET, "/channels", "info=subscription_count", "")).await;
    answer.ok()["channels"].clone()
}

/// The address of a call of the web application, signed at noon.
fn signed(method: Method, path: &str, query: &str, body: &str) -> String {
    use md5::Digest;
    let path = format!("/apps/{APP_ID}{path}");
    let digest: String = md5::Md5::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut parameters = vec![
        format!("auth_key={KEY}"),
        format!("auth_timestamp={}", crate::harness::NOON / 1_000),
        "auth_version=1.0".to_owned(),
        format!("body_md5={digest}"),
    ];
    parameters.extend(query.split('&').filter(|part| !part.is_empty()).map(str::to_owned));
    parameters.sort();
    let query = parameters.join("&");
    let signature = signature(&format!("{method}\n{path}\n{query}"));
    format!("{path}?{query}&auth_signature={signature}")
}

async fn call_as_app(house: &House, path: &str, body: Value) -> crate::harness::Answer {
    let body = body.to_string();
    let address = signed(Method::POST, path, "", &body);
    house.stranger().call(Method::POST, &address, Some(body)).await
}

#[tokio::test(start_paused = true)]
async fn a_web_application_broadcasts_its_own_events() {
    let house = House::new();
    let (mut one, mut two) = (house.page().await, house.page().await);
    let data = r#"{"user_id":7,"user_info":{"name":"Anna"}}"#;
    for page in [&mut one, &mut two] {
        page.subscribe_by_app("private-orders.1", None).await;
    }
    one.subscribe_by_app("presence-orders", Some(data)).await;
    let event = |channels: Value, socket: Option<&str>| json!({ "name": r"App\Events\Shipped", "data": r#"{"order":1}"#, "channels": channels, "socket_id": socket });
    let answer = call_as_app(&house, "/events", event(json!(["private-orders.1"]), None)).await;
    assert_eq!(answer.ok(), json!({}));
    for page in [&mut one, &mut two] {
        let got = page.got().await;
        assert_eq!((got.event.as_str(), got.data), ("Shipped", json!({ "order": 1 })));
    }
    call_as_app(&house, "/events", event(json!(["private-orders.1"]), Some(&one.socket_id))).await.ok();
    assert_eq!((two.got().await.event.as_str(), one.is_quiet().await), ("Shipped", true));
    let batch = json!({ "batch": [
        { "name": "first", "channel": "private-orders.1", "data": "{}" },
        { "name": "second", "channel": "presence-orders", "data": "{}" },
    ] });
    assert_eq!(call_as_app(&house, "/batch_events", batch).await.ok(), json!({}));
    assert_eq!([one.got().await.event, one.got().await.event], ["first", "second"]);
    let get = async |path: &str, query: &str| {
        house.stranger().get(&signed(Method::GET, path, query, "")).await.ok()
    };
    let all = get("/channels", "").await;
    assert_eq!(all, json!({ "channels": { "presence-orders": {}, "private-orders.1": {} } }));
    let counted = get("/channels", "filter_by_prefix=presence-&info=user_count").await;
    assert_eq!(counted, json!({ "channels": { "presence-orders": { "user_count": 1 } } }));
    let one_channel = get("/channels/private-orders.1", "info=subscription_count").await;
    assert_eq!(one_channel, json!({ "occupied": true, "subscription_count": 2 }));
    assert_eq!(get("/channels/presence-orders/users", "").await, json!({ "users": [{ "id": "7" }] }));
    assert_eq!(house.stranger().get("/up").await.ok(), json!({ "health": "OK" }));
    call_as_app(&house, "/users/7/terminate_connections", json!({})).await.ok();
    assert_eq!(one.closed().await, 4009);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_the_web_application_is_signed_fresh_and_within_the_limits() {
    let house = House::new();
    let stranger = house.stranger();
    let good = signed(Method::GET, "/channels", "", "");
    stranger.get(&good).await.ok();
    for bad in [
        "/apps/docs/channels".to_owned(),
        good.replace("auth_signature=", "auth_signature=0"),
        good.replace("auth_key=app-key", "auth_key=other"),
        good.replace("/channels?", "/channels?filter_by_prefix=private-&"),
    ] {
        stranger.get(&bad).await.refused(401, "unauthenticated");
    }
    stranger.get(&good.replace("/apps/docs", "/apps/other")).await.refused(404, "not_found");
    let mut event = json!({ "name": "a", "data": "{}", "channels": ["private-a"] });
    call_as_app(&house, "/events", event.clone()).await.ok();
    event["channels"] = (0..101).map(|number| format!("private-{number}")).collect();
    call_as_app(&house, "/events", event.clone()).await.refused(400, "invalid");
    event["channels"] = json!(["a b"]);
    call_as_app(&house, "/events", event.clone()).await.refused(400, "invalid");
    event["channels"] = json!(["private-a"]);
    event["data"] = "x".repeat(11_000).into();
    call_as_app(&house, "/events", event).await.refused(413, "too_large");
    let many: Vec<Value> = vec![json!({ "name": "a", "data": "{}", "channel": "a" }); 11];
    call_as_app(&house, "/batch_events", json!({ "batch": many })).await.refused(400, "invalid");
    let large: Vec<Value> = vec![json!({ "name": "a", "data": "x".repeat(10_000), "channel": "a" }); 10];
    call_as_app(&house, "/batch_events", json!({ "batch": large })).await.ok();
    pass(601).await;
    stranger.get(&good).await.refused(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_two_servers_are_one_audience() {
    let Some(postgres) = postgres_server::server() else { return };
    let url = postgres.url(&postgres.create_database().await);
    let open = || House::on(Arc::new(Postgres::open(&url).unwrap()), |_| {});
    let (one, two) = (open(), open());
    let (anna, ben) = (one.user("user-a"), two.user("user-b"));
    let mut annas = one.watching(&anna, PRESENCE).await;
    let mut bens = two.page().await;
    let here = bens.subscribe(&ben, PRESENCE).await;
    let added = annas.got().await;
    assert_eq!(
        (added.event.as_str(), &added.data["user_id"]),
        ("pusher_internal:member_added", &json!("user-b"))
    );
    if here["presence"]["count"] == 1 {
        // The servers did not know each other yet.
        assert_eq!(bens.got().await.data["user_id"], "user-a");
    }
    let looking = two.user("user-c").get("/api/documents/minutes/presence").await.ok()["looking"].clone();
    assert_eq!(looking.as_array().unwrap().len(), 2, "{looking}");
    anna.post(LOCK, Value::Null).await.ok();
    assert_eq!([annas.got().await.event, bens.got().await.event], ["DocumentLocked", "DocumentLocked"]);
    annas.send(json!({ "event": "client-x", "channel": PRESENCE, "data": {} })).await;
    assert_eq!(bens.got().await.message["user_id"], "user-a");
    let event = json!({ "name": "Shipped", "data": "{}", "channels": [PRESENCE] });
    call_as_app(&one, "/events", event).await.ok();
    assert_eq!([annas.got().await.event, bens.got().await.event], ["Shipped", "Shipped"]);
    one.shut_down().await;
    let removed = bens.got().await;
    assert_eq!(
        (removed.event.as_str(), &removed.data["user_id"]),
        ("pusher_internal:member_removed", &json!("user-a"))
    );
    assert_eq!(annas.closed().await, 4200);
}
