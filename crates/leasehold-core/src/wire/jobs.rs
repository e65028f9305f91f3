//! The jobs door as JSON: what workers send, and what they get. Server and clients share these types.
//!
//! Only [`JobGranted`] carries a lease id, and it is for the worker that it belongs to. Payloads and results are any JSON
//! at this door and text in a store; [`value_of`] and [`text_of`] are the one way from one to the other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Secret;
use super::documents::{Held, Holder, maybe_whole, whole};

#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// What a text of a job stands for: the JSON that it is, or else itself.
pub fn value_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The text that stands for a value: [`value_of`] gives the same value again. Equal values have equal texts, whatever the
/// order of their fields was.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Whether a text can stand for itself: it is not taken for other JSON, and every store can keep it.
fn is_plain(text: &str) -> bool {
    !text.contains(char::is_control) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_err()
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum JobStatus {
    /// To be done, and nobody is working on it.
    Queued,
    /// Somebody is working on it.
    Running,
    /// Done.
    Ready,
    /// Given up.
    Failed,
}

/// A job as everybody who may see it sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobState {
    /// The collection.
    pub collection: String,
    /// The id in it.
    pub id: String,
    /// Where it stands.
    pub status: JobStatus,
    /// What is to be done.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "any-json"))]
    pub payload: Value,
    /// How often somebody began with it.
    pub attempts: u32,
    /// How often somebody may; absent when as often as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// What it came to, when it is ready or failed.
    #[serde(flatten)]
    pub finished: JobFinished,
    /// Who is working on it, while somebody is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

/// What a job came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobFinished {
    /// What it came to, when it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "any-json"))]
    pub result: Option<Value>,
    /// Why it was given up, when it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The fence of the attempt that finished it; absent when it was given up after too many attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_by: Option<u64>,
}

/// How long an attempt lasts, and when to do what about that. All times but the first count from when you *sent* the
/// request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobHold {
    /// When the attempt runs out unless it is refreshed, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub expires_at: String,
    /// The same from now on.
    pub expires_in_ms: u64,
    /// How long a refresh lasts.
    pub ttl_seconds: u64,
    /// When to refresh it.
    pub refresh_after_ms: u64,
    /// When to stop working, unless a refresh succeeded before: somebody else may begin soon after that.
    pub stop_after_ms: u64,
    /// You, as others see you.
    pub holder: Holder,
}

/// What an attempt to acquire a job came to. Not getting it is no error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(untagged)]
pub enum JobAcquired {
    /// It is yours.
    Granted(Box<JobGranted>),
    /// It is not.
    Refused(Box<JobRefused>),
}

/// A job that is yours to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobGranted {
    /// `true`.
    pub acquired: bool,
    /// The secret that proves the attempt is yours. Keep it to yourself, and send it with whatever you say about the job.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// Send it along, too, and pass it on to whatever the work changes, which refuses an older one.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub fence: u64,
    /// How long it is yours.
    #[serde(flatten)]
    pub hold: JobHold,
    /// The how-manieth attempt this is.
    pub attempt: u32,
    /// How many there may be; absent when as many as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Whether whoever had the job before vanished: they may have done part of it.
    pub recovered: bool,
    /// What is to be done.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "any-json"))]
    pub payload: Value,
}

/// A job that is not yours to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobRefused {
    /// `false`.
    pub acquired: bool,
    /// Why not.
    pub reason: JobRefusal,
    /// Where the job stands.
    pub status: JobStatus,
    /// What it came to, when it is finished.
    #[serde(flatten)]
    pub finished: JobFinished,
    /// Who is working on it, when it is locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

/// Why a job was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobRefusal {
    /// Nothing is left to be done.
    AlreadyFinished,
    /// Somebody is working on it.
    Locked,
}

/// What became of an attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobFailed {
    /// Whether somebody may try again.
    pub again: bool,
}

// --- what workers send ---

/// The body that makes a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateJob {
    /// What is to be done. The same id with another payload is refused.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "any-json"))]
    pub payload: Value,
    /// How often somebody may begin with it; as often as it takes unless given. It stays as it was when the job is there.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub max_attempts: Option<u64>,
}

/// The body of an acquire. All of it is optional, and so is the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireJob {
    /// A UUID v4 that you drew, so that you can repeat the call: the same one gives the same attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "uuid"))]
    pub lease_id: Option<Secret>,
    /// Which worker you are, for others to see; the name in your token unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 64, format = "printable"))]
    pub worker: Option<String>,
    /// How long the attempt lasts without a refresh; 300 unless given.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400))]
    pub ttl_seconds: Option<u64>,
}

/// The body of a refresh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RefreshJob {
    /// The secret of the attempt.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// Its fence.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    #[serde(deserialize_with = "whole")]
    pub fence: u64,
    /// How long it lasts from now on without a refresh; as long as before unless given.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400))]
    pub ttl_seconds: Option<u64>,
}

/// The body of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseJob {
    /// The secret of the attempt.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// Its fence.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    #[serde(deserialize_with = "whole")]
    pub fence: u64,
}

/// The job is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CompleteJob {
    /// The secret of the attempt.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// Its fence.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    #[serde(deserialize_with = "whole")]
    pub fence: u64,
    /// What it came to.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "any-json"))]
    pub result: Value,
}

/// It did not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FailJob {
    /// The secret of the attempt.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// Its fence.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    #[serde(deserialize_with = "whole")]
    pub fence: u64,
    /// Why, in your words.
    #[cfg_attr(feature = "openapi", schema(format = "job-text"))]
    pub error: String,
    /// Whether somebody should try again, as long as there are attempts left; `true` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_survives_the_way_into_a_text_and_back() {
        let values = [
            json!(null),
            json!(7),
            json!(1.5),
            json!(true),
            json!(""),
            json!("plain"),
            json!("7"),
            json!("null"),
            json!("\"quoted\""),
            json!("a\0b\nc"),
            json!([1, [2]]),
            json!({"b": {"d": 1, "c": 2}, "a": "会議"}),
        ];
        for value in values {
            assert_eq!(value_of(&text_of(&value)), value, "{value}");
            assert!(!text_of(&value).contains('\0'), "{value}");
        }
        for text in ["", "plain", "42", "{\"a\":1}", "not {json"] {
            assert_eq!(text_of(&value_of(text)), text, "{text}");
        }
    }

    #[test]
    fn equal_values_have_equal_texts() {
        let text = |json: &str| text_of(&serde_json::from_str(json).unwrap());
        assert_eq!(
            text(r#"{"page": 7, "deep": {"b": 1, "a": 2}}"#),
            text(r#"{"deep":{"a":2,"b":1},"page":7}"#)
        );
    }

    #[test]
    fn an_acquired_job_and_one_that_was_not_are_told_apart() {
        let refused = r#"{"acquired":false,"reason":"locked","status":"RUNNING"}"#;
        let read: JobAcquired = serde_json::from_str(refused).unwrap();
        assert!(matches!(&read, JobAcquired::Refused(refused) if refused.reason == JobRefusal::Locked));
        assert_eq!(serde_json::to_string(&read).unwrap(), refused);
        let granted = json!({"acquired": true, "lease_id": "x", "fence": 7, "expires_at": "", "expires_in_ms": 1,
            "ttl_seconds": 1, "refresh_after_ms": 1, "stop_after_ms": 1, "holder": {"id": "w", "name": "W"}, "attempt": 1, "recovered": false, "payload": null});
        let read: JobAcquired = serde_json::from_value(granted).unwrap();
        assert!(matches!(&read, JobAcquired::Granted(granted) if granted.payload == json!(null)), "{read:?}");
    }
}
