//! `leasehold completions`: a script that lets a shell complete this command.

use anyhow::Result;
use clap_complete::Shell;

use crate::Ending;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<Ending> {
    clap_complete::generate(args.shell, &mut crate::command(), "leasehold", &mut std::io::stdout());
    Ok(Ending::Done)
}
