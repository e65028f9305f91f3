//! Writes JSON, as much of it as the border needs: objects, lists, texts, whole numbers and flags. serde_json does the same in
//! more bytes, which every page would load (decision 7 has the figures). Browsers parse what it writes; so do the tests.

use super::ErrorOrCode;

/// Something that is written as JSON.
pub trait Json {
    /// Appends it.
    fn write(&self, out: &mut String);

    /// Whether an object leaves it out.
    fn is_absent(&self) -> bool {
        false
    }
}

/// Appends an object; `tag`, if there is one, as its member `do`. Names are those of Rust, in snake case.
pub fn object(out: &mut String, tag: &str, members: &[(&str, &dyn Json)]) {
    out.push('{');
    if !tag.is_empty() {
        out.push_str("\"do\":\"");
        out.push_str(&camel_case(tag));
        out.push('"');
    }
    for (name, value) in members.iter().filter(|(_, value)| !value.is_absent()) {
        if !out.ends_with('{') {
            out.push(',');
        }
        out.push('"');
        out.push_str(&camel_case(name));
        out.push_str("\":");
        value.write(out);
    }
    out.push('}');
}

/// A name of Rust as TypeScript writes it: `max_wait_ms` and `TakeOver` become `maxWaitMs` and `takeOver`.
pub fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut after_underscore = false;
    for (at, letter) in name.strip_prefix("r#").unwrap_or(name).chars().enumerate() {
        match letter {
            '_' => after_underscore = true,
            _ if after_underscore => {
                camel.push(letter.to_ascii_uppercase());
                after_underscore = false;
            }
            _ if at == 0 => camel.push(letter.to_ascii_lowercase()),
            _ => camel.push(letter),
        }
    }
    camel
}

impl Json for str {
    fn write(&self, out: &mut String) {
        out.push('"');
        for letter in self.chars() {
            match letter {
                '"' | '\\' => out.extend(['\\', letter]),
                '\0'..='\u{1F}' => {
                    let digit = |number: u32| char::from_digit(number, 16).unwrap_or('0');
                    let number = u32::from(letter);
                    out.extend(['\\', 'u', '0', '0', digit(number / 16), digit(number % 16)]);
                }
                _ => out.push(letter),
            }
        }
        out.push('"');
    }
}

impl Json for &str {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

impl Json for String {
    fn write(&self, out: &mut String) {
        self.as_str().write(out);
    }
}

impl Json for std::borrow::Cow<'_, str> {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

impl Json for u64 {
    fn write(&self, out: &mut String) {
        out.push_str(&self.to_string());
    }
}

impl Json for u32 {
    fn write(&self, out: &mut String) {
        u64::from(*self).write(out);
    }
}

impl Json for bool {
    fn write(&self, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
}

impl<T: Json + ?Sized> Json for Box<T> {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

impl<T: Json> Json for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("null"),
        }
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: Json> Json for Vec<T> {
    fn write(&self, out: &mut String) {
        out.push('[');
        for (at, item) in self.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            item.write(out);
        }
        out.push(']');
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl Json for ErrorOrCode {
    fn write(&self, out: &mut String) {
        match self {
            Self::Error(error) => error.write(out),
            Self::Code(code) => code.write(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &dyn Json) -> serde_json::Value {
        let mut out = String::new();
        value.write(&mut out);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    #[test]
    fn every_text_comes_back_as_it_was() {
        let all: String =
            (0..=0x3000).filter_map(char::from_u32).chain("\u{2028}\u{FEFF}😀\u{10FFFF}".chars()).collect();
        for text in ["", "\"", "\\", "\\\"\\", "\0\u{1}\t\n\r\u{1F}\u{7F}", &all] {
            assert_eq!(written(&text), serde_json::Value::from(text));
        }
    }

    #[test]
    fn what_is_absent_is_left_out() {
        let (none, some): (Option<u64>, _) = (None, Some(u64::MAX));
        let mut out = String::new();
        object(
            &mut out,
            "DropHeld",
            &[("a_b", &none), ("r#type", &some), ("list", &Vec::<u32>::new()), ("flags", &vec![true, false])],
        );
        assert_eq!(out, r#"{"do":"dropHeld","type":18446744073709551615,"flags":[true,false]}"#);
        assert_eq!(written(&some), serde_json::Value::from(u64::MAX));
    }
}
