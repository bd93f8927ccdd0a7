//! `raincheck config`: prints settings.

use super::failure::CommandFailure;
use super::stdout::print;
use crate::config::load::{EXAMPLE, Flags, effective, environment};
use crate::config::schema;

/// Every setting at its default, with its meaning.
pub(super) fn example() -> Result<(), CommandFailure> {
    print(EXAMPLE)
}

/// Prints the schema of a settings file.
pub(super) fn schema() -> Result<(), CommandFailure> {
    let schema = schema::schema()?;
    print(format!("{schema:#}\n"))
}

/// The settings that count, from file, environment and flags.
pub(super) fn show(flags: &Flags) -> Result<(), CommandFailure> {
    let shown = effective(flags, &environment())?;
    print(format!("{shown:#}\n"))
}
