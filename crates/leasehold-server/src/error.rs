//! The one place that knows the statuses, words and titles of refusals: for programs, and for people in two languages.
//!
//! A handler returns a [`Failure`], which does not know the caller's language. [`Failure::render`] writes it out, and does
//! the same for what the router itself refuses. The API's description takes the statuses from here too: a
//! route names its refusals as [`refusal`]s.

use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::http::header::{
    ACCEPT_LANGUAGE, ALLOW, CONTENT_LANGUAGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leasehold_core::Invalid;
use leasehold_core::lease::LossReason;
use leasehold_core::wire::documents::{Held, Problem};
use leasehold_store::Retry;

/// Declares the codes: the variant, its status, its word, and its titles in English and Japanese.
macro_rules! codes {
    ($($code:ident, $status:ident, $word:literal, $english:literal, $japanese:literal;)*) => {
        /// What went wrong. The word of a code never changes; the titles may.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($code,)*
        }

        /// All codes, in the order of the API page.
        pub(crate) const CODES: &[Code] = &[$(Code::$code,)*];

        impl Code {
            pub(crate) fn status(self) -> StatusCode {
                match self {
                    $(Self::$code => StatusCode::$status,)*
                }
            }

            pub(crate) fn word(self) -> &'static str {
                match self {
                    $(Self::$code => $word,)*
                }
            }

            pub(crate) fn english(self) -> &'static str {
                match self {
                    $(Self::$code => $english,)*
                }
            }

            pub(crate) fn japanese(self) -> &'static str {
                match self {
                    $(Self::$code => $japanese,)*
                }
            }
        }

        /// The codes as responses of a route's description. The key of each is the code's word; `openapi` puts the status
        /// in its place, because one status can stand for several codes.
        #[allow(dead_code, reason = "most refusals follow from a route's path and body, so no route names them")]
        pub(crate) mod refusal {
            use std::collections::BTreeMap;

            use utoipa::openapi::response::{Response, ResponseBuilder};
            use utoipa::openapi::RefOr;

            $(
                pub(crate) struct $code;

                impl utoipa::IntoResponses for $code {
                    fn responses() -> BTreeMap<String, RefOr<Response>> {
                        let response = ResponseBuilder::new().description($english).build();
                        BTreeMap::from([($word.to_owned(), response.into())])
                    }
                }
            )*
        }
    };
}

codes! {
    Invalid, BAD_REQUEST, "invalid",
        "The request is not valid", "リクエストが正しくありません";
    Unauthenticated, UNAUTHORIZED, "unauthenticated",
        "A valid token is required", "有効なトークンが必要です";
    NotFound, NOT_FOUND, "not_found",
        "Nothing was found at this address", "見つかりません";
    LockNotFound, NOT_FOUND, "lock_not_found",
        "The lock was not found", "ロックが見つかりません";
    NoRequest, NOT_FOUND, "no_request",
        "The hand-over request was not found", "引き継ぎの依頼が見つかりません";
    NoAudit, NOT_FOUND, "no_audit",
        "This server keeps no audit", "監査ログは記録されていません";
    NoTelemetry, NOT_FOUND, "no_telemetry",
        "This server collects no telemetry", "テレメトリは収集されていません";
    JobsOnly, NOT_FOUND, "jobs_only",
        "This server has jobs only", "このサーバーはジョブ専用です";
    NotHolder, FORBIDDEN, "not_holder",
        "You do not hold the lock", "ロックを保持していません";
    NotAllowed, FORBIDDEN, "not_allowed",
        "Your token does not allow this", "この操作は許可されていません";
    MethodNotAllowed, METHOD_NOT_ALLOWED, "method_not_allowed",
        "This address does not support the method", "このメソッドは使えません";
    Held, CONFLICT, "held",
        "Another user or tab holds the lock", "他のユーザーがロックを保持しています";
    RequestedByAnother, CONFLICT, "requested_by_another",
        "Another user has already requested the lock", "他のユーザーが先に依頼しています";
    LeaseOver, GONE, "lease_over",
        "The lease has ended", "このロックは終了しました";
    JobNotFound, NOT_FOUND, "job_not_found",
        "The job was not found", "ジョブが見つかりません";
    JobDiffers, CONFLICT, "job_differs",
        "A job with this id has another payload", "同じ ID で内容の異なるジョブがあります";
    JobRunning, CONFLICT, "job_running",
        "A worker is running the job", "ジョブは実行中です";
    LeaseNotFound, NOT_FOUND, "lease_not_found",
        "The lease was not found", "リースが見つかりません";
    TooLarge, PAYLOAD_TOO_LARGE, "too_large",
        "The body is too large", "本文が長すぎます";
    UnsupportedMediaType, UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type",
        "The body must be JSON", "本文は JSON でなければなりません";
    TooSlow, REQUEST_TIMEOUT, "too_slow",
        "The body took too long to arrive", "本文の受信に時間がかかりすぎました";
    TooManyLeases, TOO_MANY_REQUESTS, "too_many_leases",
        "You hold the maximum number of locks", "ロックの数が上限に達しています";
    TooManyRequests, TOO_MANY_REQUESTS, "too_many_requests",
        "Too many requests", "リクエストが多すぎます";
    TooManyStreams, TOO_MANY_REQUESTS, "too_many_streams",
        "Too many event streams", "イベントストリームが多すぎます";
    Unavailable, SERVICE_UNAVAILABLE, "unavailable",
        "Temporarily unavailable", "現在利用できません";
    Internal, INTERNAL_SERVER_ERROR, "internal",
        "Internal server error", "内部エラーが発生しました";
}

/// Where the codes are explained.
const EXPLAINED_AT: &str = "/docs#";

/// When to retry unless something better is known.
const A_MOMENT: Duration = Duration::from_secs(1);

/// When to ask again after something that only a person can fix.
const AFTER_REPAIR: Duration = Duration::from_secs(3_600);

/// The detail for an expired token.
pub(crate) const TOKEN_EXPIRED: &str = "the token has expired; get a new one";

impl Code {
    /// Whether a refusal with this code says who holds the document or runs the job.
    pub(crate) fn names_holder(self) -> bool {
        matches!(self, Self::Held | Self::RequestedByAnother | Self::JobRunning)
    }

    /// Whether a refusal with this code always says when to try again.
    pub(crate) fn says_when_to_retry(self) -> bool {
        matches!(self.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }
}

/// A refusal, before it is written in a language.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    detail: Option<String>,
    held: Option<Box<Held>>,
    because: Option<LossReason>,
    retry_after: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(code: Code) -> Self {
        Self { code, detail: None, held: None, because: None, retry_after: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::Invalid).because_of(detail)
    }

    pub(crate) fn because_of(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    pub(crate) fn held(held: Held) -> Self {
        Self { held: Some(Box::new(held)), ..Self::new(Code::Held) }
    }

    pub(crate) fn requested_by_another(held: Held, by: &str) -> Self {
        let detail =
            format!("{by} has requested it first, and only one request can be open; wait until it ends");
        Self { held: Some(Box::new(held)), detail: Some(detail), ..Self::new(Code::RequestedByAnother) }
    }

    pub(crate) fn lease_over(because: LossReason) -> Self {
        let detail = "acquire again with a new lease id".to_owned();
        Self { because: Some(because), detail: Some(detail), ..Self::new(Code::LeaseOver) }
    }

    /// The attempt at a job has ended; another worker may be running it.
    pub(crate) fn attempt_over(because: LossReason, held: Option<Held>) -> Self {
        Self { held: held.map(Box::new), ..Self::lease_over(because) }
    }

    pub(crate) fn job_running(held: Held) -> Self {
        Self { held: Some(Box::new(held)), ..Self::new(Code::JobRunning) }
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// The store cannot grant anything any more, at either door.
    pub(crate) fn fences_exhausted() -> Self {
        Self::new(Code::Unavailable)
            .because_of("the store has used up its fences; its operator has to begin a new store")
            .retry_after(AFTER_REPAIR)
    }

    /// The body could not be read.
    pub(crate) fn unread(rejection: &BytesRejection, limit: usize) -> Self {
        if rejection.status() == Code::TooLarge.status() {
            return Self::new(Code::TooLarge).because_of(format!("it may have at most {limit} bytes"));
        }
        Self::invalid("the body did not arrive completely; send it again")
    }

    fn problem(self, language: Language) -> Problem {
        let code = self.code;
        let title = if language == Language::Japanese { code.japanese() } else { code.english() };
        Problem {
            kind: format!("{EXPLAINED_AT}{}", code.word()),
            title: title.to_owned(),
            status: code.status().as_u16(),
            code: code.word().to_owned(),
            detail: self.detail,
            held: self.held.map(|held| *held),
            because: self.because.map(|because| because.as_str().to_owned()),
        }
    }

    /// Writes a refusal in the caller's language: one of a handler, or of the router itself.
    pub(crate) fn render(mut response: Response, language: Language) -> Response {
        if response.status().is_success() {
            return response;
        }
        if let Some(failure) = response.extensions_mut().remove::<Self>() {
            return failure.write(language);
        }
        if response.status() == Code::MethodNotAllowed.status()
            && !response.headers().contains_key(CONTENT_TYPE)
        {
            let allowed = response.headers().get(ALLOW).cloned();
            let mut written = Self::new(Code::MethodNotAllowed).write(language);
            written.headers_mut().extend(allowed.map(|allowed| (ALLOW, allowed)));
            return written;
        }
        // All that the router parses by itself is the path.
        if response.status() == Code::Invalid.status() {
            return Self::invalid("the path is not UTF-8; percent-encode it as UTF-8").write(language);
        }
        response
    }

    fn write(self, language: Language) -> Response {
        let (status, retry_after, code) = (self.code.status(), self.retry_after, self.code);
        let languages = language.tags(self.detail.is_some());
        let body = serde_json::to_vec(&self.problem(language)).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CONTENT_LANGUAGE, HeaderValue::from_static(languages));
        if code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil().max(1.0) as u64));
        }
        response
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(invalid.to_string())
    }
}

impl From<leasehold_store::Error> for Failure {
    fn from(error: leasehold_store::Error) -> Self {
        if let leasehold_store::Error::Invalid(invalid) = error {
            return invalid.into();
        }
        // The cause is for the operator's log, not for callers.
        tracing::error!(%error, "the store failed");
        let detail = match error.retry() {
            Retry::Unknown => {
                "it is unknown whether the call was carried out; repeat it, with the same lease_id if you sent one"
            }
            Retry::Safe => "the store failed and nothing was changed; try again",
            Retry::No => "the store failed; the operator of this server finds the cause in its log",
        };
        Self::new(Code::Unavailable).because_of(detail).retry_after(A_MOMENT)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.code.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A language that titles are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    English,
    Japanese,
}

impl Language {
    /// The one that the caller prefers; English if it accepts neither.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let Some(wanted) = headers.get(ACCEPT_LANGUAGE) else { return Self::English };
        let wanted = wanted.to_str().unwrap_or_default();
        let mut best = (Self::English, 0.0);
        for part in wanted.split(',') {
            let mut pieces = part.trim().split(';');
            let tag = pieces.next().unwrap_or_default().trim().to_ascii_lowercase();
            let weight =
                pieces.find_map(|piece| piece.trim().strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            let language = match tag.split('-').next() {
                Some("ja") => Self::Japanese,
                Some("en") => Self::English,
                _ => continue,
            };
            if weight > best.1 {
                best = (language, weight);
            }
        }
        best.0
    }

    /// The value of `Content-Language`: details are always in English.
    fn tags(self, has_detail: bool) -> &'static str {
        match self {
            Self::English => "en",
            Self::Japanese if has_detail => "ja, en",
            Self::Japanese => "ja",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_answered_in_its_language() {
        let cases = [
            ("", "en"),
            ("ja", "ja"),
            ("ja-JP", "ja"),
            ("en-GB, ja;q=0.8", "en"),
            ("fr, ja;q=0.8, en;q=0.3", "ja"),
            ("fr", "en"),
            ("ja;q=oops", "ja"),
        ];
        for (header, expected) in cases {
            let headers = HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_str(header).unwrap())]);
            assert_eq!(Language::of(&headers).tags(false), expected, "{header:?}");
        }
    }

    #[test]
    fn words_are_unique_and_every_status_is_a_refusal() {
        let words: std::collections::BTreeSet<_> = CODES.iter().map(|code| code.word()).collect();
        assert_eq!(words.len(), CODES.len());
        assert!(CODES.iter().all(|code| code.status().is_client_error() || code.status().is_server_error()));
    }
}
