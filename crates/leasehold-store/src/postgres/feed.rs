//! The feed of events: rows of the outbox, read by position, and what wakes the readers.
//!
//! Being woken is only ever a hint. Readers ask for what comes after the position they have reached, so that nothing
//! is missed or told twice, whatever becomes of the connection that listens.

use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use leasehold_core::{Position, Retries, RetryPolicy};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::bus;
use super::connect::{self, Param};
use super::rows::EVENT;
use super::trouble::{Trouble, TroubleResult};
use super::turn::{CLOCK, HEADER, HEADER_COLUMNS, Header};
use super::url::{Listen, PostgresUrl};
use super::{Inner, rows};
use crate::bus::{Heard, Listening};
use crate::jitter;
use crate::{Feed, MAX_EVENTS, Result, Standing, standing};

/// How often a reader looks while nobody would wake it.
const POLL: Duration = Duration::from_millis(500);

/// How often it looks nevertheless: a connection may be dead for a while before anybody notices.
const POLL_WHILE_LISTENING: Duration = Duration::from_secs(5);

/// How often the one who listens proves that it hears.
const PROVE_EVERY: Duration = Duration::from_secs(5);

/// How soon the connection that listens must be there.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// How soon it must have heard itself.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// How long it waits before it connects again when it connected but heard nothing: there is a proxy in between, and it
/// will still be there.
const RECONNECT_DEAF: Duration = Duration::from_secs(60);

/// The next events after `after`; waits for one.
pub(super) async fn next(inner: &Inner, after: Position, limit: usize) -> Result<Feed> {
    inner.ears.listen(&inner.pool);
    let mut woken = inner.ears.woken.subscribe();
    loop {
        woken.borrow_and_update();
        if let Some(feed) = inner.looked(|| events_after(inner, after, limit)).await? {
            return Ok(feed);
        }
        let patience = if inner.ears.hears() { POLL_WHILE_LISTENING } else { POLL };
        // Woken or out of patience, it looks again.
        let _ = timeout(patience, woken.changed()).await;
    }
}

async fn events_after(inner: &Inner, after: Position, limit: usize) -> TroubleResult<Option<Feed>> {
    inner.ready().await?;
    let sql = format!(
        "WITH {CLOCK} SELECT {HEADER}, (SELECT min(position) FROM leasehold.event), {EVENT} \
         FROM clock, leasehold.store s LEFT JOIN LATERAL \
           (SELECT * FROM leasehold.event WHERE position > $1 ORDER BY position LIMIT $2) e ON true \
         ORDER BY e.position"
    );
    let position = i64::try_from(after.0).unwrap_or(i64::MAX);
    let limit = limit.clamp(1, MAX_EVENTS) as i64;
    let params: [Param<'_>; 2] = [(&position, Type::INT8), (&limit, Type::INT8)];
    let sent = inner.steps.own();
    let found = connect::look(inner, &sql, &params).await?;
    let first = found.first().ok_or_else(|| Trouble::bad_row("leasehold.store"))?;
    let newest = Header::from_row(inner, sent, first)?.position;
    let oldest: Option<i64> = first.try_get(HEADER_COLUMNS)?;
    match standing(after, oldest.map(|oldest| Position(oldest.cast_unsigned())), newest) {
        Standing::UpToDate => Ok(None),
        Standing::Gap => Ok(Some(Feed::Gap { resume_from: newest })),
        Standing::Behind => Ok(Some(Feed::Events(found.iter().map(event).collect::<TroubleResult<_>>()?))),
    }
}

fn event(row: &Row) -> TroubleResult<leasehold_core::Published> {
    rows::event_from(row, HEADER_COLUMNS + 1)
}

/// How many texts a receiver of the bus may be behind.
const TEXTS: usize = 4_096;

/// What listens for all readers of a store, and for all receivers of its bus.
pub(super) struct Ears {
    connect: Option<(Config, MakeRustlsConnect)>,
    woken: watch::Sender<()>,
    hearing: Arc<AtomicBool>,
    texts: Texts,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The texts of the bus.
#[derive(Clone)]
struct Texts {
    heard: broadcast::Sender<Heard>,
    /// Whether anybody wants them.
    wanted: watch::Sender<bool>,
    hearing: Arc<AtomicBool>,
}

impl Texts {
    fn new() -> Self {
        Self {
            heard: broadcast::Sender::new(TEXTS),
            wanted: watch::Sender::new(false),
            hearing: Arc::default(),
        }
    }

    /// Says whether texts are heard, to those who have not been told. Sending fails only when there is no receiver.
    fn set_hearing(&self, hearing: bool) {
        if self.hearing.swap(hearing, Ordering::SeqCst) != hearing {
            let _ = self.heard.send(if hearing { Heard::Hearing } else { Heard::Deaf });
        }
    }
}

impl Ears {
    pub(super) fn new(url: &PostgresUrl) -> Result<Self> {
        let address = match &url.listen {
            Listen::Same => Some(&url.address),
            Listen::Direct(address) => Some(address),
            Listen::Off => None,
        };
        let connect =
            address.map(|address| Ok::<_, crate::Error>((address.config.clone(), address.tls.connector()?)));
        let connect = connect.transpose()?;
        Ok(Self {
            connect,
            woken: watch::Sender::new(()),
            hearing: Arc::default(),
            texts: Texts::new(),
            task: Mutex::default(),
        })
    }

    /// Listens for the texts of the bus as well.
    pub(super) fn hear_texts(&self, pool: &Pool) -> Listening {
        let heard = self.texts.heard.subscribe();
        self.texts.wanted.send_replace(true);
        self.listen(pool);
        // Looked at last: in between it may become true, and then is said twice.
        Listening { is_hearing: self.texts.hearing.load(Ordering::SeqCst), heard }
    }

    fn hears(&self) -> bool {
        self.hearing.load(Ordering::Relaxed)
    }

    /// Begins to listen, unless it does already.
    fn listen(&self, pool: &Pool) {
        let Some(connect) = &self.connect else { return };
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // It ends only with the runtime on which it was started.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let listener = Listener {
                connect: connect.clone(),
                pool: pool.clone(),
                woken: self.woken.clone(),
                hearing: self.hearing.clone(),
                texts: self.texts.clone(),
                proof: format!("leasehold_{:016x}", RandomState::new().hash_one(0)),
                heard: watch::Sender::new(()),
                has_heard: AtomicBool::new(false),
            };
            *task = Some(tokio::spawn(listener.run()));
        }
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

/// How listening came to an end.
enum Ended {
    /// The connection is gone.
    Lost,
    /// The connection is there, but nothing is heard on it.
    Deaf,
}

/// The task that listens, on a connection of its own.
///
/// Behind a transaction-pooling proxy LISTEN succeeds, and nothing is ever heard. So it calls itself, over one of the
/// other connections and on a channel of its own, and readers rely on it only while it hears that.
struct Listener {
    connect: (Config, MakeRustlsConnect),
    pool: Pool,
    woken: watch::Sender<()>,
    hearing: Arc<AtomicBool>,
    texts: Texts,
    proof: String,
    heard: watch::Sender<()>,
    /// Whether it has ever heard anything.
    has_heard: AtomicBool,
}

impl Listener {
    async fn run(self) {
        let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
        loop {
            let ended = self.listen().await;
            if self.hearing.swap(false, Ordering::Relaxed) {
                retries.succeeded();
            }
            self.texts.set_hearing(false);
            // What was not heard meanwhile is found by looking.
            self.woken.send_replace(());
            let wait = match ended {
                Ok(Ended::Deaf) => RECONNECT_DEAF,
                Ok(Ended::Lost) => retries.pause(),
                Err(error) => {
                    tracing::debug!(%error, "the connection that listens for events was lost");
                    retries.pause()
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn listen(&self) -> Result<Ended, tokio_postgres::Error> {
        let (config, tls) = &self.connect;
        // A connection can be made to something that never says a word.
        let Ok(connected) = timeout(CONNECTED_WITHIN, config.connect(tls.clone())).await else {
            return Ok(Ended::Lost);
        };
        let (client, mut connection) = connected?;
        let hear = async {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(notification) = message? {
                    self.hear(notification.channel(), notification.payload());
                }
            }
            Ok(Ended::Lost)
        };
        // The connection lives in this task, and so ends with it.
        tokio::select! {
            ended = hear => ended,
            ended = self.prove(&client) => ended,
        }
    }

    fn hear(&self, channel: &str, text: &str) {
        if channel == self.proof {
            self.heard.send_replace(());
        } else if channel == bus::CHANNEL {
            let _ = self.texts.heard.send(Heard::Text(text.into()));
        } else {
            self.woken.send_replace(());
        }
    }

    async fn prove(&self, client: &Client) -> Result<Ended, tokio_postgres::Error> {
        let mut wanted = self.texts.wanted.subscribe();
        let mut channels = vec!["leasehold", &self.proof];
        let mut hears_texts = false;
        loop {
            if *wanted.borrow_and_update() && !hears_texts {
                channels.push(bus::CHANNEL);
                hears_texts = true;
            }
            if !channels.is_empty() {
                let listen: String = channels.drain(..).map(|channel| format!("LISTEN {channel};")).collect();
                let Ok(listening) = timeout(HEARD_WITHIN, client.batch_execute(&listen)).await else {
                    return Ok(Ended::Lost);
                };
                listening?;
            }
            let mut heard = self.heard.subscribe();
            if !self.call().await {
                return Ok(Ended::Lost);
            }
            if timeout(HEARD_WITHIN, heard.changed()).await.is_err() {
                return Ok(self.hears_nothing(client).await);
            }
            self.has_heard.store(true, Ordering::Relaxed);
            if !self.hearing.swap(true, Ordering::Relaxed) {
                self.woken.send_replace(());
            }
            if hears_texts {
                self.texts.set_hearing(true);
            }
            // Woken or not, it looks again.
            let _ = timeout(PROVE_EVERY, wanted.changed()).await;
        }
    }

    /// Where something was heard before, the connection is dead, whatever it looks like. Where nothing ever was there is a proxy
    /// in between, which may give the server's end of the connection to somebody else.
    async fn hears_nothing(&self, client: &Client) -> Ended {
        if self.has_heard.load(Ordering::Relaxed) {
            return Ended::Lost;
        }
        tracing::info!("events are not heard on this connection, so the store polls for them");
        // Best effort: nobody may be there to answer.
        let _ = timeout(HEARD_WITHIN, client.batch_execute("UNLISTEN *")).await;
        Ended::Deaf
    }

    /// Calls itself; answers whether the call went out.
    async fn call(&self) -> bool {
        let channel = self.proof.as_str();
        let params: [Param<'_>; 1] = [(&channel, Type::TEXT)];
        let Ok(Ok(db)) = timeout(HEARD_WITHIN, self.pool.get()).await else { return false };
        let call = db.query_typed("SELECT count(pg_notify($1, ''))", &params);
        let sent = matches!(timeout(HEARD_WITHIN, call).await, Ok(Ok(_)));
        if !sent {
            // Nobody else shall meet a connection that does not answer.
            drop(Object::take(db));
        }
        sent
    }
}
