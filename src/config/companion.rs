//! Turns `[tasks]` into the settings of the companion tools, if they are on.

use std::time::Duration;

use super::file;
use super::problem::Problem;
use super::settings::CompanionSettings;
use crate::task::policy::Rule;

pub(super) const PREFIX: &str = "raincheck_";

/// Clients show names of 64 characters at most, and often their own prefix before them.
const PREFIX_MAX: usize = 24;

pub(super) fn companion(tasks: &file::Terms) -> Result<Option<CompanionSettings>, Problem> {
    let prefix = tasks.companion_prefix.as_deref().unwrap_or(PREFIX);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if prefix.is_empty() || prefix.len() > PREFIX_MAX || !prefix.chars().all(is_plain) {
        let text = format!(
            "{prefix:?} cannot begin the name of a tool; use 1 to {PREFIX_MAX} of A-Z a-z 0-9 _ -"
        );
        return Err(Problem::new("tasks.companion_prefix", text));
    }
    let usual = Duration::from_millis(Rule::default().fallback_after_ms);
    let companion = CompanionSettings {
        prefix: prefix.to_owned(),
        fallback_after: tasks.fallback_after.unwrap_or(usual),
    };
    let wanted = tasks.companion_tools.unwrap_or_default();
    Ok(wanted.then_some(companion))
}
