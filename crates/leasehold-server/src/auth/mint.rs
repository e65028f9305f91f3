//! Makes tokens, for development and for tests. A real deployment's tokens come from its own application.

use std::time::Duration;

use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Map, Value, json};

use super::crypto;
use crate::files::ConfigError;

/// Whom a token is for.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The user's id: the claim `sub`.
    pub id: &'a str,
    /// The display name.
    pub name: &'a str,
    /// Grants for documents: patterns and levels.
    pub documents: &'a [(&'a str, &'a str)],
    /// Grants for jobs.
    pub jobs: &'a [(&'a str, &'a str)],
    /// Grants for leases of programs.
    pub leases: &'a [(&'a str, &'a str)],
}

/// A token signed with a secret (HS256) and valid for `lifetime` from now.
pub fn mint(secret: &[u8], subject: &Subject<'_>, lifetime: Duration) -> Result<String, ConfigError> {
    crypto::choose();
    let now = jsonwebtoken::get_current_timestamp();
    let claim = |grants: &[(&str, &str)]| -> Map<String, Value> {
        grants.iter().map(|(pattern, level)| ((*pattern).to_owned(), json!(level))).collect()
    };
    let claims = json!({
        "sub": subject.id,
        "name": subject.name,
        "iat": now,
        "exp": now.saturating_add(lifetime.as_secs()),
        "documents": claim(subject.documents),
        "jobs": claim(subject.jobs),
        "leases": claim(subject.leases),
    });
    jsonwebtoken::encode(&Header::default(), &claims, &EncodingKey::from_secret(secret)).map_err(|error| {
        ConfigError::new("a token", format!("it could not be signed: {error}"), "use another secret")
    })
}
