//! Legacy clients in front of a server that is modern and nothing else: raincheck gives them their
//! session, and carries each request in the words of revision 2026-07-28.
//!
//! A session is a note in the store, so that any replica serves it. Questions, which such a server
//! answers its calls with, become requests to the client.

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};

use crate::downstream::body::Body;
use crate::downstream::calls::cancel::cancel;
use crate::downstream::companion::desk::Desk;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::LegacyMessage;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route::ours::{OursRoute, SessionOp, Translation, route_ours};
use crate::downstream::inbound::route::session::TaskQuestion;
use crate::downstream::outbound::response::{self, Rpc, undecided};
use crate::downstream::proxy::Shared;
use crate::downstream::tasks::v2025;
use crate::downstream::{calls::resumable, companion, outbound::patience as head_patience, tools};
use crate::mcp::error::RpcError;
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::Object;
use crate::mcp::meta;
use crate::mcp::request::Request;
use crate::mcp::version::Era;

mod asked;
mod call;
mod claimed;
mod conversation;
mod handshake;
mod hear;
mod patience;
mod questions;
mod round;
mod session;
pub(super) mod state;
mod stays;
mod words;

use asked::Asked;
use session::{PREFIX, Session, Unfound};
pub use state::Facade;

/// Resources of whose changes one session can hear.
const URIS_MAX: usize = 256;

/// A longer URI cannot be subscribed to: a session is read whole for each of its requests.
const URI_BYTES_MAX: usize = 2048;

/// Whether a legacy client's request is answered here: it names one of our sessions, or the server is
/// known to have none.
pub(super) async fn serves(front: &Shared, by: &Requester, headers: &HeaderMap) -> bool {
    let id = headers.get(SESSION_ID).and_then(|id| id.to_str().ok());
    if id.is_some_and(|id| id.starts_with(PREFIX)) {
        return true;
    }
    front
        .upstream
        .refuses_sessions(by.credentials.as_ref())
        .await
}

/// The same, where a client was refused and it may not be known yet what the server is.
pub(super) async fn turns_out_to_serve(
    front: &Shared,
    by: &Requester,
    headers: &HeaderMap,
) -> bool {
    // It may have been another server when it was asked.
    front.upstream.doubt_era(by.credentials.clone()).await;
    let era = front.upstream.era_soon(by.credentials.clone()).await;
    era == Some(Era::Modern) && serves(front, by, headers).await
}

/// GET and DELETE.
pub(super) async fn other(front: &Shared, by: &Requester, parts: &Parts) -> Response<Body> {
    let is_get = parts.method == Method::GET;
    if !is_get && parts.method != Method::DELETE {
        return response::empty(StatusCode::METHOD_NOT_ALLOWED);
    }
    let session = match Session::find(front, by, &parts.headers).await {
        Ok(session) => session,
        Err(unfound) => return unfound.into_response(None),
    };
    if is_get {
        if !by.reads_events {
            return response::empty(StatusCode::NOT_ACCEPTABLE);
        }
        return hear::answer(front, by, session).await;
    }
    if let Err(error) = session.end(front).await {
        return Unfound::from(error).into_response(None);
    }
    front.calls.end(session.key());
    front.facade.note_change(&session);
    response::empty(StatusCode::OK)
}

/// A message of the client.
pub(super) async fn post(
    front: &Shared,
    by: &Requester,
    parts: &Parts,
    body: &Bytes,
    message: &LegacyMessage<'_>,
) -> Response<Body> {
    if let Some(version) = parts.headers.get(PROTOCOL_VERSION)
        && !version.to_str().is_ok_and(words::is_known_version)
    {
        return response::refuse(
            StatusCode::BAD_REQUEST,
            "Bad request: MCP-Protocol-Version is none that is spoken here",
        );
    }
    match message {
        LegacyMessage::Request(request) if !request.has_id() => response::refuse(
            StatusCode::BAD_REQUEST,
            "Invalid request: id must be a string or an integer",
        ),
        LegacyMessage::Request(request)
            if request.method == "initialize" && !parts.headers.contains_key(SESSION_ID) =>
        {
            Box::pin(handshake::answer(front, by, request)).await
        }
        LegacyMessage::Request(request) => match Session::find(front, by, &parts.headers).await {
            Ok(session) => Box::pin(answer(front, by, &parts.headers, session, request)).await,
            Err(unfound) => unfound.into_response(Some(request.id)),
        },
        LegacyMessage::Notification(..) => {
            let session = match Session::find(front, by, &parts.headers).await {
                Ok(session) => session,
                Err(unfound) => return unfound.into_response(None),
            };
            if let Some(id) = message.cancels() {
                cancel(front, session.key(), id);
            }
            response::empty(StatusCode::ACCEPTED)
        }
        LegacyMessage::Answer(id, message) => {
            let session = match Session::find(front, by, &parts.headers).await {
                Ok(session) => session,
                Err(unfound) => return unfound.into_response(None),
            };
            if let Some(question) = TaskQuestion::of(id) {
                return v2025::take_answer(front, by, &parts.headers, &question, message).await;
            }
            match questions::answer(front, &session, id, body.clone()).await {
                Ok(()) => response::empty(StatusCode::ACCEPTED),
                Err(error) => Unfound::from(error).into_response(None),
            }
        }
        // 2025-06-18 removed batches, and no client that is known sends any.
        LegacyMessage::Unclear(_) => response::refuse(
            StatusCode::BAD_REQUEST,
            "Invalid request: not one JSON-RPC message",
        ),
    }
}

/// Does with a request what the route says.
async fn answer(
    front: &Shared,
    by: &Requester,
    headers: &HeaderMap,
    session: Session,
    request: &Request<'_>,
) -> Response<Body> {
    let id = request.id.get();
    let speaks_of_tasks = session.has_tasks();
    let mut known = v2025::known_of_calls(front, headers, request, speaks_of_tasks);
    let mut is_no_task_here = false;
    loop {
        match route_ours(request, by, &known, is_no_task_here) {
            OursRoute::Ask(question) => {
                let capabilities = session.entry.capabilities.get();
                let asking = tools::ask(front, by, capabilities, question, &mut known.server);
                if let Err(error) = Box::pin(asking).await {
                    return undecided(request.id, error);
                }
            }
            OursRoute::Refuse(error) => {
                return Rpc::error(id, &error).on_session().into_response();
            }
            OursRoute::Companion(tool, names, companion) => {
                let desk = Desk::of(front, by, companion, names);
                let calling = companion::call(&desk, tool, request, headers);
                return Box::pin(calling).await;
            }
            OursRoute::Task(op) => {
                let answered = v2025::answer(front, by, request, op).await;
                if !front.settings.pass_native_tasks || answered.is_known() {
                    return answered.into_response();
                }
                is_no_task_here = true;
            }
            OursRoute::Session(op) => {
                return changed(request, change(front, &session, op, &request.params).await);
            }
            OursRoute::MakeTask(spec) => {
                return match Asked::new(front, (by, headers), session, request) {
                    Ok(asked) => {
                        let sent = Box::pin(asked.sent()).await;
                        Box::pin(v2025::make_task(front, by, request, *spec, sent)).await
                    }
                    Err(error) => Rpc::error(id, &error).on_session().into_response(),
                };
            }
            OursRoute::Translate(how) => {
                let translating = translate(front, (by, headers), session, request, how);
                return Box::pin(translating).await;
            }
        }
    }
}

/// Sends a request to the server in the words of its revision, and responds with what comes back.
async fn translate(
    front: &Shared,
    (by, headers): (&Requester, &HeaderMap),
    session: Session,
    request: &Request<'_>,
    how: Translation,
) -> Response<Body> {
    let refuse = |rpc: Rpc| rpc.on_session().into_response();
    let edit = edit_of_answer(front, by, &session, request);
    let asked = match Asked::new(front, (by, headers), session, request) {
        Ok(asked) => asked.with(how.ticket, how.repeatable).edited(edit),
        Err(error) => return refuse(Rpc::error(request.id.get(), &error)),
    };
    if let Some(claim) = how.claim {
        return claimed::answer(front, headers, request, (asked, claim)).await;
    }
    let events = match asked.begin() {
        Ok(events) => events,
        Err(refused) => return refuse(refused),
    };
    let (method, params) = (&request.method, &request.params);
    let held = resumable::ResumableCall::of(front, by, headers, request.id, method, params);
    resumable::respond(front, by, held, events, head_patience::LEGACY).await
}

fn edit_of_answer(
    front: &Shared,
    by: &Requester,
    session: &Session,
    request: &Request<'_>,
) -> Option<AnswerEdit> {
    if request.method != "tools/list" {
        return None;
    }
    let capabilities = session.entry.capabilities.get();
    let ours = front.companion.as_ref().map(|_| capabilities);
    AnswerEdit::of_tools(front, by, request, session.has_tasks(), ours)
}

/// Why a session was not changed.
enum Undone {
    /// The params are wrong: how.
    Refused(&'static str),
    Unfound(Unfound),
}

impl From<Unfound> for Undone {
    fn from(unfound: Unfound) -> Self {
        Self::Unfound(unfound)
    }
}

/// Does what a client asks of its session.
async fn change(
    front: &Shared,
    session: &Session,
    op: SessionOp,
    params: &Object<'_>,
) -> Result<(), Undone> {
    match op {
        SessionOp::Ping => Ok(()),
        SessionOp::SetLogLevel => set_level(front, session, params).await,
        SessionOp::Subscribe => subscribe(front, session, params, true).await,
        SessionOp::Unsubscribe => subscribe(front, session, params, false).await,
    }
}

fn changed(request: &Request<'_>, done: Result<(), Undone>) -> Response<Body> {
    let id = request.id.get();
    match done {
        Ok(()) => Rpc::result(id, "{}").into_response(),
        Err(Undone::Refused(message)) => Rpc::error(id, &RpcError::invalid_params(message))
            .on_session()
            .into_response(),
        Err(Undone::Unfound(unfound)) => unfound.into_response(Some(request.id)),
    }
}

async fn set_level(front: &Shared, session: &Session, params: &Object<'_>) -> Result<(), Undone> {
    let level = params.get_str("level").unwrap_or_default();
    if !meta::is_log_level(&level) {
        return Err(Undone::Refused(
            "Invalid params: level is none that is known",
        ));
    }
    let changed = session.change(front, |entry| {
        entry.log_level = Some(level.as_ref().into());
        true
    });
    if !changed.await? {
        return Err(Undone::Refused(
            "Invalid params: too much is remembered of this client's sessions",
        ));
    }
    Ok(())
}

async fn subscribe(
    front: &Shared,
    session: &Session,
    params: &Object<'_>,
    wants: bool,
) -> Result<(), Undone> {
    let Some(uri) = params.get_str("uri") else {
        return Err(Undone::Refused("Invalid params: uri must be a string"));
    };
    if uri.len() > URI_BYTES_MAX {
        return Err(Undone::Refused("Invalid params: uri is too long"));
    }
    let changed = session.change(front, |entry| {
        if wants {
            entry.uris.insert(uri.as_ref().into());
        } else {
            entry.uris.remove(&*uri);
        }
        entry.uris.len() <= URIS_MAX
    });
    if !changed.await? {
        return Err(Undone::Refused(
            "Invalid params: too many resources are subscribed to",
        ));
    }
    front.facade.note_change(session);
    Ok(())
}

impl Facade {
    /// For the session's stream, where it is open here.
    fn note_change(&self, session: &Session) {
        // Nobody listens where no stream is open.
        let _ = self.changes.send(session.key());
    }
}
