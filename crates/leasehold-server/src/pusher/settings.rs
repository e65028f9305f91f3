//! The settings of the WebSocket door, and their defaults.

use std::fmt;
use std::time::Duration;

use crate::config::{check_origin, within};
use crate::files::ConfigError;

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

impl fmt::Debug for PusherApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PusherApp {{ app_id: {:?}, key: {:?}, secret: (hidden) }}", self.app_id, self.key)
    }
}

/// The settings of the WebSocket door.
#[derive(Clone, Debug)]
pub struct PusherSettings {
    /// The application, which clients name when they connect.
    pub app: PusherApp,
    /// The origins whose pages may connect, as browsers write them; all when empty.
    pub allowed_origins: Vec<String>,
    /// What comes before the names of events: `App\Events`, as Laravel Echo expects it; bare names when empty.
    pub namespace: String,
    /// Whether an event is kept from the socket that `X-Socket-ID` of the causing call names.
    pub skip_sender: bool,
    /// Whether the application has public channels.
    pub public_channels: bool,
    /// Whether everybody may subscribe to the public channels of documents: for trying things out only.
    pub public_documents: bool,
    /// After how much silence a client sends a ping; the server waits twice as long.
    pub activity_timeout: Duration,
    /// How many sockets there may be.
    pub sockets: usize,
    /// How many subscriptions a socket may have.
    pub subscriptions: usize,
    /// The longest message of a client, in bytes.
    pub message: usize,
    /// How many messages a second a client may send.
    pub messages_per_second: u32,
}

impl PusherSettings {
    /// The defaults for an application.
    pub fn new(app: PusherApp) -> Self {
        Self {
            app,
            allowed_origins: Vec::new(),
            namespace: r"App\Events".to_owned(),
            skip_sender: false,
            public_channels: false,
            public_documents: false,
            activity_timeout: Duration::from_secs(30),
            sockets: 12_000,
            subscriptions: 200,
            message: 10 * 1024,
            messages_per_second: 50,
        }
    }

    /// The name of an event on the wire.
    pub(crate) fn event_name(&self, name: &str) -> String {
        match self.namespace.as_str() {
            "" => name.to_owned(),
            namespace => format!(r"{namespace}\{name}"),
        }
    }

    /// Refuses settings that cannot work.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let PusherApp { app_id, key, secret } = &self.app;
        for (name, value) in [("app_id", app_id), ("key", key)] {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if value.is_empty() || value.len() > 100 || !value.chars().all(is_word) {
                let rule = "it is part of an address: 1 to 100 of A-Z a-z 0-9 - _";
                return Err(ConfigError::new(format!("pusher.{name}"), rule, "choose another"));
            }
        }
        if secret.len() < SHORTEST_SECRET {
            let rule = format!("it has at least {SHORTEST_SECRET} characters");
            let fix = "make one with `openssl rand -hex 32`, and give the web application the same";
            return Err(ConfigError::new("pusher.secret", rule, fix));
        }
        self.allowed_origins.iter().try_for_each(|origin| check_origin("pusher.allowed_origins", origin))?;
        let timeout = usize::try_from(self.activity_timeout.as_secs()).unwrap_or(usize::MAX);
        within("pusher.activity_timeout", timeout, 5, 120)?;
        within("pusher.sockets", self.sockets, 1, 1_000_000)?;
        within("pusher.subscriptions", self.subscriptions, 1, 10_000)?;
        within("pusher.message", self.message, 1024, 1024 * 1024)?;
        within("pusher.messages_per_second", self.messages_per_second as usize, 1, 100_000)
    }

    /// Whether a page of this origin may connect. A program that is no browser names none.
    pub(crate) fn allows(&self, origin: Option<&str>) -> bool {
        let Some(origin) = origin else { return true };
        let mut allowed = self.allowed_origins.iter();
        self.allowed_origins.is_empty() || allowed.any(|allowed| allowed == origin || allowed == "*")
    }
}

/// The shortest secret of an application. Those of Laravel Reverb's installer have 20 characters.
const SHORTEST_SECRET: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> PusherSettings {
        let (app_id, key) = ("docs".to_owned(), "app-key".to_owned());
        PusherSettings::new(PusherApp { app_id, key, secret: "a secret of twenty bytes".into() })
    }

    #[test]
    fn the_names_of_events_are_those_that_echo_listens_to() {
        let echo = settings();
        assert_eq!(echo.event_name("DocumentLocked"), r"App\Events\DocumentLocked");
        let bare = PusherSettings { namespace: String::new(), ..echo };
        assert_eq!(bare.event_name("DocumentLocked"), "DocumentLocked");
    }

    #[test]
    fn only_listed_origins_connect_and_programs_always() {
        let mut settings = settings();
        assert!(settings.allows(Some("https://a.example")) && settings.allows(None));
        settings.allowed_origins = vec!["https://a.example".into()];
        assert!(settings.allows(Some("https://a.example")) && settings.allows(None));
        assert!(!settings.allows(Some("https://b.example")) && !settings.allows(Some("null")));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(settings().check(), Ok(()));
        let refusal = |change: fn(&mut PusherSettings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert!(refusal(|settings| settings.app.secret = "short".into()).starts_with("pusher.secret"));
        assert!(refusal(|settings| settings.app.key = "a/b".into()).starts_with("pusher.key"));
        assert!(refusal(|settings| settings.app.app_id = String::new()).starts_with("pusher.app_id"));
        assert!(refusal(|settings| settings.sockets = 0).contains("pusher.sockets 0"));
        assert!(
            refusal(|settings| settings.allowed_origins = vec!["a.example".into()]).contains("no scheme")
        );
    }
}
