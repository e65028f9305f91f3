//! `leasehold project`: lock a project folder on disk, show its holder, remove a lock that was left behind, and read and save
//! its files and their versions.

mod files;
mod versions;

use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use leasehold_core::time::whole_millis;
use leasehold_project::{
    Cancel, Cause, Clock, Event, Fault, HandoverRequest, Holder, IoKind, OnSilence, Options, Outcome, Owner,
    Project, ProjectGuard, ProjectLockError, Reason, SystemClock, label_text,
};
use serde_json::{Value, json};

use crate::out::{Out, duration};
use crate::signals::Signals;
use crate::try_key::duration_arg;
use crate::{Ending, logs, run_async};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Lock a project folder, and hold it until Ctrl-C.
    ///
    /// Exits with 75 if another program holds it, and with 76 if it was lost.
    Lock(LockArgs),
    /// Show who holds a project folder; exits with 75 if it is held.
    Status(StatusArgs),
    /// Remove a lock that was left behind.
    ///
    /// A live lock stays, unless you pass --force: then it is taken from its holder, which is notified, and
    /// released.
    Unlock(UnlockArgs),
    /// Print a file of a project; its version goes to standard error.
    Read(files::ReadArgs),
    /// Save a file of a project from standard input.
    ///
    /// Locks the folder meanwhile. Exits with 75 if another program holds it, and with 3 if the file has another version
    /// than --base: then nothing is overwritten, and the content is kept as a draft.
    Save(files::SaveArgs),
    /// List what could not be saved, by any program or tab; show or discard it.
    Drafts(files::DraftsArgs),
    /// List the versions that an autosave has kept; print one.
    History(versions::HistoryArgs),
    /// Make a version the current one.
    ///
    /// What is current now is kept as a version. Exits with 75 if another program holds the folder.
    Restore(versions::RestoreArgs),
    /// Autosave a file of another program: keep its versions in a project folder, until Ctrl-C.
    Watch(versions::WatchArgs),
}

#[derive(clap::Args)]
pub(crate) struct LockArgs {
    /// The folder.
    folder: PathBuf,
    /// Who you are, as others will see it.
    #[arg(long, env = "LEASEHOLD_OWNER")]
    owner: Option<Owner>,
    /// How long to wait while another holder has it.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "0s")]
    wait: Duration,
    /// Ask the holder to save and hand it over, with this much time to answer.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, conflicts_with = "wait")]
    ask: Option<Duration>,
    /// Why you ask, for the holder.
    #[arg(long, requires = "ask")]
    reason: Option<Reason>,
    /// Take it over if the holder was told and does not answer.
    #[arg(long, requires = "ask")]
    silence_grants: bool,
}

#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// The folder.
    folder: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct UnlockArgs {
    /// The folder.
    folder: PathBuf,
    /// Take it from its holder.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(command: &Command, out: &Out) -> Result<Ending> {
    // A renewal that fails is worth a line: the lock may be lost soon.
    logs::start("warn", None).map_err(anyhow::Error::msg)?;
    match command {
        Command::Lock(args) => run_async(lock(args, out)),
        Command::Status(args) => status(args, out),
        Command::Unlock(args) => unlock(args, out),
        Command::Read(args) => files::read(args, out),
        Command::Save(args) => files::save(args, out),
        Command::Drafts(args) => files::drafts(args, out),
        Command::History(args) => versions::history(args, out),
        Command::Restore(args) => versions::restore(args, out),
        Command::Watch(args) => run_async(versions::watch(args, out)),
    }
}

// --- lock ---

async fn lock(args: &LockArgs, out: &Out) -> Result<Ending> {
    let mut signals = Signals::listen()?;
    let project = open(&args.folder, args.owner.as_ref())?;
    let events = project.subscribe();
    let waiting = out.spinner(format!("locking {}", args.folder.display()));
    let cancel = Cancel::new();
    let mut acquiring = {
        let (project, options, cancel) = (project.clone(), patient(args.wait), cancel.clone());
        let request = request(args);
        tokio::task::spawn_blocking(move || match request {
            Some(request) => project.request_handover(options, request, &cancel),
            None => project.acquire_unless(options, &cancel),
        })
    };
    let acquired = tokio::select! {
        acquired = &mut acquiring => acquired?,
        _ = signals.next() => {
            cancel.cancel();
            // It may have come at the last moment.
            if let Ok(guard) = acquiring.await? {
                guard.release()?;
            }
            return Ok(Ending::Held);
        }
    };
    waiting.finish_and_clear();
    match acquired {
        Ok(guard) => hold(args, guard, events, signals, out).await,
        Err(error) => refused(args, &project, error, out),
    }
}

fn open(folder: &Path, owner: Option<&Owner>) -> Result<Project> {
    Ok(match owner {
        Some(owner) => Project::open_as(folder, owner.clone())?,
        None => Project::open(folder)?,
    })
}

/// What to ask the holder, if it is to be asked.
fn request(args: &LockArgs) -> Option<HandoverRequest> {
    let on_silence = if args.silence_grants { OnSilence::Grant } else { OnSilence::Refuse };
    let reason = args.reason.clone().unwrap_or_default();
    args.ask.map(|countdown| HandoverRequest { reason, countdown, on_silence })
}

/// Why it is not to be had: a look at the folder says more than an error that was passed on.
fn refused(args: &LockArgs, project: &Project, error: ProjectLockError, out: &Out) -> Result<Ending> {
    match look(project)? {
        Outcome::Held(other) if error.fault == Fault::Exhausted => Ok(tell_held(args, &other, None, out)),
        Outcome::Held(other) if error.fault == Fault::Conflict => {
            Ok(tell_held(args, &other, Some(&error), out))
        }
        _ => Err(error.into()),
    }
}

/// Tries once, or repeatedly until the wait is over.
fn patient(wait: Duration) -> Options {
    let mut options = Options::default();
    options.retry.max_attempts = wait.is_zero().then_some(1);
    options.retry.backoff.max = Duration::from_secs(1);
    options.max_wait = (!wait.is_zero()).then_some(wait);
    options
}

async fn hold(
    args: &LockArgs,
    guard: ProjectGuard,
    events: Receiver<Event>,
    mut signals: Signals,
    out: &Out,
) -> Result<Ending> {
    let (lease, folder) = (guard.lease(), args.folder.display());
    if out.is_json() {
        out.value(&about(
            args,
            "acquired",
            json!({ "owner": lease.owner.as_str(), "fence": lease.fence.get() }),
        ));
    } else {
        out.good(&format!("{folder} is yours, as {} with fence {}", lease.owner, lease.fence));
        out.hint("it renews itself; Ctrl-C lets it go");
    }
    let start = Instant::now();
    let holding = out.spinner(format!("holding {folder}"));
    let mut events = events;
    let lost = loop {
        let listening = tokio::task::spawn_blocking(move || listen(events));
        let heard = tokio::select! {
            heard = listening => heard?,
            _ = signals.next() => break None,
        };
        events = match heard {
            Heard::Lost(why) => break Some(why),
            Heard::Nothing => break None,
            Heard::Request(event, events) => {
                tell_request(args, &event, out);
                events
            }
        };
    };
    holding.finish_and_clear();
    let lost = match lost {
        None => let_go(guard)?,
        lost => lost,
    };
    if let Some(why) = lost {
        if out.is_json() {
            out.value(&about(args, "lost", json!({ "because": why })));
        } else {
            out.bad(&format!("{folder} was lost: {why}"));
        }
        return Ok(Ending::Lost);
    }
    let held_for = whole_millis(start.elapsed());
    if out.is_json() {
        out.value(&about(args, "released", json!({ "held_for_ms": held_for })));
    } else {
        out.good(&format!("{folder} released after {}", duration(held_for)));
    }
    Ok(Ending::Done)
}

/// Releases it, or says why it was lost. The loss may be newer than the last renewal.
fn let_go(guard: ProjectGuard) -> Result<Option<String>> {
    let fence = guard.lease().fence;
    let taken = match guard.project().look() {
        Ok(Outcome::Held(other)) if other.fence != fence => Some(format!("{} has it now", other.owner)),
        Ok(Outcome::Free) => Some("it was unlocked from outside".to_owned()),
        _ => None,
    };
    match (guard.release(), taken) {
        (_, Some(why)) => Ok(Some(why)),
        (Err(error), None) if matches!(error.fault, Fault::Expired | Fault::Stale) => {
            Ok(Some(error.to_string()))
        }
        (released, None) => Ok(released.map(|()| None)?),
    }
}

/// What a holder hears.
enum Heard {
    /// The project was lost.
    Lost(String),
    /// Another program asks for it, or does not any more; and where the next events come from.
    Request(Event, Receiver<Event>),
    /// There will be no more events.
    Nothing,
}

fn listen(events: Receiver<Event>) -> Heard {
    let heard = events.iter().find(|event| {
        matches!(
            event,
            Event::ReadonlyEntered { .. } | Event::HandoverRequested(_) | Event::HandoverWithdrawn(_)
        )
    });
    match heard {
        Some(Event::ReadonlyEntered { last_error, .. }) => Heard::Lost(last_error.to_string()),
        Some(request) => Heard::Request(request, events),
        None => Heard::Nothing,
    }
}

fn tell_request(args: &LockArgs, event: &Event, out: &Out) {
    let (name, ask) = match event {
        Event::HandoverRequested(ask) => ("asked", ask),
        Event::HandoverWithdrawn(ask) => ("withdrawn", ask),
        _ => return,
    };
    let (countdown, grants) = (whole_millis(ask.countdown), ask.on_silence == OnSilence::Grant);
    let who = label_text(&ask.label).unwrap_or(ask.asker.as_str());
    if out.is_json() {
        let fields = json!({
            "by": ask.asker.as_str(), "label": label_text(&ask.label), "reason": ask.why.as_str(),
            "countdown_ms": countdown, "silence_grants": grants,
        });
        out.value(&about(args, name, fields));
    } else if name == "withdrawn" {
        out.notice(&format!("{who} does not want it any more"));
    } else {
        let why = if ask.why.as_str().is_empty() { String::new() } else { format!(" ({})", ask.why) };
        out.notice(&format!("{who} asks for it{why}, and waits {}", duration(countdown)));
        let silence = if grants { "; after that it is taken over" } else { "" };
        out.hint(&format!("Ctrl-C hands it over{silence}"));
    }
}

fn tell_held(args: &LockArgs, other: &Holder, why: Option<&ProjectLockError>, out: &Out) -> Ending {
    let why = why.and_then(|error| match &error.cause {
        Some(Cause::Said(said)) => Some(&**said),
        _ => None,
    });
    if out.is_json() {
        let mut fields = held(other);
        if let (Some(fields), Some(why)) = (fields.as_object_mut(), why) {
            fields.insert("because".into(), why.into());
        }
        out.value(&about(args, "held", fields));
    } else {
        if let Some(why) = why {
            out.notice(&format!("not handed over: {why}"));
        }
        out.notice(&format!("{} is held by {} (fence {})", args.folder.display(), other.owner, other.fence));
        out.hint(&format!("unless it is renewed, it runs out in {}", duration(left(other))));
    }
    Ending::Held
}

fn about(args: &LockArgs, event: &str, fields: Value) -> Value {
    let mut object = json!({ "event": event, "folder": args.folder.display().to_string() });
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
    object
}

// --- status and unlock ---

fn status(args: &StatusArgs, out: &Out) -> Result<Ending> {
    let (folder, looked) = (args.folder.display(), look(&Project::open(&args.folder)?)?);
    match looked {
        Outcome::Held(other) => {
            if out.is_json() {
                out.value(&json!({ "locked": true, "holder": held(&other) }));
            } else {
                out.notice(&format!("{folder} is held by {}", other.owner));
                if let Some(label) = label_text(&other.label) {
                    out.fact("label", label);
                }
                out.fact("fence", &other.fence.to_string());
                out.fact("since", &format!("{} ago", duration(held_for(&other))));
                out.fact("runs out in", &format!("{}, unless it is renewed", duration(left(&other))));
            }
            Ok(Ending::Held)
        }
        _ => {
            if out.is_json() {
                out.value(&json!({ "locked": false }));
            } else {
                out.good(&format!("{folder} is free"));
            }
            Ok(Ending::Done)
        }
    }
}

fn unlock(args: &UnlockArgs, out: &Out) -> Result<Ending> {
    let (folder, project) = (args.folder.display(), Project::open(&args.folder)?);
    let guard = match look(&project)? {
        Outcome::Held(other) if !args.force => {
            if out.is_json() {
                out.value(&json!({ "unlocked": false, "holder": held(&other) }));
            } else {
                out.notice(&format!("{folder} is held by {}, and stays so", other.owner));
                out.hint("close it there; --force takes it away from them");
            }
            return Ok(Ending::Held);
        }
        Outcome::Held(other) => {
            let reason = Reason::parse("leasehold project unlock --force")?;
            let options = Options { accept_clock_skew: true, ..patient(Duration::ZERO) };
            project.take_over(options, Some(other.fence), reason)?
        }
        // Whatever was left behind goes with this one.
        _ => project.acquire(patient(Duration::ZERO))?,
    };
    guard.release()?;
    if out.is_json() {
        out.value(&json!({ "unlocked": true }));
    } else {
        out.good(&format!("{folder} is free"));
    }
    Ok(Ending::Done)
}

fn look(project: &Project) -> Result<Outcome> {
    match project.look() {
        Ok(Outcome::Newer { version }) => {
            bail!("its .lock has version {version}, which this program does not know; upgrade Leasehold")
        }
        Ok(Outcome::Unreadable { said }) => {
            bail!(
                "its .lock cannot be read: {said}; it is replaced once it is 30 s old, or look at it yourself"
            )
        }
        Ok(Outcome::FencesExhausted) => {
            bail!(
                "its .lock or .lock.guard holds the largest possible fence, which is never granted: something has \
                 damaged them. Close every program that has the folder open and delete both files; fences then go on from \
                 the wall clock"
            )
        }
        Ok(outcome) => Ok(outcome),
        Err(error) if error.kind == IoKind::GuardBusy => bail!("unavailable(guard-busy): {}", error.said),
        Err(error) => bail!("the folder cannot be looked at: {}", error.said),
    }
}

fn held(other: &Holder) -> Value {
    json!({
        "owner": other.owner.as_str(),
        "label": label_text(&other.label),
        "fence": other.fence.get(),
        "held_for_ms": held_for(other),
        "expires_in_ms": left(other),
    })
}

fn held_for(other: &Holder) -> u64 {
    whole_millis(SystemClock.now().wall.since(other.since))
}

fn left(other: &Holder) -> u64 {
    whole_millis(other.until.since(SystemClock.now().wall))
}
