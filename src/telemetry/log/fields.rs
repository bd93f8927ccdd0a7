//! How the fields of a log line are written as text: so that nothing that a client or a server says makes a line of its own,
//! or reaches a terminal as a command.

use std::fmt::{self, Debug, Write as _};

use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Writes each field as `name=value`, and the message as it is.
pub(super) fn fields() -> impl for<'w> FormatFields<'w> + 'static {
    debug_fn(field).delimited(" ")
}

fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    if field.name() != "message" {
        let is_coloured = writer.has_ansi_escapes();
        name(writer, field.name(), is_coloured)?;
    }
    write!(Escaped(writer), "{value:?}")
}

/// Writes the name of a field, and the sign after it.
pub(super) fn name(out: &mut impl fmt::Write, name: &str, is_coloured: bool) -> fmt::Result {
    let parts = if is_coloured {
        // The name in italics, and a dim sign.
        ["\x1b[3m", name, "\x1b[0m\x1b[2m=\x1b[0m"]
    } else {
        ["", name, "="]
    };
    parts.into_iter().try_for_each(|part| out.write_str(part))
}

/// Writes a text as the value of a field.
pub(super) fn quoted(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    write!(Escaped(out), "{text:?}")
}

/// Writes control characters as their escapes.
pub(super) struct Escaped<'w, W>(pub(super) &'w mut W);

impl<W: fmt::Write> fmt::Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Nearly all texts. 0xc2 begins the control characters beyond ASCII, among others.
        if !(text.bytes()).any(|byte| byte < 0x20 || matches!(byte, 0x7f | 0xc2)) {
            return self.0.write_str(text);
        }
        let mut rest = text;
        while let Some((at, letter)) = rest.char_indices().find(|(_, c)| c.is_control()) {
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

    #[test]
    fn what_others_say_stays_in_its_line() {
        for (said, written) in [
            ("plain \u{e4} text", "plain \u{e4} text"),
            ("a\n2026-01-01 ERROR b", "a\\n2026-01-01 ERROR b"),
            ("\x1b[2J\r\t\u{9b}x", "\\u{1b}[2J\\r\\t\\u{9b}x"),
            ("", ""),
        ] {
            let mut text = String::new();
            write!(Escaped(&mut text), "{said}").unwrap();
            assert_eq!(text, written);
        }
    }
}
