//! The requests of modern clients that raincheck carries: `tools/call` by policy, and every request to a legacy
//! server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::body::Body;
use super::calls::resumable::{self, ConnectedCall};
use super::inbound::idempotency::digest;
use super::inbound::request::Modern;
use super::inbound::requester::Requester;
use super::inbound::route::modern::has_state_of_ours;
use super::outbound::keepalive::Keepalive;
use super::outbound::patience;
use super::outbound::response::Rpc;
use super::outbound::stream::{self, ResponseEvent, ResponseSource};
use super::proxy::Proxy;
use super::{claims, passthrough};
use crate::mcp::headers::owned;
use crate::mcp::input;
use crate::mcp::version::Era;
use crate::runner::responder::{CallAnswer, CallSubscriber, DeliveryGuard, Reply};
use crate::runner::retry::{ClientRetry, NotifyBy, RetryOutcome, read_state, unknown_state};
use crate::runner::{AdmitError, Announce, CallSpec, CallTerms};
use crate::upstream::{self, ClientHeaders, Forwarded, UpstreamRequest};

/// A modern client's request that is carried.
pub(super) struct ModernCall<'a> {
    pub(super) modern: &'a Modern<'a>,
    pub(super) by: &'a Requester,
    pub(super) client_headers: ClientHeaders,
    pub(super) terms: Box<CallTerms>,
}

/// Runs the call, or joins the same call if that already runs, and answers the client: at the end, or event by event.
pub(super) async fn carry(proxy: &Arc<Proxy>, asked: &ModernCall<'_>) -> Response<Body> {
    let id = asked.modern.request.id;
    match returned(asked) {
        Returned::Not => {}
        Returned::Unreadable => return Rpc::error(id.get(), &unknown_state()).into_response(),
        Returned::To(retry) => {
            let outcome = proxy.runner.rejoin(*retry).await;
            // A modern server has states of its own, which may look like raincheck's.
            let may_be_the_servers = asked.terms.era == Some(Era::Modern);
            if !may_be_the_servers || !matches!(outcome, RetryOutcome::Unknown) {
                return retried(asked, outcome).await;
            }
        }
    }
    // The client waits from now on, also for a call that another request began.
    let heartbeat = heartbeat(asked);
    match claims::begin(proxy, call(asked)).await {
        Ok(client) => {
            let words = if asked.modern.request.method == "tools/call" {
                Rpc::call_answer
            } else {
                Rpc::answer
            };
            respond((asked, words), client, heartbeat).await
        }
        Err(why) => claims::refused(id, &why).into_response(),
    }
}

/// Passes a call on whose client waits on its connection, and is sent progress while the server is silent.
pub(super) async fn pass(
    proxy: &Arc<Proxy>,
    by: &Requester,
    sent: (Parts, Bytes),
    modern: &Modern<'_>,
) -> Response<Body> {
    // Progress goes under the client's own token. Without one there is nothing to send, so the call just passes.
    let Some(token) = modern.meta.progress_token else {
        let (parts, body) = sent;
        return passthrough::bytes(proxy, Box::new(parts), body).await;
    };
    let heartbeat = Keepalive::since(Instant::now(), token.to_owned());
    let call = ConnectedCall {
        id: modern.request.id,
        tool: &modern.request.name().unwrap_or_default(),
        heartbeat,
    };
    resumable::pass_connected(proxy, by, sent, call).await
}

/// Begins the request. The caller answers it.
pub(super) fn begin(
    proxy: &Arc<Proxy>,
    asked: &ModernCall<'_>,
) -> Result<CallSubscriber, AdmitError> {
    proxy.runner.call(call(asked))
}

fn call(asked: &ModernCall<'_>) -> CallSpec {
    let (request, meta, terms) = (&asked.modern.request, &asked.modern.meta, &asked.terms);
    let knows_tickets = matches!(terms.announce, Announce::Ticket(_));
    let may_become_task = request.method == "tools/call" && (meta.declares_tasks || knows_tickets);
    let caller = *asked.by.caller.as_bytes();
    let name = request.name().as_deref().map(Arc::from);
    // A task shows the progress of its server, so progress is asked for also where the client sent no token.
    let mut outgoing = UpstreamRequest::new(caller, request.method.as_ref(), request.params_text)
        .declaring(meta.capabilities.get())
        .forwarding(forwarded(asked))
        .described_by(name, param_headers(asked.modern.headers))
        .with_progress(may_become_task || meta.progress_token.is_some());
    outgoing.log_level = meta.log_level.as_deref().map(Arc::from);
    // A modern client answers in a request of its own, so no session has to lead its answers to the call.
    let client = asked.by.client_of_call(None);
    CallSpec::of(client, (**terms).clone(), outgoing, meta.progress_token)
}

fn forwarded(asked: &ModernCall<'_>) -> Forwarded {
    Forwarded {
        credentials: asked.by.credentials.clone(),
        headers: Arc::clone(&asked.client_headers),
        query: asked.by.query.clone(),
    }
}

fn param_headers(headers: &HeaderMap) -> ClientHeaders {
    let mirrored = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("mcp-param-"));
    upstream::listed(mirrored.map(|(name, value)| (name.clone(), owned(value))))
}

/// The parked call to which a request comes back, if there is one.
enum Returned {
    Not,
    /// The request has a state or answers that no parked call can have.
    Unreadable,
    To(Box<ClientRetry>),
}

fn returned(asked: &ModernCall<'_>) -> Returned {
    let request = &asked.modern.request;
    // A modern server has request states of its own. One without raincheck's form goes to that server.
    let is_the_servers = asked.terms.era == Some(Era::Modern) && !has_state_of_ours(request);
    if !request.params.contains("requestState") || is_the_servers {
        return Returned::Not;
    }
    let state = request.params.get_str("requestState");
    let answers = match request.params.get("inputResponses") {
        None => Some(BTreeMap::new()),
        Some(raw) => input::responses_of(raw),
    };
    let (Some(id), Some(answers)) = (state.as_deref().and_then(read_state), answers) else {
        return Returned::Unreadable;
    };
    Returned::To(Box::new(ClientRetry {
        id,
        caller: asked.by.caller,
        // A state belongs to one call: a retry with other arguments finds none.
        digest: digest(request),
        answers,
        from: forwarded(asked),
        heard_by: heard_by(asked),
    }))
}

/// Answers a request that came back to a parked call.
async fn retried(asked: &ModernCall<'_>, outcome: RetryOutcome) -> Response<Body> {
    let id = asked.modern.request.id.get();
    let rpc = match outcome {
        RetryOutcome::Unknown => Rpc::error(id, &unknown_state()),
        RetryOutcome::Answer(answer) => Rpc::call_answer(id, answer),
        RetryOutcome::Refused(error) => Rpc::error(id, &error),
        RetryOutcome::StoreUnavailable => Rpc::store_unavailable(id),
        RetryOutcome::Busy => Rpc::busy(id),
        RetryOutcome::Follow(client) => {
            let heartbeat = heartbeat(asked);
            return respond((asked, Rpc::call_answer), client, heartbeat).await;
        }
    };
    rpc.into_response()
}

fn heard_by(asked: &ModernCall<'_>) -> NotifyBy {
    let is_call = asked.modern.request.method == "tools/call";
    match &asked.terms.announce {
        Announce::Ticket(ticket) => {
            let patience = asked.by.client.fallback_after_ms(&asked.terms.rule).value;
            let patience = Duration::from_millis(patience);
            NotifyBy::Ticket(patience, ticket.clone())
        }
        Announce::Task if is_call && asked.modern.meta.declares_tasks => NotifyBy::Task,
        Announce::Task => NotifyBy::Waiting,
    }
}

/// The progress that raincheck sends while the server is silent, to a client that asked for progress and that it helps.
fn heartbeat(asked: &ModernCall<'_>) -> Option<Keepalive> {
    let beats = asked.by.client.heartbeat(&asked.terms.rule).value;
    let token = asked.modern.meta.progress_token.filter(|_| beats);
    token.map(|token| Keepalive::since(Instant::now(), token.to_owned()))
}

/// A function that writes an answer under a request's id.
type ToRpc = fn(&str, CallAnswer) -> Rpc;

/// Responds with the answer of a call, however long it takes.
async fn respond(
    (asked, to_rpc): (&ModernCall<'_>, ToRpc),
    client: CallSubscriber,
    heartbeat: Option<Keepalive>,
) -> Response<Body> {
    let patience = asked.by.head_patience(patience::MODERN);
    let id = asked.modern.request.id.to_owned();
    let source = CallEvents { id, to_rpc, client };
    stream::respond(source, Some(patience), heartbeat).await
}

/// The events that the runner sends about a call to the client that made it.
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
            // Only a panic of the carrier closes the channel without an answer.
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
