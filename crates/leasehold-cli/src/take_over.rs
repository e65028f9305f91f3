//! `leasehold take-over`: take a lock from its holder, and say why.

use std::path::PathBuf;

use anyhow::Result;
use leasehold_client::http::Error;
use leasehold_client::{Fence, HttpClient, RoomId};
use leasehold_core::Reason;
use leasehold_core::wire::documents::Grant;

use crate::Ending;
use crate::acquire::{SecretFile, tell_granted};
use crate::connection::{Connection, refused};
use crate::out::Out;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The document.
    #[arg(value_name = "DOCUMENT")]
    room: RoomId,
    /// The reason, shown to the holder and recorded in the audit.
    #[arg(long, value_name = "TEXT", value_parser = reason_arg)]
    reason: Reason,
    /// The fence of the lock that is to be taken, as you saw it; that of the present one by default.
    #[arg(long, value_name = "N", value_parser = fence_arg)]
    fence: Option<Fence>,
    /// Write the lease id into this file, for you alone to read, instead of printing it.
    #[arg(long, value_name = "FILE")]
    lease_id_file: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn fence_arg(text: &str) -> Result<Fence, String> {
    let number =
        text.parse().map_err(|_| "a fence is a whole number; copy it from `leasehold ls`".to_owned())?;
    Fence::new(number).map_err(|error| error.to_string())
}

/// Why something is done to another's lock.
pub(crate) fn reason_arg(text: &str) -> Result<Reason, String> {
    if text.trim().is_empty() {
        return Err("it is empty; say why, the holder will see it".to_owned());
    }
    Reason::parse(text).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    let file = SecretFile::create(args.lease_id_file.as_deref())?;
    args.connection.run(async |client| match take_over(args, &client).await {
        Ok(grant) => tell_granted(&args.room, &grant, file, out),
        Err(error) => refused(&args.room, error, out),
    })
}

async fn take_over(args: &Args, client: &HttpClient) -> Result<Grant, Error> {
    let fence = seen(client, &args.room, args.fence).await?;
    client.take_over(&args.room, fence, &args.reason, None).await
}

/// The fence that the caller has seen; if it did not say, that of the lock that is held at this moment.
pub(crate) async fn seen(client: &HttpClient, room: &RoomId, fence: Option<Fence>) -> Result<Fence, Error> {
    if let Some(fence) = fence {
        return Ok(fence);
    }
    match client.state(room, None).await?.lock {
        Some(lock) => Ok(Fence::new(lock.fence)?),
        None => Err(Error::LockNotFound { because: None }),
    }
}
