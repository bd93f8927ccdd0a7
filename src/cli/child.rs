//! `raincheck __child [--open-files N] PID -- COMMAND`: becomes the wrapped server, tied to the life
//! of its parent.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::Args;

use super::failure::CommandFailure;
use crate::base::io_reason::io_reason;
use crate::platform::child::{StartError, run};

#[derive(Debug, Args)]
pub(super) struct ChildArgs {
    /// The soft limit of open files, where raincheck has raised its own
    #[arg(long)]
    open_files: Option<u64>,
    /// The raincheck that asked
    parent: u32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the program, or runs it where the system has no way to become one, and returns its exit code. An error has the exit
/// code of shells for such a failure.
pub(super) fn run_program(line: &ChildArgs) -> Result<ExitCode, CommandFailure> {
    let Some((program, arguments)) = line.command.split_first() else {
        return Err(CommandFailure::usage("no command"));
    };
    run(line.parent, line.open_files, program, arguments).map_err(|error| match error {
        StartError::Before(error) => {
            CommandFailure::runtime(format!("not started: {}", io_reason(&error)))
        }
        StartError::Program(error) => CommandFailure {
            code: if error.kind() == io::ErrorKind::NotFound {
                127
            } else {
                126
            },
            text: format!(
                "{} cannot be run: {}",
                program.to_string_lossy(),
                io_reason(&error)
            ),
        },
    })
}
