//! Refuses at the start what raincheck could never run.

use std::path::Path;

use super::error::AppError;
use crate::config::{Wrapped, WrappedCommand};

/// Refuses a program that does not exist: nothing that raincheck does lets it start.
pub(super) fn refuse_missing_program(server: &Wrapped) -> Result<(), AppError> {
    let Wrapped::Command(command) = server else {
        return Ok(());
    };
    if let Some(directory) = &command.directory
        && !directory.is_dir()
    {
        let directory = directory.display();
        return Err(AppError(format!(
            "upstream.cwd: {directory} is not a directory"
        )));
    }
    let program = &command.program;
    // Like `execvp`, the start does not search the PATH for a name with a slash.
    let why = if program.contains('/') {
        let directory = command
            .directory
            .as_deref()
            .unwrap_or_else(|| Path::new(""));
        (!directory.join(program).exists()).then_some("does not exist")
    } else {
        (!is_on_path(command)).then_some("is not on the PATH")
    };
    match why {
        Some(why) => Err(AppError(format!("upstream.command: {program} {why}"))),
        None => Ok(()),
    }
}

/// True if the program is on the PATH that it gets, or if that is not known.
fn is_on_path(command: &WrappedCommand) -> bool {
    let mut variables = command.environment.iter();
    let path = variables.find(|(name, _)| name == "PATH");
    path.is_none_or(|(_, path)| {
        // A relative or empty part of the PATH counts from the directory in which the program starts.
        let directory = command
            .directory
            .as_deref()
            .unwrap_or_else(|| Path::new(""));
        path.expose()
            .split(':')
            .any(|part| directory.join(part).join(&command.program).exists())
    })
}
