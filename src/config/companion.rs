//! Turns `[tasks]` into the settings of the companion tools, if they are on.

use super::file;
use super::problem::Problem;
use super::scalar::OrAuto;
use super::settings::{CompanionSettings, CompanionUse};

pub(super) const PREFIX: &str = "raincheck_";

/// Clients show names of 64 characters at most, and often their own prefix before them.
const PREFIX_MAX: usize = 24;

/// `for_one_client`: it launched raincheck.
pub(super) fn companion(
    tasks: &file::Terms,
    for_one_client: bool,
) -> Result<Option<CompanionSettings>, Problem> {
    let prefix = tasks.companion_prefix.as_deref().unwrap_or(PREFIX);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if prefix.is_empty() || prefix.len() > PREFIX_MAX || !prefix.chars().all(is_plain) {
        let text = format!(
            "{prefix:?} cannot begin the name of a tool; use 1 to {PREFIX_MAX} of A-Z a-z 0-9 _ -"
        );
        return Err(Problem::new("tasks.companion_prefix", text));
    }
    let used = match tasks.companion_tools.unwrap_or(OrAuto::Auto) {
        OrAuto::Auto if for_one_client => CompanionUse::AllButKnownNotTo,
        OrAuto::Auto => CompanionUse::KnownToNeed,
        OrAuto::Said(true) => CompanionUse::Always,
        OrAuto::Said(false) => return Ok(None),
    };
    Ok(Some(CompanionSettings {
        used,
        prefix: prefix.to_owned(),
    }))
}
