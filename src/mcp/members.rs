//! Reads the members of an object in one pass, if the text is as nearly all messages are.
//!
//! `serde_json` takes several times as long: it reads the params again to find their members, and `_meta` again. It stays the
//! judge of all that is not read here.

use std::borrow::Cow;

use serde::Deserialize as _;
use serde::de::value::{BorrowedStrDeserializer, Error, MapAccessDeserializer};
use serde::de::{DeserializeSeed, IntoDeserializer as _, MapAccess};
use serde_json::value::RawValue;

use super::words::ends_of_plain;

/// The names and values of the members of an object, in their order.
pub(super) type Members<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// A text that is nested more deeply is left to `serde_json`: the bits of a number note the open containers.
const DEPTH_MAX: usize = 64;

/// The members of an object, and those of the objects in it that the path names: the first name is that of a member, the second
/// that of a member of this member.
///
/// A text that is read is JSON. It is not nested more deeply than [`DEPTH_MAX`], and has no half of a surrogate pair.
/// After `None` nothing is certain: the text has one of these faults, or the name of a member has an escape.
pub(super) fn members<'a, const N: usize>(
    text: &'a str,
    path: [&str; N],
) -> Option<(Members<'a>, [Option<Members<'a>>; N])> {
    let mut inner = [const { None }; N];
    let mut reader = Reader {
        text,
        rest: text.as_bytes(),
    };
    let members = reader.object(1, &path, &mut inner)?;
    // Nothing may follow.
    reader.token().is_none().then_some((members, inner))
}

struct Reader<'a> {
    text: &'a str,
    /// The bytes that are not read yet.
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads an object at this depth.
    fn object(
        &mut self,
        depth: usize,
        path: &[&str],
        inner: &mut [Option<Members<'a>>],
    ) -> Option<Members<'a>> {
        if self.token()? != b'{' {
            return None;
        }
        // Few objects of the protocol have more members.
        let mut members: Members<'a> = Vec::with_capacity(6);
        let mut token = self.token()?;
        if token == b'}' {
            return Some(members);
        }
        loop {
            if token != b'"' {
                return None;
            }
            let name = self.text_of(Self::plain_string)?;
            let name = name.get(..name.len() - 1)?;
            if self.token()? != b':' {
                return None;
            }
            self.skip_space();
            let value = match (path, &mut *inner) {
                ([wanted, path @ ..], [found, inner @ ..])
                    // Only the first member of a name is followed, because `Object::get` returns the first, too.
                    if name == *wanted
                        && self.rest.first() == Some(&b'{')
                        && members.iter().all(|(earlier, _)| earlier != name) =>
                {
                    self.text_of(|reader| {
                        *found = Some(reader.object(depth + 1, path, inner)?);
                        Some(())
                    })
                }
                _ => self.text_of(|reader| reader.value(depth)),
            };
            members.push((Cow::Borrowed(name), raw(value?)?));
            match self.token()? {
                b',' => token = self.token()?,
                b'}' => return Some(members),
                _ => return None,
            }
        }
    }

    /// The text that `read` consumes.
    fn text_of(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<&'a str> {
        let from = self.text.len() - self.rest.len();
        read(self)?;
        self.text.get(from..self.text.len() - self.rest.len())
    }

    /// Consumes a value in a container of this depth, without recursion.
    fn value(&mut self, outer: usize) -> Option<()> {
        let mut depth = outer;
        // A bit for each container that is open here, the innermost lowest. 1: an object.
        let mut containers = 0_u64;
        let mut is_name = false;
        loop {
            match self.token()? {
                b'"' => {
                    self.string()?;
                    if is_name {
                        if self.token()? != b':' {
                            return None;
                        }
                        is_name = false;
                        continue;
                    }
                }
                _ if is_name => return None,
                open @ (b'{' | b'[') => {
                    // The bound also keeps the depth within the bits of `containers`.
                    if depth == DEPTH_MAX {
                        return None;
                    }
                    is_name = open == b'{';
                    self.skip_space();
                    match self.rest.split_first()? {
                        // "{" and "}", "[" and "]" are two apart.
                        (close, rest) if *close == open + 2 => {
                            self.rest = rest;
                            is_name = false;
                        }
                        _ => {
                            containers = containers << 1 | u64::from(is_name);
                            depth += 1;
                            continue;
                        }
                    }
                }
                first @ (b'-' | b'0'..=b'9') => self.number(first)?,
                b't' => self.word(b"rue")?,
                b'f' => self.word(b"alse")?,
                b'n' => self.word(b"ull")?,
                _ => return None,
            }
            // A value has come to its end.
            while depth > outer {
                let is_object = containers & 1 == 1;
                match self.token()? {
                    b',' => {
                        is_name = is_object;
                        break;
                    }
                    b'}' if is_object => {}
                    b']' if !is_object => {}
                    _ => return None,
                }
                containers >>= 1;
                depth -= 1;
            }
            if depth == outer {
                return Some(());
            }
        }
    }

    /// Consumes a string after its first quote.
    fn string(&mut self) -> Option<()> {
        while self.end_of_plain()? != b'"' {
            match self.next()? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                b'u' => self.unit()?,
                _ => return None,
            }
        }
        Some(())
    }

    /// Consumes a string without escapes after its first quote.
    fn plain_string(&mut self) -> Option<()> {
        (self.end_of_plain()? == b'"').then_some(())
    }

    /// Consumes the characters that stand for themselves in a string, and the quote or backslash behind them.
    #[inline]
    fn end_of_plain(&mut self) -> Option<u8> {
        while let Some((word, rest)) = self.rest.split_first_chunk() {
            let ends = ends_of_plain(u64::from_le_bytes(*word));
            // The first byte of the text is the lowest of the word, so the lowest bit that is set is right.
            if ends != 0 {
                self.rest = self.rest.get(ends.trailing_zeros() as usize / 8..)?;
                break;
            }
            self.rest = rest;
        }
        loop {
            match self.next()? {
                end @ (b'"' | b'\\') => return Some(end),
                // No string has a control character.
                ..b' ' => return None,
                _ => {}
            }
        }
    }

    /// Consumes the digits of an escape such as `\u0041`, and the second half of a surrogate pair.
    fn unit(&mut self) -> Option<()> {
        match self.hex4()? {
            [b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..] => {
                self.word(b"\\u")?;
                let second = self.hex4()?;
                matches!(second, [b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..]).then_some(())
            }
            [b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..] => None,
            _ => Some(()),
        }
    }

    fn hex4(&mut self) -> Option<&'a [u8; 4]> {
        let (digits, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)
    }

    /// Consumes a number after its first byte.
    fn number(&mut self, first: u8) -> Option<()> {
        match if first == b'-' { self.next()? } else { first } {
            b'0' => {}
            b'1'..=b'9' => self.skip_digits(),
            _ => return None,
        }
        if let [b'.', rest @ ..] = self.rest {
            self.rest = rest;
            self.digits()?;
        }
        if let [b'e' | b'E', b'+' | b'-', rest @ ..] | [b'e' | b'E', rest @ ..] = self.rest {
            self.rest = rest;
            self.digits()?;
        }
        Some(())
    }

    /// Consumes at least one digit.
    fn digits(&mut self) -> Option<()> {
        let is_number = self.next()?.is_ascii_digit();
        self.skip_digits();
        is_number.then_some(())
    }

    fn skip_digits(&mut self) {
        while let [b'0'..=b'9', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    /// Consumes the next byte that is no space.
    fn token(&mut self) -> Option<u8> {
        loop {
            let byte = self.next()?;
            if !is_space(byte) {
                return Some(byte);
            }
        }
    }

    fn skip_space(&mut self) {
        while let Some((byte, rest)) = self.rest.split_first()
            && is_space(*byte)
        {
            self.rest = rest;
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }
}

fn is_space(byte: u8) -> bool {
    // Nearly all bytes are beyond all spaces.
    byte <= b' ' && matches!(byte, b' ' | b'\n' | b'\t' | b'\r')
}

/// A text that was read as a value, without a second look.
fn raw(text: &str) -> Option<&RawValue> {
    <&RawValue>::deserialize(MapAccessDeserializer::new(ReadValue(text))).ok()
}

/// A value as `serde_json` hands it to a raw value: a map with one member of that name.
struct ReadValue<'a>(&'a str);

/// Private to `serde_json`. If it has another name there one day, no object is read here, and `serde_json` reads all.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

impl<'de> MapAccess<'de> for ReadValue<'de> {
    type Error = Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        seed.deserialize(RAW_VALUE.into_deserializer()).map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(BorrowedStrDeserializer::new(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_messages_are_read_and_all_else_is_left_to_serde_json() {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"a":{open}{close}}}"#)
        };
        let deepest = nested(DEPTH_MAX - 1);
        for usual in [
            " {} ",
            r#"{"a":[ ],"b":{ },"c":[{"d":[1,{"e":null}]},true,false]}"#,
            r#"{"a":-0.5e+3,"b":10,"c":0,"d":1E9}"#,
            r#"{"a":"\ud83d\ude00 \n\u00e9\/","a":"é"}"#,
            &deepest,
        ] {
            assert!(members(usual, []).is_some(), "{usual}");
        }
        let too_deep = nested(DEPTH_MAX);
        for other in [
            "",
            "[]",
            "{} x",
            "\u{feff}{}",
            r#"{"a":1,}"#,
            r#"{"a":[1,]}"#,
            r#"{"a":[1}}"#,
            r#"{"a":{"b"}}"#,
            r#"{"a":{1:2}}"#,
            r#"{"a":01}"#,
            r#"{"a":1.}"#,
            r#"{"a":-}"#,
            r#"{"a":"\ud83d"}"#,
            r#"{"a":"\ude00"}"#,
            r#"{"a":"\ud83d\ud83d"}"#,
            r#"{"a":"\x"}"#,
            r#"{"\u0061":1}"#,
            "{\"a\":\"0123456\n\"}",
            "{\"a\":\"0\u{1}\"}",
            &too_deep,
        ] {
            assert!(members(other, []).is_none(), "{other}");
        }
    }

    #[test]
    fn the_first_member_of_a_name_is_the_one_on_the_path() {
        let read = |text| {
            let (_, [params, meta]) = members(text, ["params", "_meta"]).unwrap();
            (params.map(|it| it.len()), meta.map(|it| it.len()))
        };
        for (text, found) in [
            (r#"{"params":{"a":1,"_meta":{}}}"#, (Some(2), Some(0))),
            (r#"{"params":7,"params":{"_meta":{}}}"#, (None, None)),
            (r#"{"params":{},"params":{"_meta":{}}}"#, (Some(0), None)),
            (r#"{"_meta":{},"a":{"params":{}}}"#, (None, None)),
        ] {
            assert_eq!(read(text), found, "{text}");
        }
    }
}
