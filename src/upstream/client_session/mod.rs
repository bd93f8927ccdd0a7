//! A legacy client's own session at the server, which raincheck uses, too: what a task of that session needs (a
//! browser, a login) lives there. The session is borrowed: raincheck neither begins nor ends it, and declares
//! nothing on it.

use std::fmt;
use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use hyper::http::request;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::version::LEGACY_UNSAID;
use crate::upstream::client_session::needed::Needed;
use crate::upstream::client_session::registry::ClientSessions;
use crate::upstream::client_session::shared::ClientStreams;
use crate::upstream::exchange::borrowed_line;
use crate::upstream::line::session::LineSession;
use crate::upstream::pin::Pin;
use crate::upstream::server::ServerTransport;
use crate::upstream::sessions::pinned;
use crate::upstream::sessions::pool::HttpSessionPool;
use crate::upstream::sessions::session::{ServerSession, SessionIdentity};
use crate::upstream::wrapped::Upstream;

mod buffer;
pub(super) mod cookies;
pub(super) mod needed;
pub mod newest;
pub(super) mod registry;
mod shared;
mod stream;

pub use crate::upstream::client_session::cookies::OfCaller;
pub use crate::upstream::client_session::shared::{OUR_EVENT_IDS, ServerStreamReader, Unheard};

/// The revision that a client without the header speaks.
const UNSAID: HeaderValue = HeaderValue::from_static(LEGACY_UNSAID);

/// A client's session. Cheap to clone. It ends with its client's DELETE, and not with the last clone.
#[derive(Clone)]
pub struct ClientSession(SessionKind);

#[derive(Clone)]
enum SessionKind {
    Http {
        session: Arc<ServerSession>,
        sessions: Arc<HttpSessionPool>,
        registry: Arc<ClientSessions>,
    },
    Line(Arc<LineSession>),
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

    /// The client's GET: reads what the server says on its stream, except for messages to raincheck. A
    /// `Last-Event-ID` that is not raincheck's goes to the server. Sessions over lines have a mailbox for this.
    pub async fn hear(&self, parts: request::Parts) -> Result<ServerStreamReader, Unheard> {
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

    /// Returns `true` if calls that became tasks run on the session.
    pub fn is_needed(&self) -> bool {
        self.needed().is_needed()
    }

    /// True for the first caller. That caller ends the session when it is not needed any more.
    pub fn begin_to_end(&self) -> bool {
        self.needed().begin_to_end()
    }

    /// Resolves when no call that became a task runs on the session any more. False if another replica carries
    /// one on.
    pub async fn needed_no_more(&self) -> bool {
        self.needed().no_more().await;
        !self.needed().is_elsewhere()
    }

    /// Ends the session as its client asked. Calls of raincheck's there fail, with unknown effect.
    pub fn end(&self) {
        match &self.0 {
            SessionKind::Http {
                session, registry, ..
            } => {
                // The session leaves the registry first, so that no new request gets a session that is about to end.
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
    /// The session that a legacy client's request names. `None`: it names no known session. If the server has
    /// no sessions, the session belongs to this request alone.
    pub fn client_session(&self, headers: &HeaderMap, caller: [u8; 16]) -> Option<ClientSession> {
        let id = headers.get(SESSION_ID);
        let http_server = match self.transport() {
            ServerTransport::Posts(http_server) => http_server,
            ServerTransport::Lines(lines) => {
                let session = lines.session(id?.to_str().ok()?, caller)?;
                session.renew(self.credentials(headers).as_ref());
                return Some(ClientSession(SessionKind::Line(session)));
            }
        };
        let identity = SessionIdentity {
            caller,
            id: id.cloned(),
            version: headers.get(PROTOCOL_VERSION).cloned().unwrap_or(UNSAID),
            credentials: http_server.origin.credentials().of(headers),
            cookies: Vec::new(),
        };
        Some(ClientSession(SessionKind::Http {
            session: http_server.client_sessions.get(identity)?,
            sessions: Arc::clone(&http_server.sessions),
            registry: Arc::clone(&http_server.client_sessions),
        }))
    }
}
