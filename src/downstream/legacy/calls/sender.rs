//! Whose message it is that a legacy session brought.

use hyper::http::request::Parts;

use crate::downstream::auth;
use crate::downstream::claims::{self, Claimant, InHeader};
use crate::downstream::companion::desk::Who;
use crate::downstream::legacy::pushes::SessionKey;
use crate::downstream::proxy::Shared;
use crate::mcp::version::Era;

/// What the client can do the server knows from its session; from no question of it is anything
/// taken here.
const ASKABLE: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;

/// Whose message it is.
pub(super) struct Sender<'a> {
    pub(super) parts: &'a Parts,
    pub(super) who: Who,
    /// `None` at a server without sessions: nothing tells its clients apart, so what one says of a
    /// call by its id must not meet another's.
    pub(super) session: Option<SessionKey>,
    pub(super) is_somebody: bool,
    pub(super) idempotency_key: InHeader,
}

impl<'a> Sender<'a> {
    pub(super) fn of(front: &Shared, parts: &'a Parts) -> Self {
        let caller = front.callers.of(&parts.headers);
        let session = SessionKey::named(&caller, &parts.headers);
        // Without a session no answer to a question finds its call.
        let capabilities = if session.is_some() { ASKABLE } else { "{}" };
        Self {
            parts,
            session,
            is_somebody: auth::is_somebody(&parts.headers),
            idempotency_key: claims::in_header(&parts.headers),
            who: Who {
                caller,
                credentials: front.credentials(&parts.headers),
                capabilities: capabilities.into(),
                client_era: Era::Legacy,
            },
        }
    }

    /// Whose list of tools it is.
    pub(super) fn name(&self) -> [u8; 16] {
        match &self.session {
            Some(session) => *session.as_bytes(),
            None => *self.who.caller.as_bytes(),
        }
    }

    pub(super) fn claimant(&self) -> Claimant<'_> {
        Claimant {
            caller: &self.who.caller,
            is_somebody: self.is_somebody,
            session: self.session,
            in_header: &self.idempotency_key,
        }
    }
}
