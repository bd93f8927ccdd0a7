//! The scripts that change notes.

use super::link::Script;

/// What is done by script.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) replace: Script,
    pub(super) append: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            claim: Script::new(include_str!("claim.lua")),
            replace: Script::new(include_str!("replace.lua")),
            append: Script::new(include_str!("append.lua")),
        }
    }
}
