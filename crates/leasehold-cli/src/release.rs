//! `leasehold release`: unlock a document, or end another holder's lock by force.

use anyhow::Result;
use leasehold_client::http::Error;
use leasehold_client::{Fence, HttpClient, RoomId};
use leasehold_core::Reason;
use serde_json::json;

use crate::Ending;
use crate::connection::{Connection, Which, refused, tell_lost};
use crate::out::Out;
use crate::take_over::{fence_arg, reason_arg, seen};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The document.
    #[arg(value_name = "DOCUMENT")]
    room: RoomId,
    #[command(flatten)]
    which: Which,
    /// End another holder's lock. Needs the permission `force`, and is recorded in the audit.
    #[arg(long, requires = "reason", conflicts_with = "lease_id_file")]
    force: bool,
    /// The fence of the lock that is to end, as you saw it; that of the present one by default.
    #[arg(long, value_name = "N", value_parser = fence_arg, requires = "force")]
    fence: Option<Fence>,
    /// The reason, shown to the holder.
    #[arg(long, value_name = "TEXT", value_parser = reason_arg, requires = "force")]
    reason: Option<Reason>,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    args.connection.run(async |client| match &args.reason {
        Some(reason) if args.force => force(args, &client, reason, out).await,
        _ => release(args, &client, out).await,
    })
}

async fn release(args: &Args, client: &HttpClient, out: &Out) -> Result<Ending> {
    let lease_id = args.which.lease_id()?;
    match client.unlock(&args.room, lease_id.as_ref()).await {
        Ok(()) => Ok(tell(args, &format!("{} is free", args.room), out)),
        Err(error) => refused(&args.room, error, out),
    }
}

async fn force(args: &Args, client: &HttpClient, reason: &Reason, out: &Out) -> Result<Ending> {
    let ended = async {
        let fence = seen(client, &args.room, args.fence).await?;
        client.force_release(&args.room, fence, reason).await
    };
    match ended.await {
        Ok(()) => {
            Ok(tell(args, &format!("{} is free; its holder is notified with the reason", args.room), out))
        }
        Err(Error::LockNotFound { .. }) => {
            Ok(tell_lost(&args.room, "it is not held, so there is nothing to end", None, out))
        }
        Err(error) => refused(&args.room, error, out),
    }
}

fn tell(args: &Args, words: &str, out: &Out) -> Ending {
    if out.is_json() {
        out.object("released", &args.room, json!({ "forced": args.force }));
    } else {
        out.good(words);
    }
    Ending::Done
}
