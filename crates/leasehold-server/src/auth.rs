//! Authentication: the token of a request becomes a [`Caller`], or a refusal that says what to do.
//!
//! A token never chooses how it is checked: every key is for one algorithm, and only the configured algorithms count. A
//! refusal must not repeat any part of the token.

mod checked;
mod claims;
mod crypto;
mod jwt;
mod keys;
mod mint;

use std::fmt;
use std::sync::Arc;

use leasehold_core::Owner;

use crate::caller::{Caller, Grants, ShownName};

pub use jwt::{Jwt, JwtOptions};
pub use keys::{Algorithm, KeySource};
pub use mint::{Subject, mint};

/// How callers authenticate.
#[derive(Clone)]
pub enum Auth {
    /// Without tokens: every caller is `anonymous` and may do everything. For loopback only.
    Open,
    /// With a signed token.
    Jwt(Arc<Jwt>),
}

impl Auth {
    /// The caller of a request with this `Authorization` header.
    pub fn authenticate(&self, authorization: Option<&str>) -> Result<Arc<Caller>, Denied> {
        match self {
            Self::Open => anonymous(),
            Self::Jwt(jwt) => jwt.caller(bearer(authorization)?),
        }
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Jwt(_) => "Jwt",
        })
    }
}

fn anonymous() -> Result<Arc<Caller>, Denied> {
    let subject = Owner::parse("anonymous").map_err(|error| denied(error.rule))?;
    let name = ShownName::parse(subject.as_str()).map_err(|error| denied(error.rule))?;
    let grants = Grants::everything();
    Ok(Arc::new(Caller { name, subject, grants, expires_at: None }))
}

/// Why a caller was refused. It holds no part of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// What is wrong with the token, and what to do.
    pub detail: String,
}

fn denied(detail: impl Into<String>) -> Denied {
    Denied { detail: detail.into() }
}

/// The longest token.
const LONGEST_TOKEN: usize = 8 * 1024;

/// The token in an `Authorization` header.
fn bearer(authorization: Option<&str>) -> Result<&str, Denied> {
    let Some(header) = authorization else {
        return Err(denied("the request has no token; send `Authorization: Bearer TOKEN`"));
    };
    let token = match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => {
            return Err(denied(
                "the Authorization header is not of the form `Bearer TOKEN`; send the token in that form",
            ));
        }
    };
    if token.len() > LONGEST_TOKEN {
        let rule = format!("a token has at most {LONGEST_TOKEN} bytes");
        return Err(denied(format!("{rule}; grant documents by prefixes instead of one by one")));
    }
    Ok(token)
}

#[cfg(test)]
mod tests;
