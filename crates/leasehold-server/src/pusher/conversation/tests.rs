//! Every kind of message, and what follows from it.

use super::super::settings::PusherApp;
use super::*;

const START: u64 = 1_000_000_000;

struct Client {
    conversation: Conversation,
    settings: PusherSettings,
}

impl Client {
    fn new() -> Self {
        let app = PusherApp {
            app_id: "docs".into(),
            key: "app-key".into(),
            secret: "a secret of twenty bytes".into(),
        };
        let settings = PusherSettings { subscriptions: 3, ..PusherSettings::new(app) };
        let socket = SocketId::parse("1.2").unwrap();
        Self { conversation: Conversation::new(socket, &settings, Duration::ZERO), settings }
    }

    fn say(&mut self, at: f64, text: &str) -> Action {
        let since_start = Duration::from_secs_f64(at);
        let wall_millis = START + u64::try_from(since_start.as_millis()).unwrap();
        self.conversation.hear(text, &self.settings, Now { since_start, wall_millis })
    }

    fn subscribe(&mut self, at: f64, channel: &str, auth: &str, channel_data: Option<&str>) -> Action {
        let data = serde_json::json!({ "channel": channel, "auth": auth, "channel_data": channel_data });
        self.say(at, &serde_json::json!({ "event": "pusher:subscribe", "data": data }).to_string())
    }

    /// Signs a channel as the application, or as Leasehold until `expires_at`.
    fn sign(&self, channel: &str, channel_data: Option<&str>, expires_at: Option<u64>) -> String {
        let channel = ChannelName::parse(channel).unwrap();
        let what = Signed { socket: SocketId::parse("1.2").unwrap(), channel: &channel, channel_data };
        keys(&self.settings).sign(what, expires_at)
    }

    fn join(&mut self, at: f64, channel: &str, expires_at: Option<u64>) -> Action {
        let auth = self.sign(channel, None, expires_at);
        self.subscribe(at, channel, &auth, None)
    }

    fn tick(&mut self, at: f64) -> Action {
        self.conversation.tick(&self.settings, Duration::from_secs_f64(at))
    }
}

#[track_caller]
fn reply(action: Action) -> String {
    match action {
        Action::Reply(frame) => frame.to_string(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn closed(action: Action) -> u16 {
    match action {
        Action::Close { refusal, .. } => refusal.code,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn joined(action: &Action) -> Option<&str> {
    match action {
        Action::Join { member, .. } => member.as_ref().map(|member| member.user.as_ref()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_signature_opens_a_private_channel_and_nothing_else_does() {
    let mut client = Client::new();
    let channel = "private-document.42";
    let auth = client.sign(channel, None, None);
    let other = client.sign("private-document.43", None, None);
    for bad in ["", "app-key:", "app-key:00", &other, &auth[1..]] {
        let refused = reply(client.subscribe(0.0, channel, bad, None));
        assert!(refused.contains("pusher:subscription_error") && refused.contains("401"), "{refused}");
    }
    assert_eq!(joined(&client.subscribe(0.0, channel, &auth, None)), None);
}

#[test]
fn a_presence_channel_knows_the_user_that_was_signed() {
    let mut client = Client::new();
    let (channel, data) = ("presence-document.42", r#"{"user_id":7,"user_info":{"name":"Anna"}}"#);
    let auth = client.sign(channel, Some(data), None);
    let forged = data.replace('7', "8");
    assert!(reply(client.subscribe(0.0, channel, &auth, Some(&forged))).contains("does not fit"));
    assert!(reply(client.subscribe(0.0, channel, &auth, None)).contains("channel_data is missing"));
    assert_eq!(joined(&client.subscribe(0.0, channel, &auth, Some(data))), Some("7"));
    let nobody = r#"{"user_id":null}"#;
    let auth = client.sign(channel, Some(nobody), None);
    assert!(reply(client.subscribe(0.0, channel, &auth, Some(nobody))).contains("user_id"));
}

#[test]
fn public_channels_are_closed_unless_they_are_opened() {
    let mut client = Client::new();
    assert!(reply(client.subscribe(0.0, "news", "", None)).contains("403"));
    client.settings.public_channels = true;
    assert_eq!(joined(&client.subscribe(0.0, "news", "", None)), None);
    assert!(reply(client.subscribe(0.0, "document.42", "", None)).contains("403"));
    client.settings.public_documents = true;
    assert_eq!(joined(&client.subscribe(0.0, "document.42", "", None)), None);
}

#[test]
fn a_connection_has_so_many_subscriptions_and_one_may_be_repeated() {
    let mut client = Client::new();
    for name in ["private-a", "private-b", "private-c", "private-a"] {
        assert_eq!(joined(&client.join(0.0, name, None)), None);
    }
    assert!(reply(client.join(0.0, "private-d", None)).contains("LimitReached"));
    let leave = r#"{"event":"pusher:unsubscribe","data":{"channel":"private-b"}}"#;
    assert!(matches!(client.say(0.0, leave), Action::Leave(channel) if channel.as_str() == "private-b"));
    assert!(matches!(client.say(0.0, leave), Action::Nothing), "it is none any more");
    assert_eq!(joined(&client.join(0.0, "private-d", None)), None);
}

#[test]
fn a_subscription_ends_with_the_token_it_was_signed_for() {
    let mut client = Client::new();
    let end = START / 1_000 + 20;
    assert_eq!(joined(&client.join(5.0, "private-a", Some(end))), None);
    assert_eq!(joined(&client.join(5.0, "private-b", None)), None);
    assert_eq!(client.conversation.deadline(&client.settings), Duration::from_secs(20));
    assert!(matches!(client.tick(19.9), Action::Nothing));
    let Action::Close { before: Some(before), refusal } = client.tick(20.0) else { panic!() };
    assert!(before.contains("private-a") && before.contains("the token has expired"), "{before}");
    assert_eq!(refusal.code, 4101);
    assert!(reply(client.join(20.0, "private-c", Some(end))).contains("the token has expired"));
}

#[test]
fn a_repeated_subscription_lasts_as_long_as_the_newer_token() {
    let mut client = Client::new();
    let end = START / 1_000 + 20;
    client.join(5.0, "private-a", Some(end));
    client.join(6.0, "private-a", Some(end + 10));
    assert!(matches!(client.tick(20.0), Action::Nothing));
    assert_eq!(closed(client.tick(30.0)), 4101);
}

#[test]
fn a_silent_client_is_pinged_and_then_given_up() {
    let mut client = Client::new();
    assert_eq!(client.conversation.deadline(&client.settings), Duration::from_secs(60));
    assert!(reply(client.tick(60.0)).contains("pusher:ping"));
    assert!(matches!(client.tick(89.0), Action::Nothing));
    assert!(matches!(client.say(89.0, r#"{"event":"pusher:pong","data":{}}"#), Action::Nothing));
    assert_eq!(client.conversation.deadline(&client.settings), Duration::from_secs(149));
    assert!(reply(client.tick(149.0)).contains("pusher:ping"));
    assert_eq!(closed(client.tick(179.0)), 4201);
}

#[test]
fn a_ping_is_answered() {
    let mut client = Client::new();
    let pong = r#"{"event":"pusher:pong","data":"{}"}"#;
    assert_eq!(reply(client.say(0.0, r#"{"event":"pusher:ping","data":{}}"#)), pong);
}

#[test]
fn client_events_come_from_members_of_private_channels_with_their_user() {
    let mut client = Client::new();
    client.settings.public_channels = true;
    let event =
        |channel: &str, name: &str| format!(r#"{{"event":"{name}","channel":"{channel}","data":{{"x":1}}}}"#);
    assert!(reply(client.say(0.0, &event("private-a", "client-x"))).contains("4301"), "no member");
    client.subscribe(0.0, "news", "", None);
    assert!(reply(client.say(0.0, &event("news", "client-x"))).contains("4301"), "public");
    let data = r#"{"user_id":"anna"}"#;
    let auth = client.sign("presence-a", Some(data), None);
    client.subscribe(0.0, "presence-a", &auth, Some(data));
    let said = client.say(0.0, &event("presence-a", "client-x"));
    assert!(matches!(said, Action::Say { frame, .. } if frame.contains(r#""user_id":"anna""#)));
    let long = format!("client-{}", "x".repeat(LONGEST_EVENT));
    assert!(reply(client.say(0.0, &event("presence-a", &long))).contains("4301"));
    for _ in 0..9 {
        assert!(matches!(client.say(0.5, &event("presence-a", "client-x")), Action::Say { .. }));
    }
    for _ in 0..5 {
        client.say(0.5, &event("presence-a", "client-x"));
    }
    assert!(reply(client.say(0.5, &event("presence-a", "client-x"))).contains("at most 10 a second"));
    assert!(matches!(client.say(1.5, &event("presence-a", "client-x")), Action::Say { .. }));
}

#[test]
fn a_flood_and_what_is_no_message_close_the_connection() {
    let mut client = Client::new();
    assert_eq!(closed(client.say(0.0, "hello")), 4300);
    let ping = r#"{"event":"pusher:ping"}"#;
    let answered = (0..1_000).take_while(|_| matches!(client.say(1.0, ping), Action::Reply(_))).count();
    assert_eq!(answered, 300, "six seconds' worth of 50 a second");
    assert_eq!(closed(client.say(1.0, ping)), 4301);
    assert_eq!(closed(client.conversation.hear_control(Duration::from_secs(1))), 4301);
    assert!(matches!(client.say(2.0, ping), Action::Reply(_)));
}

#[test]
fn a_user_signs_in_with_the_signature_of_the_application() {
    let mut client = Client::new();
    let sign_in = |auth: &str| {
        let data = serde_json::json!({ "auth": auth, "user_data": r#"{"id":"anna"}"# });
        serde_json::json!({ "event": "pusher:signin", "data": data }).to_string()
    };
    // HMAC-SHA256 of `1.2::user::{"id":"anna"}`, by OpenSSL.
    let auth = "app-key:51638e27d196f45f093d4c06dfc27852e6af9f5996b6416a455d9bf13570af96";
    assert_eq!(closed(client.say(0.0, &sign_in("app-key:00"))), 4009);
    assert!(matches!(client.say(0.0, &sign_in(auth)), Action::SignIn { user, .. } if user == "anna"));
}
