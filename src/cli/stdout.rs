//! The output of a command on standard output.

use std::io::{self, ErrorKind, Write as _};

use super::failure::CommandFailure;
use crate::base::io_reason::io_reason;
use crate::base::printable::printable_lines;

/// Prints a text, of which parts may be of others: a terminal gets nothing that it would act on.
pub(super) fn print(text: impl AsRef<str>) -> Result<(), CommandFailure> {
    print_bytes(printable_lines(text.as_ref()).as_bytes())
}

/// Prints bytes as they are, for a program that reads them. Prints all of them, or returns the reason of the failure:
/// a full disk would otherwise leave half a file and the exit code 0. A reader that went away (`| head`) is no reason
/// to fail.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let why = io_reason(&error);
            let text = format!("standard output cannot be written: {why}");
            Err(CommandFailure::runtime(text))
        }
        _ => Ok(()),
    }
}
