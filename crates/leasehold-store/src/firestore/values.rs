//! Firestore's values: ours as we write them, and those of other programs in whatever type they come.
//!
//! Payloads and results are Firestore's own maps, lists and numbers wherever these carry them exactly, and their JSON as a
//! string where they do not: Firestore has no integers beyond 64 bits, no lists directly in lists, and 20 levels at most.

use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::{ArrayValue, MapValue, Value};
use gcloud_sdk::prost_types::Timestamp;
use leasehold_core::{Fence, StoreTime};
use serde_json::json;

/// A number below this is a time in seconds, one above it in milliseconds: in either, it is between 1973 and 5138.
const SECONDS_END: u64 = 100_000_000_000;

pub(super) fn string(text: impl Into<String>) -> ValueType {
    ValueType::StringValue(text.into())
}

pub(super) fn integer(number: u64) -> ValueType {
    ValueType::IntegerValue(number.cast_signed())
}

/// How deeply maps and lists may be nested in a document: Firestore's limit is 20, and the field itself counts.
const LEVELS: usize = 19;

/// The longest key of a map, in bytes: Firestore's limit.
const LONGEST_KEY: usize = 1_500;

/// The payload or the result of a job as Firestore's own value, if that reads back as the same text. Otherwise as a string,
/// and so is a JSON string: what is not a string in the document is never text.
pub(super) fn of_job_text(text: &str) -> ValueType {
    let native = serde_json::from_str(text).ok().and_then(|json: serde_json::Value| native(&json, LEVELS));
    let is_exact = |value: &ValueType| job_text_of(&Value { value_type: Some(value.clone()) }) == text;
    native.filter(is_exact).unwrap_or_else(|| string(text))
}

/// The text of a payload or a result: a string as it is, which is also how earlier versions wrote all of them; everything else
/// as JSON.
pub(super) fn job_text_of(value: &Value) -> String {
    match &value.value_type {
        None => String::new(),
        Some(ValueType::StringValue(text)) => text.clone(),
        Some(_) => json_of(value).to_string(),
    }
}

fn native(json: &serde_json::Value, levels: usize) -> Option<ValueType> {
    use serde_json::Value as Json;
    let value = |json| Some(Value { value_type: Some(native(json, levels.checked_sub(1)?)?) });
    Some(match json {
        Json::Null => ValueType::NullValue(0),
        Json::Bool(flag) => ValueType::BooleanValue(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => ValueType::IntegerValue(integer),
            None => ValueType::DoubleValue(number.as_f64()?),
        },
        Json::String(text) => ValueType::StringValue(Some(text).filter(|text| !text.contains('\0'))?.clone()),
        Json::Array(items) if items.iter().any(Json::is_array) => return None,
        Json::Array(items) => {
            ValueType::ArrayValue(ArrayValue { values: items.iter().map(value).collect::<Option<_>>()? })
        }
        Json::Object(members) if !members.keys().all(|key| is_key(key)) => return None,
        Json::Object(members) => {
            let fields = members.iter().map(|(key, json)| Some((key.clone(), value(json)?)));
            ValueType::MapValue(MapValue { fields: fields.collect::<Option<_>>()? })
        }
    })
}

fn is_key(key: &str) -> bool {
    let is_reserved = key.starts_with("__") && key.ends_with("__");
    !key.is_empty() && key.len() <= LONGEST_KEY && !key.contains('\0') && !is_reserved
}

/// The fence that another program may have written: the whole number that the next one has to be larger than, at most
/// `u64::MAX`; `None` when it cannot be compared with a number.
pub(super) fn fence_of(value: &Value) -> Option<u64> {
    match value.value_type.as_ref()? {
        ValueType::IntegerValue(number) => Some(u64::try_from(*number).unwrap_or(0)),
        ValueType::DoubleValue(number) => whole_above(*number),
        ValueType::StringValue(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| whole_above(text.parse().ok()?))
        }
        _ => None,
    }
}

/// The smallest whole number that is not below, for numbers that a fence can have; `u64::MAX` for larger ones.
fn whole_above(number: f64) -> Option<u64> {
    if number.is_nan() {
        return None;
    }
    if number <= 0.0 {
        // Of zero with a sign, no whole number can be read.
        return Some(0);
    }
    let whole = format!("{}", number.ceil());
    Some(whole.parse().ok().filter(|whole| *whole <= Fence::MAX.get()).unwrap_or(u64::MAX))
}

/// A time as ISO 8601 with milliseconds, as JavaScript's `toISOString` writes it.
pub(super) fn iso(time: StoreTime) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

/// Firestore's time in whole milliseconds; the origin for what lies before 1970.
pub(super) fn millis_of(time: &Timestamp) -> StoreTime {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    let millis = u64::try_from(time.nanos).unwrap_or(0) / 1_000_000;
    StoreTime::from_millis(seconds.saturating_mul(1_000).saturating_add(millis))
}

/// Whether nothing is said: null, false or an empty text.
pub(super) fn is_empty(value: &Value) -> bool {
    match &value.value_type {
        None | Some(ValueType::NullValue(_) | ValueType::BooleanValue(false)) => true,
        Some(ValueType::StringValue(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// The value as text: a text as it is, everything else as JSON; `None` when there is none.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match &value.value_type {
        None | Some(ValueType::NullValue(_)) => None,
        Some(ValueType::StringValue(text)) => Some(text.clone()),
        Some(_) => Some(json_of(value).to_string()),
    }
}

/// A whole number that is not negative, also as text or with a fraction of nothing.
pub(super) fn number_of(value: &Value) -> Option<u64> {
    match value.value_type.as_ref()? {
        ValueType::IntegerValue(number) => u64::try_from(*number).ok(),
        ValueType::DoubleValue(number) => format!("{number}").parse().ok(),
        ValueType::StringValue(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A time: ISO 8601 with or without an offset (then it is UTC), Firestore's own type, or seconds or milliseconds since
/// 1970.
pub(super) fn time_of(value: &Value) -> Option<StoreTime> {
    match value.value_type.as_ref()? {
        ValueType::TimestampValue(time) => Some(millis_of(time)),
        ValueType::StringValue(text) => time_in(text.trim()).or_else(|| epoch(number_of(value)?)),
        ValueType::DoubleValue(number) => epoch(format!("{}", number.trunc()).parse().ok()?),
        _ => epoch(number_of(value)?),
    }
}

fn time_in(text: &str) -> Option<StoreTime> {
    let with_offset = text.parse::<jiff::Timestamp>();
    let time = with_offset.or_else(|_| {
        let civil: jiff::civil::DateTime = text.parse()?;
        civil.to_zoned(jiff::tz::TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    let millis = time.ok()?.as_millisecond();
    Some(StoreTime::from_millis(u64::try_from(millis).unwrap_or(0)))
}

fn epoch(number: u64) -> Option<StoreTime> {
    let millis = if number < SECONDS_END { number.checked_mul(1_000)? } else { number };
    Some(StoreTime::from_millis(millis))
}

fn json_of(value: &Value) -> serde_json::Value {
    match &value.value_type {
        Some(ValueType::BooleanValue(value)) => json!(value),
        Some(ValueType::IntegerValue(value)) => json!(value),
        Some(ValueType::DoubleValue(value)) => json!(value),
        Some(ValueType::StringValue(value) | ValueType::ReferenceValue(value)) => json!(value),
        Some(ValueType::TimestampValue(time)) => json!(iso(millis_of(time))),
        Some(ValueType::GeoPointValue(point)) => json!([point.latitude, point.longitude]),
        Some(ValueType::ArrayValue(list)) => list.values.iter().map(json_of).collect(),
        Some(ValueType::MapValue(map)) => {
            // In the order of the names, so that the same value is the same text.
            let sorted: std::collections::BTreeMap<_, _> =
                map.fields.iter().map(|(name, value)| (name.clone(), json_of(value))).collect();
            json!(sorted)
        }
        // Bytes are no text, and the rest is never stored.
        _ => serde_json::Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(value: ValueType) -> Value {
        Value { value_type: Some(value) }
    }

    #[test]
    fn a_time_is_understood_in_every_shape_that_people_write() {
        let expected = Some(StoreTime::from_millis(1_794_000_000_123));
        let stamp = Timestamp { seconds: 1_794_000_000, nanos: 123_999_999 };
        let times = [
            ValueType::TimestampValue(stamp),
            string("2026-11-06T21:20:00.123Z"),
            string("2026-11-06T21:20:00.123456+00:00"),
            string("2026-11-07T06:20:00.123+09:00"),
            string(" 2026-11-06 21:20:00.123 "),
            string("1794000000123"),
            ValueType::IntegerValue(1_794_000_000_123),
            ValueType::DoubleValue(1_794_000_000_123.0),
        ];
        for time in times {
            assert_eq!(time_of(&value(time.clone())), expected, "{time:?}");
        }
        assert_eq!(
            time_of(&value(ValueType::IntegerValue(1_794_000_000))),
            Some(StoreTime::from_millis(1_794_000_000_000)),
            "seconds"
        );
        assert_eq!(iso(StoreTime::from_millis(1_794_000_000_120)), "2026-11-06T21:20:00.120Z");
        assert_eq!(iso(StoreTime::from_millis(u64::MAX)).get(..4), Some("9999"));
    }

    #[test]
    fn a_time_that_is_none_is_unreadable() {
        let nonsense = [
            string(""),
            string("soon"),
            string("2026-13-45T99:99:99Z"),
            ValueType::BooleanValue(true),
            ValueType::NullValue(0),
            ValueType::DoubleValue(f64::NAN),
            ValueType::IntegerValue(-5),
            ValueType::BytesValue(vec![1]),
            ValueType::ArrayValue(ArrayValue::default()),
        ];
        for time in nonsense {
            assert_eq!(time_of(&value(time.clone())), None, "{time:?}");
        }
        let before_1970 = Timestamp { seconds: -7, nanos: -1 };
        assert_eq!(time_of(&value(ValueType::TimestampValue(before_1970))), Some(StoreTime::ZERO));
        assert_eq!(time_of(&Value::default()), None);
    }

    #[test]
    fn a_number_may_come_as_text() {
        for (given, expected) in [
            (string("7"), Some(7)),
            (ValueType::DoubleValue(7.0), Some(7)),
            (ValueType::DoubleValue(7.5), None),
            (string("seven"), None),
            (ValueType::IntegerValue(-1), None),
        ] {
            assert_eq!(number_of(&value(given.clone())), expected, "{given:?}");
        }
    }

    /// 2^70 + 1 would be a double, and so would 2^63.
    #[test]
    fn a_payload_is_a_native_value_where_that_is_exact_and_its_json_where_not() {
        let kept_as_text = [
            "1180591620717411303425",
            "[9223372036854775808]",
            r#"{"n":-9223372036854775809}"#,
            "0.1000000000000000055511151231257827",
            "1.10",
            "1e400",
            "-0",
            "1e022",
            "[[1]]",
            r#"{"":1}"#,
            r#"{"__id__":1}"#,
            r#"["a\u0000b"]"#,
            r#"{"a": 1}"#,
            r#""7""#,
            "plain",
            "",
        ];
        for text in kept_as_text {
            assert_eq!(of_job_text(text), string(text));
        }
        let deep = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        assert_eq!(of_job_text(&deep(LEVELS + 1)), string(deep(LEVELS + 1)));
        let native = [
            "null",
            "true",
            "7",
            "-9223372036854775808",
            "9223372036854775807",
            "1.0",
            "0.1",
            "-1.5e-7",
            "[]",
            "[1,{\"a\":[2]}]",
            r#"{"a":"7","b":{"c":[null,false,1.5,"会"],"d":9007199254740993}}"#,
            &deep(LEVELS),
        ];
        for text in native {
            let written = of_job_text(text);
            assert!(!matches!(written, ValueType::StringValue(_)), "{text}");
            assert_eq!(job_text_of(&value(written)), text);
        }
    }

    #[test]
    fn the_fence_of_another_program_is_compared_in_every_shape() {
        for (given, expected) in [
            (ValueType::IntegerValue(7), Some(7)),
            (ValueType::IntegerValue(-7), Some(0)),
            (ValueType::IntegerValue(i64::MAX), Some(9_223_372_036_854_775_807)),
            (ValueType::DoubleValue(7.0), Some(7)),
            (ValueType::DoubleValue(7.5), Some(8)),
            (ValueType::DoubleValue(-0.5), Some(0)),
            (ValueType::DoubleValue(1e300), Some(u64::MAX)),
            (ValueType::DoubleValue(f64::INFINITY), Some(u64::MAX)),
            (ValueType::DoubleValue(f64::NAN), None),
            (string(" 17 "), Some(17)),
            (string("17.5"), Some(18)),
            (string("-3"), Some(0)),
            (string("99999999999999999999999999"), Some(u64::MAX)),
            (string("seventeen"), None),
            (ValueType::TimestampValue(Timestamp { seconds: 1, nanos: 0 }), None),
            (ValueType::BooleanValue(true), None),
        ] {
            assert_eq!(fence_of(&value(given.clone())), expected, "{given:?}");
        }
    }

    #[test]
    fn what_is_no_text_is_shown_as_json() {
        let list = ArrayValue { values: vec![value(ValueType::IntegerValue(1)), value(string("a"))] };
        let fields = [("z", ValueType::ArrayValue(list)), ("a", ValueType::BooleanValue(true))];
        let fields = fields.map(|(name, inner)| (name.to_owned(), value(inner))).into();
        let map = value(ValueType::MapValue(MapValue { fields }));
        assert_eq!(text_of(&map).as_deref(), Some(r#"{"a":true,"z":[1,"a"]}"#));
        assert_eq!(text_of(&value(ValueType::NullValue(0))), None);
    }
}
