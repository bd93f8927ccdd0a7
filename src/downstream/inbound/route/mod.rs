//! The route of a request: decided once, from its content, its requester and the known facts. Pure.
//!
//! A route that needs a word of the server names the question. The part that asks the question adds the answer to
//! what is known and decides again, so that no question goes to the server before the decision needs it.

use std::sync::Arc;

use crate::mcp::request::Request;
use crate::mcp::tools::{Tool, Tools};
use crate::mcp::version::Era;
use crate::task::large_results::ResultUri;

pub(in crate::downstream) mod call;
pub(in crate::downstream) mod first_contact;
pub(in crate::downstream) mod hosted;
pub(in crate::downstream) mod modern;
mod paused;
pub(in crate::downstream) mod session;
pub(in crate::downstream) mod stream;
pub(in crate::downstream) mod without_session;

/// A fact that the server must be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum MissingFact {
    Era,
    Tools,
}

/// The known facts about the server: more with each answer.
#[derive(Debug, Clone, Default)]
pub(in crate::downstream) struct KnownServer {
    pub(in crate::downstream) era: Option<Era>,
    /// It is decided how the server is spoken to.
    pub(in crate::downstream) is_decided: bool,
    /// The server is spoken to over HTTP.
    pub(in crate::downstream) speaks_http: bool,
    pub(in crate::downstream) tools: KnownTools,
}

/// The server's list of tools.
#[derive(Debug, Clone, Default)]
pub(in crate::downstream) enum KnownTools {
    #[default]
    NotAsked,
    /// The list cannot be had now.
    Unavailable,
    Listed(Arc<Tools>),
}

impl KnownTools {
    pub(in crate::downstream) fn is_asked(&self) -> bool {
        !matches!(self, Self::NotAsked)
    }

    pub(in crate::downstream) fn listed(&self) -> Option<&Tools> {
        match self {
            Self::NotAsked | Self::Unavailable => None,
            Self::Listed(tools) => Some(tools),
        }
    }

    pub(in crate::downstream) fn get(&self, tool: &str) -> Option<&Tool> {
        self.listed()?.get(tool)
    }
}

/// A request of 2025-11-25 about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum TaskOp {
    Get,
    Cancel,
    List,
    Result,
}

impl TaskOp {
    pub(in crate::downstream) fn of(method: &str) -> Option<Self> {
        Some(match method {
            "tasks/get" => Self::Get,
            "tasks/cancel" => Self::Cancel,
            "tasks/list" => Self::List,
            "tasks/result" => Self::Result,
            _ => return None,
        })
    }
}

/// Returns `true` if a `resources/read` names a result that raincheck keeps. No other URI is looked at.
pub(in crate::downstream) fn names_our_result(request: &Request<'_>) -> bool {
    let uri = request.params.get_str("uri");
    uri.is_some_and(|uri| ResultUri::is_ours(&uri))
}

/// Returns the member that has the list in the answer to a request for one.
pub(in crate::downstream) fn list_member(method: &str) -> Option<&'static str> {
    Some(match method {
        "tools/list" => "tools",
        "prompts/list" => "prompts",
        "resources/list" => "resources",
        "resources/templates/list" => "resourceTemplates",
        _ => return None,
    })
}

/// Returns `true` if a legacy server can be asked for the method in the words of revision 2026-07-28. Its other
/// methods were removed there (`initialize`, `ping`, `logging/setLevel`, `resources/subscribe`), or never were.
pub(in crate::downstream) fn is_translated(method: &str) -> bool {
    matches!(
        method,
        "completion/complete"
            | "prompts/get"
            | "prompts/list"
            | "resources/list"
            | "resources/read"
            | "resources/templates/list"
            | "tools/call"
            | "tools/list"
    )
}
