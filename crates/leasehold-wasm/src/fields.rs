//! The fields of one request, as bytes: a byte that says which kind of value follows, then the value. TypeScript writes them
//! by the table in `web/src/border.ts`; here they are checked against the same table, so that an error can say which field is
//! wrong, and then taken one by one as the types that the request declares. (JSON would have to be parsed, and the parser
//! would be larger than the rules.)

use std::borrow::Cow;

use leasehold_project_rules::Say;
use leasehold_project_rules::guarded::Probe;
use leasehold_project_rules::record::Member;
use leasehold_project_rules::wire::json::camel_case;

use crate::border::{FolderKind, WebLockResult};

/// What is wrong with a request: a sentence for the developer who sent it.
pub type Wrong = Cow<'static, str>;

/// A field of a request: its name in Rust, and what it can be.
pub type FieldTable = (&'static str, Kind);

/// What a field can be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A text.
    Text,
    /// Any number.
    Number,
    /// A whole number that JavaScript can count to.
    Whole,
    /// A whole number of 32 bits.
    Small,
    /// True or false.
    Flag,
    /// Any value of JSON, or nothing.
    Json,
    /// One of these words.
    Word(&'static [&'static str]),
    /// That, or nothing.
    Optional(&'static Self),
    /// Several fields, one after the other.
    Group(&'static [FieldTable]),
}

/// The value of a field.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// Left out.
    Nothing,
    /// True or false.
    Flag(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(&'a str),
    /// An array or an object; which one, no rule asks.
    Other,
}

/// The largest whole number that JavaScript counts to.
const LARGEST: f64 = 9_007_199_254_740_991.0;

impl Kind {
    fn allows(&self, value: Value<'_>) -> bool {
        match (self, value) {
            (Self::Text, Value::Text(_))
            | (Self::Number, Value::Number(_))
            | (Self::Flag, Value::Flag(_)) => true,
            (Self::Whole, Value::Number(number)) => is_whole(number, LARGEST),
            (Self::Small, Value::Number(number)) => is_whole(number, f64::from(u32::MAX)),
            (Self::Word(words), Value::Text(text)) => words.contains(&text),
            (Self::Json, _) | (Self::Optional(_), Value::Nothing) => true,
            (Self::Optional(kind), value) => kind.allows(value),
            _ => false,
        }
    }

    const fn expected(&self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Number => "a number",
            Self::Whole | Self::Small => "a whole number",
            Self::Flag => "true or false",
            Self::Word(_) => "one of the words in border.ts",
            Self::Json | Self::Group(_) => "a value of JSON",
            Self::Optional(kind) => kind.expected(),
        }
    }
}

fn is_whole(number: f64, largest: f64) -> bool {
    (0.0..=largest).contains(&number) && number.trunc() == number
}

/// Checks all fields of a request.
pub fn read<'a>(request: &str, table: &'static [FieldTable], bytes: &'a [u8]) -> Result<Values<'a>, Wrong> {
    let mut reader = Reader { rest: bytes, values: Vec::new() };
    if let Err((name, kind)) = reader.read(table) {
        return Err(
            format!("{}.{}: expected {}", camel_case(request), camel_case(name), kind.expected()).into()
        );
    }
    match reader.rest {
        [] => Ok(Values(reader.values.into_iter())),
        _ => Err(format!("{}: there is a field too many", camel_case(request)).into()),
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    values: Vec<Value<'a>>,
}

impl<'a> Reader<'a> {
    /// Reads fields, or says which one is missing or wrong.
    fn read(&mut self, table: &'static [FieldTable]) -> Result<(), FieldTable> {
        for (name, kind) in table {
            if let Kind::Group(group) = kind {
                self.read(group)?;
                continue;
            }
            let value = self.value().filter(|value| kind.allows(*value)).ok_or((*name, *kind))?;
            self.values.push(value);
        }
        Ok(())
    }

    /// The next value; `None` when there is none, or when it is cut off.
    fn value(&mut self) -> Option<Value<'a>> {
        let (kind, rest) = self.rest.split_first()?;
        self.rest = rest;
        match kind {
            0 => Some(Value::Nothing),
            1 => Some(Value::Flag(false)),
            2 => Some(Value::Flag(true)),
            3 => Some(Value::Number(f64::from_le_bytes(self.bytes(8)?.try_into().ok()?))),
            4 => {
                let length = u32::from_le_bytes(self.bytes(4)?.try_into().ok()?);
                Some(Value::Text(std::str::from_utf8(self.bytes(length as usize)?).ok()?))
            }
            5 => Some(Value::Other),
            _ => None,
        }
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}

/// Values that were checked, to be taken in the order of the table.
pub struct Values<'a>(std::vec::IntoIter<Value<'a>>);

impl<'a> Values<'a> {
    /// The next one.
    #[inline(never)] // called for every field of every request
    fn next(&mut self) -> Value<'a> {
        self.0.next().unwrap_or(Value::Nothing)
    }
}

/// A type that a field can have. What is taken was checked to be of its kind.
pub trait Field<'a>: Sized {
    /// What it can be.
    const KIND: Kind;

    /// The value as this type.
    fn of(value: Value<'a>) -> Self;

    /// Takes the next value; a group takes several.
    fn take(values: &mut Values<'a>) -> Self {
        Self::of(values.next())
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    const KIND: Kind = Kind::Optional(&T::KIND);

    fn of(value: Value<'a>) -> Self {
        (!matches!(value, Value::Nothing)).then(|| T::of(value))
    }
}

impl<'a> Field<'a> for &'a str {
    const KIND: Kind = Kind::Text;

    fn of(value: Value<'a>) -> Self {
        if let Value::Text(text) = value { text } else { "" }
    }
}

impl<'a> Field<'a> for String {
    const KIND: Kind = Kind::Text;

    fn of(value: Value<'a>) -> Self {
        <&str>::of(value).into()
    }
}

impl Field<'_> for f64 {
    const KIND: Kind = Kind::Number;

    fn of(value: Value<'_>) -> Self {
        if let Value::Number(number) = value { number } else { 0.0 }
    }
}

impl Field<'_> for u64 {
    const KIND: Kind = Kind::Whole;

    fn of(value: Value<'_>) -> Self {
        f64::of(value) as Self
    }
}

impl Field<'_> for u32 {
    const KIND: Kind = Kind::Small;

    fn of(value: Value<'_>) -> Self {
        f64::of(value) as Self
    }
}

impl Field<'_> for bool {
    const KIND: Kind = Kind::Flag;

    fn of(value: Value<'_>) -> Self {
        matches!(value, Value::Flag(true))
    }
}

impl Field<'_> for Member {
    const KIND: Kind = Kind::Json;

    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Nothing => Self::Absent,
            Value::Flag(flag) => Self::Flag(flag),
            Value::Number(number) => Self::Number(number),
            Value::Text(text) => Self::Text(text.into()),
            Value::Other => Self::Other,
        }
    }
}

/// Fields that are one word of a list; the first, if it were none of them.
macro_rules! words {
    ($($type:ty)*) => { $(
        impl Field<'_> for $type {
            const KIND: Kind = Kind::Word(&const { words_of(Self::WORDS) });

            fn of(value: Value<'_>) -> Self {
                let word = <&str>::of(value);
                let [(first, _), ..] = Self::WORDS;
                Self::WORDS.iter().find(|(_, known)| *known == word).map_or(first, |(value, _)| *value)
            }
        }
    )* };
}

words!(FolderKind Probe Say WebLockResult);

#[allow(clippy::indexing_slicing)] // a constant cannot iterate
const fn words_of<T: Copy, const N: usize>(words: [(T, &'static str); N]) -> [&'static str; N] {
    let mut all = [""; N];
    let mut at = 0;
    while at < N {
        all[at] = words[at].1;
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one field of this type.
    fn one<'a, T: Field<'a>>(bytes: &'a [u8]) -> Result<T, Wrong> {
        let table: &'static [FieldTable] = Box::leak(Box::new([("max_wait_ms", T::KIND)]));
        read("TakeOver", table, bytes).map(|mut values| T::take(&mut values))
    }

    fn check<'a, T: Field<'a> + PartialEq + std::fmt::Debug>(
        bytes: &'a [u8],
        expected: Result<T, &'static str>,
    ) {
        assert_eq!(one::<T>(bytes), expected.map_err(Into::into), "{bytes:?}");
    }

    fn number(number: f64) -> Vec<u8> {
        [&[3][..], &number.to_le_bytes()].concat()
    }

    #[test]
    fn every_kind_of_field_is_read() {
        check(&[4, 1, 0, 0, 0, b'a'], Ok("a"));
        check(&[2], Ok(true));
        check(&[0], Ok(None::<bool>));
        check(&number(7.5), Ok(Some(7.5)));
        check(&number(7.0), Ok(7_u32));
        check(&[4, 4, 0, 0, 0, b'f', b'r', b'e', b'e'], Ok(Probe::Free));
        check(&[5], Ok(Member::Other));
    }

    #[test]
    fn a_wrong_field_is_named_with_what_was_expected() {
        for bad in [&[][..], &[0], &[2], &[9], &[4, 1], &[4, 255, 255, 255, 255], &[4, 1, 0, 0, 0, 200]] {
            check::<&str>(bad, Err("takeOver.maxWaitMs: expected a text"));
        }
        let whole = "takeOver.maxWaitMs: expected a whole number";
        for bad in [-1.0, 0.5, 1e300, f64::NAN, f64::INFINITY] {
            check::<u64>(&number(bad), Err(whole));
        }
        check::<u32>(&number(4_294_967_296.0), Err(whole));
        check::<bool>(&number(1.0), Err("takeOver.maxWaitMs: expected true or false"));
        check::<Option<f64>>(&[1], Err("takeOver.maxWaitMs: expected a number"));
        check::<Probe>(
            &[4, 1, 0, 0, 0, b'x'],
            Err("takeOver.maxWaitMs: expected one of the words in border.ts"),
        );
    }

    #[test]
    fn a_field_too_many_is_refused() {
        check::<bool>(&[2, 0], Err("takeOver: there is a field too many"));
    }
}
