//! Writes JSON, as much of it as the border needs: objects, lists, texts, whole numbers and flags. serde_json does the same in
//! more bytes, which every page would load (decision 7 has the figures). Browsers parse what it writes; so do the tests.

use leasehold_core::name::LeaseId;

/// Something that is written as JSON, as bytes of UTF-8.
pub trait Json {
    /// Appends it.
    fn write(&self, out: &mut Vec<u8>);

    /// Appends it as a member of an object, unless it is absent.
    fn write_member(&self, name: &str, out: &mut Vec<u8>) {
        begin_member(name, out);
        self.write(out);
    }
}

/// Begins an object; `tag`, if there is one, becomes its member `do`.
pub fn begin_object(tag: &str, out: &mut Vec<u8>) {
    out.push(b'{');
    if !tag.is_empty() {
        begin_member("do", out);
        out.push(b'"');
        push_camel_case(tag, out);
        out.push(b'"');
    }
}

/// Appends the name of a member, which is that of Rust, in snake case.
#[inline(never)] // called for every member of every object
pub fn begin_member(name: &str, out: &mut Vec<u8>) {
    if !out.ends_with(b"{") {
        out.push(b',');
    }
    out.push(b'"');
    push_camel_case(name, out);
    out.extend_from_slice(b"\":");
}

/// A name of Rust as TypeScript writes it: `max_wait_ms` and `TakeOver` become `maxWaitMs` and `takeOver`.
pub fn camel_case(name: &str) -> String {
    let mut camel = Vec::new();
    push_camel_case(name, &mut camel);
    String::from_utf8(camel).unwrap_or_default()
}

#[inline(never)] // called for every name
fn push_camel_case(name: &str, out: &mut Vec<u8>) {
    let mut is_first = true;
    let mut after_underscore = false;
    for byte in name.strip_prefix("r#").unwrap_or(name).bytes() {
        match byte {
            b'_' => {}
            _ if is_first => out.push(byte.to_ascii_lowercase()),
            _ if after_underscore => out.push(byte.to_ascii_uppercase()),
            _ => out.push(byte),
        }
        after_underscore = byte == b'_';
        is_first = false;
    }
}

impl Json for str {
    #[inline(never)] // most of what is written is texts
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        for byte in self.bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                ..b' ' => {
                    let digit = |number: u8| if number < 10 { b'0' + number } else { b'a' - 10 + number };
                    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte / 16), digit(byte % 16)]);
                }
                _ => out.push(byte),
            }
        }
        out.push(b'"');
    }

    #[inline(never)]
    fn write_member(&self, name: &str, out: &mut Vec<u8>) {
        begin_member(name, out);
        self.write(out);
    }
}

impl<T: Json + ?Sized> Json for &T {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn write_member(&self, name: &str, out: &mut Vec<u8>) {
        (**self).write_member(name, out);
    }
}

impl Json for String {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_str().write(out);
    }

    fn write_member(&self, name: &str, out: &mut Vec<u8>) {
        self.as_str().write_member(name, out);
    }
}

impl Json for std::borrow::Cow<'_, str> {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}

impl Json for LeaseId {
    fn write(&self, out: &mut Vec<u8>) {
        self.reveal().write(out);
    }
}

impl Json for u64 {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.to_string().as_bytes());
    }

    #[inline(never)]
    fn write_member(&self, name: &str, out: &mut Vec<u8>) {
        begin_member(name, out);
        self.write(out);
    }
}

impl Json for u32 {
    fn write(&self, out: &mut Vec<u8>) {
        u64::from(*self).write(out);
    }

    fn write_member(&self, name: &str, out: &mut Vec<u8>) {
        u64::from(*self).write_member(name, out);
    }
}

impl Json for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if *self { b"true" } else { b"false" });
    }

    #[inline(never)]
    fn write_member(&self, name: &str, out: &mut Vec<u8>) {
        begin_member(name, out);
        self.write(out);
    }
}

impl<T: Json> Json for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.write(out),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn write_member(&self, name: &str, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.write_member(name, out);
        }
    }
}

impl<T: Json> Json for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        write_list(self.iter(), out);
    }

    fn write_member(&self, name: &str, out: &mut Vec<u8>) {
        if !self.is_empty() {
            begin_member(name, out);
            self.write(out);
        }
    }
}

/// Appends a list.
pub fn write_list<T: Json>(items: impl Iterator<Item = T>, out: &mut Vec<u8>) {
    let mut before = b'[';
    for item in items {
        out.push(before);
        item.write(out);
        before = b',';
    }
    if before == b'[' {
        out.push(before);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &dyn Json) -> serde_json::Value {
        let mut out = Vec::new();
        value.write(&mut out);
        serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {out:?}"))
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
        let mut out = Vec::new();
        begin_object("DropHeld", &mut out);
        none.write_member("a_b", &mut out);
        some.write_member("r#type", &mut out);
        Vec::<u32>::new().write_member("list", &mut out);
        vec![true, false].write_member("flags", &mut out);
        out.push(b'}');
        let expected = r#"{"do":"dropHeld","type":18446744073709551615,"flags":[true,false]}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(written(&some), serde_json::Value::from(u64::MAX));
    }
}
