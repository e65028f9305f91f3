//! The one place that knows status codes: what went wrong, for people in two languages and for programs in one.
//!
//! A handler answers with a [`Failure`], which does not know the caller's language. [`render`] stands around all routes
//! and writes it out; it does the same for what the router itself refuses.

use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{
    ACCEPT_LANGUAGE, ALLOW, CONTENT_LANGUAGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use leasehold_core::Invalid;
use leasehold_core::lease::LossReason;
use leasehold_core::wire::documents::{Held, Problem};
use leasehold_store::Retry;

/// What went wrong. The word never changes; the titles may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Invalid,
    Unauthenticated,
    NotFound,
    LockNotFound,
    NoRequest,
    NoAudit,
    NotHolder,
    NotAllowed,
    MethodNotAllowed,
    Held,
    RequestedByAnother,
    LeaseOver,
    JobNotFound,
    JobDiffers,
    JobRunning,
    TooLarge,
    UnsupportedMediaType,
    TooSlow,
    TooManyLeases,
    TooManyRequests,
    TooManyStreams,
    Unavailable,
    Internal,
}

/// A code, its status, its word, and its titles in English and Japanese.
type Row = (Code, StatusCode, &'static str, &'static str, &'static str);

const INTERNAL: Row = (
    Code::Internal,
    StatusCode::INTERNAL_SERVER_ERROR,
    "internal",
    "A mistake of ours",
    "内部エラーが発生しました",
);

/// All of them, for the API page and for looking up.
pub(crate) const CODES: [Row; 23] = [
    (
        Code::Invalid,
        StatusCode::BAD_REQUEST,
        "invalid",
        "The request breaks a rule",
        "リクエストが正しくありません",
    ),
    (
        Code::Unauthenticated,
        StatusCode::UNAUTHORIZED,
        "unauthenticated",
        "A valid token is needed",
        "有効なトークンが必要です",
    ),
    (Code::NotFound, StatusCode::NOT_FOUND, "not_found", "There is nothing here", "見つかりません"),
    (
        Code::LockNotFound,
        StatusCode::NOT_FOUND,
        "lock_not_found",
        "There is no such lock",
        "ロックが見つかりません",
    ),
    (
        Code::NoRequest,
        StatusCode::NOT_FOUND,
        "no_request",
        "There is no such request any more",
        "引き継ぎの依頼が見つかりません",
    ),
    (
        Code::NoAudit,
        StatusCode::NOT_FOUND,
        "no_audit",
        "No audit is kept here",
        "監査ログは記録されていません",
    ),
    (
        Code::NotHolder,
        StatusCode::FORBIDDEN,
        "not_holder",
        "The lock is not yours",
        "ロックを保持していません",
    ),
    (
        Code::NotAllowed,
        StatusCode::FORBIDDEN,
        "not_allowed",
        "Your token does not allow this",
        "この操作は許可されていません",
    ),
    (
        Code::MethodNotAllowed,
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "This address knows other methods",
        "このメソッドは使えません",
    ),
    (
        Code::Held,
        StatusCode::CONFLICT,
        "held",
        "Somebody else holds the lock",
        "他のユーザーがロックを保持しています",
    ),
    (
        Code::RequestedByAnother,
        StatusCode::CONFLICT,
        "requested_by_another",
        "Somebody else has asked before",
        "他のユーザーが先に依頼しています",
    ),
    (Code::LeaseOver, StatusCode::GONE, "lease_over", "This lease id is over", "このロックは終了しました"),
    (
        Code::JobNotFound,
        StatusCode::NOT_FOUND,
        "job_not_found",
        "There is no such job",
        "ジョブが見つかりません",
    ),
    (
        Code::JobDiffers,
        StatusCode::CONFLICT,
        "job_differs",
        "There is a job with this id and another payload",
        "同じ ID で内容の異なるジョブがあります",
    ),
    (
        Code::JobRunning,
        StatusCode::CONFLICT,
        "job_running",
        "Somebody is working on the job",
        "ジョブは実行中です",
    ),
    (Code::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, "too_large", "The body is too long", "本文が長すぎます"),
    (
        Code::UnsupportedMediaType,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "The body must be JSON",
        "本文は JSON でなければなりません",
    ),
    (
        Code::TooSlow,
        StatusCode::REQUEST_TIMEOUT,
        "too_slow",
        "The body took too long to arrive",
        "本文の受信に時間がかかりすぎました",
    ),
    (
        Code::TooManyLeases,
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_leases",
        "You hold as many locks as one may",
        "ロックの数が上限に達しています",
    ),
    (
        Code::TooManyRequests,
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_requests",
        "Too many requests",
        "リクエストが多すぎます",
    ),
    (
        Code::TooManyStreams,
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_streams",
        "Too many event streams",
        "イベントストリームが多すぎます",
    ),
    (
        Code::Unavailable,
        StatusCode::SERVICE_UNAVAILABLE,
        "unavailable",
        "Not possible right now",
        "現在利用できません",
    ),
    INTERNAL,
];

/// Where the codes are explained.
const EXPLAINED_AT: &str = "/docs#";

/// How long to wait when nothing better is known.
const A_MOMENT: Duration = Duration::from_secs(1);

impl Code {
    fn row(self) -> &'static Row {
        CODES.iter().find(|row| row.0 == self).unwrap_or(&INTERNAL)
    }

    pub(crate) fn status(self) -> StatusCode {
        self.row().1
    }

    pub(crate) fn word(self) -> &'static str {
        self.row().2
    }
}

/// A refusal, before it is put into words.
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
        let detail = format!("{by} has asked before; only one may ask at a time");
        Self { held: Some(Box::new(held)), detail: Some(detail), ..Self::new(Code::RequestedByAnother) }
    }

    pub(crate) fn lease_over(because: LossReason) -> Self {
        let detail = "draw a new lease id and acquire again".to_owned();
        Self { because: Some(because), detail: Some(detail), ..Self::new(Code::LeaseOver) }
    }

    /// The attempt at a job is over; somebody else may be working on it.
    pub(crate) fn attempt_over(because: LossReason, held: Option<Held>) -> Self {
        Self { held: held.map(Box::new), ..Self::lease_over(because) }
    }

    pub(crate) fn job_running(held: Held) -> Self {
        Self { held: Some(Box::new(held)), ..Self::new(Code::JobRunning) }
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    fn problem(self, language: Language) -> Problem {
        let (_, status, code, english, japanese) = *self.code.row();
        let title = if language == Language::Japanese { japanese } else { english };
        Problem {
            kind: format!("{EXPLAINED_AT}{code}"),
            title: title.to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: self.detail,
            held: self.held.map(|held| *held),
            because: self.because.map(|because| because.as_str().to_owned()),
        }
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
        // What exactly is wrong with the store is for whoever runs it, not for whoever calls.
        tracing::error!(%error, "the store did not answer");
        let detail = match error.retry() {
            Retry::Unknown => {
                "it may or may not have been done; try again, with the same lease_id if you sent one"
            }
            Retry::Safe => "nothing was changed; try again",
            Retry::No => "whoever runs this server has to look at it",
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

/// A language that we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    English,
    Japanese,
}

impl Language {
    /// The one that the caller likes best; English if it likes none of ours.
    fn of(headers: &HeaderMap) -> Self {
        let wanted = headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
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

    /// The languages of an answer in this one. What exactly is wrong is told in English only.
    fn tags(self, has_detail: bool) -> &'static str {
        match self {
            Self::English => "en",
            Self::Japanese if has_detail => "ja, en",
            Self::Japanese => "ja",
        }
    }
}

/// Writes out what went wrong, in the caller's language: our own failures, and what the router refused by itself.
pub(crate) async fn render(request: Request, next: Next) -> Response {
    let language = Language::of(request.headers());
    let mut response = next.run(request).await;
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        return failure.write(language);
    }
    if response.status() == StatusCode::METHOD_NOT_ALLOWED && !response.headers().contains_key(CONTENT_TYPE) {
        let allowed = response.headers().get(ALLOW).cloned();
        let mut written = Failure::new(Code::MethodNotAllowed).write(language);
        written.headers_mut().extend(allowed.map(|allowed| (ALLOW, allowed)));
        return written;
    }
    // The only thing that the router reads before us is the path.
    if response.status() == StatusCode::BAD_REQUEST {
        return Failure::invalid("the address is not UTF-8 text").write(language);
    }
    response
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
    fn every_code_has_a_row_and_words_are_unique() {
        let words: std::collections::BTreeSet<_> = CODES.iter().map(|row| row.2).collect();
        assert_eq!(words.len(), CODES.len());
        assert!(CODES.iter().all(|row| row.0.word() == row.2));
    }
}
