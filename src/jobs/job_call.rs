//! A rule for job tools, applied to the server that is there.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::jobs::document::JobSource;
use crate::jobs::id_argument::{id_argument, says_where_id_goes};
use crate::jobs::{Helper, JobResult, JobRule, is_default};
use crate::mcp::tools::{Tool, ToolArgument, Tools};

/// A rule with the known facts about its tools: all that a call needs to follow its job, on any replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobCall {
    pub rule: Arc<JobRule>,
    /// The value of the argument that the rule names as its key, the same for each time that the start of this call is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<Box<str>>,
    pub(crate) status: HelperFacts,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) result: HelperFacts,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) cancel: HelperFacts,
}

/// The known facts about a tool that is called about a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HelperFacts {
    /// The argument that takes the id. `None`: the rule says where the id goes.
    pub(crate) id: Option<Box<str>>,
    pub(crate) arguments: Box<[ToolArgument]>,
}

/// Why a rule does not apply to the server that is there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitRule {
    #[error("the server has no tool {0:?}")]
    NoTool(Arc<str>),
    #[error("{0:?} is a destructive tool, which must not be called again and again")]
    Destructive(Arc<str>),
    #[error(
        "no argument of {0:?} but those of the start takes an id: say in its arguments where {{id}} goes"
    )]
    NoId(Arc<str>),
    #[error("{0:?} has no argument {1:?} that takes a text: key names none")]
    NoKey(Box<str>, Box<str>),
}

impl JobCall {
    /// A call of the tool `start` by this rule. `tool`: what the server lists under a name.
    pub fn of<'t>(
        rule: &Arc<JobRule>,
        start: &str,
        tool: impl Fn(&str) -> Option<&'t Tool>,
    ) -> Result<Self, UnfitRule> {
        let own = tool(start).map_or(&[][..], |start| &start.arguments);
        // A tool whose arguments are not listed takes any.
        if let Some(key) = rule.key.as_ref().filter(|_| !own.is_empty())
            && !own.iter().any(|it| it.name == *key && it.kind.takes_text())
        {
            return Err(UnfitRule::NoKey(start.into(), key.clone()));
        }
        let facts = |helper: &Helper| {
            let known = tool(&helper.tool);
            let known = known.ok_or_else(|| UnfitRule::NoTool(Arc::clone(&helper.tool)))?;
            Ok(HelperFacts {
                id: id_argument(helper, &known.arguments, own),
                arguments: known.arguments.clone(),
            })
        };
        let status = facts(&rule.status)?;
        if tool(&rule.status.tool).is_some_and(|status| status.is_destructive) {
            return Err(UnfitRule::Destructive(Arc::clone(&rule.status.tool)));
        }
        // Without an id, a server may report on the latest job, of whomever it is.
        if status.id.is_none() && !says_where_id_goes(&rule.status) {
            return Err(UnfitRule::NoId(Arc::clone(&rule.status.tool)));
        }
        let result = match &rule.result {
            JobResult::Tool(helper) => facts(helper)?,
            JobResult::Status | JobResult::Pointer(_) => HelperFacts::default(),
        };
        let cancel = rule.cancel.as_ref().map(facts).transpose()?;
        Ok(Self {
            rule: Arc::clone(rule),
            key: None,
            status,
            result,
            cancel: cancel.unwrap_or_default(),
        })
    }

    /// Gives the call a key, if the rule names an argument for it.
    #[must_use]
    pub fn with_key(mut self, key: impl FnOnce() -> String) -> Self {
        self.key = self.rule.key.is_some().then(|| key().into());
        self
    }

    /// Returns the arguments that the rule names and a tool of the server lacks, each with its tool. `start`: the tool that starts
    /// the job.
    pub fn unknown_arguments<'j>(
        &'j self,
        start: &'j str,
        tools: &'j Tools,
    ) -> impl Iterator<Item = (&'j str, &'j str)> {
        let set = self.rule.set.keys().map(String::as_str);
        let client = match &self.rule.id {
            Some(JobSource::Argument(name)) => Some(&**name),
            Some(JobSource::Pointer(_) | JobSource::Text(_)) | None => None,
        };
        let of_start = set.chain(client).map(move |name| (start, name));
        let helpers = self.rule.helpers().flat_map(|helper| {
            let names = helper.arguments.keys();
            names.map(|name| (&*helper.tool, name.as_str()))
        });
        of_start.chain(helpers).filter(|(tool, name)| {
            let listed = tools.get(tool).map_or(&[][..], |tool| &tool.arguments);
            // A tool whose arguments are not listed takes any.
            !listed.is_empty() && listed.iter().all(|it| &*it.name != *name)
        })
    }
}
