//! Calls that raincheck carries: `tools/call` by policy, and every request of a modern client to a
//! legacy server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::body::Body;
use super::inbound::idempotency::digest;
use super::inbound::requester::Requester;
use super::intercept::Modern;
use super::outbound::keepalive::Keepalive;
use super::outbound::patience;
use super::outbound::response::Rpc;
use super::outbound::stream::{self, ResponseEvent, ResponseSource};
use super::proxy::Shared;
use crate::mcp::input;
use crate::mcp::request::Request;
use crate::mcp::version::Era;
use crate::runner::responder::{CallAnswer, CallSubscriber, DeliveryGuard, Reply};
use crate::runner::retry::{ClientRetry, NotifyBy, RetryOutcome, read_state, unknown_state};
use crate::runner::{Announce, CallSpec, NotAdmitted};
use crate::task::policy::{Plan, Rule};
use crate::upstream::{ClientHeaders, Forwarded, Outgoing};

/// A call with everything but its plan.
pub(super) struct Asked<'a> {
    pub(super) modern: &'a Modern<'a>,
    pub(super) headers: &'a HeaderMap,
    pub(super) by: &'a Requester,
    pub(super) client_headers: ClientHeaders,
    pub(super) era: Era,
    /// The server calls the tool safe to repeat, and is believed.
    pub(super) repeatable: bool,
    /// The server runs the tool as a task of its own.
    pub(super) native_task: bool,
    /// How the client hears of a task.
    pub(super) announce: Announce,
}

/// Carries the call by the plan and answers as it goes.
pub(super) async fn carry(
    front: &Shared,
    asked: &Asked<'_>,
    plan: Plan,
    rule: Rule,
) -> Response<Body> {
    if let Some(response) = come_back(front, asked, &rule).await {
        return response;
    }
    let id = asked.modern.request.id;
    let heartbeat = heartbeat(asked.modern, &rule);
    match begin(front, asked, plan, rule) {
        Ok(client) => {
            let words = if asked.modern.request.method == "tools/call" {
                Rpc::call_answer
            } else {
                Rpc::answer
            };
            respond((id.to_owned(), words), client, heartbeat, asked.by).await
        }
        Err(refused) => Rpc::not_begun(id.get(), refused.reason()).into_response(),
    }
}

/// Begins the call, whoever answers.
pub(super) fn begin(
    front: &Shared,
    asked: &Asked<'_>,
    plan: Plan,
    rule: Rule,
) -> Result<CallSubscriber, NotAdmitted> {
    front.runner.call(call(asked, plan, rule))
}

pub(super) fn call(asked: &Asked<'_>, plan: Plan, rule: Rule) -> CallSpec {
    CallSpec {
        caller: asked.by.caller,
        era: asked.era,
        client_era: Era::Modern,
        outgoing: outgoing(asked, &rule),
        rule,
        plan,
        announce: asked.announce.clone(),
        progress_token: asked.modern.meta.progress_token.map(ToOwned::to_owned),
        digest: digest(&asked.modern.request),
        repeatable: asked.repeatable,
        listed: asked.by.has_credentials,
        session: None,
    }
}

fn outgoing(asked: &Asked<'_>, rule: &Rule) -> Outgoing {
    let (request, meta) = (&asked.modern.request, &asked.modern.meta);
    let knows_tickets = matches!(asked.announce, Announce::Ticket(_));
    let may_become_task = request.method == "tools/call" && (meta.declares_tasks || knows_tickets);
    Outgoing {
        caller: *asked.by.caller.as_bytes(),
        credentials: asked.by.credentials.clone(),
        method: request.method.as_ref().into(),
        params: request.params_text.into(),
        capabilities: meta.capabilities.get().into(),
        name: request.name().as_deref().map(Arc::from),
        param_headers: param_headers(asked.headers),
        headers: Arc::clone(&asked.client_headers),
        wants_progress: may_become_task || meta.progress_token.is_some(),
        log_level: meta.log_level.as_deref().map(Arc::from),
        retry: None,
        native_task: asked.native_task,
        pin: None,
        answer_patience: rule.input_timeout_ms.map(Duration::from_millis),
    }
}

fn param_headers(headers: &HeaderMap) -> ClientHeaders {
    headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("mcp-param-"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Whether the request's state has the form of ours.
pub(super) fn has_state_of_ours(request: &Request<'_>) -> bool {
    let state = request.params.get_str("requestState");
    state.as_deref().and_then(read_state).is_some()
}

/// Answers a request that comes back with the state of a parked call. A modern server has states of
/// its own, which may look like ours: what no call of ours is named by is the server's.
pub(super) async fn come_back(
    front: &Shared,
    asked: &Asked<'_>,
    rule: &Rule,
) -> Option<Response<Body>> {
    let request = &asked.modern.request;
    let may_be_the_servers = asked.era == Era::Modern;
    if !request.params.contains("requestState")
        || (may_be_the_servers && !has_state_of_ours(request))
    {
        return None;
    }
    let id = request.id;
    let Some(comeback) = comeback(asked, rule) else {
        return Some(Rpc::error(id.get(), &unknown_state()).into_response());
    };
    Some(match front.runner.rejoin(comeback).await {
        RetryOutcome::Unknown if may_be_the_servers => return None,
        RetryOutcome::Unknown => Rpc::error(id.get(), &unknown_state()).into_response(),
        RetryOutcome::Answer(answer) => Rpc::call_answer(id.get(), answer).into_response(),
        RetryOutcome::Refused(error) => Rpc::error(id.get(), &error).into_response(),
        RetryOutcome::StoreUnavailable => Rpc::store_unavailable(id.get()).into_response(),
        RetryOutcome::Busy => Rpc::busy(id.get()).into_response(),
        RetryOutcome::Follow(client) => {
            let heartbeat = heartbeat(asked.modern, rule);
            let answered = (id.to_owned(), Rpc::call_answer as ToRpc);
            respond(answered, client, heartbeat, asked.by).await
        }
    })
}

fn comeback(asked: &Asked<'_>, rule: &Rule) -> Option<ClientRetry> {
    let request = &asked.modern.request;
    let state = request.params.get_str("requestState");
    let answers = match request.params.get("inputResponses") {
        None => Some(BTreeMap::new()),
        Some(raw) => input::responses_of(raw),
    };
    Some(ClientRetry {
        id: state.as_deref().and_then(read_state)?,
        caller: asked.by.caller,
        digest: digest(request),
        answers: answers?,
        from: Forwarded {
            credentials: asked.by.credentials.clone(),
            headers: Arc::clone(&asked.client_headers),
        },
        heard_by: heard_by(asked, rule),
    })
}

fn heard_by(asked: &Asked<'_>, rule: &Rule) -> NotifyBy {
    let is_call = asked.modern.request.method == "tools/call";
    match &asked.announce {
        Announce::Ticket(ticket) => {
            let patience = Duration::from_millis(rule.fallback_after_ms);
            NotifyBy::Ticket(patience, ticket.clone())
        }
        Announce::Task if is_call && asked.modern.meta.declares_tasks => NotifyBy::Task,
        Announce::Task => NotifyBy::Waiting,
    }
}

/// Where the rule has one for this client.
pub(super) fn heartbeat(modern: &Modern<'_>, rule: &Rule) -> Option<Keepalive> {
    let token = modern.meta.progress_token.filter(|_| rule.heartbeat);
    token.map(|token| Keepalive::since(Instant::now(), token.to_owned()))
}

/// How an answer is said under a request's id.
pub(super) type ToRpc = fn(&str, CallAnswer) -> Rpc;

/// Responds with the answer of a call, however long it takes.
pub(super) async fn respond(
    (id, to_rpc): (Box<RawValue>, ToRpc),
    client: CallSubscriber,
    heartbeat: Option<Keepalive>,
    by: &Requester,
) -> Response<Body> {
    let patience = by.head_patience(patience::MODERN);
    let source = CallEvents { id, to_rpc, client };
    stream::respond(source, Some(patience), heartbeat).await
}

/// What the runner says about a call to the client that made it.
struct CallEvents {
    id: Box<RawValue>,
    to_rpc: ToRpc,
    client: CallSubscriber,
}

impl ResponseSource for CallEvents {
    async fn next(&mut self) -> Option<ResponseEvent> {
        let id = self.id.get();
        Some(match self.client.next().await {
            Some(Reply::Relay(message)) => ResponseEvent::Message(message),
            Some(Reply::Answer(answer)) => ResponseEvent::Answer((self.to_rpc)(id, answer)),
            None => ResponseEvent::Answer(Rpc::abandoned(id)),
        })
    }

    fn begin_stream(&mut self) {
        self.client.begin_stream();
    }

    fn into_guard(self) -> Option<DeliveryGuard> {
        Some(self.client.into_guard())
    }
}
