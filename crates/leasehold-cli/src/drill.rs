//! `leasehold drill rollback`: practises a rollback from end to end in an empty folder, and says of each step whether it was seen.
//!
//! What it drives is the real thing: project locks on folders of this disk whose renewals fail because `.lock` cannot be written, the
//! Collector, the Reporter, the flag file and the report. Only the time of the sessions is not real: they lie in the last
//! fourteen minutes, so that the drill takes seconds.

mod sessions;

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold_core::flags::{Author, Flags, Phase, PhaseName};
use leasehold_core::reporter::{Decision, Patience};
use leasehold_core::telemetry::Summary;
use leasehold_core::{Owner, Reason};
use leasehold_server::ConfigError;
use leasehold_server::telemetry::{Collector, Keep, read};
use leasehold_store::clock::unix_millis;
use serde_json::{Value, json};

use crate::flags::{Direction, make, open};
use crate::out::Out;
use crate::reporter::{Incident, Incidents, Messages, Reporter, percent};
use crate::{Ending, run_async};
use sessions::Sessions;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Practise a rollback, in an empty folder.
    ///
    /// Sessions on real project folders become read-only because their renewals fail; the Collector counts them, the Reporter
    /// sees the breach and rolls back, and what is collected again is the previous phase alone. Exits with 0 only if every step
    /// was seen, and leaves an incident with the commands and their results in the folder.
    Rollback(Args),
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// An empty folder; it is made if it is not there.
    #[arg(default_value = "leasehold-drill")]
    folder: PathBuf,
    /// Leave something out, to see that the drill notices it. It must fail then.
    #[arg(long, value_name = "WHAT", value_enum)]
    leave_out: Option<LeftOut>,
}

/// What a drill that must fail goes without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LeftOut {
    /// `.lock` stays writable.
    Faults,
    /// The Reporter does not apply what it decides.
    Rollback,
}

/// The window that is collected again, as the manual of the roll-out has it.
const WINDOW: &str = "15m";
const WINDOW_TIME: Duration = Duration::from_secs(15 * 60);

/// The command that collects it.
const COLLECT: [&str; 4] = ["telemetry", "report", "--window", WINDOW];

/// How long before now the drill begins, and when what happens in it, in milliseconds.
const AGO: u64 = 14 * MINUTE;
const MINUTE: u64 = 60_000;
const FIRST_LOOK: u64 = 6 * MINUTE;
const SECOND_LOOK: u64 = 7 * MINUTE;
const AFTERWARDS: u64 = 8 * MINUTE;

/// The sessions before the rollback, how many of them fail, and those after it: in the phase of then, and of pages that have not
/// followed yet.
const SESSIONS: u32 = 24;
const FAILING: u32 = 4;
const SESSIONS_AFTER: u32 = 5;
const LATE: u32 = 2;

pub(crate) fn run(command: &Command, out: &Out) -> Result<Ending> {
    let Command::Rollback(args) = command;
    let folder = empty(&args.folder)?;
    let mut drill = Drill::begin(&folder, args.leave_out, out)?;
    run_async(drill.rollback())?;
    Ok(drill.end(&args.folder))
}

fn empty(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let folder = folder.canonicalize().with_context(|| format!("{} cannot be opened", folder.display()))?;
    if std::fs::read_dir(&folder)?.next().is_some() {
        bail!("{} is not empty; the drill needs an empty folder, such as a new one", folder.display());
    }
    Ok(folder)
}

struct Drill<'a> {
    out: &'a Out,
    left_out: Option<LeftOut>,
    flags_file: PathBuf,
    telemetry: PathBuf,
    incidents: PathBuf,
    sessions: Sessions,
    collector: Collector,
    began: u64,
    steps: Vec<(String, bool)>,
}

impl<'a> Drill<'a> {
    fn begin(folder: &Path, left_out: Option<LeftOut>, out: &'a Out) -> Result<Self> {
        let telemetry = folder.join("telemetry");
        Ok(Self {
            out,
            left_out,
            flags_file: folder.join("flags.json"),
            incidents: folder.join("incidents"),
            sessions: Sessions::within(&folder.join("projects")),
            collector: Collector::open(&telemetry, Keep::default())?,
            telemetry,
            began: unix_millis().saturating_sub(AGO),
            steps: Vec::new(),
        })
    }

    async fn rollback(&mut self) -> Result<()> {
        self.start_flags()?;
        self.disturb()?;
        let incident = self.report().await?;
        self.settle()?;
        self.collect_again(incident.as_ref())
    }

    /// A step, and whether it was seen.
    fn saw(&mut self, is_seen: bool, what: String) {
        match is_seen {
            true => self.out.good(&what),
            false => self.out.bad(&format!("not seen: {what}")),
        }
        self.steps.push((what, is_seen));
    }

    fn phase(&self, name: &str) -> Result<PhaseName> {
        Ok(PhaseName::parse(name)?)
    }

    fn author(&self, by: &str) -> Result<Author> {
        Ok(Author { by: Owner::parse(by)?, reason: Reason::parse("a drill")?, at: self.began })
    }

    /// Three phases, in the last of them.
    fn start_flags(&mut self) -> Result<()> {
        let phases = [("off", false), ("beta", true), ("all", true)];
        let phases = phases
            .map(|(name, autosave)| -> Result<Phase> { Ok(Phase::new(PhaseName::parse(name)?, autosave)) });
        let phases = phases.into_iter().collect::<Result<Vec<_>>>()?;
        let flags = Flags::start(phases, self.author("drill")?)?;
        leasehold_server::flags::update::<ConfigError>(&self.flags_file, |_| Ok(Some(flags)))?;
        make(&self.flags_file, Some("all"), Direction::On, &self.author("drill")?)?;
        let current = open(&self.flags_file)?.current().clone();
        let what = format!("the flag file is in phase {}, and pages autosave", current.name);
        self.saw(current.name.as_str() == "all" && current.autosave, what);
        Ok(())
    }

    /// Sessions of which some become read-only, and a second program on one folder.
    fn disturb(&mut self) -> Result<()> {
        let (at, all) = (self.began + MINUTE, self.phase("all")?);
        let failing = if self.left_out == Some(LeftOut::Faults) { 0 } else { FAILING };
        let mut failed = 0;
        for number in 0..SESSIONS {
            let events = self.sessions.run(at, number < failing)?;
            failed += u32::from(events.iter().any(sessions::is_renewal_failure));
            self.collector.record(&all, &events, at);
        }
        let what = format!(
            "{FAILING} of {SESSIONS} sessions became read-only: `.lock` could not be written, two renewals in a row failed"
        );
        self.saw(failed == FAILING, what);
        let second = self.sessions.second_program(at)?;
        self.collector.record(&all, &second, at);
        self.collector.flush(self.began + FIRST_LOOK)?;
        let summary = self.summary(&all)?;
        self.saw(
            summary.second_tab == 1 && summary.read_only == u64::from(failed),
            "a second program, which a live holder kept out, is counted apart".into(),
        );
        let expected = (u64::from(SESSIONS) + 1, u64::from(FAILING));
        self.saw(
            (summary.sessions, summary.read_only) == expected,
            format!(
                "the Collector has {} sessions and {} read-only entries",
                summary.sessions, summary.read_only
            ),
        );
        Ok(())
    }

    fn summary(&self, phase: &PhaseName) -> Result<Summary> {
        let range = self.began..unix_millis();
        Ok(read(&self.telemetry, range)?.counts().summary(Some(phase)))
    }

    /// The Reporter looks twice.
    async fn report(&mut self) -> Result<Option<Incident>> {
        let reporter = Reporter {
            flags_file: self.flags_file.clone(),
            telemetry: vec![self.telemetry.clone()],
            window: WINDOW_TIME,
            patience: Patience::default(),
            apply: self.left_out != Some(LeftOut::Rollback),
            incidents: Incidents::open(&self.incidents)?,
            messages: Messages::to_nobody()?,
        };
        let first = reporter.look(self.began + FIRST_LOOK).await?;
        let second = reporter.look(self.began + SECOND_LOOK).await?;
        let is_confirmed = matches!(second.decision, Decision::RollBack(_));
        self.saw(
            first.decision == Decision::Unconfirmed(1) && is_confirmed,
            format!(
                "the Reporter sees {} read-only, above {} %, twice, a minute apart",
                percent(&second.observed),
                second.phase.threshold_percent
            ),
        );
        let flags = open(&self.flags_file)?;
        let is_back = flags.current().name.as_str() == "beta"
            && flags.history().last().is_some_and(|last| last.by.as_str() == "reporter");
        self.saw(is_back, "the Reporter rolled back from all to beta".into());
        let incident = second.incident;
        let messages = incident.as_ref().map(|incident| reporter.messages.rendered(incident));
        let says_so =
            |(_, message): &(&str, Value)| message.to_string().contains("flags rollback --phase beta");
        self.saw(
            messages.is_some_and(|messages| messages.len() == 2 && messages.iter().all(says_so)),
            "the messages for Slack and PagerDuty are rendered; nothing is sent in a drill".into(),
        );
        Ok(incident)
    }

    /// Pages follow; some do so late.
    fn settle(&mut self) -> Result<()> {
        let at = self.began + AFTERWARDS;
        let (current, all) = (open(&self.flags_file)?.current().name.clone(), self.phase("all")?);
        for _ in 0..SESSIONS_AFTER {
            let events = self.sessions.run(at, false)?;
            self.collector.record(&current, &events, at);
        }
        for _ in 0..LATE {
            let events = self.sessions.run(at, true)?;
            self.collector.record(&all, &events, at);
        }
        Ok(self.collector.flush(unix_millis())?)
    }

    /// The report of the manual, as a command of its own.
    fn collect(&self, extra: &[&str]) -> Result<String> {
        let mut command = Process::new(std::env::current_exe().context("this program cannot be found")?);
        command.args(COLLECT).args(extra).env_remove("LEASEHOLD_PHASE");
        command.arg("--folder").arg(&self.telemetry).arg("--flags-file").arg(&self.flags_file);
        let output = command.output().context("the report cannot be run")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Looks at the report once more; what it says goes to the incident.
    fn collect_again(&mut self, incident: Option<&Incident>) -> Result<()> {
        let text = self.collect(&["--json"])?;
        let report: Value = serde_json::from_str(&text).unwrap_or_default();
        let number = |name: &str| report.pointer(&format!("/judged/{name}")).and_then(Value::as_u64);
        let is_right = report.get("phase").and_then(Value::as_str) == Some("beta")
            && number("sessions") == Some(u64::from(SESSIONS_AFTER))
            && number("read_only") == Some(0);
        self.saw(
            is_right,
            format!("collected again with --window {WINDOW}: {SESSIONS_AFTER} sessions of phase beta, and none of {LATE} late ones of all"),
        );
        let words = self.collect(&[])?;
        let page = incident.map(|incident| self.attach(incident, &COLLECT.join(" "), &words)).transpose()?;
        let has_both = page.as_ref().is_some_and(|page| {
            page.contains("$ leasehold flags rollback --phase beta")
                && page.contains("$ leasehold telemetry report")
        });
        self.saw(has_both, "the incident has both commands and their results".into());
        Ok(())
    }

    /// Adds the command to the page of the incident; returns the page.
    fn attach(&self, incident: &Incident, command: &str, output: &str) -> Result<String> {
        let incidents = Incidents::open(&self.incidents)?;
        incidents.attach(incident, &format!("leasehold {command}"), output)?;
        let page = incidents.page_of(incident);
        std::fs::read_to_string(&page).with_context(|| format!("{} cannot be read", page.display()))
    }

    fn end(self, folder: &Path) -> Ending {
        let is_passed = self.steps.iter().all(|(_, is_seen)| *is_seen);
        if self.out.is_json() {
            let steps: Vec<Value> =
                self.steps.iter().map(|(what, seen)| json!({ "step": what, "seen": seen })).collect();
            self.out.value(&json!({
                "drill": "rollback",
                "passed": is_passed,
                "steps": steps,
                "incidents": self.incidents.display().to_string(),
            }));
        } else if is_passed {
            self.out.plain("");
            self.out.good(&format!(
                "the drill is passed; the incident is in {}",
                folder.join("incidents").display()
            ));
        } else {
            let missing = self.steps.iter().filter(|(_, is_seen)| !is_seen).count();
            self.out.plain("");
            self.out
                .bad(&format!("the drill is failed: {missing} of {} steps were not seen", self.steps.len()));
        }
        if is_passed { Ending::Done } else { Ending::ProblemsFound }
    }
}
