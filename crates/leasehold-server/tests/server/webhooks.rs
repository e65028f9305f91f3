//! Webhooks, received by a real server on this machine.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hmac::{KeyInit, Mac};
use leasehold_server::webhooks::WebhookSettings;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::harness::House;

const SECRET: &[u8] = b"another secret of thirty-two bytes";

/// Longer than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

type Message = (HeaderMap, Bytes);

/// Answers with these statuses first, and then with success; hangs if it has nothing to answer with.
struct Receiver {
    url: String,
    messages: mpsc::UnboundedReceiver<Message>,
}

#[derive(Clone)]
struct Shared {
    statuses: Arc<Mutex<VecDeque<u16>>>,
    hangs: bool,
    messages: mpsc::UnboundedSender<Message>,
}

impl Receiver {
    async fn start(statuses: &[u16], hangs: bool) -> Self {
        let (sender, messages) = mpsc::unbounded_channel();
        let statuses = Arc::new(Mutex::new(statuses.iter().copied().collect()));
        let shared = Shared { statuses, hangs, messages: sender };
        let router = Router::new().route("/hook", post(receive)).with_state(shared);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, messages }
    }

    async fn next(&mut self) -> Message {
        tokio::time::timeout(DEADLINE, self.messages.recv()).await.unwrap().unwrap()
    }
}

async fn receive(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> StatusCode {
    shared.messages.send((headers, body)).unwrap();
    if shared.hangs {
        std::future::pending::<()>().await;
    }
    let status = shared.statuses.lock().unwrap().pop_front();
    StatusCode::from_u16(status.unwrap_or(204)).unwrap()
}

async fn house(receiver: &Receiver) -> House {
    let house = House::with(|config| {
        config.webhook = Some(WebhookSettings { url: receiver.url.clone(), secret: SECRET.to_vec() });
    });
    // Webhooks are of what happens from now on: they must know where that is.
    tokio::time::timeout(DEADLINE, house.begun()).await.unwrap();
    house
}

/// Anna locks a document, and Ben takes it over. Returns her lease id.
async fn take_over(house: &House, room: &str) -> String {
    let lock = format!("/api/documents/{room}/lock");
    let grant = house.user("anna").post(&lock, Value::Null).await.ok();
    let body = json!({ "fence": grant["fence"], "reason": "on leave" });
    house.user("ben").post(&format!("{lock}/take-over"), body).await.ok();
    grant["lease_id"].as_str().unwrap().to_owned()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

fn signed(timestamp: &str, body: &[u8]) -> String {
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(SECRET).unwrap();
    mac.update(format!("{timestamp}.").as_bytes());
    mac.update(body);
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v1={hex}")
}

#[tokio::test]
async fn a_take_over_is_posted_signed_and_without_lease_ids() {
    let mut receiver = Receiver::start(&[], false).await;
    let house = house(&receiver).await;
    let lease_id = take_over(&house, "minutes").await;
    let (headers, body) = receiver.next().await;
    let message: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(text(&headers, "leasehold-event"), "taken_over");
    assert_eq!(text(&headers, "content-type"), "application/json");
    assert_eq!(text(&headers, "leasehold-signature"), signed(text(&headers, "leasehold-timestamp"), &body));
    let told = ["action", "roomId", "holder", "by", "reason"].map(|name| message[name].as_str().unwrap());
    assert_eq!(told, ["taken_over", "minutes", "anna", "ben", "on leave"]);
    assert!(!String::from_utf8_lossy(&body).contains(&lease_id));
    // And a forced release.
    let state = house.user("anna").get("/api/documents/minutes/lock").await.ok();
    let ended = json!({ "fence": state["fence"], "reason": "closed" });
    house.user("anna").post("/api/documents/minutes/lock/force-release", ended).await;
    let (headers, _) = receiver.next().await;
    assert_eq!(text(&headers, "leasehold-event"), "force_released");
    house.end().await;
}

#[tokio::test]
async fn a_message_that_did_not_arrive_is_sent_again_under_the_same_number() {
    let mut receiver = Receiver::start(&[503, 429], false).await;
    let house = house(&receiver).await;
    take_over(&house, "minutes").await;
    let first = receiver.next().await.0;
    let (again, last) = (receiver.next().await.0, receiver.next().await.0);
    let number = text(&first, "leasehold-delivery");
    assert_eq!([text(&again, "leasehold-delivery"), text(&last, "leasehold-delivery")], [number; 2]);
    wait_for(&house, "leasehold_webhooks_total{result=\"sent\"} 1").await;
    house.end().await;
}

#[tokio::test]
async fn a_message_that_is_refused_is_given_up_and_the_next_one_is_sent() {
    let mut receiver = Receiver::start(&[403], false).await;
    let house = house(&receiver).await;
    take_over(&house, "one").await;
    take_over(&house, "two").await;
    receiver.next().await;
    let (_, body) = receiver.next().await;
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["roomId"], "two");
    wait_for(&house, "leasehold_webhooks_total{result=\"failed\"} 1").await;
    house.end().await;
}

/// The receiver has the first message and does not answer: calls go on all the same.
#[tokio::test]
async fn no_call_waits_for_a_receiver() {
    let mut receiver = Receiver::start(&[], true).await;
    let house = house(&receiver).await;
    take_over(&house, "one").await;
    receiver.next().await;
    for room in ["two", "three", "four"] {
        take_over(&house, room).await;
    }
    assert!(receiver.messages.try_recv().is_err(), "one message after the other");
    house.end().await;
}

async fn wait_for(house: &House, line: &str) {
    let look = async {
        loop {
            let metrics = house.stranger().get("/metrics").await.bytes;
            if String::from_utf8_lossy(&metrics).lines().any(|known| known == line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, look).await.unwrap_or_else(|_| panic!("{line}"));
}
