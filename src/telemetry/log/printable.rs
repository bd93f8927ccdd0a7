//! Texts of clients, made safe to be logged: short, and without control characters.

use std::borrow::Cow;

use crate::mcp::words::{all_words, is_plain_ascii};

/// The length to which they are cut.
const TOLD_MAX: usize = 120;

/// A text of a client, safe to be logged.
pub fn printable(text: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(text) {
        Cow::Borrowed(text) => printable_text(text),
        Cow::Owned(text) => printable_text(&text).into_owned().into(),
    }
}

/// The same of a text that is UTF-8.
pub(super) fn printable_text(text: &str) -> Cow<'_, str> {
    if is_short_and_plain(text) {
        return Cow::Borrowed(text);
    }
    let told = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    told.take(TOLD_MAX).collect::<String>().into()
}

/// Whether the text is logged as it is, and has no quote and no backslash: so are nearly all.
#[inline]
pub(super) fn is_short_and_plain(text: &str) -> bool {
    text.len() <= TOLD_MAX && is_plain(text)
}

/// Whether a quoted text has every byte as it is.
#[inline]
pub(super) fn is_plain(text: &str) -> bool {
    all_words(text.as_bytes(), is_plain_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_is_cut_and_has_no_control_characters() {
        let long = "x".repeat(TOLD_MAX);
        for (said, told) in [
            ("", ""),
            ("tools/call", "tools/call"),
            ("a \"b\" \\", "a \"b\" \\"),
            ("a\tb\u{9b}\u{7f}\u{e4}", "a\u{fffd}b\u{fffd}\u{fffd}\u{e4}"),
            (&(long.clone() + "y"), &long),
        ] {
            assert_eq!(printable_text(said), told);
            assert_eq!(printable(said.as_bytes()), told);
        }
        assert_eq!(printable(b"a\xff"), "a\u{fffd}");
    }
}
