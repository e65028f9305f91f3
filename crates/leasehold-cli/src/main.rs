//! The command `leasehold`: one file per command, and this one to choose between them.

mod acquire;
mod audit;
mod check;
mod completions;
mod connection;
mod drill;
mod flags;
mod job;
mod json_lines;
mod logs;
mod ls;
mod man;
mod out;
mod people;
mod project;
mod release;
mod renew;
mod reporter;
#[cfg(target_os = "linux")]
mod run;
mod serve;
mod signals;
mod store;
mod take_over;
mod telemetry;
mod try_key;
mod watch;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use out::Out;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Only one at a time edits the document, runs the job, owns the folder; everybody else knows the moment that changes.
///
/// `serve` is the server. `acquire`, `renew`, `release`, `take-over`, `check`, `watch` and `audit` talk to one; `try`
/// and `store` work on a local file, `project` on a folder; `run`, `job` and `ls` do both.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 problems were found or a fence is not current, 4 the job is finished
/// already, 69 the server cannot be reached, 75 the lease is held by another, 76 the lease was lost or is not
/// yours, 77 not allowed. `run` passes the exit code of its command through.
#[derive(Parser)]
#[command(name = "leasehold", version, max_term_width = 100)]
struct Args {
    /// Answer in JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
// Made once: that one of them is large costs nothing.
#[allow(clippy::large_enum_variant)]
enum Command {
    /// Start a server.
    Serve(serve::Args),
    /// List who holds what, on a server or in a file (also beside a server that uses it).
    Ls(ls::Args),
    /// Watch the events of a server live.
    ///
    /// On a terminal it is a live view; in a pipe, or with --json, one event a line.
    Watch(watch::Args),
    /// Lock a document.
    ///
    /// Prints the lease id, once: the secret that proves the lock is yours. With --hold it is kept and renewed until
    /// Ctrl-C instead.
    Acquire(acquire::Args),
    /// Renew the lock of a document.
    Renew(renew::Args),
    /// Unlock a document.
    Release(release::Args),
    /// Take a lock from its holder.
    TakeOver(take_over::Args),
    /// Check whether a fence is still the current one; exits with 3 if it is not.
    Check(check::Args),
    /// List who took or ended whose locks, and why.
    Audit(audit::Args),
    /// Run a command only while holding a lease, so that no two of them run at once.
    ///
    /// It ends with the command's exit code (128 and the signal's number if a signal ended it; 126 or 127 if it cannot
    /// be run or found), with 75 if the lease is held by another, and with 76 if it was lost. Then the command is
    /// gone before another holder can get the lease.
    #[cfg(target_os = "linux")]
    Run(run::Args),
    /// Create, acquire and finish jobs: work that must be done once.
    #[command(subcommand)]
    Job(job::Command),
    /// Try to get the lease on a key in a local file, and hold it until Ctrl-C.
    ///
    /// Open a second terminal and try the same key there: it will tell who holds it.
    Try(try_key::Args),
    /// Lock a project folder on disk, see who has it, unlock it.
    #[command(subcommand)]
    Project(project::Command),
    /// Show in which phase of a roll-out pages are; go on to the next one, or back.
    #[command(subcommand)]
    Flags(flags::Command),
    /// Report what the locks and autosaves of pages do, as a server has counted it.
    #[command(subcommand)]
    Telemetry(telemetry::Command),
    /// Watch the read-only rate of the current phase, and roll it back when it is too high.
    Reporter(reporter::Args),
    /// Practise what to do when something goes wrong.
    #[command(subcommand)]
    Drill(drill::Command),
    /// Check, repair, back up or restore a file.
    #[command(subcommand)]
    Store(store::Command),
    /// Print a script that lets a shell complete this command.
    Completions(completions::Args),
    /// Write the manual pages.
    Man(man::Args),
}

/// How a command ended, other than by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Done,
    ProblemsFound,
    NotCurrent,
    Held,
    Lost,
    AlreadyFinished,
    /// As a command ended that was run.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(match ending {
            Ending::Done => 0,
            Ending::ProblemsFound | Ending::NotCurrent => 3,
            // EX_TEMPFAIL: try again later.
            Ending::Held => 75,
            Ending::Lost => 76,
            Ending::AlreadyFinished => 4,
            Ending::Code(code) => code,
            Ending::Signal(number) => 128 + number,
        })
    }
}

/// The exit code for wrong usage, as everywhere.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = run::as_a_part() {
        return code;
    }
    let parsed = command().try_get_matches().and_then(|matches| Args::from_arg_matches(&matches));
    let args = match parsed {
        Ok(args) => args,
        Err(error) => return misunderstood(&error),
    };
    let out = Out::new(args.json);
    let ended = run(args.command, &out).and_then(|ending| heard(ending, &out));
    logs::flush();
    match ended {
        Ok(ending) => ending.into(),
        Err(error) => {
            out.error(&error);
            exit_code(&error).into()
        }
    }
}

/// Does nothing when its output has no reader. A reader may go away once it has seen enough.
fn heard(ending: Ending, out: &Out) -> Result<Ending> {
    match out.unsaid() {
        Some(error) if ending == Ending::Done && error.kind() != std::io::ErrorKind::BrokenPipe => {
            anyhow::bail!("standard output cannot be written: {error}")
        }
        _ => Ok(ending),
    }
}

/// Says what is wrong with the arguments, or prints the help that was asked for.
fn misunderstood(error: &clap::Error) -> ExitCode {
    // What belongs to a command that is to be run is none of our arguments.
    let asks_for_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if error.use_stderr() && asks_for_json {
        let text = error.render().to_string();
        let text = text.trim().trim_start_matches("error: ");
        Out::new(true).error(&anyhow::anyhow!("{text}"));
    } else {
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(WRONG_USAGE))
}

fn run(command: Command, out: &Out) -> Result<Ending> {
    match command {
        Command::Serve(args) => serve::run(args, out),
        Command::Ls(args) => ls::run(&args, out),
        Command::Watch(args) => watch::run(&args, out),
        Command::Acquire(args) => acquire::run(&args, out),
        Command::Renew(args) => renew::run(&args, out),
        Command::Release(args) => release::run(&args, out),
        Command::TakeOver(args) => take_over::run(&args, out),
        Command::Check(args) => check::run(&args, out),
        Command::Audit(args) => audit::run(&args, out),
        #[cfg(target_os = "linux")]
        Command::Run(args) => run::run(&args, out),
        Command::Job(command) => job::run(&command, out),
        Command::Try(args) => try_key::run(&args, out),
        Command::Project(command) => project::run(&command, out),
        Command::Flags(command) => flags::run(&command, out),
        Command::Telemetry(command) => telemetry::run(&command, out),
        Command::Reporter(args) => reporter::run(&args, out),
        Command::Drill(command) => drill::run(&command, out),
        Command::Store(command) => store::run(&command, out),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args, out),
    }
}

/// The whole command line. What the environment holds is not shown in the help: it may be a secret.
fn command() -> clap::Command {
    fn discreet(command: clap::Command) -> clap::Command {
        command.mut_args(|arg| arg.hide_env_values(true)).mut_subcommands(discreet)
    }
    // Without a server `ls` lists a file: there the address has no default.
    let of_ls = "The server to list instead of a file [env: LEASEHOLD_URL]";
    let command = Args::command().mut_subcommand("ls", |ls| ls.mut_arg("url", |url| url.help(of_ls)));
    discreet(command)
}

/// Runs a command that waits for something.
fn run_async<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work)
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<serve::WrongUsage>() {
        return WRONG_USAGE;
    }
    if error.is::<connection::NotLetIn>() {
        return connection::NOT_ALLOWED;
    }
    if let Some(leasehold_client::Error::Http(error)) = error.downcast_ref() {
        return connection::exit_code(error);
    }
    error.downcast_ref().map_or(1, connection::exit_code)
}
