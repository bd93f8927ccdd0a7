//! Refuses at the start what raincheck could never run.

use std::path::Path;

use super::error::AppError;
use crate::config::Wrapped;
use crate::platform::child::look_for;
use crate::platform::environment::is_same_variable;

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
    let directory = command
        .directory
        .as_deref()
        .unwrap_or_else(|| Path::new(""));
    let get = |name: &str| {
        let mut variables = command.environment.iter();
        let found = variables.find(|(own, _)| is_same_variable(own, name));
        found.map(|(_, value)| value.expose().to_owned())
    };
    look_for(&command.program, directory, get)
        .map_err(|why| AppError(format!("upstream.command: {} {why}", command.program)))
}
