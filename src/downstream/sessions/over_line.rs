//! Streamable HTTP of 2025-11-25 for legacy clients of a server that does not speak it. Each session has a line to
//! the server. Messages pass as they are; the upstream side decides which stream a message takes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::get_stream::{OwnMessages, read};
use super::hosted;
use super::session_refusal::SessionRefusal;
use crate::downstream::body::Body;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::request::{LegacyMessage, Unclear};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::{self, Rpc, undecided};
use crate::downstream::outbound::stream::{ResponseEvent, ResponseSource};
use crate::downstream::proxy::Proxy;
use crate::downstream::{calls::resumable, outbound::patience};
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::mcp::sse;
use crate::upstream::line::session::{AcceptError, ClientRequest, LineSession, SessionEvent};
use crate::upstream::line::sessions::LineChoice;
use crate::upstream::wrapped::DiscoverError;

/// Upper bound of the time in which a server answers `initialize`: `npx -y` may have to fetch it first.
const HANDSHAKE_PATIENCE: Duration = Duration::from_mins(1);

/// Answers GET and DELETE.
pub(super) fn answer(proxy: &Arc<Proxy>, by: &Requester, parts: &Parts) -> Response<Body> {
    let session = match find(proxy, by, &parts.headers) {
        Ok(session) => session,
        Err(error) => return error.into_response(None),
    };
    if parts.method == Method::DELETE {
        session.close();
        return response::empty(StatusCode::OK);
    }
    if !by.reads_events {
        return response::empty(StatusCode::NOT_ACCEPTABLE);
    }
    let Some(own_messages) = OwnMessages::of(proxy, by, &parts.headers) else {
        return SessionRefusal::Unnamed.into_response(None);
    };
    // The newest stream replaces an older one: that the older one is dead is noticed late.
    let events = stream::unfold(session.read_mailbox(), |mut mailbox| async {
        let message = mailbox.next().await?;
        Some((sse::event(&message), mailbox))
    });
    let events = read(events.boxed(), own_messages, proxy.closing.clone());
    response::event_stream(Body::Events(events))
}

/// Answers a message of the client.
pub(super) async fn post(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: &Parts,
    body: &Bytes,
    message: &LegacyMessage<'_>,
    edit: Option<Box<AnswerEdit>>,
) -> Response<Body> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let request = match message {
        LegacyMessage::Request(request) => request,
        LegacyMessage::Unclear(Unclear::Json) => {
            let error = RpcError::parse("Parse error: not JSON");
            return response::refusal(StatusCode::BAD_REQUEST, &error);
        }
        // Revision 2025-06-18 removed batches, and servers over a pipe never answered any.
        LegacyMessage::Unclear(Unclear::Envelope | Unclear::Kind) => {
            return response::refuse(
                StatusCode::BAD_REQUEST,
                "Invalid request: not one JSON-RPC message",
            );
        }
        LegacyMessage::Notification(..) | LegacyMessage::Answer(..) => {
            let session = match find(proxy, by, &parts.headers) {
                Ok(session) => session,
                Err(error) => return error.into_response(None),
            };
            let text = text.to_owned();
            let told = match message.cancels() {
                Some(cancel) => session.cancel(cancel.id, text).await,
                None => session.tell(text).await,
            };
            return if told {
                response::empty(StatusCode::ACCEPTED)
            } else {
                SessionRefusal::Unknown.into_response(None)
            };
        }
    };
    if !request.has_id() {
        return response::refuse(
            StatusCode::BAD_REQUEST,
            "Invalid request: id must be a string or a number",
        );
    }
    let asked = ClientRequest {
        id: request.id,
        method: &request.method,
        params: Some(request.params.clone()),
        text,
        streams: by.reads_events,
    };
    // A drain waits for the answer.
    let _passing = proxy.passing.token();
    if request.method == "initialize" && !parts.headers.contains_key(SESSION_ID) {
        let (response, is_refused) = initialize(proxy, by, &asked, edit.as_deref()).await;
        if is_refused && hosted::turns_out_to_serve(proxy, by, &parts.headers).await {
            return Box::pin(hosted::post(proxy, by, parts, body, message)).await;
        }
        return response;
    }
    let session = match find(proxy, by, &parts.headers) {
        Ok(session) => session,
        Err(error) => return error.into_response(None),
    };
    let said = match session.ask(&asked).await {
        Ok(said) => said,
        Err(untaken) => return refused(&asked, untaken),
    };
    let waiting = waiting(by, &parts.headers, request, session);
    let source = LineAnswer {
        said,
        edit,
        editing: None,
        // A resumable call has a job, for which a drain waits.
        _passing: (!waiting.is_resumable()).then(|| proxy.passing.token()),
    };
    resumable::respond(proxy, by, waiting, source, patience::LINE).await
}

/// Begins a session, which gets an id once the server has agreed. The flag is `true` if the server refused the
/// session.
async fn initialize(
    proxy: &Arc<Proxy>,
    by: &Requester,
    asked: &ClientRequest<'_>,
    edit: Option<&AnswerEdit>,
) -> (Response<Body>, bool) {
    let caller = *by.caller.as_bytes();
    let credentials = by.credentials.as_ref();
    let open = async |line| {
        let opened = proxy.upstream.open_session(caller, credentials, line);
        let (id, session) = opened.await?;
        // If this is dropped before the server has answered, no client knows the session, and the session ends.
        let unknown = UnknownSession(Some(Arc::clone(&session)));
        let begun = begin(asked, &session).await;
        Ok::<_, DiscoverError>((id, begun, session.goes_on, unknown))
    };
    let mut opened = open(LineChoice::Any).await;
    // Not every server accepts `initialize` behind other messages. A refusal on a used line is tried on a new line.
    if let Ok((_, Handshake::Not | Handshake::Refused(_), true, _)) = opened {
        opened = open(LineChoice::New).await;
    }
    let (id, begun, _, unknown) = match opened {
        Ok(opened) => opened,
        Err(error) => return (undecided(asked.id, error), false),
    };
    let (answer, agreed) = match begun {
        Handshake::AgreedVersions(answer) => {
            proxy.upstream.has_initialized(caller, &answer);
            (answer, true)
        }
        Handshake::Refused(answer) => (answer, false),
        Handshake::Not | Handshake::Late => {
            let failure = Failure::new(Reason::UpstreamUnreachable, SideEffect::None);
            return (Rpc::failure(asked.id.get(), failure).into_response(), false);
        }
    };
    let said = match edit {
        Some(edit) => edit.apply(answer).await,
        None => answer,
    };
    let mut response = Rpc::passed(said.clone()).into_response();
    if agreed && let Ok(id) = HeaderValue::try_from(&*id) {
        response.headers_mut().insert(SESSION_ID, id);
        proxy.agreed.note(&by.caller, response.headers(), &said);
        proxy.session_clients.note(by, response.headers()).await;
        // Last: a client that goes away during the await above gets no id, and its session must end.
        unknown.becomes_known();
    }
    (response, !agreed)
}

/// The result of a handshake.
enum Handshake {
    AgreedVersions(String),
    Refused(String),
    /// The line has ended.
    Not,
    Late,
}

async fn begin(asked: &ClientRequest<'_>, session: &LineSession) -> Handshake {
    let answer = async {
        let mut said = session.ask(asked).await.ok()?;
        while let Some(said) = said.recv().await {
            // Messages before the answer are dropped, because the response is one JSON body.
            if let SessionEvent::Answer(answer) = said {
                return Some(answer);
            }
        }
        None
    };
    match tokio::time::timeout(HANDSHAKE_PATIENCE, answer).await {
        Ok(Some(answer)) => match Object::parse(&answer) {
            Ok(object) if object.contains("result") => Handshake::AgreedVersions(answer),
            Ok(_) | Err(_) => Handshake::Refused(answer),
        },
        Ok(None) => Handshake::Not,
        Err(_elapsed) => Handshake::Late,
    }
}

/// A session that no client knows ends with its handshake.
struct UnknownSession(Option<Arc<LineSession>>);

impl UnknownSession {
    fn becomes_known(mut self) {
        self.0 = None;
    }
}

impl Drop for UnknownSession {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.close();
        }
    }
}

fn find(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
) -> Result<Arc<LineSession>, SessionRefusal> {
    let id = headers.get(SESSION_ID).ok_or(SessionRefusal::Unnamed)?;
    let id = id.to_str().unwrap_or_default();
    let session = proxy.upstream.session(id, *by.caller.as_bytes());
    let session = session.ok_or(SessionRefusal::Unknown)?;
    // All requests of the session share the line, which uses the newest token that its caller has shown.
    session.renew(by.credentials.as_ref());
    Ok(session)
}

fn refused(asked: &ClientRequest<'_>, untaken: AcceptError) -> Response<Body> {
    match untaken {
        AcceptError::Over => SessionRefusal::Unknown.into_response(None),
        AcceptError::Busy => Rpc::busy(asked.id.get()).into_response(),
    }
}

/// Returns the way the client of a request waits.
fn waiting(
    by: &Requester,
    headers: &HeaderMap,
    request: &Request<'_>,
    session: Arc<LineSession>,
) -> resumable::Waiting {
    let waiting = resumable::Waiting::of(by, headers, request);
    let id = request.id.to_owned();
    let id: Arc<RawValue> = id.into();
    waiting.at(resumable::ServerOfCall::new(move |text: String| {
        let (session, id) = (Arc::clone(&session), Arc::clone(&id));
        async move {
            if is_cancel(&text) {
                session.cancel(&id, text).await;
            } else {
                session.tell(text).await;
            }
        }
    }))
}

fn is_cancel(text: &str) -> bool {
    let message = Object::parse(text).unwrap_or_default();
    message.get_str("method").as_deref() == Some("notifications/cancelled")
}

/// The messages of a server over a line about one request.
struct LineAnswer {
    said: mpsc::Receiver<SessionEvent>,
    edit: Option<Box<AnswerEdit>>,
    /// The answer, while it is edited.
    editing: Option<BoxFuture<'static, String>>,
    /// A drain waits for the answer.
    _passing: Option<TaskTrackerToken>,
}

impl ResponseSource for LineAnswer {
    async fn next(&mut self) -> Option<ResponseEvent> {
        loop {
            if let Some(editing) = &mut self.editing {
                let answer = Rpc::passed(editing.await);
                self.editing = None;
                return Some(ResponseEvent::Answer(answer));
            }
            let said = self.said.recv().await;
            match (said, self.edit.take()) {
                (Some(SessionEvent::Message(message)), edit) => {
                    self.edit = edit;
                    return Some(ResponseEvent::Message(message));
                }
                (Some(SessionEvent::Answer(answer)), Some(edit)) => {
                    let editing = async move { edit.apply(answer).await };
                    // Kept in `self`: `next` must be cancel safe, and a dropped edit would lose the answer.
                    self.editing = Some(editing.boxed());
                }
                (Some(SessionEvent::Answer(answer)), None) => {
                    return Some(ResponseEvent::Answer(Rpc::passed(answer)));
                }
                (None, Some(edit)) => {
                    let failure = Failure::new(Reason::UpstreamReset, SideEffect::Unknown);
                    return Some(ResponseEvent::Answer(edit.failed(failure)));
                }
                (None, None) => return None,
            }
        }
    }
}
