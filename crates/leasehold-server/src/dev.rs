//! Users for trying Leasehold out: a new secret at every start, and tokens for two users who may do everything.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::{Auth, Jwt, JwtOptions, KeySource, Subject, mint};
use crate::files::ConfigError;

/// What `--dev` generates.
pub struct Dev {
    /// Accepts the two users' tokens.
    pub auth: Auth,
    /// Their tokens, by user: `user-a` and `user-b`.
    pub tokens: BTreeMap<String, String>,
    /// The application's credentials for Pusher clients.
    pub pusher: PusherApp,
}

/// The users, and their names.
const USERS: [(&str, &str); 2] = [("user-a", "Anna"), ("user-b", "Ben")];

/// How long the tokens are valid.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

impl Dev {
    /// Generates the secrets and the tokens.
    pub fn new() -> Result<Self, ConfigError> {
        let secret = random_hex::<32>()?.into_bytes();
        let token = |(id, name): (&str, &str)| {
            let all = &[("*", "force")];
            let subject = Subject { id, name, documents: all, jobs: all, leases: all };
            Ok((id.to_owned(), mint(&secret, &subject, LIFETIME)?))
        };
        let tokens = USERS.into_iter().map(token).collect::<Result<_, ConfigError>>()?;
        let auth = Auth::Jwt(Arc::new(Jwt::open(JwtOptions::new(KeySource::Secret(secret.clone())))?));
        Ok(Self { auth, tokens, pusher: PusherApp::new()? })
    }
}

impl fmt::Debug for Dev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dev {{ users: {:?}, pusher: {:?} }}", self.tokens.keys(), self.pusher)
    }
}

/// The credentials of a Pusher application.
#[derive(Clone, PartialEq, Eq)]
pub struct PusherApp {
    /// The application's id.
    pub app_id: String,
    /// The public key, which clients connect with.
    pub key: String,
    /// The secret that signs channels.
    pub secret: String,
}

impl PusherApp {
    fn new() -> Result<Self, ConfigError> {
        Ok(Self { app_id: "leasehold".into(), key: random_hex::<10>()?, secret: random_hex::<20>()? })
    }
}

impl fmt::Debug for PusherApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PusherApp {{ app_id: {:?}, key: {:?}, secret: (hidden) }}", self.app_id, self.key)
    }
}

/// Random bytes as hexadecimal digits.
fn random_hex<const BYTES: usize>() -> Result<String, ConfigError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        let rule = format!("the system provides no random numbers: {error}");
        ConfigError::new("a secret", rule, "run where /dev/urandom can be read")
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
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
}
