//! The part of a record that only a call with a log has.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::digest::Digest;

/// The data that another replica needs to carry a call with a log on, for the client that comes back to the call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogTerms {
    /// The session of the client: no other session comes back to the call.
    pub session: Digest,
    /// The id of the client's request, as JSON.
    pub id: Box<RawValue>,
    /// Since when the client waits.
    pub began_ms: u64,
    /// The time at which the call is ended, as the rules set it when it began.
    pub ends_ms: u64,
    /// The time that the log is kept once the call is over.
    pub retention_ms: u64,
    /// The largest message that the server may send.
    pub bytes_max: usize,
    /// The client's progress token, where the rule sends progress while the server is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Box<RawValue>>,
    /// Where the call can be resumed at the server, if the last event id came without a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<SealedPoint>,
}

/// An event id of the server from which a call can be resumed, sealed, and the last entry that the log had
/// then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedPoint {
    pub behind: u64,
    pub sealed: Box<str>,
}
