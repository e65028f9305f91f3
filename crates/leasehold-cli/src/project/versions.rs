//! `leasehold project history`, `restore` and `watch`: the versions that an autosave has kept, and an autosave for the file of a
//! program that has none.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use leasehold_core::time::whole_millis;
use leasehold_project::autosave::{
    self, AutoSave, Document, Generation, Notice, Options, Retention, Stamp, State,
};
use leasehold_project::{Clock, Fault, Owner, Project, StoreTime, SystemClock};
use serde_json::{Value, json};

use super::{open, patient};
use crate::Ending;
use crate::out::{Out, bytes, duration};
use crate::signals::Signals;
use crate::try_key::duration_arg;

/// What `restore` and `watch` save, below the project's folder.
const CURRENT: &str = "autosave/current.json";

#[derive(clap::Args)]
pub(crate) struct HistoryArgs {
    /// The folder.
    folder: PathBuf,
    /// Print the version with this time.
    #[arg(long, value_name = "TIME", value_parser = stamp_arg)]
    show: Option<Stamp>,
}

#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// The folder.
    folder: PathBuf,
    /// The time of the version, as `history` prints it.
    #[arg(value_parser = stamp_arg)]
    time: Stamp,
    /// Who you are, as others will see it.
    #[arg(long, env = "LEASEHOLD_OWNER")]
    owner: Option<Owner>,
    /// How long to wait while another holder has the folder.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "0s")]
    wait: Duration,
}

#[derive(clap::Args)]
pub(crate) struct WatchArgs {
    /// The folder.
    folder: PathBuf,
    /// The file whose versions are kept.
    file: PathBuf,
    /// Who you are, as others will see it.
    #[arg(long, env = "LEASEHOLD_OWNER")]
    owner: Option<Owner>,
    /// How many versions are kept.
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    max_generations: u32,
    /// Thin them out by age: the last five, then one a minute, one in ten minutes, one an hour.
    #[arg(long)]
    thin_by_age: bool,
}

fn stamp_arg(text: &str) -> Result<Stamp, String> {
    Stamp::parse(text).ok_or_else(|| "write it as `history` prints it: 2026-11-16T10:27:45.123Z".into())
}

// --- history ---

pub(super) fn history(args: &HistoryArgs, out: &Out) -> Result<Ending> {
    let project = Project::open(&args.folder)?;
    if let Some(stamp) = args.show {
        let content = autosave::read(&project, stamp)?;
        let Some(content) = content else {
            bail!("there is no version of {}; list them without --show", stamp.text())
        };
        io::stdout().write_all(&content)?;
        return Ok(Ending::Done);
    }
    let generations = autosave::history(&project).context("the versions cannot be read")?;
    if out.is_json() {
        let about =
            |generation: &Generation| json!({ "ts": generation.stamp.text(), "bytes": generation.bytes });
        out.value(&Value::Array(generations.iter().map(about).collect()));
    } else if generations.is_empty() {
        out.good("there are no versions yet");
    } else {
        let newest = generations.first().map_or(0, |newest| newest.bytes);
        out.table(
            &["version", "size", "to the newest", "saved"],
            generations.iter().map(|one| row(one, newest)).collect(),
        );
    }
    Ok(Ending::Done)
}

fn row(generation: &Generation, newest: u64) -> Vec<String> {
    let sign = if generation.bytes < newest { "-" } else { "+" };
    let difference = format!("{sign}{}", bytes(generation.bytes.abs_diff(newest)));
    let age = SystemClock.now().wall.since(StoreTime::from_millis(generation.stamp.as_millis()));
    vec![
        generation.stamp.text(),
        bytes(generation.bytes),
        difference,
        format!("{} ago", duration(whole_millis(age))),
    ]
}

// --- restore ---

pub(super) fn restore(args: &RestoreArgs, out: &Out) -> Result<Ending> {
    let project = open(&args.folder, args.owner.as_ref())?;
    if autosave::read(&project, args.time)?.is_none() {
        bail!("there is no version of {}; `leasehold project history` lists them", args.time.text());
    }
    // To find out who has it, before anything is begun.
    match project.acquire(patient(args.wait)) {
        Ok(guard) => guard.release()?,
        Err(error) if error.fault == Fault::Exhausted => {
            return super::files::not_saved(&project, error, out);
        }
        Err(error) => return Err(error.into()),
    }
    let current = project.read(CURRENT)?.map(|file| file.content).unwrap_or_default();
    let memory = Arc::new(Mutex::new(current));
    let (taken, applied) = (memory.clone(), memory);
    let document = Document::new(move || Ok(taken.lock().unwrap_or_else(PoisonError::into_inner).clone()))
        .applied_by(move |content| {
            *applied.lock().unwrap_or_else(PoisonError::into_inner) = content.to_vec();
        });
    let autosave = AutoSave::start(project, Options::default(), document)?;
    // A change that is none: it is answered once the project is ours.
    autosave.changed();
    let restored = autosave.flush() && autosave.restore(args.time);
    let saved = autosave.stop();
    if !restored || !saved {
        bail!("{} was not restored; another program may have taken the folder: try again", args.time.text());
    }
    if out.is_json() {
        out.value(&json!({ "restored": true, "ts": args.time.text() }));
    } else {
        out.good(&format!("{} is {CURRENT} again", args.time.text()));
        out.hint("what was there before is the version below it in `leasehold project history`");
    }
    Ok(Ending::Done)
}

// --- watch ---

pub(super) async fn watch(args: &WatchArgs, out: &Out) -> Result<Ending> {
    let mut signals = Signals::listen()?;
    let project = open(&args.folder, args.owner.as_ref())?;
    let retention = Retention {
        max_generations: args.max_generations as usize,
        thins: args.thin_by_age,
        ..Retention::default()
    };
    // Read once, so that what is missing is said before anything is locked.
    std::fs::read(&args.file).with_context(|| format!("{} cannot be read", args.file.display()))?;
    let autosave =
        AutoSave::start(project, Options { retention, ..Options::default() }, document(&args.file))?;
    // What is there now is the first version, at once.
    autosave.changed();
    autosave.retry();
    let notices = autosave.subscribe();
    let mut last = None;
    loop {
        tell(&notices, out);
        let state = autosave.shown().state;
        if last.as_ref() != Some(&state) {
            show(&state, args, out);
            last = Some(state);
        }
        tokio::select! {
            _ = signals.next() => break,
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
    }
    let saved = tokio::task::spawn_blocking(move || autosave.stop()).await?;
    if saved {
        return Ok(Ending::Done);
    }
    bail!("the last change is not saved: `leasehold project drafts` has it")
}

/// The file of another program. What is newer in the project is never written to it: that would be behind the program's back.
fn document(file: &Path) -> Document {
    let (taken, looked) = (file.to_owned(), file.to_owned());
    let mut last = seen(file);
    let take = move || std::fs::read(&taken).map_err(|error| format!("{}: {error}", taken.display()));
    Document::new(take).watched_by(move || {
        let now = seen(&looked);
        std::mem::replace(&mut last, now) != now
    })
}

fn seen(file: &Path) -> Option<(SystemTime, u64)> {
    let about = std::fs::metadata(file).ok()?;
    Some((about.modified().ok()?, about.len()))
}

fn tell(notices: &Receiver<Notice>, out: &Out) {
    for notice in notices.try_iter() {
        match notice {
            Notice::RetriesFailed { said } => out.warn(&format!("not saved: {said}; it is tried again")),
            Notice::HistoryDropped { generations } => {
                out.warn(&format!("{generations} old versions were removed, because the disk is full"));
            }
            Notice::HistoryFailed { said } => out.warn(&format!("saved, but not kept as a version: {said}")),
            _ => {}
        }
    }
}

fn show(state: &State, args: &WatchArgs, out: &Out) {
    if out.is_json() {
        return out.value(&json!({ "state": word(state) }));
    }
    match state {
        State::Saved => out.good(&format!("{} is saved", args.file.display())),
        State::ReadOnly => out.notice("another program has the folder: waiting"),
        State::Unavailable => out.bad("the folder cannot be locked"),
        State::Error { said, .. } => out.bad(&format!("not saved: {said}")),
        _ => {}
    }
}

fn word(state: &State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::ReadOnly => "readonly",
        State::Unavailable => "unavailable",
        State::Dirty => "dirty",
        State::Saving => "saving",
        State::Saved => "saved",
        State::Retrying { .. } => "retrying",
        State::Error { .. } => "error",
        State::Releasing => "releasing",
        State::Stopped => "stopped",
    }
}
