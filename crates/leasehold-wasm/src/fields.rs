//! What a request carries, packed: its name, and then the name and the value of each field. A value is one byte that says what
//! it is, followed by what it is: a number as eight bytes, a text as its length in four bytes and its bytes of UTF-8. The
//! fields are checked against the table of the request, so that an error can say which one is wrong, and then taken one by one
//! as the types that the request declares. (JSON would have to be parsed, and the parser would be larger than the rules.)

use std::borrow::Cow;

use leasehold_project_rules::guarded::Probe;
use leasehold_project_rules::record::Member;
use leasehold_project_rules::wire::json::camel_case;
use leasehold_project_rules::{Say, joined};

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

/// A request as it was sent: its name, and its fields in any order.
pub struct Sent<'a> {
    /// Its name, in camel case.
    pub request: &'a str,
    fields: Vec<(&'a str, Value<'a>)>,
}

impl<'a> Sent<'a> {
    /// Takes a request apart; `None` if it is cut off.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader { rest: bytes };
        let mut sent = Self { request: reader.text()?, fields: Vec::new() };
        while !reader.rest.is_empty() {
            sent.fields.push((reader.text()?, reader.value()?));
        }
        Some(sent)
    }

    /// Checks the fields that the table names; others are passed over.
    pub fn values(&self, table: &'static [FieldTable]) -> Result<Values<'a>, Wrong> {
        let mut values = Vec::new();
        match self.check(table, &mut values) {
            Ok(()) => Ok(Values(values.into_iter())),
            Err((name, kind)) => {
                let name = camel_case(name);
                Err(joined(&[self.request, ".", &name, ": expected ", kind.expected()]).into())
            }
        }
    }

    /// Or says which field is missing or wrong.
    fn check(
        &self,
        table: &'static [FieldTable],
        values: &mut Vec<Value<'a>>,
    ) -> Result<(), &'static FieldTable> {
        for field in table {
            if let Kind::Group(group) = field.1 {
                self.check(group, values)?;
                continue;
            }
            let name = camel_case(field.0);
            let sent = self.fields.iter().find(|(sent, _)| *sent == name);
            let value = sent.map_or(Value::Nothing, |(_, value)| *value);
            if !field.1.allows(value) {
                return Err(field);
            }
            values.push(value);
        }
        Ok(())
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn text(&mut self) -> Option<&'a str> {
        if let Value::Text(text) = self.value()? { Some(text) } else { None }
    }

    /// The next value; `None` when there is none, or when it is cut off.
    fn value(&mut self) -> Option<Value<'a>> {
        let [kind] = self.bytes()?;
        match kind {
            0 => Some(Value::Nothing),
            1 => Some(Value::Flag(false)),
            2 => Some(Value::Flag(true)),
            3 => Some(Value::Number(f64::from_le_bytes(self.bytes()?))),
            4 => {
                let length = u32::from_le_bytes(self.bytes()?);
                let (text, rest) = self.rest.split_at_checked(length as usize)?;
                self.rest = rest;
                Some(Value::Text(std::str::from_utf8(text).ok()?))
            }
            5 => Some(Value::Other),
            _ => None,
        }
    }

    fn bytes<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
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

    fn text(text: &str) -> Vec<u8> {
        [&[4][..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
    }

    /// A request with this one field, and another that its table does not name.
    fn sent(value: &[u8]) -> &'static [u8] {
        let (request, other) = (text("takeOver"), [text("signal"), vec![5]].concat());
        Box::leak([request, other, text("maxWaitMs"), value.to_vec()].concat().into_boxed_slice())
    }

    /// Reads one field of this type.
    fn check<T: Field<'static> + PartialEq + std::fmt::Debug>(
        value: &[u8],
        expected: Result<T, &'static str>,
    ) {
        let table: &'static [FieldTable] = Box::leak(Box::new([("max_wait_ms", T::KIND)]));
        let read = Sent::read(sent(value)).unwrap().values(table);
        let read = read.map(|mut values| T::take(&mut values));
        assert_eq!(read, expected.map_err(Into::into), "{value:?}");
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
        for bad in [&[0][..], &[2], &[5]] {
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
    fn a_field_that_is_not_there_is_named_too() {
        let request = text("takeOver");
        let table: &'static [FieldTable] = &[("max_wait_ms", Kind::Flag)];
        let wrong = Sent::read(&request).unwrap().values(table).err();
        assert_eq!(wrong, Some("takeOver.maxWaitMs: expected true or false".into()));
    }

    #[test]
    fn what_is_cut_off_is_no_request() {
        for bad in [&[][..], &[9], &[4, 1], &[4, 255, 255, 255, 255], &[4, 1, 0, 0, 0, 200]] {
            assert!(Sent::read(bad).is_none() && Sent::read(sent(bad)).is_none(), "{bad:?}");
        }
        let whole = sent(&[3, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(Sent::read(whole).is_some());
        for end in whole.len() - 8..whole.len() {
            assert!(Sent::read(&whole[..end]).is_none(), "{end}");
        }
    }
}
