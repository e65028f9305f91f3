//! `.lock` between its bytes and its members: parses it with serde_json and jiff, and prints it. What the members mean, the
//! rules decide. In a browser, `web/src/lockfile.ts` does the same; both are tested with the cases in
//! `tests/lock_files.json`, so that a program and a tab never read one file in two ways.

use std::fmt;

use jiff::{Timestamp, civil};
use leasehold_project_rules::record::{Content, LONGEST, Member, Members, Record, VERSION, label_text};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, de};
use serde_json::Number;

/// What the bytes of `.lock` mean.
pub fn read(bytes: &[u8]) -> Content {
    parse(bytes).map_or(Content::Damaged, |members| Content::of(&members))
}

/// The members of `.lock` that the rules know; `None` if it is no JSON object.
pub fn parse(bytes: &[u8]) -> Option<Members> {
    if bytes.len() > LONGEST {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    serde_json::from_str::<Parsed>(text).ok().map(|parsed| parsed.0)
}

/// The text of `.lock`, as browsers print it.
pub fn print(record: &Record) -> String {
    let millis = record.ttl.as_millis();
    let ttl_seconds = match millis.is_multiple_of(1_000) {
        true => Number::from(millis / 1_000),
        false => Number::from_f64(millis as f64 / 1_000.0).unwrap_or_else(|| Number::from(millis / 1_000)),
    };
    let printed = Printed {
        version: VERSION,
        lease_id: record.lease_id.reveal(),
        owner: record.owner.as_str(),
        label: label_text(&record.label),
        acquired_at: record.acquired_at.as_millis(),
        updated_at: iso(record.updated_at.as_millis()),
        ttl_seconds,
        expires_at: record.expires_at().as_millis(),
        fence: record.fence.map(leasehold_core::Fence::get),
        seq: record.seq,
        held: record.held,
    };
    serde_json::to_string(&printed).unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed<'a> {
    version: u32,
    lease_id: String,
    owner: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    acquired_at: u64,
    updated_at: String,
    ttl_seconds: Number,
    expires_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    seq: u64,
    held: bool,
}

/// `2026-11-15T14:20:00.000Z`.
fn iso(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

/// Milliseconds since 1970 of a time with `Z` or an offset, as JavaScript's `toISOString` and its relatives write it.
fn millis(text: &str) -> Option<f64> {
    let (seconds, rest) = text.split_at_checked(19)?;
    // jiff reads more than that: other separators, leap seconds. What it would write differently is none of ours.
    let date: civil::DateTime =
        seconds.parse().ok().filter(|date: &civil::DateTime| date.to_string() == seconds)?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        None => ("0", rest),
        Some(rest) => rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?),
    };
    if !(1..=9).contains(&fraction.len()) {
        return None;
    }
    let millis: String = fraction.chars().chain("00".chars()).take(3).collect();
    let since = date.duration_since(civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs();
    Some(((since - minutes_east(zone)? * 60) * 1_000 + millis.parse::<i64>().ok()?) as f64)
}

/// `Z`, `+09:00` or `-0330`, in minutes.
fn minutes_east(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let (sign, offset) = zone.split_at_checked(1)?;
    let (hours, minutes) = offset.split_once(':').or_else(|| offset.split_at_checked(2))?;
    let below = |digits: &str, end: i64| -> Option<i64> {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|number| is_number && *number < end)
    };
    let east = below(hours, 24)? * 60 + below(minutes, 60)?;
    match sign {
        "+" => Some(east),
        "-" => Some(-east),
        _ => None,
    }
}

/// Members on their way from JSON.
struct Parsed(Members);

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    /// What has no meaning for us is passed over; of a name that is there twice, the last counts.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let mut members = Members::default();
        while let Some(name) = map.next_key::<String>()? {
            match member_of(&mut members, &name) {
                Some(member) => *member = map.next_value::<Value>()?.0,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        members.updated_at = match members.updated_at {
            Member::Absent => Member::Absent,
            Member::Text(text) => millis(&text).map_or(Member::Other, Member::Number),
            _ => Member::Other,
        };
        Ok(Parsed(members))
    }
}

fn member_of<'a>(members: &'a mut Members, name: &str) -> Option<&'a mut Member> {
    Some(match name {
        "version" => &mut members.version,
        "leaseId" => &mut members.lease_id,
        "owner" => &mut members.owner,
        "label" => &mut members.label,
        "acquiredAt" => &mut members.acquired_at,
        "updatedAt" => &mut members.updated_at,
        "ttlSeconds" => &mut members.ttl_seconds,
        "expiresAt" => &mut members.expires_at,
        "fence" => &mut members.fence,
        "seq" => &mut members.seq,
        "held" => &mut members.held,
        _ => return None,
    })
}

/// A value on its way from JSON.
struct Value(Member);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value(Member::Absent))
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value(Member::Flag(flag)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value(Member::Number(number as f64)))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value(Member::Number(number as f64)))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value(Member::Number(number)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value(Member::Text(text.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value(Member::Other))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value(Member::Other))
    }
}
