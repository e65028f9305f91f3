//! The JSON of the documents door: bodies, answers and events. Server and clients share these types.
//!
//! Only [`Grant`] and [`Asked`] carry a lease id, and each goes to the caller whose lease it is.

use serde::{Deserialize, Serialize};

use super::{OnSilenceView, Secret};

#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The holder of a document or the worker of a job, as shown to every caller who may see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Holder {
    /// The subject of the holder's token.
    #[cfg_attr(feature = "openapi", schema(example = "user-a"))]
    pub id: String,
    /// The display name: the worker's, else the one in the token, else the subject.
    #[cfg_attr(feature = "openapi", schema(example = "Anna"))]
    pub name: String,
}

/// A lock as its holder sees it: the answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Heartbeat {
    /// Send it with every save, so that the storage can refuse a save with a lower one.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub fence: u64,
    /// When the lock expires unless it is renewed, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub expires_at: String,
    /// The same in milliseconds, counted from when you *sent* the request.
    pub expires_in_ms: u64,
    /// How long a renewal lasts.
    pub ttl_seconds: u64,
    /// How often to renew it.
    pub heartbeat_seconds: u64,
    /// The caller, as others see it.
    pub holder: Holder,
    /// A pending request to hand the lock over: confirm that you know of it, then answer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<HandoverRequest>,
}

/// A lock that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Grant {
    /// The secret of the lock: it lets its bearer act as the holder.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// The lock.
    #[serde(flatten)]
    pub lock: Heartbeat,
}

/// A request to hand a lock over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct HandoverRequest {
    /// The number of the request: name it when you answer.
    pub id: u64,
    /// The caller who requests the lock.
    pub by: Holder,
    /// What happens when the holder knows of the request and does not answer.
    pub on_silence: OnSilenceView,
    /// How long the holder has to answer, from when it knows of the request.
    pub countdown_ms: u64,
    /// How long until the holder's silence counts; absent until the holder has confirmed that it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_ms: Option<u64>,
    /// How long until the request lapses unless it is repeated.
    pub lapses_in_ms: u64,
}

/// The answer to a request for a hand-over while the holder has not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Asked {
    /// The secret of the lock that you may get. Repeat the call with it before the request lapses.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// The request.
    pub request: HandoverRequest,
    /// The holder of the lock.
    pub holder: Holder,
    /// The fence of the holder's lock.
    pub fence: u64,
    /// How long the holder's lock lasts unless it is renewed.
    pub expires_in_ms: u64,
}

/// A document's lock, as shown to every caller who may see the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LockState {
    /// The document.
    #[serde(rename = "roomId")]
    pub room_id: String,
    /// Whether it is locked.
    pub locked: bool,
    /// The number of the last event of this document that this state contains.
    pub seq: u64,
    /// What the caller may do with the document. A server that does not say allows at least to read.
    #[serde(default)]
    pub may: Access,
    /// The lock, while there is one.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockView>,
}

/// A level of access to a document. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// See who holds it.
    #[default]
    Read,
    /// Lock it.
    Lock,
    /// Take it from its holder.
    Force,
}

/// The caller, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Me {
    /// The subject of the caller's token.
    pub id: String,
    /// The display name, which others see.
    pub name: String,
    /// How long the token is still valid; absent if it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LockView {
    /// The holder.
    pub holder: Holder,
    /// The fence of the lock: name it to take the lock over or to request it.
    pub fence: u64,
    /// How long it has been held.
    pub held_for_ms: u64,
    /// When it expires unless it is renewed, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub expires_at: String,
    /// The same in milliseconds from now.
    pub expires_in_ms: u64,
    /// Whether the holder is the caller, in this tab or another.
    pub same_user: bool,
    /// Whether the lock is the caller's own: by its `Lease-Id`, or by user and tab.
    pub yours: bool,
    /// Whether the holder has released it softly: it expires soon unless the page comes back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// A pending request to hand it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<HandoverRequest>,
}

/// A page of the documents that are locked and that the caller may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DocumentPage {
    /// The locks, in the order of the documents' names.
    pub documents: Vec<LockState>,
    /// Pass it as `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Who is at a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DocumentPresence {
    /// Who holds the lock: one, or nobody.
    pub editing: Vec<Holder>,
    /// Who has requested it: one, or nobody.
    pub asking: Vec<Holder>,
    /// Who else has the document open, in the order of their ids.
    pub looking: Vec<Holder>,
}

/// The answer to a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Checked {
    /// Whether it is the fence of the current lock.
    pub current: bool,
    /// Whether the document is locked.
    pub locked: bool,
    /// The fence of the current lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
}

/// The answer to a soft release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SoftReleased {
    /// How long until the lock expires unless the page comes back.
    pub expires_in_ms: u64,
}

/// The result of the holder's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Answered {
    /// Whether the lock was handed over.
    pub handed_over: bool,
    /// The holder from now on.
    pub holder: Holder,
}

/// The answer to a holder that has confirmed a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Told {
    /// How long the holder has to answer.
    pub ends_in_ms: u64,
}

/// A short-lived replacement for a token in the address of an event stream, because `EventSource` sends no headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Ticket {
    /// Pass it as `?ticket=` to an event stream.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub ticket: Secret,
    /// How long a stream can be opened with it.
    pub expires_in_ms: u64,
}

// --- what callers send ---

/// The body of an acquire. All of it is optional, and so is the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireBody {
    /// A random UUID (version 4) of your own, made before the first attempt, so that you can repeat the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "uuid"))]
    pub lease_id: Option<Secret>,
}

/// The body of a soft release. It needs no token: the lease id authorises it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody {
    /// The secret of the lock.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
}

/// The body of a resume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResumeBody {
    /// The secret that the page has kept. It ends when this call succeeds.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// The next secret: a random UUID (version 4) of your own, so that you can repeat the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "uuid"))]
    pub next_lease_id: Option<Secret>,
}

/// The body of a take-over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TakeOverBody {
    /// The fence of the lock that you want to take, as you saw it.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    #[serde(deserialize_with = "whole")]
    pub fence: u64,
    /// Why. The holder sees it, and the audit keeps it.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512, format = "reason"))]
    pub reason: String,
    /// As in an acquire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "uuid"))]
    pub lease_id: Option<Secret>,
}

/// The body of a forced release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ForceReleaseBody {
    /// The fence of the lock that you want to end, as you saw it.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    #[serde(deserialize_with = "whole")]
    pub fence: u64,
    /// Why. The holder sees it, and the audit keeps it.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512, format = "reason"))]
    pub reason: String,
}

/// The body of a request to hand over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RequestBody {
    /// The fence of the lock that you want, as you saw it.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    #[serde(deserialize_with = "whole")]
    pub fence: u64,
    /// What happens when the holder knows of the request and does not answer; `refuse` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_silence: Option<OnSilenceView>,
    /// How long the holder has to answer, from when it knows of the request; 30 by default. At least 6 (a fifth of the TTL)
    /// when silence grants.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400))]
    pub countdown_seconds: Option<u64>,
    /// How long until the request lapses unless it is repeated; 30 by default, and 60 at most: higher values count as 60.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400))]
    pub patience_seconds: Option<u64>,
    /// As in an acquire. Repeat the call with the one that you sent or got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "uuid"))]
    pub lease_id: Option<Secret>,
}

/// The holder confirms that it knows of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ToldBody {
    /// The number of the request.
    #[serde(deserialize_with = "whole")]
    pub request: u64,
}

/// The holder answers a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AnswerBody {
    /// The number of the request.
    #[serde(deserialize_with = "whole")]
    pub request: u64,
    /// Whether to hand over. Save before you do.
    pub hand_over: bool,
}

/// The body of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckBody {
    /// The fence that came with a save.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    #[serde(deserialize_with = "whole")]
    pub fence: u64,
}

/// Many heartbeats in one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeartbeatsBody {
    /// The locks to renew.
    #[cfg_attr(feature = "openapi", schema(max_items = 500))]
    pub locks: Vec<HeartbeatOf>,
}

/// One of many heartbeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeartbeatOf {
    /// The document.
    #[serde(rename = "roomId")]
    #[cfg_attr(feature = "openapi", schema(format = "room-id"))]
    pub room_id: String,
    /// The secret of its lock.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
}

/// The answers to many heartbeats, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Heartbeats {
    /// One answer for each.
    pub locks: Vec<HeartbeatResult>,
}

/// The answer to one of many heartbeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct HeartbeatResult {
    /// The document.
    #[serde(rename = "roomId")]
    pub room_id: String,
    /// The status that the single call would have had.
    pub status: u16,
    /// The lock, if it was renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Heartbeat>,
    /// Otherwise the code that the single call would have had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// Parses a whole number. JSON does not distinguish `7` from `7.0`, and some languages write the latter.
pub(super) fn whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    struct Whole;
    impl serde::de::Visitor<'_> for Whole {
        type Value = u64;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a whole number that is not negative")
        }

        fn visit_u64<E>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<u64, E> {
            let exact = (0.0..=crate::Fence::MAX.get() as f64).contains(&number) && number.fract() == 0.0;
            if exact {
                Ok(number as u64)
            } else {
                Err(E::invalid_value(serde::de::Unexpected::Float(number), &self))
            }
        }
    }
    from.deserialize_any(Whole)
}

/// The same for an optional number.
pub(super) fn maybe_whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Number(#[serde(deserialize_with = "whole")] u64);
    Ok(Option::<Number>::deserialize(from)?.map(|number| number.0))
}

// --- what happened ---

/// An event of a document's lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DocumentEvent {
    /// What happened; also the name of the server-sent event.
    pub event: EventName,
    /// The document.
    #[serde(rename = "roomId")]
    pub room_id: String,
    /// Its number among the events of the document: each is one more than the one before.
    pub seq: u64,
    /// The fence of the lock concerned.
    pub fence: u64,
    /// The holder of that lock.
    pub holder: Holder,
    /// How long until the lock expires unless it is renewed, at the moment of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<UnlockReason>,
    /// Whether it was ended by force: `taken_over` without a new holder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force_released: bool,
    /// Who took it, got it, ended it or requested it: the subject of their token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Their display name, if the server knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// The reason that they gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the holder's silence means, in a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_silence: Option<OnSilenceView>,
    /// How long the holder has to answer, once it knows of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_ms: Option<u64>,
}

/// The kinds of events of a document's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[allow(missing_docs)] // the same as in `EventKind`
pub enum EventName {
    DocumentLocked,
    DocumentUnlocked,
    DocumentLeaving,
    DocumentResumed,
    HandoverRequested,
    HandoverTold,
    HandoverRefused,
    HandoverWithdrawn,
}

impl EventName {
    /// The event's name in a stream.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DocumentLocked => "DocumentLocked",
            Self::DocumentUnlocked => "DocumentUnlocked",
            Self::DocumentLeaving => "DocumentLeaving",
            Self::DocumentResumed => "DocumentResumed",
            Self::HandoverRequested => "HandoverRequested",
            Self::HandoverTold => "HandoverTold",
            Self::HandoverRefused => "HandoverRefused",
            Self::HandoverWithdrawn => "HandoverWithdrawn",
        }
    }
}

/// Why a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the same as in `EndReason`; a forced release is `TakenOver`, and the event says so beside it
pub enum UnlockReason {
    Released,
    Expired,
    TakenOver,
    HandedOver,
    Disconnected,
}

/// The data of an event about one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(untagged)]
pub enum RoomData {
    /// Something happened to its lock.
    Event(DocumentEvent),
    /// `snapshot`: its current state.
    Snapshot(LockState),
    /// `end`: the last event of a stream that the server ends.
    End(EndOfStream),
}

/// The data of an event about all documents that the caller may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(untagged)]
pub enum AllData {
    /// Something happened to the lock of one of them.
    Event(DocumentEvent),
    /// `snapshot`: their current state, or part of it.
    Snapshot(SnapshotOfAll),
    /// `end`: the last event of a stream that the server ends.
    End(EndOfStream),
}

/// The current state of the documents that are locked and that the caller may see, or part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SnapshotOfAll {
    /// The locks, in the order of the documents' names.
    pub documents: Vec<LockState>,
    /// Whether another part follows.
    #[serde(default)]
    pub more: bool,
}

/// The last event of a stream that the server ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct EndOfStream {
    /// Why it ends.
    pub reason: StreamEnd,
}

/// Why the server ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StreamEnd {
    /// The token that opened it has expired.
    TokenExpired,
    /// The watcher did not read as fast as events came.
    TooSlow,
    /// The server shuts down.
    ShuttingDown,
}

impl StreamEnd {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::TokenExpired, Self::TooSlow, Self::ShuttingDown];

    /// The word for it in JSON and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TokenExpired => "token_expired",
            Self::TooSlow => "too_slow",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// A take-over or a forced release, as the audit keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AuditEntry {
    /// Its place among all events of the store.
    pub position: u64,
    /// When it was recorded, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub at: String,
    /// What was done.
    pub action: AuditAction,
    /// The document.
    #[serde(rename = "roomId")]
    pub room_id: String,
    /// The fence of the lock that ended.
    pub fence: u64,
    /// The holder whose lock ended: the subject of their token.
    pub holder: String,
    /// Who did it: the subject of their token.
    pub by: String,
    /// The reason that they gave.
    pub reason: String,
}

/// An entry of the audit, with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AuditLine {
    /// Pass it as `after` to get only later entries. It grows, with gaps, and begins again with a new audit file.
    pub number: u64,
    /// What was done.
    #[serde(flatten)]
    pub entry: AuditEntry,
    /// The display name of the holder whose lock ended, if the server knows it at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_name: Option<String>,
    /// The same of the caller who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
}

/// What was done to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// It was taken over.
    TakenOver,
    /// It was released by force.
    ForceReleased,
}

/// A page of the audit, oldest entries first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditLine>,
    /// Pass it as `after` for the next page, which may be empty and still have a next one; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

// --- what went wrong ---

/// What went wrong (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Problem {
    /// Where to read more.
    #[serde(rename = "type")]
    pub kind: String,
    /// What went wrong, for people, in the language of `Accept-Language`.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong, for programs. A code never changes its meaning.
    pub code: String,
    /// The details, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The holder of the document or the worker of the job, where that is why the call was refused.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Why the lease has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// The holder of a document or the worker of a job that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Held {
    /// The holder or worker.
    pub holder: Holder,
    /// The fence of their lock: name it to take the lock over or to request it.
    pub fence: u64,
    /// When it expires unless it is renewed, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub expires_at: String,
    /// The same in milliseconds from now.
    pub expires_in_ms: u64,
    /// Whether it is the caller, in another tab or worker.
    pub same_user: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        let check = |text: &str| serde_json::from_str::<CheckBody>(text).map(|body| body.fence).ok();
        assert_eq!((check(r#"{"fence": 7}"#), check(r#"{"fence": 7.0}"#)), (Some(7), Some(7)));
        for bad in ["7.5", "-1", "-1.0", "1e300", "null", "\"7\"", "true"] {
            assert_eq!(check(&format!(r#"{{"fence": {bad}}}"#)), None, "{bad}");
        }
        let request =
            |text: &str| serde_json::from_str::<RequestBody>(text).map(|body| body.countdown_seconds).ok();
        assert_eq!(request(r#"{"fence": 1}"#), Some(None));
        assert_eq!(request(r#"{"fence": 1, "countdown_seconds": null}"#), Some(None));
        assert_eq!(request(r#"{"fence": 1, "countdown_seconds": 5.0}"#), Some(Some(5)));
    }
}
