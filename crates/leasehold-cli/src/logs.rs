//! The log, on standard error: text for people on a terminal, one object a line elsewhere. What is logged never holds a
//! secret; that is for those who log to see to.
//!
//! Lines that only inform are written together, a few times a second: a line for each request would cost as much as
//! answering it. A warning or an error is written at once, with everything before it, and the end of the program writes
//! the rest. Only a program that is killed loses lines, of its last tenth of a second.

use std::io::{self, IsTerminal, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tracing::{Level, Metadata};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::json_lines::JsonLines;

/// How the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Starts to log what passes `filter`; says what is wrong with it otherwise.
pub(crate) fn start(filter: &str, format: Option<LogFormat>) -> Result<(), String> {
    let passed = parse(filter).ok_or_else(|| {
        format!("cannot log {filter:?}; write a level (error, warn, info, debug, trace), or levels by module, such as \
                 info,leasehold_server=debug")
    })?;
    let on_terminal = io::stderr().is_terminal();
    let format = format.unwrap_or(if on_terminal { LogFormat::Text } else { LogFormat::Json });
    let log = tracing_subscriber::fmt::layer().with_writer(Stderr { at_once: on_terminal });
    let log = log.with_ansi(on_terminal);
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.event_format(JsonLines).boxed(),
    };
    // A logger that is already installed is fine.
    // One filter for everything: to keep one for each layer costs every line some of its time, too.
    let _ = tracing_subscriber::registry().with(passed).with(log).try_init();
    Ok(())
}

/// How long a line that only informs may wait to be written.
const TOGETHER: Duration = Duration::from_millis(100);

/// How many bytes may wait. Beyond that, who logs writes them, and waits for a reader that does not keep up.
const MOST_WAITING: usize = 64 * 1024;

/// The lines that wait to be written.
static WAITING: Mutex<Lines> = Mutex::new(Lines { text: Vec::new(), has_writer: false });

/// There is a line in [`WAITING`].
static LOGGED: Condvar = Condvar::new();

/// Held while lines are taken out and written, so that they leave in the order in which they were logged.
static WRITING: Mutex<()> = Mutex::new(());

struct Lines {
    text: Vec<u8>,
    /// Whether the thread that writes them has been started.
    has_writer: bool,
}

fn waiting() -> MutexGuard<'static, Lines> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes everything that was logged so far.
pub(crate) fn flush() {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let text = std::mem::take(&mut waiting().text);
    // There is nowhere to say that the log cannot be written.
    let _ = io::stderr().write_all(&text);
}

/// Writes what waits, a few times a second, for as long as the program runs.
fn write_now_and_then() {
    loop {
        let lines = waiting();
        drop(LOGGED.wait_while(lines, |lines| lines.text.is_empty()));
        std::thread::sleep(TOGETHER);
        flush();
    }
}

/// Makes a writer for each line.
struct Stderr {
    at_once: bool,
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter { at_once: self.at_once }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> LineWriter {
        LineWriter { at_once: self.at_once || *about.level() <= Level::WARN }
    }
}

/// Takes in one line.
struct LineWriter {
    at_once: bool,
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = waiting();
        let is_first = lines.text.is_empty();
        lines.text.extend_from_slice(line);
        if !self.at_once && !lines.has_writer {
            let thread = std::thread::Builder::new().name("leasehold-log".into()).spawn(write_now_and_then);
            lines.has_writer = thread.is_ok();
        }
        let now = self.at_once || !lines.has_writer || lines.text.len() > MOST_WAITING;
        drop(lines);
        if now {
            flush();
        } else if is_first {
            LOGGED.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Levels, each for everything or for a module. A word that is neither is refused: it would be taken for a module, and
/// nothing else would be logged.
fn parse(filter: &str) -> Option<Targets> {
    filter.split(',').map(str::trim).try_fold(Targets::new(), |targets, part| match part.split_once('=') {
        None if part.is_empty() => None,
        None => Some(targets.with_default(part.parse::<LevelFilter>().ok()?)),
        Some((module, level)) if !module.is_empty() && !level.is_empty() => {
            Some(targets.with_target(module, level.parse::<LevelFilter>().ok()?))
        }
        Some(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_for_everything_or_for_a_module() {
        let both = parse("warn, leasehold_server=debug").unwrap();
        assert!(both.would_enable("leasehold_server::observe", &Level::DEBUG));
        assert!(both.would_enable("hyper", &Level::WARN) && !both.would_enable("hyper", &Level::INFO));
        for wrong in ["", "!!!", "warm", "info,,", "=info", "hyper=loud", "hyper="] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
