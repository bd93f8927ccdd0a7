//! The session of a caller, under a name of fixed size.

use hyper::HeaderMap;
use uuid::Uuid;

use crate::mcp::headers::SESSION_ID;
use crate::task::digest::Digest;
use crate::task::id::Caller;

/// A session of one caller, by the id that the session has on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::downstream) struct SessionKey([u8; 16]);

impl SessionKey {
    pub(in crate::downstream) fn of(caller: &Caller, session_id: &str) -> Self {
        let caller = Uuid::from_bytes(*caller.as_bytes()).to_string();
        Self(*Digest::of(&[&caller, session_id]).as_bytes())
    }

    /// `None`: the request names no session.
    pub(in crate::downstream) fn named(caller: &Caller, headers: &HeaderMap) -> Option<Self> {
        let id = headers.get(SESSION_ID)?.to_str().ok()?;
        Some(Self::of(caller, id))
    }

    /// A session that no request can name.
    pub(in crate::downstream) fn unnamed() -> Self {
        Self(Uuid::new_v4().into_bytes())
    }

    pub(in crate::downstream) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}
