//! A flat list of words and numbers: each a byte that says what it is, and then what it is. It knows nothing of what they
//! mean. (Text would have to be parsed, and the parser would be larger than the rules.)

use std::borrow::Cow;

/// What is wrong with a request.
pub type Wrong = Cow<'static, str>;

/// What is left of a request.
pub struct Fields<'a>(&'a [u8]);

enum Field<'a> {
    Nothing,
    Flag(bool),
    Number(f64),
    Text(&'a str),
}

/// The largest whole number that JavaScript has.
const LARGEST: f64 = 9_007_199_254_740_991.0;

impl<'a> Fields<'a> {
    /// All of a request.
    pub fn new(request: &'a [u8]) -> Self {
        Self(request)
    }

    /// The next one, a text.
    pub fn text(&mut self) -> Result<&'a str, Wrong> {
        self.maybe_text()?.ok_or_else(|| "a text is missing".into())
    }

    /// The next one, a text or nothing.
    pub fn maybe_text(&mut self) -> Result<Option<&'a str>, Wrong> {
        match self.next()? {
            Field::Text(text) => Ok(Some(text)),
            Field::Nothing => Ok(None),
            _ => Err("a text was expected".into()),
        }
    }

    /// The next one, a number or nothing.
    pub fn maybe_number(&mut self) -> Result<Option<f64>, Wrong> {
        match self.next()? {
            Field::Number(number) => Ok(Some(number)),
            Field::Nothing => Ok(None),
            _ => Err("a number was expected".into()),
        }
    }

    /// The next one, a whole number or nothing.
    pub fn maybe_whole(&mut self) -> Result<Option<u64>, Wrong> {
        match self.maybe_number()? {
            None => Ok(None),
            Some(number) if (0.0..=LARGEST).contains(&number) => Ok(Some(number as u64)),
            Some(_) => Err("a whole number was expected".into()),
        }
    }

    /// The next one, a whole number.
    pub fn whole(&mut self) -> Result<u64, Wrong> {
        self.maybe_whole()?.ok_or_else(|| "a number is missing".into())
    }

    /// The next one, a whole number of 32 bits.
    pub fn small(&mut self) -> Result<u32, Wrong> {
        u32::try_from(self.whole()?).map_err(|_| "a smaller number was expected".into())
    }

    /// The next one, true, false or nothing.
    pub fn maybe_flag(&mut self) -> Result<Option<bool>, Wrong> {
        match self.next()? {
            Field::Flag(flag) => Ok(Some(flag)),
            Field::Nothing => Ok(None),
            _ => Err("true or false was expected".into()),
        }
    }

    /// The next one, true or not.
    pub fn flag(&mut self) -> Result<bool, Wrong> {
        Ok(self.maybe_flag()?.unwrap_or_default())
    }

    /// The next one. After the last one there is nothing.
    fn next(&mut self) -> Result<Field<'a>, Wrong> {
        let Some((kind, rest)) = self.0.split_first() else { return Ok(Field::Nothing) };
        self.0 = rest;
        match kind {
            0 => Some(Field::Nothing),
            1 => Some(Field::Flag(false)),
            2 => Some(Field::Flag(true)),
            3 => self
                .take(8)
                .and_then(|bytes| bytes.try_into().ok())
                .map(f64::from_le_bytes)
                .map(Field::Number),
            4 => self.take_text().map(Field::Text),
            _ => None,
        }
        .ok_or_else(|| "the request is damaged".into())
    }

    fn take_text(&mut self) -> Option<&'a str> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        std::str::from_utf8(self.take(length as usize)?).ok()
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_field_is_read_in_its_turn() {
        let request = [&[4, 1, 0, 0, 0, b'a', 3][..], &7.5_f64.to_le_bytes(), &[0, 2, 1]].concat();
        let mut fields = Fields::new(&request);
        assert_eq!(fields.text().unwrap(), "a");
        assert_eq!(fields.maybe_number().unwrap(), Some(7.5));
        assert_eq!(fields.maybe_text().unwrap(), None);
        assert!(fields.flag().unwrap());
        assert!(!fields.flag().unwrap());
        assert!(!fields.flag().unwrap(), "what is not there is not true");
    }

    #[test]
    fn what_makes_no_sense_is_an_error_and_never_a_panic() {
        for bad in [&[4, 255, 255, 255, 255][..], &[4, 1, 0, 0, 0, 200], &[3, 1], &[9], &[4, 1]] {
            assert!(Fields::new(bad).maybe_text().is_err(), "{bad:?}");
        }
        assert!(Fields::new(&[2]).text().is_err());
        assert!(Fields::new(&[]).text().is_err());
        let nan = [&[3][..], &f64::NAN.to_le_bytes()].concat();
        assert!(Fields::new(&nan).whole().is_err());
    }
}
