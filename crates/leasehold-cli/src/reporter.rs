//! `leasehold reporter`: looks at the telemetry of the current phase, and rolls it back when too many sessions are read-only. When
//! that is so, `leasehold_core::reporter` decides; here it is only looked, done, written down and told.
//!
//! Without `--apply` nothing is changed and nobody is told: it says what it would do.

mod incident;
mod messages;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_core::flags::{Author, Flags, Phase, PhaseName};
use leasehold_core::reporter::{Decision, Memory, Observed, Patience, look};
use leasehold_core::time::whole_millis;
use leasehold_core::{Owner, Reason};
use leasehold_server::telemetry::{Recorded, SLOT_MS, read};
use leasehold_store::clock::unix_millis;
use serde_json::json;

use crate::flags::{self, Direction, Made};
use crate::out::{Out, duration};
use crate::signals::Signals;
use crate::try_key::duration_arg;
use crate::{Ending, logs, run_async};
pub(crate) use incident::{Incident, Incidents};
pub(crate) use messages::Messages;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Roll back for real, write it into the incident log, and send messages. Without it, only say what would be done.
    #[arg(long)]
    apply: bool,
    /// Look once, and end: with 3 if there is a breach that was not answered by a rollback.
    #[arg(long)]
    once: bool,
    /// How often to look.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "1m", conflicts_with = "once")]
    every: Duration,
    /// How far back sessions count.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "15m")]
    window: Duration,
    /// In how many looks in a row a breach must be seen.
    #[arg(long, value_name = "N", default_value_t = Patience::default().looks)]
    looks: u32,
    /// How far apart these looks are at least.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "1m")]
    apart: Duration,
    /// How long a phase that has just begun is left alone.
    #[arg(long, value_name = "DURATION", value_parser = duration_arg, default_value = "5m")]
    settling: Duration,
    /// The folders that servers count into; once for each.
    #[arg(long, value_name = "FOLDER", env = "LEASEHOLD_TELEMETRY_FOLDER", default_value = "telemetry")]
    folder: Vec<PathBuf>,
    /// The flag file.
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_FLAGS_FILE", default_value = "flags.json")]
    flags_file: PathBuf,
    /// Where incidents are written down.
    #[arg(long, value_name = "FOLDER", env = "LEASEHOLD_INCIDENTS", default_value = "incidents")]
    incidents: PathBuf,
    #[command(flatten)]
    messages: messages::MessageArgs,
}

pub(crate) fn run(args: &Args, out: &Out) -> Result<Ending> {
    logs::start("warn", None).map_err(anyhow::Error::msg)?;
    run_async(report(args, out))
}

async fn report(args: &Args, out: &Out) -> Result<Ending> {
    let reporter = Reporter {
        flags_file: args.flags_file.clone(),
        telemetry: args.folder.clone(),
        window: args.window,
        patience: Patience { looks: args.looks.max(1), apart: args.apart, settling: args.settling },
        apply: args.apply,
        incidents: Incidents::open(&args.incidents)?,
        messages: Messages::open(&args.messages)?,
    };
    let _only = alone(reporter.incidents.folder())?;
    let mut signals = Signals::listen()?;
    loop {
        let looked = reporter.look(unix_millis()).await;
        match &looked {
            Ok(looked) => tell(looked, out),
            Err(error) if !args.once => out.warn(&format!("{error:#}; looking again")),
            Err(_) => {}
        }
        if args.once {
            let is_unanswered = looked?.is_unanswered();
            return Ok(if is_unanswered { Ending::ProblemsFound } else { Ending::Done });
        }
        tokio::select! {
            () = tokio::time::sleep(args.every) => {}
            _ = signals.next() => return Ok(Ending::Done),
        }
    }
}

/// Two reporters in one folder would both roll back and both send messages.
fn alone(folder: &Path) -> Result<File> {
    let path = folder.join("reporter.guard");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("{} cannot be opened", path.display()))?;
    file.try_lock().map_err(|_| {
        anyhow::anyhow!("another reporter works with {}; end it, or name another folder", folder.display())
    })?;
    Ok(file)
}

/// Looks at telemetry, and acts.
pub(crate) struct Reporter {
    pub(crate) flags_file: PathBuf,
    pub(crate) telemetry: Vec<PathBuf>,
    pub(crate) window: Duration,
    pub(crate) patience: Patience,
    pub(crate) apply: bool,
    pub(crate) incidents: Incidents,
    pub(crate) messages: Messages,
}

/// What a look came to.
pub(crate) struct Looked {
    pub(crate) phase: Phase,
    pub(crate) observed: Observed,
    pub(crate) decision: Decision,
    /// What was done about it, if anything was.
    pub(crate) incident: Option<Incident>,
}

impl Looked {
    /// Whether there is a confirmed breach that nothing was done about.
    fn is_unanswered(&self) -> bool {
        let is_breach = matches!(self.decision, Decision::RollBack(_) | Decision::NoWayBack);
        is_breach && !self.incident.as_ref().is_some_and(|incident| incident.is_rolled_back)
    }
}

impl Reporter {
    /// Looks once.
    pub(crate) async fn look(&self, now: u64) -> Result<Looked> {
        let flags = flags::open(&self.flags_file)?;
        let observed = self.observe(&flags, now)?;
        let before = self.incidents.memory()?;
        let (decision, memory) = look(&flags, observed, &before, &self.patience, now);
        self.incidents.remember(&memory)?;
        let phase = flags.current().clone();
        let mut looked = Looked { phase, observed, decision, incident: None };
        let target = match (&looked.decision, self.apply) {
            (Decision::RollBack(to), true) => Some(to.clone()),
            (Decision::NoWayBack, true) => None,
            _ => return Ok(looked),
        };
        // A breach that goes on is an incident once, unless a rollback failed and is tried again.
        if target.is_some() || memory.breaches == self.patience.looks {
            let incident = self.act(&looked, target.as_ref(), &memory, now).await?;
            looked.incident = Some(incident);
        }
        Ok(looked)
    }

    /// What was counted of the current phase since it began, within the window. What other phases did does not count.
    fn observe(&self, flags: &Flags, now: u64) -> Result<Observed> {
        let from = now.saturating_sub(whole_millis(self.window)).max(flags.since().unwrap_or(0));
        // What is counted in the same slot of time is counted together.
        let from = from - from % SLOT_MS;
        let mut all = Recorded::default();
        for folder in &self.telemetry {
            let recorded = read(folder, from..now.saturating_add(1)).with_context(|| {
                let what = "cannot be read as the folder of a server's telemetry";
                format!("{} {what}; name it with --folder", folder.display())
            })?;
            all.merge(&recorded);
        }
        let summary = all.counts().summary(Some(&flags.current().name));
        Ok(Observed { sessions: summary.sessions, read_only: summary.read_only })
    }

    /// Rolls back, writes it down, and tells those who want to know.
    async fn act(
        &self,
        looked: &Looked,
        target: Option<&PhaseName>,
        memory: &Memory,
        now: u64,
    ) -> Result<Incident> {
        let mut incident = Incident::begin(looked, target, self.window, now);
        match target {
            None => incident.done("there is no phase to roll back to; a person has to decide", false),
            Some(to) => match self.roll_back(to, &incident, now) {
                Ok(result) => incident.done(&result, true),
                Err(error) => incident.done(&format!("failed: {error:#}"), false),
            },
        }
        let is_news = incident.is_rolled_back || memory.breaches == self.patience.looks;
        if is_news {
            incident.told = self.messages.send(&incident).await;
        }
        self.incidents.append(&incident)?;
        Ok(incident)
    }

    fn roll_back(&self, to: &PhaseName, incident: &Incident, now: u64) -> Result<String> {
        let author =
            Author { by: Owner::parse("reporter")?, reason: Reason::parse(&incident.summary())?, at: now };
        Ok(match flags::make(&self.flags_file, Some(to.as_str()), Direction::Back, &author)? {
            Made::Changed(change) => {
                let from = change.from.map(|from| from.to_string()).unwrap_or_default();
                format!("rolled back from {from} to {}", change.to)
            }
            Made::AlreadyThere(phase) => format!("the phase is {phase} already"),
        })
    }
}

/// A share as people read it.
pub(crate) fn percent(observed: &Observed) -> String {
    observed.percent().map_or("—".to_owned(), |percent| format!("{percent:.1} %"))
}

fn tell(looked: &Looked, out: &Out) {
    let Looked { phase, observed, decision, incident } = looked;
    if out.is_json() {
        out.value(&json!({
            "phase": phase.name.as_str(),
            "sessions": observed.sessions,
            "read_only": observed.read_only,
            "percent": observed.percent(),
            "threshold_percent": phase.threshold_percent,
            "decision": word(decision),
            "to": if let Decision::RollBack(to) = decision { Some(to.as_str()) } else { None },
            "result": incident.as_ref().map(|incident| incident.result.as_str()),
        }));
        return;
    }
    let seen = format!(
        "phase {}: {} read-only in {} sessions ({}), threshold {} %",
        phase.name,
        observed.read_only,
        observed.sessions,
        percent(observed),
        phase.threshold_percent
    );
    match (decision, incident) {
        (Decision::Fine, _) => out.good(&seen),
        (Decision::TooFew, _) => {
            out.notice(&format!(
                "{seen}: too few to conclude anything, {} are needed",
                phase.minimum_sessions
            ));
        }
        (Decision::Settling(until) | Decision::TooSoon(until), _) => {
            let wait = duration(until.saturating_sub(unix_millis()));
            out.notice(&format!("{seen}: nothing is concluded for another {wait}"));
        }
        (Decision::Unconfirmed(more), _) => {
            out.notice(&format!("{seen}: a breach, if {more} more looks confirm it"));
        }
        (_, Some(incident)) => {
            out.bad(&format!("{seen}: a breach"));
            out.fact("command", &incident.command);
            out.fact("result", &incident.result);
            incident.told.iter().for_each(|(whom, came_of_it)| out.fact(whom, came_of_it));
        }
        (Decision::RollBack(to), None) => {
            out.bad(&format!("{seen}: a breach"));
            out.hint(&format!("with --apply it would now run: leasehold flags rollback --phase {to}"));
        }
        (Decision::NoWayBack, None) => {
            out.bad(&format!("{seen}: a breach, and there is no phase to roll back to"));
        }
    }
}

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Fine => "fine",
        Decision::TooFew => "too_few",
        Decision::Settling(_) => "settling",
        Decision::TooSoon(_) => "too_soon",
        Decision::Unconfirmed(_) => "unconfirmed",
        Decision::RollBack(_) => "roll_back",
        Decision::NoWayBack => "no_way_back",
    }
}
