//! The jobs door as JSON: what workers send, and what they get. Server and clients share these types.
//!
//! Only [`JobGranted`] carries a lease id, and it is for the worker that it belongs to. Payloads and results are any JSON at
//! this door, as [`Json`]: their numbers arrive with the digits that they were sent with.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::Secret;
use super::documents::{Held, Holder, maybe_whole, whole};
use crate::json::Json;

#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// How the errors about a payload or a result begin: they repeat nothing of it but a key, and may be shown.
pub const JSON_REFUSED: &str = "a payload or a result is not accepted";

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.as_str().to_owned()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Only from JSON text: a number that came through another form would have lost its digits.
impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(|error| D::Error::custom(format!("{JSON_REFUSED}: {error}")))
    }
}

/// The status of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum JobStatus {
    /// Waiting for a worker.
    Queued,
    /// A worker is running it.
    Running,
    /// Finished with a result.
    Ready,
    /// Finished with an error.
    Failed,
}

/// A job, as shown to every caller who may see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobState {
    /// The collection.
    pub collection: String,
    /// The id in it.
    pub id: String,
    /// Its status.
    pub status: JobStatus,
    /// What is to be done.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "any-json"))]
    pub payload: Json,
    /// How many attempts were begun.
    pub attempts: u32,
    /// How many attempts there may be; absent when unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The result, when it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "any-json"))]
    pub result: Option<Json>,
    /// The error, when it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The fence of the attempt that finished it; absent when it failed because its attempts were used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_by: Option<u64>,
    /// The worker that is running it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

/// The times of an attempt: when to refresh it, and when to stop. All but the first count from when you *sent* the
/// request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobHold {
    /// When the attempt expires unless it is refreshed, by the server's wall clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub expires_at: String,
    /// The same in milliseconds from now.
    pub expires_in_ms: u64,
    /// How long a refresh lasts.
    pub ttl_seconds: u64,
    /// When to refresh it.
    pub refresh_after_ms: u64,
    /// When to stop working unless a refresh has succeeded: another worker may begin soon after.
    pub stop_after_ms: u64,
    /// The caller, as others see it.
    pub holder: Holder,
}

/// The answer to an acquire. Not acquiring a job is no error.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(untagged)]
pub enum JobAcquired {
    /// The job was acquired.
    Granted(Box<JobGranted>),
    /// It was not.
    Refused(Box<JobRefused>),
}

/// By hand: what serde derives reads a value into a form of its own first, in which numbers have lost their digits.
impl<'de> Deserialize<'de> for JobAcquired {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let Which { acquired } = read(&raw)?;
        Ok(if acquired { Self::Granted(read(&raw)?) } else { Self::Refused(read(&raw)?) })
    }
}

#[derive(Deserialize)]
struct Which {
    acquired: bool,
}

fn read<'a, T: Deserialize<'a>, E: serde::de::Error>(raw: &'a RawValue) -> Result<T, E> {
    serde_json::from_str(raw.get()).map_err(E::custom)
}

/// A job that was acquired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobGranted {
    /// `true`.
    pub acquired: bool,
    /// The secret of the attempt. Send it with every later call about the job, and nowhere else.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "uuid"))]
    pub lease_id: Secret,
    /// The fence of the attempt. Send it with every later call; a system that the work changes should refuse lower ones.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub fence: u64,
    /// The times of the attempt.
    #[serde(flatten)]
    pub hold: JobHold,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How many there may be; absent when unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Whether the previous attempt expired: its worker may have done part of the job.
    pub recovered: bool,
    /// What is to be done.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "any-json"))]
    pub payload: Json,
}

// It repeats three members of `JobState`: serde reads a flattened struct through a form of its own, in which numbers have lost
// their digits.
/// A job that was not acquired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobRefused {
    /// `false`.
    pub acquired: bool,
    /// Why not.
    pub reason: JobRefusal,
    /// The status of the job.
    pub status: JobStatus,
    /// The result, when it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "any-json"))]
    pub result: Option<Json>,
    /// The error, when it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The fence of the attempt that finished it; absent when it failed because its attempts were used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_by: Option<u64>,
    /// The worker that is running it, when it is locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

/// Why a job was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobRefusal {
    /// It is ready or has failed.
    AlreadyFinished,
    /// A worker is running it.
    Locked,
}

/// The answer to a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct JobFailed {
    /// Whether there will be another attempt.
    pub again: bool,
}

// --- what workers send ---

/// The body of a create.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateJob {
    /// What is to be done. The same id with another payload is refused.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "any-json"))]
    pub payload: Json,
    /// How many attempts there may be; unlimited by default. Has no effect when the job exists.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub max_attempts: Option<u64>,
}

/// The body of an acquire. All of it is optional, and so is the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireJob {
    /// A random UUID (version 4) of your own, so that you can repeat the call: the same one gives the same attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "uuid"))]
    pub lease_id: Option<Secret>,
    /// The worker's name, shown to others; by default the name in the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 64, format = "printable"))]
    pub worker: Option<String>,
    /// How long the attempt lasts without a refresh; 300 by default.
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
    /// How long it lasts from now without a refresh; by default as long as before.
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
    /// Its fence. Left out, everything under the lease id is cancelled: for an acquire whose answer you did not wait for.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub fence: Option<u64>,
}

/// The body of a complete.
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
    /// The result.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "any-json"))]
    pub result: Json,
}

/// The body of a fail.
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
    /// The error.
    #[cfg_attr(feature = "openapi", schema(format = "job-text"))]
    pub error: String,
    /// Whether to try again, if attempts are left; `true` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_acquired_job_and_one_that_was_not_are_told_apart() {
        let refused = r#"{"acquired":false,"reason":"locked","status":"RUNNING"}"#;
        let read: JobAcquired = serde_json::from_str(refused).unwrap();
        assert!(matches!(&read, JobAcquired::Refused(refused) if refused.reason == JobRefusal::Locked));
        assert_eq!(serde_json::to_string(&read).unwrap(), refused);
        let granted = json!({"acquired": true, "lease_id": "x", "fence": 7, "expires_at": "", "expires_in_ms": 1,
            "ttl_seconds": 1, "refresh_after_ms": 1, "stop_after_ms": 1, "holder": {"id": "w", "name": "W"}, "attempt": 1, "recovered": false, "payload": null});
        let read: JobAcquired = serde_json::from_value(granted).unwrap();
        assert!(
            matches!(&read, JobAcquired::Granted(granted) if granted.payload == Json::of_text("null")),
            "{read:?}"
        );
    }

    /// 2^70 + 1 came back as a float.
    #[test]
    fn numbers_pass_through_every_message_with_their_digits() {
        let big = r#"{"n":1180591620717411303425}"#;
        let times = r#""expires_at":"","expires_in_ms":1,"ttl_seconds":1,"refresh_after_ms":1,"stop_after_ms":1,"holder":{"id":"w","name":"W"}"#;
        let granted = format!(
            r#"{{"acquired":true,"lease_id":"x","fence":7,{times},"attempt":1,"recovered":false,"payload":{big}}}"#
        );
        let refused = format!(
            r#"{{"acquired":false,"reason":"already_finished","status":"READY","result":{big},"finished_by":7}}"#
        );
        for sent in [granted, refused] {
            let read: JobAcquired = serde_json::from_str(&sent).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), sent);
        }
        let state = format!(
            r#"{{"collection":"a","id":"1","status":"READY","payload":{big},"attempts":1,"result":{big},"finished_by":7}}"#
        );
        let read: JobState = serde_json::from_str(&state).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), state);
        let create: CreateJob = serde_json::from_str(&format!("{{\"payload\": {big}}}")).unwrap();
        assert_eq!(create.payload.as_str(), big);
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused() {
        let error = serde_json::from_str::<CreateJob>(r#"{"payload": {"page": 1, "page": 2}}"#).unwrap_err();
        assert!(error.to_string().starts_with(JSON_REFUSED), "{error}");
        assert!(error.to_string().contains("\"page\""), "{error}");
    }
}
