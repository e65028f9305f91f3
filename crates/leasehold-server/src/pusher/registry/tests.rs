//! Who gets what, with queues that nobody has to read.

use super::*;

fn id(number: u32) -> SocketId {
    SocketId::parse(&format!("{number}.1")).unwrap()
}

fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).unwrap()
}

fn room() -> RoomId {
    RoomId::parse("a").unwrap()
}

fn frame(text: &str) -> Frame {
    text.to_owned().into()
}

fn member(user: &str) -> NewMember {
    let info = RawValue::from_string(format!(r#"{{"name":"{user}"}}"#)).unwrap();
    NewMember { user: user.into(), info }
}

struct Sockets {
    registry: Registry,
    queues: HashMap<u32, (Arc<Line>, mpsc::Receiver<Frame>)>,
}

impl Sockets {
    fn new(count: u32) -> Self {
        let mut sockets = Self { registry: Registry::default(), queues: HashMap::new() };
        for number in 1..=count {
            let (line, frames) = Line::new();
            assert!(sockets.registry.connect(id(number), line.clone()));
            sockets.queues.insert(number, (line, frames));
        }
        sockets
    }

    fn join(&mut self, number: u32, name: &str, user: Option<&str>) -> Moved {
        self.registry.join(id(number), &channel(name), user.map(member).as_ref()).unwrap()
    }

    /// What a socket got since it was last asked: the events' names, or whole frames that are no JSON.
    fn got(&mut self, number: u32) -> Vec<String> {
        let (_, frames) = self.queues.get_mut(&number).unwrap();
        let frames = std::iter::from_fn(|| frames.try_recv().ok());
        let name = |frame: Frame| match serde_json::from_str::<serde_json::Value>(&frame) {
            Ok(value) => value["event"].as_str().unwrap().rsplit(':').next().unwrap().to_owned(),
            Err(_) => frame.to_string(),
        };
        frames.map(name).collect()
    }
}

#[test]
fn an_event_goes_to_the_subscribers_of_its_channel_but_for_one() {
    let mut sockets = Sockets::new(3);
    sockets.join(1, "private-x", None);
    sockets.join(2, "private-x", None);
    sockets.join(3, "private-y", None);
    sockets.registry.publish(&channel("private-x"), &frame("one"), None);
    sockets.registry.publish(&channel("private-x"), &frame("two"), Some(id(1)));
    assert_eq!(sockets.got(1), ["subscription_succeeded", "one"]);
    assert_eq!(sockets.got(2), ["subscription_succeeded", "one", "two"]);
    assert_eq!(sockets.got(3), ["subscription_succeeded"]);
    sockets.registry.leave(id(2), &channel("private-x"));
    sockets.registry.disconnect(id(1));
    sockets.registry.publish(&channel("private-x"), &frame("three"), None);
    assert_eq!((sockets.got(1), sockets.got(2)), (vec![], vec![]));
    assert_eq!(sockets.registry.occupied(), HashSet::from([&channel("private-y")]));
}

#[test]
fn members_are_told_of_the_first_and_the_last_connection_of_a_user() {
    let mut sockets = Sockets::new(4);
    let name = "presence-document.a";
    let moved = sockets.join(1, name, Some("anna"));
    assert_eq!(moved, Moved::Came(channel(name), "anna".into()));
    sockets.join(2, name, Some("ben"));
    assert_eq!(sockets.join(3, name, Some("ben")), Moved::Nobody);
    assert_eq!(sockets.got(1), ["subscription_succeeded", "member_added"]);
    assert_eq!(sockets.got(2), ["subscription_succeeded"]);
    assert_eq!(sockets.registry.disconnect(id(2)), [Moved::Nobody]);
    assert_eq!(sockets.registry.disconnect(id(3)), [Moved::Left(channel(name), "ben".into())]);
    assert_eq!(sockets.got(1), ["member_removed"]);
    let node = NodeId::parse("0123456789abcdef").unwrap();
    sockets.registry.came_elsewhere(node, &channel(name), "ben", &member("ben").info);
    sockets.registry.came_elsewhere(node, &channel(name), "anna", &member("anna").info);
    sockets.join(4, name, Some("ben"));
    assert_eq!(sockets.got(1), ["member_added"]);
    sockets.registry.forget_server(node);
    assert_eq!(sockets.got(1), Vec::<String>::new(), "both are connected here as well");
}

#[test]
fn the_answer_lists_who_is_present() {
    let mut sockets = Sockets::new(2);
    sockets.join(1, "presence-x", Some("anna"));
    sockets.join(2, "presence-x", Some("ben"));
    let (_, frames) = sockets.queues.get_mut(&2).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&frames.try_recv().unwrap()).unwrap();
    let expected = r#"{"presence":{"count":2,"ids":["anna","ben"],"hash":{"anna":{"name":"anna"},"ben":{"name":"ben"}}}}"#;
    assert_eq!(answer["data"], expected);
}

#[test]
fn a_presence_channel_has_so_many_members() {
    let mut sockets = Sockets::new(102);
    for number in 1..=100 {
        sockets.join(number, "presence-x", Some(&format!("user-{number}")));
    }
    let full = sockets.registry.join(id(101), &channel("presence-x"), Some(&member("one more")));
    assert!(full.is_err());
    sockets.join(102, "presence-x", Some("user-7"));
}

#[test]
fn a_cache_channel_of_a_document_gives_the_state_and_then_only_later_events() {
    let mut sockets = Sockets::new(2);
    let name = "private-cache-document.a";
    let event = |sockets: &mut Sockets, seq: u64| {
        sockets.registry.document_event(&room(), seq, None, |_| frame(&format!("event {seq}")));
    };
    sockets.join(1, name, None);
    event(&mut sockets, 5);
    assert_eq!(sockets.registry.take_wanted(), [room()]);
    event(&mut sockets, 6);
    event(&mut sockets, 7);
    // Subscribes while the state is being read: that one may be too old for it.
    sockets.join(2, name, None);
    sockets.registry.document_state(&room(), 6, |_| frame("state 6"));
    event(&mut sockets, 8);
    assert_eq!(sockets.got(1), ["subscription_succeeded", "state 6", "event 7", "event 8"]);
    assert_eq!(sockets.got(2), ["subscription_succeeded"]);
    assert_eq!(sockets.registry.take_wanted(), [room()]);
    // The state may be ahead of the events.
    sockets.registry.document_state(&room(), 9, |_| frame("state 9"));
    event(&mut sockets, 9);
    event(&mut sockets, 10);
    assert_eq!(sockets.got(1), ["event 9", "event 10"]);
    assert_eq!(sockets.got(2), ["state 9", "event 10"]);
}

#[test]
fn after_missed_events_every_subscriber_gets_the_state() {
    let mut sockets = Sockets::new(1);
    sockets.join(1, "private-document.a", None);
    assert_eq!(sockets.registry.take_wanted(), []);
    sockets.registry.missed_events();
    assert_eq!(sockets.registry.take_wanted(), [room()]);
    sockets.registry.want(room());
    assert_eq!(sockets.registry.take_wanted(), [room()], "it could not be read");
    sockets.registry.document_state(&room(), 4, |_| frame("state"));
    sockets.registry.document_event(&room(), 4, None, |_| frame("old"));
    sockets.registry.document_event(&room(), 5, None, |_| frame("new"));
    assert_eq!(sockets.got(1), ["subscription_succeeded", "state", "new"]);
    sockets.registry.disconnect(id(1));
    sockets.registry.want(room());
    assert_eq!(sockets.registry.take_wanted(), [], "nobody waits for it");
}

#[test]
fn other_cache_channels_keep_their_last_event() {
    let mut sockets = Sockets::new(2);
    sockets.join(1, "private-cache-x", None);
    assert_eq!(sockets.got(1), ["subscription_succeeded", "cache_miss"]);
    sockets.registry.cache(&channel("private-cache-x"), frame("first"));
    sockets.registry.cache(&channel("private-cache-x"), frame("second"));
    sockets.registry.cache(&channel("private-cache-document.a"), frame("never"));
    sockets.join(2, "private-cache-x", None);
    assert_eq!(sockets.got(2), ["subscription_succeeded", "second"]);
    for number in 0..2 * CACHED {
        sockets.registry.cache(&channel(&format!("cache-{number}")), frame("event"));
    }
    assert_eq!(sockets.registry.cached.len(), CACHED);
}

#[test]
fn a_socket_that_does_not_read_is_ended_and_delays_nobody() {
    let mut sockets = Sockets::new(2);
    sockets.join(1, "private-x", None);
    sockets.join(2, "private-x", None);
    for number in 0..QUEUE + 10 {
        sockets.registry.publish(&channel("private-x"), &frame("event"), None);
        assert_eq!(sockets.got(2).len(), if number == 0 { 2 } else { 1 });
    }
    let ended = |number: u32| sockets.queues[&number].0.end.get().cloned();
    assert_eq!((ended(1), ended(2)), (Some(Refusal::TOO_SLOW), None));
}

#[test]
fn a_user_can_be_cut_off() {
    let mut sockets = Sockets::new(3);
    sockets.join(1, "presence-x", Some("anna"));
    sockets.registry.sign_in(id(2), "anna".into());
    sockets.join(3, "presence-x", Some("ben"));
    sockets.registry.terminate("anna");
    let ended = |number: u32| sockets.queues[&number].0.end.get().is_some();
    assert_eq!([1, 2, 3].map(ended), [true, true, false]);
}
