//! What people see: colour and tables on a terminal, plain text in a pipe, JSON when asked for.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use leasehold_core::RoomId;
use serde::Serialize;
use serde_json::{Value, json};

/// Where a command's answers go.
pub(crate) struct Out {
    json: bool,
    /// Why something could not be said, the first time.
    unsaid: OnceLock<std::io::Error>,
}

/// The colours in which words are set; a pipe gets none of them.
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, unsaid: OnceLock::new() }
    }

    /// Whether answers are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// One JSON value on a line of its own.
    pub(crate) fn value(&self, value: &impl Serialize) {
        self.say(&serde_json::to_string(value).unwrap_or_default());
    }

    /// Good news.
    pub(crate) fn good(&self, text: &str) {
        self.line(&format!("{GREEN}✓{PLAIN} {text}"));
    }

    /// A notice that may need an action.
    pub(crate) fn notice(&self, text: &str) {
        self.line(&format!("{YELLOW}!{PLAIN} {text}"));
    }

    /// Bad news.
    pub(crate) fn bad(&self, text: &str) {
        self.line(&format!("{RED}✗{PLAIN} {text}"));
    }

    /// What else there is to know.
    pub(crate) fn hint(&self, text: &str) {
        self.line(&format!("  {DIM}{text}{PLAIN}"));
    }

    /// One of several facts below good news.
    pub(crate) fn fact(&self, name: &str, text: &str) {
        self.line(&format!("  {DIM}{name:<16}{PLAIN}{text}"));
    }

    /// Text as it is, such as lines to copy.
    pub(crate) fn plain(&self, text: &str) {
        self.line(text);
    }

    /// Something to know beside the answer, on standard error.
    pub(crate) fn warn(&self, text: &str) {
        let _ = writeln!(anstream::stderr(), "{YELLOW}!{PLAIN} {text}");
    }

    /// What happened to a document, as one object: `fields`, with `event` and `roomId`.
    pub(crate) fn object(&self, event: &str, room: &RoomId, fields: Value) {
        let mut object = json!({ "event": event, "roomId": room.as_str() });
        if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
            object.extend(fields);
        }
        self.value(&object);
    }

    /// Writes a line; an error when the reader is gone.
    pub(crate) fn try_line(&self, text: &str) -> std::io::Result<()> {
        let mut stdout = anstream::stdout();
        writeln!(stdout, "{text}")?;
        stdout.flush()
    }

    fn line(&self, text: &str) {
        if !self.json {
            self.say(text);
        }
    }

    /// Writes a line. When the reader is gone, output stops and the program goes on.
    fn say(&self, text: &str) {
        if let Err(error) = self.try_line(text) {
            let _ = self.unsaid.set(error);
        }
    }

    /// Why something could not be said, if that is so.
    pub(crate) fn unsaid(&self) -> Option<&std::io::Error> {
        self.unsaid.get()
    }

    /// What went wrong, on standard error.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        if self.json {
            let text = json!({ "error": format!("{error:#}") }).to_string();
            let _ = writeln!(anstream::stderr(), "{text}");
        } else {
            let _ = writeln!(anstream::stderr(), "{RED}{BOLD}error:{PLAIN} {error:#}");
        }
    }

    /// A table with a header, as wide as the terminal allows.
    pub(crate) fn table(&self, header: &[&str], rows: Vec<Vec<String>>) {
        let mut table = Table::new();
        let style =
            if std::io::stdout().is_terminal() { presets::UTF8_HORIZONTAL_ONLY } else { presets::NOTHING };
        table.load_style(style).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
        table.add_rows(rows);
        self.line(&table.trim_fmt());
    }

    /// A moving sign that something is going on, on standard error; nothing in a pipe or with JSON.
    pub(crate) fn spinner(&self, text: impl Into<String>) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let spinner = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner:.green} {msg} {elapsed:.dim}") {
            spinner.set_style(style);
        }
        spinner.set_message(text.into());
        spinner.enable_steady_tick(Duration::from_millis(100));
        spinner
    }
}

/// A duration as people say it: `850ms`, `12.3s`, `4m 05s`, `2h 10m`.
pub(crate) fn duration(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}.{}s", millis % 1_000 / 100),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Text from outside on one line.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

/// A size as people say it.
pub(crate) fn bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_as_people_do() {
        for (millis, expected) in
            [(0, "0ms"), (850, "850ms"), (12_340, "12.3s"), (245_000, "4m 05s"), (7_800_000, "2h 10m")]
        {
            assert_eq!(duration(millis), expected);
        }
    }
}
