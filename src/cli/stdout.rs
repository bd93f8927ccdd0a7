//! What a command prints on standard output.

use std::io::{self, ErrorKind, Write as _};

use super::failure::CommandFailure;
use crate::io_reason::io_reason;

/// Prints all of it, or says why not: a full disk would otherwise leave half a file and the exit code 0. A reader that went
/// away (`| head`) is no reason to fail.
pub(super) fn print(text: impl AsRef<[u8]>) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let why = io_reason(&error);
            let text = format!("standard output cannot be written: {why}");
            Err(CommandFailure::runtime(text))
        }
        _ => Ok(()),
    }
}
