//! A legacy client's own session at the server, on which raincheck speaks, too: what a task of that
//! session needs (a browser, a login) lives there.
//!
//! It is borrowed: never begun, never ended, and nothing is declared on it but what its client did.

use std::fmt;
use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::http::request;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::upstream::channel::session::Session;
use crate::upstream::client_session::needed::Needed;
use crate::upstream::client_session::registry::ClientSessions;
use crate::upstream::client_session::shared::ClientStreams;
use crate::upstream::exchange::borrowed_line;
use crate::upstream::pin::Pin;
use crate::upstream::server::ServerTransport;
use crate::upstream::sessions::pinned;
use crate::upstream::sessions::pool::HttpSessionPool;
use crate::upstream::sessions::session::{Identity, ServerSession};
use crate::upstream::wrapped::Upstream;

mod buffer;
pub(super) mod needed;
pub(super) mod registry;
mod shared;
mod stream;

pub use crate::upstream::client_session::shared::{News, OUR_EVENT_IDS, Unheard};

/// What a client without the header speaks (2025-11-25, Transports, Protocol Version Header).
const OLDEST: HeaderValue = HeaderValue::from_static("2025-03-26");

/// The session. Cheap to clone; it ends with its client's DELETE and not with the last clone.
#[derive(Clone)]
pub struct ClientSession(SessionKind);

#[derive(Clone)]
enum SessionKind {
    Http {
        session: Arc<ServerSession>,
        sessions: Arc<HttpSessionPool>,
        registry: Arc<ClientSessions>,
    },
    Line(Arc<Session>),
}

impl ClientSession {
    /// Requests with this pin go out on the session, under ids that no client has.
    pub fn pin(&self) -> Pin {
        match &self.0 {
            SessionKind::Http {
                session, sessions, ..
            } => pinned::to_client(sessions.borrow(Arc::clone(session))),
            SessionKind::Line(session) => borrowed_line::pin(Arc::clone(session)),
        }
    }

    /// The client's GET: what the server says on its stream that is not ours. A `Last-Event-ID` that
    /// is not ours goes to the server. Not for sessions over lines, which read what they have to say
    /// themselves.
    pub async fn hear(&self, parts: request::Parts) -> Result<News, Unheard> {
        let none = Failure::new(Reason::UpstreamUnreachable, SideEffect::None);
        let SessionKind::Http { session, .. } = &self.0 else {
            return Err(Unheard::Failed(none));
        };
        let streams: &ClientStreams = session.unasked().ok_or(Unheard::Failed(none))?;
        Box::pin(streams.0.hear(session, parts)).await
    }

    fn needed(&self) -> &Needed {
        match &self.0 {
            SessionKind::Http { session, .. } => session.needed(),
            SessionKind::Line(session) => session.needed(),
        }
    }

    /// Calls that became tasks run there.
    pub fn is_needed(&self) -> bool {
        self.needed().is_needed()
    }

    /// True for the first caller, which ends the session when it is needed no more.
    pub fn begin_to_end(&self) -> bool {
        self.needed().begin_to_end()
    }

    /// Resolves when no such call runs there any more. False where another replica carries one on.
    pub async fn needed_no_more(&self) -> bool {
        self.needed().no_more().await;
        !self.needed().is_elsewhere()
    }

    /// The client ended it: raincheck's own calls there have failed, with unknown effect.
    pub fn end(&self) {
        match &self.0 {
            SessionKind::Http {
                session, registry, ..
            } => {
                registry.forget(session);
                session.end();
            }
            SessionKind::Line(session) => session.close(),
        }
    }
}

impl fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSession")
    }
}

impl Upstream {
    /// The session that a legacy client's request names. `None`: it names none that is known. A
    /// server without sessions gives its clients no id: then the session is this request's alone.
    pub fn client_session(&self, headers: &HeaderMap, caller: [u8; 16]) -> Option<ClientSession> {
        let id = headers.get(SESSION_ID);
        let web = match self.way() {
            ServerTransport::Posts(web) => web,
            ServerTransport::Lines(lines) => {
                let session = lines.session(id?.to_str().ok()?, caller)?;
                return Some(ClientSession(SessionKind::Line(session)));
            }
        };
        let credentials = headers.get(AUTHORIZATION);
        let identity = Identity {
            caller,
            id: id.cloned(),
            version: headers.get(PROTOCOL_VERSION).cloned().unwrap_or(OLDEST),
            credentials: credentials.filter(|_| self.forwards_credentials()).cloned(),
        };
        Some(ClientSession(SessionKind::Http {
            session: web.client_sessions.get(identity)?,
            sessions: Arc::clone(&web.sessions),
            registry: Arc::clone(&web.client_sessions),
        }))
    }
}
