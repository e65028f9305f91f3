//! One Firestore transaction that decides something: read the document and the time, decide in Rust, write and commit.
//!
//! ```text
//!   trip 1   BatchGetDocuments, in a new transaction: our fields, read_time     ──►  decide
//!   trip 2   Commit: only the fields that change · or Rollback                  ──►  answer
//! ```
//!
//! A caller that is refused, or only looks, needs the first trip alone, and no transaction.
//!
//! The time of a decision is the `read_time` of this very read, on Firestore's clock: never the worker's.
//!
//! The transaction is optimistic: the commit fails if another program wrote meanwhile, and no caller is locked out by a worker
//! that dies between the trips. The emulator, and a Firestore that does not know that mode, locks what was read until
//! the transaction ends. So one that is not going to write, or whose commit was not answered, is ended on purpose. That
//! also settles whether it can still come through.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use gcloud_sdk::google::firestore::v1::batch_get_documents_request::ConsistencySelector;
use gcloud_sdk::google::firestore::v1::batch_get_documents_response::Result as Answer;
use gcloud_sdk::google::firestore::v1::transaction_options::{ConcurrencyMode, Mode, ReadWrite};
use gcloud_sdk::google::firestore::v1::write::Operation;
use gcloud_sdk::google::firestore::v1::{
    BatchGetDocumentsRequest, CommitRequest, Document, DocumentMask, RollbackRequest, TransactionOptions,
    Value, Write,
};
use leasehold_core::StoreTime;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::document::{Fields, Writes};
use super::trouble::{Phase, Trouble, TroubleResult};
use super::{Inner, values};

/// A document as it was read.
pub(super) struct Seen {
    /// Our fields; `None` when there is no such document.
    pub(super) fields: Option<Fields>,
    /// When it was read, on Firestore's clock.
    pub(super) now: StoreTime,
}

/// An open transaction.
pub(super) struct Turn {
    inner: Arc<Inner>,
    document: String,
    /// Empty once it has ended.
    transaction: Vec<u8>,
    _place: OwnedMutexGuard<()>,
}

impl Turn {
    /// Begins a transaction with a look at the document, in one trip.
    pub(super) async fn begin(inner: &Arc<Inner>, document: &str) -> TroubleResult<(Self, Seen)> {
        let concurrency_mode = ConcurrencyMode::Optimistic.into();
        let mode = Some(Mode::ReadWrite(ReadWrite { concurrency_mode, ..ReadWrite::default() }));
        let new = ConsistencySelector::NewTransaction(TransactionOptions { mode });
        let mut turn = Self {
            inner: inner.clone(),
            document: document.to_owned(),
            transaction: Vec::new(),
            _place: inner.queues.wait(document).await,
        };
        let seen = read(inner, document, Some(new), Some(&mut turn.transaction)).await?;
        if turn.transaction.is_empty() {
            return Err(Trouble::strange("began no transaction"));
        }
        Ok((turn, seen))
    }

    /// Writes and commits; just ends when there is nothing to write.
    pub(super) async fn commit(mut self, writes: Writes) -> TroubleResult<()> {
        if writes.is_empty() {
            self.roll_back().await;
            return Ok(());
        }
        let request = CommitRequest {
            database: self.inner.url.database_path(),
            writes: vec![write(&self.document, writes)],
            transaction: self.transaction.clone(),
            ..CommitRequest::default()
        };
        let mut client = self.inner.client().await?;
        client.commit(request).await.map_err(|status| Trouble::new(&status, Phase::Committing))?;
        self.transaction.clear();
        Ok(())
    }

    /// Lets others have the document. If that fails, Firestore ends the transaction by itself, later.
    async fn roll_back(&mut self) {
        let transaction = std::mem::take(&mut self.transaction);
        roll_back(&self.inner, transaction).await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let transaction = std::mem::take(&mut self.transaction);
        // Outside a runtime it cannot be sent.
        if let (false, Ok(runtime)) = (transaction.is_empty(), tokio::runtime::Handle::try_current()) {
            let inner = self.inner.clone();
            runtime.spawn(async move { roll_back(&inner, transaction).await });
        }
    }
}

/// Where the transactions of this process wait for each other, so that they do not undo each other: those on one document
/// come one after the other. Those of other processes are for Firestore to sort out.
pub(super) struct Queues(Vec<Arc<Mutex<()>>>);

/// How many queues there are; documents share them.
const QUEUES: usize = 64;

impl Queues {
    pub(super) fn new() -> Self {
        Self((0..QUEUES).map(|_| Arc::default()).collect())
    }

    async fn wait(&self, document: &str) -> OwnedMutexGuard<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(document);
        let at = usize::try_from(hash % QUEUES as u64).unwrap_or(0);
        self.0.get(at).cloned().unwrap_or_default().lock_owned().await
    }
}

async fn roll_back(inner: &Inner, transaction: Vec<u8>) {
    let database = inner.url.database_path();
    let request = RollbackRequest { database, transaction, ..RollbackRequest::default() };
    if let Ok(mut client) = inner.client().await
        && let Err(status) = client.rollback(request).await
    {
        tracing::debug!(code = ?status.code(), "a transaction that changed nothing could not be ended");
    }
}

/// Reads our fields of a document, and when that was. A transaction that begins with it is noted as soon as it is known.
pub(super) async fn read(
    inner: &Inner,
    document: &str,
    consistency_selector: Option<ConsistencySelector>,
    mut transaction: Option<&mut Vec<u8>>,
) -> TroubleResult<Seen> {
    let request = BatchGetDocumentsRequest {
        database: inner.url.database_path(),
        documents: vec![document.to_owned()],
        mask: Some(DocumentMask { field_paths: inner.url.names.fields() }),
        consistency_selector,
        ..BatchGetDocumentsRequest::default()
    };
    let failed = |status| Trouble::new(&status, Phase::Reading);
    let mut client = inner.client().await?;
    let mut answers = client.batch_get_documents(request).await.map_err(failed)?.into_inner();
    let (mut result, mut read_time) = (None, None);
    while let Some(answer) = answers.message().await.map_err(failed)? {
        if let Some(transaction) = transaction.as_deref_mut().filter(|_| !answer.transaction.is_empty()) {
            *transaction = answer.transaction;
        }
        if let Some(found) = answer.result {
            (result, read_time) = (Some(found), answer.read_time);
        }
    }
    let fields = match result {
        Some(Answer::Found(document)) => Some(document.fields),
        Some(Answer::Missing(_)) => None,
        None => return Err(Trouble::strange("did not say whether there is such a document")),
    };
    let read_time = read_time.ok_or_else(|| Trouble::strange("did not say when it read the document"))?;
    Ok(Seen { fields, now: inner.now(values::millis_of(&read_time)) })
}

/// A write of these fields and no others. A field in the mask that has no value is deleted.
fn write(document: &str, writes: Writes) -> Write {
    let field_paths = writes.keys().cloned().collect();
    let fields =
        writes.into_iter().filter_map(|(name, value)| Some((name, Value { value_type: Some(value?) })));
    let update = Document { name: document.to_owned(), fields: fields.collect(), ..Document::default() };
    Write {
        update_mask: Some(DocumentMask { field_paths }),
        operation: Some(Operation::Update(update)),
        ..Write::default()
    }
}
