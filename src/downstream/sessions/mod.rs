//! SESSIONS: the messages of legacy clients. Most of them pass to the server as they are; raincheck reads what its
//! tasks, its companion tools and its limits need.

use std::sync::Arc;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use crate::auth::identity::Identity;
use crate::downstream::body::Body;
use crate::downstream::calls::cancel::cancel;
use crate::downstream::calls::registry::Cancelled;
use crate::downstream::calls::resumable;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::{Inbound, LegacyMessage};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::route::first_contact::{FirstHop, route_way};
use crate::downstream::inbound::route::session::{SessionRoute, route_session};
use crate::downstream::inbound::route::stream::{
    StreamFacts, StreamRoute, TransportState, route_stream,
};
use crate::downstream::large_results;
use crate::downstream::outbound::response::{self, undecided};
use crate::downstream::passthrough;
use crate::downstream::proxy::Proxy;
use crate::downstream::related::{Hidden, forget_length};
use crate::downstream::tasks::v2025;

pub mod agreed_versions;
pub(super) mod calls;
mod first_contact;
mod get_stream;
pub mod hosted;
mod leaving;
pub mod mailbox;
mod over_line;
mod servers_own;
pub mod session_clients;
pub mod session_facts;
pub mod session_owners;
mod session_refusal;

use crate::mcp::version::Era;
use crate::upstream::client_session::{ClientSession, OfCaller};
use servers_own::over_http;
use session_refusal::SessionRefusal;

/// Answers a message whose body was read.
pub(super) async fn post(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: Box<Parts>,
    body: &Bytes,
    message: Inbound<'_>,
) -> Response<Body> {
    if let Err(error) = by.check_message(&parts.headers, &message) {
        let id = message.request_id();
        return response::refusal_of(id, StatusCode::BAD_REQUEST, &error);
    }
    let mut parts = proxy.agreed.completed(by, parts);
    parts.extensions.insert(OfCaller(*by.caller.as_bytes()));
    let message = message.legacy();
    if by.rules.wants_scopes()
        && let Some(refusal) = Box::pin(proxy.scope_refusal_on_session(by, &message)).await
    {
        return refusal;
    }
    let edited = match proxy.hide_our_ids(by, body, &message).await {
        Hidden::Nothing => return on_session(proxy, by, parts, body, &message).await,
        Hidden::Edited(edited) => edited,
        Hidden::Refused(error) => return response::refusal(StatusCode::BAD_REQUEST, &error),
    };
    forget_length(&mut parts.headers);
    let (by, body) = (by.about(edited.related), edited.body);
    // The first reading borrows from the body that still has the ids, so the edited one is read again.
    let message = Inbound::read(&body).legacy();
    Box::pin(on_session(proxy, &by, parts, &body, &message)).await
}

async fn on_session(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: Box<Parts>,
    body: &Bytes,
    message: &LegacyMessage<'_>,
) -> Response<Body> {
    // Read first: what raincheck learns of the server while it decides whose session this is came too late for that
    // decision.
    let known = proxy.upstream.known_era();
    if hosted::serves(proxy, by, &parts.headers).await {
        return Box::pin(hosted::post(proxy, by, &parts, body, message)).await;
    }
    if proxy.session_owners.is_of_another(by, &parts.headers).await {
        // As for one that never was.
        return SessionRefusal::Unknown.into_response(None);
    }
    let client = proxy.session_clients.of(by, message).await;
    // An unknown client changes nothing, and without this branch each message would clone the requester.
    if client.client().is_none() {
        return on_servers_session(proxy, by, parts, body, message, known).await;
    }
    let by = by.known_as(client);
    Box::pin(on_servers_session(proxy, &by, parts, body, message, known)).await
}

/// Answers a message on a session of the server's own. `known`: the server's era, as it was known when the message came.
async fn on_servers_session(
    proxy: &Arc<Proxy>,
    by: &Requester,
    mut parts: Box<Parts>,
    body: &Bytes,
    message: &LegacyMessage<'_>,
    known: Option<Era>,
) -> Response<Body> {
    v2025::complete_version(&mut parts, message);
    let speaks_of_tasks = v2025::speaks(&parts.headers);
    let mut edit = None;
    match route_session(message, by, speaks_of_tasks) {
        SessionRoute::Pass => {}
        SessionRoute::Initialize(request) => {
            edit = Some(Box::new(AnswerEdit::of_initialize(proxy, by, request)));
        }
        SessionRoute::Tools(request) => {
            let editing = calls::edit_of_tools(proxy, by, request, speaks_of_tasks);
            edit = Box::pin(editing).await.map(Box::new);
        }
        SessionRoute::Call(request) => {
            let headers = &parts.headers;
            match Box::pin(calls::decide(proxy, by, headers, request)).await {
                Ok(None) => {}
                Ok(Some(op)) => {
                    let answering = calls::answer(proxy, by, headers, request, op);
                    return Box::pin(answering).await;
                }
                Err(error) => return undecided(request.id, error),
            }
        }
        SessionRoute::Task(request, op) => {
            let answered = v2025::answer(proxy, by, request, op).await;
            if !proxy.settings.pass_native_tasks || answered.is_known() {
                return answered.into_response();
            }
        }
        SessionRoute::Result(request) => {
            let read = Box::pin(large_results::read(proxy, by, request)).await;
            return read.on_session().into_response();
        }
        SessionRoute::Cancel(message) => {
            let cancelled = by
                .session
                .map(|session| cancel(proxy, by.caller, session, &message));
            if cancelled == Some(Cancelled::Carried) {
                return response::empty(StatusCode::ACCEPTED);
            }
        }
        SessionRoute::TaskAnswer(question, message) => {
            let taking = v2025::take_answer(proxy, by, &parts.headers, &question, message);
            return Box::pin(taking).await;
        }
        SessionRoute::Answer(id, message) => {
            if calls::take_answer(proxy, by, id, message) {
                return response::empty(StatusCode::ACCEPTED);
            }
        }
    }
    let begins = first_contact::begins_session(&parts, message);
    match route_way(spoken(proxy), known, begins) {
        FirstHop::FirstContact => {
            Box::pin(first_contact::post(proxy, by, parts, body, message, edit)).await
        }
        FirstHop::OverHttp => over_http(proxy, by, parts, body, message, edit).await,
        FirstHop::OverLine => over_line::post(proxy, by, &parts, body, message, edit).await,
    }
}

/// Returns the transport by which the server is spoken to, as far as this process knows.
fn spoken(proxy: &Arc<Proxy>) -> TransportState {
    if !proxy.upstream.is_decided() {
        TransportState::Unknown
    } else if proxy.upstream.speaks_http() {
        TransportState::OverHttp
    } else {
        TransportState::OverLine
    }
}

/// Answers GET and DELETE.
pub(super) async fn other(
    proxy: &Arc<Proxy>,
    parts: Box<Parts>,
    client: Option<Arc<Identity>>,
) -> Response<Body> {
    let by = &proxy.requester(&parts, Era::Legacy, client);
    let mut parts = proxy.agreed.completed(by, parts);
    parts.extensions.insert(OfCaller(*by.caller.as_bytes()));
    // First, because an event id of raincheck's names a log in the store, whatever the session of the request is.
    if let Some(last) = resumable::last_event(&parts) {
        return Box::pin(resumable::resume(proxy, by, &parts, last)).await;
    }
    if proxy.session_owners.is_of_another(by, &parts.headers).await {
        // As for one that never was.
        return SessionRefusal::Unknown.into_response(None);
    }
    let is_get = parts.method == Method::GET;
    if parts.method == Method::DELETE {
        proxy
            .session_owners
            .end(by, session_owners::key(by, &parts.headers));
        proxy.session_clients.end(by, by.session);
    }
    let response = other_answer(proxy, by, parts).await;
    // Behind the answer, which opens the mailbox of the stream: without a mailbox no job for notifications starts.
    if is_get && response.status().is_success() {
        v2025::stream_opened(proxy, by);
    }
    response
}

/// Follows the route of a request without a body. The route is decided again when more is known.
async fn other_answer(proxy: &Arc<Proxy>, by: &Requester, parts: Box<Parts>) -> Response<Body> {
    let session = leaving::session(proxy, by, &parts);
    let mut known = StreamFacts {
        is_needed: session.as_ref().is_some_and(ClientSession::is_needed),
        ..StreamFacts::default()
    };
    loop {
        let server = spoken(proxy);
        // `Unknown` must not replace `StillUnknown`, or this loop would ask the server for ever.
        if server != TransportState::Unknown {
            known.server = server;
        }
        match route_stream(&parts, known) {
            StreamRoute::AskWhose => {
                known.is_hosted = Some(hosted::serves(proxy, by, &parts.headers).await);
            }
            StreamRoute::AskServer => {
                let asking = proxy.upstream.era_soon(by.credentials.clone());
                let is_answered = asking.await.is_some() && proxy.upstream.is_decided();
                // What the server said may have decided whose session this is.
                known.is_hosted = known.is_hosted.filter(|_| !is_answered);
                known.server = TransportState::StillUnknown;
            }
            StreamRoute::Hosted => return Box::pin(hosted::other(proxy, by, &parts)).await,
            StreamRoute::FirstContact => {
                return Box::pin(first_contact::other(proxy, by, parts)).await;
            }
            StreamRoute::EndLater => {
                if let Some(session) = session {
                    leaving::end_later(proxy, *parts, session);
                }
                return response::empty(StatusCode::OK);
            }
            StreamRoute::Line => return over_line::answer(proxy, by, &parts),
            StreamRoute::Read => return Box::pin(get_stream::answer(proxy, by, parts)).await,
            StreamRoute::End => {
                // raincheck's own calls on the session end at once, whatever the server answers.
                if let Some(session) = session {
                    session.end();
                }
                return passthrough::bare(proxy, parts).await;
            }
            StreamRoute::Pass => return passthrough::bare(proxy, parts).await,
        }
    }
}
