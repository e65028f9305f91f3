//! `leasehold try`: get a lease, watch it being held, let it go. What a newcomer runs first.

use std::time::Duration;

use anyhow::Result;
use leasehold_client::{AcquireOptions, Error, Guard, Held, Leasehold, Lost};
use leasehold_core::time::{parse_duration, whole_millis};
use leasehold_store::{Mode, StoreUrl};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::Ending;
use crate::out::{Out, duration};
use crate::signals::Signals;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to lease: `door/name`, such as `run/hello`.
    key: String,
    /// The file that keeps the leases; it is made if it is not there.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_STORE", default_value = "leases.db")]
    store: String,
    /// Who you are, as others will see it.
    #[arg(long, env = "LEASEHOLD_OWNER")]
    owner: Option<String>,
    /// How long the lease lasts if this process dies.
    #[arg(long, value_parser = duration_arg, default_value = "30s")]
    ttl: Duration,
    /// How long to wait while another holder has it.
    #[arg(long, value_parser = duration_arg, default_value = "0s")]
    wait: Duration,
    /// How long to hold it; until Ctrl-C by default.
    #[arg(long, value_parser = duration_arg)]
    hold: Option<Duration>,
    /// Metadata that others can see.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair_arg)]
    meta: Vec<(String, String)>,
}

pub(crate) fn duration_arg(text: &str) -> Result<Duration, String> {
    parse_duration("duration", text).map_err(|error| error.to_string())
}

fn pair_arg(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "write it as NAME=VALUE".to_owned())
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    tokio::runtime::Runtime::new()?.block_on(try_key(args, out))
}

async fn try_key(args: &Args, out: &Out) -> Result<Ending> {
    let leasehold = Leasehold::open(&shared(&args.store)?)?;
    let waiting = out.spinner(format!("trying {}", args.key));
    let acquired = leasehold.acquire(&args.key, options(args)).await;
    waiting.finish_and_clear();
    match acquired {
        Ok(guard) => hold(args, out, guard).await,
        Err(Error::TimedOut { key, held }) => Ok(refused(out, key.as_str(), &held)),
        Err(error) => Err(error.into()),
    }
}

fn options(args: &Args) -> AcquireOptions {
    let options = args.owner.as_ref().map_or_else(AcquireOptions::new, AcquireOptions::owner);
    let options = options.ttl(args.ttl).wait(args.wait);
    args.meta.iter().fold(options, |options, (name, value)| options.meta(name, value))
}

/// The store's URL, so that two terminals can have the same file open.
pub(crate) fn shared(store: &str) -> Result<String> {
    Ok(match StoreUrl::parse(store)? {
        StoreUrl::Embedded { path, mode: Mode::Exclusive } => {
            format!("embedded:{}?mode=shared", path.display())
        }
        _ => store.to_owned(),
    })
}

fn refused(out: &Out, key: &str, held: &Held) -> Ending {
    let left = whole_millis(held.left);
    if out.is_json() {
        out.value(&json!({ "event": "held", "key": key, "owner": held.by.as_str(), "fence": held.fence.get(), "expires_in_ms": left }));
    } else {
        out.notice(&format!("{key} is held by {} (fence {})", held.by, held.fence));
        out.hint(&format!("it runs out in {} unless it is renewed; --wait 1m waits for it", duration(left)));
    }
    Ending::Held
}

async fn hold(args: &Args, out: &Out, guard: Guard) -> Result<Ending> {
    let mut signals = Signals::listen()?;
    let key = guard.key().clone();
    if out.is_json() {
        let ttl_ms = whole_millis(args.ttl);
        out.value(&json!({ "event": "acquired", "key": key.as_str(), "owner": guard.owner().as_str(), "fence": guard.fence().get(), "ttl_ms": ttl_ms }));
    } else {
        out.good(&format!("{key} is yours, as {} with fence {}", guard.owner(), guard.fence()));
        if args.hold.is_none() {
            out.hint("it renews itself; Ctrl-C lets it go. Try the same key in another terminal meanwhile.");
        }
    }
    let start = Instant::now();
    let holding = out.spinner(format!("holding {key}"));
    let lost = tokio::select! {
        lost = guard.lost() => Some(lost),
        () = sleep_or_forever(args.hold) => None,
        _ = signals.next() => None,
    };
    holding.finish_and_clear();
    match lost {
        Some(lost) => Ok(report_lost(out, key.as_str(), lost)),
        None => {
            guard.release().await?;
            report_released(out, key.as_str(), start.elapsed());
            Ok(Ending::Done)
        }
    }
}

async fn sleep_or_forever(duration: Option<Duration>) {
    match duration {
        Some(duration) => sleep(duration).await,
        None => std::future::pending().await,
    }
}

fn report_lost(out: &Out, key: &str, lost: Lost) -> Ending {
    if out.is_json() {
        out.value(&json!({ "event": "lost", "key": key, "because": lost.to_string() }));
    } else {
        out.bad(&format!("{key}: {lost}"));
    }
    Ending::Lost
}

fn report_released(out: &Out, key: &str, held: Duration) {
    let held = whole_millis(held);
    if out.is_json() {
        out.value(&json!({ "event": "released", "key": key, "held_for_ms": held }));
    } else {
        out.good(&format!("{key} released after {}", duration(held)));
    }
}
