//! The documents door as JSON: what its callers send, and what they get. Server and clients share these types.
//!
//! Only [`Grant`] and [`Asked`] carry a lease id, and both are for the one it belongs to.

use serde::{Deserialize, Serialize};

use super::{OnSilenceView, Secret};

#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Who holds a document or works on a job, as everybody who may see it sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Holder {
    /// The subject of the holder's token.
    #[cfg_attr(feature = "openapi", schema(example = "user-a"))]
    pub id: String,
    /// The name to show: the worker's own, or that in the token; the subject if there is neither.
    #[cfg_attr(feature = "openapi", schema(example = "Anna"))]
    pub name: String,
}

/// A lock as its holder sees it, after every heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Heartbeat {
    /// Send it with every save: whatever the lock protects refuses an older one.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub fence: u64,
    /// When the lock runs out unless it is renewed, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub expires_at: String,
    /// The same from now on: count from when you *sent* the request.
    pub expires_in_ms: u64,
    /// How long a renewal lasts.
    pub ttl_seconds: u64,
    /// How often to renew it.
    pub heartbeat_seconds: u64,
    /// You.
    pub holder: Holder,
    /// Somebody's request that you hand it over: say that you know of it, then answer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<HandoverRequest>,
}

/// A lock as its holder gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Grant {
    /// The secret that proves the lock is yours. Keep it to yourself.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// The rest.
    #[serde(flatten)]
    pub lock: Heartbeat,
}

/// Somebody's request that a lock be handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct HandoverRequest {
    /// Names it in the answer.
    pub id: u64,
    /// Who asks.
    pub by: Holder,
    /// What happens when the holder was told and does not answer.
    pub on_silence: OnSilenceView,
    /// How long the holder has to answer, from when it was told.
    pub countdown_ms: u64,
    /// How long until silence is an answer; absent as long as the holder has not said that it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_ms: Option<u64>,
    /// How long the request stands unless whoever asks repeats it.
    pub lapses_in_ms: u64,
}

/// What whoever asks for a hand-over gets while the holder has not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Asked {
    /// The secret of the lock that you will get. Repeat the call with it, before the request lapses.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// The request.
    pub request: HandoverRequest,
    /// Who holds the lock.
    pub holder: Holder,
    /// The fence of the holder's lock.
    pub fence: u64,
    /// How long the holder's lock lasts unless it is renewed.
    pub expires_in_ms: u64,
}

/// A document's lock as everybody who may see the document sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LockState {
    /// The document.
    #[serde(rename = "roomId")]
    pub room_id: String,
    /// Whether somebody holds it.
    pub locked: bool,
    /// The number of the last event of this document that is contained here.
    pub seq: u64,
    /// What is known while somebody holds it.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockView>,
}

/// What is known about a lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LockView {
    /// Who holds it.
    pub holder: Holder,
    /// The fence of the grant; name it to take it over or to request it.
    pub fence: u64,
    /// How long it has been held.
    pub held_for_ms: u64,
    /// When it runs out unless it is renewed, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub expires_at: String,
    /// The same from now on.
    pub expires_in_ms: u64,
    /// Whether the holder is the caller, in this tab or another.
    pub same_user: bool,
    /// Whether the holder is the caller in this very tab, or by its `Lease-Id`.
    pub yours: bool,
    /// Whether the holder is probably leaving.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Somebody's request that it be handed over.
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

/// What is known about a fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Checked {
    /// Whether it is the fence of the lock that is held now.
    pub current: bool,
    /// Whether anybody holds the document.
    pub locked: bool,
    /// The fence of the lock that is held now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
}

/// How a soft release went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Leaving {
    /// How long the lock still lasts unless the page comes back.
    pub expires_in_ms: u64,
}

/// How the holder's answer to a request was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Answered {
    /// Whether the lock went to whoever asked.
    pub handed_over: bool,
    /// Who has the lock now.
    pub holder: Holder,
}

/// That the holder knows of a request was taken down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Told {
    /// How long the holder has to answer.
    pub ends_in_ms: u64,
}

/// A short-lived stand-in for a token in the address of an event stream, because `EventSource` sends no headers.
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
    /// A UUID v4 that you drew before the first attempt: then a repeated attempt cannot get a second lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "uuid"))]
    pub lease_id: Option<Secret>,
}

/// The body of a soft release, and of nothing else: here the lease id is the proof, no token is needed.
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
    /// The secret that the page kept. It is over once this succeeds.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// The next one: a UUID v4 that you drew, so that you can repeat the call.
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
    /// Why; the holder sees it, and it is kept.
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
    /// Why; the holder sees it, and it is kept.
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
    /// What happens when the holder was told and does not answer; `refuse` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_silence: Option<OnSilenceView>,
    /// How long the holder has to answer, from when it was told; 30 by default, and at least 6 (a fifth of the TTL) when
    /// silence grants.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400))]
    pub countdown_seconds: Option<u64>,
    /// How long the request stands without being repeated; 30 by default, and 60 however much more is asked for.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400))]
    pub patience_seconds: Option<u64>,
    /// As in an acquire. Repeat the call with the one you sent or got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "uuid"))]
    pub lease_id: Option<Secret>,
}

/// The holder says that it knows of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ToldBody {
    /// Which one.
    #[serde(deserialize_with = "whole")]
    pub request: u64,
}

/// The holder answers a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AnswerBody {
    /// Which one.
    #[serde(deserialize_with = "whole")]
    pub request: u64,
    /// Whether to hand over. Save first.
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

/// The answers to many heartbeats, in the order in which they were asked.
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
    /// What the single call would have answered: 200, 403, 404 …
    pub status: u16,
    /// The lock, if it was renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Heartbeat>,
    /// Otherwise, why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// A whole number. JSON does not tell `7` from `7.0`, and some languages write the latter.
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

/// The same, where it may be missing.
pub(super) fn maybe_whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Number(#[serde(deserialize_with = "whole")] u64);
    Ok(Option::<Number>::deserialize(from)?.map(|number| number.0))
}

// --- what happened ---

/// Something that happened to a document's lock.
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
    /// Who holds that lock, or held it.
    pub holder: Holder,
    /// How long the lock lasted at that moment unless it was renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<UnlockReason>,
    /// Who took it, got it, ended it, or asked for it (the subject of their token).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// In their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What silence means, when somebody asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_silence: Option<OnSilenceView>,
    /// How long the holder has to answer, once it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_ms: Option<u64>,
}

/// What can happen to a document's lock.
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
    /// The name, as it stands in a stream.
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
#[allow(missing_docs)] // the same as in `EndReason`; a forced release is told as a take-over
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

/// Something that somebody did to another's lock, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AuditEntry {
    /// Its place among all events of the store.
    pub position: u64,
    /// When it was written down, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub at: String,
    /// What was done.
    pub action: AuditAction,
    /// To which document.
    #[serde(rename = "roomId")]
    pub room_id: String,
    /// The fence of the lock that ended.
    pub fence: u64,
    /// Who had held it (the subject of their token).
    pub holder: String,
    /// Who did it.
    pub by: String,
    /// Why, in their words.
    pub reason: String,
}

/// An entry of the audit, and where it stands there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AuditLine {
    /// Pass it as `after` to see only what came later. It grows, with gaps, and begins anew with a new audit.
    pub number: u64,
    /// What was done.
    #[serde(flatten)]
    pub entry: AuditEntry,
}

/// What somebody did to another's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// Took it.
    TakenOver,
    /// Ended it.
    ForceReleased,
}

/// A page of what was done to others' locks, oldest first.
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
    /// What went wrong, for people, in the language that was asked for.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong, for programs. It stays the same over all versions.
    pub code: String,
    /// What exactly, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Who holds the document or works on the job, where that is what went wrong.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Why the lease id that was sent is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// Who is in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Held {
    /// Who holds the document, or works on the job.
    pub holder: Holder,
    /// The fence of their lock, to name when you take it over or request it.
    pub fence: u64,
    /// When it runs out unless it is renewed, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub expires_at: String,
    /// The same from now on.
    pub expires_in_ms: u64,
    /// Whether it is you, in another tab or worker.
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
