//! `leasehold serve`: settings in, a running server out. What the server does is in `leasehold-server`; here it is only
//! put together, announced, and ended by a signal.

mod listen;
mod settings;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use leasehold_core::Ttl;
use leasehold_core::flags::PhaseName;
use leasehold_server::auth::{Algorithm, Auth, Jwt, JwtOptions, KeySource};
use leasehold_server::webhooks::WebhookSettings;
use leasehold_server::{
    Config, Dev, DevSigner, DevUser, Limits, PusherApp, PusherSettings, Server, TelemetrySettings, TlsFiles,
};
use leasehold_store::{Kind, Opened, StoreUrl};
use serde_json::json;

use crate::connection::variable;
use crate::out::Out;
use crate::signals::Signals;
use crate::{Ending, logs};
use listen::Entry;
use settings::Settings;
pub(crate) use settings::WrongUsage;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A TOML file with settings: `ttl = "30s"`, or `secret_file = "…"` under `[jwt]`.
    ///
    /// A flag wins over its environment variable, that over the file, and that over the default. Every setting has the
    /// same name in all three: `--limits-body`, LEASEHOLD_LIMITS_BODY, and `body` under `[limits]`.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
    /// Create two demo users, and print tokens for them; on this machine only.
    #[arg(long)]
    dev: bool,
    #[command(flatten)]
    settings: Settings,
}

/// Secrets that are not in a file.
const JWT_SECRET: &str = "LEASEHOLD_JWT_SECRET";
const TICKET_SECRET: &str = "LEASEHOLD_TICKET_SECRET";
const PUSHER_SECRET: &str = "LEASEHOLD_PUSHER_SECRET";
const WEBHOOK_SECRET: &str = "LEASEHOLD_WEBHOOK_SECRET";

pub(crate) fn run(args: Args, out: &Out) -> Result<Ending> {
    let settings = args.settings.with_file(args.config.as_deref())?;
    let filter = settings.log.clone().or_else(|| variable("RUST_LOG")).unwrap_or_else(|| "info".into());
    logs::start(&filter, settings.log_format).map_err(WrongUsage)?;
    let place = StorePlace::of(&settings)?;
    runtime(&place)?.block_on(serve(&settings, &place, args.dev, out))?;
    Ok(Ending::Done)
}

/// A thread for each processor, but for one that the writer of a file keeps busy. With a thread more, they take turns on the
/// same processors: on two of them, a call that is alone took a tenth longer.
fn runtime(place: &StorePlace) -> std::io::Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let has_writer = place.url.file().is_some();
    let threads = if has_writer { processors.saturating_sub(1).max(1) } else { processors };
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()
}

async fn serve(settings: &Settings, place: &StorePlace, dev: bool, out: &Out) -> Result<()> {
    let keys = keys(settings, std::env::var_os(JWT_SECRET))?;
    let entry = Entry::of(keys.as_ref(), dev)?;
    let address = listen::resolve(settings.listen.as_deref().unwrap_or(listen::DEFAULT), entry).await?;
    let door = Door::open(settings, keys, dev, place)?;
    let config = Config {
        dev: door.signer(),
        pusher: pusher(settings, door.dev.as_ref(), std::env::var_os(PUSHER_SECRET))?,
        webhook: webhook(settings, place, std::env::var_os(WEBHOOK_SECRET))?,
        ..config(settings, door.auth.clone(), place)?
    };
    config.check().map_err(|error| WrongUsage(error.to_string()))?;
    let listener = address.bind().await?;
    if std::env::args().any(|arg| has_password(&arg)) {
        tracing::warn!(
            "a password on the command line is visible in the process list: put the store's URL into LEASEHOLD_STORE or the config file"
        );
    }
    if config.audit.is_none() && place.url.kind() == Kind::Postgres {
        tracing::warn!(
            "no audit is kept of take-overs and forced releases: name a file with audit_file to have one"
        );
    }
    if entry == Entry::Open {
        tracing::warn!("no authentication is configured: every program on this machine may do everything");
    }
    // A reader may end the server as soon as it has the first line.
    let signals = Signals::listen()?;
    let store = place.open(settings)?;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", listener.local_addr()?);
    let whole = match &store {
        Opened::Store(store) => Some(store.clone()),
        Opened::Jobs(_) => None,
    };
    let server = Server::open(store, config.clone())?;
    tell(&Started { url, place, door: &door, config: &config }, out);
    server.serve(listener, signals.asked_to_end()).await?;
    // A store that cannot answer now may not have kept what it acknowledged: its file was deleted, or is another's.
    if let Some(store) = whole {
        store.now().await?;
    }
    if !out.is_json() {
        out.good("ended; nothing that was acknowledged is lost");
    }
    Ok(())
}

/// Who may come in.
struct Door {
    auth: Auth,
    dev: Option<Dev>,
}

impl Door {
    fn open(settings: &Settings, keys: Option<KeySource>, dev: bool, place: &StorePlace) -> Result<Self> {
        if let Some(keys) = keys {
            let jwt = jwt(settings, keys).map_err(|error| WrongUsage(error.to_string()))?;
            return Ok(Self { auth: Auth::Jwt(Arc::new(jwt)), dev: None });
        }
        if !dev {
            return Ok(Self { auth: Auth::Open, dev: None });
        }
        // A store that has no file is gone with the process, or is shared with other servers: so are the tokens.
        let dev = place.beside(".dev-secret").map_or_else(Dev::new, |file| Dev::kept_in(&file))?;
        Ok(Self { auth: dev.auth.clone(), dev: Some(dev) })
    }

    fn entry(&self) -> Entry {
        match (&self.dev, &self.auth) {
            (Some(_), _) => Entry::Dev,
            (None, Auth::Open) => Entry::Open,
            (None, Auth::Jwt(_)) => Entry::ByToken,
        }
    }

    /// Signs tokens for the made-up users.
    fn signer(&self) -> Option<DevSigner> {
        self.dev.as_ref().map(|dev| dev.signer.clone())
    }
}

/// Where the keys of tokens come from; from one place, or none.
fn keys(settings: &Settings, secret: Option<OsString>) -> Result<Option<KeySource>, WrongUsage> {
    let jwt = &settings.jwt;
    let secret = secret.filter(|secret| !secret.is_empty());
    let named = [
        secret.map(|secret| KeySource::Secret(secret.into_encoded_bytes())),
        jwt.secret_file.clone().map(KeySource::SecretFile),
        jwt.public_key_file.clone().map(KeySource::PublicKeyFile),
        jwt.jwks_file.clone().map(KeySource::JwksFile),
    ];
    let mut named = named.into_iter().flatten();
    let first = named.next();
    if named.next().is_some() {
        let choices = "LEASEHOLD_JWT_SECRET, jwt.secret_file, jwt.public_key_file and jwt.jwks_file";
        return Err(WrongUsage(format!("tokens can have one kind of key: set only one of {choices}")));
    }
    let rest = jwt.algorithms.is_some() || jwt.audience.is_some() || jwt.issuer.is_some();
    if first.is_none() && rest {
        let missing = "[jwt] says which tokens are accepted, but not with which key they are signed";
        return Err(WrongUsage(format!("{missing}: set secret_file, public_key_file or jwks_file as well")));
    }
    Ok(first)
}

fn jwt(settings: &Settings, keys: KeySource) -> Result<Jwt> {
    let given = &settings.jwt;
    let algorithms = given.algorithms.iter().flatten().map(|name| Algorithm::parse(name.trim()));
    let options = JwtOptions {
        keys,
        algorithms: algorithms.collect::<Result<_, _>>()?,
        audience: given.audience.clone().unwrap_or_default(),
        issuer: given.issuer.clone().unwrap_or_default(),
    };
    Ok(Jwt::open(options)?)
}

/// Where the leases are.
struct StorePlace {
    url: StoreUrl,
    /// As it may be shown: without a password.
    shown: String,
}

impl StorePlace {
    fn of(settings: &Settings) -> Result<Self> {
        let text = settings.store.as_deref().unwrap_or("leases.db");
        let url = StoreUrl::parse(text)?;
        let shown = match url.kind() {
            Kind::Memory => "memory (gone with the process)".to_owned(),
            Kind::Embedded => url.file().map(|path| path.display().to_string()).unwrap_or_default(),
            Kind::Postgres => format!("PostgreSQL at {}", without_password(text)),
            Kind::Firestore => format!("Firestore documents of {}", firestore_project(text)),
        };
        Ok(Self { url, shown })
    }

    fn open(&self, settings: &Settings) -> leasehold_store::Result<Opened> {
        let mut limits = leasehold_store::Limits::default();
        set(&mut limits.leases_per_owner, settings.limits.leases_per_owner);
        self.url.open(limits)
    }

    /// Whether the store holds jobs and nothing else.
    fn has_jobs_only(&self) -> bool {
        self.url.kind() == Kind::Firestore
    }

    /// The default file of the audit.
    fn audit_file(&self) -> Option<PathBuf> {
        self.beside(".audit.jsonl")
    }

    /// The file beside the store's own whose name ends like this.
    fn beside(&self, ending: &str) -> Option<PathBuf> {
        let mut name = self.url.file()?.as_os_str().to_owned();
        name.push(ending);
        Some(name.into())
    }
}

/// Project and database of a Firestore URL.
fn firestore_project(url: &str) -> &str {
    let rest = url.split_once(':').map_or(url, |(_, rest)| rest);
    rest.split('?').next().unwrap_or_default()
}

/// Host and database of a PostgreSQL URL.
fn without_password(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split('?').next().unwrap_or_default();
    rest.rsplit('@').next().unwrap_or_default()
}

/// Whether an argument is a PostgreSQL URL with a password in it.
fn has_password(arg: &str) -> bool {
    let rest = arg.split_once("://").filter(|(scheme, _)| scheme.contains("postgres")).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.rsplit_once('@')).is_some_and(|(user, _)| user.contains(':'))
}

fn config(settings: &Settings, auth: Auth, place: &StorePlace) -> Result<Config> {
    let mut config = Config::new(auth);
    if let Some(ttl) = settings.ttl {
        config.ttl = Ttl::new(ttl.0).map_err(|error| WrongUsage(format!("ttl: {error}")))?;
    }
    if let Some(grace) = settings.grace {
        config.grace = Ttl::new(grace.0).map_err(|error| WrongUsage(format!("grace: {error}")))?;
    }
    set(&mut config.heartbeat, settings.heartbeat.map(|span| span.0));
    let origins = settings.cors_origins.iter().flatten();
    config.cors_origins = origins.map(|origin| origin.trim().to_owned()).collect();
    for network in settings.trusted_proxies.iter().flatten() {
        config.trusted_proxies.push(parse_network(network)?);
    }
    config.tls = tls(settings)?;
    config.audit = settings.audit_file.clone().or_else(|| place.audit_file());
    if config.audit.is_some() && place.has_jobs_only() {
        let why = "an audit is of take-overs and forced releases of documents, and on Firestore a server has jobs only";
        return Err(WrongUsage(format!("audit_file: {why}; leave it out")).into());
    }
    config.flags_file = settings.flags_file.clone();
    config.phase = settings.phase.as_deref().map(phase).transpose()?;
    config.ticket_secret = ticket_secret(settings)?;
    config.telemetry = telemetry(settings)?;
    set_limits(&mut config.limits, settings);
    config.check().map_err(|error| WrongUsage(error.to_string()))?;
    if settings.limits.leases_per_owner == Some(0) {
        let rule = "no token could be verified, so no caller could lock anything";
        return Err(WrongUsage(format!("limits.leases_per_owner 0: {rule}; choose at least 1")).into());
    }
    Ok(config)
}

fn phase(name: &str) -> Result<PhaseName, WrongUsage> {
    PhaseName::parse(name).map_err(|error| WrongUsage(error.to_string()))
}

fn telemetry(settings: &Settings) -> Result<Option<TelemetrySettings>, WrongUsage> {
    let given = &settings.telemetry;
    let Some(folder) = &given.folder else {
        if given.anonymous.is_some() || given.days.is_some() || given.bytes_per_day.is_some() {
            let missing = "[telemetry] says what is counted, but not where";
            return Err(WrongUsage(format!("{missing}: set telemetry.folder as well")));
        }
        return Ok(None);
    };
    let mut telemetry = TelemetrySettings::new(folder);
    set(&mut telemetry.anonymous, given.anonymous);
    set(&mut telemetry.keep.days, given.days);
    set(&mut telemetry.keep.bytes_per_day, given.bytes_per_day);
    Ok(Some(telemetry))
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn set_limits(limits: &mut Limits, settings: &Settings) {
    let given = &settings.limits;
    set(&mut limits.body, given.body);
    set(&mut limits.head, given.head);
    set(&mut limits.head_time, given.head_time.map(|span| span.0));
    set(&mut limits.body_time, given.body_time.map(|span| span.0));
    set(&mut limits.connections, given.connections);
    set(&mut limits.connections_per_address, given.connections_per_address);
    set(&mut limits.requests_per_second, given.requests_per_second);
    set(&mut limits.burst, given.burst);
    set(&mut limits.streams_per_caller, given.streams_per_caller);
    set(&mut limits.stream_backlog, given.stream_backlog);
    set(&mut limits.drain, given.drain.map(|span| span.0));
}

/// Reads `10.0.0.0/8`, or a single address.
fn parse_network<N: std::str::FromStr>(text: &str) -> Result<N, WrongUsage> {
    let text = text.trim();
    let written = match text.parse::<std::net::IpAddr>() {
        Ok(address) if address.is_ipv4() => format!("{text}/32"),
        Ok(_) => format!("{text}/128"),
        Err(_) => text.to_owned(),
    };
    written.parse().map_err(|_| {
        WrongUsage(format!("trusted_proxies: {text:?} is no network; write 10.0.0.0/8 or a single address"))
    })
}

fn tls(settings: &Settings) -> Result<Option<TlsFiles>, WrongUsage> {
    match (settings.tls.certificate.clone(), settings.tls.key.clone()) {
        (Some(certificate), Some(key)) => {
            for file in [&certificate, &key] {
                std::fs::File::open(file).map_err(|error| {
                    WrongUsage(format!("HTTPS: {} cannot be read: {error}", file.display()))
                })?;
            }
            Ok(Some(TlsFiles { certificate, key }))
        }
        (None, None) => Ok(None),
        _ => Err(WrongUsage("HTTPS needs both tls.certificate and tls.key; only one is set".into())),
    }
}

/// The shortest secret that tickets are signed with.
const SHORTEST_SECRET: usize = 32;

/// The WebSocket door: open when there is a secret, or for the users of `--dev`.
fn pusher(
    settings: &Settings,
    dev: Option<&Dev>,
    secret: Option<OsString>,
) -> Result<Option<PusherSettings>> {
    let given = &settings.pusher;
    let secret = match (secret.filter(|secret| !secret.is_empty()), &given.secret_file) {
        (Some(secret), _) => Some(secret.into_encoded_bytes()),
        (None, Some(file)) => Some(read_secret(file)?),
        (None, None) => None,
    };
    let app = match (secret, dev) {
        (Some(secret), _) => {
            let wrong = |_| {
                WrongUsage("the secret of pusher is not text; make one with `openssl rand -hex 32`".into())
            };
            let secret = String::from_utf8(secret).map_err(wrong)?;
            PusherApp { app_id: "leasehold".into(), key: "leasehold".into(), secret }
        }
        (None, Some(dev)) => dev.pusher.clone(),
        (None, None) if given.key.is_some() || given.app_id.is_some() => {
            let missing = "pusher.key opens WebSockets only together with a secret";
            let fix = "set pusher.secret_file or LEASEHOLD_PUSHER_SECRET as well";
            return Err(WrongUsage(format!("{missing}: {fix}")).into());
        }
        (None, None) => return Ok(None),
    };
    let mut pusher = PusherSettings::new(app);
    (pusher.public_channels, pusher.public_documents) = (dev.is_some(), dev.is_some());
    set(&mut pusher.app.key, given.key.clone());
    set(&mut pusher.app.app_id, given.app_id.clone());
    set(&mut pusher.allowed_origins, given.allowed_origins.clone());
    set(&mut pusher.namespace, given.namespace.clone());
    set(&mut pusher.skip_sender, given.skip_sender);
    set(&mut pusher.public_channels, given.public_channels);
    set(&mut pusher.activity_timeout, given.activity_timeout.map(|span| span.0));
    set(&mut pusher.sockets, given.sockets);
    set(&mut pusher.subscriptions, given.subscriptions);
    set(&mut pusher.message, given.message);
    set(&mut pusher.messages_per_second, given.messages_per_second);
    Ok(Some(pusher))
}

fn webhook(
    settings: &Settings,
    place: &StorePlace,
    secret: Option<OsString>,
) -> Result<Option<WebhookSettings>> {
    let Some(url) = settings.webhook.url.clone() else { return Ok(None) };
    if place.has_jobs_only() {
        let why = "webhooks are of take-overs and forced releases of documents, and on Firestore a server has jobs only";
        return Err(WrongUsage(format!("webhook.url: {why}; leave it out")).into());
    }
    let secret = match (secret.filter(|secret| !secret.is_empty()), &settings.webhook.secret_file) {
        (Some(secret), _) => secret.into_encoded_bytes(),
        (None, Some(file)) => read_secret(file)?,
        (None, None) => {
            let fix = "set webhook.secret_file or LEASEHOLD_WEBHOOK_SECRET as well";
            return Err(
                WrongUsage(format!("webhook.url needs a secret that signs what is sent: {fix}")).into()
            );
        }
    };
    Ok(Some(WebhookSettings { url, secret }))
}

fn ticket_secret(settings: &Settings) -> Result<Option<Vec<u8>>> {
    let secret = match (std::env::var_os(TICKET_SECRET), &settings.ticket_secret_file) {
        (Some(secret), _) if !secret.is_empty() => secret.into_encoded_bytes(),
        (_, Some(file)) => read_secret(file)?,
        _ => return Ok(None),
    };
    if secret.len() < SHORTEST_SECRET {
        let fix = "make one with `openssl rand -hex 32`";
        return Err(
            WrongUsage(format!("the ticket secret has at least {SHORTEST_SECRET} bytes; {fix}")).into()
        );
    }
    Ok(Some(secret))
}

/// The bytes of a file, without the line's end that editors add.
fn read_secret(file: &Path) -> Result<Vec<u8>> {
    let mut secret =
        std::fs::read(file).with_context(|| format!("cannot read the secret in {}", file.display()))?;
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    Ok(secret)
}

/// What there is to say about a server that listens.
struct Started<'a> {
    url: String,
    place: &'a StorePlace,
    door: &'a Door,
    config: &'a Config,
}

fn tell(started: &Started<'_>, out: &Out) {
    if out.is_json() {
        out.value(&started.json());
        return;
    }
    let Started { url, place, door, config } = started;
    out.good(&format!("Leasehold {} is listening on {url}", env!("CARGO_PKG_VERSION")));
    out.fact("store", &place.shown);
    if place.has_jobs_only() {
        out.fact("serves", "jobs only: this store has no lists and no events, so there are no documents");
    } else {
        let audit = config.audit.as_ref().map(|file| file.display().to_string());
        out.fact("audit", audit.as_deref().unwrap_or("none; audit_file says where to keep one"));
    }
    out.fact(
        "who may come in",
        match door.entry() {
            Entry::ByToken => "holders of a token (JWT) that the configured key has signed",
            Entry::Open => "every program on this machine, without limits: no authentication is configured",
            Entry::Dev => "Anna and Ben, who are made up (--dev): user-a and user-b",
        },
    );
    if !place.has_jobs_only() {
        out.fact("page", &format!("{url}/"));
        if door.dev.is_some() {
            out.fact("demo", &format!("{url}/demo"));
        }
    }
    out.fact("API page", &format!("{url}/docs"));
    if let Some(pusher) = config.pusher.as_ref().filter(|_| !place.has_jobs_only()) {
        out.fact("WebSockets", &format!("for Pusher clients, with the key {}", pusher.app.key));
    }
    match &door.dev {
        Some(dev) if place.has_jobs_only() => tell_dev_jobs(url, dev, out),
        Some(dev) => {
            tell_dev(url, dev, out);
            if let Some(pusher) = &config.pusher {
                tell_echo(url, dev, pusher, out);
            }
        }
        None => {}
    }
}

/// Lines to copy, for a first look. They work in this order: the last one is about another document, because Anna's first
/// lock is in the way of her own second one for its 30 seconds.
fn tell_dev(url: &str, dev: &Dev, out: &Out) {
    let users = dev.users();
    for (user, call) in users.iter().zip(["locks the document `minutes`", "is told who has it"]) {
        out.plain(&format!("\n{} {call}:\n", user.name));
        out.plain(&format!(
            "  curl -X POST {url}/api/documents/minutes/lock -H 'Authorization: Bearer {}'",
            user.token
        ));
    }
    if let Some(user) = users.first() {
        out.plain(&format!("\nthe command line, as {}, with another document:\n", user.name));
        out.plain(&format!("  export LEASEHOLD_URL={url} LEASEHOLD_TOKEN={}", user.token));
        out.plain(&format!("  {} acquire plan --hold\n", program()));
    }
}

/// The lines for a web page.
fn tell_echo(url: &str, dev: &Dev, pusher: &PusherSettings, out: &Out) {
    let users = dev.users();
    let Some(DevUser { name: user, token, .. }) = users.first() else { return };
    let (host, port) = url.rsplit_once(':').unwrap_or_default();
    let host = host.rsplit('/').next().unwrap_or_default();
    let key = &pusher.app.key;
    out.plain(&format!("a web page with Laravel Echo, as {user}:\n"));
    out.plain(&format!(
        "  new Echo({{ broadcaster: 'reverb', key: '{key}', wsHost: '{host}', wsPort: {port}, forceTLS: false,\n             \
         enabledTransports: ['ws'], authEndpoint: '{url}/broadcasting/auth',\n             \
         bearerToken: '{token}' }})\n    \
         .private('document.minutes').listen('DocumentLocked', (lock) => console.log(lock));\n"
    ));
}

/// The same for a server that has jobs only.
fn tell_dev_jobs(url: &str, dev: &Dev, out: &Out) {
    let users = dev.users();
    let Some(DevUser { name: user, token, .. }) = users.first() else { return };
    out.plain(&format!("\n{user} creates the job `analyses/42`, and acquires it:\n"));
    let call = |call: &str, more: &str| {
        out.plain(&format!("  curl {call} -H 'Authorization: Bearer {token}'{more}"));
    };
    let body = " -H 'Content-Type: application/json' -d '{\"payload\": {\"page\": 7}}'";
    call(&format!("-X PUT {url}/api/jobs/analyses/42"), body);
    call(&format!("-X POST {url}/api/jobs/analyses/42/acquire"), "");
    out.plain(&format!("\nthe command line, as {user}:\n"));
    out.plain(&format!("  export LEASEHOLD_URL={url} LEASEHOLD_TOKEN={token}"));
    out.plain(&format!("  {} job show analyses/42\n", program()));
}

/// This program as one would have to type it, in whatever folder: after a build it is not on the path.
fn program() -> String {
    let typed = std::env::args().next().unwrap_or_else(|| "leasehold".to_owned());
    if !typed.contains('/') {
        return typed;
    }
    std::path::absolute(&typed).map_or(typed, |path| path.display().to_string())
}

impl Started<'_> {
    fn json(&self) -> serde_json::Value {
        let mut object = json!({ "url": self.url });
        if let (true, Some(object)) = (self.place.has_jobs_only(), object.as_object_mut()) {
            object.insert("jobs_only".into(), true.into());
        }
        if let (Some(dev), Some(object)) = (&self.door.dev, object.as_object_mut()) {
            object.insert("tokens".into(), json!(dev.tokens));
            let pusher = self.config.pusher.as_ref().map_or(&dev.pusher, |pusher| &pusher.app);
            object.insert(
                "pusher".into(),
                json!({ "app_id": pusher.app_id, "key": pusher.key, "secret": pusher.secret }),
            );
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn tokens_have_one_kind_of_key() {
        let both = settings("[jwt]\nsecret_file = 'a'\njwks_file = 'b'");
        assert!(keys(&both, None).unwrap_err().to_string().contains("only one of"));
        let one = settings("[jwt]\nsecret_file = 'a'");
        assert!(keys(&one, Some("also".into())).is_err());
        assert!(matches!(keys(&one, Some("".into())).unwrap(), Some(KeySource::SecretFile(_))));
        let keyless = settings("[jwt]\naudience = ['docs']");
        assert!(keys(&keyless, None).unwrap_err().to_string().contains("not with which key"));
        assert!(keys(&settings(""), None).unwrap().is_none());
    }

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(
            without_password("postgres://me:hunter2@db.example:5432/leases?x=y"),
            "db.example:5432/leases"
        );
        assert_eq!(without_password("postgres://db/leases"), "db/leases");
        assert!(has_password("--store=postgres://me:hunter2@db/leases"));
        assert!(!has_password("postgres://me@db/leases") && !has_password("http://a:b@c"));
    }

    #[test]
    fn every_setting_reaches_the_server() {
        let text = "ttl = '40s'\nheartbeat = '20s'\ngrace = '2s'\ncors_origins = ['*']\naudit_file = 'a.jsonl'\n\
            flags_file = 'f.json'\nphase = 'beta'\n\
            trusted_proxies = ['10.0.0.0/8', '192.0.2.1', '::1']\n[tls]\ncertificate = 'Cargo.toml'\nkey = 'src/main.rs'\n[webhook]\nurl = 'https://a.example/hook'\n[limits]\nbody = 10001\n\
            head = 10002\nhead_time = 3\nbody_time = 4\nconnections = 5\nconnections_per_address = 6\n\
            requests_per_second = 7\nburst = 8\nstreams_per_caller = 9\nstream_backlog = 10\ndrain = 11\n\
            [telemetry]\nfolder = 'counts'\nanonymous = true\ndays = 12\nbytes_per_day = 1000000\n";
        let settings = settings(text);
        let place = StorePlace::of(&settings).unwrap();
        let config = config(&settings, Auth::Open, &place).unwrap();
        let shown = format!("{:?}", config.limits);
        assert!((3..=8).chain([10_001, 10_002]).all(|n| shown.contains(&format!(": {n}"))), "{shown}");
        assert_eq!((config.limits.streams_per_caller, config.limits.stream_backlog), (9, 10));
        assert_eq!(
            (config.limits.drain.as_secs(), config.ttl.as_millis(), config.grace.as_millis()),
            (11, 40_000, 2_000)
        );
        assert_eq!((config.heartbeat.as_secs(), config.cors_origins.len()), (20, 1));
        assert_eq!(config.trusted_proxies.len(), 3);
        assert_eq!(config.audit, Some("a.jsonl".into()));
        assert_eq!(config.tls.unwrap().key, PathBuf::from("src/main.rs"));
        let telemetry = config.telemetry.unwrap();
        assert_eq!((telemetry.folder, telemetry.anonymous), ("counts".into(), true));
        assert_eq!((telemetry.keep.days, telemetry.keep.bytes_per_day), (12, 1_000_000));
        assert_eq!(config.flags_file, Some("f.json".into()));
        assert_eq!(config.phase.unwrap().as_str(), "beta");
        let secret = Some(OsString::from("s".repeat(32)));
        assert_eq!(webhook(&settings, &place, secret).unwrap().unwrap().url, "https://a.example/hook");
        assert!(webhook(&settings, &place, None).err().unwrap().to_string().contains("webhook.secret_file"));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let cases = [
            ("ttl = '1ms'", "a TTL lies between 1s and 24h"),
            ("heartbeat = '20s'", "at most half the ttl"),
            ("heartbeat = 0", "whole seconds"),
            ("ttl = '1500ms'\nheartbeat = '700ms'", "whole seconds"),
            ("cors_origins = ['https://app.example/']", "not even a slash"),
            ("[limits]\nstream_backlog = 0", "limits.stream_backlog 0: it must be between 1 and 65536"),
            ("[limits]\nleases_per_owner = 0", "limits.leases_per_owner"),
            ("[limits]\nhead_time = 0", "limits.head_time 0s: it must be between 100ms and 1h"),
            ("trusted_proxies = ['somewhere']", "is no network"),
            ("[telemetry]\nanonymous = true", "set telemetry.folder as well"),
            ("[telemetry]\nfolder = 'counts'\ndays = 0", "telemetry.days 0: it must be between 1 and 3650"),
            ("[telemetry]\nfolder = 'counts'\nbytes_per_day = 1", "telemetry.bytes_per_day 1"),
            ("[tls]\nkey = 'k'", "both tls.certificate and tls.key"),
            ("[tls]\ncertificate = 'c'\nkey = 'k'", "c cannot be read"),
        ];
        for (text, expected) in cases {
            let settings = settings(text);
            let place = StorePlace::of(&settings).unwrap();
            let error = config(&settings, Auth::Open, &place).err().unwrap().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_audit_is_beside_a_file_and_nowhere_else() {
        let audit = |text: &str| StorePlace::of(&settings(text)).unwrap().audit_file();
        assert_eq!(audit(""), Some("leases.db.audit.jsonl".into()));
        assert_eq!(audit("store = 'memory:'"), None);
        assert_eq!(audit("store = 'postgres://h/d'"), None);
    }
}
