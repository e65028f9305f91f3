//! `leasehold flags`: in which phase of a roll-out pages are, and the way to the next phase or back. The rules are in
//! `leasehold_core::flags`, the file in `leasehold_server::flags`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use leasehold_core::flags::{Author, Change, Flags, Moved, Phase, PhaseName, Source, resolve};
use leasehold_core::{Invalid, Owner, Reason};
use leasehold_server::ConfigError;
use leasehold_server::flags::{read, shown_time, trail_of, update};
use leasehold_store::clock::unix_millis;
use serde_json::{Value, json};

use crate::Ending;
use crate::out::Out;
use crate::serve::WrongUsage;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Make a flag file, in its first phase.
    Init(InitArgs),
    /// Show the current phase, all phases and the last changes.
    Show(ShowArgs),
    /// Go on to the next phase, or to a later one.
    Advance(MoveArgs),
    /// Go back to the phase before, or to an earlier one.
    ///
    /// To roll back to the phase that is current already changes nothing, and succeeds.
    Rollback(MoveArgs),
}

#[derive(clap::Args)]
struct Place {
    /// The flag file.
    #[arg(
        long = "flags-file",
        value_name = "FILE",
        env = "LEASEHOLD_FLAGS_FILE",
        default_value = "flags.json"
    )]
    file: PathBuf,
}

#[derive(clap::Args)]
struct Who {
    /// Who makes the change.
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_OWNER")]
    by: Option<Owner>,
    /// Why.
    #[arg(long)]
    reason: Option<Reason>,
}

#[derive(clap::Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    who: Who,
    /// The phases in the order of the roll-out, separated by commas. In one that ends with `:off`, pages do not autosave.
    #[arg(long, value_delimiter = ',', default_value = "off:off,beta,all", value_parser = parse_phase)]
    phases: Vec<Phase>,
    /// Above which share of read-only sessions, in percent, a phase is rolled back.
    #[arg(long, value_name = "PERCENT", default_value_t = Phase::THRESHOLD_PERCENT)]
    threshold: f64,
    /// With fewer sessions than this, nothing is concluded.
    #[arg(long, value_name = "N", default_value_t = Phase::MINIMUM_SESSIONS)]
    minimum_sessions: u64,
}

#[derive(clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    place: Place,
    /// The phase that counts for this process, whatever the file says.
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_PHASE")]
    phase: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    who: Who,
    /// Which phase; the neighbour without it. `prev` is the phase before the current one.
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,
}

pub(crate) fn run(command: &Command, out: &Out) -> Result<Ending> {
    match command {
        Command::Init(args) => init(args, out),
        Command::Show(args) => show(args, out),
        Command::Advance(args) => {
            change(&args.place.file, args.phase.as_deref(), Direction::On, &args.who.author()?, out)
        }
        Command::Rollback(args) => {
            change(&args.place.file, args.phase.as_deref(), Direction::Back, &args.who.author()?, out)
        }
    }
}

impl Who {
    fn author(&self) -> Result<Author> {
        let by = match &self.by {
            Some(by) => by.clone(),
            None => Owner::parse(&std::env::var("USER").unwrap_or_else(|_| "unknown".into()))?,
        };
        Ok(Author { by, reason: self.reason.clone().unwrap_or_default(), at: unix_millis() })
    }
}

fn parse_phase(text: &str) -> Result<Phase, Invalid> {
    match text.split_once(':') {
        Some((name, "off")) => Ok(Phase::new(PhaseName::parse(name)?, false)),
        Some((name, "on")) => Ok(Phase::new(PhaseName::parse(name)?, true)),
        Some(_) => {
            Err(Invalid::new("phase", text, "after the colon there is on or off", "write it like off:off"))
        }
        None => Ok(Phase::new(PhaseName::parse(text)?, true)),
    }
}

fn init(args: &InitArgs, out: &Out) -> Result<Ending> {
    let (threshold_percent, minimum_sessions) = (args.threshold, args.minimum_sessions);
    let phases = args.phases.iter().cloned();
    let phases = phases.map(|phase| Phase { threshold_percent, minimum_sessions, ..phase }).collect();
    let flags = Flags::start(phases, args.who.author()?).map_err(|error| WrongUsage(error.to_string()))?;
    let path = &args.place.file;
    update(path, |present| match present {
        Some(_) => Err(Failed::Exists(path.clone())),
        None => Ok(Some(flags.clone())),
    })?;
    match out.is_json() {
        true => out.value(&flags_json(&flags)),
        false => {
            out.good(&format!("{} made; the phase is {}", path.display(), flags.current().name));
            table(&flags, out);
            out.hint("`leasehold flags advance` goes on to the next phase");
        }
    }
    Ok(Ending::Done)
}

fn show(args: &ShowArgs, out: &Out) -> Result<Ending> {
    let path = &args.place.file;
    let named = args.phase.as_deref().map(PhaseName::parse).transpose();
    let named = named.map_err(|error| WrongUsage(error.to_string()))?;
    let flags = open(path)?;
    let (phase, source) =
        resolve(named.as_ref(), Some(&flags)).map_err(|error| WrongUsage(error.to_string()))?;
    if out.is_json() {
        let resolved =
            json!({ "phase": phase.name.as_str(), "autosave": phase.autosave, "source": source.as_str() });
        let mut shown = flags_json(&flags);
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("resolved".into(), resolved);
        }
        out.value(&shown);
        return Ok(Ending::Done);
    }
    let autosave = if phase.autosave { "pages autosave" } else { "pages do not autosave" };
    out.good(&format!("phase {}: {autosave}", phase.name));
    if source == Source::Named {
        out.hint(&format!("named for this process; the file says {}", flags.current().name));
    }
    table(&flags, out);
    let rows: Vec<Vec<String>> = flags.history().iter().rev().take(SHOWN).map(row).collect();
    if !rows.is_empty() {
        out.table(&["AT", "CHANGE", "FROM", "TO", "BY", "REASON"], rows);
        out.hint(&format!("all changes are in {}", trail_of(path).display()));
    }
    Ok(Ending::Done)
}

/// How many changes are shown to people.
const SHOWN: usize = 10;

fn table(flags: &Flags, out: &Out) {
    let current = &flags.current().name;
    let rows = flags.phases().iter().map(|phase| {
        vec![
            if phase.name == *current { "→".to_owned() } else { String::new() },
            phase.name.to_string(),
            if phase.autosave { "on" } else { "off" }.to_owned(),
            format!("{} %", phase.threshold_percent),
            phase.minimum_sessions.to_string(),
        ]
    });
    out.table(&["", "PHASE", "AUTOSAVE", "THRESHOLD", "MINIMUM SESSIONS"], rows.collect());
}

fn row(change: &Change) -> Vec<String> {
    vec![
        shown_time(change.at),
        change.step.as_str().replace('_', " "),
        change.from.as_ref().map(ToString::to_string).unwrap_or_default(),
        change.to.to_string(),
        change.by.to_string(),
        change.reason.as_str().to_owned(),
    ]
}

/// Which way a change goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    On,
    Back,
}

/// What a change came to.
pub(crate) enum Made {
    Changed(Change),
    AlreadyThere(PhaseName),
}

/// Why a change was not made.
#[derive(Debug)]
enum Failed {
    /// The file, or its content.
    File(ConfigError),
    /// The change itself.
    Refused(Invalid),
    Missing(PathBuf),
    Exists(PathBuf),
}

impl From<ConfigError> for Failed {
    fn from(error: ConfigError) -> Self {
        Self::File(error)
    }
}

impl std::error::Error for Failed {}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(error) => write!(f, "{error}"),
            Self::Refused(error) => write!(f, "{error}"),
            Self::Missing(path) => write!(
                f,
                "{}: there is no flag file; make one with `leasehold flags init`, or name yours with --flags-file",
                path.display()
            ),
            Self::Exists(path) => write!(
                f,
                "{}: there is a flag file already; show it with `leasehold flags show`, or name another with --flags-file",
                path.display()
            ),
        }
    }
}

/// The flags in a file that has to be there.
pub(crate) fn open(path: &Path) -> Result<Flags> {
    if !path.exists() {
        return Err(Failed::Missing(path.to_owned()).into());
    }
    Ok(read(path)?)
}

/// Changes the phase in the file.
pub(crate) fn make(path: &Path, to: Option<&str>, direction: Direction, author: &Author) -> Result<Made> {
    let mut made = None;
    update::<Failed>(path, |present| {
        let flags = present.ok_or_else(|| Failed::Missing(path.to_owned()))?;
        let target = target(&flags, to).map_err(Failed::Refused)?;
        let moved = match direction {
            Direction::On => flags.advance(target.as_ref(), author.clone()),
            Direction::Back => flags.roll_back(target.as_ref(), author.clone()),
        };
        match moved.map_err(Failed::Refused)? {
            Moved::To(new) => {
                made = new.history().last().cloned().map(Made::Changed);
                Ok(Some(new))
            }
            Moved::AlreadyThere => {
                made = Some(Made::AlreadyThere(flags.current().name.clone()));
                Ok(None)
            }
        }
    })?;
    made.ok_or_else(|| anyhow::anyhow!("{}: the change left no entry in the history", path.display()))
}

/// The phase that was named. `prev` is the one before the current one, also in capitals, as manuals write it.
fn target(flags: &Flags, to: Option<&str>) -> Result<Option<PhaseName>, Invalid> {
    match to {
        Some(word) if word.eq_ignore_ascii_case(PhaseName::PREVIOUS) => {
            let previous = flags.previous().map(|phase| phase.name.clone());
            let rule = "this is the first phase, and there is none before it";
            previous.map(Some).ok_or_else(|| {
                Invalid::new("phase", flags.current().name.as_str(), rule, "name a phase, or change the file")
            })
        }
        Some(name) => PhaseName::parse(name).map(Some),
        None => Ok(None),
    }
}

fn change(path: &Path, to: Option<&str>, direction: Direction, author: &Author, out: &Out) -> Result<Ending> {
    let made = make(path, to, direction, author)?;
    if out.is_json() {
        out.value(&made_json(&made));
        return Ok(Ending::Done);
    }
    match made {
        Made::Changed(change) => {
            let from = change.from.as_ref().map(ToString::to_string).unwrap_or_default();
            let how = if direction == Direction::On { "advanced" } else { "rolled back" };
            out.good(&format!("{how} from {from} to {}", change.to));
            out.hint("servers and pages follow it by themselves: servers within a second, pages at their next look");
        }
        Made::AlreadyThere(phase) => {
            out.notice(&format!("the phase is {phase} already; nothing was changed"));
        }
    }
    Ok(Ending::Done)
}

fn made_json(made: &Made) -> Value {
    match made {
        Made::Changed(change) => json!({ "changed": true, "change": change_json(change) }),
        Made::AlreadyThere(phase) => json!({ "changed": false, "phase": phase.as_str() }),
    }
}

fn change_json(change: &Change) -> Value {
    serde_json::from_str(&leasehold_server::flags::change_line(change)).unwrap_or_default()
}

fn flags_json(flags: &Flags) -> Value {
    let phases = flags.phases().iter().map(|phase| {
        json!({
            "name": phase.name.as_str(),
            "autosave": phase.autosave,
            "threshold_percent": phase.threshold_percent,
            "minimum_sessions": phase.minimum_sessions,
        })
    });
    json!({
        "phase": flags.current().name.as_str(),
        "phases": phases.collect::<Vec<_>>(),
        "history": flags.history().iter().map(change_json).collect::<Vec<_>>(),
    })
}
