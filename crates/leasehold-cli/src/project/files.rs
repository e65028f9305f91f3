//! `leasehold project read`, `save` and `drafts`: files of a project from a script. A save names the version that it was
//! made from, so that a script never overwrites work that it has not read.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold_core::time::whole_millis;
use leasehold_project::{
    Base, Clock, Draft, Fault, Outcome, Owner, Project, ProjectFile, ProjectLockError, SaveError,
    SystemClock, Version,
};
use serde_json::{Value, json};

use super::{held, left, look, open, patient};
use crate::Ending;
use crate::out::{Out, bytes, duration};
use crate::try_key::duration_arg;

#[derive(clap::Args)]
pub(crate) struct ReadArgs {
    /// The folder.
    folder: PathBuf,
    /// The file in it, such as pages/1.json.
    file: String,
}

#[derive(clap::Args)]
pub(crate) struct SaveArgs {
    /// The folder.
    folder: PathBuf,
    /// The file in it, such as pages/1.json.
    file: String,
    /// The version that the new content was made from, as `read` printed it. Without it the file must not exist.
    #[arg(long, value_name = "VERSION", conflicts_with = "overwrite")]
    base: Option<String>,
    /// Replace whatever is there.
    #[arg(long)]
    overwrite: bool,
    /// Who you are, as others will see it.
    #[arg(long, env = "LEASEHOLD_OWNER")]
    owner: Option<Owner>,
    /// How long to wait while another holder has the folder.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "0s")]
    wait: Duration,
}

#[derive(clap::Args)]
pub(crate) struct DraftsArgs {
    /// The folder.
    folder: PathBuf,
    /// Print the content of this draft.
    #[arg(long, value_name = "ID", conflicts_with = "discard")]
    show: Option<String>,
    /// Remove this draft.
    #[arg(long, value_name = "ID")]
    discard: Option<String>,
}

pub(super) fn read(args: &ReadArgs, out: &Out) -> Result<Ending> {
    let found = Project::open(&args.folder)?.read(&args.file).with_context(|| args.file.clone())?;
    let Some(ProjectFile { version, content }) = found else {
        bail!("{} has no file {}; save makes it", args.folder.display(), args.file)
    };
    if out.is_json() {
        out.value(&json!({ "version": version.as_str(), "content": text(&content)? }));
    } else {
        // The content alone, byte by byte; the version beside it.
        io::stdout().write_all(&content)?;
        out.warn(&format!("version {}", version.as_str()));
    }
    Ok(Ending::Done)
}

pub(super) fn save(args: &SaveArgs, out: &Out) -> Result<Ending> {
    let mut content = Vec::new();
    io::stdin().read_to_end(&mut content).context("the new content could not be read from standard input")?;
    let project = open(&args.folder, args.owner.as_ref())?;
    let guard = match project.acquire(patient(args.wait)) {
        Ok(guard) => guard,
        Err(error) => return not_saved(&project, error, out),
    };
    let saved = guard.save_from(&args.file, &content, base(args));
    // A release that fails is repeated in the background, and ends with this program.
    let _ = guard.release();
    match saved {
        Ok(version) if out.is_json() => out.value(&json!({ "saved": true, "version": version.as_str() })),
        Ok(version) => {
            out.good(&format!("{} saved", args.file));
            out.fact("version", version.as_str());
        }
        Err(SaveError::StaleBase { .. }) => return Ok(stale(args, out)),
        Err(error) => return Err(error.into()),
    }
    Ok(Ending::Done)
}

/// Why the folder is not to be had: who has it.
pub(super) fn not_saved(project: &Project, error: ProjectLockError, out: &Out) -> Result<Ending> {
    match look(project)? {
        Outcome::Held(other) if error.fault == Fault::Exhausted => {
            if out.is_json() {
                out.value(&json!({ "saved": false, "reason": "held", "holder": held(&other) }));
            } else {
                out.notice(&format!("not saved: {} holds the folder", other.owner));
                out.hint(&format!("unless it is renewed, it runs out in {}", duration(left(&other))));
            }
            Ok(Ending::Held)
        }
        _ => Err(error.into()),
    }
}

fn base(args: &SaveArgs) -> Base {
    match &args.base {
        _ if args.overwrite => Base::Overwrite,
        Some(version) => Base::Exactly(Version::new(version)),
        None => Base::Exactly(Version::NO_FILE),
    }
}

fn stale(args: &SaveArgs, out: &Out) -> Ending {
    if out.is_json() {
        out.value(&json!({ "saved": false, "reason": "stale-base" }));
    } else {
        out.bad(&format!(
            "not saved: {} has another version than the one that this was made from",
            args.file
        ));
        out.hint(
            "what you sent is kept as a draft: `leasehold project drafts` lists it; read the file again",
        );
    }
    Ending::NotCurrent
}

pub(super) fn drafts(args: &DraftsArgs, out: &Out) -> Result<Ending> {
    let project = Project::open(&args.folder)?;
    if let Some(id) = &args.discard {
        project.discard_draft(id).with_context(|| format!("draft {id}"))?;
        out.good(&format!("draft {id} is gone"));
        return Ok(Ending::Done);
    }
    let drafts = project.drafts().context("the drafts cannot be read")?;
    match &args.show {
        Some(id) => {
            let draft = drafts.iter().find(|draft| draft.id == *id);
            let Some(draft) = draft else { bail!("there is no draft {id}; list them without --show") };
            io::stdout().write_all(&draft.content)?;
        }
        None if out.is_json() => out.value(&Value::Array(drafts.iter().map(about).collect())),
        None if drafts.is_empty() => out.good("there are no drafts"),
        None => out.table(&["draft", "file", "size", "kept"], drafts.iter().map(row).collect()),
    }
    Ok(Ending::Done)
}

fn about(draft: &Draft) -> Value {
    json!({
        "id": draft.id, "file": draft.path, "bytes": draft.content.len(), "base": draft.base.as_str(), "kept_for_ms": age(draft),
    })
}

fn row(draft: &Draft) -> Vec<String> {
    let size = bytes(u64::try_from(draft.content.len()).unwrap_or(u64::MAX));
    vec![draft.id.clone(), draft.path.clone(), size, format!("{} ago", duration(age(draft)))]
}

fn age(draft: &Draft) -> u64 {
    whole_millis(SystemClock.now().wall.since(draft.at))
}

fn text(content: &[u8]) -> Result<&str> {
    std::str::from_utf8(content).context("it is not text, which --json cannot show; leave --json out")
}
