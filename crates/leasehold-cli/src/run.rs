//! `leasehold run`: a command that runs only while a lease is held, and is gone before another holder can get it.
//!
//! Four processes take part. The *supervisor* (this one) has the lease and decides. The *guardian* leads the command's
//! process group, starts the command and holds one end of a socket whose other end only the supervisor has: when that
//! closes, or the deadline that it was told has passed, it ends the command and all that came of it. The *second guardian*
//! is in the group too, and kills it when the first has not. The *command* is killed by the kernel when the guardian dies,
//! and by the supervisor, with all of its descendants. So any two of the first three may be killed or stopped at any moment.
//!
//! Nothing here writes to standard output: that is the command's.

mod alarm;
mod channel;
mod descendants;
mod guardian;
mod plan;
mod report;
mod second;
mod signals;
mod supervisor;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use leasehold_client::{AcquireOptions, Error, Guard, HttpClient, LeaseName, Leasehold, Retry, RoomId};
use leasehold_core::{Key, Retries, RetryPolicy};
use leasehold_store::StoreUrl;
use leasehold_store::jitter;

use crate::acquire::own_tab;
use crate::connection::{Connection, variable};
use crate::logs::{self, LogFormat};
use crate::out::Out;
use crate::serve::WrongUsage;
use crate::try_key::{duration_arg, shared};
use crate::{Ending, run_async};

use report::Report;
use signals::Signals;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to lease: a name such as `nightly`, which stands for `run/nightly`, or a whole key.
    #[arg(value_name = "NAME", value_parser = key_arg)]
    key: String,
    /// The command and its arguments.
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
    /// How long to wait while another holder has it [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "0s", hide_default_value = true)]
    wait: Duration,
    /// How long the command has between SIGTERM and SIGKILL when the lease runs out under it.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "5s")]
    grace: Duration,
    /// Say on standard error what happens.
    #[arg(long, short)]
    verbose: bool,
    /// Print nothing when the lease is held by another; the exit code is 75.
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Who you are, as others will see it [env: LEASEHOLD_OWNER] [default: leasehold and the process id]
    ///
    /// On a server the token says who you are, and this is the name of the program.
    #[arg(long)]
    owner: Option<String>,
    /// How long the lease lasts if this process dies [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration_arg)]
    ttl: Option<Duration>,
    #[command(flatten)]
    file: File,
    #[command(flatten)]
    connection: Connection,
}

/// A lease in a file or a database.
#[derive(clap::Args)]
#[command(next_help_heading = "File or database")]
struct File {
    /// The file or the PostgreSQL URL that keeps the leases [env: LEASEHOLD_STORE] [default: leases.db, if no server is
    /// named]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "token_file"])]
    store: Option<String>,
}

/// The key that a name stands for.
fn key_arg(text: &str) -> Result<String, String> {
    let key = if text.contains('/') { text.to_owned() } else { format!("{}{text}", LeaseName::DOOR) };
    Key::parse(&key).map(|_| key).map_err(|error| error.to_string())
}

/// The parts of `run` that are processes of their own: internal, so the help does not list them.
#[derive(clap::Parser)]
enum Part {
    /// Leads the group of the command and ends it.
    Guardian {
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
    /// Watches over the group as well.
    Second,
    /// Becomes the command.
    Command {
        guardian: i32,
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
}

/// The first argument of such a process.
const PART: &str = "run-part";

/// Does what this process was started for, if it is a part of another one's `run`.
pub(crate) fn as_a_part() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != PART {
        return None;
    }
    let out = Out::new(false);
    let ended = match Part::parse_from(std::env::args_os().skip(1)) {
        Part::Guardian { command } => guardian::guard(&command),
        Part::Second => second::watch_too(),
        Part::Command { guardian, command } => guardian::become_command(guardian, &command, &out),
    };
    Some(ended.map_or_else(
        |error| {
            out.error(&error);
            ExitCode::FAILURE
        },
        ExitCode::from,
    ))
}

const STORE: &str = "LEASEHOLD_STORE";
const OWNER: &str = "LEASEHOLD_OWNER";

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    // A renewal that fails is worth a line: the lease may be lost soon.
    let format = if out.is_json() { LogFormat::Json } else { LogFormat::Text };
    logs::start("warn", Some(format)).map_err(anyhow::Error::msg)?;
    let report = Report::new(&args.key, out.is_json(), args.verbose);
    match file(args)? {
        Some(url) => run_async(async {
            let leasehold = Leasehold::open(&url)?;
            lease_and_run(args, &leasehold, options(args), &report).await
        }),
        None => {
            // Two runs of one user are two holders, unless --tab gives both the same name.
            let tab = args.connection.tab.clone().unwrap_or_else(own_tab);
            // For a document the token and the server decide, whatever the environment says.
            let options = if is_document(args) { AcquireOptions::new() } else { options(args) };
            let work = async |client: HttpClient| {
                lease_and_run(args, &Leasehold::connect(client), options, &report).await
            };
            args.connection.run_as(Some(&tab), work)
        }
    }
}

/// The store, unless it is a server. What was said on the command line counts most.
fn file(args: &Args) -> Result<Option<String>> {
    let server = args.connection.url.is_some() || Connection::url_in_environment().is_some();
    if server && args.file.store.is_none() {
        if is_document(args) && (args.owner.is_some() || args.ttl.is_some()) {
            let why = "for a document on a server, the token says who you are, and the server how long its lock lasts";
            let fix = "leave out --owner and --ttl, or lease a name such as `run/nightly`";
            return Err(WrongUsage(format!("{why}; {fix}")).into());
        }
        return Ok(None);
    }
    let store = args.file.store.clone().or_else(|| variable(STORE)).unwrap_or_else(|| "leases.db".into());
    if matches!(StoreUrl::parse(&store)?, StoreUrl::Memory) {
        let why = "a store in the memory of this process is not visible to other processes";
        return Err(WrongUsage(format!("{why}; name a file with --store, or a server with --url")).into());
    }
    shared(&store).map(Some)
}

fn is_document(args: &Args) -> bool {
    args.key.starts_with(RoomId::DOOR)
}

fn options(args: &Args) -> AcquireOptions {
    let owner = args.owner.clone().or_else(|| variable(OWNER));
    let options = owner.map_or_else(AcquireOptions::new, AcquireOptions::owner);
    args.ttl.into_iter().fold(options, AcquireOptions::ttl)
}

async fn lease_and_run(
    args: &Args,
    leasehold: &Leasehold,
    options: AcquireOptions,
    report: &Report,
) -> Result<Ending> {
    let mut signals = Signals::listen()?;
    let acquired = tokio::select! {
        acquired = acquire(args, leasehold, options) => acquired,
        // Given up before it was there.
        number = signals.asked_to_end() => return Ok(Ending::Signal(number)),
    };
    match acquired {
        Ok(guard) => supervisor::run(args, guard, signals, report).await,
        Err(Error::TimedOut { held, .. }) => {
            if !args.quiet {
                report.held(&held);
            }
            Ok(Ending::Held)
        }
        Err(error) => Err(error.into()),
    }
}

/// Waits for the lease for as long as was said, also while the store is in trouble that may pass.
async fn acquire(args: &Args, leasehold: &Leasehold, options: AcquireOptions) -> Result<Guard, Error> {
    let start = Instant::now();
    let mut retries = Retries::new(RetryPolicy::LOOP, jitter());
    loop {
        let left = args.wait.saturating_sub(start.elapsed());
        match leasehold.acquire(&args.key, options.clone().wait(left)).await {
            Err(error) if may_pass(&error) && !left.is_zero() => {
                let wait = retries.failed_asking(error.retry_after()).unwrap_or_default();
                tokio::time::sleep(wait.min(left)).await;
            }
            answer => return answer,
        }
    }
}

fn may_pass(error: &Error) -> bool {
    !matches!(error, Error::TimedOut { .. }) && error.retry() != Retry::No
}
