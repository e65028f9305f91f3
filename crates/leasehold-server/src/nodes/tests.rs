//! Several servers on one store, on virtual time: a store in memory, and a bus that can be cut.

use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use leasehold_core::{Command, JobCommand, Position, StoreTime};
use leasehold_store::{
    Applied, Feed, JobApplied, JobStore, Limits, Memory, Page, Reading, Result, Retry, Settled,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;
use crate::server_lease::tests::TokioClock;

/// What all servers of a test share.
pub(crate) struct World {
    pub(crate) memory: Arc<Memory>,
    pub(crate) clock: Arc<TokioClock>,
    wire: broadcast::Sender<Heard>,
}

/// The store of one server: the leases of the world, and a connection of its own to the bus.
struct Shared {
    memory: Arc<Memory>,
    line: Arc<Line>,
}

/// One server's connection to the bus.
struct Line {
    wire: broadcast::Sender<Heard>,
    own: broadcast::Sender<Heard>,
    is_cut: AtomicBool,
}

#[async_trait]
impl JobStore for Shared {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        self.memory.apply(key, command).await
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        self.memory.read(key).await
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        self.memory.apply_job(key, command).await
    }
}

#[async_trait]
impl Store for Shared {
    async fn now(&self) -> Result<StoreTime> {
        self.memory.now().await
    }

    async fn list(&self, range: &Range) -> Result<Page> {
        self.memory.list(range).await
    }

    async fn events(&self, after: Position, limit: usize) -> Result<Feed> {
        self.memory.events(after, limit).await
    }

    async fn settle_due(&self, limit: usize) -> Result<Settled> {
        self.memory.settle_due(limit).await
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        Some(self.line.clone())
    }
}

#[async_trait]
impl Bus for Line {
    fn longest(&self) -> usize {
        200
    }

    async fn send(&self, texts: &[String]) -> Result<()> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(Error::Unavailable { what: "the line is cut".into(), retry: Retry::Safe });
        }
        for text in texts {
            let _ = self.wire.send(Heard::Text(text.as_str().into()));
        }
        Ok(())
    }

    fn listen(&self) -> Listening {
        Listening { is_hearing: true, heard: self.own.subscribe() }
    }
}

pub(crate) struct Node {
    pub(crate) nodes: Nodes,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stop: CancellationToken,
    line: Arc<Line>,
    task: JoinHandle<()>,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(TokioClock(Instant::now()));
        let memory = Arc::new(Memory::with(clock.clone(), Limits::default(), 0));
        Self { memory, clock, wire: broadcast::Sender::new(10_000) }
    }

    /// A server that takes part.
    pub(crate) fn node(&self) -> Node {
        let own = broadcast::Sender::new(10_000);
        let line =
            Arc::new(Line { wire: self.wire.clone(), own: own.clone(), is_cut: AtomicBool::new(false) });
        let (mut wire, cut) = (self.wire.subscribe(), line.clone());
        tokio::spawn(async move {
            while let Ok(heard) = wire.recv().await {
                if !cut.is_cut.load(Ordering::SeqCst) {
                    let _ = own.send(heard);
                }
            }
        });
        let store: Arc<dyn Store> = Arc::new(Shared { memory: self.memory.clone(), line: line.clone() });
        let (nodes, take_part) = Nodes::new();
        let stop = CancellationToken::new();
        let task =
            tokio::spawn(take_part.run(store.clone(), self.clock.clone(), Metrics::new(), stop.clone()));
        Node { nodes, store, stop, line, task }
    }
}

impl Line {
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        let _ = self.own.send(Heard::Deaf);
    }

    fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
        let _ = self.own.send(Heard::Hearing);
    }
}

/// The next event, if there is one within this time.
async fn next(events: &mut NodeEvents, within: Duration) -> Option<FromNode> {
    timeout(within, events.next()).await.ok()
}

async fn joined(events: &mut NodeEvents) -> NodeId {
    match next(events, Duration::from_secs(5)).await {
        Some(FromNode { node, what: NodeEvent::Joined }) => node,
        other => panic!("{other:?}"),
    }
}

const SOON: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn servers_find_each_other_and_messages_of_any_length_arrive_in_order() {
    let world = World::new();
    let (one, two) = (world.node(), world.node());
    let (mut at_one, mut at_two) = (one.nodes.subscribe(), two.nodes.subscribe());
    let (id_two, id_one) = (joined(&mut at_one).await, joined(&mut at_two).await);
    assert_ne!(id_one, id_two);
    let messages: Vec<Bytes> = [0_usize, 10, 5_000, 300].map(|length| vec![7; length].into()).to_vec();
    for message in &messages {
        one.nodes.send(message.clone());
    }
    for message in messages {
        let expected = FromNode { node: id_one, what: NodeEvent::Message(message) };
        assert_eq!(next(&mut at_two, SOON).await, Some(expected));
    }
    assert_eq!(next(&mut at_one, SOON).await, None, "nobody hears itself");
    // Who subscribes later begins with those that are there.
    assert_eq!(joined(&mut two.nodes.subscribe()).await, id_one);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_is_gone_at_once_and_a_killed_one_within_eight_seconds() {
    let world = World::new();
    let (one, two, three) = (world.node(), world.node(), world.node());
    let mut at_one = one.nodes.subscribe();
    let mut departures = one.nodes.departures();
    let mut known = BTreeSet::from([joined(&mut at_one).await, joined(&mut at_one).await]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    two.stop.cancel();
    let gone = next(&mut at_one, SOON).await.expect("it said so");
    assert!(gone.what == NodeEvent::Gone && known.remove(&gone.node), "{gone:?}");
    assert!(departures.has_changed().unwrap());
    departures.mark_unchanged();
    three.task.abort();
    assert_eq!(next(&mut at_one, Duration::from_secs(4)).await, None, "it may be slow");
    let gone = next(&mut at_one, Duration::from_secs(4)).await.expect("its lease has run out");
    assert!(gone.what == NodeEvent::Gone && known.remove(&gone.node), "{gone:?}");
    assert!(departures.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn after_a_cut_both_sides_begin_anew() {
    let world = World::new();
    let (one, two) = (world.node(), world.node());
    let (mut at_one, mut at_two) = (one.nodes.subscribe(), two.nodes.subscribe());
    let (id_two, id_one) = (joined(&mut at_one).await, joined(&mut at_two).await);
    one.line.cut();
    let gone = |node| Some(FromNode { node, what: NodeEvent::Gone });
    assert_eq!(next(&mut at_one, SOON).await, gone(id_two));
    two.nodes.send("lost".into());
    tokio::time::sleep(SOON).await;
    one.line.mend();
    // What one missed, it is not missing: it sees the other as new, under the name that it had.
    assert_eq!(joined(&mut at_one).await, id_two);
    // The other sees a new server, and the old one gone, in either order.
    let (first, second) = (next(&mut at_two, SOON).await, next(&mut at_two, Duration::from_secs(8)).await);
    let (old, new): (Vec<_>, Vec<_>) = [first, second].into_iter().partition(|event| *event == gone(id_one));
    assert_eq!(old.len(), 1, "{new:?}");
    assert!(matches!(&new[..], [Some(FromNode { what: NodeEvent::Joined, .. })]), "{new:?}");
    two.nodes.send("again".into());
    let heard = next(&mut at_one, SOON).await;
    assert_eq!(heard, Some(FromNode { node: id_two, what: NodeEvent::Message("again".into()) }));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_could_not_be_queued_makes_a_new_start() {
    let world = World::new();
    let (one, two) = (world.node(), world.node());
    let (mut at_one, mut at_two) = (one.nodes.subscribe(), two.nodes.subscribe());
    let (id_two, id_one) = (joined(&mut at_one).await, joined(&mut at_two).await);
    one.nodes.send(vec![0; LONGEST_MESSAGE + 1].into());
    assert_eq!(
        next(&mut at_two, SOON).await,
        None,
        "too long for anybody, and no loss that others must repair"
    );
    // In one go, so that nothing is sent in between.
    for _ in 0..=QUEUED {
        one.nodes.send("many".into());
    }
    let mut saw_gone = false;
    for _ in 0..=QUEUED + 2 {
        let event = next(&mut at_two, Duration::from_secs(5)).await.expect("it joins again");
        saw_gone |= event == FromNode { node: id_one, what: NodeEvent::Gone };
        if event.what == NodeEvent::Joined {
            assert!(saw_gone && event.node != id_one);
            break;
        }
    }
    assert!(saw_gone);
    // Its own receivers are asked to send all they have again.
    assert_eq!(next(&mut at_one, SOON).await, Some(FromNode { node: id_two, what: NodeEvent::Gone }));
    assert_eq!(joined(&mut at_one).await, id_two);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_falls_behind_begins_anew() {
    let world = World::new();
    let (one, two) = (world.node(), world.node());
    let (mut at_one, mut at_two) = (one.nodes.subscribe(), two.nodes.subscribe());
    let (id_two, id_one) = (joined(&mut at_one).await, joined(&mut at_two).await);
    for _ in 0..=BACKLOG {
        one.nodes.send("many".into());
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(SOON).await;
    let what = [NodeEvent::Gone, NodeEvent::Joined];
    for what in what {
        assert_eq!(next(&mut at_two, SOON).await, Some(FromNode { node: id_one, what }));
    }
    // It lost messages as well, so its server leaves and joins under a new name.
    assert_eq!(next(&mut at_one, SOON).await, Some(FromNode { node: id_two, what: NodeEvent::Gone }));
    assert_ne!(joined(&mut at_one).await, id_two);
}

#[tokio::test(start_paused = true)]
async fn on_a_store_of_ones_own_there_is_nothing_to_do() {
    let (nodes, take_part) = Nodes::new();
    let clock = Arc::new(TokioClock(Instant::now()));
    let store = Arc::new(Memory::with(clock.clone(), Limits::default(), 0));
    take_part.run(store.clone(), clock, Metrics::new(), CancellationToken::new()).await;
    nodes.send("nobody".into());
    assert_eq!(next(&mut nodes.subscribe(), Duration::from_secs(60)).await, None);
    assert!(store.list(&Range::all()).await.unwrap().slots.is_empty());
}
