//! A legacy client's own session at the server, on which raincheck speaks, too: what a task of that
//! session needs (a browser, a login) lives there.
//!
//! It is borrowed: never begun, never ended, and nothing is declared on it but what its client did.

use std::fmt;
use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::http::request;

use super::channel::session::Session as LineSession;
use super::exchange::borrowed_line;
use super::pin::Pin;
use super::pinned;
use super::server::Way;
use super::session::{Identity, Session};
use super::sessions::Sessions;
use super::wrapped::Upstream;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use needed::Needed;
use registry::ClientSessions;
use shared::ClientStreams;

mod buffer;
pub(super) mod needed;
pub(super) mod registry;
mod shared;
mod stream;

pub use shared::{News, OUR_EVENT_IDS, Unheard};

/// What a client without the header speaks (2025-11-25, Transports, Protocol Version Header).
const OLDEST: HeaderValue = HeaderValue::from_static("2025-03-26");

/// The session. Cheap to clone; it ends with its client's DELETE and not with the last clone.
#[derive(Clone)]
pub struct ClientSession(Kind);

#[derive(Clone)]
enum Kind {
    Web {
        session: Arc<Session>,
        sessions: Arc<Sessions>,
        registry: Arc<ClientSessions>,
    },
    Line(Arc<LineSession>),
}

impl ClientSession {
    /// Requests with this pin go out on the session, under ids that no client has.
    pub fn pin(&self) -> Pin {
        match &self.0 {
            Kind::Web {
                session, sessions, ..
            } => pinned::to_client(sessions.borrow(Arc::clone(session))),
            Kind::Line(session) => borrowed_line::pin(Arc::clone(session)),
        }
    }

    /// The client's GET: what the server says on its stream that is not ours. A `Last-Event-ID` that
    /// is not ours goes to the server. Not for sessions over lines, which read what they have to say
    /// themselves.
    pub async fn hear(&self, parts: request::Parts) -> Result<News, Unheard> {
        let none = Failure::new(Reason::UpstreamUnreachable, SideEffect::None);
        let Kind::Web { session, .. } = &self.0 else {
            return Err(Unheard::Failed(none));
        };
        let streams: &ClientStreams = session.unasked().ok_or(Unheard::Failed(none))?;
        Box::pin(streams.0.hear(session, parts)).await
    }

    fn needed(&self) -> &Needed {
        match &self.0 {
            Kind::Web { session, .. } => session.needed(),
            Kind::Line(session) => session.needed(),
        }
    }

    /// Calls that became tasks run there.
    pub fn is_needed(&self) -> bool {
        self.needed().is_needed()
    }

    /// True for the first that asks: whoever is told so ends the session when it is needed no more.
    pub fn begin_to_end(&self) -> bool {
        self.needed().begin_to_end()
    }

    /// Resolves when no such call runs there any more. False where another replica carries one on.
    pub async fn needed_no_more(&self) -> bool {
        self.needed().no_more().await;
        !self.needed().is_elsewhere()
    }

    /// The client ended it: whatever of ours runs there has failed, and nobody knows its effect.
    pub fn end(&self) {
        match &self.0 {
            Kind::Web {
                session, registry, ..
            } => {
                registry.forget(session);
                session.end();
            }
            Kind::Line(session) => session.close(),
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
    /// server without sessions gives its clients no id: then it is nobody's but this request's.
    pub fn client_session(&self, headers: &HeaderMap, caller: [u8; 16]) -> Option<ClientSession> {
        let id = headers.get(SESSION_ID);
        let web = match self.way() {
            Way::Posts(web) => web,
            Way::Lines(lines) => {
                let session = lines.session(id?.to_str().ok()?, caller)?;
                return Some(ClientSession(Kind::Line(session)));
            }
        };
        let credentials = headers.get(AUTHORIZATION);
        let identity = Identity {
            caller,
            id: id.cloned(),
            version: headers.get(PROTOCOL_VERSION).cloned().unwrap_or(OLDEST),
            credentials: credentials.filter(|_| self.forwards_credentials()).cloned(),
        };
        Some(ClientSession(Kind::Web {
            session: web.client_sessions.get(identity)?,
            sessions: Arc::clone(&web.sessions),
            registry: Arc::clone(&web.client_sessions),
        }))
    }
}
