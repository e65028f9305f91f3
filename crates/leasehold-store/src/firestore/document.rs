//! The job's own document: which of its fields are ours, what they say, and what is to be written into them.
//!
//! The document belongs to the user. Only the fields named in [`Names`] are read or written, and each is understood in
//! whatever shape another program may have left it; what makes no sense counts as absent, except for a fence: see
//! [`Found::check_fence`]. Nothing is decided here: the fields become a [`Record`], and the rules of `leasehold-core` say what
//! follows.
//!
//! `lockState` keeps what no other field has: it is ours alone. It repeats owner and expiry as we wrote them. Where
//! those differ from `lockOwner` and `lockExpiresAt`, another program has taken the lock since, and our attempt is over.

use std::collections::{BTreeMap, HashMap};

use gcloud_sdk::google::firestore::v1::Value;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use leasehold_core::job::{Job, JobText, Record, Status};
use leasehold_core::lease::{Lease, LossReason, REMEMBERED};
use leasehold_core::{Fence, Invalid, Key, LeaseId, Owner, Slot, StoreTime, TabId, Ttl};
use serde_json::json;

use super::attempt::{self, Veil};
use super::url::Names;
use super::values::{self, text_of};
use crate::changes::{Changes, Ending, Known};
use crate::columns;

/// The fields of a document.
pub(super) type Fields = HashMap<String, Value>;

/// What is to be written: a value, or nothing where the field is to go.
pub(super) type Writes = BTreeMap<String, Option<ValueType>>;

/// How many ended attempts a document remembers. Only those of the last ten minutes count.
const ENDED_KEPT: usize = 20;

/// Who holds a lock whose owner cannot be shown.
const UNREADABLE_OWNER: &str = "unknown";

/// A fence that no attempt has: ours follow the clock.
const NOBODYS: Fence = Fence::MIN;

/// Everything that our fields say.
pub(super) struct Found {
    pub(super) record: Record,
    last_fence: u64,
    /// A value in the field of the fence that no fence can follow.
    foreign_fence: Option<Invalid>,
    ended: Vec<Ending>,
}

impl Found {
    /// Reads the fields of a document; `None` when there is no document.
    pub(super) fn read(names: &Names, key: &Key, fields: Option<&Fields>) -> Self {
        match fields {
            None => Self { record: Record::default(), last_fence: 0, foreign_fence: None, ended: Vec::new() },
            Some(fields) => Reader { names, key, fields, state: State::read(names, fields) }.found(),
        }
    }

    /// Nothing so far, at `now`. Fences follow Firestore's clock, so that they go on growing when the document is deleted
    /// and made anew, or put back to a backup.
    pub(super) fn changes(&self, now: StoreTime) -> Changes {
        Changes::new(now, self.last_fence.max(now.as_millis()))
    }

    /// Refuses a decision that granted a lease, where its fence cannot be known to be larger than the one in the document:
    /// another program wrote a value there that is no number, or larger than all fences.
    pub(super) fn check_fence(&self, after: &Slot) -> Result<(), Invalid> {
        let fence = |slot: &Slot| slot.lease.as_ref().map(|lease| lease.fence);
        match &self.foreign_fence {
            Some(invalid) if fence(after).is_some() && fence(after) != fence(&self.record.slot) => {
                Err(invalid.clone())
            }
            _ => Ok(()),
        }
    }

    /// What the document knows about the lease id that a command comes with.
    pub(super) fn known(&self, now: StoreTime, asked: Option<&LeaseId>) -> Known {
        let own = self.ended.iter().rev().find(|ending| Some(&ending.lease_id) == asked);
        let remembered = own.filter(|ending| ending.at + REMEMBERED > now).map(|ending| ending.because);
        Known { remembered, ..Known::default() }
    }

    /// What is to be written so that the document says `after`; empty when nothing has changed.
    pub(super) fn writes(&self, names: &Names, after: &Record, changes: &Changes, veil: &Veil) -> Writes {
        let (before, mut writes) = (&self.record, Writes::new());
        if changes.is_empty() {
            return writes;
        }
        if after.slot.lease != before.slot.lease {
            write_lock(&mut writes, names, before.slot.lease.as_ref(), after.slot.lease.as_ref(), veil);
        }
        if let Some(job) = &after.job {
            write_job(&mut writes, names, before.job.as_ref(), job);
        }
        let ended = self.ended_with(changes);
        writes.insert(names.state.clone(), Some(values::string(state_text(after, &ended))));
        writes
    }

    fn ended_with(&self, changes: &Changes) -> Vec<Ending> {
        let foreign = attempt::foreign();
        let young = self.ended.iter().filter(|ending| ending.at + REMEMBERED > changes.now);
        let all = young.chain(&changes.endings).filter(|ending| ending.lease_id != foreign);
        let ended: Vec<_> = all.cloned().collect();
        let too_many = ended.len().saturating_sub(ENDED_KEPT);
        ended.into_iter().skip(too_many).collect()
    }
}

fn write_lock(
    writes: &mut Writes,
    names: &Names,
    before: Option<&Lease>,
    after: Option<&Lease>,
    veil: &Veil,
) {
    let Some(lease) = after else {
        // The fence stays: the next one is larger.
        for name in [&names.owner, &names.expires_at, &names.heartbeat_at, &names.attempt] {
            writes.insert(name.clone(), None);
        }
        return;
    };
    let mut set = |name: &str, value| writes.insert(name.to_owned(), Some(value));
    set(&names.owner, values::string(lease.owner.to_string()));
    set(&names.expires_at, values::string(values::iso(lease.expires_at)));
    set(&names.heartbeat_at, values::string(values::iso(lease.renewed_at)));
    set(&names.fence, values::integer(lease.fence.get()));
    if before.is_none_or(|before| before.lease_id != lease.lease_id) {
        let whole = veil.attempt(&lease.lease_id).map(str::to_owned);
        set(&names.attempt, values::string(whole.unwrap_or_else(|| attempt::digits(&lease.lease_id))));
    }
}

fn write_job(writes: &mut Writes, names: &Names, before: Option<&Job>, after: &Job) {
    let mut put = |name: &str, value| writes.insert(name.to_owned(), value);
    if before.is_none_or(|before| before.payload != after.payload) {
        put(&names.payload, Some(values::of_job_text(after.payload.as_str())));
    }
    if before.is_none_or(|before| before.max_attempts != after.max_attempts) {
        put(&names.max_attempts, after.max_attempts.map(|most| values::integer(most.into())));
    }
    if before.is_none_or(|before| before.attempts != after.attempts) {
        put(&names.attempts, Some(values::integer(after.attempts.into())));
    }
    if before.is_some_and(|before| before.status == after.status) {
        return;
    }
    let (word, result, error) = match &after.status {
        Status::Queued => (&names.queued, None, None),
        Status::Ready { result, .. } => (&names.ready, Some(result), None),
        Status::Failed { error, .. } => (&names.failed, None, Some(error)),
    };
    put(&names.status, Some(values::string(word.as_str())));
    put(&names.result, result.map(|result| values::of_job_text(result.as_str())));
    put(&names.error, error.map(|error| values::string(error.as_str())));
}

/// What no other field has, as JSON: one field costs Firestore one index entry, a map one for each of its own.
fn state_text(after: &Record, ended: &[Ending]) -> String {
    let lease = after.slot.lease.as_ref();
    let millis = |time: StoreTime| time.as_millis();
    let by = after.job.as_ref().and_then(|job| match &job.status {
        Status::Queued => None,
        Status::Ready { by, .. } => Some(by.get()),
        Status::Failed { by, .. } => by.map(Fence::get),
    });
    json!({
        "v": VERSION,
        "seq": after.slot.seq,
        "vacantSince": millis(after.slot.vacant_since),
        "owner": lease.map(|lease| lease.owner.as_str()),
        "expiresAt": lease.map(|lease| millis(lease.expires_at)),
        "acquiredAt": lease.map(|lease| millis(lease.acquired_at)),
        "renewedAt": lease.map(|lease| millis(lease.renewed_at)),
        "ttl": lease.map(|lease| lease.ttl.as_millis()),
        "leaving": lease.is_some_and(|lease| lease.leaving),
        "tab": lease.and_then(|lease| lease.tab.as_ref()).map(TabId::as_str),
        "meta": lease.and_then(|lease| columns::meta_text(&lease.meta)),
        "request": lease.and_then(|lease| lease.request.as_deref().map(columns::request_text)),
        "job": after.job.as_ref().map(|job| {
            json!({ "begun": job.begun, "changedAt": millis(job.changed_at), "by": by })
        }),
        "ended": ended.iter().map(|ending| {
            json!([attempt::digits(&ending.lease_id), ending.because.as_str(), millis(ending.at)])
        }).collect::<Vec<_>>(),
    })
    .to_string()
}

/// The version of `lockState`. Another one counts as absent.
const VERSION: u64 = 1;

/// `lockState`, parsed.
struct State(serde_json::Value);

impl State {
    fn read(names: &Names, fields: &Fields) -> Self {
        let text = fields.get(&names.state).and_then(text_of).unwrap_or_default();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let is_known = value.get("v").and_then(serde_json::Value::as_u64) == Some(VERSION);
        Self(if is_known { value } else { serde_json::Value::Null })
    }

    fn is_there(&self) -> bool {
        !self.0.is_null()
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn number(&self, pointer: &str) -> Option<u64> {
        self.0.pointer(pointer)?.as_u64()
    }

    fn time(&self, pointer: &str) -> Option<StoreTime> {
        self.number(pointer).map(StoreTime::from_millis)
    }

    fn is(&self, pointer: &str) -> bool {
        self.0.pointer(pointer).and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// Whether we wrote the document for a lease alone, so that there is no job in it.
    fn is_without_job(&self) -> bool {
        self.is_there() && self.0.get("job").is_none_or(serde_json::Value::is_null)
    }

    fn ended(&self, key: &Key) -> Vec<Ending> {
        let list = self.0.get("ended").and_then(serde_json::Value::as_array);
        list.into_iter().flatten().filter_map(|value| ending(key, value)).collect()
    }
}

fn ending(key: &Key, value: &serde_json::Value) -> Option<Ending> {
    let lease_id = attempt::id_of(value.get(0)?.as_str()?)?;
    let because = LossReason::parse(value.get(1)?.as_str()?)?;
    let at = StoreTime::from_millis(value.get(2)?.as_u64()?);
    Some(Ending { at, key: key.clone(), lease_id, because })
}

/// Makes sense of a document.
struct Reader<'a> {
    names: &'a Names,
    key: &'a Key,
    fields: &'a Fields,
    state: State,
}

impl Reader<'_> {
    fn found(&self) -> Found {
        let seq = self.state.number("/seq").unwrap_or(0);
        let vacant_since = self.state.time("/vacantSince").unwrap_or(StoreTime::ZERO);
        let slot = Slot { seq, lease: self.lease(), vacant_since };
        let record = Record { job: self.job(), slot };
        let (last_fence, foreign_fence) = match self.last_fence() {
            Ok(fence) => (fence, None),
            Err(invalid) => (0, Some(invalid)),
        };
        Found { record, last_fence, foreign_fence, ended: self.state.ended(self.key) }
    }

    /// The number that the next fence has to be larger than.
    fn last_fence(&self) -> Result<u64, Invalid> {
        let name = &self.names.fence;
        let Some(value) = self.field(name).filter(|value| !values::is_empty(value)) else { return Ok(0) };
        if let Some(fence) = values::fence_of(value).filter(|fence| *fence < Fence::MAX.get()) {
            return Ok(fence);
        }
        let rule =
            format!("the next fence has to be larger, and fences are whole numbers up to {}", Fence::MAX);
        let fix = format!(
            "write the last fence that was used into the field {name} of the document, or delete the field"
        );
        Err(Invalid::new("fence in the document", &values::job_text_of(value), rule, fix))
    }

    fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.field(name).and_then(text_of)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name).and_then(values::number_of)
    }

    fn fence(&self) -> Option<Fence> {
        self.number(&self.names.fence).and_then(|fence| Fence::new(fence).ok())
    }

    /// The owner of the lock as the field says it; `None` when the job is free.
    fn owner(&self) -> Option<String> {
        self.field(&self.names.owner).filter(|value| !values::is_empty(value)).and_then(text_of)
    }

    fn lease(&self) -> Option<Lease> {
        let said = self.owner()?;
        let shown = Owner::parse(&said).or_else(|_| Owner::parse(UNREADABLE_OWNER)).ok()?;
        // Missing or unreadable: stale, as if it had expired long ago.
        let expires_at =
            self.field(&self.names.expires_at).and_then(values::time_of).unwrap_or(StoreTime::ZERO);
        Some(self.own_lease(&said, expires_at).unwrap_or_else(|| self.foreign_lease(shown, expires_at)))
    }

    /// The lease that we wrote, if it is the one that the other fields speak of.
    fn own_lease(&self, said: &str, expires_at: StoreTime) -> Option<Lease> {
        let state = &self.state;
        let is_ours = state.text("owner") == Some(said) && state.time("/expiresAt") == Some(expires_at);
        let lease_id = attempt::id_of(&self.text(&self.names.attempt)?)?;
        if !is_ours {
            return None;
        }
        Some(Lease {
            owner: Owner::parse(said).ok()?,
            tab: columns::parse_tab(state.text("tab"))?,
            lease_id,
            fence: self.fence()?,
            acquired_at: state.time("/acquiredAt")?,
            renewed_at: state.time("/renewedAt")?,
            expires_at,
            ttl: columns::ttl(state.number("/ttl")?)?,
            leaving: state.is("/leaving"),
            meta: columns::parse_meta(state.text("meta"))?,
            request: columns::parse_request(state.text("request"))?,
        })
    }

    /// The lock of another program, which says only who and until when.
    fn foreign_lease(&self, owner: Owner, expires_at: StoreTime) -> Lease {
        let seen = self.field(&self.names.heartbeat_at).and_then(values::time_of).unwrap_or(StoreTime::ZERO);
        Lease {
            owner,
            tab: None,
            lease_id: attempt::foreign(),
            fence: self.fence().unwrap_or(NOBODYS),
            acquired_at: seen,
            renewed_at: seen,
            expires_at,
            ttl: Ttl::MIN,
            leaving: false,
            meta: leasehold_core::Meta::default(),
            request: None,
        }
    }

    fn job(&self) -> Option<Job> {
        if self.state.is_without_job() {
            return None;
        }
        let small = |name: &str| self.number(name).and_then(|number| u32::try_from(number).ok());
        let is_taken = self.lease().is_some_and(|lease| lease.lease_id == attempt::foreign());
        Some(Job {
            payload: self.job_text(&self.names.payload),
            status: self.status(),
            attempts: small(&self.names.attempts).unwrap_or(0),
            max_attempts: small(&self.names.max_attempts),
            // A lock of another program counts as begun, too.
            begun: self.state.is("/job/begun") || is_taken,
            changed_at: self.state.time("/job/changedAt").unwrap_or(StoreTime::ZERO),
        })
    }

    fn status(&self) -> Status {
        let word = self.text(&self.names.status).unwrap_or_default();
        let by = self.state.number("/job/by").and_then(|by| Fence::new(by).ok());
        if word == self.names.ready {
            Status::Ready { result: self.job_text(&self.names.result), by: by.unwrap_or(NOBODYS) }
        } else if word == self.names.failed {
            Status::Failed { error: self.error(), by }
        } else if self.names.finished.contains(&word) {
            Status::Failed { error: JobText::parse(&word).unwrap_or_default(), by: None }
        } else {
            Status::Queued
        }
    }

    /// A payload or a result; empty where there is nothing, or more than may be passed on.
    fn job_text(&self, name: &str) -> JobText {
        let text = self.field(name).map(values::job_text_of).unwrap_or_default();
        JobText::parse(&text).unwrap_or_default()
    }

    fn error(&self) -> JobText {
        JobText::parse(&self.text(&self.names.error).unwrap_or_default()).unwrap_or_default()
    }
}
