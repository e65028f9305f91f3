//! `leasehold ls`: who holds what, in a local file or on a server.

use std::path::Path;

use anyhow::{Context, Result};
use leasehold_client::{HttpClient, LeaseName};
use leasehold_core::Key;
use leasehold_core::wire::LeaseView;
use leasehold_core::wire::documents::{Held, LockState, LockView};
use leasehold_store::{Range, embedded};
use serde_json::json;

use crate::Ending;
use crate::connection::{Connection, variable};
use crate::out::{Out, duration, one_line};
use crate::people::People;
use crate::serve::WrongUsage;
use crate::store::file_of;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what begins like this: keys such as `run/` in a file, names of documents on a server; there, `run/NAME` is the
    /// one lease of that name.
    #[arg(default_value = "")]
    prefix: String,
    /// The file to list, unless a server is named [env: LEASEHOLD_STORE] [default: leases.db]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "token_file"])]
    store: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

const STORE: &str = "LEASEHOLD_STORE";

/// Where to look.
enum Place {
    File(String),
    Server,
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    match place(args, out) {
        Place::File(url) => list_file(args, &file_of(&url)?, out),
        Place::Server => list_server(args, out),
    }
}

/// What was said on the command line counts most; a server named in the environment counts more than a file there.
fn place(args: &Args, out: &Out) -> Place {
    let (file, server) = (variable(STORE), Connection::url_in_environment());
    match (&args.store, &args.connection.url) {
        (Some(file), _) => Place::File(file.clone()),
        (None, Some(_)) => Place::Server,
        (None, None) => match (file, server) {
            (Some(_), Some(server)) => {
                out.warn(&format!(
                    "this is the server {server}; --store FILE lists a file (LEASEHOLD_STORE is set too)"
                ));
                Place::Server
            }
            (None, Some(_)) => Place::Server,
            (file, None) => Place::File(file.unwrap_or_else(|| "leases.db".into())),
        },
    }
}

fn list_file(args: &Args, file: &Path, out: &Out) -> Result<Ending> {
    if !file.exists() {
        let hint =
            "there is nothing to list yet; `leasehold try run/hello` makes a file, and --url lists a server";
        anyhow::bail!("{} does not exist: {hint}", file.display());
    }
    let leases = read_file(&args.prefix, file).with_context(|| format!("cannot list {}", file.display()))?;
    let header = ["KEY", "OWNER", "FENCE", "HELD FOR", "EXPIRES IN", "NOTE"];
    show(out, &json!(leases), &header, leases.iter().map(lease_row).collect());
    Ok(Ending::Done)
}

fn read_file(prefix: &str, file: &Path) -> Result<Vec<LeaseView>> {
    let mut range = Range::prefix(prefix);
    let mut leases = Vec::new();
    loop {
        let page = embedded::peek(file, &range)?;
        let seen = |(key, slot): &(Key, leasehold_core::Slot)| {
            slot.lease.as_ref().map(|lease| LeaseView::new(key, lease, page.now))
        };
        leases.extend(page.slots.iter().filter_map(seen));
        match page.slots.into_iter().next_back() {
            Some((last, _)) if page.more => range.after = Some(last),
            _ => return Ok(leases),
        }
    }
}

fn list_server(args: &Args, out: &Out) -> Result<Ending> {
    if let Some(name) = args.prefix.strip_prefix(LeaseName::DOOR) {
        return show_lease(args, name, out);
    }
    let locks = args.connection.run(async |client| read_server(&args.prefix, &client).await)?;
    let header = ["DOCUMENT", "HOLDER", "FENCE", "HELD FOR", "EXPIRES IN", "NOTE"];
    let mut people = People::default();
    locks.iter().for_each(|state| people.learn_state(state));
    let rows = locks.iter().filter_map(|state| lock_row(state, &people)).collect();
    show(out, &json!(locks), &header, rows);
    Ok(Ending::Done)
}

/// Shows the lease of a program: a server does not list those.
fn show_lease(args: &Args, name: &str, out: &Out) -> Result<Ending> {
    let name = LeaseName::parse(name).map_err(|_| {
        WrongUsage("a server lists no leases of programs; name a single one, such as `run/nightly`".into())
    })?;
    let state = args.connection.run(async |client| Ok(client.lease(&name).await?))?;
    let row = |held: &Held| {
        let note = if held.same_user { "yours" } else { "" };
        let (who, left) = (one_line(&held.holder.name), duration(held.expires_in_ms));
        vec![name.key().to_string(), who, held.fence.to_string(), left, note.to_owned()]
    };
    let header = ["KEY", "HOLDER", "FENCE", "EXPIRES IN", "NOTE"];
    show(out, &json!(state), &header, state.held.iter().map(row).collect());
    Ok(Ending::Done)
}

async fn read_server(prefix: &str, client: &HttpClient) -> Result<Vec<LockState>> {
    let (mut locks, mut after) = (Vec::new(), None);
    loop {
        let page = client.list(prefix, after.as_deref(), None).await?;
        locks.extend(page.documents);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(locks),
        }
    }
}

fn show(out: &Out, json: &serde_json::Value, header: &[&str], rows: Vec<Vec<String>>) {
    if out.is_json() {
        out.value(json);
    } else if rows.is_empty() {
        out.good("no leases");
    } else {
        out.table(header, rows);
    }
}

fn lease_row(lease: &LeaseView) -> Vec<String> {
    vec![
        lease.key.clone(),
        lease.owner.clone(),
        lease.fence.to_string(),
        duration(lease.held_for_ms),
        duration(lease.expires_in_ms),
        lease_note(lease),
    ]
}

/// What else is known about the holder, on one line.
fn lease_note(lease: &LeaseView) -> String {
    let leaving = lease.leaving.then(|| "leaving".to_owned());
    let requested = lease.requested_by.as_ref().map(|by| format!("requested by {by}"));
    let meta = lease.meta.iter().map(|(name, value)| format!("{name}: {}", one_line(value)));
    leaving.into_iter().chain(requested).chain(meta).collect::<Vec<_>>().join(", ")
}

fn lock_row(state: &LockState, people: &People) -> Option<Vec<String>> {
    let lock = state.lock.as_ref()?;
    Some(vec![
        state.room_id.clone(),
        people.name(&lock.holder),
        lock.fence.to_string(),
        duration(lock.held_for_ms),
        duration(lock.expires_in_ms),
        note(lock, people),
    ])
}

/// What else is known about a lock on a server, on one line.
pub(crate) fn note(lock: &LockView, people: &People) -> String {
    let whose = match (lock.yours, lock.same_user) {
        (true, _) => Some("yours".to_owned()),
        (false, true) => Some("yours, in another tab".to_owned()),
        _ => None,
    };
    let leaving = lock.leaving.then(|| "leaving".to_owned());
    let requested = lock.request.as_ref().map(|request| format!("requested by {}", people.name(&request.by)));
    whose.into_iter().chain(leaving).chain(requested).collect::<Vec<_>>().join(", ")
}
