//! `leasehold job acquire`: begin with a job, and hand out what it takes to go on with it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold_client::{AcquireOptions, Claim, Finished, Held, JobAttempt, JobGuard, JobId, Jobs};
use leasehold_core::Json;
use leasehold_core::time::whole_millis;
use serde_json::{Value, json};

use super::{JobFields, Place, bare, tell};
use crate::Ending;
use crate::acquire::SecretFile;
use crate::out::{Out, duration, one_line};
use crate::try_key::duration_arg;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job: `collection/id`, such as `analyses/42`.
    #[arg(value_name = "JOB")]
    id: JobId,
    /// Which worker you are, for others to see [env: LEASEHOLD_OWNER] [default: leasehold and the process id]
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// How long the attempt lasts without a refresh.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "5m")]
    ttl: Duration,
    /// Print what it takes to go on as lines that a shell can `eval`, and everything else on standard error.
    #[arg(long, conflicts_with = "json")]
    export: bool,
    /// Write the lease id into this file, for you alone to read, instead of printing it.
    #[arg(long, value_name = "FILE", conflicts_with = "export")]
    lease_id_file: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

impl Args {
    pub(super) fn run(&self, out: &Out) -> Result<Ending> {
        self.place.run(async |jobs| self.acquire(&jobs, out).await)
    }

    async fn acquire(&self, jobs: &Jobs, out: &Out) -> Result<Ending> {
        let file = SecretFile::create(self.lease_id_file.as_deref())?;
        let worker = self.worker.clone().or_else(|| crate::connection::variable("LEASEHOLD_OWNER"));
        let options = worker.map_or_else(AcquireOptions::new, AcquireOptions::owner).ttl(self.ttl);
        match jobs.acquire(self.id.as_str(), options).await.map_err(bare)? {
            JobAttempt::Acquired(guard) => self.acquired(guard, file, jobs, out).await,
            JobAttempt::AlreadyFinished(finished) => Ok(already_finished(&self.id, &finished, out)),
            JobAttempt::Locked(held) => Ok(locked(&self.id, &held, out)),
        }
    }

    /// Prints the lease id. If it cannot be printed, the job is given back: otherwise nobody could
    /// do it until its lease has run out.
    async fn acquired(
        &self,
        guard: JobGuard,
        file: Option<SecretFile<'_>>,
        jobs: &Jobs,
        out: &Out,
    ) -> Result<Ending> {
        let begun = Begun {
            attempt: guard.attempt(),
            is_recovered: guard.is_recovered(),
            left: whole_millis(guard.time_left()),
            payload: Json::of_text(guard.payload()),
            claim: guard.into_claim(),
        };
        let Err(error) = self.hand_out(&begun, file, out) else { return Ok(Ending::Done) };
        jobs.release(self.id.as_str(), begun.claim).await.map_err(bare).with_context(|| {
            format!("{error:#}, and {} could not be given back: its lease will run out", self.id)
        })?;
        Err(error.context(format!("{} was given back", self.id)))
    }

    fn hand_out(&self, begun: &Begun, file: Option<SecretFile<'_>>, out: &Out) -> Result<()> {
        let (lease_id, fence) = (begun.claim.lease_id.reveal(), begun.claim.fence.get());
        if let Some(file) = file {
            file.write(&lease_id)?;
        }
        if self.export {
            out.plain(&format!("export LEASEHOLD_LEASE_ID={lease_id} LEASEHOLD_FENCE={fence}"));
        } else if out.is_json() {
            self.tell(begun, &lease_id, out);
        } else {
            self.say(begun, &lease_id, out);
        }
        match out.unsaid() {
            None => Ok(()),
            Some(error) => bail!("its lease id could not be printed: {error}"),
        }
    }

    fn tell(&self, begun: &Begun, lease_id: &str, out: &Out) {
        let mut rest = json!({ "fence": begun.claim.fence.get(), "attempt": begun.attempt,
            "recovered": begun.is_recovered, "stop_after_ms": begun.left });
        if let (Some(rest), None) = (rest.as_object_mut(), &self.lease_id_file) {
            rest.insert("lease_id".into(), lease_id.into());
        }
        tell(
            out,
            "acquired",
            &self.id,
            JobFields { payload: Some(begun.payload.clone()), result: None, rest },
        );
    }

    fn say(&self, begun: &Begun, lease_id: &str, out: &Out) {
        out.good(&format!("{} is yours to do, with fence {}", self.id, begun.claim.fence));
        out.fact("payload", &one_line(begun.payload.as_str()));
        let vanished = if begun.is_recovered { ", the one before it vanished" } else { "" };
        out.fact("attempt", &format!("{}{vanished}", begun.attempt));
        out.fact("stop after", &format!("{}, unless you refresh it", duration(begun.left)));
        match &self.lease_id_file {
            Some(file) => out.hint(&format!("its lease id is in {}: keep that to yourself", file.display())),
            None => {
                out.fact("lease id", lease_id);
                out.hint("keep that to yourself; LEASEHOLD_LEASE_ID and LEASEHOLD_FENCE give both to the other commands");
            }
        }
    }
}

/// An attempt that has begun.
struct Begun {
    claim: Claim,
    attempt: u32,
    is_recovered: bool,
    /// How long it lasts without a refresh, in milliseconds.
    left: u64,
    payload: Json,
}

/// Reports that another worker holds the job.
pub(super) fn locked(id: &JobId, held: &Held, out: &Out) -> Ending {
    if out.is_json() {
        tell(out, "locked", id, holder(held));
    } else {
        out.warn(&format!(
            "{} is working on {id} (fence {}), for another {} unless it is refreshed",
            held.name,
            held.fence,
            duration(whole_millis(held.left))
        ));
    }
    Ending::Held
}

pub(super) fn holder(held: &Held) -> Value {
    let left = whole_millis(held.left);
    json!({ "holder": { "id": held.by.as_str(), "name": held.name }, "fence": held.fence.get(), "expires_in_ms": left })
}

fn already_finished(id: &JobId, finished: &Finished, out: &Out) -> Ending {
    let (fields, words) = match finished {
        Finished::Ready { result } => {
            let result = Json::of_text(result);
            let words = format!("{id} is done already: {}", one_line(result.as_str()));
            (JobFields { payload: None, result: Some(result), rest: json!({ "status": "READY" }) }, words)
        }
        Finished::Failed { error } => {
            let words = format!("{id} has failed already: {}", one_line(error));
            let rest = json!({ "status": "FAILED", "error": error });
            (JobFields { payload: None, result: None, rest }, words)
        }
    };
    if out.is_json() {
        tell(out, "already_finished", id, fields);
    } else {
        out.warn(&words);
    }
    Ending::AlreadyFinished
}
