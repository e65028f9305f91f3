//! Jobs in Firestore, in the fields of their own documents: Firestore keeps them and tells the time, Rust decides.
//!
//! This is a [`JobStore`] and not a [`Store`](crate::Store): a document knows nothing of the others, so there are no
//! lists, no events and no sweeper. `turn.rs` is the heart: one Firestore transaction per command. `document.rs` knows
//! the fields, `attempt.rs` keeps lease ids out of them. Nothing here may touch a field that is not ours, nor decide
//! by the clock of the machine that it runs on.

mod attempt;
mod document;
mod trouble;
mod turn;
mod url;
mod values;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gcloud_sdk::google::firestore::v1::firestore_client::FirestoreClient;
use gcloud_sdk::google_cloud_auth::credentials::anonymous;
use gcloud_sdk::{GoogleApi, GoogleAuthMiddleware, HeaderMap, RequestTimeouts};
use leasehold_core::job::Record;
use leasehold_core::{Command, JobCommand, Key, Position, Retries, RetryPolicy, StoreTime};
use rustls::crypto::CryptoProvider;
use tokio::sync::OnceCell;

use crate::changes::Known;
use crate::clock::Clock;
use crate::jitter;
use crate::{Applied, Error, JobApplied, JobStore, Reading, Result, Retry};
use attempt::Veil;
use document::{Found, Writes};
use trouble::{Trouble, TroubleResult};
use turn::{Queues, Seen, Turn};

pub use url::FirestoreUrl;

/// Where Firestore is.
const API: &str = "https://firestore.googleapis.com";

/// Names an emulator, as in all of Google's own clients.
const EMULATOR: &str = "FIRESTORE_EMULATOR_HOST";

/// How long one call may take, and how long connecting may.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// There is no feed of events to have a position in.
const NOWHERE: Position = Position(0);

/// How to open Firestore documents as a store.
#[derive(Default)]
pub struct Options {
    clock: Option<Arc<dyn Clock>>,
}

impl Options {
    /// Another clock than Firestore's, that only a test moves.
    #[doc(hidden)]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Makes the store. It connects when it is first used.
    pub fn open(self, url: &FirestoreUrl) -> Firestore {
        let (url, queues) = (url.clone(), Queues::new());
        Firestore(Arc::new(Inner { url, clock: self.clock, client: OnceCell::new(), queues }))
    }
}

/// The documents of a Firestore database. Any number of processes may use the same ones.
pub struct Firestore(Arc<Inner>);

impl Firestore {
    /// Opens `firestore:PROJECT` or `firestore:PROJECT/DATABASE`.
    pub fn open(url: &str) -> Result<Self> {
        Ok(Self::options().open(&FirestoreUrl::parse(url)?))
    }

    /// The ways to open one.
    pub fn options() -> Options {
        Options::default()
    }

    /// Does something, and again if it failed without having done anything.
    ///
    /// On a task of its own, which goes on to its end when its caller is gone: a transaction that is dropped
    /// before its id has arrived could not be ended.
    async fn retried<T, F>(&self, attempt: impl Fn(Arc<Inner>) -> F + Send) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = TroubleResult<T>> + Send + 'static,
    {
        let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
        loop {
            let trouble = match tokio::spawn(attempt(self.0.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(trouble)) => trouble,
                // The runtime is shutting down.
                Err(_) => return Err(broken_off()),
            };
            // What failed says how often it is worth another attempt.
            let wait = retries.failed().filter(|_| retries.failures() <= trouble.again);
            let Some(wait) = wait else { return Err(trouble.error) };
            tokio::time::sleep(wait).await;
        }
    }
}

/// Refuses what names a lease by its tab: a document has only the hash of a lease id, which cannot be given again, and the
/// lock of another program has an owner whose name any caller may bear.
fn needs_lease_id(command: &Command) -> Result<()> {
    let by_tab = matches!(command, Command::AcquireInTab(_))
        || matches!(command.claim(), Some(leasehold_core::Claim::Tab { .. }));
    if !by_tab {
        return Ok(());
    }
    let rule = "a Firestore document is claimed by a lease id, not by a tab";
    Err(leasehold_core::Invalid::new("claim", "(by tab)", rule, "send the lease id of the lock").into())
}

fn broken_off() -> Error {
    Error::Unavailable { what: "a call to Firestore was broken off".to_owned(), retry: Retry::Unknown }
}

/// Chooses what TLS is made with, unless the program has: where more than one library for that is compiled in, as happens
/// by what other crates bring along, rustls does not choose by itself, and gives up the whole task.
fn choose_tls() {
    if CryptoProvider::get_default().is_none() {
        // It fails if another thread was faster, and has chosen.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// What all users of an open store share.
struct Inner {
    url: FirestoreUrl,
    clock: Option<Arc<dyn Clock>>,
    client: OnceCell<GoogleApi<Client>>,
    queues: Queues,
}

type Client = FirestoreClient<GoogleAuthMiddleware>;

/// What follows from a command on a document: what is to be written, and the answer once it is.
type Decide<C, T> = fn(&Inner, &Key, C, &Seen) -> TroubleResult<(Writes, T)>;

impl Inner {
    /// The time, when Firestore says that it is `read_time`.
    fn now(&self, read_time: StoreTime) -> StoreTime {
        self.clock.as_ref().map_or(read_time, |clock| StoreTime::from_millis(clock.millis()))
    }

    async fn client(&self) -> TroubleResult<Client> {
        Ok(self.client.get_or_try_init(|| self.connect()).await?.get())
    }

    async fn connect(&self) -> TroubleResult<GoogleApi<Client>> {
        choose_tls();
        let named = || std::env::var(EMULATOR).ok().filter(|host| !host.is_empty());
        let connecting = async {
            match self.url.emulator.clone().or_else(named) {
                Some(emulator) => self.connect_to_emulator(&emulator).await,
                None => {
                    GoogleApi::from_function(FirestoreClient::new, API, Some(self.url.database_path())).await
                }
            }
        };
        let connected =
            tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| Trouble::late())?;
        let client = connected.map_err(|error| Trouble::connecting(&error))?;
        Ok(client.with_request_timeouts(RequestTimeouts::new().with_total(CALL_TIMEOUT)))
    }

    async fn connect_to_emulator(&self, host: &str) -> gcloud_sdk::error::Result<GoogleApi<Client>> {
        let url = if host.contains("://") { host.to_owned() } else { format!("http://{host}") };
        let mut headers = HeaderMap::new();
        if let Ok(owner) = "Bearer owner".parse() {
            headers.insert("authorization", owner);
        }
        let database = Some(self.url.database_path());
        let nobody = anonymous::Builder::new().build();
        GoogleApi::from_function_with_credentials_and_headers(
            FirestoreClient::new,
            url,
            database,
            nobody,
            headers,
        )
        .await
    }

    /// A look at the document, outside of any transaction.
    async fn look(self: Arc<Self>, document: String) -> TroubleResult<Seen> {
        turn::read(&self, &document, None, None).await
    }

    /// Decides one command. With `look` it begins with a look: one trip for a caller that is refused, which locks out no
    /// other. What is written is decided on what the transaction itself has read.
    async fn change<C: Clone, T>(
        self: Arc<Self>,
        (document, key, command): (String, Key, C),
        look: bool,
        decide: Decide<C, T>,
    ) -> TroubleResult<T> {
        if look {
            let seen = turn::read(&self, &document, None, None).await?;
            let (writes, applied) = decide(&self, &key, command.clone(), &seen)?;
            if writes.is_empty() {
                return Ok(applied);
            }
        }
        let (turn, seen) = Turn::begin(&self, &document).await?;
        let (writes, applied) = decide(&self, &key, command, &seen)?;
        turn.commit(writes).await?;
        Ok(applied)
    }

    /// What the rules say about the document as it was seen: what is to be written, and the answer once it is.
    fn decide(&self, key: &Key, command: Command, seen: &Seen) -> TroubleResult<(Writes, Applied)> {
        let mut veil = Veil::default();
        let (command, now) = (veil.command(command), seen.now);
        let found = Found::read(&self.url.names, key, seen.fields.as_ref());
        let mut changes = found.changes(now);
        let known = found.known(now, command.lease_id());
        let outcome = changes.decide(key, &found.record.slot, &command, known);
        let slot = changes.slots.last().map_or(&found.record.slot, |(_, slot)| slot);
        found.check_fence(slot)?;
        let after = Record { slot: slot.clone(), job: found.record.job.clone() };
        let writes = found.writes(&self.url.names, &after, &changes, &veil);
        Ok((writes, Applied { outcome: veil.outcome(outcome), now, position: NOWHERE }))
    }

    /// The same for a command about a job.
    fn decide_job(&self, key: &Key, command: JobCommand, seen: &Seen) -> TroubleResult<(Writes, JobApplied)> {
        let mut veil = Veil::default();
        let (command, now) = (veil.job_command(command), seen.now);
        let found = Found::read(&self.url.names, key, seen.fields.as_ref());
        let mut changes = found.changes(now);
        let known = found.known(now, command.lease_id());
        let (outcome, record) = changes.decide_job(key, &found.record, &command, known);
        found.check_fence(&record.slot)?;
        let writes = found.writes(&self.url.names, &record, &changes, &veil);
        let record = Record { slot: veil.slot(record.slot), job: record.job };
        Ok((writes, JobApplied { outcome: veil.job_outcome(outcome), record, now, position: NOWHERE }))
    }
}

#[async_trait]
impl JobStore for Firestore {
    async fn apply(&self, key: &Key, command: Command) -> Result<Applied> {
        let document = self.0.url.document(key)?;
        needs_lease_id(&command)?;
        // What is often asked in vain.
        let look = matches!(command, Command::Acquire(_) | Command::Check { .. } | Command::Settle);
        let asked = (document, key.clone(), command);
        self.retried(|inner| inner.change(asked.clone(), look, Inner::decide)).await
    }

    async fn apply_job(&self, key: &Key, command: JobCommand) -> Result<JobApplied> {
        let document = self.0.url.document(key)?;
        let look = matches!(command, JobCommand::Create { .. } | JobCommand::Acquire(_) | JobCommand::Settle);
        let asked = (document, key.clone(), command);
        self.retried(|inner| inner.change(asked.clone(), look, Inner::decide_job)).await
    }

    async fn read(&self, key: &Key) -> Result<Reading> {
        let document = self.0.url.document(key)?;
        loop {
            let Seen { fields, now } = self.retried(|inner| inner.look(document.clone())).await?;
            let found = Found::read(&self.0.url.names, key, fields.as_ref());
            let mut changes = found.changes(now);
            changes.decide(key, &found.record.slot, &Command::Settle, Known::default());
            if changes.slots.is_empty() {
                return Ok(Reading { slot: found.record.slot, now, position: NOWHERE });
            }
            self.apply(key, Command::Settle).await?;
        }
    }

    fn counts_from_1970(&self) -> bool {
        true
    }
}
