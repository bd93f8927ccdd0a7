//! What the server says of itself, and why it could not be asked.

use serde_json::value::RawValue;

use crate::mcp::error::Failure;
use crate::mcp::json::Object;
use crate::upstream::no_session::SessionError;
use crate::upstream::port::UpstreamError;

/// The server's description of itself, in its own words.
#[derive(Debug, Clone)]
pub struct Discovered {
    pub capabilities: Box<RawValue>,
    pub server_info: Option<Box<RawValue>>,
    pub instructions: Option<Box<RawValue>>,
    /// The versions that a modern server supports.
    pub supported_versions: Option<Box<RawValue>>,
}

impl Discovered {
    /// Reads the result of an `initialize`.
    pub(in crate::upstream) fn of_initialize(result: &Object<'_>) -> Option<Self> {
        let member = |key| result.get(key).map(ToOwned::to_owned);
        Some(Self {
            capabilities: member("capabilities")?,
            server_info: member("serverInfo"),
            instructions: member("instructions"),
            supported_versions: None,
        })
    }
}

/// Why the server could not be asked about itself.
#[derive(Debug, Clone)]
pub enum DiscoverError {
    Failed(Failure),
    /// An answer with status 401 or 403, which the client has to deal with.
    Unauthorized(UpstreamError),
    /// Any other JSON-RPC error of the server.
    Refused(UpstreamError),
}

impl From<SessionError> for DiscoverError {
    fn from(why: SessionError) -> Self {
        match why {
            SessionError::Failed(failure) => Self::Failed(failure),
            SessionError::Error(error) => refused(error),
            SessionError::Later(later) => Self::Failed(later.failure),
        }
    }
}

/// Returns the meaning of an error for a caller that asked about the server itself.
pub(in crate::upstream) fn refused(error: UpstreamError) -> DiscoverError {
    if matches!(error.status, 401 | 403) {
        return DiscoverError::Unauthorized(error);
    }
    DiscoverError::Refused(error)
}
