//! `leasehold check`: is this fence still the current one? Advice; the real guard is a conditional write.

use anyhow::Result;
use leasehold_client::{Fence, RoomId};
use leasehold_core::wire::documents::Checked;
use serde_json::json;

use crate::Ending;
use crate::connection::{Connection, refused};
use crate::out::Out;
use crate::take_over::fence_arg;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The document.
    #[arg(value_name = "DOCUMENT")]
    room: RoomId,
    /// The fence that came with a save.
    #[arg(value_parser = fence_arg)]
    fence: Fence,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    args.connection.run(async |client| match client.check(&args.room, args.fence).await {
        Ok(checked) => Ok(tell(args, &checked, out)),
        Err(error) => refused(&args.room, error, out),
    })
}

fn tell(args: &Args, checked: &Checked, out: &Out) -> Ending {
    let (room, fence) = (&args.room, args.fence);
    if out.is_json() {
        out.object("checked", room, json!(checked));
    } else if checked.current {
        out.good(&format!("fence {fence} of {room} is current"));
    } else {
        out.bad(&format!("fence {fence} of {room} is not current: refuse what comes with it"));
        if let (Some(holder), Some(fence)) = (&checked.holder, checked.fence) {
            out.hint(&format!("{} holds it, with fence {fence}", holder.name));
        }
    }
    if checked.current { Ending::Done } else { Ending::NotCurrent }
}
