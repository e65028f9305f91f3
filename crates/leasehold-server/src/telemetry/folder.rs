//! The collector's folder: one file a day, which only grows, up to a bound; old days are removed. It is the collector's own:
//! a folder with other files is refused, and no other file is touched.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use leasehold_core::telemetry::FOREIGN_FOLDERS;
use leasehold_core::wire::telemetry::TelemetryLine;

use crate::files::ConfigError;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// How many days, with the present one.
    pub days: u32,
    /// How many bytes a day. What comes after that is dropped until the next day, and counted.
    pub bytes_per_day: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { days: 30, bytes_per_day: 16 * 1024 * 1024 }
    }
}

/// How the name of a day's file ends.
const ENDING: &str = ".jsonl";

/// The day of a time, in UTC.
pub(super) fn day_of(millis: u64) -> Date {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC).date()
}

/// The day that a file is of; `None` when it is no file of a collector.
pub(super) fn day_of_file(name: &str) -> Option<Date> {
    let day: Date = name.strip_suffix(ENDING)?.parse().ok()?;
    (name == file_name(day)).then_some(day)
}

fn file_name(day: Date) -> String {
    format!("{day}{ENDING}")
}

/// The days that a folder has, oldest first, with their files. Other files are an error.
pub(super) fn days(folder: &Path) -> io::Result<Vec<(Date, PathBuf)>> {
    let mut days = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(day) = name.to_str().and_then(day_of_file) else {
            let rule = format!("{} is no file of a collector", name.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, rule));
        };
        days.push((day, entry.path()));
    }
    days.sort();
    Ok(days)
}

/// The folder, and the file of the present day.
pub(super) struct Folder {
    path: PathBuf,
    keep: Keep,
    /// Locked as long as this process collects.
    _handle: File,
    today: Option<Day>,
    /// The day that old files were last removed on.
    tidied: Option<Date>,
    /// The day that is known to be full, so that it is logged once.
    full: Option<Date>,
}

/// An open file. Bytes beyond `length` do not count.
struct Day {
    day: Date,
    file: File,
    length: u64,
    /// Whether a failed write may have left bytes beyond `length`.
    has_remains: bool,
}

impl Folder {
    pub(super) fn open(path: &Path, keep: Keep) -> Result<Self, ConfigError> {
        check_place(path)?;
        let failed = |what: &str, error: &io::Error| {
            let fix = "check the path, and that the server may write to it";
            ConfigError::file(path, format!("telemetry cannot {what}: {error}"), fix)
        };
        create(path).map_err(|error| failed("create the folder", &error))?;
        days(path).map_err(|error| {
            let rule = format!("telemetry needs a folder of its own: {error}");
            ConfigError::file(path, rule, "choose an empty folder")
        })?;
        close_to_others(path).map_err(|error| failed("keep others out of the folder", &error))?;
        let handle = File::open(path).map_err(|error| failed("open the folder", &error))?;
        handle.try_lock().map_err(|_| {
            let rule = "another process collects telemetry into it";
            ConfigError::file(path, rule, "give every server a folder of its own, or stop the other one")
        })?;
        Ok(Self { path: path.to_owned(), keep, _handle: handle, today: None, tidied: None, full: None })
    }

    /// Appends a line to its day's file. False if the day is full.
    pub(super) fn append(&mut self, line: &TelemetryLine) -> io::Result<bool> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let limit = self.keep.bytes_per_day;
        let day = self.day(day_of(line.at))?;
        if day.length + bytes.len() as u64 > limit {
            let full = day.day;
            if self.full.replace(full) != Some(full) {
                tracing::warn!(%full, limit, "telemetry of this day has reached its limit; the rest of it is dropped");
            }
            return Ok(false);
        }
        day.append(&bytes)?;
        Ok(true)
    }

    /// Removes the files of days that are not kept any more; once a day.
    pub(super) fn remove_old(&mut self, now: u64) {
        let today = day_of(now);
        if self.tidied == Some(today) {
            return;
        }
        let kept = i64::from(self.keep.days).max(1) - 1;
        let first = today.checked_sub(jiff::Span::new().days(kept)).unwrap_or(Date::MIN);
        let old = days(&self.path).unwrap_or_default().into_iter().filter(|(day, _)| *day < first);
        for (_, path) in old {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(%error, "an old file of telemetry cannot be removed; trying again tomorrow");
            }
        }
        self.tidied = Some(today);
    }

    fn day(&mut self, day: Date) -> io::Result<&mut Day> {
        let open = match self.today.take().filter(|open| open.day == day && open.is_in_place()) {
            Some(open) => open,
            None => Day::open(&self.path.join(file_name(day)), day)?,
        };
        Ok(self.today.insert(open))
    }
}

impl Day {
    fn open(path: &Path, day: Date) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let length = file.seek(SeekFrom::End(0))?;
        let mut open = Self { day, file, length, has_remains: false };
        if open.ends_in_a_partial_line()? {
            // It stays a line of its own, which readers skip.
            open.append(b"\n")?;
        }
        Ok(open)
    }

    /// Whether the file ends as after a crash.
    fn ends_in_a_partial_line(&mut self) -> io::Result<bool> {
        let Some(last) = self.length.checked_sub(1) else { return Ok(false) };
        let mut byte = [0];
        self.file.seek(SeekFrom::Start(last))?;
        self.file.read_exact(&mut byte)?;
        Ok(byte != *b"\n")
    }

    /// Whether the file still has its name: an operator may have moved or removed it.
    fn is_in_place(&self) -> bool {
        #[cfg(unix)]
        return self.file.metadata().is_ok_and(|file| std::os::unix::fs::MetadataExt::nlink(&file) > 0);
        #[cfg(not(unix))]
        true
    }

    /// A failure leaves the file as it was, or is repaired by the next call.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes).inspect_err(|_| self.has_remains = true)?;
        self.length += bytes.len() as u64;
        self.has_remains = false;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.has_remains {
            self.file.set_len(self.length)?;
        }
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(bytes)
    }
}

/// Refuses a folder that belongs to another collector.
fn check_place(path: &Path) -> Result<(), ConfigError> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let names = whole.components().filter_map(|part| part.as_os_str().to_str());
    let foreign = names.map(str::to_ascii_lowercase).find(|name| FOREIGN_FOLDERS.contains(&name.as_str()));
    match foreign {
        Some(name) => {
            let rule =
                format!("the folder {name:?} belongs to another collector, which would read our files");
            Err(ConfigError::file(path, rule, "choose a folder outside of it"))
        }
        None => Ok(()),
    }
}

/// Creates the folder, for its owner alone.
fn create(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Takes the rights of others from a folder that was there before.
fn close_to_others(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if std::fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o700))?;
        }
    }
    Ok(())
}
