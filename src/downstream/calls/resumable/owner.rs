//! The owner note beside the log of a call: which replica writes the log, and what another replica needs to
//! continue the call. The fields are a stored format: a rolling upgrade reads both versions.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Who writes the log of a call, and what another replica needs to continue the call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LogOwner {
    /// The incarnation that writes.
    #[serde(rename = "owner")]
    pub(super) incarnation: Box<str>,
    /// The request's id, for an error in place of an answer that will never come.
    pub(super) id: Box<RawValue>,
    pub(super) began_ms: u64,
    #[serde(rename = "terms")]
    pub(super) limits: CallLimits,
    /// Where the call can be resumed at the server, if the last event id came without a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) point: Option<SealedPoint>,
    /// The client's progress token, where the rule sends progress while the server is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) heartbeat: Option<Box<RawValue>>,
    /// The log is complete.
    #[serde(default)]
    pub(super) is_over: bool,
}

/// An owner note as it is in the store: what a compare-and-set replaces.
#[derive(Debug, Clone)]
pub(super) struct StoredOwner(pub(super) Bytes);

/// The limits that the rules set when the call began.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct CallLimits {
    pub(super) ends_ms: u64,
    pub(super) retention_ms: u64,
    pub(super) bytes_max: usize,
}

/// An event id of the server from which the call can be resumed, sealed, and the last entry that the log had
/// then.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SealedPoint {
    pub(super) behind: u64,
    pub(super) sealed: Box<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_note_is_read_as_it_was_written() {
        let owner = LogOwner {
            incarnation: "a/1".into(),
            id: RawValue::from_string("\"x\"".into()).unwrap(),
            began_ms: 7,
            limits: CallLimits {
                ends_ms: 9,
                retention_ms: 1,
                bytes_max: 2,
            },
            point: None,
            heartbeat: None,
            is_over: false,
        };
        let text = serde_json::to_string(&owner).unwrap();
        assert!(text.starts_with(r#"{"owner":"a/1","id":"x","began_ms":7,"terms":{"#));
        let read: LogOwner = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&*read.incarnation, read.id.get(), read.is_over),
            ("a/1", "\"x\"", false)
        );
    }
}
