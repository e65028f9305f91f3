//! `leasehold store …`: looking after a file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use leasehold_store::embedded::{self, Checked, Repaired};
use leasehold_store::{Kind, StoreUrl};
use serde_json::json;

use crate::Ending;
use crate::out::{Out, bytes};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Look at every page and every row of a file, also beside a server that uses it.
    Check {
        /// The file.
        #[arg(env = "LEASEHOLD_STORE", default_value = "leases.db")]
        file: String,
    },
    /// Keep what is readable of a damaged file. The old one is kept under another name.
    Repair {
        /// The file.
        file: PathBuf,
        /// Begin with an empty store if nothing is readable.
        #[arg(long)]
        start_empty: bool,
    },
    /// Copy a file as it is at this moment, also beside a server that uses it.
    Backup {
        /// The file.
        file: PathBuf,
        /// The copy; nothing may be there yet.
        to: PathBuf,
    },
    /// Put a backup in the place of a file. The old one is kept under another name.
    Restore {
        /// The backup.
        backup: PathBuf,
        /// The file.
        file: PathBuf,
    },
}

/// The file that a store's URL names: `leases.db` and `embedded:leases.db` alike. A URL of another store is not repeated,
/// because it may hold a password.
pub(crate) fn file_of(url: &str) -> Result<PathBuf> {
    let url = StoreUrl::parse(url)?;
    match url.kind() {
        Kind::Embedded => Ok(url.file().unwrap_or(Path::new("")).to_owned()),
        Kind::Memory => anyhow::bail!("memory: is not a file; name one, such as leases.db"),
        Kind::Firestore => {
            anyhow::bail!("this names documents in Firestore, not a file; show one with `leasehold job show`")
        }
        Kind::Postgres => {
            anyhow::bail!(
                "this names a PostgreSQL database, not a file; list its leases through its server (--url)"
            )
        }
    }
}

pub(crate) fn run(command: &Command, out: &Out) -> Result<Ending> {
    match command {
        Command::Check { file } => check(&file_of(file)?, out),
        Command::Repair { file, start_empty } => {
            let working = out.spinner(format!("reading {}", file.display()));
            let repaired = embedded::repair(file, *start_empty)?;
            working.finish_and_clear();
            replaced(file, "repaired", &repaired, out);
            Ok(Ending::Done)
        }
        Command::Backup { file, to } => backup(file, to, out),
        Command::Restore { backup, file } => {
            let working = out.spinner(format!("restoring {}", backup.display()));
            let repaired = embedded::restore(backup, file)?;
            working.finish_and_clear();
            replaced(file, "restored", &repaired, out);
            Ok(Ending::Done)
        }
    }
}

fn check(file: &PathBuf, out: &Out) -> Result<Ending> {
    let working = out.spinner(format!("checking {}", file.display()));
    let checked = embedded::check(file)?;
    working.finish_and_clear();
    if out.is_json() {
        out.value(&checked_json(&checked));
    } else {
        out.table(
            &["FILE", "SCHEMA", "LEASES", "KEYS", "EVENTS", "LAST FENCE", "SIZE"],
            vec![checked_row(file, &checked)],
        );
        checked.problems.iter().for_each(|problem| out.bad(problem));
        match checked.problems.is_empty() {
            true => out.good("no problems found"),
            false => out.hint(&format!(
                "ways out: `leasehold store restore BACKUP {0}`, or `leasehold store repair {0}`",
                file.display()
            )),
        }
    }
    Ok(if checked.problems.is_empty() { Ending::Done } else { Ending::ProblemsFound })
}

fn checked_row(file: &Path, checked: &Checked) -> Vec<String> {
    vec![
        file.display().to_string(),
        checked.schema.to_string(),
        checked.leases.to_string(),
        checked.keys.to_string(),
        checked.events.to_string(),
        checked.last_fence.to_string(),
        bytes(checked.bytes),
    ]
}

fn checked_json(checked: &Checked) -> serde_json::Value {
    json!({
        "schema": checked.schema,
        "leases": checked.leases,
        "keys": checked.keys,
        "events": checked.events,
        "last_fence": checked.last_fence,
        "bytes": checked.bytes,
        "problems": checked.problems,
    })
}

fn backup(file: &PathBuf, to: &PathBuf, out: &Out) -> Result<Ending> {
    let working = out.spinner(format!("backing up {}", file.display()));
    let checked = embedded::backup(file, to)?.checked;
    working.finish_and_clear();
    if out.is_json() {
        out.value(&checked_json(&checked));
    } else {
        let held = format!("{} leases, {}", checked.leases, bytes(checked.bytes));
        out.good(&format!(
            "{} backed up to {}: {held}, read again and found whole",
            file.display(),
            to.display()
        ));
        out.hint("it holds lease ids, which are secrets: keep it as safe as the file itself");
    }
    Ok(Ending::Done)
}

fn replaced(file: &Path, done: &str, repaired: &Repaired, out: &Out) {
    if out.is_json() {
        out.value(&json!({
            "leases": repaired.leases,
            "lost": repaired.lost,
            "last_fence": repaired.last_fence,
            "kept_as": repaired.kept_as.as_ref().map(|path| path.display().to_string()),
        }));
        return;
    }
    out.good(&format!("{} {done}, with {} leases", file.display(), repaired.leases));
    repaired.lost.iter().for_each(|lost| out.bad(&format!("could not be kept: {lost}")));
    if let Some(kept_as) = &repaired.kept_as {
        out.hint(&format!("the old file is kept as {}", kept_as.display()));
    }
    out.hint(&format!("every fence from now on is larger than {}", repaired.last_fence));
    out.notice(
        "holders of leases that are missing in it may not know yet: wait one TTL before serving again",
    );
}
