//! Keys that tokens are checked with: a secret, a public key or a key set, from memory or from files.

use std::fmt;
use std::path::{Path, PathBuf};

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;
use spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};

use crate::files::{self, ConfigError};

/// How a token may be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with a secret that issuer and server share.
    HS256,
    /// An RSA key; the server has its public half.
    RS256,
    /// An Ed25519 key; the server has its public half.
    EdDSA,
}

impl Algorithm {
    /// All algorithms.
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
                    "it is not one of HS256, RS256 and EdDSA",
                    "write one of these",
                )
            },
        )
    }

    pub(super) fn of(other: jsonwebtoken::Algorithm) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.theirs() == other)
    }

    pub(super) fn theirs(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::HS256 => jsonwebtoken::Algorithm::HS256,
            Self::RS256 => jsonwebtoken::Algorithm::RS256,
            Self::EdDSA => jsonwebtoken::Algorithm::EdDSA,
        }
    }
}

/// Where the keys come from that tokens are checked with. Files are read again when they change.
#[derive(Clone)]
pub enum KeySource {
    /// A secret, for HS256.
    Secret(Vec<u8>),
    /// A file with a secret, for HS256. A final line end is not part of it.
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

/// A key and its one algorithm: a public key is never used as a secret.
pub(super) struct VerifyKey {
    pub(super) kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// Reads the keys of a source, or says what is wrong with them.
pub(super) fn read_keys(source: &KeySource) -> Result<Vec<VerifyKey>, ConfigError> {
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

/// The shortest secret, in bytes. A single token is enough to test guesses offline, and a guessed secret grants everything.
const SHORTEST_SECRET: usize = 32;

fn secret_key(what: &str, secret: &[u8], kid: Option<String>) -> Result<VerifyKey, ConfigError> {
    if secret.len() < SHORTEST_SECRET {
        let rule =
            format!("a secret for HS256 has at least {SHORTEST_SECRET} bytes, this one has {}", secret.len());
        return Err(ConfigError::new(what, rule, "make one with `openssl rand -hex 32`"));
    }
    Ok(VerifyKey { kid, algorithm: Algorithm::HS256, key: DecodingKey::from_secret(secret) })
}

fn public_key(path: &Path, pem: &[u8]) -> Result<VerifyKey, ConfigError> {
    if pem.windows(11).any(|window| window == b"PRIVATE KEY") {
        let rule = "it is a private key, which only the issuer of tokens should have";
        return Err(ConfigError::file(path, rule, "write its public half: `openssl pkey -in KEY -pubout`"));
    }
    let (algorithm, key) = decode_public_key(pem).ok_or_else(|| {
        let rule = "it is not an RSA or Ed25519 public key as PEM (`-----BEGIN PUBLIC KEY-----`)";
        ConfigError::file(path, rule, "write one with `openssl pkey -in KEY -pubout`, or `openssl rsa -RSAPublicKey_in -in KEY -pubout`")
    })?;
    Ok(VerifyKey { kid: None, algorithm, key })
}

/// A PEM of `openssl pkey -pubout`: the name of the algorithm, then what its verifier takes, which is DER for RSA and the
/// 32 bytes of an Ed25519 key.
fn decode_public_key(pem: &[u8]) -> Option<(Algorithm, DecodingKey)> {
    const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
    const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
    let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).ok()?;
    let info = SubjectPublicKeyInfoRef::try_from(der.as_ref()).ok()?;
    let key = info.subject_public_key.as_bytes()?;
    match info.algorithm.oid {
        RSA => Some((Algorithm::RS256, DecodingKey::from_rsa_der(key))),
        ED25519 if key.len() == 32 => Some((Algorithm::EdDSA, DecodingKey::from_ed_der(key))),
        _ => None,
    }
}

/// The keys of a set that this server can use. A set may have keys for other purposes, which are left out.
fn key_set(path: &Path, json: &[u8]) -> Result<Vec<VerifyKey>, ConfigError> {
    let set: JwkSet = serde_json::from_slice(json).map_err(|_| {
        ConfigError::file(
            path,
            "it is not a JSON Web Key Set, `{\"keys\": […]}`",
            "download it from the issuer again",
        )
    })?;
    let usable = set.keys.iter().filter(|jwk| jwk.common.public_key_use != Some(PublicKeyUse::Encryption));
    let keys = usable.filter_map(|jwk| set_key(path, jwk).transpose()).collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() {
        let rule = "it has no key for HS256, RS256 or EdDSA";
        return Err(ConfigError::file(
            path,
            rule,
            "use another key set, or have tokens signed with one of these algorithms",
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
        ConfigError::file(
            path,
            "one of its keys cannot be read",
            "download the key set from the issuer again",
        )
    })?;
    let kid = jwk.common.key_id.clone();
    match (algorithm, key.try_get_as_bytes()) {
        (Algorithm::HS256, Ok(secret)) => secret_key(&path.display().to_string(), secret, kid).map(Some),
        _ => Ok(Some(VerifyKey { kid, algorithm, key })),
    }
}

/// The keys for the configured algorithms; all of them when none is configured.
pub(super) fn only(keys: Vec<VerifyKey>, configured: &[Algorithm]) -> Result<Vec<VerifyKey>, ConfigError> {
    let keys: Vec<_> =
        keys.into_iter().filter(|key| configured.is_empty() || configured.contains(&key.algorithm)).collect();
    if keys.is_empty() {
        return Err(ConfigError::new(
            "the algorithms for tokens",
            "no key is for one of them",
            "a secret is for HS256, an RSA key for RS256, an Ed25519 key for EdDSA; list the algorithms of your keys, or \
             leave the list out",
        ));
    }
    Ok(keys)
}
