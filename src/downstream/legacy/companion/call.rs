//! A legacy client's call, carried on its own session at the server. Its client may wait, go away
//! (which cancels nothing, as legacy clients know it) or cancel it by its id.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::super::super::auth;
use super::super::super::body::Body;
use super::super::super::call::{HEAD_PATIENCE, keep_alive};
use super::super::super::companion::carried::Carrying;
use super::super::super::companion::{Companion, Desk};
use super::super::super::reply::{self, Rpc};
use super::super::super::tasks::Shared;
use super::super::accepts_events;
use super::super::pushes::SessionKey;
use super::super::words::Request;
use super::Sender;
use crate::mcp::error::RpcError;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Object;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::sse;
use crate::mcp::version::Era;
use crate::runner::Call;
use crate::runner::seat::{Answer, Client, Reply};
use crate::task::policy::{Plan, Rule};
use crate::task::state::Digest;
use crate::upstream::{Outgoing, Pin};

/// Notifications that wait for a slow client; beyond it they are dropped.
const MESSAGES_MAX: usize = 64;

/// `None`: it passes.
pub(super) async fn answer(
    front: &Shared,
    companion: &Companion,
    from: &Sender<'_>,
    request: &Request<'_>,
) -> Option<Response<Body>> {
    let name = request.params.get_str("name")?;
    let desk = Desk::open(front, from.who.clone()).await?;
    if let Some(tool) = desk.tool(&name) {
        let answer = desk.answer(tool, request.params.get("arguments")).await;
        return Some(Rpc::legacy_answer(request.id.get(), answer).into_response());
    }
    let rule = front.rules.for_tool(&name).0;
    let plan = desk.plan(rule);
    if !matches!(plan, Plan::Auto { .. }) {
        return None;
    }
    let pin = pin(front, from).ok()?;
    let refused = |rpc: Rpc| Some(rpc.into_response());
    let nobodys = || SessionKey::of(&from.who.caller, &Uuid::new_v4().to_string());
    let session = from.session.unwrap_or_else(nobodys);
    let Some(carrying) = companion.carried.enter(session, request.id) else {
        let error = RpcError::invalid_request("Invalid request: this id is in use");
        return refused(Rpc::error(request.id.get(), &error));
    };
    let call = carried(front, &desk, from, request, (plan, rule, pin));
    let client = match front.runner.call(call) {
        Ok(client) => client,
        Err(why) => return refused(Rpc::not_begun(request.id.get(), why.reason())),
    };
    let (sender, receiver) = mpsc::channel(MESSAGES_MAX + 1);
    let slot = sender.clone().try_reserve_owned().ok()?;
    front.passing.spawn(follow(client, carrying, sender, slot));
    let streams = accepts_events(&from.parts.headers);
    Some(respond(request.id.to_owned(), receiver, streams).await)
}

/// The server says so best.
struct UnknownSession;

/// The session that the call goes out on: the client's own, or any where servers have none.
fn pin(front: &Shared, from: &Sender<'_>) -> Result<Option<Pin>, UnknownSession> {
    let headers = &from.parts.headers;
    if !headers.contains_key(SESSION_ID) {
        return Ok(None);
    }
    let caller = *from.who.caller.as_bytes();
    let session = front.upstream.client_session(headers, caller);
    let session = session.ok_or(UnknownSession)?;
    Ok(Some(session.pin()))
}

fn carried(
    front: &Shared,
    desk: &Desk<'_>,
    from: &Sender<'_>,
    request: &Request<'_>,
    (plan, rule, pin): (Plan, &Rule, Option<Pin>),
) -> Call {
    let name = request.params.get_str("name").unwrap_or_default();
    let known = desk.known(&name);
    let meta = request.params.get_object("_meta").unwrap_or_default();
    Call {
        caller: from.who.caller,
        era: Era::Legacy,
        outgoing: Outgoing {
            caller: *from.who.caller.as_bytes(),
            credentials: from.who.credentials.clone(),
            method: request.method.as_ref().into(),
            params: request.params_text.into(),
            capabilities: Arc::clone(&from.who.capabilities),
            name: Some(name.as_ref().into()),
            param_headers: [].into(),
            wants_progress: true,
            log_level: None,
            retry: None,
            answer_patience: rule.input_timeout_ms.map(Duration::from_millis),
            native_task: known.requires_task,
            pin,
        },
        rule: rule.clone(),
        plan,
        announce: desk.announce(&name),
        progress_token: meta.get(PROGRESS_TOKEN).map(ToOwned::to_owned),
        // Never parked: it becomes a ticket instead.
        digest: Digest::of(&[]),
        repeatable: known.repeatable && front.settings.trust_annotations,
        listed: auth::is_somebody(&from.parts.headers),
    }
}

/// Takes what is said to the client, whether it still hears it or not.
async fn follow(
    mut client: Client,
    carrying: Carrying,
    sender: mpsc::Sender<Reply>,
    slot: mpsc::OwnedPermit<Reply>,
) {
    loop {
        let reply = tokio::select! {
            reply = client.next() => reply,
            // Dropped, the client is gone, and the call is cancelled.
            () = carrying.cancelled() => return,
        };
        match reply {
            Some(Reply::Relay(message)) => {
                // What has an id is a question.
                let asked = Object::parse(&message).ok().and_then(|m| m.get("id"));
                if let Some(id) = asked {
                    carrying.asks(id, client.answers());
                }
                let _ = sender.try_send(Reply::Relay(message));
            }
            Some(answer @ Reply::Answer(_)) => {
                // Before the client hears it: it may use the id again.
                drop(carrying);
                slot.send(answer);
                client.into_guard().announce();
                return;
            }
            None => return,
        }
    }
}

/// One JSON body where the answer comes soon and alone, else a stream.
async fn respond(
    id: Box<RawValue>,
    mut said: mpsc::Receiver<Reply>,
    streams: bool,
) -> Response<Body> {
    let patience = if streams {
        HEAD_PATIENCE
    } else {
        Duration::MAX
    };
    let first = loop {
        match tokio::time::timeout(patience, said.recv()).await {
            Ok(Some(Reply::Answer(answer))) => {
                return Rpc::legacy_answer(id.get(), answer).into_response();
            }
            Ok(Some(Reply::Relay(message))) if streams => break Some(sse::event(&message)),
            Ok(Some(Reply::Relay(_))) => {}
            Ok(None) | Err(_) => break None,
        }
    };
    let rest = stream::unfold(
        (Some(said), keep_alive(), id),
        |(said, mut beat, id)| async {
            let mut said = said?;
            tokio::select! {
                reply = said.recv() => match reply? {
                    Reply::Relay(message) => Some((sse::event(&message), (Some(said), beat, id))),
                    Reply::Answer(answer) => Some((last(&id, answer), (None, beat, id))),
                },
                _ = beat.tick() => Some((sse::COMMENT, (Some(said), beat, id))),
            }
        },
    );
    reply::event_stream(Body::Events(stream::iter(first).chain(rest).boxed()))
}

fn last(id: &RawValue, answer: Answer) -> Bytes {
    sse::event(&Rpc::legacy_answer(id.get(), answer).json)
}
