//! Why there is no session for a request.

use crate::mcp::error::Failure;
use crate::upstream::failures::Postponed;
use crate::upstream::port::{Event, UpstreamError};

/// Why there is no session.
#[derive(Debug)]
pub(super) enum NoSession {
    Failed(Failure),
    Error(UpstreamError),
    /// The server is busy. Raincheck asks again after this pause.
    Later(Postponed),
}

impl From<Failure> for NoSession {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<NoSession> for Event {
    fn from(why: NoSession) -> Self {
        match why {
            NoSession::Failed(failure) => Self::Failed(failure),
            NoSession::Error(error) => Self::Error(error),
            NoSession::Later(later) => Self::Later(Some(later.pause)),
        }
    }
}
