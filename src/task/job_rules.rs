//! The rules for tools that start jobs.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::glob::Glob;
use crate::jobs::JobRule;

/// The calls that start jobs of one rule.
#[derive(Debug, Clone, PartialEq)]
pub struct JobStart {
    pub globs: Vec<Glob>,
    /// The arguments that such a call has. Empty: any.
    pub arguments: Map<String, Value>,
    /// The other tools of the rule are not listed.
    pub hides: bool,
}

/// All rules for job tools. Of two rules for one call the first applies.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobRules(Vec<(JobStart, Arc<JobRule>)>);

impl JobRules {
    pub fn new(entries: Vec<(JobStart, Arc<JobRule>)>) -> Self {
        Self(entries)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the rule for a call of this tool with these arguments.
    pub fn rule(
        &self,
        tool: &str,
        arguments: Option<&Map<String, Value>>,
    ) -> Option<&Arc<JobRule>> {
        let applies = |start: &JobStart| {
            let mut wanted = start.arguments.iter();
            let given = |name: &str| arguments.and_then(|all| all.get(name));
            start.globs.iter().any(|glob| glob.is_match(tool))
                && wanted.all(|(name, value)| given(name) == Some(value))
        };
        let mut entries = self.0.iter();
        entries
            .find(|(start, _)| applies(start))
            .map(|(_, rule)| rule)
    }

    /// Returns `true` if calls of this tool may start jobs.
    pub fn may_start(&self, tool: &str) -> bool {
        let mut globs = self.0.iter().flat_map(|(start, _)| &start.globs);
        globs.any(|glob| glob.is_match(tool))
    }

    /// Returns `true` if the tool is about jobs that are followed, and is not listed.
    pub fn hides(&self, tool: &str) -> bool {
        let mut hiding = self.0.iter().filter(|(start, _)| start.hides);
        // A tool may do everything, and say by an argument what it does.
        hiding.any(|(_, rule)| rule.is_helper(tool)) && !self.may_start(tool)
    }

    /// The rules, each with the calls that it applies to.
    pub fn entries(&self) -> impl Iterator<Item = &(JobStart, Arc<JobRule>)> {
        self.0.iter()
    }
}
