//! Calls that raincheck carries: `tools/call` by policy, and every request of a modern client to a
//! legacy server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio::time::{Instant, Interval};

use super::body::{Body, PROBE};
use super::heartbeat::{self, Heartbeat};
use super::intercept::Modern;
use super::reply::{self, Rpc};
use super::tasks::Shared;
use crate::mcp::error::RpcError;
use crate::mcp::version::Era;
use crate::mcp::{input, sse};
use crate::runner::parked::{Comeback, Follower, HeardBy, Rejoined, read_state};
use crate::runner::seat::{Answer, Client, Guard, Reply};
use crate::runner::{Announce, Call, NotBegun};
use crate::task::id::Caller;
use crate::task::policy::{Plan, Rule};
use crate::task::state::Digest;
use crate::upstream::Outgoing;

/// How long the response head waits for the first word, so that errors ride their own status.
pub(super) const HEAD_PATIENCE: Duration = Duration::from_secs(3);

/// Between comments on a quiet stream.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A call with everything but its plan.
pub(super) struct Asked<'a> {
    pub(super) modern: &'a Modern<'a>,
    pub(super) headers: &'a HeaderMap,
    pub(super) caller: Caller,
    pub(super) credentials: Option<HeaderValue>,
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
    let id = asked.modern.request.id;
    match state_of_ours(asked, &rule) {
        Ok(None) => {}
        Ok(Some(comeback)) => return rejoin(front, id, comeback).await,
        Err(error) => return Rpc::error(id.get(), &error).into_response(),
    }
    let token = asked.modern.meta.progress_token.filter(|_| rule.heartbeat);
    let heartbeat = token.map(|token| Heartbeat::new(token.to_owned(), Duration::ZERO));
    match begin(front, asked, plan, rule) {
        Ok(client) => respond(id.to_owned(), client, heartbeat).await,
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
    front.runner.call(Call {
        caller: asked.caller,
        era: asked.era,
        outgoing: outgoing(asked, &rule),
        rule,
        plan,
        announce: asked.announce.clone(),
        progress_token: asked.modern.meta.progress_token.map(ToOwned::to_owned),
        digest: digest(asked),
        repeatable: asked.repeatable,
        listed: super::auth::is_somebody(asked.headers),
    })
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
        wants_progress: may_become_task || meta.progress_token.is_some(),
        log_level: meta.log_level.as_deref().map(Arc::from),
        retry: None,
        native_task: asked.native_task,
        pin: None,
        answer_patience: rule.input_timeout_ms.map(Duration::from_millis),
    }
}

fn param_headers(headers: &HeaderMap) -> Arc<[(HeaderName, HeaderValue)]> {
    headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("mcp-param-"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What a retry must repeat: the method and what it was asked to do.
fn digest(asked: &Asked<'_>) -> Digest {
    let request = &asked.modern.request;
    let arguments = request.params.get("arguments").map_or("", RawValue::get);
    Digest::of(&[
        &request.method,
        request.name().as_deref().unwrap_or_default(),
        arguments,
    ])
}

/// The state of a parked call that this request comes back with. Only calls to a legacy server are
/// parked here; a modern server's state is its own.
fn state_of_ours(asked: &Asked<'_>, rule: &Rule) -> Result<Option<Comeback>, RpcError> {
    let params = &asked.modern.request.params;
    if asked.era == Era::Modern || !params.contains("requestState") {
        return Ok(None);
    }
    let unknown =
        || RpcError::invalid_params("Invalid params: the request state is unknown or does not fit");
    let id = params
        .get_str("requestState")
        .as_deref()
        .and_then(read_state);
    let answers = match params.get("inputResponses") {
        None => Some(std::collections::BTreeMap::new()),
        Some(raw) => input::responses_of(raw),
    };
    Ok(Some(Comeback {
        id: id.ok_or_else(unknown)?,
        caller: asked.caller,
        digest: digest(asked),
        answers: answers.ok_or_else(unknown)?,
        heard_by: heard_by(asked, rule),
    }))
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

async fn rejoin(front: &Shared, id: &RawValue, comeback: Comeback) -> Response<Body> {
    match front.runner.rejoin(comeback).await {
        Rejoined::Answer(answer) => Rpc::answer(id.get(), answer).into_response(),
        Rejoined::Refused(error) => Rpc::error(id.get(), &error).into_response(),
        Rejoined::StoreUnavailable => Rpc::store_unavailable(id.get()).into_response(),
        Rejoined::Follow(follower) => follow(front, id.to_owned(), *follower),
    }
}

/// Holds the connection until the parked call has come to something.
fn follow(front: &Shared, id: Box<RawValue>, follower: Follower) -> Response<Body> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    front.runner.follow(follower, sender);
    let wait = stream::unfold(
        (Some(receiver), keep_alive(), id),
        |(receiver, mut beat, id)| async {
            let mut receiver = receiver?;
            tokio::select! {
                answer = &mut receiver => {
                    let rpc = Rpc::answer(id.get(), answer.unwrap_or(Answer::StoreUnavailable));
                    Some((sse::event(&rpc.json), (None, beat, id)))
                }
                _ = beat.tick() => Some((sse::COMMENT, (Some(receiver), beat, id))),
            }
        },
    );
    reply::event_stream(Body::Events(wait.boxed()))
}

/// The answer as one JSON body where it comes soon, else as a stream.
async fn respond(
    id: Box<RawValue>,
    mut client: Client,
    heartbeat: Option<Heartbeat>,
) -> Response<Body> {
    match tokio::time::timeout(HEAD_PATIENCE, client.next()).await {
        Ok(Some(Reply::Answer(answer))) => {
            Rpc::answer(id.get(), answer).guarded(Some(client.into_guard()))
        }
        Ok(Some(Reply::Relay(notification))) => {
            let first = Some(notification);
            reply::event_stream(Body::Events(events(id, client, first, heartbeat)))
        }
        Ok(None) => Rpc::error(
            id.get(),
            &RpcError::internal("The call ended without an answer"),
        )
        .into_response(),
        Err(_elapsed) => reply::event_stream(Body::Events(events(id, client, None, heartbeat))),
    }
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

pub(super) fn keep_alive() -> Interval {
    let mut beat = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    beat
}
