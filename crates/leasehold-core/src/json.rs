//! JSON as it was written: a text in one form, in which numbers keep their digits.
//!
//! Payloads and results of jobs go through this instead of `serde_json::Value`, whose numbers are floats beyond 64 bits:
//! 2^70 + 1 and 2^70 + 2 would be the same payload. Equal values have equal texts: the keys of an object are sorted, there
//! is no white space, and strings are escaped in one way. A number is the characters that it was written with, so `1`, `1.0`
//! and `1e0` are three values. An object that has a key twice is refused, because readers of it would see different values.

use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON value, as text in its one form.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Box<str>);

/// Why a text is not accepted as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON at all.
    #[error("it is not JSON")]
    NotJson,
    /// An object has a key twice.
    #[error("the key {key:?} is there twice in one object; send each key once")]
    DuplicateKey {
        /// The key, or the beginning of a long one.
        key: String,
    },
    /// Lists and objects are nested too deeply.
    #[error(
        "lists and objects are nested in each other more than {} levels deep; make it flatter",
        Json::MAX_DEPTH
    )]
    TooDeep,
}

impl Json {
    /// How deeply lists and objects may be nested. An answer has one level more around them, and many parsers stop after 127.
    pub const MAX_DEPTH: usize = 126;

    /// Parses a text, or says why it is not accepted.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|_| JsonError::NotJson)?;
        let mut written = String::with_capacity(text.len());
        write(&mut written, raw, Self::MAX_DEPTH)?;
        Ok(Self(written.into()))
    }

    /// The value that a job's text stands for: the text as JSON, or as a JSON string if it is none.
    pub fn of_text(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|_| Self(quoted(text).into()))
    }

    /// The text of a job that stands for this value: a string without its quotes, unless that would be read as something
    /// else or no database would keep it; everything else as JSON.
    pub fn to_text(&self) -> String {
        match serde_json::from_str::<String>(&self.0) {
            Ok(text) if is_plain(&text) => text,
            _ => self.0.to_string(),
        }
    }

    /// The value as JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may be long, and is user data.
        write!(f, "Json({} bytes)", self.0.len())
    }
}

/// Whether a string can be kept without quotes.
fn is_plain(text: &str) -> bool {
    !text.contains('\0') && serde_json::from_str::<IgnoredAny>(text).is_err()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes a value in its one form. `levels` is how many levels of lists and objects it may have.
fn write(out: &mut String, raw: &RawValue, levels: usize) -> Result<(), JsonError> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => write_object(out, parsed::<Members<'_>>(text)?.0, inner(levels)?),
        Some(b'[') => {
            let levels = inner(levels)?;
            let items = parsed::<Vec<&RawValue>>(text)?;
            write_items(out, ['[', ']'], items, |out, item| write(out, item, levels))
        }
        Some(b'"') => {
            out.push_str(&quoted(&parsed::<String>(text)?));
            Ok(())
        }
        // A number, `true`, `false` or `null`.
        _ => {
            out.push_str(text);
            Ok(())
        }
    }
}

fn write_object(
    out: &mut String,
    mut members: Vec<(String, &RawValue)>,
    levels: usize,
) -> Result<(), JsonError> {
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    if let Some([(twice, _), _]) = members.array_windows::<2>().find(|[(one, _), (other, _)]| one == other) {
        return Err(JsonError::DuplicateKey { key: clipped(twice) });
    }
    write_items(out, ['{', '}'], members, |out, (key, value)| {
        // Writing to a string does not fail.
        let _ = write!(out, "{}:", quoted(&key));
        write(out, value, levels)
    })
}

fn write_items<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: Vec<T>,
    mut write: impl FnMut(&mut String, T) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    out.push(open);
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(out, item)?;
    }
    out.push(close);
    Ok(())
}

fn inner(levels: usize) -> Result<usize, JsonError> {
    levels.checked_sub(1).ok_or(JsonError::TooDeep)
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, JsonError> {
    serde_json::from_str(text).map_err(|_| JsonError::NotJson)
}

/// The longest key that an error repeats, in characters.
const KEY_SHOWN: usize = 64;

fn clipped(key: &str) -> String {
    key.chars().take(KEY_SHOWN).collect()
}

/// The members of an object in the order of the text, with those that are there twice.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_form(text: &str) -> String {
        Json::parse(text).unwrap().to_string()
    }

    /// 2^70 + 1 and 2^70 + 2 counted as the same payload, and came back as floats.
    #[test]
    fn numbers_keep_their_digits() {
        for number in [
            "1180591620717411303425",
            "1180591620717411303426",
            "-9223372036854775809",
            "18446744073709551616",
            "0.1000000000000000055511151231257827",
            "1",
            "1.0",
            "1.10",
            "-0",
            "1e400",
            "1E+2",
        ] {
            assert_eq!(one_form(number), number);
            assert_eq!(one_form(&format!(" {{ \"n\" : [ {number} ] }} ")), format!("{{\"n\":[{number}]}}"));
        }
    }

    #[test]
    fn equal_values_have_equal_texts() {
        let form = r#"{"a":"A\"\n会","deep":{"a":2,"b":[1,{}]},"page":7}"#;
        for text in [
            form,
            "\t{\"page\": 7,\r\n \"deep\": {\"b\": [1, { }], \"a\": 2}, \"a\": \"\\u0041\\u0022\\u000a\\u4f1a\"}",
        ] {
            assert_eq!(one_form(text), form);
        }
        assert_ne!(one_form("1"), one_form("1.0"));
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_and_named() {
        for text in [r#"{"page":1,"page":1}"#, r#"[{"a":{"page":1,"b":2,"\u0070age":3}}]"#] {
            let error = Json::parse(text).unwrap_err();
            assert_eq!(error, JsonError::DuplicateKey { key: "page".into() }, "{text}");
            assert!(error.to_string().contains("\"page\""), "{error}");
        }
        assert_eq!(one_form(r#"[{"a":1},{"a":1}]"#), r#"[{"a":1},{"a":1}]"#, "in two objects");
    }

    #[test]
    fn the_depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(one_form(&nested(Json::MAX_DEPTH)), nested(Json::MAX_DEPTH));
        assert_eq!(Json::parse(&nested(Json::MAX_DEPTH + 1)).unwrap_err(), JsonError::TooDeep);
        assert_eq!(Json::parse(&nested(32_000)).unwrap_err(), JsonError::TooDeep);
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            "plain",
            "{",
            "[1,]",
            "01",
            "1.",
            "+1",
            "NaN",
            "'a'",
            "\"\n\"",
            r#""\ud800""#,
            "1 2",
            "\u{feff}1",
        ] {
            assert_eq!(Json::parse(text).unwrap_err(), JsonError::NotJson, "{text:?}");
        }
    }

    #[test]
    fn a_value_survives_the_way_into_a_jobs_text_and_back() {
        for json in [
            "null",
            "7",
            "1180591620717411303425",
            "1.50",
            "true",
            r#""""#,
            r#""plain""#,
            r#""7""#,
            r#""null""#,
            r#""\"quoted\"""#,
            r#""{\"a\":1,\"a\":2}""#,
            r#""\"\\ud800\"""#,
            r#""a\u0000b\nc""#,
            "[1,[2]]",
            r#"{"a":"会議","b":{"c":2,"d":1}}"#,
        ] {
            let value = Json::parse(json).unwrap();
            assert_eq!(Json::of_text(&value.to_text()), value, "{json}");
            assert!(!value.to_text().contains('\0'), "{json}");
        }
        for text in ["", "plain", "42", "{\"a\":1}", "not {json", "two\nlines\ttabs"] {
            assert_eq!(Json::of_text(text).to_text(), text, "{text}");
        }
    }
}
