//! A legacy client's call, carried on its own session at the server and held for its client, which may
//! wait, go away (which cancels nothing, as legacy clients know it) or cancel it by its id.

use std::sync::Arc;
use std::time::Duration;

use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::super::super::body::Body;
use super::super::super::companion::desk::Desk;
use super::super::super::inbound::idempotency;
use super::super::super::inbound::requester::Requester;
use super::super::super::inbound::route::call::{CallRoute, CarrySpec, route_call};
use super::super::super::outbound::response::{Rpc, undecided};
use super::super::super::proxy::Shared;
use super::super::super::tools;
use super::super::super::{
    calls::resumable, cancels, claims, companion, outbound::patience, tasks::v2025,
};
use super::super::carried::{Carrying, Ids, Refused};
use super::super::pushes::SessionKey;
use crate::downstream::outbound::send::notify;
use crate::downstream::outbound::stream::ResponseEvent;
use crate::mcp::error::RpcError;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Object;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::request::Request;
use crate::mcp::version::Era;
use crate::runner::CallSpec;
use crate::runner::claim::{CallClaim, NotClaimed};
use crate::runner::responder::{CallAnswer, CallSubscriber, Reply};
use crate::task::policy::Rule;
use crate::upstream::{Pin, UpstreamRequest};

/// Messages that wait for a slow client.
const MESSAGES_MAX: usize = 64;

/// Does with a call what the route says. `None`: it passes.
pub(in crate::downstream) async fn answer(
    front: &Shared,
    by: &Requester,
    headers: &HeaderMap,
    request: &Request<'_>,
) -> Option<Response<Body>> {
    let mut known = v2025::known_of_calls(front, request, v2025::speaks(headers));
    let spec = loop {
        match route_call(request, by, &known) {
            CallRoute::Ask(question) => {
                let capabilities = by.session_capabilities();
                let asking = tools::ask(front, by, capabilities, question, &mut known.server);
                if let Err(error) = Box::pin(asking).await {
                    return Some(undecided(request.id, error));
                }
            }
            CallRoute::Refuse(error) => {
                let refused = Rpc::error(request.id.get(), &error).on_session();
                return Some(refused.into_response());
            }
            CallRoute::Pass => return None,
            CallRoute::Companion(tool, names, companion) => {
                let desk = Desk::of(front, by, companion, names);
                return Some(companion::call(&desk, tool, request, headers).await);
            }
            CallRoute::Task(spec) => {
                let sent = v2025::on_session(front, by, headers, request);
                return Box::pin(v2025::make_task(front, by, request, *spec, sent)).await;
            }
            CallRoute::Carry(spec) => break spec,
        }
    };
    let pin = match pin(front, by, headers) {
        Ok(pin) => pin,
        // The server says so best.
        Err(Unpinned::Unknown) => return None,
        Err(Unpinned::Busy) if spec.claim.is_none() && !spec.is_limited => return None,
        Err(Unpinned::Busy) => return Some(Rpc::busy(request.id.get()).into_response()),
    };
    let mut call = call(by, request, &spec, pin);
    call.outgoing.headers = front.upstream.client_headers(headers);
    let how = Carry {
        by,
        headers,
        request,
        session: by.session,
        words: Rpc::legacy_answer,
    };
    Some(carry(front, &how, (spec.claim, call)).await)
}

/// A request that is carried, and how its client is spoken to.
pub(in crate::downstream) struct Carry<'a> {
    pub(in crate::downstream) by: &'a Requester,
    pub(in crate::downstream) headers: &'a HeaderMap,
    pub(in crate::downstream) request: &'a Request<'a>,
    /// `None`: nobody can name its calls.
    pub(in crate::downstream) session: Option<SessionKey>,
    /// The answer to the request of that id.
    pub(in crate::downstream) words: fn(&str, CallAnswer) -> Rpc,
}

pub(in crate::downstream) async fn carry(
    front: &Shared,
    how: &Carry<'_>,
    (claim, call): (Option<CallClaim>, CallSpec),
) -> Response<Body> {
    let request = how.request;
    let nobodys = || SessionKey::of(&call.caller, &Uuid::new_v4().to_string());
    let session = how.session.unwrap_or_else(nobodys);
    let ids = if claim.is_some() {
        Ids::MayRepeat
    } else {
        Ids::Differ
    };
    let carrying = match front.carried.enter(session, request.id, ids) {
        Ok(carrying) => carrying,
        Err(Refused::SameId) => {
            let error = RpcError::invalid_request("Invalid request: this id is in use");
            return Rpc::error(request.id.get(), &error).into_response();
        }
        Err(Refused::Full) => return Rpc::busy(request.id.get()).on_session().into_response(),
    };
    let (sender, said) = mpsc::channel(MESSAGES_MAX + 1);
    let saying = Saying {
        id: request.id.to_owned(),
        words: how.words,
        session: how.session,
        answer: sender.clone().try_reserve_owned().ok(),
        messages: sender,
        streams: how.by.reads_events,
        runs_on: claim.is_none(),
        question_patience: question_patience(&call.rule),
    };
    let (tell, begun) = oneshot::channel();
    let job = begin(Arc::clone(front), (claim, call), carrying, saying, tell);
    front.passing.spawn(job);
    match begun.await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => {
            let refused = claims::refused(request.id, &why);
            return refused.on_session().into_response();
        }
        Err(_) => return Rpc::abandoned(request.id.get()).into_response(),
    }
    let (method, params) = (&request.method, &request.params);
    let held = resumable::ResumableCall::of(front, how.by, how.headers, request.id, method, params);
    resumable::respond(front, how.by, held, said, patience::LEGACY).await
}

/// For so long an answer may be waited for.
fn question_patience(rule: &Rule) -> Duration {
    Duration::from_millis(rule.input_timeout_ms.unwrap_or(rule.max_duration_ms))
}

/// A client that goes away before its call has begun leaves it as any other.
async fn begin(
    front: Shared,
    (claim, call): (Option<CallClaim>, CallSpec),
    carrying: Carrying,
    saying: Saying,
    begun: oneshot::Sender<Result<(), NotClaimed>>,
) {
    match claims::begin(&front, claim, call).await {
        Ok(client) => {
            let _ = begun.send(Ok(()));
            let (session, id) = (saying.session, saying.id.clone());
            let cancelled = async {
                match session {
                    Some(session) => cancels::told(&front, session, &id).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = follow(client, carrying, saying) => {}
                // Dropped, the client is gone, as if it had been cancelled here.
                () = cancelled => {}
            }
        }
        Err(why) => {
            // Before the client hears it: it may use the id again.
            drop(carrying);
            let _ = begun.send(Err(why));
        }
    }
}

/// Why there is no session for a call.
enum Unpinned {
    Unknown,
    /// Too many are in use.
    Busy,
}

/// The session that the call goes out on: the client's own, or any where servers have none.
fn pin(front: &Shared, by: &Requester, headers: &HeaderMap) -> Result<Option<Pin>, Unpinned> {
    if !headers.contains_key(SESSION_ID) {
        return Ok(None);
    }
    let caller = *by.caller.as_bytes();
    let session = front.upstream.client_session(headers, caller);
    match session {
        Some(session) => Ok(Some(session.pin())),
        None if front.upstream.speaks_http() => Err(Unpinned::Busy),
        None => Err(Unpinned::Unknown),
    }
}

fn call(by: &Requester, request: &Request<'_>, spec: &CarrySpec<'_>, pin: Option<Pin>) -> CallSpec {
    let name = request.params.get_str("name").unwrap_or_default();
    let meta = request.params.get_object("_meta").unwrap_or_default();
    let answer_patience = spec.rule.input_timeout_ms.map(Duration::from_millis);
    let caller = *by.caller.as_bytes();
    let mut outgoing = UpstreamRequest::new(caller, request.method.as_ref(), request.params_text)
        .declaring(by.session_capabilities())
        .with_credentials(by.credentials.clone())
        .described_by(Some(name.as_ref().into()), [].into())
        .with_progress(true)
        .for_call(answer_patience, spec.requires_task)
        .on(pin);
    idempotency::hide_key(&mut outgoing);
    CallSpec {
        caller: by.caller,
        era: Era::Legacy,
        client_era: Era::Legacy,
        outgoing,
        rule: spec.rule.clone(),
        plan: spec.plan,
        announce: spec.announce.clone(),
        progress_token: meta.get(PROGRESS_TOKEN).map(ToOwned::to_owned),
        digest: idempotency::digest(request),
        repeatable: spec.repeatable,
        listed: by.has_credentials,
        session: by.session.map(|session| *session.as_bytes()),
    }
}

/// Where the answer to a request goes, and what is said before.
struct Saying {
    id: Box<RawValue>,
    session: Option<SessionKey>,
    words: fn(&str, CallAnswer) -> Rpc,
    messages: mpsc::Sender<ResponseEvent>,
    /// The client hears more than the answer.
    streams: bool,
    /// Whether a client that went away is still there, as legacy clients know it. A call that others
    /// may join has rules of its own for that.
    runs_on: bool,
    /// How long a question waits for a client that does not read.
    question_patience: Duration,
    /// So that no message takes its room.
    answer: Option<mpsc::OwnedPermit<ResponseEvent>>,
}

impl Saying {
    /// Resolves when the client has left for good: a held one has not, while its call is held.
    async fn left(&self) {
        if self.runs_on {
            std::future::pending::<()>().await;
        } else {
            self.messages.closed().await;
        }
    }

    /// A question waits for a slow client, a notification hardly.
    async fn say(&self, message: String, is_question: bool, is_slow: &mut bool) {
        if !is_question {
            return notify(&self.messages, message, is_slow).await;
        }
        let saying = self.messages.send(ResponseEvent::Message(message));
        // Of a client that went away it is decided elsewhere what becomes of its call.
        let _ = tokio::time::timeout(self.question_patience, saying).await;
    }
}

/// Takes what is said to the client.
async fn follow(mut client: CallSubscriber, carrying: Carrying, saying: Saying) {
    let mut is_slow = false;
    loop {
        let reply = tokio::select! {
            reply = client.next() => reply,
            // Dropped, the client is gone, and the call is cancelled.
            () = carrying.cancelled() => return,
            () = saying.left() => return,
        };
        match reply {
            Some(Reply::Relay(message)) => {
                // What has an id is a question.
                let asked = Object::parse(&message).ok().and_then(|m| m.get("id"));
                let is_question = asked.is_some();
                if let Some(id) = asked.filter(|_| saying.streams) {
                    carrying.asks(id, client.answers());
                }
                tokio::select! {
                    () = saying.say(message, is_question, &mut is_slow) => {}
                    () = carrying.cancelled() => return,
                    () = saying.left() => return,
                }
            }
            Some(Reply::Answer(answer)) => {
                // Before the client hears it: it may use the id again.
                drop(carrying);
                let rpc = (saying.words)(saying.id.get(), answer);
                if let Some(room) = saying.answer {
                    room.send(ResponseEvent::Answer(rpc));
                }
                client.into_guard().announce();
                return;
            }
            None => return,
        }
    }
}
