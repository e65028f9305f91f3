//! Values that are read from files, and again when the files change: keys, certificates.
//!
//! No thread watches the files: each use of a value checks, at most once a second, whether its files have changed. A file
//! that cannot be used never replaces a working value.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// An error in the server's configuration: the setting, what is wrong with it, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {rule}; {fix}")]
pub struct ConfigError {
    /// The setting or the file.
    pub what: String,
    /// What is wrong with it.
    pub rule: String,
    /// What to do.
    pub fix: String,
}

impl ConfigError {
    /// An error about `what`.
    pub fn new(what: impl Into<String>, rule: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), rule: rule.into(), fix: fix.into() }
    }

    /// An error about a file.
    pub(crate) fn file(path: &Path, rule: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(path.display().to_string(), rule, fix)
    }
}

/// The longest file that is read. Keys and certificates are shorter.
const LONGEST: u64 = 1024 * 1024;

/// The whole of a small file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let unreadable = |error: std::io::Error| {
        ConfigError::file(path, format!("it cannot be read: {error}"), "check the path and its permissions")
    };
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > LONGEST {
        let rule = format!("it has {length} bytes, more than the {LONGEST} that keys may have");
        return Err(ConfigError::file(path, rule, "check the path"));
    }
    std::fs::read(path).map_err(unreadable)
}

/// How often files are checked at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A value that is read from files.
pub(crate) struct FromFiles<T> {
    paths: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, ConfigError> + Send + Sync>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    /// The state of the files when the value was read.
    seen: Vec<Stamp>,
    /// Their state when they last could not be used, so that it is logged once.
    useless: Option<Vec<Stamp>>,
    looked_at: Instant,
}

impl<T> FromFiles<T> {
    /// Reads the value for the first time. Later `read` is called again when one of the files has changed.
    pub fn open(
        paths: Vec<PathBuf>,
        read: impl Fn() -> Result<T, ConfigError> + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        // Taken before they are read, so that a change in between is noticed the next time.
        let seen = stamps(&paths);
        let state = State { value: Arc::new(read()?), seen, useless: None, looked_at: Instant::now() };
        Ok(Self { paths, read: Box::new(read), state: Mutex::new(state) })
    }

    /// The value, at most a second older than the files.
    pub fn current(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.paths.is_empty() && state.looked_at.elapsed() >= LOOK_EVERY {
            state.looked_at = Instant::now();
            self.look(&mut state);
        }
        state.value.clone()
    }

    fn look(&self, state: &mut State<T>) {
        let now = stamps(&self.paths);
        if now == state.seen {
            return;
        }
        match (self.read)() {
            Ok(value) => {
                state.value = Arc::new(value);
                state.seen = now;
                state.useless = None;
                tracing::info!(files = ?self.paths, "files have changed and were read again");
            }
            // Perhaps half-written: read again in a second, whether or not it has changed by then.
            Err(error) if state.useless.as_ref() != Some(&now) => {
                tracing::warn!(%error, "a changed file cannot be used; the previous value stays in use");
                state.useless = Some(now);
            }
            Err(_) => {}
        }
    }
}

/// What distinguishes a changed file from an unchanged one; `None` for a file that does not exist.
type Stamp = Option<(SystemTime, u64, u64)>;

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    paths.iter().map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Stamp {
    let file = std::fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len(), number_of(&file)))
}

/// The inode: a file that replaces another has another one, even if time and length are the same.
#[cfg(unix)]
fn number_of(file: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(file)
}

#[cfg(not(unix))]
fn number_of(_file: &std::fs::Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_in(path: &Path) -> FromFiles<u32> {
        let of = path.to_owned();
        FromFiles::open(vec![path.to_owned()], move || {
            let text = String::from_utf8_lossy(&read(&of)?).trim().to_owned();
            text.parse().map_err(|_| ConfigError::file(&of, "it holds no number", "write one"))
        })
        .unwrap()
    }

    /// What is current if the last look was long enough ago.
    fn look_now(number: &FromFiles<u32>) -> u32 {
        number.look(&mut number.state.lock().unwrap());
        *number.current()
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_bad_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        std::fs::write(&path, "1").unwrap();
        let number = number_in(&path);
        assert_eq!(look_now(&number), 1);
        std::fs::write(&path, "").unwrap();
        assert_eq!(look_now(&number), 1, "half-written");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(look_now(&number), 1, "gone");
        std::fs::write(&path, "22").unwrap();
        assert_eq!(look_now(&number), 22);
    }

    #[test]
    fn files_are_looked_at_once_a_second_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        std::fs::write(&path, "1").unwrap();
        let number = number_in(&path);
        std::fs::write(&path, "22").unwrap();
        let looked_at = number.state.lock().unwrap().looked_at;
        let value = *number.current();
        assert!(value == 1 || looked_at.elapsed() >= LOOK_EVERY);
        number.state.lock().unwrap().looked_at = looked_at.checked_sub(LOOK_EVERY).unwrap();
        assert_eq!(*number.current(), 22);
    }

    #[test]
    fn a_file_that_is_not_there_says_so_at_the_start() {
        let error = read(Path::new("no/such/file")).unwrap_err().to_string();
        assert!(error.contains("no/such/file") && error.contains("check the path"), "{error}");
    }
}
