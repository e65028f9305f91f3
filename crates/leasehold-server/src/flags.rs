//! The flag file: reads it, and replaces it as a whole. The rules of phases are in `leasehold_core::flags`.
//!
//! A change is made under an exclusive lock on a file beside it, so that two at once never lose one of them, and the new content
//! replaces the old one by a rename: readers see the one or the other. The file keeps its last changes; a JSONL file beside it
//! keeps all of them. A file that cannot be understood is never overwritten.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use leasehold_core::flags::{Change, Flags, Phase, PhaseName, Step, resolve};
use leasehold_core::telemetry::known_phase;
use leasehold_core::wire::flags::FlagsView;
use leasehold_core::{Owner, Reason, Retries, RetryPolicy};
use serde::{Deserialize, Serialize};

use crate::files::{ConfigError, FromFiles};

/// The version of the file's format.
const VERSION: u32 = 1;

/// How often the lock on the file is asked for: some thirty seconds. A change holds it for milliseconds.
const ATTEMPTS: u32 = 40;

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    /// The current phase.
    phase: String,
    /// In the order of the roll-out.
    phases: Vec<WrittenPhase>,
    #[serde(default)]
    history: Vec<WrittenChange>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPhase {
    name: String,
    autosave: bool,
    #[serde(default = "default_threshold")]
    threshold_percent: f64,
    #[serde(default = "default_minimum")]
    minimum_sessions: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenChange {
    number: u64,
    /// RFC 3339.
    at: String,
    change: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    to: String,
    by: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
}

fn default_threshold() -> f64 {
    Phase::THRESHOLD_PERCENT
}

fn default_minimum() -> u64 {
    Phase::MINIMUM_SESSIONS
}

// --- reading ---

/// Reads a flag file.
pub fn read(path: &Path) -> Result<Flags, ConfigError> {
    let bytes = crate::files::read(path)?;
    parse(&bytes).map_err(|rule| {
        let fix = "correct it by hand, or put a backup in its place; it was not changed";
        ConfigError::file(path, format!("it is no flag file: {rule}"), fix)
    })
}

fn parse(bytes: &[u8]) -> Result<Flags, String> {
    let known: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let version = known.get("version").and_then(serde_json::Value::as_u64);
    if version.is_some_and(|version| version > u64::from(VERSION)) {
        return Err(format!("it has version {version:?}, which a newer leasehold wrote"));
    }
    let written: Written = serde_json::from_value(known).map_err(|error| error.to_string())?;
    if written.version != VERSION {
        return Err(format!("its version is {}, not {VERSION}", written.version));
    }
    let phases = written.phases.into_iter().map(phase).collect::<Result<Vec<_>, _>>();
    let history = written.history.iter().map(change).collect::<Result<Vec<_>, _>>()?;
    let current = PhaseName::parse(&written.phase).map_err(|error| error.to_string())?;
    Flags::from_parts(phases?, &current, history).map_err(|error| error.to_string())
}

fn phase(written: WrittenPhase) -> Result<Phase, String> {
    let WrittenPhase { name, autosave, threshold_percent, minimum_sessions } = written;
    let name = PhaseName::parse(&name).map_err(|error| error.to_string())?;
    Ok(Phase { name, autosave, threshold_percent, minimum_sessions })
}

fn change(written: &WrittenChange) -> Result<Change, String> {
    let wrong = |error: leasehold_core::Invalid| error.to_string();
    let at: jiff::Timestamp =
        written.at.parse().map_err(|_| format!("{:?} is no time in RFC 3339", written.at))?;
    Ok(Change {
        number: written.number,
        at: u64::try_from(at.as_millisecond()).unwrap_or(0),
        step: Step::parse(&written.change)
            .ok_or_else(|| format!("{:?} is no kind of change", written.change))?,
        from: written.from.as_deref().map(PhaseName::parse).transpose().map_err(wrong)?,
        to: PhaseName::parse(&written.to).map_err(wrong)?,
        by: Owner::parse(&written.by).map_err(wrong)?,
        reason: Reason::parse(&written.reason).map_err(wrong)?,
    })
}

// --- writing ---

fn print(flags: &Flags) -> io::Result<String> {
    let phases = flags.phases().iter().map(|phase| WrittenPhase {
        name: phase.name.to_string(),
        autosave: phase.autosave,
        threshold_percent: phase.threshold_percent,
        minimum_sessions: phase.minimum_sessions,
    });
    let written = Written {
        version: VERSION,
        phase: flags.current().name.to_string(),
        phases: phases.collect(),
        history: flags.history().iter().map(written_change).collect(),
    };
    Ok(serde_json::to_string_pretty(&written)? + "\n")
}

fn written_change(change: &Change) -> WrittenChange {
    WrittenChange {
        number: change.number,
        at: shown_time(change.at),
        change: change.step.as_str().to_owned(),
        from: change.from.as_ref().map(ToString::to_string),
        to: change.to.to_string(),
        by: change.by.to_string(),
        reason: change.reason.as_str().to_owned(),
    }
}

/// A change as a line of JSON, as the trail has it.
pub fn change_line(change: &Change) -> String {
    serde_json::to_string(&written_change(change)).unwrap_or_default()
}

/// Milliseconds since 1970 in RFC 3339.
pub fn shown_time(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// Changes the file: `change` gets the flags in it, none where there is no file, and returns new ones, or `None` to leave the
/// file alone. Nobody else changes the file meanwhile.
pub fn update<E: From<ConfigError>>(
    path: &Path,
    change: impl FnOnce(Option<Flags>) -> Result<Option<Flags>, E>,
) -> Result<(), E> {
    // A link stays a link, and its target is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let _guard = lock(&path)?;
    let present = if path.exists() { Some(read(&path)?) } else { None };
    let Some(flags) = change(present)? else { return Ok(()) };
    let failed = |error: io::Error| {
        let fix = "check the free space and the permissions of its folder; the file is as it was";
        ConfigError::file(&path, format!("it cannot be written: {error}"), fix)
    };
    replace(&path, &print(&flags).map_err(failed)?).map_err(failed)?;
    // The file has the change. A trail that misses it is completed by the next change.
    if let Err(error) = complete_trail(&trail_of(&path), flags.history()) {
        tracing::warn!(%error, "the trail of changes beside the flag file could not be written");
    }
    Ok(())
}

/// Takes the lock on the file. The kernel ends it with the process.
fn lock(path: &Path) -> Result<File, ConfigError> {
    let guard = beside(path, ".guard");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&guard).map_err(|error| {
        let fix = "check that its folder exists and may be written";
        ConfigError::file(&guard, format!("it cannot be opened: {error}"), fix)
    })?;
    let mut retries = Retries::new(RetryPolicy::CALL.attempts(ATTEMPTS), leasehold_store::jitter());
    while let Err(error) = file.try_lock() {
        let Some(wait) = retries.failed() else {
            let rule = format!("another process is changing the flags, and does not finish ({error})");
            return Err(ConfigError::file(&guard, rule, "try again, or end the other process"));
        };
        std::thread::sleep(wait);
    }
    Ok(file)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = File::create(&new)?;
    if let Ok(old) = std::fs::metadata(path) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    sync_folder(path)
}

#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// The file that keeps all changes, one line of JSON each.
pub fn trail_of(path: &Path) -> PathBuf {
    beside(path, ".history.jsonl")
}

/// Appends what the trail does not have yet: a process may have ended between the two files.
fn complete_trail(trail: &Path, history: &[Change]) -> io::Result<()> {
    let file = OpenOptions::new().create(true).read(true).append(true).open(trail)?;
    let mut last = 0;
    let mut ends_a_line = true;
    for line in BufReader::new(&file).split(b'\n') {
        let line = line?;
        // A partial line, from a crash, has no number.
        let known: Option<WrittenChange> = serde_json::from_slice(&line).ok();
        ends_a_line = known.is_some() || line.is_empty();
        last = known.map_or(last, |known| known.number.max(last));
    }
    let missing = history.iter().filter(|change| change.number > last);
    let mut text = if ends_a_line { String::new() } else { "\n".to_owned() };
    missing.for_each(|change| text.extend([&change_line(change), "\n"]));
    (&file).write_all(text.as_bytes())?;
    file.sync_all()
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

// --- the flags of a server ---

/// The phase of a server: from its settings and its flag file, which is read again when it changes.
pub(crate) struct CurrentFlags(FromFiles<Known>);

/// What the settings and the flag file say.
struct Known {
    /// The phase that counts here.
    phase: Phase,
    /// The names of all phases, this one included.
    names: Vec<PhaseName>,
}

impl CurrentFlags {
    /// Reads them for the first time.
    pub(crate) fn open(file: Option<PathBuf>, named: Option<PhaseName>) -> Result<Self, ConfigError> {
        let paths: Vec<PathBuf> = file.iter().cloned().collect();
        let current = move || {
            let flags = file.as_deref().map(read).transpose()?;
            let (phase, _) = resolve(named.as_ref(), flags.as_ref())
                .map_err(|error| ConfigError::new(format!("phase {}", error.value), error.rule, error.fix))?;
            let names = match &flags {
                Some(flags) => flags.phases().iter().map(|phase| phase.name.clone()).collect(),
                None => vec![phase.name.clone()],
            };
            Ok(Known { phase, names })
        };
        FromFiles::open(paths, current).map(Self)
    }

    /// What counts now, for a page; at most a second old.
    pub(crate) fn view(&self) -> FlagsView {
        let Known { phase, .. } = &*self.0.current();
        FlagsView { phase: phase.name.to_string(), autosave: phase.autosave }
    }

    /// The phase that the counts of a page belong to: the one that it names, if that is known, and the current one if it names none.
    pub(crate) fn phase_of(&self, named: Option<&str>) -> PhaseName {
        let Known { phase, names } = &*self.0.current();
        named.map_or_else(|| phase.name.clone(), |word| known_phase(word, names))
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::flags::{Author, Moved};

    use super::*;

    fn name(text: &str) -> PhaseName {
        PhaseName::parse(text).unwrap()
    }

    fn author(by: &str) -> Author {
        Author { by: Owner::parse(by).unwrap(), reason: Reason::default(), at: 1_767_268_800_000 }
    }

    fn started(path: &Path) {
        let phases = ["off", "beta", "all"].map(|text| Phase::new(name(text), text != "off"));
        let start = |_| Ok(Some(Flags::start(phases.to_vec(), author("anna")).unwrap()));
        update::<ConfigError>(path, start).unwrap();
    }

    fn moved(flags: &Flags, by: &str) -> Flags {
        let moved = match flags.next() {
            Some(_) => flags.advance(None, author(by)),
            None => flags.roll_back(Some(&name("off")), author(by)),
        };
        let Ok(Moved::To(flags)) = moved else { panic!("{moved:?}") };
        flags
    }

    fn change(path: &Path, by: &str) {
        update::<ConfigError>(path, |flags| Ok(flags.map(|flags| moved(&flags, by)))).unwrap();
    }

    fn trail(path: &Path) -> Vec<u64> {
        let text = std::fs::read_to_string(trail_of(path)).unwrap();
        text.lines().map(|line| serde_json::from_str::<WrittenChange>(line).unwrap().number).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flags.json");
        started(&path);
        change(&path, "ben");
        let flags = read(&path).unwrap();
        assert_eq!((flags.current().name.as_str(), flags.history().len()), ("beta", 2));
        assert_eq!(parse(print(&flags).unwrap().as_bytes()).unwrap(), flags);
        assert_eq!(trail(&path), [1, 2]);
    }

    #[test]
    fn two_at_once_lose_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flags.json");
        started(&path);
        std::thread::scope(|scope| {
            for by in ["anna", "ben", "cleo", "dan"] {
                let path = &path;
                scope.spawn(move || (0..5).for_each(|_| change(path, by)));
            }
        });
        let numbers: Vec<u64> = read(&path).unwrap().history().iter().map(|change| change.number).collect();
        assert_eq!(numbers, (1..=21).collect::<Vec<_>>());
        assert_eq!(trail(&path), numbers);
    }

    #[test]
    fn a_bad_file_is_refused_with_what_to_do_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flags.json");
        let phases = r#"[{"name": "off", "autosave": false}]"#;
        let cases = [
            ("", "EOF"),
            ("{}", "version"),
            (&format!(r#"{{"version": 9, "phase": "off", "phases": {phases}}}"#), "a newer leasehold"),
            (&format!(r#"{{"version": 1, "phase": "on", "phases": {phases}}}"#), "choose one of off"),
            (r#"{"version": 1, "phase": "off", "phases": []}"#, "at least one phase"),
            (&format!(r#"{{"version": 1, "phase": "off", "phases": {phases}, "x": 1}}"#), "unknown field"),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, text).unwrap();
            let refused = update::<ConfigError>(&path, |flags| Ok(flags.map(|flags| moved(&flags, "anna"))));
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("correct it by hand"), "{text}: {error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_trail_that_misses_a_change_is_completed_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flags.json");
        started(&path);
        let first = std::fs::read_to_string(trail_of(&path)).unwrap();
        change(&path, "anna");
        // As if the process had ended in the middle of the second line.
        std::fs::write(trail_of(&path), format!("{first}{{\"number\": 2, \"a")).unwrap();
        change(&path, "ben");
        let text = std::fs::read_to_string(trail_of(&path)).unwrap();
        let numbers: Vec<_> = text.lines().map(|line| line.contains("\"number\":")).collect();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(numbers.iter().filter(|has| **has).count() == 4 && text.ends_with("}\n"), "{text}");
    }

    #[test]
    #[cfg(unix)]
    fn a_link_stays_one_and_the_mode_stays_too() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real.json"), folder.path().join("flags.json"));
        started(&file);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        change(&link, "anna");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&file).unwrap().current().name.as_str(), "beta");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
