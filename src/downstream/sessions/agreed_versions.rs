//! The protocol versions that sessions agreed on, for clients that leave out `MCP-Protocol-Version`.

use std::collections::{HashMap, VecDeque};

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;

use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::lock::Mutex;
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::json::Object;
use crate::task::id::Caller;

/// How many sessions are remembered, the newest ones. An entry takes about 100 bytes.
const SESSIONS_MAX: usize = 10_000;

/// The versions that sessions agreed on which were opened on this replica. Another replica reads their clients as
/// clients of the oldest version, as the server does, unless a message has words of a newer one
/// (`tasks::v2025::complete_version`).
#[derive(Debug, Default)]
pub struct AgreedVersions(Mutex<Versions>);

#[derive(Debug, Default)]
struct Versions {
    versions: HashMap<SessionKey, HeaderValue>,
    /// The sessions in the order in which they were remembered.
    sessions: VecDeque<SessionKey>,
}

impl AgreedVersions {
    fn remember(&self, session: SessionKey, version: HeaderValue) {
        let mut known = self.0.lock();
        if known.versions.insert(session, version).is_none() {
            known.sessions.push_back(session);
        }
        while known.sessions.len() > SESSIONS_MAX {
            if let Some(oldest) = known.sessions.pop_front() {
                known.versions.remove(&oldest);
            }
        }
    }

    fn find(&self, session: SessionKey) -> Option<HeaderValue> {
        let known = self.0.lock();
        known.versions.get(&session).cloned()
    }

    /// Remembers the version in the server's answer to `initialize`. The head of the answer names the session.
    pub(in crate::downstream) fn note(&self, caller: &Caller, head: &HeaderMap, message: &str) {
        let version = || {
            let session = SessionKey::named(caller, head)?;
            let result = Object::parse(message).ok()?.get_object("result")?;
            let version = result.get_str("protocolVersion")?;
            Some((session, HeaderValue::try_from(&*version).ok()?))
        };
        if let Some((session, version)) = version() {
            self.remember(session, version);
        }
    }

    /// Adds the version to a request whose client left it out. raincheck and the server then read the request as if
    /// the client had named the version.
    pub(super) fn completed(&self, by: &Requester, mut parts: Box<Parts>) -> Box<Parts> {
        if parts.headers.contains_key(PROTOCOL_VERSION) {
            return parts;
        }
        if let Some(version) = by.session.and_then(|session| self.find(session)) {
            parts.headers.insert(PROTOCOL_VERSION, version);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sessions_are_remembered() {
        let agreed = AgreedVersions::default();
        let caller = Caller::from_bytes([1; 16]);
        let session = |number: usize| SessionKey::of(&caller, &number.to_string());
        let version = HeaderValue::from_static("2025-11-25");
        for number in 0..=SESSIONS_MAX {
            agreed.remember(session(number), version.clone());
            agreed.remember(session(number), version.clone());
        }
        assert_eq!(agreed.find(session(0)), None);
        assert_eq!(agreed.find(session(1)), Some(version.clone()));
        assert_eq!(agreed.find(session(SESSIONS_MAX)), Some(version));
    }
}
