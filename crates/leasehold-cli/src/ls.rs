//! `leasehold ls`: who holds what.

use std::path::PathBuf;

use anyhow::{Context, Result};
use leasehold_core::Key;
use leasehold_core::wire::LeaseView;
use leasehold_store::{Range, embedded};

use crate::Ending;
use crate::out::{Out, duration};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only keys that begin like this, such as `run/`.
    #[arg(default_value = "")]
    prefix: String,
    /// The file that keeps the leases.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_STORE", default_value = "leases.db")]
    store: PathBuf,
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    if !args.store.exists() {
        let hint = "there is nothing to list yet; `leasehold try run/hello` makes a file";
        anyhow::bail!("{} does not exist: {hint}", args.store.display());
    }
    let leases = read_all(args).with_context(|| format!("cannot list {}", args.store.display()))?;
    if out.is_json() {
        out.value(&serde_json::to_value(&leases)?);
    } else if leases.is_empty() {
        out.good("nobody holds anything");
    } else {
        let header = ["KEY", "OWNER", "FENCE", "HELD FOR", "EXPIRES IN", "NOTE"];
        out.table(&header, leases.iter().map(row).collect());
    }
    Ok(Ending::Done)
}

fn read_all(args: &Args) -> Result<Vec<LeaseView>> {
    let mut range = Range::prefix(&args.prefix);
    let mut leases = Vec::new();
    loop {
        let page = embedded::peek(&args.store, &range)?;
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

fn row(lease: &LeaseView) -> Vec<String> {
    vec![
        lease.key.clone(),
        lease.owner.clone(),
        lease.fence.to_string(),
        duration(lease.held_for_ms),
        duration(lease.expires_in_ms),
        note(lease),
    ]
}

/// What else is known about the holder, on one line.
fn note(lease: &LeaseView) -> String {
    let leaving = lease.leaving.then(|| "leaving".to_owned());
    let requested = lease.requested_by.as_ref().map(|by| format!("requested by {by}"));
    let meta = lease.meta.iter().map(|(name, value)| format!("{name}: {}", value.replace(['\n', '\t'], " ")));
    leaving.into_iter().chain(requested).chain(meta).collect::<Vec<_>>().join(", ")
}
