//! `leasehold renew`: one heartbeat for a lock that this caller holds.

use anyhow::Result;
use leasehold_client::RoomId;
use leasehold_core::wire::documents::Heartbeat;
use serde_json::json;

use crate::Ending;
use crate::connection::{Connection, Which, refused};
use crate::out::{Out, duration};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The document.
    #[arg(value_name = "DOCUMENT")]
    room: RoomId,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    let lease_id = args.which.lease_id()?;
    args.connection.run(async |client| match client.renew(&args.room, lease_id.as_ref()).await {
        Ok(lock) => Ok(tell(&args.room, &lock, out)),
        Err(error) => refused(&args.room, error, out),
    })
}

fn tell(room: &RoomId, lock: &Heartbeat, out: &Out) -> Ending {
    if out.is_json() {
        out.object("renewed", room, json!(lock));
        return Ending::Done;
    }
    out.good(&format!("{room} is yours for another {} (fence {})", duration(lock.expires_in_ms), lock.fence));
    if let Some(request) = &lock.request {
        out.notice(&format!("{} asks you to hand it over", request.by.name));
    }
    Ending::Done
}
