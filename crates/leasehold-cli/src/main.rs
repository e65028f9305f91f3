//! The command `leasehold`: one file per command, and this one to choose between them.

mod ls;
mod out;
mod store;
mod try_key;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use out::Out;

/// Makes sure that only one party at a time works on a thing, and that everybody else knows.
///
/// The commands here work on a local file, which several processes of this machine may share. Exit codes: 0 done,
/// 1 failed, 2 wrong usage, 3 problems were found, 75 the lease is held by somebody else, 76 the lease was lost.
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
enum Command {
    /// Try to get the lease on a key, and hold it until Ctrl-C.
    ///
    /// Open a second terminal and try the same key there: it will tell who holds it.
    Try(try_key::Args),
    /// List the leases in a file, also beside a server that uses it.
    Ls(ls::Args),
    /// Look after a file: check, repair, backup, restore.
    #[command(subcommand)]
    Store(store::Command),
}

/// How a command ended, other than by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Done,
    ProblemsFound,
    Held,
    Lost,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(match ending {
            Ending::Done => 0,
            Ending::ProblemsFound => 3,
            // EX_TEMPFAIL: try again later.
            Ending::Held => 75,
            Ending::Lost => 76,
        })
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let out = Out::new(args.json);
    let ended = match args.command {
        Command::Try(args) => try_key::run(&args, &out),
        Command::Ls(args) => ls::run(&args, &out),
        Command::Store(command) => store::run(&command, &out),
    };
    match ended {
        Ok(ending) => ending.into(),
        Err(error) => {
            out.error(&error);
            ExitCode::FAILURE
        }
    }
}
