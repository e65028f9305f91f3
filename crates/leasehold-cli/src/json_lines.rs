//! The log as one object a line.
//!
//! Written by hand because there is a line for each request: the formatter of `tracing-subscriber` puts every field into a value of
//! its own and all of them into a map, which cost a server a tenth of its requests.

use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats an event as `{"timestamp":…,"level":…,` its own fields `,"target":…}`. Spans are left out: nothing here has any.
pub(crate) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        line.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut line)?;
        write!(line, "\",\"level\":\"{}\"", about.level())?;
        let mut fields = Fields { line: &mut line, written: Ok(()), target: None };
        event.record(&mut fields);
        let Fields { written, target, .. } = fields;
        written?;
        line.write_str(",\"target\":\"")?;
        write_escaped(&mut line, target.as_deref().unwrap_or(about.target()))?;
        line.write_str("\"}\n")
    }
}

/// What stands before the name of a field that comes from the crate `log`: such a field is about the event.
const OF_LOG: &str = "log.";

/// Writes the fields of an event.
struct Fields<'a, 'b> {
    line: &'a mut Writer<'b>,
    written: fmt::Result,
    /// Where an event of the crate `log` comes from.
    target: Option<String>,
}

impl Fields<'_, '_> {
    fn put(&mut self, field: &Field, value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        if self.written.is_ok() && !field.name().starts_with(OF_LOG) {
            self.written = self.try_put(field.name(), value);
        }
    }

    fn try_put(&mut self, name: &str, value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) -> fmt::Result {
        self.line.write_str(",\"")?;
        write_escaped(self.line, name)?;
        self.line.write_str("\":")?;
        value(self.line)
    }
}

impl Visit for Fields<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, |line| {
            line.write_char('"')?;
            write!(Escaped(line), "{value:?}")?;
            line.write_char('"')
        });
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "log.target" {
            self.target = Some(value.to_owned());
        }
        self.put(field, |line| {
            line.write_char('"')?;
            write_escaped(line, value)?;
            line.write_char('"')
        });
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no other numbers.
        self.put(
            field,
            |line| if value.is_finite() { write!(line, "{value}") } else { line.write_str("null") },
        );
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, |line| write!(line, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, |line| write!(line, "{value}"));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.put(field, |line| write!(line, "{value}"));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.put(field, |line| write!(line, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, |line| write!(line, "{value}"));
    }
}

/// Takes text in and writes it as a part of a JSON string.
struct Escaped<'a, 'b>(&'a mut Writer<'b>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_escaped(self.0, text)
    }
}

fn write_escaped(line: &mut Writer<'_>, text: &str) -> fmt::Result {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        return line.write_str(text);
    }
    text.chars().try_for_each(|letter| match letter {
        '"' => line.write_str("\\\""),
        '\\' => line.write_str("\\\\"),
        '\n' => line.write_str("\\n"),
        '\0'..' ' => write!(line, "\\u{:04x}", u32::from(letter)),
        letter => line.write_char(letter),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test fails by panicking
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Keeps what was logged.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Kept {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn logged(log: impl FnOnce()) -> Vec<Value> {
        let kept = Kept::default();
        let layer = tracing_subscriber::fmt::layer().with_writer(kept.clone()).event_format(JsonLines);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert!(text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn every_line_is_one_object_whatever_the_values_are() {
        let strange = "a \"quote\", a \\, a\nline, a\ttab, \u{1}, \u{7f}, 日本語 🦀";
        let mut lines = logged(|| {
            tracing::info!(%strange, debugged = ?strange, plain = strange, some = Some(7_u16), none = None::<u16>, "said {strange}");
            tracing::warn!(
                signed = -7_i64,
                big = u64::MAX,
                half = 0.5,
                whole = 2.0,
                no_number = f64::NAN,
                yes = true
            );
        });
        let mut second = lines.pop().unwrap();
        let mut first = lines.pop().unwrap();
        for line in [&mut first, &mut second] {
            let time = line.as_object_mut().unwrap().remove("timestamp").unwrap();
            assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{time}");
        }
        let target = module_path!();
        let expected = json!({
            "level": "INFO", "message": format!("said {strange}"), "strange": strange, "debugged": format!("{strange:?}"),
            "plain": strange, "some": 7, "target": target,
        });
        assert_eq!(first, expected);
        let expected = json!({
            "level": "WARN", "signed": -7, "big": u64::MAX, "half": 0.5, "whole": 2, "no_number": null, "yes": true,
            "target": target,
        });
        assert_eq!(second, expected);
    }
}
