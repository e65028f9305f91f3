//! The fields of one request, as bytes: a byte that says which kind of value follows, then the value. TypeScript writes them
//! by the table in `web/src/border.ts`; here every field is read under its name, so that an error can say which one is wrong.
//! (JSON would have to be parsed, and the parser would be larger than the rules.)

use leasehold_project_rules::IoKind;
use leasehold_project_rules::guarded::Probe;
use leasehold_project_rules::record::Member;

use crate::border::{FolderKind, WebLockResult, camel_case};

/// What is wrong with a request: a sentence for the developer who sent it.
pub type Wrong = String;

/// The fields of a request that have not been read yet.
pub struct Fields<'a> {
    request: &'static str,
    rest: &'a [u8],
}

/// A field, before its kind is checked.
pub enum Value<'a> {
    /// Left out.
    Nothing,
    /// True or false.
    Flag(bool),
    /// Any number.
    Number(f64),
    /// A text.
    Text(&'a str),
    /// An array or an object; which one, no rule asks.
    Other,
}

/// The largest whole number that JavaScript counts to.
const LARGEST: f64 = 9_007_199_254_740_991.0;

impl<'a> Fields<'a> {
    /// All fields of a request of this name.
    pub fn new(request: &'static str, bytes: &'a [u8]) -> Self {
        Self { request, rest: bytes }
    }

    /// The next field. Not inlined: it is called for every field of every request.
    #[inline(never)]
    pub fn next<T: Field<'a>>(&mut self, name: &'static str) -> Result<T, Wrong> {
        T::read(self, name)
    }

    /// Checks that no field is left.
    pub fn end(&self) -> Result<(), Wrong> {
        match self.rest {
            [] => Ok(()),
            _ => Err(format!("{}: there is a field too many", camel_case(self.request))),
        }
    }

    fn wrong(&self, name: &str, expected: &str) -> Wrong {
        format!("{}.{}: expected {expected}", camel_case(self.request), camel_case(name))
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

/// A type that a field can have.
pub trait Field<'a>: Sized {
    /// What an error says was expected.
    const EXPECTED: &'static str;

    /// The value as this type, if it is of the right kind.
    fn of(value: Value<'a>) -> Option<Self>;

    /// Reads the next field. A group of fields reads all of them.
    fn read(fields: &mut Fields<'a>, name: &'static str) -> Result<Self, Wrong> {
        let value = fields.value().and_then(Self::of);
        value.ok_or_else(|| fields.wrong(name, Self::EXPECTED))
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn of(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Nothing => Some(None),
            value => T::of(value).map(Some),
        }
    }
}

impl<'a> Field<'a> for &'a str {
    const EXPECTED: &'static str = "a text";

    fn of(value: Value<'a>) -> Option<Self> {
        if let Value::Text(text) = value { Some(text) } else { None }
    }
}

impl<'a> Field<'a> for String {
    const EXPECTED: &'static str = <&str>::EXPECTED;

    fn of(value: Value<'a>) -> Option<Self> {
        <&str>::of(value).map(Into::into)
    }
}

impl Field<'_> for f64 {
    const EXPECTED: &'static str = "a number";

    fn of(value: Value<'_>) -> Option<Self> {
        if let Value::Number(number) = value { Some(number) } else { None }
    }
}

impl Field<'_> for u64 {
    const EXPECTED: &'static str = "a whole number";

    fn of(value: Value<'_>) -> Option<Self> {
        let number = f64::of(value).filter(|number| (0.0..=LARGEST).contains(number))?;
        let whole = number as Self;
        (whole as f64 == number).then_some(whole)
    }
}

impl Field<'_> for u32 {
    const EXPECTED: &'static str = u64::EXPECTED;

    fn of(value: Value<'_>) -> Option<Self> {
        u64::of(value)?.try_into().ok()
    }
}

impl Field<'_> for bool {
    const EXPECTED: &'static str = "true or false";

    fn of(value: Value<'_>) -> Option<Self> {
        if let Value::Flag(flag) = value { Some(flag) } else { None }
    }
}

impl Field<'_> for Member {
    const EXPECTED: &'static str = "a value of JSON";

    fn of(value: Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Nothing => Self::Absent,
            Value::Flag(flag) => Self::Flag(flag),
            Value::Number(number) => Self::Number(number),
            Value::Text(text) => Self::Text(text.into()),
            Value::Other => Self::Other,
        })
    }
}

/// Fields that are one word of a list.
macro_rules! words {
    ($($type:ty)*) => { $(
        impl Field<'_> for $type {
            const EXPECTED: &'static str = "a word that the table in border.ts has for it";

            fn of(value: Value<'_>) -> Option<Self> {
                let word = <&str>::of(value)?;
                Self::WORDS.iter().find(|(_, known)| *known == word).map(|(value, _)| *value)
            }
        }
    )* };
}

words!(FolderKind IoKind Probe WebLockResult);

#[cfg(test)]
mod tests {
    use super::*;

    fn check<'a, T: Field<'a> + PartialEq + std::fmt::Debug>(bytes: &'a [u8], expected: Result<T, &str>) {
        let read = Fields::new("TakeOver", bytes).next::<T>("max_wait_ms");
        assert_eq!(read, expected.map_err(Into::into), "{bytes:?}");
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
        let text = "takeOver.maxWaitMs: expected a text";
        for bad in [&[][..], &[0], &[2], &[9], &[4, 1], &[4, 255, 255, 255, 255], &[4, 1, 0, 0, 0, 200]] {
            check::<&str>(bad, Err(text));
        }
        let whole = "takeOver.maxWaitMs: expected a whole number";
        for bad in [-1.0, 0.5, 1e300, f64::NAN, f64::INFINITY] {
            check::<u64>(&number(bad), Err(whole));
        }
        check::<u32>(&number(4_294_967_296.0), Err(whole));
        check::<bool>(&number(1.0), Err("takeOver.maxWaitMs: expected true or false"));
        check::<Option<f64>>(&[1], Err("takeOver.maxWaitMs: expected a number"));
        assert!(Fields::new("TakeOver", &[4, 1, 0, 0, 0, b'x']).next::<Probe>("probe").is_err());
    }

    #[test]
    fn a_field_too_many_is_refused() {
        assert_eq!(Fields::new("TakeOver", &[]).end(), Ok(()));
        assert_eq!(Fields::new("TakeOver", &[0]).end(), Err("takeOver: there is a field too many".into()));
    }
}
