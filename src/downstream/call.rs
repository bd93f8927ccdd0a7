//! Calls that raincheck carries: `tools/call` by policy, and every request of a modern client to a
//! legacy server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio::time::{Instant, Interval};

use super::body::{Body, PROBE};
use super::heartbeat::{self, Heartbeat};
use super::intercept::Modern;
use super::keep_alive::keep_alive;
use super::patience;
use super::proxy::Shared;
use super::reply::{self, Rpc};
use crate::mcp::request::Request;
use crate::mcp::version::Era;
use crate::mcp::{input, sse};
use crate::runner::parked::{Comeback, HeardBy, Rejoined, read_state, unknown_state};
use crate::runner::seat::{Answer, Client, Guard, Reply};
use crate::runner::{Announce, Call, NotBegun};
use crate::task::id::Caller;
use crate::task::policy::{Plan, Rule};
use crate::task::state::Digest;
use crate::upstream::{ClientHeaders, Forwarded, Outgoing};

/// A call with everything but its plan.
pub(super) struct Asked<'a> {
    pub(super) modern: &'a Modern<'a>,
    pub(super) headers: &'a HeaderMap,
    pub(super) caller: Caller,
    pub(super) credentials: Option<HeaderValue>,
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
            respond((id.to_owned(), words), client, heartbeat, asked.headers).await
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
) -> Result<Client, NotBegun> {
    front.runner.call(call(asked, plan, rule))
}

pub(super) fn call(asked: &Asked<'_>, plan: Plan, rule: Rule) -> Call {
    Call {
        caller: asked.caller,
        era: asked.era,
        face: Era::Modern,
        outgoing: outgoing(asked, &rule),
        rule,
        plan,
        announce: asked.announce.clone(),
        progress_token: asked.modern.meta.progress_token.map(ToOwned::to_owned),
        digest: digest(&asked.modern.request),
        repeatable: asked.repeatable,
        listed: super::auth::is_somebody(asked.headers),
        session: None,
    }
}

fn outgoing(asked: &Asked<'_>, rule: &Rule) -> Outgoing {
    let (request, meta) = (&asked.modern.request, &asked.modern.meta);
    let knows_tickets = matches!(asked.announce, Announce::Ticket(_));
    let may_become_task = request.method == "tools/call" && (meta.declares_tasks || knows_tickets);
    Outgoing {
        caller: *asked.caller.as_bytes(),
        credentials: asked.credentials.clone(),
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

/// What a retry must repeat: the method and what it was asked to do.
pub(super) fn digest(request: &Request<'_>) -> Digest {
    let arguments = request.params.get("arguments").map_or("", RawValue::get);
    Digest::of(&[
        &request.method,
        request.name().as_deref().unwrap_or_default(),
        arguments,
    ])
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
        Rejoined::Unknown if may_be_the_servers => return None,
        Rejoined::Unknown => Rpc::error(id.get(), &unknown_state()).into_response(),
        Rejoined::Answer(answer) => Rpc::call_answer(id.get(), answer).into_response(),
        Rejoined::Refused(error) => Rpc::error(id.get(), &error).into_response(),
        Rejoined::StoreUnavailable => Rpc::store_unavailable(id.get()).into_response(),
        Rejoined::Busy => Rpc::busy(id.get()).into_response(),
        Rejoined::Follow(client) => {
            let heartbeat = heartbeat(asked.modern, rule);
            let answered = (id.to_owned(), Rpc::call_answer as ToRpc);
            respond(answered, client, heartbeat, asked.headers).await
        }
    })
}

fn comeback(asked: &Asked<'_>, rule: &Rule) -> Option<Comeback> {
    let request = &asked.modern.request;
    let state = request.params.get_str("requestState");
    let answers = match request.params.get("inputResponses") {
        None => Some(BTreeMap::new()),
        Some(raw) => input::responses_of(raw),
    };
    Some(Comeback {
        id: state.as_deref().and_then(read_state)?,
        caller: asked.caller,
        digest: digest(request),
        answers: answers?,
        from: Forwarded {
            credentials: asked.credentials.clone(),
            headers: Arc::clone(&asked.client_headers),
        },
        heard_by: heard_by(asked, rule),
    })
}

fn heard_by(asked: &Asked<'_>, rule: &Rule) -> HeardBy {
    let is_call = asked.modern.request.method == "tools/call";
    match &asked.announce {
        Announce::Ticket(ticket) => {
            let patience = Duration::from_millis(rule.fallback_after_ms);
            HeardBy::Ticket(patience, ticket.clone())
        }
        Announce::Task if is_call && asked.modern.meta.declares_tasks => HeardBy::Task,
        Announce::Task => HeardBy::Waiting,
    }
}

/// Where the rule has one for this client.
pub(super) fn heartbeat(modern: &Modern<'_>, rule: &Rule) -> Option<Heartbeat> {
    let token = modern.meta.progress_token.filter(|_| rule.heartbeat);
    token.map(|token| Heartbeat::since(Instant::now(), token.to_owned()))
}

/// How an answer is said under a request's id.
pub(super) type ToRpc = fn(&str, Answer) -> Rpc;

/// The answer as one JSON body where it comes soon, else as a stream.
pub(super) async fn respond(
    (id, words): (Box<RawValue>, ToRpc),
    mut client: Client,
    heartbeat: Option<Heartbeat>,
    headers: &HeaderMap,
) -> Response<Body> {
    let patience = tokio::time::sleep(patience::of_modern(headers));
    let first = tokio::select! {
        reply = client.next() => match reply {
            Some(Reply::Answer(answer)) => {
                return words(id.get(), answer).guarded(Some(client.into_guard()));
            }
            Some(Reply::Relay(notification)) => Some(notification),
            None => return Rpc::abandoned(id.get()).into_response(),
        },
        () = patience => None,
        // The first beat is said on the stream.
        () = heartbeat::due(heartbeat.as_ref()) => None,
    };
    client.begin_stream();
    reply::event_stream(Body::Events(events(id, client, first, heartbeat)))
}

/// What is left of a held call while it streams. Dropped before the answer was read, the client
/// is gone.
struct Held {
    id: Box<RawValue>,
    client: Client,
    first: Option<String>,
    beat: Interval,
    heartbeat: Option<Heartbeat>,
}

impl Held {
    fn relay(&mut self, notification: &str) -> Bytes {
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.saw(notification);
        }
        sse::event(notification)
    }
}

/// Where the stream of a held call is.
enum Stage {
    Held(Held),
    /// The answer was taken. A piece behind it tells when it was sent, see
    /// [`Body::hold_until_sent`].
    Answered(Guard),
    Sent(Guard),
}

fn events(
    id: Box<RawValue>,
    client: Client,
    first: Option<String>,
    heartbeat: Option<Heartbeat>,
) -> BoxStream<'static, Bytes> {
    let held = Held {
        id,
        client,
        first,
        beat: keep_alive(),
        heartbeat,
    };
    stream::unfold(Stage::Held(held), |stage| async {
        let mut held = match stage {
            Stage::Held(held) => held,
            Stage::Answered(guard) => return Some((PROBE, Stage::Sent(guard))),
            Stage::Sent(guard) => {
                guard.announce();
                return None;
            }
        };
        if let Some(first) = held.first.take() {
            return Some((held.relay(&first), Stage::Held(held)));
        }
        tokio::select! {
            reply = held.client.next() => match reply? {
                Reply::Relay(notification) => {
                    Some((held.relay(&notification), Stage::Held(held)))
                }
                Reply::Answer(answer) => {
                    let event = sse::event(&Rpc::answer(held.id.get(), answer).json);
                    Some((event, Stage::Answered(held.client.into_guard())))
                }
            },
            _ = held.beat.tick() => Some((sse::COMMENT, Stage::Held(held))),
            () = heartbeat::due(held.heartbeat.as_ref()) => {
                let beat = held.heartbeat.as_mut().map(Heartbeat::beat)?;
                Some((sse::event(&beat), Stage::Held(held)))
            }
        }
    })
    .boxed()
}
