//! A legacy client's call that raincheck carries on the client's own session at the server.

use std::future::ready;
use std::sync::Arc;

use hyper::{HeaderMap, Response};
use tokio::sync::mpsc;

use super::carry::{AskedClient, CallSession, carry};
use crate::downstream::body::Body;
use crate::downstream::calls::registry::CallKind;
use crate::downstream::companion::tools::CompanionTools;
use crate::downstream::inbound::idempotency::key_in_meta;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route;
use crate::downstream::inbound::route::call::{
    CallDecision, CallFacts, CallIntent, Follows, Passing,
};
use crate::downstream::inbound::route::without_session::WithoutSession;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::downstream::tools;
use crate::downstream::{companion, tasks::v2025};
use crate::mcp::error::RpcError;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::request::Request;
use crate::runner::responder::{CallAnswer, RelayedAnswer};
use crate::runner::{CallSpec, CallTerms};
use crate::task::plan::Plan;
use crate::task::policy::InputWhen;
use crate::task::ticket::{CompanionNames, CompanionTool};
use crate::upstream::wrapped::DiscoverError;
use crate::upstream::{Pin, UpstreamRequest};

/// The operation by which raincheck answers a call that does not pass.
pub(in crate::downstream) enum CallOp {
    Refuse(RpcError),
    /// The client's session cannot be used now, and the call must not pass.
    Busy,
    Companion(CompanionTool, CompanionNames),
    /// Runs the call on this session at the server.
    Run(Box<CallTerms>, Option<Pin>),
}

/// Decides about a call, and asks the server for the facts that the decision needs. `None`: the call passes. `Err`:
/// the error in place of an answer.
pub(in crate::downstream) async fn decide(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
    request: &Request<'_>,
) -> Result<Option<CallOp>, DiscoverError> {
    let speaks_of_tasks = v2025::speaks(headers);
    let follows = match Follows::of_legacy(request, speaks_of_tasks) {
        Ok(follows) => follows,
        Err(error) => return Ok(Some(CallOp::Refuse(error))),
    };
    let intent = CallIntent {
        request,
        key: key_in_meta(request),
        follows,
        passing: Passing::OnSession,
        input: InputWhen::InTask,
        headers: None,
    };
    let mut facts = facts(proxy, by, request, speaks_of_tasks);
    facts.given_up = tools::given_up(proxy, by, request, None).await;
    loop {
        return Ok(Some(match route::call::decide(&intent, by, &facts) {
            CallDecision::Ask(fact, _) => {
                let capabilities = by.session_capabilities();
                let asking = tools::ask(proxy, by, capabilities, fact, &mut facts.server);
                Box::pin(asking).await?;
                continue;
            }
            CallDecision::Pass => return Ok(None),
            CallDecision::Refuse(error) => CallOp::Refuse(error),
            CallDecision::Companion(tool, names) => CallOp::Companion(tool, names),
            CallDecision::Run(terms) => return Ok(on_session(proxy, by, headers, &facts, terms)),
        }));
    }
}

fn facts<'k>(
    proxy: &'k Arc<Proxy>,
    by: &'k Requester,
    request: &Request<'_>,
    speaks_of_tasks: bool,
) -> CallFacts<'k> {
    let tool = request.params.get_str("name").unwrap_or_default();
    let facts = tools::facts_of_calls(proxy, by, Some(&tool));
    let hides_native_tasks = speaks_of_tasks && !facts.keeps_native_tasks;
    CallFacts {
        // The client knows those of our tools that were in its list.
        companion: facts
            .companion
            .filter(|companion| !companion.is_unknown_to(&by.memory_key())),
        requires_task: if hides_native_tasks {
            proxy.native_tools.requires_task(&tool)
        } else {
            Some(false)
        },
        ..facts
    }
}

/// Finds the client's session at the server for a call. `None`: the call passes.
fn on_session(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
    facts: &CallFacts<'_>,
    terms: Box<CallTerms>,
) -> Option<CallOp> {
    let without = WithoutSession::of(&terms, facts, headers.contains_key(SESSION_ID));
    if without == WithoutSession::Run {
        return Some(CallOp::Run(terms, None));
    }
    let caller = *by.caller.as_bytes();
    match (proxy.upstream.client_session(headers, caller), without) {
        // Pinned to the client's own session, because its state at the server (a browser, a login) lives there.
        (Some(session), _) => Some(CallOp::Run(terms, Some(session.pin()))),
        (None, WithoutSession::Busy) => Some(CallOp::Busy),
        (None, WithoutSession::Pass | WithoutSession::Run) => None,
    }
}

/// Answers a call that does not pass.
pub(in crate::downstream) async fn answer(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
    request: &Request<'_>,
    op: CallOp,
) -> Response<Body> {
    let (terms, pin) = match op {
        CallOp::Refuse(error) => {
            let refused = Rpc::error(request.id.get(), &error).on_session();
            return refused.into_response();
        }
        CallOp::Busy => return Rpc::busy(request.id.get()).into_response(),
        CallOp::Companion(tool, names) => {
            let companion_tools = CompanionTools::of(proxy, by, names);
            return companion::call(&companion_tools, tool, request, headers).await;
        }
        CallOp::Run(terms, pin) => (terms, pin),
    };
    let name = request.params.get_str("name").as_deref().map(Arc::from);
    let caller = *by.caller.as_bytes();
    let outgoing = UpstreamRequest::new(caller, request.method.as_ref(), request.params_text)
        .declaring(by.session_capabilities())
        .forwarding(proxy.forwarded(by, headers))
        .described_by(name, [].into())
        .with_progress(true)
        .on(pin);
    let meta = request.params.get_object("_meta").unwrap_or_default();
    let client = by.client_of_call(by.session);
    let call = CallSpec::of(client, *terms, outgoing, meta.get(PROGRESS_TOKEN));
    // Such a request is answered as soon as its task exists, so no entry under the request's id is needed.
    if matches!(call.terms.plan, Plan::Always { .. }) {
        return Box::pin(v2025::make_task(proxy, by, request, call)).await;
    }
    let session = ServersSession {
        key: by.session,
        is_joined: call.terms.claim.is_some(),
    };
    carry(proxy, (by, headers, request), session, ready(call)).await
}

/// The client's own session at the server, whose questions and errors pass to the client as they are.
struct ServersSession {
    key: Option<SessionKey>,
    /// Other requests may join the call.
    is_joined: bool,
}

impl CallSession for ServersSession {
    fn key(&self) -> Option<SessionKey> {
        self.key
    }

    fn kind(&self) -> CallKind {
        if self.is_joined {
            CallKind::Joined
        } else {
            CallKind::Carried
        }
    }

    async fn ended(&self, _: &Arc<Proxy>) {
        // The server ends the call with its session.
        std::future::pending::<()>().await;
    }

    async fn ask(
        &self,
        client: &AskedClient<'_>,
        question: String,
        answers: mpsc::Sender<RelayedAnswer>,
    ) {
        client.relay(question, answers).await;
    }

    async fn response(&self, id: &str, answer: CallAnswer) -> Rpc {
        Rpc::legacy_answer(id, answer)
    }
}
