//! Users for trying Leasehold out: a secret, and tokens for two users who may do everything.
//!
//! All secrets come from one, which is kept in a file beside the store: tokens that were printed once are still good after a
//! restart.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::auth::{Auth, Jwt, JwtOptions, KeySource, Subject, mint};
use crate::files::{self, ConfigError};
use crate::pusher::settings::PusherApp;

/// What `--dev` generates.
pub struct Dev {
    /// Accepts the two users' tokens.
    pub auth: Auth,
    /// Their tokens, by user: `user-a` and `user-b`.
    pub tokens: BTreeMap<String, String>,
    /// Signs later ones.
    pub signer: DevSigner,
    /// The application's credentials for Pusher clients.
    pub pusher: PusherApp,
}

/// A made-up user, with a token.
#[derive(Clone, PartialEq, Eq)]
pub struct DevUser {
    /// The subject of the token.
    pub id: String,
    /// The display name.
    pub name: String,
    /// The token.
    pub token: String,
}

/// The users, and their names.
const USERS: [(&str, &str); 2] = [("user-a", "Anna"), ("user-b", "Ben")];

/// How long the tokens are valid.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// How many bytes the secret has.
const SECRET: usize = 32;

impl Dev {
    /// With a new secret, which ends with the process.
    pub fn new() -> Result<Self, ConfigError> {
        Self::of(&random_hex::<SECRET>()?)
    }

    /// With the secret in this file, which is made if it is not there.
    pub fn kept_in(file: &Path) -> Result<Self, ConfigError> {
        Self::of(&kept_secret(file)?)
    }

    fn of(secret: &str) -> Result<Self, ConfigError> {
        let signer = DevSigner { secret: derived(secret, "tokens").into_bytes() };
        let tokens = signer.users()?.into_iter().map(|user| (user.id, user.token)).collect();
        let auth = Auth::Jwt(Arc::new(Jwt::open(JwtOptions::new(KeySource::Secret(signer.secret.clone())))?));
        Ok(Self { auth, tokens, signer, pusher: PusherApp::of(secret) })
    }

    /// The users, with the tokens of the start.
    pub fn users(&self) -> Vec<DevUser> {
        let user = |(id, name): (&str, &str)| {
            let token = self.tokens.get(id)?.clone();
            Some(DevUser { id: id.to_owned(), name: name.to_owned(), token })
        };
        USERS.into_iter().filter_map(user).collect()
    }
}

/// Signs tokens for the made-up users. A server may run for longer than a token lasts.
#[derive(Clone)]
pub struct DevSigner {
    secret: Vec<u8>,
}

impl DevSigner {
    /// The users, each with a token that is valid for a day from now.
    pub fn users(&self) -> Result<Vec<DevUser>, ConfigError> {
        let all = &[("*", "force")];
        let user = |(id, name): (&str, &str)| {
            let subject = Subject { id, name, documents: all, jobs: all, leases: all };
            let token = mint(&self.secret, &subject, LIFETIME)?;
            Ok(DevUser { id: id.to_owned(), name: name.to_owned(), token })
        };
        USERS.into_iter().map(user).collect()
    }
}

impl fmt::Debug for Dev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dev {{ users: {:?}, pusher: {:?} }}", self.tokens.keys(), self.pusher)
    }
}

impl fmt::Debug for DevUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevUser {{ id: {:?}, name: {:?}, token: (hidden) }}", self.id, self.name)
    }
}

/// The secret in the file; a new one if there is no file.
fn kept_secret(file: &Path) -> Result<String, ConfigError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // It signs tokens that may do everything.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(file) {
        Ok(mut made) => {
            let secret = random_hex::<SECRET>()?;
            made.write_all(format!("{secret}\n").as_bytes()).map_err(|error| {
                let rule = format!("the secret of --dev cannot be written into it: {error}");
                ConfigError::file(file, rule, "make room on the disk and delete the file, then start again")
            })?;
            Ok(secret)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => known_secret(file),
        Err(error) => {
            let rule = format!("the secret of --dev cannot be kept there: {error}");
            Err(ConfigError::file(file, rule, "choose a store in a folder that you may write to"))
        }
    }
}

fn known_secret(file: &Path) -> Result<String, ConfigError> {
    let bytes = files::read(file)?;
    let secret = std::str::from_utf8(&bytes).unwrap_or_default().trim_end();
    if secret.len() != 2 * SECRET || !secret.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let rule = "it is not a secret that --dev has made";
        return Err(ConfigError::file(
            file,
            rule,
            "delete it, and a new one is made; earlier tokens end with it",
        ));
    }
    Ok(secret.to_owned())
}

/// A secret for one purpose, as hexadecimal digits.
fn derived(secret: &str, purpose: &str) -> String {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return secret.to_owned() };
    mac.update(purpose.as_bytes());
    hex(&mac.finalize().into_bytes())
}

impl PusherApp {
    /// The credentials that belong to the secret of `--dev`.
    fn of(secret: &str) -> Self {
        let derived = |purpose: &str, digits: usize| derived(secret, purpose).chars().take(digits).collect();
        Self {
            app_id: "leasehold".into(),
            key: derived("Pusher key", 20),
            secret: derived("Pusher secret", 40),
        }
    }
}

/// Random bytes as hexadecimal digits.
fn random_hex<const BYTES: usize>() -> Result<String, ConfigError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        let rule = format!("the system provides no random numbers: {error}");
        ConfigError::new("a secret", rule, "run where /dev/urandom can be read")
    })?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use leasehold_core::{JobId, LeaseName, RoomId};

    use super::*;
    use crate::caller::Level;

    #[test]
    fn two_users_may_do_everything_for_a_day() {
        let dev = Dev::new().unwrap();
        assert_eq!(dev.tokens.keys().collect::<Vec<_>>(), ["user-a", "user-b"]);
        for (user, name) in USERS {
            let caller = dev.auth.authenticate(Some(&format!("Bearer {}", dev.tokens[user]))).unwrap();
            assert_eq!((caller.subject.as_str(), caller.name.as_str()), (user, name));
            assert_eq!(caller.grants.level(&RoomId::parse("x").unwrap()), Some(Level::Force));
            assert_eq!(caller.grants.job_level(&JobId::parse("a/1").unwrap()), Some(Level::Force));
            assert_eq!(caller.grants.lease_level(&LeaseName::parse("x").unwrap()), Some(Level::Force));
            let left = caller.expires_at.unwrap() - jsonwebtoken::get_current_timestamp();
            assert!((86_390..=86_400).contains(&left), "{left}");
        }
    }

    #[test]
    fn every_start_has_its_own_secrets_and_shows_none() {
        let (one, other) = (Dev::new().unwrap(), Dev::new().unwrap());
        let foreign = format!("Bearer {}", one.tokens["user-a"]);
        other.auth.authenticate(Some(&foreign)).unwrap_err();
        assert_ne!(one.pusher, other.pusher);
        let shown = format!("{one:?}");
        assert!(!shown.contains(&one.pusher.secret) && !shown.contains(&one.tokens["user-a"]), "{shown}");
    }

    /// Tokens ended with the process: every page and terminal had to be signed in again after a restart.
    #[test]
    fn a_kept_secret_keeps_tokens_valid_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leases.db.dev-secret");
        let (before, after) = (Dev::kept_in(&file).unwrap(), Dev::kept_in(&file).unwrap());
        for user in before.users() {
            let caller = after.auth.authenticate(Some(&format!("Bearer {}", user.token))).unwrap();
            assert_eq!(
                (caller.subject.as_str(), caller.name.as_str()),
                (user.id.as_str(), user.name.as_str())
            );
        }
        assert_eq!(before.pusher, after.pusher);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_damaged_secret_is_refused_with_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leases.db.dev-secret");
        for damaged in ["", "abc\n", &"x".repeat(64)] {
            std::fs::write(&file, damaged).unwrap();
            let error = Dev::kept_in(&file).unwrap_err().to_string();
            assert!(error.contains("leases.db.dev-secret") && error.contains("delete it"), "{error}");
        }
        let nowhere = folder.path().join("no/such/folder/secret");
        assert!(Dev::kept_in(&nowhere).unwrap_err().to_string().contains("cannot be kept there"));
    }
}
