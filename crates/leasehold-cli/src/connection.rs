//! How the commands that talk to a server reach it, whose lock they are about, and what its refusals mean for the exit
//! code. A token or a lease id is never a flag's value: a process list shows flags.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use leasehold_client::http::Error;
use leasehold_client::{HttpClient, LeaseId, RoomId};
use leasehold_core::wire::documents::Held;
use serde_json::json;

use crate::Ending;
use crate::out::{Out, duration};

/// Where a server is unless it is said.
const DEFAULT_URL: &str = "http://127.0.0.1:7420";

const URL: &str = "LEASEHOLD_URL";
const TOKEN: &str = "LEASEHOLD_TOKEN";
const LEASE_ID: &str = "LEASEHOLD_LEASE_ID";

/// How to reach a server.
#[derive(clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Connection {
    /// The server [env: LEASEHOLD_URL] [default: http://127.0.0.1:7420]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// A file with the token that says who you are; `-` is standard input [env: LEASEHOLD_TOKEN, the token itself]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Which of your tabs or terminals this is: two of them are two holders [default: -]
    #[arg(long, env = "LEASEHOLD_TAB")]
    pub(crate) tab: Option<String>,
    /// A certificate (PEM) to trust besides the well-known ones.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CA_FILE")]
    ca_file: Option<PathBuf>,
}

impl Connection {
    /// The server that the environment names.
    pub(crate) fn url_in_environment() -> Option<String> {
        variable(URL)
    }

    /// Does something with the server. An error about reaching it says where it was looked for.
    pub(crate) fn run<T>(&self, work: impl AsyncFnOnce(HttpClient) -> Result<T>) -> Result<T> {
        self.run_as(self.tab.as_deref(), work)
    }

    /// The same, as this tab.
    pub(crate) fn run_as<T>(
        &self,
        tab: Option<&str>,
        work: impl AsyncFnOnce(HttpClient) -> Result<T>,
    ) -> Result<T> {
        let client = self.open(tab)?;
        let url = client.url().trim_end_matches('/').to_owned();
        crate::run_async(work(client)).map_err(|error| match of_server(&error) {
            Some(Error::Unavailable { .. }) => error.context(url),
            Some(Error::Unauthenticated { .. }) => NotLetIn(error.to_string()).into(),
            _ => error,
        })
    }

    /// Checks what was given. Nothing is sent yet.
    fn open(&self, tab: Option<&str>) -> Result<HttpClient> {
        let url = self.url.clone().or_else(Self::url_in_environment).unwrap_or_else(|| DEFAULT_URL.into());
        let mut builder = HttpClient::at(url);
        if let Some(token) = self.token()? {
            builder = builder.token(token);
        }
        if let Some(tab) = tab {
            builder = builder.tab(tab);
        }
        if let Some(file) = &self.ca_file {
            let pem = std::fs::read(file)
                .with_context(|| format!("cannot read the certificate {}", file.display()))?;
            builder = builder.root_certificate(pem);
        }
        Ok(builder.build()?)
    }

    fn token(&self) -> Result<Option<String>> {
        match &self.token_file {
            Some(file) => read_secret(file, "token").map(Some),
            None => Ok(variable(TOKEN)),
        }
    }
}

/// The error of the server, be it from a call or from a guard.
fn of_server(error: &anyhow::Error) -> Option<&Error> {
    match error.downcast_ref() {
        Some(leasehold_client::Error::Http(error)) => Some(error),
        _ => error.downcast_ref(),
    }
}

/// The server does not know the caller: its words, and where a token goes here.
#[derive(Debug)]
pub(crate) struct NotLetIn(String);

impl fmt::Display for NotLetIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = "a token goes into LEASEHOLD_TOKEN, or into a file for --token-file";
        write!(f, "{} ({advice}; `leasehold serve --dev` prints two)", self.0)
    }
}

impl std::error::Error for NotLetIn {}

/// Which lock a command is about: the one with a lease id, or the caller's own in its tab.
#[derive(clap::Args)]
pub(crate) struct Which {
    /// A file with the lease id of the lock; `-` is standard input [env: LEASEHOLD_LEASE_ID, the lease id itself]
    ///
    /// Without one, it is your own lock in this tab.
    #[arg(long, value_name = "FILE")]
    lease_id_file: Option<PathBuf>,
}

impl Which {
    pub(crate) fn lease_id(&self) -> Result<Option<LeaseId>> {
        let text = match &self.lease_id_file {
            Some(file) => Some(read_secret(file, "lease id")?),
            None => variable(LEASE_ID),
        };
        Ok(text.map(|text| LeaseId::parse(text.trim())).transpose()?)
    }
}

/// A variable that is set to something.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn read_secret(file: &Path, what: &str) -> Result<String> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.with_context(|| format!("cannot read the {what} in {}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// Maps a refusal to an exit code: held by another, or lost. Everything else is an error.
pub(crate) fn refused(room: &RoomId, error: Error, out: &Out) -> Result<Ending> {
    match &error {
        Error::Held(held) => Ok(tell_held(room, held, out)),
        Error::LockNotFound { because } | Error::NotHolder { because } => {
            let because = because.as_ref().map(|because| because.as_str());
            Ok(tell_lost(room, &error.to_string(), because, out))
        }
        Error::LeaseOver { because, .. } => {
            Ok(tell_lost(room, &error.to_string(), Some(because.as_str()), out))
        }
        _ => Err(error.into()),
    }
}

fn tell_held(room: &RoomId, held: &Held, out: &Out) -> Ending {
    if out.is_json() {
        let mut object = json!(held);
        if let Some(object) = object.as_object_mut() {
            object.insert("event".into(), "held".into());
            object.insert("roomId".into(), room.as_str().into());
        }
        out.value(&object);
    } else {
        let who = if held.same_user {
            "you, in another tab or terminal".to_owned()
        } else {
            held.holder.name.clone()
        };
        out.notice(&format!("{room} is held by {who} (fence {})", held.fence));
        let left = duration(held.expires_in_ms);
        out.hint(&format!("it runs out in {left} unless it is renewed"));
    }
    Ending::Held
}

/// Says that a lock is not (any more) the caller's.
pub(crate) fn tell_lost(room: &RoomId, words: &str, because: Option<&str>, out: &Out) -> Ending {
    if out.is_json() {
        out.value(&json!({ "event": "lost", "roomId": room.as_str(), "because": because }));
    } else {
        out.bad(&format!("{room}: {words}"));
        if let Some(because) = because.filter(|because| !words.contains(because)) {
            out.hint(&format!("how it ended: {}", because.replace('_', " ")));
        }
    }
    Ending::Lost
}

/// EX_NOPERM: a permission is missing.
pub(crate) const NOT_ALLOWED: u8 = 77;

/// The exit code that goes with a server's error.
pub(crate) fn exit_code(error: &Error) -> u8 {
    match error {
        Error::NotFound
        | Error::JobNotFound
        | Error::LeaseNotFound
        | Error::NotAllowed { .. }
        | Error::Unauthenticated { .. } => NOT_ALLOWED,
        // EX_UNAVAILABLE: it may be there later.
        Error::Unavailable { .. } | Error::TooMany { .. } => 69,
        _ => 1,
    }
}
