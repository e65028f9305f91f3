//! The incident log: a line of JSON for each incident, a page for people beside it, and what the Reporter remembers between two
//! looks. It is a folder of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_core::flags::PhaseName;
use leasehold_core::reporter::{Memory, Observed};
use leasehold_server::flags::shown_time;
use serde_json::{Value, json};

use super::{Looked, percent};
use crate::out::duration;

/// A breach, and what was done about it.
#[derive(Clone, Debug)]
pub(crate) struct Incident {
    /// Its name: the time and the phase.
    pub(crate) id: String,
    pub(crate) at: u64,
    pub(crate) phase: PhaseName,
    pub(crate) to: Option<PhaseName>,
    pub(crate) observed: Observed,
    pub(crate) threshold_percent: f64,
    pub(crate) window: Duration,
    pub(crate) command: String,
    pub(crate) result: String,
    pub(crate) is_rolled_back: bool,
    /// Who was told, and what came of it.
    pub(crate) told: Vec<(&'static str, String)>,
}

impl Incident {
    pub(super) fn begin(looked: &Looked, to: Option<&PhaseName>, window: Duration, now: u64) -> Self {
        let phase = looked.phase.name.clone();
        let time = shown_time(now / 1_000 * 1_000).replace(':', "-");
        Self {
            id: format!("{time}-{phase}"),
            at: now,
            command: to
                .map(|to| format!("leasehold flags rollback --phase {to}"))
                .unwrap_or_else(|| "(none)".to_owned()),
            phase,
            to: to.cloned(),
            observed: looked.observed,
            threshold_percent: looked.phase.threshold_percent,
            window,
            result: String::new(),
            is_rolled_back: false,
            told: Vec::new(),
        }
    }

    pub(super) fn done(&mut self, result: &str, is_rolled_back: bool) {
        (self.result, self.is_rolled_back) = (result.to_owned(), is_rolled_back);
    }

    /// In one sentence.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} of {} sessions read-only ({}), threshold {} %",
            self.observed.read_only,
            self.observed.sessions,
            percent(&self.observed),
            self.threshold_percent
        )
    }

    /// What templates can show.
    pub(crate) fn values(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("incident", self.id.clone()),
            ("at", shown_time(self.at)),
            ("phase", self.phase.to_string()),
            ("to", self.to.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("sessions", self.observed.sessions.to_string()),
            ("read_only", self.observed.read_only.to_string()),
            ("rate", percent(&self.observed)),
            ("threshold", format!("{} %", self.threshold_percent)),
            ("window", duration(u64::try_from(self.window.as_millis()).unwrap_or(u64::MAX))),
            ("command", self.command.clone()),
            ("result", self.result.clone()),
            ("summary", self.summary()),
        ])
    }

    fn json(&self) -> Value {
        let told: BTreeMap<&str, &str> =
            self.told.iter().map(|(whom, came_of_it)| (*whom, came_of_it.as_str())).collect();
        json!({
            "incident": self.id,
            "at": shown_time(self.at),
            "phase": self.phase.as_str(),
            "to": self.to.as_ref().map(PhaseName::as_str),
            "sessions": self.observed.sessions,
            "read_only": self.observed.read_only,
            "percent": self.observed.percent(),
            "threshold_percent": self.threshold_percent,
            "command": self.command,
            "result": self.result,
            "rolled_back": self.is_rolled_back,
            "told": told,
        })
    }

    fn page(&self) -> String {
        let mut page = format!("# Incident {}\n\n{}.\n\n| | |\n|---|---|\n", self.id, self.summary());
        for (name, value) in self.values() {
            let _ = writeln!(page, "| {name} | {} |", value.replace('|', "\\|"));
        }
        for (whom, came_of_it) in &self.told {
            let _ = writeln!(page, "| {whom} | {} |", came_of_it.replace('|', "\\|"));
        }
        let _ = writeln!(
            page,
            "\n## Commands and their results\n\n```\n$ {}\n{}\n```",
            self.command, self.result
        );
        page
    }
}

/// The folder of incidents.
pub(crate) struct Incidents(PathBuf);

impl Incidents {
    /// Makes the folder, if it is not there.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{} cannot be made; name another with --incidents", folder.display()))?;
        Ok(Self(folder.to_owned()))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// The page of an incident.
    pub(crate) fn page_of(&self, incident: &Incident) -> PathBuf {
        self.0.join(format!("{}.md", incident.id))
    }

    /// Writes an incident down: its line, and its page.
    pub(super) fn append(&self, incident: &Incident) -> Result<()> {
        append(&self.0.join("incidents.jsonl"), &format!("{}\n", incident.json()))?;
        append(&self.page_of(incident), &incident.page())
    }

    /// Adds a command that was run later, with what it printed, to the page of an incident.
    pub(crate) fn attach(&self, incident: &Incident, command: &str, output: &str) -> Result<()> {
        append(&self.page_of(incident), &format!("\n```\n$ {command}\n{}\n```\n", output.trim_end()))
    }

    /// What was remembered at the last look. What cannot be read is forgotten: a breach is then confirmed once more.
    pub(super) fn memory(&self) -> Result<Memory> {
        let path = self.0.join(MEMORY);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Memory::default()),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        let known: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let number = |name| known.get(name).and_then(Value::as_u64);
        Ok(Memory {
            phase: known.get("phase").and_then(Value::as_str).and_then(|name| PhaseName::parse(name).ok()),
            breaches: number("breaches").and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
            looked_at: number("looked_at_ms").unwrap_or(0),
        })
    }

    pub(super) fn remember(&self, memory: &Memory) -> Result<()> {
        let path = self.0.join(MEMORY);
        let told = json!({
            "phase": memory.phase.as_ref().map(PhaseName::as_str),
            "breaches": memory.breaches,
            "looked_at_ms": memory.looked_at,
        });
        let new = self.0.join("reporter.json.new");
        let written = std::fs::write(&new, format!("{told}\n")).and_then(|()| std::fs::rename(&new, &path));
        written.with_context(|| format!("{} cannot be written", path.display()))
    }
}

const MEMORY: &str = "reporter.json";

fn append(path: &Path, text: &str) -> Result<()> {
    let write = || {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}
