//! `leasehold man`: the manual pages of this command and of all its commands.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::Ending;
use crate::out::Out;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder for the pages, such as `/usr/local/share/man/man1`; it is made if it is not there.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    let written = std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(crate::command(), &args.folder));
    written.with_context(|| format!("cannot write manual pages into {}", args.folder.display()))?;
    if out.is_json() {
        out.value(&serde_json::json!({ "folder": args.folder.display().to_string() }));
    } else {
        out.good(&format!("the manual pages are in {}", args.folder.display()));
    }
    Ok(Ending::Done)
}
