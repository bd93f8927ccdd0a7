//! A legacy client's call that raincheck carries on the client's own session at the server. The client may wait, go
//! away and come back (a closed connection cancels nothing), or cancel the call by its id.

use std::sync::Arc;
use std::time::Duration;

use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use crate::downstream::body::Body;
use crate::downstream::calls::cancel::cancelled;
use crate::downstream::calls::registry::{AnswerPath, CallEntry, CallKind};
use crate::downstream::companion::tools::CompanionTools;
use crate::downstream::inbound::idempotency::key_in_meta;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route;
use crate::downstream::inbound::route::call::{
    CallDecision, CallFacts, CallIntent, Follows, Passing, WithoutSession,
};
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::outbound::send::notify;
use crate::downstream::outbound::stream::ResponseEvent;
use crate::downstream::proxy::Proxy;
use crate::downstream::tools;
use crate::downstream::{calls::resumable, claims, companion, outbound::patience, tasks::v2025};
use crate::mcp::error::RpcError;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Object;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::request::Request;
use crate::runner::claim::NotClaimed;
use crate::runner::responder::{CallAnswer, CallSubscriber, Reply};
use crate::runner::{CallSpec, CallTerms};
use crate::task::plan::Plan;
use crate::task::policy::{InputWhen, Rule};
use crate::task::ticket::{CompanionNames, CompanionTool};
use crate::upstream::wrapped::DiscoverError;
use crate::upstream::{Pin, UpstreamRequest};

/// Messages that wait for a slow client.
const MESSAGES_MAX: usize = 64;

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
            .filter(|companion| !companion.is_unknown_to(&by.name())),
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
    if matches!(call.terms.plan, Plan::Always { .. }) {
        return Box::pin(v2025::make_task(proxy, by, request, call)).await;
    }
    let carried = CarriedRequest {
        by,
        headers,
        request,
        session: by.session,
        to_rpc: Rpc::legacy_answer,
    };
    carry(proxy, &carried, call).await
}

/// A request that is carried, and how its client is spoken to.
pub(in crate::downstream) struct CarriedRequest<'a> {
    pub(in crate::downstream) by: &'a Requester,
    pub(in crate::downstream) headers: &'a HeaderMap,
    pub(in crate::downstream) request: &'a Request<'a>,
    /// `None`: no cancel and no answer can name the call.
    pub(in crate::downstream) session: Option<SessionKey>,
    /// Makes the response to the request with that id.
    pub(in crate::downstream) to_rpc: fn(&str, CallAnswer) -> Rpc,
}

pub(in crate::downstream) async fn carry(
    proxy: &Arc<Proxy>,
    carried: &CarriedRequest<'_>,
    call: CallSpec,
) -> Response<Body> {
    let request = carried.request;
    let session = carried.session.unwrap_or_else(SessionKey::unnamed);
    let is_joined = call.terms.claim.is_some();
    let kind = if is_joined {
        CallKind::Joined
    } else {
        CallKind::Carried
    };
    let entry = match proxy.calls.enter(kind, session, request.id.get()) {
        Ok(entry) => entry,
        Err(why) => return why.answer(request.id.get()).into_response(),
    };
    let (sender, said) = mpsc::channel(MESSAGES_MAX + 1);
    let channel = ClientChannel {
        id: request.id.to_owned(),
        to_rpc: carried.to_rpc,
        session: carried.session,
        answer: sender.clone().try_reserve_owned().ok(),
        messages: sender,
        streams: carried.by.reads_events,
        runs_on: !is_joined,
        question_patience: question_patience(&call.terms.rule),
    };
    let (tell, begun) = oneshot::channel();
    let job = begin(Arc::clone(proxy), call, entry, channel, tell);
    proxy.passing.spawn(job);
    match begun.await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => {
            let refused = claims::refused(request.id, &why);
            return refused.on_session().into_response();
        }
        Err(_) => return Rpc::abandoned(request.id.get()).into_response(),
    }
    let (method, params) = (&request.method, &request.params);
    let waiting = resumable::Waiting::of(carried.by, carried.headers, request.id, method, params);
    resumable::respond(proxy, carried.by, waiting, said, patience::LEGACY).await
}

/// Returns the longest time that an answer to a question may take.
fn question_patience(rule: &Rule) -> Duration {
    Duration::from_millis(rule.input_timeout_ms.unwrap_or(rule.max_duration_ms))
}

/// Begins the call and follows it to its end. The call goes on if the client goes away before the call has begun.
async fn begin(
    proxy: Arc<Proxy>,
    call: CallSpec,
    entry: CallEntry,
    channel: ClientChannel,
    begun: oneshot::Sender<Result<(), NotClaimed>>,
) {
    match claims::begin(&proxy, call).await {
        Ok(client) => {
            let _ = begun.send(Ok(()));
            let (session, id) = (channel.session, channel.id.clone());
            tokio::select! {
                () = follow(client, &entry, channel) => {}
                // Dropping the subscriber tells the carrier that the client is gone, and the carrier cancels the
                // call.
                () = cancelled(&proxy, &entry, session, &id) => {}
            }
        }
        Err(why) => {
            // Left before the client gets the answer, because the client may then use the id again.
            drop(entry);
            let _ = begun.send(Err(why));
        }
    }
}

/// The way to the client of a carried call.
struct ClientChannel {
    id: Box<RawValue>,
    session: Option<SessionKey>,
    to_rpc: fn(&str, CallAnswer) -> Rpc,
    messages: mpsc::Sender<ResponseEvent>,
    /// The client reads event streams, and so more than the answer.
    streams: bool,
    /// The call goes on when its connection closes, as legacy clients expect. For a call that others may join, the
    /// runner decides.
    runs_on: bool,
    /// The time that a question waits for a client that does not read.
    question_patience: Duration,
    /// A place in the channel for the answer, which no message can take.
    answer: Option<mpsc::OwnedPermit<ResponseEvent>>,
}

impl ClientChannel {
    /// Resolves when the client has left for good. A client whose call goes on without a connection never has.
    async fn left(&self) {
        if self.runs_on {
            std::future::pending::<()>().await;
        } else {
            self.messages.closed().await;
        }
    }

    /// Sends a message. A question waits long for a slow client, a notification only shortly.
    async fn say(&self, message: String, is_question: bool, is_slow: &mut bool) {
        if !is_question {
            return notify(&self.messages, message, is_slow).await;
        }
        let channel = self.messages.send(ResponseEvent::Message(message));
        // If the client went away, the caller of this function decides what becomes of the call.
        let _ = tokio::time::timeout(self.question_patience, channel).await;
    }
}

/// Passes the call's messages to the client, up to the answer.
async fn follow(mut client: CallSubscriber, entry: &CallEntry, channel: ClientChannel) {
    let mut is_slow = false;
    loop {
        let reply = tokio::select! {
            reply = client.next() => reply,
            () = channel.left() => return,
        };
        match reply {
            Some(Reply::Relay(message)) => {
                // A message with an id is a question.
                let asked = Object::parse(&message).ok().and_then(|m| m.get("id"));
                let is_question = asked.is_some();
                if let Some(id) = asked.filter(|_| channel.streams) {
                    entry.asks(id.get(), AnswerPath::Carrier(client.answers()));
                }
                tokio::select! {
                    () = channel.say(message, is_question, &mut is_slow) => {}
                    () = channel.left() => return,
                }
            }
            Some(Reply::Answer(answer)) => {
                // Before the client hears it: it may use the id again.
                entry.leave();
                let rpc = (channel.to_rpc)(channel.id.get(), answer);
                if let Some(room) = channel.answer {
                    room.send(ResponseEvent::Answer(rpc));
                }
                client.into_guard().announce();
                return;
            }
            None => return,
        }
    }
}
