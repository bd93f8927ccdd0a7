//! Legacy clients of a server that speaks no Streamable HTTP: raincheck does, as of 2025-11-25, with a
//! line to the server for each session. Messages pass as they are; which stream they take is decided upstream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::super::accept::accepts_events;
use super::super::body::Body;
use super::super::dialect::Edit;
use super::super::keep_alive::keep_alive;
use super::super::proxy::Shared;
use super::super::reply::{self, Rpc, undecided};
use super::super::{facade, held, patience};
use super::stream::{Place, Source, read};
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Object;
use crate::mcp::scan::scan;
use crate::mcp::sse;
use crate::upstream::channel::session::{Asked, Said, Session, Untaken};
use crate::upstream::channel::sessions::Line;
use crate::upstream::wrapped::DiscoverError;

/// An answer that comes within this is one JSON body; a stream is begun for what takes longer.
const HEAD_PATIENCE: Duration = Duration::from_secs(1);

/// How long a server may take to answer `initialize`: `npx -y` may have to fetch it first.
const HANDSHAKE_PATIENCE: Duration = Duration::from_mins(1);

const RESERVED: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// GET and DELETE. Everything else is not allowed.
pub(super) fn answer(front: &Shared, parts: &Parts) -> Response<Body> {
    let is_get = parts.method == Method::GET;
    if !is_get && parts.method != Method::DELETE {
        return reply::empty(StatusCode::METHOD_NOT_ALLOWED);
    }
    let session = match find(front, &parts.headers) {
        Ok(session) => session,
        Err(unfound) => return unfound.into_response(),
    };
    if !is_get {
        session.close();
        return reply::empty(StatusCode::OK);
    }
    if !accepts_events(&parts.headers) {
        return reply::empty(StatusCode::NOT_ACCEPTABLE);
    }
    let Some(place) = Place::of(front, &parts.headers) else {
        return Unfound::Unnamed.into_response();
    };
    // The newest stream is the one: a dead one is noticed late.
    let events = read(Source::Line(session.news()), place, front.closing.clone());
    reply::event_stream(Body::Events(events))
}

/// A message of the client.
pub(super) async fn post(
    front: &Shared,
    parts: &Parts,
    body: &Bytes,
    edit: Option<Edit>,
) -> Response<Body> {
    let Ok(text) = scan(body) else {
        let error = RpcError::parse("Parse error: not JSON");
        return reply::refusal(StatusCode::BAD_REQUEST, &error);
    };
    let object = match Object::parse(text) {
        Ok(object) if !object.is_ambiguous(&RESERVED) => object,
        // Revision 2025-06-18 removed batches, and over a pipe nobody ever answered one.
        Ok(_) | Err(_) => {
            return reply::refuse(
                StatusCode::BAD_REQUEST,
                "Invalid request: not one JSON-RPC message",
            );
        }
    };
    let (Some(id), Some(method)) = (object.get("id"), object.get_str("method")) else {
        // A notification, or the answer to a question.
        let session = match find(front, &parts.headers) {
            Ok(session) => session,
            Err(unfound) => return unfound.into_response(),
        };
        let told = session.tell(text.to_owned()).await;
        if object.get_str("method").as_deref() == Some("notifications/cancelled")
            && let Some(params) = object.get_object("params")
            && let Some(id) = params.get("requestId")
        {
            session.cancelled(id);
        }
        return if told {
            reply::empty(StatusCode::ACCEPTED)
        } else {
            Unfound::Unknown.into_response()
        };
    };
    let is_id = id.get().starts_with('"') || id.get().parse::<i64>().is_ok();
    if !is_id {
        return reply::refuse(
            StatusCode::BAD_REQUEST,
            "Invalid request: id must be a string or an integer",
        );
    }
    let asked = Asked {
        id,
        method: &method,
        params: object.get_object("params"),
        text,
        streams: accepts_events(&parts.headers),
    };
    // A drain waits for it.
    let answer = front.passing.token();
    if method == "initialize" && !parts.headers.contains_key(SESSION_ID) {
        return initialize(front, parts, &asked, edit.as_ref()).await;
    }
    let session = match find(front, &parts.headers) {
        Ok(session) => session,
        Err(unfound) => return unfound.into_response(),
    };
    let patience = patience::of_legacy(&parts.headers, HEAD_PATIENCE);
    match session.ask(&asked).await {
        Ok(said) => match held_call(front, parts, &asked, session) {
            Some(call) => {
                let patience = call.head_patience(&parts.headers, HEAD_PATIENCE);
                hold(front, call, said, patience).await
            }
            None => respond(said, asked.streams.then_some(patience), answer, edit).await,
        },
        Err(untaken) => refused(&asked, untaken),
    }
}

/// Begins a session. It has an id once the server has agreed to it.
async fn initialize(
    front: &Shared,
    parts: &Parts,
    asked: &Asked<'_>,
    edit: Option<&Edit>,
) -> Response<Body> {
    let caller = *front.callers.of(&parts.headers).as_bytes();
    let failed = |failure| Rpc::failure(asked.id.get(), failure).into_response();
    let credentials = front.credentials(&parts.headers);
    let open = async |line| {
        let opened = front
            .upstream
            .open_session(caller, credentials.as_ref(), line);
        let (id, session) = opened.await?;
        // Dropped before the server has answered, nobody will ever know of this session.
        let unknown = Unknown(Some(Arc::clone(&session)));
        let begun = begin(asked, &session).await;
        Ok::<_, DiscoverError>((id, begun, session.goes_on, unknown))
    };
    let mut opened = open(Line::Any).await;
    if let Ok((_, Begun::Not | Begun::Refused(_), true, _)) = opened {
        opened = open(Line::New).await;
    }
    let (id, begun, _, unknown) = match opened {
        Ok(opened) => opened,
        Err(error) => return undecided(asked.id, error),
    };
    let (answer, agreed) = match begun {
        Begun::Agreed(answer) => {
            front.upstream.has_initialized(caller, &answer);
            (answer, true)
        }
        Begun::Refused(answer) => (answer, false),
        Begun::Not | Begun::Late => {
            return failed(Failure::new(Reason::UpstreamUnreachable, SideEffect::None));
        }
    };
    if !agreed && facade::turns_out_to_serve(front, &parts.headers).await {
        let again = Bytes::copy_from_slice(asked.text.as_bytes());
        return Box::pin(facade::post(front, parts, again)).await;
    }
    let said = edited(edit, answer);
    let mut response = reply::passed(said.clone());
    if agreed && let Ok(id) = HeaderValue::try_from(&*id) {
        response.headers_mut().insert(SESSION_ID, id);
        let caller = front.callers.of(&parts.headers);
        front.agreed.note(&caller, response.headers(), &said);
        unknown.becomes_known();
    }
    response
}

/// What became of a handshake.
enum Begun {
    Agreed(String),
    Refused(String),
    /// The line has ended.
    Not,
    Late,
}

async fn begin(asked: &Asked<'_>, session: &Session) -> Begun {
    let answer = async {
        let mut said = session.ask(asked).await.ok()?;
        while let Some(said) = said.recv().await {
            if let Said::Answer(answer) = said {
                return Some(answer);
            }
        }
        None
    };
    match tokio::time::timeout(HANDSHAKE_PATIENCE, answer).await {
        Ok(Some(answer)) => match Object::parse(&answer) {
            Ok(object) if object.contains("result") => Begun::Agreed(answer),
            Ok(_) | Err(_) => Begun::Refused(answer),
        },
        Ok(None) => Begun::Not,
        Err(_elapsed) => Begun::Late,
    }
}

/// A session that no client knows ends with its handshake.
struct Unknown(Option<Arc<Session>>);

impl Unknown {
    fn becomes_known(mut self) {
        self.0 = None;
    }
}

impl Drop for Unknown {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.close();
        }
    }
}

fn find(front: &Shared, headers: &HeaderMap) -> Result<Arc<Session>, Unfound> {
    let Some(id) = headers.get(SESSION_ID) else {
        return Err(Unfound::Unnamed);
    };
    let caller = *front.callers.of(headers).as_bytes();
    let id = id.to_str().unwrap_or_default();
    let session = front.upstream.session(id, caller);
    session.ok_or(Unfound::Unknown)
}

/// Why there is no session.
enum Unfound {
    Unnamed,
    Unknown,
}

impl Unfound {
    fn into_response(self) -> Response<Body> {
        match self {
            Self::Unnamed => reply::refuse(
                StatusCode::BAD_REQUEST,
                "Bad request: Mcp-Session-Id is missing",
            ),
            // Whoever hears this begins anew.
            Self::Unknown => reply::refuse(StatusCode::NOT_FOUND, "Session not found"),
        }
    }
}

fn refused(asked: &Asked<'_>, untaken: Untaken) -> Response<Body> {
    match untaken {
        Untaken::Over => Unfound::Unknown.into_response(),
        Untaken::SameId => {
            let error = RpcError::invalid_request("Invalid request: this id is in use");
            Rpc::error(asked.id.get(), &error).into_response()
        }
        Untaken::Busy => Rpc::busy(asked.id.get()).into_response(),
    }
}

fn edited(edit: Option<&Edit>, answer: String) -> String {
    match edit {
        Some(edit) => edit.apply(answer),
        None => answer,
    }
}

/// The call that a request is, if it can be held.
fn held_call(
    front: &Shared,
    parts: &Parts,
    asked: &Asked<'_>,
    session: Arc<Session>,
) -> Option<held::Call> {
    let params = asked.params.as_ref()?;
    let call = held::Call::of(front, parts, asked.id, asked.method, params)?;
    let id = asked.id.to_owned();
    Some(call.stopped_by(|text| async move {
        session.tell(text).await;
        // Many servers never answer what was cancelled.
        session.cancelled(&id);
    }))
}

/// The same for a call that can be held: its stream outlives the connection.
async fn hold(
    front: &Shared,
    call: held::Call,
    mut said: mpsc::Receiver<Said>,
    patience: Duration,
) -> Response<Body> {
    let first = match tokio::time::timeout(patience, said.recv()).await {
        Ok(Some(Said::Answer(answer))) => return reply::passed(answer),
        Ok(first) => first,
        Err(_elapsed) => None,
    };
    let rest = stream::unfold(said, |mut said| async {
        let next = said.recv().await?;
        Some((next, said))
    });
    held::hold(front, call, stream::iter(first).chain(rest).boxed())
}

/// One JSON body where the answer comes soon and alone, else a stream. Without a limit to the patience
/// the client reads no streams.
async fn respond(
    mut said: mpsc::Receiver<Said>,
    patience: Option<Duration>,
    answer: TaskTrackerToken,
    edit: Option<Edit>,
) -> Response<Body> {
    let patience = patience.unwrap_or(Duration::MAX);
    let first = match tokio::time::timeout(patience, said.recv()).await {
        Ok(Some(Said::Answer(answer))) => return reply::passed(edited(edit.as_ref(), answer)),
        Ok(Some(Said::Message(message))) => Some(message),
        Ok(None) | Err(_) => None,
    };
    let first = stream::iter(first.map(|message| sse::event(&message)));
    let under_way = Some((said, answer, edit));
    let rest = stream::unfold((under_way, keep_alive()), |(under_way, mut beat)| async {
        let (mut said, answer, edit) = under_way?;
        tokio::select! {
            next = said.recv() => match next? {
                Said::Message(message) => {
                    Some((sse::event(&message), (Some((said, answer, edit)), beat)))
                }
                Said::Answer(text) => {
                    let text = edited(edit.as_ref(), text);
                    Some((sse::event(&text), (None, beat)))
                }
            },
            _ = beat.tick() => Some((sse::COMMENT, (Some((said, answer, edit)), beat))),
        }
    });
    reply::event_stream(Body::Events(first.chain(rest).boxed()))
}
