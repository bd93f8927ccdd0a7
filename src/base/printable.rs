//! Makes text of others safe to be read. This is the one place that decides which characters a terminal, a log, a
//! table or a metric gets of a text that a client, a server or a file chose. `tests/tidy.rs` finds a second one.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// The length to which a text in a line is cut.
pub const SHORT_MAX: usize = 120;

/// Returns false for a character by which a text acts on whatever shows it: control characters (with ESC, CR, NUL, DEL and
/// C1), the separators of lines and paragraphs, and the controls of the direction of text, which show a line in another
/// order than it is written in.
pub fn is_printable(c: char) -> bool {
    let is_direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !(c.is_control() || is_direction || matches!(c, '\u{2028}' | '\u{2029}'))
}

/// Returns false if no character of the text needs a look. The bytes beyond ASCII begin all that is not printable, among
/// others.
fn may_have_others(text: &str) -> bool {
    let begins_other = |byte| matches!(byte, 0..0x20 | 0x7f | 0xc2 | 0xd8 | 0xe2);
    text.bytes().any(begins_other)
}

/// Returns the text with U+FFFD in place of each character that is not printable.
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, |_| false)
}

/// Returns the text with its line ends and tabs, and with U+FFFD in place of each other character that is not printable.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| matches!(c, '\n' | '\t'))
}

fn replaced(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    // The bytes are looked at first, because that needs no decoding of characters.
    if !may_have_others(text) {
        return Cow::Borrowed(text);
    }
    let is_bad = |c| !is_printable(c) && !stays(c);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(is_bad, "\u{fffd}"))
}

/// Returns what is printable of the text, on one line.
pub fn one_line(text: &str) -> String {
    let text = text.replace(|c: char| !c.is_whitespace() && !is_printable(c), "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the beginning of the text as [`printable`] does.
pub fn short(text: &str) -> Cow<'_, str> {
    // So few bytes have no more characters, so nothing needs to be counted.
    if text.len() <= SHORT_MAX {
        return printable(text);
    }
    let end = text.char_indices().nth(SHORT_MAX).map(|(end, _)| end);
    printable(end.and_then(|end| text.get(..end)).unwrap_or(text))
}

/// The same of bytes that should be UTF-8.
pub fn short_bytes(text: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(text) {
        Cow::Borrowed(text) => short(text),
        Cow::Owned(text) => short(&text).into_owned().into(),
    }
}

/// Returns JSON that has the same values, and escapes in place of what is not printable: what reads the values loses nothing.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    // JSON has the control characters of ASCII as escapes already, but for spaces between its values.
    let is_bad = |c| c >= '\u{7f}' && !is_printable(c);
    if !may_have_others(json) || !json.contains(is_bad) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_bad(c) {
            // All of them are in the basic plane. A string takes everything.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Writes characters that are not printable as the escapes of Rust.
#[derive(Debug)]
pub struct Escaped<'w, W>(pub &'w mut W);

impl<W: fmt::Write> fmt::Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Nearly all texts.
        if !may_have_others(text) {
            return self.0.write_str(text);
        }
        let mut rest = text;
        while let Some((at, letter)) = rest.char_indices().find(|(_, c)| !is_printable(*c)) {
            let (plain, from) = rest.split_at_checked(at).ok_or(fmt::Error)?;
            self.0.write_str(plain)?;
            write!(self.0, "{}", letter.escape_default())?;
            rest = from.get(letter.len_utf8()..).ok_or(fmt::Error)?;
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As written, printable, as lines, as JSON, escaped.
    const TABLE: &[[&str; 5]] = &[
        ["", "", "", "", ""],
        [
            "plain ä 語 🦀 “…”",
            "plain ä 語 🦀 “…”",
            "plain ä 語 🦀 “…”",
            "plain ä 語 🦀 “…”",
            "plain ä 語 🦀 “…”",
        ],
        [
            "a\u{1b}[2Jb",
            "a\u{fffd}[2Jb",
            "a\u{fffd}[2Jb",
            "a\u{1b}[2Jb",
            "a\\u{1b}[2Jb",
        ],
        [
            "a\r\n\tb\0",
            "a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}",
            "a\u{fffd}\n\tb\u{fffd}",
            "a\r\n\tb\0",
            "a\\r\\n\\tb\\u{0}",
        ],
        [
            "\u{7f}\u{80}\u{9b}\u{9f}\u{a0}",
            "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{a0}",
            "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{a0}",
            "\\u007f\\u0080\\u009b\\u009f\u{a0}",
            "\\u{7f}\\u{80}\\u{9b}\\u{9f}\u{a0}",
        ],
        [
            "a\u{202e}b\u{2066}c\u{2069}",
            "a\u{fffd}b\u{fffd}c\u{fffd}",
            "a\u{fffd}b\u{fffd}c\u{fffd}",
            "a\\u202eb\\u2066c\\u2069",
            "a\\u{202e}b\\u{2066}c\\u{2069}",
        ],
        [
            "\u{61c}\u{200e}\u{200f}\u{2028}",
            "\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
            "\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
            "\\u061c\\u200e\\u200f\\u2028",
            "\\u{61c}\\u{200e}\\u{200f}\\u{2028}",
        ],
    ];

    #[test]
    fn no_text_acts_on_what_shows_it() {
        for [text, plain, lines, json, escaped] in TABLE {
            assert_eq!(printable(text), *plain);
            assert_eq!(printable_lines(text), *lines);
            assert_eq!(printable_json(text), *json);
            let mut written = String::new();
            write!(Escaped(&mut written), "{text}").unwrap();
            assert_eq!(written, *escaped);
        }
        let long = "ä".repeat(SHORT_MAX);
        assert_eq!(short(&(long.clone() + "x")), long);
        assert_eq!(short("a\u{9b}"), "a\u{fffd}");
        assert_eq!(short_bytes(b"a\xff\x1b"), "a\u{fffd}\u{fffd}");
    }

    /// The quick look at bytes leaves none out.
    #[test]
    fn every_character_that_is_not_printable_is_looked_at() {
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            if !is_printable(c) {
                assert!(may_have_others(&c.to_string()), "{c:?}");
                assert!(u32::from(c) < 0x1_0000, "{c:?}");
            }
        }
    }
}
