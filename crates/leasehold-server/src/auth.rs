//! Who may come in: the token of a request becomes a [`Caller`], or a reason why not.
//!
//! A token never chooses how it is checked: every key is for one algorithm, and only the algorithms that were agreed
//! count. What is refused is explained without repeating any part of the token.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{DecodingKey, EncodingKey, Header, Validation};
use leasehold_core::{JobId, Owner, RoomId};
use serde_json::{Map, Value, json};

use crate::caller::{Caller, Grants, Level};
use crate::files::{self, ConfigError, FromFiles};

/// How callers show who they are.
#[derive(Clone)]
pub enum Auth {
    /// No token is asked for: everybody is `anonymous` and may do everything. For loopback only.
    Open,
    /// A signed token.
    Jwt(Arc<Jwt>),
}

impl Auth {
    /// Who a request is by, from its `Authorization` header.
    pub fn authenticate(&self, authorization: Option<&str>) -> Result<Caller, Denied> {
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

fn anonymous() -> Result<Caller, Denied> {
    let subject = Owner::parse("anonymous").map_err(|error| denied(error.rule))?;
    Ok(Caller { name: subject.to_string(), subject, grants: Grants::everything(), expires_at: None })
}

/// Why somebody was not let in, and what to do. It holds no part of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// What is wrong, and what to do.
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
        return Err(denied("there is no token; send `Authorization: Bearer TOKEN`"));
    };
    let token = match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => return Err(denied("the Authorization header is not `Bearer TOKEN`; send the token like that")),
    };
    if token.len() > LONGEST_TOKEN {
        let rule = format!("a token has at most {LONGEST_TOKEN} bytes");
        return Err(denied(format!("{rule}; grant documents by prefixes instead of one by one")));
    }
    Ok(token)
}

/// How a token may be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// With a secret that issuer and server share.
    HS256,
    /// With an RSA key, of which the server knows the public half.
    RS256,
    /// With an Ed25519 key, of which the server knows the public half.
    EdDSA,
}

impl Algorithm {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::HS256, Self::RS256, Self::EdDSA];

    /// Its name in tokens and settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HS256 => "HS256",
            Self::RS256 => "RS256",
            Self::EdDSA => "EdDSA",
        }
    }

    /// The algorithm of this name.
    pub fn parse(name: &str) -> Result<Self, ConfigError> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str().eq_ignore_ascii_case(name)).ok_or_else(
            || {
                ConfigError::new(
                    format!("algorithm {name:?}"),
                    "there are HS256, RS256 and EdDSA",
                    "choose among these",
                )
            },
        )
    }

    fn of(other: jsonwebtoken::Algorithm) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.theirs() == other)
    }

    fn theirs(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::HS256 => jsonwebtoken::Algorithm::HS256,
            Self::RS256 => jsonwebtoken::Algorithm::RS256,
            Self::EdDSA => jsonwebtoken::Algorithm::EdDSA,
        }
    }
}

/// How tokens are checked.
#[derive(Clone, Debug)]
pub struct JwtOptions {
    /// Where the keys are.
    pub keys: KeySource,
    /// How tokens may be signed; whatever the keys are for when empty.
    pub algorithms: Vec<Algorithm>,
    /// Whom a token may be for: it must name one of these. Nobody in particular when empty.
    pub audience: Vec<String>,
    /// Who may issue tokens: one of these. Whoever has the key when empty.
    pub issuer: Vec<String>,
}

impl JwtOptions {
    /// Tokens signed with these keys, from anybody and for anybody.
    pub fn new(keys: KeySource) -> Self {
        Self { keys, algorithms: Vec::new(), audience: Vec::new(), issuer: Vec::new() }
    }
}

/// Where the keys are that tokens are checked with. Files are read again when they change.
#[derive(Clone)]
pub enum KeySource {
    /// A secret, for HS256.
    Secret(Vec<u8>),
    /// A file that holds a secret, for HS256. A line end after it is not part of it.
    SecretFile(PathBuf),
    /// A file with a public key as PEM, for RS256 or EdDSA.
    PublicKeyFile(PathBuf),
    /// A file with a JSON Web Key Set.
    JwksFile(PathBuf),
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(_) => f.write_str("Secret(hidden)"),
            Self::SecretFile(path) => write!(f, "SecretFile({})", path.display()),
            Self::PublicKeyFile(path) => write!(f, "PublicKeyFile({})", path.display()),
            Self::JwksFile(path) => write!(f, "JwksFile({})", path.display()),
        }
    }
}

/// A key, and the one algorithm that it is for: a public key is never taken for a secret.
struct VerifyKey {
    kid: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// Checks signed tokens.
pub struct Jwt {
    keys: FromFiles<Vec<VerifyKey>>,
    /// Whether tokens name their key.
    by_kid: bool,
    validation: Validation,
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jwt(keys hidden)")
    }
}

/// By how many seconds the clocks of whoever issues tokens and of the server may differ.
const LEEWAY_SECONDS: u64 = 5;

impl Jwt {
    /// Reads the keys, or says what is wrong with them.
    pub fn open(options: JwtOptions) -> Result<Self, ConfigError> {
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
        Ok(Self { keys, by_kid, validation })
    }

    /// Whose token it is.
    fn caller(&self, token: &str) -> Result<Caller, Denied> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| denied(NO_TOKEN))?;
        if header.crit.is_some() {
            return Err(denied("the token has a `crit` header; issue it without"));
        }
        let keys = self.keys.current();
        let claims = self.verified(&fitting(&keys, &header, self.by_kid)?, token)?;
        caller_of(&claims)
    }

    /// The claims of a token that one of the keys vouches for. Several keys are there only when they share a `kid`.
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

const NO_TOKEN: &str =
    "the token is not a signed JWT with HS256, RS256 or EdDSA; send one as the documentation shows";
const WRONG_SIGNATURE: &str = "the signature of the token is not by a key that this server knows; compare the keys of issuer and server";

/// What is asked of every token, whatever its key. The times are checked by the machine's clock.
fn validation(options: &JwtOptions) -> Validation {
    let mut validation = Validation { leeway: LEEWAY_SECONDS, validate_nbf: true, ..Validation::default() };
    let mut required = vec!["exp", "sub"];
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
            "the token is signed with an algorithm that this server does not accept; use the one \
                           that its keys are for",
        ));
    }
    match &header.kid {
        Some(kid) if by_kid => {
            let named: Vec<_> = fitting.into_iter().filter(|key| key.kid.as_ref() == Some(kid)).collect();
            if named.is_empty() {
                return Err(denied(
                    "the token names a key (`kid`) that is not in the server's key set; add the \
                                   key, or use one that is there",
                ));
            }
            Ok(named)
        }
        None if fitting.len() > 1 => Err(denied(
            "the token does not say which of the server's keys it is signed with; name it as `kid`",
        )),
        _ => Ok(fitting),
    }
}

/// What is wrong with a token, without any part of it.
fn explain(kind: &jsonwebtoken::errors::ErrorKind) -> String {
    use jsonwebtoken::errors::ErrorKind;
    match kind {
        ErrorKind::ExpiredSignature => "the token has expired; get a new one".into(),
        ErrorKind::ImmatureSignature => {
            "the token is not valid yet (`nbf`); wait, or compare the clocks of issuer and server".into()
        }
        ErrorKind::InvalidSignature => WRONG_SIGNATURE.into(),
        ErrorKind::InvalidIssuer => {
            "the token is not by an issuer that this server accepts; check `iss` and the server's settings"
                .into()
        }
        ErrorKind::InvalidAudience => {
            "the token is not for this server; check `aud`, and which audience the \
                                       server is set up with: one that has none takes no token that names one"
                .into()
        }
        // The name of a claim that the server asks for, not something from the token.
        ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => {
            format!("the token has no usable claim `{claim}`; issue it with one")
        }
        ErrorKind::InvalidAlgorithm => "the key is for another algorithm; compare issuer and server".into(),
        _ => NO_TOKEN.into(),
    }
}

// --- claims ---

fn caller_of(claims: &Map<String, Value>) -> Result<Caller, Denied> {
    if claims.get("nbf").is_some_and(|nbf| !nbf.is_number()) {
        return Err(denied("the claim `nbf` is not a number; issue it as seconds since 1970"));
    }
    let subject = claims.get("sub").and_then(Value::as_str).ok_or_else(|| {
        denied("the claim `sub` is not text; issue the token with the id of the user as text")
    })?;
    let subject = Owner::parse(subject)
        .map_err(|error| denied(format!("the claim `sub` cannot be used: {}; {}", error.rule, error.fix)))?;
    let shown = claims.get("name").and_then(Value::as_str).and_then(|name| Owner::parse(name).ok());
    let name = shown.as_ref().unwrap_or(&subject).to_string();
    let expires_at = claims.get("exp").and_then(whole_seconds);
    Ok(Caller { name, subject, grants: grants_of(claims)?, expires_at })
}

/// Seconds since 1970, rounded down.
fn whole_seconds(number: &Value) -> Option<u64> {
    // A float turns into the nearest number there is, never into a wrong one.
    number.as_u64().or_else(|| number.as_f64().map(|seconds| seconds as u64))
}

/// What a token says about one door: the claim that does, what its names are, and whether a pattern can be one.
struct DoorClaim {
    claim: &'static str,
    what: &'static str,
    is_pattern: fn(&str) -> bool,
    add: fn(&mut Grants, &str, Level),
}

const DOOR_CLAIMS: [DoorClaim; 2] = [
    DoorClaim { claim: "documents", what: "a document", is_pattern: is_document_pattern, add: Grants::add },
    DoorClaim { claim: "jobs", what: "a job", is_pattern: is_job_pattern, add: Grants::add_job },
];

/// What the claims `documents` and `jobs` grant; nothing without them.
fn grants_of(claims: &Map<String, Value>) -> Result<Grants, Denied> {
    let mut grants = Grants::default();
    for door in &DOOR_CLAIMS {
        if let Some(claim) = claims.get(door.claim) {
            door.read(claim, &mut grants)?;
        }
    }
    Ok(grants)
}

impl DoorClaim {
    fn read(&self, claim: &Value, grants: &mut Grants) -> Result<(), Denied> {
        for (pattern, level) in claim.as_object().ok_or_else(|| self.wrong("is no object"))? {
            let level = level.as_str().and_then(Level::parse);
            let level = level.ok_or_else(|| self.wrong("has an unknown level"))?;
            if !(self.is_pattern)(pattern) {
                return Err(self.wrong(&format!("names something that cannot be {}", self.what)));
            }
            (self.add)(grants, pattern, level);
        }
        Ok(())
    }

    fn wrong(&self, what: &str) -> Denied {
        let Self { claim, what: thing, .. } = self;
        let rule = format!(
            "it is an object of {thing}'s name, or the beginning of names and `*`, to \"read\", \"lock\" or \"force\""
        );
        denied(format!("the claim `{claim}` {what}: {rule}; issue it like that"))
    }
}

/// Whether it is the name of a document, or a beginning of one before a `*`.
fn is_document_pattern(pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => RoomId::is_prefix(prefix),
        None => RoomId::parse(pattern).is_ok(),
    }
}

/// The same for a job, `collection/id`.
fn is_job_pattern(pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => JobId::is_prefix(prefix),
        None => JobId::parse(pattern).is_ok(),
    }
}

// --- keys ---

fn read_keys(source: &KeySource) -> Result<Vec<VerifyKey>, ConfigError> {
    match source {
        KeySource::Secret(secret) => Ok(vec![secret_key("the secret", secret, None)?]),
        KeySource::SecretFile(path) => {
            let secret = files::read(path)?;
            Ok(vec![secret_key(&path.display().to_string(), without_line_end(&secret), None)?])
        }
        KeySource::PublicKeyFile(path) => Ok(vec![public_key(path, &files::read(path)?)?]),
        KeySource::JwksFile(path) => key_set(path, &files::read(path)?),
    }
}

fn without_line_end(secret: &[u8]) -> &[u8] {
    let secret = secret.strip_suffix(b"\n").unwrap_or(secret);
    secret.strip_suffix(b"\r").unwrap_or(secret)
}

/// The shortest secret: whoever guesses it may do everything, and a token is enough to try guesses on.
const SHORTEST_SECRET: usize = 32;

fn secret_key(what: &str, secret: &[u8], kid: Option<String>) -> Result<VerifyKey, ConfigError> {
    if secret.len() < SHORTEST_SECRET {
        let rule =
            format!("a secret for HS256 has at least {SHORTEST_SECRET} bytes, this one has {}", secret.len());
        return Err(ConfigError::new(what, rule, "draw one with `openssl rand -hex 32`"));
    }
    Ok(VerifyKey { kid, algorithm: Algorithm::HS256, key: DecodingKey::from_secret(secret) })
}

fn public_key(path: &Path, pem: &[u8]) -> Result<VerifyKey, ConfigError> {
    if pem.windows(11).any(|window| window == b"PRIVATE KEY") {
        let rule = "it holds a private key, which only the issuer of tokens should have";
        return Err(ConfigError::file(path, rule, "write its public half: `openssl pkey -in KEY -pubout`"));
    }
    let rsa = || DecodingKey::from_rsa_pem(pem).map(|key| (Algorithm::RS256, key));
    let ed = || DecodingKey::from_ed_pem(pem).map(|key| (Algorithm::EdDSA, key));
    let (algorithm, key) = rsa().or_else(|_| ed()).map_err(|_| {
        let rule = "it is not an RSA or Ed25519 public key as PEM (`-----BEGIN PUBLIC KEY-----`)";
        ConfigError::file(path, rule, "write one with `openssl pkey -in KEY -pubout`")
    })?;
    Ok(VerifyKey { kid: None, algorithm, key })
}

/// The keys of a set that we can use; others may be there for others.
fn key_set(path: &Path, json: &[u8]) -> Result<Vec<VerifyKey>, ConfigError> {
    let set: JwkSet = serde_json::from_slice(json).map_err(|_| {
        ConfigError::file(
            path,
            "it is not a JSON Web Key Set, `{\"keys\": […]}`",
            "get it from the issuer anew",
        )
    })?;
    let usable = set.keys.iter().filter(|jwk| jwk.common.public_key_use != Some(PublicKeyUse::Encryption));
    let keys = usable.filter_map(|jwk| set_key(path, jwk).transpose()).collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() {
        let rule = "it holds no key for HS256, RS256 or EdDSA";
        return Err(ConfigError::file(
            path,
            rule,
            "get the right set, or have tokens signed with one of these",
        ));
    }
    Ok(keys)
}

fn set_key(path: &Path, jwk: &Jwk) -> Result<Option<VerifyKey>, ConfigError> {
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::OctetKey(_) => (Algorithm::HS256, KeyAlgorithm::HS256),
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return Ok(None),
    };
    if jwk.common.key_algorithm.is_some_and(|other| other != named) {
        return Ok(None);
    }
    let key = DecodingKey::from_jwk(jwk).map_err(|_| {
        ConfigError::file(path, "one of its keys cannot be read", "get the set from the issuer anew")
    })?;
    let kid = jwk.common.key_id.clone();
    match (algorithm, key.try_get_as_bytes()) {
        (Algorithm::HS256, Ok(secret)) => secret_key(&path.display().to_string(), secret, kid).map(Some),
        _ => Ok(Some(VerifyKey { kid, algorithm, key })),
    }
}

/// Leaves the keys for the agreed algorithms.
fn only(keys: Vec<VerifyKey>, agreed: &[Algorithm]) -> Result<Vec<VerifyKey>, ConfigError> {
    let keys: Vec<_> =
        keys.into_iter().filter(|key| agreed.is_empty() || agreed.contains(&key.algorithm)).collect();
    if keys.is_empty() {
        return Err(ConfigError::new(
            "the algorithms for tokens",
            "none of the keys is for one of them",
            "a secret is for HS256, an RSA key for RS256, an Ed25519 key for EdDSA: name what the keys are for, or \
             leave the list out",
        ));
    }
    Ok(keys)
}

// --- making tokens ---

/// Whom a token is for.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The id.
    pub id: &'a str,
    /// The name to show.
    pub name: &'a str,
    /// What they may do with documents: patterns and levels.
    pub documents: &'a [(&'a str, &'a str)],
    /// What they may do with jobs.
    pub jobs: &'a [(&'a str, &'a str)],
}

/// A token signed with a secret (HS256), valid from now on for this long: for development and for tests.
pub fn mint(secret: &[u8], subject: &Subject<'_>, lifetime: Duration) -> Result<String, ConfigError> {
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
    });
    jsonwebtoken::encode(&Header::default(), &claims, &EncodingKey::from_secret(secret)).map_err(|error| {
        ConfigError::new("a token", format!("it could not be signed: {error}"), "use another secret")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
    const HOUR: u64 = 3_600;

    fn now() -> u64 {
        jsonwebtoken::get_current_timestamp()
    }

    fn signed(claims: &Value) -> String {
        jsonwebtoken::encode(&Header::default(), claims, &EncodingKey::from_secret(SECRET)).unwrap()
    }

    fn open(change: impl FnOnce(&mut JwtOptions)) -> Auth {
        let mut options = JwtOptions::new(KeySource::Secret(SECRET.to_vec()));
        change(&mut options);
        Auth::Jwt(Arc::new(Jwt::open(options).unwrap()))
    }

    fn ask(auth: &Auth, claims: &Value) -> Result<Caller, String> {
        let token = signed(claims);
        auth.authenticate(Some(&format!("Bearer {token}"))).map_err(|denied| denied.detail)
    }

    #[test]
    fn claims_become_a_caller() {
        let exp = now() + HOUR;
        let claims = json!({"sub": "anna", "name": "Anna", "exp": exp,
            "documents": {"minutes": "lock", "a.*": "read"}, "jobs": {"analyses/*": "lock", "reports/7": "force"}});
        let caller = ask(&open(|_| ()), &claims).unwrap();
        assert_eq!((caller.subject.as_str(), caller.name.as_str()), ("anna", "Anna"));
        assert_eq!(caller.expires_at, Some(exp));
        let level = |room: &str| caller.grants.level(&RoomId::parse(room).unwrap());
        assert_eq!(
            [level("minutes"), level("a.b"), level("b")],
            [Some(Level::Lock), Some(Level::Read), None]
        );
        let level = |job: &str| caller.grants.job_level(&JobId::parse(job).unwrap());
        assert_eq!(
            [level("analyses/1"), level("reports/7"), level("reports/8")],
            [Some(Level::Lock), Some(Level::Force), None]
        );
    }

    #[test]
    fn a_name_that_could_fool_people_is_not_shown() {
        for name in [json!("Anna\u{202E}"), json!(" Anna"), json!(""), json!(7), json!("x".repeat(300))] {
            let claims = json!({"sub": "anna", "name": name, "exp": now() + HOUR});
            assert_eq!(ask(&open(|_| ()), &claims).unwrap().name, "anna", "{name}");
        }
    }

    #[test]
    fn what_is_wrong_with_claims_is_said_without_repeating_them() {
        let good = json!({"sub": "anna", "exp": now() + HOUR});
        let cases = [
            ("exp", json!(now() - 60), "expired"),
            ("exp", Value::Null, "`exp`"),
            ("exp", json!("zebra"), "`exp`"),
            ("exp", json!(-1), "`exp`"),
            ("exp", json!(1e300), "`exp`"),
            ("nbf", json!(now() + 60), "not valid yet"),
            ("nbf", json!("zebra"), "`nbf`"),
            ("sub", Value::Null, "`sub`"),
            ("sub", json!(""), "`sub`"),
            ("sub", json!(7), "`sub`"),
            ("sub", json!("zebra\u{7}"), "control and invisible"),
            ("sub", json!("zebra".repeat(60)), "256 bytes"),
            ("aud", json!("zebra"), "`aud`"),
            ("documents", json!("zebra"), "no object"),
            ("documents", json!({"a": "zebra"}), "unknown level"),
            ("documents", json!({"a": 3}), "unknown level"),
            ("documents", json!({"zebra/x": "read"}), "cannot be a document"),
            ("documents", json!({"zebra**": "read"}), "cannot be a document"),
            ("documents", json!({"": "read"}), "cannot be a document"),
            ("jobs", json!(["zebra"]), "no object"),
            ("jobs", json!({"zebra": "read"}), "cannot be a job"),
            ("jobs", json!({"zebra/1/*": "read"}), "cannot be a job"),
            ("jobs", json!({"zebra/*": "write"}), "unknown level"),
        ];
        for (claim, value, said) in cases {
            let mut claims = good.clone();
            claims[claim] = value.clone();
            let detail = ask(&open(|_| ()), &claims).expect_err(&format!("{claim} {value}"));
            assert!(detail.contains(said), "{claim} {value}: {detail}");
            assert!(!detail.contains("zebra"), "{claim} {value}: {detail}");
        }
        ask(&open(|_| ()), &good).unwrap();
        ask(&open(|_| ()), &json!({"sub": "anna", "exp": now() - 1, "nbf": now() + 1}))
            .expect("within the leeway");
    }

    #[test]
    fn audience_and_issuer_are_required_when_they_are_set() {
        let auth = open(|options| {
            options.audience = vec!["leasehold".into(), "locks".into()];
            options.issuer = vec!["app".into()];
        });
        let cases = [
            (json!("leasehold"), json!("app"), Ok(())),
            (json!(["other", "locks"]), json!("app"), Ok(())),
            (json!("other"), json!("app"), Err("`aud`")),
            (json!([]), json!("app"), Err("`aud`")),
            (Value::Null, json!("app"), Err("`aud`")),
            (json!("locks"), json!("other"), Err("`iss`")),
            (json!("locks"), json!(["app", "other"]), Ok(())),
            (json!("locks"), Value::Null, Err("`iss`")),
        ];
        for (aud, iss, expected) in cases {
            let claims = json!({"sub": "anna", "exp": now() + HOUR, "aud": aud, "iss": iss});
            match (ask(&auth, &claims), expected) {
                (Ok(_), Ok(())) => {}
                (Err(detail), Err(said)) if detail.contains(said) => {}
                (answer, _) => panic!("{claims}: {answer:?}"),
            }
        }
    }

    #[test]
    fn the_header_is_a_bearer_token() {
        let auth = open(|_| ());
        let token = signed(&json!({"sub": "anna", "exp": now() + HOUR}));
        for good in [format!("Bearer {token}"), format!("bearer  {token}")] {
            auth.authenticate(Some(&good)).unwrap();
        }
        let long = "x".repeat(LONGEST_TOKEN + 1);
        for bad in ["", "Bearer", "Bearer ", &token, &format!("Basic {token}"), &format!("Bearer {long}")] {
            let detail = auth.authenticate(Some(bad)).unwrap_err().detail;
            assert!(!detail.contains(&token), "{detail}");
        }
        assert!(auth.authenticate(None).unwrap_err().detail.contains("Authorization: Bearer"));
    }

    #[test]
    fn a_token_does_not_choose_how_it_is_checked() {
        use base64::Engine;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let auth = open(|_| ());
        let token = signed(&json!({"sub": "anna", "exp": now() + HOUR}));
        let (_, rest) = token.split_once('.').unwrap();
        let (claims, signature) = rest.split_once('.').unwrap();
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"None"}"#,
            r#"{"alg":"HS512"}"#,
            r#"{"alg":"RS256"}"#,
            r#"{"alg":"EdDSA"}"#,
            r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
            "{}",
        ] {
            let header = URL_SAFE_NO_PAD.encode(header);
            for signature in ["", signature] {
                let forged = format!("Bearer {header}.{claims}.{signature}");
                auth.authenticate(Some(&forged)).expect_err(&forged);
            }
        }
    }

    #[test]
    fn keys_that_will_not_do_are_refused_at_the_start() {
        let error = Jwt::open(JwtOptions::new(KeySource::Secret(b"short and sweet".to_vec()))).unwrap_err();
        assert!(error.to_string().contains("at least 32 bytes, this one has 15"), "{error}");
        let mut options = JwtOptions::new(KeySource::Secret(SECRET.to_vec()));
        options.algorithms = vec![Algorithm::EdDSA];
        assert!(Jwt::open(options).unwrap_err().to_string().contains("HS256"));
    }

    #[test]
    fn nothing_shows_a_secret() {
        let shown = format!("{:?} {:?}", JwtOptions::new(KeySource::Secret(SECRET.to_vec())), open(|_| ()));
        assert!(shown.contains("hidden") && !shown.contains("48, 49"), "{shown}");
    }

    #[test]
    fn without_tokens_everybody_is_anonymous_and_may_do_everything() {
        let caller = Auth::Open.authenticate(None).unwrap();
        assert_eq!((caller.subject.as_str(), caller.expires_at), ("anonymous", None));
        assert_eq!(caller.grants.level(&RoomId::parse("x").unwrap()), Some(Level::Force));
    }
}
