//! What a script says about its attempt at a job: refresh, complete, fail, release.

use std::time::Duration;

use anyhow::Result;
use leasehold_core::time::whole_millis;
use serde_json::json;

use super::{Attempt, lost, tell};
use crate::Ending;
use crate::out::{Out, duration};
use crate::try_key::duration_arg;

#[derive(clap::Args)]
pub(crate) struct Refresh {
    /// How long it lasts from now on without a refresh [default: as long as before]
    #[arg(long, value_name = "DURATION", value_parser = duration_arg)]
    ttl: Option<Duration>,
    #[command(flatten)]
    attempt: Attempt,
}

impl Refresh {
    pub(super) fn run(&self, out: &Out) -> Result<Ending> {
        let (id, claim) = (&self.attempt.id, self.attempt.claim()?);
        self.attempt.place.run(async |jobs| match jobs.refresh(id.as_str(), claim, self.ttl).await {
            Ok(left) if out.is_json() => {
                tell(out, "refreshed", id, json!({ "expires_in_ms": whole_millis(left) }));
                Ok(Ending::Done)
            }
            Ok(left) => {
                out.good(&format!("{id} is yours for another {}", duration(whole_millis(left))));
                Ok(Ending::Done)
            }
            Err(error) => lost(id, error, out),
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct Complete {
    #[command(flatten)]
    attempt: Attempt,
    /// What it came to: JSON; anything else counts as text, behind `--` if it begins with a hyphen.
    #[arg(default_value = "null", allow_negative_numbers = true)]
    result: String,
}

impl Complete {
    pub(super) fn run(&self, out: &Out) -> Result<Ending> {
        let (id, claim) = (&self.attempt.id, self.attempt.claim()?);
        self.attempt.place.run(async |jobs| match jobs.complete(id.as_str(), claim, &self.result).await {
            Ok(()) => {
                said(out, "completed", id, &format!("{id} is done"));
                Ok(Ending::Done)
            }
            Err(error) => lost(id, error, out),
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct Fail {
    #[command(flatten)]
    attempt: Attempt,
    /// Why, in your words; behind `--` if they begin with a hyphen.
    #[arg(allow_negative_numbers = true)]
    error: String,
    /// Trying again would not help: the job has failed.
    #[arg(long = "final")]
    is_final: bool,
}

impl Fail {
    pub(super) fn run(&self, out: &Out) -> Result<Ending> {
        let (id, claim) = (&self.attempt.id, self.attempt.claim()?);
        self.attempt.place.run(async |jobs| {
            match jobs.fail(id.as_str(), claim, &self.error, !self.is_final).await {
                Ok(again) if out.is_json() => tell(out, "failed", id, json!({ "again": again })),
                Ok(true) => out.good(&format!("{id} will be tried again")),
                Ok(false) => out.good(&format!("{id} has failed")),
                Err(error) => return lost(id, error, out),
            }
            Ok(Ending::Done)
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct Release {
    #[command(flatten)]
    attempt: Attempt,
}

impl Release {
    pub(super) fn run(&self, out: &Out) -> Result<Ending> {
        let (id, claim) = (&self.attempt.id, self.attempt.claim()?);
        self.attempt.place.run(async |jobs| match jobs.release(id.as_str(), claim).await {
            Ok(()) => {
                said(out, "released", id, &format!("{id} is free again"));
                Ok(Ending::Done)
            }
            Err(error) => lost(id, error, out),
        })
    }
}

fn said(out: &Out, event: &str, id: &leasehold_client::JobId, words: &str) {
    match out.is_json() {
        true => tell(out, event, id, json!({})),
        false => out.good(words),
    }
}
