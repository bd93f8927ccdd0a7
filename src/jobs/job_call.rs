//! A rule for job tools, applied to the server that is there.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::jobs::id_argument::{id_argument, says_where_id_goes};
use crate::jobs::{Helper, JobResult, JobRule};
use crate::mcp::tools::{Tool, ToolArgument};

/// A rule with the known facts about its tools: all that a call needs to follow its job, on any replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobCall {
    pub rule: Arc<JobRule>,
    pub(crate) status: HelperFacts,
    #[serde(default)]
    pub(crate) result: HelperFacts,
    #[serde(default)]
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
}

impl JobCall {
    /// A call of the tool `start` by this rule. `tool`: what the server lists under a name.
    pub fn of<'t>(
        rule: &Arc<JobRule>,
        start: &str,
        tool: impl Fn(&str) -> Option<&'t Tool>,
    ) -> Result<Self, UnfitRule> {
        let own = tool(start).map_or(&[][..], |start| &start.arguments);
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
            status,
            result,
            cancel: cancel.unwrap_or_default(),
        })
    }
}
