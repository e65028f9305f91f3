//! Tokens from elsewhere: signed by other programs and with other kinds of keys, forged, expired, and after a key changed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use jsonwebtoken::Algorithm::{EdDSA, HS256, RS256};
use leasehold_server::auth::{Algorithm, Auth, Jwt, JwtOptions, KeySource, Subject, mint};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::harness::{House, SECRET, far_away, skipped};

const PAGE: &str = include_str!("../../../../docs/tokens.md");

// --- the snippets of the documentation ---

/// The snippet of the page in this language.
fn snippet(language: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("\n```").unwrap().0
}

/// What the program prints when it runs the snippet; `None`, loudly, where it is not installed.
fn run(program: &str, language: &str, ending: &str) -> Option<String> {
    if Command::new(program).arg("--version").output().is_err() {
        skipped(&format!("the {language} snippet of docs/tokens.md, because {program} is not installed"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("snippet.{ending}"));
    std::fs::write(&file, snippet(language)).unwrap();
    let secret = std::str::from_utf8(SECRET).unwrap();
    let output = Command::new(program).arg(&file).env("LEASEHOLD_JWT_SECRET", secret).output().unwrap();
    assert!(output.status.success(), "{language}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

async fn check_snippet(program: &str, language: &str, ending: &str) {
    let Some(token) = run(program, language, ending) else { return };
    let house = House::new();
    let user = house.stranger().and("authorization", &format!("Bearer {token}"));
    let grant = user.post("/api/documents/minutes/lock", Value::Null).await.ok();
    assert_eq!(grant["holder"], json!({ "id": "user-a", "name": "Änne" }));
    assert_eq!(user.get("/api/documents/team-a.plans/lock").await.status, 200);
    user.post("/api/documents/team-a.plans/lock", Value::Null).await.refused(403, "not_allowed");
    assert_eq!(user.get("/api/documents/other/lock").await.status, 404);
    house.end().await;
}

#[tokio::test]
async fn the_php_snippet_makes_a_token() {
    check_snippet("php", "php", "php").await;
}

#[tokio::test]
async fn the_node_snippet_makes_a_token() {
    check_snippet("node", "javascript", "cjs").await;
}

#[tokio::test]
async fn the_python_snippet_makes_a_token() {
    check_snippet("python3", "python", "py").await;
}

// --- keys ---

/// What an issuer signs with.
enum Private {
    Rsa(RsaKeyPair),
    Ed(Ed25519KeyPair),
    Secret(Vec<u8>),
}

impl Private {
    fn read(pem: &Path, algorithm: jsonwebtoken::Algorithm) -> Self {
        let der = PrivateKeyDer::from_pem_file(pem).unwrap();
        match algorithm {
            RS256 => Self::Rsa(RsaKeyPair::from_pkcs8(der.secret_der()).unwrap()),
            // openssl leaves the public half out.
            _ => Self::Ed(Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_der()).unwrap()),
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
            Self::Secret(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
            }
        }
    }

    fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                let RsaPublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                json!({ "kty": "RSA", "alg": "RS256", "kid": kid, "n": base64(n), "e": base64(e) })
            }
            Self::Ed(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": base64(key.public_key()) })
            }
            Self::Secret(secret) => json!({ "kty": "oct", "kid": kid, "k": base64(secret) }),
        }
    }
}

/// An issuer's key, and the server's file with its public half.
struct Keys {
    folder: tempfile::TempDir,
    algorithm: jsonwebtoken::Algorithm,
    private: Private,
}

impl Keys {
    /// `None`, loudly, where there is no `openssl`.
    fn make(algorithm: jsonwebtoken::Algorithm) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (key, public) = (folder.path().join("key.pem"), folder.path().join("public.pem"));
        let kind: &[&str] = match algorithm {
            RS256 => &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            _ => &["ed25519"],
        };
        let made =
            Command::new("openssl").args(["genpkey", "-algorithm"]).args(kind).arg("-out").arg(&key).output();
        if made.is_err() {
            skipped("tokens signed with private keys, because openssl is not installed");
            return None;
        }
        let output = Command::new("openssl")
            .args(["pkey", "-pubout", "-in"])
            .arg(&key)
            .arg("-out")
            .arg(&public)
            .output();
        assert!(output.unwrap().status.success());
        let private = Private::read(&key, algorithm);
        Some(Self { folder, algorithm, private })
    }

    fn public_file(&self) -> PathBuf {
        self.folder.path().join("public.pem")
    }

    fn private_file(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    fn sign(&self, kid: Option<&str>) -> String {
        signed(self.algorithm, kid, &self.private)
    }

    fn jwk(&self, kid: &str) -> Value {
        self.private.jwk(kid)
    }
}

/// A token as RFC 7519 has it, made without the library that the server reads tokens with.
fn signed(algorithm: jsonwebtoken::Algorithm, kid: Option<&str>, key: &Private) -> String {
    let mut header = json!({ "typ": "JWT", "alg": algorithm });
    if let Some(kid) = kid {
        header["kid"] = kid.into();
    }
    let claims = json!({ "sub": "anna", "exp": far_away() });
    let message = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
    let signature = base64(key.sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn signed_by_secret(kid: Option<&str>, secret: &[u8]) -> String {
    signed(HS256, kid, &Private::Secret(secret.to_vec()))
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

fn open(keys: KeySource) -> Auth {
    Auth::Jwt(Arc::new(Jwt::open(JwtOptions::new(keys)).unwrap()))
}

fn refusal(keys: KeySource) -> String {
    Jwt::open(JwtOptions::new(keys)).unwrap_err().to_string()
}

fn lets_in(auth: &Auth, token: &str) -> bool {
    match auth.authenticate(Some(&format!("Bearer {token}"))) {
        Ok(caller) => caller.subject.as_str() == "anna",
        Err(denied) => {
            let parts = token.split('.').filter(|part| !part.is_empty());
            assert!(parts.into_iter().all(|part| !denied.detail.contains(part)), "{}", denied.detail);
            false
        }
    }
}

/// Waits for what happens when a changed file is noticed.
fn wait_for(what: &str, mut look: impl FnMut() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn public_keys_let_in_what_their_private_halves_signed() {
    let (Some(rsa), Some(ed)) = (Keys::make(RS256), Keys::make(EdDSA)) else { return };
    let (by_rsa, by_ed) =
        (open(KeySource::PublicKeyFile(rsa.public_file())), open(KeySource::PublicKeyFile(ed.public_file())));
    assert!(lets_in(&by_rsa, &rsa.sign(None)) && lets_in(&by_ed, &ed.sign(Some("any"))));
    assert!(!lets_in(&by_rsa, &ed.sign(None)) && !lets_in(&by_ed, &rsa.sign(None)));
    let other = Keys::make(RS256).unwrap();
    assert!(!lets_in(&by_rsa, &other.sign(None)));
}

/// The classic: everybody knows the public key, so everybody can use it as if it were a secret.
#[test]
fn a_public_key_is_never_a_secret() {
    let (Some(rsa), Some(ed)) = (Keys::make(RS256), Keys::make(EdDSA)) else { return };
    for keys in [&rsa, &ed] {
        let auth = open(KeySource::PublicKeyFile(keys.public_file()));
        let set = keys.folder.path().join("keys.json");
        write_set(&set, vec![keys.jwk("a")]);
        let by_set = open(KeySource::JwksFile(set.clone()));
        let pem = std::fs::read(keys.public_file()).unwrap();
        let jwks = std::fs::read(set).unwrap();
        for secret in [&pem[..], pem.trim_ascii_end(), &jwks[..], b""] {
            for kid in [None, Some("a")] {
                let forged = signed_by_secret(kid, secret);
                assert!(!lets_in(&auth, &forged) && !lets_in(&by_set, &forged));
            }
        }
        assert!(lets_in(&auth, &keys.sign(None)) && lets_in(&by_set, &keys.sign(None)));
    }
}

#[test]
fn files_that_are_no_keys_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "not a key").unwrap();
    assert!(refusal(KeySource::PublicKeyFile(file.clone())).contains("BEGIN PUBLIC KEY"));
    assert!(refusal(KeySource::SecretFile(file.clone())).contains("at least 32 bytes"));
    assert!(refusal(KeySource::JwksFile(file.clone())).contains("JSON Web Key Set"));
    std::fs::write(&file, r#"{"keys": []}"#).unwrap();
    assert!(refusal(KeySource::JwksFile(file)).contains("no key"));
    assert!(refusal(KeySource::JwksFile(folder.path().join("missing"))).contains("cannot be read"));
    let Some(keys) = Keys::make(EdDSA) else { return };
    assert!(refusal(KeySource::PublicKeyFile(keys.private_file())).contains("private key"));
    let mut options = JwtOptions::new(KeySource::PublicKeyFile(keys.public_file()));
    options.algorithms = vec![Algorithm::HS256, Algorithm::RS256];
    Jwt::open(options).expect_err("the key is for neither");
}

fn write_set(path: &Path, keys: Vec<Value>) {
    // As a careful program does it: nobody ever sees half of it.
    let beside = path.with_extension("new");
    std::fs::write(&beside, json!({ "keys": keys }).to_string()).unwrap();
    std::fs::rename(beside, path).unwrap();
}

#[test]
fn a_key_set_is_searched_by_kid() {
    let (Some(first), Some(second), Some(rsa)) = (Keys::make(EdDSA), Keys::make(EdDSA), Keys::make(RS256))
    else {
        return;
    };
    let set = first.folder.path().join("keys.json");
    write_set(&set, vec![first.jwk("a"), second.jwk("b"), rsa.jwk("c")]);
    let auth = open(KeySource::JwksFile(set));
    assert!(lets_in(&auth, &first.sign(Some("a"))) && lets_in(&auth, &second.sign(Some("b"))));
    assert!(lets_in(&auth, &rsa.sign(None)), "only one key is for RS256");
    assert!(!lets_in(&auth, &first.sign(None)), "two keys are for EdDSA");
    assert!(!lets_in(&auth, &first.sign(Some("b"))), "signed with another key");
    assert!(!lets_in(&auth, &first.sign(Some("c"))), "a key for another algorithm");
    assert!(!lets_in(&auth, &first.sign(Some("d"))), "a key that is not there");
}

#[test]
fn keys_for_other_things_are_passed_over() {
    let Some(keys) = Keys::make(RS256) else { return };
    let good = keys.jwk("a");
    let with = |name: &str, value: &str| {
        let mut jwk = good.clone();
        jwk[name] = value.into();
        jwk
    };
    let unknown = json!({"kty": "made-up", "kid": "a"});
    let curve = json!({"kty": "EC", "crv": "P-256", "kid": "a", "x": "AQ", "y": "AQ"});
    let set = keys.folder.path().join("keys.json");
    let others = json!([with("use", "enc"), with("alg", "RS512"), unknown, curve]);
    std::fs::write(&set, json!({ "keys": others }).to_string()).unwrap();
    assert!(refusal(KeySource::JwksFile(set.clone())).contains("no key"));
    let all: Vec<&Value> = others.as_array().unwrap().iter().chain([&good]).collect();
    std::fs::write(&set, json!({ "keys": all }).to_string()).unwrap();
    assert!(lets_in(&open(KeySource::JwksFile(set.clone())), &keys.sign(Some("a"))));
    let short = json!({"keys": [{"kty": "oct", "k": "c2hvcnQ", "alg": "HS256"}]});
    std::fs::write(&set, short.to_string()).unwrap();
    assert!(refusal(KeySource::JwksFile(set)).contains("at least 32 bytes"));
}

// --- rotation ---

#[test]
fn a_changed_secret_is_taken_up_and_a_bad_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let [old, new] = ["an old secret of at least 32 bytes!", "a new secret of at least 32 bytes!!"];
    let by = |secret: &str| signed_by_secret(None, secret.as_bytes());
    std::fs::write(&file, format!("{old}\n")).unwrap();
    let auth = open(KeySource::SecretFile(file.clone()));
    assert!(lets_in(&auth, &by(old)) && !lets_in(&auth, &by(new)));
    std::fs::write(&file, "half").unwrap();
    // It is looked at once a second: after two, it has been.
    std::thread::sleep(Duration::from_millis(2_100));
    assert!(lets_in(&auth, &by(old)) && !lets_in(&auth, &by("half")));
    std::fs::write(&file, format!("{new}\r\n")).unwrap();
    wait_for("the new secret", || lets_in(&auth, &by(new)));
    assert!(!lets_in(&auth, &by(old)));
}

/// An attempt at a job belongs to a user and a lease id, not to a token: its worker goes on with a token that the new key has
/// signed.
#[tokio::test]
async fn an_attempt_goes_on_when_the_key_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let [old, new] = ["an old secret of at least 32 bytes!", "a new secret of at least 32 bytes!!"];
    std::fs::write(&file, old).unwrap();
    let auth = open(KeySource::SecretFile(file.clone()));
    let house = House::with(|config| config.auth = auth.clone());
    let worker = |secret: &str| {
        let subject =
            Subject { id: "anna", name: "Anna", documents: &[], jobs: &[("*", "lock")], leases: &[] };
        let token = mint(secret.as_bytes(), &subject, Duration::from_secs(600)).unwrap();
        house.stranger().and("authorization", &format!("Bearer {token}"))
    };
    let job = "/api/jobs/analyses/42";
    let create = Some(json!({ "payload": 7 }).to_string());
    worker(old).call(axum::http::Method::PUT, job, create).await.ok();
    let grant = worker(old).post(&format!("{job}/acquire"), Value::Null).await.ok();
    std::fs::write(&file, new).unwrap();
    wait_for("the new secret", || lets_in(&auth, &signed_by_secret(None, new.as_bytes())));
    let claim = json!({ "lease_id": grant["lease_id"], "fence": grant["fence"] });
    worker(old).post(&format!("{job}/refresh"), claim.clone()).await.refused(401, "unauthenticated");
    assert_eq!(worker(new).post(&format!("{job}/refresh"), claim).await.ok()["holder"]["id"], "anna");
    let complete = json!({ "lease_id": grant["lease_id"], "fence": grant["fence"], "result": 49 });
    assert_eq!(worker(new).post(&format!("{job}/complete"), complete).await.status, 204);
    house.end().await;
}

#[test]
fn a_key_set_changes_over_without_a_moment_in_which_nobody_gets_in() {
    let (Some(old), Some(new)) = (Keys::make(EdDSA), Keys::make(EdDSA)) else { return };
    let set = old.folder.path().join("keys.json");
    write_set(&set, vec![old.jwk("old")]);
    let auth = open(KeySource::JwksFile(set.clone()));
    let (by_old, by_new) = (old.sign(Some("old")), new.sign(Some("new")));
    assert!(lets_in(&auth, &by_old) && !lets_in(&auth, &by_new));
    write_set(&set, vec![old.jwk("old"), new.jwk("new")]);
    wait_for("the new key", || {
        assert!(lets_in(&auth, &by_old));
        lets_in(&auth, &by_new)
    });
    write_set(&set, vec![new.jwk("new")]);
    wait_for("the old key to go", || {
        assert!(lets_in(&auth, &by_new));
        !lets_in(&auth, &by_old)
    });
}
