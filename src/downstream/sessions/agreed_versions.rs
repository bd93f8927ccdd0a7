//! The protocol versions that sessions agreed on, for clients that leave out `MCP-Protocol-Version`.

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;

use crate::base::lock::Mutex;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::json::Object;
use crate::task::id::Caller;
use crate::upstream::client_session::newest::NewestSessions;

/// The versions that sessions agreed on which were opened on this replica. Another replica reads their clients as
/// clients of the oldest version, as the server does, unless a message has words of a newer one
/// (`tasks::v2025::complete_version`).
#[derive(Debug, Default)]
pub struct AgreedVersions(Mutex<NewestSessions<SessionKey, HeaderValue>>);

impl AgreedVersions {
    /// Remembers the version in the server's answer to `initialize`. The head of the answer names the session.
    pub(in crate::downstream) fn note(&self, caller: &Caller, head: &HeaderMap, message: &str) {
        let version = || {
            // Without a session id nothing ties later requests of the client to this version, so nothing is kept.
            let session = SessionKey::named(caller, head)?;
            let result = Object::parse(message).ok()?.get_object("result")?;
            let version = result.get_str("protocolVersion")?;
            Some((session, HeaderValue::try_from(&*version).ok()?))
        };
        if let Some((session, version)) = version() {
            self.0.lock().remember(session, version);
        }
    }

    /// Adds the version to a request whose client left it out. raincheck and the server then read the request as if
    /// the client had named the version.
    pub(super) fn completed(&self, by: &Requester, mut parts: Box<Parts>) -> Box<Parts> {
        if parts.headers.contains_key(PROTOCOL_VERSION) {
            return parts;
        }
        if let Some(version) = by.session.and_then(|session| self.0.lock().find(&session)) {
            parts.headers.insert(PROTOCOL_VERSION, version);
        }
        parts
    }
}
