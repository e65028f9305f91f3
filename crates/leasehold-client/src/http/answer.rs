//! Reading answers: bounded, and parsed once into a value or an [`Error`].

use std::time::Duration;

use leasehold_core::wire::documents::Problem;
use leasehold_store::Retry;
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;

use super::Error;

/// The longest answer that is read; a page of a thousand documents has less than a tenth.
const LONGEST: usize = 8 * 1024 * 1024;

/// What a server answered when it did as it was asked.
pub(super) enum Success {
    /// It did.
    Done { body: Vec<u8>, etag: Option<String>, is_new: bool },
    /// It will, or not.
    Accepted(Vec<u8>),
    /// Nothing is new.
    NotModified,
}

impl Success {
    pub(super) fn etag(&self) -> Option<String> {
        match self {
            Self::Done { etag, .. } => etag.clone(),
            Self::Accepted(_) | Self::NotModified => None,
        }
    }

    /// Whether something was made that was not there.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Self::Done { is_new: true, .. })
    }

    pub(super) fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        match self {
            Self::Done { body, .. } | Self::Accepted(body) => parse(&body),
            Self::NotModified => Err(misunderstood("status 304 to a request without an ETag")),
        }
    }
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    // The words of the parser are not passed on: they may repeat a piece of the body, and that holds lease ids.
    serde_json::from_slice(body).map_err(|error| {
        misunderstood(&format!(
            "JSON that says something else (line {}, column {})",
            error.line(),
            error.column()
        ))
    })
}

fn misunderstood(what: &str) -> Error {
    Error::unavailable(
        format!(
            "it answered with {what}; is this a Leasehold server, of a version that goes with this client?"
        ),
        Retry::Unknown,
    )
}

pub(super) async fn read(sent: Result<Response, reqwest::Error>) -> Result<Success, Error> {
    let response = sent.map_err(Error::from_transport)?;
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED {
        return Ok(Success::NotModified);
    }
    if !status.is_success() {
        return Err(refusal(response).await);
    }
    let etag = text(response.headers(), ETAG.as_str()).map(str::to_owned);
    let body = body(response).await?;
    let is_new = status == StatusCode::CREATED;
    Ok(if status == StatusCode::ACCEPTED {
        Success::Accepted(body)
    } else {
        Success::Done { body, etag, is_new }
    })
}

/// An event stream that is open; a refusal otherwise.
pub(super) async fn accept_stream(sent: Result<Response, reqwest::Error>) -> Result<Response, Error> {
    let response = sent.map_err(Error::from_transport)?;
    if response.status() != StatusCode::OK {
        return Err(refusal(response).await);
    }
    let kind = text(response.headers(), CONTENT_TYPE.as_str()).unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        Ok(response)
    } else {
        Err(misunderstood("something that is no event stream"))
    }
}

async fn refusal(response: Response) -> Error {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    match body(response).await {
        Ok(body) => match serde_json::from_slice::<Problem>(&body) {
            // What the status line says counts, should they differ.
            Ok(problem) => Error::from_problem(Problem { status, ..problem }, retry_after),
            Err(_) => Error::from_status(status, retry_after),
        },
        // Cut off on the way: what the server decided is not known.
        Err(cut_off) => cut_off,
    }
}

async fn body(mut response: Response) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Error::from_transport)? {
        if body.len() + chunk.len() > LONGEST {
            return Err(misunderstood("far more than any answer has"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Seconds are understood; a date is not, our servers send none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    text(headers, RETRY_AFTER.as_str())?.trim().parse().ok().map(Duration::from_secs)
}
