//! Raw JSON: objects as lists of raw members, and edits that leave every other byte where it was.
//!
//! `serde_json::Value` keeps the last duplicate, rounds large numbers and forgets the exact bytes. In a
//! proxy, the request that is routed and the bytes that are forwarded must not differ.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::members::{Members, members};
pub use super::scan::Fault;
use super::words::{all_words, ends_of_plain, has_backslash};

/// A JSON object as the list of its members, duplicates and order kept, values unread.
#[derive(Debug, Clone, Default)]
pub struct Object<'a> {
    members: Members<'a>,
}

impl<'a> Object<'a> {
    pub fn parse(text: &'a str) -> Result<Self, Fault> {
        match Self::read_plain(text, []) {
            Some((object, [])) => Ok(object),
            // The quick pass gives up where a name has an escape, and where JSON is nested deeply: both are valid here.
            None => serde_json::from_str(text).map_err(|_| Fault::Syntax),
        }
    }

    /// Reads the object, if it is of the form that nearly all messages have: then [`scan`](super::scan::scan) finds
    /// no fault in it. `None` has no meaning for the text. The path names objects that are read on the way, each a
    /// member of the one before.
    pub fn read_plain<const N: usize>(
        text: &'a str,
        path: [&str; N],
    ) -> Option<(Self, [Option<Self>; N])> {
        let (members, inner) = members(text, path)?;
        let object = |members| Self { members };
        Some((object(members), inner.map(|it| it.map(object))))
    }

    /// The value of the first member of that name. Inlined, a name that is known when this is compiled is compared in a few
    /// instructions.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.members.iter().find(|(k, _)| k == key).map(|(_, v)| *v)
    }

    /// The member as a string; `None` if it is absent or anything else.
    #[inline]
    pub fn get_str(&self, key: &str) -> Option<Cow<'a, str>> {
        self.get(key).and_then(string)
    }

    /// The member as an object; `None` if it is absent or anything else.
    pub fn get_object(&self, key: &str) -> Option<Self> {
        self.get(key).and_then(|raw| Self::parse(raw.get()).ok())
    }

    #[inline]
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.members.iter().map(|(k, v)| (&**k, *v))
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns `true` if a reserved name appears twice, or in another case than its own. Two readers could understand
    /// such an object differently, so it is refused and never forwarded.
    pub fn is_ambiguous(&self, reserved: &[&str]) -> bool {
        let mut seen = 0_u64;
        for (key, _) in &self.members {
            // Nearly all names are either a reserved one as it is, or like none.
            let Some(at) = reserved.iter().position(|name| key == name) else {
                if is_folded(key, reserved) {
                    return true;
                }
                continue;
            };
            // No list of reserved names has more than 64. The mask only keeps the shift from a panic.
            let bit = 1_u64 << (at & 63);
            if seen & bit != 0 {
                return true;
            }
            seen |= bit;
        }
        false
    }

    /// The object as text, without the members that `keep` refuses.
    pub fn render_filtered(&self, mut keep: impl FnMut(&str) -> bool) -> String {
        let mut writer = Writer::object();
        for (key, value) in &self.members {
            if keep(key) {
                writer.raw(key, value.get());
            }
        }
        writer.end()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersReader;
        impl<'de> Visitor<'de> for MembersReader {
            type Value = Object<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members = Vec::with_capacity(6);
                while let Some(MemberName(key)) = map.next_key()? {
                    members.push((key, map.next_value()?));
                }
                Ok(Object { members })
            }
        }
        deserializer.deserialize_map(MembersReader)
    }
}

/// Returns `true` if some reader takes `key` for `name`: it may ignore case.
pub fn may_be_read_as(key: &str, name: &str) -> bool {
    is_folded(key, &[name])
}

/// Returns `true` if a reader that ignores case takes `key` for one of these names.
fn is_folded(key: &str, names: &[&str]) -> bool {
    if key.is_ascii() {
        names.iter().any(|name| key.eq_ignore_ascii_case(name))
    } else {
        names.iter().any(|name| is_folded_beyond_ascii(key, name))
    }
}

/// Returns `true` if a reader that ignores case takes `key`, which is not ASCII, for `name`, which is.
fn is_folded_beyond_ascii(key: &str, name: &str) -> bool {
    let letters = key.chars().map(folded);
    letters.eq(name.chars().map(|letter| letter.to_ascii_lowercase()))
}

/// A letter as readers see it that ignore case. They fold four letters beyond ASCII: Go's `encoding/json` U+017F and
/// U+212A, Java's `equalsIgnoreCase` also U+0130 and U+0131.
pub fn folded(letter: char) -> char {
    match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        other => other.to_ascii_lowercase(),
    }
}

/// A member name, borrowed where it has no escapes.
struct MemberName<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for MemberName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameReader;
        impl<'de> Visitor<'de> for NameReader {
            type Value = MemberName<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<MemberName<'de>, E> {
                Ok(MemberName(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<MemberName<'de>, E> {
                Ok(MemberName(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(NameReader)
    }
}

/// A raw value as a string; `None` if it is not one.
#[inline]
pub fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    let [b'"', inside @ .., b'"'] = text.as_bytes() else {
        return None;
    };
    // Nearly all strings. What is between the quotes was checked when the raw value was read.
    if all_words(inside, |word| !has_backslash(word)) {
        return text.get(1..text.len() - 1).map(Cow::Borrowed);
    }
    let unescaped = serde_json::from_str::<MemberName<'_>>(text).ok()?;
    Some(unescaped.0)
}

/// The text as a raw value. The text is parsed, so the caller need not know that it is JSON.
pub fn raw(text: String) -> Result<Box<RawValue>, Fault> {
    RawValue::from_string(text).map_err(|_| Fault::Syntax)
}

/// Returns `true` if a raw value is an object. The first byte decides that.
pub fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// A string as JSON.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    quote_into(&mut out, text);
    out
}

/// Returns `true` if JSON has to escape the byte within a string.
fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Returns `true` if a string of JSON has these bytes as they are.
fn is_plain(bytes: &[u8]) -> bool {
    all_words(bytes, |word| ends_of_plain(word) == 0)
}

fn quote_into(out: &mut String, text: &str) {
    out.push('"');
    escape_into(out, text);
    out.push('"');
}

/// A string as JSON, without its quotes.
fn escape_into(out: &mut String, text: &str) {
    // Nearly all texts.
    if is_plain(text.as_bytes()) {
        out.push_str(text);
        return;
    }
    let mut plain_from = 0;
    // Only ASCII is escaped, so no cut lies inside a character.
    for (at, byte) in text.bytes().enumerate() {
        if !is_escaped(byte) {
            continue;
        }
        out.push_str(text.get(plain_from..at).unwrap_or_default());
        plain_from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => {
                // A write into a text in memory does not fail.
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
    }
    out.push_str(text.get(plain_from..).unwrap_or_default());
}

/// Writes one object, member by member, from raw parts.
#[derive(Debug)]
pub struct Writer {
    out: String,
    empty: bool,
}

impl Writer {
    pub fn object() -> Self {
        Self::with_capacity(256)
    }

    pub fn with_capacity(bytes: usize) -> Self {
        let mut out = String::with_capacity(bytes);
        out.push('{');
        Self { out, empty: true }
    }

    /// A member whose value is already JSON.
    pub fn raw(&mut self, key: &str, json: &str) -> &mut Self {
        self.name(key, "\":");
        self.out.push_str(json);
        self
    }

    pub fn str(&mut self, key: &str, text: &str) -> &mut Self {
        self.name(key, "\":\"");
        escape_into(&mut self.out, text);
        self.out.push('"');
        self
    }

    pub fn number(&mut self, key: &str, number: impl fmt::Display) -> &mut Self {
        self.name(key, "\":");
        let _ = write!(self.out, "{number}");
        self
    }

    /// The name of the next member, and what follows it up to the value. Two writes around the name cost less than four.
    fn name(&mut self, key: &str, then: &str) {
        self.out.push_str(if self.empty { "\"" } else { ",\"" });
        self.empty = false;
        escape_into(&mut self.out, key);
        self.out.push_str(then);
    }

    pub fn end(mut self) -> String {
        self.out.push('}');
        self.out
    }
}

/// The object with a member put first; everything else keeps its bytes. The caller makes sure that the name
/// is absent.
pub fn prepend(object: &str, key: &str, json: &str) -> String {
    // A text that is no object counts as an empty one, so that the result is an object in any case.
    let inside = object.trim_start().strip_prefix('{').unwrap_or("}");
    let mut out = String::with_capacity(object.len() + key.len() + json.len() + 5);
    out.push('{');
    quote_into(&mut out, key);
    out.push(':');
    out.push_str(json);
    if !inside.trim_start().starts_with('}') {
        out.push(',');
    }
    out.push_str(inside);
    out
}

/// The object with the value of `key` replaced in place, or put first if `key` is absent.
pub fn set(object: &str, key: &str, json: &str) -> Result<String, Fault> {
    set_in(object, &Object::parse(object)?, key, json)
}

/// As [`set`], for a caller that has parsed the text.
pub fn set_in(object: &str, members: &Object<'_>, key: &str, json: &str) -> Result<String, Fault> {
    let Some(old) = members.get(key) else {
        return Ok(prepend(object, key, json));
    };
    // The value is found by its address: a search could find an equal value in another member.
    let place = place_of(object, old).ok_or(Fault::Syntax)?;
    match (object.get(..place.start), object.get(place.end..)) {
        (Some(before), Some(after)) => Ok([before, json, after].concat()),
        _ => Err(Fault::Syntax),
    }
}

/// The range of the text that a raw value, which was read from the text, covers.
pub fn place_of(text: &str, part: &RawValue) -> Option<Range<usize>> {
    let part = part.get();
    let from = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let place = from..from.checked_add(part.len())?;
    // What lies within the text is a part of it.
    text.get(place.clone()).map(|_| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_objects_are_found() {
        let reserved = ["id", "method"];
        let ambiguous = |text| Object::parse(text).unwrap().is_ambiguous(&reserved);
        assert!(ambiguous(r#"{"id":1,"id":2}"#));
        assert!(ambiguous(r#"{"ID":1}"#));
        assert!(ambiguous(r#"{"i\u0064":1,"id":1}"#));
        assert!(!ambiguous(r#"{"id":1,"method":"x","other":1,"other":2}"#));
        assert!(!ambiguous(
            "{\"\u{17f}\":1,\"\u{212a}\":1,\"m\u{e9}thod\":1}"
        ));
        let reserved = ["task", "arguments", "id"];
        for folded in [
            "ta\u{17f}k",
            "tas\u{212a}",
            "TA\u{17f}\u{212a}",
            "argument\u{17f}",
        ] {
            let text = format!(r#"{{"{folded}":1}}"#);
            assert!(
                Object::parse(&text).unwrap().is_ambiguous(&reserved),
                "{folded}"
            );
        }
        for folded in ["\u{131}d", "\u{130}D"] {
            let text = format!(r#"{{"{folded}":1}}"#);
            assert!(
                Object::parse(&text).unwrap().is_ambiguous(&reserved),
                "{folded}"
            );
        }
    }

    #[test]
    fn edits_leave_other_bytes_alone() {
        let text = r#"{ "big": 12345678901234567890123, "a":{"x":1.10 } ,"z":"\u0041"}"#;
        assert_eq!(
            set(text, "a", "true").unwrap(),
            r#"{ "big": 12345678901234567890123, "a":true ,"z":"\u0041"}"#
        );
        assert_eq!(prepend("{}", "k", "1"), r#"{"k":1}"#);
        assert_eq!(prepend(r#"{"a":2 }"#, "k", "1"), r#"{"k":1,"a":2 }"#);
        assert_eq!(set("{}", "k", "1").unwrap(), r#"{"k":1}"#);
    }

    #[test]
    fn quoting_agrees_with_serde_json() {
        for text in ["", "plain", "a\"b\\c\n\r\t\u{1}\u{7f}é😀"] {
            assert_eq!(serde_json::from_str::<String>(&quote(text)).unwrap(), text);
        }
    }
}
