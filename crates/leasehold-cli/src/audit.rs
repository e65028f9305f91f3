//! `leasehold audit`: who took or ended whose locks, and why.

use anyhow::Result;
use leasehold_client::HttpClient;
use leasehold_core::wire::documents::{AuditAction, AuditLine};
use serde_json::json;

use crate::Ending;
use crate::connection::Connection;
use crate::out::{Out, one_line};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what came after the entry with this number.
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    let entries = args.connection.run(async |client| read_all(&client, args.after).await)?;
    if out.is_json() {
        out.value(&json!(entries));
    } else if entries.is_empty() {
        let since = args.after.map(|number| format!(" since entry {number}")).unwrap_or_default();
        out.good(&format!("no take-overs or forced releases{since}"));
    } else {
        let header = ["NUMBER", "AT", "WHAT", "DOCUMENT", "FENCE", "HOLDER", "BY", "REASON"];
        out.table(&header, entries.iter().map(row).collect());
    }
    Ok(Ending::Done)
}

async fn read_all(client: &HttpClient, mut after: Option<u64>) -> Result<Vec<AuditLine>> {
    let mut entries = Vec::new();
    loop {
        let page = client.audit(after, None).await?;
        entries.extend(page.entries);
        match page.next {
            Some(next) if Some(next) > after => after = Some(next),
            Some(next) => {
                anyhow::bail!(
                    "the server's audit does not continue after {next}; ask the operator of the server"
                )
            }
            None => return Ok(entries),
        }
    }
}

fn row(AuditLine { number, entry, holder_name, by_name }: &AuditLine) -> Vec<String> {
    let action = match entry.action {
        AuditAction::TakenOver => "taken over",
        AuditAction::ForceReleased => "ended by force",
    };
    vec![
        number.to_string(),
        entry.at.clone(),
        action.to_owned(),
        entry.room_id.clone(),
        entry.fence.to_string(),
        named(holder_name.as_deref(), &entry.holder),
        named(by_name.as_deref(), &entry.by),
        one_line(&entry.reason),
    ]
}

/// A record shows the name and the id: names change.
fn named(name: Option<&str>, id: &str) -> String {
    match name {
        Some(name) => one_line(&format!("{name} ({id})")),
        None => one_line(id),
    }
}
