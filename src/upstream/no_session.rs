//! Why there is no session for a request.

use crate::mcp::error::Failure;
use crate::upstream::failures::Postponed;
use crate::upstream::port::{Event, UpstreamError};

/// Why there is no session.
#[derive(Debug)]
pub(super) enum SessionError {
    Failed(Failure),
    Error(UpstreamError),
    /// The server is busy. Raincheck asks again after this pause.
    Later(Postponed),
}

impl From<Failure> for SessionError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<SessionError> for Event {
    fn from(why: SessionError) -> Self {
        match why {
            SessionError::Failed(failure) => Self::Failed(failure),
            SessionError::Error(error) => Self::Error(error),
            SessionError::Later(later) => Self::Later(Some(later.pause)),
        }
    }
}
