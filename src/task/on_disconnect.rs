//! The handling of a call whose client goes away.

use serde::{Deserialize, Serialize};

/// The handling of a call whose client disconnects before it has its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDisconnect {
    /// The call is cancelled: no client can ask for it again (streamable-http, Cancellation).
    #[default]
    #[serde(rename = "cancelled")]
    Cancel,
    /// The call runs on for this many milliseconds, in which the same call may come again.
    #[serde(rename = "runs_for")]
    KeepFor(u64),
    /// The call runs on: its client has a key to come back with.
    #[serde(rename = "runs_on")]
    Keep,
}

impl OnDisconnect {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::Cancel
    }
}
