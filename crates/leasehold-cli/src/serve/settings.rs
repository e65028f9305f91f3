//! Every setting of a server, wherever it comes from: a flag wins over the environment, that over the file, and that
//! over the default. One list serves all of them, so that no setting can be missing from one.
//!
//! No secret is a setting: a process list shows flags. Secrets come from files, or from the environment.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_core::time::parse_duration;
use serde::Deserialize;

use crate::logs::LogFormat;

/// A setting that is wrong, or settings that do not go together. It ends the program with the code for wrong usage.
#[derive(Debug)]
pub(crate) struct WrongUsage(pub(crate) String);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// Declares settings that can be flags, variables and keys of the file; all are optional, the defaults are elsewhere.
macro_rules! settings {
    ($(#[$outer:meta])* $name:ident {
        $($(#[$meta:meta])* $field:ident: $type:ty,)*
        $(=> $section:ident: $section_type:ident,)*
    }) => {
        #[derive(Clone, Default, clap::Args, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $(#[$outer])*
        pub(super) struct $name {
            $($(#[$meta])* pub(super) $field: Option<$type>,)*
            $(#[command(flatten)] pub(super) $section: $section_type,)*
        }

        impl $name {
            const NAMES: &'static [&'static str] =
                &[$(stringify!($field),)* $(stringify!($section),)*];

            /// These, and those of `other` where these say nothing.
            pub(super) fn or(self, other: Self) -> Self {
                Self {
                    $($field: self.$field.or(other.$field),)*
                    $($section: self.$section.or(other.$section),)*
                }
            }

            /// Refuses unknown names, and lists the known ones.
            fn check_names(table: &toml::Table, inside: &str) -> Result<(), String> {
                for name in table.keys() {
                    if !Self::NAMES.contains(&name.as_str()) {
                        return Err(unknown(inside, name, Self::NAMES));
                    }
                }
                $(if let Some(toml::Value::Table(table)) = table.get(stringify!($section)) {
                    $section_type::check_names(table, stringify!($section))?;
                })*
                Ok(())
            }
        }
    };
}

settings! {
    /// How a server is to be.
    Settings {
        /// Where to listen; port 0 lets the system choose one [default: 127.0.0.1:7420]
        #[arg(long, value_name = "HOST:PORT", env = "LEASEHOLD_LISTEN")]
        listen: String,
        /// Where the leases are: a file, `memory:`, `postgres://…`, or `firestore:PROJECT` for jobs only [default: leases.db]
        ///
        /// A URL with a password belongs into the variable or the file.
        #[arg(long, value_name = "URL", env = "LEASEHOLD_STORE")]
        store: String,
        /// How long a lock lasts without a renewal [default: 30s]
        #[arg(long, value_name = "DURATION", env = "LEASEHOLD_TTL")]
        ttl: Span,
        /// How often holders should renew [default: 10s]
        #[arg(long, value_name = "DURATION", env = "LEASEHOLD_HEARTBEAT")]
        heartbeat: Span,
        /// How long a page that was closed or reloaded has to come back [default: 5s]
        #[arg(long, value_name = "DURATION", env = "LEASEHOLD_GRACE")]
        grace: Span,
        /// Which web origins may call, separated by commas; `*` for all [default: none]
        #[arg(long, value_name = "ORIGINS", env = "LEASEHOLD_CORS_ORIGINS", value_delimiter = ',')]
        cors_origins: Vec<String>,
        /// From which proxies X-Forwarded-For is believed: addresses or networks, separated by commas [default: none]
        #[arg(long, value_name = "NETWORKS", env = "LEASEHOLD_TRUSTED_PROXIES", value_delimiter = ',')]
        trusted_proxies: Vec<String>,
        /// The file that records take-overs and forced releases [default: beside a store that is a file]
        #[arg(long, value_name = "FILE", env = "LEASEHOLD_AUDIT_FILE")]
        audit_file: PathBuf,
        /// The flag file, which says in which phase of a roll-out pages are [default: none; `flags init` makes one]
        #[arg(long, value_name = "FILE", env = "LEASEHOLD_FLAGS_FILE")]
        flags_file: PathBuf,
        /// The phase that counts here, whatever the flag file says [default: that of the file]
        #[arg(long, value_name = "NAME", env = "LEASEHOLD_PHASE")]
        phase: String,
        /// What tickets for event streams are signed with; several servers need the same [default: drawn at the start]
        #[arg(long, value_name = "FILE", env = "LEASEHOLD_TICKET_SECRET_FILE")]
        ticket_secret_file: PathBuf,
        /// What is logged, such as `warn` or `info,leasehold_server=debug` [default: RUST_LOG, or info]
        #[arg(long, value_name = "FILTER", env = "LEASEHOLD_LOG")]
        log: String,
        /// How it is logged [default: text on a terminal, json elsewhere]
        #[arg(long, value_name = "FORMAT", env = "LEASEHOLD_LOG_FORMAT", value_enum)]
        log_format: LogFormat,
        => jwt: Jwt,
        => tls: Tls,
        => pusher: Pusher,
        => telemetry: Telemetry,
        => webhook: Webhook,
        => limits: Limits,
    }
}

settings! {
    /// Who may come in: those whose token was signed with one of these keys.
    #[command(next_help_heading = "Who may come in (JSON Web Tokens)")]
    Jwt {
        /// The secret that HS256 tokens are signed with, in a file (or itself in LEASEHOLD_JWT_SECRET).
        #[arg(long = "jwt-secret-file", value_name = "FILE", env = "LEASEHOLD_JWT_SECRET_FILE")]
        secret_file: PathBuf,
        /// The public key of RS256 or EdDSA tokens, as PEM.
        #[arg(long = "jwt-public-key-file", value_name = "FILE", env = "LEASEHOLD_JWT_PUBLIC_KEY_FILE")]
        public_key_file: PathBuf,
        /// A set of keys, as a JWKS file.
        #[arg(long = "jwt-jwks-file", value_name = "FILE", env = "LEASEHOLD_JWT_JWKS_FILE")]
        jwks_file: PathBuf,
        /// Which algorithms are accepted, separated by commas: HS256, RS256, EdDSA [default: those of the key]
        #[arg(long = "jwt-algorithms", value_name = "NAMES", env = "LEASEHOLD_JWT_ALGORITHMS", value_delimiter = ',')]
        algorithms: Vec<String>,
        /// Accepted audiences of a token (`aud`), separated by commas [default: tokens without an audience]
        #[arg(long = "jwt-audience", value_name = "NAMES", env = "LEASEHOLD_JWT_AUDIENCE", value_delimiter = ',')]
        audience: Vec<String>,
        /// Accepted issuers of a token (`iss`), separated by commas [default: any]
        #[arg(long = "jwt-issuer", value_name = "NAMES", env = "LEASEHOLD_JWT_ISSUER", value_delimiter = ',')]
        issuer: Vec<String>,
    }
}

settings! {
    /// HTTPS.
    #[command(next_help_heading = "HTTPS")]
    Tls {
        /// The certificate and those that vouch for it, as PEM.
        #[arg(long = "tls-certificate", value_name = "FILE", env = "LEASEHOLD_TLS_CERTIFICATE")]
        certificate: PathBuf,
        /// The private key of the certificate, as PEM.
        #[arg(long = "tls-key", value_name = "FILE", env = "LEASEHOLD_TLS_KEY")]
        key: PathBuf,
    }
}

settings! {
    /// WebSockets for pages with Laravel Echo or pusher-js. They are open when there is a secret.
    #[command(next_help_heading = "WebSockets (the Pusher protocol)")]
    Pusher {
        /// The secret that signs channels, in a file (or itself in LEASEHOLD_PUSHER_SECRET) [default: no WebSockets]
        #[arg(id = "pusher_secret_file", long = "pusher-secret-file", value_name = "FILE", env = "LEASEHOLD_PUSHER_SECRET_FILE")]
        secret_file: PathBuf,
        /// The public key that pages connect with [default: leasehold]
        #[arg(id = "pusher_key", long = "pusher-key", value_name = "NAME", env = "LEASEHOLD_PUSHER_KEY")]
        key: String,
        /// The id of the application [default: leasehold]
        #[arg(id = "pusher_app_id", long = "pusher-app-id", value_name = "NAME", env = "LEASEHOLD_PUSHER_APP_ID")]
        app_id: String,
        /// Which web origins may connect, separated by commas [default: all]
        #[arg(id = "pusher_allowed_origins", long = "pusher-allowed-origins", value_name = "ORIGINS", env = "LEASEHOLD_PUSHER_ALLOWED_ORIGINS", value_delimiter = ',')]
        allowed_origins: Vec<String>,
        /// What comes before the names of events; empty for bare names [default: App\Events]
        #[arg(id = "pusher_namespace", long = "pusher-namespace", value_name = "NAME", env = "LEASEHOLD_PUSHER_NAMESPACE")]
        namespace: String,
        /// Whether the socket named by X-Socket-ID of a call does not get the event of that call [default: false]
        #[arg(id = "pusher_skip_sender", long = "pusher-skip-sender", value_name = "BOOL", env = "LEASEHOLD_PUSHER_SKIP_SENDER")]
        skip_sender: bool,
        /// Whether the application has public channels of its own [default: false]
        #[arg(id = "pusher_public_channels", long = "pusher-public-channels", value_name = "BOOL", env = "LEASEHOLD_PUSHER_PUBLIC_CHANNELS")]
        public_channels: bool,
        /// After how much silence a client sends a ping [default: 30s]
        #[arg(id = "pusher_activity_timeout", long = "pusher-activity-timeout", value_name = "DURATION", env = "LEASEHOLD_PUSHER_ACTIVITY_TIMEOUT")]
        activity_timeout: Span,
        /// How many sockets there may be [default: 12000]
        #[arg(id = "pusher_sockets", long = "pusher-sockets", value_name = "N", env = "LEASEHOLD_PUSHER_SOCKETS")]
        sockets: usize,
        /// How many subscriptions a socket may have [default: 200]
        #[arg(id = "pusher_subscriptions", long = "pusher-subscriptions", value_name = "N", env = "LEASEHOLD_PUSHER_SUBSCRIPTIONS")]
        subscriptions: usize,
        /// The longest message of a client [default: 10240]
        #[arg(id = "pusher_message", long = "pusher-message", value_name = "BYTES", env = "LEASEHOLD_PUSHER_MESSAGE")]
        message: usize,
        /// How many messages a second a client may send [default: 50]
        #[arg(id = "pusher_messages_per_second", long = "pusher-messages-per-second", value_name = "N", env = "LEASEHOLD_PUSHER_MESSAGES_PER_SECOND")]
        messages_per_second: u32,
    }
}

settings! {
    /// Counts of what locks and autosaves do, from pages that send them. Off unless a folder is named.
    #[command(next_help_heading = "Telemetry")]
    Telemetry {
        /// The folder of the counts, which has nothing else in it [default: no telemetry]
        #[arg(id = "telemetry_folder", long = "telemetry-folder", value_name = "FOLDER", env = "LEASEHOLD_TELEMETRY_FOLDER")]
        folder: PathBuf,
        /// Whether pages without a token may send counts; anyone could then make them up [default: false]
        #[arg(id = "telemetry_anonymous", long = "telemetry-anonymous", value_name = "BOOL", env = "LEASEHOLD_TELEMETRY_ANONYMOUS")]
        anonymous: bool,
        /// How many days are kept [default: 30]
        #[arg(id = "telemetry_days", long = "telemetry-days", value_name = "N", env = "LEASEHOLD_TELEMETRY_DAYS")]
        days: u32,
        /// How many bytes a day are kept [default: 16777216]
        #[arg(id = "telemetry_bytes_per_day", long = "telemetry-bytes-per-day", value_name = "BYTES", env = "LEASEHOLD_TELEMETRY_BYTES_PER_DAY")]
        bytes_per_day: u64,
    }
}

settings! {
    /// Where take-overs and forced releases are posted to.
    #[command(next_help_heading = "Webhooks")]
    Webhook {
        /// The address; one that is a secret belongs into the variable or the file [default: no webhooks]
        #[arg(id = "webhook_url", long = "webhook-url", value_name = "URL", env = "LEASEHOLD_WEBHOOK_URL")]
        url: String,
        /// The secret that signs them, in a file (or itself in LEASEHOLD_WEBHOOK_SECRET).
        #[arg(id = "webhook_secret_file", long = "webhook-secret-file", value_name = "FILE", env = "LEASEHOLD_WEBHOOK_SECRET_FILE")]
        secret_file: PathBuf,
    }
}

settings! {
    /// How much is taken in.
    #[command(next_help_heading = "Limits")]
    Limits {
        /// The longest body [default: 65536]
        #[arg(long = "limits-body", value_name = "BYTES", env = "LEASEHOLD_LIMITS_BODY")]
        body: usize,
        /// The longest head of a request [default: 16384]
        #[arg(long = "limits-head", value_name = "BYTES", env = "LEASEHOLD_LIMITS_HEAD")]
        head: usize,
        /// How long the head of a request may take to arrive [default: 10s]
        #[arg(long = "limits-head-time", value_name = "DURATION", env = "LEASEHOLD_LIMITS_HEAD_TIME")]
        head_time: Span,
        /// How long the body of a request may take to arrive [default: 10s]
        #[arg(long = "limits-body-time", value_name = "DURATION", env = "LEASEHOLD_LIMITS_BODY_TIME")]
        body_time: Span,
        /// How many connections there may be [default: 16384]
        #[arg(long = "limits-connections", value_name = "N", env = "LEASEHOLD_LIMITS_CONNECTIONS")]
        connections: usize,
        /// How many of them from one address [default: 1024]
        #[arg(long = "limits-connections-per-address", value_name = "N", env = "LEASEHOLD_LIMITS_CONNECTIONS_PER_ADDRESS")]
        connections_per_address: usize,
        /// How many requests a second one caller may make [default: 200]
        #[arg(long = "limits-requests-per-second", value_name = "N", env = "LEASEHOLD_LIMITS_REQUESTS_PER_SECOND")]
        requests_per_second: u32,
        /// How many at once after a pause [default: 1000]
        #[arg(long = "limits-burst", value_name = "N", env = "LEASEHOLD_LIMITS_BURST")]
        burst: u32,
        /// How many event streams one caller may have open [default: 64]
        #[arg(long = "limits-streams-per-caller", value_name = "N", env = "LEASEHOLD_LIMITS_STREAMS_PER_CALLER")]
        streams_per_caller: usize,
        /// How many events a stream may be behind before it is ended [default: 1024]
        #[arg(long = "limits-stream-backlog", value_name = "N", env = "LEASEHOLD_LIMITS_STREAM_BACKLOG")]
        stream_backlog: usize,
        /// How many locks one user may hold [default: 10000]
        #[arg(long = "limits-leases-per-owner", value_name = "N", env = "LEASEHOLD_LIMITS_LEASES_PER_OWNER")]
        leases_per_owner: u32,
        /// How long the end waits for requests under way [default: 10s]
        #[arg(long = "limits-drain", value_name = "DURATION", env = "LEASEHOLD_LIMITS_DRAIN")]
        drain: Span,
    }
}

/// A duration as people write it: `30s`, `1500ms`, or a bare number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Span(pub(super) Duration);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Seconds(u64),
    Text(String),
}

impl FromStr for Span {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse_duration("duration", text).map(Self)
    }
}

impl TryFrom<Written> for Span {
    type Error = Invalid;

    fn try_from(written: Written) -> Result<Self, Invalid> {
        match written {
            Written::Seconds(seconds) => Ok(Self(Duration::from_secs(seconds))),
            Written::Text(text) => text.parse(),
        }
    }
}

/// A few settings are not shown: a store's URL may carry a password.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settings(hidden)")
    }
}

impl Settings {
    /// These settings, and those of the file where these say nothing.
    pub(super) fn with_file(self, file: Option<&Path>) -> Result<Self, WrongUsage> {
        let Some(path) = file else { return Ok(self) };
        let told = |why: String| WrongUsage(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| told(format!("cannot be read: {error}")))?;
        Ok(self.or(Self::read(&text).map_err(told)?))
    }

    /// Parses a file's text. An error does not repeat the line, which may hold a password.
    fn read(text: &str) -> Result<Self, String> {
        let told = |error: &toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            format!("line {line}: {}", error.message().trim_end())
        };
        let table: toml::Table = text.parse().map_err(|error| told(&error))?;
        Self::check_names(&table, "")?;
        toml::from_str(text).map_err(|error| told(&error))
    }
}

fn unknown(inside: &str, name: &str, names: &[&str]) -> String {
    let place = if inside.is_empty() { String::new() } else { format!(" in [{inside}]") };
    let hint = match nearest(name, names) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("there are {}", names.join(", ")),
    };
    let shown: String = name.chars().take(60).collect();
    format!("there is no setting {shown:?}{place}; {hint}")
}

/// The known name that `name` is most probably a slip of, if any is near enough.
fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let spelled = name.to_lowercase().replace('-', "_");
    let near = names.iter().map(|known| (distance(&spelled, known), *known)).min_by_key(|near| near.0)?;
    (near.0 <= 2.max(near.1.len() / 2)).then_some(near.1)
}

/// How many letters have to be put in, taken out or replaced to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(80).enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let (above, left) = (row.get(j + 1).copied(), next.get(j).copied());
            let replaced = row.get(j).copied().unwrap_or_default() + usize::from(x != *y);
            let moved = above.into_iter().chain(left).min().unwrap_or_default() + 1;
            next.push(replaced.min(moved));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_say_everything() {
        let text = "ttl = '45s'\nheartbeat = 15\ncors_origins = ['https://a.example']\nlog_format = 'json'\n\
                    [jwt]\nalgorithms = ['HS256']\n[tls]\nkey = 'k.pem'\n[limits]\nbody = 100\ndrain = '1m'\n";
        let settings = Settings::read(text).unwrap();
        assert_eq!(settings.ttl, Some(Span(Duration::from_secs(45))));
        assert_eq!(settings.heartbeat, Some(Span(Duration::from_secs(15))));
        assert_eq!(settings.log_format, Some(LogFormat::Json));
        assert_eq!(settings.jwt.algorithms.unwrap(), ["HS256"]);
        assert_eq!((settings.limits.body, settings.tls.key), (Some(100), Some("k.pem".into())));
    }

    #[test]
    fn a_slip_is_answered_with_the_nearest_name() {
        let cases = [
            ("tll = '1s'", "there is no setting \"tll\"; did you mean `ttl`?"),
            ("[jwt]\nsecret = 'x'", "there is no setting \"secret\" in [jwt]; did you mean `secret_file`?"),
            ("[limit]\nbody = 1", "there is no setting \"limit\"; did you mean `limits`?"),
            ("cors-origins = []", "did you mean `cors_origins`?"),
            ("[tls]\nxyzzy = 1", "there is no setting \"xyzzy\" in [tls]; there are certificate, key"),
        ];
        for (text, expected) in cases {
            let error = Settings::read(text).unwrap_err();
            assert!(error.ends_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_without_its_text() {
        let error = Settings::read("# one\nstore = 'postgres://u:hunter2@h/d\n").unwrap_err();
        assert!(error.starts_with("line 2: ") && !error.contains("hunter2"), "{error}");
        let error = Settings::read("[limits]\nbody = 'much'\n").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
        let error = Settings::read("ttl = 'soon'\n").unwrap_err();
        assert!(error.contains("write it like 1500ms, 30s, 5m or 24h"), "{error}");
    }

    /// Every setting, as it stands in a file: `ttl`, or `limits.body`.
    fn all_names() -> Vec<String> {
        let sections = [
            ("jwt", Jwt::NAMES),
            ("tls", Tls::NAMES),
            ("pusher", Pusher::NAMES),
            ("telemetry", Telemetry::NAMES),
            ("webhook", Webhook::NAMES),
            ("limits", Limits::NAMES),
        ];
        let inner = sections
            .iter()
            .flat_map(|(section, names)| names.iter().map(move |name| format!("{section}.{name}")));
        let outer =
            Settings::NAMES.iter().filter(|name| !sections.iter().any(|(section, _)| section == *name));
        outer.map(|name| (*name).to_owned()).chain(inner).collect()
    }

    fn repository_file(path: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
    }

    #[test]
    fn the_sample_file_has_every_setting() {
        let sample = repository_file("packaging/leasehold.toml");
        assert!(Settings::read(&sample).is_ok(), "as it is");
        let is_setting = |line: &str| {
            line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
        };
        let filled: Vec<&str> =
            sample.lines().map(|line| if is_setting(line) { &line[1..] } else { line }).collect();
        let filled = filled.join("\n");
        Settings::read(&filled).unwrap();
        let table: toml::Table = filled.parse().unwrap();
        for name in all_names() {
            let found =
                name.split('.').try_fold(toml::Value::Table(table.clone()), |at, part| at.get(part).cloned());
            assert!(found.is_some(), "{name} is missing");
        }
    }

    #[test]
    fn a_setting_has_the_same_name_everywhere_and_stands_in_the_manual() {
        let manual = repository_file("docs/command-line.md");
        let command = <Settings as clap::Args>::augment_args(clap::Command::new("serve"));
        for name in all_names() {
            let flag = name.replace(['.', '_'], "-");
            let variable = format!("LEASEHOLD_{}", name.replace('.', "_").to_uppercase());
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(&flag)).expect(&flag);
            assert_eq!(arg.get_env().unwrap().to_str().unwrap(), variable);
            assert!(manual.contains(&format!("| `{name}` |")), "{name} is not in docs/command-line.md");
        }
    }

    #[test]
    fn what_comes_first_wins() {
        let flags = Settings { ttl: Some(Span(Duration::from_secs(1))), ..Settings::default() };
        let file = Settings::read("ttl = 2\ngrace = 3\n[limits]\nbody = 4").unwrap();
        let both = flags.or(file);
        assert_eq!(both.ttl, Some(Span(Duration::from_secs(1))));
        assert_eq!((both.grace, both.limits.body), (Some(Span(Duration::from_secs(3))), Some(4)));
    }
}
