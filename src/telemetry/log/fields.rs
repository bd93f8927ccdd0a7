//! The text form of the fields of a log line. No text of a client or a server makes a line of its own, or reaches a
//! terminal as a command.

use std::fmt::{self, Debug, Write as _};

use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use crate::base::printable::Escaped;

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
