//! `raincheck config`: prints settings.

use std::io::{self, Write as _};

use super::failure::CommandFailure;
use crate::config::load::{Flags, effective, environment};
use crate::config::schema;

const EXAMPLE: &str = include_str!("../../config.example.toml");

/// Every setting at its default, with its meaning.
pub(super) fn example() {
    print(EXAMPLE.as_bytes());
}

/// What a settings file may say.
pub(super) fn schema() -> Result<(), CommandFailure> {
    let schema = schema::schema()?;
    print(format!("{schema:#}\n").as_bytes());
    Ok(())
}

/// The settings that count, from file, environment and flags.
pub(super) fn show(flags: &Flags) -> Result<(), CommandFailure> {
    let shown = effective(flags, &environment())?;
    print(format!("{shown:#}\n").as_bytes());
    Ok(())
}

/// A reader that went away (`| head`) is no reason to fail.
pub(super) fn print(text: &[u8]) {
    let _ = io::stdout().lock().write_all(text);
}
