//! HOSTED SESSIONS: the sessions that raincheck keeps for legacy clients, in front of a server that speaks only the
//! modern era. Each request is carried in the words of revision 2026-07-28.
//!
//! A session is a value in the store, so that any replica serves it. The questions with which such a server answers a
//! call become requests to the client.

use std::sync::Arc;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};

use crate::downstream::body::Body;
use crate::downstream::calls::cancel::cancel;
use crate::downstream::companion::tools::CompanionTools;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route::hosted::{
    HostedFacts, HostedRoute, SessionOp, route_hosted,
};
use crate::downstream::inbound::route::session::TaskQuestion;
use crate::downstream::large_results;
use crate::downstream::outbound::response::{self, Rpc, undecided};
use crate::downstream::proxy::Proxy;
use crate::downstream::sessions::calls::carry;
use crate::downstream::sessions::session_refusal::SessionRefusal;
use crate::downstream::tasks::v2025;
use crate::downstream::{companion, tools};
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::Object;
use crate::mcp::meta;
use crate::mcp::request::Request;
use crate::mcp::version::Era;
use crate::runner::CallTerms;
use crate::task::plan::Plan;

mod get_stream;
mod handshake;
mod hosted_session;
pub mod lifetimes;
mod outgoing;
mod questions;
mod session;
mod translate;
mod watch;

pub use questions::quotas as answer_quotas;

use hosted_session::HostedSession;
use session::{PREFIX, Session};

/// The number of resources to which one session can subscribe.
const URIS_MAX: usize = 256;

/// The longest URI that can be subscribed to. A session is read whole for each of its requests.
const URI_BYTES_MAX: usize = 2048;

/// Returns `true` if this part answers a legacy client's request: the request names a hosted session, or
/// the server is known to have no sessions. Where the server is behind another raincheck, sessions of that one have
/// the same prefix.
pub(super) async fn serves(proxy: &Arc<Proxy>, by: &Requester, headers: &HeaderMap) -> bool {
    let id = headers.get(SESSION_ID).and_then(|id| id.to_str().ok());
    if let Some(id) = id.filter(|id| id.starts_with(PREFIX))
        && let Some(key) = by.session
    {
        let is_ours = proxy.upstream.is_known_to_refuse_sessions()
            // A store that does not answer is told to the client where the session is read.
            || !matches!(Session::load(proxy, id, by.caller, key).await, Ok(None));
        if is_ours {
            return true;
        }
    }
    proxy
        .upstream
        .refuses_sessions(by.credentials.as_ref())
        .await
}

/// Returns `true` if this part answers a request that the server has just refused. Asks the server for its era.
pub(super) async fn turns_out_to_serve(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
) -> bool {
    // Another server may have answered when the era was asked for.
    proxy.upstream.doubt_era(by.credentials.clone()).await;
    let era = proxy.upstream.era_soon(by.credentials.clone()).await;
    era == Some(Era::Modern) && serves(proxy, by, headers).await
}

/// Answers GET and DELETE.
pub(super) async fn other(proxy: &Arc<Proxy>, by: &Requester, parts: &Parts) -> Response<Body> {
    let session = match Session::find(proxy, by, &parts.headers).await {
        Ok(session) => session,
        Err(error) => return error.into_response(None),
    };
    if parts.method == Method::GET {
        if !by.reads_events {
            return response::empty(StatusCode::NOT_ACCEPTABLE);
        }
        return get_stream::answer(proxy, by, session).await;
    }
    // In the store first: if that fails, the calls go on, and the client can send its DELETE again.
    if let Err(error) = session.end(proxy).await {
        return SessionRefusal::from(error).into_response(None);
    }
    // Ends the calls of this replica at once. Those of other replicas end with the change that was announced.
    proxy.calls.end(session.key);
    response::empty(StatusCode::OK)
}

/// Answers a message of the client.
pub(super) async fn post(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: &Parts,
    body: &Bytes,
    message: &LegacyMessage<'_>,
) -> Response<Body> {
    // Revision 2025-06-18 and later require 400 for a version that the server does not support.
    if let Some(version) = parts.headers.get(PROTOCOL_VERSION)
        && !message.asks_for("initialize")
        && !version.to_str().is_ok_and(translate::is_known_version)
    {
        return response::refuse(
            StatusCode::BAD_REQUEST,
            "Bad request: MCP-Protocol-Version is none that is spoken here",
        );
    }
    let answered = on_session(proxy, by, &parts.headers, body, message).await;
    let id = message.request().map(|request| request.id);
    answered.unwrap_or_else(|error| error.into_response(id))
}

async fn on_session(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
    body: &Bytes,
    message: &LegacyMessage<'_>,
) -> Result<Response<Body>, SessionRefusal> {
    Ok(match message {
        LegacyMessage::Request(request) if !request.has_id() => response::refuse(
            StatusCode::BAD_REQUEST,
            "Invalid request: id must be a string or a number",
        ),
        // Also on a session: it begins another one.
        LegacyMessage::Request(request) if request.method == "initialize" => {
            Box::pin(handshake::answer(proxy, by, request)).await
        }
        LegacyMessage::Request(request) => {
            let session = Session::find(proxy, by, headers).await?;
            Box::pin(answer(proxy, by, headers, session, request)).await?
        }
        LegacyMessage::Notification(..) => {
            let session = Session::find(proxy, by, headers).await?;
            if let Some(message) = message.cancels() {
                // Accepted even if no such call runs any more: a cancel may cross the answer of its call.
                cancel(proxy, by.caller, session.key, &message);
            }
            response::empty(StatusCode::ACCEPTED)
        }
        LegacyMessage::Answer(id, message) => {
            let session = Session::find(proxy, by, headers).await?;
            if let Some(question) = TaskQuestion::of(id) {
                return Ok(v2025::take_answer(proxy, by, headers, &question, message).await);
            }
            questions::answer(proxy, &session, id, body.clone()).await?;
            response::empty(StatusCode::ACCEPTED)
        }
        // Revision 2025-06-18 removed batches, and no known client sends any.
        LegacyMessage::Unclear(_) => response::refuse(
            StatusCode::BAD_REQUEST,
            "Invalid request: not one JSON-RPC message",
        ),
    })
}

/// Follows the route of a request.
async fn answer(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
    session: Session,
    request: &Request<'_>,
) -> Result<Response<Body>, SessionRefusal> {
    let id = request.id.get();
    let by = &by.known_as(session.client());
    let tool = request.name().filter(|_| request.method == "tools/call");
    let mut facts = HostedFacts {
        calls: tools::facts_of_calls(proxy, by, tool.as_deref()),
        speaks_of_tasks: session.has_tasks(),
        is_no_task_here: false,
    };
    facts.calls.given_up = tools::given_up(proxy, by, request, None).await;
    loop {
        // Sessions are hosted only in front of a modern server.
        facts.calls.server.era = Some(Era::Modern);
        match route_hosted(request, by, &facts) {
            HostedRoute::Ask(fact) => {
                let capabilities = session.entry.capabilities.get();
                let asking = tools::ask(proxy, by, capabilities, fact, &mut facts.calls.server);
                if let Err(error) = Box::pin(asking).await {
                    return Ok(undecided(request.id, error));
                }
            }
            HostedRoute::Refuse(error) => {
                return Ok(Rpc::error(id, &error).on_session().into_response());
            }
            HostedRoute::Companion(tool, names) => {
                let companion_tools = CompanionTools::of(proxy, by, names);
                let calling = companion::call(&companion_tools, tool, request, headers);
                return Ok(Box::pin(calling).await);
            }
            HostedRoute::Task(op) => {
                let answered = v2025::answer(proxy, by, request, op).await;
                if !proxy.settings.pass_native_tasks || answered.is_known() {
                    return Ok(answered.into_response());
                }
                // Routed again with this fact: the server may have a task of its own under this id.
                facts.is_no_task_here = true;
            }
            HostedRoute::Result => {
                let read = Box::pin(large_results::read(proxy, by, request)).await;
                return Ok(read.on_session().into_response());
            }
            HostedRoute::Session(op) => {
                change(proxy, &session, op, &request.params).await?;
                return Ok(Rpc::result(id, "{}").into_response());
            }
            HostedRoute::Call(terms) => {
                let calling = call(proxy, (by, headers), session, request, *terms);
                return Ok(Box::pin(calling).await);
            }
            HostedRoute::Translate => {
                let terms = CallTerms::held(Some(Era::Modern), by.rules.for_tool("").0);
                let calling = call(proxy, (by, headers), session, request, terms);
                return Ok(Box::pin(calling).await);
            }
        }
    }
}

/// Sends a request to the server in the words of its revision, and responds with what comes back.
async fn call(
    proxy: &Arc<Proxy>,
    (by, headers): (&Requester, &HeaderMap),
    session: Session,
    request: &Request<'_>,
    terms: CallTerms,
) -> Response<Body> {
    let call = match outgoing::call_of(proxy, (by, headers), &session, request, terms) {
        Ok(call) => call,
        Err(error) => {
            let refused = Rpc::error(request.id.get(), &error).on_session();
            return refused.into_response();
        }
    };
    let is_task = matches!(call.terms.plan, Plan::Always { .. });
    let is_joined = call.terms.claim.is_some();
    // Still a future: the list of tools may have to be read first, and a cancel must find the call meanwhile.
    let call = outgoing::mirror(Arc::clone(proxy), by.clone(), call);
    if is_task {
        let call = Box::pin(call).await;
        return Box::pin(v2025::make_task(proxy, by, request, call)).await;
    }
    let edit = edit_of_answer(proxy, by, &session, request);
    let session = HostedSession::new(session, &request.method, edit, is_joined);
    carry(proxy, (by, headers, request), session, call).await
}

fn edit_of_answer(
    proxy: &Arc<Proxy>,
    by: &Requester,
    session: &Session,
    request: &Request<'_>,
) -> Option<AnswerEdit> {
    if request.method != "tools/list" {
        return None;
    }
    let capabilities = session.entry.capabilities.get();
    let ours = proxy.companion_of(by).map(|_| capabilities);
    AnswerEdit::of_tools(proxy, by, request, session.has_tasks(), ours)
}

/// Does what a client asks of its session.
async fn change(
    proxy: &Arc<Proxy>,
    session: &Session,
    op: SessionOp,
    params: &Object<'_>,
) -> Result<(), SessionRefusal> {
    match op {
        SessionOp::Ping => Ok(()),
        SessionOp::SetLogLevel => set_level(proxy, session, params).await,
        SessionOp::Subscribe => subscribe(proxy, session, params, true).await,
        SessionOp::Unsubscribe => subscribe(proxy, session, params, false).await,
    }
}

async fn set_level(
    proxy: &Arc<Proxy>,
    session: &Session,
    params: &Object<'_>,
) -> Result<(), SessionRefusal> {
    let level = params.get_str("level").unwrap_or_default();
    if !meta::is_log_level(&level) {
        return Err(SessionRefusal::Params(
            "Invalid params: level is none that is known",
        ));
    }
    let changed = session.change(proxy, |entry| {
        entry.log_level = Some(level.as_ref().into());
        true
    });
    if !changed.await? {
        return Err(SessionRefusal::Params(
            "Invalid params: too much is remembered of this client's sessions",
        ));
    }
    // Not announced: each request reads the session, and takes the level from it.
    Ok(())
}

async fn subscribe(
    proxy: &Arc<Proxy>,
    session: &Session,
    params: &Object<'_>,
    wants: bool,
) -> Result<(), SessionRefusal> {
    let Some(uri) = params.get_str("uri") else {
        return Err(SessionRefusal::Params(
            "Invalid params: uri must be a string",
        ));
    };
    if uri.len() > URI_BYTES_MAX {
        return Err(SessionRefusal::Params("Invalid params: uri is too long"));
    }
    let changed = session.change(proxy, |entry| {
        if wants {
            entry.uris.insert(uri.as_ref().into());
        } else {
            entry.uris.remove(&*uri);
        }
        // Counted after the change, so that a URI that is in the set already needs no room.
        entry.uris.len() <= URIS_MAX
    });
    if !changed.await? {
        return Err(SessionRefusal::Params(
            "Invalid params: too many resources are subscribed to",
        ));
    }
    // The GET stream of the session may be open on another replica, which then changes its subscription.
    session.tell_change(proxy).await;
    Ok(())
}
