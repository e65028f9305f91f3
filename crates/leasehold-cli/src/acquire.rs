//! `leasehold acquire`: lock a document on a server, and hold it, or hand out the secret with which one can.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold_client::http::Error;
use leasehold_client::{
    AcquireOptions, Events, Guard, Held, HttpClient, Leasehold, Lost, Notice, Retry, RoomId,
};
use leasehold_core::time::whole_millis;
use leasehold_core::wire::documents::{EventName, Grant, Holder, LockState};
use leasehold_core::{Retries, RetryPolicy, wire};
use leasehold_store::clock::unix_millis;
use leasehold_store::jitter;
use serde_json::json;
use tempfile::NamedTempFile;

use crate::connection::{Connection, refused, tell_lost};
use crate::out::{Out, duration, one_line};
use crate::signals::Signals;
use crate::try_key::duration_arg;
use crate::{Ending, logs};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The document: 1 to 128 of A-Z a-z 0-9 _ - = @ , . ;
    #[arg(value_name = "DOCUMENT")]
    room: RoomId,
    /// How long to wait while another holder has it.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "0s")]
    wait: Duration,
    /// Keep it until Ctrl-C, then release it.
    #[arg(long)]
    hold: bool,
    /// Write the lease id into this file, for you alone to read, instead of printing it.
    #[arg(long, value_name = "FILE", conflicts_with = "hold")]
    lease_id_file: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    if args.hold {
        // A renewal that fails is worth a line: the lock may be lost soon.
        logs::start("warn", None).map_err(anyhow::Error::msg)?;
        // Two terminals are two holders, unless --tab gives both the same name.
        let tab = args.connection.tab.clone().unwrap_or_else(own_tab);
        return args.connection.run_as(Some(&tab), async |client| hold(args, client, out).await);
    }
    args.connection.run(async |client| acquire(args, &client, out).await)
}

async fn acquire(args: &Args, client: &HttpClient, out: &Out) -> Result<Ending> {
    let file = SecretFile::create(args.lease_id_file.as_deref())?;
    let waiting = out.spinner(format!("locking {}", args.room));
    let locked = lock(client, &args.room, args.wait).await;
    waiting.finish_and_clear();
    match locked {
        Ok(grant) => tell_granted(&args.room, &grant, file, out),
        Err(error) => refused(&args.room, error, out),
    }
}

/// Locks the document; waits while another holder has it.
async fn lock(client: &HttpClient, room: &RoomId, wait: Duration) -> Result<Grant, Error> {
    let mut last = match client.lock(room, None).await {
        Err(Error::Held(held)) if !wait.is_zero() => held,
        answer => return answer,
    };
    let waiting = async {
        let mut events = client.events(Some(room), None);
        let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
        loop {
            let left = Duration::from_millis(last.expires_in_ms);
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = freed(&mut events) => {}
            }
            match client.lock(room, None).await {
                Err(Error::Held(held)) => {
                    retries.succeeded();
                    last = held;
                }
                // A server that restarts meanwhile is no reason to give up; asking again is safe in the same tab.
                Err(error) if error.retry() != Retry::No => {
                    let wait = retries.failed_asking(error.retry_after()).unwrap_or_default();
                    tokio::time::sleep(wait).await;
                }
                answer => return answer,
            }
        }
    };
    let answered = tokio::time::timeout(wait, waiting).await;
    answered.unwrap_or(Err(Error::Held(last)))
}

/// Locks the document, keeps it until a signal arrives, and releases it.
async fn hold(args: &Args, client: HttpClient, out: &Out) -> Result<Ending> {
    let mut signals = Signals::listen()?;
    let waiting = out.spinner(format!("locking {}", args.room));
    let (leasehold, options) = (Leasehold::connect(client.clone()), AcquireOptions::new().wait(args.wait));
    let acquired = tokio::select! {
        acquired = leasehold.acquire(args.room.key().as_str(), options) => acquired,
        // Given up before it was there.
        _ = signals.next() => return Ok(Ending::Held),
    };
    waiting.finish_and_clear();
    match acquired {
        Ok(guard) => keep(args, guard, &client, signals, out).await,
        Err(leasehold_client::Error::TimedOut { held, .. }) => {
            let state = client.state(&args.room, None).await?;
            refused(&args.room, Error::Held(Box::new(in_the_way(state, &held))), out)
        }
        Err(leasehold_client::Error::Http(error)) => refused(&args.room, error, out),
        Err(error) => Err(error.into()),
    }
}

/// The holder that blocks us: the current one, else the one when the wait ended.
fn in_the_way(state: LockState, held: &Held) -> wire::documents::Held {
    match state.lock {
        Some(lock) => wire::documents::Held {
            holder: lock.holder,
            fence: lock.fence,
            expires_at: lock.expires_at,
            expires_in_ms: lock.expires_in_ms,
            same_user: lock.same_user,
        },
        None => wire::documents::Held {
            holder: Holder { id: held.by.to_string(), name: held.name.clone() },
            fence: held.fence.get(),
            expires_at: String::new(),
            expires_in_ms: whole_millis(held.left),
            same_user: false,
        },
    }
}

pub(crate) fn own_tab() -> String {
    format!("terminal-{}-{}", std::process::id(), unix_millis())
}

async fn keep(
    args: &Args,
    guard: Guard,
    client: &HttpClient,
    mut signals: Signals,
    out: &Out,
) -> Result<Ending> {
    let room = &args.room;
    // The lock is held whether or not the name is known.
    let name = client.me().await.map_or_else(|_| guard.owner().to_string(), |me| me.name);
    if out.is_json() {
        out.object(
            "acquired",
            room,
            json!({ "fence": guard.fence().get(), "holder": { "id": guard.owner().as_str(), "name": name } }),
        );
    } else {
        out.good(&format!("{room} is yours, as {} with fence {}", one_line(&name), guard.fence()));
        out.hint("it renews itself; Ctrl-C lets it go");
    }
    let start = Instant::now();
    let holding = out.spinner(format!("holding {room}"));
    let lost = tokio::select! {
        lost = guard.lost() => Some(lost),
        _ = signals.next() => None,
    };
    holding.finish_and_clear();
    if let Some(lost) = lost {
        let because = match lost {
            Lost::Told(because) => Some(because.as_str()),
            Lost::Deadline | Lost::Released => None,
        };
        return Ok(tell_lost(room, &lost.to_string(), because, out));
    }
    guard.release().await?;
    let held_for = whole_millis(start.elapsed());
    if out.is_json() {
        out.object("released", room, json!({ "held_for_ms": held_for }));
    } else {
        out.good(&format!("{room} released after {}", duration(held_for)));
    }
    Ok(Ending::Done)
}

/// Completes when the document may be free, as far as the server's events tell.
async fn freed(events: &mut Events) {
    loop {
        match events.next().await {
            Some(Ok(Notice::Event(event))) if event.event == EventName::DocumentUnlocked => return,
            Some(Ok(Notice::Snapshot(state))) if !state.locked => return,
            Some(Ok(_)) => {}
            // Without events there is still the time at which the lock runs out.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}

/// Hands a new lock to its holder: the one time that its lease id is shown, or written into `file`.
pub(crate) fn tell_granted(
    room: &RoomId,
    grant: &Grant,
    file: Option<SecretFile>,
    out: &Out,
) -> Result<Ending> {
    let file = file.map(|file| file.write(&grant.lease_id.0)).transpose()?;
    let lock = &grant.lock;
    if out.is_json() {
        let shown = if file.is_none() { json!(grant) } else { json!(lock) };
        out.object("acquired", room, shown);
        return Ok(Ending::Done);
    }
    let left = duration(lock.expires_in_ms);
    out.good(&format!("{room} is yours for {left}, as {} with fence {}", lock.holder.name, lock.fence));
    match file {
        Some(file) => out.hint(&format!("its lease id is in {}: keep that to yourself", file.display())),
        None => {
            out.plain(&format!("  lease id {}", grant.lease_id.0));
            out.hint("keep that to yourself: LEASEHOLD_LEASE_ID or --lease-id-file give it to `renew` and `release`");
        }
    }
    Ok(Ending::Done)
}

/// A file for a lease id, which only its owner can read.
pub(crate) struct SecretFile<'a> {
    path: &'a Path,
    /// It takes the place of what may be there now: that may be open to others, or have another name.
    new: NamedTempFile,
}

impl<'a> SecretFile<'a> {
    /// Makes it, if one is wanted. Before anything is acquired: a lease id that has nowhere to go is lost.
    pub(crate) fn create(path: Option<&'a Path>) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        let why = || format!("the lease id cannot be kept in {}, so nothing was acquired", path.display());
        if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
            return Err(anyhow::anyhow!("that is a link, a folder or a device; name a file").context(why()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Some(Self { path, new: NamedTempFile::new_in(folder).with_context(why)? }))
    }

    /// Puts the lease id into it; answers where it is.
    pub(crate) fn write(mut self, lease_id: &str) -> Result<&'a Path> {
        let written = writeln!(self.new, "{lease_id}");
        let kept = written.and_then(|()| self.new.persist(self.path).map_err(|error| error.error));
        kept.with_context(|| format!("its lease id could not be written into {}", self.path.display()))?;
        Ok(self.path)
    }
}
