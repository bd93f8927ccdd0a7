//! The scripts that change values and logs, and notify replicas of the changes.

use super::link::Script;

/// The scripts of the key-value part.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) replace: Script,
    pub(super) append: Script,
    pub(super) tell: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            claim: Script::new(include_str!("claim.lua")),
            replace: Script::new(include_str!("replace.lua")),
            append: Script::new(include_str!("append.lua")),
            tell: Script::new(include_str!("tell.lua")),
        }
    }
}
