//! `leasehold completions`: a script that lets a shell complete this command.

use std::io::{ErrorKind, Write};

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
    // Into memory first: the generator panics when its reader is gone, as behind `| head`.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "leasehold", &mut script);
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Ending::Done),
    }
}
