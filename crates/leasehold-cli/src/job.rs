//! `leasehold job`: work that is to be done once, from a script. On a server, in a shared file, in PostgreSQL or in Firestore.
//!
//! Each command is one step of a job's life. Between two of them the script keeps the lease id and the fence, in two
//! variables: like a token, a lease id is never the value of a flag.

mod acquire;
mod attempt;
mod show;

use anyhow::{Context, Result};
use clap::Subcommand;
use leasehold_client::{Claim, Created, Error, Fence, HttpClient, JobId, Jobs, Leasehold, Lost};
use leasehold_core::Json;
use leasehold_store::StoreUrl;
use serde::Serialize;
use serde_json::{Value, json};

use crate::connection::{Connection, Which, variable};
use crate::out::Out;
use crate::serve::WrongUsage;
use crate::try_key::shared;
use crate::{Ending, run_async};

/// What to do with a job.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a job, unless it exists with the same payload.
    Create(Create),
    /// Show a job's status, its result, and who is working on it.
    Show(Only),
    /// Acquire a job, if it is neither finished nor held by another worker.
    ///
    /// Exits with 75 if another worker holds it, and with 4 if it is finished. Prints the lease id, once.
    Acquire(acquire::Args),
    /// Renew the lease of a job.
    Refresh(attempt::Refresh),
    /// Complete a job, with its result.
    Complete(attempt::Complete),
    /// Fail the current attempt.
    Fail(attempt::Fail),
    /// Give a job back unfinished.
    Release(attempt::Release),
    /// Reset a job, so that it is done again.
    Reset(Only),
}

/// A job, and nothing else to say.
#[derive(clap::Args)]
pub(crate) struct Only {
    /// The job: `collection/id`, such as `analyses/42`.
    #[arg(value_name = "JOB")]
    id: JobId,
    #[command(flatten)]
    place: Place,
}

#[derive(clap::Args)]
pub(crate) struct Create {
    /// The job: `collection/id`, such as `analyses/42`.
    #[arg(value_name = "JOB")]
    id: JobId,
    /// What is to be done: JSON; anything else counts as text, behind `--` if it begins with a hyphen.
    #[arg(default_value = "null", allow_negative_numbers = true)]
    payload: String,
    /// How many attempts there may be [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn run(command: &Command, out: &Out) -> Result<Ending> {
    match command {
        Command::Create(args) => args.place.run(async |jobs| create(args, &jobs, out).await),
        Command::Show(args) => args.place.run(async |jobs| show::run(&args.id, &jobs, out).await),
        Command::Acquire(args) => args.run(out),
        Command::Refresh(args) => args.run(out),
        Command::Complete(args) => args.run(out),
        Command::Fail(args) => args.run(out),
        Command::Release(args) => args.run(out),
        Command::Reset(args) => args.place.run(async |jobs| reset(&args.id, &jobs, out).await),
    }
}

async fn create(args: &Create, jobs: &Jobs, out: &Out) -> Result<Ending> {
    let created = jobs.create(args.id.as_str(), &args.payload, args.max_attempts).await.map_err(bare)?;
    let is_new = created == Created::New;
    if out.is_json() {
        tell(out, "created", &args.id, json!({ "new": is_new }));
    } else if is_new {
        out.good(&format!("{} is there now, to be done", args.id));
    } else {
        out.notice(&format!("{} was there before, with the same payload", args.id));
    }
    Ok(Ending::Done)
}

async fn reset(id: &JobId, jobs: &Jobs, out: &Out) -> Result<Ending> {
    match jobs.reset(id.as_str()).await.map_err(bare)? {
        None if out.is_json() => tell(out, "reset", id, json!({})),
        None => out.good(&format!("{id} is to be done again")),
        Some(held) => {
            return Ok(acquire::locked(id, &held, out));
        }
    }
    Ok(Ending::Done)
}

/// Where the jobs are.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// The file that keeps the jobs, or the URL of PostgreSQL or Firestore (firestore:PROJECT) [env: LEASEHOLD_STORE] [default: leases.db, if no server is named]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "token_file"])]
    store: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

const STORE: &str = "LEASEHOLD_STORE";
const FENCE: &str = "LEASEHOLD_FENCE";

impl Place {
    /// Does something with the jobs. What was said on the command line counts most; a server named in the environment
    /// counts more than a file there.
    fn run(&self, work: impl AsyncFnOnce(Jobs) -> Result<Ending>) -> Result<Ending> {
        let server = self.connection.url.is_some() || Connection::url_in_environment().is_some();
        if server && self.store.is_none() {
            let work = async |client: HttpClient| work(Leasehold::connect(client).jobs()?).await;
            return self.connection.run(work);
        }
        let store = self.store.clone().or_else(|| variable(STORE)).unwrap_or_else(|| "leases.db".into());
        if matches!(StoreUrl::parse(&store)?, StoreUrl::Memory) {
            let why = "what is in the memory of this process is gone when it ends";
            return Err(WrongUsage(format!("{why}; name a file with --store, or a server with --url")).into());
        }
        let url = shared(&store)?;
        run_async(async { work(Leasehold::open(&url)?.jobs()?).await })
    }
}

/// Whose attempt a command is about.
#[derive(clap::Args)]
pub(crate) struct Attempt {
    /// The job: `collection/id`, such as `analyses/42`.
    #[arg(value_name = "JOB")]
    id: JobId,
    /// The fence of the attempt, as `acquire` said it [env: LEASEHOLD_FENCE]
    #[arg(long, value_name = "N")]
    fence: Option<u64>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Place,
}

impl Attempt {
    fn claim(&self) -> Result<Claim> {
        let missing =
            |what: &str, how: &str| WrongUsage(format!("which attempt is it? {what} is missing; {how}"));
        let lease_id = self.which.lease_id()?.ok_or_else(|| {
            missing("its lease id", "put it into LEASEHOLD_LEASE_ID, or into a file for --lease-id-file")
        })?;
        let in_environment = || variable(FENCE).map(|text| text.trim().parse().context(FENCE)).transpose();
        let fence = self.fence.map_or_else(in_environment, |fence| Ok(Some(fence)))?;
        let fence =
            fence.ok_or_else(|| missing("its fence", "put it into LEASEHOLD_FENCE, or behind --fence"))?;
        Ok(Claim { lease_id, fence: Fence::new(fence)? })
    }
}

/// An error as `Connection` and the exit codes know it.
fn bare(error: Error) -> anyhow::Error {
    match error {
        Error::Http(error) => error.into(),
        error => error.into(),
    }
}

/// What happened to a job, as one object: `fields`, with `event` and `job` before them.
fn tell(out: &Out, event: &str, id: &JobId, fields: impl Serialize) {
    out.value(&Happened { event, job: id.as_str(), fields });
}

#[derive(Serialize)]
struct Happened<'a, F> {
    event: &'a str,
    job: &'a str,
    #[serde(flatten)]
    fields: F,
}

/// The fields of a job. Payload and result are apart from the rest, because a `Value` would round their numbers.
#[derive(Serialize)]
struct JobFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Json>,
    #[serde(flatten)]
    rest: Value,
}

/// Says that an attempt is not (any more) the caller's; other errors stay errors.
fn lost(id: &JobId, error: Error, out: &Out) -> Result<Ending> {
    let Error::Lost(lost) = error else { return Err(bare(error)) };
    let because = match lost {
        Lost::Told(because) => Some(because.as_str()),
        Lost::Deadline | Lost::Released => None,
    };
    if out.is_json() {
        tell(out, "lost", id, json!({ "because": because }));
    } else {
        out.bad(&format!(
            "{id}: the attempt is over ({}); nothing was changed",
            because.unwrap_or("unknown")
        ));
    }
    Ok(Ending::Lost)
}
