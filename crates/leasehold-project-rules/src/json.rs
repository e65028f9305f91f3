//! Reads one JSON object, as much of it as `.lock` needs: what is nested is checked and passed over. A library is too
//! large for a page that has to load it (decision 5). It must never panic, whatever the text.

/// The value of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number that is not negative, in thousandths; what is smaller than one is cut off.
    Thousandths(u64),
    /// True or false.
    Flag(bool),
    /// Null.
    Null,
    /// An array, an object, or a number that is none of ours.
    Other,
}

/// How deep arrays and objects may be nested.
const DEEPEST: u32 = 32;

/// The members of the object that the text is, in order; `None` when it is none.
pub fn members(text: &str) -> Option<Vec<(String, Value)>> {
    let mut reader = Reader { rest: text.as_bytes() };
    reader.space();
    let members = reader.object(0)?;
    reader.space();
    reader.rest.is_empty().then_some(members)
}

/// The rest of the text.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_ascii_start_json();
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn is_next(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn word(&mut self, word: &[u8], value: Value) -> Option<Value> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(value)
    }

    fn object(&mut self, depth: u32) -> Option<Vec<(String, Value)>> {
        let mut members = Vec::new();
        self.list(b'{', b'}', depth, |reader| {
            reader.space();
            let name = reader.is_next(b'"').then(|| reader.text())??;
            reader.space();
            let value = reader.is_next(b':').then(|| reader.value(depth + 1))??;
            members.push((name, value));
            Some(())
        })?;
        Some(members)
    }

    fn list(
        &mut self,
        open: u8,
        close: u8,
        depth: u32,
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if depth > DEEPEST || !self.is_next(open) {
            return None;
        }
        self.space();
        if self.is_next(close) {
            return Some(());
        }
        loop {
            item(self)?;
            self.space();
            match self.next()? {
                b',' => {}
                byte if byte == close => return Some(()),
                _ => return None,
            }
        }
    }

    fn value(&mut self, depth: u32) -> Option<Value> {
        self.space();
        match *self.rest.first()? {
            b'{' => self.object(depth).map(|_| Value::Other),
            b'[' => self
                .list(b'[', b']', depth, |reader| reader.value(depth + 1).map(drop))
                .map(|()| Value::Other),
            b'"' => {
                self.next()?;
                self.text().map(Value::Text)
            }
            b't' => self.word(b"true", Value::Flag(true)),
            b'f' => self.word(b"false", Value::Flag(false)),
            b'n' => self.word(b"null", Value::Null),
            _ => self.number(),
        }
    }

    /// A text, after its first quotation mark.
    fn text(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        loop {
            match self.next()? {
                b'"' => return String::from_utf8(bytes).ok(),
                b'\\' => {
                    let escaped = self.escape()?;
                    bytes.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
                }
                0..=0x1F => return None,
                byte => bytes.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        match self.next()? {
            byte @ (b'"' | b'\\' | b'/') => Some(char::from(byte)),
            b'b' => Some('\u{8}'),
            b'f' => Some('\u{C}'),
            b'n' => Some('\n'),
            b'r' => Some('\r'),
            b't' => Some('\t'),
            b'u' => self.code_point(),
            _ => None,
        }
    }

    /// One code point, in one escape or in two that belong together.
    fn code_point(&mut self) -> Option<char> {
        let first = self.hex()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first);
        }
        self.rest = self.rest.strip_prefix(b"\\u")?;
        let second = self.hex().filter(|second| (0xDC00..0xE000).contains(second))?;
        char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
    }

    fn hex(&mut self) -> Option<u32> {
        (0..4).try_fold(0, |number, _| Some(number * 16 + char::from(self.next()?).to_digit(16)?))
    }

    fn number(&mut self) -> Option<Value> {
        let negative = self.is_next(b'-');
        let whole = self.digits();
        if whole.is_empty() || (whole.len() > 1 && whole.first() == Some(&b'0')) {
            return None;
        }
        let fraction = if self.is_next(b'.') { self.digits() } else { b"0" };
        if fraction.is_empty() {
            return None;
        }
        let scaled = self.exponent()?;
        let thousandths = fraction.iter().chain(b"00").take(3);
        let number = whole.iter().chain(thousandths).try_fold(0_u64, |number, digit| {
            number.checked_mul(10)?.checked_add(u64::from(digit.saturating_sub(b'0')))
        });
        let ours = number.filter(|_| !scaled && !negative);
        Some(ours.map_or(Value::Other, Value::Thousandths))
    }

    fn digits(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, &[]));
        self.rest = rest;
        digits
    }

    /// Whether there was an exponent.
    fn exponent(&mut self) -> Option<bool> {
        if !self.is_next(b'e') && !self.is_next(b'E') {
            return Some(false);
        }
        if !self.is_next(b'-') {
            self.is_next(b'+');
        }
        (!self.digits().is_empty()).then_some(true)
    }
}

/// JSON's own idea of white space.
trait Trim {
    fn trim_ascii_start_json(&self) -> &Self;
}

impl Trim for [u8] {
    fn trim_ascii_start_json(&self) -> &Self {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let end = self.iter().position(|byte| !blank(byte)).unwrap_or(self.len());
        self.get(end..).unwrap_or_default()
    }
}

/// The text as JSON, in quotation marks.
pub fn quoted(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            // What an owner's name never has; any reader takes a space for it.
            '\0'..='\u{1F}' => json.push(' '),
            _ => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(json: &str) -> Option<Value> {
        let mut members = members(&format!("{{\"a\":{json}}}"))?;
        members.pop().map(|(_, value)| value)
    }

    #[test]
    fn every_kind_of_value() {
        let cases = [
            (r#""x\n\"\\\/é\u00e9\ud83d\ude00""#, Value::Text("x\n\"\\/éé😀".into())),
            ("0", Value::Thousandths(0)),
            ("30", Value::Thousandths(30_000)),
            ("6.5", Value::Thousandths(6_500)),
            ("6.0259999", Value::Thousandths(6_025)),
            ("9007199254740991", Value::Thousandths(9_007_199_254_740_991_000)),
            ("99999999999999999999", Value::Other),
            ("-1", Value::Other),
            ("1e3", Value::Other),
            ("true", Value::Flag(true)),
            (" false ", Value::Flag(false)),
            ("null", Value::Null),
            (r#"[1,{"b":[]},"c"]"#, Value::Other),
        ];
        for (json, expected) in cases {
            assert_eq!(one(json), Some(expected), "{json}");
        }
        assert_eq!(members(" {} "), Some(Vec::new()));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for json in [
            "",
            "{",
            "[]",
            "1",
            "null",
            "{}x",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":01}",
            "{\"a\":.5}",
            "{\"a\":1.}",
            "{\"a\":1e}",
            "{\"a\":+1}",
            "{\"a\":tru}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":\"\\ud800\\u0041\"}",
            "{\"a\":[1,]}",
            "{\"a\":00}",
        ] {
            assert_eq!(members(json), None, "{json}");
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(members(&deep), None);
    }
}
