//! The rules for tools that start jobs.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::glob::Glob;
use crate::jobs::JobRule;
use crate::jobs::job_call::JobCall;
use crate::mcp::tools::Tools;

/// The calls that start jobs of one rule.
#[derive(Debug, Clone, PartialEq)]
pub struct JobStart {
    /// The place of the rule in the configuration, for people.
    pub place: Box<str>,
    pub globs: Vec<Glob>,
    /// The arguments that such a call has. Empty: any.
    pub arguments: Map<String, Value>,
    /// The other tools of the rule are not listed.
    pub hides: bool,
}

impl JobStart {
    /// Returns `true` if calls of this tool may start jobs of the rule.
    pub fn names(&self, tool: &str) -> bool {
        self.globs.iter().any(|glob| glob.is_match(tool))
    }
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
            start.names(tool) && wanted.all(|(name, value)| given(name) == Some(value))
        };
        let mut entries = self.0.iter();
        entries
            .find(|(start, _)| applies(start))
            .map(|(_, rule)| rule)
    }

    /// Returns `true` if calls of this tool may start jobs.
    pub fn may_start(&self, tool: &str) -> bool {
        self.0.iter().any(|(start, _)| start.names(tool))
    }

    /// Returns `true` if calls of this tool may start jobs that can be followed at a server with these tools.
    pub fn follows(&self, tool: &str, tools: &Tools) -> bool {
        let mut fitting = self.fitting(tool, tools);
        fitting.next().is_some()
    }

    /// Returns `true` if the tool is about jobs that are followed, and is not listed.
    pub fn hides(&self, tool: &str, tools: &Tools) -> bool {
        let hides = |start: &str| {
            let mut fitting = self.fitting(start, tools);
            fitting.any(|(start, rule)| start.hides && rule.is_helper(tool))
        };
        // A tool may do everything, and an argument says what.
        tools.names().any(hides) && !self.follows(tool, tools)
    }

    /// The rules for calls of this tool that the server has all tools of.
    fn fitting<'r>(
        &'r self,
        tool: &'r str,
        tools: &'r Tools,
    ) -> impl Iterator<Item = &'r (JobStart, Arc<JobRule>)> {
        self.0.iter().filter(move |(start, rule)| {
            start.names(tool) && JobCall::of(rule, tool, |name| tools.get(name)).is_ok()
        })
    }

    /// The rules, each with the calls that it applies to.
    pub fn entries(&self) -> impl Iterator<Item = &(JobStart, Arc<JobRule>)> {
        self.0.iter()
    }
}
