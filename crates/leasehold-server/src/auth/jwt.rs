//! Checks a signed token: which key signed it, for whom it is, and whether it is valid at this time.

use std::fmt;
use std::sync::Arc;

use jsonwebtoken::{Header, Validation};
use serde_json::{Map, Value};

use super::checked::{Checked, TokenHash};
use super::claims::caller_of;
use super::crypto;
use super::keys::{Algorithm, KeySource, VerifyKey, only, read_keys};
use super::{Denied, denied};
use crate::caller::Caller;
use crate::error::TOKEN_EXPIRED;
use crate::files::{ConfigError, FromFiles};

/// How tokens are checked.
#[derive(Clone, Debug)]
pub struct JwtOptions {
    /// Where the keys come from.
    pub keys: KeySource,
    /// The algorithms to accept; when empty, those of the keys.
    pub algorithms: Vec<Algorithm>,
    /// A token's `aud` must name one of these. When empty, a token must not name any.
    pub audience: Vec<String>,
    /// A token's `iss` must be one of these. When empty, it is not checked.
    pub issuer: Vec<String>,
}

impl JwtOptions {
    /// Tokens signed with these keys, from any issuer and without an audience.
    pub fn new(keys: KeySource) -> Self {
        Self { keys, algorithms: Vec::new(), audience: Vec::new(), issuer: Vec::new() }
    }
}

/// Checks signed tokens.
pub struct Jwt {
    keys: FromFiles<Vec<VerifyKey>>,
    /// Whether tokens name their key: those of a key set do.
    by_kid: bool,
    validation: Validation,
    checked: Checked,
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jwt(keys hidden)")
    }
}

/// By how many seconds the clocks of issuer and server may differ.
const LEEWAY_SECONDS: u64 = 5;

impl Jwt {
    /// Reads the keys, or says what is wrong with them.
    pub fn open(options: JwtOptions) -> Result<Self, ConfigError> {
        crypto::choose();
        let validation = validation(&options);
        let by_kid = matches!(options.keys, KeySource::JwksFile(_));
        let paths = match &options.keys {
            KeySource::Secret(_) => vec![],
            KeySource::SecretFile(path) | KeySource::PublicKeyFile(path) | KeySource::JwksFile(path) => {
                vec![path.clone()]
            }
        };
        let JwtOptions { keys, algorithms, .. } = options;
        let keys = FromFiles::open(paths, move || only(read_keys(&keys)?, &algorithms))?;
        Ok(Self { keys, by_kid, validation, checked: Checked::default() })
    }

    /// The caller whose token this is.
    pub(super) fn caller(&self, token: &str) -> Result<Arc<Caller>, Denied> {
        let (keys, hash) = (self.keys.current(), TokenHash::of(token));
        if let Some(caller) = self.checked.find(&hash, &keys, is_valid_now) {
            return Ok(caller);
        }
        let caller = Arc::new(self.check(&keys, token)?);
        self.checked.keep(&hash, &keys, &caller);
        Ok(caller)
    }

    fn check(&self, keys: &[VerifyKey], token: &str) -> Result<Caller, Denied> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| denied(NO_TOKEN))?;
        if header.crit.is_some() {
            return Err(denied(
                "the token has a `crit` header, which this server does not support; issue it without",
            ));
        }
        let claims = self.verified(&fitting(keys, &header, self.by_kid)?, token)?;
        caller_of(&claims)
    }

    /// The claims of a token that one of the keys has signed. There are several keys only when they share a `kid`.
    fn verified(&self, keys: &[&VerifyKey], token: &str) -> Result<Map<String, Value>, Denied> {
        let mut refusal = denied(WRONG_SIGNATURE);
        for key in keys {
            let mut validation = self.validation.clone();
            validation.algorithms = vec![key.algorithm.theirs()];
            match jsonwebtoken::decode::<Map<String, Value>>(token, &key.key, &validation) {
                Ok(token) => return Ok(token.claims),
                Err(error) => refusal = denied(explain(error.kind())),
            }
        }
        Err(refusal)
    }
}

/// Whether a token that was valid once has not expired since, by the rule of the full check.
fn is_valid_now(caller: &Caller) -> bool {
    let until = caller.expires_at.map(|exp| exp.saturating_add(LEEWAY_SECONDS));
    until.is_some_and(|until| jsonwebtoken::get_current_timestamp() <= until)
}

const NO_TOKEN: &str =
    "the token is not a JWT signed with HS256, RS256 or EdDSA; docs/tokens.md shows how to make one";
const WRONG_SIGNATURE: &str =
    "no key of this server has signed the token; compare the keys of issuer and server";

/// What every token must fulfil, whatever its key. Times are compared with the machine's clock.
fn validation(options: &JwtOptions) -> Validation {
    let mut validation = Validation { leeway: LEEWAY_SECONDS, validate_nbf: true, ..Validation::default() };
    // `sub` is required as well: reading the claims says what is wrong with it.
    let mut required = vec!["exp"];
    if !options.audience.is_empty() {
        validation.set_audience(&options.audience);
        required.push("aud");
    }
    if !options.issuer.is_empty() {
        validation.set_issuer(&options.issuer);
        required.push("iss");
    }
    validation.set_required_spec_claims(&required);
    validation
}

/// The keys that may have signed a token with this header.
fn fitting<'a>(keys: &'a [VerifyKey], header: &Header, by_kid: bool) -> Result<Vec<&'a VerifyKey>, Denied> {
    let fits = |key: &&VerifyKey| Algorithm::of(header.alg) == Some(key.algorithm);
    let fitting: Vec<&VerifyKey> = keys.iter().filter(fits).collect();
    if fitting.is_empty() {
        return Err(denied(
            "the token is signed with an algorithm that this server does not accept; sign it with the algorithm of \
             one of the server's keys",
        ));
    }
    match &header.kid {
        Some(kid) if by_kid => {
            let named: Vec<_> = fitting.into_iter().filter(|key| key.kid.as_ref() == Some(kid)).collect();
            if named.is_empty() {
                return Err(denied(
                    "the token names a key (`kid`) that is not in the server's key set; add the key to the set, or \
                     sign with another",
                ));
            }
            Ok(named)
        }
        None if fitting.len() > 1 => Err(denied(
            "the token does not name which of the server's keys signed it; add its `kid` to the token's header",
        )),
        _ => Ok(fitting),
    }
}

/// What is wrong with a token, without repeating any part of it.
fn explain(kind: &jsonwebtoken::errors::ErrorKind) -> String {
    use jsonwebtoken::errors::ErrorKind;
    match kind {
        ErrorKind::ExpiredSignature => TOKEN_EXPIRED.into(),
        ErrorKind::ImmatureSignature => {
            "the token is not valid yet (`nbf`); wait, or compare the clocks of issuer and server".into()
        }
        ErrorKind::InvalidSignature => WRONG_SIGNATURE.into(),
        ErrorKind::InvalidIssuer => {
            "this server does not accept the issuer of the token; compare `iss` with the server's settings"
                .into()
        }
        ErrorKind::InvalidAudience => {
            "the token is not for this server; compare `aud` with the server's audience. A server without one refuses \
             tokens that name one"
                .into()
        }
        // The claim is one that the server requires, so its name is no part of the token.
        ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => {
            format!("the token has no usable claim `{claim}`; issue it with one")
        }
        ErrorKind::InvalidAlgorithm => "the key is for another algorithm than the token's; compare the keys of issuer and server".into(),
        _ => NO_TOKEN.into(),
    }
}
