//! Which scopes a client's credential must have: for a call those of its tool's rule, and for a task those of its tool.
//!
//! Each message is checked once, before it is decided what becomes of the message, so that no way to a tool or to its
//! task leads past this check.

use hyper::Response;

use super::body::Body;
use super::inbound::request::LegacyMessage;
use super::inbound::requester::Requester;
use super::inbound::route::session::TaskQuestion;
use super::outbound::response::{self, Rpc};
use super::proxy::Proxy;
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::store::StoreError;
use crate::store::ledger::Loaded;
use crate::task::id::TaskId;
use crate::task::large_results::ResultUri;

/// The scopes of a rule whose call the client may not make.
type RuleScopes<'r> = &'r [Box<str>];

impl Proxy {
    /// Returns the scopes that a call of the tool needs, if the client lacks one of them. A client that need not
    /// identify itself lacks none.
    pub(super) fn lacking_scopes<'b>(by: &'b Requester, tool: &str) -> Option<RuleScopes<'b>> {
        let identity = by.identity.as_ref()?;
        let wanted = &by.rules.for_tool(tool).0.scopes;
        let mut lacking = identity.lacks(wanted);
        lacking.next().map(|_| &**wanted)
    }

    /// The refusal of a request whose client lacks a scope.
    pub(super) async fn scope_refusal(
        &self,
        by: &Requester,
        request: &Request<'_>,
    ) -> Option<Response<Body>> {
        let id = request.id.get();
        let lacking = self.lacking_for(by, &request.method, &request.params);
        match lacking.await {
            Ok(None) => None,
            Ok(Some(wanted)) => {
                let challenge = self.auth.as_ref()?.challenge().needs(wanted);
                Some(Rpc::insufficient_scope(id, wanted, challenge).into_response())
            }
            // Without its record the tool of a task is uncertain, and so are the scopes: the request does not pass.
            Err(_) => Some(Rpc::store_unavailable(id).into_response()),
        }
    }

    /// The refusal of a legacy client's message, which may be no request.
    pub(super) async fn scope_refusal_on_session(
        &self,
        by: &Requester,
        message: &LegacyMessage<'_>,
    ) -> Option<Response<Body>> {
        let lacking = match message {
            LegacyMessage::Request(request) => return self.scope_refusal(by, request).await,
            // Some servers run a call that asks for no answer.
            LegacyMessage::Notification(method, params) => {
                self.lacking_for(by, method, params).await
            }
            LegacyMessage::Answer(id, _) => match TaskQuestion::of(id) {
                // A call asks before its task is announced, too.
                Some(question) => {
                    let tasks = self.tasks_of(&by.caller);
                    let found = tasks.find_unannounced(question.task).await;
                    found.map(|found| Self::lacking_for_task(by, found.as_ref()))
                }
                None => Ok(None),
            },
            LegacyMessage::Unclear(_) => Ok(None),
        };
        match lacking {
            Ok(None) => None,
            Ok(Some(wanted)) => {
                let challenge = self.auth.as_ref()?.challenge().needs(wanted);
                Some(response::insufficient_scope(wanted, challenge))
            }
            Err(_) => Some(response::store_unavailable()),
        }
    }

    /// The scopes that a message needs, if the client lacks one of them.
    async fn lacking_for<'b>(
        &self,
        by: &'b Requester,
        method: &str,
        params: &Object<'_>,
    ) -> Result<Option<RuleScopes<'b>>, StoreError> {
        if by.identity.is_none() {
            return Ok(None);
        }
        let task = if method == "tools/call" {
            let tool = params.get_str("name").unwrap_or_default();
            if let Some(wanted) = Self::lacking_scopes(by, &tool) {
                return Ok(Some(wanted));
            }
            // A companion tool names a task. For any other tool such an argument means nothing here, and refusing it
            // tells nothing: only the caller's own tasks are found.
            let arguments = params.get_object("arguments");
            let arguments = arguments.filter(|_| self.companion.is_some());
            let ticket = arguments.as_ref().and_then(|it| it.get_str("ticket"));
            // Trimmed as the companion tools do it: otherwise a space would lead past this check.
            ticket.and_then(|ticket| TaskId::parse(ticket.trim()))
        } else if method.starts_with("tasks/") {
            let id = params.get_str("taskId");
            id.and_then(|id| TaskId::parse(&id))
        } else if method == "resources/read" {
            let uri = params.get_str("uri");
            let Some(named) = uri.and_then(|uri| ResultUri::parse(&uri)) else {
                return Ok(None);
            };
            let tasks = self.tasks_of(&by.caller);
            // The record of a call whose client waited is not announced, and its result has a name all the same.
            let found = tasks.find_unannounced(named.task).await?;
            return Ok(Self::lacking_for_task(by, found.as_ref()));
        } else {
            None
        };
        let Some(task) = task else {
            return Ok(None);
        };
        let found = self.tasks_of(&by.caller).find(task).await?;
        Ok(Self::lacking_for_task(by, found.as_ref()))
    }

    /// `found`: the task, if the client's caller has it. A task of another caller does not exist for this client, so that
    /// its request is answered as for any unknown task.
    fn lacking_for_task<'b>(by: &'b Requester, found: Option<&Loaded>) -> Option<RuleScopes<'b>> {
        Self::lacking_scopes(by, &found?.task.name)
    }
}
